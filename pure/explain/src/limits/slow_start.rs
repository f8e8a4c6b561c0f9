//! The window still doubles each round trip. An innocent in a short transfer: nothing is wrong, it is
//! just not long enough.

use super::{Candidate, Key};
use crate::facts::Facts;
use crate::sender_state::SenderState;
use model::finding::{Confidence, Limit};

pub(crate) fn owns(state: &SenderState) -> bool {
    state.cwnd < state.ssthresh && window_holds(state)
}

/// The congestion window lets nothing go, or too little to be worth a segment.
pub(crate) fn window_holds(state: &SenderState) -> bool {
    state.quota() <= 0 || state.deferred_by() == Some(Limit::CongestionWindow)
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    let mut evidence = Vec::new();
    if let Some(rtt) = facts.min_rtt {
        evidence.push(facts.evidence(Key::MinRtt, rtt));
    }
    Candidate::new(Confidence::Certain, evidence).change(
        "route.initcwnd=32@sender",
        "a larger initial window, if transfers are short and the path is known to take it",
    )
}
