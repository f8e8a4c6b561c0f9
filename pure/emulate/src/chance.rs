//! Chance from a seed: one stream for each purpose, so that adding one impairment does not shift another's.

use crate::Distribution;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// What a stream of chance is for. The numbers are part of the meaning of a seed: never change one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Loss = 1,
    BitError = 2,
    Jitter = 3,
    Reorder = 4,
    Duplicate = 5,
    Aqm = 6,
    Wander = 7,
    Stay = 8,
}

/// One stream. `ChaCha8Rng` gives the same numbers on every machine and in every release.
#[derive(Clone, Debug)]
pub(crate) struct Chance(ChaCha8Rng);

impl Chance {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Chance {
        let mut stream = ChaCha8Rng::seed_from_u64(seed);
        stream.set_stream(purpose as u64);
        Chance(stream)
    }

    /// In [0, 1), 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability. Draws once whatever it is, so that a change of it shifts nothing.
    pub(crate) fn hits(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Mean 0, deviation 1: the sum of twelve uniform numbers, which needs no function whose last
    /// digit differs between C libraries. No value lies beyond 6.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// From 0 to 1.
    pub(crate) fn spread(&mut self, distribution: Distribution) -> f64 {
        match distribution {
            Distribution::Uniform => self.unit(),
            Distribution::Normal => (0.5 + self.normal() / 6.0).clamp(0.0, 1.0),
            Distribution::Exponential => (self.exponential() / 6.0).min(1.0),
        }
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

/// The seed of one direction of one link, from the scenario's: FNV-1a over all three.
pub(crate) fn seed_of(scenario: u64, link: &str, direction: u8) -> u64 {
    let bytes = scenario.to_le_bytes().into_iter().chain(link.bytes());
    bytes
        .chain([direction])
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut loss = Chance::new(1, Purpose::Loss);
        let first: Vec<u64> = (0..3).map(|_| (loss.unit() * 1e6) as u64).collect();
        assert_eq!(first, [851_912, 50_913, 558_752]);
        assert_eq!(seed_of(1, "wan", 0), 0xf574_5bc3_688d_eac6);
    }

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut chance = Chance::new(7, Purpose::Wander);
        let n = 100_000;
        let all: Vec<f64> = (0..n).map(|_| chance.normal()).collect();
        let mean = all.iter().sum::<f64>() / f64::from(n);
        let square = all.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
        assert!(
            mean.abs() < 0.01 && (square - 1.0).abs() < 0.02,
            "{mean} {square}"
        );
    }
}
