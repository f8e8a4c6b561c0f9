//! The page of published numbers.

use super::{facts, filled};
use crate::pictures::{bars, forest};
use crate::prelude::*;
use crate::prove::phrase::share;
use crate::published;
use model::Published;

/// Differences that stand at the top.
const TOP: usize = 6;

/// Each difference with its verdict, the caveats, and the printed figures.
pub fn published(of: &Published) -> Page {
    let top = of.comparisons.iter().take(TOP);
    let mut verdict: Vec<String> = top
        .map(|one| published::sentence(one, of.margin_share))
        .collect();
    // Without a verdict the gravest doubt is the answer.
    let no_verdict = of.outcome() == Outcome::NoVerdict;
    let gravest = of.doubts.first().filter(|_| no_verdict);
    verdict.extend(gravest.map(|doubt| escape_sentence(&doubt.words)));
    let more = of.comparisons.len().saturating_sub(TOP);
    if more > 0 {
        verdict.push(format!("And {more} more, below."));
    }
    let doubts = of.doubts.iter().map(|d| escape_sentence(&d.words));
    let rest = of.comparisons.iter().skip(TOP);
    let rest = rest.map(|one| published::sentence(one, of.margin_share));
    let sections = vec![
        Section::new("Printed figures").pictures(bars::of_published(of)),
        Section::new("Caveats").words(doubts.collect()),
        Section::new("Effects").pictures(forest::of_published(of)),
        Section::new("The other differences")
            .words(rest.collect())
            .folded(true),
    ];
    let file = of.name.rsplit('/').next().unwrap_or_default();
    Page {
        title: format!("What {} shows", escape(file)),
        verdict,
        facts: facts([
            ("From", escape(&of.name)),
            ("Equivalence margin", share(of.margin_share)),
        ]),
        sections: filled(sections),
        ..Page::default()
    }
}
