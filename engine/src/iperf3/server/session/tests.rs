use super::*;
use crate::iperf3::server::reservations::Reservations;
use crate::iperf3::server::udp_accept::UdpAcceptor;
use crate::iperf3::server::{ServerOptions, Slots};
use std::net::{Ipv4Addr, TcpListener};
use wire::iperf3::{COOKIE_LEN, DEFAULT_SKEW_S, StreamResult};

const OPTIONS: ServerOptions = ServerOptions {
    rsa_private_key: None,
    authorized_users: None,
    time_skew: DEFAULT_SKEW_S,
    use_pkcs1_padding: false,
    iperf3_max_time: Nanos::from_secs(10),
    iperf3_max_bytes: None,
    iperf3_max_rate: None,
};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Has this done in a session with a client, whose end of the connection is given too.
fn in_session<T>(
    options: &ServerOptions,
    act: impl FnOnce(&mut TestSession<'_>, &mut TcpStream) -> T,
) -> T {
    let stop = AtomicBool::new(false);
    let server = ServerState {
        options,
        authenticator: None,
        udp: UdpAcceptor::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap(),
        stop: &stop,
        log: &|_| {},
        clients: Slots::new(1, 1),
        sessions: Reservations::new(),
        tests: Slots::new(1, 1),
    };
    let (mut client, stream) = pair();
    let mut cookie = [b'a'; COOKIE_LEN];
    cookie[COOKIE_LEN - 1] = 0;
    let peer = stream.peer_addr().unwrap();
    let mut session = TestSession::open(&server, stream, peer, cookie).unwrap();
    act(&mut session, &mut client)
}

fn params(protocol: TestProtocol) -> Params {
    Params {
        protocol,
        parallel: 2,
        ..Params::default()
    }
}

fn tcp() -> Params {
    params(TestProtocol::Tcp)
}

#[test]
fn streams_of_the_client_come_first_and_both_directions_have_as_many() {
    let of = |reverse, bidirectional| {
        let params = Params {
            reverse,
            bidirectional,
            ..tcp()
        };
        (receiving_streams(&params), stream_count(&params))
    };
    assert_eq!(of(false, false), (2, 2));
    assert_eq!(of(true, false), (0, 2));
    assert_eq!(of(false, true), (2, 4));
}

/// The number with which a test is refused, as its client reads it; `None` if it may be.
fn refusal(options: &ServerOptions, params: &Params) -> Option<i32> {
    in_session(options, |session, client| {
        let why = session.admit(params).err()?;
        assert!(why.starts_with("refused: requested "), "{why}");
        let mut said = [0; 10];
        client.read_exact(&mut said).unwrap();
        let states = [State::ParamExchange, State::ServerError];
        assert_eq!(said[..2], states.map(State::byte));
        Some(i32::from_be_bytes([said[2], said[3], said[4], said[5]]))
    })
}

#[test]
fn a_test_is_as_long_and_as_fast_as_the_server_allows() {
    let timed = |time_s, omit_s| Params {
        time_s,
        omit_s,
        ..tcp()
    };
    assert_eq!(refusal(&OPTIONS, &timed(10, 0)), None);
    assert_eq!(refusal(&OPTIONS, &timed(8, 2)), None);
    assert_eq!(refusal(&OPTIONS, &timed(8, 3)), Some(code::DURATION));
    assert_eq!(refusal(&OPTIONS, &timed(11, 0)), Some(code::DURATION));
    let limited = ServerOptions {
        iperf3_max_rate: Some(BitRate(4000)),
        ..OPTIONS
    };
    let fast = |rate_bit_s, bidirectional| Params {
        rate_bit_s,
        bidirectional,
        ..tcp()
    };
    // Of two streams, and of four.
    assert_eq!(refusal(&limited, &fast(2000, false)), None);
    assert_eq!(refusal(&limited, &fast(1000, true)), None);
    assert_eq!(
        refusal(&limited, &fast(2001, false)),
        Some(code::TOTAL_RATE)
    );
    assert_eq!(refusal(&limited, &fast(1001, true)), Some(code::TOTAL_RATE));
    assert_eq!(
        refusal(&limited, &fast(u64::MAX, true)),
        Some(code::TOTAL_RATE)
    );
    assert_eq!(refusal(&OPTIONS, &fast(u64::MAX, true)), None);
}

#[test]
fn sockets_have_the_smallest_of_the_rates_and_what_the_client_asked() {
    let limited = ServerOptions {
        iperf3_max_rate: Some(BitRate(4000)),
        ..OPTIONS
    };
    let settings = |options: &ServerOptions, params: &Params| {
        in_session(options, |session, _| session.settings(params))
    };
    let pacing = |options: &ServerOptions, rate_bit_s, fq_rate_bit_s| {
        let params = Params {
            rate_bit_s,
            fq_rate_bit_s,
            ..tcp()
        };
        settings(options, &params).pacing.map(|rate| rate.0)
    };
    assert_eq!(pacing(&OPTIONS, 0, 0), None);
    assert_eq!(pacing(&OPTIONS, 900, 0), Some(900));
    assert_eq!(pacing(&OPTIONS, 900, 800), Some(800));
    assert_eq!(pacing(&OPTIONS, 0, 7), Some(8), "a byte a second at least");
    // Half of the limit for each of two.
    assert_eq!(pacing(&limited, 0, 0), Some(2000));
    assert_eq!(pacing(&limited, 900, 0), Some(900));
    let none = settings(&OPTIONS, &tcp());
    assert_eq!(none, SocketSettings::default());
    let asked = |mss, tos| {
        let params = Params {
            mss: Some(mss),
            tos,
            window: Some(5000),
            nodelay: true,
            congestion: Some("reno".to_owned()),
            ..tcp()
        };
        settings(&OPTIONS, &params)
    };
    let some = asked(88, 4);
    assert_eq!((some.mss, some.dscp), (Some(88), Some(1)));
    assert_eq!(some.send_buffer, Some(Bytes(5000)));
    assert_eq!(some.receive_buffer, Some(Bytes(5000)));
    assert_eq!(some.nodelay, Some(true));
    assert_eq!(some.congestion.as_deref(), Some("reno"));
    let less = asked(87, 3);
    assert_eq!((less.mss, less.dscp), (None, None));
    assert_eq!(asked(88, 184).dscp, Some(46));
}

#[test]
fn a_stream_has_its_share_of_the_limit_and_eight_bits_at_least() {
    let share = |limit: Option<u64>, bidirectional| {
        let options = ServerOptions {
            iperf3_max_rate: limit.map(BitRate),
            ..OPTIONS
        };
        let params = Params {
            bidirectional,
            ..tcp()
        };
        in_session(&options, |session, _| session.share_of_limit(&params))
    };
    assert_eq!(share(None, false), None);
    assert_eq!(share(Some(4000), false), Some(2000));
    assert_eq!(share(Some(4000), true), Some(1000));
    assert_eq!(
        [share(Some(16), false), share(Some(1), false)],
        [Some(8); 2]
    );
}

#[test]
fn a_congestion_control_that_is_not_there_is_left_out_and_nothing_else() {
    let (client, _server) = pair();
    let asked = |congestion: &str, mss| SocketSettings {
        congestion: Some(congestion.to_owned()),
        mss,
        ..SocketSettings::default()
    };
    assert_eq!(apply(&client, &asked("reno", None)), Ok(()));
    assert_eq!(apply(&client, &asked("warp", None)), Ok(()));
    assert!(apply(&client, &asked("warp", Some(1))).is_err());
    let small = SocketSettings {
        mss: Some(1),
        ..SocketSettings::default()
    };
    assert!(apply(&client, &small).is_err());
    let state = observe::socket_options(0, client.as_fd()).unwrap();
    assert_eq!(state.congestion, "reno");
}

/// Loads of a test over loopback with so many bytes received on each stream.
fn received(
    session: &TestSession<'_>,
    params: &Params,
    bytes: usize,
) -> (Vec<Half>, Vec<TcpStream>) {
    let (mut clients, streams): (Vec<_>, Vec<_>) =
        (0..stream_count(params)).map(|_| pair()).unzip();
    let halves = session
        .start(params, streams, Nanos::from_secs(60))
        .unwrap();
    let receiving = receiving_streams(params);
    for client in &mut clients[..receiving] {
        client.write_all(&vec![0; bytes]).unwrap();
    }
    let all = Bytes((bytes * receiving) as u64);
    while halves
        .iter()
        .filter(|half| !half.sends)
        .map(Half::total)
        .sum::<Bytes>()
        < all
    {
        std::thread::yield_now();
    }
    (halves, clients)
}

#[test]
fn a_test_ends_above_its_bytes_and_above_its_rate_by_a_tenth() {
    let within = |max_bytes: Option<u64>, max_rate: Option<u64>, seconds: f64| {
        let options = ServerOptions {
            iperf3_max_bytes: max_bytes.map(Bytes),
            iperf3_max_rate: max_rate.map(BitRate),
            ..OPTIONS
        };
        in_session(&options, |session, _| {
            let (halves, _clients) = received(session, &tcp(), 50_000);
            let elapsed = Duration::from_secs_f64(seconds);
            let result = session.within_limits(&halves, elapsed);
            halves.into_iter().for_each(Half::end);
            result.map_err(|(number, _)| number)
        })
    };
    assert_eq!(within(None, None, 9.0), Ok(()));
    assert_eq!(within(Some(100_000), None, 9.0), Ok(()));
    assert_eq!(within(Some(99_999), None, 9.0), Err(code::EXPIRED));
    // 100 kB in 8 s: 100 kbit/s.
    assert_eq!(
        within(None, Some(95_000), 8.0),
        Ok(()),
        "less than a tenth above"
    );
    assert_eq!(within(None, Some(85_000), 8.0), Err(code::TOTAL_RATE));
    assert_eq!(within(None, Some(1), 1.0), Ok(()), "of no second yet");
    assert_eq!(within(None, Some(1), 1.001), Err(code::TOTAL_RATE));
}

#[test]
fn datagrams_have_the_rate_of_the_client_or_a_share_of_the_limit() {
    let of = |rate_bit_s, limit: Option<u64>, size: Option<u32>| {
        let options = ServerOptions {
            iperf3_max_rate: limit.map(BitRate),
            ..OPTIONS
        };
        let params = Params {
            rate_bit_s,
            block_size: size,
            ..params(TestProtocol::Udp)
        };
        match in_session(&options, |session, _| session.workload(&params)) {
            Workload::Udp(udp) => (udp.rate.0, udp.datagram_size.0),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of(5, Some(1000), None), (5, DATAGRAM.0));
    assert_eq!(of(0, Some(1000), Some(100)), (500, 100));
    assert_eq!(of(0, None, None).0, 0, "as fast as it goes");
}

#[test]
fn both_halves_are_those_of_the_order() {
    let halves = |params: &Params| {
        in_session(&OPTIONS, |session, _| {
            let (halves, _clients) = received(session, params, 10);
            let found = halves
                .iter()
                .map(|half| (half.sends, half.load.sockets().len()));
            let found = found.collect::<Vec<_>>();
            halves.into_iter().for_each(Half::end);
            found
        })
    };
    let of = |reverse, bidirectional| Params {
        reverse,
        bidirectional,
        ..tcp()
    };
    assert_eq!(halves(&of(false, false)), [(false, 2)]);
    assert_eq!(halves(&of(true, false)), [(true, 2)]);
    assert_eq!(halves(&of(false, true)), [(false, 2), (true, 2)]);
}

#[test]
fn results_leave_out_what_came_before_the_end_of_the_omitted_start() {
    in_session(&OPTIONS, |session, _| {
        let params = Params {
            get_server_output: true,
            ..tcp()
        };
        let (mut halves, _clients) = received(session, &params, 1000);
        halves[0].omitted = vec![SessionCounts {
            bytes: Bytes(400),
            ..SessionCounts::default()
        }];
        let found = results(
            &params,
            &halves,
            Duration::from_secs(2),
            (3.0, 4.0),
            session.peer,
        );
        halves.into_iter().for_each(Half::end);
        let streams: Vec<_> = found
            .streams
            .iter()
            .map(|s| (s.id, s.bytes, s.retransmits, s.end_s))
            .collect();
        assert_eq!(streams, [(1, 600, -1, 2.0), (3, 1000, -1, 2.0)]);
        assert_eq!((found.cpu_total, found.cpu_user), (7.0, 3.0));
        assert_eq!(found.cpu_system, 4.0);
        assert_eq!(found.sender_has_retransmits, -1);
        assert!(found.congestion_used.is_some_and(|name| !name.is_empty()));
        let text = found.server_output_text.unwrap();
        assert!(text.contains(&format!("served {}", session.peer)), "{text}");
    });
}

#[test]
fn a_server_that_sends_reports_its_retransmissions() {
    in_session(&OPTIONS, |session, _| {
        let params = Params {
            reverse: true,
            ..tcp()
        };
        let (halves, _clients) = received(session, &params, 0);
        let found = results(&params, &halves, Duration::ZERO, (0.0, 0.0), session.peer);
        halves.into_iter().for_each(Half::end);
        assert_eq!(found.sender_has_retransmits, 1);
        assert!(found.streams.iter().all(|s| s.retransmits == 0));
        assert_eq!(found.server_output_text, None);
    });
}

fn result(id: u32, bytes: u64) -> StreamResult {
    StreamResult {
        id,
        bytes,
        jitter_s: 0.0015,
        errors: 2,
        packets: 9,
        ..StreamResult::default()
    }
}

#[test]
fn the_report_has_a_line_a_stream_and_datagrams_those_that_were_lost() {
    let found = TestResults {
        streams: vec![result(1, 125_000), result(3, 250_000)],
        ..TestResults::default()
    };
    let of = |params: &Params| {
        let at = (Ipv4Addr::LOCALHOST, 7).into();
        output(params, &found, Duration::from_secs(1), at)
    };
    let text = of(&Params {
        parallel: 1,
        bidirectional: true,
        ..params(TestProtocol::Udp)
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].ends_with(" served 127.0.0.1:7"), "{text}");
    let (first, second) = (lines[2], lines[3]);
    assert!(first.starts_with("[  1]   0.00-1.00 sec  "), "{first}");
    assert!(
        first.contains("1.00 Mbit/s  1.500 ms  2/9  receiver"),
        "{first}"
    );
    assert!(second.ends_with("2.00 Mbit/s  sender"), "{second}");
    let text = of(&tcp());
    assert_eq!(text.matches("  receiver\n").count(), 2);
    assert!(!text.contains(" ms "), "{text}");
}

#[test]
fn a_line_of_the_log_says_what_the_client_did() {
    let line = |reverse, bidirectional, streams: &[u64], protocol| {
        let of = Params {
            reverse,
            bidirectional,
            ..params(protocol)
        };
        let found = TestResults {
            streams: streams.iter().map(|bytes| result(1, *bytes)).collect(),
            ..TestResults::default()
        };
        summary(&of, &found, Duration::from_secs(2))
    };
    let (tcp, udp) = (TestProtocol::Tcp, TestProtocol::Udp);
    assert_eq!(
        line(false, false, &[1000, 1500], tcp),
        format!(
            "sent {} over 2 TCP streams in 2.0 s, 10.0 kbit/s",
            Bytes(2500)
        )
    );
    assert_eq!(
        line(true, false, &[2500], udp),
        format!(
            "received {} over 1 UDP stream in 2.0 s, 10.0 kbit/s",
            Bytes(2500)
        )
    );
    assert!(line(false, true, &[1], tcp).starts_with("sent and received "));
}

#[test]
fn who_is_turned_away_gets_one_byte_and_who_is_stopped_another() {
    let (client, mut other) = pair();
    deny(&client);
    let mut byte = [0];
    other.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [State::AccessDenied.byte()]);
    in_session(&OPTIONS, |session, client| {
        let why = session.deny("too many");
        assert_eq!(why, "too many");
        let mut said = [0; 2];
        client.read_exact(&mut said).unwrap();
        let states = [State::ParamExchange, State::AccessDenied];
        assert_eq!(said, states.map(State::byte));
    });
}
