//! Both machines against each other on a hand-moved clock, over a line that cuts, loses and repeats.

use super::*;
use crate::Machine;
use model::Nanos;
use proptest::prelude::*;

const COOKIE: Cookie = *b"sluyyqsbvuv7awowz64yimjgdqqad5dnpykq\0";

/// What the line does to the bytes of one direction.
#[derive(Clone, Copy, Debug)]
enum Harm {
    None,
    /// Delivers this many bytes at a time.
    Cut(usize),
    /// Loses the byte at this position.
    Drop(usize),
    /// Delivers the byte at this position twice.
    Repeat(usize),
    /// Changes the byte at this position.
    Flip(usize, u8),
}

#[derive(Debug, Default)]
struct Ends {
    client: Option<Result<TestResults, Iperf3Failure>>,
    server: Option<Result<TestResults, Iperf3Failure>>,
}

fn params() -> Params {
    Params {
        time_s: 1,
        parallel: 2,
        block_size: Some(131_072),
        ..Params::default()
    }
}

fn results(bytes: u64) -> TestResults {
    TestResults {
        sender_has_retransmits: 1,
        streams: vec![StreamResult {
            id: 1,
            bytes,
            omitted_errors: Some(0),
            omitted_packets: Some(0),
            ..StreamResult::default()
        }],
        ..TestResults::default()
    }
}

fn harmed(bytes: Vec<u8>, seen: &mut usize, harm: Harm) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in bytes {
        match harm {
            Harm::Drop(at) if at == *seen => {}
            Harm::Repeat(at) if at == *seen => out.extend([byte, byte]),
            Harm::Flip(at, with) if at == *seen => out.push(byte ^ with),
            _ => out.push(byte),
        }
        *seen += 1;
    }
    out
}

fn pieces(bytes: &[u8], harm: Harm) -> Vec<&[u8]> {
    match harm {
        Harm::Cut(size) => bytes.chunks(size.max(1)).collect(),
        _ if bytes.is_empty() => Vec::new(),
        _ => vec![bytes],
    }
}

/// Plays one test; returns how both ends fared. The clock jumps to the next deadline when nothing
/// moves any more, so every play ends.
fn play(up: Harm, down: Harm) -> Ends {
    let mut now = Nanos(0);
    let mut client = Iperf3Client::new(now, &COOKIE, params());
    let mut server = Iperf3Server::new(now);
    let (mut up_seen, mut down_seen) = (0, 0);
    let mut ends = Ends::default();
    for _ in 0..1000 {
        let mut moved = false;
        let bytes = harmed(client.poll_output().unwrap_or_default(), &mut up_seen, up);
        for piece in pieces(&bytes, up) {
            server.input(now, piece);
            moved = true;
        }
        while let Some(event) = server.poll_event() {
            moved = true;
            match event {
                ServerEvent::Greeted(cookie) => assert!(is_cookie(&cookie)),
                ServerEvent::Asked(_) => server.open(now),
                ServerEvent::Ended => server.results(now, results(7)),
                ServerEvent::Finished(results) => ends.server = Some(Ok(*results)),
                ServerEvent::Failed(failure) => ends.server = Some(Err(failure)),
            }
        }
        let bytes = harmed(
            server.poll_output().unwrap_or_default(),
            &mut down_seen,
            down,
        );
        for piece in pieces(&bytes, down) {
            client.input(now, piece);
            moved = true;
        }
        while let Some(event) = client.poll_event() {
            moved = true;
            match event {
                ClientEvent::OpenStreams => server.start(now, Nanos::from_secs(40)),
                ClientEvent::Begin => client.end(now + Nanos::from_secs(1)),
                ClientEvent::GiveResults => client.results(now, &results(9)),
                ClientEvent::Finished(results) => ends.client = Some(Ok(*results)),
                ClientEvent::Failed(failure) => ends.client = Some(Err(failure)),
            }
        }
        if moved {
            continue;
        }
        // The line closes when one end has hung up.
        if ends.client.is_some() {
            server.input_end();
        } else if ends.server.is_some() {
            client.input_end();
        } else if let Some(next) = client.deadline().into_iter().chain(server.deadline()).min() {
            now = next;
            client.on_timeout(now);
            server.on_timeout(now);
        } else {
            break;
        }
        if ends.client.is_some() && ends.server.is_some() {
            break;
        }
    }
    while let Some(event) = server.poll_event() {
        if let ServerEvent::Failed(failure) = event {
            ends.server = Some(Err(failure));
        }
    }
    ends
}

#[test]
fn a_whole_test() {
    let ends = play(Harm::None, Harm::None);
    assert_eq!(ends.client, Some(Ok(results(7))));
    assert_eq!(ends.server, Some(Ok(results(9))));
}

#[test]
fn two_states_in_one_segment() {
    let mut client = Iperf3Client::new(Nanos(0), &COOKIE, params());
    client.input(Nanos(0), &[9, 10]);
    assert_eq!(client.poll_event(), Some(ClientEvent::OpenStreams));
    client.input(Nanos(0), &[1, 2]);
    assert_eq!(client.poll_event(), Some(ClientEvent::Begin));
}

#[test]
fn every_refusal_has_its_words() {
    let failure = |bytes: &[u8]| {
        let mut client = Iperf3Client::new(Nanos(0), &COOKIE, params());
        client.input(Nanos(0), bytes);
        match client.poll_event() {
            Some(ClientEvent::Failed(failure)) => failure.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        failure(&[0xff]),
        "the iperf3 server is busy with another test"
    );
    assert_eq!(
        failure(&[11]),
        "the iperf3 server was stopped during the test"
    );
    assert!(failure(&[0xfe, 0, 0, 0, 142, 0, 0, 0, 0]).contains("user name, password or clock"));
    assert!(failure(b"HTTP").contains("does not speak iperf3's protocol: byte 72"));
}

#[test]
fn half_a_reason_is_one_if_the_server_then_leaves() {
    let mut client = Iperf3Client::new(Nanos(0), &COOKIE, params());
    client.input(Nanos(0), &[0xfe, 0, 0, 0, 142]);
    assert_eq!(client.poll_event(), None);
    client.input_end();
    assert_eq!(
        client.poll_event(),
        Some(ClientEvent::Failed(Iperf3Failure::ServerError {
            number: 142,
            errno: 0
        }))
    );
}

#[test]
fn a_silent_peer_costs_a_known_time() {
    let mut server = Iperf3Server::new(Nanos(0));
    let deadline = server.deadline().unwrap();
    server.on_timeout(deadline);
    assert!(matches!(
        server.poll_event(),
        Some(ServerEvent::Failed(Iperf3Failure::Silent { .. }))
    ));

    let mut client = Iperf3Client::new(Nanos(0), &COOKIE, params());
    client.on_timeout(client.deadline().unwrap());
    assert!(matches!(
        client.poll_event(),
        Some(ClientEvent::Failed(Iperf3Failure::Silent { .. }))
    ));
}

#[test]
fn a_huge_frame_is_refused_before_it_is_kept() {
    let mut server = Iperf3Server::new(Nanos(0));
    server.input(Nanos(0), &COOKIE);
    server.input(Nanos(0), &u32::MAX.to_be_bytes());
    assert!(matches!(server.poll_event(), Some(ServerEvent::Greeted(_))));
    assert!(matches!(
        server.poll_event(),
        Some(ServerEvent::Failed(Iperf3Failure::TooLarge {
            size: 0xffff_ffff,
            ..
        }))
    ));
    // The client learns it in iperf3's own words.
    assert_eq!(
        server.poll_output().unwrap_or_default(),
        [9, 0xfe, 0, 0, 0, 114, 0, 0, 0, 0]
    );
}

#[test]
fn data_before_its_turn_is_kept_up_to_its_bound() {
    let failed = |early: usize| {
        let mut server = Iperf3Server::new(Nanos(0));
        server.input(Nanos(0), &COOKIE);
        let json = params().to_json().to_string();
        server.input(Nanos(0), &(json.len() as u32).to_be_bytes());
        server.input(Nanos(0), json.as_bytes());
        server.input(Nanos(0), &vec![1; early]);
        match std::iter::from_fn(|| server.poll_event()).last() {
            Some(ServerEvent::Asked(_)) => None,
            Some(ServerEvent::Failed(Iperf3Failure::TooLarge { size, limit, .. })) => {
                Some((size, limit))
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(failed(64), None);
    assert_eq!(failed(65), Some((65, 64)));
}

#[test]
fn a_client_that_gives_up_is_noticed_in_every_state() {
    let mut server = Iperf3Server::new(Nanos(0));
    server.input(Nanos(0), &COOKIE);
    let json = params().to_json().to_string();
    server.input(Nanos(0), &(json.len() as u32).to_be_bytes());
    server.input(Nanos(0), json.as_bytes());
    server.input(Nanos(0), &[12]);
    let last = std::iter::from_fn(|| server.poll_event()).last();
    assert_eq!(
        last,
        Some(ServerEvent::Failed(Iperf3Failure::ClientTerminated))
    );
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        Just(Harm::None),
        (1usize..50).prop_map(Harm::Cut),
        (0usize..600).prop_map(Harm::Drop),
        (0usize..600).prop_map(Harm::Repeat),
        (0usize..600, 1u8..=255).prop_map(|(at, with)| Harm::Flip(at, with)),
    ]
}

proptest! {
    #[test]
    fn cuts_change_nothing(up in 1usize..60, down in 1usize..60) {
        let ends = play(Harm::Cut(up), Harm::Cut(down));
        prop_assert_eq!(ends.client, Some(Ok(results(7))));
        prop_assert_eq!(ends.server, Some(Ok(results(9))));
    }

    #[test]
    fn whatever_the_line_does_both_ends_come_to_an_end(up in harm(), down in harm()) {
        let ends = play(up, down);
        prop_assert!(ends.client.is_some() && ends.server.is_some(), "{ends:?}");
    }

    #[test]
    fn garbage_never_panics(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20)) {
        let mut client = Iperf3Client::new(Nanos(0), &COOKIE, params());
        let mut server = Iperf3Server::new(Nanos(0));
        for chunk in &chunks {
            client.input(Nanos(0), chunk);
            server.input(Nanos(0), chunk);
        }
        client.input_end();
        server.input_end();
    }
}

/// A server that has come so far at 100 s, with what it sent since then taken.
fn server_at(step: usize) -> Iperf3Server {
    let now = Nanos::from_secs(100);
    let mut server = Iperf3Server::new(now);
    let steps: [&dyn Fn(&mut Iperf3Server); 6] = [
        &|s| s.input(now, &COOKIE),
        &|s| s.input(now, &frame::framed(&params().to_json())),
        &|s| s.open(now),
        &|s| s.start(now, Nanos::from_secs(40)),
        &|s| s.input(now, &[State::TestEnd.byte()]),
        &|s| {
            s.results(now, results(7));
            s.input(now, &frame::framed(&results(9).to_json()));
        },
    ];
    steps[..step].iter().for_each(|step| step(&mut server));
    while server.poll_event().is_some() {}
    server.poll_output();
    server
}

#[test]
fn every_step_of_a_server_has_its_time_and_its_number() {
    use code::{EXPIRED, NO_MESSAGE, STREAM_ACCEPT};
    for (step, seconds, number) in [
        (0, Some(10), None),
        (1, Some(10), Some(NO_MESSAGE)),
        (2, None, None),
        (3, Some(20), Some(STREAM_ACCEPT)),
        (4, Some(40), Some(EXPIRED)),
        (5, Some(10), Some(NO_MESSAGE)),
    ] {
        let mut server = server_at(step);
        let deadline = seconds.map(|s| Nanos::from_secs(100 + s));
        assert_eq!(server.deadline(), deadline, "{step}");
        let Some(at) = deadline else { continue };
        server.on_timeout(Nanos(at.0 - 1));
        assert_eq!(
            (server.poll_event(), server.poll_output()),
            (None, None),
            "{step}"
        );
        server.on_timeout(at);
        let failed = server.poll_event();
        let span = Nanos::from_secs(seconds.unwrap());
        let during = [
            "its cookie was due",
            "its parameters were due",
            "its parameters were looked at",
            "its streams were being opened",
            "the test ran",
            "its results were due",
        ][step];
        let silent = Iperf3Failure::Silent { during, span };
        assert_eq!(failed, Some(ServerEvent::Failed(silent)));
        let sent = number.map(|number| {
            let mut bytes = vec![State::ServerError.byte()];
            bytes.extend([number.to_be_bytes(), [0; 4]].concat());
            bytes
        });
        assert_eq!(server.poll_output(), sent, "{step}");
        assert_eq!(server.deadline(), None);
    }
    // Who has given its results need not say good bye.
    let mut server = server_at(6);
    assert_eq!(server.deadline(), Some(Nanos::from_secs(110)));
    server.on_timeout(Nanos::from_secs(110));
    assert!(matches!(
        server.poll_event(),
        Some(ServerEvent::Finished(_))
    ));
}

#[test]
fn a_server_sends_its_reason_once() {
    let sent = |leave: fn(&mut Iperf3Server)| {
        let mut server = server_at(4);
        leave(&mut server);
        let said = server.poll_output();
        leave(&mut server);
        assert_eq!((server.poll_output(), server.deadline()), (None, None));
        said.unwrap()
    };
    assert_eq!(sent(|s| s.refuse(5, 258)), [0xfe, 0, 0, 0, 5, 0, 0, 1, 2]);
    assert_eq!(sent(|s| s.deny()), [0xff]);
    assert_eq!(sent(|s| s.terminate()), [11]);
    for (step, number) in [(1, code::RECEIVE_PARAMS), (5, code::RECEIVE_RESULTS)] {
        let mut server = server_at(step);
        server.input(Nanos(0), &frame::framed(&serde_json::json!([])));
        assert!(matches!(server.poll_event(), Some(ServerEvent::Failed(_))));
        assert_eq!(server.poll_output().unwrap()[1..5], number.to_be_bytes());
    }
    // A cookie that is none has no number.
    let mut server = Iperf3Server::new(Nanos(0));
    server.input(Nanos(0), &[b' '; 37]);
    assert_eq!(
        server.poll_event(),
        Some(ServerEvent::Failed(Iperf3Failure::NotACookie))
    );
    assert_eq!(server.poll_output(), None);
}

#[test]
fn what_comes_before_its_turn_is_64_bytes_at_most() {
    let early = |step, size| {
        let mut server = server_at(step);
        if step == 5 {
            server.input(Nanos(0), &frame::framed(&results(9).to_json()));
        }
        server.input(Nanos(0), &vec![State::TestEnd.byte(); size]);
        server.poll_event()
    };
    for step in [2, 5] {
        assert_eq!(early(step, 64), None, "{step}");
        assert!(matches!(
            early(step, 65),
            Some(ServerEvent::Failed(Iperf3Failure::TooLarge {
                size: 65,
                limit: 64,
                ..
            }))
        ));
    }
    let mut server = server_at(2);
    server.input(Nanos(0), &[State::ClientTerminate.byte()]);
    let stopped = ServerEvent::Failed(Iperf3Failure::ClientTerminated);
    assert_eq!(server.poll_event(), Some(stopped));
}

#[test]
fn every_step_of_a_client_has_its_time() {
    let now = Nanos::from_secs(100);
    let at = |step: usize| {
        let mut client = Iperf3Client::new(now, &COOKIE, params());
        let bytes = |states: &[State]| states.iter().map(|s| s.byte()).collect::<Vec<u8>>();
        let steps: [&dyn Fn(&mut Iperf3Client); 8] = [
            &|c| c.input(now, &bytes(&[State::ParamExchange])),
            &|c| c.input(now, &bytes(&[State::CreateStreams])),
            &|c| c.input(now, &bytes(&[State::TestStart])),
            &|c| c.input(now, &bytes(&[State::TestRunning])),
            &|c| c.end(now),
            &|c| c.input(now, &bytes(&[State::ExchangeResults])),
            &|c| c.results(now, &results(9)),
            &|c| c.input(now, &frame::framed(&results(7).to_json())),
        ];
        steps[..step].iter().for_each(|step| step(&mut client));
        while client.poll_event().is_some() {}
        client
    };
    let mut waited = Vec::new();
    for step in 0..=8 {
        let mut client = at(step);
        let Some(deadline) = client.deadline() else {
            assert_eq!(step, 4, "a test that runs has none");
            continue;
        };
        let seconds = if step == 1 { 150 } else { 15 };
        assert_eq!(deadline, now + Nanos::from_secs(seconds), "{step}");
        client.on_timeout(Nanos(deadline.0 - 1));
        assert_eq!(client.poll_event(), None);
        client.on_timeout(deadline);
        let failed = client.poll_event();
        let span = Nanos::from_secs(seconds);
        let Some(ClientEvent::Failed(Iperf3Failure::Silent {
            during,
            span: found,
        })) = failed
        else {
            panic!("{step}: {failed:?}");
        };
        assert_eq!(found, span, "{step}");
        waited.push(during);
        assert_eq!(client.deadline(), None);
    }
    waited.sort_unstable();
    waited.dedup();
    assert_eq!(waited.len(), 6, "what was waited for: {waited:?}");
    // The server's reason: both numbers, or the first alone before it closes.
    let refused = |bytes: &[u8], closes: bool| {
        let mut client = at(1);
        client.input(now, &[State::ServerError.byte()]);
        client.input(now, bytes);
        if closes {
            client.input_end();
        }
        match client.poll_event() {
            Some(ClientEvent::Failed(Iperf3Failure::ServerError { number, errno })) => {
                Some((number, errno))
            }
            _ => None,
        }
    };
    assert_eq!(refused(&[0, 0, 1, 2, 0, 0, 0, 3], false), Some((258, 3)));
    assert_eq!(refused(&[0, 0, 1, 2, 0, 0, 0], false), None);
    assert_eq!(refused(&[0, 0, 1, 2], true), Some((258, 0)));
    assert_eq!(refused(&[0, 0, 1], true), None);
    let mut client = at(2);
    client.terminate();
    client.terminate();
    assert_eq!(
        client.poll_output().unwrap().last(),
        Some(&State::ClientTerminate.byte())
    );
    assert_eq!((client.poll_output(), client.deadline()), (None, None));
}

#[test]
fn values_are_of_their_kind_and_within_their_range() {
    let map = serde_json::json!({
        "null": null, "text": "a", "yes": true, "no": false, "zero": 0, "one": 1, "minus": -7,
        "half": 0.5, "large": 1e15, "larger": 1.9e19, "less": -1.0,
    });
    let map = map.as_object().unwrap();
    let of = frame::KeyBytes(map);
    let ok = |found: Result<Option<u64>, Malformed>| found.map_err(|_| ());
    let whole = |key| ok(of.whole(key, 1_000_000_000_000_000, "small"));
    assert_eq!(
        [whole("gone"), whole("null"), whole("zero")],
        [Ok(None), Ok(None), Ok(Some(0))]
    );
    assert_eq!(whole("large"), Ok(Some(1_000_000_000_000_000)));
    for key in ["larger", "half", "minus", "less", "text", "yes"] {
        assert_eq!(whole(key), Err(()), "{key}");
    }
    assert_eq!(
        [ok(of.whole("one", 1, "")), ok(of.whole("one", 0, ""))],
        [Ok(Some(1)), Err(())]
    );
    let why = of.whole("one", 0, "none").unwrap_err().0;
    assert_eq!(why, "'one' is 1, and must be none");
    let signed = |key| of.signed(key).map_err(|_| ());
    assert_eq!(
        [signed("minus"), signed("half"), signed("null")],
        [Ok(Some(-7)), Ok(Some(0)), Ok(None)]
    );
    assert!(signed("text").is_err());
    let flag = |key| of.flag(key).map_err(|_| ());
    let flags = ["yes", "no", "zero", "one", "half", "null"].map(flag);
    assert_eq!(
        flags,
        [
            Ok(true),
            Ok(false),
            Ok(false),
            Ok(true),
            Ok(true),
            Ok(false)
        ]
    );
    assert!(flag("text").is_err());
    let real = |key| of.real(key).map_err(|_| ());
    assert_eq!(
        [real("half"), real("gone"), real("text")],
        [Ok(0.5), Ok(0.0), Err(())]
    );
    let text = |key| of.text(key).map_err(|_| ());
    assert_eq!(
        [text("text"), text("null"), text("one")],
        [Ok(Some("a".to_owned())), Ok(None), Err(())]
    );
    let long = frame::out_of_range("k", &"9".repeat(41), "less").0;
    assert!(long.contains(&"9".repeat(40)) && !long.contains(&"9".repeat(41)));
}
