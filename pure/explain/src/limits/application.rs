//! The application gave the socket nothing to send. An innocent: the network is not the matter.
//!
//! Near miss: an application that would write but waits for room ([`super::send_buffer`]).

use super::Telling;
use crate::facts::{Facts, percent};
use crate::moment::{Moment, Release};
use model::finding::{Confidence, Evidence};

/// Nothing to send and nothing in flight.
pub(crate) fn owns_idleness(moment: &Moment) -> bool {
    moment.unsent == 0 && moment.flight == 0
}

/// Nothing to send; or so little that Nagle's algorithm held it, until the application wrote more.
pub(crate) fn owns(moment: &Moment) -> bool {
    moment.unsent == 0 || moment.held_until == Some(Release::Write)
}

/// Pacing holds the next segment, but at a rate that the application itself made low.
pub(crate) fn owns_pacing(moment: &Moment) -> bool {
    moment.paced && moment.app_limited
}

pub(crate) fn tell(facts: &Facts) -> Telling {
    let mut evidence = vec![Evidence::new(
        "written and not yet sent",
        "nothing, in that time",
    )];
    if !facts.always_writes {
        let telling = Telling::new(Confidence::Certain, evidence).advise(
            "look at the sending application: what it computes, reads or waits for between writes",
        );
        return facts.behind.tell(telling);
    }
    // A load generator always has data: if it did not write, it did not run.
    if let Some(load) = facts.sender_load {
        evidence.push(Evidence::new(
            "processors that the sending process used",
            format!("{:.2}", load.process),
        ));
        if let Some(host) = load.host {
            evidence.push(Evidence::new("load of the sending host", percent(host)));
        }
    }
    Telling::new(Confidence::Likely, evidence)
        .advise("give the sender more processor time: it is the load generator itself that paused")
}

/// From packets alone: see [`super::send_buffer::held`].
pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let evidence = super::send_buffer::held(facts)?;
    Some(
        Telling::new(Confidence::Possible, vec![evidence])
            .advise("look at the sending application: how much it keeps outstanding by itself"),
    )
}
