//! Explanations from both ends of a connection, or from two places on its path: what each knows, and what only both
//! together show ([`tcp::two_vantage`]).

use crate::facts::Facts;
use crate::limits::Key;
use crate::samples::{self, Ends};
use model::finding::{Evidence, Explanation, Quantity, Source};
use model::packet::Packet;
use model::{
    Bytes, Clocks, Comm, Connection, EndRecord, Leg, Nanos, Run, Segment, SocketOptions,
    SocketValues, Trace, What,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use tcp::clock::{First, HostTime, Marks, join, swapped};
use tcp::two_vantage::{
    BothPlaces, CaptureSide, Compared, Passes, SideIndex, TwoVantage, either_way,
};

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

/// What both places show; whether the second is the receiver itself.
fn evidence(found: &TwoVantage, source: Source, at_receiver: bool) -> Vec<Evidence> {
    let of = |key| move |quantity: Quantity| Evidence::new(key, quantity, source);
    let mut lost = of(Key::UndeliveredBytes)(Bytes(found.lost).into()).of(found.sent);
    lost.at = found.first_lost.filter(|_| found.lost > 0);
    let mut all = vec![lost];
    if found.retransmitted > 0 {
        all.push(of(Key::NeedlessRetransmissions)(found.needless.into()).of(found.retransmitted));
    }
    // Elsewhere the path to the receiver and back is in that time.
    let held = found.held.filter(|_| at_receiver);
    for (middle, largest, times) in [
        (Key::ForwardDelayMedian, Key::ForwardDelayMax, found.forward),
        (Key::ReverseDelayMedian, Key::ReverseDelayMax, found.reverse),
        (Key::AckDelayMedian, Key::AckDelayMax, held),
    ] {
        if let Some((median, most)) = times {
            all.extend([of(middle)(median.into()), of(largest)(most.into())]);
        }
    }
    if held.is_some() {
        all.push(of(Key::DelayedAcks)(found.delayed.into()).of(found.acks));
    }
    all
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
    pub(crate) fn inform(&self, facts: &mut Facts, begun: Nanos, clocks: &Clocks) {
        facts.receive_buffer = Some(self.buffer.1);
        let here = |at: Nanos| HostTime::<First>::new(begun + at).by_second(clocks).nanos();
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
fn inform(
    facts: &mut Facts,
    begun: Nanos,
    sender: Events<'_>,
    receiver: Events<'_>,
    clocks: Option<&Clocks>,
) -> Vec<Evidence> {
    let places = [sender, receiver].map(|(connection, events)| passes(connection, events));
    let both = BothPlaces {
        places: (&places[0], &places[1]),
        halves: (0, 1),
        segment: Some(facts.mss),
    };
    let found = clocks.and_then(|clocks| both.compare_forward(clocks));
    let reader = Reader::of(receiver.1);
    if facts.source == Source::Trace {
        facts.source = Source::TraceOfBothEnds;
    }
    if let Some(reader) = &reader {
        reader.inform(facts, begun, clocks.unwrap_or(&Clocks::ONE));
    }
    let mut told = Vec::new();
    if let Some(found) = found {
        facts.needless = facts.needless.max(found.needless);
        told = evidence(&found, facts.source, true);
    }
    told.extend(reader.iter().flat_map(Reader::evidence));
    told
}

/// What one end of a connection sent and received.
fn passes(connection: &Connection, events: &[&Segment]) -> Passes {
    let mut passes = Passes::new(connection.local, connection.remote);
    for event in events {
        if let Some(packet) = packet(connection, event) {
            passes.push(&packet, event.is_retransmission());
        }
    }
    passes
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
    let both = sender.as_ref().zip(receiver.as_ref());
    let clocks = both.and_then(|(sender, receiver)| join(sender.marks(), receiver.marks()));
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
                own.zip(other).map_or_else(Vec::new, |(own, other)| {
                    inform(facts, begun, own, other, clocks.as_ref())
                })
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

    fn passes(&self) -> Vec<Passes> {
        let all = self.trace.connections.iter().zip(&self.events);
        all.map(|(c, events)| passes(c, events)).collect()
    }

    /// The packets by which its clock is compared with that of another host.
    fn marks(&self) -> Marks {
        let mut marks = Marks::default();
        for segment in &self.trace.segments {
            let connection = self.trace.connections.get(segment.connection as usize);
            if let Some(packet) = connection.and_then(|c| packet(c, segment)) {
                marks.push(&packet);
            }
        }
        marks
    }
}

/// Explanations of what two places saw, and how their clocks are related, if any packet each way passed both.
pub struct Joined {
    /// Connections that both places have are explained once.
    pub explanations: Vec<Explanation>,
    /// The clock of the second place by that of the first.
    pub clocks: Option<Clocks>,
}

/// Explains the connections of two traces, one from each end.
pub(crate) fn explain_traces(a: (&str, &Trace), b: (&str, &Trace)) -> Joined {
    let (in_a, in_b) = (Traced::of(a.1), Traced::of(b.1));
    let (all_a, all_b) = (in_a.passes(), in_b.passes());
    let (at_a, at_b) = (SideIndex::of(&all_a), SideIndex::of(&all_b));
    let clocks = join(in_a.marks(), in_b.marks());
    let directions = [
        (a.0, &in_a, &all_a, b.0, &in_b, &at_b, clocks),
        (
            b.0,
            &in_b,
            &all_b,
            a.0,
            &in_a,
            &at_a,
            clocks.as_ref().map(swapped),
        ),
    ];
    let mut explanations = Vec::new();
    for (name, own, passes, other_name, others, there, clocks) in directions {
        let alone =
            format!("only {name} has it, not {other_name}: it is explained from there alone");
        // The first half of either is what its own end sent.
        let other_end = |n: usize| {
            let (n, _) = there.find(passes.get(n)?, |half| half == 1)?;
            others.connection(n)
        };
        let watcher = crate::watched(own.trace, &|_| Nanos(0));
        let both = watcher.explain_with(&mut |connection, begun, _, facts| {
            let n = connection.id as usize;
            let both = own.connection(n).zip(other_end(n));
            both.map_or_else(Vec::new, |(own, other)| {
                inform(facts, begun, own, other, clocks.as_ref())
            })
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
        explanations.extend(both.into_iter().chain(rest).map(|mut one| {
            if is_alone(&one) {
                one.doubts.push(alone.clone());
            }
            one
        }));
    }
    Joined::of(explanations, clocks)
}

impl Joined {
    fn of(mut explanations: Vec<Explanation>, clocks: Option<Clocks>) -> Joined {
        if let Some(first) = explanations.first_mut() {
            first
                .doubts
                .extend(clocks.and_then(|clocks| clocks.doubt()));
        }
        Joined {
            explanations,
            clocks,
        }
    }
}

/// Two captures of the same traffic: connections that are in both are told once, with what the two places
/// show together; the others as each capture has them.
pub fn joined(
    a: (&str, Vec<Explanation>, CaptureSide),
    b: (&str, Vec<Explanation>, CaptureSide),
) -> Joined {
    let ((name_a, told_a, mut side_a), (name_b, told_b, mut side_b)) = (a, b);
    let (mut told_a, mut told_b) = (Pool::of(told_a), Pool::of(told_b));
    let clocks = join(side_a.take_marks(), side_b.take_marks());
    let at_b = SideIndex::of(side_b.connections());
    let mut joined = Vec::new();
    for here in side_a.connections() {
        let Some((n, first)) = at_b.find(here, |_| true) else {
            continue;
        };
        let there = &side_b.connections()[n];
        for half in [0, 1] {
            let other = if first == 0 { half } else { 1 - half };
            let mine = told_a.take(here.flow(half));
            let theirs = told_b.take(there.flow(other));
            let both = BothPlaces {
                places: (here, there),
                halves: (half, other),
                segment: None,
            };
            let found = clocks.and_then(|clocks| both.compare(&clocks));
            let (near, far, found) = match found {
                Some(Compared::Backward(found)) => (theirs, mine, Some(found)),
                Some(Compared::Forward(found)) => (mine, theirs, Some(found)),
                None => (mine, theirs, None),
            };
            let is = |told: &Option<Explanation>, place| {
                told.as_ref().is_some_and(|t| t.source == place)
            };
            let at_receiver = is(&far, Source::CaptureAtReceiver);
            let Some(mut own) = near.or(far) else {
                continue;
            };
            match found {
                Some(found) => {
                    own.source = Source::CapturesAtTwoPlaces;
                    own.ends = evidence(&found, own.source, at_receiver);
                    if let Some(stream) = &mut own.stream {
                        stream.needless_retransmissions = found.needless;
                        stream.path = found.figures();
                    }
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
    Joined::of(joined, clocks)
}

/// Explanations that are taken out one by one, by sender and receiver.
struct Pool {
    all: Vec<Option<Explanation>>,
    by_flow: BTreeMap<(SocketAddr, SocketAddr), VecDeque<usize>>,
}

impl Pool {
    fn of(told: Vec<Explanation>) -> Pool {
        let mut by_flow: BTreeMap<_, VecDeque<usize>> = BTreeMap::new();
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
    fn take(&mut self, flow: (SocketAddr, SocketAddr)) -> Option<Explanation> {
        let n = self.by_flow.get_mut(&flow)?.pop_front()?;
        self.all[n].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_of_a_receiver_that_no_capture_was_taken_at() {
        let found = TwoVantage {
            held: Some((Nanos(0), Nanos(0))),
            ..TwoVantage::default()
        };
        let shows = |at_receiver| {
            let all = evidence(&found, Source::CapturesAtTwoPlaces, at_receiver);
            all.iter().any(|e| e.key == Key::DelayedAcks)
        };
        assert!(shows(true));
        assert!(!shows(false));
    }
}
