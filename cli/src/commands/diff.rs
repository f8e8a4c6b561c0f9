//! `linerate diff`: why is one faster than the other?

use super::explain;
use crate::files::confined;
use crate::lookup::Subject;
use crate::prelude::*;
use model::request::Links;

/// Connections that are named to choose from.
const SHOWN: usize = 10;

/// Explain why one of two transfers is slower, limit by limit
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate diff 3f 41                          two runs
  linerate diff last run.json --json
  linerate diff fast.pcap slow.pcap            the largest connections of each
  linerate diff a.jsonl b.jsonl --connection :5201
  linerate diff --requests fast.pcap slow.pcap

The difference in time per megabyte is divided by limit, the largest first. Two
single runs differ at random too: 'linerate prove' tests a difference.")]
pub struct Diff {
    /// Name of a run, its first digits, 'last', or a file
    #[arg(value_name = "A")]
    a: String,
    /// The other
    #[arg(value_name = "B")]
    b: String,
    /// Only connections whose name, address or port has this; of several, the largest is compared
    #[arg(long, value_name = "TEXT")]
    connection: Option<String>,
    /// The requests of both, operation by operation and cause by cause
    #[arg(long, conflicts_with = "connection")]
    requests: bool,
    /// A JSON document: the explanations of both
    #[arg(short = 'J', long, conflicts_with = "requests")]
    json: bool,
}

impl Diff {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let subjects = (
            Subject::find(&self.a, global)?,
            Subject::find(&self.b, global)?,
        );
        let files = [subjects.0.files(), subjects.1.files()].concat();
        out::result(&confined(&files, || self.text(&subjects.0, &subjects.1))?)
    }

    fn text(&self, a: &Subject, b: &Subject) -> Result<String> {
        if self.requests {
            let of = |subject| explain::requests::requests_of(subject, Links::default());
            let (a, b) = (of(a)?, of(b)?);
            let text = report::requests_diff((&self.a, &a), (&self.b, &b), stdout_style());
            return Ok(text);
        }
        let a = self.chosen(&self.a, a)?;
        let b = self.chosen(&self.b, b)?;
        let sides = ((self.a.as_str(), &a[..]), (self.b.as_str(), &b[..]));
        Ok(match self.json {
            true => report::diff_json(sides.0, sides.1),
            false => report::diff(sides.0, sides.1, stdout_style()),
        })
    }

    fn chosen(&self, name: &str, subject: &Subject) -> Result<Vec<Explanation>> {
        let (mut all, _) = explain::explanations(subject, usize::MAX)?;
        if let Some(text) = &self.connection {
            let names: Vec<String> = all.iter().take(SHOWN).map(|e| e.name.clone()).collect();
            let ends = |e: &Explanation| [e.sender, e.receiver];
            all.retain(|e| {
                let ends = ends(e).into_iter().flatten();
                e.name.contains(text) || ends.into_iter().any(|end| end.to_string().contains(text))
            });
            if all.is_empty() {
                let names = names.join(", ");
                refuse!("no connection of {name} has '{text}' in its name; there is {names}");
            }
        }
        Ok(all)
    }
}
