//! `linerate measure` as a user meets it: real sockets, real processes, real answers.

mod common;

use common::{Home, Lab, Lines, Pair, Running, free_port, json, run, signal, stderr, stdout};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn both_ways_against_this_machine() {
    let home = Home::new();
    let run = json(&mut home.linerate(&[
        "measure", "local", "-t", "1s", "-i", "100ms", "-O", "200ms", "--json",
    ]));
    assert_eq!(run["ended"]["how"], "complete");
    let legs = run["legs"].as_array().unwrap();
    assert_eq!(legs.len(), 2);
    assert_eq!(
        (&legs[0]["direction"], &legs[1]["direction"]),
        (&"up".into(), &"down".into())
    );
    for (leg, sender, receiver) in [(&legs[0], "local", "remote"), (&legs[1], "remote", "local")] {
        let bytes = |end: &str| leg[end]["bytes"].as_u64().unwrap();
        assert!(
            bytes(receiver) > 10_000_000,
            "a loopback moves more in a second"
        );
        assert_eq!(
            bytes(sender),
            bytes(receiver),
            "what was sent has all arrived"
        );
        for end in [sender, receiver] {
            let samples = leg[end]["samples"].as_array().unwrap();
            assert!(
                (9..=14).contains(&samples.len()),
                "{} samples",
                samples.len()
            );
            assert_eq!(samples[0]["at_ns"], 0);
            let last = samples.last().unwrap();
            assert_eq!(last["bytes"].as_u64().unwrap(), bytes(end));
            assert!(last["cpu"]["process_system_ns"].as_u64().unwrap() > 0);
            assert_eq!(leg[end]["sockets"].as_array().unwrap().len(), 1);
        }
        let tcp = &leg[sender]["samples"].as_array().unwrap().last().unwrap()["streams"][0]["tcp"];
        assert!(tcp["cwnd"].as_u64().unwrap() > 0 && tcp["busy_ns"].as_u64().unwrap() > 0);
        // What the last sample did not see acknowledged fits the send buffer.
        let acked = tcp["bytes_acked"].as_u64().unwrap();
        assert!(
            acked.abs_diff(bytes(sender)) < 16 << 20,
            "{acked} acknowledged"
        );
    }
    for end in ["local", "remote"] {
        assert!(run[end]["kernel"].as_str().unwrap().starts_with("Linux"));
        assert_eq!(run[end]["device"]["name"], "lo");
        assert!(run[end]["sysctls"]["net.ipv4.tcp_rmem"].is_string());
    }
    let summary = &run["summary"]["legs"][0];
    assert!(summary["steady_goodput_bit_s"].as_u64().unwrap() > 100_000_000);
    assert!(summary["rtt_idle_ns"].as_u64().unwrap() > 0);

    let listed = stdout(&common::run(&mut home.linerate(&["runs", "list"])));
    assert!(
        listed.contains(&run["id"].as_str().unwrap()[..8]),
        "{listed}"
    );
}

/// However late the receiver begins to read: the time runs from the first byte sent, by the sender's clock.
#[test]
fn short_transfers_are_not_faster_than_the_senders_clock() {
    let home = Home::new();
    for size in [10_u64 << 10, 64 << 10, 1 << 20] {
        for way in ["--up", "--down"] {
            let bytes = size.to_string();
            let args = ["measure", "local", way, "-n", &bytes, "-q", "--json"];
            let run = json(&mut home.linerate(&args));
            let (leg, figures) = (&run["legs"][0], &run["summary"]["legs"][0]);
            let [sender, receiver] = match way {
                "--up" => ["local", "remote"],
                _ => ["remote", "local"],
            };
            let number = |value: &Value| value.as_u64().unwrap();
            let mut acknowledged = number(&leg[sender]["acknowledged_ns"]);
            if sender == "remote" {
                // Another host's clock is believed as far as this one saw the leg last.
                let last = leg["local"]["samples"].as_array().unwrap().last();
                acknowledged = acknowledged.min(number(&last.unwrap()["at_ns"]));
            }
            let back = number(&figures["rtt_idle_ns"]) / 2;
            let took = number(&figures["duration_ns"]);
            assert!(took >= acknowledged.saturating_sub(back), "{leg}");
            assert_eq!(number(&leg[receiver]["bytes"]), size);
            let rate = number(&figures["goodput_bit_s"]);
            assert_eq!(rate, size * 8 * 1_000_000_000 / took);
        }
    }
}

#[test]
fn by_bytes_with_several_streams_both_at_once() {
    let home = Home::new();
    let args = [
        "measure", "local", "--bidir", "-P", "3", "-n", "64M", "--json", "-q",
    ];
    let run = json(&mut home.linerate(&args));
    let legs = run["legs"].as_array().unwrap();
    assert_eq!(legs.len(), 2);
    for (leg, receiver) in [(&legs[0], "remote"), (&legs[1], "local")] {
        assert_eq!(leg[receiver]["bytes"], 64 << 20);
        assert_eq!(leg[receiver]["sockets"].as_array().unwrap().len(), 3);
    }
    let start = |n: usize| legs[n]["started_ns"].as_u64().unwrap();
    assert!(
        start(0).abs_diff(start(1)) < 100_000_000,
        "both legs start together"
    );
}

#[test]
fn requests_are_counted_and_timed() {
    let home = Home::new();
    for extra in [
        &[][..],
        &["--wait", "block"],
        &["--reconnect"],
        &["--down"],
        &["-P", "4"],
    ] {
        let mut args = vec![
            "measure",
            "local",
            "--workload",
            "request",
            "--requests",
            "400",
            "--json",
            "-q",
        ];
        args.extend(extra);
        let run = json(&mut home.linerate(&args));
        let latency = &run["summary"]["legs"][0]["requests"];
        assert_eq!(latency["count"], 400, "{extra:?}");
        let at = |name: &str| latency[name].as_u64().unwrap();
        assert!(0 < at("p50_ns") && at("p50_ns") <= at("p99_ns") && at("p99_ns") <= at("max_ns"));
        assert!(
            0 < at("ideal_ns") && at("ideal_ns") < at("max_ns"),
            "{latency}"
        );
    }
}

#[test]
fn thousands_of_connections_share_threads_and_the_first_are_sampled() {
    let home = Home::new();
    let requests = |streams: &str, command: &mut Command| {
        command.args(["measure", "local", "--workload", "request", "--up", "-q"]);
        command.args(["-P", streams, "--time", "300ms", "-i", "50ms", "--json"]);
        run(command)
    };
    let ended = requests("2000", &mut home.linerate(&[]));
    assert!(ended.status.success(), "{}", stderr(&ended));
    let measured: Value = serde_json::from_str(&stdout(&ended)).unwrap();
    let leg = &measured["legs"][0];
    assert!(measured["summary"]["legs"][0]["requests"]["count"].as_u64() >= Some(2000));
    let warning = &leg["local"]["warnings"][0]["what"];
    assert_eq!(
        warning,
        "the sockets of the first 128 of 2000 connections are sampled"
    );
    for end in ["local", "remote"] {
        assert_eq!(leg[end]["sockets"].as_array().unwrap().len(), 128);
        for sample in leg[end]["samples"].as_array().unwrap() {
            assert_eq!(sample["streams"].as_array().unwrap().len(), 128);
        }
    }
    // The bytes are those of all.
    let last = leg["local"]["samples"].as_array().unwrap().last().unwrap();
    assert_eq!(last["bytes"], leg["local"]["bytes"]);

    let mut few_files = Command::new("prlimit");
    few_files
        .arg("--nofile=600")
        .arg(env!("CARGO_BIN_EXE_linerate"));
    home.furnish(&mut few_files);
    let refused = requests("345", &mut few_files);
    assert_ne!(refused.status.code(), Some(0));
    assert!(stderr(&refused).contains("344"), "{}", stderr(&refused));
}

#[test]
fn a_new_connection_for_each_request_costs_one_round_trip_and_no_wait_of_our_own() {
    let home = Home::new();
    let lab = Lab::of(&home, 1500, "delay = \"5ms\"", "delay = \"5ms\"");
    let host = format!("lab:{}", lab.name);
    let mut args = vec![
        "measure",
        &host,
        "--workload",
        "request",
        "--requests",
        "20",
    ];
    args.extend(["--reconnect", "--json", "-q"]);
    // An ideal above what was measured is not said: one round trip of a connection was slower than the requests.
    let mut runs = (0..5).map(|_| json(&mut home.linerate(&args)));
    let run = runs.find(|run| run["summary"]["legs"][0]["requests"]["ideal_ns"].is_u64());
    let run = run.expect("an ideal in one of five runs");
    let latency = &run["summary"]["legs"][0]["requests"];
    let ms = |name: &str| latency[name].as_u64().unwrap() as f64 / 1e6;
    // Two round trips of 10 ms; a third would be Nagle's rule, of the bytes that name the stream.
    assert!((20.0..26.0).contains(&ms("ideal_ns")), "{latency}");
    assert!((20.0..29.0).contains(&ms("p50_ns")), "{latency}");
}

#[test]
fn a_paced_run_keeps_its_pace() {
    let home = Home::new();
    let args = [
        "measure",
        "local",
        "--workload",
        "request",
        "--pace",
        "500",
        "-P",
        "2",
        "-t",
        "2s",
        "--json",
        "-q",
    ];
    let run = json(&mut home.linerate(&args));
    let count = run["summary"]["legs"][0]["requests"]["count"]
        .as_u64()
        .unwrap();
    assert!(
        (950..=1050).contains(&count),
        "{count} requests in 2 s at 500 a second"
    );
}

#[test]
fn a_path_of_known_rates_is_measured_right_each_way() {
    let (home, pair) = (Home::new(), Pair::new("rate"));
    Pair::limit(&pair.local, "200mbit");
    Pair::limit(&pair.remote, "50mbit");
    let server = serve(&home, Some(&pair.remote), Pair::FAR);
    let args = [
        "measure",
        &server.host,
        "-t",
        "4s",
        "-O",
        "1s",
        "-i",
        "200ms",
        "-C",
        "reno",
        "--json",
        "-q",
    ];
    let run = json(&mut home.linerate_in(&pair.local, &args));
    for (leg, rate) in [(0, 200e6), (1, 50e6)] {
        let goodput = run["summary"]["legs"][leg]["steady_goodput_bit_s"]
            .as_f64()
            .unwrap();
        // Headers of Ethernet, IPv4 and TCP with timestamps: 1448 of 1514 bytes are payload.
        let share = goodput / (rate * 1448.0 / 1514.0);
        assert!((0.93..1.02).contains(&share), "{goodput} of {rate} bit/s");
    }
    assert_eq!(run["local"]["device"]["name"], "eth0");
    assert_eq!(run["legs"][0]["local"]["sockets"][0]["congestion"], "reno");
}

#[test]
fn settings_are_read_back_from_the_live_socket() {
    let home = Home::new();
    let args = [
        "measure",
        "local",
        "--up",
        "-n",
        "8M",
        "--mss",
        "1000",
        "-C",
        "reno",
        "--dscp",
        "EF",
        "--send-buffer",
        "128K",
        "--receive-buffer",
        "64K",
        "--pacing",
        "2G",
        "--json",
        "-q",
        "-4",
    ];
    let run = json(&mut home.linerate(&args));
    let sender = &run["legs"][0]["local"]["sockets"][0];
    let receiver = &run["legs"][0]["remote"]["sockets"][0];
    assert_eq!(sender["congestion"], "reno");
    assert_eq!(sender["dscp"], 46);
    assert_eq!(sender["pacing_bit_s"], 2_000_000_000u64);
    assert!(sender["mss"].as_u64().unwrap() <= 1000);
    // The kernel doubles what is asked for (socket(7)).
    assert_eq!(sender["send_buffer"], 256 << 10);
    assert_eq!(receiver["receive_buffer"], 128 << 10);
}

#[test]
fn a_buffer_larger_than_the_kernel_allows_is_said() {
    let home = Home::new();
    let run = json(&mut home.linerate(&[
        "measure", "local", "--up", "-n", "1M", "-w", "512M", "--json", "-q",
    ]));
    let warnings = run["summary"]["warnings"].as_array().unwrap();
    let warned = |what: &str| warnings.iter().any(|w| w.to_string().contains(what));
    assert!(
        warned("net.core.wmem_max") && warned("net.core.rmem_max"),
        "{warnings:#?}"
    );
}

#[test]
fn ipv6_works() {
    let home = Home::new();
    let run = json(&mut home.linerate(&["measure", "local", "-6", "-n", "1M", "--json", "-q"]));
    let remote = run["legs"][0]["local"]["sockets"][0]["remote"]
        .as_str()
        .unwrap();
    assert!(remote.starts_with("[::1]"), "{remote}");
}

#[test]
fn bad_input_is_one_sentence_and_a_code() {
    let home = Home::new();
    let closed = format!("127.0.0.1:{}", free_port());
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["local", "-C", "no-such-algorithm"],
            2,
            "no-such-algorithm",
        ),
        (&["local", "--cpus", "4095"], 2, "4095"),
        (&["local", "--bind-device", "nodevice9"], 2, "nodevice9"),
        (&["local", "-t", "0"], 2, "greater than 0"),
        (&["local", "-i", "1ms"], 2, "10 ms"),
        (&["local", "--requests", "5"], 2, "--workload request"),
        (
            &["local", "--workload", "request", "--reconnect", "--down"],
            2,
            "leave out --down",
        ),
        (
            &["local", "--workload", "udp", "--datagram-size", "20"],
            2,
            "24",
        ),
        (
            &["local", "--workload", "udp", "--trace"],
            2,
            "no effect on udp",
        ),
        (&["local", "-w", "8X"], 2, "8X"),
        (&["local", "--mss", "10"], 2, "10"),
        (&[&closed], 3, "nothing listens"),
        (&["no-such-host.invalid"], 3, "no-such-host.invalid"),
        (&["iperf3:127.0.0.1:1"], 3, "127.0.0.1"),
        (&["ssh:"], 2, "HOST"),
    ];
    for (args, code, word) in cases {
        let mut all = vec!["measure"];
        all.extend(*args);
        let out = run(&mut home.linerate(&all));
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(*code), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
        assert!(out.stdout.is_empty(), "{args:?}: {}", stdout(&out));
    }
    let listed = json(&mut home.linerate(&["runs", "list", "--json"]));
    assert_eq!(
        listed.as_array().map(Vec::len),
        Some(0),
        "nothing was measured, nothing is kept"
    );
}

#[test]
fn without_an_archive_the_figures_are_printed_all_the_same() {
    let home = Home::new();
    let mut command = home.linerate(&["measure", "local", "--up", "-n", "1M", "-q"]);
    let out = run(command.env("LINERATE_ARCHIVE", "/proc/nowhere/runs.db"));
    let said = stdout(&out);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(
        said.contains("bit/s") && said.contains("the run is not kept"),
        "{said}"
    );
    assert!(!said.contains("runs show"), "{said}");
}

/// What both ends and the summary say of datagrams, which has to agree.
fn check_datagrams(leg: &Value, figures: &Value, [sender, receiver]: [&str; 2], size: u64) {
    let number = |value: &Value| value.as_u64().expect("a count");
    let sent = number(&leg[sender]["datagrams"]["packets"]);
    assert_eq!(number(&leg[sender]["bytes"]), sent * size);
    let found = &figures["arrivals"];
    let received = number(&found["received"]);
    assert_eq!(number(&leg[receiver]["bytes"]), received * size);
    assert_eq!(number(&figures["datagrams"]["packets"]), sent);
    let lost = number(&figures["datagrams"]["lost"]);
    assert_eq!(received + lost, sent);
    assert_eq!(
        number(&found["lost_on_path"]) + number(&found["dropped"]),
        lost
    );
    assert_eq!(number(&found["loss_events"]) == 0, lost == 0);
}

#[test]
fn datagrams_go_both_ways_to_an_agent() {
    let home = Home::new();
    let server = serve(&home, None, "127.0.0.1");
    for options in [
        &["-b", "20M", "-P", "2"][..],
        &["-b", "unlimited", "--datagram-size", "1000"],
        &["-b", "10M", "--bidir", "--datagram-size", "24"],
    ] {
        let mut args = vec!["measure", &server.host, "--workload", "udp", "-t", "1s"];
        args.extend(["--json", "-q"]);
        args.extend(options);
        let run = json(&mut home.linerate(&args));
        assert_eq!(run["ended"]["how"], "complete", "{}", run["ended"]);
        let size = run["spec"]["workload"]["datagram_size"].as_u64().unwrap();
        for (leg, ends) in [(0, ["local", "remote"]), (1, ["remote", "local"])] {
            let figures = &run["summary"]["legs"][leg];
            check_datagrams(&run["legs"][leg], figures, ends, size);
            // Nothing lies between two ends of loopback.
            let found = &figures["arrivals"];
            assert_eq!(found["lost_on_path"], 0, "{figures}");
            assert_eq!(found["duplicates"], 0, "{figures}");
        }
    }
    let verified = common::run(&mut home.linerate(&["runs", "verify"]));
    assert!(verified.status.success(), "{}", stderr(&verified));
    let shown = stdout(&common::run(&mut home.linerate(&["runs", "show", "last"])));
    assert!(shown.contains("delay variation p50"), "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    let explained = stdout(&common::run(&mut home.linerate(&["explain", "last"])));
    assert!(
        explained.contains("Limits of TCP do not apply"),
        "{explained}"
    );
    // A leg of bytes has no time at which its receiver would end by itself.
    let args = ["measure", "local", "--workload", "udp", "-b", "unlimited"];
    let mut bytes = home.linerate(&args);
    bytes.args(["-n", "1M", "--json", "-q"]);
    let run = json(&mut bytes);
    assert_eq!(run["ended"]["how"], "complete", "{}", run["ended"]);
    let sent = run["legs"][0]["local"]["bytes"].as_u64().unwrap();
    assert!((1 << 20..(1 << 20) + 1448).contains(&sent), "{sent}");
}

#[test]
fn datagrams_that_the_path_lost_are_those_that_the_lab_dropped() {
    let home = Home::new();
    let link = "delay = \"5ms\"\nloss = { random = 0.05 }";
    let lab = Lab::of(&home, 1500, link, "delay = \"5ms\"");
    let frames = |truth: &Value| {
        let frames = &truth["links"][0]["forward"]["dropped"]["loss"]["frames"];
        frames.as_u64().unwrap()
    };
    let before = frames(&lab.truth());
    let options = ["--up", "--workload", "udp", "-b", "5M", "-t", "3s"];
    let run = lab.measure("", &options);
    let dropped = frames(&lab.truth()) - before;
    let figures = &run["summary"]["legs"][0];
    check_datagrams(&run["legs"][0], figures, ["local", "remote"], 1448);
    let lost = figures["arrivals"]["lost_on_path"].as_u64().unwrap();
    // Of 1,295; four standard deviations. The lab also drops greetings and repeated ends.
    assert!((33..=97).contains(&lost), "{figures}");
    assert!(
        dropped.abs_diff(lost) <= 4,
        "{dropped} dropped, {lost} lost"
    );
}

#[test]
fn ctrl_c_ends_both_ends_and_prints_what_there_is() {
    let home = Home::new();
    let mut command = home.linerate(&[
        "measure",
        "local",
        "--up",
        "-t",
        "1h",
        "-i",
        "50ms",
        "--json-stream",
        "-q",
    ]);
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = Lines::of(child.0.stdout.take().unwrap());
    lines.wait_for("\"leg_started\"");
    lines.wait_for("\"remote\"");
    child.interrupt();
    let end: Value = serde_json::from_str(&lines.wait_for("\"summary\"")).unwrap();
    assert_eq!(end["ended"]["how"], "interrupted");
    let out = child.output(Duration::from_secs(15));
    assert_eq!(out.status.code(), Some(4));
    let shown = json(&mut home.linerate(&["runs", "export", "last", "--format", "json"]));
    let leg = &shown["legs"][0];
    assert_eq!(
        leg["remote"]["bytes"], leg["local"]["bytes"],
        "what was sent was received"
    );
}

#[test]
fn a_lost_agent_is_noticed_and_what_was_measured_is_kept() {
    let home = Home::new();
    let server = serve(&home, None, "127.0.0.1");
    let host = server.host.clone();
    let mut command = home.linerate(&[
        "measure",
        &host,
        "--up",
        "-t",
        "1h",
        "-i",
        "50ms",
        "--json-stream",
        "-q",
    ]);
    let mut child = Running(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let lines = Lines::of(child.0.stdout.take().unwrap());
    lines.wait_for("\"leg_started\"");
    lines.wait_for("\"sample\"");
    drop(server);
    let end: Value = serde_json::from_str(&lines.wait_for("\"summary\"")).unwrap();
    assert_eq!(end["ended"]["how"], "failed");
    let out = child.output(Duration::from_secs(15));
    assert_ne!(out.status.code(), Some(0));
    let kept = json(&mut home.linerate(&["runs", "export", "last", "--format", "json"]));
    assert!(
        !kept["legs"][0]["local"]["samples"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn several_clients_at_once_and_no_untrusted_one() {
    let home = Home::new();
    let server = serve(&home, None, "127.0.0.1");
    let host = server.host.clone();
    // A client that says nothing must not hold up the others.
    let _silent = std::net::TcpStream::connect(&host).unwrap();
    let mut first = home.linerate(&["measure", &host, "--up", "-t", "2s", "--json", "-q"]);
    let first = Running(
        first
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let second = json(&mut home.linerate(&["measure", &host, "-n", "1M", "--json", "-q"]));
    assert_eq!(second["ended"]["how"], "complete");
    assert!(first.output(Duration::from_secs(30)).status.success());

    let untrusted = Home::new();
    let out = run(&mut untrusted.linerate(&["measure", &host, "-n", "1M"]));
    assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
    assert!(stderr(&out).contains("trust"), "{}", stderr(&out));
}

#[test]
fn a_server_that_is_gone_is_named() {
    let home = Home::new();
    let server = serve(&home, None, "127.0.0.1");
    let host = server.host.clone();
    drop(server);
    let out = run(&mut home.linerate(&["measure", &host, "-n", "1M"]));
    assert_eq!(out.status.code(), Some(3));
    assert!(
        stderr(&out).contains(&host) && stderr(&out).contains("nothing listens"),
        "{}",
        stderr(&out)
    );
}

/// The files with the traces of the newest run.
fn traces(home: &Home) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home.path().join("runs.db.traces"));
    let mut files: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("the directory can be read").path())
        .collect();
    files.sort();
    files
}

#[test]
fn both_ends_are_traced_kept_explained_and_deleted() {
    let home = Home::new();
    let args = [
        "measure", "local", "--trace", "--bidir", "-n", "20M", "--json", "-q",
    ];
    let run_ = json(&mut home.linerate(&args));
    assert_eq!(run_["spec"]["trace"], true);
    for leg in run_["legs"].as_array().unwrap() {
        for end in ["local", "remote"] {
            let trace = &leg[end]["trace"];
            assert_eq!(trace["source"], "probes", "this test needs root: {leg}");
            assert!(trace["events"].as_u64().unwrap() > 20, "{trace}");
            assert_eq!((&trace["lost"], &trace["cut"]), (&0.into(), &false.into()));
        }
    }
    let files = traces(&home);
    assert_eq!(files.len(), 4);
    let explained = json(&mut home.linerate(&["explain", "last", "--json"]));
    let all = explained["explanations"].as_array().unwrap();
    let names: Vec<_> = all.iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["up", "down"]);
    assert!(
        all.iter().all(|e| e["source"] == "trace_of_both_ends"),
        "{all:?}"
    );

    // Each file has the connection of its own leg, and no other; two of them are joined.
    let one = |args: &[&str]| {
        let document = json(home.linerate(args).arg("--json"));
        let all = document["explanations"].as_array().unwrap().clone();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]["source"].as_str().unwrap().to_owned()
    };
    let name = |n: usize| files[n].to_str().unwrap();
    // In the order of their names: the client's trace of the upload, the server's.
    assert_eq!(one(&["explain", name(0)]), "trace");
    assert_eq!(one(&["explain", name(1)]), "trace_at_receiver");
    assert_eq!(one(&["explain", name(0), name(1)]), "trace_of_both_ends");

    let id = run_["id"].as_str().unwrap();
    let out = run(&mut home.linerate(&["runs", "delete", "-y", id]));
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(traces(&home).is_empty());
}

#[test]
fn only_both_ends_see_that_the_receiving_application_is_slow() {
    let (home, pair) = (Home::new(), Pair::new("ends"));
    let server = serve(&home, Some(&pair.remote), Pair::FAR);
    let args = [
        "measure",
        &server.host,
        "--trace",
        "--up",
        "-t",
        "2s",
        "--receive-buffer",
        "256K",
        "-C",
        "cubic",
        "--json-stream",
        "-q",
    ];
    let mut command = home.linerate_in(&pair.local, &args);
    let mut local = Running(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let lines = Lines::of(local.0.stdout.take().expect("it is piped"));
    lines.wait_for("\"leg_started\"");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A host that is awake an eighth of the time: nothing reads meanwhile.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for (name, ms) in [("STOP", 70), ("CONT", 10)] {
                    signal(&server.process.0, name);
                    std::thread::sleep(Duration::from_millis(ms));
                }
            }
        });
        let ended = lines.comes("\"leg_ended\"");
        over.store(true, Ordering::Relaxed);
        assert!(ended);
    });
    assert!(local.output(Duration::from_secs(30)).status.success());
    let slow_reader = |args: &[&str]| {
        let document = json(home.linerate(args).arg("--json"));
        let explained = &document["explanations"][0];
        assert_eq!(
            explained["conclusion"]["by"][0], "reading_application",
            "{explained:#}"
        );
        let findings = explained["findings"].as_array().unwrap();
        let found = findings
            .iter()
            .find(|f| f["limit"] == "reading_application");
        (
            explained["source"].clone(),
            found.unwrap()["confidence"].clone(),
        )
    };
    let (source, sure) = slow_reader(&["explain", "last"]);
    assert_eq!(
        (source, sure),
        ("trace_of_both_ends".into(), "certain".into())
    );
    // The sender alone can only infer it from a window that closes.
    let files = traces(&home);
    let (source, sure) = slow_reader(&["explain", files[0].to_str().unwrap()]);
    assert_eq!((source, sure), ("trace".into(), "likely".into()));
}

#[test]
fn an_end_without_the_rights_says_so_and_the_measurement_goes_on() {
    let home = Home::new();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    command.arg(env!("CARGO_BIN_EXE_linerate"));
    command.args([
        "measure", "local", "--trace", "--up", "-n", "1M", "--json", "-q",
    ]);
    home.furnish(&mut command);
    let run = json(&mut command);
    assert_eq!(run["ended"]["how"], "complete");
    for end in ["local", "remote"] {
        let end = &run["legs"][0][end];
        assert_ne!(end["trace"]["source"], "probes");
        let warnings = end["warnings"].as_array().unwrap();
        let said = warnings
            .iter()
            .filter(|w| w["what"].as_str().unwrap().contains("CAP_"));
        assert!(!end["trace"].is_null() || said.count() == 1, "{end:#}");
    }
}

/// An agent that listens, trusted by and trusting the key of `home`.
struct Server {
    host: String,
    process: Running,
    _home: Home,
}

/// Starts `linerate serve` on `address` and makes it and `home` trust each other by an invitation.
fn serve(home: &Home, netns: Option<&str>, address: &str) -> Server {
    let its_home = Home::new();
    let port = free_port();
    let (port_text, at) = (port.to_string(), format!("{address}:{port}"));
    let command = |home: &Home, netns: Option<&str>, args: &[&str]| match netns {
        Some(netns) => home.linerate_in(netns, args),
        None => home.linerate(args),
    };
    let mut serve = command(
        &its_home,
        netns,
        &["serve", "--bind", address, "--port", &port_text],
    );
    let mut process = Running(serve.stderr(Stdio::piped()).spawn().expect("it starts"));
    let log = Lines::of(process.0.stderr.take().expect("it is piped"));
    let invited = run(&mut its_home.linerate(&["trust", "invite", "--address", &at]));
    let line = stdout(&invited)
        .lines()
        .find(|l| l.contains('/'))
        .expect("a line")
        .to_owned();
    log.wait_for(&format!("listens on {at}"));
    let local = netns.map(|remote| remote.trim_end_matches('f').to_owned() + "n");
    let accepted = run(&mut command(
        home,
        local.as_deref(),
        &["trust", "accept", &line],
    ));
    assert!(accepted.status.success(), "{}", stderr(&accepted));
    Server {
        host: at,
        process,
        _home: its_home,
    }
}

/// On a disk of 64 KiB, which a mount namespace takes with it. Needs root.
#[test]
fn a_run_that_cannot_be_kept_fails_and_says_so() {
    let home = Home::new();
    let script =
        "mount -t tmpfs -o size=64k tmpfs \"$HOME\" && exec \"$0\" measure local -t 1 --up";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_linerate")]);
    home.furnish(&mut command);
    let out = run(&mut command);
    let text = stdout(&out) + &stderr(&out);
    assert_eq!(out.status.code(), Some(1), "{text}");
    let warnings = text
        .matches("the run is not kept: the disk is full")
        .count();
    assert_eq!(warnings, 1, "{text}");
}
