//! Connections at present: a table that is drawn again and again, a line now and then, JSON. A day of them that was kept.

use crate::json::{compact, document};
use crate::pages::{day, held, most, ranked, sentence as held_back};
use crate::prove::phrase::span;
use crate::words::{self, Ink, Style, counted, minute, percent};
use model::finding::{Confidence, Explanation, Glance, Limit, SocketAccount, SocketGroup};
use model::{BitRate, Ended, Nanos, WatchTrace, WatchedDay};
use std::collections::BTreeMap;

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

/// The words of a limit without their article.
fn bare(limit: Limit) -> &'static str {
    let words = limit.words();
    let without = |article| words.strip_prefix(article);
    without("the ").or_else(|| without("a ")).unwrap_or(words)
}

pub(crate) fn limit(one: &Glance) -> String {
    let Some(limit) = one.limit else {
        let idle = rate(one).0 == 0;
        return if idle { "(idle)" } else { "(only receives)" }.to_owned();
    };
    let mut text = format!("{} {}", percent(one.share), bare(limit));
    if let Some(cause) = one.cause.filter(|cause| *cause != limit) {
        text.push_str(&format!(": {}", bare(cause)));
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

/// Rows of each table of a day.
const GROUPS: usize = 12;

/// How long something other than its application held, and what most of that time was.
fn mostly(limited: &BTreeMap<Limit, Nanos>) -> Option<[String; 2]> {
    let (limit, time) = most(limited)?;
    let all = held(limited);
    let part = percent(time.0 as f64 / all.0.max(1) as f64);
    Some([all.to_string(), format!("{part} {}", bare(limit))])
}

/// A day that was kept in a line, for a list.
pub fn day_note(of: &WatchedDay) -> String {
    let by = mostly(&of.account.limited).map(|[_, by]| by);
    let by = by.unwrap_or_else(|| "nothing".to_owned());
    let filter = match of.filter.as_str() {
        "" => String::new(),
        filter => format!(" ({filter})"),
    };
    format!(
        "day: held back by {by}; {}{filter}, {} sent, {} received",
        counted(of.account.seen, "socket"),
        of.account.sent,
        of.account.received
    )
}

/// A day that was kept, for people.
pub fn watched_day(of: &WatchedDay, style: Style) -> String {
    let (name, date) = (words::escape(&of.host), day(of));
    let mut out = style.bold(&format!("Connections of {name}, {date} (UTC)")) + "\n";
    out += &style.item(&held_back(&of.account.limited));
    if !of.filter.is_empty() {
        out += &style.item(&format!(
            "Only those of {}.",
            words::escape_sentence(&of.filter)
        ));
    }
    out += &style.item(&format!(
        "Watched for {} between {} and {}: {}, {} sent, {} received.",
        span(of.watched),
        minute(of.started),
        minute(of.until),
        counted(of.account.seen, "socket"),
        of.account.sent,
        of.account.received
    ));
    if let Some(missing) = of.account.missing() {
        out += &style.item(&format!("Connections are missing: {missing}."));
    }
    let groups = ranked(&of.groups);
    let rows = groups.iter().filter_map(|group| {
        let mut row = place(group);
        row.extend(mostly(&group.limited)?);
        Some(row)
    });
    let head = ["process", "port", "peers", "held back", "mostly by"];
    out += &section(&head, rows.take(GROUPS).collect(), style);
    let mut groups = groups;
    groups.sort_by_key(|group| std::cmp::Reverse(group.sent + group.received));
    let rows = groups.iter().map(|group| {
        let mut row = place(group);
        row.push(group.sockets.to_string());
        row.extend([group.sent, group.received].map(|bytes| bytes.to_string()));
        row
    });
    let head = ["process", "port", "peers", "sockets", "sent", "received"];
    out += &section(&head, rows.take(GROUPS).collect(), style);
    let rows = of.hours.iter().filter_map(|hour| {
        let [all, by] = mostly(&hour.limited)?;
        let begun = minute(hour.begun).chars().skip(11).collect();
        Some(vec![begun, span(hour.watched), all, by])
    });
    let head = ["from", "watched", "held back", "mostly by"];
    out + &section(&head, rows.collect(), style)
}

/// Process, port and peers of a group.
fn place(of: &SocketGroup) -> Vec<String> {
    let process = of.process.to_string();
    vec![
        match process.as_str() {
            "" => "-".to_owned(),
            name => words::escape(name),
        },
        match of.port {
            0 => "-".to_owned(),
            port => port.to_string(),
        },
        of.peer.clone(),
    ]
}

fn section(head: &[&str], rows: Vec<Vec<String>>, style: Style) -> String {
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", words::Table::new(head, rows).fit(style)),
    }
}

/// A trace that a trigger started, one line.
pub fn traced_json(at: Nanos, of: &WatchTrace, file: &str, explanations: &[Explanation]) -> String {
    let (kind, at_ns) = ("traced", at);
    let WatchTrace {
        id,
        trigger,
        before: before_ns,
        bytes,
        ..
    } = of;
    compact(&document!(
        kind,
        at_ns,
        id,
        trigger,
        before_ns,
        file,
        bytes,
        explanations
    ))
}

/// A trace that was kept in a line, for a list.
pub fn trace_note(of: &WatchTrace) -> String {
    let found = match (&of.found, &of.ended) {
        (Some(found), _) => found.as_str(),
        (None, Ended::Unfinished) => "not explained so far",
        (None, _) => "nothing to explain",
    };
    let process = words::escape(&of.process.to_string());
    format!("trace: {process} to {}: {found}", of.remote)
}

/// Whose connection it was.
fn subject(of: &WatchTrace) -> String {
    let process = of.process.to_string();
    let who = match process.as_str() {
        "" => String::new(),
        name => format!("{} ({}) ", words::escape(name), of.pid),
    };
    format!("{who}{} to {}", of.local, of.remote)
}

/// What of the trace is older than its start, for behind the trigger.
pub fn before(of: &WatchTrace) -> String {
    match of.before {
        Nanos(0) => String::new(),
        before => format!(", with {before} before it"),
    }
}

/// A trace that was kept and what its segments show, for people.
pub fn watch_trace(of: &WatchTrace, explanations: &[Explanation], style: Style) -> String {
    let head = format!(
        "Trace of {} on {}, {}, started by {}{}",
        subject(of),
        words::escape(&of.host),
        words::utc(of.started),
        of.trigger,
        before(of)
    );
    format!(
        "{}\n{}",
        style.bold(&head),
        crate::explain::text(explanations, Some(&of.host), style)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, glance};
    use model::Bytes;

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
    #[test]
    fn a_day_in_lines_that_fit_a_terminal() {
        let day = testing::watched_day();
        let style = Style {
            width: 80,
            ..Style::PLAIN
        };
        let text = watched_day(&day, style);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        for part in [
            "Connections of db2, 2027-01-15 (UTC)\n",
            "What held connections back most is the receive window: 3.00 s of 3.00 s in",
            "rsync    873   192.0.2.0/24  3.00 s     100 % receive window\n",
            "rsync    873   192.0.2.0/24  7        1.00 GiB  0 B\n",
            "08:00  1 min    3.00 s     100 % receive window\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(
            day_note(&day),
            "day: held back by 100 % receive window; 7 sockets, 1.00 GiB sent, 0 B received"
        );
    }
    #[test]
    fn a_trace_in_a_line_and_with_what_its_segments_show() {
        let trace = testing::watch_trace();
        assert_eq!(
            trace_note(&trace),
            "trace: rsync to 192.0.2.2:873: limited by the receive window."
        );
        let text = watch_trace(&trace, &[testing::rivals()], Style::PLAIN);
        let head = "Trace of rsync (845) 192.0.2.1:40000 to 192.0.2.2:873 on db2";
        assert!(text.starts_with(head), "{text}");
        assert!(
            text.contains("started by a stall, with 9.80 s before it"),
            "{text}"
        );
    }
}
