//! What else may happen to an experiment: silence, foreign changes, a full disk, another one. Needs root.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, FAR_PEER, KNOWN_PEER, PEER, assert_same};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// A running experiment that takes orders.
struct Living {
    child: Child,
    to: Option<ChildStdin>,
    from: Lines<BufReader<ChildStdout>>,
}

impl Living {
    fn begin(bench: &Bench, words: &[&str], deadline_ms: u32) -> Living {
        let mut child = bench
            .holder(&[&["wait"], words].concat())
            .env("DEADLINE_MS", deadline_ms.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let from = BufReader::new(child.stdout.take().unwrap()).lines();
        let to = child.stdin.take();
        Living { child, to, from }
    }

    fn says(&mut self) -> String {
        self.from.next().unwrap().unwrap()
    }

    fn order(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    fn end(mut self) -> bool {
        drop(self.to.take());
        self.child.wait().unwrap().success()
    }
}

/// Waits for something that another process is about to do.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Has the owner and its guard killed when everything is applied: the journal stays.
fn kill_both_when_applied(bench: &Bench, words: &[&str], changes: usize) {
    for step in 1..500 {
        let environment = [
            ("LINERATE_DIE_AFTER_STEP", step.to_string()),
            ("LINERATE_GUARD_DIE_AFTER_STEP", "3".to_owned()),
        ];
        let output = bench.run(words, &environment);
        let status = String::from_utf8(bench.run(&["status"], &[]).stdout).unwrap();
        if status.matches("made: true").count() == changes {
            return;
        }
        let recovered = bench.run(&["recover"], &[]);
        assert!(recovered.status.success(), "{output:?} {recovered:?}");
    }
    panic!("{words:?} were never applied");
}

const LONG: u32 = 600_000;

#[test]
fn the_second_experiment_gets_the_name_of_the_first() {
    let bench = Bench::new();
    let before = bench.snapshot();
    let mut first = Living::begin(&bench, &[FAR_PEER, "route.initcwnd=32"], LONG);
    assert_eq!(first.says(), "route.initcwnd=32: 32 true");
    let changed = bench.snapshot();
    assert!(changed.contains("initcwnd 32"), "{changed}");
    let pid = first.child.id();
    let says = format!(
        "'a test' (process {pid}) is changing the settings of this host: wait until it has ended, or end it\n"
    );
    for words in [&["hold", PEER, "device.mtu=1400"][..], &["recover"]] {
        let second = bench.run(words, &[]);
        assert!(!second.status.success());
        assert_eq!(String::from_utf8_lossy(&second.stdout), says);
    }
    assert_same(&changed, &bench.snapshot(), "refused");
    let status = bench.run(&["status"], &[]).stdout;
    let status = String::from_utf8_lossy(&status);
    for part in [
        "title: \"a test\"",
        "alive: true",
        "guarded: true",
        "namespace: Here",
        "setting: \"route.initcwnd=32\", was: \"20\", made: true",
    ] {
        assert!(status.contains(part), "{part}: {status}");
    }
    assert!(first.end());
    assert_same(&before, &bench.snapshot(), "ended");
    assert!(bench.is_clean());
}

#[test]
fn what_somebody_else_commits_stays_and_only_under_its_title() {
    let bench = Bench::new();
    let before = bench.snapshot();
    let mut living = Living::begin(&bench, &[PEER, "device.mtu=1400"], LONG);
    assert_eq!(living.says(), "device.mtu=1400: 1400 true");
    let changed = bench.snapshot();
    let commit = |title: &str| bench.run(&["commit", title], &[]).status.success();
    assert!(!commit("another test"), "nothing of that title is in force");
    assert!(commit("a test") && commit("a test"));
    assert!(
        !commit("another test"),
        "the last that was kept is not of that title"
    );
    living.order("apply");
    assert!(!living.end(), "its holder has nothing any more");
    assert_same(&changed, &bench.snapshot(), "kept");
    assert!(bench.run(&["undo"], &[]).status.success());
    assert_same(&before, &bench.snapshot(), "undone");
    assert!(bench.is_clean());
}

#[test]
fn a_silent_experiment_is_undone_and_may_change_nothing_more() {
    let bench = Bench::new();
    let before = bench.snapshot();
    let mut silent = Living::begin(&bench, &[PEER, "device.mtu=1400"], 300);
    assert_eq!(silent.says(), "device.mtu=1400: 1400 true");
    until("undone", || bench.is_clean());
    assert_same(&before, &bench.snapshot(), "deadline");
    silent.order("apply");
    assert_eq!(
        silent.says(),
        "the settings of 'a test' were undone by its guard, because nothing renewed them in time: begin again"
    );
    assert!(!silent.end());
    assert_same(&before, &bench.snapshot(), "expired");
}

#[test]
fn a_sign_of_life_moves_the_deadline() {
    let bench = Bench::new();
    let mut living = Living::begin(&bench, &[PEER, "device.mtu=1400"], LONG);
    living.says();
    let guard = std::fs::read_dir(&bench.state)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let guard = guard.path().join("guard");
    let touched = || std::fs::metadata(&guard).unwrap().modified().unwrap();
    for _ in 0..3 {
        let last = touched();
        living.order("renew");
        until("renewed", || touched() > last);
    }
    // Status counts the deadline from the last sign of life, not from the beginning.
    let last = UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    std::fs::File::open(&guard)
        .unwrap()
        .set_modified(last)
        .unwrap();
    let status = bench.run(&["status"], &[]).stdout;
    let deadline = format!("deadline: {}", 4_000_000_000 + u64::from(LONG) / 1000);
    let status = String::from_utf8_lossy(&status);
    assert!(status.contains(&deadline), "{deadline}: {status}");
    living.order("verify");
    assert_eq!(living.says(), "device.mtu=1400: 1400 true");
    living.order("end");
    assert!(living.end());
    assert!(bench.is_clean());
}

#[test]
fn pinned_routes_keep_their_mtu_until_the_end() {
    let bench = Bench::new();
    bench.sh(
        "ip route add 10.81.0.0/24 nexthop via 10.77.0.2 nexthop via 10.77.0.3
         ip addr add 10.82.0.1/24 dev vb
         ip route add 10.83.0.0/24 via 10.82.0.2
         ip route add 10.84.0.0/24 nexthop via 10.82.0.2 nexthop via 10.82.0.3",
    );
    let before = bench.snapshot();
    let mut living = Living::begin(&bench, &[PEER, "device.pin=1400"], LONG);
    assert_eq!(living.says(), "device.pin=1400: 1400 true");
    for (route, mtu) in [
        ("default", "mtu lock 1400"),
        ("10.79.0.0/24", "mtu lock 1400"),
        ("10.81.0.0/24", "mtu lock 1400"),
        // No larger already.
        (KNOWN_PEER, "mtu lock 1300"),
    ] {
        let shown = bench.sh(&format!("ip route show {route}"));
        assert!(shown.contains(mtu), "{route}: {shown}");
    }
    for route in ["10.83.0.0/24", "10.84.0.0/24"] {
        let shown = bench.sh(&format!("ip route show {route}"));
        assert!(!shown.contains("mtu"), "through the other device: {shown}");
    }
    living.order("end");
    assert!(living.end());
    assert_same(&before, &bench.snapshot(), "unpinned");
}

#[test]
fn nothing_more_is_changed_without_a_guard() {
    let bench = Bench::new();
    let before = bench.snapshot();
    let mut living = Living::begin(&bench, &[PEER, "device.mtu=1400"], LONG);
    living.says();
    let children = format!("/proc/{0}/task/{0}/children", living.child.id());
    let guard: u32 = std::fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    sys::signal::end(guard, true).unwrap();
    until("dead", || {
        let status = bench.run(&["status"], &[]).stdout;
        String::from_utf8_lossy(&status).contains("guarded: false")
    });
    living.order("apply");
    assert_eq!(
        living.says(),
        "the guard that undoes the settings if this process dies has died; nothing more is changed"
    );
    assert!(!living.end());
    assert_same(&before, &bench.snapshot(), "without a guard");
}

#[test]
fn a_change_by_somebody_else_is_undone_and_reported() {
    let bench = Bench::new();
    let before = bench.snapshot();
    let words = ["hold", FAR_PEER, "route.initcwnd=32", "device.mtu=1400"];
    kill_both_when_applied(&bench, &words, 2);
    bench.sh("ip link set va mtu 1450; ip route replace 10.78.0.9 via 10.77.0.2 initcwnd 7");
    let output = bench.run(&["recover"], &[]);
    let says = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        says,
        "device.mtu=1400 back to 1500 (somebody else had changed it meanwhile, to 1450)\n\
         route.initcwnd=32 back to 20 (somebody else had changed it meanwhile, to 7)\n"
    );
    assert_same(&before, &bench.snapshot(), "recovered");
}

#[test]
fn a_device_that_is_gone_took_its_settings_with_it() {
    let bench = Bench::new();
    let mut living = Living::begin(&bench, &[PEER, "device.mtu=1400", "route.initcwnd=9"], LONG);
    living.says();
    bench.sh("ip link del va; ip link add name va type veth peer name vb; ip link set va mtu 1400");
    assert!(living.end());
    assert!(bench.is_clean());
    assert!(bench.sh("ip link show va").contains("mtu 1400"));
}

#[test]
fn with_a_full_disk_nothing_is_changed() {
    let bench = Bench::new();
    let before = bench.snapshot();
    let holder = bench.holder(&["hold"]);
    let holder = holder.get_program().to_str().unwrap().to_owned();
    // In blocks of 512 bytes: not even the title, and not the second change.
    for blocks in [0, 1] {
        let mut command = Command::new("dash");
        command.arg("-c").arg(format!(
            "trap '' XFSZ; ulimit -f {blocks}; exec {holder} hold {} {PEER} sysctl:net.ipv4.tcp_sack=0 \
             sysctl:net.ipv4.tcp_dsack=0 sysctl:net.ipv4.tcp_frto=0",
            bench.state.display()
        ));
        bench.inside(&mut command);
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{blocks}");
        let says = String::from_utf8(output.stdout).unwrap();
        assert!(says.starts_with("cannot write "), "{blocks}: {says}");
        assert!(
            says.ends_with("without its journal nothing is changed\n"),
            "{says}"
        );
        assert_same(&before, &bench.snapshot(), "full");
        assert!(bench.is_clean());
    }
}

#[test]
fn a_journal_of_another_boot_or_namespace_undoes_nothing() {
    for (old, new) in [
        ("\"boot\":\"", "\"boot\":\"0"),
        ("\"cookie\":", "\"cookie\":9"),
    ] {
        let bench = Bench::new();
        kill_both_when_applied(&bench, &["hold", PEER, "device.mtu=1400"], 1);
        assert!(bench.sh("ip link show va").contains("mtu 1400"));
        let place = std::fs::read_dir(&bench.state)
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let journal = place.path().join("journal");
        let text = std::fs::read_to_string(&journal).unwrap();
        std::fs::write(&journal, text.replace(old, new)).unwrap();
        let status = bench.run(&["status"], &[]).stdout;
        assert!(String::from_utf8_lossy(&status).contains("namespace: Forgotten"));
        let output = bench.run(&["recover"], &[]);
        assert!(
            output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
        assert!(bench.is_clean());
        assert!(bench.sh("ip link show va").contains("mtu 1400"));
    }
}
