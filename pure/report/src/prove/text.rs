//! The verdict, the forecast and the live line as text.

use super::phrase::{self, Answer};
use crate::words::{self, Ink, Style, escape, escape_sentence, table};
use model::{
    ArmTable, Comparison, Design, Ended, Experiment, Forecast, Gate, GateState, Metric, Outcome,
    Phase, Plan, Verdict,
};

/// Most runs that are named one by one.
const NAMED: usize = 5;

/// The verdict in words, the doubts, and the classic table. Lines of prose keep to `style.width`.
pub fn verdict(experiment: &Experiment, verdict: &Verdict, style: Style) -> String {
    let parts = [
        ended(experiment, verdict).map_or(String::new(), |how| {
            style.paint(Ink::Yellow, flow(&how, style.width, "", "").trim_end()) + "\n"
        }),
        answers(experiment, verdict, style),
        doubts(experiment, verdict)
            .iter()
            .map(|t| style.paint(Ink::Yellow, flow(t, style.width, "! ", "  ").trim_end()) + "\n")
            .collect(),
        classic(experiment, verdict, style),
    ];
    let told: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    told.join("\n")
}

/// The answer on one arm in a paragraph, without a table.
pub fn in_short(experiment: &Experiment, verdict: &Verdict, arm: u32) -> String {
    let Some(c) = verdict.comparisons.iter().find(|c| c.arm == arm) else {
        return phrase::answer(verdict.outcome).to_owned();
    };
    let judged = match verdict.outcome {
        // A gate that failed is the whole answer.
        Outcome::NoVerdict => Comparison {
            outcome: Outcome::NoVerdict,
            ..c.clone()
        },
        _ => c.clone(),
    };
    let words = phrase::comparison(experiment, verdict, &judged);
    format!("{}. {}", words.headline, words.sentences.join(" "))
}

/// How it ended, unless as planned.
pub(crate) fn ended(experiment: &Experiment, verdict: &Verdict) -> Option<String> {
    match &experiment.ended {
        Ended::Failed { why } => Some(format!("The experiment failed: {}", escape_sentence(why))),
        _ if verdict.settled => None,
        Ended::Complete => None,
        Ended::Interrupted => {
            Some("Interrupted; it can be resumed, and the runs made so far are kept.".to_owned())
        }
        Ended::Unfinished => {
            Some("Unfinished; it can be resumed, and the runs made so far are kept.".to_owned())
        }
    }
}

pub(super) fn answers(experiment: &Experiment, verdict: &Verdict, style: Style) -> String {
    let mut out = String::new();
    if let Some(story) = phrase::search(&experiment.plan, verdict) {
        out += &flow(&story, style.width, "", "");
        out.push('\n');
    }
    for answer in phrase::answers(experiment, verdict) {
        out += &said(&answer, style);
        if !answer.beside.is_empty() {
            let indent = if answer.of.is_empty() { "" } else { "  " };
            out += &flow(&answer.beside.join(" "), style.width, indent, indent);
        }
    }
    let of_all = phrase::of_all(experiment, verdict);
    if !of_all.is_empty() {
        out += &flow(&of_all.join(" "), style.width, "", "");
    }
    out
}

/// `FASTER. sentences`, the headline in bold.
fn said(answer: &Answer, style: Style) -> String {
    let rest = if answer.of.is_empty() { "" } else { "  " };
    let wrapped = flow(&answer.to_string(), style.width, "", rest);
    wrapped.replacen(answer.headline, &style.paint(Ink::Bold, answer.headline), 1)
}

/// What the reader must know: warnings of the checks, odd runs, interrupted blocks.
pub(crate) fn doubts(experiment: &Experiment, verdict: &Verdict) -> Vec<String> {
    let mut told: Vec<String> = verdict
        .gates
        .iter()
        .filter(|g| matches!(g.state, GateState::Warned | GateState::Unknown))
        .map(|g: &Gate| escape_sentence(&g.evidence))
        .collect();
    if !verdict.outliers.is_empty() {
        let named: Vec<String> = verdict
            .outliers
            .iter()
            .take(NAMED)
            .map(|o| {
                format!(
                    "run {} ({} of its arm's median)",
                    o.trial,
                    phrase::rough(o.ratio)
                )
            })
            .collect();
        let more = match verdict.outliers.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        told.push(format!(
            "Far from the others, and judged all the same: {}{more}.",
            named.join(", ")
        ));
    }
    if verdict.half_blocks > 0 && verdict.settled {
        told.push(format!(
            "Interrupted, kept and not judged: {} {}.",
            verdict.half_blocks,
            if verdict.half_blocks == 1 {
                "block"
            } else {
                "blocks"
            }
        ));
    }
    for w in &experiment.warnings {
        let sentence = format!("{}: {}. Do: {}.", w.what, w.meaning, w.remedy);
        told.push(escape_sentence(&sentence));
    }
    told
}

fn classic(experiment: &Experiment, verdict: &Verdict, style: Style) -> String {
    if verdict.arms.iter().all(|a| a.runs == 0) {
        return String::new();
    }
    classic_table(experiment.plan.metric, &verdict.arms)
        + &style.paint(
            Ink::Faint,
            flow(phrase::RUNS_ARE_THE_SAMPLE, style.width, "", "").trim_end(),
        )
        + "\n"
}

/// Average, median, minimum and maximum of every arm.
pub(crate) fn classic_table(metric: Metric, arms: &[ArmTable]) -> String {
    let cell = |v| phrase::value(metric, v);
    let header = [
        "arm", "runs", "average", "median", "minimum", "maximum", "bad",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(arms.iter().map(|a| {
        vec![
            escape(&a.name),
            a.runs.to_string(),
            cell(a.average),
            cell(a.median),
            cell(a.min),
            cell(a.max),
            a.bad.to_string(),
        ]
    }));
    table(&rows)
}

/// The p-values, for those who ask; one line a comparison or effect.
pub fn p_values(experiment: &Experiment, verdict: &Verdict) -> String {
    let plan = &experiment.plan;
    let looks = matches!(&plan.design, Design::Pairs { looks } | Design::Search { confirm: looks, .. } if looks.len() > 1);
    let note = match (looks, verdict.comparisons.len()) {
        (true, _) => " (of this look alone; the verdict takes all looks into account)",
        (false, 0..=1) => "",
        _ => " (adjusted for the number of arms, Holm)",
    };
    let of_arm = |c: &Comparison| {
        let p = c.p.map(phrase::p)?;
        Some(format!("{}: {p}{note}\n", escape(plan.arm_name(c.arm))))
    };
    let arms = verdict.comparisons.iter().filter_map(of_arm);
    let effects = verdict
        .effects
        .iter()
        .map(|e| format!("{}: {} (adjusted, Holm)\n", escape(&e.name), phrase::p(e.p)));
    arms.chain(effects).collect()
}

/// The state of a running experiment in one or two lines that may be watched without harm: pairs so
/// far and where the estimate is, never a claim.
pub fn monitor(experiment: &Experiment, verdict: &Verdict, style: Style) -> String {
    let plan = &experiment.plan;
    let runs = phrase::runs_made(experiment);
    let text = match &verdict.comparisons[..] {
        [c] => {
            let pairs = format!("{} {}", c.pairs_so_far, phrase::pairs(c.pairs_so_far));
            let look = match c.next_look {
                Some(next) => format!("; next look after {next}"),
                None => String::new(),
            };
            let running = match c.running_share {
                Some(share) if c.pairs_so_far > 1 => {
                    let told = phrase::of_metric(plan.metric, share);
                    let unit = phrase::unit(plan.metric);
                    format!("; so far {} {unit}, which may change", phrase::signed(told))
                }
                _ => String::new(),
            };
            format!("{runs}, {pairs}{look}{running}")
        }
        _ => runs,
    };
    let text = match experiment.trials.last().map(|t| (t.phase, t.block + 1)) {
        Some((Phase::Discarded, _)) => "Warming up: this run is discarded".to_owned(),
        Some((Phase::Pilot, pair)) => {
            format!(
                "Pilot, the control with itself: pair {pair} of {}",
                plan.pilot_pairs
            )
        }
        Some((Phase::Main, block)) if verdict.search.is_some() => {
            format!("Search, block {block}; the winner is confirmed afterwards")
        }
        _ => text,
    };
    flow(&text, style.width, "", "")
}

/// What a plan will cost and what it can and cannot show, before it starts or after its pilot.
pub fn forecast(plan: &Plan, forecast: &Forecast, style: Style) -> String {
    let f = forecast;
    let mut told = vec![format!("{}.", phrase::question(plan))];
    let runs = if f.runs_least == f.runs_most {
        format!("{} runs", f.runs_most)
    } else {
        format!("{} to {} runs", f.runs_least, f.runs_most)
    };
    told.push(match (f.least, f.most) {
        (Some(least), Some(most)) if least == most => format!("{runs}: {}.", phrase::span(most)),
        (Some(least), Some(most)) => {
            format!("{runs}: {} to {}.", phrase::span(least), phrase::span(most))
        }
        _ => format!("{runs}; how long they take is known after the first."),
    });
    let margin = phrase::share(plan.margin);
    match (f.noise, f.smallest_share) {
        (Some(noise), Some(smallest)) => {
            told.push(format!(
                "In the pilot pairs of the control with itself differed by {}. At that noise {} pairs find {} and more four times in five.",
                phrase::rough(noise),
                f.pairs_most,
                phrase::rough(smallest)
            ));
            if let (Some(find), Some(none)) = (f.pairs_for_margin, f.pairs_for_none) {
                told.push(format!(
                    "To find {margin} takes {} pairs, to show that no difference of {margin} is there {}.",
                    find, none
                ));
                if find > f.pairs_most {
                    told.push(format!(
                        "This plan cannot be expected to settle {margin}: a smaller difference than {} will end as NOT ENOUGH DATA.",
                        phrase::rough(smallest)
                    ));
                } else if none > f.pairs_most {
                    told.push(format!(
                        "If the change does nothing, this plan will more likely end as NOT ENOUGH DATA than show that {margin} is not there."
                    ));
                }
            }
        }
        _ if plan.pilot_pairs > 0 => {
            told.push(format!(
                "What it can show of the {margin} that matters is known after the pilot."
            ));
        }
        _ => told.push(format!(
            "Without a pilot nobody knows beforehand whether it can show the {margin} that matters."
        )),
    }
    told.iter().map(|t| flow(t, style.width, "", "")).collect()
}

/// Lines of `width`, figures not torn from their unit.
fn flow(text: &str, width: u16, first: &str, rest: &str) -> String {
    let glued = text
        .replace(" %", "\u{a0}%")
        .replace(" min ", "\u{a0}min\u{a0}");
    words::wrap(&glued, width, first, rest)
}
