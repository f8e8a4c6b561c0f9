//! The plan: from a file or from one line, checked before anything moves, and written out again.

mod check;
mod file;

pub(crate) use check::{P99_REQUESTS, counted};
pub use check::{fewest_blocks, validate};
pub use file::{parse_plan, to_toml};

use crate::stats::signed_rank::LOOKS;
use model::{
    Arm, Design, Direction, Directions, EXPERIMENT_SCHEMA, Estimand, LegLimit, Metric, Nanos, Plan,
    Setting, Spec,
};

/// A plan that cannot be carried out, or a file that holds none. Prints as `file:line: what; remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}; {remedy}", self.place())]
pub struct PlanError {
    /// The file as the caller named it and the line in it, from 1; `None` for a plan made by options.
    pub line: Option<(String, usize)>,
    /// The key of the plan that is at fault, as in the file: `margin`, `run.bytes`.
    pub key: &'static str,
    /// What is wrong, naming the value.
    pub what: String,
    /// What to do instead.
    pub remedy: String,
}

impl PlanError {
    fn new(key: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> PlanError {
        PlanError {
            line: None,
            key,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    fn place(&self) -> String {
        match &self.line {
            Some((file, line)) => format!("{file}:{line}: "),
            None => String::new(),
        }
    }
}

/// Name of an arm in which nothing is set.
pub(crate) const BASELINE: &str = "baseline";
// What holds if the plan names none.
pub(crate) const USUAL_GAP: Nanos = Nanos::from_secs(3);
/// Length of a run if none is named: 10 s behind the usual ramp of 2 s.
pub const USUAL_TIME: Nanos = Nanos::from_secs(12);
pub(crate) const USUAL_PILOT: u32 = 6;
pub(crate) const USUAL_BLOCKS: u32 = 20;
/// Blocks of each round of a search.
pub(crate) const USUAL_ROUND: u32 = 3;

/// A question in one line; see [`plan_from_changes`].
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// A note of the user.
    pub title: Option<String>,
    /// The remote host.
    pub host: String,
    /// What is compared.
    pub metric: Metric,
    /// Equivalence margin as a share; `None`: the metric's usual one.
    pub margin: Option<f64>,
    /// The typical run, or all together.
    pub estimand: Estimand,
    /// The direction that is judged; `None`: up.
    pub direction: Option<Direction>,
    /// The order for every run; `None`: bulk for 12 s.
    pub run: Option<Spec>,
    /// What the control sets; empty: the baseline.
    pub against: Vec<Setting>,
    /// Tried together, as one arm.
    pub changes: Vec<Setting>,
    /// Further arms, each `NAME=change,change`.
    pub arms: Vec<String>,
    /// Halve the arms round by round instead of comparing each with the control.
    pub search: bool,
    /// Pairs at each look (two arms, or the confirmation of a search), or one number of blocks.
    pub pairs: Option<Vec<u32>>,
    /// Pause before every run.
    pub gap: Option<Nanos>,
    /// Where the order of the runs comes from.
    pub seed: u64,
    /// Pairs of the pilot.
    pub pilot_pairs: Option<u32>,
}

/// The plan for a question in one line: the control, an arm of all `changes` together, and the
/// named arms. Two arms are compared in pairs, more in blocks.
///
/// # Errors
/// If an arm cannot be read, or the plan cannot be carried out ([`validate`]).
pub fn plan_from_changes(ask: PlanOptions) -> Result<Plan, PlanError> {
    let mut arms = vec![arm(None, ask.against)];
    if !ask.changes.is_empty() {
        arms.push(arm(None, ask.changes));
    }
    for text in &ask.arms {
        arms.push(named_arm(text)?);
    }
    let design = match (ask.search, arms.len(), ask.pairs) {
        (true, _, pairs) => Design::Search {
            blocks: USUAL_ROUND,
            confirm: pairs.unwrap_or_else(usual_looks),
        },
        (false, ..=2, pairs) => Design::Pairs {
            looks: pairs.unwrap_or_else(usual_looks),
        },
        (false, _, None) => Design::Blocks {
            blocks: USUAL_BLOCKS,
        },
        (false, _, Some(pairs)) => match pairs[..] {
            [blocks] => Design::Blocks { blocks },
            _ => {
                let many = arms.len();
                let what = format!("{many} arms are judged once, after a fixed number of blocks");
                return Err(PlanError::new("blocks", what, "give one number of pairs"));
            }
        },
    };
    let direction = ask.direction.unwrap_or(Direction::Up);
    let plan = Plan {
        schema: EXPERIMENT_SCHEMA,
        title: ask.title,
        host: ask.host,
        metric: ask.metric,
        margin: ask.margin.unwrap_or(ask.metric.usual_margin()),
        estimand: ask.estimand,
        direction,
        run: Spec {
            directions: only(direction),
            ..ask.run.unwrap_or_else(usual_run)
        },
        arms,
        design,
        gap: ask.gap.unwrap_or(USUAL_GAP),
        seed: ask.seed,
        pilot_pairs: ask.pilot_pairs.unwrap_or(USUAL_PILOT),
    };
    validate(&plan)?;
    Ok(plan)
}

fn usual_looks() -> Vec<u32> {
    LOOKS.iter().map(|look| look.pairs).collect()
}

/// The order for a run if nothing is said about it.
pub fn usual_run() -> Spec {
    Spec {
        limit: LegLimit::Time(USUAL_TIME),
        ..Spec::default()
    }
}

fn only(direction: Direction) -> Directions {
    match direction {
        Direction::Up => Directions::Up,
        Direction::Down => Directions::Down,
    }
}

/// An arm; without a name it is called by what it sets.
fn arm(name: Option<String>, settings: Vec<Setting>) -> Arm {
    Arm {
        name: name.unwrap_or_else(|| name_of(&settings)),
        settings,
        levels: Vec::new(),
    }
}

fn name_of(settings: &[Setting]) -> String {
    let all: Vec<String> = settings.iter().map(Setting::to_string).collect();
    let text = all.join(", ");
    match text.chars().count() {
        0 => BASELINE.to_owned(),
        1..=48 => text,
        _ => "changed".to_owned(),
    }
}

/// `NAME=change,change`.
fn named_arm(text: &str) -> Result<Arm, PlanError> {
    let remedy = "write NAME=KNOB=VALUE,KNOB=VALUE, or NAME= for the baseline";
    let wrong = |what: String| PlanError::new("arm", what, remedy);
    let parts = text.split_once('=');
    let (name, changes) = parts.ok_or_else(|| wrong(format!("the arm '{text}' has no '='")))?;
    let settings = settings_of(changes).map_err(|why| wrong(format!("arm '{name}': {why}")))?;
    Ok(arm(Some(name.trim().to_owned()), settings))
}

/// `KNOB=VALUE,KNOB=VALUE`; empty, or "baseline": none.
fn settings_of(text: &str) -> Result<Vec<Setting>, String> {
    let parse = |part: &str| part.trim().parse::<Setting>().map_err(|e| e.to_string());
    match text.trim() {
        "" | BASELINE => Ok(Vec::new()),
        text => text.split(',').map(parse).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask, many_arms, settings};
    use model::Request;
    use model::Workload;

    fn why(ask: PlanOptions) -> String {
        plan_from_changes(ask).unwrap_err().to_string()
    }

    fn file(text: &str) -> String {
        parse_plan(text, "plan.toml", 7).unwrap_err().to_string()
    }

    #[test]
    fn one_line_makes_a_plan() {
        let plan = plan_from_changes(ask()).unwrap();
        let names: Vec<&str> = plan.arms.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["baseline", "congestion=bbr"]);
        assert_eq!(
            plan.design,
            Design::Pairs {
                looks: vec![8, 12, 16, 20]
            }
        );
        assert_eq!((plan.margin, plan.pilot_pairs), (0.05, 6));
        assert_eq!(plan.run.limit, LegLimit::Time(USUAL_TIME));

        // Changes go together, named arms each alone, and the control can be changed too.
        let plan = plan_from_changes(PlanOptions {
            against: settings(&["congestion=cubic"]),
            changes: settings(&["congestion=bbr", "sockbuf=8M"]),
            arms: vec![
                "both = congestion=bbr, route.initcwnd=32".to_owned(),
                "plain=".to_owned(),
            ],
            direction: Some(Direction::Down),
            ..ask()
        })
        .unwrap();
        let names: Vec<&str> = plan.arms.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "congestion=cubic",
                "congestion=bbr, sockbuf=8M",
                "both",
                "plain"
            ]
        );
        assert_eq!(plan.arms[2].settings.len(), 2);
        assert_eq!(plan.design, Design::Blocks { blocks: 20 });
        assert_eq!(plan.run.directions, Directions::Down);
        assert_eq!(plan.spec_of(1).socket.congestion.as_deref(), Some("bbr"));
        assert_eq!(plan.spec_of(3).socket.congestion, None);
    }

    #[test]
    fn a_sentence_for_every_bad_plan() {
        let run = plan_from_changes(ask()).unwrap().run;
        let requests = |pace| Spec {
            workload: Workload::Request(Request {
                request_size: model::Bytes(128),
                reply_size: model::Bytes(8192),
                pace_per_s: pace,
                reconnect: false,
                wait: model::WaitMode::Hybrid,
            }),
            ..run.clone()
        };
        for (ask, says) in [
            (
                PlanOptions {
                    changes: Vec::new(),
                    ..ask()
                },
                "nothing to compare; add --change KNOB=VALUE",
            ),
            (
                PlanOptions {
                    against: ask().changes,
                    ..ask()
                },
                "two arms are called 'congestion=bbr', or one has no name",
            ),
            (
                PlanOptions {
                    arms: vec!["x=congestion=bbr".to_owned()],
                    ..ask()
                },
                "the arms 'congestion=bbr' and 'x' are the same",
            ),
            (
                PlanOptions {
                    arms: vec!["x".to_owned()],
                    ..ask()
                },
                "the arm 'x' has no '='; write NAME=",
            ),
            (
                PlanOptions {
                    arms: vec!["x=speed=11".to_owned()],
                    ..ask()
                },
                "arm 'x': there is no knob 'speed'; 'linerate tune knobs' lists them",
            ),
            (
                PlanOptions {
                    arms: vec!["x=sockbuf=2G".to_owned()],
                    ..ask()
                },
                "arm 'x': in 'sockbuf=2G' the value is out of range",
            ),
            (
                PlanOptions {
                    changes: settings(&["mss=1400", "mss=1300"]),
                    ..ask()
                },
                "the arm 'mss=1400, mss=1300' sets both mss=1400 and mss=1300; leave one out",
            ),
            (
                PlanOptions {
                    pairs: Some(vec![3]),
                    ..ask()
                },
                "3 pairs give no verdict: of 5, even all in favour come up at random in 1 of 16 experiments; write 6 pairs or more",
            ),
            (
                PlanOptions {
                    pairs: Some(vec![8, 16, 12, 20]),
                    ..ask()
                },
                "the looks do not rise",
            ),
            (
                PlanOptions {
                    pairs: Some(vec![8, 12, 15]),
                    ..ask()
                },
                "nobody has worked out how often looks after 8, 12, 15 pairs are wrong together",
            ),
            (
                PlanOptions {
                    pairs: Some(vec![6]),
                    ..many_arms(5)
                },
                "6 blocks give no verdict at 5 % on 5 arms; write 8 or more",
            ),
            (
                PlanOptions {
                    pairs: Some(vec![8, 12, 16, 20]),
                    ..many_arms(2)
                },
                "3 arms are judged once, after a fixed number of blocks",
            ),
            (
                PlanOptions {
                    search: true,
                    ..ask()
                },
                "a search among one arm finds that one",
            ),
            (
                PlanOptions {
                    margin: Some(0.0),
                    ..ask()
                },
                "with a margin of 0 no difference is too small to matter",
            ),
            (
                PlanOptions {
                    margin: Some(f64::NAN),
                    ..ask()
                },
                "the margin is NaN %",
            ),
            (
                PlanOptions {
                    margin: Some(5.0),
                    ..ask()
                },
                "the margin is 500.0000 %, and can be 0.1 % to 100 %",
            ),
            (
                PlanOptions {
                    metric: Metric::Completion,
                    ..ask()
                },
                "completion is the time of a whole transfer, and the runs end by time; write bytes = \"100M\"",
            ),
            (
                PlanOptions {
                    metric: Metric::LatencyP50,
                    ..ask()
                },
                "latency-p50 needs requests, and the runs are bulk transfers",
            ),
            (
                PlanOptions {
                    metric: Metric::LatencyP99,
                    run: Some(requests(Some(50.0))),
                    ..ask()
                },
                "the slowest 1 % of 600 requests are too few to compare",
            ),
            (
                PlanOptions {
                    run: Some(requests(None)),
                    ..ask()
                },
                "goodput needs bulk transfers, and the runs are requests",
            ),
            (
                PlanOptions {
                    pilot_pairs: Some(1),
                    ..ask()
                },
                "a pilot of 1 pair shows no noise",
            ),
            (
                PlanOptions {
                    gap: Some(Nanos::from_secs(7200)),
                    ..ask()
                },
                "a gap of",
            ),
            (
                PlanOptions {
                    host: String::new(),
                    ..ask()
                },
                "the plan names no host",
            ),
        ] {
            let said = why(ask);
            assert!(said.starts_with(says), "{said}");
            assert!(
                said.contains("; ") && !said.contains('\n'),
                "no remedy: {said}"
            );
        }
        let p99 = PlanOptions {
            metric: Metric::LatencyP99,
            run: Some(requests(Some(500.0))),
            ..ask()
        };
        let plan = plan_from_changes(p99).unwrap();
        assert_eq!(plan.margin, 0.10);
    }

    const FILE: &str = r#"
title = "buffers or bbr"
host = "db2"
metric = "goodput"
margin = "5%"
direction = "down"
seed = 12
gap = "2500ms"
looks = [10, 20, 30, 40]

[run]
time = "20s"
streams = 4
settings = ["congestion=cubic", "notsent_lowat=128K"]
cpus = [0, 1]

[[arm]]

[[arm]]
name = "changed"
settings = ["congestion=bbr", "sysctl:net.ipv4.tcp_wmem=4096 65536 16777216@both"]
"#;

    #[test]
    fn a_file_makes_a_plan_and_a_plan_a_file() {
        let plan = parse_plan(FILE, "plan.toml", 7).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((plan.seed, plan.margin), (12, 0.05));
        assert_eq!(plan.gap, Nanos::from_millis(2500));
        assert_eq!(plan.arms[0].name, BASELINE);
        assert_eq!(plan.run.socket.congestion.as_deref(), Some("cubic"));
        assert_eq!(plan.run.local.cpus, [0, 1]);
        assert_eq!(
            plan.design,
            Design::Pairs {
                looks: vec![10, 20, 30, 40]
            }
        );
        let factors = "host='h'\nseed='18446744073709551615'\nhalf=true\nblocks=4\n".to_owned()
            + &[
                "congestion=bbr",
                "sockbuf=8M",
                "pacing=1G",
                "mss=1400, notsent_lowat=128K",
                "nodelay=on",
            ]
            .map(|s| format!("[[factor]]\nname='{s}'\nlevels=['baseline', '{s}']\n"))
            .concat();
        let half = parse_plan(&factors, "f.toml", 7);
        let half = half.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((half.arms.len(), half.seed), (16, u64::MAX));
        let search = PlanOptions {
            search: true,
            metric: Metric::Goodput,
            ..many_arms(3)
        };
        for plan in [
            plan,
            half,
            plan_from_changes(ask()).unwrap(),
            plan_from_changes(many_arms(3)).unwrap(),
            plan_from_changes(search).unwrap(),
        ] {
            let text = to_toml(&plan);
            let again =
                parse_plan(&text, "again.toml", 99).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(again, plan, "{text}");
        }
        // A file without a seed gets the fresh one.
        let seedless = FILE.replace("seed = 12\n", "");
        assert_eq!(parse_plan(&seedless, "plan.toml", 7).unwrap().seed, 7);
    }

    #[test]
    fn faults_have_their_line_and_a_remedy() {
        for (from, to, says) in [
            (
                "margin = \"5%\"",
                "margn = 5",
                "plan.toml:5: unknown key 'margn'; did you mean 'margin'?",
            ),
            (
                "streams = 4",
                "stream = 4",
                "plan.toml:13: unknown key 'stream'; did you mean 'streams'?",
            ),
            (
                "margin = \"5%\"",
                "margin = 0",
                "plan.toml:5: with a margin of 0",
            ),
            (
                "margin = \"5%\"",
                "margin = \"lots\"",
                "plan.toml:5: 'lots' is no share; write per cent (5%)",
            ),
            (
                "\"2500ms\"",
                "\"soon\"",
                "plan.toml:8: 'soon' is not a time",
            ),
            (
                "\"congestion=bbr\"",
                "\"speed=11\"",
                "plan.toml:21: there is no knob 'speed'; 'linerate tune knobs' lists them",
            ),
            (
                "\"20s\"",
                "\"0s\"",
                "plan.toml:11: a run of nothing measures nothing; ",
            ),
            (
                "looks = [10, 20, 30, 40]",
                "looks = [3]",
                "plan.toml:9: 3 pairs give no verdict",
            ),
            (
                "looks = [10, 20, 30, 40]",
                "looks = [8, 12]",
                "plan.toml:9: nobody has worked out",
            ),
            (
                "looks = [10, 20, 30, 40]",
                "looks = [6]\npairs = 6",
                "plan.toml:10: the plan says more than one of pairs",
            ),
            ("\"goodput\"", "\"speed\"", "plan.toml:4: unknown "),
            (
                "\"goodput\"",
                "\"completion\"",
                "plan.toml:12: completion is the time",
            ),
            (
                "time = \"20s\"",
                "time = \"20s\"\nbytes = 5",
                "plan.toml:12: a run has more than one of",
            ),
            (
                "[[arm]]\n\n[[arm]]",
                "[[arm]]",
                "plan.toml:17: nothing to compare",
            ),
            ("[run]", "[run", "plan.toml:11: "),
        ] {
            let text = FILE.replacen(from, to, 1);
            assert_ne!(text, FILE, "{from}");
            let said = file(&text);
            assert!(said.starts_with(says), "{said}");
            assert!(
                said.contains("; ") && !said.contains('\n'),
                "no remedy: {said}"
            );
        }
        assert!(file("").starts_with("plan.toml:1: the plan names no host"));
        assert!(file(&"#".repeat(2 << 20)).contains("more than 1048576 bytes"));
        let cells = "host='h'\n".to_owned()
            + &"[[factor]]\nname='f'\nlevels=['baseline','mss=1400','mss=1300']\n".repeat(5);
        assert!(file(&cells).starts_with("plan.toml:2: the factors make 243 combinations"));
    }
}
