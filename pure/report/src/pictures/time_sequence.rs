//! The time-sequence graph of one direction of a connection: what was sent, acknowledged and retransmitted.

use super::downsample::{Columns, Downsampled, Pass, Track};
use crate::prelude::*;

/// Lines of the graph: a quantity, what it is called, and how it is drawn.
const LINES: [(Track, &str, Stroke); 5] = [
    (Track::Sent, "sent", Stroke::Steps),
    (Track::Acknowledged, "acknowledged", Stroke::Steps),
    (Track::Again, "retransmitted", Stroke::Points),
    (Track::Selective, "selectively acknowledged", Stroke::Points),
    (Track::Edge, "advertised window", Stroke::Reference),
];

/// Draws a direction; `bands` name the limit of each moment, times since the connection began.
pub fn picture(id: &str, course: &Downsampled, bands: Vec<Band>) -> Picture {
    let pass = course.most();
    // Where neighbours are joined, what lies between sent and acknowledged has no place of its own.
    let joined_some = pass.columns.joined().is_some();
    let shown = |track| track != Track::Selective || !joined_some;
    Picture::chart(
        id,
        "Time-sequence graph",
        format!(
            "The steeper the faster. Between sent and acknowledged lies what is in flight; where sent touches the advertised window, the receiver limits; flat means nothing moves.{}",
            joined(&pass.columns)
        ),
        alternative(pass),
        chart(&pass.columns, shown, Scale::FromZero, bands),
    )
}

/// The same around the first retransmission, each segment by itself; `None` if nothing was retransmitted, or the
/// picture of the whole shows it as well.
pub(crate) fn first_again(id: &str, course: &Downsampled, mut bands: Vec<Band>) -> Option<Picture> {
    let columns = course.most().first_again()?;
    let (from, to) = columns.span();
    let (first, last) = (from.as_secs_f64(), to.as_secs_f64());
    bands.retain(|band| band.from < last && band.to > first);
    for band in &mut bands {
        (band.from, band.to) = (band.from.max(first), band.to.min(last));
    }
    // The advertised window lies far above.
    let mut chart = chart(columns, |track| track != Track::Edge, Scale::Fitted, bands);
    // Pictures whose axes have the same name are zoomed together.
    chart.x.label.push_str(", in part");
    Some(Picture::chart(
        id,
        "The first retransmission, and what led to it",
        "Each step is a segment. Where the acknowledged line stays flat while blocks above it are selectively acknowledged, the segment at that height is missing.",
        format!("From {from} to {to} after the connection began."),
        chart,
    ))
}

fn chart(
    columns: &Columns,
    shown: impl Fn(Track) -> bool,
    scale: Scale,
    bands: Vec<Band>,
) -> Chart {
    let lines = LINES.into_iter().filter(|(track, ..)| shown(*track));
    let series = lines.map(|(track, name, stroke)| columns.series(track, name, 0, stroke));
    let series = series.filter(|series| !series.points.is_empty()).collect();
    let y = Axis::new("sequence number", "B", scale);
    Chart::new(Axis { scale, ..time() }, vec![y], series, bands)
}

/// What it shows, in words.
fn alternative(pass: &Pass) -> String {
    let (bytes, segments, again) = pass.stream().map_or((0, 0, 0), |stream| {
        let again = stream.counts().retransmitted_segments;
        (stream.bytes, stream.segments, again)
    });
    let again = match again {
        0 => "none of them a retransmission".to_owned(),
        again => format!(
            "{} of them ({}) retransmissions",
            grouped(again),
            percent(again as f64 / segments as f64)
        ),
    };
    format!(
        "{} were sent in {} in {}, {again}; {} were acknowledged. At most {} were in flight.",
        Bytes(bytes),
        pass.span,
        counted(segments, "segment"),
        Bytes(pass.columns.greatest(Track::Acknowledged)),
        Bytes(pass.columns.greatest(Track::Flight)),
    )
}

/// Where neighbours were joined, that is said.
pub(super) fn joined(columns: &Columns) -> String {
    let joined = columns.joined();
    let words = joined.map(|width| format!(" What lies within {width} is drawn as one."));
    words.unwrap_or_default()
}

pub(crate) fn time() -> Axis {
    Axis::new("time since the connection began", "s", Scale::FromZero)
}

#[cfg(test)]
pub(crate) mod tests;
