//! Calls and replies on TCP connections: what they asked, and where the time of each went.
//!
//! The bytes of each direction are put in order, cut into the messages of their protocol (ONC RPC with NFS, SMB,
//! iSCSI; of anything else a request lasts until the other end speaks), and each reply is joined to its call. The
//! time from the first byte of a call to the last of its reply is divided into parts, and by cause; both sum to it
//! exactly. What strangers sent is decoded here; nothing fails, and memory is bounded: `MOST_CONNECTIONS`, and a
//! bound for whatever a connection keeps.

mod aggregate;
mod connection;
mod direction;
mod dissectors;
mod listing;
mod message_timing;
mod socket;
#[cfg(test)]
mod tests;

pub use listing::listed;
use tcp::clock::{self, Marks};

use aggregate::Aggregate;
use connection::{Beside, Connection, Out, Seen};
use model::packet::Packet;
use model::request::{Links, Requests, View};
use model::segment::tcp_flag::SYN;
use model::segment::tcp_state;
use model::{Clocks, Segment, StreamFigures, TraceRecord, Vantage, What};
use socket::Socket;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// Connections that are followed at a time; of others nothing is told.
const MOST_CONNECTIONS: usize = 1 << 16;

/// Connections that are over and still followed, for packets that come late.
const MOST_OVER: usize = 1 << 10;

/// Connections that are at hand, without a search.
const RECENT: usize = 1 << 6;

/// What a trace cannot say.
const NAMELESS: &str = "a trace has no payload: a request is what the client sends until the server does; a capture of the same tells its name";

/// Both ends of a connection: of a capture the lesser first, of a trace its own.
type Ends = (SocketAddr, SocketAddr);

/// A connection by its ends.
type Followed = (Ends, Box<Connection>);

/// Some connections, each at a place that its ends decide.
struct Recent(Vec<Option<Followed>>);

impl Recent {
    /// Where the connection of a packet is, if it is here: for both directions the same.
    fn place(packet: &Packet) -> usize {
        Recent::place_of(&(packet.from, packet.to))
    }

    fn place_of((a, b): &Ends) -> usize {
        usize::from(a.port().wrapping_add(b.port())) % RECENT
    }
}

impl Default for Recent {
    fn default() -> Recent {
        Recent((0..RECENT).map(|_| None).collect())
    }
}

/// Requests of one of two captures that are kept to be joined.
const MOST_KEPT: usize = 1 << 18;

/// Follows the requests of a capture, or of a trace.
#[derive(Default)]
pub struct Observer {
    connections: BTreeMap<Ends, Box<Connection>>,
    /// Those of the last packets, as a rule those of the next as well: each at a place that its ends decide.
    recent: Recent,
    /// How many are followed.
    followed: usize,
    /// Those that are over, in the order in which they ended.
    over: VecDeque<Ends>,
    /// Of a trace: its connections by their numbers.
    sockets: BTreeMap<u32, Socket>,
    /// Of a trace, and which events it lost.
    is_trace: bool,
    lost: u64,
    out: Out,
    aggregate: Aggregate,
    /// One of two captures, or a trace: what is joined with the other, or with the other end on the same host.
    kept: Option<Kept>,
    links: Links,
    unanswered: u64,
    unfollowed: u64,
}

#[derive(Default)]
struct Kept {
    seen: Vec<Seen>,
    marks: Marks,
    /// Unanswered ones: both ends of a trace, or both places, can have seen the same.
    unanswered: BTreeSet<(Option<u64>, u32)>,
    /// Requests beyond [`MOST_KEPT`].
    more: u64,
}

impl Observer {
    /// For one of two captures or traces, to be [`joined`].
    pub fn of_two() -> Observer {
        Observer {
            kept: Some(Kept::default()),
            ..Observer::default()
        }
    }

    /// With what is known of the links between the ends.
    pub fn on(self, links: Links) -> Observer {
        Observer { links, ..self }
    }

    /// Takes the next packet of a capture, with what was captured of its payload.
    pub fn see(&mut self, packet: &Packet, payload: &[u8]) {
        self.mark(packet);
        let place = Recent::place(packet);
        let is_there = |(_, there): &Followed| there.has(packet);
        let ends = || (packet.from.min(packet.to), packet.from.max(packet.to));
        if self.recent.0[place].as_ref().is_some_and(is_there)
            || self.turn_to(place, ends(), packet)
        {
            self.pass(place, packet, payload, None);
        }
    }

    /// Takes the next record of a trace.
    pub fn record(&mut self, record: &TraceRecord) {
        match record {
            TraceRecord::Connection(told) => {
                self.is_trace = true;
                // Its other end can be of this host.
                self.kept.get_or_insert_default();
                let ends = [told.local, told.remote].map(flat);
                if self.sockets.len() < MOST_CONNECTIONS || self.sockets.contains_key(&told.id) {
                    let socket = Socket::new(ends[0], ends[1]);
                    let known = self.sockets.entry(told.id).or_insert(socket);
                    [known.local, known.remote] = ends;
                }
            }
            TraceRecord::Segment(segment) => self.segment(segment),
            TraceRecord::Lost(lost) => self.lost = self.lost.saturating_add(lost.events),
            _ => {}
        }
    }

    /// Of a trace: all connections that it told of are closed.
    pub fn is_over(&self) -> bool {
        self.is_trace && self.sockets.is_empty()
    }

    fn segment(&mut self, segment: &Segment) {
        let Some(socket) = self.sockets.get_mut(&segment.connection) else {
            self.unfollowed += u64::from(self.sockets.len() >= MOST_CONNECTIONS);
            return;
        };
        let wait = socket.see(segment);
        // Both ends can be of this host: each is a connection of its own.
        let (local, remote) = (socket.local, socket.remote);
        let (from, to) = match segment.what {
            What::Sent => (local, remote),
            What::Received => (remote, local),
            What::State
                if segment
                    .probed()
                    .is_some_and(|socket| socket.state == tcp_state::CLOSE) =>
            {
                self.sockets.remove(&segment.connection);
                return;
            }
            _ => return,
        };
        let packet = Packet {
            at: segment.at,
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: u16::try_from(segment.window).unwrap_or(u16::MAX),
            payload: segment.payload.0.min(u64::from(u32::MAX)) as u32,
            options_cut: true,
            ..Packet::new(from, to)
        };
        let tcb = segment.probed();
        self.at_end(remote, &packet, &Beside { local, tcb, wait });
    }

    /// Takes a packet that was seen at one end.
    fn at_end(&mut self, remote: SocketAddr, packet: &Packet, beside: &Beside<'_>) {
        self.mark(packet);
        let own = (beside.local, remote);
        let place = Recent::place(packet);
        let is_there = |(ends, _): &Followed| *ends == own;
        if self.recent.0[place].as_ref().is_some_and(is_there) || self.turn_to(place, own, packet) {
            self.pass(place, packet, &[], Some(beside));
        }
    }

    /// Remembers a packet for the clocks of two places.
    fn mark(&mut self, packet: &Packet) {
        if let Some(kept) = &mut self.kept {
            kept.marks.push(packet);
        }
    }

    /// Hands a packet to the connection at a place.
    fn pass(&mut self, place: usize, packet: &Packet, payload: &[u8], beside: Option<&Beside<'_>>) {
        let Some((ends, connection)) = &mut self.recent.0[place] else {
            return;
        };
        if packet.has(SYN) && connection.is_before(packet) {
            connection.close(&mut self.out);
            **connection = Connection::new(packet);
        }
        let was_over = connection.is_over();
        connection.see(packet, payload, beside, &mut self.out);
        if connection.is_over() && !was_over {
            self.over.push_back(*ends);
            if self.over.len() > MOST_OVER
                && let Some(first) = self.over.pop_front()
            {
                self.forget(first);
            }
        }
        self.settle();
    }

    /// A connection that ended long ago; not a later one of the same ends.
    fn forget(&mut self, ends: Ends) {
        let is_it = |followed: &mut Followed| followed.0 == ends && followed.1.is_over();
        let recent = self.recent.0[Recent::place_of(&ends)].take_if(is_it);
        let known = || match self.connections.entry(ends) {
            Entry::Occupied(known) if known.get().is_over() => Some(known.remove_entry()),
            _ => None,
        };
        if let Some((_, mut connection)) = recent.or_else(known) {
            connection.close(&mut self.out);
            self.followed -= 1;
        }
    }

    /// Puts the connection of a packet in its place; says whether there is one.
    fn turn_to(&mut self, place: usize, ends: Ends, packet: &Packet) -> bool {
        let connection = match self.connections.remove(&ends) {
            Some(known) => known,
            // Nothing comes of a packet without data in the middle of a stream.
            None if !packet.has(SYN) && packet.payload == 0 => return false,
            None if self.followed >= MOST_CONNECTIONS => {
                self.unfollowed += 1;
                return false;
            }
            None => {
                self.followed += 1;
                Box::new(Connection::new(packet))
            }
        };
        let before = self.recent.0[place].replace((ends, connection));
        self.connections.extend(before);
        true
    }

    /// Takes what is done.
    fn settle(&mut self) {
        if !self.out.unanswered.is_empty() {
            match &mut self.kept {
                Some(kept) if kept.unanswered.len() < MOST_KEPT => {
                    kept.unanswered.extend(self.out.unanswered.drain(..));
                }
                _ => self.unanswered += self.out.unanswered.drain(..).len() as u64,
            }
        }
        let mut done = std::mem::take(&mut self.out.done);
        for seen in done.drain(..) {
            match &mut self.kept {
                None => {
                    let view = self.out.view(&seen);
                    self.aggregate
                        .take(&seen, &aggregate::from_one(&seen, view, &self.links));
                    self.out.spare.take(seen.call);
                    self.out.spare.take(seen.reply);
                }
                Some(kept) if kept.seen.len() < MOST_KEPT => kept.seen.push(seen),
                Some(kept) => kept.more += 1,
            }
        }
        self.out.done = done;
    }

    /// Nothing more comes.
    fn close(&mut self) {
        self.connections
            .extend(self.recent.0.iter_mut().filter_map(Option::take));
        for connection in self.connections.values_mut() {
            connection.close(&mut self.out);
        }
        self.settle();
    }

    /// All requests.
    pub fn told(mut self) -> Requests {
        self.close();
        let doubts = self.doubts();
        let kept = self.kept.take();
        let aggregate = match kept {
            None => self.aggregate,
            Some(kept) => {
                self.unanswered += kept.unanswered.len() as u64;
                // The other end of a connection may be of this host, and have its own place in the trace.
                let is_client = |(_, view): &(Seen, View)| *view == View::Client;
                let all = with_views(kept.seen, &self.out);
                let (clients, servers) = all.into_iter().partition(is_client);
                aggregate::of_both(clients, servers, Some(&Clocks::ONE), &self.links)
            }
        };
        let mut told = aggregate.told(self.unanswered);
        told.doubts.extend(doubts);
        told.unread = self.out.unread;
        told.links = self.links;
        told.streams = streams(self.out);
        told
    }

    /// What was not looked at.
    fn doubts(&self) -> Vec<String> {
        let more = self.kept.as_ref().map_or(0, |kept| kept.more);
        let doubts = [
            (self.unfollowed, format!("packets belong to connections beyond the {MOST_CONNECTIONS} that are followed at a time")),
            (self.out.cut, "times the beginning of a message is not in the capture, which cut packets short or lost them: it is not told, nor what follows it in its packet; tcpdump -s 0 captures them whole".to_owned()),
            (self.out.unread, "replies answer calls that are not there to be read: their requests are not among those told".to_owned()),
            (more, format!("requests beyond the first {MOST_KEPT} were left out")),
            (self.lost, "events were lost by the trace: requests near them can be cut in two or look longer".to_owned()),
        ];
        let said = doubts.into_iter().filter(|(count, _)| *count > 0);
        let said = said.map(|(count, what)| format!("{count} {what}"));
        let nameless = self.is_trace.then(|| NAMELESS.to_owned());
        nameless.into_iter().chain(said).collect()
    }
}

/// Requests with where they were seen.
fn with_views(seen: Vec<Seen>, out: &Out) -> Vec<(Seen, View)> {
    let with_view = |seen: Seen| {
        let view = out.view(&seen);
        (seen, view)
    };
    seen.into_iter().map(with_view).collect()
}

/// The figures of all streams, now that it is known where they were seen.
fn streams(out: Out) -> Vec<StreamFigures> {
    let votes = out.votes;
    let placed = out.streams.into_iter().map(|(mut figures, near)| {
        let (sender, receiver) = (figures.sender.ip(), figures.receiver.ip());
        figures.vantage = votes.vantage(sender, receiver);
        if matches!(figures.vantage, Vantage::AtReceiver | Vantage::Between) {
            figures.min_rtt = figures.min_rtt.map(|rtt| rtt + near);
        }
        figures
    });
    placed.collect()
}

/// An IPv4 address as it stands in packets, however the socket names it.
fn flat(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The requests of two captures or traces of the same connections, told together.
pub fn joined(mut a: Observer, mut b: Observer) -> Requests {
    a.close();
    b.close();
    let mut doubts = a.doubts();
    doubts.extend(b.doubts());
    doubts.dedup();
    let (mut one, mut other) = (a.kept.unwrap_or_default(), b.kept.unwrap_or_default());
    one.unanswered.append(&mut other.unanswered);
    let unanswered = one.unanswered.len() as u64 + a.unanswered.max(b.unanswered);
    let clocks = clock::join(one.marks, other.marks);
    let aggregate = aggregate::of_both(
        with_views(one.seen, &a.out),
        with_views(other.seen, &b.out),
        clocks.as_ref(),
        &a.links,
    );
    let mut told = aggregate.told(unanswered);
    match &clocks {
        None => told.doubts.push(
            "no packet each way is in both captures: forward and reverse are each half of the RTT"
                .to_owned(),
        ),
        Some(clocks) => told.doubts.extend(clocks.doubt()),
    }
    told.doubts.extend(doubts);
    told.clocks = clocks;
    told.unread = a.out.unread.max(b.out.unread);
    told.links = a.links;
    told
}
