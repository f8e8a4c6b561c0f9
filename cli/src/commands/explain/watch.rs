//! `linerate explain --live`: connections explained while they go on.

use crate::filter_args::{self, FilterArgs, LOOK};
use crate::live::LivePicture;
use crate::prelude::*;
use model::finding::Glance;
use observe::trace::{PreferredSource, TraceOptions};
use report::Style;
use report::watch::{self, TableFoot};

/// Between two pictures on a terminal.
const REDRAW: Duration = Duration::from_millis(500);
/// Between two lines of JSON, and at most between two looks at Ctrl-C.
const SECOND: Duration = Duration::from_secs(1);
/// Between two lines in a pipe.
const LINE: Duration = Duration::from_secs(5);
/// Explains live until Ctrl-C, for `time`, or until the socket or process of `which` is gone.
pub fn run(which: &FilterArgs, time: Option<Nanos>, json: bool) -> Result<Exit> {
    let options = TraceOptions {
        source: PreferredSource::Whichever,
        owners: true,
        ..TraceOptions::default()
    };
    let (mut tracer, end) = filter_args::start(which, &options, time)?;
    let mut watcher = explain::TraceWatcher::default();
    let started = Instant::now();
    let mut view = View::new(Now::default(), json);
    view.report("linerate: explaining live; Ctrl-C ends it");
    let every = if json { SECOND } else { REDRAW };
    let mut due = started + every;
    while !end.has_come_for(watcher.is_over()) {
        tracer.read(LOOK, &mut |record, _| watcher.push(record));
        if Instant::now() < due {
            continue;
        }
        due = Instant::now() + every;
        let at = Nanos::from(started.elapsed());
        let glances = watcher.glances(at);
        if json {
            if !out::print_part(&watch::json(&glances, glances.len() as u64, at, None))? {
                return Ok(Exit::Done);
            }
        } else {
            view.update(|picture| picture.take(glances, watcher.seen(), at));
        }
    }
    let mut last = None;
    tracer.stop(&mut |record, _| match record {
        TraceRecord::End(end) => last = Some(end),
        record => watcher.push(record),
    });
    drop(view);
    let explanations = watcher.explain();
    let text = match json {
        true => report::explain::json_line(&explanations),
        false => report::explain::text(&explanations, None, stdout_style()),
    };
    out::print(&text)?;
    if let Some(end) = last.filter(|end| end.lost > 0) {
        out::note(&format!("linerate: {}", report::trace::end(&end)));
    }
    Ok(Exit::Done)
}

#[derive(Default)]
struct Now {
    glances: Vec<Glance>,
    seen: u64,
    at: Nanos,
    lined: Nanos,
}

impl Now {
    fn take(&mut self, glances: Vec<Glance>, seen: u64, at: Nanos) {
        (self.glances, self.seen, self.at) = (glances, seen, at);
    }
}

impl LivePicture for Now {
    fn plain(&mut self) -> Vec<String> {
        if self.at.since(self.lined) < Nanos::from(LINE) {
            return Vec::new();
        }
        self.lined = self.at;
        vec![watch::line(
            &self.glances,
            self.glances.len() as u64,
            self.at,
        )]
    }

    fn frame(&self, style: Style) -> Vec<String> {
        let foot = TableFoot {
            open: self.glances.len() as u64,
            seen: self.seen,
            hint: "Ctrl-C explains them.",
            numbered: false,
        };
        watch::frame(&self.glances, &foot, self.at, style)
    }

    fn event(&mut self, _: &Event<'_>) {}
}
