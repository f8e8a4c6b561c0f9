//! Moves bytes between a stream and a protocol machine, and passes the time to it.

use crate::prelude::*;
use std::io;
use std::net::Shutdown;
use sys::poll::{PollFd, Waker, poll};
use wire::Machine;

/// No more is taken from the machine while so many bytes wait for the peer to read.
const ENOUGH_WAITING: usize = 256 << 10;

/// For the last bytes.
const PARTING: Duration = Duration::from_secs(1);

/// Reads in one turn: a peer that never stops keeps nobody from writing and from passing the time.
const READS: usize = 16;

/// What a driver drives: bytes both ways that never block.
pub trait ByteStream: Send {
    /// The files to wait for: for reading, and for writing too if `write`.
    fn wait_for(&self, read: bool, write: bool) -> Vec<PollFd<'_>>;
    /// Bytes that came; zero at the end.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;
    /// Takes some of the bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Sends what it took; `false` while some of it waits.
    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }
    /// Closes this end's side.
    fn finish(&mut self);
    /// What the end or error of the stream means, as a whole sentence, where it knows better than
    /// "closed the connection" and better than the error's own words.
    fn explain(&mut self, _error: Option<&io::Error>) -> Option<String> {
        None
    }
}

/// A socket in non-blocking mode; calls are the same for all families of stream sockets.
impl ByteStream for TcpStream {
    fn wait_for(&self, read: bool, write: bool) -> Vec<PollFd<'_>> {
        vec![PollFd::new(self.as_fd(), read, write)]
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Read::read(self, into)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn finish(&mut self) {
        // A socket whose peer has gone needs no end of its own.
        let _ = self.shutdown(Shutdown::Write);
    }
}

/// Why no more bytes move.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The peer closed its side.
    #[error("{}", io::Error::from(ErrorKind::UnexpectedEof))]
    End,
    /// The stream failed.
    #[error("{0}")]
    Error(io::Error),
    /// The peer reads nothing for [`Machine::longest_stall`].
    #[error("it does not read what it is sent")]
    Stalled,
}

/// A machine and its stream.
pub struct Driver<M> {
    /// The machine, for its own calls.
    pub machine: M,
    /// The stream.
    pub stream: Box<dyn ByteStream>,
    start: Instant,
    unsent: Vec<u8>,
    /// Since when nothing of `unsent` was taken.
    stalled: Option<Instant>,
    /// The stream had more to read when a turn ended.
    more: bool,
    broke: bool,
}

impl<M: Machine> Driver<M> {
    /// Of a machine that was made with [`Nanos`] of zero.
    pub fn new(machine: M, stream: Box<dyn ByteStream>) -> Driver<M> {
        Driver {
            machine,
            stream,
            start: Instant::now(),
            unsent: Vec::new(),
            stalled: None,
            more: false,
            broke: false,
        }
    }

    /// The machine's clock.
    pub fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }

    /// Whether the machine may be given more to send: what waits beyond that waits in the machine, which counts it.
    pub fn has_room(&mut self) -> bool {
        if self.unsent.len() < ENOUGH_WAITING
            && let Some(bytes) = self.machine.poll_output()
        {
            self.unsent.extend(bytes);
        }
        self.unsent.len() < ENOUGH_WAITING
    }

    /// Sends, waits for the peer, the waker or a deadline of the machine, until `until` at the latest, reads, and
    /// passes the time. Whether the waker was woken, which is cleared then. A stream that broke is left alone.
    ///
    /// # Errors
    /// Once, when the stream breaks.
    pub fn turn(&mut self, waker: Option<&Waker>, until: Option<Instant>) -> Result<bool, Broken> {
        let write = self.write()?;
        let deadline = self.machine.deadline();
        let deadline = deadline.map(|at| self.start + Duration::from(at));
        let until = deadline.into_iter().chain(until).min();
        let mut wait = until.map(|until| until.saturating_duration_since(Instant::now()));
        if self.more {
            wait = Some(Duration::ZERO);
        }
        let mut fds = match self.broke {
            true => Vec::new(),
            false => self.stream.wait_for(true, write),
        };
        fds.extend(waker.map(|waker| PollFd::new(waker.as_fd(), true, false)));
        let waited = poll(&mut fds, wait);
        let woken = waker.is_some() && fds.last().is_some_and(PollFd::readable);
        drop(fds);
        waited.map_err(|error| self.breaks(Broken::Error(error)))?;
        if let Some(waker) = waker.filter(|_| woken) {
            waker.clear();
        }
        self.read()?;
        self.machine.on_timeout(self.now());
        Ok(woken)
    }

    /// Sends what waits, as far as the peer takes it within [`PARTING`].
    pub fn send_all(&mut self) {
        let until = Instant::now() + PARTING;
        self.unsent
            .extend(self.machine.poll_output().into_iter().flatten());
        while !self.broke
            && let Ok(true) = self.push()
        {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || poll(&mut self.stream.wait_for(false, true), Some(left)).is_err() {
                return;
            }
        }
    }

    fn breaks(&mut self, why: Broken) -> Broken {
        self.broke = true;
        why
    }

    /// Whether something waits still.
    fn write(&mut self) -> Result<bool, Broken> {
        if self.broke {
            return Ok(false);
        }
        self.has_room();
        let before = self.unsent.len();
        let waits = self
            .push()
            .map_err(|error| self.breaks(Broken::Error(error)))?;
        if self.unsent.is_empty() || self.unsent.len() < before {
            self.stalled = None;
        } else if Nanos::from(self.stalled.get_or_insert_with(Instant::now).elapsed())
            > self.machine.longest_stall()
        {
            return Err(self.breaks(Broken::Stalled));
        }
        Ok(waits)
    }

    /// Writes as much as goes without waiting. Whether something waits still.
    fn push(&mut self) -> io::Result<bool> {
        let mut taken = 0;
        let result = loop {
            if taken == self.unsent.len() {
                break self.stream.flush().map(|all| !all);
            }
            match self.stream.write(&self.unsent[taken..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(n) => taken += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break Ok(true),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        self.unsent.drain(..taken);
        result
    }

    fn read(&mut self) -> Result<(), Broken> {
        let mut buffer = [0; 16 << 10];
        self.more = false;
        for _ in 0..READS {
            if self.broke {
                return Ok(());
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(self.breaks(Broken::End)),
                Ok(n) => self.machine.input(self.now(), &buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.breaks(Broken::Error(e))),
            }
        }
        self.more = true;
        Ok(())
    }

    /// The machine's next event; waits for it, or for `waker`, until `until` at the latest.
    pub fn event(&mut self, waker: Option<&Waker>, until: Instant) -> Option<M::Event> {
        let mut done = false;
        loop {
            let event = self.machine.poll_event();
            if event.is_some() || done {
                return event;
            }
            match self.turn(waker, Some(until)) {
                Ok(woken) => done = woken || Instant::now() >= until,
                Err(_) => self.machine.input_end(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
