//! Bursts at the speed of the sender's link meet a buffer too small for them: the last segments of a
//! burst are lost, always at about the same window, and no queue is ever seen.
//!
//! Near miss: random loss, which strikes anywhere in a burst and at any window. The experiment that
//! decides is pacing. Losses that a queue separates from the others only with exceptions make it at most possible.

use super::loss_runs::{self, LossRuns};
use super::{Candidate, Key, bucket, experiment, policer, random_loss};
use crate::facts::{BucketFit, FEWEST_LOST, Facts, LostSegment, SenderInterval, quartile_spread};
use model::finding::{Confidence, Evidence};
use model::stats::median;

/// With fewer losses a pattern is chance.
const FEWEST: usize = 8;
/// One event is the end of slow start, or of chance; of few, many rates fit, and a policer's small bucket as well.
const SURE_EVENTS: usize = 6;
/// Median place in the burst from which losses gather at its end; anywhere is one half.
const AT_THE_END: f64 = 0.75;
/// Half the middle spread of what was in flight at losses, by its median: below it, the same window
/// each time; above the other, any window.
const SAME_WINDOW: f64 = 0.12;
const ANY_WINDOW: f64 = 0.20;
/// Delay at the losses by that of the full queue, from which it stood.
const DELAYS: f64 = 0.5;
/// Segments in flight at losses, median, below which their number is no evidence.
const FEWEST_OUT: f64 = 4.0;

/// Window at the end by that behind the last loss, and the part of the transfer in between, from which it is still smaller than
/// the path allows.
const GROWN: f64 = 1.5;
const GROWS: f64 = 0.5;
/// Readings in each fifth of this time.
const FEWEST_READINGS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossPattern {
    /// At the end of bursts.
    Bursts,
    /// At about the same window each time.
    SameWindow,
    /// Anywhere.
    Anywhere,
    /// Too few losses for a pattern.
    Unknown,
}

pub(crate) fn pattern(facts: &Facts) -> LossPattern {
    if let Some(bucket) = &facts.bucket {
        return match (bucket.is_seen(), bucket.is_excluded()) {
            (true, _) => LossPattern::Bursts,
            (_, true) => LossPattern::Anywhere,
            _ => LossPattern::Unknown,
        };
    }
    let (episodes, place) = (episodes(facts), place(facts));
    if place.is_some_and(|p| p >= AT_THE_END) {
        return LossPattern::Bursts;
    }
    if facts.is_coarse() {
        return LossPattern::Unknown;
    }
    // With a handful of segments out, every window is the same, and none.
    let flights = episodes.iter().map(|l| l.flight as f64);
    if median(flights).unwrap_or(0.0) < FEWEST_OUT * f64::from(facts.mss) {
        return LossPattern::Unknown;
    }
    match spread(&episodes) {
        Some(s) if s < SAME_WINDOW => LossPattern::SameWindow,
        Some(s) if s > ANY_WINDOW => LossPattern::Anywhere,
        _ => LossPattern::Unknown,
    }
}

/// Too few losses for a pattern, early, and none since; the window has grown all the time since then (by a segment in a round trip:
/// RFC 5681, 3.1). What a path of a long round trip loses in slow start costs the whole transfer.
pub(super) fn still_costs(facts: &Facts) -> Option<Vec<Evidence>> {
    let few = (1..FEWEST_LOST).contains(&facts.lost()) && facts.marked == 0 && !facts.is_bbr();
    let last = facts.losses.last().filter(|_| few)?.at;
    let since = facts.readings.partition_point(|r| r.from <= last);
    let (since, grown) = (&facts.readings[since..], facts.span.since(last));
    let fifth = since.len() / 5;
    if fifth < FEWEST_READINGS || (grown.0 as f64) < GROWS * facts.span.0 as f64 {
        return None;
    }
    let window = |of: &[SenderInterval]| median(of.iter().map(|r| r.cwnd as f64));
    let (first, end) = (
        window(&since[..fifth])?,
        window(&since[since.len() - fifth..])?,
    );
    let ratio = end / first.max(1.0);
    (ratio >= GROWN && !facts.queue_at_loss(random_loss::QUEUE)).then(|| {
        let ratio = facts.evidence(Key::WindowSinceLoss, ratio);
        vec![facts.retransmissions(), ratio.at_least(GROWN)]
    })
}

/// Slow start doubles the burst in each round trip.
pub(crate) fn fits_early(facts: &Facts) -> Option<Candidate> {
    Some(advised(facts, Confidence::Possible, still_costs(facts)?))
}

/// The first loss of each round trip: the others are of the same event.
fn episodes(facts: &Facts) -> Vec<&LostSegment> {
    let mut first: Vec<&LostSegment> = Vec::new();
    for loss in &facts.losses {
        if first
            .last()
            .is_none_or(|last| loss.at.since(last.at) > loss.srtt)
        {
            first.push(loss);
        }
    }
    first
}

/// The pattern rests on what is known of each segment.
pub(crate) fn is_exact(facts: &Facts) -> bool {
    facts.bucket.is_some() || place(facts).is_some()
}

/// Median place of the lost in their bursts; `None` where too few are known.
pub(crate) fn place(facts: &Facts) -> Option<f64> {
    let places: Vec<f64> = facts.losses.iter().filter_map(|l| l.place).collect();
    (places.len() >= FEWEST).then(|| median(places))?
}

fn spread(episodes: &[&LostSegment]) -> Option<f64> {
    if episodes.len() < FEWEST {
        return None;
    }
    let mut flights: Vec<f64> = episodes.iter().map(|l| l.flight as f64).collect();
    quartile_spread(&mut flights)
}

/// The evidence that parts it from random loss.
pub(crate) fn spread_of_windows(facts: &Facts) -> Vec<Evidence> {
    let mut evidence = bucket::evidence(facts, None);
    if facts.bucket.is_some() {
        return evidence;
    }
    if let Some(spread) = spread(&episodes(facts)) {
        evidence.push(
            facts
                .evidence(Key::InFlightSpreadAtLosses, spread)
                .either(SAME_WINDOW, ANY_WINDOW),
        );
    }
    if let Some(place) = place(facts) {
        let place = facts.evidence(Key::LossPositionInBurst, place);
        evidence.push(place.if_at_least(AT_THE_END));
    }
    evidence
}

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let at_loss = facts.inflation_at_loss()?;
    let pattern = pattern(facts);
    let anywhere = pattern == LossPattern::Anywhere && is_exact(facts);
    let policed = policer::is_policed(facts);
    let exact = facts.bucket.is_some();
    if !exact && facts.loss_allows_more().is_some() {
        return None;
    }
    if policed || !facts.loss_hurts() || facts.queue_at_loss(random_loss::QUEUE) || anywhere {
        return None;
    }
    let clear = facts.bucket.as_ref().is_none_or(BucketFit::is_clear);
    let again = facts.loss_events().len() >= SURE_EVENTS;
    // Behind a queue that delays as it would when full, the line is full.
    let delay = facts.delay_at_loss().unwrap_or_default();
    let delays = |b: &BucketFit| delay.0 as f64 >= b.delay().0 as f64 * DELAYS;
    let stands = facts.bucket.as_ref().is_some_and(delays);
    let sure = pattern == LossPattern::Bursts && clear && again && !stands;
    let confidence = match sure {
        true => Confidence::Likely,
        false => Confidence::Possible,
    };
    let candidate = advised(facts, confidence, random_loss::no_queue(facts, at_loss));
    let rank = match (loss_runs::pattern(facts), pattern) {
        (LossRuns::Together, _) => 1,
        (LossRuns::OneByOne, _) | (_, LossPattern::Anywhere) => 2,
        (_, LossPattern::Unknown) => 1,
        _ => 0,
    };
    Some(candidate.ranked(rank))
}

fn advised(facts: &Facts, confidence: Confidence, evidence: Vec<Evidence>) -> Candidate {
    Candidate::new(confidence, evidence)
        .try_out(
            experiment::paced(facts, false).map(|rate| format!("pacing={}", rate.0)),
            "pace the sender, so that it sends no burst at the speed of its link",
        )
        .advise("a deeper buffer where the fast link meets the slow one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Nanos;
    use model::finding::Source;

    /// Ten seconds at a window that begins with 10 segments and grows by so many each tenth of a second, from the loss in `at`.
    fn lost_once(at_ms: u64, lost: u64, grows: u64, change: fn(&mut Facts)) -> bool {
        let mut facts = Facts::new(Source::Trace);
        (facts.mss, facts.segments, facts.retransmitted) = (1000, 4_000, lost);
        (facts.min_rtt, facts.span) = (Some(Nanos::from_millis(100)), Nanos::from_secs(10));
        facts.losses = vec![LostSegment {
            at: Nanos::from_millis(at_ms),
            srtt: Nanos::from_millis(101),
            ..LostSegment::default()
        }];
        for n in 0..100 {
            let since = (n * 100u64).saturating_sub(at_ms) / 100;
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 100),
                to: Nanos::from_millis(n * 100 + 100),
                srtt: Nanos::from_millis(101),
                cwnd: 1000 * (10 + grows * since),
                ..SenderInterval::default()
            });
        }
        change(&mut facts);
        let fits = [fits_early(&facts), random_loss::fits_early(&facts)].map(|f| f.is_some());
        assert_eq!(fits[0], fits[1]);
        fits[0]
    }

    #[test]
    fn one_early_loss_costs_the_whole_transfer_if_the_window_has_grown_ever_since() {
        assert!(lost_once(500, 1, 1, |_| ()));
        assert!(lost_once(500, FEWEST_LOST - 1, 1, |_| ()));
        assert!(!lost_once(500, FEWEST_LOST, 1, |_| ()), "a pattern shows");
        assert!(!lost_once(500, 0, 1, |_| ()), "none was lost");
        assert!(!lost_once(500, 1, 0, |_| ()), "a window that stands");
        assert!(lost_once(4900, 1, 1, |_| ()));
        assert!(!lost_once(5100, 1, 1, |_| ()), "late");
        let bbr = |f: &mut Facts| f.congestion = Some("bbr".to_owned());
        assert!(!lost_once(500, 1, 1, bbr), "it does not yield");
        assert!(!lost_once(500, 1, 1, |f| f.marked = 1));
        let queued = |f: &mut Facts| f.losses[0].srtt = Nanos::from_millis(200);
        assert!(!lost_once(500, 1, 1, queued), "a queue had filled");
    }

    #[test]
    fn a_queue_with_exceptions_is_at_most_possible() {
        let mut facts = Facts::new(Source::Trace);
        (facts.mss, facts.segments, facts.retransmitted) = (1448, 7_500, 46);
        facts.min_rtt = Some(Nanos::from_millis(40));
        facts.losses = (0..46)
            .map(|n| LostSegment {
                at: Nanos::from_millis(n * 100),
                srtt: Nanos::from_millis(43),
                flight: 100_000,
                place: None,
                bytes: 1448,
                ..LostSegment::default()
            })
            .collect();
        let mut confidence = |parts, depth| {
            facts.bucket = Some(BucketFit {
                rate: 2.8e6,
                range: [2.7e6, 2.9e6],
                depth,
                parts,
                events: 46,
                of_events: 46,
                segment: 1448,
                connections: 1,
            });
            let candidate = fits(&facts).unwrap();
            // 0.95 of the rate of the queue.
            assert_eq!(
                candidate.remedies[0].change.as_deref(),
                Some("pacing=20500000")
            );
            candidate.confidence
        };
        assert_eq!(confidence(0.9, 20e3), Confidence::Likely);
        assert_eq!(confidence(0.83, 20e3), Confidence::Possible);
        // Losses came 3 ms late: a queue of 5 ms stood.
        assert_eq!(confidence(0.9, 14e3), Confidence::Possible);
    }
}
