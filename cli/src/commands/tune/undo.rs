//! `linerate tune undo`: back to what was there before.

use super::ANSWER;
use crate::commands::Global;
use crate::out;
use anyhow::{Context, Result};
use clap::Args;
use engine::controller::Link;
use engine::exit::{Exit, Refusal};
use engine::host::Host;
use engine::transport::{self, How};
use engine::{lab, tuning};
use model::Reading;
use report::words::escape;
use std::net::IpAddr;
use std::process::ExitCode;
use wire::control::TuneRequest;

/// Put back what was kept or left changed on this host, and on another
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate tune undo                 on this host
  linerate tune undo db2             on this host and on db2
  linerate tune undo lab:berkeley-chicago   on the first two hosts of a lab that is up

Settings go back to what was there before they were kept, the latest first; if somebody else changed one
meanwhile, that goes as well, and is told. On another host it takes the right to tune there. Files that
--persist wrote go too, and what stood in them before comes back; one that somebody else has changed since
is theirs, and stays. What a file has set at the last start stays until the next.")]
pub struct Undo {
    /// The other host: name[:port] (an agent with --allow-tune), ssh:[user@]name, lab:NAME[/host]
    host: Option<String>,
    /// How ssh is to start linerate at the other end [default: linerate]
    #[arg(long, value_name = "COMMAND")]
    remote_command: Option<String>,
    /// Where the agent listens whose control connection is standard input: this process is the near
    /// end inside a lab
    #[arg(long, hide = true, value_name = "ADDRESS")]
    lab_far: Option<IpAddr>,
}

impl Undo {
    /// Runs the command.
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let host: Option<Host> = self.host.as_deref().map(str::parse).transpose()?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        if let (Some(Host::Lab { name, hosts }), None) = (&host, self.lab_far) {
            return lab::measure(name, hosts.as_deref(), false, stop);
        }
        let undone = tuning::restore()?;
        if undone.is_empty() {
            out::print("nothing was changed on this host\n")?;
        }
        for one in &undone {
            out::print(&format!("put back: {}\n", tuning::put_back(one)))?;
        }
        let Some(host) = host else {
            return Ok(Exit::Done.into());
        };
        if matches!(host, Host::Iperf3 { .. }) {
            let why = format!("{host} is an iperf3 server, which changes nothing for anybody");
            return Err(Refusal::usage(why).into());
        }
        let how = How {
            remote_command: self.remote_command.as_deref(),
            ..global.how(self.lab_far, stop)?
        };
        let reached = transport::connect(&host, &how)?;
        let readings = Link::new(reached).tune(TuneRequest::Restore, ANSWER)?;
        if readings.is_empty() {
            out::print(&format!("nothing was changed on {host}\n"))?;
        }
        for Reading { setting, found, .. } in &readings {
            let (setting, found) = (escape(setting), escape(found));
            out::print(&format!("put back on {host}: {setting}, to {found}\n"))?;
        }
        Ok(Exit::Done.into())
    }
}
