//! Connections at present: a table that is drawn again and again, a line now and then, JSON.

use crate::json::{compact, document};
use crate::words::{self, Ink, Style, percent};
use model::finding::{Confidence, Explanation, Glance, Limit, SocketAccount};
use model::{BitRate, Bytes, Nanos};

/// Connections in the table.
pub const SHOWN: usize = 12;
/// Connections in a line of JSON.
pub const LISTED: usize = 50;
/// Columns from which the congestion window and the round trip are shown as well.
const WIDE: u16 = 110;
/// An address and its port take at most so many columns.
const WIDEST_END: usize = 21;

/// How a table is drawn, and what is below it.
pub struct TableFoot<'a> {
    /// Connections that are open.
    pub open: u64,
    /// Connections that were seen.
    pub seen: u64,
    /// What the reader can do.
    pub hint: &'a str,
    /// Rows have numbers, by which a key opens them.
    pub numbered: bool,
}

/// A table of connections, none of its lines wider than the screen.
pub fn frame(glances: &[Glance], foot: &TableFoot<'_>, at: Nanos, style: Style) -> Vec<String> {
    let wide = style.width >= WIDE;
    let mut head = vec![
        "process",
        "",
        "Mbit/s",
        "seen",
        "cwnd KiB",
        "rtt ms",
        "limit lately",
    ];
    if !wide {
        head.drain(4..6);
    }
    if foot.numbered {
        head.insert(0, "");
    }
    let rows = (1..).zip(glances).take(SHOWN).map(|(n, one)| {
        let mut row = row(one, wide);
        if foot.numbered {
            row.insert(0, if n < 10 { n.to_string() } else { String::new() });
        }
        row
    });
    let table = words::table(&head, rows);
    let width = usize::from(style.width.max(20));
    let mut lines: Vec<String> = table.lines().map(|line| words::cut(line, width)).collect();
    if let Some(heading) = lines.first_mut() {
        *heading = style.paint(Ink::Bold, heading);
    }
    let TableFoot {
        open, seen, hint, ..
    } = foot;
    let more = match open.saturating_sub(glances.len().min(SHOWN) as u64) {
        0 => String::new(),
        more => format!(", {more} of them not shown"),
    };
    let last = format!("{}: {open} open of {seen} seen{more}. {hint}", seconds(at));
    lines.push(words::cut(&last, width));
    lines
}

fn row(one: &Glance, wide: bool) -> Vec<String> {
    let remote = one.remote.to_string();
    // The end of a long address matters more than its beginning.
    let remote = match remote.len() > WIDEST_END {
        true => format!("..{}", &remote[remote.len() - (WIDEST_END - 2)..]),
        false => remote,
    };
    let figure = |n: u64, unit: f64| words::three_digits(n as f64 / unit);
    let unit = one.unit.as_ref().filter(|_| wide);
    let mut row = vec![
        unit.map_or_else(|| who(one), |unit| format!("{} ({unit})", who(one))),
        format!(":{} {} {remote}", one.local.port(), way(one)),
        match rate(one).0 {
            0 => "0".to_owned(),
            rate => figure(rate, 1e6),
        },
        seconds(one.seen),
        limit(one),
    ];
    if wide {
        let path = [figure(one.cwnd.0, 1024.0), figure(one.srtt.0, 1e6)];
        row.splice(4..4, path);
    }
    row
}

pub(crate) fn who(one: &Glance) -> String {
    match one.pid {
        0 => "-".to_owned(),
        _ => one.comm.to_string(),
    }
}

/// Which way the most goes.
pub(crate) fn way(one: &Glance) -> &'static str {
    if one.received > one.sent { "<-" } else { "->" }
}

fn rate(one: &Glance) -> BitRate {
    one.sent.max(one.received)
}

pub(crate) fn limit(one: &Glance) -> String {
    let short = |limit: Limit| {
        let words = limit.words();
        let bare = |article| words.strip_prefix(article);
        bare("the ").or_else(|| bare("a ")).unwrap_or(words)
    };
    let Some(limit) = one.limit else {
        let idle = rate(one).0 == 0;
        return if idle { "(idle)" } else { "(only receives)" }.to_owned();
    };
    let mut text = format!("{} {}", percent(one.share), short(limit));
    if let Some(cause) = one.cause.filter(|cause| *cause != limit) {
        text.push_str(&format!(": {}", short(cause)));
    }
    if let Some(confidence) = one.confidence.filter(|c| *c != Confidence::Certain) {
        text.push_str(&format!(", {confidence}"));
    }
    text
}

/// The first in a line, and how many others there are.
pub fn line(glances: &[Glance], open: u64, at: Nanos) -> String {
    let at = seconds(at);
    let Some(first) = glances.first() else {
        return format!("{at}: no connection is open");
    };
    let more = match open.saturating_sub(1) {
        0 => String::new(),
        n => format!("; {n} more"),
    };
    format!("{at}: {}{more}", sentence(first))
}

/// One connection in a line.
fn sentence(one: &Glance) -> String {
    let (local, remote, way) = (one.local, one.remote, way(one));
    let who = match one.pid {
        0 => String::new(),
        pid => format!("{} ({pid}) ", one.comm),
    };
    format!("{who}{local} {way} {remote}, {}, {}", rate(one), limit(one))
}

/// A line each of those that are not idle, as far as a table would show them.
pub fn lines(glances: &[Glance], looks: u64, at: Nanos) -> Vec<String> {
    let busy = glances
        .iter()
        .take(SHOWN)
        .filter(|one| rate(one).0 > 0 || one.limit.is_some());
    let lines: Vec<String> = busy
        .map(|one| format!("{}: {}", seconds(at), sentence(one)))
        .collect();
    match (lines.is_empty(), looks) {
        // What moves is the difference of two.
        (true, ..2) => vec![format!("{}: not known after one look", seconds(at))],
        (true, _) => vec![format!("{}: no data move", seconds(at))],
        (false, _) => lines,
    }
}

fn seconds(at: Nanos) -> String {
    format!("{} s", at.0 / 1_000_000_000)
}

/// The same for programs, one line; with what was counted of all sockets.
pub fn json(glances: &[Glance], open: u64, at: Nanos, account: Option<&SocketAccount>) -> String {
    let (kind, at_ns) = ("now", at);
    let connections = &glances[..glances.len().min(LISTED)];
    match account {
        Some(account) => compact(&document!(kind, at_ns, open, connections, account)),
        None => compact(&document!(kind, at_ns, open, connections)),
    }
}

/// A trace that a trigger started, one line.
pub fn traced_json(
    at: Nanos,
    trigger: &str,
    file: &str,
    bytes: Bytes,
    explanations: &[Explanation],
) -> String {
    let (kind, at_ns) = ("traced", at);
    compact(&document!(kind, at_ns, trigger, file, bytes, explanations))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::glance;

    #[test]
    fn the_busiest_in_a_table_and_in_a_line() {
        let mut other = glance();
        other.remote = "[fd00:1234:5678:9abc:def0:1234:5678:9abc]:5201"
            .parse()
            .unwrap();
        other.limit = None;
        other.received = BitRate(3_000_000);
        (other.sent, other.cwnd) = (BitRate(0), Bytes(14_480));
        (other.cause, other.confidence, other.pid) = (None, None, 0);
        let all = [glance(), other];
        let at = Nanos::from_millis(12_345);
        let foot = TableFoot {
            open: 2,
            seen: 7,
            hint: "Ctrl-C explains them.",
            numbered: false,
        };
        assert_eq!(
            frame(&all, &foot, at, Style::PLAIN),
            [
                "process                                   Mbit/s  seen  limit lately",
                "iperf3   :40000 -> 192.0.2.2:5201         94.1    12 s  97 % receive window",
                "-        :40000 <- ..234:5678:9abc]:5201  3.00    12 s  (only receives)",
                "12 s: 2 open of 7 seen. Ctrl-C explains them.",
            ]
        );
        let first = "12 s: iperf3 (845) 192.0.2.1:40000 -> 192.0.2.2:5201, 94.1 Mbit/s, 97 % receive window";
        assert_eq!(line(&all, 2, at), format!("{first}; 1 more"));
        assert_eq!(line(&[], 0, at), "12 s: no connection is open");
        assert_eq!(lines(&all, 2, at)[0], first);
        let mut idle = glance();
        (idle.sent, idle.limit) = (BitRate(0), None);
        assert_eq!(limit(&idle), "(idle)");
        assert_eq!(
            lines(&[idle.clone()], 1, at),
            ["12 s: not known after one look"]
        );
        assert_eq!(lines(&[idle], 2, at), ["12 s: no data move"]);
        let mut lossy = glance();
        (lossy.limit, lossy.cause) = (Some(Limit::CongestionWindow), Some(Limit::RandomLoss));
        lossy.confidence = Some(Confidence::Likely);
        assert_eq!(limit(&lossy), "97 % congestion window: random loss, likely");
        assert_eq!(json(&all, 2, at, None).matches('\n').count(), 1);
        let many = vec![glance(); 40];
        for (width, path) in [(40, false), (WIDE, true)] {
            let style = Style {
                width,
                ..Style::PLAIN
            };
            let foot = TableFoot {
                open: 40,
                seen: 40,
                hint: "",
                numbered: true,
            };
            let lines = frame(&many, &foot, at, style);
            assert!(
                lines
                    .iter()
                    .all(|l| l.chars().count() <= usize::from(width)),
                "{lines:?}"
            );
            assert_eq!(lines.len(), 1 + SHOWN + 1);
            assert_eq!(lines[0].contains("cwnd"), path);
            assert_eq!(lines[1].contains("iperf3 (backup.service)"), path);
            assert!(
                lines[9].starts_with("9 ") && lines[10].starts_with("  "),
                "{lines:?}"
            );
        }
    }
}
