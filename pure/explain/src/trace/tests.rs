use super::*;
use model::segment::tcp_flag::ACK;
use model::{BitRate, SocketState, TraceSample, socket_state};

const START: u64 = 1000;

fn connection(id: u32) -> Connection {
    Connection {
        id,
        cookie: 1 + u64::from(id),
        netns: 0,
        local: ([192, 0, 2, 1], 40_000 + id as u16).into(),
        remote: ([192, 0, 2, 2], 5201).into(),
    }
}

/// Ten segments of 1000 bytes may be in flight on a path of 20 ms; one more was written.
fn socket() -> SocketValues {
    SocketValues {
        state: tcp_state::ESTABLISHED,
        mss: 1000,
        cwnd: 10,
        ssthresh: i32::MAX as u32,
        srtt: Nanos::from_millis(20),
        min_rtt: Nanos::from_millis(20),
        snd_una: 1,
        snd_nxt: 1,
        snd_sml: 1,
        write_seq: 10_001,
        snd_wnd: Bytes(1 << 20),
        rcvbuf: Bytes(1000),
        ..SocketValues::default()
    }
}

fn event(us: u64, what: What, tcb: &SocketValues) -> Segment {
    Segment {
        at: Nanos::from_micros(START * 1000 + us),
        what,
        flags: ACK,
        socket: Some(SocketState::from_probe(tcb.clone())),
        ..Segment::default()
    }
}

fn sent(us: u64, seq: u32, payload: u64, tcb: &SocketValues) -> Segment {
    Segment {
        seq,
        payload: Bytes(payload),
        segments: 1,
        ..event(us, What::Sent, tcb)
    }
}

fn sender() -> TraceSender {
    TraceSender::new(socket(), event(0, What::Wrote, &socket()))
}

/// The state of a socket, changed before and after, a round trip later.
fn state(before: impl Fn(&mut SocketValues), after: impl Fn(&mut SocketValues)) -> SenderState {
    let (mut was, mut now) = (socket(), socket());
    before(&mut was);
    after(&mut now);
    let sender = sender();
    let event = event(0, What::Wrote, &was);
    sender.state(
        &event,
        &was,
        &now,
        ShortSegmentRelease::Ack,
        Nanos::from_millis(20),
    )
}

#[test]
fn a_burst_is_a_millisecond_of_the_pace_and_more_on_a_short_path() {
    let of = |mbit: u64, rtt_us: u64, mss: u32| {
        let paced = state(
            |_| {},
            |now| {
                now.pacing_rate = BitRate(mbit * 1_000_000);
                (now.min_rtt, now.mss) = (Nanos::from_micros(rtt_us), mss);
            },
        );
        paced.burst
    };
    // 10 MB/s by 1024; 64 KiB halved for each 512 us of the path.
    assert_eq!(of(80, 10_000, 1000), 9);
    assert_eq!(of(80, 1024, 1000), 9 + 17);
    assert_eq!(of(80, 511, 1000), 65);
    assert_eq!(of(8000, 10_000, 1000), 65);
    assert_eq!(of(80, 40_000, 1000), 9);
    assert_eq!(of(1, 10_000, 1000), 2);
}

#[test]
fn segments_wait_below_tcp_beyond_two_bursts_or_a_millisecond() {
    let of = |mbit: u64, before: u64| {
        let found = state(
            |was| was.wmem_alloc = Bytes(before),
            |now| {
                (now.pacing_rate, now.min_rtt) =
                    (BitRate(mbit * 1_000_000), Nanos::from_millis(10));
            },
        );
        found.queued_below
    };
    assert_eq!([of(80, 18_000), of(80, 18_001)], [false, true]);
    assert_eq!([of(8000, 976_562), of(8000, 976_563)], [false, true]);
}

#[test]
fn a_window_that_stood_for_four_round_trips_is_in_no_slow_start() {
    let of = |ms: u64| {
        let mut sender = sender();
        sender.cwnd.1 = Nanos::from_millis(100);
        let (was, tcb) = (event(0, What::Wrote, &socket()), socket());
        let to = Nanos::from_millis(ms);
        let state = sender.state(&was, &tcb, &tcb, ShortSegmentRelease::Ack, to);
        state.ssthresh > 0
    };
    assert_eq!([of(179), of(180)], [true, false]);
}

#[test]
fn a_state_is_what_the_socket_says() {
    let of = |after: fn(&mut SocketValues)| state(|_| {}, after);
    let stage = |after: fn(&mut SocketValues)| of(after).stage;
    assert_eq!(
        stage(|s| s.state = tcp_state::SYN_SENT),
        ConnectionStage::Opening
    );
    assert_eq!(
        stage(|s| s.state = tcp_state::CLOSE_WAIT),
        ConnectionStage::Open
    );
    assert_eq!(
        stage(|s| s.state = tcp_state::FIN_WAIT1),
        ConnectionStage::Open,
        "10 kB to send"
    );
    let closing = |written: u32| {
        let change =
            |s: &mut SocketValues| (s.state, s.write_seq) = (tcp_state::FIN_WAIT1, written);
        state(change, change).stage
    };
    assert_eq!(
        [closing(1), closing(2)],
        [ConnectionStage::Closing, ConnectionStage::Open]
    );
    assert_eq!(
        stage(|s| s.state = tcp_state::FIN_WAIT2),
        ConnectionStage::Closing
    );
    let both = of(|s| {
        (s.snd_una, s.snd_nxt, s.retransmits, s.ca_state) = (1, 4001, 1, 4);
        (s.packets_out, s.snd_wnd) = (4, Bytes(5000));
    });
    assert_eq!((both.written, both.room, both.window), (10_000, 1000, 5000));
    assert!(both.backed_off && !both.paced && !both.no_space && both.flight == 4);
    assert!(of(|s| s.no_space = true).no_space);
    assert!(of(|s| s.chrono = chrono::SNDBUF_LIMITED).no_space);
    assert!(of(|s| s.pacing_status = 1).paced);
    // Those up to here are not all delivered.
    let limited = |delivered, app_limited| {
        state(
            |_| {},
            |s| (s.delivered, s.app_limited) = (delivered, app_limited),
        )
        .app_limited
    };
    assert!(limited(4, 5) && !limited(5, 5) && !limited(4, 0));
    // A short segment behind one that is out.
    let held = |written: u32, nonagle, out: bool| {
        let change = |s: &mut SocketValues| {
            (s.snd_una, s.snd_nxt, s.write_seq) = (1, 501, written);
            (s.nonagle, s.snd_sml) = (nonagle, if out { 501 } else { 1 });
        };
        state(change, change).held_until.is_some()
    };
    assert!(held(1500, 0, true) && !held(1501, 0, true) && !held(501, 0, true));
    assert!(!held(1500, 1, true) && !held(1500, 0, false));
}

#[test]
fn a_pace_that_the_window_does_not_explain_was_set_or_is_bbrs() {
    let mut pace = PaceOfSender::default();
    let mut see = |kbit: u64, ms: u64, change: fn(&mut SocketValues)| {
        let mut tcb = socket();
        (tcb.pacing_status, tcb.srtt) = (1, Nanos::from_millis(10));
        tcb.pacing_rate = BitRate(kbit * 1000);
        change(&mut tcb);
        pace.see(&tcb, Nanos::from_millis(ms));
        [
            pace.top / 1000,
            pace.at_top.0 / 1_000_000,
            pace.free.0 / 1_000_000,
        ]
    };
    // 80 kbit a round trip of 10 ms are 8 Mbit/s: 1.2 or 2 times that, within a tenth, follows the window.
    for kbit in [8_641, 10_559, 14_401, 17_599] {
        assert_eq!(see(kbit, 9, |_| {}), [0; 3], "{kbit}");
    }
    assert_eq!(see(5000, 9, |s| s.pacing_status = 0), [0; 3]);
    assert_eq!(see(0, 9, |_| {}), [0; 3]);
    assert_eq!(see(5000, 10, |_| {}), [5000, 10, 0]);
    assert_eq!(see(5000, 10, |_| {}), [5000, 20, 0]);
    assert_eq!(see(4000, 5, |_| {}), [5000, 20, 5]);
    assert_eq!(see(8_639, 7, |_| {}), [8_639, 7, 25]);
    assert_eq!(see(10_561, 3, |_| {}), [10_561, 3, 32]);
    // What is out counts, where the window shrank below it.
    assert_eq!(see(19_000, 3, |s| s.packets_out = 20), [10_561, 3, 32]);
    assert_eq!(see(17_601, 1, |_| {}), [17_601, 1, 35]);
}

#[test]
fn a_lost_segment_has_its_place_in_its_burst() {
    let mut sender = sender();
    let burst = |from, to, size| Burst {
        from,
        to,
        last: Nanos(0),
        size,
    };
    sender.bursts = VecDeque::from([burst(1000, 5000, 1000), burst(5000, 6000, 1000)]);
    let places = [1000, 2500, 4000, 4999, 5000, 999, 6000].map(|seq| sender.place(seq));
    let inside = 3999.0 / 3000.0;
    let expected = [
        Some(0.0),
        Some(0.5),
        Some(1.0),
        Some(inside),
        None,
        None,
        None,
    ];
    assert_eq!(places, expected, "a single segment has none");
}

#[test]
fn sends_within_a_fiftieth_of_the_round_trip_are_one_burst() {
    let mut sender = sender();
    // A round trip of 20 ms.
    let tcb = socket();
    let segment = |us, seq, payload, size| Segment {
        segment_size: size,
        segments: 2,
        ..sent(us, seq, payload, &tcb)
    };
    for segment in [
        segment(0, 1, 2000, 1000),
        segment(400, 2001, 500, 0),
        segment(801, 2501, 1000, 0),
        segment(801, 9001, 1000, 0),
    ] {
        assert!(!sender.sent(&segment, &tcb), "no loss");
    }
    let bursts: Vec<_> = sender
        .bursts
        .iter()
        .map(|b| (b.from, b.to, b.size))
        .collect();
    assert_eq!(
        bursts,
        [(1, 2501, 1000), (2501, 3501, 1000), (9001, 10_001, 1000)]
    );
    assert_eq!((sender.facts.segments, sender.reading.passed), (8, 4500));
    assert_eq!(sender.facts.retransmitted, 0);
}

/// One event after another, from the one at 0.
fn followed(events: impl IntoIterator<Item = Segment>) -> (TraceSender, ConnectionAccount) {
    let (mut sender, mut account) = (sender(), ConnectionAccount::new(connection(0)));
    for event in events {
        sender.push(event, &mut account);
    }
    (sender, account)
}

#[test]
fn a_reading_has_what_was_delivered_and_the_most_in_flight() {
    let out = |packets, delivered| SocketValues {
        packets_out: packets,
        delivered,
        ..socket()
    };
    let (sender, _) = followed([
        event(1000, What::Received, &out(7, 5)),
        event(2000, What::Received, &out(4, 8)),
        event(4999, What::Received, &out(4, 8)),
        event(5000, What::Received, &out(4, 10)),
        event(9000, What::Received, &out(1, 10)),
    ]);
    // A quarter of the round trip.
    let readings: Vec<_> = sender.facts.readings.iter().collect();
    assert_eq!(readings.len(), 1);
    let one = readings[0];
    assert_eq!((one.from, one.to), (Nanos(0), Nanos::from_millis(5)));
    assert_eq!(
        (one.delivered, one.flight, one.cwnd),
        (10_000, 7000, 10_000)
    );
    assert_eq!((one.window, one.srtt), (1 << 20, Nanos::from_millis(20)));
    assert_eq!(
        (sender.reading.from, sender.reading.to),
        (Nanos::from_millis(5), Nanos::from_millis(9))
    );
    assert_eq!(sender.facts.mss, 1000);
    assert_eq!(sender.facts.min_rtt, Some(Nanos::from_millis(20)));
    let owned: u64 = sender.pieces.iter().map(|p| p.length().0).sum();
    assert_eq!(owned, 9_000_000);
}

#[test]
fn timeouts_are_counted_as_the_timer_fires() {
    let fired = |retransmits| SocketValues {
        retransmits,
        ..socket()
    };
    let (sender, _) = followed([
        event(1000, What::Received, &fired(1)),
        event(2000, What::Received, &fired(3)),
        event(3000, What::Received, &fired(0)),
        event(4000, What::Received, &fired(1)),
    ]);
    assert_eq!((sender.facts.timeouts, sender.facts.backoffs), (4, 3));
    // While it had fired.
    assert_eq!(sender.facts.stalled, Nanos::from_millis(3));
}

#[test]
fn retransmissions_behind_a_smaller_path_mtu_are_no_losses() {
    let again = |us, seq, mss, una| {
        let tcb = SocketValues {
            mss,
            snd_una: una,
            snd_nxt: 4001,
            packets_out: 4,
            ..socket()
        };
        let mut segment = sent(us, seq, 500, &tcb);
        segment.what = What::Sent;
        segment
    };
    let mut sender = sender();
    let is_loss = |sender: &mut TraceSender, segment: Segment| {
        let tcb = segment.probed().unwrap().clone();
        let loss = sender.sent(&segment, &tcb);
        sender.mss = tcb.mss;
        loss
    };
    let marked = |segment: Segment| Segment {
        socket: segment.socket.clone(),
        ..segment
    };
    let segment = marked(again(1000, 1, 1000, 1));
    let known = segment.is_retransmission();
    assert!(known, "it was sent before");
    assert!(is_loss(&mut sender, segment));
    assert!(
        !is_loss(&mut sender, again(2000, 1, 500, 1)),
        "the MTU fell"
    );
    assert!(!is_loss(&mut sender, again(3000, 3501, 500, 1)));
    sender.mtu_cut = None;
    assert!(is_loss(&mut sender, again(4000, 3501, 500, 1)));
    assert_eq!((sender.facts.retransmitted, sender.facts.segments), (2, 4));
}

#[test]
fn what_was_set_or_moves_by_itself_shows_in_the_pace_of_a_tenth_of_the_time() {
    let of = |at_top: u64, free: u64| {
        let mut sender = sender();
        sender.was = event(1_000_000, What::Received, &socket());
        sender.pace = PaceOfSender {
            top: 5,
            at_top: Nanos::from_millis(at_top),
            free: Nanos::from_millis(free),
        };
        let (_, facts) = sender.conclude(&ConnectionAccount::new(connection(0)));
        (facts.pacing.is_some(), facts.is_bbr())
    };
    assert_eq!([of(101, 0), of(100, 0)], [(true, false), (false, false)]);
    assert_eq!([of(300, 299), of(300, 300)], [(true, false), (false, true)]);
    assert_eq!([of(0, 101), of(0, 100)], [(false, true), (false, false)]);
}

#[test]
fn figures_are_those_since_the_first_event() {
    let mut first = socket();
    (first.bytes_acked, first.bytes_received) = (Bytes(100), Bytes(7));
    (first.dsack_dups, first.reord_seen, first.delivered_ce) = (1, 2, 3);
    let mut last = first.clone();
    (last.bytes_acked, last.bytes_received) = (Bytes(5100), Bytes(9));
    (last.dsack_dups, last.reord_seen, last.delivered_ce) = (5, 7, 9);
    let mut sender = TraceSender::new(first, event(0, What::Wrote, &socket()));
    sender.was = event(50_000, What::Received, &last);
    let (_, facts) = sender
        .clone()
        .conclude(&ConnectionAccount::new(connection(0)));
    assert_eq!(
        (facts.bytes, facts.span),
        (Bytes(5000), Nanos::from_millis(50))
    );
    assert_eq!((facts.needless, facts.reordered, facts.marked), (4, 5, 6));
    assert!(facts.is_exchange);
    // A FIN counts as one.
    last.bytes_received = Bytes(8);
    sender.was = event(50_000, What::Received, &last);
    let (_, facts) = sender.conclude(&ConnectionAccount::new(connection(0)));
    assert!(!facts.is_exchange);
}

#[test]
fn waits_of_nagle_and_of_a_single_segment_are_those_beyond_the_round_trip() {
    let mut sender = sender();
    sender.facts.min_rtt = Some(Nanos::from_millis(20));
    let mut hold = |limit, flight, ms| {
        let state = SenderState {
            flight,
            ..SenderState::default()
        };
        sender.hold(limit, &state, Nanos::from_millis(ms), &socket());
        let counts = [sender.facts.held, sender.facts.alone];
        counts.map(|c| (c.waits, c.delayed, c.delayed_time.0 / 1_000_000))
    };
    hold(Limit::Nagle, 4, 0);
    hold(Limit::Nagle, 4, 30);
    assert_eq!(hold(Limit::Application, 4, 60), [(1, 1, 40), (0, 0, 0)]);
    hold(Limit::Nagle, 4, 100);
    assert_eq!(
        hold(Limit::Application, 4, 121),
        [(2, 1, 40), (0, 0, 0)],
        "a round trip"
    );
    hold(Limit::SlowStart, 1, 200);
    assert_eq!(hold(Limit::CongestionWindow, 2, 260)[1], (1, 1, 40));
    hold(Limit::CongestionWindow, 1, 300);
    assert_eq!(hold(Limit::Application, 1, 360)[1], (2, 2, 80));
    assert_eq!(hold(Limit::Application, 1, 400)[1], (2, 2, 80));
}

#[test]
fn a_process_is_known_by_its_open_connections() {
    let mut watcher = TraceWatcher::default();
    for id in 0..2 {
        watcher.push(TraceRecord::Connection(connection(id)));
    }
    let mut push = |id, pid, what, state| {
        let tcb = SocketValues { state, ..socket() };
        let segment = Segment {
            connection: id,
            pid,
            ..event(0, what, &tcb)
        };
        watcher.push(TraceRecord::Segment(segment));
        let used = watcher.used_by.iter();
        used.map(|(pid, ids)| (*pid, ids.iter().copied().collect()))
            .collect::<Vec<(u32, Vec<u32>)>>()
    };
    let (open, close) = (tcp_state::ESTABLISHED, tcp_state::CLOSE);
    assert_eq!(push(0, 0, What::Received, open), [], "not known");
    assert_eq!(push(0, 5, What::Received, open), [(5, vec![0])]);
    assert_eq!(push(1, 5, What::Received, open), [(5, vec![0, 1])]);
    assert_eq!(push(0, 0, What::Received, open), [(5, vec![0, 1])]);
    assert_eq!(
        push(0, 6, What::Received, open),
        [(5, vec![1]), (6, vec![0])]
    );
    assert_eq!(push(0, 0, What::State, open), [(5, vec![1]), (6, vec![0])]);
    assert_eq!(push(0, 0, What::State, close), [(5, vec![1])]);
    assert_eq!(push(0, 6, What::State, close), [(5, vec![1])]);
    assert!(!watcher.is_over());
    let segment = Segment {
        connection: 1,
        ..event(
            0,
            What::State,
            &SocketValues {
                state: close,
                ..socket()
            },
        )
    };
    watcher.push(TraceRecord::Segment(segment));
    assert!(watcher.is_over() && watcher.used_by.is_empty());
    assert_eq!(watcher.seen(), 2);
}

#[test]
fn a_receiver_is_known_while_its_own_end_sends_no_more_than_requests() {
    let reads = |sent: u64, received: u64| {
        let mut watched = WatchedConnection::new(connection(0));
        for (what, payload) in [
            (What::Received, received),
            (What::Sent, sent),
            (What::Received, 1),
        ] {
            let segment = Segment {
                payload: Bytes(payload),
                ..event(0, what, &socket())
            };
            watched.receive(&segment);
        }
        watched.reader.is_some()
    };
    assert!(reads(1 << 16, 1));
    assert!(!reads((1 << 16) + 1, 655_360), "a tenth of what came");
    assert!(reads((1 << 16) + 1, 655_380));
    let nothing = WatchedConnection::new(connection(0));
    assert!(nothing.reader.is_none());
}

#[test]
fn doubts_are_what_the_trace_lacks() {
    let missing = |sent, received, lost| {
        let mut watched = WatchedConnection::new(connection(0));
        watched.sender = Some(sender());
        let counted = |at: u64, out: u32, came: u32| TraceSample {
            at: Nanos::from_millis(at),
            socket: socket_state! { segs_out: Some(out), segs_in: Some(came), data_segs_out: Some(out), data_segs_in: Some(came) },
            ..TraceSample::default()
        };
        watched.completeness.sample(&counted(0, 0, 0));
        watched.completeness.sample(&counted(1, sent, received));
        watched.doubts(lost).len()
    };
    assert_eq!(missing(0, 0, 0), 0);
    assert_eq!(missing(0, 0, 1), 1);
}

#[test]
fn glances_are_those_of_the_last_seconds_the_fastest_first() {
    let mut watcher = TraceWatcher::default();
    for id in 0..3 {
        watcher.push(TraceRecord::Connection(connection(id)));
        let mut tcb = socket();
        for n in 0..4 {
            let (received, us) = (n % 2 == 1, n * 1000);
            let segment = match received {
                true => event(us, What::Received, &tcb),
                false => sent(us, tcb.snd_nxt, 1000 * u64::from(id + 1), &tcb),
            };
            // The second also receives most.
            let payload = if received && id == 1 {
                9000
            } else {
                segment.payload.0
            };
            let segment = Segment {
                connection: id,
                payload: Bytes(payload),
                ..segment
            };
            tcb.snd_nxt += if received { 0 } else { payload as u32 };
            watcher.push(TraceRecord::Segment(segment));
        }
    }
    let now = Nanos::from_millis(START + 4);
    let glances = watcher.glances(now);
    let order: Vec<_> = glances
        .iter()
        .map(|g| (g.connection, g.sent.0, g.received.0))
        .collect();
    // 4 ms: the first data of each passed when it was not known yet.
    let rate = |bytes: u64| bytes * 8 * 250;
    assert_eq!(
        order,
        [
            (1, rate(2000), rate(18_000)),
            (2, rate(3000), 0),
            (0, rate(1000), 0)
        ]
    );
    assert!(glances.iter().all(|g| g.silent == Nanos::from_millis(1)));
    assert_eq!(glances[0].seen, Nanos::from_millis(4));
    let idle = |id| watcher.connections[&id].glance(now).unwrap();
    assert_eq!(
        (idle(0).cwnd, idle(0).srtt),
        (Bytes(10_000), Nanos::from_millis(20))
    );
}

#[test]
fn what_the_last_event_left_owns_the_time_since() {
    // Of ten segments less than a burst of two may leave once the last one has.
    let of = |what, packets_out| {
        let mut sender = sender();
        let tcb = SocketValues {
            packets_out,
            ..socket()
        };
        sender.was = Segment {
            segments: 1,
            what,
            ..event(0, what, &tcb)
        };
        sender.now()
    };
    assert_eq!(
        [of(What::Sent, 8), of(What::Received, 8)].map(|l| l == Limit::SlowStart),
        [true, false]
    );
    assert_eq!(of(What::Received, 9), Limit::SlowStart);
}
