//! Experiments on paths that are known, to see what a method promises and what it keeps. The
//! calibration test and the table of power both stand on this; a verdict never does.

mod noise;
mod search;

pub use noise::{Noise, Path, SECONDS, SLOT_S};
pub use search::search;

use crate::stats::Interval;
use crate::stats::decision::decide;
use crate::stats::quantile::t_cdf;
use crate::stats::signed_rank::{self, InterimLook};
use model::{Outcome, Random};

/// In which order the runs of both arms are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Pairs, a fair coin for each.
    RandomPairs,
    /// A B A B ...
    Alternating,
    /// All of A, then all of B.
    OneAfterTheOther,
}

/// The runs of two arms on one path, each as the rates of its seconds.
#[derive(Clone, Debug)]
pub struct Runs {
    /// Of the control.
    pub a: Vec<[f64; SECONDS]>,
    /// Of the change.
    pub b: Vec<[f64; SECONDS]>,
}

/// Makes `pairs` runs of each arm on a path with this noise. `effect` is the true logarithm of the
/// change: 0 for an A/A experiment.
pub fn experiment(noise: Noise, seed: u64, pairs: usize, order: Order, effect: f64) -> Runs {
    let mut path = Path::new(noise, seed);
    let mut coins = Random::new(seed, 1);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for run in 0..2 * pairs {
        let change = match order {
            Order::RandomPairs if run % 2 == 0 => coins.unit() < 0.5,
            // The second of a pair is what the first was not.
            Order::RandomPairs => a.len() > b.len(),
            Order::Alternating => run % 2 == 1,
            Order::OneAfterTheOther => run >= pairs,
        };
        let rates = path.run();
        if change {
            b.push(rates.map(|rate| rate * effect.exp()));
        } else {
            a.push(rates);
        }
    }
    Runs { a, b }
}

impl Runs {
    /// The differences of the pairs, in the order of time.
    pub fn differences(&self) -> Vec<f64> {
        self.b
            .iter()
            .zip(&self.a)
            .map(|(b, a)| value(b) - value(a))
            .collect()
    }

    /// The value of each run, as an experiment sees it.
    pub fn values(runs: &[[f64; SECONDS]]) -> Vec<f64> {
        runs.iter().map(value).collect()
    }

    /// The logarithm of the rate of every second of some runs: the usual wrong sample.
    pub fn seconds(runs: &[[f64; SECONDS]]) -> Vec<f64> {
        runs.iter()
            .flatten()
            .map(|rate| rate.max(1e-3).ln())
            .collect()
    }
}

/// Judges an experiment as it goes on: at each look, until there is a verdict. The verdict, the pairs
/// that it took and the interval there; `margin` 0 tests for a difference only.
pub fn judge(d: &[f64], looks: &[InterimLook], margin: f64) -> Option<(Outcome, u32, Interval)> {
    let mut last = None;
    for look in looks {
        let interval = signed_rank::interval(d.get(..look.pairs as usize)?, look.critical)?;
        let (outcome, _) = decide(interval, margin);
        last = Some((outcome, look.pairs, interval));
        if outcome != Outcome::NotEnoughData {
            break;
        }
    }
    last
}

/// The values of blocks in which `arms` settings, of which the first is the control, run in random
/// order: one list an arm. None of them does anything.
pub fn blocks(noise: Noise, seed: u64, arms: usize, blocks: usize) -> Vec<Vec<f64>> {
    let mut path = Path::new(noise, seed);
    let mut coins = Random::new(seed, 1);
    let mut values = vec![Vec::new(); arms];
    for _ in 0..blocks {
        for arm in shuffled((0..arms).collect(), &mut coins) {
            values[arm].push(value(&path.run()));
        }
    }
    values
}

/// In random order, each as likely.
fn shuffled(mut all: Vec<usize>, coins: &mut Random) -> Vec<usize> {
    coins.shuffle(&mut all);
    all
}

/// The logarithm of a run's goodput.
fn value(rates: &[f64; SECONDS]) -> f64 {
    (rates.iter().sum::<f64>() / SECONDS as f64).ln()
}

/// Welch's t-test (1947), two-sided: what people apply to seconds.
pub fn welch(a: &[f64], b: &[f64]) -> Option<f64> {
    let moments = |v: &[f64]| {
        let n = v.len() as f64;
        let mean = v.iter().sum::<f64>() / n;
        let squares: f64 = v.iter().map(|x| (x - mean).powi(2)).sum();
        (mean, squares / (n - 1.0) / n, n - 1.0)
    };
    let ((mean_a, error_a, df_a), (mean_b, error_b, df_b)) = (moments(a), moments(b));
    let error = error_a + error_b;
    let df = error * error / (error_a * error_a / df_a + error_b * error_b / df_b);
    Some(2.0 * t_cdf(-((mean_b - mean_a) / error.sqrt()).abs(), df)?)
}

/// The percentile bootstrap interval of the mean (Efron 1979), at 95 %: what it covers is the reason
/// why it is not used.
pub fn bootstrap(d: &[f64], seed: u64) -> Option<Interval> {
    const RESAMPLES: usize = 1000;
    let mut chance = Random::new(seed, 2);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = d
                .iter()
                .map(|_| d[(chance.unit() * d.len() as f64) as usize]);
            drawn.sum::<f64>() / d.len() as f64
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    (!d.is_empty()).then(|| Interval {
        low: means[RESAMPLES / 40 - 1],
        high: means[RESAMPLES - RESAMPLES / 40],
    })
}
