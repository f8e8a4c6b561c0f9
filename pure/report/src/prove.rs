//! Experiments to text, tables and JSON.
//!
//! The words are few and mean the same everywhere: FASTER, SLOWER, EQUIVALENT, NOT
//! ENOUGH DATA, NO VERDICT. Nothing here says that there is no difference at all, for no number of
//! runs shows that, and no figure of an effect stands without its interval.

mod csv;
pub(crate) mod phrase;
pub(crate) mod plan;
pub(crate) mod text;

pub use csv::csv;
pub use phrase::{answer, signed};
pub use text::{forecast, in_short, monitor, p_values, verdict};

use crate::prelude::*;

/// The experiment as one document: the fields of [`Experiment`], and the [`Verdict`] under `verdict`.
pub fn json(experiment: &Experiment, verdict: &Verdict) -> String {
    pretty(&document!(
        #[serde(flatten)]
        experiment,
        verdict
    ))
}

#[cfg(test)]
pub(crate) mod tests;
