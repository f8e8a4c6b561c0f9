use super::*;
use model::Scope;
use model::advice::Change;
use model::{Design, Metric};

/// A remote host without an agent that plays nothing.
struct Silent {
    lost: bool,
}

impl PeerSession for Silent {
    fn play(&mut self, _: &mut Run, _: &mut dyn Watcher, _: &AtomicBool) -> Result<()> {
        bail!(Refusal::unreachable("nobody is there"))
    }

    fn kind(&self) -> &'static str {
        "a test"
    }

    fn address(&self) -> Option<IpAddr> {
        Some([192, 0, 2, 1].into())
    }

    fn is_lost(&self) -> bool {
        self.lost
    }
}

#[derive(Default)]
struct Notes(Vec<String>);

impl Watcher for Notes {
    fn event(&mut self, _: &Event<'_>) {}
}

impl Audience for Notes {
    fn note(&mut self, words: &str) {
        self.0.push(words.to_owned());
    }

    fn looks(&mut self, _: &Spec) {}

    fn begins(&mut self, _: &Experiment, _: prove::TrialSlot) {}

    fn kept(&mut self, _: &Experiment) {}
}

fn question(pairs: Option<Vec<u32>>) -> TuneQuestion {
    TuneQuestion {
        host: "db2".to_owned(),
        reached_by: String::new(),
        direction: Direction::Down,
        run: Spec::default(),
        rate: None,
        design: prove::PlanOptions {
            title: None,
            host: String::new(),
            metric: Metric::Goodput,
            margin: None,
            estimand: model::Estimand::default(),
            direction: None,
            run: None,
            against: Vec::new(),
            changes: Vec::new(),
            arms: Vec::new(),
            search: false,
            pairs,
            gap: None,
            seed: 1,
            pilot_pairs: None,
        },
        rounds: 3,
        dry_run: false,
        persist: false,
    }
}

/// Has this done by a loop that has not begun; what it noted is given too.
fn in_loop<T>(pairs: Option<Vec<u32>>, act: impl FnOnce(ClosedLoop<'_>) -> T) -> (T, Vec<String>) {
    let dir = crate::testing::TempDir::new();
    let (mut remote, mut notes) = (Silent { lost: false }, Notes::default());
    let stop = AtomicBool::new(false);
    let archive = dir.path().join("runs.db");
    let done = act(ClosedLoop::new(
        question(pairs),
        &mut remote,
        archive,
        &mut notes,
        &stop,
    ));
    (done, notes.0)
}

fn setting(text: &str) -> Setting {
    text.parse().unwrap()
}

fn proposal(title: &str) -> Proposal {
    let change = Change {
        setting: setting("nodelay=on"),
        side: Side::Local,
        now: None,
        default: None,
        why: String::new(),
        source: String::new(),
        risk: String::new(),
        scope: Scope::Socket,
        new_connections: true,
    };
    Proposal {
        title: title.to_owned(),
        direction: Direction::Down,
        cause: model::finding::Limit::Nagle,
        changes: vec![change],
        stand_in: Vec::new(),
    }
}

#[test]
fn what_is_kept_is_kept_under_a_title_with_the_host() {
    let (title, _) = in_loop(None, |of| {
        assert_eq!(of.peer, Some([192, 0, 2, 1].into()));
        let id = shown(&of.story.id).to_string();
        (of.title(), id)
    });
    assert_eq!(title.0, format!("tuning {} of db2", title.1));
}

#[test]
fn a_path_that_cannot_be_measured_is_no_story() {
    let (result, notes) = in_loop(None, |of| of.run());
    let error = result.err().unwrap();
    assert_eq!(exit_of(&error), Exit::Unreachable);
    assert_eq!(notes, ["measures the baseline"]);
}

#[test]
fn one_arm_is_compared_in_pairs_and_several_in_blocks_once() {
    let one = vec![vec![setting("nodelay=on")]];
    let two = vec![vec![setting("nodelay=on")], vec![setting("sndbuf=1M")]];
    let design = |pairs: Option<Vec<u32>>, arms: &[Vec<Setting>]| {
        let names = ["a".to_owned(), "b".to_owned()];
        let plan = in_loop(pairs, |of| {
            let plan = of.plan_of(&names[..arms.len()], arms, Vec::new()).unwrap();
            assert_eq!(plan.host, "db2");
            assert_eq!(plan.direction, Direction::Down);
            let ordered = Spec {
                directions: Directions::Down,
                ..of.question.run.clone()
            };
            assert_eq!(plan.run, ordered);
            plan
        });
        plan.0.design
    };
    let blocks = |design| match design {
        Design::Blocks { blocks } => blocks,
        other => panic!("{other:?}"),
    };
    assert_eq!(blocks(design(None, &two)), BLOCKS);
    assert_eq!(blocks(design(Some(vec![20, 40]), &two)), 40);
    assert_eq!(blocks(design(Some(vec![1]), &two)), fewest_blocks(2));
    assert!(matches!(design(Some(vec![20]), &one), Design::Pairs { .. }));
}

#[test]
fn arms_are_called_by_their_proposals_with_numbers_where_these_are_alike() {
    let tried: Vec<Vec<Setting>> = ["nodelay=on", "sndbuf=1M", "rcvbuf=1M"]
        .map(|text| vec![setting(text)])
        .to_vec();
    let proposals = ["faster", "larger", "larger"].map(proposal);
    let arms = [vec![0], vec![1], vec![2], vec![0, 1, 2]];
    let (plan, _) = in_loop(None, |of| of.plan(&proposals, &tried, &arms).unwrap());
    let names: Vec<&str> = (1..5).map(|arm| plan.arm_name(arm)).collect();
    assert_eq!(names, ["faster", "larger", "larger (2)", "all together"]);
    assert_eq!(plan.arms[4].settings.len(), 3);
    let contradict = [vec![setting("nodelay=on")], vec![setting("nodelay=off")]];
    let (error, _) = in_loop(None, |of| of.plan(&proposals, &contradict, &[vec![0, 1]]));
    let why = error.unwrap_err().to_string();
    assert_eq!(why, "two proposals contradict each other");
}

#[test]
fn what_is_stopped_is_interrupted() {
    assert!(stopped(&AtomicBool::new(false)).is_ok());
    let error = stopped(&AtomicBool::new(true)).unwrap_err();
    assert_eq!(exit_of(&error), Exit::Interrupted);
    let attempt = untried(vec![setting("nodelay=on")], Some("x".to_owned()));
    assert_eq!((attempt.settings.len(), attempt.arm), (1, None));
    assert_eq!(attempt.fate, Fate::Untried);
}

/// A run of a path with an RTT of 10 ms that carried 8 Mbit/s down.
fn seen() -> (Run, Look) {
    let sample = |ms: u64| model::Sample {
        at: Nanos::from_millis(ms),
        bytes: Bytes(1000 * ms),
        streams: vec![model::StreamSample {
            tcp: Some(model::SocketState::from_probe(model::SocketValues {
                srtt: Nanos::from_millis(10),
                ..model::SocketValues::default()
            })),
            ..model::StreamSample::default()
        }],
        ..model::Sample::default()
    };
    let end = EndRecord {
        samples: (0..=10).map(|tenth| sample(100 * tenth)).collect(),
        bytes: Bytes(1_000_000),
        duration: Nanos::from_secs(1),
        ..EndRecord::default()
    };
    let run = Run {
        legs: vec![Leg {
            direction: Direction::Down,
            started: Nanos(0),
            local: end.clone(),
            remote: end,
            ended: Ended::Complete,
        }],
        ..Run::default()
    };
    let look = Look {
        run: run.id.clone(),
        goodput: BitRate(8_000_000),
        explanations: Vec::new(),
    };
    (run, look)
}

/// Begins a round of a loop as [`ClosedLoop::round`] does, with so many attempts.
fn begin_round(of: &mut ClosedLoop<'_>, attempts: usize) {
    let (run, before) = seen();
    let way = PathSample::of(&run, 0).unwrap();
    let hosts = PathHosts {
        local: &run.local,
        remote: None,
    };
    let advice = advise::propose(&way, hosts, &[]);
    of.story.rounds.push(Round {
        before,
        advice,
        attempts: vec![untried(Vec::new(), None); attempts],
        experiments: Vec::new(),
    });
}

#[test]
fn a_path_that_needs_nothing_ends_after_one_round_without_a_run() {
    let (result, notes) = in_loop(None, |of| of.with(seen()).run().unwrap());
    assert_eq!(result.story.ended, Ended::Complete);
    assert_eq!(result.story.rounds.len(), 1);
    assert_eq!(result.story.rounds[0].attempts, []);
    assert!(result.experiments.is_empty() && result.plans.is_empty());
    assert!(result.broke.is_none() && result.story.after.is_none());
    assert_eq!(notes.len(), 1, "what was seen: {notes:?}");
}

#[test]
fn a_measurement_without_an_rtt_is_made_again() {
    let (mut run, look) = seen();
    let leg = &mut run.legs[0];
    leg.local.samples.clear();
    leg.remote.samples.clear();
    let (result, notes) = in_loop(None, |of| of.with((run, look)).run());
    assert_eq!(exit_of(&result.err().unwrap()), Exit::Unreachable);
    let again = "too few bytes moved to estimate what the path needs: measures again";
    assert_eq!(notes, [again]);
    let (none, notes) = in_loop(None, |mut of| {
        of.question.rounds = 0;
        of.with(seen()).run().unwrap()
    });
    assert_eq!((none.story.rounds.len(), notes.len()), (0, 0));
    assert_eq!(none.story.ended, Ended::Complete);
}

#[test]
fn what_cannot_be_tried_has_its_reasons_and_a_lost_host_ends_it() {
    let mut one = proposal("faster");
    let (attempt, _) = in_loop(None, |mut of| of.able(&one).unwrap());
    assert_eq!(
        attempt,
        untried(Vec::new(), Some("nobody is there".to_owned()))
    );
    one.stand_in = vec![setting("sndbuf=1M")];
    let (attempt, _) = in_loop(None, |mut of| of.able(&one).unwrap());
    let both = "nobody is there; nobody is there".to_owned();
    assert_eq!(attempt, untried(Vec::new(), Some(both)));
    one.changes.clear();
    one.stand_in.clear();
    let (attempt, _) = in_loop(None, |mut of| of.able(&one).unwrap());
    assert_eq!(
        attempt,
        untried(Vec::new(), None),
        "there is nothing to try"
    );
    let dir = crate::testing::TempDir::new();
    let (mut remote, mut notes) = (Silent { lost: true }, Notes::default());
    let stop = AtomicBool::new(false);
    let archive = dir.path().join("runs.db");
    let mut of = ClosedLoop::new(question(None), &mut remote, archive, &mut notes, &stop);
    assert!(of.able(&proposal("faster")).is_err());
}

#[test]
fn an_experiment_without_a_trial_is_no_part_of_the_story() {
    let plan = |of: &ClosedLoop<'_>| {
        let arms = [vec![setting("nodelay=on")]];
        of.plan_of(&["a".to_owned()], &arms, Vec::new()).unwrap()
    };
    let (experiments, _) = in_loop(Some(vec![20]), |mut of| {
        begin_round(&mut of, 0);
        let plan = plan(&of);
        assert!(of.experiment(plan).is_err());
        assert_eq!(of.now().experiments.len(), 0);
        of.experiments.len()
    });
    assert_eq!(experiments, 0);
}

#[test]
fn settings_that_contradict_each_other_are_not_confirmed_together() {
    let tried = [vec![setting("nodelay=on")], vec![setting("nodelay=off")]];
    let (kept, notes) = in_loop(None, |mut of| of.confirm(&tried, &[0], &[0, 1]).unwrap());
    assert!(!kept && notes.is_empty());
}

#[test]
fn options_of_own_connections_stay_with_them() {
    let machine = setting("sysctl:net.ipv4.tcp_slow_start_after_idle=0@local");
    let tried = [vec![setting("nodelay=on")], vec![machine]];
    let kept = |proven: &[usize], alone: &[usize]| {
        let (kept, notes) = in_loop(None, |mut of| {
            begin_round(&mut of, 2);
            let seen = of.keep(&tried, proven, alone).unwrap();
            assert!(seen.is_none() && of.story.kept.is_empty());
            let fates = of.attempts().iter().map(|attempt| attempt.fate);
            fates.collect::<Vec<_>>()
        });
        assert!(notes.is_empty(), "nothing is set: {notes:?}");
        kept
    };
    assert_eq!(kept(&[0], &[0]), [Fate::Recommended, Fate::Untried]);
    assert_eq!(kept(&[0, 1], &[0]), [Fate::Recommended, Fate::Untried]);
    assert_eq!(kept(&[], &[]), [Fate::Untried; 2]);
}

#[test]
fn what_a_host_cannot_write_down_is_said_and_takes_nothing_back() {
    let reading = |side| Reading {
        setting: "net.core.wmem_max=1".to_owned(),
        side,
        asked: "1".to_owned(),
        found: "1".to_owned(),
        in_force: true,
    };
    let warned = |side: Option<Side>| {
        let (story, _) = in_loop(None, |mut of| {
            of.peer = None;
            of.story.kept.extend(side.map(reading));
            of.persist();
            of.story
        });
        assert_eq!(story.kept.len(), usize::from(side.is_some()));
        assert!(story.lasting.is_empty());
        story.warnings
    };
    let warnings = warned(Some(Side::Local));
    assert_eq!(warnings.len(), 1);
    let why =
        "this host has not written down what it keeps: the remote host's address is not known";
    assert_eq!(warnings[0].what, why);
    assert_eq!(warned(None), []);
    assert_eq!(warned(Some(Side::Remote)), [], "there is no agent");
}

/// A remote host whose runs are those that were seen.
struct Plays(Option<Arc<AtomicBool>>);

impl PeerSession for Plays {
    fn play(&mut self, run: &mut Run, watcher: &mut dyn Watcher, _: &AtomicBool) -> Result<()> {
        watcher.event(&Event::Hosts {
            local: &run.local,
            remote: None,
        });
        run.legs = seen().0.legs;
        watcher.event(&Event::LegEnded {
            index: 0,
            leg: &run.legs[0],
        });
        if let Some(stop) = &self.0 {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn kind(&self) -> &'static str {
        "a test"
    }
}

#[test]
fn a_run_of_no_experiment_is_kept_and_explained() {
    let dir = crate::testing::TempDir::new();
    let archive = dir.path().join("runs.db");
    let mut notes = Notes::default();
    let stop = AtomicBool::new(false);
    let mut remote = Plays(None);
    let mut of = ClosedLoop::new(
        question(None),
        &mut remote,
        archive.clone(),
        &mut notes,
        &stop,
    );
    let (run, look) = of.measure().unwrap();
    assert_eq!(run.spec.directions, Directions::Down);
    assert!(!run.spec.trace, "there is no agent");
    assert_eq!((&look.run, run.ended.clone()), (&run.id, Ended::Complete));
    assert_eq!(look.explanations.len(), 1, "of its one leg");
    assert!(look.goodput > BitRate(7_000_000) && look.goodput < BitRate(9_000_000));
    let kept = archive::Archive::open(&archive)
        .unwrap()
        .get(&run.id)
        .unwrap();
    assert_eq!(kept.title, Some(of.title().replace(" of db2", "")));
    // One that was stopped is kept, and nothing follows from it.
    let stop = Arc::new(AtomicBool::new(false));
    let mut remote = Plays(Some(Arc::clone(&stop)));
    let mut of = ClosedLoop::new(
        question(None),
        &mut remote,
        archive.clone(),
        &mut notes,
        &stop,
    );
    assert_eq!(exit_of(&of.measure().unwrap_err()), Exit::Interrupted);
}
