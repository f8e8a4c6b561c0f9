//! `linerate mtu`: what size of packet gets through, in each direction.

use super::Global;
use super::live::stdout_style;
use crate::controller::Link;
use crate::exit::{Exit, Refusal};
use crate::host::Host;
use crate::mtu::{near, web};
use crate::transport::{self, How};
use crate::{lab, out, trust};
use anyhow::{Context, Result};
use clap::Args;
use model::{IpVersion, Placement};
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Find out what size of packet gets through, in each direction, and what stops larger ones
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate mtu db2                      an agent (linerate serve) on db2
  linerate mtu ssh:me@db2 --json        starts the agent over ssh
  linerate mtu lab:home-lan-blackhole   on an emulated path
  linerate mtu http://db2/big.iso       any web server, no agent: name a page that is longer than the MTU
  linerate mtu -6 db2                   over IPv6, whose path may be another

Sizes are in bytes of the whole IP packet. With an agent, both ends send datagrams of all candidate
sizes with DF set, whatever their kernels believe of the path; the largest that arrives is confirmed
by alternating it with the next size, so that chance loss does not change the answer. Packets that
run out of hops find the place. A transfer of 64 KiB each way shows what becomes of TCP.

Without an agent, connections to the web server announce every candidate MSS: a page that comes, or
does not, shows the way back; full segments that are acknowledged, or are not, show the way there. It
opens some tens of connections at a time.

Nothing is changed on either host, and no privilege is needed. The kernels learn from what routers
say meanwhile, as they do from any transfer. The result is printed, not kept in the archive.")]
pub struct Mtu {
    /// The far end: name[:port], ssh:[user@]name, lab:NAME[/host], local, or http://name[:port]/page
    host: String,
    /// Over IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Over IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
    /// What was found as JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// No word about a lab that comes up
    #[arg(short, long)]
    quiet: bool,
    /// How ssh is to start linerate at the other end [default: linerate]
    #[arg(long, value_name = "COMMAND")]
    remote_command: Option<String>,
    /// Where the agent listens whose control connection is standard input: this process is the near
    /// end inside a lab
    #[arg(long, hide = true, value_name = "ADDRESS")]
    lab_far: Option<IpAddr>,
}

impl Mtu {
    /// Runs the command.
    ///
    /// # Errors
    /// If the other end cannot be reached or refuses.
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let version = match (self.ipv4, self.ipv6) {
            (true, _) => Some(IpVersion::V4),
            (_, true) => Some(IpVersion::V6),
            _ => None,
        };
        let report = if let Some(page) = web::Page::of(&self.host)? {
            web::look(&self.host, &page, version)?
        } else {
            let host: Host = self.host.parse()?;
            match (&host, self.lab_far) {
                (Host::Iperf3 { .. }, _) => {
                    return Err(Refusal::usage(format!(
                        "{host} is an iperf3 server, which answers no probes: name an agent, or a web server: linerate mtu http://HOST/PAGE"
                    ))
                    .into());
                }
                (Host::Lab { name, hosts }, None) => {
                    return lab::measure(name, hosts.as_deref(), self.quiet, stop);
                }
                _ => {}
            }
            let reached = self.reach(&host, global, version, stop)?;
            near::look(&self.host, &mut Link::new(reached), stop)?
        };
        out::print(&match self.json {
            true => report::mtu::json(&report),
            false => report::mtu::text(&report, stdout_style()),
        })?;
        Ok(Exit::Done.into())
    }

    fn reach(
        &self,
        host: &Host,
        global: &Global,
        version: Option<IpVersion>,
        stop: &AtomicBool,
    ) -> Result<transport::Reached> {
        if let (Host::Lab { .. }, Some(far)) = (host, self.lab_far) {
            return transport::at_standard_input(far, &host.to_string(), stop);
        }
        let how = How {
            directory: trust::directory(global.config.as_deref())?,
            ip_version: version,
            placement: &Placement::default(),
            remote_command: self.remote_command.as_deref(),
            stop: Some(stop),
        };
        transport::connect(host, &how)
    }
}
