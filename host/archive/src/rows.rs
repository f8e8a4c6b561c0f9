//! How runs become rows, and rows runs: their documents, and the columns that serve lists.

use crate::samples::End;
use crate::{Error, is_id};
use model::{Direction, EndRecord, Ended, Latency, Leg, Nanos, Run, Side, Spec, summarise_leg};
use rusqlite::{Connection, Row, Transaction, params};
use serde::de::DeserializeOwned;
use std::path::Path;

/// Why a transaction did not go through.
pub(crate) enum RowFailure {
    Sql(rusqlite::Error),
    Document(serde_json::Error),
    /// The checksum of this part of a record does not match.
    Damaged(RowKind, String),
    /// The run is not there.
    Gone,
    /// The name is in use.
    Taken,
    /// The name is none.
    BadId,
}

impl From<rusqlite::Error> for RowFailure {
    fn from(source: rusqlite::Error) -> RowFailure {
        match source.sqlite_error().map(|e| e.extended_code) {
            // What the row belongs to was deleted, by this process or another.
            Some(rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => RowFailure::Gone,
            _ => RowFailure::Sql(source),
        }
    }
}

impl RowFailure {
    pub(crate) fn into_error(self, path: &Path, doing: &'static str, id: &str) -> Error {
        let (path, id) = (path.to_owned(), id.to_owned());
        match self {
            RowFailure::Sql(source) => Error::sql(&path, doing, source),
            RowFailure::Document(source) => Error::Document(path, id, source),
            RowFailure::Damaged(kind, part) => kind.damaged(&path, &id, part),
            RowFailure::Gone => RUNS.has_no(&path, &id),
            RowFailure::Taken => Error::Taken(id),
            RowFailure::BadId => Error::BadId(id),
        }
    }
}

/// A kind of what is kept, each with a table of its own.
#[derive(Clone, Copy)]
pub(crate) struct RowKind {
    pub(crate) table: &'static str,
    /// Its columns but `sum`.
    columns: &'static str,
    what: &'static str,
    remedy: &'static str,
}

impl RowKind {
    /// Whether the checksum of a row matches, in SQL.
    pub(crate) fn whole(self) -> String {
        whole(self.columns)
    }

    pub(crate) fn damaged(self, path: &Path, id: &str, part: String) -> Error {
        Error::DamagedPart {
            path: path.to_owned(),
            what: self.what,
            id: id.to_owned(),
            part,
        }
    }

    /// Writes the checksum of a row, the last thing to be done to it in a transaction.
    pub(crate) fn seal(self, tx: &Transaction<'_>, id: &str) -> Result<(), RowFailure> {
        let (table, columns) = (self.table, self.columns);
        let sql = format!("UPDATE {table} SET sum = row_sum({columns}) WHERE id = ?1");
        tx.prepare_cached(&sql)?.execute([id])?;
        Ok(())
    }

    pub(crate) fn has_no(self, path: &Path, name: &str) -> Error {
        Error::NotFound {
            path: path.to_owned(),
            what: self.what,
            name: name.to_owned(),
            remedy: self.remedy,
        }
    }
}

pub(crate) const RUNS: RowKind = RowKind {
    table: "runs",
    columns:
        "id, started_unix_ns, host, title, workload, ended, goodput_up_bit_s, goodput_down_bit_s,
              p50_up_ns, p50_down_ns, experiment, legs, document, alike, local, local_key, remote_key",
    what: "run",
    remedy: "see linerate runs list",
};
pub(crate) const EXPERIMENTS: RowKind = RowKind {
    table: "experiments",
    columns: "id, started_unix_ns, host, title, workload, ended, trials, document",
    what: "experiment",
    remedy: "see linerate runs list",
};
pub(crate) const TUNINGS: RowKind = RowKind {
    table: "tunings",
    columns: "id, started_unix_ns, host, ended, document",
    what: "tuning",
    remedy: "'linerate tune HOST' makes one",
};
pub(crate) const MTUS: RowKind = RowKind {
    table: "mtus",
    columns: "id, started_unix_ns, document",
    what: "record of an MTU",
    remedy: "see linerate runs list",
};

pub(crate) const WATCHES: RowKind = RowKind {
    table: "watches",
    columns: "id, started_unix_ns, host, document",
    what: "record of a watch",
    remedy: "see linerate runs list",
};

/// The number in a column; what is negative reads as 0.
pub(crate) fn unsigned(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(|n| n.max(0) as u64))
}

/// Whether the checksum of a row of these columns matches, in SQL.
pub(crate) fn whole(columns: &str) -> String {
    format!("sum IS row_sum({columns})")
}

/// The row of a run, without its legs.
pub(crate) struct RowHead<'a> {
    run: &'a Run,
    document: String,
    figures: Figures,
}

impl RowHead<'_> {
    pub(crate) fn of(run: &Run) -> RowHead<'_> {
        let mut figures = Figures::default();
        for leg in &run.legs {
            figures.add(&run.spec, leg);
        }
        RowHead {
            run,
            document: json(&without_legs(run)),
            figures,
        }
    }

    /// Whether it went in; not if the name is taken.
    pub(crate) fn insert(&self, tx: &Transaction<'_>) -> Result<bool, RowFailure> {
        let run = self.run;
        named(&run.id)?;
        let inserted = tx.execute(
            "INSERT INTO runs (id, started_unix_ns, host, workload, ended, alike, local, local_key, remote_key, document,
                               experiment)
             SELECT ?1, 0, '', '', '', '', '', '', '', '', ?2
             WHERE NOT EXISTS (SELECT 1 FROM experiments WHERE id = ?1) ON CONFLICT DO NOTHING",
            params![run.id, run.experiment],
        )?;
        if inserted == 1 {
            self.update(tx)?;
        }
        Ok(inserted == 1)
    }

    pub(crate) fn update(&self, tx: &Transaction<'_>) -> Result<(), RowFailure> {
        let run = self.run;
        let updated = tx.execute(
            "UPDATE runs SET started_unix_ns = ?2, host = ?3, title = ?4, workload = ?5, ended = ?6,
                             document = ?7, alike = ?8, local = ?9, local_key = ?10, remote_key = ?11
             WHERE id = ?1",
            params![
                run.id,
                column(run.started.0),
                run.host,
                run.title,
                run.spec.workload.kind().name,
                run.ended.name(),
                self.document,
                json(&(run.spec.limit, run.spec.streams)),
                run.local.hostname,
                run.local_key(),
                run.remote_key()
            ],
        )?;
        match updated {
            0 => Err(RowFailure::Gone),
            _ => self.figures.update(tx, &run.id),
        }
    }
}

/// Columns of a list of runs that come from the legs.
#[derive(Default)]
pub(crate) struct Figures {
    goodput: [Option<i64>; 2],
    p50: [Option<i64>; 2],
}

impl Figures {
    pub(crate) fn add(&mut self, spec: &Spec, leg: &Leg) {
        let summary = summarise_leg(spec, leg);
        let way = leg.direction as usize;
        if summary.duration > Nanos(0) {
            self.goodput[way] = Some(column(summary.goodput.0));
        }
        self.p50[way] = summary.requests.map(|latency| column(latency.p50.0));
    }

    /// What is not known yet leaves what is kept.
    pub(crate) fn update(&self, tx: &Transaction<'_>, id: &str) -> Result<(), RowFailure> {
        tx.prepare_cached(
            "UPDATE runs SET goodput_up_bit_s = coalesce(?2, goodput_up_bit_s),
                             goodput_down_bit_s = coalesce(?3, goodput_down_bit_s),
                             p50_up_ns = coalesce(?4, p50_up_ns),
                             p50_down_ns = coalesce(?5, p50_down_ns) WHERE id = ?1",
        )?
        .execute(params![
            id,
            self.goodput[0],
            self.goodput[1],
            self.p50[0],
            self.p50[1]
        ])?;
        RUNS.seal(tx, id)
    }
}

pub(crate) fn put_legs(tx: &Transaction<'_>, run: &Run) -> Result<(), RowFailure> {
    for (index, leg) in run.legs.iter().enumerate() {
        put_whole_leg(tx, &run.id, index, leg)?;
    }
    tx.execute(
        "DELETE FROM legs WHERE run = ?1 AND leg >= ?2",
        params![run.id, run.legs.len()],
    )?;
    tx.execute(
        "UPDATE runs SET legs = ?2 WHERE id = ?1",
        params![run.id, run.legs.len()],
    )?;
    RUNS.seal(tx, &run.id)
}

/// All samples of a run that lasted so long that its legs will have a part of them.
pub(crate) fn put_samples(tx: &Transaction<'_>, run: &Run) -> Result<(), RowFailure> {
    for (index, leg) in run.legs.iter().enumerate() {
        put_leg(tx, &run.id, index, leg.direction, leg.started, None)?;
        for side in [Side::Local, Side::Remote] {
            End::new(&run.id, index, side).replace(tx, leg.end(side))?;
        }
    }
    Ok(())
}

pub(crate) fn put_whole_leg(
    tx: &Transaction<'_>,
    id: &str,
    index: usize,
    leg: &Leg,
) -> Result<(), RowFailure> {
    let bare = with_ends(leg, without_samples);
    // Its samples belong to its row.
    put_leg(tx, id, index, leg.direction, leg.started, None)?;
    let mut samples = 0;
    for side in [Side::Local, Side::Remote] {
        samples += End::new(id, index, side).settle(tx, leg.end(side))?;
    }
    let whole = Some((samples, json(&bare)));
    put_leg(tx, id, index, leg.direction, leg.started, whole)
}

pub(crate) fn put_leg(
    tx: &Transaction<'_>,
    id: &str,
    index: usize,
    direction: Direction,
    started: Nanos,
    finished: Option<(usize, String)>,
) -> Result<(), RowFailure> {
    let (samples, document) = finished.unzip();
    tx.prepare_cached(
        "INSERT INTO legs (run, leg, direction, started_ns, samples, document, sum)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, row_sum(?1, ?2, ?3, ?4, ?5, ?6))
         ON CONFLICT DO UPDATE SET direction = excluded.direction, started_ns = excluded.started_ns,
                 samples = excluded.samples, document = excluded.document, sum = excluded.sum",
    )?
    .execute(params![
        id,
        index,
        direction.name(),
        column(started.0),
        samples,
        document
    ])?;
    Ok(())
}

/// Refuses what is not the form of a name.
pub(crate) fn named(id: &str) -> Result<(), RowFailure> {
    is_id(id).then_some(()).ok_or(RowFailure::BadId)
}

/// A document, by its full name.
pub(crate) fn document<T: DeserializeOwned>(
    db: &Connection,
    kind: RowKind,
    id: &str,
) -> Result<T, RowFailure> {
    let table = kind.table;
    let sql = format!(
        "SELECT {}, document FROM {table} WHERE id = ?1",
        kind.whole()
    );
    let mut query = db.prepare_cached(&sql)?;
    let mut rows = query.query([id])?;
    read_document(rows.next()?.ok_or(RowFailure::Gone)?, || {
        (kind, "its document".to_owned())
    })
}

/// The document of a row whose first column is the result of its checksum; else the part that is damaged.
pub(crate) fn read_document<T: DeserializeOwned>(
    row: &Row<'_>,
    part: impl FnOnce() -> (RowKind, String),
) -> Result<T, RowFailure> {
    if !row.get::<_, bool>(0)? {
        let (kind, part) = part();
        return Err(RowFailure::Damaged(kind, part));
    }
    let document = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
    serde_json::from_slice(document.as_bytes()).map_err(RowFailure::Document)
}

/// Whether there are as many of a thing as there were when it was finished.
pub(crate) fn check_count(
    kind: RowKind,
    what: &str,
    found: usize,
    kept: Option<usize>,
) -> Result<(), RowFailure> {
    match kept {
        Some(kept) if kept != found => {
            let part = format!("it has {found} of {kept} {what}");
            Err(RowFailure::Damaged(kind, part))
        }
        _ => Ok(()),
    }
}

pub(crate) fn read_run(tx: &Transaction<'_>, id: &str) -> Result<Run, RowFailure> {
    let mut run: Run = document(tx, RUNS, id)?;
    let kept = "SELECT legs FROM runs WHERE id = ?1";
    let kept: Option<usize> = tx.prepare_cached(kept)?.query_row([id], |row| row.get(0))?;
    let sql = format!(
        "SELECT {}, document, leg, direction, started_ns, samples FROM legs WHERE run = ?1 ORDER BY leg",
        whole("run, leg, direction, started_ns, samples, document")
    );
    let mut legs = tx.prepare_cached(&sql)?;
    let mut rows = legs.query([id])?;
    while let Some(row) = rows.next()? {
        let index: usize = row.get(2)?;
        let number = index + 1;
        if !row.get::<_, bool>(0)? || index != run.legs.len() {
            return Err(RowFailure::Damaged(RUNS, format!("leg {number}")));
        }
        let of = |side| End::new(id, index, side).record(tx, run.spec.streams);
        let ((local, of_local), (remote, of_remote)) = (of(Side::Local)?, of(Side::Remote)?);
        let samples = format!("samples of leg {number}");
        check_count(RUNS, &samples, of_local + of_remote, row.get(5)?)?;
        run.legs.push(match row.get::<_, Option<String>>(1)? {
            Some(document) => {
                let mut leg: Leg =
                    serde_json::from_slice(document.as_bytes()).map_err(RowFailure::Document)?;
                for (end, kept) in [(&mut leg.local, local), (&mut leg.remote, remote)] {
                    end.thinned_from = end.thinned_from.or(kept.thinned_from);
                    end.samples = kept.samples;
                }
                leg
            }
            None => Leg {
                direction: row.get::<_, String>(3)?.parse().unwrap_or(Direction::Up),
                started: Nanos(row.get::<_, i64>(4)?.max(0) as u64),
                local: as_seen(local),
                remote: as_seen(remote),
                ended: Ended::Unfinished,
            },
        });
    }
    check_count(RUNS, "legs", run.legs.len(), kept)?;
    Ok(run)
}

/// The end of a leg that never ended, reconstructed from its samples.
fn as_seen(end: EndRecord) -> EndRecord {
    let last = end.samples.last();
    let requests: Vec<&Latency> = end
        .samples
        .iter()
        .filter_map(|s| s.requests.as_ref())
        .collect();
    EndRecord {
        bytes: last.map(|s| s.bytes).unwrap_or_default(),
        duration: last.map(|s| s.at).unwrap_or_default(),
        requests: (!requests.is_empty()).then(|| {
            let pairs = requests.iter().flat_map(|latency| latency.counts());
            Latency::from_counts(pairs.copied())
        }),
        ..end
    }
}

/// A run read, if it lasted so long that it has a part of its samples alone.
pub(crate) fn bounded(run: &Run) -> Option<Run> {
    let thin = |end: &EndRecord| {
        let mut thinned = without_samples(end);
        // What is a part of another archive's is left alone.
        match end.thinned_from {
            Some(_) => thinned.samples.clone_from(&end.samples),
            None => {
                let all = end.samples.iter().cloned();
                all.for_each(|sample| thinned.push(sample, run.spec.streams));
            }
        }
        thinned
    };
    let legs: Vec<Leg> = run.legs.iter().map(|leg| with_ends(leg, thin)).collect();
    let counts = |leg: &Leg| [&leg.local, &leg.remote].map(|end| end.samples.len());
    let is_thinner = legs.iter().map(counts).ne(run.legs.iter().map(counts));
    is_thinner.then(|| Run {
        legs,
        ..without_legs(run)
    })
}

/// The leg with what `of` makes of each end.
fn with_ends(leg: &Leg, of: impl Fn(&EndRecord) -> EndRecord) -> Leg {
    Leg {
        direction: leg.direction,
        started: leg.started,
        local: of(&leg.local),
        remote: of(&leg.remote),
        ended: leg.ended.clone(),
    }
}

fn without_legs(run: &Run) -> Run {
    Run {
        legs: Vec::new(),
        schema: run.schema,
        id: run.id.clone(),
        started: run.started,
        host: run.host.clone(),
        title: run.title.clone(),
        experiment: run.experiment.clone(),
        spec: run.spec.clone(),
        local_id: run.local_id,
        remote_id: run.remote_id,
        local: run.local.clone(),
        remote: run.remote.clone(),
        warnings: run.warnings.clone(),
        ended: run.ended.clone(),
    }
}

fn without_samples(end: &EndRecord) -> EndRecord {
    EndRecord {
        samples: Vec::new(),
        thinned_from: end.thinned_from,
        sockets: end.sockets.clone(),
        bytes: end.bytes,
        duration: end.duration,
        acknowledged: end.acknowledged,
        requests: end.requests.clone(),
        operations: end.operations.clone(),
        retransmits: end.retransmits,
        datagrams: end.datagrams,
        arrivals: end.arrivals.clone(),
        copy: end.copy.clone(),
        store: end.store.clone(),
        line: end.line.clone(),
        trace: end.trace,
        warnings: end.warnings.clone(),
        signed: end.signed.clone(),
    }
}

pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("the nouns have string keys and cannot fail to be written")
}

/// SQLite's integers end at 2^63 - 1. Columns only serve lists; the documents are exact.
pub(crate) fn column(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
