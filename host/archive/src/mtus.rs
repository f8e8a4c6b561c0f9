//! What was found of paths' MTUs, in and out.

use crate::archive::Archive;
use crate::rows::{Failure, column, json};
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

    /// What was found of a path's MTU, by its name, digits that no other begins with, or `last`; with
    /// `None` all that there is, the latest first.
    ///
    /// # Errors
    /// [`Error::NoMtu`], [`Error::Ambiguous`], failures to read, and [`Error::Document`] if it cannot be
    /// understood.
    pub fn mtus(&self, name: Option<&str>) -> Result<Vec<MtuRecord>, Error> {
        let id = match name {
            None => "*".to_owned(),
            Some(name) => self.search("mtus", name)?.ok_or_else(|| Error::NoMtu {
                path: self.path().to_owned(),
                name: name.to_owned(),
            })?,
        };
        let read = || -> Result<Vec<MtuRecord>, Failure> {
            let mut query = self.db().prepare(
                "SELECT document FROM mtus WHERE id GLOB ?1 ORDER BY started_unix_ns DESC, id",
            )?;
            let documents = query.query_map([&id], |row| row.get::<_, String>(0))?;
            documents
                .map(|document| serde_json::from_str(&document?).map_err(Failure::Document))
                .collect()
        };
        read().map_err(|failure| failure.told(self.path(), "read what was found of an MTU", &id))
    }
}
