//! A token bucket that drops: what exceeds the rate is lost at once, without a queue.
//!
//! The test is the one of Flach and others ("An Internet-Wide Analysis of Traffic Policing", 2016),
//! with thresholds set on emulated paths: the bucket is simulated from what passed; it must be empty
//! at nine tenths of the loss events (RFC 5348, 5.2) and more, and not when something passes.
//!
//! Near miss: random loss, which strikes at any filling; a queue, which delays what passes; slow start's overshoot, which is one
//! loss event however much it loses.

use super::burst_loss::{self, LossPattern};
use super::loss_runs::{self, LossRuns};
use super::{Candidate, Key, bucket, experiment, random_loss};
use crate::facts::{self, BucketFit, Facts, LostSegment, bit_rate};
use model::finding::Confidence;
use model::stats::{median, percentile};
use model::{Bytes, Nanos};

const FEWEST_LOSSES: usize = 15;
const FEWEST_SLICES: usize = 3;
/// How near to empty, by what the rate carries in a round trip.
const NEAR: f64 = 0.75;
/// How many of the losses.
const AT_LOSSES: f64 = 0.95;
/// Samples place losses a round trip late and more. So many of them near to empty were seen of policers
/// (0.37 to 0.71), and not of shallow buffers and chance (0.08 to 0.23).
const OFTEN_NEAR: f64 = 0.3;
const DEVIATION: f64 = 0.35;
/// Half the middle spread of the rate by its median that a policer leaves: 0.04 to 0.16 seen, of shallow
/// buffers 0.24 and more.
const STEADY: f64 = 0.2;
/// Of the delay that the bucket would make as a queue, as much as a policer's may be seen: what the segments
/// of one burst add to each other.
const DELAYS: f64 = 0.25;
/// Segments that the delay at the losses would hold at the rate of the bucket: fewer stand elsewhere, at a faster link.
const ELSEWHERE: f64 = 6.0;
/// Fewer loss events at the brim than the first show no bucket: slow start's overshoot or an outage is one. Fewer than the second
/// may fit some rate at random.
const FEWEST_EVENTS: usize = 3;
const SURE_EVENTS: usize = 6;
/// Segments at its rate that the median round trip is longer by at these, at the most: 0.4 to 2.9 seen of policers. A queue that
/// CoDel keeps short holds more at 10 Mbit/s and above (5 ms; RFC 8289, 4.2).
const SHORT_QUEUE: f64 = 3.5;
/// A bucket that is full at the start: what it lets pass beyond its rate is at least so many segments; it is empty from the first
/// moment at which so much of that has passed.
const FEWEST_SPENT: f64 = 20.0;
const SPENT: f64 = 0.9;
/// And so much by what is in flight when it is lost: a queue holds no more than that.
const BEYOND_FLIGHT: f64 = 3.0;
/// From then on, losses are so near to its brim: this part of what it holds, root mean square (0.12 and less seen of policers).
const NEAR_BRIM: f64 = 0.125;
/// The same by what passed from then on, times the root of the number of loss events: up to so much for each event, and in all.
/// Of transfers with random loss, drawn and simulated, 2 in 1,000 have less.
const STEADY_EACH: f64 = 0.002;
const STEADY_AT_MOST: f64 = 0.05;
/// And so much beyond its rate, by that, while half of it is spent: less is a rate that varies.
const FASTER: f64 = 0.25;
/// Chance that so few loss events come while it is faster, up to which it is none.
const CHANCE: f64 = 1e-4;
/// Retransmissions by segments that came late, up to which these may be the same.
const LATE: u64 = 10;
/// Timeouts, and lost segments of all, that show a sender without anything left to pass.
const STARVED: u64 = 3;
const STARVED_LOSS: f64 = 0.1;
/// More than this at the losses is a queue.
const QUEUE: f64 = 1.10;

/// Elsewhere than at the sender, what a program or its pace gives out at an even rate looks like a bucket.
pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let mut candidate = found(facts)?;
    if facts.is_seen_from_afar() {
        candidate.confidence = Confidence::Possible;
    }
    Some(candidate)
}

fn found(facts: &Facts) -> Option<Candidate> {
    let at_loss = facts.inflation_at_loss()?;
    // What passes a policer leaves a faster link idle.
    if facts.is_seen_from_afar() && facts.fills_link().is_some() {
        return None;
    }
    // A bucket that parts some of them leaves the question open.
    let decided = |b: &BucketFit| b.is_seen() || b.is_excluded();
    if facts.bucket.as_ref().is_some_and(decided) {
        return fits_bucket(facts).or_else(|| spends(facts));
    }
    if let Some(candidate) = spends(facts).or_else(|| starves(facts)) {
        return Some(candidate);
    }
    // Samples are late: what they show of the queue at a loss is also that of later losses.
    let queue_from = facts.queue_from(match facts.is_traced() {
        true => QUEUE,
        false => random_loss::QUEUE,
    });
    if at_loss >= queue_from {
        return None;
    }
    let queue = facts.evidence(Key::RttOverMinRttAtLosses, at_loss);
    let bucket = bucket_of_readings(facts);
    let pattern = burst_loss::pattern(facts);
    if let Some(bucket) = bucket
        .as_ref()
        .filter(|b| at_loss < QUEUE && b.is_empty_at_losses())
    {
        let candidate = advised(
            Candidate::new(
                Confidence::Certain,
                vec![
                    facts.evidence(Key::BucketRate, bit_rate(bucket.rate)),
                    facts
                        .evidence(Key::LossesAtEmptyBucket, bucket.near)
                        .at_least(AT_LOSSES),
                    facts.evidence(Key::Losses, facts.losses.len()),
                    queue.at_most(QUEUE),
                ],
            ),
            facts,
        );
        // A regular sawtooth in a buffer without depth looks the same: then the rate is not flat, or
        // the window at the losses always the same. So does what slow start loses at its end, in few
        // events, of which one may lie in two samples.
        let lossy = facts.readings.iter().filter(|r| r.retransmitted > 0);
        let events = match facts.is_sampled() {
            true => lossy.count() / 2,
            false => facts.loss_events().len(),
        };
        let again = events >= SURE_EVENTS;
        return Some(
            if again && facts.is_flat() && pattern != LossPattern::SameWindow {
                candidate
            } else {
                possible(candidate, 0)
            },
        );
    }
    // A sender that stays below the rate most of the time meets the bucket now and then; what is too
    // coarse to simulate a bucket cannot exclude one. A sender that ignores loss sends at the rate.
    let runs = loss_runs::pattern(facts);
    let near = bucket.as_ref().map(|b| match facts.is_traced() {
        true => 0.0,
        false => b.near,
    });
    let share = facts.loss_share();
    let ignored =
        facts.is_bbr() && (share >= LOSSY_PAUSES || share >= MUCH_LOSS && facts.is_flat());
    let open = runs != LossRuns::OneByOne
        && (pattern != LossPattern::Anywhere
            || near.is_none_or(|near| near >= OFTEN_NEAR)
            || (ignored && runs == LossRuns::Together));
    (open && (facts.loss_hurts() || ignored) && facts.losses.len() >= FEWEST_LOSSES).then(|| {
        let mut evidence = vec![facts.retransmissions(), queue.at_most(queue_from)];
        evidence.extend(loss_runs::evidence(facts));
        // Whoever yields to a bucket stays near its rate; a buffer without depth lets the rate swing.
        let steady = facts.unsteadiness().is_some_and(|u| u < STEADY);
        let rank = match runs == LossRuns::Together && steady {
            _ if facts.loss_allows_more().is_some() => 2,
            true => 0,
            false => 2,
        };
        possible(
            advised(Candidate::new(Confidence::Possible, evidence), facts),
            rank,
        )
    })
}

/// A bucket that was full at the start and has been empty since: the transfer was faster until what it held was spent, then it
/// loses again and again at one rate, without a standing queue. A shaper, or a line that becomes slower, makes a queue; random
/// losses leave no rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SpentBucket {
    /// Bytes a second.
    pub(super) rate: f64,
    /// Bytes that it held.
    depth: f64,
    /// Loss events since it is empty.
    events: usize,
    /// Median time in queues at these.
    delay: Nanos,
    /// They are as far apart as its rate says: chance hardly makes that.
    is_steady: bool,
    /// Before, it was clearly faster.
    was_faster: bool,
}

impl SpentBucket {
    pub(super) fn of(facts: &Facts) -> Option<SpentBucket> {
        facts::once(&facts.derived.spent, || SpentBucket::new(facts))
    }

    fn new(facts: &Facts) -> Option<SpentBucket> {
        let min = facts.min_rtt.filter(|r| r.0 > 0)?;
        // Where between two samples a loss was is not known.
        let reading = |loss: &LostSegment| facts.readings.partition_point(|r| r.to <= loss.at);
        let is_one =
            |a: &LostSegment, b: &LostSegment| facts.is_one_event(a, b) || reading(a) == reading(b);
        let events = facts.losses.chunk_by(is_one);
        let events: Vec<&LostSegment> = events.filter_map(<[LostSegment]>::first).collect();
        let last = events.last()?.at;
        let passed = PassedBytes::of(facts);
        let rate = |from: Nanos, to: Nanos| {
            let span = to.since(from).as_secs_f64();
            (span > 0.0).then(|| (passed.until(to) - passed.until(from)) / span)
        };
        let third = events[events.len().checked_sub((events.len() / 3).max(3))?].at;
        let late = rate(third, last)?;
        let begun = facts.readings.first()?.from;
        let level = |at: Nanos| passed.until(at) - late * at.since(begun).as_secs_f64();
        let ends = facts.readings.iter().map(|r| r.to).filter(|to| *to <= last);
        let most = ends.clone().map(level).fold(0.0, f64::max);
        let empty = { ends }.find(|at| level(*at) >= SPENT * most && *at <= third)?;
        let (before, events) = events.split_at(events.partition_point(|l| l.at < empty));
        let first = events.first()?.at;
        let rate = rate(first, last).filter(|rate| *rate > 0.0)?;
        let spent = |at: Nanos| passed.until(at) - rate * at.since(begun).as_secs_f64();
        let depth = spent(first);
        let from_brim = events.iter().map(|l| (spent(l.at) - depth).powi(2));
        let swing = (from_brim.sum::<f64>() / events.len() as f64).sqrt();
        let delay = median(events.iter().map(|l| l.srtt.since(min).0 as f64))?;
        let segment = f64::from(facts.mss.max(1));
        let out = median(events.iter().map(|l| l.flight as f64))?;
        let count = events.len() as f64;
        let unsteady = swing / (passed.until(last) - passed.until(first)).max(1.0) * count.sqrt();
        let is_steady = unsteady <= (STEADY_EACH * count).min(STEADY_AT_MOST);
        // BBR goes on at the rate of the path while some are lost at random.
        let goes_on = facts.is_bbr() && !facts.loss_hurts();
        let mut ends = facts.readings.iter().map(|r| r.to);
        let half = ends.find(|at| spent(*at) >= depth / 2.0)?;
        let beyond = depth / 2.0 / half.since(begun).as_secs_f64().max(1e-9);
        let found = SpentBucket {
            rate,
            depth,
            events: events.len(),
            delay: Nanos(delay as u64),
            is_steady,
            was_faster: beyond >= FASTER * rate,
        };
        // Hardly anything was lost before it was empty, and what is lost at random is lost at any time.
        let faster = passed.until(first) / passed.until(last).max(1.0);
        let by_chance = chance_of_at_most(before.len(), before.len() + events.len(), faster);
        let is_one = events.len() >= SURE_EVENTS
            && (is_steady || goes_on || by_chance <= CHANCE)
            && depth >= (FEWEST_SPENT * segment).max(BEYOND_FLIGHT * out)
            && swing <= NEAR_BRIM * depth
            && found.delay <= found.most_delay(facts);
        is_one.then_some(found)
    }

    /// What waits elsewhere, at a faster link.
    fn most_delay(&self, facts: &Facts) -> Nanos {
        Nanos((SHORT_QUEUE * f64::from(facts.mss.max(1)) / self.rate * 1e9) as u64)
    }
}

/// What comes late may be what is taken for lost.
fn comes_late(facts: &Facts) -> bool {
    facts.reordered * LATE > facts.retransmitted
}

/// Probability that at most `few` of `all` events fall into a part of such a share (binomial).
fn chance_of_at_most(few: usize, all: usize, share: f64) -> f64 {
    let odds = share / (1.0 - share);
    let mut term = (1.0 - share).powf(all as f64);
    let mut sum = term;
    for n in 0..few {
        term *= odds * (all - n) as f64 / (n + 1) as f64;
        sum += term;
    }
    sum
}

fn spends(facts: &Facts) -> Option<Candidate> {
    let bucket = SpentBucket::of(facts)?;
    let delay = facts.evidence(Key::RttAboveMinRttAtLosses, bucket.delay);
    let evidence = vec![
        facts.evidence(Key::BucketRate, bit_rate(bucket.rate)),
        facts.evidence(Key::BucketDepth, Bytes(bucket.depth as u64)),
        facts.evidence(Key::LossEvents, bucket.events),
        delay.at_most(bucket.most_delay(facts).0 as f64),
    ];
    let late = comes_late(facts);
    let confidence = match bucket.is_steady && bucket.was_faster && !late {
        true => Confidence::Certain,
        false => Confidence::Possible,
    };
    // The timeouts that it makes come after it.
    let first = bucket.is_steady || facts.stood_still();
    let rank = if first { 0 } else { 1 };
    Some(advised(Candidate::new(confidence, evidence), facts).ranked(rank))
}

/// A bucket that was emptied loses all that comes until it has refilled: whole windows again and again, until timers fire. A
/// queue loses what does not fit, and delays the rest.
fn starves(facts: &Facts) -> Option<Candidate> {
    let held = facts.queued_at_loss(facts.rate())?;
    let again = facts.timeouts >= STARVED && facts.backoffs < STARVED as u32;
    let lost = facts.loss_hurts() && facts.loss_share() >= STARVED_LOSS;
    (again && lost && held < ELSEWHERE).then(|| {
        let evidence = vec![
            facts
                .retransmissions()
                .at_least(facts.segments as f64 * STARVED_LOSS),
            facts
                .evidence(Key::RetransmissionTimeouts, facts.timeouts)
                .at_least(STARVED as f64),
        ];
        possible(
            advised(Candidate::new(Confidence::Possible, evidence), facts),
            0,
        )
    })
}

/// Every segment that left is known, and a bucket parts the lost from the passed.
pub(crate) fn fits_bucket(facts: &Facts) -> Option<Candidate> {
    let bucket = facts.bucket.as_ref().filter(|_| is_policed(facts))?;
    let mut evidence = bucket::evidence(facts, Some(DELAYS));
    evidence.push(facts.evidence(Key::LossEvents, bucket.events));
    let sharing = Some(bucket.connections).filter(|many| *many > 1);
    evidence.extend(sharing.map(|many| facts.evidence(Key::BucketConnections, many)));
    // Where a small bucket fits many rates, the fastest would hardly have delayed anything as a queue.
    let [_, fastest] = bucket.range;
    let least = Nanos((bucket.depth / fastest.max(1.0) * 1e9 * DELAYS) as u64);
    let in_events = facts.rtt().0 as f64 * (facts.inflation_at_loss().unwrap_or(1.0) - 1.0);
    let delay = facts.delay_at_loss().unwrap_or_default().0 as f64;
    let queued = delay.max(in_events) > least.0 as f64;
    let confidence = match bucket.events >= SURE_EVENTS && !queued && !comes_late(facts) {
        true => Confidence::Certain,
        false => Confidence::Possible,
    };
    Some(advised(Candidate::new(confidence, evidence), facts))
}

/// BBR goes on at the rate that a bucket left it, in small bursts with pauses between them, and loses much all the same.
pub(crate) fn fits_pauses(facts: &Facts) -> Option<Candidate> {
    let lossy = facts.loss_share() >= LOSSY_PAUSES && !facts.is_exchange;
    fits_bucket(facts).or_else(|| fits(facts).filter(|_| lossy).map(|one| possible(one, 0)))
}

/// A bucket explains the losses, again and again, and what it holds does not delay what passes: it is no queue, and none that
/// follows the burst of a shaper. How much of its rate was carried says nothing: a sender that backs off from each loss may be
/// left with a tenth.
pub(crate) fn is_policed(facts: &Facts) -> bool {
    let delay = facts.delay_at_loss().unwrap_or_default();
    facts.bucket.as_ref().is_some_and(|b| {
        let held = b.rate * delay.as_secs_f64() / f64::from(b.segment);
        b.is_seen()
            && b.events >= FEWEST_EVENTS
            && delay.0 as f64 <= b.delay().0 as f64 * DELAYS
            && (held < ELSEWHERE || !facts.queue_at_loss(random_loss::QUEUE))
    })
}

fn possible(mut candidate: Candidate, rank: u8) -> Candidate {
    candidate.confidence = Confidence::Possible;
    candidate.ranked(rank)
}

fn advised(candidate: Candidate, facts: &Facts) -> Candidate {
    candidate
        .try_out(
            experiment::paced(facts, true).map(|rate| format!("pacing={}", rate.0)),
            "pace just below the rate, so that the bucket is never empty",
        )
        .advise("the operator of the path can raise the rate, or use a shaper instead")
}

/// The bucket that the losses would need.
struct Filling {
    /// Bytes a second.
    rate: f64,
    /// Share of losses with the bucket nearly empty.
    near: f64,
    /// Standard deviation of the tokens at losses, by a round trip's worth.
    deviation: f64,
    at_loss: f64,
    at_pass: f64,
}

impl Filling {
    fn is_empty_at_losses(&self) -> bool {
        self.near >= AT_LOSSES && self.deviation <= DEVIATION && self.at_loss < self.at_pass
    }
}

/// A sender that ignores losses meets so many at a policer.
const MUCH_LOSS: f64 = 0.02;
/// So much is lost through one by a sender that pauses: 8 to 18 % seen of BBR.
const LOSSY_PAUSES: f64 = 0.05;

/// Simulates a bucket that is empty at the first loss; `None` where losses are too few or too near
/// each other, or the readings too coarse to place them.
fn bucket_of_readings(facts: &Facts) -> Option<Filling> {
    let rtt = facts.min_rtt.filter(|r| r.0 > 0)?;
    let (first, last) = (facts.losses.first()?.at, facts.losses.last()?.at);
    let mut slices: Vec<u64> = facts.losses.iter().map(|l| l.at.0 / rtt.0).collect();
    slices.sort_unstable();
    slices.dedup();
    if facts.losses.len() < FEWEST_LOSSES || slices.len() < FEWEST_SLICES || facts.is_coarse() {
        return None;
    }
    let span = last.since(first).as_secs_f64();
    let passed = PassedBytes::of(facts);
    let begun = passed.until(first);
    let rate = (passed.until(last) - begun) / span.max(1e-9);
    let worth = rate * rtt.as_secs_f64();
    if worth <= 0.0 {
        return None;
    }
    let tokens =
        |at: Nanos| (rate * at.since(first).as_secs_f64() - (passed.until(at) - begun)) / worth;
    let mut at_losses: Vec<f64> = facts.losses.iter().map(|l| tokens(l.at)).collect();
    let n = at_losses.len() as f64;
    let near = at_losses.iter().filter(|t| t.abs() <= NEAR).count() as f64 / n;
    let mean = at_losses.iter().sum::<f64>() / n;
    let deviation = (at_losses.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / n).sqrt();
    let passing = facts
        .readings
        .iter()
        .filter(|r| r.retransmitted == 0 && r.from >= first && r.to <= last && r.passed > 0);
    Some(Filling {
        rate,
        near,
        deviation,
        at_loss: percentile(&mut at_losses, 0.5)?,
        at_pass: median(passing.map(|r| tokens(r.to)))?,
    })
}

/// Bytes that passed until a moment, between readings in proportion.
pub(super) struct PassedBytes<'a> {
    facts: &'a Facts,
    /// Before each reading.
    before: Vec<u64>,
}

impl PassedBytes<'_> {
    pub(super) fn of(facts: &Facts) -> PassedBytes<'_> {
        let mut sum = 0;
        let before = facts.readings.iter().map(|r| {
            let before = sum;
            sum += r.passed;
            before
        });
        PassedBytes {
            before: before.collect(),
            facts,
        }
    }

    pub(super) fn until(&self, at: Nanos) -> f64 {
        let readings = &self.facts.readings;
        let n = readings.partition_point(|r| r.to <= at);
        match (readings.get(n), self.before.get(n)) {
            (Some(r), Some(&before)) => {
                let span = r.to.since(r.from).0.max(1) as f64;
                let part = (at.since(r.from).0 as f64 / span).min(1.0);
                before as f64 + part * r.passed as f64
            }
            _ => readings.iter().map(|r| r.passed as f64).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::SenderInterval;
    use model::Random;
    use model::finding::Source;

    /// Ten seconds at 0.1 MB/s through a bucket of 1 MB/s that would hold 50 ms, with so many loss events at its brim, each
    /// with such a delay.
    fn cut(events: usize, delay: Nanos) -> Option<Confidence> {
        cut_at(events, delay, 1e6)
    }

    /// The same where rates up to this one fit.
    fn cut_at(events: usize, delay: Nanos, fastest: f64) -> Option<Confidence> {
        let mut facts = Facts::new(Source::Trace);
        let rtt = Nanos::from_millis(20);
        (facts.mss, facts.min_rtt) = (1000, Some(rtt));
        (facts.bytes, facts.span) = (Bytes(1_000_000), Nanos::from_secs(10));
        (facts.segments, facts.retransmitted) = (1000, 20);
        for n in 0..500 {
            facts.read(SenderInterval {
                from: Nanos(n * rtt.0),
                to: Nanos((n + 1) * rtt.0),
                srtt: rtt,
                delivered: 2000,
                passed: 2000,
                ..SenderInterval::default()
            });
        }
        facts.losses = (0..20)
            .map(|n| LostSegment {
                at: Nanos::from_millis(n * 500),
                srtt: rtt + delay,
                flight: 20_000,
                place: None,
                bytes: 1000,
                ..LostSegment::default()
            })
            .collect();
        facts.bucket = Some(BucketFit {
            rate: 1e6,
            range: [1e6, fastest],
            depth: 50e3,
            parts: 0.9,
            events,
            of_events: events,
            segment: 1000,
            connections: 1,
        });
        fits(&facts).map(|candidate| candidate.confidence)
    }

    #[test]
    fn a_policer_may_cut_to_a_tenth_of_its_rate() {
        let none = Nanos(0);
        assert_eq!(cut(20, none), Some(Confidence::Certain));
        assert_eq!(cut(4, none), Some(Confidence::Possible));
        assert_eq!(cut(2, none), None, "one overshoot, and one chance");
        // Half of what the bucket would hold back as a queue; and a queue of ten segments behind the burst of a shaper.
        assert_eq!(cut(20, Nanos::from_millis(25)), None);
        assert_eq!(cut(20, Nanos::from_millis(10)), None);
        assert_eq!(cut(20, Nanos::from_millis(3)), Some(Confidence::Certain));
    }

    #[test]
    fn a_policer_is_certain_only_if_no_rate_that_fits_would_make_it_a_queue() {
        let delay = Nanos::from_millis(3);
        assert_eq!(cut_at(20, delay, 4e6), Some(Confidence::Certain));
        // At 5 MB/s a queue of this depth delays by 10 ms when it is full.
        assert_eq!(cut_at(20, delay, 5e6), Some(Confidence::Possible));
    }

    #[test]
    fn behind_pauses_much_loss_of_which_a_bucket_separates_some_may_be_a_policers() {
        let of = |retransmitted, parts| {
            let mut facts = Facts::new(Source::CaptureAtSender);
            let rtt = Nanos::from_millis(20);
            (facts.mss, facts.min_rtt) = (1000, Some(rtt));
            (facts.segments, facts.retransmitted) = (1000, retransmitted);
            let lost = |n| LostSegment {
                at: Nanos::from_millis(n * 30),
                srtt: rtt,
                flight: 4000,
                bytes: 1000,
                ..LostSegment::default()
            };
            facts.losses = (0..retransmitted).map(lost).collect();
            facts.bucket = Some(BucketFit {
                rate: 1e5,
                range: [1e5; 2],
                depth: 20e3,
                parts,
                events: 10,
                of_events: 10,
                segment: 1000,
                connections: 1,
            });
            fits_pauses(&facts).map(|candidate| candidate.confidence)
        };
        let possible = Some(Confidence::Possible);
        assert_eq!(
            [of(100, 0.9), of(100, 0.5), of(100, 0.3)],
            [Some(Confidence::Certain), possible, None]
        );
        assert_eq!(of(40, 0.5), None, "a program that pauses, and some loss");
    }

    #[test]
    fn bbr_that_loses_much_at_once_and_goes_on_at_one_rate_may_meet_one() {
        let of = |congestion: &str| {
            let mut facts = crate::facts::tests::steady(500);
            facts.source = Source::Samples;
            facts.congestion = Some(congestion.into());
            (facts.segments, facts.retransmitted) = (5000, 360);
            // Three times during 200 ms, in which more passes, with ever more in flight.
            for (n, reading) in facts.readings.iter_mut().enumerate() {
                reading.passed *= if n % 150 < 20 { 4 } else { 1 };
            }
            let lost = |n: u64| LostSegment {
                at: Nanos::from_micros(n / 120 * 1_500_000 + n % 120 * 1650),
                srtt: Nanos::from_millis(10),
                flight: 4000 + n % 120 * 500,
                bytes: 1000,
                ..LostSegment::default()
            };
            facts.losses = (0..360).map(lost).collect();
            fits(&facts).map(|candidate| candidate.confidence)
        };
        assert_eq!([of("bbr"), of("cubic")], [Some(Confidence::Possible), None]);
    }

    #[test]
    fn who_loses_whole_windows_until_timers_fire_may_meet_an_empty_bucket() {
        let of = |retransmitted, timeouts| {
            let mut facts = Facts::new(Source::Samples);
            (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(1)));
            (facts.bytes, facts.span) = (Bytes(500_000), Nanos::from_secs(4));
            (facts.segments, facts.retransmitted) = (600, retransmitted);
            (facts.timeouts, facts.backoffs) = (timeouts, 1);
            // Twenty times the shortest round trip, and two segments at this rate.
            let lost = LostSegment {
                srtt: Nanos::from_millis(20),
                ..LostSegment::default()
            };
            facts.losses = vec![lost; 20];
            fits(&facts).map(|candidate| candidate.confidence)
        };
        assert_eq!(of(100, 8), Some(Confidence::Possible));
        assert_eq!(of(100, 2), None, "few timeouts");
        assert_eq!(of(30, 8), None, "few lost");
    }

    /// A flow at 2 MB/s that loses twenty segments or one more at these moments, without a queue.
    fn lost_at(source: Source, seconds: &[u64]) -> Option<Confidence> {
        let mut facts = Facts::new(source);
        let rtt = Nanos::from_millis(20);
        (facts.mss, facts.min_rtt) = (1000, Some(rtt));
        (facts.bytes, facts.span) = (Bytes(20_000_000), Nanos::from_secs(10));
        facts.segments = 20_000;
        for n in 0..500 {
            let from = Nanos(n * rtt.0);
            let is_before = |s: &&u64| Nanos::from_secs(**s) > from;
            // A little more than the rate just before a loss, a little less after it.
            let near = seconds.iter().find(is_before);
            let near =
                near.is_some_and(|s| Nanos::from_secs(*s).since(from) <= Nanos::from_millis(100));
            facts.read(SenderInterval {
                from,
                to: Nanos((n + 1) * rtt.0),
                srtt: rtt,
                delivered: 40_000,
                passed: if near { 44_000 } else { 40_000 },
                ..SenderInterval::default()
            });
        }
        let each = 20u64.div_ceil(seconds.len() as u64);
        let at = seconds.iter().flat_map(|s| (0..each).map(move |n| (*s, n)));
        let of = |(s, n): (u64, u64)| LostSegment {
            at: Nanos::from_secs(s) + Nanos::from_millis(n),
            srtt: rtt,
            flight: 40_000 + n * 1000 * s,
            place: None,
            bytes: 1000,
            ..LostSegment::default()
        };
        facts.losses = at.map(of).collect();
        facts.retransmitted = facts.losses.len() as u64;
        fits(&facts).map(|candidate| candidate.confidence)
    }

    #[test]
    fn a_few_loss_events_are_no_certain_policer() {
        let possible = Some(Confidence::Possible);
        let of = |source| [&[2, 3, 4, 5, 6, 7, 8][..], &[2, 5, 8]].map(|at| lost_at(source, at));
        assert_eq!(of(Source::Trace), [Some(Confidence::Certain), possible]);
        assert_eq!(
            of(Source::CaptureAtReceiver),
            [possible; 2],
            "the sender may keep to a rate itself"
        );
    }

    /// A second at 4 MB/s, then four seconds in which it loses each 100 ms, with such a round trip; what passes in each
    /// tenth of a second after that.
    fn spent(srtt: Nanos, passes: impl Fn(u64) -> u64) -> Option<Confidence> {
        let mut facts = Facts::new(Source::Samples);
        (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(10)));
        (facts.segments, facts.retransmitted) = (8000, 40);
        for n in 0..500 {
            let tenth = n / 10;
            let passed = if n < 100 { 40_000 } else { passes(tenth) / 10 };
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 10),
                to: Nanos::from_millis(n * 10 + 10),
                srtt,
                delivered: passed,
                passed,
                ..SenderInterval::default()
            });
        }
        let lost = |n: u64| LostSegment {
            at: Nanos::from_millis(1000 + n * 100),
            srtt,
            flight: 15_000,
            ..LostSegment::default()
        };
        facts.losses = (0..40).map(lost).collect();
        spends(&facts).map(|candidate| {
            let pace = "pacing=7500000".to_owned();
            let sure = candidate.confidence == Confidence::Certain;
            assert!(
                !sure || candidate.remedies[0].change == Some(pace),
                "below 1 MB/s"
            );
            candidate.confidence
        })
    }

    #[test]
    fn a_transfer_that_was_faster_until_a_bucket_was_spent_meets_a_policer() {
        let short = Nanos::from_millis(11);
        let sawtooth = |n: u64| if n.is_multiple_of(2) { 90_000 } else { 110_000 };
        assert_eq!(spent(short, sawtooth), Some(Confidence::Certain));
        // A line that becomes slower makes a queue.
        assert_eq!(spent(Nanos::from_millis(20), sawtooth), None);
        // Fast for a while and slow for a while, but all is lost after it was fastest.
        let drifts = |n: u64| {
            if (n / 10).is_multiple_of(2) {
                60_000
            } else {
                140_000
            }
        };
        assert_eq!(spent(short, drifts), Some(Confidence::Possible));
        // It was not faster before.
        assert_eq!(spent(short, |n| 4 * sawtooth(n)), None);
    }

    /// A sender that halves its window once a round trip with losses, on a path drawn at random: behind a policer, or with
    /// random loss.
    fn transfer(random: &mut Random, policed: bool) -> Facts {
        let mut log = |from: f64, to: f64| from * (to / from).powf(random.unit());
        let (rtt, line) = (log(0.5e-3, 0.28), log(2e6, 1e8) / 8.0);
        let (rate, bucket, probability) = (line * log(0.1, 0.9), log(8e3, 4e6), log(1e-4, 3e-2));
        let (size, seconds) = (1448.0, (60.0 * rtt).clamp(4.0, 12.0));
        let most = 2.5 * line * rtt / size + 10.0;
        let ns = |seconds: f64| Nanos((seconds * 1e9) as u64);
        let mut facts = Facts::new(Source::Trace);
        (facts.mss, facts.min_rtt) = (1448, Some(ns(rtt)));
        let (mut at, mut window, mut level, mut starts) = (0.0f64, 10.0f64, 0.0f64, true);
        while at < seconds {
            let out = window.max(2.0).floor();
            let time = rtt.max(out * size / line);
            let mut lost = (out - most).max(0.0).floor();
            for _ in 0..(out - lost) as u64 {
                level = (level - rate * time / out).max(0.0);
                let drops = match policed {
                    true => level + size > bucket,
                    false => random.hits(probability),
                };
                lost += f64::from(u8::from(drops));
                level += if drops { 0.0 } else { size };
            }
            let passed = ((out - lost) * size) as u64;
            // Half of them lost: the timer ends it.
            let stalls = if 2.0 * lost >= out { 0.2 } else { 0.0 };
            let (from, to) = (ns(at), ns(at + time + stalls));
            facts.read(SenderInterval {
                from,
                to,
                srtt: ns(time),
                flight: (out * size) as u64,
                delivered: passed,
                passed,
                ..SenderInterval::default()
            });
            at += time + stalls;
            (facts.segments, facts.retransmitted) = (
                facts.segments + out as u64,
                facts.retransmitted + lost as u64,
            );
            let grown = if starts { 2.0 * window } else { window + 1.0 };
            window = if lost > 0.0 { window / 2.0 } else { grown };
            starts &= lost == 0.0;
            if lost > 0.0 {
                facts.losses.push(LostSegment {
                    at: to,
                    srtt: ns(time),
                    flight: (out * size) as u64,
                    ..LostSegment::default()
                });
            }
        }
        facts
    }

    #[test]
    fn of_transfers_that_are_drawn_at_random_those_that_spent_a_bucket_are_known() {
        let mut random = Random::new(1, 0);
        let mut known = |policed| {
            let all = (0..500).map(|_| transfer(&mut random, policed));
            all.filter(|facts| spends(facts).is_some()).count()
        };
        // Most of these buckets are too small to be seen so, or outlast the transfer.
        assert!(known(true) >= 120);
        assert!(known(false) <= 2);
    }

    #[test]
    fn what_passed_until_a_moment_is_in_proportion() {
        let facts = crate::facts::tests::steady(3);
        let passed = PassedBytes::of(&facts);
        let until = |us: u64| passed.until(Nanos::from_micros(us));
        assert_eq!(
            [until(0), until(10_000), until(15_000)],
            [0.0, 10_000.0, 15_000.0]
        );
        assert_eq!([until(30_000), until(90_000)], [30_000.0; 2]);
    }

    #[test]
    fn chance_is_a_binomial_sum() {
        let is = |few, all, share, wanted: f64| {
            (chance_of_at_most(few, all, share) - wanted).abs() < 1e-9
        };
        assert!(is(0, 2, 0.5, 0.25) && is(1, 2, 0.5, 0.75) && is(2, 2, 0.5, 1.0));
        // 0.8^10 + 10 x 0.2 x 0.8^9 + 45 x 0.2^2 x 0.8^8 + 120 x 0.2^3 x 0.8^7
        assert!(is(3, 10, 0.2, 0.879_126_118_4));
    }

    /// In each of 20 periods of 40 ms nothing, 10, 10 and 20 kB pass; at the end of each a segment is lost, of some so many
    /// milliseconds sooner. What a bucket of 1 MB/s holds then, by what it gains in a round trip of 10 ms.
    fn bucketed(sooner: &[u64], change: impl Fn(&mut Facts)) -> Option<Filling> {
        let mut facts = crate::facts::tests::steady(84);
        for (n, reading) in facts.readings.iter_mut().enumerate() {
            reading.passed = [0, 10_000, 10_000, 20_000][n % 4];
            reading.retransmitted = u32::from(n % 4 == 3);
        }
        let lost = (1..=20u64).zip(sooner.iter().chain(std::iter::repeat(&0)));
        facts.losses = lost
            .map(|(n, sooner)| LostSegment {
                at: Nanos::from_millis(n * 40 - sooner),
                ..LostSegment::default()
            })
            .collect();
        change(&mut facts);
        bucket_of_readings(&facts)
    }

    #[test]
    fn a_bucket_of_readings_is_empty_at_losses_and_fuller_when_something_passes() {
        let about = |a: f64, b: f64| (a - b).abs() < 1e-6;
        let exact = bucketed(&[], |_| {}).unwrap();
        assert!(
            about(exact.rate, 1e6) && about(exact.near, 1.0),
            "{}",
            exact.rate
        );
        assert!(about(exact.deviation, 0.0) && about(exact.at_loss, 0.0));
        // 10 ms after each loss nothing passes, then as much as it gains.
        assert!(about(exact.at_pass, 1.0) && exact.is_empty_at_losses());
        // 8 ms before the end, 32 kB less 24 kB: 0.8 of a round trip.
        let of = |sooner: &[u64]| bucketed(sooner, |_| {}).unwrap();
        let one = of(&[0, 8]);
        assert!(about(one.near, 0.95) && one.is_empty_at_losses());
        assert!(about(one.deviation, (0.64 * 0.05 * 0.95f64).sqrt()));
        assert!(!of(&[0, 8, 8]).is_empty_at_losses(), "two of twenty");
        let half = |sooner| {
            of(&[
                0, sooner, sooner, sooner, sooner, sooner, sooner, sooner, sooner, sooner, sooner,
            ])
        };
        assert!(about(half(7).deviation, 0.35) && about(half(6).deviation, 0.3));
        assert!(half(6).is_empty_at_losses());
        let swings = Filling {
            deviation: 0.351,
            ..half(6)
        };
        assert!(!swings.is_empty_at_losses());
        let full = Filling {
            at_loss: 1.0,
            ..half(6)
        };
        assert!(!full.is_empty_at_losses());
        assert!(bucketed(&[], |f| f.losses.truncate(15)).is_some());
        assert!(bucketed(&[], |f| f.losses.truncate(14)).is_none());
        assert!(
            bucketed(&[], |f| f.min_rtt = Some(Nanos::from_millis(6))).is_none(),
            "coarse"
        );
        let rounds = |of: u64| {
            let gather = |f: &mut Facts| {
                let at = |n: u64| Nanos::from_millis(40 + 10 * (n % of));
                f.losses.iter_mut().zip(0..).for_each(|(l, n)| l.at = at(n));
                f.losses.sort_by_key(|l| l.at);
            };
            bucketed(&[], gather).is_some()
        };
        assert_eq!([rounds(2), rounds(3)], [false, true]);
        assert!(bucketed(&[], |f| f.readings.iter_mut().for_each(|r| r.passed = 0)).is_none());
    }

    /// A second at 4 MB/s, then four at 1 MB/s, in which 40 segments are lost each 100 ms.
    fn emptied(change: impl Fn(&mut Facts)) -> Option<SpentBucket> {
        let mut facts = crate::facts::tests::steady(500);
        for (n, reading) in facts.readings.iter_mut().enumerate() {
            reading.passed = if n < 100 { 40_000 } else { 10_000 };
        }
        let lost = |n: u64| LostSegment {
            at: Nanos::from_millis(1000 + n * 100),
            srtt: Nanos::from_millis(11),
            flight: 15_000,
            ..LostSegment::default()
        };
        facts.losses = (0..40).map(lost).collect();
        facts.retransmitted = 40;
        change(&mut facts);
        SpentBucket::of(&facts)
    }

    #[test]
    fn what_a_spent_bucket_held_passed_beyond_its_rate() {
        let bucket = emptied(|_| {}).unwrap();
        assert!((bucket.rate / 1e6 - 1.0).abs() < 1e-9 && (bucket.depth / 3e6 - 1.0).abs() < 1e-9);
        assert_eq!((bucket.events, bucket.delay), (40, Nanos::from_millis(1)));
        assert!(bucket.is_steady && bucket.was_faster);
        // Three and a half segments at its rate.
        let srtt = |us| {
            emptied(|f| {
                f.losses
                    .iter_mut()
                    .for_each(|l| l.srtt = Nanos::from_micros(us))
            })
        };
        assert!(srtt(13_499).is_some() && srtt(13_501).is_none());
        // Three times what is in flight, and twenty segments.
        let flight = |of| emptied(|f| f.losses.iter_mut().for_each(|l| l.flight = of));
        assert!(flight(999_000).is_some() && flight(1_001_000).is_none());
        let mss = |mss| emptied(|f| f.mss = mss);
        assert!(mss(149_000).is_some() && mss(151_000).is_none());
        let losses = |of| emptied(|f| f.losses.truncate(of));
        assert!(losses(6).is_some() && losses(5).is_none());
        let together = emptied(|f| {
            let again: Vec<LostSegment> = f.losses.iter().flat_map(|l| [*l, *l]).collect();
            f.losses = again;
        });
        assert_eq!(together.unwrap().events, 40, "an event has several");
        // It was a quarter faster while half of it was spent.
        let faster = |first: u64| {
            let bucket = emptied(|f| f.readings[..100].iter_mut().for_each(|r| r.passed = first));
            bucket.map(|b| b.was_faster)
        };
        assert_eq!([faster(12_600), faster(12_400)], [Some(true), Some(false)]);
        assert!(emptied(|f| f.min_rtt = None).is_none());
    }

    #[test]
    fn what_comes_late_is_more_than_a_tenth_of_the_retransmissions() {
        let of = |reordered| {
            let mut facts = Facts::new(Source::Trace);
            (facts.reordered, facts.retransmitted) = (reordered, 20);
            comes_late(&facts)
        };
        assert_eq!([of(2), of(3)], [false, true]);
    }
}
