//! The verdict and the classic table for a wiki, a ticket, or a mail.

use super::{phrase, text};
use crate::words::{Style, escape_sentence, unmarked};
use model::{Experiment, GateState, Verdict};
use std::fmt::Write as _;

/// The whole answer: verdict, doubts, tables, and what was checked.
pub fn markdown(experiment: &Experiment, verdict: &Verdict) -> String {
    let plan = &experiment.plan;
    let mut out = format!("## {}\n\n", unmarked(&phrase::question(plan)));
    // Markdown flows by itself.
    for line in text::answers(experiment, verdict, Style::WIDE).lines() {
        let _ = writeln!(out, "{}\n", unmarked(line.trim()));
    }
    if verdict.arms.iter().any(|a| a.runs > 0) {
        let _ = writeln!(out, "| {} |", text::CLASSIC.join(" | "));
        out += "|---|---:|---:|---:|---:|---:|---:|\n";
        for arm in &verdict.arms {
            let row = text::classic_row(plan.metric, arm);
            let cells: Vec<String> = row.iter().map(|cell| unmarked(cell)).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
        let _ = writeln!(out, "\n{}\n", phrase::RUNS_ARE_THE_SAMPLE);
    }
    if !verdict.gates.is_empty() {
        out += "Checked:\n\n";
    }
    for gate in &verdict.gates {
        let mark = match gate.state {
            GateState::Passed => "passed",
            GateState::Unknown => "unknown",
            GateState::Warned => "**doubt**",
            GateState::Failed => "**failed**",
        };
        let evidence = unmarked(&escape_sentence(&gate.evidence));
        let _ = writeln!(out, "- {mark}: {evidence}");
    }
    out
}
