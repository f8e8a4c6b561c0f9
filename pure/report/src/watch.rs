//! Connections at present: a table that is drawn again and again, a line now and then, JSON.

use crate::json::{compact, document};
use crate::words::{self, Ink, Style, percent};
use model::finding::Glance;
use model::{BitRate, Nanos};

/// Connections in the table.
const SHOWN: usize = 12;
/// Connections in a line of JSON.
const LISTED: usize = 50;
/// An address and its port take at most so many columns.
const WIDEST_END: usize = 21;

/// A table of the busiest connections, none of its lines wider than the screen.
pub fn frame(glances: &[Glance], seen: u64, at: Nanos, style: Style) -> Vec<String> {
    let head = ["", "Mbit/s", "cwnd KiB", "rtt ms", "limit lately"];
    let table = words::table(&head, glances.iter().take(SHOWN).map(row));
    let width = usize::from(style.width.max(20));
    let mut lines: Vec<String> = table.lines().map(|line| words::cut(line, width)).collect();
    if let Some(heading) = lines.first_mut() {
        *heading = style.paint(Ink::Bold, heading);
    }
    let more = match glances.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", {more} of them not shown"),
    };
    let (at, open) = (seconds(at), glances.len());
    let last = format!("{at}: {open} open of {seen} seen{more}. Ctrl-C explains them.");
    lines.push(words::cut(&last, width));
    lines
}

fn row(one: &Glance) -> Vec<String> {
    let remote = one.remote.to_string();
    // The end of a long address matters more than its beginning.
    let remote = match remote.len() > WIDEST_END {
        true => format!("..{}", &remote[remote.len() - (WIDEST_END - 2)..]),
        false => remote,
    };
    let figure = |n: u64, unit: f64| words::three_digits(n as f64 / unit);
    vec![
        format!(":{} {} {remote}", one.local.port(), way(one)),
        figure(rate(one).0, 1e6),
        figure(one.cwnd.0, 1024.0),
        figure(one.srtt.0, 1e6),
        limit(one),
    ]
}

/// Which way the most goes.
fn way(one: &Glance) -> &'static str {
    if one.received > one.sent { "<-" } else { "->" }
}

fn rate(one: &Glance) -> BitRate {
    one.sent.max(one.received)
}

fn limit(one: &Glance) -> String {
    match one.limit {
        Some(limit) => {
            let words = limit.words();
            let short = words.strip_prefix("the ").unwrap_or(words);
            format!("{} {short}", percent(one.share))
        }
        None => "(only receives)".to_owned(),
    }
}

/// The busiest in a line, and how many others there are.
pub fn line(glances: &[Glance], at: Nanos) -> String {
    let at = seconds(at);
    let Some(first) = glances.first() else {
        return format!("{at}: no connection is open");
    };
    let more = match glances.len() - 1 {
        0 => String::new(),
        n => format!("; {n} more"),
    };
    let (local, remote, way) = (first.local, first.remote, way(first));
    let (rate, limit) = (rate(first), limit(first));
    format!("{at}: {local} {way} {remote}, {rate}, {limit}{more}")
}

fn seconds(at: Nanos) -> String {
    format!("{} s", at.0 / 1_000_000_000)
}

/// The same for programs, one line.
pub fn json(glances: &[Glance], at: Nanos) -> String {
    let (kind, at_ns, open) = ("now", at, glances.len());
    let connections = &glances[..open.min(LISTED)];
    compact(&document!(kind, at_ns, open, connections))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::glance;
    use model::Bytes;
    use model::finding::Limit;

    #[test]
    fn the_busiest_in_a_table_and_in_a_line() {
        let mut other = glance();
        other.remote = "[fd00:1234:5678:9abc:def0:1234:5678:9abc]:5201"
            .parse()
            .unwrap();
        other.limit = None;
        other.received = BitRate(3_000_000);
        (other.sent, other.cwnd) = (BitRate(0), Bytes(14_480));
        let all = [glance(), other];
        let at = Nanos::from_millis(12_345);
        assert_eq!(
            frame(&all, 7, at, Style::PLAIN),
            [
                "                                 Mbit/s  cwnd KiB  rtt ms  limit lately",
                ":40000 -> 192.0.2.2:5201         94.1    370       20.4    97 % receive window",
                ":40000 <- ..234:5678:9abc]:5201  3.00    14.1      20.4    (only receives)",
                "12 s: 2 open of 7 seen. Ctrl-C explains them.",
            ]
        );
        assert_eq!(
            line(&all, at),
            "12 s: 192.0.2.1:40000 -> 192.0.2.2:5201, 94.1 Mbit/s, 97 % receive window; 1 more"
        );
        assert_eq!(line(&[], at), "12 s: no connection is open");
        assert_eq!(json(&all, at).matches('\n').count(), 1);
        let narrow = Style {
            width: 40,
            ..Style::PLAIN
        };
        let many = vec![glance(); 40];
        let lines = frame(&many, 40, at, narrow);
        assert!(lines.iter().all(|l| l.chars().count() <= 40), "{lines:?}");
        assert_eq!(lines.len(), 1 + SHOWN + 1);
        assert_eq!(glance().limit, Some(Limit::ReceiveWindow));
    }
}
