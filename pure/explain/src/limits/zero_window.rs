//! The peer closed its window: less than one segment fits.
//!
//! Near miss: a small window that is always open to a segment ([`super::receive_window`]).

use super::{Candidate, Key};
use crate::facts::Facts;
use crate::sender_state::SenderState;
use model::finding::Confidence;

/// Nothing is in flight, so only a probe or an update of the window can end it. That the probe timer runs does not show it:
/// the kernel starts it whenever data wait and nothing is in flight (`tcp_check_probe_timer` in `include/net/tcp.h`), as
/// behind a low pacing rate.
pub(crate) fn owns_silence(state: &SenderState) -> bool {
    state.unsent > 0 && state.flight == 0 && is_closed(state)
}

/// The window is the limit, and it is closed.
pub(crate) fn owns(state: &SenderState) -> bool {
    is_closed(state) && super::receive_window::owns(state)
}

fn is_closed(state: &SenderState) -> bool {
    state.window < u64::from(state.mss)
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
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
    Candidate::new(Confidence::Certain, evidence.into_iter().collect()).advise(
        "find out why the receiving application stops reading: its processor, its disk, or a lock",
    )
}
