//! Results as text for Prometheus: its exposition format 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>), written so that it is OpenMetrics 1.0 as well.
//!
//! Samples carry no time: node_exporter's textfile collector refuses them, and Prometheus drops what is older than its
//! newest samples. When a figure was measured is a metric of its own, and its age is `time() -` that metric.

use crate::pages::{GridCell, MeshGrid};
use crate::words::escape;
use model::finding::{SocketAccount, SocketGroup};
use model::{
    BitRate, Bytes, Ended, LatencySummary, LegOutcome, LegSummary, MeshLeg, Nanos, Run, Summary,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;

/// Units with which a name ends.
const UNITS: [&str; 7] = [
    "bytes_per_second",
    "bits_per_second",
    "requests_per_second",
    "seconds",
    "segments",
    "bytes",
    "ratio",
];

/// Name with its unit, meaning, and the figure of a thing where it is known.
struct Gauge<T>(&'static str, &'static str, fn(&T) -> Option<f64>);

macro_rules! gauges {
    ($($name:literal $meaning:literal $figure:expr;)*) => {
        &[$(Gauge($name, $meaning, $figure),)*]
    };
}

static GAUGES: &[Gauge<LegSummary>] = gauges! {
    "goodput_bytes_per_second"
        "Bytes that the receiving application took, by time, slow start included."
        |leg| rate(Some(leg.goodput));
    "steady_goodput_bytes_per_second" "The same without the ramp." |leg| rate(leg.steady_goodput);
    "received_bytes" "Bytes that the receiving application took." |leg| bytes(Some(leg.bytes));
    "duration_seconds" "From the first byte to the last." |leg| seconds(Some(leg.duration));
    "retransmitted_segments" "Segments retransmitted." |leg| leg.retransmits.map(|n| n as f64);
    "retransmitted_ratio" "Bytes retransmitted by bytes sent." |leg| leg.retransmit_share;
    "idle_rtt_seconds" "Round-trip time before the load." |leg| seconds(leg.rtt_idle);
    "loaded_rtt_seconds" "Median smoothed round-trip time under load."
        |leg| seconds(leg.rtt_loaded);
    "congestion_window_bytes" "Median congestion window, all connections together."
        |leg| bytes(leg.cwnd);
    "receive_window_bytes" "Median receive window that the sender saw, all connections together."
        |leg| bytes(leg.window);
    "receive_window_limited_ratio" "Share of the busy time that waited for the receive window."
        |leg| leg.rwnd_limited_share;
    "send_buffer_limited_ratio" "Share of the busy time that waited for the send buffer."
        |leg| leg.sndbuf_limited_share;
    "lost_datagrams_ratio" "Datagrams missing at the receiver, by those sent."
        |leg| leg.datagrams?.lost_share();
    "jitter_seconds" "Interarrival jitter of datagrams (RFC 3550)."
        |leg| seconds(Some(leg.datagrams?.jitter));
    "lost_datagrams" "Datagrams missing at the receiver." |leg| Some(leg.datagrams?.lost as f64);
    "dropped_datagrams" "Of these, dropped by the receiver's socket for want of room, at most."
        |leg| Some(leg.arrivals?.dropped as f64);
    "duplicate_datagrams" "Datagrams that arrived again." |leg| Some(leg.arrivals?.duplicates as f64);
    "out_of_order_datagrams" "Datagrams that arrived behind a later one."
        |leg| Some(leg.datagrams?.out_of_order as f64);
    "loss_runs" "Runs of datagrams lost one after the other." |leg| Some(leg.arrivals?.loss_events as f64);
    "longest_loss_datagrams" "Datagrams of the longest such run."
        |leg| Some(leg.arrivals?.longest_loss as f64);
    "delay_variation_p50_seconds" "Median one-way delay above the smallest (RFC 5481)."
        |leg| seconds(Some(leg.arrivals?.delay_variation_p50));
    "delay_variation_p99_seconds" "99th percentile of the same."
        |leg| seconds(Some(leg.arrivals?.delay_variation_p99));
    "answered_requests" "Requests answered." |leg| Some(leg.requests.as_ref()?.count as f64);
    "request_latency_mean_seconds" "Mean time from a request to its whole reply."
        |leg| seconds(Some(leg.requests.as_ref()?.mean));
    "answered_requests_per_second" "Requests answered a second." |leg| Some(leg.requests.as_ref()?.per_s);
};

/// Of the newest leg of a cell of a mesh.
static CELL_GAUGES: &[Gauge<MeshLeg>] = gauges! {
    "leg_goodput_bits_per_second" "Goodput of the newest leg of a cell of a mesh."
        |leg| Some(leg.goodput?.0 as f64);
    "leg_latency_seconds" "Median latency of its requests, RTT of its light probes, or RTT under load."
        |leg| seconds(leg.rtt_p50);
    "leg_loss_ratio" "Share of its datagrams or packets that were lost."
        |leg| Some(leg.loss_ppm? as f64 / 1e6);
    "leg_mtu_bytes" "The largest packet that passed, of light probes or by a search for the path MTU."
        |leg| Some(leg.mtu? as f64);
    "leg_timestamp_seconds" "Its start, seconds since 1970-01-01 UTC."
        |leg| Some(leg.starts.as_secs_f64());
    "cell_low" "1 if it was low, 0 if it was good." |leg| match leg.outcome {
        LegOutcome::Low => Some(1.0),
        LegOutcome::Good => Some(0.0),
        _ => None,
    };
    "cell_shifted" "1 if the level of the cell changed among its last 200 legs."
        |leg| Some(f64::from(u8::from(leg.level_since.is_some())));
};

fn rate(rate: Option<BitRate>) -> Option<f64> {
    Some(rate?.0 as f64 / 8.0)
}

fn bytes(bytes: Option<Bytes>) -> Option<f64> {
    Some(bytes?.0 as f64)
}

fn seconds(time: Option<Nanos>) -> Option<f64> {
    time.map(Nanos::as_secs_f64)
}

/// Quantiles of the latencies, each with its label.
fn quantiles(all: &LatencySummary) -> [(String, f64); 4] {
    [
        ("0.5", all.p50),
        ("0.9", all.p90),
        ("0.99", all.p99),
        ("0.999", all.p999),
    ]
    .map(|(share, time)| (label("quantile", share), time.as_secs_f64()))
}

/// The newest figures of each path that the runs measured, how the last run of each path ended, and the cells of meshes.
pub fn text<'a>(
    runs: impl IntoIterator<Item = (&'a Run, &'a Summary)>,
    meshes: &[MeshGrid],
) -> String {
    let mut legs: BTreeMap<String, (f64, &Run, &LegSummary)> = BTreeMap::new();
    let mut last: BTreeMap<[String; 3], (f64, &Run)> = BTreeMap::new();
    for (run, summary) in runs {
        if run.ended == Ended::Unfinished {
            continue;
        }
        let path = path(run);
        let mut end = run.started;
        for (leg, figures) in run.legs.iter().zip(&summary.legs) {
            let ended = run.started + leg.started + figures.duration;
            end = end.max(ended);
            if run.ended == Ended::Complete {
                let series = format!("{path},{}", label("direction", &leg.direction.to_string()));
                keep_newest(
                    &mut legs,
                    series,
                    (ended.as_secs_f64(), run, figures),
                    |leg| leg.0,
                );
            }
        }
        let workload = run.spec.workload.kind().name.to_owned();
        let key = [run.local_key(), run.remote_key(), workload];
        keep_newest(&mut last, key, (end.as_secs_f64(), run), |run| run.0);
    }
    let mut out = Exposition::default();
    for Gauge(name, help, of) in GAUGES {
        let values = legs
            .iter()
            .filter_map(|(series, (.., leg))| Some((series.clone(), of(leg)?)));
        out.gauge(name, help, values);
    }
    let latencies = legs
        .iter()
        .filter_map(|(series, (.., leg))| Some((series, leg.requests.as_ref()?)));
    let latencies = latencies.flat_map(|(series, all)| {
        quantiles(all).map(|(quantile, value)| (format!("{series},{quantile}"), value))
    });
    // Without _sum and _count: these are counters in a summary, and each run begins at zero.
    let help = "Time from a request to its whole reply.";
    out.family("request_latency_seconds", "summary", help, latencies);
    let help = "End of the measurement that the figures are of, seconds since 1970-01-01 UTC.";
    let times = legs.iter().map(|(series, (at, ..))| (series.clone(), *at));
    out.gauge("measurement_timestamp_seconds", help, times);
    let help = "The run that the figures are of; always 1.";
    let runs = legs
        .iter()
        .map(|(series, (_, run, _))| (format!("{series},{}", label("run", &run.id)), 1.0));
    out.gauge("measurement_info", help, runs);
    let help = "1 if the last run of the path was complete, 0 if it failed or was interrupted.";
    let success = last.values().map(|(_, run)| {
        let is_complete = run.ended == Ended::Complete;
        (path(run), f64::from(u8::from(is_complete)))
    });
    out.gauge("last_run_success", help, success);
    let help = "End of the last run of the path, seconds since 1970-01-01 UTC.";
    let times = last.values().map(|(at, run)| (path(run), *at));
    out.gauge("last_run_timestamp_seconds", help, times);
    cells(&mut out, meshes);
    out.0 + "# EOF\n"
}

/// Cells of all meshes at most: each has seven series.
const MOST_CELLS: usize = 20_000;

/// The newest leg of each cell.
fn cells(out: &mut Exposition, meshes: &[MeshGrid]) {
    let all = meshes.iter().flat_map(|grid| {
        let named = move |at: usize| grid.hosts[at].name.as_str();
        let cells = grid.cells.iter();
        cells.filter_map(move |((from, to), cell)| {
            let series = [
                label("mesh", &grid.mesh),
                label("test", &grid.test),
                label("src", named(*from)),
                label("dst", named(*to)),
            ];
            Some((series.join(","), cell, cell.newest()?))
        })
    });
    let all: Vec<(String, &GridCell, &MeshLeg)> = all.collect();
    let shown = &all[..all.len().min(MOST_CELLS)];
    for Gauge(name, help, of) in CELL_GAUGES {
        let values = shown
            .iter()
            .filter_map(|(series, _, leg)| Some((series.clone(), of(leg)?)));
        out.gauge(name, help, values);
    }
    let outcomes = shown.iter().map(|(series, cell, leg)| {
        (
            format!("{series},{}", label("outcome", leg.outcome.name())),
            cell.in_a_row() as f64,
        )
    });
    let help =
        "How many of the newest legs of a cell in a row had the outcome of the newest, 21 at most.";
    out.gauge("leg_outcome", help, outcomes);
    let left_out = all.len() - shown.len();
    let left_out = (left_out > 0).then(|| (String::new(), left_out as f64));
    let help = "Cells beyond the 20,000 that are shown.";
    out.gauge("cells_left_out", help, left_out);
}

/// Counters of a watch of the sockets of this host, by network of the peers, port and process.
pub fn watched(open: u64, account: &SocketAccount, groups: &[SocketGroup]) -> String {
    let mut out = Exposition::default();
    let labels = |of: &SocketGroup| {
        [
            label("peer", &of.peer),
            label("port", &of.port.to_string()),
            label("process", &of.process.to_string()),
        ]
        .join(",")
    };
    let limited = groups.iter().flat_map(|of| {
        let each = of.limited.iter();
        each.map(move |(limit, time)| {
            let cause = format!("{},{}", labels(of), label("cause", &limit.name()));
            (cause, time.as_secs_f64())
        })
    });
    let help = "Time that a limit had, of all sockets of these peers, this port and this process together.";
    out.family("watch_limited_seconds_total", "counter", help, limited);
    let counters: &[Gauge<SocketGroup>] = gauges! {
        "watch_sent_bytes_total" "Bytes acknowledged." |of| bytes(Some(of.sent));
        "watch_received_bytes_total" "Bytes received." |of| bytes(Some(of.received));
        "watch_sockets_total" "Sockets that were seen." |of| Some(of.sockets as f64);
    };
    for Gauge(name, help, value) in counters {
        let seen = groups.iter().filter(|of| of.sockets > 0);
        let all = seen.filter_map(|of| Some((labels(of), value(of)?)));
        out.family(name, "counter", help, all);
    }
    let missing = [
        ("no_last_state", account.vanished),
        ("never_seen", account.unseen),
        ("too_many", account.left_out),
    ];
    let missing = missing.map(|(why, n)| (label("why", why), n as f64));
    let help = "Connections that are missing in the counters.";
    out.gauge("watch_missing", help, missing);
    let help = "Sockets that are open.";
    out.gauge("watch_open_sockets", help, [(String::new(), open as f64)]);
    out.0
}

fn keep_newest<K: Ord, T>(of: &mut BTreeMap<K, T>, key: K, new: T, at: fn(&T) -> f64) {
    match of.entry(key) {
        Entry::Occupied(mut old) if at(old.get()) < at(&new) => drop(old.insert(new)),
        Entry::Occupied(_) => {}
        Entry::Vacant(place) => drop(place.insert(new)),
    }
}

/// The text so far.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (String, f64)>) {
        self.family(name, "gauge", help, samples);
    }

    /// All samples of a name; nothing where there are none.
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, f64)>,
    ) {
        let mut lines = String::new();
        let finite = samples.into_iter().filter(|(_, value)| value.is_finite());
        for (labels, value) in finite {
            let _ = writeln!(lines, "linerate_{name}{{{labels}}} {value}");
        }
        if lines.is_empty() {
            return;
        }
        self.0 += &format!("# HELP linerate_{name} {help}\n# TYPE linerate_{name} {kind}\n");
        if let Some(unit) = UNITS.iter().find(|unit| name.ends_with(*unit)) {
            self.0 += &format!("# UNIT linerate_{name} {unit}\n");
        }
        self.0 += &lines;
    }
}

/// Labels of what was measured.
fn path(run: &Run) -> String {
    let workload = run.spec.workload.kind().name;
    let mut labels = vec![
        label("local", &run.local.hostname),
        label("host", &run.host),
        label("workload", workload),
    ];
    let ids = [("local_id", run.local_id), ("remote_id", run.remote_id)];
    let ids = ids
        .iter()
        .filter_map(|(name, id)| Some(label(name, &id.as_ref()?.to_string())));
    labels.extend(ids);
    labels.join(",")
}

/// A label, its value fit for a terminal and escaped as the format says.
fn label(name: &str, value: &str) -> String {
    let value = escape(value).replace('\\', "\\\\").replace('"', "\\\"");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, LAN, LOSSY};
    use model::{Direction, summarise};

    #[test]
    fn the_newest_of_each_series_and_the_end_of_the_last_run() {
        let older = testing::run(testing::spec(), vec![testing::leg(Direction::Up, LAN)]);
        let legs = vec![
            testing::leg(Direction::Up, LOSSY),
            testing::leg(Direction::Down, LAN),
        ];
        let mut newer = testing::run(testing::spec(), legs);
        newer.started += Nanos::from_secs(60);
        newer.legs[1].started = Nanos::from_millis(10_500);
        let mut failed = testing::run(testing::spec(), Vec::new());
        failed.started += Nanos::from_secs(120);
        failed.ended = Ended::Failed {
            why: "lost".to_owned(),
        };
        let mut going_on = testing::run(testing::spec(), vec![testing::leg(Direction::Up, LAN)]);
        going_on.started += Nanos::from_secs(180);
        going_on.ended = Ended::Unfinished;
        let mut runs = [newer, older, failed, going_on];
        for run in &mut runs {
            run.host = "db\"1\\\n".to_owned();
        }
        let summaries = runs.each_ref().map(summarise);
        let text = text(runs.iter().zip(&summaries), &[]);
        let of = |name: &str| -> Vec<&str> {
            let start = format!("linerate_{name}{{");
            text.lines().filter(|l| l.starts_with(&start)).collect()
        };
        let path = r#"local="web1",host="db\"1\\",workload="bulk""#;
        assert_eq!(
            of("received_bytes"),
            [
                format!(r#"linerate_received_bytes{{{path},direction="down"}} 1119812500"#),
                format!(r#"linerate_received_bytes{{{path},direction="up"}} 73625000"#),
            ]
        );
        assert_eq!(
            of("measurement_timestamp_seconds"),
            [
                format!(
                    r#"linerate_measurement_timestamp_seconds{{{path},direction="down"}} 1795205916.5"#
                ),
                format!(
                    r#"linerate_measurement_timestamp_seconds{{{path},direction="up"}} 1795205906"#
                ),
            ]
        );
        assert_eq!(
            of("last_run_success"),
            [format!("linerate_last_run_success{{{path}}} 0")]
        );
        assert_eq!(
            of("last_run_timestamp_seconds"),
            [format!(
                "linerate_last_run_timestamp_seconds{{{path}}} 1795205956"
            )]
        );
        assert!(
            !text.contains("jitter"),
            "what is not known is left out, its name too: {text}"
        );
        assert!(text.ends_with("\n# EOF\n"));
        assert_eq!(super::text([], &[]), "# EOF\n");
    }

    #[test]
    fn latencies_are_a_summary() {
        let run = testing::run(testing::spec(), vec![testing::request_leg(100)]);
        let text = text([(&run, &summarise(&run))], &[]);
        for part in [
            "# TYPE linerate_request_latency_seconds summary\n# UNIT linerate_request_latency_seconds seconds\n",
            "direction=\"up\",quantile=\"0.5\"} 0.0000066\n",
            "linerate_answered_requests{local=\"web1\"",
            "direction=\"up\"} 10000\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
