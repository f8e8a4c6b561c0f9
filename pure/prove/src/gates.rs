//! What is checked before a verdict is given: a figure that answers another question than the plan's
//! is no answer. A check that fails forbids a verdict; one that warns stands beside it.

use crate::plan::{P99_REQUESTS, counted};
use crate::trial::{LEFT_ALONE, end_name};
use model::GateState::{Failed, Passed, Unknown, Warned};
use model::stats::{median, percent, signed_percent};
use model::{
    BitRate, ChangePoint, Check, Comparison, Design, Estimate, Gate, GateState, Knob, Metric,
    Outcome, Pilot, Plan, Reading, RouteKnob, Setting, Side, SocketKnob, Trial, TrialPhase,
};
use std::collections::{BTreeMap, BTreeSet};

/// Header bytes and gaps of an Ethernet frame that carries a full segment with timestamps over IPv4:
/// 12 + 20 + 20 of TCP and IP, 38 of preamble, header, checksum and gap (IEEE 802.3).
const OVERHEAD: f64 = 90.0;
/// From this share of what the link can carry the path is full.
const FULL: f64 = 0.99;
/// Under this share of the time a buffer was not what the transfer waited for.
const HARDLY: f64 = 0.01;
/// And of samples that show it.
const SELDOM: f64 = 0.05;
/// From this share of the time something else than the congestion window was the limit.
const MOSTLY: f64 = 0.95;
/// Most facts that a sentence names.
const NAMED: usize = 3;

/// What a check found, and the evidence in a sentence.
type GateFinding = (GateState, String);
/// An undeclared fact that was not as before, in words, and in how many runs of each arm.
type FactChange = (String, BTreeMap<u32, usize>);

/// Every check in the order of the manual, but those for which there is nothing to look at. Arms of several on which alone there
/// is no verdict get it here: those whose settings were not in force, and those that had an effect though they cannot act.
pub(crate) fn gates(
    plan: &Plan,
    trials: &[Trial],
    noise: Option<&Pilot>,
    second: Option<&Estimate>,
    changes: &[ChangePoint],
    comparisons: &mut [Comparison],
) -> Vec<Gate> {
    let judged: Vec<&Trial> = judged(trials).collect();
    let noise = noise.map(|noise| pilot(plan, noise));
    let all = if judged.is_empty() {
        vec![(Check::Pilot, noise)]
    } else {
        let (in_force, inert) = in_force(plan, &judged);
        let relevance = relevance(plan, &judged, comparisons);
        for comparison in comparisons.iter_mut().filter(|c| inert.contains(&c.arm)) {
            comparison.outcome = Outcome::NoVerdict;
        }
        vec![
            (Check::InForce, Some(in_force)),
            (Check::Environment, Some(environment(plan, &judged))),
            (Check::Relevance, relevance),
            (Check::Ceiling, ceiling(plan, &judged)),
            (Check::Pilot, noise),
            (Check::Position, second.map(|effect| position(plan, effect))),
            (Check::Stability, Some(stability(changes.first()))),
            (Check::Runs, Some(runs(plan, &judged))),
        ]
    };
    let gate = |(check, found): (Check, Option<GateFinding>)| {
        let (state, evidence) = found?;
        Some(Gate {
            check,
            state,
            evidence,
        })
    };
    all.into_iter().filter_map(gate).collect()
}

/// True if a check failed that more runs cannot pass.
pub(crate) fn hopeless(plan: &Plan, trials: &[Trial]) -> bool {
    let judged: Vec<&Trial> = judged(trials).collect();
    !judged.is_empty()
        && (in_force(plan, &judged).0.0 == Failed || environment(plan, &judged).0 == Failed)
}

fn judged(trials: &[Trial]) -> impl Iterator<Item = &Trial> {
    let kept = |t: &&Trial| matches!(t.phase, TrialPhase::Main | TrialPhase::Confirmation);
    trials.iter().filter(kept)
}

// ---- 1: in force ----

/// Also the arms on which alone there is no verdict.
fn in_force(plan: &Plan, judged: &[&Trial]) -> (GateFinding, BTreeSet<u32>) {
    let asks = |r: &&Reading| r.asked != LEFT_ALONE;
    let odd = |t: &&Trial| {
        let odd = t.readings.iter().filter(asks).find(|r| !r.in_force)?;
        Some((
            t.arm,
            format!("{} {}, asked {}", odd.setting, odd.found, odd.asked),
        ))
    };
    let broken: Vec<(u32, String)> = judged.iter().filter_map(odd).collect();
    let unchanged = unchanged(plan, judged);
    let inert = broken.iter().map(|(arm, _)| arm).chain(unchanged.keys());
    let inert: BTreeSet<u32> = inert.copied().collect();
    let arms: BTreeSet<u32> = judged.iter().map(|t| t.arm).collect();
    let asked: Vec<u32> = judged
        .iter()
        .filter(|t| t.readings.iter().any(|r| asks(&r)))
        .map(|t| t.arm)
        .collect();
    // The others of several arms can be judged without these.
    let alone = matches!(plan.design, Design::Blocks { .. })
        && !inert.contains(&0)
        && inert.len() + 1 < arms.len();
    let state = if alone { Warned } else { Failed };
    let found = if let Some((_, odd)) = broken.first() {
        let (times, of) = (broken.len(), asked.iter().filter(|arm| inert.contains(arm)));
        let of = counted(of.count(), "run");
        (
            state,
            format!("The change was not in force in {times} of {of}: {odd}."),
        )
    } else if let Some(evidence) = unchanged.into_values().next() {
        (state, evidence)
    } else if asked.is_empty() && plan.arms.iter().any(|a| !a.settings.is_empty()) {
        let evidence = "Not reported by either host: whether the settings were in force.";
        (Unknown, evidence.to_owned())
    } else {
        let all = counted(asked.len(), "run");
        (
            Passed,
            format!("What was asked was read back in all of {all}."),
        )
    };
    (found, if alone { inert } else { BTreeSet::new() })
}

/// The arms whose every reading is that of the control: they changed nothing.
fn unchanged(plan: &Plan, judged: &[&Trial]) -> BTreeMap<u32, String> {
    /// Values by setting and side.
    type Seen<'a> = BTreeMap<(&'a str, Side), BTreeSet<&'a str>>;
    let of_arm = |arm: u32| {
        let mut seen = Seen::new();
        let of_arm = judged.iter().filter(|t| t.arm == arm);
        for reading in of_arm.flat_map(|t| &t.readings) {
            let values = seen.entry((&reading.setting, reading.side)).or_default();
            values.insert(&reading.found);
        }
        seen
    };
    let control = of_arm(0);
    let nothing = |arm: u32| {
        let own = of_arm(arm);
        let mut all = own.iter();
        let same = all.all(|(key, values)| values.len() == 1 && control.get(key) == Some(values));
        // Settings of the machine that the control leaves alone are not read there.
        let reported = own.len() >= plan.arms[arm as usize].settings.len();
        let ((setting, _), values) = own.first_key_value().filter(|_| same && reported)?;
        let value = values.first()?;
        let words =
            format!("The change changed nothing: {setting} was {value} with and without it.");
        Some((arm, words))
    };
    (1..plan.arms.len() as u32).filter_map(nothing).collect()
}

// ---- 1: the hosts ----

fn environment(plan: &Plan, judged: &[&Trial]) -> GateFinding {
    let declared: Vec<&Setting> = plan.arms.iter().flat_map(|a| &a.settings).collect();
    let mut shifts: BTreeMap<(Side, &str), FactChange> = BTreeMap::new();
    let mut made: BTreeMap<u32, usize> = BTreeMap::new();
    for trial in judged {
        *made.entry(trial.arm).or_default() += 1;
        let differences = trial.witness.differences.iter();
        for d in differences.filter(|d| !declared.iter().any(|s| explains(&s.knob, &d.what))) {
            let (_, runs) = shifts.entry((d.side, &d.what)).or_insert_with(|| {
                let place = end_name(d.side, plan.direction);
                let words = format!("{} {place}: {} instead of {}", d.what, d.now, d.before);
                (words, BTreeMap::new())
            });
            *runs.entry(trial.arm).or_default() += 1;
        }
    }
    // A fact that goes with an arm is another change beside the declared one.
    let goes_with_an_arm = |(_, runs): &FactChange| {
        let share = |arm: &u32| {
            let of = |runs: &BTreeMap<u32, usize>| runs.get(arm).copied().unwrap_or(0) as f64;
            of(runs) / of(&made).max(1.0)
        };
        made.keys().any(|arm| (share(arm) - share(&0)).abs() > 0.5)
    };
    let list = |shifts: Vec<FactChange>| {
        let more = shifts.len().saturating_sub(NAMED);
        let mut named: Vec<String> = shifts.into_iter().take(NAMED).map(|(w, _)| w).collect();
        named.extend((more > 0).then(|| format!("and {more} more")));
        named.join("; ")
    };
    let (with_arm, drifting): (Vec<FactChange>, Vec<FactChange>) =
        shifts.into_values().partition(goes_with_an_arm);
    if !with_arm.is_empty() {
        let what = list(with_arm);
        (
            Failed,
            format!("The arms differed in more than the change: {what}."),
        )
    } else if !drifting.is_empty() {
        let what = list(drifting);
        (
            Warned,
            format!("A host changed meanwhile, for all arms: {what}."),
        )
    } else {
        let evidence = "The hosts were the same in every run, but for the change.";
        (Passed, evidence.to_owned())
    }
}

/// True if a fact of the fingerprint may differ because this knob was turned.
fn explains(knob: &Knob, fact: &str) -> bool {
    match knob {
        Knob::Route(_) => fact.starts_with("route."),
        // What a device can take shows in its routes and in its other offloads too.
        Knob::Device(_) => fact.starts_with("device.") || fact.starts_with("route."),
        Knob::Sysctl(key) => {
            fact.strip_prefix("sysctls.") == Some(key.name())
                || (key.name() == "net.ipv4.tcp_congestion_control"
                    && fact.starts_with("congestion."))
        }
        _ => false,
    }
}

// ---- 2: can it act? ----

fn relevance(
    plan: &Plan,
    judged: &[&Trial],
    comparisons: &mut [Comparison],
) -> Option<GateFinding> {
    let mut cannot: Vec<String> = Vec::new();
    let mut powerless: BTreeSet<u32> = BTreeSet::new();
    for (arm, own) in (0..).zip(&plan.arms).skip(1) {
        let changed = own.settings.iter();
        let changed: Vec<&Setting> = changed
            .filter(|s| !plan.arms[0].settings.contains(s))
            .collect();
        let why = |s: &&Setting| {
            let known = by_design(plan, arm, s).map(str::to_owned);
            let why = known.or_else(|| by_evidence(plan, arm, s, judged))?;
            Some(format!("{s} cannot matter here: {why}"))
        };
        let known = cannot.len();
        cannot.extend(changed.iter().filter_map(why));
        if cannot.len() > known && cannot.len() - known == changed.len() {
            powerless.insert(arm);
        }
    }
    if cannot.is_empty() {
        return None;
    }
    // What cannot act has no effect: what was measured is chance, or of something else.
    let mut state = Warned;
    let all = powerless.len() + 1 == plan.arms.len();
    for comparison in comparisons
        .iter_mut()
        .filter(|c| powerless.contains(&c.arm))
    {
        if matches!(comparison.outcome, Outcome::Faster | Outcome::Slower) {
            comparison.outcome = Outcome::NoVerdict;
            state = if all { Failed } else { state };
        }
    }
    cannot.truncate(NAMED);
    if state == Failed {
        cannot.push("What was measured is chance, or the effect of something else".to_owned());
    }
    Some((state, format!("{}.", cannot.join(". "))))
}

/// Why a setting has nothing to act on in these runs, known before the first.
fn by_design(plan: &Plan, arm: u32, setting: &Setting) -> Option<&'static str> {
    let socket = plan.spec_of(arm).socket;
    let name = setting.knob.to_string();
    let bulk = !plan.run.workload.is_answered();
    match name.trim_start_matches("sysctl:") {
        "net.ipv4.tcp_rmem" | "net.ipv4.tcp_moderate_rcvbuf" if socket.receive_buffer.is_some() => {
            Some("the runs set a receive buffer (SO_RCVBUF), which switches its autotuning off")
        }
        "net.ipv4.tcp_wmem" if socket.send_buffer.is_some() => {
            Some("the runs set a send buffer (SO_SNDBUF), which switches its autotuning off")
        }
        "net.core.rmem_max" if socket.receive_buffer.is_none() => Some(
            "it bounds buffers set by SO_RCVBUF, and the runs set none; tcp_rmem bounds the others",
        ),
        "net.core.wmem_max" if socket.send_buffer.is_none() => Some(
            "it bounds buffers set by SO_SNDBUF, and the runs set none; tcp_wmem bounds the others",
        ),
        "net.ipv4.tcp_congestion_control" if socket.congestion.is_some() => {
            Some("the runs name their own congestion control")
        }
        "nodelay" if bulk => Some("a bulk transfer always has a full segment to send"),
        _ => None,
    }
}

/// Why a setting had nothing to act on, by what the kernel saw in the runs of its arm and the control.
fn by_evidence(plan: &Plan, arm: u32, setting: &Setting, judged: &[&Trial]) -> Option<String> {
    if plan.run.workload.is_answered() {
        return None;
    }
    // None if the share of one run is unknown.
    let shares = |share: fn(&Trial) -> Option<f64>| -> Option<Vec<f64>> {
        let own = judged.iter().filter(|t| t.arm == 0 || t.arm == arm);
        own.map(|t| share(t)).collect()
    };
    let most = |share| shares(share)?.into_iter().reduce(f64::max);
    let name = setting.knob.to_string();
    let (waited_for, share): (_, fn(&Trial) -> Option<f64>) = match (
        setting.knob,
        name.trim_start_matches("sysctl:"),
    ) {
        (Knob::Socket(SocketKnob::SendBuffer), _) | (_, "net.ipv4.tcp_wmem") => {
            // The kernel counts waits for room only from a moment at which it sends (tcp_cwnd_validate, net/ipv4/tcp_output.c):
            // a writer that is woken when all that fits has left makes none.
            if most(|t| t.witness.all_sent_share)? >= SELDOM {
                return None;
            }
            ("its buffer", |t| t.witness.sndbuf_limited_share)
        }
        (Knob::Socket(SocketKnob::ReceiveBuffer), _) | (_, "net.ipv4.tcp_rmem") => {
            ("the receive window", |t| t.witness.rwnd_limited_share)
        }
        (Knob::Socket(SocketKnob::Congestion) | Knob::Route(RouteKnob::Congctl), _)
        | (_, "net.ipv4.tcp_congestion_control") => {
            let waited =
                shares(|t| Some(t.witness.rwnd_limited_share? + t.witness.sndbuf_limited_share?));
            let waited = waited.and_then(|all| all.into_iter().reduce(f64::min));
            if let Some(waited) = waited.filter(|w| *w > MOSTLY) {
                return Some(format!(
                    "with and without it the sender waited for the receive window or its buffer {} of the time, never for the congestion window",
                    percent(waited)
                ));
            }
            let busy = most(|t| t.witness.busy_share).filter(|b| *b < 0.5)?;
            return Some(format!(
                "with and without it the application had nothing to send {} of the time",
                percent(1.0 - busy)
            ));
        }
        _ => return None,
    };
    (most(share)? < HARDLY).then(|| {
        let hardly = percent(HARDLY);
        format!(
            "with and without it the sender waited for {waited_for} less than {hardly} of the time"
        )
    })
}

// ---- 3: ceiling ----

fn ceiling(plan: &Plan, judged: &[&Trial]) -> Option<GateFinding> {
    if plan.metric.is_latency() {
        return None;
    }
    // What the link can carry, and what the best half of each arm reached.
    let line = judged.iter().filter_map(|t| {
        let mss = f64::from(t.witness.mss.filter(|m| *m > 0)?);
        Some(t.witness.link_speed?.0 as f64 * mss / (mss + OVERHEAD))
    });
    let line = line.reduce(f64::max)?;
    let mut rates: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for trial in judged {
        let rate = trial.witness.steady_goodput.map(|rate| rate.0 as f64);
        rates.entry(trial.arm).or_default().extend(rate);
    }
    let medians: Option<Vec<f64>> = rates.values().map(median).collect();
    let lowest = medians?.into_iter().reduce(f64::min)?;
    let [line_rate, lowest_rate] = [line, lowest].map(|bits| BitRate(bits as u64));
    Some(if lowest >= FULL * line {
        let evidence = format!(
            "The path is full: every arm moved {lowest_rate} or more of the {line_rate} that the link can carry."
        );
        (Warned, evidence)
    } else {
        (
            Passed,
            format!("The link can carry {line_rate}; there is room."),
        )
    })
}

// ---- 4 to 6: noise, position, change ----

fn pilot(plan: &Plan, pilot: &Pilot) -> GateFinding {
    let seen = format!(
        "In the pilot {} of the control with itself differed by {}; at that noise the plan finds {} and more four times in five",
        counted(pilot.pairs as usize, "pair"),
        percent(pilot.noise),
        percent(pilot.smallest_share)
    );
    if pilot.smallest_share <= plan.margin {
        return (Passed, format!("{seen}."));
    }
    let margin = percent(plan.margin);
    (
        Warned,
        format!("{seen}, and the margin is {margin}: longer runs or more pairs find less."),
    )
}

fn position(plan: &Plan, effect: &Estimate) -> GateFinding {
    let (low, high) = (effect.low_share, effect.high_share);
    let range = [low, high].map(signed_percent).join(" to ");
    if low <= 0.0 && high >= 0.0 {
        let seen = "No shift between the first and the second run of a pair is seen";
        return (Passed, format!("{seen} (95 % CI {range})."));
    }
    let evidence = format!(
        "The second run of a pair was {} than the first by {} (95 % CI {range}): a gap longer than {} lets the path recover (burst credit of a shaper does this).",
        slower_or_faster(effect.effect_share),
        percent(effect.effect_share.abs()),
        plan.gap
    );
    (Warned, evidence)
}

fn stability(change: Option<&ChangePoint>) -> GateFinding {
    let Some(change) = change else {
        return (
            Passed,
            "No change of level of the path itself is seen.".to_owned(),
        );
    };
    let evidence = format!(
        "The path itself changed: from run {} on all arms were {} {} than before.",
        change.trial,
        percent(change.shift_share.abs()),
        slower_or_faster(change.shift_share)
    );
    (Warned, evidence)
}

fn slower_or_faster(share: f64) -> &'static str {
    if share < 0.0 { "slower" } else { "faster" }
}

// ---- the runs ----

fn runs(plan: &Plan, judged: &[&Trial]) -> GateFinding {
    let all = counted(judged.len(), "run");
    let failed: Vec<&&Trial> = judged.iter().filter(|t| t.value.is_none()).collect();
    let why = failed.first().and_then(|t| t.failed.as_deref());
    let why = why.unwrap_or_default().trim_end_matches('.');
    if failed.len() == judged.len() {
        return (Failed, format!("Every run failed. The first: {why}."));
    }
    if plan.metric == Metric::LatencyP99 {
        let whole = judged.iter().filter(|t| t.value.is_some());
        let requests = whole.filter_map(|t| t.witness.requests);
        let few: Vec<u64> = requests.filter(|n| *n < P99_REQUESTS).collect();
        if let Some(least) = few.iter().min() {
            let evidence = format!(
                "{} of {all} answered fewer than {P99_REQUESTS} requests (the fewest {least}), too few for a 99th percentile.",
                few.len()
            );
            return (Failed, evidence);
        }
    }
    match failed.len() {
        0 => (Passed, format!("None of {all} failed.")),
        n => (
            Warned,
            format!("{n} of {all} failed and count as slow ones. The first: {why}."),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask, many_arms, noisy, plan, play, settings};
    use crate::{PlanOptions, judge};
    use model::{Difference, Experiment, Outcome, Reading, Verdict};

    fn reading(found: &str, asked: &str, in_force: bool) -> Reading {
        Reading {
            setting: "SO_SNDBUF".to_owned(),
            side: Side::Local,
            asked: asked.to_owned(),
            found: found.to_owned(),
            in_force,
        }
    }

    /// An experiment in which nothing differs, its trials changed by `change`.
    fn with(ask: PlanOptions, change: impl Fn(&mut Trial)) -> Verdict {
        let mut experiment: Experiment = play(plan(ask), noisy(3, 1.0, 0.01));
        experiment.trials.iter_mut().for_each(change);
        judge(&experiment)
    }

    fn of(verdict: &Verdict, check: Check) -> (GateState, &str) {
        let gate = verdict.gates.iter().find(|g| g.check == check);
        gate.map_or((GateState::Unknown, ""), |g| (g.state, g.evidence.as_str()))
    }

    fn fixed() -> PlanOptions {
        PlanOptions {
            pairs: Some(vec![20]),
            ..ask()
        }
    }

    #[test]
    fn a_change_that_was_not_in_force_has_no_verdict() {
        let verdict = with(fixed(), |t| {
            if t.arm == 1 {
                let odd = t.block < 9;
                let found = if odd { "65 KiB" } else { "8192 KiB" };
                t.readings = vec![reading(found, "8192 KiB", !odd)];
            }
        });
        assert_eq!(verdict.outcome, Outcome::NoVerdict);
        let says = "The change was not in force in 9 of 20 runs: SO_SNDBUF 65 KiB, asked 8192 KiB.";
        assert_eq!(of(&verdict, Check::InForce), (GateState::Failed, says));

        let verdict = with(fixed(), |t| {
            let asked = if t.arm == 1 { "65 KiB" } else { LEFT_ALONE };
            t.readings = vec![reading("65 KiB", asked, true)];
        });
        assert_eq!(verdict.outcome, Outcome::NoVerdict);
        let says = "The change changed nothing: SO_SNDBUF was 65 KiB with and without it.";
        assert_eq!(of(&verdict, Check::InForce).1, says);

        let verdict = with(fixed(), |_| {});
        assert_eq!(of(&verdict, Check::InForce).0, GateState::Unknown);
    }

    #[test]
    fn of_several_arms_only_the_inert_one_has_no_verdict() {
        let three = PlanOptions {
            pairs: Some(vec![12]),
            ..many_arms(3)
        };
        let verdict = with(three, |t| {
            if t.arm > 0 {
                t.readings = vec![reading("1 KiB", "2 KiB", t.arm != 2)];
            }
        });
        let outcomes: Vec<Outcome> = verdict.comparisons.iter().map(|c| c.outcome).collect();
        use Outcome::{NoDifference, NoVerdict};
        assert_eq!(outcomes, [NoDifference, NoVerdict, NoDifference]);
        assert_eq!(verdict.outcome, NoDifference);
        assert_eq!(of(&verdict, Check::InForce).0, GateState::Warned);
    }

    #[test]
    fn another_change_beside_the_declared_one_forbids_a_verdict() {
        let differs = |what: &'static str, when: fn(&Trial) -> bool| {
            let buffers = settings(&["sysctl:net.ipv4.tcp_rmem=4096 65536 16777216"]);
            let ask = PlanOptions {
                changes: buffers,
                ..fixed()
            };
            with(ask, |t| {
                if when(t) {
                    t.witness.differences = vec![Difference {
                        side: Side::Remote,
                        what: what.to_owned(),
                        before: "1500".to_owned(),
                        now: "9000".to_owned(),
                    }];
                }
            })
        };
        let treated = |t: &Trial| t.arm == 1;
        let verdict = differs("device.mtu", treated);
        assert_eq!(verdict.outcome, Outcome::NoVerdict);
        let says = "The arms differed in more than the change: device.mtu at the remote host, the receiver: 9000 instead of 1500.";
        assert_eq!(of(&verdict, Check::Environment), (GateState::Failed, says));
        let declared = differs("sysctls.net.ipv4.tcp_rmem", treated);
        assert_eq!(of(&declared, Check::Environment).0, GateState::Passed);
        let drift = differs("device.mtu", |t| t.number > 30);
        assert_eq!(of(&drift, Check::Environment).0, GateState::Warned);
        assert_ne!(drift.outcome, Outcome::NoVerdict);
    }

    #[test]
    fn what_cannot_act_is_neither_faster_nor_slower() {
        let verdict = |ask: PlanOptions, factor: f64| {
            let arm = |t: &mut Trial| {
                if t.arm == 1 {
                    t.value = t.value.map(|v| v * factor);
                }
            };
            with(ask, arm)
        };
        let nodelay = || PlanOptions {
            changes: settings(&["nodelay=on"]),
            ..fixed()
        };
        let none = verdict(nodelay(), 1.0);
        assert_eq!(none.outcome, Outcome::NoDifference);
        assert_eq!(of(&none, Check::Relevance).0, GateState::Warned);
        for factor in [0.7, 1.4] {
            let chance = verdict(nodelay(), factor);
            assert_eq!(chance.outcome, Outcome::NoVerdict);
            assert_eq!(chance.comparisons[0].outcome, Outcome::NoVerdict);
            let (state, says) = of(&chance, Check::Relevance);
            assert_eq!(state, GateState::Failed);
            assert!(
                says.ends_with(
                    "to send. What was measured is chance, or the effect of something else."
                ),
                "{says}"
            );
            // A change of two settings, of which one acts.
            let both = PlanOptions {
                changes: settings(&["nodelay=on", "congestion=bbr"]),
                ..fixed()
            };
            assert_ne!(verdict(both, factor).outcome, Outcome::NoVerdict);
        }
        // Of several arms the others are judged.
        let arms = PlanOptions {
            arms: vec!["a=nodelay=on".to_owned(), "b=congestion=bbr".to_owned()],
            pairs: Some(vec![20]),
            ..many_arms(0)
        };
        let several = verdict(arms, 1.4);
        let outcomes: Vec<Outcome> = several.comparisons.iter().map(|c| c.outcome).collect();
        assert_eq!(outcomes, [Outcome::NoVerdict, Outcome::NoDifference]);
        assert_eq!(several.outcome, Outcome::NoDifference);
    }

    #[test]
    fn what_cannot_act_is_named() {
        let verdict = |base: &[&str], change: &str, witness: fn(&mut Trial)| {
            let mut run = plan(ask()).run;
            model::apply_to_spec(&settings(base), &mut run.socket);
            let ask = PlanOptions {
                changes: settings(&[change]),
                run: Some(run),
                ..ask()
            };
            let verdict = with(ask, witness);
            let (state, says) = of(&verdict, Check::Relevance);
            (state == GateState::Warned).then(|| says.to_owned())
        };
        let nothing = |_: &mut Trial| {};
        let rmem = "sysctl:net.ipv4.tcp_rmem=4096 65536 16777216";
        let says = verdict(&["sockbuf=8M"], rmem, nothing).unwrap();
        assert!(says.contains("cannot matter here: the runs set a receive buffer (SO_RCVBUF), which switches its autotuning off"), "{says}");
        assert_eq!(verdict(&[], rmem, nothing), None);
        let says = verdict(&[], rmem, |t| t.witness.rwnd_limited_share = Some(0.001)).unwrap();
        assert!(
            says.contains("waited for the receive window less than 1.0 % of the time"),
            "{says}"
        );
        assert_eq!(
            verdict(&[], rmem, |t| t.witness.rwnd_limited_share = Some(0.2)),
            None
        );
        let says = verdict(&[], "congestion=bbr", |t| {
            t.witness.rwnd_limited_share = Some(0.98);
            t.witness.sndbuf_limited_share = Some(0.0);
        });
        assert!(
            says.unwrap()
                .contains("98 % of the time, never for the congestion window")
        );

        // Each rule that needs no run: where it holds, and where the runs differ.
        let sysctl = |name: &str| format!("sysctl:net.{name}");
        let buffers: &[&str] = &["sockbuf=8M"];
        let own: &[&str] = &["congestion=cubic"];
        for (name, value, base, says) in [
            (
                "ipv4.tcp_rmem",
                "4096 65536 16777216",
                buffers,
                "set a receive buffer",
            ),
            (
                "ipv4.tcp_moderate_rcvbuf",
                "0",
                buffers,
                "set a receive buffer",
            ),
            (
                "ipv4.tcp_wmem",
                "4096 65536 16777216",
                buffers,
                "set a send buffer",
            ),
            (
                "ipv4.tcp_congestion_control",
                "bbr",
                own,
                "their own congestion control",
            ),
        ] {
            let change = format!("{}={value}", sysctl(name));
            let found = verdict(base, &change, nothing).unwrap();
            assert!(found.contains(says), "{found}");
            assert_eq!(verdict(&[], &change, nothing), None, "{change}");
        }
        for (name, says) in [
            ("core.rmem_max", "SO_RCVBUF"),
            ("core.wmem_max", "SO_SNDBUF"),
        ] {
            let change = format!("{}=8388608", sysctl(name));
            let found = verdict(&[], &change, nothing).unwrap();
            assert!(found.contains(says), "{found}");
            assert_eq!(verdict(buffers, &change, nothing), None, "{change}");
        }

        // Each rule of the runs: at its bound and one beyond. A run without the figure knows nothing.
        let window: fn(&mut Trial) = |t| t.witness.rwnd_limited_share = Some(0.01);
        let no_window: fn(&mut Trial) = |t| t.witness.rwnd_limited_share = Some(0.009);
        fn unsent(t: &mut Trial, all_sent: f64) {
            t.witness.sndbuf_limited_share = Some(0.009);
            t.witness.all_sent_share = Some(all_sent);
        }
        let buffer: fn(&mut Trial) = |t| {
            unsent(t, 0.0);
            t.witness.sndbuf_limited_share = Some(0.01);
        };
        let no_buffer: fn(&mut Trial) = |t| unsent(t, 0.049);
        let all_sent: fn(&mut Trial) = |t| unsent(t, 0.05);
        fn waits(t: &mut Trial, share: f64) {
            t.witness.rwnd_limited_share = Some(0.5);
            t.witness.sndbuf_limited_share = Some(share);
        }
        let mostly: fn(&mut Trial) = |t| waits(t, 0.45);
        let always: fn(&mut Trial) = |t| waits(t, 0.46);
        let busy: fn(&mut Trial) = |t| t.witness.busy_share = Some(0.5);
        let idle: fn(&mut Trial) = |t| t.witness.busy_share = Some(0.49);
        for (change, acts, cannot, says) in [
            (
                "rcvbuf=8M",
                window,
                no_window,
                "for the receive window less than 1.0 %",
            ),
            (
                "sndbuf=8M",
                buffer,
                no_buffer,
                "for its buffer less than 1.0 %",
            ),
            (
                "sndbuf=9M",
                all_sent,
                no_buffer,
                "for its buffer less than 1.0 %",
            ),
            (
                "sysctl:net.ipv4.tcp_wmem=4096 65536 16777216",
                buffer,
                no_buffer,
                "for its buffer less",
            ),
            (
                "congestion=bbr",
                mostly,
                always,
                "its buffer 96 % of the time",
            ),
            (
                "route.congctl=bbr",
                mostly,
                always,
                "its buffer 96 % of the time",
            ),
            (
                "sysctl:net.ipv4.tcp_congestion_control=bbr",
                busy,
                idle,
                "nothing to send 51 % of the time",
            ),
            (
                "congestion=bbr",
                busy,
                idle,
                "nothing to send 51 % of the time",
            ),
        ] {
            assert_eq!(verdict(&[], change, acts), None, "{change}");
            let found = verdict(&[], change, cannot).unwrap();
            assert!(found.contains(says), "{found}");
        }
        let one_waits = |t: &mut Trial| waits(t, if t.number == 20 { 0.1 } else { 0.46 });
        assert_eq!(verdict(&[], "congestion=bbr", one_waits), None);
        let one_unknown = |t: &mut Trial| t.witness.busy_share = (t.number != 20).then_some(0.1);
        assert_eq!(verdict(&[], "congestion=bbr", one_unknown), None);
    }

    #[test]
    fn an_arm_that_only_leaves_out_can_act() {
        let ask = PlanOptions {
            against: settings(&["congestion=bbr", "mss=1400"]),
            arms: vec![
                "less=congestion=bbr".to_owned(),
                "b=congestion=bbr,mss=1400,nodelay=on".to_owned(),
            ],
            changes: Vec::new(),
            ..fixed()
        };
        let verdict = with(ask, |t| {
            if t.arm > 0 {
                t.value = t.value.map(|v| v * 1.4);
            }
        });
        let outcomes: Vec<Outcome> = verdict.comparisons.iter().map(|c| c.outcome).collect();
        assert_eq!(outcomes, [Outcome::Faster, Outcome::NoVerdict]);
    }

    #[test]
    fn facts_go_with_an_arm_above_half_of_its_runs_and_three_are_named() {
        let shift = |runs: u32, facts: usize| {
            let verdict = with(fixed(), |t| {
                if t.arm == 1 && t.block < runs {
                    let fact = |n| Difference {
                        side: Side::Local,
                        what: format!("fact{n}"),
                        before: "1".to_owned(),
                        now: "2".to_owned(),
                    };
                    t.witness.differences = (0..facts).map(fact).collect();
                }
            });
            let (state, says) = of(&verdict, Check::Environment);
            (state, says.to_owned())
        };
        assert_eq!(shift(10, 1).0, GateState::Warned);
        assert_eq!(shift(11, 1).0, GateState::Failed);
        let named = |facts| shift(20, facts).1;
        assert!(
            named(3).contains("fact2") && !named(3).contains("more:") && !named(3).contains("and "),
            "{}",
            named(3)
        );
        assert!(
            !named(4).contains("fact3") && named(4).ends_with("; and 1 more."),
            "{}",
            named(4)
        );
    }

    #[test]
    fn bounds_of_noise_and_position() {
        let plan = plan(ask());
        let noise = |smallest_share| {
            pilot(
                &plan,
                &Pilot {
                    pairs: 6,
                    noise: 0.01,
                    smallest_share,
                },
            )
            .0
        };
        assert_eq!([noise(0.05), noise(0.0501)], [Passed, Warned]);
        let shift = |low_share, high_share| {
            let effect = Estimate {
                effect_share: 0.5 * (low_share + high_share),
                low_share,
                high_share,
                level: 0.95,
            };
            position(&plan, &effect).0
        };
        assert_eq!([shift(0.0, 0.1), shift(-0.1, 0.0)], [Passed, Passed]);
        assert_eq!([shift(0.001, 0.1), shift(-0.1, -0.001)], [Warned, Warned]);
    }

    #[test]
    fn a_99th_percentile_needs_1000_requests_of_every_whole_run() {
        let at = |requests: u64| {
            let mut run = plan(ask()).run;
            run.workload = model::Workload::Request(model::Request {
                request_size: model::Bytes(128),
                reply_size: model::Bytes(8192),
                pace_per_s: None,
                reconnect: false,
                wait: model::WaitMode::Hybrid,
            });
            let ask = PlanOptions {
                metric: Metric::LatencyP99,
                run: Some(run),
                ..fixed()
            };
            let verdict = with(ask, |t| {
                t.witness.requests = Some(if t.block == 3 { requests } else { 5000 });
                // What failed had no time for requests.
                if t.block == 4 && t.arm == 0 {
                    (t.value, t.witness.requests) = (None, Some(1));
                }
            });
            let (state, says) = of(&verdict, Check::Runs);
            (state, says.to_owned())
        };
        assert_eq!(at(1000).0, GateState::Warned);
        assert!(
            at(1000).1.starts_with("1 of 40 runs failed"),
            "{}",
            at(1000).1
        );
        let (state, says) = at(999);
        assert_eq!(state, GateState::Failed);
        assert!(
            says.starts_with("2 of 40 runs answered fewer than 1000 requests (the fewest 999)"),
            "{says}"
        );
    }

    #[test]
    fn a_full_path_is_said() {
        let at = |rate: u64| {
            let verdict = with(ask(), |t| {
                t.witness.steady_goodput = Some(BitRate(rate));
                t.witness.link_speed = Some(BitRate(1_000_000_000));
                t.witness.mss = Some(1448);
            });
            let (state, says) = of(&verdict, Check::Ceiling);
            (state, says.to_owned())
        };
        let (state, says) = at(941_000_000);
        assert_eq!(state, GateState::Warned);
        assert_eq!(
            says,
            "The path is full: every arm moved 941 Mbit/s or more of the 941 Mbit/s that the link can carry."
        );
        // 99 % of 1 Gbit/s less headers: 932,067,620.3 bit/s.
        assert_eq!(at(932_067_621).0, GateState::Warned);
        assert_eq!(at(932_067_620).0, GateState::Passed);
    }

    #[test]
    fn position_noise_and_change_are_reported() {
        let mut experiment = play(plan(fixed()), noisy(3, 1.0, 0.005));
        for trial in &mut experiment.trials {
            // A shaper with burst credit: the second of a pair gets less. The path loses a third.
            let second = if trial.position == 1 { 0.9 } else { 1.0 };
            let later = if trial.number > 33 { 0.67 } else { 1.0 };
            trial.value = trial.value.map(|v| v * second * later);
        }
        let verdict = judge(&experiment);
        let (state, says) = of(&verdict, Check::Position);
        assert_eq!(state, GateState::Warned);
        assert!(
            says.contains("slower than the first by 9.9 %")
                && says.contains("a gap longer than 3.00 s"),
            "{says}"
        );
        let (state, says) = of(&verdict, Check::Stability);
        assert_eq!(state, GateState::Warned);
        assert!(
            says.starts_with("The path itself changed: from run 3"),
            "{says}"
        );
        // What warns forbids no verdict.
        assert_ne!(verdict.outcome, Outcome::NoVerdict);
    }

    #[test]
    fn runs_without_a_value_have_no_verdict() {
        let verdict = judge(&play(plan(ask()), |_| None));
        assert_eq!(verdict.outcome, Outcome::NoVerdict);
        assert!(
            of(&verdict, Check::Runs)
                .1
                .starts_with("Every run failed. The first: the connection was reset.")
        );
    }

    #[test]
    fn a_knob_explains_the_facts_that_it_sets() {
        let of = |setting: &str, fact: &str| {
            let setting: model::Setting = setting.parse().unwrap();
            explains(&setting.knob, fact)
        };
        assert!(of("route.initcwnd=9", "route.initcwnd") && !of("route.initcwnd=9", "device.mtu"));
        let device = ["device.tso", "route.mtu", "congestion.default"];
        assert_eq!(
            device.map(|fact| of("device.tso=off", fact)),
            [true, true, false]
        );
        let cubic = "sysctl:net.ipv4.tcp_congestion_control=cubic";
        let facts = [
            "sysctls.net.ipv4.tcp_congestion_control",
            "sysctls.net.ipv4.tcp_sack",
            "congestion.default",
            "route.mtu",
        ];
        assert_eq!(
            facts.map(|fact| of(cubic, fact)),
            [true, false, true, false]
        );
        let sack = "sysctl:net.ipv4.tcp_sack=0";
        assert_eq!(
            facts.map(|fact| of(sack, fact)),
            [false, true, false, false]
        );
        assert!(
            !of("congestion=bbr", "congestion.default"),
            "of a socket alone"
        );
    }

    #[test]
    fn more_runs_do_not_help_where_the_change_is_not_in_force() {
        let mut experiment: Experiment = play(plan(fixed()), noisy(3, 1.0, 0.01));
        let of = |experiment: &Experiment| hopeless(&experiment.plan, &experiment.trials);
        assert!(!of(&experiment));
        for trial in experiment.trials.iter_mut().filter(|t| t.arm == 1) {
            trial.readings = vec![reading("65 KiB", "8192 KiB", false)];
        }
        assert!(of(&experiment));
        experiment.trials.clear();
        assert!(!of(&experiment), "nothing was run yet");
    }
}
