//! A token bucket in exact numbers.

use crate::Bucket;
use model::{BitRate, Bytes, Nanos};

/// Tokens at work (RFC 2697). The level is in bits x 10^9, so that a rate in bit/s times nanoseconds needs no rounding.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    rate: u128,
    burst: u128,
    level: u128,
    at: Nanos,
}

const SCALE: u128 = 1_000_000_000;

fn tokens(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * SCALE
}

impl Tokens {
    /// A full bucket.
    pub(crate) fn new(bucket: &Bucket, now: Nanos) -> Tokens {
        let burst = tokens(bucket.burst.0);
        Tokens {
            rate: u128::from(bucket.rate.0.max(1)),
            burst,
            level: burst,
            at: now,
        }
    }

    /// Another rate and burst; the tokens stay, as far as they fit.
    pub(crate) fn change(&mut self, now: Nanos, rate: BitRate, burst: Bytes) {
        self.fill(now);
        self.rate = u128::from(rate.0.max(1));
        self.burst = tokens(burst.0);
        self.level = self.level.min(self.burst);
    }

    /// Takes tokens for so many bytes if they are there.
    pub(crate) fn conforms(&mut self, now: Nanos, bytes: u64) -> bool {
        self.fill(now);
        let enough = self.level >= tokens(bytes);
        if enough {
            self.level -= tokens(bytes);
        }
        enough
    }

    /// When the tokens for so many bytes will be there. More than the bucket holds needs a full one.
    pub(crate) fn ready(&self, bytes: u64) -> Nanos {
        let short = tokens(bytes).min(self.burst).saturating_sub(self.level);
        self.at + Nanos(u64::try_from(short.div_ceil(self.rate)).unwrap_or(u64::MAX))
    }

    /// Takes the tokens of what was [`ready`](Tokens::ready).
    pub(crate) fn spend(&mut self, now: Nanos, bytes: u64) {
        self.fill(now);
        self.level = self.level.saturating_sub(tokens(bytes));
    }

    /// Tokens now, in bytes.
    pub(crate) fn level(&mut self, now: Nanos) -> u64 {
        self.fill(now);
        u64::try_from(self.level / (8 * SCALE)).unwrap_or(u64::MAX)
    }

    fn fill(&mut self, now: Nanos) {
        let came = self.rate * u128::from(now.since(self.at).0);
        self.level = (self.level + came).min(self.burst);
        self.at = self.at.max(now);
    }
}
