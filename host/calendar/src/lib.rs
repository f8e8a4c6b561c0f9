//! What is booked, and when: on a host, in one SQLite file that several processes have open at once; of the hosts and links
//! of meshes, in such a file or in PostgreSQL. Meshes that share a PostgreSQL have their legs there too.
//!
//! A *resource* has units; a *booking* has one unit of one resource for a time `[starts, ends)`; the bookings of one
//! *slot* are made and released together. A booking with an expiry ends by itself unless it is renewed, so a process
//! that is killed keeps nothing.
//!
//! **Overlap.** The database refuses a second booking of a unit at the same time: SQLite by a trigger, PostgreSQL by an
//! exclusion constraint. Two processes that both check first and then insert would both succeed; here one of them gets
//! fewer rows than it needs, and is rolled back.
//!
//! **Durability.** SQLite: WAL with `synchronous = NORMAL`, as the archive: a commit does not wait for the disk. A killed
//! process loses nothing that was committed; a power cut may lose the last bookings, never the file. PostgreSQL: as its
//! settings have it.

mod calendar;
mod error;
mod legs;
mod lite;
mod postgres;
mod statements;
mod tls;

pub use calendar::{Booking, Calendar, MOST_RESOURCES, Milliseconds, SlotRequest, SqlValue};
pub use error::Error;
pub use legs::{
    CellName, LEG_COLUMNS, OF_CELL, THIN_LEGS, leg, leg_table, leg_values, store_leg, store_legs,
    thin_legs,
};
pub use lite::{Lite, write_ahead};
pub use postgres::Postgres;
