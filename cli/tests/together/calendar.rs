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

/// A host that serves one client at a time measures nothing itself meanwhile, by its own agent or another's.
#[test]
fn a_host_that_is_measured_waits_before_it_measures() {
    let server = Server::start(&["--clients", "1"]);
    let guest = server.guest(&[]);
    let other = Home::new();
    let at = format!("127.0.0.2:{}", free_port());
    let (address, port) = at.split_once(':').unwrap();
    let _other = listening(&mut other.linerate(&["serve", "--bind", address, "--port", port]));
    let invited = run(&mut other.linerate(&["trust", "invite", "--address", &at]));
    let accept = ["trust", "accept", stdout(&invited).trim()].map(str::to_owned);
    let accepted = run(&mut server.home.linerate(&accept.each_ref().map(String::as_str)));
    assert!(accepted.status.success(), "{}", stderr(&accepted));
    for target in ["local", &at] {
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
