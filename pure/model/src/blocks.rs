//! Reads and writes of blocks at a server that is there, and where the time of each went by the client's clock.

use crate::request::Parts;
use crate::{BitRate, Bytes, EndRecord, Latency, LatencySummary, Nanos, Wait, shortest_trip};
use serde::{Deserialize, Serialize};

/// What a client asks of an NFS server: every connection has a file of its own, which the run makes and removes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// The folder in which the files are, as the server exports it.
    pub export: String,
    /// Bytes of a read or write.
    pub block: Bytes,
    /// Requests that each connection has outstanding.
    pub depth: u32,
    /// What each connection asks in turn.
    pub mix: Vec<BlockOperation>,
    /// Blocks by chance; otherwise one after the other, and from the first again.
    pub random: bool,
    /// Bytes of each file.
    pub file_size: Bytes,
    /// How the client waits for replies.
    pub wait: Wait,
}

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockOperation {
    /// Reads a block.
    Read,
    /// Writes a block; the server may keep it in memory.
    Write,
    /// Writes a block; it is on stable storage before the reply.
    WriteStable,
    /// The attributes of the file: no data moves.
    Getattr,
    /// Has what was written put on stable storage.
    Commit,
}

impl BlockOperation {
    /// How much of a block the call carries, and how much the reply does.
    pub fn carries(self, block: Bytes) -> [Bytes; 2] {
        match self {
            BlockOperation::Read => [Bytes(0), block],
            BlockOperation::Write | BlockOperation::WriteStable => [block, Bytes(0)],
            BlockOperation::Getattr | BlockOperation::Commit => [Bytes(0); 2],
        }
    }

    /// All of them.
    pub const ALL: [BlockOperation; 5] = [
        BlockOperation::Read,
        BlockOperation::Write,
        BlockOperation::WriteStable,
        BlockOperation::Getattr,
        BlockOperation::Commit,
    ];

    /// As the procedure is called.
    pub fn name(self) -> &'static str {
        match self {
            BlockOperation::Read => "READ",
            BlockOperation::Write => "WRITE",
            BlockOperation::WriteStable => "WRITE, stable",
            BlockOperation::Getattr => "GETATTR",
            BlockOperation::Commit => "COMMIT",
        }
    }
}

/// A request and its reply, by the client's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was asked.
    pub operation: BlockOperation,
    /// Payload that was read or written.
    pub data: Bytes,
    /// From the first byte of the call going to the kernel to its last.
    pub call_send: Nanos,
    /// From then to the first byte of the reply.
    pub waited: Nanos,
    /// From then to its last byte.
    pub reply_send: Nanos,
}

impl Answer {
    /// All of it.
    pub fn total(&self) -> Nanos {
        self.call_send + self.waited + self.reply_send
    }
}

/// All requests of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockRecord {
    /// Which.
    pub operation: BlockOperation,
    /// From the first byte of the call to the last of the reply.
    pub latency: Latency,
    /// Payload that was read or written.
    pub data: Bytes,
    /// All calls together, from the first byte going to the kernel to the last.
    #[serde(rename = "call_send_ns")]
    pub call_send: Nanos,
    /// From then to the first bytes of the replies.
    #[serde(rename = "waited_ns")]
    pub waited: Nanos,
    /// From then to their last.
    #[serde(rename = "reply_send_ns")]
    pub reply_send: Nanos,
}

impl BlockRecord {
    /// Adds those of another connection.
    pub fn add(&mut self, other: &BlockRecord) {
        self.latency = self.latency.merged(&other.latency);
        self.data += other.data;
        self.call_send += other.call_send;
        self.waited += other.waited;
        self.reply_send += other.reply_send;
    }
}

/// The figures of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockSummary {
    /// Which.
    pub operation: BlockOperation,
    /// From the first byte of the call to the last of the reply.
    pub latency: LatencySummary,
    /// Payload a second; null: none moves.
    #[serde(rename = "data_bit_s")]
    pub data: Option<BitRate>,
    /// Where the time of all together went. Think time has the queues of the path in it, and the way there and back is the
    /// shortest round trip, half each way.
    pub parts: Parts,
}

/// Sums up what the client of a leg was answered, those operations first that took the most time.
pub fn summarise_blocks(client: &EndRecord) -> Vec<BlockSummary> {
    let trip = shortest_trip(client).unwrap_or_default();
    let mut all: Vec<BlockSummary> = client
        .operations
        .iter()
        .filter_map(|one| {
            let latency = LatencySummary::of(&one.latency, client.duration)?;
            // No reply came sooner than the shortest way there and back, whatever rounding says.
            let way = Nanos(trip.0.saturating_mul(latency.count)).min(one.waited);
            Some(BlockSummary {
                operation: one.operation,
                data: (one.data > Bytes(0)).then(|| one.data.per(client.duration)),
                parts: Parts {
                    call_send: one.call_send,
                    forward: Nanos(way.0 / 2),
                    think: one.waited.since(way),
                    reply_send: one.reply_send,
                    back: way.since(Nanos(way.0 / 2)),
                },
                latency,
            })
        })
        .collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.parts.total()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sample, StreamSample, TcpInfo};

    #[test]
    fn the_parts_sum_to_the_time_and_the_way_is_the_shortest_round_trip() {
        let micros = Nanos::from_micros;
        let record = |operation, waited| BlockRecord {
            operation,
            latency: Latency::from_counts([(150_000, 10)]),
            data: Bytes(81_920),
            call_send: micros(200),
            waited,
            reply_send: micros(300),
        };
        let seen = |rtt| StreamSample {
            tcp: Some(TcpInfo {
                min_rtt: Some(micros(rtt)),
                ..TcpInfo::default()
            }),
            ..StreamSample::default()
        };
        let client = EndRecord {
            duration: Nanos::from_secs(1),
            samples: vec![Sample {
                streams: vec![seen(40), seen(30)],
                ..Sample::default()
            }],
            operations: vec![
                record(BlockOperation::Write, micros(200)),
                record(BlockOperation::Read, micros(1000)),
            ],
            ..EndRecord::default()
        };
        let told = summarise_blocks(&client);
        let read = &told[0];
        assert_eq!(read.operation, BlockOperation::Read);
        assert_eq!(read.latency.count, 10);
        assert_eq!(read.data, Some(BitRate(655_360)));
        assert_eq!(read.parts.think, micros(700));
        assert_eq!(read.parts.forward, micros(150));
        assert_eq!(read.parts.total(), micros(1500));
        let write = &told[1];
        assert_eq!(
            (write.parts.think, write.parts.total()),
            (Nanos(0), micros(700))
        );
    }
}
