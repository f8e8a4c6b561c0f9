//! What a plan will cost, and what it can and cannot show.

use crate::looks::{Data, last_pairs, pilot};
use crate::stats::power::{pairs_for_effect, pairs_for_equivalence};
use crate::stats::spread::planning_factor;
use crate::trial::run_time;
use model::{Design, Forecast, Nanos, Pilot, Plan, Trial};

/// Forecasts a plan from what is on record: nothing, a pilot, or more.
pub fn forecast(plan: &Plan, trials: &[Trial]) -> Forecast {
    let warm_up = 1 + 2 * plan.pilot_pairs;
    let arms = plan.arms.len() as u32;
    let of_looks = |looks: &[u32]| {
        let first = looks.first().copied().unwrap_or(0);
        (2 * first, 2 * looks.last().copied().unwrap_or(first))
    };
    let (least, most) = match &plan.design {
        Design::Pairs { looks } => of_looks(looks),
        Design::Blocks { blocks: n } | Design::Factorial { blocks: n, .. } => (n * arms, n * arms),
        Design::Search { blocks, confirm } => {
            let mut left = arms - 1;
            let mut search = 0;
            while left > 1 {
                search += blocks * (left + 1);
                left = left.div_ceil(2);
            }
            let (least, most) = of_looks(confirm);
            (search + least, search + most)
        }
    };
    let run = run_time(plan, trials);
    let time = |runs: u32| run.map(|run| Nanos(run.0.saturating_mul(u64::from(runs))));
    let pilot = pilot(&Data::of(plan, trials));
    let noise = pilot.as_ref().map(|p| p.noise);
    let planned = |p: &Pilot| Some(p.noise * planning_factor(p.pairs as usize)?);
    let planned = pilot.as_ref().and_then(planned);
    Forecast {
        run,
        runs_least: warm_up + least,
        runs_most: warm_up + most,
        least: time(warm_up + least),
        most: time(warm_up + most),
        pairs_most: last_pairs(plan).unwrap_or(0),
        noise,
        smallest_share: pilot.as_ref().map(|p| p.smallest_share),
        pairs_for_margin: planned.and_then(|s| pairs_for_effect(s, plan.margin)),
        pairs_for_none: planned.and_then(|s| pairs_for_equivalence(s, plan.margin)),
    }
}
