//! Events on their way from the thread that reads them to who asked for them.

use super::completeness::TraceCompleteness;
use super::file::Packed;
use super::record::{EncodedRecord, RecordPlace, WORD, WORDS};
use model::{Comm, Lost, Nanos, TraceRecord};

/// Bytes after which a batch is handed on: a file takes long pieces at half the cost.
pub(super) const FULL: usize = 256 * 1024;

/// Processes of a batch that are reported.
const MOST_USERS: usize = 16;

/// Events in true order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub content: Content,
    /// How many belong to a connection.
    pub events: u64,
    /// How many came after later ones.
    pub unordered: u64,
    pub users: Users,
    pub lost: Option<Lost>,
    /// After the last event.
    pub completeness: Option<TraceCompleteness>,
}

impl Batch {
    /// Adds events that were lost.
    pub(super) fn loses(&mut self, lost: Lost) {
        self.lost = Some(match self.lost.take() {
            None => lost,
            Some(before) => Lost {
                from: before.from,
                to: lost.to,
                events: before.events + lost.events,
            },
        });
    }
}

/// The events of a batch.
#[derive(Debug)]
pub(super) enum Content {
    /// Of probes, for this process.
    Plain(Plain),
    /// Of probes, for a file: the thread that reads an event packs it at once ([`super::file::Packer`]).
    Packed(Packed),
    /// Of packets and samples, each segment with the headers of its packet where they were asked for.
    Records(Vec<(TraceRecord, Box<[u8]>)>),
}

/// Events with what is behind each.
#[derive(Debug, Default)]
pub(super) struct Plain {
    bytes: Vec<u8>,
    /// The place of each, and the end of its bytes.
    places: Vec<(RecordPlace, usize)>,
}

/// The processes that use the sockets, the thread's name and the time of the last use.
#[derive(Debug, Default)]
pub(super) struct Users(pub Vec<(u32, Comm, Nanos)>);

impl Default for Content {
    fn default() -> Content {
        Content::Plain(Plain::default())
    }
}

impl Content {
    /// Without events, and with room for a full batch.
    pub(super) fn with_room(packed: bool) -> Content {
        match packed {
            true => Content::Packed(Packed::with_room(FULL)),
            false => Content::Plain(Plain {
                bytes: Vec::with_capacity(FULL + FULL / 4),
                places: Vec::new(),
            }),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Content::Plain(plain) => plain.bytes.len(),
            Content::Packed(packed) => packed.bytes().len(),
            Content::Records(records) => records.len(),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Content::Plain(plain) => {
                plain.bytes.clear();
                plain.places.clear();
            }
            Content::Packed(packed) => packed.clear(),
            Content::Records(records) => records.clear(),
        }
    }
}

impl Plain {
    /// Adds an event, if `place` finds its place.
    pub(super) fn push(
        &mut self,
        word: impl Fn(usize) -> [u8; WORD],
        behind: &[u8],
        place: impl FnOnce(EncodedRecord<'_>) -> Option<RecordPlace>,
    ) {
        let start = self.bytes.len();
        (0..WORDS).for_each(|n| self.bytes.extend_from_slice(&word(n)));
        self.bytes.extend_from_slice(behind);
        match EncodedRecord::of(&self.bytes[start..]).and_then(place) {
            Some(place) => self.places.push((place, self.bytes.len())),
            None => self.bytes.truncate(start),
        }
    }

    /// Hands on the bytes of each event, and its place.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&[u8], RecordPlace)) {
        let mut start = 0;
        for (place, end) in self.places.drain(..) {
            each(&self.bytes[start..end], place);
            start = end;
        }
    }
}

impl Users {
    pub(super) fn push(&mut self, pid: u32, comm: impl FnOnce() -> Comm, at: Nanos) {
        if let Some(user) = self.0.iter_mut().find(|(known, ..)| *known == pid) {
            user.2 = at;
        } else if pid != 0 && self.0.len() < MOST_USERS {
            self.0.push((pid, comm(), at));
        }
    }
}
