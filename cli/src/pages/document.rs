//! The page of a document: what linerate printed as JSON, or a table that somebody published.

use super::Told;
use anyhow::Result;
use engine::documents::{self, Document};
use engine::exit::Refusal;
use engine::files::read_whole;
use model::{Experiment, Metric, summarise};
use prove::published::of_table;
use report::page::Page;
use report::pages;
use std::path::Path;

/// The page of a file, or of standard input where its name is `-`.
///
/// # Errors
/// If it is no such document.
pub fn told(path: &Path) -> Result<Told> {
    let name = match path.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    };
    let refused = |why: String| Refusal::usage(format!("cannot make a page of {name}: {why}"));
    let text = read_whole(path).map_err(refused)?;
    let document = match text.trim_start().starts_with(['{', '[']) {
        true => documents::from_json(&text).map_err(refused)?,
        false => {
            // As 'prove --from' has it unless it is told otherwise.
            let margin = Metric::default().usual_margin();
            let found = of_table(&name, &text, margin).map_err(|e| refused(e.to_string()))?;
            Document::Published(Box::new(found))
        }
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(match document {
        Document::Run(run) => Told {
            page: pages::run(&run, &summarise(&run), &explain::explain(&run)),
            name: run.id,
        },
        Document::Experiment(experiment) => Told {
            page: of_experiment(&experiment),
            name: experiment.id,
        },
        Document::Tuning(story, experiments) => Told {
            page: {
                let judged = experiments.into_iter().map(prove::judged);
                pages::tuning(&story, &judged.collect::<Vec<_>>())
            },
            name: story.id,
        },
        Document::Mtu(found) => Told {
            page: pages::mtu(&found),
            name: format!("mtu-{}", found.host()),
        },
        Document::Published(found) => Told {
            page: pages::published(&found),
            name: stem.into_owned(),
        },
    })
}

/// The page of an experiment, judged anew.
pub fn of_experiment(experiment: &Experiment) -> Page {
    pages::experiment(experiment, &prove::judge(experiment))
}
