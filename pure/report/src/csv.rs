//! A run's samples as a table for a spreadsheet or a data frame.

use crate::words::escape;
use model::socket::FIELDS;
use model::{Latency, Leg, Nanos, Run, Sample, Side, StreamSample};
use std::borrow::Cow;

/// One row for each leg, side, sample and stream, behind a header whose names carry the units (bytes
/// where none is said). RFC 4180: CRLF, and quotes around what needs them.
///
/// Columns that begin with `end_` belong to the whole end, all streams together, and repeat on the
/// row of each stream. A cell is empty where the end did not tell. Names are escaped like all text, for
/// a table is often looked at in a terminal first.
pub fn run(run: &Run) -> String {
    let mut table = Table::default();
    let mut header: Vec<String> = KEYS
        .iter()
        .chain(&COUNTERS)
        .map(|s| (*s).to_owned())
        .collect();
    header.extend(FIELDS.iter().map(|field| format!("tcp_{}", field.name)));
    table.row(&header);

    for (index, leg) in run.legs.iter().enumerate() {
        for side in [Side::Near, Side::Far] {
            for sample in &leg.end(side).samples {
                let mut streams: Vec<Option<&StreamSample>> =
                    sample.streams.iter().map(Some).collect();
                if streams.is_empty() {
                    streams.push(None);
                }
                for stream in streams {
                    let mut row = keys(run, index, leg, side, sample, stream);
                    row.extend(counters(sample, stream));
                    let tcp = stream.and_then(|s| s.tcp.as_ref());
                    row.extend(FIELDS.iter().map(|field| cell(tcp.and_then(field.get))));
                    table.row(&row);
                }
            }
        }
    }
    table.text
}

const KEYS: [&str; 7] = [
    "run_id",
    "host",
    "leg",
    "direction",
    "side",
    "at_ns",
    "stream",
];

fn keys(
    run: &Run,
    index: usize,
    leg: &Leg,
    side: Side,
    sample: &Sample,
    stream: Option<&StreamSample>,
) -> Vec<String> {
    vec![
        escape(&run.id),
        escape(&run.host),
        index.to_string(),
        leg.direction.to_string(),
        side.to_string(),
        sample.at.0.to_string(),
        cell(stream.map(|s| s.stream)),
    ]
}

const COUNTERS: [&str; 14] = [
    "bytes",
    "send_buffer",
    "receive_buffer",
    "end_bytes",
    "end_process_user_ns",
    "end_process_system_ns",
    "end_host_busy_ns",
    "end_host_softirq_ns",
    "end_host_steal_ns",
    "end_host_total_ns",
    "end_requests",
    "end_request_p50_ns",
    "end_request_p99_ns",
    "end_request_max_ns",
];

fn counters(sample: &Sample, stream: Option<&StreamSample>) -> Vec<String> {
    let cpu = &sample.cpu;
    let requests = sample.requests.as_ref();
    let percentile = |share| {
        cell(
            requests
                .and_then(|r| r.percentile(share))
                .map(|n: Nanos| n.0),
        )
    };
    vec![
        cell(stream.map(|s| s.bytes.0)),
        cell(stream.and_then(|s| s.send_buffer).map(|b| b.0)),
        cell(stream.and_then(|s| s.receive_buffer).map(|b| b.0)),
        sample.bytes.0.to_string(),
        cpu.process_user.0.to_string(),
        cpu.process_system.0.to_string(),
        cpu.host_busy.0.to_string(),
        cpu.host_softirq.0.to_string(),
        cpu.host_steal.0.to_string(),
        cpu.host_total.0.to_string(),
        cell(requests.map(Latency::count)),
        percentile(0.5),
        percentile(0.99),
        cell(requests.and_then(Latency::max).map(|n| n.0)),
    ]
}

fn cell(value: Option<impl ToString>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) text: String,
}

impl Table {
    pub(crate) fn row(&mut self, cells: &[String]) {
        for (at, cell) in cells.iter().enumerate() {
            if at > 0 {
                self.text.push(',');
            }
            self.text.push_str(&quoted(cell));
        }
        self.text.push_str("\r\n");
    }
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

    fn run_of_two_legs() -> Run {
        let mut requests = testing::request_leg(100);
        requests.far.samples.truncate(1);
        requests.far.samples[0].streams.clear();
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
            ("0", "down", "far")
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
        let mut table = Table::default();
        let row = ["", "a\r\nb", "\"", ",", " x "].map(str::to_owned);
        table.row(&row);
        assert_eq!(parse(&table.text), [row]);
    }
}
