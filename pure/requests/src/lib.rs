//! Calls and replies on TCP connections: what they asked, and where the time of each went.
//!
//! The bytes of each direction are put in order, cut into the messages of their protocol (ONC RPC with NFS, SMB,
//! iSCSI; of anything else a request lasts until the other end speaks), and each reply is joined to its call. The
//! time from the first byte of a call to the last of its reply is divided into parts, and by cause; both sum to it
//! exactly. What strangers sent is decoded here; nothing fails, and memory is bounded: `MOST_CONNECTIONS`, and a
//! bound for whatever a connection keeps.

mod clocks;
mod connection;
mod digest;
mod passage;
mod sender;
#[cfg(test)]
mod tests;
mod way;
mod wires;

use clocks::Marks;
use connection::{Connection, Out, Seen};
use digest::Digest;
use model::packet::Packet;
use model::request::Requests;
use model::segment::tcp_flag::SYN;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Connections that are followed at a time; of others nothing is told.
const MOST_CONNECTIONS: usize = 1 << 16;

/// Both ends of a connection, the lesser first.
type Ends = (SocketAddr, SocketAddr);

/// Requests of one of two captures that are kept to be joined.
const MOST_KEPT: usize = 1 << 18;

/// Follows the requests of a capture.
#[derive(Default)]
pub struct Observer {
    connections: BTreeMap<Ends, Box<Connection>>,
    /// The one of the last packet, as a rule that of the next as well.
    last: Option<(Ends, Box<Connection>)>,
    out: Out,
    digest: Digest,
    /// One of two captures: what is joined with the other.
    kept: Option<Kept>,
    unfollowed: u64,
}

#[derive(Default)]
struct Kept {
    seen: Vec<Seen>,
    marks: Marks,
    /// Requests beyond [`MOST_KEPT`].
    more: u64,
}

impl Observer {
    /// For one of two captures, to be [`joined`].
    pub fn of_two() -> Observer {
        Observer {
            kept: Some(Kept::default()),
            ..Observer::default()
        }
    }

    /// Takes the next packet, with what was captured of its payload.
    pub fn see(&mut self, packet: &Packet, payload: &[u8]) {
        let is_last = |(_, last): &(Ends, Box<Connection>)| last.has(packet);
        if !self.last.as_ref().is_some_and(is_last) && !self.turn_to(packet) {
            return;
        }
        let Some((_, connection)) = &mut self.last else {
            return;
        };
        if packet.has(SYN) && connection.is_before(packet) {
            connection.close(&mut self.out);
            **connection = Connection::new(packet);
        }
        connection.see(packet, payload, &mut self.out);
        if connection.is_over() {
            connection.close(&mut self.out);
            self.last = None;
        }
        if let Some(kept) = &mut self.kept {
            kept.marks.see(packet);
        }
        self.settle();
    }

    /// Takes up the connection of a packet; says whether there is one.
    fn turn_to(&mut self, packet: &Packet) -> bool {
        let ends = (packet.from.min(packet.to), packet.from.max(packet.to));
        let connection = match self.connections.remove(&ends) {
            Some(known) => known,
            // Nothing comes of a packet without data in the middle of a stream.
            None if !packet.has(SYN) && packet.payload == 0 => return false,
            None if self.connections.len() + 1 >= MOST_CONNECTIONS => {
                self.unfollowed += 1;
                return false;
            }
            None => Box::new(Connection::new(packet)),
        };
        if let Some((ends, last)) = self.last.replace((ends, connection)) {
            self.connections.insert(ends, last);
        }
        true
    }

    /// Takes what is done.
    fn settle(&mut self) {
        for seen in self.out.done.drain(..) {
            match &mut self.kept {
                None => self.digest.take(digest::from_one(seen)),
                Some(kept) if kept.seen.len() < MOST_KEPT => kept.seen.push(seen),
                Some(kept) => kept.more += 1,
            }
        }
    }

    /// Nothing more comes.
    fn close(&mut self) {
        let last = self.last.iter_mut().map(|(_, last)| last);
        for connection in self.connections.values_mut().chain(last) {
            connection.close(&mut self.out);
        }
        self.settle();
    }

    /// All requests.
    pub fn told(mut self) -> Requests {
        self.close();
        let mut told = self.digest.told(self.out.unanswered);
        if self.unfollowed > 0 {
            told.doubts.push(format!(
                "{} packets belong to connections beyond the {MOST_CONNECTIONS} that are followed at a time",
                self.unfollowed
            ));
        }
        told
    }
}

/// The requests of two captures of the same connections, told together.
pub fn joined(mut a: Observer, mut b: Observer) -> Requests {
    a.close();
    b.close();
    let unanswered = a.out.unanswered.max(b.out.unanswered);
    let (one, other) = (a.kept.unwrap_or_default(), b.kept.unwrap_or_default());
    let more = one.more.max(other.more);
    let clocks = clocks::joined(one.marks, other.marks);
    let mut told = digest::of_both(one.seen, other.seen, clocks.as_ref()).told(unanswered);
    if clocks.is_none() {
        told.doubts.push(
            "no packet each way is in both captures: the way there and back is told as two halves"
                .to_owned(),
        );
    }
    if more > 0 {
        told.doubts.push(format!(
            "{more} requests beyond the {MOST_KEPT} that are kept of a capture were left out"
        ));
    }
    told.clocks = clocks;
    told
}
