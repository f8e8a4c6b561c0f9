//! What no plan may be, each with a sentence.

use super::PlanError;
use crate::stats::signed_rank::{FEWEST_PAIRS, looks};
use model::{Arm, Design, LegLimit, Metric, Nanos, On, Plan, Setting, Workload};
use std::collections::BTreeSet;

/// Most arms: each is in every block.
const MOST_ARMS: usize = 64;
/// Most pairs or blocks: a week of runs.
const MOST_BLOCKS: u32 = 1000;
const MOST_PILOT: u32 = 50;
const LONGEST_GAP: Nanos = Nanos::from_secs(3600);
/// Requests without which no run has a 99th percentile.
pub(crate) const P99_REQUESTS: u64 = 1000;

/// Checks a plan before anything moves.
///
/// # Errors
/// The first thing that is wrong, with what to do.
pub fn validate(plan: &Plan) -> Result<(), PlanError> {
    if plan.host.is_empty() {
        return wrong("host", "the plan names no host", "add host = \"db2\"");
    }
    margin(plan.margin)?;
    arms(plan)?;
    design(plan)?;
    run(plan)?;
    if plan.pilot_pairs == 1 || plan.pilot_pairs > MOST_PILOT {
        let pairs = counted(plan.pilot_pairs as usize, "pair");
        let what = format!("a pilot of {pairs} shows no noise");
        return wrong("pilot_pairs", what, "write 6 to 8, or 0 for no pilot");
    }
    if plan.gap > LONGEST_GAP {
        let what = format!("a gap of {} before every run", plan.gap);
        return wrong("gap", what, "write a time up to an hour (\"3s\")");
    }
    Ok(())
}

fn wrong(
    key: &'static str,
    what: impl Into<String>,
    remedy: impl Into<String>,
) -> Result<(), PlanError> {
    Err(PlanError::new(key, what, remedy))
}

fn margin(margin: f64) -> Result<(), PlanError> {
    let remedy = "write the equivalence margin, like 5%";
    if margin == 0.0 {
        let what = "with a margin of 0 no difference is too small to matter, so that no number of runs could show that there is none";
        return wrong("margin", what, remedy);
    }
    // Written so that a margin that is no number is refused too.
    if !(0.001..=1.0).contains(&margin) {
        let percent = margin * 100.0;
        let what = format!("the margin is {percent:.4} %, and can be 0.1 % to 100 %");
        return wrong("margin", what, remedy);
    }
    Ok(())
}

fn arms(plan: &Plan) -> Result<(), PlanError> {
    let key = match plan.design {
        Design::Factorial { .. } => "factor",
        _ => "arm",
    };
    // Two settings of a knob meet on a host unless each names another.
    let meet = |a: On, b: On| {
        let apart = [[On::Local, On::Remote], [On::Sender, On::Receiver]];
        !apart.contains(&[a, b]) && !apart.contains(&[b, a])
    };
    match plan.arms.len() {
        0 | 1 => {
            let what = "nothing to compare";
            let remedy = "add --change KNOB=VALUE (in a plan: a second [[arm]])";
            return wrong(key, what, remedy);
        }
        2..=MOST_ARMS => {}
        many => {
            let what = format!("the plan has {many} arms, more than {MOST_ARMS}");
            return wrong(key, what, "leave some out, or levels of a factor");
        }
    }
    let mut names = BTreeSet::new();
    let mut contents: Vec<(BTreeSet<String>, &Arm)> = Vec::new();
    for arm in &plan.arms {
        if arm.name.trim().is_empty() || !names.insert(&arm.name) {
            let what = format!("two arms are called '{}', or one has no name", arm.name);
            return wrong(key, what, "give each arm a name of its own");
        }
        let of_knob = |n: usize| {
            let s: &Setting = &arm.settings[n];
            let mut others = arm.settings[..n].iter();
            let again = others.find(|o| o.knob == s.knob && meet(o.on, s.on))?;
            Some(format!("the arm '{}' sets both {again} and {s}", arm.name))
        };
        if let Some(what) = (0..arm.settings.len()).find_map(of_knob) {
            return wrong(key, what, "leave one out");
        }
        let content = arm.settings.iter().map(Setting::to_string).collect();
        if let Some((_, same)) = contents.iter().find(|(other, _)| *other == content) {
            let what = format!("the arms '{}' and '{}' are the same", same.name, arm.name);
            let remedy =
                "let them differ in a setting; the pilot already compares the control with itself";
            return wrong(key, what, remedy);
        }
        contents.push((content, arm));
    }
    Ok(())
}

fn design(plan: &Plan) -> Result<(), PlanError> {
    match &plan.design {
        Design::Pairs { looks } => {
            if plan.arms.len() != 2 {
                let many = plan.arms.len();
                let what = format!("pairs are of two arms, and the plan has {many}");
                return wrong("pairs", what, "write blocks = 20 instead");
            }
            looks_known("looks", looks)
        }
        Design::Blocks { blocks } => fixed(*blocks, plan.arms.len() - 1, "blocks"),
        Design::Search { blocks, confirm } => {
            if plan.arms.len() < 3 {
                let what = "a search among one arm finds that one";
                let remedy = "leave out the search, or add arms to search among";
                return wrong("search", what, remedy);
            }
            if *blocks == 0 || *blocks > MOST_BLOCKS {
                let what = format!("a search with rounds of {blocks} blocks");
                return wrong("search.blocks", what, "write 1 to 1000; 3 is usual");
            }
            looks_known("search.confirm", confirm)
        }
        Design::Factorial { factors, blocks } => {
            if let Some(factor) = factors.iter().find(|f| f.levels.len() < 2) {
                let name = &factor.name;
                let what = format!("the factor '{name}' has one level, and varies nothing");
                return wrong("factor", what, "give it another, like \"baseline\"");
            }
            let whole = |a: &Arm| {
                let mut all = a.levels.iter().zip(factors);
                a.levels.len() == factors.len() && all.all(|(l, f)| (*l as usize) < f.levels.len())
            };
            if !plan.arms.iter().all(whole) {
                let what = "an arm does not say which level of each factor it has";
                return wrong("factor", what, "make the plan from its factors");
            }
            if *blocks < 2 || *blocks > MOST_BLOCKS {
                let what =
                    format!("{blocks} blocks of a factorial plan leave no noise to compare with");
                return wrong("blocks", what, "write 2 to 1000; 6 and more is usual");
            }
            Ok(())
        }
    }
}

/// The fewest blocks in which so many arms can each be distinguished from the control, all at 5 % together:
/// log2(40 arms), before which the smallest p-value is not small enough (Holm).
pub fn fewest_blocks(arms: usize) -> u32 {
    let fewest = (40.0 * arms as f64).log2().ceil();
    fewest.max(f64::from(FEWEST_PAIRS)) as u32
}

fn fixed(blocks: u32, arms: usize, key: &'static str) -> Result<(), PlanError> {
    let fewest = fewest_blocks(arms);
    if blocks < fewest {
        let blocks = counted(blocks as usize, "block");
        let what = format!("{blocks} give no verdict at 5 % on {arms} arms");
        return wrong(key, what, format!("write {fewest} or more"));
    }
    if blocks > MOST_BLOCKS {
        let remedy = format!("write {MOST_BLOCKS} or fewer");
        return wrong(key, format!("{blocks} blocks"), remedy);
    }
    Ok(())
}

fn looks_known(key: &'static str, pairs: &[u32]) -> Result<(), PlanError> {
    let usual = "write [8, 12, 16, 20], [10, 20, 30, 40], or one number of pairs";
    if let Some(few) = pairs.iter().find(|n| **n < FEWEST_PAIRS) {
        let few = counted(*few as usize, "pair");
        let what = format!(
            "{few} give no verdict: of 5, even all in favour come up at random in 1 of 16 experiments"
        );
        let remedy = format!("write {FEWEST_PAIRS} pairs or more; 8 to 20 is usual");
        return wrong(key, what, remedy);
    }
    if pairs.is_empty() || pairs.windows(2).any(|two| two[0] >= two[1]) {
        return wrong(key, "the looks do not rise", usual);
    }
    if pairs.iter().any(|n| *n > MOST_BLOCKS) {
        return wrong(key, format!("more than {MOST_BLOCKS} pairs"), usual);
    }
    if looks(pairs).is_none() {
        let all: Vec<String> = pairs.iter().map(u32::to_string).collect();
        let all = all.join(", ");
        let what =
            format!("nobody has worked out how often looks after {all} pairs are wrong together");
        return wrong(key, what, usual);
    }
    Ok(())
}

fn run(plan: &Plan) -> Result<(), PlanError> {
    let run = &plan.run;
    if run.directions.legs() != [plan.direction] {
        let what = "the runs go another way than the direction that is judged";
        return wrong("direction", what, "measure one direction: up or down");
    }
    let most = run.workload.most_streams();
    if !(1..=most).contains(&run.streams) {
        let what = format!("{} connections", run.streams);
        return wrong("run.streams", what, format!("write 1 to {most}"));
    }
    if run.interval < Nanos::from_millis(10) {
        let what = format!("samples every {}", run.interval);
        return wrong("run.interval", what, "write 10ms or more");
    }
    let empty = match run.limit {
        LegLimit::Time(time) => time.0 == 0,
        LegLimit::Bytes(bytes) => bytes.0 == 0,
        LegLimit::Requests(requests) => requests == 0,
        LegLimit::Whole => false,
    };
    if empty {
        let what = "a run of nothing measures nothing";
        return wrong("run", what, "give a time, size or count above 0");
    }
    let metric = plan.metric;
    if let Some([why, remedy]) = run.workload.kind().not_judged {
        return wrong("run.workload", why, remedy);
    }
    match (&run.workload, run.limit) {
        (workload, _) if metric.is_latency() && !workload.is_answered() => wrong(
            "metric",
            format!("{metric} needs requests, and the runs are bulk transfers"),
            "add workload = \"request\" under [run] (--workload request)",
        ),
        (workload, _) if !metric.is_latency() && workload.is_answered() => wrong(
            "metric",
            format!("{metric} needs bulk transfers, and the runs are requests"),
            "compare latency-p50 or latency-p99, or leave the workload out",
        ),
        (workload, LegLimit::Requests(_)) if !workload.is_answered() => wrong(
            "run.requests",
            "requests end a run of requests, and the runs are bulk transfers",
            "write time or bytes instead",
        ),
        (workload, LegLimit::Bytes(_)) if workload.is_answered() => wrong(
            "run.bytes",
            "bytes end a bulk transfer, and the runs are requests",
            "write time or requests instead",
        ),
        (_, LegLimit::Time(_)) if metric == Metric::Completion => wrong(
            "run.time",
            "completion is the time of a whole transfer, and the runs end by time",
            "write bytes = \"100M\" under [run] (--bytes 100M)",
        ),
        (Workload::Request(request), limit) if metric == Metric::LatencyP99 => {
            let expected = match (limit, request.pace_per_s) {
                (LegLimit::Requests(requests), _) => requests,
                (LegLimit::Time(time), Some(pace)) => (pace * time.as_secs_f64()) as u64,
                _ => return Ok(()),
            };
            if expected >= P99_REQUESTS {
                return Ok(());
            }
            let what = format!("the slowest 1 % of {expected} requests are too few to compare");
            let enough = format!("let each run make {P99_REQUESTS} requests or more");
            wrong("run", what, format!("{enough}, or compare latency-p50"))
        }
        _ => Ok(()),
    }
}

/// `1 run`, `3 runs`.
pub(crate) fn counted(n: usize, of: &str) -> String {
    format!("{n} {of}{}", if n == 1 { "" } else { "s" })
}
