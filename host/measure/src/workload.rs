//! What every workload implements; the workloads themselves are one file each.

use crate::prelude::*;
use model::{StoreRecord, WaitMode};

/// One end of a workload. [`WorkloadEnd::run`] is called once a thread: the loop inside it is the workload's own, and no
/// system call of it goes through this trait.
pub(crate) trait WorkloadEnd: Send + Sync {
    /// How a thread waits for data; `None`: it never spins.
    fn wait(&self) -> Option<WaitMode> {
        None
    }

    /// Called once, before the first stream starts.
    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    /// Threads for so many streams, given the processors that this end may use. As a rule each stream has its own.
    fn threads(&self, streams: usize, _processors: usize) -> usize {
        streams
    }

    /// Runs the streams of one thread to their ends, and finishes each.
    fn run(&self, streams: &[LoadStream<'_>], spin: Spin);

    /// Called once after the last stream, with the first failure of the storage: the record of the blocks' storage,
    /// at the end that has it.
    fn settle(&self, _failed: Option<String>) -> Option<StoreRecord> {
        None
    }
}

/// Runs streams whose thread has no other.
pub(crate) fn alone(
    streams: &[LoadStream<'_>],
    part: impl Fn(&LoadStream<'_>) -> Result<(), String>,
) {
    for stream in streams {
        stream.finish(part(stream));
    }
}

/// The error of a role that the workload does not have.
pub(crate) fn no_such_role() -> Error {
    Error::Job(
        "role and workload do not fit together: bulk is sent and received, requests are asked and \
         answered"
            .into(),
    )
}
