//! Drives an experiment: one run after the other in the order of its plan, each with the settings of
//! its arm applied, read back and undone again, and kept before the next one begins.

use crate::clock::wait_until;
use crate::exit::{Exit, exit_of};
use crate::host_settings::{self, HostSettings};
use crate::leg::{failed_with, how_ended};
use crate::peer::PeerSession;
use crate::prelude::*;
use crate::progress::Tee;
use crate::record::{RunArchiver, blank};
use archive::Archive;
use model::{
    EXPERIMENT_SCHEMA, Experiment, Fingerprint, Plan, Reading, Setting, Trial, TrialPhase,
    apply_to_spec,
};
use prove::TrialSlot;
use prove::trial::{of_run, without_run};
use report::words::shown;

/// What was changed is undone so long after the last word of this process.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// How often the hold on both hosts is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How soon Ctrl-C is noticed.
const LOOK: Duration = Duration::from_millis(50);
/// How long a run by bytes or requests may take.
const LONGEST_RUN: Duration = Duration::from_secs(600);
/// A run by time may take this much longer, for its connections and its last bytes.
const GRACE: Duration = Duration::from_secs(30);
/// Bytes of a try-out run: enough for the live sockets to be looked at.
const TRY_OUT_BYTES: Bytes = Bytes(128 << 10);

/// An experiment of this plan that begins now, and of which nothing is known yet.
pub fn fresh(plan: Plan) -> Experiment {
    Experiment {
        schema: EXPERIMENT_SCHEMA,
        id: archive::new_id(),
        started: unix_time(),
        plan,
        local: Fingerprint::default(),
        remote: None,
        trials: Vec::new(),
        warnings: Vec::new(),
        ended: Ended::Unfinished,
    }
}

/// Receives the progress of experiments, besides the events of each of their runs.
pub trait Audience: Watcher {
    /// What is done next, or was found, in a sentence.
    fn note(&mut self, words: &str);
    /// A run by itself begins, of no experiment.
    fn looks(&mut self, spec: &Spec);
    /// The next run is that of `slot`; its pause begins.
    fn begins(&mut self, experiment: &Experiment, slot: TrialSlot);
    /// A trial was kept: it is the last of the experiment.
    fn kept(&mut self, experiment: &Experiment);
}

/// An experiment under way. Dropped, it undoes what it changed.
pub struct ExperimentRunner<'a> {
    experiment: &'a mut Experiment,
    remote: &'a mut dyn PeerSession,
    archive: PathBuf,
    audience: &'a mut dyn Audience,
    stop: &'a AtomicBool,
    /// The settings of both hosts, as far as arms change them.
    host_settings: HostSettings,
}

/// How an experiment that did not break ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// No further run is needed.
    Done,
    /// The user stopped it.
    Interrupted,
}

impl<'a> ExperimentRunner<'a> {
    /// For an experiment, new or begun, with runs kept in the archive at `archive`.
    pub fn new(
        experiment: &'a mut Experiment,
        remote: &'a mut dyn PeerSession,
        archive: PathBuf,
        audience: &'a mut dyn Audience,
        stop: &'a AtomicBool,
    ) -> ExperimentRunner<'a> {
        ExperimentRunner {
            host_settings: HostSettings::open(experiment.plan.direction),
            experiment,
            remote,
            archive,
            audience,
            stop,
        }
    }

    /// Makes all runs that are missing. Before the first, every arm is tried with some kilobytes, so that a change
    /// that the kernel refuses costs no time and leaves nothing.
    ///
    /// # Errors
    /// Why it cannot begin, or go on; what was changed is undone. Once a trial is kept, the experiment
    /// can be resumed.
    pub fn run(mut self) -> Result<Over> {
        let outcome = self.play();
        let undone = self.host_settings.end(self.remote);
        let outcome = outcome.and_then(|over| undone.map(|()| over));
        let ended = match &outcome {
            Ok(Over::Done) => Ended::Complete,
            Ok(Over::Interrupted) => Ended::Interrupted,
            Err(error) => failed_with(error),
        };
        if !self.experiment.trials.is_empty() {
            self.experiment.ended = ended;
            Archive::open(&self.archive)?.update_experiment(self.experiment)?;
        }
        outcome
    }

    /// Tries every arm with some kilobytes, and lets go of both hosts: can the plan be carried out?
    ///
    /// # Errors
    /// Why the plan cannot be carried out; both hosts are restored.
    pub fn try_out(mut self) -> Result<Over> {
        let outcome = self.take_hold().and_then(|()| self.try_arms(false));
        let undone = self.host_settings.end(self.remote);
        outcome.and_then(|over| undone.map(|()| over))
    }

    fn play(&mut self) -> Result<Over> {
        let mut archive = Archive::open(&self.archive)?;
        self.take_hold()?;
        let new = self.experiment.trials.is_empty();
        if self.try_arms(new)? == Over::Interrupted {
            return Ok(Over::Interrupted);
        }
        if new {
            archive.begin_experiment(self.experiment)?;
        }
        let mut next = match new {
            true => prove::next(&self.experiment.plan, &self.experiment.trials),
            false => prove::resume(&self.experiment.plan, &self.experiment.trials),
        };
        while let Some(slot) = next {
            self.audience.begins(self.experiment, slot);
            let Some(trial) = self.trial(slot)? else {
                return Ok(Over::Interrupted);
            };
            archive.store_trial(self.experiment, &trial)?;
            self.experiment.trials.push(trial);
            self.audience.kept(self.experiment);
            if self.remote.is_lost() {
                let host = &self.experiment.plan.host;
                bail!(Refusal::unreachable(format!(
                    "{host} was lost during a run"
                )));
            }
            next = prove::next(&self.experiment.plan, &self.experiment.trials);
        }
        Ok(Over::Done)
    }

    /// One run with everything around it; `None` if the user stopped it.
    fn trial(&mut self, slot: TrialSlot) -> Result<Option<Trial>> {
        let number = self.experiment.trials.last().map_or(0, |t| t.number) + 1;
        let mut run = self.blank(self.experiment.plan.spec_of(slot.arm));
        run.experiment = Some(self.experiment.id.clone());
        let arm = &self.experiment.plan.arms[slot.arm as usize];
        self.apply(&arm.settings.clone())?;
        self.flush();
        let begun = Instant::now();
        if !wait_until(begun + self.experiment.plan.gap.into(), self.stop) {
            self.undo()?;
            return Ok(None);
        }
        run.started = unix_time();
        let mut record = RunArchiver::new(Ok(self.archive.clone()), &run);
        let mut readings = Vec::new();
        let outcome = self.measure(&mut run, Some(&mut record), &mut readings);
        let lasted = Nanos::from(begun.elapsed()).since(self.experiment.plan.gap);
        let undone = self.undo();
        record.settle(&run)?;
        undone?;
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        Ok(Some(match outcome {
            // An iperf3 server that is not there any more is no failed run, and nor are all that would follow.
            Err(error)
                if run.legs.is_empty()
                    && (self.remote.is_lost() || self.remote.is_gone(&error)) =>
            {
                return Err(error);
            }
            Err(error) if run.legs.is_empty() => {
                without_run(slot, number, run.started, lasted, sentence(&error))
            }
            _ => of_run(self.experiment, slot, number, &run, readings),
        }))
    }

    /// Tries every arm with a run of some kilobytes, nothing of which is kept: does the kernel take
    /// the settings, are they in force? The first, with nothing set, fingerprints both hosts.
    fn try_arms(&mut self, new: bool) -> Result<Over> {
        let mut plain = self.blank(short(&self.experiment.plan.run));
        self.measure(&mut plain, None, &mut Vec::new())?;
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Over::Interrupted);
        }
        if new {
            self.experiment.local = plain.local;
            self.experiment.remote = plain.remote;
            self.object();
        }
        for arm in 0..self.experiment.plan.arms.len() as u32 {
            let plan = &self.experiment.plan;
            let settings = plan.arms[arm as usize].settings.clone();
            let name = plan.arm_name(arm).to_owned();
            if settings.is_empty() {
                continue;
            }
            let mut spec = plan.run.clone();
            apply_to_spec(&settings, &mut spec.socket);
            let mut run = self.blank(short(&spec));
            let mut readings = Vec::new();
            let applied = self.apply(&settings);
            let outcome = applied.and_then(|()| self.measure(&mut run, None, &mut readings));
            self.undo()?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Over::Interrupted);
            }
            outcome.map_err(|error| match exit_of(&error) {
                // What this kernel does not take is an error of the plan.
                Exit::Failed => {
                    let why = format!("'{name}' cannot be tried: {}", sentence(&error));
                    Refusal::usage(why).into()
                }
                _ => error.context(format!("'{name}' cannot be tried")),
            })?;
            let slot = TrialSlot {
                phase: TrialPhase::Discarded,
                block: 0,
                position: 0,
                arm,
            };
            let trial = of_run(self.experiment, slot, 0, &run, readings);
            if let Some(reading) = trial.readings.iter().find(|r| !r.in_force) {
                bail!(Refusal::usage(not_in_force(&name, reading)));
            }
        }
        Ok(Over::Done)
    }

    /// Says which settings are known to do nothing, or only harm, on these kernels. The experiment goes
    /// on: showing that is what it is for.
    fn object(&mut self) {
        let experiment = &mut *self.experiment;
        let version = |side| match side {
            Side::Local => experiment.local.kernel_version(),
            Side::Remote => experiment.remote.as_ref()?.kernel_version(),
        };
        let settings = experiment.plan.arms.iter().flat_map(|arm| &arm.settings);
        let mut objections: Vec<Warning> = settings
            .filter_map(|setting| {
                let sides = setting.on.sides(experiment.plan.direction);
                let why = sides.iter().find_map(|s| setting.objection(version(*s)))?;
                Some(Warning {
                    what: format!("{setting}: {why}"),
                    meaning: "no gain is to be expected of it".to_owned(),
                    remedy: "keep it only if the verdict says that it helps".to_owned(),
                })
            })
            .collect();
        objections.sort();
        objections.dedup();
        for warning in &objections {
            self.audience.event(&Event::Warning { warning });
        }
        experiment.warnings.extend(objections);
    }

    /// Plays a run, and reads back the settings of its arm at its end.
    fn measure(
        &mut self,
        run: &mut Run,
        record: Option<&mut RunArchiver>,
        readings: &mut Vec<Reading>,
    ) -> Result<()> {
        let patience = patience(&run.spec);
        let over = AtomicBool::new(false);
        let mut late = false;
        let (remote, user, mut hold) = (&mut *self.remote, self.stop, self.host_settings.here());
        let mut tee = Tee(match record {
            Some(record) => vec![&mut *self.audience as &mut dyn Watcher, record],
            None => Vec::new(),
        });
        // The run is ended by a flag of its own, which the user sets, or the clock.
        let outcome = std::thread::scope(|scope| {
            let (done, end) = std::sync::mpsc::channel::<()>();
            let (over, late) = (&over, &mut late);
            scope.spawn(move || {
                let until = Instant::now() + patience;
                let mut renewed = Instant::now();
                while end.recv_timeout(LOOK) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    *late |= Instant::now() >= until;
                    if *late || user.load(Ordering::Relaxed) {
                        over.store(true, Ordering::Relaxed);
                    }
                    if let Some(hold) = &mut hold
                        && renewed.elapsed() > RENEW_EVERY
                    {
                        hold.renew();
                        renewed = Instant::now();
                    }
                }
            });
            let outcome = remote.play(run, &mut tee, over);
            drop(done);
            outcome
        });
        let outcome = match outcome {
            Ok(()) if late => Err(anyhow!("it was not done after {}", Nanos::from(patience))),
            outcome => outcome,
        };
        run.ended = how_ended(&outcome, &run.legs);
        *readings = self.host_settings.verify(self.remote)?;
        outcome
    }

    fn blank(&self, spec: Spec) -> Run {
        blank(&self.experiment.plan.host, spec)
    }

    // ---- settings ----

    /// Takes hold of the settings of both hosts as far as arms change them.
    fn take_hold(&mut self) -> Result<()> {
        let plan = &self.experiment.plan;
        let settings = plan.arms.iter().flat_map(|arm| &arm.settings);
        let title = format!(
            "experiment {} with {}",
            shown(&self.experiment.id),
            plan.host
        );
        // Renewed before every run and, while one is under way, beside it.
        let deadline = Duration::from(plan.gap) + DEADLINE;
        let host_settings = &mut self.host_settings;
        host_settings.take(self.remote, settings, &plan.host, &title, deadline)
    }

    /// Applies the settings of an arm on both hosts.
    fn apply(&mut self, settings: &[Setting]) -> Result<()> {
        let peer = self.peer();
        self.host_settings.apply(self.remote, settings, peer)
    }

    /// Undoes what is applied.
    fn undo(&mut self) -> Result<()> {
        for undone in self.host_settings.undo(self.remote)? {
            if let Some(note) = undone.note {
                let warning = Warning {
                    what: format!("{} was not as it had been set: {note}", undone.setting),
                    meaning: "somebody else changed this host meanwhile".to_owned(),
                    remedy: "find out who, and make the experiment again".to_owned(),
                };
                if !self.experiment.warnings.contains(&warning) {
                    self.experiment.warnings.push(warning);
                }
            }
        }
        Ok(())
    }

    /// Has both kernels forget what they learned of the path from earlier runs.
    fn flush(&mut self) {
        let Some(peer) = self.peer() else {
            return;
        };
        let trouble = host_settings::forget(self.remote, peer);
        let remedy = match self.remote.agent() {
            None => "run linerate at the remote host too ('linerate serve')",
            Some(_) => "give the right to change it: CAP_NET_ADMIN here, the right to tune there",
        };
        for (host, why) in trouble {
            let meaning = format!("a connection of {host} may begin with what an earlier run left");
            let warnings = &mut self.experiment.warnings;
            if warnings.iter().all(|w| w.meaning != meaning) {
                warnings.push(Warning {
                    what: format!("{host} keeps its TCP metrics from run to run: {why}"),
                    meaning,
                    remedy: remedy.to_owned(),
                });
            }
        }
    }

    fn peer(&self) -> Option<IpAddr> {
        let routed = || self.experiment.local.route.as_ref()?.destination;
        self.remote.address().or_else(routed)
    }
}

/// How long a run may take in all.
pub fn patience(spec: &Spec) -> Duration {
    match spec.limit {
        LegLimit::Time(time) => Duration::from(time) + GRACE,
        LegLimit::Bytes(_) | LegLimit::Requests(_) | LegLimit::Whole => LONGEST_RUN,
    }
}

/// The same run, just long enough to look at its sockets.
fn short(spec: &Spec) -> Spec {
    Spec {
        limit: match spec.workload.is_answered() {
            true => LegLimit::Requests(u64::from(spec.streams)),
            false => LegLimit::Bytes(TRY_OUT_BYTES),
        },
        ..spec.clone()
    }
}

fn not_in_force(arm: &str, reading: &Reading) -> String {
    let host = match reading.side {
        Side::Local => "this host",
        Side::Remote => "the remote host",
    };
    let limit = match reading.setting.as_str() {
        "SO_SNDBUF" => "raise net.core.wmem_max there, which holds it",
        "SO_RCVBUF" => "raise net.core.rmem_max there, which holds it",
        _ => "see which limit of that host holds it (linerate tune knobs)",
    };
    format!(
        "'{arm}' cannot be tried: on {host} {} stays at {}, asked {}: {limit}, or request a value that it can have",
        reading.setting, reading.found, reading.asked
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_its_time_and_half_a_minute_or_ten_minutes() {
        let patience = |limit| {
            patience(&Spec {
                limit,
                ..Spec::default()
            })
        };
        let ten = LegLimit::Time(Nanos::from_secs(10));
        assert_eq!(patience(ten), Duration::from_secs(40));
        for limit in [
            LegLimit::Bytes(Bytes(1)),
            LegLimit::Requests(1),
            LegLimit::Whole,
        ] {
            assert_eq!(patience(limit), Duration::from_secs(600));
        }
    }

    #[test]
    fn a_run_that_is_tried_moves_some_kilobytes_or_a_request_a_stream() {
        let spec = Spec {
            streams: 3,
            ..Spec::default()
        };
        assert_eq!(short(&spec).limit, LegLimit::Bytes(Bytes(131_072)));
        let requests = Spec {
            workload: Workload::Request(model::Request {
                request_size: Bytes(1),
                reply_size: Bytes(1),
                pace_per_s: None,
                reconnect: false,
                wait: model::WaitMode::Block,
            }),
            ..spec
        };
        let tried = short(&requests);
        assert_eq!(tried.limit, LegLimit::Requests(3));
        assert_eq!(tried.workload, requests.workload);
    }

    #[test]
    fn what_holds_a_setting_is_named_with_its_host() {
        let reading = |setting: &str, side| Reading {
            setting: setting.to_owned(),
            side,
            asked: "8 MiB".to_owned(),
            found: "4 MiB".to_owned(),
            in_force: false,
        };
        for (setting, side, parts) in [
            (
                "SO_SNDBUF",
                Side::Local,
                ["on this host ", "net.core.wmem_max"],
            ),
            (
                "SO_RCVBUF",
                Side::Remote,
                ["on the remote host ", "net.core.rmem_max"],
            ),
            (
                "TCP_MAXSEG",
                Side::Local,
                ["stays at 4 MiB, asked 8 MiB", "tune knobs"],
            ),
        ] {
            let said = not_in_force("large", &reading(setting, side));
            assert!(said.starts_with("'large' cannot be tried: "), "{said}");
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }

    /// A remote host that plays nothing.
    struct Silent(Option<IpAddr>);

    impl PeerSession for Silent {
        fn play(&mut self, _: &mut Run, _: &mut dyn Watcher, _: &AtomicBool) -> Result<()> {
            bail!("nobody is there")
        }

        fn kind(&self) -> &'static str {
            "a test"
        }

        fn address(&self) -> Option<IpAddr> {
            self.0
        }
    }

    struct Deaf;

    impl Watcher for Deaf {
        fn event(&mut self, _: &Event<'_>) {}
    }

    impl Audience for Deaf {
        fn note(&mut self, _: &str) {}

        fn looks(&mut self, _: &Spec) {}

        fn begins(&mut self, _: &Experiment, _: TrialSlot) {}

        fn kept(&mut self, _: &Experiment) {}
    }

    /// Has this done by a runner of an experiment with the congestion control `reno` as its change.
    fn runner<T>(
        address: Option<IpAddr>,
        routed: Option<IpAddr>,
        act: impl FnOnce(ExperimentRunner<'_>) -> T,
    ) -> (T, Experiment) {
        let plan = prove::plan_from_changes(prove::PlanOptions {
            title: None,
            host: "db2".to_owned(),
            metric: model::Metric::Goodput,
            margin: None,
            estimand: model::Estimand::default(),
            direction: None,
            run: None,
            against: Vec::new(),
            changes: vec!["congestion=reno".parse().unwrap()],
            arms: Vec::new(),
            search: false,
            pairs: Some(vec![20]),
            gap: None,
            seed: 1,
            pilot_pairs: None,
        });
        let mut experiment = fresh(plan.unwrap());
        experiment.local.route = Some(model::Route {
            destination: routed,
            ..model::Route::default()
        });
        let dir = crate::testing::TempDir::new();
        let (archive, stop) = (dir.path().join("runs.db"), AtomicBool::new(false));
        let (mut remote, mut deaf) = (Silent(address), Deaf);
        let runner = ExperimentRunner::new(&mut experiment, &mut remote, archive, &mut deaf, &stop);
        (act(runner), experiment)
    }

    #[test]
    fn the_peer_is_the_remote_host_or_else_where_the_route_leads() {
        let [one, two] = [1, 2].map(|last| Some(IpAddr::from([192, 0, 2, last])));
        let peer = |address, routed| runner(address, routed, |of| of.peer()).0;
        assert_eq!(
            [peer(one, two), peer(None, two), peer(None, None)],
            [one, two, None]
        );
    }

    #[test]
    fn an_experiment_that_cannot_begin_has_no_trial_and_keeps_nothing() {
        let (result, experiment) = runner(None, None, |of| of.run());
        let why = result.unwrap_err().to_string();
        assert_eq!(why, "nobody is there");
        assert!(experiment.trials.is_empty());
        assert_eq!(experiment.ended, Ended::Unfinished);
        let (tried, _) = runner(None, None, |of| of.try_out());
        assert!(tried.is_err());
    }
}
