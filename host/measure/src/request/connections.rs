//! How a thread waits for its connections.

use crate::prelude::*;
use sys::poll::Epoll;

/// The event that the phase of the load has changed; the others are connections.
const WAKER: u64 = u64::MAX;

/// The connections that a thread waits for.
pub(super) struct ReadyConnections<'a> {
    streams: &'a [LoadStream<'a>],
    spin: Spin,
    epoll: Epoll,
    /// Those that the kernel takes no more from: waited for until they can be written.
    held_up: Vec<bool>,
}

impl<'a> ReadyConnections<'a> {
    /// All of these are waited for until something can be read, unless there is only one: it stays in blocking mode.
    /// Where that cannot be they end.
    pub(super) fn of(streams: &'a [LoadStream<'a>], spin: Spin) -> Option<ReadyConnections<'a>> {
        match ReadyConnections::new(streams, spin) {
            Ok(connections) => Some(connections),
            Err(e) => {
                for stream in streams {
                    stream.finish(Err(stream.broken(&e)));
                }
                None
            }
        }
    }

    fn new(streams: &'a [LoadStream<'a>], spin: Spin) -> io::Result<ReadyConnections<'a>> {
        let connections = ReadyConnections {
            streams,
            spin,
            epoll: Epoll::new()?,
            held_up: vec![false; streams.len()],
        };
        let waker = &streams[0].waker;
        connections.epoll.add_waker(waker, WAKER)?;
        if !connections.is_single() {
            for (token, stream) in (0..).zip(streams) {
                stream.socket().set_nonblocking(true)?;
                connections.epoll.add(stream.fd(), token)?;
            }
        }
        Ok(connections)
    }

    /// Whether the calls that read and write sleep.
    pub(super) fn is_single(&self) -> bool {
        self.streams.len() == 1
    }

    /// How a call that reads may wait.
    pub(super) fn spin(&self) -> Spin {
        match self.is_single() {
            true => self.spin,
            false => Spin::NEVER,
        }
    }

    /// A connection is waited for until it can be written, or read again.
    pub(super) fn turn(&mut self, index: usize, write: bool) -> io::Result<()> {
        let before = std::mem::replace(&mut self.held_up[index], write);
        match write == before || self.is_single() {
            true => Ok(()),
            false => self
                .epoll
                .turn(self.streams[index].fd(), index as u64, write),
        }
    }

    /// A connection is over.
    pub(super) fn remove(&self, index: usize) {
        if !self.is_single() {
            // It is waited for as long as this is not over.
            let _ = self.epoll.remove(self.streams[index].fd());
        }
    }

    /// Waits until connections are ready, the phase has changed or this time comes, and spins before it sleeps if data
    /// are expected; how many of [`ReadyConnections::ready`] there are then. `in_vain` is called if spinning brought nothing.
    pub(super) fn wait(
        &mut self,
        until: Option<Instant>,
        expecting: bool,
        in_vain: impl FnOnce(),
    ) -> io::Result<usize> {
        let (epoll, due) = (&mut self.epoll, self.spin.due);
        // The last bit of time before a moment is spent spinning.
        let left = || until.map(|at| at.saturating_duration_since(Instant::now() + due));
        if !expecting || left() == Some(Duration::ZERO) {
            return epoll.wait(left());
        }
        self.spin.sleeping(in_vain, |wait| match wait {
            true => epoll.wait(left()),
            false => match epoll.wait(Some(Duration::ZERO)) {
                Ok(0) => Err(ErrorKind::WouldBlock.into()),
                other => other,
            },
        })
    }

    /// One of the connections that are ready.
    pub(super) fn ready(&self, number: usize) -> Option<usize> {
        let token = self.epoll.ready(number);
        (token != WAKER).then_some(token as usize)
    }
}
