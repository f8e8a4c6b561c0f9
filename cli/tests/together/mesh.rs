//! `linerate mesh`: plans that fit and those that do not, as a user meets them.

use crate::common::{Home, Running, Server, run, stderr, stdout};
use model::LegOutcome;
use std::process::{Output, Stdio};
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
        assert!(line.is_empty() || document.contains(line), "{line}");
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
        let found = archive().map(|archive| archive.mesh_cell(["m", "bulk", src, dst], 9).unwrap());
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
