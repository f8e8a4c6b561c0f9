//! A run in iperf3's shape.

use crate::json::pretty;
use model::{
    BitRate, Bytes, CpuTimes, Datagrams, Direction, EndRecord, Ended, Fingerprint, Leg, Limit,
    Nanos, Run, Sample, SocketOptions, SocketState, Spec, StreamSample, Summary,
};
use serde_json::{Map, Value, json};

/// The whole run as `iperf3 -J` prints a test.
pub fn to_json(run: &Run, summary: &Summary) -> String {
    let mut document = json!({
        "start": start(run),
        "intervals": intervals(run),
        "end": end(run),
        "linerate": {"run": run, "summary": summary},
    });
    if let Ended::Failed { why } = &run.ended {
        document["error"] = json!(why);
    }
    pretty(&document)
}

/// The first line of the stream (iperf3's `--json-stream`).
pub fn stream_start(run: &Run) -> String {
    line("start", &start(run))
}

/// A line of the stream for the time between two samples of the near end of a leg. `streams` of
/// another leg at the same time are numbered before this one's if `second`.
pub fn stream_interval(
    spec: &Spec,
    direction: Direction,
    second: bool,
    before: &Sample,
    sample: &Sample,
) -> String {
    let first_socket = if second { spec.streams } else { 0 };
    let (streams, sum) = interval(spec, direction, first_socket, before, sample);
    line(
        "interval",
        &json!({"streams": streams, sum_key("sum", second): sum}),
    )
}

/// The last line of the stream: the sums, and all of the run.
pub fn stream_end(run: &Run, summary: &Summary) -> String {
    let mut text = String::new();
    if let Ended::Failed { why } = &run.ended {
        text.push_str(&line("error", &json!(why)));
    }
    let mut data = end(run);
    data["linerate"] = json!({"run": run, "summary": summary});
    text.push_str(&line("end", &data));
    text
}

fn line(event: &str, data: &Value) -> String {
    format!("{}\n", json!({"event": event, "data": data}))
}

fn start(run: &Run) -> Value {
    let spec = &run.spec;
    let sockets: Vec<(u64, &SocketOptions)> = (0..)
        .zip(run.legs.iter().flat_map(|leg| &leg.near.sockets))
        .map(|(index, socket)| (socket_number(index), socket))
        .collect();
    let first = sockets.first().map(|(_, socket)| *socket);
    let host = run.host.strip_prefix("iperf3:").unwrap_or(&run.host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => {
            (name.trim_matches(['[', ']']), port.parse::<u16>().ok())
        }
        _ => (host, None),
    };
    let port = port.or(first.map(|socket| socket.remote.port()));
    let mut start = json!({
        "connected": sockets.iter().map(|(number, socket)| json!({
            "socket": number,
            "local_host": socket.local.ip().to_string(),
            "local_port": socket.local.port(),
            "remote_host": socket.remote.ip().to_string(),
            "remote_port": socket.remote.port(),
        })).collect::<Vec<_>>(),
        "version": format!("linerate {}", run.near.linerate),
        "system_info": system_info(&run.near),
        "timestamp": {
            "time": rfc_date(run.started),
            "timesecs": run.started.0 / 1_000_000_000,
            "timemillisecs": run.started.0 / 1_000_000,
        },
        "connecting_to": {"host": name, "port": port.unwrap_or(0)},
        "cookie": run.id,
        "target_bitrate": target(spec).0,
        "fq_rate": fq_rate(spec).0,
        "sock_bufsize": spec.socket.send_buffer.or(spec.socket.receive_buffer).unwrap_or_default(),
        "sndbuf_actual": first.map_or(Bytes(0), |socket| socket.send_buffer),
        "rcvbuf_actual": first.map_or(Bytes(0), |socket| socket.receive_buffer),
        "test_start": {
            "protocol": if spec.workload.is_udp() { "UDP" } else { "TCP" },
            "num_streams": spec.streams,
            "blksize": block_size(spec),
            "omit": 0,
            "duration": match spec.limit { Limit::Time(span) => span.0.div_ceil(1_000_000_000), _ => 0 },
            "bytes": match spec.limit { Limit::Bytes(bytes) => bytes.0, _ => 0 },
            "blocks": 0,
            "reverse": u8::from(spec.directions.legs() == [Direction::Down]),
            "tos": spec.socket.dscp.unwrap_or(0) << 2,
            "target_bitrate": target(spec).0,
            "bidir": u8::from(spec.directions.legs().len() > 1),
            "fqrate": fq_rate(spec).0,
            "interval": spec.interval.as_secs_f64(),
        },
    });
    if !spec.workload.is_udp() {
        start["tcp_mss_default"] = json!(first.map_or(0, |socket| socket.mss));
    }
    if let Some(title) = &run.title {
        start["title"] = json!(title);
    }
    start
}

/// Both legs of a bidirectional run share their intervals; otherwise each interval is of one leg.
fn intervals(run: &Run) -> Vec<Value> {
    let spec = &run.spec;
    let streams = spec.streams;
    let mut all = Vec::new();
    let at_once = spec.directions == model::Directions::Bidirectional;
    for (index, leg) in run.legs.iter().enumerate() {
        let second = index > 0;
        for (position, pair) in leg.near.samples.windows(2).enumerate() {
            let first_socket = if second { streams } else { 0 };
            let (list, sum) = interval(spec, leg.direction, first_socket, &pair[0], &pair[1]);
            let key = sum_key("sum", second);
            match all.get_mut(position) {
                Some(Value::Object(shared)) if second && at_once => {
                    if let Some(Value::Array(shared)) = shared.get_mut("streams") {
                        shared.extend(list);
                    }
                    shared.insert(key, sum);
                }
                _ => all.push(json!({"streams": list, key: sum})),
            }
        }
    }
    all
}

fn interval(
    spec: &Spec,
    direction: Direction,
    first_socket: u32,
    before: &Sample,
    sample: &Sample,
) -> (Vec<Value>, Value) {
    let sends = direction == Direction::Up;
    let (from, to) = (before.at, sample.at);
    let mut again = 0u64;
    let mut told = false;
    let streams = sample
        .streams
        .iter()
        .map(|stream| {
            let was = before.streams.iter().find(|s| s.stream == stream.stream);
            let bytes = stream.bytes.since(was.map_or(Bytes(0), |s| s.bytes));
            let mut entry = span(from, to, bytes);
            entry.insert(
                "socket".into(),
                json!(socket_number(u64::from(first_socket + stream.stream))),
            );
            if let Some(tcp) = stream.tcp.as_ref().filter(|_| sends) {
                let earlier = was
                    .and_then(|s| s.tcp.as_ref()?.total_retrans())
                    .unwrap_or(0);
                let total = tcp.total_retrans().unwrap_or(0);
                let retransmits = u64::from(total.saturating_sub(earlier));
                again += retransmits;
                told = true;
                for (key, value) in [
                    ("retransmits", retransmits),
                    ("snd_cwnd", tcp.cwnd_bytes().unwrap_or_default().0),
                    ("snd_wnd", tcp.snd_wnd().unwrap_or_default().0),
                    ("rtt", tcp.srtt().unwrap_or_default().0 / 1_000),
                    ("rttvar", tcp.rttvar().unwrap_or_default().0 / 1_000),
                    ("pmtu", tcp.pmtu().unwrap_or(0).into()),
                    ("reorder", u64::from(tcp.reord_seen().unwrap_or(0))),
                ] {
                    entry.insert(key.into(), json!(value));
                }
            }
            if spec.workload.is_udp() {
                entry.insert("packets".into(), json!(bytes.0 / block_size(spec).max(1)));
                // The counts are of all streams together: those of one are known if there is one.
                if spec.streams == 1 {
                    entry.extend(interval_counts(before, sample, sends));
                }
            }
            entry.insert("omitted".into(), json!(false));
            entry.insert("sender".into(), json!(sends));
            Value::Object(entry)
        })
        .collect();
    let bytes = sample.bytes.since(before.bytes);
    let mut sum = span(from, to, bytes);
    if told {
        sum.insert("retransmits".into(), json!(again));
    }
    if spec.workload.is_udp() {
        sum.insert("packets".into(), json!(bytes.0 / block_size(spec).max(1)));
        sum.extend(interval_counts(before, sample, sends));
    }
    sum.insert("omitted".into(), json!(false));
    sum.insert("sender".into(), json!(sends));
    (streams, Value::Object(sum))
}

/// What was counted between two samples; a sender knows of no loss.
fn interval_counts(before: &Sample, sample: &Sample, sends: bool) -> Map<String, Value> {
    let Some(now) = sample.datagrams else {
        return Map::new();
    };
    let was = before.datagrams.unwrap_or_default();
    let between = Datagrams {
        packets: now.packets.saturating_sub(was.packets),
        // A late datagram takes back a loss of an earlier interval.
        lost: now.lost.saturating_sub(was.lost),
        ..now
    };
    if sends {
        return Map::from_iter([("packets".to_owned(), json!(between.packets))]);
    }
    datagram_keys(&between)
}

fn end(run: &Run) -> Value {
    let spec = &run.spec;
    let mut end = Map::new();
    let mut streams = Vec::new();
    for (index, leg) in run.legs.iter().enumerate() {
        let second = index > 0;
        for stream in 0..spec.streams {
            let number = if second { spec.streams } else { 0 } + stream;
            streams.push(end_stream(
                spec,
                leg,
                stream,
                socket_number(u64::from(number)),
            ));
        }
        if spec.workload.is_udp() {
            end.insert(sum_key("sum", second), udp_sum(spec, leg));
        }
        for (name, sent) in [("sum_sent", true), ("sum_received", false)] {
            end.insert(sum_key(name, second), sum(spec, leg, sent));
        }
    }
    end.insert("streams".into(), streams.into());
    end.insert("cpu_utilization_percent".into(), cpu(run));
    if let (Some(leg), false) = (run.legs.first(), spec.workload.is_udp()) {
        for (key, record) in [
            ("sender_tcp_congestion", leg.sender()),
            ("receiver_tcp_congestion", leg.receiver()),
        ] {
            if let Some(socket) = record.sockets.first() {
                end.insert(key.into(), json!(socket.congestion));
            }
        }
    }
    Value::Object(end)
}

fn end_stream(spec: &Spec, leg: &Leg, stream: u32, socket: u64) -> Value {
    let sends = leg.direction == Direction::Up;
    if spec.workload.is_udp() {
        let sender = leg.sender();
        let mut udp = span(
            Nanos(0),
            sender.duration,
            stream_bytes(sender, stream, spec),
        );
        udp.insert("socket".into(), json!(socket));
        // The counts are kept for all streams together: those of one are known if there is one.
        if spec.streams == 1 {
            udp.extend(counts(leg));
            let late = leg.receiver().datagrams.map_or(0, |d| d.out_of_order);
            udp.insert("out_of_order".into(), json!(late));
        }
        udp.insert("sender".into(), json!(sends));
        return json!({"udp": udp});
    }
    let mut both = Map::new();
    for (name, record, sent) in [
        ("sender", leg.sender(), true),
        ("receiver", leg.receiver(), false),
    ] {
        let mut entry = span(
            Nanos(0),
            record.duration,
            stream_bytes(record, stream, spec),
        );
        entry.insert("socket".into(), json!(socket));
        if sent {
            let accounts: Vec<&SocketState> = record
                .samples
                .iter()
                .flat_map(|sample| of_stream(sample, stream))
                .filter_map(|s| s.tcp.as_ref())
                .collect();
            let first = accounts.first().and_then(|t| t.total_retrans());
            let again = match accounts.last() {
                Some(last) => {
                    let total = last.total_retrans().unwrap_or(0);
                    Some(u64::from(total.saturating_sub(first.unwrap_or(0))))
                }
                // A stock peer tells each stream's; only their sum is kept.
                None if spec.streams == 1 => record.retransmits,
                None => None,
            };
            if let Some(again) = again {
                entry.insert("retransmits".into(), json!(again));
            }
            let rtts = || {
                accounts
                    .iter()
                    .filter_map(|t| Some(t.srtt()?.0 / 1_000))
                    .filter(|rtt| *rtt > 0)
            };
            let count = rtts().count() as u64;
            let largest = |f: &dyn Fn(&SocketState) -> u64| accounts.iter().map(|t| f(t)).max();
            for (key, value) in [
                (
                    "max_snd_cwnd",
                    largest(&|t| t.cwnd_bytes().unwrap_or_default().0),
                ),
                (
                    "max_snd_wnd",
                    largest(&|t| t.snd_wnd().unwrap_or_default().0),
                ),
                ("max_rtt", rtts().max()),
                ("min_rtt", rtts().min()),
                ("mean_rtt", rtts().sum::<u64>().checked_div(count)),
            ] {
                entry.insert(key.into(), json!(value.unwrap_or(0)));
            }
        }
        entry.insert("sender".into(), json!(sends));
        both.insert(name.into(), entry.into());
    }
    Value::Object(both)
}

fn sum(spec: &Spec, leg: &Leg, sent: bool) -> Value {
    let record = if sent { leg.sender() } else { leg.receiver() };
    let mut sum = span(Nanos(0), record.duration, record.bytes);
    if spec.workload.is_udp() {
        if sent {
            let packets = record.datagrams.map_or(0, |d| d.packets);
            for (key, value) in [
                ("jitter_ms", json!(0)),
                ("lost_packets", json!(0)),
                ("packets", json!(packets)),
                ("lost_percent", json!(0)),
            ] {
                sum.insert(key.into(), value);
            }
        } else {
            sum.extend(counts(leg));
        }
        sum.insert("sender".into(), json!(sent));
        return Value::Object(sum);
    }
    if sent {
        let again = retransmits(record);
        if let Some(again) = again {
            sum.insert("retransmits".into(), json!(again));
        }
    }
    sum.insert("sender".into(), json!(leg.direction == Direction::Up));
    Value::Object(sum)
}

fn udp_sum(spec: &Spec, leg: &Leg) -> Value {
    debug_assert!(spec.workload.is_udp(), "only datagrams have this sum");
    let mut sum = span(Nanos(0), leg.receiver().duration, leg.sender().bytes);
    sum.extend(counts(leg));
    sum.insert("sender".into(), json!(leg.direction == Direction::Up));
    Value::Object(sum)
}

/// What the receiver counted.
fn counts(leg: &Leg) -> Map<String, Value> {
    datagram_keys(&leg.receiver().datagrams.unwrap_or_default())
}

fn datagram_keys(counted: &Datagrams) -> Map<String, Value> {
    let Datagrams {
        packets,
        lost,
        jitter,
        ..
    } = *counted;
    let percent = if packets > 0 {
        100.0 * lost as f64 / packets as f64
    } else {
        0.0
    };
    [
        ("jitter_ms", json!(jitter.0 as f64 / 1e6)),
        ("lost_packets", json!(lost)),
        ("packets", json!(packets)),
        ("lost_percent", json!(percent)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect()
}

fn retransmits(record: &EndRecord) -> Option<u64> {
    let total = |sample: &Sample| {
        let told: Vec<u64> = sample
            .streams
            .iter()
            .filter_map(|s| s.tcp.as_ref()?.total_retrans().map(u64::from))
            .collect();
        (!told.is_empty()).then(|| told.iter().sum::<u64>())
    };
    let mut totals = record.samples.iter().filter_map(total);
    match (totals.next(), totals.next_back()) {
        (Some(first), Some(last)) => Some(last.saturating_sub(first)),
        _ => record.retransmits,
    }
}

fn cpu(run: &Run) -> Value {
    // The legs of a bidirectional run are of the same process: the longest tells it.
    let percent = |end: &dyn Fn(&Leg) -> &EndRecord| {
        let last = run
            .legs
            .iter()
            .filter_map(|leg| end(leg).samples.last())
            .max_by_key(|sample| sample.at);
        let (at, cpu) = last.map_or((Nanos(0), CpuTimes::default()), |s| (s.at, s.cpu));
        let of = |time: Nanos| {
            if at.0 == 0 {
                0.0
            } else {
                100.0 * time.0 as f64 / at.0 as f64
            }
        };
        (of(cpu.process_user), of(cpu.process_system))
    };
    let (user, system) = percent(&|leg| &leg.near);
    let (far_user, far_system) = percent(&|leg| &leg.far);
    json!({
        "host_total": user + system,
        "host_user": user,
        "host_system": system,
        "remote_total": far_user + far_system,
        "remote_user": far_user,
        "remote_system": far_system,
    })
}

fn span(from: Nanos, to: Nanos, bytes: Bytes) -> Map<String, Value> {
    let seconds = to.since(from);
    [
        ("start", json!(from.as_secs_f64())),
        ("end", json!(to.as_secs_f64())),
        ("seconds", json!(seconds.as_secs_f64())),
        ("bytes", json!(bytes.0)),
        ("bits_per_second", json!(bytes.per(seconds).0 as f64)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect()
}

/// As `uname -a` begins and ends: system, name, release, machine.
fn system_info(host: &Fingerprint) -> String {
    let (system, release) = host
        .kernel
        .split_once(' ')
        .unwrap_or((host.kernel.as_str(), ""));
    [system, &host.hostname, release, &host.architecture].join(" ")
}

/// The bytes of one stream; exact for a single one.
fn stream_bytes(record: &EndRecord, stream: u32, spec: &Spec) -> Bytes {
    if spec.streams == 1 {
        return record.bytes;
    }
    let last = record.samples.last();
    last.and_then(|sample| of_stream(sample, stream).next())
        .map_or(Bytes(0), |s| s.bytes)
}

fn of_stream(sample: &Sample, stream: u32) -> impl Iterator<Item = &StreamSample> {
    sample.streams.iter().filter(move |s| s.stream == stream)
}

/// iperf3 names streams by their file descriptors: 5 for the first, then every other number.
fn socket_number(index: u64) -> u64 {
    5 + 2 * index
}

fn sum_key(name: &str, second: bool) -> String {
    let tail = if second { "_bidir_reverse" } else { "" };
    format!("{name}{tail}")
}

fn block_size(spec: &Spec) -> u64 {
    spec.workload.order().unit().0
}

fn target(spec: &Spec) -> BitRate {
    spec.workload.order().rate().unwrap_or_default()
}

fn fq_rate(spec: &Spec) -> BitRate {
    spec.socket.pacing.unwrap_or_default()
}

/// `Fri, 20 Nov 2026 20:17:56 GMT` (RFC 9110, 5.6.7).
fn rfc_date(unix: Nanos) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let seconds = unix.0 / 1_000_000_000;
    let days = seconds / 86_400;
    // Days to a date by the algorithm of Howard Hinnant ("civil_from_days"), for days since 1970.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        MONTHS[(month - 1) as usize],
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    )
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
