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

    /// A remote host whose runs move as much a second as each congestion control does there.
    #[derive(Default)]
    struct Plays {
        runs: Vec<Spec>,
        /// What the sockets have, whatever was asked.
        congestion: Option<String>,
        /// The run of this number, from 1 and with those that are tried, ends so.
        ends: BTreeMap<usize, Fate>,
        lost: bool,
        gone: bool,
    }

    #[derive(Clone)]
    enum Fate {
        /// Without a leg.
        Fails,
        /// With one, and the session with it.
        Loses,
        /// By the user.
        Stops(Arc<AtomicBool>),
    }

    impl PeerSession for Plays {
        fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, _: &AtomicBool) -> Result<()> {
            self.runs.push(run.spec.clone());
            let fate = self.ends.get(&self.runs.len());
            if let Some(Fate::Fails) = fate {
                bail!("it did not begin");
            }
            let asked = run.spec.socket.congestion.clone();
            let congestion = self.congestion.clone().or(asked);
            let congestion = congestion.unwrap_or_else(|| "cubic".to_owned());
            let seconds = if congestion == "reno" { 1 } else { 2 };
            let at = ([192, 0, 2, 1], 9).into();
            let end = EndRecord {
                sockets: vec![model::SocketOptions {
                    congestion,
                    ..model::SocketOptions::new(0, at, at)
                }],
                bytes: Bytes(1_000_000 + self.runs.len() as u64),
                duration: Nanos::from_secs(seconds),
                ..EndRecord::default()
            };
            let leg = Leg {
                direction: Direction::Up,
                started: Nanos(0),
                local: end.clone(),
                remote: end,
                ended: match fate {
                    None => Ended::Complete,
                    Some(_) => Ended::Interrupted,
                },
            };
            run.local.hostname = "here".to_owned();
            run.remote = Some(Fingerprint::default());
            watcher.event(&Event::Hosts {
                local: &run.local,
                remote: run.remote.as_ref(),
            });
            watcher.event(&Event::LegEnded {
                index: 0,
                leg: &leg,
            });
            run.legs.push(leg);
            match fate {
                Some(Fate::Stops(stop)) => stop.store(true, Ordering::Relaxed),
                Some(Fate::Loses) => {
                    self.lost = true;
                    bail!("the session was lost");
                }
                _ => {}
            }
            Ok(())
        }

        fn kind(&self) -> &'static str {
            "a test"
        }

        fn is_lost(&self) -> bool {
            self.lost
        }

        fn is_gone(&self, _: &anyhow::Error) -> bool {
            self.gone
        }
    }

    /// Counts what an experiment reports.
    #[derive(Default)]
    struct Counts {
        begun: Vec<TrialSlot>,
        kept: usize,
        legs: usize,
        warnings: Vec<String>,
    }

    impl Watcher for Counts {
        fn event(&mut self, event: &Event<'_>) {
            match event {
                Event::LegEnded { .. } => self.legs += 1,
                Event::Warning { warning } => self.warnings.push(warning.what.clone()),
                _ => {}
            }
        }
    }

    impl Audience for Counts {
        fn note(&mut self, _: &str) {}

        fn looks(&mut self, _: &Spec) {
            panic!("no run is made beside the experiment");
        }

        fn begins(&mut self, experiment: &Experiment, slot: TrialSlot) {
            assert_eq!(experiment.trials.len(), self.kept, "one after the other");
            self.begun.push(slot);
        }

        fn kept(&mut self, experiment: &Experiment) {
            self.kept += 1;
            assert_eq!(experiment.trials.len(), self.kept);
        }
    }

    /// Six pairs with and without reno, of a second each, without a pilot.
    fn six_pairs() -> Experiment {
        let plan = prove::plan_from_changes(prove::PlanOptions {
            title: None,
            host: "db2".to_owned(),
            metric: model::Metric::Goodput,
            margin: None,
            estimand: model::Estimand::default(),
            direction: None,
            run: Some(Spec {
                limit: LegLimit::Time(Nanos::from_secs(1)),
                ..Spec::default()
            }),
            against: Vec::new(),
            changes: vec!["congestion=reno".parse().unwrap()],
            arms: Vec::new(),
            search: false,
            pairs: Some(vec![6]),
            gap: Some(Nanos(0)),
            seed: 1,
            pilot_pairs: Some(0),
        });
        fresh(plan.unwrap())
    }

    /// Makes an experiment, or goes on with it; what was counted meanwhile.
    fn made(
        experiment: &mut Experiment,
        remote: &mut Plays,
        archive: &Path,
        stop: &AtomicBool,
    ) -> (Result<Over>, Counts) {
        let mut counts = Counts {
            kept: experiment.trials.len(),
            ..Counts::default()
        };
        let runner =
            ExperimentRunner::new(experiment, remote, archive.to_owned(), &mut counts, stop);
        let result = runner.run();
        (result, counts)
    }

    #[test]
    fn an_experiment_tries_its_arms_and_makes_one_run_after_the_other() {
        let dir = crate::testing::TempDir::new();
        let path = dir.path().join("runs.db");
        let (mut experiment, mut remote) = (six_pairs(), Plays::default());
        let go_on = AtomicBool::new(false);
        let (result, counts) = made(&mut experiment, &mut remote, &path, &go_on);
        assert_eq!(result.unwrap(), Over::Done);
        // One run that warms up, and both of each pair.
        assert_eq!((experiment.trials.len(), counts.begun.len()), (13, 13));
        assert_eq!(
            (counts.kept, counts.legs),
            (13, 13),
            "what is tried is not reported"
        );
        let numbers: Vec<u32> = experiment.trials.iter().map(|trial| trial.number).collect();
        assert_eq!(numbers, Vec::from_iter(1..=13));
        assert_eq!(experiment.ended, Ended::Complete);
        assert_eq!(experiment.local.hostname, "here");
        assert!(experiment.remote.is_some());
        assert_eq!(prove::judge(&experiment).outcome, model::Outcome::Faster);
        // Both arms were tried before, with some kilobytes.
        let congestion = |spec: &Spec| spec.socket.congestion.clone();
        let tried: Vec<_> = remote.runs.iter().take(2).map(congestion).collect();
        assert_eq!(tried, [None, Some("reno".to_owned())]);
        let is_short = |spec: &Spec| spec.limit == LegLimit::Bytes(TRY_OUT_BYTES);
        assert_eq!(remote.runs.iter().filter(|spec| is_short(spec)).count(), 2);
        for (trial, spec) in experiment.trials.iter().zip(&remote.runs[2..]) {
            assert_eq!(congestion(spec).is_some(), trial.arm == 1);
            assert_eq!(spec.limit, LegLimit::Time(Nanos::from_secs(1)));
            assert!(trial.readings.iter().all(|reading| reading.in_force));
        }
        let archive = Archive::open(&path).unwrap();
        let kept = archive.experiment(&experiment.id).unwrap();
        assert_eq!((kept.trials.len(), kept.ended), (13, Ended::Complete));
        for trial in &experiment.trials {
            let run = archive.get(trial.run.as_ref().unwrap()).unwrap();
            assert_eq!(run.experiment.as_ref(), Some(&experiment.id));
            assert_eq!(run.ended, Ended::Complete);
        }
        // There is nothing more to do.
        let (result, counts) = made(&mut experiment, &mut remote, &path, &go_on);
        assert_eq!((result.unwrap(), counts.begun.len()), (Over::Done, 0));
    }

    #[test]
    fn a_setting_that_does_not_take_ends_it_before_anything_is_kept() {
        let dir = crate::testing::TempDir::new();
        let path = dir.path().join("runs.db");
        let (mut experiment, go_on) = (six_pairs(), AtomicBool::new(false));
        let mut remote = Plays {
            congestion: Some("cubic".to_owned()),
            ..Plays::default()
        };
        let (result, counts) = made(&mut experiment, &mut remote, &path, &go_on);
        let error = result.unwrap_err();
        assert_eq!(exit_of(&error), Exit::Usage);
        let why = error.to_string();
        assert!(
            why.contains("TCP_CONGESTION stays at cubic, asked reno"),
            "{why}"
        );
        assert_eq!((counts.begun.len(), remote.runs.len()), (0, 2));
        assert!(
            Archive::open(&path)
                .unwrap()
                .experiment(&experiment.id)
                .is_err()
        );
        // A run that fails while it is tried is an error of the plan as well.
        let mut remote = Plays {
            ends: [(2, Fate::Fails)].into(),
            ..Plays::default()
        };
        let (result, _) = made(&mut experiment, &mut remote, &path, &go_on);
        let error = result.unwrap_err();
        assert_eq!(exit_of(&error), Exit::Usage);
        let why = error.to_string();
        assert!(why.ends_with(" cannot be tried: it did not begin"), "{why}");
    }

    #[test]
    fn what_was_interrupted_or_lost_is_resumed_with_the_next_numbers() {
        let dir = crate::testing::TempDir::new();
        let path = dir.path().join("runs.db");
        let (mut experiment, go_on) = (six_pairs(), AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        // The fourth after those that are tried.
        let mut remote = Plays {
            ends: [(6, Fate::Stops(Arc::clone(&stop)))].into(),
            ..Plays::default()
        };
        let (result, _) = made(&mut experiment, &mut remote, &path, &stop);
        assert_eq!(result.unwrap(), Over::Interrupted);
        assert_eq!((experiment.trials.len(), remote.runs.len()), (3, 6));
        assert_eq!(experiment.ended, Ended::Interrupted);
        let kept = |id: &str| Archive::open(&path).unwrap().experiment(id).unwrap();
        assert_eq!(kept(&experiment.id).ended, Ended::Interrupted);

        experiment.local.hostname = "as at first".to_owned();
        let mut remote = Plays {
            ends: [(4, Fate::Loses)].into(),
            ..Plays::default()
        };
        let (result, counts) = made(&mut experiment, &mut remote, &path, &go_on);
        let error = result.unwrap_err();
        assert_eq!(exit_of(&error), Exit::Unreachable);
        assert_eq!(error.to_string(), "db2 was lost during a run");
        assert_eq!(
            counts.begun[0].phase,
            TrialPhase::Discarded,
            "it is warm again"
        );
        assert_eq!(experiment.local.hostname, "as at first");
        let last = experiment.trials.last().unwrap();
        assert_eq!((experiment.trials.len(), last.number), (5, 5));
        assert!(
            last.failed.is_some(),
            "what it moved until then is a failed run"
        );

        let (result, _) = made(&mut experiment, &mut Plays::default(), &path, &go_on);
        assert_eq!(result.unwrap(), Over::Done);
        let numbers: Vec<u32> = experiment.trials.iter().map(|trial| trial.number).collect();
        assert_eq!(numbers, Vec::from_iter(1..=experiment.trials.len() as u32));
        assert_eq!(kept(&experiment.id).trials.len(), experiment.trials.len());
    }

    #[test]
    fn a_run_that_could_not_begin_has_failed_unless_the_server_is_gone() {
        let dir = crate::testing::TempDir::new();
        let path = dir.path().join("runs.db");
        let go_on = AtomicBool::new(false);
        let of = |gone: bool, lost: bool| {
            let mut experiment = six_pairs();
            let mut remote = Plays {
                ends: [(4, Fate::Fails)].into(),
                gone,
                lost,
                ..Plays::default()
            };
            let (result, _) = made(&mut experiment, &mut remote, &path, &go_on);
            (result.map_err(|error| error.to_string()), experiment)
        };
        let (result, experiment) = of(false, false);
        assert_eq!(result, Ok(Over::Done));
        let failed: Vec<_> = experiment
            .trials
            .iter()
            .filter(|t| t.failed.is_some())
            .collect();
        assert_eq!(failed.len(), 1);
        assert_eq!((failed[0].number, failed[0].run.as_ref()), (2, None));
        assert_eq!(failed[0].failed.as_deref(), Some("it did not begin"));
        let (result, experiment) = of(true, false);
        assert_eq!(result, Err("it did not begin".to_owned()));
        assert_eq!(experiment.trials.len(), 1);
        let ended = |why: &str| Ended::Failed {
            why: why.to_owned(),
        };
        assert_eq!(experiment.ended, ended("it did not begin"));
        // A session that is lost ends it after its first run.
        let (result, experiment) = of(false, true);
        assert_eq!(result, Err("db2 was lost during a run".to_owned()));
        assert_eq!(experiment.trials.len(), 1);
    }

    #[test]
    fn what_both_kernels_keep_of_the_path_is_said_once() {
        let peer = Some(IpAddr::from([192, 0, 2, 1]));
        let (_, experiment) = runner(peer, None, |mut of| {
            of.flush();
            of.flush();
        });
        let remote = experiment.warnings.iter();
        let remote = remote.filter(|warning| warning.what.starts_with("the remote host"));
        let remote: Vec<&Warning> = remote.collect();
        assert_eq!(remote.len(), 1, "{:?}", experiment.warnings);
        assert!(remote[0].what.ends_with("from run to run: it is a test"));
        assert!(
            remote[0]
                .remedy
                .starts_with("run linerate at the remote host too")
        );
        let (_, unknown) = runner(None, None, |mut of| of.flush());
        assert_eq!(unknown.warnings, []);
    }

    #[test]
    fn settings_that_do_nothing_on_these_kernels_are_objected_to_once() {
        let kernel = |text: &str| Fingerprint {
            kernel: text.to_owned(),
            ..Fingerprint::default()
        };
        let objections = |local: &str, remote: Option<&str>, settings: &[&str]| {
            let mut experiment = six_pairs();
            (experiment.local, experiment.remote) = (kernel(local), remote.map(kernel));
            for setting in settings {
                let setting = setting.parse().unwrap();
                experiment.plan.arms[1].settings.push(setting);
            }
            let dir = crate::testing::TempDir::new();
            let (mut remote, mut counts) = (Silent(None), Counts::default());
            let (path, go_on) = (dir.path().join("runs.db"), AtomicBool::new(false));
            ExperimentRunner::new(&mut experiment, &mut remote, path, &mut counts, &go_on).object();
            let kept: Vec<String> = experiment.warnings.into_iter().map(|w| w.what).collect();
            assert_eq!(kept, counts.warnings);
            kept
        };
        let [old, new] = ["Linux 6.5.0", "Linux 6.6.0"];
        let scale = |place: &str| format!("sysctl:net.ipv4.tcp_adv_win_scale=1@{place}");
        let said = |local, remote, place: &str| {
            let setting = scale(place);
            objections(local, remote, &[&setting, &setting])
        };
        assert!(said(old, Some(old), "both").is_empty());
        assert!(said(old, Some(new), "local").is_empty());
        assert!(said(old, None, "remote").is_empty());
        for (local, remote, place) in [
            (new, Some(old), "local"),
            (old, Some(new), "remote"),
            (old, Some(new), "both"),
        ] {
            let said = said(local, remote, place);
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains("obsolete since Linux 6.6"), "{said:?}");
        }
    }
}
