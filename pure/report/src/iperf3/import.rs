//! What iperf3 printed, as a run. What its JSON does not have stays empty; so does what is not of the type it should be.

use model::{
    BitRate, Bulk, Bytes, CpuTimes, Datagrams, Direction, Directions, EndRecord, Ended,
    Fingerprint, Leg, LegLimit, Nanos, Placement, Run, Sample, SocketOptions, SocketSettings,
    SocketState, Spec, StreamSample, Udp, Warning, Workload,
};
use serde_json::{Map, Value};
use std::net::{IpAddr, SocketAddr};

/// Intervals that are taken at most: a week of seconds.
const MAX_INTERVALS: usize = 700_000;
/// Streams that are taken at most: 128 each way.
const MAX_STREAMS: usize = 256;

/// Reads what `iperf3 -J` (3.1 to 3.21, client or server) or `iperf3 --json-stream` printed, or what
/// linerate wrote in that shape, which comes back whole. The same text always gives the same id.
///
/// # Errors
/// If it is not iperf3's JSON, or nothing in it is of use: one sentence.
pub fn from_json(text: &str) -> Result<Run, String> {
    let document = document(text)?;
    let ours = &document["linerate"]["run"];
    if !ours.is_null() {
        let run = serde_json::from_slice(ours.to_string().as_bytes());
        return run.map_err(|e| format!("the run under its key 'linerate' cannot be read: {e}"));
    }
    let is_object = |key: &&str| matches!(document[*key], Value::Object(_) | Value::Null);
    if let Some(key) = ["start", "end"].iter().find(|key| !is_object(key)) {
        return Err(format!("its '{key}' is not an object"));
    }
    let (start, end, error) = (
        &document["start"],
        &document["end"],
        document["error"].as_str(),
    );
    if is_empty(start) && error.is_none() {
        return Err("it has no 'start', as iperf3's JSON has".to_owned());
    }
    let intervals = match &document["intervals"] {
        Value::Array(all) if all.len() <= MAX_INTERVALS => all.as_slice(),
        Value::Array(_) => return Err(format!("it has more than {MAX_INTERVALS} intervals")),
        Value::Null => &[],
        _ => return Err("its 'intervals' are not a list".to_owned()),
    };
    let reader = Reader {
        start,
        test: &start["test_start"],
        intervals,
        end,
    };
    Ok(Run {
        id: id(text),
        ..reader.run(error)?
    })
}

/// One document, also from the lines of a stream.
fn document(text: &str) -> Result<Value, String> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let values = values.collect::<Result<Vec<Value>, _>>();
    let values = values.map_err(|error| format!("it is not JSON: {error}"))?;
    let (mut document, mut intervals) = (Map::new(), Vec::new());
    for mut value in values {
        let event = value["event"].as_str().map(str::to_owned);
        let data = value.get_mut("data").map(Value::take).unwrap_or_default();
        match (event.as_deref(), value) {
            (Some("interval"), _) => intervals.push(data),
            (Some(event @ ("start" | "error" | "end")), _) => {
                if !data["linerate"].is_null() {
                    document.insert("linerate".to_owned(), data["linerate"].clone());
                }
                document.insert(event.to_owned(), data);
            }
            (Some(_), _) => {}
            (None, whole @ Value::Object(_)) if document.is_empty() => return Ok(whole),
            (None, _) => return Err("it is not an object, nor a line of --json-stream".to_owned()),
        }
    }
    if document.is_empty() {
        return Err("it holds no event of iperf3".to_owned());
    }
    document.insert("intervals".to_owned(), intervals.into());
    Ok(document.into())
}

/// Eight hexadecimal digits from the text (FNV-1a): importing it twice gives one run.
fn id(text: &str) -> String {
    let hash = text.bytes().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{hash:08x}")
}

struct Reader<'a> {
    start: &'a Value,
    /// What was asked, within `start`.
    test: &'a Value,
    intervals: &'a [Value],
    end: &'a Value,
}

impl Reader<'_> {
    fn run(&self, error: Option<&str>) -> Result<Run, String> {
        let protocol = self.test["protocol"].as_str().unwrap_or("TCP");
        if !matches!(protocol, "TCP" | "UDP") {
            let protocol = start_of(protocol, 20);
            return Err(format!(
                "it is a test over {protocol}; only TCP and UDP can be imported"
            ));
        }
        let ended = match error {
            Some(why) => Ended::Failed {
                why: format!("iperf3 says: {}", start_of(why, 500)),
            },
            None if is_empty(self.end) => Ended::Unfinished,
            None => Ended::Complete,
        };
        let ways = self.ways();
        let spec = self.spec(protocol == "UDP", &ways)?;
        let legs = ways.iter().zip([false, true]);
        let legs = legs.map(|(&way, second)| self.leg(&spec, way, second, &ended));
        let mut legs: Vec<Leg> = legs.collect();
        let is_empty = |leg: &Leg| leg.local.samples.is_empty() && leg.local.bytes == Bytes(0);
        if legs.iter().all(is_empty) {
            legs.clear();
        }
        let mut warnings = vec![Warning {
            what: "this run was imported from iperf3's JSON".to_owned(),
            meaning:
                "what iperf3 does not write is empty or zero: the remote host, limited times, \
                      nodelay, pacing, processor use of the whole hosts"
                    .to_owned(),
            remedy: "measure with linerate at both ends to see them".to_owned(),
        }];
        let omit = real(self.test, "omit");
        if omit > 0.0 {
            warnings.push(Warning {
                what: format!("iperf3 omitted the first {omit:.0} s"),
                meaning: "all figures are of the time after that".to_owned(),
                remedy: "none is needed".to_owned(),
            });
        }
        let started = self.start["timestamp"]["timesecs"].as_u64();
        Ok(Run {
            started: Nanos::from_secs(started.unwrap_or(0)),
            host: self.host(),
            title: self.start["title"].as_str().map(str::to_owned),
            spec,
            local: self.local(),
            legs,
            warnings,
            ended,
            ..Run::default()
        })
    }

    /// The directions of the test, seen from where iperf3 printed it.
    fn ways(&self) -> Vec<Direction> {
        let is_second = |sums: &Value| {
            let mut keys = sums.as_object().into_iter().flat_map(Map::keys);
            keys.any(|key| key.ends_with("_bidir_reverse"))
        };
        if is_second(self.end) || self.intervals.iter().any(is_second) {
            return vec![Direction::Up, Direction::Down];
        }
        // Since 3.2 each sum says whether this end sent; before, only the order shows it.
        let sums = self.intervals.iter().map(|interval| &interval["sum"]);
        let mut sums = sums.chain([&self.end["sum_sent"], &self.end["sum"]]);
        let is_server = !self.start["accepted_connection"].is_null();
        let reverse = &self.test["reverse"];
        let reverse = reverse.as_bool() == Some(true) || reverse.as_f64().is_some_and(|n| n != 0.0);
        let sends = sums.find_map(|sum| sum["sender"].as_bool());
        match sends.unwrap_or(reverse == is_server) {
            true => vec![Direction::Up],
            false => vec![Direction::Down],
        }
    }

    fn spec(&self, udp: bool, ways: &[Direction]) -> Result<Spec, String> {
        let count = |key| positive(self.test, key);
        let block = count("blksize").map(Bytes);
        let rate = count("target_bitrate").map(BitRate);
        let streams = count("num_streams").unwrap_or(1);
        if streams > 128 {
            return Err(format!("it has {streams} streams; iperf3 has 128 at most"));
        }
        let window = positive(self.start, "sock_bufsize").map(Bytes);
        let first = self.intervals.first();
        let interval = first.map(|first| seconds(&first["sum"], "seconds"));
        let interval = interval.filter(|span| span.0 > 0);
        Ok(Spec {
            workload: match udp {
                true => Workload::Udp(Udp {
                    rate: rate.unwrap_or_default(),
                    datagram_size: block.unwrap_or_default(),
                }),
                false => Workload::Bulk(Bulk {
                    write_size: block,
                    ..Bulk::default()
                }),
            },
            directions: match ways {
                [Direction::Up] => Directions::Up,
                [Direction::Down] => Directions::Down,
                _ => Directions::Bidirectional,
            },
            streams: streams as u32,
            limit: match (count("bytes"), count("blocks"), count("duration")) {
                (Some(bytes), ..) => LegLimit::Bytes(Bytes(bytes)),
                (_, Some(blocks), _) => {
                    LegLimit::Bytes(Bytes(blocks.saturating_mul(block.unwrap_or_default().0)))
                }
                (.., duration) => LegLimit::Time(Nanos::from_secs(duration.unwrap_or(0))),
            },
            // What iperf3 omitted is not in its figures any more.
            ramp: Some(Nanos(0)),
            trace: false,
            interval: interval.unwrap_or(Nanos::from_secs(1)),
            socket: SocketSettings {
                send_buffer: window,
                receive_buffer: window,
                mss: positive(self.start, "tcp_mss").map(small),
                pacing: count("fqrate").map(BitRate).or(rate.filter(|_| !udp)),
                dscp: count("tos")
                    .filter(|tos| *tos <= 255)
                    .map(|tos| (tos >> 2) as u8),
                ..SocketSettings::default()
            },
            local: Placement::default(),
            remote: Placement::default(),
        })
    }

    fn leg(&self, spec: &Spec, direction: Direction, second: bool, ended: &Ended) -> Leg {
        let sends = direction == Direction::Up;
        let tail = if second { "_bidir_reverse" } else { "" };
        let sum = |name: &str| Some(&self.end[format!("{name}{tail}")]).filter(|s| s.is_object());
        // Before 3.2 UDP had one sum for both.
        let sent = sum("sum_sent").or(sum("sum")).unwrap_or(&Value::Null);
        let received = sum("sum_received").unwrap_or(&Value::Null);
        let counted = sum("sum_received").or(sum("sum"));
        let end = |sum: &Value| EndRecord {
            bytes: Bytes(whole(sum, "bytes")),
            duration: seconds(sum, "seconds"),
            ..EndRecord::default()
        };
        let (mut local, mut remote) = match sends {
            true => (end(sent), end(received)),
            false => (end(counted.unwrap_or(&Value::Null)), end(sent)),
        };
        local.sockets = self.sockets(spec, sends, second);
        local.samples = self.samples(spec, sends);
        if let (Nanos(0), Some(last)) = (local.duration, local.samples.last()) {
            (local.bytes, local.duration) = (last.bytes, last.at);
        }
        self.processors("host", &mut local);
        self.processors("remote", &mut remote);
        let (sender, receiver) = match sends {
            true => (&mut local, &mut remote),
            false => (&mut remote, &mut local),
        };
        match spec.workload.is_udp() {
            true => {
                receiver.datagrams = counted.map(|sum| Datagrams {
                    out_of_order: self.out_of_order(sends),
                    ..datagrams(sum)
                });
                sender.datagrams = sent.is_object().then(|| Datagrams {
                    packets: whole(sent, "packets"),
                    ..Datagrams::default()
                });
            }
            false => sender.retransmits = sent["retransmits"].as_u64(),
        }
        Leg {
            direction,
            started: Nanos(0),
            local,
            remote,
            ended: ended.clone(),
        }
    }

    /// Cumulated samples of the streams on which this end had this role.
    fn samples(&self, spec: &Spec, sends: bool) -> Vec<Sample> {
        let mss = positive(self.start, "tcp_mss_default").filter(|mss| *mss < 1_000_000);
        let mss = small(mss.unwrap_or(1));
        // Of each socket its bytes and retransmissions so far.
        let mut totals: Vec<(u64, Bytes, u64)> = Vec::new();
        let mut samples: Vec<Sample> = Vec::new();
        let mut counted = Datagrams::default();
        for interval in self.intervals {
            let mut at = None;
            let mut entries = Vec::new();
            for stream in list(&interval["streams"]).iter().take(MAX_STREAMS) {
                let other_role = stream["sender"].as_bool().is_some_and(|role| role != sends);
                if stream["omitted"].as_bool() == Some(true) || other_role {
                    continue;
                }
                let now = datagrams(stream);
                counted = Datagrams {
                    packets: counted.packets.saturating_add(now.packets),
                    lost: counted.lost.saturating_add(now.lost),
                    ..now
                };
                at = at.max(Some(seconds(stream, "end")));
                let socket = stream["socket"].as_u64().unwrap_or(0);
                let known = totals.iter().position(|(number, ..)| *number == socket);
                let position = known.unwrap_or(totals.len());
                if position == MAX_STREAMS {
                    continue;
                }
                if known.is_none() {
                    totals.push((socket, Bytes(0), 0));
                }
                let (_, bytes, again) = &mut totals[position];
                *bytes += Bytes(whole(stream, "bytes"));
                let tcp = stream.get("snd_cwnd").map(|_| {
                    *again = again.saturating_add(whole(stream, "retransmits"));
                    tcp_info(stream, mss, *again)
                });
                entries.push(StreamSample {
                    stream: position as u32,
                    bytes: *bytes,
                    tcp,
                    ..StreamSample::default()
                });
            }
            // A last interval of no length (3.12 prints one) moves nothing.
            let last = samples.last().map(|last| last.at);
            let Some(at) = at.filter(|at| last.is_none_or(|last| *at > last)) else {
                continue;
            };
            if samples.is_empty() {
                samples.push(self.first_sample(spec));
            }
            entries.sort_by_key(|entry| entry.stream);
            samples.push(Sample {
                at,
                bytes: totals.iter().map(|(_, bytes, _)| *bytes).sum(),
                streams: entries,
                datagrams: spec.workload.is_udp().then_some(counted),
                ..Sample::default()
            });
        }
        samples
    }

    /// The moment zero, with the buffers of when the test began.
    fn first_sample(&self, spec: &Spec) -> Sample {
        let streams = (0..spec.streams).map(|stream| StreamSample {
            stream,
            send_buffer: positive(self.start, "sndbuf_actual").map(Bytes),
            receive_buffer: positive(self.start, "rcvbuf_actual").map(Bytes),
            ..StreamSample::default()
        });
        Sample {
            streams: streams.collect(),
            ..Sample::default()
        }
    }

    /// The sockets of one direction: iperf3 lists those that it sends on first.
    fn sockets(&self, spec: &Spec, sends: bool, second: bool) -> Vec<SocketOptions> {
        let streams = spec.streams as usize;
        let congestion = match sends {
            true => &self.end["sender_tcp_congestion"],
            false => &self.end["receiver_tcp_congestion"],
        };
        let size = |key| positive(self.start, key).unwrap_or(0);
        let of_leg = list(&self.start["connected"]).iter();
        let of_leg = of_leg.skip(if second { streams } else { 0 }).take(streams);
        let sockets = of_leg.zip(0..).filter_map(|(entry, stream)| {
            let address = |host: &str, port: &str| {
                let ip: IpAddr = entry[host].as_str()?.parse().ok()?;
                let port = u16::try_from(entry[port].as_u64()?).ok()?;
                Some(SocketAddr::new(ip, port))
            };
            let local = address("local_host", "local_port")?;
            let remote = address("remote_host", "remote_port")?;
            Some(SocketOptions {
                send_buffer: Bytes(size("sndbuf_actual")),
                receive_buffer: Bytes(size("rcvbuf_actual")),
                mss: size("tcp_mss_default").min(65_535) as u32,
                congestion: congestion.as_str().unwrap_or_default().to_owned(),
                nodelay: spec.socket.nodelay == Some(true),
                pacing: spec.socket.pacing,
                dscp: spec.socket.dscp.unwrap_or(0),
                ..SocketOptions::new(stream, local, remote)
            })
        });
        sockets.collect()
    }

    /// Processor use, which iperf3 reports for a whole test in percent of one processor.
    fn processors(&self, whose: &str, end: &mut EndRecord) {
        let used = &self.end["cpu_utilization_percent"];
        if used.is_null() || end.duration == Nanos(0) {
            return;
        }
        if end.samples.is_empty() {
            end.samples = vec![Sample::default(), Sample::default()];
            (end.samples[1].at, end.samples[1].bytes) = (end.duration, end.bytes);
        }
        if let Some(last) = end.samples.last_mut() {
            let time = |key: &str| {
                let percent = real(used, &format!("{whose}_{key}")).clamp(0.0, 1e6);
                Nanos((percent / 100.0 * last.at.0 as f64) as u64)
            };
            last.cpu = CpuTimes {
                process_user: time("user"),
                process_system: time("system"),
                ..CpuTimes::default()
            };
        }
    }

    fn out_of_order(&self, sends: bool) -> u64 {
        let streams = list(&self.end["streams"]).iter().take(MAX_STREAMS);
        let own = streams.map(|stream| &stream["udp"]);
        let own = own.filter(|udp| udp["sender"].as_bool().is_none_or(|role| role == sends));
        let late = own.filter_map(|udp| udp["out_of_order"].as_u64());
        late.fold(0, u64::saturating_add)
    }

    fn host(&self) -> String {
        let other = match &self.start["connecting_to"] {
            Value::Null => &self.start["accepted_connection"],
            other => other,
        };
        let name = start_of(other["host"].as_str().unwrap_or("unknown"), 255);
        match other["port"].as_u64() {
            Some(port) if name.contains(':') => format!("iperf3:[{name}]:{port}"),
            Some(port) => format!("iperf3:{name}:{port}"),
            None => format!("iperf3:{name}"),
        }
    }

    /// What `uname -a` said: system, name, release, ..., machine.
    fn local(&self) -> Fingerprint {
        let info = self.start["system_info"].as_str().unwrap_or_default();
        let words: Vec<&str> = info.split_whitespace().collect();
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        Fingerprint {
            hostname: word(1).to_owned(),
            kernel: format!("{} {}", word(0), word(2)).trim().to_owned(),
            architecture: words.last().copied().unwrap_or_default().to_owned(),
            ..Fingerprint::default()
        }
    }
}

/// iperf3 has the window in bytes; the kernel counts segments.
fn tcp_info(stream: &Value, mss: u32, total_retrans: u64) -> SocketState {
    let micros = |key| Nanos::from_micros(whole(stream, key));
    model::socket_state! {
        mss: Some(mss),
        cwnd: Some(small(whole(stream, "snd_cwnd") / u64::from(mss))),
        snd_wnd: stream.get("snd_wnd").map(|_| Bytes(whole(stream, "snd_wnd"))),
        srtt: Some(micros("rtt")),
        rttvar: Some(micros("rttvar")),
        pmtu: Some(small(whole(stream, "pmtu"))),
        total_retrans: Some(small(total_retrans)),
    }
}

fn datagrams(sum: &Value) -> Datagrams {
    Datagrams {
        packets: whole(sum, "packets"),
        lost: whole(sum, "lost_packets"),
        out_of_order: 0,
        jitter: Nanos((real(sum, "jitter_ms").clamp(0.0, 1e9) * 1e6) as u64),
    }
}

fn is_empty(object: &Value) -> bool {
    object.as_object().is_none_or(Map::is_empty)
}

fn start_of(text: &str, longest: usize) -> String {
    text.chars().take(longest).collect()
}

fn small(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn real(value: &Value, key: &str) -> f64 {
    value[key].as_f64().filter(|n| n.is_finite()).unwrap_or(0.0)
}

/// A count or a size; zero, as iperf3 writes it, is one that was not asked for.
fn positive(value: &Value, key: &str) -> Option<u64> {
    let number = real(value, key);
    (number >= 1.0).then_some(number as u64)
}

fn whole(value: &Value, key: &str) -> u64 {
    let number = value[key].as_u64();
    number.unwrap_or(real(value, key).max(0.0) as u64)
}

/// A time in seconds; at most a year, so that nothing overflows.
fn seconds(value: &Value, key: &str) -> Nanos {
    Nanos((real(value, key).clamp(0.0, 31_536_000.0) * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iperf3::to_json;
    use serde_json::json;

    const STOCK: [(&str, &str); 5] = [
        ("tcp", include_str!("../../tests/iperf3/tcp-3.12.json")),
        (
            "reverse",
            include_str!("../../tests/iperf3/reverse-3.12.json"),
        ),
        ("bidir", include_str!("../../tests/iperf3/bidir-3.12.json")),
        ("udp", include_str!("../../tests/iperf3/udp-3.12.json")),
        (
            "udp-bidir",
            include_str!("../../tests/iperf3/udp-bidir-3.12.json"),
        ),
    ];

    #[test]
    fn what_stock_iperf3_printed() {
        for (name, text) in STOCK {
            let run = from_json(text).unwrap();
            assert_eq!(run.ended, Ended::Complete, "{name}");
            assert!(
                run.host.starts_with("iperf3:127.0.0.1:"),
                "{name}: {}",
                run.host
            );
            assert!(run.started > Nanos::from_secs(1_700_000_000), "{name}");
            for leg in &run.legs {
                assert!(leg.local.bytes > Bytes(0), "{name}");
                assert!(leg.remote.bytes > Bytes(0), "{name}");
                let last = leg.local.samples.last().unwrap();
                // The intervals add up to the total that iperf3 prints at the end.
                assert_eq!(last.bytes, leg.local.bytes, "{name}");
            }
            let summary = model::summarise(&run);
            assert!(
                summary.legs.iter().all(|leg| leg.goodput.0 > 1_000_000),
                "{name}"
            );
        }
    }

    #[test]
    fn directions_and_counts() {
        let run = |name: &str| {
            let (_, text) = STOCK.iter().find(|(known, _)| *known == name).unwrap();
            from_json(text).unwrap()
        };
        assert_eq!(run("tcp").spec.directions, Directions::Up);
        assert_eq!(run("reverse").spec.directions, Directions::Down);
        assert_eq!(run("bidir").spec.directions, Directions::Bidirectional);
        let up = &run("tcp").legs[0];
        assert_eq!(up.local.retransmits, Some(20));
        assert_eq!(up.local.sockets[0].congestion, "bbr");
        let udp = &run("udp").legs[0];
        let counted = udp.remote.datagrams.unwrap();
        assert_eq!((counted.packets, counted.lost), (39, 0));
        assert!(counted.jitter > Nanos(0));
        let last = udp.local.samples.last().unwrap();
        assert_eq!(last.datagrams.unwrap().packets, 39);
    }

    #[test]
    fn ours_comes_back_whole() {
        for (_, text) in STOCK {
            let run = from_json(text).unwrap();
            let ours = to_json(&run, &model::summarise(&run));
            assert_eq!(from_json(&ours), Ok(run));
        }
    }

    #[test]
    fn a_stream_of_lines_is_the_same_run() {
        let (_, text) = STOCK[0];
        let whole: Value = serde_json::from_str(text).unwrap();
        let mut lines = format!("{}\n", json!({"event": "start", "data": whole["start"]}));
        for interval in whole["intervals"].as_array().unwrap() {
            lines.push_str(&format!(
                "{}\n",
                json!({"event": "interval", "data": interval})
            ));
        }
        lines.push_str(&json!({"event": "end", "data": whole["end"]}).to_string());
        let mut from_lines = from_json(&lines).unwrap();
        let run = from_json(text).unwrap();
        from_lines.id.clone_from(&run.id);
        assert_eq!(from_lines, run);
    }

    #[test]
    fn an_error_of_iperf3_is_a_failed_run() {
        let text = r#"{"start":{"connected":[],"version":"iperf 3.12"},"intervals":[],"end":{},
            "error":"unable to connect to server: Connection refused"}"#;
        let run = from_json(text).unwrap();
        assert!(run.legs.is_empty());
        assert!(matches!(run.ended, Ended::Failed { why } if why.contains("Connection refused")));
    }

    #[test]
    fn old_versions_without_sender_flags() {
        // 3.1: no "sender" anywhere, one UDP sum.
        let text = r#"{"start":{"timestamp":{"timesecs":1450000000},"connecting_to":{"host":"h","port":5201},
            "test_start":{"protocol":"UDP","num_streams":1,"blksize":8192,"duration":1,"reverse":0}},
            "intervals":[{"streams":[{"socket":4,"start":0,"end":1.0,"seconds":1.0,"bytes":131072,
              "bits_per_second":1048576,"packets":16,"omitted":false}],"sum":{"seconds":1.0,"bytes":131072}}],
            "end":{"sum":{"seconds":1.0,"bytes":131072,"jitter_ms":0.5,"lost_packets":2,"packets":16}}}"#;
        let run = from_json(text).unwrap();
        assert_eq!(run.spec.directions, Directions::Up);
        assert_eq!(run.legs[0].local.bytes, Bytes(131_072));
        let counted = run.legs[0].remote.datagrams.unwrap();
        assert_eq!((counted.lost, counted.jitter), (2, Nanos(500_000)));
        assert_eq!(run.legs[0].remote.duration, Nanos(0));
    }

    #[test]
    fn what_is_not_iperf3s() {
        for (text, says) in [
            ("", "it holds no event of iperf3"),
            ("x", "it is not JSON"),
            ("[]", "it is not an object"),
            ("{}", "it has no 'start'"),
            (r#"{"start":1}"#, "its 'start' is not an object"),
            (
                r#"{"start":{"a":1},"intervals":{}}"#,
                "its 'intervals' are not a list",
            ),
            (
                r#"{"start":{"test_start":{"protocol":"SCTP"}}}"#,
                "a test over SCTP",
            ),
            (
                r#"{"start":{"test_start":{"num_streams":1e9}}}"#,
                "it has 1000000000 streams",
            ),
            (r#"{"linerate":{"run":{}}}"#, "cannot be read"),
        ] {
            let error = from_json(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
