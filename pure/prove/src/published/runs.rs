//! Runs of two arms or more, as rows of a table or as linerate's and iperf3's own records.

use super::table::Table;
use super::units::{Unit, trap, unit_of};
use super::{Error, Found, and, doubt, percent};
use crate::stats::change::change_point;
use crate::stats::decision::{Decision, decide};
use crate::stats::spread::median;
use crate::stats::{ALPHA, Estimate, rank_sum, signed_rank};
use model::{
    About, Bytes, Direction, Doubt, Ended, Outcome, Published, PublishedComparison, Run,
    Statistics, summarise,
};
use std::collections::{BTreeMap, BTreeSet};

/// Values of one arm that are taken at most: more are no runs.
const MOST: usize = 1_000;
/// From so many values on it can be seen whether neighbours resemble each other.
const FEWEST_FOR_SECONDS: usize = 20;

/// An arm and what its runs gave, in the order of the table or of time.
pub(super) struct Values {
    pub name: String,
    pub values: Vec<f64>,
}

impl Values {
    pub fn statistics(&self) -> Statistics {
        let values = &self.values;
        let average = values.iter().sum::<f64>() / values.len() as f64;
        let average = average.is_finite().then_some(average);
        // One value has no median of its own, and nothing between which it lies.
        let several = |of: Option<f64>| of.filter(|_| values.len() > 1);
        Statistics {
            of: String::new(),
            arm: self.name.clone(),
            average,
            median: several(median(values)),
            min: several(values.iter().copied().reduce(f64::min)),
            max: several(values.iter().copied().reduce(f64::max)),
        }
    }
}

/// An arm and its runs.
#[derive(Clone, Debug)]
pub struct RunsOfArm {
    /// Its name.
    pub name: String,
    /// Its runs, in any order.
    pub runs: Vec<Run>,
}

/// One value and where it stands.
struct Entry {
    arm: usize,
    block: Option<String>,
    value: f64,
}

pub(super) fn of_table(table: &Table, margin: f64) -> Result<Found, Error> {
    let column = table.starting("value").unwrap_or("value");
    let mut names: Vec<String> = Vec::new();
    let mut entries = Vec::new();
    for row in table.rows() {
        let name = table.text(row, "arm");
        let arm = names
            .iter()
            .position(|known| known == name)
            .unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            });
        entries.push(Entry {
            arm,
            block: table
                .has("block")
                .then(|| table.text(row, "block").to_owned()),
            value: table.amount(row, column)?.value,
        });
    }
    compare_entries(names, &entries, unit_of(column), margin)
}

/// Says what can be said of runs that were not planned as one experiment; the first arm is the
/// control. Judged is the goodput behind the ramp, or the median latency where all runs measured
/// requests; of runs that went both ways, those legs that went in this `direction`.
///
/// # Errors
/// If there are not two arms, a run stands in two of them, or one measured nothing that compares.
pub fn of_runs(
    name: &str,
    arms: &[RunsOfArm],
    direction: Direction,
    margin: f64,
) -> Result<Published, Error> {
    let nothing = |words: String| Err(Error::NothingToCompare(words));
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
    let mut all: Vec<(usize, &Run)> = arms
        .iter()
        .enumerate()
        .flat_map(|(arm, of)| of.runs.iter().map(move |run| (arm, run)))
        .collect();
    all.sort_by_key(|(_, run)| run.started);
    let ways: BTreeSet<Direction> = all
        .iter()
        .flat_map(|(_, run)| run.legs.iter().map(|leg| leg.direction))
        .collect();
    let direction = match Vec::from_iter(ways)[..] {
        [only] => only,
        _ => direction,
    };
    let summaries: Vec<_> = all.iter().map(|(_, run)| summarise(run)).collect();
    let requests = summaries
        .iter()
        .all(|s| s.legs.iter().any(|leg| leg.requests.is_some()));
    let unit = if requests {
        unit_of("value_us")
    } else {
        unit_of("value_mbits_per_s")
    };
    // What each run gave, and whether it ran to its end.
    let mut values = Vec::new();
    for ((_, run), summary) in all.iter().zip(&summaries) {
        if run.ended == Ended::Interrupted {
            return nothing(format!("the run {} was interrupted; make it again", run.id));
        }
        let Some(leg) = summary.legs.iter().find(|leg| leg.direction == direction) else {
            return nothing(format!("the run {} measured nothing {direction}", run.id));
        };
        let is_whole = run.ended == Ended::Complete && leg.ended == Ended::Complete;
        let value = match leg.requests {
            Some(latency) if requests => latency.p50.0 as f64 / 1e3,
            _ => {
                leg.steady_goodput
                    .filter(|_| is_whole)
                    .unwrap_or(leg.goodput)
                    .0 as f64
                    / 1e6
            }
        };
        values.push((value, is_whole));
    }
    // A run that broke off is kept, and is never better than the worst that did not.
    let whole = || {
        values
            .iter()
            .filter(|(_, is_whole)| *is_whole)
            .map(|(value, _)| *value)
    };
    let worst = if unit.is_time {
        whole().reduce(f64::max)
    } else {
        whole().reduce(f64::min)
    };
    let kept = |(value, is_whole): (f64, bool)| match worst {
        Some(worst) if !is_whole && unit.is_time => value.max(worst),
        Some(worst) if !is_whole => value.min(worst),
        _ => value,
    };
    let entries: Vec<Entry> = all
        .iter()
        .zip(&values)
        .map(|((arm, _), value)| Entry {
            arm: *arm,
            block: None,
            value: kept(*value),
        })
        .collect();
    let names: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
    let Found {
        mut comparisons,
        statistics,
        mut doubts,
    } = compare_entries(names, &entries, unit, margin)?;
    for one in &mut comparisons {
        one.of = direction.to_string();
    }
    for arm in arms {
        let words = not_in_force(arm, direction);
        if words.is_empty() {
            continue;
        }
        for one in comparisons
            .iter_mut()
            .filter(|one| [&one.control, &one.arm].contains(&&arm.name))
        {
            (one.outcome, one.estimate) = (Outcome::NoVerdict, None);
        }
        doubts.extend(
            words
                .into_iter()
                .map(|words| doubt(About::NotInForce, words)),
        );
    }
    let specs: Vec<_> = all
        .iter()
        .map(|(_, run)| (run.spec.workload.clone(), run.spec.streams, run.spec.limit))
        .collect();
    if specs.iter().any(|spec| *spec != specs[0]) {
        doubts.push(doubt(
            About::Confounded,
            "The runs differ in workload, number of streams or length as well, so whatever differs between the arms need not be the setting.",
        ));
    }
    if all.iter().any(|(_, run)| run.host != all[0].1.host) {
        doubts.push(doubt(
            About::Confounded,
            "The runs are not all to the same host.",
        ));
    }
    doubts.sort_by_key(|doubt| doubt.about);
    Ok(Published {
        name: name.to_owned(),
        margin_share: margin,
        comparisons,
        statistics,
        doubts,
    })
}

/// What the live sockets of an arm's runs had in place of what was asked.
fn not_in_force(arm: &RunsOfArm, direction: Direction) -> Vec<String> {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    // What an end did not tell is 0 or empty.
    let is_less = |found: Bytes, asked: Bytes| found > Bytes(0) && found < asked;
    for run in &arm.runs {
        let asked = &run.spec.socket;
        let Some(leg) = run.legs.iter().find(|leg| leg.direction == direction) else {
            continue;
        };
        let mut differs = BTreeSet::new();
        for socket in &leg.sender().sockets {
            let other = |c: &&String| !socket.congestion.is_empty() && **c != socket.congestion;
            if let Some(congestion) = asked.congestion.as_ref().filter(other) {
                differs.insert(format!(
                    "congestion control {}, asked {congestion}",
                    socket.congestion
                ));
            }
            if let Some(size) = asked
                .send_buffer
                .filter(|size| is_less(socket.send_buffer, *size))
            {
                differs.insert(format!(
                    "a send buffer of {}, asked {size}",
                    socket.send_buffer
                ));
            }
        }
        for socket in &leg.receiver().sockets {
            if let Some(size) = asked
                .receive_buffer
                .filter(|size| is_less(socket.receive_buffer, *size))
            {
                differs.insert(format!(
                    "a receive buffer of {}, asked {size}",
                    socket.receive_buffer
                ));
            }
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

/// Compares entries in the order of time (or of the table).
fn compare_entries(
    names: Vec<String>,
    entries: &[Entry],
    unit: Unit,
    margin: f64,
) -> Result<Found, Error> {
    let values = |arm: usize| {
        entries
            .iter()
            .filter(move |e| e.arm == arm)
            .map(|e| e.value)
    };
    let arms: Vec<Values> = names
        .into_iter()
        .enumerate()
        .map(|(arm, name)| Values {
            name,
            values: values(arm).collect(),
        })
        .collect();
    let (mut comparisons, mut doubts) = compare_all(&arms, unit, margin)?;
    let blocks = pairs(entries, arms.len());
    if let Some(blocks) = &blocks {
        comparisons = paired(&arms, blocks, unit, margin);
    }
    doubts.push(order(&arms, entries, blocks.is_some()));
    doubts.extend(drift(&arms, entries));
    let no_runs: Vec<Doubt> = arms.iter().filter_map(seconds).collect();
    if !no_runs.is_empty() {
        for one in &mut comparisons {
            (one.outcome, one.estimate) = (Outcome::NoVerdict, None);
        }
    }
    doubts.extend(no_runs);
    Ok(Found {
        comparisons,
        statistics: arms.iter().map(Values::statistics).collect(),
        doubts,
    })
}

/// The values of each block, an arm each; `None` unless each block has one of each arm.
fn pairs(entries: &[Entry], arms: usize) -> Option<Vec<Vec<f64>>> {
    let mut blocks: BTreeMap<&str, Vec<Option<f64>>> = BTreeMap::new();
    for entry in entries {
        let block = blocks
            .entry(entry.block.as_deref()?)
            .or_insert_with(|| vec![None; arms]);
        if block[entry.arm].replace(entry.value).is_some() {
            return None;
        }
    }
    blocks
        .into_values()
        .map(|block| block.into_iter().collect())
        .collect()
}

/// The logarithm of a speed. What moved nothing is the slowest of all, not left out.
fn speed(value: f64, unit: Unit) -> f64 {
    let log = value.max(f64::MIN_POSITIVE).ln();
    if unit.is_time { -log } else { log }
}

/// Compares each arm with the first by blocks.
fn paired(
    arms: &[Values],
    blocks: &[Vec<f64>],
    unit: Unit,
    margin: f64,
) -> Vec<PublishedComparison> {
    let level = level_of(arms.len());
    (1..arms.len())
        .map(|arm| {
            let d: Vec<f64> = blocks
                .iter()
                .map(|block| speed(block[arm], unit) - speed(block[0], unit))
                .collect();
            let critical = u32::try_from(d.len())
                .ok()
                .and_then(|n| signed_rank::critical_value(n, level));
            let estimate = critical.and_then(|critical| {
                Some(Estimate {
                    value: signed_rank::hodges_lehmann(&d)?,
                    interval: signed_rank::interval(&d, critical)?,
                })
            });
            PublishedComparison {
                paired: true,
                ..judged(&arms[0], &arms[arm], unit, estimate, level, margin)
            }
        })
        .collect()
}

/// Compares each arm with the first, without pairs.
pub(super) fn compare_all(
    arms: &[Values],
    unit: Unit,
    margin: f64,
) -> Result<(Vec<PublishedComparison>, Vec<Doubt>), Error> {
    let [control, others @ ..] = arms else {
        return Err(Error::NothingToCompare("it has no arm".to_owned()));
    };
    if others.is_empty() {
        let words = format!(
            "all its rows are of '{}'; two arms are needed to compare",
            control.name
        );
        return Err(Error::NothingToCompare(words));
    }
    if arms.iter().any(|arm| arm.values.len() > MOST) {
        return Err(Error::TooMuch {
            what: "values of one arm",
            most: MOST,
        });
    }
    let mut doubts = Vec::new();
    let alone: Vec<String> = arms
        .iter()
        .filter(|a| a.values.len() == 1)
        .map(|a| format!("'{}'", a.name))
        .collect();
    if !alone.is_empty() {
        let words = format!(
            "There is one run of {}: no interval exists, so nothing can be said of the difference. Four runs a side are the fewest, \
             six pairs in random order are better.",
            and(&alone)
        );
        doubts.push(doubt(About::OneRun, words));
    }
    let level = level_of(arms.len());
    let comparisons = others
        .iter()
        .map(|arm| {
            let logs = |of: &Values| {
                of.values
                    .iter()
                    .map(|v| speed(*v, unit))
                    .collect::<Vec<_>>()
            };
            let estimate = rank_sum::shift(&logs(control), &logs(arm), level);
            judged(control, arm, unit, estimate, level, margin)
        })
        .collect::<Vec<_>>();
    for c in &comparisons {
        if let Some(words) = trap(c.arm_value / c.control_value) {
            doubts.push(doubt(
                About::Units,
                format!("'{}' and '{}': {words}.", c.control, c.arm),
            ));
        }
    }
    Ok((comparisons, doubts))
}

/// The comparison of two that have no interval: for the steps of a series.
pub(super) fn no_interval(
    control: &Values,
    arm: &Values,
    unit: Unit,
) -> Option<PublishedComparison> {
    let is_single = |of: &Values| of.values.len() == 1;
    (is_single(control) && is_single(arm)).then(|| judged(control, arm, unit, None, ALPHA, 0.0))
}

/// The level of each of several intervals, so that all together hold 5 % (Bonferroni).
fn level_of(arms: usize) -> f64 {
    ALPHA / arms.saturating_sub(1).max(1) as f64
}

fn judged(
    control: &Values,
    arm: &Values,
    unit: Unit,
    estimate: Option<Estimate>,
    level: f64,
    margin: f64,
) -> PublishedComparison {
    let typical = [control, arm].map(|of| median(&of.values).unwrap_or(0.0));
    let ratio = if unit.is_time {
        typical[0] / typical[1]
    } else {
        typical[1] / typical[0]
    };
    PublishedComparison {
        of: String::new(),
        control: control.name.clone(),
        arm: arm.name.clone(),
        runs: [control, arm].map(|of| of.values.len() as u32),
        control_value: typical[0],
        arm_value: typical[1],
        unit: unit.name.to_owned(),
        change_share: ratio.is_finite().then_some(ratio - 1.0),
        printed_share: None,
        estimate: estimate.map(|e| model::Estimate {
            effect_share: e.value.exp_m1(),
            low_share: e.interval.low.exp_m1(),
            high_share: e.interval.high.exp_m1(),
            level: 1.0 - level,
        }),
        paired: false,
        outcome: match estimate.map(|e| decide(e.interval, margin.ln_1p())) {
            None => Outcome::NoVerdict,
            Some(Decision::Better { .. }) => Outcome::Faster,
            Some(Decision::Worse { .. }) => Outcome::Slower,
            Some(Decision::TooSmallToMatter { .. }) => Outcome::NoDifference,
            Some(Decision::Undecided) => Outcome::NotEnoughData,
        },
    }
}

/// What is known of the order in which the runs were made.
fn order(arms: &[Values], entries: &[Entry], is_paired: bool) -> Doubt {
    let changes = entries
        .windows(2)
        .filter(|two| two[0].arm != two[1].arm)
        .count();
    let words = if is_paired {
        "Whether the order within the blocks was drawn at random is not known: if one arm always came first, its place is mistaken for \
         its effect."
    } else if changes + 1 == arms.len() {
        "All runs of one arm stand before all of the next. If they were made so, whatever else changed on the path meanwhile is mistaken \
         for the effect: in that order up to 61 % of comparisons of a setting with itself find one. The interval does not contain this."
    } else {
        "The order of the runs was not drawn at random, as far as is known, and they are not paired: a path that drifts widens the \
         interval, or moves it."
    };
    doubt(About::Order, words)
}

/// A shift of the level within the arms.
fn drift(arms: &[Values], entries: &[Entry]) -> Option<Doubt> {
    let medians: Vec<f64> = arms
        .iter()
        .map(|arm| median(&arm.values).unwrap_or(0.0))
        .collect();
    let rest: Vec<f64> = entries.iter().map(|e| e.value - medians[e.arm]).collect();
    let found = change_point(&rest).filter(|found| found.p < 0.05)?;
    let typical = median(&medians).filter(|m| *m > 0.0)?;
    Some(doubt(
        About::Drift,
        format!(
            "After value {} of {} the level moves by about {} in all arms together: the path changed during the measurement.",
            found.after,
            entries.len(),
            percent((found.after_median - found.before_median) / typical)
        ),
    ))
}

/// Neighbouring values that resemble each other, as the seconds of one run do.
fn seconds(arm: &Values) -> Option<Doubt> {
    let n = arm.values.len();
    if n < FEWEST_FOR_SECONDS {
        return None;
    }
    let mean = arm.values.iter().sum::<f64>() / n as f64;
    let all: f64 = arm.values.iter().map(|v| (v - mean).powi(2)).sum();
    let neighbours: f64 = arm
        .values
        .windows(2)
        .map(|v| (v[0] - mean) * (v[1] - mean))
        .sum();
    let correlation = neighbours / all;
    // Three standard errors of the correlation of independent values.
    (correlation > 3.0 / (n as f64).sqrt()).then(|| {
        doubt(
            About::NotRuns,
            format!(
                "The {n} values of '{}' resemble their neighbours (correlation {correlation:.2}). If they are seconds of a run, the run is \
                 one value: no interval can be given.",
                arm.name
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{
        Bulk, Directions, EndRecord, Fingerprint, Leg, Limit, Nanos, Placement, SCHEMA_VERSION,
        SocketSettings, Spec, Workload,
    };

    /// A run of ten seconds at so many Mbit/s.
    fn run(number: u64, mbit: u64) -> Run {
        let end = EndRecord {
            bytes: Bytes(mbit * 1_250_000),
            duration: Nanos::from_secs(10),
            ..EndRecord::default()
        };
        Run {
            schema: SCHEMA_VERSION,
            id: format!("{number:08x}"),
            started: Nanos::from_secs(1_000 + 20 * number),
            host: "db1".to_owned(),
            title: None,
            experiment: None,
            spec: Spec {
                workload: Workload::Bulk(Bulk::default()),
                directions: Directions::Up,
                streams: 1,
                limit: Limit::Time(Nanos::from_secs(10)),
                ramp: None,
                interval: Nanos::from_secs(1),
                trace: false,
                socket: SocketSettings::default(),
                near: Placement::default(),
                far: Placement::default(),
            },
            near: Fingerprint::default(),
            far: None,
            legs: vec![Leg {
                direction: Direction::Up,
                started: Nanos(0),
                near: end.clone(),
                far: end,
                ended: Ended::Complete,
            }],
            warnings: Vec::new(),
            ended: Ended::Complete,
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
            run.legs[0].near.sockets = vec![model::SocketOptions {
                stream: 0,
                local: ([127, 0, 0, 1], 1).into(),
                remote: ([127, 0, 0, 1], 2).into(),
                send_buffer: Bytes(0),
                receive_buffer: Bytes(0),
                mss: 1448,
                congestion: "cubic".to_owned(),
                nodelay: false,
                pacing: None,
                dscp: 0,
                notsent_lowat: None,
                snd_wscale: None,
                rcv_wscale: None,
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
