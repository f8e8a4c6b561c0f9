//! The one look at the calendar.

use model::Nanos;
use std::time::SystemTime;

/// Now, since 1970-01-01 UTC; zero on a host whose clock stands before that.
pub fn unix_time() -> Nanos {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(Nanos(0), Nanos::from)
}

/// The same in whole seconds.
pub fn unix_seconds() -> u64 {
    unix_time().0 / 1_000_000_000
}
