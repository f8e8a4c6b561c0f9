//! Data arrive at once, and their acknowledgements are queued on the reverse path, or lost when that queue overflows: an
//! uplink far slower than the downlink (RFC 3449).
//!
//! Near miss: a queue on the forward path. Only timestamps (RFC 7323) separate the two, so a capture names it. Without them
//! a queue that loses no data may be either: this is named behind the rate of the path.

use super::{Candidate, Key, bottleneck_rate};
use crate::facts::{Facts, QUEUE, ReverseQueueing};
use model::Nanos;
use model::finding::{Confidence, Evidence};

/// Share of the queueing delay from which no other cause is named.
const NEARLY_ALL: f64 = 0.75;
/// Behind the rate of the path.
const LAST: u8 = 2;
/// Less than this may be ticks of clocks.
const NOISE: Nanos = Nanos::from_millis(3);

/// A standing queue on the reverse path.
fn seen(facts: &Facts) -> Option<ReverseQueueing> {
    let way = facts.reverse_queueing?;
    (facts.has_queue(QUEUE) && way.is_most() && way.delay > NOISE).then_some(way)
}

pub(super) fn is_seen(facts: &Facts) -> bool {
    seen(facts).is_some()
}

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    shown(facts).or_else(|| may_be(facts))
}

fn shown(facts: &Facts) -> Option<Candidate> {
    let way = seen(facts)?;
    let evidence = facts.evidence(Key::AckQueueingDelay, way.delay);
    let bound = way.all.0 as f64 * ReverseQueueing::MOST;
    // At the receiver a sender that waits before it sends lengthens the same round trip. What marks or loses data is full as
    // well, as a rule: one loss is enough, for a queue that is kept short drops single segments.
    let passes = facts.marked == 0 && facts.lost() == 0;
    let alone = way.share() >= NEARLY_ALL && passes;
    let confidence = match alone && !facts.is_seen_from_afar() {
        true => Confidence::Likely,
        false => Confidence::Possible,
    };
    Some(advised(confidence, evidence.of(way.all.0).at_least(bound)))
}

/// A standing queue in either direction.
fn may_be(facts: &Facts) -> Option<Candidate> {
    let inflation = facts.inflation()?;
    let somewhere = facts.reverse_queueing.is_none() && !facts.has_forward_queue();
    (somewhere && bottleneck_rate::fits(facts).is_some() && facts.is_queue(inflation, QUEUE)).then(
        || {
            let queue = facts.evidence(Key::RttOverMinRtt, inflation);
            advised(
                Confidence::Possible,
                queue.at_least(facts.queue_from(QUEUE)),
            )
            .ranked(LAST)
        },
    )
}

fn advised(confidence: Confidence, evidence: Evidence) -> Candidate {
    Candidate::new(confidence, vec![evidence])
        .advise("a faster reverse path, or one that sends acknowledgements before other packets")
        .advise("fewer acknowledgements: receive offload (GRO, LRO) on at the receiver, or larger segments")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::SenderInterval;
    use model::finding::Source;

    /// A second at 40 ms on a path of 20 ms, of which so many are queueing delay of the reverse path; data were marked and lost.
    fn queued(source: Source, back_ms: u64, [marked, lost]: [u64; 2]) -> Option<Confidence> {
        let mut facts = Facts::new(source);
        facts.min_rtt = Some(Nanos::from_millis(20));
        (facts.marked, facts.retransmitted) = (marked, lost);
        facts.reverse_queueing = Some(ReverseQueueing::of(
            Nanos::from_millis(back_ms),
            Nanos::from_millis(20),
        ));
        for n in 0..50 {
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 20),
                to: Nanos::from_millis(n * 20 + 20),
                srtt: Nanos::from_millis(40),
                delivered: 20_000,
                ..SenderInterval::default()
            });
        }
        fits(&facts).map(|candidate| candidate.confidence)
    }

    #[test]
    fn nearly_all_of_the_queue_on_the_way_back_is_likely_unless_data_were_marked_or_lost() {
        let likely = Some(Confidence::Likely);
        let possible = Some(Confidence::Possible);
        assert_eq!(queued(Source::CaptureAtSender, 18, [0, 0]), likely);
        assert_eq!(queued(Source::Trace, 18, [0, 0]), likely);
        assert_eq!(queued(Source::Trace, 12, [0, 0]), possible);
        assert_eq!(queued(Source::Trace, 18, [9, 0]), possible);
        assert_eq!(queued(Source::Trace, 18, [0, 1]), possible);
        assert_eq!(queued(Source::CaptureAtReceiver, 18, [0, 0]), possible);
        assert_eq!(queued(Source::Trace, 8, [0, 0]), None);
    }
}
