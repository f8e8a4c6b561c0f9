//! Both directions of a link, coupled where only one can send at a time.

use crate::{Delivery, Direction, Link, Packet, Pipe, Shape};
use model::Nanos;

/// Both directions of a link. Where neither is half-duplex, just two pipes.
#[derive(Debug)]
pub struct Duplex<T> {
    forward: Pipe<T>,
    backward: Pipe<T>,
}

impl<T: Clone> Duplex<T> {
    /// A link at work. The seed is the scenario's: each link and direction gets its own from it and the link's name.
    pub fn new(link: &Link, seed: u64) -> Duplex<T> {
        Duplex {
            forward: Pipe::new(&link.forward, seed),
            backward: Pipe::new(&link.backward, seed),
        }
    }

    /// See [`Pipe::offer`].
    pub fn offer(&mut self, now: Nanos, direction: Direction, packet: Packet<T>) {
        self.pipe_mut(direction).offer(now, packet);
    }

    /// See [`Pipe::due`]: the earlier of both.
    pub fn due(&self) -> Option<Nanos> {
        [self.forward.due(), self.backward.due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// See [`Pipe::take`].
    pub fn take(&mut self, now: Nanos) -> Option<(Direction, Delivery<T>)> {
        Direction::BOTH
            .into_iter()
            .find_map(|d| Some((d, self.pipe_mut(d).take(now)?)))
    }

    /// See [`Pipe::change`].
    pub fn change(&mut self, now: Nanos, direction: Direction, shape: &Shape) {
        self.pipe_mut(direction).change(now, shape);
    }

    /// One direction, to read.
    pub fn pipe(&self, direction: Direction) -> &Pipe<T> {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Backward => &self.backward,
        }
    }

    /// See [`Pipe::drain_log`].
    pub fn drain_log(&mut self, direction: Direction) -> Vec<crate::Event> {
        self.pipe_mut(direction).drain_log()
    }

    fn pipe_mut(&mut self, direction: Direction) -> &mut Pipe<T> {
        match direction {
            Direction::Forward => &mut self.forward,
            Direction::Backward => &mut self.backward,
        }
    }
}
