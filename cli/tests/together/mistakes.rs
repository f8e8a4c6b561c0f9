//! Mistakes that newcomers make, and what the command answers: `mistakes.txt`. `UPDATE_MISTAKES=1` rewrites it.

use crate::common::{Home, Lines, Pair, Running, one_line, run, signal, stderr, stdout};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

const FILE: &str = include_str!("mistakes.txt");

/// Every command of the file, in a namespace with one route and no neighbour but 10.99.0.2.
#[test]
fn every_mistake_has_its_sentence() {
    let (home, pair) = (Home::new(), Pair::new("m"));
    std::fs::write(home.path().join("junk"), "no:table:at all\nx\n").unwrap();
    // Something that listens on an agent's port and is not trusted.
    let args = ["serve", "--iperf3", "--bind", Pair::FAR, "--port", "5210"];
    let mut other = home.linerate_in(&pair.remote, &args);
    let mut other = Running(other.stderr(Stdio::piped()).spawn().unwrap());
    Lines::of(other.0.stderr.take().unwrap()).wait_for("are served on");
    let mut answers = String::new();
    for line in FILE
        .lines()
        .filter_map(|line| line.strip_prefix("$ linerate"))
    {
        let args: Vec<&str> = line.split_whitespace().collect();
        let out = run(home
            .linerate_in(&pair.local, &args)
            .current_dir(home.path()));
        assert!(!out.status.success(), "{line}: {}", stdout(&out));
        let code = out.status.code().unwrap();
        let said = one_line(&stderr(&out));
        // What this machine's kernel offers.
        let said = match said.split_once("; available: ") {
            Some((said, _)) => format!("{said}; available: ..."),
            None => said,
        };
        // And what its resolver says.
        let said = match said.split_once(" has no address (") {
            Some((name, rest)) => {
                let (_, rest) = rest.split_once("): ").unwrap();
                format!("{name} has no address (...): {rest}")
            }
            None => said,
        };
        let said = said.replace(home.path().to_str().unwrap(), "HOME");
        assert!(!said.contains("os error"), "{line}: {said}");
        answers += &format!("$ linerate{line}\n{said} ({code})\n\n");
    }
    if std::env::var_os("UPDATE_MISTAKES").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/together/mistakes.txt");
        return std::fs::write(path, answers).unwrap();
    }
    for (said, expected) in answers.split("\n\n").zip(FILE.split("\n\n")) {
        assert_eq!(said, expected);
    }
    assert_eq!(answers, FILE);
}

/// A reader that has seen enough, as `| head`, ends a command silently.
#[test]
fn a_closed_pipe_is_silent() {
    let home = Home::new();
    let run = run(&mut home.linerate(&["measure", "local", "-n", "64K", "-q"]));
    assert!(run.status.success(), "{}", stderr(&run));
    for args in [
        &["completions", "bash"][..],
        &["man", "measure"],
        &["measure", "--help"],
        &["runs", "list"],
        &["runs", "show", "last"],
        &["report", "last", "-f", "text"],
        &["explain"],
        &["tune", "knobs"],
        &["lab", "scenarios"],
    ] {
        let mut command = home.linerate(args);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Running(command.spawn().unwrap());
        drop(child.0.stdout.take());
        let mut said = String::new();
        child
            .0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        let out = child.output(Duration::from_secs(20));
        assert_eq!(said, "", "{args:?}");
        assert!(out.status.success(), "{args:?}: {}", out.status);
    }
}

/// `report` and `explain` without a name take the newest run.
#[test]
fn the_newest_run_is_the_default() {
    let home = Home::new();
    run(&mut home.linerate(&["measure", "local", "-n", "64K", "-q"]));
    for command in [&["report", "-f", "text"][..], &["explain"]] {
        let out = run(&mut home.linerate(command));
        assert!(out.status.success(), "{command:?}: {}", stderr(&out));
        let mut named = command.to_vec();
        named.insert(1, "last");
        assert_eq!(stdout(&out), stdout(&run(&mut home.linerate(&named))));
    }
}

#[test]
fn a_hangup_does_not_end_a_service() {
    for (args, ready) in [
        (&["serve", "--port", "0"][..], "listens on"),
        (&["serve", "--iperf3", "--port", "0"], "are served on"),
    ] {
        let home = Home::new();
        let mut command = home.linerate(args);
        let mut serving = Running(command.stderr(Stdio::piped()).spawn().unwrap());
        let log = Lines::of(serving.0.stderr.take().unwrap());
        log.wait_for(ready);
        signal(&serving.0, "HUP");
        serving.interrupt();
        let out = serving.output(Duration::from_secs(20));
        assert_eq!(out.status.code(), Some(0), "{args:?}: {}", out.status);
    }
}

/// On a terminal a manual page is formatted.
#[test]
fn man_formats_on_a_terminal() {
    if Command::new("man").arg("--version").output().is_err() {
        return;
    }
    let home = Home::new();
    let mut command = Command::new("script");
    let line = format!("{} man model", env!("CARGO_BIN_EXE_linerate"));
    command
        .args(["-qec", &line, "/dev/null"])
        .env("MANPAGER", "cat");
    home.furnish(&mut command);
    let shown = stdout(&run(&mut command));
    assert!(
        !shown.contains(".SH") && shown.contains("linerate-model(1)"),
        "{shown}"
    );
}
