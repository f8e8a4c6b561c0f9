//! The thread that empties the ring: before ordinary work, at most a millisecond apart while events come.

use super::order::Sequencer;
use super::probes::{Output, Probes};
use super::record::{HEADERS, RECORD};
use super::{Error, monotonic};
use model::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause after a round that found events, and the longest, when none come.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Events taken out of the ring in one go, so that a round ends.
const ROUND: usize = 16_384;

/// Batches that can wait to be told. When they are all full the ring fills, and then the kernel counts what
/// it loses: memory stays bounded, and nothing is lost in silence.
const BATCHES: usize = 64;

/// Rounds without progress at the end, until a producer that never finishes is given up.
const LAST_ROUNDS: u32 = 1_000;

/// Events in true order, each as the probes wrote it.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub events: Vec<Box<[u8]>>,
    /// What was lost: not before, not after, how many.
    pub lost: Option<(Nanos, Nanos, u64)>,
}

pub(super) struct Reader {
    batches: Receiver<Batch>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    runs_first: AtomicBool,
    unordered: AtomicU64,
}

impl Reader {
    pub(super) fn start(probes: Probes, output: Output) -> Result<Reader, Error> {
        let (sender, batches) = sync_channel(BATCHES);
        let shared = Arc::new(Shared::default());
        let round = Round {
            order: Sequencer::new(output.processors),
            output,
            batch: Batch::default(),
            sender,
            lost: 0,
            checked: monotonic(),
            shared: shared.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || round.run(probes))
            .map_err(|error| Error::refused("start a thread", &error))?;
        Ok(Reader {
            batches,
            shared,
            thread: Some(thread),
        })
    }

    /// The next events; `None` if none came in time, or after the last.
    pub(super) fn next(&self, wait: Duration) -> Option<Batch> {
        self.batches.recv_timeout(wait).ok()
    }

    /// Lets the thread detach the probes and finish; its last batches still come.
    pub(super) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    pub(super) fn unordered(&self) -> u64 {
        self.shared.unordered.load(Ordering::Acquire)
    }

    pub(super) fn runs_first(&self) -> bool {
        self.shared.runs_first.load(Ordering::Acquire)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
        // A thread that waits for room in the channel has to see that nobody will make any.
        let (_, nothing) = sync_channel(0);
        self.batches = nothing;
        if let Some(thread) = self.thread.take() {
            // A panic there was told by its own hook.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Round {
    output: Output,
    order: Sequencer<Box<[u8]>>,
    batch: Batch,
    sender: SyncSender<Batch>,
    lost: u64,
    checked: Nanos,
    shared: Arc<Shared>,
}

impl Round {
    fn run(mut self, probes: Probes) {
        // Without the right to it the trace is the same on a machine that has time.
        let first = sys::sched::run_first().is_ok();
        if !first {
            let _ = sys::sched::run_in_short_turns();
        }
        self.shared.runs_first.store(first, Ordering::Release);
        let _ = sys::sched::wake_on_time();
        let mut pause = PAUSE;
        while !self.shared.stop.load(Ordering::Acquire) {
            let taken = self.round();
            if !self.send() {
                return;
            }
            pause = if taken > 0 {
                PAUSE
            } else {
                (pause * 2).min(LONGEST_PAUSE)
            };
            std::thread::sleep(pause);
        }
        let skipped = probes.skipped();
        drop(probes);
        self.last_rounds(skipped);
    }

    /// Empties the ring, and releases what is complete. Returns how many events came.
    fn round(&mut self) -> usize {
        let mut taken = self.drain();
        if self.order.wants_snapshot() {
            self.order.aim(&self.output.snapshot());
            taken += self.drain();
        }
        let events = &mut self.batch.events;
        self.order.release(|event| events.push(event));
        let (lost, now) = (self.output.lost(), monotonic());
        if lost > self.lost {
            let (from, before) = self
                .batch
                .lost
                .map_or((self.checked, 0), |(from, _, n)| (from, n));
            self.batch.lost = Some((from, now, before + lost - self.lost));
            self.lost = lost;
        }
        self.checked = now;
        taken
    }

    fn drain(&mut self) -> usize {
        for taken in 0..ROUND {
            let Some(item) = self.output.ring.next() else {
                return taken;
            };
            let number = |at: usize| {
                item[at..]
                    .first_chunk()
                    .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
            };
            if item.len() < RECORD || item.len() > RECORD + HEADERS {
                continue;
            }
            // The first fields of the record: clock, number on its processor, cookie, processor.
            let cpu = number(24) as u32;
            self.order.take((number(0), cpu, number(8)), (*item).into());
        }
        ROUND
    }

    /// Sends what is ready. False if nobody is there any more.
    fn send(&mut self) -> bool {
        if self.batch.events.is_empty() && self.batch.lost.is_none() {
            return true;
        }
        // Waits while the channel is full: the ring takes what comes meanwhile.
        self.sender.send(std::mem::take(&mut self.batch)).is_ok()
    }

    /// The probes are detached: what is in the ring is the rest, once every claim is cleared.
    fn last_rounds(mut self, skipped: u64) {
        for _ in 0..LAST_ROUNDS {
            let taken = self.round();
            let open = self.output.snapshot();
            let done = open
                .processors
                .iter()
                .all(|(cells, _)| cells.iter().all(|cell| *cell == 0));
            if done && taken == 0 {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let events = &mut self.batch.events;
        self.order.finish(|event| events.push(event));
        if skipped > 0 {
            let (from, to, lost) = self.batch.lost.unwrap_or((Nanos(0), self.checked, 0));
            self.batch.lost = Some((from, to, lost + skipped));
        }
        self.shared
            .unordered
            .store(self.output.unordered(), Ordering::Release);
        // Nobody may be there any more.
        let _ = self.sender.send(self.batch);
    }
}
