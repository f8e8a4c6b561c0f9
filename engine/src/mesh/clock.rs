//! The clock of a coordinator. Rounds begin at moments of the wall clock, which somebody may set: the monotonic clock shows it.

use crate::prelude::*;

/// A wall clock that moved by more than this against the monotonic clock was set.
const STEP: i128 = 1_000_000_000;

/// Both clocks are read again where reading them took longer.
const READ_WITHIN: Nanos = Nanos::from_millis(100);

/// Where a coordinator has its time from.
pub(super) trait TimeSource: Send + Sync {
    /// Since 1970-01-01 UTC.
    fn wall(&self) -> Nanos;
    /// Since any moment, never set.
    fn monotonic(&self) -> Nanos;
    fn sleep(&self, time: Duration);
}

/// The clocks of this host.
struct SystemClocks(Instant);

impl TimeSource for SystemClocks {
    fn wall(&self) -> Nanos {
        unix_time()
    }

    fn monotonic(&self) -> Nanos {
        self.0.elapsed().into()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The wall clock, and how often it was set.
pub struct MeshClock {
    source: Box<dyn TimeSource>,
    seen: Mutex<SeenClock>,
}

#[derive(Default)]
struct SeenClock {
    /// The wall clock less the monotonic clock.
    offset: Option<i128>,
    steps: u64,
}

impl Default for MeshClock {
    fn default() -> MeshClock {
        MeshClock::of(Box::new(SystemClocks(Instant::now())))
    }
}

impl MeshClock {
    pub(super) fn of(source: Box<dyn TimeSource>) -> MeshClock {
        MeshClock {
            source,
            seen: Mutex::default(),
        }
    }

    /// Now, and by how many nanoseconds the clock was set since the last time that anybody asked, if it was.
    pub(super) fn read(&self) -> (Nanos, Option<i128>) {
        let mut seen = sys::lock(&self.seen);
        let (now, offset) = loop {
            let before = self.source.monotonic();
            let now = self.source.wall();
            if self.source.monotonic().since(before) < READ_WITHIN {
                break (now, i128::from(now.0) - i128::from(before.0));
            }
        };
        let step = offset - seen.offset.replace(offset).unwrap_or(offset);
        let step = Some(step).filter(|step| step.abs() > STEP);
        seen.steps += u64::from(step.is_some());
        (now, step)
    }

    /// How often it was set.
    pub(super) fn steps(&self) -> u64 {
        sys::lock(&self.seen).steps
    }

    pub(super) fn sleep(&self, time: Duration) {
        self.source.sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_wall_clock_that_moves_by_more_than_a_second_was_set() {
        let read = |wall: [u64; 3]| {
            let [first, second, third] = wall;
            let monotonic = [SECOND, 2 * SECOND, 3 * SECOND];
            let clock = MeshClock::of(Box::new(Fixed {
                at: Mutex::new(0),
                monotonic,
                wall: [first, second, third],
            }));
            let steps = [(); 3].map(|()| clock.read().1);
            (steps, clock.steps())
        };
        let base = 1_000 * SECOND;
        let on_time = [base, base + SECOND, base + 2 * SECOND];
        assert_eq!(read(on_time), ([None; 3], 0));
        let slow = [base, base + 2 * SECOND, base + 2 * SECOND];
        assert_eq!(read(slow), ([None; 3], 0), "a second is none");
        let forward = [base, base + 2 * SECOND + 1, base + 3 * SECOND + 1];
        let by = i128::from(SECOND + 1);
        assert_eq!(read(forward), ([None, Some(by), None], 1));
        let and_back = [base, base + 2 * SECOND + 1, base + 2 * SECOND];
        assert_eq!(read(and_back), ([None, Some(by), Some(-by)], 2));
    }

    /// Clocks that stand still while they are read.
    struct Fixed {
        /// Readings of the monotonic clock so far: two for each of the wall clock.
        at: Mutex<usize>,
        monotonic: [u64; 3],
        wall: [u64; 3],
    }

    impl TimeSource for Fixed {
        fn wall(&self) -> Nanos {
            Nanos(self.wall[*sys::lock(&self.at) / 2])
        }

        fn monotonic(&self) -> Nanos {
            let mut at = sys::lock(&self.at);
            *at += 1;
            Nanos(self.monotonic[(*at - 1) / 2])
        }

        fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn clocks_that_took_long_to_read_are_read_again() {
        /// The monotonic clock passes so much while the wall clock is read, and nothing the next time.
        struct Slow(Mutex<Vec<u64>>);
        impl TimeSource for Slow {
            fn wall(&self) -> Nanos {
                Nanos(sys::lock(&self.0).len() as u64)
            }

            fn monotonic(&self) -> Nanos {
                Nanos(sys::lock(&self.0).remove(0))
            }

            fn sleep(&self, _: Duration) {}
        }
        let read = |all: &[u64]| {
            let clock = MeshClock::of(Box::new(Slow(Mutex::new(all.to_vec()))));
            clock.read().0.0
        };
        let within = READ_WITHIN.0;
        assert_eq!(read(&[0, within - 1, 0, 0]), 3, "the first reading counts");
        assert_eq!(read(&[0, within, 0, 0]), 1, "the second does");
    }

    #[test]
    fn the_clocks_of_this_host_go_on() {
        let clock = MeshClock::default();
        let before = unix_time();
        let (now, step) = clock.read();
        assert!(before <= now && now <= unix_time());
        assert_eq!((step, clock.steps()), (None, 0));
        let begun = Instant::now();
        clock.sleep(Duration::from_millis(5));
        assert!(begun.elapsed() >= Duration::from_millis(5));
        assert_eq!(clock.read().1, None);
    }
}
