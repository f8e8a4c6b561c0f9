//! `linerate mesh`: plans that fit and those that do not, as a user meets them.

use crate::common::{Home, Lines, Running, Server, listening, run, signal, stderr, stdout};
use model::{LegOutcome, MeshLeg, Nanos};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The mesh file of docs/mesh.md.
fn documented() -> String {
    let document = include_str!("../../../docs/mesh.md");
    let (_, rest) = document.split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

fn mesh(home: &Home, arguments: &[&str], file: &str) -> Output {
    std::fs::write(home.path().join("db.toml"), file).unwrap();
    let arguments = [&["mesh"], arguments].concat();
    run(home.linerate(&arguments).current_dir(home.path()))
}

#[test]
fn the_documented_plan_is_checked() {
    let home = Home::new();
    let text = documented();
    let done = mesh(&home, &["check", "db.toml"], &text);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let shown = stdout(&done);
    for line in shown.lines() {
        let document = include_str!("../../../docs/mesh.md");
        let is_of_now = line.starts_with("The next round, of 'bulk', begins at 20");
        assert!(
            line.is_empty() || is_of_now || document.contains(line),
            "{line}"
        );
    }
    let rules = mesh(&home, &["check", "db.toml", "--rules"], &text);
    assert!(
        stdout(&rules).contains("outcome=\\\"low\\\"} >= 2"),
        "{rules:?}"
    );

    for (old, new, complaint) in [
        (
            "every = \"1d\"",
            "every = \"1m\"",
            "the shortest 'every' is 1 min: the fullest resource is link 'berkeley-uplink'",
        ),
        (
            "250GB",
            "25GB",
            "host 'db1': its tests move at least 37.3 GiB a day, and bytes_a_day is 25.0 GiB",
        ),
        (
            "Mon-Fri 07:00-18:00",
            "Sun 00:00-23:59",
            "the quiet spans leave too little time in 1 of 7 periods of 1 d",
        ),
        (
            "[[alert]]",
            "[[test]]\nname = \"l\"\nkind = \"light\"\nhosts = [\"*\"]\nevery = \"10s\"\npackets = 100\n[[alert]]",
            "the light probes 'l' take 11 s, and their 'every' is 10 s",
        ),
    ] {
        let done = mesh(&home, &["check", "db.toml"], &text.replace(old, new));
        assert_eq!(done.status.code(), Some(2), "{new}");
        assert!(stderr(&done).contains(complaint), "{}", stderr(&done));
        assert!(stdout(&done).contains("ROUNDS"), "what it takes is shown");
    }
    let wrong = mesh(
        &home,
        &["check", "db.toml"],
        &text.replace("site = \"chicago\"", "sit = \"chicago\""),
    );
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        stderr(&wrong).contains("[[host]]: unknown key 'sit'; did you mean 'site'?"),
        "{wrong:?}"
    );
}

#[test]
fn a_template_is_taken_over_partly() {
    let home = Home::new();
    let template = r#"{
        "addresses": { "a": { "address": "a.example" }, "b": { "address": "b.example" } },
        "groups": { "g": { "type": "mesh", "addresses": [ { "name": "a" }, { "name": "b" } ] } },
        "tests": { "t": { "type": "throughput", "spec": { "duration": "PT20S" } } },
        "tasks": { "x": { "group": "g", "test": "t", "tools": [ "iperf3" ] } } }"#;
    std::fs::write(home.path().join("t.json"), template).unwrap();
    let refused = mesh(&home, &["import", "t.json"], "");
    assert_eq!(
        (refused.status.code(), stdout(&refused).as_str()),
        (Some(2), "")
    );
    assert!(
        stderr(&refused).contains("/tasks/x/tools: left out"),
        "{refused:?}"
    );
    let partly = mesh(&home, &["import", "t.json", "--partly"], "");
    assert_eq!(partly.status.code(), Some(0), "{partly:?}");
    let checked = mesh(&home, &["check", "db.toml"], &stdout(&partly));
    assert!(
        stdout(&checked).starts_with("mesh t: 2 hosts, 0 links, 1 test\n"),
        "{checked:?}"
    );
}

/// Three agents measure each other, two at a time.
#[test]
fn a_coordinator_measures_by_the_plan() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start(&["--allow-direct"])).collect();
    let home = servers[0].guest(&["--direct"]);
    for server in &servers[1..] {
        let invitation = server.invite(&["--direct"]);
        let accepted = run(&mut home.linerate(&["trust", "accept", &invitation]));
        assert!(accepted.status.success(), "{}", stderr(&accepted));
    }
    let hosts = servers.iter().enumerate();
    let hosts: String = hosts
        .map(|(n, server)| format!("[[host]]\nname = \"h{n}\"\nagent = \"{}\"\n", server.at))
        .collect();
    let file = format!(
        "[mesh]\nname = \"m\"\n{hosts}[[test]]\nname = \"bulk\"\nhosts = [\"*\"]\ntime = \"1s\"\nrate = \"50M\"\nevery = \"30s\"\ngood = \"100G\"\n\
         [[alert]]\ntest = \"bulk\"\nwhen = \"low\"\nexec = [\"/bin/sh\", \"-c\", \"cat >> {}\"]\n",
        home.path().join("alerts").display()
    );
    std::fs::write(home.path().join("m.toml"), &file).unwrap();
    let text = home.path().join("m.toml").display().to_string();
    let mut coordinator = home.linerate(&["mesh", "run", &text]);
    let coordinator = coordinator.stdout(Stdio::piped()).stderr(Stdio::piped());
    let coordinator = Running(coordinator.spawn().unwrap());

    let archive = || archive::Archive::open_to_read(&home.path().join("runs.db")).ok();
    let legs = |src: &str, dst: &str| {
        let found = archive().map(|archive| {
            archive
                .mesh_cell(["m", "bulk", src, dst], Nanos(u64::MAX), 9)
                .unwrap()
        });
        let found = found.unwrap_or_default();
        found.into_iter().find(|leg| leg.outcome == LegOutcome::Low)
    };
    let pairs = [
        ("h0", "h1"),
        ("h1", "h0"),
        ("h0", "h2"),
        ("h2", "h0"),
        ("h1", "h2"),
        ("h2", "h1"),
    ];
    let until = Instant::now() + Duration::from_secs(240);
    while !pairs.iter().all(|(src, dst)| legs(src, dst).is_some()) {
        assert!(Instant::now() < until, "{pairs:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    for (src, dst) in pairs {
        let leg = legs(src, dst).unwrap();
        assert!(
            leg.goodput.unwrap().0 > 1_000_000 && leg.why.is_some(),
            "{leg:?}"
        );
        assert_eq!(archive().unwrap().get(&leg.run).unwrap().id, leg.run);
    }
    let alerts = std::fs::read_to_string(home.path().join("alerts")).unwrap();
    let first: serde_json::Value = serde_json::from_str(alerts.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["mesh"], &first["outcome"]),
        (&"m".into(), &"low".into())
    );

    let second = run(&mut home.linerate(&["mesh", "run", &text]));
    assert_eq!(second.status.code(), Some(2));
    assert!(
        stderr(&second).contains("another 'mesh run' of the mesh 'm'"),
        "{second:?}"
    );
    // A later leg may be missed on a busy machine.
    let grid = || stdout(&run(&mut home.linerate(&["mesh", "grid", &text])));
    while !grid().contains("h0 to h1: low,") {
        assert!(Instant::now() < until, "{}", grid());
        std::thread::sleep(Duration::from_millis(200));
    }
    coordinator.interrupt();
    let ended = coordinator.output(Duration::from_secs(20));
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
}

/// Hosts and a coordinator `x` at one bridge, each in a network namespace.
pub struct Bridge {
    prefix: String,
    hosts: Vec<&'static str>,
}

impl Bridge {
    pub fn new(hosts: &[&'static str]) -> Bridge {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let bridge = Bridge {
            prefix: format!("ll{}{number}", std::process::id()),
            hosts: hosts.to_vec(),
        };
        bridge.shell(
            "ip netns add ${P}x; ip -n ${P}x link set lo up; ip -n ${P}x link add br0 type bridge
            ip -n ${P}x link set br0 up; ip -n ${P}x address add 10.0.7.9/24 dev br0",
        );
        for (n, host) in (1..).zip(hosts) {
            bridge.shell(&format!(
                "N=${{P}}{host}; ip netns add $N; ip -n $N link set lo up
                ip -n $N link add e0 type veth peer name {host} netns ${{P}}x
                ip -n ${{P}}x link set dev {host} master br0 up
                ip -n $N link set dev e0 up; ip -n $N address add 10.0.7.{n}/24 dev e0
                ip -n $N address add fd00:7::{n}/64 nodad dev e0"
            ));
        }
        bridge
    }

    fn shell(&self, script: &str) {
        let script = format!("set -eu; P={}; {script}", self.prefix);
        let out = run(Command::new("bash").args(["-c", &script]));
        assert!(out.status.success(), "{script}\n{}", stderr(&out));
    }

    pub fn at(&self, host: &str) -> String {
        format!("{}{host}", self.prefix)
    }

    /// Agents at all hosts, which the coordinators may direct, and have use the files of the agents' homes.
    pub fn serve(&self, coordinators: &[&Home]) -> Vec<(Home, Running, Lines)> {
        let mut agents = Vec::new();
        for (n, host) in (1..).zip(&self.hosts) {
            let (home, address) = (Home::new(), format!("10.0.7.{n}"));
            let files = home.path().join("files").display().to_string();
            std::fs::create_dir(&files).unwrap();
            let invite = [
                "trust",
                "invite",
                "--address",
                &address,
                "--direct",
                "--files",
            ];
            let invite = || stdout(&run(&mut home.linerate(&invite)));
            let invitations: Vec<String> = coordinators.iter().map(|_| invite()).collect();
            let serve = ["serve", "--allow-direct", "--allow-files", &files];
            let (running, log) = listening(&mut home.linerate_in(&self.at(host), &serve));
            for (coordinator, invitation) in coordinators.iter().zip(invitations) {
                let accept = ["trust", "accept", invitation.trim()];
                let accepted = run(&mut coordinator.linerate_in(&self.at("x"), &accept));
                assert!(accepted.status.success(), "{}", stderr(&accepted));
            }
            agents.push((home, running, log));
        }
        agents
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        for host in ["x"].iter().chain(&self.hosts) {
            let delete = ["netns", "del", &self.at(host)];
            let _ = Command::new("ip").args(delete).output();
        }
    }
}

/// A copy of a file to a file each way, of which nothing stays, and the path MTU; an alert for the smaller one.
#[test]
fn copies_and_the_path_mtu_of_a_pair() {
    let bridge = Bridge::new(&["a", "b"]);
    bridge.shell("ip -n ${P}b link set dev e0 mtu 1400; ip -n ${P}x link set dev b mtu 1400");
    let coordinator = Home::new();
    let agents = bridge.serve(&[&coordinator]);
    for (home, ..) in &agents {
        std::fs::write(home.path().join("files/in"), vec![7; 3 << 20]).unwrap();
    }
    let alerts = coordinator.path().join("alerts");
    let soon = std::time::SystemTime::now() + Duration::from_secs(3);
    let epoch = run(Command::new("date").args([
        "-u",
        "+%FT%TZ",
        "-d",
        &format!(
            "@{}",
            soon.duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_secs()
        ),
    ]));
    let test = |name: &str, lines: &str| {
        format!(
            "[[test]]\nname = \"{name}\"\nkind = \"{name}\"\nhosts = [\"*\"]\nevery = \"90s\"\n{lines}\n"
        )
    };
    let file = format!(
        "[mesh]\nname = \"m\"\nepoch = {}\n[[host]]\nname = \"a\"\nagent = \"10.0.7.1\"\n[[host]]\nname = \"b\"\nagent = \"10.0.7.2\"\n{}{}\
         [[alert]]\ntest = \"mtu\"\nwhen = \"low\"\nexec = [\"/bin/sh\", \"-c\", \"cat >> {}\"]\n",
        stdout(&epoch).trim(),
        test(
            "copy",
            "time = \"5s\"\nfrom_file = \"in\"\nto_file = \"out\""
        ),
        test("mtu", "good = \"1500\""),
        alerts.display()
    );
    let checked = mesh(&coordinator, &["check", "db.toml"], &file);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let plan = coordinator.path().join("db.toml").display().to_string();
    let mut mesh_run = coordinator.linerate_in(&bridge.at("x"), &["mesh", "run", &plan]);
    let mesh_run = mesh_run.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mesh_run = Running(mesh_run.spawn().unwrap());
    let archive = || archive::Archive::open_to_read(&coordinator.path().join("runs.db")).unwrap();
    let until = Instant::now() + Duration::from_secs(200);
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    wait("an alert for each direction", &|| {
        std::fs::read_to_string(&alerts).is_ok_and(|text| text.lines().count() == 2)
    });
    mesh_run.interrupt();
    let ended = mesh_run.output(Duration::from_secs(20));
    for (src, dst) in [("a", "b"), ("b", "a")] {
        let copied = archive()
            .mesh_cell(["m", "copy", src, dst], Nanos(u64::MAX), 1)
            .unwrap();
        let leg = &copied[0];
        assert_eq!(leg.outcome, LegOutcome::Good, "{leg:?}\n{}", stderr(&ended));
        assert_eq!(leg.bytes, Some(model::Bytes(3 << 20)));
        let found = archive()
            .mesh_cell(["m", "mtu", src, dst], Nanos(u64::MAX), 1)
            .unwrap();
        let leg = &found[0];
        assert_eq!((leg.mtu, leg.outcome), (Some(1400), LegOutcome::Low));
        let why = "packets of 1500 bytes do not pass";
        assert_eq!(leg.why.as_deref(), Some(why));
        let shown = run(&mut coordinator.linerate(&["runs", "show", &leg.run]));
        assert!(stdout(&shown).contains("1400"), "{shown:?}");
    }
    for (home, ..) in &agents {
        assert!(!home.path().join("files/out").exists());
    }
    let grid = &["mesh", "grid", &plan, "--test", "mtu"];
    let grid = stdout(&run(&mut coordinator.linerate(grid)));
    assert!(grid.starts_with("mesh m, test mtu: path MTU, "), "{grid}");
    assert!(
        grid.contains("a to b; b to a: low, 1400 bytes: packets of 1500 bytes do not pass"),
        "{grid}"
    );
}

/// Two of three agents are started over ssh, each with a key for its slot alone: all pairs are measured, light probes too.
#[test]
fn agents_over_ssh() {
    let bridge = Bridge::new(&["a", "b", "c"]);
    let coordinator = Home::new();
    let (users, keys) = (
        ["b", "c"].map(|_| Home::new()),
        coordinator.path().join("keys"),
    );
    std::fs::create_dir(&keys).unwrap();
    // A stand-in for ssh that runs the command in the namespace of the host, as another user there.
    let bin = coordinator.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let script = format!(
        "#!/bin/bash\nh=${{@: -2:1}}; [[ $* == *-G* ]] && h=${{@: -1}}
        case $h in b) n=2; home={};; c) n=3; home={};; esac
        [[ $* == *-G* ]] && {{ echo hostname 10.0.7.$n; exit; }}
        export HOME=$home LINERATE_STATE=$home/tune LINERATE_CONFIG=$home/config LINERATE_ARCHIVE=$home/runs.db TMPDIR={}
        exec ip netns exec {}$h sh -c \"${{@: -1}}\"\n",
        users[0].path().display(),
        users[1].path().display(),
        keys.display(),
        bridge.prefix
    );
    std::fs::write(bin.join("ssh"), script).unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("ssh"), all).unwrap();
    let there = std::path::Path::new(env!("CARGO_BIN_EXE_linerate"))
        .parent()
        .unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{}:{path}", bin.display(), there.display());

    let only_a = Bridge {
        prefix: bridge.prefix.clone(),
        hosts: vec!["a"],
    };
    let _agent = only_a.serve(&[&coordinator]);
    // The namespaces are those of the other.
    std::mem::forget(only_a);
    let hosts = [("a", "10.0.7.1"), ("b", "ssh:b"), ("c", "ssh:c")];
    let hosts: String = hosts
        .iter()
        .map(|(host, agent)| format!("[[host]]\nname = \"{host}\"\nagent = \"{agent}\"\n"))
        .collect();
    let file = format!(
        "[mesh]\nname = \"m\"\n{hosts}\
         [[test]]\nname = \"bulk\"\nhosts = [\"*\"]\ntime = \"4s\"\nrate = \"20M\"\ndirections = \"bidir\"\nevery = \"50s\"\n\
         [[test]]\nname = \"light\"\nkind = \"light\"\nhosts = [\"*\"]\nevery = \"20s\"\n"
    );
    let plan = coordinator.path().join("m.toml").display().to_string();
    std::fs::write(&plan, &file).unwrap();
    let start = || {
        let mut mesh_run = coordinator.linerate_in(&bridge.at("x"), &["mesh", "run", &plan]);
        let mesh_run = mesh_run.env("PATH", &path);
        let mesh_run = mesh_run.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(mesh_run.spawn().unwrap())
    };
    let mesh_run = start();
    let archive = || archive::Archive::open_to_read(&coordinator.path().join("runs.db")).ok();
    let is_good = |test: &str, src: &str, dst: &str| {
        let legs = archive().map(|archive| {
            archive
                .mesh_cell(["m", test, src, dst], Nanos(u64::MAX), 9)
                .unwrap()
        });
        legs.unwrap_or_default()
            .iter()
            .any(|leg| leg.outcome == LegOutcome::Good)
    };
    let until = Instant::now() + Duration::from_secs(280);
    // Killed while b measures towards c: the run goes on, and is fetched.
    let pending = || {
        let legs = archive()?
            .mesh_cell(["m", "bulk", "b", "c"], Nanos(u64::MAX), 1)
            .unwrap();
        legs.into_iter().find(|leg| !leg.outcome.is_measured())
    };
    let killed = loop {
        assert!(Instant::now() < until, "no leg of b");
        std::thread::sleep(Duration::from_millis(100));
        if let Some(leg) = pending() {
            break leg.run;
        }
    };
    // Within the leg.
    std::thread::sleep(Duration::from_secs(3));
    signal(&mesh_run.0, "KILL");
    drop(mesh_run);
    let mesh_run = start();
    let is_fetched = || {
        let legs = archive()
            .unwrap()
            .mesh_cell(["m", "bulk", "b", "c"], Nanos(u64::MAX), 9)
            .unwrap();
        legs.iter()
            .any(|leg| leg.run == killed && leg.outcome == LegOutcome::Good)
    };
    while !is_fetched() {
        assert!(Instant::now() < until, "the run {killed} is not fetched");
        std::thread::sleep(Duration::from_millis(200));
    }
    for test in ["bulk", "light"] {
        for (src, dst) in [
            ("a", "b"),
            ("b", "a"),
            ("a", "c"),
            ("c", "a"),
            ("b", "c"),
            ("c", "b"),
        ] {
            while !is_good(test, src, dst) {
                if Instant::now() >= until {
                    mesh_run.interrupt();
                    let ended = mesh_run.output(Duration::from_secs(20));
                    panic!("{test}: {src} to {dst}: {}", stderr(&ended));
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
    mesh_run.interrupt();
    let ended = mesh_run.output(Duration::from_secs(30));
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    // Nothing is left of the keys and bookings; the source has its runs, which are the coordinator's in a later session too.
    while std::fs::read_dir(&keys).unwrap().count() > 0 {
        assert!(Instant::now() < until, "a key is left");
        std::thread::sleep(Duration::from_millis(200));
    }
    let booked = stdout(&run(&mut users[0].linerate(&["calendar", "list"])));
    assert!(!booked.contains("measur"), "{booked}");
    let other = Home::new();
    let mut fetch = other.linerate_in(&bridge.at("x"), &["runs", "fetch", "ssh:b"]);
    let fetched = run(fetch.env("PATH", &path));
    assert!(fetched.status.success(), "{}", stderr(&fetched));
    let runs = stdout(&run(&mut other.linerate(&["runs", "list"])));
    assert!(
        runs.contains("mesh m bulk: b to c") || runs.contains("10.0.7.3"),
        "{runs}"
    );
}

/// RTT, loss and MTU of all ordered pairs, beside a booked test; a dead agent has rows with the reason, and holds up nobody.
#[test]
fn light_probes_of_all_pairs() {
    // A fifth of the small packets that `b` sends is lost; packets to and from `c` have 1400 bytes at the most.
    let names = ["a", "b", "c"];
    let bridge = Bridge::new(&names);
    bridge.shell(
        r#"ip -n ${P}c link set e0 mtu 1400; ip -n ${P}x link set c mtu 1400
        ip netns exec ${P}x nft 'table netdev loss { chain b {
            type filter hook ingress device b priority 0; udp length 108 numgen inc mod 5 == 0 drop; }; }'"#,
    );
    let coordinator = Home::new();
    let mut agents = bridge.serve(&[&coordinator]);
    let hosts: String = (1..)
        .zip(names)
        .map(|(n, host)| {
            // Packets to one of them are IPv6.
            let data = if host == "b" {
                "data = \"fd00:7::2\"\n"
            } else {
                ""
            };
            format!("[[host]]\nname = \"{host}\"\nagent = \"10.0.7.{n}\"\n{data}")
        })
        .collect();
    let alerts = coordinator.path().join("alerts");
    let file = format!(
        "[mesh]\nname = \"m\"\n{hosts}\
         [[test]]\nname = \"light\"\nkind = \"light\"\nhosts = [\"*\"]\nevery = \"10s\"\nloss = \"5%\"\nmtu = 1450\n\
         [[test]]\nname = \"bulk\"\nfrom = [\"a\"]\nto = [\"b\"]\ntime = \"3s\"\nrate = \"20M\"\nevery = \"10s\"\n\
         [[alert]]\ntest = \"light\"\nwhen = \"missed\"\nexec = [\"/bin/sh\", \"-c\", \"cat >> {}\"]\n",
        alerts.display()
    );
    let plan = coordinator.path().join("m.toml").display().to_string();
    std::fs::write(&plan, &file).unwrap();
    let mut mesh_run = coordinator.linerate_in(&bridge.at("x"), &["mesh", "run", &plan]);
    let mesh_run = mesh_run.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mesh_run = Running(mesh_run.spawn().unwrap());

    let archive = || archive::Archive::open_to_read(&coordinator.path().join("runs.db")).ok();
    let newest = |test: &str, src: &str, dst: &str| {
        let found = archive().map(|archive| {
            archive
                .mesh_cell(["m", test, src, dst], Nanos(u64::MAX), 1)
                .unwrap()
        });
        found.unwrap_or_default().pop()
    };
    let until = Instant::now() + Duration::from_secs(200);
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let cells = [
        ("a", "b"),
        ("a", "c"),
        ("b", "a"),
        ("b", "c"),
        ("c", "a"),
        ("c", "b"),
    ];
    let is_measured = |leg: MeshLeg| leg.outcome.is_measured();
    let is_missed = |leg: MeshLeg| leg.outcome == LegOutcome::Missed && !leg.busy;
    wait("every pair is measured", &|| {
        cells
            .iter()
            .all(|(src, dst)| newest("light", src, dst).is_some_and(is_measured))
    });
    for (src, dst) in cells {
        let leg = newest("light", src, dst).unwrap();
        let mtu = if src == "c" || dst == "c" { 1400 } else { 1500 };
        let loss = if src == "b" { 200_000 } else { 0 };
        let found = (leg.mtu, leg.loss_ppm, leg.packets);
        assert_eq!(found, (Some(mtu), Some(loss), Some(20)), "{leg:?}");
        let rtt = [leg.rtt_idle, leg.rtt_p50, leg.rtt_p95].map(Option::unwrap);
        assert!(
            rtt.is_sorted() && rtt[0] > Nanos(0) && rtt[1] < Nanos::from_millis(500),
            "{leg:?}"
        );
        let why = match (src, mtu) {
            ("b", _) => Some("more than 5.0 % lost"),
            (_, 1400) => Some("packets of 1450 bytes do not pass"),
            _ => None,
        };
        assert_eq!(leg.why.as_deref(), why, "{leg:?}");
        assert_eq!(leg.outcome == LegOutcome::Low, why.is_some(), "{leg:?}");
    }
    // The first host of the booked test is busy in some cycle at the least.
    wait("a leg beside the booked one is marked", &|| {
        newest("light", "a", "c").is_some_and(|leg| leg.busy)
    });
    let grid = stdout(&run(&mut coordinator.linerate(&["mesh", "grid", &plan])));
    assert!(
        grid.starts_with("mesh m, test light: median RTT, "),
        "{grid}"
    );
    assert!(
        grid.contains("b to a: low, ")
            && grid.contains(" 20 % lost, MTU 1500: more than 5.0 % lost"),
        "{grid}"
    );
    let metrics = archive().unwrap();
    assert_eq!(metrics.mesh_pending("m", "", Nanos(0)).unwrap(), []);

    // Stopped it takes connections and answers nothing.
    let (_, third, _) = &agents[2];
    signal(&third.0, "STOP");
    // Missed, with its name; in the same cycle the others are measured.
    let is_away = |what: &str| {
        wait(what, &|| newest("light", "a", "c").is_some_and(is_missed));
        let missed = newest("light", "a", "c").unwrap();
        let why = missed.why.as_deref().unwrap();
        assert!(why.starts_with("c: "), "{missed:?}");
        let other = newest("light", "a", "b").unwrap();
        assert_eq!((&other.run, other.outcome), (&missed.run, LegOutcome::Good));
        missed
    };
    is_away("the silent agent is missed");
    signal(&third.0, "CONT");
    wait("the agent is back", &|| {
        newest("light", "a", "c").is_some_and(is_measured)
    });
    drop(agents.pop());
    let missed = is_away("the dead agent is missed");
    assert_eq!(
        newest("light", "c", "b").unwrap().outcome,
        LegOutcome::Missed
    );
    wait("an alert for each cell", &|| {
        std::fs::read_to_string(&alerts).is_ok_and(|text| text.lines().count() >= 4)
    });
    wait("the booked test goes on", &|| {
        newest("bulk", "a", "b")
            .is_some_and(|leg| leg.outcome == LegOutcome::Good && leg.starts > missed.starts)
    });
    mesh_run.interrupt();
    let ended = mesh_run.output(Duration::from_secs(20));
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    let said = stderr(&ended);
    // A line a state: silent and dead, or what lies between.
    let away = said.lines();
    let away = away.filter(|line| line.starts_with("linerate: light: c: "));
    assert!((2..=4).contains(&away.count()), "{said}");
}
