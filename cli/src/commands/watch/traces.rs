//! Traces of single connections, whole and short, that a trigger starts: one at a time, and so many a day.

use crate::filter_args::LOOK;
use crate::prelude::*;
use explain::{AlarmedSocket, SocketAlarm, TraceWatcher};
use model::finding::Explanation;
use model::{Bytes, Connection, Nanos, TraceRecord};
use observe::trace::{EncodedEvent, Filter, PreferredSource, Recording, TraceOptions, Tracer};
use report::words;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const DAY: Nanos = Nanos::from_secs(86_400);
/// A connection is not traced again before.
const AGAIN: Nanos = Nanos::from_secs(3_600);
/// Room for events that wait to be read: one connection needs little.
const ROOM: u32 = 8 << 20;

#[derive(Args, Clone, Debug)]
pub struct TriggerArgs {
    /// Trace a connection when this holds: limit=NAME, stall, rto, retransmissions=1%, below=10M
    #[arg(long, value_name = "WHEN", value_delimiter = ',', requires = "keep")]
    pub trigger: Vec<SocketAlarm>,
    /// Directory that the traces are written to, for 'linerate explain'
    #[arg(long, value_name = "DIR", requires = "trigger")]
    keep: Option<PathBuf>,
    /// Length of a trace
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "trigger")]
    trace_time: Nanos,
    /// Traces in 24 hours at most, one at a time
    #[arg(long, value_name = "N", default_value_t = 24, requires = "trigger")]
    most_traces: usize,
    /// Bytes of traces in 24 hours at most
    #[arg(long, value_name = "SIZE", default_value = "1G", requires = "trigger")]
    most_bytes: Bytes,
}

/// A trace that is on the disk.
#[derive(Debug)]
pub struct TriggeredTrace {
    pub trigger: String,
    pub file: PathBuf,
    pub bytes: Bytes,
    pub explanations: Vec<Explanation>,
}

impl TriggeredTrace {
    /// In a line.
    pub fn line(&self, at: Nanos) -> String {
        let found = self
            .explanations
            .first()
            .map(|one| format!("{}: {}", one.name, report::explain::sentence(one)));
        let found = found.unwrap_or_else(|| "nothing to explain".to_owned());
        let seconds = at.0 / 1_000_000_000;
        format!(
            "{seconds} s: {}: traced to {}: {found}",
            self.trigger,
            self.file.display()
        )
    }
}

/// The traces of a watch.
pub struct TriggeredTraces<'a> {
    args: &'a TriggerArgs,
    running: Option<RunningTrace>,
    /// When each of the last day began, and how long it became.
    made: Vec<(Nanos, Bytes)>,
    traced: BTreeMap<(u32, u64), Nanos>,
}

struct RunningTrace {
    thread: JoinHandle<Result<TriggeredTrace>>,
    stop: Arc<AtomicBool>,
}

impl<'a> TriggeredTraces<'a> {
    pub fn new(args: &'a TriggerArgs) -> Result<TriggeredTraces<'a>> {
        if let Some(keep) = &args.keep {
            fs::create_dir_all(keep)
                .with_context(|| format!("cannot make the directory {}", keep.display()))?;
            crate::files::check_writable(&keep.join("x"))?;
        }
        Ok(TriggeredTraces {
            args,
            running: None,
            made: Vec::new(),
            traced: BTreeMap::new(),
        })
    }

    /// Whether one can begin now.
    pub fn is_free(&mut self, now: Nanos) -> bool {
        self.made.retain(|(at, _)| now.since(*at) < DAY);
        self.traced.retain(|_, at| now.since(*at) < AGAIN);
        self.running.is_none()
            && self.args.keep.is_some()
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
        let Some(keep) = &self.args.keep else {
            return;
        };
        self.traced.insert((about.netns, about.cookie), now);
        self.made.push((now, Bytes(0)));
        let filter = Filter {
            netns: Some(about.netns),
            cookie: Some(about.cookie),
            ..Filter::default()
        };
        let time = words::utc(unix).replace([' ', ':'], "-");
        let comm: String = socket
            .comm
            .to_string()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric())
            .collect();
        let file = keep.join(format!("{time}-{comm}-{}.trace", about.remote.port()));
        let (length, room) = (self.args.trace_time, self.room());
        let trigger = name(self.args.trigger[socket.alarm]);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let (bytes, explanations) = trace(&filter, &file, length, room, &stop)?;
                Ok(TriggeredTrace {
                    trigger,
                    file,
                    bytes,
                    explanations,
                })
            }
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
        let kept = kept
            .map_err(|_| anyhow::anyhow!("the thread of a trace ended early"))
            .flatten()?;
        if let Some((_, bytes)) = self.made.last_mut() {
            *bytes = kept.bytes;
        }
        Ok(kept)
    }
}

/// How an alarm is written.
fn name(alarm: SocketAlarm) -> String {
    match alarm {
        SocketAlarm::Limit(limit) => limit.words().to_owned(),
        SocketAlarm::Stall => "a stall".to_owned(),
        SocketAlarm::Rto => "a retransmission timeout".to_owned(),
        SocketAlarm::Retransmissions(share) => format!("retransmissions of {} %", share * 100.0),
        SocketAlarm::Below(rate) => format!("slower than {rate}"),
    }
}

/// Traces one socket until it ends, or so long or so much.
fn trace(
    filter: &Filter,
    file: &Path,
    length: Nanos,
    room: Bytes,
    stop: &AtomicBool,
) -> Result<(Bytes, Vec<Explanation>)> {
    let options = TraceOptions {
        source: PreferredSource::Whichever,
        buffer_bytes: ROOM,
        owners: true,
        late: LOOK,
        ..TraceOptions::default()
    };
    let mut tracer = Tracer::start(filter, &options)?;
    let failed = || format!("cannot write {}", file.display());
    let to = BufWriter::new(File::create(file).with_context(failed)?);
    let mut recording = Recording::begin(to, &tracer).with_context(failed)?;
    let mut watcher = TraceWatcher::default();
    let mut written = Ok(());
    let mut take = |record: TraceRecord, bytes: EncodedEvent<'_>| {
        if written.is_ok() {
            written = recording.add(&record, bytes);
        }
        watcher.push(record);
        (written.is_ok(), watcher.is_over())
    };
    let size = || fs::metadata(file).map_or(Bytes(0), |found| Bytes(found.len()));
    let began = std::time::Instant::now();
    let mut goes_on = true;
    while goes_on
        && Nanos::from(began.elapsed()) < length
        && size() < room
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
        .with_context(failed)?;
    Ok((size(), watcher.explain()))
}
