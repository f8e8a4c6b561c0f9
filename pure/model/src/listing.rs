//! What the script `tcp.d` of DTrace printed of one connection, segment by segment.

use crate::{Bytes, Nanos};

/// The lines of a listing, in true order as far as that can be known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Its segments.
    pub rows: Vec<Row>,
    /// How they came into this order.
    pub order: Order,
    /// Lines that are no segments: headings, and what somebody wrote beside them.
    pub skipped: u64,
}

/// How the lines of a listing were put in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they were printed; nothing speaks against it.
    #[default]
    Printed,
    /// By the timestamps that were printed too.
    Sorted {
        /// Lines that had stood behind later ones.
        moved: u64,
    },
    /// Of several processors, each in its own order, without timestamps: what followed what between them
    /// cannot be known.
    Unknown,
}

/// One segment as it was printed; `None` where there was no such column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Since the first line.
    pub at: Nanos,
    /// By the host that was traced; else it received it.
    pub sent: bool,
    /// What it carried.
    pub bytes: Bytes,
    /// Processor on which it was printed.
    pub cpu: Option<u32>,
    /// Bytes that were sent and not acknowledged.
    pub unacked: Option<Bytes>,
    /// The windows and the threshold.
    pub windows: Option<Windows>,
}

/// What a socket's windows were at a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The peer's receive window.
    pub send: Bytes,
    /// This end's.
    pub receive: Bytes,
    /// The congestion window.
    pub congestion: Bytes,
    /// The threshold of slow start; `None` while it is not set.
    pub threshold: Option<Bytes>,
}
