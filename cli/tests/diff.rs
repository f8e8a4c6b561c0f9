//! `linerate diff` and the options of `linerate explain`, on real runs of this machine with itself.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Home, alone, stdout};

#[test]
fn two_runs_side_by_side() {
    let _alone = alone();
    let home = Home::new();
    let mut files = Vec::new();
    for (name, more) in [("wide", &[][..]), ("narrow", &["--send-buffer", "16K"][..])] {
        let run = home
            .linerate(&["measure", "local", "--time", "1s", "--json"])
            .args(more)
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        let file = home.path().join(format!("{name}-{}.json", "x".repeat(30)));
        std::fs::write(&file, &run.stdout).unwrap();
        files.push(file.to_str().unwrap().to_owned());
    }
    let diff = |more: &[&str]| {
        let mut command = home.linerate(&["diff", &files[0], &files[1]]);
        command.args(more).output().unwrap()
    };
    let text = stdout(&diff(&[]));
    assert!(text.starts_with("up: "), "{text}");
    assert!(text.contains("\ndown: "), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
    // A path cannot be broken; everything else fits.
    for line in text.lines().filter(|l| !l.contains("xxx.json")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    // One of many, and none.
    assert!(stdout(&diff(&["--connection", "up"])).starts_with("up: "));
    let none = diff(&["--connection", "nobody"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(
        said.contains("no connection of") && said.contains("there is up"),
        "{said}"
    );
    // What chooses connections of a live trace means nothing for a file.
    let refused = home
        .linerate(&["explain", &files[0], "--port", "5"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stdout.is_empty());
}
