//! `linerate report`: the page.

mod document;

use super::{Global, runs};
use crate::exit::Exit;
use crate::files::write_whole;
use crate::out;
use crate::traces;
use anyhow::Result;
use archive::{Archive, Named};
use clap::Args;
use model::summarise;
use report::page::Page;
use report::pages;
use std::path::{Path, PathBuf};

/// Write a page about a run, an experiment or a document: the answers in words, pictures, everything behind them
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate report last                      the newest run: linerate-ID.html
  linerate report 3f -o page.html           a run by the first digits of its name
  linerate report last -o -                 to standard output
  linerate report 41                        an experiment of 'linerate prove'
  linerate report table.csv                 numbers that somebody published, as 'prove --from' takes them
  linerate mtu db2 --json | linerate report -
  linerate report story.json                what measure, prove, tune or mtu printed with --json

The page is one file that opens from the disk: it asks no network for anything, and forbids itself to. It begins
with the answer in words; pictures are whole without scripts and can be zoomed with them, and give their figures
as CSV. It can be printed. FILE appears whole or not at all.")]
pub struct Report {
    /// Name of a run or an experiment, its first digits, 'last', or a file; - is standard input
    #[arg(value_name = "ID|FILE")]
    subject: String,
    /// File to write, - is standard output [default: linerate-ID.html here]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A page, and what its file is called.
struct Told {
    name: String,
    page: Page,
}

impl Report {
    /// Runs the command.
    ///
    /// # Errors
    /// If there is no such run, or the page cannot be written.
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let told = told(&self.subject, global)?;
        let text = report::page::html(&told.page);
        let file = match &self.output {
            Some(file) if file.as_os_str() == "-" => {
                out::print(&text)?;
                return Ok(Exit::Done);
            }
            Some(file) => file.clone(),
            None => PathBuf::from(format!("linerate-{}.html", plain(&told.name))),
        };
        write_whole(&file, &text)?;
        out::print(&format!("the page is in {}\n", file.display()))?;
        Ok(Exit::Done)
    }
}

/// The page of what is named: a file if there is one, else what the archive has.
fn told(subject: &str, global: &Global) -> Result<Told> {
    let path = Path::new(subject);
    if path.is_file() || subject == "-" {
        return of_file(path);
    }
    let archive = runs::open_existing(global)?;
    let named = archive.named(subject).map_err(runs::said)?;
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
            let run = archive.get(id).map_err(runs::said)?;
            let why = traces::explain(&run, &archive.traces());
            Ok(pages::run(&run, &summarise(&run), &why))
        }
        Named::Experiment(id) => {
            let experiment = archive.experiment(id).map_err(runs::said)?;
            Ok(document::of_experiment(&experiment))
        }
        Named::Tuning(id) => {
            let story = archive.tuning(id).map_err(runs::said)?;
            Ok(pages::tuning(&story, &runs::judged(archive, &story)))
        }
        Named::Mtu(id) => Ok(pages::mtu(&archive.mtu(id).map_err(runs::said)?.found)),
    }
}

/// The page of a file: what it is tells how it begins.
fn of_file(path: &Path) -> Result<Told> {
    document::told(path)
}

/// What of a name can stand in the name of a file: it may come from a document of a stranger.
fn plain(name: &str) -> String {
    const LONGEST: usize = 60;
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || ".-_".contains(c) {
            c
        } else {
            '-'
        }
    };
    name.chars().take(LONGEST).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_page_stays_where_it_was_asked_for() {
        assert_eq!(plain("3f2a0c11"), "3f2a0c11");
        assert_eq!(plain("mtu-http://h/../x"), "mtu-http---h-..-x");
        assert_eq!(plain("a\u{202e}\0b"), "a--b");
    }
}
