//! `linerate demo`: a path that is slow one way, from the measurement to a proven remedy and a page of it.

use super::prove::picture::Pairs;
use crate::files::{check_writable, write_whole};
use crate::pages::run_page;
use crate::prelude::*;
use engine::closed_loop::{ClosedLoop, TuneQuestion, measured};
use engine::experiment::{ExperimentRunner, Over, fresh};
use engine::iperf3::client;
use engine::peer::{Opening, PeerSession};
use engine::record::blank;
use engine::{chance, lab, tuning};
use model::{Directions, LegSummary, Look, Tuning};
use prove::plan::usual_run;
use report::pages::Demonstration;
use report::tune::Judged;
use report::words::wrap;
use wire::control::TuneRequest;

/// Demonstrate diagnosis, fix and proof on an emulated path
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate demo
  linerate demo -o berkeley.html

Takes three minutes, and root or a user who may make user namespaces. Nothing
outside the emulated path is changed. The runs are kept: 'linerate runs list'.")]
pub struct Demo {
    /// Where the page goes
    #[arg(short, long, value_name = "FILE", default_value = "linerate-demo.html")]
    output: PathBuf,
    /// No live view
    #[arg(short, long)]
    quiet: bool,
    /// Where the agent listens whose control connection is standard input: this process is the local
    /// end inside the lab
    #[arg(long, hide = true, value_name = "ADDRESS")]
    lab_remote: Option<IpAddr>,
}

const LAB: &str = "berkeley-chicago";
/// Of each way: long enough for the slow one to show how it goes on.
const MEASURED: Nanos = Nanos::from_secs(5);
/// Between two samples of it.
const INTERVAL: Nanos = Nanos::from_millis(100);
/// Of each run of an experiment, and what of it is not judged.
const RUN: Nanos = Nanos::from_millis(1500);
const RAMP: Nanos = Nanos::from_millis(500);
/// The smallest change that counts; runs of a lossy path differ by more, so that less would need hours.
const MARGIN: f64 = 0.2;
/// What gives a verdict on several proposals at once, in the time that there is.
const BLOCKS: u32 = 7;
/// And on one change.
const PAIRS: u32 = 8;
/// What most guides begin with where a transfer is slow: buffers, as much as they may be.
const POPULAR: &str = "buffers of 64 MiB=sysctl:net.ipv4.tcp_rmem=4096 131072 67108864@receiver,\
                       sysctl:net.ipv4.tcp_wmem=4096 65536 67108864@sender";

impl Demo {
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let Some(remote) = self.lab_remote else {
            check_writable(&self.output)?;
            if ::lab::Labs::of_user().open(LAB).is_ok() {
                refuse!(
                    "the lab {LAB} is up already, and the demo wants it fresh: take it down first (linerate lab down {LAB})"
                );
            }
            return lab::measure(LAB, None, self.quiet, stop);
        };
        let archive = global.archive_path()?;
        drop(Archive::open(&archive)?);
        let host = Host::Lab {
            name: LAB.to_owned(),
            hosts: None,
        };
        let opening = Opening {
            how: &|| global.how(Some(remote), stop),
            iperf3: &client::ClientOptions::default(),
        };
        let mut play = Play {
            host: host.to_string(),
            remote: host.open(&opening)?,
            view: View::new(Pairs::default(), self.quiet),
            archive,
            stop,
        };
        let story = play.story(lab::LabWatch::begin())?;
        drop(play);
        self.write(&story)
    }

    /// Writes the page, and says the most of it.
    fn write(&self, story: &Demonstration) -> Result<ExitCode> {
        let page = report::pages::demo(story);
        write_whole(&self.output, report::page::html(&page))?;
        let width = stdout_style().width;
        let mut words = String::new();
        for sentence in &page.verdict {
            words += &wrap(sentence, width, "", "  ");
        }
        let place = std::path::absolute(&self.output).unwrap_or_else(|_| self.output.clone());
        words += &format!("\nThe page: {}\n", place.display());
        out::print(&words)?;
        Ok(Exit::Done.into())
    }
}

/// What is played, on which path.
struct Play<'a> {
    host: String,
    remote: Box<dyn PeerSession>,
    view: View<Pairs>,
    archive: PathBuf,
    stop: &'a AtomicBool,
}

impl Play<'_> {
    fn story(&mut self, watch: lab::LabWatch) -> Result<Demonstration> {
        self.view
            .report("1 of 4: measures the path in both directions");
        let (run, why) = self.both_ways()?;
        for leg in model::summarise(&run).legs {
            let rate = leg.steady_goodput.unwrap_or(leg.goodput);
            self.view.report(&format!("{}: {rate}", leg.direction));
        }

        self.view
            .report("2 of 4: diagnoses the slow direction, proposes a fix and tests it");
        let (direction, seen) =
            slow(&run, &why).context("nothing was measured: is the machine too busy?")?;
        let (tuning, judged) = self.tune(direction, seen)?;

        self.view.report("3 of 4: restores all settings");
        let restored = self.restore()?;

        self.view
            .report("4 of 4: tests a popular remedy against the baseline");
        let popular = self.popular(direction)?;
        let archive = Archive::open(&self.archive)?;
        Ok(Demonstration {
            measured: run_page(&run, &why, Some(&archive.traces())),
            run,
            why,
            tuning,
            judged,
            popular,
            put_back: restored,
            warnings: watch.end(),
        })
    }

    fn both_ways(&mut self) -> Result<(Run, Vec<Explanation>)> {
        let spec = Spec {
            directions: Directions::UpThenDown,
            limit: LegLimit::Time(MEASURED),
            interval: INTERVAL,
            trace: true,
            ..usual_run()
        };
        let blank = blank(&self.host, spec);
        let (view, archive) = (&mut self.view, &self.archive);
        measured(blank, &mut *self.remote, archive, view, self.stop)
    }

    fn tune(&mut self, direction: Direction, seen: (Run, Look)) -> Result<(Tuning, Vec<Judged>)> {
        let question = TuneQuestion {
            host: self.host.clone(),
            reached_by: String::new(),
            direction,
            run: short(),
            rate: None,
            design: prove::PlanOptions {
                margin: Some(MARGIN),
                pairs: Some(vec![BLOCKS]),
                gap: Some(Nanos(0)),
                pilot_pairs: Some(0),
                seed: u64::from_be_bytes(chance::bytes()?),
                ..prove::PlanOptions::default()
            },
            rounds: 1,
            dry_run: false,
            persist: false,
        };
        let (view, archive) = (&mut self.view, self.archive.clone());
        let tuned = ClosedLoop::new(question, &mut *self.remote, archive, view, self.stop);
        let done = tuned.with(seen).run()?;
        Archive::open(&self.archive)?.store_tuning(&done.story)?;
        match done.broke {
            Some(error) => Err(error),
            None => Ok((done.story, done.experiments)),
        }
    }

    /// Takes back what was kept on both hosts; a line each.
    fn restore(&mut self) -> Result<Vec<String>> {
        let local = tuning::restore()?;
        let mut all: Vec<String> = local.iter().map(tuning::restored_line).collect();
        if let Some(link) = self.remote.agent() {
            let there = link.tune(TuneRequest::Restore)?.into_iter();
            all.extend(there.map(|r| format!("{}, back to {}", r.setting, r.found)));
        }
        for line in &all {
            self.view.report(&format!("undone: {line}"));
        }
        Ok(all)
    }

    fn popular(&mut self, direction: Direction) -> Result<Judged> {
        let plan = prove::plan_from_changes(prove::PlanOptions {
            host: self.host.clone(),
            margin: Some(MARGIN),
            direction: Some(direction),
            run: Some(short()),
            arms: vec![POPULAR.to_owned()],
            pairs: Some(vec![PAIRS]),
            gap: Some(Nanos(0)),
            seed: u64::from_be_bytes(chance::bytes()?),
            pilot_pairs: Some(0),
            ..prove::PlanOptions::default()
        })?;
        let mut experiment = fresh(plan);
        let (view, archive) = (&mut self.view, self.archive.clone());
        let driver =
            ExperimentRunner::new(&mut experiment, &mut *self.remote, archive, view, self.stop);
        match driver.run()? {
            Over::Done => Ok(prove::judged(experiment)),
            Over::Interrupted => Err(Refusal::interrupted("interrupted").into()),
        }
    }
}

fn short() -> Spec {
    Spec {
        limit: LegLimit::Time(RUN),
        ramp: Some(RAMP),
        ..usual_run()
    }
}

/// The way that carried less, as if it alone had been measured.
fn slow(run: &Run, why: &[Explanation]) -> Option<(Direction, (Run, Look))> {
    let legs = model::summarise(run).legs;
    let goodput = |leg: &LegSummary| leg.steady_goodput.unwrap_or(leg.goodput);
    let (n, leg) = legs
        .iter()
        .enumerate()
        .min_by_key(|(_, leg)| goodput(leg))?;
    let explanations = why.iter().filter(|e| e.direction == Some(leg.direction));
    let look = Look {
        run: run.id.clone(),
        goodput: goodput(leg),
        explanations: explanations.cloned().collect(),
    };
    let alone = Run {
        legs: vec![run.legs.get(n)?.clone()],
        ..run.clone()
    };
    Some((leg.direction, (alone, look)))
}
