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
    // BBR leaves no queue on a full line either: that it was faster at times shows that the path carries more.
    let peak = facts.goodput_by_peak();
    let confidence = match facts.is_bbr() && peak.is_none_or(|ratio| ratio > FASTER) {
        true => Confidence::Possible,
        false => Confidence::Certain,
    };
    Candidate::new(confidence, evidence).change(
        format!("sndbuf={}", needed.0),
        "a larger send buffer, or none set at all, so that the kernel can grow it up to net.ipv4.tcp_wmem",
    )
}

/// Goodput by that of its fastest tenth, up to which more had passed at times.
const FASTER: f64 = 0.8;
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
    if pacing::even(facts).is_some() {
        return None;
    }
    let evidence = vec![held(facts)?];
    let mut candidate = candidate(facts);
    candidate.confidence = Confidence::Possible;
    candidate.evidence.splice(0..0, evidence);
    // Who answers requests has as much under way as an answer is long.
    let elsewhere = facts.is_exchange || facts.rhythm.is_some_and(|r| r.is_spread());
    let rank = if elsewhere { 2 } else { 1 };
    Some(candidate.ranked(rank).advise(
        "trace the sender's connections ('linerate trace'): their sockets show whether the application waits for room to write",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::SenderInterval;
    use model::Nanos;
    use model::finding::Source;

    #[test]
    fn bbr_does_not_show_whether_a_larger_buffer_would_help_unless_it_was_faster_at_times() {
        let of = |congestion: &str, fast: u64| {
            let mut facts = Facts::new(Source::Trace);
            (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(20)));
            facts.congestion = Some(congestion.to_owned());
            for n in 0..300 {
                facts.read(SenderInterval {
                    from: Nanos::from_millis(n * 20),
                    to: Nanos::from_millis(n * 20 + 20),
                    passed: if n % 5 == 0 { fast } else { 100_000 },
                    delivered: 100_000,
                    ..SenderInterval::default()
                });
            }
            candidate(&facts).confidence
        };
        assert_eq!(of("cubic", 100_000), Confidence::Certain);
        assert_eq!(of("bbr", 100_000), Confidence::Possible);
        assert_eq!(of("bbr", 200_000), Confidence::Certain);
    }
}
