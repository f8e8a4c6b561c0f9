//! The page of the demonstration: a path that is slow one way, why, what helps, what does not.

use crate::explain;
use crate::prelude::*;
use crate::prove::{in_short, phrase};
use crate::tune::Judged;
use model::{Fate, Fingerprint, Tuning, Warning, summarise};

/// What happened.
pub struct Demonstration {
    /// Both directions before any change.
    pub run: Run,
    /// What limited them.
    pub why: Vec<Explanation>,
    /// The page of that.
    pub measured: Page,
    /// The way that was tuned.
    pub tuning: Tuning,
    /// Its experiments.
    pub judged: Vec<Judged>,
    /// A remedy that many would try: one variant beside the baseline.
    pub popular: Judged,
    /// What was restored, a line each.
    pub put_back: Vec<String>,
    /// Doubts about the whole.
    pub warnings: Vec<Warning>,
}

/// The page of a demo: its answers, then the page of each of its parts.
pub fn demo(demo: &Demonstration) -> Page {
    let there = there(demo);
    let (experiment, verdict) = &demo.popular;
    let tuned = super::tuning(&demo.tuning, &demo.judged);
    let popular = super::experiment(experiment, verdict);
    let mut sections = chapter("Measured", "measured", 1, demo.measured.clone());
    // Before and after, and what proves it.
    sections.extend(chapter("Tuned", "tuned", 2, tuned));
    let name = escape(experiment.plan.arm_name(1));
    sections.extend(chapter(
        &format!("A popular remedy, {name}"),
        "popular",
        1,
        popular,
    ));
    sections.push(undone(demo));
    Page {
        title: format!("{there}: why it is slow, what helps, what does not"),
        verdict: verdict_of(demo, &there),
        facts: facts(demo),
        sections,
        figures: super::tuning::key_figures(&demo.tuning, &demo.judged),
        ..Page::default()
    }
}

/// A page as a part of another: its sections under its name, its pictures under names of their own, and all but the
/// first `open` folded.
fn chapter(name: &str, id: &str, open: usize, page: Page) -> Vec<Section> {
    let mut sections = page.sections;
    for (n, section) in sections.iter_mut().enumerate() {
        section.heading = format!("{name}: {}", section.heading);
        section.folded |= n >= open;
        for picture in &mut section.pictures {
            picture.id = format!("{id}-{}", picture.id);
        }
    }
    sections
}

/// The way that was tuned, by the names of its ends.
fn there(demo: &Demonstration) -> String {
    let name = |of: Option<&Fingerprint>, otherwise: &str| {
        let output = of.map(|host| host.hostname.as_str());
        escape(output.filter(|name| !name.is_empty()).unwrap_or(otherwise))
    };
    let local = name(Some(&demo.run.local), "this host");
    let remote = name(demo.run.remote.as_ref(), &demo.run.host);
    match demo.tuning.direction {
        Direction::Up => format!("From {local} to {remote}"),
        Direction::Down => format!("From {remote} to {local}"),
    }
}

/// What a reader takes away: how slow, why, what helps, what does not.
fn verdict_of(demo: &Demonstration, there: &str) -> Vec<String> {
    let slow = demo.tuning.direction;
    let legs = summarise(&demo.run).legs;
    let rate = |of_slow: bool| {
        let leg = legs.iter().find(|leg| (leg.direction == slow) == of_slow);
        or(
            leg.map(|leg| leg.steady_goodput.unwrap_or(leg.goodput)),
            "nothing",
        )
    };
    let (slow_rate, other) = (rate(true), rate(false));
    let carries = format!("{there} the path carries {slow_rate}, in reverse {other}.");
    let compared = phrase::judged_runs(&demo.popular.0.plan);
    let compared =
        format!("The experiments compare {compared}; the rates above are of longer ones.");
    let why = demo.why.iter().find(|e| e.direction == Some(slow));
    let why = why.map(|e| format!("Why: it is {}", explain::sentence(e)));
    let (experiment, verdict) = &demo.popular;
    let name = escape(experiment.plan.arm_name(1));
    let popular = in_short(experiment, verdict, 1);
    let rest = [
        helped(demo),
        format!("What many would try first, {name}: {popular}"),
        compared,
        "All settings restored.".to_owned(),
    ];
    [carries].into_iter().chain(why).chain(rest).collect()
}

/// The proposal that was proven to do the most, with what proves it.
fn helped(demo: &Demonstration) -> String {
    let proven = |fate: Fate| {
        let rounds = demo.tuning.rounds.iter();
        let mut tried = rounds.flat_map(|r| r.advice.proposals.iter().zip(&r.attempts));
        tried.find(|(_, attempt)| attempt.fate == fate)
    };
    let Some((proposal, attempt)) = proven(Fate::Kept).or_else(|| proven(Fate::Recommended)) else {
        return "Nothing that was proposed is proven to help.".to_owned();
    };
    let settings: Vec<String> = attempt.settings.iter().map(ToString::to_string).collect();
    let proven = attempt.arm.zip(demo.judged.first());
    let proven = proven.map(|(arm, (experiment, verdict))| in_short(experiment, verdict, arm));
    let (title, settings) = (escape(&proposal.title), settings.join(", "));
    format!(
        "What helps, {title} ({settings}): {}",
        proven.unwrap_or_default()
    )
}

fn facts(demo: &Demonstration) -> Vec<(String, String)> {
    let run = &demo.run;
    let experiments = demo.judged.iter().chain([&demo.popular]);
    let runs: usize = experiments.map(|(e, _)| e.trials.len()).sum();
    super::facts([
        ("Path", escape(&run.host)),
        ("Begun", utc(run.started)),
        (
            "Runs",
            format!("{} and {runs} of experiments", shown(&run.id)),
        ),
        ("Kernel", escape(&run.local.kernel)),
    ])
}

fn undone(demo: &Demonstration) -> Section {
    let back = demo.put_back.iter();
    let back = back.map(|line| format!("Restored: {}.", escape_sentence(line)));
    let doubts = demo.warnings.iter().map(|w| {
        let (what, remedy) = (escape_sentence(&w.what), escape_sentence(&w.remedy));
        format!("{what}: {remedy}.")
    });
    Section::new("Restored").words(back.chain(doubts).collect())
}
