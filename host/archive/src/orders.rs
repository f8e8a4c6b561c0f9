//! Which runs of this host were ordered by another one.

use crate::rows::whole;
use crate::{Archive, Error};
use model::{NodeId, RunId};
use rusqlite::params;

/// A run that another host ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedRun {
    /// Counts the runs of this host that the other one ordered, from 1.
    pub number: u64,
    /// Its name.
    pub run: RunId,
    /// SHA-256 of its document, hexadecimal.
    pub digest: String,
}

const COLUMNS: &str = "ordered_by, number, run, digest";

impl Archive {
    /// Notes that the host of this key ordered a run; once. Survives a power cut once done.
    pub fn note_order(&mut self, by: NodeId, run: &str, digest: &str) -> Result<(), Error> {
        self.write_through("note who ordered a run", run, |tx| {
            let by = by.to_string();
            let next = "SELECT coalesce(max(number), 0) + 1 FROM orders WHERE ordered_by = ?1";
            let number: i64 = tx.query_row(next, [&by], |row| row.get(0))?;
            tx.execute(
                "INSERT INTO orders (ordered_by, number, run, digest, sum) SELECT ?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4)
                 WHERE NOT EXISTS (SELECT 1 FROM orders WHERE ordered_by = ?1 AND run = ?3)",
                params![by, number, run, digest],
            )?;
            Ok(())
        })
    }

    /// Whether the host of this key ordered this run.
    pub fn is_ordered(&self, by: NodeId, run: &str) -> Result<bool, Error> {
        let sql = "SELECT EXISTS (SELECT 1 FROM orders WHERE ordered_by = ?1 AND run = ?2)";
        let read = self
            .db()
            .query_row(sql, params![by.to_string(), run], |row| row.get(0));
        read.map_err(|source| Error::sql(self.path(), "read who ordered runs", source))
    }

    /// The runs that the host of this key ordered, those behind that number, so many at the most.
    pub fn orders(&self, by: NodeId, after: u64, most: usize) -> Result<Vec<OrderedRun>, Error> {
        let sql = format!(
            "SELECT number, run, digest FROM orders WHERE ordered_by = ?1 AND number > ?2 AND {}
             ORDER BY number LIMIT {most}",
            whole(COLUMNS)
        );
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let of = params![by.to_string(), after];
        self.rows("read who ordered runs", &sql, of, |row| {
            Ok(OrderedRun {
                number: row.get::<_, i64>(0)?.max(0) as u64,
                run: row.get(1)?,
                digest: row.get(2)?,
            })
        })
    }
}
