//! The rate of the slowest link, by packets that arrive one right behind the other: it spaced them so (packet pairs: Keshav
//! 1991, Dovrolis, Ramanathan and Moore 2004). Of a faster link than some 100 Mbit/s nothing is said: what is gathered on its
//! way, and what a sender spreads out, look alike there.

use model::Nanos;
use model::stats::percentile;

/// What arrives in so much time is taken as one: devices and kernels gather packets before they pass them on.
const GATHERED: Nanos = Nanos::from_micros(100);
/// Packets or acknowledgements that are looked at, and the fewest arrivals that show a spacing.
pub(crate) const MOST: usize = 2048;
const FEWEST: usize = 32;
/// Spacings that differ by so much are the same (natural logarithm of their ratio).
const SAME: f64 = 0.06;
/// Part of the spacings that are the same, where a link makes them. A sender that paces sends two segments at a time at
/// the least, so that half of them show the link.
const A_LINKS: f64 = 0.15;
/// The most frequent rate is at most so much below the highest that is frequent.
const NEAR: f64 = 0.15;
/// Part of the spacings that may be shorter than the link's: of more, no spacing is a link's.
const SHORTER: f64 = 0.3;

/// In bytes of payload a second, by what arrived last, in the order of time; `None` where its spacing shows none.
pub(crate) fn of(arrived: impl DoubleEndedIterator<Item = (Nanos, u32)>, mss: u32) -> Option<f64> {
    // Backwards: each is behind the one that follows here.
    let mut arrived = arrived.rev().take(MOST);
    let (mut last, mut bytes) = arrived.next()?;
    // Shorter ones were spaced by their application.
    let mut full = bytes >= mss.max(1);
    let mut rates = Vec::new();
    for (at, more) in arrived {
        let apart = last.since(at);
        if apart >= GATHERED {
            if full {
                rates.push((f64::from(bytes) / apart.as_secs_f64()).ln());
            }
            (last, bytes, full) = (at, 0, true);
        }
        bytes = bytes.saturating_add(more);
        full &= more >= mss;
    }
    if rates.len() < FEWEST {
        return None;
    }
    rates.sort_unstable_by(f64::total_cmp);
    let same = |from: usize| rates[from..].partition_point(|rate| *rate <= rates[from] + SAME);
    let least = (rates.len() as f64 * A_LINKS).ceil() as usize;
    let highest = (0..rates.len()).rev().find(|n| same(*n) >= least)?;
    let near = rates.partition_point(|rate| *rate < rates[highest] - NEAR);
    let most = (near..=highest).max_by_key(|n| same(*n))?;
    let rate = rates[most + same(most) / 2];
    let shorter = rates.len() - rates.partition_point(|known| *known <= rate + NEAR);
    let rate = rate.exp();
    let is_seen = rate <= f64::from(mss) / GATHERED.as_secs_f64();
    (is_seen && shorter as f64 <= rates.len() as f64 * SHORTER).then_some(rate)
}

/// Segments that a sender that paces sends together, at the most: `tcp_tso_autosize` (`net/ipv4/tcp_output.c`) takes two at
/// least.
const TOGETHER: u64 = 4;
/// Time before a packet by what it takes on the link, from which it begins a burst.
const APART: f64 = 1.5;
/// Part of the bursts that may be larger.
const LARGER: f64 = 0.1;

/// Half the span from the first to the last decile of the time from one burst to the next, by its median, where bursts are as
/// small as those of a sender that paces. A burst is what arrives at the rate that the slowest link carries.
pub(crate) fn spread(
    arrived: impl DoubleEndedIterator<Item = (Nanos, u32)>,
    mss: u32,
    capacity: f64,
) -> Option<f64> {
    let mut arrived = arrived.rev().take(MOST);
    let (mut at, mut payload) = arrived.next()?;
    let (mut apart, mut larger) = (Vec::new(), 0u32);
    let (mut bytes, mut next) = (0u64, None::<Nanos>);
    for (before, more) in arrived {
        bytes += u64::from(payload);
        // Longer than it takes on the link: it is the first of its burst.
        if at.since(before).as_secs_f64() > APART * f64::from(payload) / capacity {
            larger += u32::from(bytes > TOGETHER * u64::from(mss));
            apart.extend(next.map(|next| next.since(at)));
            (bytes, next) = (0, Some(at));
        }
        (at, payload) = (before, more);
    }
    let small = f64::from(larger) <= apart.len() as f64 * LARGER;
    if apart.len() < FEWEST || !small {
        return None;
    }
    spread_by_median(&mut apart)
}

/// Half the span from the first to the last decile, by the median.
pub(crate) fn spread_by_median(apart: &mut [Nanos]) -> Option<f64> {
    let [low, mid, high] = [0.1, 0.5, 0.9].map(|part| percentile(apart, part));
    Some(high?.since(low?).0 as f64 / 2.0 / mid?.0 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand segments of 1000 bytes, each so many microseconds behind the one before.
    fn arrived(apart_us: impl Fn(u64) -> u64) -> std::vec::IntoIter<(Nanos, u32)> {
        let arrived = (0..1000).scan(0, |at, n| {
            *at += apart_us(n);
            Some((Nanos::from_micros(*at), 1000))
        });
        arrived.collect::<Vec<_>>().into_iter()
    }

    fn spaced(apart_us: impl Fn(u64) -> u64) -> Option<f64> {
        of(arrived(apart_us), 1000)
    }

    #[test]
    fn small_bursts_of_a_clock_are_even_and_those_of_a_window_are_not() {
        // So many segments at 2.5 MB/s, and a pause.
        let bursts = |of: u64, pause: fn(u64) -> u64| {
            let apart = |n: u64| if n.is_multiple_of(of) { pause(n) } else { 400 };
            spread(arrived(apart), 1000, 2.5e6)
        };
        assert_eq!(bursts(2, |_| 3600), Some(0.0));
        assert_eq!(bursts(4, |_| 3600), Some(0.0));
        assert_eq!(bursts(5, |_| 3600), None, "larger ones");
        // A window of some bursts, which wait for their acknowledgements.
        let window = |n: u64| if n.is_multiple_of(16) { 20_000 } else { 3600 };
        assert!(bursts(2, window).is_some_and(|spread| spread > 1.0));
        assert_eq!(spread(arrived(|_| 400), 1000, 2.5e6), None, "a full link");
        assert_eq!(spread([].into_iter(), 0, 1.0), None);
    }

    #[test]
    fn the_shortest_spacing_that_is_frequent_is_the_links() {
        let is = |rate: Option<f64>, expected: f64| {
            rate.is_some_and(|rate| (rate / expected - 1.0).abs() < 0.03)
        };
        // A full line of 2.5 MB/s; pairs at it, by a sender that paces at 0.5 MB/s; a few that a processor had held up.
        assert!(is(spaced(|_| 400), 2.5e6));
        assert!(is(spaced(|n| if n % 2 == 0 { 400 } else { 3600 }), 2.5e6));
        assert!(is(spaced(|n| if n % 20 == 0 { 150 } else { 400 }), 2.5e6));
        // A device that passes on four at a time, at that rate; a faster link.
        assert!(is(spaced(|n| if n % 4 == 0 { 1600 } else { 1 }), 2.5e6));
        assert_eq!(spaced(|_| 90), None);
        // Spread without a rule.
        assert_eq!(spaced(|n| 100 + n * 7919 % 3000), None);
        assert_eq!(of([].into_iter(), 0), None);
    }

    #[test]
    fn only_arrivals_of_full_segments_count_and_33_show_a_spacing() {
        let pairs = |many: u64, first: u32, second: u32| {
            let all = (0..many).flat_map(move |n| {
                [
                    (Nanos::from_micros(n * 400), first),
                    (Nanos::from_micros(n * 400 + 1), second),
                ]
            });
            of(all.collect::<Vec<_>>().into_iter(), 1000)
        };
        let about = |found: Option<f64>| found.is_some_and(|f| (f / 5e6 - 1.0).abs() < 0.01);
        assert!(about(pairs(33, 1000, 1000)) && pairs(32, 1000, 1000).is_none());
        assert_eq!([pairs(99, 999, 1000), pairs(99, 1000, 999)], [None, None]);
    }
}
