//! Who to whom in a mesh: the page of all cells, and that of one cell.

use super::History;
use crate::mesh::{more, reasons, sentence, value};
use crate::page::{Page, Section, document, inert, push_inert};
use crate::words::{Table, age, counted, escape, escape_sentence, shown, utc};
use model::{CellFigure, MeshLeg, Nanos};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A test between the hosts of a mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshGrid {
    /// Name of the mesh.
    pub mesh: String,
    /// Name of the test.
    pub test: String,
    /// What its cells show.
    pub figure: CellFigure,
    /// Names of the tests of the mesh.
    pub tests: Vec<String>,
    /// Duration of a cycle.
    pub every: Nanos,
    /// What its rows and columns are.
    pub of: GridOf,
    /// The hosts, those of a site beside each other.
    pub hosts: Vec<GridHost>,
    /// The cells that the test has, by source and destination.
    pub cells: BTreeMap<(usize, usize), GridCell>,
    /// The moment of the grid, since 1970-01-01 UTC.
    pub now: Nanos,
}

/// What the rows and columns of a grid are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GridOf {
    /// Hosts.
    Hosts,
    /// Sites; a cell is the worst of its pairs of hosts.
    Sites,
    /// The hosts of a site, and those of a site towards which they measure.
    HostsOfSites {
        /// Source and destination.
        sites: [String; 2],
        /// Cells that are left out.
        left_out: usize,
    },
}

/// A row and a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GridHost {
    /// Name.
    pub name: String,
    /// Where it is.
    pub site: Option<String>,
}

/// The newest legs of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GridCell {
    /// The newest first.
    pub legs: Vec<MeshLeg>,
}

impl GridCell {
    /// The newest leg.
    pub fn newest(&self) -> Option<&MeshLeg> {
        self.legs.first()
    }

    /// How many of the newest legs in a row have the outcome of the newest.
    pub fn in_a_row(&self) -> usize {
        let same = |leg: &&MeshLeg| Some(leg.outcome) == self.newest().map(|leg| leg.outcome);
        self.legs.iter().take_while(same).count()
    }
}

impl MeshGrid {
    pub(crate) fn title(&self) -> String {
        let what = match self.figure {
            CellFigure::LightRtt => "median RTT",
            CellFigure::Latency => "median latency",
            CellFigure::Goodput => "goodput",
            CellFigure::Mtu => "path MTU",
        };
        let [mesh, test] = [&self.mesh, &self.test].map(|name| escape(name));
        let between = match &self.of {
            GridOf::HostsOfSites { sites, .. } => {
                let [from, to] = sites.each_ref().map(|site| escape(site));
                format!(" from site {from} to site {to}")
            }
            GridOf::Hosts | GridOf::Sites => String::new(),
        };
        format!(
            "mesh {mesh}, test {test}: {what}{between}, {}",
            utc(self.now)
        )
    }

    /// What the marks of the cells mean.
    pub(crate) fn legend(&self) -> String {
        let busy = match self.figure == CellFigure::LightRtt {
            true => "; + beside another test of a host",
            false => "",
        };
        format!(
            "g good, L low, F failed, M missed, s skipped; - no leg yet; ' older than two cycles; ~ its level changed{busy}"
        )
    }

    /// Older than two cycles.
    pub fn is_old(&self, leg: &MeshLeg) -> bool {
        self.now.since(leg.starts) > Nanos(self.every.0.saturating_mul(2))
    }

    /// The letter of a cell, and marks of its age and of a change of its level.
    pub(crate) fn mark(&self, cell: &GridCell) -> String {
        let mut text = String::new();
        self.push_mark(&mut text, cell);
        text
    }

    fn push_mark(&self, text: &mut String, cell: &GridCell) {
        let Some(leg) = cell.newest() else {
            text.push('-');
            return;
        };
        text.push(leg.outcome.letter());
        let marks = [
            (self.is_old(leg), '\''),
            (leg.level_since.is_some(), '~'),
            (leg.busy, '+'),
        ];
        text.extend(marks.iter().filter(|(is, _)| *is).map(|(_, mark)| mark));
    }

    /// The value of a cell with its mark: `9.41GL`.
    pub(crate) fn cell_text(&self, cell: &GridCell) -> String {
        let mut text = String::with_capacity(16);
        if let Some(value) = cell.newest().and_then(|leg| value(self.figure, leg)) {
            let _ = write!(text, "{value}");
        }
        if let Some(at) = text.find("bit/s").or_else(|| text.find("bytes")) {
            text.truncate(at);
        }
        text.retain(|c| c != ' ');
        self.push_mark(&mut text, cell);
        text
    }
}

/// Reasons below the grid of a page.
const MOST_REASONS: usize = 200;

/// The page of a grid, with names and addresses of the grids of other meshes. Of a host `cell_link` has the begin of
/// the address of its cells as a source and the end of it as a destination; `test_link` has that of the grid of a test.
pub fn grid(
    grid: &MeshGrid,
    meshes: &[(String, String)],
    cell_link: impl Fn(&str) -> [String; 2],
    test_link: impl Fn(&str) -> String,
) -> String {
    let links = grid.hosts.iter();
    let links = links.map(|host| cell_link(&host.name).map(|part| inert(&part)));
    let links: Vec<[String; 2]> = links.collect();
    document(&format!("Mesh {}", grid.mesh), true, |out| {
        // A cell takes some 160 bytes.
        out.reserve(200 * grid.cells.len());
        body(out, grid, meshes, &links, test_link);
    })
}

fn body(
    out: &mut String,
    grid: &MeshGrid,
    meshes: &[(String, String)],
    links: &[[String; 2]],
    test_link: impl Fn(&str) -> String,
) {
    let _ = write!(
        out,
        "<main class=\"mesh\">\n<h1>{}</h1>\n<nav><a href=\"/\">All measurements</a>",
        inert(&grid.title())
    );
    let is_part = matches!(grid.of, GridOf::HostsOfSites { .. });
    let heading = if is_part {
        "Whole grids"
    } else {
        "Other tests"
    };
    let tests = grid.tests.iter();
    let tests = tests.filter(|test| is_part || **test != grid.test);
    let tests: Vec<_> = tests.map(|test| (test.clone(), test_link(test))).collect();
    for (heading, links) in [(heading, &tests[..]), ("Other meshes", meshes)] {
        if !links.is_empty() {
            let _ = write!(out, " {heading}:");
        }
        out.extend(links.iter().map(|(name, href)| link(name, href)));
    }
    out.push_str("</nav>\n<p>Rows are sources, columns destinations.");
    match &grid.of {
        GridOf::Hosts | GridOf::HostsOfSites { left_out: 0, .. } => {}
        GridOf::Sites => out
            .push_str(" A cell is the worst pair of hosts of two sites, and leads to the grid of their hosts."),
        GridOf::HostsOfSites { left_out, .. } => {
            let cells = counted(*left_out as u64, "cell");
            let _ = write!(out, " {cells} are left out, of the hosts with better ones.");
        }
    }
    out.push_str("</p>\n<div class=\"wide\"><table class=\"grid\">\n<thead><tr><th></th>");
    // Hosts that only send or only receive have no column or row.
    let of_end = |end: fn(&(usize, usize)) -> usize| -> BTreeMap<usize, bool> {
        let hosts: BTreeSet<usize> = grid.cells.keys().map(end).collect();
        let before = [None].into_iter().chain(hosts.iter().map(Some));
        let pairs = before.zip(&hosts);
        let starts_site = pairs.map(|(before, host)| {
            let site = |host: &usize| &grid.hosts[*host].site;
            (
                *host,
                before.is_some_and(|before| site(before) != site(host)),
            )
        });
        starts_site.collect()
    };
    let [rows, columns] = [of_end(|pair| pair.0), of_end(|pair| pair.1)];
    let frame = |starts_site: bool| if starts_site { " edge" } else { "" };
    for (at, starts_site) in &columns {
        let host = &grid.hosts[*at];
        let _ = write!(
            out,
            "<th class=\"to{}\" title=\"{}\">{}</th>",
            frame(*starts_site),
            site(host),
            inert(&host.name)
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (row, starts_site) in &rows {
        let from = &grid.hosts[*row];
        let edge = if *starts_site { " class=\"edge\"" } else { "" };
        let _ = write!(
            out,
            "<tr{edge}><th title=\"{}\">{}</th>",
            site(from),
            inert(&from.name)
        );
        let mut of_row = grid.cells.range((*row, 0)..(row + 1, 0)).peekable();
        for (at, starts_site) in &columns {
            let frame = frame(*starts_site);
            let Some((_, cell)) = of_row.next_if(|((_, to), _)| to == at) else {
                let _ = write!(out, "<td class=\"none{frame}\"></td>");
                continue;
            };
            let newest = cell.newest();
            out.push_str("<td class=\"");
            out.push_str(newest.map_or("none", |leg| leg.outcome.name()));
            out.push_str(frame);
            out.push_str("\"><a href=\"");
            out.push_str(&links[*row][0]);
            out.push_str(&links[*at][1]);
            out.push_str("\" title=\"");
            match newest {
                None => out.push_str("no leg yet"),
                Some(leg) => push_inert(out, &sentence(leg, grid.figure, grid.now)),
            }
            out.push_str("\">");
            push_inert(out, &grid.cell_text(cell));
            out.push_str("</a>");
            if let Some(leg) = newest.filter(|leg| grid.is_old(leg)) {
                let _ = write!(out, " <small>{}</small>", age(grid.now.since(leg.starts)));
            }
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    let _ = write!(
        out,
        "</tbody></table></div>\n<p>{}.</p>\n",
        inert(&grid.legend())
    );
    let reasons = reasons(grid);
    if !reasons.is_empty() {
        out.push_str("<h2>Cells that need attention</h2>\n<ul>\n");
        for reason in reasons.iter().take(MOST_REASONS) {
            let cells = reason.cells.iter().map(|(from, to)| {
                let name = |host: &usize| inert(&grid.hosts[*host].name);
                let [begin, end] = [&links[*from][0], &links[*to][1]];
                format!(
                    " <a href=\"{begin}{end}\">{} to {}</a>",
                    name(from),
                    name(to)
                )
            });
            let cells = cells.collect::<Vec<_>>().join(",");
            let _ = writeln!(out, "<li>{}: {}</li>", cells.trim(), inert(&reason.text));
        }
        let _ = writeln!(out, "</ul>\n{}", more(&reasons, MOST_REASONS));
    }
    out.push_str("</main>\n");
}

pub(super) fn link(name: &str, href: &str) -> String {
    format!(" <a href=\"{}\">{}</a>", inert(href), inert(name))
}

/// The page of a cell: its newest legs, the newest first, and its history.
pub fn cell(history: &History, legs: &[MeshLeg], figure: CellFigure, now: Nanos) -> Page {
    let mut page = super::history(history);
    let newest = match legs.first() {
        Some(leg) => format!("Newest leg: {}.", sentence(leg, figure, now)),
        None => "No leg yet.".to_owned(),
    };
    page.verdict.insert(0, newest);
    let rows = legs.iter().map(|leg| {
        vec![
            utc(leg.starts),
            leg.outcome.to_string(),
            value(figure, leg).map_or_else(|| "-".to_owned(), |value| value.to_string()),
            shown(&leg.run),
            leg.why.as_deref().map(escape_sentence).unwrap_or_default(),
        ]
    });
    let head = ["started (UTC)", "outcome", "value", "run", "why"];
    let section = Section::new("Newest legs").tables([Table::new(&head, rows)]);
    // The chart stays first.
    let at = usize::from(!history.runs.is_empty());
    if !legs.is_empty() {
        page.sections.insert(at, section);
    }
    page
}

fn site(host: &GridHost) -> String {
    inert(
        &host
            .site
            .as_ref()
            .map(|site| format!("site {site}"))
            .unwrap_or_default(),
    )
}

#[cfg(test)]
pub(crate) use tests::of as grid_of_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Style;
    use model::{BitRate, LegOutcome};

    fn leg(outcome: LegOutcome, rate: Option<u64>, hours_ago: u64) -> MeshLeg {
        let starts = Nanos::from_secs(1_795_392_000 - 3600 * hours_ago);
        MeshLeg {
            span: Nanos::from_secs(10),
            goodput: rate.map(BitRate),
            why: (outcome == LegOutcome::Missed)
                .then(|| "the agent of db2 is away \x1b[2J<b>".to_owned()),
            ..MeshLeg::bare("0".repeat(32), 0, ["db", "bulk", "", ""], starts, outcome)
        }
    }

    pub fn of(hosts: usize) -> MeshGrid {
        let cell = |leg| GridCell { legs: vec![leg] };
        let mut cells = BTreeMap::from([
            ((0, 1), cell(leg(LegOutcome::Good, Some(9_410_000_000), 1))),
            ((1, 0), cell(leg(LegOutcome::Low, Some(941_000_000), 60))),
            ((0, 2), cell(leg(LegOutcome::Missed, None, 0))),
            ((1, 2), GridCell::default()),
        ]);
        cells.get_mut(&(0, 1)).unwrap().legs[0].level_since = Some(Nanos(1));
        MeshGrid {
            mesh: "db".to_owned(),
            test: "bulk".to_owned(),
            figure: CellFigure::Goodput,
            tests: vec!["bulk".to_owned(), "r".to_owned()],
            every: Nanos::from_secs(86_400),
            of: GridOf::Hosts,
            hosts: (0..hosts)
                .map(|n| GridHost {
                    name: format!("db{n}"),
                    site: Some(if n < 2 { "a" } else { "b" }.to_owned()),
                })
                .collect(),
            cells,
            now: Nanos::from_secs(1_795_392_000),
        }
    }

    #[test]
    fn a_grid_in_a_terminal() {
        assert_eq!(
            crate::mesh::grid(&of(3), Style::PLAIN),
            "mesh db, test bulk: goodput, 2026-11-23 00:00:00 UTC

from \\ to        1       2       3
  1  db0           9.41Gg~       M
  2  db1    941ML'               -
  3  db2

g good, L low, F failed, M missed, s skipped; - no leg yet; ' older than two
cycles; ~ its level changed
db0 to db2: missed: the agent of db2 is away \\u{1b}[2J<b> (0 min ago)
db1 to db0: low, 941 Mbit/s (2 days ago)
"
        );
    }

    #[test]
    fn a_grid_of_light_probes() {
        let light = |outcome, rtt: Option<u64>, lost: u64, mtu: u64| MeshLeg {
            rtt_p50: rtt.map(Nanos::from_micros),
            loss_ppm: rtt.map(|_| lost),
            packets: Some(if rtt.is_some() { 20 } else { 0 }),
            mtu: rtt.map(|_| mtu),
            busy: lost > 0,
            ..leg(outcome, None, 0)
        };
        let mut grid = of(3);
        grid.figure = CellFigure::LightRtt;
        grid.test = "light".to_owned();
        let cell = |leg| GridCell { legs: vec![leg] };
        let (good, low) = (LegOutcome::Good, LegOutcome::Low);
        grid.cells = BTreeMap::from([
            ((0, 1), cell(light(good, Some(10_100), 0, 1500))),
            ((0, 2), cell(light(good, Some(1_020), 0, 1400))),
            ((1, 0), cell(light(low, Some(10_200), 50_000, 1500))),
            ((1, 2), cell(light(LegOutcome::Missed, None, 0, 0))),
        ]);
        assert_eq!(
            crate::mesh::grid(&grid, Style::PLAIN),
            "mesh db, test light: median RTT, 2026-11-23 00:00:00 UTC

from \\ to         1        2        3
  1  db0             10.1msg  1.02msg
  2  db1   10.2msL+                 M
  3  db2

g good, L low, F failed, M missed, s skipped; - no leg yet; ' older than two
cycles; ~ its level changed; + beside another test of a host
db0 to db2: good, 1.02 ms, 0 % lost, MTU 1400 (0 min ago)
db1 to db0: low, 10.2 ms, 5.0 % lost, MTU 1500 (0 min ago)
db1 to db2: missed: the agent of db2 is away \\u{1b}[2J<b> (0 min ago)
"
        );
        let page = super::grid(&grid, &[], |_| Default::default(), str::to_owned);
        for part in [
            "<td class=\"low\"><a href=\"\" title=\"low, 10.2 ms, 5.0 % lost, MTU 1500 (0 min ago)\">10.2msL+</a></td>",
            "+ beside another test of a host",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn a_reason_of_several_cells_appears_once() {
        let mut grid = of(4);
        let cell = |hours| GridCell {
            legs: vec![leg(LegOutcome::Missed, None, hours)],
        };
        let pairs = [(0, 1), (1, 0), (1, 2), (1, 3), (2, 1), (3, 1)];
        grid.cells = pairs
            .into_iter()
            .map(|pair| (pair, cell(pair.0 as u64)))
            .collect();
        let text = crate::mesh::grid(&grid, Style::PLAIN);
        let (_, below) = text.split_once("its level changed\n").unwrap();
        assert_eq!(
            below,
            "db1 to db0, db2, db3; db0, db2, db3 to db1: missed: the agent of db2 is away
    \\u{1b}[2J<b> (0 min to 3 h ago)
"
        );
        let page = super::grid(&grid, &[], |_| Default::default(), str::to_owned);
        assert_eq!(page.matches("<li>").count(), 1, "{page}");
        assert_eq!(page.matches(" to db").count(), 6, "{page}");
        let many = |n: u64| leg(LegOutcome::Low, Some(n * 1_000_000), 0);
        let legs = (1..=25).map(|n| {
            (
                (0, n as usize),
                GridCell {
                    legs: vec![many(n)],
                },
            )
        });
        let mut grid = of(30);
        grid.cells = legs.collect();
        assert!(crate::mesh::grid(&grid, Style::PLAIN).ends_with("and 5 cells more\n"));
    }

    #[test]
    fn thirty_hosts_fit_80_columns() {
        for hosts in [8, 9, 24, 30, 61] {
            let text = crate::mesh::grid(&of(hosts), Style::PLAIN);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(80), "{hosts}: {widest:?}\n{text}");
            assert!(text.contains('L') && text.contains("L'"), "{text}");
        }
    }

    #[test]
    fn a_grid_as_a_page() {
        let page = grid(
            &of(3),
            &[],
            |host| [format!("/cell.html?src={host}"), format!("&dst={host}")],
            |test| format!("/grid.html?test={test}"),
        );
        for part in [
            "<td class=\"good\"><a href=\"/cell.html?src=db0&amp;dst=db1\" title=\"good, 9.41 Gbit/s (60 min ago)\">9.41Gg~</a></td>",
            "<td class=\"low\"><a href=\"/cell.html?src=db1&amp;dst=db0\" title=\"low, 941 Mbit/s (2 days ago)\">941ML&#39;</a> <small>2 days</small></td>",
            "<td class=\"missed edge\">",
            "<a href=\"/grid.html?test=r\">r</a>",
            "&lt;b&gt;",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains('\x1b'));
    }

    #[test]
    fn legs_of_one_outcome_in_a_row_are_counted() {
        let legs = [LegOutcome::Good, LegOutcome::Missed, LegOutcome::Low]
            .map(|outcome| leg(outcome, Some(1000), 0));
        let cell = GridCell {
            legs: legs.to_vec(),
        };
        assert_eq!(cell.in_a_row(), 1);
    }
}
