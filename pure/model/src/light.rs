//! Bounds of light probes: small numbered UDP packets between many hosts, for RTT, loss and MTU.

use crate::{BitRate, Nanos};

/// Hosts to which an agent sends light probes at a time.
pub const MAX_PEERS: usize = 64;

/// Numbered packets to each of them.
pub const MAX_PACKETS: u32 = 100;

/// Sizes that are tried.
pub const MAX_SIZES: usize = 16;

/// All light probes of an agent together.
pub const MAX_RATE: BitRate = BitRate(1_000_000);

/// The numbered packets leave within this.
pub const MAX_TIME: Nanos = Nanos::from_secs(20);

/// Bytes of a numbered packet, with its IP and UDP headers.
pub const PACKET: u32 = 128;

/// The shortest time between two packets to the same host with which those to so many hosts keep to [`MAX_RATE`].
pub fn shortest_gap(peers: usize) -> Nanos {
    let bits = peers as u64 * u64::from(PACKET) * 8;
    Nanos((bits * 1_000_000_000).div_ceil(MAX_RATE.0))
}
