//! From captured packets: who limits each direction of each connection.
//!
//! `tcp::table` follows the connections, as many as [`MOST_CONNECTIONS`] at a time; of those that are over, the ones with the
//! most bytes are kept to be explained.

pub(crate) mod sender;
#[cfg(test)]
mod tests;

use crate::facts::{BucketFit, Facts, MOST_SENT, Sent};
use crate::limits::bucket;
use model::finding::Explanation;
use model::packet::Packet;
use model::{Bytes, Nanos, StreamFigures, Vantage};
use sender::{CaptureSender, Frame};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use tcp::clock::Marks;
use tcp::connection::Passed;
use tcp::stream::{DataArrival, FollowedStream};
use tcp::table::{AddressPair, ConnectionTable, ForgottenConnection, TableBounds};
use tcp::two_vantage::{MOST_PASSES, Passes};
use tcp::vantage::VantageVotes;

/// Connections that are followed at a time, packets of others are only counted; and those that are explained.
const MOST_CONNECTIONS: usize = if cfg!(test) { 1 << 10 } else { 1 << 19 };
/// What several connections to a destination sent, looked at together: so many sends at the most.
const MOST_SHARED: usize = 4 * MOST_SENT;
/// Connections that are over and still known, for packets that come late.
const MOST_OVER: usize = if cfg!(test) { 1 << 3 } else { 1 << 10 };
/// A direction of fewer bytes than this part of the other (1 / n) is not explained: requests against their replies,
/// acknowledged writes.
const SMALL_WAY: u64 = 10;

/// Whether this direction is one of requests or short replies, by the bytes of the other.
pub(crate) fn is_small(this: u64, other: u64) -> bool {
    this < other / SMALL_WAY
}

pub(crate) type CaptureConnection =
    tcp::connection::TcpConnection<Option<Box<Passes>>, CaptureSender>;

/// Follows the connections of a capture.
pub struct CaptureObserver {
    table: ConnectionTable<Option<Box<Passes>>, CaptureSender>,
    kept: KeptConnections,
    /// Of one of two captures: by what its clock is compared, and how many packets are remembered.
    marks: Option<Marks>,
    passes: usize,
}

/// Bytes of a connection, and its number.
type KeptKey = (u64, Reverse<u32>);

/// Connections that are over and to be explained.
struct KeptConnections {
    /// The first is the next to be left out: with the fewest bytes, of as many the one that began last.
    connections: BTreeMap<KeptKey, (AddressPair, Box<CaptureConnection>)>,
    most: usize,
    /// Connections that were left out, and their bytes.
    left_out: (u64, Bytes),
    votes: VantageVotes,
}

/// What a capture shows.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// In the order of their first packets.
    pub explanations: Vec<Explanation>,
    /// The figures of every direction that carried data, in the order of their first packets.
    pub streams: Vec<StreamFigures>,
    /// What is to be said of the capture as a whole.
    pub doubts: Vec<String>,
}

/// One of two captures: each connection as it passed, and the explanations of its client's and its server's data.
pub(crate) struct CapturePlace {
    pub passes: Vec<Passes>,
    pub halves: Vec<[Option<Explanation>; 2]>,
    pub doubts: Vec<String>,
    pub marks: Marks,
}

impl Default for CaptureObserver {
    fn default() -> CaptureObserver {
        CaptureObserver::of_most(usize::MAX)
    }
}

impl CaptureObserver {
    /// One that explains at most so many connections, those with the most bytes.
    pub fn of_most(most: usize) -> CaptureObserver {
        CaptureObserver {
            table: ConnectionTable::new(TableBounds {
                connections: MOST_CONNECTIONS,
                over: MOST_OVER,
            }),
            kept: KeptConnections {
                connections: BTreeMap::new(),
                most: most.min(MOST_CONNECTIONS),
                left_out: (0, Bytes(0)),
                votes: VantageVotes::default(),
            },
            marks: None,
            passes: 0,
        }
    }

    /// For one of two captures, to be [`crate::joined`].
    pub fn of_two() -> CaptureObserver {
        CaptureObserver {
            marks: Some(Marks::default()),
            ..CaptureObserver::default()
        }
    }

    /// When the capture began, since 1970-01-01 UTC; 0 where that is not known.
    pub fn begin(&mut self, since_1970: Nanos) {
        if let Some(marks) = &mut self.marks {
            marks.begin(since_1970);
        }
    }

    /// Takes the next packet.
    pub fn push(&mut self, packet: &Packet) {
        if let Some(marks) = &mut self.marks {
            marks.push(packet);
        }
        let kept = &mut self.kept;
        let keep = &mut |gone| kept.keep(gone);
        let Some((connection, passed)) = self.table.push(packet, keep) else {
            return;
        };
        read(connection, packet, &passed);
        if self.marks.is_some() && self.passes < MOST_PASSES {
            self.passes += usize::from(remember(connection, packet, &passed));
        }
    }

    /// Explains each direction that carried data; of a connection with much more one way, that way alone.
    pub fn explain(self) -> Explained {
        let mut explained = Explained::default();
        let streams = &mut explained.streams;
        let explanations = &mut explained.explanations;
        explained.doubts = self.close(streams, |_, halves| {
            explanations.extend(halves.into_iter().flatten());
        });
        explained
    }

    pub(crate) fn into_place(mut self) -> CapturePlace {
        let marks = self.marks.take().unwrap_or_default();
        let (mut passes, mut halves) = (Vec::new(), Vec::new());
        let doubts = self.close(&mut Vec::new(), |passed, explained| {
            passes.push(passed);
            halves.push(explained);
        });
        CapturePlace {
            passes,
            halves,
            doubts,
            marks,
        }
    }

    fn close(
        mut self,
        streams: &mut Vec<StreamFigures>,
        mut take: impl FnMut(Passes, [Option<Explanation>; 2]),
    ) -> Vec<String> {
        let mut kept = self.kept;
        self.table.close(&mut |gone| kept.keep(gone));
        let doubts = doubts(&self.table, &kept);
        let mut connections: Vec<_> = kept.connections.into_iter().collect();
        connections.sort_unstable_by_key(|((_, number), _)| number.0);
        let shared = shared_buckets(&connections, &kept.votes);
        let shared = |to: IpAddr| shared.get(&to).copied();
        for (_, (ends, mut connection)) in connections {
            let second = connection.client_is_second();
            let ends = [second, !second].map(|second| ends.end(second));
            let passes = connection.view.take();
            let mut passes = passes.map_or_else(|| Passes::new(ends[0], ends[1]), |p| *p);
            passes.begins([0, 1].map(|side| connection.isn(side)));
            let vantage = |from, to| kept.votes.vantage(from, to);
            take(
                passes,
                explain(*connection, ends, (&vantage, &shared), streams, &mut |_| ()),
            );
        }
        doubts
    }
}

/// Hands a packet to the views of its streams.
#[inline]
pub(crate) fn read(connection: &mut CaptureConnection, packet: &Packet, passed: &Passed) {
    let segment = connection.segment();
    if let Some(arrival) = passed.data
        && let Some(own) = connection.stream_mut(passed.side)
    {
        own.view.data(&own.stream, packet, arrival, segment);
    }
    if let Some(ack) = passed.ack {
        let total = connection.trips[passed.side].total;
        if let Some(peer) = connection.stream_mut(1 - passed.side) {
            peer.view
                .on_ack(&peer.stream, packet, &ack, (segment, total));
        }
    }
}

/// Remembers a packet for the comparison with another place; whether it did.
#[inline(never)]
fn remember(connection: &mut CaptureConnection, packet: &Packet, passed: &Passed) -> bool {
    let again = match passed.data {
        Some(DataArrival::Duplicate | DataArrival::Probe | DataArrival::Stray) => return false,
        Some(DataArrival::Retransmission) => true,
        Some(DataArrival::New | DataArrival::Reordered) | None => false,
    };
    let (client, server) = match passed.side {
        0 => (packet.from, packet.to),
        _ => (packet.to, packet.from),
    };
    let passes = (connection.view).get_or_insert_with(|| Box::new(Passes::new(client, server)));
    passes.push(packet, again);
    true
}

fn doubts(
    table: &ConnectionTable<Option<Box<Passes>>, CaptureSender>,
    kept: &KeptConnections,
) -> Vec<String> {
    let mut doubts = Vec::new();
    if table.attempts() > 0 {
        doubts.push(format!(
            "{} connection attempts failed: not answered, refused, or closed without data",
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
            _ => " (--json has all)",
        };
        doubts.push(format!(
            "{count} more connections of {bytes} together are not listed{remedy}"
        ));
    }
    doubts
}

impl KeptConnections {
    /// A connection is to be explained, if no more than [`Kept::most`] have more bytes.
    fn keep(
        &mut self,
        gone: ForgottenConnection<Option<Box<Passes>>, CaptureSender>,
    ) -> Option<Box<CaptureConnection>> {
        let ForgottenConnection {
            ends,
            number,
            mut connection,
        } = gone;
        let second = connection.client_is_second();
        self.votes.take(
            [second, !second].map(|second| ends.host(second)),
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

    fn leave_out(&mut self, connection: Box<CaptureConnection>) -> Box<CaptureConnection> {
        self.left_out.0 += 1;
        self.left_out.1 += Bytes(connection.bytes());
        connection
    }
}

/// The queue or bucket that several connections to a destination share, seen at their sender: alone each may look like random
/// loss.
fn shared_buckets(
    connections: &[(KeptKey, (AddressPair, Box<CaptureConnection>))],
    votes: &VantageVotes,
) -> BTreeMap<IpAddr, BucketFit> {
    let mut all: BTreeMap<IpAddr, Vec<&FollowedStream<CaptureSender>>> = BTreeMap::new();
    for (_, (ends, connection)) in connections {
        let second = connection.client_is_second();
        let ends = [second, !second].map(|second| ends.end(second).ip());
        for side in [0, 1] {
            let (from, to) = (ends[side], ends[1 - side]);
            let own = (connection.stream(side)).filter(|own| own.view.lossy().is_some());
            if let (Some(own), Vantage::AtSender) = (own, votes.vantage(from, to)) {
                all.entry(to).or_default().push(own);
            }
        }
    }
    let several = all.into_iter().filter(|(_, all)| all.len() > 1);
    several
        .filter_map(|(to, all)| Some((to, shared(&all)?)))
        .collect()
}

/// The one bucket of all of these, over the time in which all that they sent is known.
fn shared(all: &[&FollowedStream<CaptureSender>]) -> Option<BucketFit> {
    let lossy = || all.iter().filter_map(|own| own.view.lossy());
    let from = lossy().map(|(from, ..)| from).max()?;
    let until = lossy().map(|(_, until, _)| until).min()?;
    let sent = lossy().flat_map(|(.., sent)| sent);
    let within = sent.filter(|sent| (from..=until).contains(&sent.at));
    let mut sent: Vec<Sent> = within.copied().collect();
    sent.sort_by_key(|sent| sent.at);
    let rtt = all.iter().filter_map(|own| own.stream.min_rtt).min()?;
    bucket::gather(&mut sent, 2 * MOST_SENT, 0, rtt, &mut Nanos::default());
    sent.truncate(MOST_SHARED);
    Some(BucketFit {
        connections: all.len(),
        ..bucket::fit(&sent, rtt)?
    })
}

/// Where a connection between two hosts was seen, and the bucket that those to a destination share.
type VantageOf<'a> = dyn Fn(IpAddr, IpAddr) -> Vantage + 'a;
type SharedBucket<'a> = dyn Fn(IpAddr) -> Option<BucketFit> + 'a;

/// Explains the data of the client and of the server; `more` adds what else is known of them. What is small beside the
/// other direction has figures alone.
pub(crate) fn explain(
    mut connection: CaptureConnection,
    ends: [SocketAddr; 2],
    (vantage, shared): (&VantageOf, &SharedBucket),
    streams: &mut Vec<StreamFigures>,
    more: &mut dyn FnMut(&mut Facts),
) -> [Option<Explanation>; 2] {
    let undelivered = [0, 1].map(|side| connection.undelivered(side));
    let bytes = [0, 1].map(|side| {
        let missing = undelivered[side].map_or(0, |of| of.bytes.into());
        connection.bytes_of(side) + missing
    });
    let scale = match connection.knows_options() {
        true => "",
        false => ", so the scale of the windows is not known",
    };
    let is_whole = connection.is_whole() && scale.is_empty();
    let doubt = (!is_whole).then(|| format!("the capture lacks part of the handshake{scale}"));
    // A single request, as of a download, is answered once.
    let talks = |side: usize| (connection.stream(side)).is_some_and(|of| of.stream.packets > 1);
    let is_exchange = talks(0) && talks(1);
    [0, 1].map(|side| {
        let followed = connection.take_stream(side)?;
        let (from, to) = (ends[side], ends[1 - side]);
        let vantage = vantage(from.ip(), to.ip());
        let trips = connection.trips[side];
        if is_small(bytes[side], bytes[1 - side]) {
            streams.push(followed.stream.figures(from, to, vantage, &trips));
            return None;
        }
        let frame = Frame {
            from,
            to,
            vantage,
            trips,
            begun: connection.begun,
            span: connection.span(),
            opened: connection.opened,
            syns_again: connection.syns_again,
            segment: connection.segment(),
            is_exchange,
            shared: shared(to.ip()),
            saw_receiver: connection.saw(1 - side),
            undelivered: undelivered[side],
            doubts: doubt.iter().cloned().collect(),
        };
        let explanation = CaptureSender::explain(*followed, frame, more);
        streams.extend(explanation.stream.clone());
        Some(explanation)
    })
}
