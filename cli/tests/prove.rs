//! `linerate prove` as a user meets it: whole experiments between two network namespaces and in a lab,
//! with changes whose effect is known, and with everything that can go wrong on the way. Needs root.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Home, Pair, Running, alone, listening, one_line, stderr, stdout};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Something that takes seconds at the most has not happened by then.
const NEVER: Duration = Duration::from_secs(120);

/// The shortest runs that show anything, with buffers that are empty soon, and no pauses.
const SHORT: [&str; 11] = [
    "-t", "0.4s", "-O", "0.1s", "-i", "50ms", "-w", "256K", "--gap", "0s", "-q",
];

/// A local host, and a remote one that lets it measure and tune.
struct Path {
    pair: Pair,
    home: Home,
    remote_home: Home,
    server: Option<Running>,
}

impl Path {
    fn new(name: &str) -> Path {
        let mut path = Path {
            pair: Pair::new(name),
            home: Home::new(),
            remote_home: Home::new(),
            server: None,
        };
        let invite = ["trust", "invite", "--address", Pair::FAR, "--tune"];
        let line = stdout(&common::run(&mut path.remote_home.linerate(&invite)));
        path.serve();
        let accept = ["trust", "accept", line.trim()];
        let out = common::run(&mut path.home.linerate_in(&path.pair.local, &accept));
        assert!(out.status.success(), "{}", stderr(&out));
        path
    }

    /// Starts the server, or restarts it.
    fn serve(&mut self) {
        let args = ["serve", "--bind", Pair::FAR, "--allow-tune"];
        let mut command = self.remote_home.linerate_in(&self.pair.remote, &args);
        self.server = Some(listening(&mut command).0);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut all = vec!["prove"];
        all.extend(args);
        self.home.linerate_in(&self.pair.local, &all)
    }

    /// To the remote host, with short runs.
    fn short(&self, args: &[&str]) -> Command {
        let mut all = vec![Pair::FAR];
        all.extend(SHORT);
        all.extend(args);
        self.command(&all)
    }

    /// What the settings of both hosts are now.
    fn state(&self) -> String {
        let show = "ip -4 route show table all; ip -o link; tc qdisc; \
                    sysctl -a 2>/dev/null | grep -E '^net.ipv4.(tcp_.mem|tcp_congestion|tcp_notsent)'";
        let of = |netns: &str| {
            let args = ["netns", "exec", netns, "sh", "-c", show];
            stdout(&Command::new("ip").args(args).output().unwrap())
        };
        of(&self.pair.local) + &of(&self.pair.remote)
    }

    fn comes_back(&self, before: &str) {
        let until = Instant::now() + NEVER;
        while self.state() != before {
            assert!(
                Instant::now() < until,
                "it stays:\n{}\nbefore:\n{before}",
                self.state()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until something is changed on a host.
    fn changes(&self, before: &str) {
        let until = Instant::now() + NEVER;
        while self.state() == before {
            assert!(Instant::now() < until, "nothing was ever changed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the newest experiment goes on and has so many runs.
    fn has_runs(&self, least: u64) {
        let until = Instant::now() + NEVER;
        let enough = |row: &Value| {
            row["ended"] == "unfinished" && row["runs"].as_u64().is_some_and(|n| n >= least)
        };
        while !self.experiments().first().is_some_and(enough) {
            assert!(Instant::now() < until, "the runs never came");
        }
    }

    fn shown(&self, id: &str) -> Value {
        let out = finish(&mut self.command(&["show", id, "--json"]));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    fn experiments(&self) -> Vec<Value> {
        let out = finish(&mut self.home.linerate(&["runs", "list", "--json"]));
        // Before the first run there is no archive.
        let rows: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap_or_default();
        rows.into_iter()
            .filter(|row| row["kind"] == "experiment")
            .collect()
    }
}

/// A lab of two hosts, 100 Mbit/s and 40 ms of round trip apart; it is gone when this is dropped.
struct LongPath {
    home: Home,
    name: String,
}

impl LongPath {
    fn new(name: &str) -> LongPath {
        let path = LongPath {
            home: Home::new(),
            name: format!("{name}{}", std::process::id()),
        };
        let file = path.home.path().join("long.toml");
        let text = "name = \"long\"\nwhy = \"a test\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
                    [[link]]\nbetween = [\"a\", \"b\"]\n[link.both]\nrate = \"100M\"\ndelay = \"20ms\"\n";
        std::fs::write(&file, text).unwrap();
        let up = ["lab", "up", file.to_str().unwrap(), "--name", &path.name];
        let out = finish(&mut path.home.linerate(&up));
        assert!(out.status.success(), "{}", stderr(&out));
        path
    }

    fn prove(&self, args: &[&str]) -> Command {
        let host = format!("lab:{}", self.name);
        self.home.linerate(&[&["prove", &host], args].concat())
    }
}

impl Drop for LongPath {
    fn drop(&mut self) {
        let _ = finish(&mut self.home.linerate(&["lab", "down", &self.name]));
    }
}

fn finish(command: &mut Command) -> Output {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Running(child.unwrap()).output(NEVER)
}

/// Runs an experiment that is to end with this code, and gives its JSON.
fn verdict(command: &mut Command, codes: &[i32]) -> Value {
    let out = finish(command.arg("--json"));
    let code = out.status.code().unwrap();
    assert!(
        codes.contains(&code),
        "{code}: {}\n{}",
        stderr(&out),
        stdout(&out)
    );
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Phase, block, position and arm of every run, in their order.
fn order(experiment: &Value) -> Vec<(String, u64, u64, u64)> {
    let of = |trial: &Value| {
        let number = |key: &str| trial[key].as_u64().unwrap();
        let phase = trial["phase"].as_str().unwrap().to_owned();
        (phase, number("block"), number("position"), number("arm"))
    };
    experiment["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(of)
        .collect()
}

#[test]
fn a_rate_that_differs_by_ten_per_cent_is_found_and_its_opposite_too() {
    let (_alone, path) = (alone(), Path::new("pr"));
    let before = path.state();
    let args = [
        "--against",
        "pacing=45M",
        "--change",
        "pacing=50M",
        "--pilot",
        "0",
    ];
    let faster = verdict(&mut path.short(&args), &[0]);
    let effect = &faster["verdict"]["comparisons"][0]["estimate"];
    let share = |key: &str| effect[key].as_f64().unwrap();
    assert!(
        0.03 < share("effect_share") && share("effect_share") < 0.2,
        "{effect}"
    );
    assert!(share("low_share") > 0.0, "{effect}");
    let trials = faster["trials"].as_array().unwrap();
    assert!(
        trials.iter().all(|t| t["readings"][0]["in_force"] == true),
        "{trials:#?}"
    );

    // The same by a queueing discipline of the device, which is the machine's.
    let tbf = |rate: &str| format!("device.qdisc=tbf rate {rate} burst 32K limit 64K");
    let (fast, slow) = (tbf("50M"), tbf("45M"));
    let args = ["--against", &fast, "--change", &slow, "--pilot", "0"];
    let slower = verdict(&mut path.short(&args), &[10]);
    assert_eq!(slower["verdict"]["outcome"], "slower");
    assert_eq!(path.state(), before);
}

#[test]
fn an_initial_window_matters_for_short_transfers_over_a_long_path() {
    let (_alone, lab) = (alone(), LongPath::new("pw"));
    let change = [
        "--change",
        "route.initcwnd=64",
        "-i",
        "50ms",
        "--gap",
        "0s",
        "--pilot",
        "0",
    ];
    let json = verdict(
        &mut lab.prove(
            &[
                &change[..],
                &["--metric", "completion", "-n", "80K", "--pairs", "6", "-q"],
            ]
            .concat(),
        ),
        &[0],
    );
    let effect = json["verdict"]["comparisons"][0]["estimate"]["effect_share"]
        .as_f64()
        .unwrap();
    assert!(effect > 0.3, "two of three round trips are saved: {effect}");

    // The same seen by who asks and waits, in the words of a time.
    let asked = [
        "--metric",
        "latency-p50",
        "--reply-size",
        "60K",
        "--reconnect",
        "--requests",
        "6",
    ];
    let args = [
        &change[..1],
        &["route.initcwnd=64@both"],
        &change[2..],
        &asked,
        &["--pairs", "6", "-q"],
    ];
    let out = finish(&mut lab.prove(&args.concat()));
    assert_eq!(
        out.status.code(),
        Some(0),
        "{}{}",
        stdout(&out),
        stderr(&out)
    );
    let said = one_line(&stdout(&out));
    assert!(
        said.starts_with("FASTER: median latency of a typical run with route.initcwnd=64@both -"),
        "{said}"
    );
    assert!(said.contains(" % against baseline ("), "{said}");
}

#[test]
fn a_knob_that_cannot_act_is_not_found_to() {
    let (_alone, path) = (alone(), Path::new("pn"));
    let before = path.state();
    // Buffers of a given size are not tuned by the kernel, so the limits of that do not matter. The
    // margin is far beyond the noise of a paced run.
    let change = "sysctl:net.ipv4.tcp_rmem=4096 65536 131072@receiver";
    let args = [
        "--change", change, "--pacing", "50M", "--margin", "40%", "--pilot", "0",
    ];
    let json = verdict(&mut path.short(&args), &[11]);
    let said = json["verdict"]["gates"].to_string();
    assert!(said.contains("cannot matter here"), "{said}");
    assert_eq!(path.state(), before);
}

#[test]
fn the_same_by_another_name_makes_no_difference() {
    let (_alone, lab) = (alone(), LongPath::new("pa"));
    // Half a per mille apart, which is different to the plan and the same to every user.
    let pacing = ["--against", "pacing=40M", "--change", "pacing=40.02M"];
    // The margin is far beyond the noise of a paced run; the later looks forgive a machine that stalls.
    let runs = [
        "-t",
        "1s",
        "-O",
        "300ms",
        "-i",
        "50ms",
        "--gap",
        "0s",
        "--pilot",
        "0",
        "--pairs",
        "8,12,16,20",
        "-q",
        "--margin",
        "25%",
    ];
    // And a setting that cannot act, for nothing is lost.
    for args in [
        &pacing[..],
        &["--change", "route.rto_min=250ms", "--pacing", "40M"],
    ] {
        let json = verdict(&mut lab.prove(&[args, &runs[..]].concat()), &[11]);
        assert_eq!(json["verdict"]["outcome"], "no_difference", "{args:?}");
    }
}

#[test]
fn killed_in_the_middle_of_a_run_it_is_undone_and_goes_on_in_the_same_order() {
    let (_alone, path) = (alone(), Path::new("pk"));
    let before = path.state();
    let args = [
        "--change",
        "route.initcwnd=33@both",
        "--change",
        "device.txqueuelen=321@both",
        "--seed",
        "7",
        "--pilot",
        "2",
        "--pairs",
        "6",
    ];
    let whole = verdict(&mut path.short(&args), &[0, 10, 11, 12, 13]);
    assert_eq!(path.state(), before);

    let mut command = path.short(&args);
    let mut child = Running(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    path.has_runs(6);
    let cut = path.experiments().remove(0);
    path.changes(&before);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    path.comes_back(&before);

    let id = cut["id"].as_str().unwrap();
    let kept = path.shown(id);
    let out = finish(&mut path.command(&["resume", id, "-q"]));
    assert!(
        [0, 10, 11, 12, 13].contains(&out.status.code().unwrap()),
        "{}",
        stderr(&out)
    );
    assert_eq!(path.state(), before);
    let resumed = path.shown(id);
    let (kept, resumed, whole) = (order(&kept), order(&resumed), order(&whole));
    assert_eq!(resumed[..kept.len()], kept[..], "what was made is kept");
    // Blocks that are whole are in the order of the seed, whoever was killed meanwhile.
    let judged = |all: &[(String, u64, u64, u64)], block: u64| -> Vec<u64> {
        let of = all
            .iter()
            .filter(|(phase, b, ..)| phase == "main" && *b == block);
        of.map(|(.., arm)| *arm).collect()
    };
    let pairs = (0..8)
        .filter(|block| judged(&resumed, *block).len() == 2)
        .count();
    assert_eq!(pairs, 6);
    for block in 0..6 {
        let (ours, theirs) = (judged(&resumed, block), judged(&whole, block));
        assert!(
            ours == theirs || ours.len() < 2,
            "block {block}: {ours:?}, {theirs:?}"
        );
    }
    let out = finish(&mut path.command(&["resume", id]));
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("is complete"), "{}", stderr(&out));
}

#[test]
fn ctrl_c_undoes_everything_and_says_how_to_go_on() {
    let (_alone, path) = (alone(), Path::new("pc"));
    let before = path.state();
    let args = ["--change", "route.initcwnd=33", "--pilot", "0"];
    let mut command = path.short(&args);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = Running(child.unwrap());
    path.has_runs(3);
    child.interrupt();
    let out = child.output(NEVER);
    assert_eq!(out.status.code(), Some(4), "{}", stderr(&out));
    assert!(
        stderr(&out).contains("linerate prove resume"),
        "{}",
        stderr(&out)
    );
    assert_eq!(path.state(), before);
    assert_eq!(path.experiments()[0]["ended"], "interrupted");
}

#[test]
fn a_far_host_that_is_lost_leaves_an_experiment_to_resume() {
    let (_alone, mut path) = (alone(), Path::new("pl"));
    let before = path.state();
    let args = [
        "--change",
        "route.initcwnd=33@both",
        "--pilot",
        "0",
        "--pairs",
        "6",
    ];
    let mut command = path.short(&args);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let child = Running(child);
    path.has_runs(3);
    path.server = None;
    let out = child.output(NEVER);
    assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
    assert!(
        stderr(&out).contains("linerate prove resume"),
        "{}",
        stderr(&out)
    );
    path.comes_back(&before);
    path.serve();
    let out = finish(&mut path.command(&["resume", "last", "-q"]));
    assert!(
        [0, 10, 11, 12, 13].contains(&out.status.code().unwrap()),
        "{}",
        stderr(&out)
    );
    assert_eq!(path.state(), before);
}

#[test]
fn two_at_once_are_refused_with_the_name_of_the_first() {
    let (_alone, path) = (alone(), Path::new("pt"));
    let before = path.state();
    let args = [
        "--against",
        "route.initcwnd=22",
        "--change",
        "route.initcwnd=33",
        "--pilot",
        "0",
    ];
    let long = [
        &[Pair::FAR, "-t", "10m", "-i", "50ms", "--gap", "0s", "-q"],
        &args[..],
    ]
    .concat();
    let first = path
        .command(&long)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let first = Running(first.unwrap());
    path.changes(&before);
    let out = finish(&mut path.short(&args));
    assert!(!out.status.success());
    assert!(stderr(&out).contains("'experiment "), "{}", stderr(&out));
    assert_eq!(stderr(&out).lines().count(), 1, "{}", stderr(&out));
    first.interrupt();
    assert_eq!(first.output(NEVER).status.code(), Some(4));
    assert_eq!(path.state(), before);
}

#[test]
fn a_bad_plan_is_one_sentence_and_nothing_is_changed() {
    let (_alone, path) = (alone(), Path::new("pb"));
    let before = path.state();
    let cases: &[(&[&str], &str)] = &[
        (&["--change", "no.such.knob=1"], "no.such.knob"),
        (&["--change", "route.initcwnd=0"], "initcwnd"),
        (&["--change", "sysctl:kernel.panic=1"], "kernel.panic"),
        (&["--change", "route.congctl=nosuchcc"], "nosuchcc"),
        (&["--change", "congestion=nosuchcc"], "nosuchcc"),
        (&["--change", "device.qdisc=tbf rate 1M"], "tbf"),
        (&[], "change"),
        (&["--against", "congestion=cubic"], "nothing to compare"),
        (&["--change", "congestion=cubic", "--pairs", "3"], "3"),
        (
            &["--arm", "a=congestion=cubic", "--arm", "b=congestion=cubic"],
            "same",
        ),
        (&["--change", "congestion=cubic", "--margin", "0"], "margin"),
        (
            &["--change", "congestion=cubic", "--metric", "speed"],
            "speed",
        ),
        (
            &["--change", "congestion=cubic", "--metric", "completion"],
            "bytes",
        ),
    ];
    for (args, word) in cases {
        let out = finish(&mut path.short(args));
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
        assert!(out.stdout.is_empty(), "{args:?}: {}", stdout(&out));
        assert_eq!(path.state(), before, "{args:?}");
    }
    // Without the right to change anything: sockets are all that is left.
    let mut command = Command::new("ip");
    command.args([
        "netns",
        "exec",
        &path.pair.local,
        "setpriv",
        "--bounding-set=-net_admin",
    ]);
    command.args([
        "--inh-caps=-net_admin",
        env!("CARGO_BIN_EXE_linerate"),
        "prove",
        Pair::FAR,
    ]);
    command.args(["--change", "route.initcwnd=33@local", "-q"]);
    path.home.furnish(&mut command);
    let out = finish(&mut command);
    let said = stderr(&out);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(
        said.contains("CAP_NET_ADMIN") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(path.state(), before);
    assert!(path.experiments().is_empty(), "nothing was begun");
}

#[test]
fn a_plan_is_printed_before_it_is_run_and_runs_from_its_file() {
    let (_alone, path) = (alone(), Path::new("pf"));
    let args = [
        "--against",
        "pacing=30M",
        "--change",
        "pacing=60M",
        "--pilot",
        "0",
        "--pairs",
        "6",
        "--seed",
        "9",
    ];
    let plan = finish(path.short(&args).arg("--dry-run"));
    assert!(plan.status.success(), "{}", stderr(&plan));
    assert!(path.experiments().is_empty());
    let file = path.home.path().join("plan.toml");
    std::fs::write(&file, &plan.stdout).unwrap();
    let file = file.to_str().unwrap();
    let pictures = path.home.path().join("pictures");
    let svg = pictures.to_str().unwrap();
    let first = verdict(&mut path.command(&[file, "-q", "--svg", svg]), &[0]);
    for name in ["bars.svg", "drift.svg", "forest.svg", "pairs.svg"] {
        let picture = std::fs::read_to_string(pictures.join(name)).unwrap();
        assert!(picture.starts_with("<svg"), "{name}");
    }
    let id = first["id"].as_str().unwrap();

    // One line in the list, its runs apart; the same verdict from the archive, in every form.
    let rows = path.experiments();
    assert_eq!((rows.len(), &rows[0]["outcome"]), (1, &"faster".into()));
    let list = |args: &[&str]| stdout(&finish(&mut path.home.linerate(args)));
    let runs = list(&["runs", "list", "--experiment", id, "--json"]);
    let runs: Vec<Value> = serde_json::from_str(&runs).unwrap();
    assert_eq!(runs.len(), first["trials"].as_array().unwrap().len());
    assert_eq!(path.shown(id), first);
    for form in [&[][..], &["--markdown"], &["--p-value"]] {
        let out = finish(&mut path.command(&[&["show", id], form].concat()));
        assert!(
            stdout(&out).contains("FASTER"),
            "{form:?}: {}",
            stdout(&out)
        );
    }
    let csv = finish(&mut path.command(&["show", id, "--csv"]));
    assert_eq!(stdout(&csv).lines().count(), 1 + runs.len());
    assert!(list(&["runs", "show", id]).contains("FASTER"));

    // Out of the archive and into another one.
    let exported = list(&["runs", "export", id]);
    let other = Home::new();
    std::fs::write(other.path().join("e.json"), exported).unwrap();
    let file = other.path().join("e.json");
    let import = ["runs", "import", file.to_str().unwrap()];
    assert!(stdout(&finish(&mut other.linerate(&import))).contains("imported"));
    assert!(stdout(&finish(&mut other.linerate(&import))).contains("already kept"));
    let shown = finish(&mut other.linerate(&["prove", "show", id, "--json"]));
    assert_eq!(
        serde_json::from_slice::<Value>(&shown.stdout).unwrap(),
        first
    );

    // Again from the same seed: another experiment in the same order.
    let again = verdict(&mut path.command(&["again", id, "-q"]), &[0]);
    assert_ne!(again["id"], first["id"]);
    assert_eq!(order(&again), order(&first));
}
