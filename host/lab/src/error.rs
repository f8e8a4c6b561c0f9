//! What can go wrong with a lab. Each is one sentence: what, to what, what to do.

use std::io;

/// Why a lab could not be made, found, entered or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither root nor user namespaces.
    #[error(
        "cannot make a lab: {source}; it needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or a kernel that lets \
         a user make user namespaces: see `sysctl user.max_user_namespaces kernel.unprivileged_userns_clone \
         kernel.apparmor_restrict_unprivileged_userns`"
    )]
    Forbidden {
        /// What the kernel said.
        source: io::Error,
    },
    /// The name is taken.
    #[error(
        "the lab {0} is up already; use it as the host lab:{0}, remove it with `linerate lab down {0}`, or give this \
         one another name"
    )]
    IsUp(String),
    /// No such lab.
    #[error(
        "there is no lab {0} that is up; `linerate lab list` shows the labs, `linerate lab up {0}` makes it"
    )]
    NotUp(String),
    /// A name that cannot be a file's name.
    #[error(
        "'{0}' cannot be the name of a lab: use up to 40 letters, digits, '-', '_' and '.', a letter or digit first"
    )]
    BadName(String),
    /// No such host in the lab.
    #[error("the lab {lab} has no host {host}; it has {}", .hosts.join(", "))]
    NoHost {
        /// The lab.
        lab: String,
        /// Who was asked for.
        host: String,
        /// Who there is.
        hosts: Vec<String>,
    },
    /// A program that sets the lab up is missing.
    #[error("cannot run {program}: {source}; install the package {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A program that sets the lab up failed.
    #[error("cannot set up {subject}: {program} says: {said}")]
    SetUp {
        /// What was to be set up.
        subject: String,
        /// The program.
        program: &'static str,
        /// Its first complaint.
        said: String,
    },
    /// The backend that was asked for cannot make it.
    #[error("{0}")]
    Unfit(String),
    /// What the process that holds the lab said when it gave up.
    #[error("{0}")]
    Holder(String),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// Operation and subject.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}
