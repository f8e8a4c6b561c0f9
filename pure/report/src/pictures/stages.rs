//! The stages of a copy, and which of them held it up.

use crate::copy::stage_name;
use crate::page::{Picture, Svg};
use crate::words::percent;
use model::{CopySummary, FileCopy};

/// A bar a stage, the busiest first.
pub fn picture(id: &str, order: &FileCopy, copy: &CopySummary) -> Picture {
    const LEFT: f64 = 260.0;
    const FULL: f64 = 320.0;
    let mut svg = Svg::new(760.0, 0.0);
    let mut csv = "stage,busy (%),alone (bit/s)\n".to_owned();
    let mut told = Vec::new();
    for stage in &copy.stages {
        let y = svg.height;
        let name = stage_name(order, stage.stage);
        let busy = percent(stage.busy_share);
        let alone = stage
            .alone
            .map(|rate| format!(", {rate} alone"))
            .unwrap_or_default();
        svg.text((LEFT - 8.0, y + 18.0), "ink end", name);
        svg.rect((LEFT, y + 5.0), (FULL, 18.0), "grid soft");
        svg.rect((LEFT, y + 5.0), (FULL * stage.busy_share, 18.0), "s0");
        svg.text(
            (LEFT + FULL + 8.0, y + 18.0),
            "ink small",
            format!("{busy}{alone}"),
        );
        let alone_cell = stage
            .alone
            .map(|rate| rate.0.to_string())
            .unwrap_or_default();
        csv.push_str(&format!(
            "{name},{},{alone_cell}\n",
            stage.busy_share * 100.0
        ));
        told.push(format!("{name} was at work {busy} of the time{alone}"));
        svg.height += 30.0;
    }
    let title = "The stages of the copy".to_owned();
    let alternative = format!("{}.", told.join("; "));
    Picture::still(
        id,
        &title,
        "A stage at work all the time held the others up; the next one is the next limit. 'Alone' is the rate that \
            it would reach if the others took no time.",
        alternative,
        svg,
        csv,
    )
}
