//! What an interval says of a change, given the smallest change that matters.

use super::Interval;

/// The verdict that an interval gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The change made it better.
    Better {
        /// By at least the margin, for sure.
        by_the_margin: bool,
    },
    /// The change made it worse.
    Worse {
        /// By at least the margin, for sure.
        by_the_margin: bool,
    },
    /// Whatever difference there is, it is smaller than what matters.
    TooSmallToMatter {
        /// Zero lies outside the interval: there is one.
        is_there: bool,
    },
    /// The data fit more than one of these.
    Undecided,
}

/// Judges an interval of the logarithm of the change by `margin`, the logarithm of the smallest change
/// that matters: ln(1.05) for 5 %.
pub(crate) fn decide(interval: Interval, margin: f64) -> Decision {
    let Interval { low, high } = interval;
    if low > -margin && high < margin {
        Decision::TooSmallToMatter {
            is_there: interval.excludes_zero(),
        }
    } else if low > 0.0 {
        Decision::Better {
            by_the_margin: low > margin,
        }
    } else if high < 0.0 {
        Decision::Worse {
            by_the_margin: high < -margin,
        }
    } else {
        Decision::Undecided
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_place_of_the_interval() {
        let better = |by_the_margin| Decision::Better { by_the_margin };
        let worse = |by_the_margin| Decision::Worse { by_the_margin };
        let small = |is_there| Decision::TooSmallToMatter { is_there };
        for (low, high, decision) in [
            (0.06, 0.2, better(true)),
            (0.05, 0.2, better(false)),
            (0.01, 0.2, better(false)),
            (0.01, 0.04, small(true)),
            (-0.04, -0.01, small(true)),
            (-0.04, 0.04, small(false)),
            (0.0, 0.2, Decision::Undecided),
            (-0.05, 0.04, Decision::Undecided),
            (-0.2, 0.0, Decision::Undecided),
            (-0.2, -0.01, worse(false)),
            (-0.2, -0.06, worse(true)),
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
                Decision::Better { by_the_margin } => Decision::Worse { by_the_margin },
                Decision::Worse { by_the_margin } => Decision::Better { by_the_margin },
                same => same,
            };
            prop_assert_eq!(decide(interval, margin), mirrored);
        }
    }
}
