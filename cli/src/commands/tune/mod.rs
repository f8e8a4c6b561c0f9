//! `linerate tune`: what can be set, and what is set now. One file a subcommand.

mod audit;
mod hold;
mod knobs;
mod mtu;
mod path;
mod status;
mod undo;

use crate::prelude::*;
use clap::Subcommand;

/// Diagnose a path, test fixes, keep the proven ones; audit, undo
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "EXAMPLES
  linerate tune lab:berkeley-chicago             an emulated path
  linerate tune db2 --dry-run                    proposes; changes nothing
  linerate tune db2 --persist                    also after a restart
  linerate tune db2 --direction down --rate 10G
  linerate tune show last
  linerate tune audit db2                        review of both hosts' settings
  linerate tune knobs                            every knob and its risk
  linerate tune hold db2 route.initcwnd=32       until Ctrl-C
  linerate tune mtu db2 --to 9000
  linerate tune status
  linerate tune undo

'tune HOST' measures, explains, proposes settings and proves each one as
'linerate prove' does. What is proven stays until 'tune undo' or a restart; all
else is undone. A limit is never lowered. Every change is in a journal first:
it is undone even if linerate is killed. --persist writes what is kept to
/etc/sysctl.d and for netplan, systemd-networkd or NetworkManager.")]
pub struct Tune {
    #[command(subcommand)]
    action: Option<TuneAction>,
    #[command(flatten)]
    path: Box<path::TunePath>,
}

#[derive(Subcommand)]
enum TuneAction {
    Audit(audit::Audit),
    /// List the knobs, by scope
    Knobs,
    Hold(hold::Hold),
    Mtu(mtu::TuneMtu),
    /// Show what is changed on this host now
    Status,
    Undo(undo::Undo),
    Show(path::TuneShow),
    /// Undo what a journal says once its process is gone or its deadline has passed
    #[command(hide = true)]
    Guard {
        /// The journal
        #[arg(long, value_name = "FILE")]
        journal: PathBuf,
    },
}

impl Tune {
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let Some(action) = &self.action else {
            return self.path.run(global);
        };
        match action {
            TuneAction::Audit(audit) => return audit.run(global),
            TuneAction::Knobs => knobs::run()?,
            TuneAction::Hold(hold) => hold.run(global)?,
            TuneAction::Mtu(mtu) => return Ok(mtu.run(global)?.into()),
            TuneAction::Status => status::status()?,
            TuneAction::Undo(undo) => return undo.run(global),
            TuneAction::Show(show) => show.run(global)?,
            TuneAction::Guard { journal } => tune::guard(journal)?,
        }
        Ok(Exit::Done.into())
    }
}
