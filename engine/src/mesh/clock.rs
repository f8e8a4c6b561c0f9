//! The clock of a coordinator. Rounds begin at moments of the wall clock, which somebody may set: the monotonic clock shows it.

use crate::clock::unix_time;
use model::Nanos;
use std::sync::Mutex;
use std::time::{Duration, Instant};

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
