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

use crate::clock::unix_time;
use crate::exit::Refusal;
use crate::histories::shifts_of;
use ::calendar::Postgres;
use anyhow::Result;
use archive::{Archive, CellName};
use mesh::{
    HostPair, JudgedLeg, Mesh, MeshTest, Suspect, elements, fewest_low, round_length, suspects,
};
use model::{Direction, LegOutcome, MeshLeg, Metric, Nanos};
use report::pages::{CellFigure, GridCell, GridHost, History, MeshGrid, Past};
use report::words::utc;
use std::collections::BTreeMap;

/// Legs of a cell that a grid reads: how many in a row have the same outcome is known up to this.
const OF_CELL: u32 = 21;

/// Legs among which a change of level is looked for.
pub const OF_LEVEL: u32 = 200;

/// Hosts of one grid; of more, sites are shown, each cell being the worst of its pairs.
const MOST_HOSTS: usize = 300;

/// Cells that are read at once.
const CELLS: usize = 1000;

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
        let names: Vec<_> = pairs
            .iter()
            .map(|pair| cell_name(mesh, test, *pair))
            .collect();
        match self {
            MeshLegs::Archive(archive) => {
                let names = names.into_iter();
                let cells = names.map(|cell| archive.mesh_cell_until(cell, now, limit));
                Ok(cells.collect::<Result<_, _>>()?)
            }
            MeshLegs::Shared(postgres) => {
                let ends: Vec<_> = names.iter().map(|[_, _, src, dst]| [*src, *dst]).collect();
                let cells = postgres.cells([&mesh.name, &test.name], &ends, now, limit);
                cells.map_err(|error| Refusal::unreachable(error.to_string()).into())
            }
        }
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

/// The newest legs of each cell of a test.
///
/// # Errors
/// Failures to read.
pub fn grid(legs: &mut MeshLegs, mesh: &Mesh, test: &MeshTest, now: Nanos) -> Result<MeshGrid> {
    let used = |host: &usize| test.from.contains(host) || test.to.contains(host);
    let mut order: Vec<usize> = (0..mesh.hosts.len()).filter(used).collect();
    let site = |host: usize| mesh.hosts[host].site.as_ref();
    let first = |host: usize| {
        mesh.hosts
            .iter()
            .position(|other| other.site.as_ref() == site(host))
    };
    order.sort_by_key(|host| first(*host));
    let by_site = order.len() > MOST_HOSTS && order.iter().all(|host| site(*host).is_some());
    if by_site {
        order.dedup_by_key(|host| site(*host));
    }
    let place = |host: usize| match by_site {
        true => order.iter().position(|other| site(*other) == site(host)),
        false => order.iter().position(|other| *other == host),
    };
    let mut cells: BTreeMap<(usize, usize), GridCell> = BTreeMap::new();
    let places: Vec<Option<usize>> = (0..mesh.hosts.len()).map(place).collect();
    for pairs in test.cells().chunks(CELLS) {
        let read = legs.cells(mesh, test, pairs, now, OF_CELL)?;
        for (pair, mut legs) in pairs.iter().zip(read) {
            let (Some(from), Some(to)) = (places[pair.0], places[pair.1]) else {
                continue;
            };
            legs.retain(|leg| !is_under_way(test, leg, now));
            let cell = GridCell { legs };
            let kept = cells.entry((from, to)).or_default();
            if kept.legs.is_empty() || badness(&cell) > badness(kept) {
                *kept = cell;
            }
        }
    }
    Ok(MeshGrid {
        mesh: mesh.name.clone(),
        test: test.name.clone(),
        figure: match (test.mtu, test.light.is_some(), test.is_of_latency()) {
            (true, ..) => CellFigure::Mtu,
            (_, true, _) => CellFigure::LightRtt,
            (.., true) => CellFigure::Latency,
            (.., false) => CellFigure::Goodput,
        },
        tests: mesh.tests.iter().map(|test| test.name.clone()).collect(),
        every: test.every,
        hosts: order
            .iter()
            .map(|host| {
                let host = &mesh.hosts[*host];
                let site = host.site.clone();
                let name = if by_site {
                    site.clone().unwrap_or_default()
                } else {
                    host.name.clone()
                };
                GridHost { name, site }
            })
            .collect(),
        cells,
        now,
    })
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

fn cell_name<'a>(mesh: &'a Mesh, test: &'a MeshTest, (from, to): HostPair) -> CellName<'a> {
    let name = |host: usize| mesh.hosts[host].name.as_str();
    [&mesh.name, &test.name, name(from), name(to)]
}

/// The history of a cell by the names of its hosts; `None` if the test has no such cell.
///
/// # Errors
/// Failures to read.
pub fn history(
    legs: &mut MeshLegs,
    mesh: &Mesh,
    test: &MeshTest,
    [src, dst]: [&str; 2],
) -> Result<Option<History>> {
    let host = |name: &str| mesh.hosts.iter().position(|host| host.name == name);
    let (Some(from), Some(to)) = (host(src), host(dst)) else {
        return Ok(None);
    };
    let legs = legs.cells(mesh, test, &[(from, to)], unix_time(), OF_LEVEL)?;
    let legs = legs.concat();
    let mut runs = measured(test, &legs);
    runs.reverse();
    Ok(Some(History {
        host: dst.to_owned(),
        local: src.to_owned(),
        workload: format!("{} of mesh {}", test.name, mesh.name),
        direction: Direction::Up,
        metric: match (test.mtu, test.is_of_latency()) {
            (true, _) => None,
            (_, true) => Some(Metric::LatencyP50),
            (_, false) => Some(Metric::Goodput),
        },
        shifts: shifts_of(&runs),
        runs,
    }))
}

/// What the legs of a cell measured, in their order.
fn measured(test: &MeshTest, legs: &[MeshLeg]) -> Vec<Past> {
    let measured = legs.iter().filter(|leg| leg.outcome.is_measured());
    let past = measured.filter_map(|leg| {
        Some(Past {
            id: leg.run.clone(),
            started: leg.starts,
            value: test.figure(leg)?,
        })
    });
    past.collect()
}

/// Who is suspected by the newest legs of a test, none of them older than two cycles; how many of these are good and low.
///
/// # Errors
/// Failures to read.
pub fn suspected(
    from: &mut MeshLegs,
    mesh: &Mesh,
    test: &MeshTest,
    now: Nanos,
) -> Result<(Vec<Suspect>, [usize; 2])> {
    let old = Nanos(test.every.0.saturating_mul(2));
    let mut legs = Vec::new();
    let mut sent: BTreeMap<usize, usize> = BTreeMap::new();
    for pairs in test.cells().chunks(CELLS) {
        for (pair, newest) in pairs
            .iter()
            .zip(from.cells(mesh, test, pairs, now, OF_CELL)?)
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
    let good = legs.iter().filter(|leg| leg.good).count();
    let fewest = fewest_low(sent.values().copied().max().unwrap_or(0));
    Ok((suspects(&legs, fewest), [good, legs.len() - good]))
}

#[cfg(test)]
mod tests;
