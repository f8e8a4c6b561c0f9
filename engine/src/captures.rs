//! Captures are decoded on one processor and followed on another.

use crate::prelude::*;
use capture::{BLANK, FrameCounts, PacketSink};
use model::packet::Packet;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

/// Packets that are passed on at once, and batches that wait: together 1 MB, which a processor's cache holds.
const BATCH: usize = 512;
const WAITING: usize = 8;

/// As [`capture::read`], which runs on a thread of its own: hands every TCP packet to `see`, in the order of the file.
///
/// # Errors
/// Those of [`capture::read`], after what was read before; and if there can be no thread.
pub fn read(input: impl Read + Send, mut see: impl FnMut(&Packet)) -> Result<FrameCounts> {
    let (batches, full) = sync_channel::<Vec<Packet>>(WAITING);
    let (used, spare) = channel::<Vec<Packet>>();
    thread::scope(|scope| {
        let decoder = thread::Builder::new().spawn_scoped(scope, move || {
            let mut batches = Batches {
                batch: vec![BLANK; BATCH],
                filled: 0,
                batches,
                spare,
            };
            let account = capture::read_into(input, &mut batches);
            batches.batch.truncate(batches.filled);
            batches.send(Vec::new());
            account
        });
        let decoder = decoder.context("cannot start a thread")?;
        for batch in full {
            batch.iter().for_each(&mut see);
            let _ = used.send(batch);
        }
        let account = decoder.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok(account?)
    })
}

/// Packets on their way from the decoder.
struct Batches {
    /// Of [`BATCH`] packets, the first so many of which are decoded.
    batch: Vec<Packet>,
    filled: usize,
    batches: SyncSender<Vec<Packet>>,
    spare: Receiver<Vec<Packet>>,
}

impl Batches {
    /// Passes the batch on, and goes on with another.
    fn send(&mut self, next: Vec<Packet>) {
        // Fails if what follows the packets panicked, which is then passed on.
        let _ = self.batches.send(std::mem::replace(&mut self.batch, next));
        self.filled = 0;
    }
}

impl PacketSink for Batches {
    #[inline]
    fn place(&mut self) -> &mut Packet {
        &mut self.batch[self.filled]
    }

    #[inline]
    fn take(&mut self, _: &[u8]) {
        self.filled += 1;
        if self.filled == BATCH {
            let next = self.spare.try_recv();
            self.send(next.unwrap_or_else(|_| vec![BLANK; BATCH]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    /// A capture of so many bare ACKs, numbered by their sequence numbers.
    fn numbered(count: u32) -> Vec<u8> {
        let words = |words: [u32; 6]| words.map(u32::to_le_bytes).concat();
        // Link type 101: raw IP.
        let mut file = words([0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, 101]);
        for n in 0..count {
            file.extend([0, n, 40, 40].map(u32::to_le_bytes).concat());
            let ip = [0x4500_0028, 0, 0x4006_0000, 0x0a00_0001, 0x0a00_0002];
            let tcp = [0x03e8_07d0, n, 0, 0x5010_0400, 0];
            file.extend(
                [ip, tcp]
                    .concat()
                    .iter()
                    .flat_map(|word| word.to_be_bytes()),
            );
        }
        file
    }

    #[test]
    fn every_packet_comes_once_in_order_and_errors_as_from_one_thread() {
        for count in [0, 1, BATCH - 1, BATCH, BATCH + 1, 20 * BATCH + 7] {
            let file = numbered(count as u32);
            let mut seen = Vec::new();
            let account = read(&file[..], |packet| seen.push(packet.seq)).unwrap();
            assert_eq!(seen, Vec::from_iter(0..count as u32));
            assert_eq!(account, capture::read(&file[..], |_| ()).unwrap());
        }
        let error = read(&b"no capture"[..], |_| ()).unwrap_err();
        let alone = capture::read(&b"no capture"[..], |_| ()).unwrap_err();
        assert_eq!(error.to_string(), alone.to_string());
    }

    #[test]
    fn a_panic_of_what_follows_is_passed_on() {
        let file = numbered(40 * BATCH as u32);
        let to: SocketAddr = "10.0.0.2:2000".parse().unwrap();
        let panicked =
            std::panic::catch_unwind(|| read(&file[..], |packet| assert_ne!(packet.to, to)));
        assert!(panicked.is_err());
    }
}
