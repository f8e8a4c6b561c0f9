//! `linerate tune audit` on real kernels: settings of hosts that it can reach, judged and left alone.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

mod common;

use common::{Home, Lab, Pair, json, listening, run, stderr, stdout};
use serde_json::Value;

const TUNED: &str = "4096 131072 16777216";

fn item<'a>(audit: &'a Value, host: usize, name: &str) -> &'a Value {
    let items = audit["hosts"][host]["items"].as_array().unwrap();
    let found = items.iter().find(|item| item["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {items:#?}"))
}

#[test]
fn what_a_profile_lowers_is_reported_and_nothing_is_changed() {
    let home = Home::new();
    let line = "rate = \"50M\"\ndelay = \"5ms\"";
    let lab = Lab::of(&home, 1500, line, line);
    let set = |host: &str, what: &str| {
        let out = lab.exec(host, &["sysctl", "-qw", what]);
        assert!(out.status.success(), "{}", stderr(&out));
    };
    set("b", &format!("net.ipv4.tcp_rmem={TUNED}"));
    set("b", "net.ipv4.tcp_timestamps=0");
    let all = |host: &str| stdout(&lab.exec(host, &["sysctl", "net.ipv4"]));
    // What the kernel counts by itself is no setting.
    let settings = |host: &str| {
        let text = all(host);
        let fixed = |line: &&str| line.contains("tcp_");
        text.lines()
            .filter(fixed)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = (settings("a"), settings("b"));
    let host = format!("lab:{}", lab.name);
    let audit = json(&mut home.linerate(&["tune", "audit", &host, "-t", "1s", "--json", "-q"]));
    assert_eq!((settings("a"), settings("b")), before);
    assert_eq!(audit["hosts"].as_array().unwrap().len(), 2);
    let needs = &audit["advice"][0]["needs"];
    assert!(needs["bdp"].as_u64().unwrap() > 0, "{needs}");
    let rmem = item(&audit, 1, "net.ipv4.tcp_rmem");
    assert_eq!(rmem["now"], TUNED);
    // The default goes by memory: 16 MiB are less on all but small machines.
    let default = rmem["default"].as_str().unwrap();
    let greatest: u64 = default.rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(rmem["lowers"], greatest > 16 << 20, "{rmem}");
    let timestamps = item(&audit, 1, "net.ipv4.tcp_timestamps");
    assert_eq!(
        (&timestamps["worth"], &timestamps["wanted"]),
        (&"harmful".into(), &"1".into())
    );
    // The same run again, for a path that is to come.
    let id = audit["run"].as_str().unwrap();
    let later = [
        "tune", "audit", "--run", id, "--rate", "10G", "--rtt", "100ms", "--json",
    ];
    let later = json(&mut home.linerate(&later));
    assert_eq!(later["advice"][0]["needs"]["rate_from"], "user");
    assert_eq!(
        item(&later, 1, "net.ipv4.tcp_rmem")["worth"],
        if greatest > 16 << 20 {
            "harmful"
        } else {
            "raise"
        }
    );
    let words = stdout(&run(&mut home.linerate(&["tune", "audit", "--run", id])));
    assert!(
        words.contains("harmful   net.ipv4.tcp_timestamps = 0  ->  1")
            && words.contains("The remote host: b, Linux"),
        "{words}"
    );
    lab.down();
}

#[test]
fn an_agent_reports_its_settings_to_trusted_hosts() {
    let pair = Pair::new("au");
    let (server, guest) = (Home::new(), Home::new());
    let invite = ["trust", "invite", "--address", Pair::FAR, "--name", "guest"];
    let line = stdout(&run(&mut server.linerate(&invite)))
        .trim()
        .to_owned();
    let serve = ["serve", "--bind", Pair::FAR];
    let _running = listening(&mut server.linerate_in(&pair.remote, &serve));
    let out = run(&mut guest.linerate_in(&pair.local, &["trust", "accept", &line]));
    assert!(out.status.success(), "{}", stderr(&out));
    let audit = ["tune", "audit", Pair::FAR, "-t", "500ms", "-q", "--json"];
    let audit = json(&mut guest.linerate_in(&pair.local, &audit));
    assert_eq!(audit["hosts"][1]["side"], "remote");
    assert_eq!(item(&audit, 1, "net.ipv4.tcp_rmem")["lowers"], false);
    // It could report the files of its settings: no doubt mentions them.
    let doubts = audit["doubts"].to_string();
    assert!(!doubts.contains("which files set"), "{doubts}");
}

#[test]
fn the_file_that_wins_is_reported_with_those_that_lose() {
    let home = Home::new();
    for (path, text) in [
        (
            "etc/sysctl.d/60-db.conf",
            "\nnet.ipv4.tcp_rmem = 4096 131072 8\n",
        ),
        (
            "usr/lib/sysctl.d/50-net.conf",
            "net.ipv4.tcp_rmem = 1 2 3\n",
        ),
        ("etc/tuned/active_profile", "network-throughput\n"),
        (
            "usr/lib/tuned/network-throughput/tuned.conf",
            "[sysctl]\nnet.ipv4.tcp_rmem=\"4096 131072 16777216\"\n",
        ),
    ] {
        let path = home.path().join("root").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut audit = home.linerate(&["tune", "audit", "local", "-t", "300ms", "-q", "--json"]);
    let audit = json(audit.env("LINERATE_ROOT", home.path().join("root")));
    // One host as client and server is reported once.
    assert_eq!(audit["hosts"].as_array().unwrap().len(), 1);
    let by = item(&audit, 0, "net.ipv4.tcp_rmem")["set_by"]
        .as_array()
        .unwrap();
    let by: Vec<(&str, u64)> = by
        .iter()
        .map(|by| (by["path"].as_str().unwrap(), by["line"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        by,
        [
            ("/usr/lib/sysctl.d/50-net.conf", 1),
            ("/etc/sysctl.d/60-db.conf", 2)
        ]
    );
    let tuned = audit["hosts"][0]["others"][0].as_str().unwrap();
    assert!(
        tuned.contains("network-throughput, which sets net.ipv4.tcp_rmem = 4096 131072 16777216"),
        "{tuned}"
    );
}
