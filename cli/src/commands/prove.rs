//! `linerate prove`: does this change help on this path?

mod from;
pub(in crate::commands) mod picture;

use super::measure::options::LoadOptions;
use crate::files::write_whole;
use crate::global::{Reaching, by_name};
use crate::prelude::*;
use clap::{ArgGroup, Subcommand};
use engine::exit::exit_of;
use engine::experiment::{ExperimentRunner, Over, fresh};
use engine::iperf3::client;
use engine::peer::PeerSession;
use engine::{chance, lab, tuning};
use model::{Directions, Estimand, Metric, Outcome, Plan, Setting, Verdict};
use picture::Pairs;
use prove::plan::{USUAL_TIME, usual_run};
use report::pictures::{bars, drift, forest, pairs};
use report::words::shown;

/// Test in a randomised experiment whether a change helps
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "EXAMPLES
  linerate prove lab:berkeley-chicago --change congestion=bbr
  linerate prove lab:paths/mine.toml --change sockbuf=8M
  linerate prove db2 --change sockbuf=8M --direction down --margin 10%
  linerate prove db2 --change route.initcwnd=32 --metric completion --bytes 200K
  linerate prove db2 --arm bbr=congestion=bbr --arm big=sockbuf=8M
  linerate prove db2 --change congestion=bbr --dry-run > plan.toml
  linerate prove plan.toml --svg pictures
  linerate prove resume 3f2a                  after Ctrl-C or a crash
  linerate prove show last --markdown
  linerate prove --from table.csv             judges published numbers
  linerate prove --from old=a.json,b.json new=3f,41

Runs with the change and the baseline alternate in random pairs. The verdict is
FASTER, SLOWER, EQUIVALENT, NOT ENOUGH DATA or NO VERDICT; the
exit status is 0, 10, 11, 12 or 13. Changes are undone after each run, also if
this command is killed. 'linerate tune knobs' lists what can be changed.")]
pub struct Prove {
    #[command(subcommand)]
    action: Option<ProveAction>,
    /// The remote host, as 'linerate measure' takes it, or a plan
    #[arg(value_name = "HOST|PLAN.toml")]
    what: Option<String>,
    #[command(flatten)]
    question: Question,
    #[command(flatten)]
    load: LoadOptions,
    /// Print the plan and its duration; touch nothing
    #[arg(long, help_heading = "The question")]
    dry_run: bool,
    /// Judge other numbers: a CSV table, or arms as NAME=RUN,RUN; a RUN is an archived one or a JSON file
    /// of linerate or iperf3
    #[arg(long, num_args = 1.., value_name = "TABLE|NAME=RUN,...", help_heading = "The question")]
    #[arg(conflicts_with_all = ["what", "change", "arm", "dry_run", "markdown", "csv", "svg", "p_value"])]
    from: Vec<String>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    output: ProveOutput,
}

#[derive(Subcommand)]
enum ProveAction {
    /// Resume an interrupted experiment; its runs so far count
    Resume(KeptRun),
    /// Run an experiment again: the same plan, in the same order
    Again(KeptRun),
    Show(ProveShow),
}

/// An experiment of the archive, and how its runs are made.
#[derive(Args)]
struct KeptRun {
    /// Name of the experiment, its first digits, or 'last'
    id: String,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    output: ProveOutput,
}

/// Judge an archived experiment again and print the verdict
#[derive(Args)]
struct ProveShow {
    /// Name of the experiment, its first digits, or 'last'
    id: String,
    #[command(flatten)]
    output: ProveOutput,
}

/// What is compared.
#[derive(Args, Clone, Default, PartialEq)]
#[command(next_help_heading = "The question")]
struct Question {
    /// The change: KNOB=VALUE[@local|@remote|@both|@sender|@receiver]; several together are one change
    #[arg(long, value_name = "K=V")]
    change: Vec<Setting>,
    /// Settings of the baseline [default: none]
    #[arg(long, value_name = "K=V")]
    against: Vec<Setting>,
    /// A further arm to compare with the baseline: NAME=K=V,K=V
    #[arg(long, value_name = "NAME=...")]
    arm: Vec<String>,
    /// Halve the arms round by round, then confirm the best one with fresh runs
    #[arg(long)]
    search: bool,
    /// Figure to compare: goodput, completion, latency-p50 or latency-p99
    #[arg(long, default_value = "goodput")]
    metric: Metric,
    /// typical: a usual run; total: all runs together, rare stalls included
    #[arg(long, default_value = "typical")]
    estimand: Estimand,
    #[command(flatten)]
    design: DesignArgs,
    /// A note kept with the experiment
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

/// Options of an experiment that `tune` has as well.
#[derive(Args, Clone, Default, PartialEq)]
pub(in crate::commands) struct DesignArgs {
    /// Direction of the data: up (from here to HOST) or down [default: up]
    #[arg(long, value_name = "WAY", value_parser = by_name::<Direction>(["up", "down"]))]
    pub direction: Option<Direction>,
    /// Equivalence margin: the smallest change that counts [default: 5%; of latency 10%]
    #[arg(long, value_name = "SHARE", value_parser = model::parse_share)]
    pub margin: Option<f64>,
    /// Pairs at each look, or one fixed number [default: 8,12,16,20; of several proposals in tune 12]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub pairs: Option<Vec<u32>>,
    /// Pause before each run [default: 3s]
    #[arg(long, value_name = "TIME")]
    pub gap: Option<Nanos>,
    /// Pairs without a change before the experiment, to estimate the noise [default: 6]
    #[arg(long, value_name = "N")]
    pub pilot: Option<u32>,
    /// Seed of the order of the runs [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl DesignArgs {
    fn seed(&self) -> Result<u64> {
        match self.seed {
            Some(seed) => Ok(seed),
            None => Ok(u64::from_be_bytes(chance::bytes()?)),
        }
    }

    /// What of a plan these options are.
    pub fn options(&self) -> Result<prove::PlanOptions> {
        Ok(prove::PlanOptions {
            direction: self.direction,
            margin: self.margin,
            pairs: self.pairs.clone(),
            gap: self.gap,
            pilot_pairs: self.pilot,
            seed: self.seed()?,
            ..prove::PlanOptions::default()
        })
    }
}

/// How the remote host is reached, and what is shown meanwhile.
#[derive(Args)]
pub(in crate::commands) struct SessionArgs {
    #[command(flatten)]
    iperf3: client::ClientOptions,
    #[command(flatten)]
    pub(in crate::commands) reaching: Reaching,
    /// No live view
    #[arg(short, long, help_heading = "Output")]
    pub(in crate::commands) quiet: bool,
}

/// What is printed, and how.
#[derive(Args)]
#[command(next_help_heading = "Output")]
#[command(group = ArgGroup::new("form"))]
struct ProveOutput {
    /// The experiment with its verdict as JSON
    #[arg(short = 'J', long, group = "form")]
    json: bool,
    /// Its page as Markdown, like 'linerate report -f markdown'
    #[arg(long, group = "form")]
    markdown: bool,
    /// The runs as CSV
    #[arg(long, group = "form")]
    csv: bool,
    /// Also write pictures into this directory: bars.svg, drift.svg, forest.svg and, of two arms, pairs.svg
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Print p-values too
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    p_value: bool,
}

impl Prove {
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let exit = match &self.action {
            Some(ProveAction::Show(show)) => show.run(global),
            Some(ProveAction::Resume(kept)) => return kept.resume(global),
            Some(ProveAction::Again(kept)) => return kept.again(global),
            None if !self.from.is_empty() => {
                let Question { metric, design, .. } = &self.question;
                let margin = design.margin.unwrap_or(metric.usual_margin());
                let direction = design.direction.unwrap_or(Direction::Up);
                from::from(&self.from, margin, direction, self.output.json, global)
            }
            None => {
                let plan = self.plan()?;
                if !self.dry_run {
                    return carry_out(fresh(plan), &self.session, &self.output, global);
                }
                print_plan(&plan)
            }
        };
        exit.map(ExitCode::from)
    }

    /// The plan of a file, or the one that the options make.
    fn plan(&self) -> Result<Plan> {
        let Some(what) = self.what.as_deref() else {
            refuse!(
                "prove what? Name a host and a change (linerate prove HOST --change congestion=bbr) or a plan (linerate prove plan.toml)"
            )
        };
        let question = &self.question;
        if is_plan(what) {
            let seed = question.design.seed()?;
            let text = std::fs::read_to_string(what)
                .map_err(|e| Refusal::usage(format!("cannot read the plan {what}: {e}")))?;
            let plan = prove::parse_plan(&text, what, seed).map_err(refused)?;
            if self.differs_from_a_plan() {
                refuse!(
                    "{what} has the whole question: leave out the options of the question and of the runs, or change the file"
                );
            }
            return Ok(Plan {
                seed: question.design.seed.unwrap_or(plan.seed),
                title: question.title.clone().or(plan.title),
                ..plan
            });
        }
        let workload = match question.metric.is_latency() {
            true => self.load.request(),
            false => self.load.bulk(),
        };
        let directions = match question.design.direction {
            Some(Direction::Down) => Directions::Down,
            _ => Directions::Up,
        };
        let limit = LegLimit::Time(USUAL_TIME);
        let run = self.load.spec(workload, directions, limit)?;
        let plan = prove::plan_from_changes(prove::PlanOptions {
            title: question.title.clone(),
            host: what.to_owned(),
            metric: question.metric,
            estimand: question.estimand,
            run: Some(run),
            against: question.against.clone(),
            changes: question.change.clone(),
            arms: question.arm.clone(),
            search: question.search,
            ..question.design.options()?
        });
        Ok(plan.map_err(refused)?)
    }

    /// Whether an option asks something that belongs into a plan: all but title and seed do.
    fn differs_from_a_plan(&self) -> bool {
        let usual = Question {
            title: self.question.title.clone(),
            design: DesignArgs {
                seed: self.question.design.seed,
                ..DesignArgs::default()
            },
            ..Question::default()
        };
        let (load, limit) = (&self.load, LegLimit::Time(USUAL_TIME));
        let run = load.spec(load.bulk(), Directions::Up, limit);
        self.question != usual || run.ok() != Some(usual_run())
    }
}

/// Whether this is the file of a plan: not a host, and not a lab of a file.
fn is_plan(what: &str) -> bool {
    lab::is_file(what) && !what.starts_with("lab:")
}

impl KeptRun {
    fn resume(&self, global: &Global) -> Result<ExitCode> {
        let experiment = kept(&self.id, global)?;
        if experiment.ended == Ended::Complete {
            let id = shown(&experiment.id);
            refuse!(
                "experiment {id} is complete: 'linerate prove show {id}' prints its verdict, 'linerate prove again {id}' runs it again"
            );
        }
        carry_out(experiment, &self.session, &self.output, global)
    }

    fn again(&self, global: &Global) -> Result<ExitCode> {
        let experiment = kept(&self.id, global)?;
        carry_out(fresh(experiment.plan), &self.session, &self.output, global)
    }
}

impl ProveShow {
    fn run(&self, global: &Global) -> Result<Exit> {
        let experiment = kept(&self.id, global)?;
        let verdict = prove::judge(&experiment);
        self.output.print(&experiment, &verdict)?;
        Ok(exit_for(verdict.outcome))
    }
}

fn kept(name: &str, global: &Global) -> Result<Experiment> {
    crate::lookup::open_existing(global)?
        .experiment(name)
        .map_err(crate::lookup::refused)
}

fn print_plan(plan: &Plan) -> Result<Exit> {
    let forecast = prove::forecast(plan, &[]);
    let words = report::prove::forecast(plan, &forecast, report::Style::PLAIN);
    let mut text: String = words.lines().map(|line| format!("# {line}\n")).collect();
    text += &prove::to_toml(plan);
    out::result(&text)
}

/// Makes the runs that are missing, and prints the verdict.
fn carry_out(
    mut experiment: Experiment,
    session: &SessionArgs,
    output: &ProveOutput,
    global: &Global,
) -> Result<ExitCode> {
    let host: Host = experiment.plan.host.parse()?;
    let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
    if let Some(lab) = session.reaching.lab(&host) {
        return lab::measure(lab.name, lab.hosts, session.quiet, stop);
    }
    tuning::recover();
    let archive = global.archive_path()?;
    // It could not be resumed if it could not be kept.
    drop(Archive::open(&archive)?);
    let mut view = View::new(Pairs::default(), session.quiet);
    let watch = host.watch();
    let mut remote = session.reach(&host, &experiment.plan.run, global, stop)?;
    let outcome = ExperimentRunner::new(
        &mut experiment,
        &mut *remote,
        archive.clone(),
        &mut view,
        stop,
    )
    .run();
    drop(view);
    if let Some(watch) = watch {
        experiment.warnings.extend(watch.end());
        if !experiment.trials.is_empty() {
            Archive::open(&archive)?.update_experiment(&experiment)?;
        }
    }
    let outcome = match outcome {
        // Nothing was made: the error is the whole story.
        Err(error) if experiment.trials.is_empty() => return Err(error),
        outcome => outcome,
    };
    let verdict = prove::judge(&experiment);
    output.print(&experiment, &verdict)?;
    let (exit, why) = match outcome {
        Ok(Over::Done) => return Ok(exit_for(verdict.outcome).into()),
        Ok(Over::Interrupted) if experiment.trials.is_empty() => {
            return Err(Refusal::interrupted(
                "stopped before the first run; all settings restored",
            )
            .into());
        }
        Ok(Over::Interrupted) => (Exit::Interrupted, "interrupted".to_owned()),
        Err(error) => (exit_of(&error), sentence(&error)),
    };
    out::note(&format!(
        "linerate: {why}; what was changed is undone, {} runs are kept: 'linerate prove resume {}' goes on",
        experiment.trials.len(),
        shown(&experiment.id)
    ));
    Ok(exit.into())
}

impl SessionArgs {
    /// A session for runs of `spec`.
    ///
    /// # Errors
    /// If the host cannot be reached or does not support them.
    pub(in crate::commands) fn reach(
        &self,
        peer: &Host,
        spec: &Spec,
        global: &Global,
        stop: &AtomicBool,
    ) -> Result<Box<dyn PeerSession>> {
        peer.supports(PeerOperation::Measure(spec))?;
        self.reaching
            .open(peer, spec, &self.iperf3, model::Nanos(0), global, stop)
    }
}

impl ProveOutput {
    fn print(&self, experiment: &Experiment, verdict: &Verdict) -> Result<()> {
        if let Some(directory) = &self.svg {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make the directory {}", directory.display()))?;
            // Pairs are of two arms: other plans have no picture of them.
            let pictures = [
                bars::of_experiment(experiment, verdict),
                forest::of_experiment(experiment, verdict),
                pairs::picture(experiment, verdict),
                drift::picture(experiment, verdict),
            ];
            for picture in pictures.iter().flatten() {
                let file = directory.join(format!("{}.svg", picture.id));
                write_whole(&file, report::page::svg(picture))?;
            }
        }
        out::print(&if self.json {
            report::prove::json(experiment, verdict)
        } else if self.markdown {
            report::page::markdown(&report::pages::experiment(experiment, verdict))
        } else if self.csv {
            report::prove::csv(experiment)
        } else {
            report::prove::verdict(experiment, verdict, stdout_style())
        })?;
        if self.p_value {
            out::print(&report::prove::p_values(experiment, verdict))?;
        }
        Ok(())
    }
}

/// Each verdict has its exit status.
fn exit_for(outcome: Outcome) -> Exit {
    match outcome {
        Outcome::Faster => Exit::Done,
        Outcome::Slower => Exit::Slower,
        Outcome::NoDifference => Exit::NoDifference,
        Outcome::NotEnoughData => Exit::NotEnoughData,
        Outcome::NoVerdict => Exit::NoVerdict,
    }
}

fn refused(error: prove::PlanError) -> Refusal {
    Refusal::usage(error.to_string())
}
