//! Where and how promptly the calling thread runs.

use crate::socket::check;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fs::File;
use std::io::{self, Write};
use std::mem::size_of;
use std::num::NonZeroU64;

/// The processors that the calling thread may run on, rising.
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let all = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Ok(all.map(|cpu| cpu as u32).collect())
}

/// Keeps the calling thread on these processors.
pub fn run_on(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu as usize);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The processor that the calling thread runs on at this moment.
pub fn current_cpu() -> Option<u32> {
    u32::try_from(sched_getcpu()).ok()
}

/// Lets the kernel end sleeps of the calling thread on time instead of up to 50 us later
/// (`PR_SET_TIMERSLACK`).
pub fn wake_on_time() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

/// Asks the kernel to let no processor sleep so deep that it comes back late, for as long as the file is open
/// (`Documentation/power/pm_qos_interface.rst`). Needs root.
pub fn keep_awake() -> io::Result<File> {
    let mut request = File::options().write(true).open("/dev/cpu_dma_latency")?;
    // Microseconds, in the order of the machine.
    request.write_all(&0i32.to_ne_bytes())?;
    Ok(request)
}

/// Puts the calling thread before all ordinary ones: in the round robin of real-time threads, at its lowest
/// priority, which children do not inherit. Needs CAP_SYS_NICE.
pub fn run_first() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one sched_param; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const lowest) }).map(drop)
}

/// Requests short time slices of the processor, which come sooner (kernel 6.12 and later; `sched_setattr(2)`).
/// Needs no privilege.
pub fn run_in_short_turns() -> io::Result<()> {
    /// The first version of `struct sched_attr` (`include/uapi/linux/sched/types.h`).
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    /// The shortest that the kernel allows.
    const SHORTEST_TURN_NS: u64 = 100_000;
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime_ns: SHORTEST_TURN_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the kernel reads as many bytes as the structure says that it has; 0 is the calling thread.
    let status = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(status as i32).map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    fn short_slices_are_in_force_or_refused_with_the_reason() {
        std::thread::spawn(|| {
            let short = super::run_in_short_turns();
            assert!(short.is_ok(), "{short:?}");
            let first = super::run_first();
            if let Err(error) = first {
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
            }
            if let Err(error) = super::keep_awake() {
                use std::io::ErrorKind::{NotFound, PermissionDenied};
                // A container has no such device.
                assert!(
                    [NotFound, PermissionDenied].contains(&error.kind()),
                    "{error}"
                );
            }
        })
        .join()
        .unwrap();
    }

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
