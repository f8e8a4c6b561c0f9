//! `linerate mesh`: plans that fit and those that do not, as a user meets them.

use crate::common::{Home, run, stderr, stdout};
use std::process::Output;

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
