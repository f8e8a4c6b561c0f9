//! Pictures for pages, one file each: data to a [`crate::page::Picture`].

pub mod bars;
pub mod downsample;
pub mod drift;
pub mod forest;
pub mod goodput;
pub mod hops;
pub mod ladder;
pub mod latencies;
pub mod latency;
pub mod pairs;
pub mod sender;
pub mod socket;
pub mod stages;
pub mod time_sequence;

use crate::prelude::*;
use crate::words::cut;
use model::finding::Phase;

/// Width of a still picture, in its own units: a page shows it at this size where there is room, and its text can still be
/// read where a window of 390 pixels makes it smaller.
pub(crate) const WIDTH: f64 = 452.0;
/// Right end of what is drawn in it.
pub(crate) const RIGHT: f64 = WIDTH - 10.0;

/// The ends of an axis that has some air around these values.
fn airy(values: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    let finite = values.filter(|v| v.is_finite());
    let ends = finite.fold(None, |ends: Option<(f64, f64)>, v| match ends {
        Some((low, high)) => Some((low.min(v), high.max(v))),
        None => Some((v, v)),
    });
    let ends = ends.map(|(low, high)| {
        let air = ((high - low) * 0.06).max(high.abs() * 1e-3).max(1e-9);
        [low - air, high + air]
    });
    ends.into_iter().flatten()
}

/// A name of at most so many characters.
fn cut_name(name: &str, longest: usize) -> String {
    cut(&escape(name), longest)
}

/// Time since the begin of what is drawn.
pub(crate) fn seconds() -> Axis {
    Axis::new("time", "s", Scale::FromZero)
}

/// The limit of each moment; of several connections, that which limited most of them.
pub(crate) fn bands(connections: &[&[Phase]]) -> Vec<Band> {
    let phases = || connections.iter().copied().flatten();
    let mut cuts: Vec<Nanos> = phases().flat_map(|p| [p.from, p.to]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut bands: Vec<Band> = Vec::new();
    for pair in cuts.windows(2) {
        let here = |limit: &Limit| {
            let own = phases().filter(|p| p.limit == *limit);
            own.filter(|p| p.from <= pair[0] && pair[1] <= p.to).count()
        };
        // The first of those that hold as many.
        let most = Limit::ALL.iter().rev().max_by_key(|l| here(l));
        let Some(most) = most.filter(|most| here(most) > 0) else {
            continue;
        };
        let (from, to) = (pair[0].as_secs_f64(), pair[1].as_secs_f64());
        let name = most.words().to_owned();
        match bands.last_mut() {
            Some(last) if last.name == name && last.to == from => last.to = to,
            _ => bands.push(Band { from, to, name }),
        }
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Bytes;

    #[test]
    fn the_limit_of_most_connections_has_the_moment() {
        let phase = |from, to, limit| Phase {
            from: Nanos::from_secs(from),
            to: Nanos::from_secs(to),
            limit,
            bytes: Bytes(0),
        };
        use Limit::{Application, CongestionWindow as Cwnd, SlowStart};
        let all = [
            vec![phase(0, 2, SlowStart), phase(2, 9, Cwnd)],
            vec![phase(0, 1, SlowStart), phase(1, 9, Cwnd)],
            vec![phase(1, 5, Cwnd), phase(5, 6, Application)],
        ];
        let output = bands(&all.each_ref().map(Vec::as_slice));
        let output: Vec<_> = output
            .iter()
            .map(|b| (b.from, b.to, b.name.as_str()))
            .collect();
        assert_eq!(
            output,
            [
                (0.0, 1.0, "slow start"),
                (1.0, 9.0, "the congestion window")
            ]
        );
        assert!(bands(&[]).is_empty());
    }
}
