//! Where a trace goes: lines, JSON, or a file.

use crate::prelude::*;
use model::segment::tcp_state;
use model::{Connection, Segment, SocketValues, TraceSample, TraceSource, What};
use observe::trace::{EncodedEvent, Recording, Tracer};
use report::trace::{self as words, Column, TraceRow};
use report::{pcapng, words::escape};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, BufWriter};

/// Lines between two headings.
const HEADING_EVERY: u64 = 40;

/// Closed connections whose names are still known.
const MOST_CLOSED: usize = 10_000;

pub struct TraceOutput {
    form: TraceForm,
    name: String,
    /// The last of each connection whose socket is there.
    sampled: HashMap<u32, TraceSample>,
}

enum TraceForm {
    Lines(Box<TextLines>),
    Json(BufWriter<Box<dyn Write>>),
    Capture(Box<Capture>),
    Recording(Box<Recording<BufWriter<File>>>),
}

/// Whether a file of this name holds a capture.
pub fn is_capture(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "pcapng")
}

/// Whether a file of this name holds a recording, as the probes wrote it.
pub fn is_recording(path: &Path) -> bool {
    !is_capture(path) && !is_json(path)
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "jsonl")
}

impl TraceOutput {
    pub fn lines(columns: Vec<&'static Column>, calls: bool, tracer: &Tracer) -> TraceOutput {
        let form = TraceForm::Lines(Box::new(TextLines {
            columns,
            calls,
            samples: calls || tracer.begin().source == TraceSource::Samples,
            to: BufWriter::new(io::stdout()),
            connections: HashMap::new(),
            last: None,
            lines: 0,
        }));
        TraceOutput::new(form, "standard output".to_owned())
    }

    pub fn json(tracer: &Tracer) -> Result<TraceOutput> {
        TraceOutput::json_to(Box::new(io::stdout()), "standard output".to_owned(), tracer)
    }

    /// A file, in the format of its extension.
    pub fn file(path: &Path, tracer: &Tracer) -> Result<TraceOutput> {
        let name = escape(&path.display().to_string());
        let has_no_state = |end: &OsStr| end == "pcap" || end == "cap";
        if path.extension().is_some_and(has_no_state) {
            refuse!(
                "{name} would be a capture without the state of the sockets: name it {}",
                escape(&path.with_extension("pcapng").display().to_string())
            );
        }
        let file = File::create(path).with_context(|| format!("cannot make the file {name}"))?;
        let context = || format!("cannot write {name}");
        if is_json(path) {
            return TraceOutput::json_to(Box::new(file), name, tracer);
        }
        let mut to = BufWriter::with_capacity(1 << 16, file);
        let form = if is_capture(path) {
            to.write_all(&pcapng::begin()).with_context(context)?;
            TraceForm::Capture(Box::new(Capture {
                to,
                started: tracer.begin().started,
                remarks: Vec::new(),
            }))
        } else {
            TraceForm::Recording(Box::new(
                Recording::begin(to, tracer).with_context(context)?,
            ))
        };
        Ok(TraceOutput::new(form, name))
    }

    fn new(form: TraceForm, name: String) -> TraceOutput {
        let sampled = HashMap::new();
        TraceOutput {
            form,
            name,
            sampled,
        }
    }

    fn json_to(to: Box<dyn Write>, name: String, tracer: &Tracer) -> Result<TraceOutput> {
        let mut output = TraceOutput::new(TraceForm::Json(BufWriter::new(to)), name);
        output.write(
            &TraceRecord::Begin(tracer.begin().clone()),
            EncodedEvent(&[]),
        )?;
        Ok(output)
    }

    pub fn write(&mut self, record: &TraceRecord, written: EncodedEvent<'_>) -> Result<()> {
        let sampled = &mut self.sampled;
        if let TraceRecord::Sample(sample) = record {
            match sample.gone {
                true => sampled.remove(&sample.connection),
                false => sampled.insert(sample.connection, sample.clone()),
            };
        }
        match &mut self.form {
            TraceForm::Lines(lines) => lines.write(record, sampled),
            TraceForm::Json(to) => serde_json::to_writer(&mut *to, record)
                .map_err(io::Error::from)
                .and_then(|()| to.write_all(b"\n")),
            TraceForm::Capture(capture) => match record {
                TraceRecord::Segment(segment) => {
                    capture.write(segment, sampled.get(&segment.connection), written)
                }
                _ => Ok(()),
            },
            TraceForm::Recording(recording) => recording.add(record, written),
        }
        .with_context(|| format!("cannot write {}", self.name))
    }

    /// The recording, if that is where it goes.
    pub fn recording(&mut self) -> Option<&mut Recording<BufWriter<File>>> {
        match &mut self.form {
            TraceForm::Recording(recording) => Some(recording),
            _ => None,
        }
    }

    /// An error of writing, with what was written.
    pub fn failed(&self, error: io::Error) -> anyhow::Error {
        anyhow::Error::from(error).context(format!("cannot write {}", self.name))
    }

    /// Says something about the trace: among its lines, else on standard error.
    pub fn remark(&mut self, words: &str) -> Result<()> {
        match &mut self.form {
            TraceForm::Lines(lines) => {
                writeln!(lines.to, "-- {words}").context("cannot write to standard output")
            }
            _ => {
                crate::out::note(words);
                Ok(())
            }
        }
    }

    /// Hands on what is buffered.
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.form {
            TraceForm::Lines(lines) => lines.to.flush(),
            TraceForm::Json(to) => to.flush(),
            TraceForm::Capture(capture) => capture.to.flush(),
            TraceForm::Recording(recording) => recording.flush(),
        }
        .with_context(|| format!("cannot write {}", self.name))
    }
}

struct Capture {
    to: BufWriter<File>,
    started: Nanos,
    /// Of the next packet: a capture has no place for what was dropped.
    remarks: Vec<String>,
}

/// Drops between two packets that are named.
const REMARKS: usize = 16;

impl Capture {
    fn write(
        &mut self,
        segment: &Segment,
        sample: Option<&TraceSample>,
        written: EncodedEvent<'_>,
    ) -> io::Result<()> {
        if let Some(dropped) = &segment.dropped {
            if self.remarks.len() < REMARKS {
                let words = words::drop_words(dropped);
                let remark = format!("seq {}, {} bytes {words}", segment.seq, segment.payload.0);
                self.remarks.push(remark);
            }
            return Ok(());
        }
        let headers = written.headers(segment);
        let packet = pcapng::packet(segment, sample, headers, self.started, &self.remarks);
        let Some(packet) = packet else {
            return Ok(());
        };
        self.remarks.clear();
        self.to.write_all(&packet)
    }
}

struct TextLines {
    columns: Vec<&'static Column>,
    calls: bool,
    samples: bool,
    to: BufWriter<io::Stdout>,
    connections: HashMap<u32, Connection>,
    last: Option<Nanos>,
    lines: u64,
}

impl TextLines {
    fn write(
        &mut self,
        record: &TraceRecord,
        sampled: &HashMap<u32, TraceSample>,
    ) -> io::Result<()> {
        match record {
            TraceRecord::Connection(connection) => {
                let known = self.connections.insert(connection.id, connection.clone());
                if known.is_none() {
                    writeln!(self.to, "-- connection {}", words::connection(connection))?;
                }
            }
            TraceRecord::Segment(segment) => {
                let is_packet = matches!(segment.what, What::Sent | What::Received | What::Dropped);
                let connection = self.connections.get(&segment.connection);
                let Some(connection) = connection.filter(|_| self.calls || is_packet) else {
                    return Ok(());
                };
                if self.lines.is_multiple_of(HEADING_EVERY) {
                    writeln!(self.to, "{}", words::heading(&self.columns))?;
                }
                self.lines += 1;
                let row = TraceRow {
                    segment,
                    connection: Some(connection),
                    sample: sampled.get(&segment.connection),
                    delta: segment.at.since(self.last.unwrap_or(segment.at)),
                };
                writeln!(self.to, "{}", words::line(&self.columns, &row))?;
                self.last = Some(segment.at);
                let is_closed = |socket: &SocketValues| socket.state == tcp_state::CLOSE;
                let closed = segment.what == What::State && segment.probed().is_some_and(is_closed);
                if closed && self.connections.len() > MOST_CLOSED {
                    self.connections.remove(&segment.connection);
                }
            }
            TraceRecord::Sample(sample) => {
                if self.samples {
                    writeln!(self.to, "-- {}", words::sample(sample))?;
                }
                if sample.gone && self.connections.len() > MOST_CLOSED {
                    self.connections.remove(&sample.connection);
                }
            }
            TraceRecord::Lost(lost) => writeln!(self.to, "-- {}", words::lost(lost))?,
            TraceRecord::Begin(_) | TraceRecord::Owner(_) | TraceRecord::End(_) => {}
        }
        Ok(())
    }
}
