//! The last seconds, kept until something happens.

use crate::event_ring::{EventRing, event};
use crate::prelude::*;
use model::segment::{ca_state, tcp_flag};
use model::{Segment, TraceSample, What};
use observe::trace::EncodedEvent;
use report::words::grouped;
use std::collections::{HashMap, HashSet};
use std::str::FromStr;

/// Events that a ring holds at most, however long it is.
const MOST: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A segment is retransmitted.
    Retransmission,
    /// A retransmission timeout.
    Rto,
    /// Either end offers no window.
    ZeroWindow,
    /// The first byte of an answer takes longer than this after the first of its request.
    Slow(Nanos),
}

impl FromStr for Trigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Trigger, String> {
        match text.split_once('=') {
            None if text == "retransmission" => Ok(Trigger::Retransmission),
            None if text == "rto" => Ok(Trigger::Rto),
            None if text == "zero-window" => Ok(Trigger::ZeroWindow),
            Some(("slow", limit)) => limit
                .parse()
                .map(Trigger::Slow)
                .map_err(|e| format!("slow: {e}")),
            _ => Err(format!(
                "'{text}' is no trigger: write retransmission, rto, zero-window or slow=TIME"
            )),
        }
    }
}

pub struct TriggerRing {
    ring: EventRing,
    triggers: Vec<Trigger>,
    fired: u64,
    /// Connections are written with the first of their events.
    written: HashSet<u32>,
    /// Requests that wait for their answer.
    asked: HashMap<u32, Nanos>,
    /// Timeouts so far, as the samples of a socket count them.
    timeouts: HashMap<u32, u16>,
}

impl TriggerRing {
    /// Of the last `span`; written when any of the triggers fires.
    pub fn new(span: Nanos, triggers: Vec<Trigger>) -> TriggerRing {
        TriggerRing {
            ring: EventRing::new(span, MOST),
            triggers,
            fired: 0,
            written: HashSet::new(),
            asked: HashMap::new(),
            timeouts: HashMap::new(),
        }
    }

    /// How often a trigger fired, in words.
    pub fn account(&self) -> String {
        match self.fired {
            0 => "no trigger fired, so no segment was written".to_owned(),
            1 => "a trigger fired once".to_owned(),
            n => format!("a trigger fired {} times", grouped(n)),
        }
    }

    /// Takes a record; writes all that is kept if it fires a trigger.
    pub fn take(
        &mut self,
        record: TraceRecord,
        written: EncodedEvent<'_>,
        write: &mut dyn FnMut(&TraceRecord, EncodedEvent<'_>) -> Result<()>,
    ) -> Result<()> {
        let fires = match &record {
            TraceRecord::Segment(segment) => self.fires(segment),
            TraceRecord::Sample(sample) => self.timed_out(sample),
            TraceRecord::Connection(connection) => {
                self.written.remove(&connection.id);
                self.ring.push(record, written);
                self.forget();
                return Ok(());
            }
            // Where events are missing is always of interest.
            other => return write(other, written),
        };
        self.ring.push(record, written);
        if !fires {
            return Ok(());
        }
        self.fired += 1;
        for (record, written) in self.ring.take() {
            if let Some((_, id)) = event(&record)
                && self.written.insert(id)
                && let Some(connection) = self.ring.connection(id)
            {
                write(
                    &TraceRecord::Connection(connection.clone()),
                    EncodedEvent(&[]),
                )?;
            }
            write(&record, EncodedEvent(&written))?;
        }
        Ok(())
    }

    /// Whether a socket had a timeout since its sample before.
    fn timed_out(&mut self, sample: &TraceSample) -> bool {
        // Older kernels do not count them, but being in one is a state.
        let in_one = u16::from(sample.socket.ca_state() == Some(ca_state::LOSS));
        let now = sample.socket.total_rto().unwrap_or(in_one);
        let before = self.timeouts.insert(sample.connection, now);
        self.triggers.contains(&Trigger::Rto) && before.is_some_and(|before| before < now)
    }

    fn fires(&mut self, segment: &Segment) -> bool {
        let waited = self.answered(segment);
        let socket = segment.probed();
        let is_data = segment.flags & (tcp_flag::SYN | tcp_flag::RST) == 0;
        self.triggers.iter().any(|trigger| match trigger {
            Trigger::Retransmission => segment.is_retransmission(),
            Trigger::Rto => {
                segment.what == What::Congestion
                    && socket.is_some_and(|socket| socket.ca_state == ca_state::LOSS)
            }
            Trigger::ZeroWindow => {
                matches!(segment.what, What::Sent | What::Received)
                    && is_data
                    && segment.window == 0
            }
            Trigger::Slow(limit) => waited.is_some_and(|waited| waited > *limit),
        })
    }

    /// How long the answer that begins here took.
    fn answered(&mut self, segment: &Segment) -> Option<Nanos> {
        if segment.payload.0 == 0 {
            return None;
        }
        match segment.what {
            What::Sent => {
                self.asked.entry(segment.connection).or_insert(segment.at);
                None
            }
            What::Received => {
                let asked = self.asked.remove(&segment.connection)?;
                Some(segment.at.since(asked))
            }
            _ => None,
        }
    }

    /// Connections without an event in the ring are no longer of interest once they are many.
    fn forget(&mut self) {
        if self
            .written
            .len()
            .max(self.asked.len())
            .max(self.timeouts.len())
            > MOST
        {
            let there = self.ring.there();
            self.written.retain(|id| there.contains(id));
            self.asked.retain(|id, _| there.contains(id));
            self.timeouts.retain(|id, _| there.contains(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Bytes, SocketState, SocketValues, socket_state};

    fn event(at_ms: u64, what: What, payload: u64) -> Segment {
        Segment {
            at: Nanos::from_millis(at_ms),
            what,
            payload: Bytes(payload),
            window: 1,
            ..Segment::default()
        }
    }

    /// The times of what a ring of 10 ms writes.
    fn written_by(trigger: &str, events: Vec<Segment>) -> Vec<u64> {
        let mut ring = TriggerRing::new(Nanos::from_millis(10), vec![trigger.parse().unwrap()]);
        let mut times = Vec::new();
        for segment in events {
            ring.take(
                TraceRecord::Segment(segment),
                EncodedEvent(&[]),
                &mut |record, _| {
                    if let TraceRecord::Segment(segment) = record {
                        times.push(segment.at.0 / 1_000_000);
                    }
                    Ok(())
                },
            )
            .unwrap();
        }
        times
    }

    #[test]
    fn what_precedes_the_trigger_is_written_once_and_nothing_older() {
        let again = Segment {
            socket: Some(SocketState::from_probe(SocketValues {
                snd_nxt: 5,
                ..SocketValues::default()
            })),
            ..event(25, What::Sent, 1)
        };
        let events = vec![
            event(1, What::Sent, 1),
            event(20, What::Sent, 1),
            again.clone(),
            event(26, What::Received, 0),
            Segment {
                at: Nanos::from_millis(27),
                ..again
            },
            event(28, What::Received, 0),
        ];
        assert_eq!(written_by("retransmission", events), [20, 25, 26, 27]);
    }

    #[test]
    fn a_slow_answer_counts_from_its_request() {
        let request_and_answer = |took: u64| {
            vec![
                event(1, What::Sent, 100),
                event(2, What::Received, 0),
                event(1 + took, What::Received, 8_192),
            ]
        };
        assert_eq!(
            written_by("slow=5ms", request_and_answer(5)),
            Vec::<u64>::new()
        );
        assert_eq!(written_by("slow=5ms", request_and_answer(6)), [1, 2, 7]);
    }

    #[test]
    fn timeouts_and_closed_windows() {
        let loss = Segment {
            socket: Some(SocketState::from_probe(SocketValues {
                ca_state: ca_state::LOSS,
                ..SocketValues::default()
            })),
            ..event(1, What::Congestion, 0)
        };
        assert_eq!(written_by("rto", vec![loss]), [1]);
        let closed = Segment {
            window: 0,
            ..event(1, What::Received, 0)
        };
        assert_eq!(written_by("zero-window", vec![closed.clone()]), [1]);
        let reset = Segment {
            flags: tcp_flag::RST,
            ..closed
        };
        assert_eq!(written_by("zero-window", vec![reset]), Vec::<u64>::new());
    }

    #[test]
    fn a_timeout_between_two_samples_fires() {
        let mut ring = TriggerRing::new(Nanos::from_millis(10), vec![Trigger::Rto]);
        let mut written = 0;
        for total_rto in [3, 3, 4] {
            let sample = TraceSample {
                socket: socket_state! { total_rto: Some(total_rto) },
                ..TraceSample::default()
            };
            let record = TraceRecord::Sample(sample);
            let mut each = |_: &TraceRecord, _: EncodedEvent<'_>| {
                written += 1;
                Ok(())
            };
            ring.take(record, EncodedEvent(&[]), &mut each).unwrap();
        }
        assert_eq!(written, 3, "the trigger and what precedes it");
    }

    #[test]
    fn triggers_are_written_as_words() {
        assert_eq!("slow=5ms".parse(), Ok(Trigger::Slow(Nanos::from_millis(5))));
        assert!("slow".parse::<Trigger>().unwrap_err().contains("slow=TIME"));
        assert!("slow=x".parse::<Trigger>().unwrap_err().contains("'x'"));
    }
}
