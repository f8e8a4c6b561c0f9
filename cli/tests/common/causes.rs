//! The table of causes: paths and loads whose limit is known (`bench/causes.toml`), what `linerate explain` says of
//! each from a run, a trace and a capture of the same transfer, and how true that is. The short form in the test run and
//! the full one of `bench/table-of-causes` share it.
#![allow(dead_code)] // Each of the two uses its part.

use crate::common::{Home, Lab, Lines, Running, json, run, stderr};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What an explanation is drawn from, in the order of the columns. Runs are sampled as often as can be, and the same
/// run again as if it had been sampled once a second, as it is without `-i`.
pub const SOURCES: [(&str, &[&str]); 5] = [
    ("samples", &["run.json"]),
    ("every second", &["seldom.json"]),
    ("trace", &["sender.trace"]),
    ("capture", &["sender.pcap"]),
    ("both traces", &["sender.trace", "receiver.trace"]),
];
/// Names that stand for an answer without a cause.
const NO_CAUSE: [&str; 3] = ["innocent", "too_short", "unexplained"];

/// The mark of a case that was made.
const DONE: &str = "done";

/// All cases with one cause.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// What is to be named: a limit, or one of [`NO_CAUSE`].
    cause: String,
    /// What makes it.
    about: String,
    congestion: Vec<String>,
    /// What else is right, and why.
    #[serde(default)]
    also: Vec<Also>,
    /// The receiver is traced as well.
    #[serde(default)]
    both_ends: bool,
    /// Keys of both hosts (`docs/lab.md`).
    #[serde(default)]
    hosts: String,
    /// Keys of the link: both directions.
    both: String,
    #[serde(default)]
    forward: String,
    /// Options of `linerate measure`.
    #[serde(default)]
    options: String,
    case: Vec<Strength>,
}

/// Another name that is right.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Also {
    named: String,
    /// The sources for which it is; all without.
    #[serde(default, rename = "in")]
    sources: Vec<String>,
    /// The congestion controls for which it is; all without.
    #[serde(default)]
    with: Vec<String>,
    because: String,
}

/// How strong the cause is: on top of what the group says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Strength {
    /// In words.
    strength: String,
    both: Option<String>,
    #[serde(default)]
    forward: String,
    /// More of the scenario: traffic, changes.
    #[serde(default)]
    more: String,
    #[serde(default)]
    options: String,
    /// Commands in the sender's host before it begins, once the receiver's program is there.
    #[serde(default)]
    before: Vec<String>,
    /// Instead of `measure`: a program at the sender, and one at the receiver that says "listening".
    near: Option<String>,
    far: Option<String>,
    /// The congestion control with which it is part of the short form.
    short: Option<String>,
}

impl std::fmt::Display for Also {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.named)?;
        for only in [&self.sources, &self.with] {
            if !only.is_empty() {
                write!(f, " ({})", only.join(", "))?;
            }
        }
        write!(f, ", because {}", self.because)
    }
}

/// One transfer with a known cause.
pub struct Case {
    pub cause: String,
    pub about: String,
    pub strength: String,
    pub congestion: String,
    pub short: bool,
    pub also: Vec<Also>,
    both_ends: bool,
    scenario: String,
    options: String,
    before: Vec<String>,
    near: Option<String>,
    far: Option<String>,
}

/// How true an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// The cause is named first.
    First,
    /// It is named among others that fit.
    Listed,
    /// It is not named, and nothing else is claimed.
    Missed,
    /// Something else is claimed, and that no other fits.
    Wrong,
}

/// What was said of a case from one source.
pub struct Told {
    pub source: &'static str,
    pub named: Vec<String>,
    /// Of the time, by the first.
    pub share: f64,
    pub truth: Truth,
}

/// All cases, in the order of the file.
pub fn cases() -> Vec<Case> {
    #[derive(Deserialize)]
    struct Table {
        group: Vec<Group>,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/causes.toml");
    let text = std::fs::read_to_string(path).expect("bench/causes.toml is there");
    let table: Table = toml::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
    let cases = |group: &Group| -> Vec<Case> {
        let strengths = group.case.iter();
        let all = strengths.flat_map(|s| group.congestion.iter().map(move |c| (s, c)));
        all.map(|(s, c)| case(group, s, c)).collect()
    };
    table.group.iter().flat_map(cases).collect()
}

/// Works on the cases, so many at a time; returns what came of each, in their order.
pub fn each<T: Send>(cases: &[Case], jobs: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= cases.len() {
                        return;
                    }
                    let made = work(n);
                    done.lock()
                        .expect("no thread panics with it")
                        .insert(n, made);
                }
            });
        }
    });
    let done = done.into_inner().expect("no thread panics with it");
    done.into_values().collect()
}

fn case(group: &Group, strength: &Strength, congestion: &str) -> Case {
    let hosts = format!("{}\ncongestion = \"{congestion}\"", group.hosts);
    let scenario = format!(
        "name = \"cause\"\nwhy = \"known\"\n[[host]]\nname = \"a\"\n{hosts}\n[[host]]\nname = \"b\"\n{hosts}\n\
         [[link]]\nname = \"wan\"\nbetween = [\"a\", \"b\"]\n[link.both]\n{}\n[link.forward]\n{}\n{}\n{}",
        strength.both.as_ref().unwrap_or(&group.both),
        group.forward,
        strength.forward,
        strength.more,
    );
    Case {
        cause: group.cause.clone(),
        about: group.about.clone(),
        strength: strength.strength.clone(),
        congestion: congestion.to_owned(),
        short: strength.short.as_deref() == Some(congestion),
        also: group.also.clone(),
        both_ends: group.both_ends,
        scenario,
        options: format!("{} {}", group.options, strength.options),
        before: strength.before.clone(),
        near: strength.near.clone(),
        far: strength.far.clone(),
    }
}

impl Case {
    /// A name that is a file's, too.
    pub fn name(&self) -> String {
        let name = format!("{} {} {}", self.cause, self.strength, self.congestion);
        name.replace(|c: char| !c.is_alphanumeric() && c != '.' && c != '_', "-")
    }

    /// Whether [`Case::play`] left all that it leaves there.
    pub fn is_made(&self, into: &Path) -> bool {
        into.join(DONE).exists()
    }

    /// Makes the transfer on its path, and leaves run, trace and capture in `into`.
    ///
    /// # Panics
    /// If one of the programs fails.
    pub fn play(&self, home: &Home, into: &Path) {
        let _ = std::fs::remove_dir_all(into);
        std::fs::create_dir_all(into).expect("the directory can be made");
        let file = into.join("scenario.toml");
        std::fs::write(&file, &self.scenario).expect("the directory can be written");
        let lab = Lab::up(home, file.to_str().expect("the path is text"));
        let served = self
            .far
            .as_ref()
            .map(|program| start(home, &lab, "b", program, "listening"));
        for command in &self.before {
            let out = lab.exec("a", &["sh", "-c", command]);
            assert!(out.status.success(), "{command}: {}", stderr(&out));
        }
        let path = |name: &str| into.join(name).display().to_string();
        let linerate = env!("CARGO_BIN_EXE_linerate");
        let trace = |host, name| {
            let program = format!("{linerate} trace -w {}", path(name));
            start(home, &lab, host, &program, "tracing")
        };
        let other = self.both_ends.then(|| trace("b", "receiver.trace"));
        let trace = trace("a", "sender.trace");
        let capture = format!(
            "tcpdump --immediate-mode -U -s 96 -Z root -B 16384 -w {} tcp",
            path("sender.pcap")
        );
        let capture = start(home, &lab, "a", &capture, "listening on");
        match &self.near {
            Some(program) => {
                let out = lab.exec("a", &["sh", "-c", program]);
                assert!(out.status.success(), "{program}: {}", stderr(&out));
            }
            None => {
                let host = format!("lab:{}", lab.name);
                let mut args = vec!["measure", &host, "--json", "-q", "-i", "10ms"];
                args.extend(["-C", &self.congestion]);
                args.extend(self.options.split_whitespace());
                let out = run(&mut home.linerate(&args));
                // Some causes end a transfer: what was seen until then is kept.
                let measured: Value = serde_json::from_slice(&out.stdout)
                    .unwrap_or_else(|e| panic!("{e}: {}", stderr(&out)));
                let write = |name: &str, run: &Value| {
                    std::fs::write(into.join(name), run.to_string()).expect("it can be written");
                };
                write("run.json", &measured);
                write("seldom.json", &sampled_every(measured, 1_000_000_000));
            }
        }
        for running in [Some(trace), Some(capture), other].into_iter().flatten() {
            running.interrupt();
            running.output(Duration::from_secs(20));
        }
        if let Some(served) = served {
            served.interrupt();
        }
        std::fs::write(into.join(DONE), "").expect("the directory can be written");
    }

    /// What each source says of what [`Case::play`] left in `of`; sources that are not there are left out.
    pub fn judge(&self, home: &Home, of: &Path) -> Vec<Told> {
        let sender = std::fs::read_to_string(of.join("run.json"))
            .ok()
            .and_then(|text| {
                let run: Value = serde_json::from_str(&text).ok()?;
                let near = &run["legs"][0]["near"];
                Some(near["sockets"][0]["local"].as_str()?.to_owned())
            });
        let there = SOURCES
            .into_iter()
            .filter(|(_, files)| files.iter().all(|f| of.join(f).exists()));
        there
            .map(|(source, files)| {
                let mut explain = home.linerate(&["explain", "--json"]);
                let told = json(explain.args(files.iter().map(|f| of.join(f))));
                let all = told["explanations"].as_array().cloned().unwrap_or_default();
                let by_bytes = |e: &&Value| e["bytes"].as_u64();
                let own = all
                    .iter()
                    .filter(|e| e["sender"].as_str() == sender.as_deref());
                let told = own
                    .max_by_key(by_bytes)
                    .or_else(|| all.iter().max_by_key(by_bytes));
                self.truth(source, told.unwrap_or(&Value::Null))
            })
            .collect()
    }

    fn is_right(&self, source: &str, name: &str) -> bool {
        let here = |list: &[String], what: &str| list.is_empty() || list.iter().any(|x| x == what);
        let also = |a: &Also| {
            a.named == name && here(&a.sources, source) && here(&a.with, &self.congestion)
        };
        name == self.cause || self.also.iter().any(also)
    }

    fn truth(&self, source: &'static str, told: &Value) -> Told {
        let conclusion = &told["conclusion"];
        let names = conclusion["by"].as_array().into_iter().flatten();
        let mut named: Vec<String> = names.filter_map(|n| Some(n.as_str()?.to_owned())).collect();
        let is = conclusion["is"].as_str().unwrap_or("unexplained");
        if named.is_empty() {
            named.push(is.to_owned());
        }
        let finding = |name: &str| {
            let all = told["findings"].as_array()?;
            all.iter().find(|f| f["limit"] == name)
        };
        let claimed = |name: &&String| {
            is == "innocent" || finding(name).is_some_and(|f| f["confidence"] != "possible")
        };
        let right = |name: &String| self.is_right(source, name);
        let truth = if named.iter().filter(claimed).any(|name| !right(name)) {
            Truth::Wrong
        } else if right(&named[0]) {
            Truth::First
        } else if named.iter().any(right) {
            Truth::Listed
        } else {
            Truth::Missed
        };
        let share = finding(&named[0]).and_then(|f| f["share"]["time_share"].as_f64());
        Told {
            source,
            share: share.unwrap_or(0.0),
            named,
            truth,
        }
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
        for end in ["near", "far"] {
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
