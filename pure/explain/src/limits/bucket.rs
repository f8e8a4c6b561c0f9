//! A drop-tail queue and a token bucket lose by the same arithmetic: what leaves faster than a rate fills a
//! depth, and what does not fit is lost. Where every segment that left is known, the rate and the depth that
//! part the lost from the passed best are found, and how well they part them; random loss lets nothing part it.
//!
//! Delay distinguishes a queue from a policer's bucket: bytes in a queue delay those behind them.

use super::Key;
use crate::facts::{BucketFit, CLEAR, EXCLUDED, Facts, SEEN, Sent, bit_rate};
use model::finding::Evidence;
use model::{Bytes, Nanos};
use std::array::from_fn;

/// With fewer losses a pattern is chance.
const FEWEST: u32 = 12;
/// Share of the loss events that stand at the brim; the rest are mistaken ones (spurious, or of another cause).
const AT_THE_BRIM: f64 = 0.9;
/// Losses within so many round trips of the first are one loss event (RFC 5348, 5.2, has one): the sender reduces its window
/// once for all of them. On the shortest paths an event is a burst. An outage, in which nothing passes, is one as well.
/// Each event counts as one, so that slow start's overshoot does not outvote the others; of fewer events each loss does, so
/// that one event of another cause, as an outage, does not.
const EVENT: f64 = 1.5;
const SHORTEST_EVENT: Nanos = Nanos::from_micros(750);
const MANY_EVENTS: usize = 10;
/// What leaves within this moment, or a longer one, is taken as one where much is sent.
const SHORTEST_MOMENT: Nanos = Nanos::from_micros(25);
/// Rates that are tried: from somewhat less than what passed between the losses, up to so many times that.
const SLOWEST: f64 = 0.9;
const FASTEST: f64 = 20.0;
/// Steps between them: first coarse ones, then finer ones, each round about the best so far. A deep bucket fits only within
/// 0.1 to 0.5 % of its rate.
const COARSE: f64 = 0.03;
const FINER: [f64; 2] = [0.001, 0.0002];
/// Rates fit as well as the best if the share of loss events at the brim differs by no more than so many of its standard
/// deviations (of a binomial share, about 95 %); and within this part of the best, for headers are not counted.
const DEVIATIONS: f64 = 2.0;
const SLACK: f64 = 0.005;
/// The highest of these rates by the lowest, up to which they are one rate.
const ONE_RATE: f64 = 1.05;
/// So many of the losses, and of what left, show about how well a rate fits: within about so much (the share at the brim has a
/// standard deviation of 0.02 then).
const ROUGH_LOSSES: usize = 256;
const ROUGH_STEPS: usize = 4096;
const ROUGH: f64 = 0.05;
/// Rates that are tried at once: what a bucket holds follows from what it held before, so one rate alone waits at each step.
const AT_ONCE: usize = 8;
/// A bucket that holds so many bytes does not run empty.
const NEVER_EMPTY: f64 = 1e15;
/// So many loss events of the first third, and of the last, have slopes between them.
const SLOPES: usize = 8;

/// Takes those as one that left within a moment and were all lost, or none of them, so that at most half of `most` are kept,
/// if a quarter of this RTT is long enough for that; the `newest` may still prove to be lost. What a bucket holds afterwards
/// is the same, unless it was empty in between. The moment is the one that was long enough the last time, and is found again.
pub(crate) fn gather(
    sent: &mut Vec<Sent>,
    most: usize,
    newest: usize,
    rtt: Nanos,
    moment: &mut Nanos,
) {
    let longest = Nanos((rtt.0 / 4).max(SHORTEST_EVENT.0 / 4));
    let mut longer = SHORTEST_MOMENT.max(*moment);
    while sent.len() > most / 2 && longer <= longest {
        *moment = longer;
        let until = sent[sent.len().saturating_sub(newest).min(sent.len() - 1)].at;
        sent.dedup_by(|next, one| {
            let none_lost = || one.lost | next.lost == 0;
            let all_lost = || (one.lost, next.lost) == (one.bytes, next.bytes);
            let is_soon = next.at.since(one.at) <= *moment && next.at < until;
            let together = is_soon && (none_lost() || all_lost());
            if together {
                one.lost = one.lost.saturating_add(next.lost);
                one.packets += next.packets;
                one.bytes = one.bytes.saturating_add(next.bytes);
                one.size = one.size.max(next.size);
            }
            together
        });
        longer = Nanos(2 * moment.0);
    }
}

/// The bucket that separates the lost from the passed best, on a path of this RTT; `None` where too few
/// were lost.
pub(crate) fn fit(sent: &[Sent], rtt: Nanos) -> Option<BucketFit> {
    let history = SendHistory::new(sent, rtt)?;
    let mean = history.rate(*history.lost.first()?, *history.lost.last()?)?;
    let segment = sent.iter().map(|s| s.size).max()?;
    let events = history.events();
    let slopes = history.slopes(&events);
    let slopes = slopes.filter(|rate| (mean / FASTEST..mean * FASTEST).contains(rate));
    let coarse = steps(mean * SLOWEST, mean * FASTEST, COARSE);
    let first: Vec<f64> = std::iter::once(mean).chain(slopes).chain(coarse).collect();
    let deviation = (AT_THE_BRIM * (1.0 - AT_THE_BRIM) / events.len() as f64).sqrt();
    let noise = DEVIATIONS * deviation;
    // What the bucket held when the first of `sent` left is not known: nothing, or so much that it never ran empty.
    let mut tried = history.search(&first, 0.0, noise);
    if best(&tried).parts < CLEAR {
        tried.extend(history.search(&first, NEVER_EMPTY, noise));
    }
    let found = best(&tried);
    let Filled {
        rate, brim, parts, ..
    } = found;
    let mut levels = Vec::new();
    history.levels([rate], found.start, &mut levels);
    let lowest = (levels.iter().flatten().copied()).fold(found.start, f64::min);
    let as_good = tried.iter().filter(|t| t.parts >= parts - noise);
    let slack = [1.0 - SLACK, 1.0 + SLACK].map(|slack| rate * slack);
    Some(BucketFit {
        rate,
        range: as_good.fold(slack, |[low, high], t| [low.min(t.rate), high.max(t.rate)]),
        // How much the brim is above empty; of a bucket that never was, above the lowest level.
        depth: brim - lowest,
        parts,
        events: history.events_at(brim, &levels),
        of_events: events.len(),
        segment,
        connections: 1,
    })
}

/// The first that separates best.
fn best(tried: &[Filled]) -> Filled {
    let better = |a: &Filled, b: &Filled| if b.parts > a.parts { *b } else { *a };
    tried[1..].iter().fold(tried[0], |a, b| better(&a, b))
}

fn steps(from: f64, to: f64, step: f64) -> impl Iterator<Item = f64> {
    let rates = std::iter::successors(Some(from), move |rate| Some(rate * (1.0 + step)));
    rates.take_while(move |rate| *rate <= to)
}

/// What left, and what of it was lost.
struct SendHistory<'a> {
    sent: &'a [Sent],
    /// Numbers of those that lost something.
    lost: Vec<usize>,
    /// How many of `lost` each loss event has.
    events: Vec<usize>,
    exact: LossSample,
    rough: LossSample,
    /// Bytes that had passed before each of `sent`.
    passed: Vec<u64>,
    /// Each of `sent`, as every rate needs it.
    steps: Vec<RateStep>,
}

/// What is counted to see how well a rate fits.
struct LossSample {
    /// Losses.
    lost: Vec<Weighed>,
    /// One of so many that left.
    every: usize,
    /// Packets of these whose last segment passed.
    fitted: f64,
}

/// A number of those that lost something, and what it counts.
#[derive(Clone, Copy)]
struct Weighed {
    at: usize,
    weight: f64,
}

/// One of those that left.
struct RateStep {
    /// Seconds since the one before.
    gap: f64,
    /// Bytes that passed.
    passed: f64,
    /// Of these, those before its last segment; less than any if that was lost, so that no bucket is full before it.
    fitted: f64,
    packets: f64,
}

impl RateStep {
    fn of(sent: &Sent, before: Nanos) -> RateStep {
        let fitted = sent.lost == 0 || sent.lost_from.saturating_add(sent.lost) < sent.bytes;
        let passed = f64::from(sent.bytes - sent.lost);
        RateStep {
            gap: sent.at.since(before).as_secs_f64(),
            passed,
            fitted: match fitted {
                true => passed - f64::from(sent.size.min(sent.bytes)),
                false => f64::NEG_INFINITY,
            },
            packets: f64::from(sent.packets),
        }
    }
}

/// A bucket of this rate.
#[derive(Clone, Copy)]
struct Filled {
    rate: f64,
    /// What it held at first.
    start: f64,
    /// The level that most loss events reach.
    brim: f64,
    /// As in [`BucketFit`].
    parts: f64,
}

impl SendHistory<'_> {
    fn new(sent: &[Sent], rtt: Nanos) -> Option<SendHistory<'_>> {
        let lost: Vec<usize> = (0..sent.len()).filter(|n| sent[*n].lost > 0).collect();
        if lost.iter().map(|n| sent[*n].packets).sum::<u32>() < FEWEST {
            return None;
        }
        let mut sum = 0;
        let passed = sent.iter().map(|s| {
            let before = sum;
            sum += u64::from(s.bytes - s.lost);
            before
        });
        let passed: Vec<u64> = passed.collect();
        let event = Nanos((rtt.0 as f64 * EVENT) as u64).max(SHORTEST_EVENT);
        let nothing_passed = |from: usize, to: usize| {
            passed[to] == passed[from] + u64::from(sent[from].bytes - sent[from].lost)
        };
        let mut events: Vec<usize> = Vec::new();
        let mut first = lost[0];
        for (n, &at) in lost.iter().enumerate() {
            let is_in = sent[at].at.since(sent[first].at) <= event;
            match events.last_mut() {
                Some(many) if is_in || nothing_passed(lost[n - 1], at) => *many += 1,
                _ => {
                    first = at;
                    events.push(1);
                }
            }
        }
        let weight = |many: &usize| match events.len() >= MANY_EVENTS {
            true => 1.0 / *many as f64,
            false => 1.0,
        };
        let weights = events.iter();
        let weights = weights.flat_map(|many| std::iter::repeat_n(weight(many), *many));
        let weighed = lost.iter().zip(weights);
        let all: Vec<Weighed> = weighed
            .map(|(&at, weight)| Weighed { at, weight })
            .collect();
        let before = std::iter::once(Nanos(0)).chain(sent.iter().map(|s| s.at));
        let steps = sent.iter().zip(before).map(|(s, at)| RateStep::of(s, at));
        let steps: Vec<RateStep> = steps.collect();
        let sample = |lost: Vec<Weighed>, every: usize| {
            let fitted = steps.iter().step_by(every);
            let fitted = fitted.filter(|step| step.fitted.is_finite());
            LossSample {
                lost,
                every,
                fitted: fitted.map(|step| step.packets).sum(),
            }
        };
        Some(SendHistory {
            rough: sample(some(&all), steps.len().div_ceil(ROUGH_STEPS)),
            exact: sample(all, 1),
            steps,
            passed,
            sent,
            lost,
            events,
        })
    }

    /// Bytes a second that passed between two of them.
    fn rate(&self, from: usize, to: usize) -> Option<f64> {
        let time = self.sent[to].at.since(self.sent[from].at).as_secs_f64();
        let passed = self.passed[to].saturating_sub(self.passed[from]);
        (time > 0.0 && passed > 0).then(|| passed as f64 / time)
    }

    /// The number of the first of each loss event.
    fn events(&self) -> Vec<usize> {
        let firsts = self.events.iter().scan(0, |next, many| {
            let first = *next;
            *next += many;
            Some(self.lost[first])
        });
        firsts.collect()
    }

    /// What passed between two moments at which the bucket was full: early loss events and late ones.
    fn slopes(&self, events: &[usize]) -> impl Iterator<Item = f64> {
        let third = (events.len() / 3).max(1);
        let some = |events: &[usize]| -> Vec<usize> {
            let each = events.len().div_ceil(SLOPES);
            events.iter().step_by(each).copied().collect()
        };
        let late = some(&events[events.len() - third..]);
        let early = some(&events[..third]).into_iter();
        let pairs = early.flat_map(move |from| late.clone().into_iter().map(move |to| (from, to)));
        pairs.filter_map(|(from, to)| self.rate(from, to))
    }

    /// Loss events of which something was lost where a bucket of these levels was as full as this.
    fn events_at(&self, brim: f64, levels: &[[f64; 1]]) -> usize {
        let mut at_loss = self.at_loss(&self.exact.lost, levels, 0);
        let is_at = |many: &&usize| {
            let levels = at_loss.by_ref().take(**many);
            levels.fold(0.0, f64::max) >= brim
        };
        self.events.iter().filter(is_at).count()
    }

    /// What buckets hold before each of `sent` that drain at these rates (bytes a second) and are filled by what passed.
    fn levels<const N: usize>(&self, rates: [f64; N], start: f64, levels: &mut Vec<[f64; N]>) {
        levels.resize(self.steps.len(), [0.0; N]);
        let mut level = [start; N];
        for (step, before) in self.steps.iter().zip(levels) {
            let left: [f64; N] = from_fn(|n| level[n] - rates[n] * step.gap);
            *before = left.map(|left| if left > 0.0 { left } else { 0.0 });
            level = before.map(|level| level + step.passed);
        }
    }

    /// The same of one bucket at each of these losses.
    fn at_loss<const N: usize>(
        &self,
        of: &[Weighed],
        levels: &[[f64; N]],
        n: usize,
    ) -> impl Iterator<Item = f64> {
        let of = of.iter();
        of.map(move |lost| levels[lost.at][n] + f64::from(self.sent[lost.at].lost_from))
    }

    /// The rates that may be the best, by a part of the losses first.
    fn search(&self, first: &[f64], start: f64, noise: f64) -> Vec<Filled> {
        let mut tried = self.filled(first.iter().copied(), start, &self.rough);
        let mut around = COARSE;
        for step in FINER {
            let rate = best(&tried).rate;
            let finer = steps(rate * (1.0 - around), rate * (1.0 + around), step);
            tried.extend(self.filled(finer, start, &self.rough));
            around = step;
        }
        if (self.rough.lost.len(), self.rough.every) == (self.exact.lost.len(), 1) {
            return tried;
        }
        let top = best(&tried).parts;
        let least = if top < EXCLUDED - ROUGH {
            top
        } else {
            top - noise - ROUGH
        };
        let may_be = tried.iter().filter(|t| t.parts >= least);
        self.filled(may_be.map(|t| t.rate), start, &self.exact)
    }

    /// The buckets of these rates at whose brims most of the losses are.
    fn filled(&self, rates: impl Iterator<Item = f64>, start: f64, of: &LossSample) -> Vec<Filled> {
        let rates: Vec<f64> = rates.collect();
        let mut filled = Vec::with_capacity(rates.len());
        let mut levels = Vec::with_capacity(self.steps.len());
        for rates in rates.chunks(AT_ONCE) {
            let all: [f64; AT_ONCE] = from_fn(|n| rates[n.min(rates.len() - 1)]);
            self.levels(all, start, &mut levels);
            let brim_of = |n: usize| {
                let weights = of.lost.iter().map(|lost| lost.weight);
                brim(self.at_loss(&of.lost, &levels, n).zip(weights))
            };
            let brims: [f64; AT_ONCE] = from_fn(|n| {
                if n < rates.len() {
                    brim_of(n)
                } else {
                    f64::MAX
                }
            });
            let mut above = [0.0; AT_ONCE];
            for n in (0..self.steps.len()).step_by(of.every) {
                let (step, levels) = (&self.steps[n], &levels[n]);
                // What passed still fitted before its last segment.
                let full: [f64; AT_ONCE] = from_fn(|n| levels[n] + step.fitted);
                let counts = |n: usize| {
                    if full[n] >= brims[n] {
                        step.packets
                    } else {
                        0.0
                    }
                };
                above = from_fn(|n| above[n] + counts(n));
            }
            filled.extend((0..rates.len()).map(|n| Filled {
                rate: rates[n],
                start,
                brim: brims[n],
                parts: AT_THE_BRIM - above[n] / of.fitted.max(1.0),
            }));
        }
        filled
    }
}

/// Some of many: each counts the same.
fn some(all: &[Weighed]) -> Vec<Weighed> {
    if all.len() <= ROUGH_LOSSES {
        return all.to_vec();
    }
    let total: f64 = all.iter().map(|lost| lost.weight).sum();
    let weight = total / ROUGH_LOSSES as f64;
    let mut sum = 0.0;
    let some = all.iter().flat_map(|lost| {
        let before = (sum / weight).floor();
        sum += lost.weight;
        let times = (sum / weight).floor() - before;
        std::iter::repeat_n(Weighed { weight, ..*lost }, times as usize)
    });
    some.collect()
}

/// The level that most loss events reach.
fn brim(at_loss: impl Iterator<Item = (f64, f64)>) -> f64 {
    // None is negative, so their bits are in the order of the levels, and sooner compared.
    let at_loss = at_loss.map(|(level, weight)| (level.to_bits(), weight));
    let mut at_loss: Vec<(u64, f64)> = at_loss.collect();
    let weight = |of: &[(u64, f64)]| of.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut below = (1.0 - AT_THE_BRIM) * weight(&at_loss);
    let mut rest = &mut at_loss[..];
    while rest.len() > 1 {
        let half = rest.len() / 2;
        rest.select_nth_unstable_by_key(half, |(bits, _)| *bits);
        let (low, high) = rest.split_at_mut(half);
        let lower = weight(low);
        rest = if below < lower { low } else { high };
        below -= if below < lower { 0.0 } else { lower };
    }
    rest.first().map_or(0.0, |(bits, _)| f64::from_bits(*bits))
}

/// What the fit shows. A policer adds at most so much of the delay that a queue of this depth would.
pub(crate) fn evidence(facts: &Facts, delay_at_most: Option<f64>) -> Vec<Evidence> {
    let Some(bucket) = &facts.bucket else {
        return Vec::new();
    };
    let parts = facts.evidence(Key::LossSeparation, bucket.parts / AT_THE_BRIM);
    if !bucket.is_seen() {
        return vec![parts.if_at_most(EXCLUDED / AT_THE_BRIM)];
    }
    let delay = facts.evidence(
        Key::RttAboveMinRttAtLosses,
        facts.delay_at_loss().unwrap_or_default(),
    );
    let [low, high] = bucket.range;
    let rate = |key, rate| facts.evidence(key, bit_rate(rate));
    let rates = match high / low <= ONE_RATE {
        true => vec![rate(Key::BucketRate, bucket.rate)],
        false => vec![
            rate(Key::LowestBucketRate, low),
            rate(Key::HighestBucketRate, high),
        ],
    };
    let mut evidence = vec![parts.at_least(SEEN / AT_THE_BRIM)];
    evidence.extend(rates);
    evidence.extend([
        facts.evidence(Key::BucketDepth, Bytes(bucket.depth as u64)),
        facts.evidence(Key::BucketDrainTime, bucket.delay()),
        match delay_at_most {
            Some(share) => delay.at_most(bucket.delay().0 as f64 * share),
            None => delay,
        },
    ]);
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u32 = 1448;
    const RTT: Nanos = Nanos::from_millis(20);
    /// Of slow start's overshoot.
    const OVERSHOOT: u64 = 81;

    fn segment(at: Nanos, is_lost: bool) -> Sent {
        Sent {
            at,
            number: 0,
            packets: 1,
            bytes: SEGMENT,
            lost: if is_lost { SEGMENT } else { 0 },
            lost_from: if is_lost { 0 } else { u32::MAX },
            size: SEGMENT,
        }
    }

    /// So many round trips of a sender that halves its window once in a RTT with losses. Slow start ends at a queue of 60
    /// segments, which loses the overshoot; from then on `is_lost` decides by the number of the segment and what a
    /// bucket of 1 MB/s holds before it.
    fn sent(trips: u64, mut is_lost: impl FnMut(u64, f64) -> bool) -> Vec<Sent> {
        let (mut window, mut number, mut level) = (10, 0, 0.0);
        let mut in_slow_start = true;
        let mut all = Vec::new();
        for trip in 0..trips {
            let gap = RTT.0 / window;
            let mut lost = false;
            for n in 0..window {
                level = f64::max(level - 1e6 * gap as f64 / 1e9, 0.0);
                let is_lost = match in_slow_start {
                    true => window > 2 * OVERSHOOT && n % 2 == 0 && n / 2 < OVERSHOOT,
                    false => is_lost(number, level),
                };
                let size = f64::from(SEGMENT);
                level += if is_lost { 0.0 } else { size };
                all.push(segment(Nanos(trip * RTT.0 + n * gap), is_lost));
                lost |= is_lost;
                number += 1;
            }
            window = match (lost, in_slow_start) {
                (true, true) => 10,
                (true, false) => (window / 2).max(2),
                (false, true) => window * 2,
                (false, false) => window + 1,
            };
            in_slow_start &= !lost;
        }
        all
    }

    #[test]
    fn slow_starts_overshoot_does_not_hide_a_bucket() {
        let depth = 600e3;
        let sent = sent(1500, |_, level| level + f64::from(SEGMENT) > depth);
        let lost = sent.iter().filter(|s| s.lost > 0).count() as u64;
        assert!(lost < 8 * OVERSHOOT, "the overshoot has its weight: {lost}");
        let bucket = fit(&sent, RTT).unwrap();
        assert!(bucket.is_seen(), "{bucket:?}");
        assert!((bucket.rate / 1e6 - 1.0).abs() < 0.005, "{bucket:?}");
        assert!((bucket.depth / depth - 1.0).abs() < 0.05, "{bucket:?}");
        let [low, high] = bucket.range;
        assert!(
            low < 1e6 && 1e6 < high && high / low < ONE_RATE,
            "{bucket:?}"
        );
    }

    #[test]
    fn a_bucket_that_every_burst_fills_has_an_interval_of_rates() {
        // Thirty segments leave at once in each RTT, and whatever drains the first twenty-six drains all.
        let sent: Vec<Sent> = (0..3000)
            .map(|n| {
                let is_lost = n % 30 >= 26;
                segment(Nanos(n / 30 * RTT.0 + n % 30), is_lost)
            })
            .collect();
        let bucket = fit(&sent, RTT).unwrap();
        let [low, high] = bucket.range;
        let least = 26.0 * f64::from(SEGMENT) / RTT.as_secs_f64();
        assert!(low <= 1.01 * least && high > 10.0 * least, "{bucket:?}");
        let mut facts = Facts::new(model::finding::Source::Trace);
        facts.bucket = Some(bucket);
        let keys: Vec<Key> = evidence(&facts, None).iter().map(|e| e.key).collect();
        assert!(!keys.contains(&Key::BucketRate), "{keys:?}");
        assert!(keys.contains(&Key::LowestBucketRate) && keys.contains(&Key::HighestBucketRate));
    }

    #[test]
    fn slow_starts_overshoot_does_not_make_chance_a_bucket() {
        for trips in [400, 1500] {
            // A multiplicative hash stands for chance.
            let chance = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let sent = sent(trips, |number, _| chance(number) % 8000 == 0);
            let lost = sent.iter().filter(|s| s.lost > 0).count() as u64;
            assert!((OVERSHOOT + 3..OVERSHOOT + 40).contains(&lost), "{lost}");
            let bucket = fit(&sent, RTT).unwrap();
            assert!(!bucket.is_seen(), "{bucket:?}");
        }
    }

    #[test]
    fn an_outage_does_not_hide_a_bucket_of_few_loss_events() {
        let depth = 300e3;
        let gap = Nanos::from_micros(724);
        let mut all = Vec::new();
        // Each burst of 2 MB/s fills the bucket of 1 MB/s, which is empty before the next. The third meets an outage as well.
        for burst in 0..6 {
            let mut level = 0.0;
            for n in 0..445 {
                level = f64::max(level - 1e6 * gap.as_secs_f64(), 0.0);
                let is_out = burst == 2 && (100..105).contains(&n);
                let is_lost = is_out || level + f64::from(SEGMENT) > depth;
                level += if is_lost { 0.0 } else { f64::from(SEGMENT) };
                all.push(segment(
                    Nanos::from_secs(2 * burst) + Nanos(n * gap.0),
                    is_lost,
                ));
            }
        }
        let bucket = fit(&all, RTT).unwrap();
        assert!(bucket.of_events < MANY_EVENTS, "{bucket:?}");
        assert!(bucket.is_seen() && bucket.events >= 6, "{bucket:?}");
        let [low, high] = bucket.range;
        assert!(low < 1e6 && 1e6 < high, "{bucket:?}");
    }

    #[test]
    fn what_is_gathered_shows_the_same_bucket_or_none() {
        let gathered = |each: &[Sent]| {
            let mut gathered = each.to_vec();
            gather(&mut gathered, each.len(), 100, RTT, &mut Nanos::default());
            assert!(gathered.len() <= each.len() / 2, "{}", gathered.len());
            let packets = gathered.iter().map(|s| s.packets as usize);
            assert_eq!(packets.sum::<usize>(), each.len());
            [each, &gathered].map(|sent| fit(sent, RTT).unwrap())
        };
        let [exact, fast] = gathered(&sent(3000, |_, level| level > 60.0 * f64::from(SEGMENT)));
        assert!(exact.is_seen() && fast.is_seen(), "{fast:?} {exact:?}");
        assert!((fast.rate / exact.rate - 1.0).abs() < 0.002);
        assert!((fast.depth / exact.depth - 1.0).abs() < 0.02);
        assert_eq!(fast.of_events, exact.of_events);
        let [exact, fast] = gathered(&sent(3000, |number, _| {
            (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).is_multiple_of(300)
        }));
        let most = [exact.parts, fast.parts].into_iter().fold(0.0, f64::max);
        assert!(most < EXCLUDED, "{fast:?} {exact:?}");
    }

    /// A sender that is too fast until it loses, then too slow for longer and longer: a bucket of 1 MB/s and 500 kB never runs empty.
    #[test]
    fn a_bucket_may_be_full_when_what_is_kept_begins() {
        let (mut level, mut at, mut slow) = (490e3, 0.0, 0);
        let mut all = Vec::new();
        for n in 0..20_000 {
            let rate = if slow > 0 { 0.8e6 } else { 1.2e6 };
            let gap = f64::from(SEGMENT) / rate;
            at += gap;
            slow -= i32::from(slow > 0);
            level -= 1e6 * gap;
            let is_lost = level + f64::from(SEGMENT) > 500e3;
            match is_lost {
                true => slow = 20 + n / 40,
                false => level += f64::from(SEGMENT),
            }
            all.push(segment(Nanos((at * 1e9) as u64), is_lost));
        }
        let bucket = fit(&all, RTT).unwrap();
        assert!(bucket.is_seen(), "{bucket:?}");
        assert!((bucket.rate / 1e6 - 1.0).abs() < 0.001, "{bucket:?}");
        // No less than what the levels differ by.
        assert!((20e3..500e3).contains(&bucket.depth), "{bucket:?}");
    }

    /// A path that is dead while timers fire again and again.
    #[test]
    fn an_outage_is_one_loss_event() {
        let after = |trips: u64| Nanos(RTT.0 * trips);
        let mut all: Vec<Sent> = (0..100).map(|n| segment(after(n), false)).collect();
        let dead = (0..20).map(|n| segment(after(100 + 10 * n), true));
        all.extend(dead);
        all.extend((400..500).map(|n| segment(after(n), false)));
        let history = SendHistory::new(&all, RTT).unwrap();
        assert_eq!(history.events, [20]);
        // What passes in between parts two.
        all.insert(110, segment(after(195), false));
        assert_eq!(SendHistory::new(&all, RTT).unwrap().events, [10, 10]);
    }

    fn bytes(at_us: u64, lost: u32) -> Sent {
        Sent {
            at: Nanos::from_micros(at_us),
            number: 0,
            packets: 1,
            bytes: 100,
            lost,
            lost_from: if lost > 0 { 0 } else { u32::MAX },
            size: 100,
        }
    }

    /// What is left of eight: when, of how many packets, of how many bytes and how many of them lost.
    fn gathered(each_us: u64, lost: [u32; 8], rtt: Nanos) -> (Vec<(u64, u32, u32, u32)>, Nanos) {
        let mut sent: Vec<Sent> = (0..8)
            .zip(lost)
            .map(|(n, lost)| bytes(n * each_us, lost))
            .collect();
        let mut moment = Nanos(0);
        gather(&mut sent, 8, 2, rtt, &mut moment);
        let left = sent
            .iter()
            .map(|s| (s.at.0 / 1000, s.packets, s.bytes, s.lost));
        (left.collect(), moment)
    }

    #[test]
    fn what_left_within_a_moment_is_one_if_all_of_it_or_nothing_was_lost() {
        let second = Nanos::from_secs(1);
        let (left, moment) = gathered(10, [0; 8], second);
        assert_eq!(
            left,
            [
                (0, 3, 300, 0),
                (30, 3, 300, 0),
                (60, 1, 100, 0),
                (70, 1, 100, 0)
            ]
        );
        assert_eq!(moment, Nanos::from_micros(25));
        // 40 us apart: a moment of 50 us leaves five, one of 100 us four.
        let (left, moment) = gathered(40, [0; 8], second);
        assert_eq!(
            left,
            [
                (0, 4, 400, 0),
                (160, 2, 200, 0),
                (240, 1, 100, 0),
                (280, 1, 100, 0)
            ]
        );
        assert_eq!(moment, Nanos::from_micros(100));
        // No longer than a quarter of the round trip, or of 0.75 ms.
        assert_eq!(gathered(200, [0; 8], Nanos(0)).0.len(), 8);
        assert_eq!(gathered(200, [0; 8], second).0.len(), 4);
        let (left, _) = gathered(10, [100, 100, 0, 0, 50, 0, 0, 0], second);
        let expected = [
            (0, 2, 200, 200),
            (20, 2, 200, 0),
            (40, 1, 100, 50),
            (50, 1, 100, 0),
        ];
        assert_eq!(left[..4], expected);
    }

    #[test]
    fn nine_of_ten_levels_reach_the_brim() {
        let of = |levels: &[f64]| brim(levels.iter().map(|level| (*level, 1.0)));
        let upto = |most: u32| (1..=most).rev().map(f64::from).collect::<Vec<f64>>();
        // 10 of 11, 18 of 19 and 19 of 21 reach these; 9, 17 and 18 the next.
        assert_eq!(
            [of(&upto(11)), of(&upto(19)), of(&upto(21))],
            [2.0, 2.0, 3.0]
        );
        assert_eq!([of(&[5.0]), of(&[])], [5.0, 0.0]);
        // One that counts more.
        assert_eq!(brim([(1.0, 3.0), (2.0, 1.0), (3.0, 1.0)].into_iter()), 1.0);
        assert_eq!(brim([(1.0, 0.1), (2.0, 1.0), (3.0, 1.0)].into_iter()), 2.0);
    }

    #[test]
    fn some_of_many_losses_count_as_much_as_all() {
        let all = |many: usize| -> Vec<Weighed> {
            (0..many).map(|at| Weighed { at, weight: 0.5 }).collect()
        };
        assert_eq!(some(&all(ROUGH_LOSSES)).len(), ROUGH_LOSSES);
        let few = some(&all(1024));
        assert_eq!(few.len(), ROUGH_LOSSES);
        assert!(few.iter().all(|one| one.weight == 2.0));
        // Each fourth.
        assert!(few.windows(2).all(|two| two[1].at == two[0].at + 4));
    }

    #[test]
    fn a_loss_event_lasts_one_and_a_half_round_trips_or_until_something_passes() {
        // Losses at these milliseconds; in between a segment passes each millisecond, but in the first 100 ms nothing.
        let events = |lost: &[u64]| {
            let all = (0..400).filter(|ms| *ms >= 100 || lost.contains(ms));
            let all: Vec<Sent> = all
                .map(|ms| bytes(ms * 1000, if lost.contains(&ms) { 100 } else { 0 }))
                .collect();
            SendHistory::new(&all, RTT).map(|history| history.events)
        };
        let lost: Vec<u64> = (0..12).map(|n| 100 + n * 10).collect();
        assert_eq!(events(&lost), Some(vec![4, 4, 4]), "30 ms each");
        assert_eq!(events(&lost[1..]), None, "eleven");
        let apart: Vec<u64> = (0..12).map(|n| 2 + n * 8).collect();
        assert_eq!(events(&apart), Some(vec![12]), "nothing passed in between");
    }
}
