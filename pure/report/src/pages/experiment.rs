//! The page of an experiment.

use super::{facts, filled};
use crate::page::{Page, Section};
use crate::pictures::{bars, drift, forest, pairs};
use crate::prove::phrase::{self, RUNS_ARE_THE_SAMPLE};
use crate::prove::{plan, text};
use crate::summary;
use crate::words::{escape, escape_sentence, round_span, utc};
use model::{Experiment, GateState, Verdict};

/// The verdict with its interval first; then the pairs or all arms, the classic figures, the order of time,
/// what was checked, the plan.
pub fn experiment(experiment: &Experiment, verdict: &Verdict) -> Page {
    let order = &experiment.plan;
    let answers = phrase::answers(experiment, verdict);
    let mut told: Vec<String> = text::ended(experiment, verdict).into_iter().collect();
    told.extend(phrase::search(order, verdict));
    told.extend(answers.iter().map(ToString::to_string));
    told.extend(phrase::of_all(experiment, verdict));
    let beside = answers.iter().filter(|answer| !answer.beside.is_empty());
    let beside = beside.map(|answer| match answer.of.as_str() {
        "" => answer.beside.join(" "),
        of => format!("{of}: {}", answer.beside.join(" ")),
    });

    let several = verdict.comparisons.len() > 1 || !verdict.effects.is_empty();
    let sections = vec![
        Section::new(
            match several {
                true => "Every arm against the control",
                false => "The effect",
            }
            .to_owned(),
        )
        .words(beside.collect())
        .pictures(match several {
            true => forest::of_experiment(experiment, verdict),
            false => pairs::picture(experiment, verdict),
        }),
        Section::new("Before it is believed").words(text::doubts(experiment, verdict)),
        Section::new("The classic figures")
            .words(vec![RUNS_ARE_THE_SAMPLE.to_owned()])
            .listing(text::classic_table(order.metric, &verdict.arms))
            .pictures(bars::of_experiment(experiment, verdict))
            .folded(true),
        Section::new("In the order of time")
            .words(plan::drift(verdict))
            .listing(plan::every_run(experiment))
            .pictures(drift::picture(experiment, verdict))
            .folded(true),
        Section::new("What was checked")
            .words(checked(verdict))
            .folded(true),
        Section::new("The plan")
            .words(vec![format!(
                "'linerate prove again {}' makes all of it anew.",
                escape(&experiment.id)
            )])
            .listing(plan::arms(order))
            .folded(true),
    ];
    Page {
        streams: Vec::new(),
        title: match &order.title {
            Some(title) => escape(title),
            None => phrase::question(order),
        },
        verdict: told,
        facts: about(experiment, verdict),
        sections: filled(sections),
    }
}

fn about(experiment: &Experiment, verdict: &Verdict) -> Vec<(String, String)> {
    let order = &experiment.plan;
    let there = match &experiment.far {
        Some(far) => summary::host(far),
        None => format!("{} did not tell what it is", escape(&order.host)),
    };
    facts([
        ("Measured", utc(experiment.started)),
        ("Experiment", escape(&experiment.id)),
        (
            "Asked",
            // It is the headline of a page without a title.
            order
                .title
                .as_ref()
                .map(|_| phrase::question(order))
                .unwrap_or_default(),
        ),
        (
            "Runs",
            format!(
                "{} in {}: {}, with a pause of {} before each",
                phrase::runs_made(experiment),
                phrase::span(verdict.elapsed),
                phrase::runs(order),
                round_span(order.gap)
            ),
        ),
        ("Design", plan::design(order)),
        ("Order", plan::order(order)),
        (
            "Matters",
            format!("{} and more", phrase::share(order.margin)),
        ),
        ("Here", summary::host(&experiment.near)),
        ("There", there),
    ])
}

/// Every check with what came out of it.
fn checked(verdict: &Verdict) -> Vec<String> {
    let gates = verdict.gates.iter().map(|gate| {
        let state = match gate.state {
            GateState::Passed => "Passed",
            GateState::Unknown => "Not known",
            GateState::Warned => "In doubt",
            GateState::Failed => "Failed",
        };
        format!("{state}: {}", escape_sentence(&gate.evidence))
    });
    gates.collect()
}
