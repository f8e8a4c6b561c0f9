//! The words of a verdict, once for every form of output. What comes from a file is escaped here.

use crate::words::{counted, escape, escape_sentence, grouped, percent, shown};
use model::{
    BitRate, Check, Comparison, Design, Estimand, Estimate, Experiment, FactorEffect, GateState,
    LegLimit, Metric, Nanos, Outcome, Plan, TrialPhase, Verdict,
};
use std::fmt;

/// Name of an arm in which nothing is set, as `prove` gives it.
const BASELINE: &str = "baseline";
/// How the sentence of an equivalence begins.
const WITHIN: &str = "within ";
/// The note under every classic table.
pub(crate) const RUNS_ARE_THE_SAMPLE: &str = "Runs are the sample: the seconds within a run depend on each other, and their spread says nothing of the next run.";

/// The answer in its words.
pub fn answer(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Faster => "FASTER",
        Outcome::Slower => "SLOWER",
        Outcome::NoDifference => "EQUIVALENT",
        Outcome::NotEnoughData => "NOT ENOUGH DATA",
        Outcome::NoVerdict => "NO VERDICT",
    }
}

/// An experiment and what it shows.
pub(crate) type Judged<'a> = (&'a Experiment, &'a Verdict);

/// The answer on an arm or a factor.
#[derive(Default)]
pub(crate) struct Answer {
    /// The arm, where there are several; else empty.
    pub(crate) of: String,
    pub(crate) headline: &'static str,
    pub(crate) sentences: Vec<String>,
    /// Totals and bad runs, not judged.
    pub(crate) beside: Vec<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.of.is_empty() {
            write!(f, "{}: ", self.of)?;
        }
        let sentences = self.sentences.join(" ");
        let joint = match sentences.starts_with(WITHIN) {
            true => " ",
            false if sentences.is_empty() => "",
            false => ": ",
        };
        write!(f, "{}{joint}{sentences}", self.headline)
    }
}

/// All answers of an experiment; if a gate failed, that is the only one.
pub(crate) fn answers(experiment: &Experiment, verdict: &Verdict) -> Vec<Answer> {
    let plan = &experiment.plan;
    let nothing = verdict.comparisons.is_empty() && verdict.effects.is_empty();
    if verdict.outcome == Outcome::NoVerdict || nothing {
        let mut why: Vec<String> = evidence(verdict, GateState::Failed).collect();
        if why.is_empty() {
            why.push(format!("{} so far.", runs_made(experiment)));
        }
        return vec![Answer {
            headline: answer(verdict.outcome),
            sentences: why,
            ..Answer::default()
        }];
    }
    let several = verdict.comparisons.len() > 1;
    let of_arm = |c: &Comparison| {
        let mut sentences = comparison((experiment, verdict), c);
        if !several {
            sentences.extend(validity(plan, c.outcome));
        }
        let judged = c.outcome != Outcome::NoVerdict && c.pairs_so_far > 0;
        let of = several.then(|| escape(plan.arm_name(c.arm)));
        Answer {
            of: of.unwrap_or_default(),
            headline: answer(c.outcome),
            sentences,
            beside: match judged {
                true => beside(plan, verdict, c),
                false => Vec::new(),
            },
        }
    };
    let of_factor = |e: &FactorEffect| Answer {
        headline: answer(e.outcome),
        sentences: vec![format!("{}.", effect(plan, e))],
        ..Answer::default()
    };
    let arms = verdict.comparisons.iter().map(of_arm);
    arms.chain(verdict.effects.iter().map(of_factor)).collect()
}

/// What the checks found that ended so.
pub(crate) fn evidence(verdict: &Verdict, state: GateState) -> impl Iterator<Item = String> {
    let gates = verdict.gates.iter().filter(move |g| g.state == state);
    gates.map(|g| escape_sentence(&g.evidence))
}

/// What holds for all answers together, where there are several.
pub(crate) fn of_all(experiment: &Experiment, verdict: &Verdict) -> Vec<String> {
    let factors = !verdict.effects.is_empty();
    let several = verdict.comparisons.len() > 1 || factors;
    let all = [
        factors.then(|| blocks(experiment, verdict)),
        several
            .then(|| validity(&experiment.plan, verdict.outcome))
            .flatten(),
    ];
    let judged = verdict.outcome != Outcome::NoVerdict;
    all.into_iter().flatten().filter(|_| judged).collect()
}

/// `46 runs`.
pub(crate) fn runs_made(experiment: &Experiment) -> String {
    counted(experiment.trials.len() as u64, "run")
}

/// What the plan asked, in one line.
pub(crate) fn question(plan: &Plan) -> String {
    let arms: Vec<String> = plan.arms[1..].iter().map(|a| escape(&a.name)).collect();
    let against = escape(plan.arm_name(0));
    let what = match &plan.design {
        Design::Pairs { .. } => format!("{} against {against}", arms.join(", ")),
        Design::Blocks { .. } => format!("{} arms against {against}", arms.len()),
        Design::Factorial { factors, .. } => {
            let names: Vec<String> = factors.iter().map(|f| escape(&f.name)).collect();
            format!("{} in all combinations", names.join(", "))
        }
        Design::Search { .. } => format!("a search among {} arms", arms.len()),
    };
    let host = escape(&plan.host);
    format!("{what}: {} {} to {host}", plan.metric, plan.direction).replace("down to", "down from")
}

/// The answer on one arm against the control, behind its headline.
pub(crate) fn comparison(of: Judged<'_>, c: &Comparison) -> Vec<String> {
    let (plan, verdict) = (&of.0.plan, of.1);
    let (unit, margin) = (unit(plan.metric), share(plan.margin));
    let (Some(estimate), true) = (&c.estimate, c.outcome != Outcome::NoVerdict) else {
        if c.outcome == Outcome::NoVerdict {
            let failed = evidence(verdict, GateState::Failed);
            let found = failed.chain(evidence(verdict, GateState::Warned));
            return found.take(1).collect();
        }
        let so_far = match c.pairs_so_far {
            0 => "No pair is complete.".to_owned(),
            n => format!(
                "{} so far, and nothing can be said from them yet.",
                pairs(n)
            ),
        };
        return [so_far].into_iter().chain(next_look(c)).collect();
    };
    let Range { low, high } = range(plan.metric, estimate);
    let (low, high) = (signed(low), signed(high));
    match c.outcome {
        Outcome::Faster | Outcome::Slower => vec![
            effect_sentence(of, c, estimate),
            match c.beyond_margin {
                true => format!("The whole CI lies beyond the margin of {margin}."),
                false => format!("Whether it exceeds the margin of {margin} is open."),
            },
        ],
        Outcome::NoDifference => {
            let found = circumstances(of, c, estimate);
            let option = margin.replace(' ', "");
            let first = format!(
                "{WITHIN}\u{b1}{margin} (threshold: --margin {option}): {low} to {high} {unit} ({found})."
            );
            let way = match (estimate.low_share > 0.0, estimate.high_share < 0.0) {
                (true, _) => Some("faster"),
                (_, true) => Some("slower"),
                _ => None,
            };
            // What cannot act has no direction either.
            let acts = verdict.gates.iter().all(|g| g.check != Check::Relevance);
            let way = way.filter(|_| acts);
            let way = way.map(|way| format!("It is {way}, by less than the margin."));
            [first].into_iter().chain(way).collect()
        }
        Outcome::NotEnoughData | Outcome::NoVerdict => {
            let pairs = pairs(c.pairs);
            let first = format!("Anything from {low} to {high} {unit} fits {pairs}.");
            let all = [Some(first), next_look(c), what_would_settle(plan, c)];
            all.into_iter().flatten().collect()
        }
    }
}

/// `median goodput with bbr 13.8x baseline (97.5 % CI 9.9x-16.3x; ...)`.
fn effect_sentence(of: Judged<'_>, c: &Comparison, estimate: &Estimate) -> String {
    let plan = &of.0.plan;
    let typical = plan.estimand == Estimand::Typical;
    let what = match (plan.metric, typical) {
        (Metric::Goodput, true) => "median goodput",
        (Metric::Goodput, false) => "total goodput",
        (Metric::Completion, true) => "median transfer time",
        (Metric::Completion, false) => "total transfer time",
        (Metric::LatencyP50, true) => "median latency of a typical run",
        (Metric::LatencyP50, false) => "median latencies of all runs together",
        (Metric::LatencyP99, true) => "99th percentile of latency in a typical run",
        (Metric::LatencyP99, false) => "99th percentiles of latency of all runs together",
    };
    let against = match plan.arm_name(c.against) {
        BASELINE => BASELINE.to_owned(),
        name => format!("that with {}", escape(name)),
    };
    let change = of_metric(plan.metric, estimate.effect_share);
    let change = match in_times(plan.metric, estimate) {
        true => format!("{}x {against}", times(change)),
        false => format!("{} against {against}", signed(change)),
    };
    format!(
        "{what} {} {change} ({}).",
        with(plan.arm_name(c.arm)),
        circumstances(of, c, estimate),
    )
}

/// The interval, the pairs, how long it took, and the name of the experiment.
fn circumstances((experiment, verdict): Judged<'_>, c: &Comparison, estimate: &Estimate) -> String {
    let plan = &experiment.plan;
    let interval = match c.outcome {
        Outcome::NoDifference => format!("{} CI", level(estimate)),
        _ => interval(plan.metric, estimate),
    };
    format!(
        "{interval}; {} of {} in random order, {}, plan {}",
        pairs(c.pairs),
        runs(plan),
        span(verdict.elapsed),
        shown(&experiment.id),
    )
}

/// How often chance alone gives a verdict, and for what it holds.
fn validity(plan: &Plan, outcome: Outcome) -> Option<String> {
    let chance = match (&plan.design, outcome) {
        (_, Outcome::NotEnoughData | Outcome::NoVerdict) => return None,
        (Design::Blocks { .. } | Design::Factorial { .. }, _) => {
            "If no change did anything, a verdict of faster or slower on any of them would come up at most 5 times in 100."
        }
        _ => {
            "If the change did nothing, a verdict of either kind would come up at most 5 times in 100."
        }
    };
    Some(format!("{chance} Valid for this path and this hour."))
}

/// Totals and bad runs, beside the verdict and not judged.
pub(crate) fn beside(plan: &Plan, verdict: &Verdict, c: &Comparison) -> Vec<String> {
    let totals = c.totals_share.map(|totals| {
        let outside = match (c.totals_outside, plan.estimand) {
            (true, Estimand::Typical) => {
                " That lies outside the CI: a few runs weigh more in the totals than in the typical run."
            }
            _ => "",
        };
        let change = match of_metric(plan.metric, totals) {
            more if more >= 1.0 => format!("{}x", times(more)),
            change => signed(change),
        };
        format!("Totals: {change}.{outside}")
    });
    let arms = verdict.arms.iter();
    let arms = arms.filter(|a| [c.against, c.arm].contains(&a.arm));
    let bad = arms.map(|a| format!("{} {}", escape(&a.name), a.bad));
    let bad = format!("Bad runs: {}.", bad.collect::<Vec<_>>().join(", "));
    totals.into_iter().chain([bad]).collect()
}

/// A factor or two in one line.
pub(crate) fn effect(plan: &Plan, e: &FactorEffect) -> String {
    let beyond = match e.order > 1 {
        true => " beyond what each does alone",
        false => "",
    };
    let change = change(plan.metric, &e.estimate);
    format!(
        "{}: {change}{beyond} ({})",
        escape(&e.name),
        interval(plan.metric, &e.estimate),
    )
}

/// What effects of factors rest on: `6 blocks of 10 s runs in random order, 6 min, plan 3f2a.`
pub(crate) fn blocks(experiment: &Experiment, verdict: &Verdict) -> String {
    let plan = &experiment.plan;
    let blocks = verdict.arms.iter().map(|a| a.runs).min().unwrap_or(0);
    format!(
        "{} of {} in random order, {}, plan {}.",
        counted(blocks.into(), "block"),
        runs(plan),
        span(verdict.elapsed),
        shown(&experiment.id),
    )
}

/// What the rounds of a search did, and what it is worth.
pub(crate) fn search(plan: &Plan, verdict: &Verdict) -> Option<String> {
    let story = verdict.search.as_ref()?;
    let rounds: Vec<String> = story.rounds.iter().map(|r| r.len().to_string()).collect();
    let output = format!("Arms left after each round: {}.", rounds.join(", "));
    Some(match (story.winner, story.looked_share) {
        (Some(winner), Some(looked)) => format!(
            "{output} {} was left, and looked {} {} than {} in the search. That proves nothing, because the best of many looks good at random: what follows are fresh pairs.",
            escape(plan.arm_name(winner)),
            size(of_metric(plan.metric, looked).abs()),
            if looked < 0.0 { "worse" } else { "better" },
            escape(plan.arm_name(0)),
        ),
        _ => output,
    })
}

/// `At this noise (pairs differ by 18 %) about 130 more pairs (65 min) would settle 5 %.`
fn what_would_settle(plan: &Plan, c: &Comparison) -> Option<String> {
    let (noise, more) = (c.noise?, c.more_pairs?);
    let time = c.more_time.map(|t| format!(" ({})", minutes(t)));
    Some(format!(
        "At this noise (pairs differ by {}) about {} more pair{}{} would settle {}.",
        percent(noise),
        grouped(more.into()),
        if more == 1 { "" } else { "s" },
        time.unwrap_or_default(),
        share(plan.margin),
    ))
}

fn next_look(c: &Comparison) -> Option<String> {
    let next = c.next_look?;
    Some(format!(
        "The next look is after {next} pairs (have {}).",
        c.pairs_so_far
    ))
}

// ---- figures ----

/// What a run is for: its name in files, what it does, and what was done.
pub(crate) fn phase(phase: TrialPhase) -> [&'static str; 3] {
    match phase {
        TrialPhase::Discarded => ["discarded", "warming up", "discarded"],
        TrialPhase::Pilot => ["pilot", "pilot", "pilot"],
        TrialPhase::Main => ["main", "comparison", "compared"],
        TrialPhase::Confirmation => ["confirmation", "confirmation", "confirmed"],
    }
}

/// What is measured of each run, and which way is better.
pub(crate) fn metric_line(metric: Metric) -> &'static str {
    match metric {
        Metric::Goodput => "Goodput of each run after its ramp: more is better",
        Metric::Completion => "Time of each transfer: less is better",
        Metric::LatencyP50 => "Median latency of each run: less is better",
        Metric::LatencyP99 => "99th percentile of latency of each run: less is better",
    }
}

/// The same in a word or two, for an axis.
pub(crate) fn metric_words(metric: Metric) -> &'static str {
    match metric {
        Metric::Goodput => "goodput",
        Metric::Completion => "time of a transfer",
        Metric::LatencyP50 => "median latency",
        Metric::LatencyP99 => "99th percentile of latency",
    }
}

/// The unit of its values, and how CSV names it.
pub(crate) fn base_unit(metric: Metric) -> &'static str {
    if metric.is_time() { "s" } else { "bit/s" }
}

pub(crate) fn csv_unit(metric: Metric) -> &'static str {
    if metric.is_time() { "s" } else { "bit_s" }
}

/// The changes of the metric that do not matter.
pub(crate) fn margins(margin: f64) -> [f64; 2] {
    [1.0 / (1.0 + margin) - 1.0, margin]
}

/// The two ends of an interval as a person reads them: more per second, or less time.
pub(crate) struct Range {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A change of speed as a change of the metric: for times, of the time.
pub(crate) fn of_metric(metric: Metric, share: f64) -> f64 {
    match metric.is_time() {
        true => 1.0 / (1.0 + share) - 1.0,
        false => share,
    }
}

pub(crate) fn range(metric: Metric, estimate: &Estimate) -> Range {
    let a = of_metric(metric, estimate.low_share);
    let b = of_metric(metric, estimate.high_share);
    Range {
        low: a.min(b),
        high: a.max(b),
    }
}

/// `95 % CI +6.1 % to +19.0 %` or `95 % CI 2.1x-3.4x`.
pub(crate) fn interval(metric: Metric, estimate: &Estimate) -> String {
    let Range { low, high } = range(metric, estimate);
    let ends = match estimate {
        _ if in_times(metric, estimate) => format!("{}x-{}x", times(low), times(high)),
        _ => format!("{} to {}", signed(low), signed(high)),
    };
    format!("{} CI {ends}", level(estimate))
}

/// `95 %`, `97.5 %`.
pub(crate) fn level(estimate: &Estimate) -> String {
    share(estimate.level)
}

/// From twice as much on a change is a ratio, not a percentage.
fn in_times(metric: Metric, estimate: &Estimate) -> bool {
    of_metric(metric, estimate.effect_share) >= 1.0 && range(metric, estimate).low > 0.0
}

/// `13.8`, of a change by 1279 %.
pub(crate) fn times(change: f64) -> String {
    format!("{:.1}", 1.0 + change)
}

/// `+12.4 % in goodput`, `13.8x in goodput`.
fn change(metric: Metric, estimate: &Estimate) -> String {
    format!("{} {}", changed(metric, estimate), unit(metric))
}

/// `+12.4 %`, `13.8x`.
pub(crate) fn changed(metric: Metric, estimate: &Estimate) -> String {
    let change = of_metric(metric, estimate.effect_share);
    match in_times(metric, estimate) {
        true => format!("{}x", times(change)),
        false => signed(change),
    }
}

/// What a change in per cent is a change of.
pub(crate) fn unit(metric: Metric) -> &'static str {
    if metric.is_time() {
        "in time"
    } else {
        "in goodput"
    }
}

/// `+13.0 %`, `-0.2 %`; never a zero with a sign.
pub fn signed(share: f64) -> String {
    let text = format!("{:+.1} %", share * 100.0);
    match text.as_str() {
        "+0.0 %" | "-0.0 %" => "0.0 %".to_owned(),
        _ => text,
    }
}

/// `12.4 %`.
pub(crate) fn size(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A share that a person chose: `5 %`, `2.5 %`.
pub(crate) fn share(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `with bbr`, or `baseline`.
pub(crate) fn with(name: &str) -> String {
    match name {
        BASELINE => "of the baseline".to_owned(),
        name => format!("with {}", escape(name)),
    }
}

/// `12 pairs`.
pub(crate) fn pairs(n: u32) -> String {
    counted(n.into(), "pair")
}

/// `10 s runs`, `100 MiB transfers`.
pub(crate) fn runs(plan: &Plan) -> String {
    match plan.run.limit {
        LegLimit::Time(time) => format!("{} runs", crate::words::round_span(time)),
        LegLimit::Bytes(bytes) => format!("{bytes} transfers"),
        LegLimit::Requests(n) => format!("runs of {} requests", grouped(n)),
        LegLimit::Whole => "copies".to_owned(),
    }
}

/// `1.5 s runs, each without its first 500 ms`: what is judged.
pub(crate) fn judged_runs(plan: &Plan) -> String {
    let ramp = plan.run.ramp.filter(|ramp| *ramp > Nanos(0));
    let ramp = ramp.map(|ramp| format!(", each without its first {ramp}"));
    runs(plan) + &ramp.unwrap_or_default()
}

/// `45 s`, `6 min 5 s`, `2 h 10 min`.
pub(crate) fn span(time: Nanos) -> String {
    let seconds = time.0.saturating_add(500_000_000) / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
    .replace(" 0 s", "")
    .replace(" 0 min", "")
}

/// A span that is only foreseen: `65 min`, `5 h`.
pub(crate) fn minutes(time: Nanos) -> String {
    let minutes = time.as_secs_f64() / 60.0;
    match minutes {
        m if m < 1.0 => "under a minute".to_owned(),
        m if m < 180.0 => format!("{m:.0} min"),
        m => format!("{:.0} h", m / 60.0),
    }
}

/// A value of the metric in its own unit.
pub(crate) fn value(metric: Metric, value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(v) if metric.is_time() => Nanos((v * 1e9) as u64).to_string(),
        Some(v) => BitRate(v as u64).to_string(),
    }
}

/// A p-value; never zero.
pub(crate) fn p(p: f64) -> String {
    match p < 0.0001 {
        true => "p < 0.0001".to_owned(),
        false => format!("p = {p:.4}"),
    }
}
