//! `linerate measure`: how fast is this path, and what did the kernel see meanwhile?

mod corners;
mod depths;
mod iperf3_stream;
pub mod options;

use crate::global::{Global, Reaching};
use crate::live::{View, stdout_style};
use crate::out;
use anyhow::{Context, Result, bail};
use archive::Traces;
use clap::{ArgGroup, Args};
use engine::exit::{Exit, Refusal, exit_of};
use engine::host::Host;
use engine::iperf3;
use engine::lab;
use engine::leg::how_ended;
use engine::peer::{self, Operation, Peer, PeerSession};
use engine::progress::{Event, Tee, Watcher};
use engine::record::{Record, blank};
use engine::traces;
use model::finding::Explanation;
use model::{Ended, Run, Spec};
use report::json::Line;
use report::live::Live;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Measure a path: throughput each way, or request latency, with both ends' TCP state
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate measure lab:berkeley-chicago        an emulated path, up for the measurement
  linerate measure lab:nfs-lan/server-slow     from its host server to its host slow
  linerate measure local                       this machine against itself
  linerate measure db2                         an agent (linerate serve) on db2: up, then down
  linerate measure ssh:me@db2 --bidir -t 30    starts the agent over ssh; both ways at once
  linerate measure db2 --workload request      8 KiB replies, one after the other
  linerate measure db2 --workload request --pace 2000 -P 4 --down
  linerate measure iperf3:speed.example -P 4   any stock iperf3 server
  linerate measure nfs://nas/export --block 8K --mix read,write,commit --depth 4
  linerate measure db2 -w 8M -C cubic --json > run.json
  linerate measure db2 --trace && linerate explain last
  linerate measure db2 --workload copy --from big.iso --to /srv/copies/big.iso
  linerate measure db2 --workload copy --from big.iso --to /srv/copies/trial --corners
  linerate measure db2 --workload blocks --store /srv/data --random --depth 1,8,32
  linerate measure db2 --workload blocks --store /srv/data --mix write-stable --block 16K

HOST is name[:port] (an agent), ssh:[user@]name, iperf3:name[:port], nfs://name[:port]/EXPORT,
lab:NAME[/host] or local.
In a lab both ends are hosts of it: the first and the second, the first and /host, or /near-far.
Sizes take K, M, G (1024-based); rates take K, M, G bits per second (1000-based);
times take s, ms, us, m.

--workload copy reads FILE (or memory) at the sender and writes a new FILE (or memory) at the receiver,
by a thread for the storage and one for the network at each end with a ring of 8 blocks of 1 MiB
between them. FilterArgs of them waited says which stage was the slow one: the source's storage, the network
or the sink's storage, with its share of the time; the next limit behind it is told with its rate. The
time goes until the copy is safe (fsync of the file and of its name). The page cache of the source is
emptied before (--cache cold), or filled; what it held before and after is told (mincore). Length and
XXH3 hash are compared before the copy gets its name; until then it has a name of its own in the same
directory, which is removed if anything fails. An existing file is never overwritten. Hashing takes 0.1
to 0.2 s of a processor for each GB at each end, as part of the storage's time. --down copies from HOST
to here. --time ends a copy from memory; a file that it cuts short is not kept. A tmpfs is a RAM disk.
At an agent files need a right of their own (linerate serve --allow-files DIR, linerate trust add ID
--files); over ssh, in a lab and with local they are those of the user there. --corners copies memory and
file at either end to memory and file at the other in a random order, --rounds times each, keeps no copy
and shows what storage costs at either end.

--workload blocks reads and writes blocks at HOST (with --down HOST asks for blocks that are here), as an
iSCSI initiator would. --store says what has them there: memory, a DIR, where a file of --file-size bytes is
made and filled before, which has no name and is gone with the measurement however it ends, or a FILE, which
is only read. --mix says what each connection asks in turn: read=7,write=3 are seven reads to three writes;
write may stay in memory, write-stable is on the disk before its answer (fdatasync), commit makes safe what
was written; what is left is made safe at the end and timed. --random has every block once before any comes
again. Every answer tells how long the storage took and how long its call waited there; the rest is the
network and both kernels. So of each operation it is told which of them takes the time, as a mean; below
stand p50, p99 and p99.9 of the whole and of the storage alone. --depth LIST measures each depth as a run of
its own and shows them side by side. --cache, --direct and the right to files are as for copies.

An NFS server of version 3 is asked over TCP without a mount, by the user who runs the command. Every
connection (-P) has a file of its own in EXPORT, .linerate-RUN-N, with --file-size bytes if it is to be
read; it is removed at the end, after Ctrl-C too, and what had to stay is told (of a process that was
killed outright: 'linerate runs show'). --mix says what each connection asks in turn (write may
stay in the server's memory, write-stable not), --depth how many calls it has outstanding. Told of each
operation: how many, how much, p50 and p99, and the split: sending the call, the way there, think time,
sending the reply, the way back. It is by this host's clock, so think time has the queues of the path in
it, and the way is the shortest round trip. Servers that trust only ports below 1024 need root here. What
was just written is read from the server's memory as a rule, not from its disk. Where the time inside a
call went is told by 'linerate explain --requests' of a capture taken meanwhile.

Beside what requests took, of --workload request and of NFS, stands the ideal, the least that the path
needs for one: the shortest round trip, and the frames of call and reply at the slower of the rates that
the devices of the hosts tell ('linerate model' reckons it for any path). Hosts take no time in it.

--trace has each end record the segments of this measurement's own data connections (never of
others) with their sockets' state, as far as it may: it takes the rights of 'linerate trace' at that
end. An end that may not says so, and the rest goes on. The traces are kept beside the archive, at
most 200,000 events an end and leg, and are what 'linerate explain' goes by; 'linerate runs delete'
deletes them. Tracing takes time of the processor: the run says that it was traced.")]
#[command(group = ArgGroup::new("output"))]
pub struct Measure {
    /// The far end
    host: String,

    #[command(flatten)]
    order: options::Order,
    #[command(flatten)]
    iperf3: iperf3::client::Options,
    #[command(flatten)]
    reaching: Reaching,
    #[command(flatten)]
    output: Output,
}

/// What is printed, and how.
#[derive(Args)]
#[command(next_help_heading = "Output")]
struct Output {
    /// A note kept with the run
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// The whole run as JSON
    #[arg(short = 'J', long, group = "output")]
    json: bool,
    /// One JSON object a line, as it happens
    #[arg(long, group = "output")]
    json_stream: bool,
    /// The run in the shape of iperf3's JSON
    #[arg(long, group = "output")]
    iperf3_json: bool,
    /// The same as a stream, one object a line
    #[arg(long, group = "output")]
    iperf3_json_stream: bool,
    /// No live view
    #[arg(short, long)]
    quiet: bool,
}

impl Output {
    /// It is for programs.
    fn is_machine(&self) -> bool {
        self.json || self.json_stream || self.iperf3_json || self.iperf3_json_stream
    }
}

impl Measure {
    /// Runs the command.
    ///
    /// # Errors
    /// If nothing was measured. If something was, it is printed and kept, and the exit code tells
    /// that it is not all.
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let host: Host = self.host.parse()?;
        let peer = peer::of(&host);
        let spec = self
            .order
            .spec(&*peer)
            .map_err(|e| Refusal::usage(e.to_string()))?;
        peer.supports(Operation::Measure(&spec))?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        if let Some(lab) = self.reaching.lab(&*peer) {
            return lab::measure(lab.name, lab.hosts, self.output.quiet, stop);
        }
        if let Some(rounds) = self.order.corners() {
            return self.corners(&*peer, global, &spec, rounds, stop);
        }
        if let Some(depths) = self.order.depths() {
            return self.depths(&*peer, global, &spec, depths, stop);
        }
        let mut run = Run {
            title: self.output.title.clone(),
            ..blank(&self.host, spec)
        };
        let mut view = View::new(Live::new(&run.spec), self.output.quiet);
        let mut record = Record::new(global.archive_path(), &run);
        let mut stream = self.output.json_stream.then(|| Stream::begin(&run));
        let mut iperf3_stream = self
            .output
            .iperf3_json_stream
            .then(|| iperf3_stream::Stream::begin(&run));
        let mut watchers: Vec<&mut dyn Watcher> = vec![&mut view, &mut record];
        watchers.extend(stream.as_mut().map(|s| s as &mut dyn Watcher));
        watchers.extend(iperf3_stream.as_mut().map(|s| s as &mut dyn Watcher));

        let outcome = self.play(&*peer, global, &mut run, &mut Tee(watchers), stop);
        drop(view);
        run.ended = how_ended(&outcome, &run.legs);
        let outcome = match outcome {
            // Nothing was measured: the error is the whole story.
            Err(error) if run.legs.is_empty() => {
                record.discard();
                return Err(error);
            }
            outcome => outcome,
        };
        let not_kept = record.finish(&run);
        let kept = not_kept.is_none();
        run.warnings.extend(not_kept);
        let traces = global.archive_path().map(|path| Traces::beside(&path));
        let why = match traces {
            Ok(traces) if kept => traces::explain(&run, &traces),
            _ => explain::explain(&run),
        };
        self.print(&run, kept, &why)?;
        let exit = match (outcome, &run.ended) {
            (_, Ended::Interrupted) => Exit::Interrupted,
            (Ok(()), Ended::Complete) => Exit::Done,
            (Ok(()), _) => Exit::Failed,
            (Err(error), _) => exit_of(&error),
        };
        Ok(exit.into())
    }

    fn play(
        &self,
        peer: &dyn Peer,
        global: &Global,
        run: &mut Run,
        watcher: &mut dyn Watcher,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut far = self.open(peer, global, &run.spec, stop)?;
        through(&mut *far, peer, run, watcher, stop)
    }

    /// One of several runs that are shown together: it is kept like any other.
    ///
    /// # Errors
    /// If it was not whole.
    fn part(
        &self,
        global: &Global,
        spec: Spec,
        play: &mut dyn FnMut(&mut Run, &mut dyn Watcher) -> Result<()>,
    ) -> Result<Run> {
        let mut run = Run {
            title: self.output.title.clone(),
            ..blank(&self.host, spec)
        };
        let mut view = View::new(Live::new(&run.spec), self.output.quiet);
        let mut record = Record::new(global.archive_path(), &run);
        let watchers: Vec<&mut dyn Watcher> = vec![&mut view, &mut record];
        let outcome = play(&mut run, &mut Tee(watchers));
        drop(view);
        run.ended = how_ended(&outcome, &run.legs);
        if run.legs.is_empty() {
            record.discard();
            outcome?;
            bail!("a run of nothing measures nothing");
        }
        if let Some(warning) = record.finish(&run) {
            out::note(&format!("linerate: {}; {}", warning.what, warning.remedy));
        }
        outcome?;
        match &run.ended {
            Ended::Failed { why } => bail!("{why}"),
            _ => Ok(run),
        }
    }

    /// A session with the far end.
    fn open(
        &self,
        peer: &dyn Peer,
        global: &Global,
        spec: &Spec,
        stop: &AtomicBool,
    ) -> Result<Box<dyn PeerSession>> {
        self.reaching.open(peer, spec, &self.iperf3, global, stop)
    }

    fn print(&self, run: &Run, kept: bool, why: &[Explanation]) -> Result<()> {
        let summary = model::summarise(run);
        out::print(&if self.output.json {
            report::json::run(run, &summary)
        } else if self.output.json_stream {
            Line::end(run, &summary).print()
        } else if self.output.iperf3_json {
            report::iperf3::to_json(run, &summary)
        } else if self.output.iperf3_json_stream {
            report::iperf3::stream_end(run, &summary)
        } else if kept {
            report::summary(run, &summary, why, stdout_style())
        } else {
            // Without its name, which nobody could look up.
            let nameless = Run {
                id: String::new(),
                ..run.clone()
            };
            report::summary(&nameless, &summary, why, stdout_style())
        })
    }
}

/// Prints what happens as JSON, an object a line.
struct Stream;

impl Stream {
    fn begin(run: &Run) -> Stream {
        Stream.line(&Line::start(run));
        Stream
    }

    /// A reader that is gone does not stop the measurement: the archive keeps it.
    fn line(&self, line: &Line<'_>) {
        let _ = out::print(&line.print());
    }
}

impl Watcher for Stream {
    fn event(&mut self, event: &Event<'_>) {
        self.line(&match *event {
            // Too much for a line: it is kept beside the archive.
            Event::Traced { .. } => return,
            Event::Hosts { near, far } => Line::Hosts { near, far },
            Event::LegStarted {
                index: leg,
                direction,
            } => Line::LegStarted { leg, direction },
            Event::Sample {
                index: leg,
                side,
                sample,
            } => Line::Sample { leg, side, sample },
            Event::LegEnded { index, leg } => Line::leg_ended(index, leg),
            Event::Warning(warning) => Line::Warning { warning },
            Event::Waiting(what) => Line::Waiting { what },
        });
    }
}

/// Plays a run; in a lab its emulator is watched meanwhile.
fn through(
    far: &mut dyn PeerSession,
    peer: &dyn Peer,
    run: &mut Run,
    watcher: &mut dyn Watcher,
    stop: &AtomicBool,
) -> Result<()> {
    let watch = peer.watch();
    let outcome = far.play(run, watcher, stop);
    for warning in watch.into_iter().flat_map(lab::Watch::end) {
        watcher.event(&Event::Warning(&warning));
        run.warnings.push(warning);
    }
    outcome
}

/// Shows several runs beside each other, after the last of them or Ctrl-C.
fn compared(table: &str, stop: &AtomicBool) -> Result<ExitCode> {
    out::print(table)?;
    let exit = match stop.load(Ordering::Relaxed) {
        true => Exit::Interrupted,
        false => Exit::Done,
    };
    Ok(exit.into())
}
