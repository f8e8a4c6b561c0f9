//! What `linerate explain` names on paths drawn at random. Needs root.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/drawn/mod.rs"]
mod drawn;

use common::{Home, alone};
use drawn::{Drawn, On, Truth, answers, in_jobs, play_once};
use std::collections::{BTreeMap, BTreeSet};

const SEED: u64 = 12;
/// At most so many bits a second: any machine carries it.
const MOST: f64 = 5e7;
/// What is right of each case, by ablation: `bench/truth --seed 12 --cases 30 --fast --most 50000000`.
const RIGHT: &str = include_str!("truth.txt");
/// Rules were not fitted to these cases, and the machine may be shared: a share of all answers.
const RIGHT_FIRST: f64 = 0.75;
const WRONG_CONFIDENT: f64 = 0.05;

#[test]
fn causes_of_drawn_paths_are_named_and_seldom_wrong_ones_with_confidence() {
    let _alone = alone();
    let home = Home::new();
    let case = |line: &'static str| -> (u64, BTreeSet<&str>) {
        let (number, right) = line.split_once(": ").unwrap();
        (number.parse().unwrap(), right.split(", ").collect())
    };
    let right: BTreeMap<_, _> = RIGHT.lines().map(case).collect();
    let numbers: Vec<u64> = right.keys().copied().collect();
    assert_eq!(numbers.len(), 30);
    let all = in_jobs(3, &numbers, |number| {
        let (drawn, own) = (
            Drawn::new(SEED, number, MOST),
            home.path().join(number.to_string()),
        );
        play_once(&home, &drawn, &own, "all", &drawn.faults, On::Path, true);
        Some(answers(&home, &drawn, &own.join("all"), &right[&number]))
    });
    assert_eq!(all.len(), 30, "a case could not be played");
    let answers: Vec<_> = all
        .iter()
        .flat_map(|(number, given)| {
            given
                .iter()
                .map(move |a| (a.truth, number, a.source, &a.named))
        })
        .collect();
    let of = |truth: Truth| answers.iter().filter(move |(t, ..)| *t == truth);
    let share = |truth| of(truth).count() as f64 / answers.len() as f64;
    let wrong: Vec<_> = of(Truth::WrongConfident).collect();
    assert!(
        share(Truth::WrongConfident) <= WRONG_CONFIDENT,
        "{wrong:#?}"
    );
    assert!(share(Truth::First) >= RIGHT_FIRST, "{answers:#?}");
}
