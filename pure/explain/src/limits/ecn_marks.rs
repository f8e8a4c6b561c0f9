//! The path marks instead of dropping, and the sender yields to the marks.
//!
//! Near miss: a path that marks and drops: then the queue overflowed all the same.

use super::{Candidate, Key, ack_path};
use crate::facts::Facts;
use model::finding::Confidence;

/// With fewer marks it is chance.
const FEWEST: u64 = 5;
/// Fewer loss events are those of slow start, or of chance.
const FEWEST_EVENTS: usize = 3;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
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
    // A queue on the reverse path slows the sender down as well, and may be the longer one. BBR does not yield to marks, and packets
    // do not show which congestion control it is. What loses again and again has a cause beside a queue that marks.
    let loses = facts.loss_hurts() && facts.loss_events().len() >= FEWEST_EVENTS;
    let (confidence, rank) = match (ack_path::is_seen(facts), &facts.congestion) {
        (true, _) => (Confidence::Possible, 2),
        (false, Some(_)) if !loses => (Confidence::Certain, 1),
        (false, _) => (Confidence::Possible, 1),
    };
    Some(Candidate::new(confidence, evidence).ranked(rank).advise(
        "the queue that marks is at its target: the path is full, or its threshold is too low",
    ))
}
