//! All that was written has been sent, and the application waits for room to write more: the buffer
//! holds less than what could be in flight.
//!
//! Near miss: an application with nothing to write. In a capture both look the same.

use super::{Candidate, Key, pacing};
use crate::facts::{Facts, HELD_FLIGHT, Rhythm, bit_rate};
use crate::sender_state::{SenderState, ShortSegmentRelease};
use model::Bytes;
use model::finding::{Confidence, Evidence};

pub(crate) fn owns(state: &SenderState) -> bool {
    let nothing_to_send = state.unsent == 0 || state.held_until == Some(ShortSegmentRelease::Write);
    state.no_space && nothing_to_send
}

/// Pacing spreads out what the buffer holds, and the window would take all of it at once: a sender that
/// paces by the rate that it reached (bbr) is held by what it was given.
pub(crate) fn owns_pacing(state: &SenderState) -> bool {
    let window = u64::from(state.cwnd) * u64::from(state.mss);
    state.paced && state.no_space && state.written < window
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    let mut evidence = Vec::new();
    let mut needed = Bytes(4 << 20);
    if let Some(buffer) = facts.send_buffer {
        evidence.push(facts.evidence(Key::SendBuffer, buffer));
        needed = Bytes(buffer.0.saturating_mul(4).clamp(256 << 10, 64 << 20));
    }
    evidence.push(facts.evidence(Key::Goodput, bit_rate(facts.rate())));
    if let Some(rtt) = facts.min_rtt {
        evidence.push(facts.evidence(Key::MinRtt, rtt));
    }
    Candidate::new(Confidence::Certain, evidence).change(
        format!("sndbuf={}", needed.0),
        "a larger send buffer, or none set at all, so that the kernel can grow it up to net.ipv4.tcp_wmem",
    )
}

/// Losses that a burst into a queue makes, and no more.
const FEW_LOST: f64 = 0.002;

/// From packets alone: the same amount is in flight all the time.
pub(super) fn steady(facts: &Facts) -> Option<Evidence> {
    let spread = facts.held_flight()?;
    let evidence = facts.evidence(Key::InFlightSpread, spread);
    Some(evidence.at_most(HELD_FLIGHT))
}

/// From packets alone, what shows that something at the sender holds it: the same amount is in flight all the time, or
/// the path runs empty again and again, though it had carried more at once.
pub(super) fn held(facts: &Facts) -> Option<Evidence> {
    if let Some(steady) = steady(facts) {
        return Some(steady);
    }
    let rhythm = facts.rhythm.filter(|r| r.is_idling())?;
    (facts.loss_share() <= FEW_LOST).then(|| {
        facts
            .evidence(Key::DrainedRtts, rhythm.drained)
            .at_least(Rhythm::IDLING)
    })
}

/// From packets alone: see [`held`]. An application that keeps so much out itself looks the same. Room in a buffer comes with
/// acknowledgements.
pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    if pacing::is_even(facts) {
        return None;
    }
    let evidence = vec![held(facts)?];
    let mut candidate = candidate(facts);
    candidate.confidence = Confidence::Possible;
    candidate.evidence.splice(0..0, evidence);
    let rank = if facts.rhythm.is_some_and(|r| r.is_spread()) {
        2
    } else {
        1
    };
    Some(candidate.ranked(rank).advise(
        "trace the sender's connections ('linerate trace'): their sockets show whether the application waits for room to write",
    ))
}
