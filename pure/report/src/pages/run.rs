//! The page of a run.

use crate::page::{Page, Section};
use crate::summary;
use crate::words::{Style, escape, utc};
use model::finding::Explanation;
use model::{Run, Summary};

/// A run: its answers, what limited it, and everything that was measured.
pub fn run(run: &Run, summary: &Summary, why: &[Explanation]) -> Page {
    let mut sections = Vec::new();
    if !why.is_empty() {
        sections.push(Section {
            heading: "What limited it".to_owned(),
            words: Vec::new(),
            listing: crate::explain::text(why, Some(&run.host), Style::PLAIN),
            pictures: Vec::new(),
            folded: true,
        });
    }
    sections.push(Section {
        heading: "All figures".to_owned(),
        words: Vec::new(),
        listing: summary::summary(run, summary, why, Style::PLAIN),
        pictures: Vec::new(),
        folded: true,
    });
    Page {
        title: match &run.title {
            Some(title) => format!("{}: {title}", run.host),
            None => format!("Transfers to and from {}", run.host),
        },
        verdict: summary::sentences(run, summary, why),
        facts: facts(run, summary),
        sections,
    }
}

/// What was done, on what, when.
fn facts(run: &Run, summary: &Summary) -> Vec<(String, String)> {
    let mut facts = vec![("Measured", utc(run.started)), ("Run", escape(&run.id))];
    facts.extend(summary::done(run, summary).map(|done| ("What", done)));
    facts.push(("Here", summary::host(&run.near)));
    facts.push(match &run.far {
        Some(far) => ("There", summary::host(far)),
        None => (
            "There",
            format!("{} did not tell what it is", escape(&run.host)),
        ),
    });
    let named = facts
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    named.filter(|(_, value)| !value.is_empty()).collect()
}
