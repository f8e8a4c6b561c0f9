//! An NFS server: it is measured with blocks, and nothing else.

use super::{
    Opening, Operation, Peer, PeerSession, agent_measures, changes_no_mtu, traces_nothing,
};
use crate::exit::Refusal;
use crate::host::Host;
use crate::nfs::{self, Server};
use crate::progress::Watcher;
use crate::transport::{How, Reached};
use anyhow::Result;
use model::{Run, Workload};
use std::sync::atomic::AtomicBool;

/// A [`Host::Nfs`].
pub struct NfsServer {
    /// Its whole name.
    pub host: Host,
    /// Where it is.
    pub server: Server,
}

impl NfsServer {
    fn has_no_agent(&self) -> Refusal {
        let host = &self.host;
        Refusal::usage(format!(
            "{host} is an NFS server: it has no agent; 'linerate measure {host}' measures it"
        ))
    }
}

impl Peer for NfsServer {
    fn host(&self) -> &Host {
        &self.host
    }

    fn supports(&self, operation: Operation<'_>) -> Result<(), Refusal> {
        match operation {
            Operation::Measure(spec) if spec.trace => Err(traces_nothing()),
            Operation::Measure(spec) => match spec.workload {
                Workload::Blocks(_) => Ok(()),
                // An experiment's load.
                _ => agent_measures(spec).and(Err(self.has_no_agent())),
            },
            Operation::ChangeMtu => Err(changes_no_mtu(&self.host)),
            Operation::ProbeMtu | Operation::Audit | Operation::Restore | Operation::Persist => {
                Err(self.has_no_agent())
            }
        }
    }

    fn dial(&self, _: &How<'_>) -> Result<Reached> {
        Err(self.has_no_agent().into())
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn PeerSession>> {
        Ok(Box::new(self.server.clone()))
    }

    fn export(&self) -> Option<&str> {
        Some(&self.server.export)
    }
}

impl PeerSession for Server {
    fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<()> {
        nfs::play(self, run, watcher, stop)
    }

    fn kind(&self) -> &'static str {
        "an NFS server"
    }
}
