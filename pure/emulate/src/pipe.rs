//! One direction of a link at work.

use crate::aqm::{CoDel, Red};
use crate::bucket::Tokens;
use crate::loss::Losses;
use crate::packet::{EmulatedPacket, ip_bytes, wire_bytes_of_frame};
use crate::seed::{Purpose, spread};
use crate::varying_rate::VaryingRate;
use crate::{
    Aqm, Delivery, DropCause, ETHERNET_HEADER, Ecn, EmulatorCounters, EmulatorEvent, EventKind,
    KeptSegments, Queue, QueueDepth, QueueLimit, Shape,
};
use model::Random;
use model::{BitRate, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Entries that the log holds.
const MAX_LOG: usize = 1 << 16;

/// Frames that may be inside, whatever the shape says.
const MAX_WAITING: u64 = 1 << 22;

/// Flows whose acknowledgements are held at once.
const MAX_HELD: usize = 1024;

/// Cross traffic that nobody asked about for longer than this is not made up for.
const MAX_CROSS_LAG: Nanos = Nanos::from_secs(1);

/// The log says how full the queue is at most so often.
const DEPTH_EVERY: Nanos = Nanos::from_millis(10);

/// One direction of a link. `T` is the packet's own bytes, carried along untouched.
///
/// Moments count from any fixed point and never go back. Nothing happens between calls: what should
/// have happened since the last one is done, in its order and at its own moments, by the next.
///
/// A super-packet is acted on segment by segment, in the order in which a wire would carry them; it
/// comes out when the last of them does, and [`Kept`] names those that survived. Delay, jitter,
/// reordering, duplication and ECN marks act on it as a whole:
/// see [`frames_at_once`](Pipe::frames_at_once).
#[derive(Debug)]
pub struct Pipe<T> {
    shape: Shape,
    seed: u64,
    /// The queue's rule, where something limits the rate.
    rule: Option<Queue>,
    begun: Option<Nanos>,

    losses: Losses,
    jitter: Random,
    reorder: Random,
    duplicate: Random,
    policer: Option<Tokens>,
    held: BTreeMap<u64, HeldAck<T>>,
    held_until: BTreeSet<(Nanos, u64)>,

    queue: VecDeque<PacketInPipe<T>>,
    red: Red,
    codel: CoDel,
    shaper: Option<Tokens>,
    line: LineState,
    /// When the last frame left the queue: what is dropped there uses neither line nor tokens, and the
    /// next, if smaller, would seem to have been ready before.
    served: Nanos,
    varying: Option<VaryingRate>,
    cross_next: Nanos,

    /// By when they come out, then by when they left the line.
    flight: BTreeMap<(Nanos, u64), PacketInPipe<T>>,
    /// When the last packet that keeps its place comes out.
    last_due: Nanos,
    flown: u64,

    counters: EmulatorCounters,
    /// The highest number of a frame that came out.
    newest: u64,
    log: Vec<EmulatorEvent>,
    depth_said: Option<(Nanos, QueueDepth)>,
}

/// A packet on its way.
#[derive(Clone, Debug)]
struct PacketInPipe<T> {
    /// None: cross traffic.
    packet: Option<EmulatedPacket<T>>,
    /// Its first frame, counted from 1 in this direction.
    first: u64,
    sizes: WireSizes,
    /// Why each segment does not come through; empty while all do.
    gone: Vec<Option<DropCause>>,
    /// Segments that have come to the queue.
    entered: u32,
    /// Segments that have left it.
    left: u32,
    queued_at: Nanos,
    mark: bool,
    /// Delay on top of the line's.
    extra: Nanos,
    late: bool,
    twice: bool,
}

/// The segments of a packet on the wire.
#[derive(Clone, Copy, Debug)]
struct WireSizes {
    segments: u32,
    full: u64,
    last: u64,
}

#[derive(Debug)]
struct HeldAck<T> {
    inside: PacketInPipe<T>,
    joined: u32,
    until: Nanos,
}

/// The line: one frame at a time.
#[derive(Debug, Default)]
struct LineState {
    /// Busy until then.
    free: Nanos,
    /// What the last frame took beyond whole nanoseconds, in bits x 10^9.
    rest: u128,
}

/// What happens next inside a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PipeStep {
    Variation,
    Release(u64),
    Cross,
    Send,
}

impl<T: Clone> Pipe<T> {
    /// A pipe whose time begins with the first call. Give every direction of every link its own seed.
    pub fn new(shape: &Shape, seed: u64) -> Pipe<T> {
        let mut pipe = Pipe {
            shape: Shape::default(),
            seed,
            rule: None,
            begun: None,
            losses: Losses::new(seed),
            jitter: Random::new(seed, Purpose::Jitter as u64),
            reorder: Random::new(seed, Purpose::Reorder as u64),
            duplicate: Random::new(seed, Purpose::Duplicate as u64),
            policer: None,
            held: BTreeMap::new(),
            held_until: BTreeSet::new(),
            queue: VecDeque::new(),
            red: Red::new(seed),
            codel: CoDel::default(),
            shaper: None,
            line: LineState::default(),
            served: Nanos(0),
            varying: None,
            cross_next: Nanos(0),
            flight: BTreeMap::new(),
            last_due: Nanos(0),
            flown: 0,
            counters: EmulatorCounters::default(),
            newest: 0,
            log: Vec::new(),
            depth_said: None,
        };
        pipe.reshape(Nanos(0), shape);
        pipe
    }

    /// A packet enters.
    pub fn offer(&mut self, now: Nanos, packet: EmulatedPacket<T>) {
        self.advance(now);
        let is_ack = packet.is_pure_ack && packet.segments == 1;
        let flow = packet.flow;
        let inside = self.enter(now, packet);
        let Some(thinning) = self.shape.ack_thinning.clone() else {
            return self.enqueue(now, inside);
        };
        let earlier = self.held.remove(&flow);
        if let Some(held) = &earlier {
            self.held_until.remove(&(held.until, flow));
        }
        if !is_ack || (earlier.is_none() && self.held.len() >= MAX_HELD) {
            // What it acknowledged must not come after.
            if let Some(held) = earlier {
                self.enqueue(now, held.inside);
            }
            return self.enqueue(now, inside);
        }
        let (joined, until) = match earlier {
            Some(mut held) => {
                self.lose(now, &mut held.inside, 0, DropCause::AckThinning);
                (held.joined + 1, held.until)
            }
            None => (1, now + thinning.hold),
        };
        if joined >= thinning.of {
            return self.enqueue(now, inside);
        }
        self.held_until.insert((until, flow));
        let held = HeldAck {
            inside,
            joined,
            until,
        };
        self.held.insert(flow, held);
    }

    /// No packet comes out before this moment, unless one is offered or the shape changes; none: the
    /// pipe is empty. [`take`](Pipe::take) may still find nothing then: ask again.
    pub fn due(&self) -> Option<Nanos> {
        if self.counters.waiting.frames == 0 {
            // Cross traffic alone wakes nobody.
            return None;
        }
        let flying = self.flight.first_key_value().map(|((due, _), _)| *due);
        let queued = self.queue.front().and_then(|head| {
            let rule = self.rule.as_ref();
            let wire = match rule.is_some_and(|r| matches!(r.aqm, Aqm::CoDel(_))) {
                // It may end with any segment.
                true => head.sizes.of(head.left),
                false => head.ahead(),
            };
            Some(self.next_send()? + self.time_of(wire) + self.shape.delay)
        });
        let held = self.held_until.first().map(|(until, _)| *until);
        [flying, queued, held.map(|h| h + self.shape.delay)]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next packet that has come out by `now`; call until there is none.
    pub fn take(&mut self, now: Nanos) -> Option<Delivery<T>> {
        self.advance(now);
        loop {
            let first = self.flight.first_entry().filter(|e| e.key().0 <= now)?;
            let ((due, _), inside) = first.remove_entry();
            if let Some(delivery) = self.deliver(due, inside) {
                return Some(delivery);
            }
        }
    }

    /// From now on this shape. What is inside stays inside; the frame on the line finishes as it began,
    /// and a queue that is now too long takes nothing until it has drained.
    pub fn change(&mut self, now: Nanos, shape: &Shape) {
        self.advance(now);
        self.reshape(now, shape);
        if self.shape.ack_thinning.is_none() {
            self.held_until.clear();
            for (_, held) in std::mem::take(&mut self.held) {
                self.enqueue(now, held.inside);
            }
        }
        self.log_rate(now);
    }

    /// The largest super-packet that should be offered whole, in frames of so many bytes on the wire; larger
    /// ones are to be cut. One frame, if something here acts on single frames by time; else as many as do
    /// not hold up the first of them too long on the line.
    pub fn frames_at_once(&self, wire_bytes: u64) -> u32 {
        self.shape.frames_at_once(wire_bytes)
    }

    /// What was done so far.
    pub fn counters(&self) -> &EmulatorCounters {
        &self.counters
    }

    /// The log since the last call. It holds a bounded number of entries: what did not fit is counted.
    pub fn drain_log(&mut self) -> Vec<EmulatorEvent> {
        std::mem::take(&mut self.log)
    }

    pub(crate) fn busy_until(&self) -> Nanos {
        self.line.free
    }

    /// Somebody else uses the line until then.
    pub(crate) fn wait_until(&mut self, free: Nanos) {
        self.line.free = self.line.free.max(free);
    }

    /// When something happens next inside, other than that a packet comes out.
    pub(crate) fn next_step(&self) -> Option<Nanos> {
        self.next().map(|(at, _)| at)
    }

    /// Does all that should have happened by `now`.
    pub(crate) fn advance(&mut self, now: Nanos) {
        self.begin(now);
        while self.step_by(now) {}
        self.log_depth(now);
    }

    /// Does the next thing that should have happened by `now`; false if there is none.
    pub(crate) fn step_by(&mut self, now: Nanos) -> bool {
        let Some((at, step)) = self.next().filter(|(at, _)| *at <= now) else {
            return false;
        };
        match step {
            PipeStep::Send => self.send(at),
            PipeStep::Cross => self.cross(at, now),
            PipeStep::Release(flow) => {
                self.held_until.remove(&(at, flow));
                if let Some(held) = self.held.remove(&flow) {
                    self.enqueue(at, held.inside);
                }
            }
            PipeStep::Variation => {
                if let Some(varying) = &mut self.varying {
                    varying.step();
                }
                self.pace_shaper(at);
                self.log_rate(at);
            }
        }
        true
    }

    /// The first call sets the clock.
    pub(crate) fn begin(&mut self, now: Nanos) {
        if self.begun.is_some() {
            return;
        }
        self.begun = Some(now);
        self.cross_next = now;
        let law = self.varying.take().map(|w| w.law().clone());
        self.varying = law.map(|law| VaryingRate::new(&law, self.seed, now));
        self.log_rate(now);
    }

    fn next(&self) -> Option<(Nanos, PipeStep)> {
        let variation = self
            .varying
            .as_ref()
            .map(|w| (w.next(), PipeStep::Variation));
        let held = self.held_until.first();
        let release = held.map(|(until, flow)| (*until, PipeStep::Release(*flow)));
        let cross = self.shape.cross.as_ref();
        let cross = cross.map(|_| (self.cross_next, PipeStep::Cross));
        let send = self.next_send().map(|at| (at, PipeStep::Send));
        [variation, release, cross, send]
            .into_iter()
            .flatten()
            .min()
    }

    // The entry.

    /// Counts the packet, and decides what the line and the policer do to each of its segments.
    fn enter(&mut self, now: Nanos, packet: EmulatedPacket<T>) -> PacketInPipe<T> {
        let shape = &self.shape;
        let jitter = shape.jitter.as_ref();
        let (distribution, range) =
            jitter.map_or_else(Default::default, |j| (j.distribution, j.range));
        // Drawn for every packet, so that a change by the script shifts nothing.
        let jitter = spread(&mut self.jitter, distribution);
        let extra = Nanos((jitter * range.0 as f64) as u64);
        let late = self.reorder.unit();
        let late = shape.reorder.as_ref().filter(|r| late < r.probability);
        let twice = self.duplicate.unit();
        let duplicate = shape.duplicate.as_ref();
        let sizes = WireSizes::of_packet(&packet);
        let mut inside = PacketInPipe {
            first: self.counters.offered.frames + 1,
            extra: extra + late.map_or(Nanos(0), |r| r.late),
            late: late.is_some(),
            twice: duplicate.is_some_and(|d| twice < d.probability),
            ..PacketInPipe::new(Some(packet), sizes, now)
        };
        for segment in 0..inside.sizes.segments {
            let wire = inside.sizes.of(segment);
            self.counters.offered.add(wire);
            self.counters.waiting.add(wire);
            let frame = inside.first + u64::from(segment);
            let shape = &self.shape;
            let lost = self.losses.loses(&shape.loss, frame);
            let corrupt =
                shape.bit_error_rate > 0.0 && self.losses.corrupts(shape.bit_error_rate, wire);
            let ip = ip_bytes(wire);
            if shape.max_frame.is_some_and(|max| ip > u64::from(max)) {
                self.lose(now, &mut inside, segment, DropCause::MaxFrame);
            } else if self.policer.as_mut().is_some_and(|p| !p.conforms(now, ip)) {
                self.lose(now, &mut inside, segment, DropCause::Policer);
            } else if self.counters.waiting.frames > MAX_WAITING {
                self.lose(now, &mut inside, segment, DropCause::Queue);
            } else if lost {
                inside.condemn(segment, DropCause::Loss);
            } else if corrupt {
                inside.condemn(segment, DropCause::BitError);
            }
        }
        inside
    }

    /// Counts a segment as dropped, now.
    fn lose(&mut self, now: Nanos, inside: &mut PacketInPipe<T>, segment: u32, why: DropCause) {
        inside.condemn(segment, why);
        let wire = inside.sizes.of(segment);
        if inside.packet.is_none() {
            self.counters.cross_dropped.add(wire);
            return;
        }
        self.counters.waiting.subtract(wire);
        self.counters.dropped.of(why).add(wire);
        let frame = inside.first + u64::from(segment);
        self.log_event(now, EventKind::Dropped { frame, why });
    }

    // The queue.

    /// Segment by segment, while the line takes what it can.
    fn enqueue(&mut self, now: Nanos, mut inside: PacketInPipe<T>) {
        inside.queued_at = now;
        let segments = inside.sizes.segments;
        self.queue.push_back(inside);
        for segment in 0..segments {
            // It stays at the back until its last segment has come, so it is there to be taken out.
            let Some(mut inside) = self.queue.pop_back() else {
                break;
            };
            inside.entered += 1;
            let wire = inside.sizes.of(segment);
            if !inside.dropped_before_line(segment) {
                match self.admit(now, &mut inside, wire) {
                    Err(why) => self.lose(now, &mut inside, segment, why),
                    Ok(()) => {
                        self.counters.queue.packets += 1;
                        self.counters.queue.bytes += ip_bytes(wire);
                    }
                }
            }
            self.queue.push_back(inside);
            self.settle(now);
            while self.next_send().is_some_and(|at| at <= now) {
                self.send(now);
            }
        }
        let (depth, deepest) = (self.counters.queue, &mut self.counters.deepest);
        deepest.packets = deepest.packets.max(depth.packets);
        deepest.bytes = deepest.bytes.max(depth.bytes);
    }

    fn admit(
        &mut self,
        now: Nanos,
        inside: &mut PacketInPipe<T>,
        wire: u64,
    ) -> Result<(), DropCause> {
        let Some(rule) = &self.rule else {
            return Ok(());
        };
        let depth = self.counters.queue;
        // What the line takes at once does not wait.
        let waits = depth.packets > 0 || self.line_free_at(wire) > now;
        let (held, fits) = match rule.limit {
            QueueLimit::Packets(most) => (depth.packets, depth.packets < most),
            QueueLimit::Bytes(most) => (depth.bytes, depth.bytes + ip_bytes(wire) <= most.0),
        };
        if waits && !fits {
            return Err(DropCause::Queue);
        }
        let Aqm::Red(limits) = &rule.aqm else {
            return Ok(());
        };
        let packet_time = self.time_of(wire);
        let chosen = self.red.chooses(now, held, packet_time, limits);
        match chosen && !(rule.ecn && inside.take_mark()) {
            true => Err(DropCause::Aqm),
            false => Ok(()),
        }
    }

    /// Takes from the head what does not go over the line, so that the head is what is sent next.
    fn settle(&mut self, now: Nanos) {
        while let Some(head) = self.queue.front_mut() {
            while head.left < head.entered && head.dropped_before_line(head.left) {
                head.left += 1;
            }
            if head.left < head.sizes.segments {
                return;
            }
            if let Some(inside) = self.queue.pop_front().filter(|i| i.packet.is_some()) {
                self.start_propagation(now, inside);
            }
        }
    }

    // The line.

    /// When the head of the queue can be sent.
    fn next_send(&self) -> Option<Nanos> {
        let head = self.queue.front().filter(|h| h.left < h.entered)?;
        let free = self.line_free_at(head.sizes.of(head.left));
        Some(free.max(head.queued_at).max(self.served))
    }

    /// When the line and the shaper can take a frame.
    fn line_free_at(&self, wire: u64) -> Nanos {
        let shaped = self.shaper.as_ref().map(|s| s.ready(ip_bytes(wire)));
        self.line.free.max(shaped.unwrap_or_default())
    }

    fn time_of(&self, wire: u64) -> Nanos {
        self.shape.time_of(self.line_rate(), wire)
    }

    /// Sends the head of the queue, unless the queue's management drops it.
    fn send(&mut self, now: Nanos) {
        let Some(mut head) = self.queue.pop_front() else {
            return;
        };
        let segment = head.left;
        let wire = head.sizes.of(segment);
        head.left += 1;
        self.served = now;
        self.counters.queue.packets -= 1;
        self.counters.queue.bytes -= ip_bytes(wire);
        if self.counters.queue.packets == 0 {
            self.red.idle(now);
        }
        if self.codel_drops(now, &mut head, wire) {
            self.lose(now, &mut head, segment, DropCause::Aqm);
        } else {
            if let Some(shaper) = &mut self.shaper {
                shaper.spend(now, ip_bytes(wire));
            }
            let rate = self.line_rate();
            self.line.send(now, wire, rate, self.shape.packet_time);
            if head.packet.is_none() {
                self.counters.cross.add(wire);
            } else if let Some(why) = head.cause(segment) {
                self.lose(now, &mut head, segment, why);
            }
        }
        self.queue.push_front(head);
        self.settle(now);
    }

    fn codel_drops(&mut self, now: Nanos, head: &mut PacketInPipe<T>, wire: u64) -> bool {
        let Some(rule) = &self.rule else {
            return false;
        };
        let Aqm::CoDel(limits) = rule.aqm else {
            return false;
        };
        let sojourn = now.since(head.queued_at);
        let nearly_empty = self.counters.queue.bytes <= ip_bytes(wire);
        let chosen = self.codel.chooses(now, sojourn, nearly_empty, limits);
        chosen && !(rule.ecn && head.take_mark())
    }

    /// The last segment is on the line: the packet comes out after it, unless nothing is left of it.
    fn start_propagation(&mut self, now: Nanos, inside: PacketInPipe<T>) {
        let (frames, wire_bytes) = inside.survivors();
        if frames == 0 {
            return;
        }
        let sent = match self.line_rate().is_some() || self.shape.packet_time > Nanos(0) {
            true => self.line.free,
            false => now,
        };
        let mut due = sent + self.shape.delay + inside.extra;
        let overtakes = self.shape.jitter.as_ref().is_some_and(|j| j.reorders);
        if !overtakes && !inside.late {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        let copy = inside.twice.then(|| inside.clone());
        if copy.is_some() {
            for tally in [&mut self.counters.duplicated, &mut self.counters.waiting] {
                tally.frames += frames;
                tally.wire_bytes += wire_bytes;
            }
            let frame = inside.first;
            self.log_event(now, EventKind::Duplicated { frame });
        }
        for inside in [Some(inside), copy].into_iter().flatten() {
            self.flown += 1;
            self.flight.insert((due, self.flown), inside);
        }
    }

    // The exit.

    fn deliver(&mut self, due: Nanos, inside: PacketInPipe<T>) -> Option<Delivery<T>> {
        let (frames, wire_bytes) = inside.survivors();
        let kept = inside.kept();
        let newest = inside.first + u64::from(inside.sizes.segments) - 1;
        self.counters.waiting.frames -= frames;
        self.counters.waiting.wire_bytes -= wire_bytes;
        self.counters.delivered.frames += frames;
        self.counters.delivered.wire_bytes += wire_bytes;
        let frame = inside.first;
        if inside.mark {
            self.counters.marked += frames;
            self.log_event(due, EventKind::Marked { frame });
        }
        if newest < self.newest {
            self.counters.reordered += frames;
            self.log_event(due, EventKind::Reordered { frame });
        }
        self.newest = self.newest.max(newest);
        Some(Delivery {
            due,
            mark: inside.mark,
            kept,
            packet: inside.packet?,
        })
    }

    // Others on the line, and a rate that moves.

    fn cross(&mut self, at: Nanos, now: Nanos) {
        let Some(cross) = &self.shape.cross else {
            return;
        };
        let wire = wire_bytes_of_frame(u64::from(cross.frame) + ETHERNET_HEADER);
        let gap = (wire * 8_000_000_000 / cross.rate.0.max(1)).max(1);
        let mut next = at + Nanos(gap);
        if now.since(at) > MAX_CROSS_LAG {
            let missed = now.since(at).0 - MAX_CROSS_LAG.0;
            next = at + Nanos(missed.div_ceil(gap) * gap);
        }
        let cycle = cross.on.0.saturating_add(cross.off.0);
        if cross.off.0 > 0 {
            let since = next.since(self.begun.unwrap_or_default()).0;
            let within = since % cycle;
            if within >= cross.on.0 {
                next += Nanos(cycle - within);
            }
        }
        self.cross_next = next;
        let [full, last] = [wire; 2];
        let sizes = WireSizes {
            segments: 1,
            full,
            last,
        };
        self.enqueue(at, PacketInPipe::new(None, sizes, at));
    }

    fn reshape(&mut self, now: Nanos, shape: &Shape) {
        let before = std::mem::replace(&mut self.shape, shape.clone());
        let rule = || shape.queue.clone().unwrap_or_default();
        self.rule = shape.is_limited().then(rule);
        if shape.rate_variation != before.rate_variation {
            let law = shape.rate_variation.as_ref();
            self.varying = law.map(|law| VaryingRate::new(law, self.seed, now));
        }
        if shape.cross != before.cross {
            self.cross_next = now;
        }
        if shape.rate != before.rate {
            self.line.rest = 0;
        }
        match (&shape.policer, &mut self.policer) {
            (Some(new), Some(tokens)) => tokens.change(now, new.rate, new.burst),
            (new, tokens) => *tokens = new.as_ref().map(|b| Tokens::new(b, now)),
        }
        if shape.shaper.is_none() || self.shaper.is_none() {
            self.shaper = shape.shaper.as_ref().map(|b| Tokens::new(b, now));
        }
        self.pace_shaper(now);
    }

    fn pace_shaper(&mut self, now: Nanos) {
        let Some(bucket) = &self.shape.shaper else {
            return;
        };
        let rate = self.varied(bucket.rate);
        if let Some(shaper) = &mut self.shaper {
            shaper.change(now, rate, bucket.burst);
        }
    }

    fn varied(&self, rate: BitRate) -> BitRate {
        match &self.varying {
            Some(varying) => varying.scale(rate),
            None => rate,
        }
    }

    fn line_rate(&self) -> Option<BitRate> {
        let rate = self.shape.rate?;
        Some(match self.shape.shaper {
            Some(_) => rate,
            None => self.varied(rate),
        })
    }

    // The log.

    fn log_rate(&mut self, at: Nanos) {
        let shaped = self.shape.shaper.as_ref().map(|s| self.varied(s.rate));
        let rate = shaped.or_else(|| self.line_rate());
        if self.counters.rate != rate {
            self.counters.rate = rate;
            self.log_event(at, EventKind::Rate { rate });
        }
    }

    fn log_depth(&mut self, at: Nanos) {
        let depth = self.counters.queue;
        let due = match self.depth_said {
            Some((last, said)) => said != depth && at.since(last) >= DEPTH_EVERY,
            None => depth != QueueDepth::default(),
        };
        if !due {
            return;
        }
        self.depth_said = Some((at, depth));
        let bucket = self.policer.as_mut().or(self.shaper.as_mut());
        let tokens = bucket.map(|b| b.level(at));
        let QueueDepth { packets, bytes } = depth;
        let kind = EventKind::Depth {
            packets,
            bytes,
            tokens,
        };
        self.log_event(at, kind);
    }

    fn log_event(&mut self, at: Nanos, kind: EventKind) {
        match self.log.len() < MAX_LOG {
            true => self.log.push(EmulatorEvent { at, kind }),
            false => self.counters.log_lost += 1,
        }
    }
}

impl LineState {
    fn send(&mut self, now: Nanos, wire: u64, rate: Option<BitRate>, least: Nanos) {
        if now > self.free {
            self.rest = 0;
        }
        let begins = self.free.max(now);
        let Some(rate) = rate else {
            // A line without limit is never busy.
            if least > Nanos(0) {
                self.free = begins + least;
            }
            return;
        };
        let work = u128::from(wire) * 8_000_000_000 + self.rest;
        let rate = u128::from(rate.0.max(1));
        self.rest = work % rate;
        let time = u64::try_from(work / rate).unwrap_or(u64::MAX);
        self.free = begins + Nanos(time).max(least);
    }
}

impl WireSizes {
    fn of_packet<T>(packet: &EmulatedPacket<T>) -> WireSizes {
        let segments = packet.segments.max(1);
        let full = packet.segment_wire_bytes;
        let before = full.saturating_mul(u64::from(segments - 1));
        WireSizes {
            segments,
            full,
            last: packet.wire_bytes.saturating_sub(before),
        }
    }

    fn of(&self, segment: u32) -> u64 {
        match segment + 1 < self.segments {
            true => self.full,
            false => self.last,
        }
    }
}

impl<T> PacketInPipe<T> {
    fn new(packet: Option<EmulatedPacket<T>>, sizes: WireSizes, at: Nanos) -> PacketInPipe<T> {
        PacketInPipe {
            packet,
            first: 0,
            sizes,
            gone: Vec::new(),
            entered: 0,
            left: 0,
            queued_at: at,
            mark: false,
            extra: Nanos(0),
            late: false,
            twice: false,
        }
    }

    fn cause(&self, segment: u32) -> Option<DropCause> {
        self.gone.get(segment as usize).copied().flatten()
    }

    fn condemn(&mut self, segment: u32, why: DropCause) {
        if self.gone.is_empty() {
            self.gone = vec![None; self.sizes.segments as usize];
        }
        self.gone[segment as usize] = Some(why);
    }

    /// True if the segment never comes to the line; what is lost there has used it.
    fn dropped_before_line(&self, segment: u32) -> bool {
        !matches!(
            self.cause(segment),
            None | Some(DropCause::Loss | DropCause::BitError)
        )
    }

    /// Bytes on the wire that the line still has to carry of it.
    fn ahead(&self) -> u64 {
        let WireSizes {
            segments,
            full,
            last,
        } = self.sizes;
        if self.gone.is_empty() {
            return full * u64::from((segments - 1).saturating_sub(self.left)) + last;
        }
        let left = (self.left..segments).filter(|s| !self.dropped_before_line(*s));
        left.map(|s| self.sizes.of(s)).sum()
    }

    /// Marks the packet where it may be marked; false if it must be dropped instead.
    fn take_mark(&mut self) -> bool {
        match self.packet.as_ref().map(|p| p.ecn) {
            Some(Ecn::Capable) => {
                self.mark = true;
                true
            }
            Some(Ecn::Marked) => true,
            Some(Ecn::NotCapable) | None => false,
        }
    }

    /// Segments that come through, and their bytes on the wire.
    fn survivors(&self) -> (u64, u64) {
        let alive = (0..self.sizes.segments).filter(|s| self.cause(*s).is_none());
        alive.fold((0, 0), |(frames, bytes), s| {
            (frames + 1, bytes + self.sizes.of(s))
        })
    }

    fn kept(&self) -> KeptSegments {
        if self.gone.is_empty() {
            return KeptSegments::Whole;
        }
        let mut ranges: Vec<std::ops::Range<u32>> = Vec::new();
        for segment in (0..self.sizes.segments).filter(|s| self.cause(*s).is_none()) {
            match ranges.last_mut() {
                Some(last) if last.end == segment => last.end += 1,
                _ => ranges.push(segment..segment + 1),
            }
        }
        KeptSegments::Some(ranges)
    }
}
