//! The congestion window is full. What made it no larger is for the second level.

use super::{Candidate, Key};
use crate::facts::{Facts, QUEUE};
use crate::sender_state::SenderState;
use model::Bytes;
use model::finding::Confidence;
use model::stats::{median, percentile};

pub(crate) fn owns(state: &SenderState) -> bool {
    super::slow_start::window_holds(state)
}

/// Of the window in flight at the most, median: it is full.
const FULL: f64 = 0.8;

/// The window is full and constant, without loss and without a standing queue: something clamps it (a cwnd clamp of the
/// route, or of the application).
pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let mut windows: Vec<f64> = facts.steady().iter().map(|r| r.cwnd as f64).collect();
    let (low, high) = (
        percentile(&mut windows, 0.1)?,
        percentile(&mut windows, 1.0)?,
    );
    let held = !facts.is_capture() && low == high && facts.retransmitted == 0 && facts.marked == 0;
    let full = facts
        .steady()
        .iter()
        .map(|r| r.flight as f64 / high.max(1.0));
    let held = held && median(full)? >= FULL;
    if !held || facts.inflation()? >= QUEUE {
        return None;
    }
    let evidence = vec![
        facts.evidence(Key::Cwnd, Bytes(high as u64)),
        facts
            .evidence(Key::CwndRange, Bytes((high - low) as u64))
            .at_most(0.0),
        facts.retransmissions().at_most(0.0),
    ];
    Some(Candidate::new(Confidence::Likely, evidence).advise(
        "look for a clamp of the congestion window: cwnd in 'ip route show', TCP metrics, the application's socket options",
    ))
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    let known = facts.steady().iter().filter(|r| r.cwnd > 0);
    let cwnd = median(known.map(|r| r.cwnd as f64));
    let cwnd = cwnd.map(|cwnd| facts.evidence(Key::Cwnd, Bytes(cwnd as u64)));
    let mut evidence: Vec<_> = cwnd.into_iter().collect();
    if let Some(name) = &facts.congestion {
        evidence.push(facts.evidence(Key::CongestionControl, name.as_str()));
    }
    Candidate::new(Confidence::Possible, evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::Source;

    #[test]
    fn a_window_that_is_not_known_is_no_evidence() {
        let facts = Facts::new(Source::CaptureAtSender);
        assert_eq!(candidate(&facts).evidence, []);
    }
}
