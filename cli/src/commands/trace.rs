//! `linerate trace`: every TCP segment with its socket's state, live.

mod output;
mod trigger;

use crate::filter_args::{self, FilterArgs, LOOK};
use crate::prelude::*;
use observe::trace::{
    EncodedEvent, PreferredSource, Recording, TraceCompleteness, TraceOptions, Tracer,
};
use output::TraceOutput;
use report::trace as words;
use std::io::{BufWriter, ErrorKind};
use trigger::{Trigger, TriggerRing};

/// Trace TCP live: every segment, in order, with its socket's state
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate trace --port 2049                    NFS
  linerate trace --pid 845 --calls              with its sends and receives
  linerate trace --columns +flags,limit         'help' lists the columns
  linerate trace -w slow.trace --host 10.0.0.2  for 'linerate explain'
  linerate trace -w slow.pcapng --time 10s      for wireshark
  linerate trace --json | jq 'select(.what == \"received\")'
  linerate trace --ring 10s --trigger rto,slow=5ms
  linerate lab exec home-lan/server -- linerate trace

A line is a segment with its socket's state before it. Probes need root, or
CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; else packets (CAP_NET_RAW) and samples
of the sockets every 10 ms replace them: sampled values have a ~, unknown ones
are '-'. The last lines count what is missing.")]
pub struct TraceArgs {
    #[command(flatten)]
    which: FilterArgs,
    /// Columns, separated by commas; +NAME,... adds to the usual ones
    #[arg(long, value_name = "LIST", default_value = words::USUAL, hide_default_value = true)]
    columns: String,
    /// Also show changes of state, and every one of the application's sends and receives
    #[arg(long)]
    calls: bool,
    /// A JSON object a line
    #[arg(short = 'J', long, conflicts_with = "columns")]
    json: bool,
    /// Write to a file instead: *.pcapng for a capture, *.jsonl for JSON, anything else for a trace of linerate's own
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["json", "columns"])]
    write: Option<PathBuf>,
    /// End after this time
    #[arg(short, long, value_name = "TIME")]
    time: Option<Nanos>,
    /// Keep the last TIME in memory; write it when a trigger fires
    #[arg(long, value_name = "TIME", requires = "trigger")]
    ring: Option<Nanos>,
    /// When to write the ring: retransmission, rto, zero-window, slow=TIME (slower replies)
    #[arg(long, value_name = "WHEN", value_delimiter = ',', requires = "ring")]
    trigger: Vec<Trigger>,
    /// Where the segments come from: probes in the kernel, or packets and samples of the sockets [default: probes where they may run]
    #[arg(long, value_enum)]
    source: Option<From>,
    /// Time between two samples of the sockets, where there are no probes
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    every: Nanos,
    /// Room for events that wait to be read: all processors share it, but each has an eighth at least
    #[arg(long, value_name = "SIZE", default_value = "32M")]
    buffer: Bytes,
}

/// Where the segments come from.
#[derive(Clone, Copy, clap::ValueEnum)]
enum From {
    Probes,
    Packets,
}

impl TraceArgs {
    pub fn run(&self) -> Result<Exit> {
        if self.columns == "help" {
            for column in words::COLUMNS {
                out::print(&format!("{:<10} {}\n", column.name, column.meaning))?;
            }
            return Ok(Exit::Done);
        }
        let columns = words::columns(&self.columns).map_err(Refusal::usage)?;
        let mut options = TraceOptions {
            source: match self.source {
                None => PreferredSource::Whichever,
                Some(From::Probes) => PreferredSource::Probes,
                Some(From::Packets) => PreferredSource::Packets,
            },
            every: self.every.max(Nanos::from_millis(1)),
            buffer_bytes: u32::try_from(self.buffer.0)
                .unwrap_or(u32::MAX)
                .clamp(4096, 1 << 30),
            owners: self.write.is_some() || self.json,
            calls: self.calls,
            packed: self.write.as_deref().is_some_and(output::is_recording) && self.ring.is_none(),
            headers: self.write.as_deref().is_some_and(output::is_capture),
            ..TraceOptions::default()
        };
        if self.write.is_some() {
            // Each piece of a file costs a little.
            options.late = LOOK;
        }
        let (mut tracer, end) = filter_args::start(&self.which, &options, self.time)?;
        let output = match (&self.write, self.json) {
            (Some(path), _) => TraceOutput::file(path, &tracer)?,
            (None, true) => TraceOutput::json(&tracer)?,
            (None, false) => TraceOutput::lines(columns, self.calls, &tracer),
        };
        let mut sink = TraceSink {
            output,
            ring: self
                .ring
                .map(|span| TriggerRing::new(span, self.trigger.clone())),
            failed: None,
        };
        out::note("linerate: tracing; Ctrl-C ends it");
        while !end.has_come() && sink.failed.is_none() {
            sink.take(&mut tracer);
            sink.flush();
        }
        let hurried = tracer.runs_first();
        let books = sink.stop(tracer);
        if !hurried && books.end.lost > 0 {
            out::note(
                "linerate: events were lost because this process may not run before others; give it CAP_SYS_NICE",
            );
        }
        sink.finish(&books)
    }
}

/// Where records go: through the ring, if there is one, to the output.
struct TraceSink {
    output: TraceOutput,
    ring: Option<TriggerRing>,
    failed: Option<anyhow::Error>,
}

impl TraceSink {
    /// What came since the last time.
    fn take(&mut self, tracer: &mut Tracer) {
        let Some(recording) = self.recording() else {
            return tracer.read(LOOK, &mut |record, written| self.push(record, written));
        };
        let written = tracer.record(LOOK, recording);
        self.failed = written.err().map(|error| self.output.failed(error));
    }

    /// What came to the end.
    fn stop(&mut self, tracer: Tracer) -> TraceCompleteness {
        let Some(recording) = self.recording() else {
            return tracer.stop(&mut |record, written| self.push(record, written));
        };
        tracer.stop_recording(recording).unwrap_or_else(|error| {
            self.failed = Some(self.output.failed(error));
            TraceCompleteness::default()
        })
    }

    /// Where all goes as the probes write it.
    fn recording(&mut self) -> Option<&mut Recording<BufWriter<File>>> {
        self.output.recording().filter(|_| self.ring.is_none())
    }

    fn push(&mut self, record: TraceRecord, written: EncodedEvent<'_>) {
        if self.failed.is_some() {
            return;
        }
        let output = &mut self.output;
        let done = match &mut self.ring {
            None => output.write(&record, written),
            Some(ring) => ring.take(record, written, &mut |record, written| {
                output.write(record, written)
            }),
        };
        self.failed = done.err();
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.output.flush().err();
        }
    }

    fn finish(mut self, books: &TraceCompleteness) -> Result<Exit> {
        if let Some(failed) = self.failed {
            // A reader that has seen enough (`| head`) is no error.
            let errors = failed.chain().filter_map(|cause| cause.downcast_ref());
            let is_pipe = |error: &std::io::Error| error.kind() == ErrorKind::BrokenPipe;
            return match errors.into_iter().any(is_pipe) {
                true => Ok(Exit::Done),
                false => Err(failed),
            };
        }
        let ring = self.ring.iter().map(TriggerRing::account);
        for line in ring.chain(last_lines(books)) {
            self.output.remark(&line)?;
        }
        self.output.flush()?;
        Ok(Exit::Done)
    }
}

/// Connections that are named at the end.
const NAMED: usize = 50;

/// The last lines of a trace: one of each connection that is not complete, of the first that are, and of all.
fn last_lines(books: &TraceCompleteness) -> Vec<String> {
    let mut lines = Vec::new();
    let mut more = books.folded;
    for (connection, found) in books.found() {
        if lines.len() < NAMED || !found.is_complete() {
            lines.push(words::completeness(connection, &found));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        lines.push(format!("{more} more connections: complete"));
    }
    lines.push(words::end(&books.end));
    lines
}
