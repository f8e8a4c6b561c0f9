use super::*;
use model::{BlockServer, BlockStore, Blocks, Request, SocketOptions, SocketValues, WaitMode};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

struct Deaf;

impl Watcher for Deaf {
    fn event(&mut self, _: &Event<'_>) {}
}

const UP: &[Direction] = &[Direction::Up];
const DOWN: &[Direction] = &[Direction::Down];
const BOTH: &[Direction] = &[Direction::Up, Direction::Down];
static GO_ON: AtomicBool = AtomicBool::new(false);
const NO_OPTIONS: &ClientOptions = &ClientOptions {
    username: None,
    password: None,
    rsa_public_key: None,
    use_pkcs1_padding: false,
    busy_wait: Nanos(0),
};

fn test<'a>(spec: &'a Spec, directions: &'a [Direction]) -> Test<'a> {
    Test {
        remote: (Ipv4Addr::LOCALHOST, 9).into(),
        name: "db2:5201".to_owned(),
        spec,
        options: NO_OPTIONS,
        known: false,
        directions,
        first_leg: 0,
        began: Instant::now(),
        title: Some("a title"),
        stop: &GO_ON,
    }
}

fn udp(rate: u64, size: u64) -> Workload {
    Workload::Udp(Udp {
        rate: BitRate(rate),
        datagram_size: Bytes(size),
    })
}

fn of(workload: Workload) -> Spec {
    Spec {
        workload,
        ..Spec::default()
    }
}

fn leg(direction: Direction) -> Leg {
    Leg {
        direction,
        started: Nanos(0),
        local: EndRecord::default(),
        remote: EndRecord::default(),
        ended: Ended::Complete,
    }
}

fn refusal<T>(result: Result<T>) -> String {
    result
        .err()
        .map_or(String::new(), |error| error.to_string())
}

#[test]
fn the_directions_are_those_of_the_server() {
    let spec = Spec::default();
    let directions = |legs| {
        let params = test(&spec, legs).params().unwrap();
        (params.reverse, params.bidirectional)
    };
    assert_eq!(
        [UP, DOWN, BOTH].map(directions),
        [(false, false), (true, false), (false, true)]
    );
}

#[test]
fn the_server_gets_the_buffer_and_the_pacing_of_its_role() {
    let spec = Spec {
        socket: SocketSettings {
            send_buffer: Some(Bytes(500)),
            receive_buffer: Some(Bytes(400)),
            pacing: Some(BitRate(9_000_000)),
            ..SocketSettings::default()
        },
        ..Spec::default()
    };
    let asked = |legs| {
        let params = test(&spec, legs).params().unwrap();
        assert_eq!(params.rate_bit_s, params.fq_rate_bit_s);
        (params.window, params.rate_bit_s)
    };
    assert_eq!(asked(UP), (Some(400), 0));
    assert_eq!(asked(DOWN), (Some(500), 9_000_000));
    assert_eq!(asked(BOTH), (Some(500), 9_000_000));
}

#[test]
fn a_limit_is_seconds_rounded_up_or_bytes() {
    let limit = |limit| {
        let spec = Spec {
            limit,
            ..Spec::default()
        };
        let params = test(&spec, UP).params().unwrap();
        (params.time_s, params.bytes)
    };
    assert_eq!(limit(LegLimit::Time(Nanos::from_secs(10))), (10, 0));
    assert_eq!(limit(LegLimit::Time(Nanos(10_000_000_001))), (11, 0));
    assert_eq!(limit(LegLimit::Bytes(Bytes(1 << 33))), (0, 1 << 33));
}

#[test]
fn what_is_set_on_sockets_is_asked_of_the_server() {
    let spec = Spec {
        streams: 7,
        socket: SocketSettings {
            mss: Some(1000),
            nodelay: Some(true),
            dscp: Some(46),
            congestion: Some("reno".to_owned()),
            ..SocketSettings::default()
        },
        ..Spec::default()
    };
    let params = test(&spec, UP).params().unwrap();
    assert_eq!((params.parallel, params.mss), (7, Some(1000)));
    assert_eq!((params.nodelay, params.tos), (true, 184));
    assert_eq!(params.congestion.as_deref(), Some("reno"));
    assert_eq!(params.title.as_deref(), Some("a title"));
    assert_eq!(params.authtoken, None);
    let version = params.client_version.unwrap();
    assert!(version.starts_with("linerate "), "{version}");
    let plain = Spec::default();
    let plain = test(&plain, UP).params().unwrap();
    assert_eq!((plain.nodelay, plain.tos, plain.window), (false, 0, None));
}

#[test]
fn writes_have_a_byte_to_a_mebibyte() {
    let block = |size: Option<u64>| {
        let spec = of(Workload::Bulk(Bulk {
            write_size: size.map(Bytes),
            discard: true,
            zerocopy: true,
        }));
        let params = test(&spec, UP).params().unwrap();
        assert!(params.skip_rx_copy && params.zerocopy);
        params.block_size.unwrap()
    };
    assert_eq!(
        [None, Some(0), Some(1), Some(1 << 20), Some((1 << 20) + 1)].map(block),
        [131_072, 1, 1, 1 << 20, 1 << 20]
    );
}

#[test]
fn datagrams_are_gathered_by_the_server_where_this_host_gathers_them() {
    let gathered = |rate| {
        let spec = of(udp(rate, 1000));
        let params = test(&spec, DOWN).params().unwrap();
        assert_eq!(params.protocol, TestProtocol::Udp);
        assert_eq!((params.block_size, params.rate_bit_s), (Some(1000), rate));
        assert!(params.udp_counters_64bit);
        assert_eq!(params.gso, params.gro);
        (
            params.gso,
            params.gso_datagram,
            params.gso_message,
            params.gro_buffer,
        )
    };
    // At 800 Mbit/s ten leave together, at 8 Mbit/s each alone.
    assert_eq!(gathered(800_000_000), (true, 1000, 10_000, 65_507));
    assert_eq!(gathered(8_000_000), (false, 0, 0, 0));
}

#[test]
fn other_workloads_are_none_of_an_iperf3_server() {
    let spec = of(Workload::Request(Request {
        request_size: Bytes(64),
        reply_size: Bytes(64),
        pace_per_s: None,
        reconnect: false,
        wait: WaitMode::Block,
    }));
    let why = refusal(test(&spec, UP).params());
    assert!(why.starts_with("an iperf3 server plays no "), "{why}");
    let blocks = of(Workload::Blocks(Blocks {
        server: BlockServer::Peer(BlockStore::default()),
        block: Bytes(4096),
        depth: 1,
        mix: Vec::new(),
        random: false,
        seed: 0,
        wait: WaitMode::Block,
    }));
    assert!(test(&blocks, UP).params().is_err());
}

#[test]
fn an_order_that_no_server_takes_is_refused_at_its_bounds() {
    let streams = |streams| {
        refusal(check(&Spec {
            streams,
            ..Spec::default()
        }))
    };
    assert_eq!([streams(1), streams(128)], ["", ""]);
    for beyond in [0, 129] {
        assert!(streams(beyond).contains("takes 1 to 128 streams"));
    }
    let requests = refusal(check(&Spec {
        limit: LegLimit::Requests(1),
        ..Spec::default()
    }));
    assert!(requests.contains("counts no requests"), "{requests}");
    let mut placed = Spec::default();
    placed.remote.cpus = vec![0];
    assert!(refusal(check(&placed)).contains("--remote-cpus"));
}

#[test]
fn a_user_needs_a_password_and_a_key() {
    let spec = Spec::default();
    let named = ClientOptions {
        username: Some("me".to_owned()),
        rsa_public_key: Some("/nowhere".into()),
        ..NO_OPTIONS.clone()
    };
    let with = |options: &ClientOptions| {
        let test = Test {
            options,
            ..test(&spec, UP)
        };
        test.token()
    };
    assert_eq!(with(NO_OPTIONS).unwrap(), None);
    let why = refusal(with(&named));
    assert!(why.starts_with("no password for the user me"), "{why}");
    let secret = ClientOptions {
        password: Some("x".to_owned()),
        ..named
    };
    assert!(!refusal(with(&secret)).contains("no password"));
    assert!(with(&secret).is_err(), "there is no such key");
}

#[test]
fn each_failure_of_the_server_has_its_remedy() {
    let spec = Spec::default();
    let test = test(&spec, UP);
    let error = |number| Iperf3Failure::ServerError { number, errno: 0 };
    let during = "the results";
    for (failure, remedy) in [
        (Iperf3Failure::Busy, "try again later"),
        (error(142), "--use-pkcs1-padding"),
        (error(141), "see the server's own output"),
        (Iperf3Failure::ServerTerminated, "start the server again"),
        (
            Iperf3Failure::Unexpected { byte: 1, during },
            "check that an iperf3 server listens",
        ),
        (
            Iperf3Failure::NotACookie,
            "check that an iperf3 server listens",
        ),
        (
            Iperf3Failure::Closed(during),
            "check that the server runs, and the path",
        ),
        (
            Iperf3Failure::Silent {
                during,
                span: Nanos(1),
            },
            "check that the server runs, and the path",
        ),
        (
            Iperf3Failure::ClientTerminated,
            "check the version of the server",
        ),
    ] {
        let said = test.explain(&failure).to_string();
        assert!(said.starts_with("db2:5201: "), "{said}");
        assert!(said.contains(remedy), "{said}");
    }
}

#[test]
fn a_reset_is_a_refusal_wherever_it_stands_in_the_chain() {
    let at: SocketAddr = (Ipv4Addr::LOCALHOST, 9).into();
    let refused = || anyhow::Error::from(measure::Error::Refused(at));
    assert!(is_refused(&refused()));
    assert!(is_refused(&refused().context("cannot greet")));
    let late = measure::Error::Timeout {
        remote: at,
        after: Duration::ZERO,
    };
    assert!(!is_refused(&late.into()));
    assert!(!is_refused(&anyhow!("refused")));
}

/// What the server reports of the stream at this position, from second 1 to `end_s`.
fn stream(position: usize, bytes: u64, end_s: f64) -> StreamResult {
    StreamResult {
        id: stream_id(position),
        bytes,
        retransmits: 3,
        jitter_s: 0.002,
        errors: 4,
        packets: 50,
        start_s: 1.0,
        end_s,
        ..StreamResult::default()
    }
}

#[test]
fn the_end_of_the_server_is_that_of_its_streams() {
    let spec = Spec {
        streams: 2,
        ..Spec::default()
    };
    let test = test(&spec, BOTH);
    let results = TestResults {
        cpu_user: 25.0,
        cpu_system: 50.0,
        sender_has_retransmits: 1,
        streams: [10, 20, 300, 400]
            .into_iter()
            .enumerate()
            .map(|(position, bytes)| stream(position, bytes, 2.0 + position as f64))
            .collect(),
        ..TestResults::default()
    };
    let down = test.remote_end(1, &leg(Direction::Down), &results);
    // Streams 2 and 3; the longest lasted 4 s.
    assert_eq!(
        (down.bytes, down.duration),
        (Bytes(700), Nanos::from_secs(4))
    );
    assert_eq!(down.retransmits, Some(6));
    assert_eq!(down.datagrams, None);
    let [first, last] = &down.samples[..] else {
        panic!("{:?}", down.samples)
    };
    assert_eq!((first.at, first.bytes), (Nanos(0), Bytes(0)));
    assert_eq!((last.at, last.bytes), (Nanos::from_secs(4), Bytes(700)));
    assert_eq!(first.cpu, CpuTimes::default());
    assert_eq!(last.cpu.process_user, Nanos::from_secs(1));
    assert_eq!(last.cpu.process_system, Nanos::from_secs(2));
    let each: Vec<_> = last.streams.iter().map(|s| (s.stream, s.bytes)).collect();
    assert_eq!(each, [(0, Bytes(300)), (1, Bytes(400))]);
    assert!(first.streams.iter().all(|s| s.bytes == Bytes(0)));
    // Of what it received it counts no retransmissions, and not all systems can.
    let up = test.remote_end(0, &leg(Direction::Up), &results);
    assert_eq!((up.bytes, up.retransmits), (Bytes(30), None));
    let cannot = TestResults {
        sender_has_retransmits: 0,
        ..results.clone()
    };
    let down = test.remote_end(1, &leg(Direction::Down), &cannot);
    assert_eq!(down.retransmits, None);
    let mut unknown = results;
    unknown.streams[3].retransmits = -1;
    let down = test.remote_end(1, &leg(Direction::Down), &unknown);
    assert_eq!(down.retransmits, None);
}

#[test]
fn a_time_that_no_test_has_is_not_taken_from_the_server() {
    let spec = Spec::default();
    let test = test(&spec, UP);
    let duration = |end_s: f64| {
        let results = TestResults {
            streams: vec![stream(0, 1, end_s)],
            ..TestResults::default()
        };
        let mut own = leg(Direction::Up);
        own.local.duration = Nanos(77);
        test.remote_end(0, &own, &results).duration
    };
    assert_eq!(duration(1.5), Nanos(500_000_000));
    assert_eq!([1.0, 0.5, 1e6 + 1.0].map(duration), [Nanos(77); 3]);
    assert_eq!(duration(1e6), Nanos(999_999_000_000_000));
}

#[test]
fn datagrams_of_the_server_are_counted_together() {
    let spec = Spec {
        streams: 2,
        ..of(udp(0, 1000))
    };
    let test = test(&spec, UP);
    let mut odd = stream(1, 2, 2.0);
    (odd.packets, odd.errors, odd.jitter_s) = (-1, -1, -1.0);
    let results = TestResults {
        streams: vec![stream(0, 1, 2.0), odd],
        ..TestResults::default()
    };
    let found = test.remote_end(0, &leg(Direction::Up), &results);
    let expected = Datagrams {
        packets: 50,
        lost: 4,
        out_of_order: 0,
        jitter: Nanos::from_millis(1),
    };
    assert_eq!(found.datagrams, Some(expected));
}

/// Has this done with a conductor of two legs, both directions at once, of `spec`.
fn conducted<T>(spec: &Spec, act: impl FnOnce(&mut Conductor<'_>) -> T) -> T {
    let test = test(spec, BOTH);
    let mut legs = vec![leg(Direction::Up), leg(Direction::Down)];
    let signals = [LegSignals::default(), LegSignals::default()];
    let (_reports, inbox) = mpsc::channel();
    act(&mut Conductor {
        test: &test,
        legs: &mut legs,
        signals: &signals,
        kept: &[],
        ends: vec![None, None],
        inbox: &inbox,
        watcher: &mut Deaf,
    })
}

#[test]
fn a_test_has_reached_its_limit_when_all_its_legs_have() {
    let ten = Duration::from_secs(10);
    let over = || Some(Ok(LegResult::default()));
    let timed = Spec {
        limit: LegLimit::Time(ten.into()),
        ..Spec::default()
    };
    conducted(&timed, |conductor| {
        assert!(!conductor.reached(ten), "the sender goes on");
        conductor.ends[0] = over();
        assert!(!conductor.reached(ten - Duration::from_nanos(1)));
        assert!(conductor.reached(ten));
        conductor.ends = vec![None, over()];
        assert!(!conductor.reached(ten));
        conductor.ends = vec![over(), over()];
        assert!(conductor.reached(Duration::ZERO));
    });
    let counted = Spec {
        limit: LegLimit::Bytes(Bytes(1000)),
        ..Spec::default()
    };
    conducted(&counted, |conductor| {
        conductor.ends[0] = over();
        let moved = |bytes| conductor.signals[1].moved.store(bytes, Ordering::Relaxed);
        moved(999);
        assert!(!conductor.reached(ten));
        moved(1000);
        assert!(conductor.reached(Duration::ZERO));
    });
}

#[test]
fn what_comes_from_the_threads_is_kept_by_leg_until_each_has_ended() {
    let spec = Spec::default();
    let test = Test {
        first_leg: 5,
        ..test(&spec, BOTH)
    };
    struct Seen(Vec<usize>);
    impl Watcher for Seen {
        fn event(&mut self, event: &Event<'_>) {
            if let Event::Sample { index, .. } = event {
                self.0.push(*index);
            }
        }
    }
    let mut legs = vec![leg(Direction::Up), leg(Direction::Down)];
    let signals = [LegSignals::default(), LegSignals::default()];
    let (reports, inbox) = mpsc::channel();
    let mut seen = Seen(Vec::new());
    let mut conductor = Conductor {
        test: &test,
        legs: &mut legs,
        signals: &signals,
        kept: &[],
        ends: vec![None, None],
        inbox: &inbox,
        watcher: &mut seen,
    };
    let sample = || Box::new(Sample::default());
    let over = || Box::new(Ok(LegResult::default()));
    reports.send(ClientReport::Sample(1, sample())).unwrap();
    conductor.collect();
    assert_eq!(conductor.legs[1].local.samples.len(), 1);
    for report in [
        ClientReport::Over(0, over()),
        ClientReport::Sample(1, sample()),
        ClientReport::Over(1, over()),
    ] {
        reports.send(report).unwrap();
    }
    conductor.collect_all();
    assert!(conductor.ends.iter().all(Option::is_some));
    assert_eq!(conductor.legs[1].local.samples.len(), 2);
    assert!(conductor.legs[0].local.samples.is_empty());
    conductor.stop_all();
    assert_eq!(seen.0, [6, 6]);
    assert!(signals.iter().all(|s| s.stop.load(Ordering::Relaxed)));
}

#[test]
fn only_streams_that_send_have_to_be_acknowledged() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    // More than its peer has room for, which reads nothing.
    sender.set_nonblocking(true).unwrap();
    while sender.write(&[0; 1 << 16]).is_ok() {}
    let spec = Spec::default();
    let acknowledged = |kept: &[(Direction, TcpStream)]| {
        let test = test(&spec, BOTH);
        let (_reports, inbox) = mpsc::channel();
        let conductor = Conductor {
            test: &test,
            legs: &mut Vec::new(),
            signals: &[],
            kept,
            ends: Vec::new(),
            inbox: &inbox,
            watcher: &mut Deaf,
        };
        conductor.all_acknowledged()
    };
    let idle = || receiver.try_clone().unwrap();
    let full = || sender.try_clone().unwrap();
    assert!(acknowledged(&[]));
    assert!(acknowledged(&[(Direction::Up, idle())]));
    assert!(acknowledged(&[(Direction::Down, full())]));
    assert!(!acknowledged(&[
        (Direction::Up, idle()),
        (Direction::Up, full())
    ]));
    // A connection that broke acknowledges nothing any more.
    let kept = [(Direction::Up, full())];
    drop(receiver);
    while observe::tcp_info(sender.as_fd()).unwrap().state() == Some(1) {
        std::thread::yield_now();
    }
    assert!(acknowledged(&kept));
}

#[test]
fn the_results_for_the_server_are_those_of_the_last_samples() {
    let spec = Spec {
        streams: 1,
        ..Spec::default()
    };
    let sample = |retransmits: Option<u32>, bytes: u64| {
        let tcp = retransmits.map(|total_retrans| {
            model::SocketState::from_probe(SocketValues {
                total_retrans,
                ..SocketValues::default()
            })
        });
        Sample {
            at: Nanos::from_secs(2),
            cpu: CpuTimes {
                process_user: Nanos::from_millis(500),
                process_system: Nanos::from_secs(1),
                ..CpuTimes::default()
            },
            streams: vec![StreamSample {
                bytes: Bytes(bytes),
                tcp,
                ..StreamSample::default()
            }],
            ..Sample::default()
        }
    };
    let end = |packets| {
        let datagrams = vec![Datagrams {
            packets,
            ..Datagrams::default()
        }];
        Some(Ok(LegResult {
            record: EndRecord {
                duration: Nanos::from_secs(3),
                ..EndRecord::default()
            },
            datagrams,
            ..LegResult::default()
        }))
    };
    let at = |port| (Ipv4Addr::LOCALHOST, port).into();
    conducted(&spec, |conductor| {
        let empty = conductor.results();
        assert_eq!((empty.sender_has_retransmits, empty.cpu_total), (-1, 0.0));
        assert_eq!(empty.streams, []);
        assert_eq!(empty.congestion_used, None);
        conductor.ends = vec![end(7), end(8)];
        conductor.legs[0].local.samples = vec![sample(Some(9), 100)];
        conductor.legs[0].local.sockets = vec![SocketOptions {
            congestion: "reno".to_owned(),
            ..SocketOptions::new(0, at(1), at(2))
        }];
        conductor.legs[1].local.samples = vec![sample(Some(5), 200)];
        let results = conductor.results();
        assert_eq!(
            (results.cpu_user, results.cpu_system, results.cpu_total),
            (25.0, 50.0, 75.0)
        );
        assert_eq!(results.sender_has_retransmits, 1);
        assert_eq!(results.congestion_used.as_deref(), Some("reno"));
        let streams: Vec<_> = results
            .streams
            .iter()
            .map(|s| (s.id, s.bytes, s.retransmits, s.packets, s.end_s))
            .collect();
        assert_eq!(streams, [(1, 100, 9, 7, 3.0), (3, 200, -1, 8, 3.0)]);
        // UDP counts none, and what only receives has none to report.
        conductor.legs[0].local.samples = vec![sample(None, 100)];
        conductor.legs[0].local.sockets[0].congestion = String::new();
        let results = conductor.results();
        assert_eq!(results.sender_has_retransmits, -1);
        assert_eq!(results.streams[0].retransmits, -1);
        assert_eq!(results.congestion_used, None);
    });
}

#[test]
fn a_server_that_is_not_there_or_answers_no_datagrams_is_named() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let remote = closed.local_addr().unwrap();
    drop(closed);
    let spec = Spec::default();
    let absent = Test {
        remote,
        ..test(&spec, UP)
    };
    let error = absent.run(&mut Deaf).err().unwrap();
    assert!(is_refused(&error), "{error:#}");
    // A server that has answered before opens its port again, but not for ever.
    let stop = AtomicBool::new(true);
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let stopped = Test {
        remote: silent.local_addr().unwrap(),
        stop: &stop,
        ..test(&spec, UP)
    };
    let why = refusal(stopped.open_udp());
    let port = format!("UDP port {}", silent.local_addr().unwrap().port());
    assert!(why.starts_with("db2:5201 answers no datagrams"), "{why}");
    assert!(why.contains(&port), "{why}");
}

#[test]
fn a_stream_of_datagrams_is_open_once_the_server_answers() {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let spec = of(udp(0, 1000));
    let test = Test {
        remote: server.local_addr().unwrap(),
        ..test(&spec, UP)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut room = [0; 64];
            let (length, from) = server.recv_from(&mut room).unwrap();
            let reply = wire::iperf3::connect_reply(&room[..length]).unwrap();
            // Something else first, which is no answer.
            server.send_to(b"no answer", from).unwrap();
            let (_, again) = server.recv_from(&mut room).unwrap();
            assert_eq!(again, from);
            server.send_to(&reply, from).unwrap();
        });
        let socket = test.open_udp().unwrap();
        assert_eq!(socket.peer_addr().unwrap(), test.remote);
    });
}
