//! Experiments, tunings, what was found of MTUs and what watches keep, in and out. Their runs are kept beside all others; those of an
//! experiment name it.

use crate::Error;
use crate::archive::{ALONE, Archive, Imported, RunFilter};
use crate::histories::changed;
use crate::rows::{
    EXPERIMENTS, MTUS, RUNS, RowFailure, RowKind, TUNINGS, WATCHES, check_count, column, document,
    json, named, read_document, whole,
};
use model::mtu::MtuRecord;
use model::{Experiment, Trial, Tuning, WatchRecord};
use rusqlite::{OptionalExtension, Transaction, params};

/// What a name in the archive stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedDocument {
    /// A run, by its full name.
    Run(String),
    /// An experiment, by its full name.
    Experiment(String),
    /// A tuning, by its full name.
    Tuning(String),
    /// What was found of a path's MTU, by its full name.
    Mtu(String),
    /// A day of a watch or a trace that it started, by its full name.
    Watch(String),
}

type OfKind = (RowKind, fn(String) -> NamedDocument);
pub(crate) const KINDS: [OfKind; 5] = [
    (RUNS, NamedDocument::Run),
    (EXPERIMENTS, NamedDocument::Experiment),
    (TUNINGS, NamedDocument::Tuning),
    (MTUS, NamedDocument::Mtu),
    (WATCHES, NamedDocument::Watch),
];

impl NamedDocument {
    /// The full name.
    pub fn id(&self) -> &str {
        match self {
            NamedDocument::Run(id)
            | NamedDocument::Experiment(id)
            | NamedDocument::Tuning(id)
            | NamedDocument::Mtu(id)
            | NamedDocument::Watch(id) => id,
        }
    }
}

impl Archive {
    /// Begins an experiment: keeps all of it, on the disk.
    ///
    /// # Errors
    /// [`Error::Taken`] if the name is in use, [`Error::BadId`] if it is none, and failures to write.
    pub fn begin_experiment(&mut self, experiment: &Experiment) -> Result<(), Error> {
        match self.import_experiment(experiment)? {
            Imported::New => Ok(()),
            Imported::Known => Err(Error::Taken(experiment.id.clone())),
        }
    }

    /// Stores another trial of an experiment, and rewrites the rest of its record: hosts,
    /// warnings, how it ended. All of it or nothing is on the disk when this returns.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the experiment was deleted meanwhile, and failures to write.
    pub fn store_trial(&mut self, experiment: &Experiment, trial: &Trial) -> Result<(), Error> {
        let head = head(experiment);
        self.write_through("keep a trial", &experiment.id, |tx| {
            put_trial(tx, &experiment.id, trial)?;
            update(tx, experiment, &head)
        })
    }

    /// Rewrites the record of an experiment without its trials.
    pub fn update_experiment(&mut self, experiment: &Experiment) -> Result<(), Error> {
        let head = head(experiment);
        let doing = "keep what is known of an experiment";
        self.write_through(doing, &experiment.id, |tx| update(tx, experiment, &head))
    }

    /// Keeps a whole experiment that was made elsewhere; its runs are imported by themselves.
    ///
    /// # Errors
    /// As [`Archive::begin_experiment`]; then nothing of it is kept.
    pub fn import_experiment(&mut self, experiment: &Experiment) -> Result<Imported, Error> {
        let head = head(experiment);
        let (id, plan) = (&experiment.id, &experiment.plan);
        self.write_through("keep an experiment", id, |tx| {
            named(id)?;
            let taken = "SELECT count(*) FROM runs WHERE id = ?1";
            if tx.query_row(taken, [id], |row| row.get::<_, i64>(0))? > 0 {
                return Err(RowFailure::Taken);
            }
            let inserted = tx.execute(
                "INSERT INTO experiments (id, started_unix_ns, host, title, workload, ended, document)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
                params![
                    id,
                    column(experiment.started.0),
                    plan.host,
                    plan.title,
                    plan.run.workload.kind().name,
                    experiment.ended.name(),
                    head
                ],
            )?;
            if inserted == 1 {
                for trial in &experiment.trials {
                    put_trial(tx, id, trial)?;
                }
                update(tx, experiment, &head)?;
                // Its runs were imported before it.
                changed(tx, "experiment = ?1", id)?;
                return Ok(Imported::New);
            }
            match read(tx, id)? {
                kept if kept == *experiment => Ok(Imported::Known),
                _ => Err(RowFailure::Taken),
            }
        })
    }

    /// Stores the current state of a tuning on the disk: new, or in place of its earlier record. Its runs and
    /// experiments are kept beside all others.
    ///
    /// # Errors
    /// [`Error::BadId`] if its name is none, and failures to write.
    pub fn store_tuning(&mut self, tuning: &Tuning) -> Result<(), Error> {
        let id = &tuning.id;
        self.write_through("keep a tuning", id, |tx| {
            named(id)?;
            tx.execute(
                "INSERT INTO tunings (id, started_unix_ns, host, ended, document)
                 VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET ended = excluded.ended, document = excluded.document",
                params![
                    id,
                    column(tuning.started.0),
                    tuning.host,
                    tuning.ended.name(),
                    json(tuning)
                ],
            )?;
            TUNINGS.seal(tx, id)
        })
    }

    /// Keeps what was found of a path's MTU.
    ///
    /// # Errors
    /// [`Error::BadId`] if its name is none, and failures to write.
    pub fn store_mtu(&mut self, record: &MtuRecord) -> Result<(), Error> {
        let id = &record.id;
        self.write_through("keep what was found of an MTU", id, |tx| {
            named(id)?;
            tx.execute(
                "INSERT INTO mtus (id, started_unix_ns, document) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO NOTHING",
                params![id, column(record.ended.0), json(record)],
            )?;
            MTUS.seal(tx, id)
        })
    }

    /// Stores a day of a watch, or a trace that it started: new, or in place of its earlier record.
    ///
    /// # Errors
    /// [`Error::BadId`] if its name is none, and failures to write.
    pub fn store_watch(&mut self, record: &WatchRecord) -> Result<(), Error> {
        let id = record.id();
        self.write_through("keep what was watched", id, |tx| {
            named(id)?;
            tx.execute(
                "INSERT INTO watches (id, started_unix_ns, host, document) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET document = excluded.document",
                params![id, column(record.started().0), record.host(), json(record)],
            )?;
            WATCHES.seal(tx, id)
        })
    }

    /// A whole experiment, by its name, digits that no other begins with, or `last`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Ambiguous`], failures to read, and [`Error::Document`] if the
    /// experiment cannot be understood.
    pub fn experiment(&self, name: &str) -> Result<Experiment, Error> {
        let id = self.find_experiment(name)?;
        self.read(&id, |tx| read(tx, &id))
    }

    /// The full name of an experiment.
    pub fn find_experiment(&self, name: &str) -> Result<String, Error> {
        self.full_name(EXPERIMENTS, name)
    }

    /// A tuning, as [`Archive::experiment`].
    pub fn tuning(&self, name: &str) -> Result<Tuning, Error> {
        let id = self.full_name(TUNINGS, name)?;
        self.read(&id, |tx| document(tx, TUNINGS, &id))
    }

    /// What was found of a path's MTU, as [`Archive::experiment`].
    pub fn mtu(&self, name: &str) -> Result<MtuRecord, Error> {
        let id = self.full_name(MTUS, name)?;
        self.read(&id, |tx| document(tx, MTUS, &id))
    }

    /// A day of a watch or a trace that it started, as [`Archive::experiment`].
    pub fn watch(&self, name: &str) -> Result<WatchRecord, Error> {
        let id = self.full_name(WATCHES, name)?;
        self.read(&id, |tx| document(tx, WATCHES, &id))
    }

    fn full_name(&self, kind: RowKind, name: &str) -> Result<String, Error> {
        let found = self.search(kind, name)?;
        found.ok_or_else(|| kind.has_no(self.path(), name))
    }

    /// The experiments that pass, whole, the newest first.
    pub fn experiments(&self, filter: &RunFilter) -> Result<Vec<Experiment>, Error> {
        let (condition, values) = filter.sql(["host", "''", "''", "title", "workload"]);
        let ids = self.ids(EXPERIMENTS, &condition, values, filter.limit)?;
        ids.iter().map(|id| self.experiment(id)).collect()
    }

    /// The tunings that pass, the newest first.
    pub fn tunings(&self, filter: &RunFilter) -> Result<Vec<Tuning>, Error> {
        let (condition, values) = filter.sql(["host", "''", "''", "''", "''"]);
        let ids = self.ids(TUNINGS, &condition, values, filter.limit)?;
        ids.iter().map(|id| self.tuning(id)).collect()
    }

    /// What was found of paths' MTUs and passes, the newest first.
    pub fn mtus(&self, filter: &RunFilter) -> Result<Vec<MtuRecord>, Error> {
        let host = "coalesce(document ->> '$.found.look.host', document ->> '$.found.change.host')";
        let (condition, values) = filter.sql([host, "''", "''", "''", "''"]);
        let ids = self.ids(MTUS, &condition, values, filter.limit)?;
        ids.iter().map(|id| self.mtu(id)).collect()
    }

    /// What watches keep and passes, the newest first.
    pub fn watches(&self, filter: &RunFilter) -> Result<Vec<WatchRecord>, Error> {
        let (condition, values) = filter.sql(["host", "''", "''", "''", "''"]);
        let ids = self.ids(WATCHES, &condition, values, filter.limit)?;
        ids.iter().map(|id| self.watch(id)).collect()
    }

    /// What a name stands for: `last` is what started last, runs of an experiment left aside.
    pub fn named(&self, name: &str) -> Result<NamedDocument, Error> {
        if name == "last" {
            let sql = format!(
                "SELECT id, 0 AS kind, started_unix_ns AS started FROM runs WHERE {ALONE}
                 UNION ALL SELECT id, 1, started_unix_ns FROM experiments
                 UNION ALL SELECT id, 2, started_unix_ns FROM tunings
                 UNION ALL SELECT id, 3, started_unix_ns FROM mtus
                 UNION ALL SELECT id, 4, started_unix_ns FROM watches
                 ORDER BY started DESC, id LIMIT 1"
            );
            let newest = self
                .db()
                .query_row(&sql, [], |row| {
                    Ok(KINDS[row.get::<_, usize>(1)?].1(row.get(0)?))
                })
                .optional()
                .map_err(|source| Error::sql(self.path(), "look for what is kept", source))?;
            return newest.ok_or_else(|| Error::Empty(self.path().to_owned()));
        }
        let mut found = Vec::new();
        for (kind, named) in KINDS {
            found.extend(self.search(kind, name)?.map(named));
        }
        match found.len() {
            0 => self.find(name).map(NamedDocument::Run),
            1 => Ok(found.remove(0)),
            _ => {
                let ids: Vec<String> = found.iter().map(|one| one.id().to_owned()).collect();
                match found.into_iter().find(|one| one.id() == name) {
                    Some(whole) => Ok(whole),
                    None => Err(self.ambiguous(name, &ids)),
                }
            }
        }
    }
}

/// The document of an experiment, its trials left out.
fn head(experiment: &Experiment) -> String {
    json(&Experiment {
        trials: Vec::new(),
        ..experiment.clone()
    })
}

fn update(tx: &Transaction<'_>, experiment: &Experiment, head: &str) -> Result<(), RowFailure> {
    let updated = tx.execute(
        "UPDATE experiments SET ended = ?2, document = ?3,
                                trials = (SELECT count(*) FROM trials WHERE experiment = ?1)
         WHERE id = ?1",
        params![experiment.id, experiment.ended.name(), head],
    )?;
    match updated {
        0 => Err(RowFailure::Gone),
        _ => EXPERIMENTS.seal(tx, &experiment.id),
    }
}

fn put_trial(tx: &Transaction<'_>, id: &str, trial: &Trial) -> Result<(), RowFailure> {
    tx.prepare_cached(
        "INSERT INTO trials (experiment, number, document, sum)
         VALUES (?1, ?2, ?3, row_sum(?1, ?2, ?3))
         ON CONFLICT DO UPDATE SET document = excluded.document, sum = excluded.sum",
    )?
    .execute(params![id, trial.number, json(trial)])?;
    Ok(())
}

fn read(tx: &Transaction<'_>, id: &str) -> Result<Experiment, RowFailure> {
    let mut experiment: Experiment = document(tx, EXPERIMENTS, id)?;
    let kept = tx
        .prepare_cached("SELECT trials FROM experiments WHERE id = ?1")?
        .query_row([id], |row| row.get(0))?;
    let sql = format!(
        "SELECT {}, document FROM trials WHERE experiment = ?1 ORDER BY number",
        whole("experiment, number, document")
    );
    let mut query = tx.prepare_cached(&sql)?;
    let mut rows = query.query([id])?;
    while let Some(row) = rows.next()? {
        let part = || {
            let number = experiment.trials.len() + 1;
            (EXPERIMENTS, format!("trial {number}"))
        };
        let trial = read_document(row, part)?;
        experiment.trials.push(trial);
    }
    check_count(EXPERIMENTS, "trials", experiment.trials.len(), kept)?;
    Ok(experiment)
}
