//! The tables, and how a file becomes one that has them.

use crate::mesh_legs::{FROM_11, OF_11, from_12, mesh_legs};
use crate::{Error, histories, samples};
use calendar::write_ahead;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;
use std::time::Duration;

/// How long a writer waits for another process.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Marks the file as ours in SQLite's header: "line".
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"line");

/// Version of the tables, which the file has as its `user_version`.
const VERSION: u32 = 13;

/// The oldest that is brought to [`VERSION`].
const OLDEST: u32 = 6;

/// The last column of each table is the checksum of the others ([`row_sum`]; `mesh_legs.unsent` is left out). `runs.legs`, `legs.samples` and
/// `experiments.trials` are how many rows of those belong to one that is finished: a checksum cannot miss a row.
///
/// A run names the experiment that it is part of without a foreign key, for it may be imported alone. Tunings name their
/// runs and experiments in their documents.
const TABLES: &str = "
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
    experiment         TEXT,
    legs               INTEGER,
    alike              TEXT    NOT NULL, -- limit and streams of its spec as JSON
    local              TEXT    NOT NULL, -- name of the host that measured
    local_key          TEXT    NOT NULL, -- id of its key, or else its name
    remote_key         TEXT    NOT NULL, -- id of the key of the remote host, or else `host`
    document           TEXT    NOT NULL, -- Run as JSON, its legs left out
    sum                BLOB
) STRICT;
CREATE INDEX runs_by_start ON runs (started_unix_ns);
CREATE INDEX runs_by_experiment ON runs (experiment);
CREATE TABLE legs (
    run        TEXT    NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    leg        INTEGER NOT NULL,
    direction  TEXT    NOT NULL,
    started_ns INTEGER NOT NULL,
    samples    INTEGER,
    document   TEXT, -- Leg as JSON, its samples left out; NULL until it is finished
    sum        BLOB,
    PRIMARY KEY (run, leg)
) STRICT;
CREATE TABLE experiments (
    id              TEXT    NOT NULL PRIMARY KEY,
    started_unix_ns INTEGER NOT NULL,
    host            TEXT    NOT NULL,
    title           TEXT,
    workload        TEXT    NOT NULL,
    ended           TEXT    NOT NULL,
    trials          INTEGER,
    document        TEXT    NOT NULL, -- Experiment as JSON, its trials left out
    sum             BLOB
) STRICT;
CREATE TABLE trials (
    experiment TEXT    NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    document   TEXT    NOT NULL, -- Trial as JSON
    sum        BLOB,
    PRIMARY KEY (experiment, number)
) STRICT;
CREATE TABLE tunings (
    id              TEXT    NOT NULL PRIMARY KEY,
    started_unix_ns INTEGER NOT NULL,
    host            TEXT    NOT NULL,
    ended           TEXT    NOT NULL,
    document        TEXT    NOT NULL, -- Tuning as JSON
    sum             BLOB
) STRICT;
CREATE TABLE mtus (
    id              TEXT    NOT NULL PRIMARY KEY,
    started_unix_ns INTEGER NOT NULL,
    document        TEXT    NOT NULL, -- MtuRecord as JSON
    sum             BLOB
) STRICT;
";

/// What form 8 had not.
const WATCHES: &str = "
CREATE TABLE watches (
    id              TEXT    NOT NULL PRIMARY KEY,
    started_unix_ns INTEGER NOT NULL,
    host            TEXT    NOT NULL,
    document        TEXT    NOT NULL, -- WatchRecord as JSON
    sum             BLOB
) STRICT;
";

/// What form 9 had otherwise.
const HISTORIES: &str = "
CREATE INDEX runs_by_path ON runs (local_key, remote_key, workload, alike, started_unix_ns);
CREATE TABLE histories (
    local_key  TEXT    NOT NULL,
    remote_key TEXT    NOT NULL,
    workload   TEXT    NOT NULL,
    alike      TEXT    NOT NULL,
    changes    INTEGER NOT NULL, -- of its runs
    history    TEXT, -- NULL once its runs have changed
    latest     TEXT,
    sum        BLOB,
    PRIMARY KEY (local_key, remote_key, workload, alike)
) STRICT;
CREATE TABLE orders (
    ordered_by TEXT    NOT NULL, -- id of a key
    number     INTEGER NOT NULL, -- from 1, of those of this key
    run        TEXT    NOT NULL,
    digest     TEXT    NOT NULL, -- SHA-256 of its document
    sum        BLOB,
    PRIMARY KEY (ordered_by, number)
) STRICT, WITHOUT ROWID;
";

/// What form 6 had otherwise.
const SAMPLES: &str = "
CREATE TABLE samples (
    run      TEXT    NOT NULL,
    leg      INTEGER NOT NULL,
    side     TEXT    NOT NULL,
    overview INTEGER NOT NULL, -- 0: all samples; 1: beside them, what Leg has of a long leg
    n        INTEGER NOT NULL, -- of the first sample in the block
    count    INTEGER NOT NULL,
    until_ns INTEGER NOT NULL, -- of the last sample in the block
    block    BLOB    NOT NULL, -- src/blocks.rs
    sum      BLOB,
    PRIMARY KEY (run, leg, side, overview, n),
    FOREIGN KEY (run, leg) REFERENCES legs (run, leg) ON DELETE CASCADE
) STRICT;
";

/// The first step from form 6. A row that is damaged stays so.
const FROM_6: &str = "
ALTER TABLE samples RENAME TO samples_6;
ALTER TABLE runs ADD COLUMN alike TEXT NOT NULL DEFAULT '';
UPDATE runs SET alike = json_extract(document, '$.spec.limit', '$.spec.streams')
WHERE sum IS row_sum(id, started_unix_ns, host, title, workload, ended, goodput_up_bit_s, goodput_down_bit_s,
                     p50_up_ns, p50_down_ns, experiment, legs, document);
UPDATE runs SET sum = row_sum(id, started_unix_ns, host, title, workload, ended, goodput_up_bit_s,
                              goodput_down_bit_s, p50_up_ns, p50_down_ns, experiment, legs, document, alike)
WHERE alike <> '';
";

/// The same from form 7.
const FROM_7: &str = "
ALTER TABLE runs ADD COLUMN local TEXT NOT NULL DEFAULT '';
UPDATE runs SET
    local = coalesce(json_extract(document, '$.local.hostname'), ''),
    sum = row_sum(id, started_unix_ns, host, title, workload, ended, goodput_up_bit_s, goodput_down_bit_s, p50_up_ns, p50_down_ns,
                  experiment, legs, document, alike, coalesce(json_extract(document, '$.local.hostname'), ''))
WHERE sum IS row_sum(id, started_unix_ns, host, title, workload, ended, goodput_up_bit_s, goodput_down_bit_s,
                     p50_up_ns, p50_down_ns, experiment, legs, document, alike);
";

/// The same from form 9. Its runs have no ids of keys.
const FROM_9: &str = "
DROP INDEX IF EXISTS runs_by_path;
DROP TABLE IF EXISTS histories;
ALTER TABLE runs ADD COLUMN local_key TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN remote_key TEXT NOT NULL DEFAULT '';
UPDATE runs SET
    local_key = local, remote_key = host,
    sum = row_sum(id, started_unix_ns, host, title, workload, ended, goodput_up_bit_s, goodput_down_bit_s, p50_up_ns, p50_down_ns,
                  experiment, legs, document, alike, local, local, host)
WHERE sum IS row_sum(id, started_unix_ns, host, title, workload, ended, goodput_up_bit_s, goodput_down_bit_s,
                     p50_up_ns, p50_down_ns, experiment, legs, document, alike, local);
";

/// Readies a connection: gives an empty file its tables, refuses what is not ours or newer, sets what holds for this
/// connection alone.
pub(crate) fn prepare(db: &mut Connection, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::sql(path, "read the form", source);
    db.busy_timeout(PATIENCE).map_err(failed)?;
    db.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL;")
        .map_err(failed)?;
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    db.create_scalar_function("row_sum", -1, flags, row_sum)
        .map_err(failed)?;
    match form(db, path)? {
        0 => create(db, path),
        VERSION => Ok(()),
        _ => migrate(db, path),
    }
}

/// The checksum of a row: XXH3-128 over the type, the length and the bytes of each column. It finds damage; against
/// who can write the file it holds nothing.
fn row_sum(columns: &Context<'_>) -> rusqlite::Result<[u8; 16]> {
    let mut row = Vec::with_capacity(1024);
    for column in 0..columns.len() {
        let number;
        let (kind, bytes): (u8, &[u8]) = match columns.get_raw(column) {
            ValueRef::Null => (0, &[]),
            ValueRef::Integer(value) => {
                number = value.to_le_bytes();
                (1, &number)
            }
            ValueRef::Real(value) => {
                number = value.to_le_bytes();
                (2, &number)
            }
            ValueRef::Text(bytes) => (3, bytes),
            ValueRef::Blob(bytes) => (4, bytes),
        };
        row.push(kind);
        row.extend((bytes.len() as u64).to_le_bytes());
        row.extend_from_slice(bytes);
    }
    // In one go: many small parts take longer.
    Ok(twox_hash::XxHash3_128::oneshot(&row).to_le_bytes())
}

/// The version of the tables of a file, 0 if it has none yet; an error if it has any but ours.
fn form(db: &Connection, path: &Path) -> Result<u32, Error> {
    let pragma = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let read = || -> rusqlite::Result<(i32, i32, i64)> {
        let tables = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((pragma("user_version")?, pragma("application_id")?, tables))
    };
    let (version, application, tables) =
        read().map_err(|source| Error::sql(path, "read the form", source))?;
    match u32::try_from(version) {
        Ok(0) if tables == 0 => Ok(0),
        Ok(known @ OLDEST..=VERSION) if application == APPLICATION_ID => Ok(known),
        Ok(newer) if newer > VERSION && application == APPLICATION_ID => {
            Err(Error::Newer(path.to_owned(), newer, VERSION))
        }
        _ => Err(Error::NotAnArchive(path.to_owned())),
    }
}

fn create(db: &mut Connection, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::sql(path, "make the tables", source);
    write_ahead(db).map_err(failed)?;
    let tx = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Another process may have done it while this one waited for the lock.
    if form(&tx, path)? == 0 {
        tx.execute_batch(TABLES)
            .and_then(|()| tx.execute_batch(SAMPLES))
            .and_then(|()| tx.execute_batch(HISTORIES))
            .and_then(|()| tx.execute_batch(WATCHES))
            .and_then(|()| tx.execute_batch(&mesh_legs()))
            .map_err(failed)?;
        tx.pragma_update(None, "user_version", VERSION)
            .map_err(failed)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)
            .map_err(failed)?;
    }
    tx.commit().map_err(failed)
}

/// Brings an older file to the form of today, all of it or nothing.
fn migrate(db: &mut Connection, path: &Path) -> Result<(), Error> {
    let doing = "bring it to the form of this version";
    let failed = |source| Error::sql(path, doing, source);
    if db.is_readonly(rusqlite::MAIN_DB).map_err(failed)? {
        return Err(Error::ReadOnly(path.to_owned(), doing));
    }
    let tx = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Another process may have done it while this one waited for the lock.
    let known = form(&tx, path)?;
    if known == 6 {
        tx.execute_batch(FROM_6)
            .and_then(|()| tx.execute_batch(SAMPLES))
            .and_then(|()| samples::migrate(&tx))
            .and_then(|()| tx.execute_batch("DROP TABLE samples_6"))
            .map_err(failed)?;
    }
    if known < 8 {
        tx.execute_batch(FROM_7).map_err(failed)?;
    }
    if known < 9 {
        tx.execute_batch(WATCHES).map_err(failed)?;
    }
    if known < 10 {
        tx.execute_batch(FROM_9)
            .and_then(|()| tx.execute_batch(HISTORIES))
            .and_then(|()| histories::all_changed(&tx))
            .map_err(failed)?;
    }
    if known < VERSION {
        let legs = match known {
            12 => from_12(),
            11 => [FROM_11, &mesh_legs(), OF_11].concat(),
            _ => mesh_legs(),
        };
        tx.execute_batch(&legs).map_err(failed)?;
        tx.pragma_update(None, "user_version", VERSION)
            .map_err(failed)?;
    }
    tx.commit().map_err(failed)?;
    // What is free now goes back to the file system where there is room and nobody else reads it; else to later runs.
    let _ = db.execute_batch("VACUUM");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_made_once_and_newer_files_are_refused() {
        let file = format!("linerate-schema-{}.db", std::process::id());
        let path = std::env::temp_dir().join(file);
        let open = || {
            let mut db = Connection::open(&path).unwrap();
            prepare(&mut db, &path).map(|()| db)
        };
        open().unwrap();
        let db = open().unwrap();
        db.query_row("SELECT count(*) FROM mtus", [], |_| Ok(()))
            .unwrap();
        // As an older version left it.
        db.execute_batch(
            "DROP TABLE mesh_legs; DROP TABLE watches; DROP TABLE orders; DROP INDEX runs_by_path;
             ALTER TABLE runs DROP COLUMN local_key; ALTER TABLE runs DROP COLUMN remote_key;",
        )
        .unwrap();
        db.pragma_update(None, "user_version", 8).unwrap();
        drop(db);
        let db = open().unwrap();
        db.query_row("SELECT count(*) FROM mesh_legs", [], |_| Ok(()))
            .unwrap();
        // The form before had three columns less; rows that are damaged do not get a new checksum.
        db.execute_batch(
            "DROP INDEX mesh_legs_booked; DROP INDEX mesh_legs_unsent;
             ALTER TABLE mesh_legs DROP COLUMN unsent;
             INSERT INTO mesh_legs (run, leg, mesh, test, src, dst, starts, span_ms, outcome, busy)
             VALUES ('1', 0, 'm', 't', 'a', 'b', 1, 0, 'good', 0), ('2', 0, 'm', 't', 'a', 'b', 2, 0, 'good', 0);
             ALTER TABLE mesh_legs DROP COLUMN rtt_p95_ns; ALTER TABLE mesh_legs DROP COLUMN packets;
             ALTER TABLE mesh_legs DROP COLUMN busy; CREATE INDEX mesh_legs_by_start ON mesh_legs (starts);
             UPDATE mesh_legs SET sum = row_sum(run, leg, mesh, test, src, dst, starts, span_ms, bytes, goodput_bit_s,
                 retrans_ppm, rtt_idle_ns, rtt_p50_ns, loss_ppm, mtu, limited_by, outcome, why, level_since);
             UPDATE mesh_legs SET span_ms = 9 WHERE run = '2';",
        )
        .unwrap();
        db.pragma_update(None, "user_version", 11).unwrap();
        drop(db);
        let archive = crate::Archive::open(&path).unwrap();
        let legs = archive
            .mesh_cell(["m", "t", "a", "b"], model::Nanos(u64::MAX), 9)
            .unwrap();
        let legs: Vec<_> = legs
            .iter()
            .map(|leg| (leg.run.as_str(), leg.busy))
            .collect();
        assert_eq!(legs, [("1", false)]);
        drop(archive);
        let db = open().unwrap();
        db.execute_batch("DROP INDEX mesh_legs_unsent; ALTER TABLE mesh_legs DROP COLUMN unsent;")
            .unwrap();
        db.pragma_update(None, "user_version", 12).unwrap();
        drop(db);
        let archive = crate::Archive::open(&path).unwrap();
        assert_eq!(
            archive
                .mesh_cell(["m", "t", "a", "b"], model::Nanos(u64::MAX), 9)
                .unwrap()
                .len(),
            1
        );
        assert_eq!(archive.unsent_mesh_legs("m", 9).unwrap(), []);
        drop(archive);
        let db = open().unwrap();
        db.pragma_update(None, "user_version", VERSION + 2).unwrap();
        drop(db);
        assert_eq!(
            open().unwrap_err().to_string(),
            format!(
                "the archive of runs {} was written by a newer linerate (form {}, known up to {VERSION}): \
                 use that version, or another file with --archive",
                path.display(),
                VERSION + 2
            )
        );
        for end in ["", "-wal", "-shm"] {
            let mut file = path.clone().into_os_string();
            file.push(end);
            let _ = std::fs::remove_file(file);
        }
    }
}
