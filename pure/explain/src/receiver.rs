//! What a receiver's own socket shows while data come: what its application left unread, and the window that it offered.

use crate::facts::Facts;
use crate::limits::Key;
use model::finding::{Evidence, Quantity, Source};
use model::{Bytes, Clocks, Comm, Nanos, Segment, SocketValues, TraceSample, What};
use tcp::clock::{First, HostTime};

/// Stretches that are remembered; of more, neighbours are joined.
const MOST_STRETCHES: usize = 4096;

/// The socket of a connection to which data come, from the first of them to the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivingSocket {
    stretches: Vec<UnreadInterval>,
    /// Those since the last data.
    since: Vec<UnreadInterval>,
    /// The first data, and the last.
    data: Option<(Nanos, Nanos)>,
    was: Option<(Nanos, BufferState)>,
    /// `SO_RCVBUF` as the kernel holds it: at first, and at its largest.
    buffer: (Bytes, Bytes),
    /// Process that reads.
    who: Option<(Comm, u32)>,
    /// The socket was read at its segments.
    pub is_traced: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct BufferState {
    /// What the application had not read, by the receive buffer.
    unread: f64,
    /// Less than a segment is offered.
    closed: bool,
}

/// A time, and the mean of what was unread in it.
#[derive(Clone, Copy, Debug)]
struct UnreadInterval {
    from: Nanos,
    time: Nanos,
    unread: f64,
    closed: Nanos,
}

impl BufferState {
    fn of(socket: &SocketValues) -> BufferState {
        let offered = socket.rcv_wnd.since(socket.unacked_received());
        BufferState {
            unread: socket.unread().0 as f64 / socket.rcvbuf.0.max(1) as f64,
            closed: offered.0 < u64::from(socket.rcv_mss),
        }
    }
}

fn keep(stretches: &mut Vec<UnreadInterval>, stretch: UnreadInterval) {
    stretches.push(stretch);
    if stretches.len() >= MOST_STRETCHES {
        *stretches = stretches.chunks(2).map(joined).collect();
    }
}

fn joined(pair: &[UnreadInterval]) -> UnreadInterval {
    let [a, b] = pair else { return pair[0] };
    let time = a.time + b.time;
    let sum = a.unread * a.time.0 as f64 + b.unread * b.time.0 as f64;
    UnreadInterval {
        from: a.from,
        time,
        unread: sum / time.0.max(1) as f64,
        closed: a.closed + b.closed,
    }
}

impl ReceivingSocket {
    /// From one end of a connection; `None` if no data came to it.
    pub fn of(segments: &[&Segment]) -> Option<ReceivingSocket> {
        let mut reader = ReceivingSocket::default();
        segments.iter().for_each(|segment| reader.event(segment));
        reader.data.is_some().then_some(reader)
    }

    /// Takes the next event.
    pub fn event(&mut self, segment: &Segment) {
        let data = segment.what == What::Received && segment.payload.0 > 0;
        if !data && self.data.is_none() {
            return;
        }
        if let Some(socket) = segment.probed() {
            self.is_traced = true;
            let now = BufferState::of(socket);
            // A read has the state after it, every other event the state before it.
            let before = (segment.what != What::Read).then_some(now);
            self.state(segment.at, before, now);
            self.socket(socket.rcvbuf, segment.comm, segment.pid);
        }
        if data {
            self.data = Some((self.data.map_or(segment.at, |(first, _)| first), segment.at));
            for stretch in self.since.drain(..) {
                keep(&mut self.stretches, stretch);
            }
        }
    }

    /// Takes what the kernel was asked between the packets.
    pub fn sample(&mut self, sample: &TraceSample) {
        if sample.gone || self.data.is_none() {
            return;
        }
        let buffer = sample.socket.rcvbuf().unwrap_or_default();
        let unread = sample.socket.unread().unwrap_or_default();
        let now = BufferState {
            unread: unread.0 as f64 / buffer.0.max(1) as f64,
            closed: false,
        };
        self.state(sample.at, None, now);
        self.socket(buffer, sample.comm, sample.pid);
    }

    /// The time since the last state was spent in that, or in `before`.
    fn state(&mut self, at: Nanos, before: Option<BufferState>, now: BufferState) {
        if let Some((from, was)) = self.was.replace((at, now)) {
            let BufferState { unread, closed } = before.unwrap_or(was);
            let time = at.since(from);
            let closed = if closed { time } else { Nanos(0) };
            let stretch = UnreadInterval {
                from,
                time,
                unread,
                closed,
            };
            keep(&mut self.since, stretch);
        }
    }

    fn socket(&mut self, buffer: Bytes, comm: Comm, pid: u32) {
        let (first, most) = &mut self.buffer;
        if first.0 == 0 {
            *first = buffer;
        }
        *most = buffer.max(*most);
        if pid > 0 {
            self.who = Some((comm, pid));
        }
    }

    /// Nothing is known of the socket.
    pub fn is_blind(&self) -> bool {
        self.buffer.1.0 == 0
    }

    /// What was unread between two moments, on the average of time.
    fn unread(&self, from: Nanos, to: Nanos) -> Option<f64> {
        let first = self.stretches.partition_point(|s| s.from + s.time <= from);
        let (mut sum, mut whole) = (0.0, 0.0);
        for s in self.stretches[first..].iter().take_while(|s| s.from < to) {
            let part = (s.from + s.time).min(to).since(s.from.max(from)).0 as f64;
            sum += s.unread * part;
            whole += part;
        }
        (whole > 0.0).then(|| sum / whole)
    }

    /// What a sender cannot know, for the findings.
    pub fn inform(&self, facts: &mut Facts, begun: Nanos, clocks: &Clocks) {
        facts.receive_buffer = Some(self.buffer.1);
        let here = |at: Nanos| HostTime::<First>::new(begun + at).by_second(clocks).nanos();
        for reading in &mut facts.readings {
            reading.unread = self.unread(here(reading.from), here(reading.to));
        }
    }

    /// The same where the moments of the readings are not those of this clock: its mean for all.
    pub fn inform_as_a_whole(&self, facts: &mut Facts) {
        facts.receive_buffer = Some(self.buffer.1);
        let mean = self.unread(Nanos(0), Nanos(u64::MAX));
        facts.readings.iter_mut().for_each(|r| r.unread = mean);
    }

    pub fn evidence(&self) -> Vec<Evidence> {
        let of = |key, quantity: Quantity| Evidence::new(key, quantity, Source::TraceAtReceiver);
        let mut all = Vec::new();
        if let Some(mean) = self.unread(Nanos(0), Nanos(u64::MAX)) {
            let mut unread = of(Key::UnreadData, mean.into());
            unread.subject = self
                .who
                .map(|(comm, pid)| format!("{comm} (process {pid})"));
            all.push(unread);
        }
        let (first, most) = self.buffer;
        if first != most {
            all.push(of(Key::ReceiveBufferFirst, first.into()));
        }
        all.push(of(Key::ReceiveBuffer, most.into()));
        let closed: Nanos = self.stretches.iter().map(|s| s.closed).sum();
        if let (Some((first, last)), 1..) = (self.data, closed.0) {
            let row = of(Key::ZeroWindowTime, closed.into());
            all.push(row.of(last.since(first).0));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::{EvidenceKey, Explanation, Limit, Quantity};
    use model::segment::tcp_flag::{ACK, FIN, SYN};
    use model::segment::tcp_state;
    use model::{Connection, SocketState, TraceRecord};

    fn watcher() -> crate::TraceWatcher {
        let mut watcher = crate::TraceWatcher::default();
        let connection = Connection {
            id: 0,
            cookie: 1,
            netns: 0,
            local: ([192, 0, 2, 2], 5201).into(),
            remote: ([192, 0, 2, 1], 40000).into(),
        };
        watcher.push(TraceRecord::Connection(connection));
        watcher
    }

    #[test]
    fn what_was_sent_here_and_never_came_is_explained() {
        // A request of 36 bytes; after seven seconds its end gives up, and the answer to that shows how much was sent.
        let causes = |ahead: u32| {
            let mut watcher = watcher();
            let packets = [
                (0, What::Sent, SYN, (0, 0), 0),
                (20, What::Received, SYN | ACK, (0, 1), 0),
                (20, What::Sent, ACK, (1, 1), 0),
                (21, What::Sent, ACK, (1, 1), 36),
                (41, What::Received, ACK, (1, 37), 0),
                (7000, What::Sent, ACK | FIN, (37, 1), 0),
                (7020, What::Received, ACK, (1 + ahead, 38), 0),
            ];
            for (ms, what, flags, (seq, ack), payload) in packets {
                let tcb = SocketValues {
                    state: tcp_state::ESTABLISHED,
                    ..SocketValues::default()
                };
                watcher.push(TraceRecord::Segment(Segment {
                    at: Nanos::from_millis(ms),
                    what,
                    seq,
                    ack,
                    flags,
                    payload: Bytes(payload),
                    segments: 1,
                    socket: Some(SocketState::from_probe(tcb)),
                    ..Segment::default()
                }));
            }
            let explained = watcher.explain().into_iter();
            let causes = explained.map(|e| (e.source, e.cause()));
            causes.collect::<Vec<_>>()
        };
        let hole = (Source::TraceAtReceiver, Some(Limit::BlackHole));
        assert_eq!(causes(15_928), [hole]);
        assert!(!causes(0).contains(&hole));
    }

    /// Data that come to a connection, ten segments a round trip of 20 ms, half of the buffer unread; at the end its
    /// own end sends so many bytes.
    fn explained(sent: u64) -> Vec<Explanation> {
        let mut watcher = watcher();
        let tcb = SocketValues {
            state: tcp_state::ESTABLISHED,
            min_rtt: Nanos::from_millis(20),
            rcv_wscale: 7,
            advmss: 1460,
            rcvbuf: Bytes(100_000),
            rcv_nxt: 50_000,
            rcv_wnd: Bytes(14_480),
            ..SocketValues::default()
        };
        let mut seq = 1;
        for n in 0..1000u64 {
            let trip = Nanos(n / 10 * 21_000_000);
            let mut segment = Segment {
                at: trip + Nanos(n % 10 * 1000),
                what: What::Received,
                seq,
                ack: 1,
                flags: ACK,
                payload: Bytes(1448),
                segments: 1,
                socket: Some(SocketState::from_probe(tcb.clone())),
                ..Segment::default()
            };
            seq += 1448;
            watcher.push(TraceRecord::Segment(segment.clone()));
            if n % 10 == 9 {
                segment.what = What::Sent;
                (segment.seq, segment.ack, segment.window) = (1, seq, 114);
                segment.payload = Bytes(if n == 999 { sent } else { 0 });
                watcher.push(TraceRecord::Segment(segment));
            }
        }
        watcher.explain()
    }

    #[test]
    fn data_that_came_are_explained_unless_its_own_end_sends_more_than_requests() {
        let [explanation] = &explained(0)[..] else {
            panic!("one direction has data")
        };
        assert_eq!(explanation.source, Source::TraceAtReceiver);
        assert_eq!(explanation.bytes, Bytes(1_448_000));
        assert!(
            explanation
                .ends
                .iter()
                .any(|e| e.key == EvidenceKey::UnreadData && e.quantity == Quantity::Share(0.5)),
            "{explanation:#?}"
        );
        assert_eq!(explanation.cause(), Some(Limit::ReadingApplication));
        // A request does not change it.
        let asked = &super::tests::explained(38)[..];
        assert_eq!(
            asked.iter().map(|e| e.cause()).collect::<Vec<_>>(),
            [explanation.cause()]
        );
        let local = explanation.receiver;
        let wrote = super::tests::explained(1 << 20);
        assert!(wrote.iter().all(|e| e.sender == local), "{wrote:#?}");
    }

    /// A socket with a buffer of 1000 bytes, of which so many are unread and so many offered.
    fn socket(unread: u32, offered: u64) -> SocketValues {
        SocketValues {
            min_rtt: Nanos(1),
            rcvbuf: Bytes(1000),
            copied_seq: 5000,
            rcv_nxt: 5000 + unread,
            rcv_wup: 5000 + unread - 40,
            rcv_wnd: Bytes(offered + 40),
            rcv_mss: 100,
            ..SocketValues::default()
        }
    }

    fn event(ms: u64, what: What, payload: u64, socket: SocketValues) -> Segment {
        Segment {
            at: Nanos::from_millis(ms),
            what,
            payload: Bytes(payload),
            pid: 7,
            comm: Comm::new(b"reader"),
            socket: Some(SocketState::from_probe(socket)),
            ..Segment::default()
        }
    }

    #[test]
    fn a_window_is_closed_to_less_than_a_segment() {
        let of = |unread, offered| {
            let state = BufferState::of(&socket(unread, offered));
            (state.unread, state.closed)
        };
        assert_eq!(of(250, 100), (0.25, false));
        assert_eq!(of(500, 99), (0.5, true));
    }

    #[test]
    fn two_stretches_become_one_of_their_mean() {
        let of = |from, time, unread, closed| UnreadInterval {
            from: Nanos(from),
            time: Nanos(time),
            unread,
            closed: Nanos(closed),
        };
        let both = joined(&[of(0, 10, 0.2, 3), of(10, 30, 0.6, 5)]);
        assert_eq!(
            (both.from, both.time, both.closed),
            (Nanos(0), Nanos(40), Nanos(8))
        );
        assert!((both.unread - 0.5).abs() < 1e-9);
        assert_eq!(joined(&[of(7, 1, 0.5, 0)]).from, Nanos(7));
        let mut many = Vec::new();
        (0..MOST_STRETCHES as u64 - 1).for_each(|n| keep(&mut many, of(n, 1, 0.5, 1)));
        assert_eq!(many.len(), MOST_STRETCHES - 1);
        keep(&mut many, of(MOST_STRETCHES as u64 - 1, 1, 0.5, 1));
        assert_eq!(many.len(), MOST_STRETCHES / 2);
    }

    /// Nothing counts before the first data, at 10 ms; a read at 30 ms, the last data at 40 ms.
    fn read_late() -> ReceivingSocket {
        let sample = TraceSample {
            at: Nanos::from_millis(35),
            socket: model::socket_state! { rcvbuf: Some(Bytes(2000)), rqueue: Some(Bytes(200)) },
            ..TraceSample::default()
        };
        let mut reader = ReceivingSocket::default();
        reader.sample(&sample);
        reader.event(&event(0, What::Read, 1, socket(900, 500)));
        assert!(reader.is_blind() && !reader.is_traced);
        reader.event(&event(10, What::Received, 100, socket(200, 500)));
        reader.event(&event(20, What::Received, 100, socket(600, 99)));
        reader.event(&event(30, What::Read, 100, socket(100, 500)));
        reader.sample(&sample);
        reader.sample(&TraceSample {
            gone: true,
            at: Nanos::from_millis(36),
            ..sample
        });
        reader.event(&event(40, What::Received, 100, socket(300, 500)));
        reader.event(&event(90, What::Read, 100, socket(0, 500)));
        reader
    }

    #[test]
    fn a_read_leaves_what_is_unread_after_it_and_every_other_event_what_was_before() {
        let reader = read_late();
        let unread = |from, to| reader.unread(Nanos::from_millis(from), Nanos::from_millis(to));
        let is = |found: Option<f64>, wanted: f64| found.is_some_and(|f| (f - wanted).abs() < 1e-9);
        assert!(is(unread(10, 20), 0.6), "before the data of 20 ms");
        assert!(is(unread(20, 30), 0.6), "until it was read");
        assert!(is(unread(30, 35), 0.1), "from then on");
        assert!(is(unread(35, 40), 0.3), "before the data of 40 ms");
        assert!(is(unread(15, 35), (3.0 + 6.0 + 0.5) / 20.0));
        assert!(
            is(unread(0, 900), (6.0 + 6.0 + 0.5 + 1.5) / 30.0),
            "not after the last data"
        );
        assert_eq!([unread(0, 10), unread(40, 90)], [None, None]);
    }

    #[test]
    fn the_facts_of_a_sender_get_what_was_unread_in_each_reading() {
        let reader = read_late();
        let mut facts = crate::facts::tests::steady(3);
        reader.inform(&mut facts, Nanos::from_millis(10), &Clocks::default());
        let unread: Vec<_> = facts
            .readings
            .iter()
            .map(|r| r.unread.map(|u| (u * 1e3).round()))
            .collect();
        assert_eq!(unread, [Some(600.0), Some(600.0), Some(200.0)]);
        assert_eq!(facts.receive_buffer, Some(Bytes(2000)));
        let mut facts = crate::facts::tests::steady(3);
        reader.inform_as_a_whole(&mut facts);
        let mean = reader.unread(Nanos(0), Nanos(u64::MAX));
        assert!(mean.is_some() && facts.readings.iter().all(|r| r.unread == mean));
        let evidence = reader.evidence();
        let rows: Vec<_> = evidence
            .iter()
            .map(|e| (e.key, e.quantity.clone(), e.subject.as_deref()))
            .collect();
        assert_eq!(
            rows[0],
            (
                EvidenceKey::UnreadData,
                Quantity::Share(mean.unwrap()),
                Some("reader (process 7)")
            )
        );
        assert_eq!(
            rows[1],
            (EvidenceKey::ReceiveBufferFirst, Bytes(1000).into(), None)
        );
        assert_eq!(
            rows[2],
            (EvidenceKey::ReceiveBuffer, Bytes(2000).into(), None)
        );
        // Closed from 10 to 30 ms.
        assert_eq!(
            rows[3],
            (
                EvidenceKey::ZeroWindowTime,
                Nanos::from_millis(20).into(),
                None
            )
        );
    }
}
