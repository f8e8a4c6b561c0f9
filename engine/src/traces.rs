//! The traces of a measurement: each end records the segments of its own data sockets, and of no other.

use crate::helper::{self, Helper};
use crate::prelude::*;
use crate::reader::confined;
use archive::Traces;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use model::finding::Explanation;
use model::{SocketOptions, TRACE_SCHEMA, Trace, TraceEnd, TraceRecord, Traced};
use observe::trace::{EncodedEvent, Filter, Recording, TraceOptions, Tracer};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

/// Events that are kept of one end of a leg, some 64 MB: then its tracing ends.
pub const MOST_EVENTS: u64 = 200_000;

/// Events that wait until it is known which sockets are ours: handshakes, and whatever else knocks.
const MOST_EARLY: usize = 10_000;

/// How soon the thread notices that it is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// A trace that is being taken, here or by a process that has the right.
pub enum Tracing {
    /// By this process.
    Own(OwnTracing),
    /// By the tracer.
    Helper(helper::HelperTrace),
}

impl Tracing {
    /// Begins before the connections to or from `port` are made, in the network namespace of this thread.
    pub fn start(port: u16, tracer: Option<&Arc<Helper>>) -> Result<Tracing> {
        Ok(match tracer {
            None => Tracing::Own(OwnTracing::start(port, std::process::id())?),
            Some(tracer) => Tracing::Helper(helper::HelperTrace::start(tracer, port)?),
        })
    }

    /// These are the sockets: whatever else came to the port is dropped unseen.
    pub fn own(&self, sockets: &[SocketOptions]) {
        let ends = sockets.iter().map(|s| (flat(s.local), flat(s.remote)));
        match self {
            Tracing::Own(tracing) => tracing.own(ends),
            Tracing::Helper(tracing) => tracing.own(ends),
        }
    }

    /// Ends it.
    pub fn finish(self) -> Result<KeptTrace> {
        match self {
            Tracing::Own(tracing) => tracing.finish(),
            Tracing::Helper(tracing) => tracing.finish(),
        }
    }
}

/// A trace that this process takes.
pub struct OwnTracing {
    own: mpsc::Sender<BTreeSet<Ends>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<KeptTrace>>,
}

/// Both ends of a connection, this one first.
pub type Ends = (SocketAddr, SocketAddr);

/// A trace that was taken.
pub struct KeptTrace {
    /// What it is.
    pub traced: Traced,
    /// The file, compressed.
    pub bytes: Vec<u8>,
}

impl OwnTracing {
    /// As [`Tracing::start`], of sockets that the process `owner` uses.
    pub fn start(port: u16, owner: u32) -> Result<OwnTracing> {
        let filter = Filter {
            netns: observe::trace::own_netns(),
            port: Some(port),
            ..Filter::default()
        };
        let options = TraceOptions {
            owners: true,
            // Nobody watches: each look into the ring costs a little.
            late: LOOK,
            ..TraceOptions::default()
        };
        let tracer = Tracer::start(&filter, &options)?;
        let (own, requested) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = sys::spawn("keep-trace", move || {
            store(tracer, owner, &requested, &stopped)
        })
        .context("cannot start a thread that keeps the trace")?;
        Ok(OwnTracing { own, stop, thread })
    }

    /// As [`Tracing::own`].
    pub fn own(&self, ends: impl Iterator<Item = Ends>) {
        // A thread that is gone has left its reason.
        let _ = self.own.send(ends.collect());
    }

    /// Ends it.
    pub fn finish(self) -> Result<KeptTrace> {
        self.stop.store(true, Ordering::Relaxed);
        let kept = self.thread.join();
        kept.map_err(|_| anyhow!("the thread that kept the trace is gone"))?
    }
}

/// What to say of an end whose trace there is not.
pub fn untraced(whose: &str, error: &anyhow::Error) -> Warning {
    Warning {
        what: format!("no trace of {whose}: {}", crate::exit::sentence(error)),
        meaning: "what its sockets did between two samples is not known; all else is measured"
            .to_owned(),
        remedy: "fix that, or do without: the remote host's trace and the samples are explained"
            .to_owned(),
    }
}

/// What to say of a trace that ended before its leg.
pub fn cut(whose: &str, traced: &Traced) -> Option<Warning> {
    traced.cut.then(|| Warning {
        what: format!(
            "the trace of {whose} ends {} after it began: it had {MOST_EVENTS} events, the most that are kept",
            traced.span
        ),
        meaning: "what came later is in the samples alone".to_owned(),
        remedy: "measure for a shorter time (-t), or slower (--pacing)".to_owned(),
    })
}

/// An IPv4 address as it stands in packets, however the socket names it.
fn flat(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn store(
    mut tracer: Tracer,
    owner: u32,
    requested: &mpsc::Receiver<BTreeSet<Ends>>,
    stop: &AtomicBool,
) -> Result<KeptTrace> {
    let mut file = Vec::new();
    let mut keeper = Keeper {
        recording: Recording::begin(&mut file, &tracer)?,
        owner,
        ends: BTreeMap::new(),
        numbers: BTreeMap::new(),
        own: None,
        early: Vec::new(),
        traced: Traced::default(),
        unordered: 0,
    };
    keeper.traced.source = tracer.begin().source;
    while !stop.load(Ordering::Relaxed) && !keeper.traced.cut {
        tracer.read(LOOK, &mut |record, written| keeper.take(record, written));
        match requested.try_recv() {
            Ok(own) => keeper.settle(own),
            Err(mpsc::TryRecvError::Empty) => {}
            // Nobody will want it: the leg never began.
            Err(mpsc::TryRecvError::Disconnected) => bail!("the leg did not begin"),
        }
    }
    // Requested between the last poll and the stop.
    if let Ok(own) = requested.try_recv() {
        keeper.settle(own);
    }
    tracer.stop(&mut |record, written| keeper.take(record, written));
    let traced = keeper.finish()?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&file)?;
    let bytes = packed.finish()?;
    Ok(KeptTrace { traced, bytes })
}

/// Chooses what is kept.
struct Keeper<'a> {
    recording: Recording<&'a mut Vec<u8>>,
    /// The process whose sockets they are.
    owner: u32,
    ends: BTreeMap<u32, Ends>,
    /// What the connections are called that are kept: their numbers have no gaps.
    numbers: BTreeMap<u32, u32>,
    /// `None` while it is not known.
    own: Option<BTreeSet<Ends>>,
    early: Vec<(TraceRecord, Vec<u8>)>,
    traced: Traced,
    unordered: u64,
}

impl Keeper<'_> {
    fn take(&mut self, mut record: TraceRecord, written: EncodedEvent<'_>) {
        let (connection, at) = match &record {
            TraceRecord::Connection(c) => {
                self.ends.insert(c.id, (flat(c.local), flat(c.remote)));
                (c.id, self.traced.span)
            }
            TraceRecord::Segment(segment) => (segment.connection, segment.at),
            TraceRecord::Sample(sample) => (sample.connection, sample.at),
            TraceRecord::Lost(lost) => {
                self.traced.lost += lost.events;
                return self.add(&record, lost.to, written);
            }
            TraceRecord::End(end) => {
                self.unordered = end.unordered;
                return;
            }
            TraceRecord::Owner(owner) => {
                if owner.pid == self.owner {
                    self.add(&record, owner.at, written);
                }
                return;
            }
            TraceRecord::Begin(_) => return,
        };
        let ends = self.ends.get(&connection);
        match &self.own {
            None if self.early.len() < MOST_EARLY => {
                self.early.push((record, written.0.to_vec()));
            }
            Some(own) if ends.is_some_and(|ends| own.contains(ends)) => {
                let next = self.numbers.len() as u32;
                let number = *self.numbers.entry(connection).or_insert(next);
                match &mut record {
                    TraceRecord::Connection(c) => c.id = number,
                    TraceRecord::Segment(segment) => segment.connection = number,
                    TraceRecord::Sample(sample) => sample.connection = number,
                    _ => {}
                }
                self.add(&record, at, written);
            }
            _ => {}
        }
    }

    fn settle(&mut self, own: BTreeSet<Ends>) {
        self.own = Some(own);
        for (record, written) in std::mem::take(&mut self.early) {
            self.take(record, EncodedEvent(&written));
        }
    }

    fn add(&mut self, record: &TraceRecord, at: Nanos, written: EncodedEvent<'_>) {
        if self.traced.events >= MOST_EVENTS {
            self.traced.cut = true;
            return;
        }
        self.traced.events += u64::from(matches!(record, TraceRecord::Segment(_)));
        self.traced.span = at;
        let added = self.recording.add(record, written);
        added.expect("memory takes what is written to it");
    }

    fn finish(mut self) -> Result<Traced> {
        let end = TraceEnd {
            at: self.traced.span,
            events: self.traced.events,
            lost: self.traced.lost,
            unordered: self.unordered,
        };
        self.recording
            .add(&TraceRecord::End(end), EncodedEvent(&[]))?;
        Ok(self.traced)
    }
}

/// A file, decompressed if it is gzip.
pub fn unpacked(path: &Path) -> std::io::Result<Box<dyn BufRead + Send>> {
    let mut file = BufReader::new(sys::confine::open(path)?);
    Ok(match file.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        true => Box::new(BufReader::new(Unpacked(GzDecoder::new(file)))),
        false => Box::new(file),
    })
}

/// What was packed, as far as it goes: a file that was cut short ends.
struct Unpacked<R>(GzDecoder<R>);

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(to) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

/// Passes each record of a trace to `each`. A truncated trace is read up to the cut.
///
/// # Errors
/// Why it is none, or cannot be understood; or what `each` says.
pub fn each_record(
    from: impl Read,
    mut each: impl FnMut(TraceRecord) -> Result<(), String>,
) -> Result<(), String> {
    for record in observe::trace::open(from).map_err(|e| e.to_string())? {
        let record = record.map_err(|e| e.to_string())?;
        if let TraceRecord::Begin(begin) = &record
            && begin.schema > TRACE_SCHEMA
        {
            let schema = begin.schema;
            return Err(format!(
                "it was written by a newer linerate (schema {schema}, known up to {TRACE_SCHEMA})"
            ));
        }
        each(record)?;
    }
    Ok(())
}

/// A trace from its records.
pub fn read(from: impl Read) -> Result<Trace, String> {
    let mut trace = Trace::default();
    let unknown =
        |_| "a record belongs to a connection without a preceding connection record".to_owned();
    each_record(from, |record| trace.push(record).map_err(unknown))?;
    Ok(trace)
}

/// What limited the connections of a run: from the traces of both ends where they are kept, of one, or from
/// the samples.
pub fn explain(run: &Run, traces: &Traces) -> Vec<Explanation> {
    let files = traces.of(&run.id);
    if files.is_empty() {
        return explain_here(run, traces);
    }
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    confined(&files, || Ok(explain_here(run, traces))).unwrap_or_else(|why| {
        crate::log::note(&format!("linerate: {}", sentence(&why)));
        explain::explain(run)
    })
}

fn explain_here(run: &Run, traces: &Traces) -> Vec<Explanation> {
    let mut all = Vec::new();
    for (n, leg) in run.legs.iter().enumerate() {
        let trace = |side: Side| {
            leg.end(side).trace?;
            let read_file = || -> Result<Trace> {
                let file = traces.checked(&run.id, n, side)?;
                let why = |why| anyhow!("the trace {} cannot be read: {why}", file.display());
                read(unpacked(&file)?).map_err(why)
            };
            let note = |why| crate::log::note(&format!("linerate: {why}"));
            read_file().map_err(note).ok()
        };
        let (local, remote) = (trace(Side::Local), trace(Side::Remote));
        all.extend(explain::explain_leg(
            run,
            n,
            local.as_ref(),
            remote.as_ref(),
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_broke_off_is_read_as_far_as_it_goes() {
        let begin =
            r#"{"kind":"begin","schema":1,"host":"a","started_unix_ns":0,"source":"probes"}"#;
        assert!(observe::trace::is_trace(begin.as_bytes()));
        let connection =
            r#"{"kind":"connection","id":0,"local":"10.0.0.1:1","remote":"10.0.0.2:2"}"#;
        let segment = r#"{"kind":"segment","at_ns":5,"connection":0}"#;
        let whole = [begin, connection, segment, ""].join("\n");
        let read = |text: &str| read(text.as_bytes()).map(|t| t.segments.len());
        assert_eq!(read(&whole), Ok(1));
        assert_eq!(read(&whole[..whole.len() - 3]), Ok(0));
        assert!(read(&[begin, "x", segment, ""].join("\n")).is_err());
        assert!(read(&[begin, segment, ""].join("\n")).is_err());
        assert!(read(&[&begin.replace(":1,", ":9,"), ""].join("\n")).is_err());
    }
}
