//! Drawn truth: paths, loads and faults drawn at random, played on real kernels, and what `linerate explain` says of them from
//! every source. What is right is found by ablation: the case is played again without each of its faults, and the fault whose
//! removal lets most more flow is the cause. Prints a page in Markdown. `bench/truth` starts it. Needs root.
#![allow(clippy::unwrap_used, reason = "a bench may panic")]
#![allow(missing_docs, reason = "a bench has no users")]

#[path = "../../tests/common/causes.rs"]
mod causes;
#[path = "../../tests/common/mod.rs"]
mod common;
mod deciders;
mod draw;

use causes::{sampled_every, start};
use common::{Home, Lab, json, run, stderr};
use draw::{Drawn, FULL, Fault, GROWING, Played};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

const USAGE: &str = "bench/truth [--deciders] [--seed N] [--cases M] [--case K] [--jobs N] [--most RATE] [--into DIR [--again]]";

/// Sources, by name: the files that `explain` reads, and whether they are made from the run's samples.
const SOURCES: [(&str, &[&str]); 8] = [
    ("samples, 1 s", &["run-1000ms.json"]),
    ("samples, 100 ms", &["run-100ms.json"]),
    ("samples, 10 ms", &["run-10ms.json"]),
    ("trace at the sender", &["sender.trace"]),
    ("trace at the receiver", &["receiver.trace"]),
    ("capture at the sender", &["sender.pcap"]),
    ("capture at the receiver", &["receiver.pcap"]),
    ("captures at both", &["sender.pcap", "receiver.pcap"]),
];

/// Where the cross traffic of a lab goes: the discard port (RFC 863).
const CROSS_TRAFFIC: &str = ":9";
/// So much faster is the path on which it is tried whether the path's rate is the limit.
const WIDER: u64 = 3;
/// More than this, and a fault kept something back.
const HELPS: f64 = 1.10;
/// Up to this, it may have.
const MAY_HELP: f64 = 1.03;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Truth {
    First,
    Named,
    Silent,
    WrongPossible,
    WrongConfident,
}

struct Answer {
    source: &'static str,
    truth: Truth,
    named: Vec<String>,
}

struct Judged {
    drawn: Drawn,
    /// Right answers, and each cause of two that compete.
    right: Vec<&'static str>,
    goodput: f64,
    /// By the removal of each fault, and by a wider path.
    gains: Vec<f64>,
    answers: Vec<Answer>,
}

struct Options {
    seed: u64,
    cases: u64,
    case: Option<u64>,
    jobs: usize,
    most: f64,
    into: Option<PathBuf>,
    again: bool,
    /// Make the experiments that decide, instead of judging what was named.
    deciders: bool,
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
        deciders: false,
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
            "--again" => options.again = true,
            "--deciders" => options.deciders = true,
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
    let fits = |number: &u64| !options.deciders || deciders::is_one(&draw(*number));
    let numbers: Vec<u64> = match options.case {
        Some(case) => vec![case],
        None => (0..)
            .filter(fits)
            .take(options.cases.try_into().unwrap())
            .collect(),
    };
    if options.deciders {
        let decided = in_jobs(&options, &numbers, |number| {
            let decided = deciders::decide(&home, &draw(number), &own(number))?;
            eprintln!("{}", decided.line);
            Some(decided)
        });
        return deciders::print(&decided, &options);
    }
    let judged = in_jobs(&options, &numbers, |number| {
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

/// Does each case; those that cannot be played are left out.
fn in_jobs<T: Send>(
    options: &Options,
    numbers: &[u64],
    case: impl Fn(u64) -> Option<T> + Sync,
) -> BTreeMap<u64, T> {
    let next = Mutex::new(numbers.iter());
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(&number) = next.lock().unwrap().next() else {
                        return;
                    };
                    let played = catch_unwind(AssertUnwindSafe(|| case(number)));
                    if let Ok(Some(result)) = played {
                        done.lock().unwrap().insert(number, result);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap()
}

/// Plays a case with all of its faults, and without each; what is there already stays.
fn play_all(home: &Home, drawn: &Drawn, own: &Path) {
    let faults = &drawn.faults;
    play_once(home, drawn, own, "all", faults, 1, true);
    play_once(home, drawn, own, "wider", faults, WIDER, false);
    for (n, _) in faults.iter().enumerate() {
        let mut others = faults.clone();
        others.remove(n);
        play_once(home, drawn, own, &format!("without-{n}"), &others, 1, false);
    }
    if faults.len() > 1 {
        play_once(home, drawn, own, "none", &[], 1, false);
    }
}

/// Plays a case with these faults into the directory `name`, unless that is done.
fn play_once(
    home: &Home,
    drawn: &Drawn,
    own: &Path,
    name: &str,
    faults: &[Fault],
    wider: u64,
    all: bool,
) {
    let into = own.join(name);
    for attempt in 0.. {
        if into.join("done").exists() {
            return;
        }
        let tried = catch_unwind(AssertUnwindSafe(|| {
            play(home, drawn, &drawn.with(faults, wider), &into, all);
        }));
        assert!(
            tried.is_ok() || attempt < 2,
            "case {} cannot be played",
            drawn.number
        );
    }
}

/// Plays one transfer; leaves traces, captures and runs in `into`.
fn play(home: &Home, drawn: &Drawn, played: &Played, into: &Path, all: bool) {
    let _ = std::fs::remove_dir_all(into);
    std::fs::create_dir_all(into).unwrap();
    let file = into.join("scenario.toml");
    std::fs::write(&file, &played.scenario).unwrap();
    let lab = Lab::up(home, file.to_str().unwrap());
    let (sender, receiver) = if drawn.down { ("b", "a") } else { ("a", "b") };
    for command in &played.before {
        let out = lab.exec(sender, &["sh", "-c", command]);
        assert!(out.status.success(), "{command}: {}", stderr(&out));
    }
    let listener = played
        .receiver
        .as_ref()
        .map(|program| start(home, &lab, receiver, program, "listening"));
    let path = |name: &str| into.join(name).display().to_string();
    let linerate = env!("CARGO_BIN_EXE_linerate");
    let mut recorders = Vec::new();
    for (host, end) in [(sender, "sender"), (receiver, "receiver")] {
        if !all && end == "receiver" {
            continue;
        }
        let program = format!("{linerate} trace -w {}", path(&format!("{end}.trace")));
        recorders.push(start(home, &lab, host, &program, "tracing"));
        if all {
            let file = path(&format!("{end}.pcap"));
            let program =
                format!("tcpdump --immediate-mode -U -s 96 -Z root -B 16384 -w {file} tcp");
            recorders.push(start(home, &lab, host, &program, "listening on"));
        }
    }
    match &played.sender {
        Some(program) => {
            let out = lab.exec(sender, &["sh", "-c", program]);
            assert!(out.status.success(), "{program}: {}", stderr(&out));
        }
        None => {
            let host = format!("lab:{}", lab.name);
            let mut args = vec![
                "measure",
                &host,
                "--json",
                "-q",
                "-i",
                "10ms",
                "-C",
                drawn.congestion,
            ];
            args.extend(played.options.iter().map(String::as_str));
            let out = run(&mut home.linerate(&args));
            // Some faults end a transfer: what was seen until then is kept.
            let measured: Value = serde_json::from_slice(&out.stdout)
                .unwrap_or_else(|e| panic!("{e}: {}", stderr(&out)));
            for ms in [10, 100, 1000] {
                let run = sampled_every(measured.clone(), ms * 1_000_000);
                std::fs::write(into.join(format!("run-{ms}ms.json")), run.to_string()).unwrap();
            }
        }
    }
    for recorder in recorders {
        recorder.interrupt();
        recorder.output(Duration::from_secs(20));
    }
    if let Some(listener) = listener {
        listener.interrupt();
    }
    std::fs::write(into.join("truth.json"), lab.truth().to_string()).unwrap();
    std::fs::write(into.join("done"), "").unwrap();
}

/// What `explain` says of the transfer in these files: of the largest connection, and of the lab's cross traffic last.
fn explanation(home: &Home, files: &[PathBuf]) -> Value {
    let explained = json(home.linerate(&["explain", "--json"]).args(files));
    let all = explained["explanations"].as_array().into_iter().flatten();
    let is_traffic = |e: &Value| {
        let mut ends = ["sender", "receiver"].map(|end| &e[end]).into_iter();
        ends.any(|end| end.as_str().is_some_and(|end| end.ends_with(CROSS_TRAFFIC)))
    };
    all.max_by_key(|e| (!is_traffic(e), e["bytes"].as_u64()))
        .cloned()
        .unwrap_or_default()
}

/// Goodput of a transfer in bit/s, by the trace at its sender.
fn goodput(home: &Home, of: &Path) -> f64 {
    let told = explanation(home, &[of.join("sender.trace")]);
    let number = |key: &str| told[key].as_f64().unwrap_or(0.0);
    number("bytes") * 8e9 / number("span_ns").max(1.0)
}

fn judge(home: &Home, drawn: Drawn, own: &Path) -> Option<Judged> {
    let all = own.join("all");
    if !all.join("done").exists() {
        return None;
    }
    if !own.join("wider/done").exists() {
        return None;
    }
    let with = goodput(home, &all);
    let without: Vec<f64> = (0..drawn.faults.len())
        .map(|n| goodput(home, &own.join(format!("without-{n}"))))
        .collect();
    let gains: Vec<f64> = without.iter().map(|g| g / with.max(1.0)).collect();
    let wider = goodput(home, &own.join("wider")) / with.max(1.0);
    let none = match drawn.faults.len() {
        0 => 1.0,
        1 => gains[0],
        _ => goodput(home, &own.join("none")) / with.max(1.0),
    };
    let best = gains.iter().copied().fold(wider, f64::max);
    // Within a tenth of the best all are right; where each of two faults hides what the other takes, both are.
    let is_cause = |gain: f64| gain >= MAY_HELP.max(best / HELPS);
    let both = best < HELPS && none >= HELPS;
    let (helped, harmless): (Vec<_>, Vec<_>) = drawn
        .faults
        .iter()
        .zip(&gains)
        .partition(|(_, gain)| both || is_cause(**gain));
    let right_for = |source: &str| {
        let mut right: BTreeSet<&'static str> = BTreeSet::new();
        let named = |fault: &Fault| [fault.names(), fault.looks_like(source)].concat();
        right.extend(helped.iter().flat_map(|(fault, _)| named(fault)));
        if is_cause(wider) {
            right.extend(FULL);
            // What the path is: its queue, its marks, its other users.
            let path = harmless.iter().filter(|(fault, _)| fault.is_the_path());
            right.extend(path.flat_map(|(fault, _)| named(fault)));
        }
        if best < HELPS && !both {
            right.extend(GROWING);
            let asked = harmless.iter().filter(|(fault, _)| fault.is_the_load());
            right.extend(asked.flat_map(|(fault, _)| named(fault)));
        }
        right
    };
    let answers = SOURCES
        .into_iter()
        .filter(|(_, files)| files.iter().all(|f| all.join(f).exists()))
        .map(|(source, files)| {
            let files: Vec<PathBuf> = files.iter().map(|f| all.join(f)).collect();
            answer(source, &explanation(home, &files), &right_for(source))
        })
        .collect();
    Some(Judged {
        right: right_for("").into_iter().collect(),
        drawn,
        goodput: with,
        gains: [gains, vec![wider]].concat(),
        answers,
    })
}

fn answer(source: &'static str, told: &Value, right: &BTreeSet<&'static str>) -> Answer {
    let conclusion = &told["conclusion"];
    let is = conclusion["is"].as_str().unwrap_or("unexplained");
    let by = conclusion["by"].as_array().into_iter().flatten();
    let mut named: Vec<String> = by.filter_map(|n| Some(n.as_str()?.to_owned())).collect();
    let silent = named.is_empty() && is != "innocent";
    if named.is_empty() {
        named.push(is.to_owned());
    }
    let confident = |name: &String| {
        let findings = told["findings"].as_array().into_iter().flatten();
        let mut own = findings.filter(|f| f["limit"] == name.as_str());
        is == "innocent" || own.any(|f| f["confidence"] != "possible")
    };
    let is_right = |name: &String| right.contains(name.as_str());
    let truth = if is_right(&named[0]) {
        Truth::First
    } else if silent {
        Truth::Silent
    } else if confident(&named[0]) {
        Truth::WrongConfident
    } else if named.iter().any(is_right) {
        Truth::Named
    } else {
        Truth::WrongPossible
    };
    Answer {
        source,
        truth,
        named,
    }
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
        "seed {} case {}: {:.1} of {:.1} Mbit/s, RTT {:.1} ms, {}{}, {} [{}]; right: {}{}",
        drawn.seed,
        drawn.number,
        judged.goodput / 1e6,
        drawn.rate as f64 / 1e6,
        drawn.rtt_us as f64 / 1e3,
        drawn.congestion,
        if drawn.down { ", down" } else { "" },
        faults.join(" + "),
        gains.join(" "),
        judged.right.join(", "),
        answers.concat(),
    )
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
