//! What can go wrong before a load runs.

use crate::prelude::*;
use std::net::{IpAddr, SocketAddr};

/// Why a socket or a load could not be set up. Each is one sentence: what, to what, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the sentence of each says what it is")]
pub enum Error {
    #[error("cannot set {option} to {value}: {source}; {remedy}")]
    Option {
        option: &'static str,
        value: String,
        source: io::Error,
        remedy: String,
    },
    #[error("{option} {value} is out of range; {remedy}")]
    Range {
        option: &'static str,
        value: String,
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
    Rejected { remote: SocketAddr, from: IpAddr },
    /// Nobody answered.
    #[error(
        "no answer at all from {remote} within {} s: it is down, or the path or a firewall drops the packets; check the address, the route and the firewalls",
        .after.as_secs_f64()
    )]
    Timeout { remote: SocketAddr, after: Duration },
    #[error("{remote} cannot be reached: {source}; check the address, the route and `ip route get {}`", .remote.ip())]
    Unreachable {
        remote: SocketAddr,
        source: io::Error,
    },
    /// Any other failure of a system call.
    #[error("cannot {what}: {source}")]
    System { what: String, source: io::Error },
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
