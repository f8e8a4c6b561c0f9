//! Workloads: what moves over the connections of a leg, and the properties of each, in one place.
//!
//! A workload is a variant of [`Workload`], its order, and its row of [`WorkloadKind`]. Other crates use the methods of
//! [`Workload`] instead of matching variants.

use crate::{BitRate, BlockOperation, BlockServer, BlockStore, Blocks, Bytes, LegLimit, Nanos};
use serde::{Deserialize, Serialize};

/// What moves over the connections of a leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Workload {
    /// As much as fits, one way.
    Bulk(Bulk),
    /// Small requests, each answered.
    Request(Request),
    /// Datagrams at a set rate.
    Udp(Udp),
    /// From storage at the sender to storage at the receiver.
    Copy(FileCopy),
    /// Reads and writes of blocks at the peer, or at an NFS server.
    Blocks(Blocks),
}

/// Who sends on the connections of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// One end sends a stream of bytes, the other receives it.
    Stream,
    /// A client's calls are answered: both hosts send.
    Calls,
    /// Datagrams, one way.
    Datagrams,
}

/// The properties of a workload that no order changes.
#[derive(Debug, PartialEq, Eq)]
pub struct WorkloadKind {
    /// Name in options, files and lists.
    pub name: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
    /// What its runs consist of, in titles.
    pub title: &'static str,
    /// Who sends.
    pub exchange: Exchange,
    /// The legs if no option selects them are the one up; otherwise up, then down.
    pub one_leg: bool,
    /// What the agent does, for its log: as the leg's sender, as its receiver.
    pub agent_does: [&'static str; 2],
    /// Why a stock iperf3 server does not play it, if it does not.
    pub not_with_iperf3: Option<&'static str>,
    /// Why experiments cannot judge it, and what to do instead, if they cannot.
    pub not_judged: Option<[&'static str; 2]>,
}

impl WorkloadKind {
    /// All workloads.
    pub const ALL: [&'static WorkloadKind; 5] = [
        &Bulk::KIND,
        &Request::KIND,
        &Udp::KIND,
        &FileCopy::KIND,
        &Blocks::KIND,
    ];
}

impl Workload {
    /// What no order changes.
    pub fn kind(&self) -> &'static WorkloadKind {
        match self {
            Workload::Bulk(_) => &Bulk::KIND,
            Workload::Request(_) => &Request::KIND,
            Workload::Udp(_) => &Udp::KIND,
            Workload::Copy(_) => &FileCopy::KIND,
            Workload::Blocks(_) => &Blocks::KIND,
        }
    }

    /// Its sockets are those of UDP.
    pub fn is_udp(&self) -> bool {
        self.kind().exchange == Exchange::Datagrams
    }

    /// Both ends send: a client's calls are answered.
    pub fn is_answered(&self) -> bool {
        self.kind().exchange == Exchange::Calls
    }

    /// Bytes that are written at once at most, as far as the order bounds it: a call, or those that are outstanding.
    pub fn most_written(&self) -> Option<Bytes> {
        match self {
            Workload::Request(order) => Some(order.request_size.max(order.reply_size)),
            Workload::Blocks(order) => {
                Some(Bytes(order.block.0.saturating_mul(order.depth.into())))
            }
            _ => None,
        }
    }

    /// Its unit of work in bytes: of a write, a block, a datagram, or a reply.
    pub fn unit(&self) -> Bytes {
        match self {
            Workload::Bulk(order) => order.unit(),
            Workload::Request(order) => order.reply_size,
            Workload::Udp(order) => order.datagram_size,
            Workload::Copy(_) => Bytes(1 << 20),
            Workload::Blocks(order) => order.block,
        }
    }

    /// The rate that the order sets for each stream.
    pub fn rate(&self) -> Option<BitRate> {
        match self {
            Workload::Udp(order) => Some(order.rate),
            _ => None,
        }
    }

    /// The sender writes whenever the socket takes data; its storage never makes it wait.
    pub fn always_writes(&self) -> bool {
        match self {
            Workload::Bulk(_) => true,
            Workload::Copy(order) => order.from.is_none(),
            _ => false,
        }
    }

    /// Storage of an end of ours is part of it: the load may wait for a disk, and the protocol marks its own end.
    pub fn has_storage(&self) -> bool {
        match self {
            Workload::Copy(_) => true,
            Workload::Blocks(order) => order.store().is_some(),
            _ => false,
        }
    }

    /// The file that the leg's sender (or its receiver) reads or writes.
    pub fn file(&self, sender: bool) -> Option<&str> {
        match self {
            Workload::Copy(order) if sender => order.from.as_deref(),
            Workload::Copy(order) => order.to.as_deref(),
            Workload::Blocks(order) if !sender => order.store()?.store.as_deref(),
            _ => None,
        }
    }

    /// As the peer gets it, which is the leg's sender or not: without the names of files at the local side.
    pub fn without_own_files(mut self, peer_sends: bool) -> Workload {
        match &mut self {
            Workload::Copy(order) if peer_sends => order.to = None,
            Workload::Copy(order) => order.from = None,
            Workload::Blocks(order) if peer_sends => {
                order.server = BlockServer::Peer(BlockStore::default());
            }
            _ => {}
        }
        self
    }

    /// When a leg ends if nothing else is ordered.
    pub fn usual_limit(&self) -> LegLimit {
        match self {
            Workload::Copy(order) if order.from.is_some() => LegLimit::Whole,
            _ => LegLimit::Time(Nanos::from_secs(10)),
        }
    }

    /// Calls (of [`Exchange::Calls`]) or bytes that a limit allows all streams together; `None`: no such bound.
    pub fn budget(&self, limit: LegLimit) -> Option<u64> {
        match (limit, self) {
            // By the bytes that the requests send: the last one may go over.
            (LegLimit::Bytes(bytes), Workload::Request(order)) => {
                Some(bytes.0.div_ceil(order.request_size.0.max(1)))
            }
            (LegLimit::Bytes(bytes), _) => Some(bytes.0),
            (LegLimit::Requests(requests), _) => Some(requests),
            (LegLimit::Time(_) | LegLimit::Whole, _) => None,
        }
    }

    /// Bytes that went in both directions, from those that the load counts in the leg's own.
    pub fn both_directions(&self, counted: Bytes) -> Bytes {
        match self {
            Workload::Request(order) => {
                let requests = counted.0 / order.request_size.0.max(1);
                counted + Bytes(requests.saturating_mul(order.reply_size.0))
            }
            _ => counted,
        }
    }

    /// Every call has a new connection.
    pub fn reconnects(&self) -> bool {
        matches!(self, Workload::Request(order) if order.reconnect)
    }

    /// What of the order is out of bounds, whoever sends it. Each end checks it: the peer is not trusted.
    pub fn check(&self, streams: u32) -> Result<(), String> {
        self.check_streams(streams)?;
        match self {
            Workload::Bulk(order) => within("writes", order.unit(), Bytes(1), MAX_WRITE),
            Workload::Request(order) => order.check(),
            Workload::Udp(order) => within(
                "datagrams",
                order.datagram_size,
                Udp::SMALLEST,
                Udp::LARGEST,
            ),
            Workload::Copy(_) if streams == 1 => Ok(()),
            Workload::Copy(_) => Err("a copy goes over one connection".to_owned()),
            Workload::Blocks(order) => order.check(streams),
        }
    }
}

impl Workload {
    /// Connections that a leg of it may have.
    pub fn most_streams(&self) -> u32 {
        match self.shares_threads() {
            true => MOST_CONNECTIONS,
            false => MOST_THREADS,
        }
    }

    /// Whether it can have so many connections.
    pub fn check_streams(&self, streams: u32) -> Result<(), String> {
        let most = self.most_streams();
        let each = match self.shares_threads() {
            true => "",
            false => {
                ", each with a thread; those of requests share threads, unless each request has a new one"
            }
        };
        let why = || format!("{streams} connections: 1 to {most} are possible{each}");
        (1..=most).contains(&streams).then_some(()).ok_or_else(why)
    }

    /// Whether its connections share threads, at most one a processor.
    pub fn shares_threads(&self) -> bool {
        matches!(self, Workload::Request(order) if !order.reconnect)
    }
}

/// Connections of a leg: those with threads of their own, and those that share some. A host has no more ports.
const MOST_THREADS: u32 = 128;
const MOST_CONNECTIONS: u32 = 65_535;

/// Largest request, reply and block: both hosts keep a buffer of it for each stream.
const MAX_MESSAGE: Bytes = Bytes(1 << 30);
/// The largest write of a bulk transfer.
const MAX_WRITE: Bytes = Bytes(64 << 20);
/// Requests a second over all connections.
const MAX_PACE: f64 = 1e7;
/// Operations that a connection may request in turn.
const MAX_MIX: usize = 1000;
/// Requests for blocks that all connections of a leg may have outstanding: each may have a thread at the server.
const MAX_OUTSTANDING: u64 = 1024;
/// Blocks that all connections of a leg may have outstanding: the server keeps a buffer of each.
const MAX_HELD: Bytes = Bytes(1 << 30);

fn within(what: &str, size: Bytes, least: Bytes, most: Bytes) -> Result<(), String> {
    let is_within = (least..=most).contains(&size);
    let why = || format!("{what} of {size}: {least} to {most} are possible");
    is_within.then_some(()).ok_or_else(why)
}

/// Bulk transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bulk {
    /// Bytes a write; `None`: chosen by the engine and adapted to the path.
    pub write_size: Option<Bytes>,
    /// The receiver discards in the kernel (`MSG_TRUNC`): measures the path, not the reader.
    pub discard: bool,
    /// The sender's pages go to the device without a copy (`vmsplice`, `splice`).
    pub zerocopy: bool,
}

impl Bulk {
    const KIND: WorkloadKind = WorkloadKind {
        name: "bulk",
        help: "As much as fits",
        title: "Transfers",
        exchange: Exchange::Stream,
        one_leg: false,
        agent_does: ["sends", "receives"],
        not_with_iperf3: None,
        not_judged: None,
    };

    /// Bytes a write; that of iperf3 (DEFAULT_TCP_BLKSIZE) if the order sets none.
    fn unit(&self) -> Bytes {
        self.write_size.unwrap_or(Bytes(128 << 10))
    }
}

/// Request and response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Bytes of a request, at least 4.
    pub request_size: Bytes,
    /// Bytes of a reply, at least 1.
    pub reply_size: Bytes,
    /// Requests a second over all connections together; `None`: closed loop, the next request
    /// leaves when the reply is in. Paced latencies count from the moment that the request was due,
    /// so that a stall is charged to every request that it delays (coordinated omission).
    pub pace_per_s: Option<f64>,
    /// A new connection for every request; its handshake counts.
    pub reconnect: bool,
    /// How both hosts wait for data: `hybrid` spins for some tens of microseconds, then sleeps;
    /// `block` sleeps at once.
    pub wait: WaitMode,
}

impl Request {
    /// A request begins with the size of the reply that it wants, 32-bit big-endian.
    pub const MIN_SIZE: Bytes = Bytes(4);
    const KIND: WorkloadKind = WorkloadKind {
        name: "request",
        help: "Requests, each answered",
        title: "Requests",
        exchange: Exchange::Calls,
        one_leg: true,
        agent_does: ["sends requests", "answers requests"],
        not_with_iperf3: Some(
            "an iperf3 server answers no requests: measure bulk or udp there, or requests against a linerate agent",
        ),
        not_judged: None,
    };

    fn check(&self) -> Result<(), String> {
        let size = self.request_size;
        within("requests", size, Request::MIN_SIZE, MAX_MESSAGE)?;
        within("replies", self.reply_size, Bytes(1), MAX_MESSAGE)?;
        match self.pace_per_s {
            Some(pace) if !(pace > 0.0 && pace <= MAX_PACE) => Err(format!(
                "{pace} requests a second: more than 0 and up to 10 million are possible"
            )),
            _ => Ok(()),
        }
    }
}

/// How a host waits for data: spinning shows the network, sleeping a typical server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    /// Spin for some tens of microseconds, then sleep: leaves the wake-up of a core out.
    #[default]
    Hybrid,
    /// Sleep at once, as most servers do.
    Block,
}

/// A copy: what the sender reads is hashed, moved, hashed again, written and made safe. Memory at an end takes
/// its storage out of the way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCopy {
    /// The file at the sender; `None`: memory.
    pub from: Option<String>,
    /// The new file at the receiver; `None`: memory.
    pub to: Option<String>,
    /// What the sender's page cache is to hold of the file before: `cold` (nothing), `hot` (all of
    /// it) or `as_is`.
    pub cache: Cache,
    /// Past the page cache at both hosts (`O_DIRECT`).
    pub direct: bool,
    /// The new file stays; otherwise it is removed once it has been verified.
    pub keep: bool,
}

impl FileCopy {
    const KIND: WorkloadKind = WorkloadKind {
        name: "copy",
        help: "From a file or memory at one end to a file or memory at the other",
        title: "Copies",
        exchange: Exchange::Stream,
        one_leg: true,
        agent_does: ["sends a copy", "receives a copy"],
        not_with_iperf3: Some("an iperf3 server copies no files: copy to or from a linerate agent"),
        not_judged: Some([
            "copies have no verdict: their storage is not the network's",
            "write workload = \"bulk\" or \"request\"; 'linerate measure --workload copy --corners' compares copies",
        ]),
    };
}

/// What the page cache holds of a file before it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Nothing: it comes from the disk.
    #[default]
    Cold,
    /// All of it, as far as it fits.
    Hot,
    /// What it happens to hold.
    AsIs,
}

/// Datagrams at a set rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Udp {
    /// Rate of each stream; 0: as fast as it goes.
    #[serde(rename = "rate_bit_s")]
    pub rate: BitRate,
    /// Payload bytes of a datagram.
    pub datagram_size: Bytes,
}

impl Udp {
    /// Number, time and the mark of the leg.
    const SMALLEST: Bytes = Bytes(24);
    /// What IPv4 leaves of a packet of 64 KiB.
    const LARGEST: Bytes = Bytes(65_507);
    const KIND: WorkloadKind = WorkloadKind {
        name: "udp",
        help: "Datagrams at a set rate",
        title: "Datagrams",
        exchange: Exchange::Datagrams,
        one_leg: false,
        agent_does: ["sends datagrams", "receives datagrams"],
        not_with_iperf3: None,
        not_judged: Some([
            "datagrams have no verdict: nothing in TCP can be changed for them",
            "write workload = \"bulk\" or \"request\"",
        ]),
    };
}

impl Blocks {
    const KIND: WorkloadKind = WorkloadKind {
        name: "blocks",
        help: "Reads and writes of blocks at the peer",
        title: "Requests",
        exchange: Exchange::Calls,
        one_leg: true,
        agent_does: ["requests blocks", "serves blocks"],
        not_with_iperf3: Some(
            "an iperf3 server has no blocks: ask a linerate agent or an NFS server",
        ),
        not_judged: Some([
            "blocks have no verdict: their storage is not the network's",
            "write workload = \"bulk\" or \"request\"",
        ]),
    };

    fn check(&self, streams: u32) -> Result<(), String> {
        within("blocks", self.block, Blocks::SMALLEST, MAX_MESSAGE)?;
        let known = |one: &BlockOperation| *one != BlockOperation::Getattr;
        if self.mix.is_empty() || self.mix.len() > MAX_MIX || !self.mix.iter().all(known) {
            return Err(format!(
                "1 to {MAX_MIX} reads, writes and commits in turn are possible"
            ));
        }
        let all = u64::from(self.depth) * u64::from(streams);
        if !(1..=Blocks::DEEPEST).contains(&self.depth)
            || all > MAX_OUTSTANDING
            || all * self.block.0 > MAX_HELD.0
        {
            return Err(format!(
                "{} blocks of {} outstanding on each of {streams} connections: 1 to {} are possible, {MAX_OUTSTANDING} in all, and {MAX_HELD} of them",
                self.depth,
                self.block,
                Blocks::DEEPEST
            ));
        }
        Ok(())
    }
}
