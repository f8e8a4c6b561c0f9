//! Published numbers, or runs that nobody planned as one experiment: is the difference larger than the
//! noise, and what speaks against believing it?
//!
//! The columns of a table say what its rows are:
//! - `arm` or `configuration`, a value, and perhaps `block`: one run a row;
//! - `setting_a`, `value_a...`, `setting_b`, `value_b...`, perhaps `printed_difference...`: one
//!   difference a row;
//! - `statistic`: averages, medians and extremes of the columns behind it.
//!
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
use model::{About, Bytes, Outcome, Published, PublishedComparison, PublishedDoubt, Statistics};
use std::collections::BTreeMap;
use table::{ColumnUnit, Printed, PublishedTable, Row, line_of, unit_of};

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
    let table = PublishedTable::read(text)?;
    let found = if table.has("setting_a") && table.has("setting_b") {
        differences(&table)?
    } else if table.has("statistic") {
        statistics(&table)?
    } else {
        rows_of_runs(&table, margin)?
    };
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

// ---- one run a row ----

struct PublishedEntry<'a> {
    arm: usize,
    block: Option<&'a str>,
    value: f64,
}

fn rows_of_runs(table: &PublishedTable, margin: f64) -> Result<PublishedFindings, Error> {
    let arm = ["arm", "configuration"].into_iter().find(|c| table.has(c));
    let (Some(arm_column), Some(column)) = (arm, table.values()) else {
        return nothing(format!(
            "its columns ({}) are of no kind that can be read: one run a row has the columns arm,value (and block, where runs were \
             paired)",
            table.header.join(", ")
        ));
    };
    let mut names: Vec<String> = Vec::new();
    let mut entries = Vec::new();
    for row in &table.rows {
        let name = table.text(row, arm_column);
        let known = names.iter().position(|known| known == name);
        let arm = known.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        let block = table.has("block").then(|| table.text(row, "block"));
        let value = table.amount(row, column)?.value;
        entries.push(PublishedEntry { arm, block, value });
    }
    let mut found = compare(&names, &entries, unit_of(column), margin)?;
    found
        .doubts
        .extend(names.iter().filter_map(several_settings));
    for (name, words) in windows_not_in_force(table, arm_column) {
        found.withdraw(|one| one.control == name || one.arm == name);
        found.doubts.push(doubt(About::NotInForce, words));
    }
    Ok(found)
}

/// Compares each arm with the first; `entries` are in the order of time, or of the table.
fn compare(
    names: &[String],
    entries: &[PublishedEntry<'_>],
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
        printed_share: None,
        estimate: None,
        paired: false,
        outcome: Outcome::NoVerdict,
    }
}

fn statistics_of((name, values): (&String, &Vec<f64>)) -> Statistics {
    // One value has no median of its own, and no extremes.
    let several = |of: Option<f64>| of.filter(|_| values.len() > 1);
    Statistics {
        of: String::new(),
        arm: name.clone(),
        average: mean(values),
        median: several(median(values)),
        min: several(values.iter().copied().reduce(f64::min)),
        max: several(values.iter().copied().reduce(f64::max)),
    }
}

/// The values of each block, one an arm; `None` unless each block has one of each arm.
fn pairs(entries: &[PublishedEntry<'_>], arms: usize) -> Option<Vec<Vec<f64>>> {
    let mut blocks: BTreeMap<&str, Vec<Option<f64>>> = BTreeMap::new();
    for entry in entries {
        let block = blocks
            .entry(entry.block?)
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

/// Names of settings that request a buffer or window of a size.
const SIZES: &str = "sendspace recvspace sndbuf rcvbuf sockbuf wmem rmem";

/// Configurations whose window, as iperf2 prints it, is at most half of what they request: the kernel may round
/// and double it, no more. `the same ...` requests what the row before does.
fn windows_not_in_force(table: &PublishedTable, arm: &str) -> Vec<(String, String)> {
    let Some(column) = table.header.iter().find(|name| name.contains("window")) else {
        return Vec::new();
    };
    let mut before: Option<(&str, Bytes)> = None;
    let not_in_force = |row| {
        let name: &str = table.text(row, arm);
        let asked = name
            .split_whitespace()
            .filter_map(|word| word.split_once('='));
        let is_size =
            |key: &str| SIZES.split(' ').any(|size| key.contains(size)) && !key.contains("max");
        let sizes = asked.filter_map(|(key, value)| Some((key, value.parse().ok()?)));
        let own = sizes
            .filter(|(key, _)| is_size(key))
            .max_by_key(|(_, size)| *size);
        before = own.or(before.filter(|_| name.contains("the same")));
        let (key, asked) = before?;
        // KByte is 1024 bytes there.
        let printed = table.text(row, column);
        let window: Bytes = printed.to_uppercase().replace("BYTE", "B").parse().ok()?;
        let words = format!(
            "'{name}' requests {key} of {asked}, and the printed window is {printed}: it was not in force."
        );
        (window.0.saturating_mul(2) <= asked.0).then(|| (name.to_owned(), words))
    };
    table.rows.iter().filter_map(not_in_force).collect()
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
    let subject = match one.of.as_str() {
        "" => format!("'{}' and '{}'", one.control, one.arm),
        of => of.to_owned(),
    };
    let words = "one is about 8 times the other, as where MB and Mbit are compared";
    let found = local(ratio) || local(1.0 / ratio);
    found.then(|| doubt(About::Units, format!("{subject}: {words}.")))
}

/// What is known of the order in which the runs were made.
fn order(arms: usize, entries: &[PublishedEntry<'_>], is_paired: bool) -> PublishedDoubt {
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
fn drift(arms: &[Vec<f64>], entries: &[PublishedEntry<'_>]) -> Option<PublishedDoubt> {
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

// ---- one difference a row ----

/// A row: two values, and the difference that was printed beside them.
struct PrintedDifference {
    table: String,
    name: String,
    settings: [String; 2],
    values: [Printed; 2],
    share: f64,
    printed: Option<Printed>,
}

fn differences(table: &PublishedTable) -> Result<PublishedFindings, Error> {
    let (Some(a), Some(b)) = (table.starting("value_a"), table.starting("value_b")) else {
        return nothing("it has setting_a and setting_b, but no columns value_a and value_b");
    };
    let rows = table.rows.iter().map(|row| difference(table, row, [a, b]));
    let all: Vec<PrintedDifference> = rows.collect::<Result<_, _>>()?;
    let unit = unit_of(a);
    let compared = |d: &PrintedDifference| PublishedComparison {
        of: d.name.clone(),
        runs: [1, 1],
        printed_share: d.printed.map(|p| p.value / 100.0),
        ..described(d.settings.each_ref(), d.values.map(|v| v.value), unit)
    };
    let comparisons: Vec<PublishedComparison> = all.iter().map(compared).collect();
    let mut doubts = wrong(&all);
    doubts.push(doubt(
        About::OneRun,
        "Each value is one figure without a spread: no interval exists, so no row can be judged, whatever its difference.",
    ));
    doubts.extend(comparisons.iter().filter_map(units));
    doubts.extend(other_baselines(&all));
    if unit_of(a).name != unit_of(b).name {
        let words = format!("{a} and {b} are in different units.");
        doubts.push(doubt(About::Units, words));
    }
    let value = |d: &PrintedDifference, side: usize| Statistics {
        of: d.name.clone(),
        arm: d.settings[side].clone(),
        average: Some(d.values[side].value),
        ..Statistics::default()
    };
    Ok(PublishedFindings {
        statistics: all
            .iter()
            .flat_map(|d| [value(d, 0), value(d, 1)])
            .collect(),
        comparisons,
        doubts,
    })
}

fn difference(
    table: &PublishedTable,
    row: &Row,
    columns: [&str; 2],
) -> Result<PrintedDifference, Error> {
    let [a, b] = columns.map(|column| table.amount(row, column));
    let values = [a?, b?];
    if values[0].value == 0.0 {
        let line = line_of(row);
        return nothing(format!("line {line}: nothing can be compared with 0"));
    }
    let printed = table.starting("printed_difference");
    let (of, operation) = (table.text(row, "table"), table.text(row, "operation"));
    Ok(PrintedDifference {
        table: of.to_owned(),
        name: match (of, operation) {
            ("", operation) => operation.to_owned(),
            (of, "") => format!("table {of}"),
            (of, operation) => format!("table {of}, {operation}"),
        },
        settings: ["setting_a", "setting_b"].map(|column| table.text(row, column).to_owned()),
        values,
        share: values[1].value / values[0].value - 1.0,
        printed: printed.and_then(|column| Printed::read(table.text(row, column))),
    })
}

impl PrintedDifference {
    /// True if this printed difference is that of these values, but for rounding.
    fn explains(&self, printed: Printed) -> bool {
        let [a, b] = self.values;
        let digits = a.half / a.value + b.half / b.value.max(f64::MIN_POSITIVE);
        let rounding = 100.0 * (1.0 + self.share) * digits + printed.half;
        (printed.value - 100.0 * self.share).abs() <= rounding
    }
}

/// Rows whose printed difference is not that of their values: of each other's, or of none.
fn wrong(all: &[PrintedDifference]) -> Vec<PublishedDoubt> {
    let printed = |d: &PrintedDifference| d.printed.filter(|p| !d.explains(*p));
    let wrong = all.iter().filter_map(|d| Some((d, printed(d)?)));
    let wrong: Vec<(&PrintedDifference, Printed)> = wrong.collect();
    let mut doubts = Vec::new();
    let mut swapped = vec![false; wrong.len()];
    for (at, (one, printed)) in wrong.iter().enumerate() {
        if swapped[at] {
            continue;
        }
        let values = format!("The values of {} give {}", one.name, as_printed(one.share));
        let swap = (at + 1..wrong.len()).find(|&other| {
            let (other, others) = wrong[other];
            one.table == other.table && one.explains(others) && other.explains(*printed)
        });
        let words = match swap {
            Some(other) => {
                swapped[other] = true;
                let (other, others) = wrong[other];
                let (name, share) = (&other.name, as_printed(other.share));
                let (one, two) = (printed.value, others.value);
                format!(
                    "{values}, those of {name} give {share}; printed are {one:+} % and {two:+} %: the printed differences are swapped."
                )
            }
            None => format!("{values}; printed is {:+} %.", printed.value),
        };
        doubts.push(doubt(About::WrongDifference, words));
    }
    doubts
}

/// The same operation that starts from another level in another table: more than the setting differed.
fn other_baselines(all: &[PrintedDifference]) -> Option<PublishedDoubt> {
    /// Baselines further apart than this are not of one path and workload.
    const APART: f64 = 1.2;
    let pairs = all.iter().enumerate();
    let mut pairs = pairs.flat_map(|(at, one)| all[at + 1..].iter().map(move |other| (one, other)));
    let (one, other) = pairs.find(|(one, other)| {
        let [a, b] = [one, other].map(|of| of.values[0].value);
        let same = one.table != other.table && operation(one) == operation(other);
        same && a.max(b) > APART * a.min(b)
    })?;
    let words = format!(
        "{} starts from {} and {} from {}: something else differed as well, so the differences of the two tables do not compare.",
        one.name, one.values[0].value, other.name, other.values[0].value
    );
    Some(doubt(About::Confounded, words))
}

fn operation(of: &PrintedDifference) -> &str {
    of.name.rsplit_once(", ").unwrap_or_default().1
}

// ---- statistics instead of runs ----

fn statistics(table: &PublishedTable) -> Result<PublishedFindings, Error> {
    let at = table.header.iter().position(|name| name == "statistic");
    let (settings, windows) = table.header.split_at(at.unwrap_or(0));
    let windows = &windows[1..];
    let mut all: Vec<Statistics> = Vec::new();
    for window in windows {
        for row in &table.rows {
            let arm = match settings.first() {
                Some(column) => format!("{column} {}", table.text(row, column)),
                None => format!("line {}", line_of(row)),
            };
            let mut known = all.iter();
            let known = known.position(|one| one.of == *window && one.arm == arm);
            let at = known.unwrap_or(all.len());
            if at == all.len() {
                all.push(Statistics {
                    of: window.clone(),
                    arm,
                    ..Statistics::default()
                });
            }
            let one = &mut all[at];
            let place = match table.text(row, "statistic").to_lowercase().as_str() {
                "average" | "mean" => &mut one.average,
                "median" => &mut one.median,
                "min" | "minimum" => &mut one.min,
                "max" | "maximum" => &mut one.max,
                _ => continue,
            };
            *place = Some(table.amount(row, window)?.value);
        }
    }
    let tests = all.len() / windows.len().max(1);
    if tests < 2 {
        return nothing("its rows are of one test; two are needed to compare");
    }
    // The cells of each test, in the order of the columns.
    let typical = |one: &Statistics| one.median.or(one.average).unwrap_or(0.0);
    let cells: Vec<Vec<f64>> = (0..tests)
        .map(|test| all[test..].iter().step_by(tests).map(typical).collect())
        .collect();
    let level = |test: usize| median(&cells[test]).unwrap_or(0.0);
    let name = |test: usize| &all[test].arm;
    let compared = |test| {
        let values = [level(0), level(test)];
        described([name(0), name(test)], values, unit_of(""))
    };
    let mut doubts = vec![doubt(
        About::NotRuns,
        "These are statistics, not runs: how many values stand behind each, and whether they are seconds of a few runs (which are no \
         sample), cannot be seen. An interval needs the value of each run; 6 interleaved pairs are the fewest from which a verdict at \
         5 % exists.",
    )];
    doubts.extend(moved(&cells.concat(), windows, name));
    Ok(PublishedFindings {
        comparisons: (1..tests).map(compared).collect(),
        doubts,
        statistics: all,
    })
}

/// Where the level moves in the order of the table, and whether a setting changed there.
fn moved<'a>(
    series: &[f64],
    windows: &[String],
    name: impl Fn(usize) -> &'a String,
) -> Option<PublishedDoubt> {
    let found = change_point(series).filter(|found| found.p < DRIFT)?;
    let last = found.after - 1;
    let (test, cell) = (last / windows.len(), last % windows.len());
    let why = if cell + 1 == windows.len() {
        "just where the settings change, but the tests were made one after another, so the path may have changed there as well"
    } else {
        "and not where a setting changes: a path that drifts looks like this, a setting does not, and tests made one after another \
         cannot separate the two"
    };
    let words = format!(
        "In the order of the table the level moves once ({}), after the {} cell of {}, {why}.",
        signed_percent(found.after_median / found.before_median - 1.0),
        windows[cell],
        name(test)
    );
    Some(doubt(About::Drift, words))
}

/// A change to compare with a printed one, to a hundredth of a per cent.
fn as_printed(share: f64) -> String {
    format!("{:+.2} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_neighbouring_seconds_resemble_each_other() {
        let words = |values: Vec<f64>| seconds((&"x".to_owned(), &values)).map(|doubt| doubt.words);
        // Half of them low, half high: (n - 3) / n.
        let halves = |n: usize| {
            (0..n)
                .map(|at| if at < n / 2 { 1.0 } else { 2.0 })
                .collect::<Vec<f64>>()
        };
        let found = words(halves(20)).unwrap();
        assert!(
            found.contains("The 20 values") && found.contains("correlation 0.85"),
            "{found}"
        );
        assert_eq!(words(halves(19)), None);
        assert_eq!(words((0..20).map(|at| f64::from(at % 2)).collect()), None);
    }

    #[test]
    fn two_settings_at_once_are_confounded() {
        let words = |name: &str| several_settings(&name.to_owned()).map(|doubt| doubt.words);
        assert_eq!([words("baseline"), words("mtu=9000 jumbo")], [None, None]);
        assert!(
            words("mtu=9000 tso=off")
                .unwrap()
                .contains("changes 2 settings")
        );
    }

    #[test]
    fn a_level_that_moves_at_the_end_of_a_test_moves_where_the_settings_change() {
        let windows = ["1".to_owned(), "2".to_owned()];
        let name = "a".to_owned();
        let moves = |at: usize| {
            let series: Vec<f64> = (0..40)
                .map(|n| if n < at { 1.0 } else { 2.0 } + f64::from(n as u32 % 3) / 100.0)
                .collect();
            moved(&series, &windows, |_| &name)
                .map(|doubt| doubt.words.contains("just where the settings change"))
        };
        assert_eq!([moves(20), moves(21)], [Some(true), Some(false)]);
    }
}
