//! `deny.toml`, held without a tool: which licences the dependencies may have, where they come from, which are banned.
//! `cargo deny check` reads the same file.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn dependencies_are_licensed_from_the_registry_and_not_banned() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deny.toml");
    let deny: toml::Value = toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let texts = |list: &toml::Value, key: Option<&str>| -> BTreeSet<String> {
        let all = list.as_array().unwrap().iter();
        let text = |one: &toml::Value| key.map_or(one, |key| &one[key]).as_str().map(str::to_owned);
        all.map(|one| text(one).unwrap()).collect()
    };
    let allowed = texts(&deny["licenses"]["allow"], None);
    let banned = texts(&deny["bans"]["deny"], Some("crate"));
    assert!(!allowed.is_empty() && banned.contains("rsa"));

    // Those of other systems were not fetched by the build.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version=1"])
        .args(["--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "{}", packages.len());
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        if !fits(licence, &allowed) {
            wrong.push(format!("{name} has the licence {licence}"));
        }
        if package["source"]
            .as_str()
            .is_some_and(|source| source != REGISTRY)
        {
            wrong.push(format!("{name} comes from {}", package["source"]));
        }
        if banned.contains(name) {
            wrong.push(format!("{name} is banned"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// Whether an SPDX expression can be met by these licences alone. An `AND` binds closer than an `OR`; before SPDX, crates
/// wrote `/` for `OR`.
fn fits(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let fits = any(&words, &mut at, allowed);
    assert_eq!(at, words.len(), "{expression}");
    fits
}

fn any(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut fits = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        fits |= all(words, at, allowed);
    }
    fits
}

fn all(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut fits = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        fits &= one(words, at, allowed);
    }
    fits
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let word = words[*at];
    *at += 1;
    if word == "(" {
        let fits = any(words, at, allowed);
        assert_eq!(words[*at], ")");
        *at += 1;
        return fits;
    }
    let excepted = words.get(*at) == Some(&"WITH");
    *at += 2 * usize::from(excepted);
    // An exception is a licence of its own.
    allowed.contains(word) && !excepted
}

#[test]
fn an_expression_is_met_by_one_side_of_an_or_and_both_of_an_and() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "ISC".to_owned()]);
    for (expression, is_met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("MIT AND (GPL-3.0 OR ISC)", true),
        ("(MIT OR ISC) AND GPL-3.0", false),
        ("MIT WITH something", false),
        ("none", false),
    ] {
        assert_eq!(fits(expression, &allowed), is_met, "{expression}");
    }
}
