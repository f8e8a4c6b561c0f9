//! The figures of legs as rows of words, once for the summary of a run and the page of two.

use crate::words::{Table, escape, grouped, or, percent, three_digits};
use model::{Bytes, CopySummary, CpuUse, LatencySummary, LegSummary, Nanos, Stage, Workload};
use std::fmt::Display;

/// A smaller share of the time is hardly any.
const HARDLY: f64 = 0.01;

/// What stands where an end does not report a figure.
pub(crate) const UNKNOWN: &str = "not reported";

/// The workloads that have these figures, and the figures.
type Group = (fn(&Workload) -> bool, &'static [Figure]);

/// A figure of a leg.
struct Figure {
    label: &'static str,
    /// The name under which it is missed if no leg has it.
    missed_as: &'static str,
    cell: fn(&LegSummary) -> Option<String>,
}

macro_rules! figures {
    ($(if $of:expr => { $($label:literal $missed_as:literal $cell:expr;)* })*) => {
        &[$(($of, &[$(Figure { label: $label, missed_as: $missed_as, cell: $cell },)*]),)*]
    };
}

/// What the application moved, and how fast.
static SPEED: &[Group] = figures! {
    if |_| true => {
        "goodput" "" |l| text(Some(l.goodput));
        "  without the ramp" "" |l| text(l.steady_goodput);
        "time" "" |l| text(Some(l.duration));
    }
};

/// Everything else.
static DETAILS: &[Group] = figures! {
    if |w| matches!(w, Workload::Request(_)) => {
        "latency p50" "latencies" |l| latency(l, |r| r.p50);
        "        p90" "latencies" |l| latency(l, |r| r.p90);
        "        p99" "latencies" |l| latency(l, |r| r.p99);
        "        p99.9" "latencies" |l| latency(l, |r| r.p999);
        "        max" "latencies" |l| latency(l, |r| r.max);
        "        mean" "latencies" |l| latency(l, |r| r.mean);
    }
    if Workload::is_udp => {
        "datagrams sent" "datagrams" |l| Some(grouped(l.datagrams?.packets));
        "  received" "datagrams" |l| {
            let all = l.datagrams?;
            Some(grouped(all.packets.saturating_sub(all.lost)))
        };
        "lost" "datagrams" |l| {
            let all = l.datagrams?;
            Some(part(all.lost, all.lost_share(), ""))
        };
        "  on the path" "where datagrams were lost" |l| Some(grouped(l.arrivals?.lost_on_path));
        "  by the receiving socket" "where datagrams were lost"
            |l| Some(grouped(l.arrivals?.dropped));
        "  runs of loss" "where datagrams were lost" |l| {
            let of = l.arrivals?;
            let longest = format!(", longest {}", grouped(of.longest_loss));
            Some(grouped(of.loss_events) + if of.loss_events > 0 { &longest } else { "" })
        };
        "out of order" "datagrams" |l| Some(grouped(l.datagrams?.out_of_order));
        "duplicates" "duplicates" |l| Some(grouped(l.arrivals?.duplicates));
        "jitter" "datagrams" |l| text(Some(l.datagrams?.jitter));
        "delay variation p50" "delay variation" |l| text(Some(l.arrivals?.delay_variation_p50));
        "                p99" "delay variation" |l| text(Some(l.arrivals?.delay_variation_p99));
    }
    if |w| matches!(w, Workload::Copy(_)) => {
        "source at work" "the stages of the copy" |l| at_work(l, Stage::Source);
        "network at work" "the stages of the copy" |l| at_work(l, Stage::Network);
        "sink at work" "the stages of the copy" |l| at_work(l, Stage::Sink);
        "sender's ring full, empty" "the stages of the copy"
            |l| ring(l, |c| [c.sender_ring_full_share, c.sender_ring_empty_share]);
        "receiver's ring full, empty" "the stages of the copy"
            |l| ring(l, |c| [c.receiver_ring_full_share, c.receiver_ring_empty_share]);
        "hashing, both ends" "the stages of the copy"
            |l| Some(format!("{} s/GB", three_digits(l.copy.as_ref()?.hashing_s_per_gb)));
    }
    if |w| matches!(w, Workload::Copy(order) if order.from.is_some()) => {
        "source in page cache" "the page cache of the source" |l| {
            let copy = l.copy.as_ref()?;
            let before = percent(copy.source_cached_before_share?);
            let after = percent(copy.source_cached_after_share?);
            Some(format!("{before} before, {after} after"))
        };
    }
    if |w| matches!(w, Workload::Copy(order) if order.to.is_some()) => {
        "copy in page cache" "the page cache of the copy"
            |l| Some(format!("{} after", percent(l.copy.as_ref()?.sink_cached_after_share?)));
    }
    if |w| !w.is_udp() => {
        "retransmitted segments" "retransmissions" |l| {
            let again = l.retransmits?;
            let share = l.retransmit_share.filter(|_| again > 0);
            Some(part(again, share, " of bytes"))
        };
        "ECN marks" "ECN marks" |l| l.ecn_marks.map(grouped);
        "RTT idle -> loaded" "RTT" |l| {
            l.rtt_idle.or(l.rtt_loaded)?;
            Some(format!("{} -> {}", or(l.rtt_idle, "not seen"), or(l.rtt_loaded, "not seen")))
        };
        "  at most under load" "RTT" |l| text(l.rtt_loaded_max);
        "congestion control" "congestion control" |l| {
            let setting = l.settings.iter().find(|s| s.name == "congestion")?;
            setting.sender.as_deref().filter(|name| !name.is_empty()).map(escape)
        };
    }
    if |w| !w.is_udp() && !w.is_answered() => {
        "BDP at the loaded RTT" "BDP" |l| text(l.bdp);
        "congestion window" "congestion window" |l| text(l.cwnd);
        "receive window" "receive window" |l| text(l.window);
        "receive buffer" "buffers" |l| buffer(l, "receive-buffer", l.receive_buffer);
        "send buffer" "buffers" |l| buffer(l, "send-buffer", l.send_buffer);
        "  written, not yet sent" "unsent bytes" |l| text(l.unsent);
        "had data to send" "limiting times"
            |l| Some(format!("{} of the time", percent(l.busy_share?)));
        "  limited by receive window" "limiting times" |l| l.rwnd_limited_share.map(percent);
        "  limited by send buffer" "limiting times" |l| l.sndbuf_limited_share.map(send_buffer_waits);
    }
    if |_| true => {
        "sender's CPU" "sender's CPU" |l| cpu(l, l.sender_cpu);
        "  its whole host" "sender's CPU" |l| l.sender_cpu?.host_share.map(percent);
        "receiver's CPU" "receiver's CPU" |l| cpu(l, l.receiver_cpu);
        "  its whole host" "receiver's CPU" |l| l.receiver_cpu?.host_share.map(percent);
    }
};

/// The kernel does not count every wait, see [`LegSummary::sndbuf_limited_share`].
fn send_buffer_waits(share: f64) -> String {
    match share < HARDLY {
        true => "none counted".to_owned(),
        false => percent(share),
    }
}

/// A figure of each leg.
pub(crate) struct Row {
    pub(crate) missed_as: &'static str,
    pub(crate) cells: Vec<Option<String>>,
    label: &'static str,
}

impl Row {
    pub(crate) fn is_known(&self) -> bool {
        self.cells.iter().any(Option::is_some)
    }
}

/// The rows of which some leg has a figure, a column a leg.
pub(crate) fn known(head: &[&str], rows: &[Row]) -> Table {
    let rows = rows.iter().filter(|row| row.is_known()).map(|row| {
        let cells = row.cells.iter().map(|cell| or(cell.as_ref(), UNKNOWN));
        [row.label.to_owned()].into_iter().chain(cells).collect()
    });
    Table::new(head, rows)
}

/// What the application moved, and how fast.
pub(crate) fn speed(workload: &Workload, legs: &[&LegSummary]) -> Vec<Row> {
    rows(SPEED, workload, legs)
}

/// Everything else.
pub(crate) fn details(workload: &Workload, legs: &[&LegSummary]) -> Vec<Row> {
    let mut rows = rows(DETAILS, workload, legs);
    // Where nothing was marked, that is not worth a row.
    let is_marked = legs.iter().any(|leg| leg.ecn_marks.unwrap_or(0) > 0);
    rows.retain(|row| is_marked || row.label != "ECN marks");
    rows
}

fn rows(groups: &[Group], workload: &Workload, legs: &[&LegSummary]) -> Vec<Row> {
    let groups = groups.iter().filter(|(has, _)| has(workload));
    let rows = groups.flat_map(|(_, figures)| *figures).map(|figure| Row {
        missed_as: figure.missed_as,
        cells: legs.iter().map(|leg| (figure.cell)(leg)).collect(),
        label: match figure.label {
            "sender's CPU" if workload.is_answered() => "client's CPU",
            "receiver's CPU" if workload.is_answered() => "server's CPU",
            label => label,
        },
    });
    rows.collect()
}

fn text(value: Option<impl Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// A count, with the share that it is where that is known.
fn part(count: u64, share: Option<f64>, of: &str) -> String {
    let share = share.map(|share| format!(" ({}{of})", percent(share)));
    grouped(count) + &share.unwrap_or_default()
}

fn latency(leg: &LegSummary, of: fn(&LatencySummary) -> Nanos) -> Option<String> {
    text(leg.requests.as_ref().map(of))
}

fn at_work(leg: &LegSummary, stage: Stage) -> Option<String> {
    let stages = &leg.copy.as_ref()?.stages;
    let stage = stages.iter().find(|s| s.stage == stage)?;
    let alone = stage.alone.map(|rate| format!(", alone about {rate}"));
    let (busy, alone) = (percent(stage.busy_share), alone.unwrap_or_default());
    Some(format!("{busy} of the time{alone}"))
}

fn ring(leg: &LegSummary, shares: fn(&CopySummary) -> [f64; 2]) -> Option<String> {
    Some(shares(leg.copy.as_ref()?).map(percent).join(", "))
}

fn buffer(leg: &LegSummary, name: &str, size: Option<Bytes>) -> Option<String> {
    // One that nobody asked for moves by the kernel's autotuning: then this is the largest it got.
    let mut settings = leg.settings.iter();
    let is_fixed = settings.any(|s| s.name == name && s.asked.is_some());
    let tail = if is_fixed { "" } else { " autotuned" };
    size.map(|size| format!("{size}{tail}"))
}

/// Processor use beside what it paid for: a request, or an amount of data.
fn cpu(leg: &LegSummary, used: Option<CpuUse>) -> Option<String> {
    let used = used?;
    let cores = format!("{:.2} cores", used.process);
    Some(match (&leg.requests, used.process_s_per_gb) {
        (Some(requests), _) if requests.per_s > 0.0 => {
            let each = Nanos((used.process / requests.per_s * 1e9) as u64);
            format!("{cores}, {each}/request")
        }
        (None, Some(each)) => format!("{cores}, {} s/GB", three_digits(each)),
        _ => cores,
    })
}
