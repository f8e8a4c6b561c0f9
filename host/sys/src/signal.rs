//! Ctrl-C and a request to terminate, as a flag that any thread can read.

use crate::socket::check;
use rustix::process::{Pid, Signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn set_stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// From now on the first SIGINT or SIGTERM sets the returned flag and interrupts the system call
/// that it meets; a second one of the same kind ends the process at once.
pub fn stop_flag() -> io::Result<&'static AtomicBool> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // Without SA_RESTART a blocking call returns EINTR, so that its thread sees the flag.
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { handle(signal, set_stop, libc::SA_RESETHAND)? };
    }
    Ok(&STOP)
}

/// Has a signal handled from now on.
///
/// # Safety
/// The handler is async-signal-safe.
unsafe fn handle(signal: i32, handler: extern "C" fn(i32), flags: i32) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is valid (no mask, no restorer).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: the handler may run by the caller's promise; the pointer is valid for the call and the old action is not
    // asked for.
    check(unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) }).map(drop)
}

/// From now on SIGHUP is ignored.
pub fn ignore_hangup() -> io::Result<()> {
    // SAFETY: no handler is installed: the disposition of one signal changes.
    match unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// From now on SIGHUP, SIGINT and SIGTERM do nothing to this process, and what they do to a program that it starts is as it
/// was by default.
pub(crate) fn outlive_requests_to_end() -> io::Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // A handler, not SIG_IGN, which a program that is started would inherit.
        // SAFETY: it does nothing.
        unsafe { handle(signal, nothing, libc::SA_RESTART)? };
    }
    Ok(())
}

/// Makes a child that `command` will start ignore SIGINT: Ctrl-C reaches every process of the
/// terminal, and a child that serves the session has to outlive it for a clean end.
pub fn deaf_to_interrupt(command: &mut Command) {
    // SAFETY: between fork and exec only signal(2) is called, which is async-signal-safe; an ignored
    // signal stays ignored across exec (POSIX).
    unsafe {
        command.pre_exec(|| {
            if libc::signal(libc::SIGINT, libc::SIG_IGN) == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Sends SIGTERM to the child that `command` will start when the thread that starts it ends, in whatever
/// way: a helper of a killed process restores what it has changed, and ends.
pub fn end_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only prctl(2) is called, a plain system call; what it sets stays
    // across exec (prctl(2), PR_SET_PDEATHSIG).
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
            Ok(())
        });
    }
}

/// Ends a child that leads a process group of its own, with all that it started.
pub fn end_group(leader: u32) -> io::Result<()> {
    // 1 and less would reach every process.
    let leader = i32::try_from(leader).ok().filter(|pid| *pid > 1);
    let leader = leader
        .and_then(Pid::from_raw)
        .ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process_group(leader, Signal::KILL)?)
}

/// Asks a process to end (SIGTERM), or ends it at once (SIGKILL).
pub fn end(pid: u32, at_once: bool) -> io::Result<()> {
    let signal = if at_once { Signal::KILL } else { Signal::TERM };
    // 0 and what wraps to a negative number would reach whole groups.
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    let pid = pid.and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid, signal)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deaf_child_outlives_an_interrupt() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -INT $$; exit 7"]);
        deaf_to_interrupt(&mut command);
        assert_eq!(command.status().unwrap().code(), Some(7));
    }

    #[test]
    fn a_signal_sets_the_flag() {
        let flag = stop_flag().unwrap();
        // SAFETY: raises a signal in this thread, whose handler was just installed.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(flag.load(Ordering::Relaxed));
    }
}
