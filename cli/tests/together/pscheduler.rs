//! The methods of a tool of pScheduler, and a whole test of two participants over loopback.

use crate::common::{Home, Running, free_port, stderr};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Output, Stdio};
use std::time::Duration;

/// What the result of a throughput test may have (pScheduler 5.2, `pscheduler-test-throughput`): nothing else is allowed.
const RESULT: &str = r##"{
  "type": "object", "additionalProperties": false,
  "required": ["succeeded", "diags", "intervals", "summary"],
  "properties": {
    "schema": {"type": "integer"}, "succeeded": {"type": "boolean"}, "error": {"type": "string"}, "diags": {"type": "string"},
    "mss": {"type": "integer"}, "mtu": {"type": "integer"}, "tcp-window-size": {"type": "integer"},
    "requested-tcp-window-size": {"type": "integer"},
    "intervals": {"type": "array", "items": {"$ref": "#/$defs/part"}}, "summary": {"$ref": "#/$defs/part"}},
  "$defs": {
    "part": {"type": "object", "properties": {
      "streams": {"type": "array", "items": {"$ref": "#/$defs/data"}}, "summary": {"$ref": "#/$defs/data"}}},
    "data": {"type": "object", "additionalProperties": false, "properties": {
      "throughput-bits": {"type": "number"}, "throughput-bytes": {"type": "number"}, "receiver-throughput-bits": {"type": "number"},
      "sent": {"type": ["integer", "null"]}, "lost": {"type": ["integer", "null"]}, "jitter": {"type": ["number", "null"]},
      "stream-id": {"type": ["string", "integer"]}, "start": {"type": "number"}, "end": {"type": "number"},
      "rtt": {"type": ["number", "null"]}, "tcp-window-size": {"type": ["integer", "null"]},
      "retransmits": {"type": ["integer", "null"]}, "omitted": {"type": "boolean"}}}}}"##;

fn start(home: &Home, method: &[&str], input: &Value) -> Running {
    let mut command = home.linerate(&[&["pscheduler"], method].concat());
    // Two hosts on this machine: each has a calendar of its own.
    command.env("LINERATE_STATE", home.path().join("state/tune"));
    command.env("TMPDIR", home.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Running(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut to = child.0.stdin.take().unwrap();
    to.write_all(input.to_string().as_bytes()).unwrap();
    child
}

fn call(home: &Home, method: &[&str], input: &Value) -> Output {
    start(home, method, input).output(Duration::from_secs(30))
}

fn answer(out: &Output) -> Value {
    assert!(out.status.success(), "{}", stderr(out));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Both participants run the test; what is merged of their results.
fn play(spec: &Value) -> Value {
    let homes = [Home::new(), Home::new()];
    let source = &homes[0];
    let test = json!({"type": "throughput", "spec": spec});
    assert_eq!(
        answer(&call(source, &["can-run"], &test)),
        json!({"can-run": true})
    );
    let length = answer(&call(source, &["duration"], &test))["duration"].clone();
    let port = free_port().to_string();
    let data = [0, 1].map(|number| {
        let method = ["participant-data", "--port", &port];
        answer(&call(
            &homes[number],
            &method,
            &json!({"participant": number}),
        ))
    });
    // In the past: the destination begins at once, and the source as soon as it listens.
    let schedule = json!({"start": now(), "duration": length});
    let run = |number: usize| {
        let input = json!({"schedule": schedule, "test": test, "participant": number, "participant-data": data});
        start(&homes[number], &["run"], &input)
    };
    let (second, first) = (run(1), run(0));
    let results = [first, second].map(|one| answer(&one.output(Duration::from_secs(60))));
    assert_eq!(results[1]["succeeded"], true, "{}", results[1]);
    let merged = answer(&call(
        source,
        &["merged-results"],
        &json!({"test": test, "results": results}),
    ));
    let checked = Home::new();
    let [schema, result] = ["schema", "result"].map(|name| checked.path().join(name));
    std::fs::write(&schema, RESULT).unwrap();
    std::fs::write(&result, merged.to_string()).unwrap();
    let mut python = std::process::Command::new("python3");
    python
        .args(["-m", "jsonschema", "-i"])
        .args([&result, &schema]);
    let out = python.output().unwrap();
    assert!(out.status.success(), "{}{merged}", stderr(&out));
    for home in &homes {
        let left = std::fs::read_dir(home.path()).unwrap().flatten();
        let mut names = left.map(|file| file.file_name().into_string().unwrap());
        assert!(
            !names.any(|name| name.starts_with("linerate-pscheduler-")),
            "a key stays"
        );
    }
    merged
}

/// Now, as pScheduler writes it.
fn now() -> String {
    let mut date = std::process::Command::new("date");
    let out = date
        .args(["-u", "+%Y-%m-%dT%H:%M:%S+00:00"])
        .output()
        .unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_test_of_four_streams_has_the_figures_of_both_ends() {
    let merged = play(&json!({
        "schema": 7, "source": "127.0.0.1", "dest": "127.0.0.1", "duration": "PT2S", "omit": "PT1S", "parallel": 4,
        "fq-rate": 20_000_000, "link-rtt": "PT0.001S",
    }));
    assert_eq!(merged["succeeded"], true, "{merged}");
    assert_eq!(merged["intervals"].as_array().unwrap().len(), 3);
    assert_eq!(merged["intervals"][0]["summary"]["omitted"], true);
    let summary = &merged["summary"];
    assert_eq!(summary["streams"].as_array().unwrap().len(), 4);
    let sum = &summary["summary"];
    let received = sum["receiver-throughput-bits"].as_f64().unwrap();
    assert!((7e7..8.1e7).contains(&received), "{sum}");
    assert!(
        sum["throughput-bits"].as_f64().unwrap() >= received * 0.9,
        "{sum}"
    );
    assert_eq!(sum["start"].as_f64().unwrap().round(), 1.0);
    let diags = merged["diags"].as_str().unwrap();
    assert!(diags.contains("Limited by pacing"), "{diags}");
    assert!(diags.contains("linerate's run "), "{diags}");
    assert!(diags.contains("session 1 ended"), "{diags}");
}

#[test]
fn datagrams_in_the_other_direction_are_counted_by_their_receiver() {
    let merged = play(&json!({
        "schema": 1, "dest": "127.0.0.1", "duration": "PT1S", "udp": true, "reverse": true, "bandwidth": 4_000_000,
        "buffer-length": 1000, "link-rtt": "PT0.001S",
    }));
    assert_eq!(merged["succeeded"], true, "{merged}");
    let sum = &merged["summary"]["summary"];
    let sent = sum["sent"].as_u64().unwrap();
    assert!((400..=510).contains(&sent), "{sum}");
    assert!(
        sum["lost"].as_u64().unwrap() < sent && sum["jitter"].is_number(),
        "{sum}"
    );
}

#[test]
fn what_cannot_be_run_is_named_and_a_lost_participant_is_a_failure() {
    let home = Home::new();
    let enumerated = answer(&call(&home, &["enumerate"], &json!({})));
    assert_eq!(enumerated["tests"], json!(["throughput"]));
    let reasons = |test: Value| -> Vec<String> {
        let answer = answer(&call(&home, &["can-run"], &test));
        assert_eq!(answer["can-run"], false);
        let reasons = answer["reasons"].as_array().unwrap().iter();
        reasons
            .map(|reason| reason.as_str().unwrap().to_owned())
            .collect()
    };
    let spec = json!({
        "schema": 8, "dest": "a", "flow-label": 3, "single-ended": true, "duration": "ten", "loopback": false, "ip-tos": 185,
    });
    let named = reasons(json!({"type": "throughput", "spec": spec})).join("; ");
    for part in [
        "schema 8",
        "'flow-label'",
        "'single-ended'",
        "'duration' is \"ten\"",
        "ip-tos 185",
    ] {
        assert!(named.contains(part), "{part}: {named}");
    }
    assert!(!named.contains("loopback"), "{named}");
    let both = json!({"schema": 1, "dest": "a", "parallel": 0});
    assert!(reasons(json!({"type": "throughput", "spec": both}))[0].contains("--streams"));
    assert_eq!(
        reasons(json!({"type": "rtt", "spec": {}})),
        ["tests of type throughput are possible"]
    );

    // As other tools: ten seconds, an RTT of 200 ms; and more for what is omitted.
    let length = |spec: Value| {
        answer(&call(&home, &["duration"], &json!({"spec": spec})))["duration"].clone()
    };
    assert_eq!(length(json!({})), "PT24S");
    assert_eq!(
        length(json!({"duration": "PT20S", "omit": "PT5S", "link-rtt": "PT0.01S"})),
        "PT32S"
    );

    // Nobody listens.
    let data = answer(&call(
        &home,
        &["participant-data"],
        &json!({"participant": 1}),
    ));
    let test = json!({"spec": {"schema": 1, "dest": "127.0.0.1", "duration": "PT1S"}});
    let mut input = json!({
        "schedule": {"start": now(), "duration": "PT8S"}, "test": test, "participant": 0, "participant-data": [{}, data],
    });
    input["participant-data"][1]["port"] = json!(free_port());
    let lost = answer(&call(&home, &["run"], &input));
    assert_eq!(lost["succeeded"], false);
    assert!(
        lost["error"].as_str().unwrap().contains("nothing listens"),
        "{lost}"
    );

    for (method, input, part) in [
        (
            "run",
            json!({"participant": 0}),
            "standard input is not what this method gets",
        ),
        (
            "participant-data",
            json!({"participant": 2}),
            "neither 0 nor 1",
        ),
        (
            "merged-results",
            json!({"results": [{}]}),
            "not those of two participants",
        ),
    ] {
        let out = call(&home, &[method], &input);
        assert_eq!(out.status.code(), Some(2), "{method}");
        assert!(stderr(&out).contains(part), "{}", stderr(&out));
    }
}
