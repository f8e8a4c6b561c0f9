//! `linerate tune`: what can be set, and what is set now.

use super::Global;
use crate::controller::Link;
use crate::exit::{Exit, Refusal};
use crate::host::Host;
use crate::transport::{self, How};
use crate::{out, trust, tuning};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use model::{Knob, Nanos, Placement, Reading, Scope, Setting, Side};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tune::{Pending, Where};
use wire::control::TuneRequest;

/// For the answer to a request to tune.
const ANSWER: Duration = Duration::from_secs(30);

/// How soon Ctrl-C is noticed.
const STOP_WITHIN: Duration = Duration::from_millis(50);

/// Look at what can be set, and undo what an experiment left
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate tune knobs                            every knob, its values and its risk
  linerate tune hold db2 route.initcwnd=32       set there until Ctrl-C, to try by hand
  linerate tune hold local device.txqueuelen=100 and on this host
  linerate tune status                           what is changed on this host now
  linerate tune undo                             put back what was left changed

Every change is journalled before it is made. It is undone when its experiment or the connection to
the other host ends, by a process of its own if linerate is killed, and at the latest when linerate
starts again.")]
pub struct Tune {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the knobs, those that change least first
    Knobs,
    /// Set something on a host until Ctrl-C, then put it back
    Hold(HoldArgs),
    /// Tell what is changed on this host now
    Status,
    /// Put back what an experiment has left changed on this host
    Undo,
    /// Undo what a journal says once its process is gone or its deadline has passed
    #[command(hide = true)]
    Guard {
        /// The journal
        #[arg(long, value_name = "FILE")]
        journal: PathBuf,
    },
}

#[derive(Args)]
struct HoldArgs {
    /// The host: name[:port] (an agent with --allow-tune), ssh:[user@]name or local
    host: String,
    /// What to set there, like route.initcwnd=32; the route is that to this host
    #[arg(required = true, value_name = "KNOB=VALUE")]
    settings: Vec<String>,
    /// What for: told to whoever else wants to change settings there
    #[arg(long, default_value = "set by hand", value_name = "TEXT")]
    title: String,
    /// Put back after so long without a word from here, even if linerate is killed there
    #[arg(long, default_value = "30s", value_name = "TIME")]
    deadline: Nanos,
    /// How ssh is to start linerate at the other end [default: linerate]
    #[arg(long, value_name = "COMMAND")]
    remote_command: Option<String>,
}

impl Tune {
    /// Runs the command.
    pub fn run(&self, global: &Global) -> Result<Exit> {
        match &self.action {
            Action::Knobs => out::print(&knobs())?,
            Action::Hold(hold) => hold.run(global)?,
            Action::Status => {
                let pending = tune::status(&tuning::state()?)?;
                out::print(&status(&pending))?;
            }
            Action::Undo => {
                let undone = tune::recover(&tuning::state()?)?;
                if undone.is_empty() {
                    out::print("nothing was changed on this host\n")?;
                }
                for one in &undone {
                    out::print(&format!("put back: {}\n", tuning::put_back(one)))?;
                }
            }
            Action::Guard { journal } => tune::guard(journal)?,
        }
        Ok(Exit::Done)
    }
}

/// Who keeps what is held.
enum Holder {
    /// This process: both ends are on this machine.
    Here(tune::Hold),
    /// The agent at the other end.
    There(Link),
}

impl HoldArgs {
    fn run(&self, global: &Global) -> Result<()> {
        let settings = self.settings()?;
        let host: Host = self.host.parse()?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        tuning::recover();
        let how = How {
            directory: trust::directory(global.config.as_deref())?,
            ip_version: None,
            placement: &Placement::default(),
            remote_command: self.remote_command.as_deref(),
            stop: Some(stop),
        };
        let mut link = Link::new(transport::connect(&host, &how)?);
        let begin = TuneRequest::Begin {
            title: self.title.clone(),
            deadline: self.deadline,
        };
        link.tune(begin, ANSWER)?;
        let (mut holder, readings) = if link.shares_machine() {
            let mut hold = tuning::begin(&self.title, self.deadline.into(), Side::Far)?;
            let readings = hold.apply(&settings, link.far_address())?;
            (Holder::Here(hold), readings)
        } else {
            let readings = link.tune(TuneRequest::Apply { settings }, ANSWER)?;
            (Holder::There(link), readings)
        };
        for reading in &readings {
            out::print(&told(reading))?;
        }
        out::note("set until Ctrl-C");
        let often = Duration::from(self.deadline) / 3;
        let mut renewed = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(STOP_WITHIN);
            if renewed.elapsed() >= often {
                renewed = Instant::now();
                match &mut holder {
                    Holder::Here(hold) => hold.renew(),
                    Holder::There(link) => drop(link.tune(TuneRequest::Renew, ANSWER)?),
                }
            }
        }
        match holder {
            Holder::Here(hold) => drop(hold.end()?),
            Holder::There(mut link) => drop(link.tune(TuneRequest::End, ANSWER)?),
        }
        out::note("put back");
        Ok(())
    }

    fn settings(&self) -> Result<Vec<Setting>> {
        let read = |text: &String| {
            let setting: Setting = text.parse().map_err(|e| Refusal::usage(format!("{e}")))?;
            if setting.knob.is_socket() {
                return Err(Refusal::usage(format!(
                    "{} is an option of linerate's own connections: 'linerate measure' and 'linerate prove' take it",
                    setting.knob
                ))
                .into());
            }
            Ok(setting)
        };
        self.settings.iter().map(read).collect()
    }
}

/// What is changed, for people.
fn status(pending: &[Pending]) -> String {
    if pending.is_empty() {
        return "nothing is changed on this host\n".to_owned();
    }
    let mut text = String::new();
    for one in pending {
        let state = match (one.namespace, one.alive, one.guarded) {
            (Where::Forgotten, ..) => "gone with its boot or network namespace",
            (_, true, _) => "goes on",
            (_, false, true) => "has died, and is being put back",
            (_, false, false) => "has died: 'linerate tune undo' puts back what it left",
        };
        let place = match one.namespace {
            Where::Elsewhere(inode) => format!(", in the network namespace {inode}"),
            Where::Here | Where::Forgotten => String::new(),
        };
        let since = report::words::utc(Nanos::from_secs(one.started));
        let Pending { title, pid, .. } = one;
        let _ = writeln!(text, "{title}: process {pid} since {since}{place}, {state}");
        for change in &one.changes {
            let made = if change.made {
                ""
            } else {
                ", perhaps not made"
            };
            let _ = writeln!(text, "  {} (was {}{made})", change.setting, change.was);
        }
    }
    text
}

fn told(reading: &Reading) -> String {
    let Reading {
        setting,
        asked,
        found,
        ..
    } = reading;
    match reading.in_force {
        true => format!("{setting}: in force\n"),
        false => format!("{setting}: {asked} asked, {found} in force\n"),
    }
}

/// The knobs as a list for people.
fn knobs() -> String {
    let mut text = String::new();
    let mut scope = None;
    for knob in Knob::all() {
        if scope.replace(knob.scope()) != Some(knob.scope()) {
            let heading = match knob.scope() {
                Scope::Socket => "linerate's own connections; the machine stays as it is",
                Scope::Route => "all connections to the other host",
                Scope::Namespace => "all connections of the host (of a network namespace)",
                Scope::Device => "everything through the device towards the other host",
                Scope::Host => "the whole machine with all its network namespaces",
            };
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{heading}:");
        }
        let on = knob.usual_place();
        let _ = writeln!(text, "  {knob}  {}", knob.summary());
        let _ = writeln!(text, "      {} (@{on} if no host is named)", knob.shape());
        if !knob.is_socket() {
            let _ = writeln!(text, "      risk: {}", knob.risk());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_listed_under_what_it_changes() {
        let text = knobs();
        for knob in Knob::all() {
            assert!(text.contains(&format!("\n  {knob}  ")), "{knob}");
            assert!(knob.is_socket() || text.contains(knob.risk()), "{knob}");
        }
        let at = |what: &str| text.find(what).expect(what);
        assert!(at("\n  congestion  ") < at("\n  route.initcwnd  "));
        assert!(at("\n  route.initcwnd  ") < at("\n  sysctl:net.ipv4.tcp_rmem  "));
        assert!(at("\n  sysctl:net.ipv4.tcp_rmem  ") < at("\n  device.mtu  "));
        assert!(at("\n  device.mtu  ") < at("\n  sysctl:net.core.rmem_max  "));
    }
}
