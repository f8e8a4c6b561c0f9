//! The page of a trace or a capture: its connections, the biggest in full, and the requests that they carried.

use super::filled;
use crate::pictures::downsample::Downsampled;
use crate::pictures::ladder::{self, Ladder};
use crate::pictures::socket::{self, SenderLanes};
use crate::pictures::time_sequence::{self, time};
use crate::pictures::{bands, latency};
use crate::prelude::*;
use crate::{explain, requests};
use model::Latency;
use model::request::{Call, Operation, Requests, Step};

/// Connections that are named by their sentence.
const NAMED: usize = 50;
/// Operations of which the longest request is drawn.
const LADDERS: usize = 3;

/// What was read of a file.
#[derive(Default)]
pub struct Followed {
    /// Name of the file.
    pub name: String,
    /// What it is, and what is known of it.
    pub facts: Vec<(String, String)>,
    /// Its connections, the largest first.
    pub explanations: Vec<Explanation>,
    /// The courses of the first of them, in the same order.
    pub courses: Vec<Downsampled>,
    /// The requests that they carried, where the file shows any.
    pub requests: Option<Requests>,
    /// Another file, whose requests are drawn beside these: the same on a path that differs.
    pub beside: Option<(String, Requests)>,
    /// What is to be said of the file as a whole, a sentence each.
    pub doubts: Vec<String>,
}

/// The page.
pub fn trace(of: &Followed) -> Page {
    let answered = of.requests.as_ref().filter(|all| all.answered > 0);
    let drawn = of.explanations.iter().zip(&of.courses).enumerate();
    let drawn = drawn.flat_map(|(n, (one, course))| connection(n, one, course));
    let asked = answered.map(|all| asked(&of.name, all, of.beside.as_ref()));
    let others = &of.explanations[of.courses.len().min(of.explanations.len())..];
    let left_out = Section::new("What was left out").words(of.doubts.clone());
    let rest = [by_sentence(others), left_out.folded(true)];
    let sections = drawn.chain(asked.into_iter().flatten()).chain(rest);
    let answers = of.explanations.iter().take(of.courses.len().max(1));
    // What these carried are the figures of the page.
    let answers = answers.map(|one| format!("{}: {}", escape(&one.name), explain::sentence(one)));
    let requests = answered.filter(|all| carries_much(all, &of.explanations));
    let mut verdict: Vec<String> = answers.chain(requests.map(requests::sentence)).collect();
    if verdict.is_empty() {
        let nothing = "No connection with data is in this file: there is nothing to explain.";
        verdict.push(nothing.to_owned());
    }
    let streams = of.explanations.iter().filter_map(|one| one.stream.clone());
    Page {
        figures: of.explanations.iter().take(2).map(key_figure).collect(),
        streams: streams.collect(),
        title: format!("What limited the connections in {}", escape(&of.name)),
        verdict,
        facts: of.facts.clone(),
        sections: filled(sections.collect()),
        ..Page::default()
    }
}

/// Requests that are no small talk beside the transfers, as of a control connection: a hundredth of the bytes and more.
fn carries_much(requests: &Requests, transfers: &[Explanation]) -> bool {
    let of = |one: &Operation| one.call_bytes + one.reply_bytes;
    let asked: Bytes = requests.operations.iter().map(of).sum();
    let moved: Bytes = transfers.iter().map(|one| one.bytes).sum();
    asked.0.saturating_mul(100) >= moved.0
}

/// What a connection carried, a second.
fn key_figure(one: &Explanation) -> KeyFigure {
    let again = one
        .stream
        .as_ref()
        .map(|stream| counted(stream.retransmissions, "retransmission"));
    let moved = format!("{} in {}", one.bytes, one.span);
    let note = [moved].into_iter().chain(again).collect::<Vec<_>>();
    let rate = one.bytes.per(one.span).to_string();
    KeyFigure::new(escape(&one.name), rate, note.join(", "))
}

/// A connection and its answer, in one sentence.
fn answer(one: &Explanation) -> String {
    let (bytes, span, rate) = (one.bytes, one.span, one.bytes.per(one.span));
    let (name, why) = (escape(&one.name), explain::sentence(one));
    format!("{name}: {bytes} in {span}, {rate}; {why}")
}

/// A connection of a run in full, under a heading, open where it shows what limited it; `id` makes the names of its pictures differ from others.
pub fn segments(heading: &str, id: &str, one: &Explanation, course: &Downsampled) -> Section {
    let (sequence, mut pictures) = drawn(&format!("-{id}"), one, course);
    pictures.insert(0, sequence);
    let is_loss = one.cause().is_some_and(is_loss);
    Section::new(heading.to_owned())
        .pictures(pictures)
        .folded(!is_loss)
}

/// The time-sequence graph shows these best.
fn is_loss(limit: Limit) -> bool {
    matches!(
        limit,
        Limit::LossRecovery
            | Limit::RtoStall
            | Limit::RandomLoss
            | Limit::BurstLoss
            | Limit::Policer
            | Limit::Reordering
            | Limit::BlackHole
            | Limit::DuplexLoss
    )
}

/// A connection in full: the graph, then what its sender had to go by, then the words.
fn connection(n: usize, one: &Explanation, course: &Downsampled) -> [Section; 2] {
    let id = match n {
        0 => String::new(),
        n => format!("-{}", n + 1),
    };
    let (sequence, pictures) = drawn(&id, one, course);
    let name = escape(&one.name);
    let heading = match n {
        0 => "Sender state, bottleneck and evidence".to_owned(),
        _ => format!("Sender state, bottleneck and evidence: {name}"),
    };
    [
        Section::new(name).pictures(vec![sequence]).folded(n > 0),
        explain::section(heading, one, None).pictures(pictures),
    ]
}

/// The graph of a connection, and its other pictures.
fn drawn(id: &str, one: &Explanation, course: &Downsampled) -> (Picture, Vec<Picture>) {
    let bands = || bands(&[&course.aligned(one)]);
    let id = |what: &str| format!("{what}{id}");
    let of = SenderLanes::Columns(&course.most().columns);
    let others = [
        time_sequence::first_again(&id("first-again"), course, bands()),
        socket::windows(&id("sender-windows"), "", of, time(), bands()),
        socket::flight(&id("sender-flight"), "", of, time(), bands()),
    ];
    let graph = time_sequence::picture(&id("time-sequence"), course, bands());
    (graph, others.into_iter().flatten().collect())
}

fn by_sentence(others: &[Explanation]) -> Section {
    let mut words: Vec<String> = others.iter().take(NAMED).map(answer).collect();
    if others.len() > NAMED {
        let more = grouped((others.len() - NAMED) as u64);
        words.push(format!(
            "And {more} more ('linerate explain --json' has all)."
        ));
    }
    Section::new("Other connections").words(words).folded(true)
}

/// The requests: how long, why, and single ones step by step.
fn asked(name: &str, all: &Requests, beside: Option<&(String, Requests)>) -> [Section; 2] {
    let named = all.operations.iter();
    let named = named.map(|of| (of.operation.clone(), &of.times));
    let named: Vec<(String, &Latency)> = named.collect();
    let pictures = [
        latency::by_cause("request-causes", &all.operations),
        latency::distribution("request-times", &named),
        latency::over_time("requests-over-time", &all.moments),
    ];
    let (tables, words) = requests::tables(all);
    [
        Section::new("Requests").pictures(pictures.into_iter().flatten()),
        Section::new("Requests one by one")
            .words(words)
            .tables(tables)
            .pictures(ladders(name, all, beside))
            .folded(true),
    ]
}

/// A usual request beside the same of another file, or of the operation that took the most time; then the longest.
fn ladders(name: &str, all: &Requests, beside: Option<&(String, Requests)>) -> Vec<Picture> {
    let alone = |id: &str, heading: &str, title: &str, of: &Operation, call| {
        let title = format!("{title} of {}", grouped(of.count));
        ladder::picture(id, &titled(heading, call), &[Ladder { title, call }])
    };
    let first = match (beside, all.operations.first()) {
        (Some((other, requests)), _) => both(all, [name, other], requests),
        (None, first) => first.and_then(|of| {
            let call = usual(all, &of.operation)?;
            let (id, heading) = ("ladder-usual", "A usual request");
            Some(alone(id, heading, "a usual one", of, call))
        }),
    };
    let longest = all.operations.iter().take(LADDERS).enumerate();
    let longest = longest.filter_map(|(n, of)| {
        let call = of.worst.first().filter(|_| of.count > 1)?;
        let id = format!("ladder-longest-{}", n + 1);
        Some(alone(&id, "The longest request", "the longest", of, call))
    });
    first.into_iter().chain(longest).collect()
}

/// The first operation that both have, a usual request of each on one scale of time.
fn both(all: &Requests, names: [&str; 2], other: &Requests) -> Option<Picture> {
    let mut operations = all.operations.iter();
    let pair = operations.find_map(|of| {
        let usual = |all| usual(all, &of.operation);
        Some([usual(all)?, usual(other)?])
    })?;
    let ladder = |name, call| {
        let title = format!("{}: {}", escape(name), largest(call));
        Ladder { title, call }
    };
    let ladders = [ladder(names[0], pair[0]), ladder(names[1], pair[1])];
    let title = titled("The same request twice", pair[0]);
    Some(ladder::picture("ladder-both", &title, &ladders))
}

/// What differs between two paths: the size of their segments.
fn largest(call: &Call) -> String {
    let per = |step: &Step| step.bytes.0.div_ceil(step.segments.max(1).into());
    let most = call.steps.iter().map(per).max().unwrap_or(0);
    format!("up to {most} bytes a segment")
}

fn titled(what: &str, call: &Call) -> String {
    format!("{what}: {}", escape(&call.operation))
}

/// Of the calls that are kept, that which took as long as half of them do.
fn usual<'a>(all: &'a Requests, operation: &str) -> Option<&'a Call> {
    let of = all.operations.iter().find(|of| of.operation == operation)?;
    let calls = all.calls.iter().filter(|call| call.operation == operation);
    calls.min_by_key(|call| call.parts.total().0.abs_diff(of.p50.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page;
    use crate::pictures::time_sequence::tests::lossy;
    use crate::testing;
    use insta::assert_snapshot;

    fn followed() -> Followed {
        let fact = ("file".to_owned(), "some.pcap".to_owned());
        Followed {
            name: "some.pcap".to_owned(),
            facts: vec![fact],
            explanations: vec![testing::rivals(), testing::rivals()],
            courses: vec![lossy()],
            requests: Some(testing::requests()),
            beside: Some(("other.pcap".to_owned(), testing::requests())),
            doubts: vec!["the file ends in the middle of a packet".to_owned()],
        }
    }

    #[test]
    fn connections_first_then_requests_then_the_rest() {
        assert_snapshot!(page::markdown(&trace(&followed())));
    }

    #[test]
    fn the_requests_of_a_control_connection_are_no_headline() {
        let headline = |bytes| {
            let mut of = followed();
            let one = |of: &Operation| of.call_bytes.0 + of.reply_bytes.0;
            let requests = of.requests.as_ref().unwrap();
            let asked: u64 = requests.operations.iter().map(one).sum();
            of.explanations[0].bytes = Bytes(asked * bytes);
            of.explanations[1].bytes = Bytes(0);
            let sentence = requests::sentence(requests);
            trace(&of).verdict.contains(&sentence)
        };
        assert_eq!([100, 101].map(headline), [true, false]);
    }

    #[test]
    fn every_picture_has_a_name_of_its_own_and_names_stay_text() {
        let mut of = followed();
        let evil = "</script><img src=x onerror=alert(1)>\u{202e}";
        of.name = evil.to_owned();
        of.facts[0].1 = evil.to_owned();
        of.courses.push(lossy());
        of.explanations[1].name = evil.to_owned();
        for output in [
            of.requests.as_mut().unwrap(),
            &mut of.beside.as_mut().unwrap().1,
        ] {
            output.calls[0].operation = evil.to_owned();
            output.operations[0].operation = evil.to_owned();
            output.operations[0].worst[0].detail = evil.to_owned();
        }
        let page = trace(&of);
        let mut names: Vec<&str> = page
            .sections
            .iter()
            .flat_map(|section| &section.pictures)
            .map(|picture| picture.id.as_str())
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        let html = page::html(&page);
        assert!(!html.contains("<img") && !html.contains('\u{202e}'));
    }

    #[test]
    fn nothing_at_all_is_said() {
        let of = Followed {
            explanations: Vec::new(),
            courses: Vec::new(),
            requests: None,
            beside: None,
            ..followed()
        };
        let page = trace(&of);
        assert!(page.verdict[0].contains("nothing to explain"));
        assert_eq!(page.sections.len(), 1);
    }
}
