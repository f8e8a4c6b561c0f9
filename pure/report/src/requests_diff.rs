//! The requests of two captures or traces side by side, by operation. The mean time of a call is a sum over its causes, so the
//! difference between two falls apart by operation and cause, without a rest.

use crate::diff::{NEGLIGIBLE, SAME, headings, sign};
use crate::requests::ladder;
use crate::words::{Style, escape, escape_sentence, glue, table, three_digits};
use model::Nanos;
use model::request::{Cause, Operation, Requests};

/// Rows that are shown.
const ROWS: usize = 12;
/// Operations of one side alone that are named.
const NAMED: usize = 8;

/// Why the same calls take longer on one side.
pub fn requests_diff(a: (&str, &Requests), b: (&str, &Requests), style: Style) -> String {
    let pairs = a.1.operations.iter();
    let pairs = pairs.filter_map(|one| Some([one, same(b.1, one)?]));
    let mut common: Vec<Pair> = pairs.collect();
    let time = |side: usize| -> f64 {
        let each = |pair: &Pair| weight(pair) * mean(pair[side], pair[side].parts.total());
        common.iter().map(each).sum()
    };
    let mut times = [time(0), time(1)];
    let calls: f64 = common.iter().map(weight).sum();
    if calls == 0.0 {
        return "Nothing to compare: no operation is in both.\n".to_owned();
    }
    let mut sides = [a, b];
    if times[0] > times[1] {
        sides.reverse();
        times.reverse();
        common.iter_mut().for_each(|pair| pair.reverse());
    }
    let [fast, slow] = sides;
    let ratio = times[1] / times[0].max(1.0);
    let [faster, slower] = [fast.0, slow.0].map(escape);
    let mut out = style.bold(&match ratio < 1.0 + SAME {
        true => format!("The calls of {faster} and {slower} take equally long."),
        false => format!(
            "The calls of {slower} take {} times as long as the same ones of {faster}.",
            three_digits(ratio)
        ),
    });
    for ((name, of), sum) in sides.into_iter().zip(times) {
        let (name, each) = (escape(name), glue(Nanos((sum / calls) as u64)));
        let line = format!(
            "{name}: {} requests; of those that both have, {each} each",
            of.answered
        );
        out += &style.hang("  ", 4, &line);
    }
    if ratio >= 1.0 + SAME {
        out += &costs(&common, [fast.0, slow.0], style);
    }
    for (name, of, other) in [(fast.0, fast.1, slow.1), (slow.0, slow.1, fast.1)] {
        let alone = of.operations.iter();
        let alone = alone.filter(|one| same(other, one).is_none()).take(NAMED);
        let alone = alone.map(|one| format!("{} of {}", one.count, escape(&one.operation)));
        let alone: Vec<String> = alone.collect();
        if !alone.is_empty() {
            let line = format!("Only in {}: {}.", escape(name), alone.join(", "));
            out += &style.prose(&line);
        }
    }
    let other = slow.1.doubts.iter();
    let other = other.filter(|doubt| !fast.1.doubts.contains(doubt));
    let doubts = fast.1.doubts.iter().chain(other);
    out.extend(doubts.map(|doubt| style.item(&escape_sentence(doubt))));
    out
}

/// The same operation on the faster and on the slower side.
type Pair<'a> = [&'a Operation; 2];

fn same<'a>(of: &'a Requests, one: &Operation) -> Option<&'a Operation> {
    let mut all = of.operations.iter();
    all.find(|other| other.operation == one.operation)
}

/// Calls that are compared: as many as both have.
fn weight(pair: &Pair<'_>) -> f64 {
    pair[0].count.min(pair[1].count) as f64
}

fn mean(of: &Operation, all: Nanos) -> f64 {
    all.0 as f64 / of.count.max(1) as f64
}

/// What makes the difference, the most first, and the longest call of the first of it on either side.
fn costs(common: &[Pair<'_>], names: [&str; 2], style: Style) -> String {
    // Of each cause its time in the mean call on each side, and how much more the slower one spends on all calls.
    let all = common.iter().flat_map(|pair| {
        Cause::ALL.map(|cause| {
            let each = pair.map(|of| mean(of, of.causes.of(cause)));
            (pair, cause, each, weight(pair) * (each[1] - each[0]))
        })
    });
    let mut all: Vec<_> = all.collect();
    let whole: f64 = all.iter().map(|(.., more)| more).sum();
    all.retain(|(.., more)| more.abs() >= NEGLIGIBLE * whole.abs());
    all.sort_by(|(.., x), (.., y)| y.abs().total_cmp(&x.abs()));
    let time = |cost: f64| match cost as u64 {
        0 => "-".to_owned(),
        time => Nanos(time).to_string(),
    };
    let rows = all.iter().take(ROWS).map(|(pair, cause, each, more)| {
        let difference = each[1] - each[0];
        vec![
            escape(&pair[0].operation),
            cause.words().to_owned(),
            time(each[0]),
            time(each[1]),
            format!("{}{}", sign(difference), Nanos(difference.abs() as u64)),
            format!("{:.0} %", 100.0 * more / whole),
        ]
    });
    let [faster, slower] = headings(names);
    let heads = ["a call", "waits for", &faster, &slower, "more", "share"];
    let mut out = format!("\n{}", table(&heads, rows));
    if let Some((pair, ..)) = all.first() {
        out += "\nThe longest of either side:\n";
        for (name, of) in names.into_iter().zip(*pair) {
            let longest = of.worst.first();
            let longest = longest.map(|call| format!("{}\n{}", escape(name), ladder(call, style)));
            out.extend(longest);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use model::request::Causes;

    #[test]
    fn the_difference_falls_apart_by_operation_and_cause() {
        let slow = testing::requests();
        let mut fast = testing::requests();
        let one = &mut fast.operations[0];
        one.causes = Causes::default();
        one.causes.spend(Cause::Rate, Nanos(100_000));
        one.causes.spend(Cause::Think, Nanos(190_000));
        one.causes.spend(Cause::Path, Nanos(22_000));
        one.parts.call_send = Nanos(100_000);
        one.worst[0].parts.call_send = Nanos(100_000);
        fast.operations.push(Operation {
            operation: "NFSv3 \u{1b}[31mCOMMIT".to_owned(),
            count: 3,
            ..Operation::default()
        });
        insta::assert_snapshot!(requests_diff(
            ("slow", &slow),
            ("/a/fast", &fast),
            Style::PLAIN
        ));
        let same = requests_diff(("a", &slow), ("b", &slow), Style::PLAIN);
        assert!(
            same.starts_with("The calls of a and b take equally long.\n"),
            "{same}"
        );
        let mut other = testing::requests();
        other.operations[0].operation = "SMB2 READ".to_owned();
        let none = requests_diff(("a", &slow), ("b", &other), Style::PLAIN);
        assert_eq!(none, "Nothing to compare: no operation is in both.\n");
    }
}
