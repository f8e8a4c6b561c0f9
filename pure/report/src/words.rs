//! The handful of things that all text output needs: safe strings, wrapped lines, aligned tables.

use crate::prelude::*;
pub use model::stats::percent;
use std::fmt::{self, Write as _};

/// What the reader's screen can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns that a line may take. Tables may be wider than a very narrow screen.
    pub width: u16,
    /// Escape sequences for colour and weight are welcome.
    pub colour: bool,
    /// Block characters for bars and sparklines are welcome; if not, plain ASCII stands in.
    pub unicode: bool,
}

impl Style {
    /// For a pipe or a file: 80 columns of plain ASCII furniture.
    pub const PLAIN: Style = Style {
        width: 80,
        colour: false,
        unicode: false,
    };

    /// For prose that something else breaks into lines: a page, markdown, a search in it.
    pub const WIDE: Style = Style {
        width: u16::MAX,
        ..Style::PLAIN
    };

    /// `text` in `ink`, or just `text` where colour is not welcome. The text must be escaped already.
    pub fn paint(self, ink: Ink, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Bold => 1,
            Ink::Faint => 2,
            Ink::Red => 31,
            Ink::Yellow => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Each line painted by itself, so that a pager that starts in the middle shows it right.
    pub(crate) fn paint_lines(self, ink: Ink, text: &str) -> String {
        let lines = text.lines().map(|line| self.paint(ink, line) + "\n");
        lines.collect()
    }

    /// A paragraph.
    pub(crate) fn prose(self, text: &str) -> String {
        wrap(text, self.width, "", "")
    }

    /// A paragraph behind `first`, its further lines behind as many spaces as `rest` says.
    pub(crate) fn hang(self, first: &str, rest: usize, text: &str) -> String {
        wrap(text, self.width, first, &" ".repeat(rest))
    }

    /// An item of a list.
    pub(crate) fn item(self, text: &str) -> String {
        self.hang("- ", 2, text)
    }

    /// A paragraph in bold: an answer.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint_lines(Ink::Bold, &self.prose(text))
    }
}

/// Emphasis, as few as will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// The answer.
    Bold,
    /// Beside the point.
    Faint,
    /// Something broke.
    Red,
    /// A doubt.
    Yellow,
}

/// Longest name (host, kernel, device, setting) that is shown; what is longer was not meant to be read.
const LONGEST_NAME: usize = 120;
/// Longest sentence (a warning, a reason) that is shown.
const LONGEST_SENTENCE: usize = 600;

/// Digits of a name in the archive that text shows.
const SHOWN: usize = 8;

/// A name in the archive as text shows it, which commands take: the first digits of a whole one of 32. That of a run in
/// a file may be anything.
pub fn shown(id: &str) -> String {
    escape(first_digits(id))
}

/// The same, not made fit for a terminal.
pub(crate) fn first_digits(id: &str) -> &str {
    let is_whole = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
    if is_whole { &id[..SHOWN] } else { id }
}

/// A name from a peer or a file made fit for a terminal: control characters and characters that
/// change the direction or vanish are written out as `\u{1b}`, and what is too long is cut.
pub fn escape(text: &str) -> String {
    escape_to(text, LONGEST_NAME)
}

/// The same for a whole sentence.
pub fn escape_sentence(text: &str) -> String {
    escape_to(text, LONGEST_SENTENCE)
}

fn escape_to(text: &str, longest: usize) -> String {
    let text = text.trim();
    let is_fit = |byte: u8| byte.is_ascii() && !byte.is_ascii_control();
    if text.len() <= longest && text.bytes().all(is_fit) {
        return text.to_owned();
    }
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == longest {
            out.push_str("...");
            break;
        }
        if is_unprintable(c) {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Control characters (C0, DEL, C1 with its one-character CSI), line and paragraph separators,
/// zero-width characters, and the bidirectional overrides that can make text read as another.
pub(crate) fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// `text` broken at spaces into lines of at most `width` characters, the first behind `first`, the
/// others behind `rest`. A word longer than a line is cut. What [`glue`] joined stays on one line.
pub fn wrap(text: &str, width: u16, first: &str, rest: &str) -> String {
    let width = usize::from(width).max(rest.chars().count() + 8);
    let mut out = first.to_owned();
    let mut column = first.chars().count();
    let mut at_start = true;
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        // Of a command in two lines nothing can be copied: the terminal wraps it.
        let is_whole = word.contains(GLUE);
        let mut word: Vec<char> = word.replace(GLUE, " ").chars().collect();
        let gap = usize::from(!at_start);
        if !at_start && column + gap + word.len() > width {
            out.push('\n');
            out.push_str(rest);
            column = rest.chars().count();
        } else if !at_start {
            out.push(' ');
            column += 1;
        }
        while !is_whole && column + word.len() > width {
            let tail = word.split_off(width.saturating_sub(column).max(1));
            out.extend(word);
            out.push('\n');
            out.push_str(rest);
            column = rest.chars().count();
            word = tail;
        }
        column += word.len();
        out.extend(word);
        at_start = false;
    }
    out.push('\n');
    out
}

/// No-break space: stands for a space at which [`wrap`] must not break.
const GLUE: char = '\u{a0}';

/// A figure with its unit, or a command, that must not be broken between two lines.
pub(crate) fn glue(words: impl std::fmt::Display) -> String {
    words.to_string().replace(' ', "\u{a0}")
}

/// Rows of cells under names. As text each column is as wide as its widest cell, with two spaces between.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// Names of the columns; empty if they have none.
    pub head: Vec<String>,
    /// The cells of each row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
        Table {
            head: strings(head),
            rows: rows.into_iter().collect(),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = (!self.head.is_empty()).then_some(&self.head);
        let rows: Vec<&Vec<String>> = head.into_iter().chain(&self.rows).collect();
        let mut widths: Vec<usize> = Vec::new();
        for row in &rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(*row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in rows {
            let cells = row.iter().zip(&widths);
            let line: String = cells
                .map(|(cell, width)| format!("{cell:<width$}  "))
                .collect();
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl Table {
    /// As text whose lines are no longer than the screen, if the last column can be broken to fit it.
    pub(crate) fn fit(&self, style: Style) -> String {
        let text = self.to_string();
        let screen = usize::from(style.width);
        if text.lines().all(|line| line.chars().count() <= screen) {
            return text;
        }
        let all = || {
            (!self.head.is_empty())
                .then_some(&self.head)
                .into_iter()
                .chain(&self.rows)
        };
        let cut = |row: &Vec<String>| row.split_last().map(|(_, front)| front.to_vec());
        let front = Table::new(&[], all().filter_map(cut)).to_string();
        let before = front.lines().map(|line| line.chars().count()).max();
        let before = before.map_or(0, |columns| columns + 2);
        let lines = front.lines().zip(all().filter_map(|row| row.last()));
        lines
            .map(|(line, last)| {
                let text = style.hang(&format!("{line:<before$}"), before, last);
                text.trim_end().to_owned() + "\n"
            })
            .collect()
    }
}

/// A table as text.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    Table::new(head, rows).to_string()
}

/// Texts of their own.
pub(crate) fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

/// A value, or what stands where there is none.
pub(crate) fn or<T: std::fmt::Display>(value: Option<T>, none: &str) -> String {
    value.map_or_else(|| none.to_owned(), |value| value.to_string())
}

/// `1234567` as `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// How many of something: `1 event`, `2,000 events`.
pub fn counted(n: u64, of: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {of}{plural}", grouped(n))
}

/// Year, month and day of a moment since 1970, in the proleptic Gregorian calendar (the algorithm of Howard Hinnant's
/// "chrono-compatible low-level date algorithms", civil_from_days).
pub(crate) fn date(unix: Nanos) -> (u64, u64, u64) {
    let days = unix.0 / 86_400_000_000_000 + 719_468; // since 0000-03-01, so that leap days end a year
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// The time of day: `20:17:16`.
pub(crate) fn clock(unix: Nanos) -> String {
    let seconds = unix.0 / 1_000_000_000;
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{h:02}:{m:02}:{s:02}")
}

/// A moment since 1970 as `2026-11-20 20:17:16 UTC`.
pub fn utc(unix: Nanos) -> String {
    let ((year, month, day), time) = (date(unix), clock(unix));
    format!("{year:04}-{month:02}-{day:02} {time} UTC")
}

/// The same to the minute: `2026-11-20 20:17`.
pub fn minute(unix: Nanos) -> String {
    utc(unix).chars().take(16).collect()
}

/// How long ago something was: `5 min`, `3 h`, `12 days`.
pub fn age(span: Nanos) -> String {
    match span.0 / 60_000_000_000 {
        minutes @ 0..120 => format!("{minutes} min"),
        minutes @ 120..2_880 => format!("{} h", minutes / 60),
        minutes => format!("{} days", minutes / 1_440),
    }
}

/// A span of time that was chosen rather than measured: `10 s`, not `10.0 s`.
pub fn round_span(span: Nanos) -> String {
    let text = span.to_string();
    let Some((digits, unit)) = text.split_once(' ') else {
        return text;
    };
    match digits.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().all(|d| d == b'0') => format!("{whole} {unit}"),
        _ => text,
    }
}

/// Three significant digits, at most four decimals: `16.3`, `0.0721`.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.09995 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

/// A count a second: `116,500/s`, `12.5/s`.
pub fn per_second(rate: f64) -> String {
    if rate >= 100.0 {
        format!("{}/s", grouped(rate.round() as u64))
    } else {
        format!("{rate:.1}/s")
    }
}

/// At most `width` characters: of a longer text the begin and `..`, as far as that fits.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(2)).collect();
    kept.trim_end().to_owned() + &".."[..width.min(2)]
}

/// Values over time, ascending, as a row of at most so many blocks, each the average of its time, above zero.
pub(crate) fn blocks(values: &[(f64, f64)], most: usize, style: Style) -> String {
    let (Some((begin, _)), Some((end, _))) = (values.first(), values.last()) else {
        return String::new();
    };
    let set = match style.unicode {
        true => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        false => ['_', '.', ',', '-', '=', '+', '*', '#'],
    };
    let mut sums = vec![(0.0, 0.0); most.min(values.len())];
    let columns = sums.len();
    for (x, y) in values {
        let column = ((x - begin) / (end - begin) * columns as f64) as usize;
        if let Some((sum, count)) = sums.get_mut(column.min(columns.saturating_sub(1))) {
            (*sum, *count) = (*sum + y, *count + 1.0);
        }
    }
    let largest = values
        .iter()
        .map(|(_, y)| *y)
        .fold(f64::MIN_POSITIVE, f64::max);
    // A column in which nothing was read goes on as the one before.
    let mut level = 0;
    let blocks = sums.into_iter().map(|(sum, count)| {
        if count > 0.0 {
            level = (sum / count / largest * 7.0).round() as usize;
        }
        set[level.min(7)]
    });
    blocks.collect()
}

/// Text that markdown would take for markup, written out.
pub(crate) fn unmarked(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if "\\`*_[]<>|#".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_survives() {
        assert_eq!(escape("db1.example.net"), "db1.example.net");
        assert_eq!(escape("Zürich-日本"), "Zürich-日本");
        assert_eq!(
            escape("a\x1b[2Jb\r\nc\u{9b}31m\u{7f}"),
            "a\\u{1b}[2Jb\\r\\nc\\u{9b}31m\\u{7f}"
        );
        assert_eq!(escape("x\u{202e}y\u{200b}"), "x\\u{202e}y\\u{200b}");
        assert_eq!(escape(&"x".repeat(500)).len(), LONGEST_NAME + 3);
    }

    #[test]
    fn lines_keep_their_width() {
        let text = wrap("one two three fourfivesixseven eight", 14, "- ", "  ");
        assert_eq!(text, "- one two\n  three\n  fourfivesixs\n  even eight\n");
        assert!(text.lines().all(|l| l.chars().count() <= 14));
        assert_eq!(wrap("", 10, "a", "b"), "a\n");
        let glued = format!("took {} in all", glue("10 s"));
        assert_eq!(wrap(&glued, 8, "", ""), "took\n10 s in\nall\n");
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(
            table(&["a", "bb"], [strings(&["ccc", ""])]),
            "a    bb\nccc\n"
        );
    }

    #[test]
    fn moments_in_the_calendar() {
        for (unix, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_795_205_836, "2026-11-20 20:17:16 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(Nanos::from_secs(unix)), text);
        }
    }

    #[test]
    fn figures_as_a_person_writes_them() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_165_000), "1,165,000");
        assert_eq!(round_span(Nanos::from_secs(10)), "10 s");
        assert_eq!(round_span(Nanos::from_millis(2_500)), "2.50 s");
        assert_eq!(three_digits(16.304), "16.3");
        assert_eq!(three_digits(0.07214), "0.0721");
        assert_eq!(per_second(116_499.6), "116,500/s");
    }
}
