//! Two samples without pairs: the rank-sum test (Wilcoxon 1945, Mann and Whitney 1947), the shift of
//! Hodges and Lehmann, and its interval. For other people's runs, which nobody paired.

use super::quantile::{normal_cdf, normal_quantile};
use super::{Estimate, Interval, doubled_ranks, middle, sorted};

/// Above this many values in both samples the normal approximation is good in three digits, and the
/// exact count is slow.
const EXACT: usize = 100;

/// How often dealing the same values out at random gives rank sums at least as far apart, either way.
/// Exact up to 100 values in all, ties included; above, the normal approximation with its correction
/// for ties.
pub fn p_two_sided(a: &[f64], b: &[f64]) -> Option<f64> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    if a.is_empty() || b.is_empty() || all.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let ranks = doubled_ranks(&all);
    let observed: usize = ranks[..a.len()].iter().sum();
    // Twice the mean of the doubled rank sum is whole, so distances are compared exactly.
    let mean = 2 * a.len() * (all.len() + 1);
    let far = (2 * observed).abs_diff(mean);
    if all.len() > EXACT {
        return Some(approximate(&ranks, a.len(), far as f64 / 4.0));
    }
    let ways = rank_sums(&ranks, a.len());
    let as_far = ways
        .iter()
        .enumerate()
        .filter(|(sum, _)| (2 * sum).abs_diff(mean) >= far);
    Some(as_far.map(|(_, ways)| ways).sum::<f64>() / ways.iter().sum::<f64>())
}

/// By how much values of `b` are typically above those of `a`: the median of all differences, and the
/// interval of them whose level is at most `alpha` without a difference (exact for untied values).
/// `None` if so few values have no such interval: 4 and 4, or 3 and 5, are the fewest at 5 %.
pub fn shift(a: &[f64], b: &[f64], alpha: f64) -> Option<Estimate> {
    let differences = b.iter().flat_map(|b| a.iter().map(move |a| b - a));
    let differences = sorted(&differences.collect::<Vec<_>>())?;
    let critical = critical_value(a.len(), b.len(), alpha)?;
    let high = differences.len().checked_sub(critical + 1)?;
    Some(Estimate {
        value: middle(&differences)?,
        interval: Interval {
            low: *differences.get(critical)?,
            high: differences[high],
        },
    })
}

/// The largest c for which min(U, mn - U) <= c comes up in at most `alpha` without a difference.
pub fn critical_value(m: usize, n: usize, alpha: f64) -> Option<usize> {
    if m == 0 || n == 0 {
        return None;
    }
    if m + n > EXACT {
        let (m, n) = (m as f64, n as f64);
        let spread = (m * n * (m + n + 1.0) / 12.0).sqrt();
        let critical = m * n / 2.0 - 0.5 - normal_quantile(1.0 - alpha / 2.0)? * spread;
        return (critical >= 0.0).then_some(critical as usize);
    }
    let ranks: Vec<usize> = (1..=m + n).collect();
    let ways = rank_sums(&ranks, m);
    let all: f64 = ways.iter().sum();
    let least = m * (m + 1) / 2;
    let mut below = 0.0;
    let fits = ways[least..]
        .iter()
        .take_while(|ways| {
            below += **ways / all;
            2.0 * below <= alpha * (1.0 + 1e-12)
        })
        .count();
    fits.checked_sub(1)
}

/// In how many ways `m` of these ranks have each sum.
fn rank_sums(ranks: &[usize], m: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    // ways[k][s]: k ranks with the sum s.
    let mut ways = vec![vec![0.0; most + 1]; m + 1];
    ways[0][0] = 1.0;
    let mut so_far = 0;
    for &rank in ranks {
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

/// The normal approximation for a rank sum this far from its mean, with continuity correction.
fn approximate(doubled: &[usize], m: usize, far: f64) -> f64 {
    let total = doubled.len() as f64;
    let m = m as f64;
    let mean = (total + 1.0) / 2.0;
    let squares: f64 = doubled
        .iter()
        .map(|&r| (r as f64 / 2.0 - mean).powi(2))
        .sum();
    let spread = (m * (total - m) / (total * (total - 1.0)) * squares).sqrt();
    if spread == 0.0 {
        return 1.0;
    }
    (2.0 * normal_cdf(-(far - 0.5).max(0.0) / spread)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ALPHA;
    use proptest::prelude::*;

    #[test]
    fn vector_of_scipy_and_r() {
        let a = [1.2, 3.4, 2.2, 5.1, 0.3, 2.8];
        let b = [4.1, 3.9, 6.2, 2.5, 7.7, 5.5, 4.4];
        let p = p_two_sided(&a, &b).unwrap();
        assert!((p - 0.034_965).abs() < 5e-7, "{p}");
        let shift = shift(&a, &b, ALPHA).unwrap();
        assert!(shift.interval.low > 0.0 && shift.interval.contains(shift.value));
    }

    #[test]
    fn too_few_or_no_numbers() {
        assert_eq!(p_two_sided(&[], &[1.0]), None);
        assert_eq!(p_two_sided(&[f64::NAN], &[1.0]), None);
        assert_eq!(p_two_sided(&[1.0], &[2.0]), Some(1.0));
        assert_eq!(p_two_sided(&[1.0; 3], &[1.0; 4]), Some(1.0));
        assert_eq!(critical_value(0, 9, ALPHA), None);
        assert_eq!(critical_value(3, 4, ALPHA), None);
        assert_eq!(critical_value(4, 4, ALPHA), Some(0));
        assert_eq!(shift(&[1.0], &[2.0], ALPHA), None);
        assert_eq!(shift(&[], &[2.0], ALPHA), None);
    }

    #[test]
    fn the_approximation_takes_over_smoothly() {
        let a: Vec<f64> = (0..50).map(|i| f64::from(i * 37 % 50)).collect();
        let b: Vec<f64> = a.iter().map(|v| v + 6.5).collect();
        let mut more = b.clone();
        more.push(25.0);
        let (exact, approximate) = (
            p_two_sided(&a, &b).unwrap(),
            p_two_sided(&a, &more).unwrap(),
        );
        assert!((exact - approximate).abs() < 0.01, "{exact} {approximate}");
        let (exact, approximate) = (critical_value(50, 50, ALPHA), critical_value(50, 51, ALPHA));
        assert!(
            approximate.unwrap().abs_diff(exact.unwrap()) < 40,
            "{exact:?} {approximate:?}"
        );
    }

    proptest! {
        #[test]
        fn interval_and_test_agree(a in prop::collection::vec(-1.0f64..1.0, 4..10),
                                   b in prop::collection::vec(-1.0f64..2.0, 4..10)) {
            let shift = shift(&a, &b, ALPHA).unwrap();
            prop_assert_eq!(shift.interval.excludes_zero(), p_two_sided(&a, &b).unwrap() <= ALPHA);
        }

        /// All ways to deal the values out, one by one.
        #[test]
        fn p_is_the_share_of_all_deals(a in prop::collection::vec(-3i32..4, 1..6),
                                       b in prop::collection::vec(-3i32..4, 1..6)) {
            let float = |v: &[i32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
            let (a, b) = (float(&a), float(&b));
            let all: Vec<f64> = a.iter().chain(&b).copied().collect();
            let ranks = doubled_ranks(&all);
            let total = all.len();
            let far = |set: u32| {
                let sum: usize = (0..total).filter(|i| set >> i & 1 == 1).map(|i| ranks[i]).sum();
                (2 * sum).abs_diff(2 * a.len() * (total + 1))
            };
            let deals: Vec<u32> = (0..1u32 << total).filter(|s| s.count_ones() as usize == a.len()).collect();
            let seen = far((1 << a.len()) - 1);
            let as_far = deals.iter().filter(|&&s| far(s) >= seen).count();
            let expected = as_far as f64 / deals.len() as f64;
            prop_assert!((p_two_sided(&a, &b).unwrap() - expected).abs() < 1e-12);
        }
    }
}
