//! `linerate report`: the page.

use crate::files::write_whole;
use crate::lookup;
use crate::pages::formed;
use crate::prelude::*;
use crate::web;
use clap::ValueEnum;
use report::page::{self, Page, Picture};
use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Write a page about a run, an experiment, a trace or a document
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate report last                      the newest run: linerate-ID.html
  linerate report 41 -o page.html           an experiment of 'linerate prove'
  linerate report table.csv                 published numbers
  linerate mtu db2 --json | linerate report -
  linerate report --all pages               the archive: open pages/index.html
  linerate report last -f markdown          for a ticket or a wiki
  linerate report last --picture list
  linerate report last --picture goodput-1-up -f svg -o goodput.svg
  linerate report 1500.pcap --beside 9000.pcap

The page is one file that uses no network. PNG needs 'rsvg-convert' (Debian:
librsvg2-bin). Of a capture or a trace the two largest directions are drawn.")]
pub struct ReportArgs {
    /// Name of a run or an experiment, its first digits, 'last', or a file; - is standard input [default: last]
    #[arg(value_name = "ID|FILE")]
    subject: Option<String>,
    /// A capture of the same on another path: one request of each side by side
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
    /// The whole archive as files in this directory: a list, a page for each line of it, the history of each path
    #[arg(long, value_name = "DIR")]
    #[arg(conflicts_with_all = ["subject", "beside", "format", "picture", "output", "redact"])]
    all: Option<PathBuf>,
    /// Form [default: html, and svg of a picture]
    #[arg(short = 'f', long, value_enum)]
    format: Option<ReportFormat>,
    /// One picture alone, by its name; 'list' names them
    #[arg(long, value_name = "NAME")]
    picture: Option<String>,
    /// File to write, - is standard output [default: linerate-ID.html here for a page, else standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace addresses and the names of hosts, users and files
    #[arg(long)]
    redact: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    Html,
    Text,
    Markdown,
    Json,
    Svg,
    Png,
    Csv,
}

impl ReportArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        if let Some(directory) = &self.all {
            return all(directory, global);
        }
        let subject = self.subject.as_deref().unwrap_or("last");
        let beside = self.beside.as_deref();
        let (name, text) = formed(subject, beside, self.redact, global, |page| {
            match &self.picture {
                None => self.whole(page),
                Some(list) if list == "list" => Ok(names(page)),
                Some(picture) => self.picture(page, picture),
            }
        })?;
        let bytes = match (self.format, &self.picture) {
            (Some(ReportFormat::Png), Some(picture)) if picture != "list" => png(&text)?,
            _ => text.into_bytes(),
        };
        let is_page = self.picture.is_none() && self.format.is_none_or(|f| f == ReportFormat::Html);
        let file = match &self.output {
            Some(file) if file.as_os_str() != "-" => file.clone(),
            None if is_page => PathBuf::from(format!(
                "linerate-{}.html",
                plain(&report::words::shown(&name))
            )),
            _ => {
                out::write(&bytes)?;
                return Ok(Exit::Done);
            }
        };
        write_whole(&file, &bytes)?;
        let what = if self.picture.is_none() {
            "page"
        } else {
            "picture"
        };
        out::result(&format!("the {what} is in {}\n", file.display()))
    }

    fn whole(&self, page: &Page) -> Result<String> {
        Ok(match self.format.unwrap_or(ReportFormat::Html) {
            ReportFormat::Html => page::html(page),
            ReportFormat::Text => page::text(page, stdout_style()),
            ReportFormat::Markdown => page::markdown(page),
            ReportFormat::Json => page::json(page),
            ReportFormat::Svg | ReportFormat::Png | ReportFormat::Csv => {
                refuse!("svg, png and csv are forms of one picture: name it with --picture");
            }
        })
    }

    fn picture(&self, page: &Page, name: &str) -> Result<String> {
        let Some(picture) = pictures(page).find(|p| p.id == name) else {
            let has: Vec<&str> = pictures(page).map(|p| p.id.as_str()).collect();
            let has = match has.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", has.join(", ")),
            };
            refuse!("this page has no picture '{name}': {has}");
        };
        Ok(match self.format.unwrap_or(ReportFormat::Svg) {
            // A PNG is drawn from it.
            ReportFormat::Svg | ReportFormat::Png => page::svg(picture),
            ReportFormat::Csv => page::csv(picture),
            ReportFormat::Html
            | ReportFormat::Text
            | ReportFormat::Markdown
            | ReportFormat::Json => {
                refuse!("a picture alone can be svg, png or csv");
            }
        })
    }
}

fn pictures(page: &Page) -> impl Iterator<Item = &Picture> {
    page.sections.iter().flat_map(|section| &section.pictures)
}

fn names(page: &Page) -> String {
    let rows = pictures(page).map(|p| vec![p.id.clone(), report::words::escape(&p.title)]);
    report::words::table(&[], rows)
}

/// Pixels of a drawing, twice as many as it has units. Fonts and their shaping are half of a renderer, so that this is
/// left to one that is installed.
fn png(svg: &str) -> Result<Vec<u8>> {
    let doing = "cannot draw the picture with rsvg-convert";
    let started = Command::new("rsvg-convert")
        .args(["--zoom", "2", "--format", "png"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match started {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            refuse!(
                "PNG is made by 'rsvg-convert', which is not installed (Debian: librsvg2-bin); take --format svg, \
                or the PNG button of the page"
            );
        }
        started => started.context(doing)?,
    };
    // It reads to the end before it writes.
    let written = child
        .stdin
        .take()
        .map(|mut to| to.write_all(svg.as_bytes()));
    let drawn = child.wait_with_output().context(doing)?;
    written.transpose().context(doing)?;
    match drawn.status.success() {
        true => Ok(drawn.stdout),
        false => anyhow::bail!("{doing}: it ended with {}", drawn.status),
    }
}

fn all(directory: &Path, global: &Global) -> Result<Exit> {
    let pages = web::write_all(&lookup::open_existing(global)?, directory)?;
    let index = directory.join("index.html");
    out::result(&format!("{pages} pages: begin with {}\n", index.display()))
}

/// What of a name can stand in the name of a file: it may come from an untrusted document.
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
