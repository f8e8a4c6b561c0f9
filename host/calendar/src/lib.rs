//! What is booked on a host, and when: one SQLite file that several processes have open at once.
//!
//! A *resource* has units; a *booking* has one unit of one resource for a time `[starts, ends)`; the bookings of one
//! *slot* are made and released together. A booking with an expiry is a *hold*: it ends by itself unless it is renewed
//! or confirmed, so a process that is killed keeps nothing.
//!
//! **Overlap.** A trigger of the database refuses a second booking of a unit at the same time. Two processes that both
//! check first and then insert would both succeed; here one of them gets fewer rows than it needs, and is rolled back.
//!
//! **Durability.** WAL with `synchronous = NORMAL`, as the archive: a commit does not wait for the disk. A killed
//! process loses nothing that was committed; a power cut may lose the last bookings, never the file.

mod calendar;
mod error;

pub use calendar::{Booking, Calendar, MOST_RESOURCES, Milliseconds, SlotRequest};
pub use error::Error;
