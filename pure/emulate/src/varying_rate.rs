//! A rate that varies by itself.

use crate::RateVariation;
use crate::seed::Purpose;
use model::Random;
use model::{BitRate, Nanos};

/// The rate never falls below this part of itself by the process alone, nor rises above the other.
const BOUNDS: (f64, f64) = (0.05, 3.0);

/// An Ornstein-Uhlenbeck process (1930) and its regimes, on a grid of moments, so that what it does
/// depends on time alone and not on packets.
#[derive(Debug)]
pub(crate) struct VaryingRate {
    law: RateVariation,
    noise: Random,
    stays: Random,
    step: Nanos,
    /// What remains of a deviation after one step: exp(-step / time).
    keep: f64,
    deviation: f64,
    state: usize,
    state_until: Nanos,
    next: Nanos,
}

impl VaryingRate {
    /// Begins at the mean, in the first state.
    pub(crate) fn new(law: &RateVariation, seed: u64, now: Nanos) -> VaryingRate {
        let step = (law.time.0 / 100).clamp(10_000_000, 10_000_000_000);
        let mut varying = VaryingRate {
            law: law.clone(),
            noise: Random::new(seed, Purpose::RateVariation as u64),
            stays: Random::new(seed, Purpose::Stay as u64),
            step: Nanos(step),
            keep: (-(step as f64) / law.time.0.max(1) as f64).exp(),
            deviation: 0.0,
            state: 0,
            state_until: now,
            next: now + Nanos(step),
        };
        varying.state_until = now + varying.stay();
        varying
    }

    pub(crate) fn law(&self) -> &RateVariation {
        &self.law
    }

    /// The next moment at which the rate changes.
    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    /// Does the change that is due at [`next`](VaryingRate::next).
    pub(crate) fn step(&mut self) {
        let now = self.next;
        self.next = now + self.step;
        // The exact solution over one step, whatever its length.
        let spread = self.law.deviation * (1.0 - self.keep * self.keep).sqrt();
        self.deviation = self.deviation * self.keep + spread * self.noise.normal();
        if now >= self.state_until && !self.law.states.is_empty() {
            self.state = (self.state + 1) % self.law.states.len();
            self.state_until = now + self.stay();
        }
    }

    /// The rate in force where this is the mean.
    pub(crate) fn scale(&self, rate: BitRate) -> BitRate {
        let factor = self.law.states.get(self.state).map_or(1.0, |s| s.factor);
        let wandered = (1.0 + self.deviation).clamp(BOUNDS.0, BOUNDS.1);
        BitRate(((rate.0 as f64 * factor * wandered) as u64).max(1))
    }

    fn stay(&mut self) -> Nanos {
        let mean = self.law.states.get(self.state).map_or(0, |s| s.stay.0);
        Nanos((mean as f64 * self.stays.exponential()) as u64)
    }
}
