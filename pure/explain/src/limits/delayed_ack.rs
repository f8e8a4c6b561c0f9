//! Short segments wait for an acknowledgement that the peer delays: 40 ms on Linux.
//!
//! Near miss: Nagle's waits of one round trip, where the peer acknowledged at once.

use super::Telling;
use crate::facts::Facts;
use model::Nanos;
use model::finding::{Confidence, Evidence};

/// `TCP_DELACK_MIN` (`include/net/tcp.h`).
const DELAYED: Nanos = Nanos::from_millis(40);

/// The wait outlasts the round trip by a delayed acknowledgement, a fifth left for timers that tick.
pub(crate) fn outlasts(wait: Nanos, srtt: Nanos) -> bool {
    wait.since(srtt).0 >= DELAYED.0 / 5 * 4
}

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let held = facts.held;
    if held.delayed == 0 || held.delayed * 5 < held.waits {
        return None;
    }
    let evidence = vec![
        Evidence::new(
            "waits that outlast the round trip by a delayed acknowledgement",
            format!("{} of {}", held.delayed, held.waits),
        )
        .against("32 ms or more"),
        Evidence::new("time in them", held.delayed_time),
    ];
    Some(Telling::new(Confidence::Sure, evidence).change(
        "nodelay=on",
        "TCP_NODELAY at the sender; the peer may also acknowledge at once (ip route ... quickack 1)",
    ))
}
