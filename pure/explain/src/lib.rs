//! Which limit owns each moment of a connection, and what lies behind it.
//!
//! The first level is what the sender waited for; its shares add up to the whole. The second level is
//! why. Each limit has a file of its own in `limits/`. Nothing here fails: doubts are values, and
//! "nothing explains it" is an answer.

mod account;
mod alarms;
mod capacity;
mod capture;
mod conclude;
mod contradiction;
mod facts;
mod limits;
mod listing;
mod mixed;
mod process_activity;
mod receiver;
mod reverse_path;
mod samples;
mod sender_state;
mod sliding_window;
mod socket_totals;
mod sockets;
mod timestamps;
mod trace;
mod two_vantage;

use model::finding::Explanation;

pub use alarms::SocketAlarm;
pub use capture::{CaptureObserver, Explained};
pub use listing::{explain_listing, is_listing, read_listing};
use model::{Nanos, Run, Side, Trace, TraceRecord};
pub use sockets::{AlarmedSocket, SocketWatcher};
pub use trace::TraceWatcher;
pub use two_vantage::{Joined, joined};

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
    local: Option<&Trace>,
    remote: Option<&Trace>,
) -> Vec<Explanation> {
    run.legs.get(leg).map_or_else(Vec::new, |leg| {
        let (sender, receiver) = match leg.direction.sender() {
            Side::Local => (local, remote),
            Side::Remote => (remote, local),
        };
        two_vantage::explain_leg(run, leg, sender, receiver)
    })
}

/// Explains each connection of a trace from the state of its socket at every segment: as its sender where
/// its own end sent data, else as its receiver.
pub fn explain_trace(trace: &Trace) -> Vec<Explanation> {
    watched(trace, &|_| Nanos(0)).explain()
}

/// Explains the connections of two traces, one from each host. Those that are in both are reported once.
pub fn explain_traces(a: (&str, &Trace), b: (&str, &Trace)) -> Joined {
    two_vantage::explain_traces(a, b)
}

/// A trace that is over; of each connection what came from a moment on.
pub(crate) fn watched(trace: &Trace, from: &dyn Fn(u32) -> Nanos) -> TraceWatcher {
    let mut watcher = TraceWatcher::default();
    let connections = trace.connections.iter().cloned();
    connections.for_each(|c| watcher.push(TraceRecord::Connection(c)));
    let mut owners = trace.owners.iter().cloned().peekable();
    let mut samples = trace.samples.iter().cloned().peekable();
    for segment in trace.segments.iter().cloned() {
        while let Some(sample) = samples.next_if(|sample| sample.at <= segment.at) {
            watcher.push(TraceRecord::Sample(sample));
        }
        while let Some(owner) = owners.next_if(|owner| owner.at <= segment.at) {
            watcher.push(TraceRecord::Owner(owner));
        }
        if segment.at >= from(segment.connection) {
            watcher.push(TraceRecord::Segment(segment));
        }
    }
    owners.for_each(|o| watcher.push(TraceRecord::Owner(o)));
    samples.for_each(|s| watcher.push(TraceRecord::Sample(s)));
    let lost = trace.lost.iter().copied();
    lost.for_each(|l| watcher.push(TraceRecord::Lost(l)));
    watcher
}
