//! From captured packets: a machine for each connection that takes them as they come.
//!
//! Memory is that of the connections that go on, not of the packets: an attempt is its SYN as long as
//! nothing else came of it; a connection takes some 300 bytes, as many for each direction with data, and
//! what is in flight, all of it bounded ([`MOST_CONNECTIONS`]; `MOST_OUT`, `MOST_GAPS`, `MOST_LOSSES`,
//! `MOST_READINGS` a direction). Connections that are over make room, but for those that are to be told.
//! Attempts that never carried data do as well, so that a flood of them hides nothing.

mod connection;
mod index;
mod stream;
#[cfg(test)]
mod tests;

use crate::facts::Facts;
use connection::{Asked, Connection};
use index::Index;
use model::finding::Explanation;
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, SYN};
use model::{Bytes, Nanos};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddr};

/// Connections that are followed at a time, packets of others are only counted; and those that are told.
const MOST_CONNECTIONS: usize = if cfg!(test) { 1 << 10 } else { 1 << 19 };
/// Connections that are over and still known, for packets that come late.
const MOST_OVER: usize = if cfg!(test) { 1 << 3 } else { 1 << 10 };

/// Follows the connections of a capture.
pub struct Observer {
    index: Index,
    places: Vec<Place>,
    free: Vec<u32>,
    /// The place of the packet before: that of the next one most often.
    recent: u32,
    /// Connections in the order in which they began, some with data by now, or gone.
    oldest: VecDeque<Name>,
    /// Connections in the order in which they came to an end.
    over: VecDeque<Name>,
    begun: u32,
    /// Of connections that are over, those to be told; the first is the next to be left out: with the
    /// fewest bytes, of as many the one that began last.
    kept: BTreeMap<(u64, Reverse<u32>), (Ends, Box<Connection>)>,
    most: usize,
    /// A forgotten one: the next takes its memory.
    spare: Option<Box<Connection>>,
    /// Connections that were left out, and their bytes.
    left_out: (u64, Bytes),
    /// Those that came to nothing, and are not known any more.
    attempts: u64,
    unfollowed: u64,
}

/// What is followed in one place: as much as a processor fetches at once.
struct Place {
    ends: Ends,
    number: u32,
    course: Course,
}

enum Course {
    Free,
    /// A SYN, and nothing came of it so far.
    Asked(Asked),
    Goes(Box<Connection>),
}

/// A connection: places are used again, numbers are not.
#[derive(Clone, Copy)]
struct Name {
    place: u32,
    number: u32,
}

/// Both ends of a connection, the lesser first. Addresses are those of IPv6, each in two words. Packed, so
/// that a place is no larger than it is.
#[derive(Clone, Copy, Debug, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
struct Ends {
    addresses: [[u64; 2]; 2],
    /// The upper half is the first's.
    ports: u32,
}

impl PartialEq for Ends {
    /// Word by word: more at once than was written at once waits until it is in the cache.
    #[inline]
    fn eq(&self, other: &Ends) -> bool {
        let ([[a, b], [c, d]], [[e, f], [g, h]]) = (self.addresses, other.addresses);
        b == f && self.ports == other.ports && d == h && a == e && c == g
    }
}

impl Ends {
    /// Of a packet; and whether its sender is the second.
    fn of(packet: &Packet) -> (Ends, bool) {
        let address = |at: &SocketAddr| match at {
            SocketAddr::V4(at) => [0, u64::from(u32::from(*at.ip())) | 0xffff << 32],
            SocketAddr::V6(at) => {
                let all = u128::from(*at.ip());
                [(all >> 64) as u64, all as u64]
            }
        };
        let (from, to) = (address(&packet.from), address(&packet.to));
        let (p, q) = (u32::from(packet.from.port()), u32::from(packet.to.port()));
        // Ports first: they differ nearly always.
        let second = if p == q { from > to } else { p > q };
        let (addresses, ports) = match second {
            false => ([from, to], p << 16 | q),
            true => ([to, from], q << 16 | p),
        };
        (Ends { addresses, ports }, second)
    }

    fn end(&self, second: bool) -> SocketAddr {
        let ([high, low], port) = match second {
            false => (self.addresses[0], self.ports >> 16),
            true => (self.addresses[1], self.ports),
        };
        let ip = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
        SocketAddr::new(ip.to_canonical(), port as u16)
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

impl Default for Observer {
    fn default() -> Observer {
        Observer::of_most(usize::MAX)
    }
}

impl Observer {
    /// One that tells all connections.
    pub fn new() -> Observer {
        Observer::default()
    }

    /// One that tells at most so many, those with the most bytes.
    pub fn of_most(most: usize) -> Observer {
        Observer {
            index: Index::default(),
            places: Vec::new(),
            free: Vec::new(),
            recent: 0,
            oldest: VecDeque::new(),
            over: VecDeque::new(),
            begun: 0,
            kept: BTreeMap::new(),
            spare: None,
            most: most.min(MOST_CONNECTIONS),
            left_out: (0, Bytes(0)),
            attempts: 0,
            unfollowed: 0,
        }
    }

    /// Takes the next packet.
    pub fn see(&mut self, packet: &Packet) {
        let (ends, second) = Ends::of(packet);
        let mut known = match self.places.get(self.recent as usize) {
            Some(place) if place.ends == ends && !place.is_free() => Some(self.recent),
            _ => self.index.get(ends, &self.places),
        };
        if let Some(n) = known
            && packet.flags & (SYN | ACK) == SYN
            && self.places[n as usize].is_before(packet, second)
        {
            // The same ends again: a connection after another.
            self.index.remove(&ends, n);
            self.end(n);
            known = None;
        }
        match known.or_else(|| self.begin(ends)) {
            Some(n) => {
                self.recent = n;
                if self.places[n as usize].see(packet, second, &mut self.spare) {
                    self.end(n);
                }
            }
            None => self.unfollowed += 1,
        }
    }

    /// A place for one more connection; none if all that are followed carry data.
    fn begin(&mut self, ends: Ends) -> Option<u32> {
        let n = match self.free.pop() {
            Some(n) => n,
            None if self.places.len() < MOST_CONNECTIONS => {
                self.places.push(Place {
                    ends,
                    number: 0,
                    course: Course::Free,
                });
                self.places.len() as u32 - 1
            }
            None => loop {
                let name = self.oldest.pop_front()?;
                let place = &self.places[name.place as usize];
                if place.makes_room(name) {
                    self.index.remove(&place.ends, name.place);
                    self.attempts += 1;
                    break name.place;
                }
            },
        };
        self.begun = self.begun.wrapping_add(1);
        self.places[n as usize] = Place {
            ends,
            number: self.begun,
            course: Course::Free,
        };
        self.index.insert(ends, n);
        if self.oldest.len() >= 2 * self.places.len() {
            let places = &self.places;
            self.oldest
                .retain(|name| places[name.place as usize].makes_room(*name));
        }
        self.oldest.push_back(Name {
            place: n,
            number: self.begun,
        });
        Some(n)
    }

    /// A connection is over: it is forgotten when enough others are over as well.
    fn end(&mut self, n: u32) {
        self.over.push_back(Name {
            place: n,
            number: self.places[n as usize].number,
        });
        if self.over.len() <= MOST_OVER {
            return;
        }
        let Some(first) = self.over.pop_front() else {
            return;
        };
        let place = &mut self.places[first.place as usize];
        if place.number == first.number && !place.is_free() {
            let gone = std::mem::replace(&mut place.course, Course::Free);
            let ends = place.ends;
            self.index.remove(&ends, first.place);
            self.free.push(first.place);
            self.keep(ends, first.number, gone);
        }
    }

    /// A connection is to be told, if no more than [`Observer::most`] have more bytes.
    fn keep(&mut self, ends: Ends, number: u32, course: Course) {
        let mut connection = match course {
            Course::Goes(connection) if connection.carries_data() => connection,
            Course::Goes(connection) => {
                self.attempts += u64::from(connection.is_unanswered());
                self.spare = Some(connection);
                return;
            }
            Course::Asked(_) => {
                self.attempts += 1;
                return;
            }
            Course::Free => return,
        };
        let key = (connection.bytes(), Reverse(number));
        let is_full = self.kept.len() >= self.most;
        let least = self.kept.first_key_value();
        let is_less = least.is_none_or(|(least, _)| key < *least);
        if is_full && is_less {
            self.leave_out(connection);
            return;
        }
        connection.slim();
        self.kept.insert(key, (ends, connection));
        if is_full && let Some((_, (_, least))) = self.kept.pop_first() {
            self.leave_out(least);
        }
    }

    fn leave_out(&mut self, connection: Box<Connection>) {
        self.left_out.0 += 1;
        self.left_out.1 += Bytes(connection.bytes());
        self.spare = Some(connection);
    }

    /// The figures of every direction that carried data, in the order of their first packets.
    pub fn counted(&self) -> Vec<Counted> {
        let kept = self.kept.iter().map(|((_, n), (e, c))| (n.0, e, &**c));
        let going = self.places.iter().filter_map(|place| match &place.course {
            Course::Goes(connection) => Some((place.number, &place.ends, &**connection)),
            _ => None,
        });
        let mut all: Vec<_> = kept.chain(going).collect();
        all.sort_unstable_by_key(|(number, ..)| *number);
        all.into_iter().flat_map(|(_, e, c)| c.counted(e)).collect()
    }

    /// Explains each direction that carried data; of a connection with much more one way, that way alone.
    pub fn explain(self) -> Told {
        self.explain_with(&mut |_| ())
    }

    /// The same with what more is known of each direction.
    pub(crate) fn explain_with(mut self, more: &mut dyn FnMut(&mut Facts)) -> Told {
        for place in std::mem::take(&mut self.places) {
            self.keep(place.ends, place.number, place.course);
        }
        let mut doubts = Vec::new();
        if self.attempts > 0 {
            doubts.push(format!(
                "{} attempts to connect came to nothing: not answered, or refused, or of no data",
                self.attempts
            ));
        }
        if self.unfollowed > 0 {
            doubts.push(format!(
                "{} packets of more than {MOST_CONNECTIONS} connections were left out",
                self.unfollowed
            ));
        }
        let (count, bytes) = self.left_out;
        if count > 0 {
            let remedy = match self.most {
                MOST_CONNECTIONS => "",
                _ => " (--json tells all)",
            };
            doubts.push(format!(
                "{count} more connections of {bytes} together are not told{remedy}"
            ));
        }
        let mut kept: Vec<_> = self.kept.into_iter().collect();
        kept.sort_unstable_by_key(|((_, number), _)| number.0);
        let explanations = kept.into_iter();
        let explanations = explanations.flat_map(|(_, (ends, c))| c.explain(&ends, more));
        Told {
            explanations: explanations.collect(),
            doubts,
        }
    }
}

impl Place {
    fn is_free(&self) -> bool {
        matches!(self.course, Course::Free)
    }

    /// Takes a packet. Whether the connection is over with it.
    fn see(&mut self, packet: &Packet, second: bool, spare: &mut Option<Box<Connection>>) -> bool {
        let begun = match &mut self.course {
            Course::Goes(connection) => return connection.see(packet, second),
            Course::Asked(asked) => asked.goes_on(packet, second, spare.take()),
            Course::Free => match Asked::of(packet, second) {
                Some(asked) => {
                    self.course = Course::Asked(asked);
                    return false;
                }
                None => Connection::begin(packet, second, spare.take()),
            },
        };
        self.course = Course::Goes(begun);
        self.see(packet, second, spare)
    }

    /// A SYN of the same ends belongs to another connection, after this one.
    fn is_before(&self, syn: &Packet, second: bool) -> bool {
        match &self.course {
            Course::Goes(connection) => connection.is_before(syn, second),
            Course::Asked(asked) => asked.is_before(syn, second),
            Course::Free => false,
        }
    }

    /// A connection that is still here may be forgotten for another.
    fn makes_room(&self, name: Name) -> bool {
        let empty = match &self.course {
            Course::Free => false,
            Course::Asked(_) => true,
            Course::Goes(connection) => !connection.carries_data(),
        };
        empty && self.number == name.number
    }
}
