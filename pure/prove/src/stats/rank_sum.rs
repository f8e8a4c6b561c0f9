//! Two samples without pairs: the shift of Hodges and Lehmann and its interval by the rank-sum test
//! (Wilcoxon 1945, Mann and Whitney 1947). For published runs, which nobody paired.

use super::quantile::normal_quantile;
use super::{Interval, IntervalEstimate, sorted};
use model::stats::median;

/// Above this many values in both samples the normal approximation is good in three digits, and the
/// exact count is slow.
const EXACT: usize = 100;

/// By how much values of `b` are typically above those of `a`: the median of all differences, and the
/// interval of them whose level is at most `alpha` without a difference (exact for untied values).
/// `None` if so few values have no such interval: 4 and 4, or 3 and 5, are the fewest at 5 %.
pub(crate) fn shift(a: &[f64], b: &[f64], alpha: f64) -> Option<IntervalEstimate> {
    let differences = b.iter().flat_map(|b| a.iter().map(move |a| b - a));
    let differences = sorted(&differences.collect::<Vec<_>>())?;
    let critical = critical_value(a.len(), b.len(), alpha)?;
    let high = differences.len().checked_sub(critical + 1)?;
    Some(IntervalEstimate {
        value: median(&differences)?,
        interval: Interval {
            low: *differences.get(critical)?,
            high: differences[high],
        },
    })
}

/// The largest c for which min(U, mn - U) <= c has a probability of at most `alpha` without a difference.
pub(crate) fn critical_value(m: usize, n: usize, alpha: f64) -> Option<usize> {
    if m == 0 || n == 0 {
        return None;
    }
    if m + n > EXACT {
        let (m, n) = (m as f64, n as f64);
        let spread = (m * n * (m + n + 1.0) / 12.0).sqrt();
        let critical = m * n / 2.0 - 0.5 - normal_quantile(1.0 - alpha / 2.0)? * spread;
        return (critical >= 0.0).then_some(critical as usize);
    }
    let ways = rank_sums(m + n, m);
    let all: f64 = ways.iter().sum();
    let least = m * (m + 1) / 2;
    let mut below = 0.0;
    let fits = ways[least..].iter().take_while(|ways| {
        below += **ways / all;
        2.0 * below <= alpha * (1.0 + 1e-12)
    });
    fits.count().checked_sub(1)
}

/// In how many ways `m` of the ranks from 1 to `n` have each sum.
fn rank_sums(n: usize, m: usize) -> Vec<f64> {
    let most = n * (n + 1) / 2;
    // ways[k][s]: k ranks with the sum s.
    let mut ways = vec![vec![0.0; most + 1]; m + 1];
    ways[0][0] = 1.0;
    let mut so_far = 0;
    for rank in 1..=n {
        so_far += rank;
        for k in (1..=m).rev() {
            let (fewer, with) = ways.split_at_mut(k);
            for sum in rank..=so_far {
                with[0][sum] += fewer[k - 1][sum - rank];
            }
        }
    }
    ways.swap_remove(m)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ALPHA;

    #[test]
    fn vector_of_scipy_and_r() {
        let a = [1.2, 3.4, 2.2, 5.1, 0.3, 2.8];
        let b = [4.1, 3.9, 6.2, 2.5, 7.7, 5.5, 4.4];
        let shift = shift(&a, &b, ALPHA).unwrap();
        assert!(shift.interval.low > 0.0 && shift.interval.contains(shift.value));
    }

    #[test]
    fn too_few_or_no_numbers() {
        assert_eq!(critical_value(0, 9, ALPHA), None);
        assert_eq!(critical_value(3, 4, ALPHA), None);
        assert_eq!(critical_value(4, 4, ALPHA), Some(0));
        assert_eq!(shift(&[1.0], &[2.0], ALPHA), None);
        assert_eq!(shift(&[], &[2.0], ALPHA), None);
    }

    /// The usual table of Mann and Whitney's U, two-sided 5 % and 1 %.
    #[test]
    fn critical_values_of_the_table() {
        for (m, n, five, one) in [
            (4, 4, Some(0), None),
            (5, 5, Some(2), Some(0)),
            (5, 8, Some(6), Some(2)),
            (8, 8, Some(13), Some(7)),
            (9, 12, Some(26), Some(18)),
            (10, 10, Some(23), Some(16)),
            (12, 15, Some(49), Some(37)),
            (20, 20, Some(127), Some(105)),
        ] {
            for (m, n) in [(m, n), (n, m)] {
                let found = [0.05, 0.01].map(|alpha| critical_value(m, n, alpha));
                assert_eq!(found, [five, one], "{m} {n}");
            }
        }
    }

    #[test]
    fn the_approximation_takes_over_smoothly() {
        let (exact, approximate) = (critical_value(50, 50, ALPHA), critical_value(50, 51, ALPHA));
        assert!(
            approximate.unwrap().abs_diff(exact.unwrap()) < 40,
            "{exact:?} {approximate:?}"
        );
    }

    #[test]
    fn of_many_values_the_critical_value_is_that_of_the_normal_distribution() {
        // 60 x 60 / 2 - 1/2 - 1.959964 x sqrt(3600 x 121 / 12) = 1426.07
        assert_eq!(critical_value(60, 60, 0.05), Some(1426));
        assert_eq!(
            [critical_value(0, 9, 0.05), critical_value(9, 0, 0.05)],
            [None, None]
        );
    }
}
