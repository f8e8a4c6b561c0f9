//! Two captures or traces of the same connections, one on either side of a path: what left one place and never reached
//! the other, which retransmissions were needed, how long each direction took beyond its shortest, and how long
//! acknowledgements were held back.

use crate::clock::{First, HostTime, Second, swapped};
use crate::seq::Unwrap;
use crate::thresholds::{TIMESTAMP_PRECISION, held_back};
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, SYN};
use model::{Bytes, Clocks, Nanos, PathFigures};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Packets of one place that are remembered for the comparison: the first ones.
pub const MOST_PASSES: usize = 1 << 22;

/// Both ends of a connection: sender and receiver, or the lesser first.
type PacketKey = (SocketAddr, SocketAddr);

/// The same for both directions.
pub fn either_way(a: SocketAddr, b: SocketAddr) -> (SocketAddr, SocketAddr) {
    (a.min(b), a.max(b))
}

/// What passed one place of one connection. The first half is what the first of its ends sent.
pub struct Passes {
    ends: PacketKey,
    halves: [HalfPasses; 2],
}

#[derive(Default)]
struct HalfPasses {
    /// Sequence number of the SYN.
    isn: Option<u32>,
    passes: Vec<PassedSegment>,
}

#[derive(Clone, Copy)]
struct PassedSegment {
    at: Nanos,
    seq: u32,
    payload: u32,
    ack: u32,
    has_ack: bool,
    again: bool,
}

impl Passes {
    /// Of a connection with these ends; nothing so far.
    pub fn new(from: SocketAddr, to: SocketAddr) -> Passes {
        Passes {
            ends: (from, to),
            halves: Default::default(),
        }
    }

    /// The initial sequence numbers of both halves, where they are known without its packets.
    pub fn begins(&mut self, isns: [Option<u32>; 2]) {
        let halves = self.halves.iter_mut().zip(isns);
        halves.for_each(|(half, isn)| half.isn = half.isn.or(isn));
    }

    /// Takes the next packet; whether it is a retransmission.
    pub fn push(&mut self, packet: &Packet, again: bool) {
        let half = &mut self.halves[usize::from(packet.from != self.ends.0)];
        if packet.has(SYN) {
            half.isn = Some(packet.seq);
            return;
        }
        half.passes.push(PassedSegment {
            at: packet.at,
            seq: packet.seq,
            payload: packet.payload,
            ack: packet.ack,
            has_ack: packet.has(ACK),
            again,
        });
    }

    /// Sender and receiver of a half.
    pub fn flow(&self, half: usize) -> (SocketAddr, SocketAddr) {
        match half {
            0 => self.ends,
            _ => (self.ends.1, self.ends.0),
        }
    }

    /// Whether two places saw the same connection: by its addresses, or, where they were translated between them, by
    /// both initial sequence numbers. Says which half of the other is the first of this.
    fn is_same(&self, other: &Passes) -> Option<usize> {
        let isns = |of: &Passes, first: usize| of.halves[first].isn.zip(of.halves[1 - first].isn);
        [0, 1]
            .into_iter()
            .find(|first| match (isns(self, 0), isns(other, *first)) {
                (Some(mine), Some(theirs)) => mine == theirs,
                _ => self.ends == other.flow(*first),
            })
    }

    /// Both initial sequence numbers, the lesser first, where they were seen.
    fn isns(&self) -> Option<[u32; 2]> {
        let [a, b] = [self.halves[0].isn?, self.halves[1].isn?];
        Some([a.min(b), a.max(b)])
    }

    /// Sequence number of the first byte of a half.
    fn first(&self, half: usize) -> Option<u32> {
        let half = &self.halves[half];
        let data = || half.passes.iter().find(|p| p.payload > 0).map(|p| p.seq);
        half.isn.map(|isn| isn.wrapping_add(1)).or_else(data)
    }

    /// The data of one half, with what the other half acknowledged of it, from this sequence number on.
    fn line<H>(&self, half: usize, first: u32) -> DirectionPasses<H> {
        let mut line = DirectionPasses {
            data: Vec::new(),
            acks: Vec::new(),
        };
        let mut stream = Unwrap::new(first);
        for pass in self.halves[half].passes.iter().filter(|p| p.payload > 0) {
            let from = stream.follow(pass.seq);
            line.data.push(SentRange {
                at: HostTime::new(pass.at),
                from,
                to: from + u64::from(pass.payload),
                again: pass.again,
            });
        }
        let mut stream = Unwrap::new(first);
        let mut most = Unwrap::ORIGIN;
        for pass in self.halves[1 - half].passes.iter().filter(|p| p.has_ack) {
            let ack = stream.follow(pass.ack);
            if ack > most {
                most = ack;
                line.acks.push((HostTime::new(pass.at), ack));
            }
        }
        line
    }
}

/// The connections of a place, found without a look at each of them.
pub struct SideIndex<'a> {
    connections: &'a [Passes],
    by_ends: BTreeMap<PacketKey, Vec<usize>>,
    by_isns: BTreeMap<[u32; 2], Vec<usize>>,
}

impl<'a> SideIndex<'a> {
    /// Of these connections.
    pub fn of(connections: &'a [Passes]) -> SideIndex<'a> {
        let mut index = SideIndex {
            connections,
            by_ends: BTreeMap::new(),
            by_isns: BTreeMap::new(),
        };
        for (n, one) in connections.iter().enumerate() {
            let key = either_way(one.ends.0, one.ends.1);
            index.by_ends.entry(key).or_default().push(n);
            if let Some(isns) = one.isns() {
                index.by_isns.entry(isns).or_default().push(n);
            }
        }
        index
    }

    /// The first that is the same connection, where that half of it which is the first of `one` suits.
    pub fn find(&self, one: &Passes, suits: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
        let by_ends = self.by_ends.get(&either_way(one.ends.0, one.ends.1));
        let by_isns = one.isns().and_then(|isns| self.by_isns.get(&isns));
        let candidates = by_ends.into_iter().chain(by_isns).flatten();
        let same = candidates.filter_map(|n| Some((*n, one.is_same(&self.connections[*n])?)));
        same.filter(|(_, half)| suits(*half)).min()
    }
}

/// Data that passed a place, by its positions in the stream.
struct SentRange<H> {
    at: HostTime<H>,
    from: u64,
    to: u64,
    again: bool,
}

/// One direction of a connection at one place: each in the order of time.
struct DirectionPasses<H> {
    data: Vec<SentRange<H>>,
    /// When, up to; rising.
    acks: Vec<(HostTime<H>, u64)>,
}

/// Bytes that passed, and when first.
struct FirstPasses<H>(BTreeMap<u64, (u64, HostTime<H>)>);

impl<H: Copy> FirstPasses<H> {
    fn of<'a>(data: impl IntoIterator<Item = &'a SentRange<H>>) -> FirstPasses<H>
    where
        H: 'a,
    {
        let mut first = FirstPasses(BTreeMap::new());
        for range in data {
            first.add(range);
        }
        first
    }

    /// Adds a range; returns how many of its bytes are new.
    fn add(&mut self, range: &SentRange<H>) -> u64 {
        let (mut from, to) = (range.from, range.to);
        let mut new = 0;
        while from < to {
            let before = self.0.range(..=from).next_back();
            if let Some((_, (end, _))) = before.filter(|(_, (end, _))| *end > from) {
                from = *end;
                continue;
            }
            let next = self.0.range(from..).next().map_or(to, |(next, _)| *next);
            let until = next.min(to);
            self.0.insert(from, (until, range.at));
            new += until - from;
            from = until;
        }
        new
    }

    fn when(&self, byte: u64) -> Option<HostTime<H>> {
        let (_, (end, at)) = self.0.range(..=byte).next_back()?;
        (*end > byte).then_some(*at)
    }
}

/// What both places show together of one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TwoVantage {
    /// Bytes that passed the first place, retransmissions included.
    pub sent: u64,
    /// Bytes of them that never passed the second.
    pub lost: u64,
    /// Bytes that the second place's capture lacks although they were acknowledged: at least so many.
    pub unseen: u64,
    /// When the first of them left, from the first data on, where that is known.
    pub first_lost: Option<Nanos>,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// Of them, those of which an earlier copy arrived all the same.
    pub needless: u64,
    /// One-way delay of data beyond the shortest: median and largest.
    pub forward: Option<(Nanos, Nanos)>,
    /// The same of acknowledgements.
    pub reverse: Option<(Nanos, Nanos)>,
    /// By so much these delays can be wrong: see [`Clocks::residual`].
    pub error: Nanos,
    /// How long the second place, if it is the receiver, held acknowledgements: median and largest.
    pub held: Option<(Nanos, Nanos)>,
    /// Acknowledgements.
    pub acks: u64,
    /// Of them, those that were delayed.
    pub delayed: u64,
}

impl TwoVantage {
    /// The same in figures; `None` if no data or no acknowledgement passed both places.
    pub fn figures(&self) -> Option<PathFigures> {
        let ((forward_median, forward_max), (reverse_median, reverse_max)) =
            self.forward.zip(self.reverse)?;
        Some(PathFigures {
            lost: Bytes(self.lost),
            forward_median,
            forward_max,
            reverse_median,
            reverse_max,
            error: self.error,
        })
    }
}

/// One direction at two places.
pub enum ComparedDirection {
    /// The data passed the first place first.
    Forward(TwoVantage),
    /// The data passed the second place first: results name it the first.
    Backward(TwoVantage),
}

/// One direction of a connection that passed two places.
pub struct BothPlaces<'a> {
    /// The connection at the two places.
    pub places: (&'a Passes, &'a Passes),
    /// The half of either that sends.
    pub halves: (usize, usize),
    /// Bytes of a full segment, where that is known.
    pub segment: Option<u32>,
}

impl BothPlaces<'_> {
    /// What both places show; `None` if nothing passed both.
    pub fn compare(&self, clocks: &Clocks) -> Option<ComparedDirection> {
        let (near, far) = self.lines()?;
        if usual(&near, &far, clocks)? >= 0 {
            return compare(&near, &far, clocks, self.segment(&near))
                .map(ComparedDirection::Forward);
        }
        let back = BothPlaces {
            places: (self.places.1, self.places.0),
            halves: (self.halves.1, self.halves.0),
            segment: self.segment,
        };
        back.compare_forward(&swapped(clocks))
            .map(ComparedDirection::Backward)
    }

    /// The same where the first place is the sender's.
    pub fn compare_forward(&self, clocks: &Clocks) -> Option<TwoVantage> {
        let (near, far) = self.lines()?;
        compare(&near, &far, clocks, self.segment(&near))
    }

    fn lines(&self) -> Option<(DirectionPasses<First>, DirectionPasses<Second>)> {
        let first = self.places.0.first(self.halves.0);
        let first = first.or_else(|| self.places.1.first(self.halves.1))?;
        let near = self.places.0.line(self.halves.0, first);
        Some((near, self.places.1.line(self.halves.1, first)))
    }

    fn segment<H>(&self, line: &DirectionPasses<H>) -> u64 {
        let usual = |to: &u64| *to <= u64::from(crate::thresholds::LARGEST_FRAME);
        let largest = || {
            line.data
                .iter()
                .map(|range| range.to - range.from)
                .filter(usual)
                .max()
        };
        let known = self.segment.filter(|segment| *segment > 0).map(u64::from);
        known
            .or_else(largest)
            .unwrap_or(crate::thresholds::USUAL_SEGMENT.into())
    }
}

/// The usual time from one place to the other, in nanoseconds; below 0 if data pass the second place first.
fn usual(a: &DirectionPasses<First>, b: &DirectionPasses<Second>, clocks: &Clocks) -> Option<i64> {
    let left = FirstPasses::of(&a.data);
    let arrived = b.data.iter().filter(|range| !range.again);
    let times = arrived.filter_map(|range| {
        let left = left.when(range.to - 1)?;
        Some(range.at.by_first(clocks).since(left))
    });
    let mut times: Vec<i64> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

fn compare(
    near: &DirectionPasses<First>,
    far: &DirectionPasses<Second>,
    clocks: &Clocks,
    segment: u64,
) -> Option<TwoVantage> {
    let left = FirstPasses::of(&near.data);
    let repeated = FirstPasses::of(near.data.iter().filter(|range| range.again));
    let mut arrived = FirstPasses(BTreeMap::new());
    let mut forward = Vec::new();
    for range in &far.data {
        let once = arrived.add(range) > 0 && repeated.when(range.to - 1).is_none();
        if let Some(left) = left.when(range.to - 1).filter(|_| once) {
            forward.push(range.at.by_first(clocks).since(left));
        }
    }
    let came: BTreeMap<u64, HostTime<First>> =
        near.acks.iter().map(|(at, ack)| (*ack, *at)).collect();
    let reverse = far
        .acks
        .iter()
        .filter_map(|(at, ack)| Some(came.get(ack)?.since(at.by_first(clocks))));
    let mut reverse: Vec<i64> = reverse.collect();
    let shortest = *forward.iter().min()?;
    let forward = beyond(&mut forward);
    let reverse = beyond(&mut reverse);

    // Only what left while the first place was watched, and could arrive while the second was.
    let nearest = far.data.iter().map(|range| range.from).min()?;
    let furthest = near.data.iter().map(|range| range.to).max()?;
    let furthest = furthest.min(far.data.iter().map(|range| range.to).max()?);
    let until = far
        .data
        .last()?
        .at
        .by_first(clocks)
        .after(shortest.saturating_neg());
    let is_within = |from, to| from >= nearest && to <= furthest;
    let counts = |range: &&SentRange<First>| range.at <= until && is_within(range.from, range.to);
    let sent: u64 = near.data.iter().filter(counts).map(|r| r.to - r.from).sum();
    let within = far.data.iter().filter(|r| is_within(r.from, r.to));
    let delivered: u64 = within.map(|r| r.to - r.from).sum();
    // What was lost was retransmitted, or is not acknowledged: what the second place lacks beyond that, only its capture lost.
    let again = near.data.iter().filter(|r| r.again);
    let again: u64 = again.map(|r| r.to - r.from).sum();
    let acknowledged = near.acks.iter().map(|(_, ack)| *ack).max();
    let open = acknowledged.map_or(sent, |ack| furthest.saturating_sub(ack));
    let missing = sent.saturating_sub(delivered);
    let lost = missing.min(again.saturating_add(open));

    let tolerance = clocks.residual + TIMESTAMP_PRECISION;
    let copies = Copies::of(
        near,
        far,
        clocks,
        shortest.saturating_sub_unsigned(tolerance.0),
    );
    let (mut retransmitted, mut needless, mut first_lost) = (0, 0, None);
    for range in near.data.iter().filter(|range| range.again).filter(counts) {
        let segments = (range.to - range.from).div_ceil(segment.max(1));
        retransmitted += segments;
        if copies.arrived_before(range) {
            needless += segments;
        } else if first_lost.is_none() {
            let begun = near.data.first()?.at;
            let since = left.when(range.from).map(|at| at.since(begun));
            first_lost = since.map(|ns| Nanos(u64::try_from(ns).unwrap_or(0)));
        }
    }

    // Held from the arrival of the first byte that was not acknowledged yet.
    let mut acked = Unwrap::ORIGIN;
    let mut held = Vec::new();
    let mut delayed = 0;
    for (at, ack) in &far.acks {
        if let Some(came) = arrived.when(acked).filter(|came| came <= at) {
            let wait = at.since(came);
            held.push(wait);
            delayed += u64::from(held_back(Nanos(wait as u64), Nanos(0)).0 > 0);
        }
        acked = *ack;
    }
    let acks = held.len() as u64;
    Some(TwoVantage {
        sent,
        lost,
        unseen: missing - lost,
        first_lost,
        retransmitted,
        needless,
        forward,
        reverse,
        error: clocks.residual,
        held: median_and_largest(&mut held),
        acks,
        delayed,
    })
}

/// Which copies of retransmitted data arrived.
struct Copies {
    /// First bytes of retransmissions, rising.
    starts: Vec<u64>,
    /// Of each, when its copies left, and whether they arrived.
    copies: Vec<Vec<(HostTime<First>, bool)>>,
}

impl Copies {
    /// A copy arrives no sooner than `least` after it left.
    fn of(
        near: &DirectionPasses<First>,
        far: &DirectionPasses<Second>,
        clocks: &Clocks,
        least: i64,
    ) -> Copies {
        let again = near.data.iter().filter(|range| range.again);
        let mut starts: Vec<u64> = again.map(|range| range.from).collect();
        starts.sort_unstable();
        starts.dedup();
        let within = |from: u64, to: u64| {
            starts.partition_point(|s| *s < from)..starts.partition_point(|s| *s < to)
        };
        let mut copies = vec![Vec::new(); starts.len()];
        for range in &near.data {
            for n in within(range.from, range.to) {
                copies[n].push((range.at, false));
            }
        }
        let mut arrivals = vec![Vec::new(); starts.len()];
        for range in &far.data {
            for n in within(range.from, range.to) {
                arrivals[n].push(range.at.by_first(clocks));
            }
        }
        // Each arrival, the last one first, is of the last copy that can have come by then.
        for (copies, arrivals) in copies.iter_mut().zip(&arrivals) {
            let mut open = copies.len();
            for came in arrivals.iter().rev() {
                let is_in_time = |copy: &(HostTime<First>, bool)| came.since(copy.0) >= least;
                let Some(n) = copies[..open].iter().rposition(is_in_time) else {
                    break;
                };
                copies[n].1 = true;
                open = n;
            }
        }
        Copies { starts, copies }
    }

    /// Whether a copy that left before this one arrived.
    fn arrived_before(&self, range: &SentRange<First>) -> bool {
        let Ok(n) = self.starts.binary_search(&range.from) else {
            return false;
        };
        let mut before = self.copies[n]
            .iter()
            .take_while(|(left, _)| *left < range.at);
        before.any(|(_, arrived)| *arrived)
    }
}

/// Median and largest beyond the least.
fn beyond(all: &mut [i64]) -> Option<(Nanos, Nanos)> {
    let least = *all.iter().min()?;
    all.iter_mut()
        .for_each(|one| *one = one.saturating_sub(least));
    median_and_largest(all)
}

fn median_and_largest(all: &mut [i64]) -> Option<(Nanos, Nanos)> {
    all.sort_unstable();
    let nanos = |n: &i64| Nanos(u64::try_from(*n).unwrap_or(0));
    let median = all.get(all.len().saturating_sub(1) / 2)?;
    Some((nanos(median), nanos(all.last()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    /// The receiver's clock is this far ahead.
    const AHEAD: u64 = 700_000_000;
    const WAY: u64 = 10_000_000;

    fn ms(of: u64) -> u64 {
        of * 1_000_000
    }

    fn clocks(drift_ppm: f64) -> Clocks {
        Clocks {
            offset_ns: AHEAD as i64,
            drift_ppm,
            residual: Nanos(1000),
            ..Clocks::default()
        }
    }

    fn at<H>(ns: u64) -> HostTime<H> {
        HostTime::new(Nanos(ns))
    }

    /// The receiver's clock.
    fn there(ns: u64, clocks: &Clocks) -> HostTime<Second> {
        at::<First>(ns).by_second(clocks)
    }

    /// Ten segments, a millisecond apart; the fourth is lost and retransmitted 30 ms later, and the sixth is
    /// retransmitted needlessly. Each is acknowledged at once but the last, which is held for 40 ms.
    fn lines(clocks: &Clocks) -> (DirectionPasses<First>, DirectionPasses<Second>) {
        let mut near = DirectionPasses {
            data: Vec::new(),
            acks: Vec::new(),
        };
        let mut far = DirectionPasses {
            data: Vec::new(),
            acks: Vec::new(),
        };
        let mut send = |left: u64, n: u64, again: bool, lost: bool| {
            let (from, to) = (Unwrap::ORIGIN + n * MSS, Unwrap::ORIGIN + (n + 1) * MSS);
            near.data.push(SentRange {
                at: at(left),
                from,
                to,
                again,
            });
            if !lost {
                let at = there(left + WAY, clocks);
                far.data.push(SentRange {
                    at,
                    from,
                    to,
                    again,
                });
            }
        };
        for n in 0..10 {
            send(ms(n), n, false, n == 3);
        }
        send(ms(34), 3, true, false);
        send(ms(35), 5, true, false);
        for (n, left) in [(1, 10), (2, 11), (3, 12), (10, 84)] {
            let ack = Unwrap::ORIGIN + n * MSS;
            far.acks.push((there(ms(left), clocks), ack));
            near.acks.push((at(ms(left) + WAY), ack));
        }
        (near, far)
    }

    #[test]
    fn what_was_lost_what_was_needless_and_what_was_held() {
        for drift in [0.0, 200.0, -500.0] {
            let clocks = clocks(drift);
            let (near, far) = lines(&clocks);
            let found = compare(&near, &far, &clocks, MSS).unwrap();
            assert_eq!((found.sent, found.lost), (12 * MSS, MSS));
            assert_eq!(found.first_lost, Some(Nanos(ms(3))));
            assert_eq!((found.retransmitted, found.needless), (2, 1));
            assert!(found.forward.unwrap().1 <= Nanos(2), "{found:?}");
            // The last one was held from the arrival of what was missing.
            let held = found.held.unwrap().1.0;
            assert!(held.abs_diff(ms(40)) < 25_000, "{held}");
            assert_eq!((found.acks, found.delayed), (4, 1));
            assert_eq!(found.figures().unwrap().lost, Bytes(MSS));
        }
    }

    #[test]
    fn what_a_capture_misses_of_acknowledged_data_is_not_lost() {
        let clocks = clocks(0.0);
        let (near, mut far) = lines(&clocks);
        let missed = |range: &SentRange<Second>| {
            (range.from, range.again) > (Unwrap::ORIGIN + MSS, false)
                && range.to < Unwrap::ORIGIN + 9 * MSS
        };
        far.data.retain(|range| !missed(range));
        let found = compare(&near, &far, &clocks, MSS).unwrap();
        // No more than was retransmitted, whatever else the second capture lacks.
        assert_eq!(found.lost, 2 * MSS, "{found:?}");
        assert!(found.unseen > 0, "{found:?}");
    }

    #[test]
    fn a_growing_reverse_delay_leaves_the_forward_delay_unchanged() {
        let clocks = clocks(0.0);
        let (mut near, far) = lines(&clocks);
        for (n, (at, _)) in (0..).zip(&mut near.acks) {
            *at = at.after(n * 5_000_000);
        }
        let found = compare(&near, &far, &clocks, MSS).unwrap();
        assert_eq!(found.forward, Some((Nanos(0), Nanos(0))));
        assert_eq!(found.reverse, Some((Nanos(ms(5)), Nanos(ms(15)))));
    }

    /// A segment sent at these times, and when its copies arrived, in microseconds; which copies did, by a path of 1 us.
    #[test]
    fn copies_are_matched_by_their_number_and_arrival_times() {
        let arrived = |sent: &[u64], came: &[u64]| {
            let range = |us: &u64| (us * 1000, Unwrap::ORIGIN, Unwrap::ORIGIN + MSS);
            let near = DirectionPasses {
                data: (sent.iter().map(range).enumerate())
                    .map(|(n, (ns, from, to))| SentRange {
                        at: at(ns),
                        from,
                        to,
                        again: n > 0,
                    })
                    .collect(),
                acks: Vec::new(),
            };
            let far = DirectionPasses {
                data: (came.iter().map(range))
                    .map(|(ns, from, to)| SentRange {
                        at: at(ns),
                        from,
                        to,
                        again: false,
                    })
                    .collect(),
                acks: Vec::new(),
            };
            let copies = Copies::of(&near, &far, &Clocks::default(), 1000);
            copies.copies[0]
                .iter()
                .map(|copy| copy.1)
                .collect::<Vec<bool>>()
        };
        assert_eq!(arrived(&[0, 50], &[51]), [false, true]);
        assert_eq!(arrived(&[0, 50], &[1]), [true, false]);
        assert_eq!(arrived(&[0, 50], &[1, 51]), [true, true]);
        // The first copy was overtaken by nothing, but came after the second had left.
        assert_eq!(arrived(&[0, 50], &[60, 61]), [true, true]);
        assert_eq!(arrived(&[0, 50, 90], &[1, 91]), [true, false, true]);
        assert_eq!(arrived(&[0, 50, 90], &[51, 91]), [false, true, true]);
        assert_eq!(arrived(&[0, 50], &[]), [false, false]);
    }

    #[test]
    fn a_connection_is_found_by_its_addresses_or_its_beginnings() {
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let packet = |from, to, seq, flags| Packet {
            seq,
            flags,
            ..Packet::new(end(from), end(to))
        };
        let passes = |from, to, isns: Option<(u32, u32)>| {
            let mut passes = Passes::new(end(from), end(to));
            if let Some((here, there)) = isns {
                passes.push(&packet(from, to, here, SYN), false);
                passes.push(&packet(to, from, there, SYN | ACK), false);
            }
            passes
        };
        let own = passes(1, 2, Some((7, 9)));
        assert_eq!(own.is_same(&passes(1, 2, Some((7, 9)))), Some(0));
        assert_eq!(own.is_same(&passes(2, 1, Some((9, 7)))), Some(1));
        assert_eq!(own.is_same(&passes(3, 4, Some((7, 9)))), Some(0), "NAT");
        assert_eq!(
            own.is_same(&passes(1, 2, Some((8, 9)))),
            None,
            "port reused"
        );
        assert_eq!(own.is_same(&passes(2, 1, None)), Some(1), "begun later");
        assert_eq!(own.is_same(&passes(3, 4, None)), None);
    }

    #[test]
    fn bytes_count_once_and_the_first_copy_shows_the_time() {
        let range = |ns, from, to| SentRange {
            at: at::<First>(ns),
            from,
            to,
            again: false,
        };
        let mut first = FirstPasses(BTreeMap::new());
        assert_eq!(first.add(&range(1, 10, 20)), 10);
        assert_eq!(first.add(&range(2, 5, 25)), 10);
        assert_eq!(first.add(&range(3, 0, 30)), 10);
        assert_eq!(first.add(&range(4, 3, 30)), 0);
        let times = [0, 7, 15, 22, 29].map(|byte| first.when(byte).unwrap().nanos().0);
        assert_eq!(times, [3, 2, 1, 2, 3]);
        assert_eq!(first.when(30), None);
    }
}
