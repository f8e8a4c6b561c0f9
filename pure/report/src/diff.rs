//! Two connections side by side. A rate is bytes by time, so what a byte costs is a sum over the limits
//! that owned the time: the difference between two rates falls apart by limit, without a rest.

use crate::explain::sentence;
use crate::words::{self, Ink, Style, escape, glue, wrap};
use model::finding::{Explanation, Level, Limit};
use model::{Direction, Nanos};
use serde::Serialize;

/// Unlike costs below this share of the difference are not told.
pub(crate) const NEGLIGIBLE: f64 = 0.01;
/// Columns of a heading at most: with the longest limit a row still fits 80.
const WIDEST_HEADING: usize = 12;
/// Limits whose evidence stands side by side.
const RESTED: usize = 2;
/// Rates nearer than this are the same.
pub(crate) const SAME: f64 = 0.05;

/// Both sides as a JSON document: the explanations that are compared.
pub fn json((name_a, a): (&str, &[Explanation]), (name_b, b): (&str, &[Explanation])) -> String {
    let side = |name, explanations| Side { name, explanations };
    crate::json::pretty(&Sides {
        schema: crate::explain::EXPLAIN_SCHEMA,
        a: side(name_a, a),
        b: side(name_b, b),
    })
}

#[derive(Serialize)]
struct Sides<'a> {
    schema: u32,
    a: Side<'a>,
    b: Side<'a>,
}

#[derive(Serialize)]
struct Side<'a> {
    name: &'a str,
    explanations: &'a [Explanation],
}

/// Why one is faster than the other: pairs by direction where both know it, else the largest of each.
pub fn diff(
    (name_a, a): (&str, &[Explanation]),
    (name_b, b): (&str, &[Explanation]),
    style: Style,
) -> String {
    let mut out = String::new();
    let pairs: Vec<(&Explanation, &Explanation)> =
        [Some(Direction::Up), Some(Direction::Down), None]
            .into_iter()
            .filter_map(|way| Some((largest(a, way)?, largest(b, way)?)))
            .collect();
    let pairs = match pairs.is_empty() {
        true => busiest(a).zip(busiest(b)).into_iter().collect(),
        false => pairs,
    };
    for (one, other) in pairs {
        if !out.is_empty() {
            out.push('\n');
        }
        let named = |name, which: &Explanation, all: &[Explanation]| Named {
            name: escape(name),
            which: which_of(which, all),
        };
        out.push_str(&pair(
            (&named(name_a, one, a), one),
            (&named(name_b, other, b), other),
            style,
        ));
    }
    match out.is_empty() {
        true => "Nothing to compare: one of them has no connection of TCP.\n".to_owned(),
        false => out,
    }
}

fn largest(all: &[Explanation], way: Option<Direction>) -> Option<&Explanation> {
    all.iter()
        .filter(|e| e.direction == way)
        .max_by_key(|e| e.bytes)
}

/// Whichever moved most.
fn busiest(all: &[Explanation]) -> Option<&Explanation> {
    all.iter().max_by_key(|e| e.bytes)
}

/// What a side is called.
struct Named {
    name: String,
    /// Which of its connections.
    which: String,
}

/// Said where there is more than one to choose from.
fn which_of(one: &Explanation, all: &[Explanation]) -> String {
    let others = all.iter().filter(|e| e.direction == one.direction).count();
    match (all.len(), others) {
        (..=1, _) => String::new(),
        (_, ..=1) => format!(" ({})", escape(&one.name)),
        (_, n) => format!(" ({}, the largest of {n} connections)", escape(&one.name)),
    }
}

/// A heading: the last part of a path, its end if that is long.
pub(crate) fn heading(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name);
    let skip = name.chars().count().saturating_sub(WIDEST_HEADING);
    match skip {
        0 => name.to_owned(),
        skip => format!("..{}", name.chars().skip(skip + 2).collect::<String>()),
    }
}

fn pair(a: (&Named, &Explanation), b: (&Named, &Explanation), style: Style) -> String {
    let rate = |e: &Explanation| e.bytes.per(e.span).0 as f64;
    let (fast, slow) = if rate(a.1) >= rate(b.1) {
        (a, b)
    } else {
        (b, a)
    };
    let way = match (fast.1.direction, slow.1.direction) {
        (Some(one), Some(other)) if one == other => format!("{one}: "),
        _ => String::new(),
    };
    let ratio = rate(fast.1) / rate(slow.1).max(1.0);
    let same = ratio < 1.0 + SAME;
    let first = if same {
        format!("{way}{} and {} are equally fast.", fast.0.name, slow.0.name)
    } else {
        format!(
            "{way}{} is {} times as fast as {}.",
            fast.0.name,
            words::three_digits(ratio),
            slow.0.name
        )
    };
    let bold = |line: &str| format!("{}\n", style.paint(Ink::Bold, line));
    let first = wrap(&first, style.width, "", "");
    let mut out: String = first.lines().map(bold).collect();
    for (named, one) in [fast, slow] {
        let line = format!(
            "{}{}: {} in {}, {}; {}",
            named.name,
            named.which,
            glue(one.bytes),
            glue(one.span),
            glue(one.bytes.per(one.span)),
            sentence(one)
        );
        out.push_str(&wrap(&line, style.width, "  ", "    "));
    }
    if same {
        return out;
    }
    let costs = costs(fast.1, slow.1);
    let more: f64 = costs.iter().map(|(_, a, b)| b - a).sum();
    let mut headings = [heading(&fast.0.name), heading(&slow.0.name)];
    if headings[0] == headings[1] {
        headings = ["the faster", "the slower"].map(str::to_owned);
    }
    let [faster, slower] = headings;
    let mut rows = vec![vec![
        "ms a MB".to_owned(),
        faster,
        slower,
        "more".to_owned(),
        "share".to_owned(),
    ]];
    let cost = |ms: f64| match ms {
        0.0 => "-".to_owned(),
        ms => words::three_digits(ms),
    };
    let told = costs
        .iter()
        .filter(|(_, a, b)| (b - a).abs() >= NEGLIGIBLE * more.abs());
    rows.extend(told.map(|(limit, a, b)| {
        let sign = if b >= a { "+" } else { "-" };
        vec![
            limit.words().to_owned(),
            cost(*a),
            cost(*b),
            format!("{sign}{}", words::three_digits((b - a).abs())),
            format!("{:.0} %", 100.0 * (b - a) / more),
        ]
    }));
    if rows.len() > 1 {
        out.push('\n');
        out.push_str(&words::table(&rows));
    }
    let limits = costs.iter().map(|(limit, ..)| *limit).take(RESTED);
    for limit in limits {
        for (named, one) in [fast, slow] {
            out.push_str(&rests_on(&named.name, one, limit, style));
        }
    }
    out
}

/// What a limit of one of them rests on.
fn rests_on(name: &str, one: &Explanation, limit: Limit, style: Style) -> String {
    let evidence = one
        .finding(limit)
        .map_or(&[][..], |finding| &finding.evidence);
    if evidence.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{name}, {}:\n", limit.words());
    for fact in evidence {
        let line = crate::evidence::line(fact);
        out.push_str(&wrap(&line, style.width, "  ", "    "));
    }
    out
}

/// What each limit costs a megabyte in either, in milliseconds; the largest difference first.
fn costs(a: &Explanation, b: &Explanation) -> Vec<(Limit, f64, f64)> {
    let cost = |e: &Explanation, limit: Limit| {
        let time = e
            .findings
            .iter()
            .find(|f| f.limit == limit && f.level == Level::First)
            .map_or(Nanos(0), |f| f.share.time);
        time.0 as f64 / 1e6 / (e.bytes.0.max(1) as f64 / 1e6)
    };
    let mut all: Vec<(Limit, f64, f64)> = Limit::ALL
        .iter()
        .filter(|l| l.level() == Level::First)
        .map(|l| (*l, cost(a, *l), cost(b, *l)))
        .filter(|(_, a, b)| a + b > 0.0)
        .collect();
    all.sort_by(|x, y| (y.2 - y.1).abs().total_cmp(&(x.2 - x.1).abs()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use model::Bytes;

    #[test]
    fn the_difference_falls_apart_by_limit() {
        let slow = testing::rivals();
        let mut fast = testing::rivals();
        fast.bytes = Bytes(540 << 20);
        let costs = costs(&fast, &slow);
        let more: f64 = costs.iter().map(|(_, a, b)| b - a).sum();
        let each = |e: &Explanation| 9800.0 / (e.bytes.0 as f64 / 1e6);
        assert!((more - (each(&slow) - each(&fast))).abs() < 1e-9);
        assert_eq!(costs[0].0, Limit::CongestionWindow);
        let text = diff(("a", &[slow]), ("b", &[fast]), Style::PLAIN);
        assert!(
            text.starts_with("up: b is 10.0 times as fast as a.\n"),
            "{text}"
        );
        assert!(
            text.contains("the congestion window  12.9  129   +116   74 %"),
            "{text}"
        );
    }

    #[test]
    fn long_names_and_many_connections_fit_a_screen() {
        let slow = testing::rivals();
        let mut fast = testing::rivals();
        (fast.bytes, fast.direction) = (Bytes(540 << 20), None);
        fast.name = "192.0.2.1:40000 to 192.0.2.2:5201".to_owned();
        let mut small = fast.clone();
        small.bytes = Bytes(1);
        let name = "/somewhere/else/the trace of the faster machine.jsonl";
        let text = diff((name, &[small, fast]), ("41", &[slow]), Style::PLAIN);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.contains("192.0.2.2:5201, the largest of 2 connections):"),
            "{text}"
        );
        assert!(text.contains("..hine.jsonl"), "{text}");
        let same = diff(
            ("a", &[testing::rivals()]),
            ("b", &[testing::rivals()]),
            Style::PLAIN,
        );
        assert!(
            same.starts_with("up: a and b are equally fast.\n"),
            "{same}"
        );
    }
}
