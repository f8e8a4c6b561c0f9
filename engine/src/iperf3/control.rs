//! A control connection: a machine and its socket.

use model::Nanos;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use sys::poll::{PollFd, Waker, poll};
use wire::iperf3::{Client, ClientEvent, Server, ServerEvent};

/// A peer that takes nothing for this long is gone.
const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// A peer whose host answers nothing for this long is gone.
const LOST_AFTER: Duration = Duration::from_secs(15);

/// What both machines have in common.
pub trait Machine {
    /// What it tells.
    type Event;
    /// Takes bytes of the peer.
    fn receive(&mut self, now: Nanos, bytes: &[u8]);
    /// The peer is gone.
    fn closed(&mut self);
    /// When to look at the clock next.
    fn deadline(&self) -> Option<Nanos>;
    /// Looks at the clock.
    fn timeout(&mut self, now: Nanos);
    /// Bytes for the peer.
    fn output(&mut self) -> Vec<u8>;
    /// What it has to tell.
    fn event(&mut self) -> Option<Self::Event>;
}

macro_rules! machine {
    ($machine:ident, $event:ident) => {
        impl Machine for $machine {
            type Event = $event;
            fn receive(&mut self, now: Nanos, bytes: &[u8]) {
                self.receive(now, bytes);
            }
            fn closed(&mut self) {
                self.closed();
            }
            fn deadline(&self) -> Option<Nanos> {
                self.deadline()
            }
            fn timeout(&mut self, now: Nanos) {
                self.timeout(now);
            }
            fn output(&mut self) -> Vec<u8> {
                self.output()
            }
            fn event(&mut self) -> Option<$event> {
                self.event()
            }
        }
    };
}
machine!(Client, ClientEvent);
machine!(Server, ServerEvent);

/// A machine that talks.
pub struct Control<M> {
    /// The machine, for its own orders.
    pub machine: M,
    stream: TcpStream,
    epoch: Instant,
    gone: bool,
}

impl<M: Machine> Control<M> {
    /// Joins a connected socket and a machine, which was made with [`Nanos`] of zero.
    pub fn new(stream: TcpStream, machine: M) -> anyhow::Result<Control<M>> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_WITHIN))?;
        sys::socket::set_lost_after(stream.as_fd(), LOST_AFTER)?;
        Ok(Control {
            machine,
            stream,
            epoch: Instant::now(),
            gone: false,
        })
    }

    /// The machine's clock.
    pub fn now(&self) -> Nanos {
        Nanos::from(self.epoch.elapsed())
    }

    /// Sends what there is to send, and waits for the peer (or for `waker`) until `until` at the
    /// latest. Returns at the first event, at the waker, or at the moment.
    pub fn pump(&mut self, waker: Option<&Waker>, until: Instant) -> Option<M::Event> {
        loop {
            self.flush();
            if let Some(event) = self.machine.event() {
                return Some(event);
            }
            let deadline = self
                .machine
                .deadline()
                .map(|at| self.epoch + Duration::from(at));
            let now = Instant::now();
            let wait = deadline.map_or(until, |d| d.min(until));
            let wait = wait.saturating_duration_since(now);
            let mut fds = Vec::with_capacity(2);
            if let Some(waker) = waker {
                fds.push(PollFd::new(waker.as_fd(), true, false));
            }
            if !self.gone {
                fds.push(PollFd::new(self.stream.as_fd(), true, false));
            }
            let ready = poll(&mut fds, Some(wait)).unwrap_or(0);
            let woken = waker.is_some() && fds[0].readable();
            let readable = !self.gone && fds.last().is_some_and(PollFd::readable);
            drop(fds);
            if ready > 0 && readable {
                self.read();
            }
            let now = self.now();
            self.machine.timeout(now);
            self.flush();
            if let Some(event) = self.machine.event() {
                return Some(event);
            }
            if woken || Instant::now() >= until {
                return None;
            }
        }
    }

    /// Sends what the machine has to say.
    pub fn flush(&mut self) {
        let bytes = self.machine.output();
        if !bytes.is_empty() && !self.gone && self.stream.write_all(&bytes).is_err() {
            self.gone = true;
            self.machine.closed();
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => {
                self.gone = true;
                self.machine.closed();
            }
            Ok(count) => {
                let now = self.now();
                self.machine.receive(now, &buffer[..count]);
            }
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock
                ) => {}
            Err(_) => {
                self.gone = true;
                self.machine.closed();
            }
        }
    }
}
