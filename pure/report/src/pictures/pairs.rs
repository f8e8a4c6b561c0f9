//! Pair by pair: both runs, their difference, the effect with its interval, and the equivalence margin.

use super::{RIGHT, WIDTH, airy, cut_name};
use crate::csv::cell;
use crate::page::{Picture, Ruler, Scale, Svg};
use crate::prove::phrase::{
    Range, base_unit, changed, csv_unit, interval, margins, metric_line, of_metric, range, share,
    signed, times, unit, value,
};
use crate::words::escape;
use model::{Comparison, Estimate, Experiment, Metric, Trial, TrialPhase, Verdict};
use std::fmt;

/// Left and right end of the plots; beyond the right one the effect has its place.
const LEFT: f64 = 84.0;
const PLOT: f64 = RIGHT - 56.0;
/// Longest name in the legend, in characters.
const LONGEST: usize = 30;
/// Pairs whose numbers are written below them.
const NUMBERED: usize = 20;

/// A change of the metric with its interval.
pub(super) struct Effect {
    pub middle: f64,
    pub range: Range,
}

impl Effect {
    pub fn of(metric: Metric, estimate: &Estimate) -> Effect {
        Effect {
            middle: of_metric(metric, estimate.effect_share),
            range: range(metric, estimate),
        }
    }

    pub fn ends(&self) -> [f64; 2] {
        [self.range.low, self.range.high]
    }

    /// A square on a line with a stroke across each end.
    pub fn draw(&self, svg: &mut Svg, class: &str, title: &str, at: impl Fn(f64) -> (f64, f64)) {
        let ends = self.ends().map(&at);
        svg.line(ends[0], ends[1], "ink thick");
        let upright = ends[0].0 == ends[1].0;
        let (dx, dy) = if upright { (5.0, 0.0) } else { (0.0, 5.0) };
        for (x, y) in ends {
            svg.line((x - dx, y - dy), (x + dx, y + dy), "ink thick");
        }
        let (x, y) = at(self.middle);
        svg.titled_rect((x - 5.0, y - 5.0), (10.0, 10.0), class, title);
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As the verdict words it.
        let words = |share| match self.middle >= 1.0 && self.range.low > 0.0 {
            true => format!("{}x", times(share)),
            false => signed(share),
        };
        let [low, high] = self.ends().map(words);
        write!(f, "{} ({low} to {high})", words(self.middle))
    }
}

/// An axis of changes. Changes of several times have their place by their ratio, whose logarithm is even for both
/// directions.
pub(super) struct ChangeAxis {
    ruler: Ruler,
    in_times: bool,
}

impl ChangeAxis {
    /// Covers all `changes` and the margin, on the way `from` one place `to` another.
    pub fn over(changes: impl Iterator<Item = f64>, margin: f64, from: f64, to: f64) -> ChangeAxis {
        let changes: Vec<f64> = changes.chain(margins(margin)).collect();
        let in_times = changes.iter().any(|change| *change >= 1.0);
        let scale = match in_times {
            true => Scale::Logarithmic,
            false => Scale::Fitted,
        };
        let places = airy(changes.into_iter()).map(|change| match in_times {
            true => (1.0 + change).max(0.01),
            false => change,
        });
        ChangeAxis {
            ruler: Ruler::over(places, scale, from, to),
            in_times,
        }
    }

    pub fn place(&self, change: f64) -> f64 {
        self.ruler
            .place(if self.in_times { 1.0 + change } else { change })
    }

    /// The changes that are marked, with their words.
    pub fn ticks(&self, most: f64) -> Vec<(f64, String)> {
        let ticks = self.ruler.ticks(" %", most).into_iter();
        let worded = ticks.map(|tick| match self.in_times {
            true => (tick - 1.0, format!("{}x", (tick * 1e3).round() / 1e3)),
            false => (tick, signed(tick)),
        });
        worded.collect()
    }

    pub fn title(&self) -> &'static str {
        match self.in_times {
            true => "ratio to the baseline, logarithmic",
            false => "difference from the baseline",
        }
    }
}

/// The equivalence margin between two corners: a band with dashed edges.
pub(super) fn margin_band(svg: &mut Svg, from: (f64, f64), to: (f64, f64), upright: bool) {
    svg.rect(from, (to.0 - from.0, to.1 - from.1), "faint soft");
    let (a, b) = match upright {
        true => ((from.0, to.1), (to.0, from.1)),
        false => ((to.0, from.1), (from.0, to.1)),
    };
    svg.line(from, a, "faint dashed");
    svg.line(b, to, "faint dashed");
}

/// A pair, and by how much its runs differ.
type Pair<'a> = (&'a Trial, &'a Trial, Option<f64>);

/// The pairs of an experiment; `None` if it does not compare two arms, or no pair is whole yet.
pub fn picture(experiment: &Experiment, verdict: &Verdict) -> Option<Picture> {
    let [comparison] = &verdict.comparisons[..] else {
        return None;
    };
    let pairs = paired(experiment, comparison.arm);
    if pairs.is_empty() {
        return None;
    }
    let plan = &experiment.plan;
    let metric = plan.metric;
    let differences = pairs.iter().enumerate().map(|(n, (.., d))| match d {
        Some(d) => format!("pair {} {}", n + 1, signed(*d)),
        None => format!("pair {} with a failed run", n + 1),
    });
    let differences = differences.collect::<Vec<_>>().join(", ");
    let effect = comparison.estimate.as_ref().map(|e| {
        let middle = changed(metric, e);
        format!(" The effect: {middle}, {}.", interval(metric, e))
    });
    let mut plot = Plot {
        svg: Svg::new(WIDTH, 0.0),
        pairs: &pairs,
        experiment,
        comparison,
    };
    plot.runs();
    plot.differences();
    let [control, arm] = [comparison.against, comparison.arm].map(|arm| escape(plan.arm_name(arm)));
    let value = csv_unit(metric);
    let columns = [
        "pair".to_owned(),
        format!("{control} run"),
        format!("{control} {value}"),
        format!("{arm} run"),
        format!("{arm} {value}"),
        "difference_share".to_owned(),
    ];
    let rows = pairs.iter().enumerate().map(|(n, (a, b, difference))| {
        vec![
            (n + 1).to_string(),
            a.number.to_string(),
            cell(a.value),
            b.number.to_string(),
            cell(b.value),
            cell(*difference),
        ]
    });
    Some(Picture::still(
        "pairs",
        "Pair by pair",
        format!(
            "Above, both runs of each pair; below, by how much they differ. Between the dashed lines: within the equivalence margin of {}. At the right: the effect with its CI.",
            share(plan.margin)
        ),
        format!(
            "The differences, {}: {differences}.{}",
            unit(metric),
            effect.unwrap_or_default()
        ),
        plot.svg,
        &columns,
        rows.collect(),
    ))
}

struct Plot<'a> {
    svg: Svg,
    pairs: &'a [Pair<'a>],
    experiment: &'a Experiment,
    comparison: &'a Comparison,
}

impl Plot<'_> {
    /// Place of a pair.
    fn x(&self, pair: usize) -> f64 {
        LEFT + (PLOT - LEFT) * (pair as f64 + 0.5) / self.pairs.len() as f64
    }

    /// A line across the plot with its mark.
    fn across(&mut self, place: f64, is_zero: bool, text: &str) {
        let class = if is_zero { "ink" } else { "grid" };
        self.svg.line((LEFT, place), (PLOT, place), class);
        let at = (LEFT - 8.0, place + 4.0);
        self.svg.text(at, "faint small end", text);
    }

    /// Both runs of each pair: round the control, square the change, so that colour is not needed.
    fn runs(&mut self) {
        let plan = &self.experiment.plan;
        let metric = plan.metric;
        let (top, bottom) = (50.0, 200.0);
        let heading = metric_line(metric);
        self.svg.text((0.0, 16.0), "faint small", heading);
        let mut right = 0.0;
        let arms = [self.comparison.against, self.comparison.arm];
        for (arm, is_control) in arms.into_iter().zip([true, false]) {
            let name = cut_name(plan.arm_name(arm), LONGEST);
            self.mark((right + 5.0, 33.0), is_control, "");
            self.svg.text((right + 15.0, 37.0), "ink small", &name);
            right += 35.0 + 7.2 * name.chars().count() as f64;
        }
        let values = self.pairs.iter().flat_map(|(a, b, _)| [a.value, b.value]);
        let y = Ruler::over(airy(values.flatten()), Scale::Fitted, bottom, top);
        for tick in y.ticks(base_unit(metric), 5.0) {
            let text = match tick {
                0.0 => "0".to_owned(),
                _ => value(metric, Some(tick)),
            };
            self.across(y.place(tick), tick == 0.0, &text);
        }
        for (n, (a, b, _)) in self.pairs.iter().enumerate() {
            let x = self.x(n);
            if let (Some(a), Some(b)) = (a.value, b.value) {
                self.svg.line((x, y.place(a)), (x, y.place(b)), "faint");
            }
            for (trial, is_control) in [(a, true), (b, false)] {
                let title = format!("run {}: {}", trial.number, value(metric, trial.value));
                match trial.value {
                    Some(v) => self.mark((x, y.place(v)), is_control, &title),
                    // It has no value: a cross at the foot.
                    None => self.svg.text((x, bottom + 4.0), "bad middle", "\u{d7}"),
                }
            }
        }
    }

    fn mark(&mut self, (x, y): (f64, f64), is_control: bool, title: &str) {
        let corner = (x - 4.0, y - 4.0);
        match is_control {
            true => self.svg.dot((x, y), 4.0, "s0", title),
            false => self.svg.titled_rect(corner, (8.0, 8.0), "s1", title),
        }
    }

    /// What they differ by, and the effect at the right.
    fn differences(&mut self) {
        let plan = &self.experiment.plan;
        let metric = plan.metric;
        let (top, bottom) = (250.0, 410.0);
        let estimate = self.comparison.estimate.as_ref();
        let effect = estimate.map(|estimate| Effect::of(metric, estimate));
        let ends = effect.iter().flat_map(Effect::ends);
        let all = self.pairs.iter().filter_map(|(.., d)| *d);
        let y = ChangeAxis::over(all.chain(ends), plan.margin, bottom, top);
        let heading = format!("Each pair {}: {}", unit(metric), y.title());
        self.svg.text((0.0, top - 16.0), "faint small", heading);
        let [low, high] = margins(plan.margin).map(|end| y.place(end));
        margin_band(&mut self.svg, (LEFT, high), (PLOT, low), false);
        for (tick, text) in y.ticks(5.0) {
            self.across(y.place(tick), tick == 0.0, &text);
        }
        let every = 1 + self.pairs.len() / NUMBERED;
        for (n, (.., difference)) in self.pairs.iter().enumerate() {
            let x = self.x(n);
            if let Some(d) = difference {
                let title = format!("pair {}: {}", n + 1, signed(*d));
                self.mark((x, y.place(*d)), false, &title);
            }
            if n % every == 0 {
                let below = (x, bottom + 18.0);
                self.svg.text(below, "faint small middle", n + 1);
            }
        }
        if let Some(effect) = effect {
            let x = PLOT + 28.0;
            let (title, below) = (effect.to_string(), (x, bottom + 18.0));
            effect.draw(&mut self.svg, "ink", &title, |end| (x, y.place(end)));
            self.svg.text(below, "ink small middle", "effect");
        }
        self.svg.height = bottom + 28.0;
    }
}

/// The whole pairs of the control and this arm, in order of time.
fn paired(experiment: &Experiment, arm: u32) -> Vec<Pair<'_>> {
    let judged = |t: &&Trial| matches!(t.phase, TrialPhase::Main | TrialPhase::Confirmation);
    let judged = experiment.trials.iter().rev().find(judged).map(|t| t.phase);
    let of = |wanted: u32| {
        let trials = experiment.trials.iter();
        trials.filter(move |t| Some(t.phase) == judged && t.arm == wanted)
    };
    let pair = |a: &'_ Trial| of(arm).find(|b| b.block == a.block);
    let pairs = of(0).filter_map(|a| Some((a, pair(a)?)));
    let difference = |a: &Trial, b: &Trial| Some(b.value? / a.value? - 1.0);
    pairs.map(|(a, b)| (a, b, difference(a, b))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Drawing;
    use crate::pictures::forest;
    use crate::prove::tests::path_of;

    #[test]
    fn changes_of_several_times_are_on_a_logarithmic_axis() {
        for picture in [picture, forest::of_experiment] {
            let drawn = |factor: f64| {
                let experiment = path_of(factor, 0.01);
                let verdict = ::prove::judge(&experiment);
                match picture(&experiment, &verdict).expect("a picture").drawing {
                    Drawing::Still { svg, .. } => svg,
                    Drawing::Chart(_) => panic!("a still picture"),
                }
            };
            let (small, large) = (drawn(1.1), drawn(8.0));
            assert!(small.contains("difference from the baseline<"), "{small}");
            assert!(small.contains("%<"), "{small}");
            assert!(large.contains("ratio to the baseline, logarithmic<"));
            for tick in [">1x<", ">2x<", ">5x<"] {
                assert!(large.contains(tick), "{tick}: {large}");
            }
        }
    }
}
