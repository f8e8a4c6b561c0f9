//! Results as OpenMetrics text, for Prometheus and what reads its format: each figure with the moment at which
//! it was measured, never that of the export.
//!
//! The rules are those of the OpenMetrics specification 1.0 (<https://prometheus.io/docs/specs/om/open_metrics_spec/>):
//! base units in the names, the points of a series together and in the order of time, `# EOF` at the end.

use crate::words::escape;
use model::{LegSummary, Nanos, Run, Summary};
use std::fmt::Write as _;

/// A family of metrics: what it tells of a leg.
struct Family {
    name: &'static str,
    kind: &'static str,
    /// Ends the name, or is empty.
    unit: &'static str,
    help: &'static str,
    of: Of,
}

enum Of {
    /// One figure, where it is known.
    Figure(fn(&LegSummary) -> Option<f64>),
    /// Several samples.
    Samples(fn(&Run, &LegSummary) -> Vec<Sample>),
}

/// A suffix of the name, one more label, and the value.
type Sample = (&'static str, String, f64);

fn gauge(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    of: fn(&LegSummary) -> Option<f64>,
) -> Family {
    Family {
        name,
        kind: "gauge",
        unit,
        help,
        of: Of::Figure(of),
    }
}

fn seconds(time: Nanos) -> f64 {
    time.as_secs_f64()
}

/// What is told of a leg.
fn families() -> Vec<Family> {
    const RATE: &str = "bytes_per_second";
    vec![
        gauge(
            "goodput_bytes_per_second",
            RATE,
            "Bytes that the receiving application took, by time, slow start included.",
            |leg| Some(leg.goodput.0 as f64 / 8.0),
        ),
        gauge(
            "steady_goodput_bytes_per_second",
            RATE,
            "The same without the ramp.",
            |leg| leg.steady_goodput.map(|rate| rate.0 as f64 / 8.0),
        ),
        gauge(
            "received_bytes",
            "bytes",
            "Bytes that the receiving application took.",
            |leg| Some(leg.bytes.0 as f64),
        ),
        gauge(
            "duration_seconds",
            "seconds",
            "From the first byte to the last.",
            |leg| Some(seconds(leg.duration)),
        ),
        gauge(
            "retransmitted_segments",
            "segments",
            "Segments retransmitted.",
            |leg| leg.retransmits.map(|n| n as f64),
        ),
        gauge(
            "retransmitted_ratio",
            "ratio",
            "Bytes retransmitted by bytes sent.",
            |leg| leg.retransmit_share,
        ),
        gauge(
            "idle_rtt_seconds",
            "seconds",
            "Round-trip time before the load.",
            |leg| leg.rtt_idle.map(seconds),
        ),
        gauge(
            "loaded_rtt_seconds",
            "seconds",
            "Median smoothed round-trip time under load.",
            |leg| leg.rtt_loaded.map(seconds),
        ),
        gauge(
            "congestion_window_bytes",
            "bytes",
            "Median congestion window, all connections together.",
            |leg| leg.cwnd.map(|bytes| bytes.0 as f64),
        ),
        gauge(
            "receive_window_bytes",
            "bytes",
            "Median receive window that the sender saw, all connections together.",
            |leg| leg.window.map(|bytes| bytes.0 as f64),
        ),
        gauge(
            "receive_window_limited_ratio",
            "ratio",
            "Share of the busy time that waited for the receive window.",
            |leg| leg.rwnd_limited_share,
        ),
        gauge(
            "send_buffer_limited_ratio",
            "ratio",
            "Share of the busy time that waited for the send buffer.",
            |leg| leg.sndbuf_limited_share,
        ),
        gauge(
            "lost_datagrams_ratio",
            "ratio",
            "Datagrams missing at the receiver, by those sent.",
            |leg| {
                let udp = leg.datagrams.filter(|udp| udp.packets > 0)?;
                Some(udp.lost as f64 / udp.packets as f64)
            },
        ),
        gauge(
            "jitter_seconds",
            "seconds",
            "Interarrival jitter of datagrams (RFC 3550).",
            |leg| leg.datagrams.map(|udp| seconds(udp.jitter)),
        ),
        gauge(
            "answered_requests_per_second",
            "requests_per_second",
            "Requests answered a second.",
            |leg| leg.requests.map(|requests| requests.per_s),
        ),
        Family {
            name: "request_latency_seconds",
            kind: "summary",
            unit: "seconds",
            help: "Time from a request to its whole reply.",
            of: Of::Samples(|_, leg| match leg.requests {
                None => Vec::new(),
                Some(r) => [
                    ("0.5", r.p50),
                    ("0.9", r.p90),
                    ("0.99", r.p99),
                    ("0.999", r.p999),
                ]
                .into_iter()
                .map(|(share, time)| ("", label("quantile", share), seconds(time)))
                .chain([
                    ("_sum", String::new(), seconds(r.mean) * r.count as f64),
                    ("_count", String::new(), r.count as f64),
                ])
                .collect(),
            }),
        },
        Family {
            name: "measurement",
            kind: "info",
            unit: "",
            help: "The run that the figures are of.",
            of: Of::Samples(|run, _| vec![("_info", label("run", &run.id), 1.0)]),
        },
    ]
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
    for family in families() {
        let mut samples = String::new();
        for (labels, at, run, leg) in &legs {
            let told = match family.of {
                Of::Figure(of) => of(leg)
                    .map(|value| ("", String::new(), value))
                    .into_iter()
                    .collect(),
                Of::Samples(of) => of(run, leg),
            };
            for (suffix, label, value) in told.into_iter().filter(|(.., value)| value.is_finite()) {
                let comma = if label.is_empty() { "" } else { "," };
                let (whole, rest) = (at.0 / 1_000_000_000, at.0 % 1_000_000_000);
                let _ = writeln!(
                    samples,
                    "linerate_{}{suffix}{{{labels}{comma}{label}}} {value} {whole}.{rest:09}",
                    family.name
                );
            }
        }
        if samples.is_empty() {
            continue;
        }
        let _ = writeln!(out, "# TYPE linerate_{} {}", family.name, family.kind);
        if !family.unit.is_empty() {
            let _ = writeln!(out, "# UNIT linerate_{} {}", family.name, family.unit);
        }
        let _ = writeln!(out, "# HELP linerate_{} {}", family.name, family.help);
        out += &samples;
    }
    out + "# EOF\n"
}

/// What a series is of.
fn labels(run: &Run, leg: &LegSummary) -> String {
    [
        label("near", &run.near.hostname),
        label("host", &run.host),
        label("workload", run.spec.workload.kind().name),
        label("direction", &leg.direction.to_string()),
    ]
    .join(",")
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
