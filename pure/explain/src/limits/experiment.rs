//! Experiments between causes that all fit, proposed only if the causes differ in their expected outcome:
//!
//! | change | faster | no difference | slower |
//! |---|---|---|---|
//! | pacing below the rate that overflows, above what was reached | policer, shallow buffer | random loss | - |
//! | segments of half the size | policer, shallow buffer | policer, shallow buffer, rate of the path | random loss, shallow buffer, processor |
//!
//! A policer's bucket or a shallow buffer loses nothing of a sender that stays below its rate; random loss remains. Random
//! loss takes segments, so that segments of half the size carry half as much (Mathis and others 1997), and a processor works
//! on each; a bucket counts bytes, a buffer bytes or packets. No experiment separates a policer from a shallow buffer:
//! the remedy is the same.

use super::policer::{PassedBytes, SpentBucket};
use super::random_loss::QUEUE;
use crate::facts::{self, BucketFit, Facts, LostSegment, bit_rate};
use model::finding::{Decider, Limit};
use model::{BitRate, Nanos};

/// Of the rate that overflows: the lowest that fits, and as the highest rate of a stretch, which is some per cent off.
const BELOW_FITTED: f64 = 0.95;
const BELOW_HIGHEST: f64 = 0.9;
/// Pacing must let so much more through than was reached: the next transfers may reach a fifth more by themselves.
const GAIN: f64 = 1.25;
/// The largest that can be asked for.
const MOST_MARGIN: f64 = 1.0;
/// Headers of segments of half the size take 4 % more of a path; random loss takes some 40 %. Halfway, as a ratio.
const MSS_MARGIN: f64 = 0.25;
/// Rates are those of stretches so long: a loss is noticed a round trip late, and samples place it within one.
const ROUND_TRIPS: u64 = 10;
/// Round trips in which what was lost of the first segments is noticed, behind the first reading.
const UNPACED: u64 = 8;
/// Stretches for the rate of a link: in these, acknowledgements that come in bursts average out.
const FEW_ROUND_TRIPS: u64 = 4;
const READINGS: u64 = 4;

/// The experiment between these causes.
pub(crate) fn between(causes: &[Limit], facts: &Facts) -> Option<Decider> {
    use Limit::{BottleneckRate, BurstLoss, Cpu, Policer, RandomLoss};
    // BBR reaches about the same rate whatever it loses.
    let lose = |limit: &Limit| matches!(limit, RandomLoss | BurstLoss | Policer);
    if facts.is_bbr() && causes.iter().any(lose) {
        return None;
    }
    let paced = paced(facts, causes.contains(&Policer)).filter(|_| {
        // Several connections have a rate each, and the experiment has one.
        facts.sender_load.is_none_or(|load| load.streams <= 1)
    });
    let gain = |rate: BitRate| rate.0 as f64 / bit_rate(facts.rate()).0.max(1) as f64;
    let pacing = paced
        .filter(|rate| gain(*rate) >= GAIN && loses_later(facts))
        .map(|rate| Decider {
            change: format!("pacing={}", rate.0),
            // Halfway, as a ratio, in whole per cent: random loss makes runs differ by more than a few.
            margin: halfway(gain(rate)),
            faster: vec![Policer, BurstLoss],
            no_difference: vec![RandomLoss],
            slower: Vec::new(),
        });
    let smaller_segments = (facts.mss > 0).then(|| Decider {
        change: format!("mss={}", facts.mss / 2),
        margin: MSS_MARGIN,
        faster: vec![Policer, BurstLoss],
        no_difference: vec![Policer, BurstLoss, BottleneckRate],
        slower: vec![RandomLoss, BurstLoss, Cpu],
    });
    // Random loss makes runs differ too much to show that pacing changes nothing.
    let all = match causes.contains(&Policer) {
        true => [smaller_segments, pacing],
        false => [pacing, smaller_segments],
    };
    let mut all = all.into_iter().flatten();
    all.find_map(|decider| decider.between(causes))
}

/// Whether it lost again what pacing could have kept: Linux paces none of the first ten segments of a connection
/// (`tcp_update_skb_after_send` in `net/ipv4/tcp_output.c`).
fn loses_later(facts: &Facts) -> bool {
    let first = facts.readings.first().map_or(Nanos(0), |r| r.to);
    let early = first
        .0
        .saturating_add(facts.rtt().0.saturating_mul(UNPACED));
    let later: Vec<&LostSegment> = facts.losses.iter().filter(|l| l.at.0 > early).collect();
    later
        .windows(2)
        .any(|pair| !facts.is_one_event(pair[0], pair[1]))
}

fn halfway(gain: f64) -> f64 {
    (((gain.sqrt() - 1.0) * 100.0).floor() / 100.0).min(MOST_MARGIN)
}

/// The rate to pace at so that nothing overflows, be it a policer's bucket or only a buffer; `None` where losses do not show it.
pub(super) fn paced(facts: &Facts, policed: bool) -> Option<BitRate> {
    let fitted = facts.bucket.as_ref().filter(|b| BucketFit::is_seen(b));
    let fitted = fitted.map(|bucket| bucket.range[0] / bucket.connections as f64);
    let below = match fitted.or_else(|| Some(SpentBucket::of(facts)?.rate)) {
        Some(rate) => rate * BELOW_FITTED,
        None => {
            let highest_rate = &facts.derived.highest[usize::from(policed)];
            facts::once(highest_rate, || highest(facts, policed))? * BELOW_HIGHEST
        }
    };
    let rate = bit_rate(below).0;
    let rounded = rate / 100_000 * 100_000;
    (rate > 0).then_some(BitRate(if rounded > 0 { rounded } else { rate }))
}

/// The highest rate of a stretch, in bytes a second: a link carries no more at any time, and a policer lets no more pass
/// between two losses, both of which find its bucket empty; those that a queue loses do not. A stretch begins after the
/// reading with the first loss, which may still have emptied the bucket, and ends before the reading with the second.
fn highest(facts: &Facts, between_losses: bool) -> Option<f64> {
    let passed = PassedBytes::of(facts);
    let readings = &facts.readings;
    let lasted = readings.iter().map(|r| r.to.since(r.from).0);
    // Damaged times may be as long as a number is large.
    let reading = lasted.fold(0, u64::saturating_add) / readings.len().max(1) as u64;
    let of_loss = |at: Nanos| match readings.get(readings.partition_point(|r| r.to < at)) {
        Some(r) => (r.from.min(at), r.to),
        None => (at, at),
    };
    let queue = facts.queue_from(QUEUE) * facts.min_rtt.unwrap_or_default().0 as f64;
    let is_policed = |loss: &&LostSegment| loss.srtt.0 as f64 <= queue || queue == 0.0;
    let policed = facts.losses.iter().filter(is_policed);
    let (round_trips, bounds): (u64, Vec<(Nanos, Nanos)>) = match between_losses {
        true => (ROUND_TRIPS, policed.map(|l| of_loss(l.at)).collect()),
        false => (
            FEW_ROUND_TRIPS,
            readings.iter().map(|r| (r.to, r.to)).collect(),
        ),
    };
    let round_trips = facts.rtt().0.saturating_mul(round_trips);
    let stretch = round_trips.max(reading.saturating_mul(READINGS));
    let mut ends = bounds.iter().map(|(end, _)| *end).peekable();
    let rates = bounds.iter().filter_map(|(_, from)| {
        while ends.next_if(|to| to.since(*from).0 < stretch).is_some() {}
        let to = *ends.peek()?;
        Some((passed.until(to) - passed.until(*from)) / to.since(*from).as_secs_f64())
    });
    rates.reduce(f64::max).filter(|rate| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{CpuLoad, LostSegment, SenderInterval};
    use model::finding::Source;

    const LOSES: [Limit; 3] = [Limit::RandomLoss, Limit::BurstLoss, Limit::Policer];

    /// A minute of a sender through a policer. It adds a segment in each round trip, halves its window at a loss, and pauses
    /// at one of so many.
    fn policed(rtt_ms: u64, mbit: f64, bucket: f64, pause: u64) -> Facts {
        let mut facts = Facts::new(Source::Samples);
        facts.mss = 1448;
        let rtt = Nanos::from_millis(rtt_ms);
        facts.min_rtt = Some(rtt);
        let refill = mbit * 1e6 / 8.0 * rtt.as_secs_f64();
        let (mut window, mut tokens, mut cuts) = (10.0, bucket, 0);
        for n in 0..60_000 / rtt_ms {
            tokens = f64::min(tokens + refill, bucket + refill);
            let asked = f64::max(window, 1.0) * 1448.0;
            let passed = f64::min(asked, tokens);
            let is_lost = passed < asked;
            tokens -= passed;
            let (from, to) = (Nanos(n * rtt.0), Nanos((n + 1) * rtt.0));
            facts.read(SenderInterval {
                from,
                to,
                delivered: passed as u64,
                passed: passed as u64,
                ..SenderInterval::default()
            });
            facts.losses.extend(is_lost.then_some(LostSegment {
                at: to,
                srtt: rtt,
                flight: asked as u64,
                place: None,
                bytes: 0,
                ..LostSegment::default()
            }));
            cuts += u64::from(is_lost);
            window = match is_lost {
                true if cuts % pause == 0 => -60.0,
                true => window / 2.0,
                false if cuts == 0 => window * 2.0,
                false => window + 1.0,
            };
        }
        facts
    }

    #[test]
    fn pacing_is_below_a_policers_rate_and_above_what_was_reached() {
        for (rtt_ms, mbit, bucket, pause) in [
            (20, 100.0, 15e3, 1000),
            (20, 100.0, 500e3, 1000),
            (80, 40.0, 100e3, 1000),
            (10, 5.0, 8e3, 1000),
            (20, 100.0, 500e3, 2),
            (40, 30.0, 100e3, 2),
        ] {
            let facts = policed(rtt_ms, mbit, bucket, pause);
            let reached = facts.rate() * 8e-6;
            let paced = paced(&facts, true).unwrap().0 as f64 / 1e6;
            let case = format!("{mbit} Mbit/s, bucket of {bucket}, {reached} reached: {paced}");
            assert!(paced < mbit, "{case}");
            assert_eq!(paced > GAIN * reached, pause == 2, "{case}");
        }
    }

    /// The same, as samples of every 100 ms show it: losses spread evenly over each.
    fn sampled(of: &Facts) -> Facts {
        const EVERY: u64 = 100_000_000;
        let mut facts = Facts::new(Source::Samples);
        facts.mss = of.mss;
        facts.min_rtt = of.min_rtt;
        let end = |at: Nanos| Nanos(at.0.div_ceil(EVERY) * EVERY);
        for parts in of.readings.chunk_by(|a, b| end(a.to) == end(b.to)) {
            let to = end(parts[0].to);
            let passed = parts.iter().map(|r| r.passed).sum();
            facts.read(SenderInterval {
                from: Nanos(to.0 - EVERY),
                to,
                delivered: passed,
                passed,
                ..SenderInterval::default()
            });
        }
        for lost in of.losses.chunk_by(|a, b| end(a.at) == end(b.at)) {
            let step = EVERY / (lost.len() as u64 + 1);
            facts
                .losses
                .extend((1..).zip(lost).map(|(n, loss)| LostSegment {
                    at: Nanos(end(loss.at).0 - EVERY + n * step),
                    ..*loss
                }));
        }
        facts
    }

    #[test]
    fn losses_that_samples_misplace_do_not_raise_the_rate_above_a_policers() {
        for (rtt_ms, mbit, bucket, pause) in [
            (20, 2.457, 76e3, 1000),
            (20, 2.457, 76e3, 2),
            (10, 10.0, 200e3, 2),
            (40, 30.0, 100e3, 1000),
        ] {
            let facts = sampled(&policed(rtt_ms, mbit, bucket, pause));
            let rate = paced(&facts, true).map(|rate| rate.0 as f64 / 1e6);
            assert!(
                rate.is_none_or(|rate| rate < mbit),
                "{rate:?} of {mbit} Mbit/s, bucket of {bucket}"
            );
        }
    }

    #[test]
    fn a_margin_is_at_most_what_can_be_asked_for() {
        assert_eq!(halfway(2.25), 0.5);
        assert_eq!(halfway(11.0), 1.0);
    }

    #[test]
    fn only_causes_that_an_outcome_separates_have_an_experiment() {
        let mut facts = policed(20, 100.0, 500e3, 2);
        assert_eq!(between(&[Limit::BurstLoss, Limit::Policer], &facts), None);
        assert_eq!(
            between(&[Limit::SendBuffer, Limit::Application], &facts),
            None
        );
        assert_eq!(between(&[Limit::RandomLoss], &facts), None);
        let change = |causes: &[Limit], facts: &Facts| between(causes, facts).unwrap().change;
        assert_eq!(
            change(&[Limit::Cpu, Limit::BottleneckRate], &facts),
            "mss=724"
        );
        assert_eq!(change(&LOSES, &facts), "mss=724");
        let buffer_or_chance = [Limit::BurstLoss, Limit::RandomLoss];
        let pacing = between(&buffer_or_chance, &facts).unwrap();
        assert!(pacing.change.starts_with("pacing="));
        // Pacing above the rate that was reached slows no transfer down, unless it was unlucky: that excludes none.
        assert!(pacing.slower.is_empty());
        // What is lost of the first segments, which nothing paces, says nothing of pacing.
        let all = std::mem::take(&mut facts.losses);
        facts
            .losses
            .extend(all.iter().take(3).map(|loss| LostSegment {
                at: Nanos::from_millis(40),
                ..*loss
            }));
        assert_eq!(between(&buffer_or_chance, &facts), None);
        facts.losses = all;
        // The rate of one of four is not that of all.
        facts.sender_load = Some(CpuLoad {
            streams: 4,
            ..CpuLoad::default()
        });
        assert_eq!(between(&buffer_or_chance, &facts), None);
        facts.congestion = Some("bbr".to_owned());
        assert_eq!(between(&LOSES, &facts), None);
    }

    #[test]
    fn the_margin_is_halfway_as_a_ratio() {
        assert_eq!([1.25, 2.25, 4.0, 9.0].map(halfway), [0.11, 0.5, 1.0, 1.0]);
    }
}
