//! The thread that empties the logs of the probes: before ordinary work, and as often as it was asked to.

use super::books::Books;
use super::connections::Connections;
use super::file::{Packed, Packer, what};
use super::order::{Key, Sequencer};
use super::probes::{Output, Probes};
use super::record::{Clock, Event, HEADERS, WORD};
use super::worker::{Orders, Worker};
use super::{Error, Options, monotonic};
use model::{Comm, Nanos, What};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// The shortest pause after a round, and the longest when no events come (or longer, if it was asked for).
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Bytes after which a batch is handed on: a file takes long pieces at half the cost.
const FULL: usize = 256 * 1024;

/// Batches that can wait: 32 MB.
const BATCHES: usize = 128;

/// Batches whose room is kept for others.
const SPARE: usize = 4;

/// Rounds without progress at the end, until a producer that never finishes is given up.
const LAST_ROUNDS: u32 = 1_000;

/// Processes of a batch that are told.
const MOST_USERS: usize = 16;

/// Events in true order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// As they stand in a file ([`Packer`]).
    pub packed: Packed,
    /// How many belong to a connection.
    pub events: u64,
    /// The processes that own their sockets, by the threads' names, and when each was seen last.
    pub users: Vec<(u32, Comm, Nanos)>,
    /// What was lost: not before, not after, how many.
    pub lost: Option<(Nanos, Nanos, u64)>,
    /// Behind the last one.
    pub books: Option<Books>,
}

pub(super) struct Reader {
    pub(super) worker: Worker<Batch>,
    /// Room of batches that were told.
    spare: SyncSender<Packed>,
}

impl Reader {
    pub(super) fn start(
        probes: Probes,
        output: Output,
        options: &Options,
        clock: Clock,
    ) -> Result<Reader, Error> {
        let (spare, spares) = sync_channel(SPARE);
        let round = Round {
            order: Sequencer::new(output.processors),
            telling: Telling {
                output,
                packer: Packer::default(),
                behind: [[0; WORD]; HEADERS / WORD],
                batch: Batch {
                    packed: Packed::with_room(FULL),
                    ..Batch::default()
                },
                spares,
                keeping: Keeping {
                    clock,
                    connections: Connections::default(),
                    books: Books::default(),
                },
            },
            late: options.late.into(),
            lost: 0,
            checked: monotonic(),
            sent: Nanos(0),
        };
        let run = move |sender: &SyncSender<Batch>, orders: &Orders| {
            round.run(probes, sender, orders);
        };
        Ok(Reader {
            worker: Worker::start("trace", BATCHES, run)?,
            spare,
        })
    }

    /// Takes back the room of a batch: else every one would touch new memory.
    pub(super) fn reuse(&self, mut packed: Packed) {
        packed.clear();
        // Enough of them are there, or nobody needs any more.
        let _ = self.spare.try_send(packed);
    }
}

/// The state of the thread.
struct Round {
    order: Sequencer,
    telling: Telling,
    late: Nanos,
    lost: u64,
    checked: Nanos,
    /// When the last batch was handed on that was not full.
    sent: Nanos,
}

/// Where events lie, and where they go.
struct Telling {
    output: Output,
    packer: Packer,
    /// Room for what stands behind an event.
    behind: [[u8; WORD]; HEADERS / WORD],
    batch: Batch,
    spares: Receiver<Packed>,
    keeping: Keeping,
}

/// What keeps the books.
struct Keeping {
    clock: Clock,
    connections: Connections,
    books: Books,
}

/// Nobody takes batches any more.
struct Gone;

impl Round {
    fn run(mut self, probes: Probes, sender: &SyncSender<Batch>, orders: &Orders) {
        orders.run_first();
        let places = self.telling.output.places as u64;
        let few = self.telling.output.near() as u64 * 3 / 4;
        // A processor makes less than an event each microsecond.
        let longest = Duration::from_micros(places)
            .min(self.late.into())
            .max(PAUSE);
        let mut pause = PAUSE;
        while !orders.to_stop() {
            let Ok(taken) = self.round(sender) else {
                return;
            };
            // So that about as many come the next time, if that is not too late.
            pause = match taken {
                0 => (pause * 2).min(LONGEST_PAUSE.max(longest)),
                taken => pause
                    .mul_f64(few as f64 / taken as f64)
                    .clamp(PAUSE, longest),
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
            .take(&output.snapshot(), |cpu, place| output.find(cpu, place));
        let telling = &mut self.telling;
        self.order
            .release(|event, soon| telling.tell(event, soon, sender))?;
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
        if now.since(self.sent) >= self.late {
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
        self.order
            .finish(|event, soon| telling.tell(event, soon, sender))?;
        if skipped > 0 {
            let (from, to, lost) = telling.batch.lost.unwrap_or((Nanos(0), self.checked, 0));
            telling.batch.lost = Some((from, to, lost + skipped));
        }
        telling.batch.books = Some(std::mem::take(&mut telling.keeping.books));
        telling.send(sender)
    }
}

impl Telling {
    fn tell(
        &mut self,
        event: &Key,
        soon: Option<&Key>,
        sender: &SyncSender<Batch>,
    ) -> Result<(), Gone> {
        if let Some(soon) = soon {
            sys::cache::fetch(self.output.event(soon.at).0);
        }
        let (words, device, headers) = self.output.event(event.at);
        let word = |n: usize| words[n].load(Ordering::Relaxed).to_ne_bytes();
        let behind = match what(word) {
            What::Dropped => device,
            _ => headers,
        };
        for (from, to) in behind.iter().zip(&mut self.behind) {
            *to = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        let behind = self.behind[..behind.len()].as_flattened();
        let event = self.packer.pack(word, behind, &mut self.batch.packed);
        self.keeping.book(event, &mut self.batch);
        match self.batch.packed.bytes().len() < FULL {
            true => Ok(()),
            false => self.send(sender),
        }
    }

    /// Hands on what there is. While nobody takes any more it waits in the batch, and once that is full for somebody: the
    /// logs take what comes meanwhile.
    fn send(&mut self, sender: &SyncSender<Batch>) -> Result<(), Gone> {
        let batch = std::mem::take(&mut self.batch);
        let is_full = batch.packed.bytes().len() >= FULL || batch.books.is_some();
        if !is_full && batch.packed.bytes().is_empty() && batch.lost.is_none() {
            self.batch = batch;
            return Ok(());
        }
        match sender.try_send(batch) {
            Err(TrySendError::Full(batch)) if !is_full => {
                self.batch = batch;
                return Ok(());
            }
            Err(TrySendError::Full(batch)) => sender.send(batch).map_err(|_| Gone)?,
            Err(TrySendError::Disconnected(_)) => return Err(Gone),
            Ok(()) => {}
        }
        let spare = self.spares.try_recv();
        self.batch.packed = spare.unwrap_or_else(|_| Packed::with_room(FULL));
        Ok(())
    }
}

impl Keeping {
    #[inline(always)]
    fn book(&mut self, event: Event<'_>, batch: &mut Batch) {
        let Some(place) = self.connections.find(event) else {
            return;
        };
        batch.events += 1;
        if let Some(connection) = &place.told {
            self.books.open(connection);
        }
        if let Some(tally) = event.tally(self.clock) {
            self.books.count(place.id, &tally);
        }
        // A process that owns a socket sends by it, if only acknowledgements.
        if event.kind() != What::Received {
            batch.see(event, event.at(self.clock));
        }
    }
}

impl Batch {
    fn see(&mut self, event: Event<'_>, at: Nanos) {
        let pid = event.pid();
        if let Some(user) = self.users.iter_mut().find(|(known, ..)| *known == pid) {
            user.2 = at;
        } else if pid != 0 && self.users.len() < MOST_USERS {
            self.users.push((pid, Comm::new(&event.comm()), at));
        }
    }
}
