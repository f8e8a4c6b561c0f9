//! A drop-tail queue and a token bucket lose by the same arithmetic: what leaves faster than a rate fills a
//! depth, and what does not fit is lost. Where every segment that left is known, the rate and the depth that
//! part the lost from the passed best are found, and how well they part them; random loss lets nothing part it.
//!
//! What tells a queue from a policer's bucket is time: bytes that stand in a queue delay those behind them.

use super::Key;
use crate::facts::{Bucket, EXCLUDED, Facts, SEEN, Sent, bit_rate};
use model::finding::Evidence;
use model::{Bytes, Nanos};

/// With fewer losses a pattern is chance.
const FEWEST: usize = 12;
/// Share of losses that stand at the brim; the rest are mistaken ones (spurious, or of another cause).
const AT_THE_BRIM: f64 = 0.9;
/// Rates that are tried: from somewhat less than what passed between the losses, up to so many times that.
const SLOWEST: f64 = 0.9;
const FASTEST: f64 = 20.0;
/// Steps between rates, each round about the best of the round before.
const STEPS: [f64; 3] = [0.01, 0.001, 0.0002];

/// The bucket that parts the lost from the passed best; `None` where too few were lost.
pub(crate) fn fit(sent: &[Sent]) -> Option<Bucket> {
    let lost = |s: &&Sent| s.lost > 0;
    if sent.iter().filter(lost).count() < FEWEST {
        return None;
    }
    let (first, last) = (sent.iter().find(lost)?.at, sent.iter().rev().find(lost)?.at);
    let between = sent.iter().filter(|s| s.at >= first && s.at < last);
    let passed: f64 = between.map(|s| f64::from(s.bytes - s.lost)).sum();
    let mean = passed / last.since(first).as_secs_f64().max(1e-6);
    if mean <= 0.0 {
        return None;
    }
    let segment = sent.iter().map(|s| s.size).max()?;
    let mut best = filled(sent, segment, mean)?;
    let (mut from, mut to) = (mean * SLOWEST, mean * FASTEST);
    for step in STEPS {
        let mut rate = from;
        while rate <= to {
            if let Some(bucket) = filled(sent, segment, rate).filter(|b| b.parts > best.parts) {
                best = bucket;
            }
            rate *= 1.0 + step;
        }
        (from, to) = (best.rate * (1.0 - step), best.rate * (1.0 + step));
    }
    Some(best)
}

/// Fills a bucket that drains at a rate (bytes a second) with what passed, in segments of so many bytes at the most.
fn filled(sent: &[Sent], segment: u32, rate: f64) -> Option<Bucket> {
    let (mut level, mut at) = (0.0, Nanos(0));
    let mut at_loss = Vec::new();
    let mut at_pass = Vec::new();
    for sent in sent {
        level = f64::max(level - rate * sent.at.since(at).as_secs_f64(), 0.0);
        at = sent.at;
        if sent.lost > 0 {
            at_loss.push(level + f64::from(sent.lost_from));
        }
        level += f64::from(sent.bytes - sent.lost);
        if sent.lost == 0 || sent.lost_from.saturating_add(sent.lost) < sent.bytes {
            // Before its last segment, which still fitted.
            at_pass.push(level - f64::from(sent.size.min(sent.bytes)));
        }
    }
    let n = ((1.0 - AT_THE_BRIM) * at_loss.len() as f64) as usize;
    let (_, brim, _) = at_loss.select_nth_unstable_by(n, f64::total_cmp);
    let brim = *brim;
    let above = at_pass.iter().filter(|level| **level >= brim).count();
    let share = above as f64 / at_pass.len().max(1) as f64;
    Some(Bucket {
        rate,
        depth: brim,
        parts: AT_THE_BRIM - share,
        segment,
    })
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
    vec![
        parts.at_least(SEEN / AT_THE_BRIM),
        facts.evidence(Key::BucketRate, bit_rate(bucket.rate)),
        facts.evidence(Key::BucketDepth, Bytes(bucket.depth as u64)),
        facts.evidence(Key::BucketDrainTime, bucket.delay()),
        match delay_at_most {
            Some(share) => delay.at_most(bucket.delay().0 as f64 * share),
            None => delay,
        },
    ]
}
