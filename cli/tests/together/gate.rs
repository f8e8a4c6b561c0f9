//! The gate of docs/gate.md: its workflow's own script, run against a lab.

use crate::common::Home;
use std::process::{Command, Output};

/// The script of the step that measures, as it stands in the document.
fn script() -> String {
    let document = include_str!("../../../docs/gate.md");
    let (_, rest) = document
        .split_once("- name: measure and judge\n        run: |\n")
        .unwrap();
    let lines = rest
        .lines()
        .map_while(|line| line.strip_prefix("          "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// As a runner of GitHub runs a step.
fn step(home: &Home, expect: &str) -> Output {
    let mut command = Command::new("bash");
    home.furnish(&mut command);
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_linerate"))
        .parent()
        .unwrap();
    let path = std::env::join_paths(
        std::iter::once(bin.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    command
        .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &script()])
        .current_dir(home.path())
        .env("PATH", path.unwrap())
        .env("HOST", "lab:path.toml")
        .env("EXPECT", expect)
        .env("GITHUB_STEP_SUMMARY", home.path().join("summary.md"));
    command.output().unwrap()
}

#[test]
fn the_documented_workflow_fails_a_regression() {
    let home = Home::new();
    let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    let path = |rate: &str| {
        let scenario = format!(
            "name = \"path\"\nwhy = \"A path of a test.\"\n[[host]]\nname = \"local\"\n[[host]]\nname = \"remote\"\n[[link]]\nname = \"wan\"\nbetween = [\"local\", \"remote\"]\n[link.both]\nrate = \"{rate}\"\ndelay = \"1ms\"\n"
        );
        std::fs::write(home.path().join("path.toml"), scenario).unwrap();
    };
    path("100M");
    let output = step(&home, "goodput>=60M");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        read("gate.xml").contains("tests=\"2\" failures=\"0\""),
        "{}",
        read("gate.xml")
    );

    path("20M");
    let output = step(&home, "goodput>=60M");
    assert_eq!(output.status.code(), Some(14), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("run.json: FAILED") && said.contains("- FAILED: up.goodput>=60M: "),
        "{said}"
    );
    // Readers of JUnit take it.
    let script = "
import sys, xml.etree.ElementTree as tree
for case in tree.parse('gate.xml').getroot().iter('testcase'):
    print(case.get('name'), [child.tag for child in case])
";
    let read_by = Command::new("python3")
        .args(["-c", script])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(read_by.stdout).unwrap(),
        "the run is complete ['system-out']\nup.goodput>=60M ['failure']\n"
    );
    // Both steps are in the summary of the job.
    let summary = read("summary.md");
    assert!(
        summary.contains("run.json passed") && summary.contains("run.json **failed**"),
        "{summary}"
    );
}

#[test]
fn what_cannot_be_judged_is_said() {
    let home = Home::new();
    std::fs::write(home.path().join("table.csv"), "a,b\n1,2\n3,4\n").unwrap();
    for (arguments, code, sentence) in [
        (&["gate"][..], 2, "there is no archive"),
        (&["gate", "none.json"], 2, "none.json is not there"),
        (
            &["gate", "last", "--expect", "goodput"],
            2,
            "no expectation like",
        ),
    ] {
        let output = home
            .linerate(arguments)
            .current_dir(home.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(sentence), "{arguments:?}: {said}");
    }
}
