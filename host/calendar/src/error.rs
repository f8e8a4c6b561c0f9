//! Why the calendar could not do it.

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with a calendar. Displays as a whole sentence that names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its directory could not be made.
    #[error("cannot make the directory {path} of the calendar: {1}", path = .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// Some other file, or the calendar of a later linerate.
    #[error("{} is not a calendar of this version of linerate, and was not modified", .0.display())]
    NotACalendar(PathBuf),
    /// No unit has this name: nothing of it can ever be booked.
    #[error("the calendar {path} has no resource '{1}'", path = .0.display())]
    Unknown(PathBuf, String),
    /// SQLite failed: the operation, and the reason.
    #[error("cannot {1} in the calendar {path}: {2}", path = .0.display())]
    Sql(PathBuf, &'static str, String),
}

impl Error {
    /// What SQLite's error means to the user.
    pub(crate) fn sql(path: &Path, doing: &'static str, source: &rusqlite::Error) -> Error {
        let extended = source.sqlite_error().map(|error| error.extended_code);
        let why = match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => return Error::NotACalendar(path.to_owned()),
            // The shared-memory file is the first to find no room.
            _ if extended == Some(SQLITE_IOERR_SHMSIZE) => "the disk is full",
            Some(ErrorCode::DiskFull) => "the disk is full",
            Some(ErrorCode::ReadOnly) => "the file or its directory can only be read",
            Some(ErrorCode::CannotOpen) => {
                "the file and its directory must be yours to write (SQLite keeps two more files beside it)"
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                "another process has kept it locked for 5 s"
            }
            Some(ErrorCode::DatabaseCorrupt) => {
                "it is damaged; delete it, the next booking makes a new one"
            }
            _ => return Error::Sql(path.to_owned(), doing, source.to_string()),
        };
        Error::Sql(path.to_owned(), doing, why.to_owned())
    }
}
