//! A run's samples as a table for a spreadsheet or a data frame.

use crate::words::{escape, or};
use model::socket::FIELDS;
use model::{Datagrams, Latency, Leg, Nanos, Run, Sample, Side, StreamSample};
use std::borrow::Cow;

/// What a row is of.
struct CsvRow<'a> {
    run: &'a Run,
    index: usize,
    leg: &'a Leg,
    side: Side,
    sample: &'a Sample,
    stream: Option<&'a StreamSample>,
}

type Column = (&'static str, fn(&CsvRow<'_>) -> String);

/// The columns before those of the socket.
const COLUMNS: [Column; 26] = [
    ("run_id", |r| escape(&r.run.id)),
    ("host", |r| escape(&r.run.host)),
    ("leg", |r| r.index.to_string()),
    ("direction", |r| r.leg.direction.to_string()),
    ("side", |r| r.side.to_string()),
    ("at_ns", |r| r.sample.at.0.to_string()),
    ("stream", |r| cell(r.stream.map(|s| s.stream))),
    ("bytes", |r| cell(r.stream.map(|s| s.bytes.0))),
    ("send_buffer", |r| {
        cell(r.stream.and_then(|s| Some(s.send_buffer?.0)))
    }),
    ("receive_buffer", |r| {
        cell(r.stream.and_then(|s| Some(s.receive_buffer?.0)))
    }),
    ("end_bytes", |r| r.sample.bytes.0.to_string()),
    ("end_process_user_ns", |r| ns(r.sample.cpu.process_user)),
    ("end_process_system_ns", |r| ns(r.sample.cpu.process_system)),
    ("end_host_busy_ns", |r| ns(r.sample.cpu.host_busy)),
    ("end_busiest_processor_ns", |r| {
        cell(r.sample.cpu.busiest_processor.map(|busy| busy.0))
    }),
    ("end_host_softirq_ns", |r| ns(r.sample.cpu.host_softirq)),
    ("end_host_steal_ns", |r| ns(r.sample.cpu.host_steal)),
    ("end_host_total_ns", |r| ns(r.sample.cpu.host_total)),
    ("end_requests", |r| of_requests(r, |all| Some(all.count()))),
    ("end_request_p50_ns", |r| {
        of_requests(r, |all| Some(all.percentile(0.5)?.0))
    }),
    ("end_request_p99_ns", |r| {
        of_requests(r, |all| Some(all.percentile(0.99)?.0))
    }),
    ("end_request_max_ns", |r| {
        of_requests(r, |all| Some(all.max()?.0))
    }),
    ("end_datagrams", |r| of_datagrams(r, |all| all.packets)),
    ("end_datagrams_lost", |r| of_datagrams(r, |all| all.lost)),
    ("end_datagrams_out_of_order", |r| {
        of_datagrams(r, |all| all.out_of_order)
    }),
    ("end_jitter_ns", |r| of_datagrams(r, |all| all.jitter.0)),
];

/// The header of [`rows`].
pub fn header() -> String {
    let names = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
    let fields = FIELDS.iter().map(|field| format!("tcp_{}", field.name));
    table(&names.chain(fields).collect::<Vec<_>>(), [])
}

/// One row for each stream of a sample, behind a header whose names carry the units (bytes
/// where none is said). RFC 4180: CRLF, and quotes around what needs them.
///
/// Columns that begin with `end_` belong to the whole end, all streams together, and repeat on the
/// row of each stream. A cell is empty where the end reports nothing. Names are escaped like all text, for
/// a table is often read in a terminal first.
pub fn rows(run: &Run, index: usize, side: Side, sample: &Sample) -> String {
    let Some(leg) = run.legs.get(index) else {
        return String::new();
    };
    let none = sample.streams.is_empty().then_some(None);
    let rows = sample.streams.iter().map(Some).chain(none).map(|stream| {
        let row = CsvRow {
            run,
            index,
            leg,
            side,
            sample,
            stream,
        };
        let tcp = stream.and_then(|s| s.tcp.as_ref());
        let of_socket = FIELDS.iter().map(|field| cell(tcp.and_then(field.get)));
        let cells = COLUMNS.iter().map(|(_, value)| value(&row));
        line(cells.chain(of_socket))
    });
    rows.collect()
}

/// A cell; empty where there is no value.
pub(crate) fn cell(value: Option<impl std::fmt::Display>) -> String {
    or(value, "")
}

fn ns(time: Nanos) -> String {
    time.0.to_string()
}

fn of_datagrams(row: &CsvRow<'_>, figure: fn(Datagrams) -> u64) -> String {
    cell(row.sample.datagrams.map(figure))
}

fn of_requests(row: &CsvRow<'_>, figure: fn(&Latency) -> Option<u64>) -> String {
    cell(row.sample.requests.as_ref().and_then(figure))
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
    use model::Direction;

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
                text.extend(samples.map(|sample| rows(run, index, side, sample)));
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
        assert!(
            text.contains("1a2b3c4d,\"a,\"\"b\"\"\\r\\nc\",0,down"),
            "{text}"
        );
        assert_eq!(parse(&text)[1][1], "a,\"b\"\\r\\nc");
        let row = ["", "a\r\nb", "\"", ",", " x "];
        assert_eq!(parse(&table(&row, [])), [row]);
    }
}
