//! A device runs half duplex: what it sends collides with what comes, and late collisions are lost.
//!
//! Near miss: random loss on a full-duplex link. Without a device that admits it this is not named.

use super::Telling;
use crate::facts::{Facts, percent};
use model::finding::{Confidence, Evidence};

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let device = facts.half_duplex.as_ref()?;
    if !facts.loss_hurts() {
        return None;
    }
    let evidence = vec![
        Evidence::new(format!("duplex of {device}"), "half"),
        Evidence::new("segments sent again", percent(facts.loss_share())),
    ];
    Some(
        Telling::new(Confidence::Sure, evidence).advise(format!(
            "let both ends of the cable at {device} negotiate (ethtool -s ... autoneg on), or set both alike"
        )),
    )
}
