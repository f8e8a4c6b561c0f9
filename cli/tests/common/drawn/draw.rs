//! Draws paths, loads and faults from wide ranges. A seed and a number give the same case for ever.

use model::Random;
use std::fmt::Write;

/// Limits that are right where a wider path carries more.
pub const FULL: [&str; 2] = ["bottleneck_rate", "bufferbloat"];
/// Limits that are right where the kernel's largest buffers are too small for the path.
pub const BUFFERS: [&str; 2] = ["send_buffer", "receive_window"];
/// Limits that are right where neither a fault nor the path keeps anything back: the window still grows.
pub const GROWING: [&str; 4] = [
    "slow_start",
    "congestion_window",
    "too_short",
    "unexplained",
];

/// What keeps a transfer below what the path would carry, or makes it look so.
#[derive(Clone, Debug)]
pub enum Fault {
    RandomLoss { probability: f64 },
    LossInBursts { to_bad: f64, to_good: f64 },
    LossOfAcks { probability: f64 },
    ShallowQueue { packets: u64 },
    DeepQueue { bytes: u64 },
    Policer { rate: u64, burst: u64 },
    Shaper { rate: u64, burst: u64 },
    Codel { ecn: bool },
    Red { packets: u64, ecn: bool },
    Reordering { probability: f64, late_us: u64 },
    Duplicates { probability: f64 },
    Jitter { range_us: u64 },
    ThinAcks { of: u64 },
    SlowAckPath { rate: u64 },
    ReceiveBuffer { bytes: u64 },
    SendBuffer { bytes: u64 },
    SlowReader { rate: u64 },
    Pacing { rate: u64 },
    WritesAt { rate: u64 },
    Requests { size: u64, pace: u64 },
    Nagle,
    DeviceQueue { rate: u64 },
    OtherTraffic { streams: u64 },
    CrossTraffic { rate: u64 },
    RateFalls { to: u64, at_ms: u64 },
    Outage { at_ms: u64, for_ms: u64 },
    BlackHole { above: u64, at_ms: u64 },
    Stutter { reads_ms: u64, pauses_ms: u64 },
    LateAccept { ms: u64 },
    OneSegment,
}

impl Fault {
    /// The limits that name it.
    pub fn names(&self) -> &'static [&'static str] {
        match self {
            Fault::RandomLoss { .. } => &["random_loss"],
            Fault::LossInBursts { .. } => &["random_loss", "rto_stall"],
            Fault::LossOfAcks { .. } | Fault::ThinAcks { .. } | Fault::SlowAckPath { .. } => {
                &["ack_path"]
            }
            Fault::ShallowQueue { .. } => &["burst_loss"],
            Fault::DeepQueue { .. } => &FULL,
            Fault::Policer { .. } => &["policer"],
            Fault::Shaper { .. } => &["shaper", "bottleneck_rate", "bufferbloat"],
            Fault::Codel { ecn: true } | Fault::Red { ecn: true, .. } => {
                &["ecn_marks", "bottleneck_rate"]
            }
            Fault::Codel { ecn: false } | Fault::Red { ecn: false, .. } => &["bottleneck_rate"],
            Fault::Reordering { .. } | Fault::Duplicates { .. } | Fault::Jitter { .. } => {
                &["reordering"]
            }
            Fault::ReceiveBuffer { .. } => &["receive_window"],
            Fault::SendBuffer { .. } => &["send_buffer"],
            Fault::SlowReader { .. } => &["reading_application", "zero_window", "sink_storage"],
            Fault::Pacing { .. } => &["pacing"],
            Fault::WritesAt { .. } | Fault::Requests { .. } => &["application", "innocent"],
            Fault::Nagle => &["nagle", "delayed_ack"],
            Fault::DeviceQueue { .. } => &["device_queue", "bottleneck_rate", "bufferbloat"],
            Fault::OtherTraffic { .. } | Fault::CrossTraffic { .. } => &FULL,
            Fault::RateFalls { .. } => &FULL,
            Fault::Outage { .. } => &["rto_stall", "random_loss"],
            Fault::BlackHole { at_ms: 0, .. } => &["black_hole"],
            // Full segments had passed: a path that is down looks the same.
            Fault::BlackHole { .. } => &["black_hole", "rto_stall"],
            Fault::Stutter { .. } => &["reading_application", "zero_window"],
            Fault::LateAccept { .. } => &["handshake"],
            Fault::OneSegment => &["delayed_ack", "congestion_window"],
        }
    }

    /// Whether a capture or a trace shows it at all; what packets cannot show is also right as [`Self::looks_like`].
    pub fn looks_like(&self, source: &str) -> &'static [&'static str] {
        let packets = source.contains("capture");
        match self {
            Fault::SendBuffer { .. } if packets => &["application", "innocent"],
            Fault::WritesAt { .. } | Fault::Requests { .. } if packets => {
                &["send_buffer", "pacing"]
            }
            Fault::Nagle if packets => &["application", "innocent"],
            Fault::SlowReader { .. } if packets => &["receive_window"],
            _ => &[],
        }
    }

    /// Whether it is what the path is, at full rate: its queue, its marks, its other users.
    pub fn is_the_path(&self) -> bool {
        matches!(
            self.part(),
            "queue" | "shaper" | "device" | "others" | "rate"
        )
    }

    /// Whether it is what is asked of the path.
    pub fn is_the_load(&self) -> bool {
        self.part() == "load"
    }

    /// The part of a case that it changes. Two faults of one part cannot be played together.
    fn part(&self) -> &'static str {
        match self {
            Fault::RandomLoss { .. } | Fault::LossInBursts { .. } | Fault::Outage { .. } => "loss",
            Fault::LossOfAcks { .. } | Fault::ThinAcks { .. } | Fault::SlowAckPath { .. } => "ACKs",
            Fault::ShallowQueue { .. }
            | Fault::DeepQueue { .. }
            | Fault::Codel { .. }
            | Fault::Red { .. } => "queue",
            Fault::Policer { .. } => "policer",
            Fault::Shaper { .. } => "shaper",
            Fault::Reordering { .. } | Fault::Jitter { .. } | Fault::Duplicates { .. } => "order",
            Fault::ReceiveBuffer { .. }
            | Fault::SendBuffer { .. }
            | Fault::SlowReader { .. }
            | Fault::Pacing { .. }
            | Fault::WritesAt { .. }
            | Fault::Requests { .. }
            | Fault::Nagle
            | Fault::Stutter { .. }
            | Fault::LateAccept { .. }
            | Fault::OneSegment => "load",
            Fault::BlackHole { .. } => "size",
            Fault::DeviceQueue { .. } => "device",
            Fault::OtherTraffic { .. } | Fault::CrossTraffic { .. } => "others",
            Fault::RateFalls { .. } => "rate",
        }
    }

    /// The word in the table.
    pub fn kind(&self) -> String {
        let text = format!("{self:?}");
        let end = text.find([' ', '{']).unwrap_or(text.len());
        text[..end].to_owned()
    }
}

/// A drawn case: a path, a load and at most two faults.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub seed: u64,
    pub number: u64,
    pub rate: u64,
    pub rtt_us: u64,
    pub queue_bytes: u64,
    pub congestion: &'static str,
    /// The host that starts it receives.
    pub down: bool,
    pub seconds: u64,
    /// The receiver requests the data with so many bytes, as of a web server; 0: it does not.
    pub asks: u64,
    pub faults: Vec<Fault>,
}

/// On what a case is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Path,
    /// Of three times the rate: it shows whether the path's rate is the limit.
    Wider,
    /// With buffers that may grow beyond the kernel's defaults.
    LargeBuffers,
}

/// What is played: the case with some of its faults.
pub struct Played {
    pub scenario: String,
    /// Of `linerate measure`, unless `sender` is a program.
    pub options: Vec<String>,
    pub sender: Option<String>,
    pub receiver: Option<String>,
    /// Commands in the sender's host beforehand.
    pub before: Vec<String>,
}

struct Draw(Random);

impl Draw {
    fn log(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.0.unit())
    }

    fn log_int(&mut self, from: f64, to: f64) -> u64 {
        self.log(from, to).round() as u64
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.0.unit() * of.len() as f64) as usize]
    }
}

impl Drawn {
    pub fn new(seed: u64, number: u64, most: f64) -> Drawn {
        let mut draw = Draw(Random::new(seed, number));
        let rate = draw.log_int(2e6, most);
        let rtt_us = draw.log_int(300.0, 300e3);
        let bdp = (rate as f64 / 8.0 * rtt_us as f64 / 1e6).max(3000.0);
        let congestion = draw.one(&["cubic", "cubic", "reno", "bbr"]);
        let queue_bytes = draw.log(0.7, 3.0) * bdp;
        let mut drawn = Drawn {
            seed,
            number,
            rate,
            rtt_us,
            queue_bytes: queue_bytes.max(15_000.0) as u64,
            congestion,
            down: draw.0.hits(0.3),
            seconds: (60.0 * rtt_us as f64 / 1e6).clamp(4.0, 12.0).ceil() as u64,
            asks: 0,
            faults: Vec::new(),
        };
        // One case of ten has none, two of ten have two.
        let count = draw.one(&[0, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
        while drawn.faults.len() < count {
            let fault = drawn.fault(&mut draw, bdp);
            if drawn.goes_with(&fault) {
                drawn.faults.push(fault);
            }
        }
        if draw.0.hits(0.15) {
            drawn.asks = draw.log_int(20.0, 1000.0);
        }
        drawn
    }

    /// The path and the sender, in a line.
    pub fn path(&self) -> String {
        format!(
            "{:.1} Mbit/s, RTT {:.1} ms, {}{}",
            self.rate as f64 / 1e6,
            self.rtt_us as f64 / 1e3,
            self.congestion,
            if self.down { ", down" } else { "" },
        )
    }

    /// Whether it is played in few seconds.
    pub fn is_fast(&self) -> bool {
        self.seconds <= 4
    }

    /// Whether it can be played beside the others: each sets keys of its own.
    fn goes_with(&self, fault: &Fault) -> bool {
        self.faults.iter().all(|f| f.part() != fault.part())
    }

    fn fault(&self, draw: &mut Draw, bdp: f64) -> Fault {
        let rate = self.rate as f64;
        let below = |draw: &mut Draw| draw.log_int(rate * 0.1, rate * 0.9);
        let rtt = self.rtt_us as f64;
        match draw.one(&std::array::from_fn::<u8, 30, _>(|n| n as u8)) {
            0 => Fault::RandomLoss {
                probability: draw.log(1e-5, 0.2),
            },
            1 => Fault::LossInBursts {
                to_bad: draw.log(1e-5, 3e-2),
                to_good: draw.log(0.05, 0.7),
            },
            2 => Fault::LossOfAcks {
                probability: draw.log(1e-2, 0.3),
            },
            3 => Fault::ShallowQueue {
                packets: draw.log_int(5.0, (0.15 * bdp / 1514.0).max(8.0)),
            },
            4 => Fault::DeepQueue {
                bytes: (draw.log(4.0, 8.0) * bdp).max(60_000.0) as u64,
            },
            5 | 6 => Fault::Policer {
                rate: below(draw),
                burst: draw.log_int(8e3, 4e6),
            },
            7 => Fault::Shaper {
                rate: below(draw),
                burst: draw.log_int(2e3, 4e6),
            },
            8 => Fault::Codel {
                ecn: draw.0.hits(0.5),
            },
            9 => Fault::Red {
                packets: (bdp / 1514.0).max(20.0) as u64,
                ecn: draw.0.hits(0.5),
            },
            10 => Fault::Reordering {
                probability: draw.log(1e-3, 0.1),
                late_us: draw.log_int(0.05 * rtt, rtt).max(100),
            },
            11 => Fault::Duplicates {
                probability: draw.log(1e-4, 0.05),
            },
            12 => Fault::Jitter {
                range_us: draw.log_int(0.01 * rtt, 0.3 * rtt).max(20),
            },
            13 => Fault::ThinAcks {
                of: draw.log_int(2.0, 32.0),
            },
            14 => Fault::SlowAckPath {
                rate: draw.log_int(rate * 0.003, rate * 0.05).max(20_000),
            },
            15 => Fault::ReceiveBuffer {
                bytes: draw.log_int(0.1 * bdp, bdp).max(8192),
            },
            16 => Fault::SendBuffer {
                bytes: draw.log_int(0.1 * bdp, bdp).max(8192),
            },
            17 => Fault::SlowReader { rate: below(draw) },
            18 => Fault::Pacing { rate: below(draw) },
            19 => Fault::WritesAt { rate: below(draw) },
            20 => Fault::Requests {
                size: draw.log_int(100.0, 100e3),
                pace: draw.log_int(5.0, 50.0),
            },
            21 => Fault::Nagle,
            22 => Fault::DeviceQueue { rate: below(draw) },
            23 => Fault::OtherTraffic {
                streams: draw.log_int(1.0, 8.0),
            },
            24 => match draw.0.hits(0.5) {
                true => Fault::CrossTraffic {
                    rate: draw.log_int(rate * 0.1, rate * 0.7),
                },
                false => Fault::RateFalls {
                    to: below(draw),
                    at_ms: draw.log_int(1000.0, 3000.0),
                },
            },
            25 => Fault::Outage {
                at_ms: draw.log_int(1000.0, 3000.0),
                for_ms: draw.log_int(200.0, 2000.0),
            },
            26 => Fault::BlackHole {
                above: draw.log_int(600.0, 1492.0),
                at_ms: draw.one(&[0, 0, 1500]),
            },
            27 => Fault::Stutter {
                reads_ms: draw.log_int(10.0, 200.0),
                pauses_ms: draw.log_int(50.0, 2000.0),
            },
            28 => Fault::LateAccept {
                ms: draw.log_int(200.0, 5000.0),
            },
            _ => Fault::OneSegment,
        }
    }

    /// The path may hold more than the kernel's default buffers: 4 MB to send, of which a part is its own overhead.
    pub fn outgrows_buffers(&self) -> bool {
        self.rate / 8 * self.rtt_us / 1_000_000 > 1_500_000
    }

    /// The case with these of its faults.
    pub fn with(&self, faults: &[Fault], on: On) -> Played {
        let wider = if on == On::Wider { 3 } else { 1 };
        let (sender, receiver) = if self.down { ("b", "a") } else { ("a", "b") };
        let mut hosts = format!("congestion = \"{}\"\n", self.congestion);
        if on == On::LargeBuffers {
            hosts += "send_buffer = 67108864\nreceive_buffer = 67108864\n";
        }
        let mut receiving = String::new();
        let mut forward = format!("queue = {{ bytes = {} }}\n", self.queue_bytes * wider);
        let mut queue_is_set = false;
        let mut backward = String::new();
        let mut more = String::new();
        let mut options: Vec<String> = Vec::new();
        let mut played = Played {
            scenario: String::new(),
            options: Vec::new(),
            sender: None,
            receiver: None,
            before: Vec::new(),
        };
        let mut queue = |forward: &mut String, text: String| {
            if !queue_is_set {
                *forward = format!("queue = {text}\n");
                queue_is_set = true;
            }
        };
        // Queues first: they begin the text of the direction.
        for fault in faults {
            let bytes = self.queue_bytes * wider;
            match fault {
                Fault::ShallowQueue { packets } => {
                    queue(&mut forward, format!("{{ packets = {packets} }}"));
                }
                Fault::DeepQueue { bytes } => queue(&mut forward, format!("{{ bytes = {bytes} }}")),
                Fault::Codel { ecn } => {
                    queue(
                        &mut forward,
                        format!("{{ bytes = {bytes}, codel = {{}}, ecn = {ecn} }}"),
                    );
                }
                Fault::Red { packets, ecn } => queue(
                    &mut forward,
                    format!(
                        "{{ packets = {}, red = {{ min = {}, max = {} }}, ecn = {ecn} }}",
                        packets * 2,
                        packets.div_ceil(4),
                        packets
                    ),
                ),
                _ => {}
            }
        }
        let random = |p: f64| format!("loss = {{ random = {p:.7} }}\n");
        for fault in faults {
            match *fault {
                Fault::RandomLoss { probability } => forward += &random(probability),
                Fault::LossInBursts { to_bad, to_good } => {
                    let _ = writeln!(
                        forward,
                        "loss = {{ gilbert_elliott = {{ to_bad = {to_bad:.7}, to_good = {to_good:.4} }} }}"
                    );
                }
                Fault::LossOfAcks { probability } => backward += &random(probability),
                Fault::Policer { rate, burst } => {
                    let _ = writeln!(
                        forward,
                        "policer = {{ rate = \"{rate}\", burst = {burst} }}"
                    );
                }
                Fault::Shaper { rate, burst } => {
                    let _ = writeln!(forward, "shaper = {{ rate = \"{rate}\", burst = {burst} }}");
                }
                Fault::Reordering {
                    probability,
                    late_us,
                } => {
                    let _ = writeln!(
                        forward,
                        "reorder = {{ probability = {probability:.6}, late = \"{late_us}us\" }}"
                    );
                }
                Fault::Duplicates { probability } => {
                    let _ = writeln!(forward, "duplicate = {{ probability = {probability:.6} }}");
                }
                Fault::Jitter { range_us } => {
                    let _ = writeln!(forward, "jitter = {{ range = \"{range_us}us\" }}");
                }
                Fault::ThinAcks { of } => {
                    let hold = (self.rtt_us / 10).clamp(100, 10_000);
                    let _ = writeln!(
                        backward,
                        "ack_thinning = {{ of = {of}, hold = \"{hold}us\" }}"
                    );
                }
                Fault::SlowAckPath { rate } => {
                    let _ = writeln!(backward, "rate = \"{rate}\"");
                }
                Fault::Codel { ecn: true } | Fault::Red { ecn: true, .. } => {
                    hosts += "ecn = true\n"
                }
                Fault::ReceiveBuffer { bytes } => {
                    options.extend(["--receive-buffer".into(), bytes.to_string()]);
                }
                Fault::SendBuffer { bytes } => {
                    options.extend(["--send-buffer".into(), bytes.to_string()]);
                }
                Fault::SlowReader { rate } => {
                    let _ = writeln!(receiving, "reads_at = \"{rate}\"");
                    played.sender = Some(format!(
                        "../bench/load.py send {receiver} 9 {}",
                        self.seconds
                    ));
                }
                Fault::Pacing { rate } => options.extend(["--pacing".into(), rate.to_string()]),
                Fault::WritesAt { rate } => {
                    played.receiver = Some("iperf3 -s --forceflush".into());
                    played.sender = Some(format!(
                        "iperf3 -c {receiver} -t {} -b {rate}",
                        self.seconds
                    ));
                }
                Fault::Requests { size, pace } => options.extend(
                    [
                        "--workload",
                        "request",
                        "--pace",
                        &pace.to_string(),
                        "--request-size",
                    ]
                    .into_iter()
                    .map(str::to_owned)
                    .chain([size.to_string()]),
                ),
                Fault::Stutter {
                    reads_ms,
                    pauses_ms,
                } => {
                    let [reads, pauses] = [reads_ms, pauses_ms].map(|ms| ms as f64 / 1e3);
                    played.receiver = Some(format!("../bench/load.py stutter {reads} {pauses}"));
                    let seconds = self.seconds;
                    played.sender =
                        Some(format!("../bench/load.py send {receiver} 7002 {seconds}"));
                }
                Fault::LateAccept { ms } => {
                    played.receiver = Some(format!("../bench/load.py late {}", ms as f64 / 1e3));
                    played.sender = Some(bring(receiver, self.rate));
                }
                Fault::OneSegment => {
                    played.receiver = Some("../bench/load.py serve 1".into());
                    played
                        .before
                        .push(format!("../bench/load.py clamp {receiver} 1"));
                }
                Fault::BlackHole { above, at_ms: 0 } => {
                    let _ = writeln!(forward, "max_frame = {above}");
                }
                Fault::BlackHole { above, at_ms } => {
                    let _ = writeln!(
                        more,
                        "[[change]]\nat = \"{at_ms}ms\"\nlink = \"wan\"\ndirection = \"forward\"\nmax_frame = {above}"
                    );
                }
                Fault::Nagle => {
                    played.receiver = Some("../bench/load.py serve 200".into());
                    played.sender = Some(format!(
                        "../bench/load.py talk {receiver} {} 100 100",
                        self.seconds
                    ));
                }
                Fault::DeviceQueue { rate } => {
                    let limit = (self.queue_bytes).max(30_000);
                    let burst = (rate / 8 / 250).max(5_000);
                    played.before.push(format!(
                        "tc qdisc add dev eth0 root tbf rate {rate} burst {burst} limit {limit}"
                    ));
                }
                Fault::OtherTraffic { streams } => {
                    let _ = writeln!(
                        more,
                        "[[traffic]]\nfrom = \"{sender}\"\nto = \"{receiver}\"\ncongestion = \"cubic\"\nstreams = {streams}"
                    );
                }
                Fault::CrossTraffic { rate } => {
                    let _ = writeln!(forward, "cross = {{ rate = \"{rate}\" }}");
                }
                Fault::RateFalls { to, at_ms } => {
                    let _ = writeln!(
                        more,
                        "[[change]]\nat = \"{at_ms}ms\"\nlink = \"wan\"\ndirection = \"forward\"\nrate = \"{}\"",
                        to * wider
                    );
                }
                Fault::Outage { at_ms, for_ms } => {
                    let _ = writeln!(
                        more,
                        "[[change]]\nat = \"{at_ms}ms\"\nlink = \"wan\"\nloss = {{ random = 1.0 }}\n\
                         [[change]]\nat = \"{}ms\"\nlink = \"wan\"\nloss = \"off\"",
                        at_ms + for_ms
                    );
                }
                _ => {}
            }
        }
        // Without it the same has to be carried.
        let late = |f: &Fault| matches!(f, Fault::LateAccept { .. });
        if self.faults.iter().any(late) && !faults.iter().any(late) {
            played.receiver = Some("../bench/load.py take".into());
            played.sender = Some(bring(receiver, self.rate));
        }
        if self.asks > 0 && self.faults.iter().all(|f| f.part() != "load") {
            played.receiver = Some(format!("../bench/load.py ask {}", self.asks));
            played.sender = Some(format!(
                "../bench/load.py reply {receiver} {}",
                self.seconds
            ));
        }
        let host = |name: &str| {
            let own = if name == receiver {
                receiving.as_str()
            } else {
                ""
            };
            format!("[[host]]\nname = \"{name}\"\n{hosts}{own}")
        };
        let line = format!("rate = \"{}\"\n", self.rate * wider);
        let rate = match backward.contains("rate =") {
            true => (line, String::new()),
            false => (line.clone(), line),
        };
        let delay = format!("delay = \"{}us\"\n", self.rtt_us / 2);
        played.scenario = format!(
            "name = \"drawn\"\nwhy = \"drawn\"\nseed = {}\n{}{}[[link]]\nname = \"wan\"\nbetween = [\"{sender}\", \"{receiver}\"]\n\
             [link.forward]\n{}{delay}{forward}[link.backward]\n{}{delay}{backward}{more}",
            self.seed * 1000 + self.number,
            host("a"),
            host("b"),
            rate.0,
            rate.1,
        );
        let requests = options.iter().any(|o| o == "request");
        options.push(
            if self.down && !requests {
                "--down"
            } else {
                "--up"
            }
            .into(),
        );
        options.extend(["-t".into(), format!("{}s", self.seconds)]);
        played.options = options;
        played
    }
}

/// A second of the path, to be carried.
fn bring(receiver: &str, rate: u64) -> String {
    format!("../bench/load.py bring {receiver} {}", rate / 8)
}
