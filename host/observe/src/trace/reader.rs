//! The thread that empties the logs of the probes: before ordinary work, and as often as it was asked to.

use super::file::{Packer, bytes};
use super::order::{Key, Sequencer};
use super::probes::{Output, Probes};
use super::record::{DEVICE, Event, HEADERS, WORD, WORDS};
use super::worker::{Orders, Worker};
use super::{Error, Options, monotonic};
use model::{Nanos, What};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// The shortest pause after a round, and the longest when no events come (or longer, if it was asked for).
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Bytes after which a batch is handed on: small enough to be used again from the heap.
const FULL: usize = 64 * 1024;

/// Batches that can wait: some 32 MB.
const BATCHES: usize = 512;

/// Rounds without progress at the end, until a producer that never finishes is given up.
const LAST_ROUNDS: u32 = 1_000;

/// Events in true order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// As they stand in a file ([`Packer`]).
    pub packed: Vec<u8>,
    /// What was lost: not before, not after, how many.
    pub lost: Option<(Nanos, Nanos, u64)>,
}

pub(super) struct Reader {
    pub(super) worker: Worker<Batch>,
}

impl Reader {
    pub(super) fn start(
        probes: Probes,
        output: Output,
        options: &Options,
    ) -> Result<Reader, Error> {
        let round = Round {
            order: Sequencer::new(output.processors),
            telling: Telling {
                output,
                packer: Packer::default(),
                batch: Batch::default(),
            },
            late: options.late,
            lost: 0,
            checked: monotonic(),
            sent: Nanos(0),
        };
        let run = move |sender: &SyncSender<Batch>, orders: &Orders| {
            round.run(probes, sender, orders);
        };
        Ok(Reader {
            worker: Worker::start("trace", BATCHES, run)?,
        })
    }
}

/// The state of the thread.
struct Round {
    order: Sequencer,
    telling: Telling,
    late: Duration,
    lost: u64,
    checked: Nanos,
    /// When the last batch was handed on that was not full.
    sent: Nanos,
}

/// Where events lie, and where they go.
struct Telling {
    output: Output,
    packer: Packer,
    batch: Batch,
}

/// Nobody takes batches any more.
struct Gone;

impl Round {
    fn run(mut self, probes: Probes, sender: &SyncSender<Batch>, orders: &Orders) {
        orders.run_first();
        let places = self.telling.output.places as u64;
        let few = self.telling.output.near() as u64 / 2;
        // A processor makes less than an event each microsecond.
        self.late = self.late.min(Duration::from_micros(places)).max(PAUSE);
        let mut pause = PAUSE;
        while !orders.to_stop() {
            let Ok(taken) = self.round(sender) else {
                return;
            };
            // So that about as many come the next time, if that is not too late.
            pause = match taken {
                0 => (pause * 2).min(LONGEST_PAUSE.max(self.late)),
                taken => pause
                    .mul_f64(few as f64 / taken as f64)
                    .clamp(PAUSE, self.late),
            };
            std::thread::sleep(pause);
        }
        let skipped = probes.skipped();
        drop(probes);
        // Nobody may be there any more.
        let _ = self.last_rounds(skipped, sender);
    }

    /// Looks into the logs, and tells what is complete. Returns how many events the fullest had.
    fn round(&mut self, sender: &SyncSender<Batch>) -> Result<u64, Gone> {
        let output = &self.telling.output;
        let most = self
            .order
            .take(&output.snapshot(), |cpu, place| output.clock_of(cpu, place));
        let telling = &mut self.telling;
        self.order.release(|event| telling.tell(event, sender))?;
        telling.output.give_back(&self.order.needed());
        let (lost, now) = (telling.output.lost(), monotonic());
        if lost > self.lost {
            let (from, before) = match telling.batch.lost {
                Some((from, _, before)) => (from, before),
                None => (self.checked, 0),
            };
            telling.batch.lost = Some((from, now, before + lost - self.lost));
            self.lost = lost;
        }
        self.checked = now;
        if now.since(self.sent) >= self.late.into() {
            telling.send(sender)?;
            self.sent = now;
        }
        Ok(most)
    }

    /// The probes are detached: what is in the logs is the rest, once all of it is written.
    fn last_rounds(mut self, skipped: u64, sender: &SyncSender<Batch>) -> Result<(), Gone> {
        for _ in 0..LAST_ROUNDS {
            let taken = self.round(sender)?;
            if taken == 0 && self.order.is_whole() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let telling = &mut self.telling;
        self.order.finish(|event| telling.tell(event, sender))?;
        if skipped > 0 {
            let (from, to, lost) = telling.batch.lost.unwrap_or((Nanos(0), self.checked, 0));
            telling.batch.lost = Some((from, to, lost + skipped));
        }
        telling.send(sender)
    }
}

impl Telling {
    fn tell(&mut self, (_, cpu, place): Key, sender: &SyncSender<Batch>) -> Result<(), Gone> {
        let Some((event, headers)) = self.output.event(cpu, place) else {
            return Ok(());
        };
        let (record, device) = event.split_at(WORDS);
        let mut words = [[0; WORD]; WORDS];
        read(record, &mut words);
        let mut behind = [[0; WORD]; HEADERS / WORD];
        let filled = match Event::new(bytes(&words), &[]).kind() {
            What::Dropped => read(&device[..DEVICE / WORD], &mut behind),
            _ => read(headers, &mut behind),
        };
        let behind = behind[..filled].as_flattened();
        self.packer.pack(&words, behind, &mut self.batch.packed);
        match self.batch.packed.len() < FULL {
            true => Ok(()),
            false => self.send(sender),
        }
    }

    /// Sends what there is. Waits while the channel is full: the logs take what comes meanwhile.
    fn send(&mut self, sender: &SyncSender<Batch>) -> Result<(), Gone> {
        if self.batch.packed.is_empty() && self.batch.lost.is_none() {
            return Ok(());
        }
        let next = Batch {
            packed: Vec::with_capacity(FULL + FULL / 8),
            lost: None,
        };
        let batch = std::mem::replace(&mut self.batch, next);
        sender.send(batch).map_err(|_| Gone)
    }
}

/// Reads words of a place that is written. Returns how many.
fn read(from: &[AtomicU64], to: &mut [[u8; WORD]]) -> usize {
    for (from, to) in from.iter().zip(to) {
        *to = from.load(Ordering::Relaxed).to_ne_bytes();
    }
    from.len()
}
