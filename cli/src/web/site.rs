//! What a request is answered with.

use crate::archive_list;
use crate::lookup;
use crate::pages::{html_of, html_of_capture};
use crate::prelude::*;
use crate::web::Answers;
use ::mesh::{Mesh, MeshTest};
use archive::PathRow;
use engine::exit::exit_of;
use engine::histories::{self, HistoryFigures};
use engine::mesh::{GridPart, IN_A_ROW, MeshLegs, NEWEST};
use engine::{chance, clock, traces};
use model::{Summary, summarise};
use report::page::{self, Page};
use report::pages::{Entry, FIELDS, GridOf, History, Index, MeshGrid, PathHistory, Search, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, TryLockError};
use sys::file::TemporaryDirectory;
use wire::http::{self, HttpRequest, Status};

/// Lines of a list.
const LINES: u32 = 200;

pub struct Site {
    /// The file.
    pub archive: PathBuf,
    /// Requests may call this machine by any name: it was ordered to listen where others reach it.
    pub any_name: bool,
    /// Meshes whose grids are shown.
    pub meshes: Vec<Mesh>,
    /// A capture is read: one at a time.
    pub reads: Mutex<()>,
}

pub struct SiteAnswer {
    status: Status,
    kind: &'static str,
    body: String,
}

const TEXT: &str = "text/plain; charset=utf-8";
pub const HTML: &str = "text/html; charset=utf-8";
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

impl SiteAnswer {
    /// Nothing but how it went.
    pub fn of(status: Status) -> SiteAnswer {
        SiteAnswer::text(status, status.line())
    }

    pub fn ok(kind: &'static str, body: String) -> SiteAnswer {
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

impl Answers for Site {
    fn answer(&self, request: &HttpRequest) -> SiteAnswer {
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

    /// The page of a capture: only a client on this host may put one.
    fn put(
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
                Ok(page.replace(&format!("{}/", upload.place.path().display()), ""))
            });
        match page {
            Ok(page) => SiteAnswer::ok(HTML, page),
            Err(error) => SiteAnswer::text(Status::BadRequest, &sentence(&error)),
        }
    }
}

impl Site {
    /// The mesh and the test that a request names, or the first ones.
    fn test_of(&self, request: &HttpRequest) -> Option<(&Mesh, &MeshTest)> {
        let name = request.value("mesh");
        let mesh = self
            .meshes
            .iter()
            .find(|mesh| name.is_none_or(|name| mesh.name == name))?;
        Some((mesh, mesh.test(request.value("test")).ok()?))
    }

    fn legs_of(&self, mesh: &Mesh) -> Result<MeshLegs> {
        MeshLegs::open(mesh, || Ok(Archive::open_to_read(&self.archive)?))
    }

    /// Of all tests whose legs can be read now.
    fn grids(&self) -> Vec<MeshGrid> {
        let now = clock::unix_time();
        let grids = self.meshes.iter().filter_map(|mesh| {
            let mut legs = self.legs_of(mesh).ok()?;
            let tests = mesh.tests.iter();
            let grids = tests.map(|test| {
                engine::mesh::grid(&mut legs, (mesh, test), GridPart::Whole, now, IN_A_ROW)
            });
            grids.collect::<Result<Vec<_>>>().ok()
        });
        grids.flatten().collect()
    }

    fn found(&self, request: &HttpRequest) -> Result<SiteAnswer> {
        let archive = Archive::open_to_read(&self.archive)?;
        let asked = |name| request.value(name).unwrap_or_default();
        let page = match request.path.as_str() {
            "/" => {
                return Ok(SiteAnswer::ok(HTML, index(&archive, request, self)?));
            }
            "/metrics" => {
                return Ok(SiteAnswer::ok(METRICS, metrics(&archive, &self.grids())?));
            }
            "/grid.html" => {
                let sites = [request.value("from"), request.value("to")];
                let part = match sites {
                    [Some(from), Some(to)] => GridPart::Sites([from, to]),
                    _ => GridPart::Whole,
                };
                let of = self.test_of(request);
                let page = of.map(|(mesh, test)| self.grid(mesh, test, part));
                return Ok(match page.transpose()?.flatten() {
                    Some(page) => SiteAnswer::ok(HTML, page),
                    None => SiteAnswer::of(Status::NotFound),
                });
            }
            "/cell.html" => {
                let hosts = ["src", "dst"].map(asked);
                let Some((mesh, test)) = self.test_of(request) else {
                    return Ok(SiteAnswer::of(Status::NotFound));
                };
                match cell(&archive, &mut self.legs_of(mesh)?, (mesh, test), hosts)? {
                    Some(page) => page,
                    None => return Ok(SiteAnswer::of(Status::NotFound)),
                }
            }
            "/compare.html" => match compare(&archive, asked("a"), asked("b"))? {
                Some(page) => page,
                None => {
                    let line = "only runs can be compared: choose two in the list";
                    return Ok(SiteAnswer::text(Status::BadRequest, line));
                }
            },
            "/history.html" => {
                let wanted = ["host", "local", "workload", "direction"].map(asked);
                match history(&archive, wanted)? {
                    Some(history) => report::pages::history(&history),
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

    /// Names of the meshes but this one, and addresses of their grids.
    fn grid_links(&self, without: Option<&Mesh>) -> Vec<(String, String)> {
        let others = self.meshes.iter().filter(|mesh| Some(*mesh) != without);
        let address = |mesh: &Mesh| format!("grid.html?mesh={}", http::encoded(&mesh.name));
        others
            .map(|mesh| (mesh.name.clone(), address(mesh)))
            .collect()
    }

    /// The grid of a test of a mesh; `None` if it has no cell between these sites.
    fn grid(&self, mesh: &Mesh, test: &MeshTest, part: GridPart<'_>) -> Result<Option<String>> {
        let now = clock::unix_time();
        let legs = &mut self.legs_of(mesh)?;
        let grid = engine::mesh::grid(legs, (mesh, test), part, now, NEWEST)?;
        if grid.cells.is_empty() {
            return Ok(None);
        }
        let (page, [from, to]) = match grid.of {
            GridOf::Sites => ("grid.html", ["&from=", "&to="]),
            GridOf::Hosts | GridOf::HostsOfSites { .. } => ("cell.html", ["&src=", "&dst="]),
        };
        let of = of_test(page, mesh, &test.name);
        let cell = |host: &str| {
            let host = http::encoded(host);
            [format!("{of}{from}{host}"), format!("{to}{host}")]
        };
        let meshes = self.grid_links(Some(mesh));
        let test = |test: &str| of_test("grid.html", mesh, test);
        Ok(Some(report::pages::grid(&grid, &meshes, cell, test)))
    }
}

/// The address of a page of a test of a mesh.
fn of_test(page: &str, mesh: &Mesh, test: &str) -> String {
    let [mesh, test] = [&mesh.name, test].map(http::encoded);
    format!("{page}?mesh={mesh}&test={test}")
}

/// The page of a cell of a test; `None` if the mesh has no such hosts.
fn cell(
    archive: &Archive,
    legs: &mut MeshLegs,
    (mesh, test): (&Mesh, &MeshTest),
    hosts: [&str; 2],
) -> Result<Option<Page>> {
    let now = clock::unix_time();
    let Some((newest, history)) = engine::mesh::cell(legs, (mesh, test), hosts, now)? else {
        return Ok(None);
    };
    let mut page = report::pages::cell(&history, &newest, test.figure, now);
    let runs = newest.iter().map(|leg| &leg.run);
    let runs: BTreeSet<_> = runs.chain(history.runs.iter().map(|run| &run.id)).collect();
    // Of light probes, and of what another coordinator measured, there is no page.
    let kept = runs.into_iter().filter(|id| archive.named(id).is_ok());
    page.links = kept
        .map(|id| (report::words::shown(id), format!("{id}.html")))
        .collect();
    let name = format!("mesh {}, test {}", mesh.name, test.name);
    let address = of_test("grid.html", mesh, &test.name);
    page.links.insert(name.clone(), address);
    page.facts.insert(0, ("Grid".to_owned(), name));
    Ok(Some(page))
}

/// A capture on its way to its reader, in a directory that is gone with it.
struct Upload {
    place: TemporaryDirectory,
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
        let place = TemporaryDirectory::create(&format!("linerate-capture-{random:016x}"))?;
        let file = place
            .path()
            .join(if name.is_empty() { "capture" } else { &name });
        Ok(Upload { place, file })
    }
}

fn index(archive: &Archive, request: &HttpRequest, site: &Site) -> Result<String> {
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
    let mut paths = Vec::new();
    for path in archive.paths()? {
        for figures in histories::of(archive, &path)? {
            let alike = histories::alike(&path);
            let [host, local, workload] =
                [&path.remote_key, &path.local_key, &alike].map(|text| http::encoded(text));
            let direction = figures.direction.name();
            let address = format!(
                "history.html?host={host}&local={local}&workload={workload}&direction={direction}"
            );
            let age = clock::unix_time().since(figures.last.started);
            let when = format!("{} ago", report::words::age(age));
            paths.push(way(&path, figures, address, when));
        }
    }
    Ok(report::pages::index(&Index {
        entries,
        paths,
        search: Some(Search { values, said }),
        takes_captures: !site.any_name,
        meshes: site.grid_links(None),
        older,
    }))
}

/// The history that an address of the list names.
fn history(
    archive: &Archive,
    [host, local, workload, direction]: [&str; 4],
) -> Result<Option<History>, archive::Error> {
    let Ok(direction) = direction.parse() else {
        return Ok(None);
    };
    let is_it = |path: &PathRow| {
        path.remote_key == host && path.local_key == local && histories::alike(path) == workload
    };
    match archive.paths()?.iter().find(|path| is_it(path)) {
        Some(path) => histories::whole(archive, path, direction),
        None => Ok(None),
    }
}

pub fn entries(archive: &Archive, filter: &RunFilter) -> Result<Vec<Entry>, archive::Error> {
    let all = archive_list::list(archive, filter)?.into_iter();
    Ok(all.map(|one| one.named_in(archive).entry()).collect())
}

/// A history in the list, and its address.
pub fn way(path: &PathRow, figures: HistoryFigures, href: String, when: String) -> PathHistory {
    let head = histories::head(path, figures.direction);
    PathHistory {
        name: head.name(),
        runs: figures.runs,
        shifts: figures.shifts.len(),
        href,
        last: head.value(&figures.last),
        when,
        failed: Some(figures.ended).filter(|ended| ended != Ended::Complete.name()),
        values: figures.line,
    }
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

/// The last complete run between each two hosts and of each workload, and the last one that ended otherwise.
fn metrics(archive: &Archive, grids: &[MeshGrid]) -> Result<String> {
    let mut last: BTreeMap<(String, String, String, bool), (Run, Summary)> = BTreeMap::new();
    for path in archive.paths()? {
        for (run, summary) in histories::latest(archive, &path)? {
            let key = (
                path.local_key.clone(),
                path.remote_key.clone(),
                path.workload.clone(),
                run.ended == Ended::Complete,
            );
            let newer = |(kept, _): &(Run, Summary)| kept.started < run.started;
            if last.get(&key).is_none_or(newer) {
                last.insert(key, (run, summary));
            }
        }
    }
    let pairs = last.values().map(|(run, summary)| (run, summary));
    Ok(report::prometheus::text(pairs, grids))
}
