//! A linerate agent: over TLS, over ssh, on this machine, or in a lab.

use super::{ConfigFiles, Opening, Operation, Peer, PeerSession, agent_measures, changes_no_mtu};
use crate::controller::Link;
use crate::exit::Refusal;
use crate::host::Host;
use crate::progress::Watcher;
use crate::transport::{How, Reached, VERSION};
use anyhow::Result;
use model::Run;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

type Dial = dyn Fn(&How<'_>) -> Result<Reached>;

/// An agent, by the way its control connection is opened.
pub struct Agent {
    host: Host,
    dial: Box<Dial>,
    is_local: bool,
}

impl Agent {
    /// On another host.
    pub fn elsewhere(host: Host, dial: impl Fn(&How<'_>) -> Result<Reached> + 'static) -> Agent {
        Agent {
            host,
            dial: Box::new(dial),
            is_local: false,
        }
    }

    /// On this machine.
    pub fn local(host: Host, dial: impl Fn(&How<'_>) -> Result<Reached> + 'static) -> Agent {
        Agent {
            is_local: true,
            ..Agent::elsewhere(host, dial)
        }
    }
}

impl Peer for Agent {
    fn host(&self) -> &Host {
        &self.host
    }

    fn supports(&self, operation: Operation<'_>) -> Result<(), Refusal> {
        match operation {
            Operation::Measure(spec) => agent_measures(spec),
            Operation::ChangeMtu if self.is_local => Err(changes_no_mtu(&self.host)),
            Operation::ProbeMtu
            | Operation::ChangeMtu
            | Operation::Audit
            | Operation::Restore
            | Operation::Persist => Ok(()),
        }
    }

    fn dial(&self, how: &How<'_>) -> Result<Reached> {
        (self.dial)(how)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn PeerSession>> {
        open(self, opening)
    }

    fn config_files(&self) -> ConfigFiles {
        match self.is_local {
            true => ConfigFiles::Local,
            false => ConfigFiles::Both,
        }
    }
}

/// A session with the agent of a peer.
pub fn open(peer: &dyn Peer, opening: &Opening<'_>) -> Result<Box<dyn PeerSession>> {
    let reached = peer.connect(&(opening.how)()?)?;
    Ok(Box::new(AgentSession(Link::new(reached))))
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
