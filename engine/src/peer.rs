//! The remote hosts of a path: what each kind of [`Host`] can do, and a session with it.

use crate::controller::PeerLink;
use crate::exit::{Exit, exit_of};
use crate::host::Host;
use crate::host_calendar::{BUSY_FOR, HostCalendar, LegHold, SessionUnit};
use crate::iperf3::client;
use crate::nfs::{self, NfsServer};
use crate::prelude::*;
use crate::transport::{
    How, Reached, VERSION, at_standard_input, on_this_machine, over_ssh, over_tls,
};

/// An operation on a remote host.
#[derive(Clone, Copy, Debug)]
pub enum PeerOperation<'a> {
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

/// The local and remote host of a path in a lab, by name.
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
    pub iperf3: &'a client::ClientOptions,
}

impl Host {
    /// Whether it can do this; if not, why, and what to do instead.
    pub fn supports(&self, operation: PeerOperation<'_>) -> Result<(), Refusal> {
        use PeerOperation::{Audit, ChangeMtu, Measure, Persist, ProbeMtu, Restore};
        let why = match (self, operation) {
            (Host::Iperf3 { .. } | Host::Nfs { .. }, Measure(spec)) if spec.trace => {
                "--trace requires an agent on the remote host; with other servers run in parallel: linerate trace --host HOST".to_owned()
            }
            (Host::Iperf3 { .. }, Measure(spec)) => match spec.workload.kind().not_with_iperf3 {
                Some(why) => why.to_owned(),
                None => return Ok(()),
            },
            (Host::Iperf3 { .. }, Persist) => return Ok(()),
            (Host::Nfs { .. }, Measure(Spec { workload: Workload::Blocks(_), .. })) => return Ok(()),
            // An experiment's load.
            (Host::Nfs { .. }, Measure(_)) => self.has_no_agent(),
            (Host::Iperf3 { .. } | Host::Nfs { .. } | Host::Lab { .. } | Host::Local, ChangeMtu) => {
                format!(
                    "{self} is no remote host with an agent that accepts a new connection at any time: name one (linerate serve --allow-tune there), or ssh:[user@]name"
                )
            }
            (Host::Iperf3 { .. }, ProbeMtu) => format!(
                "{self} is an iperf3 server, which answers no probes: name an agent, or a web server: linerate mtu http://HOST/PAGE"
            ),
            (Host::Iperf3 { .. }, Audit) => format!(
                "{self} is an iperf3 server, which does not report its settings: measure it, then audit this host by that run: linerate tune audit --run last"
            ),
            (Host::Iperf3 { .. }, Restore) => {
                format!("{self} is an iperf3 server, which changes nothing for anybody")
            }
            (Host::Nfs { .. }, ProbeMtu | Audit | Restore | Persist) => self.has_no_agent(),
            (Host::Lab { .. }, Persist) => {
                "the hosts of a lab read no files when they start, and are gone with it: leave out --persist".to_owned()
            }
            (Host::Agent { .. } | Host::Ssh { .. } | Host::Lab { .. } | Host::Local, _) => {
                return Ok(());
            }
        };
        Err(Refusal::usage(why))
    }

    fn has_no_agent(&self) -> String {
        format!("{self} is an NFS server: it has no agent; 'linerate measure {self}' measures it")
    }

    /// Opens a control connection with its agent, or takes the one that the parent process opened.
    ///
    /// # Errors
    /// What failed, at which host, what to do; or that it has no agent.
    pub fn connect(&self, how: &How<'_>) -> Result<Reached> {
        if let Some(listens) = how.handed {
            return at_standard_input(listens, &self.to_string(), how.stop);
        }
        match self {
            Host::Agent { name, port } => over_tls(name, *port, how),
            Host::Ssh { destination, port } => over_ssh(destination, *port, how),
            Host::Local => on_this_machine(how),
            // Its agent is started by the parent process in the host's namespaces.
            Host::Lab { .. } => bail!("{self} is reached from inside its lab only"),
            Host::Iperf3 { .. } => bail!("{self} is an iperf3 server: it has no agent"),
            Host::Nfs { .. } => bail!(Refusal::usage(self.has_no_agent())),
        }
    }

    /// Opens a session.
    pub fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn PeerSession>> {
        // An agent on this host books there itself.
        let is_here = matches!(self, Host::Local | Host::Lab { .. });
        let calendar = (!is_here).then(HostCalendar::of_this_host);
        let unit = SessionUnit::new(calendar, format!("process {}", std::process::id()));
        // A host that has no place for a key has none.
        let local_id = || (opening.how)().ok().and_then(|how| how.local_id());
        Ok(match self.clone() {
            Host::Iperf3 { name, port } => {
                let session = Iperf3Session {
                    name,
                    port,
                    options: opening.iperf3.clone(),
                    answered: false,
                };
                Box::new(Booked {
                    session,
                    unit,
                    local_id: local_id(),
                })
            }
            Host::Nfs { name, port, export } => {
                let session = NfsServer { name, port, export };
                Box::new(Booked {
                    session,
                    unit,
                    local_id: local_id(),
                })
            }
            _ => {
                let how = (opening.how)()?;
                let link = PeerLink::new(self.connect(&how)?).from_host(how.local_id());
                Box::new(link.surviving(how.outage).booking(unit))
            }
        })
    }

    /// The path in a lab, if it is one.
    pub fn lab(&self) -> Option<LabPath<'_>> {
        match self {
            Host::Lab { name, hosts } => Some(LabPath {
                name,
                hosts: hosts.as_deref(),
            }),
            _ => None,
        }
    }

    /// Watches the emulator of its lab, if it is in one.
    pub fn watch(&self) -> Option<crate::lab::LabWatch> {
        self.lab().map(|_| crate::lab::LabWatch::begin())
    }

    /// The exported folder, if it is an NFS server.
    pub fn export(&self) -> Option<&str> {
        match self {
            Host::Nfs { export, .. } => Some(export),
            _ => None,
        }
    }

    /// Whose configuration files an audit reads.
    pub fn config_files(&self) -> ConfigFiles {
        match self {
            Host::Lab { .. } => ConfigFiles::None,
            Host::Local => ConfigFiles::Local,
            _ => ConfigFiles::Both,
        }
    }
}

/// A remote host that plays runs, one after the other.
pub trait PeerSession {
    /// Plays the legs of a run and fills in its hosts and warnings. What was seen until a failure stays in the run.
    fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<()>;

    /// What it is: "an iperf3 server".
    fn kind(&self) -> &'static str;

    /// The control connection, if it is an agent.
    fn agent(&mut self) -> Option<&mut PeerLink> {
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

impl PeerSession for PeerLink {
    fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<()> {
        (run.local_id, run.remote_id) = self.ids();
        run.local = observe::fingerprint(VERSION, Some(self.remote_address()));
        self.measure(run, watcher, stop)
    }

    fn kind(&self) -> &'static str {
        "an agent"
    }

    fn agent(&mut self) -> Option<&mut PeerLink> {
        Some(self)
    }

    fn address(&self) -> Option<IpAddr> {
        Some(self.remote_address())
    }

    fn is_lost(&self) -> bool {
        PeerLink::is_lost(self)
    }
}

/// A server without an agent, whose runs are booked on this host.
struct Booked<S> {
    session: S,
    unit: SessionUnit,
    local_id: Option<NodeId>,
}

impl<S: PeerSession> PeerSession for Booked<S> {
    fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<()> {
        run.local_id = self.local_id;
        let what = format!("{} with {}", run.spec.workload.kind().name, run.host);
        let until = Instant::now() + BUSY_FOR;
        let unit = &mut self.unit;
        let (unit, warning): (Option<LegHold>, _) =
            unit.wait((run.spec.limit, &what), until, watcher, stop)?;
        if let Some(warning) = warning {
            watcher.event(&Event::Warning { warning: &warning });
            run.warnings.push(warning);
        }
        let played = self.session.play(run, watcher, stop);
        drop(unit);
        played
    }

    fn kind(&self) -> &'static str {
        self.session.kind()
    }

    fn is_gone(&self, error: &anyhow::Error) -> bool {
        self.session.is_gone(error)
    }
}

/// A stock iperf3 server: it is measured, and nothing else.
struct Iperf3Session {
    name: String,
    port: u16,
    options: client::ClientOptions,
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

/// An NFS server: it is measured with blocks, and nothing else.
impl PeerSession for NfsServer {
    fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, stop: &AtomicBool) -> Result<()> {
        nfs::play(self, run, watcher, stop)
    }

    fn kind(&self) -> &'static str {
        "an NFS server"
    }
}

#[cfg(test)]
mod tests;
