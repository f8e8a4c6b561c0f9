//! What was done and seen: one execution, kept whole.

use crate::request::Links;
use crate::{
    BlockRecord, Bytes, Direction, Fingerprint, Latency, Nanos, NodeId, Sample, Side,
    SocketOptions, Spec, StoreRecord, TraceSource,
};
use serde::{Deserialize, Serialize};

/// Version of the JSON form of [`Run`]; raised when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Name of a run in the archive: 32 hexadecimal digits (8 in older archives).
pub type RunId = String;

/// One execution of a [`Spec`]: the request, the fingerprints of both hosts, and their samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Version of this form.
    pub schema: u32,
    /// Name in the archive: 32 hexadecimal digits (8 in older archives).
    pub id: RunId,
    /// Start, nanoseconds since 1970-01-01 UTC.
    #[serde(rename = "started_unix_ns")]
    pub started: Nanos,
    /// The remote host as the user named it.
    pub host: String,
    /// A note of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The experiment that it is part of, by its name in the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// The requested measurement.
    pub spec: Spec,
    /// Id of the key of the local host, as `linerate trust show` prints it there; absent if it has no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_id: Option<NodeId>,
    /// The same of the remote host, authenticated by TLS; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<NodeId>,
    /// The host of the command.
    pub local: Fingerprint,
    /// The remote host; `None` if not reported (by a stock iperf3 server).
    pub remote: Option<Fingerprint>,
    /// One direction each, in the order of their start.
    pub legs: Vec<Leg>,
    /// Doubts about the whole run.
    pub warnings: Vec<Warning>,
    /// How it ended.
    pub ended: Ended,
}

/// A run of which nothing is known yet.
impl Default for Run {
    fn default() -> Run {
        Run {
            schema: SCHEMA_VERSION,
            id: RunId::new(),
            started: Nanos(0),
            host: String::new(),
            title: None,
            experiment: None,
            spec: Spec::default(),
            local_id: None,
            remote_id: None,
            local: Fingerprint::default(),
            remote: None,
            legs: Vec::new(),
            warnings: Vec::new(),
            ended: Ended::Unfinished,
        }
    }
}

impl Run {
    /// What distinguishes the local host from others: the id of its key, or else its name.
    pub fn local_key(&self) -> String {
        key(self.local_id, &self.local.hostname)
    }

    /// The same of the remote host, which is called as the user named it.
    pub fn remote_key(&self) -> String {
        key(self.remote_id, &self.host)
    }

    /// The links between the hosts as their devices report them: the slower of the two, and no more than one of them.
    pub fn links(&self) -> Links {
        let hosts = [Some(&self.local), self.remote.as_ref()]
            .into_iter()
            .flatten();
        let speeds = hosts.filter_map(|host| host.device.as_ref()?.speed);
        Links {
            rate: speeds.min(),
            ..Links::default()
        }
    }
}

fn key(id: Option<NodeId>, name: &str) -> String {
    id.map_or_else(|| name.to_owned(), |id| id.to_string())
}

/// One direction of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leg {
    /// Which way the data (or the requests) went.
    pub direction: Direction,
    /// Start, since the start of the run.
    #[serde(rename = "started_ns")]
    pub started: Nanos,
    /// What the end on the host of the command saw.
    pub local: EndRecord,
    /// What the peer saw; empty where it does not report.
    pub remote: EndRecord,
    /// How it ended.
    pub ended: Ended,
}

impl Leg {
    /// The record of one side.
    pub fn end(&self, side: Side) -> &EndRecord {
        match side {
            Side::Local => &self.local,
            Side::Remote => &self.remote,
        }
    }

    /// The end that sent the data (for requests: the client).
    pub fn sender(&self) -> &EndRecord {
        self.end(self.direction.sender())
    }

    /// The end that received the data (for requests: the server).
    pub fn receiver(&self) -> &EndRecord {
        self.end(self.direction.sender().other())
    }
}

/// The record of one host of a leg.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndRecord {
    /// The options of the live sockets, read back once connected.
    pub sockets: Vec<SocketOptions>,
    /// From the start of the leg; the first at time zero, the last when the leg ended. Of a long leg an evenly
    /// thinned part of them; `runs export` has all.
    pub samples: Vec<Sample>,
    /// How many were taken, where `samples` are a part of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinned_from: Option<u64>,
    /// Application bytes in all; more exact than the last sample.
    pub bytes: Bytes,
    /// From the first byte to the last.
    #[serde(rename = "duration_ns")]
    pub duration: Nanos,
    /// From the first byte sent until everything was acknowledged (sender of a bulk transfer of a set size); `None`: not
    /// measured.
    #[serde(rename = "acknowledged_ns", skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Nanos>,
    /// All request latencies (client of the request workload).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Latency>,
    /// The same by operation (blocks).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<BlockRecord>,
    /// Retransmissions, as a number from a host that reports no TCP_INFO (stock iperf3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Counts of datagrams (UDP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
    /// More about them, at their receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// Storage of this host (copy workload).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyRecord>,
    /// Backing store of the blocks, at their server (blocks).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreRecord>,
    /// Errors of this host's line, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<LineErrors>,
    /// The trace of this host's data sockets, where one was taken; it is kept beside the archive
    /// (`runs.db.traces`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Traced>,
    /// Doubts about the figures of this host.
    pub warnings: Vec<Warning>,
    /// The signature of this host, where TLS authenticated both hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signature>,
}

/// A host's signature of its report of a leg: samples, sockets, counts and times, not the warnings
/// (docs/safety.md). `linerate runs verify` compares it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// Public key of the host (Ed25519, the one of its TLS), 64 hexadecimal digits.
    pub key: String,
    /// Identifies the leg, the same at both hosts: SHA-256 of the token of its data connections.
    pub leg: String,
    /// When it was signed by the host's clock, nanoseconds since 1970-01-01 UTC.
    #[serde(rename = "at_unix_ns")]
    pub at: Nanos,
    /// The signature, 128 hexadecimal digits.
    pub signature: String,
}

/// Errors that a device counted during a leg, of all its frames (`struct rtnl_link_stats64`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LineErrors {
    /// The device.
    pub device: String,
    /// Frames that arrived damaged: a wrong checksum, a broken end, a wrong length.
    pub damaged: u64,
    /// Collisions while it sent. A half-duplex line has them; what collided is retransmitted by the device.
    pub collisions: u64,
    /// Frames lost by a collision after their first 64 bytes: the peer sends in full duplex.
    pub late_collisions: u64,
}

impl LineErrors {
    /// What came since an earlier look at the device; `None` if nothing did.
    pub fn since(&self, before: &LineErrors) -> Option<LineErrors> {
        let grown = LineErrors {
            device: self.device.clone(),
            damaged: self.damaged.saturating_sub(before.damaged),
            collisions: self.collisions.saturating_sub(before.collisions),
            late_collisions: self.late_collisions.saturating_sub(before.late_collisions),
        };
        let any = grown.damaged + grown.collisions + grown.late_collisions > 0;
        (any && self.device == before.device).then_some(grown)
    }
}

/// A trace of the data sockets of one host of a leg; the events themselves are kept beside the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Where its events come from.
    pub source: TraceSource,
    /// Events that are kept.
    pub events: u64,
    /// Events that the tracing lost.
    pub lost: u64,
    /// From the beginning of the trace, before the connections were made, to its last event.
    #[serde(rename = "span_ns")]
    pub span: Nanos,
    /// It reached its largest size, and has nothing of what came after.
    pub cut: bool,
}

/// One end of a copy: its storage, and the ring of blocks between the storage and the network, each with a
/// thread of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CopyRecord {
    /// From the start of the load until this host's storage was finished: at the receiver, until
    /// the copy was safe.
    #[serde(rename = "span_ns")]
    pub span: Nanos,
    /// Until the network was finished at this host.
    #[serde(rename = "transfer_ns")]
    pub transfer: Nanos,
    /// The storage's own thread read or wrote, hashing included, `fsync` not.
    #[serde(rename = "working_ns")]
    pub working: Nanos,
    /// Of this: hashing.
    #[serde(rename = "hashing_ns")]
    pub hashing: Nanos,
    /// Waits for room in the ring: at the sender of the storage, at the receiver of the network.
    #[serde(rename = "ring_full_ns")]
    pub ring_full: Nanos,
    /// Waits for data in the ring: at the sender of the network, at the receiver of the storage.
    #[serde(rename = "ring_empty_ns")]
    pub ring_empty: Nanos,
    /// Making the written file safe (`fsync`); `None`: nothing to make safe.
    #[serde(rename = "fsync_ns")]
    pub fsync: Option<Nanos>,
    /// XXH3 of 128 bits of all bytes, hexadecimal; empty if the end was not reached.
    pub hash: String,
    /// At the receiver: length and hash are the sender's; `None`: it did not come to that.
    pub verified: Option<bool>,
    /// At the receiver: the new file is in its place.
    pub kept: bool,
    /// Why the storage failed, if it did.
    pub failed: Option<String>,
    /// Share of the file that the page cache held before, 0 to 1; `None`: memory, or not reported.
    pub cached_before_share: Option<f64>,
    /// The same afterwards.
    pub cached_after_share: Option<f64>,
}

/// Datagrams, as one host counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Datagrams {
    /// Sent, or expected by the highest sequence number seen.
    pub packets: u64,
    /// Missing at the receiver.
    pub lost: u64,
    /// Arrived behind a later one.
    pub out_of_order: u64,
    /// Interarrival jitter (RFC 3550, 6.4.1; the same as RFC 1889).
    #[serde(rename = "jitter_ns")]
    pub jitter: Nanos,
}

impl Datagrams {
    /// Missing by those expected, 0 to 1; `None` if none was expected.
    pub fn lost_share(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.lost as f64 / self.packets as f64)
    }
}

/// Datagrams as a linerate host received them, all streams together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// That arrived, each counted once.
    pub received: u64,
    /// Copies of datagrams that had arrived, and those that came 131,072 numbers late.
    pub duplicates: u64,
    /// Of the missing ones: dropped by the receiver's own socket, which had no room (`SO_RXQ_OVFL`). The kernel counts
    /// messages of up to 64 datagrams (`UDP_GRO`), so this is the most that it can have been.
    pub dropped: u64,
    /// Runs of missing datagrams with consecutive numbers.
    pub loss_events: u64,
    /// Datagrams of the longest such run.
    pub longest_loss: u64,
    /// One-way delays above the smallest of their stream (RFC 5481, 4.2), within 1 %. The clocks of both hosts need
    /// not agree; what they drift apart during the leg is in it.
    pub delay_variation: Latency,
}

impl Arrivals {
    /// Both together.
    pub fn merged(&self, other: &Arrivals) -> Arrivals {
        Arrivals {
            received: self.received.saturating_add(other.received),
            duplicates: self.duplicates.saturating_add(other.duplicates),
            dropped: self.dropped.saturating_add(other.dropped),
            loss_events: self.loss_events.saturating_add(other.loss_events),
            longest_loss: self.longest_loss.max(other.longest_loss),
            delay_variation: self.delay_variation.merged(&other.delay_variation),
        }
    }
}

/// A doubt, as data: what happened, what it means for the number, what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Warning {
    /// What happened.
    pub what: String,
    /// What it means for the figures.
    pub meaning: String,
    /// What to do.
    pub remedy: String,
}

/// How a run or a leg ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ended {
    /// Still running, or its process was killed: what is there is what was seen.
    Unfinished,
    /// As ordered.
    Complete,
    /// The user stopped it.
    Interrupted,
    /// It failed, with the reason.
    Failed {
        /// What happened, to what, and what to do.
        why: String,
    },
}

impl Ended {
    /// Its name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Ended::Unfinished => "unfinished",
            Ended::Complete => "complete",
            Ended::Interrupted => "interrupted",
            Ended::Failed { .. } => "failed",
        }
    }
}
