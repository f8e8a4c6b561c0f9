//! Why the calendar could not do it.

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with a calendar. Displays as a whole sentence that names the file or the database.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sentence of each says what it is")]
pub enum Error {
    #[error("cannot make the directory {path} of the calendar: {1}", path = .0.display())]
    Directory(PathBuf, #[source] io::Error),
    #[error("cannot lock {path}: {1}", path = .0.display())]
    Lock(PathBuf, #[source] io::Error),
    #[error("{0} is not a calendar of this version of linerate, and was not modified")]
    NotACalendar(String),
    #[error("the calendar {0} has no resource '{1}'")]
    Unknown(String, String),
    #[error("cannot {1} in the calendar {0}: {2}")]
    Sql(String, &'static str, String),
    #[error("the calendar, {0}, cannot be used: {1}")]
    Server(String, String),
}

impl Error {
    /// What SQLite's error means to the user.
    pub(crate) fn sqlite(path: &Path, doing: &'static str, source: &rusqlite::Error) -> Error {
        let extended = source.sqlite_error().map(|error| error.extended_code);
        let why = match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => {
                return Error::NotACalendar(path.display().to_string());
            }
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
            _ => return Error::Sql(path.display().to_string(), doing, source.to_string()),
        };
        Error::Sql(path.display().to_string(), doing, why.to_owned())
    }
}
