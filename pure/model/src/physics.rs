//! What a path needs at the very least to carry a block of data: frames, links, windows.
//!
//! TCP over IPv4 with timestamps, on Ethernet without tags; all links of one rate; nothing lost, no queue,
//! hosts that take no time.

use crate::{BitRate, Bytes, Nanos};
use serde::Serialize;

/// IPv4 and TCP with timestamps (RFC 791, 9293, 7323).
pub(crate) const HEADERS: u64 = 20 + 20 + 12;
/// Preamble with its delimiter, Ethernet header, checksum, and the gap between frames (IEEE 802.3).
const AROUND: u64 = 8 + 14 + 4 + 12;
/// How long Linux delays an acknowledgement (`TCP_DELACK_MIN`). RFC 1122 allows half a second.
pub const DELACK_TIMER: Nanos = Nanos::from_millis(40);
/// The least MTU of IPv4 (RFC 791).
pub const LEAST_MTU: u32 = 68;

/// A path with nothing else on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IdealPath {
    /// The largest IP packet, in bytes, at least 68.
    pub mtu: u32,
    /// Of each link; not zero.
    #[serde(rename = "rate_bit_s")]
    pub rate: BitRate,
    /// RTT without the serialization delay of the links.
    #[serde(rename = "rtt_ns")]
    pub rtt: Nanos,
    /// Links, each of which takes a whole frame before the next one begins with it; not zero.
    pub hops: u32,
    /// Segments that a new connection sends before the first acknowledgement (RFC 6928: 10).
    pub initial_window: u32,
    /// The smallest of the windows and buffers of both hosts, where one limits.
    pub window: Option<Bytes>,
}

/// How a path carries a block at best.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ideal {
    /// The path.
    pub path: IdealPath,
    /// The block.
    pub bytes: Bytes,
    /// Bytes of a full segment.
    pub mss: u32,
    /// Frames of the block.
    pub frames: u64,
    /// What they take of a link, with all that Ethernet puts around.
    pub wire_bytes: Bytes,
    /// Putting them on the first link.
    #[serde(rename = "serialisation_ns")]
    pub serialisation: Nanos,
    /// Storing the largest of them again before each later link.
    #[serde(rename = "store_and_forward_ns")]
    pub store_and_forward: Nanos,
    /// On the way: half of the round trip.
    #[serde(rename = "propagation_ns")]
    pub propagation: Nanos,
    /// Waiting for acknowledgements, as the window is smaller than the block.
    #[serde(rename = "window_ns")]
    pub window_wait: Nanos,
    /// The sum of these four: from the first bit that leaves to the last that arrives.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Until the sender has the last acknowledgement.
    #[serde(rename = "acknowledged_ns")]
    pub acknowledged: Nanos,
    /// Rate of such blocks, each when the one before is acknowledged.
    #[serde(rename = "alone_bit_s")]
    pub alone: BitRate,
    /// Rate of an endless transfer.
    #[serde(rename = "bulk_bit_s")]
    pub bulk: BitRate,
    /// What has to be in flight for the rate of the links.
    pub needed_window: Bytes,
    /// The same block as the first of a new connection.
    pub new_connection: NewConnection,
    /// If its last segment is short and written apart, with Nagle's algorithm on: what that waits for the
    /// acknowledgement of those before.
    #[serde(rename = "nagle_ns")]
    pub nagle: Option<Nanos>,
}

/// A block that a new connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NewConnection {
    /// SYN and SYN-ACK.
    #[serde(rename = "handshake_ns")]
    pub handshake: Nanos,
    /// Times that it waits for the window to open.
    pub rounds: u32,
    /// All these waits.
    #[serde(rename = "slow_start_ns")]
    pub slow_start: Nanos,
    /// From the SYN to the last bit that arrives.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

impl IdealPath {
    /// How this path carries a block at best.
    pub fn ideal(&self, bytes: Bytes) -> Ideal {
        let mss = u64::from(self.mtu.max(LEAST_MTU)) - HEADERS;
        let frames = bytes.0.div_ceil(mss).max(1);
        let last = bytes.0 - (frames - 1) * mss;
        let full = on_wire(mss);
        let wire = (frames - 1)
            .saturating_mul(full)
            .saturating_add(on_wire(last));
        let largest = if frames > 1 { full } else { on_wire(last) };
        let later = u64::from(self.hops.max(1) - 1);
        let serialisation = self.takes(wire);
        // Of frames that follow each other over equal links the largest sets the pace.
        let store_and_forward = self.takes(largest.saturating_mul(later));
        let propagation = Nanos(self.rtt.0 / 2);
        let bare = serialisation + store_and_forward + propagation;
        // From a full frame that leaves to its acknowledgement.
        let hops = u64::from(self.hops.max(1));
        let answer = self.takes(on_wire(0).saturating_mul(hops)) + (self.rtt - propagation);
        let round = self.takes(full.saturating_mul(hops)) + propagation + answer;
        let window = self.window.map(|window| (window.0 / mss).max(1));
        let waits = |begins| self.waits(frames, begins, window, full, round);
        let (_, window_wait) = window.map_or((0, Nanos(0)), waits);
        let (rounds, slow_start) = waits(u64::from(self.initial_window.max(1)));
        let handshake = self.takes(2 * on_wire(0).saturating_mul(hops)) + self.rtt;
        let time = bare + window_wait;
        let acknowledged = time + answer;
        let line = self.rate_of(mss, full);
        let limited = window.map(|window| Bytes(window.saturating_mul(mss)).per(round));
        Ideal {
            path: *self,
            bytes,
            mss: mss as u32,
            frames,
            wire_bytes: Bytes(wire),
            serialisation,
            store_and_forward,
            propagation,
            window_wait,
            time,
            acknowledged,
            alone: bytes.per(acknowledged),
            bulk: limited.map_or(line, |limited| limited.min(line)),
            needed_window: line.bytes_in(round),
            new_connection: NewConnection {
                handshake,
                rounds,
                slow_start,
                time: handshake + bare + slow_start,
            },
            nagle: (frames > 1 && last < mss).then(|| match (frames - 1) % 2 {
                // Every second full segment is acknowledged at once (RFC 5681, 4.2).
                0 => round,
                _ => round + DELACK_TIMER,
            }),
        }
    }

    /// How often the sender of so many frames waits for acknowledgements, and how long in all. The window
    /// doubles each time (RFC 5681, 3.1; Linux counts bytes, so delayed acknowledgements do not slow it).
    fn waits(
        &self,
        frames: u64,
        begins: u64,
        most: Option<u64>,
        full: u64,
        round: Nanos,
    ) -> (u32, Nanos) {
        let most = most.unwrap_or(u64::MAX);
        let (mut left, mut window) = (frames, begins.min(most));
        let (mut rounds, mut waited) = (0, Nanos(0));
        loop {
            let sends = self.takes(full.saturating_mul(window));
            if left <= window || sends >= round {
                return (rounds, waited);
            }
            if window == most {
                let rest = (left - 1) / window;
                waited += Nanos((round - sends).0.saturating_mul(rest));
                return (
                    rounds.saturating_add(u32::try_from(rest).unwrap_or(u32::MAX)),
                    waited,
                );
            }
            left -= window;
            window = window.saturating_mul(2).min(most);
            rounds += 1;
            waited += round - sends;
        }
    }

    /// Time to put so many bytes on a link, rounded up.
    fn takes(&self, bytes: u64) -> Nanos {
        let ns = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(self.rate.0.max(1)));
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The part of the rate that so many of so many bytes have.
    fn rate_of(&self, part: u64, of: u64) -> BitRate {
        let rate = u128::from(self.rate.0) * u128::from(part) / u128::from(of);
        BitRate(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// Bytes on a link of a segment with this payload; never a frame that has to be padded.
fn on_wire(payload: u64) -> u64 {
    payload + HEADERS + AROUND
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(mtu: u32, hops: u32) -> IdealPath {
        IdealPath {
            mtu,
            rate: BitRate(1_000_000_000),
            rtt: Nanos(0),
            hops,
            initial_window: 10,
            window: None,
        }
    }

    #[test]
    fn a_full_frame_takes_1538_bytes_of_a_link_and_12_us_of_a_gigabit() {
        let one = path(1500, 1).ideal(Bytes(1448));
        assert_eq!(
            (one.mss, one.frames, one.wire_bytes),
            (1448, 1, Bytes(1538))
        );
        assert_eq!(one.time, Nanos(12_304));
        assert_eq!(one.bulk, BitRate(941_482_444));
    }

    #[test]
    fn a_lone_block_is_slower_in_one_large_frame_from_two_links_on() {
        // 5 frames of 1448 bytes and one of 952.
        let small = |hops| path(1500, hops).ideal(Bytes(8192));
        assert_eq!((small(1).frames, small(1).wire_bytes), (6, Bytes(8732)));
        assert_eq!(small(1).time, Nanos(69_856));
        assert_eq!(small(3).time, Nanos(69_856 + 2 * 12_304));
        let large = |hops| path(9000, hops).ideal(Bytes(8192));
        assert_eq!(large(1).frames, 1);
        assert_eq!(large(1).time, Nanos(66_256));
        assert_eq!(large(2).time, Nanos(2 * 66_256));
        assert!(large(1).time < small(1).time && large(2).time > small(2).time);
        assert!(large(2).bulk > small(2).bulk);
    }

    #[test]
    fn a_new_connection_waits_until_its_window_is_open() {
        // 46 segments in windows of 2, 4, 8, 16 and 32: four waits of a round trip, less what sending took.
        let path = IdealPath {
            rtt: Nanos::from_millis(20),
            initial_window: 2,
            ..path(1500, 1)
        };
        let ideal = path.ideal(Bytes(64 << 10));
        assert_eq!((ideal.frames, ideal.new_connection.rounds), (46, 4));
        let round = 20_000_000 + 12_304 + 720;
        let sent = (2 + 4 + 8 + 16) * 12_304;
        assert_eq!(ideal.new_connection.slow_start, Nanos(4 * round - sent));
        assert_eq!(ideal.window_wait, Nanos(0));
        // Where a window fills the path there is nothing to wait for.
        let local = IdealPath {
            rtt: Nanos(0),
            ..path
        };
        assert_eq!(local.ideal(Bytes(1 << 30)).new_connection.rounds, 0);
    }

    #[test]
    fn a_window_that_is_too_small_sets_the_rate() {
        let path = IdealPath {
            rtt: Nanos::from_millis(10),
            window: Some(Bytes(4 * 1448)),
            ..path(1500, 1)
        };
        let ideal = path.ideal(Bytes(64 << 10));
        let round = 10_000_000 + 12_304 + 720;
        // 46 segments, four at a time: eleven waits.
        assert_eq!(ideal.window_wait, Nanos(11 * (round - 4 * 12_304)));
        assert_eq!(ideal.bulk, Bytes(4 * 1448).per(Nanos(round)));
        assert_eq!(
            ideal.needed_window,
            BitRate(941_482_444).bytes_in(Nanos(round))
        );
    }

    #[test]
    fn a_short_rest_written_apart_waits_for_the_acknowledgement_of_what_is_before() {
        let path = path(1500, 1);
        let round = Nanos(12_304 + 720);
        assert_eq!(path.ideal(Bytes(1448)).nagle, None);
        assert_eq!(path.ideal(Bytes(1500)).nagle, Some(round + DELACK_TIMER));
        assert_eq!(path.ideal(Bytes(3000)).nagle, Some(round));
    }

    proptest! {
        #[test]
        fn nothing_overflows_and_more_takes_longer(
            mtu in 0u32..=u32::MAX, rate in 0u64..=u64::MAX, rtt in 0u64..=u64::MAX, hops in 0u32..=u32::MAX,
            initial_window in 0u32..=u32::MAX, window in proptest::option::of(0u64..=u64::MAX), bytes in 0u64..=u64::MAX,
        ) {
            let path = IdealPath {
                mtu,
                rate: BitRate(rate),
                rtt: Nanos(rtt),
                hops,
                initial_window,
                window: window.map(Bytes),
            };
            let (half, whole) = (path.ideal(Bytes(bytes / 2)), path.ideal(Bytes(bytes)));
            prop_assert!(half.time <= whole.time);
            prop_assert!(half.new_connection.time <= whole.new_connection.time);
            prop_assert!(whole.time <= whole.acknowledged);
        }
    }
}
