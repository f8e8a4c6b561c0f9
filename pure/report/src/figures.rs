//! The figures of legs as rows of words, once for the summary of a run and the page of two.

use crate::copy;
use crate::words::{escape, grouped, or, percent, table, three_digits};
use model::{Bytes, CpuUse, LatencySummary, LegSummary, Nanos, SettingInForce, Workload};
use std::fmt::Display;

/// What stands where an end does not report a figure.
pub(crate) const UNKNOWN: &str = "not reported";

/// A figure of each leg.
pub(crate) struct Row {
    pub(crate) label: &'static str,
    /// The name under which it is missed if no leg has it.
    pub(crate) missed_as: &'static str,
    pub(crate) cells: Vec<Option<String>>,
}

impl Row {
    pub(crate) fn is_known(&self) -> bool {
        self.cells.iter().any(Option::is_some)
    }
}

/// The rows of which some leg has a figure, a column a leg.
pub(crate) fn known(head: &[&str], rows: &[Row]) -> String {
    let rows = rows.iter().filter(|row| row.is_known()).map(|row| {
        let cells = row.cells.iter().map(|cell| or(cell.as_ref(), UNKNOWN));
        [row.label.to_owned()].into_iter().chain(cells).collect()
    });
    table(head, rows)
}

/// What the application moved, and how fast.
pub(crate) fn speed(legs: &[&LegSummary]) -> [Row; 3] {
    [
        row(legs, "goodput", "", &|l| text(Some(l.goodput))),
        row(legs, "  without the ramp", "", &|l| text(l.steady_goodput)),
        row(legs, "time", "", &|l| text(Some(l.duration))),
    ]
}

/// Everything else.
pub(crate) fn details(workload: &Workload, legs: &[&LegSummary]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |label, missed_as, cell: Cell<'_>| rows.push(row(legs, label, missed_as, cell));
    match workload {
        Workload::Request(_) => {
            type Field = fn(&LatencySummary) -> Nanos;
            let percentiles: [(&str, Field); 6] = [
                ("latency p50", |r| r.p50),
                ("        p90", |r| r.p90),
                ("        p99", |r| r.p99),
                ("        p99.9", |r| r.p999),
                ("        max", |r| r.max),
                ("        mean", |r| r.mean),
            ];
            for (label, field) in percentiles {
                row(label, "latencies", &|l| {
                    text(l.requests.as_ref().map(field))
                });
            }
        }
        Workload::Udp(_) => {
            let missed = "datagrams";
            row("datagrams expected", missed, &|l| {
                Some(grouped(l.datagrams?.packets))
            });
            row("lost", missed, &|l| {
                let all = l.datagrams?;
                Some(part(all.lost, all.lost_share(), ""))
            });
            row("out of order", missed, &|l| {
                Some(grouped(l.datagrams?.out_of_order))
            });
            row("jitter", missed, &|l| text(Some(l.datagrams?.jitter)));
        }
        Workload::Copy(order) => copy::rows(order, &mut row),
        Workload::Bulk(_) | Workload::Blocks(_) => {}
    }
    let tcp = !workload.is_udp();
    let bulk = tcp && !workload.is_answered();
    if tcp {
        row("retransmitted segments", "retransmissions", &|l| {
            let again = l.retransmits?;
            let share = l.retransmit_share.filter(|_| again > 0);
            Some(part(again, share, " of bytes"))
        });
        if legs.iter().any(|l| l.ecn_marks.unwrap_or(0) > 0) {
            row("ECN marks", "ECN marks", &|l| l.ecn_marks.map(grouped));
        }
        row("RTT idle -> loaded", "RTT", &|l| {
            let rtt = |rtt: Option<Nanos>| or(rtt, "not seen");
            l.rtt_idle.or(l.rtt_loaded)?;
            Some(format!("{} -> {}", rtt(l.rtt_idle), rtt(l.rtt_loaded)))
        });
        row("  at most under load", "RTT", &|l| text(l.rtt_loaded_max));
        row("congestion control", "congestion control", &|l| {
            let setting = l.settings.iter().find(|s| s.name == "congestion")?;
            let sender = setting.sender.as_deref().filter(|name| !name.is_empty());
            sender.map(escape)
        });
    }
    if bulk {
        let buffer = |l: &LegSummary, name: &str, size: Option<Bytes>| {
            // One that nobody asked for moves by the kernel's autotuning: then this is the largest it got.
            let asked = |s: &SettingInForce| s.name == name && s.asked.is_some();
            let is_fixed = l.settings.iter().any(asked);
            let tail = if is_fixed { "" } else { " autotuned" };
            size.map(|size| format!("{size}{tail}"))
        };
        let limiting = "limiting times";
        row("BDP at the loaded RTT", "BDP", &|l| text(l.bdp));
        row("congestion window", "congestion window", &|l| text(l.cwnd));
        row("receive window", "receive window", &|l| text(l.window));
        row("receive buffer", "buffers", &|l| {
            buffer(l, "receive-buffer", l.receive_buffer)
        });
        row("send buffer", "buffers", &|l| {
            buffer(l, "send-buffer", l.send_buffer)
        });
        row("  written, not yet sent", "unsent bytes", &|l| {
            text(l.unsent)
        });
        row("had data to send", limiting, &|l| {
            Some(format!("{} of the time", percent(l.busy_share?)))
        });
        row("  limited by receive window", limiting, &|l| {
            l.rwnd_limited_share.map(percent)
        });
        row("  limited by send buffer", limiting, &|l| {
            l.sndbuf_limited_share.map(percent)
        });
    }
    type End = fn(&LegSummary) -> Option<CpuUse>;
    let ends: [(&str, &str, End); 2] = [
        ("sender's CPU", "client's CPU", |l| l.sender_cpu),
        ("receiver's CPU", "server's CPU", |l| l.receiver_cpu),
    ];
    for (missed, of_requests, end) in ends {
        let label = if bulk || !tcp { missed } else { of_requests };
        row(label, missed, &|l| Some(cpu(&end(l)?, l)));
        row("  its whole host", missed, &|l| {
            end(l)?.host_share.map(percent)
        });
    }
    rows
}

/// A figure of a leg.
pub(crate) type Cell<'a> = &'a dyn Fn(&LegSummary) -> Option<String>;

fn row(legs: &[&LegSummary], label: &'static str, missed_as: &'static str, cell: Cell<'_>) -> Row {
    Row {
        label,
        missed_as,
        cells: legs.iter().map(|leg| cell(leg)).collect(),
    }
}

fn text(value: Option<impl Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// A count, with the share that it is where that is known.
fn part(count: u64, share: Option<f64>, of: &str) -> String {
    let share = share.map(|share| format!(" ({}{of})", percent(share)));
    grouped(count) + &share.unwrap_or_default()
}

/// Processor use beside what it paid for: a request, or an amount of data.
fn cpu(cpu: &CpuUse, leg: &LegSummary) -> String {
    let cores = format!("{:.2} cores", cpu.process);
    match (&leg.requests, cpu.process_s_per_gb) {
        (Some(requests), _) if requests.per_s > 0.0 => {
            let each = Nanos((cpu.process / requests.per_s * 1e9) as u64);
            format!("{cores}, {each}/request")
        }
        (None, Some(each)) => format!("{cores}, {} s/GB", three_digits(each)),
        _ => cores,
    }
}
