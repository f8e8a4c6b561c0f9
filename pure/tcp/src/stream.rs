//! One direction of a connection: its data, and the acknowledgements of them.
//!
//! What the sender knew is worked out from where the observer stood. A data packet that passes now was sent when the
//! acknowledgements of half a round trip earlier had reached the sender: so each acknowledgement counts only after
//! the time from here to the sender and back. At the sender that is none, at the receiver a whole round trip.

use crate::seq::{ahead, before, offset};
use crate::thresholds::{
    LARGEST_FRAME, LARGEST_WINDOW, RTO_MIN, SOON, TIMESTAMPS, TOO_SOON, USUAL_SEGMENT,
};
use crate::vantage::Trips;
use crate::waits::{Before, NewSegment, Release, SeenAck, SenderWaits};
use model::packet::Packet;
use model::segment::tcp_flag::{ECE, PSH, SYN};
use model::{Bytes, Nanos, StreamFigures, Vantage};
use std::collections::VecDeque;
use std::mem::take;
use std::net::SocketAddr;

/// Packets of one direction that are remembered until they are acknowledged.
const MOST_OUT: usize = 1 << 16;
/// Of most connections no more at a time.
const USUAL_OUT: usize = 8;
/// Gaps in the sequence that are remembered.
const MOST_GAPS: usize = 256;
/// Data packets whose identification is remembered: what a capture records twice comes close together.
const RECENT: usize = 8;

/// What a view keeps of a direction that carries data.
pub trait StreamView {
    /// The first of its data, or an acknowledgement of them, was seen; the sender's packet before it was at this moment.
    fn begin(at: Nanos) -> Self;
}

impl StreamView for () {
    fn begin(_: Nanos) {}
}

/// A direction with its data, and its view.
#[repr(C)]
pub struct FollowedStream<S> {
    /// What its packets say.
    pub stream: Stream,
    /// What the view keeps of it.
    pub view: S,
}

/// One direction before its first data: what is known of it from the other packets of its sender.
pub(crate) struct HalfConnection<S> {
    /// Its SYN was seen, and offered this scale of windows, or none.
    pub offered: Option<Option<u8>>,
    /// Behind its FIN, where that was seen.
    pub end: Option<u32>,
    /// The peer acknowledged all, with the FIN.
    pub closed: bool,
    pub followed: Option<Box<FollowedStream<S>>>,
    /// Memory for it.
    pub spare: Option<Box<FollowedStream<S>>>,
    /// Bytes of its data, seen or acknowledged unseen: those of the stream, near at hand.
    pub bytes: u64,
    /// The MSS that its SYN announced.
    pub announced: Option<u16>,
    /// Its packets have timestamps, which take 12 bytes of each segment.
    stamped: bool,
    /// Bytes of a full segment, as both ends announced it; 0 if neither did.
    pub segment: u32,
    /// Of the windows that it offers, if that is known.
    pub scale: Option<u8>,
    start: Start,
    /// What its bare acknowledgements say that it sent, and that never came.
    pub undelivered: Option<Box<Undelivered>>,
    last_sent: Nanos,
    last_ack: Nanos,
    /// The last window field of the peer, and its scale.
    window: u16,
    window_scale: Option<u8>,
}

/// Data that a sender counts as sent, and of which none has come: its bare acknowledgements have later sequence numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undelivered {
    /// When the last data came, or the connection was opened.
    pub since: Nanos,
    /// When the last of these acknowledgements came.
    pub until: Nanos,
    /// How many came.
    pub acknowledgements: u32,
    /// By which the last is ahead.
    pub bytes: u32,
    /// Payload of the largest segment that came before.
    pub largest: u32,
}

impl Undelivered {
    /// How long nothing came of what was sent.
    pub fn silence(&self) -> Nanos {
        self.until.since(self.since)
    }
}

/// Bytes of an advertised window, where its scale is known.
fn advertised(window: u16, scale: Option<u8>) -> Option<u32> {
    scale.map(|scale| u32::from(window) << scale)
}

/// The sequence number of the first byte.
#[derive(Clone, Copy)]
enum Start {
    Unknown,
    /// Only acknowledgements of it were seen.
    Acknowledged(u32),
    Seen(u32),
}

impl<S: StreamView> HalfConnection<S> {
    pub fn new(at: Nanos) -> HalfConnection<S> {
        HalfConnection {
            offered: None,
            end: None,
            closed: false,
            followed: None,
            spare: None,
            bytes: 0,
            announced: None,
            stamped: false,
            segment: 0,
            scale: None,
            undelivered: None,
            start: Start::Unknown,
            last_sent: at,
            last_ack: at,
            window: 0,
            window_scale: None,
        }
    }

    /// Its SYN.
    pub fn opens(&mut self, syn: &Packet) {
        if matches!(self.start, Start::Seen(_)) {
            return;
        }
        self.start = Start::Seen(syn.seq.wrapping_add(1));
        if syn.wscale.is_some() || !syn.options_cut {
            self.offered = Some(syn.wscale);
        }
        self.announced = syn.mss;
        self.last_sent = syn.at;
    }

    /// Both ends agreed on timestamps (RFC 7323, 3.2).
    pub fn stamps(&mut self) {
        self.stamped = true;
    }

    /// Its packets have timestamps.
    pub fn is_stamped(&self) -> bool {
        self.stamped
    }

    /// Both ends agreed on this MSS, and it uses this window scale.
    pub fn agrees(&mut self, mss: Option<u16>, scale: Option<u8>) {
        let stamps = if self.stamped { TIMESTAMPS } else { 0 };
        self.segment = u32::from(mss.unwrap_or(0)).saturating_sub(stamps);
        self.scale = scale.map(|scale| scale.min(14)); // RFC 7323, 2.3
    }

    /// The sequence number of its first byte, as far as is known.
    pub fn first(&self) -> Option<u32> {
        match self.start {
            Start::Seen(first) | Start::Acknowledged(first) => Some(first),
            Start::Unknown => None,
        }
    }

    /// The peer's SYN acknowledges its own, which need not be in the capture.
    pub fn answered(&mut self, ack: u32) {
        if matches!(self.start, Start::Unknown) {
            self.start = Start::Acknowledged(ack);
        }
    }

    /// The peer's SYN offers this window, which has no scale (RFC 7323, 2.2).
    pub fn may_send(&mut self, window: u16) {
        (self.window, self.window_scale) = (window, Some(0));
    }

    /// The sequence number of the first byte, where it was seen.
    pub fn start(&self) -> Option<u32> {
        match self.start {
            Start::Seen(start) => Some(start),
            Start::Acknowledged(_) | Start::Unknown => None,
        }
    }

    /// A connection that begins there is another one.
    pub fn has_other_start(&self, syn: u32) -> bool {
        self.start()
            .is_some_and(|start| start != syn.wrapping_add(1))
    }

    /// Another packet of its sender. Whether it is the first with timestamps.
    #[inline]
    pub fn sends(&mut self, packet: &Packet) -> bool {
        if !matches!(self.start, Start::Seen(_)) {
            // What was acknowledged up to now was sent before the capture began.
            self.start = Start::Seen(packet.seq);
            self.followed = None;
        }
        if self.stamped || packet.stamps.is_none() {
            return false;
        }
        self.stamped = true;
        true
    }

    /// A packet without data passes, which has the sequence number of the next byte to be sent.
    #[inline]
    pub fn bare(&mut self, packet: &Packet) {
        let next = match &self.followed {
            Some(followed) => Some(followed.stream.next),
            None => self.start(),
        };
        // A FIN takes one number.
        let ahead = next.map_or(0, |next| packet.seq.wrapping_sub(next));
        if (2..LARGEST_WINDOW).contains(&ahead) {
            self.misses(packet.at, ahead);
        }
    }

    #[cold]
    fn misses(&mut self, at: Nanos, bytes: u32) {
        let stream = self.followed.as_ref().map(|of| &of.stream);
        let (last, largest) = match stream {
            Some(stream) => (stream.last_data, stream.sender.largest()),
            None => (self.last_sent, 0),
        };
        let missing = self.undelivered.get_or_insert_default();
        if missing.acknowledgements == 0 {
            (missing.since, missing.largest) = (last, largest);
        }
        missing.until = at;
        missing.acknowledgements += 1;
        missing.bytes = bytes;
        if let Some(start) = self.start() {
            self.follow(start);
        }
    }

    /// A packet with payload passes.
    #[inline]
    pub fn data(&mut self, packet: &Packet, trips: &Trips) -> DataArrival {
        self.undelivered = None;
        let seq = packet.seq.wrapping_add(u32::from(packet.has(SYN)));
        let segment = self.segment;
        if self.followed.is_none() {
            self.follow(seq);
        }
        let known = self.followed.as_mut().expect("it was begun just now");
        let arrival = known.stream.data(packet, seq, segment, trips);
        self.bytes = known.stream.range;
        arrival
    }

    /// The peer acknowledges, and offers a window of this scale.
    #[inline]
    pub fn on_ack(
        &mut self,
        packet: &Packet,
        scale: Option<u8>,
        trips: &Trips,
    ) -> Option<Acknowledged> {
        if self.end.is_some_and(|end| !before(packet.ack, end)) {
            self.closed = true;
        }
        if self.followed.is_none() {
            self.on_first_ack(packet, scale);
        }
        let segment = self.segment;
        let stream = &mut self.followed.as_mut()?.stream;
        let ack = stream.on_ack(packet, scale, segment, trips);
        self.bytes = stream.range;
        // It came, and the capture lacks it.
        if ack.is_some_and(|ack| ack.gained > 0) {
            self.undelivered = None;
        }
        ack
    }

    /// The peer acknowledges before any data were seen.
    #[inline]
    fn on_first_ack(&mut self, packet: &Packet, scale: Option<u8>) {
        self.last_ack = packet.at;
        (self.window, self.window_scale) = (packet.window, scale);
        match self.start {
            Start::Unknown => self.start = Start::Acknowledged(packet.ack),
            // Data that were acknowledged, and not seen; a FIN alone takes one number.
            Start::Acknowledged(start) | Start::Seen(start)
                if (2..LARGEST_WINDOW).contains(&packet.ack.wrapping_sub(start)) =>
            {
                self.follow(start);
            }
            _ => {}
        }
    }

    #[inline(never)]
    fn follow(&mut self, start: u32) {
        let sent = self.last_sent;
        let start = match self.start {
            Start::Seen(start) | Start::Acknowledged(start) => start,
            Start::Unknown => start,
        };
        let known = SeenAck {
            at: self.last_ack,
            ack: start,
            window: advertised(self.window, self.window_scale),
            bare: false,
        };
        let spare = &mut self.spare;
        self.followed.get_or_insert_with(|| {
            let Some(mut spare) = spare.take() else {
                return Box::new(FollowedStream {
                    stream: Stream::new(sent, known),
                    view: S::begin(sent),
                });
            };
            let coming = take(&mut spare.stream.coming);
            let out = take(&mut spare.stream.out);
            spare.stream = Stream {
                coming,
                out,
                ..Stream::new(sent, known)
            };
            spare.view = S::begin(sent);
            spare
        });
    }

    /// What another may have of its memory.
    pub fn forget(&mut self) -> Option<Box<FollowedStream<S>>> {
        let mut followed = self.followed.take().or(self.spare.take())?;
        followed.stream.settle();
        Some(followed)
    }

    /// The connection is kept for its figures, and takes no packets any more.
    pub fn slim(&mut self) {
        self.spare = None;
        if let Some(followed) = &mut self.followed {
            (followed.stream.coming, followed.stream.out) = Default::default();
        }
    }

    /// The connection is over: what was remembered of packets is not needed any more.
    pub fn settle(&mut self) {
        if let Some(followed) = &mut self.followed {
            followed.stream.settle();
        }
    }
}

/// What a data packet is. Its stream says more of it: what is copied on its way has to be small.
#[derive(Clone, Copy, Debug)]
pub enum DataArrival {
    /// Bytes that were not seen before: see [`Stream::released`].
    New,
    /// Bytes that had left before: see [`Stream::retransmission`].
    Retransmission,
    /// It was overtaken by later ones.
    Reordered,
    /// The capture recorded the same packet twice.
    Duplicate,
    /// A byte that was acknowledged long ago and keeps the connection alive (RFC 9293, 3.8.4), or one that probes a
    /// closed window (3.8.6.1): the receiver need not take it.
    Probe,
    /// Its sequence number is far from all others.
    Stray,
}

/// A retransmission.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamRetransmission {
    /// When the copy left that it repeats, as far as that was seen, else now.
    pub before: Nanos,
    /// When data behind it passed, if it never had: it was lost before the observer.
    pub missed: Option<Nanos>,
    /// It had been waited for so long that it was a timeout's.
    pub timeout: Option<Nanos>,
    /// Timeouts in a row for the same segment; 0 if it is none's.
    pub backoffs: u32,
    /// The receiver had acknowledged the bytes, as was seen before it passed.
    pub needless: bool,
    /// Sequence numbers of its first byte and behind its last.
    pub range: (u32, u32),
}

/// What an acknowledgement of this direction's data is.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    /// Bytes that were not acknowledged before.
    pub gained: u32,
    /// The advertised window, where its scale is known or it is 0.
    pub window: Option<u32>,
    /// A round trip from the observer to the receiver (Karn's rule).
    pub trip: Option<Nanos>,
    /// The receiver had these bytes already (RFC 2883).
    pub is_dsack: bool,
}

/// The account of one direction with its data. What is looked at when it is forgotten comes first and together: by
/// then none of it is in the processor's cache.
#[derive(Default)]
#[repr(C)]
pub struct Stream {
    /// Acknowledgements on their way to the sender.
    coming: VecDeque<SeenAck>,
    out: VecDeque<OutstandingSegment>,
    trouble: Option<Box<Trouble>>,
    /// Behind the last byte seen.
    next: u32,
    /// Behind the last byte that the peer acknowledged.
    pub acked: u32,
    /// What the sender knew when the packets that pass now left; and what it knew before that.
    known: SeenAck,
    known_before: SeenAck,
    sender: SenderWaits,
    /// Data packets that left: new ones and retransmissions. The last one has this number.
    pub departures: u32,
    /// The last packet goes on in fragments that have no TCP header.
    open_end: bool,
    /// Data packets; what the capture recorded twice counts once.
    pub packets: u64,
    /// The same with those that offload joined counted one by one.
    pub segments: u64,
    /// Payload, retransmissions included.
    pub bytes: u64,
    /// Sequence space between the first and the last byte, seen or acknowledged unseen.
    pub range: u64,
    marked: u64,
    echoed: u32,
    /// Acknowledgements of any kind.
    pub acknowledgements: u64,
    /// The shortest round trip between the observer and the receiver.
    pub min_rtt: Option<Nanos>,
    /// The same, smoothed as the sender does (RFC 6298); 0 before the first.
    pub srtt: Nanos,
    last_data: Nanos,
    last_new: Nanos,
    last_gain: Nanos,
    /// The largest segment that was acknowledged.
    pub largest_acked: u32,
    delayed_ack: Nanos,
    /// What let the last new data go.
    pub released: Release,
    /// Bytes in flight before them, as the sender knew it.
    pub flight_before: u64,
    /// The latest data packets: their sequence numbers and IP identifications; and the latest acknowledgement's.
    recent: [(u32, u16); RECENT],
    last_ack_id: u16,
}

/// Keeps no more memory than most need.
#[inline]
fn empty<T>(queue: &mut VecDeque<T>) {
    queue.clear();
    if queue.capacity() > USUAL_OUT {
        queue.shrink_to(USUAL_OUT);
    }
}

/// Bytes of a full segment, announced or not.
pub fn usual(segment: u32) -> u32 {
    match segment {
        0 => USUAL_SEGMENT,
        announced => announced,
    }
}

/// What a stream counts, and most have nothing of.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamCounts {
    /// Retransmitted packets.
    pub retransmitted: u64,
    /// The same with those that were joined counted one by one.
    pub retransmitted_segments: u64,
    /// Packets that were overtaken.
    pub reordered: u64,
    /// Packets that the capture recorded twice.
    pub duplicates: u64,
    /// Packets with sequence numbers far from all others.
    pub strays: u64,
    /// Bytes that were acknowledged and never seen.
    pub unseen: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// The most of them in a row for one segment.
    pub backoffs: u32,
    /// The time that they took.
    pub stalled: Nanos,
    /// Retransmissions of what had been acknowledged when they passed, and those that the receiver reported.
    seen_needless: u64,
    dsacks: u64,
}

#[derive(Default)]
struct Trouble {
    counts: StreamCounts,
    gaps: VecDeque<(u32, u32, Nanos)>,
    /// The oldest segment, retransmitted after timeouts: its number, and how often.
    backed_off: (u32, u32),
    /// The departures that the last retransmission repeats, and what was behind each of them.
    repeated: Vec<(u32, u32)>,
    /// When data below the newest came last, again or late.
    again: Nanos,
    /// The end of what a SACK named, as far as it reached.
    sacked: Option<u32>,
    last: StreamRetransmission,
}

/// A data packet that is not yet acknowledged, or the part of one that was not retransmitted since.
#[derive(Clone, Copy)]
struct OutstandingSegment {
    begin: u32,
    end: u32,
    at: Nanos,
    /// The number of its last departure, and the sequence number behind that.
    number: u32,
    behind: u32,
    /// IP identification of the last packet that carried it.
    id: u16,
    repetition: Repetition,
    /// A SACK named it.
    sacked: bool,
}

/// Whether a packet was sent once, as its acknowledgement is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repetition {
    /// Sent once: its acknowledgement is a round trip (Karn).
    Once,
    /// Retransmitted, and no needless one reported since.
    Again,
    /// Neither: it was reported already.
    Reported,
}

impl Stream {
    fn new(last_sent: Nanos, known: SeenAck) -> Stream {
        Stream {
            next: known.ack,
            acked: known.ack,
            known,
            known_before: known,
            last_data: last_sent,
            last_new: last_sent,
            last_gain: known.at,
            ..Stream::default()
        }
    }

    /// Bytes in flight, as the sender knew it when the last data packet left.
    pub fn flight(&self) -> u64 {
        ahead(self.known.ack, self.next)
    }

    /// The advertised window that the sender knew then; 0 if it is not known.
    pub fn window(&self) -> u64 {
        self.known.window.unwrap_or(0).into()
    }

    /// Bytes that were seen and not acknowledged.
    pub fn unacked(&self) -> u64 {
        u64::from(self.next.wrapping_sub(self.acked))
    }

    /// What it counts.
    pub fn counts(&self) -> StreamCounts {
        self.trouble
            .as_deref()
            .map(|t| t.counts)
            .unwrap_or_default()
    }

    /// When the last data passed, if they were new.
    pub fn last_new(&self) -> Option<Nanos> {
        (self.last_new == self.last_data).then_some(self.last_new)
    }

    /// The last retransmission.
    pub fn retransmission(&self) -> Option<&StreamRetransmission> {
        self.trouble.as_deref().map(|t| &t.last)
    }

    /// The last time that data passed of which those before had not.
    pub fn last_gap(&self) -> Option<Nanos> {
        let (.., since) = self.trouble.as_ref()?.gaps.back()?;
        Some(*since)
    }

    /// The departures that the last retransmission repeats, and the sequence number behind each of them.
    pub fn repeated(&self) -> &[(u32, u32)] {
        self.trouble.as_deref().map_or(&[], |t| &t.repeated)
    }

    /// Packets with a mark of congestion, or acknowledgements that echo one (RFC 3168).
    pub fn marked(&self) -> u64 {
        self.marked.max(self.echoed.into())
    }

    /// Retransmissions that the receiver had not needed.
    fn needless(&self) -> u64 {
        let counts = self.counts();
        let most = counts.dsacks.max(counts.seen_needless);
        most.min(counts.retransmitted_segments)
    }

    /// Bytes of a full segment: as announced, unless all were smaller.
    pub fn mss(&self, segment: u32) -> u32 {
        match (segment, self.sender.largest()) {
            (0, largest @ 0..=LARGEST_FRAME) => largest,
            (0, _) => USUAL_SEGMENT,
            (_, 0) => segment,
            (_, largest) => largest.min(segment),
        }
    }

    /// What was never acknowledged, though timeouts repeated it, has its time until the end as well; or what the sender counts as
    /// sent and never came, from the last data to the sender's last packet. Returns it.
    pub fn close(&mut self, end: Nanos, undelivered: Option<&Undelivered>) -> Nanos {
        let (acked, last) = (self.acked, self.last_data);
        let silence = undelivered.map_or(Nanos(0), Undelivered::silence);
        if silence > RTO_MIN + self.srtt {
            let backoffs = self.backoffs_within(silence);
            let counts = &mut self.trouble().counts;
            counts.timeouts += u64::from(backoffs);
            counts.stalled += silence;
            counts.backoffs = counts.backoffs.max(backoffs);
            return silence;
        }
        match &mut self.trouble {
            Some(trouble) if trouble.backed_off.1 > 0 && trouble.backed_off.0 == acked => {
                trouble.counts.stalled += end.since(last);
                end.since(last)
            }
            _ => Nanos(0),
        }
    }

    /// Timeouts in a row that a wait of this length holds: each lasts twice as long as the one before (RFC 6298, 5.5).
    fn backoffs_within(&self, waited: Nanos) -> u32 {
        let first = (RTO_MIN + self.srtt).0;
        (waited.0 / first).saturating_add(1).ilog2()
    }

    /// From the observer to the receiver and back, at the least: that of the handshake counts as it does for the kernel
    /// (`tcp_synack_rtt_meas`, `net/ipv4/tcp_input.c`), for a window that is always full never shows the empty path again.
    pub fn shortest(&self, trips: &Trips) -> Option<Nanos> {
        self.min_rtt.into_iter().chain(trips.to_receiver).min()
    }

    /// The figures that every output shows.
    pub fn figures(
        &self,
        sender: SocketAddr,
        receiver: SocketAddr,
        vantage: Vantage,
        trips: &Trips,
    ) -> StreamFigures {
        let counts = self.counts();
        StreamFigures {
            sender,
            receiver,
            vantage,
            segments: self.segments,
            retransmissions: counts.retransmitted_segments,
            needless_retransmissions: self.needless(),
            reordered: counts.reordered,
            capture_duplicates: counts.duplicates,
            unseen: Bytes(counts.unseen),
            min_rtt: self.shortest(trips).map(|rtt| rtt + trips.near(vantage)),
            delayed_ack: self.delayed_ack,
            path: None,
        }
    }

    /// Forgets the packets that it remembers, and keeps no more memory for them than most need.
    fn settle(&mut self) {
        empty(&mut self.coming);
        empty(&mut self.out);
        if let Some(trouble) = &mut self.trouble {
            trouble.gaps = VecDeque::new();
        }
    }

    fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    #[inline]
    fn data(&mut self, packet: &Packet, seq: u32, segment: u32, trips: &Trips) -> DataArrival {
        while let Some(coming) = self.coming.front() {
            if coming.at + trips.to_sender > packet.at {
                break;
            }
            let coming = *coming;
            self.learns(coming);
            self.coming.pop_front();
        }
        if packet.payload == 1 {
            let probes = seq == self.acked && self.known.window == Some(0);
            if probes || before(seq, self.acked) {
                return DataArrival::Probe;
            }
        }
        let step = offset(self.next, seq);
        let end = seq.wrapping_add(packet.payload);
        if step != 0 {
            if step.unsigned_abs() > LARGEST_WINDOW.into() {
                self.trouble().counts.strays += 1;
                return DataArrival::Stray;
            }
            if step < 0 && self.is_duplicate(packet, seq, end, trips.total) {
                self.trouble().counts.duplicates += 1;
                return DataArrival::Duplicate;
            }
        }
        self.recent[self.packets as usize % RECENT] = (seq, packet.ip_id);
        self.packets += 1;
        let count = match segment {
            _ if packet.payload <= segment => 1,
            0 => 1,
            _ => u64::from(packet.payload.div_ceil(segment)),
        };
        self.segments += count;
        self.bytes += u64::from(packet.payload);
        self.marked += u64::from(packet.marked);
        let arrival = match step < 0 {
            true => self.again(packet, (seq, end), count, trips.total),
            false => self.new_data(packet, (seq, end), count, segment, trips),
        };
        self.last_data = packet.at;
        arrival
    }

    /// An acknowledgement is on its way to the sender.
    #[inline]
    fn comes(&mut self, seen: SeenAck) {
        if self.coming.len() >= MOST_OUT {
            self.coming.pop_front();
        }
        self.coming.push_back(seen);
    }

    /// It arrives there.
    #[inline]
    fn learns(&mut self, coming: SeenAck) {
        match coming.is_behind(&self.known) {
            true => self.known_before = std::mem::replace(&mut self.known, coming),
            false => self.known.window = coming.window,
        }
    }

    #[inline]
    fn new_data(
        &mut self,
        packet: &Packet,
        (seq, end): (u32, u32),
        count: u64,
        segment: u32,
        trips: &Trips,
    ) -> DataArrival {
        self.released = self.release(packet, seq, count, segment, trips);
        if self.released.held.0 > 0 {
            self.delayed_ack += self.released.held;
        }
        self.flight_before = self.flight();
        if seq != self.next && !self.open_end {
            self.misses(seq, packet.at);
        }
        self.range += u64::from(end.wrapping_sub(self.next));
        self.next = end;
        self.last_new = packet.at;
        self.open_end = packet.fragment;
        if self.out.len() >= MOST_OUT {
            self.out.pop_front();
        }
        self.departures = self.departures.wrapping_add(1);
        self.out.push_back(OutstandingSegment {
            begin: seq,
            end,
            at: packet.at,
            number: self.departures,
            behind: end,
            id: packet.ip_id,
            repetition: Repetition::Once,
            sacked: false,
        });
        DataArrival::New
    }

    /// Data before these were not seen.
    #[cold]
    fn misses(&mut self, seq: u32, at: Nanos) {
        let gap = (self.next, seq, at);
        let gaps = &mut self.trouble().gaps;
        if gaps.len() >= MOST_GAPS {
            gaps.pop_front();
        }
        gaps.push_back(gap);
    }

    #[inline]
    fn release(
        &mut self,
        packet: &Packet,
        seq: u32,
        count: u64,
        segment: u32,
        trips: &Trips,
    ) -> Release {
        let (mut newest, mut known) = (&self.known, &self.known_before);
        let mut opened = None;
        // At the sender nothing is on its way, and to iterate over that takes as long as much of the rest.
        if !self.coming.is_empty() {
            let near = trips.least_to_sender;
            let arrived = |known: &&SeenAck| known.at + near <= packet.at;
            let end = seq.wrapping_add(packet.payload);
            for coming in self.coming.iter().take_while(arrived) {
                if coming.is_behind(newest) {
                    if !newest.allows(end) && coming.allows(end) {
                        opened = Some(coming.at);
                    }
                    known = std::mem::replace(&mut newest, coming);
                }
            }
        }
        self.sender.sends(
            &NewSegment {
                at: packet.at,
                begin: seq,
                bytes: packet.payload,
                push: packet.has(PSH),
                announced: segment,
                count,
            },
            &Before {
                last: self.last_new,
                newest,
                known,
                settled: &self.known,
                opened,
                trips,
                min_rtt: &self.min_rtt,
            },
        )
    }

    /// The place in `out` of the packet that holds this byte.
    fn place_of(&self, seq: u32) -> usize {
        self.out.partition_point(|out| !before(seq, out.end))
    }

    /// Whether the capture recorded the same packet before: its identification says so; where it has none, that it
    /// passed a moment ago.
    #[cold]
    fn is_duplicate(&self, packet: &Packet, seq: u32, end: u32, total: Nanos) -> bool {
        let out = self.out.get(self.place_of(seq));
        if packet.ip_id != 0 {
            let known = |out: &OutstandingSegment| out.id == packet.ip_id && out.begin == seq;
            return out.is_some_and(known) || self.recent.contains(&(seq, packet.ip_id));
        }
        let soon = self.min_rtt.unwrap_or(total).max(total).0 / TOO_SOON;
        let mut gaps = self.trouble.iter().flat_map(|trouble| &trouble.gaps);
        out.is_some_and(|out| {
            out.repetition == Repetition::Once
                && !before(out.end, end)
                && packet.at.since(out.at).0 < soon
        }) && !gaps.any(|(from, to, _)| before(seq, *to) && before(*from, end))
    }

    /// A packet that begins before what was seen last: overtaken, or retransmitted.
    #[cold]
    fn again(
        &mut self,
        packet: &Packet,
        (seq, end): (u32, u32),
        segments: u64,
        total: Nanos,
    ) -> DataArrival {
        let first = self.place_of(seq);
        let waited = packet.at.since(self.last_data.max(self.last_gain));
        let within = self.backoffs_within(waited);
        let trouble = self.trouble.get_or_insert_default();
        trouble.again = packet.at;
        let gaps = &mut trouble.gaps;
        let gap = gaps
            .iter()
            .position(|(from, to, _)| !before(seq, *from) && before(seq, *to));
        let gap = gap.and_then(|n| gaps.remove(n));
        let missed = gap.map(|(.., since)| since);
        if let Some((from, to, since)) = gap {
            for (a, b) in [(from, seq), (end, to)] {
                if before(a, b) {
                    gaps.push_back((a, b, since));
                }
            }
            let soon = match total.0 {
                0 => SOON.0.max(self.min_rtt.unwrap_or_default().0 / TOO_SOON),
                total => self.min_rtt.unwrap_or_default().0.max(total) / TOO_SOON,
            };
            if packet.at.since(since).0 < soon {
                trouble.counts.reordered += 1;
                return DataArrival::Reordered;
            }
        }
        self.sender.resends(packet.payload);
        let counts = &mut trouble.counts;
        counts.retransmitted += 1;
        counts.retransmitted_segments += segments;
        self.departures = self.departures.wrapping_add(1);
        let timeout = (waited >= RTO_MIN + self.srtt).then_some(waited);
        let mut backoffs = 0;
        if let Some(waited) = timeout {
            counts.timeouts += 1;
            counts.stalled += waited;
            let (oldest, times) = trouble.backed_off;
            backoffs = if oldest == seq { times + 1 } else { 1 };
            // Behind the loss only the last one's segment comes.
            backoffs = backoffs.max(within);
            trouble.backed_off = (seq, backoffs);
            counts.backoffs = counts.backoffs.max(backoffs);
        }
        let mut last_sent = packet.at;
        let mut needless = !before(self.acked, end);
        trouble.repeated.clear();
        let mut place = first;
        while let Some(out) = self.out.get(place).filter(|out| before(out.begin, end)) {
            // What is retransmitted has departures of its own from now on.
            let cut = [seq, end]
                .into_iter()
                .find(|cut| before(out.begin, *cut) && before(*cut, out.end));
            if let Some(cut) = cut.filter(|_| self.out.len() < 2 * MOST_OUT) {
                // A SACK that ended with all of it may have named one part alone.
                let whole = OutstandingSegment {
                    sacked: false,
                    ..*out
                };
                self.out[place] = OutstandingSegment { end: cut, ..whole };
                let rest = OutstandingSegment {
                    begin: cut,
                    ..whole
                };
                self.out.insert(place + 1, rest);
                place += usize::from(cut == seq);
                continue;
            }
            let out = &mut self.out[place];
            last_sent = last_sent.min(out.at);
            if (out.begin, out.end) == (seq, end) {
                out.at = packet.at;
            }
            needless |= out.sacked && out.begin == seq && out.end == end;
            out.repetition = Repetition::Again;
            trouble.repeated.push((out.number, out.behind));
            (out.number, out.behind, out.id) = (self.departures, end, packet.ip_id);
            place += 1;
        }
        trouble.counts.seen_needless += u64::from(needless);
        trouble.last = StreamRetransmission {
            before: last_sent,
            missed,
            timeout,
            backoffs,
            needless,
            range: (seq, end),
        };
        DataArrival::Retransmission
    }

    #[inline]
    fn on_ack(
        &mut self,
        packet: &Packet,
        scale: Option<u8>,
        segment: u32,
        trips: &Trips,
    ) -> Option<Acknowledged> {
        if packet.ip_id != 0
            && packet.ip_id == std::mem::replace(&mut self.last_ack_id, packet.ip_id)
        {
            return None;
        }
        self.acknowledgements += 1;
        self.echoed += u32::from(packet.flags & (ECE | SYN) == ECE); // RFC 3168
        // Without its scale a window says something only when it is closed.
        let window = advertised(packet.window, scale).or((packet.window == 0).then_some(0));
        let mut ack = Acknowledged {
            gained: 0,
            window,
            trip: None,
            is_dsack: false,
        };
        if let Some((from, to)) = packet.sack
            && before(from, to)
            && !before(packet.ack, to)
        {
            ack.is_dsack = true; // RFC 2883: the first block lies below what is acknowledged
        } else if let Some((from, to)) = packet.sack {
            (ack.trip, ack.is_dsack) = self.overtook(packet, from, to);
        }
        if ack.is_dsack {
            self.trouble().counts.dsacks += 1;
        }
        let gained = packet.ack.wrapping_sub(self.acked);
        // Below a wild number nothing can be said.
        if gained > 0 && gained <= LARGEST_WINDOW {
            ack.gained = gained;
            self.gains(packet.ack);
            self.last_gain = packet.at;
            ack.trip = self.trip(packet, segment).or(ack.trip);
            self.acked = packet.ack;
        }
        let seen = SeenAck {
            at: packet.at,
            ack: self.acked,
            window,
            bare: packet.payload == 0,
        };
        if trips.to_sender.0 == 0 && self.coming.is_empty() {
            self.learns(seen);
        } else {
            self.comes(seen);
        }
        Some(ack)
    }

    /// All below is acknowledged: what of it was not seen is missing in the capture.
    #[inline]
    fn gains(&mut self, ack: u32) {
        if before(self.next, ack) {
            let unseen = u64::from(ack.wrapping_sub(self.next));
            // A FIN takes a number and carries nothing.
            if unseen > 1 {
                self.range += unseen;
                if !self.open_end {
                    self.trouble().counts.unseen += unseen;
                }
            }
            self.next = ack;
        }
        if let Some(trouble) = &mut self.trouble {
            let filled = |to: &u32| !before(ack, *to);
            let lost = trouble.gaps.iter().filter(|(_, to, _)| filled(to));
            trouble.counts.unseen += lost
                .map(|(from, to, _)| u64::from(to.wrapping_sub(*from)))
                .sum::<u64>();
            trouble.gaps.retain(|(_, to, _)| !filled(to));
        }
    }

    /// The round trip of the newest packet that is now acknowledged, unless what fills a gap acknowledges it.
    #[inline]
    fn trip(&mut self, packet: &Packet, segment: u32) -> Option<Nanos> {
        let (mut newest, mut at_once) = (None, true);
        let (mut from, mut largest) = (self.acked, self.largest_acked);
        while let Some(out) = self.out.front() {
            if before(packet.ack, out.end) {
                break;
            }
            newest = Some(out.at);
            at_once &= out.repetition == Repetition::Once;
            let size = out.end.wrapping_sub(from).min(usual(segment));
            largest = largest.max(size);
            from = out.end;
            self.out.pop_front();
        }
        self.largest_acked = largest;
        // It may have waited for what was retransmitted since.
        let again = self.trouble.as_ref().map_or(Nanos(0), |t| t.again);
        let trip = newest
            .filter(|sent| at_once && *sent >= again)
            .map(|sent| packet.at.since(sent))?;
        Some(self.took(trip))
    }

    /// The first block of a SACK has what has just arrived (RFC 2018): at its end and behind all blocks before, a round trip too;
    /// elsewhere it may have filled a gap. Where it names a single segment that was retransmitted and reported before, that
    /// arrived twice.
    fn overtook(&mut self, packet: &Packet, from: u32, to: u32) -> (Option<Nanos>, bool) {
        let stays = packet.ack == self.acked;
        let repeats = stays && packet.payload == 0;
        let known = &mut self.trouble().sacked;
        let is_newest = known.is_none_or(|known| before(known, to));
        if is_newest {
            *known = Some(to);
        }
        let place = self.place_of(to.wrapping_sub(1));
        let Some(out) = self.out.get_mut(place) else {
            return (None, false);
        };
        if !before(out.begin, to) {
            return (None, false);
        }
        let first = out.repetition == Repetition::Once;
        let mut twice = false;
        // Before its end, a part of what was sent as one has arrived.
        if out.end == to {
            twice =
                repeats && out.sacked && out.repetition == Repetition::Again && out.begin == from;
            out.sacked = true;
            if first || twice {
                out.repetition = Repetition::Reported;
            }
        }
        let sent = out.at;
        let trip = (first && is_newest && stays).then(|| self.took(packet.at.since(sent)));
        (trip, twice)
    }

    #[inline]
    fn took(&mut self, trip: Nanos) -> Nanos {
        self.min_rtt = Some(self.min_rtt.map_or(trip, |m| m.min(trip)));
        // RFC 6298, of what is seen from here.
        self.srtt = match self.srtt.0 {
            0 => trip,
            srtt => Nanos(srtt - srtt / 8 + trip.0 / 8),
        };
        trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    /// A packet of four segments is sent, then its second again, its fourth, and its second a third time.
    #[test]
    fn each_part_that_is_retransmitted_is_a_departure_of_its_own() {
        const MSS: u32 = 1000;
        let mut half = HalfConnection::<()>::new(Nanos(0));
        let ends: [SocketAddr; 2] = [1, 2].map(|n| ([192, 0, 2, n], 5000).into());
        let mut at = 0;
        let mut sends = |segment: u32, many: u32| {
            at += 1_000_000;
            let packet = Packet {
                at: Nanos(at),
                seq: 1 + segment * MSS,
                payload: many * MSS,
                flags: model::segment::tcp_flag::ACK,
                ..Packet::new(ends[0], ends[1])
            };
            half.data(&packet, &Trips::default());
            let stream = &half.followed.as_ref().expect("it has data").stream;
            stream.repeated().to_vec()
        };
        let behind = |segment: u32| 1 + segment * MSS;
        assert_eq!(sends(0, 4), []);
        assert_eq!(sends(1, 1), [(1, behind(4))]);
        assert_eq!(sends(3, 1), [(1, behind(4))]);
        assert_eq!(sends(1, 1), [(2, behind(2))]);
        // One packet for what three departures carried last.
        let last = [
            (1, behind(4)),
            (4, behind(2)),
            (1, behind(4)),
            (3, behind(4)),
        ];
        assert_eq!(sends(0, 4), last);
    }

    /// At the sender and at the receiver, by the handshake and by data.
    #[test]
    fn the_shortest_round_trip_may_be_that_of_the_handshake() {
        let ms = Nanos::from_millis;
        let ends: [SocketAddr; 2] = [1, 2].map(|n| ([192, 0, 2, n], 5000).into());
        let known = SeenAck {
            at: ms(0),
            ack: 0,
            window: None,
            bare: false,
        };
        let mut stream = Stream::new(ms(0), known);
        let shown = |stream: &Stream, vantage, trips: [u64; 2]| {
            let trips = Trips::of(trips.map(|trip| Some(ms(trip))));
            stream.figures(ends[0], ends[1], vantage, &trips).min_rtt
        };
        assert_eq!(stream.shortest(&Trips::default()), None);
        assert_eq!(shown(&stream, Vantage::AtSender, [0, 20]), Some(ms(20)));
        stream.took(ms(30));
        assert_eq!(shown(&stream, Vantage::AtSender, [0, 20]), Some(ms(20)));
        assert_eq!(shown(&stream, Vantage::AtReceiver, [21, 1]), Some(ms(22)));
        assert_eq!(stream.shortest(&Trips::default()), Some(ms(30)));
        stream.took(ms(10));
        assert_eq!(shown(&stream, Vantage::AtSender, [0, 20]), Some(ms(10)));
    }

    /// Of a packet of four segments the second is lost, and a SACK names the last two.
    #[test]
    fn what_fills_the_gap_before_a_sack_is_not_needless() {
        const MSS: u32 = 1000;
        let mut half = HalfConnection::<()>::new(Nanos(0));
        let ends: [SocketAddr; 2] = [1, 2].map(|n| ([192, 0, 2, n], 5000).into());
        let data = |at: Nanos, segment: u32, many: u32| Packet {
            at,
            seq: 1 + segment * MSS,
            payload: many * MSS,
            flags: model::segment::tcp_flag::ACK,
            ..Packet::new(ends[0], ends[1])
        };
        let trips = Trips::default();
        half.data(&data(Nanos::from_millis(1), 0, 4), &trips);
        let sack = Packet {
            at: Nanos::from_millis(21),
            ack: 1 + MSS,
            flags: model::segment::tcp_flag::ACK,
            sack: Some((1 + 2 * MSS, 1 + 4 * MSS)),
            ..Packet::new(ends[1], ends[0])
        };
        half.on_ack(&sack, Some(0), &trips);
        half.data(&data(Nanos::from_millis(22), 1, 1), &trips);
        let stream = &half.followed.as_ref().expect("it has data").stream;
        assert!(!stream.retransmission().expect("one").needless);
        assert_eq!(stream.needless(), 0);
    }

    /// Of a packet of eight segments each second one is lost; where what came ends with the packet, or before its end.
    #[test]
    fn a_sack_of_a_part_of_a_packet_is_a_round_trip() {
        const MSS: u32 = 1000;
        let ends: [SocketAddr; 2] = [1, 2].map(|n| ([192, 0, 2, n], 5000).into());
        for came in [7, 6] {
            let mut half = HalfConnection::<()>::new(Nanos(0));
            let data = Packet {
                at: Nanos::from_millis(1),
                seq: 1,
                payload: 8 * MSS,
                flags: model::segment::tcp_flag::ACK,
                ..Packet::new(ends[0], ends[1])
            };
            half.data(&data, &Trips::default());
            let mut sack = |ms, segment: Option<u32>| {
                let ack = Packet {
                    at: Nanos::from_millis(ms),
                    ack: 1 + MSS,
                    sack: segment.map(|n| (1 + n * MSS, 1 + (n + 1) * MSS)),
                    ..Packet::new(ends[1], ends[0])
                };
                half.on_ack(&ack, Some(0), &Trips::default());
                half.followed.as_ref().expect("it has data").stream.srtt
            };
            assert_eq!(sack(20, None), Nanos(0));
            assert_eq!(sack(21, Some(came)), Nanos::from_millis(20));
            assert_eq!(
                sack(300, Some(2)),
                Nanos::from_millis(20),
                "it filled a gap"
            );
        }
    }

    /// At the receiver the second of five segments and the fourth are lost, and come 200 ms later. SACK names nothing, or what
    /// came last, together with what lay behind the gap that it filled.
    #[test]
    fn what_waited_behind_a_gap_is_no_round_trip() {
        const MSS: u32 = 1000;
        let behind = |segment: u32| 1 + segment * MSS;
        let ends: [SocketAddr; 2] = [1, 2].map(|n| ([192, 0, 2, n], 5000).into());
        for sacks in [false, true] {
            let mut half = HalfConnection::<()>::new(Nanos(0));
            let came = [
                (1, 0, 1, None),
                (2, 2, 1, Some((2, 3))),
                // Of two segments the latter is acknowledged alone.
                (3, 4, 1, None),
                (3, 5, 1, Some((4, 6))),
                (203, 3, 1, Some((2, 6))),
                (204, 1, 6, None),
            ];
            for (ms, segment, ack, sack) in came {
                let at = Nanos::from_millis(ms);
                let data = Packet {
                    at,
                    seq: behind(segment),
                    payload: MSS,
                    flags: model::segment::tcp_flag::ACK,
                    ..Packet::new(ends[0], ends[1])
                };
                half.data(&data, &Trips::default());
                let named = sack.filter(|_| sacks);
                let ack = Packet {
                    at: at + Nanos(5000),
                    ack: behind(ack),
                    sack: named.map(|(from, to)| (behind(from), behind(to))),
                    ..Packet::new(ends[1], ends[0])
                };
                half.on_ack(&ack, Some(0), &Trips::default());
            }
            let stream = &half.followed.as_ref().expect("it has data").stream;
            assert_eq!(stream.srtt, Nanos(5000), "with SACK: {sacks}");
        }
    }
}
