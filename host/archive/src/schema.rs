//! The tables, and how older files become newer ones.

use crate::Error;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a writer waits for another process.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Marks the file as ours in SQLite's header: "line".
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"line");

/// One step from the version before to the next.
pub(crate) type Step = fn(&Transaction<'_>) -> rusqlite::Result<()>;

/// Step n leads from version n to n + 1; version 0 is the empty file. A step that was released never
/// changes: a new form is a new step.
pub(crate) const STEPS: &[Step] = &[
    |tx| tx.execute_batch(V1),
    |tx| tx.execute_batch(V2),
    |tx| tx.execute_batch(V3),
    |tx| tx.execute_batch(V4),
];

/// Documents come last in their rows, so that reading the columns before them never follows the
/// pages that a long document spills into.
pub(crate) const V1: &str = "
CREATE TABLE runs (
    id                 TEXT    NOT NULL PRIMARY KEY,
    started_unix_ns    INTEGER NOT NULL,
    host               TEXT    NOT NULL,
    title              TEXT,
    workload           TEXT    NOT NULL,
    ended              TEXT    NOT NULL,
    goodput_up_bit_s   INTEGER,
    goodput_down_bit_s INTEGER,
    p50_up_ns          INTEGER,
    p50_down_ns        INTEGER,
    document           TEXT    NOT NULL -- Run as JSON, its legs left out
) STRICT;
CREATE INDEX runs_by_start ON runs (started_unix_ns);
CREATE TABLE legs (
    run        TEXT    NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    leg        INTEGER NOT NULL,
    direction  TEXT    NOT NULL,
    started_ns INTEGER NOT NULL,
    document   TEXT, -- Leg as JSON, its samples left out; NULL until it is finished
    PRIMARY KEY (run, leg)
) STRICT;
CREATE TABLE samples (
    run      TEXT    NOT NULL,
    leg      INTEGER NOT NULL,
    side     TEXT    NOT NULL,
    n        INTEGER NOT NULL,
    document TEXT    NOT NULL, -- Sample as JSON
    PRIMARY KEY (run, leg, side, n),
    FOREIGN KEY (run, leg) REFERENCES legs (run, leg) ON DELETE CASCADE
) STRICT;
";

/// Experiments. A run names the one that it is part of; without a foreign key, for it may be imported
/// alone.
pub(crate) const V2: &str = "
CREATE TABLE experiments (
    id              TEXT    NOT NULL PRIMARY KEY,
    started_unix_ns INTEGER NOT NULL,
    host            TEXT    NOT NULL,
    title           TEXT,
    workload        TEXT    NOT NULL,
    ended           TEXT    NOT NULL,
    document        TEXT    NOT NULL -- Experiment as JSON, its trials left out
) STRICT;
CREATE TABLE trials (
    experiment TEXT    NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    document   TEXT    NOT NULL, -- Trial as JSON
    PRIMARY KEY (experiment, number)
) STRICT;
ALTER TABLE runs ADD COLUMN experiment TEXT;
CREATE INDEX runs_by_experiment ON runs (experiment);
";

/// Tunings, which name their runs and experiments in their documents.
pub(crate) const V3: &str = "
CREATE TABLE tunings (
    id              TEXT    NOT NULL PRIMARY KEY,
    started_unix_ns INTEGER NOT NULL,
    host            TEXT    NOT NULL,
    ended           TEXT    NOT NULL,
    document        TEXT    NOT NULL -- Tuning as JSON
) STRICT;
";

/// What was found of paths' MTUs.
pub(crate) const V4: &str = "
CREATE TABLE mtus (
    id              TEXT    NOT NULL PRIMARY KEY,
    started_unix_ns INTEGER NOT NULL,
    document        TEXT    NOT NULL -- MtuRecord as JSON
) STRICT;
";

/// Readies a connection: brings an older or empty file to the version of `steps`, refuses what is not
/// ours or newer, sets what holds for this connection alone.
pub(crate) fn prepare(db: &mut Connection, path: &Path, steps: &[Step]) -> Result<(), Error> {
    let doing = "read the form";
    let failed = |source| Error::sql(path, doing, source);
    db.busy_timeout(PATIENCE).map_err(failed)?;
    db.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL;")
        .map_err(failed)?;
    if version(db, path, steps)? < steps.len() {
        migrate(db, path, steps)?;
    }
    Ok(())
}

/// The version of the file, as long as it is ours and known.
fn version(db: &Connection, path: &Path, steps: &[Step]) -> Result<usize, Error> {
    let pragma = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let read = || -> rusqlite::Result<(i32, i32, bool)> {
        let tables: i64 =
            db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((
            pragma("user_version")?,
            pragma("application_id")?,
            tables == 0,
        ))
    };
    let (version, application, empty) =
        read().map_err(|source| Error::sql(path, "read the form", source))?;
    let known = u32::try_from(steps.len()).expect("there are few steps");
    match u32::try_from(version) {
        Ok(0) if empty => Ok(0),
        Ok(found) if found > 0 && application == APPLICATION_ID => {
            if found > known {
                return Err(Error::Newer(path.to_owned(), found, known));
            }
            Ok(found as usize)
        }
        _ => Err(Error::NotAnArchive(path.to_owned())),
    }
}

fn migrate(db: &mut Connection, path: &Path, steps: &[Step]) -> Result<(), Error> {
    let failed = |source| Error::sql(path, "make the tables", source);
    write_ahead(db).map_err(failed)?;
    let tx = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Another process may have done it while this one waited for the lock.
    let from = version(&tx, path, steps)?;
    for (n, step) in steps.iter().enumerate().skip(from) {
        step(&tx).map_err(failed)?;
        tx.pragma_update(None, "user_version", n + 1)
            .map_err(failed)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(failed)?;
    tx.commit().map_err(failed)
}

/// Switches to WAL for good. SQLite does not wait for another process that is switching at the same
/// moment, so this does.
fn write_ahead(db: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let switched = db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()));
        match switched {
            Err(e)
                if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of version 1, as they were released. Never change this.
    const RELEASED_V1: &str = "
CREATE TABLE runs (
    id                 TEXT    NOT NULL PRIMARY KEY,
    started_unix_ns    INTEGER NOT NULL,
    host               TEXT    NOT NULL,
    title              TEXT,
    workload           TEXT    NOT NULL,
    ended              TEXT    NOT NULL,
    goodput_up_bit_s   INTEGER,
    goodput_down_bit_s INTEGER,
    p50_up_ns          INTEGER,
    p50_down_ns        INTEGER,
    document           TEXT    NOT NULL -- Run as JSON, its legs left out
) STRICT;
CREATE INDEX runs_by_start ON runs (started_unix_ns);
CREATE TABLE legs (
    run        TEXT    NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    leg        INTEGER NOT NULL,
    direction  TEXT    NOT NULL,
    started_ns INTEGER NOT NULL,
    document   TEXT, -- Leg as JSON, its samples left out; NULL until it is finished
    PRIMARY KEY (run, leg)
) STRICT;
CREATE TABLE samples (
    run      TEXT    NOT NULL,
    leg      INTEGER NOT NULL,
    side     TEXT    NOT NULL,
    n        INTEGER NOT NULL,
    document TEXT    NOT NULL, -- Sample as JSON
    PRIMARY KEY (run, leg, side, n),
    FOREIGN KEY (run, leg) REFERENCES legs (run, leg) ON DELETE CASCADE
) STRICT;
PRAGMA application_id = 1818848869;
PRAGMA user_version = 1;
INSERT INTO runs VALUES ('00c0ffee', 5, 'db2', NULL, 'bulk', 'complete', 941, NULL, NULL, NULL, '{}');
INSERT INTO legs VALUES ('00c0ffee', 0, 'up', 0, NULL);
INSERT INTO samples VALUES ('00c0ffee', 0, 'near', 0, '{}');
";

    fn open(path: &Path, steps: &[Step]) -> Result<Connection, Error> {
        let mut db = Connection::open(path).unwrap();
        prepare(&mut db, path, steps).map(|()| db)
    }

    fn tables(db: &Connection) -> Vec<(String, Option<String>)> {
        db.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }

    fn scratch(name: &str) -> std::path::PathBuf {
        let file = format!("linerate-schema-{}-{name}.db", std::process::id());
        std::env::temp_dir().join(file)
    }

    #[test]
    fn a_file_of_version_1_opens_and_has_the_tables_of_today() {
        let old = scratch("v1");
        Connection::open(&old)
            .unwrap()
            .execute_batch(RELEASED_V1)
            .unwrap();
        let old_db = open(&old, STEPS).unwrap();
        let new = scratch("new");
        let new_db = open(&new, STEPS).unwrap();
        assert_eq!(tables(&old_db), tables(&new_db));
        drop((old_db, new_db));

        let archive = crate::Archive::open(&old).unwrap();
        let rows = archive.list(&crate::Filter::default()).unwrap();
        assert_eq!(rows[0].goodput_up, Some(model::BitRate(941)));
        drop(archive);
        std::fs::remove_file(old).unwrap();
        std::fs::remove_file(new).unwrap();
    }

    #[test]
    fn steps_are_taken_once_all_or_none_and_newer_files_are_refused() {
        let add: Step = |tx| tx.execute_batch("ALTER TABLE runs ADD COLUMN note TEXT");
        let fill: Step = |tx| tx.execute_batch("UPDATE runs SET note = host");
        let broken: Step = |tx| tx.execute_batch("DROP TABLE samples; DROP TABLE nothing");
        let note = |db: &Connection| -> rusqlite::Result<String> {
            db.query_row("SELECT note FROM runs", [], |row| row.get(0))
        };
        let path = scratch("steps");
        Connection::open(&path)
            .unwrap()
            .execute_batch(RELEASED_V1)
            .unwrap();

        let failed = open(&path, &[STEPS, &[add, broken]].concat()).unwrap_err();
        assert!(matches!(failed, Error::Sql { .. }), "{failed:?}");
        let db = open(&path, STEPS).unwrap();
        assert!(note(&db).is_err(), "half a migration leaves nothing");
        db.query_row("SELECT count(*) FROM samples", [], |_| Ok(()))
            .unwrap();

        for _ in 0..2 {
            let db = open(&path, &[STEPS, &[add, fill]].concat()).unwrap();
            assert_eq!(note(&db).unwrap(), "db2");
        }
        let newer = open(&path, STEPS).unwrap_err();
        assert_eq!(
            newer.to_string(),
            format!(
                "the archive of runs {} was written by a newer linerate (form {}, known up to {}): \
                 use that version, or another file with --archive",
                path.display(),
                STEPS.len() + 2,
                STEPS.len()
            )
        );
        for end in ["", "-wal", "-shm"] {
            let mut file = path.clone().into_os_string();
            file.push(end);
            let _ = std::fs::remove_file(file);
        }
    }
}
