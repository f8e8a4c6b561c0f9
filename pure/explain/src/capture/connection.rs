//! One connection: its handshake, where the capture stood, and its two directions.

use super::stream::{Frame, Half, Place};
use super::{Counted, Ends};
use crate::facts::Facts;
use model::Nanos;
use model::finding::{Explanation, Source};
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, FIN, RST, SYN};
use tcp::seq::before;
use tcp::thresholds::SYN_AGAIN;

/// Time from a host to the capture and back, by the whole round trip, below which it stood there.
const HERE: f64 = 0.1;
/// A half of fewer bytes than this part of the other is not explained: requests against their
/// replies, acknowledged writes.
const SMALL_WAY: u64 = 10;

/// The SYN of a connection that nothing else is known of.
pub(super) struct Asked {
    at: Nanos,
    seq: u32,
    mss: Option<u16>,
    wscale: Option<u8>,
    options_cut: bool,
    /// Its sender is the second of the ends.
    second: bool,
}

impl Asked {
    /// Of a packet that is nothing else.
    pub fn of(packet: &Packet, second: bool) -> Option<Asked> {
        let only = packet.flags & (SYN | ACK | FIN | RST) == SYN && packet.payload == 0;
        only.then_some(Asked {
            at: packet.at,
            seq: packet.seq,
            mss: packet.mss,
            wscale: packet.wscale,
            options_cut: packet.options_cut,
            second,
        })
    }

    /// Another packet comes.
    pub fn goes_on(
        &self,
        packet: &Packet,
        second: bool,
        spare: Option<Box<Connection>>,
    ) -> Box<Connection> {
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
        let mut connection = Connection::begin(&syn, self.second, spare);
        connection.see(&syn, self.second);
        connection
    }

    /// A SYN belongs to another connection, after this one.
    pub fn is_before(&self, syn: &Packet, second: bool) -> bool {
        self.second == second && self.seq != syn.seq
    }
}

/// What is looked at when it is forgotten comes first, as in [`Stream`](super::stream::Stream).
#[repr(C)]
pub(super) struct Connection {
    /// The client's, the server's.
    halves: [Half; 2],
    /// From the capture to either end and back by timestamps, where the handshake is missing.
    echoes: Option<Box<[Echo; 2]>>,
    /// The second of the ends is the client: who asked, or else who sent the first packet seen.
    client_is_second: bool,
    begun: Nanos,
    last: Nanos,
    syn: Option<Nanos>,
    syn_ack: Option<Nanos>,
    /// A SYN was sent again: which one was answered?
    unsure: bool,
    /// How often a SYN was.
    syns_again: u8,
    /// From the first SYN to its answer.
    opened: Option<Nanos>,
    /// From the capture to the client and back, and to the server and back: as the handshake showed it.
    away: [Option<Nanos>; 2],
    /// Where the capture stands by these, as seen from the client, from the server.
    places: [Place; 2],
    reset: bool,
    /// Both ends acknowledged all, or one reset it.
    over: bool,
}

/// One timestamp of an end on its way to the other and back (RFC 7323): from its first packet to the
/// first that echoes it.
#[derive(Default)]
struct Echo {
    last: Option<u32>,
    waiting: Option<(u32, Nanos)>,
    /// The shortest so far: to the other end and back.
    shortest: Option<Nanos>,
}

impl Connection {
    /// One in the memory of another that is forgotten, with that of its streams, if there is one.
    pub fn begin(packet: &Packet, second: bool, spare: Option<Box<Connection>>) -> Box<Connection> {
        let begun = Connection::new(packet, second);
        let Some(mut spare) = spare else {
            return Box::new(begun);
        };
        let streams = spare.halves.each_mut().map(Half::forget);
        *spare = begun;
        for (half, stream) in spare.halves.iter_mut().zip(streams) {
            half.spare = stream;
        }
        spare
    }

    fn new(packet: &Packet, second: bool) -> Connection {
        // A SYN-ACK comes from the server.
        let answers = packet.has(SYN) && packet.has(ACK);
        Connection {
            client_is_second: second != answers,
            halves: [Half::new(packet.at), Half::new(packet.at)],
            begun: packet.at,
            last: packet.at,
            syn: None,
            syn_ack: None,
            unsure: false,
            syns_again: 0,
            opened: None,
            away: [None; 2],
            echoes: None,
            places: Default::default(),
            reset: false,
            over: false,
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
        self.halves.iter_mut().for_each(Half::slim);
    }

    pub fn carries_data(&self) -> bool {
        self.halves.iter().any(|d| d.stream.is_some())
    }

    /// Asked for, and never answered.
    pub fn is_unanswered(&self) -> bool {
        self.syn.is_some() && self.syn_ack.is_none() && !self.carries_data()
    }

    pub fn bytes(&self) -> u64 {
        self.halves.iter().map(|half| half.bytes).sum()
    }

    /// Takes a packet. Whether the connection is over with it.
    pub fn see(&mut self, packet: &Packet, second: bool) -> bool {
        self.follow(packet, second);
        let ends = !self.over && (self.reset || self.halves.iter().all(|d| d.closed));
        if ends {
            self.over = true;
            self.halves.iter_mut().for_each(Half::settle);
        }
        ends
    }

    fn follow(&mut self, packet: &Packet, second: bool) {
        let side = usize::from(second != self.client_is_second);
        self.last = self.last.max(packet.at);
        self.reset |= packet.has(RST);
        if packet.has(SYN) {
            self.handshake(packet, side);
            self.halves[side].opens(packet);
            self.agree();
            if packet.has(ACK) {
                self.halves[1 - side].answered(packet.ack);
            }
            // Data may ride on it (RFC 7413).
            if packet.payload == 0 {
                return;
            }
        }
        if packet.has(ACK) && side == 0 && self.away[0].is_none() && !self.unsure {
            self.away[0] = self.syn_ack.map(|syn_ack| packet.at.since(syn_ack));
            self.locate();
        }
        let placed = self.away[0].is_some() && self.away[1].is_some();
        if !placed && packet.stamps.is_some() {
            self.echo(packet, side);
        }
        if self.halves[side].sends(packet) {
            self.agree();
        }
        let place = self.places[side];
        let [client, server] = &mut self.halves;
        let (own, peer) = match side {
            0 => (client, server),
            _ => (server, client),
        };
        if packet.has(FIN) {
            own.end = Some(packet.end());
        }
        if packet.payload > 0 {
            own.data(packet, place);
        }
        if packet.has(ACK) {
            peer.hears(packet, own.scale, place.total);
        }
    }

    /// Works out what both ends agreed on, after something more is known of it.
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
            let stamps = if half.stamped { 12 } else { 0 };
            half.segment = u32::from(announced.unwrap_or(0)).saturating_sub(stamps);
            half.scale = scale;
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

    /// Works out where the capture stands, after something more is known of it.
    fn locate(&mut self) {
        let away = self.away().map(Option::unwrap_or_default);
        let total = away[0] + away[1];
        self.places = away.map(|to_sender| Place {
            // At the sender an acknowledgement has arrived once it is seen.
            to_sender: match to_sender.0 as f64 <= HERE * total.0 as f64 {
                true => Nanos(0),
                false => to_sender,
            },
            total,
        });
    }

    /// From the capture to the client and back, and to the server and back.
    fn away(&self) -> [Option<Nanos>; 2] {
        match (self.away, &self.echoes) {
            ([Some(_), Some(_)], _) | (_, None) => self.away,
            // What the server echoes was on its way to the server.
            (_, Some(echoes)) => [echoes[1].shortest, echoes[0].shortest],
        }
    }

    pub fn counted(&self, ends: &Ends) -> impl Iterator<Item = Counted> {
        self.halves
            .iter()
            .zip([self.client_is_second, !self.client_is_second])
            .filter_map(|(half, second)| {
                let stream = half.stream.as_ref()?;
                Some(stream.counted(ends.end(second), ends.end(!second)))
            })
    }

    pub fn explain(self, ends: &Ends, more: &mut dyn FnMut(&mut Facts)) -> Vec<Explanation> {
        let away = self.away();
        let most = self.halves.iter().map(|half| half.bytes).max().unwrap_or(0);
        let by_handshake = self.away[0].is_some() && self.away[1].is_some();
        let scaled = self.halves.iter().all(|d| d.offered.is_some());
        let mut doubts = Vec::new();
        let source = match away {
            [Some(client), Some(server)] if (client + server).0 > 0 => Some([client, server]),
            _ => None,
        };
        match (by_handshake, scaled) {
            (true, true) => {}
            (_, true) => doubts.push("the handshake is not whole in the capture".to_owned()),
            (_, false) => doubts.push(
                "the handshake is not whole in the capture: the scale of the windows is not known"
                    .to_owned(),
            ),
        }
        let opened = self.opened;
        let segment = self.halves[0].segment;
        let seconds = [self.client_is_second, !self.client_is_second];
        let is_exchange = self.halves.iter().all(|half| half.stream.is_some());
        let mut told = Vec::new();
        for (side, half) in (0..).zip(self.halves) {
            let second: bool = seconds[side];
            let Some(stream) = half.stream.filter(|_| half.bytes >= most / SMALL_WAY) else {
                continue;
            };
            let place = source.map(|away: [Nanos; 2]| (away[side], away[0] + away[1]));
            let source = match place {
                Some((near, whole)) => match near.0 as f64 / whole.0 as f64 {
                    p if p <= HERE => Source::CaptureAtSender,
                    p if p >= 1.0 - HERE => Source::CaptureAtReceiver,
                    _ => Source::CaptureBetween,
                },
                None => Source::CaptureSomewhere,
            };
            let frame = Frame {
                from: ends.end(second),
                to: ends.end(!second),
                source,
                near: place.map(|(near, _)| near).unwrap_or_default(),
                total: place.map(|(_, total)| total).unwrap_or_default(),
                begun: self.begun,
                span: self.last.since(self.begun),
                opened,
                syns_again: self.syns_again,
                segment,
                is_exchange,
                doubts: doubts.clone(),
            };
            told.push(stream.explain(frame, more));
        }
        told
    }
}
