//! Capture files (pcap and pcapng) to TCP packets.
//!
//! Untrusted captures are decoded only here. Memory does not grow with the file. What
//! is no TCP packet, or not all of one, is skipped and counted, see [`Account`].

mod file;
mod frame;

pub use file::{Error, PacketSink, is_capture, read, read_into, read_with_payload};
pub use frame::{BLANK, Skip, packet};

use model::Nanos;
use std::collections::BTreeMap;

/// What became of the frames of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// The time of the first frame, since 1970-01-01 UTC.
    pub began: Option<Nanos>,
    /// Frames in all.
    pub frames: u64,
    /// Of them, TCP packets.
    pub packets: u64,
    /// The others.
    pub skipped: BTreeMap<Skip, u64>,
    /// Frames that the capture cut short; their headers may still be whole.
    pub cut: u64,
    /// Link type of the first frame of an unknown one (https://www.tcpdump.org/linktypes.html).
    pub unknown_link: Option<i32>,
    /// Packets that the capturing program says it lost (interface statistics of pcapng).
    pub dropped: u64,
    /// The file ends in the middle of something: it was cut off, or still grows.
    pub broken_off: bool,
    /// The file contradicts itself, and was not read beyond.
    pub damaged: bool,
}

impl FrameCounts {
    /// What is not in what was handed over, in words.
    pub fn left_out(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (skip, count) in &self.skipped {
            let which = match (skip, self.unknown_link) {
                (Skip::UnknownLink, Some(link)) => format!(" (the first: {link})"),
                // Else their lengths contradict each other.
                (Skip::Cut, _) if self.cut > 0 => {
                    "; capture with a snap length of at least 128 bytes (tcpdump -s 128)".to_owned()
                }
                _ => String::new(),
            };
            let of = self.frames;
            said.push(format!(
                "{count} of {of} frames were left out: {}{which}",
                skip.words()
            ));
        }
        if self.dropped > 0 {
            said.push(format!(
                "the capturing program says that it lost {} packets",
                self.dropped
            ));
        }
        if self.broken_off {
            said.push("the file ends in the middle of a packet".to_owned());
        }
        if self.damaged {
            said.push(format!(
                "the file is damaged after {} frames: what comes behind is not in here",
                self.frames
            ));
        }
        said
    }
}
