//! One direction of a connection over time, reduced to columns while it passes.
//!
//! A column is as wide as it must be: a microsecond at first, twice as wide whenever more than [`MOST_COLUMNS`] hold
//! anything. So a few segments keep their own places, a million are as many points as a screen has pixels, and memory
//! is the same. Of each quantity a column keeps the least, the greatest and the last. What happened around the first
//! retransmission is kept in its own columns, which stay narrow.

use crate::page::{Series, Stroke};
use model::finding::{Explanation, Phase};
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, SYN};
use model::{Bytes, Connection, Nanos, Segment, TraceSample, What};
use std::net::SocketAddr;
use tcp::seq::Unwrap;
use tcp::stream::{DataArrival, Stream};

/// Columns that hold anything: about the pixels of a picture.
const MOST_COLUMNS: usize = 800;
/// Narrow columns that are kept from before the first retransmission, at least, and from then on.
const BEFORE: usize = 150;
const AFTER: usize = 350;
/// Width of the first columns in nanoseconds: what captures count in.
const NARROWEST: u64 = 1000;
/// From here on a slow-start threshold was never set (`TCP_INFINITE_SSTHRESH`).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// A quantity that is followed. Places count from the first byte of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Track {
    /// Place behind new data.
    Sent,
    /// Place behind data that had been sent before.
    Again,
    /// Place up to which all is acknowledged.
    Acknowledged,
    /// Places at which a block of selectively acknowledged data begins and ends (RFC 2018).
    Selective,
    /// Place behind the last byte that fits into the receiver's window.
    Edge,
    /// Bytes sent and not acknowledged.
    Flight,
    /// The receiver's window in bytes.
    Window,
    /// The sender's own receive window in bytes, where its samples report it.
    Own,
    /// The congestion window in bytes.
    Congestion,
    /// The slow-start threshold in bytes.
    Threshold,
    /// The send buffer in bytes, as the kernel counts it.
    Buffer,
    /// Nanoseconds from data to its acknowledgement.
    RoundTrip,
    /// The same as the sender's kernel smooths it.
    Smoothed,
}

const TRACKS: usize = Track::Smoothed as usize + 1;

impl Track {
    /// It never falls: the last value of a column is all that there is to draw.
    fn rises(self) -> bool {
        matches!(self, Track::Sent | Track::Acknowledged)
    }

    /// What a value is divided by in a picture: times are in seconds.
    fn unit(self) -> f64 {
        match self {
            Track::RoundTrip | Track::Smoothed => 1e9,
            _ => 1.0,
        }
    }
}

/// Follows the data from one end of a connection to the other. Of connections one after another with the same ends,
/// the one with the most bytes is kept.
pub struct Downsampled {
    sender: SocketAddr,
    receiver: SocketAddr,
    pass: Pass,
    before: Option<Box<Pass>>,
}

/// One connection.
#[derive(Default)]
pub(crate) struct Pass {
    begun: Option<Nanos>,
    /// Its length so far.
    pub span: Nanos,
    /// The account of it; the sender is the first of its ends.
    account: Option<Box<Account>>,
    /// The newest byte that was sent.
    newest: Option<Unwrap>,
    acked: u64,
    /// The socket of the sender was traced, not only the receiver's.
    own: bool,
    /// All of it.
    pub columns: Columns,
    detail: Detail,
}

type Account = tcp::connection::TcpConnection<(), ()>;

impl Downsampled {
    /// Of the data from `sender` to `receiver`.
    pub fn new(sender: SocketAddr, receiver: SocketAddr) -> Downsampled {
        Downsampled {
            sender,
            receiver,
            pass: Pass::default(),
            before: None,
        }
    }

    /// Takes the next packet of a capture; those of other connections mean nothing.
    pub fn packet(&mut self, packet: &Packet) {
        let forward = (packet.from, packet.to) == (self.sender, self.receiver);
        if !forward && (packet.from, packet.to) != (self.receiver, self.sender) {
            return;
        }
        let opens = packet.has(SYN) && !packet.has(ACK);
        let account = self.pass.account.as_ref();
        if opens && account.is_some_and(|account| account.is_before(packet, !forward)) {
            self.another();
        }
        let at = self.pass.at(packet.at);
        self.pass.takes(at, packet, forward, None);
    }

    /// Takes the next event of a trace; those of other connections mean nothing. If both ends are in it, the sender's
    /// counts.
    pub fn segment(&mut self, connection: &Connection, segment: &Segment) {
        let Some(own) = self.owns(connection) else {
            return;
        };
        if !self.pass.counts(own) {
            return;
        }
        let at = self.pass.at(segment.at);
        let pass = &mut self.pass;
        if let Some(tcb) = segment.probed().filter(|_| own) {
            pass.knows(at, tcb.mss, (tcb.cwnd, tcb.ssthresh), tcb.sndbuf, tcb.srtt);
        }
        let Some(packet) = Packet::of_segment(connection.local, connection.remote, segment) else {
            return;
        };
        let socket = segment.socket.as_ref();
        let scale = segment.probed().map(|tcb| match own {
            _ if segment.flags & SYN != 0 => 0,
            true => tcb.snd_wscale,
            false => tcb.rcv_wscale,
        });
        let known = || match own {
            true => socket?.snd_wnd(),
            false => socket?.rcv_wnd(),
        };
        let window = match scale {
            Some(scale) => Some(u64::from(segment.window) << scale.min(14)),
            None => known().map(|window| window.0),
        };
        let forward = (segment.what == What::Sent) == own;
        self.pass.takes(at, &packet, forward, window);
    }

    /// Takes what the kernel reports of a socket between two segments.
    pub fn sample(&mut self, connection: &Connection, sample: &TraceSample) {
        if self.owns(connection) != Some(true) || !self.pass.counts(true) {
            return;
        }
        let at = self.pass.at(sample.at);
        let socket = &sample.socket;
        let windows = (socket.cwnd().unwrap_or(0), socket.ssthresh().unwrap_or(0));
        let (mss, srtt) = (socket.mss().unwrap_or(0), socket.srtt().unwrap_or_default());
        let sndbuf = socket.sndbuf().unwrap_or_default();
        self.pass.knows(at, mss, windows, sndbuf, srtt);
    }

    /// Whether the events of a connection of a trace belong to it.
    pub fn is_of(&self, connection: &Connection) -> bool {
        self.owns(connection).is_some()
    }

    /// Whether a connection of a trace is the sender's or the receiver's own; `None` if it is another.
    fn owns(&self, connection: &Connection) -> Option<bool> {
        let ends = (connection.local, connection.remote);
        match ends == (self.sender, self.receiver) {
            true => Some(true),
            false => (ends == (self.receiver, self.sender)).then_some(false),
        }
    }

    /// The same ends again: a connection after another.
    fn another(&mut self) {
        let pass = std::mem::take(&mut self.pass);
        let before = self.before.as_ref();
        if before.is_none_or(|b| b.bytes() < pass.bytes()) {
            self.before = Some(Box::new(pass));
        }
    }

    /// The phases of its explanation by the time of the pictures. Of a run only what came after the exchange that
    /// opens a load is explained; both end together.
    pub(crate) fn aligned(&self, one: &Explanation) -> Vec<Phase> {
        let late = self.most().span.since(one.span);
        let shifted = one.phases.iter().map(|phase| Phase {
            from: phase.from + late,
            to: phase.to + late,
            ..*phase
        });
        shifted.collect()
    }

    /// The connection with the most bytes.
    pub(crate) fn most(&self) -> &Pass {
        match &self.before {
            Some(before) if before.bytes() > self.pass.bytes() => before,
            _ => &self.pass,
        }
    }
}

impl Pass {
    /// Whether an event of this end's socket counts. What was seen from the remote host makes room for it.
    fn counts(&mut self, own: bool) -> bool {
        if own && !self.own {
            *self = Pass {
                own,
                ..Pass::default()
            };
        }
        own == self.own
    }

    /// A moment, since the beginning. Time that goes back stands still.
    fn at(&mut self, at: Nanos) -> Nanos {
        let begun = *self.begun.get_or_insert(at);
        self.span = self.span.max(at.since(begun));
        self.span
    }

    /// The account of the data.
    pub fn stream(&self) -> Option<&Stream> {
        let account = self.account.as_ref()?;
        let side = usize::from(account.client_is_second());
        Some(&account.stream(side)?.stream)
    }

    fn bytes(&self) -> u64 {
        self.stream().map_or(0, |stream| stream.bytes)
    }

    /// A packet of either direction; `window` is the remote socket's window.
    fn takes(&mut self, at: Nanos, packet: &Packet, forward: bool, window: Option<u64>) {
        let account = self
            .account
            .get_or_insert_with(|| Box::new(Account::new(packet, !forward)));
        let passed = account.push(packet, !forward);
        if forward {
            self.sends(at, packet, passed.data);
        } else if packet.has(ACK) {
            let scale = match packet.has(SYN) {
                true => Some(0),
                false => account.scale(usize::from(!account.client_is_second())),
            };
            let field = || scale.map(|scale| u64::from(packet.window) << scale.min(14));
            let trip = passed.ack.and_then(|ack| ack.trip);
            self.arrives(at, packet, window.or_else(field), trip);
        }
    }

    fn sends(&mut self, at: Nanos, packet: &Packet, data: Option<DataArrival>) {
        let first = packet.seq.wrapping_add(u32::from(packet.has(SYN)));
        let newest = self.newest.get_or_insert(Unwrap::new(first));
        let end = first.wrapping_add(packet.payload);
        match data {
            Some(DataArrival::New) => {
                let end = newest.follow(end);
                self.note_position(at, Track::Sent, end);
            }
            Some(DataArrival::Retransmission) => {
                let end = newest.position(end);
                self.detail.rest.get_or_insert(AFTER);
                self.note_position(at, Track::Again, end);
            }
            _ => return,
        }
        self.note_flight(at);
    }

    fn arrives(&mut self, at: Nanos, packet: &Packet, window: Option<u64>, trip: Option<Nanos>) {
        let newest = self.newest.get_or_insert(Unwrap::new(packet.ack));
        if newest.is_before(packet.ack) {
            // Never seen: a FIN, or what the capture lost.
            newest.follow(packet.ack);
        }
        let newest = *newest;
        let position = newest.position(packet.ack);
        self.acked = self.acked.max(position);
        self.note_position(at, Track::Acknowledged, self.acked);
        if let Some(window) = window {
            self.note(at, Track::Window, window);
            self.note_position(at, Track::Edge, position + window);
        }
        for edge in packet.sack.into_iter().flat_map(|(from, to)| [from, to]) {
            self.note_position(at, Track::Selective, newest.position(edge));
        }
        if let Some(trip) = trip {
            self.note(at, Track::RoundTrip, trip.0);
        }
        self.note_flight(at);
    }

    fn note_flight(&mut self, at: Nanos) {
        let flight = self.stream().map_or(0, Stream::unacked);
        self.note(at, Track::Flight, flight);
    }

    /// What the sender's socket knows: congestion window and threshold in segments, its buffer, its smoothed round trip.
    fn knows(
        &mut self,
        at: Nanos,
        mss: u32,
        (cwnd, ssthresh): (u32, u32),
        buffer: Bytes,
        srtt: Nanos,
    ) {
        let segments = |n: u32| u64::from(n) * u64::from(mss);
        self.note(at, Track::Congestion, segments(cwnd));
        if ssthresh < NO_THRESHOLD {
            self.note(at, Track::Threshold, segments(ssthresh));
        }
        self.note(at, Track::Buffer, buffer.0);
        if srtt.0 > 0 {
            self.note(at, Track::Smoothed, srtt.0);
        }
    }

    /// What lies before the first byte that is known has no place in a picture.
    fn note_position(&mut self, at: Nanos, track: Track, position: u64) {
        if let Some(place) = position.checked_sub(Unwrap::ORIGIN) {
            self.note(at, track, place);
        }
    }

    fn note(&mut self, at: Nanos, track: Track, value: u64) {
        self.detail.note(at, track, value);
        self.columns.note(at, track, value);
        while self.columns.all.len() > MOST_COLUMNS {
            self.columns.widen();
        }
    }

    /// What happened around the first retransmission, where the whole could not keep that apart.
    pub(crate) fn first_again(&self) -> Option<&Columns> {
        let known = self.detail.rest.is_some() && self.columns.width > NARROWEST;
        known.then_some(&self.detail.columns)
    }
}

/// The columns before something happens, and some after it.
#[derive(Default)]
struct Detail {
    columns: Columns,
    /// It has happened: so many columns are still to come.
    rest: Option<usize>,
}

impl Detail {
    fn note(&mut self, at: Nanos, track: Track, value: u64) {
        let before = self.columns.all.len();
        if self.rest == Some(0) {
            return;
        }
        self.columns.note(at, track, value);
        let all = &mut self.columns.all;
        match &mut self.rest {
            Some(rest) if all.len() > before => *rest -= 1,
            None if all.len() > 2 * BEFORE => drop(all.drain(..BEFORE)),
            _ => {}
        }
    }
}

/// Stretches of time of equal width, those that hold anything.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// Nanoseconds.
    width: u64,
    all: Vec<PixelColumn>,
}

#[derive(Clone, Debug)]
struct PixelColumn {
    /// Its number, from the beginning of time.
    place: u64,
    ranges: [Option<ValueRange>; TRACKS],
}

#[derive(Clone, Copy, Debug)]
struct ValueRange {
    low: u64,
    high: u64,
    last: u64,
}

impl Default for Columns {
    fn default() -> Columns {
        Columns {
            width: NARROWEST,
            all: Vec::new(),
        }
    }
}

impl Columns {
    /// Between two points of a picture: what is nearer is joined. `None` if that is nothing to speak of.
    pub fn joined(&self) -> Option<Nanos> {
        (self.width > NARROWEST).then_some(Nanos(self.width))
    }

    /// When the first begins and the last ends.
    pub fn span(&self) -> (Nanos, Nanos) {
        let at = |place: u64| Nanos(place.saturating_mul(self.width));
        let first = self.all.first().map_or(0, |column| column.place);
        let last = self.all.last().map_or(0, |column| column.place + 1);
        (at(first), at(last))
    }

    /// The greatest value of a quantity; 0 if nothing is known of it.
    pub fn greatest(&self, track: Track) -> u64 {
        let highs = self.ranges(track).map(|(_, range)| range.high);
        highs.max().unwrap_or(0)
    }

    /// A quantity as a line of a chart, times in seconds.
    pub fn series(&self, track: Track, name: &str, axis: usize, stroke: Stroke) -> Series {
        let mut points = Vec::new();
        let mut point = |at: u64, value: u64| {
            points.push((at as f64 / 1e9, Some(value as f64 / track.unit())));
        };
        for (at, range) in self.ranges(track) {
            if track.rises() || range.low == range.high {
                point(at, range.last);
                continue;
            }
            // Both, and the one later that is nearer to where it ended.
            let up = range.last.abs_diff(range.high) <= range.last.abs_diff(range.low);
            let (first, then) = match up {
                true => (range.low, range.high),
                false => (range.high, range.low),
            };
            point(at, first);
            point(at + self.width / 2, then);
        }
        if stroke != Stroke::Points {
            // A value holds until the next: what repeats it is left out, but for the end.
            let end = points.last().copied();
            points.dedup_by_key(|(_, value)| *value);
            let ends = points.last() == end.as_ref();
            points.extend(end.filter(|_| !ends));
        }
        Series::new(name, axis, stroke, points)
    }

    /// Times never fall.
    fn note(&mut self, at: Nanos, track: Track, value: u64) {
        let place = at.0 / self.width;
        if self.all.last().is_none_or(|last| last.place < place) {
            let ranges = [None; TRACKS];
            self.all.push(PixelColumn { place, ranges });
        }
        if let Some(column) = self.all.last_mut() {
            let range = &mut column.ranges[track as usize];
            let one = ValueRange {
                low: value,
                high: value,
                last: value,
            };
            *range = Some(range.map_or(one, |before| before.then(one)));
        }
    }

    fn widen(&mut self) {
        self.width *= 2;
        self.all.iter_mut().for_each(|column| column.place /= 2);
        self.all.dedup_by(|later, first| {
            let same = later.place == first.place;
            for (first, later) in first.ranges.iter_mut().zip(later.ranges).filter(|_| same) {
                *first = match (*first, later) {
                    (Some(first), Some(later)) => Some(first.then(later)),
                    (first, later) => later.or(first),
                };
            }
            same
        });
    }

    /// A quantity in each column that has it, and when that begins in nanoseconds.
    fn ranges(&self, track: Track) -> impl Iterator<Item = (u64, ValueRange)> {
        self.all.iter().filter_map(move |column| {
            let range = column.ranges[track as usize]?;
            Some((column.place.saturating_mul(self.width), range))
        })
    }
}

impl ValueRange {
    fn then(self, later: ValueRange) -> ValueRange {
        ValueRange {
            low: self.low.min(later.low),
            high: self.high.max(later.high),
            last: later.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{SocketState, SocketValues};

    const ENDS: [([u8; 4], u16); 2] = [([192, 0, 2, 1], 40_000), ([192, 0, 2, 2], 5201)];

    fn end(n: usize) -> SocketAddr {
        SocketAddr::from(ENDS[n])
    }

    fn packet(us: u64, from: usize, seq: u32, ack: u32, flags: u8, payload: u32) -> Packet {
        Packet {
            at: Nanos::from_micros(us),
            seq,
            ack,
            flags,
            window: 1000,
            payload,
            ..Packet::new(end(from), end(1 - from))
        }
    }

    fn course() -> Downsampled {
        Downsampled::new(end(0), end(1))
    }

    /// Values of a quantity in the order of time, as a line has them.
    fn values(course: &Downsampled, track: Track) -> Vec<(u64, u64)> {
        let columns = &course.most().columns;
        let points = columns.series(track, "", 0, Stroke::Steps).points;
        let value = |y: Option<f64>| (y.unwrap() * track.unit()).round() as u64;
        let points = points.into_iter();
        points
            .map(|(x, y)| ((x * 1e9).round() as u64 / 1000, value(y)))
            .collect()
    }

    #[test]
    fn few_packets_keep_their_places_across_the_wrap() {
        let mut course = course();
        let start = u32::MAX - 1000;
        let syn = Packet {
            wscale: Some(3),
            ..packet(5, 0, start, 0, SYN, 0)
        };
        course.packet(&syn);
        course.packet(&Packet {
            wscale: Some(2),
            ..packet(105, 1, 77, start + 1, SYN | ACK, 0)
        });
        let first = start.wrapping_add(1);
        course.packet(&packet(115, 0, first, 78, ACK, 1000));
        course.packet(&packet(116, 0, first.wrapping_add(1000), 78, ACK, 500));
        course.packet(&packet(215, 1, 78, first.wrapping_add(1000), ACK, 0));
        let mut sacks = packet(217, 1, 78, first.wrapping_add(1000), ACK, 0);
        sacks.sack = Some((first.wrapping_add(1200), first.wrapping_add(1500)));
        course.packet(&sacks);
        course.packet(&packet(300, 0, first.wrapping_add(1000), 78, ACK, 500));
        // Of others.
        course.packet(&Packet::new(end(0), end(0)));

        assert_eq!(values(&course, Track::Sent), [(110, 1000), (111, 1500)]);
        assert_eq!(values(&course, Track::Again), [(295, 1500)]);
        let acknowledged = [(100, 0), (210, 1000), (212, 1000)];
        assert_eq!(values(&course, Track::Acknowledged), acknowledged);
        assert_eq!(
            values(&course, Track::Selective),
            [(212, 1200), (212, 1500)]
        );
        // A SYN's window is never scaled, what comes after it by the receiver's scale.
        assert_eq!(
            values(&course, Track::Window),
            [(100, 1000), (210, 4000), (212, 4000)]
        );
        assert_eq!(
            values(&course, Track::Edge),
            [(100, 1000), (210, 5000), (212, 5000)]
        );
        // The acknowledgement of the first, and the selective one of the second.
        let trips = [(210, 100_000), (212, 101_000)];
        assert_eq!(values(&course, Track::RoundTrip), trips);
        assert_eq!(course.most().columns.greatest(Track::Flight), 1500);
        let stream = course.most().stream().unwrap();
        assert_eq!((stream.segments, stream.bytes), (3, 2000));
        let counts = stream.counts();
        assert_eq!(
            (counts.retransmitted, counts.retransmitted_segments),
            (1, 1)
        );
    }

    #[test]
    fn many_segments_are_as_many_points_as_a_screen_has_and_no_peak_is_lost() {
        let mut course = course();
        let step = 1448;
        for n in 0..300_000_u32 {
            let at = u64::from(n) * 10;
            course.packet(&packet(at, 0, n.wrapping_mul(step), 1, ACK, step));
            if n % 2 == 1 && n != 222_221 {
                course.packet(&packet(at + 5, 1, 1, (n + 1).wrapping_mul(step), ACK, 0));
            }
        }
        let pass = course.most();
        assert!((400..=800).contains(&pass.columns.all.len()));
        let sent = values(&course, Track::Sent);
        assert_eq!(sent.last().map(|(_, place)| *place), Some(1448 * 300_000));
        assert!(sent.is_sorted());
        let flight = values(&course, Track::Flight);
        assert!(flight.len() <= 1600);
        assert_eq!(flight.iter().map(|(_, f)| *f).max(), Some(4 * 1448));
        let stream = pass.stream().unwrap();
        assert_eq!(
            (stream.counts().retransmitted_segments, stream.segments),
            (0, 300_000)
        );
        assert!(pass.first_again().is_none());
        course.packet(&packet(10_000_000, 0, 0, 1, ACK, step));
        for n in 1..1000 {
            course.packet(&packet(
                10_000_000 + 10 * n,
                0,
                n as u32 * step,
                1,
                ACK,
                step,
            ));
        }
        let detail = course.most().first_again().unwrap();
        assert_eq!(detail.joined(), None);
        let kept = detail.all.len() - AFTER;
        assert!((BEFORE..=2 * BEFORE + 1).contains(&kept), "{kept}");
        assert_eq!(detail.greatest(Track::Sent), 1448 * 300_000);
    }

    #[test]
    fn of_connections_one_after_another_the_largest_is_kept() {
        let mut course = course();
        for (n, payload) in [100, 900, 200].into_iter().enumerate() {
            let (at, start) = (1000 * n as u64, 50_000 * n as u32);
            course.packet(&packet(at, 0, start, 0, SYN, 0));
            course.packet(&packet(at, 0, start, 0, SYN, 0));
            course.packet(&packet(at + 10, 0, start + 1, 1, ACK, payload));
        }
        assert_eq!(values(&course, Track::Sent), [(10, 900)]);
    }

    #[test]
    fn the_socket_of_the_sender_counts_where_both_are_traced() {
        let connection = |id, local, remote| Connection {
            id,
            cookie: 0,
            netns: 0,
            local: end(local),
            remote: end(remote),
        };
        let segment = |us: u64, what, seq, ack, payload| Segment {
            at: Nanos::from_micros(us),
            what,
            seq,
            ack,
            flags: ACK,
            window: 100,
            payload: Bytes(payload),
            socket: Some(SocketState::from_probe(SocketValues {
                state: 1,
                cwnd: 10,
                ssthresh: NO_THRESHOLD,
                mss: 1000,
                snd_wscale: 4,
                rcv_wscale: 7,
                sndbuf: Bytes(5000),
                srtt: Nanos(7000),
                ..SocketValues::default()
            })),
            ..Segment::default()
        };
        let mut course = course();
        let (own, other) = (connection(0, 0, 1), connection(1, 1, 0));
        assert!(course.is_of(&own) && !course.is_of(&connection(2, 0, 0)));
        course.segment(&other, &segment(1, What::Received, 0, 0, 1000));
        course.segment(&other, &segment(2, What::Sent, 0, 1000, 0));
        assert_eq!(values(&course, Track::Window), [(1, 100 << 7)]);
        assert!(course.most().columns.greatest(Track::Congestion) == 0);
        course.segment(&own, &segment(3, What::Sent, 1000, 0, 1000));
        course.segment(&other, &segment(4, What::Received, 1000, 0, 1000));
        course.segment(&own, &segment(5, What::Received, 0, 2000, 0));
        assert_eq!(values(&course, Track::Sent), [(0, 1000)]);
        assert_eq!(values(&course, Track::Acknowledged), [(2, 1000)]);
        assert_eq!(values(&course, Track::Window), [(2, 100 << 4)]);
        assert_eq!(course.most().columns.greatest(Track::Congestion), 10_000);
        assert_eq!(course.most().columns.greatest(Track::Smoothed), 7000);
        assert!(course.most().columns.greatest(Track::Threshold) == 0);
    }
}
