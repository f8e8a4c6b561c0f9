//! `linerate prove --from`: numbers of somebody else, as a user meets it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Home, one_line, run, stderr, stdout};
use serde_json::Value;
use std::process::Output;

const TABLES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../pure/prove/tests/published/"
);

fn from(home: &Home, sources: &[&str]) -> Output {
    let args = [&["prove", "--from"], sources].concat();
    run(&mut home.linerate(&args))
}

/// What iperf3 -J prints of a run of ten seconds.
fn iperf3(home: &Home, name: &str, mbit: f64) -> String {
    let sum = format!(
        r#"{{"seconds": 10, "bytes": {}, "sender": true}}"#,
        (mbit * 1.25e6) as u64
    );
    let text = format!(
        r#"{{"start": {{"cookie": "{name}", "test_start": {{"protocol": "TCP", "duration": 10, "num_streams": 1}}}},
            "intervals": [], "end": {{"sum_sent": {sum}, "sum_received": {sum}}}}}"#
    );
    let path = home.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn published_tables_are_doubted() {
    let home = Home::new();
    for (table, words) in [
        ("lan_mtu_afp.csv", "swapped"),
        ("lan_mac_iperf2.csv", "in force it would print 8.00 MByte"),
        ("virtio_cloud.csv", "after the 64k cell of test 2"),
    ] {
        let out = from(&home, &[&format!("{TABLES}{table}")]);
        assert_eq!(out.status.code(), Some(13), "{}", stderr(&out));
        let text = stdout(&out);
        let joined = one_line(&text);
        assert!(
            joined.contains("NO VERDICT") && joined.contains(words),
            "{text}"
        );
        assert!(
            !joined.contains("FASTER") && !joined.contains("no effect"),
            "{text}"
        );
    }
}

#[test]
fn iperf3s_runs_are_compared_by_arm() {
    let home = Home::new();
    let arm = |name: &str, mbit: f64| {
        let files: Vec<String> = [0.0, 3.0, 1.0, 4.0, 2.0]
            .iter()
            .map(|noise| iperf3(&home, &format!("{name}{noise}.json"), mbit + noise))
            .collect();
        format!("{name}={}", files.join(","))
    };
    let (slow, fast) = (arm("cubic", 100.0), arm("bbr", 130.0));
    let out = from(&home, &[&slow, &fast]);
    let text = stdout(&out);
    assert_eq!(out.status.code(), Some(0), "{text}{}", stderr(&out));
    assert!(
        text.contains("FASTER. A typical run was 29 % faster"),
        "{text}"
    );
    assert!(
        text.contains("All runs of one arm stand before all of the next"),
        "{text}"
    );
    let out = from(&home, &[&fast, &slow, "--json"]);
    assert_eq!(out.status.code(), Some(10));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["comparisons"][0]["runs"], serde_json::json!([5, 5]));
    assert_eq!(json["comparisons"][0]["outcome"], "slower");
}

#[test]
fn what_cannot_be_judged_is_said_in_a_sentence() {
    let home = Home::new();
    let one = iperf3(&home, "one.json", 100.0);
    let table = home.path().join("odd.csv");
    std::fs::write(&table, "speed\n1\n").unwrap();
    for (sources, words) in [
        (
            vec!["nowhere.csv".to_owned()],
            "cannot judge nowhere.csv: No such file",
        ),
        (
            vec![table.to_str().unwrap().to_owned()],
            "its columns (speed) are of no kind",
        ),
        (vec![format!("a={one}")], "two arms are needed"),
        (
            vec![format!("a={one}"), format!("b={one}")],
            "is given twice (a, b)",
        ),
        (
            vec![format!("a={one}"), "b".to_owned()],
            "'b' is not an arm",
        ),
        (
            vec![format!("a={one}"), "b=".to_owned()],
            "the arm 'b' has no runs",
        ),
    ] {
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        let out = from(&home, &sources);
        assert_eq!(out.status.code(), Some(2), "{sources:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(words), "{}", stderr(&out));
    }
}
