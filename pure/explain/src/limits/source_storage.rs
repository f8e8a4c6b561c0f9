//! A copy comes from storage that reads more slowly than the network takes.
//!
//! Near miss: storage just faster than the network, which waits for room in its ring now and then.

use super::Telling;
use crate::facts::{Facts, percent};
use model::Stage;
use model::finding::{Confidence, Evidence};

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let slow = facts.storage().filter(|s| s.stage == Stage::Source)?;
    let (copy, _) = facts.copy.as_ref()?;
    let mut evidence = evidence(slow, "reading");
    evidence.push(Evidence::new(
        "the sender's ring was empty",
        percent(copy.sender_ring_empty_share),
    ));
    if let Some(cached) = copy.source_cached_before_share {
        evidence.push(Evidence::new(
            "of the source in the page cache before",
            percent(cached),
        ));
    }
    Some(
        Telling::new(Confidence::Certain, evidence)
            .advise("faster storage at the sender, or more of it read ahead; the network has room"),
    )
}

/// What a stage that held a copy up is known by.
pub(super) fn evidence(slow: &model::StageUse, doing: &str) -> Vec<Evidence> {
    let mut evidence = vec![
        Evidence::new(
            format!("the storage was {doing}"),
            format!("{} of the time", percent(slow.busy_share)),
        )
        .against("more than the network and the other storage by 5 % and more"),
    ];
    if let Some(alone) = slow.alone {
        evidence.push(Evidence::new("its rate in that time", alone));
    }
    evidence
}
