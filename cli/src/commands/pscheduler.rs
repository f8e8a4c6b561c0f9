//! `linerate pscheduler`: a tool for throughput tests of pScheduler (perfSONAR), one method a call.
//!
//! The second participant makes two keys when the run is planned, one for each. pScheduler hides them from others. Both
//! are then used for this run alone, in directories that go with it.

use super::measure::Measure;
use super::serve::ports;
use crate::prelude::*;
use ::mesh::{THROUGHPUT_TIME, iso_duration, iso_moment};
use clap::{Parser, ValueEnum};
use engine::clock::unix_time;
use engine::trust::{Identity, KeyLimits, Right, TrustEntry, TrustStore};
use report::pscheduler::{failure, result};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use sys::file::TemporaryDirectory;
use wire::{hex, unhex};

/// The newest form of a throughput test that is known here.
const SCHEMA: u64 = 7;
/// RTT of a test that has none: that of the longest path on Earth.
const USUAL_RTT: Nanos = Nanos::from_millis(200);
/// From the begin of a run until the source connects: by then the destination listens.
const SERVER_STARTS: Nanos = Nanos::from_secs(3);
/// For the handshakes and the end of a run, in round trips; and what is explained and kept behind it.
const ROUND_TRIPS: u64 = 40;
const AFTER: Nanos = Nanos::from_secs(3);
/// Between two attempts to reach the destination, within [`AFTER`].
const AGAIN: Duration = Duration::from_millis(200);

/// Run throughput tests for pScheduler (perfSONAR): one method, its input as JSON on standard input
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate pscheduler enumerate
  echo '{\"type\": \"throughput\", \"spec\": {\"schema\": 1, \"dest\": \"db2\"}}' |
    linerate pscheduler can-run

The six methods of a tool; the package pscheduler-tool-linerate has a script for
each. Both participants need it. Runs are kept in the archive of the user who
runs pScheduler; a result has the explanation and the run's name as text.
docs/mesh.md has more.")]
pub struct PschedulerArgs {
    #[arg(value_enum)]
    method: PschedulerMethod,
    /// Port of the destination during a run, if not 5211 (participant-data)
    #[arg(long, value_name = "PORT", default_value_t = 5211)]
    port: u16,
    /// Its ports of data connections, like 5300-5399 [default: any] (run)
    #[arg(long, value_name = "A-B", value_parser = ports)]
    data_ports: Option<RangeInclusive<u16>>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PschedulerMethod {
    /// What this tool is
    Enumerate,
    /// Whether it can run a test
    CanRun,
    /// How long a test takes
    Duration,
    /// What the participants have to know of each other
    ParticipantData,
    /// Run a test, as one of its participants
    Run,
    /// The result of a test from those of its participants
    MergedResults,
}

/// The input of `run`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RunInput {
    schedule: Schedule,
    test: PschedulerTest,
    participant: usize,
    participant_data: Vec<Value>,
}

#[derive(Deserialize)]
struct Schedule {
    start: String,
    duration: String,
}

#[derive(Deserialize)]
struct PschedulerTest {
    spec: Map<String, Value>,
}

impl PschedulerArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let answer = match self.method {
            PschedulerMethod::Enumerate => json!({
                "schema": 1,
                "name": "linerate",
                "description": "Measure throughput with linerate, and explain what limits it",
                "version": env!("CARGO_PKG_VERSION"),
                "tests": ["throughput"],
                "preference": 0,
                "maintainer": {"name": "linerate"},
            }),
            PschedulerMethod::CanRun => {
                let reasons = cannot_run(&input()?);
                match reasons.is_empty() {
                    true => json!({"can-run": true}),
                    false => json!({"can-run": false, "reasons": reasons}),
                }
            }
            PschedulerMethod::Duration => {
                let test: PschedulerTest = of(input()?)?;
                let whole = TestTimes::of(&test.spec)?.slot().0.div_ceil(1_000_000_000);
                json!({"duration": format!("PT{whole}S")})
            }
            PschedulerMethod::ParticipantData => self.participant_data(&input()?)?,
            PschedulerMethod::Run => self.play(of(input()?)?, global)?,
            PschedulerMethod::MergedResults => merged(&input()?)?,
        };
        out::result(&report::json::pretty(&answer))
    }

    fn participant_data(&self, input: &Value) -> Result<Value> {
        match input["participant"].as_u64() {
            Some(0) => Ok(json!({"schema": 1})),
            Some(1) => {
                let [destination, source] = [Identity::generate()?, Identity::generate()?];
                // pScheduler shows nobody else what is below a name that begins so.
                let keys = json!({
                    "destination": hex(destination.pkcs8()),
                    "source": hex(source.pkcs8()),
                });
                Ok(json!({"schema": 1, "port": self.port, "_keys": keys}))
            }
            _ => refuse!("participant-data: 'participant' is neither 0 nor 1"),
        }
    }

    fn play(&self, input: RunInput, global: &Global) -> Result<Value> {
        let [_, of_destination] = &input.participant_data[..] else {
            refuse!(
                "run: 'participant-data' has {} parts, and a test needs both participants",
                input.participant_data.len()
            );
        };
        let starts = iso_moment(&input.schedule.start);
        let length = iso_duration(&input.schedule.duration);
        let (Some(starts), Some(length)) = (starts, length) else {
            refuse!(
                "run: 'schedule' has no start and duration like 2026-11-28T15:00:00Z and PT24S"
            );
        };
        let participants = Participants::of(of_destination)?;
        let played = match input.participant {
            0 => {
                wait_until(starts + SERVER_STARTS);
                participants.source(&input.test.spec, starts + length, global)
            }
            1 => {
                wait_until(starts);
                participants.destination(
                    &input.test.spec,
                    starts + length,
                    self.data_ports.as_ref(),
                )
            }
            other => refuse!("run: participant {other} of a test that has two"),
        };
        Ok(played.unwrap_or_else(|error| failure(&format!("{error:#}"), "")))
    }
}

fn input() -> Result<Value> {
    let mut text = String::new();
    let read = std::io::stdin().take(1 << 26).read_to_string(&mut text);
    read.context("cannot read standard input")?;
    let value = serde_json::from_str(&text);
    Ok(value.map_err(|why| {
        Refusal::usage(format!("standard input is not the JSON of a method: {why}"))
    })?)
}

fn of<T: for<'de> Deserialize<'de>>(value: Value) -> Result<T> {
    let read = serde_json::from_value(value);
    Ok(read.map_err(|why| {
        Refusal::usage(format!(
            "standard input is not what this method gets: {why}"
        ))
    })?)
}

/// The moments of a test.
struct TestTimes {
    time: Nanos,
    omit: Nanos,
    interval: Nanos,
    rtt: Nanos,
}

impl TestTimes {
    fn of(spec: &Map<String, Value>) -> Result<TestTimes> {
        let of = |key: &str, usual| match spec.get(key) {
            None => Ok(usual),
            Some(value) => {
                let span = value.as_str().and_then(iso_duration);
                span.with_context(|| format!("'{key}' is {value}: no duration like PT10S"))
            }
        };
        Ok(TestTimes {
            time: of("duration", THROUGHPUT_TIME)?,
            omit: of("omit", Nanos(0))?,
            interval: of("interval", Nanos::from_secs(1))?,
            rtt: of("link-rtt", USUAL_RTT)?,
        })
    }

    /// All of the measurement, what is omitted being more than the time.
    fn whole(&self) -> Nanos {
        self.time + self.omit
    }

    fn slot(&self) -> Nanos {
        let round_trips = Nanos(self.rtt.0.saturating_mul(ROUND_TRIPS));
        SERVER_STARTS + self.whole() + round_trips.max(Nanos::from_secs(1)) + AFTER
    }
}

/// What stands in the way of a test; nothing if it can be run.
fn cannot_run(input: &Value) -> Vec<String> {
    if input["type"] != "throughput" {
        return vec!["tests of type throughput are possible".to_owned()];
    }
    let Some(spec) = input["spec"].as_object() else {
        return vec!["there is no 'spec'".to_owned()];
    };
    arguments(spec).err().unwrap_or_default()
}

/// The arguments of 'linerate measure' for a test, but for the host; or all that stands in the way.
fn arguments(spec: &Map<String, Value>) -> Result<Vec<String>, Vec<String>> {
    let (mut arguments, mut reasons) = (Vec::new(), Vec::new());
    match TestTimes::of(spec) {
        Ok(times) => {
            let omit = (times.omit > Nanos(0)).then(|| format!("--ramp={}us", times.omit.0 / 1000));
            arguments.push(format!("--time={}us", times.whole().0 / 1000));
            arguments.extend(omit);
        }
        Err(why) => reasons.push(why.to_string()),
    }
    let udp = spec.get("udp").and_then(Value::as_bool) == Some(true);
    if udp {
        arguments.push("--workload=udp".to_owned());
    }
    for (key, value) in spec {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let option = match (key.as_str(), value) {
            ("schema", _) if value.as_u64().is_none_or(|schema| schema > SCHEMA) => {
                reasons.push(format!("schema {value} is not known: up to {SCHEMA} is"));
                continue;
            }
            (
                "schema" | "source" | "source-node" | "dest" | "dest-node" | "local-address"
                | "duration" | "omit" | "interval" | "link-rtt" | "udp",
                _,
            ) => continue,
            // What is not wanted needs no option.
            (_, Value::Bool(false)) => continue,
            ("reverse", _) => "--down".to_owned(),
            ("zero-copy", _) => "--zerocopy".to_owned(),
            ("no-delay", _) => "--nodelay".to_owned(),
            ("parallel", _) => format!("--streams={text}"),
            ("window-size", _) => format!("--sockbuf={text}"),
            ("mss", _) => format!("--mss={text}"),
            ("bandwidth", _) => format!("--rate={text}"),
            ("fq-rate", _) => format!("--pacing={text}"),
            ("buffer-length", _) if udp => format!("--datagram-size={text}"),
            ("buffer-length", _) => format!("--write-size={text}"),
            ("congestion", _) => format!("--congestion={text}"),
            ("client-cpu-affinity", _) => format!("--cpus={text}"),
            ("server-cpu-affinity", _) => format!("--remote-cpus={text}"),
            ("ip-version", _) => format!("--ipv{text}"),
            ("ip-tos", _) => match value.as_u64() {
                Some(tos) if tos % 4 == 0 => format!("--dscp={}", tos / 4),
                _ => {
                    reasons.push(format!(
                        "ip-tos {value} has ECN bits, which TCP sets itself"
                    ));
                    continue;
                }
            },
            _ => {
                reasons.push(format!("the option '{key}' is not known"));
                continue;
            }
        };
        arguments.push(option);
    }
    if !reasons.is_empty() {
        return Err(reasons);
    }
    if !spec.contains_key("reverse") {
        arguments.push("--up".to_owned());
    }
    // What 'measure' would refuse.
    let command = ["measure", "host"].map(str::to_owned).into_iter();
    let parsed = OfMeasure::try_parse_from(command.chain(arguments.iter().cloned()));
    let checked = match parsed {
        Ok(of) => of.measure.order().map(drop).map_err(|why| why.to_string()),
        Err(why) => Err(why.to_string()),
    };
    match checked {
        Ok(()) => Ok(arguments),
        Err(why) => Err(vec![why.lines().next().unwrap_or_default().to_owned()]),
    }
}

#[derive(Parser)]
struct OfMeasure {
    #[command(flatten)]
    measure: Measure,
}

/// The keys of both participants, and where the destination listens.
struct Participants {
    port: u16,
    source: Identity,
    destination: Identity,
}

impl Participants {
    fn of(data: &Value) -> Result<Participants> {
        let key = |name: &str| {
            let text = data["_keys"][name].as_str();
            let bytes = text
                .and_then(unhex)
                .and_then(|bytes| Identity::from_pkcs8(bytes).ok());
            bytes.with_context(|| format!("the participant data has no key of the {name}"))
        };
        let port = data["port"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok());
        Ok(Participants {
            port: port.context("the participant data has no port")?,
            source: key("source")?,
            destination: key("destination")?,
        })
    }

    /// Measures, and explains.
    fn source(&self, spec: &Map<String, Value>, until: Nanos, global: &Global) -> Result<Value> {
        let times = TestTimes::of(spec)?;
        let (ours, theirs) = addresses(spec)?;
        let at = SocketAddr::new(theirs, self.port).to_string();
        let config = Config::new(&self.source)?;
        config.trust(TrustEntry {
            id: self.destination.id(),
            name: "destination".to_owned(),
            address: Some(at.clone()),
            rights: BTreeSet::new(),
            limits: KeyLimits::default(),
        })?;
        let mut arguments =
            arguments(spec).map_err(|reasons| anyhow::anyhow!(reasons.join("; ")))?;
        if let Some(ours) = ours {
            arguments.push(format!("--bind={ours}"));
        }
        let archive = global.archive_path()?;
        let call = |arguments: &[String]| {
            let mut command = itself(config.0.path());
            command.arg("--archive").arg(&archive).args(arguments);
            let child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            let pid = child.id();
            let (done, over) = mpsc::channel::<()>();
            let watchdog = std::thread::spawn(move || {
                if over.recv_timeout(left(until)) == Err(RecvTimeoutError::Timeout) {
                    let _ = sys::signal::end(pid, true);
                }
            });
            let output = child.wait_with_output();
            drop(done);
            let _ = watchdog.join();
            output
        };
        let measure = ["measure".to_owned(), at, "--json".to_owned()];
        let measure = [&measure[..], &arguments].concat();
        let patience = unix_time() + AFTER;
        let measured = loop {
            let measured = call(&measure)?;
            let absent = measured.status.code() == Some(Exit::Unreachable as i32);
            if !absent || unix_time() > patience {
                break measured;
            }
            std::thread::sleep(AGAIN);
        };
        let line = format!("linerate {}\n", measure.join(" "));
        let said = String::from_utf8_lossy(&measured.stderr);
        let Ok(run) = serde_json::from_slice::<Run>(&measured.stdout) else {
            let why = said
                .lines()
                .next_back()
                .unwrap_or("it was ended with its slot");
            return Ok(failure(
                why.trim_start_matches("linerate: "),
                &format!("{line}{said}"),
            ));
        };
        let explained = call(&["explain".to_owned(), run.id.clone()])?;
        let explained = String::from_utf8_lossy(&explained.stdout);
        let diags = format!("{line}{said}{explained}\nlinerate's run {}\n", run.id);
        Ok(result(&run, times.interval, times.omit, &diags))
    }

    /// Serves the source alone, until its session is over.
    fn destination(
        &self,
        spec: &Map<String, Value>,
        until: Nanos,
        data_ports: Option<&RangeInclusive<u16>>,
    ) -> Result<Value> {
        let longest = TestTimes::of(spec)?.whole().0.div_ceil(1_000_000_000);
        let (_, ours) = addresses(spec)?;
        let config = Config::new(&self.destination)?;
        config.trust(TrustEntry {
            id: self.source.id(),
            name: "source".to_owned(),
            address: None,
            rights: BTreeSet::from([Right::Measure]),
            limits: KeyLimits {
                seconds: Some(longest),
                ..KeyLimits::default()
            },
        })?;
        let mut command = itself(config.0.path());
        command.args([
            "serve",
            "--clients=1",
            &format!("--port={}", self.port),
            &format!("--bind={ours}"),
        ]);
        if let Some(ports) = data_ports {
            command.arg(format!("--data-ports={}-{}", ports.start(), ports.end()));
        }
        let mut server = OwnedChild(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()?,
        );
        let log = server
            .0
            .stderr
            .take()
            .context("the server has no standard error")?;
        let (lines, logged) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let (mut diags, mut over) = (String::new(), false);
        while !over && let Ok(line) = logged.recv_timeout(left(until)) {
            over =
                line.contains(": session ") && (line.contains(" ended") || line.contains(" broke"));
            diags += &format!("{line}\n");
        }
        match over {
            true => Ok(json!({"succeeded": true, "diags": diags, "intervals": [], "summary": {}})),
            false => Ok(failure("the source did not come", &diags)),
        }
    }
}

/// The address that the source is to use, if one was named, and that of the destination; of the same version.
fn addresses(spec: &Map<String, Value>) -> Result<(Option<IpAddr>, IpAddr)> {
    let version = spec.get("ip-version").and_then(Value::as_u64);
    let resolve = |name: &str| -> Result<Vec<IpAddr>> {
        let found = (name.trim_matches(['[', ']']), 0).to_socket_addrs();
        let found = found.with_context(|| format!("'{name}' has no address"))?;
        let fits = |ip: &IpAddr| version.is_none_or(|version| (version == 6) == ip.is_ipv6());
        let mut all: Vec<IpAddr> = found.map(|at| at.ip()).filter(fits).collect();
        // As pScheduler's other tools: IPv6 where both have it.
        all.sort_by_key(IpAddr::is_ipv4);
        Ok(all)
    };
    let name = |keys: &[&str]| keys.iter().find_map(|key| spec.get(*key)?.as_str());
    let to = name(&["dest"]).context("the test has no 'dest'")?;
    let theirs = resolve(to)?;
    let Some(from) = name(&["local-address", "source"]) else {
        let first = theirs
            .first()
            .with_context(|| format!("'{to}' has no such address"));
        return first.map(|theirs| (None, *theirs));
    };
    let pair = resolve(from)?.into_iter().find_map(|ours| {
        let same = theirs
            .iter()
            .find(|theirs| theirs.is_ipv6() == ours.is_ipv6());
        same.map(|theirs| (Some(ours), *theirs))
    });
    pair.with_context(|| format!("'{from}' and '{to}' have no addresses of the same version of IP"))
}

/// A directory of a key and of whom it trusts, which goes with the run.
struct Config(TemporaryDirectory);

impl Config {
    fn new(identity: &Identity) -> Result<Config> {
        let name = format!("linerate-pscheduler-{}", identity.id().short());
        let directory = TemporaryDirectory::create(&name)
            .with_context(|| format!("cannot make the directory {name}: the same run twice?"))?;
        identity.keep(directory.path())?;
        Ok(Config(directory))
    }

    fn trust(&self, entry: TrustEntry) -> Result<()> {
        TrustStore::new(self.0.path()).update(|file| file.put(entry))
    }
}

/// A process that ends with its value.
struct OwnedChild(Child);

impl Drop for OwnedChild {
    fn drop(&mut self) {
        let _ = sys::signal::end(self.0.id(), false);
        let _ = self.0.wait();
    }
}

/// This command, ended with this process.
fn itself(config: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--config").arg(config).stdin(Stdio::null());
    sys::signal::end_with_parent(&mut command);
    command
}

fn left(until: Nanos) -> Duration {
    until.since(unix_time()).into()
}

fn wait_until(moment: Nanos) {
    std::thread::sleep(left(moment));
}

/// One result of the two: the source has the figures of both.
fn merged(input: &Value) -> Result<Value> {
    let Some([source, destination]) = input["results"].as_array().map(Vec::as_slice) else {
        refuse!("merged-results: 'results' are not those of two participants");
    };
    let of = |result: &Value, name: &str| {
        let diags = result["diags"].as_str().unwrap_or_default();
        let error = result["error"].as_str().unwrap_or_default();
        format!("{name}:\n{error}\n{diags}\n")
    };
    let diags = of(source, "Source") + &of(destination, "Destination");
    Ok(match source {
        Value::Object(_) => {
            let mut merged = source.clone();
            merged["diags"] = json!(diags);
            merged
        }
        _ => failure("the source has no result", &diags),
    })
}
