//! A copy goes to storage that writes more slowly than the network brings, or that takes long to make it safe.
//!
//! Near miss: storage just faster than the network, which waits for data now and then.

use super::{Telling, source_storage};
use crate::facts::{Facts, percent};
use model::Stage;
use model::finding::{Confidence, Evidence};

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let slow = facts.storage().filter(|s| s.stage == Stage::Sink)?;
    let (copy, _) = facts.copy.as_ref()?;
    let mut evidence = source_storage::evidence(slow, "writing and making it safe");
    evidence.push(Evidence::new(
        "the receiver's ring was full",
        percent(copy.receiver_ring_full_share),
    ));
    if let Some(fsync) = copy.fsync {
        evidence.push(Evidence::new("fsync at the end", fsync));
    }
    Some(
        Telling::new(Confidence::Certain, evidence)
            .advise("faster storage at the receiver; the network has room"),
    )
}
