//! The legs of meshes as rows, in the archive of each coordinator and in the PostgreSQL that coordinators share: the same
//! columns and statements, but for what [`leg_table`] and [`store_leg`] take from each.

use crate::calendar::{Calendar, SqlValue, integer, text};
use crate::{Error, Milliseconds, Postgres};
use model::{BitRate, Bytes, LegOutcome, MeshLeg, Nanos};
use std::cmp::Reverse;
use std::sync::LazyLock;

/// The columns of a leg.
pub const LEG_COLUMNS: &str = "run, leg, mesh, test, src, dst, starts, span_ms, bytes, goodput_bit_s, retrans_ppm, rtt_idle_ns, \
     rtt_p50_ns, loss_ppm, mtu, limited_by, outcome, why, level_since, rtt_p95_ns, packets, busy";

/// A cell of a mesh by names: mesh, test, source, destination.
pub type CellName<'a> = [&'a str; 4];

/// The legs of a cell: its name from $1 on, and when they began at the latest.
pub const OF_CELL: &str = "mesh = $1 AND test = $2 AND src = $3 AND dst = $4 AND starts <= $5";

/// Drops the good light probes of a cell that began in `[$5, $6)`, but for the first of each hour.
pub const THIN_LEGS: &str = "
DELETE FROM mesh_legs
WHERE mesh = $1 AND test = $2 AND src = $3 AND dst = $4 AND starts >= $5 AND starts < $6
AND packets IS NOT NULL AND outcome = 'good' AND EXISTS (
    SELECT 1 FROM mesh_legs AS first
    WHERE first.mesh = $1 AND first.test = $2 AND first.src = $3 AND first.dst = $4
    AND first.starts >= mesh_legs.starts - mesh_legs.starts % 3600000 AND first.starts < mesh_legs.starts
    AND first.outcome = 'good')";

/// Keeps many legs, each value being that of a column of all.
static STORE: LazyLock<String> = LazyLock::new(|| {
    let leg = MeshLeg::bare(String::new(), 0, [""; 4], Nanos(0), LegOutcome::Good);
    let columns = leg_values(&leg).into_iter().zip(1..);
    let columns = columns.map(|(value, n)| match value {
        SqlValue::Integer(_) | SqlValue::Integers(_) => format!("CAST(${n} AS BIGINT[])"),
        SqlValue::Text(_) | SqlValue::Texts(_) => format!("CAST(${n} AS TEXT[])"),
    });
    let columns: Vec<String> = columns.collect();
    store_from(
        &[],
        &format!("SELECT * FROM unnest({})", columns.join(", ")),
    )
});

/// Of many cells of a test at once, whose sources and destinations are columns; the last column is the place of the cell, from 1.
static CELLS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT l.*, n FROM unnest(CAST($3 AS TEXT[]), CAST($4 AS TEXT[])) WITH ORDINALITY AS cell (src, dst, n)
         CROSS JOIN LATERAL (
             SELECT {LEG_COLUMNS} FROM mesh_legs AS leg
             WHERE mesh = $1 AND test = $2 AND leg.src = cell.src AND leg.dst = cell.dst AND starts <= $5
             ORDER BY starts DESC LIMIT $6
         ) AS l"
    )
});

/// Makes the table, with an engine's name of 64 bits and its own columns. Times are milliseconds, since 1970-01-01 UTC.
pub fn leg_table(integer: &str, more: &str) -> String {
    format!(
        "
CREATE TABLE mesh_legs (
    run           TEXT      NOT NULL, -- or the slot of a leg that did not happen
    leg           {integer} NOT NULL,
    mesh          TEXT      NOT NULL,
    test          TEXT      NOT NULL,
    src           TEXT      NOT NULL,
    dst           TEXT      NOT NULL,
    starts        {integer} NOT NULL,
    span_ms       {integer} NOT NULL,
    bytes         {integer},
    goodput_bit_s {integer},
    retrans_ppm   {integer},
    rtt_idle_ns   {integer},
    rtt_p50_ns    {integer},
    loss_ppm      {integer},
    mtu           {integer},
    limited_by    TEXT,
    outcome       TEXT      NOT NULL CHECK (outcome IN ('good', 'low', 'failed', 'missed', 'skipped')),
    why           TEXT,
    level_since   {integer}, -- start of the first leg of the cell's present level, where it has changed
    rtt_p95_ns    {integer},
    packets       {integer}, -- of light probes alone
    busy          {integer} NOT NULL,
    {more}
    PRIMARY KEY (run, leg)
);
CREATE INDEX mesh_legs_by_cell ON mesh_legs (mesh, test, src, dst, starts);
"
    )
}

/// Keeps a leg, by the values of [`leg_values`]; one that is kept already is replaced. An engine's own columns follow, each
/// with its value.
pub fn store_leg(more: &[[&str; 2]]) -> String {
    let values = (1..=LEG_COLUMNS.split(", ").count()).map(|n| format!("${n}"));
    let values = values.chain(more.iter().map(|[_, value]| (*value).to_owned()));
    let values: Vec<String> = values.collect();
    store_from(more, &format!("VALUES ({})", values.join(", ")))
}

fn store_from(more: &[[&str; 2]], rows: &str) -> String {
    let names = LEG_COLUMNS.split(", ");
    let names: Vec<&str> = names.chain(more.iter().map(|[name, _]| *name)).collect();
    let replaced = names.iter().map(|name| format!("{name} = excluded.{name}"));
    let replaced: Vec<String> = replaced.collect();
    let [names, replaced] = [names.join(", "), replaced.join(", ")];
    format!(
        "INSERT INTO mesh_legs ({names}) {rows} ON CONFLICT (run, leg) DO UPDATE SET {replaced}"
    )
}

/// In the order of [`LEG_COLUMNS`].
pub fn leg_values(leg: &MeshLeg) -> [SqlValue<'_>; 22] {
    let number = |n: Option<u64>| SqlValue::Integer(n.map(|n| n.try_into().unwrap_or(i64::MAX)));
    let ms = |time: Nanos| time.0 / 1_000_000;
    [
        text(&leg.run),
        number(Some(leg.leg.into())),
        text(&leg.mesh),
        text(&leg.test),
        text(&leg.src),
        text(&leg.dst),
        number(Some(ms(leg.starts))),
        number(Some(ms(leg.span))),
        number(leg.bytes.map(|bytes| bytes.0)),
        number(leg.goodput.map(|rate| rate.0)),
        number(leg.retrans_ppm),
        number(leg.rtt_idle.map(|time| time.0)),
        number(leg.rtt_p50.map(|time| time.0)),
        number(leg.loss_ppm),
        number(leg.mtu),
        SqlValue::Text(leg.limited_by.as_deref()),
        text(leg.outcome.name()),
        SqlValue::Text(leg.why.as_deref()),
        number(leg.level_since.map(ms)),
        number(leg.rtt_p95.map(|time| time.0)),
        number(leg.packets),
        number(Some(leg.busy.into())),
    ]
}

/// A row of either engine.
pub trait SqlRow {
    /// Why it cannot be read.
    type Failure;

    /// The number in a column.
    fn integer(&self, at: usize) -> Result<Option<i64>, Self::Failure>;

    /// The text in a column.
    fn text(&self, at: usize) -> Result<Option<&str>, Self::Failure>;
}

impl SqlRow for rusqlite::Row<'_> {
    type Failure = rusqlite::Error;

    fn integer(&self, at: usize) -> Result<Option<i64>, rusqlite::Error> {
        self.get(at)
    }

    fn text(&self, at: usize) -> Result<Option<&str>, rusqlite::Error> {
        Ok(self.get_ref(at)?.as_str_or_null()?)
    }
}

impl SqlRow for tokio_postgres::Row {
    type Failure = tokio_postgres::Error;

    fn integer(&self, at: usize) -> Result<Option<i64>, tokio_postgres::Error> {
        self.try_get(at)
    }

    fn text(&self, at: usize) -> Result<Option<&str>, tokio_postgres::Error> {
        self.try_get(at)
    }
}

/// Of [`LEG_COLUMNS`].
///
/// # Errors
/// Of the row.
pub fn leg<R: SqlRow>(row: &R) -> Result<MeshLeg, R::Failure> {
    // What is negative reads as 0.
    let number = |at| Ok(row.integer(at)?.map(|n| n.max(0) as u64));
    let ms = |at| Ok(number(at)?.map(Nanos::from_millis));
    let text = |at| Ok(row.text(at)?.map(str::to_owned));
    let name = |at| Ok(row.text(at)?.unwrap_or_default().to_owned());
    Ok(MeshLeg {
        run: name(0)?,
        leg: number(1)?.unwrap_or(0).try_into().unwrap_or(u32::MAX),
        mesh: name(2)?,
        test: name(3)?,
        src: name(4)?,
        dst: name(5)?,
        starts: ms(6)?.unwrap_or_default(),
        span: ms(7)?.unwrap_or_default(),
        bytes: number(8)?.map(Bytes),
        goodput: number(9)?.map(BitRate),
        retrans_ppm: number(10)?,
        rtt_idle: number(11)?.map(Nanos),
        rtt_p50: number(12)?.map(Nanos),
        loss_ppm: number(13)?,
        mtu: number(14)?,
        limited_by: text(15)?,
        // The table allows no others.
        outcome: row
            .text(16)?
            .unwrap_or_default()
            .parse()
            .unwrap_or(LegOutcome::Failed),
        why: text(17)?,
        level_since: ms(18)?,
        rtt_p95: number(19)?.map(Nanos),
        packets: number(20)?,
        busy: number(21)? == Some(1),
    })
}

/// Keeps legs in the PostgreSQL that coordinators share, all or none, no leg being there twice; one that is kept already is replaced.
///
/// # Errors
/// What the database does not do.
pub fn store_legs(shared: &mut dyn Calendar, legs: &[MeshLeg]) -> Result<(), Error> {
    let legs = legs.iter().map(|leg| {
        // What an agent sent may have a NUL, which PostgreSQL has not in its text.
        let why = leg.why.as_ref().map(|why| why.replace('\0', "\u{fffd}"));
        MeshLeg { why, ..leg.clone() }
    });
    let legs: Vec<MeshLeg> = legs.collect();
    let mut integers: Vec<Vec<Option<i64>>> = Vec::new();
    let mut texts: Vec<Vec<Option<&str>>> = Vec::new();
    for leg in &legs {
        let values = leg_values(leg);
        integers.resize_with(values.len(), Vec::new);
        texts.resize_with(values.len(), Vec::new);
        for (at, value) in values.into_iter().enumerate() {
            match value {
                SqlValue::Integer(number) => integers[at].push(number),
                SqlValue::Text(text) => texts[at].push(text),
                SqlValue::Integers(_) | SqlValue::Texts(_) => {}
            }
        }
    }
    let columns = integers.iter().zip(&texts);
    let values = columns.map(|(integers, texts)| match texts.is_empty() {
        true => SqlValue::Integers(integers),
        false => SqlValue::Texts(texts),
    });
    let values: Vec<SqlValue<'_>> = values.collect();
    let done = shared.transaction("keep legs of a mesh", &mut |db| {
        if !legs.is_empty() {
            db.execute(&STORE, &values)?;
        }
        Ok(true)
    });
    done.map(drop)
}

/// Thins out the good light probes of these cells there, as [`THIN_LEGS`] does.
///
/// # Errors
/// What the database does not do.
pub fn thin_legs(
    shared: &mut dyn Calendar,
    cells: &[CellName<'_>],
    [from, until]: [Milliseconds; 2],
) -> Result<(), Error> {
    let done = shared.transaction("thin out light probes of a mesh", &mut |db| {
        for cell in cells {
            let [mesh, test, src, dst] = cell.map(text);
            let values = [mesh, test, src, dst, integer(from), integer(until)];
            db.execute(THIN_LEGS, &values)?;
        }
        Ok(true)
    });
    done.map(drop)
}

impl Postgres {
    /// The newest legs that began by then of each of these cells of a test, source and destination, the newest first.
    ///
    /// # Errors
    /// What the server does not do.
    pub fn cells(
        &mut self,
        [mesh, test]: [&str; 2],
        cells: &[[&str; 2]],
        until: Nanos,
        limit: u32,
    ) -> Result<Vec<Vec<MeshLeg>>, Error> {
        let [sources, destinations]: [Vec<Option<&str>>; 2] =
            [0, 1].map(|end| cells.iter().map(|cell| Some(cell[end])).collect());
        let values = [
            text(mesh),
            text(test),
            SqlValue::Texts(&sources),
            SqlValue::Texts(&destinations),
            integer((until.0 / 1_000_000) as Milliseconds),
            integer(limit.into()),
        ];
        let place = LEG_COLUMNS.split(", ").count();
        let legs = self.read_rows(&CELLS, &values, |row| {
            Ok((row.try_get::<_, i64>(place)?, leg(row)?))
        })?;
        let mut read = vec![Vec::new(); cells.len()];
        for (n, leg) in legs {
            read[(n - 1) as usize].push(leg);
        }
        for legs in &mut read {
            legs.sort_by_key(|leg: &MeshLeg| Reverse(leg.starts));
        }
        Ok(read)
    }
}
