//! Every run of an experiment in the order of time: does the path move by itself?

use crate::page::{Axis, Band, Chart, Picture, Scale, Series, Stroke};
use crate::prove::phrase::{metric_words, signed};
use model::{Experiment, Nanos, Phase, Trial, Verdict};

/// All runs over time; `None` before the first.
pub fn picture(experiment: &Experiment, verdict: &Verdict) -> Option<Picture> {
    let plan = &experiment.plan;
    let first = experiment.trials.first()?;
    let at = |moment: Nanos| moment.since(first.started).as_secs_f64();
    let point = |t: &Trial| (at(t.started), t.value);
    let mut series: Vec<Series> = (0..plan.arms.len() as u32)
        .map(|arm| {
            let own = experiment.trials.iter().filter(|t| t.arm == arm);
            Series::new(
                plan.arm_name(arm).to_owned(),
                0,
                Stroke::Points,
                own.map(point).collect(),
            )
        })
        .collect();
    let most = experiment.trials.iter().filter_map(|t| t.value);
    let most = most.fold(0.0, f64::max);
    let moves = |trial: u32| {
        let there = experiment.trials.iter().find(|t| t.number == trial)?;
        Some((at(there.started), Some(most)))
    };
    let moved: Vec<(f64, Option<f64>)> = verdict
        .change_points
        .iter()
        .filter_map(|c| moves(c.trial))
        .collect();
    if !moved.is_empty() {
        series.push(Series::new("the level moves", 0, Stroke::Bars, moved));
    }
    let unit = if plan.metric.is_time() { "s" } else { "bit/s" };
    let told: Vec<String> = verdict
        .change_points
        .iter()
        .map(|c| format!("by {} at run {}", signed(c.shift_share), c.trial))
        .collect();
    let alternative = match told[..] {
        [] => "The level of the runs does not move by itself, as far as they tell.".to_owned(),
        _ => format!("The level of all runs moves {}.", told.join(" and ")),
    };
    Some(Picture::chart(
        "drift",
        "In the order of time",
        "Each mark is a run. What moves all arms together is the path, not the change.",
        alternative,
        Chart {
            x: Axis::new("since the first run", "s", Scale::FromZero),
            y: vec![Axis::new(
                metric_words(plan.metric).to_owned(),
                unit,
                Scale::FromZero,
            )],
            series,
            bands: phases(&experiment.trials, at),
        },
    ))
}

/// What the runs are for, as stretches of time.
fn phases(trials: &[Trial], at: impl Fn(Nanos) -> f64) -> Vec<Band> {
    let same = |a: &Trial, b: &Trial| a.phase == b.phase;
    trials
        .chunk_by(same)
        .map(|chunk| Band {
            from: at(chunk[0].started),
            to: chunk
                .last()
                .map_or(0.0, |last| at(last.started + last.duration)),
            name: match chunk[0].phase {
                Phase::Discarded => "discarded",
                Phase::Pilot => "pilot",
                Phase::Main => "compared",
                Phase::Confirmation => "confirmed",
            }
            .to_owned(),
        })
        .collect()
}
