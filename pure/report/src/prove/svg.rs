//! Pictures of an experiment, each one self-contained file: no script, no font, nothing fetched.

use super::phrase;
use crate::words::{escape, is_unprintable};
use model::{ArmTable, Estimate, Experiment, Metric, Outcome, Phase, Plan, Trial, Verdict};
use std::fmt::{Display, Write as _};

/// Width of every picture.
const WIDTH: f64 = 760.0;
/// Left and right edge of the plotted part.
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 24.0;
/// Longest name that is drawn.
const LONGEST: usize = 60;

/// Colours for light and dark: the picture brings its own ground, so that it reads on any page.
/// Plain classes, for some viewers know no variables; those that know no dark scheme show the light one.
const STYLE: &str = "<style>\
text{font:13px system-ui,sans-serif;fill:#1b1f24}.f{fill:#5b6570;font-size:12px}.h{font-size:15px;font-weight:600}\
.e{text-anchor:end}.m{text-anchor:middle}.n{fill:#fff}.g{stroke:#d5dae0}.z{stroke:#7c8792;stroke-width:1.4}\
.w{stroke:#1b1f24;stroke-width:2}.t{fill:#dcebdc}.a{fill:#5b7fa6}.b{fill:#d1651f}\
.p{fill:#fff;stroke:#5b7fa6;stroke-width:2}.q{fill:#d1651f;stroke:#d1651f;stroke-width:2}\
@media (prefers-color-scheme:dark){text{fill:#e8ebee}.f{fill:#a0a9b3}.n{fill:#15181c}.g{stroke:#353c44}.z{stroke:#7c8792}\
.w{stroke:#e8ebee}.t{fill:#22352a}.a{fill:#7ea6d2}.b{fill:#ee8c4a}.p{fill:#15181c;stroke:#7ea6d2}.q{fill:#ee8c4a;stroke:#ee8c4a}}\
</style>";

/// A picture that grows downwards.
struct Svg {
    body: String,
    height: f64,
}

impl Svg {
    /// Begins with a headline and a line below it.
    fn new(headline: &str, below: &str) -> Svg {
        let mut svg = Svg {
            body: String::new(),
            height: 64.0,
        };
        svg.text(16.0, 26.0, "h", headline);
        svg.text(16.0, 46.0, "f", below);
        svg
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: impl Display) {
        let text = inert(&text.to_string());
        let _ = write!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>"
        );
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = write!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        let (width, height) = (width.max(0.0), height.max(0.0));
        let _ = write!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        );
    }

    /// A dot; hollow for the control, so that colour is not needed to tell the arms apart.
    fn dot(&mut self, (x, y): (f64, f64), control: bool, title: &str) {
        let class = if control { "p" } else { "q" };
        let title = inert(title);
        let _ = write!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"{class}\"><title>{title}</title></circle>"
        );
    }

    fn finish(self, title: &str) -> String {
        let (height, title) = (self.height + 14.0, inert(title));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\"><title>{title}</title>{STYLE}<rect width=\"100%\" height=\"100%\" class=\"n\"/>{}</svg>\n",
            self.body
        )
    }
}

/// Values to places on the picture.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Covers all of `values` with some air.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (low, high) = values
            .filter(|v| v.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| {
                (l.min(v), h.max(v))
            });
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let air = ((high - low) * 0.06).max(high.abs() * 1e-3).max(1e-9);
        Scale {
            low: low - air,
            high: high + air,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    /// Four to ten round values.
    fn ticks(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .map(|m| m * power)
            .into_iter()
            .find(|s| *s >= rough)
            .unwrap_or(10.0 * power);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last.min(first + 12))
            .map(|n| n as f64 * step)
            .collect()
    }
}

/// The classic picture: average, median, minimum and maximum of every arm. Bars begin at zero.
pub fn bars(experiment: &Experiment, verdict: &Verdict) -> String {
    let plan = &experiment.plan;
    let metric = plan.metric;
    let mut svg = Svg::new(&phrase::question(plan), metric_line(metric));
    let stats = |a: &ArmTable| {
        [
            ("average", a.average),
            ("median", a.median),
            ("minimum", a.min),
            ("maximum", a.max),
        ]
    };
    let most = verdict
        .arms
        .iter()
        .filter_map(|a| a.max)
        .fold(0.0, f64::max);
    let scale = Scale {
        low: 0.0,
        high: most.max(1e-12),
        from: 90.0,
        to: RIGHT - 110.0,
    };
    for (at, arm) in verdict.arms.iter().enumerate() {
        let name = short(&arm.name);
        let head = format!("{name}  ({} runs, {} bad)", arm.runs, arm.bad);
        svg.text(16.0, svg.height + 16.0, "", head);
        svg.height += 24.0;
        for (label, value) in stats(arm) {
            let y = svg.height;
            svg.text(82.0, y + 13.0, "f e", label);
            if let Some(value) = value {
                let class = if at == 0 { "a" } else { "b" };
                let end = scale.at(value);
                svg.rect((90.0, y + 2.0), (end - 90.0, 13.0), class);
                svg.text(end + 6.0, y + 13.0, "f", phrase::value(metric, Some(value)));
            }
            svg.height += 18.0;
        }
        svg.height += 10.0;
    }
    svg.height += 16.0;
    svg.text(
        16.0,
        svg.height,
        "f",
        "Runs are the sample: their seconds depend on each other.",
    );
    svg.finish("average, median, minimum and maximum of every arm")
}

/// Pair by pair: both runs, their difference, the effect with its interval, and the band of
/// differences that do not matter. Empty if the plan does not compare two arms.
pub fn pairs(experiment: &Experiment, verdict: &Verdict) -> String {
    let plan = &experiment.plan;
    let [comparison] = &verdict.comparisons[..] else {
        return String::new();
    };
    let blocks = paired(experiment, comparison.arm);
    let mut svg = Svg::new(&phrase::question(plan), &answer_line(verdict));
    let count = blocks.len().max(1) as f64;
    let right = RIGHT - 60.0;
    let x = |n: usize| LEFT + 14.0 + (right - LEFT - 28.0) * (n as f64 + 0.5) / count;

    // Both runs of each pair.
    let (top, bottom) = (svg.height + 26.0, svg.height + 176.0);
    svg.text(16.0, top - 10.0, "f", metric_line(plan.metric));
    let values = || {
        blocks
            .iter()
            .flat_map(|(a, b)| [a.value, b.value])
            .flatten()
    };
    let y = Scale::over(values(), bottom, top);
    for tick in y.ticks() {
        svg.line((LEFT, y.at(tick)), (right, y.at(tick)), "g");
        svg.text(
            LEFT - 6.0,
            y.at(tick) + 4.0,
            "f e",
            phrase::value(plan.metric, Some(tick.max(0.0))),
        );
    }
    for (n, (a, b)) in blocks.iter().enumerate() {
        if let (Some(a), Some(b)) = (a.value, b.value) {
            svg.line((x(n), y.at(a)), (x(n), y.at(b)), "z");
        }
        for (control, trial) in [(true, a), (false, b)] {
            match trial.value {
                Some(value) => {
                    let title = format!(
                        "run {}: {}",
                        trial.number,
                        phrase::value(plan.metric, Some(value))
                    );
                    svg.dot((x(n), y.at(value)), control, &title);
                }
                // A failed run has no value: a cross at the foot.
                None => svg.text(x(n), bottom + 4.0, "m", "\u{d7}"),
            }
        }
    }
    let legend = [
        (true, plan.arm_name(comparison.against)),
        (false, plan.arm_name(comparison.arm)),
    ];
    let mut at = right;
    for (control, name) in legend.into_iter().rev() {
        let name = short(name);
        svg.text(at, top - 10.0, "f e", &name);
        at -= 7.4 * name.chars().count() as f64 + 10.0;
        svg.dot((at, top - 14.0), control, &name);
        at -= 18.0;
    }

    // Their differences.
    let (top, bottom) = (bottom + 50.0, bottom + 230.0);
    svg.text(
        16.0,
        top - 10.0,
        "f",
        format!(
            "Difference of each pair, in per cent {}",
            phrase::unit(plan.metric)
        ),
    );
    let differences: Vec<Option<f64>> = blocks
        .iter()
        .map(|(a, b)| Some(b.value? / a.value? - 1.0))
        .collect();
    let band = band(plan);
    let estimate = comparison.estimate.as_ref().map(|e| {
        (
            phrase::of_metric(plan.metric, e.effect_share),
            phrase::range(plan.metric, e),
        )
    });
    let ends = estimate.iter().flat_map(|(v, r)| [*v, r.low, r.high]);
    let y = Scale::over(
        differences
            .iter()
            .flatten()
            .copied()
            .chain(band)
            .chain(ends),
        bottom,
        top,
    );
    let (above, below) = (y.at(band[1]), y.at(band[0]));
    svg.rect((LEFT, above), (right - LEFT, below - above), "t");
    for tick in y.ticks() {
        let class = if tick == 0.0 { "z" } else { "g" };
        svg.line((LEFT, y.at(tick)), (right, y.at(tick)), class);
        svg.text(LEFT - 6.0, y.at(tick) + 4.0, "f e", phrase::signed(tick));
    }
    for (n, difference) in differences.iter().enumerate() {
        if let Some(d) = difference {
            svg.dot(
                (x(n), y.at(*d)),
                false,
                &format!("pair {}: {}", n + 1, phrase::signed(*d)),
            );
        }
        if n % (1 + blocks.len() / 20) == 0 {
            svg.text(x(n), bottom + 18.0, "f m", n + 1);
        }
    }
    if let Some((value, range)) = estimate {
        let at = right + 22.0;
        svg.line((at, y.at(range.low)), (at, y.at(range.high)), "w");
        for end in [range.low, range.high] {
            svg.line((at - 5.0, y.at(end)), (at + 5.0, y.at(end)), "w");
        }
        svg.rect((at - 5.0, y.at(value) - 5.0), (10.0, 10.0), "b");
        svg.text(at, bottom + 18.0, "f m", "effect");
    }
    svg.height = bottom + 44.0;
    let note = format!(
        "Shaded: less than the {} that matters. Square: the effect with its interval.",
        phrase::share(plan.margin)
    );
    svg.text(16.0, svg.height, "f", note);
    svg.finish("paired runs and the effect")
}

/// Every comparison, or every effect of a factorial plan, with its interval.
pub fn forest(experiment: &Experiment, verdict: &Verdict) -> String {
    let plan = &experiment.plan;
    let of_arms = verdict
        .comparisons
        .iter()
        .map(|c| (plan.arm_name(c.arm).to_owned(), c.outcome, c.estimate));
    let of_factors = verdict
        .effects
        .iter()
        .map(|e| (e.name.clone(), e.outcome, Some(e.estimate)));
    let rows: Vec<(String, Outcome, Option<Estimate>)> = of_arms.chain(of_factors).collect();
    let against = escape(plan.arm_name(0));
    let mut svg = Svg::new(
        &phrase::question(plan),
        &format!(
            "Against {against}, in per cent {}, with intervals",
            phrase::unit(plan.metric)
        ),
    );
    let band = band(plan);
    let ends = rows
        .iter()
        .filter_map(|(_, _, e)| e.as_ref())
        .flat_map(|e| {
            let range = phrase::range(plan.metric, e);
            [range.low, range.high]
        });
    let x = Scale::over(
        ends.chain(band).collect::<Vec<_>>().into_iter(),
        LEFT,
        RIGHT - 20.0,
    );
    let top = svg.height;
    let bottom = top + 46.0 * rows.len() as f64;
    svg.rect(
        (x.at(band[0]), top),
        (x.at(band[1]) - x.at(band[0]), bottom - top),
        "t",
    );
    for tick in x.ticks() {
        let class = if tick == 0.0 { "z" } else { "g" };
        svg.line((x.at(tick), top), (x.at(tick), bottom), class);
        svg.text(x.at(tick), bottom + 16.0, "f m", phrase::signed(tick));
    }
    for (n, (name, outcome, estimate)) in rows.iter().enumerate() {
        let y = top + 46.0 * n as f64;
        svg.text(16.0, y + 16.0, "", short(name));
        svg.text(RIGHT, y + 16.0, "f e", phrase::answer(*outcome));
        if let Some(e) = estimate {
            let range = phrase::range(plan.metric, e);
            let y = y + 32.0;
            svg.line((x.at(range.low), y), (x.at(range.high), y), "w");
            for end in [range.low, range.high] {
                svg.line((x.at(end), y - 5.0), (x.at(end), y + 5.0), "w");
            }
            let at = x.at(phrase::of_metric(plan.metric, e.effect_share));
            svg.rect((at - 5.0, y - 5.0), (10.0, 10.0), "b");
        }
    }
    svg.height = bottom + 42.0;
    let note = format!(
        "Shaded: less than the {} that matters.",
        phrase::share(plan.margin)
    );
    svg.text(16.0, svg.height, "f", note);
    svg.finish("effects with their intervals")
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

/// The changes of the metric that do not matter.
fn band(plan: &Plan) -> [f64; 2] {
    [1.0 / (1.0 + plan.margin) - 1.0, plan.margin]
}

fn metric_line(metric: Metric) -> &'static str {
    match metric {
        Metric::Goodput => "Goodput of each run after its ramp: more is better",
        Metric::Completion => "Time of each transfer: less is better",
        Metric::LatencyP50 => "Median latency of each run: less is better",
        Metric::LatencyP99 => "99th percentile of latency of each run: less is better",
    }
}

fn answer_line(verdict: &Verdict) -> String {
    format!("{}.", phrase::answer(verdict.outcome))
}

fn short(name: &str) -> String {
    let name = escape(name);
    match name.chars().count() {
        0..=LONGEST => name,
        _ => name
            .chars()
            .take(LONGEST - 3)
            .chain("...".chars())
            .collect(),
    }
}

/// Text for XML; control characters, which it cannot hold at all, are left out.
fn inert(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !is_unprintable(*c)) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
