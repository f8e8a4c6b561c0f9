//! A search among many arms: successive halving on ranks. Selection bias makes its winner look better than it
//! is, so it names the arms that go on, and never an effect.

use crate::blocks::{blocks, is_whole};
use crate::trial::scores;
use model::{Design, Plan, Trial, TrialPhase};

/// How far a search is.
pub(crate) struct SearchStage {
    /// The arms left at the start of each round, the present one last; the control is not among them.
    pub(crate) rounds: Vec<Vec<u32>>,
    pub(crate) blocks: usize,
}

impl SearchStage {
    /// The arms of the next block: the control and what is left.
    pub(crate) fn arms(&self) -> Vec<u32> {
        let left = self.rounds.last().into_iter().flatten().copied();
        std::iter::once(0).chain(left).collect()
    }

    pub(crate) fn winner(&self) -> Option<u32> {
        match self.rounds.last().map(Vec::as_slice) {
            Some(&[winner]) => Some(winner),
            _ => None,
        }
    }
}

/// Plays the rounds on record. After each, the better half (rounded up) goes on, by the sums of its
/// ranks within all blocks so far.
pub(crate) fn stage(plan: &Plan, trials: &[Trial]) -> SearchStage {
    let every = (1..plan.arms.len() as u32).collect();
    let mut stage = SearchStage {
        rounds: vec![every],
        blocks: 0,
    };
    let Design::Search { blocks: needed, .. } = plan.design else {
        return stage;
    };
    let scores = scores(plan, trials);
    let score = |t: &Trial| scores.get(&t.number).copied().unwrap_or(f64::NEG_INFINITY);
    let mut judged: Vec<Vec<(u32, f64)>> = Vec::new();
    let mut in_round = 0;
    for block in blocks(trials, TrialPhase::Main) {
        if !is_whole(&block, &stage.arms()) || stage.winner().is_some() {
            continue;
        }
        judged.push(block.iter().map(|t| (t.arm, score(t))).collect());
        stage.blocks += 1;
        in_round += 1;
        if in_round == needed {
            in_round = 0;
            let left = stage.rounds.last().map(Vec::as_slice).unwrap_or_default();
            stage.rounds.push(better_half(left, &judged));
        }
    }
    stage
}

/// The better half of the arms by their rank sums, the lower number first where these are equal.
fn better_half(arms: &[u32], blocks: &[Vec<(u32, f64)>]) -> Vec<u32> {
    // Twice the rank, so that tied arms share a whole number.
    let points = |arm: u32| -> usize {
        let within = |block: &Vec<(u32, f64)>| {
            let own = block.iter().find(|(a, _)| *a == arm)?.1;
            let rivals = block.iter().filter(|(a, _)| *a != arm && arms.contains(a));
            Some(rivals.fold(0, |sum, (_, other)| {
                sum + match own.total_cmp(other) {
                    std::cmp::Ordering::Greater => 2,
                    std::cmp::Ordering::Equal => 1,
                    std::cmp::Ordering::Less => 0,
                }
            }))
        };
        blocks.iter().filter_map(within).sum()
    };
    let mut by_points = arms.to_vec();
    by_points.sort_by_key(|&arm| (std::cmp::Reverse(points(arm)), arm));
    by_points.truncate(arms.len().div_ceil(2));
    by_points.sort_unstable();
    by_points
}
