//! A token bucket that delays: fast until it is empty, then flat at a lower rate with a queue.
//!
//! Near miss: a plain link, which is as slow at the start as later.

use super::{Key, Telling, bottleneck_rate};
use crate::facts::{Facts, bit_rate};
use model::finding::Confidence;

/// The burst was so much faster than what followed.
const FASTER: f64 = 1.25;
/// The burst lasted so many round trips, and this: acknowledgements that come at once, after a gap was filled or a host
/// slept, are none.
const ROUND_TRIPS: f64 = 3.0;
const SHORTEST: f64 = 0.01;
/// The burst held at least so many bytes by the product of the later rate and the round trip: less
/// is a queue that filled.
const BURST: f64 = 2.0;

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let mut telling = bottleneck_rate::fits(facts).filter(|_| facts.is_flat())?;
    let rate = facts.rate();
    let min = facts.min_rtt?;
    // A link of one rate delivers no faster at any time, however full its queue is. So the longest stretch
    // above it is the burst, be it from the start or after a pause that filled the bucket again.
    let (mut excess, mut span, mut most) = (0.0f64, 0.0, (0.0, 0.0));
    for reading in &facts.readings {
        let time = reading.to.since(reading.from).as_secs_f64();
        (excess, span) = match excess > 0.0 {
            true => (excess, span + time),
            false => (0.0, time),
        };
        // What an acknowledgement tells late was not fast, nor is what a queue takes up.
        let moved = reading.delivered.min(reading.passed);
        excess += moved as f64 - time * rate * FASTER;
        if excess > most.0 {
            most = (excess, span);
        }
    }
    let (excess, span) = most;
    let trips = span / min.as_secs_f64().max(1e-9);
    if trips < ROUND_TRIPS || span < SHORTEST || excess < BURST * rate * min.as_secs_f64() {
        return None;
    }
    let burst_rate = excess / span + rate * FASTER;
    let excess = (burst_rate - rate) * span;
    telling.evidence.push(
        facts
            .evidence(Key::BurstGoodput, bit_rate(burst_rate))
            .at_least((bit_rate(rate).0 as f64 * FASTER).floor()),
    );
    telling
        .evidence
        .push(facts.evidence(Key::BurstExcess, model::Bytes(excess as u64)));
    if facts.is_capture() {
        // A window that closed, or a loss, slows a sender down after its start as well.
        telling.confidence = Confidence::Possible;
    }
    telling.remedies.clear();
    Some(telling.advise("the path sells this rate and a burst on top: ask who runs it for more"))
}
