//! Segments overtake each other and are taken for lost: most of what was sent again had arrived.
//!
//! Near miss: real loss with a few needless retransmissions, and a path that died after it had reordered.

use super::{Telling, bottleneck_rate};
use crate::facts::{Facts, percent};
use model::finding::{Confidence, Evidence};

/// Share of retransmissions that the receiver had not needed.
const NEEDLESS: f64 = 0.5;
/// With fewer needless ones it is chance.
const FEWEST: u64 = 5;
/// A path that was seen to reorder so often reorders.
const MUCH: u64 = 20;

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let needless = facts.needless as f64 / facts.retransmitted.max(1) as f64;
    let queues = facts
        .inflation()
        .is_some_and(|i| i >= bottleneck_rate::QUEUE);
    // Where the line is full all the same, it does no harm; where nothing passes, it is not why.
    if facts.needless < FEWEST || (facts.is_flat() && queues) || facts.stood_still() {
        return None;
    }
    let mostly = needless >= NEEDLESS;
    if !mostly && facts.reordered < MUCH {
        return None;
    }
    let evidence = vec![
        Evidence::new("segments sent again", facts.retransmitted),
        Evidence::new(
            "of these, the receiver had them already (DSACK)",
            percent(needless),
        )
        .against("50 % or more"),
        Evidence::new("times that the sender saw reordering", facts.reordered),
    ];
    Some(
        Telling::new(
            match (mostly, facts.reordered > 0) {
                (true, true) => Confidence::Sure,
                (true, false) => Confidence::Likely,
                // There were real losses as well, and more of them.
                _ => Confidence::Open,
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
    use model::Nanos;
    use model::finding::Source;

    #[test]
    fn needless_retransmissions_do_not_explain_a_path_that_died_later() {
        let mut facts = Facts::new(Source::Samples);
        (facts.retransmitted, facts.needless, facts.reordered) = (19, 15, 4);
        (facts.span, facts.timeouts) = (Nanos::from_secs(5), 4);
        facts.stalled = Nanos::from_millis(300);
        assert!(fits(&facts).is_some());
        facts.stalled = Nanos::from_millis(3400);
        assert!(fits(&facts).is_none());
    }
}
