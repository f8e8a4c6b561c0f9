//! One direction of a connection: its data, and the acknowledgements of them.
//!
//! What the sender saw is reckoned from where the capture stood. A data packet that passes now was sent
//! when the acknowledgements of half a round trip earlier had reached the sender: so each acknowledgement
//! counts only after the time from here to the sender and back. At the sender that is none, at the
//! receiver a whole round trip.

use super::Counted;
use crate::assemble::{FEWEST_SEGMENTS, Subject, assemble};
use crate::facts::{
    self, Facts, Held, Loss, MOST_LOSSES, MOST_SENT, Reading, Rhythm, Sent, Vanished,
};
use crate::limits::{RECEIVE_WINDOW_FULL, bucket};
use crate::moment::{self, Piece};
use model::finding::{Conclusion, Explanation, Limit, Source};
use model::packet::Packet;
use model::segment::tcp_flag::{ECE, SYN};
use model::{Bytes, Nanos};
use std::collections::VecDeque;
use std::mem::take;
use std::net::SocketAddr;
use tcp::seq::{ahead, before, offset};
use tcp::thresholds::{
    AT_ONCE, LARGEST_FRAME, LARGEST_WINDOW, LEAST_INITIAL_WINDOW, RTO_MIN, SOON, TIMESTAMP_TICK,
    TOO_SOON, USUAL_SEGMENT,
};

/// Packets of one direction that are remembered until they are acknowledged.
const MOST_OUT: usize = 1 << 16;
/// Of most connections no more at a time.
const USUAL_OUT: usize = 8;
/// Gaps in the sequence that are remembered.
const MOST_GAPS: usize = 256;
/// A reading is no shorter than this.
const SHORTEST_READING: Nanos = Nanos::from_millis(5);
/// Of the round trip, what else may delay what an acknowledgement lets go, seen from afar.
const AFAR: u64 = 8;
/// Readings whose packets are looked at for how long they lay below TCP: later, clocks may have drifted.
const TIMED: usize = 1000;
/// Fewer readings without a loss show no rhythm.
const FEWEST_READINGS: u32 = 10;
/// A stream of fewer packets is not kept packet by packet.
const FEWEST_SENT: u64 = 32;
/// What left before the first loss, as far as it may matter: some round trips.
const BEFORE_LOSS: usize = 1024;
/// More than this part of an advertised window cannot be in flight: then the window is not what it seems.
const BEYOND: f64 = 1.25;

/// One direction before its first data: what is known of it from the other packets of its sender.
pub(super) struct Half {
    /// Its SYN was seen, and offered this scale of windows, or none.
    pub offered: Option<Option<u8>>,
    /// Behind its FIN, where that was seen.
    pub end: Option<u32>,
    /// The peer acknowledged all, with the FIN.
    pub closed: bool,
    pub stream: Option<Box<Stream>>,
    /// Memory for it.
    pub spare: Option<Box<Stream>>,
    /// Bytes of its data, seen or acknowledged unseen: those of the stream, near at hand.
    pub bytes: u64,
    /// The MSS that its SYN announced.
    pub announced: Option<u16>,
    /// Its packets have timestamps, which take 12 bytes of each segment.
    pub stamped: bool,
    /// Bytes of a full segment, as both ends announced it; 0 if neither did.
    pub segment: u32,
    /// Of the windows that it offers, if that is known.
    pub scale: Option<u8>,
    start: Start,
    last_sent: Nanos,
    last_heard: Nanos,
    window: u64,
}

/// The sequence number of the first byte.
#[derive(Clone, Copy)]
enum Start {
    Unknown,
    /// Only acknowledgements of it were seen.
    Heard(u32),
    Seen(u32),
}

/// Where the capture stands: the time from there to the sender and back, and the whole round trip.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    pub to_sender: Nanos,
    pub total: Nanos,
}

/// What a direction's explanation takes from its connection.
pub(super) struct Frame {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub source: Source,
    /// From the capture to the sender and back.
    pub near: Nanos,
    /// The whole round trip, as the handshake showed it.
    pub total: Nanos,
    pub begun: Nanos,
    pub span: Nanos,
    pub opened: Option<Nanos>,
    pub syns_again: u8,
    pub segment: u32,
    /// The other direction carries data as well.
    pub is_exchange: bool,
    pub doubts: Vec<String>,
}

impl Half {
    pub fn new(at: Nanos) -> Half {
        Half {
            offered: None,
            end: None,
            closed: false,
            stream: None,
            spare: None,
            bytes: 0,
            announced: None,
            stamped: false,
            segment: 0,
            scale: None,
            start: Start::Unknown,
            last_sent: at,
            last_heard: at,
            window: 0,
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

    /// The peer's SYN acknowledges its own, which need not be in the capture.
    pub fn answered(&mut self, ack: u32) {
        if matches!(self.start, Start::Unknown) {
            self.start = Start::Heard(ack);
        }
    }

    /// A connection that begins there is another one.
    pub fn has_other_start(&self, syn: u32) -> bool {
        matches!(self.start, Start::Seen(start) if start != syn.wrapping_add(1))
    }

    /// Another packet of its sender. Whether it is the first with timestamps.
    pub fn sends(&mut self, packet: &Packet) -> bool {
        if !matches!(self.start, Start::Seen(_)) {
            // What was acknowledged up to now was sent before the capture began.
            self.start = Start::Seen(packet.seq);
            self.stream = None;
        }
        let first = !self.stamped && packet.stamps.is_some();
        self.stamped |= first;
        first
    }

    /// A packet with payload passes.
    pub fn data(&mut self, packet: &Packet, place: Place) {
        let seq = packet.seq.wrapping_add(u32::from(packet.has(SYN)));
        let segment = self.segment;
        let stream = self.stream(seq);
        stream.data(packet, seq, segment, place);
        self.bytes = stream.range;
    }

    /// The peer acknowledges, and offers a window of this scale.
    #[inline]
    pub fn hears(&mut self, packet: &Packet, scale: Option<u8>, total: Nanos) {
        self.closed |= self.end.is_some_and(|end| !before(packet.ack, end));
        if self.stream.is_none() {
            self.hears_first(packet, scale);
        }
        if let Some(stream) = &mut self.stream {
            stream.hears(packet, scale, self.segment, total);
            self.bytes = stream.range;
        }
    }

    /// The peer acknowledges before any data were seen.
    fn hears_first(&mut self, packet: &Packet, scale: Option<u8>) {
        self.last_heard = packet.at;
        self.window = u64::from(packet.window) << scale.unwrap_or(0);
        match self.start {
            Start::Unknown => self.start = Start::Heard(packet.ack),
            // Data that were acknowledged, and not seen; a FIN alone takes one number.
            Start::Heard(start) | Start::Seen(start)
                if (2..LARGEST_WINDOW).contains(&packet.ack.wrapping_sub(start)) =>
            {
                self.stream(start);
            }
            _ => {}
        }
    }

    fn stream(&mut self, start: u32) -> &mut Stream {
        let (sent, heard, window) = (self.last_sent, self.last_heard, self.window);
        let start = match self.start {
            Start::Seen(start) | Start::Heard(start) => start,
            Start::Unknown => start,
        };
        let spare = &mut self.spare;
        self.stream.get_or_insert_with(|| {
            let begun = Stream::new(start, sent, heard, window);
            let Some(mut spare) = spare.take() else {
                return Box::new(begun);
            };
            let (coming, out) = (take(&mut spare.coming), take(&mut spare.out));
            *spare = Stream {
                coming,
                out,
                ..begun
            };
            spare
        })
    }

    /// What another may have of its memory.
    pub fn forget(&mut self) -> Option<Box<Stream>> {
        let mut stream = self.stream.take().or(self.spare.take())?;
        stream.settle();
        Some(stream)
    }

    /// The connection is to be told, and takes no packets any more.
    pub fn slim(&mut self) {
        self.spare = None;
        if let Some(stream) = &mut self.stream {
            (stream.coming, stream.out) = Default::default();
        }
    }

    /// The connection is over: what was remembered of packets is not needed any more.
    pub fn settle(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.settle();
        }
    }
}

/// One direction with its data. What is looked at when it is forgotten comes first and together: by then none
/// of it is in the processor's cache.
#[repr(C)]
pub(super) struct Stream {
    /// Acknowledgements on their way to the sender.
    coming: VecDeque<(Nanos, u32, u64)>,
    out: VecDeque<Out>,
    trouble: Option<Box<Trouble>>,
    /// What left, from the first [`FEWEST_SENT`] packets on.
    departed: Option<Box<Departed>>,
    course: Option<Box<Course>>,
    /// Behind the last byte seen.
    next: u32,
    /// Behind the last byte that the peer acknowledged.
    acked: u32,
    /// What the sender knew when the packets that pass now left: the acknowledgement and the window.
    known: (u32, u64),
    /// The last packet goes on in fragments that have no TCP header.
    open_end: bool,
    packets: u64,
    /// The same with those that were joined counted one by one.
    segments: u64,
    bytes: u64,
    /// Sequence space between the first and the last byte, seen or acknowledged unseen.
    pub range: u64,
    marked: u64,
    /// Acknowledgements that echo a mark.
    echoed: u32,
    largest: u32,
    acknowledgements: u64,
    min_rtt: Option<Nanos>,
    srtt: Nanos,
    rtts: u64,
    rtt_sum: u64,
    last_data: Nanos,
    last_heard: Nanos,
    /// When something was acknowledged last.
    last_gain: Nanos,
    /// One of those that left since all was acknowledged carried less than a segment.
    short: bool,
    /// A single segment has left since all was acknowledged.
    alone: bool,
    /// The last acknowledgement carried no data.
    bare: bool,
    /// Largest segment that was acknowledged.
    largest_acked: u32,
    /// The least time from a timestamp to its packet, in microseconds from an arbitrary moment.
    stamped: Option<u32>,
    /// When the reading that runs began, and what is in it so far.
    reading_from: Nanos,
    flight: u64,
    /// The least that was in flight when more was sent, and the longest time in which nothing was.
    least: u64,
    pause: Nanos,
    window: u64,
    delivered: u64,
    passed: u64,
    again: u32,
    /// Time with nothing left to send, in waits of short segments, and in waits that ended in a retransmission.
    idle: Nanos,
    held: Nanos,
    stalled: Nanos,
    least_window: u64,
}

/// Keeps no more memory than most need.
#[inline]
fn empty<T>(queue: &mut VecDeque<T>) {
    queue.clear();
    if queue.capacity() > USUAL_OUT {
        queue.shrink_to(USUAL_OUT);
    }
}

/// Bytes of a full segment, told or not.
fn usual(segment: u32) -> u32 {
    match segment {
        0 => USUAL_SEGMENT,
        told => told,
    }
}

/// What most streams have nothing of.
#[derive(Default)]
struct Trouble {
    gaps: VecDeque<(u32, u32, Nanos)>,
    retransmitted: u64,
    /// The same with those that were joined counted one by one.
    resent: u64,
    timeouts: u64,
    out_of_order: u64,
    twice: u64,
    strays: u64,
    unseen: u64,
    needless: u64,
    losses: Vec<Loss>,
    /// The oldest segment, sent again after timeouts: its number, and how often.
    backed_off: (u32, u32),
    backoffs: u32,
    stalled: Nanos,
    vanished: Option<Vanished>,
}

/// What left, in the order of time: all from shortly before the first loss, up to [`MOST_SENT`].
#[derive(Default)]
struct Departed {
    sent: Vec<Sent>,
    /// Number of the first that is kept.
    first: u32,
    lossy: bool,
}

impl Departed {
    /// Returns its number; of one that is not kept any more nobody has one.
    fn keep(&mut self, packet: &Packet, segment: u32) -> u32 {
        if !self.lossy && self.sent.len() >= 2 * BEFORE_LOSS {
            self.sent.drain(..BEFORE_LOSS);
            self.first = self.first.wrapping_add(BEFORE_LOSS as u32);
        }
        let number = self.first.wrapping_add(self.sent.len() as u32);
        if self.sent.len() < MOST_SENT {
            self.sent.push(Sent {
                at: packet.at,
                bytes: packet.payload,
                lost: 0,
                lost_from: u32::MAX,
                size: packet.payload.min(usual(segment)),
            });
        }
        number
    }

    /// What had left last of these numbers is lost.
    fn lost(&mut self, out: &Out, seq: u32, end: u32) {
        self.lossy = true;
        let at = out.number.wrapping_sub(self.first) as usize;
        let Some(sent) = self.sent.get_mut(at) else {
            return;
        };
        let begin = out.end.wrapping_sub(sent.bytes);
        let from = if before(begin, seq) { seq } else { begin };
        let to = if before(end, out.end) { end } else { out.end };
        if before(from, to) {
            sent.lost_from = sent.lost_from.min(from.wrapping_sub(begin));
            sent.lost = (sent.lost + to.wrapping_sub(from)).min(sent.bytes);
        }
    }
}

/// What only streams that last have.
#[derive(Default)]
struct Course {
    readings: Vec<Reading>,
    pieces: Vec<Piece>,
    /// Readings with more in flight than the window allows, and those with less.
    beyond: u32,
    within: u32,
    held: Held,
    alone: Held,
    pace: Pace,
}

/// How a sender spreads out what it sends: readings without a loss, by what was seen in them.
#[derive(Default)]
struct Pace {
    readings: u32,
    /// Less than half of what the path holds was in flight for a moment.
    drained: u32,
    /// Nothing was sent for half of the round trip.
    paused: u32,
    /// Packets with timestamps, and the microseconds that they were late.
    stamped: u32,
    late: u64,
}

impl Pace {
    fn rhythm(&self) -> Option<Rhythm> {
        let share = |of: u32| f64::from(of) / f64::from(self.readings);
        let late = self
            .late
            .checked_div(self.stamped.into())
            .map(Nanos::from_micros);
        (self.readings >= FEWEST_READINGS).then(|| Rhythm {
            drained: share(self.drained),
            paused: share(self.paused),
            // On the average a packet leaves half a tick after the tick of its stamp.
            late: late.map(|late| late.since(Nanos(TIMESTAMP_TICK.0 / 2))),
        })
    }
}

/// A data packet that is not yet acknowledged.
struct Out {
    end: u32,
    /// Sent once: its acknowledgement tells a round trip (Karn).
    once: bool,
    at: Nanos,
    /// Its number in [`Departed`].
    number: u32,
}

impl Stream {
    fn new(start: u32, last_sent: Nanos, last_heard: Nanos, window: u64) -> Stream {
        Stream {
            next: start,
            acked: start,
            known: (start, window),
            coming: VecDeque::new(),
            out: VecDeque::new(),
            open_end: false,
            packets: 0,
            segments: 0,
            bytes: 0,
            range: 0,
            marked: 0,
            echoed: 0,
            largest: 0,
            acknowledgements: 0,
            min_rtt: None,
            srtt: Nanos(0),
            rtts: 0,
            rtt_sum: 0,
            last_data: last_sent,
            last_heard,
            last_gain: last_heard,
            short: false,
            alone: false,
            bare: false,
            largest_acked: 0,
            stamped: None,
            trouble: None,
            departed: None,
            course: None,
            reading_from: last_sent,
            flight: 0,
            least: u64::MAX,
            pause: Nanos(0),
            window: 0,
            delivered: 0,
            passed: 0,
            again: 0,
            idle: Nanos(0),
            held: Nanos(0),
            stalled: Nanos(0),
            least_window: u64::MAX,
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

    fn data(&mut self, packet: &Packet, seq: u32, segment: u32, place: Place) {
        while let Some(&(at, ack, window)) = self.coming.front() {
            if at + place.to_sender > packet.at {
                break;
            }
            self.known = (ack, window);
            self.coming.pop_front();
        }
        // One byte below what is acknowledged keeps a connection alive, and is no data.
        if packet.payload == 1 && before(seq, self.acked) {
            return;
        }
        let step = offset(self.next, seq);
        if step.unsigned_abs() > LARGEST_WINDOW.into() {
            self.trouble().strays += 1;
            return;
        }
        let end = seq.wrapping_add(packet.payload);
        let again = step < 0;
        if again && self.is_same(packet, seq, end, place.total) {
            self.trouble().twice += 1;
            return;
        }
        self.packets += 1;
        let segments = match segment {
            0 => 1,
            _ if packet.payload <= segment => 1,
            _ => u64::from(packet.payload.div_ceil(segment)),
        };
        self.segments += segments;
        self.bytes += u64::from(packet.payload);
        self.marked += u64::from(packet.marked);
        self.largest = self.largest.max(packet.payload);
        if let Some((value, _)) = packet.stamps {
            self.stamped(packet.at, value);
        }
        let short = packet.payload < self.full(segment);
        if again {
            self.alone = false;
            self.repeated(packet, seq, end, segments, segment, place.total);
        } else {
            let anew = self.acked == self.next;
            if anew {
                self.goes_on(packet.at, short, place);
            }
            self.alone = anew && segments == 1;
            self.least = self.least.min(ahead(self.known.0, self.next));
            self.pause = self.pause.max(packet.at.since(self.last_data));
            self.short = short || (self.short && self.acked != self.next);
            if step > 0 && !self.open_end {
                let gap = (self.next, seq, packet.at);
                let gaps = &mut self.trouble().gaps;
                if gaps.len() >= MOST_GAPS {
                    gaps.pop_front();
                }
                gaps.push_back(gap);
            }
            self.range += u64::from(end.wrapping_sub(self.next));
            self.next = end;
            self.open_end = packet.fragment;
            if self.out.len() >= MOST_OUT {
                self.out.pop_front();
            }
            let number = self.departs(packet, segment);
            self.out.push_back(Out {
                end,
                once: true,
                at: packet.at,
                number,
            });
        }
        let flight = ahead(self.known.0, self.next);
        if flight > self.flight {
            self.flight = flight;
            self.window = self.known.1;
        }
        self.passed += u64::from(packet.payload);
        self.last_data = packet.at;
    }

    /// What a segment is short against: the largest that was seen, if it is of the order of a full one (the path or the
    /// other options may make them smaller than the handshake says).
    fn full(&self, segment: u32) -> u32 {
        match usual(segment) {
            told if self.largest >= told / 2 => self.largest.min(told),
            told => told,
        }
    }

    /// New data leave after all was acknowledged. What let them go tells what was waited for.
    fn goes_on(&mut self, at: Nanos, short: bool, place: Place) {
        let heard = self.last_heard + place.to_sender;
        let at_once = at.since(heard) <= AT_ONCE.max(Nanos(place.to_sender.0 / AFAR));
        if !at_once || !self.bare {
            // By itself, or with the peer's answer: it had sent all that it had.
            self.idle += at.since(self.last_data);
        } else if self.alone || (short && self.short) {
            let wait = heard.since(self.last_data);
            let trip = self.min_rtt.unwrap_or_default().max(place.total);
            let course = self.course.get_or_insert_default();
            if short && self.short {
                self.held += wait;
                course.held.waited(wait, trip);
            } else {
                course.alone.waited(wait, trip);
            }
        }
    }

    /// How much later than its timestamp a packet passes, by the least that was seen. Linux counts milliseconds.
    fn stamped(&mut self, at: Nanos, value: u32) {
        let apart = ((at.0 / 1000) as u32).wrapping_sub(value.wrapping_mul(1000));
        let least = self.stamped.get_or_insert(apart);
        let late = apart.wrapping_sub(*least);
        if late > u32::MAX / 2 {
            *least = apart;
        } else if let Some(course) = &mut self.course
            && course.readings.len() < TIMED
        {
            course.pace.stamped += 1;
            course.pace.late += u64::from(late);
        }
    }

    /// Keeps what leaves; returns its number.
    fn departs(&mut self, packet: &Packet, segment: u32) -> u32 {
        match &mut self.departed {
            Some(departed) => departed.keep(packet, segment),
            None => {
                if self.packets >= FEWEST_SENT {
                    self.departed = Some(Box::default());
                }
                u32::MAX
            }
        }
    }

    /// The place in `out` of the packet that holds this byte.
    fn place_of(&self, seq: u32) -> usize {
        self.out.partition_point(|out| !before(seq, out.end))
    }

    /// A packet that passed a moment ago, in a capture on several devices.
    fn is_same(&self, packet: &Packet, seq: u32, end: u32, total: Nanos) -> bool {
        let soon = self.min_rtt.unwrap_or(total).max(total).0 / TOO_SOON;
        let mut gaps = self.trouble.iter().flat_map(|trouble| &trouble.gaps);
        self.out.get(self.place_of(seq)).is_some_and(|out| {
            out.once && !before(out.end, end) && packet.at.since(out.at).0 < soon
        }) && !gaps.any(|(from, to, _)| before(seq, *to) && before(*from, end))
    }

    /// A packet that begins before what was seen last: overtaken, or sent again.
    fn repeated(
        &mut self,
        packet: &Packet,
        seq: u32,
        end: u32,
        segments: u64,
        segment: u32,
        total: Nanos,
    ) {
        let first = self.place_of(seq);
        let trouble = self.trouble.get_or_insert_default();
        let gaps = &mut trouble.gaps;
        let gap = gaps
            .iter()
            .position(|(from, to, _)| !before(seq, *from) && before(seq, *to));
        if let Some((from, to, since)) = gap.and_then(|n| gaps.remove(n)) {
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
                trouble.out_of_order += 1;
                return;
            }
        }
        trouble.retransmitted += 1;
        trouble.resent += segments;
        self.again += 1;
        let number = self.departs(packet, segment);
        let trouble = self.trouble.get_or_insert_default();
        let waited = packet.at.since(self.last_data.max(self.last_gain));
        if waited >= RTO_MIN + self.srtt {
            trouble.timeouts += 1;
            trouble.stalled += waited;
            self.stalled += waited;
            let (oldest, times) = trouble.backed_off;
            let times = if oldest == seq { times + 1 } else { 1 };
            trouble.backed_off = (seq, times);
            trouble.backoffs = trouble.backoffs.max(times);
            let size = packet.payload.min(usual(segment));
            if seq == self.acked && times > 1 && size > self.largest_acked {
                trouble.vanished = Some(Vanished {
                    size,
                    passed: self.largest_acked,
                    backoffs: times,
                    at: packet.at.since(waited),
                });
            }
        }
        let mut left = packet.at;
        for out in self.out.range_mut(first..) {
            if out.once {
                left = left.min(out.at);
            }
            out.once = false;
            if let Some(departed) = &mut self.departed {
                departed.lost(out, seq, end);
            }
            if out.end == end {
                out.number = number;
            }
            if !before(out.end, end) {
                break;
            }
        }
        if !before(self.acked, end) {
            trouble.needless += 1;
        }
        if trouble.losses.len() < MOST_LOSSES {
            trouble.losses.push(Loss {
                at: left,
                srtt: self.srtt,
                flight: u64::from(self.next.wrapping_sub(self.acked)),
                place: None,
            });
        }
    }

    fn hears(&mut self, packet: &Packet, scale: Option<u8>, segment: u32, total: Nanos) {
        self.acknowledgements += 1;
        self.last_heard = packet.at;
        // No data ride on it.
        self.bare = packet.payload == 0;
        self.echoed += u32::from(packet.flags & (ECE | SYN) == ECE); // RFC 3168
        // Without its scale a window says something only when it is closed.
        let window = scale.map_or(0, |scale| u64::from(packet.window) << scale);
        if scale.is_some() || packet.window == 0 {
            self.least_window = self.least_window.min(window);
        }
        if let Some((from, to)) = packet.sack
            && before(from, to)
            && !before(packet.ack, to)
        {
            self.trouble().needless += 1; // RFC 2883: the first block lies below what is acknowledged
        } else if let Some((_, to)) = packet.sack {
            self.overtook(packet.at, to);
        }
        let gained = packet.ack.wrapping_sub(self.acked);
        // Below a wild number nothing can be said.
        if gained > 0 && gained <= LARGEST_WINDOW {
            if before(self.next, packet.ack) {
                let unseen = u64::from(packet.ack.wrapping_sub(self.next));
                // A FIN takes a number and carries nothing.
                if unseen > 1 {
                    self.range += unseen;
                    if !self.open_end {
                        self.trouble().unseen += unseen;
                    }
                }
                self.next = packet.ack;
            }
            if let Some(trouble) = &mut self.trouble {
                let filled = |to: &u32| !before(packet.ack, *to);
                let lost = trouble.gaps.iter().filter(|(_, to, _)| filled(to));
                trouble.unseen += lost
                    .map(|(from, to, _)| u64::from(to.wrapping_sub(*from)))
                    .sum::<u64>();
                trouble.gaps.retain(|(_, to, _)| !filled(to));
            }
            self.last_gain = packet.at;
            self.trip(packet, segment);
            if let Some(trouble) = &mut self.trouble {
                let largest = self.largest_acked;
                trouble.vanished = trouble.vanished.filter(|v| v.size > largest);
            }
            self.acked = packet.ack;
            self.delivered += u64::from(gained);
        }
        if self.coming.len() >= MOST_OUT {
            self.coming.pop_front();
        }
        self.coming.push_back((packet.at, self.acked, window));
        self.turn(packet.at, segment, total);
    }

    /// The round trip of the newest packet that is now acknowledged, unless what fills a gap acknowledges it.
    fn trip(&mut self, packet: &Packet, segment: u32) {
        let (mut newest, mut at_once) = (None, true);
        let mut from = self.acked;
        while let Some(out) = self.out.front() {
            if before(packet.ack, out.end) {
                break;
            }
            newest = Some(out.at);
            at_once &= out.once;
            let size = out.end.wrapping_sub(from).min(usual(segment));
            self.largest_acked = self.largest_acked.max(size);
            from = out.end;
            self.out.pop_front();
        }
        if let Some(sent) = newest.filter(|_| at_once) {
            self.took(packet.at.since(sent));
        }
    }

    /// The first block of a SACK ends with what has just arrived behind a gap (RFC 2018): a round trip too.
    fn overtook(&mut self, at: Nanos, end: u32) {
        let place = self.place_of(end.wrapping_sub(1));
        if let Some(out) = self.out.get_mut(place)
            && out.end == end
            && out.once
        {
            out.once = false;
            let sent = out.at;
            self.took(at.since(sent));
        }
    }

    fn took(&mut self, trip: Nanos) {
        self.min_rtt = Some(self.min_rtt.map_or(trip, |m| m.min(trip)));
        self.rtts += 1;
        self.rtt_sum = self.rtt_sum.saturating_add(trip.0);
        // RFC 6298, of what is seen from here.
        self.srtt = match self.srtt.0 {
            0 => trip,
            srtt => Nanos(srtt - srtt / 8 + trip.0 / 8),
        };
    }

    /// Bytes of a full segment: as announced, unless all were smaller.
    fn mss(&self, segment: u32) -> u32 {
        match (segment, self.largest) {
            (0, 0..=LARGEST_FRAME) => self.largest,
            (0, _) => USUAL_SEGMENT,
            (_, 0) => segment,
            (_, largest) => largest.min(segment),
        }
    }

    /// Ends the reading when it is long enough.
    #[inline]
    fn turn(&mut self, at: Nanos, segment: u32, total: Nanos) {
        let least = self.min_rtt.unwrap_or_default().max(total);
        if at.since(self.reading_from) >= SHORTEST_READING.max(least) {
            self.read(at, segment, total);
        }
    }

    /// Ends the reading, and says who owned it.
    #[inline(never)]
    fn read(&mut self, at: Nanos, segment: u32, total: Nanos) {
        let span = at.since(self.reading_from);
        let closed = self.least_window < u64::from(self.mss(segment).max(1)) && self.bytes > 0;
        let course = self.course.get_or_insert_default();
        let occupancy = self.flight as f64 / self.window.max(1) as f64;
        let full = self.window > 0 && occupancy >= RECEIVE_WINDOW_FULL;
        if self.window > 0 && self.flight > 0 {
            course.beyond += u32::from(occupancy > BEYOND);
            course.within += u32::from(occupancy <= BEYOND);
        }
        if self.least < u64::MAX && self.again == 0 {
            let trip = self.min_rtt.unwrap_or_default().max(total);
            let holds = u128::from(self.delivered) * u128::from(trip.0) / u128::from(span.0.max(1));
            course.pace.readings += 1;
            course.pace.drained += u32::from(u128::from(self.least) < holds / 2);
            course.pace.paused += u32::from(self.pause.0 > trip.0 / 2);
        }
        let idle = self.idle.min(span);
        let held = self.held.min(span.since(idle));
        let stalled = self.stalled.min(span.since(idle).since(held));
        let rest = if closed {
            Limit::ZeroWindow
        } else if full {
            Limit::ReceiveWindow
        } else if self.again > 0 {
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
        let mut from = self.reading_from;
        let left = span.since(idle).since(held).since(stalled);
        let parts = [
            (nothing, idle),
            (Limit::Nagle, held),
            (Limit::RtoStall, stalled),
            (rest, left),
        ];
        for (n, (limit, time)) in parts.into_iter().enumerate() {
            if time.0 == 0 {
                continue;
            }
            let to = from + time;
            let bytes = Bytes(if n == 3 { self.delivered } else { 0 });
            let piece = Piece {
                from,
                to,
                limit,
                bytes,
            };
            moment::own(&mut course.pieces, piece);
            from = to;
        }
        facts::keep(
            &mut course.readings,
            Reading {
                from: self.reading_from,
                to: at,
                srtt: self.srtt,
                // The congestion window is not in a packet: what was in flight stands for it.
                cwnd: self.flight,
                flight: self.flight,
                window: self.window,
                delivered: self.delivered,
                passed: self.passed,
                retransmitted: self.again,
                limit: parts.iter().max_by_key(|(_, t)| *t).map(|(l, _)| *l),
                unread: None,
            },
        );
        self.reading_from = at;
        (self.flight, self.delivered, self.passed, self.again) = (0, 0, 0, 0);
        (self.least, self.pause) = (u64::MAX, Nanos(0));
        self.idle = self.idle.since(idle);
        self.held = self.held.since(held);
        self.stalled = Nanos(0);
        self.least_window = u64::MAX;
    }

    pub fn counted(&self, from: SocketAddr, to: SocketAddr) -> Counted {
        let trouble = self.trouble.as_deref();
        Counted {
            from,
            to,
            packets: self.packets,
            bytes: Bytes(self.bytes),
            range: self.range,
            retransmitted: trouble.map_or(0, |t| t.retransmitted),
            out_of_order: trouble.map_or(0, |t| t.out_of_order),
            twice: trouble.map_or(0, |t| t.twice),
            unseen: Bytes(trouble.map_or(0, |t| t.unseen)),
            min_rtt: self.min_rtt,
            mean_rtt: (self.rtts > 0).then(|| Nanos(self.rtt_sum / self.rtts)),
        }
    }

    pub fn explain(mut self, frame: Frame, more: &mut dyn FnMut(&mut Facts)) -> Explanation {
        // What was never acknowledged has its time as well.
        let end = frame.begun + frame.span;
        let (acked, last) = (self.acked, self.last_data);
        if let Some(trouble) = &mut self.trouble
            && trouble.backed_off.1 > 0
            && trouble.backed_off.0 == acked
        {
            trouble.stalled += end.since(last);
            self.stalled += end.since(last);
        }
        if self.stalled.0 > 0 {
            self.turn(end, frame.segment, frame.total);
        }
        let trouble = self.trouble.take().unwrap_or_default();
        let mut course = self.course.take().unwrap_or_default();
        let mut doubts = frame.doubts;
        // More was in flight than the window allows, again and again: its scale is not the one that was
        // offered, for a box on the path changed it or its own.
        let wrong_scale = course.beyond > course.within;
        if wrong_scale {
            doubts.push(
                "more was in flight than the receive windows allow: their scale is not the one in the handshake, and they are left out"
                    .to_owned(),
            );
            for reading in &mut course.readings {
                reading.window = 0;
            }
            for piece in &mut course.pieces {
                if matches!(piece.limit, Limit::ReceiveWindow | Limit::ZeroWindow) {
                    piece.limit = Limit::CongestionWindow;
                }
            }
        }
        let counts = [
            (
                trouble.twice,
                "packets are in the capture twice, and are counted once",
            ),
            (
                trouble.strays,
                "packets with sequence numbers far from the others were left out",
            ),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            doubts.push(format!("{count} {what}"));
        }
        // Where most was not seen, it was never there to see.
        let one_way = if self.acknowledgements == 0 {
            Some("no acknowledgement of these data is in the capture: it was taken in one direction only, so round trips and windows are not known".to_owned())
        } else if trouble.unseen > self.range / 2 {
            Some(format!(
                "{} were acknowledged, and most of them never seen: the capture was taken in one direction only, or lost the other",
                Bytes(self.range)
            ))
        } else {
            None
        };
        let blind = one_way.is_some();
        match one_way {
            Some(doubt) => doubts.push(doubt),
            None if trouble.unseen > 0 => doubts.push(format!(
                "{} were acknowledged and never seen: the capture itself lost packets",
                Bytes(trouble.unseen)
            )),
            None => {}
        }
        let near = frame.near;
        let begun = frame.begun;
        let mut facts = Facts::new(frame.source);
        facts.span = frame.span;
        facts.mss = self.mss(frame.segment);
        facts.bytes = Bytes(self.range);
        facts.min_rtt = self.min_rtt.map(|rtt| rtt + near);
        facts.segments = self.segments;
        facts.retransmitted = trouble.resent;
        facts.timeouts = trouble.timeouts;
        facts.stalled = trouble.stalled;
        facts.backoffs = trouble.backoffs;
        facts.vanished = trouble.vanished.map(|v| Vanished {
            at: v.at.since(begun),
            ..v
        });
        facts.is_exchange = frame.is_exchange;
        facts.syns_again = frame.syns_again.into();
        facts.held = course.held;
        facts.alone = course.alone;
        facts.rhythm = course.pace.rhythm();
        facts.needless = trouble.needless.min(trouble.resent);
        facts.reordered = trouble.out_of_order;
        facts.marked = self.marked.max(self.echoed.into());
        facts.readings = course.readings;
        facts.losses = trouble.losses;
        // Elsewhere than at the sender, what was lost before was never seen to leave.
        let departed = self
            .departed
            .filter(|_| frame.source == Source::CaptureAtSender);
        facts.bucket = departed.and_then(|departed| bucket::fit(&departed.sent));
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
        let mut pieces = course.pieces;
        for piece in &mut pieces {
            piece.from = piece.from.since(begun);
            piece.to = piece.to.since(begun);
        }
        // What any initial window takes whole was not held by the congestion window, unless a loss made that smaller.
        let least_window = u64::from(LEAST_INITIAL_WINDOW * usual(frame.segment));
        if facts.retransmitted == 0 && self.range <= least_window {
            for piece in &mut pieces {
                if piece.limit == Limit::CongestionWindow {
                    piece.limit = Limit::Application;
                }
            }
        }
        if let (Some(opened), Some(first)) = (frame.opened, pieces.first_mut()) {
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
        let subject = Subject {
            name: format!("{} to {}", frame.from, frame.to),
            sender: Some(frame.from),
            receiver: Some(frame.to),
            direction: None,
        };
        if blind {
            pieces.clear();
        }
        more(&mut facts);
        let mut told = assemble(subject, &pieces, &facts, doubts);
        // Of a few segments nothing is to be expected, seen or not.
        if blind && facts.span.0 > 0 && facts.bytes.0 >= FEWEST_SEGMENTS * u64::from(facts.mss) {
            told.conclusion = Conclusion::Unexplained;
        }
        told
    }
}
