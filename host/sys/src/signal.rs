//! Ctrl-C and a request to terminate, as a flag that any thread can read.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn set_stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// From now on the first SIGINT or SIGTERM sets the returned flag and interrupts the system call
/// that it meets; a second one of the same kind ends the process at once.
///
/// # Errors
/// What `sigaction(2)` returns, which for these two signals is nothing.
pub fn stop_flag() -> io::Result<&'static AtomicBool> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero sigaction is valid (no mask, no restorer).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = set_stop as *const () as usize;
        // Without SA_RESTART a blocking call returns EINTR, so that its thread sees the flag.
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe; the pointer is
        // valid for the call and the old action is not asked for.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(&STOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_sets_the_flag() {
        let flag = stop_flag().unwrap();
        // SAFETY: raises a signal in this thread, whose handler was just installed.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(flag.load(Ordering::Relaxed));
    }
}
