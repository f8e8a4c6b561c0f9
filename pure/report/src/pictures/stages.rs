//! The stages of a copy, and which of them held it up.

use super::{RIGHT, WIDTH};
use crate::copy::stage_name;
use crate::csv::cell;
use crate::prelude::*;
use model::{CopySummary, FileCopy};

/// A bar a stage, the busiest first.
pub fn picture(id: &str, order: &FileCopy, copy: &CopySummary) -> Picture {
    let mut svg = Svg::new(WIDTH, 0.0);
    let (mut rows, mut words) = (Vec::new(), Vec::new());
    for stage in &copy.stages {
        let y = svg.height;
        let name = stage_name(order, stage.stage);
        let alone = stage.alone.map(|rate| format!(", {rate} alone"));
        let (busy, alone) = (percent(stage.busy_share), alone.unwrap_or_default());
        svg.text((0.0, y + 14.0), "ink", name);
        let figures = format!("{busy}{alone}");
        svg.text((RIGHT, y + 14.0), "ink small end", figures);
        svg.rect((0.0, y + 20.0), (RIGHT, 14.0), "grid soft");
        svg.rect((0.0, y + 20.0), (RIGHT * stage.busy_share, 14.0), "s0");
        let percent = (stage.busy_share * 100.0).to_string();
        let rate = cell(stage.alone.map(|rate| rate.0));
        rows.push(vec![name.to_owned(), percent, rate]);
        words.push(format!("{name} was at work {busy} of the time{alone}"));
        svg.height += 44.0;
    }
    Picture::still(
        id,
        "The stages of the copy",
        "A stage at work all the time held the others up; the next one is the next limit. 'Alone' is the rate that \
            it would reach if the others took no time.",
        format!("{}.", words.join("; ")),
        svg,
        &["stage", "busy (%)", "alone (bit/s)"],
        rows,
    )
}
