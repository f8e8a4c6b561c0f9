//! A short segment waits until what was sent before is acknowledged (RFC 896; Minshall's change: only
//! while another short segment is out).
//!
//! Near miss: a short segment that went as soon as the application wrote more.

use super::{Candidate, Key};
use crate::facts::Facts;
use crate::sender_state::{SenderState, ShortSegmentRelease};
use model::finding::Confidence;

pub(crate) fn owns(state: &SenderState) -> bool {
    state.held_until == Some(ShortSegmentRelease::Ack)
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    let evidence = vec![facts.evidence(Key::NagleWaits, facts.held.waits)];
    // That it was written by then does not show in packets.
    let confidence = match facts.is_capture() {
        true => Confidence::Likely,
        false => Confidence::Certain,
    };
    Candidate::new(confidence, evidence).change(
        "nodelay=on",
        "TCP_NODELAY, or one write for each message instead of two",
    )
}
