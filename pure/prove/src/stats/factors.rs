//! Several factors at once: least squares with a term for each block, each factor and each two of them.
//! Every block has every combination (or the half that separates these terms), so each estimate is a
//! difference of means.

use super::multiple::holm;
use super::quantile::{t_cdf, t_quantile};
use super::{ALPHA, Interval, IntervalEstimate};
use std::collections::{BTreeMap, BTreeSet};

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

/// Factors and their levels.
type Term = Vec<(usize, u32)>;

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FactorEstimate {
    /// Levels from 1, compared with level 0. One: on average over the levels of all other factors. Two: how
    /// much more one does together with the other than without it.
    pub(crate) of: Term,
    /// How large, with its own interval at 5 %.
    pub(crate) estimate: IntervalEstimate,
    /// Adjusted for the number of effects (Holm).
    pub(crate) p: f64,
}

/// Fits all terms: the effects of the factors, then of each two of them. `levels` is the number of levels of
/// each factor. `None` if the blocks are not whole, or leave no degree of freedom for the noise.
pub(crate) fn fit(runs: &[Observation], levels: &[u32]) -> Option<Vec<FactorEstimate>> {
    let blocks = whole_blocks(runs, levels)?;
    let sets = sets(levels.len());
    let mut sums: BTreeMap<Term, (f64, f64)> = BTreeMap::new();
    for run in runs {
        for set in sets.iter().chain([&Vec::new()]) {
            let term = set.iter().map(|&factor| (factor, run.levels[factor]));
            let (sum, count) = sums.entry(term.collect()).or_default();
            *sum += run.y;
            *count += 1.0;
        }
    }
    let mean = |term: &[(usize, u32)]| {
        let (sum, count) = sums[term];
        sum / count
    };
    let overall = mean(&[]);
    // The terms are orthogonal: what each adds to the mean of the block does not depend on the others.
    let fitted = |run: &Observation| {
        let own = |set: &Vec<usize>| {
            let term: Term = set.iter().map(|&f| (f, run.levels[f])).collect();
            match term[..] {
                [one, other] => mean(&term) - mean(&[one]) - mean(&[other]) + overall,
                _ => mean(&term) - overall,
            }
        };
        blocks[&run.block] + sets.iter().map(own).sum::<f64>()
    };
    let squares: f64 = runs.iter().map(|run| (run.y - fitted(run)).powi(2)).sum();
    let columns = |set: &Vec<usize>| {
        set.iter()
            .map(|&f| levels[f] as usize - 1)
            .product::<usize>()
    };
    let used = blocks.len() + sets.iter().map(columns).sum::<usize>();
    let degrees = runs.len().checked_sub(used).filter(|d| *d > 0)? as f64;
    let quantile = t_quantile(1.0 - ALPHA / 2.0, degrees)?;

    let terms: Vec<Term> = sets.iter().flat_map(|set| terms(set, levels)).collect();
    let test = |term: &Term| {
        let value = match term[..] {
            [(f, l), (g, m)] => {
                let with = mean(term) - mean(&[(f, 0), (g, m)]);
                with - (mean(&[(f, l), (g, 0)]) - mean(&[(f, 0), (g, 0)]))
            }
            _ => mean(term) - mean(&[(term[0].0, 0)]),
        };
        // A difference of two means, or of two such differences, of equally many runs each.
        let means = 2f64.powi(term.len() as i32);
        let error = (squares / degrees * means / sums[term].1).sqrt();
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
            IntervalEstimate { value, interval },
            2.0 * t_cdf(t, degrees)?,
        ))
    };
    let tested: Vec<(IntervalEstimate, f64)> = terms.iter().map(test).collect::<Option<_>>()?;
    let adjusted = holm(&tested.iter().map(|(_, p)| *p).collect::<Vec<_>>());
    let all = terms.into_iter().zip(tested).zip(adjusted);
    Some(
        all.map(|((of, (estimate, _)), p)| FactorEstimate { of, estimate, p })
            .collect(),
    )
}

/// The mean of each block; `None` unless each has every combination of levels once, or the half of them with
/// an even (or odd) number of second levels, where that is of resolution V.
fn whole_blocks(runs: &[Observation], levels: &[u32]) -> Option<BTreeMap<u32, f64>> {
    let mut blocks: BTreeMap<u32, Vec<&Observation>> = BTreeMap::new();
    for run in runs {
        blocks.entry(run.block).or_default().push(run);
    }
    let sound = |run: &Observation| {
        let within = run.levels.iter().zip(levels).all(|(l, of)| l < of);
        run.y.is_finite() && run.levels.len() == levels.len() && within
    };
    let all = levels.iter().map(|of| *of as usize).product::<usize>();
    let parity = |run: &Observation| run.levels.iter().sum::<u32>() % 2;
    let halved = levels.len() >= 5
        && levels.iter().all(|of| *of == 2)
        && runs.iter().all(|run| parity(run) == parity(&runs[0]));
    let cells = if halved { all / 2 } else { all };
    let whole = |block: &Vec<&Observation>| {
        let distinct: BTreeSet<&Vec<u32>> = block.iter().map(|run| &run.levels).collect();
        block.len() == cells && distinct.len() == cells
    };
    let mean =
        |block: Vec<&Observation>| block.iter().map(|run| run.y).sum::<f64>() / block.len() as f64;
    let sound = runs.iter().all(sound) && blocks.values().all(whole);
    (sound && !runs.is_empty()).then(|| blocks.into_iter().map(|(n, b)| (n, mean(b))).collect())
}

/// The sets of factors that have terms: each alone, then each two.
fn sets(factors: usize) -> Vec<Vec<usize>> {
    let alone = (0..factors).map(|f| vec![f]);
    let pairs = (0..factors).flat_map(|f| (f + 1..factors).map(move |g| vec![f, g]));
    alone.chain(pairs).collect()
}

/// Every choice of a level above the control's for each factor of a set.
fn terms(set: &[usize], levels: &[u32]) -> Vec<Term> {
    set.iter().fold(vec![Vec::new()], |begun, &factor| {
        let with = |term: &Term| {
            let term = term.clone();
            (1..levels[factor]).map(move |level| [&term[..], &[(factor, level)]].concat())
        };
        begun.iter().flat_map(with).collect()
    })
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

    fn of(fit: &[FactorEstimate], of: &[(usize, u32)]) -> FactorEstimate {
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
            let estimate = effect.estimate;
            assert!((estimate.value - expected).abs() < 0.01, "{effect:?}");
            assert_eq!(effect.p < 0.05, expected != 0.0, "{effect:?}");
            assert!(estimate.interval.contains(estimate.value));
        }
        let both = of(&fit, &[(0, 1), (1, 1)]);
        assert!((both.estimate.value - 0.3).abs() < 0.02, "{both:?}");
    }

    #[test]
    fn half_of_five_factors_still_separates_every_pair() {
        // The fifth factor is the product of the others: resolution V.
        let keep = |set: u32| set.count_ones() % 2 == 1;
        let y = |on: &[f64]| 0.1 * on[4] + 0.2 * on[1] * on[3];
        let plan = plan(5, 2, keep, y);
        assert_eq!(plan.len(), 32);
        let fit = fit(&plan, &[2; 5]).unwrap();
        assert_eq!(fit.len(), 15);
        let both = of(&fit, &[(1, 1), (3, 1)]);
        assert!((both.estimate.value - 0.2).abs() < 0.02, "{both:?}");
    }

    #[test]
    fn effects_that_cannot_be_separated_are_not_reported() {
        // Of three factors with half of the plan each is the product of the two others.
        let plan = plan(3, 3, |set| set.count_ones() % 2 == 1, |on| 0.1 * on[0]);
        assert_eq!(fit(&plan, &[2; 3]), None);
    }

    #[test]
    fn three_levels() {
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
        let fitted = fit(&all, &[3, 2]).unwrap();
        let step = |level| of(&fitted, &[(0, level)]).estimate.value;
        assert!((step(1) - 0.1).abs() < 0.01 && (step(2) - 0.4).abs() < 0.01);
        assert_eq!(fitted.len(), 3 + 2);
        // A block without one of its runs is none.
        all.remove(4);
        assert_eq!(fit(&all, &[3, 2]), None);
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
