//! `linerate prove --from`: numbers of somebody else, as a user meets it.

use crate::common::{Home, one_line, run, stderr, stdout};
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
        ("lan_mac_iperf2.csv", "one run of 'stock'"),
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

/// The page of a document, from the document itself, from its JSON, and from the archive.
#[test]
fn documents_have_pages() {
    let home = Home::new();
    let page = |args: &[&str]| {
        let out = run(home
            .linerate(&[&["report"], args].concat())
            .current_dir(home.path()));
        assert!(out.status.success(), "{}", stderr(&out));
        stdout(&out)
    };
    let table = format!("{TABLES}virtio_cloud.csv");
    let whole = page(&[&table, "-o", "-"]);
    for words in [
        "average 209.98, median 180, 145 to 304",
        "not where a setting changes",
        "<svg",
    ] {
        assert!(whole.contains(words), "{words}: {whole}");
    }
    let json = home.path().join("found.json");
    std::fs::write(&json, from(&home, &[&table, "--json"]).stdout).unwrap();
    let again = page(&[json.to_str().unwrap()]);
    assert_eq!(again, "the page is in linerate-found.html\n");
    let file = home.path().join("linerate-found.html");
    assert_eq!(std::fs::read_to_string(file).unwrap(), whole);

    let found = stdout(&run(&mut home.linerate(&["mtu", "local", "--json"])));
    std::fs::write(&json, &found).unwrap();
    assert_eq!(
        page(&[json.to_str().unwrap()]),
        "the page is in linerate-mtu-local.html\n"
    );
    let of_file = std::fs::read_to_string(home.path().join("linerate-mtu-local.html")).unwrap();
    assert!(
        of_file.contains("each way") && of_file.contains("id=\"hops\""),
        "{of_file}"
    );
    assert_eq!(page(&["last", "-o", "-"]), of_file);

    for (text, why) in [
        ("{}", "it is not a run of linerate"),
        ("a,b\n1,2\n", "of no kind that can be read"),
        (
            "{\"schema\": 9, \"plan\": {}}",
            "written by a newer linerate",
        ),
    ] {
        std::fs::write(&json, text).unwrap();
        let out = run(&mut home.linerate(&["report", json.to_str().unwrap()]));
        let said = stderr(&out);
        assert!(!out.status.success() && said.contains(why), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
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
    assert!(text.contains("FASTER: 29.4 % faster"), "{text}");
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
