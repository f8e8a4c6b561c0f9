//! Did the path itself change during the experiment? For the report: no run is ever left out for it.

use super::spread::median;

/// Where a series most looks like two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// How many values lie before it.
    pub after: usize,
    /// Median of those.
    pub before_median: f64,
    /// Median of the others.
    pub after_median: f64,
    /// How often independent values give as clear a change somewhere, about: Pettitt's own
    /// approximation, too large for few values.
    pub p: f64,
}

/// The most likely change of level in values in the order of time (Pettitt 1979): of the settings'
/// effect the values must be free already. `None` below two values.
pub fn change_point(values: &[f64]) -> Option<ChangePoint> {
    let n = values.len();
    if n < 2 || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    // U grows at each value by how many others lie below it, less those above.
    let mut u = 0i64;
    let (mut best, mut after) = (-1, 0);
    for (at, value) in values[..n - 1].iter().enumerate() {
        let signs = values
            .iter()
            .map(|other| i64::from(value > other) - i64::from(value < other));
        u += signs.sum::<i64>();
        if u.abs() > best {
            (best, after) = (u.abs(), at + 1);
        }
    }
    let n = n as f64;
    let p = 2.0 * (-6.0 * (best as f64).powi(2) / (n.powi(3) + n.powi(2))).exp();
    Some(ChangePoint {
        after,
        before_median: median(&values[..after])?,
        after_median: median(&values[after..])?,
        p: p.min(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_found_where_it_is() {
        let series: Vec<f64> = (0..24)
            .map(|i| if i < 15 { 1.0 } else { 0.6 } + 0.01 * f64::from(i * 7 % 5))
            .collect();
        let found = change_point(&series).unwrap();
        assert_eq!(found.after, 15);
        assert!(found.p < 0.01, "{found:?}");
        assert!(found.before_median > 1.0 && found.after_median < 0.7);
    }

    #[test]
    fn none_where_there_is_none() {
        let series: Vec<f64> = (0..24).map(|i| f64::from(i * 7 % 24)).collect();
        assert!(change_point(&series).unwrap().p > 0.5);
        assert_eq!(change_point(&[1.0; 9]).unwrap().p, 1.0);
        assert_eq!(change_point(&[1.0]), None);
        assert_eq!(change_point(&[1.0, f64::NAN]), None);
    }
}
