//! `linerate mesh grid` and `suspects`: what the legs of a mesh show.

use super::read;
use crate::lookup::open_existing;
use crate::prelude::*;
use ::mesh::MeshSuspects;
use engine::clock::unix_time;
use engine::mesh::{GridPart, IN_A_ROW, MeshLegs, NEWEST};
use report::mesh::MeshCells;
use report::words::{counted, wrap};

/// Show who measured what to whom
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate mesh grid db.toml
  linerate mesh grid db.toml --test requests
  linerate mesh grid db.toml --json | jq '.cells[].leg.goodput_bit_s'
  linerate runs serve --mesh db.toml           the same as a page, /grid.html

Rows are sources, columns destinations. Each cell is the newest leg; what is not
good is explained below the grid.")]
pub struct MeshGridArgs {
    #[command(flatten)]
    of: TestOfMesh,
}

/// Name the hosts and uplinks that explain the low cells
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate mesh suspects db.toml
  linerate mesh suspects db.toml --json

A low leg may be the fault of its source's sending, the uplink of its site, that
of the other site, or its destination's receiving. What has a good leg, and a
third of its legs good, is cleared. The rest are named by how many low legs
they explain: 3 at the least, 2 where a host has fewer than 4 legs. Counted are
the newest legs, none older than two cycles.")]
pub struct MeshSuspectsArgs {
    #[command(flatten)]
    of: TestOfMesh,
}

#[derive(Args)]
struct TestOfMesh {
    /// The mesh file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Which test of it [default: the first]
    #[arg(long, value_name = "NAME")]
    test: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl MeshGridArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let mesh = read(&self.of.file)?;
        let test = mesh.test(self.of.test.as_deref()).map_err(Refusal::usage)?;
        let mut legs = MeshLegs::open(&mesh, || open_existing(global))?;
        let mut grid = |of_cell| {
            let of = (&mesh, test);
            engine::mesh::grid(&mut legs, of, GridPart::Whole, unix_time(), of_cell)
        };
        out::result(&match self.of.json {
            true => report::json::pretty(&MeshCells::from(&grid(IN_A_ROW)?)),
            false => report::mesh::grid(&grid(NEWEST)?, stdout_style()),
        })
    }
}

impl MeshSuspectsArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let mesh = read(&self.of.file)?;
        let test = mesh.test(self.of.test.as_deref()).map_err(Refusal::usage)?;
        let mut legs = MeshLegs::open(&mesh, || open_existing(global))?;
        let suspects = engine::mesh::suspected(&mut legs, &mesh, test, unix_time())?;
        out::result(&match self.of.json {
            true => report::json::pretty(&suspects),
            false => text(&suspects),
        })
    }
}

fn text(of: &MeshSuspects) -> String {
    let width = stdout_style().width;
    let low = of.low;
    let mut text = format!(
        "mesh {}, test {}: {low} of {} low in the last two cycles\n",
        of.mesh,
        of.test,
        counted(of.good + low, "leg")
    );
    for suspect in &of.suspects {
        let elements: Vec<String> = suspect.elements.iter().map(ToString::to_string).collect();
        let which = match elements.len() {
            1 => String::new(),
            _ => " (on the same low legs)".to_owned(),
        };
        let line = format!(
            "{}{which}: explains {} of {low} low legs; {} pass it",
            elements.join("; "),
            suspect.low,
            counted(suspect.legs, "leg")
        );
        text += &wrap(&line, width, "", "    ");
    }
    match (of.suspects.is_empty(), low) {
        (false, _) => text,
        (true, 0) => text + "no leg is low, so nobody is suspected\n",
        (true, _) => text + "no host or uplink has enough low legs to be named\n",
    }
}
