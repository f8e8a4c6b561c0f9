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

/// Elsewhere than at the sender a segment is in flight a moment longer than it was.
const SINGLE: f64 = 1.1;

const CLAMPED: &str = "look for a clamp of the congestion window: cwnd in 'ip route show', TCP metrics, the application's socket options";

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
    Some(Candidate::new(Confidence::Likely, evidence).advise(CLAMPED))
}

/// From packets: never more than one full segment is out, and no send buffer is as small.
pub(crate) fn fits_single(facts: &Facts) -> Option<Candidate> {
    let mut out: Vec<f64> = facts.steady().iter().map(|r| r.flight as f64).collect();
    let segment = f64::from(facts.mss.max(1)) * SINGLE;
    let most = percentile(&mut out, 1.0).filter(|most| *most <= segment)?;
    let single = median(&out)? >= segment * FULL && !facts.is_exchange;
    let evidence = facts.evidence(Key::MostInFlight, Bytes(most as u64));
    single.then(|| {
        let evidence = vec![evidence.at_most(segment)];
        Candidate::new(Confidence::Possible, evidence)
            .ranked(0)
            .advise(CLAMPED)
    })
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
    fn packets_show_a_window_of_a_single_segment() {
        let of = |flights: [u64; 2]| {
            let mut facts = Facts::new(Source::CaptureAtReceiver);
            facts.mss = 1448;
            for (n, flight) in (0..).zip(flights.into_iter().cycle().take(40)) {
                facts.read(crate::facts::SenderInterval {
                    from: model::Nanos::from_millis(n * 40),
                    to: model::Nanos::from_millis(n * 40 + 40),
                    flight,
                    ..Default::default()
                });
            }
            fits_single(&facts).is_some()
        };
        assert!(of([1448, 1455]));
        assert!(!of([1448, 2896]), "two now and then");
        assert!(!of([200, 200]), "what is written is short");
    }

    #[test]
    fn a_window_that_is_not_known_is_no_evidence() {
        let facts = Facts::new(Source::CaptureAtSender);
        assert_eq!(candidate(&facts).evidence, []);
    }
}
