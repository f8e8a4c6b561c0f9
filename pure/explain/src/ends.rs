//! Both ends of a connection together: what left one and never reached the other, which retransmissions were
//! needed, how long each way took beyond its shortest, and how long acknowledgements were held back.
//!
//! The clocks of two hosts differ. How much is reckoned from the quickest segment each way, as NTP does
//! (RFC 5905, section 8): exact where both ways take as long when they are empty, else wrong by half of the
//! difference. Changes of a way are not touched by that.

use crate::facts::{Facts, percentile};
use crate::limits::Key;
use crate::samples::{self, Ends};
use model::finding::{Evidence, Explanation, Quantity, Source};
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, SYN};
use model::{
    Bytes, Comm, Connection, EndRecord, Leg, Nanos, Run, Segment, SocketOptions, SocketValues,
    Trace, What,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use tcp::seq::Unwrap;
use tcp::thresholds::DELAYED_ACK_MIN;

/// Packets of one place that are remembered for the comparison: the first ones.
const MOST_PASSES: usize = 1 << 22;

/// What passed one place, connection by connection.
#[derive(Default)]
pub struct Tapes {
    index: BTreeMap<Flow, usize>,
    tapes: Vec<Tape>,
    passes: usize,
}

impl Tapes {
    /// Takes the next packet.
    pub fn see(&mut self, packet: &Packet) {
        if self.passes >= MOST_PASSES {
            return;
        }
        self.passes += 1;
        let key = either_way(packet.from, packet.to);
        let known = self.index.get(&key).copied();
        let begins = packet.flags & (SYN | ACK) == SYN;
        // The same addresses again, with another beginning: another connection.
        let known = known.filter(|n| !begins || self.tapes[*n].may_begin(packet));
        let n = known.unwrap_or(self.tapes.len());
        if n == self.tapes.len() {
            self.index.insert(key, n);
            self.tapes.push(Tape::new(packet.from, packet.to));
        }
        self.tapes[n].see(packet);
    }
}

/// What passed one place, of one connection. The first half is what the first of its ends sent.
pub(crate) struct Tape {
    ends: (SocketAddr, SocketAddr),
    halves: [Half; 2],
}

#[derive(Default)]
struct Half {
    /// Sequence number of the SYN.
    isn: Option<u32>,
    passes: Vec<Pass>,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Pass {
    at: Nanos,
    seq: u32,
    payload: u32,
    ack: Option<u32>,
}

impl Tape {
    pub(crate) fn new(from: SocketAddr, to: SocketAddr) -> Tape {
        Tape {
            ends: (from, to),
            halves: Default::default(),
        }
    }

    /// What one end of a connection sent and received.
    pub(crate) fn of(connection: &Connection, segments: &[&Segment]) -> Tape {
        let mut tape = Tape::new(connection.local, connection.remote);
        for packet in segments.iter().filter_map(|s| packet(connection, s)) {
            tape.see(&packet);
        }
        tape
    }

    fn may_begin(&self, packet: &Packet) -> bool {
        let half = &self.halves[usize::from(packet.from != self.ends.0)];
        half.isn == Some(packet.seq) || half.passes.is_empty()
    }

    fn see(&mut self, packet: &Packet) {
        let half = &mut self.halves[usize::from(packet.from != self.ends.0)];
        if packet.has(SYN) {
            half.isn = Some(packet.seq);
            return;
        }
        half.bytes += u64::from(packet.payload);
        half.passes.push(Pass {
            at: packet.at,
            seq: packet.seq,
            payload: packet.payload,
            ack: packet.has(ACK).then_some(packet.ack),
        });
    }

    /// Whether two places saw the same connection: by its addresses, or, where they were translated on the
    /// way, by both initial sequence numbers. Says which half of the other is the first of this.
    fn is_same(&self, other: &Tape) -> Option<usize> {
        let isns = |t: &Tape, first: usize| (t.halves[first].isn, t.halves[1 - first].isn);
        [0, 1].into_iter().find(|first| {
            let (mine, theirs) = (isns(self, 0), isns(other, *first));
            let known = |(a, b): (Option<u32>, Option<u32>)| a.zip(b).is_some();
            let ends = match first {
                0 => other.ends,
                _ => (other.ends.1, other.ends.0),
            };
            match known(mine) && known(theirs) {
                true => mine == theirs,
                false => self.ends == ends,
            }
        })
    }

    /// Both initial sequence numbers, the lesser first, where they were seen.
    fn isns(&self) -> Option<[u32; 2]> {
        let [a, b] = [self.halves[0].isn?, self.halves[1].isn?];
        Some([a.min(b), a.max(b)])
    }

    /// The data of one half, with what the other half acknowledged of it, counted from `base`.
    fn line(&self, half: usize, base: u32) -> Line {
        let mut line = Line::default();
        let mut place = Unwrap::at(base, 0);
        for pass in self.halves[half].passes.iter().filter(|p| p.payload > 0) {
            let from = place.follow(pass.seq);
            line.data
                .push((pass.at, from, from + u64::from(pass.payload)));
        }
        let mut place = Unwrap::at(base, 0);
        let mut most = 0;
        for pass in &self.halves[1 - half].passes {
            if let Some(ack) = pass
                .ack
                .map(|ack| place.follow(ack))
                .filter(|ack| *ack > most)
            {
                most = ack;
                line.acks.push((pass.at, ack));
            }
        }
        line
    }

    /// Where the stream of a half begins.
    fn base(&self, half: usize) -> Option<u32> {
        let half = &self.halves[half];
        let first = half.passes.iter().find(|p| p.payload > 0);
        half.isn
            .map(|isn| isn.wrapping_add(1))
            .or_else(|| first.map(|p| p.seq))
    }
}

/// Two addresses: sender and receiver, or the lesser first.
type Flow = (SocketAddr, SocketAddr);

fn either_way(a: SocketAddr, b: SocketAddr) -> Flow {
    (a.min(b), a.max(b))
}

/// The tapes of a place, found without a look at each of them.
struct Site<'a> {
    tapes: &'a [Tape],
    by_ends: BTreeMap<Flow, Vec<usize>>,
    by_isns: BTreeMap<[u32; 2], Vec<usize>>,
}

impl<'a> Site<'a> {
    fn of(tapes: &'a [Tape]) -> Site<'a> {
        let mut site = Site {
            tapes,
            by_ends: BTreeMap::new(),
            by_isns: BTreeMap::new(),
        };
        for (n, tape) in tapes.iter().enumerate() {
            let (a, b) = tape.ends;
            site.by_ends.entry(either_way(a, b)).or_default().push(n);
            if let Some(isns) = tape.isns() {
                site.by_isns.entry(isns).or_default().push(n);
            }
        }
        site
    }

    /// The first that is the same connection, where that half of it which is the first of `tape` suits.
    fn find(&self, tape: &Tape, suits: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
        let (a, b) = tape.ends;
        let by_ends = self.by_ends.get(&either_way(a, b));
        let by_isns = tape.isns().and_then(|isns| self.by_isns.get(&isns));
        let candidates = by_ends.into_iter().chain(by_isns).flatten();
        let same = candidates.filter_map(|n| Some((*n, tape.is_same(&self.tapes[*n])?)));
        same.filter(|(_, half)| suits(*half)).min()
    }
}

/// A segment of a trace as a packet.
pub(crate) fn packet(connection: &Connection, segment: &Segment) -> Option<Packet> {
    let (from, to) = match segment.what {
        What::Sent => (connection.local, connection.remote),
        What::Received => (connection.remote, connection.local),
        _ => return None,
    };
    Some(Packet {
        at: segment.at,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: u16::try_from(segment.window).unwrap_or(u16::MAX),
        payload: u32::try_from(segment.payload.0).unwrap_or(u32::MAX),
        options_cut: true,
        marked: segment.tos & 3 == 3,
        ..Packet::new(from, to)
    })
}

/// One direction of a connection at one place: each in the order of time.
#[derive(Default)]
struct Line {
    /// When, from, to.
    data: Vec<(Nanos, u64, u64)>,
    /// When, up to; rising.
    acks: Vec<(Nanos, u64)>,
}

/// Bytes that were seen, and when first.
#[derive(Default)]
struct First(BTreeMap<u64, (u64, Nanos)>);

impl First {
    /// Adds a range; returns how many of its bytes are new.
    fn add(&mut self, mut from: u64, to: u64, at: Nanos) -> u64 {
        let mut new = 0;
        while from < to {
            let before = self.0.range(..=from).next_back();
            if let Some((_, (end, _))) = before.filter(|(_, (end, _))| *end > from) {
                from = *end;
                continue;
            }
            let next = self.0.range(from..).next().map_or(to, |(next, _)| *next);
            let until = next.min(to);
            self.0.insert(from, (until, at));
            new += until - from;
            from = until;
        }
        new
    }

    fn of(&self, byte: u64) -> Option<Nanos> {
        let (_, (end, at)) = self.0.range(..=byte).next_back()?;
        (*end > byte).then_some(*at)
    }
}

/// What both ends tell together of one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Between {
    /// The receiver's clock less the sender's, in nanoseconds.
    pub clock: i64,
    /// Bytes that left, retransmissions included.
    pub sent: u64,
    /// Bytes that left and never arrived.
    pub vanished: u64,
    /// When the first of them left, by the sender's clock, where that is known.
    pub first_vanished: Option<Nanos>,
    /// Segments sent again.
    pub again: u64,
    /// Of them, those whose first copy arrived all the same.
    pub needless: u64,
    /// Time beyond the shortest: median and largest, toward the receiver and back.
    pub toward: Option<(Nanos, Nanos)>,
    pub back: Option<(Nanos, Nanos)>,
    /// How long the receiver held acknowledgements back: median, largest.
    pub held: Option<(Nanos, Nanos)>,
    /// Acknowledgements, and those of them that were late.
    pub acks: u64,
    pub late: u64,
}

impl Between {
    /// From the same direction at both ends.
    fn of(sender: &Line, receiver: &Line, mss: u32) -> Option<Between> {
        let mut between = Between::default();
        let mut left = First::default();
        let mut again = Vec::new();
        for (at, from, to) in &sender.data {
            if left.add(*from, *to, *at) < to - from {
                again.push((*at, *from, *to));
            }
        }
        let mut repeated = First::default();
        for (at, from, to) in &again {
            repeated.add(*from, *to, *at);
        }
        let mut arrived = First::default();
        let mut toward = Vec::new();
        for (at, from, to) in &receiver.data {
            let new = arrived.add(*from, *to, *at);
            let once = new > 0 && repeated.of(to - 1).is_none();
            if let Some(left) = left.of(to - 1).filter(|_| once) {
                toward.push(at.0 as i64 - left.0 as i64);
            }
        }
        let heard: BTreeMap<u64, Nanos> = sender.acks.iter().map(|(at, ack)| (*ack, *at)).collect();
        let back: Vec<i64> = receiver
            .acks
            .iter()
            .filter_map(|(at, ack)| Some(heard.get(ack)?.0 as i64 - at.0 as i64))
            .collect();
        let (there, here) = (*toward.iter().min()?, *back.iter().min()?);
        between.clock = (there - here) / 2;
        let way = u64::try_from((there + here) / 2).unwrap_or(0);
        between.toward = beyond(&toward, there);
        between.back = beyond(&back, here);

        // Only what left while the sender was watched, and could arrive while the receiver was.
        let last = receiver.data.last()?;
        let nearest = receiver.data.iter().map(|(_, from, _)| *from).min()?;
        let end = |line: &Line| line.data.iter().map(|(_, _, to)| *to).max();
        let furthest = end(sender)?.min(end(receiver)?);
        let until = (last.0.0 as i64).saturating_sub(between.clock);
        let until = u64::try_from(until).unwrap_or(0).saturating_sub(way);
        let within = |(_, from, to): &&(Nanos, u64, u64)| *from >= nearest && *to <= furthest;
        let counts = |pass: &&(Nanos, u64, u64)| pass.0.0 <= until && within(pass);
        let length = |(_, from, to): &(Nanos, u64, u64)| to - from;
        between.sent = sender.data.iter().filter(counts).map(length).sum();
        let came: u64 = receiver.data.iter().filter(within).map(length).sum();
        between.vanished = between.sent.saturating_sub(came);

        let segments = |from: u64, to: u64| (to - from).div_ceil(u64::from(mss.max(1)));
        for (at, from, to) in again.iter().filter(counts) {
            between.again += segments(*from, *to);
            // The first copy is there before the second could be.
            let came = arrived.of(*from).map(|came| came.0 as i64 - between.clock);
            if came.is_some_and(|came| came < (at.0 + way / 2) as i64) {
                between.needless += segments(*from, *to);
            } else if between.first_vanished.is_none() {
                between.first_vanished = left.of(*from);
            }
        }

        // Held from the arrival of the first byte that was not acknowledged yet.
        let mut acked = 0;
        let mut held: Vec<f64> = Vec::new();
        for (at, ack) in &receiver.acks {
            if let Some(came) = arrived.of(acked).filter(|came| came <= at) {
                let wait = at.since(came);
                held.push(wait.0 as f64);
                between.late += u64::from(wait >= DELAYED_ACK_MIN);
            }
            acked = *ack;
        }
        between.acks = held.len() as u64;
        between.held = percentile(&mut held, 0.5)
            .zip(percentile(&mut held, 1.0))
            .map(|(mid, most)| (Nanos(mid as u64), Nanos(most as u64)));
        Some(between)
    }

    /// What both places show; whether they are the ends of the connection themselves.
    fn evidence(&self, begun: Nanos, source: Source, at_receiver: bool) -> Vec<Evidence> {
        let of = |key| move |quantity: Quantity| Evidence::new(key, quantity, source);
        let mut vanished = of(Key::UndeliveredBytes)(Bytes(self.vanished).into()).of(self.sent);
        vanished.at = self
            .first_vanished
            .filter(|_| self.vanished > 0)
            .map(|at| at.since(begun));
        let mut all = vec![vanished];
        if self.again > 0 {
            all.push(of(Key::NeedlessRetransmissions)(self.needless.into()).of(self.again));
        }
        // Elsewhere the path to the receiver and back is in that time.
        let held = self.held.filter(|_| at_receiver);
        for (middle, largest, times) in [
            (Key::ForwardDelayMedian, Key::ForwardDelayMax, self.toward),
            (Key::ReverseDelayMedian, Key::ReverseDelayMax, self.back),
            (Key::AckDelayMedian, Key::AckDelayMax, held),
        ] {
            if let Some((median, most)) = times {
                all.extend([of(middle)(median.into()), of(largest)(most.into())]);
            }
        }
        if held.is_some() {
            all.push(of(Key::DelayedAcks)(self.late.into()).of(self.acks));
        }
        all
    }
}

/// Median and largest beyond the least.
fn beyond(all: &[i64], least: i64) -> Option<(Nanos, Nanos)> {
    let mut all: Vec<f64> = all.iter().map(|d| (d - least) as f64).collect();
    let (middle, most) = (percentile(&mut all, 0.5)?, percentile(&mut all, 1.0)?);
    Some((Nanos(middle as u64), Nanos(most as u64)))
}

/// What a receiver's socket was, of all the time: see [`Reader`].
#[derive(Default)]
pub(crate) struct Kept {
    pub buffer: (Bytes, Bytes),
    pub closed: Nanos,
    pub who: Option<(Comm, u32)>,
}

fn process((comm, pid): (Comm, u32)) -> String {
    format!("{comm} (process {pid})")
}

/// What is unread by the receive buffer, and whether less than a segment is offered.
pub(crate) fn reading(tcb: &SocketValues) -> (f64, bool) {
    let share = tcb.unread().0 as f64 / tcb.rcvbuf.0.max(1) as f64;
    let offered = tcb.rcv_wnd.since(tcb.unacked_received());
    (share, offered.0 < u64::from(tcb.rcv_mss))
}

/// What the receiver's socket was, while data came.
pub(crate) struct Reader {
    /// When, how long it held, what the application had not read by the receive buffer.
    unread: Vec<(Nanos, Nanos, f64)>,
    /// `SO_RCVBUF` as the kernel held it: at first, and at its largest.
    buffer: (Bytes, Bytes),
    /// Time with an offered window of less than a segment.
    closed: Nanos,
    span: Nanos,
    /// Process that reads.
    who: Option<String>,
}

/// What a receiver's socket shows comes from a trace.
const SOURCE: Source = Source::TraceAtReceiver;

impl Reader {
    /// From one end of a connection; `None` if no data came to it.
    pub(crate) fn of(segments: &[&Segment]) -> Option<Reader> {
        let known = segments.iter().filter_map(|s| Some((*s, s.probed()?)));
        let known: Vec<_> = known.collect();
        let data = |s: &Segment| s.what == What::Received && s.payload.0 > 0;
        let first = known.iter().position(|(s, _)| data(s))?;
        let last = known.iter().rposition(|(s, _)| data(s))?;
        let known = &known[first..=last];
        let mut reader = Reader {
            unread: Vec::new(),
            buffer: (known[0].1.rcvbuf, Bytes(0)),
            closed: Nanos(0),
            span: known[known.len() - 1].0.at.since(known[0].0.at),
            who: None,
        };
        let named = known.iter().rev().find(|(s, _)| s.pid > 0);
        reader.who = named.map(|(s, _)| process((s.comm, s.pid)));
        for pair in known.windows(2) {
            let ((was, before), (now, tcb)) = (pair[0], pair[1]);
            // A read tells what was left after it; all else what was there before.
            let state = if now.what == What::Read { before } else { tcb };
            let time = now.at.since(was.at);
            let (share, closed) = reading(state);
            reader.unread.push((was.at, time, share));
            reader.buffer.1 = reader.buffer.1.max(tcb.rcvbuf);
            if closed {
                reader.closed += time;
            }
        }
        Some(reader)
    }

    /// The same where only the sums were kept: what was unread from `first` on for `span`, on the average.
    pub(crate) fn summed(first: Nanos, span: Nanos, unread: f64, socket: Kept) -> Reader {
        Reader {
            unread: vec![(first, span, unread)],
            buffer: socket.buffer,
            closed: socket.closed,
            span,
            who: socket.who.map(process),
        }
    }

    /// What was unread between two moments, on the average of time.
    fn unread(&self, from: Nanos, to: Nanos) -> Option<f64> {
        let first = self
            .unread
            .partition_point(|(at, time, _)| *at + *time <= from);
        let (mut sum, mut whole) = (0.0, 0.0);
        for (at, time, share) in self.unread[first..].iter().take_while(|(at, ..)| *at < to) {
            let part = (*at + *time).min(to).since((*at).max(from)).0 as f64;
            sum += share * part;
            whole += part;
        }
        (whole > 0.0).then(|| sum / whole)
    }

    /// What a sender cannot know, for the findings.
    pub(crate) fn inform(&self, facts: &mut Facts, begun: Nanos, clock: i64) {
        facts.receive_buffer = Some(self.buffer.1);
        let here = |at: Nanos| {
            let at = (begun + at).0 as i64 + clock;
            Nanos(u64::try_from(at).unwrap_or(0))
        };
        for reading in &mut facts.readings {
            reading.unread = self.unread(here(reading.from), here(reading.to));
        }
    }

    /// The same where the moments of the readings are not those of this clock: its mean for all.
    pub(crate) fn inform_as_a_whole(&self, facts: &mut Facts) {
        facts.receive_buffer = Some(self.buffer.1);
        let mean = self.unread(Nanos(0), Nanos(u64::MAX));
        facts.readings.iter_mut().for_each(|r| r.unread = mean);
    }

    pub(crate) fn evidence(&self) -> Vec<Evidence> {
        let of = |key| move |quantity: Quantity| Evidence::new(key, quantity, SOURCE);
        let mut all = Vec::new();
        if let Some(mean) = self.unread(Nanos(0), Nanos(u64::MAX)) {
            let mut unread = of(Key::UnreadData)(mean.into());
            unread.subject.clone_from(&self.who);
            all.push(unread);
        }
        let (first, most) = self.buffer;
        if first != most {
            all.push(of(Key::ReceiveBufferFirst)(first.into()));
        }
        all.push(of(Key::ReceiveBuffer)(most.into()));
        if self.closed.0 > 0 {
            all.push(of(Key::ZeroWindowTime)(self.closed.into()).of(self.span.0));
        }
        all
    }
}

/// Brings what the receiver's end of a connection saw to what the sender's told. Returns what only both
/// together show.
pub(crate) fn inform(
    facts: &mut Facts,
    begun: Nanos,
    sender: (&Connection, &[&Segment]),
    receiver: (&Connection, &[&Segment]),
) -> Vec<Evidence> {
    let at_sender = Tape::of(sender.0, sender.1);
    let at_receiver = Tape::of(receiver.0, receiver.1);
    let Some(base) = at_sender.base(0).or_else(|| at_receiver.base(1)) else {
        return Vec::new();
    };
    let lines = (at_sender.line(0, base), at_receiver.line(1, base));
    let between = Between::of(&lines.0, &lines.1, facts.mss);
    let reader = Reader::of(receiver.1);
    let clock = between.as_ref().map_or(0, |b| b.clock);
    if facts.source == Source::Trace {
        facts.source = Source::TraceOfBothEnds;
    }
    if let Some(reader) = &reader {
        reader.inform(facts, begun, clock);
    }
    let mut told = Vec::new();
    if let Some(between) = between {
        facts.needless = facts.needless.max(between.needless);
        told = between.evidence(begun, facts.source, true);
    }
    told.extend(reader.iter().flat_map(Reader::evidence));
    told
}

/// Explains each stream of a leg: from the sender's trace if there is one, with the receiver's if there is
/// that as well; else from the samples.
pub(crate) fn explain_leg(
    run: &Run,
    leg: &Leg,
    sender: Option<&Trace>,
    receiver: Option<&Trace>,
) -> Vec<Explanation> {
    let ends = Ends::of(run, leg);
    // Replies can be the matter of a leg: then its sender is the end that answers.
    let (sender, receiver) = match std::ptr::eq(ends.sender, leg.sender()) {
        true => (sender, receiver),
        false => (receiver, sender),
    };
    let token = std::ptr::eq(ends.sender, &leg.near);
    let (sender, receiver) = (sender.map(Traced::of), receiver.map(Traced::of));
    let from_traces = sender.as_ref().map_or_else(Vec::new, |sender| {
        let from = |n: u32| sender.load_begins(n, token);
        crate::watched(sender.trace, &from).explain_with(
            &mut |connection, begun, subject, facts| {
                let n = stream_of(ends.sender, connection);
                let Some(n) = n else { return Vec::new() };
                *subject = samples::subject(run, leg, ends, n);
                samples::of_hosts(run, ends, n, facts);
                let own = sender.connection(connection.id as usize);
                let other = receiver
                    .as_ref()
                    .and_then(|r| r.at(ends.receiver.sockets.get(n)?));
                own.zip(other)
                    .map_or_else(Vec::new, |(own, other)| inform(facts, begun, own, other))
            },
        )
    });
    let mut from_traces: Vec<Option<Explanation>> = from_traces.into_iter().map(Some).collect();
    (0..samples::streams(run, ends))
        .filter_map(|n| {
            let name = samples::subject(run, leg, ends, n).name;
            let traced = from_traces
                .iter_mut()
                .find(|e| e.as_ref().is_some_and(|e| e.name == name));
            if let Some(mut told) = traced.and_then(Option::take) {
                told.doubts.extend(cut(ends.sender, told.span));
                return Some(told);
            }
            let reader = receiver
                .as_ref()
                .and_then(|r| Reader::of(r.at(ends.receiver.sockets.get(n)?)?.1));
            let told = samples::stream(run, leg, ends, n, &mut |facts| {
                reader.iter().for_each(|r| r.inform_as_a_whole(facts));
            })?;
            let ends = reader.iter().flat_map(Reader::evidence).collect();
            Some(Explanation { ends, ..told })
        })
        .collect()
}

/// What to say of a trace that is shorter than its leg.
fn cut(end: &EndRecord, span: Nanos) -> Option<String> {
    end.trace.filter(|t| t.cut).map(|_| {
        format!(
            "the trace has the first {span} of {}: what came later is not explained",
            end.duration
        )
    })
}

/// Which of an end's sockets is that of a connection. A socket can name an IPv4 address as one of IPv6.
fn stream_of(end: &EndRecord, connection: &Connection) -> Option<usize> {
    end.sockets.iter().position(|s| is_socket(s, connection))
}

fn is_socket(socket: &SocketOptions, connection: &Connection) -> bool {
    let same = |a: SocketAddr, b: SocketAddr| {
        a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical()
    };
    same(socket.local, connection.local) && same(socket.remote, connection.remote)
}

/// A trace, its events by connections.
struct Traced<'a> {
    trace: &'a Trace,
    events: Vec<Vec<&'a Segment>>,
}

/// A connection and its events.
type Events<'a> = (&'a Connection, &'a [&'a Segment]);

impl<'a> Traced<'a> {
    fn of(trace: &'a Trace) -> Traced<'a> {
        let mut events = vec![Vec::new(); trace.connections.len()];
        for segment in &trace.segments {
            if let Some(own) = events.get_mut(segment.connection as usize) {
                own.push(segment);
            }
        }
        Traced { trace, events }
    }

    fn connection(&self, n: usize) -> Option<Events<'_>> {
        Some((self.trace.connections.get(n)?, self.events.get(n)?))
    }

    fn at(&self, socket: &SocketOptions) -> Option<Events<'_>> {
        let mut all = self.trace.connections.iter();
        self.connection(all.position(|c| is_socket(socket, c))?)
    }

    /// When an end first sent data of its load. Before that the connection waits for the order to begin; the
    /// host of the command has sent the token.
    fn load_begins(&self, n: u32, after_token: bool) -> Nanos {
        let events = self.events.get(n as usize).into_iter().flatten();
        let mut data = events.filter(|s| s.what == What::Sent && s.payload.0 > 0);
        let first = data.nth(usize::from(after_token));
        first.map_or(Nanos(0), |segment| segment.at)
    }

    fn tapes(&self) -> Vec<Tape> {
        let all = self.trace.connections.iter().zip(&self.events);
        all.map(|(c, events)| Tape::of(c, events)).collect()
    }
}

/// Explains the connections of two traces, one from each end.
pub(crate) fn explain_traces(a: (&str, &Trace), b: (&str, &Trace)) -> Vec<Explanation> {
    let (in_a, in_b) = (Traced::of(a.1), Traced::of(b.1));
    let (tapes_a, tapes_b) = (in_a.tapes(), in_b.tapes());
    let (at_a, at_b) = (Site::of(&tapes_a), Site::of(&tapes_b));
    let ways = [
        (a.0, &in_a, &tapes_a, b.0, &in_b, &at_b),
        (b.0, &in_b, &tapes_b, a.0, &in_a, &at_a),
    ];
    let mut told = Vec::new();
    for (name, own, tapes, other_name, others, there) in ways {
        let alone =
            format!("only {name} has it, not {other_name}: it is explained from there alone");
        // The first half of either is what its own end sent.
        let other_end = |n: usize| {
            let (n, _) = there.find(tapes.get(n)?, |half| half == 1)?;
            others.connection(n)
        };
        let watcher = crate::watched(own.trace, &|_| Nanos(0));
        let both = watcher.explain_with(&mut |connection, begun, _, facts| {
            let n = connection.id as usize;
            own.connection(n)
                .zip(other_end(n))
                .map_or_else(Vec::new, |(own, other)| inform(facts, begun, own, other))
        });
        let received = watcher.received();
        let mut numbers = BTreeMap::new();
        for (n, c) in own.trace.connections.iter().enumerate() {
            numbers.entry(either_way(c.local, c.remote)).or_insert(n);
        }
        let is_alone = |e: &Explanation| {
            let ends = e.sender.zip(e.receiver);
            let of = ends.and_then(|(a, b)| numbers.get(&either_way(a, b)).copied());
            of.and_then(other_end).is_none()
        };
        // What this end received and the other sent is told as the other's.
        let rest = received.into_iter().filter(is_alone);
        told.extend(both.into_iter().chain(rest).map(|mut one| {
            if is_alone(&one) {
                one.doubts.push(alone.clone());
            }
            one
        }));
    }
    told
}

/// Two captures of the same traffic: connections that are in both are told once, with what the two places
/// show together; the others as each capture has them.
pub fn joined(
    a: (&str, Vec<Explanation>, &Tapes),
    b: (&str, Vec<Explanation>, &Tapes),
) -> Vec<Explanation> {
    let ((name_a, told_a, tapes_a), (name_b, told_b, tapes_b)) = (a, b);
    let (mut told_a, mut told_b) = (Pool::of(told_a), Pool::of(told_b));
    let at_b = Site::of(&tapes_b.tapes);
    let mut joined = Vec::new();
    for tape in &tapes_a.tapes {
        let Some((n, first)) = at_b.find(tape, |_| true) else {
            continue;
        };
        let other = &tapes_b.tapes[n];
        for half in [0, 1] {
            let there = if first == 0 { half } else { 1 - half };
            let Some(base) = tape.base(half) else {
                continue;
            };
            let mine = told_a.take(tape.flow(half));
            let theirs = told_b.take(other.flow(there));
            if mine.is_none() && theirs.is_none() {
                continue;
            }
            let (here, across) = (tape.line(half, base), other.line(there, base));
            // Where an acknowledgement takes longer to come, the sender is nearer.
            let (near, far, lines) = match echo(&here) >= echo(&across) {
                true => (mine, theirs, (&here, &across)),
                false => (theirs, mine, (&across, &here)),
            };
            let is = |told: &Option<Explanation>, place| {
                told.as_ref().is_some_and(|t| t.source == place)
            };
            let at_receiver = is(&far, Source::CaptureAtReceiver);
            let own = near.or(far);
            let Some(mut own) = own else { continue };
            let mss = here.data.iter().chain(&across.data);
            let mss = mss.map(|(_, f, t)| (t - f) as u32).filter(|l| *l <= 9000);
            match Between::of(lines.0, lines.1, mss.max().unwrap_or(1448)) {
                Some(between) => {
                    own.source = Source::CapturesAtTwoPlaces;
                    let begun = lines.0.data.first().map_or(Nanos(0), |(at, ..)| *at);
                    own.ends = between.evidence(begun, own.source, at_receiver);
                }
                None => own
                    .doubts
                    .push("both captures have it, but nothing that passed both places".to_owned()),
            }
            joined.push(own);
        }
    }
    for (name, other, rest) in [(name_a, name_b, told_a), (name_b, name_a, told_b)] {
        joined.extend(rest.all.into_iter().flatten().map(|mut one| {
            one.doubts.push(format!(
                "only {name} has it, not {other}: it is explained from there alone"
            ));
            one
        }));
    }
    joined
}

impl Tape {
    /// Sender and receiver of a half.
    fn flow(&self, half: usize) -> Flow {
        match half {
            0 => self.ends,
            _ => (self.ends.1, self.ends.0),
        }
    }
}

/// Explanations that are taken out one by one, by sender and receiver.
struct Pool {
    all: Vec<Option<Explanation>>,
    by_flow: BTreeMap<Flow, VecDeque<usize>>,
}

impl Pool {
    fn of(told: Vec<Explanation>) -> Pool {
        let mut by_flow: BTreeMap<Flow, VecDeque<usize>> = BTreeMap::new();
        for (n, one) in told.iter().enumerate() {
            if let Some(flow) = one.sender.zip(one.receiver) {
                by_flow.entry(flow).or_default().push_back(n);
            }
        }
        Pool {
            all: told.into_iter().map(Some).collect(),
            by_flow,
        }
    }

    /// The first that is left.
    fn take(&mut self, flow: Flow) -> Option<Explanation> {
        let n = self.by_flow.get_mut(&flow)?.pop_front()?;
        self.all[n].take()
    }
}

/// Shortest time from data to their acknowledgement at one place.
fn echo(line: &Line) -> Option<Nanos> {
    let mut left = First::default();
    for (at, from, to) in &line.data {
        left.add(*from, *to, *at);
    }
    let waits = line
        .acks
        .iter()
        .filter_map(|(at, ack)| Some(at.since(left.of(ack.checked_sub(1)?)?)));
    waits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    /// The receiver's clock is this far ahead.
    const AHEAD: u64 = 700_000_000;
    const WAY: u64 = 10_000_000;

    fn at(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// Ten segments, a millisecond apart; the fourth is lost and sent again 30 ms later, and the sixth was
    /// sent again for nothing. Each is acknowledged at once but the last, which is held for 40 ms.
    fn lines() -> (Line, Line) {
        let (mut sender, mut receiver) = (Line::default(), Line::default());
        let range = |n: u64| (n * MSS, (n + 1) * MSS);
        for n in 0..10 {
            let (from, to) = range(n);
            sender.data.push((at(n), from, to));
        }
        sender.data.push((at(34), range(3).0, range(3).1));
        sender.data.push((at(35), range(5).0, range(5).1));
        for (left, from, to) in sender.data.clone() {
            if (left, from) != (at(3), range(3).0) {
                receiver.data.push((Nanos(left.0 + WAY + AHEAD), from, to));
            }
        }
        for (n, came) in [(1, 10), (2, 11), (3, 12), (10, 84)] {
            receiver.acks.push((Nanos(at(came).0 + AHEAD), n * MSS));
            sender.acks.push((Nanos(at(came).0 + WAY), n * MSS));
        }
        (sender, receiver)
    }

    #[test]
    fn what_vanished_what_was_needless_and_the_clocks() {
        let (sender, receiver) = lines();
        let found = Between::of(&sender, &receiver, MSS as u32).unwrap();
        assert_eq!(found.clock, AHEAD as i64);
        assert_eq!((found.sent, found.vanished), (12 * MSS, MSS));
        assert_eq!(found.first_vanished, Some(at(3)));
        assert_eq!((found.again, found.needless), (2, 1));
        assert_eq!(found.toward, Some((Nanos(0), Nanos(0))));
        // The last one was held from the arrival of what was missing.
        assert_eq!(found.held, Some((Nanos(0), at(40))));
        assert_eq!((found.acks, found.late), (4, 1));
    }

    #[test]
    fn nothing_is_said_of_a_receiver_that_no_capture_was_taken_at() {
        let (sender, receiver) = lines();
        let found = Between::of(&sender, &receiver, MSS as u32).unwrap();
        let shows = |at_receiver| {
            let all = found.evidence(at(0), Source::CapturesAtTwoPlaces, at_receiver);
            all.iter().any(|e| e.key == Key::DelayedAcks)
        };
        assert!(shows(true));
        assert!(!shows(false));
    }

    #[test]
    fn a_way_that_grows_is_told_from_the_other() {
        let (mut sender, receiver) = lines();
        for (n, (at, _)) in (0..).zip(&mut sender.acks) {
            at.0 += n * 5_000_000;
        }
        let found = Between::of(&sender, &receiver, MSS as u32).unwrap();
        assert_eq!(found.toward, Some((Nanos(0), Nanos(0))));
        assert_eq!(found.back, Some((at(5), at(15))));
        assert_eq!(found.clock, AHEAD as i64);
    }

    #[test]
    fn a_connection_is_found_by_its_addresses_or_its_beginnings() {
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let packet = |from, to, seq, flags| Packet {
            seq,
            flags,
            ..Packet::new(end(from), end(to))
        };
        let tape = |from, to, isns: Option<(u32, u32)>| {
            let mut tape = Tape::new(end(from), end(to));
            if let Some((here, there)) = isns {
                tape.see(&packet(from, to, here, SYN));
                tape.see(&packet(to, from, there, SYN | ACK));
            }
            tape
        };
        let own = tape(1, 2, Some((7, 9)));
        assert_eq!(own.is_same(&tape(1, 2, Some((7, 9)))), Some(0));
        assert_eq!(own.is_same(&tape(2, 1, Some((9, 7)))), Some(1));
        assert_eq!(own.is_same(&tape(3, 4, Some((7, 9)))), Some(0), "NAT");
        assert_eq!(own.is_same(&tape(1, 2, Some((8, 9)))), None, "port reused");
        assert_eq!(own.is_same(&tape(2, 1, None)), Some(1), "begun later");
        assert_eq!(own.is_same(&tape(3, 4, None)), None);
    }

    #[test]
    fn bytes_count_once_and_the_first_copy_tells_the_time() {
        let mut first = First::default();
        assert_eq!(first.add(10, 20, at(1)), 10);
        assert_eq!(first.add(5, 25, at(2)), 10);
        assert_eq!(first.add(0, 30, at(3)), 10);
        let times: Vec<_> = [0, 7, 15, 22, 29].map(|byte| first.of(byte)).to_vec();
        let ms = |n| Some(at(n));
        assert_eq!(times, [ms(3), ms(2), ms(1), ms(2), ms(3)]);
        assert_eq!(first.of(30), None);
    }
}
