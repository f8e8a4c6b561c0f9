//! The beginnings of traces that real kernels made on paths whose cause is known, and what is to be found of
//! them: `cases/recorded/*.toml`, each with its events beside it in a `.gz`, both made by `cut.py`.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

mod common;

use common::Expect;
use model::*;
use serde::Deserialize;
use std::io::Read;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The path, and why it is here.
    #[allow(dead_code, reason = "for the reader")]
    about: String,
    expect: Expect,
}

/// The events of a case, one a line as `cut.py` says.
fn events(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/recorded");
    let packed = std::fs::read(format!("{folder}/{name}.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice())
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Which figure a letter stands for.
fn number(letter: char) -> usize {
    match letter {
        'a'..='z' => letter as usize - 'a' as usize,
        _ => letter as usize - 'A' as usize + 26,
    }
}

/// The socket of its figures.
fn socket(of: &[i64]) -> SocketValues {
    let at = |letter: char| of[number(letter)];
    let n8 = |letter| u8::try_from(at(letter)).unwrap();
    let n32 = |letter| u32::try_from(at(letter)).unwrap();
    let n64 = |letter| u64::try_from(at(letter)).unwrap();
    SocketValues {
        state: n8('a'),
        ca_state: n8('b'),
        snd_una: n32('c'),
        snd_nxt: n32('d'),
        write_seq: n32('e'),
        snd_sml: n32('f'),
        snd_wnd: Bytes(n64('g')),
        cwnd: n32('h'),
        ssthresh: n32('i'),
        srtt: Nanos(n64('j') * 1000),
        min_rtt: Nanos(n64('k') * 1000),
        mss: n32('l'),
        packets_out: n32('m'),
        sacked_out: n32('n'),
        lost_out: n32('o'),
        retrans_out: n32('p'),
        retransmits: n8('q'),
        timer: n8('r'),
        segs_out: n32('s'),
        segs_in: n32('t'),
        delivered: n32('u'),
        delivered_ce: n32('v'),
        reord_seen: n32('w'),
        dsack_dups: n32('x'),
        bytes_acked: Bytes(n64('y')),
        bytes_received: Bytes(n64('z')),
        sndbuf: Bytes(n64('A')),
        wmem_alloc: Bytes(n64('B')),
        no_space: at('C') > 0,
        chrono: n8('D'),
        app_limited: n32('E'),
        pacing_rate: BitRate(n64('F') * 1000),
        pacing_status: n8('G'),
        nonagle: n8('H'),
        ..SocketValues::default()
    }
}

fn trace(events: &str) -> Trace {
    let mut figures = vec![0i64; 52];
    let mut at = Nanos(0);
    let mut segments = Vec::new();
    for line in events.lines() {
        let mut words = line.split(' ');
        at += Nanos(words.next().unwrap().parse::<u64>().unwrap() * 1000);
        let mut segment = Segment {
            at,
            what: match words.next().unwrap() {
                "S" => What::Sent,
                "R" => What::Received,
                "W" => What::Wrote,
                "D" => What::Read,
                "T" => What::State,
                _ => What::Congestion,
            },
            ..Segment::default()
        };
        if segment.what == What::Sent {
            let mut next = || words.next().unwrap().parse::<u32>().unwrap();
            segment.seq = next();
            segment.payload = Bytes(next().into());
            segment.segments = next();
            segment.segment_size = next();
            segment.flags = u8::try_from(next()).unwrap();
        }
        if segment.what == What::Received {
            segment.segments = 1;
        }
        let changes = words.next().unwrap_or_default();
        let letters = changes.match_indices(|c: char| c.is_ascii_alphabetic());
        for (start, letter) in letters {
            let rest = &changes[start + 1..];
            let end = rest.find(|c: char| c.is_ascii_alphabetic());
            let by: i64 = rest[..end.unwrap_or(rest.len())].parse().unwrap();
            figures[number(letter.chars().next().unwrap())] += by;
        }
        segment.socket = Some(SocketState::from_probe(socket(&figures)));
        segments.push(segment);
    }
    Trace {
        connections: vec![Connection {
            id: 0,
            cookie: 1,
            netns: 0,
            local: ([192, 0, 2, 1], 40000).into(),
            remote: ([192, 0, 2, 2], 5201).into(),
        }],
        segments,
        ..Trace::default()
    }
}

#[test]
fn each_recording_is_explained_as_expected() {
    common::each_case("recorded", 30, |name, case: &Case| {
        let explanations = linerate_explain::explain_trace(&trace(&events(name)));
        case.expect.of(name, &explanations).map(|_| ())
    });
}
