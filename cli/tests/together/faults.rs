//! Faults of the path and of this host, and what is said of them. Real processes in two network namespaces. Needs root.

use crate::common::{Home, Lines, Pair, Running, alone, listening, one_line, run, stderr, stdout};
use serde_json::Value;
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

/// Nothing passes for so long, in the middle of a leg, which goes on afterwards and shows the silence.
fn survives(name: &str, outage: Duration, time: &str) {
    let _alone = alone();
    let bench = Bench::new(name);
    Pair::limit(&bench.pair.local, "50mbit");
    let (running, lines) = started(&mut bench.measure(&["-t", time, "--json-stream", "-q"]));
    // Samples come: the leg is under way.
    for _ in 0..10 {
        lines.wait_for("\"sample\"");
    }
    bench.rules(Some("drop"));
    // The length of the outage is what is tested.
    std::thread::sleep(outage);
    bench.rules(None);
    let out = running.output(Duration::from_secs(240));
    let rest = lines.rest().join("\n");
    assert!(out.status.success(), "{}\n{rest}", out.status);
    let show = |options: &[&str]| {
        let mut command = bench.guest.linerate(&[&["runs"], options].concat());
        stdout(&run(&mut command))
    };
    let run: Value = serde_json::from_str(&show(&["export", "last"])).unwrap();
    let leg = &run["legs"][0];
    assert_eq!(leg["ended"]["how"], "complete", "{:#}", leg["ended"]);
    let samples = leg["remote"]["samples"].as_array().unwrap();
    let at = |bytes: &dyn Fn(u64) -> bool| {
        let found = samples
            .iter()
            .find(|sample| bytes(sample["bytes"].as_u64().unwrap()));
        found.map(|sample| sample["at_ns"].as_u64().unwrap())
    };
    let total = samples.last().unwrap()["bytes"].as_u64().unwrap();
    assert!(at(&|bytes| bytes == total).is_some());
    let mut longest = (0, 0);
    let mut since = (0, 0);
    for sample in samples {
        let (at, bytes) = (
            sample["at_ns"].as_u64().unwrap(),
            sample["bytes"].as_u64().unwrap(),
        );
        if bytes > since.1 {
            longest = longest.max((at - since.0, at));
            since = (at, bytes);
        }
    }
    let silent = Duration::from_nanos(longest.0);
    assert!(
        silent >= outage - Duration::from_secs(1),
        "{silent:?} of {outage:?}"
    );
    assert!(since.1 > 0 && since.0 >= longest.1, "it went on");
    let text = one_line(&show(&["show", "last"]));
    assert!(text.contains("nothing arrived for"), "{text}");
}

#[test]
fn a_leg_survives_an_outage_of_ten_seconds() {
    survives("t", Duration::from_secs(10), "30s");
}

#[test]
fn a_leg_survives_an_outage_of_twenty_seconds() {
    survives("w", Duration::from_secs(20), "60s");
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
fn a_data_port_that_is_not_reached_is_named_by_what_answered() {
    let bench = Bench::new("y");
    let ports = "tcp dport 5300-5309";
    for (answer, said) in [
        (
            "reject with tcp reset",
            "answered with a reset (RST), though the agent listens there",
        ),
        (
            "reject with icmp type admin-prohibited",
            "10.99.0.2 rejected the data port 10.99.0.2:53",
        ),
        (
            "reject with icmp type port-unreachable",
            "10.99.0.2 rejected the data port 10.99.0.2:53",
        ),
        (
            "drop",
            "did not answer within 10 s, neither with a reset nor by ICMP",
        ),
    ] {
        bench.rules(Some(&format!("{ports} {answer}")));
        let out: Output = run(&mut bench.measure(&["-t", "1s", "-q"]));
        let text = one_line(&stderr(&out));
        assert_eq!(out.status.code(), Some(3), "{answer}: {text}");
        assert!(
            text.contains(said) && !text.contains("start linerate"),
            "{answer}: {text}"
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
