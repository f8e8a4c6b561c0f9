//! `linerate trace` as a user meets it. Needs root.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Home, Running, json, run, signal, stderr, stdout};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A network namespace of its own, gone with the test.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Namespace {
        let name = format!("lrt-{name}-{}", std::process::id());
        tool(&["netns", "add", &name]);
        let namespace = Namespace(name);
        tool(&["-n", &namespace.0, "link", "set", "lo", "up"]);
        namespace
    }

    /// A transfer of at most 2 MB within.
    fn transfer(&self) {
        self.transfer_of("-n 2M");
    }

    /// A second of it, so that samples meet its sockets.
    fn long_transfer(&self) {
        self.transfer_of("-t 1 -b 20M");
    }

    fn transfer_of(&self, options: &str) {
        let script = format!(
            "{} {options}",
            "iperf3 -s -1 -D -p 5201; until ss -Hltn 'sport = :5201' | grep -q .; do :; done; iperf3 -c 127.0.0.1"
        );
        let out = run(Command::new("ip").args(["netns", "exec", &self.0, "sh", "-c", &script]));
        assert!(out.status.success(), "{}", stderr(&out));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn tool(args: &[&str]) {
    let out = run(Command::new("ip").args(args));
    assert!(
        out.status.success(),
        "this test needs root: {}",
        stderr(&out)
    );
}

/// A trace that has begun.
struct Tracing {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    first: String,
}

impl Tracing {
    fn start(home: &Home, namespace: &Namespace, args: &[&str]) -> Tracing {
        Tracing::of(home, namespace, "trace", args)
    }

    /// Of 'explain --live'.
    fn live(home: &Home, namespace: &Namespace, args: &[&str]) -> Tracing {
        let args = [&["--live"], args].concat();
        Tracing::of(home, namespace, "explain", &args)
    }

    fn of(home: &Home, namespace: &Namespace, command: &str, args: &[&str]) -> Tracing {
        let child = home
            .linerate_in(&namespace.0, &[&[command], args].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Tracing::begun(child)
    }

    /// What was said before it began is in `first`.
    fn begun(mut child: Child) -> Tracing {
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        while !first.ends_with("; Ctrl-C ends it\n") {
            assert!(said.read_line(&mut first).unwrap() > 0, "{first}");
        }
        Tracing { child, said, first }
    }

    /// Ctrl-C.
    fn stop(self) -> Output {
        signal(&self.child, "INT");
        self.ended()
    }

    /// Ends by itself, or fails the test.
    fn ended(mut self) -> Output {
        let mut out = Running(self.child).output(Duration::from_secs(30));
        self.said.read_to_end(&mut out.stderr).unwrap();
        out
    }
}

/// The attachments in the kernel that a process holds, by their numbers.
fn attachments(pid: u32) -> Vec<String> {
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        let info = std::fs::read_to_string(entry.unwrap().path()).ok()?;
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("link_id:"))?;
        Some(line.trim().to_owned())
    };
    let fds = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    fds.filter_map(number).collect()
}

fn is_attached(number: &str) -> bool {
    run(Command::new("bpftool").args(["link", "show", "id", number]))
        .status
        .success()
}

#[test]
fn lines_end_with_the_completeness_of_each_connection() {
    let home = Home::new();
    let namespace = Namespace::new("lines");
    let tracing = Tracing::start(
        &home,
        &namespace,
        &["--port", "5201", "--columns", "conn,send,recd,re"],
    );
    namespace.transfer();
    let out = tracing.stop();
    assert!(out.status.success(), "{}", stderr(&out));
    let text = stdout(&out);
    assert!(text.starts_with("-- connection 0: 127.0.0.1:"), "{text}");
    let complete: Vec<_> = text
        .lines()
        .filter(|line| line.ends_with(": complete"))
        .collect();
    // The control connection of iperf3 and its data, both ends of each.
    assert_eq!(complete.len(), 4, "{text}");
    assert!(
        text.lines()
            .any(|line| line.trim() == "conn       send recd       re"),
        "{text}"
    );
    assert!(text.contains(" -->\n"), "{text}");
    assert!(
        text.lines().last().unwrap().contains(" events in "),
        "{text}"
    );
}

#[test]
fn json_lines_are_records_of_the_model() {
    let home = Home::new();
    let namespace = Namespace::new("json");
    let tracing = Tracing::start(&home, &namespace, &["--json"]);
    namespace.transfer();
    let out = tracing.stop();
    assert!(out.status.success(), "{}", stderr(&out));
    let records: Vec<Value> = stdout(&out)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records[0]["kind"], "begin");
    let end = records.last().unwrap();
    assert_eq!(
        (&end["kind"], &end["lost"], &end["unordered"]),
        (&"end".into(), &0.into(), &0.into())
    );
    let sent: u64 = records
        .iter()
        .filter(|record| record["kind"] == "segment" && record["what"].is_null())
        .filter_map(|record| record["payload"].as_u64())
        .sum();
    // iperf3 closes before all that it wrote has left.
    assert!(sent > 100_000, "{sent}");
    assert!(stderr(&out).contains(": complete"));
}

#[test]
fn a_capture_is_read_by_others() {
    let home = Home::new();
    let namespace = Namespace::new("pcapng");
    let file = home.path().join("all.pcapng");
    let tracing = Tracing::start(&home, &namespace, &["-w", file.to_str().unwrap()]);
    namespace.transfer();
    let out = tracing.stop();
    assert!(out.status.success(), "{}", stderr(&out));
    let out = run(Command::new("tcpdump").args(["-nn", "-r", file.to_str().unwrap()]));
    assert!(out.status.success(), "{}", stderr(&out));
    let text = stdout(&out);
    assert!(
        text.contains(" > 127.0.0.1.5201: Flags [S], seq "),
        "{text}"
    );
    assert!(!text.contains("bad"), "{text}");

    let fields = ["-e", "tcp.len", "-e", "frame.comment"];
    let out = run(Command::new("tshark")
        .args(["-r", file.to_str().unwrap(), "-T", "fields"])
        .args(fields));
    assert!(out.status.success(), "{}", stderr(&out));
    let fields_text = stdout(&out);
    assert_eq!(
        fields_text.lines().count(),
        text.lines().count(),
        "{fields_text}"
    );
    for line in fields_text.lines() {
        let (length, comment) = line.split_once('\t').unwrap();
        assert!(length.parse::<u32>().is_ok(), "{line}");
        assert!(
            comment.contains("cwnd ") && comment.contains("rtt "),
            "{line}"
        );
    }
}

#[test]
fn what_a_trace_wrote_is_explained() {
    let home = Home::new();
    let namespace = Namespace::new("file");
    let file = home.path().join("all.trace");
    let file = file.to_str().unwrap();
    let tracing = Tracing::start(&home, &namespace, &["--port", "5201", "-w", file]);
    // Not all at once: on a busy machine iperf3 ends before a few megabytes have been read.
    namespace.long_transfer();
    let out = tracing.stop();
    assert!(out.status.success(), "{}", stderr(&out));
    let document = json(&mut home.linerate_in(&namespace.0, &["explain", "--json", file]));
    let explained = document["explanations"].as_array().unwrap();
    let data = |one: &Value| {
        one["bytes"].as_u64().is_some_and(|n| n > 100_000) && one["receiver"] == "127.0.0.1:5201"
    };
    assert!(explained.iter().any(data), "{explained:#?}");
}

#[test]
fn nothing_stays_in_the_kernel_when_it_is_killed() {
    let home = Home::new();
    let namespace = Namespace::new("killed");
    let mut tracing = Tracing::start(&home, &namespace, &["--json"]);
    // 'ip netns exec' has become the command itself.
    let attached = attachments(tracing.child.id());
    assert_eq!(
        attached.len(),
        8,
        "two for segments, four for the steps of sockets, retransmissions, drops"
    );
    assert!(attached.iter().all(|number| is_attached(number)));
    signal(&tracing.child, "KILL");
    tracing.child.wait().unwrap();
    // The kernel takes them away a moment after their last descriptor is gone.
    let deadline = Instant::now() + Duration::from_secs(10);
    while attached.iter().any(|number| is_attached(number)) {
        assert!(Instant::now() < deadline, "still there: {attached:?}");
    }
}

#[test]
fn a_trigger_writes_what_precedes_it_and_nothing_else() {
    let home = Home::new();
    let namespace = Namespace::new("ring");
    let never = Tracing::start(&home, &namespace, &["--ring", "10s", "--trigger", "rto"]);
    let slow = Tracing::start(
        &home,
        &namespace,
        &["--ring", "10s", "--trigger", "rto,slow=1ns"],
    );
    namespace.transfer();
    let (never, slow) = (stdout(&never.stop()), stdout(&slow.stop()));
    let lines = |text: &str| {
        text.lines()
            .filter(|line| line.contains("-->") || line.contains("<--"))
            .count()
    };
    assert_eq!(lines(&never), 0, "{never}");
    assert!(lines(&slow) > 0, "{slow}");
    assert!(never.starts_with("-- no trigger fired"), "{never}");
    assert!(slow.contains("-- a trigger fired "), "{slow}");
}

/// An explanation of a transfer that the application held to 20 Mbit/s, from this end or to it.
fn is_explained(out: &Output, end: &str) {
    assert!(out.status.success(), "{}", stderr(out));
    let text = stdout(out);
    let data = |line: &&str| line.contains(end) && line.contains(" MiB in ");
    assert_eq!(text.lines().filter(data).count(), 1, "{text}");
    assert!(text.contains("the application asked for no more"), "{text}");
}

#[test]
fn live_explanations_end_by_time_and_by_ctrl_c() {
    let home = Home::new();
    let namespace = Namespace::new("live");
    let timed = Tracing::live(&home, &namespace, &["--port", "5201", "--time", "4s"]);
    let asked = Tracing::live(&home, &namespace, &["--port", "5201"]);
    namespace.long_transfer();
    is_explained(&asked.stop(), " to 127.0.0.1:5201: ");
    is_explained(&timed.ended(), " to 127.0.0.1:5201: ");
}

#[test]
fn a_live_explanation_ends_with_its_process() {
    let home = Home::new();
    let namespace = Namespace::new("owner");
    let within = |script: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace.0, "sh", "-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    // It ends after one client, and sends.
    let server = Running(within("exec iperf3 -s -1 -p 5201").spawn().unwrap());
    let pid = server.0.id().to_string();
    let inode = |path: String| std::fs::metadata(path).unwrap().ino();
    let there = inode(format!("/run/netns/{}", namespace.0));
    let until = Instant::now() + Duration::from_secs(30);
    while inode(format!("/proc/{pid}/ns/net")) != there {
        assert!(Instant::now() < until, "it enters its namespace");
    }
    // From outside: its connections are where it is.
    let mut command = home.linerate(&["explain", "--live", "--pid", &pid]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let owned = Tracing::begun(command.spawn().unwrap());
    let client = run(&mut within(
        "until ss -Hltn 'sport = :5201' | grep -q .; do :; done; iperf3 -c 127.0.0.1 -t 1 -b 20M -R",
    ));
    assert!(client.status.success(), "{}", stderr(&client));
    server.output(Duration::from_secs(30));
    is_explained(&owned.ended(), "127.0.0.1:5201 to ");
}

/// One trace where no probe may run: in a namespace of a user's own.
const REFUSED: &str = "user namespace, and the kernel lets no such root load probes";

#[test]
fn packets_stand_in_where_probes_are_refused() {
    let home = Home::new();
    let binary = home.linerate(&[]);
    let binary = binary.get_program().to_str().unwrap();
    let file = home.path().join("all.trace");
    let file = file.to_str().unwrap();
    // The transfer begins once the trace has, and the trace ends once the transfer has.
    let script = format!(
        "ip link set lo up; mkfifo said; {binary} trace --port 5201 -w {file} 2> said & \
         exec 3< said; while read -r line <&3; do echo \"$line\"; case $line in *Ctrl-C*) break;; esac; done; \
         iperf3 -s -1 -D -p 5201; until ss -Hltn 'sport = :5201' | grep -q .; do :; done; \
         iperf3 -c 127.0.0.1 -t 1 -b 20M >&2; kill -INT $!; cat <&3; wait $!"
    );
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--net", "sh", "-c", &script])
        .current_dir(home.path());
    home.furnish(&mut command);
    let out = run(&mut command);
    assert!(out.status.success(), "{}", stderr(&out));
    let said = stdout(&out);
    assert!(said.contains(REFUSED), "{said}");
    assert!(said.contains("this trace has packets"), "{said}");
    let lines = said.lines().filter(|line| line.starts_with("connection "));
    // The control connection of iperf3 and its data, both ends of each, whole by the kernel's own count.
    assert_eq!(lines.clone().count(), 4, "{said}");
    assert!(
        lines.clone().all(|line| line.ends_with(": complete")),
        "{said}"
    );
    let document = json(&mut home.linerate(&["explain", "--json", file]));
    let explained = document["explanations"].as_array().unwrap();
    let data = |one: &Value| {
        one["bytes"].as_u64().is_some_and(|n| n > 100_000) && one["source"] == "packets_and_samples"
    };
    assert!(explained.iter().any(data), "{explained:#?}");
}

#[test]
fn packets_are_shown_live_with_the_last_sample_beside_them() {
    let home = Home::new();
    let namespace = Namespace::new("packets");
    let args = ["--source", "packets", "--port", "5201", "--json"];
    let tracing = Tracing::start(&home, &namespace, &args);
    namespace.long_transfer();
    let out = tracing.stop();
    assert!(out.status.success(), "{}", stderr(&out));
    let records: Vec<Value> = stdout(&out)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records[0]["source"], "packets");
    let of = |kind: &str| records.iter().filter(|r| r["kind"] == kind).count();
    assert!(of("segment") > 20 && of("sample") >= 4, "{}", stderr(&out));
    let segments = records.iter().filter(|r| r["kind"] == "segment");
    assert!(
        segments
            .clone()
            .all(|one| one["socket"]["probed"].is_null()),
        "no state that was not read"
    );
    assert!(
        segments
            .clone()
            .any(|one| one["socket"]["rcv_wnd"].as_u64() > Some(60_000))
    );
    // Both ends of both connections, each packet once as sent and once as received.
    let bytes = |what: &str| -> u64 {
        let whats = segments
            .clone()
            .filter(|one| one["what"].as_str().unwrap_or("sent") == what);
        whats.filter_map(|one| one["payload"].as_u64()).sum()
    };
    assert!(bytes("sent") >= 100_000);
    assert_eq!(bytes("sent"), bytes("received"));
    let end = records.last().unwrap();
    assert_eq!((&end["kind"], &end["lost"]), (&"end".into(), &0.into()));
}

/// A trace, or what explains one, that may use neither probes nor the rights named beside.
fn without_rights(home: &Home, namespace: &Namespace, rights: &str, args: &[&str]) -> Tracing {
    let binary = home.linerate(&[]);
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &namespace.0, "setpriv", "--bounding-set"])
        .arg(format!("-bpf,-perfmon,-sys_admin{rights}"))
        .args(["--inh-caps", "-all", "--"])
        .arg(binary.get_program())
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    home.furnish(&mut command);
    let tracing = Tracing::begun(command.spawn().unwrap());
    let first = &tracing.first;
    assert!(first.contains("CAP_BPF and CAP_PERFMON are"), "{first}");
    tracing
}

#[test]
fn samples_come_alone_where_packets_are_refused_too() {
    let home = Home::new();
    let namespace = Namespace::new("samples");
    let of = |args| without_rights(&home, &namespace, ",-net_raw", args);
    let tracing = of(&["trace", "--port", "5201"]);
    let explaining = of(&["explain", "--live", "--port", "5201"]);
    for first in [&tracing.first, &explaining.first] {
        assert!(first.contains("CAP_NET_RAW): only samples"), "{first}");
    }
    namespace.long_transfer();
    let out = tracing.stop();
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stdout(&out).contains(" established: "), "{}", stdout(&out));
    let out = explaining.stop();
    is_explained(&out, " to 127.0.0.1:5201: ");
    assert!(stdout(&out).contains("Only its socket was sampled"));
}

#[test]
fn live_explanations_take_packets_and_samples_too() {
    let home = Home::new();
    let namespace = Namespace::new("mixed");
    let args = ["explain", "--live", "--port", "5201"];
    let explaining = without_rights(&home, &namespace, "", &args);
    namespace.long_transfer();
    let out = explaining.stop();
    is_explained(&out, " to 127.0.0.1:5201: ");
    assert!(stdout(&out).contains("From packets and samples"));
}

#[test]
fn tracing_without_rights_reports_what_is_missing() {
    let home = Home::new();
    let binary = home.linerate(&[]);
    let out = run(Command::new("setpriv")
        .args([
            "--bounding-set",
            "-bpf,-perfmon,-sys_admin",
            "--inh-caps",
            "-all",
            "--",
        ])
        .arg(binary.get_program())
        .args(["trace", "--source", "probes"]));
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(
        stderr(&out),
        "linerate: cannot trace: the rights CAP_BPF and CAP_PERFMON are missing; run as root, or give what is missing to the program with setcap\n"
    );
    let out = run(&mut home.linerate(&["trace", "--time", "1ms", "-w", "some.pcap"]));
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).ends_with("name it some.pcapng\n"));
    let out = run(&mut home.linerate(&["trace", "--netns", "no-such-place"]));
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("no network namespace 'no-such-place'"));
}
