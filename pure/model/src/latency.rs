//! Request latencies as a histogram that can be added and saved, with percentiles.

use crate::Nanos;
use serde::{Deserialize, Serialize};

/// A histogram of latencies: pairs of a value in nanoseconds and how often it occurred, by rising
/// value. The recorder rounds values to three significant digits (HDR histogram), so a percentile
/// is right within 0.1 %.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// `[value in ns, count]`, values strictly rising, counts above zero.
    #[serde(rename = "counts_by_ns")]
    counts: Vec<(u64, u64)>,
}

impl Latency {
    /// From pairs of value in nanoseconds and count, in any order.
    pub fn from_counts(pairs: impl IntoIterator<Item = (u64, u64)>) -> Latency {
        let mut counts: Vec<(u64, u64)> = pairs.into_iter().filter(|&(_, n)| n > 0).collect();
        counts.sort_unstable();
        counts.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(later.1);
            }
            same
        });
        Latency { counts }
    }

    /// The pairs of value in nanoseconds and count, by rising value.
    pub fn counts(&self) -> &[(u64, u64)] {
        &self.counts
    }

    /// Both histograms in one.
    pub fn merged(&self, other: &Latency) -> Latency {
        Latency::from_counts(self.counts.iter().chain(&other.counts).copied())
    }

    /// How many requests were recorded.
    pub fn count(&self) -> u64 {
        let counts = self.counts.iter();
        counts.fold(0, |sum, &(_, n)| sum.saturating_add(n))
    }

    /// The smallest recorded value that at least `share` (0 to 1) of all requests do not exceed;
    /// `None` if nothing was recorded.
    pub fn percentile(&self, share: f64) -> Option<Nanos> {
        let rank = share.clamp(0.0, 1.0) * self.count() as f64;
        let (rank, mut seen) = (rank.ceil().max(1.0) as u64, 0u64);
        let found = self.counts.iter().find(|(_, n)| {
            seen = seen.saturating_add(*n);
            seen >= rank
        });
        found.map(|&(value, _)| Nanos(value)).or(self.max())
    }

    /// The largest recorded value.
    pub fn max(&self) -> Option<Nanos> {
        self.counts.last().map(|&(value, _)| Nanos(value))
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> Option<Nanos> {
        let counts = self.counts.iter();
        let sum: u128 = counts.map(|&(v, n)| u128::from(v) * u128::from(n)).sum();
        let count = u128::from(self.count());
        (count > 0).then(|| Nanos(u64::try_from(sum / count).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let hundred = Latency::from_counts((1..=100).map(|v| (v, 1)));
        assert_eq!(hundred.percentile(0.5), Some(Nanos(50)));
        assert_eq!(hundred.percentile(0.99), Some(Nanos(99)));
        assert_eq!(hundred.percentile(1.0), Some(Nanos(100)));
        assert_eq!(hundred.percentile(0.0), Some(Nanos(1)));
        assert_eq!(Latency::default().percentile(0.5), None);
    }

    proptest! {
        #[test]
        fn merging_is_counting_together(a in prop::collection::vec(0u64..1000, 0..50),
                                        b in prop::collection::vec(0u64..1000, 0..50)) {
            let one = |v: &[u64]| Latency::from_counts(v.iter().map(|&x| (x, 1)));
            let mut all = a.clone();
            all.extend(&b);
            let merged = one(&a).merged(&one(&b));
            prop_assert_eq!(&merged, &one(&all));
            all.sort_unstable();
            for share in [0.5, 0.9, 0.999] {
                let rank = (share * all.len() as f64).ceil().max(1.0) as usize;
                prop_assert_eq!(merged.percentile(share).map(|n| n.0), all.get(rank - 1).copied());
            }
        }
    }
}
