//! Deterministic random numbers.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A random stream of a recorded seed. `ChaCha8Rng` gives the same numbers on every machine and in every release.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Stream `stream` of `seed`: each purpose takes its own, so that none shifts another's.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        Random(random)
    }

    /// 64 fair bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// In [0, 1), 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability. Draws once whatever it is, so that a change of it shifts nothing.
    pub fn hits(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Mean 0, deviation 1: the sum of twelve uniform numbers, which needs no function whose last
    /// digit differs between C libraries. No value lies beyond 6.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// A random order (Fisher and Yates 1938).
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, (self.unit() * (at + 1) as f64) as usize);
        }
    }
}

/// A seed from bytes, the same on every machine and for ever: FNV-1a of 64 bits (draft-eastlake-fnv).
pub fn seed_of(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let bytes = bytes.into_iter();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut random = Random::new(1, 1);
        let first: Vec<u64> = (0..3).map(|_| (random.unit() * 1e6) as u64).collect();
        assert_eq!(first, [851_912, 50_913, 558_752]);
    }

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut random = Random::new(7, 7);
        let n = 100_000;
        let all: Vec<f64> = (0..n).map(|_| random.normal()).collect();
        let mean = all.iter().sum::<f64>() / f64::from(n);
        let square = all.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
        assert!(
            mean.abs() < 0.01 && (square - 1.0).abs() < 0.02,
            "{mean} {square}"
        );
    }
}
