//! The application gave the socket nothing to send. An innocent: the network is not the matter.
//!
//! Near miss: an application that would write but waits for room ([`super::send_buffer`]).

use super::{Candidate, Key};
use crate::facts::Facts;
use crate::sender_state::{SenderState, ShortSegmentRelease};
use model::finding::Confidence;

/// Nothing to send and nothing in flight.
pub(crate) fn owns_idleness(state: &SenderState) -> bool {
    state.unsent == 0 && state.flight == 0
}

/// Nothing to send; or so little that Nagle's algorithm held it, until the application wrote more.
pub(crate) fn owns(state: &SenderState) -> bool {
    state.unsent == 0 || state.held_until == Some(ShortSegmentRelease::Write)
}

/// Pacing holds the next segment, but at a rate that the application itself made low.
pub(crate) fn owns_pacing(state: &SenderState) -> bool {
    state.paced && state.app_limited
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    if !facts.always_writes {
        // Packets show that nothing left, not whether anything was written. A reply shows that the request was awaited.
        // Who is ready and has no processor would have written.
        let confidence = match facts.shows_no_writes() || facts.behind.waits_for_processor() {
            true => Confidence::Possible,
            false => Confidence::Certain,
        };
        let advice = match facts.shows_no_writes() {
            // A pacer whose writes are no larger than its bursts.
            true => {
                "look at the sending application: what it computes, reads or waits for between writes; or whether it paces ('ss -ti')"
            }
            false => {
                "look at the sending application: what it computes, reads or waits for between writes"
            }
        };
        let candidate = Candidate::new(confidence, Vec::new()).advise(advice);
        return facts.behind.add_to(candidate, facts.source);
    }
    // A load generator always has data: if it did not write, it did not run.
    let mut evidence = Vec::new();
    if let Some(load) = facts.sender_load {
        evidence.push(facts.evidence(Key::SenderProcessCpu, load.process));
        evidence.extend(
            load.host
                .map(|host| facts.evidence(Key::SenderHostCpu, host)),
        );
    }
    Candidate::new(Confidence::Likely, evidence)
        .advise("give the sender more processor time: it is the load generator itself that paused")
}

/// From packets alone: see [`super::send_buffer::held`].
pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let evidence = super::send_buffer::held(facts)?;
    Some(
        Candidate::new(Confidence::Possible, vec![evidence])
            .advise("look at the sending application: how much it keeps outstanding by itself"),
    )
}
