//! What the emulator has to know of a frame, and what it does to one: cut a super-packet into the frames
//! that a wire would carry, complete checksums, mark congestion.

use emulate::{ETHERNET_HEADER, Ecn, Packet};
use std::ops::Range;
use sys::packet::VNET_HEADER;

const ETHERNET: usize = ETHERNET_HEADER as usize;
const VLAN_TAG: usize = 4;

const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set beside the type if the first segment carries CWR.
const GSO_ECN: u8 = 0x80;

/// A frame as a path sees it. Offsets count from the frame's first byte, behind the virtio-net header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// All bytes that the wire carries for it, in all its segments.
    pub wire_bytes: u64,
    /// Frames on the wire.
    pub segments: u32,
    /// Bytes on the wire of one full segment.
    pub segment_wire_bytes: u64,
    /// Longest IP packet in it, to be held against an MTU.
    pub packet_bytes: u64,
    /// Congestion marks of the IP header.
    pub ecn: Ecn,
    /// A TCP segment that only acknowledges, and without SACK blocks: a later one replaces it.
    pub is_pure_ack: bool,
    /// The same for all packets of one flow in one direction.
    pub flow: u64,
    network: usize,
    transport: usize,
    payload: usize,
    is_v6: bool,
}

/// Looks at a frame that begins with its virtio-net header. A frame that is not understood is a single
/// one of no flow.
pub fn view(framed: &[u8]) -> View {
    let (header, frame) = framed.split_at(VNET_HEADER.min(framed.len()));
    let single = Packet::frame(frame.len() as u64, ());
    let mut view = View {
        wire_bytes: single.wire_bytes,
        segments: 1,
        segment_wire_bytes: single.segment_wire_bytes,
        packet_bytes: frame.len().saturating_sub(ETHERNET) as u64,
        ecn: Ecn::NotCapable,
        is_pure_ack: false,
        flow: 0,
        network: ETHERNET,
        transport: ETHERNET,
        payload: frame.len(),
        is_v6: false,
    };
    let mut kind = be16(frame, 12);
    while matches!(kind, Some(0x8100 | 0x88a8)) {
        view.network += VLAN_TAG;
        view.packet_bytes = view.packet_bytes.saturating_sub(VLAN_TAG as u64);
        kind = be16(frame, view.network - 2);
    }
    let at = view.network;
    let (protocol, addresses, marks) = match kind {
        Some(0x0800) if frame.len() >= at + 20 => {
            view.transport = at + usize::from(frame[at] & 0xf) * 4;
            // Only the first fragment has a transport header.
            let fragment = be16(frame, at + 6).unwrap_or(0) & 0x1fff != 0;
            let protocol = if fragment { 255 } else { frame[at + 9] };
            (protocol, &frame[at + 12..at + 20], frame[at + 1])
        }
        Some(0x86dd) if frame.len() >= at + 40 => {
            view.is_v6 = true;
            view.transport = at + 40;
            (
                frame[at + 6],
                &frame[at + 8..at + 40],
                frame[at] << 4 | frame[at + 1] >> 4,
            )
        }
        _ => return view,
    };
    view.ecn = match marks & 3 {
        0 => Ecn::NotCapable,
        3 => Ecn::Marked,
        _ => Ecn::Capable,
    };
    let ports = match protocol {
        6 | 17 => frame.get(view.transport..view.transport + 4),
        _ => None,
    };
    view.flow = hash(&[addresses, &[protocol], ports.unwrap_or(&[])]);
    view.payload = match protocol {
        6 if frame.len() >= view.transport + 20 => {
            let flags = frame[view.transport + 13];
            let payload = view.transport + usize::from(frame[view.transport + 12] >> 4) * 4;
            let end = at + ip_length(frame, at, view.is_v6);
            // ACK alone, without SYN, FIN or RST; ECE and CWR say something of their own.
            view.is_pure_ack = flags & 0b1101_0111 == 0b0001_0000
                && end <= payload
                && !has_sack(frame.get(view.transport + 20..payload).unwrap_or(&[]));
            payload
        }
        17 => view.transport + 8,
        _ => view.transport,
    }
    .min(frame.len());

    let size = usize::from(gso_size(header));
    if gso_type(header) != 0 && size > 0 && frame.len() > view.payload {
        let payload = frame.len() - view.payload;
        let whole = Packet::segmented(view.payload as u64, payload as u64, size as u64, ());
        view.segments = whole.segments;
        view.segment_wire_bytes = whole.segment_wire_bytes;
        view.wire_bytes = whole.wire_bytes;
        view.packet_bytes = (view.payload - view.network + size.min(payload)) as u64;
    }
    view
}

/// A part of a super-packet: these segments of it, as a smaller super-packet, or as the single frame that
/// a wire would carry, whose checksum is complete. A frame that is no super-packet is its own only part.
pub fn part(framed: &[u8], view: &View, segments: Range<u32>) -> Vec<u8> {
    let (header, frame) = framed.split_at(VNET_HEADER);
    let kind = gso_type(header);
    let size = usize::from(gso_size(header));
    if view.segments <= 1 || !matches!(kind, GSO_TCP4 | GSO_TCP6 | GSO_UDP) {
        return framed.to_vec();
    }
    let (head, payload) = frame.split_at(view.payload);
    let start = (segments.start as usize * size).min(payload.len());
    let end = (segments.end as usize * size).min(payload.len());
    let is_single = segments.len() <= 1;
    let mut part = Vec::with_capacity(VNET_HEADER + head.len() + end - start);
    if is_single {
        // No offload is left to do.
        part.extend_from_slice(&[0; VNET_HEADER]);
    } else {
        part.extend_from_slice(header);
    }
    part.extend_from_slice(head);
    part.extend_from_slice(&payload[start..end]);
    let bytes = &mut part[VNET_HEADER..];

    let length = bytes.len() - view.network;
    if view.is_v6 {
        put16(bytes, view.network + 4, (length - 40) as u16);
    } else {
        put16(bytes, view.network + 2, length as u16);
        let id = be16(bytes, view.network + 4).unwrap_or(0);
        put16(
            bytes,
            view.network + 4,
            id.wrapping_add(segments.start as u16),
        );
        mend_header_sum(bytes, view);
    }
    let (protocol, field) = if kind == GSO_UDP {
        let length = bytes.len() - view.transport;
        put16(bytes, view.transport + 4, length as u16);
        (17, view.transport + 6)
    } else {
        let at = view.transport + 4;
        let sequence = u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let sequence = sequence.wrapping_add(start as u32);
        bytes[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        let flags = &mut bytes[view.transport + 13];
        if segments.end < view.segments {
            // FIN and PSH belong to the last byte.
            *flags &= !0x09;
        }
        if segments.start > 0 {
            // CWR belongs to the first segment (RFC 3168, section 6.1.2).
            *flags &= !0x80;
        }
        (6, view.transport + 16)
    };
    let sum = pseudo_header(bytes, view, protocol);
    if is_single {
        put16(bytes, field, 0);
        let sum = !fold(add(sum, &bytes[view.transport..]));
        put16(bytes, field, if sum == 0 { 0xffff } else { sum });
    } else {
        // The rest of the sum is the offload's.
        put16(bytes, field, fold(sum));
    }
    part
}

/// Marks a frame "congestion experienced" (RFC 3168), and mends the checksum of an IPv4 header.
pub fn mark_congestion(framed: &mut [u8], view: &View) {
    let frame = &mut framed[VNET_HEADER..];
    let at = view.network;
    if view.is_v6 {
        frame[at + 1] |= 0x30;
    } else {
        frame[at + 1] |= 3;
        mend_header_sum(frame, view);
    }
}

fn mend_header_sum(frame: &mut [u8], view: &View) {
    put16(frame, view.network + 10, 0);
    let sum = !fold(add(0, &frame[view.network..view.transport]));
    put16(frame, view.network + 10, sum);
}

fn pseudo_header(frame: &[u8], view: &View, protocol: u8) -> u64 {
    let addresses = if view.is_v6 {
        view.network + 8..view.network + 40
    } else {
        view.network + 12..view.network + 20
    };
    let length = (frame.len() - view.transport) as u64;
    add(length + u64::from(protocol), &frame[addresses])
}

/// Adds 16-bit words in network order (RFC 1071); only the last slice of a sum may be of odd length.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |b| u64::from(*b) << 8);
    let all: u64 = words
        .map(|w| u64::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    sum + all + odd
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Whether TCP options hold SACK blocks (RFC 2018: kind 5).
fn has_sack(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        options = match (kind, rest.first()) {
            (0, _) => return false,
            (1, _) => rest,
            (5, _) => return true,
            (_, Some(length)) => options.get(usize::from(*length).max(2)..).unwrap_or(&[]),
            (_, None) => return false,
        };
    }
    false
}

fn ip_length(frame: &[u8], at: usize, is_v6: bool) -> usize {
    let length = |field| usize::from(be16(frame, field).unwrap_or(0));
    if is_v6 {
        40 + length(at + 4)
    } else {
        length(at + 2)
    }
}

fn gso_type(header: &[u8]) -> u8 {
    header.get(1).map_or(0, |kind| kind & !GSO_ECN)
}

fn gso_size(header: &[u8]) -> u16 {
    if header.len() < VNET_HEADER {
        return 0;
    }
    ne16(header, 4)
}

/// The virtio-net header of a packet socket is in the order of the machine.
fn ne16(header: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([header[at], header[at + 1]])
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([two[0], two[1]]))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// FNV-1a: the same on every machine and for ever, as a recorded seed wants it.
fn hash(parts: &[&[u8]]) -> u64 {
    parts
        .iter()
        .flat_map(|part| part.iter())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}
