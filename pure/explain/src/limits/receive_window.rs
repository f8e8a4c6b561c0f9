//! The peer's window is full: nothing more may be sent, or so little that the kernel waits for more.
//!
//! Near miss: a window that is nearly full because the congestion window grew to it.

use super::{Candidate, Key};
use crate::facts::{Facts, HELD_FLIGHT, bit_rate};
use crate::sender_state::SenderState;
use model::Bytes;
use model::finding::{Confidence, Limit};
use model::stats::{median, percentile};

/// Share of the window in flight from which a capture calls it full; every other cause stays below
/// half.
pub(crate) const FULL: f64 = 0.85;

pub(crate) fn owns(state: &SenderState) -> bool {
    state.room < u64::from(state.mss).min(state.unsent)
        || state.deferred_by() == Some(Limit::ReceiveWindow)
}

/// The peer's window is smaller than the congestion window and mostly in flight: a sender that paces by
/// the rate that it reached (bbr) spreads out what the peer lets it send, and so never fills the window.
pub(crate) fn owns_pacing(state: &SenderState) -> bool {
    let window = u64::from(state.cwnd) * u64::from(state.mss);
    let out = state.window.saturating_sub(state.room);
    state.paced && state.window < window && out >= state.window / 2
}

/// Lower quartile of the peer's window by its largest, of one that its reader keeps open.
const OPEN: f64 = 0.9;

/// The window is constant: the application empties the buffer at once.
fn is_steady(facts: &Facts) -> bool {
    let mut windows: Vec<f64> = facts.steady().iter().map(|r| r.window as f64).collect();
    let most = windows.iter().copied().fold(0.0, f64::max);
    percentile(&mut windows, 0.25).is_some_and(|low| low >= most * OPEN)
}

/// The peer's window, median.
pub(crate) fn typical(facts: &Facts) -> Option<Bytes> {
    let known = facts.steady().iter().filter(|r| r.window > 0);
    median(known.map(|r| r.window as f64)).map(|window| Bytes(window as u64))
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    let mut evidence = Vec::new();
    let window = typical(facts).unwrap_or_default();
    if window.0 > 0 {
        evidence.push(facts.evidence(Key::ReceiveWindow, window));
    }
    if let Some(occupancy) = facts.occupancy() {
        let full = facts.evidence(Key::InFlightOverReceiveWindow, occupancy);
        evidence.push(full.if_at_least(FULL));
    }
    if let Some(buffer) = facts.receive_buffer {
        evidence.push(facts.evidence(Key::ReceiveBuffer, buffer));
    }
    if let Some(rtt) = facts.min_rtt.filter(|rtt| rtt.0 > 0 && window.0 > 0) {
        evidence.push(facts.evidence(Key::MinRtt, rtt));
        evidence.push(facts.evidence(
            Key::ReceiveWindowRate,
            bit_rate(window.0 as f64 / rtt.as_secs_f64()),
        ));
    }
    // Packets show a window that its reader keeps open as a steady one.
    let confidence = match facts.is_capture() && !is_steady(facts) {
        true => Confidence::Possible,
        false => Confidence::Certain,
    };
    let larger = Bytes((window.0 * 4).clamp(256 << 10, 64 << 20));
    Candidate::new(confidence, evidence).change(
        format!("rcvbuf={}", larger.0),
        "a larger receive buffer, or none set at all, so that the kernel can grow it up to net.ipv4.tcp_rmem",
    )
}

/// From packets whose windows have no known scale: the same amount in flight all the time may be the
/// window.
pub(crate) fn fits_unscaled(facts: &Facts) -> Option<Candidate> {
    if facts.occupancy().is_some() {
        return None;
    }
    let spread = facts.held_flight()?;
    let evidence = facts
        .evidence(Key::InFlightSpread, spread)
        .at_most(HELD_FLIGHT);
    Some(
        Candidate::new(Confidence::Possible, vec![evidence])
            .ranked(2)
            .advise("capture again from the handshake on: it has the window scale"),
    )
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
