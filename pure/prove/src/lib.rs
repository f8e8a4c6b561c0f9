//! Runs to verdicts: does this change help on this path? Never more than the data say.
//!
//! A [`plan`] is read and checked ([`parse_plan`], [`validate`]), [`next`] says which run to make,
//! [`trial`] keeps what the run says, and [`judge`] gives the verdict. What an experiment needs to go
//! on after an interruption is its record alone.
//!
//! `stats` has the methods, one file each: exact and total. Nothing here touches a clock, a file or a
//! socket; random numbers come from a recorded seed alone.

mod blocks;
mod factorial;
mod forecast;
mod gates;
mod judge;
mod looks;
mod order;
pub mod plan;
pub mod published;
mod search;
mod stats;
mod total;
pub mod trial;

#[cfg(test)]
mod tests;

pub use blocks::TrialSlot;
pub use forecast::forecast;
pub use judge::{judge, judged};
pub use order::{next, resume};
pub use plan::{PlanError, PlanOptions, parse_plan, plan_from_changes, to_toml, validate};
pub use stats::change;
#[cfg(test)]
use tests::testing;
