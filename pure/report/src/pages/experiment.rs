//! The page of an experiment.

use super::{facts, filled};
use crate::page::{KeyFigure, Page, Section};
use crate::pictures::{bars, drift, forest, pairs};
use crate::prove::phrase::{self, RUNS_ARE_THE_SAMPLE};
use crate::prove::{plan, text};
use crate::summary;
use crate::words::{escape, escape_sentence, round_span, shown, utc};
use model::{ArmTable, Experiment, GateState, Nanos, Verdict};

/// The verdict with its interval first; then the pairs or all arms, their figures, all runs over time,
/// what was checked, the plan.
pub fn experiment(experiment: &Experiment, verdict: &Verdict) -> Page {
    let order = &experiment.plan;
    let answers = phrase::answers(experiment, verdict);
    let first = [
        text::ended(experiment, verdict),
        phrase::search(order, verdict),
    ];
    let mut sentences: Vec<String> = first.into_iter().flatten().collect();
    sentences.extend(answers.iter().map(ToString::to_string));
    sentences.extend(phrase::of_all(experiment, verdict));
    let beside = answers.iter().filter(|answer| !answer.beside.is_empty());
    let beside = beside.map(|answer| match answer.of.as_str() {
        "" => answer.beside.join(" "),
        of => format!("{of}: {}", answer.beside.join(" ")),
    });
    let several = verdict.comparisons.len() > 1 || !verdict.effects.is_empty();
    let (heading, effects) = match several {
        true => (
            "Variants vs. baseline",
            forest::of_experiment(experiment, verdict),
        ),
        false => ("The effect", pairs::picture(experiment, verdict)),
    };
    let again = format!(
        "'linerate prove again {}' runs all of it again.",
        shown(&experiment.id)
    );
    let sections = vec![
        Section::new(heading)
            .words(beside.collect())
            .pictures(effects),
        Section::new("Caveats").words(text::doubts(experiment, verdict)),
        Section::new("Average, median, minimum and maximum")
            .words(vec![RUNS_ARE_THE_SAMPLE.to_owned()])
            .tables([text::classic_table(order.metric, &verdict.arms)])
            .pictures(bars::of_experiment(experiment, verdict))
            .folded(true),
        Section::new("Runs over time")
            .words(plan::drift(verdict))
            .tables([plan::every_run(experiment)])
            .pictures(drift::picture(experiment, verdict))
            .folded(true),
        Section::new("Checks").words(checked(verdict)).folded(true),
        Section::new("The plan")
            .words(vec![again])
            .tables([plan::arms(order)])
            .folded(true),
    ];
    Page {
        title: match &order.title {
            Some(title) => escape(title),
            None => phrase::question(order),
        },
        verdict: sentences,
        facts: about(experiment, verdict),
        sections: filled(sections),
        figures: key_figures(experiment, verdict, None),
        ..Page::default()
    }
}

/// The median of each arm, or of one and of the baseline, which comes first; with the effect where there is one.
pub(super) fn key_figures(
    experiment: &Experiment,
    verdict: &Verdict,
    only: Option<u32>,
) -> Vec<KeyFigure> {
    let plan = &experiment.plan;
    let arm = |arm: &ArmTable| {
        let compared = verdict.comparisons.iter().find(|c| c.arm == arm.arm);
        let effect = compared.and_then(|c| c.estimate);
        let note = effect.map(|e| format!("{} pair by pair", phrase::changed(plan.metric, &e)));
        let median = phrase::value(plan.metric, arm.median);
        KeyFigure::new(escape(&arm.name), median, note.unwrap_or_default())
    };
    verdict
        .arms
        .iter()
        .filter(|a| a.median.is_some() && only.is_none_or(|arm| [0, arm].contains(&a.arm)))
        .take(4)
        .map(arm)
        .collect()
}

fn about(experiment: &Experiment, verdict: &Verdict) -> Vec<(String, String)> {
    let order = &experiment.plan;
    // It is the headline of a page without a title.
    let question = order.title.as_ref().map(|_| phrase::question(order));
    let (made, elapsed) = (phrase::runs_made(experiment), phrase::span(verdict.elapsed));
    let (runs, gap) = (phrase::runs(order), round_span(order.gap));
    facts([
        ("Measured", utc(experiment.started)),
        ("Experiment", shown(&experiment.id)),
        ("Question", question.unwrap_or_default()),
        (
            "Runs",
            match order.gap {
                Nanos(0) => format!("{made} in {elapsed}: {runs}"),
                _ => format!("{made} in {elapsed}: {runs}, with a pause of {gap} before each"),
            },
        ),
        ("Design", plan::design(order)),
        ("Order", plan::order(order)),
        ("Equivalence margin", phrase::share(order.margin)),
        ("Local host", summary::host(&experiment.local)),
        (
            "Remote host",
            summary::remote(&order.host, experiment.remote.as_ref()),
        ),
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
