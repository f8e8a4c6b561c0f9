//! Tables of averages, medians and extremes: settings in the first columns, the name of the statistic,
//! and a cell for each of some windows.

use super::table::{Printed, Row, Table};
use super::{Error, Found, and, doubt, percent};
use crate::stats::change::change_point;
use crate::stats::spread::median;
use model::{About, Bytes, Doubt, Outcome, PublishedComparison, Statistics};

/// A setting's column that only bounds what autotuning may choose.
const AUTOTUNING: [&str; 5] = [
    "sendbuf_max",
    "recvbuf_max",
    "tcp_wmem",
    "tcp_rmem",
    "buf_auto",
];
/// One that bounds what may be asked for.
const LIMITS: [&str; 4] = ["maxsockbuf", "rmem_max", "wmem_max", "sb_max"];

/// The rows of one test: its settings and the typical value in each cell.
struct Test<'a> {
    name: String,
    settings: Vec<(&'a str, &'a str)>,
    cells: Vec<f64>,
    line: u64,
}

pub(super) fn of_table(table: &Table) -> Result<Found, Error> {
    let header = table.header();
    let split = header
        .iter()
        .position(|name| name == "statistic")
        .unwrap_or(0);
    let (before, windows) = (&header[..split], &header[(split + 1).min(header.len())..]);
    let tests = tests(table, before, windows)?;
    if tests.len() < 2 || windows.is_empty() {
        return Err(Error::NothingToCompare(
            "its rows are of one test; two are needed to compare".to_owned(),
        ));
    }

    let mut doubts = vec![doubt(
        About::NotRuns,
        "These are statistics, not runs: how many values stand behind each, and whether they are seconds of a few runs (which are no \
         sample), cannot be seen. An interval needs the value of each run; 6 interleaved pairs are the fewest from which a verdict at \
         5 % exists.",
    )];
    doubts.extend(without_effect(&tests, windows));
    doubts.extend(drift(&tests, windows));
    let control = &tests[0];
    let comparisons = tests[1..].iter().map(|test| {
        let values = [control, test].map(|t| median(&t.cells).unwrap_or(0.0));
        PublishedComparison {
            of: String::new(),
            control: control.name.clone(),
            arm: test.name.clone(),
            runs: [0, 0],
            control_value: values[0],
            arm_value: values[1],
            unit: String::new(),
            change_share: (values[0] > 0.0).then(|| values[1] / values[0] - 1.0),
            printed_share: None,
            estimate: None,
            paired: false,
            outcome: Outcome::NoVerdict,
        }
    });
    Ok(Found {
        comparisons: comparisons.collect(),
        statistics: printed(table, before, windows),
        doubts,
    })
}

/// What the table has of each cell, column by column.
fn printed(table: &Table, before: &[String], windows: &[String]) -> Vec<Statistics> {
    let mut all: Vec<Statistics> = Vec::new();
    for window in windows {
        for row in table.rows() {
            let arm = name(table, row, before);
            let same = |one: &Statistics| one.of == *window && one.arm == arm;
            let at = all.iter().position(same).unwrap_or_else(|| {
                all.push(Statistics {
                    of: window.clone(),
                    arm,
                    ..Statistics::default()
                });
                all.len() - 1
            });
            let one = &mut all[at];
            let place = match table.text(row, "statistic").to_lowercase().as_str() {
                "average" | "mean" => &mut one.average,
                "median" => &mut one.median,
                "min" | "minimum" => &mut one.min,
                "max" | "maximum" => &mut one.max,
                _ => continue,
            };
            *place = Printed::read(table.text(row, window)).map(|printed| printed.value);
        }
    }
    all
}

/// A test by the first of its settings.
fn name(table: &Table, row: &Row, before: &[String]) -> String {
    match before.first() {
        Some(column) => format!("{column} {}", table.text(row, column)),
        None => format!("line {}", row.line),
    }
}

/// The tests in the order of the table, each by its medians; by its averages where it has no medians.
fn tests<'a>(
    table: &'a Table,
    before: &'a [String],
    windows: &[String],
) -> Result<Vec<Test<'a>>, Error> {
    let has_medians = table
        .rows()
        .iter()
        .any(|row| table.text(row, "statistic") == "median");
    let wanted = if has_medians { "median" } else { "average" };
    let is_wanted = |row: &&Row| table.text(row, "statistic").eq_ignore_ascii_case(wanted);
    table
        .rows()
        .iter()
        .filter(is_wanted)
        .map(|row| {
            let settings: Vec<(&str, &str)> = before
                .iter()
                .map(|name| (name.as_str(), table.text(row, name)))
                .collect();
            let cells = windows
                .iter()
                .map(|window| Ok(table.amount(row, window)?.value));
            Ok(Test {
                name: name(table, row, before),
                cells: cells.collect::<Result<_, _>>()?,
                settings,
                line: row.line,
            })
        })
        .collect()
}

/// Settings between which the tests differ, that cannot act with the windows of the columns.
fn without_effect(tests: &[Test], windows: &[String]) -> Option<Doubt> {
    let sizes: Vec<Bytes> = windows
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    let largest = *sizes
        .iter()
        .max()
        .filter(|_| sizes.len() == windows.len())?;
    let differing = |at: &usize| {
        tests
            .iter()
            .any(|test| test.settings[*at].1 != tests[0].settings[*at].1)
    };
    // The first column is the number of the test.
    let changed: Vec<usize> = (1..tests[0].settings.len()).filter(differing).collect();
    let names = |of: &[&str]| -> Vec<String> {
        let all = changed.iter().map(|at| tests[0].settings[*at].0);
        all.filter(|name| of.iter().any(|part| name.contains(part)))
            .map(str::to_owned)
            .collect()
    };
    let (inert, limits) = (names(&AUTOTUNING), names(&LIMITS));
    if inert.is_empty() {
        return None;
    }
    let mut words = format!(
        "An explicit window ({} and so on) switches autotuning off, so {} cannot act.",
        windows[0],
        and(&inert)
    );
    let above = |test: &Test| {
        let limits = test
            .settings
            .iter()
            .filter(|(name, _)| limits.iter().any(|l| l == name));
        limits
            .filter_map(|(_, value)| value.parse::<Bytes>().ok())
            .all(|limit| limit >= largest)
    };
    let limits_do_nothing = tests.iter().all(above);
    if limits_do_nothing && !limits.is_empty() {
        words.push_str(&format!(
            " {} is never below the largest window ({largest}), so it changes nothing either.",
            and(&limits)
        ));
    }
    if limits_do_nothing && inert.len() + limits.len() == changed.len() {
        let letters = vec!["A"; tests.len()].join("/");
        words.push_str(&format!(
            " The tests compare the same setting with itself ({letters}): what differs between them is the path."
        ));
    }
    Some(doubt(About::NotInForce, words))
}

/// Where the level moves in the order of the table, and whether a setting changed there.
fn drift(tests: &[Test], windows: &[String]) -> Option<Doubt> {
    let series: Vec<f64> = tests
        .iter()
        .flat_map(|test| test.cells.iter().copied())
        .collect();
    let found = change_point(&series).filter(|found| found.p < 0.05)?;
    let (test, cell) = (
        (found.after - 1) / windows.len(),
        (found.after - 1) % windows.len(),
    );
    let place = format!("after the {} cell of {}", windows[cell], tests[test].name);
    let shift = percent(found.after_median / found.before_median - 1.0);
    let words = if cell + 1 == windows.len() {
        format!(
            "In the order of the table the level moves once ({shift}), {place}: just where the settings change, but the tests were made \
             one after another, so the path may have changed there as well."
        )
    } else {
        format!(
            "In the order of the table the level moves once ({shift}), {place}, and not where a setting changes (line {}): a path that \
             drifts looks like this, a setting does not. Tests made one after another cannot tell the two apart.",
            tests[test].line
        )
    };
    Some(doubt(About::Drift, words))
}
