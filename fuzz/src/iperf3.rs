//! iperf3's protocol and its JSON.

use model::{Nanos, Run};
use wire::Machine;
use wire::iperf3::{
    ClientEvent, Iperf3Client, Iperf3Failure, Iperf3Server, Params, ServerEvent, TestResults,
    UdpHeader, UserCredentials, UsersFile, connect_reply, is_connect_reply, read_token_text,
    token_text,
};

const COOKIE: &[u8; 37] = b"abcdefghijklmnopqrstuvwxyz234567abcd\0";

pub fn params(bytes: &[u8]) {
    if let Ok(params) = Params::from_json(bytes) {
        let written = params.to_json().to_string();
        assert_eq!(Params::from_json(written.as_bytes()), Ok(params));
    }
}

pub fn results(bytes: &[u8]) {
    if let Ok(results) = TestResults::from_json(bytes) {
        let written = results.to_json().to_string();
        let again = TestResults::from_json(written.as_bytes()).expect("our own results");
        // What old versions leave out is written as zero; after that nothing changes.
        assert_eq!(again.to_json(), results.to_json());
        assert_eq!(again.streams.len(), results.streams.len());
    }
}

/// The client's end, with whatever a server may say; cut elsewhere it learns the same.
pub fn client(bytes: &[u8]) {
    assert_eq!(client_learns(bytes, 4096), client_learns(bytes, 1));
}

fn client_learns(bytes: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let mut client = Iperf3Client::new(Nanos(0), COOKIE, Params::default());
    let mut learnt = Vec::new();
    let mut said = Vec::new();
    let mut drain = |client: &mut Iperf3Client| {
        said.extend(client.poll_output().unwrap_or_default());
        while let Some(event) = client.poll_event() {
            match &event {
                ClientEvent::Begin => client.end(Nanos(1)),
                ClientEvent::GiveResults => client.results(Nanos(1), &TestResults::default()),
                _ => {}
            }
            learnt.push(format!("{event:?}"));
            said.extend(client.poll_output().unwrap_or_default());
        }
    };
    // A server answers only what was said before: state by state, as a real one has to.
    for part in bytes.split_inclusive(|byte| (1..=16).contains(byte)) {
        for piece in part.chunks(piece) {
            client.input(Nanos(0), piece);
        }
        drain(&mut client);
    }
    client.input_end();
    drain(&mut client);
    assert!(
        client.deadline().is_none(),
        "it waits for a server that is gone"
    );
    let ends = learnt
        .iter()
        .filter(|event| event.starts_with("Finished") || event.starts_with("Failed"))
        .count();
    assert_eq!(ends, 1, "exactly one end: {learnt:?}");
    (learnt, said)
}

/// The server's side, with any bytes of an unauthenticated client after its cookie.
pub fn server(bytes: &[u8]) {
    let mut server = Iperf3Server::new(Nanos(0));
    server.input(Nanos(0), COOKIE);
    let mut ends = 0;
    let mut said = 0;
    let mut drain = |server: &mut Iperf3Server| {
        said += server.poll_output().unwrap_or_default().len();
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::Greeted(cookie) => assert_eq!(&cookie, COOKIE),
                ServerEvent::Asked(params) => {
                    assert!((1..=128).contains(&params.parallel));
                    server.open(Nanos(1));
                    server.start(Nanos(1), Nanos::from_secs(1));
                }
                ServerEvent::Ended => server.results(Nanos(1), TestResults::default()),
                ServerEvent::Finished(_) => ends += 1,
                ServerEvent::Failed(failure) => {
                    assert!(
                        !matches!(failure, Iperf3Failure::Busy),
                        "a client is never busy"
                    );
                    ends += 1;
                }
            }
            said += server.poll_output().unwrap_or_default().len();
        }
    };
    for piece in bytes.chunks(61) {
        server.input(Nanos(1), piece);
        drain(&mut server);
    }
    server.input_end();
    drain(&mut server);
    assert_eq!(ends, 1, "exactly one end");
    assert!(
        server.deadline().is_none(),
        "it waits for a client that is gone"
    );
    assert!(said < 1000, "{said} bytes for an unauthenticated client");
}

pub fn udp_header(bytes: &[u8]) {
    for wide in [false, true] {
        let length = if wide {
            UdpHeader::WIDE
        } else {
            UdpHeader::NARROW
        };
        let Some(header) = UdpHeader::decode(bytes, wide) else {
            assert!(bytes.len() < length);
            continue;
        };
        let mut again = vec![0; length];
        assert!(header.encode(&mut again, wide));
        assert_eq!(again, bytes[..length]);
    }
    if let Some(reply) = connect_reply(bytes) {
        assert!(is_connect_reply(&reply) && !is_connect_reply(bytes));
    }
}

pub fn auth_token(bytes: &[u8]) {
    if let Ok(credentials) = read_token_text(bytes) {
        let written = token_text(&credentials);
        assert_eq!(read_token_text(written.as_bytes()), Ok(credentials));
    }
}

pub fn users_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(users) = UsersFile::parse(text) {
        // Nobody comes in by a name that stands in no line, nor with an old clock.
        let unknown = UserCredentials {
            user: "\n".to_owned(),
            password: String::new(),
            seconds: 0,
        };
        assert!(users.check(&unknown, 0, 10).is_err());
        assert!(users.check(&unknown, 11, 10).is_err());
    }
}

pub fn json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(run) = report::iperf3::from_json(text) {
        let summary = model::summarise(&run);
        let written = report::iperf3::to_json(&run, &summary);
        let again: Run = report::iperf3::from_json(&written).expect("our own JSON");
        assert_eq!(again, run);
        let _ = report::iperf3::stream_start(&run);
        let _ = report::iperf3::stream_end(&run, &summary);
    }
}
