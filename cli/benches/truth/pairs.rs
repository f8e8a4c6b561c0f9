//! Cases in which two faults may each keep something back: drawn pairs hardly ever do, the narrower one hides the other.

use crate::drawn::{Drawn, Fault};

/// Rates that differ by no more than this are near enough that each is met at times.
const NEAR: f64 = 1.6;
/// Of the path's rate, from which on its queue is the limit as well.
const BELOW_THE_PATH: f64 = 0.85;

/// By what each would let through alone: about the same, at least one of them unevenly; or one takes time, and the other rate.
pub fn may_compete(drawn: &Drawn) -> bool {
    let [a, b] = drawn.faults.as_slice() else {
        return false;
    };
    let takes_time =
        |fault: &Fault| matches!(fault, Fault::Outage { .. } | Fault::LateAccept { .. });
    let (of_a, of_b) = (alone(drawn, a), alone(drawn, b));
    let most = drawn.rate as f64 * BELOW_THE_PATH;
    let takes_rate = |alone: Option<f64>| alone.is_some_and(|rate| rate < most);
    match (of_a, of_b) {
        (Some(x), Some(y)) => {
            (is_uneven(a) || is_uneven(b)) && x.max(y) < most && x.max(y) < NEAR * x.min(y)
        }
        _ => takes_time(a) && takes_rate(of_b) || takes_time(b) && takes_rate(of_a),
    }
}

/// Whether what it lets through varies by itself.
fn is_uneven(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::RandomLoss { .. } | Fault::LossInBursts { .. } | Fault::Policer { .. }
    )
}

/// Bit/s, roughly: loss as in Mathis et al. 1997 (not BBR, which does not yield to it), a buffer once a round trip.
fn alone(drawn: &Drawn, fault: &Fault) -> Option<f64> {
    let rtt = drawn.rtt_us as f64 / 1e6;
    let loss = |probability: f64| {
        (drawn.congestion != "bbr").then(|| 1.22 * 1448.0 * 8.0 / rtt / probability.sqrt())
    };
    match *fault {
        Fault::RandomLoss { probability } => loss(probability),
        Fault::LossInBursts { to_bad, .. } => loss(to_bad),
        Fault::ReceiveBuffer { bytes } | Fault::SendBuffer { bytes } => {
            Some(bytes as f64 * 8.0 / rtt)
        }
        Fault::Policer { rate, .. }
        | Fault::Shaper { rate, .. }
        | Fault::SlowReader { rate }
        | Fault::Pacing { rate }
        | Fault::WritesAt { rate }
        | Fault::DeviceQueue { rate } => Some(rate as f64),
        _ => None,
    }
}
