//! Both directions of a link, coupled where an end is half-duplex.

use crate::chance::seed_of;
use crate::{Delivery, Direction, Event, Link, Packet, Pipe, Shape};
use model::Nanos;

/// Both directions of a link. Where no end is half-duplex, just two pipes.
///
/// A half-duplex line is one line: while a frame goes one way, the other way waits, and where both
/// wait they take turns, frame by frame. Where one end alone is half-duplex, it waits and the other
/// does not: a frame that begins while the half-duplex end sends collides, and is lost. So is what the
/// half-duplex end sent, unless the collision came early: then it tries again after a random wait (IEEE
/// 802.3, 4.2.8). The line has no length for this: delay lies behind it.
#[derive(Debug)]
pub struct Duplex<T> {
    forward: Pipe<T>,
    backward: Pipe<T>,
    line: Line,
    last: Direction,
}

/// What the directions of a link share.
#[derive(Clone, Copy, Debug)]
enum Line {
    Nothing,
    /// They take turns.
    Turns,
    /// Only the end that sends this way knows that they should.
    Mismatch(Direction),
}

impl<T: Clone> Duplex<T> {
    /// A link at work. The seed is the scenario's: each direction of each link has its own from it and
    /// the link's name, so that adding a link changes nothing on the others.
    pub fn new(link: &Link, seed: u64) -> Duplex<T> {
        let mut duplex = Duplex {
            forward: Pipe::new(&link.forward, seed_of(seed, &link.name, 0)),
            backward: Pipe::new(&link.backward, seed_of(seed, &link.name, 1)),
            line: match (link.forward.half_duplex, link.backward.half_duplex) {
                (false, false) => Line::Nothing,
                (true, true) => Line::Turns,
                (true, false) => Line::Mismatch(Direction::Forward),
                (false, true) => Line::Mismatch(Direction::Backward),
            },
            last: Direction::Backward,
        };
        if let Line::Mismatch(half) = duplex.line {
            duplex.pipe_mut(half).listen();
        }
        duplex
    }

    /// See [`Pipe::offer`].
    pub fn offer(&mut self, now: Nanos, direction: Direction, packet: Packet<T>) {
        self.advance(now);
        self.pipe_mut(direction).offer(now, packet);
        self.share(direction);
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
        match direction {
            Direction::Forward => &self.forward,
            Direction::Backward => &self.backward,
        }
    }

    /// See [`Pipe::drain_log`].
    pub fn drain_log(&mut self, direction: Direction) -> Vec<Event> {
        self.pipe_mut(direction).drain_log()
    }

    /// Lets both directions of a shared line happen in the order of time.
    fn advance(&mut self, now: Nanos) {
        // Both clocks begin together, whichever way the first packet goes.
        self.forward.begin(now);
        self.backward.begin(now);
        if matches!(self.line, Line::Nothing) {
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
                (Some(f), Some(b)) if f == b => match self.line {
                    // What begins at the same moment it cannot hear.
                    Line::Mismatch(half) => half,
                    _ => self.last.other(),
                },
                (Some(f), Some(b)) if f < b => Direction::Forward,
                _ => Direction::Backward,
            };
            self.pipe_mut(direction).step_by(now);
            self.share(direction);
        }
    }

    /// The other direction waits for what this one sends, or collides with it.
    fn share(&mut self, direction: Direction) {
        match self.line {
            Line::Nothing => return,
            Line::Turns => {
                let (_, free) = self.pipe(direction).busy();
                self.pipe_mut(direction.other()).wait_until(free);
            }
            Line::Mismatch(half) => {
                let (began, free) = self.pipe(direction).busy();
                let listening = self.pipe_mut(half);
                if let Some(began) = began.filter(|_| direction != half) {
                    listening.hear(began);
                    listening.wait_until(free);
                }
                let until = self.pipe(half).on_air_until();
                self.pipe_mut(half.other()).collide_until(until);
            }
        }
        self.last = direction;
    }

    fn pipe_mut(&mut self, direction: Direction) -> &mut Pipe<T> {
        match direction {
            Direction::Forward => &mut self.forward,
            Direction::Backward => &mut self.backward,
        }
    }
}
