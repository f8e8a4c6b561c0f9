//! Evidence in words: the only place that has them. A label for each key, and what meeting a threshold means.

use crate::words::{escape, escape_sentence, glue, grouped, percent};
use model::finding::{Evidence, EvidenceKey, Quantity, Threshold};

/// A label, and what a value from a threshold on, or up to one, means; empty: the label says it.
struct Words {
    label: &'static str,
    at_least: &'static str,
    at_most: &'static str,
}

const fn label(label: &'static str) -> Words {
    Words {
        label,
        at_least: "",
        at_most: "",
    }
}

impl Words {
    const fn high(self, at_least: &'static str) -> Words {
        Words { at_least, ..self }
    }

    const fn low(self, at_most: &'static str) -> Words {
        Words { at_most, ..self }
    }
}

fn words(key: EvidenceKey) -> Words {
    use EvidenceKey::*;
    match key {
        Goodput => label("goodput"),
        GoodputSpread => label("goodput, half of its interquartile range").low("flat"),
        QueuedGoodputOverGoodput => {
            label("goodput while a queue stands, by that without").low("a queue adds no goodput")
        }
        BurstGoodput => label("goodput of the burst").high("1.25 times the later goodput"),
        BurstExcess => label("bytes of the burst above the later goodput"),
        DeviceSpeed => label("speed of the slower device"),
        BbrProbeGain => label("rate that BBR probes for every 8 RTTs, by the rate that it gets"),
        MinRtt => label("shortest RTT"),
        RttOverMinRtt => label("RTT by the shortest, median").high("standing queue"),
        RttOverMinRttAtLosses => label("RTT by the shortest, at losses")
            .high("a queue overflowed")
            .low("no queue had filled"),
        RttAboveMinRtt => label("RTT above the shortest, median").high("more than the path needs"),
        RttAboveMinRttAtLosses => {
            label("RTT above the shortest, at losses").low("a queue would add more")
        }
        Cwnd => label("congestion window, median").low("a single segment"),
        CwndRange => label("range of the congestion window").low("it never moves"),
        CwndOverBdp => label("congestion window by the BDP").high("the window has room"),
        CongestionControl => label("congestion control"),
        CwndBeforeCut => label("congestion window before the reduction"),
        CwndAfterCut => label("congestion window after the reduction")
            .low("ssthresh and 3 segments: fast retransmit"),
        SsthreshAfterCut => label("ssthresh after the reduction"),
        InFlightBeforeCut => label("in flight before the reduction"),
        CwndFirst => label("congestion window, first"),
        CwndLast => label("congestion window, last"),
        InFlightSpread => label("in flight, half of its interquartile range")
            .low("the sender holds it, without loss or queue"),
        InFlightSpreadAtLosses => label("in flight at losses, half of its interquartile range")
            .high("any window")
            .low("the same window each time"),
        ReceiveWindow => label("receive window"),
        ReceiveWindowLowerQuartile => {
            label("receive window, lower quartile").low("it closes and opens")
        }
        ReceiveWindowMax => label("receive window, largest"),
        InFlightOverReceiveWindow => label("in flight by the receive window, median").high("full"),
        ReceiveWindowRate => {
            label("rate of one receive window in each RTT").high("more than flowed")
        }
        ZeroWindow => label("advertised window").low("less than a segment"),
        ZeroWindowLongest => label("longest zero window").high("the reader is behind"),
        ZeroWindowTime => label("time with a zero window"),
        SendBuffer => label("send buffer (SO_SNDBUF, twice what was asked for)"),
        ReceiveBuffer => label("receive buffer (SO_RCVBUF, twice what was asked for)"),
        ReceiveBufferFirst => label("receive buffer at first"),
        RetransmittedSegments => label("retransmitted segments").low("too few to be the cause"),
        RetransmittedSyns => label("retransmitted SYNs"),
        RetransmissionTimeouts => label("retransmission timeouts"),
        ConsecutiveTimeouts => {
            label("retransmission timeouts in a row").high("nothing passes at all")
        }
        Losses => label("losses"),
        NeedlessRetransmissions => label("needless retransmissions").high("reordering, not loss"),
        ReorderingEvents => label("reordering events").high("the path reorders"),
        EcnMarkedSegments => label("segments with an ECN mark").high("the path marks"),
        LossRunOverRandom => label("segments lost together, by random loss")
            .high("something overflows")
            .low("one by one"),
        LossEvents => label("loss events"),
        LossPositionInBurst => label("place of lost segments in their bursts, median")
            .high("at the end; 0.5 is anywhere"),
        LossSeparation => label("how well a queue or token bucket separates lost from delivered")
            .high("it is what loses")
            .low("neither loses them"),
        BucketRate => label("rate that drains it"),
        LowestBucketRate => label("rate that drains it, lowest that fits"),
        HighestBucketRate => label("rate that drains it, highest that fits"),
        BucketConnections => label("connections that share it"),
        BucketDepth => label("its size"),
        MeanGoodputOverMedian => label("mean goodput by its median").low("slower after losses"),
        GoodputOverPeak => label("goodput by its fastest tenth").high("never faster"),
        GoodputOverBucketRate => label("goodput by that rate").high("the path was well used"),
        BucketDrainTime => label("delay that it adds as a queue"),
        LossesAtEmptyBucket => {
            label("losses at an empty token bucket").high("a policer drops them")
        }
        LossLimitedRate => label("rate that this loss allows (MSS/RTT x 1.22/sqrt(p))"),
        LossLimitedRateJumbo => label("the same with an MSS of 8948"),
        LossLimitedRateHalfRtt => label("the same at half the RTT"),
        VanishedSegment => {
            label("segment that is never acknowledged").high("larger than all that pass")
        }
        LargestDelivered => label("largest acknowledged segment"),
        SenderLateCollisions => label("late collisions at the sender"),
        ReceiverLateCollisions => label("late collisions at the receiver"),
        SenderDamagedFrames => label("damaged frames at the sender"),
        ReceiverDamagedFrames => label("damaged frames at the receiver"),
        Duplex => label("duplex"),
        NagleWaits => label("short segments that waited for an acknowledgement"),
        DelayedAckWaits => label("waits for a delayed ACK").high("one in five"),
        DelayedAckTime => label("time in them").high("a quarter of the time"),
        SingleSegmentWaits => label("single segments that waited for a delayed ACK"),
        PausedRtts => label("RTTs in half of which nothing was sent")
            .low("a clock, not ACKs, releases segments"),
        DrainedRtts => label("RTTs in which the path ran half empty")
            .high("the sender did not send, though it could"),
        PacingRate => label("pacing rate that was set (SO_MAX_PACING_RATE)"),
        TimeBelowTcp => label("time of a segment below TCP, mean").high("it waits in the device"),
        SenderProcessCpu => label("processors of the sending process")
            .high("a full processor")
            .low("not the processor"),
        SenderHostCpu => label("load of the sending host").high("a full host"),
        ReceiverProcessCpu => label("processors of the receiving process").high("a full processor"),
        ReceiverHostCpu => label("load of the receiving host").high("a full host"),
        ProcessTime => label("time in which the process was observed"),
        ProcessRunning => label("running"),
        ProcessReady => label("ready, without a processor"),
        ProcessDiskWait => label("waiting for a disk"),
        ProcessAsleep => label("asleep"),
        WaitFunction => label("waiting in"),
        StorageBytes => label("read from and written to storage"),
        UnreadData => label("unread data by the receive buffer").high("the reader is behind"),
        SourceBusy => label("the source's storage was reading").high("busier than all else"),
        SinkBusy => label("the sink's storage was writing").high("busier than all else"),
        StorageRate => label("its rate in that time"),
        SenderRingEmpty => label("empty ring of the sender"),
        ReceiverRingFull => label("full ring of the receiver"),
        SourceCached => label("source in the page cache before"),
        FsyncTime => label("fsync at the end"),
        SegmentsWithoutGrowth => label("segments sent while nothing more was in flight"),
        DuplicateAcks => label("duplicate acknowledgements"),
        AckWaits => label("long waits for an acknowledgement"),
        SentSegments => label("segments sent"),
        SegmentGap => label("time from one segment to the next, median"),
        SegmentsPerAck => label("full segments for one acknowledgement, largest (a consequence)"),
        Replies => label("replies"),
        ReplyTime => label("time to a reply, median"),
        LastAckDelay => {
            label("time before the last acknowledgement").high("delayed, nothing more to send")
        }
        UndeliveredBytes => label("sent and never delivered"),
        ForwardDelayMedian => label("forward queueing delay, median"),
        ForwardDelayMax => label("forward queueing delay, largest"),
        ReverseDelayMedian => label("reverse queueing delay, median"),
        AckQueueingDelay => label("queueing delay of ACKs, of the whole queueing delay")
            .high("the queue is on the way back")
            .low("the queue is on the way of the data"),
        ReverseDelayMax => label("reverse queueing delay, largest"),
        AckDelayMedian => label("delay of ACKs at the receiver, median"),
        AckDelayMax => label("delay of ACKs at the receiver, largest"),
        DelayedAcks => label("delayed ACKs"),
    }
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
        Quantity::BitRate(rate) => rate.to_string(),
        Quantity::Share(share) => percent(*share),
        Quantity::Ratio(x) | Quantity::Cpus(x) => format!("{x:.2}"),
        Quantity::Name(name) => escape_sentence(name),
    }
}

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
