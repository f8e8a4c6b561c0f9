//! Two runs side by side: their figures, their goodput on the same time axis, and what explains the difference.

use crate::diff::{headline, pairs};
use crate::pictures::goodput::arrived;
use crate::pictures::seconds;
use crate::prelude::*;
use crate::words::first_digits;
use crate::{explain, figures};

/// A run with all that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its figures.
    pub summary: &'a Summary,
    /// What limited it.
    pub why: &'a [Explanation],
}

impl Side<'_> {
    fn name(&self) -> &str {
        first_digits(&self.run.id)
    }

    fn leg(&self, direction: Direction) -> Option<(&Leg, &LegSummary)> {
        let mut legs = self.run.legs.iter().zip(&self.summary.legs);
        legs.find(|(leg, _)| leg.direction == direction)
    }

    fn about(&self) -> (String, String) {
        let run = self.run;
        let title = run.title.as_deref();
        let title = title.map(|title| format!(", {}", escape(title)));
        let (host, kind) = (escape(&run.host), run.spec.workload.kind().name);
        let (at, title) = (utc(run.started), title.unwrap_or_default());
        (
            format!("Run {}", self.name()),
            format!("{host}, {kind}, {at}{title}"),
        )
    }
}

/// Of which time the explanations are.
const UNTIL_WRITTEN: &str =
    "Until the sender had written all; the figures above go on until all had arrived.";

/// The page of two runs.
pub fn compare(a: Side<'_>, b: Side<'_>) -> Page {
    let ways = [Direction::Up, Direction::Down];
    let mut verdict = Vec::new();
    let sections = ways.into_iter().filter_map(|way| {
        let legs = [a.leg(way)?, b.leg(way)?];
        let [of_a, of_b] = legs.map(|(_, figures)| figures.goodput.0 as f64);
        let names = [a, b].map(|side| escape(side.name()));
        verdict.push(headline(Some(way), [(&names[0], of_a), (&names[1], of_b)]));
        let section = Section::new(format!("Side by side: {way}")).tables([figures([a, b], legs)]);
        Some(section.pictures([goodput([a, b], way, legs)]))
    });
    let mut sections: Vec<Section> = sections.collect();
    let pairs = pairs((a.name(), a.why), (b.name(), b.why));
    verdict.push(
        "Two single runs differ at random too: 'linerate prove' tests a difference.".to_owned(),
    );
    for pair in pairs {
        let evidence = pair.evidence.into_iter();
        let evidence = evidence.flat_map(|(of, facts)| explain::named(of, facts));
        let evidence = Table::new(&["run and limit", "evidence"], evidence);
        let section = Section::new("What explains the difference");
        let section = section
            .words(
                [UNTIL_WRITTEN.to_owned()]
                    .into_iter()
                    .chain(pair.sides)
                    .collect(),
            )
            .tables([pair.costs, evidence]);
        sections.push(section);
    }
    Page {
        title: format!("Runs {} and {}", a.name(), b.name()),
        verdict,
        facts: vec![a.about(), b.about()],
        sections,
        ..Page::default()
    }
}

/// The figures of one direction, in columns.
fn figures([a, b]: [Side<'_>; 2], legs: [(&Leg, &LegSummary); 2]) -> Table {
    let legs = legs.map(|(_, figures)| figures);
    let workload = &a.run.spec.workload;
    let mut rows = figures::speed(workload, &legs);
    rows.extend(figures::details(workload, &legs));
    figures::known(&["", a.name(), b.name()], &rows)
}

fn goodput(sides: [Side<'_>; 2], way: Direction, legs: [(&Leg, &LegSummary); 2]) -> Picture {
    let series = sides.iter().zip(legs).filter_map(|(side, (leg, _))| {
        Some(Series {
            name: side.name().to_owned(),
            ..arrived(leg)?
        })
    });
    let [(a, (_, of_a)), (b, (_, of_b))] = [(sides[0].name(), legs[0]), (sides[1].name(), legs[1])];
    let y = Axis::new("goodput", "bit/s", Scale::FromZero);
    Picture::chart(
        &format!("goodput-{way}"),
        &format!("Goodput, {way}"),
        "Both runs from their own start: a step is the time between two samples.",
        format!(
            "Run {a} reached {} in the mean, run {b} reached {}.",
            of_a.goodput, of_b.goodput
        ),
        Chart::new(seconds(), vec![y], series.collect(), Vec::new()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Drawing;
    use crate::testing::{self, LAN, LOSSY};
    use model::summarise;

    #[test]
    fn what_both_have_stands_side_by_side() {
        let both = vec![
            testing::leg(Direction::Up, LOSSY),
            testing::leg(Direction::Down, LAN),
        ];
        let mut one = testing::run(testing::spec(), both);
        let other = testing::run(testing::spec(), vec![testing::leg(Direction::Up, LAN)]);
        one.id = "00000001".to_owned();
        one.title = Some("be\u{1b}fore".to_owned());
        let (s, t) = (summarise(&one), summarise(&other));
        let why = [testing::rivals()];
        let page = compare(
            Side {
                run: &one,
                summary: &s,
                why: &why,
            },
            Side {
                run: &other,
                summary: &t,
                why: &why,
            },
        );
        assert_eq!(page.sections.len(), 2, "down has nothing beside it");
        assert_eq!(
            page.verdict[0],
            "up: 1a2b3c4d is 15.2 times as fast as 00000001."
        );
        let table = &page.sections[0].tables[0];
        assert_eq!(table.head, ["", "00000001", "1a2b3c4d"]);
        let rtt = |row: &Vec<String>| row[0] == "RTT idle -> loaded";
        assert!(table.rows.iter().any(rtt), "{table}");
        let Drawing::Chart(chart) = &page.sections[0].pictures[0].drawing else {
            panic!("a chart");
        };
        assert_eq!(chart.series[0].points[9], (9.0, Some(62e6)));
        assert_eq!(chart.series[1].points[9], (9.0, Some(943e6)));
        assert!(!page.facts[0].1.contains('\u{1b}'));
    }
}
