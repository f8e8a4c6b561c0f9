//! The story of a path that was tuned: what was measured, what was proposed, what an experiment said of
//! it, what stayed.

use crate::advice::Advice;
use crate::finding::Explanation;
use crate::{BitRate, Direction, Ended, Nanos, Reading, RunId, Setting, Warning};
use serde::{Deserialize, Serialize};

/// Version of the JSON form of [`Tuning`]; raised when a field changes its meaning or goes away.
pub const TUNING_SCHEMA: u32 = 1;

/// One way of a path, tuned. The verdicts are derived from its experiments, never stored in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Version of this form.
    pub schema: u32,
    /// Name in the archive: 32 hexadecimal digits (8 in older archives).
    pub id: String,
    /// Start, nanoseconds since 1970-01-01 UTC.
    #[serde(rename = "started_unix_ns")]
    pub started: Nanos,
    /// The remote host as the user named it.
    pub host: String,
    /// The options of the command that undoing there takes as well, as one writes them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reached_by: String,
    /// Which way the data goes.
    pub direction: Direction,
    /// Nothing was to be changed.
    pub dry_run: bool,
    /// What was done, again with what was kept, until nothing more helped.
    pub rounds: Vec<Round>,
    /// The settings that stayed, read back; empty: everything was restored.
    pub kept: Vec<Reading>,
    /// The path with all that was kept, over fresh connections.
    pub after: Option<Look>,
    /// What brings the kept settings back when a host starts, in `found` the file or what is to be done by
    /// hand; empty unless it was requested.
    pub lasting: Vec<Reading>,
    /// Doubts about the whole.
    pub warnings: Vec<Warning>,
    /// How it ended.
    pub ended: Ended,
}

/// From one measurement to what was proven on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The path before the round.
    pub before: Look,
    /// What was made of that.
    pub advice: Advice,
    /// What became of each proposal of the advice, in their order.
    pub attempts: Vec<Attempt>,
    /// The experiments of this round: the first on all proposals, another on what is best together.
    pub experiments: Vec<String>,
}

/// One measurement of the path, and what limited it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// The run in the archive.
    pub run: RunId,
    /// What the path carried, without the ramp.
    #[serde(rename = "goodput_bit_s")]
    pub goodput: BitRate,
    /// Why it was no more, connection by connection.
    pub explanations: Vec<Explanation>,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was tried for it: the settings proposed, or what stood in for them; empty: nothing could be.
    pub settings: Vec<Setting>,
    /// Why not the settings that were proposed, where it was something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Its arm in the first experiment of its round; `None`: it was not in one.
    pub arm: Option<u32>,
    /// `untried`, `undone` (not proven), `surpassed` (proven, and adds nothing to what was kept),
    /// `kept` or `recommended` (proven on linerate's own connections; this command does not set it
    /// for all).
    pub fate: Fate,
}

/// What became of a proposal in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It was not tried, or not to the end.
    Untried,
    /// It was not proven, and is undone.
    Undone,
    /// It was proven, adds nothing to what was kept, and is undone.
    Surpassed,
    /// It was proven, alone or with others, and stays.
    Kept,
    /// It was proven on linerate's own connections; this command does not set it for all.
    Recommended,
}
