//! Labs made, used and removed for real. Needs root; without it the tests fail, unless
//! `LINERATE_TEST_UNPRIVILEGED=1` says that only a user namespace is to be had.

use emulate::Scenario;
use linerate_lab::{Backend, Lab, Labs, Options};
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of labs of its own, and the labs in it removed at the end.
struct Bench {
    labs: Labs,
    home: PathBuf,
}

impl Bench {
    fn new() -> Bench {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("linerate-{}-{count}", std::process::id()));
        Bench {
            labs: Labs::in_directory(&home),
            home,
        }
    }

    fn up(&self, text: &str) -> Lab {
        self.labs.up(&scenario(text), &options()).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.labs.down_all().unwrap();
        let left: Vec<_> = std::fs::read_dir(&self.home)
            .into_iter()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{left:?}");
        let _ = std::fs::remove_dir(&self.home);
    }
}

fn options() -> Options {
    let unprivileged = std::env::var_os("LINERATE_TEST_UNPRIVILEGED").is_some();
    assert!(
        unprivileged || sys::process::effective_user() == 0,
        "these tests need root, or LINERATE_TEST_UNPRIVILEGED=1 for a user namespace"
    );
    let mut keeper = std::env::current_exe().unwrap();
    keeper.pop();
    keeper.pop();
    keeper.push("examples/keeper");
    Options {
        backend: Backend::Emulator,
        in_user_namespace: unprivileged,
        keeper: Some(vec![keeper.into()]),
        ..Options::default()
    }
}

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml").unwrap_or_else(|e| panic!("{e}"))
}

/// Two hosts and what lies between them.
fn pair(link: &str) -> String {
    format!(
        "name = \"pair\"\nwhy = \"a test\"\n[[host]]\nname = \"one\"\ncongestion = \"cubic\"\n\
         [[host]]\nname = \"two\"\ncongestion = \"cubic\"\n\
         [[link]]\nname = \"wire\"\nbetween = [\"one\", \"two\"]\n{link}"
    )
}

fn run(lab: &Lab, host: &str, words: &str) -> Output {
    let mut words = words.split(' ');
    let output = lab
        .command(host, words.next().unwrap())
        .unwrap()
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn said(lab: &Lab, host: &str, words: &str) -> String {
    String::from_utf8(run(lab, host, words).stdout).unwrap()
}

/// Least, mean and greatest of ping's round trips, in ms.
fn round_trips(lab: &Lab, words: &str) -> [f64; 3] {
    let text = said(lab, "one", words);
    let line = text.lines().find(|l| l.starts_with("rtt")).unwrap();
    let mut values = line.split(" = ").nth(1).unwrap().split('/');
    std::array::from_fn(|_| values.next().unwrap().parse().unwrap())
}

#[test]
fn a_ping_takes_the_delay() {
    let bench = Bench::new();
    let lab = bench.up(&pair("[link.both]\ndelay = \"5ms\"\n"));
    let [least, mean, _] = round_trips(&lab, "ping -q -c 50 -i 0.02 two");
    assert!((10.0..10.5).contains(&least), "{least}");
    assert!((10.0..12.0).contains(&mean), "{mean}");
}
