//! What was planned and what was done, for who wants to check or to repeat it.

use super::phrase;
use crate::words::{Table, counted, escape, escape_sentence, grouped};
use model::{Check, Design, Estimand, Experiment, Plan, Verdict};

/// How runs were grouped and what is judged of them.
pub(crate) fn design(plan: &Plan) -> String {
    let after = |looks: &[u32]| {
        let looks = looks.iter().map(u32::to_string);
        looks.collect::<Vec<_>>().join(", ")
    };
    let mut words = match &plan.design {
        Design::Pairs { looks } => format!("pairs, judged after {}", after(looks)),
        Design::Blocks { blocks } => {
            format!(
                "{} with every arm in each",
                counted((*blocks).into(), "block")
            )
        }
        Design::Factorial { blocks, .. } => {
            let arms = plan.arms.len();
            let blocks = counted((*blocks).into(), "block");
            format!("{blocks} with {arms} combinations in each")
        }
        Design::Search { blocks, confirm } => format!(
            "rounds of {blocks} blocks, each of which leaves the better half of the arms, then fresh pairs of the last one, judged after {}",
            after(confirm)
        ),
    };
    if plan.pilot_pairs > 0 {
        let pilot = plan.pilot_pairs;
        words += &format!("; a pilot of {pilot} pairs of the baseline with itself");
    }
    words += match plan.estimand {
        Estimand::Typical => "; typical run",
        Estimand::Total => "; all runs together",
    };
    words
}

/// Where the order of the runs comes from.
pub(crate) fn order(plan: &Plan) -> String {
    format!("drawn at random, from the seed {}", plan.seed)
}

/// What each arm sets, as a table.
pub(crate) fn arms(plan: &Plan) -> Table {
    let rows = plan.arms.iter().map(|arm| {
        let settings = arm.settings.iter().map(|s| escape(&s.to_string()));
        let settings = match &settings.collect::<Vec<_>>()[..] {
            [] => "nothing".to_owned(),
            all => all.join(", "),
        };
        vec![escape(&arm.name), settings]
    });
    Table::new(&["arm", "set for its runs"], rows)
}

/// Every run in the order in which they were made, as a table; empty before the first.
pub(crate) fn every_run(experiment: &Experiment) -> Table {
    let Some(first) = experiment.trials.first() else {
        return Table::default();
    };
    let plan = &experiment.plan;
    let rows = experiment.trials.iter().map(|t| {
        let odd = t.readings.iter().find(|r| !r.in_force);
        let note = match (&t.failed, odd) {
            (Some(why), _) => escape_sentence(why),
            (None, Some(r)) => format!(
                "{}: asked {}, found {}",
                escape(&r.setting),
                escape(&r.asked),
                escape(&r.found)
            ),
            (None, None) => String::new(),
        };
        vec![
            grouped(t.number.into()),
            phrase::span(t.started.since(first.started)),
            phrase::phase(t.phase)[1].to_owned(),
            (t.block + 1).to_string(),
            escape(plan.arm_name(t.arm)),
            phrase::value(plan.metric, t.value),
            note,
        ]
    });
    let head = ["run", "begun after", "for", "block", "arm", "value", "note"];
    Table::new(&head, rows)
}

/// What was found of the path moving by itself, and of the place of a run in its pair.
pub(crate) fn drift(verdict: &Verdict) -> Vec<String> {
    let of_time = |check: Check| matches!(check, Check::Stability | Check::Position);
    let gates = verdict.gates.iter().filter(|gate| of_time(gate.check));
    gates.map(|gate| escape_sentence(&gate.evidence)).collect()
}
