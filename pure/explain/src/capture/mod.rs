//! From captured packets: who limits each direction of each connection.
//!
//! `tcp::table` follows the connections, as many as [`MOST_CONNECTIONS`] at a time; of those that are over, the ones with the
//! most bytes are kept to be explained.

mod sender;
#[cfg(test)]
mod tests;

use crate::facts::Facts;
use model::finding::Explanation;
use model::packet::Packet;
use model::{Bytes, Nanos, StreamFigures, Vantage};
use sender::{Frame, Sender};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tcp::stream::Arrival;
use tcp::table::{Bounds, Ends, Gone, Table};
use tcp::vantage::Votes;

/// Connections that are followed at a time, packets of others are only counted; and those that are explained.
const MOST_CONNECTIONS: usize = if cfg!(test) { 1 << 10 } else { 1 << 19 };
/// Connections that are over and still known, for packets that come late.
const MOST_OVER: usize = if cfg!(test) { 1 << 3 } else { 1 << 10 };
/// A direction of fewer bytes than this part of the other (1 / n) is not explained: requests against their replies,
/// acknowledged writes.
const SMALL_WAY: u64 = 10;

type Connection = tcp::connection::Connection<(), Sender>;

/// Follows the connections of a capture.
pub struct Observer {
    table: Table<(), Sender>,
    kept: Kept,
}

/// Connections that are over and to be explained.
struct Kept {
    /// The first is the next to be left out: with the fewest bytes, of as many the one that began last.
    connections: BTreeMap<(u64, Reverse<u32>), (Ends, Box<Connection>)>,
    most: usize,
    /// Connections that were left out, and their bytes.
    left_out: (u64, Bytes),
    votes: Votes,
}

/// What a capture shows.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// In the order of their first packets.
    pub explanations: Vec<Explanation>,
    /// The figures of every direction that carried data, in the order of their first packets.
    pub streams: Vec<StreamFigures>,
    /// What is to be said of the capture as a whole.
    pub doubts: Vec<String>,
}

impl Default for Observer {
    fn default() -> Observer {
        Observer::of_most(usize::MAX)
    }
}

impl Observer {
    /// One that explains all connections.
    pub fn new() -> Observer {
        Observer::default()
    }

    /// One that explains at most so many, those with the most bytes.
    pub fn of_most(most: usize) -> Observer {
        Observer {
            table: Table::new(Bounds {
                connections: MOST_CONNECTIONS,
                over: MOST_OVER,
            }),
            kept: Kept {
                connections: BTreeMap::new(),
                most: most.min(MOST_CONNECTIONS),
                left_out: (0, Bytes(0)),
                votes: Votes::default(),
            },
        }
    }

    /// Takes the next packet; says what its data are to their stream.
    pub fn see(&mut self, packet: &Packet) -> Option<Arrival> {
        let kept = &mut self.kept;
        let (connection, passed) = self.table.push(packet, &mut |gone| kept.keep(gone))?;
        let segment = connection.segment();
        if let Some(arrival) = passed.data
            && let Some(own) = connection.stream_mut(passed.side)
        {
            own.view.data(&own.stream, packet, arrival, segment);
        }
        if let Some(heard) = passed.heard {
            let total = connection.trips(passed.side).total;
            if let Some(peer) = connection.stream_mut(1 - passed.side) {
                peer.view
                    .heard(&peer.stream, packet.at, &heard, (segment, total));
            }
        }
        passed.data
    }

    /// Explains each direction that carried data; of a connection with much more one way, that way alone.
    pub fn explain(self) -> Told {
        self.explain_with(&mut |_| ())
    }

    /// The same with what more is known of each direction.
    pub(crate) fn explain_with(mut self, more: &mut dyn FnMut(&mut Facts)) -> Told {
        let mut kept = self.kept;
        self.table.close(&mut |gone| kept.keep(gone));
        let doubts = doubts(&self.table, &kept);
        let mut connections: Vec<_> = kept.connections.into_iter().collect();
        connections.sort_unstable_by_key(|((_, number), _)| number.0);
        let mut told = Told {
            doubts,
            ..Told::default()
        };
        for (_, (ends, connection)) in connections {
            explain(*connection, &ends, &kept.votes, &mut told, more);
        }
        told
    }
}

fn doubts(table: &Table<(), Sender>, kept: &Kept) -> Vec<String> {
    let mut doubts = Vec::new();
    if table.attempts() > 0 {
        doubts.push(format!(
            "{} attempts to connect came to nothing: not answered, or refused, or of no data",
            table.attempts()
        ));
    }
    if table.unfollowed() > 0 {
        doubts.push(format!(
            "{} packets of more than {MOST_CONNECTIONS} connections were left out",
            table.unfollowed()
        ));
    }
    let (count, bytes) = kept.left_out;
    if count > 0 {
        let remedy = match kept.most {
            MOST_CONNECTIONS => "",
            _ => " (--json tells all)",
        };
        doubts.push(format!(
            "{count} more connections of {bytes} together are not told{remedy}"
        ));
    }
    doubts
}

impl Kept {
    /// A connection is to be explained, if no more than [`Kept::most`] have more bytes.
    fn keep(&mut self, gone: Gone<(), Sender>) -> Option<Box<Connection>> {
        let Gone {
            ends,
            number,
            mut connection,
        } = gone;
        let second = connection.client_is_second();
        self.votes.take(
            [second, !second].map(|second| ends.end(second).ip()),
            connection.away(),
        );
        let key = (connection.bytes(), Reverse(number));
        let is_full = self.connections.len() >= self.most;
        let least = self.connections.first_key_value();
        if is_full && least.is_none_or(|(least, _)| key < *least) {
            return Some(self.leave_out(connection));
        }
        connection.slim();
        self.connections.insert(key, (ends, connection));
        let (_, (_, least)) = is_full.then(|| self.connections.pop_first()).flatten()?;
        Some(self.leave_out(least))
    }

    fn leave_out(&mut self, connection: Box<Connection>) -> Box<Connection> {
        self.left_out.0 += 1;
        self.left_out.1 += Bytes(connection.bytes());
        connection
    }
}

fn explain(
    mut connection: Connection,
    ends: &Ends,
    votes: &Votes,
    told: &mut Told,
    more: &mut dyn FnMut(&mut Facts),
) {
    let most = [0, 1]
        .map(|side| connection.bytes_of(side))
        .into_iter()
        .max();
    let mut doubts = Vec::new();
    match (connection.is_whole(), connection.knows_options()) {
        (true, true) => {}
        (_, true) => doubts.push("the handshake is not whole in the capture".to_owned()),
        (_, false) => doubts.push(
            "the handshake is not whole in the capture: the scale of the windows is not known"
                .to_owned(),
        ),
    }
    let second = connection.client_is_second();
    let is_exchange = [0, 1].iter().all(|side| connection.stream(*side).is_some());
    for (side, second) in [second, !second].into_iter().enumerate() {
        let Some(followed) = connection.take_stream(side) else {
            continue;
        };
        let (from, to) = (ends.end(second), ends.end(!second));
        let vantage = votes.vantage(from.ip(), to.ip());
        let trips = connection.trips(side);
        let near = match vantage {
            Vantage::AtSender | Vantage::Unknown => Nanos(0),
            Vantage::AtReceiver | Vantage::Between => trips.to_sender,
        };
        let small = connection.bytes_of(side) < most.unwrap_or(0) / SMALL_WAY;
        if small {
            told.streams
                .push(followed.stream.figures(from, to, vantage, near));
            continue;
        }
        let frame = Frame {
            from,
            to,
            vantage,
            near,
            total: trips.total,
            begun: connection.begun(),
            span: connection.span(),
            opened: connection.opened(),
            syns_again: connection.syns_again(),
            segment: connection.segment(),
            is_exchange,
            doubts: doubts.clone(),
        };
        let explanation = Sender::explain(*followed, frame, more);
        told.streams.extend(explanation.stream.clone());
        told.explanations.push(explanation);
    }
}
