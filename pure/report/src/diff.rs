//! Two connections side by side. A rate is bytes by time, so what a byte costs is a sum over the limits
//! that took the time: the difference between two rates falls apart by limit, without a rest.

use crate::explain::{EXPLAIN_SCHEMA, sentence};
use crate::prelude::*;
use model::finding::Level;

/// Unlike costs below this share of the difference are not shown.
pub(crate) const NEGLIGIBLE: f64 = 0.01;
/// Columns of a heading at most: with the longest limit a row still fits 80.
const WIDEST_HEADING: usize = 12;
/// Limits whose evidence stands side by side.
const RESTED: usize = 2;
/// Rates nearer than this are the same.
pub(crate) const SAME: f64 = 0.05;

/// Both sides as a JSON document: the explanations that are compared.
pub fn json((name_a, a): (&str, &[Explanation]), (name_b, b): (&str, &[Explanation])) -> String {
    let schema = EXPLAIN_SCHEMA;
    let [a, b] =
        [(name_a, a), (name_b, b)].map(|(name, explanations)| document!(name, explanations));
    pretty(&document!(schema, a, b))
}

/// Why one is faster than the other: pairs by direction where both know it, else the largest of each.
pub fn diff(
    (name_a, a): (&str, &[Explanation]),
    (name_b, b): (&str, &[Explanation]),
    style: Style,
) -> String {
    let pairs = pairs((name_a, a), (name_b, b));
    if pairs.is_empty() {
        return "Nothing to compare: one of them has no connection of TCP.\n".to_owned();
    }
    let texts = pairs.iter().map(|pair| pair.text(style));
    texts.collect::<Vec<_>>().join("\n")
}

/// The same in parts.
pub(crate) fn pairs(
    (name_a, a): (&str, &[Explanation]),
    (name_b, b): (&str, &[Explanation]),
) -> Vec<Compared> {
    let ways = [Some(Direction::Up), Some(Direction::Down), None];
    let pairs = ways.map(|way| largest(a, way).zip(largest(b, way)));
    let mut pairs: Vec<(&Explanation, &Explanation)> = pairs.into_iter().flatten().collect();
    if pairs.is_empty() {
        // Whichever moved most.
        let busiest = [a, b].map(|all| all.iter().max_by_key(|e| e.bytes));
        pairs.extend(busiest[0].zip(busiest[1]));
    }
    let side = |name, one, all| DiffSide {
        name: escape(name),
        which: which_of(one, all),
        one,
    };
    let pairs = pairs.into_iter();
    let pairs = pairs.map(|(one, other)| pair(side(name_a, one, a), side(name_b, other, b)));
    pairs.collect()
}

/// Two connections, compared.
pub(crate) struct Compared {
    /// Which is faster, and by how much.
    pub headline: String,
    /// What each of them did, and what limited it.
    pub sides: [String; 2],
    /// What each limit costs a megabyte.
    pub costs: Table,
    /// The evidence for the limits of the largest differences, by side and limit.
    pub evidence: Vec<(String, Vec<String>)>,
}

impl Compared {
    fn text(&self, style: Style) -> String {
        let mut out = style.bold(&self.headline);
        out.extend(self.sides.iter().map(|side| style.hang("  ", 4, side)));
        if !self.costs.rows.is_empty() {
            out += &format!("\n{}", self.costs);
        }
        for (of, facts) in &self.evidence {
            out += &format!("\n{of}:\n");
            out.extend(facts.iter().map(|fact| style.hang("  ", 4, fact)));
        }
        out
    }
}

fn largest(all: &[Explanation], way: Option<Direction>) -> Option<&Explanation> {
    let own = all.iter().filter(|e| e.direction == way);
    own.max_by_key(|e| e.bytes)
}

/// A connection, the name of what it is in, and which one there it is.
struct DiffSide<'a> {
    name: String,
    which: String,
    one: &'a Explanation,
}

impl DiffSide<'_> {
    fn rate(&self) -> f64 {
        self.one.bytes.per(self.one.span).0 as f64
    }
}

/// Said where there is more than one to choose from.
fn which_of(one: &Explanation, all: &[Explanation]) -> String {
    let others = all.iter().filter(|e| e.direction == one.direction).count();
    let name = escape(&one.name);
    match (all.len(), others) {
        (..=1, _) => String::new(),
        (_, ..=1) => format!(" ({name})"),
        (_, n) => format!(" ({name}, the largest of {n} connections)"),
    }
}

/// Headings for both: the last part of a path, its end if that is long.
pub(crate) fn headings(names: [&str; 2]) -> [String; 2] {
    let names = names.map(|name| {
        let name = name.rsplit('/').next().unwrap_or(name);
        match name.chars().count().saturating_sub(WIDEST_HEADING) {
            0 => name.to_owned(),
            skip => format!("..{}", name.chars().skip(skip + 2).collect::<String>()),
        }
    });
    match names[0] == names[1] {
        true => ["the faster", "the slower"].map(str::to_owned),
        false => names,
    }
}

/// The sign of a difference.
pub(crate) fn sign(difference: f64) -> &'static str {
    if difference >= 0.0 { "+" } else { "-" }
}

/// Which of two is faster, and by how much.
pub(crate) fn headline(way: Option<Direction>, of: [(&str, f64); 2]) -> String {
    let [(a, rate), (b, other)] = of;
    if other > rate {
        return headline(way, [(b, other), (a, rate)]);
    }
    let way = way.map(|way| format!("{way}: ")).unwrap_or_default();
    match rate / other.max(1.0) {
        ratio if ratio < 1.0 + SAME => format!("{way}{a} and {b} are equally fast."),
        ratio => format!("{way}{a} is {} times as fast as {b}.", three_digits(ratio)),
    }
}

fn pair(a: DiffSide<'_>, b: DiffSide<'_>) -> Compared {
    let (fast, slow) = if a.rate() >= b.rate() { (a, b) } else { (b, a) };
    let way = fast.one.direction;
    let way = way.filter(|way| slow.one.direction == Some(*way));
    let [rate, other] = [&fast, &slow].map(DiffSide::rate);
    let same = rate < other.max(1.0) * (1.0 + SAME);
    let (faster, slower) = (&fast.name, &slow.name);
    let headline = headline(way, [(faster, rate), (slower, other)]);
    let sides = [&fast, &slow].map(|DiffSide { name, which, one }| {
        let (bytes, span) = (glue(one.bytes), glue(one.span));
        let (rate, why) = (glue(one.bytes.per(one.span)), sentence(one));
        format!("{name}{which}: {bytes} in {span}, {rate}; {why}")
    });
    let costs = match same {
        true => Vec::new(),
        false => costs(fast.one, slow.one),
    };
    let more: f64 = costs.iter().map(|(_, a, b)| b - a).sum();
    let cost = |ms: f64| match ms {
        0.0 => "-".to_owned(),
        ms => three_digits(ms),
    };
    let unlike = costs.iter();
    let unlike = unlike.filter(|(_, a, b)| (b - a).abs() >= NEGLIGIBLE * more.abs());
    let rows = unlike.map(|(limit, a, b)| {
        vec![
            limit.words().to_owned(),
            cost(*a),
            cost(*b),
            format!("{}{}", sign(b - a), three_digits((b - a).abs())),
            format!("{:.0} %", 100.0 * (b - a) / more),
        ]
    });
    let [a, b] = headings([faster, slower]);
    let table = Table::new(&["ms/MB", &a, &b, "difference", "share"], rows);
    let largest = costs.iter().take(RESTED);
    let evidence = largest.flat_map(|(limit, ..)| {
        let of_side = |side: &DiffSide<'_>| {
            let facts = &side.one.finding(*limit)?.evidence;
            let facts: Vec<String> = facts.iter().map(crate::evidence::line).collect();
            (!facts.is_empty()).then(|| (format!("{}, {}", side.name, limit.words()), facts))
        };
        [of_side(&fast), of_side(&slow)].into_iter().flatten()
    });
    Compared {
        headline,
        sides,
        evidence: evidence.collect(),
        costs: table,
    }
}

/// What each limit costs a megabyte in either, in milliseconds; the largest difference first.
fn costs(a: &Explanation, b: &Explanation) -> Vec<(Limit, f64, f64)> {
    let cost = |e: &Explanation, limit: Limit| {
        let finding = e.finding(limit).filter(|f| f.level == Level::First);
        let time = finding.map_or(Nanos(0), |f| f.share.time);
        time.0 as f64 / e.bytes.0.max(1) as f64
    };
    let limits = Limit::ALL.iter().filter(|l| l.level() == Level::First);
    let costs = limits.map(|l| (*l, cost(a, *l), cost(b, *l)));
    let mut all: Vec<(Limit, f64, f64)> = costs.filter(|(_, a, b)| a + b > 0.0).collect();
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
            text.contains("the congestion window  12.9  129   +116        74 %"),
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
