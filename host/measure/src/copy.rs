//! A copy: storage, a ring of blocks, the network, a ring of blocks, storage; a thread each.
//!
//! On the wire: blocks with their lengths before them, a length of zero, and the [`Trailer`].

use crate::job::STORAGE_DRAIN;
use crate::prelude::*;
use crate::ring;
use crate::spin::is_pause;
use crate::storage::{CopySink, CopySource, Storage};
use crate::stride::Stride;
use crate::workload::{alone, no_such_role};
use model::CopyRecord;
use std::thread;
use twox_hash::xxhash3_128::Hasher;

/// Bytes of a block.
const BLOCK: usize = 1 << 20;
/// Blocks of a ring.
const BLOCKS: usize = 8;
/// Bytes of a ring.
pub(crate) const BUFFERS: usize = BLOCKS * BLOCK;
/// Bytes before a block on the wire: its length.
const HEADER: usize = 4;

/// Blocks with the hash of all data up to their end.
type Ring = ring::Ring<u128>;

fn new_ring() -> Ring {
    Ring::new(BLOCKS, BLOCK, HEADER)
}

/// The end of a copy on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trailer {
    /// It ended where it was to end: not by a stop, nor by a time limit in the middle of a file.
    whole: bool,
    length: u64,
    hash: u128,
}

impl Trailer {
    const LEN: usize = 1 + 8 + 16;

    /// Behind a block of length zero.
    fn encode(self) -> Vec<u8> {
        let (length, hash) = (self.length.to_be_bytes(), self.hash.to_be_bytes());
        [&[0; HEADER][..], &[self.whole.into()], &length, &hash].concat()
    }

    fn decode(bytes: &[u8; Trailer::LEN]) -> Trailer {
        let (head, hash) = bytes.split_at(9);
        let (whole, length) = head.split_at(1);
        Trailer {
            whole: whole == [1],
            length: u64::from_be_bytes(length.try_into().expect("eight bytes")),
            hash: u128::from_be_bytes(hash.try_into().expect("sixteen bytes")),
        }
    }
}

enum CopyEnd {
    From(Arc<dyn CopySource>),
    To(Arc<dyn CopySink>),
}

/// This end of a copy.
pub(crate) fn end(job: &Job) -> Result<Box<dyn WorkloadEnd>, Error> {
    Ok(Box::new(match (job.role, &job.storage) {
        (Role::Send, Some(Storage::Source(source))) => CopyEnd::From(Arc::clone(source)),
        (Role::Receive, Some(Storage::Sink(sink))) => CopyEnd::To(Arc::clone(sink)),
        (Role::Send | Role::Receive, _) => {
            return Err(Error::Job("a copy needs its storage".into()));
        }
        (Role::Ask | Role::Answer, _) => return Err(no_such_role()),
    }))
}

impl WorkloadEnd for CopyEnd {
    fn prepare(&self) -> Result<(), String> {
        match self {
            CopyEnd::From(source) => source.prepare(),
            CopyEnd::To(_) => Ok(()),
        }
    }

    fn run(&self, streams: &[LoadStream<'_>], _spin: Spin) {
        alone(streams, |stream| match self {
            CopyEnd::From(source) => send(stream, source.as_ref()),
            CopyEnd::To(sink) => receive(stream, sink.as_ref()),
        });
    }
}

/// What the storage's thread did.
#[derive(Default)]
struct Worked {
    record: CopyRecord,
    bytes: u64,
    hash: u128,
    /// A source: it came to the end of the file or of the bytes that were asked for.
    ended: bool,
}

/// Reads, hashes and sends until the end of the source, of the bytes or of the time.
fn send(stream: &LoadStream<'_>, source: &dyn CopySource) -> Result<(), String> {
    let cached_before = source.cached();
    let ring = new_ring();
    let begun = Instant::now();
    let (worked, sent, transfer) = thread::scope(|scope| {
        let reader = scope.spawn(|| read(stream, source, &ring));
        let sent = push(stream, &ring);
        ring.abandon();
        let transfer = begun.elapsed();
        let worked = reader.join().unwrap_or_else(|_| panicked());
        (worked, sent, transfer)
    });
    stream.moved(begun, begun + transfer);
    let mut outcome = sent.as_ref().map(|_| ()).map_err(Clone::clone);
    let mut hash = String::new();
    if let (Ok((length, last)), None) = (&sent, &worked.record.failed) {
        let trailer = Trailer {
            // Only memory may end anywhere, but not by a stop.
            whole: (worked.ended && *length == worked.bytes)
                || (source.is_endless() && !stream.lock().stopped),
            length: *length,
            hash: *last,
        };
        hash = hex(*last);
        let bytes = trailer.encode();
        outcome = write(stream, &mut Stride::new(None, BLOCK), &bytes, bytes.len());
    }
    // With the connection the receiver learns that it was not all.
    let _ = stream.socket().shutdown(Shutdown::Write);
    let failed = worked.record.failed.clone();
    stream.copied(CopyRecord {
        hash,
        cached_before_share: cached_before,
        cached_after_share: source.cached(),
        ..record(worked, &ring, begun, transfer)
    });
    failed.map_or(outcome, Err)
}

/// The storage's thread at the sender.
fn read(stream: &LoadStream<'_>, source: &dyn CopySource, ring: &Ring) -> Worked {
    let mut worked = Worked::default();
    let mut hasher = Hasher::new();
    while let Some(mut block) = ring.free() {
        let wanted = stream.claim(BLOCK as u64) as usize;
        if wanted == 0 {
            worked.ended = true;
            break;
        }
        let before = Instant::now();
        match source.read(worked.bytes, block.room(BLOCK)) {
            Ok(got) => {
                let got = got.min(wanted);
                block.cut(got);
                let read = Instant::now();
                hasher.write(block.data());
                block.note = hasher.finish_128();
                worked.record.hashing += read.elapsed().into();
                worked.record.working += before.elapsed().into();
                worked.bytes += got as u64;
                if got > 0 {
                    ring.fill(block);
                }
                if got < BLOCK {
                    worked.ended = true;
                    break;
                }
            }
            Err(why) => {
                worked.record.failed = Some(why);
                break;
            }
        }
    }
    ring.end();
    worked
}

/// The network's thread at the sender: how much it has sent, and the hash of that.
fn push(stream: &LoadStream<'_>, ring: &Ring) -> Result<(u64, u128), String> {
    let mut stride = Stride::new(None, BLOCK);
    let (mut length, mut hash) = (0, Hasher::new().finish_128());
    while stream.phase() == LoadPhase::Running {
        let Some(mut block) = ring.filled() else {
            break;
        };
        let (bytes, own) = (block.data().len() as u64, block.note);
        let header = (bytes as u32).to_be_bytes();
        write(stream, &mut stride, block.behind(&header), HEADER)?;
        (length, hash) = (length + bytes, own);
        ring.release(block);
    }
    Ok((length, hash))
}

/// Sends all of this; the first `header` bytes are not counted.
fn write(
    stream: &LoadStream<'_>,
    stride: &mut Stride,
    mut data: &[u8],
    mut header: usize,
) -> Result<(), String> {
    let mut before = Instant::now();
    while !data.is_empty() {
        let part = &data[..data.len().min(stride.size)];
        match stream.send(stream.fd(), part) {
            Ok(written) => {
                data = &data[written..];
                let of_header = written.min(header);
                header -= of_header;
                stream.count(written - of_header);
                before = stride.follow(before, BLOCK);
            }
            Err(e) if is_pause(&e) && stream.phase() != LoadPhase::Cut => {}
            Err(e) if is_pause(&e) && !stream.is_limited() => {
                return Err(format!(
                    "what was begun could not be finished within {} s; the copy was not kept",
                    STORAGE_DRAIN.as_secs()
                ));
            }
            Err(e) => return Err(stream.broken(&e)),
        }
    }
    Ok(())
}

/// Receives, hashes and writes until the sender's end, verifies, makes it safe and puts it in its place.
fn receive(stream: &LoadStream<'_>, sink: &dyn CopySink) -> Result<(), String> {
    let ring = new_ring();
    // The time of a copy begins with its first byte: the source may have had to be prepared.
    let mut header = [0; HEADER];
    let first = fill(stream, &mut header);
    let begun = Instant::now();
    let (worked, pulled, transfer) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_down(sink, &ring));
        let pulled = first.and_then(|()| pull(stream, &ring, header));
        ring.end();
        let transfer = begun.elapsed();
        let worked = writer.join().unwrap_or_else(|_| panicked());
        (worked, pulled, transfer)
    });
    stream.moved(begun, begun + transfer);
    let (bytes, hash) = (worked.bytes, worked.hash);
    let mut copy = record(worked, &ring, begun, transfer);
    let mut outcome = pulled.as_ref().map(|_| ()).map_err(Clone::clone);
    if let (Ok(Some(trailer)), None) = (pulled, &copy.failed) {
        let verified = trailer.length == bytes && trailer.hash == hash;
        copy.hash = hex(hash);
        copy.verified = Some(verified);
        copy.failed = match verified {
            true => safe(sink, trailer.whole, &mut copy).err(),
            false => Some(
                "length or hash differ from the sender's: the copy was removed; look for a faulty host or device on the way"
                    .to_owned(),
            ),
        };
        outcome = Ok(());
    }
    copy.span = begun.elapsed().into();
    copy.cached_after_share = sink.cached(bytes);
    let failed = copy.failed.clone();
    stream.copied(copy);
    if failed.is_some() {
        // The sender need not go on.
        let _ = stream.socket().shutdown(Shutdown::Both);
    }
    failed.map_or(outcome, Err)
}

/// Makes a verified copy safe; if it is the whole, it may stay.
fn safe(sink: &dyn CopySink, whole: bool, copy: &mut CopyRecord) -> Result<(), String> {
    let before = Instant::now();
    let settled = sink.settle()?;
    copy.kept = whole && sink.commit()?;
    copy.fsync = settled.then(|| before.elapsed().into());
    Ok(())
}

/// The network's thread at the receiver; `None` if nobody wanted more.
fn pull(
    stream: &LoadStream<'_>,
    ring: &Ring,
    mut header: [u8; HEADER],
) -> Result<Option<Trailer>, String> {
    loop {
        let len = u32::from_be_bytes(header) as usize;
        if len == 0 {
            let mut trailer = [0; Trailer::LEN];
            fill(stream, &mut trailer)?;
            return Ok(Some(Trailer::decode(&trailer)));
        }
        if len > BLOCK {
            return Err(
                "the sender's blocks are too large: install the same linerate on both hosts".into(),
            );
        }
        let Some(mut block) = ring.free() else {
            return Ok(None);
        };
        let mut room = block.room(len);
        while !room.is_empty() {
            let got = some(stream, room)?;
            stream.count(got);
            room = &mut room[got..];
        }
        ring.fill(block);
        fill(stream, &mut header)?;
    }
}

fn fill(stream: &LoadStream<'_>, mut room: &mut [u8]) -> Result<(), String> {
    while !room.is_empty() {
        let got = some(stream, room)?;
        room = &mut room[got..];
    }
    Ok(())
}

/// At least one byte.
fn some(stream: &LoadStream<'_>, room: &mut [u8]) -> Result<usize, String> {
    match Spin::NEVER.some(stream, stream.fd(), room, || {})? {
        0 if stream.is_limited() => Err(stream.broken(&ErrorKind::BrokenPipe.into())),
        0 => Err("the sender ended before the end of the copy: it was removed".into()),
        got => Ok(got),
    }
}

/// The storage's thread at the receiver.
fn write_down(sink: &dyn CopySink, ring: &Ring) -> Worked {
    let mut worked = Worked::default();
    let mut hasher = Hasher::new();
    while let Some(block) = ring.filled() {
        let before = Instant::now();
        hasher.write(block.data());
        worked.record.hashing += before.elapsed().into();
        let written = sink.write(worked.bytes, block.data());
        worked.record.working += before.elapsed().into();
        worked.bytes += block.data().len() as u64;
        ring.release(block);
        if let Err(why) = written {
            worked.record.failed = Some(why);
            ring.abandon();
            break;
        }
    }
    worked.hash = hasher.finish_128();
    worked
}

fn record(worked: Worked, ring: &Ring, begun: Instant, transfer: Duration) -> CopyRecord {
    let waits = ring.waits();
    CopyRecord {
        span: begun.elapsed().into(),
        transfer: transfer.into(),
        ring_full: waits.full.into(),
        ring_empty: waits.empty.into(),
        ..worked.record
    }
}

fn panicked() -> Worked {
    let mut worked = Worked::default();
    worked.record.failed =
        Some("the thread of the storage broke down: a fault of linerate".to_owned());
    worked
}

fn hex(hash: u128) -> String {
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_copy_is_read_as_it_was_written() {
        let trailer = Trailer {
            whole: true,
            length: 1 << 40,
            hash: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        };
        let bytes = trailer.encode();
        assert_eq!(bytes[..HEADER], [0; HEADER], "a block of length zero");
        let body = bytes[HEADER..].try_into().unwrap();
        assert_eq!(Trailer::decode(body), trailer);
    }
}
