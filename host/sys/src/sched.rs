//! Where and how promptly the calling thread runs.

use std::io;
use std::mem::{size_of, zeroed};

/// The processors that the calling thread may run on, rising.
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    // SAFETY: cpu_set_t is a plain bit mask, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the set is valid for writing and its size is given; 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) })?;
    let in_set = |cpu: &u32| {
        // SAFETY: every number below CPU_SETSIZE lies inside the mask.
        unsafe { libc::CPU_ISSET(*cpu as usize, &set) }
    };
    Ok((0..libc::CPU_SETSIZE as u32).filter(in_set).collect())
}

/// Keeps the calling thread on these processors.
pub fn run_on(cpus: &[u32]) -> io::Result<()> {
    // SAFETY: cpu_set_t is a plain bit mask, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    for &cpu in cpus {
        if cpu >= libc::CPU_SETSIZE as u32 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the number was checked to lie inside the mask.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: the set is initialised and its size is given; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) })
}

/// The processor that the calling thread runs on at this moment.
pub fn current_cpu() -> Option<u32> {
    // SAFETY: sched_getcpu(3) takes no pointers.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Lets the kernel end sleeps of the calling thread on time instead of up to 50 us later
/// (`PR_SET_TIMERSLACK`).
pub fn wake_on_time() -> io::Result<()> {
    // SAFETY: this operation takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) })
}

/// Puts the calling thread before others by `steps` of niceness. Needs CAP_SYS_NICE.
pub fn run_first(steps: u8) -> io::Result<()> {
    // SAFETY: takes plain numbers; on Linux 0 is the calling thread, not the process (getpriority(2)).
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -i32::from(steps)) })
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pinned_thread_may_run_there_only() {
        std::thread::spawn(|| {
            let last = *super::allowed_cpus().unwrap().last().unwrap();
            super::run_on(&[last]).unwrap();
            assert_eq!(super::allowed_cpus().unwrap(), [last]);
            assert_eq!(super::current_cpu(), Some(last));
            assert!(super::run_on(&[u32::MAX]).is_err());
        })
        .join()
        .unwrap();
    }
}
