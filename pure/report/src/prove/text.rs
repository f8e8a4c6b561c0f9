//! The verdict, the forecast and the live line as text.

use super::phrase::{self, Answer};
use crate::prelude::*;
use model::{ArmTable, Comparison, Design, Forecast, GateState, Metric, Plan, TrialPhase};

/// Most runs that are named one by one.
const NAMED: usize = 5;

/// The verdict in words, the doubts, and the classic table. Lines of prose keep to `style.width`.
pub fn verdict(experiment: &Experiment, verdict: &Verdict, style: Style) -> String {
    let yellow =
        |text: &str, first, rest| style.paint_lines(Ink::Yellow, &flow(text, style, first, rest));
    let ended = ended(experiment, verdict).map(|how| yellow(&how, "", 0));
    let doubts = doubts(experiment, verdict);
    let mut parts = vec![
        ended.unwrap_or_default(),
        answers(experiment, verdict, style),
        doubts.iter().map(|doubt| yellow(doubt, "! ", 2)).collect(),
    ];
    if verdict.arms.iter().any(|a| a.runs > 0) {
        let note = flow(phrase::RUNS_ARE_THE_SAMPLE, style, "", 0);
        let table = classic_table(experiment.plan.metric, &verdict.arms);
        parts.push(table.to_string() + &style.paint_lines(Ink::Faint, &note));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// The answer on one arm in a paragraph, without a table.
pub fn in_short(experiment: &Experiment, verdict: &Verdict, arm: u32) -> String {
    let Some(c) = verdict.comparisons.iter().find(|c| c.arm == arm) else {
        return phrase::answer(verdict.outcome).to_owned();
    };
    let mut judged = c.clone();
    if verdict.outcome == Outcome::NoVerdict {
        // A gate that failed is the whole answer.
        judged.outcome = Outcome::NoVerdict;
    }
    let answer = phrase::Answer {
        headline: phrase::answer(judged.outcome),
        sentences: phrase::comparison((experiment, verdict), &judged),
        ..phrase::Answer::default()
    };
    answer.to_string()
}

/// How it ended, unless as planned.
pub(crate) fn ended(experiment: &Experiment, verdict: &Verdict) -> Option<String> {
    let how = match &experiment.ended {
        Ended::Failed { why } => {
            return Some(format!("The experiment failed: {}", escape_sentence(why)));
        }
        _ if verdict.settled => return None,
        Ended::Complete => return None,
        Ended::Interrupted => "Interrupted",
        Ended::Unfinished => "Unfinished",
    };
    Some(format!(
        "{how}; it can be resumed, and the runs made so far are kept."
    ))
}

fn answers(experiment: &Experiment, verdict: &Verdict, style: Style) -> String {
    let mut out = String::new();
    if let Some(search) = phrase::search(&experiment.plan, verdict) {
        out += &(flow(&search, style, "", 0) + "\n");
    }
    for answer in phrase::answers(experiment, verdict) {
        let Answer {
            of,
            headline,
            beside,
            ..
        } = &answer;
        let indent = if of.is_empty() { "" } else { "  " };
        let text = flow(&answer.to_string(), style, "", indent.len());
        // Painted after wrapping, so that escapes count for no width.
        out += &text.replacen(headline, &style.paint(Ink::Bold, headline), 1);
        if !beside.is_empty() {
            out += &flow(&beside.join(" "), style, indent, indent.len());
        }
    }
    match phrase::of_all(experiment, verdict).join(" ") {
        none if none.is_empty() => out,
        all => out + &flow(&all, style, "", 0),
    }
}

/// What the reader must know: warnings of the checks, odd runs, interrupted blocks.
pub(crate) fn doubts(experiment: &Experiment, verdict: &Verdict) -> Vec<String> {
    let open = |state| matches!(state, GateState::Warned | GateState::Unknown);
    let gates = verdict.gates.iter().filter(|g| open(g.state));
    let mut doubts: Vec<String> = gates.map(|g| escape_sentence(&g.evidence)).collect();
    if !verdict.outliers.is_empty() {
        let named = verdict.outliers.iter().take(NAMED).map(|o| {
            let ratio = percent(o.ratio);
            format!("run {} ({ratio} of its arm's median)", o.trial)
        });
        let more = match verdict.outliers.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let named = named.collect::<Vec<_>>().join(", ");
        doubts.push(format!(
            "Far from the others, and judged all the same: {named}{more}."
        ));
    }
    if verdict.half_blocks > 0 && verdict.settled {
        let blocks = counted(verdict.half_blocks.into(), "block");
        doubts.push(format!("Interrupted, kept and not judged: {blocks}."));
    }
    let warnings = experiment.warnings.iter();
    let warnings = warnings.map(|w| format!("{}: {}. Do: {}.", w.what, w.meaning, w.remedy));
    doubts.extend(warnings.map(|text| escape_sentence(&text)));
    doubts
}

/// Average, median, minimum and maximum of every arm.
pub(crate) fn classic_table(metric: Metric, arms: &[ArmTable]) -> Table {
    let head = [
        "arm", "runs", "average", "median", "minimum", "maximum", "bad",
    ];
    Table::new(&head, arms.iter().map(|arm| classic_row(metric, arm)))
}

fn classic_row(metric: Metric, arm: &ArmTable) -> Vec<String> {
    let values = [arm.average, arm.median, arm.min, arm.max];
    let values = values.map(|value| phrase::value(metric, value));
    let mut row = vec![escape(&arm.name), arm.runs.to_string()];
    row.extend(values);
    row.push(arm.bad.to_string());
    row
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
        let p = phrase::p(c.p?);
        Some(format!("{}: {p}{note}\n", escape(plan.arm_name(c.arm))))
    };
    let effects = verdict.effects.iter().map(|e| {
        let p = phrase::p(e.p);
        format!("{}: {p} (adjusted, Holm)\n", escape(&e.name))
    });
    let arms = verdict.comparisons.iter().filter_map(of_arm);
    arms.chain(effects).collect()
}

/// The state of a running experiment in one or two lines that may be watched without harm: pairs so
/// far and where the estimate is, never a claim.
pub fn monitor(experiment: &Experiment, verdict: &Verdict, style: Style) -> String {
    let plan = &experiment.plan;
    let so_far = || {
        let runs = phrase::runs_made(experiment);
        let [c] = &verdict.comparisons[..] else {
            return runs;
        };
        let look = c.next_look.map(|next| format!("; next look after {next}"));
        let running = c.running_share.filter(|_| c.pairs_so_far > 1).map(|share| {
            let change = phrase::signed(phrase::of_metric(plan.metric, share));
            let unit = phrase::unit(plan.metric);
            format!("; so far {change} {unit}, which may change")
        });
        let (look, running) = (look.unwrap_or_default(), running.unwrap_or_default());
        format!("{runs}, {}{look}{running}", phrase::pairs(c.pairs_so_far))
    };
    let text = match experiment.trials.last().map(|t| (t.phase, t.block + 1)) {
        Some((TrialPhase::Discarded, _)) => "Warming up: this run is discarded".to_owned(),
        Some((TrialPhase::Pilot, pair)) => {
            let all = plan.pilot_pairs;
            format!("Pilot, the control with itself: pair {pair} of {all}")
        }
        Some((TrialPhase::Main, block)) if verdict.search.is_some() => {
            format!("Search, block {block}; the winner is confirmed afterwards")
        }
        _ => so_far(),
    };
    flow(&text, style, "", 0)
}

/// What a plan will cost and what it can and cannot show, before it starts or after its pilot.
pub fn forecast(plan: &Plan, f: &Forecast, style: Style) -> String {
    let runs = match f.runs_least == f.runs_most {
        true => format!("{} runs", f.runs_most),
        false => format!("{} to {} runs", f.runs_least, f.runs_most),
    };
    let cost = match (f.least.map(phrase::span), f.most.map(phrase::span)) {
        (Some(least), Some(most)) if least == most => format!("{runs}: {most}."),
        (Some(least), Some(most)) => format!("{runs}: {least} to {most}."),
        _ => format!("{runs}; how long they take is known after the first."),
    };
    let mut sentences = vec![format!("{}.", phrase::question(plan)), cost];
    let margin = phrase::share(plan.margin);
    if let (Some(noise), Some(smallest)) = (f.noise, f.smallest_share) {
        let (noise, smallest) = (percent(noise), percent(smallest));
        sentences.push(format!(
            "In the pilot pairs of the control with itself differed by {noise}. At that noise {} pairs find {smallest} and more four times in five.",
            f.pairs_most
        ));
        if let (Some(find), Some(none)) = (f.pairs_for_margin, f.pairs_for_none) {
            sentences.push(format!(
                "To find {margin} takes {find} pairs, to show that no difference of {margin} is there {none}."
            ));
            sentences.extend(match f.pairs_most {
                most if find > most => Some(format!(
                    "This plan cannot be expected to settle {margin}: a smaller difference than {smallest} will end as NOT ENOUGH DATA."
                )),
                most if none > most => Some(format!(
                    "If the change does nothing, this plan will more likely end as NOT ENOUGH DATA than show that {margin} is not there."
                )),
                _ => None,
            });
        }
    } else {
        sentences.push(match plan.pilot_pairs {
            0 => format!(
                "Without a pilot it is not known whether these runs can show a change of {margin}."
            ),
            _ => format!("The pilot shows whether these runs can show a change of {margin}."),
        });
    }
    sentences
        .iter()
        .map(|text| flow(text, style, "", 0))
        .collect()
}

/// Lines of the width, figures not torn from their unit.
fn flow(text: &str, style: Style, first: &str, rest: usize) -> String {
    let glued = text
        .replace(" %", "\u{a0}%")
        .replace(" min ", "\u{a0}min\u{a0}");
    style.hang(first, rest, &glued)
}
