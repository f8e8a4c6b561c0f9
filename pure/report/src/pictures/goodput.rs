//! What arrived over time, and what held it.

use super::course::Track;
use super::seconds;
use super::sender;
use crate::page::{Axis, Band, Chart, Picture, Scale, Series, Stroke, Values};
use crate::words::counted;
use model::{Leg, LegSummary, Nanos, Sample, is_left_over};

/// What is shown beside the goodput.
#[derive(Clone, Copy, PartialEq)]
pub enum Beside {
    /// Retransmissions, where there were any.
    Retransmissions,
    /// The RTT: of a standing queue it rises while the goodput stays.
    Rtt,
}

/// Goodput of a leg, with the limit of each moment above; `None` of a leg too short for two samples.
pub fn picture(
    id: &str,
    leg: &Leg,
    figures: &LegSummary,
    beside: Beside,
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
    if beside == Beside::Rtt {
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

/// What arrived, in bit/s; `None` of a leg too short for two samples.
pub fn arrived(leg: &Leg) -> Option<Series> {
    let ends = [
        (leg.receiver(), "received"),
        (leg.sender(), "written by the sender"),
    ];
    // A first and a last sample have no course.
    let (end, what) = ends.into_iter().find(|(end, _)| end.samples.len() > 2)?;
    let bits = |s: &Sample| (s.at, s.bytes.0 as f64 * 8.0);
    let bits: Vec<(Nanos, f64)> = end.samples.iter().map(bits).collect();
    Some(Series::new(what, 0, Stroke::Steps, rates(&bits)))
}

/// The rise of a counter over time, which holds from one reading to the next. What is left over at the end
/// belongs to the interval before it.
fn rates(readings: &[(Nanos, f64)]) -> Vec<(f64, Option<f64>)> {
    let mut readings = readings.to_vec();
    if let [.., a, b, c] = readings[..]
        && is_left_over([a.0, b.0, c.0])
    {
        readings.remove(readings.len() - 2);
    }
    let readings = readings.iter().map(|(at, bits)| (at.as_secs_f64(), *bits));
    let readings: Vec<(f64, f64)> = readings.collect();
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

    #[test]
    fn what_is_left_over_at_the_end_is_no_spike() {
        let rates = |readings: &[(f64, f64)]| -> Vec<f64> {
            let nanos = |(at, bits): &(f64, f64)| (Nanos((at * 1e9).round() as u64), *bits);
            let readings: Vec<(Nanos, f64)> = readings.iter().map(nanos).collect();
            rates(&readings)
                .into_iter()
                .filter_map(|(_, rate)| rate)
                .collect()
        };
        // A packet in the microsecond after the last whole interval.
        let course = [(0.0, 0.0), (1.0, 100.0), (2.0, 200.0), (2.000_001, 212.0)];
        assert!(rates(&course).iter().all(|rate| *rate < 120.0));
        let whole = [(0.0, 0.0), (1.0, 100.0), (2.0, 300.0)];
        assert_eq!(rates(&whole), [100.0, 200.0, 200.0]);
    }
}
