//! Queueing delay of acknowledgements, from samples of both ends: what had arrived when, and when it was acknowledged.

use crate::facts::ReverseQueueing;
use model::{Bytes, Nanos};

/// Fewer samples do not show what goes along with what.
const FEWEST: usize = 5;
/// Part of the changes of a delay that goes along with those of another, from which one makes the other (the square of
/// Pearson's coefficient of correlation): of fewer samples than so many, and of more.
const FEW: usize = 10;
const GOES_ALONG: [f64; 2] = [0.9, 0.5];
/// Growth of the reverse path by that of the round trip, from which the queue is there.
const MOST_OF_IT: f64 = 0.5;

/// The time from the moment at which the receiver had data until the sender sees them acknowledged contains the difference of
/// their clocks. But when round trips grow, it grows as well if the queue is on the reverse path, and else does not: by how
/// much, a line through all samples shows (least squares). `acked` has the moment, the RTT and the bytes of each.
pub(crate) fn queueing(
    acked: impl Iterator<Item = (Nanos, Nanos, Bytes)>,
    arrived: &[(Nanos, Bytes)],
    min_rtt: Nanos,
) -> Option<ReverseQueueing> {
    let both = acked.filter_map(|(at, srtt, acked)| {
        let had = had(arrived, acked)?;
        Some((srtt.0 as f64, at.0 as f64 - had))
    });
    let both: Vec<(f64, f64)> = both.collect();
    if both.len() < FEWEST {
        return None;
    }
    let mean = |of: &dyn Fn(f64, f64) -> f64| {
        both.iter().map(|(x, y)| of(*x, *y)).sum::<f64>() / both.len() as f64
    };
    let (srtt, late) = (mean(&|x, _| x), mean(&|_, y| y));
    let varies = mean(&|x, _| (x - srtt) * (x - srtt));
    let late_varies = mean(&|_, y| (y - late) * (y - late));
    let together = mean(&|x, y| (x - srtt) * (y - late));
    let along = together * together / (varies * late_varies);
    let slope = together / varies;
    let all = Nanos(srtt as u64).since(min_rtt);
    let enough = GOES_ALONG[usize::from(both.len() >= FEW)];
    (along >= enough && slope >= MOST_OF_IT)
        .then(|| ReverseQueueing::of(Nanos((all.0 as f64 * slope) as u64), all))
}

/// When so many bytes had arrived, in nanoseconds: on the line between two samples.
fn had(arrived: &[(Nanos, Bytes)], bytes: Bytes) -> Option<f64> {
    let place = arrived.partition_point(|(_, known)| *known < bytes);
    let (before, after) = (arrived.get(place.checked_sub(1)?)?, arrived.get(place)?);
    let part = bytes.since(before.1).0 as f64 / after.1.since(before.1).0.max(1) as f64;
    Some(before.0.0 as f64 + after.0.since(before.0).0 as f64 * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two seconds at a byte in a microsecond, sampled each 20 ms by clocks that differ by 70 ms. The round trip grows from 20
    /// to 220 ms, by so many parts of a hundred on the reverse path.
    fn share(back: u64) -> Option<f64> {
        let arrived: Vec<(Nanos, Bytes)> = (0..200)
            .map(|n| (Nanos::from_millis(n * 20), Bytes(n * 20_000)))
            .collect();
        let acked = (1..100).map(|n| {
            let queued = Nanos::from_millis(2 * n);
            // The sampler is late by up to 15 ms.
            let late = Nanos::from_millis(70 + 10 + n * 7 % 16);
            let at = Nanos::from_millis(n * 20) + late + Nanos(queued.0 / 100 * back);
            (at, Nanos::from_millis(20) + queued, Bytes(n * 20_000))
        });
        let way = queueing(acked, &arrived, Nanos::from_millis(20))?;
        Some(way.share())
    }

    #[test]
    fn a_queue_of_acknowledgements_is_seen_though_the_clocks_differ() {
        assert!(
            share(100).is_some_and(|share| share > 0.9),
            "{:?}",
            share(100)
        );
        assert!(
            share(70).is_some_and(|share| share > 0.5),
            "{:?}",
            share(70)
        );
        assert_eq!(share(20), None);
        assert_eq!(share(0), None);
    }

    #[test]
    fn five_samples_are_the_fewest_and_lie_between_two_of_the_receivers() {
        let arrived = [
            (Nanos(0), Bytes(0)),
            (Nanos(1000), Bytes(100)),
            (Nanos(3000), Bytes(200)),
        ];
        assert_eq!(had(&arrived, Bytes(50)), Some(500.0));
        assert_eq!(had(&arrived, Bytes(150)), Some(2000.0));
        assert_eq!(had(&arrived, Bytes(200)), Some(3000.0));
        assert_eq!(
            [had(&arrived, Bytes(0)), had(&arrived, Bytes(201))],
            [None, None]
        );
        // The round trip grows from 20 by 1 ms each, and acknowledgements are late by as much, or by so many parts of it.
        let of = |many: u64, part: f64| {
            let line: Vec<(Nanos, Bytes)> = (0..=many + 1)
                .map(|n| (Nanos::from_millis(n * 10), Bytes(n * 1000)))
                .collect();
            let acked = (1..=many).map(|n| {
                let late = Nanos((n as f64 * part * 1e6) as u64);
                let at = Nanos::from_millis(n * 10) + late;
                (at, Nanos::from_millis(20 + n), Bytes(n * 1000))
            });
            let found = queueing(acked, &line, Nanos::from_millis(20))?;
            Some(((found.delay.0 + 500) / 1000, found.all.0 / 1000))
        };
        // 5.5 ms on the average, and 3 ms.
        assert_eq!(of(10, 1.0), Some((5500, 5500)));
        assert_eq!([of(5, 1.0), of(4, 1.0)], [Some((3000, 3000)), None]);
        assert_eq!(of(10, 0.6), Some((3300, 5500)));
        assert_eq!(of(10, 0.4), None);
        assert_eq!(of(10, 0.0), None);
    }
}
