//! How much values scatter, with and without the outliers.

use super::quantile::chi_squared_quantile;
use super::sorted;
use model::stats::median;

/// The standard deviation of a sample; `None` below two values.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let deviation = (squares / (n - 1.0)).sqrt();
    (n > 1.0 && deviation.is_finite()).then_some(deviation)
}

/// The standard deviation of a normal sample, found from the smaller distances between its values
/// (Qn of Rousseeuw and Croux 1993, with their corrections for few values): nearly half of the values
/// may be anything. `None` below two values.
pub(crate) fn robust_deviation(values: &[f64]) -> Option<f64> {
    let all = sorted(values)?;
    let n = all.len();
    let distances: Vec<f64> = (0..n)
        .flat_map(|i| {
            let all = &all;
            (i + 1..n).map(move |j| all[j] - all[i])
        })
        .collect();
    let half = n / 2 + 1;
    let rank = half * (half - 1) / 2;
    let distance = *sorted(&distances)?.get(rank.checked_sub(1)?)?;
    const FEW: [f64; 8] = [0.399, 0.994, 0.512, 0.844, 0.611, 0.857, 0.669, 0.872];
    let n_f = n as f64;
    let correction = match n {
        2..=9 => FEW[n - 2],
        n if n % 2 == 1 => n_f / (n_f + 1.4),
        _ => n_f / (n_f + 3.8),
    };
    Some(2.2219 * correction * distance)
}

/// By how much a deviation from so few values is raised before it is planned with: 4 times in 5 the
/// true one is not larger. 1.35 for 8 values.
pub(crate) fn planning_factor(values: usize) -> Option<f64> {
    let df = values.checked_sub(1)? as f64;
    Some((df / chi_squared_quantile(0.2, df)?).sqrt())
}

/// The indices of values further from the median than `deviations` robust deviations. For the report:
/// no run is ever left out for it.
pub(crate) fn outliers(values: &[f64], deviations: f64) -> Vec<usize> {
    let (Some(centre), Some(deviation)) = (median(values), robust_deviation(values)) else {
        return Vec::new();
    };
    let remote = |&i: &usize| (values[i] - centre).abs() > deviations * deviation;
    // Where more than half of the values are equal, none of the others can be called far.
    (0..values.len())
        .filter(|i| deviation > 0.0 && remote(i))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::quantile::normal_quantile;
    use model::Random;

    fn normal(count: usize, seed: u64) -> Vec<f64> {
        let mut chance = Random::new(seed, 0);
        (0..count)
            .map(|_| normal_quantile(chance.unit().max(1e-12)).unwrap())
            .collect()
    }

    #[test]
    fn of_few_values() {
        assert_eq!(median([3.0, 1.0, 2.0, 10.0]), Some(2.5));
        assert_eq!(deviation(&[1.0, 3.0]), Some(2f64.sqrt()));
        assert_eq!(robust_deviation(&[0.0, 1.0]), Some(2.2219 * 0.399));
        for few in [&[][..], &[1.0]] {
            assert_eq!(deviation(few), None);
            assert_eq!(robust_deviation(few), None);
            assert!(outliers(few, 3.0).is_empty());
        }
        assert_eq!(robust_deviation(&[f64::NAN, 1.0, 2.0]), None);
    }

    #[test]
    fn right_on_average_for_8_normal_values() {
        let mean = (0..2000)
            .map(|seed| robust_deviation(&normal(8, seed)).unwrap())
            .sum::<f64>()
            / 2000.0;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
    }

    #[test]
    fn a_stall_moves_the_plain_one_and_not_the_robust_one() {
        let mut values = normal(20, 1);
        let before = (
            deviation(&values).unwrap(),
            robust_deviation(&values).unwrap(),
        );
        values[3] = -50.0;
        let after = (
            deviation(&values).unwrap(),
            robust_deviation(&values).unwrap(),
        );
        assert!(
            after.0 > 5.0 * before.0 && after.1 < 1.3 * before.1,
            "{before:?} {after:?}"
        );
        assert_eq!(outliers(&values, 5.0), [3]);
        assert!(outliers(&[1.0, 1.0, 1.0, 1.0, 2.0], 3.0).is_empty());
    }

    #[test]
    fn planning_with_8_pairs() {
        assert!((planning_factor(8).unwrap() - 1.35).abs() < 0.005);
        assert!(planning_factor(1).is_none() && planning_factor(0).is_none());
    }

    #[test]
    fn the_robust_deviation_of_ten_and_of_eleven_values_by_hand() {
        // The 15th of the distances: of 0 to 9 nine are 1 and eight are 2, of 0 to 10 ten and nine.
        let of =
            |count: u32| robust_deviation(&(0..count).map(f64::from).collect::<Vec<_>>()).unwrap();
        for (count, correction) in [(10, 10.0 / 13.8), (11, 11.0 / 12.4)] {
            let expected = 2.2219 * correction * 2.0;
            assert!((of(count) - expected).abs() < 1e-12, "{count}");
        }
        // Of nine the tenth of eight, seven, ...: 2, with the correction of the table.
        assert!((of(9) - 2.2219 * 0.872 * 2.0).abs() < 1e-12);
    }
}
