//! The slowest link is full, behind a queue that costs everybody else far more than the round trip.
//!
//! Near miss: a queue of the order of the round trip, as a loss-based sender needs it.

use super::{Candidate, Key, bottleneck_rate};
use crate::facts::{Facts, WAITED_FOR};
use model::finding::Confidence;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let mut candidate = bottleneck_rate::fits(facts)?;
    let standing = facts.standing()?;
    let bound = facts.rtt().max(WAITED_FOR);
    if standing <= bound {
        return None;
    }
    if candidate.confidence == Confidence::Likely {
        candidate.confidence = Confidence::Certain;
    }
    candidate.evidence.push(
        facts
            .evidence(Key::RttAboveMinRtt, standing)
            .at_least(bound.0 as f64),
    );
    candidate.remedies.clear();
    Some(
        candidate
            .advise("a queue discipline that keeps queues short at the slow link (fq_codel, cake), below its rate")
            .change(
                "congestion=bbr",
                "a congestion control that leaves the queue alone, where the router is not yours",
            ),
    )
}
