//! Full-size segments vanish without an ICMP message, smaller ones pass: the sender backs off until it
//! gives up, or probes with smaller ones (RFC 2923, RFC 4821).
//!
//! Near miss: a link that is down, where small segments vanish too.

use super::{Candidate, Key};
use crate::facts::Facts;
use model::Bytes;
use model::finding::Confidence;

/// So many backoffs of the same segment are no chance.
pub(crate) const BACKOFFS: u32 = 3;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let gone = facts.vanished?;
    if gone.backoffs < BACKOFFS || gone.size <= gone.passed {
        return None;
    }
    let evidence = vec![
        facts
            .evidence(Key::VanishedSegment, Bytes(gone.size.into()))
            .at_least(f64::from(gone.passed) + 1.0)
            .at(gone.at),
        facts.evidence(Key::LargestDelivered, Bytes(gone.passed.into())),
        facts
            .evidence(Key::ConsecutiveTimeouts, gone.backoffs)
            .at_least(BACKOFFS.into()),
    ];
    Some(
        Candidate::new(Confidence::Certain, evidence)
            .change(
                "sysctl:net.ipv4.tcp_mtu_probing=1@sender",
                "let the sender find the size that passes (RFC 4821)",
            )
            .advise("see where it stops: linerate mtu HOST"),
    )
}
