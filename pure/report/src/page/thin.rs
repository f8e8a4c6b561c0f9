//! As many points as a screen can show, of as many as there are.

use super::{Series, Stroke};
use std::collections::BTreeSet;

/// A part of `series` that looks the same over so many columns and rows: of a line the first, the smallest, the largest
/// and the last value of each column, of points one in each cell. Values and their order stay unchanged.
pub(super) fn thinned(
    series: &Series,
    column: impl Fn(f64) -> Option<i64>,
    row: impl Fn(f64) -> Option<i64>,
) -> Vec<(f64, Option<f64>)> {
    match series.stroke {
        Stroke::Points => {
            let mut taken = BTreeSet::new();
            let points = series.points.iter().filter(|(x, y)| {
                let cell = column(*x).zip(y.and_then(&row));
                cell.is_some_and(|cell| taken.insert(cell))
            });
            points.copied().collect()
        }
        Stroke::Line | Stroke::Steps | Stroke::Reference | Stroke::Bars => line(series, column),
    }
}

fn line(series: &Series, column: impl Fn(f64) -> Option<i64>) -> Vec<(f64, Option<f64>)> {
    let mut out: Vec<(f64, Option<f64>)> = Vec::new();
    let mut bucket: Vec<(f64, f64)> = Vec::new();
    let mut place = None;
    for (x, y) in &series.points {
        let here = column(*x);
        if here != place || y.is_none() {
            flush(&mut bucket, &mut out);
            place = here;
        }
        match y {
            Some(y) if here.is_some() && y.is_finite() => {
                // Of more than four only those that can be seen stay.
                bucket.push((*x, *y));
                if bucket.len() > 64 {
                    extremes(&mut bucket);
                }
            }
            _ if out.last().is_some_and(|(_, y)| y.is_some()) => out.push((*x, None)),
            _ => {}
        }
    }
    flush(&mut bucket, &mut out);
    out
}

fn flush(bucket: &mut Vec<(f64, f64)>, out: &mut Vec<(f64, Option<f64>)>) {
    extremes(bucket);
    out.extend(bucket.drain(..).map(|(x, y)| (x, Some(y))));
}

/// Leaves the first, the smallest, the largest and the last.
fn extremes(bucket: &mut Vec<(f64, f64)>) {
    if bucket.len() <= 4 {
        return;
    }
    let by_value = |&a: &usize, &b: &usize| bucket[a].1.total_cmp(&bucket[b].1);
    let smallest = (0..bucket.len()).min_by(by_value).unwrap_or(0);
    let largest = (0..bucket.len()).max_by(by_value).unwrap_or(0);
    let kept = BTreeSet::from([0, smallest, largest, bucket.len() - 1]);
    *bucket = kept.into_iter().map(|at| bucket[at]).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(stroke: Stroke, points: Vec<(f64, Option<f64>)>) -> Series {
        Series::new(String::new(), 0, stroke, points)
    }

    #[test]
    fn a_million_values_keep_their_peaks_and_gaps() {
        let mut points: Vec<(f64, Option<f64>)> = (0..1_000_000)
            .map(|n| (f64::from(n), Some(f64::from(n % 7))))
            .collect();
        points[777_777].1 = Some(1e9);
        points[500_000].1 = None;
        let column = |x: f64| Some((x / 10_000.0) as i64);
        let few = thinned(&series(Stroke::Line, points), column, |_| Some(0));
        assert!(few.len() <= 4 * 101 + 1, "{}", few.len());
        assert!(few.is_sorted_by_key(|(x, _)| *x));
        assert!(few.contains(&(777_777.0, Some(1e9))));
        assert_eq!(few.iter().filter(|(_, y)| y.is_none()).count(), 1);
        assert_eq!((few[0].0, few[few.len() - 1].0), (0.0, 999_999.0));
    }

    #[test]
    fn points_share_a_cell_and_few_values_stay_as_they_are() {
        let points = vec![
            (0.0, Some(1.0)),
            (0.1, Some(1.1)),
            (0.2, Some(5.0)),
            (0.3, None),
        ];
        let cell = |v: f64| Some(v as i64);
        let of = |stroke| thinned(&series(stroke, points.clone()), cell, cell);
        assert_eq!(of(Stroke::Points), [points[0], points[2]]);
        assert_eq!(of(Stroke::Steps), points);
    }
}
