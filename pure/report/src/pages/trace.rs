//! The page of a trace or a capture: its connections, the biggest in full, and the requests that they carried.

use crate::page::{Page, Picture, Section};
use crate::pictures::course::Course;
use crate::pictures::ladder::{self, Ladder};
use crate::pictures::socket::{self, Sender};
use crate::pictures::time_sequence::{self, time};
use crate::pictures::{bands, latency};
use crate::words::{Style, escape, grouped};
use crate::{explain, requests};
use model::finding::Explanation;
use model::request::{Call, Operation, Requests};

/// Connections that are told by their sentence.
const NAMED: usize = 50;
/// Operations of which the longest request is drawn.
const LADDERS: usize = 3;

/// What was read of a file.
pub struct Followed {
    /// Name of the file.
    pub name: String,
    /// What it is, and what is known of it.
    pub facts: Vec<(String, String)>,
    /// Its connections, the largest first.
    pub explanations: Vec<Explanation>,
    /// The courses of the first of them, in the same order.
    pub courses: Vec<Course>,
    /// The requests that they carried, where the file shows any.
    pub requests: Option<Requests>,
    /// Another file, whose requests are drawn beside these: the same on a path that differs.
    pub beside: Option<(String, Requests)>,
    /// What is to be said of the file as a whole, a sentence each.
    pub doubts: Vec<String>,
}

/// The page.
pub fn trace(of: &Followed) -> Page {
    let answered = of.requests.as_ref().filter(|told| told.answered > 0);
    let mut sections = Vec::new();
    for (n, (one, course)) in of.explanations.iter().zip(&of.courses).enumerate() {
        sections.extend(connection(n, one, course));
    }
    if let Some(told) = answered {
        sections.extend(asked(&of.name, told, of.beside.as_ref()));
    }
    let others = &of.explanations[of.courses.len().min(of.explanations.len())..];
    if !others.is_empty() {
        sections.push(by_sentence(others));
    }
    if !of.doubts.is_empty() {
        sections.push(
            Section::new("What was left out")
                .words(of.doubts.clone())
                .folded(true),
        );
    }
    let mut verdict: Vec<String> = of
        .explanations
        .iter()
        .take(of.courses.len().max(1))
        .map(answer)
        .collect();
    verdict.extend(answered.map(requests::sentence));
    if verdict.is_empty() {
        verdict.push(
            "No connection with data is in this file: there is nothing to explain.".to_owned(),
        );
    }
    Page {
        streams: of
            .explanations
            .iter()
            .filter_map(|one| one.stream.clone())
            .collect(),
        title: format!("What limited the connections in {}", escape(&of.name)),
        verdict,
        facts: of.facts.clone(),
        sections,
    }
}

/// A connection and its answer, in one sentence.
fn answer(one: &Explanation) -> String {
    let rate = one.bytes.per(one.span);
    let said = explain::sentence(one);
    format!(
        "{}: {} in {}, {rate}; {said}",
        escape(&one.name),
        one.bytes,
        one.span
    )
}

/// A connection of a run in full, under a heading; `id` makes the names of its pictures differ from others.
pub fn segments(heading: &str, id: &str, one: &Explanation, course: &Course) -> Section {
    let (sequence, mut pictures) = drawn(&format!("-{id}"), one, course);
    pictures.insert(0, sequence);
    Section::new(heading.to_owned())
        .words(vec![answer(one)])
        .pictures(pictures)
        .folded(true)
}

/// A connection in full: the graph, then what its sender had to go by, then the words.
fn connection(n: usize, one: &Explanation, course: &Course) -> [Section; 2] {
    let id = match n {
        0 => String::new(),
        n => format!("-{}", n + 1),
    };
    let (sequence, pictures) = drawn(&id, one, course);
    let name = escape(&one.name);
    [
        Section::new(name.clone())
            .pictures(vec![sequence])
            .folded(n > 0),
        Section::new(match n {
            0 => "What its sender had to go by, and why".to_owned(),
            _ => format!("What the sender of {name} had to go by, and why"),
        })
        .listing(explain::text(std::slice::from_ref(one), None, Style::PLAIN))
        .pictures(pictures)
        .folded(true),
    ]
}

/// The graph of a connection, and its other pictures.
fn drawn(id: &str, one: &Explanation, course: &Course) -> (Picture, Vec<Picture>) {
    let bands = || bands(&[&course.aligned(one)]);
    let id = |what: &str| format!("{what}{id}");
    let of = Sender::Columns(&course.most().columns);
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
            "And {more} more connections ('linerate explain --json' has all)."
        ));
    }
    Section::new("Other connections").words(words).folded(true)
}

/// The requests: how long, why, and single ones step by step.
fn asked(name: &str, told: &Requests, beside: Option<&(String, Requests)>) -> [Section; 2] {
    let named = |of: &Operation| (of.operation.clone(), of.times.clone());
    let named: Vec<_> = told.operations.iter().map(named).collect();
    let distributions: Vec<_> = named
        .iter()
        .map(|(name, times)| (name.clone(), times))
        .collect();
    let mut pictures: Vec<Picture> = Vec::new();
    pictures.extend(latency::by_cause("request-causes", &told.operations));
    pictures.push(latency::distribution("request-times", &distributions));
    pictures.extend(latency::over_time("requests-over-time", &told.moments));
    [
        Section::new("Requests")
            .words(vec![requests::sentence(told)])
            .pictures(pictures),
        Section::new("Requests one by one")
            .listing(requests::text(told, Style::PLAIN))
            .pictures(ladders(name, told, beside))
            .folded(true),
    ]
}

/// A usual request beside the same of another file, or of the operation that took the most time; then the longest.
fn ladders(name: &str, told: &Requests, beside: Option<&(String, Requests)>) -> Vec<Picture> {
    let mut pictures = Vec::new();
    match beside {
        Some((other, of_other)) => pictures.extend(both(told, [name, other], of_other)),
        None => {
            let usual = told
                .operations
                .first()
                .and_then(|of| Some((of, usual(told, &of.operation)?)));
            if let Some((of, call)) = usual {
                let ladder = Ladder {
                    title: format!("a usual one of {}", grouped(of.count)),
                    call,
                };
                pictures.push(ladder::picture(
                    "ladder-usual",
                    &titled("A usual request", call),
                    &[ladder],
                ));
            }
        }
    }
    for (n, of) in told.operations.iter().take(LADDERS).enumerate() {
        if let Some(call) = of.worst.first().filter(|_| of.count > 1) {
            let ladder = Ladder {
                title: format!("the longest of {}", grouped(of.count)),
                call,
            };
            let id = format!("ladder-longest-{}", n + 1);
            pictures.push(ladder::picture(
                &id,
                &titled("The longest request", call),
                &[ladder],
            ));
        }
    }
    pictures
}

/// The first operation that both have, a usual request of each on one scale of time.
fn both(told: &Requests, names: [&str; 2], other: &Requests) -> Option<Picture> {
    let pair = told.operations.iter().find_map(|of| {
        let here = usual(told, &of.operation)?;
        Some((here, usual(other, &of.operation)?))
    });
    let (here, there) = pair?;
    let ladder = |name, call| Ladder {
        title: format!("{}: {}", escape(name), largest(call)),
        call,
    };
    let ladders = [ladder(names[0], here), ladder(names[1], there)];
    Some(ladder::picture(
        "ladder-both",
        &titled("The same request twice", here),
        &ladders,
    ))
}

/// What tells two paths apart: the size of their segments.
fn largest(call: &Call) -> String {
    let per = |step: &model::request::Step| step.bytes.0.div_ceil(step.segments.max(1).into());
    let most = call.steps.iter().map(per).max().unwrap_or(0);
    format!("up to {most} bytes a segment")
}

fn titled(what: &str, call: &Call) -> String {
    format!("{what}: {}", escape(&call.operation))
}

/// Of the calls that are told, that which took as long as half of them do.
fn usual<'a>(told: &'a Requests, operation: &str) -> Option<&'a Call> {
    let p50 = told
        .operations
        .iter()
        .find(|of| of.operation == operation)?
        .p50;
    let calls = told.calls.iter().filter(|call| call.operation == operation);
    calls.min_by_key(|call| call.parts.total().0.abs_diff(p50.0))
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
    fn every_picture_has_a_name_of_its_own_and_strangers_stay_text() {
        let mut of = followed();
        let evil = "</script><img src=x onerror=alert(1)>\u{202e}";
        of.name = evil.to_owned();
        of.facts[0].1 = evil.to_owned();
        of.courses.push(lossy());
        of.explanations[1].name = evil.to_owned();
        for told in [
            of.requests.as_mut().unwrap(),
            &mut of.beside.as_mut().unwrap().1,
        ] {
            told.calls[0].operation = evil.to_owned();
            told.operations[0].operation = evil.to_owned();
            told.operations[0].worst[0].detail = evil.to_owned();
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
