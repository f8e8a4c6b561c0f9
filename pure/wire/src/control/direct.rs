//! Measurements between two agents that a third host orders: the coordinator holds both, confirms both, and has one of
//! them, the source, measure towards the other, the destination.
//!
//! Times are relative to the message, so no clocks are compared. An agent books its whole host in its own calendar and
//! refuses what overlaps, whatever a coordinator claims. It takes the source's key for the time of the slot alone.

use model::{Direction, Nanos, NodeId, RunId, Sample, Side, Spec, Warning};
use serde::{Deserialize, Serialize};

/// Longest time until a slot begins.
pub const MAX_AHEAD: Nanos = Nanos::from_secs(24 * 3600);

/// Longest slot.
pub const MAX_SPAN: Nanos = Nanos::from_secs(3600);

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
    /// Book the host. Ends by itself after `ttl` unless it is confirmed; a confirmed slot that is not used within
    /// `ttl` of its beginning ends as well.
    Hold {
        /// Its name, the same at both hosts: 32 random hexadecimal digits. The run is called like it.
        slot: String,
        /// Beginning, from now; up to [`MAX_AHEAD`].
        #[serde(rename = "after_ns")]
        after: Nanos,
        /// Length, up to [`MAX_SPAN`].
        #[serde(rename = "span_ns")]
        span: Nanos,
        /// Up to [`MAX_TTL`].
        #[serde(rename = "ttl_ns")]
        ttl: Nanos,
        /// Key of the other host of the slot.
        peer: NodeId,
        /// What this host does.
        role: SlotRole,
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
    /// The slot is held.
    Held {
        /// Key of this host.
        id: NodeId,
        /// Port of its control connections.
        port: u16,
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
    /// The run is over, complete or not, and kept.
    Played {
        /// Its name, that of the slot.
        run: RunId,
        /// SHA-256 of its document, hexadecimal.
        digest: String,
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
