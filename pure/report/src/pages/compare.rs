//! Two runs side by side: their figures, their goodput on the same time axis, and what explains the difference.

use crate::page::{Axis, Chart, Page, Picture, Scale, Section, Series};
use crate::pictures::goodput::arrived;
use crate::pictures::seconds;
use crate::words::{Style, escape, percent, table, utc};
use model::finding::Explanation;
use model::{Direction, Leg, LegSummary, Run, Summary};

/// A run with all that is told of it.
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
        &self.run.id
    }

    fn leg(&self, direction: Direction) -> Option<(&Leg, &LegSummary)> {
        let mut legs = self.run.legs.iter().zip(&self.summary.legs);
        legs.find(|(leg, _)| leg.direction == direction)
    }
}

/// The page of two runs.
pub fn compare(a: Side<'_>, b: Side<'_>) -> Page {
    let ways = [Direction::Up, Direction::Down];
    let pairs: Vec<(Direction, [(&Leg, &LegSummary); 2])> = ways
        .into_iter()
        .filter_map(|way| Some((way, [a.leg(way)?, b.leg(way)?])))
        .collect();
    let told = crate::diff((a.name(), a.why), (b.name(), b.why), Style::PLAIN);
    let of_ways = told.lines().filter(|line| {
        let begins = |way: &Direction| line.starts_with(&format!("{way}: "));
        ways.iter().any(begins)
    });
    let mut verdict: Vec<String> = of_ways.map(str::to_owned).collect();
    verdict.push(
        "Two single runs differ by chance too: 'linerate prove' tells whether a difference is real."
            .to_owned(),
    );
    let mut sections: Vec<Section> = pairs
        .iter()
        .map(|(way, legs)| {
            Section::new(format!("Side by side: {way}"))
                .listing(figures([a, b], *legs))
                .pictures(vec![goodput([a, b], *way, *legs)])
        })
        .collect();
    sections.push(Section::new("What explains the difference").listing(told));
    let about = |side: Side<'_>| {
        let title = side.run.title.as_deref().map(escape);
        let title = title.map_or_else(String::new, |title| format!(", {title}"));
        let (host, at) = (escape(&side.run.host), utc(side.run.started));
        (
            format!("Run {}", side.name()),
            format!(
                "{host}, {}, {at}{title}",
                side.run.spec.workload.kind().name
            ),
        )
    };
    Page {
        streams: Vec::new(),
        title: format!("Runs {} and {}", a.name(), b.name()),
        verdict,
        facts: vec![about(a), about(b)],
        sections,
    }
}

/// The figures of one direction, in columns.
fn figures(sides: [Side<'_>; 2], legs: [(&Leg, &LegSummary); 2]) -> String {
    type Tell = fn(&LegSummary) -> Option<String>;
    let rows: [(&str, Tell); 12] = [
        ("goodput", |l| Some(l.goodput.to_string())),
        ("without the ramp", |l| {
            l.steady_goodput.map(|v| v.to_string())
        }),
        ("time", |l| Some(l.duration.to_string())),
        ("median latency", |l| l.requests.map(|r| r.p50.to_string())),
        ("99th percentile", |l| l.requests.map(|r| r.p99.to_string())),
        ("round trip, idle", |l| l.rtt_idle.map(|v| v.to_string())),
        ("round trip, loaded", |l| {
            l.rtt_loaded.map(|v| v.to_string())
        }),
        ("retransmitted", |l| l.retransmit_share.map(percent)),
        ("congestion window", |l| l.cwnd.map(|v| v.to_string())),
        ("receive window", |l| l.window.map(|v| v.to_string())),
        ("waited for the receive window", |l| {
            l.rwnd_limited_share.map(percent)
        }),
        ("waited for the send buffer", |l| {
            l.sndbuf_limited_share.map(percent)
        }),
    ];
    let [a, b] = legs.map(|(_, figures)| figures);
    let head = vec![
        String::new(),
        sides[0].name().to_owned(),
        sides[1].name().to_owned(),
    ];
    let known = rows.iter().filter_map(|(name, tell)| {
        let cells = [tell(a), tell(b)];
        cells.iter().any(Option::is_some).then(|| {
            let [a, b] = cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            vec![(*name).to_owned(), a, b]
        })
    });
    table(&[head].into_iter().chain(known).collect::<Vec<_>>())
}

fn goodput(sides: [Side<'_>; 2], way: Direction, legs: [(&Leg, &LegSummary); 2]) -> Picture {
    let [a, b] = legs.map(|(_, figures)| figures.goodput);
    let series = sides.iter().zip(legs).filter_map(|(side, (leg, _))| {
        Some(Series {
            name: side.name().to_owned(),
            ..arrived(leg)?
        })
    });
    Picture::chart(
        &format!("goodput-{way}"),
        &format!("Goodput, {way}"),
        "Both runs from their own start: a step is the time between two samples.",
        format!(
            "Run {} reached {a} in the mean, run {} reached {b}.",
            sides[0].name(),
            sides[1].name()
        ),
        Chart {
            x: seconds(),
            y: vec![Axis::new("goodput", "bit/s", Scale::FromZero)],
            series: series.collect(),
            bands: Vec::new(),
        },
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
        let listing = &page.sections[0].listing;
        assert!(
            listing
                .lines()
                .next()
                .is_some_and(|head| head.split_whitespace().eq(["00000001", "1a2b3c4d"])),
            "{listing}"
        );
        assert!(listing.contains("round trip, idle"), "{listing}");
        let Drawing::Chart(chart) = &page.sections[0].pictures[0].drawing else {
            panic!("a chart");
        };
        assert_eq!(chart.series[0].points[9], (9.0, Some(62e6)));
        assert_eq!(chart.series[1].points[9], (9.0, Some(943e6)));
        assert!(!page.facts[0].1.contains('\u{1b}'));
    }
}
