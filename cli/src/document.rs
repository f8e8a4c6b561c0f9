//! A run, an experiment, a tuning, an MTU report or a record of a watch in every form: text, JSON, page.

use crate::inputs;
use crate::json_input;
use crate::lookup::refused;
use crate::pages::{run_page, watch_page};
use crate::prelude::*;
use engine::traces;
use model::mtu::MtuFound;
use model::{WatchTrace, summarise};
use report::page::Page;
use report::pages;
use report::redact::Redaction;
use report::tune::Judged;

/// What the archive has by this name.
pub fn load(archive: &Archive, named: &NamedDocument) -> Result<Document> {
    Ok(match named {
        NamedDocument::Run(id) => Document::Run(Box::new(archive.get(id).map_err(refused)?)),
        NamedDocument::Experiment(id) => {
            Document::Experiment(Box::new(archive.experiment(id).map_err(refused)?))
        }
        NamedDocument::Tuning(id) => {
            let story = archive.tuning(id).map_err(refused)?;
            let experiments = story.rounds.iter().flat_map(|round| &round.experiments);
            // One that was deleted meanwhile is left out.
            let kept = experiments.filter_map(|id| archive.experiment(id).ok());
            let kept = kept.collect();
            Document::Tuning(Box::new(story), kept)
        }
        NamedDocument::Mtu(id) => Document::Mtu(Box::new(archive.mtu(id).map_err(refused)?.found)),
        NamedDocument::Watch(id) => Document::Watch(archive.watch(id).map_err(refused)?),
    })
}

/// What takes the names and addresses out of what is made of a document.
pub fn redaction(document: &Document) -> Redaction {
    Redaction::of(&json(document.clone()))
}

pub fn redacted(document: Document) -> Result<Document> {
    let json = redaction(&document).json(&json(document))?;
    json_input::from_json(&json)
        .map_err(|why| anyhow::anyhow!("the redacted document cannot be read again: {why}"))
}

pub fn judged(experiments: Vec<Experiment>) -> Vec<Judged> {
    experiments.into_iter().map(prove::judged).collect()
}

/// What limited a run, also by the traces beside its archive.
pub fn why(run: &Run, beside: Option<&Traces>) -> Vec<Explanation> {
    match beside {
        Some(traces) => traces::explain(run, traces),
        None => explain::explain(run),
    }
}

/// What the segments of a trace show, if they are here.
fn segments(trace: &WatchTrace, beside: Option<&Traces>) -> Vec<Explanation> {
    let file = beside.map(|traces| traces.file(&trace.id, 0, Side::Local));
    let read = file.map(|file| inputs::explained(&file)).transpose();
    read.unwrap_or_else(|error| {
        out::note(&engine::exit::sentence(&error));
        None
    })
    .unwrap_or_default()
}

pub fn text(document: Document, beside: Option<&Traces>) -> String {
    let style = stdout_style();
    match document {
        Document::Run(run) => {
            report::in_retrospect(&run, &summarise(&run), &why(&run, beside), style)
        }
        Document::Experiment(one) => report::prove::verdict(&one, &prove::judge(&one), style),
        Document::Published(found) => report::published::text(&found, style),
        Document::Tuning(story, experiments) => {
            report::tune::story(&story, &judged(experiments), style)
        }
        Document::Mtu(found) => match *found {
            MtuFound::Look(report) => report::mtu::text(&report, style),
            MtuFound::Change(change) => report::mtu_change::text(&change, style),
        },
        Document::Watch(WatchRecord::Day(day)) => report::watch::watched_day(&day, style),
        Document::Watch(WatchRecord::Trace(trace)) => {
            report::watch::watch_trace(&trace, &segments(&trace, beside), style)
        }
    }
}

pub fn json(document: Document) -> String {
    match document {
        Document::Run(run) => report::json::run(&run, &summarise(&run)),
        Document::Experiment(one) => report::prove::json(&one, &prove::judge(&one)),
        Document::Published(found) => report::json::pretty(&found),
        Document::Tuning(story, experiments) => report::tune::json(&story, &judged(experiments)),
        Document::Mtu(found) => match *found {
            MtuFound::Look(report) => report::json::pretty(&report),
            MtuFound::Change(change) => report::json::pretty(&change),
        },
        Document::Watch(WatchRecord::Day(day)) => report::json::pretty(&day),
        Document::Watch(WatchRecord::Trace(trace)) => report::json::pretty(&trace),
    }
}

pub fn page(document: Document, beside: Option<&Traces>) -> Page {
    match document {
        Document::Run(run) => run_page(&run, &why(&run, beside), beside),
        Document::Experiment(one) => pages::experiment(&one, &prove::judge(&one)),
        Document::Published(found) => pages::published(&found),
        Document::Tuning(story, experiments) => pages::tuning(&story, &judged(experiments)),
        Document::Mtu(found) => pages::mtu(&found),
        Document::Watch(record) => watch_page(&record, beside),
    }
}

pub fn print(document: Document, is_json: bool) -> Result<()> {
    out::print(&match is_json {
        true => json(document),
        false => text(document, None),
    })
}
