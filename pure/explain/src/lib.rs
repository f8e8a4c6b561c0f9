//! Which limit owns each moment of a connection, and what lies behind it.
//!
//! The first level is what the sender waited for; its shares add up to the whole. The second level is
//! why. Each limit has a file of its own in `limits/`. Nothing here fails: doubts are values, and
//! "nothing explains it" is an answer.

mod assemble;
mod capture;
mod facts;
mod limits;
mod moment;
mod samples;
mod trace;

use model::finding::Explanation;

pub use capture::{Counted, Observer};
use model::{Run, Trace};

/// Explains each connection of a run from the samples of both ends.
pub fn explain(run: &Run) -> Vec<Explanation> {
    samples::explain(run)
}

/// Explains each connection of a trace whose own end sent data, from the state of its socket at every
/// segment.
pub fn explain_trace(trace: &Trace) -> Vec<Explanation> {
    trace::explain(trace)
}
