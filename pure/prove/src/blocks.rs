//! Runs in blocks: a place in the order of an experiment, and the blocks that are on record.

use model::{Trial, TrialPhase};
use std::collections::BTreeMap;

/// A place in the order: what is known of a [`Trial`] before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialSlot {
    /// What the run is for.
    pub phase: TrialPhase,
    /// Its block.
    pub block: u32,
    /// Its position in the block.
    pub position: u32,
    /// Its arm.
    pub arm: u32,
}

/// The blocks of a phase by number, each in order of position.
pub(crate) fn blocks(trials: &[Trial], phase: TrialPhase) -> impl Iterator<Item = Vec<&Trial>> {
    let mut blocks: BTreeMap<u32, Vec<&Trial>> = BTreeMap::new();
    for trial in trials.iter().filter(|t| t.phase == phase) {
        blocks.entry(trial.block).or_default().push(trial);
    }
    blocks.into_values().map(|mut block| {
        block.sort_by_key(|t| t.position);
        block
    })
}

/// True if the block has a run of each of these arms (by rising number), and no other.
pub(crate) fn is_whole(block: &[&Trial], arms: &[u32]) -> bool {
    let mut there: Vec<u32> = block.iter().map(|t| t.arm).collect();
    there.sort_unstable();
    there == arms
}

/// The blocks of a phase that have a run of each of these arms.
pub(crate) fn whole_blocks<'a>(
    trials: &'a [Trial],
    phase: TrialPhase,
    arms: &[u32],
) -> Vec<Vec<&'a Trial>> {
    let mut arms = arms.to_vec();
    arms.sort_unstable();
    blocks(trials, phase)
        .filter(|block| is_whole(block, &arms))
        .collect()
}
