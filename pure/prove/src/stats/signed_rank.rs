//! Wilcoxon's signed-rank test of paired differences (1945), its estimate (Hodges and Lehmann 1963)
//! and its interval (Tukey 1949): the question is about a typical run.
//!
//! All exact: at 5 to 12 pairs bootstrap intervals cover far less than they promise, these do not.

use super::{ALPHA, Interval, doubled_ranks, sorted};
use model::stats::median;

/// The fewest pairs from which a verdict at 5 % exists: of 5, all in favour have a probability of
/// 1 in 16 without a difference.
pub(crate) const FEWEST_PAIRS: u32 = 6;

/// A moment at which the pairs made so far are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterimLook {
    pub(crate) pairs: u32,
    /// Critical value of min(W+, W-) there.
    pub(crate) critical: u32,
}

/// The usual looks. A false verdict at any of them: 5.0 % in all (simulated over 2 million
/// experiments).
pub(crate) const LOOKS: [InterimLook; 4] = [look(8, 0), look(12, 8), look(16, 24), look(20, 48)];

/// The looks of a longer experiment, 4.99 % in all.
pub(crate) const LONG_LOOKS: [InterimLook; 4] =
    [look(10, 0), look(20, 38), look(30, 121), look(40, 254)];

const fn look(pairs: u32, critical: u32) -> InterimLook {
    InterimLook { pairs, critical }
}

/// The looks that a plan names by their pairs: 8 12 16 20, or 10 20 30 40, or a single fixed number.
/// `None` for others, whose joint level nobody has computed.
pub(crate) fn looks(pairs: &[u32]) -> Option<Vec<InterimLook>> {
    if let [pairs] = *pairs {
        return Some(vec![look(pairs, critical_value(pairs, ALPHA)?)]);
    }
    let is_it = |known: &[InterimLook; 4]| known.iter().map(|l| &l.pairs).eq(pairs);
    [LOOKS, LONG_LOOKS].into_iter().find(is_it).map(Vec::from)
}

/// The largest c for which min(W+, W-) <= c has a probability of at most `alpha` in experiments of `pairs`
/// pairs without a difference; `None` if there is none.
pub(crate) fn critical_value(pairs: u32, alpha: f64) -> Option<u32> {
    let mut below = 0.0;
    let fits = distribution(pairs, most(pairs) / 2)
        .into_iter()
        .take_while(|p| {
            below += p;
            2.0 * below <= alpha * (1.0 + 1e-12)
        })
        .count();
    u32::try_from(fits).ok()?.checked_sub(1)
}

/// How often min(W+, W-) <= `critical` without a difference: the two-sided level of that value.
pub(crate) fn level(pairs: u32, critical: u32) -> f64 {
    let critical = (critical as usize).min(most(pairs));
    (2.0 * distribution(pairs, critical).iter().sum::<f64>()).min(1.0)
}

/// The means of all pairs of values, each value with itself too (Walsh 1949), by size.
pub(crate) fn walsh_averages(d: &[f64]) -> Option<Vec<f64>> {
    let with_later = |(i, a)| d[i..].iter().map(move |b| (a + b) / 2.0);
    sorted(
        &d.iter()
            .enumerate()
            .flat_map(with_later)
            .collect::<Vec<f64>>(),
    )
}

/// The typical difference: the median of the Walsh averages.
pub(crate) fn hodges_lehmann(d: &[f64]) -> Option<f64> {
    median(&walsh_averages(d)?)
}

/// The interval that belongs to a critical value: from the Walsh average of rank c + 1 from below to
/// that of rank c + 1 from above. It excludes zero exactly when the test at `critical` rejects, if no
/// values are tied.
pub(crate) fn interval(d: &[f64], critical: u32) -> Option<Interval> {
    let averages = walsh_averages(d)?;
    let low = critical as usize;
    let high = averages.len().checked_sub(low + 1)?;
    (low <= high).then(|| Interval {
        low: averages[low],
        high: averages[high],
    })
}

/// How often chance alone gives ranks at least as one-sided as these, either way: exact, with the
/// mean of the ranks where sizes are tied, and with zeros ranked but given to neither side (Pratt
/// 1959). Costs the cube of the number of pairs.
pub(crate) fn p_two_sided(d: &[f64]) -> Option<f64> {
    if d.is_empty() || d.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let sizes: Vec<f64> = d.iter().map(|v| v.abs()).collect();
    let ranks = doubled_ranks(&sizes).into_iter().zip(d.iter().copied());
    let ranks: Vec<(usize, f64)> = ranks.filter(|&(_, v)| v != 0.0).collect();
    let total: usize = ranks.iter().map(|(rank, _)| rank).sum();
    let positive: usize = ranks.iter().filter(|(_, v)| *v > 0.0).map(|(r, _)| r).sum();
    let smaller = positive.min(total - positive);
    let chances = sums(ranks.iter().map(|&(rank, _)| rank), smaller);
    Some((2.0 * chances.iter().sum::<f64>()).min(1.0))
}

/// Largest value of W+.
fn most(pairs: u32) -> usize {
    let pairs = pairs as usize;
    pairs * (pairs + 1) / 2
}

/// Probability that W+ of `pairs` untied differences is 0, 1, ... `up_to`.
fn distribution(pairs: u32, up_to: usize) -> Vec<f64> {
    sums(1..=pairs as usize, up_to)
}

/// Probability of each sum from 0 to `up_to`, where a fair coin decides for each rank whether it
/// counts.
fn sums(ranks: impl Iterator<Item = usize>, up_to: usize) -> Vec<f64> {
    let mut chances = vec![0.0; up_to + 1];
    chances[0] = 1.0;
    for rank in ranks {
        for sum in (0..=up_to).rev() {
            let with = sum.checked_sub(rank).map_or(0.0, |rest| chances[rest]);
            chances[sum] = (chances[sum] + with) / 2.0;
        }
    }
    chances
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Random;
    use proptest::prelude::*;

    const X: [f64; 8] = [0.11, 0.04, -0.02, 0.09, 0.15, 0.07, 0.021, 0.121];
    const TIED: [f64; 8] = [0.11, 0.04, -0.02, 0.09, 0.15, 0.07, 0.02, 0.12];

    fn close(a: Option<f64>, b: f64) {
        assert!((a.unwrap() - b).abs() < 1e-12, "{a:?} {b}");
    }

    #[test]
    fn vectors_of_scipy_and_r() {
        close(p_two_sided(&X), 0.015_625);
        close(hodges_lehmann(&X), 0.073);
        let Interval { low, high } = interval(&X, 3).unwrap();
        assert_eq!((low, high), (0.021, 0.121));
        assert!((level(8, 3) - (1.0 - 0.9609375)).abs() < 1e-12);
        // The table for untied values would say 0.0156.
        close(p_two_sided(&TIED), 0.023_437_5);
    }

    #[test]
    fn critical_values_at_5_percent() {
        let expected = [
            0, 2, 3, 5, 8, 10, 13, 17, 21, 25, 29, 34, 40, 46, 52, 58, 65, 73, 81, 89, 98, 107,
            116, 126, 137,
        ];
        for (n, c) in (6..=30).zip(expected) {
            assert_eq!(critical_value(n, ALPHA), Some(c), "n = {n}");
        }
        for n in 0..FEWEST_PAIRS {
            assert_eq!(critical_value(n, ALPHA), None);
        }
        // By the normal approximation 1,955 +- 1 (n = 100, mean 2,525, deviation 290.8).
        assert_eq!(critical_value(100, ALPHA), Some(1955));
        assert!(critical_value(400, ALPHA).is_some());
    }

    #[test]
    fn levels_of_the_looks() {
        let levels = LOOKS.map(|l| level(l.pairs, l.critical));
        for (level, expected) in
            levels
                .iter()
                .zip([0.007_812_5, 0.012_207_03, 0.021_392_82, 0.032_768_25])
        {
            assert!((level - expected).abs() < 5e-9, "{level} {expected}");
        }
        assert_eq!(looks(&[8, 12, 16, 20]).unwrap(), LOOKS);
        assert_eq!(looks(&[10, 20, 30, 40]).unwrap(), LONG_LOOKS);
        assert_eq!(
            looks(&[12]).unwrap(),
            [InterimLook {
                pairs: 12,
                critical: 13
            }]
        );
        for unknown in [&[][..], &[5], &[8, 12], &[8, 12, 16, 21]] {
            assert_eq!(looks(unknown), None);
        }
    }

    /// Without a difference signs are fair coins and independent of the order in which sizes come, so
    /// uniform sizes serve for every symmetric noise.
    #[test]
    fn a_false_verdict_at_any_look_is_as_rare_as_promised() {
        const EXPERIMENTS: u32 = 100_000;
        let mut chance = Random::new(20, 0);
        for looks in [LOOKS, LONG_LOOKS] {
            let mut wrong = 0;
            let mut d: Vec<f64> = Vec::new();
            for _ in 0..EXPERIMENTS {
                d.clear();
                wrong += u32::from(looks.iter().any(|look| {
                    d.extend((d.len()..look.pairs as usize).map(|_| 2.0 * chance.unit() - 1.0));
                    let mut by_size = d.clone();
                    by_size.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
                    let up: u32 = (1..)
                        .zip(&by_size)
                        .filter(|(_, v)| **v > 0.0)
                        .map(|(r, _)| r)
                        .sum();
                    let all = look.pairs * (look.pairs + 1) / 2;
                    up.min(all - up) <= look.critical
                }));
            }
            let joint = f64::from(wrong) / f64::from(EXPERIMENTS);
            // Three standard errors of this simulation are 0.0021.
            assert!((joint - 0.05).abs() < 0.0022, "{joint}");
        }
    }

    #[test]
    fn too_few_or_no_numbers() {
        assert_eq!(hodges_lehmann(&[]), None);
        assert_eq!(interval(&[], 0), None);
        assert_eq!(interval(&[1.0], 1), None);
        assert_eq!(p_two_sided(&[]), None);
        assert_eq!(p_two_sided(&[0.0; 7]), Some(1.0));
        for bad in [f64::NAN, f64::INFINITY] {
            assert_eq!(hodges_lehmann(&[1.0, bad]), None);
            assert_eq!(p_two_sided(&[1.0, bad]), None);
        }
    }

    proptest! {
        #[test]
        fn interval_and_test_agree(d in prop::collection::vec(-1.0f64..1.0, 6..16)) {
            let n = d.len() as u32;
            let c = critical_value(n, ALPHA).unwrap();
            let interval = interval(&d, c).unwrap();
            prop_assert_eq!(interval.excludes_zero(), p_two_sided(&d).unwrap() <= ALPHA);
            prop_assert!(interval.contains(hodges_lehmann(&d).unwrap()));
        }

        #[test]
        fn the_other_way_round_is_the_same(d in prop::collection::vec(-5i32..5, 1..12)) {
            let d: Vec<f64> = d.into_iter().map(f64::from).collect();
            let back: Vec<f64> = d.iter().map(|v| -v).collect();
            prop_assert_eq!(p_two_sided(&d), p_two_sided(&back));
            prop_assert_eq!(hodges_lehmann(&d), hodges_lehmann(&back).map(|v| 0.0 - v));
        }

        /// All 2^n ways to give the signs, one by one.
        #[test]
        fn p_is_the_share_of_all_signs(d in prop::collection::vec(-4i32..5, 1..9)) {
            let d: Vec<f64> = d.into_iter().map(f64::from).collect();
            let ranks = doubled_ranks(&d.iter().map(|v| v.abs()).collect::<Vec<_>>());
            let spread = |sign: &dyn Fn(usize) -> f64| -> f64 {
                d.iter().zip(&ranks).enumerate().filter(|(_, (v, _))| **v != 0.0)
                    .map(|(i, (_, &r))| sign(i) * r as f64).sum::<f64>().abs()
            };
            let seen = spread(&|i| d[i].signum());
            let n = d.len();
            let as_far = (0..1u32 << n)
                .filter(|m| spread(&|i| if m >> i & 1 == 1 { 1.0 } else { -1.0 }) >= seen)
                .count();
            let expected = as_far as f64 / f64::from(1u32 << n);
            prop_assert!((p_two_sided(&d).unwrap() - expected).abs() < 1e-12);
        }
    }
}
