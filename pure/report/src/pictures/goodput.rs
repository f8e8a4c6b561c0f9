//! What arrived over time, and what held it.

use super::downsample::Track;
use super::seconds;
use super::sender;
use crate::page::{Axis, Band, Chart, Picture, Scale, Series, Stroke, Values};
use crate::words::counted;
use model::{Leg, LegSummary, Nanos, Sample, interval_ends};

/// What is shown beside the goodput.
#[derive(Clone, Copy, PartialEq)]
pub enum SecondCurve {
    /// Retransmissions, where there were any.
    Retransmissions,
    /// The RTT: of a standing queue it rises while the goodput stays.
    Rtt,
}

/// Intervals between samples that are a course.
const SHORTEST: usize = 3;

/// Goodput of a leg, with the limit of each moment above; `None` of a leg too short for a course of it.
pub fn picture(
    id: &str,
    leg: &Leg,
    figures: &LegSummary,
    beside: SecondCurve,
    bands: Vec<Band>,
) -> Option<Picture> {
    let mut series = vec![arrived(leg)?];
    let values = Values::of(&series[0])?;
    let mut alternative = format!(
        "{} on average, between {} and {}.",
        figures.goodput,
        values.least("bit/s"),
        values.most("bit/s")
    );
    let end = series[0].points.last()?.0;
    let average = figures.goodput.0 as f64;
    let line = vec![(0.0, Some(average)), (end, Some(average))];
    series.push(Series::new("average", 0, Stroke::Reference, line));
    let mut y = vec![Axis::new("goodput", "bit/s", Scale::FromZero)];
    let mut title = "Goodput over time";
    let mut reading = "Higher is better.".to_owned();
    let again = retransmitted(leg);
    if beside == SecondCurve::Rtt {
        let rtt = sender::points(leg, Track::Smoothed);
        let rtt = Series::new("smoothed RTT", 1, Stroke::Steps, rtt);
        if let Some(values) = Values::of(&rtt) {
            title = "RTT under load beside goodput";
            reading = "An RTT that rises while the goodput stays is a standing queue.".to_owned();
            let (least, most) = (values.least("s"), values.most("s"));
            alternative += &format!(" The RTT goes from {least} to {most}.");
            y.push(Axis::new("RTT", "s", Scale::FromZero));
            series.push(rtt);
        }
    } else if !again.is_empty() {
        let name = "retransmissions";
        let all: f64 = again.iter().filter_map(|(_, y)| *y).sum();
        alternative += &format!(" {}.", counted(all as u64, "retransmission"));
        y.push(Axis::new(name, "", Scale::FromZero));
        series.push(Series::new(name, 1, Stroke::Bars, again));
    }
    alternative += &in_order(&bands);
    if !bands.is_empty() {
        reading += " The bars above show what the sender waited for.";
    }
    Some(Picture::chart(
        id,
        &format!("{title}, {}", leg.direction),
        reading,
        alternative,
        Chart::new(seconds(), y, series, bands),
    ))
}

/// What arrived, in bit/s; `None` of a leg too short for a course of it.
pub fn arrived(leg: &Leg) -> Option<Series> {
    let ends = [
        (leg.receiver(), "received"),
        (leg.sender(), "written by the sender"),
    ];
    let bits = |s: &Sample| (s.at, s.bytes.0 as f64 * 8.0);
    ends.into_iter().find_map(|(end, what)| {
        let bits: Vec<(Nanos, f64)> = end.samples.iter().map(bits).collect();
        let rates = rates(&bits);
        (rates.len() > SHORTEST).then(|| Series::new(what, 0, Stroke::Steps, rates))
    })
}

/// The rise of a counter over time, which holds from one reading to the next.
fn rates(readings: &[(Nanos, f64)]) -> Vec<(f64, Option<f64>)> {
    let ends = interval_ends(readings, |(at, _)| *at).into_iter();
    let readings: Vec<(f64, f64)> = ends.map(|(at, bits)| (at.as_secs_f64(), *bits)).collect();
    let pairs = readings.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    let rates = pairs.map(|pair| {
        let rate = (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0);
        (pair[0].0, Some(rate.max(0.0)))
    });
    let mut rates: Vec<(f64, Option<f64>)> = rates.collect();
    if let (Some((end, _)), Some((_, rate))) = (readings.last(), rates.last().copied()) {
        rates.push((*end, rate));
    }
    rates
}

/// Segments retransmitted since the sample before, where there were any.
fn retransmitted(leg: &Leg) -> Vec<(f64, Option<f64>)> {
    let counts = sender::points(leg, Track::Again).into_iter();
    let counts: Vec<(f64, f64)> = counts.filter_map(|(at, n)| Some((at, n?))).collect();
    let steps = counts.windows(2);
    let steps = steps.map(|pair| (pair[1].0, Some(pair[1].1 - pair[0].1)));
    steps.filter(|(_, again)| *again > Some(0.0)).collect()
}

/// What the sender waited for, each limit once. Its share stands in the table of the limits.
fn in_order(bands: &[Band]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for band in bands {
        if !names.contains(&band.name.as_str()) {
            names.push(&band.name);
        }
    }
    match names.is_empty() {
        true => String::new(),
        false => format!(" The sender waited for: {}.", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        /// However the samples lie, no interval shows more than all that arrived in half of a usual interval.
        #[test]
        fn no_rate_is_impossible(
            steps in vec((prop_oneof![0..1000_u64, 50_000_000..150_000_000_u64], 0..1_000_000_u64), 2..30),
        ) {
            let (mut at, mut bits) = (0, 0.0);
            let mut readings = vec![(Nanos(0), 0.0)];
            for (step, more) in &steps {
                (at, bits) = (at + step, bits + *more as f64);
                readings.push((Nanos(at), bits));
            }
            let mut lengths: Vec<u64> = steps.iter().map(|(step, _)| *step).collect();
            lengths.sort_unstable();
            let usual = (lengths[lengths.len() / 2] as f64 / 1e9).min(at as f64 / 1e9);
            for (_, rate) in rates(&readings) {
                prop_assert!(rate.unwrap() <= 2.0 * bits / usual.max(1e-9) + 1.0);
            }
        }
    }
}
