//! What is to be found in tables that were published: three that five people's stories came with, and
//! some that are made up.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use model::{About, Outcome, Published};
use prove::published::{Error, of_table};

fn read(text: &str) -> Published {
    of_table("table.csv", text, 0.05).unwrap()
}

/// The words of the doubts of this kind.
#[track_caller]
fn words(of: &Published, about: About) -> String {
    let all: Vec<&str> = of
        .doubts
        .iter()
        .filter(|d| d.about == about)
        .map(|d| d.words.as_str())
        .collect();
    assert!(
        !all.is_empty(),
        "no doubt about {about:?} in {:#?}",
        of.doubts
    );
    all.join("\n")
}

#[track_caller]
fn says(words: &str, parts: &[&str]) {
    for part in parts {
        assert!(words.contains(part), "'{part}' is missing in: {words}");
    }
}

#[test]
fn the_rows_of_the_jumbo_frames_are_swapped() {
    let found = read(include_str!("published/lan_mtu_afp.csv"));
    let derived: Vec<String> = found
        .comparisons
        .iter()
        .map(|c| format!("{:.2}", 100.0 * c.change_share.unwrap()))
        .collect();
    assert_eq!(derived, ["3.31", "0.50", "18.78", "9.65"]);
    assert!(
        found
            .comparisons
            .iter()
            .all(|c| c.outcome == Outcome::NoVerdict && c.estimate.is_none())
    );
    let swapped = words(&found, About::WrongDifference);
    assert_eq!(swapped.lines().count(), 2);
    says(
        &swapped,
        &[
            "table 1, write give +3.31 %",
            "table 1, read give +0.50 %",
            "table 2, write give +18.78 %",
            "swapped",
        ],
    );
    says(&words(&found, About::OneRun), &["no interval exists"]);
    says(
        &words(&found, About::Confounded),
        &["write starts from 87.6 MB/s in table 1 and from 48.3 in table 2"],
    );
}

#[test]
fn the_window_was_the_same_before_and_after() {
    let found = read(include_str!("published/lan_mac_iperf2.csv"));
    let changes: Vec<String> = found
        .comparisons
        .iter()
        .map(|c| format!("{:+.1}", 100.0 * c.change_share.unwrap()))
        .collect();
    // Against the control, and the last step.
    assert_eq!(changes, ["+2.9", "-2.6", "-5.3"]);
    assert!(
        found
            .comparisons
            .iter()
            .all(|c| c.outcome == Outcome::NoVerdict)
    );
    assert_eq!(found.doubts[0].about, About::NotInForce);
    let force = words(&found, About::NotInForce);
    says(
        &force,
        &[
            "sendspace of 8.00 MiB",
            "is 65.0 KByte; in force it would print 8.00 MByte",
            "64 KiB rounded up to whole segments of 1448",
            "'stock' has the same window",
            // With jumbo frames a segment is larger, so the same default is rounded further.
            "is 69.9 KByte",
            "64 KiB rounded up to whole segments of 8948",
        ],
    );
    says(&words(&found, About::OneRun), &["one run of 'stock'"]);
    says(
        &words(&found, About::Units),
        &["multiples of 1024", "911 Mbit/s, as printed"],
    );
    says(&words(&found, About::Confounded), &["4 settings"]);
}

#[test]
fn the_drop_in_the_cloud_is_not_where_the_settings_change() {
    let found = read(include_str!("published/virtio_cloud.csv"));
    assert_eq!(found.comparisons.len(), 2);
    assert!(
        found
            .comparisons
            .iter()
            .all(|c| c.outcome == Outcome::NoVerdict && c.estimate.is_none())
    );
    // All that was printed is kept: three tests in each of five windows.
    assert_eq!(found.statistics.len(), 15);
    let one = &found.statistics[4];
    assert_eq!((one.of.as_str(), one.arm.as_str()), ("128k", "test 2"));
    let printed = [one.average, one.median, one.min, one.max];
    assert_eq!(printed, [164.54, 158.0, 106.0, 298.0].map(Some));
    says(&words(&found, About::NotRuns), &["not runs", "seconds"]);
    says(
        &words(&found, About::Drift),
        &[
            "after the 64k cell of test 2",
            "not where a setting changes",
            "one after another",
        ],
    );
    says(
        &words(&found, About::NotInForce),
        &[
            "switches autotuning off",
            "sendbuf_max and net.inet.tcp.recvbuf_max cannot act",
            "A/A/A",
        ],
    );
}

/// Rows of `arm,value,block` from an arm's values each, in turns or one after the other.
fn rows(control: &[f64], arm: &[f64], header: &str, in_turns: bool) -> String {
    let row = |name: &str, value: &f64, block: usize| format!("{name},{value},{block}");
    let a = control.iter().enumerate().map(|(n, v)| row("cubic", v, n));
    let b = arm.iter().enumerate().map(|(n, v)| row("bbr", v, n));
    let all: Vec<String> = if in_turns {
        a.zip(b).flat_map(|(a, b)| [a, b]).collect()
    } else {
        a.chain(b).collect()
    };
    format!("{header}\n{}\n", all.join("\n"))
}

const SLOW: [f64; 8] = [100.0, 103.0, 98.0, 101.0, 99.0, 102.0, 97.0, 104.0];

#[test]
fn runs_without_pairs_have_an_interval_and_a_warning() {
    let fast = SLOW.map(|v| 1.2 * v + 0.1);
    let found = read(&rows(&SLOW, &fast, "arm,value_mbits_per_s,order", false));
    let one = &found.comparisons[0];
    assert_eq!(
        (one.outcome, one.runs, one.paired),
        (Outcome::Faster, [8, 8], false)
    );
    let estimate = one.estimate.unwrap();
    assert!(
        estimate.low_share > 0.1 && estimate.high_share < 0.3,
        "{estimate:?}"
    );
    assert!(estimate.low_share < 0.2 && 0.2 < estimate.high_share);
    says(
        &words(&found, About::Order),
        &["stand before all of the next"],
    );
    assert_eq!(one.unit, "Mbit/s");
}

#[test]
fn blocks_are_pairs() {
    let found = read(&rows(
        &SLOW,
        &SLOW.map(|v| 1.02 * v),
        "arm,value,block",
        true,
    ));
    let one = &found.comparisons[0];
    assert!(one.paired);
    // Every pair differs by just 2 %, of which 5 % would matter.
    assert_eq!(one.outcome, Outcome::NoDifference);
    says(&words(&found, About::Order), &["within the blocks"]);
    // Half a block, and they are no pairs any more.
    let broken =
        rows(&SLOW, &SLOW.map(|v| 1.02 * v), "arm,value,block", true).replace("bbr,106.08,7\n", "");
    assert!(!read(&broken).comparisons[0].paired);
}

#[test]
fn less_time_is_faster() {
    let found = read(&rows(
        &SLOW,
        &SLOW.map(|v| 0.8 * v),
        "arm,value_ms,block",
        true,
    ));
    assert_eq!(found.comparisons[0].outcome, Outcome::Faster);
    assert!((found.comparisons[0].change_share.unwrap() - 0.25).abs() < 1e-9);
}

#[test]
fn one_run_a_side_is_refused() {
    let found = read("arm,value\na,100\nb,200\n");
    assert_eq!(found.comparisons[0].outcome, Outcome::NoVerdict);
    says(
        &words(&found, About::OneRun),
        &["one run of 'a' and 'b'", "no interval exists"],
    );
}

#[test]
fn a_run_that_moved_nothing_counts_as_the_slowest() {
    let mut stalled = SLOW;
    stalled[3] = 0.0;
    let found = read(&rows(&SLOW, &stalled, "arm,value,order", true));
    assert_eq!(found.comparisons[0].outcome, Outcome::NotEnoughData);
}

#[test]
fn traps_of_units() {
    let bytes = SLOW.map(|v| v / 8.0);
    let found = read(&rows(&SLOW, &bytes, "arm,value,order", true));
    says(&words(&found, About::Units), &["MB and Mbit"]);
    let mebi = SLOW.map(|v| v / 1.048_576);
    let found = read(&rows(&SLOW, &mebi, "arm,value,order", true));
    says(&words(&found, About::Units), &["M of 1024"]);
}

#[test]
fn seconds_of_a_run_are_recognised() {
    let slowly = |n: u32| 100.0 + 10.0 * (f64::from(n) / 7.0).sin();
    let a: Vec<f64> = (0..60).map(slowly).collect();
    let b: Vec<f64> = (60..120).map(slowly).collect();
    let found = read(&rows(&a, &b, "arm,value,at", false));
    says(
        &words(&found, About::NotRuns),
        &["resemble their neighbours"],
    );
}

#[test]
fn a_path_that_changed_meanwhile() {
    let drop = |n: usize| {
        if n < 10 {
            100.0 + n as f64
        } else {
            60.0 + n as f64
        }
    };
    let a: Vec<f64> = (0..20).map(drop).collect();
    let found = read(&rows(
        &a,
        &a.iter().map(|v| v + 0.5).collect::<Vec<_>>(),
        "arm,value,order",
        true,
    ));
    says(&words(&found, About::Drift), &["After value 20 of 40"]);
}

#[test]
fn tables_that_cannot_be_read() {
    let refused = |text: &str| of_table("t", text, 0.05).unwrap_err();
    assert!(matches!(refused(""), Error::NotCsv(_)));
    assert!(matches!(refused("arm,value\n"), Error::NotCsv(_)));
    assert!(matches!(refused("arm,value\na\n"), Error::NotCsv(_)));
    assert!(matches!(
        refused("x,y\n1,2\n"),
        Error::UnknownColumns { .. }
    ));
    assert!(matches!(
        refused("arm,value\na,1\na,2\n"),
        Error::NothingToCompare(_)
    ));
    assert!(matches!(
        refused("setting_a,setting_b\nx,y\n"),
        Error::UnknownColumns { .. }
    ));
    assert!(matches!(
        refused("statistic,64k\nmedian,1\n"),
        Error::NothingToCompare(_)
    ));
    assert!(matches!(
        refused("configuration,x\nstock,1\n"),
        Error::UnknownColumns { .. }
    ));
    let seconds = format!("arm,value\nb,1\n{}", "a,1\n".repeat(1001));
    assert!(matches!(refused(&seconds), Error::TooMuch { .. }));
    for bad in ["fast", "nan", "-1", ""] {
        let error = refused(&format!("arm,value\na,1\nb,{bad}\n"));
        assert!(error.to_string().starts_with("line 3: '"), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn no_table_is_too_odd(
        header in proptest::sample::select(vec![
            "arm,value", "arm,value_ms,block", "setting_a,value_a,setting_b,value_b,printed_difference,table,operation",
            "configuration,mbits_per_s,client_window_printed,transfer_gbytes,duration_s", "test,sb_max,sendbuf_max,statistic,64k,128k",
        ]),
        cells in proptest::collection::vec("(median|the same|[ab]|0|-1|1e300|[1-9][0-9]{0,3}(\\.[0-9])?|x=8M|8M|65.0 KByte|\"|)", 0..80),
    ) {
        let width = header.split(',').count();
        let rows: Vec<String> = cells.chunks(width).map(|row| row.join(",")).collect();
        let _ = of_table("t", &format!("{header}\n{}\n", rows.join("\n")), 0.05);
    }
}
