//! What can go wrong when a machine is changed. Each is one sentence: what, to what, what to do.

use std::fmt::Display;
use std::path::Path;

/// Why a setting was not applied, or could not be undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the sentence of each says what it is")]
pub enum Error {
    #[error(
        "'{title}' (process {pid}) is changing the settings of this host: wait until it has ended, or end it"
    )]
    Held { title: String, pid: u32 },
    /// A setting cannot be applied here; nothing was changed.
    #[error("cannot set {what}: {why}; nothing was changed")]
    Refused { what: String, why: String },
    #[error(
        "the settings of '{0}' were undone by its guard, because nothing renewed them in time: begin again"
    )]
    Expired(String),
    #[error(
        "there is no directory for the journal of settings: set LINERATE_STATE, XDG_STATE_HOME or HOME to an absolute path"
    )]
    NoState,
    /// Anything else: a file, the guard, the kernel, or what could not be restored.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// An operation on a file of the journal.
    pub(crate) fn journal<E: Display>(what: &str, path: &Path) -> impl FnOnce(E) -> Error {
        let what = format!("{what} {}", path.display());
        move |source| {
            let end = "without its journal nothing is changed";
            Error::Failed(format!("cannot {what}: {source}; {end}"))
        }
    }

    /// The process that would undo everything could not be started, or has died.
    pub(crate) fn no_guard(why: &str) -> Error {
        let guard = "the guard that undoes the settings if this process dies";
        Error::Failed(format!("{guard} {why}; nothing more is changed"))
    }

    /// The journal cannot be read.
    pub(crate) fn damaged(path: &Path, why: impl Display) -> Error {
        let path = path.display();
        Error::Failed(format!(
            "the journal {path} is damaged ({why}): restore its settings by hand, then remove it"
        ))
    }

    /// The kernel cannot be asked.
    pub(crate) fn kernel<E: Display>(what: &str) -> impl FnOnce(E) -> Error {
        move |source| Error::Failed(format!("cannot ask the kernel about {what}: {source}"))
    }

    /// Something was not restored.
    pub(crate) fn not_undone(what: &[String]) -> Error {
        let what = what.join("; ");
        Error::Failed(format!(
            "not everything could be restored: {what}; 'linerate tune undo' tries again"
        ))
    }
}
