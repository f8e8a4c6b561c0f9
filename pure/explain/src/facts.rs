//! What is known of a connection as a whole: what the second level is judged by.

use crate::limits::SpentBucket;
use crate::process_activity::LimitingProcess;
use model::finding::{Evidence, EvidenceKey, Limit, Quantity, Source};
use model::stats::{median, percentile};
use model::{BitRate, Bytes, CopySummary, LineErrors, Nanos, Stage, StageUse};
use std::cell::OnceCell;
use tcp::stream::Undelivered;

/// Most readings that are kept of one connection; beyond it neighbours are joined.
const MOST_READINGS: usize = 4096;
/// Most losses that are kept one by one.
pub(crate) const MOST_LOSSES: usize = 65_536;
/// The second level looks at stretches of at least so many round trips.
const ROUND_TRIPS: u64 = 10;
/// Or, where there are few of them in all, of so many.
const FEW_ROUND_TRIPS: u64 = 2;
/// And of so many segments, on average: fewer are gone with a burst.
const FEWEST_IN_STRETCH: u64 = 30;
/// Most sends that are kept of a connection, or of several that share a bucket.
pub(crate) const MOST_SENT: usize = 16_384;
/// Fewer stretches than this do not show whether a rate is steady.
const FEWEST_WINDOWS: usize = 3;
/// How well a queue or a bucket separates lost from delivered segments (0 to 0.9): from the first it is what loses, below
/// the second none is.
pub(crate) const SEEN: f64 = 0.6;
pub(crate) const EXCLUDED: f64 = 0.4;
/// From here on nearly without exception: in labs 0.9 for queues, up to 0.83 for other losses in bursts.
pub(crate) const CLEAR: f64 = 0.86;
/// Half the interquartile range of a rate by its median, up to which it is flat.
pub(crate) const FLAT: f64 = 0.10;
/// The same of the bytes in flight: something holds them.
pub(crate) const HELD_FLIGHT: f64 = 0.05;
/// Goodput above that of all of the transfer by no more than this is the same.
pub(crate) const NO_MORE: f64 = 1.1;
/// A stretch over which a rate is looked at has so many segments, and there are so many of them.
const PEAK_SEGMENTS: u64 = 30;
const PEAK_STRETCHES: usize = 20;
/// Segments that leave together, at the most, of a sender that paces: two milliseconds' worth at low rates is the least
/// that `tcp_tso_autosize` (`net/ipv4/tcp_output.c`) puts into one.
const BURST: f64 = 4.0;
/// Part of the time (1 / n) that a queue has to stand: BBR makes one in two of ten round trips.
const QUEUED_TIME: u64 = 20;
/// Round trips after which BBR's startup is over.
const STARTUP: f64 = 60.0;
/// With fewer losses nothing is known of what they do.
pub(crate) const FEWEST_LOST: u64 = 5;
/// The rate that losses allow by goodput, from which they are not what holds a sender back.
pub(crate) const ALLOWS_MORE: f64 = 2.0;
/// A path that was seen to reorder so often reorders.
pub(crate) const MUCH_REORDERING: u64 = 20;
/// So much above the shortest round trip is no queue, if that is short itself: acknowledgements that are
/// gathered, a processor that slept.
pub(crate) const NOISE: Nanos = Nanos::from_micros(1500);
/// And not by this factor.
const NOISE_AT_MOST: f64 = 2.0;

/// Goodput by what the slowest link carries: from the first it is full; below the second, without losses and a queue, it is not.
const FULL_LINK: f64 = 0.87;
const IDLE_LINK: f64 = 0.80;
/// A goodput above this part of it is not of the time in which the spacing was seen.
const MORE_THAN_FULL: f64 = 1.15;
/// A sender with fewer segments under way waits for each: they are spaced by round trips.
const FEWEST_UNDER_WAY: f64 = 4.0;

/// A packet that always waits so long, and so many segments, waits in a queue.
const SHORTEST_QUEUE: f64 = 1e6;
const QUEUED_SEGMENTS: f64 = 2.0;
/// Segments in a queue that overflows, by the smoothed RTT: 0.0 to 1.6 seen of random loss of 3 to 25 %.
const OVERFLOWS: f64 = 1.5;
/// Half the span of the middle four fifths of the time from burst to burst, by its median, up to which a clock lets them go.
const EVEN: f64 = 0.1;

/// Timeouts in a row that are no chance, and their part of the time that is worth a name beside something else.
const OUTAGE: u32 = 2;
const OUTAGE_TIME: f64 = 0.1;

/// A queue that somebody waits for.
pub(crate) const WAITED_FOR: Nanos = Nanos::from_millis(50);
/// Segments that one write needs at the least, so that no round trip is one of a delayed acknowledgement.
const NO_DELAYED_ACK: u64 = 4;

/// Smoothed RTT by the shortest, from which there is a standing queue.
pub(crate) const QUEUE: f64 = 1.25;
/// The same, from which the standing queue is longer than a small window makes for itself.
pub(crate) const LONG_QUEUE: f64 = 1.5;

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub source: Source,
    /// Congestion control, where reported.
    pub congestion: Option<String>,
    /// Segment size in bytes.
    pub mss: u32,
    pub span: Nanos,
    /// Application bytes that moved.
    pub bytes: Bytes,
    pub min_rtt: Option<Nanos>,
    /// How much of the queueing delay is on the way of the acknowledgements, where that is known.
    pub reverse_queueing: Option<ReverseQueueing>,
    /// In the order of time, without gaps.
    pub readings: Vec<SenderInterval>,
    pub losses: Vec<LostSegment>,
    /// The peer sent data as well: requests and answers.
    pub is_exchange: bool,
    /// What parts those that were lost from those that passed, where each that left is known.
    pub bucket: Option<BucketFit>,
    /// Bytes of payload a second that the slowest link carries, where the spacing of what arrives shows it.
    pub capacity: Option<f64>,
    /// How evenly small bursts arrive: see [`capacity::spread`](crate::capacity::spread).
    pub burst_spread: Option<f64>,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    pub retransmitted: u64,
    pub timeouts: u64,
    /// Retransmitted SYNs.
    pub syns_again: u32,
    /// Timeouts in a row, at the most.
    pub backoffs: u32,
    /// Time that belongs to timeouts.
    pub stalled: Nanos,
    /// Retransmissions that the receiver had not needed.
    pub needless: u64,
    /// Times that the sender saw reordering.
    pub reordered: u64,
    /// Segments delivered with an ECN mark.
    pub marked: u64,
    /// `SO_SNDBUF` as the kernel holds it, at its largest.
    pub send_buffer: Option<Bytes>,
    /// `SO_RCVBUF` as the kernel holds it, at its largest.
    pub receive_buffer: Option<Bytes>,
    /// Pacing that somebody asked for.
    pub pacing: Option<BitRate>,
    pub sender_load: Option<CpuLoad>,
    pub receiver_load: Option<CpuLoad>,
    /// Both ends run on one machine, and nobody set a buffer or a rate: the path is its memory and its processors.
    pub memory_path: bool,
    /// Goodput of the same run in the other direction, in bytes a second.
    pub other_direction: Option<f64>,
    /// The slower of both ends' devices.
    pub link: Option<BitRate>,
    /// A device that says that it runs half duplex.
    pub half_duplex: Option<String>,
    /// What the devices of sender and receiver say of their line.
    pub line: [Option<LineErrors>; 2],
    /// The sending application always has data: it is a load generator.
    pub always_writes: bool,
    /// What the sending application can have under way at the most: what it was asked for.
    pub most_written: Option<Bytes>,
    /// Time for which the receiver held back acknowledgements of three full segments and more, where packets show it.
    pub held_acks: Nanos,
    /// What let new data go, where a capture at the sender shows it.
    pub send_clock: Option<SendClock>,
    /// When it paused, where packets show it.
    pub pauses: Option<Pauses>,
    /// How it spread out what it sent, where packets show it.
    pub rhythm: Option<Rhythm>,
    /// Waits that Nagle's algorithm made, and how many of them outlasted a delayed ACK.
    pub held: AckWaitCounts,
    /// The same of the waits of a window in which a single segment was out.
    pub alone: AckWaitCounts,
    /// The full-size segments that vanished, where that was seen.
    pub vanished: Option<Vanished>,
    /// What its sender sent, and of which nothing came here.
    pub undelivered: Option<Undelivered>,
    /// The stages of a copy, and whether there is a file at its source and its sink.
    pub copy: Option<(CopySummary, [bool; 2])>,
    /// What the sending process did while it was the limit.
    pub behind: LimitingProcess,
    /// What the receiving process did while data waited for it.
    pub reader: LimitingProcess,
    pub derived: Derived,
}

/// What takes long to calculate and several limits need: calculated when the first of them does, of facts that do not change any
/// more. A copy of the facts may be changed, and begins without.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    inflation_at_loss: OnceCell<Option<f64>>,
    delay_at_loss: OnceCell<Option<Nanos>>,
    pub spent: OnceCell<Option<SpentBucket>>,
    /// The highest rate of a stretch: of any, and between two losses.
    pub highest: [OnceCell<Option<f64>>; 2],
}

impl Clone for Derived {
    fn clone(&self) -> Derived {
        Derived::default()
    }
}

/// Calculates a value at its first use.
pub(crate) fn once<T: Copy + PartialEq>(known: &OnceCell<T>, calculate: impl Fn() -> T) -> T {
    let value = *known.get_or_init(&calculate);
    debug_assert!(
        value == calculate(),
        "the facts changed after its first use"
    );
    value
}

/// Queueing delay of acknowledgements on the reverse path, of all queueing delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReverseQueueing {
    pub delay: Nanos,
    pub all: Nanos,
}

impl ReverseQueueing {
    /// Share of the queueing delay from which the queue is on the reverse path.
    pub const MOST: f64 = 0.5;

    pub fn of(delay: Nanos, all: Nanos) -> ReverseQueueing {
        ReverseQueueing {
            delay: delay.min(all),
            all,
        }
    }

    /// 0: none of it is on the reverse path; 1: all.
    pub fn share(self) -> f64 {
        self.delay.0 as f64 / self.all.0.max(1) as f64
    }

    /// The queue is on the reverse path.
    pub fn is_most(self) -> bool {
        self.share() >= ReverseQueueing::MOST
    }
}

/// How a sender spreads out what it sends, over the round trips without a loss.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rhythm {
    /// Share of them in which less than half of what the path holds was in flight for a moment.
    pub drained: f64,
    /// Share of them of which nothing was sent in a half.
    pub paused: f64,
    /// How long packets lay below TCP, by their timestamps: the mean above the least.
    pub late: Option<Nanos>,
}

impl Rhythm {
    /// Drained round trips from which the sender idles.
    pub const IDLING: f64 = 0.2;
    /// Drained and paused round trips up to which sends are spread out.
    pub const SPREAD: f64 = 0.1;

    /// The line fell idle again and again.
    pub fn is_idling(&self) -> bool {
        self.drained >= Rhythm::IDLING
    }

    /// Sends are spread out over the round trip all the time: no acknowledgement makes them so even.
    pub fn is_spread(&self) -> bool {
        self.paused <= Rhythm::SPREAD && self.drained <= Rhythm::SPREAD
    }
}

/// What let new data go, as far as it shows at the sender: bursts that left when an acknowledgement had just arrived, and others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendClock {
    pub by_ack: u32,
    pub by_itself: u32,
    /// Half the span from the first to the last decile of the time from one burst to the next, by its median; of the latest
    /// bursts, if acknowledgements do not let them go.
    pub spread: Option<f64>,
}

impl SendClock {
    pub fn bursts(self) -> u32 {
        self.by_ack.saturating_add(self.by_itself)
    }
}

/// Pauses of a millisecond and more between new data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    pub count: u32,
    pub time: Nanos,
    /// Of this, after a segment that was not full: what was written had an end there.
    pub after_short: Nanos,
}

impl Pauses {
    pub fn passed(&mut self, pause: Nanos, after_full: bool) {
        self.count += 1;
        self.time += pause;
        if !after_full {
            self.after_short += pause;
        }
    }

    /// Part of their time.
    pub fn after_short(&self) -> f64 {
        self.after_short.0 as f64 / self.time.0.max(1) as f64
    }
}

/// Waits for an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckWaitCounts {
    pub waits: u64,
    /// Of these, as long as a delayed acknowledgement.
    pub delayed: u64,
    pub delayed_time: Nanos,
}

impl AckWaitCounts {
    /// Counts a wait that ended; for so long the receiver held back the acknowledgement that ended it.
    pub fn waited(&mut self, held: Nanos) {
        self.waits += 1;
        self.delayed += u64::from(held.0 > 0);
        self.delayed_time += held;
    }
}

/// Segments of one size that never arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vanished {
    /// Payload of the segment that was retransmitted repeatedly.
    pub size: u32,
    /// The largest that was ever acknowledged.
    pub passed: u32,
    pub backoffs: u32,
    pub at: Nanos,
}

/// A sender over a short stretch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SenderInterval {
    pub from: Nanos,
    pub to: Nanos,
    pub srtt: Nanos,
    /// Bytes.
    pub cwnd: u64,
    /// Bytes.
    pub flight: u64,
    /// The peer's window in bytes.
    pub window: u64,
    /// Bytes acknowledged.
    pub delivered: u64,
    /// Bytes that left and were not lost.
    pub passed: u64,
    pub retransmitted: u32,
    /// Who owned most of it.
    pub limit: Option<Limit>,
    /// What the receiver's application had not read yet, by the receive buffer.
    pub unread: Option<f64>,
    /// Of packets: the round trip from the observer to the sender and back; 0 where it is not known.
    pub echo: Nanos,
    /// Of packets: how late they came by the sender's timestamps; 0 where it is not known.
    pub late: Nanos,
}

/// A retransmitted segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LostSegment {
    /// When the lost one left.
    pub at: Nanos,
    pub srtt: Nanos,
    /// Bytes in flight when it was noticed.
    pub flight: u64,
    /// Where in its burst it stood, 0 first to 1 last.
    pub place: Option<f64>,
    /// Payload.
    pub bytes: u32,
    /// As in [`Reading`].
    pub echo: Nanos,
    pub late: Nanos,
}

/// A packet that left, or several as one of which nothing was lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// When the first of them left.
    pub at: Nanos,
    /// Its number among those of its connection.
    pub number: u32,
    pub packets: u32,
    /// Bytes of payload.
    pub bytes: u32,
    /// Of these, lost; the first of them behind so many.
    pub lost: u32,
    pub lost_from: u32,
    /// Of one segment.
    pub size: u32,
}

/// A queue or a bucket of tokens that explains which segments were lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketFit {
    /// Bytes a second: the best, and the lowest and the highest that fit as well.
    pub rate: f64,
    pub range: [f64; 2],
    /// Bytes that it holds.
    pub depth: f64,
    /// How well it parts the lost from the passed: 0 as chance would, 0.9 at the most.
    pub parts: f64,
    /// Loss events that stand at its brim, of so many.
    pub events: usize,
    pub of_events: usize,
    /// Bytes of a full segment.
    pub segment: u32,
    /// Connections that share it.
    pub connections: usize,
}

impl BucketFit {
    /// Some queue or bucket lost what was lost, in most loss events and not in slow start alone. One that would hold hardly a
    /// segment is none: who sends at a steady pace into a bucket that is never full again meets such a one in any.
    pub fn is_seen(&self) -> bool {
        let most = 2 * self.events > self.of_events;
        self.parts >= SEEN && most && self.depth >= 4.0 * f64::from(self.segment)
    }

    /// It separates the lost from the passed nearly without exception.
    pub fn is_clear(&self) -> bool {
        self.parts >= CLEAR
    }

    /// No queue and no bucket lost it: nothing parts it from the rest.
    pub fn is_excluded(&self) -> bool {
        self.parts < EXCLUDED
    }

    /// How long what fills it would delay the next, if it were a queue.
    pub fn delay(&self) -> Nanos {
        Nanos((self.depth / self.rate.max(1.0) * 1e9) as u64)
    }
}

/// How busy an end was, 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuLoad {
    /// The process: 1 is one processor.
    pub process: f64,
    /// All processors of the host.
    pub host: Option<f64>,
    /// The processor of the host that was busiest at the time.
    pub busiest: Option<f64>,
    pub streams: u32,
}

impl Facts {
    pub fn new(source: Source) -> Facts {
        Facts {
            source,
            ..Facts::default()
        }
    }

    /// The stage of a copy that held it up, if that is storage with a file in it.
    pub fn storage(&self) -> Option<&StageUse> {
        let (copy, [source, sink]) = self.copy.as_ref()?;
        copy.bottleneck().filter(|slow| match slow.stage {
            Stage::Source => *source,
            Stage::Network => false,
            Stage::Sink => *sink,
        })
    }

    /// See [`keep`].
    pub fn read(&mut self, reading: SenderInterval) {
        keep(&mut self.readings, reading);
    }

    pub fn is_bbr(&self) -> bool {
        self.congestion
            .as_deref()
            .is_some_and(|c| c.starts_with("bbr"))
    }

    /// BBR after its startup: it takes some ten round trips (`bbr_full_bw_reached` in `net/ipv4/tcp_bbr.c`), each as long as
    /// the queue makes it.
    pub fn outlasts_startup(&self) -> bool {
        let trip = self.rtt().0 as f64 * self.inflation().unwrap_or(1.0).max(1.0);
        self.is_bbr() && self.span.0 as f64 > trip * STARTUP
    }

    /// The readings behind slow start: after 20 round trips, but at least the later half.
    pub fn steady(&self) -> &[SenderInterval] {
        let Some(last) = self.readings.last() else {
            return &[];
        };
        let ramp = Nanos(self.rtt().0.saturating_mul(20)).min(Nanos(last.to.0 / 2));
        let from = self.readings.partition_point(|r| r.from < ramp);
        &self.readings[from.min(self.readings.len() - 1)..]
    }

    /// Part of the steady time in which a buffer or a program of one of the hosts held the sender back.
    pub fn held_by_hosts(&self) -> f64 {
        use Limit::{Application, ReceiveWindow, SendBuffer, ZeroWindow};
        let of_host =
            |limit: Limit| matches!(limit, Application | ReceiveWindow | SendBuffer | ZeroWindow);
        let time = |held: bool| -> Nanos {
            let all = self.steady().iter();
            let own = all.filter(|r| !held || r.limit.is_some_and(of_host));
            own.map(|r| r.to.since(r.from)).sum()
        };
        time(true).0 as f64 / time(false).0.max(1) as f64
    }

    /// Round trips by the shortest, median, while a program wrote nothing and what it had written stood in a queue longer than
    /// its own bursts make it, and the least of that: for a quarter of that time.
    pub fn queue_while_idle(&self) -> Option<(f64, f64)> {
        let rtt = self.min_rtt.filter(|rtt| rtt.0 > 0)?.0 as f64;
        let least = self
            .queue_from(LONG_QUEUE)
            .max(1.0 + WAITED_FOR.0 as f64 / rtt);
        let (mut all, mut queued, mut trips) = (Nanos(0), Nanos(0), Vec::new());
        for r in self
            .readings
            .iter()
            .filter(|r| r.limit == Some(Limit::Application))
        {
            let (time, trip) = (r.to.since(r.from), r.srtt.0 as f64 / rtt);
            all += time;
            let written = r.flight.max(r.delivered);
            if written >= NO_DELAYED_ACK * u64::from(self.mss) && trip >= least {
                queued += time;
                trips.push(trip);
            }
        }
        let is_much = queued.0 >= all.0 / 4;
        Some((median(trips).filter(|_| is_much)?, least))
    }

    /// The shortest round trip, or none at all.
    pub fn rtt(&self) -> Nanos {
        self.min_rtt.unwrap_or_default()
    }

    /// Median smoothed round-trip time by the shortest.
    pub fn inflation(&self) -> Option<f64> {
        let min = self.min_rtt.filter(|m| m.0 > 0)?;
        median(
            self.steady()
                .iter()
                .filter(|r| r.srtt.0 > 0)
                .map(|r| r.srtt.0 as f64 / min.0 as f64),
        )
    }

    /// Median time that a segment stands in queues.
    pub fn standing(&self) -> Option<Nanos> {
        let min = self.min_rtt?;
        let all = self.steady().iter().filter(|r| r.srtt.0 > 0);
        median(all.map(|r| r.srtt.since(min).0 as f64)).map(|ns| Nanos(ns as u64))
    }

    /// Rates over stretches of at least ten round trips of the empty path, in bytes a second; of a short
    /// transfer over stretches of two and more.
    pub fn rates(&self) -> Vec<f64> {
        let whole: Nanos = self.steady().iter().map(|r| r.to.since(r.from)).sum();
        let quarter = whole.0 / (FEWEST_WINDOWS as u64 + 1);
        let rtt = self.rtt().0;
        let segments = (self.span.0 / self.segments.max(1)).saturating_mul(FEWEST_IN_STRETCH);
        let stretch = quarter.clamp(
            rtt.saturating_mul(FEW_ROUND_TRIPS),
            rtt.saturating_mul(ROUND_TRIPS).max(segments.min(quarter)),
        );
        self.stretches(|r| r.delivered, |span, _| span >= stretch)
    }

    /// Rates over the stretches of the steady part that this span and these bytes make full, in bytes a second.
    fn stretches(
        &self,
        carried: fn(&SenderInterval) -> u64,
        is_full: impl Fn(u64, u64) -> bool,
    ) -> Vec<f64> {
        let mut rates = Vec::new();
        let (mut span, mut bytes) = (0u64, 0u64);
        for reading in self.steady() {
            span = span.saturating_add(reading.to.since(reading.from).0);
            bytes += carried(reading);
            if is_full(span, bytes) && span > 0 {
                rates.push(bytes as f64 / (span as f64 / 1e9));
                (span, bytes) = (0, 0);
            }
        }
        rates
    }

    /// Median rate of the steady part, in bytes a second; of all of it where that is too short.
    pub fn rate(&self) -> f64 {
        median(self.rates()).unwrap_or_else(|| self.mean())
    }

    /// Rate of the whole transfer, in bytes a second.
    pub fn mean(&self) -> f64 {
        self.bytes.0 as f64 / self.span.as_secs_f64().max(1e-9)
    }

    /// How unsteady the rate is: half the span between its quartiles by its median.
    pub fn unsteadiness(&self) -> Option<f64> {
        let mut rates = self.rates();
        if rates.len() < FEWEST_WINDOWS {
            return None;
        }
        quartile_spread(&mut rates)
    }

    /// The rate is the same all the time, within a tenth.
    pub fn is_flat(&self) -> bool {
        self.unsteadiness().is_some_and(|u| u < FLAT)
    }

    /// Goodput by that of its fastest tenth, over stretches of so many segments that one more or less is little: near one
    /// where it was never faster.
    pub fn goodput_by_peak(&self) -> Option<f64> {
        let least = PEAK_SEGMENTS * u64::from(self.mss.max(1));
        let mut rates = self.stretches(|r| r.passed, |_, bytes| bytes >= least);
        if rates.len() < PEAK_STRETCHES {
            return None;
        }
        let peak = percentile(&mut rates, 0.9)?;
        let (time, passed) = self.carried(|r| r.passed);
        Some(passed / time / peak)
    }

    /// The seconds of the steady part, and what was carried in them.
    fn carried(&self, of: fn(&SenderInterval) -> u64) -> (f64, f64) {
        let all = self.steady().iter();
        all.fold((0.0, 0.0), |(time, bytes), r| {
            let span = r.to.since(r.from).as_secs_f64();
            (time + span, bytes + of(r) as f64)
        })
    }

    /// Mean rate of the steady part, in bytes a second.
    fn steady_mean(&self) -> f64 {
        let (time, delivered) = self.carried(|r| r.delivered);
        delivered / f64::max(time, 1e-9)
    }

    /// Mean rate of the steady part, without an outage, by its median: less than one where it stood still now and then.
    pub fn mean_by_median(&self) -> f64 {
        let span: Nanos = self.steady().iter().map(|r| r.to.since(r.from)).sum();
        let outage = self.has_outage().then_some(self.stalled);
        let passing = span.since(outage.unwrap_or_default()).0 as f64 / span.0.max(1) as f64;
        self.steady_mean() / (self.rate() * passing).max(1.0)
    }

    /// What the receiving application left unread is known.
    pub fn unread_is_known(&self) -> bool {
        self.readings.iter().any(|r| r.unread.is_some())
    }

    /// Readings are so far apart that what happened within a round trip is not in them.
    pub fn is_coarse(&self) -> bool {
        let spans = self.readings.iter().map(|r| r.to.since(r.from).0 as f64);
        median(spans).is_none_or(|span| span > 1.5 * self.rtt().0 as f64)
    }

    /// What the congestion window would carry on an empty path, by what was carried.
    pub fn window_to_spare(&self) -> Option<f64> {
        let min = self.min_rtt.filter(|m| m.0 > 0)?.as_secs_f64();
        let rate = self.rate();
        let cwnd = median(self.steady().iter().map(|r| r.cwnd as f64))?;
        (rate > 0.0).then(|| cwnd / min / rate)
    }

    /// Median of what is in flight by the peer's window.
    pub fn occupancy(&self) -> Option<f64> {
        let all = self.steady().iter().filter(|r| r.window > 0);
        median(all.map(|r| r.flight as f64 / r.window as f64))
    }

    /// Goodput by what the slowest link carries.
    fn link_use(&self) -> Option<f64> {
        let capacity = self.capacity?;
        // A queue of acknowledgements spaces them itself.
        if self.reverse_queueing.is_some_and(ReverseQueueing::is_most) && !self.is_seen_from_afar()
        {
            return None;
        }
        let trip = self.rtt().as_secs_f64() * self.inflation()?.max(1.0);
        let rate = self.steady_mean();
        let segments = rate * trip / f64::from(self.mss.max(1));
        let used = rate / capacity;
        (segments >= FEWEST_UNDER_WAY && used <= MORE_THAN_FULL).then_some(used)
    }

    /// There is a standing queue, or segments were lost or marked, or BBR probed: the sender offered more than the path
    /// carries, at times.
    fn offers_more(&self) -> bool {
        let probed = self.is_bbr() && self.pacing.is_none();
        let waits = self.standing_queue().is_some();
        probed
            || waits
            || self.has_queue(QUEUE)
            || self.retransmitted >= FEWEST_LOST
            || self.marked > 0
    }

    /// At the receiver: what even the fastest packet of a round trip waits before the slowest link, by the sender's timestamps.
    /// A pair of segments waits for each other.
    pub fn standing_queue(&self) -> Option<(Nanos, Nanos)> {
        let all = self.steady().iter().filter(|_| self.is_at_receiver());
        let late = median(all.map(|r| r.late.0 as f64))?;
        let carries = self.capacity.unwrap_or(self.rate()).max(1.0);
        let least = SHORTEST_QUEUE.max(QUEUED_SEGMENTS * f64::from(self.mss) / carries * 1e9);
        (late >= least).then_some((Nanos(late as u64), Nanos(least as u64)))
    }

    /// At the receiver: small bursts arrive evenly, and the link is not full.
    pub fn arrives_evenly(&self) -> Option<Evidence> {
        let spread = self.burst_spread.filter(|spread| *spread <= EVEN)?;
        let idle = self.steady_mean() < IDLE_LINK * self.capacity?;
        let even = self.evidence(EvidenceKey::BurstSpread, spread);
        idle.then(|| even.at_most(EVEN))
    }

    /// More is offered, and packets arrive as close to each other as the slowest link lets them, nearly all the time: it is
    /// full, whatever is lost. A sender that holds itself back may space single segments as evenly.
    pub fn fills_link(&self) -> Option<Evidence> {
        let used = self.link_use().filter(|used| *used >= FULL_LINK)?;
        let used = self.evidence(EvidenceKey::GoodputOverCapacity, used);
        self.offers_more().then(|| used.at_least(FULL_LINK))
    }

    /// The slowest link carries more at times: others may use the rest, or it is idle between bursts.
    pub fn shares_link(&self) -> bool {
        self.link_use().is_some_and(|used| used < IDLE_LINK)
    }

    /// The same, and no more was offered.
    pub fn leaves_link_idle(&self) -> bool {
        !self.offers_more() && self.shares_link()
    }

    /// Two fifths of the time and more nothing passed, and timers fired.
    pub fn stood_still(&self) -> bool {
        self.timeouts > 0 && self.stalled.0 as f64 >= self.span.0 as f64 * 0.4
    }

    /// One run of timeouts took a part of the time: for so long nothing passed, whatever limits the rest. Who waits for timers
    /// many times has something that makes them.
    pub fn has_outage(&self) -> bool {
        self.backoffs >= OUTAGE
            && self.timed_out_once()
            && self.stalled.0 as f64 >= self.span.0 as f64 * OUTAGE_TIME
            && self.vanished.is_none()
    }

    /// All timeouts are of one run, or nearly.
    pub fn timed_out_once(&self) -> bool {
        self.timeouts <= 2 * u64::from(self.backoffs.max(1))
    }

    /// Every segment with the state of the sender's socket, whether the receiver was traced or not.
    pub fn is_traced(&self) -> bool {
        matches!(self.source, Source::Trace | Source::TraceOfBothEnds)
    }

    /// A look at the sender's socket now and then.
    pub fn is_sampled(&self) -> bool {
        matches!(self.source, Source::Samples | Source::PacketsAndSamples)
    }

    /// Packets alone, no socket.
    pub fn is_capture(&self) -> bool {
        !self.is_traced() && !self.is_sampled()
    }

    /// Packets alone, elsewhere than at the sender: what its window and its application did is not seen.
    pub fn is_seen_from_afar(&self) -> bool {
        use Source::*;
        matches!(
            self.source,
            TraceAtReceiver | CaptureAtReceiver | CaptureBetween
        )
    }

    fn is_at_receiver(&self) -> bool {
        matches!(
            self.source,
            Source::TraceAtReceiver | Source::CaptureAtReceiver
        )
    }

    /// Packets alone of a sender that nobody answers: it may pause for want of data, or be paced.
    pub fn shows_no_writes(&self) -> bool {
        self.is_capture() && self.source != Source::Listing && !self.is_exchange
    }

    /// A queue stood for two round trips and a twentieth of the time, and no more was delivered than in all the other
    /// time: the path was asked for more, and carried the same. Who sends no faster at any time fills no queue: round
    /// trips that are longer all the same are jitter.
    /// The goodput of that time by that of all of it.
    pub fn queued_goodput(&self) -> Option<f64> {
        let min = self.min_rtt.filter(|m| m.0 > 0)?;
        let rate = self.rate();
        // One burst more or less falls into a reading by the moment at which it ends.
        let burst = f64::from(self.mss) * BURST;
        let faster = |r: &SenderInterval| {
            let usual = rate * r.to.since(r.from).as_secs_f64();
            r.passed as f64 > NO_MORE * usual + burst
        };
        if !self.readings.iter().any(faster) {
            return None;
        }
        let queued = |r: &&SenderInterval| self.is_queue(r.srtt.0 as f64 / min.0 as f64, 1.25);
        let all = self.readings.iter().filter(queued);
        let (time, bytes) = all.fold((Nanos(0), 0), |(time, bytes), r| {
            (time + r.to.since(r.from), bytes + r.delivered)
        });
        let ratio = bytes as f64 / time.as_secs_f64() / rate;
        let enough = Nanos((2 * min.0).max(self.span.0 / QUEUED_TIME));
        (time >= enough && ratio <= NO_MORE).then_some(ratio)
    }

    /// The same amount in flight all the time, without loss and without a queue: something at the sender
    /// holds it, and packets do not show what. Returns half the middle spread by the median.
    pub fn held_flight(&self) -> Option<f64> {
        let mut flights: Vec<f64> = self.steady().iter().map(|r| r.flight as f64).collect();
        if flights.len() < 10 || self.loss_share() > 0.001 || self.inflation()? >= 1.25 {
            return None;
        }
        quartile_spread(&mut flights).filter(|spread| *spread < HELD_FLIGHT)
    }

    /// A fact of this connection.
    pub fn evidence(&self, key: EvidenceKey, quantity: impl Into<Quantity>) -> Evidence {
        Evidence::new(key, quantity, self.source)
    }

    /// Retransmitted segments, of all.
    pub fn retransmissions(&self) -> Evidence {
        let count = self.evidence(EvidenceKey::RetransmittedSegments, self.retransmitted);
        count.of(self.segments)
    }

    /// Segments lost in each event, and the flight at its first. An event ends when nothing is lost for a round trip and a half.
    pub fn loss_events(&self) -> Vec<(u64, u64)> {
        let of = |event: &[LostSegment]| Some((event.len() as u64, event.first()?.flight));
        self.losses_by_event().filter_map(of).collect()
    }

    fn losses_by_event(&self) -> impl Iterator<Item = &[LostSegment]> {
        self.losses.chunk_by(|a, b| self.is_one_event(a, b))
    }

    /// Two losses that follow each other are of one loss event.
    pub fn is_one_event(&self, a: &LostSegment, b: &LostSegment) -> bool {
        b.at.since(a.at).0 <= self.rtt().0 * 3 / 2
    }

    /// Retransmissions by all segments.
    pub fn loss_share(&self) -> f64 {
        self.retransmitted as f64 / self.segments.max(1) as f64
    }

    /// Round-trip time at the losses by the shortest: the median of the loss events, each by its own median.
    pub fn inflation_at_loss(&self) -> Option<f64> {
        once(&self.derived.inflation_at_loss, || {
            let min = self.min_rtt.filter(|m| m.0 > 0)?.0 as f64;
            let of = |losses: &[LostSegment]| {
                let known = losses.iter().map(|l| l.srtt.0).filter(|rtt| *rtt > 0);
                median(known.map(|rtt| rtt as f64 / min))
            };
            median(self.losses_by_event().filter_map(of))
        })
    }

    /// Whether a queue had filled when segments were lost: the round trip was so much longer than the shortest, by more than a
    /// few segments take.
    pub fn queue_at_loss(&self, factor: f64) -> bool {
        let long = self.inflation_at_loss();
        long.is_some_and(|ratio| self.is_queue(ratio, factor))
            && self.few_queued_at_loss().is_none()
    }

    /// What shows that no queue had filled when segments were lost, the round trip being so many shortest ones then.
    pub fn no_queue_at_loss(&self, at_loss: f64, factor: f64) -> Evidence {
        let short = self
            .evidence(EvidenceKey::RttOverMinRttAtLosses, at_loss)
            .at_most(self.queue_from(factor));
        match self.few_queued_at_loss() {
            Some(few) if self.is_queue(at_loss, factor) => few,
            _ => short,
        }
    }

    /// Fewer segments than a queue that overflows holds, at the fastest goodput: what waits for timers, or for the end of a
    /// recovery, lengthens round trips as well. Packets show a queue by themselves.
    fn few_queued_at_loss(&self) -> Option<Evidence> {
        if !self.is_sampled() {
            return None;
        }
        let fastest = self.rate() / self.goodput_by_peak().unwrap_or(1.0);
        let held = self.queued_at_loss(fastest)?;
        let evidence = self.evidence(EvidenceKey::SegmentsQueuedAtLosses, held);
        (held < OVERFLOWS).then(|| evidence.at_most(OVERFLOWS))
    }

    /// Segments that the delay at the losses holds at this rate, in bytes a second.
    pub fn queued_at_loss(&self, rate: f64) -> Option<f64> {
        Some(rate * self.delay_at_loss()?.as_secs_f64() / f64::from(self.mss.max(1)))
    }

    /// Retransmissions that are known to have been needless. More duplicates than retransmissions: the path duplicates
    /// packets, and the number is no evidence.
    pub fn known_needless(&self) -> u64 {
        match self.needless > self.retransmitted {
            true => 0,
            false => self.needless,
        }
    }

    /// Retransmissions that are not known to have been needless.
    pub fn lost(&self) -> u64 {
        self.retransmitted - self.known_needless()
    }

    /// The queue is on the way of the data: timestamps or both ends show it, or it lost or marked data.
    pub fn has_forward_queue(&self) -> bool {
        let by_delay = self.reverse_queueing.is_some_and(|way| !way.is_most());
        let overflowed = self.lost() >= FEWEST_LOST && self.queue_at_loss(QUEUE);
        by_delay || overflowed || self.marked > 0
    }

    /// Most of the time the standing queue is longer than a small window makes for itself.
    pub fn has_long_queue(&self) -> bool {
        self.has_queue(LONG_QUEUE)
    }

    /// Most of the time there is a standing queue, where this factor would show it.
    pub fn has_queue(&self, factor: f64) -> bool {
        let inflation = self.inflation();
        inflation.is_some_and(|ratio| self.is_queue(ratio, factor))
    }

    /// Whether a round trip of so many shortest ones shows a queue, where `factor` would.
    pub fn is_queue(&self, ratio: f64, factor: f64) -> bool {
        ratio >= self.queue_from(factor)
    }

    /// Round trip by the shortest from which it shows a queue, where `factor` would on a path without noise.
    pub fn queue_from(&self, factor: f64) -> f64 {
        let noise = 1.0 + NOISE.0 as f64 / self.rtt().0.max(1) as f64;
        factor.max(noise.min(NOISE_AT_MOST))
    }

    /// Median time in queues at the losses.
    pub fn delay_at_loss(&self) -> Option<Nanos> {
        once(&self.derived.delay_at_loss, || {
            let min = self.min_rtt?;
            let seen = self.losses.iter().filter(|l| l.srtt.0 > 0);
            median(seen.map(|l| l.srtt.since(min).0 as f64)).map(|ns| Nanos(ns as u64))
        })
    }

    /// The sender saw more reordering than it retransmitted: lost segments are hardly distinguishable from late ones.
    pub fn reorders(&self) -> bool {
        self.reordered >= MUCH_REORDERING && self.reordered > self.retransmitted
    }

    /// Losses were seen, other than in an outage, and hold this congestion control back: BBR looks at rates and lets a loss of
    /// some per cent pass (it takes 15 % and more in its first version).
    pub fn loss_hurts(&self) -> bool {
        let lossy =
            self.retransmitted >= FEWEST_LOST && (!self.is_bbr() || self.loss_share() > 0.15);
        lossy && (!self.has_outage() || self.loses_besides())
    }

    /// Whether segments were lost at other times than in a row of timeouts, of which each is a loss event.
    pub fn loses_besides(&self) -> bool {
        self.loss_events().len() as u64 >= u64::from(self.backoffs) + FEWEST_LOST
    }

    /// The same in the round trips that it had, for so many losses.
    pub fn loss_limited_rate(&self, losses: u64) -> Option<f64> {
        Some(self.mathis_of(losses)? / self.inflation()?.max(1.0))
    }

    /// From afar, where a short queue is not seen at the losses: the rate that they allow a sender which yields to them, if
    /// that is so much more than flowed that its round trips must have been longer than the shortest. Empty queues leave it
    /// 0.7 of that.
    pub fn loss_allows_more(&self) -> Option<f64> {
        let yields = self.loss_hurts() && self.is_seen_from_afar() && self.timeouts < FEWEST_LOST;
        let allowed = self.mathis().filter(|_| yields)?;
        (allowed >= ALLOWS_MORE * self.rate()).then_some(allowed)
    }

    /// The rate that a loss-based sender of this loss and round trip can reach, in bytes a second
    /// (Mathis, Semke, Mahdavi, Ott 1997: MSS/RTT x 1.22/sqrt(p)).
    pub fn mathis(&self) -> Option<f64> {
        self.mathis_of(self.retransmitted)
    }

    /// The same for so many losses: segments, or loss events where they come in runs.
    fn mathis_of(&self, losses: u64) -> Option<f64> {
        let share = losses as f64 / self.segments.max(1) as f64;
        let rtt = self.rtt().as_secs_f64();
        (share > 0.0 && rtt > 0.0).then(|| f64::from(self.mss) / rtt * 1.22 / share.sqrt())
    }
}

/// Adds a reading; joins neighbours when there are too many.
pub(crate) fn keep(readings: &mut Vec<SenderInterval>, reading: SenderInterval) {
    readings.push(reading);
    if readings.len() >= MOST_READINGS {
        *readings = readings.chunks(2).map(joined).collect();
    }
}

/// One reading of two neighbours.
fn joined(pair: &[SenderInterval]) -> SenderInterval {
    let [a, b] = pair else { return pair[0] };
    let half = |x: u64, y: u64| x / 2 + y / 2;
    SenderInterval {
        from: a.from,
        to: b.to,
        srtt: Nanos(half(a.srtt.0, b.srtt.0)),
        cwnd: half(a.cwnd, b.cwnd),
        flight: half(a.flight, b.flight),
        window: half(a.window, b.window),
        delivered: a.delivered + b.delivered,
        passed: a.passed + b.passed,
        retransmitted: a.retransmitted + b.retransmitted,
        limit: b.limit,
        echo: Nanos(half(a.echo.0, b.echo.0)),
        late: Nanos(half(a.late.0, b.late.0)),
        unread: a
            .unread
            .zip(b.unread)
            .map(|(x, y)| (x + y) / 2.0)
            .or(b.unread),
    }
}

/// Half the span between the quartiles, by the median.
pub(crate) fn quartile_spread(values: &mut [f64]) -> Option<f64> {
    let mut at = |share| percentile(values, share);
    let (low, middle, high) = (at(0.25)?, at(0.5)?, at(0.75)?);
    (middle > 0.0).then(|| (high - low) / 2.0 / middle)
}

/// Bytes a second as a rate.
pub(crate) fn bit_rate(bytes_per_s: f64) -> BitRate {
    BitRate((bytes_per_s * 8.0) as u64)
}

#[cfg(test)]
pub(crate) mod tests;
