//! The connections of a capture by their addresses: bounds, eviction, ports that are used again.
//!
//! Memory is that of the connections that go on, not of the packets: an attempt is its SYN as long as nothing else
//! came of it. Connections that are over make room. Attempts that never carried data do as well, so that a flood of
//! them hides nothing.

mod index;
#[cfg(test)]
mod tests;

use crate::connection::{Passed, PendingSyn, TcpConnection};
use crate::stream::StreamView;
use crate::vantage::HostKey;
use index::TableIndex;
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, SYN};
use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr};

/// How many connections are followed at a time.
#[derive(Clone, Copy, Debug)]
pub struct TableBounds {
    /// Packets of others are only counted.
    pub connections: usize,
    /// Connections that are over and still known, for packets that come late; at least 1.
    pub over: usize,
}

/// Follows connections, and keeps a view `C` of each of them and a view `S` of each direction with data.
pub struct ConnectionTable<C, S> {
    bounds: TableBounds,
    index: TableIndex,
    slots: Vec<TableSlot<C, S>>,
    free: Vec<u32>,
    recent: RecentSlot,
    /// Connections in the order in which they began, some with data by now, or gone.
    oldest: VecDeque<Name>,
    /// Connections in the order in which they came to an end.
    over: VecDeque<Name>,
    begun: u32,
    /// A forgotten one: the next takes its memory.
    spare: Option<Box<TcpConnection<C, S>>>,
    attempts: u64,
    unfollowed: u64,
}

/// The slot of the packet before: that of the next one most often. It is free only while another packet is taken.
#[derive(Default)]
struct RecentSlot {
    slot: u32,
    /// Sender and receiver of the packet, and whether the sender is the second of the ends; none without a slot.
    ends: Option<(SocketAddr, SocketAddr, bool)>,
}

impl RecentSlot {
    /// Whether the sender of a packet is the second of the ends, if it has the same.
    #[inline]
    fn sender(&self, packet: &Packet) -> Option<bool> {
        let (from, to, second) = self.ends.as_ref()?;
        match () {
            () if packet.from == *from && packet.to == *to => Some(*second),
            () if packet.from == *to && packet.to == *from => Some(!second),
            () => None,
        }
    }
}

/// A connection that is forgotten.
pub struct ForgottenConnection<C, S> {
    /// Its addresses.
    pub ends: AddressPair,
    /// Connections are numbered in the order of their first packets.
    pub number: u32,
    /// What is known of it.
    pub connection: Box<TcpConnection<C, S>>,
}

/// Gets each connection with data that is forgotten, and may give its memory back.
pub type Forget<'a, C, S> =
    dyn FnMut(ForgottenConnection<C, S>) -> Option<Box<TcpConnection<C, S>>> + 'a;

/// What is followed in one slot: as much as a processor fetches at once.
struct TableSlot<C, S> {
    ends: AddressPair,
    number: u32,
    course: SlotState<C, S>,
}

enum SlotState<C, S> {
    Free,
    /// A SYN, and nothing came of it so far.
    Asked(PendingSyn),
    Goes(Box<TcpConnection<C, S>>),
}

/// A connection: slots are used again, numbers are not.
#[derive(Clone, Copy)]
struct Name {
    slot: u32,
    number: u32,
}

/// Both ends of a connection, the lesser first. Addresses are those of IPv6, each in two words. Packed, so that a slot
/// is no larger than it is.
#[derive(Clone, Copy, Debug, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
pub struct AddressPair {
    addresses: [[u64; 2]; 2],
    /// The upper half is the first's.
    ports: u32,
}

impl PartialEq for AddressPair {
    /// Word by word: more at once than was written at once waits until it is in the cache.
    #[inline]
    fn eq(&self, other: &AddressPair) -> bool {
        let ([[a, b], [c, d]], [[e, f], [g, h]]) = (self.addresses, other.addresses);
        b == f && self.ports == other.ports && d == h && a == e && c == g
    }
}

impl AddressPair {
    /// Of a packet; and whether its sender is the second.
    pub fn of(packet: &Packet) -> (AddressPair, bool) {
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
        (AddressPair { addresses, ports }, second)
    }

    /// The first or the second end.
    pub fn end(&self, second: bool) -> SocketAddr {
        let port = if second { self.ports } else { self.ports >> 16 };
        let ip = Ipv6Addr::from(self.host(second).0);
        SocketAddr::new(ip.to_canonical(), port as u16)
    }

    /// The host of the first or the second end.
    pub fn host(&self, second: bool) -> HostKey {
        let [high, low] = self.addresses[usize::from(second)];
        HostKey(u128::from(high) << 64 | u128::from(low))
    }
}

impl<C: Default, S: StreamView> ConnectionTable<C, S> {
    /// An empty one.
    pub fn new(bounds: TableBounds) -> ConnectionTable<C, S> {
        ConnectionTable {
            bounds,
            index: TableIndex::default(),
            slots: Vec::new(),
            free: Vec::new(),
            recent: RecentSlot::default(),
            oldest: VecDeque::new(),
            over: VecDeque::new(),
            begun: 0,
            spare: None,
            attempts: 0,
            unfollowed: 0,
        }
    }

    /// Attempts to connect that came to nothing, and are not known any more.
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Packets of connections beyond [`Bounds::connections`].
    pub fn unfollowed(&self) -> u64 {
        self.unfollowed
    }

    /// Takes the next packet; what passed, and its connection. `forget` gets each connection with data that is
    /// forgotten, and may give its memory back.
    #[inline]
    pub fn push(
        &mut self,
        packet: &Packet,
        forget: &mut Forget<'_, C, S>,
    ) -> Option<(&mut TcpConnection<C, S>, Passed)> {
        let recent = self.recent.sender(packet);
        let (mut found, second) = match recent {
            Some(second) => (Some(self.recent.slot), second),
            None => {
                let (ends, second) = AddressPair::of(packet);
                let ends_of = |n: u32| self.slots.get(n as usize).map(|slot| slot.ends);
                (self.index.get(ends, ends_of), second)
            }
        };
        if let Some(n) = found
            && packet.flags & (SYN | ACK) == SYN
            && self.slots[n as usize].is_before(packet, second)
        {
            // The same ends again: a connection after another.
            self.index.remove(&self.slots[n as usize].ends, n);
            self.end(n, forget);
            found = None;
        }
        let Some(n) = found.or_else(|| self.begin(AddressPair::of(packet).0)) else {
            self.unfollowed += 1;
            self.recent.ends = None;
            return None;
        };
        self.recent.slot = n;
        if recent.is_none() {
            self.recent.ends = Some((packet.from, packet.to, second));
        }
        let passed = self.slots[n as usize].push(packet, second, &mut self.spare)?;
        if passed.over {
            self.end(n, forget);
        }
        match &mut self.slots[n as usize].course {
            SlotState::Goes(connection) => Some((connection, passed)),
            SlotState::Asked(_) | SlotState::Free => None,
        }
    }

    /// A slot for one more connection; none if all that are followed carry data.
    fn begin(&mut self, ends: AddressPair) -> Option<u32> {
        let n = match self.free.pop() {
            Some(n) => n,
            None if self.slots.len() < self.bounds.connections => {
                self.slots.push(TableSlot {
                    ends,
                    number: 0,
                    course: SlotState::Free,
                });
                self.slots.len() as u32 - 1
            }
            None => loop {
                let name = self.oldest.pop_front()?;
                let slot = &self.slots[name.slot as usize];
                if slot.makes_room(name) {
                    self.index.remove(&slot.ends, name.slot);
                    self.attempts += 1;
                    break name.slot;
                }
            },
        };
        self.begun = self.begun.wrapping_add(1);
        self.slots[n as usize] = TableSlot {
            ends,
            number: self.begun,
            course: SlotState::Free,
        };
        self.index.insert(ends, n);
        if self.oldest.len() >= 2 * self.slots.len() {
            let slots = &self.slots;
            self.oldest
                .retain(|name| slots[name.slot as usize].makes_room(*name));
        }
        self.oldest.push_back(Name {
            slot: n,
            number: self.begun,
        });
        Some(n)
    }

    /// A connection is over: it is forgotten when enough others are over as well.
    fn end(&mut self, n: u32, forget: &mut Forget<'_, C, S>) {
        self.over.push_back(Name {
            slot: n,
            number: self.slots[n as usize].number,
        });
        if self.over.len() <= self.bounds.over.max(1) {
            return;
        }
        let Some(first) = self.over.pop_front() else {
            return;
        };
        let slot = &mut self.slots[first.slot as usize];
        if slot.number == first.number && !slot.is_free() {
            let course = std::mem::replace(&mut slot.course, SlotState::Free);
            let ends = slot.ends;
            self.index.remove(&ends, first.slot);
            self.free.push(first.slot);
            self.forget(ends, first.number, course, forget);
        }
    }

    fn forget(
        &mut self,
        ends: AddressPair,
        number: u32,
        course: SlotState<C, S>,
        forget: &mut Forget<'_, C, S>,
    ) {
        match course {
            SlotState::Goes(connection) if connection.carries_data() => {
                let gone = ForgottenConnection {
                    ends,
                    number,
                    connection,
                };
                self.spare = forget(gone).or(self.spare.take());
            }
            SlotState::Goes(connection) => {
                self.attempts += u64::from(connection.is_unanswered());
                self.spare = Some(connection);
            }
            SlotState::Asked(_) => self.attempts += 1,
            SlotState::Free => {}
        }
    }

    /// Nothing more comes: all connections are forgotten.
    pub fn close(&mut self, forget: &mut Forget<'_, C, S>) {
        for slot in std::mem::take(&mut self.slots) {
            self.forget(slot.ends, slot.number, slot.course, forget);
        }
        *self = ConnectionTable {
            attempts: self.attempts,
            unfollowed: self.unfollowed,
            ..ConnectionTable::new(self.bounds)
        };
    }
}

impl<C: Default, S: StreamView> TableSlot<C, S> {
    fn is_free(&self) -> bool {
        matches!(self.course, SlotState::Free)
    }

    /// Takes a packet. None: it is the SYN of an attempt, of which nothing else is known.
    #[inline]
    fn push(
        &mut self,
        packet: &Packet,
        second: bool,
        spare: &mut Option<Box<TcpConnection<C, S>>>,
    ) -> Option<Passed> {
        if !matches!(self.course, SlotState::Goes(_)) {
            self.begin(packet, second, spare);
        }
        match &mut self.course {
            SlotState::Goes(connection) => Some(connection.push(packet, second)),
            SlotState::Asked(_) | SlotState::Free => None,
        }
    }

    /// A packet comes that may be more than an attempt.
    #[inline(never)]
    fn begin(
        &mut self,
        packet: &Packet,
        second: bool,
        spare: &mut Option<Box<TcpConnection<C, S>>>,
    ) {
        self.course = match &self.course {
            SlotState::Goes(_) => return,
            SlotState::Asked(asked) => SlotState::Goes(asked.goes_on(packet, second, spare.take())),
            SlotState::Free => match PendingSyn::of(packet, second) {
                Some(asked) => SlotState::Asked(asked),
                None => SlotState::Goes(TcpConnection::begin(packet, second, spare.take())),
            },
        };
    }

    /// A SYN of the same ends belongs to another connection, after this one.
    fn is_before(&self, syn: &Packet, second: bool) -> bool {
        match &self.course {
            SlotState::Goes(connection) => connection.is_before(syn, second),
            SlotState::Asked(asked) => asked.is_before(syn, second),
            SlotState::Free => false,
        }
    }

    /// A connection that is still here may be forgotten for another.
    fn makes_room(&self, name: Name) -> bool {
        let empty = match &self.course {
            SlotState::Free => false,
            SlotState::Asked(_) => true,
            SlotState::Goes(connection) => !connection.carries_data(),
        };
        empty && self.number == name.number
    }
}
