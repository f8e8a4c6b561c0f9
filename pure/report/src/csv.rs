//! A run's samples as a table for a spreadsheet or a data frame.

use crate::prelude::*;
use crate::sample_table::{self, NUMBERS, SamplesOf, TEXTS};
use std::borrow::Cow;

/// The header of [`rows`].
pub fn header() -> String {
    let texts = TEXTS.iter().map(|(name, _)| (*name).to_owned());
    let names: Vec<String> = texts.chain(sample_table::number_names()).collect();
    table(&names, [])
}

/// One row for each stream of a sample, behind a header whose names carry the units (bytes
/// where none is said). RFC 4180: CRLF, and quotes around what needs them.
///
/// Columns that begin with `end_` belong to the whole end, all streams together, and repeat on the
/// row of each stream. A cell is empty where the end reports nothing. Names are escaped like all text, for
/// a table is often read in a terminal first.
pub fn rows(of: SamplesOf<'_>, sample: &Sample) -> String {
    let rows = sample_table::rows(of, sample).map(|row| {
        let texts = TEXTS.iter().map(|(_, text)| text(&of));
        let numbers = NUMBERS.iter().map(|(_, number)| cell(number(&row)));
        line(
            texts
                .chain(numbers)
                .chain(sample_table::socket(&row).map(cell)),
        )
    });
    rows.collect()
}

/// A cell; empty where there is no value.
pub(crate) fn cell(value: Option<impl std::fmt::Display>) -> String {
    or(value, "")
}

/// A table by RFC 4180.
pub(crate) fn table(
    header: &[impl AsRef<str>],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let header = line(header);
    header + &rows.into_iter().map(line).collect::<String>()
}

fn line(cells: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let cells = cells
        .into_iter()
        .map(|cell| quoted(cell.as_ref()).into_owned());
    cells.collect::<Vec<_>>().join(",") + "\r\n"
}

/// A cell in quotes, if it needs them (RFC 4180, 2.5 to 2.7).
pub(crate) fn quoted(cell: &str) -> Cow<'_, str> {
    match cell.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")).into(),
        false => cell.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, LAN};
    use model::{Direction, Run, Side};

    /// A reader by the letter of RFC 4180.
    fn parse(text: &str) -> Vec<Vec<String>> {
        let mut rows = vec![vec![String::new()]];
        let mut quoted = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let row = rows.last_mut().unwrap();
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    row.last_mut().unwrap().push('"');
                }
                '"' => quoted = !quoted,
                ',' if !quoted => row.push(String::new()),
                '\r' if !quoted => {
                    assert_eq!(chars.next(), Some('\n'));
                    rows.push(vec![String::new()]);
                }
                c => row.last_mut().unwrap().push(c),
            }
        }
        assert_eq!(rows.pop(), Some(vec![String::new()]));
        rows
    }

    fn run(run: &Run) -> String {
        let mut text = header();
        for (index, leg) in run.legs.iter().enumerate() {
            for side in [Side::Local, Side::Remote] {
                let samples = leg.end(side).samples.iter();
                let of = SamplesOf {
                    run,
                    index,
                    side,
                    mesh: None,
                };
                text.extend(samples.map(|sample| rows(of, sample)));
            }
        }
        text
    }

    fn run_of_two_legs() -> Run {
        let mut requests = testing::request_leg(100);
        requests.remote.samples.truncate(1);
        requests.remote.samples[0].streams.clear();
        testing::run(
            testing::spec(),
            vec![testing::leg(Direction::Down, LAN), requests],
        )
    }

    #[test]
    fn every_sample_has_its_row_under_named_columns() {
        let rows = parse(&run(&run_of_two_legs()));
        assert_eq!(rows.len(), 1 + 11 + 11 + 11 + 1);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        let column = |name: &str| rows[0].iter().position(|n| n == name).unwrap();
        let row = &rows[1 + 11 + 2];
        let cell = |name: &str| row[column(name)].as_str();
        assert_eq!(cell("run_id"), "1a2b3c4d");
        assert_eq!(
            (cell("leg"), cell("direction"), cell("side")),
            ("0", "down", "remote")
        );
        assert_eq!((cell("at_ns"), cell("stream")), ("2000000000", "0"));
        assert_eq!(cell("bytes"), "176812500");
        assert_eq!(cell("tcp_srtt_ns"), "1900000");
        assert_eq!(cell("tcp_cwnd"), "410");
        assert_eq!(cell("tcp_sack"), "false");
        assert_eq!((cell("tcp_pmtu"), cell("tcp_total_rto")), ("", ""));
        assert_eq!(cell("end_requests"), "");
        let requests = &rows[1 + 22 + 1];
        assert_eq!(requests[column("end_requests")], "1000");
        let silent = rows.last().unwrap();
        assert_eq!(
            (
                silent[column("stream")].as_str(),
                silent[column("tcp_srtt_ns")].as_str()
            ),
            ("", "")
        );
    }

    #[test]
    fn quotes_what_needs_quotes() {
        let mut run_ = run_of_two_legs();
        run_.host = "a,\"b\"\r\nc".to_owned();
        let text = run(&run_);
        assert!(text.contains("1a2b3c4d,\"a,\"\"b\"\"\\r\\nc\",,"), "{text}");
        assert_eq!(parse(&text)[1][1], "a,\"b\"\\r\\nc");
        let row = ["", "a\r\nb", "\"", ",", " x "];
        assert_eq!(parse(&table(&row, [])), [row]);
    }
}
