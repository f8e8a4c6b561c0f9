//! Data arrive at once, and their acknowledgements wait in a queue on the way back, or are lost when it overflows: an uplink
//! far slower than the downlink (RFC 3449).
//!
//! Near miss: a queue on the way of the data. Only timestamps (RFC 7323) tell one from the other, so a capture names it. Without
//! them a queue that loses no data may be either: this is named behind the rate of the path.

use super::{Key, Telling, bottleneck_rate};
use crate::facts::{Facts, QUEUE, WayBack};
use model::Nanos;
use model::finding::{Confidence, Evidence};

/// Share of the queueing delay, from which the queue is on the way back; and from which no other is worth a name.
const MOST_OF_IT: f64 = 0.5;
const NEARLY_ALL: f64 = 0.75;
/// Behind the rate of the path.
const LAST: u8 = 2;
/// Less than this may be ticks of clocks.
const NOISE: Nanos = Nanos::from_millis(3);

/// The queue stands on the way back.
fn seen(facts: &Facts) -> Option<WayBack> {
    let way = facts.way_back?;
    let queued = facts.is_queue(facts.inflation()?, QUEUE);
    (queued && way.share() >= MOST_OF_IT && way.delay > NOISE).then_some(way)
}

pub(super) fn is_seen(facts: &Facts) -> bool {
    seen(facts).is_some()
}

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    shown(facts).or_else(|| may_be(facts))
}

fn shown(facts: &Facts) -> Option<Telling> {
    let way = seen(facts)?;
    let evidence = facts.evidence(Key::AckQueueingDelay, way.delay);
    let bound = way.all.0 as f64 * MOST_OF_IT;
    // At the receiver a sender that waits before it sends lengthens the same round trip.
    let confidence = match way.share() >= NEARLY_ALL && facts.rhythm.is_some() {
        true => Confidence::Likely,
        false => Confidence::Possible,
    };
    Some(told(confidence, evidence.of(way.all.0).at_least(bound)))
}

/// A queue that stands somewhere on the round trip.
fn may_be(facts: &Facts) -> Option<Telling> {
    let inflation = facts.inflation()?;
    let somewhere = facts.way_back.is_none() && !facts.has_forward_queue();
    (somewhere && bottleneck_rate::fits(facts).is_some() && facts.is_queue(inflation, QUEUE)).then(
        || {
            let queue = facts.evidence(Key::RttOverMinRtt, inflation);
            told(
                Confidence::Possible,
                queue.at_least(facts.queue_from(QUEUE)),
            )
            .ranked(LAST)
        },
    )
}

fn told(confidence: Confidence, evidence: Evidence) -> Telling {
    Telling::new(confidence, vec![evidence])
        .advise("a faster way back, or one on which acknowledgements go before other packets")
        .advise("fewer acknowledgements: receive offload (GRO, LRO) on at the receiver, or larger segments")
}
