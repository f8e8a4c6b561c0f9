//! Against Debian's iperf3 in both roles, on loopback. Needs `iperf3` in the path, and says so.
#![allow(clippy::unwrap_used)] // What a helper of a test cannot do has failed the test.

mod common;

use common::free_port;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A stock server that serves until it is dropped.
struct Stock {
    child: Child,
    port: u16,
}

/// `linerate serve --iperf3` until it is dropped.
struct Ours {
    child: Child,
    port: u16,
    log: std::sync::mpsc::Receiver<String>,
}

impl Stock {
    fn start(more: &[&str]) -> Stock {
        let port = free_port();
        let child = Command::new("iperf3")
            .args(["-s", "-B", "127.0.0.1", "-p", &port.to_string()])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("these tests need iperf3: apt-get install iperf3");
        // A connection to see whether it listens would be a client to it, and keep it busy.
        wait_until("iperf3 listens", || listens(port));
        Stock { child, port }
    }
}

impl Ours {
    fn start(more: &[&str]) -> Ours {
        let port = free_port();
        let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
            .args(["serve", "--iperf3", "--port", &port.to_string()])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let ours = Ours { child, port, log };
        ours.says("are served on");
        ours
    }

    /// Waits for a line of the log.
    fn says(&self, what: &str) -> String {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(left) {
                Ok(line) if line.contains(what) => return line,
                Ok(_) => {}
                Err(_) => panic!("the server never said '{what}'"),
            }
        }
    }

    /// A stock client; its JSON.
    fn client(&self, args: &str) -> Value {
        let output = stock_client(self.port, args).output().unwrap();
        assert!(
            output.status.success(),
            "iperf3 {args}: {}{}",
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(json.get("error").is_none(), "iperf3 {args}: {json}");
        json
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A listening socket of this machine has the port (`/proc/net/tcp`, state 0A).
fn listens(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let wanted = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some("0A")
    })
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn stock_client(port: u16, args: &str) -> Command {
    let mut command = Command::new("iperf3");
    command.args(["-c", "127.0.0.1", "-J", "-p", &port.to_string()]);
    if !args.contains("-n ") && !args.contains("-k ") {
        command.args(["-t", "1"]);
    }
    command.args(args.split_whitespace());
    command
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("linerate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `linerate measure iperf3:127.0.0.1:PORT`, in a folder of its own.
fn measure(folder: &Folder, port: u16, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command
        .env("LINERATE_ARCHIVE", folder.path("runs.db"))
        .env("LINERATE_CONFIG", folder.path("config"))
        .env_remove("IPERF3_PASSWORD")
        .args(["measure", &format!("iperf3:127.0.0.1:{port}"), "--quiet"]);
    if !args.contains("-n ") && !args.contains("-t ") {
        command.args(["-t", "1"]);
    }
    command.args(args.split_whitespace());
    command
}

fn run_of(output: &Output) -> Value {
    let run = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
    assert!(
        output.status.success(),
        "{}{:#}",
        String::from_utf8_lossy(&output.stderr),
        run["ended"]
    );
    run
}

fn number(value: &Value, path: &str) -> f64 {
    value
        .pointer(path)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("no number at {path} in {value:#}"))
}

#[test]
fn our_client_in_every_mode_against_the_stock_server() {
    let stock = Stock::start(&[]);
    let folder = Folder::new("client");
    for (args, legs) in [
        ("--up", &["up"][..]),
        ("--down", &["down"]),
        ("", &["up", "down"]),
        ("--bidir", &["up", "down"]),
        ("--up -P 2", &["up"]),
        (
            "--down -P 2 -w 256K -M 1000 -N --dscp CS1 --congestion reno",
            &["down"],
        ),
        ("--up -n 20M", &["up"]),
        ("--down -n 20M", &["down"]),
        ("--up --pacing 100M -l 64K -Z", &["up"]),
        ("--down --pacing 100M --discard", &["down"]),
        ("--up --workload udp -b 20M --datagram-size 1000", &["up"]),
        ("--down --workload udp -b 20M", &["down"]),
        ("--bidir --workload udp -b 10M -P 2", &["up", "down"]),
    ] {
        let output = measure(&folder, stock.port, &format!("{args} --json")).output();
        println!("{args}");
        let run = run_of(&output.unwrap());
        assert_eq!(run["ended"]["how"], "complete", "{args}");
        let seen: Vec<&str> = run["legs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|leg| leg["direction"].as_str().unwrap())
            .collect();
        assert_eq!(seen, legs, "{args}");
        for leg in run["legs"].as_array().unwrap() {
            let (local, remote) = (number(leg, "/local/bytes"), number(leg, "/remote/bytes"));
            assert!(local > 1e6 && remote > 1e6, "{args}: {local} {remote}");
            // What one end sent the other received, but for what was on the way at the end.
            assert!(
                (local / remote - 1.0).abs() < 0.3,
                "{args}: {local} {remote}"
            );
            // iperf3 has one processor for each stream, and one for itself.
            let used = leg["remote"]["samples"].as_array().unwrap().last().unwrap();
            let used =
                number(used, "/cpu/process_user_ns") + number(used, "/cpu/process_system_ns");
            let length = number(leg, "/remote/duration_ns");
            assert!(used <= 4.0 * length, "{args}: {used} ns of {length} ns");
            if args.contains("-n 20M") {
                let sent = if leg["direction"] == "up" {
                    local
                } else {
                    remote
                };
                assert!(sent >= 20.0 * 1024.0 * 1024.0, "{args}: {sent}");
            }
            if args.contains("--pacing 100M") {
                assert!(local < 2.0 * 12.5e6, "{args}: {local}");
            }
            if args.contains("udp") {
                let receiver = if leg["direction"] == "up" {
                    "remote"
                } else {
                    "local"
                };
                let counted = &leg[receiver]["datagrams"];
                assert!(number(counted, "/packets") > 500.0, "{args}: {counted}");
                assert!(number(counted, "/lost") < 50.0, "{args}: {counted}");
            } else if leg["direction"] == "up" {
                let last = leg["local"]["samples"].as_array().unwrap().last().unwrap();
                assert!(number(last, "/streams/0/tcp/bytes_acked") > 0.0, "{args}");
            } else {
                assert!(number(leg, "/remote/retransmits") >= 0.0, "{args}");
            }
        }
    }
}

#[test]
fn a_stock_client_in_every_mode_against_our_server() {
    let ours = Ours::start(&[]);
    for args in [
        "",
        "-R",
        "--bidir",
        "-P 2",
        "-P 2 -R",
        "-n 20M",
        "-n 20M -R",
        "-k 200",
        "-O 1",
        "-R -O 1 -i 0.5",
        "-w 256K -M 1000 -C reno -N -S 32 -l 64K -Z",
        "-R -w 256K -M 1000 -C reno -N -S 32 -l 64K",
        "-R -b 100M",
        "-u -b 20M",
        "-u -b 20M -R -l 1000",
        "-u -b 10M --bidir -P 2",
        "-u -b 10M --udp-counters-64bit -w 256K",
        "-u -b 10M -R -O 1",
    ] {
        let json = ours.client(args);
        let ways: &[&str] = if args.contains("bidir") {
            &["", "_bidir_reverse"]
        } else {
            &[""]
        };
        for way in ways {
            let (sent, received) = (
                number(&json, &format!("/end/sum_sent{way}/bytes")),
                number(&json, &format!("/end/sum_received{way}/bytes")),
            );
            assert!(sent > 1e6 && received > 1e6, "{args}: {sent} {received}");
            // A receiver that has its bytes leaves the rest that was sent.
            if !(args.contains("-R") && (args.contains("-n") || args.contains("-k"))) {
                assert!(
                    (sent / received - 1.0).abs() < 0.3,
                    "{args}: {sent} {received}"
                );
            }
            if args.contains("-b 100M") {
                assert!(received < 2.0 * 12.5e6, "{args}: {received}");
            }
            if args.contains("-u") {
                let counted = &json["end"][format!("sum_received{way}")];
                let packets = number(counted, "/packets");
                assert!(packets > 25.0, "{args}: {counted}");
                // A receiver that had no processor for a moment loses some.
                let lost = number(counted, "/lost_packets");
                assert!(lost < packets / 4.0, "{args}: {counted}");
                assert!(number(counted, "/jitter_ms") < 1000.0, "{args}: {counted}");
            }
        }
        if args.contains("-R") && args.contains("reno") {
            assert_eq!(json["end"]["sender_tcp_congestion"], "reno", "{args}");
        }
        assert!(number(&json, "/end/cpu_utilization_percent/remote_total") >= 0.0);
        ours.says(if args.contains("-R") {
            "received"
        } else {
            "sent"
        });
    }
    // On an address of both versions, reached by each.
    let both = Ours::start(&["--bind", "::"]);
    for (host, args) in [
        ("::1", "-R"),
        ("127.0.0.1", "-R"),
        ("::1", "-u -R"),
        ("127.0.0.1", "-u"),
    ] {
        let output = Command::new("iperf3")
            .args(["-c", host, "-p", &both.port.to_string(), "-t", "1"])
            .args(args.split_whitespace())
            .output()
            .unwrap();
        assert!(output.status.success(), "{host} {args}: {output:?}");
    }
    let json = ours.client("--get-server-output");
    let output = json["server_output_text"].as_str().unwrap();
    assert!(
        output.contains("linerate") && output.contains("receiver"),
        "{output}"
    );
}

#[test]
fn clients_at_once_and_a_silent_one_do_not_block_each_other() {
    let ours = Ours::start(&[]);
    // One says nothing, one stops in the middle of its cookie, one after its parameters' length.
    let silent = TcpStream::connect(("127.0.0.1", ours.port)).unwrap();
    let mut half = TcpStream::connect(("127.0.0.1", ours.port)).unwrap();
    half.write_all(b"abcdef").unwrap();
    let mut stuck = TcpStream::connect(("127.0.0.1", ours.port)).unwrap();
    stuck
        .write_all(b"abcdefghijklmnopqrstuvwxyz234567abcd\0")
        .unwrap();
    let mut answer = [0];
    stuck.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [9]);
    stuck.write_all(&[0, 0, 1, 0]).unwrap();

    let mut clients: Vec<Child> = ["", "-R", "-u -b 10M", "-u -b 10M -R"]
        .iter()
        .map(|args| {
            let mut command = stock_client(ours.port, args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for client in clients.drain(..) {
        let output = client.wait_with_output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success(), "{json:#}");
        assert!(number(&json, "/end/sum_received/bytes") > 1e5);
    }
    drop((silent, half, stuck));
}

#[test]
fn a_client_that_dies_leaves_room_for_the_next() {
    let ours = Ours::start(&["--clients", "1"]);
    let mut dying = stock_client(ours.port, "-t 30")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Its data connection stands once the kernel has three of them: two ends each, and listening.
    wait_until("the test runs", || connections(ours.port) >= 4);
    let next = stock_client(ours.port, "")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    ours.says("waits in the queue");
    dying.kill().unwrap();
    dying.wait().unwrap();
    let output = next.wait_with_output().unwrap();
    assert!(output.status.success());
}

/// Established connections to or from the port, each end counted.
fn connections(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let wanted = format!(":{port:04X}");
    table
        .lines()
        .filter(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(3) == Some(&"01")
                && words[1..3].iter().any(|address| address.ends_with(&wanted))
        })
        .count()
}

#[test]
fn limits_are_refused_in_iperf3s_words() {
    let ours = Ours::start(&["--iperf3-max-time", "5s", "--iperf3-max-rate", "50M"]);
    let refused = |args: &str| {
        // With -J it says so in its JSON, and exits with 0.
        let output = stock_client(ours.port, args).output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        json["error"].as_str().unwrap().to_owned()
    };
    let too_long = Command::new("iperf3")
        .args(["-c", "127.0.0.1", "-p", &ours.port.to_string(), "-t", "60"])
        .output()
        .unwrap();
    assert!(!too_long.status.success());
    ours.says("requested 60.0 s, and --iperf3-max-time is 5.00 s");
    assert!(!refused("-u -b 80M").is_empty());
    ours.says("requested 80.0 Mbit/s, and --iperf3-max-rate is 50.0 Mbit/s");
    // Without a rate the sending side is paced.
    let json = ours.client("-R");
    assert!(number(&json, "/end/sum_received/bits_per_second") < 80e6);
}

#[test]
fn only_authorised_users_may_test_with_the_padding_that_is_allowed() {
    let folder = Folder::new("auth");
    let (private, public, users) = keys(&folder);
    let ours = Ours::start(&[
        "--bind",
        "127.0.0.1",
        "--rsa-private-key",
        private.to_str().unwrap(),
        "--authorized-users",
        users.to_str().unwrap(),
        "--use-pkcs1-padding",
    ]);
    let stock = |password: &str| {
        let key = public.to_str().unwrap();
        stock_client(
            ours.port,
            &format!("--username mario --rsa-public-key-path {key}"),
        )
        .env("IPERF3_PASSWORD", password)
        .output()
        .unwrap()
    };
    assert!(stock("rossi").status.success());
    ours.says("is the user mario");
    let wrong = stock("bianchi");
    assert!(String::from_utf8_lossy(&wrong.stdout).contains("authorization failed"));
    ours.says("user name or password is wrong");
    let unnamed = stock_client(ours.port, "").output().unwrap();
    assert!(String::from_utf8_lossy(&unnamed.stdout).contains("authorization failed"));
    ours.says("not what iperf3 makes");

    // Ours pads as 3.17 does by default.
    for more in ["", "--use-pkcs1-padding"] {
        let output = with_user(&folder, ours.port, &public, more, "rossi");
        assert!(output.status.success(), "{output:?}");
    }

    // The old padding is refused unless it is allowed.
    let strict = Ours::start(&[
        "--bind",
        "127.0.0.1",
        "--rsa-private-key",
        private.to_str().unwrap(),
        "--authorized-users",
        users.to_str().unwrap(),
    ]);
    let old = with_user(
        &folder,
        strict.port,
        &public,
        "--use-pkcs1-padding",
        "rossi",
    );
    assert_eq!(old.status.code(), Some(3), "{old:?}");
    strict.says("not what iperf3 makes");
}

#[test]
fn our_client_names_its_user_to_a_stock_server() {
    let folder = Folder::new("auth-client");
    let (private, public, users) = keys(&folder);
    let stock = Stock::start(&[
        "--rsa-private-key-path",
        private.to_str().unwrap(),
        "--authorized-users-path",
        users.to_str().unwrap(),
    ]);
    let good = with_user(&folder, stock.port, &public, "--use-pkcs1-padding", "rossi");
    assert!(good.status.success(), "{good:?}");
    let bad = with_user(&folder, stock.port, &public, "--use-pkcs1-padding", "verdi");
    assert_eq!(bad.status.code(), Some(3));
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(said.contains("user name, password or clock"), "{said}");
    assert!(said.contains("--username"), "{said}");
}

#[test]
fn an_old_token_is_refused() {
    let folder = Folder::new("skew");
    let (private, public, users) = keys(&folder);
    let ours = Ours::start(&[
        "--bind",
        "127.0.0.1",
        "--rsa-private-key",
        private.to_str().unwrap(),
        "--authorized-users",
        users.to_str().unwrap(),
        "--use-pkcs1-padding",
    ]);
    // A token as a client makes it whose clock is a minute behind.
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        - 60;
    let text = format!("user: mario\npwd:  rossi\nts:   {seconds}");
    let mut openssl = Command::new("openssl")
        .args(["pkeyutl", "-encrypt", "-pubin", "-inkey"])
        .arg(&public)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("these tests need openssl");
    openssl
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let sealed = openssl.wait_with_output().unwrap().stdout;
    let token = base64(&sealed);
    let mut control = TcpStream::connect(("127.0.0.1", ours.port)).unwrap();
    control
        .write_all(b"abcdefghijklmnopqrstuvwxyz234567abcd\0")
        .unwrap();
    let params =
        format!(r#"{{"tcp":true,"time":1,"parallel":1,"len":1000,"authtoken":"{token}"}}"#);
    let mut byte = [0];
    control.read_exact(&mut byte).unwrap();
    control
        .write_all(&(params.len() as u32).to_be_bytes())
        .unwrap();
    control.write_all(params.as_bytes()).unwrap();
    let mut refusal = [0; 9];
    control.read_exact(&mut refusal).unwrap();
    assert_eq!(refusal, [0xfe, 0, 0, 0, 142, 0, 0, 0, 0]);
    ours.says("the clock of the client is 6");
}

#[test]
fn a_busy_server_is_asked_again_until_it_is_free_or_the_time_is_over() {
    let stock = Stock::start(&[]);
    let folder = Folder::new("busy");
    let mut other = stock_client(stock.port, "-t 3")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the stock server is busy", || connections(stock.port) >= 4);
    let given_up = measure(&folder, stock.port, "--up --busy-wait 10ms")
        .output()
        .unwrap();
    assert_eq!(given_up.status.code(), Some(3));
    let said = String::from_utf8_lossy(&given_up.stderr).into_owned();
    assert!(said.contains("busy with another test"), "{said}");
    let patient = measure(&folder, stock.port, "--up").output().unwrap();
    assert!(patient.status.success(), "{patient:?}");
    other.wait().unwrap();
}

#[test]
fn what_cannot_be_is_said_in_one_sentence() {
    let folder = Folder::new("refusals");
    let nobody = free_port();
    let refused = |port: u16, args: &str, code: i32| {
        let output = measure(&folder, port, args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    assert!(refused(nobody, "--up", 3).contains("nothing listens on that port"));
    assert!(refused(nobody, "--workload request", 2).contains("answers no requests"));
    assert!(
        refused(nobody, "--up --remote-cpus 0", 2)
            .contains("the server chooses its processors itself")
    );
    assert!(
        refused(nobody, "--up --username mario --rsa-public-key /nowhere", 2)
            .contains("IPERF3_PASSWORD")
    );
    // Somebody who speaks another protocol.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let speaker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH\r\n").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    assert!(refused(port, "--up", 3).contains("does not speak iperf3's protocol"));
    speaker.join().unwrap();
}

#[test]
fn a_server_that_dies_in_the_middle_leaves_what_was_measured() {
    let mut stock = Stock::start(&[]);
    let folder = Folder::new("dying");
    let mut client = measure(&folder, stock.port, "--up -t 20 -i 100ms --json-stream")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut samples = 0;
    let mut last = Value::Null;
    for line in lines.map_while(Result::ok) {
        last = serde_json::from_str(&line).unwrap();
        samples += usize::from(last["event"] == "sample");
        if samples == 4 {
            // A second kill of a process that is gone does nothing.
            stock.child.kill().unwrap();
        }
    }
    assert!(!client.wait().unwrap().success());
    assert!(samples >= 4, "{samples}");
    assert_eq!(last["event"], "end", "{last}");
    assert_eq!(last["ended"]["how"], "failed", "{last}");
}

/// The paths of all keys of an object, without the indices of lists.
fn keys_of(value: &Value, path: &str, into: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}/{key}");
                into.insert(path.clone());
                keys_of(value, &path, into);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys_of(value, path, into)),
        _ => {}
    }
}

#[test]
fn our_json_has_every_key_of_iperf3s() {
    let stock = Stock::start(&[]);
    let ours = Ours::start(&[]);
    let folder = Folder::new("shape");
    for (args, stock_args) in [
        ("--up", ""),
        ("--down", "-R"),
        ("--bidir", "--bidir"),
        ("--up --workload udp -b 10M", "-u -b 10M"),
        ("--down --workload udp -b 10M", "-u -b 10M -R"),
    ] {
        let theirs = ours.client(stock_args);
        let output = measure(&folder, stock.port, &format!("{args} --iperf3-json"))
            .output()
            .unwrap();
        let mine = run_of(&output);
        let (mut wanted, mut found) = Default::default();
        keys_of(&theirs, "", &mut wanted);
        keys_of(&mine, "", &mut found);
        let missing: Vec<&String> = wanted.difference(&found).collect();
        // A stock server does not report its congestion control for a receiver of ours to print, and
        // the round-trip times of its sockets are not known here.
        let allowed = |key: &str| {
            key.ends_with("_tcp_congestion")
                && (args.contains("up") || args.contains("down") || args.contains("bidir"))
        };
        let missing: Vec<_> = missing.into_iter().filter(|key| !allowed(key)).collect();
        assert!(missing.is_empty(), "{args}: {missing:?}");
        // All of ours is under one key, but for what later versions of iperf3 added.
        let more: Vec<&String> = found
            .difference(&wanted)
            .filter(|key| !key.starts_with("/linerate"))
            .collect();
        let newer = [
            "reorder",
            "bidir",
            "fqrate",
            "fq_rate",
            "interval",
            "timemillisecs",
        ];
        assert!(
            more.iter()
                .all(|key| newer.iter().any(|n| key.ends_with(n))),
            "{args}: {more:?}"
        );
    }
    // The stream: a line for the start, one for each second, one for the end.
    let output = measure(&folder, stock.port, "--up -t 3s --iperf3-json-stream")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<String> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["event"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(events.first().map(String::as_str), Some("start"));
    assert_eq!(events.last().map(String::as_str), Some("end"));
    assert!(
        events.iter().filter(|event| *event == "interval").count() >= 3,
        "{events:?}"
    );
}

#[test]
fn what_iperf3_prints_can_be_imported() {
    let ours = Ours::start(&[]);
    let folder = Folder::new("import");
    let output = stock_client(ours.port, "").output().unwrap();
    let file = folder.path("stock.json");
    std::fs::write(&file, &output.stdout).unwrap();
    let linerate = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_linerate"))
            .env("LINERATE_ARCHIVE", folder.path("runs.db"))
            .args(args)
            .output()
            .unwrap()
    };
    let imported = linerate(&["runs", "import", file.to_str().unwrap()]);
    assert!(imported.status.success(), "{imported:?}");
    let listed = linerate(&["runs", "list"]);
    assert!(
        String::from_utf8_lossy(&listed.stdout).contains("iperf3:127.0.0.1"),
        "{listed:?}"
    );
}

fn with_user(folder: &Folder, port: u16, key: &Path, more: &str, password: &str) -> Output {
    let key = key.to_str().unwrap();
    measure(
        folder,
        port,
        &format!("--up --username mario --rsa-public-key {key} {more}"),
    )
    .env("IPERF3_PASSWORD", password)
    .output()
    .unwrap()
}

/// A key pair and the user mario with the password rossi, as iperf3's manual makes them.
fn keys(folder: &Folder) -> (PathBuf, PathBuf, PathBuf) {
    let (private, public, users) = (
        folder.path("private.pem"),
        folder.path("public.pem"),
        folder.path("users.csv"),
    );
    let openssl = |args: &[&str]| {
        let done = Command::new("openssl").args(args).output();
        let done = done.expect("these tests need openssl: apt-get install openssl");
        assert!(done.status.success(), "{done:?}");
    };
    let (from, to) = (private.to_str().unwrap(), public.to_str().unwrap());
    openssl(&["genrsa", "-out", from, "2048"]);
    openssl(&["rsa", "-in", from, "-pubout", "-out", to]);
    let hash = "bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b";
    std::fs::write(&users, format!("mario,{hash}\n")).unwrap();
    (private, public, users)
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, b| word << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                text.push(LETTERS[(word >> (18 - 6 * place) & 63) as usize] as char);
            } else {
                text.push('=');
            }
        }
    }
    text
}
