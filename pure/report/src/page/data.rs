//! The figures behind a picture: for the script of a page, and as a table.

use super::thin::thinned;
use super::ticks::Ruler;
use super::{Axis, Chart, Drawing, Picture, Scale, lanes};
use crate::csv::quoted;
use crate::words::{escape, or};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Columns and rows that a page can show of a series when it is zoomed into.
const COLUMNS: f64 = 1500.0;
const ROWS: f64 = 400.0;

/// What the script of a page needs of a picture.
pub(super) fn data(picture: &Picture) -> Value {
    match &picture.drawing {
        Drawing::Still { csv, .. } => json!({ "csv": csv }),
        Drawing::Chart(chart) => json!({
            "x": axis(&chart.x),
            "y": chart.y.iter().map(axis).collect::<Vec<_>>(),
            "series": series(chart),
            "lanes": lanes(&chart.bands).iter().map(|lane| json!({
                "name": escape(&lane.name),
                "colour": lane.colour,
                "spans": lane.spans.iter().map(|(from, to)| [exact(*from), exact(*to)]).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        }),
    }
}

fn axis(axis: &Axis) -> Value {
    json!({ "label": escape(&axis.label), "unit": axis.unit, "scale": axis.scale })
}

fn series(chart: &Chart) -> Vec<Value> {
    let points = chart.series.iter().flat_map(|s| &s.points);
    let x = Ruler::over(points.map(|(x, _)| *x), chart.x.scale, 0.0, COLUMNS);
    let all = chart.series.iter().map(|series| {
        let values = series.points.iter().filter_map(|(_, y)| *y);
        let scale = chart.y.get(series.axis).map_or(Scale::Fitted, |a| a.scale);
        let y = Ruler::over(values, scale, 0.0, ROWS);
        let cell = |place: Option<f64>| place.map(|p| p.floor() as i64);
        let points = thinned(series, |v| cell(x.at(v)), |v| cell(y.at(v)));
        json!({
            "name": escape(&series.name),
            "axis": series.axis,
            "stroke": series.stroke,
            "x": points.iter().map(|(x, _)| exact(*x)).collect::<Vec<_>>(),
            "y": points.iter().map(|(_, y)| y.map(rounded)).collect::<Vec<_>>(),
        })
    });
    all.collect()
}

/// To a billionth: no clock here is finer than nanoseconds.
fn exact(value: f64) -> Value {
    number((value * 1e9).round() / 1e9)
}

/// A whole number unchanged, anything else to six digits.
fn rounded(value: f64) -> Value {
    if value == value.trunc() || value == 0.0 {
        return number(value);
    }
    let power = 10f64.powf(5.0 - value.abs().log10().floor());
    number((value * power).round() / power)
}

fn number(value: f64) -> Value {
    match value {
        whole if whole == whole.trunc() && whole.abs() < 9e15 => json!(whole as i64),
        value => json!(value),
    }
}

/// All figures of a picture, with a header line that has the units; RFC 4180 but for the line ends.
pub fn csv(picture: &Picture) -> String {
    drawing_csv(&picture.drawing)
}

pub(super) fn drawing_csv(drawing: &Drawing) -> String {
    let chart = match drawing {
        Drawing::Still { csv, .. } => return csv.clone(),
        Drawing::Chart(chart) => chart,
    };
    let named = |name: &str, unit: &str| match unit.trim() {
        "" => cell(name),
        unit => cell(&format!("{name} ({unit})")),
    };
    let mut header = vec![named(&chart.x.label, chart.x.unit)];
    header.extend(chart.series.iter().map(|s| {
        let unit = chart.y.get(s.axis).map_or("", |axis| axis.unit);
        named(&s.name, unit)
    }));
    let mut out = header.join(",") + "\n";
    let series = chart.series.iter();
    let mut rests: Vec<&[(f64, Option<f64>)]> = series.map(|s| &s.points[..]).collect();
    // The smallest place that is next of any series makes the next row.
    loop {
        let places = rests.iter().filter_map(|rest| Some(rest.first()?.0));
        let Some(next) = places.min_by(f64::total_cmp) else {
            break;
        };
        out += &next.to_string();
        for rest in &mut rests {
            out.push(',');
            if let Some(((x, y), later)) = rest.split_first()
                && x.total_cmp(&next).is_eq()
            {
                out += &or(*y, "");
                *rest = later;
            }
        }
        out.push('\n');
    }
    if !chart.bands.is_empty() {
        out += "\nfrom,to,stretch\n";
    }
    for band in &chart.bands {
        let _ = writeln!(out, "{},{},{}", band.from, band.to, cell(&band.name));
    }
    out
}

/// A cell that no spreadsheet takes for a formula.
fn cell(text: &str) -> String {
    let text = escape(text);
    let text = match text.chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{text}"),
        _ => text,
    };
    quoted(&text).into_owned()
}
