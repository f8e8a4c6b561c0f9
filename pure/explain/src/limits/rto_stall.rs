//! The retransmission timer fired, or what it began is not over.
//!
//! Near miss: fast recovery, which needs no timer.

use super::{Candidate, Key};
use crate::facts::Facts;
use crate::sender_state::SenderState;
use model::finding::Confidence;
use model::segment::ca_state;

pub(crate) fn owns(state: &SenderState) -> bool {
    state.ca_state == ca_state::LOSS || state.backed_off
}

/// The same segment lost so often in a row is no chance: nothing passed at all.
const DEAD: u32 = 4;

/// A good part of the time the connection stood still, and something else made that again and again.
pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let again = facts.stood_still() && !facts.has_outage() && !super::is_black_hole(facts);
    again.then(|| weighed(facts))
}

/// Nothing passed for a while.
pub(crate) fn fits_outage(facts: &Facts) -> Option<Candidate> {
    facts.has_outage().then(|| weighed(facts))
}

fn weighed(facts: &Facts) -> Candidate {
    Candidate {
        confidence: match facts.backoffs {
            // Inferred from silence, behind which a black hole can be as well.
            _ if facts.undelivered.is_some() => Confidence::Possible,
            // What loses at other times as well may have lost these.
            DEAD.. if !facts.loses_besides() => Confidence::Certain,
            DEAD.. => Confidence::Possible,
            _ if facts.stood_still() && facts.timed_out_once() => Confidence::Likely,
            _ => Confidence::Possible,
        },
        ..candidate(facts)
    }
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    let mut evidence = vec![
        facts.evidence(Key::RetransmissionTimeouts, facts.timeouts),
        facts.retransmissions(),
    ];
    if facts.backoffs > 0 {
        let row = facts.evidence(Key::ConsecutiveTimeouts, facts.backoffs);
        evidence.push(row.if_at_least(DEAD.into()));
    }
    Candidate::new(Confidence::Certain, evidence).advise(
        "look for what loses whole windows or the last segments of a transfer: a timeout means that \
         too few acknowledgements came back to repair the loss at once",
    )
}
