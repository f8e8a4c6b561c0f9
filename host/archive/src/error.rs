//! Why the archive could not do it: sentences that name the file and the remedy.

use model::RunId;
use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// What can go wrong with the archive. Displays as a whole sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No place for the archive.
    #[error(
        "there is no place for the archive of runs: HOME is not set; set it, or name a file with --archive FILE"
    )]
    NoHome,
    /// The directory of the archive could not be made.
    #[error("cannot make the directory {} for the archive of runs: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The thread that writes the archive could not be started.
    #[error("cannot start the thread that keeps the run: {source}")]
    Thread {
        /// The system's reason.
        source: std::io::Error,
    },
    /// The trace of a run could not be written or deleted.
    #[error("cannot keep or delete the trace {} of a run: {source}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// No archive where one should be read.
    #[error("there is no archive of runs at {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened.
    #[error("cannot open the archive of runs {}: {why}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Reason and remedy.
        why: String,
    },
    /// Some other file.
    #[error(
        "{} is not an archive of linerate; it was left as it is: name another file with --archive",
        path.display()
    )]
    NotAnArchive {
        /// The file.
        path: PathBuf,
    },
    /// The archive is of a later linerate.
    #[error(
        "the archive of runs {} was written by a newer linerate (form {found}, known up to {known}): use that version, or another file with --archive",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: u32,
        /// Newest version that this program knows.
        known: u32,
    },
    /// No space left. The run goes on; only its record stops.
    #[error(
        "the disk is full: cannot {doing} in the archive of runs {}; make room, or name a file elsewhere with --archive",
        path.display()
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// The system refused a write for another reason than a full disk: quota, size limit, bad disk.
    #[error(
        "the system refused to write to the archive of runs {} (a quota, a file size limit or a failing disk): cannot {doing}; name a file elsewhere with --archive",
        path.display()
    )]
    Refused {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// The file or its directory may only be read.
    #[error(
        "the archive of runs {} can only be read: cannot {doing}; give yourself the right to write the file and its directory, or name another with --archive",
        path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// Another process kept the archive locked for longer than the patience of a writer.
    #[error(
        "another process has kept the archive of runs {} locked for 5 s: cannot {doing}; try again when it is done",
        path.display()
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// The file is damaged.
    #[error(
        "the archive of runs {} is damaged: cannot {doing}; put it aside, a new one is made with the next run (sqlite3's .recover may save what is left)",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// Any other failure of SQLite.
    #[error("cannot {doing} in the archive of runs {}: {source}", path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// SQLite's reason.
        source: rusqlite::Error,
    },
    /// A kept document is not what this version writes.
    #[error("cannot read run {id} of the archive {}: {source}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// The run.
        id: RunId,
        /// What is wrong with the document.
        source: serde_json::Error,
    },
    /// No such run.
    #[error("there is no run '{name}' in the archive {}: see linerate runs list", path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
        /// As asked for.
        name: String,
    },
    /// No such experiment.
    #[error("there is no experiment '{name}' in the archive {}: see linerate runs list", path.display())]
    NoExperiment {
        /// The file.
        path: PathBuf,
        /// As asked for.
        name: String,
    },
    /// No such tuning.
    #[error("there is no tuning '{name}' in the archive {}: 'linerate tune HOST' makes one", path.display())]
    NoTuning {
        /// The file.
        path: PathBuf,
        /// As asked for.
        name: String,
    },
    /// Nothing of a path's MTU.
    #[error("nothing of an MTU is kept as '{name}' in the archive {}: see linerate mtu --list", path.display())]
    NoMtu {
        /// The file.
        path: PathBuf,
        /// As asked for.
        name: String,
    },
    /// The archive is empty.
    #[error(
        "there is no run in the archive {} yet: linerate measure makes one",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Several runs begin with these digits.
    #[error("'{prefix}' could be any of {}: give more digits", candidates.join(", "))]
    Ambiguous {
        /// As asked for.
        prefix: String,
        /// Names that begin so, at most [`Error::CANDIDATES`].
        candidates: Vec<RunId>,
    },
    /// The name is taken by another run.
    #[error("another run is already kept as {id}: delete it first (linerate runs delete {id})")]
    Taken {
        /// The name.
        id: RunId,
    },
    /// A run whose name the archive does not take.
    #[error("'{id}' is not the name of a run: names are eight hexadecimal digits")]
    BadId {
        /// The name.
        id: String,
    },
}

impl Error {
    /// Most candidates that [`Error::Ambiguous`] lists.
    pub const CANDIDATES: usize = 8;

    /// What SQLite's error means to the user.
    pub(crate) fn sql(path: &Path, doing: &'static str, source: rusqlite::Error) -> Error {
        use rusqlite::ffi;
        let path = path.to_owned();
        let Some(failure) = source.sqlite_error() else {
            return Error::Sql {
                path,
                doing,
                source,
            };
        };
        match (failure.code, failure.extended_code) {
            // The shared-memory file is the first to find no room.
            (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => {
                Error::Full { path, doing }
            }
            (_, ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_TRUNCATE) => {
                Error::Refused { path, doing }
            }
            (ErrorCode::ReadOnly, _) => Error::ReadOnly { path, doing },
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Error::Busy { path, doing },
            (ErrorCode::DatabaseCorrupt, _) => Error::Damaged { path, doing },
            (ErrorCode::NotADatabase, _) => Error::NotAnArchive { path },
            (ErrorCode::CannotOpen, _) => Error::Open {
                why: why_not_opened(&path),
                path,
            },
            _ => Error::Sql {
                path,
                doing,
                source,
            },
        }
    }
}

/// SQLite does not tell why it could not open a file. The file itself must not be opened to find out:
/// closing it again would drop the locks that this process has on it (POSIX).
fn why_not_opened(path: &Path) -> String {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => "it is a directory; name a file with --archive".to_owned(),
        Err(reason) if reason.kind() != std::io::ErrorKind::NotFound => reason.to_string(),
        _ => "the file and its directory must be yours to write (SQLite keeps two more files beside it); name another with --archive".to_owned(),
    }
}
