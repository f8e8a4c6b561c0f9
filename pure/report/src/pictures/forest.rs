//! Several effects with their intervals, one below the other, over the band of those that do not matter.

use super::pairs::interval;
use super::{RIGHT, WIDTH, airy, cut};
use crate::csv::Table;
use crate::page::{Picture, Ruler, Scale, Svg};
use crate::prove::phrase::{Range, answer, margins, of_metric, range, share, signed, unit};
use crate::words::escape;
use model::{Estimate, Experiment, Metric, Outcome, Published, Verdict};

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
    drawn(
        arms.chain(factors).collect(),
        &format!("{}, per cent {}", plan.arm_name(0), unit(plan.metric)),
        plan.margin,
    )
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
    let margin = of.margin_share;
    drawn(
        rows.collect(),
        "the first of two, per cent of speed",
        margin,
    )
}

struct Row {
    name: String,
    outcome: Outcome,
    effect: Option<Effect>,
}

/// As a change of the metric.
struct Effect {
    middle: f64,
    range: Range,
}

impl Effect {
    fn of(metric: Metric, estimate: &Estimate) -> Effect {
        Effect {
            middle: of_metric(metric, estimate.effect_share),
            range: range(metric, estimate),
        }
    }

    fn told(&self) -> String {
        let Range { low, high } = self.range;
        format!(
            "{} ({} to {})",
            signed(self.middle),
            signed(low),
            signed(high)
        )
    }
}

fn drawn(rows: Vec<Row>, against: &str, margin: f64) -> Option<Picture> {
    let ends = rows
        .iter()
        .filter_map(|row| row.effect.as_ref())
        .flat_map(|effect| [effect.range.low, effect.range.high]);
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
    let mut csv = Table::default();
    csv.row(&["of", "answer", "effect_share", "low_share", "high_share"].map(str::to_owned));
    for row in &rows {
        let cell = |of: fn(&Effect) -> f64| {
            let value = row.effect.as_ref().map(of);
            value.map(|v| v.to_string()).unwrap_or_default()
        };
        csv.row(&[
            escape(&row.name),
            answer(row.outcome).to_owned(),
            cell(|e| e.middle),
            cell(|e| e.range.low),
            cell(|e| e.range.high),
        ]);
    }
    let mut told = Vec::new();
    for (n, row) in shown.iter().enumerate() {
        let (name, y) = (cut(&row.name, LONGEST), ROW * n as f64 + 16.0);
        let said = match &row.effect {
            Some(effect) => format!("{} {}", answer(row.outcome), effect.told()),
            None => answer(row.outcome).to_owned(),
        };
        svg.text((0.0, y), "ink", &name);
        svg.text((RIGHT, y), "faint small end", &said);
        told.push(format!("{}: {said}", escape(&row.name)));
        // Below the words, so that no line crosses them.
        let (top, foot) = (y + 6.0, y + 28.0);
        svg.rect((low, top), (high - low, foot - top), "good soft");
        for place in [low, high] {
            svg.line((place, top), (place, foot), "good dashed");
        }
        for tick in &ticks {
            let class = if *tick == 0.0 { "ink" } else { "grid" };
            svg.line((x.place(*tick), top), (x.place(*tick), foot), class);
        }
        if let Some(effect) = &row.effect {
            let y = y + 17.0;
            let ends = [effect.range.low, effect.range.high];
            interval(&mut svg, ends.map(|end| (x.place(end), y)));
            let corner = (x.place(effect.middle) - 5.0, y - 5.0);
            svg.titled_rect(corner, (10.0, 10.0), "s1", &format!("{name}: {said}"));
        }
    }
    let alternative = format!("{}.", told.join("; "));
    let title = "Effects with their intervals";
    Some(Picture::still(
        "forest",
        title,
        format!(
            "Square: the effect against {}. Line: its interval. Between the dashed lines: less than the {} that matters.",
            escape(against),
            share(margin)
        ),
        alternative,
        svg,
        csv.text,
    ))
}
