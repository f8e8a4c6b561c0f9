//! A run in iperf3's shape.

use crate::prelude::*;
use crate::words;
use model::{
    CpuTimes, Datagrams, Directions, EndRecord, Fingerprint, LegLimit, Rows, SocketOptions,
    SocketState, Spec, StreamSample, interval_ends,
};
use serde_json::json;

/// The whole run as `iperf3 -J` prints a test.
pub fn to_json(run: &Run, summary: &Summary) -> String {
    let document = json!({"start": start(run), "intervals": intervals(run), "end": end(run)});
    let ours = json!({"linerate": {"run": run, "summary": summary}, "error": failed(run)});
    pretty(&with(document, ours))
}

/// The first line of the stream (iperf3's `--json-stream`).
pub fn stream_start(run: &Run) -> String {
    line("start", &start(run))
}

/// A line of the stream for the time between two samples of the local host of a leg, a row of it. `streams` of
/// another leg at the same time are numbered before this one's if `second`.
pub fn stream_interval(
    spec: &Spec,
    direction: Direction,
    second: bool,
    before: &Sample,
    sample: &Sample,
) -> String {
    let (streams, sum) = interval(spec, direction, second, before, sample);
    let data = json!({"streams": streams, sum_key("sum", second): sum});
    line("interval", &data)
}

/// The last line of the stream: the sums, and all of the run.
pub fn stream_end(run: &Run, summary: &Summary) -> String {
    let error = failed(run).map(|why| line("error", &json!(why)));
    let ours = json!({"linerate": {"run": run, "summary": summary}});
    error.unwrap_or_default() + &line("end", &with(end(run), ours))
}

fn failed(run: &Run) -> Option<&str> {
    match &run.ended {
        Ended::Failed { why } => Some(why),
        _ => None,
    }
}

fn line(event: &str, data: &Value) -> String {
    format!("{}\n", json!({"event": event, "data": data}))
}

fn start(run: &Run) -> Value {
    let spec = &run.spec;
    let (socket, order) = (&spec.socket, &spec.workload);
    let udp = spec.workload.is_udp();
    let sockets: Vec<&SocketOptions> = run.legs.iter().flat_map(|leg| &leg.local.sockets).collect();
    let first = sockets.first();
    let host = run.host.strip_prefix("iperf3:").unwrap_or(&run.host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => {
            (name.trim_matches(['[', ']']), port.parse::<u16>().ok())
        }
        _ => (host, None),
    };
    let port = port.or(first.map(|socket| socket.remote.port()));
    let legs = spec.directions.legs();
    let (duration, bytes) = match spec.limit {
        LegLimit::Time(span) => (span.0.div_ceil(1_000_000_000), 0),
        LegLimit::Bytes(bytes) => (0, bytes.0),
        LegLimit::Requests(_) | LegLimit::Whole => (0, 0),
    };
    let (rate, pacing) = (
        order.rate().unwrap_or_default(),
        socket.pacing.unwrap_or_default(),
    );
    let connected = sockets.iter().zip(0..).map(|(socket, index)| {
        json!({
            "socket": socket_number(index),
            "local_host": socket.local.ip().to_string(),
            "local_port": socket.local.port(),
            "remote_host": socket.remote.ip().to_string(),
            "remote_port": socket.remote.port(),
        })
    });
    let start = json!({
        "connected": connected.collect::<Vec<_>>(),
        "version": format!("linerate {}", run.local.linerate),
        "system_info": system_info(&run.local),
        "timestamp": {
            "time": rfc_date(run.started),
            "timesecs": run.started.0 / 1_000_000_000,
            "timemillisecs": run.started.0 / 1_000_000,
        },
        "connecting_to": {"host": name, "port": port.unwrap_or(0)},
        "cookie": run.id,
        "target_bitrate": rate,
        "fq_rate": pacing,
        "sock_bufsize": socket.send_buffer.or(socket.receive_buffer).unwrap_or_default(),
        "sndbuf_actual": first.map_or(Bytes(0), |socket| socket.send_buffer),
        "rcvbuf_actual": first.map_or(Bytes(0), |socket| socket.receive_buffer),
        "test_start": {
            "protocol": if udp { "UDP" } else { "TCP" },
            "num_streams": spec.streams,
            "blksize": order.unit(),
            "omit": 0,
            "duration": duration,
            "bytes": bytes,
            "blocks": 0,
            "reverse": u8::from(legs == [Direction::Down]),
            "tos": socket.dscp.unwrap_or(0) << 2,
            "target_bitrate": rate,
            "bidir": u8::from(legs.len() > 1),
            "fqrate": pacing,
            "interval": Rows::new(spec.interval).span().as_secs_f64(),
        },
    });
    let mss = (!udp).then(|| first.map_or(0, |socket| socket.mss));
    with(start, json!({"tcp_mss_default": mss, "title": run.title}))
}

/// The samples between which the rows of a leg lie.
fn row_ends(interval: Nanos, samples: &[Sample]) -> Vec<&Sample> {
    let mut rows = Rows::new(interval);
    let ends = samples
        .iter()
        .enumerate()
        .filter(|(n, sample)| rows.ends(sample.at) || *n == 0 || n + 1 == samples.len());
    let ends: Vec<&Sample> = ends.map(|(_, sample)| sample).collect();
    let bounds = interval_ends(&ends, |sample| sample.at);
    bounds.into_iter().copied().collect()
}

/// Both legs of a bidirectional run share their intervals; otherwise each interval is of one leg.
fn intervals(run: &Run) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    let at_once = run.spec.directions == Directions::Bidirectional;
    for (leg, second) in run.legs.iter().zip([false, true]) {
        let ends = row_ends(run.spec.interval, &leg.local.samples);
        for (position, pair) in ends.windows(2).enumerate() {
            let (list, sum) = interval(&run.spec, leg.direction, second, pair[0], pair[1]);
            let key = sum_key("sum", second);
            match all.get_mut(position) {
                Some(shared) if second && at_once => {
                    if let Some(streams) = shared["streams"].as_array_mut() {
                        streams.extend(list);
                    }
                    shared[key] = sum;
                }
                _ => all.push(json!({"streams": list, key: sum})),
            }
        }
    }
    all
}

/// The streams and their sum between two samples.
fn interval(
    spec: &Spec,
    direction: Direction,
    second: bool,
    before: &Sample,
    sample: &Sample,
) -> (Vec<Value>, Value) {
    let sends = direction == Direction::Up;
    let counts = interval_counts(before, sample, sends).unwrap_or_default();
    let entry = |bytes: Bytes, counts: &Value| {
        let udp = spec.workload.is_udp();
        let packets = udp.then(|| bytes.0 / spec.workload.unit().0.max(1));
        let entry = with(
            span(before.at, sample.at, bytes),
            json!({"packets": packets}),
        );
        let entry = with(entry, if udp { counts.clone() } else { Value::Null });
        with(entry, json!({"omitted": false, "sender": sends}))
    };
    let mut again: Option<u64> = None;
    let streams = sample.streams.iter().map(|stream| {
        let was = before.streams.iter().find(|s| s.stream == stream.stream);
        let bytes = stream.bytes.since(was.map_or(Bytes(0), |s| s.bytes));
        // Of several streams the counts are those of all together.
        let own = if spec.streams == 1 {
            &counts
        } else {
            &Value::Null
        };
        let first = if second { spec.streams } else { 0 };
        let number = json!({"socket": socket_number(first + stream.stream)});
        let entry = with(entry(bytes, own), number);
        let Some(tcp) = stream.tcp.as_ref().filter(|_| sends) else {
            return entry;
        };
        let earlier = was.and_then(|s| s.tcp.as_ref()?.total_retrans());
        let total = tcp.total_retrans().unwrap_or(0);
        let retransmits = u64::from(total.saturating_sub(earlier.unwrap_or(0)));
        again = Some(again.unwrap_or(0) + retransmits);
        let figures = json!({
            "retransmits": retransmits,
            "snd_cwnd": tcp.cwnd_bytes().unwrap_or_default(),
            "snd_wnd": tcp.snd_wnd().unwrap_or_default(),
            "rtt": tcp.srtt().unwrap_or_default().0 / 1_000,
            "rttvar": tcp.rttvar().unwrap_or_default().0 / 1_000,
            "pmtu": tcp.pmtu().unwrap_or(0),
            "reorder": tcp.reord_seen().unwrap_or(0),
        });
        with(entry, figures)
    });
    let streams = streams.collect();
    let sum = entry(sample.bytes.since(before.bytes), &counts);
    (streams, with(sum, json!({"retransmits": again})))
}

/// What was counted between two samples; a sender knows of no loss.
fn interval_counts(before: &Sample, sample: &Sample, sends: bool) -> Option<Value> {
    let (now, was) = (sample.datagrams?, before.datagrams.unwrap_or_default());
    let packets = now.packets.saturating_sub(was.packets);
    Some(match sends {
        true => json!({"packets": packets}),
        false => datagram_keys(&Datagrams {
            packets,
            // A late datagram takes back a loss of an earlier interval.
            lost: now.lost.saturating_sub(was.lost),
            ..now
        }),
    })
}

fn end(run: &Run) -> Value {
    let (spec, udp) = (&run.spec, run.spec.workload.is_udp());
    let mut end = json!({"cpu_utilization_percent": cpu(run)});
    let mut streams = Vec::new();
    for (leg, second) in run.legs.iter().zip([false, true]) {
        let first = if second { spec.streams } else { 0 };
        let all = (0..spec.streams).map(|stream| end_stream(spec, leg, stream, first + stream));
        streams.extend(all);
        if udp {
            // Sent by the sender, in the time of the receiver.
            let sum = span(Nanos(0), leg.receiver().duration, leg.sender().bytes);
            let sender = json!({"sender": leg.direction == Direction::Up});
            end[sum_key("sum", second)] = with(with(sum, counts(leg)), sender);
        }
        end[sum_key("sum_sent", second)] = sum(spec, leg, true);
        end[sum_key("sum_received", second)] = sum(spec, leg, false);
    }
    let congestion = |record: fn(&Leg) -> &EndRecord| {
        let first = run.legs.first().filter(|_| !udp)?;
        Some(&record(first).sockets.first()?.congestion)
    };
    let more = json!({
        "streams": streams,
        "sender_tcp_congestion": congestion(Leg::sender),
        "receiver_tcp_congestion": congestion(Leg::receiver),
    });
    with(end, more)
}

fn end_stream(spec: &Spec, leg: &Leg, stream: u32, number: u32) -> Value {
    let entry = |record: &EndRecord| {
        let bytes = stream_bytes(record, stream, spec);
        let sends = leg.direction == Direction::Up;
        let of = json!({"socket": socket_number(number), "sender": sends});
        with(span(Nanos(0), record.duration, bytes), of)
    };
    let sent = entry(leg.sender());
    match (spec.workload.is_udp(), spec.streams) {
        // The counts are kept for all streams together: those of one are known if there is one.
        (true, 1) => {
            let late = leg.receiver().datagrams.map_or(0, |d| d.out_of_order);
            json!({"udp": with(with(sent, counts(leg)), json!({"out_of_order": late}))})
        }
        (true, _) => json!({"udp": sent}),
        (false, _) => {
            let sent = with(sent, figures(spec, leg.sender(), stream));
            json!({"sender": sent, "receiver": entry(leg.receiver())})
        }
    }
}

/// What the sender's kernel reports of a stream over the whole leg.
fn figures(spec: &Spec, record: &EndRecord, stream: u32) -> Value {
    let samples = record.samples.iter();
    let samples = samples.flat_map(|sample| of_stream(sample, stream));
    let sockets: Vec<&SocketState> = samples.filter_map(|s| s.tcp.as_ref()).collect();
    let rtts = sockets.iter().filter_map(|t| Some(t.srtt()?.0 / 1_000));
    let rtts: Vec<u64> = rtts.filter(|rtt| *rtt > 0).collect();
    let largest = |of: fn(&SocketState) -> Option<Bytes>| {
        let all = sockets.iter().filter_map(|t| of(t));
        all.max().unwrap_or_default()
    };
    let mean = rtts.iter().sum::<u64>().checked_div(rtts.len() as u64);
    let total = |socket: &&SocketState| socket.total_retrans().unwrap_or(0);
    let again = match (sockets.first(), sockets.last()) {
        (Some(first), Some(last)) => Some(total(last).saturating_sub(total(first)).into()),
        // A stock peer reports each stream's; only their sum is kept.
        _ => record.retransmits.filter(|_| spec.streams == 1),
    };
    json!({
        "max_snd_cwnd": largest(SocketState::cwnd_bytes),
        "max_snd_wnd": largest(SocketState::snd_wnd),
        "max_rtt": rtts.iter().max().unwrap_or(&0),
        "min_rtt": rtts.iter().min().unwrap_or(&0),
        "mean_rtt": mean.unwrap_or(0),
        "retransmits": again,
    })
}

fn sum(spec: &Spec, leg: &Leg, sent: bool) -> Value {
    let record = if sent { leg.sender() } else { leg.receiver() };
    let sum = span(Nanos(0), record.duration, record.bytes);
    if !spec.workload.is_udp() {
        let again = retransmits(record).filter(|_| sent);
        let sender = leg.direction == Direction::Up;
        return with(sum, json!({"sender": sender, "retransmits": again}));
    }
    let counts = match sent {
        true => datagram_keys(&Datagrams {
            packets: record.datagrams.map_or(0, |d| d.packets),
            ..Datagrams::default()
        }),
        false => counts(leg),
    };
    with(with(sum, counts), json!({"sender": sent}))
}

/// What the receiver counted.
fn counts(leg: &Leg) -> Value {
    datagram_keys(&leg.receiver().datagrams.unwrap_or_default())
}

fn datagram_keys(counted: &Datagrams) -> Value {
    json!({
        "jitter_ms": counted.jitter.0 as f64 / 1e6,
        "lost_packets": counted.lost,
        "packets": counted.packets,
        "lost_percent": 100.0 * counted.lost_share().unwrap_or(0.0),
    })
}

fn retransmits(record: &EndRecord) -> Option<u64> {
    let total = |sample: &Sample| {
        let sockets = sample.streams.iter().filter_map(|s| s.tcp.as_ref());
        let counts = sockets.filter_map(|tcp| tcp.total_retrans().map(u64::from));
        counts.reduce(|a, b| a + b)
    };
    let mut totals = record.samples.iter().filter_map(total);
    match (totals.next(), totals.next_back()) {
        (Some(first), Some(last)) => Some(last.saturating_sub(first)),
        _ => record.retransmits,
    }
}

fn cpu(run: &Run) -> Value {
    // The legs of a bidirectional run are of the same process: the longest has all of it.
    let percent = |end: fn(&Leg) -> &EndRecord| {
        let last = run.legs.iter().filter_map(|leg| end(leg).samples.last());
        let last = last.max_by_key(|sample| sample.at);
        let (at, cpu) = last.map_or((Nanos(0), CpuTimes::default()), |s| (s.at, s.cpu));
        let of = |time: Nanos| match at.0 {
            0 => 0.0,
            at => 100.0 * time.0 as f64 / at as f64,
        };
        (of(cpu.process_user), of(cpu.process_system))
    };
    let (user, system) = percent(|leg| &leg.local);
    let (remote_user, remote_system) = percent(|leg| &leg.remote);
    json!({
        "host_total": user + system,
        "host_user": user,
        "host_system": system,
        "remote_total": remote_user + remote_system,
        "remote_user": remote_user,
        "remote_system": remote_system,
    })
}

fn span(from: Nanos, to: Nanos, bytes: Bytes) -> Value {
    let seconds = to.since(from);
    json!({
        "start": from.as_secs_f64(),
        "end": to.as_secs_f64(),
        "seconds": seconds.as_secs_f64(),
        "bytes": bytes,
        "bits_per_second": bytes.per(seconds).0 as f64,
    })
}

/// The object with those keys of another that have a value.
pub(crate) fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    object
}

/// As `uname -a` begins and ends: system, name, release, machine.
fn system_info(host: &Fingerprint) -> String {
    let (system, release) = host.kernel.split_once(' ').unwrap_or((&host.kernel, ""));
    [system, &host.hostname, release, &host.architecture].join(" ")
}

/// The bytes of one stream; exact for a single one.
fn stream_bytes(record: &EndRecord, stream: u32, spec: &Spec) -> Bytes {
    if spec.streams == 1 {
        return record.bytes;
    }
    let mut last = record.samples.last().into_iter();
    let last = last.find_map(|sample| of_stream(sample, stream).next());
    last.map_or(Bytes(0), |s| s.bytes)
}

pub(crate) fn of_stream(sample: &Sample, stream: u32) -> impl Iterator<Item = &StreamSample> {
    sample.streams.iter().filter(move |s| s.stream == stream)
}

/// iperf3 names streams by their file descriptors: 5 for the first, then every other number.
pub(crate) fn socket_number(index: u32) -> u64 {
    5 + 2 * u64::from(index)
}

fn sum_key(name: &str, second: bool) -> String {
    let tail = if second { "_bidir_reverse" } else { "" };
    format!("{name}{tail}")
}

/// `Fri, 20 Nov 2026 20:17:56 GMT` (RFC 9110, 5.6.7).
fn rfc_date(unix: Nanos) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let day_of_week = DAYS[(unix.0 / 86_400_000_000_000 % 7) as usize];
    let ((year, month, day), time) = (words::date(unix), words::clock(unix));
    let month = MONTHS[(month - 1) as usize];
    format!("{day_of_week}, {day:02} {month} {year} {time} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_as_iperf3_prints_them() {
        let at = |seconds| rfc_date(Nanos::from_secs(seconds));
        assert_eq!(at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at(1_795_205_876), "Fri, 20 Nov 2026 20:17:56 GMT");
        assert_eq!(at(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    }
}
