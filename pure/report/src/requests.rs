//! Requests in words: by operation where the time went, the longest ones with their ladders, and the list of calls.

use crate::prelude::*;
use model::request::{Call, Causes, Links, Operation, Requests};

/// Operations that are shown.
const OPERATIONS: usize = 30;
/// Of so many operations the longest request is shown step by step.
const LADDERS: usize = 5;
/// Calls that are listed.
const LISTED: usize = 40;
/// A cause of less than this share is not named.
const SMALL: f64 = 0.02;

/// For people.
pub fn text(of: &Requests, style: Style) -> String {
    let mut out = style.bold(&sentence(of));
    if !of.operations.is_empty() {
        for table in operations(&of.operations) {
            out += &format!("\n{}", table.fit(style));
        }
        match of.operations.len().saturating_sub(OPERATIONS) {
            0 => {}
            more => out += &format!("And {more} more (--json has all).\n"),
        }
        out += "\nWhere the time went:\n";
        for one in of.operations.iter().take(OPERATIONS) {
            let line = format!("{}: {}", escape(&one.operation), each(one));
            out += &style.hang("  ", 4, &line);
        }
        out += &style.prose(&format!("{EACH} {}", ideal(&of.links, UNKNOWN_RATE)));
        out += "\nThe longest ones:\n";
        let longest = of.operations.iter().take(LADDERS);
        let longest = longest.filter_map(|one| one.worst.first());
        out.extend(longest.map(|call| ladder(call, style)));
        out += &list(of, style);
    }
    if let Some(clocks) = &of.clocks {
        out += &format!("\n{}", crate::explain::clocks(clocks, style));
        out += &style.prose("Call send, think and reply send do not depend on them.");
    }
    if !of.doubts.is_empty() {
        out.push('\n');
    }
    let doubts = of.doubts.iter();
    out.extend(doubts.map(|doubt| style.item(&escape_sentence(doubt))));
    out
}

/// The answer in one sentence.
pub fn sentence(of: &Requests) -> String {
    let spent = spent(&sum(of.operations.iter().map(|o| &o.causes)), SMALL);
    match of.answered {
        0 => "No request with its reply was found.".to_owned(),
        1 => format!("One request was answered; its time: {spent}."),
        n => format!("{n} requests were answered; their time: {spent}."),
    }
}

/// Causes with their shares from `least` on, the largest first.
pub(crate) fn spent(causes: &Causes, least: f64) -> String {
    let total = causes.total().0.max(1) as f64;
    let shares = causes.ranked().into_iter();
    let shares = shares.map(|(cause, time)| (cause.words(), time.0 as f64 / total));
    let named = shares.filter(|(_, share)| *share >= least);
    let named = named.map(|(cause, share)| format!("{cause} {}", glue(percent(share))));
    named.collect::<Vec<_>>().join(", ")
}

pub(crate) fn sum<'a>(all: impl Iterator<Item = &'a Causes>) -> Causes {
    let mut sum = Causes::default();
    all.for_each(|causes| sum.add(causes));
    sum
}

/// One request of an operation, as the mean of all: its time by cause beside the ideal.
fn each(one: &Operation) -> String {
    let mean = |all: Nanos| Nanos(all.0 / one.count.max(1));
    let total = one.parts.total();
    let ranked = one.causes.ranked().into_iter();
    let named = ranked.filter(|(_, time)| time.0 as f64 >= SMALL * total.0 as f64);
    let said: Vec<String> = named
        .map(|(cause, time)| format!("{} {}", glue(mean(time)), cause.words()))
        .collect();
    let ideal = match one.ideal.0 {
        0 => String::new(),
        _ => format!("ideal {}, ", glue(mean(one.ideal))),
    };
    format!("{ideal}measured {}: {}", glue(mean(total)), said.join(", "))
}

/// Of a run whose hosts do not report the rate of a link.
pub(crate) const NO_RATE: &str =
    "no device of the hosts reports a rate, so serialization is excluded";
/// The same of a capture.
const UNKNOWN_RATE: &str = "with --rate the time of its frames on the links comes to it";
/// What the times by operation are.
pub(crate) const EACH: &str = "Each is the mean of one request;";

/// What the ideal is; `unknown` is said where no rate is.
pub(crate) fn ideal(links: &Links, unknown: &str) -> String {
    let frames = match (links.rate, links.hops) {
        (None, _) => format!("alone ({unknown})"),
        (Some(rate), 1) => format!("and its frames on a link of {}", glue(rate)),
        (Some(rate), n) => format!("and its frames on {n} links of {}", glue(rate)),
    };
    format!("ideal is the shortest round trip {frames}.")
}

/// How many of each, how long they took, and which parts of it.
fn operations(operations: &[Operation]) -> [Table; 2] {
    let shown = || operations.iter().take(OPERATIONS);
    let times = shown().map(|one| {
        let count = one.count.to_string();
        let times = [one.p50, one.p99, one.max].map(|time| time.to_string());
        [escape(&one.operation), count]
            .into_iter()
            .chain(times)
            .collect()
    });
    let parts = shown().map(|one| {
        let total = one.parts.total().0.max(1) as f64;
        let parts = one.parts.each();
        let parts = parts.map(|(_, time)| percent(time.0 as f64 / total));
        [escape(&one.operation)].into_iter().chain(parts).collect()
    });
    let heads = [
        "operation",
        "call send",
        "forward",
        "think",
        "reply send",
        "reverse",
    ];
    [
        Table::new(&["operation", "count", "p50", "p99", "longest"], times),
        Table::new(&heads, parts),
    ]
}

/// One request, step by step between its ends.
pub(crate) fn ladder(call: &Call, style: Style) -> String {
    // A listing has no addresses.
    let ends = match call.client.ip().is_unspecified() {
        true => String::new(),
        false => format!(" ({} to {})", call.client, call.server),
    };
    let (name, total) = (named(call), call.parts.total());
    let title = format!("{name}: {} at {}{ends}", glue(total), glue(span(call.at)));
    let rows = call.steps.iter().map(|step| {
        let carried = match (step.bytes.0, step.segments) {
            (0, _) => "again".to_owned(),
            (_, 0 | 1) => step.bytes.to_string(),
            (_, n) => format!("{}, {n} segments in {}", step.bytes, step.took),
        };
        let waited = step.waited.map(|cause| format!("after {}", cause.words()));
        let arrow = if step.call { "==>" } else { "<==" };
        vec![
            format!("    {}", span(step.at)),
            format!("client {arrow} server"),
            carried,
            waited.unwrap_or_default(),
        ]
    });
    let parts = call.parts.each();
    let parts = parts.map(|(name, time)| format!("{name} {}", glue(span(time))));
    style.hang("  ", 4, &title)
        + &Table::new(&[], rows).fit(style)
        + &style.hang(
            "    ",
            4,
            &format!("{} = {}", parts.join(" + "), glue(total)),
        )
        + &style.hang("    ", 4, &spent(&call.causes, SMALL))
}

fn span(time: Nanos) -> String {
    match time.0 {
        0 => "0".to_owned(),
        _ => time.to_string(),
    }
}

pub(crate) fn named(call: &Call) -> String {
    let name = escape(&call.operation);
    match call.detail.is_empty() {
        true => name,
        false => format!("{name} ({})", escape(&call.detail)),
    }
}

/// All the communication, call by call.
fn list(of: &Requests, style: Style) -> String {
    let shown = of.calls.len().min(LISTED);
    let cut = of.answered > LISTED as u64;
    let heading = match cut {
        true => format!("The first {shown} of {} calls", of.answered),
        false => "All calls".to_owned(),
    };
    let more = match (cut, of.calls.len() as u64) {
        (false, _) => String::new(),
        (_, all) if all == of.answered => "--json has all of them.\n".to_owned(),
        (_, first) => format!("--json has the first {first}.\n"),
    };
    format!("\n{heading}:\n{}{more}", calls(of).fit(style))
}

fn calls(of: &Requests) -> Table {
    let begun = of.calls.first().map_or(Nanos(0), |call| call.at);
    let rows = of.calls.iter().take(LISTED).map(|call| {
        vec![
            span(call.at.since(begun)),
            call.call_bytes.0.to_string(),
            call.reply_bytes.0.to_string(),
            call.parts.total().to_string(),
            span(call.parts.think),
            match call.purpose {
                "" => named(call),
                purpose => format!("{}: {purpose}", named(call)),
            },
        ]
    });
    let heads = ["at", "call", "reply", "took", "think", "operation"];
    Table::new(&heads, rows)
}

/// The operations and the first calls, and what is to be said of them, for a page.
pub(crate) fn tables(of: &Requests) -> (Vec<Table>, Vec<String>) {
    let clocks = of.clocks.as_ref();
    let clocks = clocks.map(|clocks| {
        crate::explain::clocks(clocks, Style::WIDE)
            .trim()
            .to_owned()
    });
    let doubts = of.doubts.iter().map(|doubt| escape_sentence(doubt));
    let of_each = of.operations.iter().take(OPERATIONS);
    let of_each = of_each.map(|one| format!("{}: {}", escape(&one.operation), each(one)));
    let explained = format!("{EACH} {}", ideal(&of.links, UNKNOWN_RATE));
    let words = of_each.chain([explained]).chain(clocks).chain(doubts);
    let tables = operations(&of.operations).into_iter().chain([calls(of)]);
    (tables.collect(), words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn the_answer_comes_first_and_the_longest_step_by_step() {
        insta::assert_snapshot!(text(&testing::requests(), Style::PLAIN));
    }

    #[test]
    fn names_of_others_cannot_control_the_terminal() {
        let mut output = testing::requests();
        output.calls[0].detail = "a\x1b[2Jb".to_owned();
        output.operations[0].worst[0].detail = "\u{202e}c".to_owned();
        output.operations[0].operation = "NFSv3 \x07".to_owned();
        let said = text(&output, Style::PLAIN);
        assert!(
            !said
                .chars()
                .any(|c| c != '\n' && crate::words::is_unprintable(c))
        );
    }
}
