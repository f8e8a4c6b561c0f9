//! All runs together: the ratio of the totals of two arms, with an interval that is exact for it.
//!
//! Signed ranks ask about a typical run and hardly see a change that only removes rare stalls. If B's
//! runs are r times A's, the differences `B - r A` of the pairs are symmetric about zero, so the
//! interval holds every r at which the sign flips of their mean (Hartigan 1969: subset means) do not
//! speak against that. The estimate is the ratio of the totals itself.

use crate::stats::Interval;
use crate::stats::total::{p_two_sided as flips, ratio_of_totals};
use model::Metric;

/// Halvings of the interval's ends: beyond the digits that anyone reads.
const STEPS: u32 = 40;

/// The logarithm of the ratio of totals (of speeds: for times, A's by B's) with its interval.
pub(crate) fn estimate(metric: Metric, pairs: &[[f64; 2]], alpha: f64) -> Option<(f64, Interval)> {
    let linear = linear(metric, pairs);
    let middle = ratio(&linear)?.ln();
    let fits = |log: f64| Some(flips(&reduced(&linear, log.exp()))? > alpha * (1.0 + 1e-12));
    let each = || linear.iter().map(|[num, den]| (num / den).ln());
    let mut ends = [each().reduce(f64::min)?, each().reduce(f64::max)?];
    for end in &mut ends {
        let (mut outside, mut inside) = (*end + (*end - middle).signum() * 1e-9, middle);
        if !outside.is_finite() || fits(outside)? {
            return None;
        }
        for _ in 0..STEPS {
            let half = (outside + inside) / 2.0;
            match fits(half)? {
                true => inside = half,
                false => outside = half,
            }
        }
        *end = inside;
    }
    let [low, high] = ends;
    Some((middle, Interval { low, high }))
}

/// How often chance alone gives totals at least as far apart.
pub(crate) fn p_two_sided(metric: Metric, pairs: &[[f64; 2]]) -> Option<f64> {
    flips(&reduced(&linear(metric, pairs), 1.0))
}

/// The ratio of totals less one.
pub(crate) fn share(metric: Metric, pairs: &[[f64; 2]]) -> Option<f64> {
    Some(ratio(&linear(metric, pairs))? - 1.0)
}

/// What is added up, from the logarithms of the speeds of A and B: rates of B by rates of A, or times of A by
/// times of B. Scaled by the largest, so that nothing overflows.
fn linear(metric: Metric, pairs: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let logs = pairs.iter().map(|[a, b]| match metric.is_time() {
        true => [-a, -b],
        false => [*b, *a],
    });
    let top = logs.clone().flatten().reduce(f64::max).unwrap_or(0.0);
    logs.map(|pair| pair.map(|log| (log - top).exp())).collect()
}

fn ratio(linear: &[[f64; 2]]) -> Option<f64> {
    let [num, den]: [Vec<f64>; 2] = [0, 1].map(|of| linear.iter().map(|pair| pair[of]).collect());
    ratio_of_totals(&den, &num)
}

fn reduced(linear: &[[f64; 2]], ratio: f64) -> Vec<f64> {
    linear.iter().map(|[num, den]| num - ratio * den).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ALPHA;
    use proptest::prelude::*;

    fn logs(a: &[f64], b: &[f64]) -> Vec<[f64; 2]> {
        a.iter().zip(b).map(|(a, b)| [a.ln(), b.ln()]).collect()
    }

    #[test]
    fn every_pair_a_tenth_better_is_a_tenth_better_in_all() {
        let a = [9.0, 10.0, 11.0, 12.0, 8.0, 10.5];
        let b = a.map(|v| 1.1 * v);
        let (value, interval) = estimate(Metric::Goodput, &logs(&a, &b), ALPHA).unwrap();
        for found in [value, interval.low, interval.high] {
            assert!((found - 1.1f64.ln()).abs() < 1e-6, "{found}");
        }
        // Five pairs have no interval at 5 %.
        assert_eq!(
            estimate(Metric::Goodput, &logs(&a[..5], &b[..5]), ALPHA),
            None
        );
        assert_eq!(estimate(Metric::Goodput, &[], ALPHA), None);
        // Six pairs of one sign come up in 2 of 64: an interval at that level leaves them out.
        let at_a_level_of = |level| estimate(Metric::Goodput, &logs(&a, &b), level);
        assert!(at_a_level_of(2.0 / 64.0).is_some());
        assert_eq!(at_a_level_of(1.99 / 64.0), None);
    }

    #[test]
    fn times_are_added_as_times() {
        // Scores of times are their negative logarithms: 2 s and 4 s against 1 s and 1 s.
        let share = share(Metric::Completion, &logs(&[0.5, 0.25], &[1.0, 1.0]));
        assert!((share.unwrap() - 2.0).abs() < 1e-12, "{share:?}");
    }

    proptest! {
        #[test]
        fn interval_and_test_agree(pairs in prop::collection::vec((1.0f64..10.0, 1.0f64..10.0), 6..10)) {
            let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let pairs = logs(&a, &b);
            let p = p_two_sided(Metric::Goodput, &pairs).unwrap();
            let (value, interval) = estimate(Metric::Goodput, &pairs, ALPHA).unwrap();
            prop_assert!(interval.contains(value));
            prop_assert_eq!(interval.excludes_zero(), p <= ALPHA, "{} {:?}", p, interval);
            // The other way round it is the mirror image.
            let (back, mirror) = estimate(Metric::Goodput, &logs(&b, &a), ALPHA).unwrap();
            prop_assert!((back + value).abs() < 1e-9);
            prop_assert!((mirror.low + interval.high).abs() < 1e-6);
        }
    }
}
