//! One capture, one answer: `explain`, `explain --requests`, `diff` and `report` show the same figures of a connection, and
//! the true ones. The captures are generated, so that the truth is known (see `common/generated.rs`): clocks that differ by
//! seconds and by up to 500 ppm, acknowledgements delayed by 5 to 60 ms, 1 % of segments lost, needless retransmissions,
//! packets recorded twice, observers at the client, in the middle, at the server, and at both ends.
//!
//! What it reads: `stream` of each explanation and `streams` of requests and pages ([`StreamFigures`]), and `clocks` of two
//! captures.

use crate::common::{Home, json};
use crate::generated::{Case, Load, MS, Place, Recording, client};
use model::{PathFigures, StreamFigures, Vantage};
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

const CASES: u64 = 200;
/// From here on a delayed acknowledgement is one beyond doubt: half of `TCP_DELACK_MIN`, and beyond the round trip.
const SURELY_DELAYED: u64 = 35 * MS;

#[test]
fn generated_captures_have_one_answer_and_the_true_one() {
    let next = AtomicU64::new(0);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut wrong = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= CASES {
                            return wrong;
                        }
                        wrong.extend(Check::of(seed).wrong);
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    let shown: Vec<&str> = wrong.iter().take(40).map(String::as_str).collect();
    assert!(
        wrong.is_empty(),
        "{} answers are wrong:\n{}",
        wrong.len(),
        shown.join("\n")
    );
}

/// Every fixture of the tree that is a capture: the outputs agree, whatever the truth is.
#[test]
fn recorded_captures_have_one_answer() {
    let home = Home::new();
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../pure/requests/tests/captures"
    );
    let mut files: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 7, "{files:?}");
    for file in files {
        let mut check = Check {
            name: file.display().to_string(),
            wrong: Vec::new(),
        };
        check.outputs_agree(&home, file.to_str().unwrap());
        assert!(check.wrong.is_empty(), "{}", check.wrong.join("\n"));
    }
}

struct Check {
    name: String,
    wrong: Vec<String>,
}

impl Check {
    fn of(seed: u64) -> Check {
        let case = Case::drawn(seed);
        let recording = case.play();
        let mut check = Check {
            name: format!("seed {seed} ({:?})", case.load),
            wrong: Vec::new(),
        };
        let home = Home::new();
        let write = |place: Place| {
            let path = home.path().join(format!("{place:?}.pcap"));
            fs::write(&path, recording.pcap(place)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (at_client, at_server) = (write(Place::Client), write(Place::Server));
        for place in [Place::Client, Place::Middle, Place::Server] {
            let file = write(place);
            let (streams, requests) = check.outputs_agree(&home, &file);
            check.one_place(&case, &recording, place, &streams, &requests);
        }
        check.two_places(&case, &recording, &home, [&at_client, &at_server]);
        check
    }

    fn is(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.wrong.push(format!("{}: {}", self.name, what()));
        }
    }

    /// The streams of a file by `explain`, which every other output repeats; and its requests.
    fn outputs_agree(&mut self, home: &Home, file: &str) -> (Vec<StreamFigures>, Value) {
        let run = |args: &[&str]| json(&mut home.linerate(args));
        let explained = run(&["explain", file, "--json"]);
        let requests = run(&["explain", "--requests", file, "--json"]);
        let difference = run(&["diff", file, file, "--json"]);
        let page = run(&["report", file, "--format", "json"]);
        let streams = of_explanations(&explained["explanations"]);
        let same = |own: &[StreamFigures], other: &[StreamFigures]| {
            // Each output shows the streams that it has to do with: those that both show are equal.
            let pairs = own.iter().filter_map(|a| {
                let b = other
                    .iter()
                    .find(|b| (b.sender, b.receiver) == (a.sender, a.receiver))?;
                Some((a.clone(), b.clone()))
            });
            let pairs: Vec<_> = pairs.collect();
            assert!(
                !pairs.is_empty() || own.is_empty(),
                "no stream of one is in the other: {own:?} {other:?}"
            );
            pairs.into_iter().find(|(a, b)| a != b)
        };
        for (what, others) in [
            ("requests", of_streams(&requests["streams"])),
            ("diff a", of_explanations(&difference["a"]["explanations"])),
            ("diff b", of_explanations(&difference["b"]["explanations"])),
            ("report", of_streams(&page["streams"])),
        ] {
            let other = same(&streams, &others);
            self.is(other.is_none(), || {
                format!("{file}: explain and {what} differ: {other:#?}")
            });
        }
        (streams, requests)
    }

    fn one_place(
        &mut self,
        case: &Case,
        recording: &Recording,
        place: Place,
        streams: &[StreamFigures],
        requests: &Value,
    ) {
        for n in 0..case.connections {
            let truth = recording.truth(place, n);
            let Some(stream) = streams.iter().find(|s| s.sender.to_string() == client(n)) else {
                self.is(false, || format!("{place:?}: {} is missing", client(n)));
                continue;
            };
            let vantage = match place {
                Place::Client => Vantage::AtSender,
                Place::Middle => Vantage::Between,
                Place::Server => Vantage::AtReceiver,
            };
            for (what, found, true_one) in [
                ("segments", stream.segments, truth.segments),
                (
                    "retransmissions",
                    stream.retransmissions,
                    truth.retransmissions,
                ),
                ("capture duplicates", stream.capture_duplicates, truth.twice),
            ] {
                self.is(found == true_one, || {
                    format!(
                        "{place:?} {}: {found} {what}, {true_one} are true",
                        client(n)
                    )
                });
            }
            self.is(stream.vantage == vantage, || {
                format!("{place:?} {}: {:?}", client(n), stream.vantage)
            });
            // DSACKs show them, and acknowledgements; a few at the end of a capture do not come.
            let (found, needless) = (stream.needless_retransmissions, truth.needless);
            self.is(found.abs_diff(needless) <= 1 + needless / 10, || {
                format!(
                    "{place:?} {}: {found} needless retransmissions, {needless} are true",
                    client(n)
                )
            });
        }
        let Load::Requests { count, held, .. } = case.load else {
            return;
        };
        // What explain and requests put on delayed acknowledgements is the same time.
        let of_streams: u64 = streams
            .iter()
            .filter(|s| s.sender.to_string().starts_with("192.0.2.1"))
            .map(|s| s.delayed_ack.0)
            .sum();
        let causes = requests["operations"].as_array().unwrap().iter();
        let of_requests: u64 = causes
            .map(|o| o["causes"]["delayed_ack_ns"].as_u64().unwrap())
            .sum();
        let local = |a: u64, b: u64, share: f64| a.abs_diff(b) as f64 <= share * a.max(b) as f64;
        self.is(local(of_streams, of_requests, 0.01), || {
            format!("{place:?}: {of_streams} ns behind delayed ACKs by explain, {of_requests} by requests")
        });
        let all = u64::from(count) * u64::from(case.connections) * held;
        let right = match held >= SURELY_DELAYED {
            true => local(of_streams, all, 0.1),
            // Whether it was delayed is a matter of the threshold; if so, by no more than was true.
            false => of_streams <= all + all / 10,
        };
        self.is(right, || {
            format!("{place:?}: {of_streams} ns behind delayed ACKs, {all} are true")
        });
        let took: u64 = recording.requests.iter().sum();
        let operations = requests["operations"].as_array().unwrap().iter();
        let parts = [
            "call_send_ns",
            "forward_ns",
            "think_ns",
            "reply_send_ns",
            "reverse_ns",
        ];
        let found: u64 = operations
            .flat_map(|o| parts.map(|part| o["parts"][part].as_u64().unwrap()))
            .sum();
        self.is(local(found, took, 0.02), || {
            format!("{place:?}: requests took {found} ns, {took} are true")
        });
    }

    fn two_places(&mut self, case: &Case, recording: &Recording, home: &Home, files: [&str; 2]) {
        let run = |args: &[&str]| json(&mut home.linerate(args));
        let explained = run(&["explain", files[0], files[1], "--json"]);
        let requests = run(&["explain", "--requests", files[0], files[1], "--json"]);
        let truth = recording.clocks();
        let clocks = &explained["clocks"];
        self.is(*clocks == requests["clocks"], || {
            format!(
                "explain has the clocks {clocks}, requests {}",
                requests["clocks"]
            )
        });
        let figure = |key: &str| clocks[key].as_f64().unwrap_or(f64::NAN);
        let (offset, drift, error) = (figure("offset_ns"), figure("drift_ppm"), figure("error_ns"));
        self.is((offset - truth.offset_ns).abs() <= error + 1.0, || {
            format!(
                "offset {offset} ns within {error}, {} is true",
                truth.offset_ns
            )
        });
        self.is(error <= case.delay as f64 * 1.2, || {
            format!("the clocks are known within {error} ns only")
        });
        self.is(
            (drift - truth.drift_ppm).abs() <= 10.0 || matches!(case.load, Load::Requests { .. }),
            || format!("drift {drift} ppm, {} is true", truth.drift_ppm),
        );
        for stream in of_explanations(&explained["explanations"]) {
            let Some(n) = (0..case.connections).find(|n| client(*n) == stream.sender.to_string())
            else {
                continue;
            };
            let truth = recording.truth(Place::Client, n);
            let Some(PathFigures {
                forward_median,
                error,
                ..
            }) = stream.path
            else {
                self.is(false, || format!("{}: nothing of both places", client(n)));
                continue;
            };
            for (what, found, true_one) in [
                (
                    "retransmissions",
                    stream.retransmissions,
                    truth.retransmissions,
                ),
                (
                    "needless ones",
                    stream.needless_retransmissions,
                    truth.needless,
                ),
            ] {
                self.is(found == true_one, || {
                    format!("both places: {found} {what}, {true_one} are true")
                });
            }
            if matches!(case.load, Load::Bulk { .. }) {
                let apart = forward_median.0.abs_diff(recording.forward_queueing);
                // The median of a connection is not that of all: a few microseconds of queueing lie between.
                self.is(apart <= error.0 + 20_000, || {
                    format!("forward delay {forward_median} beyond the smallest within {error}, {} ns are true", recording.forward_queueing)
                });
                self.is(error.0 <= 200_000, || {
                    format!("one-way delays are known within {error} only")
                });
            }
        }
    }
}

fn of_explanations(all: &Value) -> Vec<StreamFigures> {
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .filter_map(|e| serde_json::from_value(e["stream"].clone()).ok())
        .collect()
}

fn of_streams(all: &Value) -> Vec<StreamFigures> {
    serde_json::from_value(all.clone()).unwrap_or_default()
}
