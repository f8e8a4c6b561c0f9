//! Measurements between two agents that a third host orders: the coordinator holds both, confirms both, and has one of
//! them, the source, measure towards the other, the destination.
//!
//! Times are relative to the message, so no clocks are compared. An agent books its whole host in its own calendar and
//! refuses what overlaps, whatever a coordinator claims. It takes the source's key for the time of the slot alone.

use model::{Direction, IpVersion, Nanos, NodeId, RunId, Sample, Side, Spec, Warning};
use serde::{Deserialize, Serialize};

/// Longest time until a slot begins.
pub const MAX_AHEAD: Nanos = Nanos::from_secs(24 * 3600);

/// Longest slot.
pub const MAX_SPAN: Nanos = Nanos::from_secs(3600);

/// Longest slot for light probes.
pub const MAX_LIGHT_SPAN: Nanos = Nanos::from_secs(24 * 3600);

/// Longest time for which an unconfirmed slot is held.
pub const MAX_TTL: Nanos = Nanos::from_secs(60);

/// Slots of one coordinator at an agent.
pub const MAX_SLOTS: usize = 64;

/// Runs of one [`DirectAnswer::Kept`].
pub const MAX_KEPT: usize = 64;

/// Longest document of a run, in bytes.
pub const MAX_DOCUMENT: usize = 64 << 20;

/// What a host does in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotRole {
    /// It measures towards the other one.
    Source,
    /// It is measured.
    Destination,
    /// It sends light probes to other hosts in slots of this kind, and answers theirs. Nothing is booked.
    Light,
}

/// Where a host answers light probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LightPort {
    /// UDP port.
    pub port: u16,
    /// Makes it answer, and nothing else; hexadecimal.
    pub token: String,
}

/// A host to which light probes are to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LightPeer {
    /// Name or address, without brackets.
    pub name: String,
    /// Where it answers, as it reported when it was held.
    pub at: LightPort,
}

/// What came of light probes to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LightResult {
    /// Numbered packets that were sent.
    pub sent: u32,
    /// Those that arrived there.
    pub came: u32,
    /// Smallest RTT.
    #[serde(rename = "rtt_min_ns")]
    pub rtt_min: Option<Nanos>,
    /// Median RTT.
    #[serde(rename = "rtt_p50_ns")]
    pub rtt_p50: Option<Nanos>,
    /// 95th percentile of the RTT.
    #[serde(rename = "rtt_p95_ns")]
    pub rtt_p95: Option<Nanos>,
    /// The largest size that arrived, in bytes of the IP packet.
    pub largest: Option<u32>,
    /// Why nothing was sent, if nothing was.
    pub why: Option<String>,
}

/// Where a source finds its destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// Name or address, without brackets.
    pub name: String,
    /// Port of its control connections.
    pub port: u16,
    /// Its key: the one that the slot was held with.
    pub id: NodeId,
}

/// From the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum DirectRequest {
    /// Report the key of this host and the port of its control connections; an agent that ssh started makes the one and
    /// opens the other for it.
    Key,
    /// Book the host. Ends by itself after `ttl` unless it is confirmed; a confirmed slot that is not used within
    /// `ttl` of its beginning ends as well.
    Hold {
        /// Its name, the same at both hosts: 32 random hexadecimal digits. The run is called like it.
        slot: String,
        /// Beginning, from now; up to [`MAX_AHEAD`].
        #[serde(rename = "after_ns")]
        after: Nanos,
        /// Length, up to [`MAX_SPAN`], of light probes up to [`MAX_LIGHT_SPAN`].
        #[serde(rename = "span_ns")]
        span: Nanos,
        /// Up to [`MAX_TTL`].
        #[serde(rename = "ttl_ns")]
        ttl: Nanos,
        /// Key of the other host of the slot; light probes have many.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<NodeId>,
        /// What this host does.
        role: SlotRole,
        /// The run copies to or from files, as far as the coordinator may use files there.
        #[serde(default)]
        files: bool,
    },
    /// The slot stays until its end.
    Confirm {
        /// Its name.
        slot: String,
    },
    /// The slot is over; a run in it is stopped, and kept as far as it came.
    Release {
        /// Its name.
        slot: String,
    },
    /// Measure towards the destination, once, in a confirmed slot that has begun. Answered when it is over, with
    /// [`super::ToController::Progress`] before; what it measured is kept in the archive of this host.
    Play {
        /// Its name.
        slot: String,
        /// What to measure; the local host of it is the source.
        spec: Box<Spec>,
        /// Towards whom.
        to: Destination,
        /// Longest outage of the path that its legs are to survive.
        #[serde(default, rename = "outage_ns")]
        outage: Nanos,
        /// A note kept with the run.
        title: Option<String>,
    },
    /// Find the path MTU to and from the destination, once, in a confirmed slot that has begun. What was found is kept and
    /// fetched as a run.
    Mtu {
        /// Its name.
        slot: String,
        /// The other host.
        to: Destination,
        /// Of its address; absent: its first address.
        #[serde(default)]
        ip_version: Option<IpVersion>,
    },
    /// Send light probes to these hosts at the same time, in a confirmed slot for them that has begun: numbered packets of
    /// [`PACKET`](model::light::PACKET) bytes, then the largest of the sizes that passes. Only a host that has the token and returns a
    /// challenge gets any. Without hosts it reports whether this one is busy.
    Light {
        /// Its name.
        slot: String,
        /// Up to [`MAX_PEERS`](model::light::MAX_PEERS).
        peers: Vec<LightPeer>,
        /// To each, up to [`MAX_PACKETS`](model::light::MAX_PACKETS).
        packets: u32,
        /// Between two packets to the same host; all packets take [`MAX_RATE`](model::light::MAX_RATE) and
        /// [`MAX_TIME`](model::light::MAX_TIME) at most.
        #[serde(rename = "gap_ns")]
        gap: Nanos,
        /// Bytes of IP packets, up to [`MAX_SIZES`](model::light::MAX_SIZES) of them.
        sizes: Vec<u32>,
        /// Of the addresses of the hosts; absent: the first address of each.
        #[serde(default)]
        ip_version: Option<IpVersion>,
    },
    /// Which runs this coordinator ordered here and are kept, those behind that number of [`DirectedRun::number`].
    Kept {
        /// 0: from the first.
        after: u64,
    },
    /// A piece of the document of such a run.
    Document {
        /// Its name.
        run: RunId,
        /// Bytes before the piece.
        from: u64,
    },
}

/// A run that a coordinator ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectedRun {
    /// Counts the runs that it ordered at this agent, from 1.
    pub number: u64,
    /// Its name.
    pub run: RunId,
    /// SHA-256 of its document, hexadecimal.
    pub digest: String,
}

/// To the coordinator, each in turn. A request that is refused has a sentence instead, but for a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "done", rename_all = "snake_case")]
pub enum DirectAnswer {
    /// Who the host is for the other one of a slot.
    Key {
        /// Its key.
        id: NodeId,
        /// Port of its control connections.
        port: u16,
    },
    /// The slot is held.
    Held {
        /// Key of this host.
        id: NodeId,
        /// Port of its control connections.
        port: u16,
        /// Where it answers light probes, in a slot for them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        light: Option<LightPort>,
    },
    /// It is not.
    HoldRefused {
        /// Why, and what to do.
        why: String,
        /// The host is free for so long after this; absent: it never is.
        #[serde(
            rename = "free_in_ns",
            default,
            skip_serializing_if = "Option::is_none"
        )]
        free_in: Option<Nanos>,
    },
    /// The slot is confirmed.
    Confirmed,
    /// The slot is over.
    Released,
    /// The run is over, complete or not, and kept; or what was found of the MTU.
    Played {
        /// Its name, that of the slot.
        run: RunId,
        /// SHA-256 of its document, hexadecimal.
        digest: String,
    },
    /// The light probes are over.
    Lighted {
        /// Another measurement was booked on this host meanwhile.
        busy: bool,
        /// As many as hosts were named, in their order.
        peers: Vec<LightResult>,
    },
    /// The runs, by their number; [`MAX_KEPT`] at most.
    Kept {
        /// None: there are no more.
        runs: Vec<DirectedRun>,
    },
    /// A piece of a document.
    Document {
        /// At most [`super::MAX_PIECE`] bytes, in base64. Nothing: there is no more.
        data: String,
    },
}

/// What happens while a run is played.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PlayEvent {
    /// A leg begins.
    LegStarted {
        /// Position in the run.
        leg: u32,
        /// Which way.
        direction: Direction,
    },
    /// A host took a sample. Not all are reported; the document has them.
    Sample {
        /// Position of the leg in the run.
        leg: u32,
        /// The end.
        side: Side,
        /// What it saw.
        sample: Box<Sample>,
    },
    /// A doubt.
    Warning {
        /// The doubt.
        warning: Warning,
    },
    /// Something to wait for.
    Waiting {
        /// What, in words.
        what: String,
    },
}
