//! The experiments that are to decide between causes of loss, made: of the drawn cases those with one fault that loses, and what
//! the verdict leaves of the causes that were named.

use super::drawn::{Drawn, Fault, HELPS, On, explanation, goodput, play_once};
use super::{Options, common, interval, kinds, report};
use common::{Home, Lab};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What an experiment with a decider came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leads {
    /// The verdict leaves the true cause and excludes another.
    Right,
    /// The verdict excludes nothing.
    Undecided,
    /// The verdict excludes the true cause.
    Wrong,
    /// The true cause is not among those that the experiment separates.
    NotNamed,
    /// No experiment was proposed.
    None,
}

pub struct Decided {
    pub leads: Leads,
    kind: String,
    pub line: String,
}

/// Pairs of runs of an experiment, and where these do not settle it of the next.
const FIRST_PAIRS: u64 = 8;
const MOST_PAIRS: u64 = 40;
/// With fewer segments in flight a loss keeps little back.
const FEW_SEGMENTS: u64 = 20;

/// A path that loses in one way, and a sender that yields to loss.
pub fn is_one(drawn: &Drawn) -> bool {
    let in_flight = drawn.rate * drawn.rtt_us / 8_000_000 / 1514;
    let loses = |fault: &Fault| {
        matches!(
            fault,
            Fault::RandomLoss { .. }
                | Fault::LossInBursts { .. }
                | Fault::ShallowQueue { .. }
                | Fault::Policer { .. }
        )
    };
    let sender_yields = drawn.congestion != "bbr" && in_flight > FEW_SEGMENTS;
    // Programs that are not ours are not sampled.
    sender_yields && drawn.asks == 0 && drawn.faults.len() == 1 && drawn.faults.iter().all(loses)
}

/// Measures a case, and makes the experiment that its samples at 100 ms propose; `None` if that experiment concerns a
/// limit that its fault does not set.
pub fn decide(home: &Home, drawn: &Drawn, own: &Path) -> Option<Decided> {
    let fault = &drawn.faults[0];
    let [with, without] = ["all", "without-0"].map(|name| own.join(name));
    play_once(home, drawn, own, "all", &drawn.faults, On::Path, false);
    let explained = explanation(home, &[with.join("run-100ms.json")]);
    let mut findings = explained["findings"].as_array().into_iter().flatten();
    let decider = findings.find_map(|f| f["decider"].is_object().then_some(&f["decider"]));
    let (leads, what) = match decider {
        None => (Leads::None, explained["conclusion"].to_string()),
        Some(decider) => {
            play_once(home, drawn, own, "without-0", &[], On::Path, false);
            let gain = goodput(home, &without) / goodput(home, &with).max(1.0);
            if gain < HELPS {
                return None;
            }
            let scenario = with.join("scenario.toml");
            let mut verdict = prove(home, drawn, &scenario, decider, FIRST_PAIRS);
            // It says how many more it takes.
            if let Some(more) = verdict["comparisons"][0]["more_pairs"].as_u64() {
                let pairs = (FIRST_PAIRS + more).min(MOST_PAIRS);
                verdict = prove(home, drawn, &scenario, decider, pairs);
            }
            let outcome = verdict["outcome"].as_str().unwrap_or("no_verdict");
            let estimate = &verdict["comparisons"][0]["estimate"];
            // Without one, all is possible.
            let interval = [
                estimate["low_share"].as_f64().unwrap_or(f64::NEG_INFINITY),
                estimate["high_share"].as_f64().unwrap_or(f64::INFINITY),
            ];
            let effect = estimate["effect_share"].as_f64();
            let effect = effect.unwrap_or_default() * 100.0;
            let leads = leads(decider, interval, fault.names());
            let change = decider["change"].as_str().unwrap_or_default();
            let gain = (gain - 1.0) * 100.0;
            (
                leads,
                format!("{gain:+.0} % without the fault; {change}: {outcome} ({effect:+.1} %)"),
            )
        }
    };
    let line = format!(
        "seed {} case {}: {}, {fault:?}: {what}: {leads:?}",
        drawn.seed,
        drawn.number,
        drawn.path(),
    );
    Some(Decided {
        leads,
        kind: fault.kind(),
        line,
    })
}

/// What the interval of the effect leaves, by where it lies to the margin.
fn leads(decider: &Value, [low, high]: [f64; 2], truth: &[&str]) -> Leads {
    let of = |outcome: &str| -> Vec<&str> {
        let list = decider[outcome].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).collect()
    };
    let margin = decider["margin_share"].as_f64().unwrap_or_default();
    // As a ratio, the margin is as far on both sides.
    let lower = 1.0 / (1.0 + margin) - 1.0;
    let places = [
        ("slower", (f64::NEG_INFINITY, lower)),
        ("no_difference", (lower, margin)),
        ("faster", (margin, f64::INFINITY)),
    ];
    let reached = |(from, to): (f64, f64)| low < to && high > from;
    let all = places.map(|(outcome, _)| of(outcome)).concat();
    let left = places.iter().filter(|(_, place)| reached(*place));
    let left: Vec<&str> = left.flat_map(|(outcome, _)| of(outcome)).collect();
    let is_true = |cause: &&str| truth.contains(cause);
    match all.iter().any(is_true) {
        false => Leads::NotNamed,
        true if left.is_empty() || all.iter().all(|cause| left.contains(cause)) => Leads::Undecided,
        true if left.iter().any(is_true) => Leads::Right,
        true => Leads::Wrong,
    }
}

/// The verdict of the experiment, as its command line stands in the text of `explain`.
fn prove(home: &Home, drawn: &Drawn, scenario: &Path, decider: &Value, pairs: u64) -> Value {
    let lab = Lab::up(home, scenario.to_str().unwrap());
    let margin = decider["margin_share"].as_f64().unwrap_or_default() * 100.0;
    let mut command = home.linerate(&["prove", &format!("lab:{}", lab.name), "--json", "-q"]);
    command
        .args(["--change", decider["change"].as_str().unwrap_or_default()])
        .args(["--margin", &format!("{margin}%")])
        .args(["--direction", if drawn.down { "down" } else { "up" }])
        .args(["-C", drawn.congestion, "-t", &format!("{}s", drawn.seconds)])
        .args(["--gap", "0s", "--pilot", "0", "--pairs", &pairs.to_string()])
        .args(["--seed", &drawn.seed.to_string()]);
    report(&mut command)["verdict"].take()
}

pub fn print(all: &BTreeMap<u64, Decided>, options: &Options) {
    println!("# Deciders, seed {}: {} cases\n", options.seed, all.len());
    println!("| fault | cases | right | undecided | wrong | cause not named | no experiment |");
    println!("|---|---|---|---|---|---|---|");
    for kind in kinds(all.values().map(|one| &one.kind)) {
        let of = || all.values().filter(|d| d.kind == kind || kind == "all");
        let count = |leads| of().filter(|d| d.leads == leads).count();
        let (right, wrong) = (count(Leads::Right), count(Leads::Wrong));
        let made = right + wrong + count(Leads::Undecided) + count(Leads::NotNamed);
        let (low, high) = interval(right, made);
        println!(
            "| {kind} | {} | {right} of {made} ({low:.0} to {high:.0} %) | {} | {wrong} | {} | {} |",
            of().count(),
            count(Leads::Undecided),
            count(Leads::NotNamed),
            count(Leads::None),
        );
    }
    println!("\n```");
    for decided in all.values() {
        println!("{}", decided.line);
    }
    println!("```");
}
