//! Calls and replies on TCP connections: what they asked, and where the time of each went.
//!
//! The bytes of each direction are put in order, cut into the messages of their protocol (ONC RPC with NFS, SMB,
//! iSCSI; of anything else a request lasts until the peer sends), and each reply is joined to its call. The
//! time from the first byte of a call to the last of its reply is divided into parts, and by cause; both sum to it
//! exactly. It decodes what peers sent: nothing fails, and memory is bounded by `MOST_CONNECTIONS` and a bound for
//! all that a connection keeps.

mod aggregate;
mod direction;
mod dissectors;
mod listing;
mod message_timing;
mod pairing;
mod socket;
#[cfg(test)]
mod tests;

pub use listing::listed;
use tcp::clock::{self, Marks};
use tcp::table::{ConnectionTable, TableBounds};

use aggregate::Aggregate;
use model::packet::Packet;
use model::request::{Links, Requests, Viewpoint};
use model::segment::tcp_state;
use model::{Clocks, Nanos, Segment, StreamFigures, TraceRecord, What};
use pairing::{Pairing, PairingOutput, SeenRequest};
use socket::TracedSocket;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Connections that are followed at a time; of others nothing is reported.
const MOST_CONNECTIONS: usize = 1 << 16;

/// Connections that are over and still followed, for packets that come late.
const MOST_OVER: usize = 1 << 10;

/// What a trace cannot show.
const NAMELESS: &str = "a trace has no payload: a request is what the client sends until the server does; a capture shows its name";

/// Requests of one of two captures that are kept to be joined.
const MOST_KEPT: usize = 1 << 18;

/// Follows the requests of a capture, or of a trace.
pub struct RequestObserver {
    /// Of a capture.
    table: ConnectionTable<Option<Box<Pairing>>, ()>,
    /// Of a trace: its connections by their numbers.
    sockets: BTreeMap<u32, TracedSocket>,
    /// Of a trace, and which events it lost.
    is_trace: bool,
    lost: u64,
    out: PairingOutput,
    aggregate: Aggregate,
    /// One of two captures, or a trace: what is joined with the other capture, or with the peer's socket on the same host.
    kept: Option<KeptRequests>,
    links: Links,
    unanswered: u64,
    /// Events of connections beyond [`MOST_CONNECTIONS`].
    unfollowed: u64,
}

impl Default for RequestObserver {
    fn default() -> RequestObserver {
        RequestObserver {
            table: ConnectionTable::new(TableBounds {
                connections: MOST_CONNECTIONS,
                over: MOST_OVER,
            }),
            sockets: BTreeMap::new(),
            is_trace: false,
            lost: 0,
            out: PairingOutput::default(),
            aggregate: Aggregate::default(),
            kept: None,
            links: Links::default(),
            unanswered: 0,
            unfollowed: 0,
        }
    }
}

#[derive(Default)]
struct KeptRequests {
    seen: Vec<SeenRequest>,
    marks: Marks,
    /// Unanswered ones: both ends of a trace, or both places, can have seen the same.
    unanswered: BTreeSet<(Option<u64>, u32)>,
    /// Requests beyond [`MOST_KEPT`].
    more: u64,
}

impl RequestObserver {
    /// For one of two captures or traces, to be [`joined`].
    pub fn of_two() -> RequestObserver {
        RequestObserver {
            kept: Some(KeptRequests::default()),
            ..RequestObserver::default()
        }
    }

    /// With what is known of the links between the ends.
    pub fn on(self, links: Links) -> RequestObserver {
        RequestObserver { links, ..self }
    }

    /// When the capture or trace began, since 1970-01-01 UTC; 0 where that is not known.
    pub fn begin(&mut self, since_1970: Nanos) {
        if let Some(kept) = &mut self.kept {
            kept.marks.begin(since_1970);
        }
    }

    /// Takes the next packet of a capture, with what was captured of its payload.
    pub fn push(&mut self, packet: &Packet, payload: &[u8]) {
        self.mark(packet);
        let out = &mut self.out;
        let followed = self
            .table
            .push(packet, &mut |gone| Pairing::forget(gone, out));
        if let Some((connection, passed)) = followed {
            Pairing::push(connection, packet, payload, &passed, None, &mut self.out);
        }
        self.settle();
    }

    /// Takes the next record of a trace.
    pub fn record(&mut self, record: &TraceRecord) {
        match record {
            TraceRecord::Begin(begin) => self.begin(begin.started),
            TraceRecord::Connection(new) => {
                self.is_trace = true;
                // Its peer can be on this host.
                self.kept.get_or_insert_default();
                let ends = [new.local, new.remote].map(canonical);
                if self.sockets.len() < MOST_CONNECTIONS || self.sockets.contains_key(&new.id) {
                    let known = self.sockets.entry(new.id);
                    known.or_insert_with(|| TracedSocket::new(ends)).ends = ends;
                }
            }
            TraceRecord::Segment(segment) => self.segment(segment),
            TraceRecord::Lost(lost) => self.lost = self.lost.saturating_add(lost.events),
            _ => {}
        }
    }

    /// Of a trace: all its connections are closed.
    pub fn is_over(&self) -> bool {
        self.is_trace && self.sockets.is_empty()
    }

    fn segment(&mut self, segment: &Segment) {
        let Some(socket) = self.sockets.get_mut(&segment.connection) else {
            self.unfollowed += u64::from(self.sockets.len() >= MOST_CONNECTIONS);
            return;
        };
        let tcb = segment.probed();
        let write = socket.push(segment);
        let [local, remote] = socket.ends;
        let Some(packet) = Packet::of_segment(local, remote, segment) else {
            let closes = tcb.is_some_and(|socket| socket.state == tcp_state::CLOSE);
            if segment.what == What::State
                && closes
                && let Some(mut socket) = self.sockets.remove(&segment.connection)
            {
                socket.close(&mut self.out);
                self.settle();
            }
            return;
        };
        socket.packet(&packet, tcb, write, &mut self.out);
        self.mark(&packet);
        self.settle();
    }

    /// Remembers a packet for the clocks of two places.
    fn mark(&mut self, packet: &Packet) {
        if let Some(kept) = &mut self.kept {
            kept.marks.push(packet);
        }
    }

    /// Takes what is done: after most packets nothing is.
    #[inline]
    fn settle(&mut self) {
        if !self.out.unanswered.is_empty() || !self.out.done.is_empty() {
            self.take_done();
        }
    }

    #[inline(never)]
    fn take_done(&mut self) {
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
                    let breakdown = aggregate::from_one(&seen, self.out.view(&seen), &self.links);
                    self.aggregate.push(&seen, &breakdown);
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
        let out = &mut self.out;
        self.table.close(&mut |gone| Pairing::forget(gone, out));
        for mut socket in std::mem::take(&mut self.sockets).into_values() {
            socket.close(&mut self.out);
        }
        self.settle();
    }

    /// All requests.
    pub fn finish(mut self) -> Requests {
        self.close();
        let doubts = self.doubts();
        let aggregate = match self.kept.take() {
            None => self.aggregate,
            Some(kept) => {
                self.unanswered += kept.unanswered.len() as u64;
                // The peer of a connection may be on this host, and its socket in the trace too.
                let is_client = |(_, view): &(SeenRequest, Viewpoint)| *view == Viewpoint::Client;
                let all = with_views(kept.seen, &self.out);
                let (clients, servers) = all.into_iter().partition(is_client);
                aggregate::of_both(clients, servers, Some(&Clocks::default()), &self.links)
            }
        };
        let mut requests = aggregate.finish(self.unanswered, self.out.unread, self.links);
        requests.doubts.extend(doubts);
        requests.streams = streams(self.out);
        requests
    }

    /// What was left out.
    fn doubts(&self) -> Vec<String> {
        let more = self.kept.as_ref().map_or(0, |kept| kept.more);
        let doubts = [
            (self.unfollowed + self.table.unfollowed(), format!("packets belong to connections beyond the {MOST_CONNECTIONS} that are followed at a time")),
            (self.out.cut, "times the beginning of a message is not in the capture, which cut packets short or lost them: it is left out, and what follows it in its packet; tcpdump -s 0 captures whole packets".to_owned()),
            (self.out.unread, "replies answer calls that are not in the capture: their requests are left out".to_owned()),
            (more, format!("requests beyond the first {MOST_KEPT} were left out")),
            (self.lost, "events were lost by the trace: requests near them can be cut in two or look longer".to_owned()),
        ];
        let doubts = doubts.into_iter().filter(|(count, _)| *count > 0);
        let doubts = doubts.map(|(count, what)| format!("{count} {what}"));
        let nameless = self.is_trace.then(|| NAMELESS.to_owned());
        nameless.into_iter().chain(doubts).collect()
    }
}

/// Requests with where they were seen.
fn with_views(seen: Vec<SeenRequest>, out: &PairingOutput) -> Vec<(SeenRequest, Viewpoint)> {
    let with_view = |seen: SeenRequest| {
        let view = out.view(&seen);
        (seen, view)
    };
    seen.into_iter().map(with_view).collect()
}

/// The figures of all streams, now that it is known where they were seen.
fn streams(out: PairingOutput) -> Vec<StreamFigures> {
    let votes = out.votes;
    let placed = out.streams.into_iter().map(|(mut figures, trips)| {
        let (sender, receiver) = (figures.sender.ip(), figures.receiver.ip());
        figures.vantage = votes.vantage(sender, receiver);
        let near = trips.near(figures.vantage);
        figures.min_rtt = figures.min_rtt.map(|rtt| rtt + near);
        figures
    });
    placed.collect()
}

/// An IPv4 address as it stands in packets, however the socket names it.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The requests of two captures or traces of the same connections, reported together.
pub fn joined(mut a: RequestObserver, mut b: RequestObserver) -> Requests {
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
    let unread = a.out.unread.max(b.out.unread);
    let mut requests = aggregate.finish(unanswered, unread, a.links);
    match &clocks {
        None => requests.doubts.push(
            "no packet each way is in both captures: forward and reverse are each half of the RTT"
                .to_owned(),
        ),
        Some(clocks) => requests.doubts.extend(clocks.doubt()),
    }
    requests.doubts.extend(doubts);
    requests.clocks = clocks;
    requests
}
