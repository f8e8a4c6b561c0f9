//! The archive as a folder of files, to keep or to put behind any web server.

use super::site::{entries, histories, newest, ways};
use crate::files::write_whole;
use crate::pages::html_of;
use crate::prelude::*;
use archive::{Archive, RunFilter};
use report::page;
use report::pages::{History, Index};
use std::path::Path;

/// Writes the list, the page of all that is in it and the history of each path into a directory, and says how
/// many pages that were. Runs of experiments are in the pages of these.
///
/// # Errors
/// What cannot be read or written. The list comes last, so that it never leads nowhere.
pub fn write_all(archive: &Archive, directory: &Path) -> Result<usize> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    let write = |name: &str, text: &str| write_whole(&directory.join(name), text);
    let entries = entries(archive, &RunFilter::default())?;
    for entry in &entries {
        let page = html_of(archive, &archive.named(&entry.id)?)?;
        write(&format!("{}.html", entry.id), &page)?;
    }
    let rows = newest(archive)?;
    let histories = histories(&rows);
    let name = |at: usize, _: &History| format!("history-{}.html", at + 1);
    for (at, history) in histories.iter().enumerate() {
        let page = page::html(&report::pages::history(history));
        write(&name(at, history), &page)?;
    }
    let pages = entries.len() + histories.len() + 1;
    let index = Index {
        takes_captures: false,
        entries,
        paths: ways(&rows, &histories, name, report::words::minute),
        search: None,
        older: None,
    };
    write("index.html", &report::pages::index(&index))?;
    Ok(pages)
}
