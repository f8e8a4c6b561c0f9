//! The protocol between controller and agent.

use model::Nanos;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use wire::Machine;
use wire::control::enrol::{ANSWER_LEN, REQUEST_LEN};
use wire::control::{
    AgentRole, ControlRole, ControllerRole, Endpoint, FrameReader, MAX_FRAME, MAX_QUEUED,
    PREAMBLE_LEN, Preamble, ToAgent, ToController, Token, encode_frame,
};

pub fn frames(bytes: &[u8]) {
    // All at once, and a byte at a time: the same frames, the same end.
    let whole = cut(bytes, bytes.len().max(1));
    assert_eq!(whole, cut(bytes, 1), "frames depend on how they were cut");
    for frame in whole.0 {
        assert!((1..=MAX_FRAME).contains(&frame.len()));
    }
}

fn cut(bytes: &[u8], size: usize) -> (Vec<Vec<u8>>, bool) {
    let mut reader = FrameReader::default();
    let mut frames = Vec::new();
    for piece in bytes.chunks(size) {
        reader.push(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(_) => return (frames, false),
            }
        }
    }
    (frames, true)
}

pub fn to_agent(bytes: &[u8]) {
    reads_back::<ToAgent>(bytes);
}

pub fn to_controller(bytes: &[u8]) {
    reads_back::<ToController>(bytes);
}

/// What was taken is written, cut into frames and taken again.
fn reads_back<M: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(message) = serde_json::from_slice::<M>(bytes) else {
        return;
    };
    let Ok(frame) = encode_frame(&message) else {
        return;
    };
    let mut reader = FrameReader::default();
    reader.push(&frame);
    let body = reader.next_frame().expect("our own frame").expect("whole");
    let again: M = serde_json::from_slice(body).expect("what was written is read");
    assert_eq!(again, message);
}

pub fn agent_machine(bytes: &[u8]) {
    listens::<AgentRole>(bytes);
}

pub fn controller_machine(bytes: &[u8]) {
    listens::<ControllerRole>(bytes);
}

/// A machine with an untrusted peer comes to its end, and never sends more than its bound.
fn listens<R: ControlRole>(bytes: &[u8]) {
    let mut machine = Endpoint::<R>::new(Nanos(0), "fuzz", Nanos::from_secs(5));
    let mut said = 0;
    for (moment, piece) in (0..).zip(bytes.chunks(97)) {
        machine.input(Nanos::from_millis(moment), piece);
        while machine.poll_event().is_some() {}
        while let Some(output) = machine.poll_output() {
            said += output.len();
        }
    }
    machine.input_end();
    while machine.poll_event().is_some() {}
    for _ in 0..10_000 {
        let Some(deadline) = machine.deadline().filter(|_| !machine.is_over()) else {
            break;
        };
        machine.on_timeout(deadline);
        while machine.poll_event().is_some() {}
        while let Some(output) = machine.poll_output() {
            said += output.len();
        }
    }
    assert!(
        machine.is_over(),
        "the machine waits for a peer that is gone"
    );
    assert!(said <= MAX_QUEUED, "{said} bytes of answers");
}

pub fn preamble(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<PREAMBLE_LEN>() {
        assert_eq!(Preamble::decode(bytes).encode(), *bytes);
    }
}

pub fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Some(token) = Token::from_hex(text) {
        assert_eq!(token.to_hex(), text.to_ascii_lowercase());
        assert!(token.matches(&Token::new(*token.as_bytes())));
    }
}

pub fn enrol(bytes: &[u8]) {
    if let Some(frame) = bytes.first_chunk::<REQUEST_LEN>()
        && let Some(request) = wire::control::enrol::EnrolRequest::decode(frame)
    {
        assert!(wire::control::enrol::is_name(&request.name));
        assert_eq!(request.encode(), *frame);
    }
    if let Some(frame) = bytes.first_chunk::<ANSWER_LEN>()
        && let Some(answer) = wire::control::enrol::EnrolAnswer::decode(frame)
    {
        assert_eq!(answer.encode(), *frame);
    }
}

pub fn printable(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let shown = wire::control::printable(&text, 40);
    assert!(shown.chars().count() <= 40);
    assert!(!shown.chars().any(char::is_control));
    assert_eq!(wire::control::printable(&shown, 40), shown);
}

/// Datagrams of path probing, behind a token that is known to both.
pub fn probe(bytes: &[u8]) {
    use wire::control::probe::Datagram;
    let token = Token::new(*b"0123456789abcdef0123456789abcdef");
    if let Some(datagram) = Datagram::decode(bytes, &token) {
        let again = datagram.encode(&token, bytes.len());
        assert_eq!(Datagram::decode(&again, &token), Some(datagram));
    }
}
