//! What could not be read of a host, and why.

use model::Unread;
use std::io;

/// What could not be read so far.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Vec<Unread>);

impl Unreadable {
    pub(crate) fn into_list(self) -> Vec<Unread> {
        self.0
    }

    pub(crate) fn push(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.0.push(Unread {
            what: what.into(),
            why: why.into(),
        });
    }

    /// The value of a reading, or a note that there is none.
    pub(crate) fn ok_or_note<T>(
        &mut self,
        what: impl Into<String>,
        reading: io::Result<T>,
    ) -> Option<T> {
        self.ok_or_note_as(what, reading, why)
    }

    /// The same, with the reason as `why` has it.
    pub(crate) fn ok_or_note_as<T>(
        &mut self,
        what: impl Into<String>,
        reading: io::Result<T>,
        why: impl Fn(&io::Error) -> String,
    ) -> Option<T> {
        reading.map_err(|error| self.push(what, why(&error))).ok()
    }
}

/// What was read is not as it should be.
pub(crate) fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// The kernel's reason in words.
pub(crate) fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "no such file on this host".to_owned(),
        Some(libc::EACCES | libc::EPERM) => "permission denied".to_owned(),
        Some(libc::EOPNOTSUPP) => "not supported".to_owned(),
        _ => error.to_string(),
    }
}
