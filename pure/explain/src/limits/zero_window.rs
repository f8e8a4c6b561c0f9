//! The peer closed its window: less than one segment fits.
//!
//! Near miss: a small window that is always open to a segment ([`super::receive_window`]).

use super::{Key, Telling};
use crate::facts::Facts;
use crate::moment::Moment;
use model::finding::Confidence;

/// Nothing is in flight, so only a probe or an update of the window can end it.
pub(crate) fn owns_silence(moment: &Moment) -> bool {
    moment.unsent > 0 && moment.flight == 0 && (moment.probing || is_closed(moment))
}

/// The window is the limit, and it is closed.
pub(crate) fn owns(moment: &Moment) -> bool {
    is_closed(moment) && super::receive_window::owns(moment)
}

fn is_closed(moment: &Moment) -> bool {
    moment.window < u64::from(moment.mss)
}

pub(crate) fn tell(facts: &Facts) -> Telling {
    let closed = facts
        .readings
        .iter()
        .find(|r| r.window < u64::from(facts.mss));
    let evidence = closed.map(|r| {
        facts
            .evidence(Key::ZeroWindow, model::Bytes(r.window))
            .at_most(f64::from(facts.mss) - 1.0)
            .at(r.from)
    });
    Telling::new(Confidence::Certain, evidence.into_iter().collect()).advise(
        "find out why the receiving application stops reading: its processor, its disk, or a lock",
    )
}
