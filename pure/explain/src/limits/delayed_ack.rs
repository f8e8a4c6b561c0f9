//! What is waited for is an acknowledgement that the peer delays: 40 ms on Linux. Short segments wait for it by
//! Nagle's algorithm, and any by a window that lets out one at a time: the second would have drawn it at once
//! (RFC 1122, 4.2.3.2).
//!
//! Near misses: Nagle's waits of one round trip, where the peer acknowledged at once; a window of one segment on a
//! path that is as slow itself.

use super::{Candidate, Key};
use crate::facts::{Facts, SenderInterval};
use model::Bytes;
use model::finding::{Confidence, Evidence};
use model::stats::median;
use tcp::thresholds::DELACK_TIMER;

/// Of all the time, what delayed acknowledgements take at the least if they are what holds a window up.
const MUCH: u64 = 4;
/// Segments for each such wait at the most: after a timeout any window is one segment, and soon more.
const SEGMENTS_A_WAIT: u64 = 8;
/// Of the waits that Nagle's algorithm makes, one in so many is delayed at the least.
const OFTEN: u64 = 5;
/// A single full segment that the path itself were slow with would have raised the smoothed round trip by an eighth of
/// what it takes longer (RFC 6298).
const AT_ONCE: u64 = 10;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let held = facts.held;
    if held.delayed == 0 || held.delayed * OFTEN < held.waits {
        return None;
    }
    let evidence = vec![
        facts
            .evidence(Key::DelayedAckWaits, held.delayed)
            .of(held.waits)
            .at_least(held.waits as f64 / OFTEN as f64),
        facts.evidence(Key::DelayedAckTime, held.delayed_time),
    ];
    Some(Candidate::new(Confidence::Certain, evidence).change(
        "nodelay=on",
        "TCP_NODELAY at the sender; the peer may also acknowledge at once (ip route ... quickack 1)",
    ))
}

/// The window lets out a single segment at a time, and each waits for the peer's timer.
pub(crate) fn fits_alone(facts: &Facts) -> Option<Candidate> {
    let (confidence, evidence) = match facts.is_sampled() {
        true => sampled(facts)?,
        false => counted(facts)?,
    };
    Some(
        Candidate::new(confidence, evidence)
            .advise("room for two segments at the sender, and the peer acknowledges at once: look for a clamp of the congestion window (cwnd in 'ip route show')")
            .change(
                "route.quickack=on",
                "an acknowledgement at once, at the receiver, where the sender's window cannot be helped",
            ),
    )
}

/// Every wait was seen.
fn counted(facts: &Facts) -> Option<(Confidence, Vec<Evidence>)> {
    let alone = facts.alone;
    let seldom = alone.waits * SEGMENTS_A_WAIT < facts.segments;
    if seldom || alone.delayed_time.0 < facts.span.0 / MUCH {
        return None;
    }
    let evidence = vec![
        facts
            .evidence(Key::SingleSegmentWaits, alone.delayed)
            .of(alone.waits),
        facts
            .evidence(Key::DelayedAckTime, alone.delayed_time)
            .at_least((facts.span.0 / MUCH) as f64),
    ];
    // One that was acknowledged at once shows that the path is not as slow.
    let confidence = match alone.delayed < alone.waits {
        true => Confidence::Certain,
        false => Confidence::Likely,
    };
    Some((confidence, evidence))
}

/// A window of one segment, which stands in no queue of its own, and whose round trips grew all the same.
fn sampled(facts: &Facts) -> Option<(Confidence, Vec<Evidence>)> {
    let window = median(facts.steady().iter().map(|r| r.cwnd as f64))? as u64;
    let later = facts.standing()?;
    // Every other one may be acknowledged by an answer.
    if window > facts.mss.into() || later.0 < DELACK_TIMER.0 / 4 || facts.loss_hurts() {
        return None;
    }
    let evidence = vec![
        facts
            .evidence(Key::Cwnd, Bytes(window))
            .at_most(facts.mss.into()),
        facts
            .evidence(Key::RttAboveMinRtt, later)
            .at_least((DELACK_TIMER.0 / 4) as f64),
    ];
    let at_once = |r: &SenderInterval| {
        r.delivered >= facts.mss.into() && r.srtt.since(facts.rtt()).0 <= later.0 / AT_ONCE
    };
    let confidence = match facts.readings.iter().any(at_once) {
        true => Confidence::Likely,
        false => Confidence::Possible,
    };
    Some((confidence, evidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wait_of_five_is_often_and_one_of_six_is_not() {
        let of = |delayed, waits| {
            let held = crate::facts::AckWaitCounts {
                waits,
                delayed,
                ..Default::default()
            };
            let facts = Facts {
                held,
                ..Facts::new(model::finding::Source::Samples)
            };
            fits(&facts).is_some()
        };
        assert!(of(1, 5));
        assert!(!of(1, 6));
        assert!(!of(0, 0));
    }
}
