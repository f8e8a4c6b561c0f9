//! The connection is being opened: SYN sent or received.
//!
//! Near miss: a transfer so short that the one round trip of a handshake is a good part of it.

use super::{Candidate, Key};
use crate::facts::Facts;
use crate::sender_state::{ConnectionStage, SenderState};
use model::finding::Confidence;

pub(crate) fn owns(state: &SenderState) -> bool {
    state.stage == ConnectionStage::Opening
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    if facts.syns_again == 0 {
        return Candidate::new(Confidence::Certain, Vec::new());
    }
    let evidence = facts.evidence(Key::RetransmittedSyns, facts.syns_again);
    Candidate::new(Confidence::Certain, vec![evidence]).advise(
        "look for what loses or holds back the first segments: a listener whose queue is full, a firewall, a path that is down at first",
    )
}
