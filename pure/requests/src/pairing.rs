//! Which reply belongs to which call, on one connection.

use crate::direction::{Came, FoundMessage, OrderedBytes, Reassembly};
use crate::dissectors::{CallContent, Dissector, MessageRole};
use crate::message_timing::{MessageTiming, SegmentWait, Spare};
use model::packet::Packet;
use model::request::{Cause, Viewpoint};
use model::segment::tcp_flag::ACK;
use model::{Nanos, SocketValues, StreamFigures, Vantage};
use std::collections::VecDeque;
use std::net::SocketAddr;
use tcp::connection::Passed;
use tcp::stream::DataArrival;
use tcp::table::ForgottenConnection;
use tcp::thresholds::TIMESTAMPS;
use tcp::vantage::{Trips, VantageVotes};

/// Calls of one direction that wait for their replies.
const MOST_PENDING: usize = 1 << 12;
/// Replies that may still be retransmitted.
const MOST_TAILS: usize = 64;
/// Segments in which no message of the protocol of the port was found.
const MOST_TRIES: u32 = 64;
/// Streams whose figures are kept.
const MOST_STREAMS: usize = 1 << 16;

/// Bytes of the headers of IPv4 and TCP without options.
const HEADERS: u32 = 40;

/// The least port that Linux gives to those who connect (`ip_local_port_range`); other systems begin higher.
const EPHEMERAL: u16 = 32_768;

/// A connection; its requests are followed from its first data on.
pub(crate) type RequestConnection = tcp::connection::TcpConnection<Option<Box<Pairing>>, ()>;

/// A request that was answered, as one place saw it.
#[derive(Clone, Debug)]
pub(crate) struct SeenRequest {
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub what: CallContent,
    pub call: Box<MessageTiming>,
    pub reply: Box<MessageTiming>,
    /// From the place to the client and back, and to the server and back.
    pub near: Option<Nanos>,
    pub far: Option<Nanos>,
    /// The end that was traced: where it was seen, for certain.
    pub traced: Option<Viewpoint>,
    /// The largest packet of the call's way, and of the reply's.
    pub mtu: [u32; 2],
    pub key: Option<u64>,
}

struct PendingCall {
    key: Option<u64>,
    what: CallContent,
    call: Box<MessageTiming>,
    reply: Option<Box<MessageTiming>>,
    /// The server asked for its data.
    turn: bool,
}

/// What a trace reports beside a packet.
pub(crate) struct SocketContext<'a> {
    /// The address of the socket.
    pub local: SocketAddr,
    pub tcb: Option<&'a SocketValues>,
    /// What the data had waited for.
    pub wait: Option<SegmentWait>,
}

/// The calls and replies of a connection. The first of each pair is the client's.
pub(crate) struct Pairing {
    ends: [SocketAddr; 2],
    /// The account of the connection takes the server for the client.
    is_swapped: bool,
    directions: [Reassembly; 2],
    dissector: Option<Dissector>,
    /// Segments without a message of the protocol; `None`: there was one, so that it is waited for, however much of
    /// the connection is missing.
    tries: Option<u32>,
    /// Calls by who asks.
    pending: [VecDeque<PendingCall>; 2],
    /// Answered by this end; not all acknowledged.
    tails: [VecDeque<SeenRequest>; 2],
    /// It has voted where the observer stands.
    voted: bool,
    /// Of a trace.
    traced: Option<TracedSide>,
}

/// What a trace knows of its socket.
#[derive(Default)]
struct TracedSide {
    local: usize,
    min_rtt: Option<Nanos>,
    mtu: Option<u32>,
    /// Data that arrived twice, as the peer reported it.
    dsacks: u32,
}

/// What a connection gives to.
#[derive(Default)]
pub(crate) struct PairingOutput {
    pub done: Vec<SeenRequest>,
    /// Bytes that are held of all connections.
    pub room: usize,
    /// What no place of a request changes: the key of its call, and the number of its first byte.
    pub unanswered: Vec<(Option<u64>, u32)>,
    /// Replies without a call.
    pub unread: u64,
    /// How often it was cut off where the next message begins.
    pub cut: u64,
    pub spare: Spare,
    /// Where connections were seen.
    pub votes: VantageVotes,
    /// The streams of connections that are over, and the round trips to their senders.
    pub streams: Vec<(StreamFigures, Trips)>,
}

impl PairingOutput {
    /// Where a request was seen: one answer for all of two hosts.
    pub fn view(&self, seen: &SeenRequest) -> Viewpoint {
        let vantage = || self.votes.vantage(seen.client.ip(), seen.server.ip());
        seen.traced.unwrap_or_else(|| match vantage() {
            Vantage::AtSender => Viewpoint::Client,
            Vantage::AtReceiver => Viewpoint::Server,
            Vantage::Between => Viewpoint::Between,
            Vantage::Unknown => Viewpoint::Unknown,
        })
    }
}

/// The account of a connection, and where its requests go.
struct PairingTarget<'a> {
    connection: &'a RequestConnection,
    out: &'a mut PairingOutput,
}

impl Pairing {
    /// Takes a packet of a connection, and what was captured of its payload.
    pub fn push(
        connection: &mut RequestConnection,
        packet: &Packet,
        payload: &[u8],
        passed: &Passed,
        beside: Option<&SocketContext<'_>>,
        out: &mut PairingOutput,
    ) {
        let mut pairing = match connection.view.take() {
            Some(known) => known,
            None if passed.data.is_none() => return,
            None => Box::new(Pairing::new(connection, packet, passed.side)),
        };
        if let Some(beside) = beside {
            pairing.socket(beside, out);
        }
        let side = pairing.side(passed.side);
        let to = &mut PairingTarget { connection, out };
        if packet.has(ACK) {
            let is_dsack = passed.ack.is_some_and(|ack| ack.is_dsack);
            pairing.acknowledges(packet.at, side, is_dsack, to);
        }
        if let Some(arrival) = passed.data {
            let wait = match arrival {
                DataArrival::New => beside.and_then(|beside| beside.wait).unwrap_or_else(|| {
                    let stream = to.connection.stream(passed.side);
                    stream.map_or(Cause::Rate.into(), |own| own.stream.released.into())
                }),
                DataArrival::Retransmission => Cause::Retransmission.into(),
                _ => Cause::Rate.into(),
            };
            pairing.data(packet, payload, side, (arrival, wait), to);
        }
        connection.view = Some(pairing);
    }

    fn new(connection: &RequestConnection, packet: &Packet, side: usize) -> Pairing {
        let (from, to) = (packet.from, packet.to);
        let known = |port| Dissector::by_port(port).is_some();
        let from_server = match (known(from.port()), known(to.port())) {
            _ if connection.is_opened() => side == 1,
            (true, false) => true,
            (false, true) => false,
            // Who connects has a port that was given to it.
            _ => from.port() < EPHEMERAL && to.port() >= EPHEMERAL,
        };
        let ends = if from_server { [to, from] } else { [from, to] };
        let mut pairing = Pairing {
            ends,
            is_swapped: from_server != (side == 1),
            directions: Default::default(),
            dissector: Dissector::by_port(ends[1].port()),
            tries: Some(0),
            pending: Default::default(),
            tails: Default::default(),
            voted: false,
            traced: None,
        };
        if !connection.is_opened() {
            pairing.directions.iter_mut().for_each(|d| d.reader.lose());
        }
        pairing
    }

    /// The socket of a trace knows what the ends agreed.
    fn socket(&mut self, beside: &SocketContext<'_>, out: &mut PairingOutput) {
        let local = usize::from(beside.local != self.ends[0]);
        let traced = self.traced.get_or_insert_default();
        traced.local = local;
        let Some(tcb) = beside.tcb.filter(|tcb| tcb.min_rtt.0 > 0) else {
            return;
        };
        traced.min_rtt = Some(tcb.min_rtt);
        // The socket's MSS leaves out timestamps.
        traced.mtu = Some(tcb.mss.saturating_add(HEADERS + TIMESTAMPS));
        // The socket took an acknowledgement before the event that reports it.
        let is_dsack = std::mem::replace(&mut traced.dsacks, tcb.dsack_dups) < tcb.dsack_dups;
        if let Some(ack) = self.directions[local].position(tcb.snd_una) {
            self.acknowledged(local, ack, is_dsack, out);
        }
    }

    /// From a side of the account of the connection to that here, and back.
    fn side(&self, side: usize) -> usize {
        side ^ usize::from(self.is_swapped)
    }

    /// From the observer to an end and back.
    fn trip(&self, connection: &RequestConnection, end: usize) -> Option<Nanos> {
        let own = self.traced.as_ref();
        if own.is_some_and(|own| own.local == end) {
            return Some(Nanos(0));
        }
        let shown = connection.away()[self.side(end)];
        let sender = connection.stream(self.side(1 - end));
        let data = sender.and_then(|sender| sender.stream.min_rtt);
        // Comparing two at a time takes a fraction of the instructions of an iterator over the three.
        let least =
            |a: Option<Nanos>, b: Option<Nanos>| a.map_or(b, |a| Some(b.map_or(a, |b| a.min(b))));
        least(least(shown, data), own.and_then(|own| own.min_rtt))
    }

    /// The largest packet of IPv4 in a direction, as far as is known: an MSS leaves out 40 bytes of headers (RFC 9293,
    /// 3.7.1), and what data show leaves out timestamps as well.
    fn mtu(&self, connection: &RequestConnection, side: usize) -> u32 {
        let announced = connection.announced().map(|mss| u32::from(mss) + HEADERS);
        let sender = connection.stream(self.side(side));
        let data = || sender.map_or(0, |sender| sender.stream.mss(0) + HEADERS + TIMESTAMPS);
        let traced = self.traced.as_ref().and_then(|traced| traced.mtu);
        announced.or(traced).unwrap_or_else(|| data().max(1500))
    }

    /// What this end answered has arrived up to here; some of it twice (RFC 2883), so that it was not lost.
    fn acknowledged(&mut self, side: usize, ack: u64, twice: bool, out: &mut PairingOutput) {
        let tails = &mut self.tails[side];
        while let Some(tail) = tails.front_mut()
            && tail.reply.end <= ack
        {
            if twice {
                tail.reply.ignore_retransmissions();
            }
            out.done.extend(tails.pop_front());
        }
    }

    /// A packet of this end acknowledges what the other sent.
    fn acknowledges(&mut self, at: Nanos, side: usize, is_dsack: bool, to: &mut PairingTarget<'_>) {
        let Some(first) = self.tails[1 - side].front() else {
            return;
        };
        let ack = match self.acked(to.connection, 1 - side) {
            Some(ack) if first.reply.end <= ack => ack,
            _ => return,
        };
        let tails = self.tails[1 - side].iter();
        let arrived = tails.take_while(|tail| tail.reply.end <= ack).count();
        for n in 0..arrived {
            let reply = &self.tails[1 - side][n].reply;
            if reply.was_retransmitted() {
                // Sooner than a retransmission can have arrived: it was the first one (RFC 3522).
                let trip = self.trip(to.connection, side).unwrap_or_default();
                if at.since(reply.last).0 < trip.0 - trip.0 / 10 {
                    self.tails[1 - side][n].reply.ignore_retransmissions();
                }
            }
        }
        if self.traced.as_ref().is_none_or(|own| own.local == side) {
            self.acknowledged(1 - side, ack, is_dsack, to.out);
        }
    }

    /// Up to here the data of an end are acknowledged.
    fn acked(&self, connection: &RequestConnection, side: usize) -> Option<u64> {
        let acked = connection.stream(self.side(side))?.stream.acked;
        self.directions[side].position(acked)
    }

    fn data(
        &mut self,
        packet: &Packet,
        payload: &[u8],
        side: usize,
        (arrival, wait): (DataArrival, SegmentWait),
        to: &mut PairingTarget<'_>,
    ) {
        if let DataArrival::Duplicate | DataArrival::Probe | DataArrival::Stray = arrival {
            return;
        }
        let is_again = matches!(arrival, DataArrival::Retransmission);
        let account = self.side(side);
        let acked = to.connection.stream(account).map(|own| own.stream.acked);
        let begins = || to.connection.first(account);
        let known = (begins, acked);
        match self.directions[side].data(packet, payload, wait, known, &mut to.out.room) {
            Came::Next(ref piece, bytes) => {
                self.take(piece, bytes, side, to);
                while let Some((piece, bytes)) = self.directions[side].held(&mut to.out.room) {
                    self.take(&piece, &bytes, side, to);
                }
            }
            // Seen behind the sender: what the receiver has already does not make it later.
            Came::Again(begin, end)
                if is_again
                    && self.trip(to.connection, side) < self.trip(to.connection, 1 - side) =>
            {
                self.again(packet.at, begin, end, side);
            }
            Came::Again(..) | Came::Nothing => {}
        }
    }

    fn again(&mut self, at: Nanos, begin: u64, end: u64, side: usize) {
        let [client, server] = &mut self.pending;
        let (asked, answered) = match side {
            0 => (client, server),
            _ => (server, client),
        };
        let calls = asked.iter_mut().map(|p| &mut p.call);
        let replies = answered.iter_mut().filter_map(|p| p.reply.as_mut());
        let tails = self.tails[side].iter_mut().map(|tail| &mut tail.reply);
        let open = self.directions[side].reader.timing.iter_mut();
        for timing in calls.chain(replies).chain(tails).chain(open) {
            if timing.begin < end && begin < timing.end {
                timing.retransmitted(at);
            }
        }
    }

    fn take(
        &mut self,
        piece: &OrderedBytes,
        bytes: &[u8],
        side: usize,
        to: &mut PairingTarget<'_>,
    ) {
        let dissector = *self
            .dissector
            .get_or_insert_with(|| Dissector::guess(bytes));
        if dissector == Dissector::Plain {
            return self.plain(piece, side, to);
        }
        let (mut done, mut any) = (0, false);
        let mut read = |direction: &mut Reassembly, out: &mut PairingOutput| {
            let reader = &mut direction.reader;
            reader.read(dissector, piece, bytes, &mut done, side == 0, out)
        };
        while let Some(found) = read(&mut self.directions[side], to.out) {
            any = true;
            self.message(found, side, to);
        }
        self.tries = self.tries.filter(|_| !any);
        if let Some(tries) = &mut self.tries {
            *tries += u32::from(self.directions[side].reader.is_lost());
            if *tries > MOST_TRIES {
                self.dissector = Some(Dissector::Plain);
            }
        }
    }

    fn message(&mut self, found: FoundMessage, side: usize, to: &mut PairingTarget<'_>) {
        let Some(dissector) = &mut self.dissector else {
            return;
        };
        let FoundMessage { timing, body, cut } = found;
        let Some(message) = dissector.message(&body, side == 0) else {
            // No message of this protocol, if all of its head is there.
            match cut {
                true => self.directions[side].reader.takes_back(body),
                false => self.directions[side].reader.lose(),
            }
            return;
        };
        let of = match message.role {
            MessageRole::Call | MessageRole::MoreOfCall => side,
            _ => 1 - side,
        };
        let known = self.pending[of].iter().position(|p| p.key == message.key);
        match (message.role, known) {
            (MessageRole::Call, known) => {
                if known.is_some() || self.pending[of].len() == MOST_PENDING {
                    let before = self.pending[of].remove(known.unwrap_or(0));
                    to.out.unanswered.extend(before.map(|p| p.name()));
                }
                self.pending[of].push_back(PendingCall::new(message.key, message.what, timing));
            }
            (MessageRole::Turn, Some(n)) => self.pending[of][n].turn = true,
            (MessageRole::MoreOfCall, Some(n)) => {
                let pending = &mut self.pending[of][n];
                let wait = match std::mem::take(&mut pending.turn) {
                    true => Cause::Turn,
                    false => Cause::Application,
                };
                pending.call.join(*timing, wait);
            }
            (MessageRole::PartOfReply, Some(n)) => self.pending[of][n].reply(timing),
            (MessageRole::Reply, Some(n)) => {
                if let Some(mut pending) = self.pending[of].remove(n) {
                    pending.reply(timing);
                    pending.what.answered(&body);
                    self.answered(pending, of, to);
                }
            }
            (role, _) => {
                to.out.unread += u64::from(role == MessageRole::Reply);
                to.out.spare.take(timing);
            }
        }
        self.directions[side].reader.takes_back(body);
    }

    /// The reply to a call of side `of` is whole.
    fn answered(&mut self, mut pending: PendingCall, of: usize, to: &mut PairingTarget<'_>) {
        let Some(reply) = pending.reply else {
            return;
        };
        if pending.call.last > reply.first {
            pending.call.ignore_retransmissions();
        }
        let seen = SeenRequest {
            client: self.ends[of],
            server: self.ends[1 - of],
            what: pending.what,
            call: pending.call,
            reply,
            near: self.trip(to.connection, of),
            far: self.trip(to.connection, 1 - of),
            traced: self.traced.as_ref().map(|own| match own.local == of {
                true => Viewpoint::Client,
                false => Viewpoint::Server,
            }),
            mtu: [of, 1 - of].map(|side| self.mtu(to.connection, side)),
            key: pending.key,
        };
        self.vote(to);
        let tails = &mut self.tails[1 - of];
        if tails.len() == MOST_TAILS {
            to.out.done.extend(tails.pop_front());
        }
        tails.push_back(seen);
    }

    /// Of an unknown protocol: a request lasts until the server answers, its reply until the client asks again.
    fn plain(&mut self, piece: &OrderedBytes, side: usize, to: &mut PairingTarget<'_>) {
        let of = 0;
        if side == of {
            if self.pending[of].front().is_some_and(|p| p.reply.is_some())
                && let Some(whole) = self.pending[of].pop_front()
            {
                self.answered(whole, of, to);
            }
            match self.pending[of].front_mut() {
                Some(pending) => pending
                    .call
                    .take(piece.at, piece.length, piece.wait, true, true),
                None => {
                    let call = to.out.spare.of(piece, piece.since(), true);
                    self.pending[of].push_back(PendingCall::new(None, CallContent::plain(), call));
                }
            }
        } else if let Some(pending) = self.pending[of].front_mut() {
            match &mut pending.reply {
                Some(reply) => reply.take(piece.at, piece.length, piece.wait, true, false),
                // What waited to be sent before the call came is of the reply before.
                None => {
                    let begun = piece.since().max(pending.call.last);
                    pending.reply = Some(to.out.spare.of(piece, begun, false));
                }
            }
        }
    }

    /// Votes once where the observer stands.
    fn vote(&mut self, to: &mut PairingTarget<'_>) {
        if self.traced.is_none() && !std::mem::replace(&mut self.voted, true) {
            let away = [0, 1].map(|end| to.connection.away()[self.side(end)]);
            to.out.votes.take(self.ends.map(|end| end.ip()), away);
        }
    }

    /// A connection of a capture is forgotten. Its memory can be used again.
    pub fn forget(
        gone: ForgottenConnection<Option<Box<Pairing>>, ()>,
        out: &mut PairingOutput,
    ) -> Option<Box<RequestConnection>> {
        let mut connection = gone.connection;
        let second = connection.client_is_second();
        let ends = [second, !second].map(|second| gone.ends.end(second));
        for side in [0, 1] {
            let Some(own) = connection.stream(side) else {
                continue;
            };
            if out.streams.len() < MOST_STREAMS {
                let [from, to] = [ends[side], ends[1 - side]];
                let trips = &connection.trips[side];
                let figures = own.stream.figures(from, to, Vantage::Unknown, trips);
                out.streams.push((figures, *trips));
            }
        }
        if connection.view.is_none() {
            out.votes.take(ends.map(|end| end.ip()), connection.away());
        }
        Pairing::end(&mut connection, out);
        Some(connection)
    }

    /// A connection is over.
    pub fn end(connection: &mut RequestConnection, out: &mut PairingOutput) {
        if let Some(mut pairing) = connection.view.take() {
            pairing.close(PairingTarget { connection, out });
        }
    }

    /// Nothing more comes.
    fn close(&mut self, mut to: PairingTarget<'_>) {
        self.vote(&mut to);
        for (of, pending) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            for one in pending {
                match one.reply.is_some() && self.dissector == Some(Dissector::Plain) {
                    true => self.answered(one, of, &mut to),
                    false => to.out.unanswered.push(one.name()),
                }
            }
        }
        for (tails, direction) in self.tails.iter_mut().zip(&mut self.directions) {
            to.out.done.extend(tails.drain(..));
            direction.close(&mut to.out.room);
        }
    }
}

impl PendingCall {
    fn new(key: Option<u64>, what: CallContent, call: Box<MessageTiming>) -> PendingCall {
        PendingCall {
            key,
            what,
            call,
            reply: None,
            turn: false,
        }
    }

    fn name(&self) -> (Option<u64>, u32) {
        (self.key, self.call.seq)
    }

    fn reply(&mut self, more: Box<MessageTiming>) {
        match &mut self.reply {
            Some(reply) => reply.join(*more, Cause::Application),
            None => self.reply = Some(more),
        }
    }
}

impl Spare {
    /// A timing that begins with these bytes, and to wait for its turn at this moment.
    fn of(&mut self, piece: &OrderedBytes, begun: Nanos, call: bool) -> Box<MessageTiming> {
        let mut timing = self.timing(piece.seq, piece.begin, begun.min(piece.at));
        timing.take(piece.at, piece.length, piece.wait, true, call);
        timing
    }
}
