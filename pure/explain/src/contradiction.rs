//! What speaks against a finding, by the facts that it rests on itself: asked once for every finding, after all rules.

use crate::facts::{BucketFit, Facts, LONG_QUEUE, QUEUE, bit_rate};
use crate::limits::{self, Key, QUEUE_AT_LOSS, clustered};
use model::finding::{Conclusion, Confidence, Evidence, Finding, Limit};

/// The rate that the window allows by goodput: beyond it round trips were longer than the shortest, or something else held too.
const TOO_MUCH: f64 = 1.2;
/// The rate that half a send buffer allows by the usual goodput.
const MORE: f64 = 1.1;
/// Mean goodput by its median: a line that stays full through losses has more (0.96 and more seen).
const ALWAYS_FULL: f64 = 0.94;
/// Goodput by the rate that its losses allow, from which the sender does not yield to them.
const IGNORED: f64 = 3.0;
/// Goodput by the rate of the queue that lost: from here on the path was well used, and the queue held enough.
const WELL_USED: f64 = 0.7;

/// The fact that speaks against this limit.
fn against(limit: Limit, facts: &Facts) -> Option<Evidence> {
    match limit {
        Limit::ReceiveWindow => holds_back_nothing(facts).or_else(|| {
            let window = limits::receive_window(facts)?.0 as f64;
            let least = facts.mean() * TOO_MUCH;
            carries_more(facts, Key::ReceiveWindowRate, window, least)
        }),
        // Half of it is overhead at the most (`SKB_TRUESIZE` in `include/linux/skbuff.h`, of segments that share pages less).
        Limit::SendBuffer => holds_back_nothing(facts).or_else(|| {
            let payload = facts.send_buffer?.0 as f64 / 2.0;
            let least = facts.rate() * MORE;
            carries_more(facts, Key::SendBufferRate, payload, least)
        }),
        Limit::BottleneckRate | Limit::Bufferbloat | Limit::Shaper if facts.loss_hurts() => {
            yields(facts)
        }
        // Any buffer overflows once; one that is too small leaves the path unused.
        // What is lost in one burst slows a sender down once.
        Limit::BurstLoss => ignores_losses(facts, facts.loss_events().len() as u64).or_else(|| {
            let bucket = facts.bucket.as_ref().filter(|b| BucketFit::is_seen(b))?;
            let used = facts.rate() / bucket.rate;
            (used >= WELL_USED).then(|| {
                facts
                    .evidence(Key::GoodputOverBucketRate, used)
                    .at_least(WELL_USED)
            })
        }),
        // Who waits for an answer to what stands in a queue waits for the path.
        Limit::Application => {
            let (queue, least) = facts.queue_while_idle()?;
            Some(facts.evidence(Key::RttOverMinRtt, queue).at_least(least))
        }
        // Retransmissions that a sender does not yield to cost it nothing.
        Limit::Reordering => ignores_losses(facts, facts.retransmitted),
        // Random loss does not come in runs.
        Limit::RandomLoss => {
            ignores_losses(facts, facts.retransmitted).or_else(|| clustered(facts))
        }
        _ => None,
    }
}

/// So many bytes in each shortest round trip are more than at least had to flow, in bytes a second.
fn carries_more(facts: &Facts, key: Key, bytes: f64, least: f64) -> Option<Evidence> {
    let allowed = bytes / facts.min_rtt.filter(|rtt| rtt.0 > 0)?.as_secs_f64();
    (allowed > least).then(|| {
        let allowed = facts.evidence(key, bit_rate(allowed));
        allowed.at_least(bit_rate(least).0 as f64)
    })
}

/// A window or a buffer that is full while the link is full, or while there is a standing queue: a larger one would lengthen
/// the queue.
pub(crate) fn holds_back_nothing(facts: &Facts) -> Option<Evidence> {
    if let Some(full) = facts.fills_link() {
        return Some(full);
    }
    let inflation = facts.evidence(Key::RttOverMinRtt, facts.inflation()?);
    // A line that is full all the time has a steady rate, and a shorter queue shows it.
    let least = if facts.is_flat() { QUEUE } else { LONG_QUEUE };
    let bound = facts.queue_from(least);
    facts
        .is_queue(facts.inflation()?, least)
        .then(|| inflation.at_least(bound))
}

/// The link is full all the same, or a sender that yields to each loss would not reach this rate: its losses do not hold it back.
fn ignores_losses(facts: &Facts, losses: u64) -> Option<Evidence> {
    if let Some(full) = facts.fills_link() {
        return Some(full);
    }
    let most = facts.rate() / IGNORED;
    let allowed = facts
        .loss_limited_rate(losses)
        .filter(|rate| *rate <= most)?;
    let allowed = facts.evidence(Key::LossLimitedRate, bit_rate(allowed));
    Some(allowed.at_most(bit_rate(most).0 as f64))
}

/// A sender that yields to losses does not keep the line full: no queue stood when they came, or it was slower after them.
fn yields(facts: &Facts) -> Option<Evidence> {
    // A queue that was not seen, or a link that is full all the same.
    if facts.loss_allows_more().is_some() || facts.fills_link().is_some() {
        return None;
    }
    let at_loss = facts.inflation_at_loss()?;
    if !facts.queue_at_loss(QUEUE_AT_LOSS) {
        return Some(facts.no_queue_at_loss(at_loss, QUEUE_AT_LOSS));
    }
    let mean = facts.mean_by_median();
    let mean = facts
        .evidence(Key::MeanGoodputOverMedian, mean)
        .if_at_most(ALWAYS_FULL);
    mean.threshold.is_some().then_some(mean)
}

/// Lowers a finding that its own facts speak against, and says which. Where full processors are the answer, nothing is
/// proposed against what waiting for them looks like.
pub(crate) fn weigh(finding: &mut Finding, facts: &Facts, conclusion: &Conclusion) {
    let limited_by_cpu = matches!(conclusion, Conclusion::Limited { by } if by[..] == [Limit::Cpu]);
    let waits =
        limited_by_cpu && finding.limit != Limit::Cpu && limits::looks_like_cpu(finding.limit);
    let full = waits.then(|| limits::full_processor(facts)).flatten();
    if full.is_some() {
        finding.remedies.clear();
    }
    let Some(fact) = full.or_else(|| against(finding.limit, facts)) else {
        return;
    };
    finding.confidence = Confidence::Possible;
    finding.evidence.retain(|known| known.key != fact.key);
    finding.against = Some(fact);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{LostSegment, SenderInterval};
    use model::finding::{Level, Share, Source};
    use model::{Bytes, Nanos};

    const RTT: Nanos = Nanos::from_millis(20);

    /// Six seconds at 100 segments in each round trip, all of the receive window, with a loss every half second.
    fn steady() -> Facts {
        let mut facts = Facts::new(Source::Samples);
        (facts.mss, facts.min_rtt) = (1000, Some(RTT));
        (facts.span, facts.bytes) = (Nanos(300 * RTT.0), Bytes(300 * 100_000));
        (facts.segments, facts.retransmitted) = (30_000, 12);
        for n in 0..300 {
            facts.read(SenderInterval {
                from: Nanos(n * RTT.0),
                to: Nanos((n + 1) * RTT.0),
                srtt: RTT,
                flight: 100_000,
                window: 100_000,
                delivered: 100_000,
                passed: 100_000,
                ..SenderInterval::default()
            });
        }
        facts.losses = (0..12).map(|n| lost(n * 500, RTT)).collect();
        facts
    }

    fn lost(ms: u64, srtt: Nanos) -> LostSegment {
        LostSegment {
            at: Nanos::from_millis(ms),
            srtt,
            flight: 100_000,
            place: None,
            bytes: 1000,
            ..LostSegment::default()
        }
    }

    /// The same with round trips of so many shortest ones.
    fn queued(mut facts: Facts, times: f64) -> Facts {
        let srtt = Nanos((RTT.0 as f64 * times) as u64);
        facts.readings.iter_mut().for_each(|r| r.srtt = srtt);
        facts.losses.iter_mut().for_each(|l| l.srtt = srtt);
        facts
    }

    /// What contradicts a certain finding; without a contradiction its confidence is unchanged.
    fn speaks(limit: Limit, facts: &Facts) -> Option<Key> {
        let mut finding = Finding {
            limit,
            level: Level::Second,
            share: Share::default(),
            confidence: Confidence::Certain,
            evidence: vec![facts.evidence(Key::RttOverMinRtt, 1.0)],
            against: None,
            remedies: Vec::new(),
            decider: None,
        };
        weigh(&mut finding, facts, &Conclusion::Unexplained);
        let is_certain = finding.confidence == Confidence::Certain;
        assert_eq!(is_certain, finding.against.is_none(), "{finding:?}");
        let against = finding.against?;
        assert!(against.threshold.is_some(), "{against:?}");
        assert!(finding.evidence.iter().all(|e| e.key != against.key));
        Some(against.key)
    }

    #[test]
    fn a_full_window_is_no_limit_while_a_queue_stands() {
        for limit in [Limit::ReceiveWindow, Limit::SendBuffer] {
            let long = Some(Key::RttOverMinRtt);
            assert_eq!(speaks(limit, &queued(steady(), 1.2)), None);
            assert_eq!(speaks(limit, &queued(steady(), 1.4)), long);
            // Where the rate moves, a longer one.
            let mut moves = steady();
            let slower = moves.readings.iter_mut().skip(150);
            slower.for_each(|r| r.delivered /= 2);
            assert_eq!(speaks(limit, &queued(moves.clone(), 1.4)), None);
            assert_eq!(speaks(limit, &queued(moves, 1.6)), long);
        }
    }

    #[test]
    fn a_program_that_waits_while_its_data_stand_in_a_queue_is_not_certain() {
        // Of 300 readings 100 are idle, and so many of these queued, with so many segments out.
        let of = |queued: usize, segments: u64, times: f64| {
            let mut facts = steady();
            for (n, r) in facts.readings.iter_mut().enumerate() {
                r.limit = (n < 100).then_some(Limit::Application);
                (r.flight, r.delivered) = (segments * 1000, 0);
                let times = if n < queued { times } else { 1.0 };
                r.srtt = Nanos((RTT.0 as f64 * times) as u64);
            }
            speaks(Limit::Application, &facts)
        };
        let long = Some(Key::RttOverMinRtt);
        // Fifty milliseconds are two and a half round trips more.
        assert_eq!([of(25, 4, 3.5), of(24, 4, 3.5)], [long, None]);
        assert_eq!([of(25, 3, 3.5), of(25, 4, 3.4)], [None, None]);
    }

    #[test]
    fn on_a_full_link_neither_losses_nor_windows_hold_anything_back() {
        use Limit::{BottleneckRate, BurstLoss, RandomLoss, ReceiveWindow, Reordering, SendBuffer};
        let of = |limit, times: f64| {
            let mut facts = steady();
            // 100 segments in each RTT.
            facts.capacity = Some(5e6 * times);
            speaks(limit, &facts)
        };
        for limit in [BurstLoss, RandomLoss, Reordering, ReceiveWindow, SendBuffer] {
            assert_eq!(of(limit, 1.1), Some(Key::GoodputOverCapacity), "{limit:?}");
            assert_eq!(of(limit, 1.2), None, "{limit:?}");
        }
        assert_eq!(of(BottleneckRate, 1.1), None);
        assert_eq!(of(BottleneckRate, 1.2), Some(Key::RttOverMinRttAtLosses));
    }

    #[test]
    fn a_window_that_would_carry_far_more_than_flowed_is_no_limit() {
        let of = |window| {
            let mut facts = steady();
            facts.readings.iter_mut().for_each(|r| r.window = window);
            speaks(Limit::ReceiveWindow, &facts)
        };
        assert_eq!(of(115_000), None);
        assert_eq!(of(125_000), Some(Key::ReceiveWindowRate));
    }

    #[test]
    fn a_send_buffer_of_which_half_would_carry_more_is_no_limit() {
        let of = |buffer| {
            let mut facts = steady();
            facts.send_buffer = Some(Bytes(buffer));
            speaks(Limit::SendBuffer, &facts)
        };
        assert_eq!(of(210_000), None);
        assert_eq!(of(230_000), Some(Key::SendBufferRate));
    }

    #[test]
    fn a_sender_that_is_faster_than_its_losses_allow_does_not_yield_to_them() {
        let of = |retransmitted| {
            let mut facts = steady();
            facts.retransmitted = retransmitted;
            facts.losses.truncate(2);
            let limits = [Limit::RandomLoss, Limit::BurstLoss, Limit::Reordering];
            limits.map(|limit| speaks(limit, &facts))
        };
        // 100 segments in each RTT: 1.22 / sqrt(p) of them at a loss of 0.1 %, and of 0.2 %. Two bursts are two losses.
        let ignored = Some(Key::LossLimitedRate);
        assert_eq!(of(30), [None; 3]);
        assert_eq!(of(60), [ignored, None, ignored]);
    }

    #[test]
    fn a_sender_that_yields_to_losses_does_not_fill_the_line() {
        let full = [Limit::BottleneckRate, Limit::Bufferbloat, Limit::Shaper];
        for limit in full {
            assert_eq!(speaks(limit, &queued(steady(), 2.0)), None);
            let no_queue = speaks(limit, &steady());
            assert_eq!(no_queue, Some(Key::RttOverMinRttAtLosses));
            // A third of the time at a third of the rate, after losses.
            let mut slower = queued(steady(), 2.0);
            for reading in slower
                .readings
                .iter_mut()
                .filter(|r| r.from.0 / RTT.0 % 30 < 10)
            {
                reading.delivered /= 3;
            }
            let after_losses = Some(Key::MeanGoodputOverMedian);
            assert_eq!(speaks(limit, &slower), after_losses);
            // Without losses it yields to nothing.
            slower.retransmitted = 0;
            assert_eq!(speaks(limit, &slower), None);
        }
    }

    #[test]
    fn a_buffer_on_a_path_well_used_was_not_too_small() {
        let of = |used: f64| {
            let mut facts = steady();
            facts.bucket = Some(BucketFit {
                rate: facts.rate() / used,
                range: [facts.rate() / used; 2],
                depth: 50_000.0,
                parts: 0.9,
                events: 46,
                of_events: 46,
                segment: 1000,
                connections: 1,
            });
            speaks(Limit::BurstLoss, &facts)
        };
        assert_eq!(of(0.6), None);
        assert_eq!(of(0.8), Some(Key::GoodputOverBucketRate));
        assert_eq!(
            speaks(Limit::BurstLoss, &steady()),
            None,
            "no queue is seen"
        );
    }

    #[test]
    fn random_loss_does_not_come_in_runs() {
        let together = |count: u64| {
            let mut facts = steady();
            facts.readings = facts.readings[..100].to_vec();
            let events = (0..12).flat_map(|n| (0..count).map(move |k| lost(n * 500 + k, RTT)));
            facts.losses = events.collect();
            facts.retransmitted = 12 * count;
            speaks(Limit::RandomLoss, &facts)
        };
        assert_eq!(together(1), None);
        assert_eq!(together(3), Some(Key::LossRunOverRandom));
    }
}
