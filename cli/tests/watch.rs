//! `linerate watch` as a user meets it. Needs root.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Home, Lab, Lines, Running, run, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A host with a good path to one other, and a slow one to a third.
const HOSTS: &str = r#"
name = "three-hosts"
why = "a test"
[[host]]
name = "a"
[[host]]
name = "b"
[[host]]
name = "c"
[[link]]
between = ["a", "b"]
[link.both]
rate = "1G"
delay = "10ms"
[[link]]
between = ["a", "c"]
[link.both]
rate = "20M"
delay = "10ms"
queue = { bytes = "100K" }
"#;

/// What limits each of the flows of `flows.py`, by its port: one of these. The idle one has none.
const LIMITS: [(u64, &[&str]); 6] = [
    (7101, &["receive_window"]),
    (7102, &["reading_application"]),
    (7103, &["send_buffer"]),
    (7104, &["pacing"]),
    (7105, &["bottleneck_rate", "bufferbloat", "shaper"]),
    (7106, &["application"]),
];

/// `flows.py` in a host of the lab, once it has `said` that it is ready.
fn flows(home: &Home, lab: &Lab, host: &str, args: &[&str], said: &str) -> Running {
    let place = format!("{}/{host}", lab.name);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/flows.py");
    let args = [&["lab", "exec", &place, "--", "python3", script], args].concat();
    let mut command = home.linerate(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Running(command.spawn().unwrap());
    Lines::of(child.0.stdout.take().unwrap()).wait_for(said);
    child
}

fn port(one: &Value) -> u64 {
    let remote = one["remote"].as_str().unwrap();
    remote.rsplit(':').next().unwrap().parse().unwrap()
}

/// The cause that is named, by the remote port; of an application's own the limit.
fn causes(now: &Value) -> BTreeMap<u64, String> {
    let all = now["connections"].as_array().unwrap().iter();
    let named = all.filter_map(|one| {
        let cause = one["cause"].as_str().or(one["limit"].as_str())?;
        Some((port(one), cause.to_owned()))
    });
    named.collect()
}

#[test]
fn flows_of_seven_known_limits_are_each_named() {
    let home = Home::new();
    let file = home.path().join("hosts.toml");
    fs::write(&file, HOSTS).unwrap();
    let lab = Lab::up(&home, file.to_str().unwrap());
    let _servers = ["b", "c"].map(|host| flows(&home, &lab, host, &["serve"], "listening"));
    let _sender = flows(&home, &lab, "a", &["send", "b", "c", "300"], "connected");
    let place = format!("{}/a", lab.name);
    let linerate = env!("CARGO_BIN_EXE_linerate");
    let watch = ["lab", "exec", &place, "--", linerate, "watch"];
    let mut json = home.linerate(&[&watch[..], &["--json"]].concat());
    let mut json = Running(json.stdout(Stdio::piped()).spawn().unwrap());
    let lines = Lines::of(json.0.stdout.take().unwrap());
    let right = |found: &BTreeMap<u64, String>| {
        let is = |(port, named): &(u64, &[&str])| {
            found
                .get(port)
                .is_some_and(|cause| named.contains(&cause.as_str()))
        };
        found.len() == LIMITS.len() && LIMITS.iter().all(is)
    };
    let until = Instant::now() + Duration::from_secs(60);
    let now = loop {
        let now: Value = serde_json::from_str(&lines.wait_for("\"now\"")).unwrap();
        // Who holds a socket is looked up less often.
        let all = now["connections"].as_array().unwrap();
        if right(&causes(&now)) && all.iter().all(|one| one["comm"] == "python3") {
            break now;
        }
        assert!(Instant::now() < until, "{now}");
    };
    let all = now["connections"].as_array().unwrap();
    assert_eq!((all.len(), now["open"].as_u64()), (7, Some(7)));
    let idle = all.iter().find(|one| port(one) == 7107).unwrap();
    assert!(idle["limit"].is_null() && idle["sent_bit_s"] == 0, "{idle}");
    // What only samples at one end show of the path's rate is never certain.
    let line = all.iter().find(|one| port(one) == 7105).unwrap();
    assert_ne!(line["confidence"], "certain", "{line}");

    json.interrupt();
    let last = lines.wait_for("\"explanations\"");
    assert!(json.output(Duration::from_secs(20)).status.success());
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        last["explanations"].as_array().unwrap().len(),
        6,
        "the idle one moved too little"
    );

    // A trigger starts a whole trace of that connection alone, once, and the archive keeps it.
    let trigger = [
        "--json",
        "--trigger",
        "stall,limit=receive-window",
        "--trace-time",
        "2s",
        "--before",
        "10s",
    ];
    let only = ["--process", "pyth*", "--port", "7101", "--time", "12s"];
    let out = run(&mut home.linerate(&[&watch[..], &trigger, &only].concat()));
    let text = stdout(&out);
    let traced: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("\"traced\""))
        .collect();
    assert_eq!(traced.len(), 1, "{text}{}", stderr(&out));
    let traced: Value = serde_json::from_str(traced[0]).unwrap();
    assert_eq!(traced["trigger"], "the receive window", "{traced}");
    assert_eq!(
        traced["explanations"][0]["conclusion"]["by"][0], "receive_window",
        "{traced}"
    );
    // A limit has to hold for some seconds, and the trace has these as well.
    let before = traced["before_ns"].as_u64().unwrap();
    let span = traced["explanations"][0]["span_ns"].as_u64().unwrap();
    assert!(before >= 1_000_000_000, "{traced}");
    assert!(
        (before + 1_500_000_000..before + 4_000_000_000).contains(&span),
        "{traced}"
    );
    let file = traced["file"].as_str().unwrap();
    assert_eq!(
        fs::metadata(file).unwrap().len(),
        traced["bytes"].as_u64().unwrap()
    );
    let id = traced["id"].as_str().unwrap();
    let again = common::json(&mut home.linerate(&["explain", id, "--json"]));
    assert_eq!(again["explanations"], traced["explanations"]);
    let listed = common::json(&mut home.linerate(&["runs", "list", "--json"]));
    assert_eq!(
        (&listed[0]["id"], &listed[0]["kind"], &listed[0]["ended"]),
        (&traced["id"], &"trace".into(), &"complete".into()),
        "{listed}"
    );
    let shown = run(&mut home.linerate(&["runs", "show", id]));
    let text = stdout(&shown);
    assert!(text.starts_with("Trace of python3 ("), "{text}");
    assert!(text.contains("imited by the receive window"), "{text}");
    let args = [&watch[..], &trigger, &only, &["--most-traces", "1"]].concat();
    let out = run(&mut home.linerate(&args));
    let text = stdout(&out);
    assert!(!text.contains("\"traced\""), "a restart counts on: {text}");

    // The same as lines, of one port alone.
    let args = [
        "--port",
        "7101",
        "--min-rate",
        "1M",
        "--peer",
        "10.0.0.0/8",
        "--time",
        "6s",
    ];
    let out = run(&mut home.linerate(&[&watch[..], &args].concat()));
    let text = stdout(&out);
    assert!(text.starts_with("5 s: python3 ("), "{text}{}", stderr(&out));
    assert!(
        text.contains("Limited by the receive window (certain, "),
        "{text}"
    );
    assert_eq!(text.matches("Limited by").count(), 1, "{text}");
}

/// The server answers with what was counted, and only to who calls this machine by an address.
#[test]
fn a_server_has_the_connections_as_a_page_and_as_metrics() {
    let home = Home::new();
    // Ports that clients use are no group.
    let listener = TcpListener::bind(("127.0.0.1", common::free_port())).unwrap();
    let service = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(service).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut command = home.linerate(&[
        "watch",
        "--serve",
        "127.0.0.1:0",
        "--port",
        &service.port().to_string(),
    ]);
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let first = Lines::of(child.0.stdout.take().unwrap()).wait_for("http://");
    let address = first
        .split("http://")
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    let ask = |path: &str, host: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let sent = format!(
        "linerate_watch_sent_bytes_total{{peer=\"127.0.0.0/24\",port=\"{}\"",
        service.port()
    );
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        client.write_all(&[1; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        let metrics = ask("/metrics", &address);
        if metrics.contains(&sent) && metrics.contains("linerate_watch_open_sockets{} 2") {
            break;
        }
        assert!(Instant::now() < until, "{metrics}");
    }
    let page = ask("/", &address);
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("Who was held back"),
        "{page}"
    );
    assert!(ask("/", "a-name.example").starts_with("HTTP/1.1 421"));
    assert!(ask("/other", &address).starts_with("HTTP/1.1 404"));
    child.interrupt();
    assert!(child.output(Duration::from_secs(20)).status.success());
}

/// Short connections are counted by their last states, and nothing is missing.
#[test]
fn connections_that_live_between_two_looks_are_counted_to_the_byte() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut command = home.linerate(&["watch", "--json", "--port", &port.to_string()]);
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = Lines::of(child.0.stdout.take().unwrap());
    lines.wait_for("\"now\"");
    for _ in 0..500 {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(&[1; 10_000]).unwrap();
        drop(client);
        std::io::copy(&mut &server, &mut std::io::sink()).unwrap();
    }
    let until = Instant::now() + Duration::from_secs(30);
    let account = loop {
        let now: Value = serde_json::from_str(&lines.wait_for("\"now\"")).unwrap();
        let account = now["account"].clone();
        if account["ended"] == 1000 {
            break account;
        }
        assert!(Instant::now() < until, "{account}");
    };
    let of = |key: &str| account[key].as_u64().unwrap();
    assert_eq!(
        (of("seen"), of("vanished"), of("left_out")),
        (1000, 0, 0),
        "both ends: {account}"
    );
    // The SYN and the FIN may count as a byte each.
    assert!(
        (5_000_000..=5_003_000).contains(&of("sent_bytes")),
        "{account}"
    );
    assert!(
        (5_000_000..=5_003_000).contains(&of("received_bytes")),
        "{account}"
    );
    child.interrupt();
    assert!(child.output(Duration::from_secs(20)).status.success());
}

#[test]
fn without_root_it_watches_and_reports_what_it_cannot_name() {
    let home = Home::new();
    let linerate = home.path().join("linerate");
    fs::copy(env!("CARGO_BIN_EXE_linerate"), &linerate).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command
        .arg(&linerate)
        .args(["watch", "--time", "100ms", "--json"]);
    home.furnish(&mut command);
    let out = run(&mut command);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(
        stderr(&out).contains("only your own processes are named"),
        "{}",
        stderr(&out)
    );
    assert!(
        stdout(&out).starts_with("{\"kind\":\"now\""),
        "{}",
        stdout(&out)
    );
}
