//! Traces in a few lines and what is to be found of them. `cases/trace/*.toml`: steps, repeated.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

mod common;

use common::Expect;
use model::segment::{tcp_flag, tcp_state};
use model::*;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Why it is here.
    #[allow(dead_code, reason = "for the reader")]
    about: String,
    rtt_us: u64,
    #[serde(default)]
    start: BTreeMap<String, i64>,
    #[serde(rename = "loop")]
    loops: Vec<Loop>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Loop {
    #[serde(default = "once")]
    times: u32,
    step: Vec<Step>,
}

fn once() -> u32 {
    1
}

/// One event. What is `set` holds for the time before it, and after.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Step {
    after_us: u64,
    /// How often, with the same time between.
    repeat: u32,
    set: BTreeMap<String, i64>,
    /// Bytes written by the application before the event, without an event of its own.
    wrote: u32,
    /// Bytes sent.
    sent: u32,
    /// Retransmitted bytes, from `at` bytes behind the oldest.
    again: u32,
    at: u32,
    /// Bytes newly acknowledged; zero is a duplicate acknowledgement.
    acked: Option<u32>,
    /// It has a timestamp, set so many milliseconds ago.
    stamped_ms_ago: Option<u64>,
}

const MSS: u32 = 1448;

fn set(socket: &mut SocketValues, name: &str, value: i64) {
    let n = u64::try_from(value).unwrap();
    match name {
        "state" => socket.state = n as u8,
        "ca_state" => socket.ca_state = n as u8,
        "cwnd" => socket.cwnd = n as u32,
        "ssthresh" => socket.ssthresh = n as u32,
        "window" => socket.snd_wnd = Bytes(n),
        "retransmits" => socket.retransmits = n as u8,
        "timer" => socket.timer = n as u8,
        "no_space" => socket.no_space = n > 0,
        "chrono" => socket.chrono = n as u8,
        "nonagle" => socket.nonagle = n as u8,
        "lost_out" => socket.lost_out = n as u32,
        "sacked_out" => socket.sacked_out = n as u32,
        "pacing_status" => socket.pacing_status = n as u8,
        "pacing_mbit" => socket.pacing_rate = BitRate(n * 1_000_000),
        "app_limited" => socket.app_limited = n as u32,
        "wmem_alloc" => socket.wmem_alloc = Bytes(n),
        "srtt_us" => socket.srtt = Nanos(n * 1000),
        "dsacks" => socket.dsack_dups = n as u32,
        "reord_seen" => socket.reord_seen = n as u32,
        "delivered_ce" => socket.delivered_ce = n as u32,
        "mss" => socket.mss = n as u32,
        _ => panic!("no such field: {name}"),
    }
}

impl Case {
    fn trace(&self) -> Trace {
        let srtt = Nanos(self.rtt_us * 1000);
        let mut socket = SocketValues {
            state: tcp_state::ESTABLISHED,
            snd_wnd: Bytes(6 << 20),
            cwnd: 10,
            ssthresh: i32::MAX as u32,
            mss: MSS,
            srtt,
            min_rtt: srtt,
            snd_una: 1,
            snd_nxt: 1,
            write_seq: 1,
            snd_sml: 1,
            ..SocketValues::default()
        };
        for (name, value) in &self.start {
            set(&mut socket, name, *value);
        }
        let mut segments = vec![Segment {
            what: What::Wrote,
            socket: Some(SocketState::from_probe(socket.clone())),
            ..Segment::default()
        }];
        let mut at = Nanos(0);
        for part in &self.loops {
            for _ in 0..part.times {
                for step in &part.step {
                    for _ in 0..step.repeat.max(1) {
                        at += Nanos(step.after_us * 1000);
                        segments.push(step.event(at, &mut socket));
                    }
                }
            }
        }
        Trace {
            connections: vec![Connection {
                id: 0,
                cookie: 1,
                netns: 0,
                local: ([192, 0, 2, 1], 40000).into(),
                remote: ([192, 0, 2, 2], 5210).into(),
            }],
            segments,
            ..Trace::default()
        }
    }
}

impl Step {
    fn event(&self, at: Nanos, socket: &mut SocketValues) -> Segment {
        for (name, value) in &self.set {
            set(socket, name, *value);
        }
        socket.write_seq += self.wrote;
        let stamp = |ago: u64| (at.0 / 1_000_000 + 1000 - ago) as u32;
        let mut segment = Segment {
            at,
            stamps: self.stamped_ms_ago.map(|ago| (stamp(ago), 0)),
            ..Segment::default()
        };
        if let Some(acked) = self.acked {
            segment.what = What::Received;
            segment.socket = Some(SocketState::from_probe(socket.clone()));
            socket.segs_in += 1;
            segment.segments = 1;
            socket.snd_una += acked;
            (segment.ack, segment.flags) = (socket.snd_una, tcp_flag::ACK);
            let segs = acked.div_ceil(MSS);
            socket.delivered += segs;
            socket.packets_out = socket.packets_out.saturating_sub(segs);
            socket.bytes_acked += Bytes(acked.into());
        } else if self.sent + self.again > 0 {
            let payload = self.sent + self.again;
            segment.what = What::Sent;
            segment.payload = Bytes(payload.into());
            segment.segments = payload.div_ceil(socket.mss);
            segment.segment_size = if payload > socket.mss { socket.mss } else { 0 };
            segment.seq = match self.again {
                0 => socket.snd_nxt,
                _ => socket.snd_una + self.at,
            };
            socket.segs_out += segment.segments;
            if self.again > 0 {
                socket.total_retrans += segment.segments;
            }
            segment.socket = Some(SocketState::from_probe(socket.clone()));
            socket.snd_nxt += self.sent;
            if self.sent > 0 {
                socket.packets_out += segment.segments;
            }
            if !self.sent.is_multiple_of(socket.mss) {
                socket.snd_sml = socket.snd_nxt;
            }
        } else {
            segment.what = What::Wrote;
            segment.socket = Some(SocketState::from_probe(socket.clone()));
        }
        segment
    }
}

fn check(name: &str, case: &Case) -> Result<(), String> {
    let explanations = linerate_explain::explain_trace(&case.trace());
    let explanation = case.expect.of(name, &explanations)?;
    if explanation.doubts.iter().any(|d| d.contains("lacks")) {
        return Err(format!(
            "{name}: the case itself is not whole\n{explanation:#?}"
        ));
    }
    Ok(())
}

#[test]
fn each_case_is_explained_as_expected() {
    common::each_case("trace", 15, check);
}
