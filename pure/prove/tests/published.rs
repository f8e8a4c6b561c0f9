//! Three tables that were really published, and some that are made up.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use model::{About, Outcome, Published};
use prove::published::{Error, of_table};

fn read(text: &str) -> Published {
    of_table("table.csv", text, 0.05).unwrap()
}

/// Every part stands in the doubts of this kind.
#[track_caller]
fn doubted(of: &Published, about: About, parts: &[&str]) {
    let all: Vec<&str> = of
        .doubts
        .iter()
        .filter(|d| d.about == about)
        .map(|d| d.words.as_str())
        .collect();
    let words = all.join("\n");
    for part in parts {
        assert!(words.contains(part), "'{part}' is missing in: {words}");
    }
}

fn changes(of: &Published) -> Vec<String> {
    let changes = of.comparisons.iter().filter_map(|c| c.change_share);
    changes.map(|c| format!("{:+.2}", 100.0 * c)).collect()
}

#[test]
fn the_rows_of_the_jumbo_frames_are_swapped() {
    let found = read(include_str!("published/lan_mtu_afp.csv"));
    assert_eq!(changes(&found), ["+3.31", "+0.50", "+18.78", "+9.65"]);
    assert_eq!(found.outcome(), Outcome::NoVerdict);
    let parts = [
        "table 1, write give +3.31 %, those of table 1, read give +0.50 %",
        "table 2, write give +18.78 %",
        "printed are +0.53 % and +3.33 %: the printed differences are swapped",
    ];
    doubted(&found, About::WrongDifference, &parts);
    doubted(&found, About::OneRun, &["without a spread"]);
    let parts = ["table 1, write starts from 87.6 and table 2, write from 48.3"];
    doubted(&found, About::Confounded, &parts);
}

#[test]
fn a_window_that_is_not_in_force_has_no_verdict() {
    let rows = |size: &str, base: f64| -> String {
        let row = |n: usize| format!("sndbuf={size},{},70.0 KByte\n", base + SLOW[n]);
        (0..8).map(row).collect()
    };
    let table = |size| {
        let all = rows("64K", 0.0) + &rows(size, 100.0);
        read(&format!("configuration,mbits_per_s,window\n{all}"))
    };
    assert_eq!(table("128K").outcome(), Outcome::Faster);
    assert_eq!(table("8M").outcome(), Outcome::NoVerdict);
}

#[test]
fn a_printed_difference_that_no_row_explains() {
    let header = "setting_a,value_a,setting_b,value_b,printed_difference";
    let found = read(&format!("{header}\nx,100,y,110,10\nx,100,y,120,25\n"));
    let wrong = found
        .doubts
        .iter()
        .filter(|d| d.about == About::WrongDifference);
    assert_eq!(wrong.count(), 1);
    doubted(
        &found,
        About::WrongDifference,
        &["give +20.00 %; printed is +25 %"],
    );
}

#[test]
fn a_configuration_that_was_measured_once_has_no_spread() {
    let found = read(include_str!("published/lan_mac_iperf2.csv"));
    assert_eq!(changes(&found), ["+2.85", "-2.63"]);
    assert_eq!(found.comparisons[0].unit, "Mbit/s");
    assert_eq!(found.outcome(), Outcome::NoVerdict);
    doubted(&found, About::OneRun, &["one run of 'stock'"]);
    let parts = [
        "requests net.inet.tcp.recvspace of 8.00 MiB, and the printed window is 65.0 KByte",
        "'the same sysctls and mtu=9000' requests",
    ];
    doubted(&found, About::NotInForce, &parts);
    doubted(&found, About::Confounded, &["changes 4 settings at once"]);
}

#[test]
fn the_drop_in_the_cloud_is_not_where_the_settings_change() {
    let found = read(include_str!("published/virtio_cloud.csv"));
    assert_eq!(
        (found.comparisons.len(), found.outcome()),
        (2, Outcome::NoVerdict)
    );
    // Everything printed is kept: three tests in each of five windows.
    assert_eq!(found.statistics.len(), 15);
    let one = &found.statistics[4];
    assert_eq!((one.of.as_str(), one.arm.as_str()), ("128k", "test 2"));
    let printed = [one.average, one.median, one.min, one.max];
    assert_eq!(printed, [164.54, 158.0, 106.0, 298.0].map(Some));
    doubted(&found, About::NotRuns, &["not runs", "seconds"]);
    let parts = [
        "after the 64k cell of test 2",
        "not where a setting changes",
    ];
    doubted(&found, About::Drift, &parts);
}

#[test]
fn statistics_of_two_tests_are_compared_and_those_of_one_are_not() {
    let rows =
        "name,statistic,64k\na,mean,9\na,median,10\na,minimum,8\na,maximum,11\nb,median,12\n";
    let found = read(rows);
    assert_eq!(changes(&found), ["+20.00"]);
    let one = &found.statistics[0];
    let printed = [one.average, one.median, one.min, one.max];
    assert_eq!(printed, [9.0, 10.0, 8.0, 11.0].map(Some));
    let one = of_table("table.csv", &rows.replace("b,", "a,"), 0.05).unwrap_err();
    assert!(one.to_string().contains("of one test"), "{one}");
}

/// Rows of an arm's values each, in turns or one after the other.
fn rows(control: &[f64], arm: &[f64], header: &str, in_turns: bool) -> Published {
    let row = |name: &str, value: &f64, block: usize| format!("{name},{value},{block}");
    let a = control.iter().enumerate().map(|(n, v)| row("cubic", v, n));
    let b = arm.iter().enumerate().map(|(n, v)| row("bbr", v, n));
    let all: Vec<String> = match in_turns {
        true => a.zip(b).flat_map(|(a, b)| [a, b]).collect(),
        false => a.chain(b).collect(),
    };
    read(&format!("{header}\n{}\n", all.join("\n")))
}

const SLOW: [f64; 8] = [100.0, 103.0, 98.0, 101.0, 99.0, 102.0, 97.0, 104.0];

#[test]
fn runs_without_pairs_have_an_interval_and_a_doubt() {
    let fast = SLOW.map(|v| 1.2 * v + 0.1);
    let found = rows(&SLOW, &fast, "arm,value_mbits_per_s,order", false);
    let one = &found.comparisons[0];
    assert_eq!(
        (one.outcome, one.runs, one.paired),
        (Outcome::Faster, [8, 8], false)
    );
    let estimate = one.estimate.unwrap();
    assert!((0.1..0.2).contains(&estimate.low_share), "{estimate:?}");
    assert!((0.2..0.3).contains(&estimate.high_share), "{estimate:?}");
    doubted(&found, About::Order, &["stand before all of the next"]);
}

#[test]
fn blocks_are_pairs() {
    let found = rows(&SLOW, &SLOW.map(|v| 1.02 * v), "arm,value,block", true);
    // Every pair differs by just 2 %, and the margin is 5 %.
    assert_eq!(found.comparisons[0].outcome, Outcome::NoDifference);
    assert!(found.comparisons[0].paired);
    doubted(&found, About::Order, &["within the blocks"]);
    // With half a block they are no pairs.
    let broken = rows(&SLOW, &SLOW[..7], "arm,value,block", false);
    assert!(!broken.comparisons[0].paired);
}

#[test]
fn several_arms_share_the_level() {
    let rows: Vec<String> = ["cubic", "bbr", "reno"]
        .iter()
        .flat_map(|arm| {
            SLOW.iter()
                .enumerate()
                .map(move |(n, v)| format!("{arm},{v},{n}"))
        })
        .collect();
    let found = read(&format!("arm,value,block\n{}\n", rows.join("\n")));
    let levels: Vec<f64> = found
        .comparisons
        .iter()
        .map(|c| c.estimate.unwrap().level)
        .collect();
    assert_eq!(levels, [0.975, 0.975]);
}

#[test]
fn a_table_has_its_most_rows() {
    let said = |rows: usize| {
        let text = format!("arm,value\n{}", "a,1\n".repeat(rows));
        of_table("table.csv", &text, 0.05).unwrap_err().to_string()
    };
    assert!(
        !said(20_000).contains("more than 20000 rows"),
        "{}",
        said(20_000)
    );
    assert!(
        said(20_001).contains("more than 20000 rows"),
        "{}",
        said(20_001)
    );
}

#[test]
fn less_time_is_faster() {
    let found = rows(&SLOW, &SLOW.map(|v| 0.8 * v), "arm,value_ms,block", true);
    assert_eq!(found.comparisons[0].outcome, Outcome::Faster);
    assert_eq!(changes(&found), ["+25.00"]);
}

#[test]
fn a_run_that_moved_nothing_counts_as_the_slowest() {
    let mut stalled = SLOW;
    stalled[3] = 0.0;
    let found = rows(&SLOW, &stalled, "arm,value,order", true);
    assert_eq!(found.comparisons[0].outcome, Outcome::NotEnoughData);
}

#[test]
fn ratios_that_are_two_units() {
    for factor in [8.0, 0.125] {
        let found = rows(&SLOW, &SLOW.map(|v| v / factor), "arm,value,order", true);
        doubted(&found, About::Units, &["MB and Mbit"]);
    }
    let found = rows(&SLOW, &SLOW.map(|v| 1.19 * v), "arm,value,order", true);
    assert!(found.doubts.iter().all(|d| d.about != About::Units));
}

#[test]
fn seconds_of_a_run_are_recognised() {
    let slowly = |n: u32| 100.0 + 10.0 * (f64::from(n) / 7.0).sin();
    let a: Vec<f64> = (0..60).map(slowly).collect();
    let b: Vec<f64> = (60..120).map(slowly).collect();
    let found = rows(&a, &b, "arm,value,at", false);
    assert_eq!(found.outcome(), Outcome::NoVerdict);
    doubted(&found, About::NotRuns, &["resemble their neighbours"]);
}

#[test]
fn a_path_that_changed_meanwhile() {
    let level = |n: u32| if n < 10 { 100.0 } else { 60.0 };
    let a: Vec<f64> = (0..20).map(|n| level(n) + f64::from(n)).collect();
    let b: Vec<f64> = a.iter().map(|v| v + 0.5).collect();
    let found = rows(&a, &b, "arm,value,order", true);
    doubted(&found, About::Drift, &["After value 20 of 40"]);
}

#[test]
fn tables_that_cannot_be_read() {
    let refused = |text: &str| of_table("t", text, 0.05).unwrap_err();
    for no_table in ["", "arm,value\n", "arm,value\na\n"] {
        assert!(matches!(refused(no_table), Error::NotCsv(_)), "{no_table}");
    }
    let seconds = format!("arm,value\nb,1\n{}", "a,1\n".repeat(1001));
    for nothing in [
        "x,y\n1,2\n",
        "arm,value\na,1\na,2\n",
        "setting_a,setting_b\nx,y\n",
        "statistic,64k\nmedian,1\n",
        "configuration,x\nstock,1\n",
        seconds.as_str(),
    ] {
        let why = refused(nothing);
        assert!(
            matches!(why, Error::NothingToCompare(_)),
            "{nothing}: {why}"
        );
    }
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
            "configuration,mbits_per_s,duration_s", "test,sb_max,sendbuf_max,statistic,64k,128k", "statistic", "statistic,1k",
        ]),
        cells in proptest::collection::vec("(median|[ab]|0|-1|1e300|[1-9][0-9]{0,3}(\\.[0-9])?|8M|\"|)", 0..80),
    ) {
        let width = header.split(',').count();
        let rows: Vec<String> = cells.chunks(width).map(|row| row.join(",")).collect();
        let _ = of_table("t", &format!("{header}\n{}\n", rows.join("\n")), 0.05);
    }
}
