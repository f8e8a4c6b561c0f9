//! Chance from a recorded seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A stream of chance. `ChaCha8Rng` gives the same numbers on every machine and in every release, so
/// a recorded seed means the same for ever.
#[derive(Clone, Debug)]
pub(crate) struct Chance(ChaCha8Rng);

impl Chance {
    /// The stream `stream` of `seed`: each purpose takes its own, so that none shifts another's.
    pub(crate) fn new(seed: u64, stream: u64) -> Chance {
        let mut chance = ChaCha8Rng::seed_from_u64(seed);
        chance.set_stream(stream);
        Chance(chance)
    }

    /// 64 fair coins.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// In [0, 1), 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Every order as likely (Fisher and Yates 1938).
    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, (self.unit() * (at + 1) as f64) as usize);
        }
    }
}
