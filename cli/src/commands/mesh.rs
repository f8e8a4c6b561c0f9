//! `linerate mesh`: measurements between many hosts by a plan.

mod grid;
mod import;
mod run;

use crate::files::{name, read_whole};
use crate::prelude::*;
use ::mesh::{Mesh, MeshChecked, check, parse_mesh, prometheus_rules, span};
use clap::Subcommand;
use engine::clock::unix_time;
use engine::mesh::next_round;
use report::words::{counted, grouped, table};

/// Measure between many hosts by a plan, never two tests on one host or link at once
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate mesh check db.toml                  what the plan takes, and whether it fits
  linerate mesh check db.toml --rules > rules.yml
  linerate mesh run db.toml                    measure by the plan until Ctrl-C
  linerate mesh grid db.toml                   who to whom
  linerate mesh suspects db.toml               which host or uplink explains the low cells
  linerate mesh import psconfig.json > db.toml

docs/mesh.md has the mesh file and a walk with three hosts.")]
pub struct MeshArgs {
    #[command(subcommand)]
    action: MeshAction,
}

#[derive(Subcommand)]
enum MeshAction {
    Check(MeshCheckArgs),
    Run(run::MeshRunArgs),
    Grid(grid::MeshGridArgs),
    Suspects(grid::MeshSuspectsArgs),
    Import(import::MeshImport),
}

/// Show pairs, rounds, the length of a cycle, and bytes a day; fails if the plan does not fit
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate mesh check db.toml
  linerate mesh check db.toml --rules > rules.yml
  linerate mesh check db.toml --json

Ends with status 2 if the rounds do not fit into the shortest 'every' of the
file, the quiet spans leave too little time, or the tests move more than a
host's bytes_a_day. Bytes are known of tests with a rate, and at the least of
those with 'good' as a rate and of light probes.")]
struct MeshCheckArgs {
    /// The mesh file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print alert rules for Prometheus instead, for the metrics of 'runs serve --mesh FILE'
    #[arg(long)]
    rules: bool,
    /// Print one JSON document
    #[arg(long, conflicts_with = "rules")]
    json: bool,
}

impl MeshArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        match &self.action {
            MeshAction::Check(check) => check.run(),
            MeshAction::Run(run) => run.run(global),
            MeshAction::Grid(grid) => grid.run(global),
            MeshAction::Suspects(suspects) => suspects.run(global),
            MeshAction::Import(import) => import.run(),
        }
    }
}

impl MeshCheckArgs {
    fn run(&self) -> Result<Exit> {
        let mesh = read(&self.file)?;
        let checked = check(&mesh, unix_time());
        out::print(&match (self.rules, self.json) {
            (true, _) => prometheus_rules(&mesh),
            (_, true) => report::json::pretty(&checked),
            _ => text(&mesh, &checked),
        })?;
        match checked.faults.is_empty() {
            true => Ok(Exit::Done),
            false => refuse!(
                "{} does not fit: {}",
                name(&self.file),
                checked.faults.join("; ")
            ),
        }
    }
}

/// The mesh of a file.
pub(in crate::commands) fn read(file: &Path) -> Result<Mesh> {
    let text = read_whole(file)
        .map_err(|why| Refusal::usage(format!("cannot read {}: {why}", name(file))))?;
    Ok(parse_mesh(&text, &name(file)).map_err(|error| Refusal::usage(error.to_string()))?)
}

fn text(mesh: &Mesh, checked: &MeshChecked) -> String {
    let many = |n: usize, of| counted(n as u64, of);
    let mut text = format!(
        "mesh {}: {}, {}, {}\n\n",
        mesh.name,
        many(mesh.hosts.len(), "host"),
        many(mesh.links.len(), "link"),
        many(mesh.tests.len(), "test")
    );
    let rows = checked.tests.iter().map(|test| {
        vec![
            test.name.clone(),
            grouped(test.pairs),
            grouped(test.rounds),
            span(test.round),
            span(test.all_rounds),
            span(test.every),
            match test.leg_bytes {
                None => "not known".to_owned(),
                Some(bytes) if test.at_least => format!("at least {bytes}"),
                Some(bytes) => bytes.to_string(),
            },
        ]
    });
    text += &table(
        &[
            "TEST",
            "PAIRS",
            "ROUNDS",
            "A ROUND",
            "ALL ROUNDS",
            "EVERY",
            "A LEG",
        ],
        rows,
    );
    let load = |name: &String, legs, (bytes, more): (Bytes, bool), limit: String| {
        let bytes = match (bytes.0, more) {
            (0, true) => "not known".to_owned(),
            (_, true) => format!("{bytes} and more"),
            (_, false) => bytes.to_string(),
        };
        vec![name.clone(), grouped(legs), bytes, limit]
    };
    let hosts = checked.hosts.iter().map(|of| {
        let limit = of
            .limit
            .map_or("none".to_owned(), |bytes| bytes.to_string());
        load(&of.name, of.legs_a_day, (of.bytes_a_day, of.more), limit)
    });
    text.push('\n');
    text += &table(&["HOST", "LEGS A DAY", "BYTES A DAY", "LIMIT"], hosts);
    if !checked.links.is_empty() {
        let links = checked.links.iter().map(|of| {
            let units = format!("{} at once", of.units);
            load(&of.name, of.legs_a_day, (of.bytes_a_day, of.more), units)
        });
        text.push('\n');
        text += &table(&["LINK", "LEGS A DAY", "BYTES A DAY", "TESTS"], links);
    }
    let next = next_round(mesh, unix_time());
    let next = format!("{}{}.\n", next[..1].to_uppercase(), &next[1..]);
    let but_light = match mesh.tests.len() - mesh.booked().count() {
        0 => "",
        // Nothing is booked.
        lights if lights == mesh.tests.len() => return format!("{text}\n{next}"),
        _ => " but light probes",
    };
    text + &format!(
        "\nEvery {} the rounds of all tests{but_light} take {}.\n{next}",
        span(checked.period),
        span(checked.takes)
    )
}
