//! The methods of a verdict, one file each.
//!
//! The unit is the run, never the second: per-second samples of one run depend on each other. A
//! paired difference is `d = y_B - y_A` with `y = ln(metric)`, so every estimate here is in
//! logarithms unless it says otherwise; `exp(d) - 1` is the relative change.
//!
//! Every function is total: where there are too few data, or a value that is no number, the answer
//! is `None`.

pub mod change;
pub(crate) mod decision;
pub(crate) mod factors;
pub(crate) mod multiple;
pub(crate) mod power;
pub(crate) mod quantile;
pub(crate) mod rank_sum;
pub(crate) mod signed_rank;
pub(crate) mod spread;
pub(crate) mod total;

/// The level of all verdicts: without a difference, at most this share ends with a verdict of either kind.
pub(crate) const ALPHA: f64 = 0.05;

/// What the data do not contradict, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Zero lies outside: a difference is shown.
    pub(crate) fn excludes_zero(self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    pub(crate) fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// A figure and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IntervalEstimate {
    pub(crate) value: f64,
    pub(crate) interval: Interval,
}

/// The values by size, or `None` if one of them is no number.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    let mut all = values.to_vec();
    all.sort_unstable_by(f64::total_cmp);
    values.iter().all(|v| v.is_finite()).then_some(all)
}

/// The rank of each value from 1 times two, equal values sharing the mean of their ranks: doubled,
/// such a mean is a whole number.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..values.len()).collect();
    by_size.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    let mut first = 0;
    for same in by_size.chunk_by(|&a, &b| values[a] == values[b]) {
        for &index in same {
            // The ranks of this group run from first + 1 to first + its size.
            ranks[index] = 2 * first + same.len() + 1;
        }
        first += same.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(doubled_ranks(&[3.0, 1.0, 3.0, -2.0]), [7, 4, 7, 2]);
        assert_eq!(doubled_ranks(&[0.0, -0.0]), [3, 3]);
        assert!(doubled_ranks(&[]).is_empty());
    }

    #[test]
    fn an_interval_includes_its_ends() {
        let touching = Interval {
            low: 0.0,
            high: 1.0,
        };
        assert!(!touching.excludes_zero() && touching.contains(1.0));
        let below = Interval {
            low: -2.0,
            high: -1.0,
        };
        assert!(below.excludes_zero() && below.contains(-1.5));
    }
}
