//! The outcome of a confidence interval, given the equivalence margin.

use super::Interval;
use model::Outcome;

/// Judges an interval of the logarithm of the change by `margin`, the logarithm of the equivalence
/// margin: ln(1.05) for 5 %. Also whether all of it lies beyond the margin.
pub(crate) fn decide(interval: Interval, margin: f64) -> (Outcome, bool) {
    let Interval { low, high } = interval;
    if low > -margin && high < margin {
        (Outcome::NoDifference, false)
    } else if low > 0.0 {
        (Outcome::Faster, low > margin)
    } else if high < 0.0 {
        (Outcome::Slower, high < -margin)
    } else {
        (Outcome::NotEnoughData, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_place_of_the_interval() {
        use Outcome::{Faster, NoDifference, NotEnoughData, Slower};
        for (low, high, decision) in [
            (0.06, 0.2, (Faster, true)),
            (0.05, 0.2, (Faster, false)),
            (0.01, 0.2, (Faster, false)),
            (0.01, 0.04, (NoDifference, false)),
            (-0.04, -0.01, (NoDifference, false)),
            (-0.04, 0.04, (NoDifference, false)),
            (0.0, 0.2, (NotEnoughData, false)),
            (-0.05, 0.04, (NotEnoughData, false)),
            (-0.2, 0.0, (NotEnoughData, false)),
            (-0.2, -0.01, (Slower, false)),
            (-0.2, -0.06, (Slower, true)),
        ] {
            assert_eq!(
                decide(Interval { low, high }, 0.05),
                decision,
                "{low} {high}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_other_way_round_is_the_mirror(a in -1.0f64..1.0, b in -1.0f64..1.0, margin in 0.001f64..0.5) {
            let interval = Interval { low: a.min(b), high: a.max(b) };
            let mirror = Interval { low: -interval.high, high: -interval.low };
            let mirrored = match decide(mirror, margin) {
                (Outcome::Faster, beyond) => (Outcome::Slower, beyond),
                (Outcome::Slower, beyond) => (Outcome::Faster, beyond),
                same => same,
            };
            prop_assert_eq!(decide(interval, margin), mirrored);
        }
    }
}
