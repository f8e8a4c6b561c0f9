//! `linerate tune`: what can be set, and what is set now. One file a subcommand.

mod audit;
mod hold;
mod knobs;
mod mtu;
mod path;
mod status;
mod undo;

use crate::global::Global;
use anyhow::Result;
use clap::{Args, Subcommand};
use engine::exit::Exit;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// For the answer to a request to tune.
const ANSWER: Duration = Duration::from_secs(30);

/// Find what limits a path, prove what helps, keep that and undo the rest; look at settings, and put them back
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "EXAMPLES
  linerate tune lab:berkeley-chicago             an emulated path, to try it: nothing outlives the lab
  linerate tune db2 --dry-run                    measures and says what it would try; changes nothing
  linerate tune db2                              the way from here to db2: measure, explain, propose, prove, keep
  linerate tune db2 --persist                    and written down for the next start of both hosts
  linerate tune db2 --direction down --rate 10G  the way back, which is to carry 10 Gbit/s
  linerate tune show last                        the story again
  linerate report last                           its page: before, after, and what proved it
  linerate tune audit db2                        what both hosts' settings are worth on the path
  linerate tune knobs                            every knob, its values and its risk
  linerate tune hold db2 route.initcwnd=32       set there until Ctrl-C, to try by hand
  linerate tune hold local device.txqueuelen=100 and on this host
  linerate tune mtu db2 --to 9000                jumbo frames on both hosts, without an outage
  linerate tune status                           what is changed on this host now
  linerate tune undo                             put back what was kept or left changed

'linerate tune HOST' measures one way of the path, explains what limits it, and proposes the few settings
that the finding asks for, each with its reason, its risk and the value that is there. Those are proven as
'linerate prove' does it: alone, and together where there are several; what helps together must do better
than the best one alone in fresh runs. What was proven is set once more, seen to work over fresh connections,
and stays until 'linerate tune undo [HOST]' or until the host starts anew; all else is undone. A limit is never
lowered. What may not be changed is tried on linerate's own connections where a socket option can, and told.

With --persist the hosts write down what they keep: sysctls in a file of /etc/sysctl.d, behind those that set
the same, the rest for whatever sets the device up (netplan, systemd-networkd, or a script for NetworkManager's
dispatcher), in files of their own. What none of them can hold, and who else sets the same, is told. 'linerate
tune undo' takes the files back. --for freebsd and --for macos print the lines for such hosts.

Every change is journalled before it is made. What is not kept is undone when its experiment or the
connection to the other host ends, by a process of its own if linerate is killed, and at the latest when
linerate starts again.")]
pub struct Tune {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    path: Box<path::Path>,
}

#[derive(Subcommand)]
enum Action {
    Audit(audit::Audit),
    /// List the knobs, those that change least first
    Knobs,
    Hold(hold::Hold),
    Mtu(mtu::Mtu),
    /// Tell what is changed on this host now
    Status,
    Undo(undo::Undo),
    Show(path::Show),
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
        let Some(action) = &self.action else {
            return self.path.run(global);
        };
        match action {
            Action::Audit(audit) => return audit.run(global),
            Action::Knobs => knobs::run()?,
            Action::Hold(hold) => hold.run(global)?,
            Action::Mtu(mtu) => return Ok(mtu.run(global)?.into()),
            Action::Status => status::status()?,
            Action::Undo(undo) => return undo.run(global),
            Action::Show(show) => show.run(global)?,
            Action::Guard { journal } => tune::guard(journal)?,
        }
        Ok(Exit::Done.into())
    }
}
