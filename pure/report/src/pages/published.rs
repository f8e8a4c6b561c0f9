//! The page of numbers that somebody else measured.

use super::{facts, filled};
use crate::page::{Page, Section};
use crate::pictures::{bars, forest};
use crate::prove::phrase::share;
use crate::published;
use crate::words::{Style, escape, escape_sentence};
use model::{Outcome, Published};

/// Differences that are told first.
const TOLD: usize = 6;

/// Each difference with its verdict, what to know before it is believed, and the figures as they were printed.
pub fn published(of: &Published) -> Page {
    let wide = Style {
        width: u16::MAX,
        ..Style::PLAIN
    };
    let mut told: Vec<String> = of
        .comparisons
        .iter()
        .take(TOLD)
        .map(|one| published::sentence(one, of.margin_share))
        .collect();
    // Without a verdict the gravest doubt is the answer.
    let gravest = of
        .doubts
        .first()
        .filter(|_| of.outcome() == Outcome::NoVerdict);
    told.extend(gravest.map(|doubt| escape_sentence(&doubt.words)));
    if of.comparisons.len() > TOLD {
        told.push(format!("And {} more, below.", of.comparisons.len() - TOLD));
    }
    let doubts = of.doubts.iter().map(|d| escape_sentence(&d.words));
    let sections = vec![
        Section {
            heading: "As it was printed".to_owned(),
            pictures: bars::of_published(of).into_iter().collect(),
            ..Section::default()
        },
        Section {
            heading: "Before this is believed".to_owned(),
            words: doubts.collect(),
            ..Section::default()
        },
        Section {
            heading: "Effects".to_owned(),
            pictures: forest::of_published(of).into_iter().collect(),
            ..Section::default()
        },
        Section {
            heading: "Every difference".to_owned(),
            // A few were told first.
            listing: match of.comparisons.len() > TOLD {
                true => published::text(of, wide),
                false => String::new(),
            },
            folded: true,
            ..Section::default()
        },
    ];
    Page {
        // Of a path, what the file is called.
        title: format!(
            "What {} shows",
            escape(of.name.rsplit('/').next().unwrap_or_default())
        ),
        verdict: told,
        facts: facts([
            ("From", escape(&of.name)),
            ("Matters", format!("{} and more", share(of.margin_share))),
        ]),
        sections: filled(sections),
    }
}
