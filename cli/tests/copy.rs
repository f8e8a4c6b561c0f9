//! `linerate measure --workload copy` and `blocks` as a user meets them: whole files or none, and only where they may be.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

mod common;

use common::{
    Home, Lab, Lines, Running, Ssh, alone, free_port, json, one_line, run, stderr, stdout,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LENGTH: usize = (5 << 20) + 77;

/// `linerate measure HOST --workload copy` with these options.
fn copy(home: &Home, host: &str, options: &[&str]) -> Command {
    let mut command = home.linerate(&["measure", host, "--workload", "copy", "-q"]);
    command.args(options);
    command
}

fn write(path: &Path) -> Vec<u8> {
    let data: Vec<u8> = (0..LENGTH).map(|at| (at * 31 + at / 257) as u8).collect();
    fs::write(path, &data).unwrap();
    data
}

fn names(directory: &Path) -> Vec<String> {
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(directory).unwrap().map(name).collect();
    names.sort();
    names
}

fn failed(out: &Output, code: i32, why: &str) {
    let said = stderr(out);
    assert_eq!(out.status.code(), Some(code), "{said}{}", stdout(out));
    assert!(
        (said.clone() + &stdout(out)).contains(why),
        "{said}{}",
        stdout(out)
    );
    assert!(said.lines().count() <= 1, "one clear sentence: {said}");
}

#[test]
fn files_arrive_both_ways_and_the_corners_are_compared() {
    let home = Home::new();
    let files = home.path().join("files");
    fs::create_dir(&files).unwrap();
    let path = |name: &str| files.join(name).to_str().unwrap().to_owned();
    let data = write(&files.join("from"));
    for way in ["--up", "--down"] {
        let to = path(way);
        let options = [way, "--from", &path("from"), "--to", &to, "--json"];
        let report = json(&mut copy(&home, "local", &options));
        assert_eq!(report["ended"]["how"], "complete");
        assert_eq!(report["spec"]["limit"], "whole");
        let leg = &report["summary"]["legs"][0];
        assert_eq!(leg["bytes"], LENGTH);
        let figures = &leg["copy"];
        assert_eq!(
            (&figures["verified"], &figures["kept"]),
            (&true.into(), &true.into())
        );
        assert!(figures["fsync_ns"].is_u64(), "{figures}");
        assert_eq!(figures["stages"].as_array().unwrap().len(), 3);
        assert!(fs::read(&to).unwrap() == data);
    }
    let (from, to) = (path("from"), path("corner"));
    let corners = ["--from", &from, "--to", &to, "--corners", "--rounds", "1"];
    let out = run(&mut copy(&home, "local", &corners));
    assert!(out.status.success(), "{}", stderr(&out));
    let table = stdout(&out);
    for corner in [
        "memory to memory",
        "file to memory",
        "memory to file",
        "file to file",
    ] {
        let line = table.lines().find(|l| l.starts_with(corner));
        assert!(line.is_some_and(|l| l.contains("bit/s")), "{table}");
    }
    assert_eq!(
        names(&files),
        ["--down", "--up", "from"],
        "corners keep nothing"
    );

    let taken = run(&mut copy(&home, "local", &["--from", &from, "--to", &from]));
    failed(&taken, 3, "the name is taken, and nothing is overwritten");
    let missing = run(&mut copy(
        &home,
        "local",
        &["--from", &path("no"), "--to", &to],
    ));
    failed(&missing, 2, "No such file");
    assert_eq!(names(&files), ["--down", "--up", "from"]);
    assert!(fs::read(&from).unwrap() == data);
}

#[test]
fn files_are_copied_over_ssh_with_the_rights_of_the_user_there() {
    let home = Home::new();
    let ssh = Ssh::serve(&home, "127.0.0.1", Command::new("env"));
    let files = home.path().join("files");
    fs::create_dir(&files).unwrap();
    let path = |name: &str| files.join(name).to_str().unwrap().to_owned();
    let data = write(&files.join("from"));
    let over_ssh = |options: &[&str]| {
        let mut command = copy(&home, "ssh:far", options);
        command.args(["--remote-command", env!("CARGO_BIN_EXE_linerate")]);
        command.env("PATH", &ssh.path);
        command
    };
    for way in ["--up", "--down"] {
        let (from, to) = (path("from"), path(way));
        let report = json(&mut over_ssh(&[
            way, "--from", &from, "--to", &to, "--json",
        ]));
        let figures = &report["summary"]["legs"][0]["copy"];
        assert_eq!(
            (&figures["verified"], &figures["kept"]),
            (&true.into(), &true.into())
        );
        assert!(fs::read(&to).unwrap() == data);
    }
    let (from, to) = (path("from"), path("no/to"));
    let nowhere = run(&mut over_ssh(&["--from", &from, "--to", &to]));
    failed(&nowhere, 3, "ssh:far refuses: cannot write");
    assert_eq!(names(&files), ["--down", "--up", "from"]);
}

#[test]
fn a_host_without_linerate_gets_a_copy_that_goes_away_again() {
    let home = Home::new();
    let ssh = Ssh::serve(&home, "127.0.0.1", Command::new("env"));
    let linerate = |arguments: &[&str]| {
        let mut command = home.linerate(arguments);
        command.env("PATH", &ssh.path);
        command
    };
    let measure = ["measure", "ssh:far", "-n", "1M", "--up", "-q"];
    let without = run(&mut linerate(&measure));
    failed(
        &without,
        3,
        "far has no linerate: 'linerate install ssh:far' copies this one there",
    );
    let copy = home.path().join("there/.cache/linerate/bin/linerate");
    let said = run(&mut linerate(&["install", "ssh:far"]));
    assert!(said.status.success(), "{said:?}");
    assert!(fs::read(&copy).unwrap() == fs::read(env!("CARGO_BIN_EXE_linerate")).unwrap());
    let measured = run(&mut linerate(&measure));
    assert!(measured.status.success(), "{measured:?}");
    let said = run(&mut linerate(&["install", "--remove", "ssh:far"]));
    assert!(said.status.success(), "{said:?}");
    assert_eq!(names(&home.path().join("there")), [""; 0]);
    failed(
        &run(&mut linerate(&["install", "--remove", "ssh:far"])),
        3,
        "there is no ",
    );
    failed(
        &run(&mut linerate(&["install", "far"])),
        2,
        "far is not reached over ssh",
    );
}

#[test]
fn over_a_slow_path_every_corner_is_held_up_by_the_network() {
    let _alone = alone();
    let home = Home::new();
    let rate = "rate = \"100Mbit\"\ndelay = \"1ms\"";
    let lab = Lab::of(&home, 1500, rate, rate);
    let files = home.path().join("files");
    fs::create_dir(&files).unwrap();
    write(&files.join("from"));
    let path = |name: &str| files.join(name).to_str().unwrap().to_owned();
    let (from, to) = (path("from"), path("to"));
    let host = format!("lab:{}", lab.name);
    let options = [
        "--from",
        &from,
        "--to",
        &to,
        "--corners",
        "--rounds",
        "1",
        "--json",
    ];
    let report = json(&mut copy(&home, &host, &options));
    let corners = report["corners"].as_array().unwrap();
    assert_eq!(corners.len(), 4);
    for corner in corners {
        let copied = &corner["copies"][0];
        assert_eq!(copied["verified"], true, "{corner:#}");
        assert_eq!(copied["stages"][0]["stage"], "network", "{corner:#}");
        let rate = copied["rate_bit_s"].as_u64().unwrap();
        assert!((20_000_000..=100_000_000).contains(&rate), "{corner:#}");
        let run = corner["runs"][0].as_str().unwrap();
        let shown = json(&mut home.linerate(&["runs", "export", run, "--format", "json"]));
        assert_eq!(shown["spec"]["workload"]["from"], corner["order"]["from"]);
    }
    assert_eq!(names(&files), ["from"], "corners keep nothing");
    lab.down();
}

#[test]
fn a_full_disk_and_an_interrupt_leave_nothing() {
    let home = Home::new();
    let files = home.path().join("files");
    fs::create_dir(&files).unwrap();
    let to = files.join("to").to_str().unwrap().to_owned();
    // A disk of 2 MiB, in a mount namespace that ends with the command.
    let mut small = Command::new("unshare");
    let script =
        "mount -t tmpfs -o size=2m small \"$0\" && \"$@\"; code=$?; ls -A \"$0\"; exit $code";
    small.args(["-m", "sh", "-c", script]).arg(&files);
    small.arg(env!("CARGO_BIN_EXE_linerate"));
    small.args([
        "measure",
        "local",
        "--workload",
        "copy",
        "-q",
        "-n",
        "20M",
        "--to",
        &to,
    ]);
    home.furnish(&mut small);
    let full = run(&mut small);
    assert_eq!(full.status.code(), Some(1), "{}", stderr(&full));
    let output = stdout(&full) + &stderr(&full);
    assert!(
        one_line(&output).contains("No space left on device"),
        "{output}"
    );
    assert!(!output.contains(".part"), "nothing is left there: {output}");

    let mut command = copy(
        &home,
        "local",
        &["-t", "60", "--pacing", "80M", "--to", &to],
    );
    let running = Running(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let until = Instant::now() + Duration::from_secs(30);
    while names(&files).is_empty() {
        assert!(Instant::now() < until, "the copy never began");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.interrupt();
    let out = running.output(Duration::from_secs(60));
    assert_eq!(
        out.status.code(),
        Some(4),
        "{}{}",
        stdout(&out),
        stderr(&out)
    );
    assert!(names(&files).is_empty(), "{:?}", names(&files));
}

#[test]
fn files_of_an_agent_need_a_right_of_their_own_and_end_at_its_directory() {
    let (server, guest) = (Home::new(), Home::new());
    let files = server.path().join("files");
    fs::create_dir(&files).unwrap();
    let data = write(&files.join("from"));
    symlink("/etc/hostname", files.join("link")).unwrap();
    let at = format!("127.0.0.1:{}", free_port());
    let port = at.rsplit_once(':').unwrap().1.to_owned();
    let serve = |options: &[&str]| {
        let mut command = server.linerate(&["serve", "--bind", "127.0.0.1", "--port", &port]);
        let mut child = command
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Lines::of(child.stderr.take().unwrap());
        log.wait_for("listens on");
        (Running(child), log)
    };
    let allow = ["--allow-files", files.to_str().unwrap()];
    let stop = |server: (Running, Lines)| {
        server.0.interrupt();
        server.0.output(Duration::from_secs(10));
    };

    let plain = serve(&[]);
    let invite = ["trust", "invite", "--address", &at, "--name", "guest"];
    let line = stdout(&run(&mut server.linerate(&invite)))
        .trim()
        .to_owned();
    assert!(
        run(&mut guest.linerate(&["trust", "accept", &line]))
            .status
            .success()
    );
    let memory = json(&mut copy(&guest, &at, &["-n", "1M", "--json"]));
    assert_eq!(memory["summary"]["legs"][0]["copy"]["verified"], true);
    let to = |name: &str| run(&mut copy(&guest, &at, &["-n", "1M", "--to", name]));
    failed(
        &to("new"),
        3,
        "run 'linerate serve --allow-files DIR' there",
    );
    let stored = ["--requests", "5", "--store", "."];
    failed(
        &run(&mut blocks(&guest, &at, &stored)),
        3,
        "run 'linerate serve --allow-files DIR' there",
    );
    stop(plain);

    let open = serve(&allow);
    failed(&to("new"), 3, "--files' there");
    let id = stdout(&run(&mut guest.linerate(&["trust", "show"])));
    let grant = ["trust", "add", id.trim(), "--files"];
    let granted = run(&mut server.linerate(&grant));
    assert!(
        stdout(&granted).contains("may measure and use files"),
        "{}",
        stdout(&granted)
    );

    assert!(to("new").status.success());
    assert_eq!(fs::metadata(files.join("new")).unwrap().len(), 1 << 20);
    for out in ["../config/new", "/tmp/linerate-new"] {
        failed(&to(out), 3, "it is not below");
    }
    let here = guest.path().join("here");
    let from = |name: &str| {
        let here = here.to_str().unwrap();
        run(&mut copy(
            &guest,
            &at,
            &["--down", "--from", name, "--to", here],
        ))
    };
    for out in ["link", "/etc/hostname", "../config/trust.toml"] {
        failed(&from(out), 3, "it is not below");
    }
    assert!(!here.exists());
    let block = |store: &str, more: &[&str]| {
        let common = ["--file-size", "1M", "--requests", "20", "--store", store];
        run(blocks(&guest, &at, &common).args(more))
    };
    assert!(block(".", &["--mix", "write"]).status.success());
    assert!(block("from", &[]).status.success());
    failed(&block("..", &[]), 3, "it is not below");
    failed(&block("link", &[]), 3, "it is not below");
    let got = from("from");
    assert!(got.status.success(), "{}", stderr(&got));
    assert!(fs::read(&here).unwrap() == data);

    // A controller that is killed takes its copy along.
    let slow = ["-t", "60", "--pacing", "80M", "--to", "killed"];
    let mut command = copy(&guest, &at, &slow);
    let mut killed = command.stdout(Stdio::null()).spawn().unwrap();
    let part = || names(&files).iter().any(|name| name.ends_with(".part"));
    let wait = |wanted: bool, what: &str| {
        let until = Instant::now() + Duration::from_secs(60);
        while part() != wanted {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait(true, "the copy never began");
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait(false, "the copy of a lost controller stays");
    assert_eq!(names(&files), ["from", "link", "new"]);
    stop(open);
}

/// `linerate measure HOST --workload blocks` with these options.
fn blocks(home: &Home, host: &str, options: &[&str]) -> Command {
    let mut command = home.linerate(&["measure", host, "--workload", "blocks", "-q"]);
    command.args(options);
    command
}

#[test]
fn blocks_behind_a_slow_path_take_its_round_trip_and_the_network_is_named() {
    let _alone = alone();
    let home = Home::new();
    // 64 KiB take 5.4 ms at this rate, headers included, once the window has grown.
    let link = "rate = \"100Mbit\"\ndelay = \"10ms\"";
    let lab = Lab::of(&home, 1500, link, link);
    let host = format!("lab:{}", lab.name);
    let ask = |options: &[&str]| {
        let common = ["--requests", "60", "-C", "cubic", "--json"];
        let mut command = blocks(&home, &host, options);
        let run = json(command.args(common));
        run["summary"]["legs"][0].clone()
    };
    let first = |leg: &serde_json::Value| leg["operations"][0].clone();
    let p50 = |one: &serde_json::Value| one["latency"]["p50_ns"].as_u64().unwrap();

    let small = first(&ask(&["--block", "512"]));
    assert!((20_000_000..24_000_000).contains(&p50(&small)), "{small:#}");
    let split = &small["split"];
    let (storage, network) = (&split["storage_ns"], &split["network_ns"]);
    assert!(storage.as_u64().unwrap() < 1_000_000, "{split:#}");
    assert!(network.as_u64().unwrap() > 19_000_000, "{split:#}");

    let large = first(&ask(&["--block", "64K", "--mix", "write"]));
    let more = p50(&large).saturating_sub(p50(&small));
    assert!((4_000_000..9_000_000).contains(&more), "{small:#}{large:#}");

    // Eight outstanding fill the path eight times as well, until it is full.
    let rate = |one: &serde_json::Value| one["latency"]["per_s"].as_f64().unwrap();
    let deep = first(&ask(&["--block", "512", "--depth", "8"]));
    // The median: one that is retransmitted after a timeout is no rate of the path.
    let alone = 1e9 / p50(&small) as f64;
    assert!(rate(&deep) > 4.0 * alone, "{small:#}{deep:#}");
    assert!(rate(&deep) < 8.5 * alone, "{small:#}{deep:#}");

    let output = stdout(&run(&mut blocks(&home, &host, &["--requests", "20"])));
    assert!(
        one_line(&output).contains("the network takes the time"),
        "{output}"
    );
    lab.down();
}

#[test]
fn blocks_of_a_file_are_measured_both_ways_and_leave_nothing() {
    let home = Home::new();
    let files = home.path().join("files");
    fs::create_dir(&files).unwrap();
    let data = write(&files.join("there"));
    let store = files.to_str().unwrap();
    let mix = ["--store", store, "--file-size", "4M", "--requests", "400"];
    let more = [
        "--mix",
        "read=2,write=1,write-stable=1",
        "--random",
        "--seed",
        "9",
        "--json",
    ];
    for way in ["--up", "--down"] {
        let report = json(blocks(&home, "local", &[way]).args(mix).args(more));
        assert_eq!(report["ended"]["how"], "complete");
        assert_eq!(report["spec"]["workload"]["seed"], 9);
        let leg = &report["legs"][0];
        let (asks, has) = match way {
            "--up" => ("local", "remote"),
            _ => ("remote", "local"),
        };
        assert_eq!(leg[has]["store"]["blocks"], 512);
        assert!(
            leg[has]["store"]["cached_before_share"].is_number(),
            "{leg:#}"
        );
        let operations = leg[asks]["operations"].as_array().unwrap();
        assert_eq!(operations.len(), 3, "{operations:#?}");
        assert_eq!(leg["local"]["bytes"], 400 * 8192);
        assert_eq!(leg["remote"]["bytes"], 400 * 8192);
        let id = report["id"].as_str().unwrap();
        let shown = stdout(&run(&mut home.linerate(&["runs", "show", id])));
        let shown = one_line(&shown);
        assert!(shown.contains("WRITE, stable: of "), "{shown}");
        assert!(shown.contains("in storage"), "{shown}");
        assert_eq!(names(&files), ["there"]);
    }
    let there = files.join("there");
    let there = there.to_str().unwrap();
    let refused = |options: &[&str], code, why: &str| {
        failed(&run(&mut blocks(&home, "local", options)), code, why);
    };
    refused(&["--store", there, "--mix", "write"], 3, "is only read");
    refused(
        &["--store", there, "--file-size", "6M"],
        3,
        "reduce --file-size",
    );
    refused(&["--block", "100"], 2, "from 512 B to 64M");
    refused(&["--mix", "getattr"], 2, "is for NFS servers");
    refused(&["--bidir"], 2, "leave out --bidir");
    assert!(fs::read(there).unwrap() == data);

    let lines = ["--requests", "50", "--depth", "1,4", "--json"];
    let report = json(blocks(&home, "local", &["--store", there]).args(lines));
    let depths = report["depths"].as_array().unwrap();
    let depth = |n: usize| depths[n]["depth"].as_u64().unwrap();
    assert_eq!((depths.len(), depth(0), depth(1)), (2, 1, 4));
    for one in depths {
        assert_eq!(one["requests"]["count"], 50);
        let run = one["run"].as_str().unwrap();
        let kept = json(&mut home.linerate(&["runs", "export", run, "--format", "json"]));
        assert_eq!(kept["spec"]["workload"]["depth"], one["depth"]);
    }

    // A disk of 2 MiB, in a mount namespace that ends with the command.
    let disk = home.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mut small = Command::new("unshare");
    let script =
        "mount -t tmpfs -o size=2m small \"$0\" && \"$@\"; code=$?; ls -A \"$0\"; exit $code";
    small.args(["-m", "sh", "-c", script]).arg(&disk);
    small.arg(env!("CARGO_BIN_EXE_linerate"));
    small.args(["measure", "local", "--workload", "blocks", "-q", "--store"]);
    small.arg(&disk).args(["--file-size", "20M"]);
    home.furnish(&mut small);
    let full = run(&mut small);
    failed(&full, 1, "No space left on device");
    assert_eq!(stdout(&full), "", "nothing is left there");
}
