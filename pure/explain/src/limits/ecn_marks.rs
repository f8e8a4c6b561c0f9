//! The path marks instead of dropping, and the sender yields to the marks.
//!
//! Near miss: a path that marks and drops: then the queue overflowed all the same.

use super::{Key, Telling};
use crate::facts::Facts;
use model::finding::Confidence;

/// With fewer marks it is chance.
const FEWEST: u64 = 5;

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    if facts.marked < FEWEST || facts.retransmitted > facts.marked || facts.is_bbr() {
        return None;
    }
    let evidence = vec![
        facts
            .evidence(Key::EcnMarkedSegments, facts.marked)
            .of(facts.segments)
            .at_least(FEWEST as f64),
        facts.retransmissions().at_most(facts.marked as f64),
    ];
    Some(Telling::new(Confidence::Certain, evidence).advise(
        "the queue that marks is at its target: the path is full, or its threshold is too low",
    ))
}
