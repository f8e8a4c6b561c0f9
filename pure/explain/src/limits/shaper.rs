//! A token bucket that delays: fast until it is empty, then flat at a lower rate with a queue.
//!
//! Near miss: a plain link, which is as slow at the start as later.

use super::{Candidate, Key, QUEUE_AT_LOSS, bottleneck_rate};
use crate::facts::{Facts, QUEUE, bit_rate};
use model::finding::Confidence;
use model::stats::median;

/// The burst was so much faster than what followed.
const FASTER: f64 = 1.25;
/// The burst lasted so many round trips, and this: acknowledgements that come at once, after a gap was filled or a host
/// slept, are none.
const ROUND_TRIPS: f64 = 3.0;
const SHORTEST: f64 = 0.01;
/// The burst held at least so many bytes by the product of the later rate and the round trip: less
/// is a queue that filled. And so many segments: less may be one that came late.
const BURST: f64 = 2.0;
const SEGMENTS: f64 = 10.0;

/// Behind the rate of the path, which is full in any case.
const LAST: u8 = 3;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    // What delays loses behind its queue; a bucket that drops is as fast at first, and has none.
    let delays = facts.is_flat() && (!facts.loss_hurts() || facts.queue_at_loss(QUEUE_AT_LOSS));
    let mut candidate = bottleneck_rate::fits(facts).filter(|_| delays)?;
    let rate = facts.rate();
    let min = facts.min_rtt?;
    // A link of one rate delivers no faster at any time, however full its queue is. So the longest stretch
    // above it is the burst, be it from the start or after a pause that filled the bucket again.
    let (mut excess, mut span, mut from, mut most) = (0.0f64, 0.0, 0, (0.0, 0.0, 0..0));
    for (n, reading) in facts.readings.iter().enumerate() {
        let time = reading.to.since(reading.from).as_secs_f64();
        (excess, span, from) = match excess > 0.0 {
            true => (excess, span + time, from),
            false => (0.0, time, n),
        };
        // Neither data of delayed acknowledgements nor data that fill a queue were fast.
        let moved = reading.delivered.min(reading.passed);
        excess += moved as f64 - time * rate * FASTER;
        if excess > most.0 {
            most = (excess, span, from..n + 1);
        }
    }
    let (excess, span, burst) = most;
    let min = min.as_secs_f64().max(1e-9);
    let least = (BURST * rate * min).max(SEGMENTS * f64::from(facts.mss));
    if span / min < ROUND_TRIPS || span < SHORTEST || excess < least {
        return None;
    }
    let queued = median(
        facts.readings[burst]
            .iter()
            .map(|r| r.srtt.as_secs_f64() / min),
    );
    let burst_rate = excess / span + rate * FASTER;
    let excess = (burst_rate - rate) * span;
    candidate.evidence.push(
        facts
            .evidence(Key::BurstGoodput, bit_rate(burst_rate))
            .at_least((bit_rate(rate).0 as f64 * FASTER).floor()),
    );
    candidate
        .evidence
        .push(facts.evidence(Key::BurstExcess, model::Bytes(excess as u64)));
    // A token bucket lets its burst pass without a queue; who shares a line with others pushes them aside at its start.
    let pushed = queued.is_none_or(|ratio| facts.is_queue(ratio, QUEUE));
    // A window that closed, or a loss, slows a sender down after its start as well.
    if facts.is_capture() || pushed {
        candidate.confidence = Confidence::Possible;
        candidate.rank = LAST;
    }
    candidate.remedies.clear();
    Some(candidate.advise(
        "a shaper limits the path to this rate after a burst: its operator can raise the rate",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::SenderInterval;
    use model::Nanos;
    use model::finding::Source;

    /// Three seconds of a queue at 100 segments in 20 ms, after so many round trips of as many segments more, each of so long.
    fn seen(trips: u64, more: u64, srtt_ms: u64) -> Option<Confidence> {
        let mut facts = Facts::new(Source::Samples);
        (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(20)));
        for n in 0..trips + 150 {
            let (more, srtt) = if n < trips { (more, srtt_ms) } else { (0, 40) };
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 20),
                to: Nanos::from_millis(n * 20 + 20),
                srtt: Nanos::from_millis(srtt),
                cwnd: 200_000,
                flight: 150_000,
                delivered: 100_000 + more * 1000,
                passed: 100_000 + more * 1000,
                ..SenderInterval::default()
            });
        }
        // The queue is on the way of the data: it marks.
        (facts.segments, facts.marked) = (15_000, 10);
        facts.span = facts.readings.last().unwrap().to;
        fits(&facts).map(|candidate| candidate.confidence)
    }

    #[test]
    fn a_burst_without_a_queue_is_a_full_bucket_and_one_with_a_queue_may_have_pushed_others_aside()
    {
        assert_eq!(seen(10, 100, 20), Some(Confidence::Certain));
        assert_eq!(seen(10, 100, 30), Some(Confidence::Possible));
        assert_eq!(seen(10, 10, 20), None, "hardly faster");
        assert_eq!(seen(2, 100, 20), None, "too short");
    }

    #[test]
    fn a_burst_holds_two_round_trips_of_the_rate_in_three_of_them() {
        let certain = Some(Confidence::Certain);
        // Beyond a quarter more: 200 kB in ten round trips.
        assert_eq!([seen(10, 46, 20), seen(10, 44, 20)], [certain, None]);
        assert_eq!([seen(3, 100, 20), seen(2, 200, 20)], [certain, None]);
        // Of a queue of a quarter it pushed others aside.
        assert_eq!(
            [seen(10, 100, 24), seen(10, 100, 25)],
            [certain, Some(Confidence::Possible)]
        );
    }

    #[test]
    fn the_burst_is_what_passed_beyond_the_rate() {
        let mut facts = crate::facts::tests::steady(200);
        facts.source = Source::Samples;
        for (n, reading) in facts.readings.iter_mut().enumerate() {
            reading.srtt = Nanos::from_millis(if n < 10 { 10 } else { 20 });
            (reading.cwnd, reading.passed) = (20_000, if n < 10 { 20_000 } else { 10_000 });
            reading.delivered = reading.passed;
        }
        facts.marked = 1;
        let evidence = fits(&facts).unwrap().evidence;
        let of = |key| evidence.iter().find(|e| e.key == key).unwrap();
        // 2 MB/s for 100 ms, of which 1 MB/s was more.
        assert_eq!(
            of(Key::BurstGoodput).quantity,
            model::BitRate(16_000_000).into()
        );
        let excess = format!("{:?}", of(Key::BurstExcess).quantity);
        assert!(
            excess.contains("100000") || excess.contains("99999"),
            "{excess}"
        );
    }
}
