//! Who to whom in a mesh, as text.

mod documents;
#[cfg(test)]
pub(crate) use documents::documents_of_tests;

pub use documents::{
    CheckedHost, CheckedLink, CheckedTest, MeshCells, MeshChecked, MeshSuspect, MeshSuspects,
    SuspectElement,
};

use crate::pages::{CellFigure, GridCell, MeshGrid};
use crate::words::{Ink, Style, age, counted, escape, escape_sentence, wrap};
use model::stats::percent;
use model::{LegOutcome, MeshLeg};
use std::fmt::Write as _;

/// Columns of a cell with its value at the least, and of one without.
const WIDE: usize = 8;
const NARROW: usize = 3;
/// Longest name of a host at the begin of a row.
const LONGEST: usize = 16;
/// Cells below the grid that are explained.
const MOST_EXPLAINED: usize = 20;

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
            let name: String = name.chars().take(LONGEST).collect();
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
    let largest = grid.largest_mtu();
    let is_good = |cell: &GridCell| {
        cell.newest()
            .is_none_or(|leg| leg.outcome == LegOutcome::Good && !grid.is_notable(leg, largest))
    };
    let bad: Vec<_> = grid
        .cells
        .iter()
        .filter(|(_, cell)| !is_good(cell))
        .collect();
    for ((from, to), cell) in bad.iter().take(MOST_EXPLAINED) {
        if let Some(leg) = cell.newest() {
            let head = format!("{} to {}: ", names[*from], names[*to]);
            out += &wrap(&sentence(leg, grid), style.width, &head, "    ");
        }
    }
    if bad.len() > MOST_EXPLAINED {
        let _ = writeln!(
            out,
            "and {} more",
            counted((bad.len() - MOST_EXPLAINED) as u64, "cell")
        );
    }
    out
}

/// What became of a leg.
pub(crate) fn sentence(leg: &MeshLeg, grid: &MeshGrid) -> String {
    let mut text = leg.outcome.to_string();
    if let Some(value) = grid.value(leg) {
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
    text + &format!(" ({} ago)", age(grid.now.since(leg.starts)))
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
