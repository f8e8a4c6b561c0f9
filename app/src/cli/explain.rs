//! `linerate explain`: what limited it, from a run or a file.

use super::live::stdout_style;
use super::{Global, runs};
use crate::exit::{Exit, Refusal};
use crate::out;
use anyhow::Result;
use clap::Args;
use model::Run;
use model::finding::Explanation;
use std::path::Path;

/// Explain what limited a transfer, and what would decide where two causes fit
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate explain last                        the newest run
  linerate explain 3f                          a run by the first digits of its name
  linerate measure db2 --json > run.json && linerate explain run.json
  linerate explain last --json | jq '.explanations[].conclusion'

The answer comes first: which limit owned the time, with what it rests on, what to try, and
the experiment that decides where more than one cause fits. A finding is 'seen' (the field
that decides it was read), 'likely' (it fits, nothing else does) or 'possible' (another fits
as well). 'Nothing explains it' and 'too short to tell' are answers.")]
pub struct Explain {
    /// Name of a run, its first digits, 'last', or a file
    #[arg(value_name = "RUN|FILE")]
    subject: String,
    /// A JSON document
    #[arg(short = 'J', long)]
    json: bool,
}

/// Longest file that is read whole: an hour of samples each 10 ms over several streams is shorter.
const LONGEST: u64 = 2 << 30;

impl Explain {
    /// Runs the command.
    ///
    /// # Errors
    /// If there is no such run or file, or it cannot be read.
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let (explanations, host) = self.explanations(global)?;
        out::print(&if self.json {
            report::explain::json(&explanations)
        } else {
            report::explain::text(&explanations, host.as_deref(), stdout_style())
        })?;
        Ok(Exit::Done)
    }

    fn explanations(&self, global: &Global) -> Result<(Vec<Explanation>, Option<String>)> {
        let path = Path::new(&self.subject);
        let run = if path.is_file() {
            read(path)?
        } else {
            runs::open_existing(global)?
                .get(&self.subject)
                .map_err(runs::said)?
        };
        Ok((explain::explain(&run), Some(run.host)))
    }
}

/// A run from a file.
fn read(path: &Path) -> Result<Run> {
    let bad = |why: String| Refusal::usage(format!("cannot explain {}: {why}", path.display()));
    let length = std::fs::metadata(path)
        .map_err(|e| bad(e.to_string()))?
        .len();
    if length > LONGEST {
        return Err(bad("it is longer than 2 GiB".to_owned()).into());
    }
    let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    runs::run_from(&text).map_err(|why| bad(why).into())
}
