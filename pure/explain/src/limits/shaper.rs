//! A token bucket that delays: fast until it is empty, then flat at a lower rate with a queue.
//!
//! Near miss: a plain link, which is as slow at the start as later.

use super::{Telling, bottleneck_rate};
use crate::facts::{Facts, bit_rate, percentile};
use model::finding::{Confidence, Evidence};

/// The burst was so much faster than what followed.
const FASTER: f64 = 1.5;
/// The burst held at least so many bytes by the product of the later rate and the round trip: less
/// is a queue that filled.
const BURST: f64 = 2.0;

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let mut telling = bottleneck_rate::fits(facts)?;
    let rate = facts.rate();
    let min = facts.min_rtt?;
    // What was delivered above the later rate, while no queue stood.
    let mut excess = 0.0;
    let mut fast = Vec::new();
    for reading in &facts.readings {
        let span = reading.to.since(reading.from).as_secs_f64();
        let here = reading.delivered as f64 / span.max(1e-9);
        if here >= rate * FASTER {
            excess += reading.delivered as f64 - rate * span;
            fast.push(here);
        } else if !fast.is_empty() && reading.srtt.0 as f64 > min.0 as f64 * bottleneck_rate::QUEUE
        {
            break;
        }
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
