//! Tunings in, tunings out. Their runs and experiments are kept beside all others.

use crate::archive::{Archive, Filter};
use crate::rows::{column, document, end_of, json};
use crate::{Error, is_id};
use model::Tuning;
use rusqlite::params;

impl Archive {
    /// Keeps a tuning as it is now, on the disk: new, or instead of what was kept of it before.
    ///
    /// # Errors
    /// [`Error::BadId`] if its name is none, and failures to write.
    pub fn keep_tuning(&mut self, tuning: &Tuning) -> Result<(), Error> {
        let id = &tuning.id;
        if !is_id(id) {
            return Err(Error::BadId { id: id.clone() });
        }
        self.write_through(|tx| {
            tx.execute(
                "INSERT INTO tunings (id, started_unix_ns, host, ended, document)
                 VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET ended = excluded.ended, document = excluded.document",
                params![
                    id,
                    column(tuning.started.0),
                    tuning.host,
                    end_of(&tuning.ended),
                    json(tuning)
                ],
            )?;
            Ok(())
        })
        .map_err(|failure| failure.told(self.path(), "keep a tuning", id))
    }

    /// A tuning, by its name, digits that no other begins with, or `last`.
    ///
    /// # Errors
    /// [`Error::NoTuning`], [`Error::Ambiguous`], failures to read, and [`Error::Document`] if it cannot be
    /// understood.
    pub fn tuning(&self, name: &str) -> Result<Tuning, Error> {
        let id = self
            .search("tunings", name)?
            .ok_or_else(|| Error::NoTuning {
                path: self.path().to_owned(),
                name: name.to_owned(),
            })?;
        document(self.db(), "tunings", &id)
            .map_err(|failure| failure.told(self.path(), "read a tuning", &id))
    }

    /// The tunings that pass, the newest first.
    ///
    /// # Errors
    /// Failures to read; a tuning that cannot be understood.
    pub fn tunings(&self, filter: &Filter) -> Result<Vec<Tuning>, Error> {
        let wanted = filter.sql("host", "''", "''");
        let ids = self.names("tunings", wanted, filter.limit, "list the tunings")?;
        ids.iter().map(|id| self.tuning(id)).collect()
    }

    /// Deletes a tuning for good; its runs and experiments stay. Takes full names only.
    ///
    /// # Errors
    /// [`Error::NotFound`], and failures to write.
    pub fn delete_tuning(&mut self, id: &str) -> Result<(), Error> {
        self.forget("tunings", id)
            .map_err(|failure| failure.told(self.path(), "delete a tuning", id))
    }
}
