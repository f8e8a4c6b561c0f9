//! `linerate tune audit`: what the settings of both hosts are worth on their path. Changes nothing.

use crate::commands::measure::{Path, Played, play};
use crate::global::{Reaching, time_with_unit};
use crate::prelude::*;
use crate::{document, lookup};
use advise::{PathHosts, PathSample};
use anyhow::bail;
use engine::controller::PeerLink;
use engine::iperf3::client;
use engine::peer::ConfigFiles;
use engine::record::blank;
use engine::{lab, mtu, traces, tuning};
use model::advice::{Advice, AuditReport, Configured};
use model::{Directions, Warning};
use prove::plan::usual_run;
use report::words::shown;
use wire::control::{ProbeAnswer, ProbeRequest};

/// Between two samples: what limits a short run is seen all the same.
const INTERVAL: Nanos = Nanos::from_millis(200);
/// For the answer of a host about what sets it up.
const SURVEYED_WITHIN: Duration = Duration::from_secs(30);

/// Review the settings of both hosts against what their path needs
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
    /// The remote host: name[:port], ssh:[user@]name, lab:NAME[/host], lab:FILE.toml or local
    #[arg(required_unless_present = "run")]
    host: Option<String>,
    /// Judge by a run of the archive: its name, its first digits, or 'last'
    #[arg(long, value_name = "RUN", conflicts_with = "host")]
    run: Option<String>,
    /// What the path is to carry, each way, all connections together
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// RTT to calculate with [default: as measured under load]
    #[arg(long, value_name = "TIME", value_parser = time_with_unit)]
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

struct AuditFindings {
    run: Run,
    why: Vec<Explanation>,
    local: Configured,
    remote: Configured,
    doubts: Vec<String>,
}

impl Audit {
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let found = match (&self.run, &self.host) {
            (Some(id), _) => kept(id, global)?,
            (None, Some(host)) => {
                let host: Host = host.parse()?;
                let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
                host.supports(PeerOperation::Audit)?;
                if let Some(lab) = self.reaching.lab(&host) {
                    return lab::measure(lab.name, lab.hosts, self.quiet, stop);
                }
                self.measured(&host, global, stop)?
            }
            (None, None) => return Err(Refusal::usage("name a HOST, or a run: --run last").into()),
        };
        let report = self.judge(found, global.archive_path().ok().as_deref())?;
        out::print(&match self.json {
            true => report::json::pretty(&report),
            false => report::settings_review::text(&report, stdout_style()),
        })?;
        Ok(Exit::Done.into())
    }

    fn measured(&self, peer: &Host, global: &Global, stop: &AtomicBool) -> Result<AuditFindings> {
        let path = Path { peer, global, stop };
        let spec = self.spec();
        out::note(&format!(
            "tune audit: fills the path to {peer} for {} in each direction, to see what it needs; '--run last' judges by an archived run",
            self.time
        ));
        let options = client::ClientOptions::default();
        let mut session =
            self.reaching
                .open(peer, &spec, &options, model::Nanos(0), global, stop)?;
        let run = Run {
            title: Some("tune audit".to_owned()),
            ..blank(&peer.to_string(), spec)
        };
        let Played {
            mut run, not_kept, ..
        } = play(&mut *session, path, run, self.quiet, None)?;
        run.warnings.extend(not_kept);
        let traces = global.archive_path().map(|path| Traces::beside(&path));
        let why = document::why(&run, traces.ok().as_ref());
        let (mut local, mut remote) = (Configured::default(), Configured::default());
        let mut doubts = Vec::new();
        match peer.config_files() {
            // Its namespaces have what the lab gave them, not what the files of the machine say.
            ConfigFiles::None => {}
            // The same host at both ends counts once.
            ConfigFiles::Local => {
                local = tuning::configured();
                run.remote = None;
            }
            ConfigFiles::Both => {
                local = tuning::configured();
                let link = session.agent().context("it has no agent")?;
                match survey(link) {
                    Ok(configured) => remote = configured,
                    Err(why) => doubts.push(format!(
                        "which files set up the remote host is unknown: {}",
                        sentence(&why)
                    )),
                }
            }
        }
        Ok(AuditFindings {
            run,
            why,
            local,
            remote,
            doubts,
        })
    }

    fn spec(&self) -> Spec {
        Spec {
            directions: Directions::UpThenDown,
            streams: self.streams,
            limit: LegLimit::Time(self.time),
            interval: INTERVAL,
            ..usual_run()
        }
    }

    fn judge(
        &self,
        found: AuditFindings,
        archive: Option<&std::path::Path>,
    ) -> Result<AuditReport> {
        let AuditFindings {
            run,
            why,
            local,
            remote,
            mut doubts,
        } = found;
        let hosts = PathHosts {
            local: &run.local,
            remote: run.remote.as_ref(),
        };
        let path: Vec<(PathSample, Advice)> = (0..run.legs.len())
            .filter_map(|leg| PathSample::of(&run, leg))
            .map(|way| {
                let way = PathSample {
                    user_rate: self.rate,
                    rtt: self.rtt.unwrap_or(way.rtt),
                    mtu: archive.and_then(|at| mtu::known(at, &run.host, way.direction)),
                    ..way
                };
                let advice = advise::propose(&way, hosts, &why);
                (way, advice)
            })
            .collect();
        if path.is_empty() {
            refuse!(
                "the run {} moved nothing that shows what its path needs: audit by another one, or measure longer",
                shown(&run.id)
            );
        }
        let words = |w: &Warning| format!("{}: {}; {}", w.what, w.meaning, w.remedy);
        doubts.extend(run.warnings.iter().map(words));
        let mut audits = vec![advise::review_settings(
            &run.local,
            Side::Local,
            &path,
            &local,
        )];
        let of_remote = |host| advise::review_settings(host, Side::Remote, &path, &remote);
        audits.extend(run.remote.as_ref().map(of_remote));
        Ok(AuditReport {
            host: run.host.clone(),
            run: run.id.clone(),
            advice: path.into_iter().map(|(_, advice)| advice).collect(),
            hosts: audits,
            doubts,
        })
    }
}

/// What sets the remote host up when it starts.
fn survey(link: &mut PeerLink) -> Result<Configured> {
    let asked = link.probe(ProbeRequest::Survey)?;
    match link.answer(asked, SURVEYED_WITHIN, &mut || ())? {
        ProbeAnswer::Surveyed { configured } => Ok(*configured),
        _ => bail!("it answered something else"),
    }
}

/// A run of the archive, and what its host is set up by if it is this one.
fn kept(id: &str, global: &Global) -> Result<AuditFindings> {
    let (run, traces) = lookup::run(id, global)?;
    let why = traces::explain(&run, &traces);
    Ok(AuditFindings {
        doubts: vec![format!(
            "judged by the run {}, so by the settings of that time; which files set them is unknown",
            shown(&run.id)
        )],
        why,
        local: Configured::default(),
        remote: Configured::default(),
        run,
    })
}
