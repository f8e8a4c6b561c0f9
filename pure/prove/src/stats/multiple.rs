//! Several comparisons at once.

/// Holm's adjustment (1979): judged by these p-values, the chance of even one false finding among all
/// is at most the level of one test. In the order given.
pub(crate) fn holm(p: &[f64]) -> Vec<f64> {
    let mut by_size: Vec<usize> = (0..p.len()).collect();
    by_size.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut largest: f64 = 0.0;
    for (before, index) in by_size.into_iter().enumerate() {
        largest = largest.max(p[index] * (p.len() - before) as f64).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: &[f64], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        assert!(
            a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12),
            "{a:?} {b:?}"
        );
    }

    #[test]
    fn vectors_of_scipy_and_r() {
        let p = [0.01, 0.04, 0.03, 0.2];
        close(&holm(&p), &[0.04, 0.09, 0.09, 0.2]);
        assert!(holm(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn never_smaller_never_above_one_and_in_the_same_order(p in prop::collection::vec(0.0f64..=1.0, 1..12)) {
            let adjusted = holm(&p);
                for (i, a) in adjusted.iter().enumerate() {
                    prop_assert!(*a > p[i] - 1e-12 && *a <= 1.0);
                    prop_assert!(p.iter().zip(&adjusted).all(|(q, b)| *q >= p[i] || *b < a + 1e-12));
                }
        }
    }
}
