//! The verdict: what the runs say about the question of the plan, and nothing more.
//!
//! Looks, critical values and words of the answer are fixed before the first run; nothing here is
//! chosen by what the data look like.

use crate::blocks::blocks;
use crate::gates;
use crate::looks::{Data, at_a_look, compare, pilot, pilot_differences, share};
use crate::stats::change::change_point;
use crate::stats::signed_rank::{self, FEWEST_PAIRS, hodges_lehmann};
use crate::stats::spread::outliers;
use crate::stats::{ALPHA, Interval, rank_sum};
use crate::{factorial, search};
use model::stats::median;
use model::{
    ArmTable, Bytes, ChangePoint, Design, Estimate, Experiment, Nanos, Outcome, Outlier,
    SearchStory, Trial, TrialPhase, Verdict,
};
use std::collections::BTreeMap;

/// A change of level is reported below this p value: as clear a one in random data.
const CHANGE_REPORTED: f64 = 0.01;
/// A run is reported as an outlier beyond so many robust deviations.
const OUTLIER_REPORTED: f64 = 5.0;

/// Judges what is there; as true after every run as at the end.
pub fn judge(experiment: &Experiment) -> Verdict {
    let plan = &experiment.plan;
    let trials = &experiment.trials;
    let data = Data::of(plan, trials);
    let pilot = pilot(&data);
    let position = position_effect(&data);
    let change_points = change_points(&data);
    let (mut comparisons, done) = compare(&data);
    let gates = gates::gates(
        plan,
        trials,
        pilot.as_ref(),
        position.as_ref(),
        &change_points,
        &mut comparisons,
    );
    let blocked = gates.iter().any(|g| g.state == model::GateState::Failed);
    let effects = factorial::effects(plan, &data.observations(), done);
    let outcomes = comparisons.iter().map(|c| c.outcome);
    let first = outcomes.chain(effects.iter().map(|e| e.outcome)).min();
    Verdict {
        outcome: match blocked {
            true => Outcome::NoVerdict,
            false => first.unwrap_or(Outcome::NotEnoughData),
        },
        settled: done || (blocked && at_a_look(&data)),
        comparisons,
        effects,
        search: story(&data),
        gates,
        arms: arm_tables(&data),
        pilot,
        position,
        change_points,
        outliers: odd_runs(&data),
        half_blocks: data.half_blocks,
        elapsed: elapsed(trials),
    }
}

/// An experiment with its verdict: computed once, and handed on.
pub fn judged(experiment: Experiment) -> (Experiment, Verdict) {
    let verdict = judge(&experiment);
    (experiment, verdict)
}

// ---- figures beside the verdict ----

/// The second run of a pair against the first: from the pairs that are judged, or, as long as these
/// are few, from the pilot.
fn position_effect(data: &Data<'_>) -> Option<Estimate> {
    if let [_, arm] = data.arms[..] {
        // Differences B - A of the pairs in which B ran second, and of those in which it ran first.
        let (mut second, mut first) = (Vec::new(), Vec::new());
        for block in &data.judged {
            let d = data.score(block[1]) - data.score(block[0]);
            match block[1].arm == arm {
                true => second.push(d),
                false => first.push(-d),
            }
        }
        // The change itself is in both, and the position twice. Exact, as the order was drawn by fair coins.
        if let Some(found) = rank_sum::shift(&first, &second, ALPHA) {
            let interval = Interval {
                low: found.interval.low / 2.0,
                high: found.interval.high / 2.0,
            };
            return Some(share(found.value / 2.0, interval, 1.0 - ALPHA));
        }
    }
    let d = pilot_differences(data);
    let critical = signed_rank::critical_value(d.len() as u32, ALPHA)?;
    let interval = signed_rank::interval(&d, critical)?;
    Some(share(hodges_lehmann(&d)?, interval, 1.0 - ALPHA))
}

/// Every run but the discarded ones in order of time, with its score less the median of its arm's.
fn residuals<'a>(data: &Data<'a>) -> Vec<(&'a Trial, f64)> {
    let kept = || {
        data.trials
            .iter()
            .filter(|t| t.phase != TrialPhase::Discarded)
    };
    let mut by_arm: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for trial in kept() {
        by_arm.entry(trial.arm).or_default().push(data.score(trial));
    }
    let medians: BTreeMap<u32, f64> = by_arm
        .into_iter()
        .filter_map(|(arm, scores)| Some((arm, median(&scores)?)))
        .collect();
    kept()
        .filter_map(|t| Some((t, data.score(t) - medians.get(&t.arm)?)))
        .collect()
}

fn change_points(data: &Data<'_>) -> Vec<ChangePoint> {
    let residuals = residuals(data);
    let values: Vec<f64> = residuals.iter().map(|(_, r)| *r).collect();
    let found = change_point(&values).filter(|c| c.p < CHANGE_REPORTED);
    let change = found.and_then(|c| {
        Some(ChangePoint {
            trial: residuals.get(c.after)?.0.number,
            shift_share: (c.after_median - c.before_median).exp_m1(),
            p: c.p,
        })
    });
    change.into_iter().collect()
}

fn odd_runs(data: &Data<'_>) -> Vec<Outlier> {
    let residuals = residuals(data);
    let values: Vec<f64> = residuals.iter().map(|(_, r)| *r).collect();
    // Failed runs are reported as such; where they are half of an arm, its median is that of no run.
    let has_median = |arm: u32| {
        let of_arm = || residuals.iter().filter(|(t, _)| t.arm == arm);
        let whole = of_arm().filter(|(t, _)| t.value.is_some()).count();
        2 * whole > of_arm().count()
    };
    let found = outliers(&values, OUTLIER_REPORTED);
    found
        .into_iter()
        .filter(|&at| residuals[at].0.value.is_some() && has_median(residuals[at].0.arm))
        // However still the path is: what does not matter is not odd.
        .filter(|&at| residuals[at].1.abs() > data.plan.margin.ln_1p())
        .map(|at| Outlier {
            trial: residuals[at].0.number,
            ratio: residuals[at].1.exp(),
        })
        .collect()
}

/// The classic table. Of a search: its rounds as long as nothing is confirmed.
fn arm_tables(data: &Data<'_>) -> Vec<ArmTable> {
    let searching = matches!(data.plan.design, Design::Search { .. }) && data.judged.is_empty();
    let runs: Vec<&Trial> = match searching {
        true => data
            .trials
            .iter()
            .filter(|t| t.phase == TrialPhase::Main)
            .collect(),
        false => data.judged.iter().flatten().copied().collect(),
    };
    let table = |arm: u32| {
        let trials: Vec<&Trial> = runs.iter().copied().filter(|t| t.arm == arm).collect();
        let scores: Vec<f64> = trials.iter().map(|t| data.score(t)).collect();
        // Half of the median speed.
        let poor = median(&scores).map_or(f64::NEG_INFINITY, |m| m - 2f64.ln());
        let values: Vec<f64> = trials.iter().filter_map(|t| t.value).collect();
        let failed = |t: &&&Trial| t.value.is_none();
        let bad = |t: &&&Trial| t.value.is_none() || data.score(t) < poor;
        ArmTable {
            arm,
            name: data.plan.arm_name(arm).to_owned(),
            runs: trials.len() as u32,
            failed: trials.iter().filter(failed).count() as u32,
            bad: trials.iter().filter(bad).count() as u32,
            average: crate::stats::total::mean(&values),
            median: median(&values),
            min: values.iter().copied().reduce(f64::min),
            max: values.iter().copied().reduce(f64::max),
            bytes: trials.iter().map(|t| t.bytes).sum::<Bytes>(),
            values,
        }
    };
    let arms = 0..data.plan.arms.len() as u32;
    arms.filter(|arm| searching || data.arms.contains(arm))
        .map(table)
        .collect()
}

fn story(data: &Data<'_>) -> Option<SearchStory> {
    if !matches!(data.plan.design, Design::Search { .. }) {
        return None;
    }
    let stage = search::stage(data.plan, data.trials);
    let winner = stage.winner();
    let looked = winner.and_then(|winner| {
        let d = blocks(data.trials, TrialPhase::Main).filter_map(|block| {
            let of = |arm| block.iter().find(|t| t.arm == arm).map(|t| data.score(t));
            Some(of(winner)? - of(0)?)
        });
        hodges_lehmann(&d.collect::<Vec<_>>())
    });
    Some(SearchStory {
        rounds: stage.rounds,
        winner,
        looked_share: looked.map(f64::exp_m1),
    })
}

fn elapsed(trials: &[Trial]) -> Nanos {
    match (trials.first(), trials.last()) {
        (Some(first), Some(last)) => (last.started + last.duration).since(first.started),
        _ => Nanos(0),
    }
}

const _: () = assert!(
    FEWEST_PAIRS == 6,
    "the sentences about too few pairs say so"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask, experiment, many_arms, noisy, plan, play};
    use crate::{PlanOptions, TrialSlot};
    use model::{Comparison, Estimand};

    fn only(verdict: &Verdict) -> &Comparison {
        assert_eq!(verdict.comparisons.len(), 1);
        &verdict.comparisons[0]
    }

    #[test]
    fn the_change_itself_is_no_position_effect() {
        let mut path = noisy(3, 1.3, 0.005);
        let second = |slot: crate::TrialSlot| if slot.position == 1 { 0.9 } else { 1.0 };
        let fixed = PlanOptions {
            pairs: Some(vec![20]),
            ..ask()
        };
        let verdict = judge(&play(plan(fixed), |slot| Some(path(slot)? * second(slot))));
        let found = verdict.position.unwrap();
        assert!((found.effect_share + 0.1).abs() < 0.01, "{found:?}");
        assert!(found.high_share < 0.0, "{found:?}");
    }

    #[test]
    fn each_answer_where_it_belongs() {
        let answer = |factor, spread, ask: PlanOptions| {
            let verdict = judge(&play(plan(ask), noisy(7, factor, spread)));
            assert!(verdict.settled);
            assert_eq!(only(&verdict).outcome, verdict.outcome);
            let comparison = only(&verdict).clone();
            (verdict.outcome, comparison.pairs, comparison.beyond_margin)
        };
        assert_eq!(answer(1.3, 0.03, ask()), (Outcome::Faster, 8, true));
        assert_eq!(answer(0.7, 0.03, ask()), (Outcome::Slower, 8, true));
        assert_eq!(answer(1.0, 0.01, ask()), (Outcome::NoDifference, 8, false));
        // Certainly faster, by less than the margin.
        assert_eq!(
            answer(1.02, 0.003, ask()),
            (Outcome::NoDifference, 8, false)
        );
        let (outcome, pairs, _) = answer(1.0, 0.3, ask());
        assert_eq!((outcome, pairs), (Outcome::NotEnoughData, 20));
        let fixed = PlanOptions {
            pairs: Some(vec![6]),
            ..ask()
        };
        assert_eq!(answer(1.3, 0.03, fixed).1, 6);
    }

    #[test]
    fn undecided_says_what_would_settle_it() {
        let verdict = judge(&play(plan(ask()), noisy(7, 1.0, 0.127)));
        let comparison = only(&verdict);
        assert_eq!(comparison.outcome, Outcome::NotEnoughData);
        assert_eq!(comparison.next_look, None);
        // Pairs differ by some 18 %: 152 in all.
        let more = comparison.more_pairs.unwrap();
        assert!(
            (90..=220).contains(&more) && more.is_multiple_of(10),
            "{more}"
        );
        let minutes = comparison.more_time.unwrap().as_secs_f64() / 60.0;
        assert!((minutes - f64::from(more) * 0.5).abs() < 1.0, "{minutes}");
    }

    #[test]
    fn between_looks_nothing_is_claimed() {
        let whole = play(plan(ask()), noisy(7, 1.0, 0.1));
        let after = |runs: usize| {
            let trials = whole.trials[..1 + 12 + runs].to_vec();
            judge(&experiment(whole.plan.clone(), trials))
        };
        let early = after(10);
        let comparison = only(&early);
        assert_eq!((comparison.pairs, comparison.pairs_so_far), (0, 5));
        assert_eq!((comparison.next_look, comparison.estimate), (Some(8), None));
        assert!(comparison.running_share.is_some() && !early.settled);
        let later = after(21);
        assert_eq!((only(&later).pairs, only(&later).pairs_so_far), (8, 10));
        assert_eq!(only(&later).next_look, Some(12));
        assert_eq!(later.half_blocks, 1);
        // Before anything is made there is nothing to say, and nothing breaks.
        let none = judge(&experiment(whole.plan.clone(), Vec::new()));
        assert_eq!(none.outcome, Outcome::NotEnoughData);
    }

    /// Where the change does nothing, at most 5 of 100 experiments end with a verdict of either kind:
    /// through order, looks and judge, not by the formula alone.
    #[test]
    fn false_verdicts_are_as_rare_as_promised() {
        const EXPERIMENTS: u64 = 2000;
        let false_verdict = |seed: u64| {
            let ask = PlanOptions {
                seed,
                pilot_pairs: Some(0),
                ..ask()
            };
            let verdict = judge(&play(plan(ask), noisy(seed, 1.0, 0.08)));
            u32::from(matches!(verdict.outcome, Outcome::Faster | Outcome::Slower))
        };
        let wrong: u32 = (0..EXPERIMENTS).map(false_verdict).sum();
        let share = f64::from(wrong) / EXPERIMENTS as f64;
        // Three standard errors are 1.5 %. Ending early with "no difference" takes some away.
        assert!((0.03..=0.065).contains(&share), "{share}");
    }

    #[test]
    fn several_arms_share_the_5_percent() {
        const EXPERIMENTS: u64 = 400;
        let false_verdict = |seed: u64| {
            let ask = PlanOptions {
                seed,
                pilot_pairs: Some(0),
                pairs: Some(vec![12]),
                ..many_arms(4)
            };
            let verdict = judge(&play(plan(ask), noisy(seed, 1.0, 0.08)));
            u32::from(
                verdict
                    .comparisons
                    .iter()
                    .any(|c| matches!(c.outcome, Outcome::Faster | Outcome::Slower)),
            )
        };
        let wrong: u32 = (0..EXPERIMENTS).map(false_verdict).sum();
        let share = f64::from(wrong) / EXPERIMENTS as f64;
        assert!(share < 0.08, "{share}");

        let ask = PlanOptions {
            pairs: Some(vec![12]),
            ..many_arms(4)
        };
        let path = |slot: TrialSlot| Some(1e9 * [1.0, 1.3, 1.0, 0.8, 1.001][slot.arm as usize]);
        let mut noise = noisy(1, 1.0, 0.01);
        let verdict = judge(&play(plan(ask), |slot| {
            Some(path(slot)? * noise(slot)? / 9e8)
        }));
        let outcomes: Vec<Outcome> = verdict.comparisons.iter().map(|c| c.outcome).collect();
        use Outcome::{Faster, NoDifference, Slower};
        assert_eq!(outcomes, [Faster, NoDifference, Slower, NoDifference]);
        assert_eq!(verdict.outcome, Faster);
        // The level of the interval is that of the step: 5 % over four arms first.
        let levels: Vec<f64> = verdict
            .comparisons
            .iter()
            .map(|c| c.estimate.unwrap().level)
            .collect();
        assert!(
            levels.iter().any(|l| (l - 0.9875).abs() < 1e-12),
            "{levels:?}"
        );
    }

    #[test]
    fn failed_runs_count_against_their_arm() {
        // B is 10 % faster, and fails every third time.
        let mut noise = noisy(2, 1.1, 0.01);
        let mut tried = 0;
        let broken = play(
            plan(PlanOptions {
                pairs: Some(vec![12]),
                ..ask()
            }),
            |slot| {
                tried += u32::from(slot.arm == 1);
                noise(slot).filter(|_| slot.arm == 0 || tried % 3 != 0)
            },
        );
        let verdict = judge(&broken);
        assert_ne!(verdict.outcome, Outcome::Faster);
        assert_eq!((verdict.arms[1].failed, verdict.arms[1].bad), (4, 4));
        assert_eq!(
            (verdict.arms[1].runs, verdict.arms[1].values.len()),
            (12, 8)
        );
        // Most of them fail: the others are not odd because of it.
        let mut tried = 0;
        let rare = play(plan(ask()), |slot| {
            tried += u32::from(slot.arm == 1);
            (slot.arm == 0 || tried % 3 == 0).then_some(9e8)
        });
        assert_eq!(judge(&rare).outliers, []);
        // All of them fail: that is slower, not unknown.
        let dead = play(plan(ask()), |slot| (slot.arm == 0).then_some(9e8));
        assert_eq!(judge(&dead).outcome, Outcome::Slower);
    }

    #[test]
    fn totals_see_stalls_that_the_typical_run_does_not() {
        // A stalls in some runs and is equal otherwise; B never does.
        let path = |estimand, one_in: u32| {
            let ask = PlanOptions {
                estimand,
                pairs: Some(vec![20]),
                ..ask()
            };
            let mut noise = noisy(11, 1.0, 0.02);
            judge(&play(plan(ask), move |slot| {
                let judged = slot.arm == 0 && slot.phase == TrialPhase::Main;
                let stalled = judged && slot.block % one_in == 1;
                Some(noise(slot)? * if stalled { 0.05 } else { 1.0 })
            }))
        };
        let typical = path(Estimand::Typical, 10);
        assert_eq!(typical.arms[0].bad, 2);
        assert_eq!(typical.outcome, Outcome::NoDifference);
        assert!(only(&typical).totals_outside);
        assert_eq!(typical.outliers.len(), 2);

        let total = path(Estimand::Total, 3);
        assert_eq!(total.outcome, Outcome::Faster);
        let estimate = only(&total).estimate.unwrap();
        let totals = only(&total).totals_share.unwrap();
        assert!((estimate.effect_share - totals).abs() < 1e-12);
        assert!(!only(&total).totals_outside);
    }

    #[test]
    fn less_time_is_faster() {
        let ask = PlanOptions {
            metric: model::Metric::Completion,
            run: Some(model::Spec {
                limit: model::LegLimit::Bytes(Bytes(100 << 20)),
                ..plan(ask()).run
            }),
            ..ask()
        };
        let mut noise = noisy(1, 0.8, 0.01);
        let verdict = judge(&play(plan(ask), |slot| Some(noise(slot)? / 9e8 * 10.0)));
        assert_eq!(verdict.outcome, Outcome::Faster);
        let effect = only(&verdict).estimate.unwrap().effect_share;
        assert!((effect - 0.25).abs() < 0.02, "{effect}");
        let totals = only(&verdict).totals_share.unwrap();
        assert!((totals - 0.25).abs() < 0.02, "{totals}");
    }

    #[test]
    fn a_search_among_nothing_is_not_believed() {
        let mut looked_better = 0;
        let mut confirmed = 0;
        for seed in 0..60 {
            let ask = PlanOptions {
                seed,
                search: true,
                pilot_pairs: Some(0),
                ..many_arms(8)
            };
            let verdict = judge(&play(plan(ask), noisy(seed, 1.0, 0.08)));
            let story = verdict.search.as_ref().unwrap();
            assert_eq!(
                story.rounds.iter().map(Vec::len).collect::<Vec<_>>(),
                [8, 4, 2, 1]
            );
            looked_better += u32::from(story.looked_share.unwrap() > 0.0);
            confirmed += u32::from(verdict.outcome == Outcome::Faster);
        }
        assert!(
            looked_better > 50,
            "the best of eight looks good: {looked_better}"
        );
        assert!(confirmed <= 5, "{confirmed}");
    }

    #[test]
    fn factors_and_what_they_do_together() {
        let text = "host = 'db2'\nblocks = 6\nseed = 1\npilot_pairs = 0\n\
            [[factor]]\nname = 'cc'\nlevels = ['baseline', 'congestion=bbr']\n\
            [[factor]]\nname = 'buffers'\nlevels = ['baseline', 'sockbuf=8M']\n";
        let plan = crate::parse_plan(text, "f.toml", 0).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(plan.arms.len(), 4);
        let mut noise = noisy(1, 1.0, 0.01);
        let levels: Vec<Vec<u32>> = plan.arms.iter().map(|a| a.levels.clone()).collect();
        let verdict = judge(&play(plan, |slot| {
            let l = &levels[slot.arm as usize];
            // bbr gains 20 %, buffers nothing alone and 30 % with bbr.
            let log = 0.2 * f64::from(l[0]) + 0.3 * f64::from(l[0] * l[1]);
            Some(noise(slot)? * log.exp())
        }));
        let effects: Vec<(&str, u32, Outcome)> = verdict
            .effects
            .iter()
            .map(|e| (e.name.as_str(), e.order, e.outcome))
            .collect();
        assert_eq!(
            effects,
            [
                ("cc congestion=bbr", 1, Outcome::Faster),
                ("buffers sockbuf=8M", 1, Outcome::Faster),
                ("cc congestion=bbr x buffers sockbuf=8M", 2, Outcome::Faster),
            ]
        );
        let main = verdict.effects[0].estimate.effect_share.ln_1p();
        assert!(
            (main - 0.35).abs() < 0.02,
            "on average over the buffers: {main}"
        );
        assert_eq!(verdict.outcome, Outcome::Faster);
    }
}
