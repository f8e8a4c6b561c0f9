//! `linerate explain` on real kernels: captures against tshark, tcptrace and the kernel's own counters,
//! traces against its clocks. Needs root.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Home, Lab, Lines, Pair, Recorder, Running, alone, json, stderr, stdout};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use tcp::stream::{Stream, StreamView};
use tcp::table::{ConnectionTable, TableBounds};

/// Captures at a host of a lab.
fn capture(home: &Home, lab: &Lab<'_>, host: &str) -> Recorder {
    let place = format!("{}/{host}", lab.name);
    let command = home.linerate(&["lab", "exec", &place, "--", "tcpdump"]);
    Recorder::tcpdump(command, "96", home.path().join(format!("{host}.pcap")))
}

/// Traces a host of a lab.
fn trace(home: &Home, lab: &Lab<'_>, host: &str) -> Recorder {
    let place = format!("{}/{host}", lab.name);
    let own = env!("CARGO_BIN_EXE_linerate");
    let command = home.linerate(&["lab", "exec", &place, "--", own, "trace"]);
    Recorder::start(
        command,
        home.path().join("sender.jsonl"),
        "tracing",
        " events in ",
    )
}

/// What `linerate explain` reports of the largest connection of a file.
fn largest(home: &Home, file: &Path) -> Value {
    let document = json(&mut home.linerate(&["explain", "--json", file.to_str().unwrap()]));
    let explained = document["explanations"].as_array().unwrap().iter();
    let data = explained.max_by_key(|e| e["bytes"].as_u64());
    data.unwrap().clone()
}

/// What we count in one direction.
struct Counted {
    from: SocketAddr,
    to: SocketAddr,
    stream: Stream,
    /// Round trips, in seconds.
    trips: Vec<f64>,
}

#[derive(Default)]
struct Trips(Vec<f64>);

impl StreamView for Trips {
    fn begin(_: model::Nanos) -> Trips {
        Trips::default()
    }
}

/// What we count in each direction of each connection, in the order of their first packets.
fn followed(file: &Path) -> Vec<Counted> {
    let bounds = TableBounds {
        connections: 100,
        over: 1,
    };
    let mut table: ConnectionTable<(), Trips> = ConnectionTable::new(bounds);
    let mut gone = Vec::new();
    let file = std::fs::File::open(file).unwrap();
    let account = capture::read(file, |packet| {
        let forget = &mut |one| {
            gone.push(one);
            None
        };
        let Some((connection, passed)) = table.push(packet, forget) else {
            return;
        };
        let trip = passed.ack.and_then(|ack| ack.trip);
        if let Some(peer) = connection.stream_mut(1 - passed.side) {
            peer.view.0.extend(trip.map(|trip| trip.as_secs_f64()));
        }
    })
    .unwrap();
    assert_eq!(account.skipped.get(&capture::Skip::Tunnel), None);
    table.close(&mut |one| {
        gone.push(one);
        None
    });
    gone.sort_by_key(|one| one.number);
    let mut all = Vec::new();
    for mut one in gone {
        let second = one.connection.client_is_second();
        for (side, second) in [second, !second].into_iter().enumerate() {
            let Some(followed) = one.connection.take_stream(side) else {
                continue;
            };
            all.push(Counted {
                from: one.ends.end(second),
                to: one.ends.end(!second),
                stream: followed.stream,
                trips: followed.view.0,
            });
        }
    }
    all
}

/// The same in the direction of the data.
fn counted(file: &Path) -> Counted {
    let all = followed(file).into_iter();
    all.max_by_key(|c| c.stream.bytes).unwrap()
}

/// Frames in the direction of the data that tshark finds to be this.
fn tshark(file: &Path, [from, to]: [SocketAddr; 2], filter: &str) -> Vec<String> {
    let filter = format!(
        "tcp.srcport == {} && tcp.dstport == {} && {filter}",
        from.port(),
        to.port()
    );
    let out = Command::new("tshark")
        .args(["-r", file.to_str().unwrap(), "-Y", &filter, "-T", "fields"])
        .args(["-e", "frame.number", "-e", "tcp.analysis.ack_rtt"])
        .output()
        .expect("tshark is installed (make test installs it)");
    stdout(&out).lines().map(str::to_owned).collect()
}

#[test]
fn captures_agree_with_tshark_tcptrace_and_the_kernel() {
    let _alone = alone();
    let home = Home::new();
    let shape = "rate = \"50M\"\ndelay = \"10ms\"";
    let lab = Lab::of(
        &home,
        1500,
        &format!("{shape}\nloss = {{ random = 0.005 }}"),
        shape,
    );
    let (at_sender, at_receiver) = (capture(&home, &lab, "a"), capture(&home, &lab, "b"));
    let measured = lab.measure("", &["--up", "-t", "3s", "-C", "cubic"]);
    let (at_sender, at_receiver) = (at_sender.end(), at_receiver.end());
    let samples = measured["legs"][0]["local"]["samples"].as_array().unwrap();
    let tcp = &samples.last().unwrap()["streams"][0]["tcp"];
    let lost = tcp["total_retrans"].as_u64().unwrap();
    assert!(lost >= 5, "the path lost {lost}");
    let arrived = measured["legs"][0]["remote"]["bytes"].as_u64().unwrap();

    for (file, source) in [
        (&at_sender, "capture_at_sender"),
        (&at_receiver, "capture_at_receiver"),
    ] {
        let ours = counted(file);
        assert_eq!(ours.stream.counts().unseen, 0, "{source}");
        // A stream begins with its token.
        let token = ours.stream.range.checked_sub(arrived);
        assert!(
            token.is_some_and(|t| t < 256),
            "{source}: {} of {arrived}",
            ours.stream.range
        );
        let again = "(tcp.analysis.retransmission || tcp.analysis.out_of_order)";
        let theirs = tshark(file, [ours.from, ours.to], again).len() as u64;
        assert_eq!(
            ours.stream.counts().retransmitted + ours.stream.counts().reordered,
            theirs,
            "{source} and tshark"
        );
        let data = largest(&home, file);
        assert_eq!(data["source"], source);
    }

    let ours = counted(&at_sender);
    let retransmitted = ours.stream.counts().retransmitted;
    // The last sample is taken before the last bytes are through.
    let counted = lost..=lost + 5;
    assert!(
        counted.contains(&retransmitted),
        "{retransmitted} and the kernel's {lost}",
    );
    let trips: Vec<f64> = tshark(&at_sender, [ours.to, ours.from], "tcp.analysis.ack_rtt")
        .iter()
        .filter_map(|line| line.split('\t').nth(1)?.parse().ok())
        .collect();
    let mean = trips.iter().sum::<f64>() / trips.len() as f64;
    let own = ours.trips.iter().sum::<f64>() / ours.trips.len() as f64;
    assert!((own / mean - 1.0).abs() < 0.05, "{own} and tshark's {mean}");

    let out = Command::new("tcptrace")
        .args(["-n", "-l", "-r", at_sender.to_str().unwrap()])
        .output()
        .expect("tcptrace is installed (make test installs it)");
    let text = stdout(&out);
    let figure = |name: &str| -> Vec<f64> {
        let cells = text
            .lines()
            .filter(|l| l.contains(name))
            .flat_map(|l| l.split(name).skip(1));
        cells
            .filter_map(|cell| {
                cell.trim_start_matches(':')
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            })
            .collect()
    };
    assert!(
        figure("rexmt data pkts").contains(&(retransmitted as f64)),
        "{retransmitted} retransmissions; tcptrace says\n{text}",
    );
    let least = ours.stream.min_rtt.unwrap().as_secs_f64() * 1e3;
    assert!(
        figure("RTT min").iter().any(|ms| (ms - least).abs() <= 0.1),
        "{least} ms; tcptrace says\n{text}"
    );
}

/// The kernel's clocks of the same socket (`enum tcp_chrono`), as the last event of the trace read them.
#[test]
fn shares_of_a_trace_agree_with_the_clocks_of_the_kernel() {
    let _alone = alone();
    let home = Home::new();
    let shape = "rate = \"100M\"\ndelay = \"10ms\"";
    let lab = Lab::of(&home, 1500, shape, shape);
    let traced = |option: &str, size: &str, limits: &[&str], clock: &str| -> (f64, f64) {
        let tracing = trace(&home, &lab, "a");
        lab.measure("", &["--up", "-t", "2s", "-C", "cubic", option, size]);
        let file = tracing.end();
        let data = largest(&home, &file);
        let span = data["span_ns"].as_f64().unwrap();
        let findings = data["findings"].as_array().unwrap().iter();
        let ours: f64 = findings
            .filter(|f| limits.iter().any(|l| f["limit"] == *l))
            .filter_map(|f| f["share"]["time_ns"].as_f64())
            .sum();
        let text = std::fs::read_to_string(file).unwrap();
        let records = text
            .lines()
            .filter_map(|l| serde_json::from_str::<Value>(l).ok());
        let port = data["sender"].as_str().unwrap().to_owned();
        let mut own = None;
        let mut theirs = 0.0;
        for record in records {
            if record["kind"] == "connection" && record["local"] == port.as_str() {
                own = record["id"].as_u64();
            }
            let of = record["connection"].as_u64().unwrap_or(0);
            if own == Some(of) && record["socket"]["probed"] == true {
                theirs = f64::max(theirs, record["socket"][clock].as_f64().unwrap_or(0.0));
            }
        }
        (ours / span, theirs / span)
    };
    let window = ["receive_window", "zero_window"];
    let (ours, theirs) = traced("--receive-buffer", "64K", &window, "rwnd_limited_ns");
    assert!(theirs > 0.5, "{theirs}");
    assert!(
        (ours - theirs).abs() < 0.02,
        "{ours} and the kernel's {theirs}"
    );
    // It counts the send buffer only while all that was written is acknowledged: never more than we do.
    let (ours, theirs) = traced(
        "--send-buffer",
        "32K",
        &["send_buffer"],
        "sndbuf_limited_ns",
    );
    assert!(
        ours > 0.5 && theirs < ours + 0.02,
        "{ours} and the kernel's {theirs}"
    );
}

/// Data packets of a direction, by its ends: packets, bytes of sequence space, and how many were retransmitted or
/// overtaken.
type Flows = std::collections::BTreeMap<(String, String), (u64, u64, u64)>;

/// What tshark makes of every direction with data; of a tunnel, the innermost addresses.
fn flows_by_tshark(file: &Path) -> Flows {
    let fields = |filter: &str| {
        let mut command = Command::new("tshark");
        command.args(["-r", file.to_str().unwrap(), "-Y", filter, "-T", "fields"]);
        command.args(["-E", "occurrence=l"]);
        for field in ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst"] {
            command.args(["-e", field]);
        }
        for field in ["tcp.srcport", "tcp.dstport", "tcp.seq_raw", "tcp.len"] {
            command.args(["-e", field]);
        }
        let text = stdout(&command.output().expect("tshark is installed"));
        let rows = text.lines().map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            // The transfers over IPv6 are in IPv4, if in a tunnel at all.
            let end = |ip: usize, port: usize| match cells[ip + 2] {
                "" => format!("{}:{}", cells[ip], cells[port]),
                v6 => format!("[{v6}]:{}", cells[port]),
            };
            let number = |n: usize| cells[n].parse::<u32>().unwrap();
            ((end(0, 4), end(1, 5)), number(6), number(7))
        });
        rows.collect::<Vec<_>>()
    };
    let mut flows = Flows::new();
    let mut firsts = std::collections::BTreeMap::new();
    for (ends, seq, length) in fields("tcp.len > 0") {
        let first = *firsts.entry(ends.clone()).or_insert(seq);
        let flow = flows.entry(ends).or_default();
        // By what lies behind the first byte, so that the sequence may wrap.
        let range = u64::from(seq.wrapping_sub(first).wrapping_add(length));
        (flow.0, flow.1) = (flow.0 + 1, flow.1.max(range));
    }
    // A single retransmitted byte looks like a keepalive to it; iperf3 sends its state in one.
    let again =
        "tcp.analysis.retransmission || tcp.analysis.out_of_order || tcp.analysis.keep_alive";
    for (ends, ..) in fields(&format!("tcp.len > 0 && ({again})")) {
        flows.entry(ends).or_default().2 += 1;
    }
    flows
}

fn flows_by_us(file: &Path) -> Flows {
    let flows = followed(file).into_iter().map(|c| {
        assert_eq!(c.stream.counts().unseen, 0, "{}", c.from);
        let again = c.stream.counts().retransmitted + c.stream.counts().reordered;
        let ends = (c.from.to_string(), c.to.to_string());
        (ends, (c.stream.packets, c.stream.range, again))
    });
    flows.collect()
}

/// What becomes of a frame.
type Change<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

/// The frames of a capture of Ethernet (pcap, in our own order of bytes), each changed.
fn changed(file: &Path, change: Change<'_>) -> Vec<u8> {
    let bytes = std::fs::read(file).unwrap();
    let mut made = bytes[..24].to_vec();
    made[16..20].copy_from_slice(&262_144_u32.to_ne_bytes());
    let mut rest = &bytes[24..];
    while let Some((head, behind)) = rest.split_first_chunk::<16>() {
        let number = |n: usize| u32::from_ne_bytes(head[n..n + 4].try_into().unwrap());
        let (frame, next) = behind.split_at(number(8) as usize);
        let changed = change(frame);
        let more = (changed.len() - frame.len()) as u32;
        made.extend(&head[..8]);
        made.extend((number(8) + more).to_ne_bytes());
        made.extend((number(12) + more).to_ne_bytes());
        made.extend(changed);
        rest = next;
    }
    made
}

/// Transfers over IPv4 and IPv6 with losses; and the same again in tags and tunnels put around each frame, for not
/// every kernel can make them.
#[test]
fn tags_and_tunnels_are_read_as_tshark_reads_them() {
    let _alone = alone();
    let home = Home::new();
    let pair = Pair::new("tun");
    let run = |line: String| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let out = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(out.status.success(), "{line}: {}", stderr(&out));
    };
    // A queue that a burst overflows.
    run(format!(
        "tc -n {} qdisc replace dev eth0 root tbf rate 200mbit burst 64k limit 100k",
        pair.local
    ));
    let inside = |netns: &str, program: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", netns, program]);
        command
    };
    let mut command = inside(&pair.remote, "tcpdump");
    command.args(["-i", "eth0"]);
    let bare = Recorder::tcpdump(command, "256", home.path().join("bare.pcap"));
    let mut served = inside(&pair.remote, "iperf3")
        .args(["-s", "--forceflush"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    Lines::of(served.stdout.take().unwrap()).wait_for("listening on");
    let _served = Running(served);
    for host in [Pair::FAR, "fd99::2"] {
        let mut command = inside(&pair.local, "iperf3");
        command.args(["-c", host, "-n", "8M", "--connect-timeout", "5000"]);
        let out = command.output().unwrap();
        assert!(out.status.success(), "{host}: {}", stdout(&out));
    }
    let bare = bare.end();
    let wanted = flows_by_us(&bare);
    assert_eq!(wanted, flows_by_tshark(&bare));
    let large = wanted.values().filter(|flow| flow.1 >= 1 << 20);
    assert!(large.count() >= 2, "{wanted:?}");

    let tagged = |tags: &[u8], frame: &[u8]| [&frame[..12], tags, &frame[12..]].concat();
    // Ethernet and an IPv4 header whose length is left open, as before a device that segments.
    let around = |protocol: u8, between: &[u8], frame: &[u8]| {
        let mut outer = [&frame[..12], &[8, 0, 0x45, 0, 0, 0]].concat();
        outer.extend([
            0, 0, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
        ]);
        outer.extend(between);
        outer
    };
    let ip = |frame: &[u8]| frame[14..].to_vec();
    let kinds: [(&str, Change<'_>); 6] = [
        ("VLAN", &|f| tagged(&[0x81, 0, 0, 5], f)),
        ("QinQ", &|f| tagged(&[0x88, 0xa8, 0, 6, 0x81, 0, 0, 7], f)),
        ("GRE", &|f| {
            let gre = [0x20, 0, f[12], f[13], 0, 0, 0, 9];
            [around(47, &gre, f), ip(f)].concat()
        }),
        ("Ethernet in GRE", &|f| {
            [&around(47, &[0, 0, 0x65, 0x58], f), f].concat()
        }),
        ("VXLAN", &|f| {
            let number = |n: usize| u16::from_be_bytes([f[n], f[n + 1]]);
            let inner = if f[12] == 8 {
                number(16)
            } else {
                40 + number(18)
            };
            let length = (8 + 8 + 14 + inner).to_be_bytes();
            // UDP to port 4789, then number 42.
            let udp = [0xc0, 0, 0x12, 0xb5, length[0], length[1], 0, 0];
            let vxlan = [8, 0, 0, 0, 0, 0, 42, 0];
            [&around(17, &[udp, vxlan].concat(), f), f].concat()
        }),
        ("IP in IP, and 6in4", &|f| {
            let protocol = if f[12] == 8 { 4 } else { 41 };
            [around(protocol, &[], f), ip(f)].concat()
        }),
    ];
    for (kind, change) in kinds {
        let file = home.path().join("changed.pcap");
        std::fs::write(&file, changed(&bare, change)).unwrap();
        assert_eq!(flows_by_us(&file), wanted, "{kind}");
        assert_eq!(flows_by_tshark(&file), wanted, "{kind}, by tshark");
    }
}

#[test]
fn unexplainable_files_are_refused_in_one_sentence() {
    let home = Home::new();
    let file = |name: &str, bytes: &[u8]| {
        let path = home.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let directory = home.path().to_str().unwrap().to_owned();
    for (name, why) in [
        ("no.pcap".to_owned(), "the file no.pcap is not there"),
        (directory, " is no regular file, and no run has that name"),
        (
            file("empty", b""),
            "it is empty; supported: a capture (pcap",
        ),
        (
            file("bytes", &[0xff; 99]),
            "it is not text; supported: a capture (pcap",
        ),
        (
            file("notes.txt", b"Hello\n"),
            "unknown file format; supported: a capture (pcap",
        ),
        (
            file("other.json", b"{}"),
            "it is not a run of linerate, nor one of iperf3",
        ),
    ] {
        let out = home.linerate(&["explain", &name]).output().unwrap();
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        assert!(out.stdout.is_empty());
    }
}
