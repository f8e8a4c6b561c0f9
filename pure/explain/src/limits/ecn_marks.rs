//! The path marks instead of dropping, and the sender yields to the marks.
//!
//! Near miss: a path that marks and drops: then the queue overflowed all the same.

use super::Telling;
use crate::facts::{Facts, percent};
use model::finding::{Confidence, Evidence};

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    if facts.marked < 5 || facts.retransmitted > facts.marked || facts.is_bbr() {
        return None;
    }
    let share = facts.marked as f64 / facts.segments.max(1) as f64;
    let evidence = vec![
        Evidence::new(
            "segments delivered with an ECN mark",
            format!("{} ({})", facts.marked, percent(share)),
        ),
        Evidence::new("segments sent again", facts.retransmitted).against("fewer than the marks"),
    ];
    Some(Telling::new(Confidence::Certain, evidence).advise(
        "the queue that marks is at its target: the path is full, or its threshold is too low",
    ))
}
