//! Traces of single connections, whole and short, that a trigger starts: one at a time, and so many a day. The archive keeps
//! them.

use crate::event_ring::EventRing;
use crate::filter_args::LOOK;
use crate::lookup::refused;
use crate::prelude::*;
use explain::{AlarmedSocket, SocketAlarm, TraceWatcher};
use flate2::Compression;
use flate2::write::GzEncoder;
use model::{Connection, WATCH_SCHEMA, WatchTrace};
use observe::trace::{EncodedEvent, Filter, PreferredSource, Recording, TraceOptions, Tracer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

const DAY: Nanos = Nanos::from_secs(86_400);
/// A connection is not traced again before.
const AGAIN: Nanos = Nanos::from_secs(3_600);
/// Between two times that all is written to the file.
const FLUSH: Nanos = Nanos::from_secs(1);
/// Room for events that wait to be read: one connection needs little.
const ROOM: u32 = 8 << 20;
/// Events before a trigger that are kept at most: some 50 MB.
const MOST_BEFORE: usize = 64 << 10;

#[derive(Args, Clone, Debug)]
pub struct TriggerArgs {
    /// Trace a connection when this holds, for 'linerate explain': limit=NAME, stall, rto, retransmissions=1%, below=10M,
    /// process=NAME
    #[arg(long, value_name = "WHEN", value_delimiter = ',')]
    pub trigger: Vec<SocketAlarm>,
    /// Length of a trace
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "trigger")]
    trace_time: Nanos,
    /// Begin a trace so long before its trigger: all chosen connections (--port, --peer, --pid) are traced all the time, and this is
    /// kept in memory, 65,536 events at most
    #[arg(long, value_name = "TIME", requires = "trigger")]
    before: Option<Nanos>,
    /// Traces in 24 hours at most, one at a time
    #[arg(long, value_name = "N", default_value_t = 24, requires = "trigger")]
    most_traces: usize,
    /// Bytes of traces in 24 hours at most
    #[arg(long, value_name = "SIZE", default_value = "1G", requires = "trigger")]
    most_bytes: Bytes,
}

/// A trace that is kept.
#[derive(Debug)]
pub struct TriggeredTrace {
    pub record: WatchTrace,
    /// Its shown name.
    pub shown: String,
    pub file: PathBuf,
    pub explanations: Vec<Explanation>,
}

impl TriggeredTrace {
    /// In a line.
    pub fn line(&self, at: Nanos) -> String {
        let first = self.explanations.first();
        let (name, found) = match (first, &self.record.found) {
            (Some(one), Some(found)) => (format!("{}: ", one.name), found.as_str()),
            _ => (String::new(), "nothing to explain"),
        };
        format!(
            "{} s: {}{}: traced as {}: {name}{found}",
            at.0 / 1_000_000_000,
            self.record.trigger,
            report::watch::before(&self.record),
            self.shown
        )
    }
}

/// The traces of a watch.
pub struct TriggeredTraces<'a> {
    args: &'a TriggerArgs,
    /// Which connections a trigger may hold for.
    filter: Filter,
    archive: PathBuf,
    before: Option<BeforeTrigger>,
    running: Option<RunningTrace>,
    /// When each of the last day began (since 1970-01-01 UTC), and how long it became.
    made: Vec<(Nanos, Bytes)>,
    traced: BTreeMap<(u32, u64), Nanos>,
}

struct RunningTrace {
    thread: JoinHandle<Result<TriggeredTrace>>,
    stop: Arc<AtomicBool>,
}

impl<'a> TriggeredTraces<'a> {
    /// Those of the last day that the archive has count.
    pub fn new(
        args: &'a TriggerArgs,
        filter: Filter,
        global: &Global,
        unix: Nanos,
    ) -> Result<TriggeredTraces<'a>> {
        let mut traces = TriggeredTraces {
            args,
            filter,
            archive: PathBuf::new(),
            before: None,
            running: None,
            made: Vec::new(),
            traced: BTreeMap::new(),
        };
        if !args.trigger.is_empty() {
            traces.archive = global.archive_path().map_err(refused)?;
            let lately = RunFilter {
                since: Some(unix.since(DAY)),
                ..RunFilter::default()
            };
            let kept = Archive::open(&traces.archive).and_then(|archive| archive.watches(&lately));
            for record in kept.map_err(refused)? {
                if let WatchRecord::Trace(trace) = record {
                    traces.made.push((trace.started, trace.bytes));
                }
            }
        }
        traces.look_back()?;
        Ok(traces)
    }

    /// Keeps from now on what comes before the next trigger, where that is wanted.
    fn look_back(&mut self) -> Result<()> {
        let begin = |span| BeforeTrigger::begin(&self.filter, span);
        self.before = self.args.before.map(begin).transpose()?;
        Ok(())
    }

    /// Whether one can begin.
    pub fn is_free(&mut self, now: Nanos, unix: Nanos) -> bool {
        self.made.retain(|(at, _)| unix.since(*at) < DAY);
        self.traced.retain(|_, at| now.since(*at) < AGAIN);
        self.running.is_none()
            && !self.args.trigger.is_empty()
            && self.made.len() < self.args.most_traces
            && self.room().0 > 0
    }

    /// Whether a connection was traced lately.
    pub fn has(&self, about: &Connection) -> bool {
        self.traced.contains_key(&(about.netns, about.cookie))
    }

    /// Bytes that are left today.
    fn room(&self) -> Bytes {
        let made: u64 = self.made.iter().map(|(_, bytes)| bytes.0).sum();
        Bytes(self.args.most_bytes.0.saturating_sub(made))
    }

    /// Traces this connection.
    pub fn begin(&mut self, socket: &AlarmedSocket, unix: Nanos, now: Nanos) {
        let about = &socket.connection;
        self.traced.insert((about.netns, about.cookie), now);
        let limits = TraceLimits {
            length: self.args.trace_time,
            room: self.room(),
        };
        self.made.push((unix, Bytes(0)));
        let record = WatchTrace {
            schema: WATCH_SCHEMA,
            id: archive::new_id(),
            host: engine::trust::host_name(),
            started: unix,
            trigger: name(self.args.trigger[socket.alarm]),
            pid: socket.pid,
            process: socket.comm,
            local: about.local,
            remote: about.remote,
            before: Nanos(0),
            bytes: Bytes(0),
            found: None,
            ended: Ended::Unfinished,
        };
        let only = OneSocket {
            netns: about.netns,
            cookie: about.cookie,
            id: None,
        };
        let before = self.before.take();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (path, stop) = (self.archive.clone(), Arc::clone(&stop));
            move || kept(&path, record, only, before, &limits, &stop)
        });
        self.running = Some(RunningTrace { thread, stop });
    }

    /// One that ended.
    pub fn ended(&mut self) -> Option<Result<TriggeredTrace>> {
        let running = self
            .running
            .take_if(|running| running.thread.is_finished())?;
        Some(self.join(running))
    }

    /// The one that still runs is cut short.
    pub fn stop(&mut self) -> Option<Result<TriggeredTrace>> {
        let running = self.running.take()?;
        running.stop.store(true, Ordering::Relaxed);
        Some(self.join(running))
    }

    fn join(&mut self, running: RunningTrace) -> Result<TriggeredTrace> {
        let kept = running.thread.join();
        self.look_back()?;
        let kept = kept
            .map_err(|_| anyhow::anyhow!("the thread of a trace ended early"))
            .flatten()?;
        if let Some((_, bytes)) = self.made.last_mut() {
            *bytes = kept.record.bytes;
        }
        Ok(kept)
    }
}

/// How long a trace may become.
struct TraceLimits {
    length: Nanos,
    room: Bytes,
}

/// A trace that the archive keeps from its begin on, so that one of a killed process is there as far as it came. One that
/// fails is not kept.
fn kept(
    path: &Path,
    mut record: WatchTrace,
    only: OneSocket,
    before: Option<BeforeTrigger>,
    limits: &TraceLimits,
    stop: &AtomicBool,
) -> Result<TriggeredTrace> {
    let mut archive = Archive::open(path)?;
    let id = record.id.clone();
    let store = |archive: &mut Archive, record: &WatchTrace| {
        archive.store_watch(&WatchRecord::Trace(Box::new(record.clone())))
    };
    store(&mut archive, &record)?;
    let traces = archive.traces();
    let traced = traces
        .create(&id, 0, Side::Local)
        .map_err(anyhow::Error::from)
        .and_then(|file| trace(only, before, file, limits, stop))
        .inspect_err(|_| drop(archive.delete(&NamedDocument::Watch(id.clone()))))?;
    let file = traces.file(&id, 0, Side::Local);
    record.bytes = Bytes(std::fs::metadata(&file).map_or(0, |found| found.len()));
    let (explanations, before) = traced;
    record.before = before;
    record.found = explanations.first().map(report::explain::sentence);
    record.ended = match stop.load(Ordering::Relaxed) {
        true => Ended::Interrupted,
        false => Ended::Complete,
    };
    store(&mut archive, &record)?;
    Ok(TriggeredTrace {
        shown: archive.shown(&id),
        record,
        file,
        explanations,
    })
}

/// How an alarm is written.
fn name(alarm: SocketAlarm) -> String {
    match alarm {
        SocketAlarm::Limit(limit) => limit.words().to_owned(),
        SocketAlarm::Stall => "a stall".to_owned(),
        SocketAlarm::Rto => "a retransmission timeout".to_owned(),
        SocketAlarm::Retransmissions(share) => format!("retransmissions of {} %", share * 100.0),
        SocketAlarm::Below(rate) => format!("slower than {rate}"),
        SocketAlarm::Process(pattern) => format!("data of {pattern}"),
    }
}

/// The records of one socket.
struct OneSocket {
    netns: u32,
    cookie: u64,
    /// Its number in the trace, once its connection came.
    id: Option<u32>,
}

impl OneSocket {
    /// This record, if it is none of another connection; of this one its number becomes 0.
    fn take(&mut self, mut record: TraceRecord) -> Option<TraceRecord> {
        let number = match &mut record {
            TraceRecord::Connection(one) => {
                if (one.netns, one.cookie) == (self.netns, self.cookie) {
                    self.id = Some(one.id);
                }
                &mut one.id
            }
            TraceRecord::Segment(segment) => &mut segment.connection,
            TraceRecord::Sample(sample) => &mut sample.connection,
            _ => return Some(record),
        };
        if self.id != Some(*number) {
            return None;
        }
        *number = 0;
        Some(record)
    }
}

/// How to trace for a trigger.
fn options() -> TraceOptions {
    TraceOptions {
        source: PreferredSource::Whichever,
        buffer_bytes: ROOM,
        owners: true,
        late: LOOK,
        ..TraceOptions::default()
    }
}

/// A trace of all that a trigger may hold for, whose last seconds are kept.
struct BeforeTrigger {
    thread: JoinHandle<(Tracer, EventRing)>,
    fires: Arc<AtomicBool>,
}

impl BeforeTrigger {
    fn begin(filter: &Filter, span: Nanos) -> Result<BeforeTrigger> {
        let mut tracer = Tracer::start(filter, &options())?;
        let mut ring = EventRing::new(span, MOST_BEFORE);
        let fires = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let fires = Arc::clone(&fires);
            move || {
                while !fires.load(Ordering::Relaxed) {
                    tracer.read(LOOK, &mut |record, written| ring.push(record, written));
                }
                (tracer, ring)
            }
        });
        Ok(BeforeTrigger { thread, fires })
    }

    /// The trace, which goes on, and what it has so far.
    fn end(self) -> Option<(Tracer, EventRing)> {
        self.fires.store(true, Ordering::Relaxed);
        self.thread.join().ok()
    }
}

/// Traces one socket until it ends, or so long or so much; returns how long before that its trace begins, too.
fn trace(
    only: OneSocket,
    before: Option<BeforeTrigger>,
    file: File,
    limits: &TraceLimits,
    stop: &AtomicBool,
) -> Result<(Vec<Explanation>, Nanos)> {
    let looked_back = before.and_then(BeforeTrigger::end);
    let looked_back = looked_back
        .and_then(|(tracer, ring)| Some((tracer, ring.take_socket(only.netns, only.cookie)?)));
    // A tracer of this socket alone needs no choice among its records.
    let (mut tracer, mut only, (kept, before)) = match looked_back {
        Some((tracer, kept)) => (tracer, Some(only), kept),
        None => {
            let filter = Filter {
                netns: Some(only.netns),
                cookie: Some(only.cookie),
                ..Filter::default()
            };
            let tracer = Tracer::start(&filter, &options())?;
            (tracer, None, (Vec::new(), Nanos(0)))
        }
    };
    let failed = "cannot write a trace beside the archive";
    let size = || file.metadata().map_or(Bytes(0), |found| Bytes(found.len()));
    let mut packed = GzEncoder::new(&file, Compression::fast());
    let mut recording = Recording::begin(&mut packed, &tracer).context(failed)?;
    let mut watcher = TraceWatcher::default();
    let mut written = Ok(());
    let mut flushed = std::time::Instant::now();
    let mut take = |record: TraceRecord, bytes: EncodedEvent<'_>| {
        let record = match &mut only {
            Some(only) => only.take(record),
            None => Some(record),
        };
        let Some(record) = record else {
            return (true, false);
        };
        if written.is_ok() {
            written = recording.add(&record, bytes);
        }
        // What was packed is in the file, should this process be killed.
        if written.is_ok() && Nanos::from(flushed.elapsed()) >= FLUSH {
            written = recording.flush();
            flushed = std::time::Instant::now();
        }
        watcher.push(record);
        (written.is_ok(), watcher.is_over())
    };
    for (record, bytes) in kept {
        take(record, EncodedEvent(&bytes));
    }
    let began = std::time::Instant::now();
    let mut goes_on = true;
    while goes_on
        && Nanos::from(began.elapsed()) < limits.length
        && size() < limits.room
        && !stop.load(Ordering::Relaxed)
    {
        tracer.read(LOOK, &mut |record, bytes| {
            let (is_written, is_over) = take(record, bytes);
            goes_on &= is_written && !is_over;
        });
    }
    tracer.stop(&mut |record, bytes| {
        take(record, bytes);
    });
    written
        .and_then(|()| recording.flush())
        .and_then(|()| packed.finish())
        .context(failed)?;
    Ok((watcher.explain(), before))
}
