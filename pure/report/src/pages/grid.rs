//! Who to whom in a mesh: the page of all cells, and that of one cell.

use super::History;
use crate::mesh::{more, reasons, sentence};
use crate::page::{Page, Section, document, inert};
use crate::words::{Table, age, escape, escape_sentence, shown, utc};
use model::{MeshLeg, Nanos};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What the cells of a test show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellFigure {
    /// Goodput.
    Goodput,
    /// Median latency of requests.
    Latency,
    /// Median RTT of light probes.
    LightRtt,
    /// Path MTU.
    Mtu,
}

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
    /// The hosts, those of a site beside each other.
    pub hosts: Vec<GridHost>,
    /// The cells that the test has, by source and destination.
    pub cells: BTreeMap<(usize, usize), GridCell>,
    /// The moment of the grid, since 1970-01-01 UTC.
    pub now: Nanos,
}

/// A row and a column.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        format!("mesh {mesh}, test {test}: {what}, {}", utc(self.now))
    }

    /// The figure of a leg.
    pub(crate) fn value(&self, leg: &MeshLeg) -> Option<String> {
        match self.figure {
            CellFigure::LightRtt | CellFigure::Latency => leg.rtt_p50.map(|time| time.to_string()),
            CellFigure::Goodput => leg.goodput.map(|rate| rate.to_string()),
            CellFigure::Mtu => leg.mtu.map(|size| format!("{size} bytes")),
        }
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

    /// The largest packet that passes between any two hosts.
    pub(crate) fn largest_mtu(&self) -> Option<u64> {
        let newest = self.cells.values().filter_map(GridCell::newest);
        newest.filter_map(|leg| leg.mtu).max()
    }

    /// Whether light probes found more than an RTT: packets were lost, or no `largest` ones pass.
    pub(crate) fn is_notable(&self, leg: &MeshLeg, largest: Option<u64>) -> bool {
        self.figure == CellFigure::LightRtt
            && leg.rtt_p50.is_some()
            && (leg.loss_ppm > Some(0) || leg.mtu < largest)
    }

    /// Older than two cycles.
    pub fn is_old(&self, leg: &MeshLeg) -> bool {
        self.now.since(leg.starts) > Nanos(self.every.0.saturating_mul(2))
    }

    /// The letter of a cell, and marks of its age and of a change of its level.
    pub(crate) fn mark(&self, cell: &GridCell) -> String {
        let Some(leg) = cell.newest() else {
            return "-".to_owned();
        };
        let old = if self.is_old(leg) { "'" } else { "" };
        let changed = if leg.level_since.is_some() { "~" } else { "" };
        let busy = if leg.busy { "+" } else { "" };
        format!("{}{old}{changed}{busy}", leg.outcome.letter())
    }

    /// The value of a cell with its mark: `9.41GL`.
    pub(crate) fn cell_text(&self, cell: &GridCell) -> String {
        let value = cell
            .newest()
            .and_then(|leg| self.value(leg))
            .unwrap_or_default();
        let value = value
            .replace("bit/s", "")
            .replace("bytes", "")
            .replace(' ', "");
        value + &self.mark(cell)
    }
}

/// Reasons below the grid of a page.
const MOST_REASONS: usize = 200;

/// The page of a grid, with names and addresses of the grids of other meshes. The links have the address of the page of a cell,
/// by source and destination, and of another test.
pub fn grid(
    grid: &MeshGrid,
    meshes: &[(String, String)],
    cell_link: impl Fn(&str, &str) -> String,
    test_link: impl Fn(&str) -> String,
) -> String {
    let mut out = format!(
        "<main class=\"mesh\">\n<h1>{}</h1>\n<nav><a href=\"/\">All measurements</a>",
        inert(&grid.title())
    );
    let tests = grid.tests.iter().filter(|test| **test != grid.test);
    let tests: Vec<_> = tests.map(|test| (test.clone(), test_link(test))).collect();
    for (heading, links) in [("Other tests", &tests[..]), ("Other meshes", meshes)] {
        if !links.is_empty() {
            let _ = write!(out, " {heading}:");
        }
        out.extend(links.iter().map(|(name, href)| link(name, href)));
    }
    out.push_str("</nav>\n<p>Rows are sources, columns destinations.</p>\n");
    out.push_str("<div class=\"wide\"><table class=\"grid\">\n<thead><tr><th></th>");
    let starts_site = |at: usize| at > 0 && grid.hosts[at].site != grid.hosts[at - 1].site;
    let frame = |at: usize| if starts_site(at) { " edge" } else { "" };
    for (at, host) in grid.hosts.iter().enumerate() {
        let _ = write!(
            out,
            "<th class=\"to{}\" title=\"{}\">{}</th>",
            frame(at),
            site(host),
            inert(&host.name)
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (row, from) in grid.hosts.iter().enumerate() {
        let edge = if starts_site(row) {
            " class=\"edge\""
        } else {
            ""
        };
        let _ = write!(
            out,
            "<tr{edge}><th title=\"{}\">{}</th>",
            site(from),
            inert(&from.name)
        );
        for (at, to) in grid.hosts.iter().enumerate() {
            let Some(cell) = grid.cells.get(&(row, at)) else {
                let _ = write!(out, "<td class=\"none{}\"></td>", frame(at));
                continue;
            };
            let (class, title) = match cell.newest() {
                None => ("none", "no leg yet".to_owned()),
                Some(leg) => (leg.outcome.name(), sentence(leg, grid)),
            };
            let aged = cell.newest().filter(|leg| grid.is_old(leg));
            let aged =
                aged.map(|leg| format!(" <small>{}</small>", age(grid.now.since(leg.starts))));
            let _ = write!(
                out,
                "<td class=\"{class}{}\"><a href=\"{}\" title=\"{}\">{}</a>{}</td>",
                frame(at),
                inert(&cell_link(&from.name, &to.name)),
                inert(&title),
                inert(&grid.cell_text(cell)),
                aged.unwrap_or_default()
            );
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
            let links = reason.cells.iter().map(|(from, to)| {
                let [from, to] = [from, to].map(|host| grid.hosts[*host].name.as_str());
                link(&format!("{from} to {to}"), &cell_link(from, to))
            });
            let links = links.collect::<Vec<_>>().join(",");
            let _ = writeln!(out, "<li>{}: {}</li>", links.trim(), inert(&reason.text));
        }
        let _ = writeln!(out, "</ul>\n{}", more(&reasons, MOST_REASONS));
    }
    out.push_str("</main>\n");
    document(&format!("Mesh {}", grid.mesh), &out, true)
}

pub(super) fn link(name: &str, href: &str) -> String {
    format!(" <a href=\"{}\">{}</a>", inert(href), inert(name))
}

/// The page of a cell: its newest legs, those of `grid` between the two hosts of the history, and its history.
pub fn cell(history: &History, grid: &MeshGrid) -> Page {
    let mut page = super::history(history);
    let hosts = [&history.local, &history.host];
    let is_it = |(from, to): &(usize, usize)| [from, to].map(|at| &grid.hosts[*at].name) == hosts;
    let cell = grid.cells.iter().find(|(pair, _)| is_it(pair));
    let legs = cell.map_or(&[][..], |(_, cell)| &cell.legs);
    let newest = match legs.first() {
        Some(leg) => format!("Newest leg: {}.", sentence(leg, grid)),
        None => "No leg yet.".to_owned(),
    };
    page.verdict.insert(0, newest);
    let rows = legs.iter().map(|leg| {
        vec![
            utc(leg.starts),
            leg.outcome.to_string(),
            grid.value(leg).unwrap_or_else(|| "-".to_owned()),
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

    fn of(hosts: usize) -> MeshGrid {
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
        let page = super::grid(&grid, &[], |_, _| String::new(), str::to_owned);
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
        let page = super::grid(&grid, &[], |_, _| String::new(), str::to_owned);
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
            |src, dst| format!("/cell.html?src={src}&dst={dst}"),
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
