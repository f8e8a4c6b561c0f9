//! What can go wrong before a load runs.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Why a socket or a load could not be set up. Each is one sentence: what, to what, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel did not take a socket option.
    #[error("cannot set {option} to {value}: {source}; {remedy}")]
    Option {
        /// Name as on the command line.
        option: &'static str,
        /// Value as asked.
        value: String,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        remedy: String,
    },
    /// A value that no kernel takes.
    #[error("{option} {value} is out of range; {remedy}")]
    Range {
        /// Name as on the command line.
        option: &'static str,
        /// Value as asked.
        value: String,
        /// What to do.
        remedy: String,
    },
    /// The peer's host answered that nobody listens.
    #[error(
        "{0} answered with a reset (RST): nothing listens on that port, or a firewall rejects it; start the server there, check the port, or open it"
    )]
    Refused(SocketAddr),
    /// Somebody on the path, or the host itself, rejected it by ICMP.
    #[error(
        "connection to {remote} rejected: {from} answered that it is unreachable (ICMP); open that port in the firewall there, or fix its route"
    )]
    Rejected {
        /// Whom.
        remote: SocketAddr,
        /// Who answered.
        from: IpAddr,
    },
    /// Nobody answered.
    #[error(
        "no answer at all from {remote} within {} s: it is down, or the path or a firewall drops the packets; check the address, the route and the firewalls",
        .after.as_secs_f64()
    )]
    Timeout {
        /// Whom.
        remote: SocketAddr,
        /// How long was waited.
        after: Duration,
    },
    /// No route to it.
    #[error("{remote} cannot be reached: {source}; check the address, the route and `ip route get {}`", .remote.ip())]
    Unreachable {
        /// Whom.
        remote: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// Any other failure of a system call.
    #[error("cannot {what}: {source}")]
    System {
        /// Operation and subject.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// An order that does not fit together.
    #[error("{0}")]
    Job(String),
}

impl Error {
    pub(crate) fn option(
        option: &'static str,
        value: impl ToString,
        source: io::Error,
        remedy: impl Into<String>,
    ) -> Error {
        Error::Option {
            option,
            value: value.to_string(),
            source,
            remedy: remedy.into(),
        }
    }

    pub(crate) fn range(
        option: &'static str,
        value: impl ToString,
        remedy: impl Into<String>,
    ) -> Error {
        Error::Range {
            option,
            value: value.to_string(),
            remedy: remedy.into(),
        }
    }

    pub(crate) fn system(what: impl Into<String>, source: io::Error) -> Error {
        Error::System {
            what: what.into(),
            source,
        }
    }
}
