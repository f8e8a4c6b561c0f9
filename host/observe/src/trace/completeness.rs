//! Whether each segment of each connection of a trace is there.

use super::connections::ByNumber;
use model::{Completeness, CompletenessCheck, Connection, EventTally, TraceEnd, TraceRecord};
use std::collections::HashMap;

/// Connections that are kept at most, before complete ones are only counted.
const KEPT: usize = 100_000;

/// The completeness of a trace, connection by connection: what its last lines report.
#[derive(Debug, Default)]
pub struct TraceCompleteness {
    /// How it ended.
    pub end: TraceEnd,
    kept: HashMap<u32, Checked, ByNumber>,
    /// Connections that ended and are only counted, all complete.
    pub folded: u64,
    /// TraceCompleteness after the last look for complete ones.
    left: usize,
}

#[derive(Debug)]
struct Checked {
    connection: Connection,
    check: CompletenessCheck,
    closed: bool,
}

impl TraceCompleteness {
    /// What was found of each connection, in the order in which they were first seen.
    pub fn found(&self) -> impl Iterator<Item = (&Connection, Completeness)> {
        let mut all: Vec<&Checked> = self.kept.values().collect();
        all.sort_by_key(|one| one.connection.id);
        let found = all.into_iter();
        found.map(|one| (&one.connection, one.check.result()))
    }

    /// Takes a record of packets or samples.
    pub(super) fn push(&mut self, record: &TraceRecord) {
        match record {
            TraceRecord::Connection(connection) => self.open(connection),
            TraceRecord::Segment(segment) => {
                if let Some(one) = self.kept.get_mut(&segment.connection) {
                    one.check.push(segment);
                }
            }
            TraceRecord::Sample(sample) => {
                if let Some(one) = self.kept.get_mut(&sample.connection) {
                    one.check.sample(sample);
                    one.closed = sample.gone;
                }
            }
            _ => {}
        }
    }

    /// A connection begins, or its socket is known now.
    pub(super) fn open(&mut self, connection: &Connection) {
        // Those that are not complete stay: so that they are not looked through again for each new one.
        if self.kept.len() >= KEPT.max(2 * self.left) {
            let before = self.kept.len();
            self.kept
                .retain(|_, one| !one.closed || !one.check.result().is_complete());
            self.left = self.kept.len();
            self.folded += (before - self.left) as u64;
        }
        let check = self.kept.remove(&connection.id).map(|one| one.check);
        let one = Checked {
            connection: connection.clone(),
            check: check.unwrap_or_default(),
            closed: false,
        };
        self.kept.insert(connection.id, one);
    }

    /// An event of the connection with this number.
    pub(super) fn count(&mut self, id: u32, tally: &EventTally) {
        if let Some(one) = self.kept.get_mut(&id) {
            one.check.count(tally);
            one.closed = tally.closes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::segment::tcp_state;
    use model::{Nanos, What};

    #[test]
    fn complete_ones_that_ended_are_only_counted_once_there_are_many() {
        let any = "198.18.0.1:5201".parse().unwrap();
        let connection = |id| Connection {
            id,
            cookie: 0,
            netns: 0,
            local: any,
            remote: any,
        };
        let closed = EventTally {
            at: Nanos(0),
            what: What::State,
            segments: 0,
            retransmission: false,
            state: tcp_state::CLOSE,
            segs_out: 0,
            segs_in: 0,
            total_retrans: 0,
        };
        let mut completeness = TraceCompleteness::default();
        let many = KEPT as u32 + 10;
        for id in 0..many {
            completeness.open(&connection(id));
            completeness.count(id, &closed);
        }
        // One had a segment that nobody saw.
        let late = EventTally {
            segs_out: 1,
            ..closed
        };
        completeness.count(many - 1, &late);
        for id in many..2 * many {
            completeness.open(&connection(id));
            completeness.count(id, &closed);
        }
        let found: Vec<_> = completeness
            .found()
            .map(|(c, found)| (c.id, found))
            .collect();
        assert_eq!(
            found.len() as u64 + completeness.folded,
            u64::from(2 * many)
        );
        assert!(found.len() < KEPT, "{}", found.len());
        assert_eq!((found[0].0, found[0].1.sent_missing), (many - 1, 1));
    }
}
