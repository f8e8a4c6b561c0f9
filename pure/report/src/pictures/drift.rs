//! Every run of an experiment in the order of time: does the path move by itself?

use crate::page::{Axis, Band, Chart, Picture, Scale, Series, Stroke};
use crate::prove::phrase::{base_unit, metric_words, phase, signed};
use model::{Experiment, Nanos, Trial, Verdict};

/// All runs over time; `None` before the first.
pub fn picture(experiment: &Experiment, verdict: &Verdict) -> Option<Picture> {
    let (plan, trials) = (&experiment.plan, &experiment.trials);
    let first = trials.first()?;
    let at = |moment: Nanos| moment.since(first.started).as_secs_f64();
    let of_arm = |arm| {
        let own = trials.iter().filter(|t| t.arm == arm);
        let points = own.map(|t| (at(t.started), t.value)).collect();
        Series::new(plan.arm_name(arm), 0, Stroke::Points, points)
    };
    let mut series: Vec<Series> = (0..plan.arms.len() as u32).map(of_arm).collect();
    let most = trials.iter().filter_map(|t| t.value).fold(0.0, f64::max);
    let changes = &verdict.change_points;
    let moved = changes.iter().filter_map(|change| {
        let there = trials.iter().find(|t| t.number == change.trial)?;
        Some((at(there.started), Some(most)))
    });
    let moved: Vec<(f64, Option<f64>)> = moved.collect();
    if !moved.is_empty() {
        series.push(Series::new("the level moves", 0, Stroke::Bars, moved));
    }
    let changes = changes.iter();
    let changes = changes.map(|c| format!("by {} at run {}", signed(c.shift_share), c.trial));
    let alternative = match &changes.collect::<Vec<_>>()[..] {
        [] => "The level of the runs does not move by itself, as far as they show.".to_owned(),
        all => format!("The level of all runs moves {}.", all.join(" and ")),
    };
    let (name, unit) = (metric_words(plan.metric), base_unit(plan.metric));
    let y = Axis::new(name, unit, Scale::FromZero);
    let x = Axis::new("since the first run", "s", Scale::FromZero);
    Some(Picture::chart(
        "drift",
        "Runs over time",
        "Each mark is a run. What moves all arms together is the path, not the change.",
        alternative,
        Chart::new(x, vec![y], series, phases(trials, at)),
    ))
}

/// What the runs are for, as stretches of time.
fn phases(trials: &[Trial], at: impl Fn(Nanos) -> f64) -> Vec<Band> {
    let band = |chunk: &[Trial]| Band {
        from: at(chunk[0].started),
        to: chunk
            .last()
            .map_or(0.0, |last| at(last.started + last.duration)),
        name: phase(chunk[0].phase)[2].to_owned(),
    };
    let chunks = trials.chunk_by(|a, b| a.phase == b.phase);
    chunks.map(band).collect()
}
