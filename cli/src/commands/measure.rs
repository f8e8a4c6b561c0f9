//! `linerate measure`: how fast is this path, and what did the kernel see meanwhile?

mod between;
pub mod options;
mod series;
mod stream;
mod uses;

use crate::global::Reaching;
use crate::prelude::*;
use clap::ArgGroup;
use engine::exit::exit_of;
use engine::iperf3;
use engine::lab;
use engine::leg::how_ended;
use engine::peer::PeerSession;
use engine::progress::{Tee, Watcher};
use engine::record::{RunArchiver, blank};
use engine::traces;
use model::Warning;
use report::live::Live;

/// Measure throughput or request latency, with both hosts' TCP state
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate measure local                       this machine against itself
  linerate measure lab:berkeley-chicago        an emulated path
  linerate measure db2                         an agent (linerate serve) on db2
  linerate measure ssh:me@db2 --bidir -t 30    starts the agent over ssh
  linerate measure db1 db2                     between two other hosts
  linerate measure db2 --workload request --pace 2000 -P 4 --down
  linerate measure iperf3:speed.example -P 4   any stock iperf3 server
  linerate measure db2 -w 8M -C cubic --json > run.json
  linerate measure db2 --trace && linerate explain last
  linerate measure db2 --workload copy --from big.iso --to /srv/big.iso
  linerate measure nfs://nas/export --block 8K --depth 1,8,32

HOST is name[:port] (an agent), ssh:[user@]name, iperf3:name[:port],
nfs://name[:port]/EXPORT, lab:NAME[/host], lab:NAME/FROM-TO, lab:FILE.toml or local.
Sizes take K, M, G (1024-based); rates K, M, G bits per second (1000-based);
times s, ms, us, m. docs/measure.md describes the workloads and their figures.")]
#[command(group = ArgGroup::new("output"))]
pub struct Measure {
    /// The remote host; of two, the one that measures
    host: String,
    /// Measure from HOST to this one, both agents (docs/calendar.md)
    #[arg(value_name = "TO")]
    towards: Option<String>,

    #[command(flatten)]
    options: options::RunOptions,
    #[command(flatten)]
    iperf3: iperf3::client::ClientOptions,
    #[command(flatten)]
    reaching: Reaching,
    /// Longest outage of the path that a leg at an agent survives, up to 10m; with 0 it ends after 6 s of silence
    #[arg(
        long,
        default_value = "60s",
        value_name = "TIME",
        help_heading = "What to measure"
    )]
    outage: Nanos,
    #[command(flatten)]
    output: MeasureOutput,
}

/// What is printed, and how.
#[derive(Args)]
#[command(next_help_heading = "Output")]
struct MeasureOutput {
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

impl MeasureOutput {
    fn is_machine(&self) -> bool {
        self.json || self.json_stream || self.iperf3_json || self.iperf3_json_stream
    }
}

/// Where runs go, and what ends them early.
#[derive(Clone, Copy)]
pub(in crate::commands) struct Path<'a> {
    pub peer: &'a Host,
    pub global: &'a Global,
    pub stop: &'a AtomicBool,
}

/// A run that measured something, and how it went.
pub(in crate::commands) struct Played {
    pub run: Run,
    pub outcome: Result<()>,
    /// Why the archive does not have it.
    pub not_kept: Option<Warning>,
}

impl Measure {
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        if let Some(towards) = &self.towards {
            return self.between(towards, global);
        }
        let (host, spec) = self.order()?;
        let peer = &host;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        if let Some(lab) = self.reaching.lab(peer) {
            return lab::measure(lab.name, lab.hosts, self.output.quiet, stop);
        }
        let path = Path { peer, global, stop };
        if self.options.corners().is_some() || self.options.depths().is_some() {
            return self.series(path, &spec);
        }
        let mut remote = self.open(path, &spec)?;
        let run = self.blank(spec);
        let mut lines: Option<Box<dyn Watcher>> = match &self.output {
            output if output.json_stream => Some(Box::new(stream::JsonLines::begin(&run))),
            output if output.iperf3_json_stream => Some(Box::new(stream::Iperf3Lines::begin(&run))),
            _ => None,
        };
        let quiet = self.output.quiet;
        let played = play(&mut *remote, path, run, quiet, lines.as_deref_mut())?;
        let (mut run, kept) = (played.run, played.not_kept.is_none());
        run.warnings.extend(played.not_kept);
        let why = match global.archive_path() {
            Ok(archive) if kept => traces::explain(&run, &Traces::beside(&archive)),
            _ => explain::explain(&run),
        };
        if !kept && !self.output.is_machine() {
            // Nobody could look it up.
            run.id.clear();
        }
        self.print(&run, &why)?;
        let exit = match (played.outcome, &run.ended) {
            (_, Ended::Interrupted) => Exit::Interrupted,
            (Ok(()), Ended::Complete) if kept => Exit::Done,
            (Ok(()), _) => Exit::Failed,
            (Err(error), _) => exit_of(&error),
        };
        Ok(exit.into())
    }

    /// What is measured, and at whom; nothing is opened yet.
    pub(in crate::commands) fn order(&self) -> Result<(Host, Spec)> {
        let host: Host = self.host.parse()?;
        let spec = self.options.spec(&host)?;
        host.supports(PeerOperation::Measure(&spec))?;
        Ok((host, spec))
    }

    fn open(&self, path: Path<'_>, spec: &Spec) -> Result<Box<dyn PeerSession>> {
        let Path { peer, global, stop } = path;
        self.reaching
            .open(peer, spec, &self.iperf3, self.outage, global, stop)
    }

    fn blank(&self, spec: Spec) -> Run {
        Run {
            title: self.output.title.clone(),
            ..blank(&self.host, spec)
        }
    }

    fn print(&self, run: &Run, why: &[Explanation]) -> Result<()> {
        let summary = model::summarise(run);
        out::print(&if self.output.json {
            report::json::run(run, &summary)
        } else if self.output.json_stream {
            report::json::end(run, &summary)
        } else if self.output.iperf3_json {
            report::iperf3::to_json(run, &summary)
        } else if self.output.iperf3_json_stream {
            report::iperf3::stream_end(run, &summary)
        } else {
            report::summary(run, &summary, why, stdout_style())
        })
    }
}

/// Plays a run and keeps it; in a lab its emulator is watched meanwhile.
///
/// # Errors
/// If nothing was measured.
pub(in crate::commands) fn play(
    remote: &mut dyn PeerSession,
    path: Path<'_>,
    mut run: Run,
    quiet: bool,
    lines: Option<&mut (dyn Watcher + 'static)>,
) -> Result<Played> {
    let mut view = View::new(Live::new(&run.spec), quiet);
    let mut record = RunArchiver::new(path.global.archive_path(), &run);
    let mut watchers: Vec<&mut dyn Watcher> = vec![&mut view, &mut record];
    watchers.extend(lines.map(|lines| lines as &mut dyn Watcher));
    let mut watchers = Tee(watchers);
    let watch = path.peer.watch();
    let outcome = remote.play(&mut run, &mut watchers, path.stop);
    for warning in watch.into_iter().flat_map(lab::LabWatch::end) {
        watchers.event(&Event::Warning { warning: &warning });
        run.warnings.push(warning);
    }
    drop(view);
    run.ended = how_ended(&outcome, &run.legs);
    match outcome {
        Err(error) if run.legs.is_empty() => {
            record.discard();
            Err(error)
        }
        outcome => Ok(Played {
            not_kept: record.finish(&run),
            run,
            outcome,
        }),
    }
}
