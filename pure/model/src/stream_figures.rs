//! The figures of one direction of a connection: one account of its packets, the same in every output.

use crate::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Where packets were observed, seen from the sender of a direction. One answer for all connections of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vantage {
    /// On the sender's host.
    AtSender,
    /// On the receiver's host.
    AtReceiver,
    /// On neither.
    Between,
    /// Nothing in the packets shows it.
    #[default]
    Unknown,
}

/// What the packets of one direction of a connection show. `explain`, `explain --requests`, `diff` and `report` print the
/// same value, computed by the same code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamFigures {
    /// Sender of the data.
    pub sender: SocketAddr,
    /// Receiver of the data.
    pub receiver: SocketAddr,
    /// Where the packets were observed.
    pub vantage: Vantage,
    /// Segments with data, retransmissions included; segments that offload joined are counted one by one.
    pub segments: u64,
    /// Of them, retransmissions.
    pub retransmissions: u64,
    /// Of these, retransmissions of data that had arrived, as far as DSACK (RFC 2883), acknowledgements, or a capture at
    /// the peer show.
    pub needless_retransmissions: u64,
    /// Segments that arrived out of order without being retransmissions.
    pub reordered: u64,
    /// Packets that the capture itself recorded twice: the same IP identification and sequence number. Counted nowhere else.
    pub capture_duplicates: u64,
    /// Bytes that were acknowledged and are not in the capture: the capture lost them.
    #[serde(rename = "unseen_bytes")]
    pub unseen: Bytes,
    /// The smallest round trip between the observer and the receiver, the part to the sender included where it is known.
    #[serde(rename = "min_rtt_ns")]
    pub min_rtt: Option<Nanos>,
    /// Time in which the sender waited for acknowledgements that the receiver delayed (RFC 1122, 4.2.3.2).
    #[serde(rename = "delayed_ack_ns")]
    pub delayed_ack: Nanos,
    /// What a capture or trace at the peer adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathFigures>,
}

/// What two captures or traces of a connection, one at each end, show of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathFigures {
    /// Bytes that left the first place and never reached the second, retransmissions included.
    #[serde(rename = "lost_bytes")]
    pub lost: Bytes,
    /// One-way delay of the data beyond the smallest: median.
    #[serde(rename = "forward_queueing_median_ns")]
    pub forward_median: Nanos,
    /// The same: largest.
    #[serde(rename = "forward_queueing_max_ns")]
    pub forward_max: Nanos,
    /// One-way delay of the acknowledgements beyond the smallest: median.
    #[serde(rename = "reverse_queueing_median_ns")]
    pub reverse_median: Nanos,
    /// The same: largest.
    #[serde(rename = "reverse_queueing_max_ns")]
    pub reverse_max: Nanos,
    /// Error bound of each of these delays: the clock drift that is left after the fit.
    #[serde(rename = "error_ns")]
    pub error: Nanos,
}
