//! `linerate tune audit`: what the settings of both hosts are worth on their path. Changes nothing.

use super::ANSWER;
use crate::global::{Global, Reaching};
use crate::live::{View, stdout_style};
use crate::lookup;
use crate::out;
use advise::{Hosts, PathSample};
use anyhow::{Context, Result, bail};
use archive::Traces;
use clap::Args;
use engine::controller::Link;
use engine::exit::{Exit, Refusal, sentence};
use engine::host::Host;
use engine::leg::how_ended;
use engine::peer::{self, ConfigFiles, Operation, Peer};
use engine::progress::{Tee, Watcher};
use engine::record::{Record, blank};
use engine::transport;
use engine::{lab, mtu, traces, tuning};
use model::advice::{Advice, AuditReport, Configured};
use model::finding::Explanation;
use model::{
    BitRate, Bulk, Directions, Limit, Nanos, Placement, Run, Side, SocketSettings, Spec, Workload,
};
use report::live::Live;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use wire::control::{ProbeAnswer, ProbeRequest};

/// Between two samples: what limits a short run is seen all the same.
const INTERVAL: Nanos = Nanos::from_millis(200);

/// Judge the settings of both hosts by what their path needs, and by what well-known guides say
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate tune audit db2                       measures the path first
  linerate tune audit ssh:me@db2 -t 5s --json
  linerate tune audit --run last                by an archived run
  linerate tune audit db2 --rate 10G --rtt 80ms for a path to come

Each setting is harmful, raise, pointless or keep on this path, with the reason,
the kernel's default and the file that sets it. Nothing is changed. Buffers are
compared with the bandwidth-delay product: the rate is --rate, else the goodput,
or where buffers limited it the rate of the slower device.")]
pub struct Audit {
    /// The far end: name[:port], ssh:[user@]name, lab:NAME[/host] or local
    #[arg(required_unless_present = "run")]
    host: Option<String>,
    /// Judge by a run of the archive: its name, its first digits, or 'last'
    #[arg(long, value_name = "RUN", conflicts_with = "host")]
    run: Option<String>,
    /// What the path is to carry, each way, all connections together
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Round trip to reckon with [default: as measured under load]
    #[arg(long, value_name = "TIME")]
    rtt: Option<Nanos>,

    /// How long to send, each way
    #[arg(short = 't', long, default_value = "10s", value_name = "TIME")]
    time: Nanos,
    /// Connections, which share what the path carries
    #[arg(short = 'P', long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=128))]
    streams: u32,
    #[command(flatten)]
    reaching: Reaching,
    /// The audit as JSON
    #[arg(short = 'J', long, help_heading = "Output")]
    json: bool,
    /// No live view
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

/// What an audit goes by.
struct Found {
    run: Run,
    told: Vec<Explanation>,
    near: Configured,
    far: Configured,
    doubts: Vec<String>,
}

impl Audit {
    /// Runs the command.
    ///
    /// # Errors
    /// If the path cannot be measured, or the run is not in the archive.
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let found = match (&self.run, &self.host) {
            (Some(id), _) => kept(id, global)?,
            (None, Some(host)) => {
                let host: Host = host.parse()?;
                let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
                let peer = peer::of(&host);
                peer.supports(Operation::Audit)?;
                if let Some(lab) = self.reaching.lab(&*peer) {
                    return lab::measure(lab.name, lab.hosts, self.quiet, stop);
                }
                self.measured(&*peer, global, stop)?
            }
            (None, None) => return Err(Refusal::usage("name a HOST, or a run: --run last").into()),
        };
        let report = self.judge(found, global.archive_path().ok().as_deref())?;
        out::print(&match self.json {
            true => report::json::pretty(&report),
            false => report::audit::text(&report, stdout_style()),
        })?;
        Ok(Exit::Done.into())
    }

    fn measured(&self, peer: &dyn Peer, global: &Global, stop: &AtomicBool) -> Result<Found> {
        let mut run = Run {
            title: Some("tune audit".to_owned()),
            ..blank(&peer.to_string(), self.spec())
        };
        let reached = peer.connect(&self.reaching.how(global, stop)?)?;
        run.near = observe::fingerprint(transport::VERSION, reached.addresses.first().copied());
        let mut view = View::new(Live::new(&run.spec), self.quiet);
        let mut record = Record::new(global.archive_path(), &run);
        let watchers: Vec<&mut dyn Watcher> = vec![&mut view, &mut record];
        let mut link = Link::new(reached);
        let outcome = link.measure(&mut run, &mut Tee(watchers), stop);
        drop(view);
        run.ended = how_ended(&outcome, &run.legs);
        if let Err(error) = outcome
            && run.legs.is_empty()
        {
            record.discard();
            return Err(error);
        }
        run.warnings.extend(record.finish(&run));
        let traces = global.archive_path().map(|path| Traces::beside(&path));
        let told = traces.map_or_else(|_| explain::explain(&run), |t| traces::explain(&run, &t));
        let (mut near, mut far) = (Configured::default(), Configured::default());
        let mut doubts = Vec::new();
        match peer.config_files() {
            // Its namespaces have what the lab gave them, not what the files of the machine say.
            ConfigFiles::None => {}
            // The same host at both ends is told once.
            ConfigFiles::Local => {
                near = tuning::configured();
                run.far = None;
            }
            ConfigFiles::Both => {
                near = tuning::configured();
                match survey(&mut link) {
                    Ok(configured) => far = configured,
                    Err(why) => doubts.push(format!(
                        "which files set the other host up is not told: {}",
                        sentence(&why)
                    )),
                }
            }
        }
        Ok(Found {
            run,
            told,
            near,
            far,
            doubts,
        })
    }

    fn spec(&self) -> Spec {
        Spec {
            workload: Workload::Bulk(Bulk::default()),
            directions: Directions::UpThenDown,
            streams: self.streams,
            limit: Limit::Time(self.time),
            ramp: None,
            interval: INTERVAL,
            trace: false,
            socket: SocketSettings::default(),
            near: Placement::default(),
            far: Placement::default(),
        }
    }

    fn judge(&self, found: Found, archive: Option<&Path>) -> Result<AuditReport> {
        let Found {
            run,
            told,
            near,
            far,
            mut doubts,
        } = found;
        let hosts = Hosts {
            near: &run.near,
            far: run.far.as_ref(),
        };
        let path: Vec<(PathSample, Advice)> = (0..run.legs.len())
            .filter_map(|leg| PathSample::of(&run, leg))
            .map(|way| {
                let way = PathSample {
                    told: self.rate,
                    rtt: self.rtt.unwrap_or(way.rtt),
                    mtu: archive.and_then(|at| mtu::known(at, &run.host, way.direction)),
                    ..way
                };
                let advice = advise::propose(&way, hosts, &told);
                (way, advice)
            })
            .collect();
        if path.is_empty() {
            return Err(Refusal::usage(format!(
                "the run {} moved nothing that tells what its path needs: audit by another one, or measure longer",
                run.id
            ))
            .into());
        }
        doubts.extend(
            run.warnings
                .iter()
                .map(|w| format!("{}: {}; {}", w.what, w.meaning, w.remedy)),
        );
        let mut audits = vec![advise::audit(&run.near, Side::Near, &path, &near)];
        audits.extend(
            run.far
                .as_ref()
                .map(|host| advise::audit(host, Side::Far, &path, &far)),
        );
        Ok(AuditReport {
            host: run.host.clone(),
            run: run.id.clone(),
            advice: path.into_iter().map(|(_, advice)| advice).collect(),
            hosts: audits,
            doubts,
        })
    }
}

/// What sets the other host up when it starts.
fn survey(link: &mut Link) -> Result<Configured> {
    let asked = link.ask(ProbeRequest::Survey)?;
    match link.answer(asked, ANSWER, &mut || ())? {
        ProbeAnswer::Surveyed { configured } => Ok(*configured),
        _ => bail!("it answered something else"),
    }
}

/// A run of the archive, and what its host is set up by if it is this one.
fn kept(id: &str, global: &Global) -> Result<Found> {
    let archive = lookup::open_existing(global)?;
    let run = archive.get(id).map_err(lookup::refused)?;
    let told = traces::explain(&run, &archive.traces());
    Ok(Found {
        doubts: vec![format!(
            "judged by the run {}, so by settings as they were then; which files set them is not told",
            run.id
        )],
        told,
        near: Configured::default(),
        far: Configured::default(),
        run,
    })
}
