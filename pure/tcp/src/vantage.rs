//! Where packets were observed: one answer for all connections of two hosts, voted by each of them.

use model::{Nanos, Vantage};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// An end whose round trip from the observer takes at most this part of the whole (1 / n), or what a host takes to
/// answer a SYN, is where the observer is.
const HERE: u64 = 10;
/// See [`HERE`].
const HOST: Nanos = Nanos::from_micros(20);
/// Addresses that are counted: the first ones. More are at no single host; they count as elsewhere.
const MOST_HOSTS: usize = 1 << 12;

/// Whether the observer is at the first host, by the RTTs from the observer to both hosts.
pub fn is_here(this: Nanos, other: Nanos) -> bool {
    this <= other && this <= HOST.max(Nanos((this + other).0 / HERE))
}

/// Round trips from the observer to both ends of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trips {
    /// To the sender and back: 0 at the sender, and where nothing is known.
    pub to_sender: Nanos,
    /// The same at the least: the round trip is known from the handshake, as a rule, and later ones can be shorter.
    pub least_to_sender: Nanos,
    /// To the receiver and back, where it is known.
    pub to_receiver: Option<Nanos>,
    /// The whole round trip; 0 where nothing is known.
    pub total: Nanos,
}

impl Trips {
    /// From an observer of this vantage to the sender and back.
    pub fn near(&self, vantage: Vantage) -> Nanos {
        match vantage {
            Vantage::AtSender | Vantage::Unknown => Nanos(0),
            Vantage::AtReceiver | Vantage::Between => self.to_sender,
        }
    }

    /// By what is known of sender and receiver.
    pub fn of([sender, receiver]: [Option<Nanos>; 2]) -> Trips {
        let (near, far) = (sender.unwrap_or_default(), receiver.unwrap_or_default());
        let here = receiver.is_some() && is_here(near, far);
        // At the sender an acknowledgement has arrived once it is seen.
        let to_sender = if here { Nanos(0) } else { near };
        Trips {
            to_sender,
            least_to_sender: Nanos(to_sender.0 - to_sender.0 / 10),
            to_receiver: receiver,
            total: near + far,
        }
    }
}

/// What connections say about where they were observed, host by host.
#[derive(Clone, Debug, Default)]
pub struct VantageVotes(BTreeMap<HostKey, HostVotes>);

/// An address as a number, that of IPv4 as IPv6 has it: compared at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostKey(pub(crate) u128);

impl From<IpAddr> for HostKey {
    fn from(host: IpAddr) -> HostKey {
        HostKey(match host {
            IpAddr::V4(host) => u128::from(u32::from(host)) | 0xffff << 32,
            IpAddr::V6(host) => host.into(),
        })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct HostVotes {
    here: u32,
    elsewhere: u32,
}

impl HostVotes {
    /// Of the votes, the share for here; none if most are for elsewhere.
    fn share(&self) -> Option<f64> {
        let all = self.here + self.elsewhere;
        (self.here > self.elsewhere).then(|| f64::from(self.here) / f64::from(all))
    }
}

impl VantageVotes {
    /// A connection votes, by the round trips from the observer to either end.
    pub fn take(&mut self, ends: [impl Into<HostKey>; 2], away: [Option<Nanos>; 2]) {
        let [Some(a), Some(b)] = away else {
            return;
        };
        if (a + b).0 == 0 {
            return;
        }
        for (end, here) in ends.into_iter().zip([is_here(a, b), is_here(b, a)]) {
            let end = end.into();
            let is_full = self.is_full();
            let tally = match self.0.get_mut(&end) {
                Some(tally) => tally,
                None if is_full => continue,
                None => self.0.entry(end).or_default(),
            };
            match here {
                true => tally.here = tally.here.saturating_add(1),
                false => tally.elsewhere = tally.elsewhere.saturating_add(1),
            }
        }
    }

    fn is_full(&self) -> bool {
        self.0.len() >= MOST_HOSTS
    }

    /// The observer of packets from `sender` to `receiver`.
    pub fn vantage(&self, sender: IpAddr, receiver: IpAddr) -> Vantage {
        let tallies = [sender, receiver].map(|host| self.0.get(&host.into()));
        let shares = tallies.map(|tally| tally.and_then(HostVotes::share));
        match shares {
            [Some(sender), Some(receiver)] if receiver > sender => Vantage::AtReceiver,
            [Some(_), _] => Vantage::AtSender,
            [None, Some(_)] => Vantage::AtReceiver,
            [None, None] if self.is_full() || tallies.iter().all(Option::is_some) => {
                Vantage::Between
            }
            [None, None] => Vantage::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    /// Votes of connections between two hosts, by microseconds to each.
    fn votes(all: &[(u8, u8, u64, u64)]) -> VantageVotes {
        let mut votes = VantageVotes::default();
        for (a, b, to_a, to_b) in all {
            let away = [to_a, to_b].map(|us| Some(Nanos::from_micros(*us)));
            votes.take([host(*a), host(*b)], away);
        }
        votes
    }

    #[test]
    fn all_connections_of_two_hosts_have_one_vantage() {
        // At host 1; one of its handshakes was answered late.
        let at_one = votes(&[
            (1, 2, 30, 900),
            (1, 2, 500, 900),
            (1, 3, 25, 4000),
            (4, 1, 700, 15),
        ]);
        for other in 2..=4 {
            let seen = |a, b| at_one.vantage(host(a), host(b));
            assert_eq!(seen(1, other), Vantage::AtSender);
            assert_eq!(seen(other, 1), Vantage::AtReceiver);
        }
        let between = votes(&[(1, 2, 400, 900), (3, 2, 700, 900)]);
        assert_eq!(between.vantage(host(3), host(2)), Vantage::Between);
        assert_eq!(between.vantage(host(3), host(9)), Vantage::Unknown);
    }

    #[test]
    fn a_host_answers_a_handshake_within_microseconds() {
        let is = |a, b| is_here(Nanos::from_micros(a), Nanos::from_micros(b));
        assert!(is(15, 60) && is(90, 1000));
        assert!(!is(30, 60) && !is(60, 15));
    }
}
