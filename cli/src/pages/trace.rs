//! The page of a trace or a capture.

use crate::inputs::{InputKind, bad, each_record, observed, open};
use crate::prelude::*;
use engine::captures;
use model::{Connection, Leg};
use report::page::{Page, Section};
use report::pages::{self, Followed};
use report::pictures::downsample::Downsampled;
use report::words::{grouped, utc};
use requests::RequestObserver;
use std::collections::BTreeMap;

/// Connections that are drawn.
const DRAWN: usize = 2;

/// The page of a file, which is read twice: which connections are the largest shows only at its end. `beside` is
/// another capture, whose requests are drawn beside these.
pub fn page(path: &Path, kind: &InputKind, beside: Option<&Path>) -> Result<Page> {
    let mut of = match kind {
        InputKind::Trace => traced(path)?,
        _ => captured(path)?,
    };
    of.beside = match beside {
        None => None,
        Some(other) => {
            let (observer, _) = observed(other, RequestObserver::default())?;
            Some((named(other), observer.finish()))
        }
    };
    Ok(pages::trace(&of))
}

fn named(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn captured(path: &Path) -> Result<Followed> {
    let mut observer = explain::CaptureObserver::of_most(report::explain::NAMED);
    let mut asked = RequestObserver::default();
    let account = capture::read_with_payload(open(path)?, |packet, payload| {
        observer.push(packet);
        asked.push(packet, payload);
    });
    let account = account.map_err(|why| bad(path, why))?;
    let explained = observer.explain();
    let explanations = largest_first(explained.explanations);
    let mut courses = courses(&explanations);
    if !courses.is_empty() {
        let again = captures::read(open(path)?, |packet| {
            courses.iter_mut().for_each(|course| course.packet(packet));
        });
        again.map_err(|why| bad(path, why))?;
    }
    let (packets, frames) = (grouped(account.packets), grouped(account.frames));
    let more = vec![("Packets", format!("{packets} of TCP, of {frames} frames"))];
    let what = "capture: packets without socket state";
    let mut doubts = account.left_out();
    doubts.extend(explained.doubts);
    Ok(Followed {
        doubts,
        requests: Some(asked.finish()),
        ..followed(path, what, explanations, courses, more)
    })
}

fn traced(path: &Path) -> Result<Followed> {
    let mut watcher = explain::TraceWatcher::default();
    let mut asked = RequestObserver::of_two();
    let (mut about, mut segments, mut lost) = (None, 0_u64, 0_u64);
    each_record(path, |record| {
        match &record {
            TraceRecord::Begin(begin) => about = Some(begin.clone()),
            TraceRecord::Segment(_) => segments += 1,
            TraceRecord::Lost(here) => lost += here.events,
            _ => {}
        }
        asked.record(&record);
        watcher.push(record);
    })?;
    let explanations = largest_first(watcher.explain());
    let mut courses = courses(&explanations);
    follow(path, &mut courses)?;
    let mut more = Vec::new();
    if let Some(begin) = about {
        more.push(("host", format!("{}, {}", begin.host, begin.kernel)));
        more.push(("began", utc(begin.started)));
    }
    more.push(("events", grouped(segments)));
    let what = "a trace: every segment with what its socket knew";
    let doubts = (lost > 0).then(|| format!("{lost} events were lost while it was taken"));
    Ok(Followed {
        doubts: doubts.into_iter().collect(),
        requests: Some(asked.finish()),
        ..followed(path, what, explanations, courses, more)
    })
}

/// Takes what belongs to the courses.
fn follow(path: &Path, courses: &mut [Downsampled]) -> Result<()> {
    if courses.is_empty() {
        return Ok(());
    }
    let mut connections: BTreeMap<u32, Connection> = BTreeMap::new();
    each_record(path, |record| match record {
        TraceRecord::Connection(connection)
            if courses.iter().any(|course| course.is_of(&connection)) =>
        {
            connections.insert(connection.id, connection);
        }
        TraceRecord::Segment(segment) => {
            if let Some(connection) = connections.get(&segment.connection) {
                let all = courses.iter_mut();
                all.for_each(|course| course.segment(connection, &segment));
            }
        }
        TraceRecord::Sample(sample) => {
            if let Some(connection) = connections.get(&sample.connection) {
                let all = courses.iter_mut();
                all.for_each(|course| course.sample(connection, &sample));
            }
        }
        _ => {}
    })
}

/// The largest connection of each leg of a run, segment by segment, where its sender was traced.
pub fn of_run(run: &Run, why: &[Explanation], traces: &Traces) -> Vec<Section> {
    let of_leg = |(n, leg): (usize, &Leg)| {
        let side = leg.direction.sender();
        leg.end(side).trace?;
        let own = why
            .iter()
            .filter(|one| one.direction == Some(leg.direction));
        let largest = own.max_by_key(|one| one.bytes)?;
        let mut courses = courses(std::slice::from_ref(largest));
        // Who explained the run has said why, if it cannot be read.
        follow(&traces.checked(&run.id, n, side).ok()?, &mut courses).ok()?;
        let heading = format!("Segment by segment, {}", leg.direction);
        let course = courses.first()?;
        let id = format!("{}-{}", n + 1, leg.direction);
        Some(pages::segments(&heading, &id, largest, course))
    };
    run.legs.iter().enumerate().filter_map(of_leg).collect()
}

fn largest_first(mut all: Vec<Explanation>) -> Vec<Explanation> {
    all.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    all
}

/// Of the first explanations whose ends are known.
fn courses(explanations: &[Explanation]) -> Vec<Downsampled> {
    let ends = explanations
        .iter()
        .map_while(|one| Some((one.sender?, one.receiver?)));
    ends.take(DRAWN)
        .map(|(sender, receiver)| Downsampled::new(sender, receiver))
        .collect()
}

fn followed(
    path: &Path,
    kind: &str,
    explanations: Vec<Explanation>,
    courses: Vec<Downsampled>,
    more: Vec<(&str, String)>,
) -> Followed {
    let bytes: Bytes = explanations.iter().map(|one| one.bytes).sum();
    let connections = match explanations.len() {
        1 => "1 connection, 1 direction".to_owned(),
        n => format!("{} directions with data", grouped(n as u64)),
    };
    let all = [
        ("File", path.display().to_string()),
        ("Kind", kind.to_owned()),
        ("Connections", connections),
        ("Data", bytes.to_string()),
    ];
    let facts = all.into_iter().chain(more);
    Followed {
        name: named(path),
        facts: facts
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        explanations,
        courses,
        ..Followed::default()
    }
}
