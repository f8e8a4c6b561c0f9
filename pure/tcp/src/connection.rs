//! One connection: its handshake, where it was observed, and its two directions.

use crate::seq::before;
use crate::stream::{
    Acknowledged, DataArrival, FollowedStream, HalfConnection, StreamView, Undelivered,
};
use crate::thresholds::{SYN_AGAIN, TIMESTAMPS};
use crate::vantage::Trips;
use model::Nanos;
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, FIN, RST, SYN};

/// The SYN of a connection that nothing else is known of.
pub(crate) struct PendingSyn {
    at: Nanos,
    seq: u32,
    mss: Option<u16>,
    wscale: Option<u8>,
    options_cut: bool,
    /// Its sender is the second of the ends.
    second: bool,
}

impl PendingSyn {
    /// Of a packet that is nothing else.
    pub fn of(packet: &Packet, second: bool) -> Option<PendingSyn> {
        let only = packet.flags & (SYN | ACK | FIN | RST) == SYN && packet.payload == 0;
        only.then_some(PendingSyn {
            at: packet.at,
            seq: packet.seq,
            mss: packet.mss,
            wscale: packet.wscale,
            options_cut: packet.options_cut,
            second,
        })
    }

    /// Another packet comes.
    pub fn goes_on<C: Default, S: StreamView>(
        &self,
        packet: &Packet,
        second: bool,
        spare: Option<Box<TcpConnection<C, S>>>,
    ) -> Box<TcpConnection<C, S>> {
        let (from, to) = match second == self.second {
            true => (packet.from, packet.to),
            false => (packet.to, packet.from),
        };
        let syn = Packet {
            at: self.at,
            seq: self.seq,
            flags: SYN,
            mss: self.mss,
            wscale: self.wscale,
            options_cut: self.options_cut,
            ..Packet::new(from, to)
        };
        let mut connection = TcpConnection::begin(&syn, self.second, spare);
        connection.opens(&syn, 0);
        connection
    }

    /// A SYN belongs to another connection, after this one.
    pub fn is_before(&self, syn: &Packet, second: bool) -> bool {
        self.second == second && self.seq != syn.seq
    }
}

/// What a packet was to its connection.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Its sender: 0 the client, 1 the server.
    pub side: usize,
    /// Its data, in the stream of its sender.
    pub data: Option<DataArrival>,
    /// Its acknowledgement of the peer's stream, if that carried data.
    pub ack: Option<Acknowledged>,
    /// The connection is over with it.
    pub over: bool,
}

/// A connection. What is looked at when it is forgotten comes first, as in [`Followed`].
#[repr(C)]
pub struct TcpConnection<C, S> {
    /// The client's, the server's.
    halves: [HalfConnection<S>; 2],
    /// From the observer to either end and back by timestamps, where the handshake is missing.
    echoes: Option<Box<[SynEcho; 2]>>,
    /// The second of the ends is the client: who asked, or else who sent the first packet seen.
    client_is_second: bool,
    /// The first packet.
    pub begun: Nanos,
    last: Nanos,
    syn: Option<Nanos>,
    syn_ack: Option<Nanos>,
    /// A SYN was retransmitted: which one was answered?
    unsure: bool,
    /// How often a SYN was retransmitted.
    pub syns_again: u8,
    /// From the first SYN to its answer.
    pub opened: Option<Nanos>,
    /// From the observer to the client and back, and to the server and back: as the handshake showed it.
    away: [Option<Nanos>; 2],
    /// The same as far as is known, for the client's and for the server's data.
    pub trips: [Trips; 2],
    reset: bool,
    over: bool,
    /// What the view keeps of it.
    pub view: C,
}

/// One timestamp of an end on its way to the other and back (RFC 7323): from its first packet to the first that
/// echoes it.
#[derive(Default)]
struct SynEcho {
    last: Option<u32>,
    waiting: Option<(u32, Nanos)>,
    /// The shortest RTT so far.
    shortest: Option<Nanos>,
}

impl<C: Default, S: StreamView> TcpConnection<C, S> {
    /// One in the memory of another that is forgotten, with that of its streams, if there is one.
    pub(crate) fn begin(
        packet: &Packet,
        second: bool,
        spare: Option<Box<TcpConnection<C, S>>>,
    ) -> Box<TcpConnection<C, S>> {
        let begun = TcpConnection::new(packet, second);
        let Some(mut spare) = spare else {
            return Box::new(begun);
        };
        let streams = spare.halves.each_mut().map(HalfConnection::forget);
        *spare = begun;
        for (half, stream) in spare.halves.iter_mut().zip(streams) {
            half.spare = stream;
        }
        spare
    }

    /// A connection that begins with this packet, sent by the second of its ends or by the first.
    pub fn new(packet: &Packet, second: bool) -> TcpConnection<C, S> {
        // A SYN-ACK comes from the server.
        let answers = packet.has(SYN) && packet.has(ACK);
        TcpConnection {
            client_is_second: second != answers,
            halves: [
                HalfConnection::new(packet.at),
                HalfConnection::new(packet.at),
            ],
            begun: packet.at,
            last: packet.at,
            syn: None,
            syn_ack: None,
            unsure: false,
            syns_again: 0,
            opened: None,
            away: [None; 2],
            echoes: None,
            trips: Default::default(),
            reset: false,
            over: false,
            view: C::default(),
        }
    }

    /// A SYN of the same ends belongs to another connection, after this one.
    pub fn is_before(&self, syn: &Packet, second: bool) -> bool {
        let side = usize::from(second != self.client_is_second);
        let over = self.reset || self.halves.iter().all(|d| d.end.is_some());
        over || self.halves[side].has_other_start(syn.seq)
    }

    /// Gives back memory that it does not need any more.
    pub fn slim(&mut self) {
        self.halves.iter_mut().for_each(HalfConnection::slim);
    }

    /// Either end sent data.
    pub fn carries_data(&self) -> bool {
        self.halves.iter().any(|d| d.followed.is_some())
    }

    /// Asked for, and never answered.
    pub fn is_unanswered(&self) -> bool {
        self.syn.is_some() && self.syn_ack.is_none() && !self.carries_data()
    }

    /// Bytes of both directions, seen or acknowledged unseen.
    pub fn bytes(&self) -> u64 {
        self.halves.iter().map(|half| half.bytes).sum()
    }

    /// Bytes of one direction.
    pub fn bytes_of(&self, side: usize) -> u64 {
        self.halves[side].bytes
    }

    /// The data of the client (0) or the server (1).
    pub fn stream(&self, side: usize) -> Option<&FollowedStream<S>> {
        self.halves[side].followed.as_deref()
    }

    /// The same, to be changed.
    #[inline]
    pub fn stream_mut(&mut self, side: usize) -> Option<&mut FollowedStream<S>> {
        self.halves[side].followed.as_deref_mut()
    }

    /// Takes the data of one direction out of it.
    pub fn take_stream(&mut self, side: usize) -> Option<Box<FollowedStream<S>>> {
        self.halves[side].followed.take()
    }

    /// What a side counts as sent, and of which nothing came.
    pub fn undelivered(&self, side: usize) -> Option<Undelivered> {
        self.halves[side].undelivered.as_deref().copied()
    }

    /// The second of the ends is the client.
    pub fn client_is_second(&self) -> bool {
        self.client_is_second
    }

    /// A packet of the client (0) or the server (1) was seen.
    pub fn saw(&self, side: usize) -> bool {
        self.halves[side].start().is_some()
    }

    /// A SYN or its answer was seen: who is the client is certain.
    pub fn is_opened(&self) -> bool {
        self.syn.or(self.syn_ack).is_some()
    }

    /// The sequence number of the first byte of a side, where that is known; else of its first packet.
    pub fn first(&self, side: usize) -> Option<u32> {
        self.halves[side].first()
    }

    /// From the first to the last packet.
    pub fn span(&self) -> Nanos {
        self.last.since(self.begun)
    }

    /// Bytes of a full segment, as both ends announced it; 0 if neither did.
    pub fn segment(&self) -> u32 {
        self.halves[0].segment
    }

    /// The MSS that both ends announced: the lesser one.
    pub fn announced(&self) -> Option<u16> {
        self.halves.iter().filter_map(|d| d.announced).min()
    }

    /// The window scale that an end uses, where it is known.
    pub fn scale(&self, side: usize) -> Option<u8> {
        self.halves[side].scale
    }

    /// A socket of the connection reports the window scales of client and server, which its packets need not show.
    pub fn reports_scales(&mut self, scales: [u8; 2]) {
        if self.halves.iter().any(|d| d.scale.is_none()) {
            for (half, scale) in self.halves.iter_mut().zip(scales) {
                half.offered = Some(Some(scale));
            }
            self.agree();
        }
    }

    /// The socket of one end (0 the client's) reports the bytes of a full segment, and the round trip.
    pub fn reports_path(&mut self, side: usize, mss: Option<u16>, rtt: Option<Nanos>) {
        // The kernel takes the options off (`tcp_rcv_synsent_state_process`); what is announced has them.
        let stamped = self.halves.iter().any(|d| d.is_stamped());
        let options = if stamped { TIMESTAMPS } else { 0 };
        let announced = mss.map(|mss| mss.saturating_add(options as u16));
        if announced.is_some() && announced != self.announced() {
            self.halves.iter_mut().for_each(|d| d.announced = announced);
            self.agree();
        }
        if rtt.is_some() && !self.is_whole() {
            self.away[side] = Some(Nanos(0));
            self.away[1 - side] = rtt;
            self.locate();
        }
    }

    /// The sequence number of an end's SYN, if that was seen.
    pub fn isn(&self, side: usize) -> Option<u32> {
        let syn = [self.syn, self.syn_ack][side];
        syn.and(self.halves[side].start())
            .map(|s| s.wrapping_sub(1))
    }

    /// Both SYNs are known, with their options.
    pub fn knows_options(&self) -> bool {
        self.halves.iter().all(|d| d.offered.is_some())
    }

    /// The handshake shows the round trips to both ends.
    pub fn is_whole(&self) -> bool {
        self.away.iter().all(Option::is_some)
    }

    /// From the observer to the client and back, and to the server and back.
    pub fn away(&self) -> [Option<Nanos>; 2] {
        match (self.away, &self.echoes) {
            ([Some(_), Some(_)], _) | (_, None) => self.away,
            // What the server echoes was on its way to the server.
            (_, Some(echoes)) => [echoes[1].shortest, echoes[0].shortest],
        }
    }

    /// Takes a packet.
    #[inline]
    pub fn push(&mut self, packet: &Packet, second: bool) -> Passed {
        let side = usize::from(second != self.client_is_second);
        let (data, ack) = self.follow(packet, side);
        let ends = !self.over && (self.reset || self.halves.iter().all(|d| d.closed));
        if ends {
            self.over = true;
            self.halves.iter_mut().for_each(HalfConnection::settle);
        }
        Passed {
            side,
            data,
            ack,
            over: ends,
        }
    }

    #[inline]
    fn follow(
        &mut self,
        packet: &Packet,
        side: usize,
    ) -> (Option<DataArrival>, Option<Acknowledged>) {
        self.last = self.last.max(packet.at);
        if packet.has(RST) {
            self.reset = true;
        }
        if packet.has(SYN) {
            self.opens(packet, side);
            // Data may ride on it (RFC 7413).
            if packet.payload == 0 {
                return (None, None);
            }
        }
        // The handshake is over, as a rule.
        if !self.is_whole() {
            self.shows_trips(packet, side);
        }
        if self.halves[side].sends(packet) {
            self.agree();
        }
        let (trips, trips_back) = (&self.trips[side], &self.trips[1 - side]);
        let [client, server] = &mut self.halves;
        let (own, peer) = match side {
            0 => (client, server),
            _ => (server, client),
        };
        if packet.has(FIN) {
            own.end = Some(packet.end());
        }
        let data = (packet.payload > 0).then(|| own.data(packet, trips));
        if data.is_none() && packet.flags & (FIN | RST) == 0 {
            own.bare(packet);
        }
        // The window of a reset says nothing: it is 0 as a rule.
        let ack = match packet.has(ACK) && !packet.has(RST) {
            true => peer.on_ack(packet, own.scale, trips_back),
            false => None,
        };
        (data, ack)
    }

    /// A packet from which the round trips to both ends may be known.
    #[inline(never)]
    fn shows_trips(&mut self, packet: &Packet, side: usize) {
        if self.away[0].is_none() && packet.has(ACK) && side == 0 && !self.unsure {
            self.away[0] = self.syn_ack.map(|syn_ack| packet.at.since(syn_ack));
            self.locate();
        }
        if !self.is_whole() {
            self.echo(packet, side);
        }
    }

    /// A SYN.
    #[inline(never)]
    fn opens(&mut self, syn: &Packet, side: usize) {
        self.handshake(syn, side);
        self.halves[side].opens(syn);
        self.halves[1 - side].may_send(syn.window);
        if syn.has(ACK) {
            self.halves[1 - side].answered(syn.ack);
            if syn.stamps.is_some() {
                self.halves.iter_mut().for_each(HalfConnection::stamps);
            }
        }
        self.agree();
    }

    /// Works out what both ends agreed on, after something more is known of it.
    #[inline(never)]
    fn agree(&mut self) {
        let [client, server] = &mut self.halves;
        let announced = client.announced.into_iter().chain(server.announced).min();
        // The scale holds only if both offered one (RFC 7323, 2.2).
        let scales = match (client.offered, server.offered) {
            (Some(None), _) | (_, Some(None)) => [Some(0); 2],
            (Some(client), Some(server)) => [client, server],
            _ => [None; 2],
        };
        for (half, scale) in self.halves.iter_mut().zip(scales) {
            half.agrees(announced, scale);
        }
    }

    fn handshake(&mut self, packet: &Packet, side: usize) {
        let again = |first: Nanos| packet.at.since(first) > SYN_AGAIN;
        match (packet.has(ACK), side, self.syn, self.syn_ack) {
            (false, 0, None, _) => self.syn = Some(packet.at),
            (false, 0, Some(first), None) | (true, 1, _, Some(first)) => {
                self.unsure |= again(first);
                self.syns_again = self.syns_again.saturating_add(again(first).into());
            }
            (true, 1, syn, None) => {
                self.syn_ack = Some(packet.at);
                self.opened = syn.map(|syn| packet.at.since(syn));
                self.away[1] = self.opened.filter(|_| !self.unsure);
                self.unsure = false;
                self.locate();
            }
            _ => {}
        }
    }

    fn echo(&mut self, packet: &Packet, side: usize) {
        let Some((value, echoed)) = packet.stamps else {
            return;
        };
        let mut news = self.echoes.is_none();
        let [client, server] = &mut **self.echoes.get_or_insert_default();
        let (own, peer) = match side {
            0 => (client, server),
            _ => (server, client),
        };
        // Only the first packet of a tick: an earlier one's answer would seem to come too soon.
        let fresh = own.last.is_some_and(|last| last != value);
        if fresh && own.waiting.is_none() {
            own.waiting = Some((value, packet.at));
        }
        own.last = Some(value);
        if let Some((waits, since)) = peer.waiting
            && packet.has(ACK)
            && !before(echoed, waits)
        {
            let took = packet.at.since(since);
            peer.shortest = Some(peer.shortest.map_or(took, |s| s.min(took)));
            peer.waiting = None;
            news = true;
        }
        if news {
            self.locate();
        }
    }

    /// Works out where the observer stands, after something more is known of it.
    #[inline(never)]
    fn locate(&mut self) {
        let away = self.away();
        self.trips = [Trips::of(away), Trips::of([away[1], away[0]])];
    }
}
