//! A chart as a still picture.

use super::svg::{At, Svg};
use super::thin::thinned;
use super::ticks::{DATE, Ruler, marks};
use super::{Axis, Chart, Lane, Series, Stroke, lanes};
use std::fmt::Write as _;

/// Width of the picture, and of the margin on either side that has an axis.
const WIDTH: f64 = 760.0;
const MARGIN: f64 = 76.0;
const BARE_MARGIN: f64 = 14.0;
/// Height of the plot, and of one lane of bands.
const PLOT: f64 = 250.0;
const LANE: f64 = 22.0;
/// Height of a line of the legend, and the width that a letter of it takes at the most.
const LINE: f64 = 18.0;
const LETTER: f64 = 6.6;

/// The chart with its legend, lanes and axes.
pub(super) fn chart(chart: &Chart, title: &str, description: &str) -> String {
    let mut svg = Svg::new(WIDTH, 0.0);
    let left = MARGIN;
    let right = WIDTH
        - if chart.y.len() > 1 {
            MARGIN
        } else {
            BARE_MARGIN
        };
    let y = legend(&mut svg, chart, left, right) + LINE;
    // Of the axes: where the name stands, and where the marks do.
    let sides = [
        (4.0, "faint small", left - 6.0, "faint small end"),
        (WIDTH - 4.0, "faint small end", right + 6.0, "faint small"),
    ];
    let lanes = lanes(&chart.bands);
    let top = y + LANE * lanes.len() as f64;
    let bottom = top + PLOT;

    let points = || chart.series.iter().flat_map(|s| &s.points);
    let edges = chart.bands.iter().flat_map(|band| [band.from, band.to]);
    let across = points().map(|(x, _)| *x).chain(edges);
    let x = Ruler::over(across, chart.x.scale, left, right);
    let ruler = |(n, axis): (usize, &Axis)| {
        let own = chart.series.iter().filter(|s| s.axis == n);
        let values = own.flat_map(|s| s.points.iter().filter_map(|(_, y)| *y));
        Ruler::over(values, axis.scale, bottom, top).with_air()
    };
    let rulers: Vec<Ruler> = chart.y.iter().enumerate().map(ruler).collect();

    for (n, lane) in lanes.iter().enumerate() {
        draw_lane(&mut svg, lane, &x, y + LANE * n as f64, right);
    }
    for (n, (axis, (over, name, x, class))) in chart.y.iter().zip(sides).enumerate() {
        let ticks = rulers[n].ticks(axis.unit, 5.0);
        let (title, texts) = marks(axis, &ticks);
        svg.text((over, y - 6.0), name, title);
        for (tick, text) in ticks.into_iter().zip(texts) {
            let at = rulers[n].place(tick);
            if n == 0 {
                svg.line((left, at), (right, at), "grid");
            }
            svg.text((x, at + 4.0), class, text);
        }
    }
    let middle = (left + right) / 2.0;
    // A date is longer than a number.
    let count = if chart.x.unit == DATE { 4.0 } else { 7.0 };
    let ticks = x.ticks(chart.x.unit, count);
    let (name, texts) = marks(&chart.x, &ticks);
    for (tick, text) in ticks.into_iter().zip(texts) {
        let at = x.place(tick);
        svg.line((at, top), (at, bottom), "grid");
        svg.text((at, bottom + 16.0), "faint small middle", text);
    }
    svg.text((middle, bottom + 34.0), "faint small middle", name);

    for (n, series) in chart.series.iter().enumerate() {
        if let Some(ruler) = rulers.get(series.axis) {
            draw_series(&mut svg, series, n, &x, ruler);
        }
    }
    if points().next().is_none() {
        svg.text(
            (middle, top + PLOT / 2.0),
            "faint middle",
            "nothing was seen",
        );
    }
    svg.height = bottom + 42.0;
    svg.finish(title, description)
}

/// The series by name, each behind a piece of its line; gives the height that it took.
fn legend(svg: &mut Svg, chart: &Chart, left: f64, right: f64) -> f64 {
    let (mut x, mut y) = (left, 4.0 + LINE / 2.0);
    for (n, series) in chart.series.iter().enumerate() {
        let width = 34.0 + LETTER * series.name.chars().count().min(60) as f64;
        if x + width > right && x > left {
            (x, y) = (left, y + LINE);
        }
        let (stroke, mark) = classes(series.stroke, n);
        match series.stroke {
            Stroke::Points => svg.path(&shapes(n, &[(x + 10.0, y)]), &mark),
            Stroke::Bars => svg.line((x + 10.0, y - 6.0), (x + 10.0, y + 6.0), &stroke),
            Stroke::Line | Stroke::Steps | Stroke::Reference => {
                svg.line((x, y), (x + 22.0, y), &stroke);
            }
        }
        svg.text((x + 28.0, y + 4.0), "ink small", &series.name);
        x += width;
    }
    if chart.series.is_empty() {
        0.0
    } else {
        y + LINE / 2.0
    }
}

/// A row of stretches with one name, which stands above the first of them.
fn draw_lane(svg: &mut Svg, lane: &Lane, x: &Ruler, y: f64, right: f64) {
    let mut commands = String::new();
    let spans = lane.spans.iter();
    let places = spans.filter_map(|(from, to)| Some((x.at(*from)?, x.at(*to)?)));
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (from, to) in places {
        match joined.last_mut() {
            Some((_, ended)) if from - *ended < 0.5 => *ended = ended.max(to),
            _ => joined.push((from, to)),
        }
    }
    let (top, height) = (At(y + LANE - 7.0), At(5.0));
    let first = joined.first().map_or(0.0, |(from, _)| *from);
    let width = LETTER * lane.name.chars().count() as f64;
    let name = (first.min(right - width), y + LANE - 10.0);
    for (from, to) in joined {
        // What is short is drawn all the same.
        let (at, width) = (At(from), At((to - from).max(1.0)));
        let _ = write!(commands, "M{at} {top}h{width}v{height}h-{width}z");
    }
    svg.path(&commands, &format!("area s{}", lane.colour));
    svg.text(name, "ink small", &lane.name);
}

fn draw_series(svg: &mut Svg, series: &Series, n: usize, x: &Ruler, y: &Ruler) {
    // A mark hides what is less than two units away.
    let cell = |place: Option<f64>, size: f64| place.map(|p| (p / size).floor() as i64);
    let size = if series.stroke == Stroke::Points {
        2.0
    } else {
        1.0
    };
    let points = thinned(series, |v| cell(x.at(v), size), |v| cell(y.at(v), size));
    let places = points
        .iter()
        .map(|(px, py)| Some((x.at(*px)?, y.at((*py)?)?)));
    let (stroke, mark) = classes(series.stroke, n);
    let mut commands = String::new();
    match series.stroke {
        Stroke::Points => {
            let places: Vec<_> = places.flatten().collect();
            svg.path(&shapes(n, &places), &mark);
            return;
        }
        Stroke::Bars => {
            for (px, py) in places.flatten() {
                let _ = write!(commands, "M{} {}V{}", At(px), At(y.foot()), At(py));
            }
        }
        Stroke::Line | Stroke::Steps | Stroke::Reference => {
            let places: Vec<Option<(f64, f64)>> = places.collect();
            for piece in places.split(Option::is_none) {
                for (n, (px, py)) in piece.iter().flatten().enumerate() {
                    let (px, py) = (At(*px), At(*py));
                    let _ = match (n, series.stroke) {
                        (0, _) => write!(commands, "M{px} {py}"),
                        (_, Stroke::Line) => write!(commands, "L{px} {py}"),
                        _ => write!(commands, "H{px}V{py}"),
                    };
                }
                // A value between two gaps has no line to be part of.
                if piece.len() == 1 {
                    commands.push_str("h2");
                }
            }
        }
    }
    svg.path(&commands, &stroke);
}

/// The classes of a series' line and of its marks.
fn classes(stroke: Stroke, n: usize) -> (String, String) {
    let colour = n % 8;
    let line = match stroke {
        Stroke::Reference => format!("s{colour} thin d{}", 1 + n % 4),
        Stroke::Bars => format!("s{colour} thin"),
        _ => format!("s{colour} d{}", n % 5),
    };
    (line, format!("s{colour} mark m{}", n % 6))
}

/// A mark at each place; its shape goes by the number of the series.
fn shapes(n: usize, places: &[(f64, f64)]) -> String {
    let mut out = String::new();
    for (x, y) in places {
        let at = |dx: f64, dy: f64| format!("M{} {}", At(x + dx), At(y + dy));
        let _ = match n % 6 {
            0 => write!(out, "{}h0", at(0.0, 0.0)),
            1 => write!(out, "{}l4 4m0-4l-4 4", at(-2.0, -2.0)),
            2 => write!(out, "{}h4v4h-4z", at(-2.0, -2.0)),
            3 => write!(out, "{}l2.5 5h-5z", at(0.0, -3.0)),
            4 => write!(out, "{}h6m-3-3v6", at(-3.0, 0.0)),
            _ => write!(out, "{}l3 3-3 3-3-3z", at(0.0, -3.0)),
        };
    }
    out
}
