//! How the clocks of two hosts are related.

use crate::Nanos;
use serde::{Deserialize, Serialize};

/// The clocks of two captures or traces, by the packets that passed both places. By default it is one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// The second's minus the first's when the first began, in nanoseconds; both count from their beginning.
    pub offset_ns: i64,
    /// The second's time of day minus the first's when the first began, in nanoseconds, where both files say it.
    pub ahead_ns: Option<i64>,
    /// How much faster the second's runs, in parts per million.
    pub drift_ppm: f64,
    /// Packets that were found in both; of more than 1,048,576 in a capture only a part is
    /// compared.
    pub matched: u64,
    /// Error bound of the offset and of one-way delays: the asymmetry and the residual.
    #[serde(rename = "error_ns")]
    pub error: Nanos,
    /// Half of the shortest round trip between the two places: the error if all of it lay in one direction (RFC 5905,
    /// section 8). Changes of a one-way delay do not depend on it.
    #[serde(rename = "asymmetry_ns")]
    pub asymmetry: Nanos,
    /// What the fit of offset and drift leaves, which changes of a one-way delay have as their error.
    #[serde(rename = "residual_ns")]
    pub residual: Nanos,
    /// Step of one of the clocks during the capture.
    #[serde(rename = "step_ns")]
    pub step: Option<Nanos>,
}

impl Clocks {
    /// What speaks against them.
    pub fn doubt(&self) -> Option<String> {
        self.step.map(|step| {
            format!(
                "a clock was set by {step} during the captures: offset and one-way delays are known within {} only",
                self.error
            )
        })
    }
}
