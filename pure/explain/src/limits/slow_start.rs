//! The window still doubles each round trip. An innocent in a short transfer: nothing is wrong, it is
//! just not long enough.

use super::{Key, Telling};
use crate::facts::Facts;
use crate::moment::Moment;
use model::finding::{Confidence, Limit};

pub(crate) fn owns(moment: &Moment) -> bool {
    moment.cwnd < moment.ssthresh && window_holds(moment)
}

/// The congestion window lets nothing go, or too little to be worth a segment.
pub(crate) fn window_holds(moment: &Moment) -> bool {
    moment.quota() <= 0 || moment.deferred_by() == Some(Limit::CongestionWindow)
}

pub(crate) fn tell(facts: &Facts) -> Telling {
    let mut evidence = Vec::new();
    if let Some(rtt) = facts.min_rtt {
        evidence.push(facts.evidence(Key::MinRtt, rtt));
    }
    Telling::new(Confidence::Certain, evidence).change(
        "route.initcwnd=32@sender",
        "a larger initial window, if transfers are short and the path is known to take it",
    )
}
