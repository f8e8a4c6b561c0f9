//! The other hosts of a path: what each kind can do, and a session with it.
//!
//! A new kind is a variant of [`Host`], a file here and a line in [`of`].

mod agent;
mod iperf3;
mod nfs;

use crate::controller::Link;
use crate::exit::Refusal;
use crate::host::Host;
use crate::iperf3::client;
use crate::nfs::Server;
use crate::progress::Watcher;
use crate::transport::{How, Reached, at_standard_input};
use anyhow::Result;
use model::{Run, Spec};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// What is to be done with a far end.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// A measurement of this order.
    Measure(&'a Spec),
    /// Probes of the size that gets through.
    ProbeMtu,
    /// Another MTU for both hosts.
    ChangeMtu,
    /// A review of its settings.
    Audit,
    /// Undoing what was kept there.
    Restore,
    /// Writing settings where it reads them at its next start.
    Persist,
}

/// Whose configuration files an audit reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFiles {
    /// Nobody's: the hosts of a lab are set up by the lab.
    None,
    /// This host's: both ends are on it.
    Local,
    /// Those of both hosts.
    Both,
}

/// The near and far host of a path in a lab, by name.
#[derive(Clone, Copy, Debug)]
pub struct LabPath<'a> {
    /// The lab.
    pub name: &'a str,
    /// The hosts, as in [`Host::Lab`].
    pub hosts: Option<&'a str>,
}

/// What opens a session.
pub struct Opening<'a> {
    /// How to reach an agent. Made when it is needed: other peers need no key of this host.
    pub how: &'a dyn Fn() -> Result<How<'a>>,
    /// Options of tests against iperf3 servers.
    pub iperf3: &'a client::Options,
}

/// A kind of far end.
pub trait Peer {
    /// Its name as the user wrote it.
    fn host(&self) -> &Host;

    /// Whether it can do this.
    ///
    /// # Errors
    /// Why not, and what to do instead.
    fn supports(&self, operation: Operation<'_>) -> Result<(), Refusal>;

    /// Opens a control connection with its agent.
    ///
    /// # Errors
    /// What failed, or that it has no agent.
    fn dial(&self, how: &How<'_>) -> Result<Reached>;

    /// Opens a session.
    ///
    /// # Errors
    /// If it cannot be reached, or plays no runs.
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn PeerSession>>;

    /// The path in a lab, if it is one.
    fn lab(&self) -> Option<LabPath<'_>> {
        None
    }

    /// The exported folder, if it is an NFS server.
    fn export(&self) -> Option<&str> {
        None
    }

    /// Whose configuration files an audit reads.
    fn config_files(&self) -> ConfigFiles {
        ConfigFiles::Both
    }
}

impl dyn Peer + '_ {
    /// Opens a control connection with its agent, or takes the one that the parent process opened.
    ///
    /// # Errors
    /// What failed, at which host, what to do; or that it has no agent.
    pub fn connect(&self, how: &How<'_>) -> Result<Reached> {
        match how.handed {
            Some(listens) => at_standard_input(listens, &self.host().to_string(), how.stop),
            None => self.dial(how),
        }
    }

    /// Watches the emulator of its lab, if it is in one.
    pub fn watch(&self) -> Option<crate::lab::Watch> {
        self.lab().map(|_| crate::lab::Watch::begin())
    }
}

impl fmt::Display for dyn Peer + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host().fmt(f)
    }
}

/// A far end that plays runs, one after the other.
pub trait PeerSession {
    /// Plays the legs of a run and fills in its hosts and warnings. What was seen until a failure stays in the run.
    ///
    /// # Errors
    /// If the run could not begin or broke.
    fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<()>;

    /// What it is: "an iperf3 server".
    fn kind(&self) -> &'static str;

    /// The control connection, if it is an agent.
    fn agent(&mut self) -> Option<&mut Link> {
        None
    }

    /// Its address; `None` if only a run shows it.
    fn address(&self) -> Option<IpAddr> {
        None
    }

    /// The session is over: no further run is possible.
    fn is_lost(&self) -> bool {
        false
    }

    /// With this error a server without sessions is gone: no further run is possible.
    fn is_gone(&self, _error: &anyhow::Error) -> bool {
        false
    }
}

/// The peer that a host name means.
pub fn of(host: &Host) -> Box<dyn Peer> {
    let of = host.clone();
    match host.clone() {
        Host::Agent { .. } | Host::Ssh { .. } | Host::Local | Host::Lab { .. } => {
            Box::new(agent::Agent(of))
        }
        Host::Iperf3 { name, port } => Box::new(iperf3::Iperf3Server {
            host: of,
            name,
            port,
        }),
        Host::Nfs { name, port, export } => Box::new(nfs::NfsServer {
            host: of,
            server: Server { name, port, export },
        }),
    }
}

/// Whether an agent measures this order.
fn agent_measures(spec: &Spec) -> Result<(), Refusal> {
    match spec.workload.kind().not_with_agent {
        Some(why) => Err(Refusal::usage(why)),
        None => Ok(()),
    }
}

fn traces_nothing() -> Refusal {
    Refusal::usage(
        "--trace takes an agent at the other end; beside a measurement of another server run: linerate trace --host HOST",
    )
}

fn changes_no_mtu(host: &Host) -> Refusal {
    Refusal::usage(format!(
        "{host} is no other host with an agent, to which a new connection can be made whenever it is needed: name one (linerate serve --allow-tune there), or ssh:[user@]name"
    ))
}
