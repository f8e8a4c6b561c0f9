use std::io;

/// Why a socket could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} of a socket: {source}")]
pub struct Error {
    /// An option, or an address: then the socket is not connected (any more).
    pub what: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}
