//! `linerate explain --requests`: where the time of each request went, from captures or traces.

use crate::files::read_whole;
use crate::filter_args::{self, FilterArgs, LOOK};
use crate::inputs::{Kind, bad, kind, observed};
use crate::lookup;
use crate::prelude::*;
use anyhow::bail;
use model::request::{Links, Requests};
use model::{Nanos, Side, TraceSource};
use observe::trace::{Options, Source};
use requests::Observer;
use std::path::Path;

/// Prints the requests of a capture, a trace, a listing or a run that was traced; or of two captures or traces of the same
/// connections.
pub fn run(
    subject: &str,
    other: Option<&Path>,
    links: Links,
    global: &Global,
    json: bool,
) -> Result<Exit> {
    let Some(other) = other else {
        return print(&requests_of(subject, links, global)?, json);
    };
    let (a, mut left_out) = observed(Path::new(subject), Observer::of_two().on(links))?;
    let (b, of_other) = observed(other, Observer::of_two().on(links))?;
    left_out.extend(of_other);
    let mut joined = requests::joined(a, b);
    joined.doubts.extend(left_out);
    print(&joined, json)
}

/// The requests of a file, or of a run that was traced.
pub fn requests_of(subject: &str, links: Links, global: &Global) -> Result<Requests> {
    let path = Path::new(subject);
    if !path.is_file() {
        return of_run(subject, links, global);
    }
    if matches!(kind(path)?, Kind::Listing) {
        let text = read_whole(path).map_err(|why| bad(path, why))?;
        return Ok(requests::listed(&text, links));
    }
    let (observer, left_out) = observed(path, Observer::default().on(links))?;
    let mut requests = observer.finish();
    requests.doubts.extend(left_out);
    Ok(requests)
}

fn print(requests: &Requests, json: bool) -> Result<Exit> {
    out::result(&match json {
        true => report::json::pretty(requests),
        false => report::requests::text(requests, stdout_style()),
    })
}

/// Prints the requests that go on until Ctrl-C, for `time`, or until the socket or process of `which` is gone.
pub fn live(which: &FilterArgs, time: Option<Nanos>, links: Links, json: bool) -> Result<Exit> {
    let options = Options {
        source: Source::Whichever,
        ..Options::default()
    };
    let (mut tracer, end) = filter_args::start(which, &options, time)?;
    if tracer.begin().source == TraceSource::Samples {
        bail!("requests are not visible to samples of the sockets alone");
    }
    let mut observer = Observer::of_two().on(links);
    out::note("linerate: tracing requests; Ctrl-C ends it and prints them");
    while !end.has_come_for(observer.is_over()) {
        tracer.read(LOOK, &mut |record, _| observer.record(&record));
    }
    tracer.stop(&mut |record, _| observer.record(&record));
    print(&observer.finish(), json)
}

/// The requests of a run, from the traces of its ends.
fn of_run(subject: &str, links: Links, global: &Global) -> Result<Requests> {
    let (run, traces) = lookup::run(subject, global)?;
    let of_end = |n: usize, side: Side| {
        let file = traces.checked(&run.id, n, side)?;
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
    refuse!("the run {} {words}", run.id)
}
