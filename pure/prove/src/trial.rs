//! From a run to what the experiment keeps of it: the metric, whether the settings were in force, and
//! what the kernel saw meanwhile.

use crate::blocks::TrialSlot;
use model::{
    Bytes, Difference, Direction, EndRecord, Ended, Experiment, Fingerprint, Leg, LegLimit,
    LegSummary, Metric, Nanos, OptionUnit, Plan, Reading, Run, SOCKET_OPTIONS, Side, SocketOptions,
    SocketSettings, Trial, Witness, apply_to_spec, summarise,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Keys of a fingerprint that say nothing about the path.
const NOT_COMPARED: [&str; 3] = ["linerate", "memory", "unread"];
/// What stands in a reading for an option that its arm leaves alone.
pub(crate) const LEFT_ALONE: &str = "not set";
/// What stands for a key that is there at one time only.
const NOT_SET: &str = "not set";

/// What the experiment keeps of a run that was made. `readings` are those of the machine; those of
/// the live sockets are in the run. A run that failed or broke off has no value and counts as a slow
/// one. A run that the user interrupted is no trial: its block is run again.
pub fn of_run(
    experiment: &Experiment,
    slot: TrialSlot,
    number: u32,
    run: &Run,
    mut readings: Vec<Reading>,
) -> Trial {
    let (plan, summary) = (&experiment.plan, summarise(run));
    let mut trial = without_run(slot, number, run.started, Nanos(0), String::new());
    trial.run = Some(run.id.clone());
    let leg = run.legs.iter().find(|l| l.direction == plan.direction);
    let figures = summary.legs.iter().find(|l| l.direction == plan.direction);
    if let (Some(leg), Some(figures)) = (leg, figures) {
        trial.duration = match plan.run.limit {
            LegLimit::Time(time) => figures.duration.max(time),
            LegLimit::Bytes(_) | LegLimit::Requests(_) | LegLimit::Whole => figures.duration,
        };
        trial.bytes = figures.bytes;
        let mut touched = SocketSettings::default();
        for arm in &plan.arms {
            apply_to_spec(&arm.settings, &mut touched);
        }
        let asked = plan.spec_of(slot.arm).socket;
        let both = plan.run.workload.is_answered();
        readings.extend(socket_readings(&touched, &asked, both, leg));
        trial.witness = witness(leg, figures, run);
    }
    trial.readings = readings;
    trial.witness.differences = differences(Side::Local, &experiment.local, &run.local);
    if let (Some(then), Some(now)) = (&experiment.remote, &run.remote) {
        let remote = differences(Side::Remote, then, now);
        trial.witness.differences.extend(remote);
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
pub fn without_run(
    slot: TrialSlot,
    number: u32,
    started: Nanos,
    duration: Nanos,
    why: String,
) -> Trial {
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
    let requests = figures.requests.ok_or("no request was answered");
    let value = match metric {
        Metric::Goodput => figures.steady_goodput.unwrap_or(figures.goodput).0 as f64,
        Metric::Completion => figures.duration.as_secs_f64(),
        Metric::LatencyP50 => requests?.p50.as_secs_f64(),
        Metric::LatencyP99 => requests?.p99.as_secs_f64(),
    };
    let arrived = value > 0.0 && (metric.is_latency() || figures.bytes > Bytes(0));
    arrived.then_some(value).ok_or("nothing arrived".to_owned())
}

/// The logarithm of the speed of each trial, by its number: more is better. A failed run gets what it
/// moved in its time (for latencies: one request that took all of it), but is never better than the
/// worst run that did not fail, as it would be if it broke off after a fast start.
pub(crate) fn scores(plan: &Plan, trials: &[Trial]) -> BTreeMap<u32, f64> {
    let sign = if plan.metric.is_time() { -1.0 } else { 1.0 };
    let whole = |t: &Trial| Some(sign * t.value?.ln());
    let worst = trials.iter().filter_map(whole);
    let worst = worst.fold(f64::INFINITY, f64::min);
    let failed = |t: &Trial| {
        let seconds = t.duration.as_secs_f64().max(1e-9);
        let per_second = t.bytes.0.max(1) as f64 / seconds;
        let speed = match (plan.metric, plan.run.limit) {
            (Metric::Goodput, _) => 8.0 * per_second,
            (Metric::Completion, LegLimit::Bytes(all)) => per_second / all.0.max(1) as f64,
            _ => 1.0 / seconds,
        };
        speed.ln().min(worst)
    };
    let score = |t: &Trial| (t.number, whole(t).unwrap_or_else(|| failed(t)));
    trials.iter().map(score).collect()
}

/// Time from the start of a run to that of the next: the median of those on record, or what the plan
/// says; `None` if that depends on the path.
pub(crate) fn run_time(plan: &Plan, trials: &[Trial]) -> Option<Nanos> {
    let seen = trials.windows(2);
    let seen = seen.map(|two| two[1].started.since(two[0].started));
    let mut seen: Vec<Nanos> = seen.collect();
    seen.sort_unstable();
    let planned = match plan.run.limit {
        LegLimit::Time(time) => Some(time + plan.gap),
        LegLimit::Bytes(_) | LegLimit::Requests(_) | LegLimit::Whole => None,
    };
    seen.get(seen.len() / 2).copied().or(planned)
}

fn witness(leg: &Leg, figures: &LegSummary, run: &Run) -> Witness {
    let cpu = [figures.sender_cpu, figures.receiver_cpu];
    let most = |of: &dyn Fn(&model::CpuUse) -> Option<f64>| {
        cpu.iter().flatten().filter_map(of).reduce(f64::max)
    };
    let hosts = [Some(&run.local), run.remote.as_ref()]
        .into_iter()
        .flatten();
    Witness {
        steady_goodput: figures.steady_goodput,
        rwnd_limited_share: figures.rwnd_limited_share,
        sndbuf_limited_share: figures.sndbuf_limited_share,
        all_sent_share: all_sent_share(leg),
        busy_share: figures.busy_share,
        retransmit_share: figures.retransmit_share,
        cpu: most(&|c| Some(c.process)),
        host_cpu_share: most(&|c| c.host_share),
        mss: leg.sender().sockets.first().map(|s| s.mss),
        link_speed: hosts.filter_map(|host| host.device.as_ref()?.speed).min(),
        requests: figures.requests.map(|r| r.count),
        differences: Vec::new(),
    }
}

/// [`Witness::all_sent_share`]; `None` if the sender's sockets do not report it.
fn all_sent_share(leg: &Leg) -> Option<f64> {
    let streams = leg.sender().samples.iter().flat_map(|s| &s.streams);
    let sent = streams.map(|stream| {
        let tcp = stream.tcp.as_ref()?;
        Some(tcp.unsent()?.0 < u64::from(tcp.mss()?))
    });
    let sent: Option<Vec<bool>> = sent.collect();
    let sent = sent.filter(|all| !all.is_empty())?;
    Some(sent.iter().filter(|all| **all).count() as f64 / sent.len() as f64)
}

// ---- in force on the live sockets ----

/// A value as readings have it: exact, because a change is distinguished from none by these words.
fn print(unit: OptionUnit, value: u64) -> String {
    match unit {
        OptionUnit::Bytes => size(value),
        OptionUnit::BitRate => format!("{} Mbit/s", value as f64 / 1e6),
        OptionUnit::Count | OptionUnit::Switch => unit.format(value),
    }
}

/// The options that are `touched`, as the live sockets of this run have them, at the end where they act, or at
/// `both`: those that are not `asked` too, to see a change that changed nothing.
fn socket_readings(
    touched: &SocketSettings,
    asked: &SocketSettings,
    both: bool,
    leg: &Leg,
) -> Vec<Reading> {
    let ends = |at_receiver: bool| {
        let sender = leg.direction.sender();
        [Side::Local, Side::Remote]
            .into_iter()
            .filter(move |side| both || (*side == sender) != at_receiver)
    };
    let mut readings = Vec::new();
    for option in SOCKET_OPTIONS
        .iter()
        .filter(|o| (o.asked)(touched).is_some())
    {
        let print = |value| print(option.unit, value);
        for side in ends(option.at_receiver) {
            let wanted = (option.asked)(asked);
            let holds = |s: &SocketOptions| match (wanted, option.in_force(s)) {
                (None, _) => true,
                (Some(wanted), Some(found)) => (option.same)(wanted, found),
                (Some(_), None) => false,
            };
            readings.extend(reading(leg.end(side), holds, |socket, in_force| Reading {
                setting: option.kernel.to_owned(),
                side,
                asked: wanted.map_or_else(|| LEFT_ALONE.to_owned(), print),
                found: option
                    .in_force(socket)
                    .map_or_else(|| NOT_SET.to_owned(), print),
                in_force,
            }));
        }
    }
    if touched.congestion.is_some() {
        for side in ends(false) {
            let wanted = asked.congestion.as_deref();
            let holds = |s: &SocketOptions| wanted.is_none_or(|w| w == s.congestion);
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
/// end did not report.
fn reading(
    end: &EndRecord,
    holds: impl Fn(&SocketOptions) -> bool,
    say: impl FnOnce(&SocketOptions, bool) -> Reading,
) -> Option<Reading> {
    let odd = end.sockets.iter().find(|s| !holds(s));
    let socket = odd.or(end.sockets.first())?;
    Some(say(socket, odd.is_none()))
}

/// In KiB, so that the requested and the actual value can be compared by eye; never rounded, because this
/// text shows whether the value changed.
fn size(bytes: u64) -> String {
    if bytes < 10 << 10 || !bytes.is_multiple_of(1 << 10) {
        return format!("{bytes} B");
    }
    format!("{} KiB", bytes >> 10)
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
                    let below = format!("{at}.{key}");
                    let below = below.trim_start_matches('.').to_owned();
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
        (Side::Local, true) => "at this host, the sender",
        (Side::Local, false) => "at this host, the receiver",
        (Side::Remote, true) => "at the remote host, the sender",
        (Side::Remote, false) => "at the remote host, the receiver",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlanOptions;
    use crate::testing::{ask, plan, settings};
    use model::{Latency, Outcome, Request, RunId, TrialPhase};

    const TRIED: TrialSlot = TrialSlot {
        phase: TrialPhase::Main,
        block: 0,
        position: 0,
        arm: 1,
    };

    /// A live socket as the kernel makes it when nothing is asked.
    fn socket() -> SocketOptions {
        SocketOptions {
            stream: 0,
            local: ([192, 0, 2, 1], 40_000).into(),
            remote: ([192, 0, 2, 2], 5211).into(),
            send_buffer: Bytes(87_040),
            receive_buffer: Bytes(131_072),
            mss: 1448,
            congestion: "cubic".to_owned(),
            nodelay: false,
            pacing: None,
            dscp: 0,
            notsent_lowat: None,
            snd_wscale: Some(7),
            rcv_wscale: Some(7),
        }
    }

    /// Ten seconds in which 125 MB arrived, over two connections.
    fn run(plan: &Plan) -> Run {
        let end = || EndRecord {
            sockets: vec![socket(), socket()],
            bytes: Bytes(125_000_000),
            duration: Nanos::from_secs(10),
            ..EndRecord::default()
        };
        Run {
            id: RunId::from("11112222"),
            started: Nanos(7),
            host: plan.host.clone(),
            spec: plan.run.clone(),
            legs: vec![Leg {
                direction: plan.direction,
                started: Nanos(7),
                local: end(),
                remote: end(),
                ended: Ended::Complete,
            }],
            ended: Ended::Complete,
            ..Run::default()
        }
    }

    fn trial(plan: &Plan, arm: u32, run: &Run) -> Trial {
        let slot = TrialSlot { arm, ..TRIED };
        let experiment = crate::testing::experiment(plan.clone(), Vec::new());
        of_run(&experiment, slot, 1, run, Vec::new())
    }

    fn change(texts: &[&str]) -> Plan {
        plan(PlanOptions {
            changes: settings(texts),
            ..ask()
        })
    }

    /// `SETTING side: asked, found`, with a `!` if it is not in force.
    fn readings(trial: &Trial) -> Vec<String> {
        let one = |r: &Reading| {
            let mark = if r.in_force { "" } else { "!" };
            let (setting, side) = (&r.setting, r.side);
            format!("{mark}{setting} {side:?}: {}, {}", r.asked, r.found)
        };
        trial.readings.iter().map(one).collect()
    }

    #[test]
    fn options_are_read_at_the_end_where_they_act() {
        let plan = change(&["sockbuf=8M", "congestion=bbr"]);
        let mut made = run(&plan);
        // The sender got half of what was asked: the limit of its host. The receiver got it all.
        for socket in &mut made.legs[0].local.sockets {
            socket.send_buffer = Bytes(8 << 20);
            socket.congestion = "bbr".to_owned();
        }
        made.legs[0].remote.sockets[0].receive_buffer = Bytes(16 << 20);
        made.legs[0].remote.sockets[1].receive_buffer = Bytes(16 << 20);
        let expected = [
            "!SO_SNDBUF Local: 8192 KiB, 4096 KiB",
            "SO_RCVBUF Remote: 8192 KiB, 8192 KiB",
            "TCP_CONGESTION Local: bbr, bbr",
        ];
        assert_eq!(readings(&trial(&plan, 1, &made)), expected);
        // The control does not set them, and reports their values too.
        let control = readings(&trial(&plan, 0, &run(&plan)));
        let expected = [
            "SO_SNDBUF Local: not set, 43520 B",
            "SO_RCVBUF Remote: not set, 64 KiB",
            "TCP_CONGESTION Local: not set, cubic",
        ];
        assert_eq!(control, expected);
        // A little more is not the same.
        let close = change(&["pacing=40.02M"]);
        let mut made = run(&close);
        for socket in &mut made.legs[0].local.sockets {
            socket.pacing = Some(model::BitRate(40_020_000));
        }
        let expected = ["SO_MAX_PACING_RATE Local: 40.02 Mbit/s, 40.02 Mbit/s"];
        assert_eq!(readings(&trial(&close, 1, &made)), expected);
        // Downwards the remote host sends.
        let down = plan_down(&["sockbuf=8M"]);
        let sides: Vec<Side> = trial(&down, 1, &run(&down))
            .readings
            .iter()
            .map(|r| r.side)
            .collect();
        assert_eq!(sides, [Side::Remote, Side::Local]);
    }

    fn plan_down(texts: &[&str]) -> Plan {
        plan(PlanOptions {
            changes: settings(texts),
            direction: Some(Direction::Down),
            ..ask()
        })
    }

    #[test]
    fn one_connection_of_many_that_does_not_hold_is_reported() {
        let plan = change(&["congestion=bbr"]);
        let mut made = run(&plan);
        made.legs[0].local.sockets[0].congestion = "bbr".to_owned();
        let readings = readings(&trial(&plan, 1, &made));
        assert_eq!(readings, ["!TCP_CONGESTION Local: bbr, cubic"]);
        // A host that reports nothing makes no reading: that is not the same as being in force.
        made.legs[0].local.sockets.clear();
        assert!(trial(&plan, 1, &made).readings.is_empty());
    }

    #[test]
    fn what_the_kernel_rounds_is_in_force() {
        type Set = fn(&mut SocketOptions);
        let cases: &[(&str, Set, bool)] = &[
            ("mss=1000", |s| s.mss = 988, true),
            ("mss=1000", |s| s.mss = 1448, false),
            (
                "pacing=40001k",
                |s| s.pacing = Some(model::BitRate(40_000_996)),
                true,
            ),
            (
                "pacing=40M",
                |s| s.pacing = Some(model::BitRate(45_000_000)),
                false,
            ),
            ("pacing=40M", |_| {}, false),
            ("nodelay=on", |s| s.nodelay = true, true),
            ("nodelay=on", |_| {}, false),
            ("sndbuf=1K", |s| s.send_buffer = Bytes(4608), true),
            (
                "notsent_lowat=128K",
                |s| s.notsent_lowat = Some(Bytes(128 << 10)),
                true,
            ),
        ];
        for (text, set, right) in cases {
            let plan = change(&[text]);
            let mut made = run(&plan);
            made.legs[0].local.sockets.iter_mut().for_each(set);
            let trial = trial(&plan, 1, &made);
            let [reading] = &trial.readings[..] else {
                panic!("{text}: {:?}", trial.readings)
            };
            assert_eq!(reading.in_force, *right, "{reading:?}");
        }
    }

    #[test]
    fn hosts_that_changed_are_reported_by_fact() {
        let plan = change(&["congestion=bbr"]);
        let before = Fingerprint {
            kernel: "Linux 6.18.1".to_owned(),
            memory: Some(Bytes(1)),
            clock_source: Some("tsc".to_owned()),
            sysctls: [("net.ipv4.tcp_rmem", "1 2 3"), ("net.ipv4.gone", "1")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..Fingerprint::default()
        };
        let mut made = run(&plan);
        made.local = Fingerprint {
            linerate: "another".to_owned(),
            memory: Some(Bytes(2)),
            // What could not be read now has not changed for all that is known.
            clock_source: None,
            sysctls: [("net.ipv4.tcp_rmem".to_owned(), "1 2 4".to_owned())].into(),
            ..before.clone()
        };
        made.remote = Some(Fingerprint {
            kernel: "Linux 6.18.2".to_owned(),
            ..before.clone()
        });
        let both = Experiment {
            local: before.clone(),
            remote: Some(before),
            ..crate::testing::experiment(plan, Vec::new())
        };
        let trial = of_run(&both, TRIED, 1, &made, Vec::new());
        let changes: Vec<String> = trial
            .witness
            .differences
            .iter()
            .map(|d| format!("{:?} {}: {} -> {}", d.side, d.what, d.before, d.now))
            .collect();
        let expected = [
            "Local sysctls.net.ipv4.gone: 1 -> not set",
            "Local sysctls.net.ipv4.tcp_rmem: 1 2 3 -> 1 2 4",
            "Remote kernel: Linux 6.18.1 -> Linux 6.18.2",
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_failed_run_is_kept_and_is_never_better_than_a_whole_one() {
        let plan = change(&["congestion=bbr"]);
        let whole = trial(&plan, 0, &run(&plan));
        assert_eq!((whole.value, whole.failed.as_deref()), (Some(1e8), None));

        // It broke off after a fast start: nearly all bytes in a tenth of the time.
        let mut broken = run(&plan);
        let leg = &mut broken.legs[0];
        for end in [&mut leg.local, &mut leg.remote] {
            end.duration = Nanos::from_secs(1);
        }
        let why = "the connection was reset".to_owned();
        broken.legs[0].ended = Ended::Failed { why: why.clone() };
        let broken = Trial {
            number: 2,
            ..trial(&plan, 1, &broken)
        };
        assert_eq!((broken.value, broken.failed.as_ref()), (None, Some(&why)));
        assert_eq!(broken.bytes, Bytes(125_000_000));
        let LegLimit::Time(ordered) = plan.run.limit else {
            panic!("{:?}", plan.run.limit)
        };
        assert_eq!(broken.duration, ordered, "of the time that it had");
        let nothing = without_run(TRIED, 3, Nanos(0), Nanos::from_secs(12), why);
        let scores = scores(&plan, &[whole, broken, nothing]);
        assert!(scores[&2] <= scores[&1], "{scores:?}");
        assert!(scores[&3] < scores[&2], "{scores:?}");

        // Of a size: by the share of it that arrived. Of requests: one that took all of the time.
        let broken_after_2_s = |metric, limit| {
            let plan = Plan {
                metric,
                run: model::Spec {
                    limit,
                    ..plan.run.clone()
                },
                ..plan.clone()
            };
            let failed = Trial {
                bytes: Bytes(500),
                ..without_run(TRIED, 3, Nanos(0), Nanos::from_secs(2), String::new())
            };
            super::scores(&plan, &[failed])[&3].exp()
        };
        let close = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}")
        };
        let bytes = LegLimit::Bytes(Bytes(1000));
        close(broken_after_2_s(Metric::Goodput, bytes), 2000.0);
        close(broken_after_2_s(Metric::Completion, bytes), 0.25);
        close(
            broken_after_2_s(Metric::LatencyP50, LegLimit::Requests(9)),
            0.5,
        );

        // Nothing arrived, and it did not even fail.
        let mut empty = run(&plan);
        let leg = &mut empty.legs[0];
        for end in [&mut leg.local, &mut leg.remote] {
            end.bytes = Bytes(0);
        }
        let empty = trial(&plan, 1, &empty);
        assert_eq!(empty.failed.as_deref(), Some("nothing arrived"));
    }

    #[test]
    fn a_percentile_of_too_few_requests_is_kept_and_doubted() {
        let slow = |millis: u64, count: u64| {
            Latency::from_counts([(millis * 1_000_000, count - 2), (90_000_000, 2)])
        };
        let plan = plan(PlanOptions {
            metric: Metric::LatencyP99,
            run: Some(model::Spec {
                workload: model::Workload::Request(Request {
                    request_size: Bytes(128),
                    reply_size: Bytes(8192),
                    pace_per_s: None,
                    reconnect: false,
                    wait: model::WaitMode::Block,
                }),
                limit: LegLimit::Requests(1000),
                ..crate::plan::usual_run()
            }),
            pairs: Some(vec![6]),
            pilot_pairs: Some(0),
            ..ask()
        });
        let made = |slot: TrialSlot, count| {
            let mut run = run(&plan);
            let leg = &mut run.legs[0];
            if slot.arm == 1 {
                let both = leg.local.sockets.iter_mut().chain(&mut leg.remote.sockets);
                both.for_each(|s| s.congestion = "bbr".to_owned());
            }
            leg.local.requests = Some(slow(if slot.arm == 0 { 20 } else { 10 }, count));
            trial(&plan, slot.arm, &run)
        };
        let of = |count: u64| {
            let mut trials: Vec<Trial> = Vec::new();
            while let Some(slot) = crate::next(&plan, &trials) {
                let trial = Trial {
                    number: trials.len() as u32 + 1,
                    phase: slot.phase,
                    block: slot.block,
                    position: slot.position,
                    ..made(slot, count)
                };
                trials.push(trial);
            }
            crate::judge(&crate::testing::experiment(plan.clone(), trials))
        };
        let few = made(TRIED, 100);
        assert_eq!(few.witness.requests, Some(100));
        assert!(
            few.value.is_some_and(|v| (0.08..0.1).contains(&v)),
            "{few:?}"
        );
        let said = |count| {
            let verdict = of(count);
            let too_few = verdict
                .gates
                .iter()
                .find(|g| g.evidence.contains("too few for a 99th"));
            (verdict.outcome, too_few.is_some())
        };
        assert!(said(999).1);
        assert_eq!(said(1000), (Outcome::Faster, false));
        // None at all is a failure.
        let none = trial(&plan, 1, &run(&plan));
        assert_eq!(none.failed.as_deref(), Some("no request was answered"));
    }

    #[test]
    fn a_size_is_in_kib_where_that_is_exact_and_ten_of_them() {
        let texts = [1024, 10_239, 10_240, 10_241, 1 << 20].map(size);
        assert_eq!(
            texts,
            ["1024 B", "10239 B", "10 KiB", "10241 B", "1024 KiB"]
        );
    }
}
