//! What can go wrong with a lab. Each is one sentence: what, to what, what to do.

use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// Why a lab could not be made, found, entered or removed.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// The backend that was asked for cannot make it.
    #[error("{0}")]
    Unfit(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// For an operation with its subject.
    pub(crate) fn system<E: Display>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        let what = what.into();
        move |source| Error::Failed(format!("cannot {what}: {source}"))
    }
}
