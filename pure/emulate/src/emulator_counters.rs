//! What a pipe did, in counters and in a bounded log.

use model::{BitRate, Nanos};
use serde::{Deserialize, Serialize};

/// A number of frames and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameTally {
    /// Frames; a super-packet counts as its segments.
    pub frames: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
}

/// What was done to the frames of one direction since it was made.
///
/// Always: offered + duplicated = delivered + all drops + waiting. Cross traffic is counted apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmulatorCounters {
    /// What came in.
    pub offered: FrameTally,
    /// What came out, copies included.
    pub delivered: FrameTally,
    /// What did not, by reason.
    pub dropped: Drops,
    /// Copies that were made.
    pub duplicated: FrameTally,
    /// Frames that were marked "congestion experienced" here; a super-packet is marked as a whole.
    pub marked: u64,
    /// Frames that came out after a later one (RFC 4737).
    pub reordered: u64,
    /// Frames inside: held, queued, on the line or under way.
    pub waiting: FrameTally,
    /// Frames in the queue.
    pub queue: QueueDepth,
    /// The deepest that the queue was.
    pub deepest: QueueDepth,
    /// Cross traffic that was sent.
    pub cross: FrameTally,
    /// Cross traffic that did not fit the queue.
    pub cross_dropped: FrameTally,
    /// The rate in force, its variation included: the shaper's, else the line's; none: without limit.
    pub rate: Option<BitRate>,
    /// Entries that the log had no room for.
    pub log_lost: u64,
}

/// Frames that did not come through, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// The queue was full.
    pub queue: FrameTally,
    /// Active queue management chose it.
    pub aqm: FrameTally,
    /// The model of loss.
    pub loss: FrameTally,
    /// Bits were wrong.
    pub bit_error: FrameTally,
    /// The policer had no tokens.
    pub policer: FrameTally,
    /// It was too large.
    pub max_frame: FrameTally,
    /// A later acknowledgement replaced it.
    pub ack_thinning: FrameTally,
}

/// Why a frame did not come through: see [`Drops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum DropCause {
    Queue,
    Aqm,
    Loss,
    BitError,
    Policer,
    MaxFrame,
    AckThinning,
}

/// How full the queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDepth {
    /// Frames.
    pub packets: u64,
    /// Bytes of IP packets.
    pub bytes: u64,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmulatorEvent {
    /// When, on the clock of the caller.
    pub at: Nanos,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened. `frame` counts the frames offered in this direction, from 1; of a packet it is the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum EventKind {
    /// A frame was dropped.
    Dropped {
        /// Which.
        frame: u64,
        /// Why.
        why: DropCause,
    },
    /// A packet came out marked.
    Marked {
        /// Which.
        frame: u64,
    },
    /// A packet came out after a later one.
    Reordered {
        /// Which.
        frame: u64,
    },
    /// A packet was doubled.
    Duplicated {
        /// Which.
        frame: u64,
    },
    /// How full the queue was, at most once in 10 ms.
    Depth {
        /// Frames.
        packets: u64,
        /// Bytes of IP packets.
        bytes: u64,
        /// Tokens in the policer, else in the shaper, in bytes.
        tokens: Option<u64>,
    },
    /// The rate changed, by its variation or by the script.
    Rate {
        /// To this; none: without limit.
        rate: Option<BitRate>,
    },
}

impl Drops {
    /// The counter of a reason.
    pub fn of(&mut self, why: DropCause) -> &mut FrameTally {
        match why {
            DropCause::Queue => &mut self.queue,
            DropCause::Aqm => &mut self.aqm,
            DropCause::Loss => &mut self.loss,
            DropCause::BitError => &mut self.bit_error,
            DropCause::Policer => &mut self.policer,
            DropCause::MaxFrame => &mut self.max_frame,
            DropCause::AckThinning => &mut self.ack_thinning,
        }
    }

    /// All reasons together.
    pub fn total(&self) -> FrameTally {
        let all = [
            self.queue,
            self.aqm,
            self.loss,
            self.bit_error,
            self.policer,
            self.max_frame,
            self.ack_thinning,
        ];
        let mut sum = FrameTally::default();
        for tally in all {
            sum.frames += tally.frames;
            sum.wire_bytes += tally.wire_bytes;
        }
        sum
    }
}

impl FrameTally {
    pub(crate) fn add(&mut self, wire_bytes: u64) {
        self.frames += 1;
        self.wire_bytes += wire_bytes;
    }

    pub(crate) fn subtract(&mut self, wire_bytes: u64) {
        self.frames -= 1;
        self.wire_bytes -= wire_bytes;
    }
}
