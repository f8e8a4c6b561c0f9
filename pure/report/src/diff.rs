//! Two connections side by side. A rate is bytes by time, so what a byte costs is a sum over the limits
//! that owned the time: the difference between two rates falls apart by limit, without a rest.

use crate::explain::sentence;
use crate::words::{self, Ink, Style, escape, glue, wrap};
use model::finding::{Explanation, Level, Limit};
use model::{Direction, Nanos};

/// Unlike costs below this share of the difference are not told.
const NEGLIGIBLE: f64 = 0.01;
/// Rates nearer than this are the same.
const SAME: f64 = 0.05;

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
        out.push_str(&pair((name_a, one), (name_b, other), style));
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

fn pair(a: (&str, &Explanation), b: (&str, &Explanation), style: Style) -> String {
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
    let first = if ratio < 1.0 + SAME {
        format!(
            "{way}{} and {} are equally fast.",
            escape(fast.0),
            escape(slow.0)
        )
    } else {
        format!(
            "{way}{} is {} times as fast as {}.",
            escape(fast.0),
            words::three_digits(ratio),
            escape(slow.0)
        )
    };
    let mut out = style.paint(Ink::Bold, wrap(&first, style.width, "", "").trim_end()) + "\n";
    for (name, one) in [fast, slow] {
        let line = format!(
            "{}: {} in {}, {}; {}",
            escape(name),
            glue(one.bytes),
            glue(one.span),
            glue(one.bytes.per(one.span)),
            sentence(one)
        );
        out.push_str(&wrap(&line, style.width, "  ", "    "));
    }
    let costs = costs(fast.1, slow.1);
    let more: f64 = costs.iter().map(|(_, a, b)| b - a).sum();
    let mut rows = vec![
        [
            "ms a MB",
            escape(fast.0).as_str(),
            escape(slow.0).as_str(),
            "more",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    rows.extend(
        costs
            .iter()
            .filter(|(_, a, b)| (b - a).abs() >= NEGLIGIBLE * more.abs())
            .map(|(limit, a, b)| {
                vec![
                    limit.words().to_owned(),
                    words::three_digits(*a),
                    words::three_digits(*b),
                    format!(
                        "{}{}",
                        if b >= a { "+" } else { "-" },
                        words::three_digits((b - a).abs())
                    ),
                ]
            }),
    );
    if rows.len() > 1 {
        out.push('\n');
        out.push_str(&words::table(&rows));
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
    use crate::fixtures;
    use model::Bytes;

    #[test]
    fn the_difference_falls_apart_by_limit() {
        let slow = fixtures::rivals();
        let mut fast = fixtures::rivals();
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
            text.contains("the congestion window  12.9  129   +116"),
            "{text}"
        );
    }
}
