//! The books of a trace: whether each segment of its connections is there.

use super::connections::ByNumber;
use model::{Audit, Completeness, Connection, End, Tally, TraceRecord};
use std::collections::HashMap;

/// Connections whose books are kept at most, before complete ones are only counted.
const KEPT: usize = 100_000;

/// The books of a trace: what its last lines say.
#[derive(Debug, Default)]
pub struct Books {
    /// How it ended.
    pub end: End,
    kept: HashMap<u32, Book, ByNumber>,
    /// Connections that ended and whose books are gone, all complete.
    pub folded: u64,
    /// Books after the last look for complete ones.
    left: usize,
}

#[derive(Debug)]
struct Book {
    connection: Connection,
    audit: Audit,
    closed: bool,
}

impl Books {
    /// What was found of each connection, in the order in which they were first seen.
    pub fn found(&self) -> impl Iterator<Item = (&Connection, Completeness)> {
        let mut books: Vec<&Book> = self.kept.values().collect();
        books.sort_by_key(|book| book.connection.id);
        let found = books.into_iter();
        found.map(|book| (&book.connection, book.audit.result()))
    }

    /// Takes a record of packets or samples.
    pub(super) fn see(&mut self, record: &TraceRecord) {
        match record {
            TraceRecord::Connection(connection) => self.open(connection),
            TraceRecord::Segment(segment) => {
                if let Some(book) = self.kept.get_mut(&segment.connection) {
                    book.audit.see(segment);
                }
            }
            TraceRecord::Sample(sample) => {
                if let Some(book) = self.kept.get_mut(&sample.connection) {
                    book.audit.sample(sample);
                    book.closed = sample.gone;
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
                .retain(|_, book| !book.closed || !book.audit.result().is_complete());
            self.left = self.kept.len();
            self.folded += (before - self.left) as u64;
        }
        let audit = self.kept.remove(&connection.id).map(|book| book.audit);
        let book = Book {
            connection: connection.clone(),
            audit: audit.unwrap_or_default(),
            closed: false,
        };
        self.kept.insert(connection.id, book);
    }

    /// An event of the connection with this number.
    pub(super) fn count(&mut self, id: u32, tally: &Tally) {
        if let Some(book) = self.kept.get_mut(&id) {
            book.audit.count(tally);
            book.closed = tally.closes();
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
        let closed = Tally {
            at: Nanos(0),
            what: What::State,
            segments: 0,
            retransmission: false,
            state: tcp_state::CLOSE,
            segs_out: 0,
            segs_in: 0,
            total_retrans: 0,
        };
        let mut books = Books::default();
        let many = KEPT as u32 + 10;
        for id in 0..many {
            books.open(&connection(id));
            books.count(id, &closed);
        }
        // One had a segment that nobody saw.
        let late = Tally {
            segs_out: 1,
            ..closed
        };
        books.count(many - 1, &late);
        for id in many..2 * many {
            books.open(&connection(id));
            books.count(id, &closed);
        }
        let found: Vec<_> = books.found().map(|(c, found)| (c.id, found)).collect();
        assert_eq!(found.len() as u64 + books.folded, u64::from(2 * many));
        assert!(found.len() < KEPT, "{}", found.len());
        assert_eq!((found[0].0, found[0].1.sent_missing), (many - 1, 1));
    }
}
