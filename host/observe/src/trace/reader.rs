//! The thread that empties the logs of the probes: before ordinary work, and as often as ordered. It joins
//! events to their connections, once, and hands them on in batches.

use super::batch::{Batch, Content, FULL, Users};
use super::completeness::TraceCompleteness;
use super::connections::Connections;
use super::file::{Packer, what};
use super::order::{Key, Sequencer};
use super::probes::{ProbeOutput, Probes};
use super::record::{Clock, EncodedRecord, HEADERS, RecordPlace, WORD};
use super::worker::{Orders, Worker};
use super::{Error, TraceOptions, monotonic};
use model::{Comm, Lost, Nanos, What};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::Duration;

/// The shortest pause after a round, and the longest when no events come (or longer, if it was asked for).
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Rounds without progress at the end, until a producer that never finishes is given up.
const LAST_ROUNDS: u32 = 1_000;

/// Starts the thread that reads the probes.
pub(super) fn start(
    probes: Probes,
    output: ProbeOutput,
    options: &TraceOptions,
    clock: Clock,
) -> Result<Worker, Error> {
    let is_packed = options.packed;
    let late = options.late.into();
    Worker::start("trace", move |sender, spares, orders| {
        let round = ReadRound {
            order: Sequencer::new(output.processors),
            batcher: Batcher {
                output,
                is_packed,
                packer: Packer::default(),
                behind: [[0; WORD]; HEADERS / WORD],
                batch: Batch {
                    content: Content::with_room(is_packed),
                    ..Batch::default()
                },
                spares,
                account: TraceAccount {
                    clock,
                    connections: Connections::default(),
                    completeness: TraceCompleteness::default(),
                },
            },
            late,
            lost: 0,
            checked: monotonic().since(clock.start),
            sent: Nanos(0),
        };
        round.run(probes, sender, orders);
    })
}

/// The state of the thread.
struct ReadRound {
    order: Sequencer,
    batcher: Batcher,
    late: Nanos,
    lost: u64,
    checked: Nanos,
    /// When the last batch was handed on that was not full.
    sent: Nanos,
}

/// Where events lie, and where they go.
struct Batcher {
    output: ProbeOutput,
    is_packed: bool,
    packer: Packer,
    /// Room for what stands behind an event.
    behind: [[u8; WORD]; HEADERS / WORD],
    batch: Batch,
    spares: Receiver<Content>,
    account: TraceAccount,
}

/// What is known of the connections of the events so far.
struct TraceAccount {
    clock: Clock,
    connections: Connections,
    completeness: TraceCompleteness,
}

/// Nobody takes batches any more.
struct Gone;

impl ReadRound {
    fn run(mut self, probes: Probes, sender: &SyncSender<Batch>, orders: &Orders) {
        orders.run_first();
        let places = self.batcher.output.places as u64;
        let few = self.batcher.output.near() as u64 * 3 / 4;
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

    /// Reads the logs, and hands on what is complete. Returns how many events the fullest had.
    fn round(&mut self, sender: &SyncSender<Batch>) -> Result<u64, Gone> {
        let output = &self.batcher.output;
        let most = self
            .order
            .take(&output.snapshot(), |cpu, place| output.find(cpu, place));
        let batcher = &mut self.batcher;
        self.order
            .release(|event, soon| batcher.take(event, soon, sender))?;
        batcher.output.give_back(&self.order.needed());
        let now = monotonic().since(batcher.account.clock.start);
        let lost = batcher.output.lost();
        if lost > self.lost {
            batcher.batch.loses(Lost {
                from: self.checked,
                to: now,
                events: lost - self.lost,
            });
            self.lost = lost;
        }
        self.checked = now;
        if now.since(self.sent) >= self.late {
            batcher.send(sender)?;
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
        let batcher = &mut self.batcher;
        self.order
            .finish(|event, soon| batcher.take(event, soon, sender))?;
        if skipped > 0 {
            batcher.batch.loses(Lost {
                from: Nanos(0),
                to: self.checked,
                events: skipped,
            });
        }
        batcher.batch.completeness = Some(std::mem::take(&mut batcher.account.completeness));
        batcher.send(sender)
    }
}

impl Batcher {
    /// Takes the next event, and has the one that comes soon after fetched.
    fn take(
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
        let (account, batch) = (&mut self.account, &mut self.batch);
        match &mut batch.content {
            Content::Packed(packed) => {
                let event = self.packer.pack(word, behind, packed);
                if let Some(place) = account.connections.find(event) {
                    batch.events += 1;
                    account.count(event, &place, &mut batch.users);
                }
            }
            Content::Plain(plain) => plain.push(word, behind, |event| {
                let place = account.connections.place(event)?;
                batch.events += 1;
                account.count(event, &place, &mut batch.users);
                Some(place)
            }),
            // Those of packets do not come by this thread.
            Content::Records(_) => {}
        }
        match self.batch.content.len() < FULL {
            true => Ok(()),
            false => self.send(sender),
        }
    }

    /// Hands on what there is. While nobody takes any more it waits in the batch, and once that is full for somebody: the
    /// logs take what comes meanwhile.
    fn send(&mut self, sender: &SyncSender<Batch>) -> Result<(), Gone> {
        let batch = std::mem::take(&mut self.batch);
        let is_full = batch.content.len() >= FULL || batch.completeness.is_some();
        if !is_full && batch.content.len() == 0 && batch.lost.is_none() {
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
        self.batch.content = spare.unwrap_or_else(|_| Content::with_room(self.is_packed));
        Ok(())
    }
}

impl TraceAccount {
    #[inline(always)]
    fn count(&mut self, event: EncodedRecord<'_>, place: &RecordPlace, users: &mut Users) {
        if let Some(connection) = &place.new {
            self.completeness.open(connection);
        }
        if let Some(tally) = event.tally(self.clock) {
            self.completeness.count(place.id, &tally);
        }
        // A process that owns a socket sends by it, if only acknowledgements.
        if event.kind() != What::Received {
            users.push(
                event.pid(),
                || Comm::new(&event.comm()),
                event.at(self.clock),
            );
        }
    }
}
