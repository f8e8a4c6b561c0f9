//! Analysis of published numbers: a table, or runs without a common plan.

use crate::{Estimate, Outcome};
use serde::{Deserialize, Serialize};

/// The analysis of some published numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Where they come from: a file's name, as the user gave it.
    pub name: String,
    /// Equivalence margin as a share.
    pub margin_share: f64,
    /// The differences, derived again.
    pub comparisons: Vec<PublishedComparison>,
    /// What was published of each arm, in the order of the numbers.
    #[serde(default)]
    pub statistics: Vec<Statistics>,
    /// What is wrong with the numbers, or cannot be known from them; the gravest first.
    pub doubts: Vec<PublishedDoubt>,
}

impl Published {
    /// The answer to all.
    pub fn outcome(&self) -> Outcome {
        let all = self.comparisons.iter().map(|one| one.outcome);
        all.min().unwrap_or(Outcome::NoVerdict)
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedComparison {
    /// Of what, where the numbers are of several things: `table 1, write`. Empty if not.
    pub of: String,
    /// What it is compared with.
    pub control: String,
    /// What is compared.
    pub arm: String,
    /// Runs of the control and of the arm; 0 where not reported.
    pub runs: [u32; 2],
    /// The typical value of the control, as printed.
    pub control_value: f64,
    /// The typical value of the arm, as printed.
    pub arm_value: f64,
    /// The unit of both, if it is known.
    pub unit: String,
    /// The change of speed from the typical values: a description, never a finding.
    pub change_share: Option<f64>,
    /// The change as the author printed it.
    pub printed_share: Option<f64>,
    /// The change with its interval; `None` where the runs are too few for one.
    pub estimate: Option<Estimate>,
    /// The runs were paired by their block.
    pub paired: bool,
    /// Outcome of the figures: `faster`, `slower`, `no_difference`, `not_enough_data`, or
    /// `no_verdict` where no interval exists.
    pub outcome: Outcome,
}

/// What was published of an arm, in the unit of the comparisons; one value alone is an average.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Of what, where the numbers are of several things: a column of a table. Empty if not.
    pub of: String,
    /// The arm.
    pub arm: String,
    /// Arithmetic mean, in the `unit` of the comparisons; a single value is its own mean.
    pub average: Option<f64>,
    /// Median.
    pub median: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// A caveat about the numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedDoubt {
    /// What kind.
    pub about: About,
    /// What was found, and what it means; one to three sentences.
    pub words: String,
}

/// What a doubt is about, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// A treatment was visibly not in force, or could not act.
    NotInForce,
    /// The printed difference is not that of the printed values; rows may be swapped.
    WrongDifference,
    /// One run a side: there is no interval.
    OneRun,
    /// Not runs but seconds, or statistics of them.
    NotRuns,
    /// The level moved, and not where the setting changed.
    Drift,
    /// More than the setting changed.
    Confounded,
    /// MB or Mbit, 1000 or 1024.
    Units,
    /// The order of the runs was not drawn at random.
    Order,
}
