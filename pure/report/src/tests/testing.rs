//! Runs for the tests: a path of known figures, sampled once a second for ten seconds.

use model::finding::{
    Conclusion, Confidence, Decider, Evidence, EvidenceKey, Explanation, Finding, Glance, Level,
    Limit, Phase, Remedy, Share, SocketAccount, SocketGroup, Source,
};
use model::request::{
    Call, Cause, Causes, Links, Moment, Operation, Parts, REQUESTS_SCHEMA, Requests, Step,
    Viewpoint,
};
use model::*;

/// What one direction of a made-up path does.
#[derive(Clone, Copy)]
pub struct TestDirection {
    pub mbit: u64,
    pub idle: Nanos,
    pub loaded: Nanos,
    /// Segments retransmitted each second.
    pub retransmits: u32,
    pub cwnd: u32,
    pub window: Bytes,
    pub rwnd_limited: f64,
    pub sndbuf_limited: f64,
}

/// A quiet gigabit LAN.
pub const LAN: TestDirection = TestDirection {
    mbit: 943,
    idle: Nanos(212_000),
    loaded: Nanos(1_900_000),
    retransmits: 0,
    cwnd: 410,
    window: Bytes(3 << 20),
    rwnd_limited: 0.0,
    sndbuf_limited: 0.0,
};

/// Berkeley to Chicago with small buffers, in the bad direction: shallow buffers lose bursts.
pub const LOSSY: TestDirection = TestDirection {
    mbit: 62,
    idle: Nanos(52_100_000),
    loaded: Nanos(52_900_000),
    retransmits: 41,
    cwnd: 280,
    window: Bytes(16 << 20),
    ..LAN
};

/// The same path in the good direction, held back by the receive window.
pub const WINDOWED: TestDirection = TestDirection {
    mbit: 850,
    idle: Nanos(52_100_000),
    loaded: Nanos(53_400_000),
    cwnd: 4200,
    window: Bytes(6 << 20),
    rwnd_limited: 0.83,
    sndbuf_limited: 0.11,
    ..LAN
};

pub fn spec() -> Spec {
    Spec {
        directions: Directions::UpThenDown,
        interval: Nanos::from_secs(1),
        ..Spec::default()
    }
}

pub fn host(name: &str) -> Fingerprint {
    Fingerprint {
        linerate: "0.1.0".to_owned(),
        hostname: name.to_owned(),
        kernel: "Linux 6.12.48-amd64".to_owned(),
        architecture: "x86_64".to_owned(),
        distribution: Some("Debian GNU/Linux 13 (trixie)".to_owned()),
        cpu: Cpu {
            model: "AMD EPYC 7313P".to_owned(),
            online: 32,
            governor: Some("performance".to_owned()),
        },
        memory: Some(Bytes(64 << 30)),
        boot_id: Some("6c4d5f3a-0b6e-4c55-9a0e-2f5b7d1c8e90".to_owned()),
        clock_source: Some("tsc".to_owned()),
        device: Some(Device {
            name: "eno1".to_owned(),
            driver: Some("ixgbe".to_owned()),
            speed: Some(BitRate(1_000_000_000)),
            mtu: 1500,
            qdisc: Some("fq_codel".to_owned()),
            ..Device::default()
        }),
        congestion: Some(Congestion {
            default: "cubic".to_owned(),
            available: vec!["reno".to_owned(), "cubic".to_owned()],
        }),
        ..Fingerprint::default()
    }
}

pub fn run(spec: Spec, legs: Vec<Leg>) -> Run {
    Run {
        id: "1a2b3c4d".to_owned(),
        started: Nanos::from_secs(1_795_205_836),
        host: "db1".to_owned(),
        spec,
        local: host("web1"),
        remote: Some(host("db1")),
        legs,
        ended: Ended::Complete,
        ..Run::default()
    }
}

/// A bulk leg; its first second runs at half the rate.
pub fn leg(direction: Direction, way: TestDirection) -> Leg {
    let second = Bytes(way.mbit * 125_000);
    let sent = |s: u64| Bytes(second.0 * s - if s > 0 { second.0 / 2 } else { 0 });
    let end = |sends: bool| EndRecord {
        sockets: vec![socket(if sends { 47_000 } else { 5211 })],
        samples: (0..=10)
            .map(|s| Sample {
                at: Nanos::from_secs(s),
                bytes: sent(s),
                streams: vec![StreamSample {
                    stream: 0,
                    bytes: sent(s),
                    tcp: Some(tcp(way, s, sent(s), sends)),
                    send_buffer: sends.then_some(Bytes(4 << 20)),
                    receive_buffer: (!sends).then_some(Bytes(6 << 20)),
                }],
                cpu: CpuTimes {
                    process_user: Nanos::from_millis(10 * s),
                    process_system: Nanos::from_millis(if sends { 110 } else { 240 } * s),
                    host_busy: Nanos::from_millis(1600 * s),
                    busiest_processor: Some(Nanos::from_millis(900 * s)),
                    host_softirq: Nanos::from_millis(300 * s),
                    host_total: Nanos::from_secs(32 * s),
                    ..CpuTimes::default()
                },
                ..Sample::default()
            })
            .collect(),
        bytes: sent(10),
        duration: Nanos::from_secs(10),
        signed: Some(model::Signature::default()),
        ..EndRecord::default()
    };
    let (local, remote) = match direction {
        Direction::Up => (end(true), end(false)),
        Direction::Down => (end(false), end(true)),
    };
    Leg {
        direction,
        started: Nanos(0),
        local,
        remote,
        ended: Ended::Complete,
    }
}

pub fn socket(port: u16) -> SocketOptions {
    let (local, remote) = (([192, 0, 2, 1], port).into(), ([192, 0, 2, 2], 5211).into());
    SocketOptions {
        send_buffer: Bytes(2_626_560),
        receive_buffer: Bytes(131_072),
        mss: 1448,
        congestion: "cubic".to_owned(),
        snd_wscale: Some(7),
        rcv_wscale: Some(7),
        ..SocketOptions::new(0, local, remote)
    }
}

fn tcp(way: TestDirection, s: u64, sent: Bytes, sends: bool) -> SocketState {
    let busy = Nanos::from_secs(s);
    let share = |of: f64| Some(Nanos((busy.0 as f64 * of) as u64));
    let retransmitted = way.retransmits * s as u32;
    model::socket_state! {
        state: Some(1),
        mss: Some(1448),
        rcv_mss: Some(1448),
        srtt: Some(match (sends, s) {
            (false, _) | (_, 0) => way.idle,
            // The largest once, so that it differs from the median.
            (_, 7) => Nanos(way.loaded.0 * 3 / 2),
            _ => way.loaded,
        }),
        min_rtt: Some(way.idle),
        sack: Some(false),
        ssthresh: Some(0),
        packets_out: Some(0),
        sacked_out: Some(0),
        lost_out: Some(0),
        retrans_out: Some(0),
        total_retrans: Some(if sends { retransmitted } else { 0 }),
        cwnd: Some(way.cwnd),
        snd_wnd: Some(way.window),
        notsent_bytes: Some(Bytes(512 << 10)),
        bytes_acked: Some(if sends { sent } else { Bytes(1) }),
        bytes_sent: Some(sent + Bytes(1448 * u64::from(retransmitted))),
        bytes_retrans: Some(Bytes(1448 * u64::from(retransmitted))),
        busy: Some(busy),
        rwnd_limited: share(way.rwnd_limited),
        sndbuf_limited: share(way.sndbuf_limited),
        delivered_ce: Some(0),
    }
}

/// The request workload, closed loop, one connection.
pub fn request() -> Request {
    Request {
        request_size: Bytes(128),
        reply_size: Bytes(8 << 10),
        pace_per_s: None,
        reconnect: false,
        wait: WaitMode::Hybrid,
    }
}

/// Blocks of an NFS server, two outstanding.
pub fn blocks() -> Blocks {
    Blocks {
        server: BlockServer::Nfs {
            export: "/memory".to_owned(),
            file_size: Bytes(16 << 20),
        },
        block: Bytes(8 << 10),
        depth: 2,
        mix: vec![BlockOperation::Read, BlockOperation::Commit],
        random: true,
        seed: 7,
        wait: WaitMode::Block,
    }
}

/// What its client was answered.
pub fn block_records() -> Vec<BlockRecord> {
    let record = |operation, data, reply_send| BlockRecord {
        operation,
        latency: latencies(5),
        data,
        call_send: Nanos::from_micros(400),
        waited: Nanos::from_micros(3_600),
        reply_send,
        at_server: None,
    };
    vec![
        record(BlockOperation::Commit, Bytes(0), Nanos(0)),
        record(
            BlockOperation::Read,
            Bytes(500 * 8192),
            Nanos::from_millis(1),
        ),
    ]
}

/// The same of the remote host of a measurement.
pub fn peer_blocks() -> Blocks {
    Blocks {
        server: BlockServer::Peer(BlockStore {
            store: Some("/srv/blocks".to_owned()),
            file_size: Some(Bytes(1 << 30)),
            ..BlockStore::default()
        }),
        mix: vec![BlockOperation::Read, BlockOperation::WriteStable],
        ..blocks()
    }
}

/// What its client was answered: reads by the network, stable writes by the storage.
pub fn reported_by_server() -> Vec<BlockRecord> {
    let output = |storage, queued| ServerRecord {
        storage: latencies(5),
        storage_time: Nanos::from_micros(storage),
        queued: Nanos::from_micros(queued),
    };
    let mut all = block_records();
    all[0].operation = BlockOperation::WriteStable;
    all[0].at_server = Some(output(3_000, 400));
    all[1].at_server = Some(output(500, 10));
    all
}

pub fn latencies(times: u64) -> Latency {
    Latency::from_counts([
        (6_600, 90 * times),
        (9_100, 5 * times),
        (21_000, 4 * times),
        (85_000, times - 1),
        (1_230_000, 1),
    ])
}

/// Ten seconds of requests upwards.
pub fn request_leg(times: u64) -> Leg {
    let mut leg = leg(Direction::Up, LAN);
    leg.local.requests = Some(latencies(times));
    for sample in leg.local.samples.iter_mut().skip(1) {
        sample.requests = Some(latencies(times / 10));
        for tcp in sample.streams.iter_mut().filter_map(|s| s.tcp.as_mut()) {
            let min_rtt = Some(Nanos::from_micros(4));
            *tcp = model::socket_state! { from tcp.clone(); min_rtt: min_rtt };
        }
    }
    leg
}

pub fn warning(what: &str, meaning: &str, remedy: &str) -> Warning {
    Warning {
        what: what.to_owned(),
        meaning: meaning.to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// A connection that its receiver holds up just now.
pub fn glance() -> Glance {
    use model::finding::Limit;
    Glance {
        connection: 3,
        local: ([192, 0, 2, 1], 40000).into(),
        remote: ([192, 0, 2, 2], 5201).into(),
        pid: 845,
        comm: Comm::new(b"iperf3"),
        unit: Some("backup.service".to_owned()),
        seen: Nanos::from_secs(12),
        sent: BitRate(94_100_000),
        received: BitRate(0),
        limit: Some(Limit::ReceiveWindow),
        share: 0.974,
        cause: Some(Limit::ReceiveWindow),
        confidence: Some(Confidence::Certain),
        cwnd: Bytes(370 << 10),
        srtt: Nanos::from_micros(20_400),
        min_rtt: Nanos::from_millis(20),
        retransmitted: 2,
        silent: Nanos(0),
    }
}

/// What a watch counted.
pub fn account() -> SocketAccount {
    SocketAccount {
        seen: 7,
        sent: Bytes(1 << 30),
        limited: [(Limit::ReceiveWindow, Nanos::from_secs(3))].into(),
        ..SocketAccount::default()
    }
}

/// A day of which a minute was watched.
pub fn watched_day() -> WatchedDay {
    let begun = Nanos::from_secs(1_800_000_000);
    let now = SocketCounts {
        account: account(),
        groups: vec![SocketGroup {
            peer: "192.0.2.0/24".to_owned(),
            port: 873,
            process: Comm::new(b"rsync"),
            sockets: 7,
            sent: Bytes(1 << 30),
            limited: account().limited,
            ..SocketGroup::default()
        }],
    };
    let minute = WatchedSpan {
        begun,
        watched: Nanos::from_secs(60),
        limited: account().limited,
    };
    let mut day = WatchedDay {
        schema: WATCH_SCHEMA,
        id: "00c0ffee".to_owned(),
        host: "db2".to_owned(),
        started: begun,
        minutes: vec![minute.clone()],
        ..WatchedDay::default()
    };
    day.add(&SocketCounts::default(), &now, &minute);
    day
}

/// A trace that a trigger started.
pub fn watch_trace() -> WatchTrace {
    WatchTrace {
        schema: WATCH_SCHEMA,
        id: "0badcafe".to_owned(),
        host: "db2".to_owned(),
        started: Nanos::from_secs(1_800_000_000),
        trigger: "a stall".to_owned(),
        pid: 845,
        process: Comm::new(b"rsync"),
        local: ([192, 0, 2, 1], 40_000).into(),
        remote: ([192, 0, 2, 2], 873).into(),
        before: Nanos::from_millis(9_800),
        bytes: Bytes(1 << 20),
        found: Some("limited by the receive window.".to_owned()),
        ended: Ended::Complete,
    }
}

/// Two causes that both fit, and the time line of a connection that they held back.
pub fn rivals() -> Explanation {
    use model::finding::Limit;
    let share = |ms: u64, mib: u64| Share {
        time: Nanos::from_millis(ms),
        time_share: ms as f64 / 10_000.0,
        bytes: Bytes(mib << 20),
    };
    let finding = |limit: Limit, share, confidence| Finding {
        limit,
        level: limit.level(),
        share,
        confidence,
        evidence: vec![
            Evidence::new(EvidenceKey::RetransmittedSegments, 160_u64, Source::Samples)
                .of(39_000)
                .at(Nanos::from_millis(1200)),
            Evidence::new(EvidenceKey::RttOverMinRttAtLosses, 1.02, Source::Samples).at_most(1.3),
        ],
        remedies: vec![Remedy {
            words: "a congestion control that does not take every loss for congestion".to_owned(),
            change: Some("congestion=bbr".to_owned()),
        }],
        against: None,
        decider: (limit.level() == Level::Second).then(|| Decider {
            change: "pacing=90000000".to_owned(),
            margin: 0.05,
            faster: vec![Limit::BurstLoss],
            no_difference: vec![Limit::RandomLoss],
            slower: vec![Limit::RandomLoss],
        }),
    };
    let phase = |from, to, limit| Phase {
        from: Nanos::from_millis(from),
        to: Nanos::from_millis(to),
        limit,
        bytes: Bytes(1 << 20),
    };
    Explanation {
        name: "up".to_owned(),
        sender: Some(([192, 0, 2, 1], 40000).into()),
        receiver: Some(([192, 0, 2, 2], 5210).into()),
        direction: Some(Direction::Up),
        source: Source::Samples,
        stream: None,
        span: Nanos::from_secs(10),
        bytes: Bytes(54 << 20),
        conclusion: Conclusion::Limited {
            by: vec![Limit::RandomLoss, Limit::BurstLoss],
        },
        findings: vec![
            finding(Limit::RandomLoss, share(9800, 52), Confidence::Possible),
            finding(Limit::BurstLoss, share(9800, 52), Confidence::Possible),
            finding(
                Limit::CongestionWindow,
                share(7300, 40),
                Confidence::Possible,
            ),
            finding(Limit::LossRecovery, share(2500, 12), Confidence::Certain),
        ],
        ends: Vec::new(),
        phases: vec![
            phase(0, 200, Limit::SlowStart),
            phase(200, 6000, Limit::CongestionWindow),
            phase(6000, 8500, Limit::LossRecovery),
            phase(8500, 10_000, Limit::CongestionWindow),
        ],
        doubts: vec!["samples 1.00 s apart: what happened between them is inferred".to_owned()],
    }
}

/// A comparison of published numbers, with an estimate and a doubt.
pub fn published() -> Published {
    Published {
        name: "table.csv".to_owned(),
        margin_share: 0.05,
        comparisons: vec![PublishedComparison {
            of: String::new(),
            control: "cubic".to_owned(),
            arm: "bbr".to_owned(),
            runs: [8, 8],
            control_value: 100.0,
            arm_value: 112.0,
            unit: "Mbit/s".to_owned(),
            change_share: Some(0.12),
            printed_share: None,
            estimate: Some(Estimate {
                effect_share: 0.12,
                low_share: 0.06,
                high_share: 0.19,
                level: 0.95,
            }),
            paired: false,
            outcome: Outcome::Faster,
        }],
        statistics: [("cubic", 100.0), ("bbr", 112.0)]
            .map(|(arm, typical)| Statistics {
                of: String::new(),
                arm: arm.to_owned(),
                average: Some(typical),
                median: Some(typical),
                min: Some(typical - 9.0),
                max: Some(typical + 5.0),
            })
            .into(),
        doubts: vec![PublishedDoubt {
            about: About::Order,
            words: "The order was not drawn at random, and \x1b[2J is no word.".to_owned(),
        }],
    }
}

/// A request that waited for everything there is, seen from both ends.
pub fn requests() -> Requests {
    let parts = Parts {
        call_send: Nanos(1_200_000),
        forward: Nanos(10_000),
        think: Nanos(190_000),
        reply_send: Nanos(0),
        reverse: Nanos(12_000),
    };
    let mut causes = Causes::default();
    causes.spend(Cause::Retransmission, Nanos(1_100_000));
    causes.spend(Cause::Rate, Nanos(100_000));
    causes.spend(Cause::Think, Nanos(190_000));
    causes.spend(Cause::Path, Nanos(22_000));
    let step = |at: u64, call: bool, bytes: u64, waited| Step {
        at: Nanos(at),
        call,
        bytes: Bytes(bytes),
        segments: if bytes > 1448 { 3 } else { 1 },
        took: Nanos(if bytes > 1448 { 100_000 } else { 0 }),
        waited,
    };
    let call = Call {
        at: Nanos(5_000_000),
        client: ([192, 0, 2, 1], 790).into(),
        server: ([192, 0, 2, 2], 2049).into(),
        operation: "NFSv3 WRITE".to_owned(),
        purpose: "writes data",
        detail: "4096 bytes at 0, may stay in memory".to_owned(),
        call_bytes: Bytes(4248),
        reply_bytes: Bytes(140),
        view: Viewpoint::BothEnds,
        ideal: Nanos(58_000),
        parts,
        causes,
        steps: vec![
            step(0, true, 2896, None),
            step(1_200_000, true, 1352, Some(Cause::Retransmission)),
            step(1_400_000, false, 140, None),
        ],
    };
    Requests {
        schema: REQUESTS_SCHEMA,
        answered: 1,
        unanswered: 0,
        streams: vec![StreamFigures {
            sender: ([192, 0, 2, 1], 40000).into(),
            receiver: ([192, 0, 2, 2], 2049).into(),
            vantage: Vantage::AtSender,
            segments: 9,
            retransmissions: 1,
            needless_retransmissions: 0,
            reordered: 0,
            capture_duplicates: 0,
            unseen: Bytes(0),
            min_rtt: Some(Nanos(180_000)),
            delayed_ack: Nanos(0),
            path: Some(PathFigures {
                lost: Bytes(1448),
                forward_median: Nanos(9_000),
                forward_max: Nanos(90_000),
                reverse_median: Nanos(4_000),
                reverse_max: Nanos(40_000),
                error: Nanos(1_000),
            }),
        }],
        unread: 0,
        clocks: Some(Clocks {
            offset_ns: -1_234_567,
            ahead_ns: Some(-1_234_567),
            drift_ppm: 1.5,
            matched: 12,
            error: Nanos(20_000),
            asymmetry: Nanos(19_000),
            residual: Nanos(1_000),
            step: None,
        }),
        links: Links {
            rate: Some(BitRate(1_000_000_000)),
            hops: 1,
        },
        operations: vec![Operation {
            operation: call.operation.clone(),
            count: 1,
            p50: parts.total(),
            p99: parts.total(),
            max: parts.total(),
            times: Latency::from_counts([(parts.total().0, 1)]),
            call_bytes: call.call_bytes,
            reply_bytes: call.reply_bytes,
            ideal: call.ideal,
            parts,
            causes,
            worst: vec![call.clone()],
        }],
        moments: vec![Moment {
            from: call.at,
            to: call.at + Nanos::from_millis(1),
            times: Latency::from_counts([(parts.total().0, 1)]),
            causes,
        }],
        calls: vec![call],
        doubts: Vec::new(),
    }
}
