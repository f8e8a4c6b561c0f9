//! Evidence in words: the only place that has them. A label for each key, and what meeting a threshold means.

use crate::words::{escape, escape_sentence, glue, grouped, percent};
use model::finding::{Evidence, EvidenceKey, Quantity, Threshold};

/// A label for each key, and what a value from a threshold on (`>=`) or up to one (`<=`) means, where the label does
/// not say it.
macro_rules! words {
    ($($key:ident $label:literal $(, >= $at_least:literal)? $(, <= $at_most:literal)?;)*) => {
        fn words(key: EvidenceKey) -> EvidenceWords {
            match key {
                $(EvidenceKey::$key => EvidenceWords {
                    label: $label,
                    at_least: concat!("" $(, $at_least)?),
                    at_most: concat!("" $(, $at_most)?),
                },)*
            }
        }
    };
}

struct EvidenceWords {
    label: &'static str,
    at_least: &'static str,
    at_most: &'static str,
}

words! {
    Goodput "goodput";
    GoodputSpread "goodput, half of its interquartile range", <= "flat";
    QueuedGoodputOverGoodput "goodput with a standing queue, by that without",
        <= "a queue adds no goodput";
    BurstGoodput "goodput of the burst", >= "1.25 times the later goodput";
    BurstExcess "bytes of the burst above the later goodput";
    Capacity "rate of packets that arrived one right behind the other";
    GoodputOverCapacity "goodput by the rate of such packets", >= "the slowest link is full";
    DeviceSpeed "speed of the slower device";
    BbrProbeGain "rate that BBR probes for every 8 RTTs, by the rate that it gets";
    MinRtt "shortest RTT";
    RttOverMinRtt "RTT by the shortest, median", >= "standing queue";
    RttOverMinRttAtLosses "RTT by the shortest, at losses",
        >= "a queue overflowed", <= "no queue had filled";
    RttAboveMinRtt "RTT above the shortest, median", >= "more than the path needs";
    RttAboveMinRttAtLosses "RTT above the shortest, at losses", <= "a queue would add more";
    Cwnd "congestion window, median", <= "a single segment";
    CwndRange "range of the congestion window", <= "it never moves";
    CwndOverBdp "congestion window by the BDP", >= "the window has room";
    CongestionControl "congestion control";
    CwndBeforeCut "congestion window before the reduction";
    CwndAfterCut "congestion window after the reduction",
        <= "ssthresh and 3 segments: fast retransmit";
    SsthreshAfterCut "ssthresh after the reduction";
    InFlightBeforeCut "in flight before the reduction";
    CwndFirst "congestion window, first";
    CwndLast "congestion window, last";
    InFlightSpread "in flight, half of its interquartile range",
        <= "the sender holds it, without loss or queue";
    InFlightSpreadAtLosses "in flight at losses, half of its interquartile range",
        >= "any window", <= "the same window each time";
    ReceiveWindow "receive window";
    ReceiveWindowLowerQuartile "receive window, lower quartile", <= "it closes and opens";
    WindowBelowLargest "receive window below its largest so far, mean", >= "data wait to be read";
    ReceiveWindowMax "receive window, largest";
    InFlightOverReceiveWindow "in flight by the receive window, median", >= "full";
    SendBufferRate "rate of half a send buffer in each RTT", >= "more than flowed";
    ReceiveWindowRate "rate of one receive window in each RTT", >= "more than flowed";
    ZeroWindow "advertised window", <= "less than a segment";
    ZeroWindowLongest "longest zero window", >= "the reader is behind";
    ZeroWindowTime "time with a zero window";
    SendBuffer "send buffer (SO_SNDBUF, twice what was asked for)";
    ReceiveBuffer "receive buffer (SO_RCVBUF, twice what was asked for)";
    ReceiveBufferFirst "receive buffer at first";
    RetransmittedSegments "retransmitted segments", <= "too few to be the cause";
    RetransmittedSyns "retransmitted SYNs";
    RetransmissionTimeouts "retransmission timeouts";
    ConsecutiveTimeouts "retransmission timeouts in a row", >= "nothing passes at all";
    Losses "losses";
    NeedlessRetransmissions "needless retransmissions", >= "reordering, not loss";
    ReorderingEvents "reordering events", >= "the path reorders";
    EcnMarkedSegments "segments with an ECN mark", >= "the path marks";
    LossRunOverRandom "segments lost together, by random loss",
        >= "something overflows", <= "one by one";
    LossEvents "loss events";
    LossPositionInBurst "place of lost segments in their bursts, median",
        >= "at the end; 0.5 is anywhere";
    LossSeparation "how well a queue or token bucket separates lost from delivered",
        >= "it is what loses", <= "neither loses them";
    BucketRate "rate that drains it";
    LowestBucketRate "rate that drains it, lowest that fits";
    HighestBucketRate "rate that drains it, highest that fits";
    BucketConnections "connections that share it";
    BucketDepth "its size";
    MeanGoodputOverMedian "mean goodput by its median", <= "slower after losses";
    GoodputOverPeak "goodput by its fastest tenth", >= "never faster";
    GoodputOverBucketRate "goodput by that rate", >= "the path was well used";
    BucketDrainTime "delay that it adds as a queue";
    LossesAtEmptyBucket "losses at an empty token bucket", >= "a policer drops them";
    LossLimitedRate "rate that this loss allows (MSS/RTT x 1.22/sqrt(p))";
    LossLimitedRateJumbo "the same with an MSS of 8948";
    LossLimitedRateHalfRtt "the same at half the RTT";
    VanishedSegment "segment that is never acknowledged", >= "larger than all that pass";
    LargestDelivered "largest acknowledged segment";
    SenderLateCollisions "late collisions at the sender";
    ReceiverLateCollisions "late collisions at the receiver";
    SenderDamagedFrames "damaged frames at the sender";
    ReceiverDamagedFrames "damaged frames at the receiver";
    Duplex "duplex";
    NagleWaits "short segments that waited for an acknowledgement";
    DelayedAckWaits "waits for a delayed ACK", >= "one in five";
    DelayedAckTime "time in them", >= "a quarter of the time";
    SingleSegmentWaits "single segments that waited for a delayed ACK";
    HeldAckTime "time in which the receiver held back ACKs of many segments",
        >= "its application does not read";
    SelfClockedSends "bursts that left without an ACK before them",
        >= "a clock, not ACKs, releases segments";
    PausedRtts "RTTs in half of which nothing was sent", <= "a clock, not ACKs, releases segments";
    DrainedRtts "RTTs in which the path ran half empty",
        >= "the sender did not send, though it could";
    PacingRate "pacing rate that was set (SO_MAX_PACING_RATE)";
    TimeBelowTcp "time of a segment below TCP, mean", >= "it waits in the device";
    StandingQueue "queueing delay of the fastest data of each RTT, median", >= "the queue never empties";
    BurstSpread "spread of the time from burst to burst, of its median", <= "a clock lets them go";
    SenderProcessCpu "processors of the sending process",
        >= "a full processor", <= "not the processor";
    SenderHostCpu "load of the sending host", >= "a full host";
    SenderBusiestProcessor "load of the sending host's busiest processor", >= "a full processor";
    ReceiverProcessCpu "processors of the receiving process", >= "a full processor";
    ReceiverHostCpu "load of the receiving host", >= "a full host";
    ReceiverBusiestProcessor "load of the receiving host's busiest processor", >= "a full processor";
    BothProcessesCpu "processors of both processes, on one machine", >= "most of one processor";
    ProcessTime "time in which the process was observed";
    ProcessRunning "running";
    ProcessReady "ready, without a processor";
    ProcessDiskWait "waiting for a disk";
    ProcessAsleep "asleep";
    WaitFunction "waiting in";
    StorageBytes "read from and written to storage";
    UnreadData "unread data by the receive buffer", >= "the reader is behind";
    SourceBusy "the source's storage was reading", >= "busier than all else";
    SinkBusy "the sink's storage was writing", >= "busier than all else";
    StorageRate "its rate in that time";
    SenderRingEmpty "empty ring of the sender";
    ReceiverRingFull "full ring of the receiver";
    SourceCached "source in the page cache before";
    FsyncTime "fsync at the end";
    SegmentsWithoutGrowth "segments sent while nothing more was in flight";
    DuplicateAcks "duplicate acknowledgements";
    AckWaits "long waits for an acknowledgement";
    SentSegments "segments sent";
    SegmentGap "time from one segment to the next, median";
    SegmentsPerAck "full segments for one acknowledgement, largest (a consequence)";
    Replies "replies";
    ReplyTime "time to a reply, median";
    LastAckDelay "time before the last acknowledgement", >= "delayed, nothing more to send";
    UndeliveredBytes "sent and never delivered";
    AcksAheadOfData "acknowledgements that came after them", >= "only packets without data pass";
    ForwardDelayMedian "forward queueing delay, median";
    ForwardDelayMax "forward queueing delay, largest";
    ReverseDelayMedian "reverse queueing delay, median";
    AckQueueingDelay "queueing delay of ACKs, of the whole queueing delay",
        >= "the queue is on the reverse path", <= "the queue is on the forward path";
    ReverseDelayMax "reverse queueing delay, largest";
    AckDelayMedian "delay of ACKs at the receiver, median";
    AckDelayMax "delay of ACKs at the receiver, largest";
    DelayedAcks "delayed ACKs";
}

/// A fact in one line: `RTT by the shortest, median: 3.45 (>= 1.25: standing queue)`.
pub(crate) fn line(fact: &Evidence) -> String {
    let words = words(fact.key);
    let subject = fact.subject.as_deref().map(|s| format!(" ({})", escape(s)));
    let at = fact.at.map(|at| format!(", at {}", glue(at)));
    let rule = fact.threshold.map(|threshold| {
        let (sign, bound, meaning) = match threshold {
            Threshold::AtLeast(bound) => (">=", bound, words.at_least),
            Threshold::AtMost(bound) => ("<=", bound, words.at_most),
        };
        let bound = glue(format!("{sign} {}", shown(&fact.quantity.with(bound))));
        match meaning {
            "" => format!(" ({bound})"),
            meaning => format!(" ({bound}: {meaning})"),
        }
    });
    format!(
        "{}{}: {}{}{}",
        words.label,
        subject.unwrap_or_default(),
        value(fact),
        at.unwrap_or_default(),
        rule.unwrap_or_default()
    )
}

/// The value, with its whole where it is a part.
fn value(fact: &Evidence) -> String {
    if fact.key == EvidenceKey::WaitFunction
        && let Quantity::Name(function) = &fact.quantity
    {
        return wait(&escape(function));
    }
    let part = glue(shown(&fact.quantity));
    let (Some(of), Some(number)) = (fact.of, fact.quantity.number()) else {
        return part;
    };
    let whole = glue(shown(&fact.quantity.with(of as f64)));
    let share = glue(percent(number / of.max(1) as f64));
    format!("{part} of {whole} ({share})")
}

fn shown(quantity: &Quantity) -> String {
    match quantity {
        Quantity::Count(n) => grouped(*n),
        Quantity::Bytes(bytes) => bytes.to_string(),
        Quantity::Time(time) => time.to_string(),
        // A window in an RTT of microseconds is a bound above every link, and no rate of anything.
        Quantity::BitRate(rate) if rate.0 >= FASTEST_LINK => "above every link".to_owned(),
        Quantity::BitRate(rate) => rate.to_string(),
        Quantity::Share(share) => percent(*share),
        Quantity::Ratio(x) | Quantity::Cpus(x) => format!("{x:.2}"),
        Quantity::Name(name) => escape_sentence(name),
    }
}

/// Rates from here on are of no link, in bit/s: Ethernet has 800 Gbit/s.
const FASTEST_LINK: u64 = 1_000_000_000_000;

/// A kernel function, with what it waits for where that is known.
fn wait(place: &str) -> String {
    let meaning = match place {
        p if p.contains("nanosleep") => "a timer of its own",
        p if p.contains("pipe") => "another process, by a pipe",
        p if p.contains("futex") => "another thread",
        p if p.contains("poll") || p.contains("select") => "whatever it polls for",
        p if p.contains("sk_wait") || p.contains("wait_woken") => "a socket",
        p if p.contains("io_schedule")
            || p.contains("blk")
            || p.contains("bio")
            || p.contains("dio") =>
        {
            "a disk"
        }
        p if p.contains("folio") || p.contains("page") => "the page cache: a disk",
        p if p.contains("wait4") || p == "do_wait" => "a child process",
        _ => return place.to_owned(),
    };
    format!("{place}: {meaning}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::Source;
    use model::{BitRate, Bytes, Nanos};

    fn of(key: EvidenceKey, quantity: impl Into<Quantity>) -> Evidence {
        Evidence::new(key, quantity, Source::Samples)
    }

    #[test]
    fn facts_in_words() {
        for (fact, expected) in [
            (
                of(EvidenceKey::RttOverMinRtt, 3.451).at_least(1.25),
                "RTT by the shortest, median: 3.45 (>= 1.25: standing queue)",
            ),
            (
                of(EvidenceKey::RetransmittedSegments, 1600_u64).of(390_000),
                "retransmitted segments: 1,600 of 390,000 (0.41 %)",
            ),
            (
                of(EvidenceKey::VanishedSegment, Bytes(1448)).at(Nanos::from_millis(12)),
                "segment that is never acknowledged: 1.41 KiB, at 12.0 ms",
            ),
            (
                of(EvidenceKey::ReceiveWindowRate, BitRate(52_700_000_000_000)),
                "rate of one receive window in each RTT: above every link",
            ),
            (
                of(EvidenceKey::Goodput, BitRate(943_000_000)).at_least(9e8),
                "goodput: 943 Mbit/s (>= 900 Mbit/s)",
            ),
            (
                of(EvidenceKey::Duplex, "half").about("eth0"),
                "duplex (eth0): half",
            ),
            (
                of(EvidenceKey::WaitFunction, "do_nanosleep"),
                "waiting in: do_nanosleep: a timer of its own",
            ),
        ] {
            assert_eq!(line(&fact).replace('\u{a0}', " "), expected);
        }
    }

    #[test]
    fn labels_are_short_and_differ() {
        let mut labels: Vec<_> = EvidenceKey::ALL.iter().map(|k| words(*k).label).collect();
        assert!(labels.iter().all(|l| l.len() <= 64), "{labels:?}");
        let count = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), count);
    }
}
