//! What to run next. The answer follows from the plan and the runs on record alone, so an experiment
//! that was interrupted goes on as if it had not been.

use crate::blocks::{TrialSlot, whole_blocks};
use crate::{looks, search};
use model::Random;
use model::{Design, Plan, Trial, TrialPhase};

/// The run that follows those on record; `None`: no run is needed any more. They are all of one sitting or end with a block that is
/// whole. First one run is discarded, then come the pilot and the blocks.
pub fn next(plan: &Plan, trials: &[Trial]) -> Option<TrialSlot> {
    let Some(last) = trials.last() else {
        return Some(DISCARDED);
    };
    if last.phase != TrialPhase::Discarded {
        let same = |t: &&Trial| (t.phase, t.block) == (last.phase, last.block);
        let begun = trials.iter().filter(same).count();
        let order = block_order(plan, trials, last.phase, last.block);
        if let Some(&arm) = order.get(begun) {
            return Some(TrialSlot {
                phase: last.phase,
                block: last.block,
                position: begun as u32,
                arm,
            });
        }
    }
    let phase = open_phase(plan, trials)?;
    let of_phase = trials.iter().filter(|t| t.phase == phase);
    let block = of_phase.map(|t| t.block + 1).max().unwrap_or(0);
    let arm = *block_order(plan, trials, phase, block).first()?;
    Some(TrialSlot {
        phase,
        block,
        position: 0,
        arm,
    })
}

/// The first run after a break. A path that rested is warmed up again by a run that is discarded,
/// and a block that was interrupted is run again under the next number, for its runs would not have
/// been made side by side: what there is of it stays on record and is not judged.
pub fn resume(plan: &Plan, trials: &[Trial]) -> Option<TrialSlot> {
    match trials.last() {
        Some(_) if open_phase(plan, trials).is_none() => next(plan, trials),
        _ => Some(DISCARDED),
    }
}

/// A run of the control that warms the path and the hosts up.
const DISCARDED: TrialSlot = TrialSlot {
    phase: TrialPhase::Discarded,
    block: 0,
    position: 0,
    arm: 0,
};

/// The phase that needs another block; `None` if none does.
fn open_phase(plan: &Plan, trials: &[Trial]) -> Option<TrialPhase> {
    if whole_blocks(trials, TrialPhase::Pilot, &[0, 0]).len() < plan.pilot_pairs as usize {
        return Some(TrialPhase::Pilot);
    }
    match &plan.design {
        Design::Pairs { .. } => (!looks::settled(plan, trials)).then_some(TrialPhase::Main),
        Design::Blocks { blocks } | Design::Factorial { blocks, .. } => {
            let made = whole_blocks(trials, TrialPhase::Main, &all_arms(plan)).len();
            (made < *blocks as usize).then_some(TrialPhase::Main)
        }
        Design::Search { .. } => match search::stage(plan, trials).winner() {
            None => Some(TrialPhase::Main),
            Some(_) => (!looks::settled(plan, trials)).then_some(TrialPhase::Confirmation),
        },
    }
}

/// The arms of a block in the order in which they run: a random permutation from the seed, the
/// phase and the number of the block.
fn block_order(plan: &Plan, trials: &[Trial], phase: TrialPhase, block: u32) -> Vec<u32> {
    let before: Vec<Trial>;
    let mut arms = match (phase, &plan.design) {
        (TrialPhase::Discarded, _) => return vec![0],
        (TrialPhase::Pilot, _) => vec![0, 0],
        (TrialPhase::Main, Design::Search { .. }) => {
            // What was left when the block began, not what its own first runs leave.
            let earlier = |t: &&Trial| t.phase == TrialPhase::Main && t.block < block;
            before = trials.iter().filter(earlier).cloned().collect();
            search::stage(plan, &before).arms()
        }
        (TrialPhase::Confirmation, _) => match search::stage(plan, trials).winner() {
            Some(winner) => vec![0, winner],
            None => Vec::new(),
        },
        (TrialPhase::Main, _) => all_arms(plan),
    };
    let stream = (phase as u64) << 32 | u64::from(block);
    let mut chance = Random::new(plan.seed, stream);
    // Fisher and Yates. The remainder of 64 bits is as good as fair for at most 64 arms.
    for last in (1..arms.len()).rev() {
        let other = chance.bits() % (last as u64 + 1);
        arms.swap(last, other as usize);
    }
    arms
}

fn all_arms(plan: &Plan) -> Vec<u32> {
    (0..plan.arms.len() as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlanOptions;
    use crate::blocks::blocks;
    use crate::testing::{ask, made, many_arms, noisy, plan, play};

    /// Arms by block.
    fn arms(trials: &[Trial], phase: TrialPhase) -> Vec<Vec<u32>> {
        blocks(trials, phase)
            .map(|b| b.iter().map(|t| t.arm).collect())
            .collect()
    }

    #[test]
    fn a_seed_means_the_same_order_for_ever() {
        let fixed = PlanOptions {
            pairs: Some(vec![20]),
            ..ask()
        };
        let trials = play(plan(fixed), noisy(1, 1.0, 0.05)).trials;
        let first: String = arms(&trials, TrialPhase::Main)
            .iter()
            .map(|b| b[0].to_string())
            .collect();
        assert_eq!(first, "00011100101000000100");
        let blocks = PlanOptions {
            pairs: Some(vec![8]),
            ..many_arms(3)
        };
        let trials = play(plan(blocks), noisy(1, 1.0, 0.05)).trials;
        let order: Vec<String> = arms(&trials, TrialPhase::Main)
            .iter()
            .map(|b| b.iter().map(u32::to_string).collect())
            .collect();
        assert_eq!(order.join(" "), "2031 1203 1023 1320 1230 3120 2013 0123");
    }

    #[test]
    fn first_a_discarded_run_then_the_pilot_then_pairs() {
        let trials = play(plan(ask()), noisy(1, 1.5, 0.02)).trials;
        assert_eq!((trials[0].phase, trials[0].arm), (TrialPhase::Discarded, 0));
        assert_eq!(arms(&trials, TrialPhase::Pilot), vec![vec![0, 0]; 6]);
        assert!(trials[1..13].iter().all(|t| t.phase == TrialPhase::Pilot));
        // Half as fast again is decided at the first look.
        assert_eq!(arms(&trials, TrialPhase::Main).len(), 8);
        assert_eq!(trials.len(), 1 + 12 + 16);

        let without = PlanOptions {
            pilot_pairs: Some(0),
            ..ask()
        };
        let trials = play(plan(without), noisy(1, 1.5, 0.02)).trials;
        assert_eq!(trials.len(), 1 + 16);
    }

    #[test]
    fn coins_are_fair() {
        let with_seed = |seed| PlanOptions {
            seed,
            pairs: Some(vec![20]),
            pilot_pairs: Some(0),
            ..ask()
        };
        let heads = (0..200)
            .flat_map(|seed| {
                arms(
                    &play(plan(with_seed(seed)), noisy(1, 1.0, 0.05)).trials,
                    TrialPhase::Main,
                )
            })
            .filter(|b| b[0] == 0)
            .count();
        // 4000 coins: three standard deviations are 95.
        assert!(heads.abs_diff(2000) < 95, "{heads}");
    }

    #[test]
    fn every_prefix_goes_on_to_the_same_end() {
        let whole = play(plan(ask()), noisy(3, 1.04, 0.05));
        for made in 0..whole.trials.len() {
            let expected = &whole.trials[made];
            let slot = TrialSlot {
                phase: expected.phase,
                block: expected.block,
                position: expected.position,
                arm: expected.arm,
            };
            assert_eq!(next(&whole.plan, &whole.trials[..made]), Some(slot));
        }
        assert_eq!(next(&whole.plan, &whole.trials), None);
        assert_eq!(resume(&whole.plan, &whole.trials), None);
    }

    #[test]
    fn an_interrupted_block_is_run_again_and_kept() {
        let whole = play(plan(ask()), noisy(3, 1.0, 0.05));
        // The first run of the third pair is made, then the machine is switched off.
        let mut trials = whole.trials[..1 + 12 + 5].to_vec();
        assert_eq!(trials.last().map(|t| t.block), Some(2));
        let Some(slot) = resume(&whole.plan, &trials) else {
            panic!("there are runs to make");
        };
        assert_eq!(slot.phase, TrialPhase::Discarded);
        trials.push(made(slot, 19, Some(1e8)));
        let Some(slot) = next(&whole.plan, &trials) else {
            panic!("there are runs to make");
        };
        assert_eq!(
            (slot.phase, slot.block, slot.position),
            (TrialPhase::Main, 3, 0)
        );
        let mut path = noisy(5, 1.0, 0.05);
        while let Some(slot) = next(&whole.plan, &trials) {
            trials.push(made(slot, trials.len() as u32 + 1, path(slot)));
        }
        let pairs = arms(&trials, TrialPhase::Main);
        assert_eq!(pairs.len(), 21);
        assert_eq!(pairs[2].len(), 1);
        assert_eq!(whole_blocks(&trials, TrialPhase::Main, &[0, 1]).len(), 20);
    }

    #[test]
    fn a_search_halves_and_then_confirms_afresh() {
        let search = PlanOptions {
            search: true,
            pilot_pairs: Some(0),
            ..many_arms(5)
        };
        let experiment = play(plan(search), |slot| {
            // Arm 4 is the best by 20 %.
            let speed = [1.0, 0.9, 1.0, 1.05, 1.2, 0.8][slot.arm as usize];
            Some(1e9 * speed * (1.0 + f64::from(slot.block % 3) * 0.01))
        });
        let blocks = arms(&experiment.trials, TrialPhase::Main);
        let sizes: Vec<usize> = blocks.iter().map(Vec::len).collect();
        // Five, three, two arms and the control.
        assert_eq!(sizes, [6, 6, 6, 4, 4, 4, 3, 3, 3]);
        let confirmation = arms(&experiment.trials, TrialPhase::Confirmation);
        assert_eq!(confirmation.len(), 8);
        assert!(
            confirmation
                .iter()
                .flatten()
                .all(|arm| [0, 4].contains(arm))
        );
    }
}
