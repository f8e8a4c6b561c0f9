//! `linerate tune`: what can be set, and what is set now. One file a subcommand.

mod hold;
mod knobs;
mod mtu;
mod status;
mod undo;

use super::Global;
use crate::exit::Exit;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// For the answer to a request to tune.
const ANSWER: Duration = Duration::from_secs(30);

/// Look at what can be set, and undo what an experiment left
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate tune knobs                            every knob, its values and its risk
  linerate tune hold db2 route.initcwnd=32       set there until Ctrl-C, to try by hand
  linerate tune hold local device.txqueuelen=100 and on this host
  linerate tune mtu db2 --to 9000                jumbo frames on both hosts, without an outage
  linerate tune status                           what is changed on this host now
  linerate tune undo                             put back what was kept or left changed

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
    Hold(hold::Hold),
    Mtu(mtu::Mtu),
    /// Tell what is changed on this host now
    Status,
    Undo(undo::Undo),
    /// Undo what a journal says once its process is gone or its deadline has passed
    #[command(hide = true)]
    Guard {
        /// The journal
        #[arg(long, value_name = "FILE")]
        journal: PathBuf,
    },
}

impl Tune {
    /// Runs the command.
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        match &self.action {
            Action::Knobs => knobs::run()?,
            Action::Hold(hold) => hold.run(global)?,
            Action::Mtu(mtu) => return Ok(mtu.run(global)?.into()),
            Action::Status => status::status()?,
            Action::Undo(undo) => return undo.run(global),
            Action::Guard { journal } => tune::guard(journal)?,
        }
        Ok(Exit::Done.into())
    }
}
