//! The samples of a run, in blocks that are written as they come.

use crate::blocks::{self, FULL};
use crate::rows::{RUNS, RowFailure, column, whole};
use model::{EndRecord, Sample, Side};
use rusqlite::{OptionalExtension, ToSql, Transaction, params};

/// The samples of one end of a leg.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    run: &'a str,
    leg: usize,
    side: &'static str,
    /// An evenly thinned part of them, see [`EndRecord::push`].
    overview: bool,
}

const COLUMNS: &str = "run, leg, side, overview, n, count, until_ns, block";

/// Which rows are those of an end.
const OF_END: &str = "run = ?1 AND leg = ?2 AND side = ?3 AND overview = ?4";

impl<'a> End<'a> {
    /// All of them.
    pub(crate) fn new(run: &'a str, leg: usize, side: Side) -> End<'a> {
        End {
            run,
            leg,
            side: side.name(),
            overview: false,
        }
    }

    fn overview(self) -> End<'a> {
        End {
            overview: true,
            ..self
        }
    }

    /// The values of [`OF_END`].
    fn key(&self) -> [&dyn ToSql; 4] {
        [&self.run, &self.leg, &self.side, &self.overview]
    }

    /// All that are kept, in their order: of a run that was imported with a part of them, those.
    pub(crate) fn read_all(
        self,
        tx: &Transaction<'_>,
        each: &mut dyn FnMut(Sample),
    ) -> Result<u64, RowFailure> {
        let count = match self.kept(tx)?.0 {
            0 => self.overview().read(tx, 0, each),
            _ => self.read(tx, 0, each),
        };
        Ok(count? as u64)
    }

    /// How many [`End::read_all`] reads.
    pub(crate) fn count_all(self, tx: &Transaction<'_>) -> Result<u64, RowFailure> {
        Ok(match self.kept(tx)?.0 {
            0 => self.overview().kept(tx)?.0 as u64,
            all => all as u64,
        })
    }

    /// Keeps more samples. Blocks that are not full become one as soon as they fill it.
    pub(crate) fn append(
        self,
        tx: &Transaction<'_>,
        samples: &[&Sample],
    ) -> Result<(), RowFailure> {
        let (next, _) = self.kept(tx)?;
        self.insert(tx, next, samples, false)?;
        self.merge(tx, FULL)
    }

    /// Makes the kept samples those of this end, which lasted so long that it has a part of them alone: then the others
    /// are those that were kept as they came. As many that end at the same time are the same. How many are kept.
    pub(crate) fn settle(self, tx: &Transaction<'_>, end: &EndRecord) -> Result<usize, RowFailure> {
        let until = end.samples.last().map(|sample| column(sample.at.0));
        let is_whole = end.thinned_from.is_none();
        let (mut count, last) = self.kept(tx)?;
        if is_whole && (count, last) != (end.samples.len(), until) {
            count = self.replace(tx, end)?;
        } else {
            self.merge(tx, 2)?;
        }
        let overview = self.overview();
        Ok(match is_whole {
            true => count + overview.replace(tx, &EndRecord::default())?,
            false => count + overview.replace(tx, end)?,
        })
    }

    pub(crate) fn replace(
        self,
        tx: &Transaction<'_>,
        end: &EndRecord,
    ) -> Result<usize, RowFailure> {
        self.delete_from(tx, 0)?;
        self.insert(tx, 0, &end.samples.iter().collect::<Vec<_>>(), true)?;
        Ok(end.samples.len())
    }

    /// How many there are, and the time of the last one.
    fn kept(self, tx: &Transaction<'_>) -> rusqlite::Result<(usize, Option<i64>)> {
        let sql = format!(
            "SELECT n + count, until_ns FROM samples WHERE {OF_END} ORDER BY n DESC LIMIT 1"
        );
        let mut last = tx.prepare_cached(&sql)?;
        let last = last.query_row(&self.key()[..], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(last.optional()?.unwrap_or_default())
    }

    /// The samples as a [`Leg`](model::Leg) has them, in bounded memory, and how many rows hold.
    pub(crate) fn record(
        self,
        tx: &Transaction<'_>,
        streams: u32,
    ) -> Result<(EndRecord, usize), RowFailure> {
        let mut end = EndRecord::default();
        let overview = self.overview();
        let held = overview.read(tx, 0, &mut |sample| end.samples.push(sample))?;
        if held > 0 {
            return Ok((end, held + self.kept(tx)?.0));
        }
        let count = self.read(tx, 0, &mut |sample| end.push(sample, streams))?;
        Ok((end, count))
    }

    fn insert(
        self,
        tx: &Transaction<'_>,
        mut n: usize,
        samples: &[&Sample],
        for_good: bool,
    ) -> Result<(), RowFailure> {
        for some in samples.chunks(FULL) {
            let block = blocks::pack(some, for_good || some.len() == FULL);
            self.put(tx, n, some, &block)?;
            n += some.len();
        }
        Ok(())
    }

    fn put(
        self,
        tx: &Transaction<'_>,
        n: usize,
        samples: &[&Sample],
        block: &[u8],
    ) -> rusqlite::Result<()> {
        let until = samples.last().map_or(0, |sample| column(sample.at.0));
        let count = samples.len();
        let [run, leg, side, overview] = self.key();
        tx.prepare_cached(&format!(
            "INSERT INTO samples ({COLUMNS}, sum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, row_sum(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8))"
        ))?
        .execute(params![run, leg, side, overview, n, count, until, block])?;
        Ok(())
    }

    fn delete_from(self, tx: &Transaction<'_>, n: usize) -> Result<(), RowFailure> {
        let [run, leg, side, overview] = self.key();
        tx.prepare_cached(&format!("DELETE FROM samples WHERE {OF_END} AND n >= ?5"))?
            .execute(params![run, leg, side, overview, n])?;
        Ok(())
    }

    /// Makes one of the last blocks that are not full, if they have so many samples.
    fn merge(self, tx: &Transaction<'_>, least: usize) -> Result<(), RowFailure> {
        let sql = format!("SELECT n, count FROM samples WHERE {OF_END} ORDER BY n DESC");
        let mut query = tx.prepare_cached(&sql)?;
        let mut rows = query.query(&self.key()[..])?;
        let (mut first, mut count) = (0, 0);
        while let Some(row) = rows.next()? {
            let (n, more): (usize, usize) = (row.get(0)?, row.get(1)?);
            if more >= FULL {
                break;
            }
            (first, count) = (n, count + more);
        }
        drop(rows);
        if count < least {
            return Ok(());
        }
        let mut samples = Vec::with_capacity(count);
        self.read(tx, first, &mut |sample| samples.push(sample))?;
        self.delete_from(tx, first)?;
        let (full, rest) = samples.split_at(count - count % FULL);
        self.insert(tx, first, &full.iter().collect::<Vec<_>>(), true)?;
        let rest: Vec<&Sample> = rest.iter().collect();
        self.insert(tx, first + full.len(), &rest, least < FULL)
    }

    /// Reads the samples from this number on, in their order; how many there are.
    pub(crate) fn read(
        self,
        tx: &Transaction<'_>,
        from: usize,
        each: &mut dyn FnMut(Sample),
    ) -> Result<usize, RowFailure> {
        let sql = format!(
            "SELECT {}, n, count, block FROM samples WHERE {OF_END} AND n >= ?5 ORDER BY n",
            whole(COLUMNS)
        );
        let mut query = tx.prepare_cached(&sql)?;
        let [run, leg, side, overview] = self.key();
        let mut rows = query.query(params![run, leg, side, overview, from])?;
        let mut next = from;
        while let Some(row) = rows.next()? {
            let count: usize = row.get(2)?;
            let samples = match row.get::<_, bool>(0)? && row.get::<_, usize>(1)? == next {
                true => {
                    let block = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
                    blocks::unpack(block).filter(|samples| samples.len() == count)
                }
                false => None,
            };
            let Some(samples) = samples else {
                let part = format!("samples of leg {} from number {}", self.leg + 1, next + 1);
                return Err(RowFailure::Damaged(RUNS, part));
            };
            samples.into_iter().for_each(&mut *each);
            next += count;
        }
        Ok(next - from)
    }
}

/// Packs the samples of an archive of form 6, which has a row for each with its JSON. One that is damaged leaves a
/// gap, which every later read finds.
pub(crate) fn migrate(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    type Key = (String, usize, String);
    let sql = format!(
        "SELECT run, leg, side, n, {}, document FROM samples_6 ORDER BY run, leg, side, n",
        whole("run, leg, side, n, at_ns, document")
    );
    let mut query = tx.prepare(&sql)?;
    let mut rows = query.query([])?;
    let mut key: Key = Key::default();
    let mut first = 0;
    let mut open: Vec<Sample> = Vec::new();
    let put = |(run, leg, side): &Key, first: usize, open: &mut Vec<Sample>| {
        let samples: Vec<&Sample> = open.iter().collect();
        let done = match side.parse() {
            Ok(side) if !samples.is_empty() => {
                let leg = *leg;
                let block = blocks::pack(&samples, true);
                End::new(run, leg, side).put(tx, first, &samples, &block)
            }
            _ => Ok(()),
        };
        open.clear();
        done
    };
    while let Some(row) = rows.next()? {
        let next: Key = (row.get(0)?, row.get(1)?, row.get(2)?);
        let n: usize = row.get(3)?;
        let document = row.get_ref(5)?.as_str()?;
        let sample = match row.get::<_, bool>(4)? {
            true => serde_json::from_str(document).ok(),
            false => None,
        };
        if next != key || n != first + open.len() || open.len() == FULL {
            put(&key, first, &mut open)?;
            (key, first) = (next, n);
        }
        open.extend(sample);
    }
    put(&key, first, &mut open)
}
