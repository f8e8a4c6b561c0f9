//! Evidence of a finding: numbers with their unit, threshold and source.

use crate::finding::Source;
use crate::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

macro_rules! keys {
    ($(
        $(#[doc = $doc:literal])* $name:ident: $unit:ident $(, $origin:ident)?,
        $label:literal $(, >= $at_least:literal)? $(, <= $at_most:literal)?;
    )*) => {
        /// Which fact it is. The set is closed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum EvidenceKey { $($(#[doc = $doc])* $name,)* }

        impl EvidenceKey {
            /// Every key.
            pub const ALL: &[EvidenceKey] = &[$(EvidenceKey::$name,)*];

            /// Unit of its quantity.
            pub fn unit(self) -> Unit {
                match self { $(EvidenceKey::$name => Unit::$unit,)* }
            }

            /// What it is, in a sentence or two.
            pub fn doc(self) -> &'static str {
                match self { $(EvidenceKey::$name => concat!($($doc),*).trim_ascii(),)* }
            }

            /// What it is called in a line.
            pub fn label(self) -> &'static str {
                match self { $(EvidenceKey::$name => $label,)* }
            }

            /// What meeting a threshold means; empty where the label says it.
            pub fn meaning(self, threshold: Threshold) -> &'static str {
                let [at_least, at_most] = match self {
                    $(EvidenceKey::$name => [concat!("" $(, $at_least)?), concat!("" $(, $at_most)?)],)*
                };
                match threshold {
                    Threshold::AtLeast(_) => at_least,
                    Threshold::AtMost(_) => at_most,
                }
            }

            /// Where it comes from, unless from whatever the explanation was drawn from.
            fn origin(self) -> Option<EvidenceSource> {
                match self { $(EvidenceKey::$name => [$(EvidenceSource::$origin)?].first().copied(),)* }
            }
        }
    };
}

// A key's unit, its source where that is always the same, its label, and what a value from a threshold on (`>=`) or up
// to one (`<=`) means.
keys! {
    // ---- rate ----
    /// Goodput, median over stretches of at least ten round trips; of a short transfer its mean.
    Goodput: BitRate, "goodput";
    /// Goodput of the same run in the other direction.
    OtherDirectionGoodput: BitRate, "goodput in the other direction", >= "5 times this one";
    /// Half the interquartile range of the goodput, by its median. A rate within 10 % is flat.
    GoodputSpread: Share, "goodput, half of its interquartile range", <= "flat";
    /// Goodput while a queue stood, by the goodput of all of the transfer: more was offered, and no more arrived.
    QueuedGoodputOverGoodput: Ratio, "goodput with a standing queue, by that without",
        <= "a queue adds no goodput";
    /// Goodput of the burst before a shaper's bucket was empty.
    BurstGoodput: BitRate, "goodput of the burst", >= "1.25 times the later goodput";
    /// Bytes of that burst beyond what the later rate carries.
    BurstExcess: Bytes, "bytes of the burst above the later goodput";
    /// What the slowest link carries, by packets that arrived one right behind the other.
    Capacity: BitRate, "rate of packets that arrived one right behind the other";
    /// Goodput by that.
    GoodputOverCapacity: Ratio, "goodput by the rate of such packets", >= "the slowest link is full";
    /// Speed of the slower of both hosts' devices.
    DeviceSpeed: BitRate, Settings, "speed of the slower device";
    /// What BBR offers in one of eight round trips, by its estimate of the bottleneck's rate.
    BbrProbeGain: Ratio, Settings, "rate that BBR probes for every 8 RTTs, by the rate that it gets";

    // ---- round-trip time ----
    /// Shortest RTT.
    MinRtt: Time, "shortest RTT";
    /// Smoothed RTT by the shortest, median.
    RttOverMinRtt: Ratio, "RTT by the shortest, median", >= "standing queue";
    /// Smoothed RTT by the shortest, median of the moments at which segments were lost.
    RttOverMinRttAtLosses: Ratio, "RTT by the shortest, at losses",
        >= "a queue overflowed", <= "no queue had filled";
    /// Segments that the delay of the smoothed RTT holds at the fastest goodput, median of the same moments.
    SegmentsQueuedAtLosses: Ratio, "segments in a queue, at losses", <= "too few for one that overflows";
    /// Smoothed RTT above the shortest, median: queueing delay, or delay of acknowledgements.
    RttAboveMinRtt: Time, "RTT above the shortest, median", >= "more than the path needs";
    /// Queueing delay of acknowledgements on the reverse path (mean, by timestamps), of all queueing delay.
    AckQueueingDelay: Time, "queueing delay of ACKs, of the whole queueing delay",
        >= "the queue is on the reverse path", <= "the queue is on the forward path";
    /// The same at the moments at which segments were lost.
    RttAboveMinRttAtLosses: Time, "RTT above the shortest, at losses", <= "a queue would add more";

    // ---- windows ----
    /// Congestion window, median.
    Cwnd: Bytes, "congestion window, median", <= "a single segment";
    /// Largest congestion window less its lower decile; 0: it never moves.
    CwndRange: Bytes, "range of the congestion window", <= "it never moves";
    /// Congestion window by the bandwidth-delay product of goodput and shortest RTT.
    CwndOverBdp: Ratio, "congestion window by the BDP", >= "the window has room";
    /// Congestion window, or what was in flight, in the last fifth of the time behind the last loss by that in the first fifth.
    WindowSinceLoss: Ratio, "window at the end by that behind the last loss", >= "it grew all the time";
    /// Congestion control of the sender.
    CongestionControl: Name, Settings, "congestion control";
    /// Congestion window before it was reduced.
    CwndBeforeCut: Bytes, "congestion window before the reduction";
    /// Congestion window after it was reduced. A fast retransmit sets it to ssthresh and 3 segments (RFC 5681, 3.2).
    CwndAfterCut: Bytes, "congestion window after the reduction", <= "ssthresh and 3 segments: fast retransmit";
    /// Slow-start threshold after the reduction: half of what was in flight.
    SsthreshAfterCut: Bytes, "ssthresh after the reduction";
    /// Bytes in flight before the reduction.
    InFlightBeforeCut: Bytes, "in flight before the reduction";
    /// Congestion window at the first line of a listing.
    CwndFirst: Bytes, "congestion window, first";
    /// Congestion window at the last line of a listing.
    CwndLast: Bytes, "congestion window, last";
    /// Most bytes in flight.
    MostInFlight: Bytes, "in flight, at the most", <= "a single segment";
    /// Half the interquartile range of the bytes in flight, by their median.
    InFlightSpread: Share, "in flight, half of its interquartile range",
        <= "the sender holds it, without loss or queue";
    /// Half the interquartile range of the bytes in flight at losses, by their median.
    /// Up to 12 %: the same window each time; from 20 %: any window.
    InFlightSpreadAtLosses: Share, "in flight at losses, half of its interquartile range",
        >= "any window", <= "the same window each time";
    /// Receive window, median; of a listing, its last.
    ReceiveWindow: Bytes, "receive window";
    /// Receive window, lower quartile.
    ReceiveWindowLowerQuartile: Bytes, "receive window, lower quartile", <= "it closes and opens";
    /// Receive window below its largest so far, mean of time.
    WindowBelowLargest: Share, "receive window below its largest so far, mean", >= "data wait to be read";
    /// Receive window, largest.
    ReceiveWindowMax: Bytes, "receive window, largest";
    /// Bytes in flight by the receive window, median.
    InFlightOverReceiveWindow: Ratio, "in flight by the receive window, median", >= "full";
    /// Rate that one receive window in each shortest RTT carries.
    ReceiveWindowRate: BitRate, "rate of one receive window in each RTT", >= "more than flowed";
    /// A receive window that was too small for one segment.
    ZeroWindow: Bytes, "advertised window", <= "less than a segment";
    /// Longest time for which the receive window was too small for one segment.
    ZeroWindowLongest: Time, "longest zero window", >= "the reader is behind";
    /// Time for which the receiver advertised less than one segment.
    ZeroWindowTime: Time, "time with a zero window";
    /// `SO_SNDBUF` in the kernel, twice the requested size.
    SendBuffer: Bytes, Settings, "send buffer (SO_SNDBUF, twice what was asked for)";
    /// Rate that half a send buffer in each shortest RTT carries: the other half is overhead at the most.
    SendBufferRate: BitRate, "rate of half a send buffer in each RTT", >= "more than flowed";
    /// `SO_RCVBUF` in the kernel at its largest; twice the requested size.
    ReceiveBuffer: Bytes, Settings, "receive buffer (SO_RCVBUF, twice what was asked for)";
    /// `SO_RCVBUF` when the first data arrived.
    ReceiveBufferFirst: Bytes, Settings, "receive buffer at first";

    // ---- losses ----
    /// Retransmitted segments, of all data segments.
    RetransmittedSegments: Count, "retransmitted segments", <= "too few to be the cause";
    /// Retransmitted SYNs.
    RetransmittedSyns: Count, "retransmitted SYNs";
    /// Retransmission timeouts.
    RetransmissionTimeouts: Count, "retransmission timeouts";
    /// Most retransmission timeouts in a row. Four and more: nothing passed at all.
    ConsecutiveTimeouts: Count, "retransmission timeouts in a row", >= "nothing passes at all";
    /// Mean goodput by its median, behind slow start.
    MeanGoodputOverMedian: Ratio, "mean goodput by its median", <= "slower after losses";
    /// Goodput by that of its fastest tenth, over stretches of 30 segments and more.
    GoodputOverPeak: Ratio, "goodput by its fastest tenth", >= "never faster";
    /// Goodput by the rate of the queue or token bucket that explains the losses.
    GoodputOverBucketRate: Ratio, "goodput by that rate", >= "the path was well used";
    /// Lost segments that were judged.
    Losses: Count, "losses";
    /// Retransmissions that the receiver did not need (DSACK, or both captures), of all retransmissions.
    NeedlessRetransmissions: Count, "needless retransmissions", >= "reordering, not loss";
    /// Times that the sender noticed reordering.
    ReorderingEvents: Count, "reordering events", >= "the path reorders";
    /// Segments delivered with an ECN mark, of all data segments.
    EcnMarkedSegments: Count, "segments with an ECN mark", >= "the path marks";
    /// Segments lost in one event by the number that random loss gives. Up to 1.3: one by one;
    /// from 1.45: something overflows.
    LossRunOverRandom: Ratio, "segments lost together, by random loss",
        >= "something overflows", <= "one by one";
    /// Loss events that this rests on.
    LossEvents: Count, "loss events";
    /// Place of lost segments in their bursts, median: 0 first, 0.5 anywhere, 1 last.
    LossPositionInBurst: Ratio, "place of lost segments in their bursts, median",
        >= "at the end; 0.5 is anywhere";
    /// How well a queue or a token bucket separates lost from delivered segments: 0 like random loss, 1 without exception.
    LossSeparation: Ratio, "how well a queue or token bucket separates lost from delivered",
        >= "it is what loses", <= "neither loses them";
    /// Rate that drains that queue, or refills that bucket.
    BucketRate: BitRate, "rate that drains it";
    /// Lowest of the rates that fit about as well, where they differ by more than 5 %.
    LowestBucketRate: BitRate, "rate that drains it, lowest that fits";
    /// Highest of these rates.
    HighestBucketRate: BitRate, "rate that drains it, highest that fits";
    /// Connections to the same destination that share it; the proposed pace is that of each.
    BucketConnections: Count, "connections that share it";
    /// Bytes that it holds.
    BucketDepth: Bytes, "its size";
    /// Time that it takes to drain: the delay that it adds if it is a queue.
    BucketDrainTime: Time, "delay that it adds as a queue";
    /// Losses at which the bucket of a policer was empty, of all losses.
    LossesAtEmptyBucket: Share, "losses at an empty token bucket", >= "a policer drops them";
    /// Rate that this loss and the shortest RTT allow: MSS/RTT x 1.22/sqrt(p) (Mathis, Semke, Mahdavi, Ott 1997).
    LossLimitedRate: BitRate, "rate that this loss allows (MSS/RTT x 1.22/sqrt(p))";
    /// The same with an MSS of 8948 bytes.
    LossLimitedRateJumbo: BitRate, "the same with an MSS of 8948";
    /// The same at half the RTT.
    LossLimitedRateHalfRtt: BitRate, "the same at half the RTT";
    /// Payload of a segment that was retransmitted and never acknowledged.
    VanishedSegment: Bytes, "segment that is never acknowledged", >= "larger than all that pass";
    /// Payload of the largest segment that was acknowledged.
    LargestDelivered: Bytes, "largest acknowledged segment";

    // ---- duplex ----
    /// Late collisions of the sender's device.
    SenderLateCollisions: Count, Counters, "late collisions at the sender";
    /// Late collisions of the receiver's device.
    ReceiverLateCollisions: Count, Counters, "late collisions at the receiver";
    /// Damaged frames that the sender's device received.
    SenderDamagedFrames: Count, Counters, "damaged frames at the sender";
    /// Damaged frames that the receiver's device received.
    ReceiverDamagedFrames: Count, Counters, "damaged frames at the receiver";
    /// Duplex of a device.
    Duplex: Name, Settings, "duplex";

    // ---- waits ----
    /// Short segments that waited for an acknowledgement (Nagle's algorithm).
    NagleWaits: Count, "short segments that waited for an acknowledgement";
    /// Waits that outlast the RTT by a delayed acknowledgement (15 ms or more), of all waits.
    DelayedAckWaits: Count, "waits for a delayed ACK", >= "one in five";
    /// Time in these waits.
    DelayedAckTime: Time, "time in them", >= "a quarter of the time";
    /// Single segments in flight whose acknowledgement outlasts the RTT by 15 ms or more, of all of them.
    SingleSegmentWaits: Count, "single segments that waited for a delayed ACK";
    /// Time for which the receiver held back acknowledgements of three full segments and more.
    HeldAckTime: Time, "time in which the receiver held back ACKs of many segments",
        >= "its application does not read";
    /// Bursts of new data that did not follow an acknowledgement within a millisecond, of all of them.
    SelfClockedSends: Share, "bursts that left without an ACK before them",
        >= "a clock, not ACKs, releases segments";
    /// Round trips in half of which nothing was sent.
    PausedRtts: Share, "RTTs in half of which nothing was sent", <= "a clock, not ACKs, releases segments";
    /// Round trips in which less than half of what the path holds was in flight.
    DrainedRtts: Share, "RTTs in which the path ran half empty", >= "the sender did not send, though it could";
    /// Pacing rate that was set (`SO_MAX_PACING_RATE`).
    PacingRate: BitRate, Settings, "pacing rate that was set (SO_MAX_PACING_RATE)";
    /// Mean time of a segment below TCP, between its timestamp and its capture.
    TimeBelowTcp: Time, "time of a segment below TCP, mean", >= "it waits in the device";
    /// At the receiver: least time of a round trip by which data come later than their timestamps, above the least of all, median.
    StandingQueue: Time, "queueing delay of the fastest data of each RTT, median", >= "the queue never empties";
    /// Time of pauses after segments that were not full, of all pauses of a millisecond and more: what was written had an end there.
    PausesAfterShortSegments: Share, "pauses after segments that were not full", <= "more had been written";
    /// Half the span from the first to the last decile of the time from one small burst to the next, by its median, at the receiver.
    BurstSpread: Ratio, "spread of the time from burst to burst, of its median", <= "a clock lets them go";

    // ---- processes ----
    /// Processors that the sending process used.
    SenderProcessCpu: Cpus, Counters, "processors of the sending process",
        >= "a full processor", <= "not the processor";
    /// Load of all processors of the sending host.
    SenderHostCpu: Share, Counters, "load of the sending host", >= "a full host";
    /// Load of the sending host's busiest processor.
    SenderBusiestProcessor: Share, Counters, "load of the sending host's busiest processor",
        >= "a full processor";
    /// Processors that the receiving process used.
    ReceiverProcessCpu: Cpus, Counters, "processors of the receiving process", >= "a full processor";
    /// Load of all processors of the receiving host.
    ReceiverHostCpu: Share, Counters, "load of the receiving host", >= "a full host";
    /// Load of the receiving host's busiest processor.
    ReceiverBusiestProcessor: Share, Counters, "load of the receiving host's busiest processor",
        >= "a full processor";
    /// Processors that both processes used, on the one machine that has both.
    BothProcessesCpu: Cpus, Counters, "processors of both processes, on one machine",
        >= "most of one processor";
    /// Time of which the next four are shares: the process held the connection up, and was sampled.
    ProcessTime: Time, Process, "time in which the process was observed";
    /// The process ran on a processor.
    ProcessRunning: Share, Process, "running";
    /// The process was ready to run, without a processor.
    ProcessReady: Share, Process, "ready, without a processor";
    /// The process waited for a disk.
    ProcessDiskWait: Share, Process, "waiting for a disk";
    /// The process slept.
    ProcessAsleep: Share, Process, "asleep";
    /// Kernel function in which the process waited longest.
    WaitFunction: Name, Process, "waiting in";
    /// Bytes that the process read from and wrote to storage.
    StorageBytes: Bytes, Process, "read from and written to storage";
    /// Unread data by the receive buffer, mean while the receive window was the limit; else of all the time.
    UnreadData: Share, "unread data by the receive buffer", >= "the reader is behind";

    // ---- copies ----
    /// The source's storage was at work.
    SourceBusy: Share, Rings, "the source's storage was reading", >= "busier than all else";
    /// The sink's storage was at work, fsync included.
    SinkBusy: Share, Rings, "the sink's storage was writing", >= "busier than all else";
    /// Rate of that storage while it was at work.
    StorageRate: BitRate, Rings, "its rate in that time";
    /// The sender's ring was empty.
    SenderRingEmpty: Share, Rings, "empty ring of the sender";
    /// The receiver's ring was full.
    ReceiverRingFull: Share, Rings, "full ring of the receiver";
    /// The source's share in the page cache before the copy.
    SourceCached: Share, Rings, "source in the page cache before";
    /// The fsync at the end.
    FsyncTime: Time, Rings, "fsync at the end";

    // ---- listings ----
    /// Segments that left while the bytes in flight did not grow: retransmissions.
    SegmentsWithoutGrowth: Count, "segments sent while nothing more was in flight";
    /// Acknowledgements of nothing new: each reports a segment behind a missing one.
    DuplicateAcks: Count, "duplicate acknowledgements";
    /// Long waits for an acknowledgement.
    AckWaits: Count, "long waits for an acknowledgement";
    /// Data segments that were sent.
    SentSegments: Count, "segments sent";
    /// Time from one segment to the next, median.
    SegmentGap: Time, "time from one segment to the next, median";
    /// Full segments from one acknowledgement to the next, largest. A receiver acknowledges at least every second
    /// segment (RFC 5681, 4.2), or a whole burst at once.
    SegmentsPerAck: Count, "full segments for one acknowledgement, largest (a consequence)";
    /// Replies to received data.
    Replies: Count, "replies";
    /// Time to such a reply, median.
    ReplyTime: Time, "time to a reply, median";
    /// Time before the last acknowledgement, which the peer delayed (RFC 1122, 4.2.3.2).
    LastAckDelay: Time, "time before the last acknowledgement", >= "delayed, nothing more to send";

    // ---- two places ----
    /// Bytes that passed the first place and never the second, of all bytes.
    UndeliveredBytes: Bytes, "sent and never delivered";
    /// Acknowledgements without data, by the sender of data that never came, with later sequence numbers than those.
    AcksAheadOfData: Count, "acknowledgements that came after them", >= "only packets without data pass";
    /// Forward one-way delay above the smallest, median.
    ForwardDelayMedian: Time, "forward queueing delay, median";
    /// Forward one-way delay above the smallest, largest.
    ForwardDelayMax: Time, "forward queueing delay, largest";
    /// Reverse one-way delay above the smallest, median.
    ReverseDelayMedian: Time, "reverse queueing delay, median";
    /// Reverse one-way delay above the smallest, largest.
    ReverseDelayMax: Time, "reverse queueing delay, largest";
    /// Time for which the receiver held acknowledgements, median.
    AckDelayMedian: Time, "delay of ACKs at the receiver, median";
    /// Time for which the receiver held acknowledgements, largest.
    AckDelayMax: Time, "delay of ACKs at the receiver, largest";
    /// Acknowledgements held for 15 ms or more, of all.
    DelayedAcks: Count, "delayed ACKs";
}

macro_rules! units {
    ($($(#[$doc:meta])* $unit:ident($value:ty) = $name:literal;)*) => {
        /// Unit of a quantity.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Unit { $($(#[$doc])* $unit,)* }

        impl Unit {
            /// Its name in JSON.
            pub fn name(self) -> &'static str {
                [$($name),*][self as usize]
            }
        }

        /// A number with its unit.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "unit", content = "value")]
        pub enum Quantity { $($(#[$doc])* #[serde(rename = $name)] $unit($value),)* }

        impl Quantity {
            /// Its unit.
            pub fn unit(&self) -> Unit {
                match self { $(Quantity::$unit(_) => Unit::$unit,)* }
            }
        }
    };
}

units! {
    /// A count.
    Count(u64) = "count";
    /// An amount of data.
    Bytes(Bytes) = "bytes";
    /// A time in nanoseconds.
    Time(Nanos) = "ns";
    /// A rate in bit/s.
    BitRate(BitRate) = "bit_s";
    /// A ratio.
    Ratio(f64) = "ratio";
    /// A share, 0 to 1.
    Share(f64) = "share";
    /// Processors: 1 is one.
    Cpus(f64) = "cpus";
    /// A word instead of a number.
    Name(String) = "name";
}

impl Quantity {
    /// Its number; `None` of a name.
    pub fn number(&self) -> Option<f64> {
        match self {
            Quantity::Count(n) | Quantity::Bytes(Bytes(n)) => Some(*n as f64),
            Quantity::Time(Nanos(n)) | Quantity::BitRate(BitRate(n)) => Some(*n as f64),
            Quantity::Ratio(x) | Quantity::Share(x) | Quantity::Cpus(x) => Some(*x),
            Quantity::Name(_) => None,
        }
    }

    /// A number of this unit; what has no fraction is rounded. A name stays what it is.
    #[must_use]
    pub fn with(&self, number: f64) -> Quantity {
        let whole = number.round() as u64;
        match self {
            Quantity::Count(_) => Quantity::Count(whole),
            Quantity::Bytes(_) => Quantity::Bytes(Bytes(whole)),
            Quantity::Time(_) => Quantity::Time(Nanos(whole)),
            Quantity::BitRate(_) => Quantity::BitRate(BitRate(whole)),
            Quantity::Ratio(_) => Quantity::Ratio(number),
            Quantity::Share(_) => Quantity::Share(number),
            Quantity::Cpus(_) => Quantity::Cpus(number),
            Quantity::Name(name) => Quantity::Name(name.clone()),
        }
    }
}

macro_rules! quantities {
    ($($from:ty => $unit:ident($value:ident) $as:expr;)*) => {$(
        impl From<$from> for Quantity {
            fn from($value: $from) -> Quantity {
                Quantity::$unit($as)
            }
        }
    )*};
}
quantities! {
    u64 => Count(n) n;
    u32 => Count(n) n.into();
    usize => Count(n) n as u64;
    Bytes => Bytes(b) b;
    Nanos => Time(t) t;
    BitRate => BitRate(r) r;
    f64 => Ratio(x) x;
    &str => Name(n) n.to_owned();
}

/// What a quantity is judged by, in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// This or more supports the finding.
    AtLeast(f64),
    /// This or less supports the finding.
    AtMost(f64),
}

/// Where a fact comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
    /// TCP_INFO, read periodically.
    Samples,
    /// Segments with the socket's state.
    Trace,
    /// Captured packets.
    Capture,
    /// Lines that `tcp.d` of DTrace printed.
    Listing,
    /// Options of the socket, settings of the host and its devices.
    Settings,
    /// Counters of processors and devices.
    Counters,
    /// What the process did, sampled.
    Process,
    /// The rings of a copy between storage and network.
    Rings,
}

impl From<Source> for EvidenceSource {
    fn from(source: Source) -> EvidenceSource {
        match source {
            Source::Samples => EvidenceSource::Samples,
            Source::Trace | Source::TraceOfBothEnds | Source::TraceAtReceiver => {
                EvidenceSource::Trace
            }
            Source::PacketsAndSamples
            | Source::CaptureAtSender
            | Source::CaptureAtReceiver
            | Source::CaptureBetween
            | Source::CaptureSomewhere
            | Source::CapturesAtTwoPlaces => EvidenceSource::Capture,
            Source::Listing => EvidenceSource::Listing,
        }
    }
}

/// A fact that a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct Evidence {
    /// Which fact.
    pub key: EvidenceKey,
    /// Its value and unit.
    #[serde(flatten)]
    pub quantity: Quantity,
    /// The whole of which it is a part, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// What it is judged by; `None`: nothing, it is for the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Threshold>,
    /// Where it comes from.
    pub source: EvidenceSource,
    /// Device or process that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// When, since the start of the connection; null: all the time.
    #[serde(rename = "at_ns", default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Nanos>,
}

impl Evidence {
    /// A fact of a connection that was observed by `source`.
    pub fn new(key: EvidenceKey, quantity: impl Into<Quantity>, source: Source) -> Evidence {
        // A share and a number of processors are ratios too: the key decides.
        let quantity = match (quantity.into(), key.unit()) {
            (Quantity::Ratio(x), Unit::Share) => Quantity::Share(x),
            (Quantity::Ratio(x), Unit::Cpus) => Quantity::Cpus(x),
            (other, _) => other,
        };
        debug_assert_eq!(quantity.unit(), key.unit(), "{key:?}");
        Evidence {
            key,
            quantity,
            of: None,
            threshold: None,
            source: key.origin().unwrap_or_else(|| source.into()),
            subject: None,
            at: None,
        }
    }

    /// A part of this whole.
    pub fn of(mut self, whole: u64) -> Evidence {
        self.of = Some(whole);
        self
    }

    /// Judged: this or more.
    pub fn at_least(mut self, bound: f64) -> Evidence {
        self.threshold = Some(Threshold::AtLeast(bound));
        self
    }

    /// Judged: this or less.
    pub fn at_most(mut self, bound: f64) -> Evidence {
        self.threshold = Some(Threshold::AtMost(bound));
        self
    }

    /// Judged by this or more, where it is.
    pub fn if_at_least(self, bound: f64) -> Evidence {
        self.either(f64::NEG_INFINITY, bound)
    }

    /// Judged by this or less, where it is.
    pub fn if_at_most(self, bound: f64) -> Evidence {
        self.either(bound, f64::INFINITY)
    }

    /// Judged by whichever of both it meets, by neither if it lies between.
    pub fn either(self, at_most: f64, at_least: f64) -> Evidence {
        match self.quantity.number() {
            Some(x) if x <= at_most => self.at_most(at_most),
            Some(x) if x >= at_least => self.at_least(at_least),
            _ => self,
        }
    }

    /// At a moment.
    pub fn at(mut self, at: Nanos) -> Evidence {
        self.at = Some(at);
        self
    }

    /// About a device or a process.
    pub fn about(mut self, subject: impl Into<String>) -> Evidence {
        self.subject = Some(subject.into());
        self
    }

    /// It meets its threshold, or has none: evidence that does not hold refutes its own finding.
    pub fn holds(&self) -> bool {
        match (self.quantity.number(), self.threshold) {
            (Some(x), Some(Threshold::AtLeast(bound))) => x >= bound,
            (Some(x), Some(Threshold::AtMost(bound))) => x <= bound,
            (_, None) => true,
            (None, Some(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_in_json_is_a_number_with_its_unit() {
        let fact = Evidence::new(EvidenceKey::NagleWaits, 3u32, Source::Trace)
            .of(300)
            .at_least(2.0);
        let json = serde_json::to_string(&fact).unwrap();
        assert_eq!(
            json,
            r#"{"key":"nagle_waits","unit":"count","value":3,"of":300,"threshold":{"at_least":2.0},"source":"trace"}"#
        );
        assert_eq!(serde_json::from_str::<Evidence>(&json).unwrap(), fact);
        let busy = Evidence::new(EvidenceKey::SenderHostCpu, 0.5, Source::Trace);
        assert_eq!(busy.quantity, Quantity::Share(0.5));
        assert_eq!(busy.source, EvidenceSource::Counters);
        assert!(fact.holds() && !fact.at_most(1.0).holds());
    }

    #[test]
    fn units_have_one_name() {
        for quantity in [
            Quantity::Count(1),
            Quantity::Bytes(Bytes(1)),
            Quantity::Time(Nanos(1)),
            Quantity::BitRate(BitRate(1)),
            Quantity::Ratio(1.0),
            Quantity::Share(1.0),
            Quantity::Cpus(1.0),
            Quantity::Name("x".to_owned()),
        ] {
            let json = serde_json::to_value(&quantity).unwrap();
            assert_eq!(json["unit"], quantity.unit().name());
        }
    }
}
