//! The commands, one file each.

mod agent;
mod completions;
mod demo;
mod diff;
mod explain;
mod lab;
mod live;
mod man;
mod measure;
mod model;
mod mtu;
mod prove;
pub mod report;
pub mod runs;
mod serve;
mod trace;
mod trust;
mod tune;
mod which;

use ::model::IpVersion;
use clap::{Args, CommandFactory, Parser, Subcommand};
use engine::transport::How;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// A laboratory for TCP transfer performance.
///
/// Why isn't this transfer running at line rate, and does this change really fix it?
#[derive(Parser)]
#[command(name = "linerate", version, max_term_width = 100)]
#[command(
    after_help = "Start with:  linerate demo               what it does, on this machine, in three minutes
             linerate measure local      this machine against itself
             linerate serve              on the far end
             linerate measure HOST       from here"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

/// Options of every command.
#[derive(Args, Clone)]
pub struct Global {
    /// Archive of runs [default: linerate/runs.db in the user's data directory]
    #[arg(long, global = true, value_name = "FILE", env = "LINERATE_ARCHIVE")]
    #[arg(help_heading = "Global options")]
    pub archive: Option<PathBuf>,
    /// Directory of this host's key and of whom it trusts [default: linerate in the user's configuration directory]
    #[arg(long, global = true, value_name = "DIR", env = "LINERATE_CONFIG")]
    #[arg(help_heading = "Global options")]
    pub config: Option<PathBuf>,
}

impl Global {
    /// Where runs are kept.
    ///
    /// # Errors
    /// If neither an option nor the environment names a place.
    pub fn archive_path(&self) -> Result<PathBuf, archive::Error> {
        let value = |name| std::env::var_os(name);
        match &self.archive {
            Some(path) => Ok(path.clone()),
            None => {
                archive::default_path(value("XDG_DATA_HOME").as_deref(), value("HOME").as_deref())
            }
        }
    }

    /// How an agent is reached, but for what a command has options for. One that was handed over was
    /// trusted by who did that.
    ///
    /// # Errors
    /// If neither an option nor the environment names the directory of this host's key.
    fn how<'a>(&self, handed: Option<IpAddr>, stop: &'a AtomicBool) -> anyhow::Result<How<'a>> {
        let directory = match handed {
            Some(_) => PathBuf::new(),
            None => engine::trust::directory(self.config.as_deref())?,
        };
        Ok(How {
            directory,
            handed,
            stop: Some(stop),
            ..How::default()
        })
    }
}

/// Which version of IP is insisted on.
#[derive(Args)]
struct Version {
    /// Over IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Over IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
}

impl Version {
    fn chosen(&self) -> Option<IpVersion> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(IpVersion::V4),
            (_, true) => Some(IpVersion::V6),
            _ => None,
        }
    }
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Measure(Box<measure::Measure>),
    Prove(Box<prove::Prove>),
    Serve(serve::Serve),
    Trace(Box<trace::Trace>),
    Trust(trust::Trust),
    Explain(explain::Explain),
    Diff(diff::Diff),
    Mtu(mtu::Mtu),
    Model(model::Model),
    Tune(tune::Tune),
    Report(report::Report),
    Runs(runs::Runs),
    Lab(lab::Lab),
    Man(man::Man),
    Completions(completions::Completions),
    #[command(hide = true)]
    Agent(agent::Agent),
    /// Hold a lab and move its frames, as standard input orders
    #[command(hide = true)]
    LabEmulator,
}

/// The whole command line, for manual pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs what the command line asks for.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let exit = match cli.command {
        // Their exit code may be that of a command that they ran.
        Command::Demo(demo) => return demo.run(&cli.global),
        Command::Measure(measure) => return measure.run(&cli.global),
        Command::Prove(prove) => return prove.run(&cli.global),
        Command::Mtu(mtu) => return mtu.run(&cli.global),
        Command::Lab(lab) => return lab.run(),
        Command::Tune(tune) => return tune.run(&cli.global),
        Command::Explain(explain) => explain.run(&cli.global),
        Command::Diff(diff) => diff.run(&cli.global),
        Command::Report(report) => report.run(&cli.global),
        Command::Runs(runs) => runs.run(&cli.global),
        Command::Model(model) => model.run(),
        Command::Completions(completions) => completions.run(command()),
        Command::Man(man) => man.run(command()),
        Command::Serve(serve) => serve.run(&cli.global),
        Command::Trace(trace) => trace.run(),
        Command::Trust(trust) => trust.run(&cli.global),
        Command::Agent(agent) => agent.run(),
        Command::LabEmulator => lab::keep(),
    };
    exit.map(ExitCode::from)
}
