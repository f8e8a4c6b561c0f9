//! Drawn truth: paths, loads and faults drawn at random, played on real kernels, and what `linerate explain` says of them from
//! every source. Prints a page in Markdown. `bench/truth` starts it. Needs root.
#![allow(clippy::unwrap_used, reason = "a bench may panic")]
#![allow(missing_docs, reason = "a bench has no users")]

#[path = "../../tests/common/mod.rs"]
mod common;
mod deciders;
#[path = "../../tests/common/drawn/mod.rs"]
mod drawn;
mod pairs;
mod tunings;

use common::Home;
use drawn::{Answer, Drawn, Fault, Judged, SOURCES, Truth, in_jobs, judge, play_all};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const USAGE: &str = "bench/truth [--deciders|--tune] [--seed N] [--cases M] [--case K] [--jobs N] [--most RATE] [--fast] [--pairs] [--fault KIND] [--into DIR [--again]]";

struct Options {
    seed: u64,
    cases: u64,
    case: Option<u64>,
    jobs: usize,
    most: f64,
    into: Option<PathBuf>,
    again: bool,
    /// Cases that are played in few seconds, alone.
    fast: bool,
    /// Only cases of two faults that may each keep something back.
    pairs: bool,
    /// Only cases that have this one, as `Policer`.
    fault: Option<String>,
    /// Make the experiments that decide, instead of judging what was named.
    deciders: bool,
    /// Tune them.
    tune: bool,
}

fn options() -> Option<Options> {
    let mut options = Options {
        seed: 1,
        cases: 300,
        case: None,
        jobs: 1,
        most: 3e8,
        into: None,
        again: false,
        fast: false,
        pairs: false,
        fault: None,
        deciders: false,
        tune: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seed" => options.seed = args.next()?.parse().ok()?,
            "--cases" => options.cases = args.next()?.parse().ok()?,
            "--case" => options.case = Some(args.next()?.parse().ok()?),
            "--jobs" => options.jobs = args.next()?.parse().ok()?,
            "--most" => options.most = args.next()?.parse().ok()?,
            "--into" => options.into = Some(args.next()?.into()),
            "--fault" => options.fault = Some(args.next()?),
            "--pairs" => options.pairs = true,
            "--fast" => options.fast = true,
            "--again" => options.again = true,
            "--deciders" => options.deciders = true,
            "--tune" => options.tune = true,
            // cargo bench adds it.
            "--bench" => {}
            _ => return None,
        }
    }
    Some(options)
}

fn main() {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    let home = Home::new();
    let into = options
        .into
        .clone()
        .unwrap_or_else(|| home.path().join("truth"));
    let draw = |number| Drawn::new(options.seed, number, options.most);
    let own = |number: u64| into.join(format!("{}-{number}", options.seed));
    let fits = |number: &u64| {
        let drawn = draw(*number);
        let has_it = |fault: &String| drawn.faults.iter().any(|f| f.kind() == *fault);
        options.fault.as_ref().is_none_or(has_it)
            && (!options.deciders || deciders::is_one(&drawn))
            && (!options.tune || tunings::is_one(&drawn))
            && (!options.pairs || pairs::may_compete(&drawn))
            && (!options.fast || drawn.is_fast())
    };
    let numbers: Vec<u64> = match options.case {
        Some(case) => vec![case],
        None => (0..)
            .filter(fits)
            .take(options.cases.try_into().unwrap())
            .collect(),
    };
    if options.deciders {
        let decided = in_jobs(options.jobs, &numbers, |number| {
            let decided = deciders::decide(&home, &draw(number), &own(number))?;
            eprintln!("{}", decided.line);
            Some(decided)
        });
        return deciders::print(&decided, &options);
    }
    if options.tune {
        let tuned = in_jobs(options.jobs, &numbers, |number| {
            let tuned = tunings::tune(&home, &draw(number), &own(number))?;
            eprintln!("{}", tuned.line);
            Some(tuned)
        });
        return tunings::print(&tuned, &options);
    }
    let judged = in_jobs(options.jobs, &numbers, |number| {
        let drawn = draw(number);
        if !options.again {
            play_all(&home, &drawn, &own(number));
        }
        let judged = judge(&home, drawn, &own(number))?;
        eprintln!("{}", line(&judged));
        Some(judged)
    });
    let all: Vec<Judged> = judged.into_values().collect();
    print(&all, options.seed, numbers.len());
}

fn line(judged: &Judged) -> String {
    let drawn = &judged.drawn;
    let faults: Vec<String> = drawn.faults.iter().map(|f| format!("{f:?}")).collect();
    let gains: Vec<String> = judged.gains.iter().map(|g| format!("{g:.2}")).collect();
    let answers: Vec<String> = judged
        .answers
        .iter()
        .filter(|a| a.truth != Truth::First)
        .map(|a| format!("\n    {:?} {}: {}", a.truth, a.source, a.named.join(", ")))
        .collect();
    format!(
        "seed {} case {}: {:.1} of {}, {} [{}]; right: {}{}",
        drawn.seed,
        drawn.number,
        judged.goodput / 1e6,
        drawn.path(),
        faults.join(" + "),
        gains.join(" "),
        judged.right.join(", "),
        answers.concat(),
    )
}

/// What a command prints within twenty minutes as JSON, whatever its status: that is a verdict's.
fn report(command: &mut Command) -> Value {
    let out = common::run_within(command, Duration::from_secs(1200));
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", common::stderr(&out)))
}

/// Each kind once, and all together.
fn kinds<'a>(of: impl Iterator<Item = &'a String>) -> impl Iterator<Item = &'a str> {
    let kinds: BTreeSet<&str> = of.map(String::as_str).collect();
    kinds.into_iter().chain(["all"])
}

/// The 95 % interval of a share (Wilson 1927), in per cent.
fn interval(hits: usize, of: usize) -> (f64, f64) {
    if of == 0 {
        return (0.0, 100.0);
    }
    let (n, z) = (of as f64, 1.96);
    let p = hits as f64 / n;
    let middle = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 100.0 / (1.0 + z * z / n);
    ((middle - half) * scale, (middle + half) * scale)
}

/// Of the answers to cases with two causes, those that name both.
fn two_causes(all: &[Judged]) {
    let cases: Vec<&Judged> = all.iter().filter(|j| j.causes.len() > 1).collect();
    let answers = cases
        .iter()
        .flat_map(|judged| judged.answers.iter().map(move |answer| (*judged, answer)));
    let names_both = |(judged, answer): &(&Judged, &Answer)| {
        judged.causes.iter().all(|cause| {
            let names = [cause.names(), cause.looks_like(answer.source)].concat();
            answer
                .named
                .iter()
                .any(|named| names.contains(&named.as_str()))
        })
    };
    let (named, lack): (Vec<_>, Vec<_>) = answers.partition(names_both);
    let (count, both) = (named.len() + lack.len(), named.len());
    let (low, high) = interval(both, count);
    println!(
        "\nTwo causes in {} cases: both are named in {both} of {count} answers ({low:.1} to {high:.1} %).",
        cases.len()
    );
    for (judged, answer) in lack {
        let causes: Vec<&str> = judged.causes.iter().map(|cause| cause.names()[0]).collect();
        let (number, causes, named) = (
            judged.drawn.number,
            causes.join(" and "),
            answer.named.join(", "),
        );
        println!(
            "- case {number}, {}: {causes}; named: {named}",
            answer.source
        );
    }
}

fn print(all: &[Judged], seed: u64, asked: usize) {
    println!(
        "# Drawn truth, seed {seed}: {} of {asked} cases played\n",
        all.len()
    );
    println!(
        "| source | answers | right first | right, not first | not known | wrong, possible | confidently wrong |"
    );
    println!("|---|---|---|---|---|---|---|");
    let of = |source: &str| -> Vec<&Answer> {
        let answers = all.iter().flat_map(|j| &j.answers);
        answers
            .filter(|a| a.source == source || source == "all")
            .collect()
    };
    for source in SOURCES.iter().map(|(s, _)| *s).chain(["all"]) {
        let answers = of(source);
        let count = |truth| answers.iter().filter(|a| a.truth == truth).count();
        let share = |truth| {
            let (low, high) = interval(count(truth), answers.len());
            let share = 100.0 * count(truth) as f64 / answers.len().max(1) as f64;
            format!("{} ({share:.1} %, {low:.1} to {high:.1})", count(truth))
        };
        println!(
            "| {source} | {} | {} | {} | {} | {} | {} |",
            answers.len(),
            share(Truth::First),
            count(Truth::Named),
            count(Truth::Silent),
            count(Truth::WrongPossible),
            share(Truth::WrongConfident)
        );
    }
    two_causes(all);
    println!("\n## By cause\n\nRight first, of how many; confidently wrong in bold.\n");
    println!("| faults | {} |", SOURCES.map(|(s, _)| s).join(" | "));
    println!("|---|{}", "---|".repeat(SOURCES.len()));
    let mut by_kind: BTreeMap<String, Vec<&Judged>> = BTreeMap::new();
    for judged in all {
        let kinds = judged.drawn.faults.iter().map(Fault::kind);
        let kinds: Vec<String> = match judged.drawn.faults.len() {
            0 => vec!["none".into()],
            1 => kinds.collect(),
            _ => vec!["two faults".into()],
        };
        for kind in kinds {
            by_kind.entry(kind).or_default().push(judged);
        }
    }
    for (kind, cases) in by_kind {
        let cells = SOURCES.map(|(source, _)| {
            let answers: Vec<&Answer> = cases
                .iter()
                .flat_map(|j| &j.answers)
                .filter(|a| a.source == source)
                .collect();
            let count = |truth| answers.iter().filter(|a| a.truth == truth).count();
            let wrong = match count(Truth::WrongConfident) {
                0 => String::new(),
                n => format!(", **{n}**"),
            };
            format!("{} of {}{wrong}", count(Truth::First), answers.len())
        });
        println!("| {kind} | {} |", cells.join(" | "));
    }
    println!("\n## Not right first\n\n```");
    let mut worst: Vec<&Judged> = all
        .iter()
        .filter(|j| j.answers.iter().any(|a| a.truth > Truth::Named))
        .collect();
    worst.sort_by_key(|j| {
        std::cmp::Reverse(
            j.answers
                .iter()
                .filter(|a| a.truth == Truth::WrongConfident)
                .count(),
        )
    });
    for judged in worst {
        println!("{}", line(judged));
    }
    println!("```");
}
