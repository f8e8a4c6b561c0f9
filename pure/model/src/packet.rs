//! A TCP segment on the wire, without a socket.

use crate::{Nanos, Segment, What};
use std::net::SocketAddr;

/// One packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Since the first packet of its capture.
    pub at: Nanos,
    /// Sender.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Acknowledgement number; means something only with the flag.
    pub ack: u32,
    /// Flags, see [`crate::segment::tcp_flag`].
    pub flags: u8,
    /// The window field before its scale.
    pub window: u16,
    /// Bytes carried, by the IP header: more than captured where the capture cuts packets.
    pub payload: u32,
    /// Window scale that a SYN offers (RFC 7323).
    pub wscale: Option<u8>,
    /// MSS that a SYN announces.
    pub mss: Option<u16>,
    /// The first block of a SACK option (RFC 2018).
    pub sack: Option<(u32, u32)>,
    /// Timestamp value and echo (RFC 7323).
    pub stamps: Option<(u32, u32)>,
    /// The capture cut its options short: what is `None` may have been there.
    pub options_cut: bool,
    /// The first fragment of an IP packet: more payload follows, in frames without a TCP header.
    pub fragment: bool,
    /// Identification of the IPv4 packet (RFC 6864); 0 if it has none.
    pub ip_id: u16,
    /// The path marked it: congestion experienced (RFC 3168).
    pub marked: bool,
}

impl Packet {
    /// One that carries nothing, with no flag and no option.
    pub const fn new(from: SocketAddr, to: SocketAddr) -> Packet {
        Packet {
            at: Nanos(0),
            from,
            to,
            seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            payload: 0,
            wscale: None,
            mss: None,
            sack: None,
            stamps: None,
            options_cut: false,
            fragment: false,
            ip_id: 0,
            marked: false,
        }
    }

    /// A segment of a trace between this end and its peer; `None` if it is another event.
    pub fn of_segment(local: SocketAddr, remote: SocketAddr, segment: &Segment) -> Option<Packet> {
        let (from, to) = match segment.what {
            What::Sent => (local, remote),
            What::Received => (remote, local),
            _ => return None,
        };
        Some(Packet {
            at: segment.at,
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: u16::try_from(segment.window).unwrap_or(u16::MAX),
            payload: u32::try_from(segment.payload.0).unwrap_or(u32::MAX),
            stamps: segment.stamps,
            options_cut: true,
            marked: segment.tos & 3 == 3,
            ..Packet::new(from, to)
        })
    }

    /// Sequence number behind it: payload, SYN and FIN.
    pub fn end(&self) -> u32 {
        use crate::segment::tcp_flag::{FIN, SYN};
        let ends = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.seq.wrapping_add(self.payload).wrapping_add(ends)
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    #[test]
    fn a_segment_is_a_packet_from_its_sender() {
        let [local, remote] = ["10.0.0.1:1", "10.0.0.2:2"].map(|end| end.parse().unwrap());
        let segment = |what| Segment {
            what,
            payload: Bytes(9),
            // Congestion experienced.
            tos: 3,
            stamps: Some((5, 6)),
            ..Segment::default()
        };
        let sent = Packet::of_segment(local, remote, &segment(What::Sent)).unwrap();
        assert_eq!((sent.from, sent.to), (local, remote));
        assert_eq!((sent.payload, sent.marked), (9, true));
        assert_eq!(sent.stamps, Some((5, 6)));
        let received = Packet::of_segment(local, remote, &segment(What::Received)).unwrap();
        assert_eq!((received.from, received.to), (remote, local));
        assert_eq!(
            Packet::of_segment(local, remote, &segment(What::State)),
            None
        );
    }
}
