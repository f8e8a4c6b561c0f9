//! Faults of the path and of this host, and what is said of them. Real processes in two network namespaces. Needs root.

use crate::common::{Home, Lines, Pair, Running, alone, listening, one_line, run, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A server in one namespace, and a host that it trusts in the other.
struct Bench {
    pair: Pair,
    guest: Home,
    _server: (Home, Running, Lines),
}

impl Bench {
    fn new(name: &str) -> Bench {
        let (pair, server, guest) = (Pair::new(name), Home::new(), Home::new());
        let invite = ["trust", "invite", "--address", Pair::FAR, "--name", "guest"];
        let line = stdout(&run(&mut server.linerate(&invite)))
            .trim()
            .to_owned();
        let serve = ["serve", "--bind", Pair::FAR, "--data-ports", "5300-5309"];
        let (running, log) = listening(&mut server.linerate_in(&pair.remote, &serve));
        let out = run(&mut guest.linerate_in(&pair.local, &["trust", "accept", &line]));
        assert!(out.status.success(), "{}", stderr(&out));
        Bench {
            pair,
            guest,
            _server: (server, running, log),
        }
    }

    fn measure(&self, options: &[&str]) -> Command {
        let mut command = self
            .guest
            .linerate_in(&self.pair.local, &["measure", Pair::FAR, "--up"]);
        command.args(options);
        command
    }

    /// Adds rules of nftables for what comes to the remote host, or takes them all away.
    fn rules(&self, rules: Option<&str>) {
        let remote = &self.pair.remote;
        let script = match rules {
            Some(rule) => format!(
                "nft add table ip t; nft 'add chain ip t in {{ type filter hook input priority 0; }}'; nft 'add rule ip t in {rule}'"
            ),
            None => "nft delete table ip t".to_owned(),
        };
        let out = Command::new("ip")
            .args(["netns", "exec", remote, "sh", "-ec", &script])
            .output();
        let out = out.unwrap();
        assert!(out.status.success(), "{script}: {}", stderr(&out));
    }
}

fn started(command: &mut Command) -> (Running, Lines) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    (Running(child), lines)
}

#[test]
fn a_leg_survives_an_outage_goes_on_soon_after_it_and_shows_the_silence() {
    let _alone = alone();
    let bench = Bench::new("t");
    Pair::limit(&bench.pair.local, "50mbit");
    let (running, lines) = started(&mut bench.measure(&["-t", "16s", "--json-stream", "-q"]));
    // Samples come: the leg is under way.
    for _ in 0..10 {
        lines.wait_for("\"sample\"");
    }
    bench.rules(Some("drop"));
    // The length of the outage is what is tested: longer than a session lives without one, and than doubling takes from any first
    // retransmission timeout (200 to 533 ms) to 4 s: 31 x 250 ms.
    std::thread::sleep(Duration::from_secs(9));
    bench.rules(None);
    let out = running.output(Duration::from_secs(60));
    let rest = lines.rest().join("\n");
    assert!(out.status.success(), "{}\n{rest}", out.status);
    let show = |options: &[&str]| {
        let mut command = bench.guest.linerate(&[&["runs"], options].concat());
        stdout(&run(&mut command))
    };
    let run: Value = serde_json::from_str(&show(&["export", "last"])).unwrap();
    let leg = &run["legs"][0];
    assert_eq!(leg["ended"]["how"], "complete", "{:#}", leg["ended"]);
    let samples = |end: &str| leg[end]["samples"].as_array().unwrap().clone();
    // Where the kernel lets TCP be bounded, it never waits longer.
    let sends = samples("local");
    let waits = sends.iter().flat_map(|s| s["streams"].as_array().unwrap());
    let longest = waits.filter_map(|s| s["tcp"]["rto_ns"].as_u64()).max();
    let any = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    if sys::socket::set_longest_rto(any.as_fd(), Duration::from_secs(4)).is_ok() {
        assert_eq!(longest, Some(4_000_000_000));
    }
    let received = samples("remote");
    let bytes = |sample: &Value| sample["bytes"].as_u64().unwrap();
    let mut stood = BTreeMap::<u64, usize>::new();
    for sample in &received {
        *stood.entry(bytes(sample)).or_default() += 1;
    }
    let (silent, samples) = stood.iter().max_by_key(|(_, samples)| **samples).unwrap();
    assert!(*samples >= 60, "a silence of {samples} samples");
    assert!(
        bytes(received.last().unwrap()) > *silent,
        "it did not go on"
    );
    let text = one_line(&show(&["show", "last"]));
    assert!(text.contains("nothing arrived for"), "{text}");
    assert!(
        text.contains("retransmissions in a row had no answer"),
        "{text}"
    );
}

#[test]
fn who_stops_a_leg_does_not_wait_for_the_end_of_an_outage() {
    let bench = Bench::new("s");
    let (running, lines) = started(&mut bench.measure(&["-t", "60s", "--json-stream", "-q"]));
    lines.wait_for("\"sample\"");
    bench.rules(Some("drop"));
    running.interrupt();
    let out = running.output(Duration::from_secs(20));
    let rest = lines.rest().join("\n");
    assert_eq!(out.status.code(), Some(4), "{rest}");
    assert!(
        rest.contains("is silent: what it measured is missing"),
        "{rest}"
    );
}

#[test]
fn without_an_outage_allowed_the_silence_is_named_after_six_seconds() {
    let bench = Bench::new("x");
    let (running, lines) =
        started(&mut bench.measure(&["-t", "60s", "--json-stream", "-q", "--outage", "0s"]));
    lines.wait_for("\"sample\"");
    bench.rules(Some("drop"));
    let out = running.output(Duration::from_secs(60));
    assert!(!out.status.success());
    let rest = lines.rest().join("\n");
    assert!(rest.contains("nothing came from it for 6.00 s"), "{rest}");
}

#[test]
fn a_port_that_is_not_reached_is_named_by_what_answered() {
    let bench = Bench::new("y");
    let (reset, icmp) = ("reject with tcp reset", "reject with icmp type");
    let (prohibited, port) = (
        format!("{icmp} admin-prohibited"),
        format!("{icmp} port-unreachable"),
    );
    let data = "tcp dport 5300-5309";
    let control = "tcp dport 5210";
    for (ports, answer, said) in [
        (
            data,
            reset,
            "answered with a reset (RST), though the agent listens there",
        ),
        (
            data,
            &prohibited,
            "10.99.0.2 rejected the data port 10.99.0.2:53",
        ),
        (data, &port, "10.99.0.2 rejected the data port 10.99.0.2:53"),
        (
            data,
            "drop",
            "did not answer within 10 s, neither with a reset nor by ICMP",
        ),
        (control, reset, "TCP port 5210 answers with a reset (RST)"),
        (
            control,
            &prohibited,
            "10.99.0.2 rejected TCP port 5210 (ICMP: unreachable)",
        ),
        (
            control,
            &port,
            "10.99.0.2 rejected TCP port 5210 (ICMP: unreachable)",
        ),
        (control, "drop", "did not answer on TCP port 5210"),
    ] {
        bench.rules(Some(&format!("{ports} {answer}")));
        let out: Output = run(&mut bench.measure(&["-t", "1s", "-q"]));
        let text = one_line(&stderr(&out));
        assert_eq!(out.status.code(), Some(3), "{ports} {answer}: {text}");
        assert!(
            text.contains(said) && !text.contains("start linerate"),
            "{ports} {answer}: {text}"
        );
        bench.rules(None);
    }
}

#[test]
fn a_measurement_beside_another_says_so() {
    let bench = Bench::new("z");
    let (_other, lines) =
        started(&mut bench.measure(&["-t", "30s", "--json-stream", "-q", "--pacing", "1M"]));
    lines.wait_for("\"sample\"");
    let text = one_line(&stdout(&run(
        &mut bench.measure(&["-t", "1s", "-q", "--pacing", "1M"])
    )));
    assert!(
        text.contains("this host took part in another measurement at the same time"),
        "{text}"
    );
    drop((_other, lines));
    let text = one_line(&stdout(&run(
        &mut bench.measure(&["-t", "1s", "-q", "--pacing", "1M"])
    )));
    assert!(!text.contains("took part in"), "{text}");
}
