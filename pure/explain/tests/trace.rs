//! Traces in a few lines and what is to be found of them. `cases/trace/*.toml`: steps, repeated.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

mod common;

use common::Expect;
use model::segment::tcp_state;
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
    /// Bytes sent again, from `at` bytes behind the oldest.
    again: u32,
    at: u32,
    /// Bytes newly acknowledged; zero is a duplicate acknowledgement.
    acked: Option<u32>,
}

const MSS: u32 = 1448;

fn set(tcb: &mut Tcb, name: &str, value: i64) {
    let n = u64::try_from(value).unwrap();
    match name {
        "state" => tcb.state = n as u8,
        "ca_state" => tcb.ca_state = n as u8,
        "cwnd" => tcb.cwnd = n as u32,
        "ssthresh" => tcb.ssthresh = n as u32,
        "window" => tcb.snd_wnd = Bytes(n),
        "retransmits" => tcb.retransmits = n as u8,
        "timer" => tcb.timer = n as u8,
        "no_space" => tcb.no_space = n > 0,
        "chrono" => tcb.chrono = n as u8,
        "nonagle" => tcb.nonagle = n as u8,
        "lost_out" => tcb.lost_out = n as u32,
        "sacked_out" => tcb.sacked_out = n as u32,
        "pacing_status" => tcb.pacing_status = n as u8,
        "pacing_mbit" => tcb.pacing_rate = Some(BitRate(n * 1_000_000)),
        "app_limited" => tcb.app_limited = n as u32,
        "wmem_alloc" => tcb.wmem_alloc = Bytes(n),
        "srtt_us" => tcb.srtt = Nanos(n * 1000),
        "dsacks" => tcb.dsack_dups = n as u32,
        "reord_seen" => tcb.reord_seen = n as u32,
        "delivered_ce" => tcb.delivered_ce = n as u32,
        "mss" => tcb.mss = n as u32,
        _ => panic!("no such field: {name}"),
    }
}

impl Case {
    fn trace(&self) -> Trace {
        let srtt = Nanos(self.rtt_us * 1000);
        let mut tcb = Tcb {
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
            ..Tcb::default()
        };
        for (name, value) in &self.start {
            set(&mut tcb, name, *value);
        }
        let mut segments = vec![Segment {
            what: What::Wrote,
            tcb: Some(tcb.clone()),
            ..Segment::default()
        }];
        let mut at = Nanos(0);
        for part in &self.loops {
            for _ in 0..part.times {
                for step in &part.step {
                    for _ in 0..step.repeat.max(1) {
                        at += Nanos(step.after_us * 1000);
                        segments.push(step.event(at, &mut tcb));
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
    fn event(&self, at: Nanos, tcb: &mut Tcb) -> Segment {
        for (name, value) in &self.set {
            set(tcb, name, *value);
        }
        tcb.write_seq += self.wrote;
        let mut segment = Segment {
            at,
            ..Segment::default()
        };
        if let Some(acked) = self.acked {
            segment.what = What::Received;
            segment.tcb = Some(tcb.clone());
            tcb.segs_in += 1;
            segment.segments = 1;
            tcb.snd_una += acked;
            let segs = acked.div_ceil(MSS);
            tcb.delivered += segs;
            tcb.packets_out = tcb.packets_out.saturating_sub(segs);
            tcb.bytes_acked += Bytes(acked.into());
        } else if self.sent + self.again > 0 {
            let payload = self.sent + self.again;
            segment.what = What::Sent;
            segment.payload = Bytes(payload.into());
            segment.segments = payload.div_ceil(tcb.mss);
            segment.segment_size = if payload > tcb.mss { tcb.mss } else { 0 };
            segment.seq = match self.again {
                0 => tcb.snd_nxt,
                _ => tcb.snd_una + self.at,
            };
            tcb.segs_out += segment.segments;
            if self.again > 0 {
                tcb.total_retrans += segment.segments;
            }
            segment.tcb = Some(tcb.clone());
            tcb.snd_nxt += self.sent;
            if self.sent > 0 {
                tcb.packets_out += segment.segments;
            }
            if !self.sent.is_multiple_of(tcb.mss) {
                tcb.snd_sml = tcb.snd_nxt;
            }
        } else {
            segment.what = What::Wrote;
            segment.tcb = Some(tcb.clone());
        }
        segment
    }
}

fn check(name: &str, case: &Case) -> Result<(), String> {
    let told = linerate_explain::explain_trace(&case.trace());
    let told = case.expect.of(name, &told)?;
    if told.doubts.iter().any(|d| d.contains("lacks")) {
        return Err(format!("{name}: the case itself is not whole\n{told:#?}"));
    }
    Ok(())
}

#[test]
fn each_case_is_explained_as_expected() {
    common::each_case("trace", 15, check);
}
