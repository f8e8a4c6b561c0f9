//! Every run of an experiment as a row, for a spreadsheet or a data frame.

use crate::csv::Table;
use crate::words::{escape, escape_sentence};
use model::{Experiment, Phase};

const HEADER: [&str; 19] = [
    "experiment_id",
    "number",
    "phase",
    "block",
    "position",
    "arm",
    "arm_name",
    "run_id",
    "started_unix_ns",
    "duration_ns",
    "metric",
    "value",
    "bytes",
    "failed",
    "in_force",
    "steady_goodput_bit_s",
    "retransmit_share",
    "rwnd_limited_share",
    "sndbuf_limited_share",
];

/// One row a run, the discarded ones too, in the order in which they were made. `value` is in bit/s or
/// seconds, as the metric is; empty cells were not told. RFC 4180.
pub fn csv(experiment: &Experiment) -> String {
    let plan = &experiment.plan;
    let mut table = Table::default();
    table.row(&HEADER.map(str::to_owned));
    for t in &experiment.trials {
        let cell = |share: Option<f64>| share.map(|s| s.to_string()).unwrap_or_default();
        let phase = match t.phase {
            Phase::Discarded => "discarded",
            Phase::Pilot => "pilot",
            Phase::Main => "main",
            Phase::Confirmation => "confirmation",
        };
        let in_force = match t.readings.is_empty() {
            true => String::new(),
            false => t.readings.iter().all(|r| r.in_force).to_string(),
        };
        table.row(&[
            escape(&experiment.id),
            t.number.to_string(),
            phase.to_owned(),
            t.block.to_string(),
            t.position.to_string(),
            t.arm.to_string(),
            escape(plan.arm_name(t.arm)),
            t.run.as_deref().map(escape).unwrap_or_default(),
            t.started.0.to_string(),
            t.duration.0.to_string(),
            plan.metric.to_string(),
            cell(t.value),
            t.bytes.0.to_string(),
            t.failed.as_deref().map(escape_sentence).unwrap_or_default(),
            in_force,
            cell(t.witness.steady_goodput.map(|r| r.0 as f64)),
            cell(t.witness.retransmit_share),
            cell(t.witness.rwnd_limited_share),
            cell(t.witness.sndbuf_limited_share),
        ]);
    }
    table.text
}
