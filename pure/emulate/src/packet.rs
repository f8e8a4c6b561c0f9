//! A packet as a pipe sees it.

use model::Nanos;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes on an Ethernet wire that no packet capture shows: preamble and start delimiter 8, frame
/// check sequence 4, gap between frames 12 (IEEE 802.3).
pub const FRAME_OVERHEAD: u64 = 24;

/// Ethernet header in bytes, without VLAN tag.
pub const ETHERNET_HEADER: u64 = 14;

/// Smallest Ethernet frame in bytes, without frame check sequence: shorter ones are padded.
const SHORTEST_FRAME: u64 = 60;

/// What a frame (Ethernet header to the end of the payload, as a packet socket sees it) takes on the wire.
pub fn wire_bytes_of_frame(frame: u64) -> u64 {
    frame.max(SHORTEST_FRAME) + FRAME_OVERHEAD
}

/// A frame, or a super-packet of several frames that differ only in sequence numbers (GSO).
///
/// All segments but the last have the same size. `T` is the caller's: the bytes, or a handle.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatedPacket<T> {
    /// The whole packet on the wire: each of its frames with headers and [`FRAME_OVERHEAD`].
    pub wire_bytes: u64,
    /// Frames that it makes on the wire, at least 1.
    pub segments: u32,
    /// Bytes on the wire of each segment but the last, which takes the rest.
    pub segment_wire_bytes: u64,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
    /// A TCP segment without payload, SYN, FIN and RST, and without SACK blocks: one that a later
    /// one of the same flow replaces.
    pub is_pure_ack: bool,
    /// Identifies the flow: a hash of addresses and ports.
    pub flow: u64,
    /// The packet itself, carried along untouched.
    pub body: T,
}

/// The ECN field of an IP header (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecn {
    /// 00: drop, do not mark.
    #[default]
    NotCapable,
    /// 01 or 10: may be marked.
    Capable,
    /// 11: already marked.
    Marked,
}

/// A packet that has come through, now.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery<T> {
    /// When it was due; the difference to now is the caller's lateness.
    pub due: Nanos,
    /// Set "congestion experienced" (11) in the IP header before passing it on.
    pub mark: bool,
    /// Which of its segments survived.
    pub kept: KeptSegments,
    /// The offered packet.
    pub packet: EmulatedPacket<T>,
}

/// Which segments of a super-packet survived. The rule for the caller: [`Kept::Whole`] is passed on
/// unchanged; otherwise it is cut, and only the segments in the ranges are passed on, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptSegments {
    /// All.
    Whole,
    /// These, from 0, ascending, never empty; each range can go on as a smaller super-packet.
    Some(Vec<Range<u32>>),
}

impl<T> EmulatedPacket<T> {
    /// A single frame, by its length as a packet socket sees it (Ethernet header to the end).
    pub fn frame(frame_bytes: u64, body: T) -> EmulatedPacket<T> {
        let wire = wire_bytes_of_frame(frame_bytes);
        EmulatedPacket {
            wire_bytes: wire,
            segments: 1,
            segment_wire_bytes: wire,
            ecn: Ecn::NotCapable,
            is_pure_ack: false,
            flow: 0,
            body,
        }
    }

    /// A super-packet: `headers` bytes (Ethernet, IP, TCP) that each segment carries, `payload` bytes in
    /// all, cut every `segment` bytes of payload (virtio-net's `hdr_len` and `gso_size`).
    pub fn segmented(headers: u64, payload: u64, segment: u64, body: T) -> EmulatedPacket<T> {
        let segment = segment.max(1);
        let segments = payload.div_ceil(segment).max(1);
        let full = wire_bytes_of_frame(headers + segment.min(payload));
        let last = wire_bytes_of_frame(headers + payload - (segments - 1) * segment);
        EmulatedPacket {
            wire_bytes: full * (segments - 1) + last,
            segments: u32::try_from(segments).unwrap_or(u32::MAX),
            segment_wire_bytes: full,
            ..EmulatedPacket::frame(0, body)
        }
    }
}

/// Bytes of the IP packet in a frame that takes so many on the wire (padding counts as packet).
pub(crate) fn ip_bytes(wire: u64) -> u64 {
    wire.saturating_sub(FRAME_OVERHEAD + ETHERNET_HEADER)
}
