//! What a person reads at the end of a run: the answer, what the kernel reports, the hosts, the doubts.

use crate::figures::{self, UNKNOWN};
use crate::page::{Drawing, sparkline};
use crate::pictures::goodput::SecondCurve;
use crate::prelude::*;
use crate::words::{self, per_second, round_span};
use crate::{blocks, copy, explain, pictures, requests};
use model::{
    BlockServer, Blocks, Directions, Fingerprint, LegLimit, Request, SettingInForce, WaitMode,
    Warning, Workload,
};

/// Beyond this ratio the two directions are called different: 10 %.
const ASYMMETRY: f64 = 1.1;
/// So many unread things are named; the others are counted.
const UNREAD_NAMED: usize = 6;
/// Room for options in a TCP header (RFC 9293), in bytes.
const TCP_OPTIONS_MOST: u32 = 40;

/// The summary of a run in words and a small table, with what limited it in a sentence. Lines of prose
/// keep to `style.width`.
pub fn summary(run: &Run, summary: &Summary, why: &[Explanation], style: Style) -> String {
    parts(run, summary, why, String::new(), style)
}

/// The same for who did not see it happen: with the goodput of each leg over time in a row of blocks.
pub fn in_retrospect(run: &Run, summary: &Summary, why: &[Explanation], style: Style) -> String {
    let legs = run.legs.iter().zip(&summary.legs);
    let over_time = legs.filter_map(|(leg, figures)| {
        let picture =
            pictures::goodput::picture("", leg, figures, SecondCurve::Retransmissions, Vec::new())?;
        let Drawing::Chart(chart) = &picture.drawing else {
            return None;
        };
        Some(picture.title.clone() + "\n" + &sparkline(chart, style))
    });
    parts(run, summary, why, over_time.collect(), style)
}

fn parts(
    run: &Run,
    summary: &Summary,
    why: &[Explanation],
    course: String,
    style: Style,
) -> String {
    let links = run.links();
    let operations = summary.legs.iter().map(|leg| &leg.operations);
    let prose = |words: &str| match words {
        "" => String::new(),
        words => style.prose(words),
    };
    let operations = operations.filter_map(|all| {
        let (table, words) = blocks::operations(all, &links)?;
        let words = words.iter().map(|line| prose(line));
        Some(table.to_string() + &words.collect::<String>())
    });
    let (details, unknown) = details(run, summary);
    let (settings, note) = settings(summary);
    let parts = [
        answer(run, summary, why, style, true),
        course,
        operations.collect(),
        details.to_string() + &prose(&unknown),
        done(run, summary, style),
        settings.to_string() + &prose(note),
        hosts(run, style),
        warnings(&summary.warnings, style),
        trailer(run, style),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

/// The answers and what limited it, a sentence each.
pub(crate) fn sentences(run: &Run, summary: &Summary, why: &[Explanation]) -> Vec<String> {
    // What each leg reached are the figures of the page.
    let text = answer(run, summary, why, Style::WIDE, false);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect()
}

// ---- the answer ----

/// The answer, with or without what each leg reached.
fn answer(run: &Run, summary: &Summary, why: &[Explanation], style: Style, legs: bool) -> String {
    let why = explain::sentences(&copy::beside(why), style);
    how_it_ended(run, style) + &answers(run, summary, style, legs) + &why
}

fn how_it_ended(run: &Run, style: Style) -> String {
    let sentence = match &run.ended {
        Ended::Complete => return String::new(),
        Ended::Interrupted => "Interrupted: what follows was measured until then.".to_owned(),
        Ended::Unfinished => {
            let files = match &run.spec.workload {
                Workload::Blocks(Blocks {
                    server: BlockServer::Nfs { export, .. },
                    ..
                }) => format!(
                    " If it was killed, its files .linerate-{}-* are still in {}: remove them there.",
                    escape(&run.id),
                    escape(export)
                ),
                _ => String::new(),
            };
            format!(
                "Unfinished: it still runs, or its process was killed; what follows was kept until then.{files}"
            )
        }
        Ended::Failed { why } => format!("Failed: {}", escape_sentence(why)),
    };
    style.paint_lines(Ink::Red, &style.prose(&sentence))
}

fn answers(run: &Run, summary: &Summary, style: Style, legs: bool) -> String {
    if summary.legs.is_empty() {
        return "Nothing was measured.\n".to_owned();
    }
    let mut out = String::new();
    for (leg, figures) in run.legs.iter().zip(&summary.legs) {
        if legs {
            out += &of_leg(run, leg, figures, style);
        }
        let mut beside = Vec::new();
        let latencies = figures.requests.as_ref();
        if let Some((ideal, p50)) =
            latencies.and_then(|all| Some((glue(all.ideal?), glue(all.p50))))
        {
            let what = requests::ideal(&run.links(), requests::NO_RATE);
            beside.push(format!(
                "Ideal {ideal}, measured {p50} at the median; {what}"
            ));
        }
        let crowded = copy::crowded(figures);
        match (&run.spec.workload, &figures.copy) {
            (Workload::Copy(order), Some(copied)) => {
                let verdict = [Some(copy::verdict(order, copied)), crowded];
                beside.push(verdict.into_iter().flatten().collect::<Vec<_>>().join(" "));
            }
            (Workload::Blocks(order), _) => {
                let verdict = blocks::verdict(order, &run.host, leg, &figures.operations);
                let crowded = crowded.filter(|_| !verdict.is_empty());
                beside.extend(verdict.into_iter().chain(crowded));
            }
            _ => {}
        }
        out.extend(beside.iter().map(|sentence| style.prose(sentence)));
    }
    out.extend(asymmetry(&summary.legs).map(|sentence| style.prose(&sentence)));
    for leg in run.legs.iter().filter(|leg| leg.ended != run.ended) {
        if let Ended::Failed { why } = &leg.ended {
            let sentence = format!("The leg {} failed: {}", leg.direction, escape_sentence(why));
            out += &style.paint_lines(Ink::Red, &style.prose(&sentence));
        }
    }
    out
}

/// The line of one leg: its figure first.
fn of_leg(run: &Run, leg: &Leg, figures: &LegSummary, style: Style) -> String {
    let host = escape(&run.host);
    let to = match leg.direction {
        Direction::Up => "to",
        Direction::Down => "from",
    };
    let (figure, beside) = reached(run, leg, figures);
    let first = format!("{:<5} {figure}  ", leg.direction);
    let line = style.hang(&first, 6, &format!("{to} {host} ({})", beside.join("; ")));
    line.replacen(&figure, &style.paint(Ink::Bold, &figure), 1)
}

/// What a leg reached, and what belongs to that.
pub(crate) fn reached(run: &Run, leg: &Leg, figures: &LegSummary) -> (String, Vec<String>) {
    let span = format!("in {}", glue(round_span(figures.duration)));
    let moved = format!("{} {span}", glue(figures.bytes));
    let goodput = figures.goodput.to_string();
    let (figure, mut beside) = match (&run.spec.workload, &figures.requests) {
        (workload, Some(requests)) if workload.is_answered() => (
            requests_per_second(requests.per_s),
            vec![
                format!("p50 {}, p99 {}", glue(requests.p50), glue(requests.p99)),
                format!("{} answered {span}", grouped(requests.count)),
            ],
        ),
        (workload, None) if workload.is_answered() => {
            ("no request was answered".to_owned(), vec![span])
        }
        _ if figures.bytes == Bytes(0) => ("nothing arrived".to_owned(), vec![span]),
        (Workload::Udp(_), _) => (goodput, vec![datagrams_lost(figures), moved]),
        (Workload::Copy(_), _) => copy::answer(figures),
        _ => (
            goodput,
            Vec::from_iter(steady(figures).into_iter().chain([moved])),
        ),
    };
    // What a client read and wrote it was answered.
    let answered = matches!(run.spec.workload, Workload::Blocks(_));
    if leg.receiver().duration == Nanos(0) && figures.bytes > Bytes(0) && !answered {
        beside.push("as sent: the receiver did not report what arrived".to_owned());
    }
    let several = run.legs.len() > 1;
    beside.extend(match &leg.ended {
        Ended::Interrupted if several => Some("interrupted".to_owned()),
        Ended::Unfinished if several => Some("unfinished".to_owned()),
        Ended::Failed { .. } => Some("it broke off".to_owned()),
        Ended::Complete | Ended::Interrupted | Ended::Unfinished => None,
    });
    (figure, beside)
}

/// `116,500 requests/s`.
pub(crate) fn requests_per_second(rate: f64) -> String {
    per_second(rate).replace("/s", " requests/s")
}

fn steady(figures: &LegSummary) -> Option<String> {
    let (rate, ramp) = (figures.steady_goodput?, figures.ramp);
    let text = || format!("{} after the first {}", glue(rate), glue(round_span(ramp)));
    (ramp > Nanos(0)).then(text)
}

fn datagrams_lost(figures: &LegSummary) -> String {
    let all = figures.datagrams.unwrap_or_default();
    match all.lost_share() {
        Some(lost) => format!("{} lost, jitter {}", glue(percent(lost)), glue(all.jitter)),
        None => format!("loss {UNKNOWN}"),
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
    let (more, less) = (first.direction, second.direction);
    let (more, less, ratio) = match a >= b {
        true => (more, less, a / b),
        false => (less, more, b / a),
    };
    let decimals = usize::from(ratio < 9.95);
    let differ = a.min(b) > 0.0 && ratio > ASYMMETRY;
    differ.then(|| format!("{more} is {ratio:.decimals$}x {less}."))
}

// ---- what the kernel reports ----

/// The figures of each leg, and a sentence about those that are not known.
fn details(run: &Run, summary: &Summary) -> (Table, String) {
    if summary.legs.is_empty() {
        return Default::default();
    }
    let legs: Vec<&LegSummary> = summary.legs.iter().collect();
    let rows = figures::details(&run.spec.workload, &legs);
    let names: Vec<String> = legs.iter().map(|leg| leg.direction.to_string()).collect();
    let mut head = vec![""];
    head.extend(names.iter().map(String::as_str));
    let head = if legs.len() > 1 { &head[..] } else { &[] };
    let out = match rows.iter().any(figures::Row::is_known) {
        true => figures::known(head, &rows),
        false => Table::default(),
    };
    let who = match run.remote {
        None => format!("{} did not report its side", escape(&run.host)),
        Some(_) => "the end or the kernel that knows did not report it".to_owned(),
    };
    let silent = rows.iter().filter(|row| !row.is_known());
    let mut names: Vec<&str> = silent.map(|row| row.missed_as).collect();
    names.dedup();
    let mut cells = rows.iter().flat_map(|row| &row.cells);
    let note = match names[..] {
        [] if cells.all(Option::is_some) => String::new(),
        [] => format!("{UNKNOWN}: {who}."),
        _ => format!("Not reported ({who}): {}.", names.join(", ")),
    };
    (out, note)
}

/// What [`summary`] has in tables, for a page.
pub(crate) fn tables(run: &Run, summary: &Summary) -> (Vec<Table>, Vec<String>) {
    let (details, unknown) = details(run, summary);
    let (settings, note) = settings(summary);
    let links = run.links();
    let legs = summary.legs.iter();
    let operations = legs.filter_map(|leg| blocks::operations(&leg.operations, &links));
    let (mut tables, mut words): (Vec<_>, Vec<_>) = operations.unzip();
    tables.extend([details, settings]);
    words.push(vec![unknown, note.to_owned()]);
    let words = words.into_iter().flatten();
    (tables, words.filter(|words| !words.is_empty()).collect())
}

// ---- what was done ----

/// What was done, in words; empty where the answers say it all.
pub(crate) fn done(run: &Run, summary: &Summary, style: Style) -> String {
    let spec = &run.spec;
    let streams = words::counted(spec.streams.into(), "connection");
    let mut sentences = Vec::new();
    let mut say = |sentence: &str| sentences.push(sentence.to_owned());
    match &spec.workload {
        Workload::Bulk(bulk) => {
            if spec.streams > 1 {
                say(&format!(
                    "{streams} each way; windows are theirs together, buffers are of one."
                ));
            }
            if let Some(size) = bulk.write_size {
                say(&format!("Written in pieces of {size}."));
            }
            if bulk.zerocopy {
                say("The sender asked for zero-copy.");
            }
            if summary.legs.iter().any(|leg| leg.discarded) {
                say(
                    "Discarded in the kernel at the receiver (MSG_TRUNC): this is the path, not the reader.",
                );
            }
        }
        Workload::Request(request) => sentences.extend(request_words(request, &streams)),
        Workload::Copy(order) => say(&copy::order(order)),
        Workload::Blocks(order) => {
            let stores = run.legs.iter();
            let stores = stores.filter_map(|leg| leg.receiver().store.as_ref());
            sentences.extend(blocks::order(order, &streams));
            sentences.extend(stores.filter_map(|one| blocks::store(order, one)));
        }
        Workload::Udp(udp) => {
            let size = grouped(udp.datagram_size.0);
            let rate = match udp.rate.0 {
                0 => "as fast as it goes".to_owned(),
                _ => format!("at {}", glue(udp.rate)),
            };
            let on = match spec.streams {
                1 => "1 stream".to_owned(),
                n => format!("each of {n} streams"),
            };
            say(&format!("Datagrams of {size} bytes {rate} on {on}."));
        }
    }
    let mut say = |sentence: &str| sentences.push(sentence.to_owned());
    if spec.directions == Directions::Bidirectional && summary.legs.len() == 2 {
        say("Both directions ran at once, so processor figures are for both together.");
    }
    if let (LegLimit::Bytes(_) | LegLimit::Requests(_), Some(leg)) =
        (spec.limit, summary.legs.first())
        && leg.steady_goodput.is_none()
        && matches!(spec.workload, Workload::Bulk(_))
    {
        say("Too short for a steady part: slow start is in the figure.");
    }
    match sentences[..] {
        [] => String::new(),
        _ => style.prose(&sentences.join(" ")),
    }
}

fn request_words(request: &Request, streams: &str) -> Vec<String> {
    let (request_size, reply_size) = (request.request_size, request.reply_size);
    let loop_of = match request.pace_per_s {
        None => "; closed loop: the next request leaves when the reply is in.".to_owned(),
        Some(pace) => format!(
            ", paced at {}; latency counts from the moment that a request was due, \
             so a stall is charged to every request that it delays.",
            per_second(pace)
        ),
    };
    let first = format!("{request_size} asked, {reply_size} answered, on {streams}{loop_of}");
    let new = "A new connection for every request; its handshake counts.";
    let new = request.reconnect.then(|| new.to_owned());
    let wait = wait_words(request.wait, ["Both ends", "spin", "sleep"]);
    [Some(first), new, Some(wait)]
        .into_iter()
        .flatten()
        .collect()
}

/// How who waits for an answer does that.
pub(crate) fn wait_words(wait: WaitMode, [who, spin, sleep]: [&str; 3]) -> String {
    match wait {
        WaitMode::Hybrid => {
            format!("{who} {spin} for some tens of microseconds, then {sleep} (--wait hybrid).")
        }
        WaitMode::Block => {
            format!("{who} {sleep} at once (--wait block): waking a core is part of the latency.")
        }
    }
}

/// The settings that were asked for, and those in which the ends differ without being asked. What
/// the kernel chose by itself and matters (buffers, congestion control) is in the table of details.
fn settings(summary: &Summary) -> (Table, &'static str) {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for leg in &summary.legs {
        for setting in leg.settings.iter().filter(|s| is_shown(s)) {
            let mut ends = [&setting.sender, &setting.receiver];
            if leg.direction == Direction::Down {
                ends.reverse();
            }
            let cell = |value: &Option<String>, none: &str| match value.as_deref() {
                None => none.to_owned(),
                Some("") => "-".to_owned(),
                Some(value) => escape(value),
            };
            let name = escape(&setting.name);
            let asked = cell(&setting.asked, "-");
            let [local, remote] = ends.map(|end| cell(end, UNKNOWN));
            let mut row = vec![name, asked, local, remote];
            if rows.contains(&row) {
                continue;
            }
            if rows.iter().any(|r| r[0] == row[0]) {
                row[0] += &format!(" ({})", leg.direction);
            }
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return Default::default();
    }
    let is_asked = |row: &Vec<String>| row[0].ends_with("-buffer") && row[1] != "-";
    let note = match rows.iter().any(is_asked) {
        true => "The kernel holds twice the buffer that it grants (socket(7)).",
        false => "",
    };
    (
        Table::new(&["setting", "asked", "local", "remote"], rows),
        note,
    )
}

fn is_shown(setting: &SettingInForce) -> bool {
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
    let line = |label: &str, words: &str| style.hang(&format!("{label:<6} "), 7, words);
    let same = |remote: &&Fingerprint| run.host == "local" && remote.hostname == run.local.hostname;
    let peer = match run.remote.as_ref().filter(same) {
        Some(_) => "the same host".to_owned(),
        None => remote(&run.host, run.remote.as_ref()),
    };
    let mut out = line("local", &host(&run.local)) + &line("remote", &peer);
    let remote = run
        .remote
        .as_ref()
        .filter(|remote| remote.unread != run.local.unread);
    for host in [&run.local].into_iter().chain(remote) {
        if !host.unread.is_empty() {
            out += &style.hang("", 2, &unread(host));
        }
    }
    out
}

/// The remote host in one line.
pub(crate) fn remote(name: &str, remote: Option<&Fingerprint>) -> String {
    let unknown = || format!("{} did not report what it is", escape(name));
    remote.map_or_else(unknown, host)
}

/// One host in one line.
pub(crate) fn host(host: &Fingerprint) -> String {
    let mut parts = vec![escape(&host.kernel)];
    if let Some(device) = &host.device {
        let driver = device.driver.as_ref();
        let driver = driver.map(|driver| format!(" ({})", escape(driver)));
        let speed = device.speed.map(|speed| format!(" {}", link_speed(speed)));
        let (driver, speed) = (driver.unwrap_or_default(), speed.unwrap_or_default());
        parts.push(escape(&device.name) + &driver + &speed);
        parts.extend((device.mtu > 0).then(|| format!("MTU {}", device.mtu)));
        let qdisc = device.qdisc.as_ref();
        parts.extend(qdisc.map(|qdisc| format!("qdisc {}", escape(qdisc))));
    }
    parts.extend(host.congestion.as_ref().map(|all| escape(&all.default)));
    parts.push(match (host.cpu.online, escape(&host.cpu.model)) {
        (0, model) => model,
        (n, model) if model.is_empty() => format!("{n} CPUs"),
        (n, model) => format!("{n} x {model}"),
    });
    parts.push(match &host.virtualisation {
        Some(kind) => escape(kind),
        None if !host.kernel.is_empty() => "no virtualisation seen".to_owned(),
        None => String::new(),
    });
    parts.retain(|part| !part.is_empty());
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

fn unread(host: &Fingerprint) -> String {
    let all = host.unread.len();
    let named = host.unread.iter().take(UNREAD_NAMED);
    let mut names: Vec<String> = named.map(|u| escape(&u.what)).collect();
    if all > UNREAD_NAMED {
        names.push(format!("and {} more", all - UNREAD_NAMED));
    }
    let name = escape(&host.hostname);
    format!("Not readable on {name} ({all}): {}.", names.join(", "))
}

// ---- doubts, and where to find it all again ----

fn warnings(warnings: &[Warning], style: Style) -> String {
    let mut out = String::new();
    for warning in warnings {
        let what = style.hang("! ", 2, &escape_sentence(&warning.what));
        out += &style.paint_lines(Ink::Yellow, &what);
        for (label, words) in [("", &warning.meaning), ("Do: ", &warning.remedy)] {
            let words = escape_sentence(words);
            if !words.is_empty() {
                out += &style.hang("  ", 2, &format!("{label}{words}"));
            }
        }
    }
    out
}

fn trailer(run: &Run, style: Style) -> String {
    let title = run.title.as_ref();
    let title = title.map(|title| format!(" \"{}\"", escape(title)));
    let (title, when) = (title.unwrap_or_default(), words::utc(run.started));
    style.prose(&match words::shown(&run.id) {
        id if id.is_empty() => format!("Run{title} of {when}."),
        id => {
            let again = glue(format!("linerate runs show {id}"));
            format!("Run {id}{title} of {when}. Again: {again}")
        }
    })
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

    fn two_way(up: testing::TestDirection, down: testing::TestDirection) -> Vec<Leg> {
        vec![
            testing::leg(Direction::Up, up),
            testing::leg(Direction::Down, down),
        ]
    }

    #[test]
    fn who_was_not_there_sees_the_course_of_each_leg() {
        let run = testing::run(testing::spec(), two_way(LAN, LOSSY));
        let output = in_retrospect(&run, &summarise(&run), &[], Style::PLAIN);
        let course = |way: &str| {
            let mut lines = output
                .lines()
                .skip_while(|l| *l != format!("Goodput over time, {way}"));
            lines.nth(1).unwrap_or_default().to_owned()
        };
        assert!(
            course("up").starts_with("  =####") && course("up").ends_with("/s"),
            "{output}"
        );
        assert!(course("down").contains("  up to "), "{output}");
        let without = output.replace(&format!("Goodput over time, up\n{}\n", course("up")), "");
        let without = without.replace(
            &format!("Goodput over time, down\n{}\n\n", course("down")),
            "",
        );
        assert_eq!(without, plain(&run));
    }

    #[test]
    fn clean_two_way_bulk() {
        let run = testing::run(testing::spec(), two_way(LAN, LAN));
        insta::assert_snapshot!(plain(&run), @r"
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
          limited by send buffer     none counted           none counted
        sender's CPU                 0.12 cores, 1.07 s/GB  0.12 cores, 1.07 s/GB
          its whole host             5.0 %                  5.0 %
        receiver's CPU               0.25 cores, 2.23 s/GB  0.25 cores, 2.23 s/GB
          its whole host             5.0 %                  5.0 %

        local  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        remote db1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        ");
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
            for end in [&mut leg.local, &mut leg.remote] {
                end.sockets[0].receive_buffer = Bytes(6 << 20);
                end.sockets[0].congestion = "reno".to_owned();
            }
        }
        run.warnings.push(testing::warning(
            "SO_RCVBUF 8.00 MiB asked, 6.00 MiB in force on web1, because net.core.rmem_max is 3145728",
            "The receive window cannot grow beyond what was given.",
            "sysctl -w net.core.rmem_max=8388608 on web1, or set less",
        ));
        run.local.unread = (0..9)
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
        down is 14x up.

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
          limited by send buffer     none counted           11 %
        sender's CPU                 0.12 cores, 16.3 s/GB  0.12 cores, 1.19 s/GB
          its whole host             5.0 %                  5.0 %
        receiver's CPU               0.25 cores, 34.0 s/GB  0.25 cores, 2.48 s/GB
          its whole host             5.0 %                  5.0 %

        setting         asked     local     remote
        receive-buffer  8.00 MiB  6.00 MiB  6.00 MiB
        congestion      reno      reno      reno
        The kernel holds twice the buffer that it grants (socket(7)).

        local  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        remote db1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        Not readable on web1 (9): net.ipv4.thing_0, net.ipv4.thing_1, net.ipv4.thing_2,
          net.ipv4.thing_3, net.ipv4.thing_4, net.ipv4.thing_5, and 3 more.

        ! SO_RCVBUF 8.00 MiB asked, 6.00 MiB in force on web1, because net.core.rmem_max
          is 3145728
          The receive window cannot grow beyond what was given.
          Do: sysctl -w net.core.rmem_max=8388608 on web1, or set less

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
        run.local.device.as_mut().unwrap().speed = None;
        run.remote = Some(run.local.clone());
        insta::assert_snapshot!(plain(&run), @r"
        up    116,500 requests/s  to local (p50 6.60 us, p99 21.0 us; 1,165,000 answered
              in 10 s)
        Ideal 4.00 us, measured 6.60 us at the median; ideal is the shortest round trip
        alone (no device of the hosts reports a rate, so serialization is excluded).

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

        local  web1: Linux 6.12.48-amd64, eno1 (ixgbe), MTU 1500, qdisc fq_codel, cubic,
               32 x AMD EPYC 7313P, no virtualisation seen
        remote the same host

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        ");
    }

    #[test]
    fn paced_requests_on_new_connections() {
        let mut spec = testing::spec();
        spec.workload = Workload::Request(Request {
            pace_per_s: Some(2000.0),
            reconnect: true,
            wait: WaitMode::Block,
            ..testing::request()
        });
        spec.directions = Directions::Up;
        spec.streams = 4;
        let run = testing::run(spec, vec![testing::request_leg(200)]);
        let text = plain(&run);
        insta::assert_snapshot!(done(&run, &summarise(&run), Style::PLAIN), @r#"
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
    fn iperf3_server_that_reports_little() {
        let mut legs = two_way(LAN, LAN);
        for leg in &mut legs {
            leg.remote = EndRecord {
                bytes: leg.remote.bytes,
                ..EndRecord::default()
            };
        }
        let mut run = testing::run(testing::spec(), legs);
        run.host = "iperf3:speed.example".to_owned();
        run.remote = None;
        insta::assert_snapshot!(plain(&run), @r"
        up    896 Mbit/s  to iperf3:speed.example (943 Mbit/s after the first 2 s;
              1.04 GiB in 10 s; as sent: the receiver did not report what arrived)
        down  896 Mbit/s  from iperf3:speed.example (943 Mbit/s after the first 2 s;
              1.04 GiB in 10 s)

                                     up                     down
        retransmitted segments       0                      not reported
        RTT idle -> loaded           212 us -> 1.90 ms      not reported
          at most under load         2.85 ms                not reported
        congestion control           cubic                  not reported
        BDP at the loaded RTT        219 KiB                not reported
        congestion window            580 KiB                not reported
        receive window               3.00 MiB               not reported
        receive buffer               not reported           6.00 MiB autotuned
        send buffer                  4.00 MiB autotuned     not reported
          written, not yet sent      512 KiB                not reported
        had data to send             100 % of the time      not reported
          limited by receive window  0 %                    not reported
          limited by send buffer     none counted           not reported
        sender's CPU                 0.12 cores, 1.07 s/GB  not reported
          its whole host             5.0 %                  not reported
        receiver's CPU               not reported           0.25 cores, 2.23 s/GB
          its whole host             not reported           5.0 %
        not reported: iperf3:speed.example did not report its side.

        local  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        remote iperf3:speed.example did not report what it is

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        ");
    }

    #[test]
    fn settings_that_differ_without_being_asked() {
        let mut leg = testing::leg(Direction::Up, LAN);
        leg.local.sockets[0].mss = 1460;
        let mut run = testing::run(testing::spec(), vec![leg]);
        assert!(settings(&summarise(&run)).0.rows.is_empty());
        run.legs[0].local.sockets[0].mss = 8948;
        run.legs[0].remote.sockets[0].dscp = 46;
        insta::assert_snapshot!(settings(&summarise(&run)).0, @r"
        setting  asked  local  remote
        mss      -      8948   1448
        dscp     -      0      46
        ");
    }

    #[test]
    fn interrupted() {
        let mut leg = testing::leg(Direction::Up, LAN);
        for end in [&mut leg.local, &mut leg.remote] {
            end.samples.truncate(4);
            end.bytes = end.samples[3].bytes;
            end.duration = end.samples[3].at;
        }
        leg.ended = Ended::Interrupted;
        let mut run = testing::run(testing::spec(), vec![leg]);
        run.ended = Ended::Interrupted;
        insta::assert_snapshot!(plain(&run), @r"
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
          limited by send buffer     none counted
        sender's CPU                 0.12 cores, 1.22 s/GB
          its whole host             5.0 %
        receiver's CPU               0.25 cores, 2.55 s/GB
          its whole host             5.0 %

        local  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        remote db1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        ");
    }

    #[test]
    fn failed_before_anything_moved() {
        let mut run = testing::run(testing::spec(), Vec::new());
        run.remote = None;
        run.ended = Ended::Failed {
            why: "db1 went silent for 5 s: check the path and the agent's log".to_owned(),
        };
        insta::assert_snapshot!(plain(&run), @r"
        Failed: db1 went silent for 5 s: check the path and the agent's log
        Nothing was measured.

        local  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        remote db1 did not report what it is

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        ");
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
        leg.remote.datagrams = Some(Datagrams {
            packets: 773_000,
            lost: 930,
            out_of_order: 12,
            jitter: Nanos(17_000),
        });
        leg.remote.arrivals = Some(model::Arrivals {
            received: 772_070,
            dropped: 800,
            loss_events: 3,
            longest_loss: 700,
            delay_variation: testing::latencies(10),
            ..model::Arrivals::default()
        });
        for end in [&mut leg.local, &mut leg.remote] {
            for stream in end.samples.iter_mut().flat_map(|s| &mut s.streams) {
                stream.tcp = None;
            }
        }
        let run = testing::run(spec, vec![leg]);
        insta::assert_snapshot!(plain(&run), @r"
        up    896 Mbit/s  to db1 (0.12 % lost, jitter 17.0 us; 1.04 GiB in 10 s)

        datagrams sent             773,000
          received                 772,070
        lost                       930 (0.12 %)
          on the path              130
          by the receiving socket  800
          runs of loss             3, longest 700
        out of order               12
        duplicates                 0
        jitter                     17.0 us
        delay variation p50        6.60 us
                        p99        21.0 us
        sender's CPU               0.12 cores, 1.07 s/GB
          its whole host           5.0 %
        receiver's CPU             0.25 cores, 2.23 s/GB
          its whole host           5.0 %

        Datagrams of 1,448 bytes at 943 Mbit/s on 1 stream.

        local  web1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen
        remote db1: Linux 6.12.48-amd64, eno1 (ixgbe) 1 Gbit/s, MTU 1500, qdisc
               fq_codel, cubic, 32 x AMD EPYC 7313P, no virtualisation seen

        ! up: the receiving socket dropped up to 800 datagrams: its buffer (128 KiB) was
          full
          these are losses of the receiving host, which did not read in time, not of the
          path
          Do: choose a lower --rate, or larger buffers (-w 4M), which net.core.rmem_max
          of that host has to allow

        Run 1a2b3c4d of 2026-11-20 20:17:16 UTC. Again: linerate runs show 1a2b3c4d
        ");
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
            for end in [&mut leg.local, &mut leg.remote] {
                end.sockets[0].congestion = nasty.to_owned();
            }
        }
        let remote = run.remote.as_mut().unwrap();
        remote.hostname = nasty.to_owned();
        remote.kernel = nasty.repeat(1000);
        remote.virtualisation = Some(nasty.to_owned());
        remote.cpu.model = nasty.to_owned();
        remote.congestion.as_mut().unwrap().default = nasty.to_owned();
        let device = remote.device.as_mut().unwrap();
        device.name = nasty.to_owned();
        device.driver = Some(nasty.to_owned());
        device.qdisc = Some(nasty.to_owned());
        remote.unread = vec![Unread {
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
