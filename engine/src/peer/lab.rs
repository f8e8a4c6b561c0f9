//! A host of a lab on this machine, whose agent the parent process starts in the host's namespaces.

use super::{
    ConfigFiles, LabPath, Opening, Operation, Peer, PeerSession, agent, agent_measures,
    changes_no_mtu,
};
use crate::exit::Refusal;
use crate::host::Host;
use crate::transport::{How, Reached};
use anyhow::{Result, bail};

/// A [`Host::Lab`].
pub struct LabHost {
    /// Its whole name.
    pub host: Host,
    /// The lab.
    pub name: String,
    /// The hosts, if they are named.
    pub hosts: Option<String>,
}

impl Peer for LabHost {
    fn host(&self) -> &Host {
        &self.host
    }

    fn supports(&self, operation: Operation<'_>) -> Result<(), Refusal> {
        match operation {
            Operation::Measure(spec) => agent_measures(spec),
            Operation::ChangeMtu => Err(changes_no_mtu(&self.host)),
            Operation::Persist => Err(Refusal::usage(
                "the hosts of a lab read no files when they start, and are gone with it: leave out --persist",
            )),
            Operation::ProbeMtu | Operation::Audit | Operation::Restore => Ok(()),
        }
    }

    fn dial(&self, _: &How<'_>) -> Result<Reached> {
        bail!("{} is reached from inside its lab only", self.host)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn PeerSession>> {
        agent::open(self, opening)
    }

    fn lab(&self) -> Option<LabPath<'_>> {
        Some(LabPath {
            name: &self.name,
            hosts: self.hosts.as_deref(),
        })
    }

    fn config_files(&self) -> ConfigFiles {
        ConfigFiles::None
    }
}
