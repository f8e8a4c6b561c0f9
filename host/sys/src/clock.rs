//! Clocks.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, since 1970-01-01 UTC; zero on a host whose clock stands before that.
pub fn unix() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

/// How long this machine has been suspended since it was started, to within some microseconds: `CLOCK_BOOTTIME` goes on
/// meanwhile, `CLOCK_MONOTONIC` stands still (clock_gettime(2)).
pub fn suspended() -> Duration {
    let monotonic = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(monotonic)
}

/// Processor time that the calling thread has used so far, in user mode and kernel together.
pub fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
