//! Experiments for the tests: a plan, and a path that answers each run with a figure.

use crate::{PlanOptions, TrialSlot, next, plan_from_changes, trial};
use model::Random;
use model::{
    Bytes, EXPERIMENT_SCHEMA, Ended, Experiment, Fingerprint, Nanos, Plan, Setting, Trial,
};

/// No plan of the tests needs more runs.
const MOST_RUNS: u32 = 5000;

pub(crate) fn settings(texts: &[&str]) -> Vec<Setting> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

/// `congestion=bbr` against the baseline, to db2, with the usual looks.
pub(crate) fn ask() -> PlanOptions {
    PlanOptions {
        host: "db2".to_owned(),
        changes: settings(&["congestion=bbr"]),
        seed: 4711,
        ..PlanOptions::default()
    }
}

pub(crate) fn plan(ask: PlanOptions) -> Plan {
    plan_from_changes(ask).unwrap_or_else(|e| panic!("{e}"))
}

/// Arms `a`, `b`, ... beside the control, each with another congestion control.
pub(crate) fn many_arms(arms: u32) -> PlanOptions {
    let name = |n| char::from(b'a' + n as u8);
    PlanOptions {
        changes: Vec::new(),
        arms: (0..arms)
            .map(|n| format!("{0}=congestion=cc_{0}", name(n)))
            .collect(),
        ..ask()
    }
}

pub(crate) fn made(slot: TrialSlot, number: u32, value: Option<f64>) -> Trial {
    let started = Nanos::from_secs(1_795_205_836 + 15 * u64::from(number));
    let failed = "the connection was reset".to_owned();
    Trial {
        value,
        bytes: Bytes(value.map_or(0.0, |v| v * 12.0 / 8.0) as u64),
        failed: value.is_none().then_some(failed),
        ..trial::without_run(slot, number, started, Nanos::from_secs(12), String::new())
    }
}

pub(crate) fn experiment(plan: Plan, trials: Vec<Trial>) -> Experiment {
    Experiment {
        schema: EXPERIMENT_SCHEMA,
        id: "3f2a0c11".to_owned(),
        started: trials.first().map_or(Nanos(0), |t| t.started),
        plan,
        local: Fingerprint::default(),
        remote: None,
        trials,
        warnings: Vec::new(),
        ended: Ended::Complete,
    }
}

/// Makes every run of the plan.
pub(crate) fn play(plan: Plan, mut path: impl FnMut(TrialSlot) -> Option<f64>) -> Experiment {
    let mut trials: Vec<Trial> = Vec::new();
    while let Some(slot) = next(&plan, &trials) {
        let number = trials.len() as u32 + 1;
        assert!(number < MOST_RUNS, "the plan does not end");
        trials.push(made(slot, number, path(slot)));
    }
    experiment(plan, trials)
}

/// Runs of `rate` bit/s times `factor` for the arms but the control, each off by noise of `spread`
/// (mean 0, deviation `spread` of the logarithm).
pub(crate) fn noisy(seed: u64, factor: f64, spread: f64) -> impl FnMut(TrialSlot) -> Option<f64> {
    let mut chance = Random::new(seed, 99);
    move |slot| {
        let normal = (0..12).map(|_| chance.unit()).sum::<f64>() - 6.0;
        let effect = if slot.arm == 0 { 1.0 } else { factor };
        Some(9e8 * effect * (spread * normal).exp())
    }
}
