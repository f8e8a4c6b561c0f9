//! `linerate explain --requests`: where the time of each request went, from captures or traces.

use crate::files::{confined, read_whole};
use crate::filter_args::{self, FilterArgs, LOOK};
use crate::inputs::{InputKind, bad, kind, observed};
use crate::lookup::Subject;
use crate::prelude::*;
use anyhow::bail;
use model::TraceSource;
use model::request::{Links, Requests};
use observe::trace::{PreferredSource, TraceOptions};
use requests::RequestObserver;

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
        let subject = Subject::find(subject, global)?;
        let text = || Ok(text(&requests_of(&subject, links)?, json));
        return out::result(&confined(&subject.files(), text)?);
    };
    let one = Path::new(subject);
    out::result(&confined(&[one, other], || {
        let (a, mut left_out) = observed(one, RequestObserver::of_two().on(links))?;
        let (b, of_other) = observed(other, RequestObserver::of_two().on(links))?;
        left_out.extend(of_other);
        let mut joined = requests::joined(a, b);
        joined.doubts.extend(left_out);
        Ok(text(&joined, json))
    })?)
}

/// The requests of a file, or of a run that was traced.
pub fn requests_of(subject: &Subject, links: Links) -> Result<Requests> {
    let path = match subject {
        Subject::Run(run, traces) => return of_run(run, traces, links),
        Subject::File(path) => path,
    };
    if matches!(kind(path)?, InputKind::Listing) {
        let text = read_whole(path).map_err(|why| bad(path, why))?;
        return Ok(requests::listed(&text, links));
    }
    let (observer, left_out) = observed(path, RequestObserver::default().on(links))?;
    let mut requests = observer.finish();
    requests.doubts.extend(left_out);
    Ok(requests)
}

fn text(requests: &Requests, json: bool) -> String {
    match json {
        true => report::json::pretty(requests),
        false => report::requests::text(requests, stdout_style()),
    }
}

/// Prints the requests that go on until Ctrl-C, for `time`, or until the socket or process of `which` is gone.
pub fn live(which: &FilterArgs, time: Option<Nanos>, links: Links, json: bool) -> Result<Exit> {
    let options = TraceOptions {
        source: PreferredSource::Whichever,
        ..TraceOptions::default()
    };
    let (mut tracer, end) = filter_args::start(which, &options, time)?;
    if tracer.begin().source == TraceSource::Samples {
        bail!("requests are not visible to samples of the sockets alone");
    }
    let mut observer = RequestObserver::of_two().on(links);
    out::note("linerate: tracing requests; Ctrl-C ends it and prints them");
    while !end.has_come_for(observer.is_over()) {
        tracer.read(LOOK, &mut |record, _| observer.record(&record));
    }
    tracer.stop(&mut |record, _| observer.record(&record));
    out::result(&text(&observer.finish(), json))
}

/// The requests of a run, from the traces of its ends.
fn of_run(run: &Run, traces: &Traces, links: Links) -> Result<Requests> {
    let of_end = |n: usize, side: Side| {
        let file = traces.checked(&run.id, n, side)?;
        observed(&file, RequestObserver::of_two().on(links)).map(|(observer, _)| observer)
    };
    for (n, leg) in run.legs.iter().enumerate() {
        return Ok(
            match [Side::Local, Side::Remote].map(|side| leg.end(side).trace.is_some()) {
                [true, true] => requests::joined(of_end(n, Side::Local)?, of_end(n, Side::Remote)?),
                [true, false] => of_end(n, Side::Local)?.finish(),
                [false, true] => of_end(n, Side::Remote)?.finish(),
                [false, false] => continue,
            },
        );
    }
    let words = "has no trace, and its samples know no single request: measure it with --trace";
    refuse!("the run {} {words}", run.id)
}
