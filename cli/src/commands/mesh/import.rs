//! `linerate mesh import`: a mesh file from a template of pSConfig.

use crate::files::{confined, name, read_whole};
use crate::prelude::*;
use ::mesh::{PsconfigImport, import_psconfig};
use report::words::{counted, escape_sentence};

/// Make a mesh file from a template of pSConfig (perfSONAR), and name what it leaves out
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate mesh import psconfig.json > db.toml
  linerate mesh import psconfig.json --partly > db.toml

Taken over are addresses with their labels, groups of type mesh and disjoint,
tests of type throughput, those of latency, latencybg, rtt and trace as light
probes, how often they repeat, and what is disabled. All else that has an effect
there is named by its JSON pointer; then the command ends with status 2, unless
--partly allows it.")]
pub struct MeshImport {
    /// The template
    #[arg(value_name = "TEMPLATE")]
    file: PathBuf,
    /// Name of the mesh [default: that of the file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print the mesh file also where something is left out
    #[arg(long)]
    partly: bool,
}

impl MeshImport {
    pub fn run(&self) -> Result<Exit> {
        let stem = self
            .file
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        let mesh = self.name.clone().or(stem).unwrap_or_default();
        let file = name(&self.file);
        let import: PsconfigImport = confined(&[&self.file], || {
            let read = read_whole(&self.file).and_then(|text| import_psconfig(&text, &mesh));
            Ok(read
                .map_err(|why| Refusal::usage(format!("cannot read the template {file}: {why}")))?)
        })?;
        for (group, addresses, pairs) in &import.groups {
            note(&format!(
                "group {group}: {addresses} addresses, {pairs} ordered pairs"
            ));
        }
        for task in &import.disabled {
            note(&format!("task {task}: disabled, not taken over"));
        }
        for left_out in &import.left_out {
            note(&format!(
                "{file}: {}: left out: {}",
                left_out.pointer, left_out.why
            ));
        }
        if import.toml.is_empty() {
            refuse!(
                "{file} has no task that could be taken over: tests of type throughput, latency, latencybg, rtt and trace between hosts are possible"
            );
        }
        if !import.left_out.is_empty() && !self.partly {
            let parts = counted(import.left_out.len() as u64, "part");
            refuse!(
                "{parts} of {file} would be left out: make the mesh file without them by --partly"
            );
        }
        out::result(&import.toml)
    }
}

fn note(line: &str) {
    out::note(&escape_sentence(line));
}
