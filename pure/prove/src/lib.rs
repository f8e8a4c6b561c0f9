//! Runs to verdicts: does this change help on this path? Never more than the data say.
//!
//! [`stats`] has the methods, one file each: exact, total, and without an opinion. Nothing here
//! touches a clock, a file or a socket; chance comes from a recorded seed alone.

mod chance;
pub mod simulate;
pub mod stats;
