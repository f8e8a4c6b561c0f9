//! A copy goes to storage that writes more slowly than the network brings, or that takes long to make it safe.
//!
//! Near miss: storage just faster than the network, which waits for data now and then.

use super::{Candidate, Key, source_storage};
use crate::facts::Facts;
use model::Stage;
use model::finding::Confidence;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let slow = facts.storage().filter(|s| s.stage == Stage::Sink)?;
    let (copy, _) = facts.copy.as_ref()?;
    let mut evidence = source_storage::evidence(facts, Key::SinkBusy, slow);
    evidence.push(facts.evidence(Key::ReceiverRingFull, copy.receiver_ring_full_share));
    if let Some(fsync) = copy.fsync {
        evidence.push(facts.evidence(Key::FsyncTime, fsync));
    }
    Some(
        Candidate::new(Confidence::Certain, evidence)
            .advise("faster storage at the receiver; the network has room"),
    )
}
