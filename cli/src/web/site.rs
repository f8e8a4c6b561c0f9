//! What a request is answered with.

use crate::archive_list::{self, Listed};
use crate::lookup;
use crate::pages::{html_of, html_of_capture};
use crate::prelude::*;
use archive::{Archive, ArchiveRow, NamedDocument, RunFilter};
use engine::exit::{exit_of, sentence};
use engine::{chance, clock, traces};
use model::{Direction, Ended, Exchange, LegLimit, Metric, Nanos, WorkloadKind, summarise};
use prove::change::{LONGEST, change_points};
use report::page::{self, Page};
use report::pages::{Entry, FIELDS, History, Index, Past, PathHistory, Search, Shift, Side};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, TryLockError};
use wire::http::{self, HttpRequest, Status};

/// Lines of a list.
const LINES: u32 = 200;

/// Runs that paths are made of, the newest ones.
const RUNS: u32 = 20_000;

/// Fewer runs of one kind are no history.
const FEWEST: usize = 2;

/// How often noise alone is marked.
const LEVEL: f64 = 0.01;

pub struct Site {
    /// The file.
    pub archive: PathBuf,
    /// Requests may call this machine by any name: it was ordered to listen where others reach it.
    pub any_name: bool,
    /// A capture is read: one at a time.
    pub reads: Mutex<()>,
}

pub struct SiteAnswer {
    status: Status,
    kind: &'static str,
    body: String,
}

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

impl SiteAnswer {
    /// Nothing but how it went.
    pub fn of(status: Status) -> SiteAnswer {
        SiteAnswer::text(status, status.line())
    }

    fn ok(kind: &'static str, body: String) -> SiteAnswer {
        let status = Status::Ok;
        SiteAnswer { status, kind, body }
    }

    fn text(status: Status, line: &str) -> SiteAnswer {
        SiteAnswer {
            status,
            ..SiteAnswer::ok(TEXT, format!("{line}\n"))
        }
    }

    /// As it goes to the client.
    pub fn bytes(&self, head_only: bool) -> Vec<u8> {
        let policy = format!("{}; frame-ancestors 'none'", page::policy(true));
        let mut answer = http::answer(self.status, self.kind, self.body.len(), &policy);
        if !head_only {
            answer += &self.body;
        }
        answer.into_bytes()
    }
}

impl Site {
    /// Whatever is asked, there is an answer.
    pub fn answer(&self, request: &HttpRequest) -> SiteAnswer {
        if !self.any_name && !request.names_no_name() {
            return SiteAnswer::of(Status::Misdirected);
        }
        self.found(request).unwrap_or_else(|error| {
            let error = error.downcast().map_or_else(|other| other, lookup::refused);
            // What was asked for is not there, or has no page; else the machine failed.
            let status = match exit_of(&error) {
                Exit::Usage => Status::NotFound,
                _ => Status::Failed,
            };
            SiteAnswer::text(status, &sentence(&error))
        })
    }

    /// The page of a capture that a client puts, which `receive` writes to a file: only one on this host may.
    pub fn put(
        &self,
        request: &HttpRequest,
        receive: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> SiteAnswer {
        if self.any_name || !request.names_no_name() {
            return SiteAnswer::of(Status::Misdirected);
        }
        let _alone = match self.reads.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let line = "another capture is being read: try again";
                return SiteAnswer::text(Status::Busy, line);
            }
            alone => alone,
        };
        let page = Upload::new(request.value("name").unwrap_or_default())
            .and_then(|upload| {
                receive(&mut File::create_new(&upload.file)?)?;
                Ok(upload)
            })
            .context("cannot keep the capture for its reader")
            .and_then(|upload| {
                let page = html_of_capture(&upload.file)?;
                // Its place was for the reader alone.
                Ok(page.replace(&format!("{}/", upload.place.display()), ""))
            });
        match page {
            Ok(page) => SiteAnswer::ok(HTML, page),
            Err(error) => SiteAnswer::text(Status::BadRequest, &sentence(&error)),
        }
    }

    fn found(&self, request: &HttpRequest) -> Result<SiteAnswer> {
        let archive = Archive::open_to_read(&self.archive)?;
        let asked = |name| request.value(name).unwrap_or_default();
        let page = match request.path.as_str() {
            "/" => {
                return Ok(SiteAnswer::ok(
                    HTML,
                    index(&archive, request, !self.any_name)?,
                ));
            }
            "/metrics" => return Ok(SiteAnswer::ok(METRICS, metrics(&archive)?)),
            "/compare.html" => match compare(&archive, asked("a"), asked("b"))? {
                Some(page) => page,
                None => {
                    let line = "only runs can be compared: choose two in the list";
                    return Ok(SiteAnswer::text(Status::BadRequest, line));
                }
            },
            "/history.html" => {
                let wanted = [asked("host"), asked("workload"), asked("direction")];
                let all = histories(&newest(&archive)?);
                match all.iter().find(|history| key(history) == wanted) {
                    Some(history) => report::pages::history(history),
                    None => return Ok(SiteAnswer::of(Status::NotFound)),
                }
            }
            other => {
                let name = other.strip_prefix('/').unwrap_or_default();
                match name.strip_suffix(".html") {
                    Some(id) if archive::is_shown(id) => {
                        let page = html_of(&archive, &archive.named(id)?)?;
                        return Ok(SiteAnswer::ok(HTML, page));
                    }
                    _ => return Ok(SiteAnswer::of(Status::NotFound)),
                }
            }
        };
        Ok(SiteAnswer::ok(HTML, page::html(&page)))
    }
}

/// A capture on its way to its reader, in a directory that is gone with it.
struct Upload {
    place: PathBuf,
    file: PathBuf,
}

impl Upload {
    /// Only its owner may read it. Of its name, what is harmless on pages and in paths.
    fn new(name: &str) -> Result<Upload> {
        let name = Path::new(name).file_name().and_then(|name| name.to_str());
        let harmless = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name: String = name
            .unwrap_or_default()
            .chars()
            .filter(harmless)
            .take(100)
            .collect();
        let random = u64::from_le_bytes(chance::bytes()?);
        let place = std::env::temp_dir().join(format!("linerate-capture-{random:016x}"));
        DirBuilder::new().mode(0o700).create(&place)?;
        let file = place.join(if name.is_empty() { "capture" } else { &name });
        Ok(Upload { place, file })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

fn index(archive: &Archive, request: &HttpRequest, takes_captures: bool) -> Result<String> {
    let values = FIELDS.map(|name| request.value(name).unwrap_or_default().to_owned());
    let [text, host, workload, since, until] = &values;
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let mut filter = RunFilter {
        text: some(text),
        host: some(host),
        workload: some(workload),
        limit: Some(LINES + 1),
        ..RunFilter::default()
    };
    let mut said = String::new();
    for (text, bound, days) in [(since, &mut filter.since, 0), (until, &mut filter.until, 1)] {
        *bound = clock::day(text).map(|day| day + Nanos::from_secs(days * 86_400));
        if bound.is_none() && !text.is_empty() {
            said = format!("'{text}' is no day like 2026-03-01, and was left out. ");
        }
    }
    // Of an older page.
    let before = request.value("before").unwrap_or_default();
    let before = before.parse().ok().map(Nanos);
    filter.until = filter.until.into_iter().chain(before).min();
    let mut entries = entries(archive, &filter)?;
    let more = entries.len() > LINES as usize;
    entries.truncate(LINES as usize);
    let last = entries.last().filter(|_| more);
    let older = last.map(|last| {
        let fields = FIELDS.iter().zip(&values);
        let fields = fields.map(|(name, value)| format!("{name}={}&", http::encoded(value)));
        let fields: String = fields.collect();
        format!("/?{fields}before={}", last.started.0)
    });
    let address = |_, history: &History| {
        let [host, workload, direction] = key(history).map(http::encoded);
        format!("history.html?host={host}&workload={workload}&direction={direction}")
    };
    let rows = newest(archive)?;
    Ok(report::pages::index(&Index {
        entries,
        paths: ways(&rows, &histories(&rows), address, |at| {
            format!("{} ago", report::words::age(clock::unix_time().since(at)))
        }),
        search: Some(Search { values, said }),
        takes_captures,
        older,
    }))
}

pub fn entries(archive: &Archive, filter: &RunFilter) -> Result<Vec<Entry>, archive::Error> {
    let all = archive_list::list(archive, filter)?;
    Ok(all.iter().map(Listed::entry).collect())
}

/// Paths with a history, and its address.
pub fn ways(
    rows: &[ArchiveRow],
    histories: &[History],
    address: impl Fn(usize, &History) -> String,
    when: impl Fn(Nanos) -> String,
) -> Vec<PathHistory> {
    let ways = histories.iter().enumerate().map(|(at, history)| {
        let last = history.runs.last();
        let newest = rows
            .iter()
            .find(|row| row.host == history.host && alike(row) == history.workload);
        let failed = newest.map(|row| row.ended.clone());
        PathHistory {
            name: history.name(),
            runs: history.runs.len(),
            shifts: history.shifts.len(),
            href: address(at, history),
            last: last.map(|run| history.value(run)).unwrap_or_default(),
            when: last.map(|run| when(run.started)).unwrap_or_default(),
            failed: failed.filter(|ended| *ended != Ended::Complete.name()),
            values: history.runs.iter().map(|run| run.value).collect(),
        }
    });
    ways.collect()
}

/// What runs have in common that can be compared: `bulk, 10 s, 4 streams`.
fn alike(row: &ArchiveRow) -> String {
    let limit = match row.limit {
        Some(LegLimit::Time(time)) => format!(", {}", report::words::round_span(time)),
        Some(LegLimit::Bytes(bytes)) => format!(", {bytes}"),
        Some(LegLimit::Requests(n)) => format!(", {n} requests"),
        Some(LegLimit::Whole) | None => String::new(),
    };
    let streams = match row.streams {
        1 => String::new(),
        n => format!(", {n} streams"),
    };
    format!("{}{limit}{streams}", row.workload)
}

fn key(history: &History) -> [&str; 3] {
    [&history.host, &history.workload, history.direction.name()]
}

/// The history of each path, from its complete runs without those of experiments.
pub fn histories(rows: &[ArchiveRow]) -> Vec<History> {
    let mut paths: BTreeMap<(String, String, Direction), (Metric, Vec<Past>)> = BTreeMap::new();
    // The oldest first.
    let complete = rows
        .iter()
        .filter(|row| row.ended == Ended::Complete.name());
    for row in complete.rev() {
        for (direction, goodput, p50) in [
            (Direction::Up, row.goodput_up, row.p50_up),
            (Direction::Down, row.goodput_down, row.p50_down),
        ] {
            let (metric, value) = match of_latency(&row.workload) {
                true => (Metric::LatencyP50, p50.map(Nanos::as_secs_f64)),
                false => (Metric::Goodput, goodput.map(|rate| rate.0 as f64)),
            };
            if let Some(value) = value {
                let path = (row.host.clone(), alike(row), direction);
                let (id, started) = (row.id.clone(), row.started);
                let past = Past { id, started, value };
                paths
                    .entry(path)
                    .or_insert((metric, Vec::new()))
                    .1
                    .push(past);
            }
        }
    }
    let all = paths
        .into_iter()
        .filter(|(_, (_, runs))| runs.len() >= FEWEST);
    let all = all.map(|((host, workload, direction), (metric, mut runs))| {
        runs.drain(..runs.len().saturating_sub(LONGEST));
        let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
        let shifts = change_points(&values, LEVEL).into_iter();
        let shifts = shifts.map(|found| Shift {
            at: found.after,
            before: found.before_median,
            after: found.after_median,
        });
        History {
            metric,
            host,
            workload,
            direction,
            shifts: shifts.collect(),
            runs,
        }
    });
    all.collect()
}

/// The newest runs that are over, the newest first.
pub fn newest(archive: &Archive) -> Result<Vec<ArchiveRow>, archive::Error> {
    let mut rows = archive.list(&RunFilter {
        limit: Some(RUNS),
        ..RunFilter::default()
    })?;
    rows.retain(|row| row.ended != Ended::Unfinished.name());
    Ok(rows)
}

/// Whether runs of this kind have latencies.
fn of_latency(workload: &str) -> bool {
    let calls = |kind: &&WorkloadKind| kind.name == workload && kind.exchange == Exchange::Calls;
    WorkloadKind::ALL.iter().any(calls)
}

/// Two runs side by side; `None`: one of them is no run.
fn compare(archive: &Archive, a: &str, b: &str) -> Result<Option<Page>> {
    let (NamedDocument::Run(a), NamedDocument::Run(b)) = (archive.named(a)?, archive.named(b)?)
    else {
        return Ok(None);
    };
    let explained = |id: &str| -> Result<_> {
        let run = archive.get(id)?;
        let (summary, why) = (summarise(&run), traces::explain(&run, &archive.traces()));
        Ok((run, summary, why))
    };
    let (a, b) = (explained(&a)?, explained(&b)?);
    let [a, b] = [&a, &b].map(|(run, summary, why)| Side { run, summary, why });
    Ok(Some(report::pages::compare(a, b)))
}

/// The last complete run of each host and workload, and the last one that ended otherwise.
fn metrics(archive: &Archive) -> Result<String> {
    let mut last: BTreeMap<(String, String, bool), String> = BTreeMap::new();
    for row in newest(archive)? {
        let complete = row.ended == Ended::Complete.name();
        // The newest come first.
        last.entry((row.host, row.workload, complete))
            .or_insert(row.id);
    }
    let runs: Vec<_> = last
        .into_values()
        .map(|id| archive.get(&id).map(|run| (summarise(&run), run)))
        .collect::<Result<_, _>>()?;
    let pairs = runs.iter().map(|(summary, run)| (run, summary));
    Ok(report::prometheus::text(pairs))
}
