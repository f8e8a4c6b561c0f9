//! Drawn paths, tuned: whether the cause that was acted on is the true one, whether what was kept helps in a fresh experiment, and
//! whether undoing restores both hosts.

use super::drawn::{Drawn, Fault, Judged, judge, play_all};
use super::{Options, common, interval, kinds, report};
use common::{Home, Lab, stderr};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

pub struct Tuned {
    kind: String,
    /// The first cause that was named is true.
    diagnosed: bool,
    /// Something was kept or recommended, and its effect in a fresh experiment.
    kept: Option<f64>,
    /// Both hosts were as before after `tune undo`.
    undone: bool,
    pub line: String,
}

/// Longer round trips need longer runs.
const LONGEST_RTT_US: u64 = 60_000;
const RUN: [&str; 10] = [
    "-t", "3s", "--ramp", "1s", "--gap", "0s", "--pilot", "0", "--pairs", "6",
];
/// `--margin` by default.
const MARGIN: f64 = 0.05;

/// A path with one fault at most that `linerate` itself meets, whatever program sends.
pub fn is_one(drawn: &Drawn) -> bool {
    use Fault::*;
    let of_path = |fault: &Fault| match fault {
        ReceiveBuffer { .. } | SendBuffer { .. } => true,
        Outage { .. } | RateFalls { .. } | BlackHole { .. } | DeviceQueue { .. } => false,
        fault => !fault.is_the_load(),
    };
    let quick = drawn.rtt_us <= LONGEST_RTT_US && drawn.asks == 0;
    quick && drawn.faults.len() <= 1 && drawn.faults.iter().all(of_path)
}

/// Tunes a case, tries what was kept afresh, and undoes it.
pub fn tune(home: &Home, drawn: &Drawn, own: &Path) -> Option<Tuned> {
    play_all(home, drawn, own);
    let Judged { right, gains, .. } = judge(home, drawn.clone(), own)?;
    let scenario = own.join("tuned.toml");
    std::fs::write(&scenario, scenario_of(drawn)).unwrap();
    let lab = Lab::up(home, scenario.to_str().unwrap());
    let host = format!("lab:{}", lab.name);
    let before = state(&lab);
    let story = json(home, drawn, &["tune", &host, "--rounds", "1"]);
    let undo = home.linerate(&["tune", "undo", &host]).output().unwrap();
    let undone = state(&lab) == before;
    let round = &story["rounds"][0];
    let explained = round["before"]["explanations"]
        .as_array()
        .into_iter()
        .flatten();
    let by: Vec<&str> = explained
        .flat_map(|e| e["conclusion"]["by"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let attempts = list(&round["attempts"]);
    let proposals = list(&round["advice"]["proposals"]);
    let fates: Vec<String> = proposals
        .iter()
        .zip(&attempts)
        .map(|(proposal, attempt)| {
            format!("{} {}", proposal["title"], attempt["fate"]).replace('"', "")
        })
        .collect();
    let is_kept = |attempt: &&Value| {
        ["kept", "recommended"]
            .map(Value::from)
            .contains(&attempt["fate"])
    };
    let settings: Vec<String> = attempts
        .iter()
        .filter(is_kept)
        .flat_map(|attempt| list(&attempt["settings"]))
        .filter_map(|setting| Some(setting.as_str()?.to_owned()))
        .collect();
    let kept = (!settings.is_empty()).then(|| {
        let mut args = vec!["prove", host.as_str()];
        args.extend(settings.iter().flat_map(|setting| ["--change", setting]));
        let report = json(home, drawn, &args);
        let effect = &report["verdict"]["comparisons"][0]["estimate"]["effect_share"];
        effect.as_f64().unwrap_or(f64::NAN)
    });
    let fault = drawn.faults.first();
    let line = format!(
        "seed {} case {}: {}, {fault:?} {gains:.2?}: {}; right: {}; {}; {}{}{}",
        drawn.seed,
        drawn.number,
        drawn.path(),
        by.join(" or "),
        right.join(", "),
        if fates.is_empty() {
            "nothing proposed".to_owned()
        } else {
            fates.join(", ")
        },
        kept.map_or("nothing kept".to_owned(), |effect| format!(
            "{:+.1} % afresh by {}",
            effect * 100.0,
            settings.join(", ")
        )),
        if undone { "" } else { ", NOT AS BEFORE: " },
        if undone { String::new() } else { stderr(&undo) },
    );
    Some(Tuned {
        kind: fault.map_or("none".to_owned(), Fault::kind),
        diagnosed: by.first().is_some_and(|first| right.contains(first)),
        kept,
        undone,
        line,
    })
}

/// Small buffers are the hosts' own, and not those of one connection.
fn scenario_of(drawn: &Drawn) -> String {
    let played = drawn.with(&drawn.faults, super::drawn::On::Path);
    let of_host = |key: &str, bytes: u64| {
        // The kernel doubles what a program requests.
        let line = format!("{key} = {}\ncongestion =", 2 * bytes);
        played.scenario.replace("congestion =", &line)
    };
    match drawn.faults.first() {
        Some(Fault::ReceiveBuffer { bytes }) => of_host("receive_buffer", *bytes),
        Some(Fault::SendBuffer { bytes }) => of_host("send_buffer", *bytes),
        _ => played.scenario,
    }
}

fn json(home: &Home, drawn: &Drawn, args: &[&str]) -> Value {
    let direction = if drawn.down { "down" } else { "up" };
    let seed = drawn.seed.to_string();
    let mut command = home.linerate(args);
    command
        .args(["--json", "-q", "--direction", direction, "--seed", &seed])
        .args(RUN);
    report(&mut command)
}

/// All that a tuning could change in both hosts.
fn state(lab: &Lab<'_>) -> String {
    const READ: &str = "ip route show table all; ip link show; tc qdisc; cd /proc/sys/net
        grep -r . ipv4/tcp_* ipv4/conf ipv6/conf core 2>/dev/null | grep -v -e fastopen_key -e stable_secret";
    let read = |host| lab.exec(host, &["sh", "-c", READ]).stdout;
    ["a", "b"]
        .map(|host| String::from_utf8_lossy(&read(host)).into_owned())
        .concat()
}

pub fn print(all: &BTreeMap<u64, Tuned>, options: &Options) {
    println!(
        "# Drawn paths, tuned, seed {}: {} cases\n",
        options.seed,
        all.len()
    );
    println!(
        "Of what was kept, \"helps\" is at least {:.0} % in a fresh experiment.\n",
        MARGIN * 100.0
    );
    println!("| fault | cases | diagnosis right | kept | of that helps | as before |");
    println!("|---|---|---|---|---|---|");
    for kind in kinds(all.values().map(|one| &one.kind)) {
        let of: Vec<&Tuned> = all
            .values()
            .filter(|t| t.kind == kind || kind == "all")
            .collect();
        let count = |is: &dyn Fn(&&&Tuned) -> bool| of.iter().filter(is).count();
        let share = |hits: usize, of: usize| {
            let (low, high) = interval(hits, of);
            format!("{hits} of {of} ({low:.0} to {high:.0} %)")
        };
        let kept = count(&|t| t.kept.is_some());
        println!(
            "| {kind} | {} | {} | {kept} | {} | {} |",
            of.len(),
            share(count(&|t| t.diagnosed), of.len()),
            share(
                count(&|t| t.kept.is_some_and(|effect| effect >= MARGIN)),
                kept
            ),
            share(count(&|t| t.undone), of.len()),
        );
    }
    println!("\n```");
    all.values().for_each(|tuned| println!("{}", tuned.line));
    println!("```");
}
