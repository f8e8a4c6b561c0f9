//! What can go wrong when a machine is changed. Each is one sentence: what, to what, what to do.

use std::io;
use std::path::PathBuf;

/// Why a setting was not applied, or could not be undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another experiment changes this host (this network namespace of it).
    #[error(
        "'{title}' (process {pid}) is changing the settings of this host: wait until it has ended, or end it"
    )]
    Held {
        /// Title of the experiment that was first.
        title: String,
        /// Its process.
        pid: u32,
    },
    /// The right to change the machine is missing.
    #[error("cannot set {0}: it needs root, or the capability CAP_NET_ADMIN; nothing was changed")]
    Forbidden(String),
    /// A setting cannot be applied here, or could not be undone.
    #[error("cannot set {what}: {why}; nothing was changed")]
    Refused {
        /// The setting.
        what: String,
        /// Why, and what to do.
        why: String,
    },
    /// A file of the journal.
    #[error("cannot {what} {}: {source}; without its journal nothing is changed", .path.display())]
    Journal {
        /// Operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file from which this host takes its settings when it starts.
    #[error("cannot write {}: {source}; what was kept lasts until this host starts anew", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The journal cannot be read.
    #[error(
        "the journal {} is damaged ({why}): put back by hand what it tells, then remove it", .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The process that would undo everything could not be started, or has died.
    #[error("the guard that undoes the settings if this process dies {0}; nothing more is changed")]
    NoGuard(String),
    /// The deadline passed, and the guard has undone everything.
    #[error(
        "the settings of '{0}' were undone by its guard, because nothing renewed them in time: begin again"
    )]
    Expired(String),
    /// Something is not as it was before.
    #[error("not everything could be put back: {}; 'linerate tune undo' tries again", .0.join("; "))]
    NotUndone(Vec<String>),
    /// There is no directory for the journal.
    #[error(
        "there is no directory for the journal of settings: set LINERATE_STATE, XDG_STATE_HOME or HOME to an absolute path"
    )]
    NoState,
    /// The results of earlier connections could not be forgotten.
    #[error("cannot flush what the kernel remembers of earlier connections to {peer}: {why}")]
    Metrics {
        /// The other host.
        peer: std::net::IpAddr,
        /// Why.
        why: String,
    },
    /// The kernel cannot be asked.
    #[error("cannot ask the kernel about {what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}
