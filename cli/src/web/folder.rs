//! The archive as a folder of files, to keep or to put behind any web server.

use super::site::{entries, way};
use crate::files::write_whole;
use crate::pages::html_of;
use crate::prelude::*;
use engine::histories;
use report::page;
use report::pages::Index;

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
    let mut paths = Vec::new();
    for path in archive.paths()? {
        for figures in histories::of(archive, &path)? {
            let name = format!("history-{}.html", paths.len() + 1);
            if let Some(history) = histories::whole(archive, &path, figures.direction)? {
                write(&name, &page::html(&report::pages::history(&history)))?;
            }
            let when = report::words::minute(figures.last.started);
            paths.push(way(&path, figures, name, when));
        }
    }
    let pages = entries.len() + paths.len() + 1;
    let index = Index {
        takes_captures: false,
        entries,
        paths,
        search: None,
        meshes: Vec::new(),
        older: None,
    };
    write("index.html", &report::pages::index(&index))?;
    Ok(pages)
}
