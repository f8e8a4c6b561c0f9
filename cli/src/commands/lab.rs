//! `linerate lab`: networks in a box.

mod picture;

use crate::global::by_name;
use crate::prelude::*;
use clap::Subcommand;
use emulate::{Direction, EmulatorCounters, FrameTally, Link, Scenario};
use engine::lab::{self as labs, LabPlace, Standing};
use lab::{
    Backend, CounterReport, LabOptions, LabRecord, LabState, LinkBackend, LinkCounters, LogEntry,
    NodeRecord,
};
use report::words::{grouped, round_span, table, utc, wrap};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

/// Emulated paths on this machine: hosts, links and routers in a box
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab scenarios                        the shipped paths
  linerate measure lab:berkeley-chicago         up, measured, down again
  linerate lab up berkeley-chicago              stays until 'lab down'
  linerate lab exec berkeley-chicago/chicago -- iperf3 -s -D
  linerate lab exec berkeley-chicago/berkeley -- iperf3 -c chicago
  linerate lab truth berkeley-chicago           what happened to the packets
  linerate lab run dsl-bloat -- ping -c 5 server
  linerate lab up my-path.toml                  a scenario of your own

A host is a network namespace. Nothing outside the lab is changed. docs/lab.md")]
pub struct LabArgs {
    #[command(subcommand)]
    action: LabAction,
}

#[derive(Subcommand)]
enum LabAction {
    Up(Up),
    Down(Down),
    List(LabList),
    Show(LabShow),
    Exec(Exec),
    Run(LabRun),
    Truth(Truth),
    Scenarios(Scenarios),
}

/// Create a lab; it stays until 'lab down'
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab up my-path.toml --name mine
  linerate lab up dsl-bloat --backend emulator")]
struct Up {
    /// A shipped scenario ('lab scenarios' lists them), or a file (*.toml)
    #[arg(value_name = "NAME|FILE")]
    what: String,
    /// Name of the lab [default: the scenario's name]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    shaping: Shaping,
}

/// What shapes the links.
#[derive(Args)]
struct Shaping {
    /// netem where it can express the link, else the emulator (auto); or one of them for all links
    #[arg(long, value_parser = by_name::<Backend>(["auto", "emulator", "netem"]), default_value = "auto")]
    backend: Backend,
}

/// Remove a lab, and everything that belongs to it
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab down berkeley-chicago
  linerate lab down --all")]
struct Down {
    /// The lab
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// All labs of this user, and what killed ones have left behind
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// List the labs that are up
#[derive(Args)]
struct LabList {
    /// An array of JSON objects instead of a table
    #[arg(short = 'J', long)]
    json: bool,
}

/// Draw a lab: hosts, addresses, and what shapes each direction of each link
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab show berkeley-chicago
  linerate lab show my-path.toml")]
struct LabShow {
    /// The lab, a shipped scenario, or a file
    #[arg(value_name = "NAME|FILE")]
    what: String,
}

/// Run a command in a host of a lab that is up
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab exec home-lan/microserver -- iperf3 -s -D
  linerate lab exec home-lan                    a shell in the first host

The exit code is that of the command.")]
struct Exec {
    /// The lab and the host in it [default: its first host]
    #[arg(value_name = "NAME/HOST")]
    place: LabPlace,
    /// The command and its arguments [default: $SHELL]
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Create a lab, run a command in it, and remove the lab whatever happens
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab run satellite -- ping -c 3 server
  linerate lab run home-lan/microserver -- sh -c 'ip route; ss -ltn'

The exit code is that of the command.")]
struct LabRun {
    /// A shipped scenario, with /HOST for another than the first host, or a file (*.toml)
    #[arg(value_name = "NAME[/HOST]|FILE")]
    what: String,
    #[command(flatten)]
    shaping: Shaping,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Print what happened to the packets: dropped and why, marked, delayed, queued
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab truth berkeley-chicago
  linerate lab truth berkeley-chicago --json | jq .links[0].forward.dropped

netem counts no bytes of dropped frames and no deepest queue, and keeps no log.")]
struct Truth {
    /// The lab
    name: String,
    /// Everything, with the log of the last events, as JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// List the shipped scenarios and the sources of their numbers
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab scenarios --print dsl-bloat > mine.toml")]
struct Scenarios {
    /// Print the file of this one
    #[arg(long, value_name = "NAME")]
    print: Option<String>,
}

impl LabArgs {
    pub fn run(&self) -> Result<ExitCode> {
        match &self.action {
            LabAction::Up(up) => up.run(),
            LabAction::Down(down) => down.run(),
            LabAction::List(list) => list.run(),
            LabAction::Show(show) => show.run(),
            LabAction::Exec(exec) => return exec.run(),
            LabAction::Run(run) => return run.run(),
            LabAction::Truth(truth) => truth.run(),
            LabAction::Scenarios(scenarios) => scenarios.run(),
        }
        .map(ExitCode::from)
    }
}

/// Holds a lab: the hidden command that `lab up` starts.
pub fn hold_namespaces() -> Result<Exit> {
    ::lab::hold_namespaces()?;
    Ok(Exit::Done)
}

impl Up {
    fn run(&self) -> Result<Exit> {
        let scenario = labs::scenario(&self.what)?;
        let standing = raise(&scenario, self.name.clone(), &self.shaping)?;
        let lab = standing.lab();
        let record = lab.record();
        let mut text = format!("lab {} is up: {}\n", record.name, labs::backends(lab));
        for link in &record.links {
            let [from, to] = &link.ends;
            text += &format!(
                "  link {}, {from} - {to}: {} ({})\n",
                link.name, link.backend, link.why
            );
        }
        for host in labs::hosts(lab) {
            text += &format!("  host {}: {}\n", host.name, addresses(host));
        }
        out::print(&text)?;
        standing.keep()?;
        Ok(Exit::Done)
    }
}

fn raise(scenario: &Scenario, name: Option<String>, shaping: &Shaping) -> Result<Standing> {
    let options = LabOptions {
        name,
        backend: shaping.backend,
        ..LabOptions::default()
    };
    Standing::raise(scenario, &options)
}

fn addresses(node: &NodeRecord) -> String {
    let all: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
    all.join(" ")
}

impl Down {
    fn run(&self) -> Result<Exit> {
        let labs = lab::Labs::of_user();
        let names = match &self.name {
            Some(name) => labs.down(name).map(|()| vec![name.clone()])?,
            None => labs.down_all()?,
        };
        for name in &names {
            out::print(&format!("lab {name} is down\n"))?;
        }
        if names.is_empty() {
            out::print("no lab was up\n")?;
        }
        Ok(Exit::Done)
    }
}

impl LabList {
    fn run(&self) -> Result<Exit> {
        let labs = lab::Labs::of_user().list()?;
        if self.json {
            let labs = labs.iter().map(|info| ListedLab {
                name: &info.name,
                state: state(info.state),
                record: info.record.as_ref(),
            });
            let labs: Vec<_> = labs.collect();
            return out::result(&report::json::pretty(&labs));
        }
        if labs.is_empty() {
            return out::result(
                "no lab is up: 'linerate lab up NAME', 'linerate lab scenarios' for the names\n",
            );
        }
        let rows = labs.iter().map(|info| {
            let mut row = vec![info.name.clone(), state(info.state).to_owned()];
            if let Some(record) = &info.record {
                let nodes: Vec<&str> = record.nodes.iter().map(|n| n.name.as_str()).collect();
                row.push(record.scenario.clone());
                row.push(utc(Nanos::from_secs(record.started)));
                row.push(nodes.join(" "));
            }
            row
        });
        let head = ["NAME", "STATE", "SCENARIO", "SINCE (UTC)", "NODES"];
        out::result(&table(&head, rows))
    }
}

#[derive(Serialize)]
struct ListedLab<'a> {
    name: &'a str,
    state: &'static str,
    #[serde(flatten)]
    record: Option<&'a LabRecord>,
}

fn state(state: LabState) -> &'static str {
    match state {
        LabState::Up => "up",
        LabState::Changing => "changing",
        LabState::Dead => "dead: 'linerate lab down' removes what is left",
    }
}

impl LabShow {
    fn run(&self) -> Result<Exit> {
        let up = match labs::is_file(&self.what) {
            true => None,
            false => lab::Labs::of_user().open(&self.what).ok(),
        };
        let (scenario, truth) = match &up {
            Some(lab) => (lab.scenario()?, Some(lab.counters()?)),
            None => (labs::scenario(&self.what)?, None),
        };
        let by = |link: &Link| {
            let record = up.as_ref()?.record();
            let made = record.links.iter().find(|l| l.name == link.name)?;
            if made.backend == LinkBackend::Cable {
                return None;
            }
            let late = truth.as_ref().and_then(|truth| truth.link(&link.name));
            let late = late.and_then(lateness).map(|late| format!(", {late}"));
            let late = late.unwrap_or_default();
            Some(format!("{}{late}", made.backend))
        };
        let state = match &up {
            Some(lab) => format!("lab {} is up", lab.record().name),
            None => format!("scenario {}: not up", scenario.name),
        };
        let why = picture::why(&scenario, stdout_style().width);
        let tree = picture::tree(&scenario, &by);
        let script = picture::script(&scenario);
        let mut text = format!("{state}\n\n{why}\n\n{tree}");
        text += &picture::traffic(&scenario);
        if !script.is_empty() {
            text += &format!("\n{script}");
        }
        for warning in truth.iter().flat_map(CounterReport::warnings) {
            text += &format!("\n{warning}\n");
        }
        out::result(&text)
    }
}

/// How late frames of a link were, in words; `None` before the first.
fn lateness(link: &LinkCounters) -> Option<String> {
    let late = &link.emulator.lateness;
    let (p50, p99) = (late.percentile(0.5)?, late.percentile(0.99)?);
    Some(format!("late p50 {p50}, p99 {p99}"))
}

impl Exec {
    /// Becomes the command.
    fn run(&self) -> Result<ExitCode> {
        let lab = lab::Labs::of_user().open(&self.place.lab)?;
        let shell = || vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
        let words = match self.command.as_slice() {
            [] => shell(),
            words => words.to_vec(),
        };
        let mut command = inside(&lab, self.place.host.as_deref(), &words)?;
        let error = command.exec();
        Err(cannot_run(&words, &error))
    }
}

impl LabRun {
    fn run(&self) -> Result<ExitCode> {
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let (what, host) = match labs::is_file(&self.what) {
            true => (self.what.clone(), None),
            false => {
                let place: LabPlace = self.what.parse().map_err(Refusal::usage)?;
                (place.lab, place.host)
            }
        };
        let standing = raise(&labs::scenario(&what)?, None, &self.shaping)?;
        let lab = standing.lab();
        let child = inside(lab, host.as_deref(), &self.command)?
            .spawn()
            .map_err(|error| cannot_run(&self.command, &error))?;
        let code = labs::wait(child, stop);
        standing.lower()?;
        code
    }
}

/// A command in a host, or in the first one.
fn inside(
    lab: &lab::RunningLab,
    host: Option<&str>,
    words: &[OsString],
) -> Result<std::process::Command> {
    let hosts = labs::hosts(lab);
    let first = hosts.first().map(|host| host.name.as_str());
    let host = host.or(first).context("the lab has no host")?;
    let (program, arguments) = words.split_first().context("no command")?;
    let mut command = lab.command(host, program)?;
    command.args(arguments);
    Ok(command)
}

fn cannot_run(words: &[OsString], error: &std::io::Error) -> anyhow::Error {
    let program = words.first().map(|word| word.to_string_lossy());
    let program = program.unwrap_or_default();
    Refusal::usage(format!("cannot run '{program}' in the lab: {error}")).into()
}

impl Truth {
    fn run(&self) -> Result<Exit> {
        let lab = lab::Labs::of_user().open(&self.name)?;
        let counters = lab.counters()?;
        if self.json {
            let whole = Whole {
                counters: &counters,
                log: lab.log()?,
            };
            let text = serde_json::to_string(&whole).context("cannot print the counters")?;
            return out::result(&format!("{text}\n"));
        }
        let scenario = lab.scenario()?;
        let mut text = format!("{} after {}\n", self.name, round_span(counters.at));
        for link in &counters.links {
            let name = &link.link;
            for (direction, of) in [
                (Direction::Forward, &link.forward),
                (Direction::Backward, &link.backward),
            ] {
                let arrow = picture::arrow(&scenario, name, direction);
                text += &format!("\n{name}, {arrow}\n{}", table(&[], account(of)));
            }
            let late = lateness(link).unwrap_or_else(|| "no frame yet".to_owned());
            let more = match link.backend {
                LinkBackend::Netem => {
                    " (probes); its deepest queue and the bytes of what it dropped are not counted"
                        .to_owned()
                }
                LinkBackend::Cable | LinkBackend::Emulator => {
                    format!(", {} of processor time", link.emulator.cpu)
                }
            };
            text += &format!("\n{name}: {} {late}{more}\n", link.backend);
        }
        if counters.links.is_empty() {
            text += "all links of this lab are plain cables, so there is no account\n";
        }
        for one in &counters.traffic {
            let (name, sent) = (&one.name, Bytes(one.sent));
            let (connections, failed) = (one.connections, one.failed);
            text += &format!(
                "\ntraffic {name}: {sent} sent in {connections} connections, {failed} failed\n"
            );
        }
        for one in &counters.readers {
            let (host, bytes) = (&one.host, Bytes(one.bytes));
            text += &format!("\n{host} read {bytes} in {} connections\n", one.connections);
        }
        for warning in counters.warnings() {
            text += &format!("\n{warning}\n");
        }
        out::result(&text)
    }
}

/// The counters as JSON, with the log of the last events.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    counters: &'a CounterReport,
    log: Vec<LogEntry>,
}

/// The frames of one direction by what happened to them, a line each.
fn account(counters: &EmulatorCounters) -> Vec<Vec<String>> {
    let of = |one: FrameTally| (one.frames, Some(one.wire_bytes).filter(|bytes| *bytes > 0));
    let (dropped, deepest) = (&counters.dropped, counters.deepest);
    let always = [
        ("offered", of(counters.offered)),
        ("delivered", of(counters.delivered)),
    ];
    let happened = [
        ("dropped, queue full", of(dropped.queue)),
        ("dropped by the AQM", of(dropped.aqm)),
        ("lost", of(dropped.loss)),
        ("lost by bit errors", of(dropped.bit_error)),
        ("dropped by the policer", of(dropped.policer)),
        ("dropped, too large", of(dropped.max_frame)),
        ("ACKs thinned out", of(dropped.ack_thinning)),
        ("duplicated", of(counters.duplicated)),
        ("marked by ECN", (counters.marked, None)),
        ("held back", (counters.reordered, None)),
        ("under way", of(counters.waiting)),
        ("cross traffic", of(counters.cross)),
        ("cross traffic dropped", of(counters.cross_dropped)),
        ("deepest queue", (deepest.packets, Some(deepest.bytes))),
    ];
    let happened = happened.into_iter().filter(|(_, (frames, _))| *frames > 0);
    let row = |(name, (frames, bytes)): (&str, (u64, Option<u64>))| {
        let bytes = bytes.map(|b| Bytes(b).to_string()).unwrap_or_default();
        vec![format!("  {name}"), grouped(frames), bytes]
    };
    always.into_iter().chain(happened).map(row).collect()
}

impl Scenarios {
    fn run(&self) -> Result<Exit> {
        if let Some(name) = &self.print {
            let (_, text) = labs::shipped(name)?;
            return out::result(text);
        }
        for (name, _) in Scenario::shipped() {
            let scenario = labs::scenario(name)?;
            let why = wrap(&scenario.why, stdout_style().width, "  ", "  ");
            out::print(&format!("{name}\n{why}\n"))?;
        }
        Ok(Exit::Done)
    }
}
