//! From a frame to its TCP segment: link, VLAN tags, IP with its extensions, TCP with its options. Each
//! loop goes forward in the frame, and its length bounds it.

use crate::file::link;
use model::Nanos;
use model::packet::Packet;
use model::segment::tcp_flag::SYN;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Why a frame is no TCP packet that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// The link type of the file is not known.
    UnknownLink,
    /// Not IP: ARP and others.
    NotIp,
    /// IP, and not TCP.
    NotTcp,
    /// Inside a tunnel that is not opened (GRE, IP in IP, ESP).
    Tunnel,
    /// A later fragment of an IP packet: it has no TCP header.
    Fragment,
    /// The capture cut it before the end of its headers, or its lengths contradict each other.
    Cut,
}

impl Skip {
    /// In words, for "so many ...".
    pub fn words(self) -> &'static str {
        match self {
            Skip::UnknownLink => "frames of an unknown link type",
            Skip::NotIp => "frames that are not IP",
            Skip::NotTcp => "packets that are not TCP",
            Skip::Tunnel => "packets inside tunnels",
            Skip::Fragment => "later fragments of IP packets",
            Skip::Cut => "packets cut before the end of their headers",
        }
    }
}

/// VLAN tags that may be stacked, and IPv6 extension headers that may follow each other.
const MOST_STACKED: usize = 8;

/// The TCP packet in a frame of a link type.
///
/// # Errors
/// Why there is none.
pub fn packet(link: i32, frame: &[u8], at: Nanos) -> Result<Packet, Skip> {
    let (kind, ip) = match link {
        link::ETHERNET => ethernet(frame.get(12..).ok_or(Skip::Cut)?)?,
        link::SLL => ethernet(frame.get(14..).ok_or(Skip::Cut)?)?,
        link::SLL2 => {
            let kind = u16_at(frame, 0)?;
            tagged(kind, frame.get(20..).ok_or(Skip::Cut)?)?
        }
        // The family of the machine that captured, in its own byte order: the IP version says it too.
        link::NULL | link::LOOP => (0, frame.get(4..).ok_or(Skip::Cut)?),
        link::RAW | link::RAW_BSD | link::RAW_OPENBSD | link::IPV4 | link::IPV6 => (0, frame),
        _ => return Err(Skip::UnknownLink),
    };
    let version = ip.first().ok_or(Skip::Cut)? >> 4;
    match (kind, version) {
        (0 | 0x0800, 4) => ipv4(ip, at),
        (0 | 0x86dd, 6) => ipv6(ip, at),
        _ => Err(Skip::NotIp),
    }
}

/// From the type field of Ethernet on.
fn ethernet(rest: &[u8]) -> Result<(u16, &[u8]), Skip> {
    tagged(u16_at(rest, 0)?, rest.get(2..).ok_or(Skip::Cut)?)
}

/// Takes VLAN tags (802.1Q, 802.1ad) off.
fn tagged(mut kind: u16, mut rest: &[u8]) -> Result<(u16, &[u8]), Skip> {
    for _ in 0..MOST_STACKED {
        if !matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        kind = u16_at(rest, 2)?;
        rest = rest.get(4..).ok_or(Skip::Cut)?;
    }
    match kind {
        0x0800 | 0x86dd => Ok((kind, rest)),
        // MPLS and PPPoE carry IP, one layer further down.
        0x8847 | 0x8848 | 0x8864 => Err(Skip::Tunnel),
        _ => Err(Skip::NotIp),
    }
}

fn ipv4(ip: &[u8], at: Nanos) -> Result<Packet, Skip> {
    let header = usize::from(ip[0] & 0x0f) * 4;
    if header < 20 || ip.len() < header {
        return Err(Skip::Cut);
    }
    if u16_at(ip, 6)? & 0x1fff != 0 {
        return Err(Skip::Fragment);
    }
    // Zero where the device split it later (TSO) and the capture saw it before: then what is there.
    let total = match usize::from(u16_at(ip, 2)?) {
        0 => ip.len(),
        total => total,
    };
    let address = |n: usize| -> Result<IpAddr, Skip> {
        let bytes: [u8; 4] = array_at(ip, n)?;
        Ok(IpAddr::V4(Ipv4Addr::from(bytes)))
    };
    let ends = (address(12)?, address(16)?);
    let length = total.checked_sub(header).ok_or(Skip::Cut)?;
    transport(ip[9], &ip[header..], length, ends, ip[1] & 3 == 3, at)
}

fn ipv6(ip: &[u8], at: Nanos) -> Result<Packet, Skip> {
    let address = |n: usize| -> Result<IpAddr, Skip> {
        let bytes: [u8; 16] = array_at(ip, n)?;
        Ok(IpAddr::V6(Ipv6Addr::from(bytes)))
    };
    let ends = (address(8)?, address(24)?);
    let marked = (u16_at(ip, 0)? >> 4) & 3 == 3;
    let rest = ip.get(40..).ok_or(Skip::Cut)?;
    let mut length = match usize::from(u16_at(ip, 4)?) {
        0 => rest.len(),
        length => length,
    };
    let (mut next, mut rest) = (ip[6], rest);
    for _ in 0..MOST_STACKED {
        let size = match next {
            // Hop-by-hop, routing, destination options, mobility.
            0 | 43 | 60 | 135 => usize::from(byte_at(rest, 1)?) * 8 + 8,
            // Authentication counts in words of four.
            51 => usize::from(byte_at(rest, 1)?) * 4 + 8,
            44 => {
                if u16_at(rest, 2)? & 0xfff8 != 0 {
                    return Err(Skip::Fragment);
                }
                8
            }
            _ => break,
        };
        next = byte_at(rest, 0)?;
        rest = rest.get(size..).ok_or(Skip::Cut)?;
        length = length.checked_sub(size).ok_or(Skip::Cut)?;
    }
    transport(next, rest, length, ends, marked, at)
}

fn transport(
    protocol: u8,
    tcp: &[u8],
    length: usize,
    (from, to): (IpAddr, IpAddr),
    marked: bool,
    at: Nanos,
) -> Result<Packet, Skip> {
    match protocol {
        6 => {}
        4 | 41 | 47 | 50 => return Err(Skip::Tunnel),
        _ => return Err(Skip::NotTcp),
    }
    let header = usize::from(byte_at(tcp, 12)? >> 4) * 4;
    let payload = length.checked_sub(header).ok_or(Skip::Cut)?;
    if header < 20 || tcp.len() < 20 {
        return Err(Skip::Cut);
    }
    let mut packet = Packet {
        at,
        from: SocketAddr::new(from, u16_at(tcp, 0)?),
        to: SocketAddr::new(to, u16_at(tcp, 2)?),
        seq: u32_at(tcp, 4)?,
        ack: u32_at(tcp, 8)?,
        flags: tcp[13],
        window: u16_at(tcp, 14)?,
        payload: u32::try_from(payload).map_err(|_| Skip::Cut)?,
        wscale: None,
        mss: None,
        sack: None,
        marked,
    };
    // Options that the capture cut off are as if they were not there.
    options(&tcp[20..header.min(tcp.len())], &mut packet);
    Ok(packet)
}

fn options(mut rest: &[u8], packet: &mut Packet) {
    while let Some(&kind) = rest.first() {
        let length = match kind {
            0 => return,
            1 => 1,
            _ => match rest.get(1) {
                Some(&length) if length >= 2 => usize::from(length),
                _ => return,
            },
        };
        let Some(option) = rest.get(..length) else {
            return;
        };
        let syn = packet.has(SYN);
        match (kind, length) {
            (2, 4) if syn => packet.mss = u16_at(option, 2).ok(),
            // More than 14 means 14 (RFC 7323, 2.3).
            (3, 3) if syn => packet.wscale = Some(option[2].min(14)),
            (5, 10..) => packet.sack = u32_at(option, 2).ok().zip(u32_at(option, 6).ok()),
            _ => {}
        }
        rest = &rest[length..];
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Skip> {
    let part = bytes.get(at..at + N).ok_or(Skip::Cut)?;
    part.try_into().map_err(|_| Skip::Cut)
}

fn byte_at(bytes: &[u8], at: usize) -> Result<u8, Skip> {
    bytes.get(at).copied().ok_or(Skip::Cut)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Skip> {
    array_at(bytes, at).map(u16::from_be_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Skip> {
    array_at(bytes, at).map(u32::from_be_bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A TCP header of 32 bytes: window scale 7 and MSS 1460 as in a SYN.
    fn tcp() -> Vec<u8> {
        let mut tcp = vec![
            0x9c, 0x40, 0x14, 0x5a, 0, 0, 0, 5, 0, 0, 0, 9, 0x80, 0x12, 1, 0,
        ];
        tcp.extend([0, 0, 0, 0, 2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 1, 1]);
        tcp
    }

    fn in_ipv4(payload: u16) -> Vec<u8> {
        let mut ip = vec![
            0x45, 3, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
        ];
        ip[2..4].copy_from_slice(&(52 + payload).to_be_bytes());
        ip.extend(tcp());
        ip.extend(vec![0; usize::from(payload)]);
        ip
    }

    fn in_ipv6(first: u8, extensions: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x60, 0, 0, 0, 0, 0, first, 64];
        ip[4..6].copy_from_slice(&((extensions.len() + 32 + 10) as u16).to_be_bytes());
        ip.extend([0xfd; 32]);
        ip.extend(extensions);
        ip.extend(tcp());
        ip.extend([0; 10]);
        ip
    }

    /// Ethernet, IPv4, TCP with this many bytes.
    pub(crate) fn tcp_frame(payload: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0]);
        frame.extend(in_ipv4(payload));
        frame
    }

    fn of(link: i32, frame: &[u8]) -> Result<Packet, Skip> {
        packet(link, frame, Nanos(0))
    }

    #[test]
    fn every_link_type_leads_to_the_same_packet() {
        let ip = in_ipv4(10);
        let with = |head: &[u8]| [head, &ip].concat();
        let wanted = of(link::RAW, &ip).unwrap();
        assert_eq!((wanted.from.port(), wanted.to.port()), (40000, 5210));
        assert_eq!((wanted.seq, wanted.ack, wanted.payload), (5, 9, 10));
        assert_eq!((wanted.wscale, wanted.mss), (Some(7), Some(1460)));
        assert!(wanted.marked && wanted.has(SYN));
        let sll2 = [&[8u8, 0][..], &[0; 18]].concat();
        let tagged = [&[0u8; 12][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat();
        for (link, frame) in [
            (link::ETHERNET, tcp_frame(10)),
            (link::ETHERNET, with(&tagged)),
            (link::SLL, with(&[&[0u8; 14][..], &[8, 0]].concat())),
            (link::SLL2, with(&sll2)),
            (link::NULL, with(&[2, 0, 0, 0])),
            (link::RAW_BSD, ip.clone()),
        ] {
            assert_eq!(of(link, &frame), Ok(wanted), "{link}");
        }
    }

    #[test]
    fn extensions_of_ipv6_are_walked() {
        let plain = of(link::RAW, &in_ipv6(6, &[])).unwrap();
        // Hop-by-hop of 8 bytes, then a first fragment, then TCP.
        let walked = [44, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 7];
        assert_eq!(of(link::RAW, &in_ipv6(0, &walked)), Ok(plain));
        let later = [6, 0, 0, 9, 0, 0, 0, 7];
        assert_eq!(of(link::RAW, &in_ipv6(44, &later)), Err(Skip::Fragment));
        assert_eq!(of(link::RAW, &in_ipv6(50, &[0; 8])), Err(Skip::Tunnel));
        assert_eq!(of(link::RAW, &in_ipv6(17, &[0; 8])), Err(Skip::NotTcp));
        let endless = [0u8; 8 * 20];
        assert_eq!(of(link::RAW, &in_ipv6(0, &endless)), Err(Skip::NotTcp));
    }

    #[test]
    fn what_is_no_tcp_packet_says_why() {
        let mut fragment = in_ipv4(10);
        fragment[7] = 1;
        assert_eq!(of(link::RAW, &fragment), Err(Skip::Fragment));
        let mut lies = in_ipv4(10);
        lies[2..4].copy_from_slice(&30u16.to_be_bytes());
        assert_eq!(of(link::RAW, &lies), Err(Skip::Cut));
        assert_eq!(of(147, &in_ipv4(10)), Err(Skip::UnknownLink));
        let arp = [&[0u8; 12][..], &[8, 6], &[0; 28]].concat();
        assert_eq!(of(link::ETHERNET, &arp), Err(Skip::NotIp));
        let whole = tcp_frame(10);
        for end in 0..54 {
            assert_eq!(of(link::ETHERNET, &whole[..end]), Err(Skip::Cut), "{end}");
        }
        let snapped = of(link::ETHERNET, &whole[..64]).unwrap();
        assert_eq!(snapped.payload, 10);
    }

    #[test]
    fn a_super_segment_whose_length_is_left_to_the_device() {
        let mut ip = in_ipv4(1000);
        ip[2..4].copy_from_slice(&[0, 0]);
        assert_eq!(of(link::RAW, &ip).unwrap().payload, 1000);
    }
}
