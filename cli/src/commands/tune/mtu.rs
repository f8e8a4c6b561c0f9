//! `linerate tune mtu`: another MTU for two hosts, without an outage.

use crate::document;
use crate::global::Version;
use crate::prelude::*;
use engine::mtu::change::{Wish, change};
use engine::transport::How;
use engine::{mtu, tuning};
use model::mtu::{ChangeOutcome, ChangeReach, MtuFound};

/// Change the MTU of this host and a remote one without an outage
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate tune mtu db2 --to 9000          jumbo frames
  linerate tune mtu ssh:root@db2 --to 9000 --persist
  linerate tune mtu db2 --to 9000 --peer   between the two hosts alone

Both hosts restore the old MTU if this command dies, the connection breaks or a
minute passes in silence. Routes stay pinned at the old size until probes of the
new one arrive both ways; then new connections are tested and both hosts commit.
Devices whose driver may drop the link need --force. Needs root or CAP_NET_ADMIN
and 'linerate serve --allow-tune' there. 'tune mtu HOST --to OLD' reverses
it in the same stages, 'tune undo' at once.")]
pub struct TuneMtu {
    /// The remote host: name[:port] (an agent with --allow-tune) or ssh:[user@]name
    host: String,
    /// MTU that the devices of both hosts are to have, in bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_520))]
    to: u32,
    /// Larger packets between the two hosts alone, whatever else is on the segment
    #[arg(long, conflicts_with = "segment")]
    peer: bool,
    /// Larger packets for everybody on the segment, whatever is seen there
    #[arg(long)]
    segment: bool,
    /// Also where a device may lose its link for some seconds
    #[arg(long)]
    force: bool,
    /// Also write it to the boot configuration of both hosts once it is committed
    #[arg(long)]
    persist: bool,
    #[command(flatten)]
    version: Version,
    /// Print the result as JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// No word about the stages
    #[arg(short, long)]
    quiet: bool,
    /// How ssh starts linerate on the remote host [default: linerate]
    #[arg(long, value_name = "COMMAND")]
    remote_command: Option<String>,
}

impl TuneMtu {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let host: Host = self.host.parse()?;
        host.supports(PeerOperation::ChangeMtu)?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        tuning::recover();
        let how = How {
            ip_version: self.version.chosen(),
            remote_command: self.remote_command.as_deref(),
            ..global.how(None, stop)?
        };
        let wish = Wish {
            to: self.to,
            reach: match (self.peer, self.segment) {
                (true, _) => Some(ChangeReach::Peer),
                (_, true) => Some(ChangeReach::Segment),
                _ => None,
            },
            force: self.force,
            persist: self.persist,
        };
        let change = change(&host, &how, &wish, stop, &mut |stage, change| {
            if !self.quiet {
                out::note(&report::mtu_change::done(stage, change));
            }
        })?;
        let outcome = change.outcome.clone();
        let found = mtu::store(global.archive_path(), MtuFound::Change(Box::new(change)));
        document::print(Document::Mtu(Box::new(found)), self.json)?;
        Ok(match outcome {
            ChangeOutcome::RolledBack { .. } if stop.load(Ordering::Relaxed) => Exit::Interrupted,
            ChangeOutcome::RolledBack { .. } => Exit::Failed,
            ChangeOutcome::Committed | ChangeOutcome::Unneeded => Exit::Done,
        })
    }
}
