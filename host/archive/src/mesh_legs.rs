//! The legs of meshes: a row each, also for those that did not happen. What they measured is in their runs.

use crate::rows::{column, unsigned, whole};
use crate::{Archive, Error};
use calendar::{CellName, LEG_COLUMNS, OF_CELL, THIN_LEGS, leg, leg_table, leg_values, store_leg};
use model::{Bytes, MeshLeg, Nanos};
use rusqlite::{params, params_from_iter};
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread;

/// The table. Its rows are those of [`calendar::leg_table`], and wait for the PostgreSQL that coordinators share while
/// they are `unsent`, which is no part of their checksum.
pub(crate) fn mesh_legs() -> String {
    let own = "unsent INTEGER NOT NULL DEFAULT 0, sum BLOB,";
    let table = leg_table("INTEGER", own).replacen(");", ") STRICT;", 1);
    format!("{table}{BOOKED}{UNSENT}")
}

/// A day has far more light probes than others.
const BOOKED: &str =
    "CREATE INDEX mesh_legs_booked ON mesh_legs (mesh, starts) WHERE packets IS NULL;";

const UNSENT: &str = "CREATE INDEX mesh_legs_unsent ON mesh_legs (mesh) WHERE unsent = 1;";

/// Brings the table of version 12 to the form above.
pub(crate) fn from_12() -> String {
    format!("ALTER TABLE mesh_legs ADD COLUMN unsent INTEGER NOT NULL DEFAULT 0; {UNSENT}")
}

/// Brings the table of version 11 to the form above. Damaged rows go.
pub(crate) const FROM_11: &str = "
ALTER TABLE mesh_legs RENAME TO mesh_legs_11;
DROP INDEX mesh_legs_by_cell;
DROP INDEX mesh_legs_by_start;
";

/// Behind the making of the new table.
pub(crate) const OF_11: &str = "
INSERT INTO mesh_legs
SELECT run, leg, mesh, test, src, dst, starts, span_ms, bytes, goodput_bit_s, retrans_ppm, rtt_idle_ns,
       rtt_p50_ns, loss_ppm, mtu, limited_by, outcome, why, level_since, NULL, NULL, 0, 0,
       row_sum(run, leg, mesh, test, src, dst, starts, span_ms, bytes, goodput_bit_s, retrans_ppm, rtt_idle_ns,
               rtt_p50_ns, loss_ppm, mtu, limited_by, outcome, why, level_since, NULL, NULL, 0)
FROM mesh_legs_11
WHERE sum IS row_sum(run, leg, mesh, test, src, dst, starts, span_ms, bytes, goodput_bit_s, retrans_ppm, rtt_idle_ns,
                     rtt_p50_ns, loss_ppm, mtu, limited_by, outcome, why, level_since);
DROP TABLE mesh_legs_11;
";

/// Cells from which a second thread is worth its connection.
const MANY: usize = 2000;

const READ: &str = "read the legs of a mesh";

impl Archive {
    /// Keeps legs of a mesh, all or none; one that is kept already is replaced. `unsent` waits for
    /// [`Archive::mesh_legs_sent`]. Survives a power cut once done.
    pub fn store_mesh_legs(&mut self, legs: &[MeshLeg], unsent: bool) -> Result<(), Error> {
        let unsent = if unsent { "1" } else { "0" };
        let sql = store_leg(&[["unsent", unsent], ["sum", &sum_of_values()]]).replace('$', "?");
        self.write_through("keep legs of a mesh", "", |tx| {
            let mut insert = tx.prepare_cached(&sql)?;
            for leg in legs {
                insert.execute(params_from_iter(leg_values(leg)))?;
            }
            Ok(())
        })
    }

    /// Legs of a mesh that wait, the newest first, so many at the most.
    pub fn unsent_mesh_legs(&self, mesh: &str, most: u32) -> Result<Vec<MeshLeg>, Error> {
        let which = "unsent = 1 AND mesh = ?1";
        let sql = select(which, "ORDER BY rowid DESC LIMIT ?2");
        self.mesh_legs(&sql, params![mesh, most])
    }

    /// These wait no more, unless they have been replaced meanwhile.
    pub fn mesh_legs_sent(&mut self, legs: &[MeshLeg]) -> Result<(), Error> {
        let sql = format!(
            "UPDATE mesh_legs SET unsent = 0 WHERE run = $1 AND leg = $2 AND sum IS {}",
            sum_of_values()
        );
        self.write_through("keep legs of a mesh", "", |tx| {
            let mut update = tx.prepare_cached(&sql.replace('$', "?"))?;
            for leg in legs {
                update.execute(params_from_iter(leg_values(leg)))?;
            }
            Ok(())
        })
    }

    /// The newest legs of a cell that began by then, the newest first. Damaged rows are left out.
    pub fn mesh_cell(
        &self,
        cell: CellName<'_>,
        until: Nanos,
        limit: u32,
    ) -> Result<Vec<MeshLeg>, Error> {
        let [mesh, test, src, dst] = cell;
        let legs = self.mesh_cells([mesh, test], &[[src, dst]], until, limit)?;
        Ok(legs.concat())
    }

    /// Those of each of these cells of a test, source and destination. Of many, two threads read a half each.
    pub fn mesh_cells(
        &self,
        test: [&str; 2],
        cells: &[[&str; 2]],
        until: Nanos,
        limit: u32,
    ) -> Result<Vec<Vec<MeshLeg>>, Error> {
        if cells.len() < MANY {
            return self.read_cells(test, cells, until, limit);
        }
        let (half, other) = cells.split_at(cells.len() / 2);
        let second = Archive::open_to_read(self.path())?;
        thread::scope(|scope| {
            let other = scope.spawn(move || second.read_cells(test, other, until, limit));
            let mut legs = self.read_cells(test, half, until, limit)?;
            legs.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic))?);
            Ok(legs)
        })
    }

    fn read_cells(
        &self,
        [mesh, test]: [&str; 2],
        cells: &[[&str; 2]],
        until: Nanos,
        limit: u32,
    ) -> Result<Vec<Vec<MeshLeg>>, Error> {
        let until = column(until.0 / 1_000_000);
        self.read("", |tx| {
            let mut query = tx.prepare_cached(&CELL)?;
            let legs = cells.iter().map(|[src, dst]| {
                let of = params![mesh, test, src, dst, until, limit];
                // A grid has one of each cell, and a list makes room for four.
                let mut legs = Vec::with_capacity(1);
                for leg in query.query_map(of, |row| leg(row))? {
                    legs.push(leg?);
                }
                Ok(legs)
            });
            legs.collect()
        })
    }

    /// The first legs of runs of a mesh since then that have this reason.
    pub fn mesh_pending(&self, mesh: &str, why: &str, since: Nanos) -> Result<Vec<MeshLeg>, Error> {
        self.mesh_legs(
            &select(
                "starts >= ?3 AND mesh = ?1 AND packets IS NULL AND why = ?2 AND leg = 0",
                "",
            ),
            params![mesh, why, column(since.0 / 1_000_000)],
        )
    }

    /// The leg of a run, if that was one of a mesh.
    pub fn mesh_leg(&self, run: &str, leg: usize) -> Result<Option<MeshLeg>, Error> {
        Ok(self
            .mesh_legs(&select("run = ?1 AND leg = ?2", ""), params![run, leg])?
            .pop())
    }

    fn mesh_legs(&self, sql: &str, of: impl rusqlite::Params) -> Result<Vec<MeshLeg>, Error> {
        self.rows(READ, sql, of, |row| leg(row))
    }

    /// Drops good light probes of these cells that began in `[from, until)`, but for the first of each hour.
    pub fn thin_mesh_legs(
        &mut self,
        cells: &[CellName<'_>],
        [from, until]: [Nanos; 2],
    ) -> Result<(), Error> {
        let [from, until] = [from, until].map(|time| column(time.0 / 1_000_000));
        self.write_through("thin out light probes of a mesh", "", |tx| {
            let mut delete = tx.prepare_cached(&THIN_LEGS.replace('$', "?"))?;
            for [mesh, test, src, dst] in cells {
                delete.execute(params![mesh, test, src, dst, from, until])?;
            }
            Ok(())
        })
    }

    /// Bytes that a host sent and received in legs of a mesh that began since then, without light probes.
    pub fn mesh_bytes(&self, mesh: &str, host: &str, since: Nanos) -> Result<Bytes, Error> {
        let sql = "SELECT sum(bytes) FROM mesh_legs WHERE starts >= ?3 AND mesh = ?1 AND packets IS NULL AND ?2 IN (src, dst)";
        let since = column(since.0 / 1_000_000);
        let of = params![mesh, host, since];
        let sums = self.rows(READ, sql, of, |row| unsigned(row, 0))?;
        Ok(Bytes(sums.into_iter().flatten().sum()))
    }
}

static CELL: LazyLock<String> = LazyLock::new(|| {
    let which = OF_CELL.replace('$', "?");
    select(&which, "ORDER BY starts DESC LIMIT ?6")
});

fn select(which: &str, order: &str) -> String {
    let whole = whole(LEG_COLUMNS);
    format!("SELECT {LEG_COLUMNS} FROM mesh_legs WHERE {which} AND {whole} {order}")
}

/// The checksum of what [`leg_values`] gives to a statement.
fn sum_of_values() -> String {
    let values = (1..=LEG_COLUMNS.split(", ").count()).map(|n| format!("${n}"));
    format!("row_sum({})", values.collect::<Vec<_>>().join(", "))
}
