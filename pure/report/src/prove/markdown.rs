//! The verdict and the classic table for a wiki, a ticket, or a mail.

use super::{phrase, text};
use crate::words::{Style, unmarked};
use model::{Experiment, GateState, Verdict};
use std::fmt::Write as _;

/// Wide enough that no line of prose is broken: markdown flows by itself.
const FLOWING: Style = Style {
    width: u16::MAX,
    colour: false,
    unicode: false,
};

/// The whole answer: verdict, doubts, tables, and what was checked.
pub fn markdown(experiment: &Experiment, verdict: &Verdict) -> String {
    let plan = &experiment.plan;
    let mut out = format!("## {}\n\n", unmarked(&phrase::question(plan)));
    for line in text::answers(experiment, verdict, FLOWING).lines() {
        let _ = writeln!(out, "{}\n", unmarked(line.trim()));
    }
    if verdict.arms.iter().any(|a| a.runs > 0) {
        let cell = |v| phrase::value(plan.metric, v);
        out += "| arm | runs | average | median | minimum | maximum | bad |\n";
        out += "|---|---:|---:|---:|---:|---:|---:|\n";
        for a in &verdict.arms {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} |",
                unmarked(&crate::words::escape(&a.name)),
                a.runs,
                cell(a.average),
                cell(a.median),
                cell(a.min),
                cell(a.max),
                a.bad
            );
        }
        let _ = writeln!(out, "\n{}\n", phrase::RUNS_ARE_THE_SAMPLE);
    }
    if !verdict.gates.is_empty() {
        out += "Checked:\n\n";
        for g in &verdict.gates {
            let mark = match g.state {
                GateState::Passed => "passed",
                GateState::Unknown => "unknown",
                GateState::Warned => "**doubt**",
                GateState::Failed => "**failed**",
            };
            let evidence = unmarked(&crate::words::escape_sentence(&g.evidence));
            let _ = writeln!(out, "- {mark}: {evidence}");
        }
    }
    out
}
