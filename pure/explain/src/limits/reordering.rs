//! Segments overtake each other and are taken for lost: most retransmissions were needless.
//!
//! Near miss: real loss with a few needless retransmissions, a path that died after it had reordered, and segments that
//! overtake each other now and then on their way through one machine.

use super::{Candidate, Key};
use crate::facts::{Facts, MUCH_REORDERING, QUEUE};
use model::finding::Confidence;

/// Share of retransmissions that the receiver had not needed.
const NEEDLESS: f64 = 0.5;
/// With fewer needless ones it is chance.
const FEWEST: u64 = 5;
/// If all retransmitted segments had been lost, loss would still allow this multiple of the rate: it does no harm.
const HARMLESS: f64 = 2.0;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let known = facts.known_needless();
    let needless = known as f64 / facts.retransmitted.max(1) as f64;
    let queues = facts.inflation().is_some_and(|i| i >= QUEUE);
    // Where the line is full all the same, it does no harm; where nothing passes, it is not why.
    let chance = known < FEWEST && !facts.reorders();
    if chance || (facts.is_flat() && queues) || facts.stood_still() {
        return None;
    }
    let allowed = facts.mathis().unwrap_or(0.0) / facts.inflation().unwrap_or(1.0);
    if allowed >= HARMLESS * facts.rate() {
        return None;
    }
    let mostly = needless >= NEEDLESS;
    if !mostly && facts.reordered < MUCH_REORDERING {
        return None;
    }
    let spurious = facts
        .evidence(Key::NeedlessRetransmissions, known)
        .of(facts.retransmitted);
    let events = facts.evidence(Key::ReorderingEvents, facts.reordered);
    let (spurious, events) = match mostly {
        true => (
            spurious.at_least(facts.retransmitted as f64 * NEEDLESS),
            events,
        ),
        false => (spurious, events.at_least(MUCH_REORDERING as f64)),
    };
    let evidence = vec![facts.retransmissions(), spurious, events];
    Some(
        Candidate::new(
            match (mostly && known >= FEWEST, facts.reordered > 0) {
                (true, true) => Confidence::Certain,
                (true, false) => Confidence::Likely,
                // There were real losses as well, and more of them.
                _ => Confidence::Possible,
            },
            evidence,
        )
        .advise("find the parallel links that one connection is spread over (bonding by packet, ECMP by packet)")
        .change(
            "sysctl:net.ipv4.tcp_reordering=30@sender",
            "wait longer before a segment is taken for lost",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::Source;
    use model::{Bytes, Nanos};

    #[test]
    fn a_few_needless_retransmissions_hold_nobody_up() {
        // Ten seconds of a loopback device: 112 of 370,000 segments.
        let mut facts = Facts::new(Source::Samples);
        (facts.retransmitted, facts.needless, facts.reordered) = (112, 108, 93);
        (facts.segments, facts.mss, facts.bytes) = (370_000, 65_483, Bytes(22 << 30));
        (facts.span, facts.min_rtt) = (Nanos::from_secs(10), Some(Nanos::from_micros(100)));
        assert!(fits(&facts).is_none());
        // The same on a path whose rate they do explain.
        (facts.mss, facts.min_rtt) = (1448, Some(Nanos::from_millis(100)));
        facts.bytes = Bytes(10 << 20);
        assert!(fits(&facts).is_some());
    }

    #[test]
    fn segments_that_the_path_duplicates_were_not_sent_again_for_nothing() {
        let mut facts = Facts::new(Source::Samples);
        (facts.segments, facts.mss, facts.bytes) = (17_698, 1448, Bytes(23 << 20));
        (facts.span, facts.min_rtt) = (Nanos::from_secs(12), Some(Nanos::from_millis(293)));
        (facts.retransmitted, facts.needless) = (10, 10);
        assert!(fits(&facts).is_some());
        facts.needless = 333;
        assert!(fits(&facts).is_none());
        facts.retransmitted = 0;
        assert!(fits(&facts).is_none());
    }

    #[test]
    fn needless_retransmissions_do_not_explain_a_path_that_died_later() {
        let mut facts = Facts::new(Source::Samples);
        (facts.retransmitted, facts.needless, facts.reordered) = (19, 15, 4);
        (facts.segments, facts.mss, facts.bytes) = (10_000, 1448, Bytes(10 << 20));
        facts.min_rtt = Some(Nanos::from_millis(20));
        (facts.span, facts.timeouts) = (Nanos::from_secs(5), 4);
        facts.stalled = Nanos::from_millis(300);
        assert!(fits(&facts).is_some());
        facts.stalled = Nanos::from_millis(3400);
        assert!(fits(&facts).is_none());
    }
}
