//! A linerate agent: over TLS, over ssh, on this machine, or in a lab on it.

use super::{
    ConfigFiles, LabPath, Opening, Operation, Peer, PeerSession, agent_measures, changes_no_mtu,
};
use crate::controller::Link;
use crate::exit::Refusal;
use crate::host::Host;
use crate::progress::Watcher;
use crate::transport::{How, Reached, VERSION, on_this_machine, over_ssh, over_tls};
use anyhow::{Result, bail};
use model::Run;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// The agent of a host.
pub struct Agent(pub Host);

impl Peer for Agent {
    fn host(&self) -> &Host {
        &self.0
    }

    fn supports(&self, operation: Operation<'_>) -> Result<(), Refusal> {
        let is_lab = self.lab().is_some();
        match operation {
            Operation::Measure(spec) => agent_measures(spec),
            Operation::ChangeMtu if is_lab || self.0 == Host::Local => Err(changes_no_mtu(&self.0)),
            Operation::Persist if is_lab => Err(Refusal::usage(
                "the hosts of a lab read no files when they start, and are gone with it: leave out --persist",
            )),
            Operation::ProbeMtu
            | Operation::ChangeMtu
            | Operation::Audit
            | Operation::Restore
            | Operation::Persist => Ok(()),
        }
    }

    fn dial(&self, how: &How<'_>) -> Result<Reached> {
        match &self.0 {
            Host::Agent { name, port } => over_tls(name, *port, how),
            Host::Ssh { destination, port } => over_ssh(destination, *port, how),
            Host::Local => on_this_machine(how),
            // Its agent is started by the parent process in the host's namespaces.
            Host::Lab { .. } => bail!("{} is reached from inside its lab only", self.0),
            Host::Iperf3 { .. } | Host::Nfs { .. } => bail!("{} has no agent", self.0),
        }
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn PeerSession>> {
        let peer: &dyn Peer = self;
        let reached = peer.connect(&(opening.how)()?)?;
        Ok(Box::new(AgentSession(Link::new(reached))))
    }

    fn lab(&self) -> Option<LabPath<'_>> {
        match &self.0 {
            Host::Lab { name, hosts } => Some(LabPath {
                name,
                hosts: hosts.as_deref(),
            }),
            _ => None,
        }
    }

    fn config_files(&self) -> ConfigFiles {
        match self.0 {
            Host::Lab { .. } => ConfigFiles::None,
            Host::Local => ConfigFiles::Local,
            _ => ConfigFiles::Both,
        }
    }
}

struct AgentSession(Link);

impl PeerSession for AgentSession {
    fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<()> {
        run.near = observe::fingerprint(VERSION, Some(self.0.far_address()));
        self.0.measure(run, watcher, stop)
    }

    fn kind(&self) -> &'static str {
        "an agent"
    }

    fn agent(&mut self) -> Option<&mut Link> {
        Some(&mut self.0)
    }

    fn address(&self) -> Option<IpAddr> {
        Some(self.0.far_address())
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }
}
