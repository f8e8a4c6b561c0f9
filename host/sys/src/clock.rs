//! Clocks that std lacks.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// How long this machine has been suspended since it was started, to within some microseconds: `CLOCK_BOOTTIME` goes on
/// meanwhile, `CLOCK_MONOTONIC` stands still (clock_gettime(2)).
pub fn suspended() -> Duration {
    let read = |clock| {
        let time = clock_gettime(clock);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
    };
    let monotonic = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(monotonic)
}
