//! The last seconds of a trace, in memory.

use model::{Connection, Nanos, TraceRecord};
use observe::trace::EncodedEvent;
use std::collections::{HashMap, HashSet, VecDeque};

/// A record, and what the probes wrote of it.
type KeptEvent = (TraceRecord, Box<[u8]>);

pub struct EventRing {
    span: Nanos,
    most: usize,
    /// Segments and samples.
    events: VecDeque<KeptEvent>,
    connections: HashMap<u32, Connection>,
}

/// Time and connection of a segment or a sample.
pub fn event(record: &TraceRecord) -> Option<(Nanos, u32)> {
    match record {
        TraceRecord::Segment(segment) => Some((segment.at, segment.connection)),
        TraceRecord::Sample(sample) => Some((sample.at, sample.connection)),
        _ => None,
    }
}

impl EventRing {
    /// Of the last `span`, and of so many events at the most.
    pub fn new(span: Nanos, most: usize) -> EventRing {
        EventRing {
            span,
            most,
            events: VecDeque::new(),
            connections: HashMap::new(),
        }
    }

    /// Keeps a connection, a segment or a sample.
    pub fn push(&mut self, record: TraceRecord, written: EncodedEvent<'_>) {
        if let TraceRecord::Connection(connection) = record {
            self.connections.insert(connection.id, connection);
            if self.connections.len() > self.most {
                let there = self.there();
                self.connections.retain(|id, _| there.contains(id));
            }
            return;
        }
        let Some((at, _)) = event(&record) else {
            return;
        };
        let from = at.since(self.span);
        let old = |(record, _): &KeptEvent| event(record).is_some_and(|(at, _)| at < from);
        // Before it is added, so that there is never more room than for the most.
        while self.events.len() >= self.most || self.events.front().is_some_and(old) {
            self.events.pop_front();
        }
        self.events.push_back((record, written.0.into()));
    }

    /// Connections that have an event.
    pub fn there(&self) -> HashSet<u32> {
        let events = self.events.iter().filter_map(|(record, _)| event(record));
        events.map(|(_, id)| id).collect()
    }

    pub fn connection(&self, id: u32) -> Option<&Connection> {
        self.connections.get(&id)
    }

    /// The connection of a socket and its events, if it is known, and how long before the newest event of all they begin.
    pub fn take_socket(mut self, netns: u32, cookie: u64) -> Option<(Vec<KeptEvent>, Nanos)> {
        let mut all = self.connections.into_values();
        let connection = all.find(|one| (one.netns, one.cookie) == (netns, cookie))?;
        let time = |kept: Option<&KeptEvent>| kept.and_then(|(record, _)| event(record));
        let (newest, _) = time(self.events.back())?;
        let is_its = |(_, id)| id == connection.id;
        self.events
            .retain(|(record, _)| event(record).is_some_and(is_its));
        let first = time(self.events.front()).map_or(newest, |(at, _)| at);
        let known = (TraceRecord::Connection(connection), Box::default());
        let events = std::iter::once(known).chain(self.events);
        Some((events.collect(), newest.since(first)))
    }

    /// All events; none are left.
    pub fn take(&mut self) -> VecDeque<KeptEvent> {
        std::mem::take(&mut self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Segment;

    #[test]
    fn a_socket_has_its_own_events_of_the_last_seconds() {
        let mut ring = EventRing::new(Nanos::from_secs(10), 100);
        for id in 0..2 {
            let connection = Connection {
                id,
                netns: 7,
                cookie: 40 + u64::from(id),
                local: ([192, 0, 2, 1], 40_000).into(),
                remote: ([192, 0, 2, 2], 873).into(),
            };
            ring.push(TraceRecord::Connection(connection), EncodedEvent(&[]));
        }
        for n in 0..30 {
            let segment = Segment {
                at: Nanos::from_secs(n),
                connection: (n % 2) as u32,
                ..Segment::default()
            };
            ring.push(TraceRecord::Segment(segment), EncodedEvent(&[n as u8]));
        }
        let (events, before) = ring.take_socket(7, 40).unwrap();
        let written: Vec<u8> = events
            .iter()
            .flat_map(|(_, bytes)| bytes.to_vec())
            .collect();
        assert_eq!(written, [20, 22, 24, 26, 28]);
        assert_eq!(before, Nanos::from_secs(9), "the newest is of the other");
        assert!(matches!(&events[0].0, TraceRecord::Connection(one) if one.cookie == 40));
        assert!(EventRing::new(Nanos(0), 1).take_socket(7, 40).is_none());
    }
}
