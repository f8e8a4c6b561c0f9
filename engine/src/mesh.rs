//! The legs of a mesh: its grid, the history of a cell, and who is suspected.

mod alerts;
mod calendar;
mod clock;
mod legs;
mod light;
mod run;

pub use alerts::AlertQueue;
pub use calendar::calendar_place;
pub use clock::MeshClock;
pub use run::MeshRun;

use crate::histories::shifts_of;
use crate::prelude::*;
use ::calendar::Postgres;
use archive::Archive;
use mesh::{HostPair, JudgedLeg, Mesh, MeshSuspects, MeshTest, elements, fewest_low, round_length};
use model::{CellFigure, LegOutcome, MeshLeg, Metric};
use report::pages::{GridCell, GridHost, GridOf, History, MeshGrid, Past};
use report::words::utc;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Legs of a cell that a grid reads which shows no more.
pub const NEWEST: u32 = 1;

/// Those that one reads which has how many in a row have the same outcome, up to this.
pub const IN_A_ROW: u32 = 21;

/// Legs among which a change of level is looked for.
pub const OF_LEVEL: u32 = 200;

/// Hosts of one grid; of more, sites are shown, each cell being the worst of its pairs.
const MOST_HOSTS: usize = 300;

/// Cells that are read at once.
const CELLS: usize = 4000;

/// Where the legs of a mesh are read.
pub enum MeshLegs {
    /// As its coordinator keeps them.
    Archive(Archive),
    /// As coordinators keep them together.
    Shared(Box<Postgres>),
}

impl MeshLegs {
    /// In the PostgreSQL of its calendar, or else in this archive.
    ///
    /// # Errors
    /// What cannot be opened.
    pub fn open(mesh: &Mesh, archive: impl FnOnce() -> Result<Archive>) -> Result<MeshLegs> {
        let Some(address) = &mesh.calendar else {
            return archive().map(MeshLegs::Archive);
        };
        let opened = Postgres::open_to_read(address, &calendar::called());
        let opened = opened.map_err(|error| Refusal::unreachable(error.to_string()))?;
        Ok(MeshLegs::Shared(Box::new(opened)))
    }

    /// The newest legs of these cells, none that lies in the future: of a clock that was wrong.
    fn cells(
        &mut self,
        mesh: &Mesh,
        test: &MeshTest,
        pairs: &[HostPair],
        now: Nanos,
        limit: u32,
    ) -> Result<Vec<Vec<MeshLeg>>> {
        let name = |host: usize| mesh.hosts[host].name.as_str();
        let ends: Vec<[&str; 2]> = pairs
            .iter()
            .map(|pair| [name(pair.0), name(pair.1)])
            .collect();
        let names = [mesh.name.as_str(), &test.name];
        match self {
            MeshLegs::Archive(archive) => Ok(archive.mesh_cells(names, &ends, now, limit)?),
            MeshLegs::Shared(postgres) => {
                let cells = postgres.cells(names, &ends, now, limit);
                cells.map_err(|error| Refusal::unreachable(error.to_string()).into())
            }
        }
    }

    /// The same without legs of a round that is under way: one at least where there is one before it.
    fn finished(
        &mut self,
        mesh: &Mesh,
        test: &MeshTest,
        pairs: &[HostPair],
        now: Nanos,
        limit: u32,
    ) -> Result<Vec<Vec<MeshLeg>>> {
        let mut cells = self.cells(mesh, test, pairs, now, limit)?;
        let is_under_way = |leg: &MeshLeg| is_under_way(test, leg, now);
        let is_hidden = |at: &usize| !cells[*at].is_empty() && cells[*at].iter().all(is_under_way);
        let hidden: Vec<usize> = (0..pairs.len()).filter(is_hidden).collect();
        if !hidden.is_empty() && limit < IN_A_ROW {
            let again: Vec<HostPair> = hidden.iter().map(|at| pairs[*at]).collect();
            let read = self.cells(mesh, test, &again, now, IN_A_ROW)?;
            for (at, legs) in hidden.into_iter().zip(read) {
                cells[at] = legs;
            }
        }
        for legs in &mut cells {
            legs.retain(|leg| !is_under_way(leg));
        }
        Ok(cells)
    }
}

/// When the next round begins.
pub fn next_round(mesh: &Mesh, now: Nanos) -> String {
    match ::mesh::next_round(mesh, now) {
        Some((test, starts)) => format!(
            "the next round, of '{}', begins at {}",
            mesh.tests[test].name,
            utc(starts)
        ),
        None => "no round begins: the quiet spans leave no time for one".to_owned(),
    }
}

/// Which cells of a test a grid has.
#[derive(Clone, Copy, Debug)]
pub enum GridPart<'a> {
    /// All of them; of more than 300 hosts those of their sites, each being the worst of its pairs.
    Whole,
    /// Those from the hosts of a site to the hosts of a site; of more than 300 hosts of a site those with the worst cells.
    Sites([&'a str; 2]),
}

/// The newest legs of the cells of a test: [`NEWEST`] or [`IN_A_ROW`].
///
/// # Errors
/// Failures to read.
pub fn grid(
    from: &mut MeshLegs,
    (mesh, test): (&Mesh, &MeshTest),
    part: GridPart<'_>,
    now: Nanos,
    of_cell: u32,
) -> Result<MeshGrid> {
    let site = |host: usize| mesh.hosts[host].site.as_deref();
    let mut pairs = test.cells();
    let mut hosts: BTreeSet<usize> = test.from.iter().chain(&test.to).copied().collect();
    if let GridPart::Sites([src, dst]) = part {
        pairs.retain(|pair| (site(pair.0), site(pair.1)) == (Some(src), Some(dst)));
        hosts = pairs.iter().flat_map(|(src, dst)| [*src, *dst]).collect();
    }
    let mut order: Vec<usize> = hosts.into_iter().collect();
    let first_of_site =
        |host: &usize| (0..mesh.hosts.len()).position(|other| site(other) == site(*host));
    order.sort_by_cached_key(first_of_site);
    let all_have_sites = order.iter().all(|host| site(*host).is_some());
    let by_site = matches!(part, GridPart::Whole) && order.len() > MOST_HOSTS && all_have_sites;
    if by_site {
        order.dedup_by_key(|host| site(*host));
    }
    let place = |host: usize| match by_site {
        true => order.iter().position(|other| site(*other) == site(host)),
        false => order.iter().position(|other| *other == host),
    };
    let places: Vec<Option<usize>> = (0..mesh.hosts.len()).map(place).collect();
    let mut cells: BTreeMap<(usize, usize), GridCell> = BTreeMap::new();
    for pairs in pairs.chunks(CELLS) {
        for (pair, legs) in pairs
            .iter()
            .zip(from.finished(mesh, test, pairs, now, of_cell)?)
        {
            let (Some(from), Some(to)) = (places[pair.0], places[pair.1]) else {
                continue;
            };
            let cell = GridCell { legs };
            let kept = cells.entry((from, to)).or_default();
            if kept.legs.is_empty() || badness(&cell) > badness(kept) {
                *kept = cell;
            }
        }
    }
    let of = match part {
        GridPart::Whole if by_site => GridOf::Sites,
        GridPart::Whole => GridOf::Hosts,
        GridPart::Sites(sites) => GridOf::HostsOfSites {
            sites: sites.map(str::to_owned),
            left_out: leave_the_worst(&mut cells),
        },
    };
    let hosts = order.iter().map(|host| {
        let host = &mesh.hosts[*host];
        let site = host.site.clone();
        let name = match &site {
            Some(site) if by_site => site.clone(),
            _ => host.name.clone(),
        };
        GridHost { name, site }
    });
    Ok(MeshGrid {
        mesh: mesh.name.clone(),
        test: test.name.clone(),
        figure: test.figure,
        tests: mesh.tests.iter().map(|test| test.name.clone()).collect(),
        every: test.every,
        of,
        hosts: hosts.collect(),
        cells,
        now,
    })
}

/// Leaves the cells of the [`MOST_HOSTS`] rows and columns that have the worst ones; how many cells went.
fn leave_the_worst(cells: &mut BTreeMap<(usize, usize), GridCell>) -> usize {
    let before = cells.len();
    let worst = |end: fn(&(usize, usize)) -> usize| -> BTreeSet<usize> {
        let mut of_host: BTreeMap<usize, u8> = BTreeMap::new();
        for (pair, cell) in &*cells {
            let worst = of_host.entry(end(pair)).or_default();
            *worst = badness(cell).max(*worst);
        }
        let mut hosts: Vec<(usize, u8)> = of_host.into_iter().collect();
        hosts.sort_by_key(|(_, badness)| Reverse(*badness));
        hosts
            .iter()
            .take(MOST_HOSTS)
            .map(|(host, _)| *host)
            .collect()
    };
    let [sources, destinations] = [worst(|pair| pair.0), worst(|pair| pair.1)];
    cells.retain(|(from, to), _| sources.contains(from) && destinations.contains(to));
    before - cells.len()
}

/// Whether a leg without a result is one of a round that is not over.
fn is_under_way(test: &MeshTest, leg: &MeshLeg, now: Nanos) -> bool {
    leg.why.as_deref() == Some(run::PENDING) && now < leg.starts + round_length(test)
}

fn badness(cell: &GridCell) -> u8 {
    cell.newest().map_or(0, |leg| match leg.outcome {
        LegOutcome::Good => 1,
        LegOutcome::Skipped => 2,
        LegOutcome::Missed => 3,
        LegOutcome::Low => 4,
        LegOutcome::Failed => 5,
    })
}

/// The newest legs of a cell by the names of its hosts, the newest first, and the history of what was measured;
/// `None` if the mesh has no such hosts.
///
/// # Errors
/// Failures to read.
pub fn cell(
    from: &mut MeshLegs,
    (mesh, test): (&Mesh, &MeshTest),
    [src, dst]: [&str; 2],
    now: Nanos,
) -> Result<Option<(Vec<MeshLeg>, History)>> {
    let host = |name: &str| mesh.hosts.iter().position(|host| host.name == name);
    let (Some(source), Some(destination)) = (host(src), host(dst)) else {
        return Ok(None);
    };
    let pair = [(source, destination)];
    let legs = from.finished(mesh, test, &pair, now, OF_LEVEL)?;
    let mut legs = legs.concat();
    let mut runs = measured(test, &legs);
    runs.reverse();
    legs.truncate(IN_A_ROW as usize);
    let history = History {
        host: dst.to_owned(),
        local: src.to_owned(),
        workload: format!("{} of mesh {}", test.name, mesh.name),
        direction: Direction::Up,
        metric: match test.figure {
            CellFigure::Mtu => None,
            CellFigure::Latency | CellFigure::LightRtt => Some(Metric::LatencyP50),
            CellFigure::Goodput => Some(Metric::Goodput),
        },
        shifts: shifts_of(&runs),
        runs,
    };
    Ok(Some((legs, history)))
}

/// What the legs of a cell measured, in their order.
fn measured(test: &MeshTest, legs: &[MeshLeg]) -> Vec<Past> {
    let measured = legs.iter().filter(|leg| leg.outcome.is_measured());
    let past = measured.filter_map(|leg| {
        Some(Past {
            id: leg.run.clone(),
            started: leg.starts,
            value: test.figure.of(leg)?,
        })
    });
    past.collect()
}

/// Who is suspected by the newest legs of a test, none of them older than two cycles.
///
/// # Errors
/// Failures to read.
pub fn suspected(
    from: &mut MeshLegs,
    mesh: &Mesh,
    test: &MeshTest,
    now: Nanos,
) -> Result<MeshSuspects> {
    let old = Nanos(test.every.0.saturating_mul(2));
    let mut legs = Vec::new();
    let mut sent: BTreeMap<usize, usize> = BTreeMap::new();
    for pairs in test.cells().chunks(CELLS) {
        for (pair, newest) in pairs
            .iter()
            .zip(from.cells(mesh, test, pairs, now, IN_A_ROW)?)
        {
            let newest = newest.iter().find(|leg| leg.outcome.is_measured());
            if let Some(leg) = newest.filter(|leg| now.since(leg.starts) <= old) {
                *sent.entry(pair.0).or_default() += 1;
                legs.push(JudgedLeg {
                    elements: elements(mesh, *pair),
                    good: leg.outcome == LegOutcome::Good,
                });
            }
        }
    }
    let fewest = fewest_low(sent.values().copied().max().unwrap_or(0));
    Ok(MeshSuspects::of(&mesh.name, &test.name, &legs, fewest))
}

#[cfg(test)]
mod tests;
