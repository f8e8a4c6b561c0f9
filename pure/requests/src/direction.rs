//! One direction of a connection: its bytes in order, and its messages.

use crate::dissectors::{Dissector, KEPT};
use crate::message_timing::{MessageTiming, SegmentWait};
use crate::pairing::PairingOutput;
use model::Nanos;
use model::packet::Packet;
use model::segment::tcp_flag::SYN;
use std::collections::BTreeMap;
use tcp::seq::Unwrap;

/// Segments behind a hole that are held, and what of them, in one direction.
const MOST_HELD: usize = 512;
/// Bytes of one segment that are held.
const MOST_OF_ONE: usize = 4096;
/// Bytes that are held of all connections together.
const MOST_BYTES: usize = 32 << 20;

/// A segment behind a hole.
struct EarlySegment {
    at: Nanos,
    /// The captured part of its payload of `length` bytes.
    bytes: Vec<u8>,
    length: u64,
    wait: SegmentWait,
}

/// A message of a known protocol.
pub(crate) struct FoundMessage {
    pub timing: Box<MessageTiming>,
    pub body: Vec<u8>,
    /// The capture has not all of the body that would have been kept.
    pub cut: bool,
}

/// One direction of a connection.
#[derive(Default)]
pub(crate) struct Reassembly {
    pub reader: MessageReader,
    /// What is behind all that was handed on.
    next: Option<Unwrap>,
    held: BTreeMap<u64, EarlySegment>,
}

/// What became of a segment.
pub(crate) enum Came<'a> {
    /// This is next, with what is there of it; then what [`Reassembly::held`] has.
    Next(OrderedBytes, &'a [u8]),
    /// It passed before, from here to there.
    Again(u64, u64),
    Nothing,
}

/// Bytes in order.
pub(crate) struct OrderedBytes {
    pub at: Nanos,
    pub seq: u32,
    pub begin: u64,
    pub length: u64,
    pub wait: SegmentWait,
}

impl OrderedBytes {
    /// When it began to wait for its turn, where that is known, else when it left.
    pub fn since(&self) -> Nanos {
        self.wait.written.unwrap_or(self.at).min(self.at)
    }
}

impl Reassembly {
    /// The position of a sequence number.
    pub fn position(&self, seq: u32) -> Option<u64> {
        Some(self.next?.position(seq))
    }

    fn next(&self) -> u64 {
        self.next.map_or(0, |next| next.last())
    }

    /// Data, and what they had waited for. Of the stream its account knows with which number it begins, and what the
    /// receiver has; `room` is what all connections hold.
    pub fn data<'a>(
        &mut self,
        packet: &Packet,
        payload: &'a [u8],
        wait: SegmentWait,
        (begins, acked): (impl FnOnce() -> Option<u32>, Option<u32>),
        room: &mut usize,
    ) -> Came<'a> {
        let seq = packet.seq.wrapping_add(u32::from(packet.has(SYN)));
        let known = *(self.next).get_or_insert_with(|| Unwrap::new(begins().unwrap_or(seq)));
        let (begin, next) = (known.position(seq), known.last());
        let end = begin + u64::from(packet.payload);
        if end <= next {
            return Came::Again(begin, end);
        }
        if begin > next {
            let fits = payload
                .len()
                .min(MOST_OF_ONE)
                .min(MOST_BYTES.saturating_sub(*room));
            let part = EarlySegment {
                at: packet.at,
                bytes: payload[..fits].to_vec(),
                length: u64::from(packet.payload),
                wait,
            };
            *room += fits;
            if let Some(old) = self.held.insert(begin, part) {
                *room -= old.bytes.len();
            }
            // The receiver has it, so the capture lost it; or there is no more room.
            let is_acked = acked.is_some_and(|acked| known.position(acked) > next);
            let lost = self.held.len() > MOST_HELD || is_acked;
            return match lost {
                true => self.give_up(),
                false => Came::Nothing,
            };
        }
        let bytes = payload.get((next - begin) as usize..).unwrap_or_default();
        Came::Next(self.piece(packet.at, end - next, wait), bytes)
    }

    /// What is next, of this length.
    fn piece(&mut self, at: Nanos, length: u64, wait: SegmentWait) -> OrderedBytes {
        let begin = self.next();
        let seq = self.next.map_or(0, |next| next.seq(begin));
        self.next = Some(Unwrap::at(seq.wrapping_add(length as u32), begin + length));
        OrderedBytes {
            at,
            seq,
            begin,
            length,
            wait,
        }
    }

    /// The capture lost what is missing: as if it had been cut off.
    fn give_up<'a>(&mut self) -> Came<'a> {
        let Some((begin, part)) = self.held.first_key_value() else {
            return Came::Nothing;
        };
        let (at, length, wait) = (part.at, begin - self.next(), part.wait);
        Came::Next(self.piece(at, length, wait), &[])
    }

    /// What was held and is next now, with what is there of it.
    pub fn held(&mut self, room: &mut usize) -> Option<(OrderedBytes, Vec<u8>)> {
        let next = self.next();
        while let Some(entry) = self.held.first_entry()
            && *entry.key() <= next
        {
            let (begin, part) = entry.remove_entry();
            let mut bytes = part.bytes;
            *room -= bytes.len();
            let old = next - begin;
            if old < part.length {
                bytes.drain(..bytes.len().min(old as usize));
                let piece = self.piece(part.at, part.length - old, part.wait);
                return Some((piece, bytes));
            }
        }
        None
    }

    /// Nothing more comes: what is held needs no room.
    pub fn close(&mut self, room: &mut usize) {
        for part in std::mem::take(&mut self.held).into_values() {
            *room -= part.bytes.len();
        }
    }
}

/// Finds messages in the bytes of one direction.
#[derive(Default)]
pub(crate) struct MessageReader {
    head: Vec<u8>,
    /// Bytes of the piece that are still to come, and whether the message ends with it.
    piece: Option<(u64, bool)>,
    body: Vec<u8>,
    /// The body goes on, uncaptured.
    cut: bool,
    pub timing: Option<Box<MessageTiming>>,
    /// It is not known where the next message begins.
    lost: bool,
}

impl MessageReader {
    /// Begins in the middle of a stream.
    pub fn lose(&mut self) {
        *self = MessageReader {
            lost: true,
            ..MessageReader::default()
        };
    }

    /// Whether it waits for a beginning.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The room of a message is that of the next one.
    pub fn takes_back(&mut self, mut body: Vec<u8>) {
        body.clear();
        self.body = body;
    }

    /// Takes bytes in order, from `done` on, up to the end of a message; `None`: none ends in them any more.
    pub fn read(
        &mut self,
        dissector: Dissector,
        piece: &OrderedBytes,
        bytes: &[u8],
        done: &mut u64,
        call: bool,
        out: &mut PairingOutput,
    ) -> Option<FoundMessage> {
        let from = usize::try_from(*done).unwrap_or(usize::MAX);
        let mut bytes = bytes.get(from..).unwrap_or_default();
        if self.lost {
            if *done == piece.length || !dissector.begins(bytes) {
                return None;
            }
            *self = MessageReader::default();
        }
        while *done < piece.length {
            let left = piece.length - *done;
            let timing = self.timing.get_or_insert_with(|| {
                let seq = piece.seq.wrapping_add(*done as u32);
                out.spare.timing(seq, piece.begin + *done, piece.since())
            });
            let taken = match self.piece {
                None => left.min((dissector.head() - self.head.len()) as u64),
                Some((rest, _)) => left.min(rest),
            };
            timing.take(piece.at, taken, piece.wait, *done == 0, call);
            let (there, rest) = bytes.split_at(bytes.len().min(taken as usize));
            bytes = rest;
            *done += taken;
            match &mut self.piece {
                None => {
                    self.head.extend_from_slice(there);
                    if (there.len() as u64) < taken {
                        out.cut += 1;
                        self.lose();
                        return None;
                    }
                    if self.head.len() < dissector.head() {
                        return None;
                    }
                    let Some(begins) = dissector.piece(&self.head) else {
                        self.lose();
                        return None;
                    };
                    let kept = &self.head[begins.head..];
                    self.body.reserve(KEPT.min(begins.body as usize));
                    self.body.extend_from_slice(kept);
                    let rest = begins.body.saturating_sub(kept.len() as u64);
                    self.piece = Some((rest, begins.last));
                    self.head.clear();
                }
                Some((rest, _)) => {
                    *rest -= taken;
                    if !self.cut {
                        let kept = there.len().min(KEPT.saturating_sub(self.body.len()));
                        self.body.extend_from_slice(&there[..kept]);
                        self.cut = (kept as u64) < taken;
                    }
                }
            }
            if let Some((0, last)) = self.piece {
                self.piece = None;
                if last && let Some(timing) = self.timing.take() {
                    let body = std::mem::take(&mut self.body);
                    let cut = std::mem::take(&mut self.cut) && body.len() < KEPT;
                    return Some(FoundMessage { timing, body, cut });
                }
            }
        }
        None
    }
}
