//! The closed loop: measures a path, explains it, proposes settings, proves them, keeps what helps and
//! undoes the rest.

use crate::exit::{Exit, exit_of};
use crate::experiment::{Audience, DEADLINE, ExperimentRunner, Over, fresh, patience};
use crate::host_settings::{self, HostSettings};
use crate::leg::{failed_with, how_ended};
use crate::peer::PeerSession;
use crate::prelude::*;
use crate::progress::Tee;
use crate::record::{RunArchiver, blank};
use crate::{mtu, traces, tuning};
use advise::{Choice, PathHosts, PathSample, arms, choose, proven_alone, together};
use archive::Traces;
use model::advice::Proposal;
use model::finding::Explanation;
use model::{
    Attempt, Directions, Experiment, Fate, Knob, Look, On, Outcome, Plan, Reading, Round, Setting,
    SocketKnob, TUNING_SCHEMA, Tuning, Value, Verdict,
};
use prove::plan::fewest_blocks;
use report::words::shown;

/// What is to be tuned, and how carefully.
pub struct TuneQuestion {
    /// The remote host as the user named it.
    pub host: String,
    /// Options by which it was reached, as for a shell.
    pub reached_by: String,
    /// Which way the data goes.
    pub direction: Direction,
    /// The order for every run; its directions are not looked at.
    pub run: Spec,
    /// What the path is to carry, if the user knows.
    pub rate: Option<BitRate>,
    /// The design of its experiments: margin, pairs, gap, pilot and seed.
    pub design: prove::PlanOptions,
    /// So often at most: after something helped, the next limit shows.
    pub rounds: u32,
    /// Show what would be done, and change nothing.
    pub dry_run: bool,
    /// Write what was kept to the boot configuration of the hosts.
    pub persist: bool,
}

/// A path that is being tuned.
pub struct ClosedLoop<'a> {
    question: TuneQuestion,
    remote: &'a mut dyn PeerSession,
    archive: PathBuf,
    audience: &'a mut dyn Audience,
    stop: &'a AtomicBool,
    story: Tuning,
    experiments: Vec<(Experiment, Verdict)>,
    seen: Option<(Run, Look)>,
    /// The remote host's address; with an iperf3 server it is known after a run.
    peer: Option<IpAddr>,
}

/// How it came out.
pub struct TuningResult {
    /// The story.
    pub story: Tuning,
    /// Its experiments, each with its verdict.
    pub experiments: Vec<(Experiment, Verdict)>,
    /// Experiments that would be made, of a dry run.
    pub plans: Vec<Plan>,
    /// Why it broke off, if it did.
    pub broke: Option<anyhow::Error>,
}

impl<'a> ClosedLoop<'a> {
    /// For a path whose runs are kept in the archive at `archive`.
    pub fn new(
        question: TuneQuestion,
        remote: &'a mut dyn PeerSession,
        archive: PathBuf,
        audience: &'a mut dyn Audience,
        stop: &'a AtomicBool,
    ) -> ClosedLoop<'a> {
        let story = Tuning {
            schema: TUNING_SCHEMA,
            id: archive::new_id(),
            started: unix_time(),
            host: question.host.clone(),
            reached_by: question.reached_by.clone(),
            direction: question.direction,
            dry_run: question.dry_run,
            rounds: Vec::new(),
            kept: Vec::new(),
            after: None,
            lasting: Vec::new(),
            warnings: Vec::new(),
            ended: Ended::Unfinished,
        };
        ClosedLoop {
            question,
            peer: remote.address(),
            remote,
            archive,
            audience,
            stop,
            story,
            experiments: Vec::new(),
            seen: None,
        }
    }

    /// The path has been measured already: its one leg is the way that is to be tuned.
    pub fn with(mut self, seen: (Run, Look)) -> ClosedLoop<'a> {
        self.seen = Some(seen);
        self
    }

    /// Goes through all of it until nothing more helps. However it ends, what was not kept is undone.
    ///
    /// # Errors
    /// If the path could not be measured. Later failures are part of the story.
    pub fn run(mut self) -> Result<TuningResult> {
        let mut plans = Vec::new();
        let outcome = self.go(&mut plans);
        self.story.ended = match &outcome {
            Ok(()) => Ended::Complete,
            Err(error) if exit_of(error) == Exit::Interrupted => Ended::Interrupted,
            Err(error) => failed_with(error),
        };
        let broke = match outcome {
            Err(error) if self.story.rounds.is_empty() => return Err(error),
            outcome => outcome.err(),
        };
        if self.question.persist {
            self.persist();
        }
        Ok(TuningResult {
            story: self.story,
            experiments: self.experiments,
            plans,
            broke,
        })
    }

    fn go(&mut self, plans: &mut Vec<Plan>) -> Result<()> {
        // What is wrong with the question is said before anything moves.
        let any = Setting {
            knob: Knob::Socket(SocketKnob::Nodelay),
            value: Value::Switch(true),
            on: On::Both,
        };
        self.plan_of(&["any".to_owned()], &[vec![any]], Vec::new())?;
        let mut seen = match self.seen.take() {
            Some(seen) => seen,
            None => {
                self.audience.note("measures the baseline");
                self.measure()?
            }
        };
        if PathSample::of(&seen.0, 0).is_none() {
            self.audience
                .note("too few bytes moved to estimate what the path needs: measures again");
            seen = self.measure()?;
        }
        let mut next = Some(seen);
        for _ in 0..self.question.rounds {
            let Some((run, look)) = next.take() else {
                break;
            };
            next = self.round(&run, look, plans)?;
        }
        Ok(())
    }

    /// From a measurement to what is kept; the path with that, if there is anything.
    fn round(
        &mut self,
        run: &Run,
        look: Look,
        plans: &mut Vec<Plan>,
    ) -> Result<Option<(Run, Look)>> {
        self.audience.note(&report::tune::seen(&look));
        let routed = || run.local.route.as_ref()?.destination;
        self.peer = self.peer.or_else(routed);
        let mut way = PathSample::of(run, 0)
            .context("too few bytes moved to estimate what the path needs")?;
        way.user_rate = self.question.rate;
        way.mtu = mtu::known(&self.archive, &self.question.host, self.question.direction);
        let hosts = PathHosts {
            local: &run.local,
            remote: run.remote.as_ref(),
        };
        let advice = advise::propose(&way, hosts, &look.explanations);
        let proposals = advice.proposals.clone();
        self.story.rounds.push(Round {
            before: look,
            advice,
            attempts: vec![untried(Vec::new(), None); proposals.len()],
            experiments: Vec::new(),
        });
        if self.question.dry_run {
            let tried: Vec<Vec<Setting>> = proposals.iter().map(Proposal::settings).collect();
            let arms = arms(&tried);
            if !arms.is_empty() {
                plans.push(self.plan(&proposals, &tried, &arms)?);
            }
            return Ok(None);
        }
        let mut tried: Vec<Vec<Setting>> = Vec::new();
        for (n, proposal) in proposals.iter().enumerate() {
            let attempt = self.able(proposal)?;
            tried.push(attempt.settings.clone());
            self.attempts()[n] = attempt;
        }
        let arms = arms(&tried);
        if arms.is_empty() {
            return Ok(None);
        }
        let plan = self.plan(&proposals, &tried, &arms)?;
        for (n, attempt) in self.attempts().iter_mut().enumerate() {
            let alone = arms.iter().position(|arm| *arm == [n]);
            attempt.arm = alone.map(|place| place as u32 + 1);
        }
        let verdict = self.experiment(plan)?;
        for attempt in self.attempts().iter_mut().filter(|a| a.arm.is_some()) {
            attempt.fate = Fate::Undone;
        }
        let proven = match choose(&arms, &verdict) {
            Choice::Nothing => return Ok(None),
            Choice::Keep(all) => all,
            Choice::Confirm { base, more } => {
                let all: Vec<usize> = base.iter().chain(&more).copied().collect();
                match self.confirm(&tried, &base, &all)? {
                    true => all,
                    false => base,
                }
            }
        };
        let alone = proven_alone(&arms, &verdict);
        for n in alone.iter().filter(|n| !proven.contains(n)) {
            self.attempts()[*n].fate = Fate::Surpassed;
        }
        self.keep(&tried, &proven, &alone)
    }

    fn attempts(&mut self) -> &mut Vec<Attempt> {
        &mut self.now().attempts
    }

    fn now(&mut self) -> &mut Round {
        let round = self.story.rounds.last_mut();
        round.expect("proposals and experiments are of a round")
    }

    // ---- measuring ----

    /// One run, traced as far as the ends may, and what explains it.
    fn measure(&mut self) -> Result<(Run, Look)> {
        let spec = Spec {
            directions: match self.question.direction {
                Direction::Up => Directions::Up,
                Direction::Down => Directions::Down,
            },
            trace: self.remote.agent().is_some(),
            ..self.question.run.clone()
        };
        let mut run = blank(&self.question.host, spec);
        run.title = Some(format!("tuning {}", shown(&self.story.id)));
        let (run, explanations) =
            measured(run, self.remote, &self.archive, self.audience, self.stop)?;
        let summary = model::summarise(&run);
        let leg = summary.legs.first().context("nothing was measured")?;
        let look = Look {
            run: run.id.clone(),
            goodput: leg.steady_goodput.unwrap_or(leg.goodput),
            explanations,
        };
        Ok((run, look))
    }

    // ---- proving ----

    /// What can be tried for a proposal: its settings, or else what stands in for them.
    fn able(&mut self, proposal: &Proposal) -> Result<Attempt> {
        let mut instead: Option<String> = None;
        for settings in [proposal.settings(), proposal.stand_in.clone()] {
            if settings.is_empty() {
                continue;
            }
            let names = [proposal.title.clone()];
            let plan = self.plan_of(&names, std::slice::from_ref(&settings), Vec::new())?;
            let mut experiment = fresh(plan);
            let tried = self.driver(&mut experiment).try_out();
            stopped(self.stop)?;
            match tried {
                Ok(_) => return Ok(untried(settings, instead)),
                Err(error) if self.remote.is_lost() => return Err(error),
                Err(error) => {
                    let before = instead.map_or(String::new(), |before| before + "; ");
                    instead = Some(before + &sentence(&error));
                }
            }
        }
        Ok(untried(Vec::new(), instead))
    }

    /// The experiment that tries these arms beside the present state.
    fn plan(
        &self,
        proposals: &[Proposal],
        tried: &[Vec<Setting>],
        arms: &[Vec<usize>],
    ) -> Result<Plan> {
        let mut names: Vec<String> = Vec::new();
        for arm in arms {
            let name = match arm[..] {
                [one] => proposals[one].title.clone(),
                _ => "all together".to_owned(),
            };
            let same = names.iter().filter(|n| **n == name).count();
            names.push(match same {
                0 => name,
                n => format!("{name} ({})", n + 1),
            });
        }
        let settings: Option<Vec<_>> = arms.iter().map(|arm| together(tried, arm)).collect();
        let settings = settings.context("two proposals contradict each other")?;
        self.plan_of(&names, &settings, Vec::new())
    }

    fn plan_of(
        &self,
        names: &[String],
        arms: &[Vec<Setting>],
        against: Vec<Setting>,
    ) -> Result<Plan> {
        let question = &self.question;
        let named = |(name, settings): (&String, &Vec<Setting>)| {
            let all: Vec<String> = settings.iter().map(Setting::to_string).collect();
            format!("{name}={}", all.join(","))
        };
        let several = arms.len() > 1;
        let plan = prove::plan_from_changes(prove::PlanOptions {
            title: Some(format!("tuning {}", shown(&self.story.id))),
            host: question.host.clone(),
            direction: Some(question.direction),
            run: Some(question.run.clone()),
            against,
            arms: names.iter().zip(arms).map(named).collect(),
            pairs: match (several, &question.design.pairs) {
                (false, pairs) => pairs.clone(),
                // They are judged once.
                (true, Some(pairs)) => {
                    let fewest = fewest_blocks(arms.len());
                    pairs.last().map(|n| vec![fewest.max(*n)])
                }
                (true, None) => Some(vec![BLOCKS]),
            },
            ..question.design.clone()
        });
        Ok(plan.map_err(|e| Refusal::usage(e.to_string()))?)
    }

    /// Makes an experiment, and judges it.
    fn experiment(&mut self, plan: Plan) -> Result<Verdict> {
        let mut experiment = fresh(plan);
        let over = self.driver(&mut experiment).run();
        let verdict = prove::judge(&experiment);
        if !experiment.trials.is_empty() {
            self.now().experiments.push(experiment.id.clone());
            self.experiments.push((experiment, verdict.clone()));
        }
        match over? {
            Over::Done => Ok(verdict),
            Over::Interrupted => Err(Refusal::interrupted("interrupted").into()),
        }
    }

    fn driver<'b>(&'b mut self, experiment: &'b mut Experiment) -> ExperimentRunner<'b> {
        let archive = self.archive.clone();
        ExperimentRunner::new(experiment, self.remote, archive, self.audience, self.stop)
    }

    /// Whether all of them do better than the best one alone, by fresh runs.
    fn confirm(&mut self, tried: &[Vec<Setting>], base: &[usize], all: &[usize]) -> Result<bool> {
        let (Some(with), Some(without)) = (together(tried, all), together(tried, base)) else {
            return Ok(false);
        };
        self.audience
            .note("confirms with fresh runs whether all together do better than the best one");
        let mut plan = self.plan_of(&["all together".to_owned()], &[with], without)?;
        plan.pilot_pairs = 0;
        Ok(self.experiment(plan)?.outcome == Outcome::Faster)
    }

    // ---- keeping ----

    /// Sets what was proven again, verifies the path with it over fresh connections, and keeps it.
    /// Options of linerate's own connections cannot be kept: the settings they stand for are reported.
    fn keep(
        &mut self,
        tried: &[Vec<Setting>],
        proven: &[usize],
        alone: &[usize],
    ) -> Result<Option<(Run, Look)>> {
        let of_the_machine = |n: &usize| tried[*n].iter().all(|s| !s.knob.is_socket());
        let (mut stay, to_report): (Vec<usize>, Vec<usize>) =
            proven.iter().copied().partition(of_the_machine);
        if !to_report.is_empty() {
            // Without the others only what was proven without them.
            stay.retain(|n| alone.contains(n));
        }
        for n in to_report {
            self.attempts()[n].fate = Fate::Recommended;
        }
        let Some(settings) = together(tried, &stay).filter(|all| !all.is_empty()) else {
            return Ok(None);
        };
        self.audience
            .note("sets what was proven, and measures again");
        let mut host_settings = HostSettings::open(self.question.direction);
        let kept = self.set_for_good(&mut host_settings, &settings);
        // After it was kept there is nothing left to undo.
        let undone = host_settings.end(self.remote);
        let seen = kept?;
        undone?;
        for n in stay {
            self.attempts()[n].fate = Fate::Kept;
        }
        Ok(Some(seen))
    }

    fn set_for_good(
        &mut self,
        host_settings: &mut HostSettings,
        settings: &[Setting],
    ) -> Result<(Run, Look)> {
        let (host, title) = (self.question.host.clone(), self.title());
        let deadline = patience(&self.question.run) + DEADLINE;
        host_settings.take(self.remote, settings, &host, &title, deadline)?;
        host_settings.apply(self.remote, settings, self.peer)?;
        if let Some(peer) = self.peer {
            // Where it cannot be flushed the experiment has said so.
            host_settings::forget(self.remote, peer);
        }
        let seen = self.measure()?;
        let readings = host_settings.verify(self.remote)?;
        if let Some(reading) = readings.iter().find(|r| !r.in_force) {
            let Reading {
                setting,
                found,
                asked,
                ..
            } = reading;
            bail!("{setting} was proven and could not be kept: it is {found}, asked {asked}");
        }
        let kept = host_settings.keep(self.remote)?;
        // What an earlier round kept of the same knob is not in force any more.
        let knob = |r: &Reading| (r.side, r.setting.split('=').next().map(str::to_owned));
        let old = &mut self.story.kept;
        old.retain(|old| kept.iter().all(|new| knob(new) != knob(old)));
        old.extend(kept);
        self.story.after = Some(seen.1.clone());
        Ok(seen)
    }

    /// What is kept, it is kept under.
    fn title(&self) -> String {
        format!("tuning {} of {}", shown(&self.story.id), self.question.host)
    }

    /// Has both hosts write down what they keep; that it could not be written takes nothing back.
    fn persist(&mut self) {
        let (title, peer) = (self.title(), self.peer);
        let keeps = |side| self.story.kept.iter().any(|r| r.side == side);
        let local = keeps(Side::Local).then(|| {
            let peer = peer.context("the remote host's address is not known")?;
            tuning::persist(&title, peer, Side::Local)
        });
        let there = self.remote.agent().filter(|_| keeps(Side::Remote));
        let there = there.map(|link| host_settings::persist(link, &title));
        for (host, lasting) in [("this host", local), ("the remote host", there)] {
            match lasting {
                Some(Ok(readings)) => self.story.lasting.extend(readings),
                Some(Err(error)) => self.story.warnings.push(Warning {
                    what: format!(
                        "{host} has not written down what it keeps: {}",
                        sentence(&error)
                    ),
                    meaning: "it is lost when that host reboots".to_owned(),
                    remedy: "fix that, and tune again with --persist".to_owned(),
                }),
                None => {}
            }
        }
    }
}

/// Plays a run of no experiment, keeps it in the archive at `archive`, and says what explains it.
///
/// # Errors
/// If it could not be measured to its end, or not be kept.
pub fn measured(
    mut run: Run,
    remote: &mut dyn PeerSession,
    archive: &Path,
    audience: &mut dyn Audience,
    stop: &AtomicBool,
) -> Result<(Run, Vec<Explanation>)> {
    let mut record = RunArchiver::new(Ok(archive.to_owned()), &run);
    audience.looks(&run.spec);
    let outcome = remote.play(&mut run, &mut Tee(vec![audience, &mut record]), stop);
    run.ended = how_ended(&outcome, &run.legs);
    record.settle(&run)?;
    outcome?;
    stopped(stop)?;
    let explanations = traces::explain(&run, &Traces::beside(archive));
    Ok((run, explanations))
}

fn stopped(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        bail!(Refusal::interrupted("interrupted"));
    }
    Ok(())
}

/// Blocks of an experiment with several arms by default; fresh pairs decide what they leave open.
const BLOCKS: u32 = 12;

fn untried(settings: Vec<Setting>, instead: Option<String>) -> Attempt {
    Attempt {
        settings,
        instead,
        arm: None,
        fate: Fate::Untried,
    }
}

#[cfg(test)]
mod tests;
