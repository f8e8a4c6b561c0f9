//! The retransmission timer fired, or what it began is not over.
//!
//! Near miss: fast recovery, which needs no timer.

use super::Telling;
use crate::facts::Facts;
use crate::moment::{LOSS, Moment};
use model::finding::{Confidence, Evidence};

pub(crate) fn owns(moment: &Moment) -> bool {
    moment.ca_state == LOSS || moment.backed_off
}

/// Most of the time the connection stood still.
pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    (facts.timeouts > 0 && facts.stalled.0 * 2 >= facts.span.0).then(|| Telling {
        confidence: Confidence::Likely,
        ..tell(facts).ranked(0)
    })
}

pub(crate) fn tell(facts: &Facts) -> Telling {
    let evidence = vec![
        Evidence::new("retransmission timeouts", facts.timeouts),
        Evidence::new("segments sent again", facts.retransmitted),
    ];
    Telling::new(Confidence::Sure, evidence).advise(
        "look for what loses whole windows or the last segments of a transfer: a timeout means that \
         too few acknowledgements came back to repair the loss at once",
    )
}
