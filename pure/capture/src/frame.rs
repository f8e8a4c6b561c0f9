//! From a frame to its TCP segment: link, tags and labels, IP with its extensions, tunnels that do not
//! encrypt, TCP with its options. Each step goes forward in the frame, and the number of layers is bounded.

use model::Nanos;
use model::packet::Packet;
use model::segment::tcp_flag::SYN;
use std::array::from_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The link types that are known, by their number (https://www.tcpdump.org/linktypes.html).
mod link {
    use pcap_parser::Linktype;
    pub const NULL: i32 = Linktype::NULL.0;
    pub const ETHERNET: i32 = Linktype::ETHERNET.0;
    pub const RAW: i32 = Linktype::RAW.0;
    pub const LOOP: i32 = Linktype::LOOP.0;
    pub const SLL: i32 = Linktype::LINUX_SLL.0;
    pub const PPP: i32 = 9;
    pub const PPP_HDLC: i32 = 50;
    pub const IPV4: i32 = Linktype::IPV4.0;
    pub const IPV6: i32 = Linktype::IPV6.0;
    /// LINKTYPE_LINUX_SLL2, as `tcpdump -i any` writes it.
    pub const SLL2: i32 = 276;
    /// DLT_RAW as some systems number it.
    pub const RAW_BSD: i32 = 12;
    pub const RAW_OPENBSD: i32 = 14;
}

/// Why a frame is no TCP packet that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// The link type of the file is not known.
    UnknownLink,
    /// Not IP: ARP and others.
    NotIp,
    /// IP, and not TCP.
    NotTcp,
    /// Inside a tunnel that cannot be opened: encrypted (ESP), or of an unknown kind.
    Tunnel,
    /// A later fragment of an IP packet: it has no TCP header.
    Fragment,
    /// The capture cut it before the end of its headers, or its lengths contradict each other.
    Cut,
}

impl Skip {
    /// In words, behind "so many frames: ...".
    pub fn words(self) -> &'static str {
        match self {
            Skip::UnknownLink => "of an unknown link type",
            Skip::NotIp => "not IP",
            Skip::NotTcp => "not TCP",
            Skip::Tunnel => "inside tunnels that cannot be opened (ESP and others)",
            Skip::Fragment => "later fragments of IP packets",
            Skip::Cut => "cut before the end of their headers",
        }
    }
}

/// Its number as a protocol of IP.
const TCP: u8 = 6;
/// Layers below TCP: tags, labels, IP headers and their extensions, tunnels.
const MOST_LAYERS: usize = 24;

/// What a packet is written over first.
pub const BLANK: Packet = {
    let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    Packet::new(nobody, nobody)
};

/// What a layer carries.
#[derive(Clone, Copy)]
enum Next {
    /// By the type field of Ethernet (IEEE 802 numbers).
    Ether(u16),
    /// An Ethernet frame.
    Frame,
    /// By the number of PPP (RFC 1661).
    Ppp,
    /// IP of the version that it says itself.
    Ip,
}

/// The TCP packet in a frame of a link type; of a tunnel's, the innermost.
///
/// # Errors
/// Why there is none.
pub fn packet(link: i32, frame: &[u8], at: Nanos) -> Result<Packet, Skip> {
    let mut packet = BLANK;
    write(link, frame, at, &mut packet)?;
    Ok(packet)
}

/// Writes the TCP packet in a frame over another: to move one takes longer. It is inlined, for every frame passes here.
/// Returns what was captured of its payload.
///
/// # Errors
/// Why there is none.
#[inline(always)]
pub(crate) fn write<'a>(
    link: i32,
    frame: &'a [u8],
    at: Nanos,
    packet: &mut Packet,
) -> Result<&'a [u8], Skip> {
    let (next, rest) = match link == link::ETHERNET {
        true => (Next::Ether(u16_at(frame, 12)?), behind(frame, 14)?),
        false => behind_link(link, frame)?,
    };
    // What most frames are: TCP in IPv4, with nothing between it and the link.
    if matches!(next, Next::Ether(0x0800) | Next::Ip)
        && rest.first().is_some_and(|first| first >> 4 == 4)
    {
        let carried = ipv4(rest)?;
        if carried.protocol == TCP {
            return carried.write(at, packet);
        }
    }
    layers(next, rest, at, packet)
}

/// What follows on a link other than Ethernet.
#[inline(never)]
fn behind_link(link: i32, frame: &[u8]) -> Result<(Next, &[u8]), Skip> {
    Ok(match link {
        link::SLL => (Next::Ether(u16_at(frame, 14)?), behind(frame, 16)?),
        link::SLL2 => (Next::Ether(u16_at(frame, 0)?), behind(frame, 20)?),
        // The family of the machine that captured, in its own byte order: the IP version says it too.
        link::NULL | link::LOOP => (Next::Ip, behind(frame, 4)?),
        link::RAW | link::RAW_BSD | link::RAW_OPENBSD | link::IPV4 | link::IPV6 => {
            (Next::Ip, frame)
        }
        // The address and control of HDLC (RFC 1662) are the same in every frame, and may be left out.
        link::PPP | link::PPP_HDLC if frame.starts_with(&[0xff, 3]) => (Next::Ppp, &frame[2..]),
        link::PPP | link::PPP_HDLC => (Next::Ppp, frame),
        _ => return Err(Skip::UnknownLink),
    })
}

/// Walks over what lies between the link and TCP.
#[inline(never)]
fn layers<'a>(
    mut next: Next,
    mut rest: &'a [u8],
    at: Nanos,
    packet: &mut Packet,
) -> Result<&'a [u8], Skip> {
    for _ in 0..MOST_LAYERS {
        (next, rest) = match next {
            Next::Frame => (Next::Ether(u16_at(rest, 12)?), behind(rest, 14)?),
            Next::Ppp => match u16_at(rest, 0)? {
                0x0021 => (Next::Ether(0x0800), behind(rest, 2)?),
                0x0057 => (Next::Ether(0x86dd), behind(rest, 2)?),
                _ => return Err(Skip::NotIp),
            },
            // VLAN tags: 802.1Q, 802.1ad, and what was before it.
            Next::Ether(0x8100 | 0x88a8 | 0x9100) => {
                (Next::Ether(u16_at(rest, 2)?), behind(rest, 4)?)
            }
            // MPLS (RFC 3032): what lies below the last label says itself what it is.
            Next::Ether(0x8847 | 0x8848) => {
                let last = byte_at(rest, 2)? & 1 != 0;
                (if last { Next::Ip } else { next }, behind(rest, 4)?)
            }
            // PPPoE (RFC 2516).
            Next::Ether(0x8864) => (Next::Ppp, behind(rest, 6)?),
            Next::Ether(0x6558) => (Next::Frame, rest),
            // A length: LLC with SNAP (RFC 1042).
            Next::Ether(0..0x600) if rest.starts_with(&[0xaa, 0xaa, 3, 0, 0, 0]) => {
                (Next::Ether(u16_at(rest, 6)?), behind(rest, 8)?)
            }
            Next::Ip | Next::Ether(0x0800 | 0x86dd) => {
                let carried = match (next, byte_at(rest, 0)? >> 4) {
                    (Next::Ip | Next::Ether(0x0800), 4) => ipv4(rest)?,
                    (Next::Ip | Next::Ether(0x86dd), 6) => ipv6(rest)?,
                    _ => return Err(Skip::NotIp),
                };
                let carried = match carried.protocol {
                    TCP => carried,
                    _ => carried.walk()?,
                };
                match carried.protocol {
                    TCP => return carried.write(at, packet),
                    _ => tunnel(&carried)?,
                }
            }
            Next::Ether(_) => return Err(Skip::NotIp),
        };
    }
    Err(Skip::Tunnel)
}

/// What an IP packet carries.
struct Carried<'a> {
    protocol: u8,
    hosts: FrameHosts<'a>,
    /// The captured part.
    bytes: &'a [u8],
    /// As the headers say.
    length: usize,
    /// It goes on in later fragments.
    fragment: bool,
    /// Identification of IPv4; 0 without one.
    id: u16,
    /// Congestion experienced.
    marked: bool,
}

/// Addresses as they stand in the header, the sender's first.
enum FrameHosts<'a> {
    V4(&'a [u8; 8]),
    V6(&'a [u8; 32]),
}

impl FrameHosts<'_> {
    #[inline]
    fn with_ports(&self, from: u16, to: u16) -> (SocketAddr, SocketAddr) {
        match self {
            FrameHosts::V4([a, b, c, d, e, f, g, h]) => (
                SocketAddrV4::new(Ipv4Addr::new(*a, *b, *c, *d), from).into(),
                SocketAddrV4::new(Ipv4Addr::new(*e, *f, *g, *h), to).into(),
            ),
            FrameHosts::V6(both) => {
                let ip = |n: usize| Ipv6Addr::from(from_fn::<u8, 16, _>(|i| both[n + i]));
                let at = |n, port| SocketAddrV6::new(ip(n), port, 0, 0).into();
                (at(0, from), at(16, to))
            }
        }
    }
}

#[inline]
fn ipv4(ip: &[u8]) -> Result<Carried<'_>, Skip> {
    let head = ip.first_chunk::<20>().ok_or(Skip::Cut)?;
    let hosts = head.last_chunk::<8>().ok_or(Skip::Cut)?;
    let header = usize::from(head[0] & 0x0f) * 4;
    if header < 20 {
        return Err(Skip::Cut);
    }
    let bytes = behind(ip, header)?;
    let fragment = u16::from_be_bytes([head[6], head[7]]);
    if fragment & 0x1fff != 0 {
        return Err(Skip::Fragment);
    }
    // Zero where the device split it later (TSO) and the capture saw it before: then what is there.
    let total = match usize::from(u16::from_be_bytes([head[2], head[3]])) {
        0 => ip.len(),
        total => total,
    };
    Ok(Carried {
        protocol: head[9],
        hosts: FrameHosts::V4(hosts),
        bytes,
        length: total.checked_sub(header).ok_or(Skip::Cut)?,
        fragment: fragment & 0x2000 != 0,
        id: u16::from_be_bytes([head[4], head[5]]),
        marked: head[1] & 3 == 3,
    })
}

fn ipv6(ip: &[u8]) -> Result<Carried<'_>, Skip> {
    let (head, bytes) = ip.split_first_chunk::<40>().ok_or(Skip::Cut)?;
    let hosts = head.last_chunk::<32>().ok_or(Skip::Cut)?;
    Ok(Carried {
        protocol: head[6],
        hosts: FrameHosts::V6(hosts),
        bytes,
        length: match usize::from(u16::from_be_bytes([head[4], head[5]])) {
            0 => bytes.len(),
            length => length,
        },
        fragment: false,
        id: 0,
        marked: head[1] >> 4 & 3 == 3,
    })
}

impl<'a> Carried<'a> {
    /// Writes the packet of a TCP segment; returns what was captured of its payload.
    #[inline(always)]
    fn write(&self, at: Nanos, packet: &mut Packet) -> Result<&'a [u8], Skip> {
        let (head, behind) = self.bytes.split_first_chunk::<20>().ok_or(Skip::Cut)?;
        let header = usize::from(head[12] >> 4) * 4;
        let payload = self.length.checked_sub(header).ok_or(Skip::Cut)?;
        let options = header.checked_sub(20).ok_or(Skip::Cut)?;
        let u16_at = |n: usize| u16::from_be_bytes([head[n], head[n + 1]]);
        let u32_at =
            |n: usize| u32::from_be_bytes([head[n], head[n + 1], head[n + 2], head[n + 3]]);
        let (from, to) = self.hosts.with_ports(u16_at(0), u16_at(2));
        *packet = Packet {
            at,
            from,
            to,
            seq: u32_at(4),
            ack: u32_at(8),
            flags: head[13],
            window: u16_at(14),
            payload: u32::try_from(payload).map_err(|_| Skip::Cut)?,
            wscale: None,
            mss: None,
            sack: None,
            stamps: None,
            options_cut: behind.len() < options,
            fragment: self.fragment,
            ip_id: self.id,
            marked: self.marked,
        };
        // Options that the capture cut off are as if they were not there.
        write_options(&behind[..options.min(behind.len())], packet);
        // Short frames are padded.
        let captured = behind.get(options..).unwrap_or_default();
        Ok(&captured[..payload.min(captured.len())])
    }

    /// Walks over the headers between IP and what it carries. Of IPv4 that is authentication alone: the
    /// others have no meaning there.
    #[cold]
    fn walk(mut self) -> Result<Self, Skip> {
        let is_ipv6 = matches!(self.hosts, FrameHosts::V6(_));
        for _ in 0..MOST_LAYERS {
            let size = match self.protocol {
                // Hop-by-hop, routing, destination options, mobility.
                0 | 43 | 60 | 135 if is_ipv6 => usize::from(byte_at(self.bytes, 1)?) * 8 + 8,
                // Authentication counts in words of four.
                51 => usize::from(byte_at(self.bytes, 1)?) * 4 + 8,
                44 if is_ipv6 => {
                    let fragment = u16_at(self.bytes, 2)?;
                    if fragment & 0xfff8 != 0 {
                        return Err(Skip::Fragment);
                    }
                    self.fragment |= fragment & 1 != 0;
                    8
                }
                _ => break,
            };
            self.protocol = byte_at(self.bytes, 0)?;
            self.bytes = behind(self.bytes, size)?;
            self.length = self.length.checked_sub(size).ok_or(Skip::Cut)?;
        }
        Ok(self)
    }
}

/// What stands in a tunnel; `NotTcp` where there is none.
fn tunnel<'a>(outer: &Carried<'a>) -> Result<(Next, &'a [u8]), Skip> {
    let bytes = outer.bytes;
    match outer.protocol {
        4 | 41 => Ok((Next::Ip, bytes)),
        // GRE (RFC 2784, 2890): a checksum, a key and a sequence number may follow. Routing and later
        // versions (PPTP) are not opened.
        47 => {
            let flags = u16_at(bytes, 0)?;
            if flags & 0x4007 != 0 {
                return Err(Skip::Tunnel);
            }
            let optional = (flags & 0xb000).count_ones() as usize;
            let kind = u16_at(bytes, 2)?;
            match kind {
                0x0800 | 0x86dd | 0x6558 | 0x8847 => {
                    Ok((Next::Ether(kind), behind(bytes, 4 + 4 * optional)?))
                }
                _ => Err(Skip::Tunnel),
            }
        }
        17 => match u16_at(bytes, 2)? {
            // VXLAN (RFC 7348; 8472 is what Linux took before), with a VNI.
            4789 | 8472 if byte_at(bytes, 8)? & 8 != 0 => Ok((Next::Frame, behind(bytes, 16)?)),
            // Geneve (RFC 8926) of version 0.
            6081 if byte_at(bytes, 8)? >> 6 == 0 => {
                let options = usize::from(byte_at(bytes, 8)? & 0x3f) * 4;
                let kind = u16_at(bytes, 10)?;
                Ok((Next::Ether(kind), behind(bytes, 16 + options)?))
            }
            _ => Err(Skip::NotTcp),
        },
        50 => Err(Skip::Tunnel),
        _ => Err(Skip::NotTcp),
    }
}

/// The options of a TCP header that a packet has.
#[inline(always)]
fn write_options(options: &[u8], packet: &mut Packet) {
    // What nearly every packet has, and as nearly every host writes it (RFC 7323, appendix A).
    if options.len() == 12 && options.starts_with(&[1, 1, 8, 10]) {
        packet.stamps = u32_at(options, 4).ok().zip(u32_at(options, 8).ok());
    } else if !options.is_empty() {
        write_each_option(options, packet);
    }
}

#[inline(never)]
fn write_each_option(mut rest: &[u8], packet: &mut Packet) {
    let syn = packet.has(SYN);
    while let Some(&kind) = rest.first() {
        let length = match kind {
            0 => break,
            1 => 1,
            _ => match rest.get(1) {
                Some(&length) if length >= 2 => usize::from(length),
                _ => break,
            },
        };
        let Some(option) = rest.get(..length) else {
            break;
        };
        match (kind, length) {
            (2, 4) if syn => packet.mss = u16_at(option, 2).ok(),
            // More than 14 means 14 (RFC 7323, 2.3).
            (3, 3) if syn => packet.wscale = Some(option[2].min(14)),
            (5, 10..) => packet.sack = u32_at(option, 2).ok().zip(u32_at(option, 6).ok()),
            (8, 10) => packet.stamps = u32_at(option, 2).ok().zip(u32_at(option, 6).ok()),
            _ => {}
        }
        rest = &rest[length..];
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Skip> {
    let part = bytes.get(at..at + N).ok_or(Skip::Cut)?;
    part.try_into().map_err(|_| Skip::Cut)
}

fn behind(bytes: &[u8], at: usize) -> Result<&[u8], Skip> {
    bytes.get(at..).ok_or(Skip::Cut)
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
pub(crate) mod tests;
