//! Nothing in TCP held the segments back: a processor, or who it is given to.
//!
//! Near miss: a busy host whose path is slower still. A busy processor alone proves nothing.

use super::{Candidate, Key};
use crate::facts::{Facts, Load};
use model::finding::{Confidence, Evidence};

/// A process so busy has no time left on the one processor that a stream can use.
const PROCESS_FULL: f64 = 0.9;
/// A host so busy has no processor left.
const HOST_FULL: f64 = 0.95;
/// And the transfer itself is a good part of that.
const WORKS: f64 = 0.25;
/// With more loss than this there is something else to look at first.
const MUCH_LOSS: f64 = 0.01;

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    Candidate::new(Confidence::Possible, evidence(facts)).advise(ADVICE)
}

const ADVICE: &str = "look at both hosts' processors: offloads (tso, gro), interrupts on one processor, other load, \
     larger segments";

/// An end is full of work, and no queue on the path shows that the network is.
pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let full = [facts.sender_load, facts.receiver_load]
        .into_iter()
        .flatten()
        .any(is_full);
    if !full || facts.loss_share() > MUCH_LOSS {
        return None;
    }
    Some(Candidate::new(Confidence::Possible, evidence(facts)).advise(ADVICE))
}

fn is_full(load: Load) -> bool {
    load.process >= process_full(load)
        || (load.process >= WORKS && load.host.is_some_and(|host| host >= HOST_FULL))
}

/// A processor for each stream, nearly.
fn process_full(load: Load) -> f64 {
    PROCESS_FULL * f64::from(load.streams.max(1))
}

fn evidence(facts: &Facts) -> Vec<Evidence> {
    [
        (Key::SenderProcessCpu, Key::SenderHostCpu, facts.sender_load),
        (
            Key::ReceiverProcessCpu,
            Key::ReceiverHostCpu,
            facts.receiver_load,
        ),
    ]
    .into_iter()
    .filter_map(|(process, host, load)| Some((process, host, load?)))
    .flat_map(|(process, host, load)| {
        let judged = |key, used: f64, full| facts.evidence(key, used).if_at_least(full);
        let of_host = load.host.map(|used| judged(host, used, HOST_FULL));
        [judged(process, load.process, process_full(load))]
            .into_iter()
            .chain(of_host)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::Source;

    #[test]
    fn a_processor_is_full_at_its_bounds_and_not_below() {
        let blamed = |process, host, streams, retransmitted| {
            let facts = Facts {
                sender_load: Some(Load {
                    process,
                    host,
                    streams,
                }),
                segments: 1000,
                retransmitted,
                ..Facts::new(Source::Samples)
            };
            fits(&facts).is_some()
        };
        assert!(blamed(PROCESS_FULL, None, 1, 0));
        assert!(!blamed(PROCESS_FULL - 0.01, None, 1, 0));
        // A processor for each stream.
        assert!(!blamed(PROCESS_FULL, None, 2, 0));
        assert!(blamed(2.0 * PROCESS_FULL, None, 2, 0));
        assert!(blamed(WORKS, Some(HOST_FULL), 1, 0));
        assert!(!blamed(WORKS - 0.01, Some(HOST_FULL), 1, 0));
        assert!(!blamed(WORKS, Some(HOST_FULL - 0.01), 1, 0));
        // Loss up to one in a hundred, and one more.
        assert!(blamed(1.0, None, 1, 10));
        assert!(!blamed(1.0, None, 1, 11));
    }
}
