//! `linerate explain`: what limited it, from a run, a trace or a file, or live.

pub(super) mod requests;
mod watch;

use crate::files::{confined, read_whole};
use crate::filter_args::FilterArgs;
use crate::inputs::{InputKind, bad, explained, kind, open, whole};
use crate::json_input::run_from;
use crate::lookup::Subject;
use crate::prelude::*;
use engine::{captures, traces};
use explain::{CaptureObserver, Joined};
use model::request::Links;

/// Explain what limited a transfer
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate explain last                        the newest run
  linerate explain run.json                    what 'measure --json' wrote
  linerate explain some.pcap                   a capture; headers are enough
  linerate explain here.pcap there.pcap        captures or traces of both hosts
  linerate explain --requests nfs.pcap --rate 1g
  linerate explain last --json | jq '.explanations[].conclusion'
  linerate explain --live --port 2049 --time 10s
  linerate explain --live --requests --port 5432

FILE is a run, a trace of linerate, a capture (pcap, pcapng) or the output of
DTrace's tcp.d, gzipped or not. A finding is certain, likely or possible.
docs/explain.md has the details.")]
pub struct Explain {
    /// Name of a run, its first digits, 'last', or a file [default: last]
    #[arg(value_name = "RUN|FILE")]
    subject: Option<String>,
    /// A trace or a capture of the remote host
    #[arg(value_name = "FILE")]
    other: Option<PathBuf>,
    /// Trace and explain what goes on now
    #[arg(long, conflicts_with = "subject")]
    live: bool,
    #[command(flatten)]
    which: FilterArgs,
    /// End after this time
    #[arg(short, long, value_name = "TIME", requires = "live")]
    time: Option<Nanos>,
    /// The requests of a capture or a trace: what each asked, and where its time went
    #[arg(long)]
    requests: bool,
    /// Rate of the links, for the ideal time of each request
    #[arg(long, requires = "requests")]
    rate: Option<BitRate>,
    /// Links between client and server
    #[arg(long, value_name = "N", default_value_t = 1, requires = "requests")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=255))]
    hops: u32,
    /// A JSON document
    #[arg(short = 'J', long)]
    json: bool,
}

impl Explain {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let links = Links {
            rate: self.rate.filter(|rate| rate.0 > 0),
            hops: self.hops,
        };
        if self.live {
            return match self.requests {
                true => requests::live(&self.which, self.time, links, self.json),
                false => watch::run(&self.which, self.time, self.json),
            };
        }
        let subject = self.subject.as_deref().unwrap_or("last");
        if self.which != FilterArgs::default() {
            refuse!("--port, --host, --pid, --netns and --cookie choose what --live watches");
        }
        if self.requests {
            return requests::run(subject, self.other.as_deref(), links, global, self.json);
        }
        let most = match self.json {
            true => usize::MAX,
            false => report::explain::NAMED,
        };
        let subject = match self.other {
            Some(_) => Subject::File(subject.into()),
            None => Subject::find(subject, global)?,
        };
        let mut files = subject.files();
        files.extend(self.other.clone());
        out::result(&confined(&files, || {
            let (explanations, clocks, host) = match (&subject, &self.other) {
                (Subject::File(one), Some(other)) => {
                    let both = both(one, other)?;
                    (both.explanations, both.clocks, None)
                }
                (subject, _) => {
                    let (explanations, host) = explanations(subject, most)?;
                    (explanations, None, host)
                }
            };
            let style = stdout_style();
            if let (Subject::Run(run, _), false) = (&subject, self.json)
                && run.spec.workload.is_udp()
            {
                return Ok(report::explain::datagrams(run, style));
            }
            Ok(if self.json {
                report::explain::json(&explanations, clocks.as_ref())
            } else {
                let clocks = clocks.map(|clocks| report::explain::clocks(&clocks, style));
                report::explain::text(&explanations, host.as_deref(), style)
                    + &clocks.map_or(String::new(), |clocks| format!("\n{clocks}"))
            })
        })?)
    }
}

/// The connections of a run or a file, and the host of the run. Of a capture, at most so many.
pub(super) fn explanations(
    subject: &Subject,
    most: usize,
) -> Result<(Vec<Explanation>, Option<String>)> {
    let path = match subject {
        Subject::Run(run, traces) => {
            return Ok((traces::explain(run, traces), Some(run.host.clone())));
        }
        Subject::File(path) => path,
    };
    match kind(path)? {
        InputKind::Capture => Ok((captured(path, most)?, None)),
        InputKind::Trace => Ok((explained(path)?, None)),
        InputKind::Listing => {
            let text = read_whole(path).map_err(|why| bad(path, why))?;
            let listing = explain::read_listing(&text);
            let explained = explain::explain_listing(&path.to_string_lossy(), &listing);
            Ok((vec![explained], None))
        }
        InputKind::Other => {
            let run = run_of(path).map_err(|why| bad(path, why))?;
            Ok((explain::explain(&run), Some(run.host)))
        }
    }
}

/// A run in a file that is nothing else that is understood.
fn run_of(path: &Path) -> Result<Run, String> {
    let what = match read_whole(path) {
        Ok(text) if text.trim_start().starts_with('{') => return run_from(&text),
        Ok(text) if text.is_empty() => "it is empty".to_owned(),
        Ok(_) => "unknown file format".to_owned(),
        Err(why) => why,
    };
    Err(format!(
        "{what}; supported: a capture (pcap, pcapng), a trace of linerate, the JSON of 'measure --json' or 'iperf3 -J', the output of DTrace's tcp.d"
    ))
}

/// The connections of two files, one from each end.
fn both(a: &Path, b: &Path) -> Result<Joined> {
    let names = (a.display().to_string(), b.display().to_string());
    Ok(match (kind(a)?, kind(b)?) {
        (InputKind::Trace, InputKind::Trace) => {
            let (a, b) = (whole(a)?, whole(b)?);
            explain::explain_traces((&names.0, &a), (&names.1, &b))
        }
        (InputKind::Capture, InputKind::Capture) => {
            let (a, doubts_a) = observed(a, CaptureObserver::of_two())?;
            let (b, doubts_b) = observed(b, CaptureObserver::of_two())?;
            let mut joined = explain::joined((&names.0, a), (&names.1, b));
            add(&mut joined.explanations, [doubts_a, doubts_b].concat());
            joined
        }
        _ => {
            refuse!(
                "cannot explain {} and {} together: give two traces or two captures; to compare transfers there is 'linerate diff'",
                names.0,
                names.1
            );
        }
    })
}

/// The connections of a capture, at most so many; a damaged file is explained as far as it goes.
fn captured(path: &Path, most: usize) -> Result<Vec<Explanation>> {
    let (observer, mut doubts) = observed(path, CaptureObserver::of_most(most))?;
    let mut explained = observer.explain();
    doubts.extend(explained.doubts);
    add(&mut explained.explanations, doubts);
    Ok(explained.explanations)
}

/// Shows a capture to an observer; returns what was skipped.
fn observed(path: &Path, mut observer: CaptureObserver) -> Result<(CaptureObserver, Vec<String>)> {
    let account = captures::read(open(path)?, |packet| observer.push(packet));
    let account = account.map_err(|e| bad(path, e))?;
    observer.begin(account.began.unwrap_or_default());
    Ok((observer, account.left_out()))
}

/// Says doubts of a capture as a whole with its first connection.
fn add(explanations: &mut [Explanation], doubts: Vec<String>) {
    match explanations.first_mut() {
        Some(first) => first.doubts.extend(doubts),
        None => doubts.iter().for_each(|doubt| out::note(doubt)),
    }
}
