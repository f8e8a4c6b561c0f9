//! Resources, bookings and holds, in whichever database.

use crate::Error;
use crate::legs::SqlRow;
use crate::statements::{
    ADD_UNIT, EXTEND, FIRST_FIT, LIST, RELEASE, REMOVE_UNITS, TAKE, TAKE_WHOLE, TIDY, UNITS,
};

/// A time since 1970-01-01 UTC, or a length, in milliseconds.
pub type Milliseconds = i64;

/// Resources of one slot at most.
pub const MOST_RESOURCES: usize = 8;

/// Bookings are kept for so long after their end.
pub(crate) const KEPT: Milliseconds = 3_600_000;

/// What is to be booked together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRequest {
    /// Its name; no two have one.
    pub slot: String,
    /// Beginning.
    pub starts: Milliseconds,
    /// End, which it does not reach: `starts < ends`.
    pub ends: Milliseconds,
    /// It ends by itself then, unless it is renewed; `None`: with its end.
    pub expires: Option<Milliseconds>,
    /// Who has it, for people.
    pub who: String,
    /// What for, for people.
    pub what: String,
    /// What is touched: at least one, at most [`MOST_RESOURCES`], none twice.
    pub resources: Vec<String>,
}

/// A unit that is booked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// Name of the slot that it is part of.
    pub slot: String,
    /// Name of the resource.
    pub resource: String,
    /// Number of the unit, from 1.
    pub unit: u32,
    /// Beginning.
    pub starts: Milliseconds,
    /// End.
    pub ends: Milliseconds,
    /// When it ends by itself; `None`: with its end.
    pub expires: Option<Milliseconds>,
    /// Who has it.
    pub who: String,
    /// What for.
    pub what: String,
}

/// An open calendar, by what its database does: the first four methods.
///
/// # Errors
/// Of every method: what the database does not do, in a sentence.
pub trait Calendar: Send {
    /// Where it is, for sentences.
    fn place(&self) -> &str;

    /// Does this in a transaction, which is undone if it returns `false` or fails.
    fn transaction(
        &mut self,
        doing: &'static str,
        act: &mut dyn FnMut(&mut dyn Statements) -> Result<bool, Error>,
    ) -> Result<bool, Error>;

    /// Does this outside of a transaction: one statement that reads.
    fn read(
        &mut self,
        doing: &'static str,
        act: &mut dyn FnMut(&mut dyn Statements) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Makes this the one coordinator of a mesh as long as the calendar is open; or who is it.
    fn lock_mesh(&mut self, mesh: &str) -> Result<Result<(), String>, Error>;

    /// Gives a resource so many units. One that is booked stays until its bookings are over and this is called again.
    fn set_units(&mut self, now: Milliseconds, resource: &str, units: u32) -> Result<(), Error> {
        let done = write(self, "set the units", now, &mut |db| {
            let [name, most, now] = [text(resource), integer(units.into()), integer(now)];
            db.execute(REMOVE_UNITS, &[name, most, now])?;
            for unit in 1..=units {
                db.execute(ADD_UNIT, &[name, integer(unit.into())])?;
            }
            Ok(true)
        });
        done.map(drop)
    }

    /// How many units a resource has; 0 if it is not known.
    fn units(&mut self, resource: &str) -> Result<u32, Error> {
        let mut count = None;
        self.read("read the resources", &mut |db| {
            count = db.number(UNITS, &[text(resource)])?;
            Ok(())
        })?;
        Ok(count.unwrap_or(0).try_into().unwrap_or(u32::MAX))
    }

    /// The first time in `[from, until)` at which a unit of each resource is free for `length`. After a lost
    /// [`Calendar::take`], call it again from the end of that gap, not from the beginning.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a resource without units, which is no full calendar.
    fn first_fit(
        &mut self,
        now: Milliseconds,
        [from, until]: [Milliseconds; 2],
        length: Milliseconds,
        resources: &[String],
    ) -> Result<Option<Milliseconds>, Error> {
        let mut first = None;
        write(self, "find a free time", now, &mut |db| {
            let mut values = vec![integer(from), integer(until), integer(length)];
            values.extend(places(resources));
            first = db.number(FIRST_FIT, &values)?;
            Ok(true)
        })?;
        if first.is_none() {
            for resource in resources {
                if self.units(resource)? == 0 {
                    let place = self.place().to_owned();
                    return Err(Error::Unknown(place, resource.clone()));
                }
            }
        }
        Ok(first)
    }

    /// Books one unit of each resource, or nothing; whether it did.
    fn take(&mut self, now: Milliseconds, wanted: &SlotRequest) -> Result<bool, Error> {
        let rows = wanted.resources.len();
        write(self, "book", now, &mut |db| {
            Ok(insert(db, TAKE, wanted)? == rows)
        })
    }

    /// Books every unit of each resource, or nothing; whether it did.
    fn take_whole(&mut self, now: Milliseconds, wanted: &SlotRequest) -> Result<bool, Error> {
        let mut rows = 0;
        for resource in &wanted.resources {
            rows += self.units(resource)? as usize;
        }
        write(self, "book", now, &mut |db| {
            Ok(rows > 0 && insert(db, TAKE_WHOLE, wanted)? == rows)
        })
    }

    /// Gives a slot that [`Calendar::take`] made another end and expiry, or, where something else is booked before
    /// that end, the expiry alone; whether it is booked.
    fn renew(&mut self, now: Milliseconds, wanted: &SlotRequest) -> Result<bool, Error> {
        let again = write(self, "renew a booking", now, &mut |db| {
            db.execute(RELEASE, &[text(&wanted.slot)])?;
            Ok(insert(db, TAKE, wanted)? == wanted.resources.len())
        })?;
        match wanted.expires {
            Some(expires) if !again => self.extend(now, &wanted.slot, expires),
            _ => Ok(again),
        }
    }

    /// Gives a slot another expiry; `false` if it was over.
    fn extend(
        &mut self,
        now: Milliseconds,
        slot: &str,
        expires: Milliseconds,
    ) -> Result<bool, Error> {
        write(self, "renew a booking", now, &mut |db| {
            Ok(db.execute(EXTEND, &[text(slot), integer(expires)])? > 0)
        })
    }

    /// Frees what a slot has; whether it had anything.
    fn release(&mut self, now: Milliseconds, slot: &str) -> Result<bool, Error> {
        write(self, "release a booking", now, &mut |db| {
            Ok(db.execute(RELEASE, &[text(slot)])? > 0)
        })
    }

    /// Removes what has expired, and what was over an hour ago. Whatever takes does so first.
    fn tidy(&mut self, now: Milliseconds) -> Result<(), Error> {
        write(self, "remove what is over", now, &mut |_| Ok(true)).map(drop)
    }

    /// What is booked from now on, by its beginning; what has expired is left out.
    fn list(&mut self, now: Milliseconds) -> Result<Vec<Booking>, Error> {
        let mut bookings = Vec::new();
        self.read("read the bookings", &mut |db| {
            bookings = db.bookings(LIST, &[integer(now)])?;
            Ok(())
        })?;
        Ok(bookings)
    }
}

/// A value of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum SqlValue<'a> {
    /// Or NULL.
    Integer(Option<i64>),
    /// Or NULL.
    Text(Option<&'a str>),
    /// A column of rows, for PostgreSQL alone.
    Integers(&'a [Option<i64>]),
    /// The same.
    Texts(&'a [Option<&'a str>]),
}

impl rusqlite::ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            SqlValue::Integer(number) => number.to_sql(),
            SqlValue::Text(text) => text.to_sql(),
            SqlValue::Integers(_) | SqlValue::Texts(_) => {
                let why = "SQLite has no columns as values";
                Err(rusqlite::Error::ToSqlConversionFailure(why.into()))
            }
        }
    }
}

/// Statements of [`crate::statements`], with their parameters.
pub trait Statements {
    /// How many rows it wrote.
    fn execute(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<usize, Error>;

    /// Its one number.
    fn number(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Option<i64>, Error>;

    /// Of [`LIST`].
    fn bookings(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Booking>, Error>;
}

/// Of [`LIST`].
pub(crate) fn booking<R: SqlRow>(row: &R) -> Result<Booking, R::Failure> {
    let number = |at| Ok(row.integer(at)?.unwrap_or(0));
    let name = |at| Ok(row.text(at)?.unwrap_or_default().to_owned());
    Ok(Booking {
        slot: name(0)?,
        resource: name(1)?,
        unit: number(2)?.try_into().unwrap_or(0),
        starts: number(3)?,
        ends: number(4)?,
        expires: row.integer(5)?,
        who: name(6)?,
        what: name(7)?,
    })
}

/// Does this in a transaction that removes first what has expired.
fn write(
    calendar: &mut (impl Calendar + ?Sized),
    doing: &'static str,
    now: Milliseconds,
    act: &mut dyn FnMut(&mut dyn Statements) -> Result<bool, Error>,
) -> Result<bool, Error> {
    calendar.transaction(doing, &mut |db| {
        let an_hour_ago = now.saturating_sub(KEPT);
        db.execute(TIDY, &[integer(now), integer(an_hour_ago)])?;
        act(db)
    })
}

fn insert(
    db: &mut dyn Statements,
    sql: &'static str,
    wanted: &SlotRequest,
) -> Result<usize, Error> {
    let mut values = vec![
        text(&wanted.slot),
        integer(wanted.starts),
        integer(wanted.ends),
        SqlValue::Integer(wanted.expires),
        text(&wanted.who),
        text(&wanted.what),
    ];
    values.extend(places(&wanted.resources));
    db.execute(sql, &values)
}

pub(crate) fn text(text: &str) -> SqlValue<'_> {
    SqlValue::Text(Some(text))
}

pub(crate) fn integer(number: i64) -> SqlValue<'static> {
    SqlValue::Integer(Some(number))
}

/// The resources in the places of a statement: the last is repeated.
fn places(resources: &[String]) -> impl Iterator<Item = SqlValue<'_>> {
    let last = resources.last().expect("a slot has a resource");
    assert!(
        resources.len() <= MOST_RESOURCES,
        "a slot has at most {MOST_RESOURCES} resources"
    );
    let all = resources.iter().chain(std::iter::repeat(last));
    all.take(MOST_RESOURCES).map(|name| text(name))
}
