//! `linerate runs`: the archive, to look into and to tidy up.

use super::Global;
use super::live::stdout_style;
use crate::clock::unix_time;
use crate::documents::{self, Document};
use crate::exit::{Exit, Refusal};
use crate::files::write_whole;
use crate::out;
use crate::traces;
use anyhow::{Context, Result};
use archive::{Archive, Filter, Imported, Named, Row};
use clap::{Args, Subcommand, ValueEnum};
use model::{Ended, Experiment, Nanos, Outcome, Run, Workload, summarise};
use report::words::{escape, table, utc};
use serde_json::json;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

/// The archive of runs and experiments: list, show, export, import, delete
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs list                           the newest runs
  linerate runs list --host db2 --since 7d     those with db2 in the last week
  linerate runs show last                      the summary of the newest run
  linerate runs show 3f                        by the first digits of its name
  linerate runs export 3f -o run.json          all of it, to keep or to send
  linerate runs export 3f --format csv         its samples, for a spreadsheet
  linerate runs import run.json                one of ours, or what iperf3 -J printed
  linerate runs delete 3f

Every run of 'linerate measure' is kept, and every experiment of 'linerate prove' with its runs. ID is
the name of a run or an experiment, its first digits as long as no other begins with them, or 'last'.")]
pub struct Runs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(List),
    Show(Show),
    Export(Export),
    Import(Import),
    Delete(Delete),
}

/// List the runs that are kept, the newest first
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs list -n 5
  linerate runs list --host db2 --since 7d
  linerate runs list --experiment 41           the runs of an experiment, which is one line else
  linerate runs list --since 2026-03-01 --json | jq -r '.[].id'

UP and DOWN tell the goodput, or the median latency where requests were measured.")]
struct List {
    /// Only runs with a host whose name contains this
    #[arg(long, value_name = "TEXT")]
    host: Option<String>,
    /// Only runs started since: an age like 12h, 7d, 2w, or a day like 2026-03-01 (UTC)
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Since>,
    /// Only runs of this workload
    #[arg(long, value_name = "KIND", value_parser = ["bulk", "request", "udp"])]
    workload: Option<String>,
    /// At most this many
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    number: u32,
    /// The runs of this experiment, instead of it in one line
    #[arg(long, value_name = "ID")]
    experiment: Option<String>,
    /// An array of JSON objects instead of a table
    #[arg(short = 'J', long)]
    json: bool,
}

/// Print the summary of a run, or the verdict of an experiment
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs show last
  linerate runs show 3f")]
struct Show {
    /// Name of the run, its first digits, or 'last'
    id: String,
}

/// Write a run or an experiment out whole
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs export last -o run.json        can be imported again, elsewhere too
  linerate runs export 3f --format csv -o run.csv
  linerate runs export last | jq .summary

A file appears whole or not at all; one of the same name is replaced.")]
struct Export {
    /// Name of the run, its first digits, or 'last'
    id: String,
    /// json: the run with its summary; csv: its samples
    #[arg(short = 'f', long, value_enum, default_value_t = Format::Json)]
    format: Format,
    /// File to write [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Csv,
}

/// Keep runs and experiments from files: linerate's JSON, or what iperf3 -J or --json-stream printed
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs import run.json other.json
  linerate measure db2 --json | ssh desk linerate runs import -
  iperf3 -c db2 -J | linerate runs import -

The same file imported twice is kept once. The traces of a run ('measure --trace') do not come with it: they
are files that 'linerate explain' reads as they are.")]
struct Import {
    /// Files to read; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Delete runs for good, and experiments with all their runs
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs delete 3f 41
  linerate runs delete last -y

Asks first if standard input is a terminal. Nothing is deleted unless every ID is found.")]
struct Delete {
    /// Names of runs, their first digits, or 'last'
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// From when on: a moment, or an age.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Since {
    Unix(Nanos),
    Ago(Nanos),
}

/// Longest file that is imported: an hour of samples each 10 ms over several streams is shorter.
const LONGEST_IMPORT: u64 = 2 << 30;

impl Runs {
    /// Runs the command.
    pub fn run(&self, global: &Global) -> Result<Exit> {
        match &self.command {
            Command::List(list) => list.run(global),
            Command::Show(show) => show.run(global),
            Command::Export(export) => export.run(global),
            Command::Import(import) => import.run(global),
            Command::Delete(delete) => delete.run(global),
        }
    }
}

pub(super) fn open_existing(global: &Global) -> Result<Archive> {
    Archive::open_existing(&global.archive_path().map_err(said)?).map_err(said)
}

/// What the user got wrong ends with the code for that; what the machine refused, with the other.
pub(super) fn said(error: archive::Error) -> anyhow::Error {
    use archive::Error as E;
    match error {
        E::NoHome
        | E::Missing { .. }
        | E::NotAnArchive { .. }
        | E::NotFound { .. }
        | E::NoExperiment { .. }
        | E::NoTuning { .. }
        | E::NoMtu { .. }
        | E::Empty { .. }
        | E::Ambiguous { .. }
        | E::Taken { .. }
        | E::BadId { .. } => Refusal::usage(error.to_string()).into(),
        other => other.into(),
    }
}

impl List {
    fn run(&self, global: &Global) -> Result<Exit> {
        let path = global.archive_path().map_err(said)?;
        let rows = match Archive::open_existing(&path) {
            // Before the first run there is no archive, and nothing is wrong.
            Err(archive::Error::Missing { .. }) if global.archive.is_none() => Vec::new(),
            opened => opened.and_then(|a| self.rows(&a)).map_err(said)?,
        };
        let text = if self.json {
            report::json::pretty(&rows.iter().map(Listed::json).collect::<Vec<_>>())
        } else if rows.is_empty() && self.filters() {
            format!(
                "no run in {} is like that\n",
                escape(&path.to_string_lossy())
            )
        } else if rows.is_empty() {
            "no runs are kept yet: linerate measure HOST makes one\n".to_owned()
        } else {
            let rows: Vec<Row> = rows.into_iter().map(|listed| listed.row).collect();
            rows_table(&rows, usize::from(stdout_style().width))
        };
        out::print(&text)?;
        Ok(Exit::Done)
    }

    /// Runs and experiments, the newest first.
    fn rows(&self, archive: &Archive) -> Result<Vec<Listed>, archive::Error> {
        let of = |id: &String| archive.find_experiment(id);
        let filter = Filter {
            host: self.host.clone(),
            since: self.since.map(|since| since.from(unix_time())),
            workload: self.workload.clone(),
            experiment: self.experiment.as_ref().map(of).transpose()?,
            limit: Some(self.number),
        };
        let runs = archive.list(&filter)?.into_iter();
        let mut rows: Vec<Listed> = runs.map(|row| Listed { row, made: None }).collect();
        if filter.experiment.is_none() {
            rows.extend(archive.experiments(&filter)?.iter().map(Listed::experiment));
            rows.sort_by(|a, b| (b.row.started, &a.row.id).cmp(&(a.row.started, &b.row.id)));
            rows.truncate(self.number as usize);
        }
        Ok(rows)
    }

    fn filters(&self) -> bool {
        self.host.is_some()
            || self.since.is_some()
            || self.workload.is_some()
            || self.experiment.is_some()
    }
}

impl Show {
    fn run(&self, global: &Global) -> Result<Exit> {
        let archive = open_existing(global)?;
        let id = match archive.named(&self.id).map_err(said)? {
            Named::Run(id) => id,
            Named::Experiment(id) => {
                let experiment = archive.experiment(&id).map_err(said)?;
                let verdict = prove::judge(&experiment);
                let text = report::prove::verdict(&experiment, &verdict, stdout_style());
                out::print(&text)?;
                return Ok(Exit::Done);
            }
        };
        let run = archive.get(&id).map_err(said)?;
        let why = traces::explain(&run, &archive.traces());
        out::print(&report::summary(
            &run,
            &summarise(&run),
            &why,
            stdout_style(),
        ))?;
        Ok(Exit::Done)
    }
}

impl Export {
    fn run(&self, global: &Global) -> Result<Exit> {
        let archive = open_existing(global)?;
        let text = match archive.named(&self.id).map_err(said)? {
            Named::Run(id) => {
                let run = archive.get(&id).map_err(said)?;
                for file in archive.traces().of(&id) {
                    out::note(&format!(
                        "linerate: a trace of this run is a file of its own: {}",
                        file.display()
                    ));
                }
                match self.format {
                    Format::Json => report::json::run(&run, &summarise(&run)),
                    Format::Csv => report::csv::run(&run),
                }
            }
            Named::Experiment(id) => {
                let experiment = archive.experiment(&id).map_err(said)?;
                match self.format {
                    Format::Json => report::prove::json(&experiment, &prove::judge(&experiment)),
                    Format::Csv => report::prove::csv(&experiment),
                }
            }
        };
        match &self.output {
            Some(file) if file.as_os_str() != "-" => write_whole(file, &text)?,
            _ => out::print(&text)?,
        }
        Ok(Exit::Done)
    }
}

impl Import {
    fn run(&self, global: &Global) -> Result<Exit> {
        // All files are read before the first is kept: a bad one leaves everything as it was.
        let all: Vec<Imports> = self.files.iter().map(|f| read(f)).collect::<Result<_>>()?;
        let mut archive = Archive::open(&global.archive_path().map_err(said)?).map_err(said)?;
        for one in all {
            let (kept, id, started, host) = match &one {
                Imports::Run(run) => (archive.import(run), &run.id, run.started, &run.host),
                Imports::Experiment(experiment) => (
                    archive.import_experiment(experiment),
                    &experiment.id,
                    experiment.started,
                    &experiment.plan.host,
                ),
            };
            let what = match kept.map_err(said)? {
                Imported::New => "imported",
                Imported::Known => "already kept:",
            };
            out::print(&format!(
                "{what} {id}  {}  {}\n",
                utc(started),
                escape(host)
            ))?;
        }
        Ok(Exit::Done)
    }
}

impl Delete {
    fn run(&self, global: &Global) -> Result<Exit> {
        let mut archive = open_existing(global)?;
        let mut ids: Vec<Named> = Vec::new();
        for name in &self.ids {
            let id = archive.named(name).map_err(said)?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        if !self.yes && std::io::stdin().is_terminal() && !agreed(&archive, &ids)? {
            out::print("nothing was deleted\n")?;
            return Ok(Exit::Done);
        }
        for id in &ids {
            let text = match id {
                Named::Run(id) => {
                    archive.delete(id).map_err(said)?;
                    format!("deleted {id}\n")
                }
                Named::Experiment(id) => {
                    archive.delete_experiment(id).map_err(said)?;
                    format!("deleted {id} and its runs\n")
                }
            };
            out::print(&text)?;
        }
        Ok(Exit::Done)
    }
}

/// Shows the runs and asks.
fn agreed(archive: &Archive, ids: &[Named]) -> Result<bool> {
    let mut chosen = Vec::new();
    for id in ids {
        chosen.push(match id {
            Named::Run(id) => {
                let run = archive.get(id).map_err(said)?;
                let filter = Filter {
                    experiment: run.experiment,
                    ..Filter::default()
                };
                let rows = archive.list(&filter).map_err(said)?;
                rows.into_iter().find(|row| row.id == *id)
            }
            Named::Experiment(id) => {
                let experiment = archive.experiment(id).map_err(said)?;
                Some(Listed::experiment(&experiment).row)
            }
        });
    }
    let chosen: Vec<Row> = chosen.into_iter().flatten().collect();
    out::print(&rows_table(&chosen, usize::from(stdout_style().width)))?;
    out::print("delete for good? [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .context("cannot read the answer from the terminal")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What a file holds.
enum Imports {
    Run(Box<Run>),
    Experiment(Box<Experiment>),
}

/// A run or an experiment from a file, by the shape of its JSON.
fn read(file: &Path) -> Result<Imports> {
    let name = match file.as_os_str().to_str() {
        Some("-") => "standard input".to_owned(),
        _ => file.display().to_string(),
    };
    let bad = |why: String| Refusal::usage(format!("cannot import {name}: {why}"));
    let input: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(file).map_err(|e| bad(e.to_string()))?)
    };
    let mut bytes = Vec::new();
    input
        .take(LONGEST_IMPORT + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| bad(e.to_string()))?;
    if bytes.len() as u64 > LONGEST_IMPORT {
        return Err(bad("it is longer than 2 GiB".to_owned()).into());
    }
    let text = String::from_utf8(bytes).map_err(|_| bad("it is not text".to_owned()))?;
    import_from(&text).map_err(|why| bad(why).into())
}

fn import_from(text: &str) -> Result<Imports, String> {
    match documents::from_json(text)? {
        Document::Run(run) => Ok(Imports::Run(run)),
        Document::Experiment(experiment) => Ok(Imports::Experiment(experiment)),
        Document::Tuning(story) => Err(not_kept("a tuning", &story.host)),
        Document::Mtu(found) => Err(not_kept("what was found of an MTU", found.host())),
        Document::Published(found) => Err(not_kept("a comparison", &found.name)),
    }
}

fn not_kept(what: &str, of: &str) -> String {
    let of = escape(of);
    format!("it is {what} of {of}; runs and experiments can be imported")
}

/// A line of the list.
struct Listed {
    row: Row,
    /// Of an experiment: its runs so far, and the verdict.
    made: Option<(usize, Outcome)>,
}

impl Listed {
    fn experiment(experiment: &Experiment) -> Listed {
        let outcome = prove::judge(experiment).outcome;
        let plan = &experiment.plan;
        let title = match &plan.title {
            Some(title) => title.clone(),
            None => {
                let arms: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
                arms.join(" | ")
            }
        };
        let row = Row {
            id: experiment.id.clone(),
            started: experiment.started,
            host: plan.host.clone(),
            title: Some(format!("{}: {title}", report::prove::answer(outcome))),
            workload: match plan.run.workload {
                Workload::Bulk(_) => "bulk",
                Workload::Request(_) => "request",
                Workload::Udp(_) => "udp",
                Workload::Copy(_) => "copy",
                Workload::Blocks(_) => "blocks",
            }
            .to_owned(),
            ended: match experiment.ended {
                Ended::Unfinished => "unfinished",
                Ended::Complete => "complete",
                Ended::Interrupted => "interrupted",
                Ended::Failed { .. } => "failed",
            }
            .to_owned(),
            goodput_up: None,
            goodput_down: None,
            p50_up: None,
            p50_down: None,
        };
        Listed {
            row,
            made: Some((experiment.trials.len(), outcome)),
        }
    }

    fn json(&self) -> serde_json::Value {
        let row = &self.row;
        match &self.made {
            None => json!({
                "kind": "run",
                "id": row.id,
                "started_unix_ns": row.started,
                "host": row.host,
                "title": row.title,
                "workload": row.workload,
                "ended": row.ended,
                "goodput_up_bit_s": row.goodput_up,
                "goodput_down_bit_s": row.goodput_down,
                "p50_up_ns": row.p50_up,
                "p50_down_ns": row.p50_down,
            }),
            Some((runs, outcome)) => json!({
                "kind": "experiment",
                "id": row.id,
                "started_unix_ns": row.started,
                "host": row.host,
                "title": row.title,
                "workload": row.workload,
                "ended": row.ended,
                "runs": runs,
                "outcome": outcome,
            }),
        }
    }
}

/// The runs as a table of `width` columns: host and note share what the figures leave.
fn rows_table(rows: &[Row], width: usize) -> String {
    let mut cells = vec![["ID", "STARTED (UTC)", "HOST", "UP", "DOWN", "NOTE"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let figure = |p50: Option<Nanos>, goodput: Option<model::BitRate>| {
            let latency = p50.map(|p50| p50.to_string());
            let rate = || goodput.map(|rate| rate.to_string());
            latency.or_else(rate).unwrap_or_else(|| "-".to_owned())
        };
        [
            row.id.clone(),
            utc(row.started).chars().take(16).collect(),
            escape(&row.host),
            figure(row.p50_up, row.goodput_up),
            figure(row.p50_down, row.goodput_down),
            note(row, usize::MAX),
        ]
    }));
    const HOST: usize = 2;
    const NOTE: usize = 5;
    let widest = |column: usize| {
        let lengths = cells.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let gaps = 2 * NOTE;
    let figures: usize = [0, 1, 3, 4].map(widest).iter().sum();
    let room = width.saturating_sub(figures + gaps);
    // How runs ended is always told; then come the hosts, then the titles.
    let state = rows.iter().map(|row| note(row, 0).len()).max().unwrap_or(0);
    let least = widest(NOTE).min(state.max("NOTE".len()));
    let host = widest(HOST).min(room.saturating_sub(least)).max(8);
    let room = room.saturating_sub(host);
    for (row, cells) in rows.iter().zip(&mut cells[1..]) {
        cells[HOST] = cut(&cells[HOST], host);
        cells[NOTE] = note(row, room);
    }
    table(&cells.into_iter().map(Vec::from).collect::<Vec<_>>())
}

/// How a run ended unless as ordered, and as much of its title as `room` has place for.
fn note(row: &Row, room: usize) -> String {
    /// Less of a title tells nothing.
    const LEAST: usize = 6;
    let ended = match row.ended.as_str() {
        "complete" => "",
        ended => ended,
    };
    let title = escape(row.title.as_deref().unwrap_or_default());
    let gap = if ended.is_empty() { "" } else { ": " };
    let room = room.saturating_sub(ended.len() + gap.len());
    if title.is_empty() || room < LEAST.min(title.chars().count()) {
        return ended.to_owned();
    }
    format!("{ended}{gap}{}", cut(&title, room))
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(2)).collect();
    format!("{}..", kept.trim_end())
}

impl Since {
    fn from(self, now: Nanos) -> Nanos {
        match self {
            Since::Unix(moment) => moment,
            Since::Ago(age) => now.since(age),
        }
    }
}

fn parse_since(text: &str) -> Result<Since, String> {
    let text = text.trim();
    let days = |count: &str, days: u64| {
        let count: u64 = count.parse().ok()?;
        count.checked_mul(days)?.checked_mul(86_400)
    };
    let age = match text.char_indices().last() {
        Some((at, 'd')) => days(&text[..at], 1).map(Nanos::from_secs),
        Some((at, 'w')) => days(&text[..at], 7).map(Nanos::from_secs),
        // A bare number would leave open what it counts.
        Some((_, last)) if last.is_ascii_alphabetic() => text.parse().ok(),
        _ => None,
    };
    age.map(Since::Ago)
        .or_else(|| day(text).map(Since::Unix))
        .ok_or_else(|| {
            "an age is like 90m, 12h, 7d or 2w; a day is like 2026-03-01 (UTC)".to_owned()
        })
}

/// The beginning of a day in UTC, of a date as `YYYY-MM-DD` (ISO 8601).
fn day(text: &str) -> Option<Nanos> {
    let parts: Vec<u64> = text
        .split('-')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    let [year @ 1970..=2500, month @ 1..=12, day] = parts[..] else {
        return None;
    };
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let february = 28 + u64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month).ok()? - 1;
    if day == 0 || day > months[before] {
        return None;
    }
    let years: u64 = (1970..year).map(|y| 365 + u64::from(is_leap(y))).sum();
    let days = years + months[..before].iter().sum::<u64>() + day - 1;
    Some(Nanos::from_secs(days * 86_400))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::BitRate;

    #[test]
    fn ages_and_days() {
        let hours = |n: u64| Ok(Since::Ago(Nanos::from_secs(3600 * n)));
        assert_eq!(parse_since("12h"), hours(12));
        assert_eq!(parse_since("7d"), hours(7 * 24));
        assert_eq!(parse_since("2w"), hours(14 * 24));
        assert_eq!(parse_since("90m"), Ok(Since::Ago(Nanos::from_secs(5400))));
        let unix = |s| Ok(Since::Unix(Nanos::from_secs(s)));
        assert_eq!(parse_since("1970-01-01"), unix(0));
        assert_eq!(parse_since("2000-03-01"), unix(951_868_800));
        assert_eq!(parse_since("2024-02-29"), unix(1_709_164_800));
        assert_eq!(parse_since("2026-11-20"), unix(1_795_132_800));
        for bad in [
            "",
            "7",
            "d",
            "-1d",
            "2025-02-29",
            "2026-13-01",
            "2026-1",
            "tomorrow",
            "99999999999999999d",
            "1e3d",
            "2026-11-20T10:00",
            "\u{e9}d",
        ] {
            assert!(parse_since(bad).is_err(), "{bad}");
        }
        assert_eq!(Since::Ago(Nanos(9)).from(Nanos(5)), Nanos(0));
    }

    #[test]
    fn a_day_is_the_day_that_is_printed() {
        for text in ["1970-01-01", "1999-12-31", "2024-02-29", "2100-03-01"] {
            assert!(utc(day(text).unwrap()).starts_with(text));
        }
    }

    #[test]
    fn the_table_keeps_to_its_width_and_says_how_runs_ended() {
        let row = |host: &str, title: Option<&str>, ended: &str| Row {
            id: "00c0ffee".to_owned(),
            started: Nanos::from_secs(1_795_132_800),
            host: host.to_owned(),
            title: title.map(str::to_owned),
            workload: "bulk".to_owned(),
            ended: ended.to_owned(),
            goodput_up: Some(BitRate(1_234_000_000)),
            goodput_down: None,
            p50_up: None,
            p50_down: Some(Nanos(41_000)),
        };
        let rows = [
            row(
                &"host".repeat(30),
                Some(&"title ".repeat(30)),
                "interrupted",
            ),
            row("a\x1b[2Jb", None, "complete"),
        ];
        for width in [80, 100] {
            let text = rows_table(&rows, width);
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
            assert!(text.contains("interrupted"), "{text}");
            assert!(!text.contains('\x1b'));
        }
    }
}
