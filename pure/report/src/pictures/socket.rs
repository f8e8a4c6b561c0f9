//! What the sender of a connection had to go by: its windows, what was in flight, and the round trip.

use super::course::{Course, Track};
use super::time_sequence::{Line, bands, bytes, joined, time};
use crate::page::{Axis, Chart, Picture, Scale, Stroke};
use model::finding::Phase;
use model::{Bytes, Nanos};

/// The windows, the flight and the round trip on one time axis.
pub fn windows(id: &str, course: &Course, phases: &[Phase]) -> Picture {
    let columns = &course.most().columns;
    let first: [Line; 4] = [
        (Track::Flight, "in flight", Stroke::Steps),
        (Track::Congestion, "congestion window", Stroke::Steps),
        (Track::Threshold, "slow-start threshold", Stroke::Reference),
        (Track::Window, "receive window", Stroke::Steps),
    ];
    let second: [Line; 2] = [
        (Track::Smoothed, "round trip, smoothed", Stroke::Steps),
        (Track::RoundTrip, "round trip, as seen", Stroke::Points),
    ];
    let mut chart = chart(course, &first, phases);
    chart.y.push(Axis::new("round trip", "s", Scale::FromZero));
    let trips = second.into_iter().filter(|(track, ..)| columns.has(*track));
    let trips = trips.map(|(track, name, stroke)| columns.series(track, name, 1, stroke, 1e9));
    chart.series.extend(trips);
    let trip = match columns
        .greatest(Track::Smoothed)
        .max(columns.greatest(Track::RoundTrip))
    {
        0 => "No round trip was seen.".to_owned(),
        most => format!("The round trip was {} at most.", Nanos(most)),
    };
    Picture::chart(
        id,
        "Windows, flight and round trip",
        format!(
            "The lowest window above the flight is the one that limits it; a round trip that rises with the flight is a queue.{}",
            joined(columns)
        ),
        format!("{} {trip}", ceilings(course)),
        chart,
    )
}

/// What was in flight below its three ceilings; `None` where no socket was seen, for then there is only one.
pub fn flight(id: &str, course: &Course, phases: &[Phase]) -> Option<Picture> {
    let lines: [Line; 4] = [
        (Track::Flight, "in flight", Stroke::Steps),
        (Track::Window, "receive window", Stroke::Reference),
        (Track::Congestion, "congestion window", Stroke::Reference),
        (Track::Buffer, "send buffer", Stroke::Reference),
    ];
    let columns = &course.most().columns;
    columns.has(Track::Buffer).then(|| Picture::chart(id, "Bytes in flight and their three ceilings", format!(
            "The ceiling that the flight touches is the one to raise; below all of them it was the application or the rate of the path. The send buffer counts the kernel's overhead as well: data alone do not fill it.{}",
            joined(columns)
        ), ceilings(course), chart(course, &lines, phases)))
}

fn chart(course: &Course, lines: &[Line], phases: &[Phase]) -> Chart {
    let columns = &course.most().columns;
    let known = lines.iter().filter(|(track, ..)| columns.has(*track));
    let series = known.map(|(track, name, stroke)| columns.series(*track, name, 0, *stroke, 1.0));
    Chart {
        x: time(),
        y: vec![bytes("bytes")],
        series: series.collect(),
        bands: bands(phases),
    }
}

fn ceilings(course: &Course) -> String {
    let columns = &course.most().columns;
    let most = |track| Bytes(columns.greatest(track));
    let mut said = format!("At most {} were in flight", most(Track::Flight));
    for (track, name) in [
        (Track::Window, "the receive window"),
        (Track::Congestion, "the congestion window"),
        (Track::Buffer, "the send buffer"),
    ] {
        if columns.has(track) {
            said.push_str(&format!("; {name} was {} at its largest", most(track)));
        }
    }
    said.push('.');
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page;
    use crate::pictures::time_sequence::tests::lossy;
    use insta::assert_snapshot;

    #[test]
    fn a_capture_shows_the_flight_the_receive_window_and_the_round_trip() {
        let course = lossy();
        let picture = windows("windows", &course, &[]);
        assert_snapshot!(picture.alternative);
        assert_snapshot!(page::csv(&picture));
        assert_eq!(flight("flight", &course, &[]), None);
    }
}
