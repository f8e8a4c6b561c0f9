//! From a run to what the experiment keeps of it: the metric, whether the settings were in force, and
//! what the kernel saw meanwhile.

use crate::order::Slot;
use model::{
    Bytes, Difference, Direction, EndRecord, Ended, Fingerprint, Leg, LegSummary, Limit, Metric,
    Nanos, Plan, Reading, Run, Side, SocketSettings, SocketState, Summary, Trial, Witness,
    Workload, apply_to_spec,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Keys of a fingerprint that say nothing about the path.
const NOT_COMPARED: [&str; 3] = ["linerate", "memory", "unread"];
/// What stands in a reading for an option that its arm leaves alone.
pub(crate) const LEFT_ALONE: &str = "as it is";
/// What stands for a key that is there at one time only.
const NOT_SET: &str = "not set";

/// Both hosts before the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// The host of the command.
    pub near: &'a Fingerprint,
    /// The other host, if it could tell.
    pub far: Option<&'a Fingerprint>,
}

/// What the experiment keeps of a run that was made. `readings` are those of the machine; those of
/// the live sockets are in the run. A run that failed or broke off has no value and counts as a slow
/// one. A run that the user interrupted is no trial: its block is run again.
pub fn of_run(
    plan: &Plan,
    slot: Slot,
    number: u32,
    run: &Run,
    summary: &Summary,
    before: Before<'_>,
    mut readings: Vec<Reading>,
) -> Trial {
    let mut trial = without_run(slot, number, run.started, Nanos(0), String::new());
    trial.run = Some(run.id.clone());
    let leg = run.legs.iter().find(|l| l.direction == plan.direction);
    let figures = summary.legs.iter().find(|l| l.direction == plan.direction);
    if let (Some(leg), Some(figures)) = (leg, figures) {
        trial.duration = match plan.run.limit {
            Limit::Time(time) => figures.duration.max(time),
            Limit::Bytes(_) | Limit::Requests(_) => figures.duration,
        };
        trial.bytes = figures.bytes;
        readings.extend(socket_readings(plan, slot.arm, leg));
        trial.witness = witness(leg, figures, run);
    }
    trial.readings = readings;
    trial.witness.differences = differences(Side::Near, before.near, &run.near);
    if let (Some(then), Some(now)) = (before.far, &run.far) {
        let far = differences(Side::Far, then, now);
        trial.witness.differences.extend(far);
    }
    match outcome(plan.metric, run, leg, figures) {
        Ok(value) => {
            trial.value = Some(value);
            trial.failed = None;
        }
        Err(why) => trial.failed = Some(why),
    }
    trial
}

/// What the experiment keeps of a run that could not even begin; it lasted `duration` all the same.
pub fn without_run(slot: Slot, number: u32, started: Nanos, duration: Nanos, why: String) -> Trial {
    Trial {
        number,
        phase: slot.phase,
        block: slot.block,
        position: slot.position,
        arm: slot.arm,
        run: None,
        started,
        duration,
        value: None,
        bytes: Bytes(0),
        failed: Some(why),
        readings: Vec::new(),
        witness: Witness::default(),
    }
}

/// The metric of a run, in bit/s or seconds, or why there is none.
fn outcome(
    metric: Metric,
    run: &Run,
    leg: Option<&Leg>,
    figures: Option<&LegSummary>,
) -> Result<f64, String> {
    let ended = |how: &Ended| match how {
        Ended::Complete => None,
        Ended::Failed { why } => Some(why.clone()),
        Ended::Interrupted => Some("it was interrupted".to_owned()),
        Ended::Unfinished => Some("it did not finish".to_owned()),
    };
    let (Some(leg), Some(figures)) = (leg, figures) else {
        return Err(ended(&run.ended).unwrap_or_else(|| "nothing was measured".to_owned()));
    };
    if let Some(why) = ended(&leg.ended).or_else(|| ended(&run.ended)) {
        return Err(why);
    }
    let value = match metric {
        Metric::Goodput => figures.steady_goodput.unwrap_or(figures.goodput).0 as f64,
        Metric::Completion => figures.duration.as_secs_f64(),
        Metric::LatencyP50 | Metric::LatencyP99 => {
            let requests = figures.requests.ok_or("no request was answered")?;
            match metric {
                Metric::LatencyP50 => requests.p50.as_secs_f64(),
                _ => requests.p99.as_secs_f64(),
            }
        }
    };
    if value > 0.0 && (metric.is_latency() || figures.bytes > Bytes(0)) {
        Ok(value)
    } else {
        Err("nothing arrived".to_owned())
    }
}

/// The logarithm of the speed of each trial, by its number: more is better. A failed run gets what it
/// moved in its time (for latencies: one request that took all of it), but is never better than the
/// worst run that did not fail, as it would be if it broke off after a fast start.
pub(crate) fn scores(plan: &Plan, trials: &[Trial]) -> BTreeMap<u32, f64> {
    let whole = |t: &Trial| {
        t.value.map(|v| {
            if plan.metric.is_time() {
                -v.ln()
            } else {
                v.ln()
            }
        })
    };
    let worst = trials
        .iter()
        .filter_map(whole)
        .fold(f64::INFINITY, f64::min);
    let failed = |t: &Trial| {
        let seconds = t.duration.as_secs_f64().max(1e-9);
        let per_second = t.bytes.0.max(1) as f64 / seconds;
        let speed = match (plan.metric, plan.run.limit) {
            (Metric::Goodput, _) => 8.0 * per_second,
            (Metric::Completion, Limit::Bytes(all)) => per_second / all.0.max(1) as f64,
            _ => 1.0 / seconds,
        };
        speed.ln().min(worst)
    };
    trials
        .iter()
        .map(|t| (t.number, whole(t).unwrap_or_else(|| failed(t))))
        .collect()
}

fn witness(leg: &Leg, figures: &LegSummary, run: &Run) -> Witness {
    let cpu = [figures.sender_cpu, figures.receiver_cpu];
    let most = |of: &dyn Fn(&model::CpuUse) -> Option<f64>| {
        cpu.iter().flatten().filter_map(of).reduce(f64::max)
    };
    let hosts = [Some(&run.near), run.far.as_ref()];
    Witness {
        steady_goodput: figures.steady_goodput,
        rwnd_limited_share: figures.rwnd_limited_share,
        sndbuf_limited_share: figures.sndbuf_limited_share,
        busy_share: figures.busy_share,
        retransmit_share: figures.retransmit_share,
        cpu: most(&|c| Some(c.process)),
        host_cpu_share: most(&|c| c.host_share),
        mss: leg.sender().sockets.first().map(|s| s.mss),
        link_speed: hosts
            .into_iter()
            .flatten()
            .filter_map(|host| host.device.as_ref()?.speed)
            .min(),
        requests: figures.requests.map(|r| r.count),
        differences: Vec::new(),
    }
}

// ---- in force on the live sockets ----

/// An option of the live socket: its name, which end it acts at, what was asked, what is there.
struct SocketOption {
    name: &'static str,
    at: Acts,
    asked: fn(&SocketSettings) -> Option<u64>,
    found: fn(&SocketState) -> Option<u64>,
    /// Whether what is there is what was asked.
    same: fn(u64, u64) -> bool,
    print: fn(u64) -> String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Acts {
    Sender,
    Receiver,
}

/// The kernel doubles what it is asked, for its own bookkeeping, and raises what is less than one packet needs
/// (`SOCK_MIN_SNDBUF`, `SOCK_MIN_RCVBUF`: under 5 KB on all machines).
fn same_buffer(asked: u64, found: u64) -> bool {
    found == asked || (found > asked && found <= 5 << 10)
}

const OPTIONS: [SocketOption; 6] = [
    SocketOption {
        name: "SO_SNDBUF",
        at: Acts::Sender,
        asked: |s| s.send_buffer.map(|b| b.0),
        found: |s| Some(s.send_buffer.0 / 2),
        same: same_buffer,
        print: size,
    },
    SocketOption {
        name: "SO_RCVBUF",
        at: Acts::Receiver,
        asked: |s| s.receive_buffer.map(|b| b.0),
        found: |s| Some(s.receive_buffer.0 / 2),
        same: same_buffer,
        print: size,
    },
    SocketOption {
        name: "SO_MAX_PACING_RATE",
        at: Acts::Sender,
        asked: |s| s.pacing.map(|p| p.0),
        found: |s| s.pacing.map(|p| p.0),
        // The kernel counts whole bytes a second.
        same: |asked, found| asked.abs_diff(found) < 8,
        print: |rate| model::BitRate(rate).to_string(),
    },
    SocketOption {
        name: "TCP_MAXSEG",
        at: Acts::Sender,
        asked: |s| s.mss.map(u64::from),
        found: |s| Some(u64::from(s.mss)),
        // Options of every segment (at most 40 bytes) are taken off what was asked.
        same: |asked, found| found <= asked && found + 40 >= asked,
        print: |bytes| bytes.to_string(),
    },
    SocketOption {
        name: "TCP_NODELAY",
        at: Acts::Sender,
        asked: |s| s.nodelay.map(u64::from),
        found: |s| Some(u64::from(s.nodelay)),
        same: |asked, found| asked == found,
        print: |on| if on == 1 { "on" } else { "off" }.to_owned(),
    },
    SocketOption {
        name: "TCP_NOTSENT_LOWAT",
        at: Acts::Sender,
        asked: |s| s.notsent_lowat.map(|b| b.0),
        found: |s| s.notsent_lowat.map(|b| b.0),
        same: |asked, found| asked == found,
        print: size,
    },
];

/// The socket options that any arm sets, as the live sockets of this run have them, at the end where
/// they act: for an arm that leaves one alone too, to tell a change that changed nothing.
fn socket_readings(plan: &Plan, arm: u32, leg: &Leg) -> Vec<Reading> {
    let mut touched = SocketSettings::default();
    for arm in &plan.arms {
        apply_to_spec(&arm.settings, &mut touched);
    }
    let asked = plan.spec_of(arm).socket;
    let both = matches!(plan.run.workload, Workload::Request(_));
    let ends = |at: Acts| {
        let sender = leg.direction.sender();
        [Side::Near, Side::Far]
            .into_iter()
            .filter(move |side| both || (*side == sender) == (at == Acts::Sender))
    };
    let mut readings = Vec::new();
    for option in OPTIONS.iter().filter(|o| (o.asked)(&touched).is_some()) {
        for side in ends(option.at) {
            let wanted = (option.asked)(&asked);
            let holds = |s: &SocketState| match (wanted, (option.found)(s)) {
                (None, _) => true,
                (Some(wanted), Some(found)) => (option.same)(wanted, found),
                (Some(_), None) => false,
            };
            readings.extend(reading(leg.end(side), holds, |socket, in_force| Reading {
                setting: option.name.to_owned(),
                side,
                asked: wanted.map_or_else(|| LEFT_ALONE.to_owned(), option.print),
                found: (option.found)(socket).map_or_else(|| NOT_SET.to_owned(), option.print),
                in_force,
            }));
        }
    }
    if touched.congestion.is_some() {
        for side in ends(Acts::Sender) {
            let wanted = asked.congestion.as_deref();
            let holds = |s: &SocketState| wanted.is_none_or(|w| w == s.congestion);
            readings.extend(reading(leg.end(side), holds, |socket, in_force| Reading {
                setting: "TCP_CONGESTION".to_owned(),
                side,
                asked: wanted.unwrap_or(LEFT_ALONE).to_owned(),
                found: socket.congestion.clone(),
                in_force,
            }));
        }
    }
    readings
}

/// The reading of an end: of its first socket that does not hold, or else of its first; none if the
/// end did not tell.
fn reading(
    end: &EndRecord,
    holds: impl Fn(&SocketState) -> bool,
    say: impl FnOnce(&SocketState, bool) -> Reading,
) -> Option<Reading> {
    let odd = end.sockets.iter().find(|s| !holds(s));
    let socket = odd.or(end.sockets.first())?;
    Some(say(socket, odd.is_none()))
}

/// In whole KiB, so that what was asked and what is there can be compared by eye.
fn size(bytes: u64) -> String {
    if bytes < 10 << 10 {
        return format!("{bytes} B");
    }
    format!("{} KiB", (bytes as f64 / 1024.0).round())
}

// ---- the hosts ----

/// The facts that are not as before. What one of the two fingerprints could not read is not compared.
fn differences(side: Side, before: &Fingerprint, now: &Fingerprint) -> Vec<Difference> {
    let (before, now) = (facts(before), facts(now));
    let mut keys: Vec<&String> = before.keys().chain(now.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let differing = keys.into_iter().filter_map(|key| {
        let text = |facts: &BTreeMap<String, Option<String>>| match facts.get(key) {
            None => Some(NOT_SET.to_owned()),
            Some(unread) => unread.clone(),
        };
        let (before, now) = (text(&before)?, text(&now)?);
        (before != now).then(|| Difference {
            side,
            what: key.clone(),
            before,
            now,
        })
    });
    differing.collect()
}

/// A fingerprint as a flat list; `None` where a fact could not be read.
fn facts(host: &Fingerprint) -> BTreeMap<String, Option<String>> {
    fn walk(at: String, value: Value, facts: &mut BTreeMap<String, Option<String>>) {
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    let below = if at.is_empty() {
                        key
                    } else {
                        format!("{at}.{key}")
                    };
                    if !NOT_COMPARED.contains(&below.as_str()) {
                        walk(below, value, facts);
                    }
                }
            }
            Value::Null => drop(facts.insert(at, None)),
            Value::String(text) => drop(facts.insert(at, Some(text))),
            other => drop(facts.insert(at, Some(other.to_string()))),
        }
    }
    let mut all = BTreeMap::new();
    let value = serde_json::to_value(host).unwrap_or(Value::Null);
    walk(String::new(), value, &mut all);
    all
}

/// The direction's receiver and sender, for sentences.
pub(crate) fn end_name(side: Side, direction: Direction) -> &'static str {
    match (side, side == direction.sender()) {
        (Side::Near, true) => "here, at the sender",
        (Side::Near, false) => "here, at the receiver",
        (Side::Far, true) => "at the far host, the sender",
        (Side::Far, false) => "at the far host, the receiver",
    }
}
