//! Reads and writes of blocks at a server, and where the time of each went by the client's clock.

use crate::request::Parts;
use crate::{
    BitRate, Bytes, Cache, EndRecord, Latency, LatencySummary, Leg, Nanos, Spec, WaitMode, Warning,
    Workload, shortest_trip,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The block requests of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// Who has them.
    #[serde(flatten)]
    pub server: BlockServer,
    /// Bytes of a read or write.
    pub block: Bytes,
    /// Requests that each connection has outstanding.
    pub depth: u32,
    /// Operations that each connection requests in turn.
    pub mix: Vec<BlockOperation>,
    /// Blocks in random order, each once before any repeats; otherwise in sequence, then from the first again.
    pub random: bool,
    /// Seed of the random order.
    #[serde(default)]
    pub seed: u64,
    /// How the client waits for replies.
    pub wait: WaitMode,
}

/// Who has the blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BlockServer {
    /// An NFS server: every connection has its own file, which the run creates and removes.
    Nfs {
        /// The folder in which the files are, as the server exports it.
        export: String,
        /// Bytes of each file.
        file_size: Bytes,
    },
    /// The peer of the measurement: all connections have the same blocks.
    Peer(BlockStore),
}

impl Blocks {
    /// The smallest block that a peer reads or writes: a sector.
    pub const SMALLEST: Bytes = Bytes(512);
    /// The most requests that a connection with a peer may have outstanding: there each may have a thread.
    pub const DEEPEST: u32 = 256;

    /// The backing store of the blocks, if the peer of the measurement has them.
    pub fn store(&self) -> Option<&BlockStore> {
        match &self.server {
            BlockServer::Peer(store) => Some(store),
            BlockServer::Nfs { .. } => None,
        }
    }
}

/// The backing store of the blocks at the peer of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockStore {
    /// A directory, in which the run makes a file without a name; or a file, which is only read. `None`: memory.
    pub store: Option<String>,
    /// Bytes of the file that are used; `None`: all of one that is there, [`BlockStore::SIZE`] of a new one.
    pub file_size: Option<Bytes>,
    /// What the page cache is to hold of the file before.
    pub cache: Cache,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
}

impl BlockStore {
    /// Bytes of a new file, unless the order has a size.
    pub const SIZE: Bytes = Bytes(1 << 30);
}

/// The blocks that a connection requests, in their order.
#[derive(Clone, Debug)]
pub struct BlockOrder {
    all: u64,
    random: bool,
    seed: u64,
    next: u64,
    step: u64,
}

impl BlockOrder {
    /// Of this many blocks, at least one. Of `streams` connections that share them this is number `stream`: in random
    /// order all connections together request each block once before any repeats; in sequence each connection begins
    /// at its own block.
    pub fn new(order: &Blocks, all: u64, stream: u64, streams: u64) -> BlockOrder {
        let (all, streams) = (all.max(1), streams.max(1));
        let own = u128::from(all) * u128::from(stream) / u128::from(streams);
        let (next, step) = match order.random {
            true => (stream, streams),
            false => (own as u64, 1),
        };
        BlockOrder {
            all,
            random: order.random,
            seed: order.seed,
            next,
            step,
        }
    }

    /// The number of the next block.
    pub fn next_block(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.wrapping_add(self.step);
        match self.random {
            true => self.shuffled(number / self.all, number % self.all),
            false => number % self.all,
        }
    }

    /// Where a round has its block of this number: a Feistel network of four rounds (Luby and Rackoff 1988) turns the
    /// numbers below a power of four into each other, and is repeated until one of ours comes (Black and Rogaway 2002).
    fn shuffled(&self, round: u64, mut number: u64) -> u64 {
        let bits = u64::BITS - (self.all - 1).leading_zeros();
        let half = bits.div_ceil(2).max(1);
        let mask = (1 << half) - 1;
        let seed = mixed(self.seed.wrapping_add(round));
        loop {
            let (mut left, mut right) = (number >> half, number & mask);
            for key in 0..4 {
                let scrambled = mixed(seed ^ (right << 2 | key)) & mask;
                (left, right) = (right, left ^ scrambled);
            }
            number = left << half | right;
            if number < self.all {
                return number;
            }
        }
    }
}

/// The output function of splitmix64 (Steele, Lea, Flood 2014).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
pub struct BlockReply {
    /// Read or write.
    pub operation: BlockOperation,
    /// Payload that was read or written.
    pub data: Bytes,
    /// From the first byte of the call going to the kernel to its last.
    pub call_send: Nanos,
    /// From then to the first byte of the reply.
    pub waited: Nanos,
    /// From then to its last byte.
    pub reply_send: Nanos,
    /// What the server reports of the time in between, if it does.
    pub at_server: Option<AtServer>,
}

/// The time of a request at its server, by the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtServer {
    /// From the last byte of the call until the storage request.
    pub queued: Nanos,
    /// Until the storage had done it.
    pub storage: Nanos,
}

impl BlockReply {
    /// All of it.
    pub fn total(&self) -> Nanos {
        self.call_send + self.waited + self.reply_send
    }
}

/// The client of a block server on one connection, in any protocol: times and bytes go in, bytes and answers come out.
pub trait BlockClient: Send {
    /// Appends the next call to what is to be sent.
    fn ask(&mut self, now: Nanos, out: &mut Vec<u8>);
    /// The kernel took this many further bytes of the calls.
    fn sent(&mut self, now: Nanos, bytes: usize);
    /// Takes received bytes; `answered` is called for each complete answer.
    ///
    /// # Errors
    /// A sentence, if the server refused or what it sent is no answer: the connection is of no use any more.
    fn recv(
        &mut self,
        now: Nanos,
        bytes: &[u8],
        answered: &mut dyn FnMut(BlockReply),
    ) -> Result<(), String>;
}

/// Makes the client of a connection, by its number from 0.
pub type BlockClients = dyn Fn(usize) -> Box<dyn BlockClient> + Send + Sync;

/// The calls of one connection that wait for their replies.
#[derive(Clone, Debug, Default)]
pub struct Outstanding {
    asked: u32,
    /// Bytes of all calls, and how many of them the kernel has.
    queued: u64,
    gone: u64,
    calls: VecDeque<BlockCall>,
}

/// A call without its reply.
#[derive(Clone, Copy, Debug)]
pub struct BlockCall {
    /// Read or write.
    pub operation: BlockOperation,
    number: u32,
    asked: Nanos,
    /// Place behind its last byte among those of all calls.
    end: u64,
    /// When the kernel had all of it.
    sent: Option<Nanos>,
}

impl Outstanding {
    /// Number of the next call, from 0 on.
    pub fn next(&self) -> u32 {
        self.asked
    }

    /// Queues the next call of `bytes` bytes.
    pub fn ask(&mut self, now: Nanos, operation: BlockOperation, bytes: usize) {
        self.queued += bytes as u64;
        self.calls.push_back(BlockCall {
            operation,
            number: self.asked,
            asked: now,
            end: self.queued,
            sent: None,
        });
        self.asked = self.asked.wrapping_add(1);
    }

    /// The kernel has so many more bytes of the calls.
    pub fn sent(&mut self, now: Nanos, bytes: usize) {
        self.gone += bytes as u64;
        for call in self.calls.iter_mut().filter(|call| call.end <= self.gone) {
            call.sent.get_or_insert(now);
        }
    }

    /// Takes the call of this number; none if it is not outstanding.
    pub fn take(&mut self, number: u32) -> Option<BlockCall> {
        let at = self.calls.iter().position(|call| call.number == number)?;
        self.calls.remove(at)
    }
}

impl BlockCall {
    /// Its answer, whose first byte came at `begun` and whose last comes now.
    pub fn answer(
        &self,
        begun: Nanos,
        now: Nanos,
        data: Bytes,
        at_server: Option<AtServer>,
    ) -> BlockReply {
        let sent = self.sent.unwrap_or(begun).min(begun);
        BlockReply {
            operation: self.operation,
            data,
            call_send: sent.since(self.asked),
            waited: begun.since(sent.max(self.asked)),
            reply_send: now.since(begun),
            at_server,
        }
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
    /// What the server reports of the time in between; `None`: nothing (NFS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_server: Option<ServerRecord>,
}

/// The time of all requests of one operation at their server, by its own clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// In the storage.
    pub storage: Latency,
    /// All of it.
    #[serde(rename = "storage_ns")]
    pub storage_time: Nanos,
    /// All calls together, from their last byte until the storage request.
    #[serde(rename = "queued_ns")]
    pub queued: Nanos,
}

/// The backing store of the blocks of a measurement, at their server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreRecord {
    /// How many there are.
    pub blocks: u64,
    /// Making safe at the end what was written (`fsync`); `None`: nothing was left to make safe.
    #[serde(rename = "fsync_ns")]
    pub fsync: Option<Nanos>,
    /// Share of the file that the page cache held before, 0 to 1; `None`: memory, or not reported.
    pub cached_before_share: Option<f64>,
    /// The same afterwards.
    pub cached_after_share: Option<f64>,
    /// Why the storage failed, if it did.
    pub failed: Option<String>,
}

impl BlockRecord {
    /// Adds those of another connection.
    pub fn add(&mut self, other: &BlockRecord) {
        self.latency = self.latency.merged(&other.latency);
        self.data += other.data;
        self.call_send += other.call_send;
        self.waited += other.waited;
        self.reply_send += other.reply_send;
        if let (Some(all), Some(more)) = (&mut self.at_server, &other.at_server) {
            all.storage = all.storage.merged(&more.storage);
            all.storage_time += more.storage_time;
            all.queued += more.queued;
        }
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
    /// Where the time of all together went. Think time includes queueing delay; the path takes the minimum RTT, half of it
    /// in each direction.
    pub parts: Parts,
    /// Where the time was, from the reports of both hosts; `None`: the server reports nothing (NFS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<BlockSplit>,
}

/// Storage or network? The mean time of a request; the three sum to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockSplit {
    /// In the storage.
    #[serde(rename = "storage_ns")]
    pub storage: Nanos,
    /// At the server, before the storage request.
    #[serde(rename = "queued_ns")]
    pub queued: Nanos,
    /// All else: the RTT with its queueing delay, sending, and both kernels.
    #[serde(rename = "network_ns")]
    pub network: Nanos,
    /// The time in the storage of the requests one by one.
    pub storage_latency: LatencySummary,
}

impl BlockSplit {
    fn of(one: &BlockRecord, total: Nanos, count: u64, duration: Nanos) -> Option<BlockSplit> {
        let server = one.at_server.as_ref()?;
        let each = |all: Nanos| Nanos(all.0 / count.max(1));
        // Whatever a server says, it was not longer than the client waited.
        let storage = server.storage_time.min(total);
        let queued = server.queued.min(total.since(storage));
        Some(BlockSplit {
            storage: each(storage),
            queued: each(queued),
            network: each(total).since(each(storage) + each(queued)),
            storage_latency: LatencySummary::of(&server.storage, duration)?,
        })
    }

    /// All of it.
    pub fn total(&self) -> Nanos {
        self.storage + self.queued + self.network
    }
}

/// Sums up what the client of a leg was answered, those operations first that took the most time.
pub fn summarise_blocks(client: &EndRecord) -> Vec<BlockSummary> {
    let trip = shortest_trip(client).unwrap_or_default();
    let mut all: Vec<BlockSummary> = client
        .operations
        .iter()
        .filter_map(|one| {
            let latency = LatencySummary::of(&one.latency, client.duration)?;
            // No reply came sooner than the shortest RTT, whatever rounding says.
            let way = Nanos(trip.0.saturating_mul(latency.count)).min(one.waited);
            let parts = Parts {
                call_send: one.call_send,
                forward: Nanos(way.0 / 2),
                think: one.waited.since(way),
                reply_send: one.reply_send,
                reverse: way.since(Nanos(way.0 / 2)),
            };
            Some(BlockSummary {
                operation: one.operation,
                data: (one.data > Bytes(0)).then(|| one.data.per(client.duration)),
                split: BlockSplit::of(one, parts.total(), latency.count, client.duration),
                parts,
                latency,
            })
        })
        .collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.parts.total()));
    all
}

/// A warning if blocks that should come from the disk were read so often that the page cache must have had them.
pub(crate) fn read_again(spec: &Spec, leg: &Leg) -> Option<Warning> {
    let Workload::Blocks(order) = &spec.workload else {
        return None;
    };
    let whose = order.store()?;
    whose.store.as_ref()?;
    let all = leg.receiver().store.as_ref()?.blocks;
    let reads = leg.sender().operations.iter();
    let reads = reads.filter(|one| one.operation == BlockOperation::Read);
    let count = reads.map(|one| one.latency.count()).sum::<u64>();
    if whose.direct || whose.cache != Cache::Cold || count <= all {
        return None;
    }
    let times = count as f64 / all.max(1) as f64;
    Some(Warning {
        what: format!("{count} reads of {all} blocks: each was read {times:.1} times"),
        meaning:
            "after the first time a block comes from the page cache, faster than from the disk"
                .to_owned(),
        remedy: "take a larger --file-size, a shorter --time, or --direct".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sample, StreamSample};
    use proptest::prelude::*;

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
            at_server: (operation == BlockOperation::Read).then(|| ServerRecord {
                storage: Latency::from_counts([(60_000, 10)]),
                storage_time: micros(600),
                queued: micros(50),
            }),
        };
        let seen = |rtt| StreamSample {
            tcp: Some(crate::socket_state! {                min_rtt: Some(micros(rtt)),}),
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
        let summaries = summarise_blocks(&client);
        let read = &summaries[0];
        assert_eq!(read.operation, BlockOperation::Read);
        assert_eq!(read.latency.count, 10);
        assert_eq!(read.data, Some(BitRate(655_360)));
        assert_eq!(read.parts.think, micros(700));
        assert_eq!(read.parts.forward, micros(150));
        assert_eq!(read.parts.total(), micros(1500));
        let split = read.split.as_ref().unwrap();
        assert_eq!(
            (split.storage, split.queued, split.network),
            (micros(60), micros(5), micros(85))
        );
        assert_eq!(split.storage_latency.p99, micros(60));
        let write = &summaries[1];
        assert_eq!(
            (write.parts.think, write.parts.total()),
            (Nanos(0), micros(700))
        );
        assert_eq!(write.split, None);
    }

    fn order(random: bool, seed: u64) -> Blocks {
        Blocks {
            server: BlockServer::Peer(BlockStore::default()),
            block: Bytes(4096),
            depth: 1,
            mix: vec![BlockOperation::Read],
            random,
            seed,
            wait: WaitMode::Block,
        }
    }

    proptest! {
        #[test]
        fn by_chance_every_block_comes_once_in_each_round(
            all in 1u64..300, streams in 1u64..5, seed: u64,
        ) {
            let order = order(true, seed);
            let mut places: Vec<BlockOrder> =
                (0..streams).map(|n| BlockOrder::new(&order, all, n, streams)).collect();
            let mut rounds = Vec::new();
            for _ in 0..2 * all {
                rounds.extend(places.iter_mut().map(BlockOrder::next_block));
            }
            for round in rounds.chunks_exact(all as usize) {
                let mut round = round.to_vec();
                round.sort_unstable();
                prop_assert_eq!(round, (0..all).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_seed_means_the_same_order_for_ever_and_no_order_is_none() {
        let take = |random, seed| {
            let mut places = BlockOrder::new(&order(random, seed), 10, 1, 2);
            (0..7).map(|_| places.next_block()).collect::<Vec<_>>()
        };
        assert_eq!(take(false, 1), [5, 6, 7, 8, 9, 0, 1]);
        assert_eq!(take(true, 1), [8, 3, 2, 0, 1, 8, 0]);
        assert_ne!(take(true, 1), take(true, 2));
    }

    #[test]
    fn orders_say_who_has_the_blocks_as_they_did() {
        let nfs = r#"{"export":"/x","block":8192,"depth":1,"mix":["read"],"random":true,
            "file_size":16777216,"wait":"hybrid"}"#;
        let order: Blocks = serde_json::from_str(nfs).unwrap();
        let BlockServer::Nfs { export, file_size } = &order.server else {
            panic!("{order:?}");
        };
        assert_eq!((export.as_str(), *file_size), ("/x", Bytes(16 << 20)));
        let mut own = order;
        own.server = BlockServer::Peer(BlockStore::default());
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<Blocks>(&text).unwrap(), own);
    }
}
