//! Experiments in, experiments out. Their runs are kept beside all others, and name the experiment.

use crate::archive::{Archive, Filter, Imported};
use crate::rows::{Failure, column, document, end_of, json};
use crate::{Error, is_id};
use model::{Experiment, Trial};
use rusqlite::{OptionalExtension, Transaction, params};

/// What a name in the archive stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A run, by its full name.
    Run(String),
    /// An experiment, by its full name.
    Experiment(String),
    /// A tuning, by its full name.
    Tuning(String),
    /// What was found of a path's MTU, by its full name.
    Mtu(String),
}

impl Named {
    /// The full name.
    pub fn id(&self) -> &str {
        match self {
            Named::Run(id) | Named::Experiment(id) | Named::Tuning(id) | Named::Mtu(id) => id,
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
            Imported::Known => Err(Error::Taken {
                id: experiment.id.clone(),
            }),
        }
    }

    /// Keeps one more trial of an experiment, and writes anew what else is known of it: hosts,
    /// warnings, how it ended. All of it or nothing is on the disk when this returns.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the experiment was deleted meanwhile, and failures to write.
    pub fn keep_trial(&mut self, experiment: &Experiment, trial: &Trial) -> Result<(), Error> {
        let head = head(experiment);
        self.write_through(|tx| {
            update(tx, experiment, &head)?;
            put_trial(tx, &experiment.id, trial)
        })
        .map_err(|failure| failure.told(self.path(), "keep a trial", &experiment.id))
    }

    /// Writes anew what is known of an experiment beside its trials.
    ///
    /// # Errors
    /// As [`Archive::keep_trial`].
    pub fn update_experiment(&mut self, experiment: &Experiment) -> Result<(), Error> {
        let head = head(experiment);
        let doing = "keep what is known of an experiment";
        self.write_through(|tx| update(tx, experiment, &head))
            .map_err(|failure| failure.told(self.path(), doing, &experiment.id))
    }

    /// Keeps a whole experiment that was made elsewhere; its runs are imported by themselves.
    ///
    /// # Errors
    /// As [`Archive::begin_experiment`]; then nothing of it is kept.
    pub fn import_experiment(&mut self, experiment: &Experiment) -> Result<Imported, Error> {
        let doing = "keep an experiment";
        if !is_id(&experiment.id) {
            return Err(Error::BadId {
                id: experiment.id.clone(),
            });
        }
        let head = head(experiment);
        self.write_through(|tx| {
            let (id, plan) = (&experiment.id, &experiment.plan);
            let taken = "SELECT count(*) FROM runs WHERE id = ?1";
            if tx.query_row(taken, [id], |row| row.get::<_, i64>(0))? > 0 {
                return Err(Failure::Taken);
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
                    end_of(&experiment.ended),
                    head
                ],
            )?;
            if inserted == 1 {
                for trial in &experiment.trials {
                    put_trial(tx, id, trial)?;
                }
                return Ok(Imported::New);
            }
            match read(tx, id)? {
                kept if kept == *experiment => Ok(Imported::Known),
                _ => Err(Failure::Taken),
            }
        })
        .map_err(|failure| failure.told(self.path(), doing, &experiment.id))
    }

    /// A whole experiment, by its name, digits that no other begins with, or `last`.
    ///
    /// # Errors
    /// [`Error::NoExperiment`], [`Error::Ambiguous`], failures to read, and [`Error::Document`] if the
    /// experiment cannot be understood.
    pub fn experiment(&self, name: &str) -> Result<Experiment, Error> {
        let doing = "read an experiment";
        let id = self.find_experiment(name)?;
        let read = || -> Result<Experiment, Failure> {
            let tx = self.db().unchecked_transaction()?;
            read(&tx, &id)
        };
        read().map_err(|failure| failure.told(self.path(), doing, &id))
    }

    /// The full name of an experiment.
    ///
    /// # Errors
    /// As [`Archive::experiment`].
    pub fn find_experiment(&self, name: &str) -> Result<String, Error> {
        self.search("experiments", name)?
            .ok_or_else(|| Error::NoExperiment {
                path: self.path().to_owned(),
                name: name.to_owned(),
            })
    }

    /// What a name stands for: `last` is what started last, runs of an experiment left aside.
    ///
    /// # Errors
    /// As [`Archive::find`].
    pub fn named(&self, name: &str) -> Result<Named, Error> {
        /// A table, and what its names stand for.
        type Kind = (&'static str, fn(String) -> Named);
        const KINDS: [Kind; 4] = [
            ("runs", Named::Run),
            ("experiments", Named::Experiment),
            ("tunings", Named::Tuning),
            ("mtus", Named::Mtu),
        ];
        if name == "last" {
            let newest = self
                .db()
                .query_row(
                    "SELECT id, 0 AS kind, started_unix_ns AS started FROM runs
                     WHERE experiment IS NULL OR experiment NOT IN (SELECT id FROM experiments)
                     UNION ALL SELECT id, 1, started_unix_ns FROM experiments
                     UNION ALL SELECT id, 2, started_unix_ns FROM tunings
                     UNION ALL SELECT id, 3, started_unix_ns FROM mtus
                     ORDER BY started DESC, id LIMIT 1",
                    [],
                    |row| Ok(KINDS[row.get::<_, usize>(1)?].1(row.get(0)?)),
                )
                .optional()
                .map_err(|source| Error::sql(self.path(), "look for a run", source))?;
            return newest.ok_or_else(|| Error::Empty {
                path: self.path().to_owned(),
            });
        }
        let mut found = Vec::new();
        for (table, kind) in KINDS {
            found.extend(self.search(table, name)?.map(|id| (id, kind)));
        }
        match found.len() {
            0 => self.find(name).map(Named::Run),
            1 => Ok(found.remove(0)).map(|(id, kind)| kind(id)),
            _ => Err(Error::Ambiguous {
                prefix: name.to_owned(),
                candidates: found.into_iter().map(|(id, _)| id).collect(),
            }),
        }
    }

    /// The experiments that pass, whole, the newest first.
    ///
    /// # Errors
    /// Failures to read; an experiment that cannot be understood.
    pub fn experiments(&self, filter: &Filter) -> Result<Vec<Experiment>, Error> {
        let wanted = filter.sql("host", "title", "workload");
        let ids = self.names("experiments", wanted, filter.limit, "list the experiments")?;
        ids.iter().map(|id| self.experiment(id)).collect()
    }

    /// Deletes an experiment for good, and its runs with it. Takes full names only.
    ///
    /// # Errors
    /// [`Error::NotFound`], and failures to write.
    pub fn delete_experiment(&mut self, id: &str) -> Result<(), Error> {
        let runs = self.write_through(|tx| {
            if tx.execute("DELETE FROM experiments WHERE id = ?1", [id])? == 0 {
                return Err(Failure::Gone);
            }
            let mut delete = tx.prepare("DELETE FROM runs WHERE experiment = ?1 RETURNING id")?;
            let runs = delete.query_map([id], |row| row.get(0))?;
            Ok(runs.collect::<rusqlite::Result<Vec<String>>>()?)
        });
        let runs = runs.map_err(|failure| failure.told(self.path(), "delete an experiment", id))?;
        runs.iter().try_for_each(|run| self.traces().delete(run))
    }
}

/// The document of an experiment, its trials left out.
fn head(experiment: &Experiment) -> String {
    json(&Experiment {
        trials: Vec::new(),
        ..experiment.clone()
    })
}

fn update(tx: &Transaction<'_>, experiment: &Experiment, head: &str) -> Result<(), Failure> {
    let updated = tx.execute(
        "UPDATE experiments SET ended = ?2, document = ?3 WHERE id = ?1",
        params![experiment.id, end_of(&experiment.ended), head],
    )?;
    match updated {
        0 => Err(Failure::Gone),
        _ => Ok(()),
    }
}

fn put_trial(tx: &Transaction<'_>, id: &str, trial: &Trial) -> Result<(), Failure> {
    tx.prepare_cached(
        "INSERT INTO trials (experiment, number, document) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET document = excluded.document",
    )?
    .execute(params![id, trial.number, json(trial)])?;
    Ok(())
}

fn read(tx: &Transaction<'_>, id: &str) -> Result<Experiment, Failure> {
    let mut experiment: Experiment = document(tx, "experiments", id)?;
    let mut query =
        tx.prepare_cached("SELECT document FROM trials WHERE experiment = ?1 ORDER BY number")?;
    let mut rows = query.query([id])?;
    while let Some(row) = rows.next()? {
        let document: String = row.get(0)?;
        let trial = serde_json::from_str(&document).map_err(Failure::Document)?;
        experiment.trials.push(trial);
    }
    Ok(experiment)
}
