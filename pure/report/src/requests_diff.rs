//! The requests of two captures or traces side by side, by operation. The mean time of a call is a sum over its causes, so the
//! difference between two falls apart by operation and cause, without a rest.

use crate::diff::{NEGLIGIBLE, SAME, heading};
use crate::requests::ladder;
use crate::words::{self, Ink, Style, escape, glue, table, wrap};
use model::Nanos;
use model::request::{Cause, Operation, Requests};

/// Rows that are told.
const ROWS: usize = 12;
/// Operations of one side alone that are named.
const NAMED: usize = 8;

/// Why the same calls take longer on one side.
pub fn requests_diff(a: (&str, &Requests), b: (&str, &Requests), style: Style) -> String {
    let of = |told: &Requests, name: &str| -> Option<Operation> {
        told.operations
            .iter()
            .find(|one| one.operation == name)
            .cloned()
    };
    let common =
        a.1.operations
            .iter()
            .filter_map(|one| Some((one.clone(), of(b.1, &one.operation)?)));
    let common: Vec<(Operation, Operation)> = common.collect();
    let whole = |which: fn(&(Operation, Operation)) -> &Operation| -> f64 {
        let all = common.iter();
        all.map(|pair| weight(pair) * mean(which(pair), which(pair).parts.total()))
            .sum()
    };
    let (of_a, of_b) = (whole(|pair| &pair.0), whole(|pair| &pair.1));
    let calls: f64 = common.iter().map(weight).sum();
    if calls == 0.0 {
        return "Nothing to compare: no operation is in both.\n".to_owned();
    }
    let swap = of_a > of_b;
    let (fast, slow) = if swap { (b, a) } else { (a, b) };
    let common: Vec<(Operation, Operation)> = match swap {
        true => common.into_iter().map(|(a, b)| (b, a)).collect(),
        false => common,
    };
    let [names_fast, names_slow] = [fast.0, slow.0].map(escape);
    let ratio = of_a.max(of_b) / of_a.min(of_b).max(1.0);
    let first = match ratio < 1.0 + SAME {
        true => format!("The calls of {names_fast} and {names_slow} take equally long."),
        false => format!(
            "The calls of {names_slow} take {} times as long as the same ones of {names_fast}.",
            words::three_digits(ratio)
        ),
    };
    let mut out = String::new();
    for line in wrap(&first, style.width, "", "").lines() {
        out.push_str(&format!("{}\n", style.paint(Ink::Bold, line)));
    }
    for ((name, told), sum) in [(fast, of_a.min(of_b)), (slow, of_a.max(of_b))] {
        let line = format!(
            "{}: {} requests; of those that both have, {} each",
            escape(name),
            told.answered,
            glue(Nanos((sum / calls) as u64))
        );
        out.push_str(&wrap(&line, style.width, "  ", "    "));
    }
    if ratio >= 1.0 + SAME {
        out.push_str(&costs(&common, [fast.0, slow.0], style));
    }
    for (name, told, other) in [(fast.0, fast.1, slow.1), (slow.0, slow.1, fast.1)] {
        let alone = told
            .operations
            .iter()
            .filter(|one| of(other, &one.operation).is_none());
        let alone: Vec<String> = alone
            .take(NAMED)
            .map(|one| format!("{} of {}", one.count, escape(&one.operation)))
            .collect();
        if !alone.is_empty() {
            let line = format!("Only in {}: {}.", escape(name), alone.join(", "));
            out.push_str(&wrap(&line, style.width, "", ""));
        }
    }
    for doubt in fast.1.doubts.iter().chain(
        slow.1
            .doubts
            .iter()
            .filter(|doubt| !fast.1.doubts.contains(doubt)),
    ) {
        out.push_str(&wrap(
            &words::escape_sentence(doubt),
            style.width,
            "- ",
            "  ",
        ));
    }
    out
}

/// Calls that are compared: as many as both have.
fn weight(pair: &(Operation, Operation)) -> f64 {
    pair.0.count.min(pair.1.count) as f64
}

fn mean(of: &Operation, all: Nanos) -> f64 {
    all.0 as f64 / of.count.max(1) as f64
}

/// What makes the difference, the most first, and the longest call of the first of it on either side.
fn costs(common: &[(Operation, Operation)], names: [&str; 2], style: Style) -> String {
    let mut all: Vec<(&(Operation, Operation), Cause, [f64; 2])> = Vec::new();
    for pair in common {
        for cause in Cause::ALL {
            let cost = |of: &Operation| mean(of, of.causes.of(cause));
            all.push((pair, cause, [cost(&pair.0), cost(&pair.1)]));
        }
    }
    let more = |(pair, _, cost): &(&(Operation, Operation), Cause, [f64; 2])| {
        weight(pair) * (cost[1] - cost[0])
    };
    let whole: f64 = all.iter().map(more).sum();
    all.retain(|one| more(one).abs() >= NEGLIGIBLE * whole.abs());
    all.sort_by(|x, y| more(y).abs().total_cmp(&more(x).abs()));
    let mut headings = names.map(heading);
    if headings[0] == headings[1] {
        headings = ["the faster", "the slower"].map(str::to_owned);
    }
    let [faster, slower] = headings;
    let heads = ["a call", "waits for", &faster, &slower, "more", "share"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let time = |cost: f64| match cost as u64 {
        0 => "-".to_owned(),
        time => Nanos(time).to_string(),
    };
    for one in all.iter().take(ROWS) {
        let (pair, cause, cost) = one;
        let sign = if cost[1] >= cost[0] { "+" } else { "-" };
        rows.push(vec![
            escape(&pair.0.operation),
            cause.words().to_owned(),
            time(cost[0]),
            time(cost[1]),
            format!("{sign}{}", Nanos((cost[1] - cost[0]).abs() as u64)),
            format!("{:.0} %", 100.0 * more(one) / whole),
        ]);
    }
    let mut out = format!("\n{}", table(&rows));
    if let Some((pair, ..)) = all.first() {
        out.push_str("\nThe longest of either side:\n");
        for (name, of) in [(names[0], &pair.0), (names[1], &pair.1)] {
            for call in of.worst.iter().take(1) {
                out.push_str(&format!("{}\n{}", escape(name), ladder(call, style)));
            }
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
