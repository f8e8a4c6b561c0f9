//! The page of a path that was tuned.

use super::facts;
use crate::pictures::{bars, forest, pairs};
use crate::prelude::*;
use crate::prove::phrase::{self, of_all};
use crate::tune::{self, Judged};
use model::{Attempt, Fate, Look, Tuning};

/// What was kept and what it brought; then before and after, each experiment, and the whole story.
pub fn tuning(story: &Tuning, judged: &[Judged]) -> Page {
    let looks = looks(story);
    let words = looks.iter().enumerate().map(|(n, look)| {
        let what = if n == 0 {
            "Baseline"
        } else {
            "With what was kept"
        };
        let run = shown(&look.run);
        format!("{what}: {} (run {run}).", tune::seen(look))
    });
    let compared = judged.first().map(|(experiment, _)| {
        let runs = phrase::judged_runs(&experiment.plan);
        format!("These are whole runs; the experiment compares {runs}.")
    });
    let mut sections = vec![
        Section::new("Before and after")
            .words(words.chain(compared).collect())
            .pictures(bars::of_tuning(&looks)),
    ];
    sections.extend(judged.iter().enumerate().map(|(n, one)| proof(n, one)));
    sections.push(
        Section::new("Every step")
            .listing(tune::story(story, judged, Style::PLAIN))
            .folded(true),
    );
    let way = tune::up_to(story.direction);
    let host = escape(&story.host);
    Page {
        title: format!("Tuning {way} {host}"),
        verdict: tune::outcome(story, judged),
        facts: facts([
            ("Begun", utc(story.started)),
            ("Tuning", shown(&story.id)),
            ("Direction", format!("{way} {host}")),
            ("Rounds", story.rounds.len().to_string()),
        ]),
        sections,
        figures: key_figures(story, judged),
        ..Page::default()
    }
}

/// What the only experiment proves of what is kept or recommended; else the goodput of the path before the first round
/// and at the end.
pub(super) fn key_figures(story: &Tuning, judged: &[Judged]) -> Vec<KeyFigure> {
    let attempts = story.rounds.iter().flat_map(|round| &round.attempts);
    let helps = |a: &Attempt| matches!(a.fate, Fate::Kept | Fate::Recommended);
    let proven = attempts.filter(|a| helps(a)).find_map(|a| a.arm);
    if let ([(experiment, verdict)], Some(arm)) = (judged, proven) {
        return super::experiment::key_figures(experiment, verdict, Some(arm));
    }
    let looks = looks(story);
    let figure = |label: &str, look: &Look| KeyFigure::new(label, look.goodput.to_string(), "");
    match looks[..] {
        [] => Vec::new(),
        [only] => vec![figure("goodput", only)],
        [first, .., last] => vec![figure("before", first), figure("after", last)],
    }
}

/// The path before each round, and at the end.
fn looks(story: &Tuning) -> Vec<&Look> {
    let before = story.rounds.iter().map(|round| &round.before);
    before.chain(tune::last(story)).collect()
}

/// An experiment of the story.
fn proof(number: usize, (experiment, verdict): &Judged) -> Section {
    let picture = match verdict.comparisons.len() {
        1 => pairs::picture(experiment, verdict),
        _ => forest::of_experiment(experiment, verdict),
    };
    // Each name once a page.
    let named = picture.map(|picture| Picture {
        id: format!("{}-{}", picture.id, number + 1),
        ..picture
    });
    // The answers stand at the top, and beside the picture.
    let mut words = of_all(experiment, verdict);
    let id = shown(&experiment.id);
    words.push(format!("'linerate report {id}' has the page of it."));
    Section::new(format!("Experiment {}", number + 1))
        .words(words)
        .pictures(named)
}
