//! Lost segments are being repaired, or the window is being reduced: the sender holds itself back.
//!
//! Near miss: retransmissions because the path MTU fell in that instant; they are not loss.

use super::Candidate;
use crate::facts::Facts;
use crate::sender_state::SenderState;
use model::finding::Confidence;
use model::segment::ca_state;

pub(crate) fn owns(state: &SenderState) -> bool {
    matches!(state.ca_state, ca_state::CWR | ca_state::RECOVERY)
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    Candidate::new(Confidence::Certain, vec![facts.retransmissions()])
}
