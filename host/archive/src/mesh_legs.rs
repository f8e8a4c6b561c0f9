//! The legs of meshes: a row each, also for those that did not happen. What they measured is in their runs.

use crate::rows::{column, unsigned, whole};
use crate::{Archive, Error};
use model::{BitRate, Bytes, LegOutcome, MeshLeg, Nanos};
use rusqlite::{Row, params};

/// The table. Times are milliseconds, since 1970-01-01 UTC.
pub(crate) const MESH_LEGS: &str = "
CREATE TABLE mesh_legs (
    run           TEXT    NOT NULL, -- or the slot of a leg that did not happen
    leg           INTEGER NOT NULL,
    mesh          TEXT    NOT NULL,
    test          TEXT    NOT NULL,
    src           TEXT    NOT NULL,
    dst           TEXT    NOT NULL,
    starts        INTEGER NOT NULL,
    span_ms       INTEGER NOT NULL,
    bytes         INTEGER,
    goodput_bit_s INTEGER,
    retrans_ppm   INTEGER,
    rtt_idle_ns   INTEGER,
    rtt_p50_ns    INTEGER,
    loss_ppm      INTEGER,
    mtu           INTEGER,
    limited_by    TEXT,
    outcome       TEXT    NOT NULL CHECK (outcome IN ('good', 'low', 'failed', 'missed', 'skipped')),
    why           TEXT,
    level_since   INTEGER, -- start of the first leg of the cell's present level, where it has changed
    rtt_p95_ns    INTEGER,
    packets       INTEGER, -- of light probes alone
    busy          INTEGER NOT NULL,
    sum           BLOB,
    PRIMARY KEY (run, leg)
) STRICT;
CREATE INDEX mesh_legs_by_cell ON mesh_legs (mesh, test, src, dst, starts);
-- A day has far more light probes than others.
CREATE INDEX mesh_legs_booked ON mesh_legs (mesh, starts) WHERE packets IS NULL;
";

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
       rtt_p50_ns, loss_ppm, mtu, limited_by, outcome, why, level_since, NULL, NULL, 0,
       row_sum(run, leg, mesh, test, src, dst, starts, span_ms, bytes, goodput_bit_s, retrans_ppm, rtt_idle_ns,
               rtt_p50_ns, loss_ppm, mtu, limited_by, outcome, why, level_since, NULL, NULL, 0)
FROM mesh_legs_11
WHERE sum IS row_sum(run, leg, mesh, test, src, dst, starts, span_ms, bytes, goodput_bit_s, retrans_ppm, rtt_idle_ns,
                     rtt_p50_ns, loss_ppm, mtu, limited_by, outcome, why, level_since);
DROP TABLE mesh_legs_11;
";

const COLUMNS: &str = "run, leg, mesh, test, src, dst, starts, span_ms, bytes, goodput_bit_s, retrans_ppm, rtt_idle_ns, \
     rtt_p50_ns, loss_ppm, mtu, limited_by, outcome, why, level_since, rtt_p95_ns, packets, busy";

/// A cell of a mesh by names: mesh, test, source, destination.
pub type CellName<'a> = [&'a str; 4];

impl Archive {
    /// Keeps legs of a mesh, all or none; one that is kept already is replaced. Survives a power cut once done.
    ///
    /// # Errors
    /// Failures to write.
    pub fn store_mesh_legs(&mut self, legs: &[MeshLeg]) -> Result<(), Error> {
        let number = |n: Option<u64>| n.map(column);
        let ms = |time: Nanos| column(time.0 / 1_000_000);
        self.write_through("keep legs of a mesh", "", |tx| {
            let places: Vec<String> = (1..=COLUMNS.split(", ").count()).map(|n| format!("?{n}")).collect();
            let places = places.join(", ");
            let sql = format!("INSERT OR REPLACE INTO mesh_legs ({COLUMNS}, sum) VALUES ({places}, row_sum({places}))");
            let mut insert = tx.prepare_cached(&sql)?;
            for leg in legs {
                insert.execute(params![
                    leg.run,
                    leg.leg,
                    leg.mesh,
                    leg.test,
                    leg.src,
                    leg.dst,
                    ms(leg.starts),
                    ms(leg.span),
                    number(leg.bytes.map(|bytes| bytes.0)),
                    number(leg.goodput.map(|rate| rate.0)),
                    number(leg.retrans_ppm),
                    number(leg.rtt_idle.map(|time| time.0)),
                    number(leg.rtt_p50.map(|time| time.0)),
                    number(leg.loss_ppm),
                    number(leg.mtu),
                    leg.limited_by,
                    leg.outcome.name(),
                    leg.why,
                    leg.level_since.map(ms),
                    number(leg.rtt_p95.map(|time| time.0)),
                    number(leg.packets),
                    leg.busy,
                ])?;
            }
            Ok(())
        })
    }

    /// The newest legs of a cell, the newest first. Damaged rows are left out.
    ///
    /// # Errors
    /// Failures to read.
    pub fn mesh_cell(&self, cell: CellName<'_>, limit: u32) -> Result<Vec<MeshLeg>, Error> {
        let [mesh, test, src, dst] = cell;
        self.mesh_legs(
            "mesh = ?1 AND test = ?2 AND src = ?3 AND dst = ?4",
            "ORDER BY starts DESC LIMIT ?5",
            params![mesh, test, src, dst, limit],
        )
    }

    /// The first legs of runs of a mesh since then that have this reason.
    ///
    /// # Errors
    /// Failures to read.
    pub fn mesh_pending(&self, mesh: &str, why: &str, since: Nanos) -> Result<Vec<MeshLeg>, Error> {
        self.mesh_legs(
            "starts >= ?3 AND mesh = ?1 AND packets IS NULL AND why = ?2 AND leg = 0",
            "",
            params![mesh, why, column(since.0 / 1_000_000)],
        )
    }

    /// The leg of a run, if that was one of a mesh.
    ///
    /// # Errors
    /// Failures to read.
    pub fn mesh_leg(&self, run: &str, leg: usize) -> Result<Option<MeshLeg>, Error> {
        Ok(self
            .mesh_legs("run = ?1 AND leg = ?2", "", params![run, leg])?
            .pop())
    }

    fn mesh_legs(
        &self,
        which: &str,
        order: &str,
        of: impl rusqlite::Params,
    ) -> Result<Vec<MeshLeg>, Error> {
        let whole = whole(COLUMNS);
        let sql = format!("SELECT {COLUMNS} FROM mesh_legs WHERE {which} AND {whole} {order}");
        self.rows("read the legs of a mesh", &sql, of, leg)
    }

    /// Drops good light probes of these cells that began in `[from, until)`, but for the first of each hour.
    ///
    /// # Errors
    /// Failures to write.
    pub fn thin_mesh_legs(
        &mut self,
        cells: &[CellName<'_>],
        [from, until]: [Nanos; 2],
    ) -> Result<(), Error> {
        let [from, until] = [from, until].map(|time| column(time.0 / 1_000_000));
        let sql = "DELETE FROM mesh_legs
            WHERE mesh = ?1 AND test = ?2 AND src = ?3 AND dst = ?4 AND starts >= ?5 AND starts < ?6
            AND packets IS NOT NULL AND outcome = 'good' AND EXISTS (
                SELECT 1 FROM mesh_legs AS first
                WHERE first.mesh = ?1 AND first.test = ?2 AND first.src = ?3 AND first.dst = ?4
                AND first.starts >= mesh_legs.starts - mesh_legs.starts % 3600000 AND first.starts < mesh_legs.starts
                AND first.outcome = 'good')";
        self.write_through("thin out light probes of a mesh", "", |tx| {
            let mut delete = tx.prepare_cached(sql)?;
            for [mesh, test, src, dst] in cells {
                delete.execute(params![mesh, test, src, dst, from, until])?;
            }
            Ok(())
        })
    }

    /// Bytes that a host sent and received in legs of a mesh that began since then, without light probes.
    ///
    /// # Errors
    /// Failures to read.
    pub fn mesh_bytes(&self, mesh: &str, host: &str, since: Nanos) -> Result<Bytes, Error> {
        let sql = "SELECT sum(bytes) FROM mesh_legs WHERE starts >= ?3 AND mesh = ?1 AND packets IS NULL AND ?2 IN (src, dst)";
        let since = column(since.0 / 1_000_000);
        let of = params![mesh, host, since];
        let sums = self.rows("read the legs of a mesh", sql, of, |row| unsigned(row, 0))?;
        Ok(Bytes(sums.into_iter().flatten().sum()))
    }
}

fn leg(row: &Row<'_>) -> rusqlite::Result<MeshLeg> {
    let number = |at| unsigned(row, at);
    let ms = |at: usize| Ok::<_, rusqlite::Error>(number(at)?.map(Nanos::from_millis));
    Ok(MeshLeg {
        run: row.get(0)?,
        leg: row.get(1)?,
        mesh: row.get(2)?,
        test: row.get(3)?,
        src: row.get(4)?,
        dst: row.get(5)?,
        starts: ms(6)?.unwrap_or_default(),
        span: ms(7)?.unwrap_or_default(),
        bytes: number(8)?.map(Bytes),
        goodput: number(9)?.map(BitRate),
        retrans_ppm: number(10)?,
        rtt_idle: number(11)?.map(Nanos),
        rtt_p50: number(12)?.map(Nanos),
        loss_ppm: number(13)?,
        mtu: number(14)?,
        limited_by: row.get(15)?,
        // The table allows no others.
        outcome: row
            .get::<_, String>(16)?
            .parse()
            .unwrap_or(LegOutcome::Failed),
        why: row.get(17)?,
        level_since: ms(18)?,
        rtt_p95: number(19)?.map(Nanos),
        packets: number(20)?,
        busy: row.get(21)?,
    })
}
