//! Every run of an experiment as a row, for a spreadsheet or a data frame.

use super::phrase::phase;
use crate::csv::{cell, table};
use crate::words::{escape, escape_sentence};
use model::{Experiment, Plan, Trial};

type Column = (&'static str, fn(&Plan, &Trial) -> String);

/// The columns behind the name of the experiment.
const COLUMNS: [Column; 18] = [
    ("number", |_, t| t.number.to_string()),
    ("phase", |_, t| phase(t.phase)[0].to_owned()),
    ("block", |_, t| t.block.to_string()),
    ("position", |_, t| t.position.to_string()),
    ("arm", |_, t| t.arm.to_string()),
    ("arm_name", |plan, t| escape(plan.arm_name(t.arm))),
    ("run_id", |_, t| cell(t.run.as_deref().map(escape))),
    ("started_unix_ns", |_, t| t.started.0.to_string()),
    ("duration_ns", |_, t| t.duration.0.to_string()),
    ("metric", |plan, _| plan.metric.to_string()),
    ("value", |_, t| cell(t.value)),
    ("bytes", |_, t| t.bytes.0.to_string()),
    ("failed", |_, t| {
        cell(t.failed.as_deref().map(escape_sentence))
    }),
    ("in_force", |_, t| {
        let all = || t.readings.iter().all(|r| r.in_force);
        cell((!t.readings.is_empty()).then(all))
    }),
    ("steady_goodput_bit_s", |_, t| {
        cell(t.witness.steady_goodput.map(|rate| rate.0))
    }),
    ("retransmit_share", |_, t| cell(t.witness.retransmit_share)),
    ("rwnd_limited_share", |_, t| {
        cell(t.witness.rwnd_limited_share)
    }),
    ("sndbuf_limited_share", |_, t| {
        cell(t.witness.sndbuf_limited_share)
    }),
];

/// One row a run, the discarded ones too, in the order in which they were made. `value` is in bit/s or
/// seconds, as the metric is; empty cells are not known. RFC 4180.
pub fn csv(experiment: &Experiment) -> String {
    let id = escape(&experiment.id);
    let header: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let rows = experiment.trials.iter().map(|trial| {
        let cells = COLUMNS.iter().map(|(_, of)| of(&experiment.plan, trial));
        [id.clone()].into_iter().chain(cells).collect()
    });
    table(&[&["experiment_id"], &header[..]].concat(), rows)
}
