//! How long requests took, over time.

use super::seconds;
use crate::prelude::*;
use model::{Latency, LatencySummary, interval_ends};

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
        if let Some(new) = &sample.requests {
            since = since.merged(new);
        }
        ends.next_if(|end| end.at == sample.at)?;
        // At the first sample nothing was answered yet.
        sample.requests.as_ref()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Drawing;
    use crate::testing;
    use model::summarise_leg;

    #[test]
    fn requests_of_a_moment_at_the_end_belong_to_the_interval_before() {
        let mut leg = testing::request_leg(1000);
        let drawn = |leg: &Leg| {
            let figures = summarise_leg(&testing::spec(), leg);
            let requests = figures.requests.unwrap();
            let picture = picture("id", leg, &requests).unwrap();
            let Drawing::Chart(chart) = picture.drawing else {
                panic!("a chart")
            };
            chart
                .series
                .into_iter()
                .map(|s| s.points)
                .collect::<Vec<_>>()
        };
        let whole = drawn(&leg);
        assert!(whole[0].len() > 5, "{whole:?}");
        let mut last = leg.local.samples.last().unwrap().clone();
        last.at += Nanos(1);
        last.requests = Some(Latency::from_counts([(1 << 40, 1)]));
        leg.local.samples.push(last);
        let longer = drawn(&leg);
        assert_eq!(longer[0].len(), whole[0].len());
        assert!(longer[2].last().unwrap().1 > whole[2].last().unwrap().1);
    }
}
