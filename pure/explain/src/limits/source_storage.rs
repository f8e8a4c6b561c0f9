//! A copy comes from storage that reads more slowly than the network takes.
//!
//! Near miss: storage just faster than the network, which waits for room in its ring now and then.

use super::{Candidate, Key};
use crate::facts::Facts;
use model::finding::{Confidence, Evidence};
use model::{CopySummary, Stage, StageUse};

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let slow = facts.storage().filter(|s| s.stage == Stage::Source)?;
    let (copy, _) = facts.copy.as_ref()?;
    let mut evidence = evidence(facts, Key::SourceBusy, slow);
    evidence.push(facts.evidence(Key::SenderRingEmpty, copy.sender_ring_empty_share));
    if let Some(cached) = copy.source_cached_before_share {
        evidence.push(facts.evidence(Key::SourceCached, cached));
    }
    Some(
        Candidate::new(Confidence::Certain, evidence)
            .advise("faster storage at the sender, or more of it read ahead; the network has room"),
    )
}

/// How busy a stage was that held a copy up, by the next busiest.
pub(super) fn evidence(facts: &Facts, busy: Key, slow: &StageUse) -> Vec<Evidence> {
    let copy = facts.copy.as_ref();
    let next = copy.and_then(|(copy, _)| copy.stages.get(1));
    let next = next.map_or(0.0, |next| next.busy_share);
    let mut evidence = vec![
        facts
            .evidence(busy, slow.busy_share)
            .at_least(next + CopySummary::APART),
    ];
    if let Some(alone) = slow.alone {
        evidence.push(facts.evidence(Key::StorageRate, alone));
    }
    evidence
}
