//! How many pairs show what. Effects and margins are relative (0.05 is 5 %), `deviation` is that of
//! the paired differences of logarithms.

use super::ALPHA;
use super::quantile::normal_quantile;
use super::signed_rank::FEWEST_PAIRS;
use std::f64::consts::PI;

/// Chance to find the effect that a plan is made for.
pub(crate) const POWER: f64 = 0.8;

/// Pairs that show a change of `effect` in 4 of 5 experiments: that of a t-test, times pi / 3 for the
/// signed ranks (Pitman), and 1.5 for small numbers; simulated power 77 to 84 %. `None` if the
/// arguments are no such numbers.
pub(crate) fn pairs_for_effect(deviation: f64, effect: f64) -> Option<u32> {
    pairs(normal_quantile(POWER)?, deviation, effect)
}

/// Pairs that show that a change of nothing is smaller than `margin`, in 4 of 5 experiments.
pub(crate) fn pairs_for_equivalence(deviation: f64, margin: f64) -> Option<u32> {
    // Both ends of the interval must stay inside.
    pairs(normal_quantile((1.0 + POWER) / 2.0)?, deviation, margin)
}

/// The smallest rise that so many pairs show in 4 of 5 experiments. `None` below the fewest pairs of
/// a verdict.
pub(crate) fn smallest_effect(deviation: f64, pairs: u32) -> Option<f64> {
    let quantiles = normal_quantile(1.0 - ALPHA / 2.0)? + normal_quantile(POWER)?;
    let effect = (quantiles * deviation * (PI / 3.0 / (f64::from(pairs) - 1.5)).sqrt()).exp_m1();
    (pairs >= FEWEST_PAIRS && deviation >= 0.0 && effect.is_finite()).then_some(effect)
}

fn pairs(power_quantile: f64, deviation: f64, effect: f64) -> Option<u32> {
    let change = effect.ln_1p().abs();
    let ratio = (normal_quantile(1.0 - ALPHA / 2.0)? + power_quantile) * deviation / change;
    let pairs = (ratio * ratio * PI / 3.0 + 1.5).ceil();
    // Beyond a million there is nothing to plan.
    (deviation >= 0.0 && change > 0.0 && pairs < 1e6).then(|| (pairs as u32).max(FEWEST_PAIRS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pairs_by_noise_and_effect() {
        for (deviation, expected) in [
            (0.05, [54, 11, 6]),
            (0.10, [212, 37, 11]),
            (0.20, [840, 140, 38]),
        ] {
            let found = [0.02, 0.05, 0.10].map(|e| pairs_for_effect(deviation, e).unwrap());
            assert_eq!(found, expected, "{deviation}");
        }
        // Pairs that differ by 18 %, 5 % matters, 20 pairs made: some 130 more.
        assert_eq!(pairs_for_equivalence(0.18, 0.05), Some(152));
    }

    #[test]
    fn no_plan_without_numbers() {
        for (deviation, effect) in [
            (0.1, 0.0),
            (-0.1, 0.1),
            (f64::NAN, 0.1),
            (0.1, -1.5),
            (1e9, 0.01),
        ] {
            assert_eq!(
                pairs_for_effect(deviation, effect),
                None,
                "{deviation} {effect}"
            );
        }
        assert_eq!(pairs_for_effect(0.0, 0.1), Some(FEWEST_PAIRS));
        assert_eq!(smallest_effect(0.1, 5), None);
        assert_eq!(smallest_effect(f64::NAN, 8), None);
    }

    proptest! {
        #[test]
        fn the_smallest_effect_needs_just_those_pairs(deviation in 0.01f64..0.5, pairs in 8u32..500) {
            let effect = smallest_effect(deviation, pairs).unwrap();
            let needed = pairs_for_effect(deviation, effect).unwrap();
            prop_assert!(needed.abs_diff(pairs) <= 1, "{} {}", needed, pairs);
        }
    }
}
