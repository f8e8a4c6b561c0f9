//! `linerate tune HOST`: from a measurement to settings that are proven to help.

use crate::commands::measure::options::LoadOptions;
use crate::commands::prove::picture::Pairs;
use crate::commands::prove::{DesignArgs, SessionArgs};
use crate::prelude::*;
use crate::{document, lookup};
use engine::closed_loop::{ClosedLoop, TuneQuestion, TuningResult};
use engine::exit::exit_of;
use engine::{lab, namespaces, tuning};
use model::advice::Foreign;
use model::{Directions, Plan, Tuning, Warning};
use prove::plan::USUAL_TIME;
use report::tune::Judged;

/// The closed loop.
#[derive(Args)]
pub struct TunePath {
    /// The remote host, as 'linerate measure' takes it
    host: Option<String>,
    #[command(flatten)]
    care: Care,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    session: SessionArgs,
    /// Also write the kept settings to the boot configuration of the hosts
    #[arg(long, help_heading = "What to tune")]
    persist: bool,
    #[command(flatten)]
    form: TuneForm,
}

/// How the story is printed.
#[derive(Args)]
#[command(next_help_heading = "Output")]
struct TuneForm {
    /// Print the result with its verdicts as JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// Also print the proven (in a dry run: proposed) settings for hosts with this system: freebsd, macos
    #[arg(long = "for", value_name = "SYSTEM", value_parser = parse_system, conflicts_with = "json")]
    system: Option<Foreign>,
}

fn parse_system(text: &str) -> Result<Foreign, String> {
    let found = Foreign::ALL.iter().find(|(name, _)| *name == text);
    found.map(|(_, system)| *system).ok_or_else(|| {
        "freebsd and macos are known; on Linux --persist writes the files themselves".to_owned()
    })
}

/// What is tuned, and how carefully.
#[derive(Args)]
#[command(next_help_heading = "What to tune")]
struct Care {
    #[command(flatten)]
    design: DesignArgs,
    /// Target rate of the path [default: from the devices and the measurement]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Rounds at most: after a proven fix the next limit is diagnosed
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10))]
    rounds: u32,
    /// Measure and print the proposals; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Print an archived tuning
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate tune show last --for freebsd")]
pub struct TuneShow {
    /// Name of the tuning, its first digits, or 'last'
    id: String,
    #[command(flatten)]
    form: TuneForm,
}

impl TunePath {
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let Some(name) = self.host.as_deref() else {
            refuse!(
                "tune what? Name a host (linerate tune HOST), or see what else there is: linerate tune --help"
            )
        };
        let host: Host = name.parse()?;
        let reached_by = self.session.reaching.words(global);
        let question = self.question(name, reached_by)?;
        if self.persist {
            host.supports(PeerOperation::Persist)?;
        }
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        if let Some(lab) = self.session.reaching.lab(&host) {
            let stays = lab::is_up(lab.name);
            let code = lab::measure(lab.name, lab.hosts, self.session.quiet, stop)?;
            if !stays && !self.care.dry_run {
                let name = lab.name;
                out::note(&format!(
                    "The lab {name} was up for this alone: what was kept is gone with it. 'linerate lab up {name}' first, and it stays."
                ));
            }
            return Ok(code);
        }
        tuning::recover();
        let archive = global.archive_path()?;
        drop(Archive::open(&archive)?);
        let mut view = View::new(Pairs::default(), self.session.quiet);
        let watch = host.watch();
        let mut remote = self.session.reach(&host, &question.run, global, stop)?;
        let done =
            ClosedLoop::new(question, &mut *remote, archive.clone(), &mut view, stop).run()?;
        drop(view);
        let TuningResult {
            mut story,
            experiments,
            plans,
            broke,
        } = done;
        story
            .warnings
            .extend(watch.into_iter().flat_map(lab::LabWatch::end));
        if let Some(place) = namespaces::own().filter(|_| host.lab().is_none())
            && !story.kept.is_empty()
        {
            story.warnings.push(Warning {
                what: format!("this host is {}", place.name),
                meaning: "other namespaces of this machine have other settings".to_owned(),
                remedy: format!("undo what is kept there: {}", place.undo()),
            });
        }
        Archive::open(&archive)?.store_tuning(&story)?;
        print(&story, &experiments, &self.form)?;
        if !self.form.json {
            plans.iter().try_for_each(forecast)?;
        }
        Ok(match broke {
            None => Exit::Done,
            Some(error) => {
                out::note(&format!("linerate: {}", sentence(&error)));
                exit_of(&error)
            }
        }
        .into())
    }

    fn question(&self, host: &str, reached_by: String) -> Result<TuneQuestion> {
        let (care, load) = (&self.care, &self.load);
        let limit = LegLimit::Time(USUAL_TIME);
        Ok(TuneQuestion {
            host: host.to_owned(),
            reached_by,
            direction: care.design.direction.unwrap_or(Direction::Up),
            run: load.spec(load.bulk(), Directions::Up, limit)?,
            rate: care.rate,
            design: care.design.options()?,
            rounds: care.rounds,
            dry_run: care.dry_run,
            persist: self.persist,
        })
    }
}

impl TuneShow {
    pub fn run(&self, global: &Global) -> Result<()> {
        let archive = lookup::open_existing(global)?;
        let story = archive.tuning(&self.id).map_err(lookup::refused)?;
        match document::load(&archive, &NamedDocument::Tuning(story.id))? {
            Document::Tuning(story, experiments) => {
                print(&story, &document::judged(experiments), &self.form)
            }
            _ => Ok(()),
        }
    }
}

fn print(story: &Tuning, judged: &[Judged], form: &TuneForm) -> Result<()> {
    if form.json {
        return out::print(&report::tune::json(story, judged));
    }
    out::print(&report::tune::story(story, judged, stdout_style()))?;
    if let Some(system) = form.system {
        let texts = advise::elsewhere(system, story);
        out::print(&report::tune::elsewhere(system, &texts))?;
    }
    Ok(())
}

/// What an experiment would take, and can show.
fn forecast(plan: &Plan) -> Result<()> {
    let forecast = prove::forecast(plan, &[]);
    let words = report::prove::forecast(plan, &forecast, stdout_style());
    out::print(&format!("\nTo prove it:\n{words}"))?;
    Ok(())
}
