//! A run as the result of a `throughput` test of pScheduler (perfSONAR): its result schema is closed, so that nothing else is
//! in it. Rates are bits per second, times seconds, RTTs microseconds, jitter milliseconds.

use crate::iperf3::{of_stream, socket_number, with};
use model::{Bytes, EndRecord, Nanos, Run, Sample, SocketState};
use serde_json::{Value, json};

/// The first leg of a run. Rows are `interval` long; what lies within `omit` from its start is shown as omitted, and is not in
/// the summary. `diags` is text for people.
pub fn result(run: &Run, interval: Nanos, omit: Nanos, diags: &str) -> Value {
    let Some(leg) = run.legs.first() else {
        return failure("nothing was measured", diags);
    };
    let (sender, receiver) = (leg.sender(), leg.receiver());
    let numbers = 0..run.spec.streams;
    let entries = |from: &Sample, to: &Sample| -> Value {
        let streams = numbers
            .clone()
            .map(|stream| of_streams(from, to, Some(stream)));
        json!({"streams": streams.collect::<Vec<_>>(), "summary": of_streams(from, to, None)})
    };
    let ends = ends(sender, interval.max(run.spec.interval));
    let rows = ends.windows(2).map(|pair| {
        let [from, to] = [pair[0], pair[1]];
        let middle = Nanos(from.at.0.midpoint(to.at.0));
        let mut row = entries(from, to);
        let omitted = json!(middle < omit);
        row["summary"]["omitted"] = omitted.clone();
        for stream in row["streams"].as_array_mut().into_iter().flatten() {
            stream["omitted"] = omitted.clone();
        }
        row
    });
    let intervals: Vec<Value> = rows.collect();
    let mut summary = entries(&after(sender, omit), &whole(sender));
    let (from, to) = (after(receiver, omit), whole(receiver));
    let counted = to.datagrams.map(|to| {
        let from = from.datagrams.unwrap_or_default();
        json!({
            "sent": to.packets.saturating_sub(from.packets),
            "lost": to.lost.saturating_sub(from.lost),
            "jitter": to.jitter.0 as f64 / 1e6,
        })
    });
    let received = to.bytes.since(from.bytes).per(to.at.since(from.at));
    let of_both = with(summary["summary"].take(), counted.unwrap_or_default());
    summary["summary"] = with(of_both, json!({"receiver-throughput-bits": received.0}));
    json!({"succeeded": true, "diags": diags, "intervals": intervals, "summary": summary})
}

/// Of a test that measured nothing.
pub fn failure(why: &str, diags: &str) -> Value {
    json!({"succeeded": false, "error": why, "diags": diags, "intervals": [], "summary": {}})
}

/// The sample that is nearest to a moment.
fn nearest(record: &EndRecord, at: Nanos) -> Option<&Sample> {
    let behind = record.samples.partition_point(|sample| sample.at < at);
    let around = &record.samples[behind.saturating_sub(1)..record.samples.len().min(behind + 1)];
    around
        .iter()
        .min_by_key(|sample| sample.at.0.abs_diff(at.0))
}

/// The samples between which the rows lie; a last row of less than half an interval belongs to the one before.
fn ends(record: &EndRecord, interval: Nanos) -> Vec<&Sample> {
    let rows = (record.duration.0 + interval.0 / 2) / interval.0.max(1);
    let all = (0..rows.max(1)).map(|row| nearest(record, Nanos(row * interval.0)));
    let mut ends: Vec<&Sample> = all.chain([record.samples.last()]).flatten().collect();
    ends.dedup_by_key(|sample| sample.at);
    ends
}

/// What had been counted at a moment: nothing if there is no start to omit.
fn after(record: &EndRecord, omit: Nanos) -> Sample {
    let begin = Some(omit).filter(|omit| *omit > Nanos(0));
    begin
        .and_then(|omit| nearest(record, omit).cloned())
        .unwrap_or_default()
}

/// The last sample, with what the host counted until the end.
fn whole(record: &EndRecord) -> Sample {
    let last = record.samples.last().cloned().unwrap_or_default();
    Sample {
        at: record.duration,
        bytes: record.bytes,
        datagrams: record.datagrams.or(last.datagrams),
        ..last
    }
}

/// What one stream, or all together, did between two samples of the sender.
fn of_streams(from: &Sample, to: &Sample, stream: Option<u32>) -> Value {
    let one =
        |sample: &Sample, number: u32| of_stream(sample, number).next().map(|stream| stream.bytes);
    let bytes = |sample: &Sample| match stream {
        Some(number) if sample.streams.len() > 1 => one(sample, number).unwrap_or(Bytes(0)),
        _ => sample.bytes,
    };
    let sockets = |sample: &Sample| -> Vec<SocketState> {
        let streams = sample
            .streams
            .iter()
            .filter(|of| stream.is_none_or(|number| of.stream == number));
        streams.filter_map(|of| of.tcp.clone()).collect()
    };
    let (before, now) = (sockets(from), sockets(to));
    let total = |all: &[SocketState]| -> u64 {
        all.iter()
            .filter_map(|tcp| tcp.total_retrans().map(u64::from))
            .sum()
    };
    let moved = bytes(to).since(bytes(from));
    let span = to.at.since(from.at);
    let mut entry = json!({
        "start": from.at.as_secs_f64(),
        "end": to.at.as_secs_f64(),
        "throughput-bytes": moved.0,
        "throughput-bits": moved.per(span).0,
    });
    if let Some(number) = stream {
        entry["stream-id"] = json!(socket_number(number));
    }
    if !now.is_empty() {
        entry["retransmits"] = json!(total(&now).saturating_sub(total(&before)));
    }
    if let (Some(_), [socket]) = (stream, &now[..]) {
        let more = json!({
            "rtt": socket.srtt().map(|rtt| rtt.0 / 1000),
            "tcp-window-size": socket.cwnd_bytes(),
        });
        entry = with(entry, more);
    }
    match (to.datagrams, stream) {
        (Some(to), None) => {
            let sent = to.packets - from.datagrams.map_or(0, |from| from.packets);
            with(entry, json!({"sent": sent}))
        }
        _ => entry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use model::{Datagrams, Direction, Ended, Leg, Spec};

    /// A leg up of 7 s with a sample each 100 ms: 1 MB in each of the first 20, 2 MB in the others; the receiver lacks 1 MB.
    fn run() -> Run {
        let bytes = |n: u64| Bytes(1_000_000 * (n + n.saturating_sub(20)));
        let samples = |lacks: u64| {
            let samples = (0..=70).map(|n| Sample {
                at: Nanos::from_millis(n * 100),
                bytes: Bytes(bytes(n).0.saturating_sub(lacks)),
                datagrams: Some(Datagrams {
                    packets: n * 10,
                    lost: n,
                    jitter: Nanos::from_micros(2500),
                    ..Datagrams::default()
                }),
                ..Sample::default()
            });
            EndRecord {
                samples: samples.collect(),
                duration: Nanos::from_secs(7),
                bytes: Bytes(bytes(70).0 - lacks),
                ..EndRecord::default()
            }
        };
        let leg = Leg {
            direction: Direction::Up,
            started: Nanos(0),
            local: samples(0),
            remote: samples(1_000_000),
            ended: Ended::Complete,
        };
        testing::run(Spec::default(), vec![leg])
    }

    #[test]
    fn what_is_omitted_is_shown_and_not_summed() {
        let of = |omit| result(&run(), Nanos::from_secs(1), Nanos::from_secs(omit), "said");
        let figures = of(2);
        let rows = figures["intervals"].as_array().unwrap();
        let omitted: Vec<bool> = rows
            .iter()
            .map(|row| row["summary"]["omitted"] == true)
            .collect();
        assert_eq!(omitted, [true, true, false, false, false, false, false]);
        let row = |n: usize| {
            (
                &rows[n]["summary"]["start"],
                &rows[n]["summary"]["throughput-bits"],
            )
        };
        assert_eq!(row(0), (&json!(0.0), &json!(80_000_000)));
        assert_eq!(row(6), (&json!(6.0), &json!(160_000_000)));
        let sum = &figures["summary"]["summary"];
        assert_eq!(sum["throughput-bytes"], 100_000_000);
        assert_eq!((&sum["start"], &sum["end"]), (&json!(2.0), &json!(7.0)));
        assert_eq!(sum["receiver-throughput-bits"], 160_000_000);
        assert_eq!(
            (&sum["sent"], &sum["lost"], &sum["jitter"]),
            (&json!(500), &json!(50), &json!(2.5))
        );
        let whole = of(0);
        assert_eq!(whole["summary"]["summary"]["throughput-bytes"], 120_000_000);
        assert_eq!(
            whole["summary"]["summary"]["receiver-throughput-bits"],
            136_000_000
        );
    }

    #[test]
    fn a_short_rest_belongs_to_the_last_row() {
        let starts = |interval| -> Vec<f64> {
            let figures = result(&run(), Nanos::from_millis(interval), Nanos(0), "");
            let rows = figures["intervals"].as_array().unwrap().iter();
            rows.map(|row| row["summary"]["start"].as_f64().unwrap())
                .collect()
        };
        assert_eq!(starts(3000), [0.0, 3.0]);
        assert_eq!(starts(2800), [0.0, 2.8, 5.6]);
        assert_eq!(starts(60_000), [0.0]);
    }
}
