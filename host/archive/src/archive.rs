//! Runs in, runs out.

use crate::documents::KINDS;
use crate::histories::{PathRow, changed};
use crate::location::{SHORTEST, is_hex};
use crate::rows::{
    EXPERIMENTS, Figures, MTUS, RUNS, RowFailure, RowHead, RowKind, TUNINGS, WATCHES, bounded,
    column, document, put_leg, put_legs, put_samples, put_whole_leg, read_run, unsigned,
};
use crate::samples::End;
use crate::schema;
use crate::{Error, NamedDocument, Traces};
use model::{BitRate, Bytes, Direction, Leg, Nanos, Run, RunId, Sample, Side};
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior,
    params_from_iter,
};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An open archive. Several processes may have the same file open and write: each waits up to 5 s
/// for the others.
#[derive(Debug)]
pub struct Archive {
    db: Connection,
    path: PathBuf,
}

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Part of the host's name, upper and lower case alike (ASCII).
    pub host: Option<String>,
    /// Part of the name of the host that measured, likewise, or the beginning of its key's id; only runs have one.
    pub local: Option<String>,
    /// Part of the host's name, of the title or of the name in the archive, likewise.
    pub text: Option<String>,
    /// Started at this time or later, since 1970-01-01 UTC.
    pub since: Option<Nanos>,
    /// Started before this time.
    pub until: Option<Nanos>,
    /// Kind of the workload, [`Workload::kind`](model::Workload::kind); only runs and experiments have one.
    pub workload: Option<String>,
    /// Of runs: only those of this experiment (full name). Without, runs of an experiment that is in
    /// the archive are left out.
    pub experiment: Option<String>,
    /// Only runs of this path, and none of an experiment.
    pub path: Option<PathRow>,
    /// At most this many, the newest.
    pub limit: Option<u32>,
}

/// A run in a list, read without opening any document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchiveRow {
    /// Name.
    pub id: RunId,
    /// Start, since 1970-01-01 UTC.
    pub started: Nanos,
    /// The remote host as the user named it.
    pub host: String,
    /// Name of the host that measured; empty of what is no run.
    pub local: String,
    /// Id of its key, or else its name.
    pub local_key: String,
    /// Id of the key of the remote host, or else [`ArchiveRow::host`].
    pub remote_key: String,
    /// The user's note.
    pub title: Option<String>,
    /// Kind of the workload.
    pub workload: String,
    /// `unfinished`, `complete`, `interrupted` or `failed`.
    pub ended: String,
    /// Goodput from here to the host, where that was measured.
    pub goodput_up: Option<BitRate>,
    /// Goodput from the host to here, where that was measured.
    pub goodput_down: Option<BitRate>,
    /// Median latency of requests made here.
    pub p50_up: Option<Nanos>,
    /// Median latency of requests made by the host.
    pub p50_down: Option<Nanos>,
}

/// Runs that are not those of an experiment that is kept.
pub(crate) const ALONE: &str =
    "(experiment IS NULL OR experiment NOT IN (SELECT id FROM experiments))";

/// What became of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// It is kept now.
    New,
    /// The very same run was kept already.
    Known,
}

impl RunFilter {
    /// The condition on a table and its values, given what it has of both hosts, a title and a workload.
    pub(crate) fn sql(
        &self,
        [host, local, local_key, title, workload]: [&str; 5],
    ) -> (String, Vec<Value>) {
        let from = format!(
            "(SELECT instr(lower({local}), t) > 0 OR length(t) >= {SHORTEST} AND instr({local_key}, t) = 1
              FROM (SELECT lower(?) AS t))"
        );
        let contains = |of: &str| format!("instr(lower({of}), lower(?)) > 0");
        let all = format!("{host} || ' ' || coalesce({title}, '') || ' ' || id");
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let time = |time: Option<Nanos>| time.map(|at| Value::from(column(at.0)));
        let asked = [
            (contains(host), text(&self.host)),
            (from, text(&self.local)),
            (contains(&all), text(&self.text)),
            ("started_unix_ns >= ?".to_owned(), time(self.since)),
            ("started_unix_ns < ?".to_owned(), time(self.until)),
            (format!("{workload} = ?"), text(&self.workload)),
        ];
        let mut wanted = vec!["1".to_owned()];
        let mut values = Vec::new();
        for (condition, value) in asked {
            wanted.extend(value.is_some().then_some(condition));
            values.extend(value);
        }
        (wanted.join(" AND "), values)
    }
}

impl Archive {
    /// Opens the archive to write in it; makes the file and its directories (mode 0700) where they
    /// are missing, and brings an older file to the form of today.
    ///
    /// # Errors
    /// A file that cannot be made, opened or written, that is not an archive, or a newer one.
    pub fn open(path: &Path) -> Result<Archive, Error> {
        if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            sys::file::make_private(directory)
                .map_err(|source| Error::Directory(directory.to_owned(), source))?;
        }
        let archive = Archive::open_with(path, OpenFlags::SQLITE_OPEN_CREATE)?;
        match archive.db.is_readonly(rusqlite::MAIN_DB) {
            // SQLite falls back to reading without a word.
            Ok(true) => Err(Error::ReadOnly(path.to_owned(), "keep a run")),
            _ => Ok(archive),
        }
    }

    /// Opens an archive to look at it or delete from it; makes nothing. Where SQLite cannot keep its
    /// files beside the archive (a full disk, a directory of someone else), it can still be read.
    ///
    /// # Errors
    /// [`Error::Missing`] if there is none, and those of [`Archive::open`].
    pub fn open_existing(path: &Path) -> Result<Archive, Error> {
        match std::fs::metadata(path) {
            Err(reason) if reason.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::Missing(path.to_owned()))
            }
            _ => match Archive::open_with(path, OpenFlags::empty()) {
                Err(reason @ (Error::Open(..) | Error::Full(..) | Error::ReadOnly(..))) => {
                    Archive::open_still(path).map_err(|_| reason)
                }
                opened => opened,
            },
        }
    }

    /// The same, and nothing can be written by this opening, whoever asks.
    pub fn open_to_read(path: &Path) -> Result<Archive, Error> {
        let archive = Archive::open_existing(path)?;
        archive
            .db
            .pragma_update(None, "query_only", true)
            .map_err(|source| Error::sql(path, "open it to read", source))?;
        Ok(archive)
    }

    fn open_with(path: &Path, more: OpenFlags) -> Result<Archive, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
        Archive::ready(path, Connection::open_with_flags(path, flags))
    }

    /// Opens a file that nobody else has open, as if nobody could write it: then SQLite needs no file
    /// beside it. The log beside it, which the last process to close the archive removes, shows whether one has.
    fn open_still(path: &Path) -> Result<Archive, Error> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
            return Err(Error::Busy(path.to_owned(), "read it"));
        }
        // A path in a URI: all but the plainest bytes escaped (https://sqlite.org/uri.html).
        let mut uri = "file:".to_owned();
        for &byte in path.as_os_str().as_bytes() {
            match byte {
                b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                    uri.push(char::from(byte));
                }
                _ => uri.push_str(&format!("%{byte:02x}")),
            }
        }
        uri.push_str("?immutable=1");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Archive::ready(path, Connection::open_with_flags(uri, flags))
    }

    fn ready(path: &Path, opened: rusqlite::Result<Connection>) -> Result<Archive, Error> {
        // A statement keeps its plan: SQLite would make one for each value that is compared with a column.
        let opened = opened.and_then(|db| {
            db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            Ok(db)
        });
        let mut db = opened.map_err(|source| Error::sql(path, "open it", source))?;
        schema::prepare(&mut db, path)?;
        Ok(Archive {
            db,
            path: path.to_owned(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a run: keeps all of it but its legs.
    ///
    /// # Errors
    /// [`Error::Taken`] if the name is in use, [`Error::BadId`] if it is none, and failures to write.
    pub fn begin(&mut self, run: &Run) -> Result<(), Error> {
        let head = RowHead::of(run);
        self.write("begin a run", &run.id, |tx| match head.insert(tx)? {
            true => Ok(()),
            false => Err(RowFailure::Taken),
        })
    }

    /// Rewrites the record of a run without its legs: hosts, warnings, how it ended.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the run was deleted meanwhile, and failures to write.
    pub fn update(&mut self, run: &Run) -> Result<(), Error> {
        let head = RowHead::of(run);
        self.write("keep what is known of a run", &run.id, |tx| head.update(tx))
    }

    /// Begins a leg; its samples may come from now on. `started` counts from the start of the run.
    pub fn start_leg(
        &mut self,
        id: &str,
        index: usize,
        direction: Direction,
        started: Nanos,
    ) -> Result<(), Error> {
        let put = |tx: &Transaction<'_>| put_leg(tx, id, index, direction, started, None);
        self.write("begin a leg", id, put)
    }

    /// Keeps samples of legs that have begun, in one commit.
    ///
    /// # Errors
    /// As [`Archive::update`]; [`Error::Full`] on a full disk. Then none of them is kept; what was kept before
    /// stays.
    pub fn samples<'a>(
        &mut self,
        id: &str,
        samples: impl IntoIterator<Item = (usize, Side, &'a Sample)>,
    ) -> Result<(), Error> {
        self.write("keep a sample", id, |tx| {
            let mut ends: BTreeMap<(usize, Side), Vec<&Sample>> = BTreeMap::new();
            for (leg, side, sample) in samples {
                ends.entry((leg, side)).or_default().push(sample);
            }
            let run = id;
            let mut ends = ends.iter();
            ends.try_for_each(|((leg, side), samples)| {
                let (leg, side) = (*leg, *side);
                End::new(run, leg, side).append(tx, samples)
            })
        })
    }

    /// Ends a leg: from now on it reads exactly as given here, whatever samples came before.
    pub fn finish_leg(&mut self, id: &str, index: usize, leg: &Leg) -> Result<(), Error> {
        self.write("keep a leg", id, |tx| {
            let run: Run = document(tx, RUNS, id)?;
            put_whole_leg(tx, id, index, leg)?;
            let mut figures = Figures::default();
            figures.add(&run.spec, leg);
            figures.update(tx, id)
        })
    }

    /// Ends a run: from now on it reads exactly as given here. Survives a power cut once done.
    pub fn finish(&mut self, run: &Run) -> Result<(), Error> {
        let head = RowHead::of(run);
        self.write_through("keep the end of a run", &run.id, |tx| {
            head.update(tx)?;
            put_legs(tx, run)?;
            changed(tx, &format!("id = ?1 AND {ALONE}"), &run.id)
        })
    }

    /// Keeps a whole run that was made elsewhere. Survives a power cut once done.
    ///
    /// # Errors
    /// [`Error::Taken`] if another run has its name, [`Error::BadId`] if it has none, and failures to
    /// write; then nothing of it is kept.
    pub fn import(&mut self, run: &Run) -> Result<Imported, Error> {
        let bounded = bounded(run);
        let head = RowHead::of(bounded.as_ref().unwrap_or(run));
        self.write_through("import a run", &run.id, |tx| {
            if head.insert(tx)? {
                if bounded.is_some() {
                    put_samples(tx, run)?;
                }
                put_legs(tx, bounded.as_ref().unwrap_or(run))?;
                changed(tx, &format!("id = ?1 AND {ALONE}"), &run.id)?;
                return Ok(Imported::New);
            }
            match read_run(tx, &run.id)? {
                kept if kept == *bounded.as_ref().unwrap_or(run) => Ok(Imported::Known),
                _ => Err(RowFailure::Taken),
            }
        })
    }

    /// A lock beside the archive, held as long as the file is open; `None` if another process has it.
    ///
    /// # Errors
    /// If the file cannot be made or locked.
    pub fn lock(&self, name: &str) -> Result<Option<File>, Error> {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{name}.lock"));
        let path = PathBuf::from(path);
        let mut options = File::options();
        let options = options.create(true).truncate(false).write(true);
        let locked = options.open(&path).map(|file| (file.try_lock(), file));
        match locked {
            Ok((Ok(()), file)) => Ok(Some(file)),
            Ok((Err(TryLockError::WouldBlock), _)) => Ok(None),
            Ok((Err(TryLockError::Error(error)), _)) | Err(error) => Err(Error::Lock(path, error)),
        }
    }

    /// The full name of a run: by itself, by digits that no other begins with, or by `last`, the one
    /// that started last.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Ambiguous`], [`Error::Empty`], and failures to read.
    pub fn find(&self, name: &str) -> Result<RunId, Error> {
        match self.search(RUNS, name)? {
            None if name == "last" => Err(Error::Empty(self.path.clone())),
            found => found.ok_or_else(|| RUNS.has_no(&self.path, name)),
        }
    }

    /// The one of a kind whose name is or begins with `name`; the one that started last for `last`.
    ///
    /// # Errors
    /// [`Error::Ambiguous`], and failures to read.
    pub(crate) fn search(&self, kind: RowKind, name: &str) -> Result<Option<String>, Error> {
        let table = kind.table;
        if name == "last" {
            return Ok(self.ids(kind, "1", Vec::new(), Some(1))?.pop());
        }
        let prefix = name.to_ascii_lowercase();
        if !is_hex(&prefix) {
            return Ok(None);
        }
        // No digit sorts behind 'g'; the index of the names answers it.
        let sql = format!(
            "SELECT id FROM {table} WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id LIMIT ?2"
        );
        let limit = Error::CANDIDATES as i64;
        let mut found = self.column(&sql, vec![prefix.clone().into(), limit.into()])?;
        match found.len() {
            0 | 1 => Ok(found.pop()),
            // A whole name of eight digits may be the beginning of a longer one.
            _ if found[0] == prefix => Ok(Some(found.swap_remove(0))),
            _ => Err(self.ambiguous(name, &found)),
        }
    }

    pub(crate) fn ambiguous(&self, name: &str, found: &[String]) -> Error {
        let shown = found.iter().map(|id| self.shown(id)).collect();
        Error::Ambiguous(name.to_owned(), shown)
    }

    /// A shown name: its first digits, [`SHORTEST`](crate::SHORTEST) at the least and as many as no other
    /// name in the archive begins with. What the archive cannot answer is shown whole.
    pub fn shown(&self, id: &str) -> RunId {
        let digits = self.unique_digits(id).unwrap_or(id.len());
        id.get(..digits).unwrap_or(id).to_owned()
    }

    fn unique_digits(&self, id: &str) -> rusqlite::Result<usize> {
        let mut digits = SHORTEST;
        // The names that share the most digits are those beside it in their order.
        for (kind, _) in KINDS {
            for (side, order) in [("<", "DESC"), (">", "ASC")] {
                let table = kind.table;
                let sql = format!(
                    "SELECT id FROM {table} WHERE id {side} ?1 ORDER BY id {order} LIMIT 1"
                );
                let mut query = self.db.prepare_cached(&sql)?;
                let other = query.query_row([id], |row| row.get::<_, String>(0));
                if let Some(other) = other.optional()? {
                    let pairs = id.bytes().zip(other.bytes());
                    digits = digits.max(1 + pairs.take_while(|(a, b)| a == b).count());
                }
            }
        }
        Ok(digits)
    }

    /// A whole run, by whatever [`Archive::find`] takes. A leg that never ended reads as what its
    /// samples show.
    ///
    /// # Errors
    /// As [`Archive::find`]; [`Error::Document`] if the run cannot be understood.
    pub fn get(&self, name: &str) -> Result<Run, Error> {
        let id = self.find(name)?;
        self.read(&id, |tx| read_run(tx, &id))
    }

    /// Reads the samples of one end of a leg of a run, by its full name, all that are kept, in bounded memory: of a long
    /// leg [`Archive::get`] has a part. How many there are.
    pub fn each_sample(
        &self,
        id: &str,
        leg: usize,
        side: Side,
        each: &mut dyn FnMut(&Sample),
    ) -> Result<u64, Error> {
        let end = End::new(id, leg, side);
        self.read(id, |tx| end.read_all(tx, &mut |sample| each(&sample)))
    }

    /// How many samples [`Archive::each_sample`] reads.
    pub fn count_samples(&self, id: &str, leg: usize, side: Side) -> Result<u64, Error> {
        self.read(id, |tx| End::new(id, leg, side).count_all(tx))
    }

    /// The runs that ended and were started before then, those of experiments too, the oldest first: name and start.
    pub fn ended_before(&self, until: Nanos) -> Result<Vec<(RunId, Nanos)>, Error> {
        let sql = "SELECT id, started_unix_ns FROM runs WHERE started_unix_ns < ?1 AND ended <> ?2 ORDER BY started_unix_ns, id";
        let of = (column(until.0), model::Ended::Unfinished.name());
        self.read("", |tx| {
            let mut query = tx.prepare_cached(sql)?;
            let rows = query.query_map(of, |row| {
                let started: i64 = row.get(1)?;
                Ok((row.get(0)?, Nanos(started.unsigned_abs())))
            });
            Ok(rows?.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// The runs that pass, the newest first.
    pub fn list(&self, filter: &RunFilter) -> Result<Vec<ArchiveRow>, Error> {
        let (wanted, mut values) = filter.sql(["host", "local", "local_key", "title", "workload"]);
        let part = match (&filter.experiment, &filter.path) {
            (Some(id), _) => {
                values.push(id.clone().into());
                "experiment = ?".to_owned()
            }
            (None, None) => ALONE.to_owned(),
            (None, Some(path)) => {
                values.extend(path.key().map(|text| text.clone().into()));
                format!(
                    "local_key = ? AND remote_key = ? AND workload = ? AND alike = ? AND {ALONE}"
                )
            }
        };
        values.push(filter.limit.map_or(-1, i64::from).into());
        let sql = format!(
            "SELECT id, started_unix_ns, host, title, workload, ended, goodput_up_bit_s,
                    goodput_down_bit_s, p50_up_ns, p50_down_ns, local, local_key, remote_key, {}
             FROM runs WHERE {wanted} AND {part} ORDER BY started_unix_ns DESC, id LIMIT ?",
            RUNS.whole()
        );
        let rows = self.rows("list the runs", &sql, params_from_iter(values), |row| {
            if !row.get::<_, bool>(13)? {
                return Ok(Err(row.get(0)?));
            }
            let number = |at| unsigned(row, at);
            Ok(Ok(ArchiveRow {
                id: row.get(0)?,
                started: Nanos(number(1)?.unwrap_or_default()),
                host: row.get(2)?,
                title: row.get(3)?,
                workload: row.get(4)?,
                ended: row.get(5)?,
                goodput_up: number(6)?.map(BitRate),
                goodput_down: number(7)?.map(BitRate),
                p50_up: number(8)?.map(Nanos),
                p50_down: number(9)?.map(Nanos),
                local: row.get(10)?,
                local_key: row.get(11)?,
                remote_key: row.get(12)?,
            }))
        })?;
        let damaged = |id: String| RUNS.damaged(&self.path, &id, "its document".to_owned());
        let rows = rows.into_iter().map(|row| row.map_err(damaged));
        rows.collect()
    }

    /// The names of those of a kind that meet a condition with these values, the newest first.
    pub(crate) fn ids(
        &self,
        kind: RowKind,
        condition: &str,
        mut values: Vec<Value>,
        limit: Option<u32>,
    ) -> Result<Vec<String>, Error> {
        values.push(limit.map_or(-1, i64::from).into());
        let table = kind.table;
        let sql = format!(
            "SELECT id FROM {table} WHERE {condition} ORDER BY started_unix_ns DESC, id LIMIT ?"
        );
        self.column(&sql, values)
    }

    fn column(&self, sql: &str, values: Vec<Value>) -> Result<Vec<String>, Error> {
        let doing = "look for what is kept";
        self.rows(doing, sql, params_from_iter(values), |row| row.get(0))
    }

    /// All rows of a query; `doing` is for the sentence if it fails.
    pub(crate) fn rows<T>(
        &self,
        doing: &'static str,
        sql: &str,
        of: impl rusqlite::Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let read = || -> rusqlite::Result<Vec<T>> {
            let mut query = self.db.prepare_cached(sql)?;
            query.query_map(of, row)?.collect()
        };
        read().map_err(|source| Error::sql(&self.path, doing, source))
    }

    /// The traces of its runs.
    pub fn traces(&self) -> Traces {
        Traces::beside(&self.path)
    }

    /// Deletes what has this full name for good, see [`Archive::named`]: runs with their traces, experiments with
    /// their runs. The runs and experiments of a tuning stay.
    ///
    /// # Errors
    /// [`Error::NotFound`], and failures to write.
    pub fn delete(&mut self, named: &NamedDocument) -> Result<(), Error> {
        let id = named.id();
        let table = match named {
            NamedDocument::Run(_) => RUNS,
            NamedDocument::Experiment(_) => EXPERIMENTS,
            NamedDocument::Tuning(_) => TUNINGS,
            NamedDocument::Mtu(_) => MTUS,
            NamedDocument::Watch(_) => WATCHES,
        }
        .table;
        let sql = format!("DELETE FROM {table} WHERE id = ?1");
        let runs = self.write_through("delete what is kept", id, |tx| {
            changed(tx, "?1 IN (id, experiment)", id)?;
            if tx.execute(&sql, [id])? == 0 {
                return Err(RowFailure::Gone);
            }
            let mut delete = tx.prepare("DELETE FROM runs WHERE experiment = ?1 RETURNING id")?;
            let runs = match named {
                NamedDocument::Experiment(_) => delete.query_map([id], |row| row.get(0))?.collect(),
                _ => Ok(vec![id.to_owned()]),
            };
            Ok(runs?)
        })?;
        let runs: Vec<String> = runs;
        runs.iter().try_for_each(|run| self.traces().delete(run))
    }

    /// What is damaged of these, or of all that is kept and of the file itself where none is named; a sentence each.
    /// `read` gets each run that is whole.
    pub fn verify(&self, named: &[NamedDocument], read: &mut dyn FnMut(&Run)) -> Vec<Error> {
        let mut found = Vec::new();
        let mut all = named.to_vec();
        if named.is_empty() {
            found.extend(self.check_file().err());
            for (kind, named) in KINDS {
                match self.ids(kind, "1", Vec::new(), None) {
                    Ok(ids) => all.extend(ids.into_iter().map(named)),
                    Err(error) => found.push(error),
                }
            }
        }
        for one in &all {
            let found_whole = match one {
                NamedDocument::Run(id) => self.get(id).and_then(|run| {
                    self.read_left_out(&run)?;
                    read(&run);
                    self.traces().verify(id)
                }),
                NamedDocument::Experiment(id) => self.experiment(id).map(drop),
                NamedDocument::Tuning(id) => self.tuning(id).map(drop),
                NamedDocument::Mtu(id) => self.mtu(id).map(drop),
                NamedDocument::Watch(id) => self.watch(id).and_then(|_| self.traces().verify(id)),
            };
            found.extend(found_whole.err());
        }
        found
    }

    /// Reads the samples that a run does not have since it lasted long.
    fn read_left_out(&self, run: &Run) -> Result<(), Error> {
        for (index, leg) in run.legs.iter().enumerate() {
            for side in [Side::Local, Side::Remote] {
                if leg.end(side).thinned_from.is_some() {
                    self.each_sample(&run.id, index, side, &mut |_| {})?;
                }
            }
        }
        Ok(())
    }

    /// What SQLite finds wrong with its own structure.
    fn check_file(&self) -> Result<(), Error> {
        let check = "PRAGMA integrity_check(1)";
        let found = self.db.query_row(check, [], |row| row.get::<_, String>(0));
        match found.as_deref() {
            Ok("ok") => Ok(()),
            Ok(_) => Err(Error::Damaged(self.path.clone(), "trust its tables")),
            Err(_) => Err(Error::Damaged(self.path.clone(), "check its tables")),
        }
    }

    /// What the archive takes on the disk, with all of its traces.
    pub fn size(&self) -> Result<Bytes, Error> {
        let pages = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        let file: u64 = self
            .db
            .query_row(pages, [], |row| row.get(0))
            .map_err(|source| Error::sql(&self.path, "read its size", source))?;
        Ok(Bytes(file + self.traces().bytes(None)))
    }

    /// Bytes of the documents and samples of this and of its runs, and of their traces: its share of the whole.
    pub fn weight(&self, named: &NamedDocument) -> Result<u64, Error> {
        let id = named.id();
        let runs = "SELECT id FROM runs WHERE ?1 IN (id, experiment)";
        // What a row takes beside its document, with its part of an index.
        let sum_of = |what, table, of| {
            format!("(SELECT coalesce(sum(octet_length({what}) + 100), 0) FROM {table} WHERE {of})")
        };
        let sum = |table, of| sum_of("document", table, of);
        let sql = [
            sum("runs", "?1 IN (id, experiment)".to_owned()),
            sum("legs", format!("run IN ({runs})")),
            sum_of("block", "samples", format!("run IN ({runs})")),
            sum("experiments", "id = ?1".to_owned()),
            sum("trials", "experiment = ?1".to_owned()),
            sum("tunings", "id = ?1".to_owned()),
            sum("mtus", "id = ?1".to_owned()),
            sum("watches", "id = ?1".to_owned()),
        ];
        let sql = format!("SELECT {}", sql.join(" + "));
        let weigh = || -> rusqlite::Result<u64> {
            self.db
                .prepare_cached(&sql)?
                .query_row([id], |row| row.get(0))
        };
        let documents =
            weigh().map_err(|source| Error::sql(&self.path, "read its size", source))?;
        let runs = self.column(runs, vec![id.to_owned().into()])?;
        let owners = runs.iter().map(String::as_str);
        let owners = owners.chain(matches!(named, NamedDocument::Watch(_)).then_some(id));
        let traces = owners.map(|owner| self.traces().bytes(Some(owner)));
        Ok(documents + traces.sum::<u64>())
    }

    /// Gives the place of what was deleted back to the file system.
    pub fn compact(&mut self) -> Result<(), Error> {
        self.db
            .execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")
            .map_err(|source| Error::sql(&self.path, "give its free place back", source))
    }

    pub(crate) fn db(&self) -> &Connection {
        &self.db
    }

    /// One transaction sees one state, even while another process writes.
    pub(crate) fn read<T>(
        &self,
        id: &str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, RowFailure>,
    ) -> Result<T, Error> {
        let tx = self.db.unchecked_transaction().map_err(RowFailure::from);
        tx.and_then(|tx| work(&tx))
            .map_err(|failure| failure.into_error(&self.path, "read what is kept", id))
    }

    /// One transaction that takes the write lock at once, so that it never fails half-way for having
    /// read an older state. `doing` and the full name are for the sentence if it fails.
    pub(crate) fn write<T>(
        &mut self,
        doing: &'static str,
        id: &str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, RowFailure>,
    ) -> Result<T, Error> {
        let commit = |db: &mut Connection| -> Result<T, RowFailure> {
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&tx)?;
            tx.commit()?;
            Ok(done)
        };
        commit(&mut self.db).map_err(|failure| failure.into_error(&self.path, doing, id))
    }

    /// The same, and it is on the disk when this returns.
    pub(crate) fn write_through<T>(
        &mut self,
        doing: &'static str,
        id: &str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, RowFailure>,
    ) -> Result<T, Error> {
        let synchronous = |archive: &Archive, how| {
            let set = archive.db.pragma_update(None, "synchronous", how);
            set.map_err(|source| Error::sql(&archive.path, doing, source))
        };
        synchronous(self, "FULL")?;
        let done = self.write(doing, id, work);
        synchronous(self, "NORMAL")?;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Latency, Random};

    /// SQLite's own bound on the file gives the error of a full disk, on every machine.
    #[test]
    fn a_full_disk_undoes_the_sample_and_keeps_those_before() {
        let path = std::env::temp_dir().join(format!("linerate-full-{}.db", std::process::id()));
        let mut archive = Archive::open(&path).unwrap();
        let id = "00c0ffee";
        archive
            .db
            .execute_batch(
                "INSERT INTO runs (id, started_unix_ns, host, workload, ended, alike, local, local_key, remote_key, document)
                 VALUES ('00c0ffee', 0, 'db2', 'bulk', 'unfinished', '', '', '', '', '{}');
                 PRAGMA max_page_count = 60;",
            )
            .unwrap();
        archive.start_leg(id, 0, Direction::Up, Nanos(0)).unwrap();
        let mut kept = 0;
        let mut random = Random::new(7, 0);
        let error = loop {
            // Nothing makes these smaller.
            let latencies = (0..400).map(|_| (random.bits(), 1));
            let sample = Sample {
                requests: Some(Latency::from_counts(latencies)),
                ..Sample::default()
            };
            match archive.samples(id, [(0, Side::Local, &sample)]) {
                Ok(()) => kept += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Full { .. }), "{error:?}");
        let count: usize = archive
            .db
            .query_row("SELECT sum(count) FROM samples", [], |row| row.get(0))
            .unwrap();
        assert_eq!(count, kept);
        assert!(kept > 0);
        archive.delete(&NamedDocument::Run(id.to_owned())).unwrap();
        drop(archive);
        std::fs::remove_file(path).unwrap();
    }
}
