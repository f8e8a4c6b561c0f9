//! The methods held against known truths: simulated paths, scipy, and what a verdict promises.

mod bounds;
mod calibration;
mod oracle;
mod power;
mod simulate;
pub(crate) mod testing;
