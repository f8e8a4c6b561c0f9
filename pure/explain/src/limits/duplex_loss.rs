//! One device runs half duplex and its link partner full duplex: the partner sends at any time, and frames that collide
//! are lost.
//!
//! Near misses: random loss on a full-duplex link, of which no device says anything; collisions that are not late, as
//! any half-duplex line has them without a loss; damaged frames, which a bad cable makes as well.

use super::{Candidate, Key};
use crate::facts::Facts;
use model::finding::Confidence;

/// Least share of the retransmissions that arrived damaged if damage is the reason.
const OF_THE_LOST: f64 = 0.5;

const AGREE: &str = "compare speed and duplex at both ends of each cable (ethtool DEVICE): let both negotiate (ethtool \
                     -s DEVICE autoneg on), or set both alike";

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    if !facts.loss_hurts() {
        return None;
    }
    let mut evidence = vec![facts.retransmissions()];
    let keys = [
        (Key::SenderLateCollisions, Key::SenderDamagedFrames),
        (Key::ReceiverLateCollisions, Key::ReceiverDamagedFrames),
    ];
    let ends = keys.into_iter().zip(&facts.line);
    let all = ends.filter_map(|(keys, line)| Some((keys, line.as_ref()?)));
    let (mut late, mut damaged) = (0, 0);
    for ((collided, broken), line) in all {
        for (key, count) in [(collided, line.late_collisions), (broken, line.damaged)] {
            if count > 0 {
                evidence.push(facts.evidence(key, count).about(line.device.as_str()));
            }
        }
        late += line.late_collisions;
        damaged += line.damaged;
    }
    if let Some(device) = &facts.half_duplex {
        evidence.push(facts.evidence(Key::Duplex, "half").about(device.as_str()));
    }
    let many = damaged as f64 >= facts.retransmitted as f64 * OF_THE_LOST;
    let confidence = match facts.half_duplex.is_some() || late > 0 {
        true => Confidence::Certain,
        // The end that does not listen sees nothing but broken frames. So does one at a bad cable.
        false if many => Confidence::Possible,
        false => return None,
    };
    Some(Candidate::new(confidence, evidence).advise(AGREE).ranked(2))
}
