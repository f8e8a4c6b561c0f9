//! Keeps a run while it is measured, without ever holding the measurement up.

use crate::{Archive, Error, NamedDocument};
use model::{Direction, Leg, Nanos, Run, RunId, Sample, Side};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Samples are committed as they come, but not more often than this: at 10 ms and two ends a commit
/// for each would cost more than the samples. So a killed process loses what came in this time or
/// since the last sample, whichever is longer.
pub const GROUP: Duration = Duration::from_millis(200);

/// Notes that may wait for a slow disk; one more is left out, and comes with the end of its leg.
const QUEUE: usize = 4096;

/// Writes a run into the archive from a thread of its own. No call here but [`Recorder::finish`]
/// waits for the disk or for another process. When the archive fails, recording stops and
/// [`Recorder::trouble`] has the reason; [`Recorder::finish`] tries again to store the whole run.
///
/// Dropped without [`Recorder::finish`], it leaves the run as unfinished; if no leg had begun, it
/// takes the run back.
#[derive(Debug)]
pub struct Recorder {
    notes: Option<SyncSender<Note>>,
    writer: Option<JoinHandle<Archive>>,
    trouble: Arc<Mutex<Option<Error>>>,
}

#[derive(Debug)]
enum Note {
    Update(Box<Run>),
    StartLeg(usize, Direction, Nanos),
    Sample(usize, Side, Box<Sample>),
    FinishLeg(usize, Box<Leg>),
    Finish,
}

impl Recorder {
    /// Begins `run` in the archive. Its legs are left out; they come as they happen.
    ///
    /// # Errors
    /// Those of [`Archive::begin`]: the run can be measured, but is not kept.
    pub fn start(mut archive: Archive, run: &Run) -> Result<Recorder, Error> {
        archive.begin(run)?;
        let (notes, taken) = sync_channel(QUEUE);
        let trouble = Arc::new(Mutex::new(None));
        let writer = Writer {
            archive,
            id: run.id.clone(),
            trouble: Arc::clone(&trouble),
            measured: false,
            failed: false,
        };
        let writer = sys::spawn("archive", move || writer.run(&taken)).map_err(Error::Thread)?;
        Ok(Recorder {
            notes: Some(notes),
            writer: Some(writer),
            trouble,
        })
    }

    /// Keeps what is known of the run by now beside its legs: the hosts, warnings.
    pub fn update(&mut self, run: &Run) {
        let bare = Run {
            legs: Vec::new(),
            ..run.clone()
        };
        self.note(Note::Update(Box::new(bare)));
    }

    /// A leg begins, `started` after the start of the run.
    pub fn start_leg(&mut self, index: usize, direction: Direction, started: Nanos) {
        self.note(Note::StartLeg(index, direction, started));
    }

    /// A sample of a leg that has begun.
    pub fn sample(&mut self, index: usize, side: Side, sample: &Sample) {
        self.note(Note::Sample(index, side, Box::new(sample.clone())));
    }

    /// A leg is over.
    pub fn finish_leg(&mut self, index: usize, leg: &Leg) {
        self.note(Note::FinishLeg(index, Box::new(leg.clone())));
    }

    /// Why recording stopped, once: the first time that this is asked after it happened.
    pub fn trouble(&mut self) -> Option<Error> {
        sys::lock(&self.trouble).take()
    }

    /// Stores the whole run on the disk in its given state, and waits until that is done. After
    /// trouble it tries again: another process may have let go, someone may have made room. Gives the archive back.
    ///
    /// # Errors
    /// Why the run is not in the archive as a whole; samples that were kept before stay, as an
    /// unfinished run.
    pub fn finish(mut self, run: &Run) -> Result<Archive, Error> {
        if let Some(notes) = self.notes.take() {
            // Fails only if the thread is gone, and then joining returns the cause.
            let _ = notes.send(Note::Finish);
        }
        let writer = self.writer.take().expect("only this and the drop take it");
        match writer.join() {
            Ok(mut archive) => archive.finish(run).map(|()| archive),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Leaves a note, or leaves it out if too many wait.
    fn note(&mut self, note: Note) {
        if let Some(notes) = &self.notes {
            let _ = notes.try_send(note);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.notes = None;
        if let Some(writer) = self.writer.take() {
            // Whoever drops it has no more interest in how it went.
            let _ = writer.join();
        }
    }
}

struct Writer {
    archive: Archive,
    id: RunId,
    trouble: Arc<Mutex<Option<Error>>>,
    /// A leg has begun.
    measured: bool,
    failed: bool,
}

impl Writer {
    /// Writes until the end, then gives the archive back.
    fn run(mut self, notes: &Receiver<Note>) -> Archive {
        let mut waiting: Vec<(usize, Side, Box<Sample>)> = Vec::new();
        // When samples may be committed again; the first after a pause is committed at once.
        let mut due = Instant::now();
        loop {
            let note = if waiting.is_empty() {
                notes.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                notes.recv_timeout(due.saturating_duration_since(Instant::now()))
            };
            let note = match note {
                Ok(Note::Sample(index, side, sample)) => {
                    waiting.push((index, side, sample));
                    if Instant::now() < due {
                        continue;
                    }
                    None
                }
                Ok(other) => Some(other),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.commit(&mut waiting);
                    if !self.measured {
                        self.write(|archive, id| {
                            archive.delete(&NamedDocument::Run(id.to_owned()))
                        });
                    }
                    return self.archive;
                }
            };
            self.commit(&mut waiting);
            due = Instant::now() + GROUP;
            self.measured |= matches!(note, Some(Note::StartLeg(..)));
            match note {
                None => {}
                Some(Note::Finish) => return self.archive,
                Some(note) => self.write(|archive, id| match &note {
                    Note::Update(run) => archive.update(run),
                    Note::StartLeg(index, direction, started) => {
                        archive.start_leg(id, *index, *direction, *started)
                    }
                    Note::FinishLeg(index, leg) => archive.finish_leg(id, *index, leg),
                    Note::Sample(..) | Note::Finish => Ok(()),
                }),
            }
        }
    }

    fn commit(&mut self, waiting: &mut Vec<(usize, Side, Box<Sample>)>) {
        if !waiting.is_empty() {
            let samples = waiting.iter().map(|(index, side, s)| (*index, *side, &**s));
            self.write(|archive, id| archive.samples(id, samples));
            waiting.clear();
        }
    }

    /// After the first failure nothing more is tried before the end: each try could wait for seconds.
    fn write(&mut self, work: impl FnOnce(&mut Archive, &str) -> Result<(), Error>) {
        if self.failed {
            return;
        }
        if let Err(error) = work(&mut self.archive, &self.id) {
            self.failed = true;
            *sys::lock(&self.trouble) = Some(error);
        }
    }
}
