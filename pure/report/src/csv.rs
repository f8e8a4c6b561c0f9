//! A run's samples as a table for a spreadsheet or a data frame.

use model::Run;

/// One row for each leg, side, sample and stream; header names carry the units. RFC 4180.
pub fn run(_run: &Run) -> String {
    String::new()
}
