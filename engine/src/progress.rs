//! What happens during a run, told to whoever wants to show or keep it.

use model::{Direction, Fingerprint, Leg, Sample, Side, Warning};

/// One thing that happened.
pub enum Event<'a> {
    /// Both ends are known. Told once, before the first leg; far is `None` for a peer that cannot tell.
    Hosts {
        /// The host of the command.
        near: &'a Fingerprint,
        /// The other host.
        far: Option<&'a Fingerprint>,
    },
    /// A leg begins: its load starts now.
    LegStarted {
        /// Position in the run.
        index: usize,
        /// Which way.
        direction: Direction,
    },
    /// An end took a sample.
    Sample {
        /// Position of the leg in the run.
        index: usize,
        /// The end.
        side: Side,
        /// What it saw.
        sample: &'a Sample,
    },
    /// The trace of an end was taken, and is here.
    Traced {
        /// Position of the leg in the run.
        index: usize,
        /// The end.
        side: Side,
        /// The file, compressed.
        bytes: &'a [u8],
    },
    /// A leg is over.
    LegEnded {
        /// Position in the run.
        index: usize,
        /// All of it.
        leg: &'a Leg,
    },
    /// A doubt that the user should see at once.
    Warning(&'a Warning),
    /// Something to wait for, in words: a busy agent, a slow connection.
    Waiting(&'a str),
}

/// Is told what happens during a run.
pub trait Watcher {
    /// Takes one event. Must not block: it runs between two samples.
    fn event(&mut self, event: &Event<'_>);
}

/// Tells everything to each of several watchers.
pub struct Tee<'a>(pub Vec<&'a mut dyn Watcher>);

impl Watcher for Tee<'_> {
    fn event(&mut self, event: &Event<'_>) {
        for watcher in &mut self.0 {
            watcher.event(event);
        }
    }
}
