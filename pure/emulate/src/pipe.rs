//! One direction of a link at work.

use crate::{Delivery, Event, Kept, Packet, Shape, Truth};
use model::Nanos;
use std::collections::VecDeque;

/// One direction of a link. `T` is the packet's own bytes, carried along untouched.
///
/// Moments count from any fixed point and never go back. Nothing happens between calls: what should
/// have happened since the last one is done, in its order and at its own moments, by the next.
#[derive(Debug)]
pub struct Pipe<T> {
    shape: Shape,
    truth: Truth,
    flight: VecDeque<Delivery<T>>,
}

impl<T: Clone> Pipe<T> {
    /// A pipe whose time begins at zero. Give every direction of every link its own seed.
    pub fn new(shape: &Shape, seed: u64) -> Pipe<T> {
        let _ = seed;
        Pipe {
            shape: shape.clone(),
            truth: Truth::default(),
            flight: VecDeque::new(),
        }
    }

    /// A packet enters.
    pub fn offer(&mut self, now: Nanos, packet: Packet<T>) {
        self.flight.push_back(Delivery {
            due: now + self.shape.delay,
            mark: false,
            kept: Kept::Whole,
            packet,
        });
    }

    /// No packet comes out before this moment, unless one is offered or the shape changes; none: the
    /// pipe is empty. [`take`](Pipe::take) may still find nothing then: ask again.
    pub fn due(&self) -> Option<Nanos> {
        self.flight.front().map(|d| d.due)
    }

    /// The next packet that has come out by `now`; call until there is none.
    pub fn take(&mut self, now: Nanos) -> Option<Delivery<T>> {
        if self.due()? > now {
            return None;
        }
        self.flight.pop_front()
    }

    /// From now on this shape. What is inside stays inside; what no longer fits the queue is dropped.
    pub fn change(&mut self, now: Nanos, shape: &Shape) {
        let _ = now;
        self.shape = shape.clone();
    }

    /// True if super-packets should be cut before they are offered: a fault here moves single frames,
    /// or a whole super-packet would take so long on the line that its last frame would hold up its first.
    /// Otherwise they may be offered whole, and [`Kept`] says which segments to pass on.
    pub fn needs_single_frames(&self) -> bool {
        false
    }

    /// What was done so far.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// The log since the last call. It holds a bounded number of entries: what did not fit is counted.
    pub fn drain_log(&mut self) -> Vec<Event> {
        Vec::new()
    }
}
