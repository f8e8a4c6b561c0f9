//! Results as OpenMetrics text, for Prometheus and what reads its format: each figure with the time at which
//! it was measured, never that of the export.
//!
//! The rules are those of the OpenMetrics specification 1.0 (<https://prometheus.io/docs/specs/om/open_metrics_spec/>):
//! base units in the names, the points of a series together and in the order of time, `# EOF` at the end.

use crate::words::escape;
use model::{BitRate, Bytes, LatencySummary, LegSummary, Nanos, Run, Summary};
use std::fmt::Write as _;

/// Units with which a name ends.
const UNITS: [&str; 6] = [
    "bytes_per_second",
    "requests_per_second",
    "seconds",
    "segments",
    "bytes",
    "ratio",
];

/// Name with its unit, meaning, and the figure of a leg where it is known.
struct Gauge(&'static str, &'static str, fn(&LegSummary) -> Option<f64>);

macro_rules! gauges {
    ($($name:literal $meaning:literal $figure:expr;)*) => {
        &[$(Gauge($name, $meaning, $figure),)*]
    };
}

static GAUGES: &[Gauge] = gauges! {
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
    "answered_requests_per_second" "Requests answered a second." |leg| Some(leg.requests?.per_s);
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

/// Suffix of the name, one more label, and the value, of each figure of the latencies.
fn latencies(all: &LatencySummary) -> Vec<(&'static str, String, f64)> {
    let quantiles = [
        ("0.5", all.p50),
        ("0.9", all.p90),
        ("0.99", all.p99),
        ("0.999", all.p999),
    ];
    let mut samples = Vec::from(
        quantiles.map(|(share, time)| ("", label("quantile", share), time.as_secs_f64())),
    );
    let count = all.count as f64;
    samples.push(("_sum", String::new(), all.mean.as_secs_f64() * count));
    samples.push(("_count", String::new(), count));
    samples
}

/// The figures of runs. Runs of one host, workload and direction are points of the same series.
pub fn text<'a>(runs: impl IntoIterator<Item = (&'a Run, &'a Summary)>) -> String {
    let mut legs: Vec<(String, Nanos, &Run, &LegSummary)> = Vec::new();
    for (run, summary) in runs {
        for (leg, figures) in run.legs.iter().zip(&summary.legs) {
            let ended = run.started + leg.started + figures.duration;
            legs.push((labels(run, figures), ended, run, figures));
        }
    }
    legs.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    legs.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, help: &str, of: &dyn Fn(&Run, &LegSummary) -> _| {
        let mut samples = String::new();
        for (labels, at, run, leg) in &legs {
            let all: Vec<(&str, String, f64)> = of(run, leg);
            for (suffix, label, value) in all.into_iter().filter(|(.., value)| value.is_finite()) {
                let comma = if label.is_empty() { "" } else { "," };
                let (whole, rest) = (at.0 / 1_000_000_000, at.0 % 1_000_000_000);
                let labels = format!("{labels}{comma}{label}");
                let _ = writeln!(
                    samples,
                    "linerate_{name}{suffix}{{{labels}}} {value} {whole}.{rest:09}"
                );
            }
        }
        if samples.is_empty() {
            return;
        }
        let _ = writeln!(out, "# TYPE linerate_{name} {kind}");
        if let Some(unit) = UNITS.iter().find(|unit| name.ends_with(*unit)) {
            let _ = writeln!(out, "# UNIT linerate_{name} {unit}");
        }
        let _ = writeln!(out, "# HELP linerate_{name} {help}");
        out += &samples;
    };
    for Gauge(name, help, of) in GAUGES {
        family(name, "gauge", help, &|_, leg| {
            let value = of(leg).map(|value| ("", String::new(), value));
            value.into_iter().collect()
        });
    }
    let help = "Time from a request to its whole reply.";
    family("request_latency_seconds", "summary", help, &|_, leg| {
        leg.requests.as_ref().map(latencies).unwrap_or_default()
    });
    let help = "The run that the figures are of.";
    family("measurement", "info", help, &|run, _| {
        vec![("_info", label("run", &run.id), 1.0)]
    });
    out + "# EOF\n"
}

/// What a series is of.
fn labels(run: &Run, leg: &LegSummary) -> String {
    let all = [
        label("near", &run.near.hostname),
        label("host", &run.host),
        label("workload", run.spec.workload.kind().name),
        label("direction", &leg.direction.to_string()),
    ];
    all.join(",")
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
    fn each_figure_has_the_moment_of_its_leg_and_series_stay_together() {
        let mut older = testing::run(testing::spec(), vec![testing::leg(Direction::Up, LAN)]);
        let legs = vec![
            testing::leg(Direction::Up, LOSSY),
            testing::leg(Direction::Down, LAN),
        ];
        let mut newer = testing::run(testing::spec(), legs);
        newer.started += Nanos::from_secs(60);
        newer.legs[1].started = Nanos::from_millis(10_500);
        for run in [&mut older, &mut newer] {
            run.host = "db\"1\\\n".to_owned();
        }
        let (old, new) = (summarise(&older), summarise(&newer));
        let text = text([(&newer, &new), (&older, &old)]);
        let of = |name: &str| -> Vec<&str> {
            let start = format!("linerate_{name}{{");
            text.lines().filter(|l| l.starts_with(&start)).collect()
        };
        let series = |way: &str| {
            format!(
                r#"linerate_received_bytes{{near="web1",host="db\"1\\",workload="bulk",direction="{way}"}}"#
            )
        };
        assert_eq!(
            of("received_bytes"),
            [
                format!("{} 1119812500 1795205916.500000000", series("down")),
                format!("{} 1119812500 1795205846.000000000", series("up")),
                format!("{} 73625000 1795205906.000000000", series("up")),
            ]
        );
        assert_eq!(
            of("jitter_seconds"),
            [""; 0],
            "what is not known is left out"
        );
        assert!(!text.contains("jitter"), "its name too");
        assert!(text.ends_with("\n# EOF\n"));
        assert_eq!(super::text([]), "# EOF\n");
    }

    #[test]
    fn latencies_are_a_summary() {
        let run = testing::run(testing::spec(), vec![testing::request_leg(100)]);
        let text = text([(&run, &summarise(&run))]);
        for part in [
            "# TYPE linerate_request_latency_seconds summary\n# UNIT linerate_request_latency_seconds seconds\n",
            "direction=\"up\",quantile=\"0.5\"} 0.0000066 ",
            "direction=\"up\"} 10000 ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
