//! The classic picture: average, median, minimum and maximum of each arm.

use super::{RIGHT, WIDTH, cut};
use crate::csv::Table;
use crate::page::{Picture, Svg};
use crate::prove::phrase::value;
use crate::words::escape;
use model::{BitRate, Experiment, Look, Published, Statistics, Verdict};

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
        name: format!("{} ({} runs, {} bad)", a.name, a.runs, a.bad),
        is_control: a.arm == 0,
        statistics: Statistics {
            of: String::new(),
            arm: a.name.clone(),
            average: a.average,
            median: a.median,
            min: a.min,
            max: a.max,
        },
    });
    let unit = if metric.is_time() { "s" } else { "bit_s" };
    drawn(bars.collect(), unit, |v| value(metric, Some(v)))
}

/// The arms of published numbers, as they were printed; `None` if there are none.
pub(crate) fn of_published(of: &Published) -> Option<Picture> {
    let control = of.comparisons.first().map(|one| one.control.as_str());
    let bars = of.statistics.iter().map(|one| Bar {
        name: one.arm.clone(),
        is_control: control == Some(one.arm.as_str()),
        statistics: one.clone(),
    });
    let unit = of.comparisons.first().map_or("", |one| &one.unit);
    drawn(bars.collect(), unit, |v| {
        format!("{v} {unit}").trim_end().to_owned()
    })
}

/// The looks at a path that was tuned, from first to last; `None` if there is but one.
pub(crate) fn of_tuning(looks: &[&Look]) -> Option<Picture> {
    let names = |n: usize| match n {
        0 => "as it was".to_owned(),
        n => format!("with what was kept of round {n}"),
    };
    let bars = looks.iter().enumerate().map(|(n, look)| Bar {
        name: names(n),
        is_control: n == 0,
        statistics: Statistics {
            of: String::new(),
            arm: look.run.clone(),
            average: Some(look.goodput.0 as f64),
            median: None,
            min: None,
            max: None,
        },
    });
    let picture = drawn(bars.collect(), "bit_s", |v| BitRate(v as u64).to_string())?;
    (looks.len() > 1).then(|| Picture {
        title: "Before and after".to_owned(),
        reading: "Each bar is one measurement over fresh connections; whether the change did it, the experiments tell."
            .to_owned(),
        ..picture
    })
}

struct Bar {
    name: String,
    is_control: bool,
    statistics: Statistics,
}

fn drawn(bars: Vec<Bar>, unit: &str, say: impl Fn(f64) -> String) -> Option<Picture> {
    let values = |one: &Statistics| [one.average, one.median, one.min, one.max];
    let most = bars
        .iter()
        .flat_map(|bar| values(&bar.statistics))
        .flatten()
        .filter(|v| v.is_finite())
        .reduce(f64::max)?;
    let at = |value: f64| LEFT + (RIGHT - LEFT) * (value / most.max(1e-12)).clamp(0.0, 1.0);
    let mut svg = Svg::new(WIDTH, 4.0);
    let mut csv = Table::default();
    let unit = match unit {
        "" => String::new(),
        unit => format!("_{}", unit.to_lowercase().replace('/', "_per_")),
    };
    let columns = ["average", "median", "minimum", "maximum"].map(|name| format!("{name}{unit}"));
    let header = ["of".to_owned(), "arm".to_owned()];
    csv.row(&[&header[..], &columns[..]].concat());
    let mut told = Vec::new();
    let mut group = "";
    for (number, bar) in bars.iter().enumerate() {
        let one = &bar.statistics;
        let cell = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
        let cells = values(one).map(cell);
        csv.row(&[&[escape(&one.of), escape(&one.arm)], &cells[..]].concat());
        if number >= MOST {
            continue;
        }
        if one.of != group {
            group = &one.of;
            svg.height += 8.0;
            svg.text((0.0, svg.height + 14.0), "ink strong", cut(group, LONGEST));
            svg.height += 20.0;
        }
        let figures = figures(one, &say);
        let (name, y) = (cut(&bar.name, LONGEST), svg.height + 16.0);
        svg.text((LEFT, y), "ink", &name);
        svg.text((RIGHT, y), "faint small end", &figures);
        let (top, colour) = (y + 6.0, if bar.is_control { "s0" } else { "s1" });
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
        let of = match one.of.as_str() {
            "" => String::new(),
            of => format!("{of}, "),
        };
        told.push(format!("{of}{}: {figures}", bar.name));
    }
    let alternative = format!("{}.", told.join("; "));
    let title = "Average, median, minimum and maximum";
    Some(Picture::still(
        "bars",
        title,
        "Bar from zero: average. Thick mark: median. Thin line: from minimum to maximum.",
        alternative,
        svg,
        csv.text,
    ))
}

/// `average 210, median 180, 145 to 304`; what was not told is left out.
fn figures(one: &Statistics, say: &impl Fn(f64) -> String) -> String {
    let named = [("average", one.average), ("median", one.median)];
    let mut told: Vec<String> = named
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", say(value?))))
        .collect();
    if let (Some(min), Some(max)) = (one.min, one.max) {
        told.push(format!("{} to {}", say(min), say(max)));
    }
    told.join(", ")
}
