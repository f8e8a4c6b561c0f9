//! Waiting for several files at once, and waking a thread that waits.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFlags, Timespec, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// One file to wait for, as `poll(2)` takes it.
#[repr(transparent)]
pub struct PollFd<'fd>(rustix::event::PollFd<'fd>);

impl<'fd> PollFd<'fd> {
    /// Waits until `fd` can be read (or has ended), and also until it can be written if `write`.
    pub fn new(fd: BorrowedFd<'fd>, read: bool, write: bool) -> PollFd<'fd> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, read);
        events.set(PollFlags::OUT, write);
        PollFd(rustix::event::PollFd::from_borrowed_fd(fd, events))
    }

    /// A read would not block: there is data, the end, or an error to fetch.
    pub fn readable(&self) -> bool {
        let any = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        self.0.revents().intersects(any)
    }

    /// A write would not block: there is room, or an error to fetch.
    pub fn writable(&self) -> bool {
        let any = PollFlags::OUT | PollFlags::HUP | PollFlags::ERR;
        self.0.revents().intersects(any)
    }
}

/// Waits for any of `fds`, at most `timeout` (`None`: for ever). Returns how many are ready; zero
/// after the time, and also when a signal came in between. How much later than asked it returns depends
/// on the thread ([`crate::sched::wake_on_time`]).
pub fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // SAFETY: PollFd is a transparent rustix::event::PollFd, and the slice is borrowed for the call.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds.as_mut_ptr().cast(), fds.len()) };
    match rustix::event::poll(fds, timeout.as_ref()) {
        Err(Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}

/// Waits for many files at once, at a cost that does not grow with their number: an `epoll(7)` instance.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Epoll {
    /// Events that one wait returns; the others follow with the next.
    const AT_ONCE: usize = 256;

    /// An instance that waits for nothing yet.
    pub fn new() -> io::Result<Epoll> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        let events = Vec::with_capacity(Epoll::AT_ONCE);
        Ok(Epoll { fd, events })
    }

    /// Waits for `fd` to become readable from now on; `token` names it.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        Ok(epoll::add(
            &self.fd,
            fd,
            EventData::new_u64(token),
            EventFlags::IN,
        )?)
    }

    /// Each [`Waker::wake`] from now on is one event of this instance, whether or not the waker is cleared.
    pub fn add_waker(&self, waker: &Waker, token: u64) -> io::Result<()> {
        let edge = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(
            &self.fd,
            &waker.0,
            EventData::new_u64(token),
            edge,
        )?)
    }

    /// Waits for `fd` to become writable, and no longer for anything to read, or the other way round.
    pub fn turn(&self, fd: BorrowedFd<'_>, token: u64, write: bool) -> io::Result<()> {
        let flags = if write {
            EventFlags::OUT
        } else {
            EventFlags::IN
        };
        Ok(epoll::modify(
            &self.fd,
            fd,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Does not wait for `fd` any longer.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, fd)?)
    }

    /// Waits for any file, at most `timeout` (`None`: for ever), and returns how many are ready. An end or an error of
    /// a file makes it ready too. Zero after the time, and when a signal came in between.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        if timeout.is_some_and(|timeout| !timeout.is_zero()) {
            // A timeout of epoll_wait(2) is in milliseconds.
            poll(&mut [PollFd::new(self.fd.as_fd(), true, false)], timeout)?;
        }
        let now = Timespec::default();
        let none = timeout.map(|_| &now);
        self.events.clear();
        match epoll::wait(&self.fd, spare_capacity(&mut self.events), none) {
            Err(Errno::INTR) => Ok(0),
            other => Ok(other?),
        }
    }

    /// The token of one of those that are ready.
    pub fn ready(&self, index: usize) -> u64 {
        self.events[index].data.u64()
    }
}

/// Ends another thread's [`poll`]: an `eventfd(2)`.
pub struct Waker(OwnedFd);

impl Waker {
    /// A waker that nobody has rung yet.
    pub fn new() -> io::Result<Waker> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Waker(eventfd(0, flags)?))
    }

    /// Makes the waker readable until [`Waker::clear`].
    pub fn wake(&self) {
        // A full counter (EAGAIN) means that it is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the waker unreadable again.
    pub fn clear(&self) {
        // EAGAIN means that it was not readable.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_ends_a_poll_until_it_is_cleared() {
        let waker = Waker::new().unwrap();
        let ready = |timeout_ms| {
            let mut fds = [PollFd::new(waker.as_fd(), true, false)];
            poll(&mut fds, Some(Duration::from_millis(timeout_ms))).unwrap() == 1
                && fds[0].readable()
        };
        assert!(!ready(0));
        waker.wake();
        waker.wake();
        assert!(ready(10_000));
        waker.clear();
        assert!(!ready(0));
    }

    #[test]
    fn an_instance_returns_who_is_ready_and_each_wake_once() {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let (waker, mut epoll) = (Waker::new().unwrap(), Epoll::new().unwrap());
        let ready = |epoll: &mut Epoll, timeout| {
            let count = epoll.wait(timeout).unwrap();
            (0..count).map(|n| epoll.ready(n)).collect::<Vec<_>>()
        };
        epoll.add(here.as_fd(), 7).unwrap();
        epoll.add_waker(&waker, 9).unwrap();
        assert_eq!(ready(&mut epoll, Some(Duration::from_micros(10))), []);
        for _ in 0..2 {
            waker.wake();
            assert_eq!(ready(&mut epoll, None), [9]);
            assert_eq!(ready(&mut epoll, Some(Duration::ZERO)), []);
        }
        epoll.turn(here.as_fd(), 7, true).unwrap();
        assert_eq!(ready(&mut epoll, None), [7], "writable");
        epoll.turn(here.as_fd(), 7, false).unwrap();
        assert_eq!(ready(&mut epoll, Some(Duration::ZERO)), []);
        drop(there);
        assert_eq!(ready(&mut epoll, None), [7], "ended");
        assert_eq!(ready(&mut epoll, None), [7], "until it is removed");
        epoll.remove(here.as_fd()).unwrap();
        assert_eq!(ready(&mut epoll, Some(Duration::ZERO)), []);
    }
}
