//! Settings of a machine, applied for an experiment and undone afterwards, whatever happens.
//!
//! Architecture invariant: the only code that changes your machine. What it is about to change is on the
//! disk first; a [`guard`] in a process of its own undoes everything when the experiment dies or falls
//! silent; [`recover`] does if both died. What was proven can be kept ([`TuningSession::keep`]), and is undone when
//! requested ([`undo_kept`]). `docs/decisions/0009-undo-that-survives.md` has the rules.

#![deny(clippy::wildcard_enum_match_arm)]

mod crash_points;
mod error;
mod guard;
mod journal;
mod kernel;
mod knobs;
mod metrics;
mod persist;
mod prelude;
mod status;
mod tuning_session;
mod undo;

pub use crash_points::step;
pub use error::Error;
pub use guard::guard;
pub use kernel::interface_towards;
pub use metrics::flush_metrics;
pub use persist::{PersistedFile, managers, write, written};
pub use status::{Pending, PendingChange, Where, default_state, status};
pub use tuning_session::{Begin, TuningSession, begin, commit, kept, recover, undo_kept};
pub use undo::Undone;
