//! A run as a data file of flent (version 4 of its form), so that its plots and its comparisons open it.
//!
//! Flent draws a data file by the test that it names, so a run takes the name of the test that is like it:
//! `tcp_nup`, `tcp_ndown` or `tcp_bidirectional`. What the kernel reported of the sockets stands where flent keeps what
//! `ss` reports it (`tcp_rtt`, `tcp_cwnd`, ...). Nothing stands in for flent's pings: none were sent.

use crate::prelude::*;
use model::{EndRecord, Exchange, StreamSample};
use serde_json::{Map, json};

/// Version of flent's form.
const VERSION: u32 = 4;

/// The document, to be compressed with gzip into a file whose name ends with `.flent.gz`.
///
/// # Errors
/// A sentence, if flent has no test of such a workload, or nothing was measured.
pub fn json(run: &Run) -> Result<String, String> {
    let kind = run.spec.workload.kind();
    if kind.exchange != Exchange::Stream {
        let kind = kind.name;
        return Err(format!(
            "flent has no test that is like a run of workload {kind}: export it as JSON or CSV"
        ));
    }
    let has = |way| run.legs.iter().any(|leg| leg.direction == way);
    let both = has(Direction::Up) && has(Direction::Down);
    let streams = run.spec.streams;
    let (test, parameters) = match has(Direction::Up) {
        _ if both => ("tcp_bidirectional", json!({})),
        true => ("tcp_nup", json!({"upload_streams": streams.to_string()})),
        false => (
            "tcp_ndown",
            json!({"download_streams": streams.to_string()}),
        ),
    };
    let step = run.spec.interval.max(Nanos(1));
    let mut series: BTreeMap<String, FlentSeries> = BTreeMap::new();
    for leg in &run.legs {
        let name = match leg.direction {
            Direction::Up => "TCP upload",
            Direction::Down => "TCP download",
        };
        if both {
            let only = (streams == 1).then_some(0);
            let sum = |sample: &Sample| Some(sample.bytes);
            series.insert(name.to_owned(), FlentSeries::of(run, leg, step, sum, only));
            continue;
        }
        for stream in 0..streams {
            let own = |sample: &Sample| Some(stream_of(sample, stream)?.bytes);
            let of = FlentSeries::of(run, leg, step, own, Some(stream));
            series.insert(format!("{name}::{}", stream + 1), of);
        }
    }
    // Flent's series share their moments: a grid of the interval.
    let moments = || series.values().flat_map(|s| s.rates.keys());
    let (Some(&first), Some(&last)) = (moments().min(), moments().max()) else {
        let id = &run.id;
        return Err(format!("run {id} has no two samples to make a series of"));
    };
    let seconds = |at: u64| Nanos(at * step.0).as_secs_f64();
    let (mut results, mut about, mut raw) = (Map::new(), Map::new(), Map::new());
    for (name, s) in series {
        let values: Vec<_> = (first..=last).map(|at| s.rates.get(&at)).collect();
        let mean = s.rates.values().sum::<f64>() / s.rates.len().max(1) as f64;
        results.insert(name.clone(), json!(values));
        about.insert(
            name.clone(),
            json!({"UNITS": "Mbits/s", "MEAN_VALUE": mean}),
        );
        raw.insert(name, s.raw.into());
    }
    let started = iso(run.started);
    Ok(pretty(&json!({
        "version": VERSION,
        "metadata": {
            "NAME": test,
            "TITLE": run.title,
            "NOTE": format!("run {} of linerate", run.id),
            "HOST": run.host,
            "HOSTS": [run.host],
            "LOCAL_HOST": run.local.hostname,
            "TIME": started,
            "T0": started,
            "LENGTH": seconds(last).ceil(),
            "TOTAL_LENGTH": seconds(last).ceil(),
            "STEP_SIZE": step.as_secs_f64(),
            "TEST_PARAMETERS": parameters,
            "SERIES_META": about,
        },
        "x_values": (first..=last).map(seconds).collect::<Vec<_>>(),
        "results": results,
        "raw_values": raw,
    })))
}

/// A series of flent.
struct FlentSeries {
    /// Mbit/s by the number of the interval since the start of the run.
    rates: BTreeMap<u64, f64>,
    raw: Vec<Value>,
}

impl FlentSeries {
    /// Of a leg: its bytes as the receiver took them, and the socket of one stream at its sender.
    fn of(
        run: &Run,
        leg: &Leg,
        step: Nanos,
        bytes: impl Fn(&Sample) -> Option<Bytes>,
        stream: Option<u32>,
    ) -> FlentSeries {
        let many = |end: &&EndRecord| end.samples.len() > 2;
        let counted = Some(leg.receiver()).filter(many);
        let counted = counted.unwrap_or(leg.sender());
        let unix = |at: Nanos| (run.started + leg.started + at).as_secs_f64();
        let (mut rates, mut raw) = (BTreeMap::new(), Vec::new());
        for pair in counted.samples.windows(2) {
            let [before, now] = pair else { continue };
            let span = now.at.since(before.at);
            // What is left over at the end is no interval.
            if span.0 < step.0 / 2 {
                continue;
            }
            let (Some(from), Some(to)) = (bytes(before), bytes(now)) else {
                continue;
            };
            let rate = to.since(from).per(span).0 as f64 / 1e6;
            let at = (leg.started + now.at).0;
            rates.insert((at + step.0 / 2) / step.0, rate);
            raw.push(json!({"t": unix(now.at), "val": rate}));
        }
        let sockets = leg.sender().samples.iter().filter_map(|sample| {
            let tcp = stream_of(sample, stream?)?.tcp.as_ref()?;
            Some(json!({
                "t": unix(sample.at),
                "tcp_rtt": tcp.srtt()?.as_secs_f64() * 1e3,
                "tcp_cwnd": tcp.cwnd()?,
            }))
        });
        raw.extend(sockets);
        FlentSeries { rates, raw }
    }
}

fn stream_of(sample: &Sample, stream: u32) -> Option<&StreamSample> {
    sample.streams.iter().find(|s| s.stream == stream)
}

/// `2026-11-20T20:17:16.000001Z`, as flent reads moments.
fn iso(unix: Nanos) -> String {
    let text = utc(unix).replacen(' ', "T", 1).replace(" UTC", "");
    format!("{text}.{:06}Z", unix.0 / 1_000 % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, LAN, LOSSY};
    use model::Workload;

    fn read(run: &Run) -> Value {
        serde_json::from_str(&json(run).unwrap()).unwrap()
    }

    #[test]
    fn a_way_has_a_series_for_each_stream() {
        let mut run = testing::run(testing::spec(), vec![testing::leg(Direction::Up, LAN)]);
        run.started += Nanos::from_micros(1);
        let file = read(&run);
        assert_eq!(file["version"], 4);
        assert_eq!(file["metadata"]["NAME"], "tcp_nup");
        assert_eq!(file["metadata"]["TIME"], "2026-11-20T20:17:16.000001Z");
        let rates = &file["results"]["TCP upload::1"];
        assert_eq!(rates[0], 471.5, "it starts at half its rate");
        assert_eq!(rates[9], 943.0);
        assert_eq!(file["x_values"][9], 10.0);
        let raw = file["raw_values"]["TCP upload::1"].as_array().unwrap();
        assert!(
            raw.iter()
                .any(|r| r["tcp_rtt"] == 1.9 && r["tcp_cwnd"] == 410)
        );
    }

    #[test]
    fn two_ways_follow_each_other_on_one_grid() {
        let mut down = testing::leg(Direction::Down, LOSSY);
        down.started = Nanos::from_millis(10_100);
        let run = testing::run(
            testing::spec(),
            vec![testing::leg(Direction::Up, LAN), down],
        );
        let file = read(&run);
        assert_eq!(file["metadata"]["NAME"], "tcp_bidirectional");
        assert_eq!(file["x_values"].as_array().unwrap().len(), 20);
        let (up, down) = (
            &file["results"]["TCP upload"],
            &file["results"]["TCP download"],
        );
        assert_eq!((&up[9], &down[9]), (&json!(943.0), &Value::Null));
        assert_eq!((&up[10], &down[10]), (&Value::Null, &json!(31.0)));
    }

    #[test]
    fn what_flent_has_no_test_for_is_said() {
        let mut spec = testing::spec();
        spec.workload = Workload::Request(testing::request());
        let run = testing::run(spec, vec![testing::request_leg(100)]);
        assert!(json(&run).unwrap_err().contains("workload request"));
        let empty = testing::run(testing::spec(), Vec::new());
        assert!(json(&empty).unwrap_err().contains("no two samples"));
    }
}
