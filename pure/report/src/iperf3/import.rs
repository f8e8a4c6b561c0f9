//! What iperf3 printed, as a run. What its JSON does not tell stays empty.

use model::{
    BitRate, Bulk, Bytes, CpuTimes, Datagrams, Direction, Directions, EndRecord, Ended,
    Fingerprint, Leg, Limit, Nanos, Placement, Run, SCHEMA_VERSION, Sample, SocketOptions,
    SocketSettings, SocketState, Spec, StreamSample, Udp, Warning, Workload,
};
use serde_json::{Map, Value, json};
use std::net::{IpAddr, SocketAddr};

/// Why a text could not be taken: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Intervals that are taken at most: a week of seconds.
const MAX_INTERVALS: usize = 700_000;
/// Streams that are taken at most: 128 each way.
const MAX_STREAMS: usize = 256;

/// Reads what `iperf3 -J` (3.1 to 3.21, client or server) or `iperf3 --json-stream` printed, or what
/// linerate wrote in that shape, which comes back whole. The same text always gives the same id.
///
/// # Errors
/// If it is not iperf3's JSON, or nothing in it is of use: one sentence.
pub fn from_json(text: &str) -> Result<Run, Error> {
    let document = document(text)?;
    if let Some(run) = document.get("linerate").and_then(|ours| ours.get("run")) {
        return serde_json::from_value(run.clone()).map_err(|error| {
            Error(format!(
                "the run under its key 'linerate' cannot be read: {error}"
            ))
        });
    }
    let object = |key: &'static str| match document.get(key) {
        Some(Value::Object(map)) => Ok(map.clone()),
        None => Ok(Map::new()),
        Some(_) => Err(Error(format!("its '{key}' is not an object"))),
    };
    let error = document.get("error").and_then(Value::as_str);
    let (start, end) = (object("start")?, object("end")?);
    if start.is_empty() && error.is_none() {
        return Err(Error("it has no 'start', as iperf3's JSON has".to_owned()));
    }
    let intervals = match document.get("intervals") {
        Some(Value::Array(intervals)) if intervals.len() <= MAX_INTERVALS => intervals.as_slice(),
        Some(Value::Array(_)) => {
            return Err(Error(format!("it has more than {MAX_INTERVALS} intervals")));
        }
        None => &[],
        Some(_) => return Err(Error("its 'intervals' are not a list".to_owned())),
    };
    let reader = Reader {
        start: &start,
        intervals,
        end: &end,
    };
    let mut run = reader.run(error)?;
    run.id = id(text);
    Ok(run)
}

/// One document, also from the lines of a stream.
fn document(text: &str) -> Result<Map<String, Value>, Error> {
    let whole = match serde_json::from_str(text) {
        Ok(Value::Object(map)) if !map.contains_key("event") => return Ok(map),
        Ok(Value::Object(_)) => Ok(()),
        Ok(_) => return Err(Error("it is not an object, as iperf3's JSON is".to_owned())),
        Err(error) => Err(error),
    };
    let lines: Result<Vec<Value>, _> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(serde_json::from_str)
        .collect();
    let Ok(lines) = lines else {
        let why = whole.err().map(|error| error.to_string());
        return Err(Error(format!(
            "it is not JSON: {}",
            why.unwrap_or_default()
        )));
    };
    let mut document = Map::new();
    let mut intervals = Vec::new();
    for line in lines {
        let data = line.get("data").cloned().unwrap_or_default();
        match line.get("event").and_then(Value::as_str) {
            Some("interval") => intervals.push(data),
            Some("end") => {
                if let Some(ours) = data.get("linerate") {
                    document.insert("linerate".to_owned(), ours.clone());
                }
                document.insert("end".to_owned(), data);
            }
            Some(event @ ("start" | "error")) => {
                document.insert(event.to_owned(), data);
            }
            Some(_) => {}
            None => {
                return Err(Error(
                    "a line of it is no event of iperf3's --json-stream".to_owned(),
                ));
            }
        }
    }
    if document.is_empty() {
        return Err(Error("it holds no event of iperf3".to_owned()));
    }
    document.insert("intervals".to_owned(), intervals.into());
    Ok(document)
}

/// Eight hexadecimal digits from the text (FNV-1a): importing it twice gives one run.
fn id(text: &str) -> String {
    let hash = text.bytes().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{hash:08x}")
}

struct Reader<'a> {
    start: &'a Map<String, Value>,
    intervals: &'a [Value],
    end: &'a Map<String, Value>,
}

impl Reader<'_> {
    fn run(&self, error: Option<&str>) -> Result<Run, Error> {
        let empty = Map::new();
        let test = match self.start.get("test_start") {
            Some(Value::Object(test)) => test,
            _ => &empty,
        };
        let protocol = text(test, "protocol").unwrap_or("TCP");
        if !matches!(protocol, "TCP" | "UDP") {
            return Err(Error(format!(
                "it is a test over {}; only TCP and UDP can be imported",
                protocol.chars().take(20).collect::<String>()
            )));
        }
        let ways = self.ways(flag(test, "reverse"));
        let spec = self.spec(test, protocol == "UDP", &ways)?;
        let mut legs: Vec<Leg> = ways
            .iter()
            .enumerate()
            .map(|(index, &direction)| self.leg(&spec, direction, index > 0))
            .collect();
        let ended = match error {
            Some(why) => Ended::Failed {
                why: format!("iperf3 says: {}", why.chars().take(500).collect::<String>()),
            },
            None if self.end.is_empty() => Ended::Unfinished,
            None => Ended::Complete,
        };
        if legs
            .iter()
            .all(|leg| leg.near.samples.is_empty() && leg.near.bytes == Bytes(0))
        {
            legs.clear();
        }
        for leg in &mut legs {
            leg.ended = ended.clone();
        }
        let mut warnings = vec![Warning {
            what: "this run was imported from iperf3's JSON".to_owned(),
            meaning: "what iperf3 does not write is empty or zero: the far host, limited times, \
                      nodelay, pacing, processor use of the whole hosts"
                .to_owned(),
            remedy: "measure with linerate at both ends to see them".to_owned(),
        }];
        let omit = number(test, "omit").unwrap_or(0.0);
        if omit > 0.0 {
            warnings.push(Warning {
                what: format!("iperf3 omitted the first {omit:.0} s"),
                meaning: "all figures are of the time after that".to_owned(),
                remedy: "none is needed".to_owned(),
            });
        }
        Ok(Run {
            schema: SCHEMA_VERSION,
            id: String::new(),
            started: self.started(),
            host: self.host(),
            title: text(self.start, "title").map(str::to_owned),
            experiment: None,
            spec,
            near: self.near(),
            far: None,
            legs,
            warnings,
            ended,
        })
    }

    /// The directions of the test, seen from where iperf3 printed it.
    fn ways(&self, reverse: bool) -> Vec<Direction> {
        let second = self.end.keys().any(|key| key.ends_with("_bidir_reverse"))
            || self
                .intervals
                .iter()
                .any(|i| i.get("sum_bidir_reverse").is_some());
        if second {
            return vec![Direction::Up, Direction::Down];
        }
        // Since 3.2 each sum says whether this end sent; before, only the order tells.
        let sums = self
            .intervals
            .iter()
            .filter_map(|interval| interval.get("sum"))
            .chain(self.end.get("sum_sent"))
            .chain(self.end.get("sum"));
        let server = self.start.contains_key("accepted_connection");
        let sends = sums
            .filter_map(|sum| sum.get("sender").and_then(Value::as_bool))
            .next()
            .unwrap_or(reverse == server);
        vec![if sends {
            Direction::Up
        } else {
            Direction::Down
        }]
    }

    fn spec(
        &self,
        test: &Map<String, Value>,
        udp: bool,
        ways: &[Direction],
    ) -> Result<Spec, Error> {
        let count = |key| number(test, key).filter(|n| *n >= 1.0).map(|n| n as u64);
        let block = count("blksize");
        let rate = count("target_bitrate").map(BitRate);
        let streams = count("num_streams").unwrap_or(1);
        if streams > 128 {
            return Err(Error(format!(
                "it has {streams} streams; iperf3 has 128 at most"
            )));
        }
        let window = number(self.start, "sock_bufsize")
            .filter(|n| *n >= 1.0)
            .map(|n| Bytes(n as u64));
        Ok(Spec {
            workload: if udp {
                Workload::Udp(Udp {
                    rate: rate.unwrap_or_default(),
                    datagram_size: Bytes(block.unwrap_or(0)),
                })
            } else {
                Workload::Bulk(Bulk {
                    write_size: block.map(Bytes),
                    ..Bulk::default()
                })
            },
            directions: match ways {
                [Direction::Up] => Directions::Up,
                [Direction::Down] => Directions::Down,
                _ => Directions::Bidirectional,
            },
            streams: streams as u32,
            limit: match (count("bytes"), count("blocks"), count("duration")) {
                (Some(bytes), ..) => Limit::Bytes(Bytes(bytes)),
                (_, Some(blocks), _) => {
                    Limit::Bytes(Bytes(blocks.saturating_mul(block.unwrap_or(0))))
                }
                (.., duration) => Limit::Time(Nanos::from_secs(duration.unwrap_or(0))),
            },
            // What iperf3 omitted is not in its figures any more.
            ramp: Some(Nanos(0)),
            trace: false,
            interval: self
                .intervals
                .first()
                .and_then(|interval| Some(seconds(interval.get("sum")?, "seconds")))
                .filter(|span| span.0 > 0)
                .unwrap_or(Nanos::from_secs(1)),
            socket: SocketSettings {
                send_buffer: window,
                receive_buffer: window,
                mss: number(self.start, "tcp_mss")
                    .filter(|n| *n >= 1.0)
                    .map(|n| n as u32),
                pacing: count("fqrate").map(BitRate).or(rate.filter(|_| !udp)),
                dscp: count("tos")
                    .filter(|tos| *tos <= 255)
                    .map(|tos| (tos >> 2) as u8),
                ..SocketSettings::default()
            },
            near: Placement::default(),
            far: Placement::default(),
        })
    }

    fn leg(&self, spec: &Spec, direction: Direction, second: bool) -> Leg {
        let sends = direction == Direction::Up;
        let tail = if second { "_bidir_reverse" } else { "" };
        let sum = |name: &str| self.end.get(&format!("{name}{tail}"));
        // Before 3.2 UDP had one sum for both.
        let sent = sum("sum_sent").or(sum("sum"));
        let received = sum("sum_received");
        let (near_sum, far_sum) = if sends {
            (sent, received)
        } else {
            (received, sent)
        };
        let near_sum = near_sum.or(sum("sum"));
        let mut near = EndRecord {
            sockets: self.sockets(spec, sends, second),
            samples: self.samples(spec, sends),
            bytes: whole(near_sum, "bytes"),
            duration: near_sum.map_or(Nanos(0), |s| seconds(s, "seconds")),
            ..EndRecord::default()
        };
        let mut far = EndRecord {
            bytes: whole(far_sum, "bytes"),
            duration: far_sum.map_or(Nanos(0), |s| seconds(s, "seconds")),
            ..EndRecord::default()
        };
        if let (Nanos(0), Some(last)) = (near.duration, near.samples.last()) {
            (near.bytes, near.duration) = (last.bytes, last.at);
        }
        self.processors("host", &mut near);
        self.processors("remote", &mut far);
        let again = sent
            .and_then(|s| s.get("retransmits"))
            .and_then(Value::as_u64);
        if spec.workload.is_udp() {
            let counted = received.or(sum("sum"));
            let at_receiver = counted.map(|s| Datagrams {
                packets: whole(Some(s), "packets").0,
                lost: whole(Some(s), "lost_packets").0,
                out_of_order: self.out_of_order(sends),
                jitter: milliseconds(s, "jitter_ms"),
            });
            let at_sender = sent.map(|s| Datagrams {
                packets: whole(Some(s), "packets").0,
                ..Datagrams::default()
            });
            (near.datagrams, far.datagrams) = if sends {
                (at_sender, at_receiver)
            } else {
                (at_receiver, at_sender)
            };
        } else if sends {
            near.retransmits = again;
        } else {
            far.retransmits = again;
        }
        Leg {
            direction,
            started: Nanos(0),
            near,
            far,
            ended: Ended::Complete,
        }
    }

    /// Cumulated samples of the streams on which this end had this role.
    fn samples(&self, spec: &Spec, sends: bool) -> Vec<Sample> {
        let mss = number(self.start, "tcp_mss_default")
            .filter(|mss| (1.0..1e6).contains(mss))
            .map_or(1, |mss| mss as u32);
        let mut totals: Vec<(u64, Bytes, u64)> = Vec::new();
        let mut samples: Vec<Sample> = Vec::new();
        let mut counted = Datagrams::default();
        let udp = spec.workload.is_udp();
        for interval in self.intervals {
            let Some(Value::Array(streams)) = interval.get("streams") else {
                continue;
            };
            let mut at = Nanos(0);
            let mut found = false;
            let mut entries = Vec::new();
            for stream in streams.iter().take(MAX_STREAMS) {
                let role = stream.get("sender").and_then(Value::as_bool);
                let omitted = stream.get("omitted").and_then(Value::as_bool) == Some(true);
                if omitted || role.is_some_and(|role| role != sends) {
                    continue;
                }
                found = true;
                let add = |total: &mut u64, key| {
                    *total = total.saturating_add(whole(Some(stream), key).0);
                };
                add(&mut counted.packets, "packets");
                add(&mut counted.lost, "lost_packets");
                counted.jitter = milliseconds(stream, "jitter_ms");
                at = at.max(seconds(stream, "end"));
                let socket = stream.get("socket").and_then(Value::as_u64).unwrap_or(0);
                let position = match totals.iter().position(|(number, ..)| *number == socket) {
                    Some(position) => position,
                    None if totals.len() < MAX_STREAMS => {
                        totals.push((socket, Bytes(0), 0));
                        totals.len() - 1
                    }
                    None => continue,
                };
                let (_, bytes, again) = &mut totals[position];
                *bytes += whole(Some(stream), "bytes");
                let tcp = stream.get("snd_cwnd").map(|_| {
                    *again = again.saturating_add(whole(Some(stream), "retransmits").0);
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
            if !found || samples.last().is_some_and(|last| at <= last.at) {
                continue;
            }
            if samples.is_empty() {
                samples.push(self.first_sample(spec));
            }
            entries.sort_by_key(|entry| entry.stream);
            samples.push(Sample {
                at,
                bytes: totals.iter().map(|(_, bytes, _)| *bytes).sum(),
                streams: entries,
                datagrams: udp.then_some(counted),
                ..Sample::default()
            });
        }
        samples
    }

    /// The moment zero, with the buffers as they were when the test began.
    fn first_sample(&self, spec: &Spec) -> Sample {
        let buffer = |key| {
            number(self.start, key)
                .filter(|n| *n >= 1.0)
                .map(|n| Bytes(n as u64))
        };
        Sample {
            streams: (0..spec.streams)
                .map(|stream| StreamSample {
                    stream,
                    send_buffer: buffer("sndbuf_actual"),
                    receive_buffer: buffer("rcvbuf_actual"),
                    ..StreamSample::default()
                })
                .collect(),
            ..Sample::default()
        }
    }

    /// The sockets of one direction: iperf3 lists those that it sends on first.
    fn sockets(&self, spec: &Spec, sends: bool, second: bool) -> Vec<SocketOptions> {
        let Some(Value::Array(all)) = self.start.get("connected") else {
            return Vec::new();
        };
        let streams = spec.streams as usize;
        let congestion = text(
            self.end,
            if sends {
                "sender_tcp_congestion"
            } else {
                "receiver_tcp_congestion"
            },
        );
        let size = |key| {
            Bytes(
                number(self.start, key)
                    .filter(|n| *n >= 0.0)
                    .map_or(0, |n| n as u64),
            )
        };
        all.iter()
            .skip(if second { streams } else { 0 })
            .take(streams)
            .zip(0..)
            .filter_map(|(entry, stream)| {
                let address = |host: &str, port: &str| {
                    let ip: IpAddr = entry.get(host)?.as_str()?.parse().ok()?;
                    let port = u16::try_from(entry.get(port)?.as_u64()?).ok()?;
                    Some(SocketAddr::new(ip, port))
                };
                let local = address("local_host", "local_port")?;
                let remote = address("remote_host", "remote_port")?;
                Some(SocketOptions {
                    send_buffer: size("sndbuf_actual"),
                    receive_buffer: size("rcvbuf_actual"),
                    mss: size("tcp_mss_default").0.min(65_535) as u32,
                    congestion: congestion.unwrap_or_default().to_owned(),
                    nodelay: spec.socket.nodelay == Some(true),
                    pacing: spec.socket.pacing,
                    dscp: spec.socket.dscp.unwrap_or(0),
                    ..SocketOptions::new(stream, local, remote)
                })
            })
            .collect()
    }

    /// Processor use, which iperf3 tells for a whole test in percent of one processor.
    fn processors(&self, whose: &str, end: &mut EndRecord) {
        let Some(used) = self.end.get("cpu_utilization_percent") else {
            return;
        };
        if end.duration == Nanos(0) {
            return;
        }
        if end.samples.is_empty() {
            end.samples = vec![
                Sample::default(),
                Sample {
                    at: end.duration,
                    bytes: end.bytes,
                    ..Sample::default()
                },
            ];
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
        let Some(Value::Array(streams)) = self.end.get("streams") else {
            return 0;
        };
        streams
            .iter()
            .take(MAX_STREAMS)
            .filter_map(|stream| stream.get("udp"))
            .filter(|udp| {
                udp.get("sender")
                    .and_then(Value::as_bool)
                    .is_none_or(|s| s == sends)
            })
            .filter_map(|udp| udp.get("out_of_order").and_then(Value::as_u64))
            .fold(0, u64::saturating_add)
    }

    fn started(&self) -> Nanos {
        let seconds = self
            .start
            .get("timestamp")
            .and_then(|stamp| stamp.get("timesecs"))
            .and_then(Value::as_u64);
        Nanos::from_secs(seconds.unwrap_or(0))
    }

    fn host(&self) -> String {
        let other = self
            .start
            .get("connecting_to")
            .or(self.start.get("accepted_connection"))
            .cloned()
            .unwrap_or(json!({}));
        let name: String = other
            .get("host")
            .and_then(Value::as_str)
            .unwrap_or("unknown")
            .chars()
            .take(255)
            .collect();
        match other.get("port").and_then(Value::as_u64) {
            Some(port) if name.contains(':') => format!("iperf3:[{name}]:{port}"),
            Some(port) => format!("iperf3:{name}:{port}"),
            None => format!("iperf3:{name}"),
        }
    }

    /// What `uname -a` said: system, name, release, ..., machine.
    fn near(&self) -> Fingerprint {
        let info = text(self.start, "system_info").unwrap_or_default();
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
    let micros = |key| Nanos::from_micros(whole(Some(stream), key).0);
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    model::socket_state! {
        mss: Some(mss),
        cwnd: Some(small(whole(Some(stream), "snd_cwnd").0 / u64::from(mss))),
        snd_wnd: stream
        .get("snd_wnd")
        .map(|_| whole(Some(stream), "snd_wnd")),
        srtt: Some(micros("rtt")),
        rttvar: Some(micros("rttvar")),
        pmtu: Some(small(whole(Some(stream), "pmtu").0)),
        total_retrans: Some(small(total_retrans)),
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str)
}

fn number(map: &Map<String, Value>, key: &str) -> Option<f64> {
    map.get(key)
        .and_then(Value::as_f64)
        .filter(|n| n.is_finite())
}

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    number(map, key).is_some_and(|n| n != 0.0) || map.get(key) == Some(&Value::Bool(true))
}

fn real(value: &Value, key: &str) -> f64 {
    value
        .get(key)
        .and_then(Value::as_f64)
        .filter(|n| n.is_finite())
        .unwrap_or(0.0)
}

fn whole(value: Option<&Value>, key: &str) -> Bytes {
    let number = value.and_then(|value| value.get(key));
    let read = number.and_then(|n| n.as_u64().or_else(|| n.as_f64().map(|n| n.max(0.0) as u64)));
    Bytes(read.unwrap_or(0))
}

fn milliseconds(value: &Value, key: &str) -> Nanos {
    Nanos((real(value, key).clamp(0.0, 1e9) * 1e6) as u64)
}

/// A time in seconds; at most a year, so that nothing overflows.
fn seconds(value: &Value, key: &str) -> Nanos {
    Nanos((real(value, key).clamp(0.0, 31_536_000.0) * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iperf3::to_json;

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
                assert!(leg.near.bytes > Bytes(0), "{name}");
                assert!(leg.far.bytes > Bytes(0), "{name}");
                let last = leg.near.samples.last().unwrap();
                // The intervals add up to the total that iperf3 prints at the end.
                assert_eq!(last.bytes, leg.near.bytes, "{name}");
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
        assert_eq!(up.near.retransmits, Some(20));
        assert_eq!(up.near.sockets[0].congestion, "bbr");
        let udp = &run("udp").legs[0];
        let counted = udp.far.datagrams.unwrap();
        assert_eq!((counted.packets, counted.lost), (39, 0));
        assert!(counted.jitter > Nanos(0));
        let last = udp.near.samples.last().unwrap();
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
        assert_eq!(run.legs[0].near.bytes, Bytes(131_072));
        let counted = run.legs[0].far.datagrams.unwrap();
        assert_eq!((counted.lost, counted.jitter), (2, Nanos(500_000)));
        assert_eq!(run.legs[0].far.duration, Nanos(0));
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
