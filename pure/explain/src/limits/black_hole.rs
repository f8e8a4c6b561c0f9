//! Full-size segments vanish without an ICMP message, smaller ones pass: the sender backs off until it
//! gives up, or probes with smaller ones (RFC 2923, RFC 4821).
//!
//! Near miss: a link that is down, where small segments vanish too.

use super::{Candidate, Key};
use crate::facts::Facts;
use model::finding::{Confidence, Evidence};
use model::{Bytes, Nanos};

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
    Some(advised(Confidence::Certain, evidence))
}

/// For so long data were sent again and again: a timeout is 1 s at first, and doubles (RFC 6298).
const OFTEN: Nanos = Nanos::from_secs(3);

/// At the receiver, of a sender whose packets without data arrive, and none with data.
pub(crate) fn fits_undelivered(facts: &Facts) -> Option<Candidate> {
    let missing = facts.undelivered?;
    let often = missing.until.since(missing.since) >= OFTEN;
    (often && missing.acknowledgements >= BACKOFFS).then(|| {
        let bytes = facts.evidence(Key::UndeliveredBytes, Bytes(missing.bytes.into()));
        let acks = facts.evidence(Key::AcksAheadOfData, missing.acknowledgements);
        let evidence = vec![bytes.at(missing.since), acks.at_least(BACKOFFS.into())];
        advised(Confidence::Likely, evidence)
    })
}

fn advised(confidence: Confidence, evidence: Vec<Evidence>) -> Candidate {
    Candidate::new(confidence, evidence)
        .change(
            "sysctl:net.ipv4.tcp_mtu_probing=1@sender",
            "let the sender find the size that passes (RFC 4821)",
        )
        .advise("see where it stops: linerate mtu HOST")
}
