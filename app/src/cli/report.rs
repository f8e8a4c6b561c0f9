//! `linerate report`: the page.

use super::{Global, runs};
use crate::exit::{Exit, Refusal};
use crate::files::write_whole;
use crate::out;
use crate::traces;
use anyhow::Result;
use archive::{Archive, Named};
use clap::Args;
use model::summarise;
use report::page::Page;
use std::path::{Path, PathBuf};

/// Write a page about a run: its answers in words, its pictures, everything behind them
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate report last                      the newest run: linerate-ID.html
  linerate report 3f -o page.html           a run by the first digits of its name
  linerate report last -o -                 to standard output

The page is one file that opens from the disk: it asks no network for anything, and forbids itself to. It begins
with the answer in words; pictures are whole without scripts and can be zoomed with them, and give their figures
as CSV. It can be printed. FILE appears whole or not at all.")]
pub struct Report {
    /// Name of a run, its first digits, or 'last'
    #[arg(value_name = "RUN")]
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
            None => PathBuf::from(format!("linerate-{}.html", told.name)),
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
            Ok(report::pages::run(&run, &summarise(&run), &why))
        }
        Named::Experiment(id) => Err(no_page(&format!("the experiment {id}"))),
        Named::Tuning(id) => Err(no_page(&format!("the tuning {id}"))),
        Named::Mtu(id) => Err(no_page(&format!("the MTU {id}"))),
    }
}

/// The page of a file: what it is tells how it begins.
fn of_file(path: &Path) -> Result<Told> {
    Err(no_page(&path.display().to_string()))
}

fn no_page(what: &str) -> anyhow::Error {
    Refusal::usage(format!(
        "there is no page of {what}: name a run of 'linerate runs list'"
    ))
    .into()
}
