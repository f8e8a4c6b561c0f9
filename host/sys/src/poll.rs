//! Waiting for several files at once, and waking a thread that waits.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// One file to wait for, as `poll(2)` takes it.
#[repr(transparent)]
pub struct PollFd<'fd> {
    raw: libc::pollfd,
    borrowed: PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> PollFd<'fd> {
    /// Waits until `fd` can be read (or has ended), and also until it can be written if `write`.
    pub fn new(fd: BorrowedFd<'fd>, read: bool, write: bool) -> PollFd<'fd> {
        let mut events = 0;
        if read {
            events |= libc::POLLIN;
        }
        if write {
            events |= libc::POLLOUT;
        }
        PollFd {
            raw: libc::pollfd {
                fd: fd.as_raw_fd(),
                events,
                revents: 0,
            },
            borrowed: PhantomData,
        }
    }

    /// A read would not block: there is data, the end, or an error to fetch.
    pub fn readable(&self) -> bool {
        self.raw.revents & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// A write would not block: there is room, or an error to fetch.
    pub fn writable(&self) -> bool {
        self.raw.revents & (libc::POLLOUT | libc::POLLHUP | libc::POLLERR) != 0
    }
}

/// Waits for any of `fds`, at most `timeout` (`None`: for ever). Returns how many are ready; zero
/// after the time, and also when a signal came in between.
///
/// # Errors
/// What `poll(2)` returns other than `EINTR`.
pub fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout_ms = timeout.map_or(-1, |t| {
        // Rounded up, so that a wait of half a millisecond does not spin.
        i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    let count = libc::nfds_t::try_from(fds.len()).expect("a slice is shorter than nfds_t");
    // SAFETY: PollFd is a transparent pollfd, the slice is valid for its length, and every fd in it
    // is open because PollFd borrows it.
    let ready = unsafe { libc::poll(fds.as_mut_ptr().cast(), count, timeout_ms) };
    match usize::try_from(ready) {
        Ok(ready) => Ok(ready),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// Waits as [`poll`], but for a timeout of less than a millisecond as well (`ppoll(2)`). How much
/// later than asked it returns depends on the thread ([`crate::sched::wake_on_time`]).
///
/// # Errors
/// As [`poll`].
pub fn poll_nanos(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<usize> {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = libc::nfds_t::try_from(fds.len()).expect("a slice is shorter than nfds_t");
    // SAFETY: as for poll; the timespec outlives the call and no signal mask is given.
    let ready = unsafe {
        libc::ppoll(
            fds.as_mut_ptr().cast(),
            count,
            &raw const timeout,
            std::ptr::null(),
        )
    };
    match usize::try_from(ready) {
        Ok(ready) => Ok(ready),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// Ends another thread's [`poll`]: an `eventfd(2)`.
pub struct Waker(OwnedFd);

impl Waker {
    /// A waker that nobody has rung yet.
    ///
    /// # Errors
    /// What `eventfd(2)` returns: too many open files.
    pub fn new() -> io::Result<Waker> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd returned a new descriptor that nobody else owns.
        Ok(Waker(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the waker readable until [`Waker::clear`].
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight valid bytes. A full counter (EAGAIN) means that it is readable already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes the waker unreadable again.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes. EAGAIN means that it was not readable.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
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
