//! Every target over its corpus, and over mutations of it from a seed that is new in each run. Each target is a process of
//! its own, which this one watches.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use linerate_fuzz::TARGETS;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Mutated inputs for each target.
const ROUNDS: &str = "3000";
/// One input that takes longer hangs.
const AN_INPUT: Duration = Duration::from_secs(30);

#[test]
fn every_target_takes_its_corpus_and_whatever_becomes_of_it() {
    let given = std::env::var("LINERATE_FUZZ_SEED").ok();
    let seed = given.map_or_else(
        || RandomState::new().build_hasher().finish(),
        |seed| seed.parse().expect("LINERATE_FUZZ_SEED is a number"),
    );
    // Not by a macro: those are kept from who runs the tests.
    writeln!(std::io::stderr(), "LINERATE_FUZZ_SEED={seed}").unwrap();
    let next = AtomicUsize::new(0);
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, _)) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = watched(name, seed) {
                        failed.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Runs a target in a process that is killed where an input does not end.
fn watched(name: &str, seed: u64) -> Result<(), String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fuzz"))
        .args([name, "--mutated", &seed.to_string(), ROUNDS])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, rounds) = mpsc::channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let mut round = "the corpus".to_owned();
    let hangs = loop {
        match rounds.recv_timeout(AN_INPUT) {
            Ok(next) => round = format!("round {next}"),
            Err(mpsc::RecvTimeoutError::Timeout) => break true,
            Err(mpsc::RecvTimeoutError::Disconnected) => break false,
        }
    };
    if hangs {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    reader.join().unwrap();
    let mut said = String::new();
    child.stderr.unwrap().read_to_string(&mut said).unwrap();
    match (hangs, status.success()) {
        (false, true) => Ok(()),
        (true, _) => Err(format!(
            "{name} hangs in {round} of LINERATE_FUZZ_SEED={seed}"
        )),
        _ => Err(format!(
            "{name} fails in {round} of LINERATE_FUZZ_SEED={seed}: {said}"
        )),
    }
}

#[test]
fn each_target_has_a_corpus_and_no_corpus_is_without_its_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(linerate_fuzz::target(&name).is_some(), "{name}");
    }
    for (name, _) in TARGETS {
        let mut inputs = std::fs::read_dir(folder.join(name)).unwrap();
        assert!(inputs.next().is_some(), "{name}");
    }
}
