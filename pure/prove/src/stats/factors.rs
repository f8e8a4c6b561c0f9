//! Several factors at once: least squares with a term for each block, each factor and each two of
//! them. Full plans, halved ones and plans with failed blocks alike.

use super::multiple::holm;
use super::quantile::{t_cdf, t_quantile};
use super::{ALPHA, Estimate, Interval};

/// The most terms that are fitted.
const MOST_TERMS: usize = 400;

/// One run of a factorial plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Observation {
    /// Its block, any numbers.
    pub(crate) block: u32,
    /// The level of each factor, from 0: the control.
    pub(crate) levels: Vec<u32>,
    /// ln(metric).
    pub(crate) y: f64,
}

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effect {
    /// Factors and their levels, from 1, compared with level 0. One: on average over the levels of all other
    /// factors. Two: how much more one does together with the other than without it.
    pub(crate) of: Vec<(usize, u32)>,
    /// How large, with its own interval at 5 %; `None` where the plan cannot tell it from another.
    pub(crate) estimate: Option<Estimate>,
    /// Adjusted for the number of effects (Holm).
    pub(crate) p: Option<f64>,
}

/// Fits all terms: the effects of the factors, then of each two of them. `levels` is the number of levels of
/// each factor. `None` if the observations do not have these factors and levels, or leave no degree of freedom
/// for the noise.
pub(crate) fn fit(observations: &[Observation], levels: &[u32]) -> Option<Vec<Effect>> {
    let sound = |o: &Observation| {
        o.y.is_finite()
            && o.levels.len() == levels.len()
            && o.levels.iter().zip(levels).all(|(l, of)| l < of)
    };
    if observations.is_empty() || !observations.iter().all(sound) {
        return None;
    }
    let mut blocks: Vec<u32> = observations.iter().map(|o| o.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let sets = sets(levels.len());
    let columns = |set: &Vec<usize>| {
        let free = set.iter().map(|&factor| levels[factor] as usize - 1);
        free.fold(1, usize::saturating_mul)
    };
    let width = sets
        .iter()
        .map(columns)
        .fold(blocks.len(), usize::saturating_add);
    if width > MOST_TERMS {
        return None;
    }
    let rows: Vec<Vec<f64>> = observations
        .iter()
        .map(|o| {
            let own = blocks.iter().map(|b| f64::from(u8::from(*b == o.block)));
            let code = |&factor: &usize| code(o.levels[factor], levels[factor]);
            let coded = sets.iter().flat_map(|set| product(set.iter().map(code)));
            own.chain(coded).collect()
        })
        .collect();

    // The normal equations. A contrast c is estimable where c = X'X a has a solution; its estimate
    // is then a'X'y and its variance that of the noise times a'c.
    let mut products = vec![vec![0.0; width]; width];
    let mut sums = vec![0.0; width];
    for (row, observation) in rows.iter().zip(observations) {
        for (i, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
            sums[i] += v * observation.y;
            for (product, w) in products[i].iter_mut().zip(row) {
                *product += v * w;
            }
        }
    }
    let terms: Vec<Vec<(usize, u32)>> = sets.iter().flat_map(|set| terms(set, levels)).collect();
    let contrast = |term: &Vec<(usize, u32)>| {
        let step = |&(factor, level): &(usize, u32)| {
            let of = levels[factor];
            let control = code(0, of);
            code(level, of)
                .iter()
                .zip(control)
                .map(|(l, c)| l - c)
                .collect()
        };
        let of_set = |set: &Vec<usize>| {
            // Everywhere else one of the factors stands still.
            match set.iter().eq(term.iter().map(|(factor, _)| factor)) {
                true => product(term.iter().map(step)),
                false => vec![0.0; columns(set)],
            }
        };
        let coded = sets.iter().flat_map(of_set);
        blocks.iter().map(|_| 0.0).chain(coded).collect()
    };
    let contrasts: Vec<Vec<f64>> = terms.iter().map(contrast).collect();
    let mut right = vec![sums.clone()];
    right.extend(contrasts.iter().cloned());
    let (rank, mut solved) = solve(products, right);
    let coefficients = solved.remove(0)?;
    let degrees = observations.len().checked_sub(rank).filter(|d| *d > 0)?;
    let squares: f64 = rows
        .iter()
        .zip(observations)
        .map(|(row, o)| (o.y - dot(row, &coefficients)).powi(2))
        .sum();
    let variance = squares / degrees as f64;
    let quantile = t_quantile(1.0 - ALPHA / 2.0, degrees as f64)?;

    let tested: Vec<Option<(Estimate, f64)>> = solved
        .iter()
        .zip(&contrasts)
        .map(|(solution, contrast)| {
            let solution = solution.as_ref()?;
            let value = dot(solution, &sums);
            let error = (variance * dot(solution, contrast)).max(0.0).sqrt();
            let interval = Interval {
                low: value - quantile * error,
                high: value + quantile * error,
            };
            let t = if value == 0.0 {
                0.0
            } else {
                -(value / error).abs()
            };
            Some((
                Estimate { value, interval },
                2.0 * t_cdf(t, degrees as f64)?,
            ))
        })
        .collect();
    let mut adjusted =
        holm(&tested.iter().flatten().map(|(_, p)| *p).collect::<Vec<_>>()).into_iter();
    let effects = terms.into_iter().zip(tested).map(|(of, tested)| Effect {
        of,
        estimate: tested.map(|(estimate, _)| estimate),
        p: tested.and_then(|_| adjusted.next()),
    });
    Some(effects.collect())
}

/// The sets of factors that have columns: each alone, then each two.
fn sets(factors: usize) -> Vec<Vec<usize>> {
    let alone = (0..factors).map(|f| vec![f]);
    let pairs = (0..factors).flat_map(|f| (f + 1..factors).map(move |g| vec![f, g]));
    alone.chain(pairs).collect()
}

/// Every choice of a level above the control's for each factor of a set.
fn terms(set: &[usize], levels: &[u32]) -> Vec<Vec<(usize, u32)>> {
    set.iter().fold(vec![Vec::new()], |begun, &factor| {
        let with = |term: &Vec<_>| {
            let term = term.clone();
            (1..levels[factor]).map(move |level| [&term[..], &[(factor, level)]].concat())
        };
        begun.iter().flat_map(with).collect()
    })
}

/// Deviation coding, in which the coefficients of a factor sum to zero over its levels, so that every effect
/// is an average over the other factors.
fn code(level: u32, levels: u32) -> Vec<f64> {
    let last = levels - 1;
    let column = |l| {
        if level == last {
            -1.0
        } else {
            f64::from(u8::from(level == l))
        }
    };
    (0..last).map(column).collect()
}

/// The columns of several factors together.
fn product(codes: impl Iterator<Item = Vec<f64>>) -> Vec<f64> {
    codes.fold(vec![1.0], |all, code| {
        all.iter()
            .flat_map(|a| code.iter().map(move |c| a * c))
            .collect()
    })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Solves a symmetric system, singular or not, for several right sides: the rank, and a solution for
/// each side that has one. Gauss-Jordan with full pivoting.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<Vec<f64>>) -> (usize, Vec<Option<Vec<f64>>>) {
    const ROUNDING: f64 = 1e-9;
    let n = matrix.len();
    let scale = matrix
        .iter()
        .flatten()
        .fold(0.0f64, |most, v| most.max(v.abs()));
    let mut order: Vec<usize> = (0..n).collect();
    let mut rank = 0;
    while rank < n {
        let place = (rank..n).flat_map(|i| (rank..n).map(move |j| (i, j)));
        let Some((i, j)) =
            place.max_by(|a, b| matrix[a.0][a.1].abs().total_cmp(&matrix[b.0][b.1].abs()))
        else {
            break;
        };
        let pivot = matrix[i][j];
        if pivot.abs() <= ROUNDING * scale {
            break;
        }
        matrix.swap(rank, i);
        for row in &mut matrix {
            row.swap(rank, j);
        }
        order.swap(rank, j);
        for side in &mut right {
            side.swap(rank, i);
            side[rank] /= pivot;
        }
        let lead: Vec<f64> = matrix[rank].iter().map(|v| v / pivot).collect();
        for (row, values) in matrix.iter_mut().enumerate() {
            let factor = values[rank];
            if row == rank || factor == 0.0 {
                continue;
            }
            for (value, lead) in values.iter_mut().zip(&lead) {
                *value -= factor * lead;
            }
            for side in &mut right {
                side[row] -= factor * side[rank];
            }
        }
        matrix[rank] = lead;
        rank += 1;
    }
    let solutions = right.into_iter().map(|side| {
        let largest = side.iter().fold(1.0f64, |most, v| most.max(v.abs()));
        let consistent = side[rank..].iter().all(|v| v.abs() <= 1e-7 * largest);
        consistent.then(|| {
            let mut solution = vec![0.0; n];
            for (value, &column) in side[..rank].iter().zip(&order) {
                solution[column] = *value;
            }
            solution
        })
    });
    (rank, solutions.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Random;

    /// All combinations of two-level factors for which `keep` holds, in `blocks` blocks, with noise.
    fn plan(
        factors: u32,
        blocks: u32,
        keep: impl Fn(u32) -> bool,
        y: impl Fn(&[f64]) -> f64,
    ) -> Vec<Observation> {
        let mut chance = Random::new(4, 0);
        let mut all = Vec::new();
        for block in 0..blocks {
            for set in (0..1 << factors).filter(|s| keep(*s)) {
                let levels: Vec<u32> = (0..factors).map(|f| set >> f & 1).collect();
                let on: Vec<f64> = levels.iter().map(|l| f64::from(*l)).collect();
                let noise = 0.02 * (chance.unit() - 0.5) + f64::from(block);
                all.push(Observation {
                    block,
                    levels,
                    y: y(&on) + noise,
                });
            }
        }
        all
    }

    fn of(fit: &[Effect], of: &[(usize, u32)]) -> Effect {
        fit.iter().find(|e| e.of == of).unwrap().clone()
    }

    #[test]
    fn a_full_plan_with_an_interaction() {
        let y = |on: &[f64]| 0.1 * on[0] - 0.2 * on[1] + 0.3 * on[0] * on[1];
        let fit = fit(&plan(3, 4, |_| true, y), &[2, 2, 2]).unwrap();
        assert_eq!(fit.len(), 6);
        // On average over both levels of the other: 0.1 + 0.3 / 2 and -0.2 + 0.3 / 2.
        for (factor, expected) in [(0, 0.25), (1, -0.05), (2, 0.0)] {
            let effect = of(&fit, &[(factor, 1)]);
            let estimate = effect.estimate.unwrap();
            assert!((estimate.value - expected).abs() < 0.01, "{effect:?}");
            assert_eq!(effect.p.unwrap() < 0.05, expected != 0.0, "{effect:?}");
            assert!(estimate.interval.contains(estimate.value));
        }
        let both = of(&fit, &[(0, 1), (1, 1)]);
        assert!(
            (both.estimate.unwrap().value - 0.3).abs() < 0.02,
            "{both:?}"
        );
    }

    #[test]
    fn half_of_five_factors_still_tells_every_pair() {
        // The fifth factor is the product of the others: resolution V.
        let keep = |set: u32| set.count_ones() % 2 == 1;
        let y = |on: &[f64]| 0.1 * on[4] + 0.2 * on[1] * on[3];
        let plan = plan(5, 2, keep, y);
        assert_eq!(plan.len(), 32);
        let fit = fit(&plan, &[2; 5]).unwrap();
        assert_eq!(fit.len(), 15);
        assert!(fit.iter().all(|e| e.estimate.is_some()));
        let both = of(&fit, &[(1, 1), (3, 1)]);
        assert!(
            (both.estimate.unwrap().value - 0.2).abs() < 0.02,
            "{both:?}"
        );
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_told() {
        // Of three factors with half of the plan each is the product of the two others.
        let plan = plan(3, 3, |set| set.count_ones() % 2 == 1, |on| 0.1 * on[0]);
        let fit = fit(&plan, &[2; 3]).unwrap();
        assert!(fit.iter().all(|e| e.estimate.is_none() && e.p.is_none()));
    }

    #[test]
    fn three_levels_and_a_lost_run() {
        let mut all = Vec::new();
        for block in 0..3 {
            for a in 0..3u32 {
                for b in 0..2u32 {
                    let odd = f64::from((block * 5 + a * 3 + b) % 4) * 0.001;
                    let y = [0.0, 0.1, 0.4][a as usize] + 0.2 * f64::from(b) + odd;
                    all.push(Observation {
                        block,
                        levels: vec![a, b],
                        y,
                    });
                }
            }
        }
        all.remove(4);
        let fit = fit(&all, &[3, 2]).unwrap();
        let step = |level| of(&fit, &[(0, level)]).estimate.unwrap().value;
        assert!((step(1) - 0.1).abs() < 0.01 && (step(2) - 0.4).abs() < 0.01);
        assert_eq!(fit.len(), 3 + 2);
    }

    #[test]
    fn no_fit_without_data() {
        assert_eq!(fit(&[], &[2]), None);
        let one = Observation {
            block: 0,
            levels: vec![1],
            y: 1.0,
        };
        assert_eq!(fit(std::slice::from_ref(&one), &[2]), None);
        assert_eq!(fit(&[one.clone(), one.clone()], &[1]), None);
        assert_eq!(fit(&[one.clone(), one.clone()], &[2, 2]), None);
        assert_eq!(fit(&[one.clone(), one], &[1000]), None);
        let bad = Observation {
            block: 0,
            levels: vec![0],
            y: f64::NAN,
        };
        assert_eq!(fit(&[bad.clone(), bad.clone(), bad], &[2]), None);
    }
}
