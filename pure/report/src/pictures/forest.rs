//! Several effects with their intervals, one below the other, over the equivalence margin.

use super::pairs::{Effect, margin_band};
use super::{RIGHT, WIDTH, airy, cut};
use crate::csv::cell;
use crate::page::{Picture, Ruler, Scale, Svg};
use crate::prove::phrase::{answer, margins, share, signed, unit};
use crate::words::escape;
use model::{Experiment, Metric, Outcome, Published, Verdict};

/// Longest name that is drawn, in characters: the answer stands beside it.
const LONGEST: usize = 60;
/// Effects that are drawn at most; the CSV has all.
const MOST: usize = 40;
/// Height of a row.
const ROW: f64 = 46.0;

/// Every comparison of an experiment, or every effect of a factorial one; `None` if there is none yet.
pub fn of_experiment(experiment: &Experiment, verdict: &Verdict) -> Option<Picture> {
    let plan = &experiment.plan;
    let arms = verdict.comparisons.iter().map(|c| Row {
        name: plan.arm_name(c.arm).to_owned(),
        outcome: c.outcome,
        effect: c.estimate.map(|e| Effect::of(plan.metric, &e)),
    });
    let factors = verdict.effects.iter().map(|e| Row {
        name: e.name.clone(),
        outcome: e.outcome,
        effect: Some(Effect::of(plan.metric, &e.estimate)),
    });
    let against = format!("{}, % {}", plan.arm_name(0), unit(plan.metric));
    drawn(arms.chain(factors).collect(), &against, plan.margin)
}

/// Every difference of published numbers; `None` where none of them has an interval.
pub(crate) fn of_published(of: &Published) -> Option<Picture> {
    let rows = of.comparisons.iter().map(|one| Row {
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

struct Row {
    name: String,
    outcome: Outcome,
    effect: Option<Effect>,
}

fn drawn(rows: Vec<Row>, against: &str, margin: f64) -> Option<Picture> {
    let effects = rows.iter().filter_map(|row| row.effect.as_ref());
    let ends = effects.flat_map(Effect::ends);
    ends.clone().next()?;
    let band = margins(margin);
    let x = Ruler::over(airy(ends.chain(band)), Scale::Fitted, 20.0, RIGHT - 20.0);
    let shown = &rows[..rows.len().min(MOST)];
    let bottom = ROW * shown.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 26.0);
    let [low, high] = band.map(|end| x.place(end));
    let ticks = x.ticks(" %", 6.0);
    for tick in &ticks {
        let place = (x.place(*tick), bottom + 16.0);
        svg.text(place, "faint small middle", signed(*tick));
    }
    let mut words = Vec::new();
    for (n, row) in shown.iter().enumerate() {
        let (name, y) = (cut(&row.name, LONGEST), ROW * n as f64 + 16.0);
        let text = match &row.effect {
            Some(effect) => format!("{} {effect}", answer(row.outcome)),
            None => answer(row.outcome).to_owned(),
        };
        svg.text((0.0, y), "ink", &name);
        svg.text((RIGHT, y), "faint small end", &text);
        words.push(format!("{}: {text}", escape(&row.name)));
        // Below the words, so that no line crosses them.
        let (top, foot) = (y + 6.0, y + 28.0);
        margin_band(&mut svg, (low, top), (high, foot), true);
        for tick in &ticks {
            let class = if *tick == 0.0 { "ink" } else { "grid" };
            svg.line((x.place(*tick), top), (x.place(*tick), foot), class);
        }
        if let Some(effect) = &row.effect {
            let title = format!("{name}: {text}");
            effect.draw(&mut svg, "s1", &title, |end| (x.place(end), y + 17.0));
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
