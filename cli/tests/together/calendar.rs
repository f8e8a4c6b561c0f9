//! The calendar of a host: what measures on it at the same time, and what waits.

use crate::common::*;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Starts it, with the lines of its standard error.
fn watched(command: &mut Command) -> (Running, Lines) {
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = Lines::of(child.stderr.take().unwrap());
    (Running(child), lines)
}

/// Waits until it says that a host is busy, lets `free` end that, and expects success.
fn waits_until(command: &mut Command, free: impl FnOnce()) {
    let (waiting, lines) = watched(command);
    lines.wait_for("is busy");
    free();
    let out = waiting.output(Duration::from_secs(60));
    assert!(out.status.success(), "{:#?}", lines.rest());
}

/// A server at an address of its own, so that measuring it is not measuring this host.
struct Other {
    home: Home,
    at: String,
    _serve: (Running, Lines),
}

impl Other {
    fn start(address: &str) -> Other {
        let (home, port) = (Home::new(), free_port().to_string());
        let mut serve = home.linerate(&["serve", "--bind", address, "--port", &port]);
        let serve = listening(serve.args(["--clients", "1"]));
        let at = format!("{address}:{port}");
        Other {
            home,
            at,
            _serve: serve,
        }
    }

    fn trusts(&self, guest: &Home) {
        let invited = run(&mut self
            .home
            .linerate(&["trust", "invite", "--address", &self.at]));
        let line = stdout(&invited);
        let accepted = run(&mut guest.linerate(&["trust", "accept", line.trim()]));
        assert!(accepted.status.success(), "{}", stderr(&accepted));
    }
}

/// A host that serves one client at a time measures nothing itself meanwhile, by its own agent or another's.
#[test]
fn a_host_that_is_measured_waits_before_it_measures() {
    let server = Server::start(&["--clients", "1"]);
    let guest = server.guest(&[]);
    let other = Other::start("127.0.0.2");
    other.trusts(&server.home);
    for target in ["local", &other.at] {
        let long = ["measure", &server.at, "--up", "-t", "30", "-q"];
        let (long, _lines) = watched(&mut guest.linerate(&long));
        server.log.wait_for("over 1 connection");
        let short = ["measure", target, "--up", "-t", "100ms"];
        waits_until(&mut server.home.linerate(&short), || long.interrupt());
    }
}

/// Without a calendar there is one warning, and the measurement.
#[test]
fn a_calendar_that_cannot_be_written_is_a_warning() {
    let home = Home::new();
    std::fs::write(home.path().join("calendar"), "a file").unwrap();
    let run = json(&mut home.linerate(&["measure", "local", "-t", "100ms", "--json"]));
    let legs = run["legs"].to_string();
    let warned = legs.matches("not in this host's calendar: cannot make the directory");
    assert_eq!(warned.count(), 1, "{legs}");
}

/// Each books itself, then finds the other busy: neither keeps its place while it waits.
#[test]
fn two_hosts_that_measure_each_other_both_get_through() {
    let [one, other] = ["127.0.0.3", "127.0.0.4"].map(Other::start);
    one.trusts(&other.home);
    other.trusts(&one.home);
    let measure = |from: &Other, to: &Other| {
        let short = ["measure", &to.at, "-t", "500ms", "-q"];
        watched(&mut from.home.linerate(&short))
    };
    for (running, lines) in [measure(&one, &other), measure(&other, &one)] {
        let out = running.output(Duration::from_secs(60));
        assert!(out.status.success(), "{:#?}", lines.rest());
    }
}

#[test]
fn a_measurement_waits_for_the_end_of_a_hold() {
    let home = Home::new();
    let hold = ["calendar", "hold", "1h", "--note", "backup", "--json"];
    let held = json(&mut home.linerate(&hold));
    let listed = json(&mut home.linerate(&["calendar", "list", "--json"]));
    assert_eq!(listed.as_array().unwrap().as_slice(), [held]);
    let (waiting, lines) = watched(&mut home.linerate(&["measure", "local"]));
    let line = lines.wait_for("is busy: it is held from 2");
    assert!(line.contains("UTC (backup)"), "{line}");
    waiting.interrupt();
    let out = waiting.output(Duration::from_secs(20));
    assert_eq!(out.status.code(), Some(4), "{:#?}", lines.rest());
    let short = ["measure", "local", "--up", "-t", "100ms"];
    waits_until(&mut home.linerate(&short), || {
        let released = run(&mut home.linerate(&["calendar", "release"]));
        assert!(stdout(&released).starts_with("released: backup until 2"));
    });
    let again = run(&mut home.linerate(&["calendar", "release"]));
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("this host has no hold"));
}

/// A second hold begins after the first; one at a set time is refused if it would overlap.
#[test]
fn holds_do_not_overlap() {
    let home = Home::new();
    let calendar = |args: &[&str]| run(&mut home.linerate(&[&["calendar"], args].concat()));
    let hold = || json(&mut home.linerate(&["calendar", "hold", "90m", "--json"]));
    let (first, second) = (hold(), hold());
    assert_eq!(first["ends_unix_ns"], second["starts_unix_ns"]);
    assert_eq!(calendar(&["release"]).status.code(), Some(2), "which one?");
    for slot in [second, first] {
        let name = &slot["slot"].as_str().unwrap()[..8];
        assert!(calendar(&["release", name]).status.success());
    }
    let noon = ["hold", "24h", "--at", "12:00"];
    assert!(calendar(&noon).status.success());
    let refused = calendar(&noon);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("are free from 2"),
        "{}",
        stderr(&refused)
    );
}
