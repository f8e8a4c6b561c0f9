//! Segments wait below TCP, in the queueing discipline or the ring of the sender's own device.

use super::{Candidate, Key};
use crate::facts::{FLAT, Facts};
use crate::sender_state::SenderState;
use model::Nanos;
use model::finding::{Confidence, Evidence, Source};

pub(crate) fn owns(state: &SenderState) -> bool {
    state.queued_below
}

/// Data wait to be sent, no window is full, the processors are not, and the rate is flat: what is left is
/// what lies below TCP. Of samples, which do not show how much waits there.
pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let load = facts.sender_load?;
    if facts.source != Source::Samples || load.process > IDLE || !facts.is_flat() {
        return None;
    }
    let mut candidate = candidate(facts);
    candidate.confidence = Confidence::Possible;
    candidate.evidence.extend(flat(facts));
    candidate.evidence.push(
        facts
            .evidence(Key::SenderProcessCpu, load.process)
            .at_most(IDLE),
    );
    Some(candidate)
}

/// Packets pass later than their timestamps say: they lay below TCP meanwhile. Of a capture at the sender itself.
pub(crate) fn fits_late(facts: &Facts) -> Option<Candidate> {
    let late = facts.rhythm?.late?;
    if facts.source != Source::CaptureAtSender || late < LATE || !facts.is_flat() {
        return None;
    }
    let mut candidate = candidate(facts);
    candidate.evidence.push(
        facts
            .evidence(Key::TimeBelowTcp, late)
            .at_least(LATE.0 as f64),
    );
    candidate.evidence.extend(flat(facts));
    Some(candidate)
}

fn flat(facts: &Facts) -> Option<Evidence> {
    let spread = facts.unsteadiness()?;
    Some(facts.evidence(Key::GoodputSpread, spread).at_most(FLAT))
}

/// Seen of queues that pass 5 to 100 Mbit/s: 2 to 9 ms; of all else up to 0.4 ms.
const LATE: Nanos = Nanos::from_millis(1);

/// A sending process that uses less of a processor is not held up by it.
const IDLE: f64 = 0.5;

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    let speed = facts
        .link
        .map(|link| facts.evidence(Key::DeviceSpeed, link));
    Candidate::new(Confidence::Likely, speed.into_iter().collect()).advise(
        "the sender's own link, or its queueing discipline, is the slowest part: look at its rate",
    )
}
