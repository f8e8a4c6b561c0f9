//! Datagrams: how a UDP stream begins, what its datagrams carry, and what a receiver counts.

use model::{Datagrams, Nanos};

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

    fn sent(&self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.micros) * 1_000
    }
}

/// Loss, order and jitter as a receiver counts them, by iperf3's rules: a gap counts as lost until
/// one of its datagrams arrives late; a datagram behind the highest number is out of order.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    highest: u64,
    lost: u64,
    out_of_order: u64,
    arrived: u64,
    /// Nanoseconds.
    jitter: f64,
    transit: Option<i128>,
}

impl Counter {
    /// Takes one datagram that arrived at `arrived` since 1970 by the receiver's clock. The clocks
    /// need not agree: only the difference of two transit times counts (RFC 3550, 6.4.1 and A.8).
    /// False: the sender says that the stream is over.
    pub fn arrived(&mut self, header: &UdpHeader, arrived: Nanos) -> bool {
        let Ok(sequence) = u64::try_from(header.sequence) else {
            return false;
        };
        self.arrived += 1;
        if sequence > self.highest {
            self.lost = self.lost.saturating_add(sequence - self.highest - 1);
            self.highest = sequence;
        } else {
            self.out_of_order += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        let transit = i128::from(arrived.0) - header.sent();
        if let Some(before) = self.transit {
            let difference = (transit - before).unsigned_abs() as f64;
            self.jitter += (difference - self.jitter) / 16.0;
        }
        self.transit = Some(transit);
        true
    }

    /// Datagrams that arrived.
    pub fn received(&self) -> u64 {
        self.arrived
    }

    /// The counts so far.
    pub fn totals(&self) -> Datagrams {
        Datagrams {
            packets: self.highest,
            lost: self.lost,
            out_of_order: self.out_of_order,
            jitter: Nanos(self.jitter as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(sequence: i64, sent_ms: u64) -> UdpHeader {
        UdpHeader::new(Nanos::from_millis(sent_ms), sequence)
    }

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

    #[test]
    fn loss_order_and_end() {
        let mut counter = Counter::default();
        for sequence in [1, 2, 5, 3, 6] {
            assert!(counter.arrived(&at(sequence, 0), Nanos(0)));
        }
        assert!(!counter.arrived(&at(-7, 0), Nanos(0)));
        let totals = counter.totals();
        // 3 and 4 were missing when 5 came; 3 came late.
        assert_eq!(
            (totals.packets, totals.lost, totals.out_of_order),
            (6, 1, 1)
        );
        assert_eq!(counter.received(), 5);
    }

    #[test]
    fn jitter_by_the_rfc() {
        let mut counter = Counter::default();
        // Sent every 10 ms; transit 5, 7, 5 ms (plus any clock offset).
        for (sequence, sent, arrived) in [(1, 0, 1005), (2, 10, 1017), (3, 20, 1025)] {
            counter.arrived(&at(sequence, sent), Nanos::from_millis(arrived));
        }
        // J1 = 2/16 ms; J2 = J1 + (2 - J1)/16.
        let expected = 125_000.0 + (2_000_000.0 - 125_000.0) / 16.0;
        assert_eq!(counter.totals().jitter, Nanos(expected as u64));
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

        #[test]
        fn what_is_not_lost_arrived(kept in proptest::collection::vec(any::<bool>(), 1..200)) {
            let mut counter = Counter::default();
            for (index, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
                counter.arrived(&at(index as i64 + 1, 0), Nanos(0));
            }
            let totals = counter.totals();
            prop_assert_eq!(totals.packets - totals.lost, counter.received());
            prop_assert_eq!(totals.out_of_order, 0);
        }

        #[test]
        fn any_order_of_all_datagrams_loses_none(order in Just((1..50i64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut counter = Counter::default();
            for sequence in order {
                counter.arrived(&at(sequence, 0), Nanos(0));
            }
            prop_assert_eq!(counter.totals().lost, 0);
            prop_assert_eq!(counter.totals().packets, 49);
        }
    }
}
