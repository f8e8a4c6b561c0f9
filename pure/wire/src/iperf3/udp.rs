//! Datagrams: how a UDP stream begins, and what its datagrams carry.

use model::Nanos;

/// The first datagram of a stream, from the client (iperf3 3.8 and later).
pub const CONNECT: [u8; 4] = 0x3637_3839u32.to_le_bytes();
const CONNECTED: [u8; 4] = 0x3938_3736u32.to_le_bytes();
/// The same in older versions, as little-endian machines send it.
const CONNECT_OLD: [u8; 4] = 123_456_789u32.to_le_bytes();
const CONNECTED_OLD: [u8; 4] = 987_654_321u32.to_le_bytes();

/// The server's answer to the first datagram of a stream; `None` if it is not one.
pub fn connect_reply(datagram: &[u8]) -> Option<[u8; 4]> {
    match <[u8; 4]>::try_from(datagram).ok()? {
        CONNECT => Some(CONNECTED),
        CONNECT_OLD => Some(CONNECTED_OLD),
        _ => None,
    }
}

/// The datagram is a server's answer to [`CONNECT`], of any version.
pub fn is_connect_reply(datagram: &[u8]) -> bool {
    datagram == CONNECTED || datagram == CONNECTED_OLD
}

/// What stands at the start of each datagram of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// When it was sent, by the sender's clock, whole seconds.
    pub seconds: u32,
    /// The rest of it in microseconds.
    pub micros: u32,
    /// Counts from 1. Negative: the stream is over, and this datagram does not count.
    pub sequence: i64,
}

impl UdpHeader {
    /// Bytes of a header with 32-bit numbers.
    pub const NARROW: usize = 12;
    /// Bytes of a header with 64-bit numbers (`--udp-counters-64bit`).
    pub const WIDE: usize = 16;

    /// A header for a datagram that leaves at `sent` since 1970 by the sender's clock.
    pub fn new(sent: Nanos, sequence: i64) -> UdpHeader {
        UdpHeader {
            // Wraps in 2106, as iperf3's does.
            seconds: (sent.0 / 1_000_000_000) as u32,
            micros: (sent.0 % 1_000_000_000 / 1_000) as u32,
            sequence,
        }
    }

    /// Reads the start of a datagram; `None` if it is too short.
    pub fn decode(datagram: &[u8], wide: bool) -> Option<UdpHeader> {
        let word = |at: usize| {
            let bytes = datagram.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
        };
        let sequence = if wide {
            i64::from(word(8)?) << 32 | i64::from(word(12)?)
        } else {
            i64::from(word(8)? as i32)
        };
        Some(UdpHeader {
            seconds: word(0)?,
            micros: word(4)?,
            sequence,
        })
    }

    /// Writes the header at the start of a datagram; false if it is too short.
    pub fn encode(&self, datagram: &mut [u8], wide: bool) -> bool {
        let length = if wide {
            UdpHeader::WIDE
        } else {
            UdpHeader::NARROW
        };
        let Some(start) = datagram.get_mut(..length) else {
            return false;
        };
        start[0..4].copy_from_slice(&self.seconds.to_be_bytes());
        start[4..8].copy_from_slice(&self.micros.to_be_bytes());
        if wide {
            start[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        } else {
            start[8..12].copy_from_slice(&(self.sequence as i32).to_be_bytes());
        }
        true
    }

    /// When it was sent, by the sender's clock.
    pub fn sent(&self) -> Nanos {
        Nanos(u64::from(self.seconds) * 1_000_000_000 + u64::from(self.micros) * 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn magic_numbers_of_both_ages() {
        assert_eq!(CONNECT, *b"9876");
        assert_eq!(connect_reply(b"9876"), Some(*b"6789"));
        assert_eq!(
            connect_reply(&[0x15, 0xcd, 0x5b, 0x07]),
            Some([0xb1, 0x68, 0xde, 0x3a])
        );
        assert_eq!(connect_reply(b"98765"), None);
        assert!(is_connect_reply(b"6789"));
        assert!(!is_connect_reply(b"9876"));
    }

    proptest! {
        #[test]
        fn reading_what_was_written(sent in 0u64..4_000_000_000_000_000_000, sequence in any::<i64>(), wide: bool) {
            let sequence = if wide { sequence } else { i64::from(sequence as i32) };
            let header = UdpHeader::new(Nanos(sent), sequence);
            let mut datagram = [0; 20];
            prop_assert!(header.encode(&mut datagram, wide));
            prop_assert_eq!(UdpHeader::decode(&datagram, wide), Some(header));
        }
    }

    #[test]
    fn a_datagram_has_seconds_and_microseconds() {
        let header = UdpHeader::new(Nanos(7_000_012_345), 3);
        assert_eq!((header.seconds, header.micros), (7, 12));
        assert_eq!(header.sent(), Nanos(7_000_012_000));
        assert!(!header.encode(&mut [0; 11], false) && header.encode(&mut [0; 12], false));
        assert!(!header.encode(&mut [0; 15], true) && header.encode(&mut [0; 16], true));
    }
}
