//! Factors at once: what each does on average over the others, and what two do together.

use crate::looks::{outcome_of, share};
use crate::stats::ALPHA;
use crate::stats::decision::{Decision, decide};
use crate::stats::factors::{Effect, Observation, Term, fit};
use model::{Design, FactorEffect, Outcome, Plan};

/// Main effects, then interactions, once all blocks are there. `runs` are block, arm and score.
pub(crate) fn effects(plan: &Plan, runs: &[(u32, u32, f64)], done: bool) -> Vec<FactorEffect> {
    let Design::Factorial { factors, .. } = &plan.design else {
        return Vec::new();
    };
    if !done {
        return Vec::new();
    }
    let observations: Vec<Observation> = runs
        .iter()
        .filter_map(|&(block, arm, y)| {
            let levels = plan.arms.get(arm as usize)?.levels.clone();
            Some(Observation { block, levels, y })
        })
        .collect();
    let levels: Vec<u32> = factors.iter().map(|f| f.levels.len() as u32).collect();
    let level = |factor: usize, level: u32| {
        let factor = &factors[factor];
        let name = &factor.levels[level as usize].name;
        // A factor named as its knob is in the name of its level.
        match name.starts_with(factor.name.as_str()) {
            true => name.clone(),
            false => format!("{} {name}", factor.name),
        }
    };
    let told = |effect: Effect| {
        let (estimate, p) = (effect.estimate?, effect.p?);
        let decision = decide(estimate.interval, plan.margin.ln_1p());
        // A small effect is small by its own interval; a large one is shown among all only by Holm.
        let shown = p <= ALPHA || matches!(decision, Decision::TooSmallToMatter { .. });
        let (outcome, beyond_margin) = if shown {
            outcome_of(decision)
        } else {
            (Outcome::NotEnoughData, false)
        };
        let (name, order) = match effect.term {
            Term::Main { factor, level: l } => (level(factor, l), 1),
            Term::Interaction {
                factors: [f, g],
                levels: [l, m],
            } => (format!("{} x {}", level(f, l), level(g, m)), 2),
        };
        Some(FactorEffect {
            name,
            order,
            outcome,
            estimate: share(estimate.value, estimate.interval, 1.0 - ALPHA),
            p,
            beyond_margin,
        })
    };
    let fitted = fit(&observations, &levels);
    fitted.map_or_else(Vec::new, |f| {
        f.effects.into_iter().filter_map(told).collect()
    })
}
