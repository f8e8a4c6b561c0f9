//! The page of whatever a user names: of the archive, a document, a trace or a capture.

mod trace;

use crate::files::{self, confined, read_whole};
use crate::inputs::{self, InputKind};
use crate::json_input;
use crate::prelude::*;
use crate::{document, lookup};
use model::{Metric, summarise};
use prove::published::of_table;
use report::page::{self, Page};
use report::pages;
use report::redact::Redaction;
use serde::Serialize;
use serde::de::DeserializeOwned;

struct NamedPage {
    /// For the name of its file.
    name: String,
    /// The page.
    page: Page,
}

/// Has a page made of what is named, a file if there is one, else what the archive has, and `form` applied to it: all by
/// a process that can only read the files.
pub fn formed<T: Serialize + DeserializeOwned>(
    subject: &str,
    beside: Option<&Path>,
    redact: bool,
    global: &Global,
    form: impl FnOnce(&Page) -> Result<T>,
) -> Result<(String, T)> {
    let formed = |NamedPage { name, page }: NamedPage| Ok((name, form(&page)?));
    let path = Path::new(subject);
    let is_file = path.is_file();
    if is_file || subject == "-" {
        let files: Vec<&Path> = [path].into_iter().chain(beside).collect();
        return confined(&files, || formed(of_file(path, is_file, beside, redact)?));
    }
    without(beside)?;
    let (name, found, archive) = in_archive(subject, global)?;
    let traces = archive.traces();
    confined(&traces.of(&name), || {
        formed(NamedPage::of(name, found, Some(&traces), redact))
    })
}

fn in_archive(subject: &str, global: &Global) -> Result<(String, Document, Archive)> {
    let archive = lookup::open_for(subject, global)?;
    let named = archive.named(subject).map_err(lookup::refused)?;
    let found = document::load(&archive, &named)?;
    Ok((named.id().to_owned(), found, archive))
}

/// The name of the document that is meant, a file if there is one, else what the archive has, and what `judge` makes of
/// it: of a file in a process that can only read it.
pub fn judged<T: Serialize + DeserializeOwned>(
    subject: &str,
    global: &Global,
    judge: impl FnOnce(Document) -> Result<T>,
) -> Result<(String, T)> {
    let path = Path::new(subject);
    if path.is_file() || subject == "-" {
        return Ok((files::name(path), confined(&[path], || judge(read(path)?))?));
    }
    let (name, found, _) = in_archive(subject, global)?;
    Ok((name, judge(found)?))
}

impl NamedPage {
    fn of(name: String, found: Document, beside: Option<&Traces>, redact: bool) -> NamedPage {
        let redaction = redact.then(|| document::redaction(&found));
        let page = document::page(found, beside);
        NamedPage { name, page }.redacted(redaction)
    }

    fn redacted(mut self, redaction: Option<Redaction>) -> NamedPage {
        if let Some(mut redaction) = redaction {
            self.page.redact(&mut redaction);
            self.name = redaction.text(&self.name);
        }
        self
    }
}

/// The page of what the archive has by this name, as HTML, made by a process that can only read its traces.
pub fn html_of(archive: &Archive, named: &archive::NamedDocument) -> Result<String> {
    let found = document::load(archive, named)?;
    let traces = archive.traces();
    confined(&traces.of(named.id()), || {
        Ok(page::html(&document::page(found, Some(&traces))))
    })
}

/// The page of a capture or a trace in a file, as HTML, made by a process that can only read it.
pub fn html_of_capture(path: &Path) -> Result<String> {
    confined(&[path], || {
        let kind = inputs::kind(path)?;
        if !matches!(kind, InputKind::Trace | InputKind::Capture) {
            refuse!("it is no capture (pcap, pcapng) and no trace of linerate");
        }
        Ok(page::html(&trace::page(path, &kind, None)?))
    })
}

/// The page of a run, with the segments of its traces if they are here.
pub fn run_page(run: &Run, why: &[Explanation], traces: Option<&Traces>) -> Page {
    let mut page = pages::run(run, &summarise(run), why);
    let drawn = traces.map(|traces| trace::of_run(run, why, traces));
    // What shows the finding comes first.
    let (shut, open) = drawn
        .into_iter()
        .flatten()
        .partition::<Vec<_>, _>(|section| section.folded);
    page.sections.splice(0..0, open);
    page.sections.extend(shut);
    page
}

/// The page of what a watch kept, with the segments of a trace if they are here.
pub fn watch_page(record: &WatchRecord, traces: Option<&Traces>) -> Page {
    let trace = match record {
        WatchRecord::Day(day) => return pages::watched_day(day),
        WatchRecord::Trace(trace) => trace,
    };
    let file = traces.map(|traces| traces.file(&trace.id, 0, Side::Local));
    let drawn = file.and_then(|file| trace::page(&file, &InputKind::Trace, None).ok());
    pages::watch_trace(trace, drawn)
}

/// The page of a file, whose kind its beginning shows.
fn of_file(path: &Path, is_file: bool, beside: Option<&Path>, redact: bool) -> Result<NamedPage> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let kind = is_file.then(|| inputs::kind(path)).transpose()?;
    if let Some(kind @ (InputKind::Trace | InputKind::Capture)) = kind {
        let named = NamedPage {
            name: stem.into_owned(),
            page: trace::page(path, &kind, beside)?,
        };
        return Ok(named.redacted(redact.then(Redaction::default)));
    }
    without(beside)?;
    let document = read(path)?;
    let name = match &document {
        Document::Run(run) => run.id.clone(),
        Document::Experiment(experiment) => experiment.id.clone(),
        Document::Tuning(story, _) => story.id.clone(),
        Document::Mtu(found) => format!("mtu-{}", found.host()),
        Document::Watch(record) => record.id().clone(),
        Document::Published(_) => stem.into_owned(),
    };
    Ok(NamedPage::of(name, document, None, redact))
}

/// A document: JSON that linerate printed, or a table of published numbers.
fn read(path: &Path) -> Result<Document> {
    let name = files::name(path);
    let read = read_whole(path).and_then(|text| {
        if text.trim_start().starts_with(['{', '[']) {
            return json_input::from_json(&text);
        }
        if !text.lines().next().is_some_and(|header| header.contains(',')) {
            return Err("unknown file format; supported: the JSON of linerate and iperf3, a table of published numbers (CSV), a capture (pcap, pcapng), a trace of linerate".to_owned());
        }
        // The default of 'prove --from'.
        let margin = Metric::default().usual_margin();
        let found = of_table(&name, &text, margin).map_err(|e| e.to_string())?;
        Ok(Document::Published(Box::new(found)))
    });
    read.map_err(|why| Refusal::usage(format!("cannot make a page of {name}: {why}")).into())
}

/// Only traces and captures have requests to draw beside others.
fn without(beside: Option<&Path>) -> Result<()> {
    if beside.is_some() {
        refuse!(
            "--beside draws the requests of another capture or trace beside those of one: give FILE, not a run or a document"
        );
    }
    Ok(())
}
