//! Every target over its corpus, and over seeded mutations of it.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use linerate_fuzz::TARGETS;
use linerate_fuzz::mutate::{Chance, mutate};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Mutated inputs for each target.
const MUTATIONS: usize = 3000;
/// A target that takes longer than this for all of them hangs on one.
const AT_MOST: Duration = Duration::from_secs(120);

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut inputs: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    // The order of a directory is chance.
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
}

#[test]
fn every_target_takes_its_corpus_and_whatever_becomes_of_it() {
    for (seed, (name, target)) in (1..).zip(TARGETS) {
        let inputs = corpus(name);
        for (path, input) in &inputs {
            assert!(
                catch_unwind(|| target(input)).is_ok(),
                "{name} fails on {}",
                path.display()
            );
        }
        let mut chance = Chance::new(seed);
        let begun = Instant::now();
        for round in 0..MUTATIONS {
            let (_, input) = &inputs[chance.below(inputs.len())];
            let (_, other) = &inputs[chance.below(inputs.len())];
            let made = mutate(input, other, &mut chance);
            assert!(
                catch_unwind(|| target(&made)).is_ok(),
                "{name} fails in round {round} on {:?}",
                String::from_utf8_lossy(&made)
            );
            assert!(begun.elapsed() < AT_MOST, "{name} hangs, or nearly");
        }
    }
}

#[test]
fn no_corpus_is_without_its_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(linerate_fuzz::target(&name).is_some(), "{name}");
    }
}
