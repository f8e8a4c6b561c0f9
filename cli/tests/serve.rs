//! `serve`, `trust` and `ssh:` as a user meets them: real processes, loopback only.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

mod common;

use common::{Home, Lines, Running, Server, bench, json, run, stderr, stdout};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn both_hosts_sign_what_they_report_and_verify_compares_it() {
    let server = Server::start(&[]);
    let guest = server.guest(&[]);
    let measure = [
        "measure", &server.at, "-n", "4M", "-P", "2", "-i", "10ms", "-q",
    ];
    let out = run(&mut guest.linerate(&measure));
    assert!(out.status.success(), "{}", stderr(&out));
    let whole = "all records are intact; 2 legs are signed by both hosts\n";
    let verified = run(&mut guest.linerate(&["runs", "verify"]));
    assert_eq!(stdout(&verified), whole);

    let exported = json(&mut guest.linerate(&["runs", "export", "last"]));
    let id = |home: &Home| stdout(&run(&mut home.linerate(&["trust", "show"])));
    assert_eq!(exported["local_id"], id(&guest).trim());
    assert_eq!(exported["remote_id"], id(&server.home).trim());
    let signed = |side: &str| exported["legs"][0][side]["signed"].clone();
    assert_eq!(signed("local")["leg"], signed("remote")["leg"]);
    assert_ne!(signed("local")["key"], signed("remote")["key"]);
    let redacted = run(&mut guest.linerate(&["runs", "export", "last", "--redact"]));
    for named in ["signed", "local_id", "remote_id"] {
        assert!(!stdout(&redacted).contains(named), "{named}");
    }

    // Intact, and with one count of the remote host changed.
    let other = Home::new();
    let file = other.path().join("run.json");
    let import = |run_: &serde_json::Value| {
        std::fs::write(&file, run_.to_string()).unwrap();
        let out = run(&mut other.linerate(&["runs", "import", file.to_str().unwrap()]));
        assert!(out.status.success(), "{}", stderr(&out));
        run(&mut other.linerate(&["runs", "verify"]))
    };
    assert_eq!(stdout(&import(&exported)), whole);
    let mut changed = exported.clone();
    changed["id"] = "00000002".into();
    changed["remote_id"] = exported["local_id"].clone();
    let said = stdout(&import(&changed));
    let line = "leg 2: the remote host signed with another key than the run names\n";
    assert!(said.contains(line), "{said}");
    let out = run(&mut other.linerate(&["runs", "delete", "-y", "00000002"]));
    assert!(out.status.success(), "{}", stderr(&out));
    let mut changed = exported.clone();
    changed["id"] = "00000001".into();
    let bytes = changed["legs"][1]["remote"]["bytes"].as_u64().unwrap();
    changed["legs"][1]["remote"]["bytes"] = (bytes + 1).into();
    let verified = import(&changed);
    assert!(!verified.status.success());
    let said = stdout(&verified);
    let line = "run 00000001, leg 2: the remote host: the record is not the one that the key ";
    assert!(
        said.starts_with(line) && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn two_hosts_meet_by_an_invitation_and_measure() {
    let server = Server::start(&["--data-ports", "20000-29999"]);
    let guest = Home::new();
    let refused = run(&mut guest.linerate(&["measure", &server.at, "-t", "1", "-q"]));
    assert_eq!(refused.status.code(), Some(3));
    assert!(
        stderr(&refused).contains("linerate trust invite"),
        "{}",
        stderr(&refused)
    );

    let line = server.invite(&["--name", "laptop", "--seconds", "1", "--rate", "500M"]);
    let met = run(&mut guest.linerate(&["trust", "accept", &line]));
    assert!(met.status.success(), "{}", stderr(&met));
    server.log.wait_for("enrolled laptop");
    let again = run(&mut Home::new().linerate(&["trust", "accept", &line]));
    assert_eq!(again.status.code(), Some(3));

    let measured = json(&mut guest.linerate(&["measure", &server.at, "-t", "9", "--json"]));
    server.log.wait_for("laptop: session 1 opened");
    server.log.wait_for("laptop: session 1, leg");
    server.log.wait_for("laptop: session 1 ended");
    assert_eq!(measured["ended"]["how"], "complete");
    let warned = measured["legs"].to_string() + &measured["warnings"].to_string();
    assert!(warned.contains("9.00 s asked, 1.00 s granted"), "{warned}");
    for leg in measured["legs"].as_array().unwrap() {
        let moved = leg["local"]["bytes"].as_u64().unwrap();
        // 500 Mbit/s for a second, and what the buffers take at the start.
        assert!((10_000_000..90_000_000).contains(&moved), "{moved} bytes");
    }
    let usage = server.home.path().join("config/usage.toml");
    let usage = std::fs::read_to_string(usage).unwrap();
    assert!(usage.contains("[bytes]"), "{usage}");

    let list = stdout(&run(&mut server.home.linerate(&["trust", "list"])));
    assert!(
        list.contains("laptop  may measure, 500 Mbit/s, 1 s a leg"),
        "{list}"
    );
    let gone = run(&mut server.home.linerate(&["trust", "remove", "laptop"]));
    assert!(gone.status.success());
    let refused = run(&mut guest.linerate(&["measure", &server.at, "-t", "1", "-q"]));
    assert_eq!(refused.status.code(), Some(3));
    let said = stderr(&refused);
    assert!(
        said.contains("does not trust this host's key") && said.lines().count() == 1,
        "{said}"
    );

    server.running.interrupt();
    assert!(
        server
            .running
            .output(Duration::from_secs(10))
            .status
            .success()
    );
}

#[test]
fn the_bytes_of_a_day_are_counted_and_then_refused() {
    let server = Server::start(&[]);
    let guest = server.guest(&["--bytes-per-day", "100M"]);
    let args = ["measure", &server.at, "--up", "-n", "1G", "--json"];
    let measured = json(&mut guest.linerate(&args));
    let moved = measured["legs"][0]["local"]["bytes"].as_u64().unwrap();
    assert!((100 << 20..101 << 20).contains(&moved), "{moved}");
    let out = run(&mut guest.linerate(&args));
    assert!(!out.status.success());
    assert!(stderr(&out).contains("midnight UTC"), "{}", stderr(&out));
}

#[test]
fn one_at_a_time_and_the_other_gets_a_waiting_time() {
    let server = Server::start(&["--clients", "1"]);
    let (first, second) = (
        server.guest(&["--name", "first"]),
        server.guest(&["--name", "second"]),
    );
    let mut long = first.linerate(&["measure", &server.at, "--up", "-t", "30", "-q"]);
    let long = Running(
        long.stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    server.log.wait_for("first: session 1, leg");
    let mut waiting = second.linerate(&["measure", &server.at, "--up", "-t", "100ms"]);
    let mut waiting = Running(
        waiting
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let waiting_lines = Lines::of(waiting.0.stderr.take().unwrap());
    waiting_lines.wait_for("within");
    // The first ends, and the second gets its turn.
    long.interrupt();
    assert_eq!(long.output(Duration::from_secs(20)).status.code(), Some(4));
    server.log.wait_for("first: session 1 ended");
    let out = waiting.output(Duration::from_secs(60));
    assert!(out.status.success(), "{}", out.status);
}

#[test]
fn a_client_that_is_killed_leaves_nothing_behind() {
    let server = Server::start(&[]);
    let guest = server.guest(&[]);
    let mut long = guest.linerate(&["measure", &server.at, "--up", "-t", "30", "-q"]);
    let long = Running(
        long.stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    server.log.wait_for("session 1, leg");
    drop(long);
    let begun = Instant::now();
    server.log.wait_for("session 1 broke");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(json(&mut guest.linerate(&["measure", &server.at, "--up", "-t", "200ms", "--json"]))["legs"].is_array());
}

#[test]
fn a_server_that_is_stopped_lets_its_client_keep_what_was_measured() {
    let server = Server::start(&[]);
    let guest = server.guest(&[]);
    let mut long = guest.linerate(&["measure", &server.at, "--up", "-t", "30"]);
    long.args(["-i", "100ms", "--json-stream"]);
    let mut child = long
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    for _ in 0..5 {
        lines.wait_for("\"side\":\"remote\"");
    }
    server.running.interrupt();
    let stopped = server.running.output(Duration::from_secs(15));
    assert!(stopped.status.success());
    let end = lines.wait_for("\"event\":\"end\"");
    assert!(
        end.contains("\"how\":\"failed\"") && end.contains("steady"),
        "{end}"
    );
    let out = Running(child).output(Duration::from_secs(20));
    assert_ne!(out.status.code(), Some(0));
    assert!(
        stderr(&out).contains("stopped") || end.contains("stopped"),
        "{end}\n{}",
        stderr(&out)
    );
}

#[test]
fn a_taken_port_and_a_damaged_list_are_said_in_one_sentence() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let home = Home::new();
    let out = run(&mut home.linerate(&["serve", "--port", &port]));
    assert_eq!(out.status.code(), Some(1));
    assert!(
        stderr(&out).contains("is taken") && stderr(&out).lines().count() == 1,
        "{}",
        stderr(&out)
    );

    let config = home.path().join("config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("trust.toml"), "host = 7").unwrap();
    for args in [&["serve"][..], &["trust", "list"], &["trust", "invite"]] {
        let out = run(&mut home.linerate(args));
        assert_eq!(out.status.code(), Some(1));
        assert!(
            stderr(&out).contains("trust.toml: not a list"),
            "{}",
            stderr(&out)
        );
    }
    for (args, said) in [
        (&["trust", "add", "xyz"][..], "not the id of a host"),
        (&["trust", "accept", "hello"], "no invitation"),
        (&["serve", "--data-ports", "9-1"], "no range of ports"),
        (&["measure", "lab:wan"], "no scenario 'wan'"),
        (&["measure", "a:b"], "not a number"),
    ] {
        let out = run(&mut home.linerate(args));
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(said), "{args:?}: {}", stderr(&out));
    }
}

/// A stand-in for ssh that runs the command of the last argument here, in its own way.
fn ssh(home: &Home, body: &str) -> String {
    let bin = home.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\nfor last; do :; done\necho $$ >> {}\ncase \"$*\" in *-G*) echo 'user me'; echo 'hostname 127.0.0.1'; exit;; esac\n{body}\n",
        home.path().join("pids").display()
    );
    let path = bin.join("ssh");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let there = Path::new(env!("CARGO_BIN_EXE_linerate")).parent().unwrap();
    format!(
        "{}:{}:{}",
        bin.display(),
        there.display(),
        std::env::var("PATH").unwrap()
    )
}

/// Whether all processes that the stand-in was have ended and been reaped.
fn nobody_left(home: &Home) -> bool {
    let pids = std::fs::read_to_string(home.path().join("pids")).unwrap();
    pids.lines()
        .all(|pid| !Path::new("/proc").join(pid).exists())
}

#[test]
fn an_agent_is_started_over_ssh_and_ends_with_the_session() {
    let home = Home::new();
    let path = ssh(&home, "exec sh -c \"$last\"");
    let mut command = home.linerate(&["measure", "ssh:me@far", "--bidir", "-t", "300ms", "--json"]);
    let measured = json(command.env("PATH", &path));
    assert_eq!(measured["ended"]["how"], "complete");
    assert_eq!(measured["legs"].as_array().unwrap().len(), 2);
    assert!(nobody_left(&home));

    // Ctrl-C in a terminal goes to all of its processes; the agent must outlive it.
    let mut command = home.linerate(&[
        "measure",
        "ssh:me@far",
        "--up",
        "-t",
        "30",
        "-i",
        "100ms",
        "--json-stream",
    ]);
    use std::os::unix::process::CommandExt;
    command.env("PATH", &path).process_group(0);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    lines.wait_for("sample");
    let group = format!("-{}", child.id());
    let killed = Command::new("kill")
        .args(["-INT", "--", &group])
        .status()
        .unwrap();
    assert!(killed.success());
    let out = Running(child).output(Duration::from_secs(20));
    assert_eq!(out.status.code(), Some(4), "{}", stderr(&out));
    assert!(nobody_left(&home));
}

#[test]
fn what_goes_wrong_over_ssh_is_said_in_one_sentence() {
    for (body, said) in [
        (
            "echo 'me@far: Permission denied (publickey).' >&2; exit 255",
            "ssh to me@far failed (its message: me@far: Permission denied (publickey).)",
        ),
        (
            "echo 'sh: 1: linerate: not found' >&2; exit 127",
            "me@far has no linerate: 'linerate install ssh:me@far' copies this one there",
        ),
        (
            "echo \"error: unrecognized subcommand 'agent'\" >&2; exit 2",
            "install the same version of linerate on both hosts",
        ),
        (
            "printf '\\000\\000\\000\\065{\"say\":\"hello\",\"protocol\":9,\"version\":\"9.9.9\",\"x\":[]}'; cat >/dev/null",
            "runs linerate 9.9.9 (protocol 9), this host",
        ),
        (
            "echo 'Welcome to far!'; cat >/dev/null",
            "does not speak linerate's control protocol",
        ),
    ] {
        let home = Home::new();
        let path = ssh(&home, body);
        let out = run(home
            .linerate(&["measure", "ssh:me@far", "-t", "1", "-q"])
            .env("PATH", path));
        assert_eq!(out.status.code(), Some(3), "{body}: {}", stderr(&out));
        assert!(stderr(&out).contains(said), "{body}: {}", stderr(&out));
        assert_eq!(stderr(&out).lines().count(), 1, "{}", stderr(&out));
        assert!(nobody_left(&home), "{body}");
    }
    let home = Home::new();
    let out = run(home
        .linerate(&["measure", "ssh:far", "-t", "1", "-q"])
        .env("PATH", "/nonexistent"));
    assert!(stderr(&out).contains("no ssh command"), "{}", stderr(&out));
}

/// The small form of 'make flood', whose figures of time are not looked at here.
#[test]
fn measurements_get_in_while_others_flood_the_server() {
    let out = bench("flood", &["--quick", "--json"], Duration::from_secs(240));
    let said = stderr(&out);
    assert!(out.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    println!("{report:#}");
    for flood in report["floods"].as_array().unwrap() {
        for kind in ["known", "new"] {
            let runs = &flood[kind];
            assert!(
                runs["runs"].as_u64() > Some(0) && runs["in"] == runs["runs"],
                "{flood:#}"
            );
        }
        assert_eq!(flood["known"]["asked_to_wait"], 0, "{flood:#}");
        assert!(
            flood["attempts"].as_u64() > flood["silent"].as_u64(),
            "{flood:#}"
        );
        // Of the flood at most what '--startups' allows has a thread.
        assert!(flood["threads"].as_u64() < Some(250), "{flood:#}");
    }
    let at_once = &report["at_once"];
    let answered = ["served", "deferred"].map(|kind| at_once[kind].as_u64().unwrap());
    assert_eq!(
        at_once["clients"],
        answered.iter().sum::<u64>(),
        "{at_once:#}"
    );
    assert!(answered[0] > 0, "{at_once:#}");
}
