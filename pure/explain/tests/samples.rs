//! Runs in a few lines and their expected findings: a clear case, a near miss and an innocent one for
//! each limit that samples show. `cases/samples/*.toml`.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

mod common;

use common::Expect;
use model::*;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Why it is here.
    #[allow(dead_code, reason = "for the reader")]
    about: String,
    #[serde(default = "cubic")]
    congestion: String,
    #[serde(default = "hundred")]
    every_ms: u64,
    rtt_ms: f64,
    #[serde(default)]
    requests: bool,
    /// Of their replies; otherwise 128 bytes.
    reply_kib: Option<u64>,
    /// A copy from file to file: shares of the time that its storage worked, and that the network waited for it.
    copy: Option<Storage>,
    pacing_mbit: Option<u64>,
    link_mbit: Option<u64>,
    duplex: Option<String>,
    sender_line: Option<LineErrors>,
    receiver_line: Option<LineErrors>,
    #[serde(default)]
    receive_buffer_kib: Option<u64>,
    #[serde(default)]
    send_buffer_kib: Option<u64>,
    /// Processors that each process uses, and the load of its host.
    #[serde(default)]
    sender_load: [f64; 2],
    #[serde(default)]
    receiver_load: [f64; 2],
    /// One kernel has both ends.
    #[serde(default)]
    one_machine: bool,
    phase: Vec<Phase>,
    expect: Expect,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct Storage {
    source: f64,
    for_source: f64,
    sink: f64,
    for_sink: f64,
}

impl Storage {
    fn record(self, sends: bool, span: Nanos) -> CopyRecord {
        let part = |share: f64| Nanos((span.0 as f64 * share) as u64);
        let (working, ring_full, ring_empty) = match sends {
            true => (self.source, 1.0 - self.source, self.for_source),
            false => (self.sink, self.for_sink, 1.0 - self.sink),
        };
        CopyRecord {
            span,
            transfer: span,
            working: part(working),
            ring_full: part(ring_full),
            ring_empty: part(ring_empty),
            ..CopyRecord::default()
        }
    }
}

fn cubic() -> String {
    "cubic".to_owned()
}

fn hundred() -> u64 {
    100
}

/// A figure, or several that follow each other from sample to sample, again and again.
#[derive(Deserialize, Clone)]
#[serde(untagged)]
enum Figure {
    One(f64),
    Many(Vec<f64>),
}

impl Figure {
    fn at(&self, n: usize) -> f64 {
        match self {
            Figure::One(value) => *value,
            Figure::Many(values) => values[n % values.len()],
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Phase {
    seconds: f64,
    mbit: Figure,
    srtt_ms: Option<Figure>,
    cwnd: Figure,
    ssthresh: f64,
    /// Segments; the congestion window without.
    flight: Option<Figure>,
    window_kib: Figure,
    unsent_kib: f64,
    /// Shares of the time, as the kernel counts them.
    rwnd: f64,
    sndbuf: f64,
    busy: f64,
    /// A sample.
    retrans: Figure,
    timeouts: Figure,
    dsacks: Figure,
    reorder: Figure,
    marks: Figure,
    ca_state: Figure,
    app_limited: bool,
    rto_ms: f64,
}

impl Default for Phase {
    fn default() -> Phase {
        let zero = || Figure::One(0.0);
        Phase {
            seconds: 10.0,
            mbit: Figure::One(100.0),
            srtt_ms: None,
            cwnd: Figure::One(500.0),
            ssthresh: 100.0,
            flight: None,
            window_kib: Figure::One(6144.0),
            unsent_kib: 512.0,
            rwnd: 0.0,
            sndbuf: 0.0,
            busy: 1.0,
            retrans: zero(),
            timeouts: zero(),
            dsacks: zero(),
            reorder: zero(),
            marks: zero(),
            ca_state: zero(),
            app_limited: false,
            rto_ms: 250.0,
        }
    }
}

const MSS: u32 = 1448;

impl Case {
    fn run(&self) -> Run {
        let end = |sends: bool| self.end(sends);
        let (local, remote) = (end(true), end(false));
        let boot_id = self.one_machine.then(|| "one".to_owned());
        Run {
            host: "remote".to_owned(),
            spec: Spec {
                workload: if self.copy.is_some() {
                    Workload::Copy(FileCopy {
                        from: Some("a".to_owned()),
                        to: Some("b".to_owned()),
                        ..FileCopy::default()
                    })
                } else if self.requests {
                    Workload::Request(Request {
                        request_size: Bytes(128),
                        reply_size: Bytes(self.reply_kib.map_or(128, |kib| kib << 10)),
                        pace_per_s: None,
                        reconnect: false,
                        wait: WaitMode::Block,
                    })
                } else {
                    Workload::Bulk(Bulk::default())
                },
                interval: Nanos::from_millis(self.every_ms),
                ..Spec::default()
            },
            local: Fingerprint {
                device: Some(Device {
                    name: "eth0".to_owned(),
                    speed: self.link_mbit.map(|m| BitRate(m * 1_000_000)),
                    duplex: self.duplex.clone(),
                    ..Device::default()
                }),
                boot_id: boot_id.clone(),
                ..Fingerprint::default()
            },
            remote: self.one_machine.then(|| Fingerprint {
                boot_id,
                ..Fingerprint::default()
            }),
            legs: vec![Leg {
                direction: Direction::Up,
                started: Nanos(0),
                local,
                remote,
                ended: Ended::Complete,
            }],
            ended: Ended::Complete,
            ..Run::default()
        }
    }

    fn end(&self, sends: bool) -> EndRecord {
        let mut tcp = model::socket_state! {
            state: Some(1),
            mss: Some(MSS),
            srtt: Some(ms(self.rtt_ms)),
            min_rtt: Some(ms(self.rtt_ms)),
            ssthresh: Some(i32::MAX as u32),
            cwnd: Some(10),
            bytes_acked: Some(Bytes(0)),
            data_segs_out: Some(0),
            busy: Some(Nanos(0)),
            rwnd_limited: Some(Nanos(0)),
            sndbuf_limited: Some(Nanos(0)),
            dsack_dups: Some(0),
            reord_seen: Some(0),
            delivered_ce: Some(0),
            total_rto: Some(0),
            notsent_bytes: Some(Bytes(0)),
            snd_wnd: Some(Bytes(65535)),
        };
        let mut samples = Vec::new();
        let mut at = Nanos(0);
        samples.push(self.sample(at, &tcp, sends));
        let step = self.every_ms as f64 / 1e3;
        let mut n = 0;
        for phase in &self.phase {
            for _ in 0..(phase.seconds / step).round() as usize {
                at += Nanos::from_millis(self.every_ms);
                phase.advance(&mut tcp, n, step, self.rtt_ms);
                samples.push(self.sample(at, &tcp, sends));
                n += 1;
            }
        }
        EndRecord {
            sockets: vec![SocketOptions {
                stream: 0,
                local: ([192, 0, 2, 1], 40000).into(),
                remote: ([192, 0, 2, 2], 5210).into(),
                send_buffer: Bytes(0),
                receive_buffer: Bytes(0),
                mss: MSS,
                congestion: self.congestion.clone(),
                nodelay: false,
                pacing: self.pacing_mbit.map(|m| BitRate(m * 1_000_000)),
                dscp: 0,
                notsent_lowat: None,
                snd_wscale: None,
                rcv_wscale: None,
            }],
            bytes: tcp.bytes_acked().unwrap(),
            duration: at,
            samples,
            copy: self.copy.map(|copy| copy.record(sends, at)),
            line: match sends {
                true => self.sender_line.clone(),
                false => self.receiver_line.clone(),
            },
            ..EndRecord::default()
        }
    }

    fn sample(&self, at: Nanos, tcp: &SocketState, sends: bool) -> Sample {
        let [process, host] = if sends {
            self.sender_load
        } else {
            self.receiver_load
        };
        let part = |share: f64| Nanos((at.0 as f64 * share) as u64);
        Sample {
            at,
            bytes: tcp.bytes_acked().unwrap(),
            streams: vec![StreamSample {
                stream: 0,
                bytes: tcp.bytes_acked().unwrap(),
                tcp: Some(tcp.clone()),
                send_buffer: self.send_buffer_kib.map(|k| Bytes(k << 10)),
                receive_buffer: self.receive_buffer_kib.map(|k| Bytes(k << 10)),
            }],
            cpu: CpuTimes {
                process_system: part(process),
                host_busy: part(host * 2.0),
                host_total: part(2.0),
                ..CpuTimes::default()
            },
            requests: None,
            datagrams: None,
        }
    }
}

impl Phase {
    fn advance(&self, tcp: &mut SocketState, n: usize, step: f64, rtt_ms: f64) {
        let moved = (self.mbit.at(n) * 125_000.0 * step) as u64;
        let time =
            |of: Option<Nanos>, share: f64| of.map(|t| t + Nanos((step * share * 1e9) as u64));
        let count = |of: Option<u32>, more: f64| of.map(|c| c + more as u32);
        let resent = self.retrans.at(n);
        let sent = moved as f64 / f64::from(MSS) + resent;
        let flight = self.flight.as_ref().unwrap_or(&self.cwnd).at(n);
        *tcp = socket_state! {
            from tcp.clone();
            busy: time(tcp.busy(), self.busy),
            rwnd_limited: time(tcp.rwnd_limited(), self.rwnd),
            sndbuf_limited: time(tcp.sndbuf_limited(), self.sndbuf),
            bytes_acked: tcp.bytes_acked().map(|b| b + Bytes(moved)),
            data_segs_out: count(tcp.data_segs_out(), sent),
            total_retrans: Some(tcp.total_retrans().unwrap_or(0) + resent as u32),
            total_rto: tcp.total_rto().map(|c| c + self.timeouts.at(n) as u16),
            dsack_dups: count(tcp.dsack_dups(), self.dsacks.at(n)),
            reord_seen: count(tcp.reord_seen(), self.reorder.at(n)),
            delivered_ce: count(tcp.delivered_ce(), self.marks.at(n)),
            srtt: Some(ms(self.srtt_ms.as_ref().map_or(rtt_ms, |f| f.at(n)))),
            rto: Some(ms(self.rto_ms)),
            cwnd: Some(self.cwnd.at(n) as u32),
            ssthresh: Some(self.ssthresh as u32),
            packets_out: Some(flight as u32),
            sacked_out: Some(0),
            lost_out: Some(0),
            retrans_out: Some(0),
            notsent_bytes: Some(Bytes((self.unsent_kib * 1024.0) as u64)),
            snd_wnd: Some(Bytes((self.window_kib.at(n) * 1024.0) as u64)),
            ca_state: Some(self.ca_state.at(n) as u8),
            delivery_rate_app_limited: Some(self.app_limited),
        };
    }
}

fn ms(ms: f64) -> Nanos {
    Nanos((ms * 1e6) as u64)
}

fn check(name: &str, case: &Case) -> Result<(), String> {
    let explanations = linerate_explain::explain(&case.run());
    let explanation = case.expect.of(name, &explanations)?;
    let again: f64 = case.phase.iter().map(|phase| phase.retrans.at(0)).sum();
    let of_loss = explanation.cause().is_some_and(|limit| {
        use model::finding::Limit::{BottleneckRate, Bufferbloat, BurstLoss, Policer, RandomLoss};
        [BottleneckRate, Bufferbloat, BurstLoss, Policer, RandomLoss].contains(&limit)
    });
    if case.every_ms > 100 && again > 0.0 && of_loss && explanation.is_confident() {
        return Err(format!(
            "{name}: claims a cause of losses that it cannot place\n{explanation:#?}"
        ));
    }
    let total: u64 = explanation.phases.iter().map(|p| p.to.0 - p.from.0).sum();
    if total != explanation.span.0 {
        return Err(format!(
            "{name}: the time line covers {total} of {}\n{explanation:#?}",
            explanation.span.0
        ));
    }
    Ok(())
}

#[test]
fn each_case_is_explained_as_expected() {
    common::each_case("samples", 20, check);
}
