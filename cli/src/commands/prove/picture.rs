//! An experiment while it goes on: the pairs so far, the run of now, the time that is left. The
//! figures may be watched without harm: nothing here is a claim, and nothing decides by it.

use crate::live::{LivePicture, View};
use engine::experiment::Audience;
use engine::progress::Event;
use model::{BitRate, Design, Experiment, Metric, Nanos, Plan, Spec, Trial, TrialPhase, Verdict};
use prove::TrialSlot;
use report::Style;
use report::live::Live;
use report::prove::signed;
use report::words::{escape, round_span};

/// Pairs that are drawn; older ones scroll away.
const SHOWN: usize = 12;

#[derive(Default)]
pub struct Pairs {
    done: Vec<String>,
    /// Of `done`, how many were printed as lines.
    printed: usize,
    left: Option<String>,
    so_far: String,
    now: String,
    live: Option<Live>,
}

impl Audience for View<Pairs> {
    fn note(&mut self, words: &str) {
        self.report(words);
    }

    fn looks(&mut self, spec: &Spec) {
        self.update(|pairs| {
            *pairs = Pairs {
                live: Some(Live::new(spec)),
                ..Pairs::default()
            };
        });
    }

    fn begins(&mut self, experiment: &Experiment, slot: TrialSlot) {
        let plan = &experiment.plan;
        let first = experiment.trials.is_empty();
        let piloted = plan.pilot_pairs > 0 && slot.phase == TrialPhase::Main;
        if first || (piloted && (slot.block, slot.position) == (0, 0)) {
            let forecast = prove::forecast(plan, &experiment.trials);
            let words = report::prove::forecast(plan, &forecast, Style::PLAIN);
            self.report(words.trim_end());
        }
        self.update(|pairs| {
            pairs.now = what(&experiment.plan, slot);
            pairs.live = Some(Live::new(&experiment.plan.spec_of(slot.arm)));
        });
    }

    fn kept(&mut self, experiment: &Experiment) {
        self.update(|pairs| {
            pairs.live = None;
            let verdict = prove::judge(experiment);
            pairs.so_far = report::prove::monitor(experiment, &verdict, Style::PLAIN);
            if let Some(line) = block_done(experiment, &verdict) {
                pairs.done.push(line);
                pairs.left = left(experiment);
            }
        });
    }
}

impl LivePicture for Pairs {
    fn plain(&mut self) -> Vec<String> {
        let mut new = self.done[self.printed..].to_vec();
        self.printed = self.done.len();
        if let (Some(last), Some(left)) = (new.last_mut(), &self.left) {
            *last += &format!("  {left}");
        }
        new
    }

    fn frame(&self, style: Style) -> Vec<String> {
        let from = self.done.len().saturating_sub(SHOWN);
        let mut lines: Vec<String> = self.done[from..].to_vec();
        lines.extend(self.so_far.lines().map(str::to_owned));
        let left = self.left.iter().map(|left| format!("; {left}"));
        lines.push(self.now.clone() + &left.collect::<String>());
        let width = usize::from(style.width.max(1));
        for line in &mut lines {
            *line = line.chars().take(width).collect();
        }
        lines.extend(self.live.iter().flat_map(|live| live.frame(style)));
        lines
    }

    fn event(&mut self, event: &Event<'_>) {
        if let Some(live) = &mut self.live {
            LivePicture::event(live, event);
        }
    }
}

fn what(plan: &Plan, slot: TrialSlot) -> String {
    let arm = escape(plan.arm_name(slot.arm));
    let block = slot.block + 1;
    match slot.phase {
        TrialPhase::Discarded => "warming up".to_owned(),
        TrialPhase::Pilot => format!("pilot {block} of {}: {arm}", plan.pilot_pairs),
        TrialPhase::Main | TrialPhase::Confirmation => {
            format!("{} {block}: {arm}", word(plan, slot.phase))
        }
    }
}

fn word(plan: &Plan, phase: TrialPhase) -> &'static str {
    match (phase, &plan.design) {
        (TrialPhase::Confirmation, _) => "confirmation",
        (_, Design::Pairs { .. }) => "pair",
        _ => "block",
    }
}

/// A line for the block that the last trial completes.
fn block_done(experiment: &Experiment, verdict: &Verdict) -> Option<String> {
    let plan = &experiment.plan;
    let last = experiment.trials.last()?;
    let here = |phase, block| (phase, block) == (last.phase, last.block);
    let next = prove::next(plan, &experiment.trials);
    let goes_on = next.is_some_and(|slot| here(slot.phase, slot.block));
    if goes_on || last.phase == TrialPhase::Discarded {
        return None;
    }
    let trials = experiment.trials.iter();
    let mut block: Vec<&Trial> = trials.filter(|t| here(t.phase, t.block)).collect();
    let number = last.block + 1;
    if last.phase == TrialPhase::Pilot {
        let values: Vec<String> = block.iter().map(|t| value(plan.metric, t)).collect();
        let values = values.join(", ");
        return Some(format!("pilot {number} of {}: {values}", plan.pilot_pairs));
    }
    block.sort_by_key(|t| t.arm);
    let arm = |t: &&Trial| format!("{} {}", escape(plan.arm_name(t.arm)), value(plan.metric, t));
    let arms: Vec<String> = block.iter().map(arm).collect();
    let mut line = format!("{} {number}: {}", word(plan, last.phase), arms.join(", "));
    if let [control, changed] = block[..]
        && let (Some(a), Some(b)) = (control.value, changed.value)
    {
        let faster = if plan.metric.is_time() { a / b } else { b / a };
        line += &format!("  {}", signed(faster - 1.0));
    }
    if let [comparison] = &verdict.comparisons[..]
        && let Some(share) = comparison.running_share
    {
        line += &format!(" (so far {})", signed(share));
    }
    Some(line)
}

fn value(metric: Metric, trial: &Trial) -> String {
    match trial.value {
        None => "failed".to_owned(),
        Some(rate) if metric == Metric::Goodput => BitRate(rate as u64).to_string(),
        Some(seconds) => Nanos((seconds * 1e9) as u64).to_string(),
    }
}

/// The time that is left at most, from how long runs take.
fn left(experiment: &Experiment) -> Option<String> {
    let forecast = prove::forecast(&experiment.plan, &experiment.trials);
    let made = experiment.trials.len() as u64;
    let runs = u64::from(forecast.runs_most).saturating_sub(made);
    let left = Nanos(forecast.run?.0.saturating_mul(runs));
    (runs > 0).then(|| format!("{} left at most", round_span(left)))
}
