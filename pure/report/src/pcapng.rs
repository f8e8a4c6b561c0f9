//! Captures in pcapng (draft-ietf-opsawg-pcapng): headers of IP and TCP, with the socket's state as a comment
//! beside each packet.

use model::{Nanos, Segment, TraceSample, What};
use std::borrow::Cow;

/// `LINKTYPE_RAW`: packets begin with IPv4 or IPv6.
const RAW: u16 = 101;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const PACKET_FLAGS: u16 = 2;
const TIME_RESOLUTION: u16 = 9;

/// What a capture begins with.
pub fn begin() -> Vec<u8> {
    let mut section = Vec::new();
    section.extend(0x1a2b_3c4d_u32.to_le_bytes());
    section.extend(1_u16.to_le_bytes());
    section.extend(0_u16.to_le_bytes());
    section.extend(u64::MAX.to_le_bytes()); // length of the section: not known
    option(&mut section, USER_APPLICATION, b"linerate trace");
    option(&mut section, END_OF_OPTIONS, &[]);
    let mut interface = Vec::new();
    interface.extend(RAW.to_le_bytes());
    interface.extend(0_u16.to_le_bytes());
    interface.extend(0_u32.to_le_bytes()); // no limit of the length captured
    option(&mut interface, TIME_RESOLUTION, &[9]); // 10^-9 s
    option(&mut interface, END_OF_OPTIONS, &[]);
    let mut bytes = block(SECTION, &section);
    bytes.extend(block(INTERFACE, &interface));
    bytes
}

/// One segment: its headers unchanged, its time since 1970, its state as a comment (that of the last sample
/// where it was not read), and one more for each of `remarks`. `None` for what is no packet.
pub fn packet(
    segment: &Segment,
    sample: Option<&TraceSample>,
    headers: &[u8],
    started: Nanos,
    remarks: &[String],
) -> Option<Vec<u8>> {
    let direction: u32 = match segment.what {
        What::Received => 1,
        What::Sent => 2,
        _ => return None,
    };
    let at = (started + segment.at).0;
    let headers = &with_length(headers, segment.length)[..];
    let mut body = Vec::new();
    body.extend(0_u32.to_le_bytes());
    body.extend(((at >> 32) as u32).to_le_bytes());
    body.extend((at as u32).to_le_bytes());
    body.extend((headers.len() as u32).to_le_bytes());
    body.extend(segment.length.max(headers.len() as u32).to_le_bytes());
    padded(&mut body, headers);
    option(
        &mut body,
        COMMENT,
        crate::trace::state_words(segment, sample).as_bytes(),
    );
    for remark in remarks {
        option(&mut body, COMMENT, remark.as_bytes());
    }
    option(&mut body, PACKET_FLAGS, &direction.to_le_bytes());
    option(&mut body, END_OF_OPTIONS, &[]);
    Some(block(ENHANCED_PACKET, &body))
}

/// The kernel leaves the length in an IPv4 header at 0 where the segment, not yet cut into packets, is
/// longer than that field can say (`iph_set_totlen` of `include/linux/ip.h`); readers would take that for
/// damage, so it gets the largest.
fn with_length(headers: &[u8], length: u32) -> Cow<'_, [u8]> {
    let mut headers = Cow::Borrowed(headers);
    if let [0x40..=0x4f, _, 0, 0, ..] = *headers {
        let most = u16::try_from(length).unwrap_or(u16::MAX);
        headers.to_mut()[2..4].copy_from_slice(&most.to_be_bytes());
    }
    headers
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes(), &length, body, &length].concat()
}

fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    to.extend(code.to_le_bytes());
    to.extend((value.len() as u16).to_le_bytes());
    padded(to, value);
}

fn padded(to: &mut Vec<u8>, value: &[u8]) {
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{SocketState, SocketValues};

    /// The blocks of a capture: kind and body.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
        let number = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().unwrap());
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let length = number(&bytes[4..]) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(number(&bytes[length - 4..]) as usize, length);
            all.push((number(bytes), &bytes[8..length - 4]));
            bytes = &bytes[length..];
        }
        all
    }

    #[test]
    fn a_segment_too_long_for_its_header_gets_the_largest_length() {
        let header = |length: u16| {
            let [high, low] = length.to_be_bytes();
            vec![0x45, 0, high, low, 7]
        };
        assert_eq!(with_length(&header(0), 65_549)[..], header(65_535));
        assert_eq!(with_length(&header(1500), 1500)[..], header(1500));
        let of_ipv6 = [0x60, 0, 0, 0, 0, 0];
        assert_eq!(with_length(&of_ipv6, 70_000)[..], of_ipv6);
    }

    #[test]
    fn blocks_have_their_length_at_both_ends() {
        let segment = Segment {
            at: Nanos(7),
            length: 1500,
            socket: Some(SocketState::from_probe(SocketValues::default())),
            ..Segment::default()
        };
        let mut file = begin();
        let remarks = ["dropped before".to_owned()];
        file.extend(packet(&segment, None, &[0x45; 53], Nanos(1 << 32), &remarks).unwrap());
        let blocks = blocks(&file);
        let kinds: Vec<_> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, ENHANCED_PACKET]);
        let body = blocks[2].1;
        assert_eq!(body[4..12], [1, 0, 0, 0, 7, 0, 0, 0], "the time");
        assert_eq!(
            body[12..20],
            [53, 0, 0, 0, 0xdc, 5, 0, 0],
            "captured and original length"
        );
        assert!(String::from_utf8_lossy(body).contains("flight 0; unsent 0; "));
        assert!(String::from_utf8_lossy(body).contains("dropped before"));
        let wrote = Segment {
            what: What::Wrote,
            ..segment
        };
        assert_eq!(packet(&wrote, None, &[], Nanos(0), &[]), None);
    }
}
