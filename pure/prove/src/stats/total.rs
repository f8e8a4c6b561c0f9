//! The mean difference: the question is about the total, so that rare stalls count in full.
//!
//! Sign flips of the mean (Fisher 1935), counted over subsets (Hartigan, "Using subsample values as
//! typical values", 1969).

use model::Random;

/// Up to this many differences all subsets are counted; above, a fixed sample of them.
const EXACT: usize = 30;
/// Subsets in that sample; with the one that was observed 20,000.
const SAMPLE: usize = 19_999;

/// The arithmetic mean.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    mean.is_finite().then_some(mean)
}

/// The mean of B's values over that of A's, both as measured (bit/s, seconds), not their logarithms.
pub(crate) fn ratio_of_totals(a: &[f64], b: &[f64]) -> Option<f64> {
    let ratio = mean(b)? / mean(a)?;
    ratio.is_finite().then_some(ratio)
}

/// How often fair coins in place of the signs give a mean at least as far from zero.
pub(crate) fn p_two_sided(d: &[f64]) -> Option<f64> {
    if d.is_empty() || d.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let negated: Vec<f64> = d.iter().map(|v| -v).collect();
    Some((2.0 * share_not_above_zero(d).min(share_not_above_zero(&negated))).min(1.0))
}

/// Share of the subsets of some differences whose sum is at most 0; the empty one counts among them.
fn share_not_above_zero(d: &[f64]) -> f64 {
    if d.len() <= EXACT {
        return not_above_zero(d) / 2f64.powi(d.len() as i32);
    }
    // The same sample for the same number of differences, so that a verdict can be repeated.
    let mut coins = Random::new(d.len() as u64, 0);
    let (mut not_above, mut all) = (1, 1);
    for _ in 0..SAMPLE {
        let (mut sum, mut count, mut bits) = (0.0, 0u32, 0);
        for (at, value) in d.iter().enumerate() {
            if at % 64 == 0 {
                bits = coins.bits();
            }
            if bits >> (at % 64) & 1 == 1 {
                sum += value;
                count += 1;
            }
        }
        all += u32::from(count > 0);
        not_above += u32::from(count > 0 && sum <= 0.0);
    }
    f64::from(not_above) / f64::from(all)
}

/// Subsets of `d` whose sum is at most 0, and the empty one. Each half has few enough sums to sort them all;
/// then the two halves meet (Horowitz and Sahni 1974).
fn not_above_zero(d: &[f64]) -> f64 {
    let (one, other) = d.split_at(d.len() / 2);
    let (one, other) = (sums(one), sums(other));
    // Sums that differ by rounding alone are equal.
    let rounding = 1e-13 * d.iter().map(|v| v.abs()).sum::<f64>();
    let mut reach = other.len();
    let mut count = 0.0;
    for sum in one {
        while reach > 0 && sum + other[reach - 1] > rounding {
            reach -= 1;
        }
        count += reach as f64;
    }
    count
}

/// The sums of all subsets, by size.
fn sums(d: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0];
    for &step in d {
        let (low, high) = (step.min(0.0), step.max(0.0));
        // Two sorted lists in one: the sums with and without this value.
        let mut merged = Vec::with_capacity(2 * sums.len());
        let (mut i, mut j) = (0, 0);
        while i < sums.len() {
            if sums[i] + low <= sums[j] + high {
                merged.push(sums[i] + low);
                i += 1;
            } else {
                merged.push(sums[j] + high);
                j += 1;
            }
        }
        merged.extend(sums[j..].iter().map(|sum| sum + high));
        sums = merged;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn too_few_or_no_numbers() {
        assert_eq!(mean(&[]), None);
        assert_eq!(p_two_sided(&[]), None);
        assert_eq!(p_two_sided(&[0.1, f64::NAN]), None);
        assert_eq!(ratio_of_totals(&[0.0], &[1.0]), None);
        assert_eq!(ratio_of_totals(&[2.0, 4.0], &[6.0]), Some(2.0));
        assert_eq!(p_two_sided(&[0.0; 8]), Some(1.0));
    }

    #[test]
    fn a_sample_of_the_subsets_agrees_with_all_of_them() {
        let mut chance = Random::new(3, 0);
        let d: Vec<f64> = (0..31).map(|_| chance.unit() - 0.4).collect();
        let (p, q) = (p_two_sided(&d).unwrap(), p_two_sided(&d[..30]).unwrap());
        assert!((p - q).abs() < 0.02, "{p} {q}");
        // A verdict can be repeated: the sample is always the same.
        let many: Vec<f64> = (0..150).map(|_| chance.unit() - 0.46).collect();
        assert_eq!([p, p_two_sided(&many).unwrap()], [0.0235, 0.9086]);
    }

    proptest! {
        /// All subsets and all signs, one by one.
        #[test]
        fn counted_one_by_one(d in prop::collection::vec(-9i32..10, 6..11)) {
            let d: Vec<f64> = d.into_iter().map(f64::from).collect();
            let n = d.len();
            let chosen = |set: u32| d.iter().enumerate().filter(move |(i, _)| set >> i & 1 == 1).map(|(_, v)| v);
            let all: f64 = d.iter().sum();
            let as_far = (0..1u32 << n)
                .filter(|&set| (2.0 * chosen(set).sum::<f64>() - all).abs() >= all.abs())
                .count();
            let expected = as_far as f64 / f64::from(1u32 << n);
            prop_assert!((p_two_sided(&d).unwrap() - expected).abs() < 1e-12);
        }
    }
}
