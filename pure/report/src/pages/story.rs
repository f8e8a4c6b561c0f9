//! The page of the demonstration: a path that is slow one way, why, what helps, what does not.

use crate::explain;
use crate::page::{Page, Section};
use crate::prove::in_short;
use crate::tune::Judged;
use crate::words::{escape, escape_sentence, or, utc};
use model::finding::Explanation;
use model::{Direction, Fate, Fingerprint, Run, Tuning, Warning, summarise};

/// What happened.
pub struct Story {
    /// Both ways as they were.
    pub run: Run,
    /// What limited them.
    pub why: Vec<Explanation>,
    /// The page of that.
    pub measured: Page,
    /// The way that was tuned.
    pub tuning: Tuning,
    /// Its experiments.
    pub judged: Vec<Judged>,
    /// A remedy that many would try: one arm beside the path as it was.
    pub popular: Judged,
    /// What was put back, a line each.
    pub put_back: Vec<String>,
    /// Doubts about the whole.
    pub warnings: Vec<Warning>,
}

/// The page of a story: its answers, then the page of each of its parts.
pub fn story(story: &Story) -> Page {
    let there = there(story);
    let (experiment, verdict) = &story.popular;
    let tuned = super::tuning(&story.tuning, &story.judged);
    let popular = super::experiment(experiment, verdict);
    let mut sections = chapter("Measured", "measured", 1, story.measured.clone());
    // Before and after, and what proves it.
    sections.extend(chapter("Tuned", "tuned", 2, tuned));
    let name = escape(experiment.plan.arm_name(1));
    sections.extend(chapter(
        &format!("A popular remedy, {name}"),
        "popular",
        1,
        popular,
    ));
    sections.push(undone(story));
    Page {
        title: format!("{there}: why it is slow, what helps, what does not"),
        verdict: verdict_of(story, &there),
        facts: facts(story),
        sections,
        figures: super::tuning::before_and_after(&story.tuning),
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
fn there(story: &Story) -> String {
    let name = |of: Option<&Fingerprint>, otherwise: &str| {
        let told = of.map(|host| host.hostname.as_str());
        escape(told.filter(|name| !name.is_empty()).unwrap_or(otherwise))
    };
    let near = name(Some(&story.run.near), "this host");
    let far = name(story.run.far.as_ref(), &story.run.host);
    match story.tuning.direction {
        Direction::Up => format!("From {near} to {far}"),
        Direction::Down => format!("From {far} to {near}"),
    }
}

/// What a reader takes away: how slow, why, what helps, what does not.
fn verdict_of(story: &Story, there: &str) -> Vec<String> {
    let slow = story.tuning.direction;
    let legs = summarise(&story.run).legs;
    let rate = |of_slow: bool| {
        let leg = legs.iter().find(|leg| (leg.direction == slow) == of_slow);
        or(
            leg.map(|leg| leg.steady_goodput.unwrap_or(leg.goodput)),
            "nothing",
        )
    };
    let (slow_rate, other) = (rate(true), rate(false));
    let carries = format!("{there} the path carries {slow_rate}, in reverse {other}.");
    let why = story.why.iter().find(|e| e.direction == Some(slow));
    let why = why.map(|e| format!("Why: it is {}", explain::sentence(e)));
    let (experiment, verdict) = &story.popular;
    let name = escape(experiment.plan.arm_name(1));
    let popular = in_short(experiment, verdict, 1);
    let rest = [
        helped(story),
        format!("What many would try first, {name}: {popular}"),
        "All settings restored.".to_owned(),
    ];
    [carries].into_iter().chain(why).chain(rest).collect()
}

/// The proposal that was proven to do the most, with what proves it.
fn helped(story: &Story) -> String {
    let proven = |fate: Fate| {
        let rounds = story.tuning.rounds.iter();
        let mut tried = rounds.flat_map(|r| r.advice.proposals.iter().zip(&r.attempts));
        tried.find(|(_, attempt)| attempt.fate == fate)
    };
    let Some((proposal, attempt)) = proven(Fate::Kept).or_else(|| proven(Fate::Recommended)) else {
        return "Nothing that was proposed is proven to help.".to_owned();
    };
    let settings: Vec<String> = attempt.settings.iter().map(ToString::to_string).collect();
    let proven = attempt.arm.zip(story.judged.first());
    let proven = proven.map(|(arm, (experiment, verdict))| in_short(experiment, verdict, arm));
    let (title, settings) = (escape(&proposal.title), settings.join(", "));
    format!(
        "What helps, {title} ({settings}): {}",
        proven.unwrap_or_default()
    )
}

fn facts(story: &Story) -> Vec<(String, String)> {
    let run = &story.run;
    let experiments = story.judged.iter().chain([&story.popular]);
    let runs: usize = experiments.map(|(e, _)| e.trials.len()).sum();
    super::facts([
        ("Path", escape(&run.host)),
        ("Begun", utc(run.started)),
        ("Runs", format!("{} and {runs} of experiments", run.id)),
        ("Kernel", escape(&run.near.kernel)),
    ])
}

fn undone(story: &Story) -> Section {
    let back = story.put_back.iter();
    let back = back.map(|line| format!("Put back: {}.", escape_sentence(line)));
    let doubts = story.warnings.iter().map(|w| {
        let (what, remedy) = (escape_sentence(&w.what), escape_sentence(&w.remedy));
        format!("{what}: {remedy}.")
    });
    Section::new("Put back").words(back.chain(doubts).collect())
}
