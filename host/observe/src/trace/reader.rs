//! The thread that empties the ring: before ordinary work, and as often as it was asked to.

use super::order::Sequencer;
use super::probes::{Output, Probes};
use super::record::{Event, HEADERS, RECORD};
use super::worker::{Orders, Worker};
use super::{Error, Options, monotonic};
use model::Nanos;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// The shortest pause after a round, and the longest when no events come (or longer, if it was asked for).
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Events taken out of the ring in one go, so that a round ends.
const ROUND: usize = 16_384;

/// Rounds without progress at the end, until a producer that never finishes is given up.
const LAST_ROUNDS: u32 = 1_000;

/// Events in true order, each as the probes wrote it.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    events: Vec<Range<usize>>,
    /// What was lost: not before, not after, how many.
    pub lost: Option<(Nanos, Nanos, u64)>,
}

impl Batch {
    pub(super) fn events(&self) -> impl Iterator<Item = &[u8]> {
        self.events.iter().map(|place| &self.bytes[place.clone()])
    }
}

pub(super) struct Reader {
    pub(super) worker: Worker<Batch>,
    unordered: Arc<AtomicU64>,
}

impl Reader {
    pub(super) fn start(
        probes: Probes,
        output: Output,
        options: &Options,
    ) -> Result<Reader, Error> {
        let unordered = Arc::new(AtomicU64::new(0));
        let round = Round {
            order: Sequencer::new(output.processors),
            output,
            bytes: Vec::new(),
            batch: Batch::default(),
            late: options.late.max(PAUSE),
            much: options.ring_bytes as usize / 4,
            lost: 0,
            checked: monotonic(),
            unordered: unordered.clone(),
        };
        let run = move |sender: &SyncSender<Batch>, orders: &Orders| {
            round.run(probes, sender, orders);
        };
        Ok(Reader {
            worker: Worker::start("trace", run)?,
            unordered,
        })
    }

    /// Events that were told out of order, once the last batch came.
    pub(super) fn unordered(&self) -> u64 {
        self.unordered.load(Ordering::Acquire)
    }
}

/// The state of the thread.
struct Round {
    output: Output,
    order: Sequencer<Range<usize>>,
    /// Where the events lie that the sequencer holds.
    bytes: Vec<u8>,
    batch: Batch,
    late: Duration,
    /// Bytes in one round after which the ring might overflow.
    much: usize,
    lost: u64,
    checked: Nanos,
    unordered: Arc<AtomicU64>,
}

impl Round {
    fn run(mut self, probes: Probes, sender: &SyncSender<Batch>, orders: &Orders) {
        orders.run_first();
        let mut pause = PAUSE;
        while !orders.to_stop() {
            let taken = self.round();
            if !self.send(sender) {
                return;
            }
            pause = match taken {
                0 => (pause * 2).min(LONGEST_PAUSE.max(self.late)),
                taken if taken < self.much => self.late,
                _ => PAUSE,
            };
            std::thread::sleep(pause);
        }
        let skipped = probes.skipped();
        drop(probes);
        self.last_rounds(skipped, sender);
    }

    /// Empties the ring, and releases what is complete. Returns how many bytes came.
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
        let before = self.bytes.len();
        for _ in 0..ROUND {
            let Some(item) = self.output.ring.next() else {
                break;
            };
            let Some(event) = Event::of(&item).filter(|_| item.len() <= RECORD + HEADERS) else {
                continue;
            };
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&item);
            self.order
                .take((event.ts(), event.cpu()), start..self.bytes.len());
        }
        self.bytes.len() - before
    }

    /// The batch, with the bytes of its events; those that are held back keep theirs.
    fn batch(&mut self) -> Batch {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for place in self.order.waiting() {
            let start = bytes.len();
            bytes.extend_from_slice(&self.bytes[place.clone()]);
            *place = start..bytes.len();
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.bytes = std::mem::replace(&mut self.bytes, bytes);
        batch
    }

    /// Sends what is ready. False if nobody is there any more.
    fn send(&mut self, sender: &SyncSender<Batch>) -> bool {
        if self.batch.events.is_empty() && self.batch.lost.is_none() {
            return true;
        }
        // Waits while the channel is full: the ring takes what comes meanwhile.
        let batch = self.batch();
        sender.send(batch).is_ok()
    }

    /// The probes are detached: what is in the ring is the rest, once every claim is cleared.
    fn last_rounds(mut self, skipped: u64, sender: &SyncSender<Batch>) {
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
        let mut batch = self.batch();
        // What is left lies in the bytes of its own.
        let rest = std::mem::take(&mut self.bytes);
        let start = batch.bytes.len();
        batch.bytes.extend(rest);
        self.order
            .finish(|place| batch.events.push(start + place.start..start + place.end));
        if skipped > 0 {
            let (from, to, lost) = batch.lost.unwrap_or((Nanos(0), self.checked, 0));
            batch.lost = Some((from, to, lost + skipped));
        }
        self.unordered
            .store(self.output.unordered(), Ordering::Release);
        // Nobody may be there any more.
        let _ = sender.send(batch);
    }
}
