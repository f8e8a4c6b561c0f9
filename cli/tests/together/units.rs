//! The units of `dist/systemd`: what systemd says of their exposure, and whether it understands them.

use crate::common::{Home, run, stderr, stdout};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Ten times the exposure that a unit may have at most.
const MOST: &str = "20";

fn units(extension: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/systemd");
    let all = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect()
}

fn analyze(args: &[&str], units: &[&Path]) -> Command {
    let mut command = Command::new("systemd-analyze");
    command.args(args).arg("--no-pager").args(units);
    command
}

#[test]
fn no_unit_is_exposed_above_two() {
    let services = units("service");
    assert!(services.len() >= 3, "{services:?}");
    for unit in &services {
        let threshold = format!("--threshold={MOST}");
        let args = ["security", "--offline=true", &threshold];
        let out = run(&mut analyze(&args, &[unit]));
        let said = stdout(&out) + &stderr(&out);
        assert!(said.contains("Overall exposure level"), "{said}");
        assert!(out.status.success(), "{said}");
        // A directive that it does not know would be left out.
        assert_eq!(stderr(&out), "", "{}", unit.display());
    }
    // The threshold is one that a unit can miss.
    let out = run(&mut analyze(
        &["security", "--offline=true", "--threshold=5"],
        &[&services[0]],
    ));
    assert!(!out.status.success());
}

#[test]
fn the_units_are_understood_and_start_the_command_as_it_is() {
    let home = Home::new();
    let program = env!("CARGO_BIN_EXE_linerate");
    let mut copies = Vec::new();
    for unit in units("service").iter().chain(&units("timer")) {
        let text = fs::read_to_string(unit).unwrap();
        let name = unit
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace('@', "@db2");
        let copy = home.path().join(name);
        fs::write(&copy, text.replace("/usr/local/bin/linerate", program)).unwrap();
        copies.push(copy);
        // Its options are those of this version.
        for line in text
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart="))
        {
            let args = line.split(' ').skip(1).chain(["--help"]);
            let out = run(Command::new(program).args(args));
            assert!(out.status.success(), "{line}: {}", stderr(&out));
            let known = stdout(&out);
            for option in line.split(' ').filter(|arg| arg.starts_with("--")) {
                assert!(known.contains(option), "{line}: {option}");
            }
        }
    }
    let copies: Vec<&Path> = copies.iter().map(PathBuf::as_path).collect();
    let out = run(&mut analyze(&["verify", "--man=no"], &copies));
    assert_eq!((stderr(&out).as_str(), out.status.code()), ("", Some(0)));
}
