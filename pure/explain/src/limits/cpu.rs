//! Nothing in TCP held the segments back: a processor, or who it is given to.
//!
//! Near miss: a busy host whose path is slower still. A busy processor alone proves nothing.

use super::Telling;
use crate::facts::{Facts, Load, percent};
use model::finding::{Confidence, Evidence, Limit};

/// A process so busy has no time left on the one processor that a stream can use.
const PROCESS_FULL: f64 = 0.9;
/// A host so busy has no processor left.
const HOST_FULL: f64 = 0.95;
/// And the transfer itself is a good part of that.
const WORKS: f64 = 0.25;
/// With more loss than this there is something else to look at first.
const MUCH_LOSS: f64 = 0.01;

pub(crate) fn tell(facts: &Facts) -> Telling {
    Telling::new(Confidence::Possible, evidence(facts)).advise(ADVICE)
}

const ADVICE: &str = "look at both hosts' processors: offloads (tso, gro), interrupts on one processor, other load, \
     larger segments";

/// An end is full of work, and no queue on the path shows that the network is.
pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let full = [facts.sender_load, facts.receiver_load]
        .into_iter()
        .flatten()
        .any(is_full);
    if !full || facts.loss_share() > MUCH_LOSS {
        return None;
    }
    let tells = "segments of half the size cost a processor nearly twice the work a byte, and the path some per cent";
    Some(
        Telling::new(Confidence::Possible, evidence(facts))
            .advise(ADVICE)
            .decide(
                &[Limit::Cpu, Limit::BottleneckRate],
                format!("mss={}", facts.mss / 2),
                tells,
            ),
    )
}

fn is_full(load: Load) -> bool {
    load.process >= PROCESS_FULL * f64::from(load.streams.max(1))
        || (load.process >= WORKS && load.host.is_some_and(|host| host >= HOST_FULL))
}

fn evidence(facts: &Facts) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    for (whose, load) in [
        ("sender", facts.sender_load),
        ("receiver", facts.receiver_load),
    ] {
        let Some(load) = load else { continue };
        let host = load.host.map_or_else(String::new, |host| {
            format!(", its host {} busy", percent(host))
        });
        evidence.push(
            Evidence::new(
                format!("processors of the {whose}"),
                format!("{:.2} used{host}", load.process),
            )
            .against("0.9 a stream, or 95 % of the host"),
        );
    }
    evidence
}
