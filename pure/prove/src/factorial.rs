//! Factors at once: what each does on average over the others, and what two do together.

use crate::looks::share;
use crate::stats::ALPHA;
use crate::stats::decision::decide;
use crate::stats::factors::{FactorEstimate, Observation, fit};
use model::{Design, FactorEffect, Outcome, Plan};

/// Main effects, then interactions, once all blocks are there.
pub(crate) fn effects(plan: &Plan, runs: &[Observation], done: bool) -> Vec<FactorEffect> {
    let Design::Factorial { factors, .. } = &plan.design else {
        return Vec::new();
    };
    if !done {
        return Vec::new();
    }
    let levels: Vec<u32> = factors.iter().map(|f| f.levels.len() as u32).collect();
    let level = |&(factor, level): &(usize, u32)| {
        let factor = &factors[factor];
        let name = &factor.levels[level as usize].name;
        // A factor named as its knob is in the name of its level.
        match name.starts_with(factor.name.as_str()) {
            true => name.clone(),
            false => format!("{} {name}", factor.name),
        }
    };
    let effect = |effect: FactorEstimate| {
        let FactorEstimate { of, estimate, p } = effect;
        let decision = decide(estimate.interval, plan.margin.ln_1p());
        // A small effect is small by its own interval; a large one is shown among all only by Holm.
        let (outcome, beyond_margin) = match decision.0 == Outcome::NoDifference || p <= ALPHA {
            true => decision,
            false => (Outcome::NotEnoughData, false),
        };
        FactorEffect {
            name: of.iter().map(level).collect::<Vec<_>>().join(" x "),
            order: of.len() as u32,
            outcome,
            estimate: share(estimate.value, estimate.interval, 1.0 - ALPHA),
            p,
            beyond_margin,
        }
    };
    let fitted = fit(runs, &levels).into_iter().flatten();
    fitted.map(effect).collect()
}
