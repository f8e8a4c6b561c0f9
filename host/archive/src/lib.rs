//! The notebook of runs and experiments. Promise: the only room with SQL, beside the calendar.
//!
//! One SQLite file holds every run. Each sample is committed as it comes, so a killed process loses
//! at most what [`Recorder`] held back for [`GROUP`], and leaves a run that reads as
//! [`Ended::Unfinished`](model::Ended::Unfinished).
//!
//! **Durability.** The file is in WAL mode with `synchronous = NORMAL`: a commit is a write to the
//! log without waiting for the disk, so recording does not disturb what is measured. A killed
//! process loses nothing that was committed; a power cut may lose the last commits, never the file
//! (<https://sqlite.org/pragma.html#pragma_synchronous>). The end of a run, an import and a deletion
//! are committed with `FULL`: once the command has said so, they survive a power cut.
//!
//! **Traces** of runs and watches are too large for their documents: they are files beside the archive ([`Traces`]),
//! and are deleted with what they are of.
//!
//! **Checksums.** Each row has one over all of its columns, which every read compares, and what is finished has the
//! number of its rows. What differs is an error that names it. [`Archive::verify`] reads all of it, and has SQLite
//! check its own structure.
//!
//! **Exactness.** Runs and legs are kept as their JSON documents, beside a few columns that [`Archive::list`] reads
//! without opening any document, and samples in blocks of columns (`blocks.rs`). [`Archive::get`] gives back exactly
//! the [`Run`](model::Run) that was written.
//!
//! **Errors.** Whatever reads or writes fails where the file cannot be read or written; a method lists what else can
//! go wrong.

mod archive;
mod blocks;
mod documents;
mod error;
mod histories;
mod location;
mod mesh_legs;
mod orders;
mod recorder;
mod rows;
mod samples;
mod schema;
mod traces;

pub use archive::{Archive, ArchiveRow, Imported, RunFilter};
pub use calendar::CellName;
pub use documents::NamedDocument;
pub use error::Error;
pub use histories::{PathRow, distinct_names};
pub use location::{SHORTEST, default_path, is_id, is_shown, new_id};
pub use orders::OrderedRun;
pub use recorder::{GROUP, Recorder};
pub use traces::Traces;
