//! Median, percentile and per cent, once for every room.

use std::borrow::Borrow;

/// The median; of an even number of values the mean of the middle two. `None`: no values, or one is not finite.
pub fn median<V: Borrow<f64>>(values: impl IntoIterator<Item = V>) -> Option<f64> {
    let mut all: Vec<f64> = values.into_iter().map(|v| *v.borrow()).collect();
    let (half, is_odd) = (all.len() / 2, all.len() % 2 == 1);
    if all.is_empty() {
        return None;
    }
    let (low, high, _) = all.select_nth_unstable_by(half, f64::total_cmp);
    let middle = match low.iter().copied().max_by(f64::total_cmp) {
        Some(low) if !is_odd => (low + *high) / 2.0,
        _ => *high,
    };
    all.iter().all(|v| v.is_finite()).then_some(middle)
}

/// The value that `share` (0 to 1) of all do not exceed, by nearest rank. Sorts the values.
pub fn percentile<T: PartialOrd + Copy>(values: &mut [T], share: f64) -> Option<T> {
    values.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
    values.get(rank - 1).copied()
}

/// A share as a percentage with two digits at the least: `0 %`, `0.012 %`, `3.4 %`, `97 %`. Never rounds
/// something to 0.
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    if !p.is_finite() {
        return "unknown".to_owned();
    }
    let decimals = match p.abs() {
        0.0 => 0,
        // As it rounds to 10 and more.
        p if p >= 9.95 => 0,
        p => (1.0 - p.log10().floor()).clamp(1.0, 12.0) as usize,
    };
    format!("{p:.decimals$} %")
}

/// A change in per cent with its sign: `+3.4 %`.
pub fn signed_percent(share: f64) -> String {
    match share >= 0.0 {
        true => format!("+{}", percent(share)),
        false => percent(share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_values() {
        assert_eq!(median([3.0, 1.0, 2.0, 10.0]), Some(2.5));
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!((median::<f64>([]), median([f64::NAN])), (None, None));
        assert_eq!(percentile(&mut [4, 1, 3, 2], 0.5), Some(2));
        assert_eq!(percentile(&mut [4.0, 1.0, 3.0, 2.0], 1.0), Some(4.0));
        assert_eq!(percentile::<u8>(&mut [], 0.5), None);
    }

    #[test]
    fn shares_in_per_cent() {
        for (share, expected) in [
            (0.0, "0 %"),
            (0.000_001, "0.00010 %"),
            (0.000_12, "0.012 %"),
            (0.0041, "0.41 %"),
            (0.034, "3.4 %"),
            (0.05, "5.0 %"),
            (-0.05, "-5.0 %"),
            (0.0995, "10 %"),
            (0.2, "20 %"),
            (1.0, "100 %"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(percent(share), expected);
        }
        assert_eq!(signed_percent(0.0331), "+3.3 %");
        assert_eq!(signed_percent(-0.2), "-20 %");
    }
}
