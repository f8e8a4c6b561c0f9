//! A search over settings of which none does anything.

use super::Noise;
use super::noise::Path;
use super::{shuffled, value};
use crate::stats::{ALPHA, signed_rank};
use model::Random;

/// What the winner of a search looked like in the search itself.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its typical difference to the control, in logarithms.
    pub looked: f64,
    /// Its own p-value there was below 5 %.
    pub significant: bool,
}

/// Successive halving by ranks in blocks: all settings and the control in random order in each block,
/// three blocks a round, the better half goes on. `None` below two settings.
pub fn search(noise: Noise, seed: u64, settings: usize) -> Option<Found> {
    const BLOCKS: usize = 3;
    let mut path = Path::new(noise, seed);
    let mut coins = Random::new(seed, 1);
    let mut left: Vec<usize> = (1..=settings).collect();
    // Differences to the control, by setting.
    let mut all = vec![Vec::new(); settings + 1];
    while left.len() > 1 {
        let mut ranks = vec![0usize; settings + 1];
        for _ in 0..BLOCKS {
            let order = shuffled(left.iter().copied().chain([0]).collect(), &mut coins);
            let mut block: Vec<(f64, usize)> =
                order.iter().map(|&arm| (value(&path.run()), arm)).collect();
            block.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            let control = block.iter().find(|(_, arm)| *arm == 0)?.0;
            for (rank, &(value, arm)) in block.iter().enumerate() {
                ranks[arm] += rank;
                all[arm].push(value - control);
            }
        }
        left.sort_unstable_by_key(|&arm| std::cmp::Reverse(ranks[arm]));
        left.truncate(left.len() / 2);
    }
    let winner = &all[*left.first()?];
    Some(Found {
        looked: signed_rank::hodges_lehmann(winner)?,
        significant: signed_rank::p_two_sided(winner)? <= ALPHA,
    })
}
