//! All that was written has been sent, and the application waits for room to write more: the buffer
//! holds less than what could be in flight.
//!
//! Near miss: an application with nothing to write. A capture cannot tell the two apart.

use super::Telling;
use crate::facts::{Facts, bit_rate, percent};
use crate::moment::{Moment, Release};
use model::Bytes;
use model::finding::{Confidence, Evidence, Limit};

pub(crate) fn owns(moment: &Moment) -> bool {
    let nothing_to_send = moment.unsent == 0 || moment.held_until == Some(Release::Write);
    moment.no_space && nothing_to_send
}

/// Pacing spreads out what the buffer holds, and the window would take all of it at once: a sender that
/// paces by the rate that it reached (bbr) is held by what it was given.
pub(crate) fn owns_pacing(moment: &Moment) -> bool {
    let window = u64::from(moment.cwnd) * u64::from(moment.mss);
    moment.paced && moment.no_space && moment.written < window
}

pub(crate) fn tell(facts: &Facts) -> Telling {
    let mut evidence = Vec::new();
    let mut needed = Bytes(4 << 20);
    if let Some(buffer) = facts.send_buffer {
        evidence.push(Evidence::new(
            "send buffer (SO_SNDBUF, twice what was asked)",
            buffer,
        ));
        needed = Bytes(buffer.0.saturating_mul(4).clamp(256 << 10, 64 << 20));
    }
    evidence.push(Evidence::new("rate", bit_rate(facts.rate())));
    if let Some(rtt) = facts.min_rtt {
        evidence.push(Evidence::new("shortest round trip", rtt));
    }
    Telling::new(Confidence::Sure, evidence).change(
        format!("sndbuf={}", needed.0),
        "a larger send buffer, or none set at all, so that the kernel can grow it up to net.ipv4.tcp_wmem",
    )
}

/// From packets alone: the same amount in flight all the time. An application that keeps so much out
/// itself looks the same.
pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let spread = facts.held_flight()?;
    let evidence = vec![
        Evidence::new("in flight, half of its middle spread", percent(spread))
            .against("under 5 %, without loss or queue: held at the sender"),
    ];
    let mut telling = tell(facts);
    telling.confidence = Confidence::Open;
    telling.evidence.splice(0..0, evidence);
    Some(telling.decide(
        &[Limit::SendBuffer, Limit::Application],
        "sndbuf=16777216".to_owned(),
        "a larger send buffer helps if it was the limit, and does nothing for an application that writes no more",
    ))
}
