//! Explanations from both hosts of a connection, or from two places on its path: the evidence of each, and what only both
//! together show ([`tcp::two_vantage`]).

use crate::capture::CaptureObserver;
use crate::facts::Facts;
use crate::limits::Key;
use crate::receiver::ReceivingSocket;
use crate::samples::{self, LegEnds};
use model::finding::{Evidence, Explanation, Quantity, Source};
use model::packet::Packet;
use model::{
    Bytes, Clocks, Connection, EndRecord, Leg, Nanos, Run, Segment, SocketOptions, Trace, What,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tcp::clock::{Marks, join, swapped};
use tcp::two_vantage::{BothPlaces, ComparedDirection, Passes, SideIndex, TwoVantage, either_way};

/// What both places show; whether the second is the receiver itself.
fn evidence(found: &TwoVantage, source: Source, at_receiver: bool) -> Vec<Evidence> {
    let of = |key| move |quantity: Quantity| Evidence::new(key, quantity, source);
    let mut lost = of(Key::UndeliveredBytes)(Bytes(found.lost).into()).of(found.sent);
    lost.at = found.first_lost.filter(|_| found.lost > 0);
    let mut all = vec![lost];
    if found.retransmitted > 0 {
        all.push(of(Key::NeedlessRetransmissions)(found.needless.into()).of(found.retransmitted));
    }
    // Elsewhere that time includes the RTT to the receiver.
    let held = found.held.filter(|_| at_receiver);
    // Within the error of the clocks it is no delay.
    let seen = |times: Option<(Nanos, Nanos)>| times.filter(|(_, most)| *most > found.error);
    let (forward, reverse) = (seen(found.forward), seen(found.reverse));
    for (middle, largest, times) in [
        (Key::ForwardDelayMedian, Key::ForwardDelayMax, forward),
        (Key::ReverseDelayMedian, Key::ReverseDelayMax, reverse),
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

/// Adds what the receiver of a connection saw to the sender's facts. Returns what only both together
/// show.
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
    let reader = ReceivingSocket::of(receiver.1);
    if facts.source == Source::Trace {
        facts.source = Source::TraceOfBothEnds;
    }
    if let Some(reader) = &reader {
        reader.inform(facts, begun, clocks.unwrap_or(&Clocks::default()));
    }
    let mut shown = Vec::new();
    if let Some(found) = found {
        facts.needless = facts.needless.max(found.needless);
        shown = evidence(&found, facts.source, true);
    }
    shown.extend(reader.iter().flat_map(ReceivingSocket::evidence));
    shown
}

/// What one end of a connection sent and received.
fn passes(connection: &Connection, events: &[&Segment]) -> Passes {
    let mut passes = Passes::new(connection.local, connection.remote);
    for event in events {
        if let Some(packet) = Packet::of_segment(connection.local, connection.remote, event) {
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
    let ends = LegEnds::of(run, leg);
    // Replies can be the matter of a leg: then its sender is the end that answers.
    let (sender, receiver) = match std::ptr::eq(ends.sender, leg.sender()) {
        true => (sender, receiver),
        false => (receiver, sender),
    };
    let token = std::ptr::eq(ends.sender, &leg.local);
    let (sender, receiver) = (sender.map(TraceEvents::of), receiver.map(TraceEvents::of));
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
            if let Some(mut explanation) = traced.and_then(Option::take) {
                explanation
                    .doubts
                    .extend(cut(ends.sender, explanation.span));
                return Some(explanation);
            }
            let reader = receiver
                .as_ref()
                .and_then(|r| ReceivingSocket::of(r.at(ends.receiver.sockets.get(n)?)?.1));
            let explanation = samples::stream(run, leg, ends, n, &mut |facts| {
                reader.iter().for_each(|r| r.inform_as_a_whole(facts));
            })?;
            let ends = reader.iter().flat_map(ReceivingSocket::evidence).collect();
            Some(Explanation {
                ends,
                ..explanation
            })
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
struct TraceEvents<'a> {
    trace: &'a Trace,
    events: Vec<Vec<&'a Segment>>,
}

/// A connection and its events.
type Events<'a> = (&'a Connection, &'a [&'a Segment]);

impl<'a> TraceEvents<'a> {
    fn of(trace: &'a Trace) -> TraceEvents<'a> {
        let mut events = vec![Vec::new(); trace.connections.len()];
        for segment in &trace.segments {
            if let Some(own) = events.get_mut(segment.connection as usize) {
                own.push(segment);
            }
        }
        TraceEvents { trace, events }
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
        marks.begin(self.trace.begin.started);
        for segment in &self.trace.segments {
            let connection = self.trace.connections.get(segment.connection as usize);
            if let Some(packet) =
                connection.and_then(|c| Packet::of_segment(c.local, c.remote, segment))
            {
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
    let (in_a, in_b) = (TraceEvents::of(a.1), TraceEvents::of(b.1));
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
        // The first half of either is what its own end sent.
        let other_end = |n: usize| {
            let (n, _) = there.find(passes.get(n)?, |half| half == 1)?;
            others.connection(n)
        };
        let mut watcher = crate::watched(own.trace, &|_| Nanos(0));
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
        // Data that one host received and the other sent are reported as the sender's.
        let rest = received.into_iter().filter(is_alone);
        explanations.extend(both.into_iter().chain(rest).map(|mut one| {
            if is_alone(&one) {
                one.doubts.push(alone(name, other_name));
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

/// Two captures of the same traffic: connections that are in both are reported once, with what the two places
/// show together; the others as each capture has them.
pub fn joined(a: (&str, CaptureObserver), b: (&str, CaptureObserver)) -> Joined {
    let ((name_a, a), (name_b, b)) = (a, b);
    let (mut a, mut b) = (a.into_place(), b.into_place());
    let clocks = join(a.marks, b.marks);
    let at_b = SideIndex::of(&b.passes);
    let mut joined = Vec::new();
    for (here, explained) in a.passes.iter().zip(&mut a.halves) {
        let Some((n, first)) = at_b.find(here, |_| true) else {
            continue;
        };
        for half in [0, 1] {
            let other = half ^ first;
            let mine = explained[half].take();
            let theirs = b.halves[n][other].take();
            let both = BothPlaces {
                places: (here, &b.passes[n]),
                halves: (half, other),
                segment: None,
            };
            let found = clocks.and_then(|clocks| both.compare(&clocks));
            let (near, far, found) = match found {
                Some(ComparedDirection::Backward(found)) => (theirs, mine, Some(found)),
                Some(ComparedDirection::Forward(found)) => (mine, theirs, Some(found)),
                None => (mine, theirs, None),
            };
            let at_receiver = far
                .as_ref()
                .is_some_and(|far| far.source == Source::CaptureAtReceiver);
            let Some(mut own) = near.or(far) else {
                continue;
            };
            match found {
                Some(found) => {
                    own.source = Source::CapturesAtTwoPlaces;
                    own.ends = evidence(&found, own.source, at_receiver);
                    if found.unseen > 0 {
                        let unseen = Bytes(found.unseen);
                        own.doubts.push(format!(
                            "{unseen} were acknowledged and are not in the capture nearer to the receiver: it lost packets"
                        ));
                    }
                    if let Some(stream) = &mut own.stream {
                        stream.needless_retransmissions = found.needless;
                        stream.path = found.figures();
                    }
                }
                None => own.doubts.push(
                    "it is in both captures, but no packet of it passed both places".to_owned(),
                ),
            }
            joined.push(own);
        }
    }
    for (name, other, rest) in [(name_a, name_b, a.halves), (name_b, name_a, b.halves)] {
        joined.extend(rest.into_iter().flatten().flatten().map(|mut one| {
            one.doubts.push(alone(name, other));
            one
        }));
    }
    let mut joined = Joined::of(joined, clocks);
    if let Some(first) = joined.explanations.first_mut() {
        first.doubts.extend(a.doubts.into_iter().chain(b.doubts));
    }
    joined
}

/// Only one of two places has a connection.
fn alone(name: &str, other: &str) -> String {
    format!("it is in {name} only, not in {other}: it is explained from {name} alone")
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

    #[test]
    fn a_socket_is_that_of_a_connection_by_both_ends_in_either_form_of_address() {
        let connection = Connection {
            id: 0,
            cookie: 1,
            netns: 0,
            local: ([192, 0, 2, 1], 40000).into(),
            remote: ([192, 0, 2, 2], 5201).into(),
        };
        let socket = |local: &str, remote: &str| {
            SocketOptions::new(0, local.parse().unwrap(), remote.parse().unwrap())
        };
        let own = socket("192.0.2.1:40000", "192.0.2.2:5201");
        let mapped = socket("[::ffff:192.0.2.1]:40000", "[::ffff:192.0.2.2]:5201");
        let others = [
            socket("192.0.2.1:40001", "192.0.2.2:5201"),
            socket("192.0.2.1:40000", "192.0.2.2:5202"),
            socket("192.0.2.9:40000", "192.0.2.2:5201"),
            socket("192.0.2.1:40000", "192.0.2.9:5201"),
        ];
        assert!(is_socket(&own, &connection) && is_socket(&mapped, &connection));
        assert!(!others.iter().any(|other| is_socket(other, &connection)));
        let place = |own: Option<SocketOptions>| {
            let sockets = others.iter().cloned().chain(own).collect();
            stream_of(
                &EndRecord {
                    sockets,
                    ..EndRecord::default()
                },
                &connection,
            )
        };
        assert_eq!([place(Some(mapped)), place(None)], [Some(4), None]);
    }

    #[test]
    fn a_load_begins_with_the_first_data_or_after_the_token() {
        let event = |ms, what, payload| Segment {
            at: Nanos::from_millis(ms),
            what,
            payload: Bytes(payload),
            ..Segment::default()
        };
        let trace = Trace {
            connections: vec![Connection {
                id: 0,
                cookie: 1,
                netns: 0,
                local: ([192, 0, 2, 1], 40000).into(),
                remote: ([192, 0, 2, 2], 5201).into(),
            }],
            segments: vec![
                event(1, What::Sent, 0),
                event(2, What::Received, 9),
                event(3, What::Sent, 16),
                event(4, What::Sent, 1448),
            ],
            ..Trace::default()
        };
        let events = TraceEvents::of(&trace);
        let begins = |n, token| events.load_begins(n, token).0 / 1_000_000;
        assert_eq!(
            [begins(0, false), begins(0, true), begins(1, false)],
            [3, 4, 0]
        );
    }

    #[test]
    fn what_only_one_place_has_is_explained_from_it_and_says_so() {
        let words = alone("a.pcap", "b.pcap");
        assert_eq!(
            words,
            "it is in a.pcap only, not in b.pcap: it is explained from a.pcap alone"
        );
        let end = |cut| EndRecord {
            duration: Nanos::from_secs(9),
            trace: Some(model::Traced {
                cut,
                ..Default::default()
            }),
            ..EndRecord::default()
        };
        let words = cut(&end(true), Nanos::from_secs(4)).unwrap();
        assert!(words.starts_with("the trace has the first 4"), "{words}");
        assert_eq!(cut(&end(false), Nanos::from_secs(4)), None);
        assert_eq!(cut(&EndRecord::default(), Nanos(0)), None);
    }
}
