//! The clocks of two captures, joined by the packets that are in both.
//!
//! A packet from the first place to the second shows the offset and the way, one in the other direction the offset
//! less the way: the quickest of each give the offset, right where both ways take as long when they are empty (RFC
//! 5905, section 8). Only bare packets are compared where there are such: a full one takes longer on a slow line.

use model::Nanos;
use model::packet::Packet;
use model::request::Clocks;

/// Packets of one place that are remembered.
const MOST_MARKS: usize = 1 << 20;
/// Windows in which the offset is looked at for its drift.
const WINDOWS: usize = 16;
/// Bare packets each way that are enough to leave out all others.
const ENOUGH: usize = 8;
/// Windows that a drift can be seen in, and time.
const FEWEST: usize = 6;
const SHORTEST: Nanos = Nanos::from_secs(2);

/// A packet at one place.
struct Mark {
    /// From what is the same at both places, whatever translates addresses between them.
    key: u64,
    at: Nanos,
    bare: bool,
    /// From the lesser address to the greater.
    rises: bool,
}

/// The packets that passed a place.
#[derive(Default)]
pub(crate) struct Marks(Vec<Mark>);

impl Marks {
    pub fn see(&mut self, packet: &Packet) {
        if self.0.len() >= MOST_MARKS {
            return;
        }
        let (stamp, echo) = packet.stamps.unwrap_or_default();
        let words = [packet.seq, packet.ack, packet.payload, stamp, echo];
        let start = u64::from(packet.flags & 0x3f) << 16 | u64::from(packet.window);
        // The finaliser of splitmix64 (Steele, Lea, Flood 2014) behind each word.
        let key = words.into_iter().fold(start, |key, word| {
            let mut key = (key ^ u64::from(word)).wrapping_add(0x9e37_79b9_7f4a_7c15);
            key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            key ^ key >> 31
        });
        self.0.push(Mark {
            key,
            at: packet.at,
            bare: packet.payload == 0,
            rises: packet.from < packet.to,
        });
    }

    /// Those that look like no other, by their key.
    fn unique(&mut self) -> impl Iterator<Item = &Mark> {
        self.0.sort_unstable_by_key(|mark| mark.key);
        let alike = self.0.chunk_by(|a, b| a.key == b.key);
        alike.filter_map(|same| match same {
            [one] => Some(one),
            _ => None,
        })
    }
}

/// A packet at both places: when at the first, the second's clock less the first's, and its direction.
#[derive(Clone, Copy)]
struct Pair {
    at: f64,
    shift: f64,
    rises: bool,
    bare: bool,
}

/// Joins the clocks of two places; `None` if no packet each way is in both.
pub(crate) fn joined(mut a: Marks, mut b: Marks) -> Option<Clocks> {
    let mut pairs: Vec<Pair> = Vec::new();
    let mut others = b.unique().peekable();
    for mark in a.unique() {
        while others.next_if(|other| other.key < mark.key).is_some() {}
        let same = others.next_if(|other| other.key == mark.key);
        if let Some(other) = same.filter(|other| other.rises == mark.rises) {
            let at = mark.at.0 as f64;
            pairs.push(Pair {
                at,
                shift: other.at.0 as f64 - at,
                rises: mark.rises,
                bare: mark.bare,
            });
        }
    }
    let matched = pairs.len() as u64;
    let bare = |rises| pairs.iter().filter(|p| p.bare && p.rises == rises).count();
    if bare(true).min(bare(false)) >= ENOUGH {
        pairs.retain(|pair| pair.bare);
    }

    let first = pairs
        .iter()
        .map(|pair| pair.at)
        .fold(f64::INFINITY, f64::min);
    let last = pairs.iter().map(|pair| pair.at).fold(0.0, f64::max);
    let window = (last - first) / WINDOWS as f64;
    let mut middles = Vec::new();
    for n in 0..WINDOWS {
        let from = first + window * n as f64;
        let inside = |pair: &&Pair| pair.at >= from && pair.at < from + window;
        let inside: Vec<Pair> = pairs.iter().filter(inside).copied().collect();
        if let Some((low, high)) = bounds(&inside) {
            middles.push((from + window / 2.0, (low + high) / 2.0));
        }
    }
    let mut drift = 0.0;
    if middles.len() >= FEWEST && last - first >= SHORTEST.0 as f64 {
        let slope = slope(&middles);
        // Only where a line says clearly more than a point.
        if scatter(&middles, slope) * 2.0 < scatter(&middles, 0.0) {
            drift = slope;
        }
    }
    let level: Vec<Pair> = pairs
        .iter()
        .map(|pair| Pair {
            shift: pair.shift - drift * pair.at,
            ..*pair
        })
        .collect();
    let (low, high) = bounds(&level)?;
    Some(Clocks {
        offset_ns: ((low + high) / 2.0) as i64,
        drift_ppm: drift * 1e6,
        matched,
        error: Nanos(((high - low).abs() / 2.0) as u64),
    })
}

/// Between these the offset is: what the quickest packets of either direction allow.
fn bounds(pairs: &[Pair]) -> Option<(f64, f64)> {
    let of = |rises: bool| {
        let mut shifts: Vec<f64> = pairs
            .iter()
            .filter(|p| p.rises == rises)
            .map(|p| p.shift)
            .collect();
        shifts.sort_by(f64::total_cmp);
        let middle = *shifts.get(shifts.len() / 2)?;
        Some((*shifts.first()?, middle, *shifts.last()?))
    };
    let (up, down) = (of(true)?, of(false)?);
    Some(match up.1 >= down.1 {
        // Rising packets came by the first place first.
        true => (down.2, up.0),
        false => (up.2, down.0),
    })
}

/// The median of all slopes (Theil 1950, Sen 1968).
fn slope(points: &[(f64, f64)]) -> f64 {
    let mut slopes = Vec::new();
    for (n, (x, y)) in points.iter().enumerate() {
        slopes.extend(points[n + 1..].iter().map(|(u, v)| (v - y) / (u - x)));
    }
    median(slopes)
}

/// How far points lie from a line of this slope: the median.
fn scatter(points: &[(f64, f64)], slope: f64) -> f64 {
    let heights: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let middle = median(heights.clone());
    median(
        heights
            .iter()
            .map(|height| (height - middle).abs())
            .collect(),
    )
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}

/// A time by the clock of the second place, by that of the first.
pub(crate) fn by_first(clocks: &Clocks, at: Nanos) -> i64 {
    let drift = clocks.drift_ppm * 1e-6;
    let by_first = (at.0 as f64 - clocks.offset_ns as f64) / (1.0 + drift);
    by_first as i64
}
