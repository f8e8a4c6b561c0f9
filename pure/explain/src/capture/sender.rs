//! What a sender does over time, as the packets of its stream show it: readings, and who limits each of them.

use crate::capacity;
use crate::conclude::{ExplainedConnection, FEWEST_SEGMENTS, assemble};
use crate::facts::{
    self, AckWaitCounts, BucketFit, Facts, LostSegment, MOST_LOSSES, MOST_SENT, Pauses, Rhythm,
    SendClock, SenderInterval, Sent, Vanished,
};
use crate::limits::{RECEIVE_WINDOW_FULL, bucket, hides, is_lost};
use crate::sender_state::{self, OwnedInterval};
use crate::timestamps::{Stamped, in_ticks};
use model::finding::{Conclusion, Explanation, Limit, Source};
use model::packet::Packet;
use model::stats::percentile;
use model::{Bytes, Nanos, Vantage};
use std::collections::VecDeque;
use std::net::SocketAddr;
use tcp::seq::before;
use tcp::stream::{
    Acknowledged, DataArrival, FollowedStream, Stream, StreamView, Undelivered, usual,
};
use tcp::thresholds::{AT_ONCE, LEAST_INITIAL_WINDOW, RTO_MIN};
use tcp::vantage::Trips;
use tcp::waits::{Release, Wait};

/// Full segments whose acknowledgement a receiver holds back for a reason: of every second one it is due at once.
const HELD_SEGMENTS: u32 = 3;
/// A reading is no shorter than this.
const SHORTEST_READING: Nanos = Nanos::from_millis(5);
/// Readings whose packets are looked at for how long they lay below TCP: later, clocks may have drifted.
const TIMED: usize = 1000;
/// Payload with timestamps in a packet of 1280 bytes, which every link of IPv6 carries (RFC 8200, 5), and of IPv4 as a rule.
const EVERY_LINK_CARRIES: u32 = 1280 - 72;
/// Fewer readings without a loss show no rhythm.
const FEWEST_READINGS: u32 = 10;
/// A stream of fewer packets is not kept packet by packet.
const FEWEST_SENT: u64 = 32;
/// Gaps of which it is remembered how late the data behind them were.
const MOST_GAPS: usize = 256;
/// What left before the first loss, as far as it may matter: some round trips.
const BEFORE_LOSS: usize = 1024;
/// More than this part of an advertised window cannot be in flight: then the window is not what it seems.
const BEYOND: f64 = 1.25;

/// What a direction's explanation takes from its connection.
pub(super) struct Frame {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub vantage: Vantage,
    pub trips: Trips,
    pub begun: Nanos,
    pub span: Nanos,
    pub opened: Option<Nanos>,
    pub syns_again: u8,
    pub segment: u32,
    /// The other direction carries data as well.
    pub is_exchange: bool,
    /// What its connection shares with others to the same destination.
    pub shared: Option<BucketFit>,
    /// Packets of the receiver are in the capture.
    pub saw_receiver: bool,
    pub undelivered: Option<Undelivered>,
    pub doubts: Vec<String>,
}

/// A sender: the reading that runs, and what came before it.
#[derive(Default)]
pub(crate) struct CaptureSender {
    /// What left, from the first [`FEWEST_SENT`] packets on.
    departed: Option<Box<Departed>>,
    course: Option<Box<LongStream>>,
    lost: Option<Box<SenderLosses>>,
    /// When the first data with a timestamp passed, and that.
    first_stamp: Option<(Nanos, u32)>,
    /// The timestamp of the newest acknowledgement.
    acked: Option<u32>,
    last_data: Nanos,
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
    /// Waits for an acknowledgement: of short segments, and of single ones.
    held_short: AckWaitCounts,
    held_alone: AckWaitCounts,
    /// Time with nothing left to send, in waits of short segments, and in waits that ended in a retransmission.
    idle: Nanos,
    held: Nanos,
    stalled: Nanos,
    least_window: u64,
    held_acks: HeldAcks,
    sends: SendClock,
    bursts: Bursts,
    pauses: Pauses,
    /// Payload of the latest new data.
    latest: u32,
    /// The last acknowledgement.
    last_ack: Nanos,
}

/// The latest bursts of new data: the time since the one before, and since the last acknowledgement.
#[derive(Default)]
struct Bursts {
    latest: VecDeque<(Nanos, Nanos)>,
    last: Nanos,
}

impl Bursts {
    const MOST: usize = 256;
    const FEWEST: usize = 20;
    /// Who waits for an acknowledgement sends sooner behind it: 3 to 40 us seen, and 110 to 76,000 of paced senders.
    const REACTION: Nanos = Nanos::from_micros(60);

    fn began(&mut self, at: Nanos, acked: Nanos) {
        if self.latest.len() >= Self::MOST {
            self.latest.pop_front();
        }
        self.latest
            .push_back((at.since(self.last), at.since(acked)));
        self.last = at;
    }

    /// [`SendClock::spread`].
    fn spread(&self) -> Option<f64> {
        let mut apart: Vec<Nanos> = self.latest.iter().map(|(apart, _)| *apart).collect();
        let mut behind: Vec<Nanos> = self.latest.iter().map(|(_, behind)| *behind).collect();
        let own = percentile(&mut behind, 0.5)? >= Self::REACTION;
        let spread = capacity::spread_by_median(&mut apart);
        spread.filter(|_| own && self.latest.len() >= Self::FEWEST)
    }
}

/// What only streams with retransmissions have.
#[derive(Clone, Default)]
pub(crate) struct SenderLosses {
    pub losses: Vec<LostSegment>,
    pub vanished: Option<Vanished>,
}

/// Acknowledgements of all that was in flight at once, of three full segments or more: a receiver whose application reads
/// acknowledges every second one when it arrives (RFC 5681, 4.2).
#[derive(Clone, Copy, Default)]
struct HeldAcks {
    count: u32,
    /// Since the last data before each of them.
    time: Nanos,
}

/// What left, in the order of time, from shortly before the first loss.
#[derive(Default)]
pub(crate) struct Departed {
    sent: Vec<Sent>,
    /// The number of the next one.
    next: u32,
    /// Those that left within this moment are gathered.
    moment: Nanos,
    /// No more are kept.
    full: bool,
    lossy: bool,
    /// Earlier ones are not kept any more.
    drained: bool,
    /// The latest acknowledgements: when each came, and the bytes that were not acknowledged before.
    acked: VecDeque<(Nanos, u32)>,
}

impl Departed {
    #[inline]
    fn keep(&mut self, stream: &Stream, packet: &Packet, segment: u32) {
        if !self.lossy && self.sent.len() >= 2 * BEFORE_LOSS {
            self.drain();
        }
        if self.sent.len() >= MOST_SENT && !self.full {
            self.gather(stream.min_rtt.unwrap_or_default());
        }
        if !self.full {
            self.sent.push(Sent {
                at: packet.at,
                number: self.next,
                packets: 1,
                bytes: packet.payload,
                lost: 0,
                lost_from: u32::MAX,
                size: packet.payload.min(usual(segment)),
            });
            self.next = self.next.wrapping_add(1);
        }
    }

    #[cold]
    fn gather(&mut self, rtt: Nanos) {
        let Departed { sent, moment, .. } = self;
        bucket::gather(sent, MOST_SENT, MOST_SENT / 4, rtt, moment);
        self.full = self.sent.len() > MOST_SENT / 4 * 3;
    }

    /// Data were acknowledged.
    #[inline]
    fn acked(&mut self, at: Nanos, gained: u32) {
        if self.acked.len() >= capacity::MOST {
            self.acked.pop_front();
        }
        self.acked.push_back((at, gained));
    }

    #[cold]
    fn drain(&mut self) {
        self.sent.drain(..BEFORE_LOSS);
        self.drained = true;
    }

    /// Where the packet of this number is kept.
    fn place_of(&self, number: u32) -> Option<usize> {
        let first = self.sent.first()?.number;
        let nth = |number: u32| number.wrapping_sub(first);
        let later = nth(self.next).checked_sub(nth(number)).filter(|n| *n > 0)?;
        // The newest are not gathered.
        let newest = self.sent.len().checked_sub(later as usize);
        let newest = newest.filter(|place| self.sent[*place].number == number);
        let search = || (self.sent).partition_point(|sent| nth(sent.number) <= nth(number)) - 1;
        Some(newest.unwrap_or_else(search))
    }

    /// What had left last of these numbers is lost.
    fn lost(&mut self, (number, behind): (u32, u32), (seq, end): (u32, u32)) {
        self.lossy = true;
        let Some(sent) = self.place_of(number).map(|place| &mut self.sent[place]) else {
            return;
        };
        // Of several the last one is meant, as far as is known.
        let begin = behind.wrapping_sub(sent.bytes);
        let from = if before(begin, seq) { seq } else { begin };
        let to = if before(end, behind) { end } else { behind };
        if before(from, to) {
            sent.lost_from = sent.lost_from.min(from.wrapping_sub(begin));
            sent.lost = (sent.lost + to.wrapping_sub(from)).min(sent.bytes);
        }
    }
}

/// What only streams that last have.
#[derive(Default)]
struct LongStream {
    readings: Vec<SenderInterval>,
    pieces: Vec<OwnedInterval>,
    /// Readings with more in flight than the window allows, and those with less.
    beyond: u32,
    within: u32,
    pace: SendSpread,
    echo: TimestampEcho,
    stamped: Stamped,
    /// How late the data were that showed a gap before them, in microseconds.
    gaps: VecDeque<(Nanos, u32)>,
}

impl LongStream {
    /// The one that there is, or one that begins: the first data had passed with this timestamp.
    fn of(
        known: &mut Option<Box<LongStream>>,
        first_stamp: Option<(Nanos, u32)>,
    ) -> &mut LongStream {
        known.get_or_insert_with(|| {
            Box::new(LongStream {
                stamped: Stamped::after(first_stamp),
                ..LongStream::default()
            })
        })
    }

    /// Data with these timestamps passed, so long after the data before; they may show a gap.
    #[inline]
    fn data(&mut self, at: Nanos, (value, echoed): (u32, u32), pause: Nanos, gap: bool) {
        self.echo.data(at, echoed, pause);
        let counts = self.readings.len() < TIMED;
        match gap {
            true => self.misses(at, value, counts),
            false => self.stamped.data(at, value, counts),
        }
    }

    /// Data before these were not seen.
    #[cold]
    fn misses(&mut self, at: Nanos, value: u32, counts: bool) {
        let late = self.stamped.data_late(at, value, counts).unwrap_or(0);
        if self.gaps.len() >= MOST_GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back((at, late));
    }
}

/// Round trips from the observer to the sender and back: from an acknowledgement to the first data that echo its
/// timestamp (RFC 7323). At the receiver they hold the queueing delay that no acknowledgement shows there.
#[derive(Default)]
struct TimestampEcho {
    /// The timestamp that is waited for, and when it passed.
    waits: Option<(u32, Nanos)>,
    /// The newest timestamp that passed.
    newest: Option<u32>,
    /// The shortest of the reading that runs.
    shortest: Option<Nanos>,
    last: Nanos,
    /// The shortest of all, with the pause before it.
    least: Option<Nanos>,
}

impl TimestampEcho {
    fn acked(&mut self, at: Nanos, value: u32) {
        let is_new = self.newest.is_none_or(|newest| before(newest, value));
        if is_new {
            self.newest = Some(value);
            self.waits.get_or_insert((value, at));
        }
    }

    /// Data came, so long after the data before: a sender that paused echoes up to so much late.
    #[inline]
    fn data(&mut self, at: Nanos, echoed: u32, pause: Nanos) {
        if let Some((value, since)) = self.waits
            && !before(echoed, value)
        {
            self.waits = None;
            if echoed == value {
                self.took(at.since(since), pause);
            }
        }
    }

    /// An echo took so long, of which the sender may have paused so much.
    fn took(&mut self, whole: Nanos, pause: Nanos) {
        let shorter = |known: Option<Nanos>, trip| known.map_or(trip, |known| known.min(trip));
        let trip = whole.since(pause);
        if trip.0 > 0 {
            self.shortest = Some(shorter(self.shortest, trip));
        }
        if whole.0 > 0 {
            self.least = Some(shorter(self.least, whole));
        }
    }

    /// Of the reading that ends; without one, that of the last.
    fn read(&mut self) -> Nanos {
        self.last = self.shortest.take().unwrap_or(self.last);
        self.last
    }

    fn now(&self) -> Nanos {
        self.shortest.unwrap_or(self.last)
    }
}

/// How a sender spreads out what it sends: readings without a loss, by what was seen in them.
#[derive(Default)]
struct SendSpread {
    readings: u32,
    /// Less than half of what the path holds was in flight for a moment.
    drained: u32,
    /// Nothing was sent for half of the round trip.
    paused: u32,
}

impl SendSpread {
    fn rhythm(&self, late: Option<Nanos>) -> Option<Rhythm> {
        let share = |of: u32| f64::from(of) / f64::from(self.readings);
        (self.readings >= FEWEST_READINGS).then(|| Rhythm {
            drained: share(self.drained),
            paused: share(self.paused),
            late,
        })
    }
}

impl StreamView for CaptureSender {
    fn begin(at: Nanos) -> CaptureSender {
        CaptureSender {
            last_data: at,
            reading_from: at,
            least: u64::MAX,
            least_window: u64::MAX,
            ..CaptureSender::default()
        }
    }
}

impl CaptureSender {
    /// A data packet passed.
    #[inline]
    pub fn data(&mut self, stream: &Stream, packet: &Packet, arrival: DataArrival, segment: u32) {
        let pause = packet.at.since(self.last_data);
        match arrival {
            DataArrival::Probe | DataArrival::Stray | DataArrival::Duplicate => return,
            DataArrival::Reordered => {}
            DataArrival::New => {
                // It left before the newest acknowledgement came: not after all was acknowledged, though it seems so from afar.
                let was_out = |(newest, (_, echoed))| before(echoed, newest);
                let was_out = || self.acked.zip(packet.stamps).is_some_and(was_out);
                if stream.released.all_acked && !was_out() {
                    self.released(&stream.released);
                }
                self.sends(packet.at, pause);
                if pause > AT_ONCE && self.latest > 0 {
                    let full = stream.mss(segment).max(EVERY_LINK_CARRIES);
                    let was_full = self.latest.is_multiple_of(full);
                    self.pauses.passed(pause, was_full);
                }
                self.latest = packet.payload;
                self.least = self.least.min(stream.flight_before);
                self.pause = self.pause.max(pause);
                self.departs(stream, packet, segment);
            }
            DataArrival::Retransmission => {
                self.repeats(stream, packet, segment, None);
            }
        }
        if let Some(stamps) = packet.stamps {
            match &mut self.course {
                Some(course) => {
                    let gap = stream.last_gap() == Some(packet.at);
                    course.data(packet.at, stamps, pause, gap);
                }
                None => _ = self.first_stamp.get_or_insert((packet.at, stamps.0)),
            }
        }
        if stream.flight() > self.flight {
            self.flight = stream.flight();
            self.window = stream.window();
        }
        self.passed += u64::from(packet.payload);
        self.last_data = packet.at;
    }

    /// New data leave, so long after the data before.
    #[inline]
    fn sends(&mut self, at: Nanos, pause: Nanos) {
        if pause <= AT_ONCE && self.last_ack <= self.last_data {
            return;
        }
        match self.last_ack > self.last_data && at.since(self.last_ack) <= AT_ONCE {
            true => self.sends.by_ack += 1,
            false => self.sends.by_itself += 1,
        }
        self.bursts.began(at, self.last_ack);
    }

    /// The receiver acknowledged; the data before it passed at `last_data`.
    #[inline]
    pub fn holds(&mut self, stream: &Stream, at: Nanos, gained: u32, segment: u32) {
        if let Some(departed) = self.departed.as_mut().filter(|_| gained > 0) {
            departed.acked(at, gained);
        }
        if stream.unacked() > 0 || gained < HELD_SEGMENTS * usual(segment) {
            return;
        }
        // What fills a gap is acknowledged with all that had come behind it.
        if let Some(since) = stream.last_new() {
            self.held_acks.count += 1;
            self.held_acks.time += at.since(since);
        }
    }

    /// Time for which the receiver held acknowledgements back, as far as the round trip does not take it.
    pub fn held_acks(&self, rtt: Nanos) -> Nanos {
        let trips = rtt.0.saturating_mul(self.held_acks.count.into());
        self.held_acks.time.since(Nanos(trips))
    }

    /// The receiver's socket knows the round trip to the sender.
    pub fn reports_echo(&mut self, whole: Nanos, pause: Nanos) {
        if let Some(course) = &mut self.course {
            course.echo.took(whole, pause);
        }
    }

    /// New data leave after all was acknowledged. What let them go shows what was waited for.
    #[inline(never)]
    fn released(&mut self, release: &Release) {
        if !release.by_ack {
            // By itself, or with the peer's answer: it had sent all that it had.
            self.idle += release.gap;
        } else if release.wait == Wait::Nagle || release.was_alone {
            if release.wait == Wait::Nagle {
                self.held += release.until_ack;
                self.held_short.waited(release.held);
            } else {
                self.held_alone.waited(release.held);
            }
        }
    }

    /// What leaves from now on is kept packet by packet.
    #[cold]
    pub fn keeps(&mut self, stream: &Stream) -> &mut Departed {
        let next = stream.departures;
        let departed = || {
            Box::new(Departed {
                next,
                ..Departed::default()
            })
        };
        self.departed.get_or_insert_with(departed)
    }

    /// Keeps what leaves.
    #[inline]
    pub fn departs(&mut self, stream: &Stream, packet: &Packet, segment: u32) {
        if self.departed.is_none() && stream.packets > FEWEST_SENT {
            LongStream::of(&mut self.course, self.first_stamp);
            self.keeps(stream);
        }
        if let Some(departed) = &mut self.departed {
            departed.keep(stream, packet, segment);
        }
    }

    /// A retransmission; `backoffs` says how often the timer had fired for it, where that is known. Returns the loss.
    #[inline(never)]
    pub fn repeats(
        &mut self,
        stream: &Stream,
        packet: &Packet,
        segment: u32,
        backoffs: Option<u32>,
    ) -> Option<&mut LostSegment> {
        let again = stream.retransmission()?;
        self.again += 1;
        if let Some(departed) = &mut self.departed {
            for out in stream.repeated() {
                departed.lost(*out, again.range);
            }
        }
        self.departs(stream, packet, segment);
        self.stalled += again.timeout.unwrap_or_default();
        let (size, passed) = (packet.payload.min(usual(segment)), stream.largest_acked);
        let backoffs = backoffs.unwrap_or(again.backoffs);
        let lost = self.lost.get_or_insert_default();
        let more = backoffs > lost.vanished.map_or(1, |v| v.backoffs);
        // Shorter ones are lost for another reason; and one that is not in the capture may have passed.
        let is_full = size >= stream.mss(segment).max(EVERY_LINK_CARRIES)
            && stream.counts().unseen < u64::from(size);
        if more && again.range.0 == stream.acked && size > passed && is_full {
            lost.vanished = Some(Vanished {
                size,
                passed,
                backoffs,
                at: again.before,
            });
        }
        if lost.losses.len() >= MOST_LOSSES {
            return None;
        }
        let course = self.course.as_ref();
        let late = again.missed.zip(course).and_then(|(missed, course)| {
            let gap = course.gaps.iter().rev().find(|(at, _)| *at == missed);
            gap.map(|(_, late)| in_ticks(*late))
        });
        lost.losses.push(LostSegment {
            at: again.before,
            srtt: stream.srtt,
            flight: stream.unacked(),
            place: None,
            bytes: packet.payload,
            echo: course.map(|c| c.echo.now()).unwrap_or_default(),
            late: late.unwrap_or_default(),
        });
        lost.losses.last_mut()
    }

    /// A black hole lets none of full size pass.
    #[inline]
    pub fn acknowledged(&mut self, stream: &Stream) {
        if let Some(lost) = &mut self.lost {
            let largest = stream.largest_acked;
            lost.vanished = lost.vanished.filter(|v| v.size > largest);
        }
    }

    /// The receiver acknowledged; `total` is the round trip of the handshake.
    #[inline]
    pub fn on_ack(
        &mut self,
        stream: &Stream,
        packet: &Packet,
        ack: &Acknowledged,
        (segment, total): (u32, Nanos),
    ) {
        let at = packet.at;
        if let Some((value, _)) = packet.stamps {
            self.acked = Some(value);
            if let Some(course) = &mut self.course {
                course.echo.acked(at, value);
                course.stamped.ack(at, value);
            }
        }
        self.holds(stream, at, ack.gained, segment);
        self.last_ack = at;
        if let Some(window) = ack.window {
            self.least_window = self.least_window.min(window.into());
        }
        self.delivered += u64::from(ack.gained);
        self.acknowledged(stream);
        self.turn(stream, at, segment, total);
    }

    /// Ends the reading when it is long enough.
    #[inline]
    fn turn(&mut self, stream: &Stream, at: Nanos, segment: u32, total: Nanos) {
        let least = stream.min_rtt.unwrap_or_default().max(total);
        if at.since(self.reading_from) >= SHORTEST_READING.max(least) {
            self.read(stream, at, segment, total);
        }
    }

    /// Ends the reading, and says who owned it.
    #[inline(never)]
    fn read(&mut self, stream: &Stream, at: Nanos, segment: u32, total: Nanos) {
        let span = at.since(self.reading_from);
        let closed = self.least_window < u64::from(stream.mss(segment).max(1)) && stream.bytes > 0;
        let course = LongStream::of(&mut self.course, self.first_stamp);
        let occupancy = self.flight as f64 / self.window.max(1) as f64;
        let full = self.window > 0 && occupancy >= RECEIVE_WINDOW_FULL;
        if self.window > 0 && self.flight > 0 {
            course.beyond += u32::from(occupancy > BEYOND);
            course.within += u32::from(occupancy <= BEYOND);
        }
        if self.least < u64::MAX && self.again == 0 {
            let trip = stream.min_rtt.unwrap_or_default().max(total);
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
            let piece = OwnedInterval {
                from,
                to,
                limit,
                bytes,
            };
            sender_state::own(&mut course.pieces, piece);
            from = to;
        }
        let echo = course.echo.read();
        let late = course.stamped.read(stream.srtt, echo);
        facts::keep(
            &mut course.readings,
            SenderInterval {
                from: self.reading_from,
                to: at,
                srtt: stream.srtt,
                // The congestion window is not in a packet: what was in flight stands for it.
                cwnd: self.flight,
                flight: self.flight,
                window: self.window,
                delivered: self.delivered,
                passed: self.passed,
                retransmitted: self.again,
                limit: parts.iter().max_by_key(|(_, t)| *t).map(|(l, _)| *l),
                unread: None,
                echo,
                late,
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

    /// The queue or bucket that what was lost shows, on a path of this RTT.
    pub fn bucket(&self, rtt: Nanos) -> Option<BucketFit> {
        bucket::fit(&self.departed.as_ref()?.sent, rtt)
    }

    /// What the slowest link carries, by the acknowledgements that came.
    pub fn acknowledged_capacity(&self, mss: u32) -> Option<f64> {
        let acked = self.departed.as_ref()?.acked.iter().copied();
        capacity::of(acked, mss.max(EVERY_LINK_CARRIES))
    }

    /// The same, by the data that came.
    fn arrived_capacity(&self, mss: u32) -> Option<f64> {
        capacity::of(self.arrived()?, mss.max(EVERY_LINK_CARRIES))
    }

    fn arrived(&self) -> Option<impl DoubleEndedIterator<Item = (Nanos, u32)>> {
        let sent = self.departed.as_ref()?.sent.iter();
        Some(sent.map(|sent| (sent.at, sent.bytes)))
    }

    /// Its retransmissions.
    pub fn losses(&self) -> SenderLosses {
        self.lost.as_deref().cloned().unwrap_or_default()
    }

    /// What it lost and what passed, if it lost some: from when on that is whole, until when, and each.
    pub(super) fn lossy(&self) -> Option<(Nanos, Nanos, &[Sent])> {
        let departed = self.departed.as_ref().filter(|d| d.lossy)?;
        let (first, last) = (departed.sent.first()?, departed.sent.last()?);
        let from = if departed.drained { first.at } else { Nanos(0) };
        let until = if departed.full {
            last.at
        } else {
            Nanos(u64::MAX)
        };
        Some((from, until, &departed.sent))
    }

    /// Explains the direction.
    pub(super) fn explain(
        followed: FollowedStream<CaptureSender>,
        frame: Frame,
        more: &mut dyn FnMut(&mut Facts),
    ) -> Explanation {
        let FollowedStream {
            mut stream,
            view: mut this,
        } = followed;
        let end = frame.begun + frame.span;
        // Behind a black hole nothing of full size comes at all: that is not one silence.
        let silent = frame.undelivered.as_ref();
        let silent = silent.filter(|of| is_lost(of) && !hides(of));
        this.stalled += stream.close(end, silent);
        if this.stalled.0 > 0 {
            this.turn(&stream, end, frame.segment, frame.trips.total);
        }
        let figures = stream.figures(frame.from, frame.to, frame.vantage, &frame.trips);
        let counts = stream.counts();
        let mut course = this.course.take().unwrap_or_default();
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
        for (count, what) in [
            (
                counts.duplicates,
                "packets are in the capture twice, and are counted once",
            ),
            (
                counts.strays,
                "packets with sequence numbers far from the others were left out",
            ),
        ] {
            if count > 0 {
                doubts.push(format!("{count} {what}"));
            }
        }
        // Where most was not seen, it was never there to see.
        let unheard = stream.acknowledgements == 0;
        let blind = (unheard && !frame.saw_receiver) || counts.unseen > stream.range / 2;
        let unseen = Bytes(counts.unseen);
        doubts.extend(match (unheard, counts.unseen) {
            (true, _) if blind => Some("no acknowledgement of these data is in the capture: it was taken in one direction only, so round trips and windows are not known".to_owned()),
            (true, _) => Some("no acknowledgement of these data is in the capture".to_owned()),
            (false, 0) => None,
            _ if stream.packets == 0 => Some(format!(
                "{unseen} were acknowledged and are not in the capture: it was taken in one direction only"
            )),
            _ => Some(format!(
                "{unseen} were acknowledged and are not in the capture: it lost packets"
            )),
        });
        // The handshake may have met a queue.
        let shortest = course
            .echo
            .least
            .filter(|_| frame.vantage != Vantage::AtSender);
        let near = frame.trips.near(frame.vantage);
        let near = shortest.map_or(near, |least| match near {
            Nanos(0) => least,
            near => near.min(least),
        });
        let begun = frame.begun;
        let mut facts = Facts::new(source_of(frame.vantage));
        facts.span = frame.span;
        facts.mss = stream.mss(frame.segment);
        // What was acknowledged stands for data of which nothing was seen, and for none of those beside.
        facts.bytes = match stream.packets {
            0 => Bytes(stream.range),
            _ => Bytes(stream.range).since(unseen),
        };
        facts.min_rtt = stream.shortest(&frame.trips).map(|rtt| rtt + near);
        facts.segments = figures.segments;
        facts.retransmitted = figures.retransmissions;
        facts.timeouts = counts.timeouts;
        facts.stalled = counts.stalled;
        facts.backoffs = counts.backoffs;
        let lost = this.lost.take().unwrap_or_default();
        facts.vanished = lost.vanished.map(|v| Vanished {
            at: v.at.since(begun),
            ..v
        });
        facts.undelivered = frame.undelivered.map(|of| Undelivered {
            since: of.since.since(begun),
            until: of.until.since(begun),
            ..of
        });
        facts.is_exchange = frame.is_exchange;
        facts.syns_again = frame.syns_again.into();
        facts.held = this.held_short;
        facts.alone = this.held_alone;
        let at_sender = frame.vantage == Vantage::AtSender;
        facts.reverse_queueing = match frame.vantage {
            Vantage::AtSender => course.stamped.reverse_queueing_at_sender(facts.rtt()),
            Vantage::AtReceiver => course.stamped.reverse_queueing_at_receiver(near),
            Vantage::Between | Vantage::Unknown => None,
        };
        // Elsewhere the round trip is not the sender's: when it sent, and what was in flight then, is not known so exactly.
        let rhythm = at_sender.then(|| course.pace.rhythm(course.stamped.mean_late()));
        facts.rhythm = rhythm.flatten();
        facts.held_acks = this.held_acks(stream.min_rtt.unwrap_or_default());
        facts.send_clock = at_sender.then(|| SendClock {
            spread: this.bursts.spread(),
            ..this.sends
        });
        facts.pauses = Some(this.pauses);
        facts.needless = figures.needless_retransmissions;
        facts.reordered = figures.reordered;
        facts.marked = stream.marked();
        facts.readings = course.readings;
        facts.capacity = match frame.vantage {
            Vantage::AtSender => this.acknowledged_capacity(facts.mss),
            Vantage::AtReceiver => this.arrived_capacity(facts.mss),
            // Before the slowest link, packets are spaced by another.
            Vantage::Between | Vantage::Unknown => None,
        };
        let carries = facts
            .capacity
            .filter(|_| frame.vantage == Vantage::AtReceiver);
        facts.burst_spread = carries
            .zip(this.arrived())
            .and_then(|(carries, arrived)| capacity::spread(arrived, facts.mss, carries));
        // Elsewhere than at the sender, segments lost before the observer are not in the capture.
        let own = |rtt: Nanos| at_sender.then(|| this.bucket(rtt)).flatten();
        let is_lossy = at_sender && this.lossy().is_some();
        facts.bucket = match frame.shared.filter(|_| is_lossy) {
            None => own(facts.rtt()),
            Some(shared) if shared.is_seen() => Some(shared),
            // Others fill it, too: where no bucket is seen, that of one connection excludes none.
            Some(_) => own(facts.rtt()).filter(BucketFit::is_seen),
        };
        facts.losses = lost.losses;
        let is_clock = course.stamped.is_data_in_milliseconds();
        for reading in &mut facts.readings {
            reading.from = reading.from.since(begun);
            reading.to = reading.to.since(begun);
            if at_sender {
                continue;
            }
            if !is_clock {
                reading.late = Nanos(0);
            }
            let beyond = reading.echo.max(near + reading.late);
            if reading.srtt.0 > 0 {
                reading.srtt += beyond;
            }
            // What stood in a queue before the observer was in flight, too (Little's law).
            let span = reading.to.since(reading.from).0.max(1);
            let queued = u128::from(reading.delivered) * u128::from(beyond.since(near).0);
            let queued = u64::try_from(queued / u128::from(span)).unwrap_or(0);
            reading.flight += queued;
            reading.cwnd += queued;
        }
        for loss in &mut facts.losses {
            loss.at = loss.at.since(begun);
            if !at_sender {
                if loss.srtt.0 > 0 {
                    // What was lost met the queue before the observer alone.
                    loss.srtt += if is_clock {
                        near + loss.late
                    } else {
                        loss.echo.max(near)
                    };
                }
                loss.flight = 0;
            }
        }
        let mut pieces = course.pieces;
        for piece in &mut pieces {
            piece.from = piece.from.since(begun);
            piece.to = piece.to.since(begun);
        }
        // What any initial window takes whole was not held by the congestion window, unless a loss made that smaller.
        let least_window = u64::from(LEAST_INITIAL_WINDOW * usual(frame.segment));
        if facts.retransmitted == 0 && stream.range <= least_window {
            for piece in &mut pieces {
                if piece.limit == Limit::CongestionWindow {
                    piece.limit = Limit::Application;
                }
            }
        }
        // What looks like idleness here, or like a window in flight, is the sender's wait for its timeouts.
        let waits = |of: &Undelivered| is_lost(of) && of.silence() > RTO_MIN + stream.srtt;
        if let Some(Undelivered { since, until, .. }) = facts.undelivered.filter(waits) {
            pieces = sender_state::give(pieces, [since, until], Limit::RtoStall);
            for reading in &mut facts.readings {
                if reading.from < since {
                    reading.to = reading.to.min(since);
                } else {
                    reading.limit = Some(Limit::RtoStall);
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
                    OwnedInterval {
                        from,
                        to,
                        limit: Limit::Handshake,
                        bytes: Bytes(0),
                    },
                );
            }
        }
        let subject = ExplainedConnection {
            name: format!("{} to {}", frame.from, frame.to),
            sender: Some(frame.from),
            receiver: Some(frame.to),
            direction: None,
        };
        if blind {
            pieces.clear();
        }
        more(&mut facts);
        let mut explanation = assemble(subject, &pieces, &facts, doubts);
        // Of a few segments nothing is to be expected, seen or not.
        if blind && facts.span.0 > 0 && facts.bytes.0 >= FEWEST_SEGMENTS * u64::from(facts.mss) {
            explanation.conclusion = Conclusion::Unexplained;
        }
        explanation.stream = Some(figures);
        explanation
    }
}

fn source_of(vantage: Vantage) -> Source {
    match vantage {
        Vantage::AtSender => Source::CaptureAtSender,
        Vantage::AtReceiver => Source::CaptureAtReceiver,
        Vantage::Between => Source::CaptureBetween,
        Vantage::Unknown => Source::CaptureSomewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{CaptureConnection, CaptureObserver, read};
    use model::segment::tcp_flag::{ACK, PSH, SYN};

    fn packet(forward: bool, us: u64, flags: u8) -> Packet {
        let (from, to) = (
            ([192, 0, 2, 1], 40000).into(),
            ([192, 0, 2, 2], 5210).into(),
        );
        let (from, to) = if forward { (from, to) } else { (to, from) };
        Packet {
            at: Nanos::from_micros(us),
            flags,
            window: 65_000,
            ..Packet::new(from, to)
        }
    }

    /// A SYN at time zero, its answer and the third packet at these microseconds.
    fn after_handshake(answer_us: u64, third_us: u64) -> CaptureObserver {
        let mut observer = CaptureObserver::default();
        observer.push(&packet(true, 0, SYN));
        observer.push(&Packet {
            ack: 1,
            ..packet(false, answer_us, SYN | ACK)
        });
        observer.push(&Packet {
            seq: 1,
            ack: 1,
            ..packet(true, third_us, ACK)
        });
        observer
    }

    /// Four segments in flight on a line that takes 5 ms for each, seen where they arrive: each is acknowledged at once. The
    /// share of time that belongs to the sending application, where each echoes the acknowledgement so many before it.
    fn idle(behind: u64) -> f64 {
        let mut observer = after_handshake(50, 1050);
        for n in 0..400u64 {
            let at = 10_000 + n * 5000;
            let acked_at = |n: u64| (10 + n * 5) as u32;
            let seq = 1 + n as u32 * 1448;
            observer.push(&Packet {
                seq,
                ack: 1,
                payload: 1448,
                stamps: Some((acked_at(n), acked_at(n.saturating_sub(behind)))),
                ..packet(true, at, ACK)
            });
            observer.push(&Packet {
                seq: 1,
                ack: seq + 1448,
                stamps: Some((acked_at(n), acked_at(n))),
                ..packet(false, at + 50, ACK)
            });
        }
        let explanations = observer.explain().explanations;
        let own = explanations[0]
            .findings
            .iter()
            .find(|f| f.limit == Limit::Application);
        own.map_or(0.0, |finding| finding.share.time_share)
    }

    /// Single segments, of which the receiver acknowledges the first at once, and each other one after so many milliseconds,
    /// seen there: the next comes a round trip and some milliseconds later, for a full segment takes longer than the SYN.
    /// Each may end a write.
    fn alone(held_ms: u64, trip_ms: u64, later_ms: u64, push: u8) -> Option<Limit> {
        let mut observer = after_handshake(0, trip_ms * 1000);
        for n in 0..100u64 {
            let at = (trip_ms + 9 + n * (held_ms + trip_ms + later_ms)) * 1000;
            let held = if n == 0 { 0 } else { held_ms * 1000 };
            let seq = 1 + n as u32 * 1448;
            observer.push(&Packet {
                seq,
                ack: 1,
                payload: 1448,
                ..packet(true, at, ACK | push)
            });
            observer.push(&Packet {
                seq: 1,
                ack: seq + 1448,
                ..packet(false, at + held, ACK)
            });
        }
        observer.explain().explanations[0].cause()
    }

    #[test]
    fn what_follows_a_delayed_acknowledgement_soon_had_waited_for_it() {
        assert_eq!(alone(40, 1, 2, PSH), Some(Limit::DelayedAck));
        let slow_link = alone(40, 24, 4, PSH);
        assert_eq!(slow_link, Some(Limit::DelayedAck));
        // Full segments at pauses of their own.
        assert_eq!(alone(20, 1, 2, PSH), Some(Limit::Pacing));
        assert_eq!(alone(40, 24, 9, PSH), Some(Limit::Pacing));
        // Of one write, on a slower link.
        assert_eq!(alone(40, 24, 9, 0), Some(Limit::DelayedAck));
        assert_eq!(alone(40, 24, 12, 0), Some(Limit::Pacing));
    }

    #[test]
    fn what_left_before_the_last_acknowledgement_came_was_not_waited_for() {
        assert!(idle(1) > 0.9, "{}", idle(1));
        assert!(idle(4) < 0.1, "{}", idle(4));
    }

    /// Packets of 1000 bytes that left 1 us apart, the first of them with this number.
    fn departed(many: u32, next: u32, lossy: bool) -> Departed {
        let mut departed = Departed {
            next,
            lossy,
            ..Departed::default()
        };
        let mut stream = Stream::default();
        stream.min_rtt = Some(Nanos::from_millis(20));
        for n in 0..many {
            let one = Packet {
                payload: 1000,
                ..packet(true, n.into(), ACK)
            };
            departed.keep(&stream, &one, 1448);
        }
        departed
    }

    #[test]
    fn what_is_lost_of_a_packet_is_where_it_overlaps_a_retransmission() {
        // Of the third packet, whose bytes end at 2000; and what is retransmitted.
        let lost = |number, ranges: &[(u32, u32)]| {
            let mut departed = departed(4, 10, false);
            for range in ranges {
                departed.lost((number, 2000), *range);
            }
            let all = departed.sent.iter().enumerate();
            let all = all.filter(|(_, s)| s.lost > 0);
            all.map(|(n, s)| (n, s.lost_from, s.lost))
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(12, &[(1200, 1800)]), [(2, 200, 600)]);
        assert_eq!(lost(12, &[(500, 1500)]), [(2, 0, 500)]);
        assert_eq!(lost(12, &[(1500, 2500)]), [(2, 500, 500)]);
        assert_eq!(lost(12, &[(1500, 2000), (1000, 1200)]), [(2, 0, 700)]);
        assert_eq!(lost(12, &[(1000, 2000), (1000, 2000)]), [(2, 0, 1000)]);
        assert_eq!(lost(12, &[(2000, 2500)]), []);
        assert_eq!(
            [lost(14, &[(1000, 2000)]), lost(9, &[(1000, 2000)])],
            [[], []]
        );
        assert_eq!(lost(13, &[(1000, 2000)]), [(3, 0, 1000)]);
    }

    #[test]
    fn before_a_loss_the_oldest_are_left_out_and_after_it_none() {
        let most = 2 * BEFORE_LOSS as u32;
        let kept = departed(most, 5, false);
        assert_eq!((kept.sent.len() as u32, kept.drained), (most, false));
        let mut kept = departed(most + 1, 5, false);
        let half = BEFORE_LOSS as u32;
        assert_eq!(kept.sent.len() as u32, half + 1);
        assert_eq!((kept.sent[0].number, kept.drained), (5 + half, true));
        assert_eq!(kept.sent[0].at, Nanos::from_micros(half.into()));
        kept.lost((5 + half, 2000), (1000, 2000));
        assert_eq!(kept.sent[0].lost, 1000, "numbers go on");
        assert_eq!(departed(most + 1, 5, true).sent.len() as u32, most + 1);
    }

    #[test]
    fn many_that_leave_at_once_are_gathered_and_still_found_by_their_number() {
        let many = MOST_SENT as u32 + 1;
        let mut kept = departed(many, 5, true);
        assert!(!kept.full && kept.sent.len() < MOST_SENT);
        assert_eq!(kept.sent.iter().map(|s| s.packets).sum::<u32>(), many);
        let numbers = kept.sent.iter().scan(5, |next, s| {
            *next += s.packets;
            Some(*next - s.packets)
        });
        assert!(numbers.eq(kept.sent.iter().map(|s| s.number)));
        kept.lost((5 + many - 1, 2000), (1000, 2000));
        assert_eq!(kept.sent.last().unwrap().lost, 1000);
        let gathered = kept.sent.iter().position(|s| s.packets > 1).unwrap();
        let last = kept.sent[gathered + 1].number - 1;
        assert_eq!(kept.place_of(last), Some(gathered));
        assert_eq!([5 + many, 4].map(|number| kept.place_of(number)), [None; 2]);
        // The newest quarter is not gathered.
        let newest = &kept.sent[kept.sent.len() - MOST_SENT / 4..];
        assert!(newest.iter().all(|s| s.packets == 1));
    }

    #[test]
    fn the_latest_acknowledgements_are_kept() {
        let mut departed = Departed::default();
        for n in 0..=capacity::MOST as u64 {
            departed.acked(Nanos(n), 7);
        }
        assert_eq!(departed.acked.len(), capacity::MOST);
        assert_eq!(departed.acked.front(), Some(&(Nanos(1), 7)));
    }

    #[test]
    fn an_echo_is_the_time_from_a_new_timestamp_to_the_first_data_with_it() {
        let mut echo = TimestampEcho::default();
        let at = Nanos::from_millis;
        echo.acked(at(10), 100);
        echo.acked(at(12), 100);
        echo.acked(at(13), 101);
        echo.data(at(20), 99, Nanos(0));
        assert_eq!(echo.now(), Nanos(0), "an older one");
        echo.data(at(40), 100, at(5));
        assert_eq!((echo.now(), echo.least), (at(25), Some(at(30))));
        // 101 passed while another was waited for.
        echo.data(at(41), 101, Nanos(0));
        assert_eq!(echo.now(), at(25));
        echo.acked(at(50), 102);
        echo.data(at(55), 103, Nanos(0));
        assert_eq!(echo.least, Some(at(30)), "a later one is no echo of it");
        echo.acked(at(60), 104);
        echo.data(at(70), 104, Nanos(0));
        assert_eq!((echo.read(), echo.least), (at(10), Some(at(10))));
        assert_eq!(
            (echo.read(), echo.now()),
            (at(10), at(10)),
            "that of the last"
        );
        echo.took(at(7), at(7));
        assert_eq!(
            (echo.read(), echo.least),
            (at(10), Some(at(7))),
            "all of it was a pause"
        );
    }

    #[test]
    fn ten_readings_show_a_rhythm() {
        let of = |readings| {
            let spread = SendSpread {
                readings,
                drained: 2,
                paused: 5,
            };
            spread.rhythm(None).map(|r| (r.drained, r.paused))
        };
        assert_eq!([of(10), of(9)], [Some((0.2, 0.5)), None]);
    }

    /// A handshake of 20 ms, whose answer was seen at this moment, in microseconds.
    fn handshake(answer: u64) -> Vec<Packet> {
        vec![
            Packet {
                mss: Some(1448),
                ..packet(true, 0, SYN)
            },
            Packet {
                ack: 1,
                mss: Some(1448),
                ..packet(false, answer, SYN | ACK)
            },
            Packet {
                seq: 1,
                ack: 1,
                ..packet(true, 20_000, ACK)
            },
        ]
    }

    /// A sender 20 ms from its receiver, seen at the sender: in each of so many rounds of 20 ms so many segments leave at once,
    /// and are acknowledged at once by a window of so many bytes.
    fn rounds(many: u32, segments: u32, window: u32) -> CaptureConnection {
        let mut packets = handshake(20_000);
        let mut seq = 1;
        for n in 1..=many {
            for k in 0..segments {
                packets.push(Packet {
                    seq,
                    ack: 1,
                    payload: 1448,
                    ..packet(true, u64::from(n * 20_000 + k), ACK)
                });
                seq += 1448;
            }
            packets.push(Packet {
                seq: 1,
                ack: seq,
                window: window as _,
                ..packet(false, u64::from((n + 1) * 20_000), ACK)
            });
        }
        let mut connection = CaptureConnection::new(&packets[0], false);
        for one in &packets {
            let passed = connection.push(one, one.from != packets[0].from);
            read(&mut connection, one, &passed);
        }
        connection
    }

    #[test]
    fn a_reading_is_a_round_trip_with_what_left_and_was_acknowledged() {
        let connection = rounds(40, 4, 10_000);
        let own = connection.stream(0).unwrap();
        let course = own.view.course.as_ref().unwrap();
        let all = &course.readings;
        assert_eq!(all.len(), 40);
        let found = &all[9];
        assert_eq!(found.to.since(found.from), Nanos::from_millis(20));
        assert_eq!(
            (found.flight, found.delivered, found.passed),
            (5792, 5792, 5792)
        );
        assert_eq!((found.window, found.retransmitted), (10_000, 0));
        assert_eq!(found.limit, Some(Limit::CongestionWindow));
        // All of it lies within the window, and is less than 85 % of it.
        assert_eq!((course.beyond, course.within), (0, 40));
        assert_eq!(course.pace.readings, 40);
        // Nothing is in flight when more is sent, and nothing is sent for most of the round trip.
        assert_eq!((course.pace.drained, course.pace.paused), (40, 40));
        let owned: u64 = course.pieces.iter().map(|p| p.length().0).sum();
        assert_eq!(owned, all[39].to.0 - all[0].from.0);
    }

    #[test]
    fn a_window_is_full_from_85_per_cent_and_false_above_125() {
        let of = |window| {
            let connection = rounds(40, 4, window);
            let course = connection.stream(0).unwrap().view.course.as_ref().unwrap();
            (course.readings[20].limit, course.beyond, course.within)
        };
        let (full, open) = (Some(Limit::ReceiveWindow), Some(Limit::CongestionWindow));
        // 5792 bytes in flight; the handshake's window was larger.
        assert_eq!(of(6814), (full, 0, 40));
        assert_eq!(of(6815), (open, 0, 40));
        assert_eq!(of(4634), (full, 0, 40));
        assert_eq!(of(4633), (full, 39, 1));
        assert_eq!(of(1447).0, Some(Limit::ZeroWindow));
    }

    #[test]
    fn acknowledgements_of_three_full_segments_at_once_were_held() {
        let held = |segments| {
            let connection = rounds(10, segments, 60_000);
            let view = &connection.stream(0).unwrap().view;
            (
                view.held_acks.count,
                view.held_acks.time,
                view.held_acks(Nanos::from_millis(15)),
            )
        };
        // 20 ms less what the segments took to leave.
        let time = Nanos::from_micros(10 * (20_000 - 2));
        assert_eq!(held(3), (10, time, time.since(Nanos::from_millis(150))));
        assert_eq!(held(2), (0, Nanos(0), Nanos(0)));
    }

    /// The facts of what the client of a connection sent, seen there or at the server.
    fn facts(connection: CaptureConnection, vantage: Vantage) -> Facts {
        let ends: [SocketAddr; 2] = [
            ([192, 0, 2, 1], 40000).into(),
            ([192, 0, 2, 2], 5210).into(),
        ];
        let mut facts = Facts::default();
        crate::capture::explain(
            connection,
            ends,
            (&|_, _| vantage, &|_| None),
            &mut Vec::new(),
            &mut |known: &mut Facts| facts = known.clone(),
        );
        facts
    }

    #[test]
    fn the_facts_at_a_sender_are_those_of_its_packets_since_it_began() {
        let facts = facts(rounds(40, 4, 10_000), Vantage::AtSender);
        assert_eq!((facts.segments, facts.bytes), (160, Bytes(40 * 5792)));
        assert_eq!(
            (facts.mss, facts.min_rtt),
            (1448, Some(Nanos::from_micros(19_997)))
        );
        assert_eq!(facts.span, Nanos::from_millis(820));
        assert_eq!(
            (facts.retransmitted, facts.timeouts, facts.is_exchange),
            (0, 0, false)
        );
        let one = &facts.readings[9];
        assert_eq!(
            (one.from, one.to),
            (Nanos::from_millis(200), Nanos::from_millis(220))
        );
        assert_eq!((one.flight, one.cwnd), (5792, 5792));
        assert!(
            facts
                .rhythm
                .is_some_and(|r| (r.drained, r.paused) == (1.0, 1.0))
        );
        // The first of each round follows an acknowledgement, the others it.
        let clock = facts.send_clock.unwrap();
        assert_eq!((clock.by_ack, clock.by_itself), (39, 1));
    }

    #[test]
    fn bursts_at_even_times_that_no_acknowledgement_let_go_are_a_clocks() {
        // So many bursts, each 1.2 ms apart but for a jitter, so long behind an acknowledgement.
        let spread = |many: u64, jitter_us: u64, behind_us: u64| {
            let mut bursts = Bursts::default();
            for n in 0..many {
                let at = Nanos::from_micros(n * 1200 + n * 7919 % 100 * jitter_us / 100);
                bursts.began(at, at.since(Nanos::from_micros(behind_us)));
            }
            bursts.spread()
        };
        let is = |found: Option<f64>, low: f64, high: f64| {
            found.is_some_and(|spread| (low..high).contains(&spread))
        };
        assert!(is(spread(500, 0, 60), 0.0, 0.001));
        assert!(is(spread(500, 40, 300), 0.005, 0.03));
        assert!(is(spread(500, 600, 300), 0.1, 0.5));
        assert_eq!(spread(500, 0, 59), None, "what lets it go came just before");
        assert!(spread(20, 0, 60).is_some());
        assert_eq!([spread(19, 0, 60), spread(0, 0, 60)], [None, None]);
    }

    #[test]
    fn acknowledgements_of_a_window_each_round_trip_show_its_rate() {
        // 5792 bytes each 20 ms.
        let facts = facts(rounds(60, 4, 10_000), Vantage::AtSender);
        assert!(
            facts
                .capacity
                .is_some_and(|rate| (rate / 289_600.0 - 1.0).abs() < 1e-3)
        );
    }

    #[test]
    fn at_the_receiver_the_way_to_the_sender_and_its_queue_are_added() {
        // 20 ms to the sender and back; a segment each 8 ms, which echoes the acknowledgement of 32 ms before.
        let mut packets = handshake(0);
        for n in 4..200u32 {
            let (seq, ms) = (1 + (n - 4) * 1448, n * 8);
            let (at, acked) = (u64::from(ms) * 1000, Some((ms, ms - 32)));
            let data = Packet {
                seq,
                ack: 1,
                payload: 1448,
                ..packet(true, at, ACK)
            };
            let ack = Packet {
                seq: 1,
                ack: seq + 1448,
                ..packet(false, at + 50, ACK)
            };
            packets.push(Packet {
                stamps: acked,
                ..data
            });
            packets.push(Packet {
                stamps: acked,
                ..ack
            });
        }
        let mut connection = CaptureConnection::new(&packets[0], false);
        for one in &packets {
            let passed = connection.push(one, one.from != packets[0].from);
            read(&mut connection, one, &passed);
        }
        let facts = facts(connection, Vantage::AtReceiver);
        let one = &facts.readings[40];
        // It may have paused for 8 ms.
        assert_eq!(one.echo, Nanos::from_micros(31_950 - 8000));
        assert_eq!(one.to.since(one.from), Nanos::from_millis(24));
        // For 3.95 ms more than the handshake took, what was delivered in 24 ms stood in a queue.
        assert_eq!((one.delivered, one.passed), (3 * 1448, 3 * 1448));
        // Beside the three that are on their way at any time.
        assert_eq!(one.flight, 3 * 1448 + 3 * 1448 * 3950 / 24_000);
        assert_eq!(
            (one.cwnd, one.srtt),
            (one.flight, one.echo + Nanos::from_micros(50))
        );
        assert!(facts.send_clock.is_none() && facts.rhythm.is_none());
    }
}
