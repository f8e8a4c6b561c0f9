//! Resources, bookings and holds.

use crate::Error;
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params, params_from_iter};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A time since 1970-01-01 UTC, or a length, in milliseconds.
pub type Milliseconds = i64;

/// Resources of one slot at most.
pub const MOST_RESOURCES: usize = 8;

/// Bookings are kept for so long after their end.
const KEPT: Milliseconds = 3_600_000;

/// How long a writer waits for another process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Marks the file as a calendar in SQLite's header: "lica".
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"lica");

/// Version of the tables, the file's `user_version`.
const VERSION: i32 = 1;

const TABLES: &str = "
CREATE TABLE resource (name TEXT NOT NULL, unit INTEGER NOT NULL, PRIMARY KEY (name, unit)) STRICT;
CREATE TABLE booking (
    slot TEXT NOT NULL, resource TEXT NOT NULL, unit INTEGER NOT NULL,
    starts INTEGER NOT NULL, ends INTEGER NOT NULL,
    expires INTEGER, -- NULL: confirmed
    who TEXT NOT NULL, what TEXT NOT NULL,
    PRIMARY KEY (slot, resource, unit), CHECK (starts < ends)
) STRICT;
CREATE INDEX booking_by_resource ON booking (resource, unit, starts);
CREATE INDEX booking_by_expiry ON booking (expires);
CREATE TRIGGER apart BEFORE INSERT ON booking WHEN EXISTS (
    SELECT 1 FROM booking b WHERE b.resource = NEW.resource AND b.unit = NEW.unit
    AND b.starts < NEW.ends AND b.ends > NEW.starts
) BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER still BEFORE UPDATE OF resource, unit, starts, ends ON booking
BEGIN SELECT RAISE(ABORT, 'a booking is not moved'); END;
";

/// ?1 from, ?2 until, ?3 length, ?4 to ?11 resources. Candidates are the beginning and each end of a booking; NULL if
/// there is no such time.
const FIRST_FIT: &str = "
WITH wanted (name) AS (SELECT ?4 UNION SELECT ?5 UNION SELECT ?6 UNION SELECT ?7
                       UNION SELECT ?8 UNION SELECT ?9 UNION SELECT ?10 UNION SELECT ?11)
SELECT min(c.s) FROM (
    SELECT ?1 AS s UNION
    SELECT b.ends FROM booking b WHERE b.resource IN (SELECT name FROM wanted) AND b.ends > ?1 AND b.ends <= ?2 - ?3
) c
WHERE c.s <= ?2 - ?3 AND NOT EXISTS (
    SELECT 1 FROM wanted w WHERE NOT EXISTS (
        SELECT 1 FROM resource r WHERE r.name = w.name AND NOT EXISTS (
            SELECT 1 FROM booking b
            WHERE b.resource = r.name AND b.unit = r.unit AND b.starts < c.s + ?3 AND b.ends > c.s)))";

/// ?1 slot, ?2 start, ?3 end, ?4 expires, ?5 who, ?6 what, ?7 to ?14 resources: the first free unit of each.
const TAKE: &str = "
INSERT INTO booking (slot, resource, unit, starts, ends, expires, who, what)
SELECT ?1, r.name, min(r.unit), ?2, ?3, ?4, ?5, ?6 FROM resource r
WHERE r.name IN (?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) AND NOT EXISTS (
    SELECT 1 FROM booking b WHERE b.resource = r.name AND b.unit = r.unit AND b.starts < ?3 AND b.ends > ?2)
GROUP BY r.name ORDER BY r.name ON CONFLICT DO NOTHING";

/// The same of every unit.
const TAKE_WHOLE: &str = "
INSERT INTO booking (slot, resource, unit, starts, ends, expires, who, what)
SELECT ?1, r.name, r.unit, ?2, ?3, ?4, ?5, ?6 FROM resource r
WHERE r.name IN (?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
ORDER BY r.name, r.unit ON CONFLICT DO NOTHING";

/// What is to be booked together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRequest {
    /// Its name; no two have one.
    pub slot: String,
    /// Beginning.
    pub starts: Milliseconds,
    /// End, which it does not reach: `starts < ends`.
    pub ends: Milliseconds,
    /// A hold ends by itself then; `None`: confirmed.
    pub expires: Option<Milliseconds>,
    /// Who has it, for people.
    pub who: String,
    /// What for, for people.
    pub what: String,
    /// What is touched: at least one, at most [`MOST_RESOURCES`], none twice.
    pub resources: Vec<String>,
}

/// A unit that is booked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// Name of the slot that it is part of.
    pub slot: String,
    /// Name of the resource.
    pub resource: String,
    /// Number of the unit, from 1.
    pub unit: u32,
    /// Beginning.
    pub starts: Milliseconds,
    /// End.
    pub ends: Milliseconds,
    /// When it ends by itself; `None`: confirmed.
    pub expires: Option<Milliseconds>,
    /// Who has it.
    pub who: String,
    /// What for.
    pub what: String,
}

/// An open calendar. Several processes may have the same file open: each waits up to 5 s for the others.
#[derive(Debug)]
pub struct Calendar {
    db: Connection,
    path: PathBuf,
}

impl Calendar {
    /// Opens the calendar in this file, and makes it with its directory if it is not there.
    ///
    /// # Errors
    /// A directory or file that cannot be made or written, or that is something else.
    pub fn open(path: &Path) -> Result<Calendar, Error> {
        if let Some(directory) = path.parent() {
            let made = DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory);
            made.map_err(|error| Error::Directory(directory.to_owned(), error))?;
        }
        let failed = |error| Error::sql(path, "read the tables", &error);
        let db = Connection::open(path).map_err(failed)?;
        let mut calendar = Calendar {
            db,
            path: path.to_owned(),
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

    /// Gives a resource so many units. One that is booked stays until its bookings are over and this is called again.
    pub fn set_units(
        &mut self,
        now: Milliseconds,
        resource: &str,
        units: u32,
    ) -> Result<(), Error> {
        self.write("set the units", now, |tx| {
            tx.execute(
                "DELETE FROM resource WHERE name = ?1 AND unit > ?2 AND NOT EXISTS (
                    SELECT 1 FROM booking b WHERE b.resource = name AND b.unit = resource.unit AND b.ends > ?3)",
                params![resource, units, now],
            )?;
            let mut insert = tx.prepare("INSERT OR IGNORE INTO resource (name, unit) VALUES (?1, ?2)")?;
            for unit in 1..=units {
                insert.execute(params![resource, unit])?;
            }
            Ok(true)
        })
        .map(drop)
    }

    /// How many units a resource has; 0 if it is not known.
    pub fn units(&self, resource: &str) -> Result<u32, Error> {
        let count = "SELECT count(*) FROM resource WHERE name = ?1";
        let count = self.db.query_row(count, [resource], |row| row.get(0));
        count.map_err(|error| Error::sql(&self.path, "read the resources", &error))
    }

    /// The first time in `[from, until)` at which a unit of each resource is free for `length`. After a lost
    /// [`Calendar::take`], call it again from the end of that gap, not from the beginning.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a resource without units, which is no full calendar.
    pub fn first_fit(
        &mut self,
        now: Milliseconds,
        [from, until]: [Milliseconds; 2],
        length: Milliseconds,
        resources: &[String],
    ) -> Result<Option<Milliseconds>, Error> {
        self.known(resources)?;
        self.tidy(now)?;
        let values = [from, until, length]
            .map(Value::from)
            .into_iter()
            .chain(places(resources));
        let first = self
            .db
            .query_row(FIRST_FIT, params_from_iter(values), |row| row.get(0));
        first.map_err(|error| Error::sql(&self.path, "find a free time", &error))
    }

    /// Books one unit of each resource, or nothing; whether it did.
    pub fn take(&mut self, now: Milliseconds, wanted: &SlotRequest) -> Result<bool, Error> {
        let rows = wanted.resources.len();
        self.write("book", now, |tx| Ok(insert(tx, TAKE, wanted)? == rows))
    }

    /// Books every unit of each resource, or nothing; whether it did.
    pub fn take_whole(&mut self, now: Milliseconds, wanted: &SlotRequest) -> Result<bool, Error> {
        let mut rows = 0;
        for resource in &wanted.resources {
            rows += self.units(resource)? as usize;
        }
        self.write("book", now, |tx| {
            Ok(rows > 0 && insert(tx, TAKE_WHOLE, wanted)? == rows)
        })
    }

    /// Gives a slot that [`Calendar::take`] made another end and expiry, or, where something else is booked before
    /// that end, the expiry alone; whether it is booked.
    pub fn renew(&mut self, now: Milliseconds, wanted: &SlotRequest) -> Result<bool, Error> {
        let again = self.write("renew a booking", now, |tx| {
            tx.execute("DELETE FROM booking WHERE slot = ?1", [&wanted.slot])?;
            Ok(insert(tx, TAKE, wanted)? == wanted.resources.len())
        })?;
        Ok(again || self.extend(now, &wanted.slot, wanted.expires)?)
    }

    /// Gives a slot another expiry; `false` if it was over.
    pub fn extend(
        &mut self,
        now: Milliseconds,
        slot: &str,
        expires: Option<Milliseconds>,
    ) -> Result<bool, Error> {
        self.write("renew a booking", now, |tx| {
            let update = "UPDATE booking SET expires = ?2 WHERE slot = ?1";
            Ok(tx.execute(update, params![slot, expires])? > 0)
        })
    }

    /// Makes a hold stay until its end; `false` if it was over.
    pub fn confirm(&mut self, now: Milliseconds, slot: &str) -> Result<bool, Error> {
        self.extend(now, slot, None)
    }

    /// Frees what a slot has; whether it had anything.
    pub fn release(&mut self, now: Milliseconds, slot: &str) -> Result<bool, Error> {
        self.write("release a booking", now, |tx| {
            Ok(tx.execute("DELETE FROM booking WHERE slot = ?1", [slot])? > 0)
        })
    }

    /// Removes the holds that have expired, and what was over an hour ago. Whatever takes does so first.
    pub fn tidy(&mut self, now: Milliseconds) -> Result<(), Error> {
        self.write("remove what is over", now, |_| Ok(true))
            .map(drop)
    }

    /// What is booked from now on, by its beginning; expired holds left out.
    pub fn list(&self, now: Milliseconds) -> Result<Vec<Booking>, Error> {
        let failed = |error| Error::sql(&self.path, "read the bookings", &error);
        let select = "SELECT slot, resource, unit, starts, ends, expires, who, what FROM booking
            WHERE ends > ?1 AND (expires IS NULL OR expires > ?1) ORDER BY starts, slot, resource, unit";
        let mut select = self.db.prepare(select).map_err(failed)?;
        let rows = select.query_map([now], |row| {
            Ok(Booking {
                slot: row.get(0)?,
                resource: row.get(1)?,
                unit: row.get(2)?,
                starts: row.get(3)?,
                ends: row.get(4)?,
                expires: row.get(5)?,
                who: row.get(6)?,
                what: row.get(7)?,
            })
        });
        rows.and_then(Iterator::collect).map_err(failed)
    }

    /// Does this in a transaction that removes first what has expired, as no constraint knows the time; undone if it
    /// returns `false`. It takes the write lock at its beginning: one that reads first fails at once where another
    /// writes meanwhile.
    fn write(
        &mut self,
        doing: &'static str,
        now: Milliseconds,
        act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<bool>,
    ) -> Result<bool, Error> {
        let done = || {
            let tx = self
                .db
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let tidy = "DELETE FROM booking WHERE expires <= ?1 OR ends <= ?2";
            tx.execute(tidy, [now, now.saturating_sub(KEPT)])?;
            if act(&tx)? {
                return tx.commit().map(|()| true);
            }
            Ok(false)
        };
        done().map_err(|error| Error::sql(&self.path, doing, &error))
    }

    fn known(&self, resources: &[String]) -> Result<(), Error> {
        for resource in resources {
            if self.units(resource)? == 0 {
                return Err(Error::Unknown(self.path.clone(), resource.clone()));
            }
        }
        Ok(())
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
        match read().map_err(|error| Error::sql(&self.path, "read the tables", &error))? {
            (0, 0, 0) => Ok(false),
            (APPLICATION_ID, VERSION, _) => Ok(true),
            _ => Err(Error::NotACalendar(self.path.clone())),
        }
    }

    fn create(&mut self) -> Result<(), Error> {
        let path = self.path.clone();
        let failed = |error| Error::sql(&path, "make the tables", &error);
        write_ahead(&self.db).map_err(failed)?;
        let behavior = TransactionBehavior::Immediate;
        // Kept apart from `self`, which answers whether another process was faster.
        let tx = Transaction::new_unchecked(&self.db, behavior).map_err(failed)?;
        if !self.has_tables()? {
            tx.execute_batch(TABLES).map_err(failed)?;
            tx.pragma_update(None, "application_id", APPLICATION_ID)
                .map_err(failed)?;
            tx.pragma_update(None, "user_version", VERSION)
                .map_err(failed)?;
        }
        tx.commit().map_err(failed)
    }
}

fn insert(tx: &Transaction<'_>, sql: &str, wanted: &SlotRequest) -> rusqlite::Result<usize> {
    let values = [
        Value::from(wanted.slot.clone()),
        Value::from(wanted.starts),
        Value::from(wanted.ends),
        Value::from(wanted.expires),
        Value::from(wanted.who.clone()),
        Value::from(wanted.what.clone()),
    ];
    tx.execute(
        sql,
        params_from_iter(values.into_iter().chain(places(&wanted.resources))),
    )
}

/// The resources in the places of a statement: the last is repeated.
fn places(resources: &[String]) -> impl Iterator<Item = Value> {
    let last = resources.last().expect("a slot has a resource");
    assert!(
        resources.len() <= MOST_RESOURCES,
        "a slot has at most {MOST_RESOURCES} resources"
    );
    let all = resources.iter().chain(std::iter::repeat(last));
    all.take(MOST_RESOURCES).cloned().map(Value::from)
}

/// Switches to WAL for good. SQLite does not wait for another process that is switching at the same moment.
fn write_ahead(db: &Connection) -> rusqlite::Result<()> {
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

#[cfg(test)]
mod tests;
