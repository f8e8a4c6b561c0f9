//! The sequential test: the runs that are judged, each variant compared with the baseline at the looks
//! that the plan fixed before the first run, and whether further runs can change the answer.

use crate::blocks::{blocks, whole_blocks};
use crate::stats::decision::decide;
use crate::stats::factors::Observation;
use crate::stats::multiple::holm;
use crate::stats::power::{pairs_for_equivalence, smallest_effect};
use crate::stats::signed_rank::{self, InterimLook, hodges_lehmann};
use crate::stats::spread::{deviation, planning_factor, robust_deviation};
use crate::stats::{ALPHA, Interval};
use crate::trial::{run_time, scores};
use crate::{gates, search, total};
use model::{
    Comparison, Design, Estimand, Estimate, Nanos, Outcome, Pilot, Plan, Trial, TrialPhase,
};
use std::collections::BTreeMap;

/// True if no further run can change the answer to a plan of pairs, or of a search's confirmation.
pub(crate) fn settled(plan: &Plan, trials: &[Trial]) -> bool {
    let data = Data::of(plan, trials);
    let (_, done) = compare(&data);
    // What the gates forbid at a look, more runs do not allow.
    done || (at_a_look(&data) && gates::hopeless(plan, trials))
}

// ---- the runs in their blocks ----

/// The runs that are judged.
pub(crate) struct Data<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) trials: &'a [Trial],
    scores: BTreeMap<u32, f64>,
    pub(crate) pilot: Vec<Vec<&'a Trial>>,
    /// Whole blocks from which the arms are compared.
    pub(crate) judged: Vec<Vec<&'a Trial>>,
    /// The arms that are compared, the control first.
    pub(crate) arms: Vec<u32>,
    pub(crate) half_blocks: u32,
}

impl<'a> Data<'a> {
    pub(crate) fn of(plan: &'a Plan, trials: &'a [Trial]) -> Data<'a> {
        let pilot = whole_blocks(trials, TrialPhase::Pilot, &[0, 0]);
        let stage = search::stage(plan, trials);
        let all: Vec<u32> = (0..plan.arms.len() as u32).collect();
        let (phase, arms, searched) = match (&plan.design, stage.winner()) {
            (Design::Search { .. }, None) => (TrialPhase::Confirmation, Vec::new(), stage.blocks),
            (Design::Search { .. }, Some(winner)) => {
                (TrialPhase::Confirmation, vec![0, winner], stage.blocks)
            }
            _ => (TrialPhase::Main, all, 0),
        };
        let judged = whole_blocks(trials, phase, &arms);
        let phases = [
            TrialPhase::Pilot,
            TrialPhase::Main,
            TrialPhase::Confirmation,
        ];
        let begun: usize = phases
            .map(|phase| blocks(trials, phase).count())
            .iter()
            .sum();
        let whole = pilot.len() + judged.len() + searched;
        Data {
            plan,
            trials,
            scores: scores(plan, trials),
            pilot,
            judged,
            arms,
            half_blocks: begun.saturating_sub(whole) as u32,
        }
    }

    pub(crate) fn score(&self, trial: &Trial) -> f64 {
        self.scores.get(&trial.number).copied().unwrap_or(f64::NAN)
    }

    /// The scores of the control and of an arm in each block.
    fn against_control(&self, arm: u32) -> Vec<[f64; 2]> {
        let of = |block: &Vec<&Trial>, arm| {
            let trial = block.iter().find(|t| t.arm == arm)?;
            Some(self.score(trial))
        };
        let pair = |block: &Vec<&Trial>| Some([of(block, 0)?, of(block, arm)?]);
        self.judged.iter().filter_map(pair).collect()
    }

    pub(crate) fn observations(&self) -> Vec<Observation> {
        let observation = |t: &&Trial| Observation {
            block: t.block,
            levels: self.plan.arms[t.arm as usize].levels.clone(),
            y: self.score(t),
        };
        self.judged.iter().flatten().map(observation).collect()
    }
}

fn differences(pairs: &[[f64; 2]]) -> Vec<f64> {
    pairs.iter().map(|[a, b]| b - a).collect()
}

// ---- comparisons ----

/// Each arm against the control, and whether all runs of the plan are there.
pub(crate) fn compare(data: &Data<'_>) -> (Vec<Comparison>, bool) {
    match &data.plan.design {
        Design::Pairs { looks } | Design::Search { confirm: looks, .. } => {
            let Some(&arm) = data.arms.get(1) else {
                return (Vec::new(), false);
            };
            let looks = signed_rank::looks(looks).unwrap_or_default();
            let (comparison, done) = in_looks(data, arm, &looks);
            (vec![comparison], done)
        }
        Design::Blocks { blocks } => {
            let done = data.judged.len() >= *blocks as usize;
            (in_blocks(data, done), done)
        }
        Design::Factorial { blocks, .. } => (Vec::new(), data.judged.len() >= *blocks as usize),
    }
}

/// One arm, judged at each look until one decides.
fn in_looks(data: &Data<'_>, arm: u32, looks: &[InterimLook]) -> (Comparison, bool) {
    let pairs = data.against_control(arm);
    let mut comparison = undecided(data, arm, &pairs);
    for look in looks {
        let Some(seen) = pairs.get(..look.pairs as usize) else {
            comparison.next_look = Some(look.pairs);
            break;
        };
        let Some((value, interval)) = estimate(data.plan, seen, look) else {
            continue;
        };
        let found = share(value, interval, 1.0 - ALPHA);
        conclude(&mut comparison, data.plan, seen, interval, found);
        if comparison.outcome != Outcome::NotEnoughData {
            break;
        }
    }
    let decided = comparison.outcome != Outcome::NotEnoughData;
    let done = decided || (comparison.next_look.is_none() && !looks.is_empty());
    (comparison, done)
}

/// The estimate and its interval at a look, by what the plan asks about.
fn estimate(plan: &Plan, pairs: &[[f64; 2]], look: &InterimLook) -> Option<(f64, Interval)> {
    match plan.estimand {
        Estimand::Typical => {
            let d = differences(pairs);
            let interval = signed_rank::interval(&d, look.critical)?;
            Some((hodges_lehmann(&d)?, interval))
        }
        Estimand::Total => {
            let level = signed_rank::level(look.pairs, look.critical);
            total::estimate(plan.metric, pairs, level)
        }
    }
}

fn p_value(plan: &Plan, pairs: &[[f64; 2]]) -> Option<f64> {
    match plan.estimand {
        Estimand::Typical => signed_rank::p_two_sided(&differences(pairs)),
        Estimand::Total => total::p_two_sided(plan.metric, pairs),
    }
}

/// Several arms, judged once all blocks are there. Holm's steps give each arm its level, and its
/// interval is made for that level, so that words and interval agree.
fn in_blocks(data: &Data<'_>, done: bool) -> Vec<Comparison> {
    let arms = &data.arms[1..];
    let pairs: Vec<Vec<[f64; 2]>> = arms.iter().map(|&arm| data.against_control(arm)).collect();
    let open = |(&arm, pairs): (&u32, &Vec<[f64; 2]>)| Comparison {
        next_look: last_pairs(data.plan).filter(|_| !done),
        ..undecided(data, arm, pairs)
    };
    let mut comparisons: Vec<Comparison> = arms.iter().zip(&pairs).map(open).collect();
    if !done {
        return comparisons;
    }
    let p = pairs.iter().map(|pairs| p_value(data.plan, pairs));
    let p: Vec<f64> = p.map(|p| p.unwrap_or(1.0)).collect();
    let adjusted = holm(&p);
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut rejected = 0;
    for at in order {
        let alpha = ALPHA / (p.len() - rejected) as f64;
        let pairs = &pairs[at];
        let made = pairs.len() as u32;
        let found = signed_rank::critical_value(made, alpha)
            .map(|critical| InterimLook {
                pairs: made,
                critical,
            })
            .and_then(|look| estimate(data.plan, pairs, &look));
        let Some((value, interval)) = found else {
            continue;
        };
        // In order of p: the first that is not shown ends the steps for all that follow.
        rejected += usize::from(interval.excludes_zero());
        let comparison = &mut comparisons[at];
        let found = share(value, interval, 1.0 - alpha);
        conclude(comparison, data.plan, pairs, interval, found);
        comparison.p = Some(adjusted[at]);
    }
    comparisons
}

/// What can be said before anything is claimed.
fn undecided(data: &Data<'_>, arm: u32, pairs: &[[f64; 2]]) -> Comparison {
    let d = differences(pairs);
    let noise = noise(&d);
    let more_pairs = noise.and_then(|noise| more_pairs(data.plan, noise, pairs.len() as u32));
    let time = |pairs: u32| {
        let run = run_time(data.plan, data.trials)?.0;
        let runs = u64::from(pairs) * data.arms.len() as u64;
        Some(Nanos(run.saturating_mul(runs)))
    };
    Comparison {
        arm,
        against: 0,
        outcome: Outcome::NotEnoughData,
        pairs: 0,
        pairs_so_far: pairs.len() as u32,
        next_look: None,
        estimate: None,
        running_share: hodges_lehmann(&d).map(f64::exp_m1),
        noise,
        p: None,
        beyond_margin: false,
        totals_share: total::share(data.plan.metric, pairs),
        totals_outside: false,
        more_pairs,
        more_time: more_pairs.and_then(time),
    }
}

fn conclude(
    comparison: &mut Comparison,
    plan: &Plan,
    pairs: &[[f64; 2]],
    interval: Interval,
    found: Estimate,
) {
    let (outcome, beyond_margin) = decide(interval, plan.margin.ln_1p());
    comparison.outcome = outcome;
    comparison.beyond_margin = beyond_margin;
    comparison.pairs = pairs.len() as u32;
    comparison.p = p_value(plan, pairs);
    comparison.estimate = Some(found);
    let totals = total::share(plan.metric, pairs);
    comparison.totals_share = totals;
    comparison.totals_outside = totals.is_some_and(|share| !interval.contains(share.ln_1p()));
    if outcome != Outcome::NotEnoughData {
        comparison.more_pairs = None;
        comparison.more_time = None;
    }
}

pub(crate) fn share(value: f64, interval: Interval, level: f64) -> Estimate {
    Estimate {
        effect_share: value.exp_m1(),
        low_share: interval.low.exp_m1(),
        high_share: interval.high.exp_m1(),
        level,
    }
}

/// By how much pairs differ. A stall or a failed run would make the plain deviation meaningless for
/// planning; where it is far above the robust one, that one is reported.
fn noise(d: &[f64]) -> Option<f64> {
    let plain = deviation(d)?;
    Some(match robust_deviation(d) {
        Some(robust) if robust > 0.0 && plain > 2.0 * robust => robust,
        _ => plain,
    })
}

/// Pairs beyond those made that settle the margin at this noise, in two digits.
fn more_pairs(plan: &Plan, noise: f64, made: u32) -> Option<u32> {
    let needed = pairs_for_equivalence(noise, plan.margin)?;
    // The effect lies near the margin if so many did not do: twice as many halve what is open.
    let more = if needed > made { needed - made } else { made };
    let step = 10u32.pow(more.max(1).ilog10().saturating_sub(1));
    Some((f64::from(more) / f64::from(step)).round() as u32 * step)
}

/// The most pairs that the plan makes of two arms.
pub(crate) fn last_pairs(plan: &Plan) -> Option<u32> {
    match &plan.design {
        Design::Pairs { looks } | Design::Search { confirm: looks, .. } => looks.last().copied(),
        Design::Blocks { blocks } => Some(*blocks),
        // A main effect compares one half of all runs with the other.
        Design::Factorial { blocks, .. } => Some(blocks * plan.arms.len() as u32 / 2),
    }
}

/// True if the pairs or blocks so far are a number at which the plan judges.
pub(crate) fn at_a_look(data: &Data<'_>) -> bool {
    let made = data.judged.len() as u32;
    match &data.plan.design {
        Design::Pairs { looks } | Design::Search { confirm: looks, .. } => looks.contains(&made),
        Design::Blocks { blocks } | Design::Factorial { blocks, .. } => made >= *blocks,
    }
}

// ---- the pilot ----

/// The noise of pairs of the baseline with itself.
pub(crate) fn pilot(data: &Data<'_>) -> Option<Pilot> {
    let d = pilot_differences(data);
    let noise = noise(&d)?;
    let planned = noise * planning_factor(d.len())?;
    Some(Pilot {
        pairs: d.len() as u32,
        noise,
        smallest_share: smallest_effect(planned, last_pairs(data.plan)?)?,
    })
}

/// Second run less first, of each pair of the pilot.
pub(crate) fn pilot_differences(data: &Data<'_>) -> Vec<f64> {
    let second_less_first = |pair: &Vec<&Trial>| data.score(pair[1]) - data.score(pair[0]);
    data.pilot.iter().map(second_less_first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask, plan};

    #[test]
    fn noise_is_the_plain_deviation_unless_it_is_twice_the_robust_one() {
        let few: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(noise(&few), deviation(&few));
        let mut far = few.clone();
        far[8] = 1000.0;
        assert_eq!(noise(&far), robust_deviation(&far));
        // More than half are equal: the robust one is none.
        let equal = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0];
        assert_eq!(robust_deviation(&equal), Some(0.0));
        assert_eq!(noise(&equal), deviation(&equal));
        assert_eq!(noise(&[1.0]), None);
    }

    #[test]
    fn more_pairs_are_those_that_are_missing_or_as_many_again_in_two_digits() {
        let plan = plan(ask());
        let needed = |noise| pairs_for_equivalence(noise, plan.margin).unwrap();
        let few = needed(0.05);
        assert!((10..100).contains(&few), "{few}");
        assert_eq!(more_pairs(&plan, 0.05, few - 5), Some(5));
        assert_eq!(
            more_pairs(&plan, 0.05, few),
            Some(few),
            "the effect lies near the margin"
        );
        assert_eq!(more_pairs(&plan, 0.05, few + 1), Some(few + 1));
        let many = needed(0.5);
        let two_digits = |n: u32| (n + 50) / 100 * 100;
        assert!((1000..10_000).contains(&many), "{many}");
        assert_eq!(more_pairs(&plan, 0.5, 0), Some(two_digits(many)));
    }

    #[test]
    fn a_plan_judges_at_its_looks_or_when_all_blocks_are_made() {
        let of = |blocks, arms: u32| {
            let mut plan = plan(crate::testing::many_arms(arms));
            plan.design = Design::Factorial {
                blocks,
                factors: Vec::new(),
            };
            last_pairs(&plan)
        };
        assert_eq!(
            [of(6, 3), of(5, 1)],
            [Some(12), Some(5)],
            "half of the runs of all arms"
        );
        let mut fixed = plan(ask());
        fixed.design = Design::Pairs { looks: vec![8, 12] };
        assert_eq!(last_pairs(&fixed), Some(12));
        fixed.design = Design::Blocks { blocks: 9 };
        assert_eq!(last_pairs(&fixed), Some(9));
    }

    #[test]
    fn the_probability_is_that_of_signed_ranks_or_of_the_totals() {
        let mut plan = plan(ask());
        // Six pairs of one sign: 2 of 64.
        let pairs: Vec<[f64; 2]> = (1..=6).map(|n| [0.0, f64::from(n) / 10.0]).collect();
        for estimand in [Estimand::Typical, Estimand::Total] {
            plan.estimand = estimand;
            let p = p_value(&plan, &pairs).unwrap();
            assert!((p - 2.0 / 64.0).abs() < 1e-12, "{estimand:?}: {p}");
        }
    }
}
