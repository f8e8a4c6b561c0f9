//! The stages of a copy, and which of them held it up.

use super::WIDTH;
use crate::copy::stage_name;
use crate::csv::cell;
use crate::page::{Picture, Svg};
use crate::words::percent;
use model::{CopySummary, FileCopy};

/// A bar a stage, the busiest first.
pub fn picture(id: &str, order: &FileCopy, copy: &CopySummary) -> Picture {
    const LEFT: f64 = 260.0;
    const FULL: f64 = 320.0;
    let mut svg = Svg::new(WIDTH, 0.0);
    let (mut rows, mut words) = (Vec::new(), Vec::new());
    for stage in &copy.stages {
        let y = svg.height;
        let name = stage_name(order, stage.stage);
        let alone = stage.alone.map(|rate| format!(", {rate} alone"));
        let (busy, alone) = (percent(stage.busy_share), alone.unwrap_or_default());
        svg.text((LEFT - 8.0, y + 18.0), "ink end", name);
        svg.rect((LEFT, y + 5.0), (FULL, 18.0), "grid soft");
        svg.rect((LEFT, y + 5.0), (FULL * stage.busy_share, 18.0), "s0");
        let figures = format!("{busy}{alone}");
        svg.text((LEFT + FULL + 8.0, y + 18.0), "ink small", figures);
        let percent = (stage.busy_share * 100.0).to_string();
        let rate = cell(stage.alone.map(|rate| rate.0));
        rows.push(vec![name.to_owned(), percent, rate]);
        words.push(format!("{name} was at work {busy} of the time{alone}"));
        svg.height += 30.0;
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
