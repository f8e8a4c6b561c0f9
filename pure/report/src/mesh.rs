//! Who to whom in a mesh, as text.

mod documents;

pub use documents::MeshCells;

use crate::pages::{GridCell, MeshGrid};
use crate::words::{Ink, Style, age, counted, cut, escape, escape_sentence, wrap};
use model::stats::percent;
use model::{BitRate, CellFigure, LegOutcome, MeshLeg, Nanos};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Columns of a cell with its value at the least, and of one without.
const WIDE: usize = 8;
const NARROW: usize = 3;
/// Longest name of a host at the begin of a row.
const LONGEST: usize = 16;
/// Reasons below the grid.
const MOST_REASONS: usize = 20;

/// The grid: rows are sources, columns destinations. With values where it fits the width, else with marks alone, in
/// parts where that does not fit either; below it the cells that are not good, or where packets are lost or too large.
pub fn grid(grid: &MeshGrid, style: Style) -> String {
    let names: Vec<String> = grid.hosts.iter().map(|host| escape(&host.name)).collect();
    let longest = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    // At the least what stands above the names.
    let first = (longest.min(LONGEST) + 5).max(10);
    let width = usize::from(style.width);
    let texts = grid.cells.values().map(|cell| grid.cell_text(cell));
    let longest = texts.map(|text| text.chars().count()).max().unwrap_or(0);
    // Marks that are rare may join two cells of goodput.
    let wide = if grid.figure == CellFigure::LightRtt {
        WIDE.max(longest + 1)
    } else {
        WIDE
    };
    let with_values = first + wide * names.len() <= width;
    let column = if with_values { wide } else { NARROW };
    let part = ((width.saturating_sub(first)) / column).max(1);
    let mut out = format!("{}\n", grid.title());
    for from in (0..names.len()).step_by(part) {
        let columns = from..(from + part).min(names.len());
        let _ = write!(out, "\n{:first$}", "from \\ to");
        for at in columns.clone() {
            let _ = write!(out, "{:>column$}", at + 1);
        }
        out.push('\n');
        for (row, name) in names.iter().enumerate() {
            let name = cut(name, LONGEST);
            let _ = write!(out, "{:>3}  {name:<width$}", row + 1, width = first - 5);
            for at in columns.clone() {
                let text = match grid.cells.get(&(row, at)) {
                    None => String::new(),
                    Some(cell) if with_values => grid.cell_text(cell),
                    Some(cell) => grid.mark(cell),
                };
                let ink = grid.cells.get(&(row, at)).and_then(GridCell::ink);
                let padded = format!("{text:>column$}");
                out += &ink.map_or(padded.clone(), |ink| style.paint(ink, &padded));
            }
            out = out.trim_end().to_owned() + "\n";
        }
    }
    out += &format!("\n{}", wrap(&grid.legend(), style.width, "", ""));
    let reasons = reasons(grid);
    for reason in reasons.iter().take(MOST_REASONS) {
        let line = format!("{}: {}", pairs(&reason.cells, &names), reason.text);
        out += &wrap(&line, style.width, "", "    ");
    }
    out + &more(&reasons, MOST_REASONS)
}

/// What became of the newest legs of some cells, in the same words.
pub(crate) struct CellReason {
    pub text: String,
    /// By source and destination.
    pub cells: Vec<(usize, usize)>,
}

/// Of the cells that are not good, or where packets are lost or too large.
pub(crate) fn reasons(grid: &MeshGrid) -> Vec<CellReason> {
    let is_light = grid.figure == CellFigure::LightRtt;
    let of_light = grid.cells.values().filter(|_| is_light);
    let largest = of_light.filter_map(|cell| cell.newest()?.mtu).max();
    // Of light probes: packets are lost, or no larger ones pass.
    let is_worse = |leg: &MeshLeg| leg.loss_ppm > Some(0) || leg.mtu < largest;
    let is_notable = |leg: &MeshLeg| is_light && leg.rtt_p50.is_some() && is_worse(leg);
    let is_good = |leg: &MeshLeg| leg.outcome == LegOutcome::Good && !is_notable(leg);
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<((usize, usize), &MeshLeg)>> = Vec::new();
    for (pair, cell) in &grid.cells {
        if let Some(leg) = cell.newest().filter(|leg| !is_good(leg)) {
            let place = *places
                .entry(finding(leg, grid.figure))
                .or_insert(groups.len());
            groups.resize_with(groups.len().max(place + 1), Vec::new);
            groups[place].push((*pair, leg));
        }
    }
    let mut texts: Vec<(usize, String)> = places.into_iter().map(|(text, at)| (at, text)).collect();
    texts.sort_unstable();
    let reasons = groups.into_iter().zip(texts).map(|(legs, (_, text))| {
        let ago =
            |leg: Option<&MeshLeg>| age(grid.now.since(leg.map_or(grid.now, |leg| leg.starts)));
        let all = || legs.iter().map(|(_, leg)| *leg);
        let newest = ago(all().max_by_key(|leg| leg.starts));
        let oldest = ago(all().min_by_key(|leg| leg.starts));
        let ages = match newest == oldest {
            true => newest,
            false => format!("{newest} to {oldest}"),
        };
        CellReason {
            text: format!("{text} ({ages} ago)"),
            cells: legs.iter().map(|(pair, _)| *pair).collect(),
        }
    });
    reasons.collect()
}

/// A line with the number of the cells whose reasons are beyond the first `most`.
pub(crate) fn more(reasons: &[CellReason], most: usize) -> String {
    let beyond = reasons.iter().skip(most);
    match beyond.map(|reason| reason.cells.len()).sum::<usize>() {
        0 => String::new(),
        cells => format!("and {} more\n", counted(cells as u64, "cell")),
    }
}

/// Pairs of hosts, those of one source or destination together: `db1, web1 to db2; db2 to db1, web1`.
fn pairs(cells: &[(usize, usize)], names: &[String]) -> String {
    let mut left = cells.to_vec();
    let mut parts = Vec::new();
    while !left.is_empty() {
        let mut counts = vec![[0, 0]; names.len()];
        for (from, to) in &left {
            counts[*from][0] += 1;
            counts[*to][1] += 1;
        }
        let most = |end: usize| {
            (0..counts.len())
                .rev()
                .max_by_key(|host| counts[*host][end])
        };
        let [from, to] = [0, 1].map(|end| most(end).unwrap_or(0));
        let is_from = counts[from][0] >= counts[to][1];
        let is_taken = |pair: &(usize, usize)| match is_from {
            true => pair.0 == from,
            false => pair.1 == to,
        };
        let (taken, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(is_taken);
        left = rest;
        let others = taken
            .iter()
            .map(|pair| if is_from { pair.1 } else { pair.0 });
        let others: Vec<&str> = others.map(|host| names[host].as_str()).collect();
        let others = others.join(", ");
        parts.push(match is_from {
            true => format!("{} to {others}", names[from]),
            false => format!("{others} to {}", names[to]),
        });
    }
    parts.join("; ")
}

/// What became of a leg, and when.
pub(crate) fn sentence(leg: &MeshLeg, figure: CellFigure, now: Nanos) -> String {
    let mut text = finding(leg, figure);
    let _ = write!(text, " ({} ago)", age(now.since(leg.starts)));
    text
}

/// The figure of a leg with its unit.
pub(crate) fn value(figure: CellFigure, leg: &MeshLeg) -> Option<CellValue> {
    match figure {
        CellFigure::LightRtt | CellFigure::Latency => leg.rtt_p50.map(CellValue::Time),
        CellFigure::Goodput => leg.goodput.map(CellValue::Rate),
        CellFigure::Mtu => leg.mtu.map(CellValue::Size),
    }
}

pub(crate) enum CellValue {
    Time(Nanos),
    Rate(BitRate),
    Size(u64),
}

impl fmt::Display for CellValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CellValue::Time(time) => time.fmt(f),
            CellValue::Rate(rate) => rate.fmt(f),
            CellValue::Size(bytes) => write!(f, "{bytes} bytes"),
        }
    }
}

/// What became of a leg.
fn finding(leg: &MeshLeg, figure: CellFigure) -> String {
    let mut text = String::with_capacity(64);
    text.push_str(leg.outcome.name());
    if let Some(value) = value(figure, leg) {
        let _ = write!(text, ", {value}");
    }
    if leg.rtt_p50.is_some() && leg.packets.is_some() {
        let lost = leg.loss_ppm.unwrap_or(0) as f64 / 1e6;
        let _ = write!(text, ", {} lost", percent(lost));
        if let Some(mtu) = leg.mtu {
            let _ = write!(text, ", MTU {mtu}");
        }
    }
    if let Some(limit) = &leg.limited_by {
        let _ = write!(text, ", limited by {}", escape(limit));
    }
    if let Some(why) = &leg.why {
        let _ = write!(text, ": {}", escape_sentence(why));
    }
    text
}

impl GridCell {
    fn ink(&self) -> Option<Ink> {
        match self.newest()?.outcome {
            LegOutcome::Good => None,
            LegOutcome::Low => Some(Ink::Yellow),
            LegOutcome::Failed | LegOutcome::Missed => Some(Ink::Red),
            LegOutcome::Skipped => Some(Ink::Faint),
        }
    }
}
