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
