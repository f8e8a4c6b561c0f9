//! The JSON of `mesh grid`; `docs/json.md` has its keys.

use crate::pages::{GridHost, MeshGrid};
use model::{MeshLeg, Nanos};
use serde::Serialize;

/// Version of this form.
const SCHEMA: u32 = 1;

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
    pub hosts: Vec<GridHost>,
    /// The cells by row, then column; of sites the worst pair of hosts.
    pub cells: Vec<MeshCell>,
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

impl From<&MeshGrid> for MeshCells {
    fn from(grid: &MeshGrid) -> MeshCells {
        let name = |at: usize| grid.hosts[at].name.clone();
        let cells = grid.cells.iter().map(|((src, dst), cell)| MeshCell {
            src: name(*src),
            dst: name(*dst),
            in_a_row: cell.in_a_row() as u64,
            leg: cell.newest().cloned(),
        });
        MeshCells {
            schema: SCHEMA,
            mesh: grid.mesh.clone(),
            test: grid.test.clone(),
            time: grid.now,
            every: grid.every,
            hosts: grid.hosts.clone(),
            cells: cells.collect(),
        }
    }
}
