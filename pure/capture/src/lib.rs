//! Capture files (pcap and pcapng) to TCP packets.
//!
//! What a stranger wrote is decoded here and nowhere else. Memory does not grow with the file. What
//! is no TCP packet, or not all of one, is skipped and counted, see [`Account`].

mod file;
mod frame;

pub use file::{Error, read};
pub use frame::{Skip, packet};

use std::collections::BTreeMap;

/// What became of the frames of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Frames in all.
    pub frames: u64,
    /// Of them, TCP packets.
    pub packets: u64,
    /// The others.
    pub skipped: BTreeMap<Skip, u64>,
    /// Frames that the capture cut short; their headers may still be whole.
    pub cut: u64,
    /// The file ends in the middle of something: it was cut off, or still grows.
    pub broken_off: bool,
}
