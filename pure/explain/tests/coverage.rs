//! Every limit has a case, and every evidence key a rule that uses it.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

use model::finding::{EvidenceKey, Limit};
use std::path::{Path, PathBuf};

/// Every file below a folder.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| match path.is_dir() {
            true => files(path),
            false => vec![path],
        })
        .collect()
}

fn texts(folder: &str, kind: &str) -> Vec<String> {
    let all = files(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    all.iter()
        .filter(|path| path.extension().is_some_and(|k| k == kind))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

/// Limits that captures alone show.
const FROM_CAPTURES: [(Limit, &str); 1] = [(Limit::AckPath, "Limit::AckPath")];

#[test]
fn every_limit_has_a_case() {
    let cases: Vec<toml::Table> = texts("tests/cases", "toml")
        .iter()
        .map(|text| toml::from_str(text).unwrap())
        .collect();
    // Named as a cause, beside one, or with a share of its own.
    let has = |case: &toml::Table, limit: &str| {
        let named = |list: &str| {
            let list = case["expect"].get(list).and_then(|l| l.as_array());
            list.is_some_and(|l| l.iter().any(|name| name.as_str() == Some(limit)))
        };
        let share = case["expect"].get("shares").and_then(|s| s.get(limit));
        let least = share.and_then(|s| s.get(0)).and_then(toml::Value::as_float);
        named("by") || named("also") || least.is_some_and(|least| least > 0.0)
    };
    let captures = include_str!("../src/capture/tests.rs");
    let is_captured = |limit: &Limit| {
        let mut names = FROM_CAPTURES.iter().filter(|(of, _)| of == limit);
        names.any(|(_, name)| captures.contains(name))
    };
    let missing: Vec<String> = Limit::ALL
        .iter()
        .filter(|limit| !is_captured(limit))
        .map(|limit| toml::Value::try_from(limit).unwrap())
        .map(|name| name.as_str().unwrap().to_owned())
        .filter(|name| !cases.iter().any(|case| has(case, name)))
        .collect();
    assert!(missing.is_empty(), "no case in tests/cases: {missing:?}");
}

#[test]
fn every_evidence_key_is_used() {
    let sources = texts("src", "rs").concat();
    let unused: Vec<&EvidenceKey> = EvidenceKey::ALL
        .iter()
        .filter(|key| !sources.contains(&format!("Key::{key:?}")))
        .collect();
    assert!(unused.is_empty(), "{unused:?}");
}
