//! The thread behind a trace: it reads before ordinary work is done, and hands on batches.

use super::Error;
use super::batch::{Batch, Content};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Batches that can wait to be taken: 32 MB.
const BATCHES: usize = 128;

/// Batches whose memory is kept for others.
const SPARE: usize = 4;

/// A thread that makes batches until it is stopped.
pub(super) struct Worker {
    batches: Receiver<Batch>,
    /// Memory of batches that were read: else every one would touch new memory.
    spare: SyncSender<Content>,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

/// Between the thread and its owner.
#[derive(Default)]
pub(super) struct Orders {
    stop: AtomicBool,
    runs_first: AtomicBool,
}

impl Orders {
    /// Whether the thread is to finish.
    pub(super) fn to_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Of the calling thread: before ordinary work from now on, and awake on time.
    pub(super) fn run_first(&self) {
        // Without the right to it the trace is the same on a machine that has time.
        let first = sys::sched::run_first().is_ok();
        if !first {
            let _ = sys::sched::run_in_short_turns();
        }
        self.runs_first.store(first, Ordering::Release);
        let _ = sys::sched::wake_on_time();
    }
}

impl Worker {
    /// `run` sends batches, and gets the memory of those that were read. When [`BATCHES`] wait to be taken the room for
    /// events fills, and then the kernel counts what it loses: memory stays bounded, and nothing is lost in silence.
    pub(super) fn start(
        name: &str,
        run: impl FnOnce(&SyncSender<Batch>, Receiver<Content>, &Orders) + Send + 'static,
    ) -> Result<Worker, Error> {
        let (sender, batches) = sync_channel(BATCHES);
        let (spare, spares) = sync_channel(SPARE);
        let orders = Arc::new(Orders::default());
        let own = orders.clone();
        let thread = sys::spawn(name, move || run(&sender, spares, &own))
            .map_err(|error| Error::refused("start a thread", error))?;
        Ok(Worker {
            batches,
            spare,
            orders,
            thread: Some(thread),
        })
    }

    /// Takes back the memory of a batch.
    pub(super) fn reuse(&self, mut content: Content) {
        content.clear();
        // Enough of them are there, or nobody needs any more.
        let _ = self.spare.try_send(content);
    }

    /// The next batch; `None` if none came in time, or after the last.
    pub(super) fn next(&self, wait: Duration) -> Option<Batch> {
        self.batches.recv_timeout(wait).ok()
    }

    /// Lets the thread read a last time and finish; its last batches still come.
    pub(super) fn stop(&self) {
        self.orders.stop.store(true, Ordering::Release);
    }

    pub(super) fn runs_first(&self) -> bool {
        self.orders.runs_first.load(Ordering::Acquire)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        // A thread that waits for room in the channel has to see that nobody will make any.
        let (_, nothing) = sync_channel(0);
        self.batches = nothing;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own hook.
            let _ = thread.join();
        }
    }
}
