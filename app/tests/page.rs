//! The pages in a real browser: they open from a disk, ask for nothing, complain of nothing, and show what they have to
//! whoever cannot run their scripts or see their pictures. Needs chromium (`make test` installs it). What they look like, at
//! the width of a desk and of a phone, is below target/pages afterwards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/browser.rs"]
mod browser;
mod common;

use browser::{Browser, Tab};
use common::{Home, Lines, Running, run, stderr, stdout};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Pixels of a desk and of a phone.
const DESK: u32 = 1200;
const PHONE: u32 = 390;

/// What somebody could call a host, or write in a note.
const EVIL: &str =
    "</script><script>document.title='mine'</script><img src=x onerror=alert(1)>&quot;\u{202e}";

fn linerate(home: &Home, args: &[&str]) -> String {
    let out = run(home.linerate(args).current_dir(home.path()));
    // Some verdicts of an experiment have a status of their own.
    let fine = matches!(out.status.code(), Some(0 | 10..=13));
    assert!(fine, "{args:?}: {}\n{}", out.status, stderr(&out));
    stdout(&out)
}

/// A page of each kind.
fn pages(home: &Home) -> Vec<PathBuf> {
    const SHORT: [&str; 7] = ["-t", "400ms", "-O", "100ms", "-i", "50ms", "-q"];
    let page = |name: &str| {
        linerate(home, &["report", "last", "-o", name]);
        home.path().join(name)
    };
    linerate(
        home,
        &[&["measure", "local", "--trace"][..], &SHORT].concat(),
    );
    let bulk = page("bulk.html");
    linerate(
        home,
        &[&["measure", "local", "--workload", "request"][..], &SHORT].concat(),
    );
    let request = page("request.html");
    let copy = ["--from", "memory", "--to", "memory", "-n", "32M", "-q"];
    linerate(
        home,
        &[&["measure", "local", "--workload", "copy"], &copy[..]].concat(),
    );
    let copy = page("copy.html");
    // The same once more: a path with a history.
    linerate(home, &[&["measure", "local"][..], &SHORT].concat());
    linerate(home, &["report", "--all", "all"]);
    let all = ["index.html", "history-1.html"].map(|name| home.path().join("all").join(name));
    [vec![bulk, request, copy], all.into()].concat()
}

/// Where a picture of a page goes: below the folder that cargo builds in.
fn shot(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("../pages")
        .join(format!("{name}.png"))
}

/// What holds of every page in every window.
fn is_sound(tab: &mut Tab<'_>, name: &str) {
    assert_eq!(tab.complaints(), Vec::<String>::new(), "{name}");
    assert_ne!(tab.eval("document.title"), "", "{name}");
    assert_eq!(tab.eval("document.documentElement.lang"), "en", "{name}");
    assert_eq!(
        tab.eval("document.querySelectorAll('h1').length"),
        1,
        "{name}"
    );
    let wide = tab.eval("document.documentElement.scrollWidth - innerWidth");
    assert!(
        wide.as_i64().unwrap() <= 0,
        "{name} is {wide} pixels too wide"
    );
    let silent = "[...document.querySelectorAll('figure')].filter(f => !f.querySelector('svg title')?.textContent \
                  || !f.querySelector('svg desc')?.textContent).map(f => f.id)";
    assert_eq!(
        tab.eval(silent),
        json!([]),
        "{name}: pictures without words"
    );
}

#[test]
fn every_page_opens_from_a_disk_and_is_whole_for_everybody() {
    let home = Home::new();
    let pages = pages(&home);
    let mut browser = Browser::start(home.path());
    for file in &pages {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let size = file.metadata().unwrap().len();
        assert!(size < 1 << 20, "{name} has {size} bytes");
        for (width, window) in [(DESK, "desk"), (PHONE, "phone")] {
            let mut tab = browser.open(file, width);
            is_sound(&mut tab, name);
            tab.shoot(&shot(&format!("{name}-{window}")));
        }
        let mut tab = browser.open(file, DESK);
        tab.reload_without_scripts();
        is_sound(&mut tab, name);
        let unseen = "[...document.querySelectorAll('section figure')]\
                      .filter(f => !f.querySelector('svg').getBoundingClientRect().height).map(f => f.id)";
        assert_eq!(
            tab.eval(unseen),
            json!([]),
            "{name}: pictures that need scripts"
        );
    }
}

#[test]
fn what_strangers_called_things_stays_text() {
    let home = Home::new();
    linerate(
        &home,
        &[
            "measure", "local", "-t", "200ms", "-O", "50ms", "-i", "50ms", "--up", "-q",
        ],
    );
    let mut run: Value =
        serde_json::from_str(&linerate(&home, &["runs", "export", "last"])).unwrap();
    for key in ["host", "title"] {
        run[key] = json!(EVIL);
    }
    for end in ["near", "far"] {
        for key in ["hostname", "kernel"] {
            run[end][key] = json!(EVIL);
        }
    }
    std::fs::write(home.path().join("evil.json"), run.to_string()).unwrap();
    linerate(&home, &["runs", "delete", "last"]);
    linerate(&home, &["runs", "import", "evil.json"]);
    linerate(&home, &["report", "last", "-o", "evil.html"]);
    let mut browser = Browser::start(home.path());
    let mut tab = browser.open(&home.path().join("evil.html"), DESK);
    is_sound(&mut tab, "evil");
    assert_ne!(tab.eval("document.title"), "mine");
    assert_eq!(tab.eval("document.querySelectorAll('img').length"), 0);
    assert_eq!(
        tab.eval("document.body.innerText.includes('<img src=x onerror=alert(1)>')"),
        true
    );
}

/// As Ctrl-C does, in the middle of its first measurement.
#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    let home = Home::new();
    let mut command = home.linerate(&["demo"]);
    command.current_dir(home.path()).stderr(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let lines = Lines::of(demo.stderr.take().unwrap());
    let demo = Running(demo);
    lines.wait_for("1 of 4");
    lines.wait_for("Mbit/s");
    demo.interrupt();
    let out = demo.output(Duration::from_secs(60));
    assert_eq!(out.status.code(), Some(4), "{:?}", lines.rest());
    assert!(!home.path().join("linerate-demo.html").exists());
    assert!(linerate(&home, &["lab", "list"]).starts_with("no lab is up"));
}
