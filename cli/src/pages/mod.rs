//! The page of whatever a user names: of the archive, a document, a trace or a capture.

mod document;
mod trace;

use crate::global::Global;
use crate::inputs::{self, Kind};
use crate::lookup;
use anyhow::Result;
use archive::{Archive, Named};
use engine::exit::Refusal;
use engine::traces;
use model::summarise;
use report::page::Page;
use report::pages;
use std::path::Path;

/// A page, and what its file is called.
pub struct Told {
    /// For the name of its file.
    pub name: String,
    /// The page.
    pub page: Page,
}

/// The page of what is named: a file if there is one, else what the archive has.
///
/// # Errors
/// If there is no such thing, or it cannot be read.
pub fn told(subject: &str, beside: Option<&Path>, global: &Global) -> Result<Told> {
    let path = Path::new(subject);
    if path.is_file() || subject == "-" {
        return of_file(path, beside);
    }
    without(beside)?;
    let archive = lookup::open_for(subject, global)?;
    let named = archive.named(subject).map_err(lookup::refused)?;
    Ok(Told {
        page: page_of(&archive, &named)?,
        name: named.id().to_owned(),
    })
}

/// The page of what the archive has by this name.
///
/// # Errors
/// If it cannot be read.
pub fn page_of(archive: &Archive, named: &Named) -> Result<Page> {
    match named {
        Named::Run(id) => {
            let run = archive.get(id).map_err(lookup::refused)?;
            let traces = archive.traces();
            let why = traces::explain(&run, &traces);
            let mut page = pages::run(&run, &summarise(&run), &why);
            page.sections.extend(trace::of_run(&run, &why, &traces));
            Ok(page)
        }
        Named::Experiment(id) => {
            let experiment = archive.experiment(id).map_err(lookup::refused)?;
            Ok(document::of_experiment(&experiment))
        }
        Named::Tuning(id) => {
            let story = archive.tuning(id).map_err(lookup::refused)?;
            Ok(pages::tuning(&story, &lookup::judged(archive, &story)))
        }
        Named::Mtu(id) => Ok(pages::mtu(&archive.mtu(id).map_err(lookup::refused)?.found)),
    }
}

/// The page of a file: what it is tells how it begins.
fn of_file(path: &Path, beside: Option<&Path>) -> Result<Told> {
    match path.is_file().then(|| inputs::kind(path)).transpose()? {
        Some(kind @ (Kind::Trace | Kind::Capture)) => {
            let stem = path.file_stem().unwrap_or_default();
            Ok(Told {
                name: stem.to_string_lossy().into_owned(),
                page: trace::page(path, &kind, beside)?,
            })
        }
        Some(Kind::Listing | Kind::Other) | None => {
            without(beside)?;
            document::told(path)
        }
    }
}

/// Only traces and captures have requests to draw beside others.
fn without(beside: Option<&Path>) -> Result<()> {
    let words = "--beside draws the requests of another capture or trace beside those of one: give FILE, not a run or a document";
    match beside {
        None => Ok(()),
        Some(_) => Err(Refusal::usage(words.to_owned()).into()),
    }
}
