//! The error rate of the verdict on known paths: where the change does nothing, 5 of 100 experiments end with a
//! verdict of either kind, whatever the noise.

use super::simulate::{Noise, Order, Runs, experiment, judge, welch};
use crate::stats::signed_rank::LOOKS;
use crate::stats::{ALPHA, total};
use model::Outcome;

const EXPERIMENTS: u64 = 2_000;

/// Share of A/A experiments in which `verdict` says that there is a difference.
fn false_verdicts(
    noise: Noise,
    order: Order,
    pairs: usize,
    verdict: impl Fn(&Runs) -> bool,
) -> f64 {
    let wrong =
        (0..EXPERIMENTS).filter(|seed| verdict(&experiment(noise, *seed, pairs, order, 0.0)));
    wrong.count() as f64 / EXPERIMENTS as f64
}

#[test]
fn a_change_that_does_nothing_is_judged_in_5_of_100() {
    for noise in Noise::ALL {
        let wrong = false_verdicts(noise, Order::RandomPairs, 20, |runs| {
            let (outcome, ..) = judge(&runs.differences(), &LOOKS, 0.0).unwrap();
            outcome != Outcome::NotEnoughData
        });
        assert!(
            (0.035..=0.065).contains(&wrong),
            "{}: {wrong}",
            noise.name()
        );
    }
}

#[test]
fn the_total_keeps_the_same_promise() {
    for noise in Noise::ALL {
        let wrong = false_verdicts(noise, Order::RandomPairs, 12, |runs| {
            total::p_two_sided(&runs.differences()).is_some_and(|p| p <= ALPHA)
        });
        assert!(
            (0.035..=0.065).contains(&wrong),
            "{}: {wrong}",
            noise.name()
        );
    }
}

/// Guards the generator: if this fails, it makes no noise that could mislead anyone.
#[test]
fn the_usual_way_is_wrong_where_it_must_be() {
    let naive = |runs: &Runs| {
        welch(&Runs::seconds(&runs.a), &Runs::seconds(&runs.b)).is_some_and(|p| p <= ALPHA)
    };
    let wrong = false_verdicts(Noise::Run, Order::OneAfterTheOther, 10, naive);
    assert!(wrong > 0.40, "{wrong}");
    // And where seconds are independent there is nothing wrong with them.
    let wrong = false_verdicts(Noise::Iid, Order::OneAfterTheOther, 10, naive);
    assert!((0.035..=0.065).contains(&wrong), "{wrong}");
}
