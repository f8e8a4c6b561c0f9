//! A calendar in a SQLite file.

use crate::calendar::{Calendar, SqlValue, Statements, booking};
use crate::statements::{APART_IN_SQLITE, TABLES};
use crate::{Booking, Error};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params_from_iter};
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a writer waits for another process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Marks the file as a calendar in SQLite's header: "lica".
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"lica");

/// Version of the tables, the file's `user_version`.
const VERSION: i32 = 1;

/// An open file. Several processes may have the same one open: each waits up to 5 s for the others.
#[derive(Debug)]
pub struct Lite {
    db: Connection,
    path: PathBuf,
    place: String,
    /// Of meshes of which this is the coordinator.
    locks: Vec<File>,
}

impl Lite {
    /// Opens the calendar in this file, and makes it with its directory if it is not there.
    ///
    /// # Errors
    /// A directory or file that cannot be made or written, or that is something else.
    pub fn open(path: &Path) -> Result<Lite, Error> {
        if let Some(directory) = path.parent() {
            let made = sys::file::make_private(directory);
            made.map_err(|error| Error::Directory(directory.to_owned(), error))?;
        }
        let failed = |error| Error::sqlite(path, "read the tables", &error);
        let db = Connection::open(path).map_err(failed)?;
        let mut calendar = Lite {
            db,
            path: path.to_owned(),
            place: path.display().to_string(),
            locks: Vec::new(),
        };
        calendar.db.busy_timeout(PATIENCE).map_err(failed)?;
        calendar
            .db
            .pragma_update(None, "synchronous", "NORMAL")
            .map_err(failed)?;
        // The last process to close it does not wait for the disk either.
        let no_checkpoint = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        calendar
            .db
            .set_db_config(no_checkpoint, true)
            .map_err(failed)?;
        if !calendar.has_tables()? {
            calendar.create()?;
        }
        Ok(calendar)
    }

    /// `false` for an empty file; an error for any other that is not ours.
    fn has_tables(&self) -> Result<bool, Error> {
        let pragma = |name: &str| {
            self.db
                .pragma_query_value(None, name, |row| row.get::<_, i32>(0))
        };
        let read = || -> rusqlite::Result<(i32, i32, i64)> {
            let count = "SELECT count(*) FROM sqlite_schema";
            let tables = self.db.query_row(count, [], |row| row.get(0))?;
            Ok((pragma("application_id")?, pragma("user_version")?, tables))
        };
        match read().map_err(|error| Error::sqlite(&self.path, "read the tables", &error))? {
            (0, 0, 0) => Ok(false),
            (APPLICATION_ID, VERSION, _) => Ok(true),
            _ => Err(Error::NotACalendar(self.place.clone())),
        }
    }

    fn create(&mut self) -> Result<(), Error> {
        let path = self.path.clone();
        let failed = |error| Error::sqlite(&path, "make the tables", &error);
        write_ahead(&self.db).map_err(failed)?;
        let behavior = TransactionBehavior::Immediate;
        // Kept apart from `self`, which answers whether another process was faster.
        let tx = Transaction::new_unchecked(&self.db, behavior).map_err(failed)?;
        if !self.has_tables()? {
            tx.execute_batch(TABLES).map_err(failed)?;
            tx.execute_batch(APART_IN_SQLITE).map_err(failed)?;
            tx.pragma_update(None, "application_id", APPLICATION_ID)
                .map_err(failed)?;
            tx.pragma_update(None, "user_version", VERSION)
                .map_err(failed)?;
        }
        tx.commit().map_err(failed)
    }
}

impl Calendar for Lite {
    fn place(&self) -> &str {
        &self.place
    }

    /// It takes the write lock at its beginning: one that reads first fails at once where another writes meanwhile.
    fn transaction(
        &mut self,
        doing: &'static str,
        act: &mut dyn FnMut(&mut dyn Statements) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let path = &self.path;
        let failed = |error| Error::sqlite(path, doing, &error);
        let behavior = TransactionBehavior::Immediate;
        let tx = self
            .db
            .transaction_with_behavior(behavior)
            .map_err(failed)?;
        let done = act(&mut LiteStatements {
            db: &tx,
            path,
            doing,
        })?;
        if done {
            tx.commit().map_err(failed)?;
        }
        Ok(done)
    }

    fn read(
        &mut self,
        doing: &'static str,
        act: &mut dyn FnMut(&mut dyn Statements) -> Result<(), Error>,
    ) -> Result<(), Error> {
        act(&mut LiteStatements {
            db: &self.db,
            path: &self.path,
            doing,
        })
    }

    /// By a file beside the calendar, in which its holder is.
    fn lock_mesh(&mut self, mesh: &str) -> Result<Result<(), String>, Error> {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{mesh}.lock"));
        let path = PathBuf::from(path);
        let failed = |error| Error::Lock(path.clone(), error);
        let mut options = File::options();
        let options = options.create(true).truncate(false).read(true).write(true);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).map_err(failed)?;
                write!(file, "process {}", std::process::id()).map_err(failed)?;
                self.locks.push(file);
                Ok(Ok(()))
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).map_err(failed)?;
                Ok(Err(holder))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

struct LiteStatements<'a> {
    db: &'a Connection,
    path: &'a Path,
    doing: &'static str,
}

impl LiteStatements<'_> {
    fn run<T>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut rusqlite::Statement<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        // There a parameter with '$' has a name, and is numbered by its first place.
        let statement = self.db.prepare_cached(&sql.replace('$', "?"));
        let done = statement.and_then(|mut statement| run(&mut statement));
        done.map_err(|error| Error::sqlite(self.path, self.doing, &error))
    }
}

impl Statements for LiteStatements<'_> {
    fn execute(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<usize, Error> {
        self.run(sql, |statement| statement.execute(params_from_iter(values)))
    }

    fn number(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Option<i64>, Error> {
        self.run(sql, |statement| {
            statement.query_row(params_from_iter(values), |row| row.get(0))
        })
    }

    fn bookings(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Booking>, Error> {
        self.run(sql, |statement| {
            let rows = statement.query_map(params_from_iter(values), |row| booking(row));
            rows.and_then(Iterator::collect)
        })
    }
}

/// Switches to WAL for good. SQLite does not wait for another process that is switching at the same moment, so this does.
///
/// # Errors
/// What SQLite answers, of a file that is in use for longer than 5 s too.
pub fn write_ahead(db: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}
