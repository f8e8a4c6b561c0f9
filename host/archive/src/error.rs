//! Why the archive could not do it: sentences that name the file and the remedy.

use model::RunId;
use rusqlite::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with the archive, whose file most of these name. Displays as a whole sentence.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sentence of each says what it is")]
pub enum Error {
    #[error(
        "there is no place for the archive of runs: HOME is not set; set it, or name a file with --archive FILE"
    )]
    NoHome,
    #[error("cannot make the directory {path} for the archive of runs: {1}", path = .0.display())]
    Directory(PathBuf, #[source] io::Error),
    #[error("cannot lock {path}: {1}", path = .0.display())]
    Lock(PathBuf, #[source] io::Error),
    #[error("cannot start the thread that keeps the run: {0}")]
    Thread(#[source] io::Error),
    #[error("cannot keep or delete the trace {path}: {1}", path = .0.display())]
    Trace(PathBuf, #[source] io::Error),
    #[error(
        "the trace {path} of {1} is missing or damaged and is not shown ({2}): the rest stays",
        path = .0.display()
    )]
    DamagedTrace(PathBuf, RunId, #[source] io::Error),
    #[error("there is no archive of runs at {}", .0.display())]
    Missing(PathBuf),
    #[error("cannot open the archive of runs {path}: {1}", path = .0.display())]
    Open(PathBuf, String),
    #[error(
        "{} is not an archive of linerate and was not modified: name another file with --archive",
        .0.display()
    )]
    NotAnArchive(PathBuf),
    #[error(
        "the archive of runs {path} was written by a newer linerate (form {1}, known up to {2}): use that version, or another file with --archive",
        path = .0.display()
    )]
    Newer(PathBuf, u32, u32),
    /// No space left for what was being done. The run goes on; only its record stops.
    #[error(
        "the disk is full: cannot {1} in the archive of runs {path}; make room, or name a file elsewhere with --archive",
        path = .0.display()
    )]
    Full(PathBuf, &'static str),
    #[error(
        "the system refused to write to the archive of runs {path} (a quota, a file size limit or a failing disk): cannot {1}; name a file elsewhere with --archive",
        path = .0.display()
    )]
    Refused(PathBuf, &'static str),
    #[error(
        "the archive of runs {path} can only be read: cannot {1}; give yourself the right to write the file and its directory, or name another with --archive",
        path = .0.display()
    )]
    ReadOnly(PathBuf, &'static str),
    #[error(
        "another process has kept the archive of runs {path} locked for 5 s: cannot {1}; try again when it is done",
        path = .0.display()
    )]
    Busy(PathBuf, &'static str),
    #[error(
        "the archive of runs {path} is damaged: cannot {1}; put it aside, a new one is made with the next run (sqlite3's .recover may save what is left)",
        path = .0.display()
    )]
    Damaged(PathBuf, &'static str),
    #[error(
        "the {what} {id} in the archive {path} is damaged ({part}) and is not shown: 'linerate runs delete {id}' removes it, and an export of it can be imported again",
        path = .path.display()
    )]
    DamagedPart {
        path: PathBuf,
        what: &'static str,
        id: String,
        part: String,
    },
    /// Any other failure of SQLite.
    #[error("cannot {1} in the archive of runs {path}: {2}", path = .0.display())]
    Sql(PathBuf, &'static str, #[source] rusqlite::Error),
    #[error("cannot read run {1} of the archive {path}: {2}", path = .0.display())]
    Document(PathBuf, RunId, #[source] serde_json::Error),
    #[error("there is no {what} '{name}' in the archive {}: {remedy}", path.display())]
    NotFound {
        path: PathBuf,
        what: &'static str,
        name: String,
        remedy: &'static str,
    },
    #[error("there is no run in the archive {} yet: linerate measure makes one", .0.display())]
    Empty(PathBuf),
    /// Several names begin with these digits: at most [`Error::CANDIDATES`] of them.
    #[error("'{0}' could be any of {all}: give more digits", all = .1.join(", "))]
    Ambiguous(String, Vec<RunId>),
    #[error("another run is already kept as {0}: delete it first (linerate runs delete {0})")]
    Taken(RunId),
    #[error(
        "'{0}' is not the name of a run: names are 32 hexadecimal digits (8 in older archives)"
    )]
    BadId(String),
}

impl Error {
    /// Most candidates that [`Error::Ambiguous`] lists.
    pub const CANDIDATES: usize = 8;

    /// What SQLite's error means to the user.
    pub(crate) fn sql(path: &Path, doing: &'static str, source: rusqlite::Error) -> Error {
        use rusqlite::ffi;
        let path = path.to_owned();
        let failure = match (source.sqlite_error(), &source) {
            (Some(failure), _) => failure,
            // The tables are strict: only damage makes a column one of another type.
            (
                None,
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::Utf8Error(..),
            ) => return Error::Damaged(path, doing),
            _ => return Error::Sql(path, doing, source),
        };
        match (failure.code, failure.extended_code) {
            // The shared-memory file is the first to find no room.
            (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => Error::Full(path, doing),
            (_, ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_TRUNCATE) => {
                Error::Refused(path, doing)
            }
            (ErrorCode::ReadOnly, _) => Error::ReadOnly(path, doing),
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Error::Busy(path, doing),
            (ErrorCode::DatabaseCorrupt, _) => Error::Damaged(path, doing),
            (ErrorCode::NotADatabase, _) => Error::NotAnArchive(path),
            (ErrorCode::CannotOpen, _) => Error::Open(path.clone(), why_not_opened(&path)),
            _ => Error::Sql(path, doing, source),
        }
    }
}

/// SQLite does not report why it could not open a file. The file itself must not be opened to find out:
/// closing it again would drop the locks that this process has on it (POSIX).
fn why_not_opened(path: &Path) -> String {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => "it is a directory; name a file with --archive".to_owned(),
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => reason.to_string(),
        _ => "the file and its directory must be yours to write (SQLite keeps two more files beside it); name another with --archive".to_owned(),
    }
}
