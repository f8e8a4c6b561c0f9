//! The size of the next write.

use crate::prelude::*;

/// The size of the next write. It follows the path: a write that takes long makes the counters jump
/// and the end late, a short one costs a system call. So a size whose write took less than a
/// millisecond doubles, and one that took more than four halves.
pub(crate) struct Stride {
    pub(crate) size: usize,
    largest: usize,
    fixed: bool,
}

impl Stride {
    const SMALLEST: usize = 16 << 10;
    const FIRST: usize = 64 << 10;
    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_millis(4);

    /// Of this size, or of one that follows the path up to `largest`.
    pub(crate) fn new(write_size: Option<Bytes>, largest: usize) -> Stride {
        let fixed = write_size.map(|size| size.0 as usize);
        Stride {
            size: fixed.unwrap_or(Self::FIRST),
            largest: fixed.unwrap_or(largest),
            fixed: fixed.is_some(),
        }
    }

    /// Takes the end of the write before, returns the end of this one. One look at the clock for
    /// up to 1 MiB is a ten-thousandth of what the copy costs. `largest` is for the next write.
    pub(crate) fn follow(&mut self, before: Instant, largest: usize) -> Instant {
        if self.fixed {
            return before;
        }
        let now = Instant::now();
        self.adapt(now - before, largest);
        now
    }

    fn adapt(&mut self, took: Duration, largest: usize) {
        if took < Self::SHORT {
            self.size *= 2;
        } else if took > Self::LONG {
            self.size = (self.size / 2).max(Self::SMALLEST);
        }
        self.size = self.size.min(largest).min(self.largest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: usize = 1 << 20;

    #[test]
    fn the_write_size_follows_the_path() {
        let mut stride = Stride::new(None, LARGEST);
        for _ in 0..10 {
            stride.adapt(Duration::from_micros(125), LARGEST);
        }
        assert_eq!(stride.size, LARGEST);
        stride.adapt(Duration::from_millis(2), LARGEST);
        assert_eq!(stride.size, LARGEST);
        stride.adapt(Duration::from_millis(2), LARGEST / 2);
        assert_eq!(stride.size, LARGEST / 2);
        for _ in 0..10 {
            stride.adapt(Duration::from_millis(80), LARGEST);
        }
        assert_eq!(stride.size, Stride::SMALLEST);
    }

    #[test]
    fn a_write_of_one_to_four_milliseconds_stays() {
        let of = |took: Duration| {
            let mut stride = Stride::new(None, LARGEST);
            stride.adapt(took, LARGEST);
            stride.size >> 10
        };
        let (short, long) = (Duration::from_millis(1), Duration::from_millis(4));
        let ns = Duration::from_nanos(1);
        assert_eq!(
            [of(short - ns), of(short), of(long), of(long + ns)],
            [128, 64, 64, 32]
        );
        let mut fixed = Stride::new(Some(Bytes(1000)), LARGEST);
        let before = Instant::now() - Duration::from_secs(1);
        assert_eq!((fixed.follow(before, LARGEST), fixed.size), (before, 1000));
        let mut free = Stride::new(None, LARGEST);
        assert!(free.follow(before, LARGEST) > before);
        assert_eq!(free.size, 32 << 10);
    }
}
