//! A token bucket that delays: fast until it is empty, then flat at a lower rate with a queue.
//!
//! Near miss: a plain link, which is as slow at the start as later.

use super::{Telling, bottleneck_rate};
use crate::facts::{Facts, bit_rate, percentile};
use model::finding::{Confidence, Evidence};

/// The burst was so much faster than what followed.
const FASTER: f64 = 1.5;
/// A burst begins within so many round trips.
const BEGUN: u64 = 20;
/// The burst held at least so many bytes by the product of the later rate and the round trip: less
/// is a queue that filled.
const BURST: f64 = 2.0;

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let mut telling = bottleneck_rate::fits(facts)?;
    let rate = facts.rate();
    let min = facts.min_rtt?;
    // What was delivered above the later rate: from the start, by round trips, until it ends or a queue
    // stands.
    let (mut excess, mut fast) = (0.0, Vec::new());
    let (mut span, mut bytes) = (0.0, 0.0);
    for reading in &facts.readings {
        if reading.from.0 > min.0.saturating_mul(BEGUN) && fast.is_empty() {
            break;
        }
        span += reading.to.since(reading.from).as_secs_f64();
        bytes += reading.delivered as f64;
        if span < min.as_secs_f64() {
            continue;
        }
        if bytes >= span * rate * FASTER {
            excess += bytes - rate * span;
            fast.push(bytes / span);
        } else if !fast.is_empty() {
            break;
        }
        if reading.srtt.0 as f64 > min.0 as f64 * bottleneck_rate::QUEUE {
            break;
        }
        (span, bytes) = (0.0, 0.0);
    }
    let burst_rate = percentile(&mut fast, 0.5)?;
    if excess < BURST * rate * min.as_secs_f64() {
        return None;
    }
    telling.evidence.push(
        Evidence::new("rate at the start", bit_rate(burst_rate))
            .against("1.5 times the later one and more"),
    );
    telling.evidence.push(Evidence::new(
        "bytes that passed above the later rate",
        model::Bytes(excess as u64),
    ));
    telling.confidence = Confidence::Likely;
    telling.remedies.clear();
    Some(telling.advise("the path sells this rate and a burst on top: ask who runs it for more"))
}
