//! From captured packets: a machine for each connection that takes them as they come. Its memory is that
//! of what is in flight.
//!
//! What the sender saw is reckoned from where the capture stood. A data packet that passes now was sent
//! when the acknowledgements of half a round trip earlier had reached the sender: so each acknowledgement
//! counts only after the time from here to the sender and back. At the sender that is none, at the
//! receiver a whole round trip.

use crate::assemble::{Subject, assemble};
use crate::facts::{Facts, Loss, MOST_LOSSES, Reading};
use crate::limits::RECEIVE_WINDOW_FULL;
use crate::moment::{self, Piece};
use model::finding::{Explanation, Limit, Source};
use model::packet::Packet;
use model::segment::before;
use model::segment::tcp_flag::{ACK, FIN, RST, SYN};
use model::{Bytes, Nanos};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Connections that are followed; what belongs to others is only counted.
const MOST_CONNECTIONS: usize = 1 << 20;
/// Packets of one direction that are remembered until they are acknowledged.
const MOST_OUT: usize = 1 << 16;
/// Gaps in the sequence that are remembered.
const MOST_GAPS: usize = 256;
/// A reading is no shorter than this.
const SHORTEST_READING: Nanos = Nanos::from_millis(5);
/// Time from a host to the capture and back, by the whole round trip, below which it stood there.
const HERE: f64 = 0.1;
/// A wait for an acknowledgement that is longer than this and ends in a retransmission was a timeout
/// (`TCP_RTO_MIN` is 200 ms).
const TIMEOUT: Nanos = Nanos::from_millis(190);
/// A gap that is filled sooner than this part of a round trip was reordering: no retransmission could
/// have come by then.
const TOO_SOON: u64 = 2;
/// A connection of fewer bytes one way is not explained that way.
const FEWEST_BYTES: u64 = 1;

/// Follows the connections of a capture.
#[derive(Default)]
pub struct Observer {
    index: BTreeMap<(SocketAddr, SocketAddr), usize>,
    flows: Vec<Flow>,
    /// The connection of the packet before: most often that of the next one.
    last: Option<((SocketAddr, SocketAddr), usize)>,
    unfollowed: u64,
}

/// Figures of one direction of a connection, as they were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Sender.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// Data packets.
    pub packets: u64,
    /// Payload, retransmissions included.
    pub bytes: Bytes,
    /// Sequence space between the first and the last byte.
    pub range: u64,
    /// Data packets that were sent again.
    pub retransmitted: u64,
    /// Data packets that were overtaken.
    pub out_of_order: u64,
    /// Bytes that were acknowledged and never seen: the capture lost them.
    pub unseen: Bytes,
    /// Shortest time from a data packet to its acknowledgement.
    pub min_rtt: Option<Nanos>,
    /// The mean of these times.
    pub mean_rtt: Option<Nanos>,
}

impl Observer {
    /// None yet.
    pub fn new() -> Observer {
        Observer::default()
    }

    /// Takes the next packet.
    pub fn see(&mut self, packet: &Packet) {
        let key = if packet.from <= packet.to {
            (packet.from, packet.to)
        } else {
            (packet.to, packet.from)
        };
        let n = match self.last {
            Some((last, n)) if last == key => n,
            _ => match self.find(key, packet) {
                Some(n) => n,
                None => {
                    self.unfollowed += 1;
                    return;
                }
            },
        };
        self.last = Some((key, n));
        let flow = &mut self.flows[n];
        // The same addresses again: a connection after the one that ended.
        if packet.has(SYN) && !packet.has(ACK) && flow.is_over() {
            let mut next = Flow::new(packet);
            next.see(packet);
            self.index.insert(key, self.flows.len());
            self.last = Some((key, self.flows.len()));
            self.flows.push(next);
        } else {
            flow.see(packet);
        }
    }

    fn find(&mut self, key: (SocketAddr, SocketAddr), packet: &Packet) -> Option<usize> {
        if let Some(n) = self.index.get(&key) {
            return Some(*n);
        }
        if self.flows.len() >= MOST_CONNECTIONS {
            return None;
        }
        let n = self.flows.len();
        self.index.insert(key, n);
        self.flows.push(Flow::new(packet));
        Some(n)
    }

    /// The figures of every direction that carried data, in the order of their first packets.
    pub fn counted(&self) -> Vec<Counted> {
        let halves = self.flows.iter().flat_map(|f| &f.halves);
        halves
            .filter(|half| half.bytes > 0)
            .map(|half| Counted {
                from: half.from,
                to: half.to,
                packets: half.packets,
                bytes: Bytes(half.bytes),
                range: half.range,
                retransmitted: half.retransmitted,
                out_of_order: half.out_of_order,
                unseen: Bytes(half.unseen),
                min_rtt: half.min_rtt,
                mean_rtt: (half.rtts > 0).then(|| Nanos(half.rtt_sum / half.rtts)),
            })
            .collect()
    }

    /// Explains each direction that carried data; of a connection with much more one way, that way alone.
    pub fn explain(self) -> Vec<Explanation> {
        let mut told: Vec<Explanation> = Vec::new();
        for flow in self.flows {
            told.extend(flow.explain());
        }
        if let Some(first) = told.first_mut()
            && self.unfollowed > 0
        {
            first.doubts.push(format!(
                "{} packets of more than {MOST_CONNECTIONS} connections were left out",
                self.unfollowed
            ));
        }
        told
    }
}

/// A connection.
struct Flow {
    /// The first is that of the packet seen first; of a whole handshake the client's.
    halves: [Half; 2],
    begun: Nanos,
    last: Nanos,
    syn: Option<Nanos>,
    syn_ack: Option<Nanos>,
    /// From the capture to the server and back, and to the client and back.
    to_server: Option<Nanos>,
    to_client: Option<Nanos>,
    reset: bool,
}

/// One direction of a connection.
struct Half {
    from: SocketAddr,
    to: SocketAddr,
    /// Scale of the window that this end advertises.
    wscale: Option<u8>,
    mss: u32,
    begun: bool,
    /// Behind the last byte seen.
    next: u32,
    /// Behind the last byte that the peer acknowledged.
    acked: u32,
    /// What the sender knew when the packets that pass now left: the acknowledgement and the window.
    known: (u32, u64),
    /// Acknowledgements on their way to the sender.
    coming: VecDeque<(Nanos, u32, u64)>,
    out: VecDeque<Out>,
    gaps: VecDeque<(u32, u32, Nanos)>,
    packets: u64,
    bytes: u64,
    range: u64,
    retransmitted: u64,
    out_of_order: u64,
    unseen: u64,
    needless: u64,
    marked: u64,
    min_rtt: Option<Nanos>,
    srtt: Nanos,
    rtts: u64,
    rtt_sum: u64,
    last_data: Nanos,
    last_heard: Nanos,
    finished: bool,
    facts: Facts,
    pieces: Vec<Piece>,
    reading: Reading,
    /// Time with nothing in flight, and in waits that ended in a retransmission, within the reading.
    idle: Nanos,
    stalled: Nanos,
    least_window: u64,
}

/// A data packet that is not yet acknowledged.
struct Out {
    end: u32,
    at: Nanos,
    /// Sent once: its acknowledgement tells a round trip (Karn).
    once: bool,
}

impl Flow {
    fn new(packet: &Packet) -> Flow {
        // A SYN-ACK comes from the server.
        let (from, to) = match packet.has(SYN) && packet.has(ACK) {
            true => (packet.to, packet.from),
            false => (packet.from, packet.to),
        };
        Flow {
            halves: [
                Half::new(from, to, packet.at),
                Half::new(to, from, packet.at),
            ],
            begun: packet.at,
            last: packet.at,
            syn: None,
            syn_ack: None,
            to_server: None,
            to_client: None,
            reset: false,
        }
    }

    fn is_over(&self) -> bool {
        self.reset || self.halves.iter().all(|half| half.finished)
    }

    fn see(&mut self, packet: &Packet) {
        self.last = self.last.max(packet.at);
        let side = usize::from(packet.from != self.halves[0].from);
        self.handshake(packet, side);
        self.reset |= packet.has(RST);
        let total = self.round_trip();
        let (first, second) = self.halves.split_at_mut(1);
        let (own, peer) = match side {
            0 => (&mut first[0], &mut second[0]),
            _ => (&mut second[0], &mut first[0]),
        };
        if packet.has(SYN) {
            own.begin(packet);
            return;
        }
        if !own.begun {
            own.begin(packet);
        }
        let here_to_sender = match side {
            0 => self.to_client,
            _ => self.to_server,
        };
        own.finished |= packet.has(FIN);
        if packet.payload > 0 {
            own.data(packet, here_to_sender.unwrap_or_default(), total);
        }
        if packet.has(ACK) && peer.begun {
            // The scale holds only if both offered one (RFC 7323, 2.2).
            let scale = own.wscale.filter(|_| peer.wscale.is_some()).unwrap_or(0);
            peer.acknowledged(packet, u64::from(packet.window) << scale, total);
        }
    }

    fn handshake(&mut self, packet: &Packet, side: usize) {
        match (packet.has(SYN), packet.has(ACK), side) {
            // Sent again, it tells nothing: which one was answered?
            (true, false, 0) => self.syn = self.syn.is_none().then_some(packet.at),
            (true, true, 1) => {
                self.to_server = self.syn.map(|syn| packet.at.since(syn));
                self.syn_ack = Some(packet.at);
            }
            (false, true, 0) if self.to_client.is_none() => {
                self.to_client = self.syn_ack.map(|syn_ack| packet.at.since(syn_ack));
            }
            _ => {}
        }
    }

    /// The whole round trip as the handshake showed it.
    fn round_trip(&self) -> Nanos {
        self.to_server.unwrap_or_default() + self.to_client.unwrap_or_default()
    }

    fn explain(mut self) -> Vec<Explanation> {
        let total = self.round_trip();
        let most = self.halves.iter().map(|h| h.bytes).max().unwrap_or(0);
        let whole = self.to_server.is_some() && self.to_client.is_some();
        let span = self.last.since(self.begun);
        let near = [self.to_client, self.to_server];
        let begun = self.begun;
        let opened = self.syn.and(self.syn_ack).map(|at| at.since(begun));
        self.halves
            .iter_mut()
            .zip(near)
            // Requests against their replies, acknowledged writes: the small way is no transfer.
            .filter(|(half, _)| half.bytes >= FEWEST_BYTES.max(most / 10))
            .map(|(half, near)| {
                let source = match near {
                    Some(near) if whole && total.0 > 0 => {
                        let part = near.0 as f64 / total.0 as f64;
                        match part {
                            p if p <= HERE => Source::CaptureAtSender,
                            p if p >= 1.0 - HERE => Source::CaptureAtReceiver,
                            _ => Source::CaptureBetween,
                        }
                    }
                    _ => Source::CaptureAtSender,
                };
                half.explain(source, span, begun, opened, near.unwrap_or_default(), whole)
            })
            .collect()
    }
}

impl Half {
    fn new(from: SocketAddr, to: SocketAddr, at: Nanos) -> Half {
        Half {
            from,
            to,
            wscale: None,
            mss: 0,
            begun: false,
            next: 0,
            acked: 0,
            known: (0, 0),
            coming: VecDeque::new(),
            out: VecDeque::new(),
            gaps: VecDeque::new(),
            packets: 0,
            bytes: 0,
            range: 0,
            retransmitted: 0,
            out_of_order: 0,
            unseen: 0,
            needless: 0,
            marked: 0,
            min_rtt: None,
            srtt: Nanos(0),
            rtts: 0,
            rtt_sum: 0,
            last_data: at,
            last_heard: at,
            finished: false,
            facts: Facts::new(Source::CaptureAtSender),
            pieces: Vec::new(),
            reading: Reading {
                from: at,
                to: at,
                ..Reading::default()
            },
            idle: Nanos(0),
            stalled: Nanos(0),
            least_window: u64::MAX,
        }
    }

    /// A SYN, or the first packet of a connection whose SYN is not in the capture.
    fn begin(&mut self, packet: &Packet) {
        let syn = packet.has(SYN);
        if self.begun && !syn {
            return;
        }
        self.begun = true;
        self.wscale = packet.wscale;
        self.next = packet.seq.wrapping_add(u32::from(syn));
        self.acked = self.next;
        self.known = (self.next, u64::from(packet.window));
        self.last_data = packet.at;
    }

    /// A packet with payload passes.
    fn data(&mut self, packet: &Packet, here_to_sender: Nanos, total: Nanos) {
        while let Some(&(at, ack, window)) = self.coming.front() {
            if at + here_to_sender > packet.at {
                break;
            }
            self.known = (ack, window);
            self.coming.pop_front();
        }
        let end = packet.seq.wrapping_add(packet.payload);
        // One byte below what is acknowledged keeps a connection alive, and is no data.
        if packet.payload == 1 && before(packet.seq, self.acked) {
            return;
        }
        self.packets += 1;
        self.bytes += u64::from(packet.payload);
        self.marked += u64::from(packet.marked);
        self.mss = self.mss.max(packet.payload.min(65_535));
        self.advance(packet.at);
        let again = before(packet.seq, self.next);
        if !again {
            if self.acked == self.next {
                // Nothing was in flight since the last acknowledgement reached the sender.
                let from = self.last_data.max(self.last_heard + here_to_sender);
                self.idle += packet.at.since(from);
            }
            let gap = packet.seq.wrapping_sub(self.next);
            if gap > 0 {
                if self.gaps.len() >= MOST_GAPS {
                    self.gaps.pop_front();
                }
                self.gaps.push_back((self.next, packet.seq, packet.at));
            }
            self.range += u64::from(end.wrapping_sub(self.next));
            self.next = end;
        } else {
            self.repeated(packet, end, total);
        }
        let flight = self.next.wrapping_sub(self.known.0);
        let flight = u64::try_from(flight as i32).unwrap_or(0);
        if flight > self.reading.flight {
            self.reading.flight = flight;
            self.reading.window = self.known.1;
        }
        self.reading.passed += u64::from(packet.payload);
        if self.out.len() >= MOST_OUT {
            self.out.pop_front();
        }
        if !again {
            self.out.push_back(Out {
                end,
                at: packet.at,
                once: true,
            });
        }
        self.last_data = packet.at;
    }

    /// A packet that begins before what was seen last: overtaken, or sent again.
    fn repeated(&mut self, packet: &Packet, end: u32, total: Nanos) {
        let gap = self
            .gaps
            .iter()
            .position(|(from, to, _)| !before(packet.seq, *from) && before(packet.seq, *to));
        let trip = self.min_rtt.unwrap_or(total).max(total);
        if let Some(n) = gap {
            let (from, to, since) = self.gaps[n];
            self.gaps.remove(n);
            for (a, b) in [(from, packet.seq), (end, to)] {
                if before(a, b) {
                    self.gaps.push_back((a, b, since));
                }
            }
            if packet.at.since(since).0 < trip.0 / TOO_SOON {
                self.out_of_order += 1;
                return;
            }
        }
        self.retransmitted += 1;
        self.reading.retransmitted += 1;
        let waited = packet.at.since(self.last_data.max(self.last_heard));
        if waited >= TIMEOUT {
            self.facts.timeouts += 1;
            self.stalled += waited;
        }
        let mut left = packet.at;
        for out in &mut self.out {
            if before(packet.seq, out.end) {
                if out.once {
                    left = left.min(out.at);
                }
                out.once = false;
                if !before(out.end, end) {
                    break;
                }
            }
        }
        if before(end, self.acked) || end == self.acked {
            self.needless += 1;
        }
        if self.facts.losses.len() < MOST_LOSSES {
            self.facts.losses.push(Loss {
                at: left,
                srtt: self.srtt,
                flight: u64::from(self.next.wrapping_sub(self.acked)),
                place: None,
            });
        }
    }

    /// The peer acknowledges, and offers a window.
    fn acknowledged(&mut self, packet: &Packet, window: u64, total: Nanos) {
        self.advance(packet.at);
        self.last_heard = packet.at;
        self.least_window = self.least_window.min(window);
        if let Some((from, to)) = packet.sack
            && before(from, to)
            && !before(packet.ack, to)
        {
            self.needless += 1; // RFC 2883: the first block lies below what is acknowledged
        }
        if before(self.acked, packet.ack) {
            // Below a wild number nothing can be said.
            if packet.ack.wrapping_sub(self.acked) > 1 << 30 {
                return;
            }
            let gained = packet.ack.wrapping_sub(self.acked);
            if before(self.next, packet.ack) {
                let unseen = packet.ack.wrapping_sub(self.next);
                // A FIN takes a number and carries nothing.
                self.unseen += u64::from(unseen).saturating_sub(1);
                self.next = packet.ack;
            }
            let lost: u64 = self
                .gaps
                .iter()
                .filter(|(_, to, _)| !before(packet.ack, *to))
                .map(|(from, to, _)| u64::from(to.wrapping_sub(*from)))
                .sum();
            self.unseen += lost;
            self.gaps.retain(|(_, to, _)| before(packet.ack, *to));
            self.acked = packet.ack;
            self.reading.delivered += u64::from(gained);
            self.trip(packet);
        }
        if self.coming.len() >= MOST_OUT {
            self.coming.pop_front();
        }
        self.coming.push_back((packet.at, self.acked, window));
        self.turn(packet.at, total);
    }

    /// The round trip of the newest packet that is now acknowledged.
    fn trip(&mut self, packet: &Packet) {
        let mut newest = None;
        while let Some(out) = self.out.front() {
            if before(packet.ack, out.end) {
                break;
            }
            newest = out.once.then_some(out.at);
            self.out.pop_front();
        }
        let Some(sent) = newest else { return };
        let trip = packet.at.since(sent);
        self.min_rtt = Some(self.min_rtt.map_or(trip, |m| m.min(trip)));
        self.rtts += 1;
        self.rtt_sum = self.rtt_sum.saturating_add(trip.0);
        // RFC 6298, of what is seen from here.
        self.srtt = match self.srtt.0 {
            0 => trip,
            srtt => Nanos(srtt - srtt / 8 + trip.0 / 8),
        };
    }

    fn advance(&mut self, at: Nanos) {
        self.reading.to = self.reading.to.max(at);
    }

    /// Ends the reading when it is long enough, and says who owned it.
    fn turn(&mut self, at: Nanos, total: Nanos) {
        let span = at.since(self.reading.from);
        let trip = self.min_rtt.unwrap_or_default().max(total);
        if span < SHORTEST_READING.max(trip) {
            return;
        }
        let reading = &mut self.reading;
        reading.to = at;
        reading.srtt = self.srtt;
        let window = reading.window;
        let full = window > 0 && reading.flight as f64 >= RECEIVE_WINDOW_FULL * window as f64;
        let mss = u64::from(self.mss.max(1));
        let closed = self.least_window < mss && self.bytes > 0;
        let idle = self.idle.min(span);
        let stalled = self.stalled.min(span.since(idle));
        let rest = if closed {
            Limit::ZeroWindow
        } else if full {
            Limit::ReceiveWindow
        } else if reading.retransmitted > 0 {
            Limit::LossRecovery
        } else {
            Limit::CongestionWindow
        };
        // Nothing in flight behind a closed window: the receiver's, not the application's.
        let nothing = if closed {
            Limit::ZeroWindow
        } else {
            Limit::Application
        };
        let mut from = reading.from;
        let left = span.since(idle).since(stalled);
        let parts = [(nothing, idle), (Limit::RtoStall, stalled), (rest, left)];
        for (n, (limit, time)) in parts.into_iter().enumerate() {
            if time.0 == 0 {
                continue;
            }
            let to = from + time;
            let bytes = Bytes(if n == 2 { reading.delivered } else { 0 });
            let piece = Piece {
                from,
                to,
                limit,
                bytes,
            };
            moment::own(&mut self.pieces, piece);
            from = to;
        }
        reading.limit = parts.iter().max_by_key(|(_, t)| *t).map(|(l, _)| *l);
        // The congestion window is not in a packet: what was in flight stands for it.
        reading.cwnd = reading.flight;
        let done = std::mem::replace(
            reading,
            Reading {
                from: at,
                to: at,
                window,
                ..Reading::default()
            },
        );
        self.facts.read(done);
        self.idle = self.idle.since(idle);
        self.stalled = Nanos(0);
        self.least_window = u64::MAX;
    }

    fn explain(
        &mut self,
        source: Source,
        span: Nanos,
        begun: Nanos,
        opened: Option<Nanos>,
        near: Nanos,
        whole: bool,
    ) -> Explanation {
        let mut facts = std::mem::replace(&mut self.facts, Facts::new(source));
        facts.source = source;
        facts.span = span;
        facts.mss = self.mss.min(9000);
        facts.bytes = Bytes(self.range);
        facts.min_rtt = self.min_rtt.map(|rtt| rtt + near);
        facts.segments = self.packets;
        facts.retransmitted = self.retransmitted;
        facts.needless = self.needless.min(self.retransmitted);
        facts.reordered = self.out_of_order;
        facts.marked = self.marked;
        for reading in &mut facts.readings {
            reading.from = reading.from.since(begun);
            reading.to = reading.to.since(begun);
            if reading.srtt.0 > 0 {
                reading.srtt += near;
            }
        }
        for loss in &mut facts.losses {
            loss.at = loss.at.since(begun);
            if loss.srtt.0 > 0 {
                loss.srtt += near;
            }
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in &mut pieces {
            piece.from = piece.from.since(begun);
            piece.to = piece.to.since(begun);
        }
        if let (Some(opened), Some(first)) = (opened, pieces.first_mut()) {
            let opened = opened.min(first.to);
            if opened > first.from {
                let (from, to) = (first.from, opened);
                first.from = opened;
                pieces.insert(
                    0,
                    Piece {
                        from,
                        to,
                        limit: Limit::Handshake,
                        bytes: Bytes(0),
                    },
                );
            }
        }
        let mut doubts = Vec::new();
        if !whole {
            doubts.push(
                "the handshake is not in the capture: where it stood, and the scale of the windows, are not known"
                    .to_owned(),
            );
        }
        if self.unseen > 0 {
            doubts.push(format!(
                "{} were acknowledged and never seen: the capture itself lost packets",
                Bytes(self.unseen)
            ));
        }
        let subject = Subject {
            name: format!("{} to {}", self.from, self.to),
            sender: Some(self.from),
            receiver: Some(self.to),
            direction: None,
        };
        assemble(subject, &pieces, &facts, doubts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::Conclusion;

    /// A transfer of `window` bytes each round trip over a path of 20 ms, seen `to_client` from the client,
    /// which sends. `drop` says what happens to a data packet: 0 passes, 1 is lost behind the capture, 2 is
    /// lost before it, 3 passes but is not captured.
    struct Path {
        to_client: Nanos,
        window: u32,
        rounds: u32,
        offered: u16,
        drop: fn(u32) -> u8,
    }

    const TRIP: Nanos = Nanos::from_millis(20);
    const MSS: u32 = 1448;

    impl Path {
        fn packets(&self) -> Vec<Packet> {
            let client: SocketAddr = ([192, 0, 2, 1], 40000).into();
            let server: SocketAddr = ([192, 0, 2, 2], 5210).into();
            let half = Nanos(self.to_client.0 / 2);
            let packet = |from_client: bool, at: Nanos, seq: u32, ack: u32, flags: u8| Packet {
                at,
                from: if from_client { client } else { server },
                to: if from_client { server } else { client },
                seq,
                ack,
                flags,
                window: self.offered,
                payload: 0,
                wscale: (flags & SYN != 0).then_some(0),
                mss: None,
                sack: None,
                marked: false,
            };
            // Close to the wrap of the sequence.
            let base = u32::MAX - 100_000;
            let back = |sent: Nanos| sent + TRIP - half;
            let mut all = vec![
                packet(true, half, base.wrapping_sub(1), 0, SYN),
                packet(false, back(Nanos(0)), 7, base, SYN | ACK),
                packet(true, TRIP + half, base, 8, ACK),
            ];
            let mut seq = base;
            let mut number = 0;
            let mut sent = TRIP;
            for _ in 0..self.rounds {
                let mut again = Vec::new();
                let first = seq;
                for n in 0..self.window / MSS {
                    let at = sent + Nanos(u64::from(n) * 1000);
                    let data = Packet {
                        payload: MSS,
                        ..packet(true, at + half, seq, 8, ACK)
                    };
                    match (self.drop)(number) {
                        0 => all.push(data),
                        1 => {
                            all.push(data);
                            again.push(data);
                        }
                        2 => again.push(data),
                        _ => {}
                    }
                    number += 1;
                    seq = seq.wrapping_add(MSS);
                }
                let end = sent + Nanos(u64::from(self.window / MSS) * 1000);
                if !again.is_empty() {
                    all.push(packet(false, back(end), 8, again[0].seq, ACK));
                    sent += TRIP;
                    all.extend(again.iter().map(|data| Packet {
                        at: sent + Nanos(100_000) + half,
                        ..*data
                    }));
                }
                let until = if first == seq { base } else { seq };
                all.push(packet(false, back(sent + Nanos(200_000)), 8, until, ACK));
                sent += TRIP + Nanos(300_000);
            }
            all.sort_by_key(|p| p.at);
            all
        }

        fn observe(&self) -> Observer {
            let mut observer = Observer::new();
            for packet in self.packets() {
                observer.see(&packet);
            }
            observer
        }
    }

    fn windowed(to_client: Nanos) -> Path {
        Path {
            to_client,
            window: 44 * MSS,
            rounds: 200,
            offered: 65_000,
            drop: |_| 0,
        }
    }

    #[test]
    fn a_full_window_is_seen_from_anywhere_on_the_path() {
        for (to_client, source) in [
            (Nanos(0), Source::CaptureAtSender),
            (Nanos::from_millis(10), Source::CaptureBetween),
            (TRIP, Source::CaptureAtReceiver),
        ] {
            let path = windowed(to_client);
            let told = path.observe().explain();
            assert_eq!(told.len(), 1);
            assert_eq!(told[0].source, source);
            assert_eq!(
                told[0].cause(),
                Some(Limit::ReceiveWindow),
                "{source:?} {told:#?}"
            );
            let counted = path.observe().counted();
            assert_eq!(counted[0].bytes, Bytes(200 * 44 * u64::from(MSS)));
            assert_eq!(counted[0].range, counted[0].bytes.0);
            assert_eq!((counted[0].retransmitted, counted[0].unseen), (0, Bytes(0)));
        }
    }

    #[test]
    fn half_of_the_window_is_not_full_and_two_causes_at_the_sender_fit() {
        let path = Path {
            window: 20 * MSS,
            ..windowed(Nanos(0))
        };
        let told = path.observe().explain();
        let by = vec![Limit::SendBuffer, Limit::Application];
        assert_eq!(told[0].conclusion, Conclusion::Limited { by }, "{told:#?}");
        assert!(!told[0].is_confident());
    }

    #[test]
    fn losses_are_counted_wherever_they_happened_and_the_captures_own_are_not() {
        let lost = |n: u32| n % 88 == 20;
        let sometimes: [fn(u32) -> u8; 3] = [
            |n| u8::from(n % 88 == 20),
            |n| 2 * u8::from(n % 88 == 20),
            |n| 3 * u8::from(n % 88 == 20),
        ];
        let count = (0..200 * 44).filter(|n| lost(*n)).count() as u64;
        for (drop, again, unseen) in [
            (sometimes[0], count, 0),
            (sometimes[1], count, 0),
            (sometimes[2], 0, count * u64::from(MSS)),
        ] {
            let path = Path {
                drop,
                ..windowed(Nanos::from_millis(10))
            };
            let counted = &path.observe().counted()[0];
            assert_eq!(counted.retransmitted, again);
            assert_eq!(counted.unseen, Bytes(unseen));
            let told = path.observe().explain();
            let said = told[0].doubts.iter().any(|d| d.contains("never seen"));
            assert_eq!(said, unseen > 0);
        }
    }

    #[test]
    fn a_connection_after_another_on_the_same_addresses_is_its_own() {
        let path = windowed(Nanos(0));
        let mut observer = Observer::new();
        let first = path.packets();
        let end = first.last().unwrap().at;
        for packet in &first {
            observer.see(packet);
        }
        let mut reset = first[first.len() - 1];
        reset.flags |= RST;
        observer.see(&reset);
        for packet in &first {
            observer.see(&Packet {
                at: packet.at + end,
                ..*packet
            });
        }
        assert_eq!(observer.counted().len(), 2);
    }
}
