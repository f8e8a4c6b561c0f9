//! A stock iperf3 server: it is measured, and nothing else.

use super::{Opening, Operation, Peer, PeerSession, changes_no_mtu, traces_nothing};
use crate::exit::{Exit, Refusal, exit_of};
use crate::host::Host;
use crate::iperf3::client;
use crate::progress::Watcher;
use crate::transport::{How, Reached};
use anyhow::{Result, bail};
use model::Run;
use std::sync::atomic::AtomicBool;

/// A [`Host::Iperf3`].
pub struct Iperf3Server {
    /// Its whole name.
    pub host: Host,
    /// Name or address.
    pub name: String,
    /// TCP port.
    pub port: u16,
}

impl Peer for Iperf3Server {
    fn host(&self) -> &Host {
        &self.host
    }

    fn supports(&self, operation: Operation<'_>) -> Result<(), Refusal> {
        let host = &self.host;
        match operation {
            Operation::Measure(spec) if spec.trace => Err(traces_nothing()),
            // What else iperf3 cannot do its client refuses.
            Operation::Measure(_) => Ok(()),
            Operation::ProbeMtu => Err(Refusal::usage(format!(
                "{host} is an iperf3 server, which answers no probes: name an agent, or a web server: linerate mtu http://HOST/PAGE"
            ))),
            Operation::ChangeMtu => Err(changes_no_mtu(host)),
            Operation::Audit => Err(Refusal::usage(format!(
                "{host} is an iperf3 server, which tells nothing of its settings: measure it, then audit this host by that run: linerate tune audit --run last"
            ))),
            Operation::Restore => Err(Refusal::usage(format!(
                "{host} is an iperf3 server, which changes nothing for anybody"
            ))),
            Operation::Persist => Ok(()),
        }
    }

    fn dial(&self, _: &How<'_>) -> Result<Reached> {
        bail!("{} is an iperf3 server: it has no agent", self.host)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn PeerSession>> {
        Ok(Box::new(Iperf3Session {
            name: self.name.clone(),
            port: self.port,
            options: opening.iperf3.clone(),
            answered: false,
        }))
    }
}

struct Iperf3Session {
    name: String,
    port: u16,
    options: client::Options,
    /// It has answered before: where it is gone now it is between two tests, and opens its port again.
    answered: bool,
}

impl PeerSession for Iperf3Session {
    fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<()> {
        let (name, port) = (&self.name, self.port);
        let played = client::play(name, port, run, &self.options, self.answered, watcher, stop);
        self.answered |= played.is_ok();
        played
    }

    fn kind(&self) -> &'static str {
        "an iperf3 server"
    }

    fn is_gone(&self, error: &anyhow::Error) -> bool {
        exit_of(error) == Exit::Unreachable
    }
}
