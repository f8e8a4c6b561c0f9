//! The one look at the calendar, and waiting that the user can stop.

use crate::prelude::*;

/// How soon Ctrl-C is noticed while nothing is done.
const LOOK: Duration = Duration::from_millis(20);

/// Now, since 1970-01-01 UTC; zero on a host whose clock stands before that.
pub fn unix_time() -> Nanos {
    sys::clock::unix().into()
}

/// The same in whole seconds.
pub fn unix_seconds() -> u64 {
    unix_time().0 / 1_000_000_000
}

/// Waits until then; false if the user stopped it.
pub(crate) fn wait_until(until: Instant, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return true,
            left => std::thread::sleep(LOOK.min(left)),
        }
    }
}

/// The beginning of a day in UTC, of a date as `YYYY-MM-DD` (ISO 8601).
pub fn day(text: &str) -> Option<Nanos> {
    let parts: Result<Vec<u64>, _> = text.split('-').map(str::parse).collect();
    let [year, month, day] = parts.ok()?[..] else {
        return None;
    };
    Nanos::of_day(year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::words::utc;

    #[test]
    fn a_wait_takes_its_time_unless_it_is_stopped() {
        let (stop, go_on) = (AtomicBool::new(true), AtomicBool::new(false));
        let later = Instant::now() + Duration::from_millis(50);
        assert!(wait_until(later, &go_on));
        assert!(Instant::now() >= later);
        assert!(!wait_until(
            Instant::now() + Duration::from_secs(3600),
            &stop
        ));
        assert!(!wait_until(later, &stop), "stopped, though it is over");
    }

    #[test]
    fn a_day_is_the_day_that_is_printed() {
        for text in ["1970-01-01", "1999-12-31", "2024-02-29", "2100-03-01"] {
            assert!(utc(day(text).unwrap()).starts_with(text));
        }
    }
}
