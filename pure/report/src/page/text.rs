//! A page as text, for a terminal, a ticket, or a program.

use super::{Chart, Drawing, Page, quantity};
use crate::json::{document, pretty};
use crate::words::{Ink, Style, Table, blocks, escape_sentence, unmarked};
use std::fmt::Write as _;

/// Version of the JSON form.
pub const PAGE_SCHEMA: u32 = 1;
/// A line of blocks is no longer than this.
const LONGEST_SPARK: usize = 60;

/// In the lines of a terminal: what is folded is shown as well, and of each chart its first series in a row of blocks.
pub fn text(page: &Page, style: Style) -> String {
    let bold = |text: &str| style.paint(Ink::Bold, &escape_sentence(text)) + "\n";
    let prose = |text: &String| style.prose(&escape_sentence(text));
    let mut out = bold(&page.title) + "\n";
    out.extend(page.figures.iter().map(|one| prose(&one.to_string())));
    out.extend(page.verdict.iter().map(prose));
    out.push('\n');
    let names = page.facts.iter().map(|(name, _)| name.chars().count());
    let widest = names.max().unwrap_or(0);
    for (name, value) in &page.facts {
        let first = format!("{:<widest$}  ", escape_sentence(name));
        out += &style.hang(&first, widest + 2, &escape_sentence(value));
    }
    for section in &page.sections {
        out.push('\n');
        out += &bold(&section.heading);
        out.extend(section.words.iter().map(prose));
        for picture in &section.pictures {
            out += &prose(&picture.title);
            if let Drawing::Chart(chart) = &picture.drawing {
                out += &sparkline(chart, style);
            }
            out += &style.hang("  ", 2, &escape_sentence(&picture.alternative));
        }
        for (n, table) in section.tables.iter().enumerate() {
            if n > 0 || !section.words.is_empty() || !section.pictures.is_empty() {
                out.push('\n');
            }
            out.extend(
                table
                    .to_string()
                    .lines()
                    .map(|line| escaped_line(line) + "\n"),
            );
        }
        out.extend(
            section
                .listing
                .lines()
                .map(|line| escaped_line(line) + "\n"),
        );
    }
    out
}

/// The first series as a row of blocks; empty if it has no values.
pub(crate) fn sparkline(chart: &Chart, style: Style) -> String {
    let Some(series) = chart.series.first() else {
        return String::new();
    };
    let known = series.points.iter().filter_map(|(x, y)| Some((*x, (*y)?)));
    let values: Vec<(f64, f64)> = known.collect();
    let most = values.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let unit = chart.y.get(series.axis).map_or("", |axis| axis.unit);
    let tail = format!("  up to {}", quantity(most, unit));
    let room = usize::from(style.width).saturating_sub(tail.chars().count() + 2);
    match blocks(&values, room.min(LONGEST_SPARK), style) {
        none if none.is_empty() || most <= 0.0 => String::new(),
        blocks => format!("  {blocks}{tail}\n"),
    }
}

/// A line of a listing: it keeps its columns.
fn escaped_line(line: &str) -> String {
    let spaces = line.len() - line.trim_start().len();
    line[..spaces].to_owned() + &escape_sentence(line)
}

/// For a wiki, a ticket, or a mail.
pub fn markdown(page: &Page) -> String {
    let words = |text: &str| unmarked(&escape_sentence(text));
    let mut out = format!("# {}\n\n", words(&page.title));
    let figures = page.figures.iter().map(ToString::to_string);
    for said in figures.chain(page.verdict.iter().cloned()) {
        let _ = writeln!(out, "**{}**\n", words(&said));
    }
    for (name, value) in &page.facts {
        let _ = writeln!(out, "- {}: {}", words(name), words(value));
    }
    for section in &page.sections {
        let _ = write!(out, "\n## {}\n\n", words(&section.heading));
        for said in &section.words {
            let _ = writeln!(out, "{}\n", words(said));
        }
        for picture in &section.pictures {
            let (title, output) = (words(&picture.title), words(&picture.alternative));
            let _ = writeln!(out, "### {title}\n\n{output}\n");
        }
        section.tables.iter().for_each(|one| marked(&mut out, one));
        // Four spaces make it code, whatever stands in it.
        for line in section.listing.lines() {
            let _ = writeln!(out, "    {}", escaped_line(line));
        }
    }
    out
}

/// A table of markdown; one without names has empty ones, since it must have a head.
fn marked(out: &mut String, table: &Table) {
    let columns = table.rows.iter().map(Vec::len).chain([table.head.len()]);
    let columns = columns.max().unwrap_or(0);
    let mut line = |cells: &[String]| {
        let cells = (0..columns).map(|at| cells.get(at).map_or("", String::as_str));
        let cells = cells.map(|cell| unmarked(&escape_sentence(cell)));
        let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
    };
    line(&table.head);
    line(&vec!["---".to_owned(); columns]);
    table.rows.iter().for_each(|row| line(row));
    out.push('\n');
}

/// As one JSON document; `docs/json.md` has its keys.
pub fn json(page: &Page) -> String {
    let schema = PAGE_SCHEMA;
    pretty(&document!(
        schema,
        #[serde(flatten)]
        page
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::both_ways;
    use crate::words::is_unprintable;

    fn short() -> Page {
        let mut page = both_ways();
        page.sections.truncate(2);
        page.sections[1].listing = "  a table\n  of two lines".to_owned();
        page
    }

    #[test]
    fn the_same_in_lines_and_in_markdown() {
        let said = text(&short(), Style::PLAIN);
        assert!(
            said.lines().all(|line| line.chars().count() <= 80),
            "{said}"
        );
        insta::assert_snapshot!(said);
        insta::assert_snapshot!(markdown(&short()));
    }

    #[test]
    fn nothing_that_others_wrote_is_obeyed() {
        let evil = "\u{1b}[2J# *x* <b>\u{202e}";
        let mut page = short();
        page.title = evil.to_owned();
        page.verdict = vec![evil.to_owned()];
        page.facts = vec![(evil.to_owned(), evil.to_owned())];
        page.sections[0].heading = evil.to_owned();
        page.sections[0].listing = evil.to_owned();
        page.sections[0].pictures[0].alternative = evil.to_owned();
        for said in [text(&page, Style::PLAIN), markdown(&page), json(&page)] {
            assert!(
                said.chars().all(|c| c == '\n' || !is_unprintable(c)),
                "{said}"
            );
        }
        assert!(!markdown(&page).contains("*x*\n\n"));
    }
}
