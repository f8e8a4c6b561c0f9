//! Sessions with `linerate runs`, as a user types them.

use crate::common;
use archive::{Archive, new_id};
use model::mtu::{
    Climb, MTU_SCHEMA, Method, MtuCause, MtuFound, MtuRecord, MtuReport, MtuVerdict, PathEnd, Way,
};
use model::{
    BitRate, Bytes, Direction, Directions, EndRecord, Ended, Fingerprint, Latency, Leg, LegOutcome,
    MeshLeg, Nanos, NodeId, Request, Route, Run, Sample, Side, Spec, StreamSample, TUNING_SCHEMA,
    Tuning, WaitMode, Warning, Workload,
};
use report::sample_table::SamplesOf;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A user with a home of their own, where everything is in its usual place.
struct Home(common::Home);

impl Home {
    fn new() -> Home {
        Home(common::Home::new())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// With three runs in the archive.
    fn with_runs() -> Home {
        let home = Home::new();
        let mut archive = Archive::open(&home.archive()).unwrap();
        for run in [bulk(), requests(), killed()] {
            archive.import(&run).unwrap();
        }
        home
    }

    fn archive(&self) -> PathBuf {
        self.path().join(".local/share/linerate/runs.db")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.linerate("runs", arguments)
    }

    fn linerate(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command
            .arg(name)
            .args(arguments)
            .env_clear()
            .env("HOME", self.path())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// What the command prints, when it succeeds without a word on standard error.
    fn runs(&self, arguments: &[&str]) -> String {
        text(&self.command(arguments).output().unwrap())
    }

    /// The names in a list; a long note has the line below.
    fn ids(&self, arguments: &[&str]) -> Vec<String> {
        let list = self.runs(&[&["list"], arguments].concat());
        let lines = list.lines().skip(1).filter(|line| !line.starts_with(' '));
        lines.map(|line| line[..8].to_owned()).collect()
    }

    /// The same of `linerate report`.
    fn report(&self, arguments: &[&str]) -> String {
        text(&self.linerate("report", arguments).output().unwrap())
    }

    /// The sentence of a command that fails with this code and prints nothing else.
    fn fails(&self, arguments: &[&str], code: i32) -> String {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(output.stdout, b"");
        assert_eq!(said.lines().count(), 1, "{said}");
        said.replace(self.path().to_str().unwrap(), "~")
    }
}

fn text(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn end(rate_bytes_s: u64, seconds: u64) -> EndRecord {
    let sample = |n: u64| Sample {
        at: Nanos::from_secs(n),
        bytes: Bytes(rate_bytes_s * n),
        streams: vec![StreamSample {
            stream: 0,
            bytes: Bytes(rate_bytes_s * n),
            ..StreamSample::default()
        }],
        ..Sample::default()
    };
    EndRecord {
        samples: (0..=seconds).map(sample).collect(),
        bytes: Bytes(rate_bytes_s * seconds),
        duration: Nanos::from_secs(seconds),
        ..EndRecord::default()
    }
}

fn leg(direction: Direction, rate_bytes_s: u64) -> Leg {
    Leg {
        direction,
        started: Nanos(0),
        local: end(rate_bytes_s, 10),
        remote: end(rate_bytes_s, 10),
        ended: Ended::Complete,
    }
}

/// 941 Mbit/s up, 12 Gbit/s down; 2026-11-20 00:00 UTC.
fn bulk() -> Run {
    Run {
        id: "3f00c0de".to_owned(),
        started: Nanos::from_secs(1_795_132_800),
        host: "db2.example.net".to_owned(),
        title: Some("before the change".to_owned()),
        spec: Spec {
            directions: Directions::UpThenDown,
            ..Spec::default()
        },
        remote: Some(Fingerprint::default()),
        legs: vec![
            leg(Direction::Up, 117_625_000),
            leg(Direction::Down, 1_500_000_000),
        ],
        ended: Ended::Complete,
        ..Run::default()
    }
}

/// A day later, 41 us in the median.
fn requests() -> Run {
    let mut run = bulk();
    run.id = "3fabcdef".to_owned();
    run.started += Nanos::from_secs(86_400);
    run.host = "web1".to_owned();
    run.title = None;
    run.spec.directions = Directions::Up;
    run.spec.workload = Workload::Request(Request {
        request_size: Bytes(128),
        reply_size: Bytes(8192),
        pace_per_s: Some(0.3),
        reconnect: false,
        wait: WaitMode::Hybrid,
    });
    run.legs.truncate(1);
    run.legs[0].local.requests = Some(Latency::from_counts([(41_000, 99), (90_000, 1)]));
    run
}

/// Two days later, and killed.
fn killed() -> Run {
    let mut run = bulk();
    run.id = "00000001".to_owned();
    run.started += Nanos::from_secs(2 * 86_400);
    run.host = "local".to_owned();
    run.title = None;
    run.legs.clear();
    run.ended = Ended::Unfinished;
    run
}

#[test]
fn the_list() {
    let home = Home::with_runs();
    assert_eq!(
        home.runs(&["list"]),
        "\
ID        STARTED (UTC)     HOST             UP          DOWN         NOTE
00000001  2026-11-22 00:00  local            -           -            unfinished
3fabcdef  2026-11-21 00:00  web1             41.0 us     -
3f00c0de  2026-11-20 00:00  db2.example.net  941 Mbit/s  12.0 Gbit/s
          before the change
"
    );
    assert_eq!(home.ids(&["-n", "1"]), ["00000001"]);
    assert_eq!(home.ids(&["--host", "EXAMPLE"]), ["3f00c0de"]);
    assert_eq!(home.ids(&["--workload", "request"]), ["3fabcdef"]);
    assert_eq!(
        home.ids(&["--since", "2026-11-21"]),
        ["00000001", "3fabcdef"]
    );
    assert_eq!(
        home.runs(&["list", "--host", "nowhere"]),
        format!("no run in {} is like that\n", home.archive().display())
    );
    let json: serde_json::Value =
        serde_json::from_str(&home.runs(&["list", "--json", "--host", "db2"])).unwrap();
    assert_eq!(
        json,
        serde_json::json!([{
            "kind": "run",
            "id": "3f00c0de",
            "started_unix_ns": 1_795_132_800_000_000_000_u64,
            "host": "db2.example.net",
            "local": "", "local_id": null, "remote_id": null,
            "title": "before the change",
            "workload": "bulk",
            "ended": "complete",
            "goodput_up_bit_s": 941_000_000,
            "goodput_down_bit_s": 12_000_000_000_u64,
            "p50_up_ns": null,
            "p50_down_ns": null,
        }])
    );
}

#[test]
fn before_the_first_run() {
    let home = Home::new();
    assert_eq!(
        home.runs(&["list"]),
        "no runs are kept yet: linerate measure HOST makes one\n"
    );
    assert_eq!(home.runs(&["list", "--json"]), "[]\n");
    assert_eq!(
        home.fails(&["show", "last"], 2),
        "linerate: there is no archive of runs at ~/.local/share/linerate/runs.db\n"
    );
    assert_eq!(
        home.fails(&["--archive", "elsewhere.db", "list"], 2),
        "linerate: there is no archive of runs at elsewhere.db\n"
    );
    assert!(
        !home.path().join(".local").exists(),
        "looking makes nothing"
    );
    Archive::open(&home.archive()).unwrap();
    assert_eq!(
        home.fails(&["show", "last"], 2),
        "linerate: there is no run in the archive ~/.local/share/linerate/runs.db yet: linerate measure makes one\n"
    );
}

#[test]
fn one_run_is_shown_by_any_of_its_names() {
    let home = Home::with_runs();
    let whole = home.runs(&["show", "3f00c0de"]);
    assert!(whole.contains("941 Mbit/s"), "{whole}");
    assert!(whole.contains("12.0 Gbit/s"), "{whole}");
    assert_eq!(home.runs(&["show", "3f0"]), whole);
    assert_eq!(
        home.runs(&["show", "last"]),
        home.runs(&["show", "00000001"])
    );
    assert_eq!(
        home.fails(&["show", "3f"], 2),
        "linerate: '3f' could be any of 3f00c0de, 3fabcdef: give more digits\n"
    );
    assert_eq!(
        home.fails(&["show", "4"], 2),
        "linerate: there is no run '4' in the archive ~/.local/share/linerate/runs.db: see linerate runs list\n"
    );
    assert_eq!(
        home.fails(&["show", "./no.json"], 2),
        "linerate: the file ./no.json is not there, and no run has that name: see linerate runs list\n"
    );
}

#[test]
fn a_run_travels_to_another_archive_and_comes_back_the_same() {
    let home = Home::with_runs();
    assert_eq!(home.runs(&["export", "3fa", "-o", "run.json"]), "");
    let file = std::fs::read_to_string(home.path().join("run.json")).unwrap();
    assert_eq!(home.runs(&["export", "3fa"]), file);
    assert_eq!(serde_json::from_str::<Run>(&file).unwrap(), requests());
    let names: Vec<_> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name != ".local")
        .collect();
    assert_eq!(names, ["run.json"], "no part of a file stays");

    let other = ["--archive", "other.db"];
    let import = |file: &str| home.runs(&[&other[..], &["import", file]].concat());
    assert_eq!(
        import("run.json"),
        "imported 3fabcdef  2026-11-21 00:00:00 UTC  web1\n"
    );
    assert_eq!(
        import("run.json"),
        "already kept: 3fabcdef  2026-11-21 00:00:00 UTC  web1\n"
    );
    assert_eq!(home.runs(&[&other[..], &["export", "last"]].concat()), file);

    let mut through_a_pipe = home
        .command(&["--archive", "third.db", "import", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = through_a_pipe.stdin.take().unwrap();
    input.write_all(file.as_bytes()).unwrap();
    drop(input);
    assert_eq!(
        text(&through_a_pipe.wait_with_output().unwrap()),
        "imported 3fabcdef  2026-11-21 00:00:00 UTC  web1\n"
    );
}

#[test]
fn what_iperf3_printed_is_kept_once() {
    let home = Home::new();
    let printed = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../pure/report/tests/iperf3/tcp-3.12.json"
    );
    let first = home.runs(&["import", printed]);
    assert!(first.starts_with("imported "), "{first}");
    let again = home.runs(&["import", printed]);
    assert_eq!(again, first.replace("imported", "already kept:"));
    let run: Run = serde_json::from_str(&home.runs(&["export", "last"])).unwrap();
    let read = report::iperf3::from_json(&std::fs::read_to_string(printed).unwrap()).unwrap();
    assert_eq!(run, read);
    assert!(home.runs(&["list"]).contains("bit/s"));
    assert!(home.runs(&["show", "last"]).contains("bit/s"));
}

#[test]
fn samples_as_a_table() {
    let home = Home::with_runs();
    assert_eq!(
        home.runs(&["export", "3f00", "-f", "csv", "-o", "run.csv"]),
        ""
    );
    let file = std::fs::read_to_string(home.path().join("run.csv")).unwrap();
    let run = bulk();
    let mut table = report::csv::header();
    for (index, leg) in run.legs.iter().enumerate() {
        for side in [Side::Local, Side::Remote] {
            let samples = leg.end(side).samples.iter();
            let of = SamplesOf {
                run: &run,
                index,
                side,
                mesh: None,
            };
            table.extend(samples.map(|one| report::csv::rows(of, one)));
        }
    }
    assert_eq!(file, table);
    assert_eq!(home.runs(&["export", "3f00", "--format", "csv"]), file);
}

/// The files below `out`, with the runs in them and their bytes.
fn packed(home: &Home) -> BTreeMap<PathBuf, (Vec<String>, Vec<u8>)> {
    let mut files = BTreeMap::new();
    for day in std::fs::read_dir(home.path().join("out/samples")).unwrap() {
        for file in std::fs::read_dir(day.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let runs = report::parquet::runs(std::fs::File::open(&path).unwrap()).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let path = path.strip_prefix(home.path()).unwrap().to_owned();
            files.insert(path, (runs, bytes));
        }
    }
    files
}

#[test]
fn samples_of_days_that_are_over_are_packed_once() {
    let home = Home::with_runs();
    let said = home.runs(&["pack", "out"]);
    let first = packed(&home);
    let runs: BTreeSet<String> = first.values().flat_map(|(runs, _)| runs.clone()).collect();
    // The third was killed, and may still be recorded.
    let both = [bulk(), requests()].map(|run| run.id.to_string());
    assert_eq!(runs, both.into());
    let paths = said
        .lines()
        .map(|line| PathBuf::from(line.split(':').next().unwrap()));
    assert_eq!(BTreeSet::from_iter(paths), first.keys().cloned().collect());
    assert!(said.contains(": 1 run, 44 rows, "), "{said}");
    assert!(home.runs(&["pack", "out"]).starts_with("nothing to pack"));
    assert_eq!(packed(&home), first);

    // A run that comes to its day later, and one that is not in the archive any more.
    home.runs(&["delete", &requests().id, "-y"]);
    let mut later = requests();
    later.id = new_id();
    Archive::open(&home.archive())
        .unwrap()
        .import(&later)
        .unwrap();
    assert!(home.runs(&["pack", "out"]).contains(": 1 run, "));
    let mut more = packed(&home);
    more.retain(|path, _| !first.contains_key(path));
    let added: Vec<_> = more.values().map(|(runs, _)| &runs[..]).collect();
    assert_eq!(added, [[later.id.to_string()]]);

    // The same runs elsewhere have the same names and bytes.
    let home = Home::with_runs();
    assert_eq!(home.runs(&["pack", "out"]), said);
    assert_eq!(packed(&home), first);

    let file = home.path().join(first.keys().next().unwrap());
    std::fs::write(&file, "damaged").unwrap();
    let why = home.fails(&["pack", "out"], 1);
    assert!(why.contains(".parquet: move it elsewhere"), "{why}");
    std::fs::remove_dir_all(home.path().join("out")).unwrap();
    std::fs::write(home.path().join("out"), "a file").unwrap();
    let why = home.fails(&["pack", "out"], 1);
    assert!(why.contains("cannot make out/samples"), "{why}");
}

/// What reads a file of another tool's, and what it says of it.
fn read_by(command: &str, arguments: &[&str], home: &Home) -> String {
    let output = Command::new(command)
        .args(arguments)
        .env("HOME", home.path())
        .env("MPLBACKEND", "Agg")
        .current_dir(home.path())
        .output()
        .unwrap_or_else(|e| panic!("{command} is installed by 'make setup-test': {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A server that is killed when the test ends.
struct Server(std::process::Child);

impl Server {
    fn begin(command: &str, arguments: &[&str], home: &Home) -> Server {
        let child = Command::new(command)
            .args(arguments)
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(
                std::fs::File::options()
                    .create(true)
                    .append(true)
                    .open(home.path().join("servers.log"))
                    .unwrap(),
            )
            .spawn()
            .unwrap_or_else(|e| panic!("{command} is installed by 'make setup-test': {e}"));
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// What Prometheus knows now: the labels and values of an expression.
fn asked_prometheus(address: &str, expression: &str) -> Vec<serde_json::Value> {
    let code = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    let query: String = expression.bytes().map(code).collect();
    let Ok(mut stream) = TcpStream::connect(address) else {
        return Vec::new();
    };
    let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let Ok(body) = serde_json::from_str::<serde_json::Value>(body) else {
        return Vec::new();
    };
    assert_ne!(body["status"], "error", "{expression}: {body}");
    body["data"]["result"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

#[test]
fn prometheus_and_node_exporter_take_the_figures() {
    let home = Home::with_runs();
    let mut hostile = requests();
    hostile.id = "000000ff".to_owned();
    hostile.host = "a\"b\\c\nd\u{1b}".to_owned();
    let mut failed = bulk();
    failed.id = "0000fa11".to_owned();
    failed.started += Nanos::from_secs(60);
    failed.ended = Ended::Failed {
        why: "lost".to_owned(),
    };
    let mut archive = Archive::open(&home.archive()).unwrap();
    archive.import(&hostile).unwrap();
    archive.import(&failed).unwrap();
    std::fs::create_dir(home.path().join("textfiles")).unwrap();
    for id in ["3f00", "3fab", "000000ff"] {
        let file = format!("textfiles/{id}.prom");
        home.runs(&["export", id, "-f", "prometheus", "-o", &file]);
        let mut check = Command::new("/usr/bin/promtool");
        check
            .args(["check", "metrics"])
            .stdin(std::fs::File::open(home.path().join(&file)).unwrap());
        let check = check.output().unwrap();
        let complaints = [check.stdout, check.stderr].concat();
        assert!(
            check.status.success() && complaints.is_empty(),
            "{}",
            String::from_utf8_lossy(&complaints)
        );
    }
    // Readers of OpenMetrics take the same text: what breaks a rule of the format is an error.
    let script = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
for name in sys.argv[1:]:
    for family in parse(open(name, newline='').read()):
        for s in family.samples:
            print(s.name, s.labels['host'].encode(), s.labels.get('direction'), s.labels.get('quantile'), s.value, s.timestamp)
";
    let files = ["3f00", "3fab", "000000ff"].map(|id| format!("textfiles/{id}.prom"));
    let arguments = [&["-c", script][..], &files.each_ref().map(String::as_str)].concat();
    let read = read_by("/usr/bin/python3", &arguments, &home);
    for line in [
        "linerate_goodput_bytes_per_second b'db2.example.net' up None 117625000 None",
        "linerate_measurement_timestamp_seconds b'db2.example.net' down None 1795132810 None",
        "linerate_request_latency_seconds b'web1' up 0.99 4.1e-05 None",
        "linerate_measurement_info b'a\"b\\\\c\\\\nd\\\\u{1b}' up None 1 None",
    ] {
        assert!(read.lines().any(|l| l == line), "{line}\n{read}");
    }

    // A real run has every figure.
    let mut measure = Command::new(env!("CARGO_BIN_EXE_linerate"));
    measure
        .args(["measure", "local", "-t", "500ms", "-q"])
        .env_clear()
        .env("HOME", home.path());
    text(&measure.output().unwrap());

    let served = Served::begin(&home);
    let (exporter, prometheus) = (free_address(), free_address());
    let listen = format!("--web.listen-address={exporter}");
    let _exporter = Server::begin(
        "/usr/bin/prometheus-node-exporter",
        &[
            "--collector.disable-defaults",
            "--collector.textfile",
            "--collector.textfile.directory=textfiles",
            &listen,
        ],
        &home,
    );
    let job = |name: &str, address: &str| {
        format!(
            "- job_name: {name}\n  scrape_interval: 1s\n  static_configs: [{{targets: ['{address}']}}]\n"
        )
    };
    let config = format!(
        "scrape_configs:\n{}{}",
        job("archive", &served.address),
        job("textfile", &exporter)
    );
    std::fs::write(home.path().join("prometheus.yml"), config).unwrap();
    let listen = format!("--web.listen-address={prometheus}");
    let _prometheus = Server::begin(
        "/usr/bin/prometheus",
        &[
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=tsdb",
            &listen,
        ],
        &home,
    );
    let deadline = Instant::now() + Duration::from_secs(60);
    let known = |expression: &str| loop {
        let found = asked_prometheus(&prometheus, expression);
        if !found.is_empty() {
            return found;
        }
        let log = || std::fs::read_to_string(home.path().join("servers.log"));
        assert!(
            Instant::now() < deadline,
            "{expression}: nothing is known; {:?}",
            log()
        );
        std::thread::sleep(Duration::from_millis(100));
    };
    for job in ["archive", "textfile"] {
        let goodput = known(&format!(
            r#"linerate_goodput_bytes_per_second{{job="{job}",host="db2.example.net",direction="up"}}"#
        ));
        assert_eq!(goodput[0]["value"][1], "117625000", "{job}");
        assert_eq!(
            known(&format!(
                r#"linerate_last_run_success{{job="{job}",host="web1"}}"#
            ))[0]["value"][1],
            "1"
        );
    }
    // The figures are those of the last complete run, and the last one was not.
    let last = known(r#"linerate_last_run_success{job="archive",host="db2.example.net"}"#);
    assert_eq!(last[0]["value"][1], "0");
    let dashboard = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../dist/grafana/linerate.json"
    ));
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard.unwrap()).unwrap();
    let mut expressions = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            known(
                &["local", "host", "workload"]
                    .iter()
                    .fold(expression.to_owned(), |e, name| {
                        e.replace(&format!("${name}"), ".*")
                    }),
            );
            expressions += 1;
        }
    }
    assert!(expressions >= 7, "{expressions}");
}

#[test]
fn flent_reads_and_draws_a_run() {
    let home = Home::with_runs();
    home.runs(&["export", "3f00", "-f", "flent", "-o", "run.flent.gz"]);
    let table = read_by("/usr/bin/flent", &["-f", "summary", "run.flent.gz"], &home);
    let way = |name: &str| {
        let line = table.lines().find(|l| l.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("{name}: {table}")).to_owned()
    };
    assert!(way("TCP upload").contains("941.00"), "{table}");
    assert!(way("TCP download").contains("12000.00"), "{table}");
    let plot = [
        "-f",
        "plot",
        "-p",
        "totals",
        "-o",
        "plot.png",
        "run.flent.gz",
    ];
    read_by("/usr/bin/flent", &plot, &home);
    let drawn = std::fs::read(home.path().join("plot.png")).unwrap();
    assert!(drawn.starts_with(b"\x89PNG") && drawn.len() > 5_000);
    assert_eq!(
        home.fails(&["export", "3fab", "-f", "flent"], 2),
        "linerate: flent has no test that is like a run of workload request: export it as JSON or CSV\n"
    );
}

#[test]
fn tunings_and_mtus_are_listed_shown_exported_and_deleted_as_runs_are() {
    let home = Home::with_runs();
    let mut archive = Archive::open(&home.archive()).unwrap();
    let started = Nanos::from_secs(1_795_132_800 + 3 * 86_400);
    archive
        .store_tuning(&Tuning {
            schema: TUNING_SCHEMA,
            id: "70000001".to_owned(),
            started,
            host: "db2.example.net".to_owned(),
            reached_by: String::new(),
            direction: Direction::Up,
            dry_run: false,
            rounds: Vec::new(),
            kept: Vec::new(),
            after: None,
            lasting: Vec::new(),
            warnings: Vec::new(),
            ended: Ended::Complete,
        })
        .unwrap();
    let way = || Way {
        climb: Climb::default(),
        mss: None,
        tcp: None,
        verdict: MtuVerdict {
            mtu: Some(1500),
            cause: MtuCause::Clear,
            beside: Vec::new(),
            doubts: Vec::new(),
        },
    };
    archive
        .store_mtu(&MtuRecord {
            id: "80000001".to_owned(),
            ended: started + Nanos::from_secs(60),
            found: MtuFound::Look(Box::new(MtuReport {
                schema: MTU_SCHEMA,
                host: "web1".to_owned(),
                method: Method::Agent,
                local: PathEnd::default(),
                remote: None,
                forward: way(),
                reverse: way(),
                notes: Vec::new(),
            })),
        })
        .unwrap();
    drop(archive);
    let ids = home.ids(&["-n", "3"]);
    assert_eq!(ids, ["80000001", "70000001", "00000001"]);
    let of = home.runs(&["list", "--host", "WEB1"]);
    assert!(of.contains("80000001") && of.contains("3fabcdef"), "{of}");
    assert!(!of.contains("70000001"), "{of}");
    let none = home.runs(&["list", "--workload", "bulk"]);
    assert!(!none.contains("70000001") && !none.contains("80000001"));
    let json: serde_json::Value = serde_json::from_str(&home.runs(&["list", "-J"])).unwrap();
    assert_eq!(json[0]["kind"], "mtu");
    assert_eq!(
        (&json[1]["kind"], &json[1]["kept"]),
        (&"tuning".into(), &0.into())
    );

    assert!(home.runs(&["show", "7"]).contains("(tuning 70000001)"));
    let last = home.runs(&["show", "last"]);
    assert_eq!(last, home.runs(&["show", "80000001"]));
    assert!(last.contains("1500"), "{last}");
    let story: Tuning = serde_json::from_str(&home.runs(&["export", "7"])).unwrap();
    assert_eq!(story.id, "70000001");
    let found: MtuReport = serde_json::from_str(&home.runs(&["export", "8"])).unwrap();
    assert_eq!(found.host, "web1");
    assert_eq!(
        home.fails(&["export", "7", "-f", "csv"], 2),
        "linerate: a tuning or what was found of an MTU has no form of csv: export it as json\n"
    );
    assert_eq!(
        home.runs(&["delete", "7", "8"]),
        "deleted 70000001; its runs and experiments stay\ndeleted 80000001\n"
    );
    assert_eq!(home.ids(&[]).len(), 3);
}

/// The archive's server, which ends with the test.
struct Served {
    child: std::process::Child,
    address: String,
}

impl Served {
    fn begin(home: &Home) -> Served {
        Served::with(home, &[])
    }

    fn with(home: &Home, options: &[&str]) -> Served {
        let mut child = home
            .command(&["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .env("TMPDIR", home.path().join("uploads"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .strip_prefix("the archive is at http://")
            .and_then(|rest| rest.split('/').next());
        let address = address.expect(&line).to_owned();
        Served { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    /// The whole answer to these bytes. Who is refused unheard may lose it.
    fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect();
        let mut answer = Vec::new();
        let _ = stream.write_all(bytes.as_ref());
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn get(&self, path: &str) -> String {
        self.raw(format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.address
        ))
    }

    /// The body of a page that is there.
    fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        for field in [
            &format!("Content-Length: {}", body.len()),
            "X-Content-Type-Options: nosniff",
            "Content-Security-Policy: default-src 'none'; script-src 'sha256-",
        ] {
            assert!(
                head.lines().any(|line| line.starts_with(field)),
                "{field}: {head}"
            );
        }
        assert!(head.contains("; frame-ancestors 'none'"), "{head}");
        body.to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two meshes, a cell of the first of which was missed after a run that is kept.
#[test]
fn a_red_cell_leads_to_the_reason() {
    let home = Home::new();
    for mesh in ["db", "web"] {
        let hosts =
            ["a", "b"].map(|n| format!("[[host]]\nname = \"{n}\"\nagent = \"{n}.example\"\n"));
        let test = "[[test]]\nname = \"bulk\"\nhosts = [\"*\"]\nevery = \"1d\"\n";
        let file = format!("[mesh]\nname = \"{mesh}\"\n{}{test}", hosts.concat());
        std::fs::write(home.path().join(mesh), file).unwrap();
    }
    let run = bulk();
    std::fs::create_dir_all(home.archive().parent().unwrap()).unwrap();
    let mut archive = Archive::open(&home.archive()).unwrap();
    archive.import(&run).unwrap();
    let leg = |id: &str, [src, dst]: [&str; 2], hours: u64, outcome| MeshLeg {
        goodput: (outcome == LegOutcome::Low).then_some(BitRate(941_000_000)),
        why: Some(format!("the reason of {hours} <b>")),
        ..MeshLeg::bare(
            id.to_owned(),
            0,
            ["db", "bulk", src, dst],
            run.started + Nanos::from_secs(3600 * hours),
            outcome,
        )
    };
    let legs = [
        leg(&run.id, ["a", "b"], 1, LegOutcome::Low),
        leg("b0000000", ["a", "b"], 2, LegOutcome::Missed),
        leg("b0000001", ["b", "a"], 2, LegOutcome::Missed),
    ];
    archive.store_mesh_legs(&legs, false).unwrap();
    drop(archive);
    let [db, web] = ["db", "web"].map(|mesh| home.path().join(mesh).display().to_string());
    let served = Served::with(&home, &["--mesh", &db, "--mesh", &web]);
    let index = served.page("/");
    assert!(
        index.contains("<a href=\"grid.html?mesh=web\">web</a>"),
        "{index}"
    );
    let grid = served.page("/grid.html");
    for part in [
        "<a href=\"/\">",
        "<a href=\"grid.html?mesh=web\">web</a>",
        "<li><a href=\"cell.html?mesh=db&amp;test=bulk&amp;src=a&amp;dst=b\">a to b</a>, \
         <a href=\"cell.html?mesh=db&amp;test=bulk&amp;src=b&amp;dst=a\">b to a</a>: missed: the reason of 2 &lt;b&gt; (",
    ] {
        assert!(grid.contains(part), "{part}\n{grid}");
    }
    let cell = served.page("/cell.html?src=a&dst=b");
    for part in [
        "<p>Newest leg: missed: the reason of 2 &lt;b&gt; (",
        "<td>low</td><td><span class=\"q\">941 Mbit/s</span></td><td><a href=\"3f00c0de.html\">3f00c0de</a></td><td>the reason of 1 &lt;b&gt;</td>",
        "<td>missed</td><td>-</td><td>b0000000</td><td>the reason of 2 &lt;b&gt;</td>",
        "<a href=\"grid.html?mesh=db&amp;test=bulk\">mesh db, test bulk</a>",
        "<svg",
    ] {
        assert!(cell.contains(part), "{part}\n{cell}");
    }
    served.page("/3f00c0de.html");
    let missed = served.page("/cell.html?src=b&dst=a");
    assert!(
        missed.contains("<td>the reason of 2 &lt;b&gt;</td>"),
        "{missed}"
    );
    assert!(
        !missed.contains("<svg") && !missed.contains("14 runs"),
        "{missed}"
    );
    let none = served.page("/cell.html?mesh=web&src=a&dst=b");
    assert!(
        none.contains("No leg yet.") && !none.contains("<svg"),
        "{none}"
    );
}

/// Of many hosts the sites are shown; a cell of two sites leads to their pairs of hosts, and each of these to its legs.
#[test]
fn a_cell_of_two_sites_leads_to_their_hosts() {
    let home = Home::new();
    let host = |n: usize| {
        let site = if n < 2 { "y" } else { "x" };
        format!("[[host]]\nname = \"h{n}\"\nagent = \"h{n}\"\nsite = \"{site}\"\n")
    };
    let hosts: String = (0..302).map(host).collect();
    let test =
        "[[test]]\nname = \"bulk\"\nfrom = [\"site:x\"]\nto = [\"site:y\"]\nevery = \"1d\"\n";
    let plan = home.path().join("db.toml");
    std::fs::write(&plan, format!("[mesh]\nname = \"db\"\n{hosts}{test}")).unwrap();
    std::fs::create_dir_all(home.archive().parent().unwrap()).unwrap();
    let mut archive = Archive::open(&home.archive()).unwrap();
    let leg = |id: &str, [src, dst]: [&str; 2], outcome| MeshLeg {
        goodput: (outcome == LegOutcome::Good).then_some(BitRate(941_000_000)),
        ..MeshLeg::bare(
            id.to_owned(),
            0,
            ["db", "bulk", src, dst],
            bulk().started,
            outcome,
        )
    };
    let legs = [
        leg("b0000000", ["h7", "h1"], LegOutcome::Failed),
        leg("b0000001", ["h8", "h1"], LegOutcome::Good),
    ];
    archive.store_mesh_legs(&legs, false).unwrap();
    drop(archive);
    let served = Served::with(&home, &["--mesh", &plan.display().to_string()]);
    let cells = |page: &str| -> Vec<String> {
        let cells = page.split("<td class=").skip(1);
        let links = cells.filter_map(|cell| cell.split_once("href=\"")?.1.split_once('"'));
        links.map(|(link, _)| link.replace("&amp;", "&")).collect()
    };
    let grid = served.page("/grid.html");
    let sites = cells(&grid);
    assert_eq!(sites, ["grid.html?mesh=db&test=bulk&from=x&to=y"], "{grid}");
    let pairs = served.page(&format!("/{}", sites[0]));
    let hosts = cells(&pairs);
    assert_eq!(hosts.len(), 600, "{pairs}");
    for part in [
        "<h1>mesh db, test bulk: goodput from site x to site y, ",
        "Whole grids: <a href=\"grid.html?mesh=db&amp;test=bulk\">bulk</a>",
        "<td class=\"failed\"><a href=\"cell.html?mesh=db&amp;test=bulk&amp;src=h7&amp;dst=h1\" title=\"failed (",
    ] {
        assert!(pairs.contains(part), "{part}\n{pairs}");
    }
    for (link, newest) in
        hosts[10..13]
            .iter()
            .zip(["No leg yet", "Newest leg: failed", "No leg yet"])
    {
        let page = served.page(&format!("/{link}"));
        assert!(page.contains(newest), "{link}\n{page}");
    }
}

/// A path whose level changes once, noted by somebody hostile.
fn with_history() -> Home {
    let home = Home::with_runs();
    let mut archive = Archive::open(&home.archive()).unwrap();
    for n in 0..16_u64 {
        let mut run = bulk();
        run.id = format!("a00000{n:02x}");
        run.started += Nanos::from_secs(3_600 * (n + 1));
        run.host = "\"><script>alert(1)</script>".to_owned();
        run.local.hostname = "web1".to_owned();
        run.title = Some("<img src=x onerror=alert(1)>".to_owned());
        let rate = if n < 9 { 117_000_000 } else { 60_000_000 };
        run.legs = vec![leg(Direction::Up, rate + 10_000 * (n * 7 % 5))];
        archive.import(&run).unwrap();
    }
    home
}

#[test]
fn runs_of_one_of_several_hosts() {
    let home = with_history();
    let of = |from: &str| -> Vec<serde_json::Value> {
        let listed = home.runs(&["list", "--from", from, "--json"]);
        serde_json::from_str(&listed).unwrap()
    };
    assert_eq!(of("WEB").len(), 16);
    assert!(of("WEB").iter().all(|run| run["local"] == "web1"));
    assert_eq!(of("web2"), Vec::<serde_json::Value>::new());
}

/// Two hosts of one name and a third of another measure one server, all of them kept in one archive: no run of one is in
/// the history of another.
#[test]
fn runs_of_several_hosts_to_one_have_histories_of_their_own() {
    let home = Home::new();
    let id = |byte: u8| Some(NodeId::new([byte; 32]));
    let measured = |local_id: Option<NodeId>, local: &str, host: &str, rate: u64| {
        let mut run = bulk();
        run.id = new_id();
        run.local.hostname = local.to_owned();
        (run.local_id, run.remote_id) = (local_id, id(9));
        run.host = host.to_owned();
        run.legs = vec![leg(Direction::Up, rate)];
        run
    };
    let mut archive = Archive::open(&home.archive()).unwrap();
    for n in 0..16_u64 {
        for mut run in [
            // Its server is called by its name and by its address.
            measured(
                id(1),
                "web",
                ["db1", "192.0.2.1"][n as usize % 2],
                800_000_000,
            ),
            measured(id(2), "web", "db1", 200_000_000),
            // Of a version without ids.
            measured(None, "old", "db1", 100_000_000),
        ] {
            run.started += Nanos::from_secs(3_600 * n);
            archive.import(&run).unwrap();
        }
    }
    drop(archive);
    let short = |byte| id(byte).unwrap().short();
    let names = [
        format!("web ({})", short(1)),
        format!("web ({})", short(2)),
        "old".to_owned(),
    ];

    let listed = home.runs(&["list", "-n", "3"]);
    for name in &names {
        assert!(listed.contains(&format!("{name} to ")), "{listed}");
    }
    assert!(
        listed.lines().all(|line| line.chars().count() <= 80),
        "{listed}"
    );
    let from = |from: &str| -> Vec<serde_json::Value> {
        let listed = home.runs(&["list", "--from", from, "-n", "99", "--json"]);
        serde_json::from_str(&listed).unwrap()
    };
    assert_eq!([from("web").len(), from("old").len()], [32, 16]);
    let ours = from(&short(2));
    assert_eq!(ours.len(), 16);
    assert!(
        ours.iter()
            .all(|run| run["local_id"] == id(2).unwrap().to_string())
    );
    assert!(from("old").iter().all(|run| run["local_id"].is_null()));

    let served = Served::begin(&home);
    let index = served.page("/");
    for name in &names {
        assert!(
            index.contains(&format!("of {name} up to ")),
            "{name}: {index}"
        );
    }
    assert!(!index.contains("change of level"), "{index}");
    let remote = id(9).unwrap();
    for (local, rate) in [(id(1), "6.40 Gbit/s"), (id(2), "1.60 Gbit/s")] {
        let local = local.unwrap();
        let page = served.page(&format!(
            "/history.html?host={remote}&local={local}&workload=bulk%2C+10+s&direction=up"
        ));
        assert!(page.contains("No change of level in 16 runs."), "{page}");
        assert!(page.contains(rate), "{page}");
    }
    let metrics = served.page("/metrics");
    let values = |name: &str| -> Vec<&str> {
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap()).collect()
    };
    let mut goodput = values("linerate_goodput_bytes_per_second");
    goodput.sort_unstable();
    assert_eq!(goodput, ["100000000", "200000000", "800000000"]);
    assert_eq!(values("linerate_last_run_success"), ["1"; 3]);
    let labels = format!(
        "local=\"web\",host=\"db1\",workload=\"bulk\",local_id=\"{}\"",
        id(2).unwrap()
    );
    assert!(metrics.contains(&labels), "{metrics}");
}

#[test]
fn the_archive_in_a_browser() {
    let home = with_history();
    let served = Served::begin(&home);
    // Its histories were made when the server began.
    let before = std::fs::read(home.archive()).unwrap();
    let index = served.page("/");
    for part in [
        "<a href=\"3f00c0de.html\">",
        "941 Mbit/s",
        "before the change",
        "1 change of level",
    ] {
        assert!(index.contains(part), "{part}: {index}");
    }
    let searched = |query: &str| -> Vec<bool> {
        let page = served.page(query);
        let rows = ["3f00c0de", "3fabcdef", "a0000000"];
        rows.map(|id| page.contains(&format!("<a href=\"{id}.html\">")))
            .into()
    };
    assert_eq!(searched("/?text=BEFORE+the"), [true, false, false]);
    assert_eq!(searched("/?host=web"), [false, true, false]);
    assert_eq!(searched("/?workload=bulk"), [true, false, true]);
    assert_eq!(searched("/?since=2026-11-21"), [false, true, false]);
    assert_eq!(searched("/?until=2026-11-20"), [true, false, true]);
    assert!(
        served
            .page("/?since=yesterday")
            .contains("is no day like 2026-03-01")
    );

    let host = "%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E";
    let history = served.page(&format!(
        "/history.html?host={host}&local=web1&workload=bulk%2C+10+s&direction=up"
    ));
    assert!(
        history.contains("Change of level: about 936 Mbit/s until 2026-11-20 09:00 (run a0000008)"),
        "{history}"
    );
    let sides = served.page("/compare.html?a=a0000000&b=a000000f");
    assert!(sides.contains("Runs a0000000 and a000000f"), "{sides}");
    let run = served.page("/a0000000.html");
    assert!(run.contains("936 Mbit/s"), "{run}");
    for page in [&index, &history, &sides, &run] {
        assert!(
            !page.contains("<script>alert") && !page.contains("<img"),
            "{page}"
        );
    }
    let metrics = served.page("/metrics");
    assert!(metrics.ends_with("# EOF\n"));
    // The last run of each path, and when that was.
    for part in ["} 60000000\n", "} 1795190410\n"] {
        assert!(metrics.contains(part), "{metrics}");
    }
    assert!(!metrics.contains("a0000000"));

    let address = &served.address;
    let head = served.raw(format!("HEAD / HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert!(
        head.ends_with("\r\n\r\n") && head.contains("200 OK"),
        "{head}"
    );
    assert_eq!(
        std::fs::read(home.archive()).unwrap(),
        before,
        "nothing is written"
    );
    // The same as files, which ask nobody for anything.
    let printed = home.report(&["--all", "pages"]);
    assert_eq!(printed, "21 pages: begin with pages/index.html\n");
    let index = std::fs::read_to_string(home.path().join("pages/index.html")).unwrap();
    assert!(!index.contains("<form") && !index.contains("<script>alert"));
    for link in index.split("href=\"").skip(1) {
        let file = link.split('"').next().unwrap();
        assert!(
            file == "data:," || home.path().join("pages").join(file).is_file(),
            "{file}"
        );
    }
}

#[test]
fn hostile_requests_are_refused_and_the_server_goes_on() {
    let home = Home::with_runs();
    let mut served = Served::begin(&home);
    let own = served.address.clone();
    let long = format!("GET /{} HTTP/1.1\r\nHost: {own}\r\n\r\n", "x".repeat(9_000));
    for (bytes, status) in [
        (
            format!("POST / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 0\r\n\r\n"),
            405,
        ),
        (
            format!("DELETE /3f00c0de.html HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            405,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 9\r\n\r\n"),
            413,
        ),
        (
            format!("GET /../../etc/passwd HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            404,
        ),
        (
            format!("GET /%2e%2e%2fetc%2fpasswd.html HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            404,
        ),
        (
            format!("GET /ffffffff.html HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            404,
        ),
        (
            format!("GET /compare.html?a=3f00c0de&b=x HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            404,
        ),
        (
            format!("GET /?text=%00%ff HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            400,
        ),
        // Another site's name that leads here: what is read would be that site's.
        (
            "GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n".to_owned(),
            421,
        ),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (
            "\u{16}\u{3}\u{1}\u{2}\0 this is no HTTP\r\n\r\n".to_owned(),
            400,
        ),
        ("GET / HTTP/3.0\r\n\r\n".to_owned(), 505),
        (long, 431),
    ] {
        let answer = served.raw(&bytes);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{bytes:?}: {answer}"
        );
    }
    // Who only connects holds up the others for seconds at most.
    let idle: Vec<TcpStream> = (0..40).map(|_| served.connect()).collect();
    let answer = served.get("/");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(idle);

    let taken = home.fails(&["serve", "--listen", &own], 2);
    assert!(
        taken.starts_with(&format!("linerate: cannot listen on {own}: ")),
        "{taken}"
    );
    let pid = served.child.id().to_string();
    let stopped = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    let none = Home::new();
    assert!(
        none.fails(&["serve"], 2)
            .contains("there is no archive of runs")
    );
}

#[test]
fn a_page_in_every_form_and_its_pictures() {
    let home = Home::with_runs();
    let report = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command.arg("report").args(arguments).env_clear();
        command.env("HOME", home.path()).current_dir(home.path());
        command.stdin(Stdio::null()).output().unwrap()
    };
    let id = bulk().id;
    let said = report(&[&id]);
    let name = format!("linerate-{id}.html");
    assert_eq!(text(&said), format!("the page is in {name}\n"));
    let page = std::fs::read_to_string(home.path().join(&name)).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(text(&report(&[&id, "-f", "text"])).contains("All figures"));
    assert!(text(&report(&[&id, "-f", "markdown"])).starts_with("# db2.example.net: before"));
    let document: serde_json::Value =
        serde_json::from_slice(&report(&[&id, "-f", "json"]).stdout).unwrap();
    let picture = document["sections"][0]["pictures"][0]["id"]
        .as_str()
        .unwrap();
    let list = text(&report(&[&id, "--picture", "list"]));
    assert!(list.starts_with(picture), "{list}");
    let csv = text(&report(&[&id, "--picture", picture, "-f", "csv"]));
    assert!(csv.starts_with("time (s),"), "{csv}");
    let png = report(&[&id, "--picture", picture, "-f", "png"]);
    assert!(png.stdout.starts_with(b"\x89PNG\r\n"), "{png:?}");

    // What is not there is said, and no file is made.
    let before = std::fs::read_dir(home.path()).unwrap().count();
    for (arguments, sentence) in [
        (&[&id, "--picture", "nine"][..], "has no picture 'nine'"),
        (&[&id, "-f", "svg", "-o", "x"], "name it with --picture"),
        (&["beef", "-o", "x"], "beef"),
        (&[&id, "-o", "nowhere/x"], "cannot write nowhere/x"),
    ] {
        let out = report(arguments);
        assert!(!out.status.success() && out.stdout.is_empty());
        let why = String::from_utf8(out.stderr).unwrap();
        assert!(why.contains(sentence), "{why}");
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), before);
}

#[test]
fn what_cannot_be_imported_is_said_and_changes_nothing() {
    let home = Home::new();
    std::fs::write(home.path().join("empty"), "").unwrap();
    std::fs::write(home.path().join("binary"), [0xff, 0xfe]).unwrap();
    std::fs::write(home.path().join("other.json"), "{\"a\": 1}").unwrap();
    std::fs::write(home.path().join("newer.json"), "{\"schema\": 99}").unwrap();
    let mut named = bulk();
    named.id = "last".to_owned();
    std::fs::write(
        home.path().join("named.json"),
        serde_json::to_string(&named).unwrap(),
    )
    .unwrap();
    for (file, why) in [
        ("missing", "No such file or directory\n"),
        ("empty", "it is not a run of linerate, nor one of iperf3: "),
        ("binary", "it is not text\n"),
        (
            "other.json",
            "it is not a run of linerate, nor one of iperf3: it has no 'start', as iperf3's JSON has\n",
        ),
        (
            "newer.json",
            "it was written by a newer linerate (schema 99, known up to 1)\n",
        ),
    ] {
        let said = home.fails(&["import", file], 2);
        let expected = format!("linerate: cannot import {file}: {why}");
        assert!(said.starts_with(&expected), "{said}");
    }
    assert!(!home.archive().exists());
    assert_eq!(
        home.fails(&["import", "named.json"], 2),
        "linerate: 'last' is not the name of a run: names are 32 hexadecimal digits (8 in older archives)\n"
    );
    // A good file beside a bad one is not kept.
    std::fs::write(
        home.path().join("good.json"),
        serde_json::to_string(&bulk()).unwrap(),
    )
    .unwrap();
    home.fails(&["import", "good.json", "empty"], 2);
    assert_eq!(home.runs(&["list", "--json"]), "[]\n");
    // Another run does not take the place of one that is kept.
    home.runs(&["import", "good.json"]);
    let mut other = bulk();
    other.title = None;
    std::fs::write(
        home.path().join("good.json"),
        serde_json::to_string(&other).unwrap(),
    )
    .unwrap();
    assert_eq!(
        home.fails(&["import", "good.json"], 2),
        "linerate: another run is already kept as 3f00c0de: delete it first (linerate runs delete 3f00c0de)\n"
    );
}

#[test]
fn deleting() {
    let home = Home::with_runs();
    // Not one is deleted unless all are found.
    home.fails(&["delete", "00000001", "77"], 2);
    assert_eq!(home.ids(&[]).len(), 3);
    assert_eq!(
        home.runs(&["delete", "last", "00000001", "3fa"]),
        "deleted 00000001\ndeleted 3fabcdef\n"
    );
    assert_eq!(home.runs(&["delete", "-y", "3f"]), "deleted 3f00c0de\n");
    assert_eq!(home.runs(&["list", "--json"]), "[]\n");
}

#[test]
fn what_is_passed_on_names_nobody() {
    const ORIGINALS: [&str; 9] = [
        "alice",
        "db2",
        "moon-7",
        "10.1.2.3",
        "10.1.2.254",
        "fd00:1::7",
        "0a:1b:2c:3d:4e:5f",
        "disk.img",
        "secrets",
    ];
    let home = Home::new();
    let mut run = bulk();
    run.host = "ssh:alice@db2.example.net:22".to_owned();
    run.title = Some("moon-7 to db2".to_owned());
    let host = |name: &str, own: &str, other: &str| Fingerprint {
        hostname: name.to_owned(),
        route: Some(Route {
            destination: other.parse().ok(),
            gateway: "10.1.2.254".parse().ok(),
            source: own.parse().ok(),
            ..Route::default()
        }),
        ..Fingerprint::default()
    };
    run.local = host("moon-7", "10.1.2.3", "fd00:1::7");
    run.remote = Some(host("db2", "fd00:1::7", "10.1.2.3"));
    run.warnings = vec![Warning {
        what: "db2: cannot open '/home/alice/disk.img' of 0a:1b:2c:3d:4e:5f".to_owned(),
        meaning: "10.1.2.3:5201 had /opt/secrets/nginx: alice's".to_owned(),
        remedy: "ask alice@db2".to_owned(),
    }];
    let mut archive = Archive::open(&home.archive()).unwrap();
    archive.import(&run).unwrap();
    drop(archive);
    let whole = home.runs(&["export", "last"]);
    for original in ORIGINALS {
        assert!(whole.contains(original), "the run has no {original}");
    }
    let mut outputs = vec![home.runs(&["show", "last", "--redact"])];
    for format in ["json", "csv", "prometheus", "iperf3"] {
        outputs.push(home.runs(&["export", "last", "--redact", "-f", format]));
    }
    for format in ["html", "text", "markdown", "json"] {
        outputs.push(home.report(&["last", "--redact", "-f", format, "-o", "-"]));
    }
    for output in &outputs {
        for original in ORIGINALS {
            assert!(!output.contains(original), "{original} in {output}");
        }
    }
    assert!(outputs[5].contains("host-1"), "the page");
    // It is a run still, and the same names stand for the same hosts.
    std::fs::write(home.path().join("redacted.json"), &outputs[1]).unwrap();
    let redacted: Run = serde_json::from_str(&outputs[1]).unwrap();
    let remote = redacted.remote.unwrap();
    assert_eq!(redacted.host, format!("ssh:user-1@{}:22", remote.hostname));
    let (local, remote) = (redacted.local.route.unwrap(), remote.route.unwrap());
    assert_eq!(
        (local.source, local.gateway),
        (remote.destination, remote.gateway)
    );
    assert_eq!(redacted.legs, run.legs);
    home.runs(&["delete", "last"]);
    home.runs(&["import", "redacted.json"]);
    // A document of a file is redacted as one of the archive is.
    let page = home.report(&["redacted.json", "--redact", "-f", "json", "-o", "-"]);
    assert!(page.contains("host-1"));
}

#[test]
fn damage_is_named_and_not_shown() {
    let home = Home::with_runs();
    assert_eq!(home.runs(&["verify"]), "all records are intact\n");
    let archive = Archive::open(&home.archive()).unwrap();
    let traces = archive.traces();
    // The head of a gzip file, and no more.
    let broken = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    traces.store("3fabcdef", 0, Side::Local, &broken).unwrap();
    drop(archive);
    let mut bytes = std::fs::read(home.archive()).unwrap();
    let title = b"before the change";
    let at = bytes.windows(title.len()).rposition(|part| part == title);
    bytes[at.unwrap()] ^= 1;
    std::fs::write(home.archive(), bytes).unwrap();

    let output = home.command(&["verify"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert!(lines[0].starts_with("the trace "), "{printed}");
    assert!(lines[0].contains("of 3fabcdef is missing or damaged"));
    assert!(lines[1].starts_with("the run 3f00c0de in the archive "));
    for arguments in [&["show", "3f00"][..], &["export", "3f00"], &["list"]] {
        let said = home.fails(arguments, 1);
        assert_eq!(
            said,
            "linerate: the run 3f00c0de in the archive ~/.local/share/linerate/runs.db is damaged \
             (its document) and is not shown: 'linerate runs delete 3f00c0de' removes it, and an \
             export of it can be imported again\n"
        );
    }
    assert_eq!(
        home.runs(&["verify", "00000001"]),
        "all records are intact\n"
    );
    home.runs(&["delete", "3f00", "3fab"]);
    assert_eq!(home.runs(&["verify"]), "all records are intact\n");
}

#[test]
fn the_archive_keeps_what_it_is_to_keep() {
    let home = Home::new();
    let file = home.archive();
    let size = || std::fs::metadata(&file).unwrap().len();
    let ids = || home.ids(&[]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_secs();
    let mut archive = Archive::open(&file).unwrap();
    let mut random = model::Random::new(5, 0);
    for day in 0..10 {
        let mut run = bulk();
        run.id = format!("0000000{day}");
        run.started = Nanos::from_secs(now - day * 86_400 - 60);
        run.legs[0].local = end(1, 400);
        // Nothing makes these smaller.
        let latencies = (0..3000).map(|_| (random.bits(), 1));
        run.legs[0].local.samples[1].requests = Some(Latency::from_counts(latencies));
        archive.import(&run).unwrap();
    }
    archive
        .traces()
        .store("00000001", 0, Side::Local, &[0; 300_000])
        .unwrap();
    drop(archive);
    let whole = size();
    let bare = home.command(&["prune"]).output().unwrap();
    assert_eq!(bare.status.code(), Some(2), "a rule is needed");
    let dry = home.runs(&["prune", "--keep-days", "7", "--dry-run"]);
    assert!(dry.contains("\n00000009 ") && dry.contains("3 would be deleted, of "));
    assert_eq!((ids().len(), size()), (10, whole));
    // Either rule keeps.
    home.runs(&["prune", "--keep-days", "1", "--keep", "9"]);
    assert_eq!(ids().len(), 9);
    let said = home.runs(&["prune", "--keep-days", "7"]);
    assert!(said.contains("2 deleted: "), "{said}");
    assert_eq!(ids().last().unwrap(), "00000006");
    assert!(size() < whole * 85 / 100, "{} of {whole}", size());
    home.runs(&["prune", "--keep", "5"]);
    assert_eq!(ids().len(), 5);
    // Of the newest only one fits beside the trace, which is larger than all; then none, and it stays.
    home.runs(&["prune", "--max-bytes", "400KB"]);
    let left = ids();
    assert!((1..5).contains(&left.len()), "{left:?}");
    assert_eq!(left[0], "00000000");
    let traces = file.with_file_name("runs.db.traces");
    let traced = |file: std::io::Result<std::fs::DirEntry>| file.unwrap().metadata().unwrap().len();
    let traced: u64 = std::fs::read_dir(&traces).map_or(0, |all| all.map(traced).sum());
    assert!(size() + traced <= 400_000, "{} and {traced}", size());
    home.runs(&["prune", "--max-bytes", "1"]);
    assert_eq!(ids(), ["00000000"]);
    assert!(!traces.exists());
    // What is recorded stays, and what was killed goes.
    let mut archive = Archive::open(&file).unwrap();
    for (id, age) in [("aaaaaaaa", 120), ("bbbbbbbb", 3 * 86_400)] {
        let mut run = killed();
        run.id = id.to_owned();
        run.started = Nanos::from_secs(now - age);
        archive.import(&run).unwrap();
    }
    drop(archive);
    assert_eq!(ids(), ["00000000", "aaaaaaaa", "bbbbbbbb"]);
    home.runs(&["prune", "--max-bytes", "1"]);
    assert_eq!(ids(), ["00000000", "aaaaaaaa"]);
    assert_eq!(home.runs(&["verify"]), "all records are intact\n");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let home = Home::with_runs();
    // Longer than a pipe holds.
    let mut long = bulk();
    long.id = "0000beef".to_owned();
    long.legs[0].local = end(1, 5_000);
    Archive::open(&home.archive())
        .unwrap()
        .import(&long)
        .unwrap();
    for arguments in [&["list"][..], &["export", "0000beef"]] {
        let mut child = home
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut first)
            .unwrap();
        assert_ne!(first, "");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
}

#[test]
fn an_export_that_fails_leaves_the_file_as_it_was() {
    let home = Home::with_runs();
    let said = home.fails(&["export", "last", "-o", "no/such/run.json"], 1);
    assert_eq!(
        said,
        "linerate: cannot write no/such/run.json: No such file or directory\n"
    );
    std::fs::write(home.path().join("kept.json"), "kept").unwrap();
    // A file size limit stands for a full disk: the archive is read all the same, and the file is not
    // replaced by half of another.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_linerate"))
        .args(["runs", "export", "3f00", "-o", "kept.json"])
        .env("HOME", home.path())
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("linerate: cannot write kept.json: "),
        "{said}"
    );
    let kept = |name: &str| std::fs::read_to_string(Path::new(home.path()).join(name)).unwrap();
    assert_eq!(kept("kept.json"), "kept");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2);
}

#[test]
fn help_teaches_by_examples() {
    let home = Home::new();
    for command in [
        "list", "show", "export", "import", "pack", "delete", "prune", "verify", "serve",
    ] {
        let help = home.runs(&[command, "--help"]);
        assert!(help.contains("EXAMPLES\n  linerate "), "{help}");
        assert!(
            help.lines().all(|line| line.chars().count() <= 80),
            "{help}"
        );
    }
}

#[test]
fn a_capture_that_is_put_is_explained_and_not_kept() {
    let home = Home::new();
    home.runs(&["list"]);
    let uploads = home.path().join("uploads");
    std::fs::create_dir(&uploads).unwrap();
    Archive::open(&home.archive()).unwrap();
    let served = Served::begin(&home);
    let index = served.page("/");
    assert!(index.contains("id=\"capture\""), "{index}");
    let put = |name: &str, length: usize, body: &[u8]| {
        let head = format!(
            "PUT /capture.html?name={name} HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\n\r\n",
            served.address
        );
        served.raw([head.as_bytes(), body].concat())
    };
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pure/requests/tests/captures");
    let capture = std::fs::read(captures.join("nfs3.pcap")).unwrap();
    let page = put("..%2F%3Cb%3Enfs3.pcap", capture.len(), &capture);
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    assert!(
        page.contains("What limited the connections in bnfs3.pcap"),
        "{page}"
    );
    assert!(
        page.contains("requests were answered") && !page.contains("uploads"),
        "{page}"
    );
    let other = put("notes.txt", 5, b"hello");
    assert!(other.starts_with("HTTP/1.1 400"), "{other}");
    assert!(other.contains("no capture (pcap, pcapng)"), "{other}");
    let short = put(
        "nfs3.pcap",
        capture.len() / 2,
        &capture[..capture.len() / 2],
    );
    assert!(
        short.starts_with("HTTP/1.1 200 OK"),
        "a capture may be cut off: {short}"
    );
    let long = put("nfs3.pcap", 256 * 1024 * 1024 + 1, b"");
    assert!(long.starts_with("HTTP/1.1 413"), "{long}");
    assert_eq!(uploads.read_dir().unwrap().count(), 0);
}
