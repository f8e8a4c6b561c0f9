//! What was on its way, against what it may not exceed.

use super::seconds;
use super::sender::State;
use crate::page::{Axis, Band, Chart, Picture, Series, Stroke, Values};

/// Bytes in flight against the receive window, the congestion window and the send buffer; `None` if the flight was not told.
pub fn picture(id: &str, whose: &str, states: &[State], bands: Vec<Band>) -> Option<Picture> {
    type Pick = fn(&State) -> Option<f64>;
    let lines: [(&str, Stroke, Pick); 4] = [
        ("in flight", Stroke::Steps, |m| m.in_flight),
        ("receive window", Stroke::Reference, |m| m.send_window),
        ("congestion window", Stroke::Reference, |m| m.cwnd),
        ("send buffer", Stroke::Reference, |m| m.send_buffer),
    ];
    let series: Vec<Series> = lines
        .into_iter()
        .map(|(name, stroke, pick)| {
            Series::new(
                name.to_owned(),
                0,
                stroke,
                states.iter().map(|m| (m.at, pick(m))).collect(),
            )
        })
        .filter(|s| s.points.iter().any(|(_, y)| y.is_some()))
        .collect();
    let in_flight = Values::of(series.first()?).filter(|_| series[0].name == "in flight")?;
    let mut alternative = format!(
        "At the median {} were in flight, at most {}.",
        in_flight.median("B"),
        in_flight.most("B")
    );
    for ceiling in &series[1..] {
        if let Some(values) = Values::of(ceiling) {
            alternative.push_str(&format!(
                " The {} was {} at the median.",
                ceiling.name,
                values.median("B")
            ));
        }
    }
    let ceilings = series[1..].iter().filter_map(Values::of);
    let scale = in_flight.beside(ceilings.map(|c| c.largest()).fold(0.0, f64::max));
    Some(Picture::chart(
        id,
        &format!("Bytes in flight and their three ceilings, {whose}"),
        "What is in flight cannot pass the lowest dashed line, and that is what holds it; where it touches none, \
            something else does. The send buffer counts the kernel's bookkeeping, so that data fill it before they reach it.",
        alternative,
        Chart {
            x: seconds(),
            y: vec![Axis::new("bytes", "B", scale)],
            series,
            bands,
        },
    ))
}
