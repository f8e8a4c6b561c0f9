//! Where packets were observed: one answer for all connections of two hosts, voted by each of them.

use model::{Nanos, Vantage};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// An end whose round trip from the observer takes at most this part of the whole (1 / n), or what a host takes to
/// answer a SYN, is where the observer is.
const HERE: u64 = 10;
/// See [`HERE`].
const HOST: Nanos = Nanos::from_micros(20);
/// Addresses that are counted apart.
const MOST_HOSTS: usize = 1 << 16;

/// Whether an end is where the observer is, by the round trips to it and to the other end.
pub fn is_here(this: Nanos, other: Nanos) -> bool {
    this <= other && this <= HOST.max(Nanos((this + other).0 / HERE))
}

/// Round trips from the observer to both ends of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trips {
    /// To the sender and back: 0 at the sender, and where nothing is known.
    pub to_sender: Nanos,
    /// To the receiver and back, where it is known.
    pub to_receiver: Option<Nanos>,
    /// The whole round trip; 0 where nothing is known.
    pub total: Nanos,
}

impl Trips {
    /// By what is known of sender and receiver.
    pub fn of([sender, receiver]: [Option<Nanos>; 2]) -> Trips {
        let (near, far) = (sender.unwrap_or_default(), receiver.unwrap_or_default());
        let here = receiver.is_some() && is_here(near, far);
        Trips {
            // At the sender an acknowledgement has arrived once it is seen.
            to_sender: if here { Nanos(0) } else { near },
            to_receiver: receiver,
            total: near + far,
        }
    }
}

/// What connections say about where they were observed, host by host.
#[derive(Clone, Debug, Default)]
pub struct Votes(BTreeMap<IpAddr, Tally>);

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    here: u32,
    elsewhere: u32,
}

impl Tally {
    /// Of the votes, the share for here; none if most are for elsewhere.
    fn share(&self) -> Option<f64> {
        let all = self.here + self.elsewhere;
        (self.here > self.elsewhere).then(|| f64::from(self.here) / f64::from(all))
    }
}

impl Votes {
    /// A connection votes, by the round trips from the observer to either end.
    pub fn take(&mut self, ends: [IpAddr; 2], away: [Option<Nanos>; 2]) {
        let [Some(a), Some(b)] = away else {
            return;
        };
        if (a + b).0 == 0 {
            return;
        }
        for (end, here) in ends.into_iter().zip([is_here(a, b), is_here(b, a)]) {
            if self.0.len() >= MOST_HOSTS && !self.0.contains_key(&end) {
                continue;
            }
            let tally = self.0.entry(end).or_default();
            match here {
                true => tally.here = tally.here.saturating_add(1),
                false => tally.elsewhere = tally.elsewhere.saturating_add(1),
            }
        }
    }

    /// The observer of packets from `sender` to `receiver`.
    pub fn vantage(&self, sender: IpAddr, receiver: IpAddr) -> Vantage {
        let tallies = [sender, receiver].map(|host| self.0.get(&host));
        let shares = tallies.map(|tally| tally.and_then(Tally::share));
        match shares {
            [Some(sender), Some(receiver)] if receiver > sender => Vantage::AtReceiver,
            [Some(_), _] => Vantage::AtSender,
            [None, Some(_)] => Vantage::AtReceiver,
            [None, None] if tallies.iter().all(Option::is_some) => Vantage::Between,
            [None, None] => Vantage::Unknown,
        }
    }
}
