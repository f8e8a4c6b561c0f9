//! Whether what was lost both ways met on the line.
//!
//! Where one end of a cable runs half duplex and the other does not, a segment and an acknowledgement that cross in the
//! cable are both lost. Where it is nobody says, but what met there had left the two ends with the same distance in time
//! always.

use super::{First, Line, Place, Tape};
use crate::facts::Collisions;
use model::Nanos;
use std::collections::BTreeMap;

/// What would have crossed within this met: some frames of 100 Mbit/s, above which nothing runs half duplex, and what
/// hosts are late.
const NEAR: i64 = 500_000;
/// Losses of a direction that are compared: the first ones.
const MOST: usize = 1024;

/// From what passed both ends; the receiver's clock less the sender's, and the shortest time one way.
pub(super) fn of(
    (at_sender, sender): (&Tape, &Line),
    (at_receiver, receiver): (&Tape, &Line),
    base: u32,
    clock: i64,
    way: i64,
) -> Option<Collisions> {
    let lost = lost(sender, receiver, clock, way);
    let acks: Vec<(i64, u64)> = (at_receiver.pure_acks(0, base).into_iter())
        .map(|(at, ack)| (at.0 as i64 - clock, ack))
        .collect();
    let gone = gone(&acks, &at_sender.pure_acks(1, base), way);
    let apart = apart(&lost, &gone, way)?;
    let near = |all: &[i64], at: i64| {
        let next = all.partition_point(|other| *other < at - NEAR / 2);
        all.get(next).is_some_and(|other| *other <= at + NEAR / 2)
    };
    let share = |of: &[i64], apart: i64, all: &[i64]| {
        let met = of.iter().filter(|at| near(all, **at - apart)).count();
        met as f64 / of.len().max(1) as f64
    };
    let came = receiver.data.iter().map(|(at, ..)| at.0 as i64 - clock);
    let came: Vec<i64> = came.collect();
    let acks: Vec<i64> = acks.iter().map(|(at, _)| *at).collect();
    Some(Collisions {
        lost: lost.len().min(gone.len()),
        met: share(&lost, apart, &gone).min(share(&gone, -apart, &lost)),
        crossed: share(&came, apart, &acks),
    })
}

/// When data would have arrived of which this copy never did: another was sent, and the first that came is not older. A
/// segment comes no earlier than what left before it.
fn lost(sender: &Line, receiver: &Line, clock: i64, way: i64) -> Vec<i64> {
    let mut arrived = First::default();
    for (at, from, to) in &receiver.data {
        arrived.add(*from, *to, *at);
    }
    let mut left = First::default();
    let mut again = First::default();
    let came = |byte: u64| Some(arrived.of(byte)?.0 as i64 - clock);
    let mut lost = Vec::new();
    for (at, from, to) in &sender.data {
        if left.add(*from, *to, *at) == to - from {
            continue;
        }
        let earlier = again.of(*from);
        let before = earlier.or_else(|| left.of(*from));
        let last = from.checked_sub(1).filter(|b| again.of(*b).is_none());
        again.add(*from, *to, *at);
        if came(*from).is_none_or(|came| came >= at.0 as i64 + way / 2) {
            let ahead = last.and_then(came).filter(|_| earlier.is_none());
            lost.extend(before.map(|at| (at.0 as i64 + way).max(ahead.unwrap_or(0))));
        }
    }
    lost.sort_unstable();
    lost.truncate(MOST);
    lost
}

/// When acknowledgements left that were never heard. Of several with the same number each that was heard is the
/// latest that can have been.
fn gone(sent: &[(i64, u64)], heard: &[(Nanos, u64)], way: i64) -> Vec<i64> {
    let mut by_number: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    for (at, ack) in heard {
        by_number.entry(*ack).or_default().push(at.0 as i64);
    }
    let last = heard.last().map_or(0, |(at, _)| at.0 as i64 - way);
    let mut gone = Vec::new();
    for (at, ack) in sent.iter().rev() {
        let heard = by_number.entry(*ack).or_default();
        match heard.last() {
            Some(came) if *came >= at + way / 2 => {
                heard.pop();
            }
            _ if *at < last => gone.push(*at),
            _ => {}
        }
    }
    gone.reverse();
    gone.truncate(MOST);
    gone
}

/// By how much later lost segments would have arrived than lost acknowledgements had left: what most pairs have, if they
/// met between the ends.
fn apart(lost: &[i64], gone: &[i64], way: i64) -> Option<i64> {
    let reach = 2 * way + NEAR;
    let mut pairs: Vec<i64> = Vec::new();
    for at in lost {
        let first = gone.partition_point(|other| *other < at - reach);
        let others = gone[first..].iter().take_while(|o| **o <= at + NEAR);
        pairs.extend(others.map(|other| at - other));
    }
    pairs.sort_unstable();
    let within = |first: usize| pairs.partition_point(|p| *p <= pairs[first] + NEAR) - first;
    let first = (0..pairs.len()).max_by_key(|n| within(*n))?;
    Some(pairs[first] + NEAR / 2)
}

impl Tape {
    /// The acknowledgements without data of a half, as places in what the other sent.
    fn pure_acks(&self, half: usize, base: u32) -> Vec<(Nanos, u64)> {
        let mut place = Place::new(base);
        let pure = self.halves[half].passes.iter().filter(|p| p.payload == 0);
        pure.filter_map(|p| Some((p.at, place.of(p.ack?))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pass;
    use super::*;
    use std::net::SocketAddr;

    const MSS: u64 = 1000;
    const WAY: i64 = 10_000_000;
    const CLOCK: i64 = 700_000_000;

    /// A segment every 5 ms, sent again 60 ms later if it was lost, and of every other the acknowledgement, which leaves
    /// the receiver `apart` before the next segment comes there; which of either are lost, by their numbers.
    fn seen(
        apart: u64,
        data: impl Fn(u64) -> bool,
        acks: impl Fn(u64) -> bool,
    ) -> Option<Collisions> {
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let (mut at_sender, mut at_receiver) =
            (Tape::new(end(1), end(2)), Tape::new(end(2), end(1)));
        let (mut sender, mut receiver) = (Line::default(), Line::default());
        let there = |at: u64| Nanos(at + (WAY + CLOCK) as u64);
        for n in 0..1000u64 {
            let (at, from) = (1_000_000_000 + n * 5_000_000, n * MSS);
            sender.data.push((Nanos(at), from, from + MSS));
            match data(n) {
                true => {
                    let at = at + 60_000_000;
                    sender.data.push((Nanos(at), from, from + MSS));
                    receiver.data.push((there(at), from, from + MSS));
                }
                false => receiver.data.push((there(at), from, from + MSS)),
            }
            if n % 2 == 0 {
                continue;
            }
            let pass = |at| Pass {
                at,
                seq: 0,
                payload: 0,
                ack: Some((n * MSS) as u32),
            };
            let left = there(at - apart);
            at_receiver.halves[0].passes.push(pass(left));
            if !acks(n) {
                at_sender.halves[1]
                    .passes
                    .push(pass(Nanos((left.0 as i64 - CLOCK + WAY) as u64)));
            }
        }
        for line in [&mut sender, &mut receiver] {
            line.data.sort_by_key(|(at, ..)| *at);
        }
        of(
            (&at_sender, &sender),
            (&at_receiver, &receiver),
            0,
            CLOCK,
            WAY,
        )
    }

    #[test]
    fn losses_that_met_in_one_place_are_collisions() {
        for apart in [0, 3_000_000, 18_000_000] {
            // Of every other segment that meets an acknowledgement every seventh.
            let met = |n| n % 14 == 1;
            let seen = seen(apart, met, met).unwrap();
            assert_eq!((seen.lost, seen.met), (72, 1.0), "{apart}");
            assert!((0.45..0.55).contains(&seen.crossed), "{seen:?}");
            assert!(seen.are_seen());
        }
    }

    #[test]
    fn losses_of_either_direction_alone_are_none() {
        let random = |n: u64, salt: u64| {
            let mixed = (n + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 60 == 0
        };
        let both = seen(3_000_000, |n| random(n, 1), |n| random(n, 500)).unwrap();
        assert!(both.lost >= 20 && both.met < 0.3, "{both:?}");
        assert_eq!(seen(3_000_000, |n| n % 14 == 1, |_| false), None);
    }

    #[test]
    fn what_strikes_both_ways_at_once_is_not_taken_for_collisions() {
        // Noise that takes every eighth segment, and the acknowledgement that is there, if there is one.
        let noise = |n| n % 8 < 1 || n % 16 == 1;
        let seen = seen(0, noise, |n| n % 16 == 1).unwrap();
        assert!(seen.lost >= 30 && !seen.are_seen(), "{seen:?}");
    }
}
