//! From captured packets: a machine for each connection that takes them as they come.
//!
//! Memory is that of the connections, not of the packets: some 300 bytes each, as many for each direction
//! with data, and what is in flight, all of it bounded ([`MOST_CONNECTIONS`]; `MOST_OUT`, `MOST_GAPS`,
//! `MOST_LOSSES`, `MOST_READINGS` a direction). Attempts that never carried data make room for others, so
//! that a flood of them hides nothing.

mod connection;
mod index;
mod stream;
#[cfg(test)]
mod tests;

use crate::facts::Facts;
use connection::Connection;
use index::Index;
use model::finding::Explanation;
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, SYN};
use model::{Bytes, Nanos};
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Connections that are followed at a time; packets of others are only counted.
const MOST_CONNECTIONS: usize = if cfg!(test) { 1 << 10 } else { 1 << 19 };

/// Follows the connections of a capture.
#[derive(Default)]
pub struct Observer {
    index: Index,
    connections: Vec<Connection>,
    /// Connections in the order in which they began, some with data by now.
    oldest: VecDeque<u32>,
    /// Attempts that made room.
    forgotten: u64,
    unfollowed: u64,
}

/// Both ends of a connection, the lesser first, as they compare quickly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ends {
    addresses: [[u64; 2]; 2],
    ports: [u16; 2],
}

impl Ends {
    /// Of a packet; and whether its sender is the second.
    fn of(packet: &Packet) -> (Ends, bool) {
        let words = |at: SocketAddr| match at.ip() {
            IpAddr::V4(ip) => [0, u64::from(u32::from(ip)) | 0xffff << 32],
            IpAddr::V6(ip) => {
                let ip = u128::from(ip);
                [(ip >> 64) as u64, ip as u64]
            }
        };
        let (from, to) = (words(packet.from), words(packet.to));
        let (p, q) = (packet.from.port(), packet.to.port());
        match (from, p) > (to, q) {
            false => (
                Ends {
                    addresses: [from, to],
                    ports: [p, q],
                },
                false,
            ),
            true => (
                Ends {
                    addresses: [to, from],
                    ports: [q, p],
                },
                true,
            ),
        }
    }

    fn end(&self, second: bool) -> SocketAddr {
        let n = usize::from(second);
        let [high, low] = self.addresses[n];
        let ip = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
        SocketAddr::new(ip.to_canonical(), self.ports[n])
    }
}

/// Figures of one direction of a connection, as they were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Sender.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// Data packets.
    pub packets: u64,
    /// Payload, retransmissions included.
    pub bytes: Bytes,
    /// Sequence space between the first and the last byte.
    pub range: u64,
    /// Data packets that were sent again.
    pub retransmitted: u64,
    /// Data packets that were overtaken.
    pub out_of_order: u64,
    /// Data packets that the capture holds twice.
    pub twice: u64,
    /// Bytes that were acknowledged and never seen: the capture lost them.
    pub unseen: Bytes,
    /// Shortest time from a data packet to its acknowledgement.
    pub min_rtt: Option<Nanos>,
    /// The mean of these times.
    pub mean_rtt: Option<Nanos>,
}

/// What a capture told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// In the order of their first packets.
    pub explanations: Vec<Explanation>,
    /// What is to be said of the capture as a whole.
    pub doubts: Vec<String>,
}

impl Observer {
    /// None yet.
    pub fn new() -> Observer {
        Observer::default()
    }

    /// Takes the next packet.
    pub fn see(&mut self, packet: &Packet) {
        let (ends, second) = Ends::of(packet);
        let mut known = self.index.get(&ends, &self.connections);
        if let Some(n) = known
            && packet.has(SYN)
            && !packet.has(ACK)
            && self.connections[n as usize].is_before(packet, second)
        {
            // The same ends again: a connection after another.
            self.index.remove(&ends, n);
            known = None;
        }
        match known.or_else(|| self.begin(ends, packet, second)) {
            Some(n) => self.connections[n as usize].see(packet, second),
            None => self.unfollowed += 1,
        }
    }

    /// Room for one more connection; none if all that are followed carry data.
    fn begin(&mut self, ends: Ends, packet: &Packet, second: bool) -> Option<u32> {
        let begun = Connection::new(ends, packet, second);
        let n = if self.connections.len() < MOST_CONNECTIONS {
            self.connections.push(begun);
            self.connections.len() as u32 - 1
        } else {
            let empty = loop {
                let n = self.oldest.pop_front()?;
                if !self.connections[n as usize].carries_data() {
                    break n;
                }
            };
            let old = std::mem::replace(&mut self.connections[empty as usize], begun);
            self.index.remove(&old.ends, empty);
            self.forgotten += 1;
            empty
        };
        self.oldest.push_back(n);
        self.index.insert(ends, n);
        Some(n)
    }

    /// The figures of every direction that carried data, in the order of their first packets.
    pub fn counted(&self) -> Vec<Counted> {
        self.connections
            .iter()
            .flat_map(Connection::counted)
            .collect()
    }

    /// Explains each direction that carried data; of a connection with much more one way, that way alone.
    /// Of more than `most` connections, those with the most bytes.
    pub fn explain(self, most: usize) -> Told {
        self.explain_with(most, &mut |_| ())
    }

    /// The same with what more is known of each direction.
    pub(crate) fn explain_with(self, most: usize, more: &mut dyn FnMut(&mut Facts)) -> Told {
        let mut doubts = Vec::new();
        let attempts = self
            .connections
            .iter()
            .filter(|c| c.is_unanswered())
            .count() as u64;
        if attempts + self.forgotten > 0 {
            doubts.push(format!(
                "{} attempts to connect came to nothing: not answered, or refused, or of no data",
                attempts + self.forgotten
            ));
        }
        if self.unfollowed > 0 {
            doubts.push(format!(
                "{} packets of more than {MOST_CONNECTIONS} connections were left out",
                self.unfollowed
            ));
        }
        let mut chosen: Vec<(u64, usize)> = (0..)
            .zip(&self.connections)
            .filter(|(_, c)| c.carries_data())
            .map(|(n, c)| (c.bytes(), n))
            .collect();
        if chosen.len() > most {
            chosen.select_nth_unstable_by_key(most, |(bytes, n)| (std::cmp::Reverse(*bytes), *n));
            let rest = chosen.split_off(most);
            doubts.push(format!(
                "{} more connections of {} together are not told (--json tells all)",
                rest.len(),
                rest.iter().map(|(bytes, _)| Bytes(*bytes)).sum::<Bytes>()
            ));
        }
        let chosen: BTreeSet<usize> = chosen.into_iter().map(|(_, n)| n).collect();
        let numbered = self.connections.into_iter().enumerate();
        let explanations = numbered
            .filter(|(n, _)| chosen.contains(n))
            .flat_map(|(_, connection)| connection.explain(more))
            .collect();
        Told {
            explanations,
            doubts,
        }
    }
}
