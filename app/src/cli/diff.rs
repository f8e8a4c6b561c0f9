//! `linerate diff`: why is one faster than the other?

use super::live::stdout_style;
use super::{Global, explain};
use crate::exit::Exit;
use crate::out;
use anyhow::Result;
use clap::Args;

/// Compare two transfers: what makes one slower, limit by limit
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate diff 3f 41                          two runs
  linerate diff last run.json                  the newest run and a saved one
  linerate diff fast.pcap slow.pcap            two captures: the largest connection of each

The time that a megabyte took is a sum over the limits that owned it, so the difference is
told limit by limit, the one that explains most first. Two single runs differ by chance too:
'linerate prove' tells whether a difference is real.")]
pub struct Diff {
    /// Name of a run, its first digits, 'last', or a file
    #[arg(value_name = "A")]
    a: String,
    /// The other
    #[arg(value_name = "B")]
    b: String,
}

impl Diff {
    /// Runs the command.
    ///
    /// # Errors
    /// If there is no such run or file, or it cannot be read.
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let (a, _) = explain::explanations(&self.a, global, usize::MAX)?;
        let (b, _) = explain::explanations(&self.b, global, usize::MAX)?;
        out::print(&report::diff((&self.a, &a), (&self.b, &b), stdout_style()))?;
        Ok(Exit::Done)
    }
}
