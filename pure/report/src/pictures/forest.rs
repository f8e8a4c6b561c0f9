//! Several effects with their intervals, one below the other, over the equivalence margin.

use super::pairs::{ChangeAxis, Effect, margin_band};
use super::{RIGHT, WIDTH, cut_name};
use crate::csv::cell;
use crate::prelude::*;
use crate::prove::phrase::{answer, margins, share, unit};
use model::{Metric, Published};

/// Longest name that is drawn, in characters: the answer stands beside it.
const LONGEST: usize = 60;
/// Effects that are drawn at most; the CSV has all.
const MOST: usize = 40;
/// Height of a row.
const ROW: f64 = 60.0;

/// Every comparison of an experiment, or every effect of a factorial one; `None` if there is none yet.
pub fn of_experiment(experiment: &Experiment, verdict: &Verdict) -> Option<Picture> {
    let plan = &experiment.plan;
    let arms = verdict.comparisons.iter().map(|c| ForestRow {
        name: plan.arm_name(c.arm).to_owned(),
        outcome: c.outcome,
        effect: c.estimate.map(|e| Effect::of(plan.metric, &e)),
    });
    let factors = verdict.effects.iter().map(|e| ForestRow {
        name: e.name.clone(),
        outcome: e.outcome,
        effect: Some(Effect::of(plan.metric, &e.estimate)),
    });
    let against = format!("{}, % {}", plan.arm_name(0), unit(plan.metric));
    drawn(arms.chain(factors).collect(), &against, plan.margin)
}

/// Every difference of published numbers; `None` where none of them has an interval.
pub(crate) fn of_published(of: &Published) -> Option<Picture> {
    let rows = of.comparisons.iter().map(|one| ForestRow {
        name: match one.of.as_str() {
            "" => format!("{} against {}", one.arm, one.control),
            of => format!("{of}: {} against {}", one.arm, one.control),
        },
        outcome: one.outcome,
        effect: one.estimate.map(|e| Effect::of(Metric::Goodput, &e)),
    });
    let against = "the first of two, per cent of speed";
    drawn(rows.collect(), against, of.margin_share)
}

struct ForestRow {
    name: String,
    outcome: Outcome,
    effect: Option<Effect>,
}

fn drawn(rows: Vec<ForestRow>, against: &str, margin: f64) -> Option<Picture> {
    let effects = rows.iter().filter_map(|row| row.effect.as_ref());
    let ends = effects.flat_map(Effect::ends);
    ends.clone().next()?;
    let axis = ChangeAxis::over(ends, margin, 20.0, RIGHT - 20.0);
    let x = |end: f64| axis.place(end);
    let shown = &rows[..rows.len().min(MOST)];
    let bottom = ROW * shown.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 42.0);
    let [low, high] = margins(margin).map(x);
    let ticks = axis.ticks(6.0);
    for (tick, text) in &ticks {
        svg.text((x(*tick), bottom + 16.0), "faint small middle", text);
    }
    svg.text(
        (RIGHT / 2.0, bottom + 34.0),
        "faint small middle",
        axis.title(),
    );
    let mut words = Vec::new();
    for (n, row) in shown.iter().enumerate() {
        let (name, y) = (cut_name(&row.name, LONGEST), ROW * n as f64 + 16.0);
        let text = match &row.effect {
            Some(effect) => format!("{} {effect}", answer(row.outcome)),
            None => answer(row.outcome).to_owned(),
        };
        svg.text((0.0, y), "ink", &name);
        svg.text((0.0, y + 16.0), "faint small", &text);
        words.push(format!("{}: {text}", escape(&row.name)));
        // Below the words, so that no line crosses them.
        let (top, foot) = (y + 22.0, y + 40.0);
        margin_band(&mut svg, (low, top), (high, foot), true);
        for (tick, _) in &ticks {
            let class = if *tick == 0.0 { "ink" } else { "grid" };
            svg.line((x(*tick), top), (x(*tick), foot), class);
        }
        if let Some(effect) = &row.effect {
            let title = format!("{name}: {text}");
            effect.draw(&mut svg, "s1", &title, |end| (x(end), y + 31.0));
        }
    }
    let rows = rows.iter().map(|row| {
        let cell = |of: fn(&Effect) -> f64| cell(row.effect.as_ref().map(of));
        vec![
            escape(&row.name),
            answer(row.outcome).to_owned(),
            cell(|e| e.middle),
            cell(|e| e.range.low),
            cell(|e| e.range.high),
        ]
    });
    Some(Picture::still(
        "forest",
        "Effects with their intervals",
        format!(
            "Square: the effect against {}. Line: its CI. Between the dashed lines: within the equivalence margin of {}.",
            escape(against),
            share(margin)
        ),
        format!("{}.", words.join("; ")),
        svg,
        &["of", "answer", "effect_share", "low_share", "high_share"],
        rows.collect(),
    ))
}
