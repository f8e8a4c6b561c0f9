//! Runs of linerate or iperf3 by arm, which nobody planned as one experiment.

use super::table::unit_of;
use super::{Error, PublishedEntry, compare, doubt, nothing};
use model::{About, Bytes, Direction, Ended, LegSummary, Published, Run, summarise};
use std::collections::{BTreeMap, BTreeSet};

/// An arm and its runs.
#[derive(Clone, Debug)]
pub struct RunsOfArm {
    /// Its name.
    pub name: String,
    /// Its runs, in any order.
    pub runs: Vec<Run>,
}

/// A run with its arm and the leg that is compared.
struct ComparedRun<'a> {
    arm: usize,
    run: &'a Run,
    leg: LegSummary,
    is_complete: bool,
}

/// Judges runs that were not planned as one experiment; the first arm is the baseline. Compared is the
/// steady goodput, or the median latency where all runs measured requests; of runs in both directions,
/// those legs that went in this `direction`.
///
/// # Errors
/// If there are not two arms, a run stands in two of them, or one measured nothing that compares.
pub fn of_runs(
    name: &str,
    arms: &[RunsOfArm],
    direction: Direction,
    margin: f64,
) -> Result<Published, Error> {
    if arms.is_empty() {
        return nothing("it has no arm");
    }
    distinct(arms)?;
    let mut runs: Vec<(usize, &Run)> = arms
        .iter()
        .enumerate()
        .flat_map(|(arm, of)| of.runs.iter().map(move |run| (arm, run)))
        .collect();
    runs.sort_by_key(|(_, run)| run.started);
    let legs = runs.iter().flat_map(|(_, run)| &run.legs);
    let directions: BTreeSet<Direction> = legs.map(|leg| leg.direction).collect();
    let direction = match Vec::from_iter(directions)[..] {
        [only] => only,
        _ => direction,
    };
    let compared = |&(arm, run)| compared(arm, run, direction);
    let all: Vec<ComparedRun<'_>> = runs.iter().map(compared).collect::<Result<_, _>>()?;
    let latency = all.iter().all(|one| one.leg.requests.is_some());
    let unit = unit_of(if latency { "_us" } else { "mbit_s" });
    let names: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
    let mut found = compare(&names, &entries(&all, latency), unit, margin)?;
    for one in &mut found.comparisons {
        one.of = direction.to_string();
    }
    for arm in arms {
        for words in not_in_force(arm, direction) {
            found.withdraw(|one| one.control == arm.name || one.arm == arm.name);
            found.doubts.push(doubt(About::NotInForce, words));
        }
    }
    let spec = |run: &Run| (run.spec.workload.clone(), run.spec.streams, run.spec.limit);
    if all.iter().any(|one| spec(one.run) != spec(all[0].run)) {
        found.doubts.push(doubt(
            About::Confounded,
            "The runs differ in workload, number of streams or length as well: a difference between the arms need not be due to the setting.",
        ));
    }
    if all.iter().any(|one| one.run.host != all[0].run.host) {
        let words = "The runs are not all to the same host.";
        found.doubts.push(doubt(About::Confounded, words));
    }
    Ok(found.published(name, margin))
}

/// No run stands in two places.
fn distinct(arms: &[RunsOfArm]) -> Result<(), Error> {
    let mut seen = BTreeMap::new();
    for arm in arms {
        for run in &arm.runs {
            if let Some(other) = seen.insert(run.id.as_str(), arm.name.as_str()) {
                return nothing(format!(
                    "the run {} is given twice ({other}, {})",
                    run.id, arm.name
                ));
            }
        }
    }
    Ok(())
}

fn compared(arm: usize, run: &Run, direction: Direction) -> Result<ComparedRun<'_>, Error> {
    if run.ended == Ended::Interrupted {
        return nothing(format!("the run {} was interrupted; make it again", run.id));
    }
    let leg = summarise(run)
        .legs
        .into_iter()
        .find(|leg| leg.direction == direction);
    match leg {
        Some(leg) => Ok(ComparedRun {
            arm,
            run,
            is_complete: run.ended == Ended::Complete && leg.ended == Ended::Complete,
            leg,
        }),
        None => nothing(format!("the run {} measured nothing {direction}", run.id)),
    }
}

/// The values, in Mbit/s or microseconds. A run that broke off is kept, and is never better than the
/// worst that did not.
fn entries<'a>(all: &[ComparedRun<'_>], latency: bool) -> Vec<PublishedEntry<'a>> {
    let value = |one: &ComparedRun<'_>| match one.leg.requests {
        Some(requests) if latency => requests.p50.0 as f64 / 1e3,
        _ => {
            let steady = one.leg.steady_goodput.filter(|_| one.is_complete);
            steady.unwrap_or(one.leg.goodput).0 as f64 / 1e6
        }
    };
    let worse = if latency { f64::max } else { f64::min };
    let complete = all.iter().filter(|one| one.is_complete);
    let worst = complete.map(value).reduce(worse);
    let entry = |one: &ComparedRun<'_>| PublishedEntry {
        arm: one.arm,
        block: None,
        value: match worst.filter(|_| !one.is_complete) {
            Some(worst) => worse(value(one), worst),
            None => value(one),
        },
    };
    all.iter().map(entry).collect()
}

/// What the live sockets of an arm's runs had in place of what was asked.
fn not_in_force(arm: &RunsOfArm, direction: Direction) -> Vec<String> {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    // What an end did not report is 0 or empty. Not every system doubles a buffer: less than asked is certain.
    let less = |what: &str, asked: Option<Bytes>, found: Bytes| {
        let asked = asked.filter(|asked| found > Bytes(0) && found < *asked)?;
        Some(format!("a {what} buffer of {found}, asked {asked}"))
    };
    for run in &arm.runs {
        let asked = &run.spec.socket;
        let Some(leg) = run.legs.iter().find(|leg| leg.direction == direction) else {
            continue;
        };
        let mut differs = BTreeSet::new();
        for socket in &leg.sender().sockets {
            let has = &socket.congestion;
            let wanted = asked.congestion.as_ref();
            let wanted = wanted.filter(|c| !has.is_empty() && *c != has);
            differs.extend(wanted.map(|c| format!("congestion control {has}, asked {c}")));
            differs.extend(less("send", asked.send_buffer, socket.send_buffer));
        }
        for socket in &leg.receiver().sockets {
            differs.extend(less("receive", asked.receive_buffer, socket.receive_buffer));
        }
        for what in differs {
            *found.entry(what).or_default() += 1;
        }
    }
    let of = arm.runs.len();
    let sentence = |(what, runs)| {
        format!(
            "'{}': the change was not in force in {runs} of {of} runs: {what}.",
            arm.name
        )
    };
    found.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{EndRecord, Leg, Nanos, Outcome};

    /// A run of ten seconds at so many Mbit/s.
    fn run(number: u64, mbit: u64) -> Run {
        let end = EndRecord {
            bytes: Bytes(mbit * 1_250_000),
            duration: Nanos::from_secs(10),
            ..EndRecord::default()
        };
        Run {
            id: format!("{number:08x}"),
            started: Nanos::from_secs(1_000 + 20 * number),
            host: "db1".to_owned(),
            legs: vec![Leg {
                direction: Direction::Up,
                started: Nanos(0),
                local: end.clone(),
                remote: end,
                ended: Ended::Complete,
            }],
            ended: Ended::Complete,
            ..Run::default()
        }
    }

    /// Five runs each, in turns, the second arm 30 % faster.
    fn arms() -> Vec<RunsOfArm> {
        let noise = [0, 3, 1, 4, 2];
        let of = |name: &str, offset: u64, mbit: u64| RunsOfArm {
            name: name.to_owned(),
            runs: (0..5)
                .map(|n| run(2 * n + offset, mbit + noise[n as usize]))
                .collect(),
        };
        vec![of("cubic", 0, 100), of("bbr", 1, 130)]
    }

    fn judged(arms: &[RunsOfArm]) -> Published {
        of_runs("cubic, bbr", arms, Direction::Up, 0.05).unwrap()
    }

    #[test]
    fn runs_that_nobody_planned() {
        let found = judged(&arms());
        let one = &found.comparisons[0];
        assert_eq!(
            (one.outcome, one.runs, one.unit.as_str()),
            (Outcome::Faster, [5, 5], "Mbit/s")
        );
        assert!((one.control_value - 102.0).abs() < 1e-9, "{one:?}");
        let estimate = one.estimate.unwrap();
        assert!(
            estimate.low_share > 0.2 && estimate.high_share < 0.4,
            "{estimate:?}"
        );
        assert!(
            found
                .doubts
                .iter()
                .any(|d| d.about == About::Order && d.words.contains("not drawn at random"))
        );
    }

    #[test]
    fn a_run_that_broke_off_is_kept_as_the_worst() {
        let mut arms = arms();
        // Fast until it broke.
        arms[1].runs[0] = run(1, 500);
        arms[1].runs[0].ended = Ended::Failed {
            why: "reset".to_owned(),
        };
        let found = judged(&arms);
        assert_eq!(found.comparisons[0].runs, [5, 5]);
        assert_eq!(found.comparisons[0].outcome, Outcome::NotEnoughData);
    }

    #[test]
    fn a_setting_that_was_not_in_force_is_not_judged() {
        let mut arms = arms();
        for run in &mut arms[1].runs {
            run.spec.socket.congestion = Some("bbr".to_owned());
            run.legs[0].local.sockets = vec![model::SocketOptions {
                mss: 1448,
                congestion: "cubic".to_owned(),
                ..model::SocketOptions::new(
                    0,
                    ([127, 0, 0, 1], 1).into(),
                    ([127, 0, 0, 1], 2).into(),
                )
            }];
        }
        let found = judged(&arms);
        assert_eq!(found.outcome(), Outcome::NoVerdict);
        assert_eq!(
            found.doubts[0].words,
            "'bbr': the change was not in force in 5 of 5 runs: congestion control cubic, asked bbr."
        );
    }

    #[test]
    fn a_buffer_that_is_known_to_be_smaller_than_asked_was_not_in_force() {
        let words = |found: u64| {
            let mut arms = arms();
            for run in &mut arms[1].runs {
                run.spec.socket.receive_buffer = Some(Bytes(1000));
                let ends = (([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into());
                run.legs[0].remote.sockets = vec![model::SocketOptions {
                    receive_buffer: Bytes(found),
                    ..model::SocketOptions::new(0, ends.0, ends.1)
                }];
            }
            not_in_force(&arms[1], Direction::Up)
        };
        assert!(words(999)[0].contains("in 5 of 5 runs"), "{:?}", words(999));
        // Doubled, as asked, and not reported.
        assert_eq!([words(2000), words(1000), words(0)], [[""; 0]; 3]);
    }

    #[test]
    fn what_cannot_be_compared() {
        let refused = |arms: &[RunsOfArm]| {
            of_runs("", arms, Direction::Up, 0.05)
                .unwrap_err()
                .to_string()
        };
        let mut same = arms();
        same[1].runs[0] = same[0].runs[0].clone();
        assert!(refused(&same).contains("is given twice (cubic, bbr)"));
        assert!(refused(&arms()[..1]).contains("two arms are needed"));
        let mut both = arms();
        both[0].runs[0].legs[0].direction = Direction::Down;
        assert!(refused(&both).contains("the run 00000000 measured nothing up"));
        let mut broken = arms();
        broken[0].runs[0].ended = Ended::Interrupted;
        assert!(refused(&broken).contains("was interrupted"));
        assert!(refused(&[]).contains("no arm"));
    }
}
