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
