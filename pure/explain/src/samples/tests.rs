use super::*;
use crate::facts::tests::ms;
use model::finding::{Conclusion, Finding, Level, Share};
use model::{
    Bulk, CpuTimes, Device, Direction, Ended, Request, Sample, Udp, WaitMode, socket_state,
};

/// A hundred segments of 1000 bytes in flight, which fill the congestion window.
fn socket() -> SocketState {
    socket_state! {
        state: Some(tcp_state::ESTABLISHED),
        mss: Some(1000),
        cwnd: Some(100),
        packets_out: Some(100),
        retrans_out: Some(0),
        sacked_out: Some(0),
        lost_out: Some(0),
        ssthresh: Some(50),
        srtt: Some(ms(10.0)),
        min_rtt: Some(ms(10.0)),
        notsent_bytes: Some(Bytes(1 << 20)),
        snd_wnd: Some(Bytes(10 << 20)),
        rwnd_limited: Some(Nanos(0)),
        sndbuf_limited: Some(Nanos(0)),
        busy: Some(Nanos(0)),
        rto: Some(ms(15.0)),
        total_rto: Some(0),
        total_retrans: Some(0),
        bytes_acked: Some(Bytes(0)),
        bytes_received: Some(Bytes(0)),
        ca_state: Some(ca_state::OPEN),
        delivery_rate_app_limited: Some(false),
    }
}

/// Who owns a state, with these of a full buffer, an early moment and a window that grows.
fn owner_of(state: SocketState, bbr: bool, paced: bool, flags: [bool; 3]) -> Limit {
    let mut facts = Facts::new(Source::Samples);
    facts.congestion = bbr.then(|| "bbr".to_owned());
    facts.pacing = paced.then_some(BitRate(1));
    let [full, early, grows] = flags;
    owner(&socket(), &state, &facts, full, early, grows)
}

#[test]
fn what_the_counters_leave_belongs_to_the_state_at_the_end() {
    const NONE: [bool; 3] = [false; 3];
    const FULL: [bool; 3] = [true, false, false];
    let with = |flight, unsent, app_limited| {
        socket_state! {
            from socket();
            packets_out: Some(flight),
            notsent_bytes: Some(Bytes(unsent)),
            delivery_rate_app_limited: Some(app_limited),
        }
    };
    let window = |bytes| socket_state! { from socket(); snd_wnd: Some(Bytes(bytes)) };
    let blind = |bytes| socket_state! { from window(bytes); rwnd_limited: None };
    let in_state = |state| socket_state! { from socket(); ca_state: Some(state) };
    let starts = |grows| {
        let before = socket_state! { from socket(); ssthresh: Some(200) };
        let facts = Facts::new(Source::Samples);
        owner(&before, &before, &facts, false, false, grows)
    };
    let of = |state, bbr, paced, flags| owner_of(state, bbr, paced, flags);
    for (what, found, expected) in [
        (
            "a full window",
            of(socket(), false, false, NONE),
            Limit::CongestionWindow,
        ),
        ("one that grows", starts(true), Limit::SlowStart),
        ("one that does not", starts(false), Limit::CongestionWindow),
        (
            "bbr at its start",
            of(socket(), true, false, [false, true, false]),
            Limit::SlowStart,
        ),
        (
            "bbr later",
            of(socket(), true, false, [false, false, true]),
            Limit::CongestionWindow,
        ),
        // 100 kB are 85 % of 117,647 bytes.
        (
            "bbr in a full receive window",
            of(window(117_647), true, false, NONE),
            Limit::ReceiveWindow,
        ),
        (
            "not quite full",
            of(window(117_648), true, false, NONE),
            Limit::CongestionWindow,
        ),
        (
            "which the kernel does not count",
            of(blind(117_647), false, false, NONE),
            Limit::ReceiveWindow,
        ),
        (
            "which it counts",
            of(window(117_647), false, false, NONE),
            Limit::CongestionWindow,
        ),
        (
            "nothing to send, and no room",
            of(with(100, 999, true), false, false, FULL),
            Limit::SendBuffer,
        ),
        (
            "a segment to send",
            of(with(100, 1000, true), false, false, FULL),
            Limit::CongestionWindow,
        ),
        (
            "more was written",
            of(with(100, 999, false), false, false, FULL),
            Limit::CongestionWindow,
        ),
        (
            "paced, and three quarters are out",
            of(with(60, 20_000, false), false, true, FULL),
            Limit::SendBuffer,
        ),
        (
            "less",
            of(with(60, 20_001, false), false, true, FULL),
            Limit::Pacing,
        ),
        (
            "or in a full window",
            of(with(80, 20_000, false), false, true, FULL),
            Limit::CongestionWindow,
        ),
        (
            "recovery",
            of(in_state(ca_state::RECOVERY), false, false, NONE),
            Limit::LossRecovery,
        ),
        (
            "a reduced window",
            of(in_state(ca_state::CWR), false, false, NONE),
            Limit::LossRecovery,
        ),
        (
            "a timeout",
            of(in_state(ca_state::LOSS), false, false, NONE),
            Limit::RtoStall,
        ),
        (
            "nothing to send",
            of(with(79, 999, true), false, false, NONE),
            Limit::Application,
        ),
        (
            "in a full window",
            of(with(80, 999, true), false, false, NONE),
            Limit::CongestionWindow,
        ),
        (
            "nothing holds",
            of(with(10, 1 << 20, false), false, false, NONE),
            Limit::Cpu,
        ),
    ] {
        assert_eq!(found, expected, "{what}");
    }
}

/// The pieces of 100 ms between two states, in milliseconds, with what was read.
fn divided(
    before: &SocketState,
    now: &SocketState,
    buffer: Option<u64>,
) -> (Vec<(Limit, f64, u64)>, Facts) {
    let row = |at, tcp| SampleRow {
        at,
        tcp,
        send_buffer: buffer.map(Bytes),
        buffer_used: None,
    };
    let (before, now) = (row(ms(1000.0), before), row(ms(1100.0), now));
    let mut facts = Facts::new(Source::Samples);
    let (mut idle, mut pieces) = (Idle::from(&before), Vec::new());
    interval(&before, &now, &mut facts, &mut idle, &mut pieces);
    let parts = pieces
        .iter()
        .map(|p| (p.limit, p.length().0 as f64 / 1e6, p.bytes.0));
    (parts.collect(), facts)
}

#[test]
fn counters_divide_the_time_between_two_samples() {
    let before = socket_state! { from socket(); srtt: Some(ms(12.0)), packets_out: Some(70), delivered: Some(5) };
    let now = socket_state! {
        from socket();
        rwnd_limited: Some(ms(20.0)),
        sndbuf_limited: Some(ms(10.0)),
        busy: Some(ms(70.0)),
        total_rto: Some(1),
        total_retrans: Some(3),
        bytes_acked: Some(Bytes(100_000)),
        delivered: Some(125),
    };
    let (parts, facts) = divided(&before, &now, None);
    assert_eq!(
        parts,
        [
            (Limit::ReceiveWindow, 20.0, 20_000),
            (Limit::SendBuffer, 10.0, 10_000),
            (Limit::Application, 30.0, 30_000),
            (Limit::RtoStall, 15.0, 15_000),
            (Limit::LossRecovery, 10.0, 10_000),
            (Limit::CongestionWindow, 15.0, 15_000),
        ]
    );
    let reading = &facts.readings[0];
    assert_eq!((reading.from, reading.to), (ms(1000.0), ms(1100.0)));
    assert_eq!(
        (reading.cwnd, reading.flight, reading.window),
        (100_000, 100_000, 10 << 20)
    );
    // What was delivered, be it acknowledged in order or not.
    assert_eq!((reading.delivered, reading.retransmitted), (120_000, 3));
    assert_eq!(reading.limit, Some(Limit::Application));
    let losses = facts.losses.iter().map(|l| (l.at, l.srtt, l.flight));
    let at = |at| (ms(at), ms(12.0), 70_000);
    assert_eq!(
        losses.collect::<Vec<_>>(),
        [at(1025.0), at(1050.0), at(1075.0)]
    );
    // A recovery that lasts is not one that ended in between; and a window that is closed is that.
    let now =
        socket_state! { from now; ca_state: Some(ca_state::RECOVERY), snd_wnd: Some(Bytes(999)) };
    let (parts, _) = divided(&before, &now, None);
    assert_eq!(parts[0].0, Limit::ZeroWindow);
    assert_eq!(parts[4], (Limit::LossRecovery, 25.0, 25_000));
    let now = socket_state! { from now; snd_wnd: Some(Bytes(1000)), delivered: None };
    let (parts, facts) = divided(&before, &now, None);
    assert_eq!(parts[0].0, Limit::ReceiveWindow);
    assert_eq!(facts.readings[0].delivered, 100_000);
}

#[test]
fn no_more_time_is_given_than_there_is() {
    let now = socket_state! { from socket(); rwnd_limited: Some(ms(80.0)), sndbuf_limited: Some(ms(80.0)), busy: Some(ms(100.0)) };
    let (parts, _) = divided(&socket(), &now, None);
    assert_eq!(
        parts,
        [
            (Limit::ReceiveWindow, 80.0, 0),
            (Limit::SendBuffer, 20.0, 0)
        ]
    );
}

#[test]
fn while_timers_fire_and_nothing_arrives_a_full_window_holds_nothing_back() {
    let of = |retransmits, acked| {
        let now = socket_state! {
            from socket();
            rwnd_limited: Some(ms(80.0)),
            busy: Some(ms(100.0)),
            retransmits: Some(retransmits),
            bytes_acked: Some(Bytes(acked)),
            ca_state: Some(ca_state::LOSS),
        };
        divided(&socket(), &now, None).0[0]
    };
    assert_eq!(of(1, 0), (Limit::RtoStall, 100.0, 0));
    assert_eq!(of(0, 0), (Limit::ReceiveWindow, 80.0, 0));
    assert_eq!(of(1, 1000), (Limit::ReceiveWindow, 80.0, 800));
}

#[test]
fn a_send_buffer_is_full_after_two_per_cent_without_room_or_by_what_it_holds() {
    let rest = |no_room: f64, buffer| {
        let now = socket_state! {
            from socket();
            busy: Some(ms(100.0)),
            sndbuf_limited: Some(ms(no_room)),
            notsent_bytes: Some(Bytes(0)),
            delivery_rate_app_limited: Some(true),
        };
        divided(&socket(), &now, buffer).0.last().unwrap().0
    };
    assert_eq!(
        [rest(2.0, None), rest(2.1, None)],
        [Limit::CongestionWindow, Limit::SendBuffer]
    );
    // 100 kB are three tenths of 333 kB.
    assert_eq!(
        [rest(0.0, Some(333_000)), rest(0.0, Some(334_000))],
        [Limit::SendBuffer, Limit::CongestionWindow]
    );
}

#[test]
fn idle_time_is_that_of_all_of_the_connection() {
    let at = |at: f64, busy: f64| {
        (
            ms(at),
            socket_state! { from socket(); busy: Some(ms(busy)) },
        )
    };
    let states = [at(1000.0, 50.0), at(1100.0, 120.0), at(1200.0, 190.0)];
    let as_row = |n: usize| SampleRow {
        at: states[n].0,
        tcp: &states[n].1,
        send_buffer: None,
        buffer_used: None,
    };
    let mut idle = Idle::from(&as_row(0));
    assert_eq!(idle.grown(&as_row(1)), ms(30.0));
    idle.given = ms(30.0);
    assert_eq!(idle.grown(&as_row(2)), ms(30.0));
    idle.given = ms(70.0);
    assert_eq!(idle.grown(&as_row(2)), Nanos(0));
}

fn end(samples: Vec<Sample>) -> EndRecord {
    EndRecord {
        samples,
        ..EndRecord::default()
    }
}

/// So many streams that sent so much.
fn sample(at: f64, streams: usize, acked: u64) -> Sample {
    let tcp = socket_state! { from socket(); bytes_acked: Some(Bytes(acked)) };
    let stream = StreamSample {
        tcp: Some(tcp),
        ..StreamSample::default()
    };
    Sample {
        at: ms(at),
        streams: vec![stream; streams],
        ..Sample::default()
    }
}

/// Acknowledgements that come later by what the round trip grows, and a recovery in which nothing is acknowledged.
#[test]
fn a_hole_in_what_arrived_hides_no_queue_of_acknowledgements() {
    let share = |sacked: u32| {
        let arrived = |n: u64| {
            let tcp = socket_state! { bytes_received: Some(Bytes(n * 1000)) };
            let stream = StreamSample {
                tcp: Some(tcp),
                ..StreamSample::default()
            };
            Sample {
                at: ms(n as f64 * 10.0),
                streams: vec![stream],
                ..Sample::default()
            }
        };
        let states: Vec<(u64, SocketState)> = (1..60)
            .map(|n| {
                let hole = (30..40).contains(&n);
                let state = socket_state! {
                    srtt: Some(ms(20.0 + n as f64)),
                    bytes_acked: Some(Bytes(if hole { 30_000 } else { n * 1000 })),
                    sacked_out: Some(if hole { sacked } else { 0 }),
                };
                (n, state)
            })
            .collect();
        let rows = states.iter().map(|(n, tcp)| SampleRow {
            at: ms(*n as f64 * 11.0),
            tcp,
            send_buffer: None,
            buffer_used: None,
        });
        let facts = Facts {
            min_rtt: Some(ms(20.0)),
            ..Facts::new(Source::Samples)
        };
        let receiver = end((0..100).map(arrived).collect());
        let found = reverse_queueing(&rows.collect::<Vec<_>>(), &receiver, 0, &facts);
        found.map(|way| way.share())
    };
    assert_eq!(share(10), Some(1.0));
    assert_eq!(share(0), None);
}

fn run(workload: Workload, local: EndRecord, remote: EndRecord) -> Run {
    let mut run = Run {
        legs: vec![Leg {
            direction: Direction::Up,
            started: Nanos(0),
            local,
            remote,
            ended: Ended::Complete,
        }],
        ..Run::default()
    };
    run.spec.workload = workload;
    run
}

fn requests() -> Workload {
    Workload::Request(Request {
        request_size: Bytes(128),
        reply_size: Bytes(128),
        pace_per_s: None,
        reconnect: false,
        wait: WaitMode::Block,
    })
}

#[test]
fn streams_are_those_of_the_sender_and_none_of_datagrams() {
    let of = |workload| {
        let all = end(vec![sample(0.0, 1, 0), sample(1.0, 3, 0)]);
        let run = run(workload, all, end(Vec::new()));
        streams(&run, LegEnds::of(&run, &run.legs[0]))
    };
    assert_eq!(of(Workload::Bulk(Bulk::default())), 3);
    let datagrams = Udp {
        rate: BitRate(0),
        datagram_size: Bytes(100),
    };
    assert_eq!(of(Workload::Udp(datagrams)), 0);
}

#[test]
fn the_matter_of_requests_is_the_end_that_sends_more() {
    let is_local = |workload, local, remote| {
        let own = end(vec![sample(0.0, 1, 999), sample(1.0, 1, local)]);
        let other = end(vec![sample(1.0, 1, remote)]);
        let run = run(workload, own, other);
        std::ptr::eq(LegEnds::of(&run, &run.legs[0]).sender, &run.legs[0].local)
    };
    assert!(is_local(requests(), 5, 5) && !is_local(requests(), 5, 6));
    assert!(is_local(Workload::Bulk(Bulk::default()), 5, 6));
}

#[test]
fn threads_are_streams_or_the_processors_that_they_share() {
    let of = |workload, online, streams, both| {
        let mut run = run(workload, end(Vec::new()), end(Vec::new()));
        run.spec.streams = streams;
        (run.local.cpu.online, run.remote) = (online, None);
        let leg = &run.legs[0];
        [
            threads(&run, &leg.local, both),
            threads(&run, &leg.remote, both),
        ]
    };
    // Of the remote host nothing is known.
    assert_eq!(of(requests(), 4, 8, false), [4, 8]);
    assert_eq!(of(requests(), 4, 8, true), [2, 8]);
    assert_eq!(of(requests(), 1, 8, true), [1, 8]);
    assert_eq!(of(requests(), 4, 3, false), [3, 3]);
    assert_eq!(of(requests(), 0, 8, false), [8, 8]);
    assert_eq!(of(Workload::Bulk(Bulk::default()), 4, 8, false), [8, 8]);
    let mut both = run(requests(), end(Vec::new()), end(Vec::new()));
    both.spec.streams = 8;
    let mut host = Fingerprint::default();
    host.cpu.online = 3;
    both.remote = Some(host);
    assert_eq!(threads(&both, &both.legs[0].remote, false), 3);
}

#[test]
fn loads_are_shares_of_the_time_between_the_first_sample_and_the_last() {
    let at = |at: f64, cpu: CpuTimes| Sample {
        at: ms(at),
        cpu,
        ..Sample::default()
    };
    let first = CpuTimes {
        process_user: ms(10.0),
        process_system: ms(20.0),
        host_busy: ms(100.0),
        host_total: ms(400.0),
        busiest_processor: Some(ms(50.0)),
        ..CpuTimes::default()
    };
    let last = CpuTimes {
        process_user: ms(40.0),
        process_system: ms(40.0),
        host_busy: ms(200.0),
        host_total: ms(800.0),
        busiest_processor: Some(ms(125.0)),
        ..CpuTimes::default()
    };
    let found = load(&end(vec![at(100.0, first), at(200.0, last)]), 3).unwrap();
    assert_eq!((found.process, found.host), (0.5, Some(0.25)));
    assert_eq!((found.busiest, found.streams), (Some(0.75), 3));
    assert!(load(&end(vec![at(100.0, first)]), 3).is_none());
    let still = CpuTimes {
        host_total: ms(400.0),
        ..last
    };
    let found = load(&end(vec![at(100.0, first), at(200.0, still)]), 3).unwrap();
    assert_eq!(found.host, None);
}

#[test]
fn full_segments_vanished_where_timers_fired_thrice_and_none_arrived() {
    let of = |timeouts, acked, received, sent: Option<u64>, always| {
        let tcp = socket_state! {
            from socket();
            total_rto: Some(timeouts),
            bytes_acked: Some(Bytes(acked)),
            bytes_received: Some(Bytes(received)),
            bytes_sent: sent.map(Bytes),
            bytes_retrans: sent.map(|_| Bytes(500)),
        };
        let row = SampleRow {
            at: ms(7.0),
            tcp: &tcp,
            send_buffer: None,
            buffer_used: None,
        };
        let mut facts = Facts::new(Source::Samples);
        facts.always_writes = always;
        let found = vanished(&[row], &facts);
        found.map(|v| (v.size, v.passed, v.backoffs, v.at))
    };
    let gone = |passed| Some((1000, passed, 3, ms(7.0)));
    assert_eq!(of(3, 1, 0, None, true), gone(1));
    assert_eq!(of(3, 0, 1, None, true), gone(0), "the peer opened it");
    assert_eq!(of(3, 0, 0, None, true), None, "never opened");
    assert_eq!(of(2, 1, 0, None, true), None, "two timeouts");
    assert_eq!(of(3, 999, 0, None, true), gone(999));
    assert_eq!(of(3, 1000, 0, None, true), None, "a segment arrived");
    assert_eq!(
        of(3, 1, 0, None, false),
        None,
        "nothing may have been written"
    );
    assert_eq!(of(3, 1, 0, Some(1500), false), gone(1));
    assert_eq!(of(3, 1, 0, Some(1499), false), None);
}

#[test]
fn unread_is_what_arrived_less_what_was_read_by_the_buffer() {
    let at = |at: f64, arrived, read, buffer| {
        let tcp = socket_state! { from socket(); bytes_received: Some(Bytes(arrived)) };
        let stream = StreamSample {
            tcp: Some(tcp),
            bytes: Bytes(read),
            receive_buffer: Some(Bytes(buffer)),
            ..StreamSample::default()
        };
        Sample {
            at: ms(at),
            streams: vec![StreamSample::default(), stream],
            ..Sample::default()
        }
    };
    let all = end(vec![
        at(10.0, 500, 400, 200),
        at(20.0, 900, 900, 200),
        at(30.0, 900, 800, 0),
    ]);
    let mut unread = UnreadShares::of(&all, 1);
    let times = [9.0, 10.0, 19.0, 20.0, 30.0].map(|at| unread.at(ms(at)));
    assert_eq!(times, [None, Some(0.5), Some(0.5), Some(0.0), None]);
}

#[test]
fn goodput_of_the_other_direction_is_a_streams_part() {
    let record = |bytes, seconds| EndRecord {
        bytes: Bytes(bytes),
        duration: Nanos::from_secs(seconds),
        ..EndRecord::default()
    };
    let of = |local, remote, streams| {
        let mut run = run(requests(), record(1, 1), record(1, 1));
        let second = Leg {
            direction: Direction::Down,
            local,
            remote,
            ..run.legs[0].clone()
        };
        run.legs.push(second);
        run.spec.streams = streams;
        other_direction(&run, LegEnds::of(&run, &run.legs[0]))
    };
    // The receiver's count; of one that reports nothing, the sender's.
    assert_eq!(of(record(8000, 2), record(9000, 2), 0), Some(4000.0));
    assert_eq!(of(record(8000, 2), record(9000, 2), 4), Some(1000.0));
    assert_eq!(of(record(0, 0), record(9000, 2), 1), Some(4500.0));
    assert_eq!(of(record(0, 0), record(0, 0), 1), None);
    let alone = run(requests(), record(1, 1), record(1, 1));
    assert_eq!(
        other_direction(&alone, LegEnds::of(&alone, &alone.legs[0])),
        None
    );
}

#[test]
fn a_path_is_memory_where_one_kernel_has_both_ends_and_nobody_set_anything() {
    let of = |change: fn(&mut Run)| {
        let mut run = run(
            Workload::Bulk(Bulk::default()),
            end(Vec::new()),
            end(Vec::new()),
        );
        run.local.boot_id = Some("one".to_owned());
        run.remote = Some(run.local.clone());
        change(&mut run);
        is_memory_path(&run, None)
    };
    assert!(of(|_| {}));
    assert!(!of(|run| run.local.boot_id = Some("two".to_owned())));
    assert!(!of(|run| run.remote = None));
    assert!(!of(
        |run| (run.local.boot_id, run.remote) = (None, Some(Fingerprint::default()))
    ));
    assert!(!of(|run| run.spec.socket.send_buffer = Some(Bytes(1))));
    assert!(!of(|run| run.spec.socket.receive_buffer = Some(Bytes(1))));
    assert!(!of(|run| run.spec.socket.pacing = Some(BitRate(1))));
    assert!(!of(|run| run.spec.workload = requests()));
}

#[test]
fn the_slower_device_and_the_one_that_runs_half_duplex() {
    let host = |speed, duplex: Option<&str>| Fingerprint {
        hostname: "a".to_owned(),
        device: Some(Device {
            name: "eth0".to_owned(),
            speed: Some(BitRate(speed)),
            duplex: duplex.map(str::to_owned),
            ..Device::default()
        }),
        ..Fingerprint::default()
    };
    let (fast, slow) = (host(10, Some("full")), host(5, Some("Half")));
    assert_eq!(slowest(&[Some(&fast), Some(&slow)]), Some(BitRate(5)));
    assert_eq!(slowest(&[None, None]), None);
    assert_eq!(
        half_duplex(&[Some(&fast), Some(&slow)]).as_deref(),
        Some("eth0 on a")
    );
    assert_eq!(half_duplex(&[Some(&fast), Some(&host(5, None))]), None);
}

#[test]
fn coarse_samples_place_no_loss() {
    let of = |limit, spacing, retransmitted| {
        let mut explanation = Explanation {
            name: String::new(),
            sender: None,
            receiver: None,
            direction: None,
            source: Source::Samples,
            stream: None,
            span: Nanos(0),
            bytes: Bytes(0),
            conclusion: Conclusion::Innocent,
            findings: vec![Finding {
                limit,
                level: Level::Second,
                share: Share {
                    time: Nanos(0),
                    time_share: 0.0,
                    bytes: Bytes(0),
                },
                confidence: Confidence::Certain,
                evidence: Vec::new(),
                against: None,
                remedies: Vec::new(),
                decider: None,
            }],
            ends: Vec::new(),
            phases: Vec::new(),
            doubts: Vec::new(),
        };
        of_coarse_samples(&mut explanation, spacing, retransmitted);
        explanation.findings[0].confidence == Confidence::Possible
    };
    for limit in NEED_LOSSES {
        assert!(of(limit, ms(101.0), 1), "{limit:?}");
    }
    assert!(!of(Limit::Policer, ms(100.0), 1));
    assert!(!of(Limit::Policer, ms(101.0), 0));
    assert!(!of(Limit::SendBuffer, ms(101.0), 1));
}

#[test]
fn rows_end_with_the_socket_and_go_forward() {
    let at = |at: f64, state, acked| {
        let tcp =
            socket_state! { from socket(); state: Some(state), bytes_acked: Some(Bytes(acked)) };
        let mut one = sample(at, 1, 0);
        one.streams[0].tcp = Some(tcp);
        one
    };
    let closing = tcp_state::FIN_WAIT1;
    let all = end(vec![
        at(0.0, tcp_state::ESTABLISHED, 0),
        at(10.0, tcp_state::ESTABLISHED, 5),
        at(10.0, tcp_state::ESTABLISHED, 6),
        at(20.0, closing, 7),
        at(30.0, closing, 7),
        at(40.0, tcp_state::ESTABLISHED, 7),
    ]);
    let times: Vec<Nanos> = rows(&all, 0).iter().map(|row| row.at).collect();
    assert_eq!(times, [0.0, 10.0, 20.0, 40.0].map(ms));
    assert_eq!(rows(&all, 1).len(), 0);
}
