//! The results of an experiment, all derived from its runs.
//!
//! Effects are shares of speed: 0.124 is 12.4 % more per second, or, where the metric is a time,
//! that time divided by 1.124. More is always better. Intervals are exact (95 % unless a `level`
//! says otherwise).

use crate::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The verdict on an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The answer to the whole plan.
    pub outcome: Outcome,
    /// True if no further run is needed: a look decided, or the last one is done.
    pub settled: bool,
    /// Each arm against the control: one entry for pairs and for a search, none for a factorial.
    pub comparisons: Vec<Comparison>,
    /// Main effects, then interactions (factorial design only).
    pub effects: Vec<FactorEffect>,
    /// What the rounds of a search did.
    pub search: Option<SearchStory>,
    /// What was checked before a verdict was given.
    pub gates: Vec<Gate>,
    /// The classic table, one entry an arm.
    pub arms: Vec<ArmTable>,
    /// The pilot, where there was one.
    pub pilot: Option<Pilot>,
    /// The second run of a pair against the first, over all complete pairs; `None` without any.
    pub position: Option<Estimate>,
    /// Where the level of all runs shifted.
    pub change_points: Vec<ChangePoint>,
    /// Runs far from the others.
    pub outliers: Vec<Outlier>,
    /// Blocks that were interrupted, and are not judged.
    pub half_blocks: u32,
    /// From the first run's start to the last one's end.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
}

/// The five answers. Of several comparisons the first of these is the answer to all, unless a gate failed:
/// then it is `NoVerdict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The interval lies above zero.
    Faster,
    /// None of the others.
    NotEnoughData,
    /// The interval lies between the margins.
    NoDifference,
    /// The interval lies below zero.
    Slower,
    /// A gate failed: whatever the figures are, they do not answer the question.
    NoVerdict,
}

/// An effect with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Best estimate of the change of speed: 0.12 is 12 % faster.
    pub effect_share: f64,
    /// Lower end of the interval.
    pub low_share: f64,
    /// Upper end of the interval.
    pub high_share: f64,
    /// Coverage that the interval is made for, 0 to 1.
    pub level: f64,
}

/// One arm against the control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Index of the arm.
    pub arm: u32,
    /// Index of the control.
    pub against: u32,
    /// Outcome of the figures, without the gates.
    pub outcome: Outcome,
    /// Pairs behind the outcome and the estimate: those of the look.
    pub pairs: u32,
    /// Complete pairs so far; more than `pairs` between two looks.
    pub pairs_so_far: u32,
    /// Pairs of the next look; `None` after the last.
    pub next_look: Option<u32>,
    /// The effect; `None` under six pairs, or before the first look.
    pub estimate: Option<Estimate>,
    /// Best estimate from all pairs so far, for the live view: no claim is made with it.
    pub running_share: Option<f64>,
    /// By how much pairs differ: standard deviation of the logarithms of their ratios.
    pub noise: Option<f64>,
    /// Two-sided p-value; adjusted (Holm) where there are several comparisons.
    pub p: Option<f64>,
    /// The interval lies beyond the margin as a whole.
    pub beyond_margin: bool,
    /// All bytes (or the whole time) of the arm's runs against the control's, not judged.
    pub totals_share: Option<f64>,
    /// The ratio of totals lies outside the interval: a few runs make the difference.
    pub totals_outside: bool,
    /// Pairs that would be needed beyond those made to settle the margin; `None` once settled.
    pub more_pairs: Option<u32>,
    /// How long they would take.
    #[serde(rename = "more_time_ns")]
    pub more_time: Option<Nanos>,
}

/// What a factor, or two together, do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactorEffect {
    /// Name: `congestion bbr`, `congestion bbr x sockbuf 8M`.
    pub name: String,
    /// Number of factors in it: 1 is a main effect, 2 an interaction (by how much the effect of one
    /// grows when the other is there).
    pub order: u32,
    /// Outcome of the figures.
    pub outcome: Outcome,
    /// The effect.
    pub estimate: Estimate,
    /// Two-sided p-value, adjusted (Holm) over all effects.
    pub p: f64,
    /// The interval lies beyond the margin as a whole.
    pub beyond_margin: bool,
}

/// What the rounds of a search did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchStory {
    /// The arms that were left at the start of each round.
    pub rounds: Vec<Vec<u32>>,
    /// The arm that won; `None` while the search goes on.
    pub winner: Option<u32>,
    /// Effect of the winner in the search. Never a verdict: selection bias makes the best of many look better.
    pub looked_share: Option<f64>,
}

/// A check before the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Which.
    pub check: Check,
    /// What came out.
    pub state: GateState,
    /// The evidence, one or two sentences.
    pub evidence: String,
}

/// The checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The settings were in force in every run.
    InForce,
    /// The hosts were the same for all arms but for the settings.
    Environment,
    /// The change can act on this path.
    Relevance,
    /// The path is not full in both arms.
    Ceiling,
    /// The noise that the pilot saw lets the plan see the margin.
    Pilot,
    /// The second run of a pair is not systematically different.
    Position,
    /// The path did not change its level.
    Stability,
    /// Enough requests, enough runs that did not fail.
    Runs,
}

/// What came out of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// As it should be.
    Passed,
    /// It could not be checked.
    Unknown,
    /// A caveat for the reader.
    Warned,
    /// No verdict can be given.
    Failed,
}

/// One arm in the classic table. Runs are the sample, never their seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmTable {
    /// Index of the arm.
    pub arm: u32,
    /// Its name.
    pub name: String,
    /// Runs that are judged, failed ones among them.
    pub runs: u32,
    /// Runs that failed or timed out.
    pub failed: u32,
    /// Runs that failed, or reached less than half of the arm's median speed.
    pub bad: u32,
    /// Metric of each run that did not fail, in bit/s or seconds, in order of time.
    pub values: Vec<f64>,
    /// Arithmetic mean of `values`.
    pub average: Option<f64>,
    /// Median of `values`.
    pub median: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// All bytes of its runs.
    pub bytes: Bytes,
}

/// What the pilot showed. Its pairs are of the control with itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pilot {
    /// Complete pairs.
    pub pairs: u32,
    /// Standard deviation of the logarithms of their ratios.
    pub noise: f64,
    /// The smallest effect that the plan finds four times in five at this noise, taken 1.35 times as
    /// large because few pairs show it.
    pub smallest_share: f64,
}

/// Where the level of all runs shifted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangePoint {
    /// The first run at the new level.
    pub trial: u32,
    /// Size of the shift.
    pub shift_share: f64,
    /// Probability of as clear a shift if the runs were in no order.
    pub p: f64,
}

/// A run far from the others of its arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outlier {
    /// The run.
    pub trial: u32,
    /// Its speed against the median of its arm.
    pub ratio: f64,
}

/// What a plan will cost, and what it can and cannot show.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Time of one run with its gap; `None` if it depends on the path and none was made yet.
    #[serde(rename = "run_ns")]
    pub run: Option<Nanos>,
    /// Runs if the first look decides.
    pub runs_least: u32,
    /// Runs if every look is needed.
    pub runs_most: u32,
    /// Time of the fewest runs.
    #[serde(rename = "least_ns")]
    pub least: Option<Nanos>,
    /// Time of the most runs.
    #[serde(rename = "most_ns")]
    pub most: Option<Nanos>,
    /// The most pairs from which an effect is judged.
    pub pairs_most: u32,
    /// Noise that the rest is based on: standard deviation of the logarithms of the ratios of the
    /// pilot's pairs; `None` before a pilot.
    pub noise: Option<f64>,
    /// The smallest effect that the most pairs find four times in five.
    pub smallest_share: Option<f64>,
    /// Pairs to find an effect as large as the margin four times in five.
    pub pairs_for_margin: Option<u32>,
    /// Pairs to show four times in five, if the change does nothing, that no difference matters.
    pub pairs_for_none: Option<u32>,
}
