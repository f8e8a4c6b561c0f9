//! Traces in files: as the probes wrote them, or a JSON object a line.
//!
//! The first form costs next to nothing to write. It is the line `linerate trace 1`, a line of JSON (how the
//! trace begins, and what turns the kernel's times into ours), and then blocks: a byte of kind, the length in
//! four bytes (little-endian), the content. Kind `j` is a record in JSON (all of them
//! where there are no probes). An event (bpf/record.h) has no length:
//! most of its words of eight bytes are those of the connection's event before, so kind `e` is a slot (a byte), a
//! mask (eight bytes, little-endian: bit n is word n) of the words that differ from the last event in that slot, and
//! those words; kind `d`, a dropped segment, has the name of the device behind them, kind `h` headers.
//! Where a trace goes straight to a file, the thread that reads the probes packs events at once ([`Packer`]); else
//! nothing is packed.

use super::connections::Connections;
use super::record::{self, Clock, DEVICE, EncodedRecord, HEADERS, RECORD, Raw, Terms, WORD, WORDS};
use super::{EncodedEvent, Tracer};
use model::{Nanos, TRACE_SCHEMA, TraceBegin, TraceRecord, TraceSource, What};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::iter;
use std::mem::offset_of;

const MAGIC: &str = "linerate trace 1\n";

/// How a trace of JSON lines begins.
const FIRST_LINE: &str = "{\"kind\":\"begin\"";

/// Slots for events that the next are compared with.
const SLOTS: usize = 256;

/// Words of an event.
type Words = [[u8; WORD]; WORDS];

/// Lines and blocks beyond this are no trace.
const LONGEST: u64 = 64 * 1024;

/// Why a file cannot be read as a trace.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read at all.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// It is something else, or damaged.
    #[error("it is no trace of linerate, or damaged: {0}")]
    Form(String),
}

/// The second line.
#[derive(Debug, Serialize, Deserialize)]
struct TraceHead {
    begin: TraceBegin,
    #[serde(flatten)]
    clock: Clock,
    record_bytes: usize,
    drop_reasons: BTreeMap<u32, String>,
}

impl TraceHead {
    /// Writes the first two lines.
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(MAGIC.as_bytes())?;
        serde_json::to_writer(&mut *to, self)?;
        to.write_all(b"\n")
    }
}

/// Writes a trace as the probes wrote it.
pub struct Recording<W: Write> {
    to: W,
    /// Events come as the probes write them; else each record is written in JSON.
    raw: bool,
    packer: Packer,
    /// Room for a block.
    block: Packed,
}

/// Makes blocks of events: what differs from the one before in the slot.
pub(super) struct Packer {
    slots: Vec<Words>,
}

/// Bytes of a block before its words.
const BEFORE_WORDS: usize = 10;
/// Words that are copied at once.
const AT_ONCE: usize = 4;
/// Room for a block, and for words that are copied in vain.
const BLOCK: usize = BEFORE_WORDS + RECORD + AT_ONCE * WORD;

/// Blocks of events, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// Longer than the part in use, so that a write needs no allocation.
    room: Vec<u8>,
    filled: usize,
}

impl Packed {
    /// With room for this many bytes and one event more.
    pub(super) fn with_room(bytes: usize) -> Packed {
        Packed {
            room: vec![0; bytes + BLOCK + HEADERS],
            filled: 0,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.room[..self.filled]
    }

    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }

    #[inline(always)]
    fn next(&mut self) -> &mut [u8; BLOCK] {
        if self.room.len() < self.filled + BLOCK + HEADERS {
            self.room.resize(self.filled + BLOCK + HEADERS, 0);
        }
        let next = self.room[self.filled..].first_chunk_mut();
        next.expect("there is as much room")
    }
}

impl Default for Packer {
    fn default() -> Packer {
        Packer {
            slots: vec![[[0; WORD]; WORDS]; SLOTS],
        }
    }
}

impl Packer {
    /// Adds an event, whose words `now` returns, and what is behind it: nothing, the device of a drop, or headers.
    /// Returns it where it is remembered.
    #[inline(always)]
    pub(super) fn pack<'a>(
        &'a mut self,
        now: impl Fn(usize) -> [u8; WORD],
        behind: &'a [u8],
        to: &mut Packed,
    ) -> EncodedRecord<'a> {
        const COOKIE: usize = offset_of!(Raw, cookie);
        let received = what(&now) == What::Received;
        // Any slot will do; both directions of a connection have their own.
        let slot = (u64::from_ne_bytes(now(COOKIE / WORD)) << 1 | u64::from(received)) as u8;
        let last = &mut self.slots[usize::from(slot)];
        // Without a branch, since which words differ is hard to guess, and from the last on, which shifts by one.
        let words = last.iter().enumerate().rev();
        let mask: u64 = words.fold(0, |mask, (n, last)| mask << 1 | u64::from(now(n) != *last));
        let block = to.next();
        block[..2].copy_from_slice(&[kind(behind.len()), slot]);
        block[2..BEFORE_WORDS].copy_from_slice(&mask.to_le_bytes());
        let (mut end, mut left) = (BEFORE_WORDS, mask);
        while left != 0 {
            // How many there are is hard to guess too: where none is left, one that nobody sees is copied.
            for _ in 0..AT_ONCE {
                let word = (left.trailing_zeros() as usize).min(WORDS - 1);
                last[word] = now(word);
                block[end..end + WORD].copy_from_slice(&last[word]);
                end += if left == 0 { 0 } else { WORD };
                left &= left.wrapping_sub(1);
            }
        }
        to.filled += end;
        if !behind.is_empty() {
            to.room[to.filled..][..behind.len()].copy_from_slice(behind);
            to.filled += behind.len();
        }
        let last = last.as_flattened().first_chunk();
        EncodedRecord::new(last.expect("a record is whole words"), behind)
    }
}

/// What an event is, by its words.
#[inline(always)]
pub(super) fn what(word: impl Fn(usize) -> [u8; WORD]) -> What {
    const WHAT: usize = offset_of!(Raw, what);
    record::kind(word(WHAT / WORD)[WHAT % WORD])
}

/// Kind of the block of an event with so much behind it.
fn kind(behind: usize) -> u8 {
    match behind {
        0 => b'e',
        DEVICE => b'd',
        _ => b'h',
    }
}

/// Reads blocks of events.
struct Unpacker {
    slots: Vec<[u8; RECORD]>,
    behind: [u8; HEADERS],
}

impl Default for Unpacker {
    fn default() -> Unpacker {
        Unpacker {
            slots: vec![[0; RECORD]; SLOTS],
            behind: [0; HEADERS],
        }
    }
}

impl Unpacker {
    /// Reads an event and what is behind it, after the byte of its kind.
    fn event(&mut self, kind: u8, from: &mut impl Read) -> Result<EncodedRecord<'_>, FileError> {
        let [slot] = take(from)?;
        let mut mask = u64::from_le_bytes(take(from)?);
        if mask >> WORDS != 0 {
            return Err(form("an event is longer than events are"));
        }
        let last = &mut self.slots[usize::from(slot)];
        while mask != 0 {
            let word = mask.trailing_zeros() as usize;
            from.read_exact(&mut last[word * WORD..][..WORD])?;
            mask &= mask - 1;
        }
        let behind = match kind {
            b'e' => &mut [],
            b'd' => &mut self.behind[..DEVICE],
            b'h' => &mut self.behind[..],
            _ => return Err(form("a block is of no known kind")),
        };
        from.read_exact(behind)?;
        Ok(EncodedRecord::new(last, behind))
    }
}

fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl<W: Write> Recording<W> {
    /// Begins the file.
    pub fn begin(mut to: W, tracer: &Tracer) -> io::Result<Recording<W>> {
        let head = TraceHead {
            begin: tracer.begin.clone(),
            clock: tracer.terms.clock,
            record_bytes: RECORD,
            drop_reasons: tracer.terms.drop_reasons.clone(),
        };
        head.write(&mut to)?;
        Ok(Recording {
            to,
            raw: tracer.begin.source == TraceSource::Probes,
            packer: Packer::default(),
            block: Packed::default(),
        })
    }

    /// Adds a record.
    pub fn add(&mut self, record: &TraceRecord, written: EncodedEvent<'_>) -> io::Result<()> {
        match record {
            // Stands in the head.
            TraceRecord::Begin(_) => Ok(()),
            TraceRecord::Segment(_) if self.raw => match EncodedRecord::of(written.0) {
                Some(event) => self.event(event),
                None => Ok(()),
            },
            // Follow from the events.
            TraceRecord::Connection(_) if self.raw => Ok(()),
            _ => {
                let text = serde_json::to_vec(record)?;
                self.to.write_all(b"j")?;
                self.to.write_all(&(text.len() as u32).to_le_bytes())?;
                self.to.write_all(&text)
            }
        }
    }

    /// Hands on what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Adds events that are packed already: all of them are, or none.
    pub(super) fn pass(&mut self, packed: &[u8]) -> io::Result<()> {
        self.to.write_all(packed)
    }

    pub(super) fn event(&mut self, event: EncodedRecord<'_>) -> io::Result<()> {
        let words = event.record().as_chunks().0;
        let tail = event.tail();
        // The device's room is always filled.
        let mut device = [0; DEVICE];
        device[..tail.len()].copy_from_slice(tail);
        let filled = if tail.is_empty() { 0 } else { DEVICE };
        self.block.clear();
        self.packer
            .pack(|n| words[n], &device[..filled], &mut self.block);
        self.to.write_all(self.block.bytes())
    }
}

/// The head of a recording that nobody made, to read blocks behind it.
pub fn any_head() -> Vec<u8> {
    let head = TraceHead {
        begin: TraceBegin {
            schema: TRACE_SCHEMA,
            ..TraceBegin::default()
        },
        clock: Clock {
            start: Nanos(1),
            tick: Nanos(4_000_000),
        },
        record_bytes: RECORD,
        drop_reasons: BTreeMap::new(),
    };
    let mut bytes = Vec::new();
    head.write(&mut bytes).expect("memory takes all writes");
    bytes
}

/// Whether something begins as a trace does, in either form and of any version.
pub fn is_trace(from: impl Read) -> bool {
    let any_version = MAGIC.trim_end_matches("1\n");
    let longest = any_version.len().max(FIRST_LINE.len()) as u64;
    let mut head = Vec::new();
    let read = from.take(longest).read_to_end(&mut head);
    read.is_ok()
        && [any_version, FIRST_LINE]
            .iter()
            .any(|begin| head.starts_with(begin.as_bytes()))
}

/// Reads a trace of either form, record by record: [`TraceRecord::Begin`] first. A file that breaks off
/// simply ends, without [`TraceRecord::End`].
///
/// # Errors
/// If it does not begin as a trace does.
pub fn open<'a>(
    from: impl Read + 'a,
) -> Result<Box<dyn Iterator<Item = Result<TraceRecord, FileError>> + 'a>, FileError> {
    let mut from = BufReader::with_capacity(1 << 18, from);
    if from.fill_buf()?.first() == Some(&b'{') {
        let numbers = HashMap::new();
        let mut lines = TraceLines { from, numbers };
        return Ok(Box::new(iter::from_fn(move || lines.next().transpose())));
    }
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic)
        .map_err(|_| form("it is too short"))?;
    if magic != MAGIC.as_bytes() {
        return Err(form("it begins like something else"));
    }
    let head: TraceHead = match line(&mut from)? {
        Some(line) => serde_json::from_slice(line.as_bytes()).map_err(form)?,
        None => return Err(form("it is too short")),
    };
    if head.record_bytes != RECORD {
        return Err(form("its events are those of another version"));
    }
    let mut blocks = TraceBlocks {
        from,
        terms: Terms {
            clock: head.clock,
            drop_reasons: head.drop_reasons,
        },
        unpacker: Unpacker::default(),
        connections: Connections::default(),
        ready: VecDeque::from([TraceRecord::Begin(head.begin)]),
    };
    Ok(Box::new(iter::from_fn(move || blocks.next().transpose())))
}

/// What a trigger lets out has only some of the connections: they are numbered again.
struct TraceLines<R> {
    from: R,
    numbers: HashMap<u32, u32>,
}

impl<R: BufRead> TraceLines<R> {
    fn next(&mut self) -> Result<Option<TraceRecord>, FileError> {
        let Some(line) = line(&mut self.from)? else {
            return Ok(None);
        };
        let mut record = serde_json::from_slice(line.as_bytes()).map_err(form)?;
        match &mut record {
            TraceRecord::Connection(connection) => {
                let next = self.numbers.len() as u32;
                connection.id = *self.numbers.entry(connection.id).or_insert(next);
            }
            TraceRecord::Segment(segment) => {
                segment.connection = self.number(segment.connection)?;
            }
            TraceRecord::Sample(sample) => sample.connection = self.number(sample.connection)?,
            _ => {}
        }
        Ok(Some(record))
    }

    fn number(&self, connection: u32) -> Result<u32, FileError> {
        let number = self.numbers.get(&connection).copied();
        number.ok_or_else(|| form("an event of no connection"))
    }
}

fn form(why: impl ToString) -> FileError {
    FileError::Form(why.to_string())
}

/// The next line; `None` at the end, also where the last one is not whole.
fn line(from: &mut impl BufRead) -> Result<Option<String>, FileError> {
    let mut line = String::new();
    let read = from.take(LONGEST).read_line(&mut line)?;
    if line.ends_with('\n') {
        return Ok(Some(line));
    }
    match read as u64 == LONGEST {
        true => Err(form("a line is too long")),
        false => Ok(None),
    }
}

struct TraceBlocks<R> {
    from: R,
    terms: Terms,
    unpacker: Unpacker,
    connections: Connections,
    /// At most an event and its connection.
    ready: VecDeque<TraceRecord>,
}

impl<R: Read> TraceBlocks<R> {
    /// `None` at the end, also where the last block is not whole.
    fn next(&mut self) -> Result<Option<TraceRecord>, FileError> {
        while self.ready.is_empty() {
            match self.block() {
                Err(FileError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(None);
                }
                read => read?,
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Reads a block.
    fn block(&mut self) -> Result<(), FileError> {
        let [kind] = take(&mut self.from)?;
        if kind == b'j' {
            let length = u32::from_le_bytes(take(&mut self.from)?);
            if u64::from(length) > LONGEST {
                return Err(form("a block is too long"));
            }
            let mut text = vec![0; length as usize];
            self.from.read_exact(&mut text)?;
            self.ready
                .push_back(serde_json::from_slice(&text).map_err(form)?);
            return Ok(());
        }
        let event = self.unpacker.event(kind, &mut self.from)?;
        if let Some(place) = self.connections.place(event) {
            let ready = &mut |record| self.ready.push_back(record);
            event.records(place, &self.terms, ready);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Raw;
    use super::*;
    use model::TraceEnd;
    use proptest::prelude::*;

    fn file() -> Vec<u8> {
        let head = TraceHead {
            begin: TraceBegin {
                schema: TRACE_SCHEMA,
                host: "here".to_owned(),
                ..TraceBegin::default()
            },
            clock: Clock {
                start: Nanos(100),
                tick: Nanos(4_000_000),
            },
            record_bytes: RECORD,
            drop_reasons: BTreeMap::from([(65, "QDISC_OVERLIMIT".to_owned())]),
        };
        let mut bytes = Vec::new();
        head.write(&mut bytes).unwrap();
        let mut recording = Recording {
            to: bytes,
            raw: true,
            packer: Packer::default(),
            block: Packed::default(),
        };
        let sent = Raw {
            ts: 107,
            cookie: 5,
            state: 1,
            remote_port: 1,
            ..Raw::default()
        };
        let dropped = Raw {
            ts: 109,
            what: 6,
            drop_reason: 65,
            ..sent.clone()
        };
        for (raw, tail) in [(sent, &[][..]), (dropped, b"eth0\0...........")] {
            let bytes = [&raw.encode()[..], tail].concat();
            recording.event(EncodedRecord::of(&bytes).unwrap()).unwrap();
        }
        recording
            .add(&TraceRecord::End(TraceEnd::default()), EncodedEvent(&[]))
            .unwrap();
        recording.to
    }

    #[test]
    fn either_form_is_known_by_how_it_begins() {
        assert!(is_trace(&file()[..]));
        let begin = TraceRecord::Begin(TraceBegin::default());
        assert!(is_trace(&serde_json::to_vec(&begin).unwrap()[..]));
        assert!(is_trace(&b"linerate trace 2\n"[..]));
        assert!(!is_trace(&b"{\"schema\":1}"[..]));
        assert!(!is_trace(&b""[..]));
    }

    fn kinds(bytes: &[u8]) -> Vec<&'static str> {
        let kind = |record: Result<TraceRecord, FileError>| match record.unwrap() {
            TraceRecord::Begin(_) => "begin",
            TraceRecord::Connection(_) => "connection",
            TraceRecord::Segment(_) => "segment",
            TraceRecord::Sample(_) => "sample",
            TraceRecord::Owner(_) => "owner",
            TraceRecord::Lost(_) => "lost",
            TraceRecord::End(_) => "end",
        };
        open(bytes).unwrap().map(kind).collect()
    }

    #[test]
    fn what_was_written_is_read_in_either_form() {
        let bytes = file();
        let all = ["begin", "connection", "segment", "segment", "end"];
        assert_eq!(kinds(&bytes), all);
        let records: Vec<_> = open(&bytes[..]).unwrap().map(Result::unwrap).collect();
        let TraceRecord::Segment(segment) = &records[2] else {
            panic!("{records:?}");
        };
        assert_eq!(segment.at, Nanos(7));
        let TraceRecord::Segment(segment) = &records[3] else {
            panic!("{records:?}");
        };
        // Only what changed stands in the file.
        assert_eq!((segment.at, segment.what), (Nanos(9), What::Dropped));
        let dropped = segment.dropped.as_ref().unwrap();
        assert_eq!(
            (&dropped.reason[..], &dropped.device[..]),
            ("QDISC_OVERLIMIT", "eth0")
        );
        let lines: String = records
            .iter()
            .map(|r| serde_json::to_string(r).unwrap() + "\n")
            .collect();
        let again: Vec<_> = open(lines.as_bytes())
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(again, records);
    }

    #[test]
    fn a_file_that_breaks_off_ends_and_another_is_refused() {
        let bytes = file();
        assert_eq!(
            kinds(&bytes[..bytes.len() - 3]),
            ["begin", "connection", "segment", "segment"]
        );
        for bad in [
            &b""[..],
            b"linerate",
            b"linerate trace 1\n{}\n",
            b"\x0a\x0d\x0d\x0a....................",
        ] {
            assert!(matches!(open(bad), Err(FileError::Form(_))), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            changes in proptest::collection::vec((0..WORDS, any::<u64>()), 1..200),
            together in 1usize..60,
        ) {
            let (mut packer, mut packed) = (Packer::default(), Packed::default());
            let mut words = [[0; WORD]; WORDS];
            let mut all = Vec::new();
            for changes in changes.chunks(together) {
                for (word, value) in changes {
                    words[*word] = value.to_ne_bytes();
                }
                let behind = match what(|n| words[n]) {
                    What::Dropped => vec![7; DEVICE],
                    _ => Vec::new(),
                };
                let event = packer.pack(|n| words[n], &behind, &mut packed);
                prop_assert_eq!(&event.record()[..], words.as_flattened());
                all.push((words, behind));
            }
            let (mut unpacker, mut left) = (Unpacker::default(), packed.bytes());
            for (words, behind) in all {
                let [kind] = take(&mut left).unwrap();
                let event = unpacker.event(kind, &mut left).unwrap();
                prop_assert_eq!(&event.record()[..], words.as_flattened());
                prop_assert_eq!(event.rest(), behind);
            }
            prop_assert!(left.is_empty());
        }

        #[test]
        fn any_damage_is_an_error_or_an_end(at in 0usize..600, with in any::<u8>()) {
            let mut bytes = file();
            let at = at % bytes.len();
            bytes[at] = with;
            if let Ok(records) = open(&bytes[..]) {
                prop_assert!(records.take(100).count() < 100);
            }
        }
    }
}
