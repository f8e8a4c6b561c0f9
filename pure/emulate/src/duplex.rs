//! Both directions of a link, coupled where only one can send at a time.

use crate::seed::seed_of;
use crate::{Delivery, Direction, EmulatedPacket, EmulatorEvent, Link, Pipe, Shape};
use model::Nanos;

/// Both directions of a link. Where they are not half-duplex, just two pipes.
///
/// A half-duplex line is one line: while a frame goes one way, the other way waits, and where both
/// wait they take turns, frame by frame.
#[derive(Debug)]
pub struct Duplex<T> {
    /// Forward, then backward.
    pipes: [Pipe<T>; 2],
    shared: bool,
    last: Direction,
}

impl<T: Clone> Duplex<T> {
    /// A link at work. The seed is the scenario's: each direction of each link has its own from it and
    /// the link's name, so that adding a link changes nothing on the others.
    pub fn new(link: &Link, seed: u64) -> Duplex<T> {
        Duplex {
            pipes: [
                Pipe::new(&link.forward, seed_of(seed, &link.name, 0)),
                Pipe::new(&link.backward, seed_of(seed, &link.name, 1)),
            ],
            shared: link.forward.half_duplex && link.backward.half_duplex,
            last: Direction::Backward,
        }
    }

    /// See [`Pipe::offer`].
    pub fn offer(&mut self, now: Nanos, direction: Direction, packet: EmulatedPacket<T>) {
        self.advance(now);
        self.pipe_mut(direction).offer(now, packet);
        self.share(direction);
    }

    /// See [`Pipe::due`]: the earlier of both.
    pub fn due(&self) -> Option<Nanos> {
        self.pipes.iter().filter_map(Pipe::due).min()
    }

    /// See [`Pipe::take`].
    pub fn take(&mut self, now: Nanos) -> Option<(Direction, Delivery<T>)> {
        self.advance(now);
        Direction::BOTH
            .into_iter()
            .find_map(|d| Some((d, self.pipe_mut(d).take(now)?)))
    }

    /// See [`Pipe::change`].
    pub fn change(&mut self, now: Nanos, direction: Direction, shape: &Shape) {
        self.advance(now);
        self.pipe_mut(direction).change(now, shape);
        self.share(direction);
    }

    /// One direction, to read.
    pub fn pipe(&self, direction: Direction) -> &Pipe<T> {
        &self.pipes[direction as usize]
    }

    /// See [`Pipe::drain_log`].
    pub fn drain_log(&mut self, direction: Direction) -> Vec<EmulatorEvent> {
        self.pipe_mut(direction).drain_log()
    }

    /// Lets both directions of a shared line happen in the order of time.
    fn advance(&mut self, now: Nanos) {
        // Both clocks begin together, whichever way the first packet goes.
        self.pipes.iter_mut().for_each(|pipe| pipe.begin(now));
        if !self.shared {
            return;
        }
        loop {
            let [forward, backward] = Direction::BOTH.map(|d| {
                let next = self.pipe(d).next_step();
                next.filter(|at| *at <= now)
            });
            let direction = match (forward, backward) {
                (None, None) => return,
                (Some(_), None) => Direction::Forward,
                (None, Some(_)) => Direction::Backward,
                (Some(f), Some(b)) if f == b => self.last.other(),
                (Some(f), Some(b)) if f < b => Direction::Forward,
                _ => Direction::Backward,
            };
            self.pipe_mut(direction).step_by(now);
            self.share(direction);
        }
    }

    /// The other direction waits for what this one sends.
    fn share(&mut self, direction: Direction) {
        if self.shared {
            let free = self.pipe(direction).busy_until();
            self.pipe_mut(direction.other()).wait_until(free);
            self.last = direction;
        }
    }

    fn pipe_mut(&mut self, direction: Direction) -> &mut Pipe<T> {
        &mut self.pipes[direction as usize]
    }
}
