//! One connection: which reply belongs to which call.

use crate::digest::is_here;
use crate::passage::{Passage, Spare, Wait};
use crate::way::{Came, Found, Piece, Way};
use crate::wires::{Role, What, Wire};
use model::Nanos;
use model::SocketValues;
use model::packet::Packet;
use model::request::Cause;
use model::segment::tcp_flag::{ACK, FIN, RST, SYN};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Calls of one direction that wait for their replies.
const MOST_PENDING: usize = 1 << 12;
/// Replies that may still be sent again.
const MOST_TAILS: usize = 64;
/// Segments in which no message of the protocol of the port was found.
const MOST_TRIES: u32 = 64;

/// The least port that Linux gives to those who connect (`ip_local_port_range`); other systems begin higher.
const EPHEMERAL: u16 = 32_768;

/// A request that was answered, as one place saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub what: What,
    pub call: Box<Passage>,
    pub reply: Box<Passage>,
    /// From the place to the client and back, and to the server and back.
    pub near: Option<Nanos>,
    pub far: Option<Nanos>,
    /// The largest packet of the call's way, and of the reply's.
    pub mtu: [u32; 2],
    pub key: Option<u64>,
}

struct Pending {
    key: Option<u64>,
    what: What,
    call: Box<Passage>,
    reply: Option<Box<Passage>>,
    /// The server asked for its data.
    turn: bool,
}

/// What a trace tells beside a packet.
pub(crate) struct Beside<'a> {
    /// The end that is traced.
    pub local: SocketAddr,
    pub tcb: Option<&'a SocketValues>,
    /// What the data had waited for.
    pub wait: Option<Wait>,
}

/// One connection. The first of each pair is the client's: who opened it.
pub(crate) struct Connection {
    pub ends: [SocketAddr; 2],
    ways: [Way; 2],
    wire: Option<Wire>,
    /// Segments without a message of the protocol; `None`: there was one, so that it is waited for, however much of
    /// the connection is missing.
    tries: Option<u32>,
    /// Calls by who asks.
    pending: [VecDeque<Pending>; 2],
    /// Answered by this end; not all acknowledged.
    tails: [VecDeque<Seen>; 2],
    /// Window scales offered: `None` while unknown, `Some(None)` if none was.
    scales: [Option<Option<u8>>; 2],
    syn: [Option<Nanos>; 2],
    ended: [bool; 2],
    /// Of a trace: which end it is of, and how often that was told that data came twice.
    local: Option<usize>,
    twice: u32,
}

/// What a connection gives to.
#[derive(Default)]
pub(crate) struct Out {
    pub done: Vec<Seen>,
    /// Bytes that are held of all connections.
    pub room: usize,
    /// What no place of a request changes: the key of its call, and the number of its first byte.
    pub unanswered: Vec<(Option<u64>, u32)>,
    /// Replies without a call.
    pub unread: u64,
    /// How often it was cut off where the next message begins.
    pub cut: u64,
    pub spare: Spare,
}

impl Connection {
    pub fn new(packet: &Packet) -> Connection {
        let (from, to) = (packet.from, packet.to);
        let opens = packet.has(SYN);
        let known = |port| Wire::by_port(port).is_some();
        let from_server = match (opens, known(from.port()), known(to.port())) {
            (true, ..) => packet.has(ACK),
            (_, true, false) => true,
            (_, false, true) => false,
            // Who connects has a port that was given to it.
            _ => from.port() < EPHEMERAL && to.port() >= EPHEMERAL,
        };
        let ends = if from_server { [to, from] } else { [from, to] };
        let mut connection = Connection {
            ends,
            ways: Default::default(),
            wire: Wire::by_port(ends[1].port()),
            tries: Some(0),
            pending: Default::default(),
            tails: Default::default(),
            scales: [None; 2],
            syn: [None; 2],
            ended: [false; 2],
            local: None,
            twice: 0,
        };
        if !opens {
            connection.ways.iter_mut().for_each(|way| way.reader.lose());
        }
        connection
    }

    /// Whether a packet is of these ends.
    pub fn has(&self, packet: &Packet) -> bool {
        let side = self.side(packet);
        packet.from == self.ends[side] && packet.to == self.ends[1 - side]
    }

    /// Which end sent a packet.
    fn side(&self, packet: &Packet) -> usize {
        usize::from(packet.from != self.ends[0])
    }

    pub fn is_over(&self) -> bool {
        self.ended == [true; 2]
    }

    /// A SYN of the same ends is another connection's.
    pub fn is_before(&self, packet: &Packet) -> bool {
        let side = self.side(packet);
        let way = &self.ways[side];
        packet.has(SYN)
            && !packet.has(ACK)
            && way.place(packet.seq.wrapping_add(1)) != Some(way.first())
    }

    /// The next packet, and what a trace tells beside it.
    pub fn see(
        &mut self,
        packet: &Packet,
        payload: &[u8],
        beside: Option<&Beside<'_>>,
        out: &mut Out,
    ) {
        let side = self.side(packet);
        if let Some(beside) = beside {
            self.traced(beside, out);
        }
        if packet.has(SYN) {
            self.opens(packet, side);
        }
        if packet.has(ACK) {
            self.hears(packet, side, out);
        }
        if packet.payload > 0 {
            let wait = beside.and_then(|beside| beside.wait);
            self.data(packet, payload, side, wait, out);
        }
        self.ended[side] |= packet.has(FIN);
        if packet.has(RST) {
            self.ended = [true; 2];
        }
    }

    /// A trace is at one end, and knows what the ends agreed.
    fn traced(&mut self, beside: &Beside<'_>, out: &mut Out) {
        let local = usize::from(beside.local != self.ends[0]);
        self.local = Some(local);
        self.ways[1 - local].sender.took(Nanos(0));
        let Some(tcb) = beside.tcb.filter(|tcb| tcb.min_rtt.0 > 0) else {
            return;
        };
        self.scales[local] = Some(Some(tcb.rcv_wscale));
        self.scales[1 - local] = Some(Some(tcb.snd_wscale));
        let way = &mut self.ways[local];
        // The socket's own leaves out timestamps.
        way.sender
            .announced(u16::try_from(tcb.mss.saturating_add(12)).ok());
        way.sender.took(tcb.min_rtt);
        // What an acknowledgement told the socket stands beside the event behind it.
        let twice = std::mem::replace(&mut self.twice, tcb.dsack_dups) < tcb.dsack_dups;
        if let Some(ack) = way.place(tcb.snd_una) {
            self.acknowledged(local, ack, twice, out);
        }
    }

    /// What this end answered has arrived up to here; some of it twice (RFC 2883), so that it was not lost.
    fn acknowledged(&mut self, side: usize, ack: u64, twice: bool, out: &mut Out) {
        let tails = &mut self.tails[side];
        while let Some(tail) = tails.front_mut()
            && tail.reply.end <= ack
        {
            if twice {
                tail.reply.not_again();
            }
            out.done.extend(tails.pop_front());
        }
    }

    fn opens(&mut self, packet: &Packet, side: usize) {
        let again = self.syn[side].is_some();
        self.scales[side] = match packet.options_cut && packet.wscale.is_none() {
            true => None,
            false => Some(packet.wscale),
        };
        self.ways[1 - side].sender.announced(packet.mss);
        if again {
            return;
        }
        self.syn[side] = Some(packet.at);
        self.ways[side].opens(packet.seq.wrapping_add(1));
        if let (1, Some(syn)) = (side, self.syn[0]) {
            self.ways[0].sender.took(packet.at.since(syn));
        }
    }

    fn hears(&mut self, packet: &Packet, side: usize, out: &mut Out) {
        // The end of the handshake: the client's answer to the SYN-ACK.
        if side == 0
            && let Some(syn_ack) = self.syn[1]
            && self.ways[1].sender.trip.is_none()
        {
            self.ways[1].sender.took(packet.at.since(syn_ack));
        }
        let scale = match (self.scales[side], self.scales[1 - side]) {
            _ if packet.has(SYN) => Some(0),
            (Some(None), _) | (_, Some(None)) => Some(0),
            (Some(scale), Some(_)) => scale,
            _ => None,
        };
        let way = &mut self.ways[1 - side];
        let Some(ack) = way.place(packet.ack) else {
            return;
        };
        let edge = scale.map(|scale| ack + (u64::from(packet.window) << scale));
        way.sender.hears(packet.at, ack, edge);
        let twice = packet.sack.and_then(|(left, _)| way.place(left));
        let twice = twice.is_some_and(|left| left < ack);
        // Sooner than what was sent again can have been there: it was the first one that arrived (RFC 3522).
        let trip = way.sender.trip.unwrap_or_default();
        let tails = self.tails[1 - side].iter_mut();
        for tail in tails.take_while(|tail| tail.reply.end <= ack) {
            if packet.at.since(tail.reply.last).0 < trip.0 - trip.0 / 10 {
                tail.reply.not_again();
            }
        }
        if self.local != Some(1 - side) {
            self.acknowledged(1 - side, ack, twice, out);
        }
    }

    fn data(
        &mut self,
        packet: &Packet,
        payload: &[u8],
        side: usize,
        wait: Option<Wait>,
        out: &mut Out,
    ) {
        let [near, far] = [1 - side, side].map(|way| self.ways[way].sender.trip);
        // At the sender there is no way to it, only what its host takes.
        let at_sender = |near: &Nanos| far.is_some_and(|far| is_here(*near, far));
        let near = near.map(|near| if at_sender(&near) { Nanos(0) } else { near });
        match self.ways[side].data(packet, payload, near, wait, &mut out.room) {
            Came::Next(ref piece, bytes) => {
                self.take(piece, bytes, side, out);
                while let Some((piece, bytes)) = self.ways[side].held(&mut out.room) {
                    self.take(&piece, &bytes, side, out);
                }
            }
            // Seen behind the sender: what the receiver has already does not make it later.
            Came::Again(begin, end) if near < far => self.again(packet.at, begin, end, side),
            Came::Again(..) | Came::Nothing => {}
        }
    }

    fn again(&mut self, at: Nanos, begin: u64, end: u64, side: usize) {
        let [client, server] = &mut self.pending;
        let (asked, answered) = if side == 0 {
            (client, server)
        } else {
            (server, client)
        };
        let calls = asked.iter_mut().map(|p| &mut p.call);
        let replies = answered.iter_mut().filter_map(|p| p.reply.as_mut());
        let tails = self.tails[side].iter_mut().map(|tail| &mut tail.reply);
        let open = self.ways[side].reader.passage.iter_mut();
        for passage in calls.chain(replies).chain(tails).chain(open) {
            if passage.begin < end && begin < passage.end {
                passage.again(at);
            }
        }
    }

    fn take(&mut self, piece: &Piece, bytes: &[u8], side: usize, out: &mut Out) {
        let wire = *self.wire.get_or_insert_with(|| Wire::guess(bytes));
        if wire == Wire::Plain {
            return self.plain(piece, side, out);
        }
        let (mut done, mut any) = (0, false);
        let mut read = |way: &mut Way, out: &mut Out| {
            let reader = &mut way.reader;
            reader.read(wire, piece, bytes, &mut done, side == 0, out)
        };
        while let Some(found) = read(&mut self.ways[side], out) {
            any = true;
            self.message(found, side, out);
        }
        self.tries = self.tries.filter(|_| !any);
        if let Some(tries) = &mut self.tries {
            *tries += u32::from(self.ways[side].reader.is_lost());
            if *tries > MOST_TRIES {
                self.wire = Some(Wire::Plain);
            }
        }
    }

    fn message(&mut self, found: Found, side: usize, out: &mut Out) {
        let Some(wire) = &mut self.wire else {
            return;
        };
        let Found { passage, body, cut } = found;
        let Some(message) = wire.message(&body, side == 0) else {
            // No message of this protocol, if all of its head is there.
            match cut {
                true => self.ways[side].reader.takes_back(body),
                false => self.ways[side].reader.lose(),
            }
            return;
        };
        let of = match message.role {
            Role::Call | Role::MoreOfCall => side,
            _ => 1 - side,
        };
        let known = self.pending[of].iter().position(|p| p.key == message.key);
        match (message.role, known) {
            (Role::Call, known) => {
                if known.is_some() || self.pending[of].len() == MOST_PENDING {
                    let before = self.pending[of].remove(known.unwrap_or(0));
                    out.unanswered.extend(before.map(|p| p.name()));
                }
                self.pending[of].push_back(Pending {
                    key: message.key,
                    what: message.what,
                    call: passage,
                    reply: None,
                    turn: false,
                });
            }
            (Role::Turn, Some(n)) => self.pending[of][n].turn = true,
            (Role::MoreOfCall, Some(n)) => {
                let pending = &mut self.pending[of][n];
                let wait = match std::mem::take(&mut pending.turn) {
                    true => Cause::Turn,
                    false => Cause::Application,
                };
                pending.call.join(*passage, wait);
            }
            (Role::PartOfReply, Some(n)) => self.pending[of][n].reply(passage),
            (Role::Reply, Some(n)) => {
                if let Some(mut pending) = self.pending[of].remove(n) {
                    pending.reply(passage);
                    pending.what.answered(&body);
                    self.answered(pending, of, out);
                }
            }
            (role, _) => {
                out.unread += u64::from(role == Role::Reply);
                out.spare.take(passage);
            }
        }
        self.ways[side].reader.takes_back(body);
    }

    /// The reply to a call of side `of` is whole.
    fn answered(&mut self, mut pending: Pending, of: usize, out: &mut Out) {
        let Some(reply) = pending.reply else {
            return;
        };
        if pending.call.last > reply.first {
            pending.call.not_again();
        }
        let seen = Seen {
            client: self.ends[of],
            server: self.ends[1 - of],
            what: pending.what,
            call: pending.call,
            reply,
            near: self.ways[1 - of].sender.trip,
            far: self.ways[of].sender.trip,
            mtu: [of, 1 - of].map(|way| self.ways[way].sender.mtu()),
            key: pending.key,
        };
        let tails = &mut self.tails[1 - of];
        if tails.len() == MOST_TAILS {
            out.done.extend(tails.pop_front());
        }
        tails.push_back(seen);
    }

    /// Of an unknown protocol: a request lasts until the server answers, its reply until the client asks again.
    fn plain(&mut self, piece: &Piece, side: usize, out: &mut Out) {
        let of = 0;
        if side == of {
            if self.pending[of].front().is_some_and(|p| p.reply.is_some())
                && let Some(whole) = self.pending[of].pop_front()
            {
                self.answered(whole, of, out);
            }
            match self.pending[of].front_mut() {
                Some(pending) => pending
                    .call
                    .take(piece.at, piece.length, piece.wait, true, true),
                None => self.pending[of].push_back(Pending {
                    key: None,
                    what: What::plain(),
                    call: out.spare.of(piece, piece.since(), true),
                    reply: None,
                    turn: false,
                }),
            }
        } else if let Some(pending) = self.pending[of].front_mut() {
            match &mut pending.reply {
                Some(reply) => reply.take(piece.at, piece.length, piece.wait, true, false),
                // What waited to be sent before the call came is of the reply before.
                None => {
                    let begun = piece.since().max(pending.call.last);
                    pending.reply = Some(out.spare.of(piece, begun, false));
                }
            }
        }
    }

    /// Nothing more comes.
    pub fn close(&mut self, out: &mut Out) {
        for (of, pending) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            for one in pending {
                match one.reply.is_some() && self.wire == Some(Wire::Plain) {
                    true => self.answered(one, of, out),
                    false => out.unanswered.push(one.name()),
                }
            }
        }
        for (tails, way) in self.tails.iter_mut().zip(&mut self.ways) {
            out.done.extend(tails.drain(..));
            way.close(&mut out.room);
        }
    }
}

impl Pending {
    fn name(&self) -> (Option<u64>, u32) {
        (self.key, self.call.seq)
    }

    fn reply(&mut self, more: Box<Passage>) {
        match &mut self.reply {
            Some(reply) => reply.join(*more, Cause::Application),
            None => self.reply = Some(more),
        }
    }
}

impl Spare {
    /// A passage that begins with these bytes, and to wait for its turn at this moment.
    fn of(&mut self, piece: &Piece, begun: Nanos, call: bool) -> Box<Passage> {
        let mut passage = self.passage(piece.seq, piece.begin, begun.min(piece.at));
        passage.take(piece.at, piece.length, piece.wait, true, call);
        passage
    }
}
