//! What the archive's tests share: a directory that goes away, runs to keep, children to kill.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part; a test may panic"
)]

use model::{
    Arrivals, BitRate, BlockOperation, BlockRecord, Bytes, CopyRecord, CpuTimes, Datagrams,
    Direction, Directions, EndRecord, Ended, Fingerprint, Latency, Leg, LineErrors, Nanos, Run,
    Sample, Signature, SocketOptions, Spec, StoreRecord, StreamSample, Traced, Unread, Warning,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory of this test alone, deleted at its end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "linerate-archive-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("runs.db")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Names the archive to a test that is run again as a child.
pub const CHILD: &str = "LINERATE_TEST_ARCHIVE";

/// The archive to use, if this process is such a child.
pub fn in_child() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// This test binary as a child that runs only `test`, on `archive`.
pub fn child(test: &str, archive: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, archive);
    command
}

/// Waits until it is so; panics after long.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn spec() -> Spec {
    Spec {
        directions: Directions::UpThenDown,
        interval: Nanos::from_millis(10),
        ..Spec::default()
    }
}

/// A run as it begins.
pub fn begun(id: &str, host: &str, started: Nanos) -> Run {
    Run {
        id: id.to_owned(),
        started,
        host: host.to_owned(),
        spec: spec(),
        ..Run::default()
    }
}

/// The nth sample of a leg that moves 1 GB a second, read every 10 ms.
pub fn sample(n: u64) -> Sample {
    Sample {
        at: Nanos::from_millis(10 * n),
        bytes: Bytes(10_000_000 * n),
        streams: vec![StreamSample {
            stream: 0,
            bytes: Bytes(10_000_000 * n),
            tcp: Some(model::socket_state! {
                srtt: Some(Nanos(1_000_000 + n)),
                min_rtt: Some(Nanos(900_000)),
            }),
            ..StreamSample::default()
        }],
        cpu: CpuTimes {
            process_user: Nanos(n),
            ..CpuTimes::default()
        },
        requests: None,
        datagrams: None,
    }
}

/// One end of a leg with this many samples.
pub fn end(samples: u64) -> EndRecord {
    let samples: Vec<Sample> = (0..samples).map(sample).collect();
    let last = samples.last().cloned().unwrap_or_default();
    EndRecord {
        acknowledged: Some(Nanos(5)),
        sockets: vec![SocketOptions {
            stream: 0,
            local: "[::1]:1".parse().unwrap(),
            remote: "127.0.0.1:2".parse().unwrap(),
            send_buffer: Bytes(1 << 20),
            receive_buffer: Bytes(1 << 21),
            mss: 1448,
            congestion: "cubic".to_owned(),
            nodelay: false,
            pacing: Some(BitRate(7)),
            dscp: 46,
            notsent_lowat: Some(Bytes(131_072)),
            snd_wscale: Some(7),
            rcv_wscale: Some(9),
        }],
        bytes: last.bytes,
        duration: last.at,
        samples,
        thinned_from: None,
        requests: None,
        operations: vec![BlockRecord {
            operation: BlockOperation::Read,
            latency: Latency::from_counts([(7, 2)]),
            data: Bytes(8192),
            call_send: Nanos(1),
            waited: Nanos(2),
            reply_send: Nanos(3),
            at_server: None,
        }],
        store: Some(StoreRecord {
            blocks: 3,
            ..StoreRecord::default()
        }),
        retransmits: Some(3),
        datagrams: Some(Datagrams {
            packets: 9,
            lost: 1,
            out_of_order: 2,
            jitter: Nanos(3),
        }),
        arrivals: Some(Arrivals {
            received: 8,
            delay_variation: Latency::from_counts([(7, 8)]),
            ..Arrivals::default()
        }),
        copy: Some(CopyRecord {
            hash: "0123".to_owned(),
            verified: Some(true),
            cached_before_share: Some(0.5),
            ..CopyRecord::default()
        }),
        line: Some(LineErrors {
            device: "eth0".to_owned(),
            damaged: 1,
            collisions: 2,
            late_collisions: 3,
        }),
        signed: Some(Signature {
            key: "00ff".to_owned(),
            at: Nanos(7),
            ..Signature::default()
        }),
        trace: Some(Traced {
            events: 7,
            span: Nanos(5),
            cut: true,
            ..Traced::default()
        }),
        warnings: vec![Warning {
            what: "a".to_owned(),
            meaning: "b".to_owned(),
            remedy: "c".to_owned(),
        }],
    }
}

pub fn leg(direction: Direction, local: u64, remote: u64) -> Leg {
    Leg {
        direction,
        started: Nanos::from_secs(1),
        local: end(local),
        remote: end(remote),
        ended: Ended::Complete,
    }
}

/// A whole run with two legs.
pub fn complete(id: &str, host: &str, started: Nanos) -> Run {
    let mut run = begun(id, host, started);
    run.title = Some("before the change".to_owned());
    run.remote = Some(Fingerprint {
        kernel: "Linux 6.12".to_owned(),
        unread: vec![Unread {
            what: "qdisc".to_owned(),
            why: "no right".to_owned(),
        }],
        ..Fingerprint::default()
    });
    run.legs = vec![leg(Direction::Up, 30, 20), leg(Direction::Down, 20, 30)];
    run.legs[1].local.requests = Some(Latency::from_counts([(41_000, 9), (90_000, 1)]));
    run.ended = Ended::Complete;
    run
}
