//! Requests in words: by operation where the time went, the longest ones with their ladders, and the list of calls.

use crate::words::{Ink, Style, escape, escape_sentence, glue, percent, table, wrap};
use model::Nanos;
use model::request::{Call, Causes, Links, Operation, Requests};

/// Operations that are told.
const OPERATIONS: usize = 30;
/// Of so many operations the longest requests are told step by step.
const LADDERS: usize = 5;
/// Calls that are listed.
const LISTED: usize = 40;
/// A cause of less than this share is not named.
const SMALL: f64 = 0.02;

/// As one JSON document.
pub fn json(told: &Requests) -> String {
    crate::json::pretty(told)
}

/// For people.
pub fn text(told: &Requests, style: Style) -> String {
    let mut out = String::new();
    let answer = wrap(&sentence(told), style.width, "", "");
    out.push_str(&style.paint(Ink::Bold, answer.trim_end()));
    out.push('\n');
    if !told.operations.is_empty() {
        out.push('\n');
        out.push_str(&operations(&told.operations));
        out.push_str("\nWhere the time went:\n");
        for one in told.operations.iter().take(OPERATIONS) {
            let line = format!("{}: {}", escape(&one.operation), each(one));
            out.push_str(&wrap(&line, style.width, "  ", "    "));
        }
        let unknown = "with --rate the time of its frames on the links comes to it";
        let each = format!("{EACH} {}", ideal(&told.links, unknown));
        out.push_str(&wrap(&each, style.width, "", ""));
        out.push_str("\nThe longest ones:\n");
        for one in told.operations.iter().take(LADDERS) {
            one.worst
                .iter()
                .take(1)
                .for_each(|call| out.push_str(&ladder(call, style)));
        }
        out.push_str(&list(told));
    }
    if let Some(clocks) = &told.clocks {
        out.push('\n');
        out.push_str(&crate::explain::clocks(clocks, style));
        let exact = "Call send, think and reply send do not depend on them.";
        out.push_str(&wrap(exact, style.width, "", ""));
    }
    if !told.doubts.is_empty() {
        out.push('\n');
    }
    for doubt in &told.doubts {
        out.push_str(&wrap(&escape_sentence(doubt), style.width, "- ", "  "));
    }
    out
}

/// The answer in one sentence.
pub fn sentence(told: &Requests) -> String {
    let mut causes = Causes::default();
    told.operations.iter().for_each(|o| causes.add(&o.causes));
    match told.answered {
        0 => "No request with its reply was found.".to_owned(),
        1 => format!("One request was answered; its time: {}.", spent(&causes)),
        n => format!(
            "{n} requests were answered; their time: {}.",
            spent(&causes)
        ),
    }
}

/// Causes with their shares, the largest first.
fn spent(causes: &Causes) -> String {
    let total = causes.total().0.max(1) as f64;
    let ranked = causes.ranked();
    let named = ranked
        .iter()
        .filter(|(_, time)| time.0 as f64 / total >= SMALL);
    let said: Vec<String> = named
        .map(|(cause, time)| format!("{} {}", cause.words(), glue(percent(time.0 as f64 / total))))
        .collect();
    said.join(", ")
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

/// Said of a run whose hosts do not tell the rate of a link.
pub(crate) const NO_RATE: &str =
    "no device of the hosts tells a rate, by which to reckon its frames as well";
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

fn operations(operations: &[Operation]) -> String {
    let mut rows = vec![
        [
            "operation",
            "count",
            "p50",
            "p99",
            "longest",
            "call send",
            "there",
            "think",
            "reply send",
            "back",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for one in operations.iter().take(OPERATIONS) {
        let total = one.parts.total().0.max(1) as f64;
        let mut row = vec![
            escape(&one.operation),
            one.count.to_string(),
            one.p50.to_string(),
            one.p99.to_string(),
            one.max.to_string(),
        ];
        row.extend(
            one.parts
                .each()
                .map(|(_, time)| percent(time.0 as f64 / total)),
        );
        rows.push(row);
    }
    let mut out = table(&rows);
    if operations.len() > OPERATIONS {
        let more = operations.len() - OPERATIONS;
        out.push_str(&format!("And {more} more operations (--json has all).\n"));
    }
    out
}

/// One request, step by step between its ends.
pub(crate) fn ladder(call: &Call, style: Style) -> String {
    // A listing has no addresses.
    let ends = match call.client.ip().is_unspecified() {
        true => String::new(),
        false => format!(" ({} to {})", call.client, call.server),
    };
    let title = format!(
        "{}: {} at {}{ends}",
        named(call),
        glue(call.parts.total()),
        glue(span(call.at))
    );
    let mut out = wrap(&title, style.width, "  ", "    ");
    let mut rows = Vec::new();
    for step in &call.steps {
        let carried = match (step.bytes.0, step.segments) {
            (0, _) => "again".to_owned(),
            (_, 0 | 1) => step.bytes.to_string(),
            (_, n) => format!("{}, {n} segments in {}", step.bytes, step.took),
        };
        let waited = step.waited.map(|cause| format!("after {}", cause.words()));
        rows.push(vec![
            format!("    {}", span(step.at)),
            match step.call {
                true => "client ==> server".to_owned(),
                false => "client <== server".to_owned(),
            },
            carried,
            waited.unwrap_or_default(),
        ]);
    }
    out.push_str(&table(&rows));
    let parts = call.parts.each();
    let parts = parts
        .iter()
        .map(|(name, time)| format!("{name} {}", glue(span(*time))));
    let sum = format!(
        "{} = {}",
        parts.collect::<Vec<_>>().join(" + "),
        glue(call.parts.total())
    );
    out.push_str(&wrap(&sum, style.width, "    ", "    "));
    out.push_str(&wrap(&spent(&call.causes), style.width, "    ", "    "));
    out
}

fn span(time: Nanos) -> String {
    match time.0 {
        0 => "0".to_owned(),
        _ => time.to_string(),
    }
}

fn named(call: &Call) -> String {
    let name = escape(&call.operation);
    match call.detail.is_empty() {
        true => name,
        false => format!("{name} ({})", escape(&call.detail)),
    }
}

/// All the communication, call by call.
fn list(told: &Requests) -> String {
    let shown = told.calls.len().min(LISTED);
    let mut out = match told.answered > LISTED as u64 {
        true => format!("\nThe first {shown} of {} calls:\n", told.answered),
        false => "\nAll calls:\n".to_owned(),
    };
    let begun = told.calls.first().map_or(Nanos(0), |call| call.at);
    let mut rows = vec![
        [
            "at",
            "call",
            "reply",
            "took",
            "think",
            "operation",
            "what for",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for call in told.calls.iter().take(LISTED) {
        rows.push(vec![
            span(call.at.since(begun)),
            call.call_bytes.0.to_string(),
            call.reply_bytes.0.to_string(),
            call.parts.total().to_string(),
            span(call.parts.think),
            named(call),
            call.purpose.to_owned(),
        ]);
    }
    out.push_str(&table(&rows));
    if told.answered > LISTED as u64 {
        let has = match told.calls.len() as u64 {
            all if all == told.answered => "all of them".to_owned(),
            first => format!("the first {first}"),
        };
        out.push_str(&format!("--json has {has}.\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn the_answer_comes_first_and_the_longest_are_told_step_by_step() {
        insta::assert_snapshot!(text(&testing::requests(), Style::PLAIN));
    }

    #[test]
    fn names_of_strangers_cannot_speak_to_the_terminal() {
        let mut told = testing::requests();
        told.calls[0].detail = "a\x1b[2Jb".to_owned();
        told.operations[0].worst[0].detail = "\u{202e}c".to_owned();
        told.operations[0].operation = "NFSv3 \x07".to_owned();
        let said = text(&told, Style::PLAIN);
        assert!(
            !said
                .chars()
                .any(|c| c != '\n' && crate::words::is_unprintable(c))
        );
    }
}
