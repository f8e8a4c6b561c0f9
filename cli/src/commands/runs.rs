//! `linerate runs`: the archive, to look into and to tidy up.

mod fetch;
mod pack;
mod prune;
mod serve;

use crate::archive_list::{self, Listed};
use crate::document;
use crate::files::{self, confined, read_whole, write_whole};
use crate::json_input;
use crate::lookup::{open_existing, refused};
use crate::prelude::*;
use archive::Imported;
use clap::{Subcommand, ValueEnum};
use engine::clock::{day, unix_time};
use engine::{histories, signature};
use model::{Sample, summarise};
use report::sample_table::SamplesOf;
use report::words::{escape, utc};
use serde::{Deserialize, Serialize};

/// The archive: list, show, export, import, delete, verify, browse
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs list --host db2 --since 7d
  linerate runs list --from web1               of an archive of several hosts
  linerate runs show last
  linerate runs export 3f -o run.json
  linerate runs export 3f --format csv
  linerate runs import run.json                ours, or of iperf3 -J
  linerate runs fetch db1                      what it measured for this host
  linerate runs delete 3f
  linerate runs pack /data                     samples as Parquet files
  linerate runs prune --keep-days 90 --dry-run
  linerate runs verify                         are all records intact?
  linerate runs serve                          in a browser

ID is a name in the list, its first digits where they are unique, or 'last'.")]
pub struct Runs {
    #[command(subcommand)]
    command: RunsAction,
}

#[derive(Subcommand)]
enum RunsAction {
    List(RunsList),
    Show(RunsShow),
    Export(Export),
    Import(Import),
    Fetch(fetch::RunsFetch),
    Delete(Delete),
    Pack(pack::Pack),
    Prune(prune::Prune),
    Verify(Verify),
    Serve(serve::RunsServe),
}

/// List the runs that are kept, the newest first
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs list -n 5
  linerate runs list --host db2 --since 7d
  linerate runs list --from web1               of an archive of several hosts
  linerate runs list --experiment 41
  linerate runs list --json | jq -r '.[].id'

UP and DOWN are the goodput, or the median latency of requests. The table has
the width of COLUMNS, or else of the terminal.")]
struct RunsList {
    /// Only runs with a host whose name contains this
    #[arg(long, value_name = "TEXT")]
    host: Option<String>,
    /// Only runs that a host whose name contains this measured
    #[arg(long, value_name = "TEXT")]
    from: Option<String>,
    /// Only runs started since: an age like 12h, 7d or '2 weeks ago', or a day: yesterday, 2026-03-01 (UTC)
    #[arg(long, value_name = "TIME", value_parser = |text: &str| since(text, unix_time()))]
    since: Option<Nanos>,
    /// Only runs of this workload
    #[arg(long, value_name = "KIND", value_parser = model::WorkloadKind::ALL.map(|kind| kind.name))]
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

/// Print the summary of a run, the verdict of an experiment, the story of a tuning, a day of a watch
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs show last
  linerate runs show 3f")]
struct RunsShow {
    /// Name of the run, its first digits, or 'last'
    id: String,
    /// Replace addresses and the names of hosts, users and files
    #[arg(long)]
    redact: bool,
}

/// Write what is kept out whole, for linerate or for other tools
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs export last -o run.json
  linerate runs export 3f --format csv -o run.csv
  linerate runs export 3f --format flent -o run.flent.gz
  linerate runs export last --format prometheus -o linerate.prom
  linerate runs export last --redact -o run.json         to pass on

A file appears whole or not at all; one of the same name is replaced.")]
struct Export {
    /// Name of the run, its first digits, or 'last'
    id: String,
    /// Form of the output
    #[arg(short = 'f', long, value_enum, default_value_t = ExportFormat::Json)]
    format: ExportFormat,
    /// File to write [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace addresses and the names of hosts, users and files
    #[arg(long)]
    redact: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// All of it, to be imported again
    Json,
    /// The samples of a run, the runs of an experiment
    Csv,
    /// As iperf3 -J prints a test
    Iperf3,
    /// The figures with the moments at which they were measured, for Prometheus
    Prometheus,
    /// A data file (.flent.gz) for the plots of flent
    Flent,
}

/// Keep runs and experiments from files: linerate's JSON, or what iperf3 -J or --json-stream printed
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs import run.json other.json
  iperf3 -c db2 -J | linerate runs import -

A file imported twice is kept once. Traces of a run do not come with it.")]
struct Import {
    /// Files to read; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Delete what is kept for good, and experiments with all their runs
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs delete 3f 41
  linerate runs delete last -y

Nothing is deleted unless every ID is found.")]
struct Delete {
    /// Names of runs, their first digits, or 'last'
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Compare what is kept with its checksums: a line for each that is damaged
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs verify
  linerate runs verify 3f last

Ends with status 1 if anything is damaged. Without ID the file's structure is
checked as well. Traces are read whole.")]
struct Verify {
    /// Names of runs, their first digits, or 'last' [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
}

impl Runs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        match &self.command {
            RunsAction::List(list) => list.run(global),
            RunsAction::Show(show) => show.run(global),
            RunsAction::Export(export) => export.run(global),
            RunsAction::Import(import) => import.run(global),
            RunsAction::Fetch(fetch) => fetch.run(global),
            RunsAction::Delete(delete) => delete.run(global),
            RunsAction::Pack(pack) => pack.run(global),
            RunsAction::Prune(prune) => prune.run(global),
            RunsAction::Verify(verify) => verify.run(global),
            RunsAction::Serve(serve) => serve.run(global),
        }
    }
}

impl RunsList {
    fn run(&self, global: &Global) -> Result<Exit> {
        let path = global.archive_path().map_err(refused)?;
        let rows = match Archive::open_existing(&path) {
            // Before the first run there is no archive, and nothing is wrong.
            Err(archive::Error::Missing(_)) if global.archive.is_none() => Vec::new(),
            opened => opened.and_then(|a| self.rows(&a)).map_err(refused)?,
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
            table(&rows)
        };
        out::result(&text)
    }

    fn rows(&self, archive: &Archive) -> Result<Vec<Listed>, archive::Error> {
        let of = |id: &String| archive.find_experiment(id);
        let filter = RunFilter {
            host: self.host.clone(),
            local: self.from.clone(),
            since: self.since,
            workload: self.workload.clone(),
            experiment: self.experiment.as_ref().map(of).transpose()?,
            limit: Some(self.number),
            ..RunFilter::default()
        };
        let rows = archive_list::list(archive, &filter)?.into_iter();
        Ok(rows.map(|listed| listed.named_in(archive)).collect())
    }

    fn filters(&self) -> bool {
        self.host.is_some()
            || self.from.is_some()
            || self.since.is_some()
            || self.workload.is_some()
            || self.experiment.is_some()
    }
}

/// As a terminal has place for it.
fn table(rows: &[Listed]) -> String {
    let shown = |listed: &Listed| archive::ArchiveRow {
        id: listed.shown.clone(),
        ..listed.row.clone()
    };
    let rows: Vec<_> = rows.iter().map(shown).collect();
    archive_list::table(&rows, usize::from(stdout_width()))
}

impl RunsShow {
    fn run(&self, global: &Global) -> Result<Exit> {
        let archive = open_existing(global)?;
        let named = archive.named(&self.id).map_err(refused)?;
        let shown = document::load(&archive, &named)?;
        let traces = archive.traces();
        out::result(&confined(&traces.of(named.id()), || {
            let redaction = self.redact.then(|| document::redaction(&shown));
            let text = document::text(shown, Some(&traces));
            Ok(match redaction {
                Some(mut redaction) => redaction.text(&text),
                None => text,
            })
        })?)
    }
}

impl Export {
    fn run(&self, global: &Global) -> Result<Exit> {
        let archive = open_existing(global)?;
        let named = archive.named(&self.id).map_err(refused)?;
        if let NamedDocument::Run(id) | NamedDocument::Watch(id) = &named {
            for file in archive.traces().of(id) {
                out::note(&format!(
                    "linerate: a trace of it is a file of its own: {}",
                    file.display()
                ));
            }
        }
        let mut document = document::load(&archive, &named)?;
        if self.redact {
            document = document::redacted(document)?;
        }
        if let (Document::Run(run), ExportFormat::Json | ExportFormat::Csv) =
            (&document, self.format)
        {
            let parts = |out: &mut dyn Write| whole(&archive, named.id(), run, self.format, out);
            match &self.output {
                Some(file) if file.as_os_str() != "-" => files::write_parts(file, parts)?,
                _ => out::write_parts(parts)?,
            }
            return Ok(Exit::Done);
        }
        let bytes = self.format.of(document)?;
        match &self.output {
            Some(file) if file.as_os_str() != "-" => write_whole(file, &bytes)?,
            _ if self.format == ExportFormat::Flent && std::io::stdout().is_terminal() => {
                refuse!(
                    "a file of flent is compressed, and nothing for a terminal: name one with -o FILE.flent.gz"
                );
            }
            _ => out::write(&bytes)?,
        }
        Ok(Exit::Done)
    }
}

/// A run with all of its samples, in bounded memory.
fn whole(
    archive: &Archive,
    id: &str,
    run: &Run,
    format: ExportFormat,
    out: &mut dyn Write,
) -> Result<()> {
    let mut run = run.clone();
    let summary = summarise(&run);
    let mut ends = Vec::new();
    for (index, leg) in run.legs.iter_mut().enumerate() {
        for (side, end) in [
            (Side::Local, &mut leg.local),
            (Side::Remote, &mut leg.remote),
        ] {
            end.samples = Vec::new();
            let kept = archive.count_samples(id, index, side).map_err(refused)?;
            end.thinned_from = end.thinned_from.filter(|taken| *taken != kept);
            ends.push((index, side));
        }
    }
    let is_csv = format == ExportFormat::Csv;
    let mut parts = match is_csv {
        true => vec![report::csv::header()],
        false => report::json::around_samples(&run, &summary),
    }
    .into_iter();
    for (index, side) in ends {
        out.write_all(parts.next().unwrap_or_default().as_bytes())?;
        let mesh = archive.mesh_leg(id, index).map_err(refused)?;
        let of = SamplesOf {
            run: &run,
            index,
            side,
            mesh: mesh.as_ref(),
        };
        let mut written = Ok(());
        let mut is_first = true;
        let count = archive.each_sample(id, index, side, &mut |sample| {
            let text = match is_csv {
                true => report::csv::rows(of, sample),
                false => report::json::sample(sample, is_first),
            };
            is_first = false;
            if written.is_ok() {
                written = out.write_all(text.as_bytes());
            }
        });
        written?;
        if count.map_err(refused)? > 0 && !is_csv {
            out.write_all(report::json::SAMPLES_END.as_bytes())?;
        }
    }
    Ok(parts.try_for_each(|part| out.write_all(part.as_bytes()))?)
}

impl ExportFormat {
    fn of(self, document: Document) -> Result<Vec<u8>> {
        let (what, forms) = match (self, &document) {
            (ExportFormat::Csv, Document::Experiment(one)) => {
                return Ok(report::prove::csv(one).into());
            }
            (ExportFormat::Iperf3, Document::Run(run)) => {
                return Ok(report::iperf3::to_json(run, &summarise(run)).into());
            }
            (ExportFormat::Prometheus, Document::Run(run)) => {
                return Ok(report::prometheus::text([(&**run, &summarise(run))], &[]).into());
            }
            (ExportFormat::Flent, Document::Run(run)) => {
                return compressed(&report::flent::json(run).map_err(Refusal::usage)?);
            }
            (ExportFormat::Json, _) => return Ok(document::json(document).into()),
            (_, Document::Experiment(_)) => ("an experiment", "json or csv"),
            (_, Document::Watch(_)) => ("what a watch kept", "json"),
            _ => ("a tuning or what was found of an MTU", "json"),
        };
        let name = self.to_possible_value();
        let name = name.as_ref().map_or("it", |value| value.get_name());
        refuse!("{what} has no form of {name}: export it as {forms}")
    }
}

/// As gzip, the same bytes whenever it is made.
fn compressed(text: &str) -> Result<Vec<u8>> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(text.as_bytes())
        .and_then(|()| out.finish())
        .context("cannot compress the file")
}

impl Import {
    fn run(&self, global: &Global) -> Result<Exit> {
        // All files are read before the first is stored: an invalid one leaves the archive unchanged.
        let reads = self.files.iter().map(|f| confined(&[f], || read(f)));
        let all: Vec<Importable> = reads.collect::<Result<_>>()?;
        let mut archive =
            Archive::open(&global.archive_path().map_err(refused)?).map_err(refused)?;
        for document in &all {
            let (kept, id, started, host) = match document {
                Importable::Run(run) => (archive.import(run), &run.id, run.started, &run.host),
                Importable::Experiment(one) => (
                    archive.import_experiment(one),
                    &one.id,
                    one.started,
                    &one.plan.host,
                ),
            };
            let what = match kept.map_err(refused)? {
                Imported::New => "imported",
                Imported::Known => "already kept:",
            };
            let (started, host) = (utc(started), escape(host));
            let id = archive.shown(id);
            out::print(&format!("{what} {id}  {started}  {host}\n"))?;
        }
        histories::refresh(&mut archive, |_| true).map_err(refused)?;
        Ok(Exit::Done)
    }
}

impl Delete {
    fn run(&self, global: &Global) -> Result<Exit> {
        let mut archive = open_existing(global)?;
        let mut ids: Vec<NamedDocument> = Vec::new();
        for name in &self.ids {
            let id = archive.named(name).map_err(refused)?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        if !self.yes && std::io::stdin().is_terminal() && !agreed(&archive, &ids)? {
            return out::result("nothing was deleted\n");
        }
        for id in &ids {
            let shown = archive.shown(id.id());
            archive.delete(id).map_err(refused)?;
            let what = match id {
                NamedDocument::Run(_) | NamedDocument::Mtu(_) | NamedDocument::Watch(_) => "",
                NamedDocument::Experiment(_) => " and its runs",
                NamedDocument::Tuning(_) => "; its runs and experiments stay",
            };
            out::print(&format!("deleted {shown}{what}\n"))?;
        }
        histories::refresh(&mut archive, |_| true).map_err(refused)?;
        Ok(Exit::Done)
    }
}

impl Verify {
    fn run(&self, global: &Global) -> Result<Exit> {
        let archive = open_existing(global)?;
        let named = |name: &String| archive.named(name).map_err(refused);
        let named = self.ids.iter().map(named).collect::<Result<Vec<_>>>()?;
        let mut signed = 0;
        let mut forged = Vec::new();
        let damaged = archive.verify(&named, &mut |run| {
            let both =
                |leg: &&model::Leg| leg.local.signed.is_some() && leg.remote.signed.is_some();
            signed += run.legs.iter().filter(both).count();
            let samples = |leg, side, each: &mut dyn FnMut(&Sample)| {
                archive.each_sample(&run.id, leg, side, each)
            };
            match signature::verify(run, samples) {
                Ok(wrong) => forged.extend(wrong),
                Err(damaged) => forged.push(damaged.to_string()),
            }
        });
        let damaged = damaged.iter().map(ToString::to_string);
        let found: Vec<String> = damaged.chain(forged).collect();
        if found.is_empty() {
            let signed = match signed {
                0 => String::new(),
                1 => "; 1 leg is signed by both hosts".to_owned(),
                legs => format!("; {legs} legs are signed by both hosts"),
            };
            return out::result(&format!("all records are intact{signed}\n"));
        }
        for one in &found {
            out::print(&format!("{one}\n"))?;
        }
        Ok(Exit::Failed)
    }
}

fn agreed(archive: &Archive, ids: &[NamedDocument]) -> Result<bool> {
    let mut chosen = Vec::new();
    for id in ids {
        match Listed::of(archive, id) {
            Ok(listed) => chosen.extend(listed),
            Err(damaged) => out::print(&format!("{damaged}\n"))?,
        }
    }
    out::print(&table(&chosen))?;
    confirmed()
}

/// Whether the user agrees to delete what was printed.
fn confirmed() -> Result<bool> {
    out::print("delete for good? [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .context("cannot read the answer from the terminal")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What can be kept.
#[derive(Serialize, Deserialize)]
enum Importable {
    Run(Box<Run>),
    Experiment(Box<Experiment>),
}

/// A run or an experiment from a file, by the shape of its JSON.
fn read(file: &Path) -> Result<Importable> {
    let name = files::name(file);
    let read = read_whole(file).and_then(|text| {
        let (what, of) = match json_input::from_json(&text)? {
            Document::Tuning(story, _) => ("a tuning", story.host),
            Document::Mtu(found) => ("what was found of an MTU", found.host().to_owned()),
            Document::Watch(record) => ("what a watch kept", record.host().to_owned()),
            Document::Published(found) => ("a comparison", found.name),
            Document::Run(run) => return Ok(Importable::Run(run)),
            Document::Experiment(one) => return Ok(Importable::Experiment(one)),
        };
        let of = escape(&of);
        Err(format!(
            "it is {what} of {of}; runs and experiments can be imported"
        ))
    });
    read.map_err(|why| Refusal::usage(format!("cannot import {name}: {why}")).into())
}

/// The moment of a day, or of an age before `now`.
fn since(text: &str, now: Nanos) -> Result<Nanos, String> {
    const DAY: Nanos = Nanos::from_secs(86_400);
    let text = text.trim().to_lowercase();
    let age = text.strip_suffix("ago").unwrap_or(&text).trim();
    let (count, unit) = age.split_at(age.find(|c: char| !c.is_ascii_digit()).unwrap_or(age.len()));
    let today = Nanos(now.0 - now.0 % DAY.0);
    let seconds = match unit.trim() {
        "w" | "week" | "weeks" => Some(7 * 86_400),
        "d" | "day" | "days" => Some(86_400),
        "hour" | "hours" => Some(3600),
        "min" | "minute" | "minutes" => Some(60),
        _ => None,
    };
    let age = match seconds {
        Some(seconds) => {
            let count = count.parse::<u64>().ok();
            count
                .and_then(|n| n.checked_mul(seconds))
                .map(Nanos::from_secs)
        }
        // A bare number would leave open what it counts.
        None => age.parse().ok().filter(|_| !unit.is_empty()),
    };
    let day = match &*text {
        "today" => Some(today),
        "yesterday" => Some(today.since(DAY)),
        text => day(text),
    };
    age.map(|age| now.since(age)).or(day).ok_or_else(|| {
        "an age is like 12h, 7d or '2 weeks ago'; a day like 2026-03-01, today or yesterday (UTC)".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_days() {
        let now = 1_800_000_000;
        let since = |text: &str| since(text, Nanos::from_secs(now));
        let unix = |s| Ok(Nanos::from_secs(s));
        for (age, seconds) in [
            ("12h", 12 * 3600),
            ("7d", 7 * 86_400),
            ("2w", 14 * 86_400),
            ("90m", 5400),
            ("12h ago", 12 * 3600),
            ("2 days ago", 2 * 86_400),
            ("1 Week", 7 * 86_400),
            ("today", now % 86_400),
            ("yesterday", 86_400 + now % 86_400),
            ("99999d", now),
        ] {
            assert_eq!(since(age), unix(now - seconds), "{age}");
        }
        assert_eq!(since("1970-01-01"), unix(0));
        assert_eq!(since("2000-03-01"), unix(951_868_800));
        assert_eq!(since("2024-02-29"), unix(1_709_164_800));
        assert_eq!(since("2026-11-20"), unix(1_795_132_800));
        for bad in [
            "",
            "7",
            "d",
            "-1d",
            "2025-02-29",
            "2026-13-01",
            "2026-1",
            "tomorrow",
            "ago",
            "days ago",
            "2 moons ago",
            "99999999999999999d",
            "1e3d",
            "2026-11-20T10:00",
            "\u{e9}d",
        ] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }
}
