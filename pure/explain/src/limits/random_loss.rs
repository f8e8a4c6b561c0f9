//! Losses that strike at any load, without a queue: a bad cable, a radio, dirty optics.
//!
//! Near miss: losses of a queue that overflowed (the round trip was long), of a policer (the bucket
//! was empty), of bursts in a shallow buffer (always at the same window, at the end of bursts), of segments that came late
//! (the sender saw more of these).

use super::loss_runs::{self, LossRuns};
use super::{Candidate, Key, burst_loss};
use crate::facts::{Facts, bit_rate};
use model::finding::{Confidence, Evidence};

/// Less than this at the losses: no queue had filled.
pub(crate) const QUEUE: f64 = 1.3;
/// Losses from which their pattern is evidence, if their positions in the bursts are known.
const ENOUGH: usize = 12;
const ENOUGH_EVENTS: usize = 8;

/// So much random loss costs even a sender that ignores losses a part of its rate.
const MUCH_LOSS: f64 = 0.05;

/// What was lost, that no queue had filled at the losses, and at which windows they came.
pub(super) fn no_queue(facts: &Facts, at_loss: f64) -> Vec<Evidence> {
    let mut evidence = vec![
        facts.retransmissions(),
        facts.no_queue_at_loss(at_loss, QUEUE),
    ];
    evidence.extend(burst_loss::spread_of_windows(facts));
    evidence.extend(loss_runs::evidence(facts));
    evidence
}

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let at_loss = facts.inflation_at_loss()?;
    let pattern = burst_loss::pattern(facts);
    let clear = facts.losses.len() >= ENOUGH
        && pattern == burst_loss::LossPattern::Anywhere
        && burst_loss::is_exact(facts)
        && facts.loss_events().len() >= ENOUGH_EVENTS
        && !facts.reorders();
    let hurts = facts.loss_hurts() || facts.loss_share() >= MUCH_LOSS;
    if !hurts || facts.queue_at_loss(QUEUE) {
        return None;
    }
    if pattern == burst_loss::LossPattern::Bursts || (!clear && facts.loss_allows_more().is_some())
    {
        return None;
    }
    let mut evidence = no_queue(facts, at_loss);
    evidence.extend(witness(facts));
    let confidence = if clear {
        Confidence::Likely
    } else {
        Confidence::Possible
    };
    let candidate = advised(confidence, evidence);
    Some(if clear {
        candidate
    } else {
        candidate.ranked(match (loss_runs::pattern(facts), pattern) {
            _ if facts.reorders() => 2,
            (LossRuns::OneByOne, _) => 0,
            (LossRuns::Together, _) | (_, burst_loss::LossPattern::SameWindow) => 3,
            _ => 1,
        })
    })
}

/// See [`burst_loss::still_costs`].
pub(crate) fn fits_early(facts: &Facts) -> Option<Candidate> {
    let evidence = burst_loss::still_costs(facts)?;
    Some(advised(Confidence::Possible, evidence))
}

fn advised(confidence: Confidence, evidence: Vec<Evidence>) -> Candidate {
    Candidate::new(confidence, evidence)
        .advise(
            "find the link that loses: error counters of both devices and of the switches between; a cable whose \
             ends disagree on duplex loses like this too",
        )
        .change(
            "congestion=bbr",
            "a congestion control that does not take every loss for congestion",
        )
}

/// What the loss alone explains, and what else would give.
fn witness(facts: &Facts) -> Vec<Evidence> {
    let Some(reach) = facts.mathis() else {
        return Vec::new();
    };
    let jumbo = reach * 8948.0 / f64::from(facts.mss.max(1));
    vec![
        facts.evidence(Key::LossLimitedRate, bit_rate(reach)),
        facts.evidence(Key::LossLimitedRateJumbo, bit_rate(jumbo)),
        facts.evidence(Key::LossLimitedRateHalfRtt, bit_rate(reach * 2.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::reordering;
    use super::*;
    use crate::facts::{LostSegment, SenderInterval};
    use model::finding::Source;
    use model::{Bytes, Nanos};

    #[test]
    fn what_is_sent_again_where_segments_often_came_late_is_not_sure_to_be_lost() {
        let mut facts = Facts::new(Source::Trace);
        (facts.mss, facts.segments, facts.retransmitted) = (1448, 75_000, 19);
        (facts.bytes, facts.span) = (Bytes(109 << 20), Nanos::from_secs(5));
        facts.min_rtt = Some(Nanos::from_millis(20));
        for n in 0..20 {
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 10),
                to: Nanos::from_millis(n * 10 + 10),
                delivered: 220_000,
                ..SenderInterval::default()
            });
        }
        facts.losses = (0..19)
            .map(|n| LostSegment {
                at: Nanos::from_millis(n * 200),
                srtt: Nanos::from_millis(21),
                flight: 100_000 + n * 100_000,
                place: Some(n as f64 / 19.0),
                bytes: 1448,
                ..LostSegment::default()
            })
            .collect();
        facts.reordered = 3;
        assert_eq!(fits(&facts).unwrap().confidence, Confidence::Likely);
        assert!(reordering::fits(&facts).is_none());
        facts.reordered = 400;
        assert_eq!(fits(&facts).unwrap().confidence, Confidence::Possible);
        let late = reordering::fits(&facts).unwrap();
        assert_eq!(late.confidence, Confidence::Possible);
    }
}
