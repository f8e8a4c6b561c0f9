//! What the emulator has to know of a frame, and what it does to one: cut a super-packet into the frames
//! that a wire would carry, complete checksums, mark congestion.

use emulate::{ETHERNET_HEADER, Ecn, EmulatedPacket};
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
pub struct FrameView {
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
    /// A report of the kernel on the multicast groups that a device listens to (RFC 3810). Nobody needs
    /// it here, and its time is not under control.
    pub is_listener_report: bool,
    network: usize,
    transport: usize,
    payload: usize,
    is_v6: bool,
}

/// Looks at a frame that begins with its virtio-net header. A frame that is not understood is a single
/// one of no flow.
pub fn view(framed: &[u8]) -> FrameView {
    let (header, frame) = framed.split_at(VNET_HEADER.min(framed.len()));
    let single = EmulatedPacket::frame(frame.len() as u64, ());
    let mut view = FrameView {
        wire_bytes: single.wire_bytes,
        segments: 1,
        segment_wire_bytes: single.segment_wire_bytes,
        packet_bytes: frame.len().saturating_sub(ETHERNET) as u64,
        ecn: Ecn::NotCapable,
        is_pure_ack: false,
        flow: 0,
        is_listener_report: false,
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
            let marks = frame[at] << 4 | frame[at + 1] >> 4;
            (frame[at + 6], &frame[at + 8..at + 40], marks)
        }
        _ => return view,
    };
    if view.transport < at + 20 || view.transport > frame.len() {
        // A header that lies about its own length.
        return FrameView {
            transport: view.network,
            ..view
        };
    }
    view.ecn = match marks & 3 {
        0 => Ecn::NotCapable,
        3 => Ecn::Marked,
        _ => Ecn::Capable,
    };
    // Behind a hop-by-hop header of eight bytes there is ICMPv6.
    view.is_listener_report = view.is_v6
        && protocol == 0
        && frame.get(view.transport) == Some(&58)
        && matches!(frame.get(view.transport + 8), Some(130..=132 | 143));
    let ports = match protocol {
        6 | 17 => frame.get(view.transport..view.transport + 4),
        _ => None,
    };
    let parts = [addresses, &[protocol], ports.unwrap_or(&[])];
    // The same on every machine and for ever, as a recorded seed wants it.
    view.flow = model::seed_of(parts.into_iter().flatten().copied());
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
        let whole = EmulatedPacket::segmented(view.payload as u64, payload as u64, size as u64, ());
        view.segments = whole.segments;
        view.segment_wire_bytes = whole.segment_wire_bytes;
        view.wire_bytes = whole.wire_bytes;
        view.packet_bytes = (view.payload - view.network + size.min(payload)) as u64;
    }
    view
}

/// A part of a super-packet: these segments of it, as a smaller super-packet, or as the single frame that
/// a wire would carry, whose checksum is complete. A frame that is no super-packet is its own only part.
pub fn part(framed: &[u8], view: &FrameView, segments: Range<u32>) -> Vec<u8> {
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
    // A single frame leaves no offload to do.
    let header = if is_single { &[0; VNET_HEADER] } else { header };
    let mut part = [header, head, &payload[start..end]].concat();
    let bytes = &mut part[VNET_HEADER..];

    let length = bytes.len() - view.network;
    if view.is_v6 {
        put16(bytes, view.network + 4, (length - 40) as u16);
    } else {
        put16(bytes, view.network + 2, length as u16);
        let id = be16(bytes, view.network + 4).unwrap_or(0);
        let id = id.wrapping_add(segments.start as u16);
        put16(bytes, view.network + 4, id);
        update_header_sum(bytes, view);
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

/// Marks a frame "congestion experienced" (RFC 3168), and corrects the checksum of an IPv4 header.
pub fn mark_congestion(framed: &mut [u8], view: &FrameView) {
    let frame = &mut framed[VNET_HEADER..];
    let at = view.network;
    if view.is_v6 {
        frame[at + 1] |= 0x30;
    } else {
        frame[at + 1] |= 3;
        update_header_sum(frame, view);
    }
}

fn update_header_sum(frame: &mut [u8], view: &FrameView) {
    put16(frame, view.network + 10, 0);
    let sum = !fold(add(0, &frame[view.network..view.transport]));
    put16(frame, view.network + 10, sum);
}

fn pseudo_header(frame: &[u8], view: &FrameView, protocol: u8) -> u64 {
    let (from, to) = if view.is_v6 { (8, 40) } else { (12, 20) };
    let addresses = view.network + from..view.network + to;
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

/// The virtio-net header of a packet socket is in the order of the machine.
fn gso_size(header: &[u8]) -> u16 {
    let size = header.get(4..6).filter(|_| header.len() >= VNET_HEADER);
    size.map_or(0, |size| u16::from_ne_bytes([size[0], size[1]]))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([two[0], two[1]]))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A super-packet of TCP over IPv4 or IPv6 with `payload` bytes in segments of 1000.
    fn super_packet(is_v6: bool, payload: usize) -> Vec<u8> {
        let network = ETHERNET;
        let transport = network + if is_v6 { 40 } else { 20 };
        let head = transport + 32;
        let mut frame = vec![0; head];
        let length = (head - transport + payload) as u16;
        if is_v6 {
            put16(&mut frame, 12, 0x86dd);
            frame[network] = 0x60;
            frame[network + 1] = 0x20;
            put16(&mut frame, network + 4, length);
            frame[network + 6] = 6;
            frame[network + 8..network + 40].fill(0x21);
        } else {
            put16(&mut frame, 12, 0x0800);
            frame[network] = 0x45;
            frame[network + 1] = 2;
            put16(&mut frame, network + 2, length + 20);
            put16(&mut frame, network + 4, 0xfffe);
            frame[network + 9] = 6;
            frame[network + 12..network + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        }
        put16(&mut frame, transport, 40_000);
        put16(&mut frame, transport + 2, 5201);
        frame[transport + 4..transport + 8].copy_from_slice(&0xffff_fff0u32.to_be_bytes());
        frame[transport + 12] = 8 << 4;
        // CWR, ACK, PSH, FIN.
        frame[transport + 13] = 0x80 | 0x10 | 0x08 | 0x01;
        frame.extend((0..payload).map(|n| (n * 7 / 3) as u8));
        let mut framed = vec![0; VNET_HEADER];
        framed[0] = 1;
        framed[1] = if is_v6 { GSO_TCP6 } else { GSO_TCP4 };
        framed[4..6].copy_from_slice(&1000u16.to_ne_bytes());
        framed[6..8].copy_from_slice(&(transport as u16).to_ne_bytes());
        framed[8..10].copy_from_slice(&16u16.to_ne_bytes());
        framed.extend(frame);
        framed
    }

    #[test]
    fn a_super_packet_takes_the_wire_of_its_segments() {
        for (is_v6, headers) in [(false, 66), (true, 86)] {
            let view = view(&super_packet(is_v6, 2500));
            assert_eq!(view.segments, 3);
            assert_eq!(view.segment_wire_bytes, 1000 + headers + 24);
            assert_eq!(view.wire_bytes, 2500 + 3 * (headers + 24));
            assert_eq!(view.packet_bytes, 1000 + headers - 14);
            assert_eq!(view.ecn, Ecn::Capable);
            assert!(!view.is_pure_ack);
        }
    }

    #[test]
    fn single_frames_are_complete_and_join_to_the_whole() {
        for is_v6 in [false, true] {
            let whole = super_packet(is_v6, 2500);
            let of_whole = view(&whole);
            let mut joined = Vec::new();
            for segment in 0..3 {
                let single = part(&whole, &of_whole, segment..segment + 1);
                let of_single = view(&single);
                let frame = &single[VNET_HEADER..];
                assert_eq!(&single[..VNET_HEADER], &[0; VNET_HEADER]);
                assert_eq!(of_single.segments, 1);
                assert_eq!(of_single.flow, of_whole.flow);
                assert_eq!(
                    of_single.network + ip_length(frame, of_single.network, is_v6),
                    frame.len()
                );
                if !is_v6 {
                    // A right sum makes the whole header sum to zero (RFC 1071).
                    assert_eq!(
                        !fold(add(0, &frame[of_single.network..of_single.transport])),
                        0
                    );
                    assert_eq!(
                        be16(frame, 18),
                        Some(0xfffeu16.wrapping_add(segment as u16))
                    );
                }
                let sum = add(
                    pseudo_header(frame, &of_single, 6),
                    &frame[of_single.transport..],
                );
                assert_eq!(!fold(sum), 0);
                let at = of_single.transport;
                let sequence = u32::from_be_bytes(frame[at + 4..at + 8].try_into().unwrap());
                assert_eq!(sequence, 0xffff_fff0u32.wrapping_add(segment * 1000));
                let flags = [0x90, 0x10, 0x19][segment as usize];
                assert_eq!(frame[at + 13], flags);
                joined.extend_from_slice(&frame[of_single.payload..]);
            }
            assert_eq!(joined, &whole[VNET_HEADER + of_whole.payload..]);
        }
    }

    #[test]
    fn what_is_left_can_go_on_as_a_smaller_super_packet() {
        let whole = super_packet(false, 2500);
        let rest = part(&whole, &view(&whole), 1..3);
        let of_rest = view(&rest);
        assert_eq!(of_rest.segments, 2);
        assert_eq!(rest[..VNET_HEADER], whole[..VNET_HEADER]);
        let frame = &rest[VNET_HEADER..];
        let sum = fold(pseudo_header(frame, &of_rest, 6));
        assert_eq!(be16(frame, of_rest.transport + 16), Some(sum));
    }

    #[test]
    fn a_mark_keeps_the_header_right() {
        let mut framed = super_packet(false, 100);
        let before = view(&framed);
        mark_congestion(&mut framed, &before);
        assert_eq!(view(&framed).ecn, Ecn::Marked);
        let frame = &framed[VNET_HEADER..];
        assert_eq!(!fold(add(0, &frame[before.network..before.transport])), 0);
        let mut framed = super_packet(true, 100);
        mark_congestion(&mut framed, &view(&super_packet(true, 100)));
        assert_eq!(view(&framed).ecn, Ecn::Marked);
    }

    #[test]
    fn a_pure_acknowledgement_carries_nothing_else() {
        let ack = |options: &[u8], flags: u8| {
            let mut framed = super_packet(false, 0);
            framed[1] = 0;
            let transport = VNET_HEADER + ETHERNET + 20;
            framed[transport + 13] = flags;
            framed[transport + 20..transport + 20 + options.len()].copy_from_slice(options);
            // Padding of a short frame is no payload.
            framed.extend([0; 6]);
            view(&framed).is_pure_ack
        };
        let timestamps = [1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(ack(&timestamps, 0x10));
        assert!(!ack(&timestamps, 0x12));
        assert!(!ack(&[1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 0], 0x10));
        assert!(!view(&super_packet(false, 1)).is_pure_ack);
    }

    #[test]
    fn what_is_cut_short_or_strange_is_a_frame() {
        let whole = super_packet(true, 1200);
        for length in 0..whole.len() {
            let view = view(&whole[..length]);
            assert!(view.segments <= 2);
        }
        assert_eq!(view(&[0xff; 200]).segments, 1);
        let mut liar = super_packet(false, 2500);
        liar[VNET_HEADER + ETHERNET] = 0x4f;
        liar.truncate(VNET_HEADER + ETHERNET + 30);
        assert_eq!(view(&liar).ecn, Ecn::NotCapable);
    }
}
