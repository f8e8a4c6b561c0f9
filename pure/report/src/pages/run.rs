//! The page of a run.

use crate::pages::{facts, filled};
use crate::pictures::goodput::{self, SecondCurve};
use crate::pictures::socket::{self, SenderLanes};
use crate::pictures::{bands, latencies, latency, seconds, stages};
use crate::prelude::*;
use crate::{blocks, explain, summary};
use model::Workload;
use model::finding::{Level, Phase};
use model::request::{Causes, Moment};

/// A run: its answers, what limited it, its pictures, and everything that was measured.
pub fn run(run: &Run, summary: &Summary, why: &[Explanation]) -> Page {
    let legs = run.legs.iter().zip(&summary.legs).enumerate();
    let mut sections: Vec<Section> = legs
        .flat_map(|(n, (leg, figures))| of_leg(n, run, leg, figures, why))
        .collect();
    let evidence = why.iter().take(explain::FULL).map(|one| {
        let name = escape(&one.name);
        explain::section(
            format!("Bottleneck and evidence, {name}"),
            one,
            Some(&run.host),
        )
    });
    sections.extend(evidence);
    let (tables, words) = summary::tables(run, summary);
    let figures = Section::new("All figures").words(words).tables(tables);
    sections.push(figures.folded(true));
    Page {
        figures: run
            .legs
            .iter()
            .zip(&summary.legs)
            .map(|(leg, figures)| key_figure(run, leg, figures))
            .collect(),
        title: match &run.title {
            Some(title) => format!("{}: {title}", run.host),
            None => subject(run),
        },
        verdict: summary::sentences(run, summary, why),
        facts: what_was_done(run, summary),
        sections,
        ..Page::default()
    }
}

/// What went on, and between whom.
fn subject(run: &Run) -> String {
    let what = run.spec.workload.kind().title;
    match run.local.hostname.as_str() {
        "" => format!("{what} with {}", run.host),
        here => format!("{what} between {here} and {}", run.host),
    }
}

/// What a leg reached, and the RTT that it had.
fn key_figure(run: &Run, leg: &Leg, figures: &LegSummary) -> KeyFigure {
    let (reached, mut notes) = summary::reached(run, leg, figures);
    notes.extend(match (figures.rtt_idle, figures.rtt_loaded) {
        _ if figures.requests.is_some() => None,
        (Some(idle), Some(loaded)) => Some(format!("RTT {idle}, under load {loaded}")),
        (None, Some(loaded)) => Some(format!("RTT under load {loaded}")),
        _ => None,
    });
    let (what, value) = match &figures.requests {
        Some(requests) => {
            notes[0] = format!("p99 {}, {reached}", requests.p99);
            ("latency p50", requests.p50.to_string())
        }
        None if run.spec.workload.is_udp() => ("received", reached),
        None => ("goodput", reached),
    };
    KeyFigure::new(
        format!("{what}, {}", leg.direction),
        value,
        notes.join("; "),
    )
}

/// What is in flight below its ceilings shows these limits best.
fn is_shown_by_flight(limit: Limit) -> bool {
    matches!(
        limit,
        Limit::ReceiveWindow | Limit::ZeroWindow | Limit::SendBuffer | Limit::CongestionWindow
    )
}

/// The RTT beside the goodput shows these.
fn is_shown_by_rtt(limit: Limit) -> bool {
    matches!(limit, Limit::Bufferbloat | Limit::DeviceQueue)
}

/// The pictures of one leg: the one that shows what limited it comes first, the rest is folded.
fn of_leg(
    n: usize,
    run: &Run,
    leg: &Leg,
    figures: &LegSummary,
    why: &[Explanation],
) -> Vec<Section> {
    let way = leg.direction.to_string();
    // Two legs may go the same way.
    let id = |what: &str| format!("{what}-{}-{way}", n + 1);
    let own = || why.iter().filter(|e| e.direction == Some(leg.direction));
    let phases: Vec<&[Phase]> = own().map(|e| &e.phases[..]).collect();
    let cause = own().find_map(Explanation::cause);
    let bands = bands(&phases);
    let mut first: Vec<Picture> = Vec::new();
    if let (Workload::Copy(order), Some(copy)) = (&run.spec.workload, &figures.copy) {
        first.push(stages::picture(&id("stages"), order, copy));
    }
    let mut spread: Vec<Picture> = Vec::new();
    match (&figures.requests, &leg.sender().requests) {
        (Some(requests), all) => {
            first.extend(latencies::picture(&id("latency"), leg, requests));
            let named = match leg.sender().operations.as_slice() {
                [] => all.iter().map(|all| (way.clone(), all)).collect(),
                operations => blocks::named(operations),
            };
            spread.extend(latency::distribution(&id("distribution"), &named));
            spread.extend(latency::over_time(&id("spread"), &by_time(leg)));
        }
        (None, _) => {
            let beside = match cause.is_some_and(is_shown_by_rtt) {
                true => SecondCurve::Rtt,
                false => SecondCurve::Retransmissions,
            };
            let bands = bands.clone();
            let goodput = goodput::picture(&id("goodput"), leg, figures, beside, bands);
            first.extend(goodput.map(|picture| with_cause(picture, cause)));
        }
    }
    let (of, title) = (SenderLanes::Samples(leg), format!(", {way}"));
    let windows = socket::windows(&id("windows"), &title, of, seconds(), bands.clone());
    let mut kernel = Vec::from_iter(windows);
    if let Some(flight) = socket::flight(&id("flight"), &title, of, seconds(), bands) {
        match cause.is_some_and(is_shown_by_flight) {
            true => first.insert(0, flight),
            false => kernel.push(flight),
        }
    }
    let part = |heading: String, pictures: Vec<Picture>, folded: bool| {
        Section::new(heading).pictures(pictures).folded(folded)
    };
    let heading = match leg.direction {
        Direction::Up => format!("Up, to {}", run.host),
        Direction::Down => format!("Down, from {}", run.host),
    };
    filled(vec![
        part(heading, first, false),
        part(format!("Requests, {way}"), spread, true),
        part(format!("Windows and RTT, {way}"), kernel, true),
    ])
}

/// What the sender waited for is named above a picture; the cause that lies behind it, beside it.
fn with_cause(mut picture: Picture, cause: Option<Limit>) -> Picture {
    if let Some(cause) = cause.filter(|cause| cause.level() == Level::Second) {
        picture.reading += &format!(" The cause: {}.", cause.words());
    }
    picture
}

/// The requests between two samples.
fn by_time(leg: &Leg) -> Vec<Moment> {
    let pairs = leg.sender().samples.windows(2).filter_map(|pair| {
        Some(Moment {
            from: pair[0].at,
            to: pair[1].at,
            times: pair[1].requests.clone()?,
            causes: Causes::default(),
        })
    });
    pairs.collect()
}

/// What was done, on what, when.
fn what_was_done(run: &Run, summary: &Summary) -> Vec<(String, String)> {
    let done = summary::done(run, summary, Style::WIDE);
    let mut all = facts([
        ("Measured", utc(run.started)),
        ("Run", shown(&run.id)),
        ("What", done.trim_end().to_owned()),
        ("Local host", summary::host(&run.local)),
        (
            "Remote host",
            summary::remote(&run.host, run.remote.as_ref()),
        ),
    ]);
    let doubts = summary.warnings.iter().map(|doubt| {
        let words = format!("{}: {}", doubt.what, doubt.meaning);
        ("Caveat".to_owned(), words)
    });
    all.extend(doubts);
    all
}

#[cfg(test)]
pub(crate) mod tests;
