//! Drawn truth: paths, loads and faults drawn at random, played on real kernels, and what `linerate explain` says of them from
//! every source. What is right is found by ablation: a case is played again without each of its faults and on a wider path, and
//! what lets most more flow is the cause.
#![allow(dead_code)] // The test and the bench use a part each.

mod draw;

use crate::common::{Home, Lab, Lines, Running, json, run, stderr};
use draw::{BUFFERS, FULL, GROWING};
pub use draw::{Drawn, Fault, On, Played};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

/// Sources, by name: the files that `explain` reads, and whether they are made from the run's samples.
pub const SOURCES: [(&str, &[&str]); 8] = [
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
const IPERF3_PORT: &str = ":5201";
/// The fault that keeps back most is a cause, if this much, though a faster path would do more: that is no removal.
const CLEAR: f64 = 1.25;
/// More than this, and a fault kept something back.
pub const HELPS: f64 = 1.10;
/// Goodput by the rate of the path from which that is the limit: headers take 4 % of full segments.
const FILLED: f64 = 0.9;
/// Up to this, it may have.
const MAY_HELP: f64 = 1.03;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    First,
    Named,
    Silent,
    WrongPossible,
    WrongConfident,
}

pub struct Answer {
    pub source: &'static str,
    pub truth: Truth,
    pub named: Vec<String>,
}

pub struct Judged {
    pub drawn: Drawn,
    /// Right answers, and each cause of two that compete.
    pub right: Vec<&'static str>,
    /// The faults of which each keeps back what would flow without it.
    pub causes: Vec<Fault>,
    pub goodput: f64,
    /// By the removal of each fault, and by a wider path.
    pub gains: Vec<f64>,
    pub answers: Vec<Answer>,
}

/// Does each case; those that cannot be played are left out.
pub fn in_jobs<T: Send>(
    jobs: usize,
    numbers: &[u64],
    case: impl Fn(u64) -> Option<T> + Sync,
) -> BTreeMap<u64, T> {
    let next = Mutex::new(numbers.iter());
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
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
pub fn play_all(home: &Home, drawn: &Drawn, own: &Path) {
    let faults = &drawn.faults;
    play_once(home, drawn, own, "all", faults, On::Path, true);
    play_once(home, drawn, own, "wider", faults, On::Wider, false);
    if drawn.outgrows_buffers() {
        play_once(home, drawn, own, "buffers", faults, On::LargeBuffers, false);
    }
    for (n, _) in faults.iter().enumerate() {
        let mut others = faults.clone();
        others.remove(n);
        play_once(
            home,
            drawn,
            own,
            &format!("without-{n}"),
            &others,
            On::Path,
            false,
        );
    }
    if faults.len() > 1 {
        play_once(home, drawn, own, "none", &[], On::Path, false);
    }
}

/// Plays a case with these faults into the directory `name`, unless that is done.
pub fn play_once(
    home: &Home,
    drawn: &Drawn,
    own: &Path,
    name: &str,
    faults: &[Fault],
    on: On,
    all: bool,
) {
    let into = own.join(name);
    for attempt in 0.. {
        if into.join("done").exists() {
            return;
        }
        let tried = catch_unwind(AssertUnwindSafe(|| {
            play(home, drawn, &drawn.with(faults, on), &into, all);
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
    let listener = played
        .receiver
        .as_ref()
        .map(|program| start(home, &lab, receiver, program, "listening"));
    for command in &played.before {
        let out = lab.exec(sender, &["sh", "-c", command]);
        assert!(out.status.success(), "{command}: {}", stderr(&out));
    }
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

/// What `explain` says of the transfer in these files: of the largest connection, and last of the lab's cross traffic and
/// of the control connection of iperf3, which has data both ways.
pub fn explanation(home: &Home, files: &[PathBuf]) -> Value {
    let explained = json(home.linerate(&["explain", "--json"]).args(files));
    let all = explained["explanations"].as_array().into_iter().flatten();
    let client = |e: &Value| {
        let ends = ["sender", "receiver"].map(|end| e[end].as_str().unwrap_or_default());
        let at = ends.iter().position(|end| end.ends_with(IPERF3_PORT))?;
        Some(ends[1 - at].to_owned())
    };
    let directions = |of: String| {
        all.clone()
            .filter(|e| client(e).as_ref() == Some(&of))
            .count()
    };
    let is_control = |e: &Value| client(e).map(directions) == Some(2);
    let is_traffic = |e: &Value| {
        let mut ends = ["sender", "receiver"].map(|end| &e[end]).into_iter();
        ends.any(|end| end.as_str().is_some_and(|end| end.ends_with(CROSS_TRAFFIC)))
    };
    all.clone()
        .max_by_key(|e| (!is_traffic(e), !is_control(e), e["bytes"].as_u64()))
        .cloned()
        .unwrap_or_default()
}

/// Goodput of a transfer in bit/s, by the trace at its sender.
pub fn goodput(home: &Home, of: &Path) -> f64 {
    let explained = explanation(home, &[of.join("sender.trace")]);
    let number = |key: &str| explained[key].as_f64().unwrap_or(0.0);
    number("bytes") * 8e9 / number("span_ns").max(1.0)
}

pub fn judge(home: &Home, drawn: Drawn, own: &Path) -> Option<Judged> {
    let all = own.join("all");
    if !all.join("done").exists() {
        return None;
    }
    if !own.join("wider/done").exists() {
        return None;
    }
    let with = goodput(home, &all);
    let gain = |name: &str| goodput(home, &own.join(name)) / with.max(1.0);
    let of_fault = |n| gain(&format!("without-{n}"));
    let gains: Vec<f64> = (0..drawn.faults.len()).map(of_fault).collect();
    let wider = gain("wider");
    let buffers = match drawn.outgrows_buffers() {
        true => gain("buffers"),
        false => 1.0,
    };
    let none = match drawn.faults.len() {
        0 => 1.0,
        1 => gains[0],
        _ => gain("none"),
    };
    let best_fault = gains.iter().copied().fold(buffers, f64::max);
    let best = best_fault.max(wider);
    // Within a tenth of the best all are right; where each of two faults hides what the other takes, both are.
    let is_best = |gain: f64| gain >= MAY_HELP.max(best / HELPS);
    let is_cause = |gain: f64| is_best(gain) || gain >= CLEAR.max(best_fault / HELPS);
    let both = best < HELPS && none >= HELPS;
    let grows = best < HELPS && !both;
    let causes = drawn.faults.iter().zip(&gains);
    let is_the_path = |(fault, gain): (&Fault, &f64)| is_cause(*gain) && fault.is_the_path();
    // A path of which hardly anything is left is full, whatever comes next.
    let full = is_best(wider) || with >= FILLED * drawn.rate as f64;
    let path = full || causes.clone().any(is_the_path);
    // What the path is (its queue, its marks, its other users) where it is the limit; what is asked of it where nothing is.
    let also = |fault: &Fault| path && fault.is_the_path() || grows && fault.is_the_load();
    let has_part = |gain: f64| both || is_cause(gain);
    let named = causes.clone().filter(|(f, g)| has_part(**g) || also(f));
    let names = named.flat_map(|(fault, _)| fault.names()).copied();
    let mut right: BTreeSet<&'static str> = names.collect();
    let causes = causes.filter(|(_, gain)| has_part(**gain));
    let causes: Vec<Fault> = causes.map(|(fault, _)| fault.clone()).collect();
    if full {
        right.extend(FULL);
    }
    if is_cause(buffers) {
        right.extend(BUFFERS);
    }
    if grows {
        right.extend(GROWING);
    }
    let answers = answers(home, &drawn, &all, &right);
    Some(Judged {
        right: right.into_iter().collect(),
        causes,
        drawn,
        goodput: with,
        gains: [gains, vec![wider]].concat(),
        answers,
    })
}

/// What `explain` answers from each source that was recorded in `all`.
pub fn answers(home: &Home, drawn: &Drawn, all: &Path, right: &BTreeSet<&str>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (source, files) in SOURCES {
        let files: Vec<PathBuf> = files.iter().map(|f| all.join(f)).collect();
        if files.iter().all(|f| f.exists()) {
            let causes = drawn
                .faults
                .iter()
                .filter(|f| f.names().iter().any(|n| right.contains(n)));
            let mut right = right.clone();
            right.extend(causes.flat_map(|f| f.looks_like(source)));
            answers.push(answer(source, &explanation(home, &files), &right));
        }
    }
    answers
}

fn answer(source: &'static str, explained: &Value, right: &BTreeSet<&str>) -> Answer {
    let conclusion = &explained["conclusion"];
    let is = conclusion["is"].as_str().unwrap_or("unexplained");
    let by = conclusion["by"].as_array().into_iter().flatten();
    let mut named: Vec<String> = by.filter_map(|n| Some(n.as_str()?.to_owned())).collect();
    let silent = named.is_empty() && is != "innocent";
    if named.is_empty() {
        named.push(is.to_owned());
    }
    let confident = |name: &String| {
        let findings = explained["findings"].as_array().into_iter().flatten();
        let limit = if is == "innocent" {
            "application"
        } else {
            name
        };
        let mut own = findings.filter(|f| f["limit"] == limit);
        own.any(|f| f["confidence"] != "possible")
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

/// Starts a program in a host and waits until it says that it is ready.
pub fn start(home: &Home, lab: &Lab<'_>, host: &str, program: &str, ready: &str) -> Running {
    let place = format!("{}/{host}", lab.name);
    let mut command = home.linerate(&["lab", "exec", &place, "--", "sh", "-c"]);
    let mut child = command
        .arg(format!("exec {program} 2>&1"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("linerate can be started");
    let lines = Lines::of(child.stdout.take().expect("the pipe was asked for"));
    lines.wait_for(ready);
    Running(child)
}

/// The same run as if it had been sampled at this interval.
pub fn sampled_every(mut run: Value, interval_ns: u64) -> Value {
    run["spec"]["interval_ns"] = interval_ns.into();
    for leg in run["legs"].as_array_mut().into_iter().flatten() {
        for end in ["local", "remote"] {
            let Some(samples) = leg[end]["samples"].as_array_mut() else {
                continue;
            };
            let count = samples.len();
            let (mut n, mut next) = (0, 0);
            samples.retain(|sample| {
                n += 1;
                let at = sample["at_ns"].as_u64().unwrap_or(0);
                let kept = at >= next || n == count;
                if kept {
                    next = at / interval_ns * interval_ns + interval_ns;
                }
                kept
            });
        }
    }
    run
}
