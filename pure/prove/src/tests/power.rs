//! What the verdicts of `linerate prove` promise and what they keep: docs/prove-power.md, which
//! `make prove-power` writes.

use super::simulate::{
    Noise, Order, Runs, SECONDS, SLOT_S, blocks, bootstrap, experiment, judge, search, welch,
};
use crate::stats::signed_rank::{self, InterimLook, LONG_LOOKS, LOOKS};
use crate::stats::{ALPHA, multiple, power, rank_sum, spread, total};
use model::Outcome;
use std::fmt::Display;

/// Experiments a cell: the standard error of 5 % is 0.22 %, that of 50 % is 0.5 %.
const CELL: usize = 10_000;
/// And where the method itself is slow.
const SLOW_CELL: usize = CELL / 5;

/// The document is written to the file that this variable names; without it there is nothing to do.
const WRITE_TO: &str = "LINERATE_PROVE_POWER";

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "the document is asked for by the environment, and is a file"
)]
fn table_of_power() {
    let Ok(path) = std::env::var(WRITE_TO) else {
        return;
    };
    std::fs::write(path, document()).expect("the file can be written");
}

fn document() -> String {
    let mut doc = format!(
        "# What a verdict promises, and what it keeps

Simulated by `make prove-power`, {CELL} experiments a cell; the same figures come out again. The noise is that of
`pure/prove/src/tests/simulate/noise.rs`: a run has {SECONDS} s that count and is {SLOT_S} s from the next. Figures are per cent where nothing
else is said; sd is the standard deviation of the differences of pairs.
"
    );
    usual_ways(&mut doc);
    let paths = Noise::ALL.map(Paths::new);
    false_verdicts(&mut doc, &paths);
    coverage(&mut doc, &paths);
    power_by_pairs(&mut doc, &paths);
    power_by_looks(&mut doc, &paths);
    stalls(&mut doc, &paths);
    equivalence(&mut doc, &paths);
    planned(&mut doc, &paths);
    arms(&mut doc);
    searches(&mut doc, &paths);
    doc
}

/// A/A experiments of 40 random pairs under one noise: the differences of each. A true effect only
/// shifts them, and their first pairs are an experiment of fewer.
struct Paths {
    noise: Noise,
    differences: Vec<Vec<f64>>,
}

impl Paths {
    fn new(noise: Noise) -> Paths {
        let made = |seed| experiment(noise, seed, 40, Order::RandomPairs, 0.0).differences();
        Paths {
            noise,
            differences: (0..CELL as u64).map(made).collect(),
        }
    }

    /// The experiments with so many pairs and this effect in per cent.
    fn pairs(&self, count: usize, effect: f64) -> impl Iterator<Item = Vec<f64>> {
        let shift = (effect / 100.0).ln_1p();
        let shifted = move |d: &Vec<f64>| d[..count].iter().map(|v| v + shift).collect();
        self.differences.iter().map(shifted)
    }

    /// Share of them of which something holds.
    fn share(&self, count: usize, effect: f64, holds: impl Fn(&[f64]) -> bool) -> String {
        share(self.pairs(count, effect).map(|d| holds(&d)))
    }

    /// Share in which the change is found to be faster by so many pairs.
    fn found(&self, count: usize, effect: f64) -> String {
        let critical = critical(count);
        self.share(count, effect, |d| {
            signed_rank::interval(d, critical).is_some_and(|i| i.low > 0.0)
        })
    }

    /// Share that ends in such a verdict at any look, and the pairs made on average.
    fn judged(
        &self,
        looks: &[InterimLook],
        effect: f64,
        margin: f64,
        wanted: impl Fn(Outcome) -> bool,
    ) -> [String; 2] {
        let most = looks.last().map_or(0, |look| look.pairs as usize);
        let margin = (margin / 100.0).ln_1p();
        let ends: Vec<_> = self
            .pairs(most, effect)
            .filter_map(|d| judge(&d, looks, margin))
            .collect();
        let made = ends.iter().map(|end| f64::from(end.1)).sum::<f64>() / ends.len() as f64;
        [
            share(ends.iter().map(|end| wanted(end.0))),
            format!("{made:.1}"),
        ]
    }
}

/// How often something held, in per cent.
fn share(held: impl Iterator<Item = bool>) -> String {
    let (held, of) = held.fold((0, 0), |(held, of), this| (held + u32::from(this), of + 1));
    format!("{:.1}", 100.0 * f64::from(held) / f64::from(of))
}

fn share_of_seeds(count: usize, holds: impl Fn(u64) -> bool) -> String {
    share((0..count as u64).map(holds))
}

fn critical(pairs: usize) -> u32 {
    signed_rank::critical_value(pairs as u32, ALPHA).expect("every number of pairs here is above 6")
}

fn significant(p: Option<f64>) -> bool {
    p.is_some_and(|p| p <= ALPHA)
}

fn heading<Name: Display>(
    doc: &mut String,
    title: &str,
    text: &str,
    columns: impl IntoIterator<Item = Name>,
) {
    let columns: Vec<String> = columns.into_iter().map(|name| name.to_string()).collect();
    let rule = "---|".repeat(columns.len());
    let columns = columns.join(" | ");
    *doc += &format!("## {title}\n\n{text}\n\n| noise | {columns} |\n|---|{rule}\n");
}

fn row(doc: &mut String, noise: Noise, cells: &[String]) {
    *doc += &format!("| {} | {} |\n", noise.name(), cells.join(" | "));
}

fn usual_ways(doc: &mut String) {
    heading(
        doc,
        "Why the usual way is wrong",
        "A/A experiments of 10 runs an arm in which each way finds a difference at 5 %.",
        [
            "seconds, A..AB..B, t-test",
            "seconds, ABAB.., t-test",
            "runs, A..AB..B, rank-sum",
            "random pairs, signed rank",
        ],
    );
    for noise in Noise::ALL {
        let made = |seed, order| experiment(noise, seed, 10, order, 0.0);
        let seconds =
            |runs: Runs| significant(welch(&Runs::seconds(&runs.a), &Runs::seconds(&runs.b)));
        let ranks = |runs: Runs| {
            let shift = rank_sum::shift(&Runs::values(&runs.a), &Runs::values(&runs.b), ALPHA);
            shift.is_some_and(|shift| shift.interval.excludes_zero())
        };
        let signs = |runs: Runs| significant(signed_rank::p_two_sided(&runs.differences()));
        let cells = [
            share_of_seeds(SLOW_CELL, |seed| {
                seconds(made(seed, Order::OneAfterTheOther))
            }),
            share_of_seeds(SLOW_CELL, |seed| seconds(made(seed, Order::Alternating))),
            share_of_seeds(SLOW_CELL, |seed| ranks(made(seed, Order::OneAfterTheOther))),
            share_of_seeds(SLOW_CELL, |seed| signs(made(seed, Order::RandomPairs))),
        ];
        row(doc, noise, &cells);
    }
    doc.push('\n');
}

fn false_verdicts(doc: &mut String, paths: &[Paths]) {
    heading(
        doc,
        "False verdicts",
        "A/A experiments with a verdict either way. Promised are 5.0 at all looks together, and 4.2 by 12 pairs: the largest exact \
         level below 5.",
        [
            "looks 8 12 16 20",
            "looks 10 20 30 40",
            "12 pairs",
            "total, 12 pairs",
        ],
    );
    for path in paths {
        let at = |looks: &[InterimLook]| {
            path.judged(looks, 0.0, 0.0, |d| d != Outcome::NotEnoughData)[0].clone()
        };
        let fixed = InterimLook {
            pairs: 12,
            critical: critical(12),
        };
        let total = path.share(12, 0.0, |d| significant(total::p_two_sided(d)));
        row(
            doc,
            path.noise,
            &[at(&LOOKS), at(&LONG_LOOKS), at(&[fixed]), total],
        );
    }
    doc.push('\n');
}

fn coverage(doc: &mut String, paths: &[Paths]) {
    const PAIRS: [usize; 3] = [8, 12, 20];
    let methods = ["Walsh", "subset means", "bootstrap"];
    heading(
        doc,
        "Coverage",
        "How often an interval at 95 % contains the truth, by the number of pairs.",
        methods
            .iter()
            .flat_map(|method| PAIRS.map(|n| format!("{method} {n}"))),
    );
    for path in paths {
        let walsh = PAIRS.map(|n| {
            let critical = critical(n);
            path.share(n, 0.0, |d| {
                signed_rank::interval(d, critical).is_some_and(|i| i.contains(0.0))
            })
        });
        let slow = |n| path.pairs(n, 0.0).take(SLOW_CELL);
        let means = PAIRS.map(|n| share(slow(n).map(|d| !significant(total::p_two_sided(&d)))));
        let resampled = PAIRS.map(|n| {
            let within =
                |(seed, d): (u64, Vec<f64>)| bootstrap(&d, seed).is_some_and(|i| i.contains(0.0));
            share((0..).zip(slow(n)).map(within))
        });
        row(doc, path.noise, &[walsh, means, resampled].concat());
    }
    doc.push('\n');
}

fn power_by_pairs(doc: &mut String, paths: &[Paths]) {
    const PAIRS: [usize; 3] = [8, 12, 20];
    const EFFECTS: [f64; 4] = [2.0, 5.0, 10.0, 20.0];
    let columns = EFFECTS
        .iter()
        .flat_map(|e| PAIRS.map(|n| format!("+{e} %, {n} pairs")));
    heading(
        doc,
        "Power of a fixed number of pairs",
        "How often a change is found to be faster. The last column has what an earlier simulation, by another hand, gave at +10 %.",
        ["sd".to_owned()]
            .into_iter()
            .chain(columns)
            .chain(["+10 % before".to_owned()]),
    );
    for path in paths {
        let deviations: Vec<f64> = path
            .pairs(40, 0.0)
            .filter_map(|d| spread::deviation(&d))
            .collect();
        let typical = model::stats::median(&deviations).unwrap_or(f64::NAN);
        let mut cells = vec![format!("{:.1}", 100.0 * typical)];
        cells.extend(
            EFFECTS
                .iter()
                .flat_map(|e| PAIRS.map(|n| path.found(n, *e))),
        );
        cells.push(
            match path.noise {
                Noise::Run => "31 / 51 / 78",
                Noise::Drift => "36 / 56 / 83",
                Noise::Regime => "36 / 50 / 70",
                Noise::Heavy => "24 / 36 / 58",
                Noise::Iid | Noise::Trend => "",
            }
            .to_owned(),
        );
        row(doc, path.noise, &cells);
    }
    doc.push('\n');
}

fn power_by_looks(doc: &mut String, paths: &[Paths]) {
    const EFFECTS: [f64; 4] = [2.0, 5.0, 10.0, 20.0];
    heading(
        doc,
        "Power of the looks at 8, 12, 16 and 20 pairs",
        "How often a change is found to be faster at any of them, and the pairs made on average.",
        EFFECTS
            .iter()
            .flat_map(|e| [format!("+{e} %"), "pairs".to_owned()]),
    );
    for path in paths {
        let better = |d| d == Outcome::Faster;
        let cells = EFFECTS.map(|effect| path.judged(&LOOKS, effect, 0.0, better));
        row(doc, path.noise, &cells.concat());
    }
    doc.push('\n');
}

fn stalls(doc: &mut String, paths: &[Paths]) {
    heading(
        doc,
        "A change that only removes stalls",
        "One in 4 or in 8 of the control's runs has stalled to a fifth of its rate, and none of the change's: how often 12 pairs show \
         it, asked about a typical run and about the total.",
        ["1 in 4, typical", "total", "1 in 8, typical", "total"],
    );
    // The signs of independent differences are fair coins.
    let coins = &paths[0].differences;
    for path in paths {
        let stalled = |in_a_row: usize| {
            let stalls =
                move |coins: &[f64], pair| (0..in_a_row).all(|k| coins[pair + 12 * k] > 0.0);
            let lost = |stall| if stall { 5f64.ln() } else { 0.0 };
            // Coins of another experiment: under "iid" these would be its own.
            let others = coins[1..].iter().take(SLOW_CELL);
            let with_stalls = move |(d, coins): (Vec<f64>, &Vec<f64>)| -> Vec<f64> {
                d.iter()
                    .enumerate()
                    .map(|(pair, v)| v + lost(stalls(coins, pair)))
                    .collect()
            };
            path.pairs(12, 0.0)
                .zip(others)
                .map(with_stalls)
                .collect::<Vec<_>>()
        };
        let cells = [2, 3].map(|in_a_row| {
            let all = stalled(in_a_row);
            let typical =
                |d: &Vec<f64>| signed_rank::interval(d, critical(12)).is_some_and(|i| i.low > 0.0);
            let total =
                |d: &Vec<f64>| significant(total::p_two_sided(d)) && total::mean(d) > Some(0.0);
            [share(all.iter().map(typical)), share(all.iter().map(total))]
        });
        row(doc, path.noise, &cells.concat());
    }
    doc.push('\n');
}

fn equivalence(doc: &mut String, paths: &[Paths]) {
    heading(
        doc,
        "Equivalent within the margin",
        "How often an A/A experiment ends with that verdict, and the pairs made on average; in the last column how often one does in \
         which the change is just as large as the margin (wrongly: promised is less than 5).",
        [
            "5 % matters, 20 pairs",
            "pairs",
            "10 %",
            "pairs",
            "5 %, 40 pairs",
            "pairs",
            "10 %",
            "pairs",
            "wrongly, 10 %",
        ],
    );
    for path in paths {
        let small = |d| d == Outcome::NoDifference;
        let mut cells = [
            path.judged(&LOOKS, 0.0, 5.0, small),
            path.judged(&LOOKS, 0.0, 10.0, small),
            path.judged(&LONG_LOOKS, 0.0, 5.0, small),
            path.judged(&LONG_LOOKS, 0.0, 10.0, small),
            path.judged(&LONG_LOOKS, 10.0, 10.0, small),
        ]
        .concat();
        cells.pop();
        row(doc, path.noise, &cells);
    }
    doc.push('\n');
}

fn planned(doc: &mut String, paths: &[Paths]) {
    heading(
        doc,
        "Do the pairs that a plan names suffice?",
        "The pairs that the formula names for 80 % power at +10 %, from the true deviation, and the power that they have.",
        ["sd, robust", "pairs", "power"],
    );
    for path in paths {
        let all: Vec<f64> = path.pairs(40, 0.0).take(50).flatten().collect();
        let deviation = spread::robust_deviation(&all).unwrap_or(f64::NAN);
        let pairs = power::pairs_for_effect(deviation, 0.10).unwrap_or(u32::MAX);
        let found = match pairs as usize {
            pairs @ ..=40 => path.found(pairs, 10.0),
            _ => "not simulated".to_owned(),
        };
        row(
            doc,
            path.noise,
            &[
                format!("{:.1}", 100.0 * deviation),
                pairs.to_string(),
                found,
            ],
        );
    }
    doc.push('\n');
}

fn arms(doc: &mut String) {
    heading(
        doc,
        "Five arms against a control",
        "Eight blocks in which nothing does anything: experiments in which some arm is found different.",
        ["each arm by itself", "Holm"],
    );
    for noise in Noise::ALL {
        let all: Vec<Vec<f64>> = (0..SLOW_CELL as u64)
            .map(|seed| {
                let values = blocks(noise, seed, 6, 8);
                let against_control = |arm: &Vec<f64>| {
                    let d: Vec<f64> = arm.iter().zip(&values[0]).map(|(b, a)| b - a).collect();
                    signed_rank::p_two_sided(&d)
                };
                values[1..].iter().filter_map(against_control).collect()
            })
            .collect();
        let any = |p: &[f64]| p.iter().any(|p| *p <= ALPHA);
        let cells = [
            share(all.iter().map(|p| any(p))),
            share(all.iter().map(|p| any(&multiple::holm(p)))),
        ];
        row(doc, noise, &cells);
    }
    doc.push('\n');
}

fn searches(doc: &mut String, paths: &[Paths]) {
    heading(
        doc,
        "A search among 16 settings that do nothing",
        "What the winner of successive halving looked like against the control in the search itself, and how often the fresh \
         confirmation says anything of it: it does nothing either, so that is an A/A experiment on runs of its own.",
        [
            "winner looked better by",
            "and \"significant\"",
            "confirmed",
        ],
    );
    for path in paths {
        let seeds = 0..SLOW_CELL as u64;
        let found: Vec<_> = seeds
            .filter_map(|seed| search(path.noise, seed, 16))
            .collect();
        let looked = found.iter().map(|f| f.looked).sum::<f64>() / found.len() as f64;
        let cells = [
            format!("{:+.1}", 100.0 * looked.exp_m1()),
            share(found.iter().map(|f| f.significant)),
            path.judged(&LOOKS, 0.0, 0.0, |d| d != Outcome::NotEnoughData)[0].clone(),
        ];
        row(doc, path.noise, &cells);
    }
    doc.push('\n');
}
