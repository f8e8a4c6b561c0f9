//! A bare pair of ends for tuning, without a control connection or samples:
//! `load serve ADDRESS [discard]`, `load bulk ADDRESS STREAMS SECONDS`, `load answer ADDRESS WAIT`,
//! `load ask ADDRESS WAIT SECONDS`.

#![expect(clippy::unwrap_used, reason = "a tool for one's own bench")]

use linerate_measure::{Job, Load, Outcome, Role, connect, listen};
use model::{Bulk, Bytes, Limit, Nanos, Placement, Request, SocketSettings, Wait, Workload};
use std::net::TcpStream;
use std::time::Duration;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |i: usize| args.get(i).map_or("", String::as_str);
    let wait = if arg(2) == "block" {
        Wait::Block
    } else {
        Wait::Hybrid
    };
    let request = Workload::Request(Request {
        request_size: Bytes(64),
        reply_size: Bytes(64),
        pace_per_s: None,
        reconnect: false,
        wait,
    });
    let bulk = Workload::Bulk(Bulk {
        discard: arg(3) == "discard",
        ..Bulk::default()
    });
    let seconds = |i: usize| {
        Limit::Time(Nanos::from_millis(
            (arg(i).parse::<f64>().unwrap() * 1e3) as u64,
        ))
    };
    let streams = || arg(2).parse().unwrap();
    let forever = Limit::Bytes(Bytes(u64::MAX));
    let outcome = match arg(0) {
        "serve" => run(Role::Receive, bulk, forever, accepted(arg(1), streams())),
        "bulk" => run(Role::Send, bulk, seconds(3), connected(arg(1), streams())),
        "answer" => run(Role::Answer, request, forever, accepted(arg(1), 1)),
        "ask" => run(Role::Ask, request, seconds(3), connected(arg(1), 1)),
        other => panic!("what is {other}?"),
    };
    let bytes: Bytes = outcome.bytes.iter().copied().sum();
    let cpu = cpu_s();
    println!(
        "{} {:.2} Gbit/s {:.3} CPU-s/GB {:.2} CPU-s",
        arg(0),
        bytes.per(outcome.duration).0 as f64 / 1e9,
        cpu / (bytes.0 as f64 / 1e9),
        cpu
    );
    if let Some(latency) = outcome.requests {
        println!(
            "{:.0}/s p50 {} p99 {} max {}",
            latency.count() as f64 / outcome.duration.as_secs_f64(),
            latency.percentile(0.5).unwrap(),
            latency.percentile(0.99).unwrap(),
            latency.max().unwrap()
        );
    }
    outcome.errors.iter().for_each(|e| println!("{}", e.what));
    outcome.warnings.iter().for_each(|w| println!("{}", w.what));
}

fn run(role: Role, workload: Workload, limit: Limit, sockets: Vec<TcpStream>) -> Outcome {
    Load::start(Job::new(role, workload, limit), sockets)
        .unwrap()
        .finish()
}

fn accepted(address: &str, streams: usize) -> Vec<TcpStream> {
    let settings = SocketSettings::default();
    let listener = listen(address.parse().unwrap(), &settings, &Placement::default()).unwrap();
    (0..streams).map(|_| listener.accept().unwrap().0).collect()
}

fn connected(address: &str, streams: usize) -> Vec<TcpStream> {
    let settings = SocketSettings::default();
    let open = |_| {
        connect(
            address.parse().unwrap(),
            &settings,
            &Placement::default(),
            Duration::from_secs(5),
        )
        .unwrap()
    };
    (0..streams).map(open).collect()
}

/// User and system time of this process, in clock ticks of a hundredth (proc(5)).
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks: Vec<f64> = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|t| t.parse().unwrap())
        .collect();
    ticks.iter().sum::<f64>() / 100.0
}
