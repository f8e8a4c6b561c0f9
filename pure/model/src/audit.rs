//! Whether a trace holds every segment of a connection: the kernel counts them too.

use crate::segment::{before, tcp_state};
use crate::{Nanos, Segment, What};
use serde::{Deserialize, Serialize};

/// Gaps that are told one by one; further ones only count.
const GAPS_KEPT: usize = 64;

/// Compares the segments of one connection with the kernel's own counters, as they come: `segs_out` and
/// `segs_in` rise by exactly the segments of each event, and `total_retrans` by those that were
/// retransmissions.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    sent: Count,
    received: Count,
    retransmitted: u64,
    /// `total_retrans` before the first event, and at the last sent segment.
    counted_retrans: Option<(u32, u32)>,
    last: Nanos,
    gaps: Vec<Gap>,
    seen_any: bool,
}

/// One direction: what the kernel's counter should say after the events so far.
#[derive(Clone, Debug, Default)]
struct Count {
    segments: u64,
    expected: u32,
    missing: u64,
}

/// Segments that the kernel counted and the trace does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last event before.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// The event at which the counter was ahead.
    #[serde(rename = "to_ns")]
    pub to: Nanos,
    /// How many.
    pub segments: u64,
    /// Sent ones; else received ones.
    pub sent: bool,
}

/// What an [`Audit`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completeness {
    /// Segments sent, as traced; a super-segment counts as many as it is on the wire.
    pub sent: u64,
    /// Segments received, as traced.
    pub received: u64,
    /// Segments sent that the kernel counted and the trace lacks.
    pub sent_missing: u64,
    /// Segments received that the kernel counted and the trace lacks.
    pub received_missing: u64,
    /// Segments retransmitted, as traced.
    pub retransmitted: u64,
    /// Segments retransmitted, as the kernel counted them.
    pub retransmitted_counted: u64,
    /// Where they are missing; at most the first 64 places.
    pub gaps: Vec<Gap>,
}

impl Completeness {
    /// Every segment that the kernel counted is there.
    pub fn is_complete(&self) -> bool {
        self.sent_missing == 0 && self.received_missing == 0
    }
}

impl Audit {
    /// Takes the next event of the connection.
    pub fn see(&mut self, segment: &Segment) {
        // A listener's counters are not those of the connection that it answers for.
        let Some(tcb) = segment
            .tcb
            .as_ref()
            .filter(|tcb| tcb.state != tcp_state::LISTEN)
        else {
            return;
        };
        let segments = segment.segments;
        if !self.seen_any {
            self.seen_any = true;
            self.sent.expected = tcb.segs_out;
            self.received.expected = tcb.segs_in;
            if segment.what == What::Sent {
                self.sent.expected = tcb.segs_out.wrapping_sub(segments);
            }
            self.last = segment.at;
        }
        match segment.what {
            What::Sent => {
                self.sent.add(segments);
                // Sent under the socket's lock: a counter behind the events can only mean that the
                // first event was read while this one was on its way.
                if before(tcb.segs_out, self.sent.expected) {
                    self.sent.expected = tcb.segs_out;
                }
                self.compare(true, tcb.segs_out, segment.at);
                let retransmitted = u32::from(segment.is_retransmission()) * segments;
                self.retransmitted += u64::from(retransmitted);
                let (first, _) = self
                    .counted_retrans
                    .unwrap_or((tcb.total_retrans.wrapping_sub(retransmitted), 0));
                self.counted_retrans = Some((first, tcb.total_retrans));
            }
            What::Received => {
                // Received without the lock: the counter is read before the event's clock, so it can be
                // behind for a moment, never ahead.
                self.compare(false, tcb.segs_in, segment.at);
                self.received.add(segments);
            }
            // The end of a connection counts all that it ever had.
            What::State if tcb.state == tcp_state::CLOSE => {
                self.compare(true, tcb.segs_out, segment.at);
                self.compare(false, tcb.segs_in, segment.at);
            }
            _ => {}
        }
        self.last = segment.at;
    }

    /// What was found so far.
    pub fn result(&self) -> Completeness {
        let (first, last) = self.counted_retrans.unwrap_or_default();
        Completeness {
            sent: self.sent.segments,
            received: self.received.segments,
            sent_missing: self.sent.missing,
            received_missing: self.received.missing,
            retransmitted: self.retransmitted,
            retransmitted_counted: u64::from(last.wrapping_sub(first)),
            gaps: self.gaps.clone(),
        }
    }

    fn compare(&mut self, sent: bool, counter: u32, at: Nanos) {
        let count = if sent {
            &mut self.sent
        } else {
            &mut self.received
        };
        let ahead = counter.wrapping_sub(count.expected);
        if !before(count.expected, counter) {
            return;
        }
        count.expected = counter;
        count.missing += u64::from(ahead);
        if self.gaps.len() < GAPS_KEPT {
            self.gaps.push(Gap {
                from: self.last,
                to: at,
                segments: u64::from(ahead),
                sent,
            });
        }
    }
}

impl Count {
    fn add(&mut self, segments: u32) {
        self.segments += u64::from(segments);
        self.expected = self.expected.wrapping_add(segments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Tcb};
    use proptest::prelude::*;

    /// A kernel that counts, and the events that it would tell of.
    #[derive(Default)]
    struct Kernel {
        tcb: Tcb,
        at: u64,
    }

    impl Kernel {
        fn event(&mut self, what: What, segments: u32) -> Segment {
            self.at += 10;
            if what == What::Sent {
                self.tcb.segs_out = self.tcb.segs_out.wrapping_add(segments);
            }
            let segment = Segment {
                at: Nanos(self.at),
                what,
                segments,
                payload: Bytes(u64::from(segments) * 100),
                seq: self.tcb.snd_nxt,
                tcb: Some(self.tcb.clone()),
                ..Segment::default()
            };
            match what {
                What::Sent => self.tcb.snd_nxt = self.tcb.snd_nxt.wrapping_add(segments * 100),
                What::Received => self.tcb.segs_in = self.tcb.segs_in.wrapping_add(segments),
                _ => {}
            }
            segment
        }
    }

    #[test]
    fn a_missing_segment_is_counted_and_placed() {
        let mut kernel = Kernel::default();
        let mut audit = Audit::default();
        audit.see(&kernel.event(What::Sent, 2));
        kernel.event(What::Sent, 45);
        kernel.event(What::Received, 3);
        audit.see(&kernel.event(What::Received, 1));
        audit.see(&kernel.event(What::Sent, 1));
        let found = audit.result();
        assert_eq!((found.sent, found.sent_missing), (3, 45));
        assert_eq!((found.received, found.received_missing), (1, 3));
        let gap = |from, to, segments, sent| Gap {
            from: Nanos(from),
            to: Nanos(to),
            segments,
            sent,
        };
        assert_eq!(found.gaps, [gap(10, 40, 3, false), gap(40, 50, 45, true)]);
        assert!(!found.is_complete());
    }

    #[test]
    fn segments_lost_at_the_end_are_known_when_it_closes() {
        let mut kernel = Kernel::default();
        let mut audit = Audit::default();
        audit.see(&kernel.event(What::Sent, 1));
        kernel.event(What::Received, 1);
        assert!(audit.result().is_complete());
        kernel.tcb.state = tcp_state::CLOSE;
        audit.see(&kernel.event(What::State, 0));
        assert_eq!(audit.result().received_missing, 1);
    }

    #[test]
    fn a_counter_read_too_early_is_no_gap() {
        // Two packets of one connection on two processors: both events come before either is counted.
        let mut kernel = Kernel::default();
        let mut audit = Audit::default();
        let first = kernel.event(What::Received, 1);
        let mut second = kernel.event(What::Received, 1);
        second.tcb = first.tcb.clone();
        let third = kernel.event(What::Received, 1);
        for segment in [&first, &second, &third] {
            audit.see(segment);
        }
        assert!(audit.result().is_complete());
    }

    #[test]
    fn retransmissions_agree_with_the_kernel() {
        let mut kernel = Kernel::default();
        kernel.tcb.total_retrans = 7;
        let mut audit = Audit::default();
        audit.see(&kernel.event(What::Sent, 4));
        kernel.tcb.total_retrans += 2;
        let mut again = kernel.event(What::Sent, 2);
        again.seq = 0;
        audit.see(&again);
        let found = audit.result();
        assert_eq!((found.retransmitted, found.retransmitted_counted), (2, 2));
        assert!(found.is_complete());
    }

    proptest! {
        #[test]
        fn what_is_left_out_is_what_is_missing(
            events in proptest::collection::vec((any::<bool>(), 1u32..46, any::<bool>()), 2..60),
            start in any::<u32>(),
        ) {
            let mut kernel = Kernel::default();
            (kernel.tcb.segs_out, kernel.tcb.segs_in) = (start, start.wrapping_mul(3));
            let mut audit = Audit::default();
            audit.see(&kernel.event(What::Wrote, 0));
            let (mut out, mut inn) = (0, 0);
            for (sent, segments, lost) in events {
                let segment = kernel.event(if sent { What::Sent } else { What::Received }, segments);
                if !lost {
                    audit.see(&segment);
                } else if sent {
                    out += u64::from(segments);
                } else {
                    inn += u64::from(segments);
                }
            }
            kernel.tcb.state = tcp_state::CLOSE;
            audit.see(&kernel.event(What::State, 0));
            let found = audit.result();
            prop_assert_eq!((found.sent_missing, found.received_missing), (out, inn));
        }
    }
}
