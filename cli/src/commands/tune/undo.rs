//! `linerate tune undo`: back to what was there before.

use crate::global::Reaching;
use crate::prelude::*;
use engine::controller::PeerLink;
use engine::exit::exit_of;
use engine::{lab, tuning};
use model::Reading;
use report::words::escape;
use tune::Where;
use wire::control::TuneRequest;

/// A link whose MTU was restored can be down for some seconds.
const LINK_RETURNS: Duration = Duration::from_secs(10);

/// Undo kept and leftover changes on this host, and on a remote one
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate tune undo                 on this host
  linerate tune undo db2             on this host and on db2

The latest change is undone first. Files of --persist are restored too, unless
somebody changed them since; what they set at the last start stays until the
next. Another host needs the right to tune there.")]
pub struct Undo {
    /// The remote host: name[:port] (an agent with --allow-tune), ssh:[user@]name, lab:NAME[/host], lab:FILE.toml
    host: Option<String>,
    #[command(flatten)]
    reaching: Reaching,
}

impl Undo {
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let host: Option<Host> = self.host.as_deref().map(str::parse).transpose()?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let lab = host.as_ref().and_then(|host| self.reaching.lab(host));
        if let Some(lab) = lab {
            return lab::measure(lab.name, lab.hosts, false, stop);
        }
        let undone = tuning::restore()?;
        if undone.is_empty() {
            out::print("nothing was changed on this host\n")?;
        }
        for one in &undone {
            out::print(&format!("undone: {}\n", tuning::restored_line(one)))?;
        }
        for other in tune::status(&tuning::state()?)? {
            let Where::Elsewhere(_) = other.namespace else {
                continue;
            };
            if let (Some(place), undo) = super::status::place(other.namespace) {
                let title = &other.title;
                out::print(&format!(
                    "{title}: kept or held in {place}; {undo} undoes it\n"
                ))?;
            }
        }
        let Some(peer) = host else {
            return Ok(Exit::Done.into());
        };
        peer.supports(PeerOperation::Restore)?;
        let how = self.reaching.how(global, stop)?;
        let until = Instant::now() + LINK_RETURNS * u32::from(!undone.is_empty());
        let reached = loop {
            match peer.connect(&how) {
                Err(error) if exit_of(&error) == Exit::Unreachable && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                reached => break reached?,
            }
        };
        let readings = PeerLink::new(reached).tune(TuneRequest::Restore)?;
        if readings.is_empty() {
            out::print(&format!("nothing was changed on {peer}\n"))?;
        }
        for Reading { setting, found, .. } in &readings {
            let (setting, found) = (escape(setting), escape(found));
            out::print(&format!("undone on {peer}: {setting}, back to {found}\n"))?;
        }
        Ok(Exit::Done.into())
    }
}
