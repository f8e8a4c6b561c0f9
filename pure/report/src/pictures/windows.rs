//! Round-trip time and windows on one axis of time.

use super::seconds;
use super::sender::State;
use crate::page::{Axis, Band, Chart, Picture, Scale, Series, Stroke, Values};

/// Round-trip time, congestion window, threshold, flight and both windows; `None` if none of it was told.
pub fn picture(id: &str, whose: &str, states: &[State], bands: Vec<Band>) -> Option<Picture> {
    type Pick = fn(&State) -> Option<f64>;
    let lines: [(&str, usize, Stroke, Pick); 6] = [
        ("congestion window", 0, Stroke::Steps, |m| m.cwnd),
        ("slow-start threshold", 0, Stroke::Reference, |m| m.ssthresh),
        ("in flight", 0, Stroke::Steps, |m| m.in_flight),
        ("window of the receiver", 0, Stroke::Reference, |m| {
            m.send_window
        }),
        ("own receive window", 0, Stroke::Reference, |m| {
            m.receive_window
        }),
        ("round-trip time", 1, Stroke::Line, |m| m.rtt),
    ];
    let series: Vec<Series> = lines
        .into_iter()
        .map(|(name, axis, stroke, pick)| {
            Series::new(
                name.to_owned(),
                axis,
                stroke,
                states.iter().map(|m| (m.at, pick(m))).collect(),
            )
        })
        .filter(|s| s.points.iter().any(|(_, y)| y.is_some()))
        .collect();
    let values = |name: &str| {
        let found = series.iter().find(|s| s.name == name);
        found.and_then(Values::of)
    };
    if series.is_empty() {
        return None;
    }
    let mut told = Vec::new();
    if let Some(rtt) = values("round-trip time") {
        told.push(format!(
            "The round-trip time goes from {} to {}.",
            rtt.least("s"),
            rtt.most("s")
        ));
    }
    if let Some(cwnd) = values("congestion window") {
        told.push(format!(
            "The congestion window goes from {} to {}.",
            cwnd.least("B"),
            cwnd.most("B")
        ));
    }
    let others = series.iter().filter(|s| s.axis == 0).filter_map(Values::of);
    let most = others.map(|v| v.largest()).fold(0.0, f64::max);
    let scale = match values("congestion window") {
        Some(cwnd) => cwnd.beside(most),
        None => Scale::FromZero,
    };
    Some(Picture::chart(
        id,
        &format!("Round-trip time and windows, {whose}"),
        "A round-trip time that grows with the congestion window is a queue that fills; a window that falls by \
            half or to little is a loss that was noticed.",
        told.join(" "),
        Chart {
            x: seconds(),
            y: vec![
                Axis::new("bytes", "B", scale),
                Axis::new("round-trip time", "s", Scale::FromZero),
            ],
            series,
            bands,
        },
    ))
}
