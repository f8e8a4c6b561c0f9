//! Other people's numbers: derived again, and doubted where they must be.
//!
//! A table is told by the names of its columns:
//! - `arm`, `value...` and perhaps `block`: one run a row;
//! - `setting_a`, `value_a...`, `setting_b`, `value_b...`: one difference a row;
//! - `configuration` and a rate: one measurement a row, with what iperf printed beside it;
//! - `statistic`: averages, medians and extremes of cells.
//!
//! Names of columns carry units: `value_mbits_per_s`, `value_mb_per_s`, `value_ms`.

mod configurations;
mod differences;
mod runs;
mod statistics;
mod table;
mod units;

pub use runs::{RunsOfArm, of_runs};

use model::{About, Doubt, Published, PublishedComparison, Statistics};
use table::Table;

/// Why numbers could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is no table.
    #[error("it is not a table in CSV: {0}")]
    NotCsv(String),
    /// A bound was passed.
    #[error("it has more than {most} {what}; runs are counted here, not their seconds")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How much is taken.
        most: usize,
    },
    /// The columns are of none of the known kinds.
    #[error(
        "its columns ({found}) are of no kind that can be read: one run a row has the columns arm,value (and block, where runs were paired)"
    )]
    UnknownColumns {
        /// Their names.
        found: String,
    },
    /// A cell has no number where one is needed.
    #[error("line {line}: '{text}' in the column {column} is not {expected}")]
    NoNumber {
        /// Line in the file.
        line: u64,
        /// Name of the column.
        column: String,
        /// What stands there.
        text: String,
        /// What should.
        expected: &'static str,
    },
    /// There is nothing to compare.
    #[error("{0}")]
    NothingToCompare(String),
}

/// Reads a table and says what can be said of it. `margin` is the smallest change that matters, as a
/// share.
///
/// # Errors
/// If it is no such table: what is wrong and where.
pub fn of_table(name: &str, text: &str, margin: f64) -> Result<Published, Error> {
    let table = Table::read(text)?;
    let Found {
        comparisons,
        statistics,
        mut doubts,
    } = if table.has("arm") && table.starting("value").is_some() {
        runs::of_table(&table, margin)?
    } else if table.has("setting_a") && table.has("setting_b") {
        differences::of_table(&table)?
    } else if table.has("configuration") {
        configurations::of_table(&table, margin)?
    } else if table.has("statistic") {
        statistics::of_table(&table)?
    } else {
        return Err(Error::UnknownColumns {
            found: table.header().join(", "),
        });
    };
    doubts.sort_by_key(|doubt| doubt.about);
    Ok(Published {
        name: name.to_owned(),
        margin_share: margin,
        comparisons,
        statistics,
        doubts,
    })
}

/// What a table of one kind says.
struct Found {
    comparisons: Vec<PublishedComparison>,
    statistics: Vec<Statistics>,
    doubts: Vec<Doubt>,
}

fn doubt(about: About, words: impl Into<String>) -> Doubt {
    Doubt {
        about,
        words: words.into(),
    }
}

/// A change in per cent: `+3.31 %`.
fn percent(share: f64) -> String {
    format!("{:+.2} %", 100.0 * share)
}

/// `a`, `a and b`, `a, b and c`.
fn and(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}
