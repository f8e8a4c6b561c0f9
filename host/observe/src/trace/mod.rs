//! Every TCP segment that this host really sends and receives, with its socket's state, in true order.
//!
//! Probes in the kernel write one record an event into logs (bpf/); a thread of high priority brings them into order
//! ([`order`]); [`Tracer::read`] hands them on as the model has them. Nothing is changed on the machine, and the probes
//! end with the process. Where no probe may run, a packet socket and samples of the sockets replace them ([`packets`]).

mod batch;
mod btf;
mod completeness;
mod connections;
mod file;
mod filter;
mod flows;
mod order;
mod packets;
mod probes;
mod process_sampler;
mod reader;
mod record;
mod worker;

use crate::proc;
use batch::{Batch, Content};
pub use completeness::TraceCompleteness;
pub use file::{FileError, Recording, any_head, is_trace, open};
use model::{Nanos, Segment, TRACE_SCHEMA, TraceBegin, TraceEnd, TraceRecord, TraceSource};
pub(crate) use packets::enter;
use process_sampler::ProcessSampler;
use record::{Clock, EncodedRecord, RECORD, Terms};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use worker::Worker;

/// Why there can be no trace.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {why}")]
pub struct Error {
    what: &'static str,
    why: String,
}

impl Error {
    /// This process may not, or this kernel cannot.
    pub(crate) fn impossible(why: impl Into<String>) -> Error {
        Error::refused("trace", why.into())
    }

    /// The kernel refused something.
    pub(crate) fn refused(what: &'static str, why: impl ToString) -> Error {
        let why = why.to_string();
        Error { what, why }
    }

    /// For a sentence that says already that there is no trace.
    fn reason(&self) -> String {
        match self.what {
            "trace" => self.why.clone(),
            _ => self.to_string(),
        }
    }
}

/// What to trace: all conditions have to hold, and without any it is everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Sockets of this network namespace ([`own_netns`]).
    pub netns: Option<u32>,
    /// Sockets that this process uses.
    pub pid: Option<u32>,
    /// Connections with this port at either end.
    pub port: Option<u16>,
    /// Connections with this address at either end.
    pub host: Option<IpAddr>,
    /// The socket with this number.
    pub cookie: Option<u64>,
}

/// Where the events come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreferredSource {
    /// Probes in the kernel.
    #[default]
    Probes,
    /// A packet socket and samples of the sockets; these alone where no packet may be seen.
    Packets,
    /// Probes, and packets where there can be none.
    Whichever,
}

/// How to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Where the events come from.
    pub source: PreferredSource,
    /// Time between two samples of the sockets, where there are no probes; longer where a sample takes long.
    pub every: Nanos,
    /// Keep the headers of IP and TCP beside each segment.
    pub headers: bool,
    /// Report every call of an application: else only a write that waits and a late read, which no segment shows soon.
    pub calls: bool,
    /// Room for events that wait to be read, in bytes: all processors share it, but each has an eighth at least.
    pub buffer_bytes: u32,
    /// Sample the processes that use traced sockets (`/proc/PID`).
    pub owners: bool,
    /// Events of probes are packed at once, for [`Tracer::record`] alone.
    pub packed: bool,
    /// How late events may come, about. Each time that they are fetched costs a little.
    pub late: Duration,
    /// For tests of the order: rounds that a probe idles between clock and writing, now and then.
    pub test_delay: u32,
    /// For tests of the order: leave out what brings events into order.
    pub test_clock_first: bool,
}

impl Default for TraceOptions {
    fn default() -> TraceOptions {
        TraceOptions {
            source: PreferredSource::default(),
            every: Nanos::from_millis(10),
            headers: false,
            calls: false,
            buffer_bytes: 32 << 20,
            owners: false,
            packed: false,
            late: Duration::from_millis(1),
            test_delay: 0,
            test_clock_first: false,
        }
    }
}

/// Whether this process can trace here.
///
/// # Errors
/// What is missing, and what to do.
pub fn can_run() -> Result<(), Error> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Error::impossible(
            "this kernel does not describe its types (/sys/kernel/btf/vmlinux is missing); it takes one built with CONFIG_DEBUG_INFO_BTF",
        ));
    }
    let status = proc::read("/proc/self/status").unwrap_or_default();
    let lacking = lacking_rights(&status);
    if !lacking.is_empty() {
        return Err(Error::impossible(format!(
            "{}; run as root, or give what is missing to the program with setcap",
            missing(&lacking)
        )));
    }
    // Rights inside a user namespace are not those that eBPF requires.
    let map = proc::read("/proc/self/uid_map").unwrap_or_default();
    if !map.split_whitespace().eq(["0", "0", "4294967295"]) {
        return Err(Error::impossible(
            "this process is root only inside a user namespace, and the kernel lets no such root load probes; run it as root outside",
        ));
    }
    sys::bpf::cgroup_root().map_err(|error| {
        Error::impossible(format!(
            "control groups of version 2 are not there ({error}); mount them: mount -t cgroup2 none DIRECTORY"
        ))
    })?;
    Ok(())
}

/// The rights that tracing needs and `/proc/PID/status` does not grant.
fn lacking_rights(status: &str) -> Vec<&'static str> {
    // Bits of include/uapi/linux/capability.h; CAP_SYS_ADMIN (21) stands for the others.
    const NEEDED: [(u32, &str); 3] = [(39, "CAP_BPF"), (38, "CAP_PERFMON"), (12, "CAP_NET_ADMIN")];
    let effective =
        proc::field(status, "CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let effective = effective.unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let needed = NEEDED
        .iter()
        .filter(|(bit, _)| !has(*bit) && (*bit == 12 || !has(21)));
    needed.map(|(_, name)| *name).collect()
}

fn missing(rights: &[&str]) -> String {
    match rights {
        [one] => format!("the right {one} is missing"),
        [most @ .., last] => format!("the rights {} and {last} are missing", most.join(", ")),
        [] => String::new(),
    }
}

/// The network namespace of the calling thread, as [`Filter::netns`] names it.
pub fn own_netns() -> Option<u32> {
    netns_at(Path::new("/proc/thread-self/ns/net"))
}

/// The network namespace that a file stands for, as below /run/netns or /proc/PID/ns.
pub fn netns_at(path: &Path) -> Option<u32> {
    u32::try_from(fs::metadata(path).ok()?.st_ino()).ok()
}

/// The files that stand for network namespaces: of those with a name, then of the processes.
pub(crate) fn netns_files() -> impl Iterator<Item = PathBuf> {
    let entries = |place: &str| fs::read_dir(place).into_iter().flatten().flatten();
    let named = entries("/run/netns").map(|entry| entry.path());
    let of_processes = entries("/proc").map(|entry| entry.path().join("ns/net"));
    named.chain(of_processes)
}

/// A running trace.
pub struct Tracer {
    worker: Worker,
    begin: TraceBegin,
    terms: Terms,
    processes: Option<ProcessSampler>,
    /// Tracepoints that this kernel lacks, or does not let be traced: their events are missing.
    pub missing: Vec<&'static str>,
    /// What replaces the probes, why, and what is lost by that: sentences for the user.
    pub instead: Vec<String>,
    completeness: TraceCompleteness,
    end: TraceEnd,
}

impl Tracer {
    /// Begins to trace. Moment 0 is just before.
    pub fn start(filter: &Filter, options: &TraceOptions) -> Result<Tracer, Error> {
        match options.source {
            PreferredSource::Probes => Tracer::probes(filter, options),
            PreferredSource::Packets => Tracer::packets(filter, options),
            PreferredSource::Whichever => Tracer::probes(filter, options).or_else(|why| {
                let mut tracer = Tracer::packets(filter, options).map_err(|also| {
                    Error::impossible(format!("{}; {}", why.reason(), also.reason()))
                })?;
                tracer
                    .instead
                    .insert(0, format!("no probes: {}", why.reason()));
                Ok(tracer)
            }),
        }
    }

    fn probes(filter: &Filter, options: &TraceOptions) -> Result<Tracer, Error> {
        can_run()?;
        let mut start = (Nanos(0), Nanos(0));
        let (probes, output) = probes::attach(filter, options, || {
            start = (wall(), monotonic());
        })?;
        let terms = Terms {
            clock: clock(start.1),
            drop_reasons: probes.drop_reasons.clone(),
        };
        let missing = probes.missing.clone();
        let worker = reader::start(probes, output, options, terms.clock)?;
        let begin = begin(TraceSource::Probes, start.0);
        Ok(Tracer {
            missing,
            ..Tracer::new(worker, begin, terms, options)
        })
    }

    fn packets(filter: &Filter, options: &TraceOptions) -> Result<Tracer, Error> {
        let (worker, started) = packets::start(filter, options)?;
        let passed = monotonic().since(started.at);
        let begin = begin(started.source, wall().since(passed));
        let terms = Terms {
            clock: clock(started.at),
            drop_reasons: BTreeMap::new(),
        };
        let limits = packets::limits(started.source, options.every);
        Ok(Tracer {
            instead: started.missing.into_iter().chain([limits]).collect(),
            ..Tracer::new(worker, begin, terms, options)
        })
    }

    fn new(worker: Worker, begin: TraceBegin, terms: Terms, options: &TraceOptions) -> Tracer {
        Tracer {
            worker,
            begin,
            terms,
            processes: options.owners.then(ProcessSampler::default),
            completeness: TraceCompleteness::default(),
            missing: Vec::new(),
            instead: Vec::new(),
            end: TraceEnd::default(),
        }
    }

    /// How the trace begins: its first record, which [`Tracer::read`] leaves out.
    pub fn begin(&self) -> &TraceBegin {
        &self.begin
    }

    /// Hands on what came, in true order. Waits for it at most so long.
    pub fn read(&mut self, wait: Duration, each: &mut dyn FnMut(TraceRecord, EncodedEvent<'_>)) {
        self.next(wait, &mut |piece| piece.read(each));
    }

    /// Writes what came into a recording, as the probes wrote it: at a fraction of the cost of reading it.
    pub fn record<W: Write>(&mut self, wait: Duration, to: &mut Recording<W>) -> io::Result<()> {
        let mut written = Ok(());
        self.next(wait, &mut |piece| piece.write(to, &mut written));
        written
    }

    /// Detaches the probes, hands on what they had still written, and how it ended. Returns which segments are missing.
    pub fn stop(self, each: &mut dyn FnMut(TraceRecord, EncodedEvent<'_>)) -> TraceCompleteness {
        self.finish(&mut |piece| piece.read(each))
    }

    /// As [`Tracer::stop`], of what is recorded.
    pub fn stop_recording<W: Write>(self, to: &mut Recording<W>) -> io::Result<TraceCompleteness> {
        let mut written = Ok(());
        let completeness = self.finish(&mut |piece| piece.write(to, &mut written));
        written.map(|()| completeness)
    }

    fn finish(mut self, each: &mut dyn FnMut(Piece<'_>)) -> TraceCompleteness {
        self.worker.stop();
        while self.batch(Duration::MAX, each) {}
        self.end.at = monotonic().since(self.terms.clock.start);
        each(Piece::record(TraceRecord::End(self.end.clone())));
        self.completeness.end = self.end;
        self.completeness
    }

    /// Whether events are read before ordinary work: else they can be lost when the machine is busy.
    pub fn runs_first(&self) -> bool {
        self.worker.runs_first()
    }

    /// Hands on the next batch, and samples the processes that use traced sockets, if it is time.
    fn next(&mut self, wait: Duration, each: &mut dyn FnMut(Piece<'_>)) {
        let wait = match self.processes {
            Some(_) => wait.min(process_sampler::PERIOD),
            None => wait,
        };
        self.batch(wait, each);
        if let Some(processes) = &mut self.processes {
            let now = monotonic().since(self.terms.clock.start);
            processes.sample(now, |owner| each(Piece::record(TraceRecord::Owner(owner))));
        }
    }

    /// Hands on the next batch; false if none came in time, or after the last.
    fn batch(&mut self, wait: Duration, each: &mut dyn FnMut(Piece<'_>)) -> bool {
        let Some(mut batch) = self.worker.next(wait) else {
            return false;
        };
        match &mut batch.content {
            Content::Records(records) => {
                for (record, headers) in records.drain(..) {
                    each(Piece::Record(record, EncodedEvent(&headers)));
                }
            }
            Content::Plain(plain) => plain.drain(|bytes, place| {
                if let Some(event) = EncodedRecord::of(bytes) {
                    event.records(place, &self.terms, &mut |record| {
                        each(Piece::Record(record, EncodedEvent(bytes)));
                    });
                }
            }),
            Content::Packed(packed) => each(Piece::Packed(packed.bytes())),
        }
        if let Some(lost) = self.count(batch) {
            each(Piece::record(lost));
        }
        true
    }

    /// Takes what a batch has beside its events; returns what was lost.
    fn count(&mut self, batch: Batch) -> Option<TraceRecord> {
        self.worker.reuse(batch.content);
        self.end.events += batch.events;
        self.end.unordered += batch.unordered;
        if let Some(processes) = &mut self.processes {
            for (pid, comm, at) in batch.users.0 {
                processes.push(pid, comm, at);
            }
        }
        if let Some(completeness) = batch.completeness {
            self.completeness = completeness;
        }
        let lost = batch.lost?;
        self.end.lost += lost.events;
        Some(TraceRecord::Lost(lost))
    }
}

/// What is handed on.
#[allow(clippy::large_enum_variant)] // consumed at once
enum Piece<'a> {
    Record(TraceRecord, EncodedEvent<'a>),
    /// Events for a file.
    Packed(&'a [u8]),
}

impl Piece<'_> {
    /// Without what the probes wrote.
    fn record(record: TraceRecord) -> Piece<'static> {
        Piece::Record(record, EncodedEvent(&[]))
    }

    fn read(self, each: &mut dyn FnMut(TraceRecord, EncodedEvent<'_>)) {
        if let Piece::Record(record, written) = self {
            each(record, written);
        }
    }

    /// Writes it, unless something could not be written before.
    fn write<W: Write>(self, to: &mut Recording<W>, written: &mut io::Result<()>) {
        if written.is_ok() {
            *written = match self {
                Piece::Record(record, bytes) => to.add(&record, bytes),
                Piece::Packed(packed) => to.pass(packed),
            };
        }
    }
}

/// An event as the probes wrote it: what a [`Recording`] keeps.
#[derive(Clone, Copy, Debug)]
pub struct EncodedEvent<'a>(pub &'a [u8]);

impl<'a> EncodedEvent<'a> {
    /// The headers of IP and TCP, where [`TraceOptions::headers`] asked for them.
    pub fn headers(self, segment: &Segment) -> &'a [u8] {
        let length = (segment.length as usize).saturating_sub(segment.payload.0 as usize);
        // They are all there is of a packet, and stand behind what probes write.
        let behind = match segment.probed() {
            Some(_) => RECORD,
            None => 0,
        };
        let room = self.0.get(behind..).unwrap_or(&[]);
        &room[..length.min(room.len())]
    }
}

fn begin(source: TraceSource, started: Nanos) -> TraceBegin {
    TraceBegin {
        schema: TRACE_SCHEMA,
        host: proc::read("/proc/sys/kernel/hostname").unwrap_or_default(),
        kernel: proc::read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        started,
        source,
    }
}

/// Of a trace that starts at this moment.
fn clock(start: Nanos) -> Clock {
    Clock {
        start,
        tick: sys::bpf::tick().into(),
    }
}

/// Now, since 1970.
fn wall() -> Nanos {
    sys::clock::unix().into()
}

/// Now, by the clock of the probes.
fn monotonic() -> Nanos {
    sys::bpf::monotonic().into()
}
