//! Segments wait below TCP, in the queueing discipline or the ring of the sender's own device.

use super::Telling;
use crate::facts::Facts;
use crate::moment::Moment;
use model::finding::{Confidence, Evidence};

pub(crate) fn owns(moment: &Moment) -> bool {
    moment.queued_below
}

pub(crate) fn tell(facts: &Facts) -> Telling {
    let mut evidence = vec![Evidence::new(
        "segments below TCP",
        "as many as it lets wait there",
    )];
    if let Some(link) = facts.link {
        evidence.push(Evidence::new("speed of the device", link));
    }
    Telling::new(Confidence::Likely, evidence).advise(
        "the sender's own link, or its queueing discipline, is the slowest part: look at its rate",
    )
}
