use std::io;

/// Why a socket could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option could not be read.
    #[error("cannot read {option} of a socket: {source}")]
    Option {
        /// Name of the option, as in its manual page.
        option: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// An address of the socket could not be read: it is not connected (any more).
    #[error("cannot read the {which} address of a socket: {source}")]
    Address {
        /// `local` or `remote`.
        which: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}
