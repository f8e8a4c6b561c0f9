//! Two hosts, two clocks: how far they are apart, how fast they drift, and how sure that is.
//!
//! A packet from the first place to the second shows the offset plus its one-way delay, one in the other direction the
//! offset minus its delay. The quickest packets each way bound the offset (RFC 5905, section 8): it is right where both
//! paths take as long when they are empty, else wrong by half of the difference, which nothing at the two places can
//! show. Changes of a one-way delay do not depend on that, but on the drift: it is the slope of the quickest packets of
//! windows in time, direction by direction.

use model::packet::Packet;
use model::segment::tcp_flag::{ACK, FIN, RST, SYN};
use model::stats::median;
use model::{Clocks, Nanos};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// Packets of one place that are remembered. Of more, both places keep the same part of them.
const MOST_MARKS: usize = 1 << 20;
/// Windows in which the quickest packets are looked for.
const WINDOWS: usize = 16;
/// Windows that are enough for a drift, or for a step on either side of it.
const FEWEST: usize = 6;
const FEWEST_BESIDE_STEP: usize = 3;
/// Packets without data each way that are enough to leave out all others: a full one takes longer on a slow line.
const ENOUGH: usize = 8;
/// Two clocks differ by no more: each is within 500 ppm (MAXFREQ, RFC 5905, section 7.3 and figure 5).
const MOST_DRIFT: f64 = 1e-3;
/// Without a measured drift each clock is taken to be within this of the other: common crystals, steered by NTP.
const USUAL_DRIFT: f64 = 500e-6;
/// The smallest step of a clock that is reported, in nanoseconds.
const LEAST_STEP: f64 = 2_000.0;
/// So many times their median deviation what was seen may lie off the line.
const SURELY: f64 = 6.0;

/// The first of two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum First {}

/// The second of two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Second {}

/// A time by the clock of one of two hosts, in nanoseconds since its capture began. Those of two hosts cannot be
/// compared or subtracted; a [`Clocks`] converts them.
///
/// ```
/// use linerate_tcp::clock::{First, HostTime, Second};
/// let clocks = model::Clocks { offset_ns: 700, ..model::Clocks::default() };
/// let left = HostTime::<First>::new(model::Nanos(1_000));
/// let came = HostTime::<Second>::new(model::Nanos(1_750));
/// assert_eq!(came.by_first(&clocks).since(left), 50);
/// ```
///
/// ```compile_fail
/// use linerate_tcp::clock::{First, HostTime, Second};
/// let left = HostTime::<First>::new(model::Nanos(1_000));
/// let came = HostTime::<Second>::new(model::Nanos(1_750));
/// came.since(left);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostTime<H> {
    at: i64,
    host: PhantomData<H>,
}

impl<H> HostTime<H> {
    /// What the host's clock showed.
    pub fn new(at: Nanos) -> HostTime<H> {
        HostTime::at(i64::try_from(at.0).unwrap_or(i64::MAX))
    }

    fn at(at: i64) -> HostTime<H> {
        let host = PhantomData;
        HostTime { at, host }
    }

    /// From another time of the same host, in nanoseconds; below 0 if that is later.
    pub fn since(self, other: HostTime<H>) -> i64 {
        self.at.saturating_sub(other.at)
    }

    /// Later by this much.
    pub fn after(self, ns: i64) -> HostTime<H> {
        HostTime::at(self.at.saturating_add(ns))
    }

    /// Since the capture of the host began; 0 of what was before.
    pub fn nanos(self) -> Nanos {
        Nanos(u64::try_from(self.at).unwrap_or(0))
    }
}

impl HostTime<First> {
    /// The same moment by the second host's clock.
    pub fn by_second(self, clocks: &Clocks) -> HostTime<Second> {
        let drift = (self.at as f64 * clocks.drift_ppm * 1e-6).round() as i64;
        HostTime::at(
            self.at
                .saturating_add(clocks.offset_ns)
                .saturating_add(drift),
        )
    }
}

impl HostTime<Second> {
    /// The same moment by the first host's clock.
    pub fn by_first(self, clocks: &Clocks) -> HostTime<First> {
        let at = self.at.saturating_sub(clocks.offset_ns);
        let rate = clocks.drift_ppm * 1e-6;
        // at / (1 + rate), without the loss of large times.
        let drift = (at as f64 * (rate / (1.0 + rate))).round() as i64;
        HostTime::at(at.saturating_sub(drift))
    }
}

/// The same seen from the second host.
pub fn swapped(clocks: &Clocks) -> Clocks {
    let rate = clocks.drift_ppm * 1e-6;
    Clocks {
        offset_ns: HostTime::<Second>::at(0).by_first(clocks).at,
        drift_ppm: -clocks.drift_ppm / (1.0 + rate),
        ..*clocks
    }
}

/// A packet at one place.
#[derive(Clone, Copy)]
struct Mark {
    /// From what is the same at both places, wherever addresses are translated or segments joined between them.
    key: u64,
    at: Nanos,
    flow: FlowKind,
}

/// Between which hosts, in which direction, with or without data: [`BARE`], [`RISES`], and a hash of the addresses.
#[derive(Clone, Copy)]
struct FlowKind(u32);

impl FlowKind {
    const BARE: u32 = 1;
    const RISES: u32 = 2;

    fn of(packet: &Packet) -> FlowKind {
        let (from, to) = (packet.from.ip(), packet.to.ip());
        let bits = |ip: std::net::IpAddr| match ip {
            std::net::IpAddr::V4(ip) => u64::from(u32::from(ip)),
            std::net::IpAddr::V6(ip) => {
                let (high, low) = ((u128::from(ip) >> 64) as u64, u128::from(ip) as u64);
                mix(high) ^ low
            }
        };
        let hosts = mix(bits(from)) ^ mix(bits(to));
        // On one host the ports distinguish the directions.
        let rises = (from, packet.from.port()) < (to, packet.to.port());
        let kind =
            u32::from(packet.payload == 0) * FlowKind::BARE + u32::from(rises) * FlowKind::RISES;
        FlowKind(hosts as u32 & !(FlowKind::BARE | FlowKind::RISES) | kind)
    }

    fn hosts(self) -> u32 {
        self.0 & !(FlowKind::BARE | FlowKind::RISES)
    }

    fn rises(self) -> bool {
        self.0 & FlowKind::RISES != 0
    }

    fn is_bare(self) -> bool {
        self.0 & FlowKind::BARE != 0
    }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
fn mix(word: u64) -> u64 {
    let mut key = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// The packets that passed a place.
#[derive(Default)]
pub struct Marks {
    marks: Vec<Mark>,
    /// Only keys with so many zero bits are kept.
    thinned: u32,
    began: Option<Nanos>,
}

impl Marks {
    /// Moment 0 of the place, since 1970-01-01 UTC by its own clock; 0 where that is not known.
    pub fn begin(&mut self, since_1970: Nanos) {
        self.began = Some(since_1970).filter(|began| began.0 > 0);
    }

    /// Takes the next packet.
    pub fn push(&mut self, packet: &Packet) {
        let (stamp, echo) = packet.stamps.unwrap_or_default();
        // Segments that a host or its device joins or splits keep their end, and all but the length of the rest.
        let end = packet.seq.wrapping_add(packet.payload);
        let kind = packet.flags & (SYN | FIN | RST | ACK);
        let kind = u64::from(kind) << 1 | u64::from(packet.payload > 0);
        let key = mix(u64::from(end) << 32 | u64::from(packet.ack));
        let key = mix(key ^ (u64::from(stamp) << 32 | u64::from(echo))) ^ kind;
        let key = mix(key);
        if key.trailing_zeros() < self.thinned {
            return;
        }
        if self.marks.len() >= MOST_MARKS {
            self.thin(self.thinned + 1);
        }
        self.marks.push(Mark {
            key,
            at: packet.at,
            flow: FlowKind::of(packet),
        });
    }

    fn thin(&mut self, to: u32) {
        self.thinned = to;
        self.marks.retain(|mark| mark.key.trailing_zeros() >= to);
    }

    /// The first of each key: of what passes more than once, as in a capture on several devices, the quickest at either
    /// place. Two of different copies show a longer delay, never a shorter one.
    fn first_of_each(&mut self) -> impl Iterator<Item = &Mark> {
        self.marks.sort_unstable_by_key(|mark| (mark.key, mark.at));
        let alike = self.marks.chunk_by(|a, b| a.key == b.key);
        alike.filter_map(|same| same.first())
    }
}

/// A packet at both places: when at the first, and the second's clock minus the first's; both from the first pair's.
#[derive(Clone, Copy)]
struct ClockPair {
    at: f64,
    shift: f64,
    flow: FlowKind,
    /// From the first place to the second.
    forward: bool,
}

/// The clocks of two places; `None` if no packet each way passed both.
pub fn join(mut a: Marks, mut b: Marks) -> Option<Clocks> {
    let thinned = a.thinned.max(b.thinned);
    a.thin(thinned);
    b.thin(thinned);
    let began = a.began.zip(b.began);
    let mut same: Vec<(Nanos, i64, FlowKind)> = Vec::new();
    let mut others = b.first_of_each().peekable();
    for mark in a.first_of_each() {
        while others.next_if(|other| other.key < mark.key).is_some() {}
        if let Some(other) = others.next_if(|other| other.key == mark.key) {
            let shift = (other.at.0 as i64).wrapping_sub(mark.at.0 as i64);
            same.push((mark.at, shift, mark.flow));
        }
    }
    same.sort_unstable_by_key(|(at, ..)| *at);
    let (from, base, _) = *same.first()?;
    let pairs = same.iter().map(|(at, shift, flow)| ClockPair {
        at: at.since(from).0 as f64,
        shift: shift.wrapping_sub(base) as f64,
        flow: *flow,
        forward: false,
    });
    let found = estimate(directed(pairs.collect()))?;
    let drift_back = found.drift * from.0 as f64;
    let offset_ns = base.saturating_add((found.offset - drift_back).round() as i64);
    let apart = began.map(|(a, b)| (b.0 as i64).wrapping_sub(a.0 as i64));
    Some(Clocks {
        offset_ns,
        ahead_ns: apart.and_then(|apart| apart.checked_add(offset_ns)),
        drift_ppm: found.drift * 1e6,
        matched: same.len() as u64,
        asymmetry: nanos(found.asymmetry),
        residual: nanos(found.residual),
        error: nanos(found.asymmetry + found.residual),
        step: found.step.map(nanos),
    })
}

fn nanos(of: f64) -> Nanos {
    Nanos(of.ceil().max(0.0) as u64)
}

/// Says of each pair of hosts which of its directions leads from the first place to the second: that in which the shift
/// is larger than in the other one at about the same time. What is seen in one direction only is left out.
fn directed(mut pairs: Vec<ClockPair>) -> Vec<ClockPair> {
    /// The last shift, falling and rising, with its time; and how surely rising leads to the second place.
    #[derive(Default)]
    struct ShiftVotes([Option<(f64, f64)>; 2], f64);
    let mut votes: BTreeMap<u32, ShiftVotes> = BTreeMap::new();
    for pair in &pairs {
        let ShiftVotes(last, sum) = votes.entry(pair.flow.hosts()).or_default();
        let rises = pair.flow.rises();
        if let Some((at, other)) = last[usize::from(!rises)] {
            let apart = if rises {
                pair.shift - other
            } else {
                other - pair.shift
            };
            // Later the clocks have drifted.
            *sum += apart.signum() / (pair.at - at + 1000.0);
        }
        last[usize::from(rises)] = Some((pair.at, pair.shift));
    }
    pairs.retain_mut(|pair| {
        let sum = votes.get(&pair.flow.hosts()).map_or(0.0, |votes| votes.1);
        pair.forward = pair.flow.rises() == (sum > 0.0);
        sum != 0.0
    });
    pairs
}

/// What the pairs show, from the first of them on, in nanoseconds.
struct ClockFit {
    offset: f64,
    drift: f64,
    asymmetry: f64,
    residual: f64,
    step: Option<f64>,
}

/// The quickest packets of a direction, by windows: when, and their shift without a drift.
type Envelope = Vec<(usize, f64, f64)>;

/// The pairs in their windows.
struct PairWindows {
    pairs: Vec<ClockPair>,
    span: f64,
}

impl PairWindows {
    fn of(pairs: Vec<ClockPair>) -> PairWindows {
        let span = pairs.iter().map(|pair| pair.at).fold(0.0, f64::max);
        let mut windows = PairWindows { pairs, span };
        let bare = |p: &&ClockPair| p.flow.is_bare();
        let bare: Vec<ClockPair> = windows.pairs.iter().filter(bare).copied().collect();
        let enough = |forward| {
            let mut taken = [false; WINDOWS];
            let mut count = 0;
            for pair in bare.iter().filter(|pair| pair.forward == forward) {
                taken[windows.place(pair.at)] = true;
                count += 1;
            }
            count >= ENOUGH && taken.iter().filter(|taken| **taken).count() >= WINDOWS / 2
        };
        if enough(true) && enough(false) {
            windows.pairs = bare;
        }
        windows
    }

    fn place(&self, at: f64) -> usize {
        ((at / self.span.max(1.0) * WINDOWS as f64) as usize).min(WINDOWS - 1)
    }

    /// The quickest of each window.
    fn envelope(&self, forward: bool, drift: f64) -> Envelope {
        let mut quickest: [Option<(f64, f64)>; WINDOWS] = [None; WINDOWS];
        for pair in self.pairs.iter().filter(|pair| pair.forward == forward) {
            let shift = pair.shift - drift * pair.at;
            let known = &mut quickest[self.place(pair.at)];
            if known.is_none_or(|(_, known)| (shift < known) == forward && shift != known) {
                *known = Some((pair.at, shift));
            }
        }
        let all = quickest.into_iter().enumerate();
        all.filter_map(|(n, one)| one.map(|(at, shift)| (n, at, shift)))
            .collect()
    }
}

fn estimate(pairs: Vec<ClockPair>) -> Option<ClockFit> {
    let windows = PairWindows::of(pairs);
    let flat = [true, false].map(|forward| windows.envelope(forward, 0.0));
    let step = step(&flat);
    let Drift { drift, unsure } = match step {
        Some(step) => step.drift,
        None => drift(&windows, &flat),
    };
    let level = [true, false].map(|forward| windows.envelope(forward, drift));
    let (low, high) = bounds(&level)?;
    let [up, down] = level;
    let offset = (low + high) / 2.0;
    let asymmetry = (high - low).max(0.0) / 2.0;
    // Bounds that cross: the clocks have not run straight.
    let crossed = (low - high).max(0.0) / 2.0;
    let jump = step.map(|step| step.jump.abs());
    let delay = |pair: &ClockPair| (pair.shift - drift * pair.at - offset).abs();
    let longest = windows.pairs.iter().map(delay).fold(0.0, f64::max);
    let residual = unsure * (windows.span / 2.0 + longest) + crossed + jump.unwrap_or(0.0);
    // Each window bounds the offset by itself, whatever the clocks did meanwhile.
    let both = up.iter().filter_map(|(n, _, high)| {
        let (.., low) = down.iter().find(|(other, ..)| n == other)?;
        Some((high - offset).abs().max((offset - low).abs()))
    });
    let both: Vec<f64> = both.collect();
    let within = both.iter().copied().fold(0.0, f64::max) - asymmetry;
    let meanwhile = unsure * (windows.span / WINDOWS as f64 + longest);
    let residual = match both.len() == WINDOWS && step.is_none() {
        true => residual.min(within.max(0.0) + meanwhile),
        false => residual,
    };
    Some(ClockFit {
        offset,
        drift,
        asymmetry,
        residual,
        step: jump,
    })
}

/// Between these the offset is, if the clocks run straight: what the quickest packets each way allow.
fn bounds([up, down]: &[Envelope; 2]) -> Option<(f64, f64)> {
    let high = up.iter().map(|(.., shift)| *shift).reduce(f64::min)?;
    let low = down.iter().map(|(.., shift)| *shift).reduce(f64::max)?;
    Some((low, high))
}

/// A drift, and by how much it may be wrong.
#[derive(Clone, Copy)]
struct Drift {
    drift: f64,
    unsure: f64,
}

/// A line through the quickest packets of a direction.
struct DelayLine {
    slope: f64,
    /// How far they lie from it: median.
    scatter: f64,
    /// From the first to the last.
    span: f64,
}

impl DelayLine {
    fn of(envelope: &Envelope) -> Option<DelayLine> {
        let span = envelope.last()?.1 - envelope.first()?.1;
        (envelope.len() >= FEWEST && span > 0.0).then(|| {
            let slope = slope(envelope, |_, _| true);
            DelayLine {
                slope,
                scatter: scatter(envelope, slope),
                span,
            }
        })
    }

    /// By how much the slope may be wrong.
    fn unsure(&self) -> f64 {
        SURELY * self.scatter.max(1.0) / self.span
    }
}

/// The drift of the clocks: what both directions show, each by the quickest of its windows (Theil 1950, Sen 1968).
fn drift(windows: &PairWindows, flat: &[Envelope; 2]) -> Drift {
    let unknown = Drift {
        drift: 0.0,
        unsure: USUAL_DRIFT,
    };
    let lines = |drift: f64| {
        [true, false]
            .map(|forward| DelayLine::of(&windows.envelope(forward, drift)))
            .into_iter()
            .flatten()
            .collect::<Vec<DelayLine>>()
    };
    let plausible = |line: &DelayLine, drift: f64| (line.slope + drift).abs() <= MOST_DRIFT;
    let mut drift = 0.0;
    // Once the most of a drift is out of the windows, the quickest of each is known better.
    for _ in 0..3 {
        let mut lines = lines(drift);
        lines.retain(|line| plausible(line, drift));
        let weight = |line: &DelayLine| line.unsure().powi(-2);
        let all: f64 = lines.iter().map(weight).sum();
        if all == 0.0 {
            return unknown;
        }
        drift += lines.iter().map(|l| l.slope * weight(l)).sum::<f64>() / all;
    }
    let lines: Vec<DelayLine> = lines(drift)
        .into_iter()
        .filter(|l| plausible(l, drift))
        .collect();
    let of = |of: &dyn Fn(&DelayLine) -> f64| lines.iter().map(of).collect::<Vec<f64>>();
    let best = of(&DelayLine::unsure)
        .into_iter()
        .fold(f64::INFINITY, f64::min);
    let slopes = of(&|line| line.slope);
    // Where the two directions do not agree the drift is between them.
    let apart = slopes.iter().map(|slope| slope.abs()).fold(0.0, f64::max);
    if !best.is_finite() {
        return unknown;
    }
    let unsure = best.max(apart).min(MOST_DRIFT);
    // Only where a line fits clearly better than a level, or no level is possible.
    let crossed = |of: &[Envelope; 2]| bounds(of).is_some_and(|(low, high)| low > high);
    let is_better = |(flat, envelope): (&Envelope, Envelope)| {
        scatter(&envelope, 0.0) * 2.0 < scatter(flat, 0.0)
    };
    let straight = [true, false].map(|forward| windows.envelope(forward, drift));
    let is_needed = crossed(flat) && !crossed(&straight);
    match is_needed || flat.iter().zip(straight).any(is_better) {
        true => Drift { drift, unsure },
        false => Drift {
            drift: 0.0,
            unsure: (unsure + drift.abs()).min(USUAL_DRIFT),
        },
    }
}

/// A step of one of the clocks.
#[derive(Clone, Copy)]
struct ClockStep {
    jump: f64,
    drift: Drift,
}

/// One direction's windows before and after a moment, on two lines of one slope.
struct Halves {
    slope: f64,
    scatter: f64,
    jump: f64,
    span: f64,
}

impl Halves {
    fn of(envelope: &Envelope, first_after: usize) -> Option<Halves> {
        let split = envelope.partition_point(|(n, ..)| *n < first_after);
        let (before, after) = envelope.split_at(split);
        if before.len().min(after.len()) < FEWEST_BESIDE_STEP {
            return None;
        }
        let slope = slope(envelope, |a, b| (a < first_after) == (b < first_after));
        let level = |of: &[(usize, f64, f64)]| {
            median(of.iter().map(|(_, at, shift)| shift - slope * at)).unwrap_or(0.0)
        };
        let levels = [level(before), level(after)];
        let off = envelope.iter().enumerate();
        let off = off.map(|(n, (_, at, shift))| {
            (shift - slope * at - levels[usize::from(n >= split)]).abs()
        });
        Some(Halves {
            slope,
            scatter: median(off).unwrap_or(0.0),
            jump: levels[1] - levels[0],
            span: envelope.last()?.1 - envelope.first()?.1,
        })
    }
}

/// A step shows in both directions at once, by the same amount: no queue does that.
fn step(flat: &[Envelope; 2]) -> Option<ClockStep> {
    let splits = FEWEST_BESIDE_STEP..=WINDOWS - FEWEST_BESIDE_STEP;
    let halves = splits.filter_map(|n| Some([Halves::of(&flat[0], n)?, Halves::of(&flat[1], n)?]));
    let noise = |both: &[Halves; 2]| both[0].scatter + both[1].scatter;
    let both = halves.min_by(|a, b| noise(a).total_cmp(&noise(b)))?;
    let off = SURELY * noise(&both);
    let [up, down] = &both;
    let (least, most) = (
        up.jump.abs().min(down.jump.abs()),
        up.jump.abs().max(down.jump.abs()),
    );
    let is_one = up.jump.signum() == down.jump.signum() && most - least <= most / 4.0 + off;
    (is_one && least > LEAST_STEP + 2.0 * off).then(|| ClockStep {
        jump: up.jump.signum() * most,
        drift: Drift {
            drift: (up.slope + down.slope) / 2.0,
            unsure: (up.slope - down.slope).abs() + 2.0 * off / up.span.min(down.span).max(1.0),
        },
    })
}

/// The median of the slopes between all that belong together (Theil 1950, Sen 1968).
fn slope(envelope: &Envelope, together: impl Fn(usize, usize) -> bool) -> f64 {
    let mut slopes = Vec::new();
    for (n, (a, x, y)) in envelope.iter().enumerate() {
        let later = envelope[n + 1..].iter().filter(|(b, ..)| together(*a, *b));
        slopes.extend(
            later
                .filter(|(_, u, _)| u > x)
                .map(|(_, u, v)| (v - y) / (u - x)),
        );
    }
    median(slopes).unwrap_or(0.0)
}

/// How far the quickest lie from a line of this slope: the median.
fn scatter(envelope: &Envelope, slope: f64) -> f64 {
    let levels: Vec<f64> = envelope
        .iter()
        .map(|(_, at, shift)| shift - slope * at)
        .collect();
    let middle = median(&levels).unwrap_or(0.0);
    median(levels.iter().map(|level| (level - middle).abs())).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    /// A path between two hosts, and their clocks; times in nanoseconds.
    #[derive(Clone, Copy, Debug)]
    struct ClockPath {
        seed: u64,
        offset: i64,
        drift_ppm: f64,
        /// Of an empty path: forward, back.
        delays: [u64; 2],
        /// Mean of what is random beyond, each way.
        jitter: [u64; 2],
        /// A queue that fills and empties so high, each way.
        queue: [u64; 2],
        span: u64,
        packets: u64,
        step: i64,
    }

    struct Chance(u64);

    impl Chance {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(1);
            mix(self.0)
        }

        fn below(&mut self, most: u64) -> u64 {
            self.next() % most.max(1)
        }

        /// Exponential, of this mean.
        fn wait(&mut self, mean: u64) -> u64 {
            let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
            (-(1.0 - unit).ln() * mean as f64) as u64
        }
    }

    impl ClockPath {
        const PLAIN: ClockPath = ClockPath {
            seed: 1,
            offset: 250_000_000,
            drift_ppm: 0.0,
            delays: [10_000_000; 2],
            jitter: [100_000; 2],
            queue: [0; 2],
            span: 10_000_000_000,
            packets: 2000,
            step: 0,
        };

        /// The second's clock at a moment of the first's.
        fn second(&self, at: u64) -> i64 {
            let stepped = if at > self.span / 2 { self.step } else { 0 };
            at as i64 + self.offset + (at as f64 * self.drift_ppm * 1e-6) as i64 + stepped
        }

        fn queued(&self, way: usize, at: u64) -> u64 {
            // A sawtooth that is empty once in each of ten periods.
            let period = (self.span / 10).max(1);
            (self.queue[way] as f64 * ((at % period) as f64 / period as f64)) as u64
        }

        /// Data one way, an acknowledgement of each back; when each left and came, by a perfect clock: the first's.
        fn packets(&self) -> Vec<(Packet, u64, u64, bool)> {
            let end = |n: u8| SocketAddr::from(([10, 0, 0, n], 1000));
            let mut chance = Chance(self.seed);
            let mut all = Vec::new();
            for n in 0..self.packets {
                let left = 1_000_000 + self.span / self.packets * n + chance.below(1000);
                for (way, payload) in [(0, 1000), (1, 0)] {
                    let left = left + way as u64 * (self.delays[0] + 5_000);
                    let (from, to) = if way == 0 {
                        (end(1), end(2))
                    } else {
                        (end(2), end(1))
                    };
                    let came = left
                        + self.delays[way]
                        + chance.wait(self.jitter[way])
                        + self.queued(way, left);
                    let packet = Packet {
                        seq: (n * 1000) as u32,
                        ack: (n * 7) as u32,
                        payload,
                        flags: ACK,
                        ..Packet::new(from, to)
                    };
                    if chance.below(100) > 0 {
                        all.push((packet, left, came, way == 0));
                    }
                }
            }
            all
        }

        fn joined(&self) -> Clocks {
            let (mut a, mut b) = (Marks::default(), Marks::default());
            for (packet, left, came, forward) in self.packets() {
                let (first, second) = if forward { (left, came) } else { (came, left) };
                a.push(&Packet {
                    at: Nanos(first),
                    ..packet
                });
                let at = Nanos(u64::try_from(self.second(second)).unwrap());
                b.push(&Packet { at, ..packet });
            }
            join(a, b).unwrap()
        }

        /// The truth within the error at each moment, and every change of a one-way delay within the residual.
        fn check(&self) -> Clocks {
            let clocks = self.joined();
            let mut excess: Vec<(i64, i64)> = Vec::new();
            for (_, left, came, forward) in self.packets() {
                let at = HostTime::<First>::new(Nanos(if forward { left } else { came }));
                let truth = self.second(at.nanos().0);
                let wrong = at.by_second(&clocks).at - truth;
                assert!(
                    wrong.unsigned_abs() <= clocks.error.0 + 1,
                    "{self:?} {clocks:?} {wrong}"
                );
                if forward {
                    let left = HostTime::<First>::new(Nanos(left));
                    let arrived = HostTime::<Second>::at(self.second(came));
                    let delay = arrived.by_first(&clocks).since(left);
                    let truth = (came - left.nanos().0) as i64;
                    assert!(
                        (delay - truth).unsigned_abs() <= clocks.error.0 + 1,
                        "{self:?} {clocks:?}"
                    );
                    excess.push((delay, truth));
                }
            }
            let least = |of: fn(&(i64, i64)) -> i64| excess.iter().map(of).min().unwrap();
            let (seen, truth) = (least(|e| e.0), least(|e| e.1));
            for (delay, real) in &excess {
                let wrong = (delay - seen) - (real - truth);
                assert!(
                    wrong.unsigned_abs() <= 2 * clocks.residual.0 + 2,
                    "{self:?} {clocks:?} {wrong}"
                );
            }
            clocks
        }
    }

    #[test]
    fn the_truth_lies_within_the_error_whatever_the_path_and_the_clocks_do() {
        let mut chance = Chance(20_261_123);
        for seed in 0..300 {
            let scale = 10u64.pow(chance.below(4) as u32);
            let path = ClockPath {
                seed,
                offset: chance.below(20_000_000_000) as i64 + 1_000_000_000,
                drift_ppm: chance.below(1001) as f64 - 500.0,
                delays: [
                    10_000 + chance.below(20_000) * scale,
                    10_000 + chance.below(20_000) * scale,
                ],
                jitter: [chance.below(10_000) * scale, chance.below(10_000) * scale],
                queue: [
                    chance.below(50_000) * scale,
                    chance.below(2) * chance.below(50_000) * scale,
                ],
                span: 100_000_000 * 10u64.pow(chance.below(4) as u32),
                packets: 30 + chance.below(1000),
                step: 0,
            };
            path.check();
        }
    }

    #[test]
    fn a_drift_is_found_on_long_and_on_short_captures() {
        for drift_ppm in [0.0, 50.0, -200.0, 200.0, 500.0] {
            for (span, packets) in [
                (60_000_000_000, 6000),
                (10_000_000_000, 1000),
                (1_000_000_000, 1000),
            ] {
                let path = ClockPath {
                    drift_ppm,
                    span,
                    packets,
                    delays: [1_000; 2],
                    jitter: [2_000; 2],
                    ..ClockPath::PLAIN
                };
                let clocks = path.check();
                let most = 5e3 / span as f64 * 1e6 + 0.1;
                assert!(
                    (clocks.drift_ppm - drift_ppm).abs() < most,
                    "{path:?} {clocks:?}"
                );
                assert!(
                    clocks.residual < Nanos::from_micros(10),
                    "{path:?} {clocks:?}"
                );
                assert_eq!(clocks.step, None);
            }
        }
    }

    #[test]
    fn a_queue_of_one_direction_is_no_drift() {
        let path = ClockPath {
            queue: [80_000_000, 0],
            ..ClockPath::PLAIN
        };
        let clocks = path.check();
        assert!(clocks.drift_ppm.abs() < 10.0, "{clocks:?}");
        assert!(
            (clocks.offset_ns - path.offset).abs() < 100_000,
            "{clocks:?}"
        );
    }

    #[test]
    fn a_step_of_a_clock_is_reported_and_makes_the_error_larger() {
        for step in [5_000_000, -40_000_000, 900_000_000] {
            for drift_ppm in [0.0, 100.0] {
                let path = ClockPath {
                    step,
                    drift_ppm,
                    delays: [3_000_000, 12_000_000],
                    ..ClockPath::PLAIN
                };
                let clocks = path.check();
                let seen = clocks.step.unwrap();
                assert!(seen.0.abs_diff(step.unsigned_abs()) < 200_000, "{clocks:?}");
                assert!(clocks.error >= seen, "{clocks:?}");
                assert!((clocks.drift_ppm - drift_ppm).abs() < 20.0, "{clocks:?}");
            }
        }
    }

    #[test]
    fn seen_from_the_other_host_the_same_moments_belong_together() {
        let clocks = ClockPath {
            drift_ppm: 300.0,
            ..ClockPath::PLAIN
        }
        .joined();
        let back = swapped(&clocks);
        for at in [0, 1_000_000_000, 3_600_000_000_000] {
            let here = HostTime::<First>::new(Nanos(at));
            let there = here.by_second(&clocks);
            assert!(there.by_first(&clocks).since(here).abs() <= 1);
            let same = HostTime::<Second>::at(at as i64).by_first(&back);
            assert!((same.at - there.at).abs() <= 2, "{same:?} {there:?}");
        }
    }

    #[test]
    fn of_more_packets_than_are_kept_both_places_keep_the_same() {
        let (mut a, mut b) = (Marks::default(), Marks::default());
        for (packet, left, came, forward) in (ClockPath {
            packets: 3000,
            ..ClockPath::PLAIN
        })
        .packets()
        {
            let (first, second) = if forward { (left, came) } else { (came, left) };
            a.push(&Packet {
                at: Nanos(first),
                ..packet
            });
            b.push(&Packet {
                at: Nanos(second),
                ..packet
            });
        }
        a.thin(3);
        let clocks = join(a, b).unwrap();
        assert!((500..1000).contains(&clocks.matched), "{clocks:?}");
        assert!(clocks.offset_ns.abs() < 200_000, "{clocks:?}");
    }
}
