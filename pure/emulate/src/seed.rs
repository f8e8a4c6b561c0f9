//! Random streams of a scenario's seed: one for each purpose, so that adding one impairment does not shift another's.

use crate::Distribution;
use model::Random;

/// What a random stream is for. The numbers are part of the meaning of a seed: never change one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Loss = 1,
    BitError = 2,
    Jitter = 3,
    Reorder = 4,
    Duplicate = 5,
    Aqm = 6,
    RateVariation = 7,
    Stay = 8,
}

/// From 0 to 1, by this distribution.
pub(crate) fn spread(random: &mut Random, distribution: Distribution) -> f64 {
    match distribution {
        Distribution::Uniform => random.unit(),
        Distribution::Normal => (0.5 + random.normal() / 6.0).clamp(0.0, 1.0),
        Distribution::Exponential => (random.exponential() / 6.0).min(1.0),
    }
}

/// The seed of one direction of one link, from the scenario's.
pub(crate) fn seed_of(scenario: u64, link: &str, direction: u8) -> u64 {
    let bytes = scenario.to_le_bytes().into_iter().chain(link.bytes());
    model::seed_of(bytes.chain([direction]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        assert_eq!(seed_of(1, "wan", 0), 0xf574_5bc3_688d_eac6);
    }
}
