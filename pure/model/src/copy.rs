//! Which stage held a copy up: the storage that it came from, the network, or the storage that it went to.

use crate::{BitRate, Bytes, EndRecord, Nanos};
use serde::{Deserialize, Serialize};

/// What bytes pass through, one stage after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Reading and hashing at the sender.
    Source,
    /// From the sender's ring to the receiver's.
    Network,
    /// Hashing and writing at the receiver, and making it safe.
    Sink,
}

/// How much of a copy's time a stage was at work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageUse {
    /// `source` (reading and hashing), `network` or `sink` (hashing, writing, making it safe).
    pub stage: Stage,
    /// At work, and not waiting for another stage: of the whole time, 0 to 1.
    pub busy_share: f64,
    /// The rate at which it moved data while it was at work: it would reach this if the others took no time.
    #[serde(rename = "alone_bit_s")]
    pub alone: Option<BitRate>,
}

/// The figures of a copy that are printed first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopySummary {
    /// From the start until the copy was safe at the receiver.
    #[serde(rename = "span_ns")]
    pub span: Nanos,
    /// Bytes by that time.
    #[serde(rename = "rate_bit_s")]
    pub rate: BitRate,
    /// The stages, the busiest first: it held the copy up, and the second is the next limit.
    pub stages: Vec<StageUse>,
    /// The first is clearly the slowest; otherwise the first two are about as fast.
    pub decided: bool,
    /// Share of the sender's time that its ring was full: the network was the slower one.
    pub sender_ring_full_share: f64,
    /// Share that it was empty: the source was.
    pub sender_ring_empty_share: f64,
    /// Share of the receiver's time that its ring was full: the sink was the slower one.
    pub receiver_ring_full_share: f64,
    /// Share that it was empty: the network, or what lies before it.
    pub receiver_ring_empty_share: f64,
    /// Making the copy safe at the end (`fsync`); null: memory, or it did not come to that.
    #[serde(rename = "fsync_ns")]
    pub fsync: Option<Nanos>,
    /// Length and hash at both hosts are the same; null: not compared.
    pub verified: Option<bool>,
    /// The new file stayed.
    pub kept: bool,
    /// Share of the source that the page cache held before; null: memory, or not reported.
    pub source_cached_before_share: Option<f64>,
    /// The same afterwards.
    pub source_cached_after_share: Option<f64>,
    /// Share of the copy that the page cache held afterwards; null: memory, or not reported.
    pub sink_cached_after_share: Option<f64>,
    /// Processor seconds of hashing for each 10^9 bytes, both hosts together.
    pub hashing_s_per_gb: f64,
}

/// A stage that was at work for less of the time has no rate of its own.
const LEAST_BUSY: f64 = 0.01;

/// Sums a copy up; `None` if a host did not report, or nothing moved.
pub fn summarise_copy(sender: &EndRecord, receiver: &EndRecord) -> Option<CopySummary> {
    let bytes = receiver.bytes;
    let (sender, receiver) = (sender.copy.as_ref()?, receiver.copy.as_ref()?);
    let span = receiver.span;
    if span == Nanos(0) || bytes == Bytes(0) {
        return None;
    }
    // The network is at work while the sender has something for it and the receiver has room.
    let held = receiver.ring_full + sender.ring_empty;
    let fsync = receiver.fsync.unwrap_or_default();
    let busy = [
        (Stage::Source, sender.working),
        (Stage::Network, receiver.transfer.since(held)),
        (Stage::Sink, receiver.working + fsync),
    ];
    let mut stages = busy.map(|(stage, busy)| StageUse {
        stage,
        busy_share: share(busy, span),
        alone: (share(busy, span) >= LEAST_BUSY).then(|| bytes.per(busy)),
    });
    stages.sort_by(|a, b| b.busy_share.total_cmp(&a.busy_share));
    Some(CopySummary {
        span,
        rate: bytes.per(span),
        decided: stages[0].busy_share - stages[1].busy_share >= CopySummary::APART,
        stages: stages.into(),
        sender_ring_full_share: share(sender.ring_full, sender.transfer),
        sender_ring_empty_share: share(sender.ring_empty, sender.transfer),
        receiver_ring_full_share: share(receiver.ring_full, receiver.span),
        receiver_ring_empty_share: share(receiver.ring_empty, receiver.span),
        fsync: receiver.fsync,
        verified: receiver.verified,
        kept: receiver.kept,
        source_cached_before_share: sender.cached_before_share,
        source_cached_after_share: sender.cached_after_share,
        sink_cached_after_share: receiver.cached_after_share,
        hashing_s_per_gb: (sender.hashing + receiver.hashing).as_secs_f64()
            / (bytes.0 as f64 / 1e9),
    })
}

impl CopySummary {
    /// Stages that are busy for shares closer than this are about as fast as each other.
    pub const APART: f64 = 0.05;

    /// The stage that limited the copy, if one is clearly the slowest.
    pub fn bottleneck(&self) -> Option<&StageUse> {
        self.stages.first().filter(|_| self.decided)
    }
}

fn share(part: Nanos, whole: Nanos) -> f64 {
    match whole {
        Nanos(0) => 0.0,
        _ => (part.0 as f64 / whole.0 as f64).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CopyRecord;

    /// A copy of 100 MB in two seconds.
    fn copied(sender: CopyRecord, receiver: CopyRecord) -> CopySummary {
        let end = |copy| EndRecord {
            bytes: Bytes(100_000_000),
            copy: Some(copy),
            ..EndRecord::default()
        };
        summarise_copy(&end(sender), &end(receiver)).unwrap()
    }

    fn record(working: u64, full: u64, empty: u64) -> CopyRecord {
        CopyRecord {
            span: Nanos::from_millis(2000),
            transfer: Nanos::from_millis(2000),
            working: Nanos::from_millis(working),
            ring_full: Nanos::from_millis(full),
            ring_empty: Nanos::from_millis(empty),
            ..CopyRecord::default()
        }
    }

    #[test]
    fn the_stage_that_never_waits_is_the_bottleneck_and_the_next_has_its_rate() {
        let network = copied(record(100, 1800, 0), record(80, 0, 1900));
        assert_eq!(network.bottleneck().unwrap().stage, Stage::Network);
        assert_eq!(network.rate, BitRate(400_000_000));
        let source = copied(record(2000, 0, 200), record(80, 0, 1900));
        assert_eq!(source.bottleneck().unwrap().stage, Stage::Source);
        assert_eq!(source.stages[1].stage, Stage::Network);
        let alone = source.stages[1].alone.unwrap();
        assert_eq!(alone, BitRate(444_444_444), "100 MB in the 1.8 s at work");
        let sink = copied(record(100, 1500, 0), record(1990, 1500, 0));
        assert_eq!(sink.bottleneck().unwrap().stage, Stage::Sink);
        let both = copied(record(2000, 0, 20), record(80, 0, 1900));
        assert!(both.bottleneck().is_none(), "1 % is no difference");
    }

    #[test]
    fn making_it_safe_is_the_sinks_time() {
        let mut safe = record(100, 0, 500);
        safe.transfer = Nanos::from_millis(700);
        safe.fsync = Some(Nanos::from_millis(1300));
        let copy = copied(record(300, 300, 0), safe);
        assert_eq!(copy.bottleneck().unwrap().stage, Stage::Sink);
        assert!((copy.stages[0].busy_share - 0.7).abs() < 1e-9);
    }
}
