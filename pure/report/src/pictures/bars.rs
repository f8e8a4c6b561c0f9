//! The classic picture: average, median, minimum and maximum of each arm.

use super::{RIGHT, WIDTH, cut_name};
use crate::csv::cell;
use crate::prelude::*;
use crate::prove::phrase::{csv_unit, value};
use model::{Look, Metric, Published, Statistics};

/// Left end of the bars.
const LEFT: f64 = 20.0;
/// Longest group or arm that is drawn, in characters: the figures stand beside it.
const LONGEST: usize = 44;
/// Bars that are drawn at most; the CSV has all.
const MOST: usize = 60;

/// The arms of an experiment; `None` before the first run.
pub fn of_experiment(experiment: &Experiment, verdict: &Verdict) -> Option<Picture> {
    let metric = experiment.plan.metric;
    let bars = verdict.arms.iter().filter(|a| a.runs > 0).map(|a| Bar {
        name: format!(
            "{} ({}, {} bad)",
            a.name,
            counted(a.runs.into(), "run"),
            a.bad
        ),
        is_control: a.arm == 0,
        statistics: Statistics {
            arm: a.name.clone(),
            average: a.average,
            median: a.median,
            min: a.min,
            max: a.max,
            ..Statistics::default()
        },
    });
    drawn(bars.collect(), csv_unit(metric), |v| value(metric, Some(v)))
}

/// The arms of published numbers, as printed; `None` if there are none.
pub(crate) fn of_published(of: &Published) -> Option<Picture> {
    let first = of.comparisons.first();
    let control = first.map(|one| one.control.as_str());
    let bars = of.statistics.iter().map(|one| Bar {
        name: one.arm.clone(),
        is_control: control == Some(one.arm.as_str()),
        statistics: one.clone(),
    });
    let unit = first.map_or("", |one| &one.unit);
    let text = |v| format!("{v} {unit}").trim_end().to_owned();
    drawn(bars.collect(), unit, text)
}

/// The looks at a path that was tuned, from first to last; `None` if there is but one.
pub(crate) fn of_tuning(looks: &[&Look]) -> Option<Picture> {
    let bars = looks.iter().enumerate().map(|(n, look)| Bar {
        name: match n {
            0 => "baseline".to_owned(),
            n => format!("with what was kept of round {n}"),
        },
        is_control: n == 0,
        statistics: Statistics {
            arm: crate::words::shown(&look.run),
            average: Some(look.goodput.0 as f64),
            ..Statistics::default()
        },
    });
    let rate = |v| value(Metric::Goodput, Some(v));
    let picture = drawn(bars.collect(), csv_unit(Metric::Goodput), rate)?;
    (looks.len() > 1).then(|| Picture {
        title: "Before and after".to_owned(),
        reading: "Each bar is one measurement over fresh connections; the experiments show whether the change did it."
            .to_owned(),
        ..picture
    })
}

struct Bar {
    name: String,
    is_control: bool,
    statistics: Statistics,
}

fn drawn(bars: Vec<Bar>, unit: &str, text: impl Fn(f64) -> String) -> Option<Picture> {
    let values = |one: &Statistics| [one.average, one.median, one.min, one.max];
    let all = bars
        .iter()
        .flat_map(|bar| values(&bar.statistics))
        .flatten();
    let most = all.filter(|v| v.is_finite()).reduce(f64::max)?;
    let at = |value: f64| LEFT + (RIGHT - LEFT) * (value / most.max(1e-12)).clamp(0.0, 1.0);
    let mut svg = Svg::new(WIDTH, 4.0);
    let unit = match unit {
        "" => String::new(),
        unit => format!("_{}", unit.to_lowercase().replace('/', "_per_")),
    };
    let (mut rows, mut words) = (Vec::new(), Vec::new());
    let mut group = "";
    for (number, bar) in bars.iter().enumerate() {
        let one = &bar.statistics;
        let names = [escape(&one.of), escape(&one.arm)].into_iter();
        rows.push(names.chain(values(one).map(cell)).collect());
        if number >= MOST {
            continue;
        }
        if one.of != group {
            group = &one.of;
            svg.height += 8.0;
            svg.text(
                (0.0, svg.height + 14.0),
                "ink strong",
                cut_name(group, LONGEST),
            );
            svg.height += 20.0;
        }
        let figures = figures(one, &text);
        let (name, y) = (cut_name(&bar.name, LONGEST), svg.height + 16.0);
        svg.text((LEFT, y), "ink", &name);
        svg.text((LEFT, y + 15.0), "faint small", &figures);
        let (top, colour) = (y + 22.0, if bar.is_control { "s0" } else { "s1" });
        let middle = top + 7.0;
        if let Some(average) = one.average {
            let title = format!("{name}: {figures}");
            let extent = (at(average) - LEFT, 14.0);
            svg.titled_rect((LEFT, top), extent, &format!("{colour} soft"), &title);
        }
        if let (Some(min), Some(max)) = (one.min, one.max) {
            svg.line((at(min), middle), (at(max), middle), "ink");
            for end in [min, max] {
                svg.line((at(end), middle - 4.0), (at(end), middle + 4.0), "ink");
            }
        }
        if let Some(median) = one.median {
            svg.rect((at(median) - 2.0, top - 2.0), (4.0, 18.0), colour);
        }
        svg.height = top + 22.0;
        let of = if one.of.is_empty() { "" } else { ", " };
        words.push(format!("{}{of}{}: {figures}", one.of, bar.name));
    }
    let columns = ["average", "median", "minimum", "maximum"].map(|name| format!("{name}{unit}"));
    let names = ["of", "arm"].map(str::to_owned);
    Some(Picture::still(
        "bars",
        "Average, median, minimum and maximum",
        "Bar from zero: average. Thick mark: median. Thin line: from minimum to maximum.",
        format!("{}.", words.join("; ")),
        svg,
        &[&names[..], &columns[..]].concat(),
        rows,
    ))
}

/// `average 210, median 180, 145 to 304`; what is not known is left out.
fn figures(one: &Statistics, text: &impl Fn(f64) -> String) -> String {
    let named = [("average", one.average), ("median", one.median)];
    let figure = |(name, value): (&str, Option<f64>)| Some(format!("{name} {}", text(value?)));
    let range = one.min.zip(one.max);
    let range = range.map(|(min, max)| format!("{} to {}", text(min), text(max)));
    let all = named.into_iter().filter_map(figure).chain(range);
    all.collect::<Vec<_>>().join(", ")
}
