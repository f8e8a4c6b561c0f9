//! Options of `measure` have an effect: each is given to a run on this machine, whose document shows it. Which options a
//! workload does not use, and that they are refused, is in `docs/options.md`.

use crate::common::{Home, json};
use serde_json::Value;

fn measure(home: &Home, args: &[&str]) -> Value {
    let mut all = vec!["measure", "local", "--up", "-q", "--json"];
    all.extend(args);
    json(&mut home.linerate(&all))
}

fn number(run: &Value, pointer: &str) -> u64 {
    let value = run.pointer(pointer);
    value
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("{pointer}: {value:?}"))
}

/// Bytes that reached the receiver, divided by the time: what the kernel paced is bounded from above whatever the
/// machine does.
#[test]
fn a_rate_limits_bulk_and_copies() {
    let home = Home::new();
    for workload in [&["--workload", "bulk"][..], &["--workload", "copy"]] {
        for option in ["--rate", "--pacing"] {
            let run = measure(&home, &[workload, &["-n", "4M", option, "100M"]].concat());
            let rate = number(&run, "/summary/legs/0/goodput_bit_s");
            assert!(rate < 130_000_000, "{workload:?} {option}: {rate}");
            assert_eq!(
                number(&run, "/legs/0/local/sockets/0/pacing_bit_s"),
                100_000_000
            );
        }
    }
}

#[test]
fn what_is_ordered_reaches_the_sockets_and_the_load() {
    let home = Home::new();
    let file = home.path().join("file");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let file = file.to_str().unwrap();
    let copied = home.path().join("copied");
    let copied = copied.to_str().unwrap();
    let socket = "/legs/0/local/sockets/0";
    let order = "/spec/workload";
    let cases: &[(&[&str], &str, Value)] = &[
        (
            &["-n", "64K", "-C", "reno"],
            &format!("{socket}/congestion"),
            "reno".into(),
        ),
        (
            &["-n", "64K", "--dscp", "8"],
            &format!("{socket}/dscp"),
            8.into(),
        ),
        (
            &["-n", "64K", "-N"],
            &format!("{socket}/nodelay"),
            true.into(),
        ),
        (
            &["-n", "64K", "-w", "64K"],
            &format!("{socket}/send_buffer"),
            (128 << 10).into(),
        ),
        (
            &["-n", "64K", "--send-buffer", "64K"],
            &format!("{socket}/send_buffer"),
            (128 << 10).into(),
        ),
        (
            &["-n", "64K", "--receive-buffer", "64K"],
            "/legs/0/remote/sockets/0/receive_buffer",
            (128 << 10).into(),
        ),
        (
            &["-n", "64K", "--notsent-lowat", "16K"],
            &format!("{socket}/notsent_lowat"),
            (16 << 10).into(),
        ),
        (
            &["-n", "64K", "-P", "3"],
            "/legs/0/local/sockets/2/stream",
            2.into(),
        ),
        (&["-n", "64K"], "/legs/0/remote/bytes", (64 << 10).into()),
        (
            &["-n", "64K", "--discard"],
            "/summary/legs/0/discarded",
            true.into(),
        ),
        (
            &["-n", "64K", "-l", "1000"],
            &format!("{order}/write_size"),
            1000.into(),
        ),
        (
            &["-n", "64K", "--zerocopy"],
            &format!("{order}/zerocopy"),
            true.into(),
        ),
        (&["-n", "64K", "--title", "x"], "/title", "x".into()),
        (
            &["--workload", "request", "--requests", "7"],
            "/summary/legs/0/requests/count",
            7.into(),
        ),
        (
            &[
                "--workload",
                "request",
                "--requests",
                "7",
                "--request-size",
                "500",
            ],
            "/legs/0/local/bytes",
            3500.into(),
        ),
        (
            &[
                "--workload",
                "request",
                "--requests",
                "7",
                "--reply-size",
                "9",
            ],
            &format!("{order}/reply_size"),
            9.into(),
        ),
        (
            &["--workload", "request", "--requests", "7", "--reconnect"],
            &format!("{order}/reconnect"),
            true.into(),
        ),
        (
            &[
                "--workload",
                "request",
                "--requests",
                "7",
                "--wait",
                "block",
            ],
            &format!("{order}/wait"),
            "block".into(),
        ),
        (
            &["--workload", "copy", "--from", file, "--to", copied],
            "/legs/0/remote/copy/kept",
            true.into(),
        ),
        (
            &[
                "--workload",
                "copy",
                "--from",
                file,
                "--to",
                copied,
                "--no-keep",
            ],
            "/legs/0/remote/copy/kept",
            false.into(),
        ),
        (
            &["--workload", "copy", "--from", file, "--cache", "hot"],
            "/legs/0/local/copy/cached_before_share",
            1.0.into(),
        ),
        (
            &["--workload", "copy", "--from", file, "--direct"],
            &format!("{order}/direct"),
            true.into(),
        ),
        (
            &["--workload", "blocks", "--requests", "6", "--block", "4K"],
            "/spec/workload/block",
            (4 << 10).into(),
        ),
        (
            &["--workload", "blocks", "--requests", "6", "--mix", "write"],
            "/legs/0/local/operations/0/operation",
            "write".into(),
        ),
        (
            &["--workload", "blocks", "--requests", "6", "--depth", "3"],
            &format!("{order}/depth"),
            3.into(),
        ),
        (
            &[
                "--workload",
                "blocks",
                "--requests",
                "6",
                "--random",
                "--seed",
                "5",
            ],
            &format!("{order}/seed"),
            5.into(),
        ),
        (
            &["--workload", "blocks", "--requests", "6", "--store", file],
            "/legs/0/remote/store/blocks",
            128.into(),
        ),
    ];
    for (args, pointer, expected) in cases {
        let _ = std::fs::remove_file(copied);
        let run = measure(&home, args);
        assert_eq!(run.pointer(pointer), Some(expected), "{args:?}: {pointer}");
    }
}

/// Paced requests leave when they are due: 20 of them at 200 a second take 95 ms at least.
#[test]
fn a_pace_spreads_requests() {
    let home = Home::new();
    let args = ["--workload", "request", "--requests", "20", "--pace", "200"];
    let run = measure(&home, &args);
    let took = number(&run, "/legs/0/local/duration_ns");
    assert!(took >= 90_000_000, "{took}");
}
