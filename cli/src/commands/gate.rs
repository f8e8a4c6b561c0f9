//! `linerate gate`: an exit status, JUnit and Markdown for a pipeline.

use crate::files::write_whole;
use crate::pages::judged;
use crate::prelude::*;
use model::summarise;
use report::gate::{self, Expectation};

/// Pass or fail a pipeline by a run or an experiment
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate gate last --expect 'goodput>=900M' --expect 'up.rtt_loaded<20ms'
  linerate measure HOST --json > run.json && linerate gate run.json --expect 'goodput>=9G'
  iperf3 -c HOST -J | linerate gate - --expect 'goodput>=900M' --junit gate.xml
  linerate gate last --junit gate.xml --summary \"$GITHUB_STEP_SUMMARY\"

A run passes if it is complete and meets every expectation. An experiment of
'linerate prove' passes unless a variant is proven slower than the baseline by
more than the margin; without enough data it passes, marked as undecided. The
exit status is 0 or 14. docs/gate.md has a workflow for GitHub.

The figures are those of 'leg_summary' in docs/json.md, without the unit at the
end of their names; behind a dot those of 'requests' and 'copy'.")]
pub struct GateArgs {
    /// Name of a run or an experiment, its first digits, 'last', or a file; - is standard input
    #[arg(value_name = "ID|FILE", default_value = "last")]
    subject: String,
    /// What a run has to reach, like 'goodput>=900M', 'down.requests.p99<2ms', 'retransmit<1%'; repeatable
    #[arg(long, value_name = "EXPECTATION", value_parser = str::parse::<Expectation>)]
    expect: Vec<Expectation>,
    /// Write the checks as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Append the checks as Markdown
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

impl GateArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let subject = &self.subject;
        let (name, checks) = judged(subject, global, |found| match found {
            Document::Run(run) => gate::of_run(&run, &summarise(&run), &self.expect)
                .map_err(|why| Refusal::usage(why).into()),
            Document::Experiment(_) if !self.expect.is_empty() => {
                refuse!("--expect is for runs, and {subject} is an experiment: its verdict decides")
            }
            Document::Experiment(one) => Ok(gate::of_experiment(&one, &prove::judge(&one))),
            _ => {
                refuse!("{subject} is neither a run nor an experiment: a gate judges nothing else")
            }
        })?;
        if let Some(file) = &self.junit {
            write_whole(file, gate::junit(&name, &checks).as_bytes())?;
        }
        if let Some(file) = &self.summary {
            append(file, &gate::markdown(&name, &checks))?;
        }
        out::result(&gate::text(&name, &checks, stdout_style()))?;
        Ok(match gate::passes(&checks) {
            true => Exit::Done,
            false => Exit::GateFailed,
        })
    }
}

/// Other steps of a job write to the same summary.
fn append(file: &Path, text: &str) -> Result<()> {
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", file.display()))
}
