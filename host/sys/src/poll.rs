//! Waiting for several files at once, and waking a thread that waits.

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
}
