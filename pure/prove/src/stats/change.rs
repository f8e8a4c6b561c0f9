//! Did the path itself change, during an experiment or over a history of runs? For the report: no run is ever left
//! out for it.

use model::Random;
use model::stats::median;

/// Orders that a part of a series is compared with.
const SHUFFLES: u32 = 999;
/// Where their chance comes from: the same history always says the same.
const SEED: u64 = 0x6368_616e_6765;
/// Values that [`change_points`] looks at, the last ones: its time goes by the square.
pub const LONGEST: usize = 300;

/// Where a series most looks like two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelChange {
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
pub fn change_point(values: &[f64]) -> Option<LevelChange> {
    let (after, k) = peak(&scores(values)?)?;
    let n = values.len() as f64;
    let p = 2.0 * (-6.0 * (k as f64).powi(2) / (n.powi(3) + n.powi(2))).exp();
    Some(LevelChange {
        after,
        before_median: median(&values[..after])?,
        after_median: median(&values[after..])?,
        p: p.min(1.0),
    })
}

/// Where the level of a history changes, in the order of time: places to look at. In a history that is only
/// noise, in whatever shape, one is found at most with probability `level`, however long it is; noise that drifts is
/// found, for it is change too.
///
/// Circular binary segmentation (Olshen, Venkatraman, Lucito and Wigler 2004) of the ranks: the stretch is sought that
/// differs most from all the rest, and each part is asked again. Whether a stretch differs is answered by
/// permutation: how many of the orders in which these values could stand have one that differs as much, this one
/// counted (Phipson and Smyth 2010), so that it is exact for few values and ties as well. An end of a stretch counts
/// only if it is a change by itself too, between the neighbours of both. Below fourteen values nothing can be found
/// at a level of 1 %. A value that is no number: nothing is found.
pub fn change_points(values: &[f64], level: f64) -> Vec<LevelChange> {
    let skipped = values.len().saturating_sub(LONGEST);
    let values = &values[skipped..];
    let mut chance = Random::new(SEED, 0);
    let mut found: Vec<(usize, f64)> = Vec::new();
    let mut parts = vec![(0, values.len())];
    while let Some((from, to)) = parts.pop() {
        let Some((stretch, p)) = proven(&values[from..to], level, &mut chance, oddest) else {
            continue;
        };
        let (begin, end) = (from + stretch.0, from + stretch.1);
        let ends: Vec<usize> = if begin == from {
            vec![end]
        } else if end == to {
            vec![begin]
        } else {
            let mut both = vec![(begin, from, end), (end, begin, to)];
            both.retain(|&(_, from, to)| {
                proven(&values[from..to], level, &mut chance, sharpest).is_some()
            });
            both.into_iter().map(|(at, ..)| at).collect()
        };
        let mut last = from;
        for at in ends.into_iter().chain([to]) {
            if at < to {
                found.push((at, p));
            }
            // The same part would be split forever.
            if (last, at) != (from, to) {
                parts.push((last, at));
            }
            last = at;
        }
    }
    found.sort_by_key(|(at, _)| *at);
    let around = |found: &[(usize, f64)], n: usize| {
        let begin = n.checked_sub(1).map_or(0, |before| found[before].0);
        let end = found.get(n + 1).map_or(values.len(), |(at, _)| *at);
        (begin, end)
    };
    for n in 0..found.len() {
        let (begin, end) = around(&found, n);
        found[n].0 = begin + place(&values[begin..end]).unwrap_or(found[n].0 - begin);
    }
    let changes = found.iter().enumerate().map(|(n, (at, p))| {
        let (begin, end) = around(&found, n);
        Some(LevelChange {
            after: skipped + at,
            before_median: median(&values[begin..*at])?,
            after_median: median(&values[*at..end])?,
            p: *p,
        })
    });
    changes.flatten().collect()
}

/// Where values that are two levels fall apart: the least sum of distances from the medians of both. Ranks alone would
/// count the lowest of the higher ones among the lower.
fn place(values: &[f64]) -> Option<usize> {
    let spread = |part: &[f64]| {
        let level = median(part)?;
        Some(part.iter().map(|value| (value - level).abs()).sum::<f64>())
    };
    let costs = (1..values.len()).filter_map(|at| {
        let (before, after) = values.split_at(at);
        Some((at, spread(before)? + spread(after)?))
    });
    let least = costs.min_by(|a, b| a.1.total_cmp(&b.1));
    least.map(|(at, _)| at)
}

/// A stretch, its begin and its end, and how odd it is.
type LevelStretch = ((usize, usize), f64);

/// What a statistic finds in values, and how seldom it finds as much in their other orders, if that is at most `level`.
fn proven(
    values: &[f64],
    level: f64,
    chance: &mut Random,
    statistic: fn(&[i64]) -> Option<LevelStretch>,
) -> Option<LevelStretch> {
    let mut scores = scores(values)?;
    let (what, observed) = statistic(&scores)?;
    let mut as_large = 1;
    for _ in 0..SHUFFLES {
        chance.shuffle(&mut scores);
        // The same sum may come rounded in another way from another place.
        let is_as_large = |(_, other): (_, f64)| other >= observed * (1.0 - 1e-12);
        as_large += u32::from(statistic(&scores).is_some_and(is_as_large));
        // Further shuffles cannot lower it enough.
        if f64::from(as_large) > level * f64::from(SHUFFLES + 1) {
            return None;
        }
    }
    Some((what, f64::from(as_large) / f64::from(SHUFFLES + 1)))
}

/// For each value, how many others lie below it, less those above. `None` if one is no number.
fn scores(values: &[f64]) -> Option<Vec<i64>> {
    let finite = values.iter().all(|v| v.is_finite());
    let signs = |value: &f64| -> i64 {
        let all = values.iter();
        all.map(|other| i64::from(value > other) - i64::from(value < other))
            .sum()
    };
    finite.then(|| values.iter().map(signs).collect())
}

/// Where the sum of the scores is farthest from zero, and how far: Pettitt's K. `None` below two values.
fn peak(scores: &[i64]) -> Option<(usize, i64)> {
    let (_, but_last) = scores.split_last()?;
    let mut sum = 0;
    let mut best: Option<(usize, i64)> = None;
    for (at, score) in but_last.iter().enumerate() {
        sum += score;
        if best.is_none_or(|(_, farthest)| sum.abs() > farthest) {
            best = Some((at + 1, sum.abs()));
        }
    }
    best
}

/// The stretch (its begin and its end) whose ranks differ most from those of all the rest, and by how much: by standard
/// deviations where nothing changes, but for a factor. It may begin or end with the values. `None` below two.
fn oddest(scores: &[i64]) -> Option<LevelStretch> {
    oddest_from(scores, scores.len())
}

/// The same of stretches that begin with the values: one change.
fn sharpest(scores: &[i64]) -> Option<LevelStretch> {
    oddest_from(scores, 1)
}

/// The same of stretches that begin before `begins`.
fn oddest_from(scores: &[i64], begins: usize) -> Option<LevelStretch> {
    let n = scores.len();
    let mut best = None;
    for begin in 0..begins {
        let mut sum = 0;
        for (end, score) in (begin + 1..).zip(&scores[begin..]) {
            sum += score;
            let length = end - begin;
            if length == n {
                continue;
            }
            let odd = standardised(sum, length, n);
            if best.is_none_or(|(_, most)| odd > most) {
                best = Some(((begin, end), odd));
            }
        }
    }
    best
}

/// Mann and Whitney's statistic of `length` of `n` values, so that stretches of all lengths are alike where nothing
/// changes.
fn standardised(sum: i64, length: usize, n: usize) -> f64 {
    sum.abs() as f64 / ((length * (n - length)) as f64).sqrt()
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

    /// Days of a path: a level, and noise with a heavy tail (a third power of something even).
    fn days(count: usize, stream: u64, level: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut chance = Random::new(7, stream);
        let noise = (0..count).map(|_| (2.0 * chance.unit() - 1.0).powi(3));
        let days = noise.enumerate();
        days.map(|(day, noise)| level(day) * (1.0 + 0.1 * noise))
            .collect()
    }

    #[test]
    fn noise_has_no_history() {
        let alarms = |count, level| {
            (0..200)
                .filter(|&stream| !change_points(&days(count, stream, |_| 941.0), level).is_empty())
                .count()
        };
        // Of 200 one expects 2, and 10; more than these come once in ten thousand times.
        for count in [14, 60] {
            assert!(alarms(count, 0.01) <= 9);
            assert!(alarms(count, 0.05) <= 23);
        }
        assert_eq!(change_points(&[5.0; 40], 0.05), [], "nothing but ties");
    }

    #[test]
    fn steps_are_found_where_they_are() {
        for stream in 0..50 {
            let one = days(14, stream, |day| if day < 7 { 941.0 } else { 622.0 });
            let found = change_points(&one, 0.01);
            assert_eq!(found.len(), 1, "{one:?}: {found:?}");
            assert_eq!(found[0].after, 7);
            assert!(found[0].after_median < 700.0 && found[0].before_median > 840.0);

            let there_and_back = |day| {
                if (20..40).contains(&day) {
                    622.0
                } else {
                    941.0
                }
            };
            let found = change_points(&days(60, stream, there_and_back), 0.01);
            let at: Vec<usize> = found.iter().map(|found| found.after).collect();
            assert!(at.contains(&20) && at.contains(&40), "{found:?}");
        }
    }

    #[test]
    fn more_than_there_is_is_seldom_found() {
        let there_and_back = |day| {
            if (20..40).contains(&day) {
                622.0
            } else {
                941.0
            }
        };
        let more = (100..200)
            .filter(|&stream| change_points(&days(60, stream, there_and_back), 0.01).len() > 2)
            .count();
        // Three parts are tested in each of a hundred: three are expected.
        assert!(more <= 12, "{more}");
    }

    #[test]
    fn short_long_and_broken_histories() {
        assert_eq!(change_points(&[], 0.01), []);
        assert_eq!(change_points(&[1.0, 2.0, 3.0, 4.0], 0.01), []);
        let mut long = days(LONGEST + 50, 1, |day| if day < LONGEST { 5.0 } else { 9.0 });
        let found = change_points(&long, 0.01);
        assert_eq!(found.last().map(|found| found.after), Some(LONGEST));
        long[LONGEST] = f64::NAN;
        assert_eq!(change_points(&long, 0.01), []);
    }
}
