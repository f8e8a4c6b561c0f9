//! What was found of paths' MTUs, in and out.

use crate::archive::{Archive, Filter};
use crate::rows::{column, document, json};
use crate::{Error, is_id};
use model::mtu::MtuRecord;
use rusqlite::params;

impl Archive {
    /// Keeps what was found of a path's MTU.
    ///
    /// # Errors
    /// [`Error::BadId`] if its name is none, and failures to write.
    pub fn keep_mtu(&mut self, record: &MtuRecord) -> Result<(), Error> {
        let id = &record.id;
        if !is_id(id) {
            return Err(Error::BadId { id: id.clone() });
        }
        self.write_through(|tx| {
            tx.execute(
                "INSERT INTO mtus (id, started_unix_ns, document) VALUES (?1, ?2, ?3)",
                params![id, column(record.ended.0), json(record)],
            )?;
            Ok(())
        })
        .map_err(|failure| failure.told(self.path(), "keep what was found of an MTU", id))
    }

    /// What was found of a path's MTU, by its name, digits that no other begins with, or `last`.
    ///
    /// # Errors
    /// [`Error::NoMtu`], [`Error::Ambiguous`], failures to read, and [`Error::Document`] if it cannot be
    /// understood.
    pub fn mtu(&self, name: &str) -> Result<MtuRecord, Error> {
        let id = self.search("mtus", name)?.ok_or_else(|| Error::NoMtu {
            path: self.path().to_owned(),
            name: name.to_owned(),
        })?;
        document(self.db(), "mtus", &id)
            .map_err(|failure| failure.told(self.path(), "read what was found of an MTU", &id))
    }

    /// All that passes, the latest first.
    ///
    /// # Errors
    /// Failures to read; a document that cannot be understood.
    pub fn mtus(&self, filter: &Filter) -> Result<Vec<MtuRecord>, Error> {
        let host = "coalesce(document ->> '$.found.look.host', document ->> '$.found.change.host')";
        let wanted = filter.sql(host, "''", "''");
        let ids = self.names("mtus", wanted, filter.limit, "list what was found of MTUs")?;
        ids.iter().map(|id| self.mtu(id)).collect()
    }

    /// Deletes what was found of a path's MTU for good. Takes full names only.
    ///
    /// # Errors
    /// [`Error::NotFound`], and failures to write.
    pub fn delete_mtu(&mut self, id: &str) -> Result<(), Error> {
        self.forget("mtus", id)
            .map_err(|failure| failure.told(self.path(), "delete what was found of an MTU", id))
    }
}
