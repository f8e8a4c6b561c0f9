//! Full-size segments vanish without an ICMP message, smaller ones pass: the sender backs off until it
//! gives up, or probes with smaller ones (RFC 2923, RFC 4821).
//!
//! Near miss: a link that is down, where small segments vanish too.

use super::Telling;
use crate::facts::Facts;
use model::finding::{Confidence, Evidence};

/// So many backoffs of the same segment are no chance.
pub(crate) const BACKOFFS: u32 = 3;

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let gone = facts.vanished?;
    if gone.backoffs < BACKOFFS || gone.size <= gone.passed {
        return None;
    }
    let evidence = vec![
        Evidence::new("segment sent again and again, in bytes", gone.size).at(gone.at),
        Evidence::new("largest that was ever acknowledged", gone.passed),
        Evidence::new("backoffs of the timer", gone.backoffs)
            .against(format!("{BACKOFFS} or more")),
    ];
    Some(
        Telling::new(Confidence::Certain, evidence)
            .change(
                "sysctl:net.ipv4.tcp_mtu_probing=1@sender",
                "let the sender find the size that passes (RFC 4821)",
            )
            .advise("see where it stops: linerate mtu HOST"),
    )
}
