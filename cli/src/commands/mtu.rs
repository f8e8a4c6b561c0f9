//! `linerate mtu`: what size of packet gets through, in each direction.

use crate::document;
use crate::global::{Reaching, Version};
use crate::prelude::*;
use engine::controller::PeerLink;
use engine::lab;
use engine::mtu::{self, local, web};
use engine::transport::How;
use model::mtu::MtuFound;

/// Find the path MTU of each direction, and what limits it
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate mtu db2                      an agent (linerate serve) on db2
  linerate mtu ssh:me@db2 --json        starts the agent over ssh
  linerate mtu lab:home-lan-blackhole   on an emulated path
  linerate mtu http://db2/big.iso       a web server: a page above the MTU

What was found is kept: 'linerate runs list', 'linerate runs show ID'. Sizes are
those of whole IP packets. Both hosts send probes of all candidate
sizes with DF set; a size is confirmed by alternating it with the next one.
Nothing is changed and no privilege is needed. A web server is probed by the
MSS of some tens of connections; its direction gets a size only.")]
pub struct MtuArgs {
    /// The remote host: name[:port], ssh:[user@]name, lab:NAME[/host], lab:FILE.toml, local, or http://name[:port]/page
    host: String,
    #[command(flatten)]
    version: Version,
    /// What was found as JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// No progress of the creation of a lab
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    reaching: Reaching,
}

impl MtuArgs {
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let name = &self.host;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let report = if let Some(page) = web::WebPage::of(name)? {
            web::probe(name, &page, self.version.chosen())?
        } else {
            let host: Host = name.parse()?;
            host.supports(PeerOperation::ProbeMtu)?;
            if let Some(lab) = self.reaching.lab(&host) {
                return lab::measure(lab.name, lab.hosts, self.quiet, stop);
            }
            let how = How {
                ip_version: self.version.chosen(),
                ..self.reaching.how(global, stop)?
            };
            local::probe(name, &mut PeerLink::new(host.connect(&how)?), None, stop)?
        };
        let found = mtu::store(global.archive_path(), MtuFound::Look(Box::new(report)));
        document::print(Document::Mtu(Box::new(found)), self.json)?;
        Ok(Exit::Done.into())
    }
}
