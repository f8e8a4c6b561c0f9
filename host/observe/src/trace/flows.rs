//! Packets and samples to connections: which one each belongs to, and what the packets so far show of it.

use crate::socket_diag::Pair;
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, RST, SYN};
use model::{
    Bytes, Comm, Connection, Nanos, Segment, SocketState, TraceRecord, TraceSample, What,
    socket_state,
};
use std::collections::HashMap;
use tcp::seq::{Unwrap, before, later};

/// Connections that are followed; beyond it closed ones are forgotten, then all.
const MOST: usize = 1 << 16;

/// A device from which nothing came for so long is not the one that a connection uses.
const SILENT: Nanos = Nanos::from_millis(1_000);

/// An unchanged socket is reported no more often than this.
const STILL: Nanos = Nanos::from_millis(1_000);

/// A packet as the ring had it.
#[derive(Debug)]
pub(super) struct Caught {
    pub packet: Packet,
    pub device: u32,
    /// As far as the packet alone shows it.
    pub segment: Segment,
}

impl Caught {
    fn is_outgoing(&self) -> bool {
        self.segment.what == What::Sent
    }

    /// Its addresses as this host sees them.
    pub(super) fn pair(&self) -> Pair {
        match self.is_outgoing() {
            true => (self.packet.from, self.packet.to),
            false => (self.packet.to, self.packet.from),
        }
    }
}

/// Who a socket belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SocketHolder {
    pub cookie: u64,
    pub pid: u32,
    pub comm: Comm,
}

/// The connections of a trace.
pub(super) struct Flows {
    numbers: Numbers,
    known: HashMap<Pair, Flow>,
}

struct Numbers {
    netns: u32,
    /// Of the next connection.
    next: u32,
}

#[derive(Default)]
struct Flow {
    /// Once it was reported.
    id: Option<u32>,
    /// Zero before its socket was met.
    cookie: u64,
    closed: bool,
    /// Of the two directions, sent first: the device that counts, and when a packet last passed it.
    devices: [Option<(u32, Nanos)>; 2],
    sent: FlowStream,
    received: FlowStream,
    sampled: Option<TraceSample>,
}

/// One direction, as its packets show it.
#[derive(Default)]
struct FlowStream {
    /// Sequence number of the SYN.
    opened: Option<u32>,
    /// Scale of the windows that its sender offers.
    scale: Option<u8>,
    /// Behind the last byte; in order where it is received.
    next: Option<u32>,
    /// The last acknowledgement in it, and its window field, which a SYN never scales.
    acked: Option<u32>,
    window: Option<(u16, bool)>,
    /// Of the newest segment; the first byte has position 0.
    place: Option<Unwrap>,
}

impl Flows {
    pub(super) fn new(netns: u32) -> Flows {
        Flows {
            numbers: Numbers { netns, next: 0 },
            known: HashMap::new(),
        }
    }

    /// Reports a packet as a segment, and its connection first if that is new. `holder` is who its
    /// socket belongs to, as far as known.
    pub(super) fn packet(
        &mut self,
        caught: &Caught,
        holder: SocketHolder,
        each: &mut dyn FnMut(TraceRecord),
    ) {
        let (packet, pair) = (&caught.packet, caught.pair());
        let (at, outgoing) = (caught.segment.at, caught.is_outgoing());
        let reopens = |flow: &Flow| {
            let opened = flow.stream(outgoing).opened;
            packet.has(SYN) && !packet.has(ACK) && opened.is_some_and(|seq| seq != packet.seq)
        };
        if self.known.get(&pair).is_some_and(reopens) {
            self.known.remove(&pair);
        }
        let flow = flow(&mut self.known, pair);
        // The same packet passes each device of a stack (bridge, VLAN, bond): one of them counts.
        match &mut flow.devices[usize::from(!outgoing)] {
            Some((device, last)) if *device == caught.device => *last = at,
            Some((_, last)) if at.since(*last) < SILENT => return,
            other => *other = Some((caught.device, at)),
        }
        let connection = flow.report(&mut self.numbers, pair, holder.cookie, each);
        let segment = Segment {
            connection,
            pid: holder.pid,
            comm: holder.comm,
            offset: flow.stream(outgoing).offset(packet),
            socket: flow.socket(),
            ..caught.segment.clone()
        };
        flow.take(caught);
        each(TraceRecord::Segment(segment));
    }

    /// Reports a sample that has something new, or `always` where its connection is reported at all. A socket that only
    /// stands there is no connection of the trace.
    pub(super) fn sample(
        &mut self,
        (pair, sample): (Pair, TraceSample),
        cookie: u64,
        always: bool,
        each: &mut dyn FnMut(TraceRecord),
    ) {
        let known = self.known.get(&pair);
        let other = known.is_some_and(|flow| flow.cookie != 0 && flow.cookie != cookie);
        // The end of a socket that was never of interest, or whose addresses are in use again.
        if sample.gone && (known.is_none() || other) {
            return;
        }
        if other {
            self.known.remove(&pair);
        }
        let flow = flow(&mut self.known, pair);
        flow.sent.scale = sample.socket.rcv_wscale().or(flow.sent.scale);
        flow.received.scale = sample.socket.snd_wscale().or(flow.received.scale);
        flow.closed |= sample.gone;
        let before = flow.sampled.as_ref();
        let changed = before.is_some_and(|before| {
            let before = TraceSample {
                at: sample.at,
                connection: 0,
                ..before.clone()
            };
            before != sample
        });
        let due = before.is_none_or(|before| sample.at.since(before.at) >= STILL);
        let wanted = match flow.id {
            Some(_) => always || sample.gone || changed || due,
            None => changed && !sample.gone,
        };
        if wanted {
            let connection = flow.report(&mut self.numbers, pair, cookie, each);
            each(TraceRecord::Sample(TraceSample {
                connection,
                ..sample.clone()
            }));
        }
        if wanted || flow.sampled.is_none() {
            flow.sampled = Some(sample);
        }
        if flow.cookie == 0 {
            flow.cookie = cookie;
        }
    }
}

/// The connection of a pair, which may be new.
fn flow(known: &mut HashMap<Pair, Flow>, pair: Pair) -> &mut Flow {
    if known.len() >= MOST && !known.contains_key(&pair) {
        known.retain(|_, flow| !flow.closed);
        if known.len() >= MOST {
            known.clear();
        }
    }
    known.entry(pair).or_default()
}

impl Flow {
    /// Reports the connection where it is new, or its socket is known only now. Returns its number.
    fn report(
        &mut self,
        numbers: &mut Numbers,
        (local, remote): Pair,
        cookie: u64,
        each: &mut dyn FnMut(TraceRecord),
    ) -> u32 {
        let is_new = self.id.is_none();
        let id = *self.id.get_or_insert_with(|| {
            numbers.next = numbers.next.wrapping_add(1);
            numbers.next.wrapping_sub(1)
        });
        if self.cookie == 0 && cookie != 0 || is_new {
            self.cookie = cookie.max(self.cookie);
            each(TraceRecord::Connection(Connection {
                id,
                cookie: self.cookie,
                netns: numbers.netns,
                local,
                remote,
            }));
        }
        id
    }

    fn stream(&self, outgoing: bool) -> &FlowStream {
        match outgoing {
            true => &self.sent,
            false => &self.received,
        }
    }

    /// What the packets so far show of the socket.
    fn socket(&self) -> Option<SocketState> {
        Some(socket_state! {
            snd_una: Some(self.received.acked?),
            snd_nxt: Some(self.sent.next?),
            rcv_nxt: Some(self.received.next?),
            rcv_wup: Some(self.sent.acked?),
            snd_wnd: self.received.offered(&self.sent),
            rcv_wnd: self.sent.offered(&self.received),
        })
    }

    fn take(&mut self, caught: &Caught) {
        let (packet, outgoing) = (&caught.packet, caught.is_outgoing());
        let stream = match outgoing {
            true => &mut self.sent,
            false => &mut self.received,
        };
        if packet.has(RST) {
            return;
        }
        let end = packet.end();
        if packet.has(SYN) {
            stream.opened = Some(packet.seq);
            stream.scale = packet.wscale;
            stream.place = Some(Unwrap::at(packet.seq.wrapping_add(1), 0));
        }
        if let Some(offset) = stream.offset(packet)
            && stream
                .place
                .is_some_and(|place| place.is_before(packet.seq))
        {
            stream.place = Some(Unwrap::at(packet.seq, offset));
        }
        stream.next = match stream.next {
            // Out of order, it is received once the gap is filled: then the acknowledgement says so.
            Some(next) if !outgoing && before(next, packet.seq) => Some(next),
            next => newest(next, end),
        };
        if packet.has(ACK) {
            stream.acked = newest(stream.acked, packet.ack);
            stream.window = Some((packet.window, packet.has(SYN)));
            if outgoing {
                self.received.next = newest(self.received.next, packet.ack);
            }
        }
    }
}

impl FlowStream {
    /// The window that its sender last offered. Scales hold only if both offered one (RFC 7323, 2.2).
    fn offered(&self, other: &FlowStream) -> Option<Bytes> {
        let (field, plain) = self.window?;
        let agreed = self.opened.is_some() && other.opened.is_some();
        let scale = match (self.scale, other.scale) {
            _ if plain => 0,
            (Some(scale), Some(_)) => scale,
            _ if agreed => 0,
            _ => return None,
        };
        Some(Bytes(u64::from(field) << scale.min(14)))
    }

    fn offset(&self, packet: &Packet) -> Option<u64> {
        let place = self.place.filter(|_| packet.payload > 0)?;
        place.checked_position(packet.seq)
    }
}

fn newest(known: Option<u32>, new: u32) -> Option<u32> {
    Some(known.map_or(new, |known| later(known, new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Pair {
        (
            "10.0.0.1:1000".parse().unwrap(),
            "10.0.0.2:80".parse().unwrap(),
        )
    }

    /// A packet of this end, or to it.
    fn caught(outgoing: bool, flags: u8, seq: u32, ack: u32, payload: u32) -> Caught {
        let (local, remote) = pair();
        let (from, to) = if outgoing {
            (local, remote)
        } else {
            (remote, local)
        };
        Caught {
            packet: Packet {
                seq,
                ack,
                flags,
                window: 1000,
                payload,
                wscale: (flags & SYN != 0).then_some(7),
                ..Packet::new(from, to)
            },
            device: 2,
            segment: Segment {
                what: if outgoing { What::Sent } else { What::Received },
                seq,
                ack,
                flags,
                payload: Bytes(payload.into()),
                segments: 1,
                ..Segment::default()
            },
        }
    }

    #[derive(Default)]
    struct All(Vec<TraceRecord>);

    impl All {
        fn push(&mut self, flows: &mut Flows, at: u64, mut caught: Caught) {
            caught.segment.at = Nanos::from_millis(at);
            let each = &mut |record| self.0.push(record);
            flows.packet(&caught, SocketHolder::default(), each);
        }

        fn segments(&self) -> Vec<&Segment> {
            let segments = self.0.iter().filter_map(|record| match record {
                TraceRecord::Segment(segment) => Some(segment),
                _ => None,
            });
            segments.collect()
        }

        fn connections(&self) -> Vec<(u32, u64)> {
            let connection = |record: &TraceRecord| match record {
                TraceRecord::Connection(one) => Some((one.id, one.cookie)),
                _ => None,
            };
            self.0.iter().filter_map(connection).collect()
        }
    }

    #[test]
    fn packets_show_what_is_in_flight_and_what_is_sent_again() {
        let (mut flows, mut all) = (Flows::new(7), All::default());
        // Close to the wrap of the sequence.
        let seq = u32::MAX - 1000;
        all.push(&mut flows, 0, caught(true, SYN, seq, 0, 0));
        all.push(&mut flows, 1, caught(false, SYN | ACK, 9, seq + 1, 0));
        all.push(&mut flows, 1, caught(true, ACK, seq + 1, 10, 0));
        all.push(&mut flows, 2, caught(true, ACK, seq + 1, 10, 1448));
        let next = seq.wrapping_add(1449);
        all.push(&mut flows, 2, caught(true, ACK, next, 10, 1448));
        all.push(&mut flows, 3, caught(false, ACK, 10, next, 0));
        all.push(&mut flows, 4, caught(true, ACK, next, 10, 1448));
        assert_eq!(all.connections(), [(0, 0)]);
        let segments = all.segments();
        let flight = segments
            .iter()
            .map(|s| Some(s.socket.as_ref()?.unacked_sent()?.0));
        assert_eq!(
            flight.collect::<Vec<_>>(),
            [
                None,
                None,
                None,
                Some(0),
                Some(1448),
                Some(2896),
                Some(1448)
            ]
        );
        let again = segments.iter().map(|s| s.is_retransmission());
        assert_eq!(
            again.collect::<Vec<_>>(),
            [false, false, false, false, false, false, true]
        );
        assert_eq!(segments[6].offset, Some(1448));
        let window = |n: usize| segments[n].socket.as_ref()?.snd_wnd();
        assert_eq!(window(6), Some(Bytes(128_000)));
        assert_eq!(window(3), Some(Bytes(1000)), "that of a SYN has no scale");
    }

    #[test]
    fn a_packet_counts_once_on_its_way_through_a_stack_of_devices() {
        let (mut flows, mut all) = (Flows::new(7), All::default());
        let below = || Caught {
            device: 3,
            ..caught(true, ACK, 5, 10, 100)
        };
        all.push(&mut flows, 0, caught(true, ACK, 5, 10, 100));
        all.push(&mut flows, 0, below());
        assert_eq!(all.segments().len(), 1);
        // The route has moved to the other.
        all.push(&mut flows, 1000, below());
        assert_eq!(all.segments().len(), 2);
        assert_eq!(all.segments()[1].segments, 1);
    }

    #[test]
    fn addresses_in_use_again_are_another_connection() {
        let (mut flows, mut all) = (Flows::new(7), All::default());
        all.push(&mut flows, 0, caught(false, SYN, 1, 0, 0));
        all.push(&mut flows, 1, caught(false, SYN, 1, 0, 0));
        assert_eq!(all.connections().len(), 1, "retransmitted");
        all.push(&mut flows, 2, caught(false, SYN, 99, 0, 0));
        assert_eq!(all.connections(), [(0, 0), (1, 0)]);
    }

    #[test]
    fn samples_are_taken_of_connections_that_move() {
        let (mut flows, mut all) = (Flows::new(7), All::default());
        let mut sample = |flows: &mut Flows, at: u64, cookie, bytes: u64, gone| {
            let sample = TraceSample {
                at: Nanos::from_millis(at),
                gone,
                socket: socket_state! {                    bytes_acked: Some(Bytes(bytes)),},
                ..TraceSample::default()
            };
            let before = all.0.len();
            flows.sample((pair(), sample), cookie, false, &mut |record| {
                all.0.push(record)
            });
            all.0.len() - before
        };
        assert_eq!(
            sample(&mut flows, 0, 5, 1, false),
            0,
            "it only stands there"
        );
        assert_eq!(sample(&mut flows, 10, 5, 1, false), 0);
        assert_eq!(
            sample(&mut flows, 20, 5, 2, false),
            2,
            "its connection first"
        );
        assert_eq!(sample(&mut flows, 30, 5, 2, false), 0);
        assert_eq!(sample(&mut flows, 1020, 5, 2, false), 1, "still there");
        assert_eq!(sample(&mut flows, 1030, 5, 2, true), 1);
        assert_eq!(sample(&mut flows, 1040, 6, 2, false), 0, "another socket");
        assert_eq!(sample(&mut flows, 1050, 5, 2, true), 0);
        assert_eq!(all.connections(), [(0, 5)]);
    }

    #[test]
    fn a_socket_that_is_found_later_is_reported_again() {
        let (mut flows, mut all) = (Flows::new(7), All::default());
        all.push(&mut flows, 0, caught(true, ACK, 5, 10, 100));
        let sample = TraceSample::default();
        flows.sample((pair(), sample), 77, false, &mut |record| {
            all.0.push(record)
        });
        assert_eq!(all.connections(), [(0, 0), (0, 77)]);
        assert!(matches!(all.0.last(), Some(TraceRecord::Sample(_))));
    }
}
