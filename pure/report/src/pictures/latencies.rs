//! How long requests took, over time.

use super::seconds;
use crate::page::{Axis, Chart, Picture, Scale, Series, Stroke};
use crate::words::counted;
use model::{Latency, LatencySummary, Leg, Nanos, interval_ends};

/// Median, 99th percentile and the longest of the requests between two samples; `None` if there were none.
pub fn picture(id: &str, leg: &Leg, requests: &LatencySummary) -> Option<Picture> {
    type Pick = fn(&Latency) -> Option<Nanos>;
    let lines: [(&str, Stroke, Pick); 3] = [
        ("median", Stroke::Line, |l| l.percentile(0.5)),
        ("99 % are faster than", Stroke::Line, |l| l.percentile(0.99)),
        ("longest", Stroke::Points, Latency::max),
    ];
    // A few requests at the very end are no interval of their own.
    let all = &leg.sender().samples;
    let mut ends = interval_ends(all, |sample| sample.at)
        .into_iter()
        .peekable();
    let mut since = Latency::default();
    let samples = all.iter().filter_map(|sample| {
        since = since.merged(sample.requests.as_ref()?);
        ends.next_if(|end| end.at == sample.at)?;
        Some((sample.at.as_secs_f64(), std::mem::take(&mut since)))
    });
    let samples: Vec<(f64, Latency)> = samples.collect();
    samples.iter().find(|(_, all)| all.count() > 0)?;
    // One request has no spread.
    if requests.count < 2 {
        return None;
    }
    let series = lines.map(|(name, stroke, pick)| {
        let point = |(at, all): &(f64, Latency)| (*at, pick(all).map(Nanos::as_secs_f64));
        Series::new(name, 0, stroke, samples.iter().map(point).collect())
    });
    let y = Axis::new("time of a request", "s", Scale::Logarithmic);
    Some(Picture::chart(
        id,
        &format!("Time of a request, {}", leg.direction),
        "Lower is better. The axis goes by decades; each point sums up the requests since the one before.",
        format!(
            "Median {}, 99th percentile {}, longest {} of {}.",
            requests.p50,
            requests.p99,
            requests.max,
            counted(requests.count, "request")
        ),
        Chart::new(seconds(), vec![y], series.into(), Vec::new()),
    ))
}
