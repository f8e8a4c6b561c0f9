//! What a person reads at the end of a run: the answer, what the kernel saw, the hosts, the doubts.

use crate::blocks;
use crate::copy;
use crate::explain;
use crate::page::{Drawing, sparkline};
use crate::pictures;
use crate::requests;
use crate::words::{
    self, Ink, Style, escape, escape_sentence, glue, grouped, per_second, percent, round_span,
    three_digits, wrap,
};
use model::finding::Explanation;
use model::{
    BitRate, BlockServer, Bytes, CpuUse, Direction, Directions, Ended, Fingerprint, LatencySummary,
    Leg, LegSummary, Limit, Nanos, Request, Run, SettingInForce, Side, Summary, Wait, Warning,
    Workload,
};

/// Beyond this ratio the two directions are called different: 10 %.
const ASYMMETRY: f64 = 1.1;
/// So many unread things are named; the others are counted.
const UNREAD_NAMED: usize = 6;
/// Room for options in a TCP header (RFC 9293), in bytes.
const TCP_OPTIONS_MOST: u32 = 40;
/// What stands where an end did not tell.
const NOT_TOLD: &str = "not told";

/// The summary of a run in words and a small table, with what limited it in a sentence. Lines of prose
/// keep to `style.width`.
pub fn summary(run: &Run, summary: &Summary, why: &[Explanation], style: Style) -> String {
    told(run, summary, why, String::new(), style)
}

/// The same for who did not see it happen: with the course of each leg in a row of blocks.
pub fn in_retrospect(run: &Run, summary: &Summary, why: &[Explanation], style: Style) -> String {
    let legs = run.legs.iter().zip(&summary.legs);
    let courses = legs.filter_map(|(leg, figures)| {
        let picture = pictures::goodput::picture("", leg, figures, Vec::new())?;
        let Drawing::Chart(chart) = &picture.drawing else {
            return None;
        };
        Some(picture.title.clone() + "\n" + &sparkline(chart, style))
    });
    told(run, summary, why, courses.collect(), style)
}

fn told(
    run: &Run,
    summary: &Summary,
    why: &[Explanation],
    courses: String,
    style: Style,
) -> String {
    let parts = [
        how_it_ended(run, style)
            + &answers(run, summary, style)
            + &explain::sentences(&copy::beside(why), style),
        courses,
        operations(run, summary, style),
        details(run, summary, style),
        workload(run, summary, style),
        settings(summary),
        hosts(run, style),
        warnings(&summary.warnings, style),
        trailer(run, style),
    ];
    let told: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    told.join("\n")
}

/// The answers and what limited it, a sentence each.
pub(crate) fn sentences(run: &Run, summary: &Summary, why: &[Explanation]) -> Vec<String> {
    let wide = Style {
        width: u16::MAX,
        ..Style::PLAIN
    };
    let text = how_it_ended(run, wide)
        + &answers(run, summary, wide)
        + &explain::sentences(&copy::beside(why), wide);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect()
}

/// What was done, in words; empty where the answers say it all.
pub(crate) fn done(run: &Run, summary: &Summary) -> String {
    let wide = Style {
        width: u16::MAX,
        ..Style::PLAIN
    };
    workload(run, summary, wide).trim_end().to_owned()
}

// ---- the answer ----

fn how_it_ended(run: &Run, style: Style) -> String {
    let sentence = match &run.ended {
        Ended::Complete => return String::new(),
        Ended::Interrupted => "Interrupted: what follows was measured until then.".to_owned(),
        Ended::Unfinished => {
            let mut said = "Unfinished: it still runs, or its process was killed; what follows was kept until then."
                .to_owned();
            if let Workload::Blocks(order) = &run.spec.workload
                && let BlockServer::Nfs { export, .. } = &order.server
            {
                said += &format!(
                    " If it was killed, its files .linerate-{}-* are still in {}: remove them there.",
                    escape(&run.id),
                    escape(export)
                );
            }
            said
        }
        Ended::Failed { why } => format!("Failed: {}", escape_sentence(why)),
    };
    paint_lines(&wrap(&sentence, style.width, "", ""), Ink::Red, style)
}

fn answers(run: &Run, summary: &Summary, style: Style) -> String {
    if summary.legs.is_empty() {
        return "Nothing was measured.\n".to_owned();
    }
    let mut out = String::new();
    for (leg, figures) in run.legs.iter().zip(&summary.legs) {
        out.push_str(&answer(run, leg, figures, style));
        if let Some(LatencySummary {
            ideal: Some(ideal),
            p50,
            ..
        }) = figures.requests
        {
            let beside = format!(
                "Ideal {}, measured {} at the median; {}",
                glue(ideal),
                glue(p50),
                requests::ideal(&run.links(), requests::NO_RATE)
            );
            out.push_str(&wrap(&beside, style.width, "", ""));
        }
        if let (Workload::Copy(order), Some(copied)) = (&run.spec.workload, &figures.copy) {
            let mut verdict = copy::verdict(order, copied);
            if let Some(crowded) = copy::crowded(figures) {
                verdict = format!("{verdict} {crowded}");
            }
            out.push_str(&wrap(&verdict, style.width, "", ""));
        }
        if let Workload::Blocks(order) = &run.spec.workload {
            let mut told = blocks::verdict(order, &run.host, leg, &figures.operations);
            told.extend(copy::crowded(figures).filter(|_| !told.is_empty()));
            for sentence in told {
                out.push_str(&wrap(&sentence, style.width, "", ""));
            }
        }
    }
    if let Some(sentence) = asymmetry(&summary.legs) {
        out.push_str(&wrap(&sentence, style.width, "", ""));
    }
    for leg in &run.legs {
        if let Ended::Failed { why } = &leg.ended
            && leg.ended != run.ended
        {
            let sentence = format!("The leg {} failed: {}", leg.direction, escape_sentence(why));
            out.push_str(&paint_lines(
                &wrap(&sentence, style.width, "", ""),
                Ink::Red,
                style,
            ));
        }
    }
    out
}

/// The line of one leg: its figure first.
fn answer(run: &Run, leg: &Leg, figures: &LegSummary, style: Style) -> String {
    let host = escape(&run.host);
    let to = match leg.direction {
        Direction::Up => "to",
        Direction::Down => "from",
    };
    let span = format!("in {}", glue(round_span(figures.duration)));
    let (figure, mut told) = match (&run.spec.workload, &figures.requests) {
        (workload, Some(requests)) if workload.is_answered() => (
            format!(
                "{} requests/s",
                per_second(requests.per_s).trim_end_matches("/s")
            ),
            vec![
                format!("p50 {}, p99 {}", glue(requests.p50), glue(requests.p99)),
                format!("{} answered {span}", grouped(requests.count)),
            ],
        ),
        (workload, None) if workload.is_answered() => {
            ("no request was answered".to_owned(), vec![span])
        }
        _ if figures.bytes == Bytes(0) => ("nothing arrived".to_owned(), vec![span]),
        (Workload::Udp(_), _) => (
            figures.goodput.to_string(),
            vec![
                datagrams_lost(figures),
                format!("{} {span}", glue(figures.bytes)),
            ],
        ),
        (Workload::Copy(_), _) => copy::answer(figures),
        _ => {
            let mut told: Vec<String> = steady(figures).into_iter().collect();
            told.push(format!("{} {span}", glue(figures.bytes)));
            (figures.goodput.to_string(), told)
        }
    };
    // What a client read and wrote it was answered.
    let answered = matches!(run.spec.workload, Workload::Blocks(_));
    if leg.receiver().duration == Nanos(0) && figures.bytes > Bytes(0) && !answered {
        told.push("as sent: the receiver did not tell what arrived".to_owned());
    }
    match &leg.ended {
        Ended::Interrupted if run.legs.len() > 1 => told.push("interrupted".to_owned()),
        Ended::Unfinished if run.legs.len() > 1 => told.push("unfinished".to_owned()),
        Ended::Failed { .. } => told.push("it broke off".to_owned()),
        Ended::Complete | Ended::Interrupted | Ended::Unfinished => {}
    }
    let first = format!("{:<5} {figure}  ", leg.direction);
    let rest = format!("{to} {host} ({})", told.join("; "));
    wrap(&rest, style.width, &first, "      ").replacen(
        &figure,
        &style.paint(Ink::Bold, &figure),
        1,
    )
}

fn steady(figures: &LegSummary) -> Option<String> {
    let rate = figures.steady_goodput?;
    (figures.ramp > Nanos(0)).then(|| {
        format!(
            "{} after the first {}",
            glue(rate),
            glue(round_span(figures.ramp))
        )
    })
}

fn datagrams_lost(figures: &LegSummary) -> String {
    match &figures.datagrams {
        Some(d) if d.packets > 0 => {
            let share = percent(d.lost as f64 / d.packets as f64);
            format!("{} lost, jitter {}", glue(share), glue(d.jitter))
        }
        _ => format!("loss {NOT_TOLD}"),
    }
}

/// One sentence when the directions differ, steady parts compared where both are known.
fn asymmetry(legs: &[LegSummary]) -> Option<String> {
    let [first, second] = legs else { return None };
    if first.direction == second.direction {
        return None;
    }
    let (a, b) = match (&first.requests, &second.requests) {
        (Some(a), Some(b)) => (a.per_s, b.per_s),
        _ => match (first.steady_goodput, second.steady_goodput) {
            (Some(a), Some(b)) => (a.0 as f64, b.0 as f64),
            _ => (first.goodput.0 as f64, second.goodput.0 as f64),
        },
    };
    let (more, less, fast, slow) = if a >= b {
        (first, second, a, b)
    } else {
        (second, first, b, a)
    };
    if slow <= 0.0 || fast / slow <= ASYMMETRY {
        return None;
    }
    let ratio = fast / slow;
    let ratio = if ratio < 9.95 {
        format!("{ratio:.1}")
    } else {
        format!("{ratio:.0}")
    };
    Some(format!(
        "{} is {ratio} times {}.",
        more.direction, less.direction
    ))
}

fn operations(run: &Run, summary: &Summary, style: Style) -> String {
    let legs = summary.legs.iter();
    legs.map(|leg| blocks::operations(&leg.operations, &run.links(), style))
        .collect()
}

// ---- what the kernel saw ----

/// One row of the table of details: what it is, and a cell a leg.
struct Row {
    label: &'static str,
    /// The name under which it is missed if no leg has it.
    missed_as: &'static str,
    cells: Vec<Option<String>>,
}

fn details(run: &Run, summary: &Summary, style: Style) -> String {
    if summary.legs.is_empty() {
        return String::new();
    }
    let rows = detail_rows(run, &summary.legs);
    let (told, silent): (Vec<&Row>, Vec<&Row>) = rows
        .iter()
        .partition(|row| row.cells.iter().any(Option::is_some));
    let mut lines = Vec::new();
    if summary.legs.len() > 1 {
        let mut header = vec![String::new()];
        header.extend(summary.legs.iter().map(|leg| leg.direction.to_string()));
        lines.push(header);
    }
    let mut some_missing = false;
    for row in &told {
        let mut line = vec![row.label.to_owned()];
        for cell in &row.cells {
            some_missing |= cell.is_none();
            line.push(cell.clone().unwrap_or_else(|| NOT_TOLD.to_owned()));
        }
        lines.push(line);
    }
    let mut out = if told.is_empty() {
        String::new()
    } else {
        words::table(&lines)
    };
    let who = if run.far.is_none() {
        format!("{} did not tell its side", escape(&run.host))
    } else {
        "the end or the kernel that knows did not say".to_owned()
    };
    if !silent.is_empty() {
        let mut names: Vec<&str> = silent.iter().map(|row| row.missed_as).collect();
        names.dedup();
        let sentence = format!("Not told ({who}): {}.", names.join(", "));
        out.push_str(&wrap(&sentence, style.width, "", ""));
    } else if some_missing {
        let sentence = format!("{NOT_TOLD}: {who}.");
        out.push_str(&wrap(&sentence, style.width, "", ""));
    }
    out
}

fn detail_rows(run: &Run, legs: &[LegSummary]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |label, missed_as, cell: &dyn Fn(&LegSummary) -> Option<String>| {
        rows.push(Row {
            label,
            missed_as,
            cells: legs.iter().map(cell).collect(),
        });
    };
    let text = |value: Option<Bytes>| value.map(|v| v.to_string());

    match run.spec.workload {
        Workload::Request(_) => {
            type Field = fn(&model::LatencySummary) -> Nanos;
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
                    l.requests.as_ref().map(|r| field(r).to_string())
                });
            }
        }
        Workload::Udp(_) => {
            row("datagrams expected", "datagrams", &|l| {
                l.datagrams.map(|d| grouped(d.packets))
            });
            row("lost", "datagrams", &|l| {
                l.datagrams.map(|d| match d.packets {
                    0 => grouped(d.lost),
                    all => format!(
                        "{} ({})",
                        grouped(d.lost),
                        percent(d.lost as f64 / all as f64)
                    ),
                })
            });
            row("out of order", "datagrams", &|l| {
                l.datagrams.map(|d| grouped(d.out_of_order))
            });
            row("jitter", "datagrams", &|l| {
                l.datagrams.map(|d| d.jitter.to_string())
            });
        }
        Workload::Copy(ref order) => copy::rows(order, &mut row),
        Workload::Bulk(_) | Workload::Blocks(_) => {}
    }

    let tcp = !run.spec.workload.is_udp();
    let bulk = tcp && !run.spec.workload.is_answered();
    if tcp {
        row("retransmitted segments", "retransmissions", &|l| {
            l.retransmits.map(|n| match l.retransmit_share {
                Some(share) if n > 0 => format!("{} ({} of bytes)", grouped(n), percent(share)),
                _ => grouped(n),
            })
        });
        if legs.iter().any(|l| l.ecn_marks.unwrap_or(0) > 0) {
            row("ECN marks", "ECN marks", &|l| l.ecn_marks.map(grouped));
        }
        row(
            "RTT idle -> loaded",
            "RTT",
            &|l| match (l.rtt_idle, l.rtt_loaded) {
                (None, None) => None,
                (idle, loaded) => {
                    let or = |rtt: Option<Nanos>| {
                        rtt.map_or_else(|| "not seen".to_owned(), |rtt| rtt.to_string())
                    };
                    Some(format!("{} -> {}", or(idle), or(loaded)))
                }
            },
        );
        row("  at most under load", "RTT", &|l| {
            l.rtt_loaded_max.map(|rtt| rtt.to_string())
        });
    }
    if tcp {
        row("congestion control", "congestion control", &|l| {
            let setting = l.settings.iter().find(|s| s.name == "congestion")?;
            let sender = setting.sender.as_deref().filter(|name| !name.is_empty())?;
            Some(escape(sender))
        });
    }
    if bulk {
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
        row("had data to send", "limiting times", &|l| {
            l.busy_share
                .map(|share| format!("{} of the time", percent(share)))
        });
        row("  limited by receive window", "limiting times", &|l| {
            l.rwnd_limited_share.map(percent)
        });
        row("  limited by send buffer", "limiting times", &|l| {
            l.sndbuf_limited_share.map(percent)
        });
    }
    row(
        if bulk || !tcp {
            "sender's CPU"
        } else {
            "client's CPU"
        },
        "sender's CPU",
        &|l| l.sender_cpu.as_ref().map(|c| cpu(c, l)),
    );
    row("  its whole host", "sender's CPU", &|l| {
        l.sender_cpu.and_then(|c| c.host_share).map(percent)
    });
    row(
        if bulk || !tcp {
            "receiver's CPU"
        } else {
            "server's CPU"
        },
        "receiver's CPU",
        &|l| l.receiver_cpu.as_ref().map(|c| cpu(c, l)),
    );
    row("  its whole host", "receiver's CPU", &|l| {
        l.receiver_cpu.and_then(|c| c.host_share).map(percent)
    });
    rows
}

/// A buffer that nobody asked for moves by the kernel's autotuning: then this is the largest it got.
fn buffer(leg: &LegSummary, name: &str, size: Option<Bytes>) -> Option<String> {
    let asked = |s: &SettingInForce| s.name == name && s.asked.is_some();
    let tail = match leg.settings.iter().any(asked) {
        true => "",
        false => " autotuned",
    };
    size.map(|size| format!("{size}{tail}"))
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

// ---- what was done ----

fn workload(run: &Run, summary: &Summary, style: Style) -> String {
    let streams = match run.spec.streams {
        1 => "1 connection".to_owned(),
        n => format!("{n} connections"),
    };
    let mut sentences = Vec::new();
    match &run.spec.workload {
        Workload::Bulk(bulk) => {
            if run.spec.streams > 1 {
                sentences.push(format!(
                    "{streams} each way; windows are theirs together, buffers are of one."
                ));
            }
            if let Some(size) = bulk.write_size {
                sentences.push(format!("Written in pieces of {size}."));
            }
            if bulk.zerocopy {
                sentences.push("The sender asked for zero-copy.".to_owned());
            }
            if summary.legs.iter().any(|leg| leg.discarded) {
                sentences.push(
                    "Discarded in the kernel at the receiver (MSG_TRUNC): this is the path, not the reader."
                        .to_owned(),
                );
            }
        }
        Workload::Request(request) => sentences.extend(request_words(request, &streams)),
        Workload::Copy(order) => sentences.push(copy::order(order)),
        Workload::Blocks(order) => {
            sentences.extend(blocks::order(order, &streams));
            let stores = run
                .legs
                .iter()
                .filter_map(|leg| leg.receiver().store.as_ref());
            sentences.extend(stores.filter_map(|one| blocks::store(order, one)));
        }
        Workload::Udp(udp) => sentences.push(format!(
            "Datagrams of {} bytes at {} on {}.",
            grouped(udp.datagram_size.0),
            glue(udp.rate),
            match run.spec.streams {
                1 => "1 stream".to_owned(),
                n => format!("each of {n} streams"),
            }
        )),
    }
    if run.spec.directions == Directions::Bidirectional && summary.legs.len() == 2 {
        sentences.push(
            "Both directions ran at once, so processor figures are for both together.".to_owned(),
        );
    }
    if let (Limit::Bytes(_) | Limit::Requests(_), Some(leg)) =
        (run.spec.limit, summary.legs.first())
        && leg.steady_goodput.is_none()
        && matches!(run.spec.workload, Workload::Bulk(_))
    {
        sentences.push("Too short for a steady part: slow start is in the figure.".to_owned());
    }
    if sentences.is_empty() {
        return String::new();
    }
    wrap(&sentences.join(" "), style.width, "", "")
}

fn request_words(request: &Request, streams: &str) -> Vec<String> {
    let sizes = format!(
        "{} asked, {} answered",
        request.request_size, request.reply_size
    );
    let mut sentences = vec![match request.pace_per_s {
        None => format!(
            "{sizes}, on {streams}; closed loop: the next request leaves when the reply is in."
        ),
        Some(pace) => format!(
            "{sizes}, on {streams}, paced at {}; latency counts from the moment that a request was due, \
             so a stall is charged to every request that it delays.",
            per_second(pace)
        ),
    }];
    if request.reconnect {
        sentences.push("A new connection for every request; its handshake counts.".to_owned());
    }
    sentences.push(
        match request.wait {
            Wait::Hybrid => {
                "Both ends spin for some tens of microseconds, then sleep (--wait hybrid)."
            }
            Wait::Block => {
                "Both ends sleep at once (--wait block): waking a core is part of the latency."
            }
        }
        .to_owned(),
    );
    sentences
}

/// The settings that were asked for, and those in which the ends differ without being asked. What
/// the kernel chose by itself and matters (buffers, congestion control) is in the table of details.
fn settings(summary: &Summary) -> String {
    let mut rows: Vec<[String; 4]> = Vec::new();
    for leg in &summary.legs {
        for setting in leg.settings.iter().filter(|s| worth_telling(s)) {
            let here_sends = leg.direction.sender() == Side::Near;
            let (here, there) = if here_sends {
                (&setting.sender, &setting.receiver)
            } else {
                (&setting.receiver, &setting.sender)
            };
            let cell = |value: &Option<String>, none: &str| match value.as_deref() {
                None => none.to_owned(),
                Some("") => "-".to_owned(),
                Some(value) => escape(value),
            };
            let row = [
                escape(&setting.name),
                cell(&setting.asked, "-"),
                cell(here, NOT_TOLD),
                cell(there, NOT_TOLD),
            ];
            if rows.contains(&row) {
                continue;
            }
            let name = &row[0];
            let known = rows.iter().any(|r| r[0] == *name);
            rows.push(match known {
                true => [
                    format!("{name} ({})", leg.direction),
                    row[1].clone(),
                    row[2].clone(),
                    row[3].clone(),
                ],
                false => row,
            });
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let buffer_asked = rows
        .iter()
        .any(|r| r[0].ends_with("-buffer") && r[1] != "-");
    let mut lines = vec![
        ["setting", "asked", "here", "there"]
            .map(str::to_owned)
            .to_vec(),
    ];
    lines.extend(rows.into_iter().map(|row| row.to_vec()));
    let mut out = words::table(&lines);
    if buffer_asked {
        out.push_str("The kernel holds twice the buffer that it grants (socket(7)).\n");
    }
    out
}

fn worth_telling(setting: &SettingInForce) -> bool {
    let (Some(sender), Some(receiver)) = (&setting.sender, &setting.receiver) else {
        return setting.asked.is_some();
    };
    let differs = match setting.name.as_str() {
        // Differ by nature.
        "congestion" | "send-buffer" | "receive-buffer" => false,
        // So do these by the TCP options that one end counts in.
        "mss" => match (sender.parse::<u32>(), receiver.parse::<u32>()) {
            (Ok(a), Ok(b)) => a.abs_diff(b) > TCP_OPTIONS_MOST,
            _ => sender != receiver,
        },
        _ => sender != receiver,
    };
    setting.asked.is_some() || differs
}

// ---- where ----

fn hosts(run: &Run, style: Style) -> String {
    let line =
        |label: &str, words: &str| wrap(words, style.width, &format!("{label:<5} "), "      ");
    let mut out = line("here", &host(&run.near));
    match &run.far {
        Some(far) if run.host == "local" && far.hostname == run.near.hostname => {
            out.push_str(&line("there", "the same host"));
        }
        Some(far) => out.push_str(&line("there", &host(far))),
        None => {
            let words = format!("{} did not tell what it is", escape(&run.host));
            out.push_str(&line("there", &words));
        }
    }
    for (label, host) in [("here", Some(&run.near)), ("there", run.far.as_ref())] {
        let same = label == "there" && host.is_some_and(|h| h.unread == run.near.unread);
        if let Some(host) = host
            && !host.unread.is_empty()
            && !same
        {
            out.push_str(&wrap(&unread(label, host), style.width, "", "  "));
        }
    }
    out
}

/// One host in one line.
pub(crate) fn host(host: &Fingerprint) -> String {
    let mut parts = Vec::new();
    let mut part = |text: String| {
        if !text.is_empty() {
            parts.push(text);
        }
    };
    part(escape(&host.kernel));
    if let Some(device) = &host.device {
        let mut words = escape(&device.name);
        if let Some(driver) = &device.driver {
            words.push_str(&format!(" ({})", escape(driver)));
        }
        if let Some(speed) = device.speed {
            words.push_str(&format!(" {}", link_speed(speed)));
        }
        part(words);
        if device.mtu > 0 {
            part(format!("MTU {}", device.mtu));
        }
        if let Some(qdisc) = &device.qdisc {
            part(format!("qdisc {}", escape(qdisc)));
        }
    }
    if let Some(congestion) = &host.congestion {
        part(escape(&congestion.default));
    }
    match (host.cpu.online, escape(&host.cpu.model)) {
        (0, model) => part(model),
        (n, model) if model.is_empty() => part(format!("{n} CPUs")),
        (n, model) => part(format!("{n} x {model}")),
    }
    match &host.virtualisation {
        Some(kind) => part(escape(kind)),
        None if !host.kernel.is_empty() => part("no virtualisation seen".to_owned()),
        None => {}
    }
    let name = match host.hostname.as_str() {
        "" => "(no name)".to_owned(),
        name => escape(name),
    };
    format!("{name}: {}", parts.join(", "))
}

/// Link speeds are round: `10 Gbit/s`, not `10.0 Gbit/s`.
fn link_speed(speed: BitRate) -> String {
    match speed.0 {
        bits if bits % 1_000_000_000 == 0 => format!("{} Gbit/s", bits / 1_000_000_000),
        bits if bits % 1_000_000 == 0 => format!("{} Mbit/s", bits / 1_000_000),
        _ => speed.to_string(),
    }
}

fn unread(label: &str, host: &Fingerprint) -> String {
    let mut names: Vec<String> = host
        .unread
        .iter()
        .take(UNREAD_NAMED)
        .map(|u| escape(&u.what))
        .collect();
    if host.unread.len() > UNREAD_NAMED {
        names.push(format!("and {} more", host.unread.len() - UNREAD_NAMED));
    }
    format!(
        "Not readable {label} ({}): {}.",
        host.unread.len(),
        names.join(", ")
    )
}

// ---- doubts, and where to find it all again ----

fn warnings(warnings: &[Warning], style: Style) -> String {
    let mut out = String::new();
    for warning in warnings {
        let what = wrap(&escape_sentence(&warning.what), style.width, "! ", "  ");
        out.push_str(&paint_lines(&what, Ink::Yellow, style));
        for (label, words) in [("", &warning.meaning), ("Do: ", &warning.remedy)] {
            let words = escape_sentence(words);
            if !words.is_empty() {
                out.push_str(&wrap(&format!("{label}{words}"), style.width, "  ", "  "));
            }
        }
    }
    out
}

fn trailer(run: &Run, style: Style) -> String {
    let title = match &run.title {
        Some(title) => format!(" \"{}\"", escape(title)),
        None => String::new(),
    };
    let when = words::utc(run.started);
    if run.id.is_empty() {
        return wrap(&format!("Run{title} of {when}."), style.width, "", "");
    }
    let id = escape(&run.id);
    let sentence = format!(
        "Run {id}{title} of {when}. Again: {}",
        glue(format!("linerate runs show {id}"))
    );
    wrap(&sentence, style.width, "", "")
}

/// Each line painted by itself, so that a pager that starts in the middle shows it right.
fn paint_lines(text: &str, ink: Ink, style: Style) -> String {
    text.lines()
        .map(|line| style.paint(ink, line) + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, LAN, LOSSY, WINDOWED};
    use model::*;

    fn plain(run: &Run) -> String {
        let text = summary(run, &summarise(run), &[], Style::PLAIN);
        assert!(text.is_ascii() && !text.contains('\x1b'), "{text}");
        for line in text.lines() {
            assert!(line.len() <= 80 && line.trim_end() == line, "{line:?}");
        }
        text
    }

    fn two_way(up: testing::Way, down: testing::Way) -> Vec<Leg> {
        vec![
            testing::leg(Direction::Up, up),
            testing::leg(Direction::Down, down),
        ]
    }

    #[test]
    fn who_was_not_there_sees_the_course_of_each_leg() {
        let run = testing::run(testing::spec(), two_way(LAN, LOSSY));
        let told = in_retrospect(&run, &summarise(&run), &[], Style::PLAIN);
        let course = |way: &str| {
            let mut lines = told
                .lines()
                .skip_while(|l| *l != format!("Goodput over time, {way}"));
            lines.nth(1).unwrap_or_default().to_owned()
        };
        assert!(
            course("up").starts_with("  =####") && course("up").ends_with("/s"),
            "{told}"
        );
        assert!(course("down").contains("  up to "), "{told}");
        let without = told.replace(&format!("Goodput over time, up\n{}\n", course("up")), "");
        let without = without.replace(
            &format!("Goodput over time, down\n{}\n\n", course("down")),
            "",
        );
        assert_eq!(without, plain(&run));
    }

    #[test]
    fn clean_two_way_bulk() {
        let run = testing::run(testing::spec(), two_way(LAN, LAN));
        insta::assert_snapshot!(plain(&run), @r#"
        up    896 Mbit/s  to db1 (943 Mbit/s after the first 2 s; 1.04 GiB in 10 s)
        down  896 Mbit/s  from db1 (943 Mbit/s after the first 2 s; 1.04 GiB in 10 s)

                                     up                     down
        retransmitted segments       0                      0
        RTT idle -> loaded           212 us -> 1.90 ms      212 us -> 1.90 ms
          at most under load         2.85 ms                2.85 ms
        congestion control           cubic                  cubic
        BDP at the loaded RTT        219 KiB                219 KiB
        congestion window            580 KiB                580 KiB
        receive window               3.00 MiB               3.00 MiB
        receive buffer               6.00 MiB autotuned     6.00 MiB autotuned
        send buffer                  4.00 MiB autotuned     4.00 MiB autotuned
          written, not yet sent      512 KiB                512 KiB
        had data to send             100 % of the time      100 % of the time
          limited by receive window  0 %                    0 %
          limited by send buffer     0 %                    0 %
        sender's CPU                 0.12 cores, 1.07 s/GB  0.12 cores, 1.07 s/GB
          its whole host             5.0 %                  5.0 %
        receiver's CPU               0.25 cores, 2.23 s/GB  0.25 cores, 2.23 s/GB
          its whole host             5.0 %                  5.0 %

        here  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
              fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        there db1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc fq_codel,
              cubic, 32 x AMD EPYC 7313P, no virtualisation seen

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        "#);
    }

    #[test]
    fn asymmetric_long_path_with_buffers_asked_and_limited() {
        let mut spec = testing::spec();
        spec.socket.receive_buffer = Some(Bytes(8 << 20));
        spec.socket.congestion = Some("reno".to_owned());
        let mut run = testing::run(spec, two_way(LOSSY, WINDOWED));
        run.host = "chicago.example.net".to_owned();
        run.title = Some("before the new switch".to_owned());
        for leg in &mut run.legs {
            for end in [&mut leg.near, &mut leg.far] {
                end.sockets[0].receive_buffer = Bytes(6 << 20);
                end.sockets[0].congestion = "reno".to_owned();
            }
        }
        run.warnings.push(testing::warning(
            "SO_RCVBUF 8.00 MiB asked, 6.00 MiB in force on web1, because net.core.rmem_max is 3145728",
            "The receive window cannot grow beyond what was given.",
            "sysctl -w net.core.rmem_max=8388608 on web1, or ask for less",
        ));
        run.near.unread = (0..9)
            .map(|n| Unread {
                what: format!("net.ipv4.thing_{n}"),
                why: "no such file".to_owned(),
            })
            .collect();
        insta::assert_snapshot!(plain(&run), @r#"
        up    58.9 Mbit/s  to chicago.example.net (62.0 Mbit/s after the first 2 s;
              70.2 MiB in 10 s)
        down  808 Mbit/s  from chicago.example.net (850 Mbit/s after the first 2 s;
              963 MiB in 10 s)
        down is 14 times up.

                                     up                     down
        retransmitted segments       410 (0.80 % of bytes)  0
        RTT idle -> loaded           52.1 ms -> 52.9 ms     52.1 ms -> 53.4 ms
          at most under load         79.3 ms                80.1 ms
        congestion control           reno                   reno
        BDP at the loaded RTT        400 KiB                5.41 MiB
        congestion window            396 KiB                5.80 MiB
        receive window               16.0 MiB               6.00 MiB
        receive buffer               6.00 MiB               6.00 MiB
        send buffer                  4.00 MiB autotuned     4.00 MiB autotuned
          written, not yet sent      512 KiB                512 KiB
        had data to send             100 % of the time      100 % of the time
          limited by receive window  0 %                    83 %
          limited by send buffer     0 %                    11 %
        sender's CPU                 0.12 cores, 16.3 s/GB  0.12 cores, 1.19 s/GB
          its whole host             5.0 %                  5.0 %
        receiver's CPU               0.25 cores, 34.0 s/GB  0.25 cores, 2.48 s/GB
          its whole host             5.0 %                  5.0 %

        setting         asked     here      there
        receive-buffer  8.00 MiB  6.00 MiB  6.00 MiB
        congestion      reno      reno      reno
        The kernel holds twice the buffer that it grants (socket(7)).

        here  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
              fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        there db1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc fq_codel,
              cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        Not readable here (9): net.ipv4.thing_0, net.ipv4.thing_1, net.ipv4.thing_2,
          net.ipv4.thing_3, net.ipv4.thing_4, net.ipv4.thing_5, and 3 more.

        ! SO_RCVBUF 8.00 MiB asked, 6.00 MiB in force on web1, because net.core.rmem_max
          is 3145728
          The receive window cannot grow beyond what was given.
          Do: sysctl -w net.core.rmem_max=8388608 on web1, or ask for less

        Run 1a2b3c4d "before the new switch" of 2026-11-20 20:17:16 UTC. Again:
        linerate runs show 1a2b3c4d
        "#);
    }

    #[test]
    fn requests() {
        let mut spec = testing::spec();
        spec.workload = Workload::Request(testing::request());
        spec.directions = Directions::Up;
        let mut run = testing::run(spec, vec![testing::request_leg(11_650)]);
        run.host = "local".to_owned();
        run.near.device.as_mut().unwrap().speed = None;
        run.far = Some(run.near.clone());
        insta::assert_snapshot!(plain(&run), @r#"
        up    116,500 requests/s  to local (p50 6.60 us, p99 21.0 us; 1,165,000 answered
              in 10 s)
        Ideal 4.00 us, measured 6.60 us at the median; ideal is the shortest round trip
        alone (no device of the hosts tells a rate, by which to reckon its frames as
        well).

        latency p50             6.60 us
                p90             6.60 us
                p99             21.0 us
                p99.9           85.0 us
                max             1.23 ms
                mean            8.09 us
        retransmitted segments  0
        RTT idle -> loaded      212 us -> 1.90 ms
          at most under load    2.85 ms
        congestion control      cubic
        client's CPU            0.12 cores, 1.03 us/request
          its whole host        5.0 %
        server's CPU            0.25 cores, 2.15 us/request
          its whole host        5.0 %

        128 B asked, 8.00 KiB answered, on 1 connection; closed loop: the next request
        leaves when the reply is in. Both ends spin for some tens of microseconds, then
        sleep (--wait hybrid).

        here  web1: Linux 6.12.48-amd64, eno1 (ixgbe), MTU 1500, qdisc fq_codel, cubic,
              32 x AMD EPYC 7313P, no virtualisation seen
        there the same host

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        "#);
    }

    #[test]
    fn paced_requests_on_new_connections() {
        let mut spec = testing::spec();
        spec.workload = Workload::Request(Request {
            pace_per_s: Some(2000.0),
            reconnect: true,
            wait: Wait::Block,
            ..testing::request()
        });
        spec.directions = Directions::Up;
        spec.streams = 4;
        let run = testing::run(spec, vec![testing::request_leg(200)]);
        let text = plain(&run);
        insta::assert_snapshot!(workload(&run, &summarise(&run), Style::PLAIN), @r#"
        128 B asked, 8.00 KiB answered, on 4 connections, paced at 2,000/s; latency
        counts from the moment that a request was due, so a stall is charged to every
        request that it delays. A new connection for every request; its handshake
        counts. Both ends sleep at once (--wait block): waking a core is part of the
        latency.
        "#);
        assert!(
            text.starts_with("up    2,000 requests/s  to db1 (p50 6.60 us"),
            "{text}"
        );
    }

    #[test]
    fn iperf3_server_that_tells_little() {
        let mut legs = two_way(LAN, LAN);
        for leg in &mut legs {
            leg.far = EndRecord {
                bytes: leg.far.bytes,
                ..EndRecord::default()
            };
        }
        let mut run = testing::run(testing::spec(), legs);
        run.host = "iperf3:speed.example".to_owned();
        run.far = None;
        insta::assert_snapshot!(plain(&run), @r#"
        up    896 Mbit/s  to iperf3:speed.example (943 Mbit/s after the first 2 s;
              1.04 GiB in 10 s; as sent: the receiver did not tell what arrived)
        down  896 Mbit/s  from iperf3:speed.example (943 Mbit/s after the first 2 s;
              1.04 GiB in 10 s)

                                     up                     down
        retransmitted segments       0                      not told
        RTT idle -> loaded           212 us -> 1.90 ms      not told
          at most under load         2.85 ms                not told
        congestion control           cubic                  not told
        BDP at the loaded RTT        219 KiB                not told
        congestion window            580 KiB                not told
        receive window               3.00 MiB               not told
        receive buffer               not told               6.00 MiB autotuned
        send buffer                  4.00 MiB autotuned     not told
          written, not yet sent      512 KiB                not told
        had data to send             100 % of the time      not told
          limited by receive window  0 %                    not told
          limited by send buffer     0 %                    not told
        sender's CPU                 0.12 cores, 1.07 s/GB  not told
          its whole host             5.0 %                  not told
        receiver's CPU               not told               0.25 cores, 2.23 s/GB
          its whole host             not told               5.0 %
        not told: iperf3:speed.example did not tell its side.

        here  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
              fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        there iperf3:speed.example did not tell what it is

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        "#);
    }

    #[test]
    fn settings_that_differ_without_being_asked() {
        let mut leg = testing::leg(Direction::Up, LAN);
        leg.near.sockets[0].mss = 1460;
        let mut run = testing::run(testing::spec(), vec![leg]);
        assert_eq!(settings(&summarise(&run)), "");
        run.legs[0].near.sockets[0].mss = 8948;
        run.legs[0].far.sockets[0].dscp = 46;
        insta::assert_snapshot!(settings(&summarise(&run)), @r#"
        setting  asked  here  there
        mss      -      8948  1448
        dscp     -      0     46
        "#);
    }

    #[test]
    fn interrupted() {
        let mut leg = testing::leg(Direction::Up, LAN);
        for end in [&mut leg.near, &mut leg.far] {
            end.samples.truncate(4);
            end.bytes = end.samples[3].bytes;
            end.duration = end.samples[3].at;
        }
        leg.ended = Ended::Interrupted;
        let mut run = testing::run(testing::spec(), vec![leg]);
        run.ended = Ended::Interrupted;
        insta::assert_snapshot!(plain(&run), @r#"
        Interrupted: what follows was measured until then.
        up    786 Mbit/s  to db1 (943 Mbit/s after the first 1.50 s; 281 MiB in 3 s)

        retransmitted segments       0
        RTT idle -> loaded           212 us -> 1.90 ms
          at most under load         1.90 ms
        congestion control           cubic
        BDP at the loaded RTT        219 KiB
        congestion window            580 KiB
        receive window               3.00 MiB
        receive buffer               6.00 MiB autotuned
        send buffer                  4.00 MiB autotuned
          written, not yet sent      512 KiB
        had data to send             100 % of the time
          limited by receive window  0 %
          limited by send buffer     0 %
        sender's CPU                 0.12 cores, 1.22 s/GB
          its whole host             5.0 %
        receiver's CPU               0.25 cores, 2.55 s/GB
          its whole host             5.0 %

        here  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
              fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        there db1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc fq_codel,
              cubic, 32 x AMD EPYC 7313P, no virtualisation seen

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        "#);
    }

    #[test]
    fn failed_before_anything_moved() {
        let mut run = testing::run(testing::spec(), Vec::new());
        run.far = None;
        run.ended = Ended::Failed {
            why: "db1 went silent for 5 s: check the path and the agent's log".to_owned(),
        };
        insta::assert_snapshot!(plain(&run), @r#"
        Failed: db1 went silent for 5 s: check the path and the agent's log
        Nothing was measured.

        here  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
              fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        there db1 did not tell what it is

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        "#);
    }

    #[test]
    fn datagrams() {
        let mut spec = testing::spec();
        spec.workload = Workload::Udp(Udp {
            rate: BitRate(943_000_000),
            datagram_size: Bytes(1448),
        });
        spec.directions = Directions::Up;
        let mut leg = testing::leg(Direction::Up, LAN);
        leg.far.datagrams = Some(Datagrams {
            packets: 773_000,
            lost: 930,
            out_of_order: 12,
            jitter: Nanos(17_000),
        });
        for end in [&mut leg.near, &mut leg.far] {
            for stream in end.samples.iter_mut().flat_map(|s| &mut s.streams) {
                stream.tcp = None;
            }
        }
        let run = testing::run(spec, vec![leg]);
        insta::assert_snapshot!(plain(&run), @r#"
        up    896 Mbit/s  to db1 (0.12 % lost, jitter 17.0 us; 1.04 GiB in 10 s)

        datagrams expected  773,000
        lost                930 (0.12 %)
        out of order        12
        jitter              17.0 us
        sender's CPU        0.12 cores, 1.07 s/GB
          its whole host    5.0 %
        receiver's CPU      0.25 cores, 2.23 s/GB
          its whole host    5.0 %

        Datagrams of 1,448 bytes at 943 Mbit/s on 1 stream.

        here  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
              fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        there db1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc fq_codel,
              cubic, 32 x AMD EPYC 7313P, no virtualisation seen

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        "#);
    }

    #[test]
    fn hostile_strings_are_inert() {
        let nasty = "evil\x1b]0;owned\x07\u{9b}2J\r\nup 100 Gbit/s\u{202e}";
        let mut run = testing::run(testing::spec(), two_way(LAN, LAN));
        run.host = nasty.to_owned();
        run.id = nasty.to_owned();
        run.title = Some(nasty.to_owned());
        run.ended = Ended::Failed {
            why: nasty.to_owned(),
        };
        run.legs[0].ended = Ended::Failed {
            why: format!("{nasty}!"),
        };
        run.warnings = vec![testing::warning(nasty, nasty, &nasty.repeat(1000))];
        for leg in &mut run.legs {
            for end in [&mut leg.near, &mut leg.far] {
                end.sockets[0].congestion = nasty.to_owned();
            }
        }
        let far = run.far.as_mut().unwrap();
        far.hostname = nasty.to_owned();
        far.kernel = nasty.repeat(1000);
        far.virtualisation = Some(nasty.to_owned());
        far.cpu.model = nasty.to_owned();
        far.congestion.as_mut().unwrap().default = nasty.to_owned();
        let device = far.device.as_mut().unwrap();
        device.name = nasty.to_owned();
        device.driver = Some(nasty.to_owned());
        device.qdisc = Some(nasty.to_owned());
        far.unread = vec![Unread {
            what: nasty.to_owned(),
            why: nasty.to_owned(),
        }];
        let text = summary(&run, &summarise(&run), &[], Style::PLAIN);
        assert!(
            text.chars().all(|c| c == '\n' || !words::is_unprintable(c)),
            "{text}"
        );
        assert!(text.lines().all(|l| !l.starts_with("up 100")), "{text}");
        assert!(text.len() < 10_000, "{} bytes", text.len());
    }

    #[test]
    fn colour_only_where_welcome() {
        let run = testing::run(testing::spec(), two_way(LAN, LAN));
        let colour = Style {
            colour: true,
            ..Style::PLAIN
        };
        let text = summary(&run, &summarise(&run), &[], colour);
        assert!(text.starts_with("up    \x1b[1m"), "{text:?}");
        let bare = text.replace("\x1b[1m", "").replace("\x1b[0m", "");
        assert_eq!(bare, plain(&run));
    }
}
