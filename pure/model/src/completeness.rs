//! Whether a trace holds every segment of a connection: the kernel counts them too.

use crate::segment::{distance, tcp_flag, tcp_state};
use crate::{Nanos, Segment, TraceSample, What};
use serde::{Deserialize, Serialize};

/// Gaps that are reported one by one; further ones only count.
const GAPS_KEPT: usize = 64;

/// After this a packet on its way between device and socket has arrived.
const SETTLING: Nanos = Nanos::from_millis(100);

/// Compares the segments of one connection with the kernel's own counters, as they come: `segs_out` and
/// `segs_in` rise by exactly the segments of each event, and `total_retrans` by those that were
/// retransmissions.
///
/// Where only packets are seen, the counters are those of the samples between them. A segment is counted before its
/// packet passes the device, or after: so a sample is compared with the packets up to the next one, and what is missing
/// is only what stays missing.
#[derive(Clone, Debug, Default)]
pub struct CompletenessCheck {
    sent: DirectionCount,
    received: DirectionCount,
    retransmitted: u64,
    /// `total_retrans` before the first event, and at the last one that reports it.
    counted_retrans: Option<(u32, u32)>,
    gaps: Vec<Gap>,
    /// Events come with their socket.
    probed: bool,
    /// The handshake was seen: the counters count from zero.
    born: bool,
    sampled: Option<Sampled>,
}

/// One direction.
#[derive(Clone, Debug, Default)]
struct DirectionCount {
    segments: u64,
    /// What the kernel's counter should say after the events so far; of packets, beside `base`.
    expected: u32,
    missing: u64,
    /// When both were last the same.
    compared: Nanos,
    /// What the kernel had counted beside the packets seen.
    base: u32,
    /// The counter of the last sample.
    last: u32,
    rises: Vec<Rise>,
}

/// When samples were taken.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    /// Until then the base of a connection that is older than the trace is being found: packets were on
    /// their way between device and socket.
    settles: Nanos,
    /// The last one. It is judged at the next.
    at: Nanos,
    /// The last one that was judged.
    judged: Nanos,
}

/// Between two samples, so many segments in all came to be missing for good.
#[derive(Clone, Copy, Debug)]
struct Rise {
    from: Nanos,
    to: Nanos,
    level: u32,
}

/// What an [`CompletenessCheck`] takes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTally {
    /// When.
    pub at: Nanos,
    /// What happened.
    pub what: What,
    /// Segments on the wire.
    pub segments: u32,
    /// [`Segment::is_retransmission`].
    pub retransmission: bool,
    /// State of the connection.
    pub state: u8,
    /// The kernel's counters.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Segments retransmitted.
    pub total_retrans: u32,
}

impl EventTally {
    /// Of an event; `None` where there is no socket.
    pub fn of(segment: &Segment) -> Option<EventTally> {
        let socket = segment.probed()?;
        Some(EventTally {
            at: segment.at,
            what: segment.what,
            segments: segment.segments,
            retransmission: segment.is_retransmission(),
            state: socket.state,
            segs_out: socket.segs_out,
            segs_in: socket.segs_in,
            total_retrans: socket.total_retrans,
        })
    }

    /// It is the connection's end.
    pub fn closes(&self) -> bool {
        self.what == What::State && self.state == tcp_state::CLOSE
    }
}

/// Segments that the kernel counted and the trace does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Until here the counter and the trace were the same.
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

/// What an [`CompletenessCheck`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completeness {
    /// Segments sent, as traced; a super-segment counts as its segments on the wire.
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
    /// Only packets were seen, and no sample of the socket to compare them with.
    pub unchecked: bool,
    /// Packets were seen, as they passed the device, behind this host's own queue.
    pub behind_queue: bool,
}

impl Completeness {
    /// Every segment that the kernel counted is there.
    pub fn is_complete(&self) -> bool {
        self.sent_missing == 0 && self.received_missing == 0 && !self.unchecked
    }
}

impl CompletenessCheck {
    /// Takes the next event of the connection.
    pub fn push(&mut self, segment: &Segment) {
        match EventTally::of(segment) {
            Some(tally) => self.count(&tally),
            None => self.push_packet(segment),
        }
    }

    /// As [`CompletenessCheck::see`], of what it takes.
    pub fn count(&mut self, tally: &EventTally) {
        // A listener's counters are not those of the connection that it answers for.
        if tally.state == tcp_state::LISTEN {
            return;
        }
        let segments = tally.segments;
        if !self.probed {
            self.probed = true;
            self.sent.expected = tally.segs_out;
            self.received.expected = tally.segs_in;
            if tally.what == What::Sent {
                self.sent.expected = tally.segs_out.wrapping_sub(segments);
            }
            (self.sent.compared, self.received.compared) = (tally.at, tally.at);
        }
        match tally.what {
            What::Sent => {
                self.sent.add(segments);
                // Sent under the socket's lock: a counter behind the events can only mean that the
                // first event was read while this one was on its way.
                if distance(tally.segs_out, self.sent.expected).0 > 0 {
                    self.sent.expected = tally.segs_out;
                }
                self.compare(true, tally.segs_out, tally.at);
                let retransmitted = u32::from(tally.retransmission) * segments;
                self.retransmitted += u64::from(retransmitted);
                let before = tally.total_retrans.wrapping_sub(retransmitted);
                self.counted_retrans.get_or_insert((before, 0)).1 = tally.total_retrans;
            }
            What::Received => {
                // Received without the lock: the counter is read before the event's clock, so it can be
                // behind for a moment, never ahead.
                self.compare(false, tally.segs_in, tally.at);
                self.received.add(segments);
            }
            // The end of a connection counts all that it ever had.
            What::State if tally.closes() => {
                self.compare(true, tally.segs_out, tally.at);
                self.compare(false, tally.segs_in, tally.at);
            }
            _ => {}
        }
    }

    fn push_packet(&mut self, segment: &Segment) {
        let opens = segment.flags & tcp_flag::SYN != 0;
        self.born |= opens;
        match segment.what {
            // The socket of the end that was connected to counts the SYN, and not the answer, which a listener sent.
            What::Sent if opens && segment.flags & tcp_flag::ACK != 0 => {}
            What::Sent => {
                self.sent.add(segment.segments);
                self.retransmitted +=
                    u64::from(u32::from(segment.is_retransmission()) * segment.segments);
            }
            What::Received => self.received.add(segment.segments),
            _ => {}
        }
    }

    /// Takes the next sample of the connection's socket.
    pub fn sample(&mut self, sample: &TraceSample) {
        let socket = &sample.socket;
        let (Some(sent), Some(received)) = (socket.segs_out(), socket.segs_in()) else {
            return;
        };
        if self.probed {
            return;
        }
        let (is_first, born) = (self.sampled.is_none(), self.born);
        let sampled = self.sampled.get_or_insert(Sampled {
            settles: match born {
                true => Nanos(0),
                false => sample.at + SETTLING,
            },
            at: sample.at,
            judged: Nanos(0),
        });
        // The packets of a socket that is gone have left: the kernel keeps it until they have.
        let at = if sample.gone { sample.at } else { sampled.at };
        for (way, counter) in [(&mut self.sent, sent), (&mut self.received, received)] {
            if is_first {
                way.last = counter;
                way.base = match born {
                    true => 0,
                    false => counter.wrapping_sub(way.expected),
                };
            }
            let judged = if sample.gone { counter } else { way.last };
            let beside = judged.wrapping_sub(way.expected);
            if at < sampled.settles && distance(way.base, beside).0 > 0 {
                way.base = beside;
            }
            way.rise((sampled.judged, at), beside.wrapping_sub(way.base));
            way.last = counter;
        }
        (sampled.judged, sampled.at) = (at, sample.at);
        let retransmitted = socket.total_retrans().unwrap_or_default();
        let before = if born { 0 } else { retransmitted };
        self.counted_retrans.get_or_insert((before, 0)).1 = retransmitted;
    }

    /// What was found so far.
    pub fn result(&self) -> Completeness {
        let mut gaps = self.gaps.clone();
        if !self.probed {
            gaps.extend(self.sent.gaps(true).chain(self.received.gaps(false)));
            gaps.sort_by_key(|gap| gap.from);
            gaps.truncate(GAPS_KEPT);
        }
        let (sent, received) = (self.sent.segments, self.received.segments);
        let (first, last) = self.counted_retrans.unwrap_or_default();
        Completeness {
            sent,
            received,
            sent_missing: self.sent.missing(),
            received_missing: self.received.missing(),
            retransmitted: self.retransmitted,
            retransmitted_counted: u64::from(last.wrapping_sub(first)),
            gaps,
            unchecked: !self.probed && self.sampled.is_none() && sent + received > 0,
            behind_queue: !self.probed,
        }
    }

    fn compare(&mut self, sent: bool, counter: u32, at: Nanos) {
        let way = match sent {
            true => &mut self.sent,
            false => &mut self.received,
        };
        let from = std::mem::replace(&mut way.compared, at);
        let segments = distance(way.expected, counter).0;
        if segments == 0 {
            return;
        }
        way.expected = counter;
        way.missing += segments;
        if self.gaps.len() < GAPS_KEPT {
            self.gaps.push(Gap {
                from,
                to: at,
                segments,
                sent,
            });
        }
    }
}

impl DirectionCount {
    fn add(&mut self, segments: u32) {
        self.segments += u64::from(segments);
        self.expected = self.expected.wrapping_add(segments);
    }

    /// Adds what one sample says: what it does not miss was not missing before.
    fn rise(&mut self, (mut from, mut to): (Nanos, Nanos), missing: u32) {
        // More packets than were counted: those that came too late for any socket.
        let level = u32::try_from(missing as i32).unwrap_or(0);
        while let Some(last) = self.rises.pop_if(|rise| rise.level >= level) {
            (from, to) = (last.from, last.to);
        }
        if level > 0 {
            // Many small ones are reported as one.
            if self.rises.len() >= GAPS_KEPT
                && let Some(last) = self.rises.pop()
            {
                from = last.from;
            }
            self.rises.push(Rise { from, to, level });
        }
    }

    fn missing(&self) -> u64 {
        self.missing + self.rises.last().map_or(0, |rise| u64::from(rise.level))
    }

    /// Where samples show that packets are missing.
    fn gaps(&self, sent: bool) -> impl Iterator<Item = Gap> {
        let before = std::iter::once(0).chain(self.rises.iter().map(|rise| rise.level));
        self.rises
            .iter()
            .zip(before)
            .map(move |(rise, before)| Gap {
                from: rise.from,
                to: rise.to,
                segments: u64::from(rise.level - before),
                sent,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, SocketState, SocketValues};
    use proptest::prelude::*;

    /// A kernel that counts, and the events that it would report.
    #[derive(Default)]
    struct Kernel {
        socket: SocketValues,
        at: u64,
    }

    impl Kernel {
        fn event(&mut self, what: What, segments: u32) -> Segment {
            self.at += 10;
            if what == What::Sent {
                self.socket.segs_out = self.socket.segs_out.wrapping_add(segments);
            }
            let segment = Segment {
                at: Nanos(self.at),
                what,
                segments,
                payload: Bytes(u64::from(segments) * 100),
                seq: self.socket.snd_nxt,
                socket: Some(SocketState::from_probe(self.socket.clone())),
                ..Segment::default()
            };
            match what {
                What::Sent => {
                    self.socket.snd_nxt = self.socket.snd_nxt.wrapping_add(segments * 100)
                }
                What::Received => self.socket.segs_in = self.socket.segs_in.wrapping_add(segments),
                _ => {}
            }
            segment
        }
    }

    #[test]
    fn a_missing_segment_is_counted_and_placed() {
        let mut kernel = Kernel::default();
        let mut check = CompletenessCheck::default();
        check.push(&kernel.event(What::Sent, 2));
        kernel.event(What::Sent, 45);
        kernel.event(What::Received, 3);
        check.push(&kernel.event(What::Received, 1));
        check.push(&kernel.event(What::Sent, 1));
        let found = check.result();
        assert_eq!((found.sent, found.sent_missing), (3, 45));
        assert_eq!((found.received, found.received_missing), (1, 3));
        let gap = |from, to, segments, sent| Gap {
            from: Nanos(from),
            to: Nanos(to),
            segments,
            sent,
        };
        assert_eq!(found.gaps, [gap(10, 40, 3, false), gap(10, 50, 45, true)]);
        assert!(!found.is_complete());
    }

    #[test]
    fn segments_lost_at_the_end_are_known_when_it_closes() {
        let mut kernel = Kernel::default();
        let mut check = CompletenessCheck::default();
        check.push(&kernel.event(What::Sent, 1));
        kernel.event(What::Received, 1);
        assert!(check.result().is_complete());
        kernel.socket.state = tcp_state::CLOSE;
        check.push(&kernel.event(What::State, 0));
        assert_eq!(check.result().received_missing, 1);
    }

    #[test]
    fn a_counter_read_too_early_is_no_gap() {
        // Two packets of one connection on two processors: both events come before either is counted.
        let mut kernel = Kernel::default();
        let mut check = CompletenessCheck::default();
        let first = kernel.event(What::Received, 1);
        let mut second = kernel.event(What::Received, 1);
        second.socket = first.socket.clone();
        let third = kernel.event(What::Received, 1);
        for segment in [&first, &second, &third] {
            check.push(segment);
        }
        assert!(check.result().is_complete());
    }

    #[test]
    fn retransmissions_agree_with_the_kernel() {
        let mut kernel = Kernel::default();
        kernel.socket.total_retrans = 7;
        let mut check = CompletenessCheck::default();
        check.push(&kernel.event(What::Sent, 4));
        kernel.socket.total_retrans += 2;
        let mut again = kernel.event(What::Sent, 2);
        again.seq = 0;
        check.push(&again);
        let found = check.result();
        assert_eq!((found.retransmitted, found.retransmitted_counted), (2, 2));
        assert!(found.is_complete());
    }

    /// A packet, as a packet socket reports it.
    fn packet(at: u64, what: What, segments: u32) -> Segment {
        Segment {
            at: Nanos(at),
            what,
            segments,
            payload: Bytes(u64::from(segments) * 100),
            flags: tcp_flag::ACK,
            ..Segment::default()
        }
    }

    fn sample(at: u64, segs_out: u32, segs_in: u32) -> TraceSample {
        let socket = crate::socket_state! {
            segs_out: Some(segs_out),
            segs_in: Some(segs_in),
        };
        TraceSample {
            at: Nanos(at),
            socket,
            ..TraceSample::default()
        }
    }

    #[test]
    fn samples_show_which_packets_are_missing_and_what_waits_is_not() {
        let mut check = CompletenessCheck::default();
        check.push(&packet(1, What::Sent, 3));
        assert!(check.result().unchecked);
        // A packet has passed the device, and its socket counts it later.
        check.push(&packet(2, What::Received, 1));
        check.sample(&sample(10, 1_003, 499));
        check.sample(&sample(20, 1_003, 500));
        let ms = 1_000_000;
        // Five more are counted and wait in a queue of this host; they pass the device later.
        check.sample(&sample(210 * ms, 1_008, 500));
        check.push(&packet(211 * ms, What::Sent, 5));
        check.push(&packet(212 * ms, What::Received, 2));
        check.sample(&sample(220 * ms, 1_008, 502));
        assert!(check.result().is_complete(), "{:?}", check.result());
        // Two were sent between 220 and 230 that no packet shows.
        check.push(&packet(225 * ms, What::Sent, 1));
        check.sample(&sample(230 * ms, 1_011, 502));
        check.push(&packet(235 * ms, What::Sent, 1));
        check.sample(&sample(240 * ms, 1_012, 502));
        check.sample(&sample(250 * ms, 1_012, 502));
        let found = check.result();
        assert_eq!(
            (found.sent, found.sent_missing, found.received_missing),
            (10, 2, 0)
        );
        let last = found.gaps.last().unwrap();
        assert!(last.sent && last.from >= Nanos(220 * ms), "{found:?}");
    }

    #[test]
    fn a_connection_seen_from_its_handshake_counts_from_zero() {
        let mut check = CompletenessCheck::default();
        let syn = |what, flags| Segment {
            flags,
            payload: Bytes(0),
            ..packet(1, what, 1)
        };
        // The end that is connected to: a listener sent its answer.
        check.push(&syn(What::Received, tcp_flag::SYN));
        check.push(&syn(What::Sent, tcp_flag::SYN | tcp_flag::ACK));
        check.push(&packet(2, What::Received, 1));
        check.push(&packet(3, What::Sent, 4));
        let last = TraceSample {
            gone: true,
            ..sample(9, 6, 2)
        };
        check.sample(&last);
        let found = check.result();
        assert_eq!((found.sent_missing, found.received_missing), (2, 0));
        // The end that connects counts its handshake.
        let mut check = CompletenessCheck::default();
        check.push(&syn(What::Sent, tcp_flag::SYN));
        check.push(&syn(What::Received, tcp_flag::SYN | tcp_flag::ACK));
        let last = TraceSample {
            gone: true,
            ..sample(9, 1, 1)
        };
        check.sample(&last);
        assert!(check.result().is_complete());
    }

    proptest! {
        #[test]
        fn what_is_left_out_is_what_is_missing(
            events in proptest::collection::vec((any::<bool>(), 1u32..46, any::<bool>()), 2..60),
            start in any::<u32>(),
        ) {
            let mut kernel = Kernel::default();
            (kernel.socket.segs_out, kernel.socket.segs_in) = (start, start.wrapping_mul(3));
            let mut check = CompletenessCheck::default();
            check.push(&kernel.event(What::Wrote, 0));
            let (mut out, mut inn) = (0, 0);
            for (sent, segments, lost) in events {
                let segment = kernel.event(if sent { What::Sent } else { What::Received }, segments);
                if !lost {
                    check.push(&segment);
                } else if sent {
                    out += u64::from(segments);
                } else {
                    inn += u64::from(segments);
                }
            }
            kernel.socket.state = tcp_state::CLOSE;
            check.push(&kernel.event(What::State, 0));
            let found = check.result();
            prop_assert_eq!((found.sent_missing, found.received_missing), (out, inn));
        }
    }
}
