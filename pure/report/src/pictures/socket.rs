//! What the sender of a connection had to go by: its windows, what was in flight, and the RTT.

use super::downsample::{Columns, Track};
use super::time_sequence::joined;
use crate::page::{Axis, Band, Chart, Picture, Scale, Series, Stroke, Values};
use model::Leg;

/// Quantities of a sender over time: of a trace or a capture, or of the samples of a leg.
#[derive(Clone, Copy)]
pub(crate) enum SenderLanes<'a> {
    Columns(&'a Columns),
    Samples(&'a Leg),
}

impl SenderLanes<'_> {
    /// Those lines of which anything is known.
    fn series(self, axis: usize, lines: &[(Track, &str, Stroke)]) -> Vec<Series> {
        let known = lines.iter().map(|(track, name, stroke)| match self {
            SenderLanes::Columns(columns) => columns.series(*track, name, axis, *stroke),
            SenderLanes::Samples(leg) => {
                let points = super::sender::points(leg, *track);
                Series::new(*name, axis, *stroke, points)
            }
        });
        known
            .filter(|s| s.points.iter().any(|(_, y)| y.is_some()))
            .collect()
    }

    /// What the reading of a picture has to say of joined columns.
    fn joined(self) -> String {
        match self {
            SenderLanes::Columns(columns) => joined(columns),
            SenderLanes::Samples(_) => String::new(),
        }
    }
}

fn values(series: &[Series], name: &str) -> Option<Values> {
    Values::of(series.iter().find(|s| s.name == name)?)
}

/// The windows, the flight and the RTT on one time axis; `None` if none of it is known.
pub(crate) fn windows(
    id: &str,
    title: &str,
    of: SenderLanes<'_>,
    x: Axis,
    bands: Vec<Band>,
) -> Option<Picture> {
    let lines = [
        (Track::Congestion, "congestion window", Stroke::Steps),
        (Track::Threshold, "slow-start threshold", Stroke::Reference),
        (Track::Flight, "in flight", Stroke::Steps),
        (Track::Window, "receive window", Stroke::Reference),
        (Track::Own, "own receive window", Stroke::Reference),
    ];
    let rtts = [
        (Track::Smoothed, "smoothed RTT", Stroke::Steps),
        (Track::RoundTrip, "RTT of single segments", Stroke::Points),
    ];
    let mut series = of.series(0, &lines);
    let bytes: Vec<Values> = series.iter().filter_map(Values::of).collect();
    let most = bytes.iter().map(Values::largest).fold(0.0, f64::max);
    let cwnd = values(&series, "congestion window");
    let scale = cwnd.map_or(Scale::FromZero, |cwnd| cwnd.beside(most));
    series.extend(of.series(1, &rtts));
    series.first()?;
    let range = |what: &str, name: &str, unit| {
        let of = values(&series, name)?;
        let (least, most) = (of.least(unit), of.most(unit));
        Some(format!("The {what} goes from {least} to {most}."))
    };
    let alternative = [
        range("RTT", rtts[0].1, "s").or_else(|| range("RTT", rtts[1].1, "s")),
        range("congestion window", "congestion window", "B"),
        range("receive window", "receive window", "B"),
        range("flight", "in flight", "B"),
    ];
    let alternative: Vec<String> = alternative.into_iter().flatten().collect();
    let (bytes, rtt) = (
        Axis::new("bytes", "B", scale),
        Axis::new("RTT", "s", Scale::FromZero),
    );
    Some(Picture::chart(
        id,
        &format!("Windows, flight and RTT{title}"),
        format!(
            "The lowest window above the flight is the one that limits it. An RTT that rises with the flight is a queue \
             that fills; a congestion window that falls by half or to little is a loss that was noticed.{}",
            of.joined()
        ),
        alternative.join(" "),
        Chart::new(x, vec![bytes, rtt], series, bands),
    ))
}

/// What was in flight below its three ceilings; `None` where no socket was seen, for then there is at most one.
pub(crate) fn flight(
    id: &str,
    title: &str,
    of: SenderLanes<'_>,
    x: Axis,
    bands: Vec<Band>,
) -> Option<Picture> {
    let lines = [
        (Track::Flight, "in flight", Stroke::Steps),
        (Track::Window, "receive window", Stroke::Reference),
        (Track::Congestion, "congestion window", Stroke::Reference),
        (Track::Buffer, "send buffer", Stroke::Reference),
    ];
    let series = of.series(0, &lines);
    let in_flight = values(&series, "in flight")?;
    values(&series, "send buffer")?;
    let (mut most, mut largest) = (0.0, String::new());
    for ceiling in &series[1..] {
        let Some(values) = Values::of(ceiling) else {
            continue;
        };
        most = values.largest().max(most);
        let (name, most) = (&ceiling.name, values.most("B"));
        largest += &format!("; the {name} was {most} at its largest");
    }
    let y = Axis::new("bytes", "B", in_flight.beside(most));
    Some(Picture::chart(
        id,
        &format!("Bytes in flight and their three ceilings{title}"),
        format!(
            "What is in flight cannot pass the lowest dashed line: the ceiling that it touches is the one to raise; below \
             all of them it was the application or the rate of the path. The send buffer counts the kernel's overhead as \
             well: data alone do not fill it.{}",
            of.joined()
        ),
        format!("At most {} were in flight{largest}.", in_flight.most("B")),
        Chart::new(x, vec![y], series, bands),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page;
    use crate::pictures::seconds;
    use crate::pictures::time_sequence::tests::lossy;
    use insta::assert_snapshot;

    #[test]
    fn a_capture_shows_the_flight_the_receive_window_and_the_round_trip() {
        let course = lossy();
        let of = SenderLanes::Columns(&course.most().columns);
        let picture = windows("windows", "", of, seconds(), Vec::new()).unwrap();
        assert_snapshot!(picture.alternative);
        assert_snapshot!(page::csv(&picture));
        assert_eq!(flight("flight", "", of, seconds(), Vec::new()), None);
    }
}
