//! Segments overtake each other and are taken for lost: most of what was sent again had arrived.
//!
//! Near miss: real loss with a few needless retransmissions.

use super::Telling;
use crate::facts::{Facts, percent};
use model::finding::{Confidence, Evidence};

/// Share of retransmissions that the receiver had not needed.
const NEEDLESS: f64 = 0.5;

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let needless = facts.needless as f64 / facts.retransmitted.max(1) as f64;
    if facts.retransmitted < 5 || needless < NEEDLESS {
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
    let sure = facts.reordered > 0;
    Some(
        Telling::new(
            if sure { Confidence::Sure } else { Confidence::Likely },
            evidence,
        )
        .advise("find the parallel links that one connection is spread over (bonding by packet, ECMP by packet)")
        .change(
            "sysctl:net.ipv4.tcp_reordering=30@sender",
            "wait longer before a segment is taken for lost",
        ),
    )
}
