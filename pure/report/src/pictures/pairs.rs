//! Pair by pair: both runs, their difference, the effect with its interval, and the band of differences
//! that do not matter.

use super::{RIGHT, WIDTH, airy, cut};
use crate::csv::Table;
use crate::page::{Picture, Ruler, Scale, Svg};
use crate::prove::phrase::{
    Range, interval as interval_words, margins, metric_line, of_metric, range, share, signed, unit,
    value,
};
use crate::words::escape;
use model::{Comparison, Experiment, Phase, Trial, Verdict};

/// Left and right end of the plots; beyond the right one the effect has its place.
const LEFT: f64 = 96.0;
const PLOT: f64 = RIGHT - 56.0;
/// Longest name in the legend, in characters.
const LONGEST: usize = 32;
/// Pairs whose numbers are written below them.
const NUMBERED: usize = 20;

/// The pairs of an experiment; `None` if it does not compare two arms, or no pair is whole yet.
pub fn picture(experiment: &Experiment, verdict: &Verdict) -> Option<Picture> {
    let [comparison] = &verdict.comparisons[..] else {
        return None;
    };
    let pairs = paired(experiment, comparison.arm);
    if pairs.is_empty() {
        return None;
    }
    let metric = experiment.plan.metric;
    let differences: Vec<Option<f64>> = pairs
        .iter()
        .map(|(a, b)| Some(b.value? / a.value? - 1.0))
        .collect();
    let reading = format!(
        "Above, both runs of each pair; below, by how much they differ. Between the dashed lines: less than the {} that matters. At the right: the effect with its interval.",
        share(experiment.plan.margin)
    );
    let told: Vec<String> = differences
        .iter()
        .enumerate()
        .map(|(n, d)| match d {
            Some(d) => format!("pair {} {}", n + 1, signed(*d)),
            None => format!("pair {} with a failed run", n + 1),
        })
        .collect();
    let effect = comparison.estimate.as_ref().map_or(String::new(), |e| {
        let middle = signed(of_metric(metric, e.effect_share));
        format!(" The effect: {middle}, {}.", interval_words(metric, e))
    });
    let alternative = format!(
        "The differences, {}: {}.{effect}",
        unit(metric),
        told.join(", ")
    );
    let title = "Pair by pair";
    let mut plot = Plot {
        svg: Svg::new(WIDTH, 0.0),
        pairs: &pairs,
        experiment,
        comparison,
    };
    plot.runs();
    plot.differences(&differences);
    Some(Picture::still(
        "pairs",
        title,
        reading,
        alternative,
        plot.svg,
        csv(experiment, comparison, &pairs, &differences),
    ))
}

struct Plot<'a> {
    svg: Svg,
    pairs: &'a [(&'a Trial, &'a Trial)],
    experiment: &'a Experiment,
    comparison: &'a Comparison,
}

impl Plot<'_> {
    /// Place of a pair.
    fn x(&self, pair: usize) -> f64 {
        LEFT + (PLOT - LEFT) * (pair as f64 + 0.5) / self.pairs.len() as f64
    }

    /// Marks and lines across the plot.
    fn scale(&mut self, y: &Ruler, unit: &str, say: impl Fn(f64) -> String) {
        for tick in y.ticks(unit, 5.0) {
            let place = y.place(tick);
            let class = if tick == 0.0 { "ink" } else { "grid" };
            self.svg.line((LEFT, place), (PLOT, place), class);
            let text = say(tick);
            self.svg
                .text((LEFT - 8.0, place + 4.0), "faint small end", text);
        }
    }

    /// Both runs of each pair: round the control, square the change, so that colour is not needed.
    fn runs(&mut self) {
        let plan = &self.experiment.plan;
        let metric = plan.metric;
        let (top, bottom) = (50.0, 200.0);
        let heading = (0.0, 16.0);
        self.svg.text(heading, "faint small", metric_line(metric));
        let legend = [
            (plan.arm_name(self.comparison.against), true),
            (plan.arm_name(self.comparison.arm), false),
        ];
        let mut right = LEFT;
        for (name, is_control) in legend {
            let name = cut(name, LONGEST);
            self.mark((right + 5.0, 33.0), is_control, "");
            self.svg.text((right + 15.0, 37.0), "ink small", &name);
            right += 35.0 + 7.2 * name.chars().count() as f64;
        }
        let values = self.pairs.iter().flat_map(|(a, b)| [a.value, b.value]);
        let y = Ruler::over(airy(values.flatten()), Scale::Fitted, bottom, top);
        let unit = if metric.is_time() { "s" } else { "bit/s" };
        self.scale(&y, unit, |v| value(metric, Some(v)));
        for (n, (a, b)) in self.pairs.iter().enumerate() {
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
        match is_control {
            true => self.svg.dot((x, y), 4.0, "s0", title),
            false => self
                .svg
                .titled_rect((x - 4.0, y - 4.0), (8.0, 8.0), "s1", title),
        }
    }

    /// What they differ by, and the effect at the right.
    fn differences(&mut self, differences: &[Option<f64>]) {
        let plan = &self.experiment.plan;
        let metric = plan.metric;
        let (top, bottom) = (250.0, 410.0);
        let heading = format!("Difference of each pair, in per cent {}", unit(metric));
        self.svg.text((0.0, top - 16.0), "faint small", heading);
        let band = margins(plan.margin);
        let effect = self.comparison.estimate.as_ref().map(|estimate| {
            let middle = of_metric(metric, estimate.effect_share);
            (middle, range(metric, estimate))
        });
        let ends = effect.iter().flat_map(|(_, r)| [r.low, r.high]);
        let all = differences
            .iter()
            .flatten()
            .copied()
            .chain(band)
            .chain(ends);
        let y = Ruler::over(airy(all), Scale::Fitted, bottom, top);
        let [low, high] = band.map(|end| y.place(end));
        self.svg
            .rect((LEFT, high), (PLOT - LEFT, low - high), "good soft");
        for place in [low, high] {
            self.svg.line((LEFT, place), (PLOT, place), "good dashed");
        }
        self.scale(&y, " %", signed);
        let every = 1 + differences.len() / NUMBERED;
        for (n, difference) in differences.iter().enumerate() {
            if let Some(d) = difference {
                let title = format!("pair {}: {}", n + 1, signed(*d));
                self.mark((self.x(n), y.place(*d)), false, &title);
            }
            if n % every == 0 {
                let place = (self.x(n), bottom + 18.0);
                self.svg.text(place, "faint small middle", n + 1);
            }
        }
        if let Some((middle, Range { low, high })) = effect {
            let x = PLOT + 28.0;
            let title = format!("{}: {} to {}", signed(middle), signed(low), signed(high));
            interval(&mut self.svg, [(x, y.place(low)), (x, y.place(high))]);
            let corner = (x - 5.0, y.place(middle) - 5.0);
            self.svg.titled_rect(corner, (10.0, 10.0), "ink", &title);
            self.svg
                .text((x, bottom + 18.0), "ink small middle", "effect");
        }
        self.svg.height = bottom + 28.0;
    }
}

/// A line with a stroke across each end.
pub(super) fn interval(svg: &mut Svg, ends: [(f64, f64); 2]) {
    let [a, b] = ends;
    svg.line(a, b, "ink thick");
    let across = if a.0 == b.0 { (5.0, 0.0) } else { (0.0, 5.0) };
    for (x, y) in ends {
        let (dx, dy) = across;
        svg.line((x - dx, y - dy), (x + dx, y + dy), "ink thick");
    }
}

/// The whole pairs of the control and this arm, in order of time.
fn paired(experiment: &Experiment, arm: u32) -> Vec<(&Trial, &Trial)> {
    let judged = experiment
        .trials
        .iter()
        .rev()
        .find(|t| matches!(t.phase, Phase::Main | Phase::Confirmation))
        .map(|t| t.phase);
    let of = |wanted: u32| {
        let trials = experiment.trials.iter();
        trials.filter(move |t| Some(t.phase) == judged && t.arm == wanted)
    };
    of(0)
        .filter_map(|a| Some((a, of(arm).find(|b| b.block == a.block)?)))
        .collect()
}

fn csv(
    experiment: &Experiment,
    comparison: &Comparison,
    pairs: &[(&Trial, &Trial)],
    differences: &[Option<f64>],
) -> String {
    let plan = &experiment.plan;
    let unit = if plan.metric.is_time() { "s" } else { "bit_s" };
    let mut table = Table::default();
    let arms = [comparison.against, comparison.arm].map(|arm| escape(plan.arm_name(arm)));
    let [control, arm] = &arms;
    table.row(&[
        "pair".to_owned(),
        format!("{control} run"),
        format!("{control} {unit}"),
        format!("{arm} run"),
        format!("{arm} {unit}"),
        "difference_share".to_owned(),
    ]);
    let cell = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    for (n, ((a, b), difference)) in pairs.iter().zip(differences).enumerate() {
        table.row(&[
            (n + 1).to_string(),
            a.number.to_string(),
            cell(a.value),
            b.number.to_string(),
            cell(b.value),
            cell(*difference),
        ]);
    }
    table.text
}
