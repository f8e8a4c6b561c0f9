//! The page of a run.

use crate::page::{Page, Picture, Section};
use crate::pictures::sender::moments;
use crate::pictures::{bands, flight, goodput, latencies, stages, windows};
use crate::summary;
use crate::words::{Style, escape, utc};
use model::finding::Explanation;
use model::{Leg, LegSummary, Run, Summary, Workload};

/// A run: its answers, what limited it, its pictures, and everything that was measured.
pub fn run(run: &Run, summary: &Summary, why: &[Explanation]) -> Page {
    let mut sections: Vec<Section> = run
        .legs
        .iter()
        .zip(&summary.legs)
        .enumerate()
        .flat_map(|(n, (leg, figures))| of_leg(n, run, leg, figures, why))
        .collect();
    if !why.is_empty() {
        let told = crate::explain::text(why, Some(&run.host), Style::PLAIN);
        sections.push(listing("What limited it, and what that rests on", told));
    }
    let told = summary::summary(run, summary, why, Style::PLAIN);
    sections.push(listing("All figures", told));
    Page {
        title: match &run.title {
            Some(title) => format!("{}: {title}", run.host),
            None => format!("{} and {}", between(run), run.host),
        },
        verdict: summary::sentences(run, summary, why),
        facts: facts(run, summary),
        sections,
    }
}

/// What went on, from here.
fn between(run: &Run) -> String {
    let what = match run.spec.workload {
        Workload::Bulk(_) => "Transfers",
        Workload::Request(_) | Workload::Blocks(_) => "Requests",
        Workload::Udp(_) => "Datagrams",
        Workload::Copy(_) => "Copies",
    };
    format!("{what} between {}", run.near.hostname)
}

/// The pictures of one leg: what moved is shown at once, what the kernel did is folded.
fn of_leg(
    n: usize,
    run: &Run,
    leg: &Leg,
    figures: &LegSummary,
    why: &[Explanation],
) -> Vec<Section> {
    let way = leg.direction.to_string();
    // Two legs may go the same way.
    let id = |what: &str| format!("{what}-{}-{way}", n + 1);
    let own: Vec<&Explanation> = why
        .iter()
        .filter(|e| e.direction == Some(leg.direction))
        .collect();
    let bands = bands(&own);
    let mut first: Vec<Picture> = Vec::new();
    if let (Workload::Copy(order), Some(copy)) = (&run.spec.workload, &figures.copy) {
        first.push(stages::picture(&id("stages"), order, copy));
    }
    if let Some(requests) = &figures.requests {
        first.extend(latencies::picture(&id("latency"), leg, requests));
    } else {
        first.extend(goodput::picture(
            &id("goodput"),
            leg,
            figures,
            bands.clone(),
        ));
    }
    let moments = moments(leg);
    let kernel: Vec<Picture> = [
        windows::picture(&id("windows"), &way, &moments, bands.clone()),
        flight::picture(&id("flight"), &way, &moments, bands),
    ]
    .into_iter()
    .flatten()
    .collect();
    let silent = match kernel.is_empty() {
        true => vec!["The sender's kernel told nothing of its windows.".to_owned()],
        false => Vec::new(),
    };
    vec![
        Section {
            heading: match leg.direction {
                model::Direction::Up => format!("Up, to {}", run.host),
                model::Direction::Down => format!("Down, from {}", run.host),
            },
            words: silent,
            listing: String::new(),
            pictures: first,
            folded: false,
        },
        Section {
            heading: format!("Windows and round trips, {way}"),
            words: Vec::new(),
            listing: String::new(),
            pictures: kernel,
            folded: true,
        },
    ]
    .into_iter()
    .filter(|section| !section.pictures.is_empty())
    .collect()
}

fn listing(heading: &str, text: String) -> Section {
    Section {
        heading: heading.to_owned(),
        words: Vec::new(),
        listing: text,
        pictures: Vec::new(),
        folded: true,
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
    facts.extend(
        summary
            .warnings
            .iter()
            .map(|doubt| ("Doubt", format!("{}. {}", doubt.what, doubt.meaning))),
    );
    let named = facts
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    named.filter(|(_, value)| !value.is_empty()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fixtures::{self, LOSSY, WINDOWED};
    use crate::page;
    use model::{Direction, summarise};

    pub(crate) fn both_ways() -> Page {
        let legs = vec![
            fixtures::leg(Direction::Up, LOSSY),
            fixtures::leg(Direction::Down, WINDOWED),
        ];
        let one = fixtures::run(fixtures::spec(), legs);
        run(&one, &summarise(&one), &[fixtures::rivals()])
    }

    #[test]
    fn words_and_pictures_of_a_run() {
        let page = both_ways();
        insta::assert_snapshot!(page.verdict.join("\n"));
        let pictures = page.sections.iter().flat_map(|s| &s.pictures);
        let told = pictures.map(|p| format!("{}: {}\n{}", p.id, p.title, p.alternative));
        insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn a_picture_of_each_kind_by_the_letter() {
        let page = both_ways();
        for picture in page.sections[..2].iter().flat_map(|s| &s.pictures) {
            insta::assert_snapshot!(picture.id.clone(), page::csv(picture));
        }
    }

    #[test]
    fn a_run_of_an_hour_is_a_page_that_a_browser_takes() {
        let mut legs = vec![fixtures::leg(Direction::Up, LOSSY)];
        let samples = legs[0].near.samples.clone();
        let Leg { near, far, .. } = &mut legs[0];
        for end in [near, far] {
            end.samples = (0..36_000u64)
                .map(|n| {
                    let mut sample = samples[n as usize % samples.len()].clone();
                    sample.at = model::Nanos::from_millis(100 * n);
                    sample.bytes = model::Bytes(n * 1_234_567);
                    sample
                })
                .collect();
        }
        let one = fixtures::run(fixtures::spec(), legs);
        let text = page::html(&run(&one, &summarise(&one), &[]));
        assert!(text.len() < 1_000_000, "{}", text.len());
    }
}
