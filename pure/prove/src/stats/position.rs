//! Does it matter which of a pair runs first? A shaper with burst credit, a cache, a hot processor
//! give the second run another start than the first.

use super::{Estimate, Interval, rank_sum};

/// By how much the second run of a pair is above the first, whatever the settings: half of the shift
/// between the differences B - A of the pairs in which B ran second and those in which it ran first,
/// since the change itself is in both. Exact, as the order was drawn by fair coins. `None` below four
/// pairs each way, or three and five.
pub(crate) fn effect(b_second: &[f64], b_first: &[f64], alpha: f64) -> Option<Estimate> {
    let shift = rank_sum::shift(b_first, b_second, alpha)?;
    Some(Estimate {
        value: shift.value / 2.0,
        interval: Interval {
            low: shift.interval.low / 2.0,
            high: shift.interval.high / 2.0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ALPHA;

    #[test]
    fn the_change_itself_is_no_position_effect() {
        let noise = [0.01, -0.02, 0.03, 0.0, -0.01];
        // B is 30 % better, the second run loses 10 %.
        let second = noise.map(|n| 0.3 - 0.1 + n);
        let first = noise.map(|n| 0.3 + 0.1 + n);
        let found = effect(&second, &first, ALPHA).unwrap();
        assert!((found.value + 0.1).abs() < 1e-12, "{found:?}");
        assert!(found.interval.high < 0.0 && found.interval.contains(-0.1));
        assert_eq!(effect(&second[..2], &first, ALPHA), None);
    }
}
