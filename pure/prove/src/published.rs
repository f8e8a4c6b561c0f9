//! Published numbers, or runs that nobody planned as one experiment: is the difference larger than the
//! noise, and what speaks against believing it?
//!
//! A table has one run a row: its `arm` (or `configuration`), a value, and a `block` where runs were paired.
//! Names of columns carry units: `value_mbits_per_s`, `value_mb_per_s`, `value_ms`.

mod runs;
mod table;

pub use runs::{RunsOfArm, of_runs};

use crate::looks;
use crate::stats::change::change_point;
use crate::stats::decision::decide;
use crate::stats::total::mean;
use crate::stats::{ALPHA, IntervalEstimate, rank_sum, signed_rank};
use model::stats::{median, signed_percent};
use model::{About, Outcome, Published, PublishedComparison, PublishedDoubt, Statistics};
use std::collections::BTreeMap;
use table::ColumnUnit;

/// Values of one arm that are accepted at most: more are no runs.
const MOST: usize = 1_000;
/// From this many values on neighbours can be compared.
const FEWEST_FOR_SECONDS: usize = 20;
/// A shift of the level is reported if noise shows one as clear in fewer series than this.
const DRIFT: f64 = 0.05;

/// Why numbers could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is no table.
    #[error("it is not a table in CSV: {0}")]
    NotCsv(String),
    /// A cell has no number where one is needed: its line, column and content.
    #[error("line {0}: '{2}' in the column {1} is not a number of at least 0")]
    NoNumber(u64, String, String),
    /// Nothing in it can be compared.
    #[error("{0}")]
    NothingToCompare(String),
}

/// Reads a table and judges it. `margin` is the equivalence margin, as a share.
///
/// # Errors
/// If it is no such table: what is wrong and where.
pub fn of_table(name: &str, text: &str, margin: f64) -> Result<Published, Error> {
    let (names, entries, unit) = table::read(text)?;
    let mut found = compare(&names, &entries, unit, margin)?;
    found
        .doubts
        .extend(names.iter().filter_map(several_settings));
    Ok(found.published(name, margin))
}

struct PublishedFindings {
    comparisons: Vec<PublishedComparison>,
    statistics: Vec<Statistics>,
    doubts: Vec<PublishedDoubt>,
}

impl PublishedFindings {
    fn published(mut self, name: &str, margin: f64) -> Published {
        self.doubts.sort_by_key(|doubt| doubt.about);
        Published {
            name: name.to_owned(),
            margin_share: margin,
            comparisons: self.comparisons,
            statistics: self.statistics,
            doubts: self.doubts,
        }
    }

    /// Takes the verdict of those comparisons back whose arms are concerned.
    fn withdraw(&mut self, concerns: impl Fn(&PublishedComparison) -> bool) {
        for one in self.comparisons.iter_mut().filter(|one| concerns(one)) {
            (one.outcome, one.estimate) = (Outcome::NoVerdict, None);
        }
    }
}

fn nothing<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::NothingToCompare(why.into()))
}

fn doubt(about: About, words: impl Into<String>) -> PublishedDoubt {
    PublishedDoubt {
        about,
        words: words.into(),
    }
}

/// A run: its arm by number, and the name of its block.
struct PublishedEntry {
    arm: usize,
    block: Option<String>,
    value: f64,
}

/// Compares each arm with the first; `entries` are in the order of time, or of the table.
fn compare(
    names: &[String],
    entries: &[PublishedEntry],
    unit: ColumnUnit,
    margin: f64,
) -> Result<PublishedFindings, Error> {
    if let [only] = names {
        return nothing(format!(
            "all its rows are of '{only}'; two arms are needed to compare"
        ));
    }
    let values = |arm: usize| -> Vec<f64> {
        let of_arm = entries.iter().filter(|e| e.arm == arm);
        of_arm.map(|e| e.value).collect()
    };
    let arms: Vec<Vec<f64>> = (0..names.len()).map(values).collect();
    if arms.iter().any(|values| values.len() > MOST) {
        return nothing(format!(
            "it has more than {MOST} values of one arm; runs are counted here, not their seconds"
        ));
    }
    let blocks = pairs(entries, arms.len());
    // Bonferroni: all intervals together hold 5 %.
    let level = ALPHA / (arms.len() - 1) as f64;
    let comparisons: Vec<PublishedComparison> = (1..arms.len())
        .map(|arm| {
            let estimate = match &blocks {
                Some(blocks) => of_pairs(blocks, arm, unit, level),
                None => {
                    let speeds = |of: usize| arms[of].iter().map(|v| speed(*v, unit)).collect();
                    let [control, own]: [Vec<f64>; 2] = [speeds(0), speeds(arm)];
                    rank_sum::shift(&control, &own, level)
                }
            };
            let typical = [0, arm].map(|of| median(&arms[of]).unwrap_or(0.0));
            PublishedComparison {
                runs: [0, arm].map(|of| arms[of].len() as u32),
                estimate: estimate.map(|e| looks::share(e.value, e.interval, 1.0 - level)),
                paired: blocks.is_some(),
                outcome: estimate
                    .map_or(Outcome::NoVerdict, |e| decide(e.interval, margin.ln_1p()).0),
                ..described([&names[0], &names[arm]], typical, unit)
            }
        })
        .collect();
    let seconds: Vec<PublishedDoubt> = names.iter().zip(&arms).filter_map(seconds).collect();
    let mut doubts = vec![order(arms.len(), entries, blocks.is_some())];
    doubts.extend(single_runs(names, &arms));
    doubts.extend(comparisons.iter().filter_map(units));
    doubts.extend(drift(&arms, entries));
    let mut found = PublishedFindings {
        comparisons,
        statistics: names.iter().zip(&arms).map(statistics_of).collect(),
        doubts,
    };
    if !seconds.is_empty() {
        found.withdraw(|_| true);
        found.doubts.extend(seconds);
    }
    Ok(found)
}

/// The two values and their change, without a verdict.
fn described(names: [&String; 2], values: [f64; 2], unit: ColumnUnit) -> PublishedComparison {
    let [control, arm] = values;
    let ratio = match unit.is_time {
        true => control / arm,
        false => arm / control,
    };
    PublishedComparison {
        of: String::new(),
        control: names[0].clone(),
        arm: names[1].clone(),
        runs: [0, 0],
        control_value: control,
        arm_value: arm,
        unit: unit.name.to_owned(),
        change_share: ratio.is_finite().then_some(ratio - 1.0),
        estimate: None,
        paired: false,
        outcome: Outcome::NoVerdict,
    }
}

fn statistics_of((name, values): (&String, &Vec<f64>)) -> Statistics {
    // One value has no median of its own, and no extremes.
    let several = |of: Option<f64>| of.filter(|_| values.len() > 1);
    Statistics {
        arm: name.clone(),
        average: mean(values),
        median: several(median(values)),
        min: several(values.iter().copied().reduce(f64::min)),
        max: several(values.iter().copied().reduce(f64::max)),
    }
}

/// The values of each block, one an arm; `None` unless each block has one of each arm.
fn pairs(entries: &[PublishedEntry], arms: usize) -> Option<Vec<Vec<f64>>> {
    let mut blocks: BTreeMap<&str, Vec<Option<f64>>> = BTreeMap::new();
    for entry in entries {
        let block = blocks
            .entry(entry.block.as_deref()?)
            .or_insert_with(|| vec![None; arms]);
        if block[entry.arm].replace(entry.value).is_some() {
            return None;
        }
    }
    let whole = |block: Vec<Option<f64>>| block.into_iter().collect();
    blocks.into_values().map(whole).collect()
}

fn of_pairs(
    blocks: &[Vec<f64>],
    arm: usize,
    unit: ColumnUnit,
    level: f64,
) -> Option<IntervalEstimate> {
    let difference = |block: &Vec<f64>| speed(block[arm], unit) - speed(block[0], unit);
    let d: Vec<f64> = blocks.iter().map(difference).collect();
    let critical = signed_rank::critical_value(u32::try_from(d.len()).ok()?, level)?;
    Some(IntervalEstimate {
        value: signed_rank::hodges_lehmann(&d)?,
        interval: signed_rank::interval(&d, critical)?,
    })
}

/// The logarithm of a speed. A run that moved nothing is the slowest of all, and is not left out.
fn speed(value: f64, unit: ColumnUnit) -> f64 {
    let log = value.max(f64::MIN_POSITIVE).ln();
    if unit.is_time { -log } else { log }
}

// ---- doubts ----

/// Several settings that were changed at once.
fn several_settings(name: &String) -> Option<PublishedDoubt> {
    let settings = name.split_whitespace().filter(|word| word.contains('='));
    let count = settings.count();
    let words =
        format!("'{name}' changes {count} settings at once: which of them matters is unknown.");
    (count > 1).then(|| doubt(About::Confounded, words))
}

fn single_runs(names: &[String], arms: &[Vec<f64>]) -> Option<PublishedDoubt> {
    let all = names.iter().zip(arms);
    let alone = all.filter(|(_, values)| values.len() == 1);
    let alone: Vec<String> = alone.map(|(name, _)| format!("'{name}'")).collect();
    let words = format!(
        "There is one run of {}: without a spread no interval exists, so nothing can be said of the difference. Four runs a side \
         are the fewest, six pairs in random order are better.",
        alone.join(" and ")
    );
    (!alone.is_empty()).then(|| doubt(About::OneRun, words))
}

/// A ratio that looks like two units: both of MB and Mbit.
fn units(one: &PublishedComparison) -> Option<PublishedDoubt> {
    let ratio = one.arm_value / one.control_value;
    let local = |ratio: f64| (ratio / 8.0 - 1.0).abs() < 0.06;
    let words = format!(
        "'{}' and '{}': one is about 8 times the other, as where MB and Mbit are compared.",
        one.control, one.arm
    );
    (local(ratio) || local(1.0 / ratio)).then(|| doubt(About::Units, words))
}

/// What is known of the order in which the runs were made.
fn order(arms: usize, entries: &[PublishedEntry], is_paired: bool) -> PublishedDoubt {
    let turns = entries.windows(2).filter(|e| e[0].arm != e[1].arm);
    let turns = turns.count();
    let words = if is_paired {
        "Whether the order within the blocks was drawn at random is not known: if one arm always came first, its place is mistaken for \
         its effect."
    } else if turns + 1 == arms {
        "All runs of one arm stand before all of the next. If they were made in that order, any other change of the path is mistaken for \
         the effect: up to 61 % of such comparisons of a setting with itself find one. The interval does not contain this."
    } else {
        "The runs are not paired, and their order was not drawn at random as far as is known: drift of the path widens the interval, or \
         moves it."
    };
    doubt(About::Order, words)
}

/// A shift of the level in all arms together.
fn drift(arms: &[Vec<f64>], entries: &[PublishedEntry]) -> Option<PublishedDoubt> {
    let medians: Vec<f64> = arms.iter().filter_map(median).collect();
    let rest: Vec<f64> = entries
        .iter()
        .filter_map(|e| Some(e.value - medians.get(e.arm)?))
        .collect();
    let found = change_point(&rest).filter(|found| found.p < DRIFT)?;
    let typical = median(&medians).filter(|m| *m > 0.0)?;
    let words = format!(
        "After value {} of {} the level moves by about {} in all arms together: the path changed during the measurement.",
        found.after,
        entries.len(),
        signed_percent((found.after_median - found.before_median) / typical)
    );
    Some(doubt(About::Drift, words))
}

/// Neighbouring values that resemble each other, as the seconds of one run do.
fn seconds((name, values): (&String, &Vec<f64>)) -> Option<PublishedDoubt> {
    let n = values.len();
    let mean = mean(values).filter(|_| n >= FEWEST_FOR_SECONDS)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let neighbours = values.windows(2).map(|v| (v[0] - mean) * (v[1] - mean));
    let correlation = neighbours.sum::<f64>() / squares;
    let words = format!(
        "The {n} values of '{name}' resemble their neighbours (correlation {correlation:.2}). If they are seconds of a run, the \
         run is one value: no interval can be given."
    );
    // Three standard errors of the correlation of independent values.
    (correlation > 3.0 / (n as f64).sqrt()).then(|| doubt(About::NotRuns, words))
}
