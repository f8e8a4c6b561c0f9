//! `linerate lab` as a user meets it: whole labs, measured through and through. Needs root.
//! The bounds are those of a machine that is shared with other work; bench/lab-fidelity has the figures.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Home, Lab, Running, alone, json, run, stderr, stdout, two_hosts};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What `measure` found of its only leg, in Mbit/s once the ramp is over.
fn mbit(run: &Value) -> f64 {
    run["summary"]["legs"][0]["steady_goodput_bit_s"]
        .as_f64()
        .unwrap()
        / 1e6
}

fn assert_within(share: f64, got: f64, expected: f64, what: &str) {
    assert!(
        (got / expected - 1.0).abs() <= share,
        "{what}: {got:.2} instead of {expected:.2}"
    );
}

#[test]
fn every_shipped_scenario_comes_up_carries_packets_and_leaves_nothing() {
    let _alone = alone();
    let home = Home::new();
    let listed = stdout(&run(&mut home.linerate(&["lab", "scenarios"])));
    let names: Vec<&str> = listed
        .lines()
        .filter(|line| !line.starts_with(' ') && !line.is_empty())
        .collect();
    for name in [
        "home-lan",
        "home-lan-blackhole",
        "berkeley-chicago",
        "mac-lan",
        "nfs-lan",
        "virtio-cloud",
    ] {
        assert!(names.contains(&name), "{name} is not shipped: {listed}");
    }
    assert!(names.len() >= 13, "{listed}");
    for name in names {
        let before = outside();
        let lab = Lab::up(&home, name);
        let show = stdout(&run(&mut home.linerate(&["lab", "show", &lab.name])));
        let up = stdout(&run(&mut home.linerate(&["lab", "list"])));
        assert!(up.contains(&lab.name), "{up}");
        let hosts = hosts(&home, &lab.name);
        assert!(hosts.len() >= 2, "{name}: {show}");
        let (first, last) = (&hosts[0], hosts.last().unwrap());
        // A lossy path may lose one, not all of them.
        let ping = lab.exec(first, &["ping", "-c", "5", "-i", "0.2", "-W", "3", last]);
        assert!(
            ping.status.success(),
            "{name}: {}{}\n{show}",
            stdout(&ping),
            stderr(&ping)
        );
        let lab_name = lab.name.clone();
        lab.down();
        let up = stdout(&run(&mut home.linerate(&["lab", "list"])));
        assert!(!up.contains(&lab_name), "{up}");
        assert_eq!(outside(), before, "{name} changed what is outside of it");
        assert!(!home.path().join("labs").join(&lab_name).exists());
    }
}

#[test]
fn a_link_has_its_rate() {
    let _alone = alone();
    let home = Home::new();
    for (rate, mbit_s) in [("100M", 100.0), ("1G", 1000.0)] {
        for mtu in [1500, 9000] {
            let shape = format!("rate = \"{rate}\"\ndelay = \"1ms\"\nqueue = {{ bytes = \"1M\" }}");
            let lab = Lab::of(&home, mtu, &shape, &shape);
            // TCP payload of a frame with timestamps, and all that the frame takes on the wire.
            let expected = mbit_s * f64::from(mtu - 52) / f64::from(mtu + 38);
            // What else the machine does may disturb one try, not all of them.
            let order = ["--up", "-t", "3s", "-O", "1s", "-C", "cubic"];
            let tries: Vec<f64> = (0..4)
                .map(|_| mbit(&lab.measure("", &order)))
                .scan(false, |done, got| {
                    let go_on = !*done;
                    *done = (got / expected - 1.0).abs() <= 0.02;
                    go_on.then_some(got)
                })
                .collect();
            let best = tries.iter().copied().fold(0.0, f64::max);
            assert_within(
                0.02,
                best,
                expected,
                &format!("{rate} at MTU {mtu}, {tries:?}"),
            );
        }
    }
}

#[test]
fn a_link_has_its_delay_and_loses_what_it_should() {
    let _alone = alone();
    let home = Home::new();
    let lab = Lab::of(
        &home,
        1500,
        "delay = \"10ms\"\nloss = { random = 0.05 }",
        "delay = \"10ms\"",
    );
    // The first resolves the other's hardware address.
    lab.exec("a", &["ping", "-c", "3", "-W", "2", "b"]);
    let before = lab.truth();
    let out = stdout(&lab.exec("a", &["ping", "-c", "2000", "-i", "0.002", "-W", "2", "b"]));
    let after = lab.truth();
    let mut times: Vec<f64> = out
        .lines()
        .filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok())
        .collect();
    times.sort_by(f64::total_cmp);
    let lost = 2000 - times.len();
    // Four standard deviations.
    assert!((61..=139).contains(&lost), "{lost} of 2000 lost");
    let median = times[times.len() / 2];
    assert!((20.0..21.0).contains(&median), "{median} ms instead of 20");
    assert!(times[0] >= 20.0, "{} ms: faster than the path", times[0]);
    let counted = |truth: &Value| {
        truth["links"][0]["forward"]["dropped"]["loss"]["frames"]
            .as_u64()
            .unwrap()
    };
    let counted = counted(&after) - counted(&before);
    assert!(
        counted.abs_diff(lost as u64) <= 2,
        "{counted} dropped, {lost} missing"
    );
}

#[test]
fn a_receiver_that_works_on_each_packet_is_bound_by_packets() {
    let _alone = alone();
    let home = Home::new();
    let lab = Lab::of(&home, 9000, "rate = \"1G\"\npacket_time = \"40us\"", "");
    let order = ["--up", "-t", "3s", "-O", "1s", "-C", "cubic"];
    let small = mbit(&lab.measure("", &[&order[..], &["-M", "1448"]].concat()));
    // 25,000 packets a second of 1448 bytes, which cannot become more.
    assert!(small <= 1.01 * 289.6, "{small}");
    let large = mbit(&lab.measure("", &order));
    assert!(
        large > 1.5 * small,
        "{large} with jumbo frames, {small} without"
    );
}

#[test]
fn a_window_bounds_the_rate() {
    let _alone = alone();
    let home = Home::new();
    // So fast that bursts do not wait for the line.
    let shape = "rate = \"10G\"\ndelay = \"10ms\"";
    let lab = Lab::of(&home, 1500, shape, shape);
    let order = [
        "--up",
        "-t",
        "3s",
        "-O",
        "1s",
        "-C",
        "cubic",
        "--receive-buffer",
        "256K",
    ];
    let run = lab.measure("", &order);
    let last = run["legs"][0]["local"]["samples"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    let window = last["streams"][0]["tcp"]["snd_wnd"].as_f64().unwrap();
    assert_within(0.15, mbit(&run), window * 8.0 / 0.020 / 1e6, "W/RTT");
}

#[test]
fn berkeley_to_chicago_is_slow_only_one_way_and_only_with_small_frames() {
    let _alone = alone();
    let home = Home::new();
    let lab = Lab::up(&home, "berkeley-chicago");
    let reno = |hosts: &str, way: &str| lab.measure(hosts, &["-C", "reno", "-t", "10s", way]);
    let whole = |run: &Value| run["summary"]["legs"][0]["goodput_bit_s"].as_f64().unwrap() / 1e6;
    let fast = mbit(&reno("/berkeley-chicago", "--down"));
    assert!(fast >= 850.0, "{fast} Mbit/s from Chicago");
    let slow = whole(&reno("/berkeley-chicago", "--up"));
    assert!((30.0..130.0).contains(&slow), "{slow} Mbit/s to Chicago");
    let jumbo = whole(&reno("/berkeley-jumbo-chicago", "--up"));
    assert!(
        jumbo > 3.0 * slow,
        "{jumbo} Mbit/s with jumbo frames, {slow} without"
    );
}

#[test]
fn a_wrong_file_is_answered_with_its_line_and_a_remedy() {
    let home = Home::new();
    let file = home.path().join("wrong.toml");
    let right = two_hosts(1500, "rate = \"1G\"", "");
    for (wrong, line, said) in [
        (right.replace("rate =", "rat ="), "rat =", "rat"),
        (right.replace("\"1G\"", "\"-1G\""), "-1G", "negative"),
        (
            right.replacen("name = \"b\"", "name = \"a\"", 1),
            "name = \"a\"",
            "a",
        ),
        (right.replace("\"1G\"", "\"1G"), "\"1G", "wrong.toml"),
    ] {
        std::fs::write(&file, &wrong).unwrap();
        let out = run(&mut home.linerate(&["lab", "up", file.to_str().unwrap()]));
        assert_eq!(out.status.code(), Some(2), "{wrong}");
        let said_all = stderr(&out);
        assert!(said_all.contains("wrong.toml:"), "{said_all}");
        assert!(said_all.contains(said), "{said_all}");
        let number = said_all
            .split("wrong.toml:")
            .nth(1)
            .and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
        let named = number
            .and_then(|n| wrong.lines().nth(n - 1))
            .unwrap_or_default();
        assert!(
            named.contains(line),
            "line {number:?} is '{named}', not that with '{line}': {said_all}"
        );
    }
    let out = run(&mut home.linerate(&["lab", "up", "no-such-scenario"]));
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("lab scenarios"), "{}", stderr(&out));
    let out = run(&mut home.linerate(&["measure", "lab:no-such-scenario"]));
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn run_gives_the_exit_code_on_and_leaves_nothing() {
    let home = Home::new();
    let before = outside();
    let file = home.path().join(format!("r{}.toml", std::process::id()));
    std::fs::write(&file, two_hosts(1500, "delay = \"1ms\"", "")).unwrap();
    let file = file.to_str().unwrap();
    let out = run(&mut home.linerate(&[
        "lab",
        "run",
        file,
        "--",
        "sh",
        "-c",
        "ping -c1 -q b && exit 42",
    ]));
    assert_eq!(out.status.code(), Some(42), "{}", stderr(&out));
    // As of a shell: 128 and the number of the signal.
    let killed = ["lab", "run", file, "--", "sh", "-c", "kill -KILL $$"];
    assert_eq!(run(&mut home.linerate(&killed)).status.code(), Some(137));
    let out = run(&mut home.linerate(&["lab", "run", file, "--", "no-such-command"]));
    assert!(!out.status.success());
    assert!(stderr(&out).contains("no-such-command"), "{}", stderr(&out));
    assert_eq!(outside(), before);
}

#[test]
fn a_lab_of_one_command_goes_with_it_however_that_ends() {
    let home = Home::new();
    let before = outside();
    let listed = || json(&mut home.linerate(&["lab", "list", "--json"]));
    let running = |pid: u64| Path::new(&format!("/proc/{pid}")).exists();
    for command in [
        &["measure", "lab:clean-lan", "-t", "60s", "-q"][..],
        &["lab", "run", "clean-lan", "--", "sleep", "60"],
    ] {
        let mut command = home.linerate(command);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = Running(child.unwrap());
        // Up, with what runs in it: the agent and the client, or the program.
        let mut inside = Vec::new();
        wait_until("something runs in the lab", || {
            let labs = listed();
            let Some(lab) = labs.as_array().and_then(|l| l.first()) else {
                return false;
            };
            let mark = format!("LINERATE_LAB={}", lab["id"].as_str().unwrap_or("none"));
            inside = marked(&mark);
            inside.extend(lab["pid"].as_u64());
            inside.len() > 1
        });
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        wait_until("the lab is gone", || listed() == serde_json::json!([]));
        wait_until("nothing of it runs", || {
            !inside.iter().any(|pid| running(*pid))
        });
    }
    assert_eq!(outside(), before);
}

#[test]
fn a_lab_of_a_file_is_a_host_of_every_command() {
    let home = Home::new();
    let before = outside();
    let folder = home.path().join("my paths");
    std::fs::create_dir(&folder).unwrap();
    // The policer makes this a link of the emulator, which then has counters to watch.
    let policed = "rate = \"100M\"\ndelay = \"1ms\"\npolicer = { rate = \"100M\", burst = \"1M\" }";
    let name = format!("f{}", std::process::id());
    let text = two_hosts(1500, policed, policed).replace("two-hosts", &name);
    std::fs::write(folder.join("path.toml"), text).unwrap();
    std::fs::write(folder.join("wrong.toml"), "nonsense = 1\n").unwrap();
    let linerate = |args: &[&str]| {
        let mut command = home.linerate(args);
        run(command.current_dir(home.path()))
    };
    let host = "lab:my paths/path.toml";
    let run_of = [
        "--gap", "0s", "-t", "1s", "--pairs", "6", "--pilot", "0", "-q", "--json",
    ];
    for (what, rest) in [
        ("measure", &["-t", "1s", "--up", "-q", "--json"][..]),
        (
            "prove",
            &[&["--change", "nodelay=on"][..], &run_of].concat(),
        ),
        ("tune", &["--dry-run", "-t", "1s", "-q", "--json"]),
    ] {
        let out = linerate(&[&[what, host][..], rest].concat());
        let code = out.status.code();
        assert!(
            code.is_some_and(|code| code == 0 || code >= 10),
            "{what}: {}",
            stderr(&out)
        );
        let shown: Value = serde_json::from_slice(&out.stdout).unwrap();
        let warnings = shown
            .pointer("/warnings")
            .or(shown.pointer("/experiment/warnings"));
        let warnings = warnings.unwrap_or(&shown).to_string();
        // That the emulator's counters were read is certain; that it was overloaded depends on the machine.
        assert!(
            !warnings.contains("does not say how well"),
            "{what}: {warnings}"
        );
    }
    for (what, rest) in [
        (&["mtu"][..], &["-q"][..]),
        (&["tune", "audit"], &["-q", "-t", "1s"]),
        (&["tune", "undo"], &[]),
    ] {
        let host = format!("{host}/b");
        let out = linerate(&[what, &[host.as_str()], rest].concat());
        assert!(out.status.success(), "{what:?}: {}", stderr(&out));
    }
    for what in [
        &["measure"][..],
        &["prove", "--change", "nodelay=on"],
        &["tune"],
        &["tune", "audit"],
        &["tune", "undo"],
        &["mtu"],
    ] {
        for (host, sentence) in [
            (
                "lab:my paths/none.toml",
                "cannot read the scenario my paths/none.toml: ",
            ),
            ("lab:my paths/wrong.toml", "my paths/wrong.toml:1: "),
            (
                "lab:my paths/path.toml/c",
                "write lab:my paths/path.toml/REMOTE",
            ),
        ] {
            let out = linerate(&[what, &[host]].concat());
            assert_eq!(out.status.code(), Some(2), "{what:?}: {}", stderr(&out));
            assert!(
                stderr(&out).contains(sentence),
                "{what:?}: {}",
                stderr(&out)
            );
            assert_eq!(stderr(&out).trim().lines().count(), 1, "{}", stderr(&out));
        }
    }
    assert_eq!(outside(), before);
}

/// Waits for a condition that is bound to come.
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed().as_secs() < 30, "{what}: it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The processes with this in their environment.
fn marked(mark: &str) -> Vec<u64> {
    let processes = std::fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|b| *b == 0).any(|v| v == mark.as_bytes()))
    })
    .collect()
}

#[test]
fn who_is_killed_while_a_lab_comes_up_leaves_none_or_one_that_is_known() {
    let home = Home::new();
    let before = outside();
    let listed = || {
        let all = json(&mut home.linerate(&["lab", "list", "--json"]));
        all.as_array().unwrap().clone()
    };
    for after_ms in [0, 5, 20, 40, 80, 160] {
        let name = format!("k{}-{after_ms}", std::process::id());
        let mut command = home.linerate(&["lab", "up", "nfs-lan", "--name", &name]);
        let mut caller = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        let _ = caller.kill();
        caller.wait().unwrap();
        // Its holder goes on until its caller is gone; then the lab is up, or it is removed.
        wait_until("it is up or gone", || {
            !listed().iter().any(|lab| lab["state"] == "changing")
        });
        let _ = run(&mut home.linerate(&["lab", "down", &name]));
        // At once again under the same name, whatever there was.
        let again = format!("k{}-{after_ms}", std::process::id());
        let out = run(&mut home.linerate(&["lab", "up", "clean-lan", "--name", &again]));
        assert!(out.status.success(), "{after_ms} ms: {}", stderr(&out));
        Lab {
            home: &home,
            name: again,
        }
        .down();
    }
    assert!(listed().is_empty(), "{:?}", listed());
    assert_eq!(outside(), before);
}

#[test]
fn a_user_without_root_gets_the_same_lab_or_a_list_of_what_is_needed() {
    let home = Home::new();
    // Somewhere that anybody can read and this user can write.
    let exe = home.path().join("linerate");
    std::fs::copy(env!("CARGO_BIN_EXE_linerate"), &exe).unwrap();
    let own = home.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    let nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&exe).args(args).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", &own);
        run(command.env("XDG_RUNTIME_DIR", &own))
    };
    let out = nobody(&["lab", "run", "clean-lan", "--", "ping", "-c", "1", "b"]);
    if !out.status.success() {
        assert!(stderr(&out).contains("user namespaces"), "{}", stderr(&out));
        return;
    }
    let measured = nobody(&[
        "measure",
        "lab:clean-lan",
        "-n",
        "1M",
        "--up",
        "--json",
        "-q",
    ]);
    assert!(measured.status.success(), "{}", stderr(&measured));
    let listed = stdout(&nobody(&["runs", "list"]));
    assert!(
        listed.contains("lab:clean-lan"),
        "the archive is the user's: {listed}"
    );
    let listed = stdout(&nobody(&["lab", "list"]));
    assert!(listed.contains("no lab is up"), "{listed}");
}

/// The hosts of a lab that is up, in order.
fn hosts(home: &Home, name: &str) -> Vec<String> {
    let labs = json(&mut home.linerate(&["lab", "list", "--json"]));
    let lab = labs
        .as_array()
        .unwrap()
        .iter()
        .find(|lab| lab["name"] == name);
    let hosts = lab.expect("the lab is up")["nodes"].as_array().unwrap();
    hosts
        .iter()
        .filter(|node| node["kind"] == "host")
        .map(|node| node["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Everything of the network outside that a lab could have changed.
fn outside() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for command in [
        "ip -brief address",
        "ip -4 route show table all",
        "ip -6 route show table all | sed 's/expires [0-9]*sec//'",
        "ip rule",
        // Other tests have namespaces of their own, all named so.
        "ip netns list | grep -v ^lr || true",
        "tc qdisc show",
        "nft list ruleset",
    ] {
        let out = Command::new("sh").args(["-c", command]).output().unwrap();
        all.push((command.to_owned(), stdout(&out)));
    }
    settings(Path::new("/proc/sys/net"), &mut all);
    all
}

/// All settings below a directory of /proc/sys but those that count.
fn settings(directory: &Path, all: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(directory).unwrap().map_while(Result::ok) {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            settings(&path, all);
        } else if !path.ends_with("nf_conntrack_count") {
            let value = std::fs::read_to_string(&path).unwrap_or_default();
            all.push((path.display().to_string(), value));
        }
    }
}
