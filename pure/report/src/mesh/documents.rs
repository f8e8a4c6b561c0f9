//! The JSON of `mesh check`, `mesh grid` and `mesh suspects`; `docs/json.md` has its keys.

use crate::pages::MeshGrid;
use model::{Bytes, MeshLeg, Nanos};
use serde::Serialize;

/// Version of these forms.
const SCHEMA: u32 = 1;

/// What a plan takes, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeshChecked {
    /// Version of this form, now 1.
    pub schema: u32,
    /// Name of the mesh.
    pub mesh: String,
    /// The shortest cycle, in which the rounds of all tests but light probes follow each other.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// What the rounds of a period take at most.
    #[serde(rename = "takes_ns")]
    pub takes: Nanos,
    /// When the next round begins, since 1970-01-01 UTC; null: for a week the quiet spans leave no time for one.
    #[serde(rename = "next_round_unix_ns")]
    pub next_round: Option<Nanos>,
    /// Each test, in the order of the file.
    pub tests: Vec<CheckedTest>,
    /// Each host.
    pub hosts: Vec<CheckedHost>,
    /// Each link.
    pub links: Vec<CheckedLink>,
    /// Why the plan cannot run, a sentence each; none: it fits.
    pub faults: Vec<String>,
}

/// A test of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedTest {
    /// Name.
    pub name: String,
    /// Ordered pairs of hosts, all measured in a cycle.
    pub pairs: u64,
    /// Rounds of a cycle.
    pub rounds: u64,
    /// Duration of a round.
    #[serde(rename = "round_ns")]
    pub round: Nanos,
    /// Duration of all rounds.
    #[serde(rename = "rounds_ns")]
    pub all_rounds: Nanos,
    /// Duration of a cycle.
    #[serde(rename = "every_ns")]
    pub every: Nanos,
    /// Payload of a leg, where it is known; of light probes their packets and the answers.
    pub leg_bytes: Option<Bytes>,
    /// More may pass: it is that of a leg which is just good, or of light probes on a usual path.
    pub at_least: bool,
}

/// What the tests of a day move through a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedHost {
    /// Name.
    pub name: String,
    /// Legs that it sends or receives.
    pub legs_a_day: u64,
    /// Their payload, of the tests for which that is known.
    pub bytes_a_day: Bytes,
    /// There are tests for which it is not known.
    pub more: bool,
    /// `bytes_a_day` of the mesh file, if it is there.
    pub limit: Option<Bytes>,
}

/// What the tests of a day move over a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedLink {
    /// Name.
    pub name: String,
    /// Tests that it carries at the same time.
    pub units: u32,
    /// Legs that pass it.
    pub legs_a_day: u64,
    /// Their payload, of the tests for which that is known.
    pub bytes_a_day: Bytes,
    /// There are tests for which it is not known.
    pub more: bool,
}

/// The newest leg of each cell of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeshCells {
    /// Version of this form, now 1.
    pub schema: u32,
    /// Name of the mesh.
    pub mesh: String,
    /// Name of the test.
    pub test: String,
    /// When the archive was read, since 1970-01-01 UTC.
    #[serde(rename = "time_unix_ns")]
    pub time: Nanos,
    /// Duration of a cycle.
    #[serde(rename = "every_ns")]
    pub every: Nanos,
    /// The rows and columns: the hosts, those of a site beside each other; of more than 300 their sites.
    pub hosts: Vec<CellHost>,
    /// The cells by row, then column; of sites the worst pair of hosts.
    pub cells: Vec<MeshCell>,
}

/// A row and a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellHost {
    /// Name.
    pub name: String,
    /// Where it is.
    pub site: Option<String>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeshCell {
    /// The row: the source.
    pub src: String,
    /// The column: the destination.
    pub dst: String,
    /// How many of the newest 21 legs in a row have the outcome of the newest.
    pub in_a_row: u64,
    /// The newest leg; `None`: there is none yet.
    pub leg: Option<MeshLeg>,
}

/// Who explains the low legs of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeshSuspects {
    /// Version of this form, now 1.
    pub schema: u32,
    /// Name of the mesh.
    pub mesh: String,
    /// Name of the test.
    pub test: String,
    /// Cells whose newest leg of the last two cycles was good.
    pub good: u64,
    /// Cells whose newest leg of the last two cycles was low.
    pub low: u64,
    /// Those that explain the most low legs first.
    pub suspects: Vec<MeshSuspect>,
}

/// Elements of paths that explain low legs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeshSuspect {
    /// One, or several that the same low legs pass.
    pub elements: Vec<SuspectElement>,
    /// Low legs that they explain and no suspect before.
    pub low: u64,
    /// All legs that pass them (of several the first).
    pub legs: u64,
}

/// What a leg passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuspectElement {
    /// `sending` or `receiving` of a host, `out` or `in`: the uplink of a site, outwards or inwards.
    pub kind: String,
    /// The host or the site.
    pub name: String,
}

impl MeshChecked {
    /// Of a mesh, with nothing in it.
    pub fn of(mesh: &str, period: Nanos, takes: Nanos) -> MeshChecked {
        MeshChecked {
            schema: SCHEMA,
            mesh: mesh.to_owned(),
            period,
            takes,
            next_round: None,
            tests: Vec::new(),
            hosts: Vec::new(),
            links: Vec::new(),
            faults: Vec::new(),
        }
    }
}

impl MeshSuspects {
    /// Of a test; `good` and `low` of its cells.
    pub fn of(
        mesh: &str,
        test: &str,
        [good, low]: [usize; 2],
        suspects: Vec<MeshSuspect>,
    ) -> MeshSuspects {
        MeshSuspects {
            schema: SCHEMA,
            mesh: mesh.to_owned(),
            test: test.to_owned(),
            good: good as u64,
            low: low as u64,
            suspects,
        }
    }
}

impl From<&MeshGrid> for MeshCells {
    fn from(grid: &MeshGrid) -> MeshCells {
        let name = |at: usize| grid.hosts[at].name.clone();
        let cells = grid.cells.iter().map(|((src, dst), cell)| MeshCell {
            src: name(*src),
            dst: name(*dst),
            in_a_row: cell.in_a_row() as u64,
            leg: cell.newest().cloned(),
        });
        let hosts = grid.hosts.iter().map(|host| CellHost {
            name: host.name.clone(),
            site: host.site.clone(),
        });
        MeshCells {
            schema: SCHEMA,
            mesh: grid.mesh.clone(),
            test: grid.test.clone(),
            time: grid.now,
            every: grid.every,
            hosts: hosts.collect(),
            cells: cells.collect(),
        }
    }
}

/// One of each, in which nothing is left out.
#[cfg(test)]
pub(crate) fn documents_of_tests() -> [String; 3] {
    use crate::json::pretty;
    use crate::pages::{GridCell, GridHost, GridOf};
    use model::{CellFigure, LegOutcome};
    let name = || "a".to_owned();
    let checked = MeshChecked {
        tests: vec![CheckedTest {
            name: name(),
            pairs: 2,
            rounds: 1,
            round: Nanos(1),
            all_rounds: Nanos(1),
            every: Nanos(2),
            leg_bytes: None,
            at_least: false,
        }],
        hosts: vec![CheckedHost {
            name: name(),
            legs_a_day: 1,
            bytes_a_day: Bytes(1),
            more: false,
            limit: None,
        }],
        links: vec![CheckedLink {
            name: name(),
            units: 1,
            legs_a_day: 1,
            bytes_a_day: Bytes(1),
            more: false,
        }],
        ..MeshChecked::of("m", Nanos(2), Nanos(1))
    };
    let cell = ["m", "t", "a", "a"];
    let leg = MeshLeg::bare(name(), 0, cell, Nanos(1), LegOutcome::Missed);
    let grid = MeshGrid {
        mesh: name(),
        test: name(),
        figure: CellFigure::Goodput,
        tests: Vec::new(),
        every: Nanos(2),
        of: GridOf::Hosts,
        hosts: vec![GridHost {
            name: name(),
            site: None,
        }],
        cells: [((0, 0), GridCell { legs: vec![leg] })].into(),
        now: Nanos(3),
    };
    let suspect = MeshSuspect {
        elements: vec![SuspectElement {
            kind: "out".to_owned(),
            name: name(),
        }],
        low: 3,
        legs: 4,
    };
    [
        pretty(&checked),
        pretty(&MeshCells::from(&grid)),
        pretty(&MeshSuspects::of("m", "t", [1, 3], vec![suspect])),
    ]
}
