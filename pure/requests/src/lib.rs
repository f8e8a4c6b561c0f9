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
    connections: BTreeMap<Ends, Connection>,
    done: Vec<Seen>,
    digest: Digest,
    /// One of two captures: what is joined with the other.
    kept: Option<Kept>,
    room: usize,
    unanswered: u64,
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
        let ends = (packet.from.min(packet.to), packet.from.max(packet.to));
        let mut out = Out {
            done: &mut self.done,
            room: &mut self.room,
            unanswered: &mut self.unanswered,
        };
        let full = self.connections.len() >= MOST_CONNECTIONS;
        let connection = match self.connections.get_mut(&ends) {
            Some(known) => {
                if packet.has(SYN) && known.is_before(packet) {
                    known.close(&mut out);
                    *known = Connection::new(packet);
                }
                known
            }
            // Nothing comes of a packet without data in the middle of a stream.
            None if !packet.has(SYN) && packet.payload == 0 => return,
            None if full => {
                self.unfollowed += 1;
                return;
            }
            None => self
                .connections
                .entry(ends)
                .or_insert_with(|| Connection::new(packet)),
        };
        connection.see(packet, payload, None, &mut out);
        if connection.is_over() {
            connection.close(&mut out);
            self.connections.remove(&ends);
        }
        if let Some(kept) = &mut self.kept {
            kept.marks.see(packet);
        }
        self.settle();
    }

    /// Takes what is done.
    fn settle(&mut self) {
        for seen in self.done.drain(..) {
            match &mut self.kept {
                None => self.digest.take(digest::from_one(seen)),
                Some(kept) if kept.seen.len() < MOST_KEPT => kept.seen.push(seen),
                Some(kept) => kept.more += 1,
            }
        }
    }

    /// Nothing more comes.
    fn close(&mut self) {
        let mut out = Out {
            done: &mut self.done,
            room: &mut self.room,
            unanswered: &mut self.unanswered,
        };
        for connection in self.connections.values_mut() {
            connection.close(&mut out);
        }
        self.settle();
    }

    /// All requests.
    pub fn told(mut self) -> Requests {
        self.close();
        let mut told = self.digest.told(self.unanswered);
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
    let unanswered = a.unanswered.max(b.unanswered);
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
