//! `linerate prove --from`: published numbers, or runs of no common plan.

use super::exit_for;
use crate::document;
use crate::files::{confined, read_whole};
use crate::json_input::run_from;
use crate::lookup::{open_existing, refused};
use crate::prelude::*;
use model::Published;
use prove::published::{RunsOfArm, of_runs, of_table};

/// Arms and runs of one arm that are taken at most.
const MOST: usize = 1_000;

/// Judges `sources`: one table in CSV, or two or more arms, each as `NAME=RUN,RUN,...` where a run is
/// a file of linerate's or iperf3's JSON, or the name of one in the archive. `margin` is the
/// equivalence margin, as a share; of runs that went both ways, `direction` is judged.
pub(super) fn from(
    sources: &[String],
    margin: f64,
    direction: Direction,
    json: bool,
    global: &Global,
) -> Result<Exit> {
    let found = match sources {
        [one] if Path::new(one).is_file() || !one.contains('=') => {
            let refused = |why: String| Refusal::usage(format!("cannot judge {one}: {why}"));
            confined(&[one], || {
                let text = read_whole(Path::new(one)).map_err(refused)?;
                Ok(of_table(one, &text, margin).map_err(|error| refused(error.to_string()))?)
            })?
        }
        _ => of_arms(sources, margin, direction, global)?,
    };
    let outcome = found.outcome();
    document::print(Document::Published(Box::new(found)), json)?;
    Ok(exit_for(outcome))
}

fn of_arms(
    sources: &[String],
    margin: f64,
    direction: Direction,
    global: &Global,
) -> Result<Published> {
    let mut archive = None;
    let mut arms = Vec::new();
    for source in sources.iter().take(MOST) {
        let arm = source.split_once('=').filter(|(name, _)| !name.is_empty());
        let Some((name, runs)) = arm else {
            refuse!(
                "'{source}' is not an arm: give one table, or two or more arms as NAME=RUN,RUN where RUN is a file or the name of a run"
            )
        };
        let runs = runs.split(',').filter(|run| !run.is_empty()).take(MOST);
        let runs = runs.map(|run| one_run(run, &mut archive, global));
        arms.push(RunsOfArm {
            name: name.to_owned(),
            runs: runs.collect::<Result<_>>()?,
        });
    }
    if let Some(empty) = arms.iter().find(|arm| arm.runs.is_empty()) {
        refuse!("the arm '{}' has no runs", empty.name);
    }
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    of_runs(&names.join(", "), &arms, direction, margin)
        .map_err(|why| Refusal::usage(format!("cannot compare these runs: {why}")).into())
}

/// A run from a file, or from the archive, which is opened when the first is wanted.
fn one_run(name: &str, archive: &mut Option<Archive>, global: &Global) -> Result<Run> {
    if Path::new(name).is_file() {
        return confined(&[name], || {
            let run = read_whole(Path::new(name)).and_then(|text| run_from(&text));
            run.map_err(|why| Refusal::usage(format!("cannot compare {name}: {why}")).into())
        });
    }
    let archive = match archive {
        Some(archive) => archive,
        None => archive.insert(open_existing(global)?),
    };
    archive.get(name).map_err(refused)
}
