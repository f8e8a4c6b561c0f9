//! `linerate explain --requests`: where the time of each request went, from captures or traces.

use super::watch::{LOOK, is_over};
use crate::files::read_whole;
use crate::filter_args::{FilterArgs, report_missing};
use crate::global::Global;
use crate::inputs::{Kind, bad, kind, observed};
use crate::live::stdout_style;
use crate::{lookup, out};
use anyhow::{Context, Result, anyhow};
use engine::exit::{Exit, Refusal};
use model::request::{Links, Requests};
use model::{Nanos, Side, TraceSource};
use observe::trace::{Options, Source, Tracer};
use requests::Observer;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Tells the requests of a capture, a trace, a listing or a run that was traced; or of two captures or traces of the same
/// connections.
///
/// # Errors
/// If one cannot be read, or is none.
pub fn run(
    subject: &str,
    other: Option<&Path>,
    links: Links,
    global: &Global,
    json: bool,
) -> Result<Exit> {
    let Some(other) = other else {
        return tell(&told(subject, links, global)?, json);
    };
    let (a, mut left_out) = observed(Path::new(subject), Observer::of_two().on(links))?;
    let (b, of_other) = observed(other, Observer::of_two().on(links))?;
    left_out.extend(of_other);
    let mut told = requests::joined(a, b);
    told.doubts.extend(left_out);
    tell(&told, json)
}

/// The requests of a file, or of a run that was traced.
///
/// # Errors
/// If it cannot be read, or is none.
pub fn told(subject: &str, links: Links, global: &Global) -> Result<Requests> {
    let path = Path::new(subject);
    if !path.is_file() {
        return of_run(subject, links, global);
    }
    if matches!(kind(path)?, Kind::Listing) {
        let text = read_whole(path).map_err(|why| bad(path, why))?;
        return Ok(requests::listed(&text, links));
    }
    let (observer, left_out) = observed(path, Observer::default().on(links))?;
    let mut told = observer.finish();
    told.doubts.extend(left_out);
    Ok(told)
}

fn tell(told: &Requests, json: bool) -> Result<Exit> {
    out::print(&match json {
        true => report::json::pretty(told),
        false => report::requests::text(told, stdout_style()),
    })?;
    Ok(Exit::Done)
}

/// Tells the requests that go on until Ctrl-C, for `time`, or until the socket or process of `which` is gone.
///
/// # Errors
/// If this process may not trace, or nobody takes what is told.
pub fn live(which: &FilterArgs, time: Option<Nanos>, links: Links, json: bool) -> Result<Exit> {
    let stop = sys::signal::stop_flag().context("cannot catch Ctrl-C")?;
    let options = Options {
        source: Source::Whichever,
        ..Options::default()
    };
    let mut tracer = Tracer::start(&which.filter()?, &options)?;
    if tracer.begin().source == TraceSource::Samples {
        let why = tracer.instead.join("; ");
        return Err(anyhow!("cannot tell requests: {why}"));
    }
    report_missing(&tracer);
    let mut observer = Observer::of_two().on(links);
    out::note("linerate: tracing requests; Ctrl-C ends it and tells them");
    let ends = time.map(|time| Instant::now() + Duration::from(time));
    while !stop.load(Ordering::Relaxed)
        && ends.is_none_or(|ends| Instant::now() < ends)
        && !is_over(which, observer.is_over())
    {
        tracer.read(LOOK, &mut |record, _| observer.record(&record));
    }
    tracer.stop(&mut |record, _| observer.record(&record));
    tell(&observer.finish(), json)
}

/// The requests of a run, from the traces of its ends.
fn of_run(subject: &str, links: Links, global: &Global) -> Result<Requests> {
    let archive = lookup::open_for(subject, global)?;
    let run = archive.get(subject).map_err(lookup::refused)?;
    let of_end = |n: usize, side: Side| {
        let file = archive.traces().file(&run.id, n, side);
        observed(&file, Observer::of_two().on(links)).map(|(observer, _)| observer)
    };
    for (n, leg) in run.legs.iter().enumerate() {
        return Ok(
            match [Side::Near, Side::Far].map(|side| leg.end(side).trace.is_some()) {
                [true, true] => requests::joined(of_end(n, Side::Near)?, of_end(n, Side::Far)?),
                [true, false] => of_end(n, Side::Near)?.finish(),
                [false, true] => of_end(n, Side::Far)?.finish(),
                [false, false] => continue,
            },
        );
    }
    let words = "has no trace, and its samples know no single request: measure it with --trace";
    Err(Refusal::usage(format!("the run {} {words}", run.id)).into())
}
