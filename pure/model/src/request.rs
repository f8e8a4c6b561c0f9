//! Requests and their replies on TCP connections, and where the time of each went.

use crate::physics::IdealPath;
use crate::{BitRate, Bytes, Clocks, Latency, Nanos, StreamFigures};
use serde::{Deserialize, Serialize, Serializer};
use std::net::SocketAddr;

/// Version of the JSON form of [`Requests`].
pub const REQUESTS_SCHEMA: u32 = 1;

/// All requests of one or two captures, or of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Requests {
    /// Version of this form.
    pub schema: u32,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests without an answer when their connection or the capture ended.
    pub unanswered: u64,
    /// Replies to calls that are not there to be read: the capture cut them off or lost them, or they are older.
    pub unread: u64,
    /// How the clocks of two captures were joined; `None` of one.
    pub clocks: Option<Clocks>,
    /// The links for which the ideal of each was calculated.
    pub links: Links,
    /// The figures of each stream of a capture, as `explain` has them; of two captures or a trace none.
    pub streams: Vec<StreamFigures>,
    /// By operation, those first that took the most time all together.
    pub operations: Vec<Operation>,
    /// The first 1000, by the time of their call.
    pub calls: Vec<Call>,
    /// How long they took, and why, over the time of the capture: for a picture.
    #[serde(skip)]
    pub moments: Vec<Moment>,
    /// What is not certain, and what was not looked at: whole sentences.
    pub doubts: Vec<String>,
}

/// The links of a path, which its packets do not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Links {
    /// Of each; `None` while not known.
    #[serde(rename = "rate_bit_s")]
    pub rate: Option<BitRate>,
    /// How many, each of which takes a whole frame before the next one begins with it.
    pub hops: u32,
}

impl Default for Links {
    fn default() -> Links {
        Links {
            rate: None,
            hops: 1,
        }
    }
}

impl Links {
    /// What a call and its reply need at the very least, of so many bytes and with an MTU each, where a round trip of
    /// a small packet takes this long: the frames on the links (see [`Path::ideal`]), and the way. Hosts take no time.
    pub fn ideal(&self, messages: [(Bytes, u32); 2], rtt: Nanos) -> Nanos {
        let Some(rate) = self.rate else {
            return rtt;
        };
        let frames = messages.map(|(bytes, mtu)| {
            let path = IdealPath {
                mtu,
                rate,
                rtt: Nanos(0),
                hops: self.hops,
                initial_window: u32::MAX,
                window: None,
            };
            path.ideal(bytes).time
        });
        rtt + frames[0] + frames[1]
    }
}

/// The requests that began within one of a row of equal stretches of time, of those in which any did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Begin, since the capture began.
    pub from: Nanos,
    /// End.
    pub to: Nanos,
    /// How long they took, rounded down by less than a fifth.
    pub times: Latency,
    /// Why, all together.
    pub causes: Causes,
}

/// All requests of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Operation {
    /// Protocol and operation, as `NFSv3 READ`.
    pub operation: String,
    /// How many were answered.
    pub count: u64,
    /// Half of them took no longer.
    #[serde(rename = "p50_ns")]
    pub p50: Nanos,
    /// 99 of 100 took no longer.
    #[serde(rename = "p99_ns")]
    pub p99: Nanos,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// All of them, right within 0.1 %: for a picture.
    #[serde(skip)]
    pub times: Latency,
    /// Bytes of all calls.
    pub call_bytes: Bytes,
    /// Bytes of all replies.
    pub reply_bytes: Bytes,
    /// What the path needs at the least for all together: the shortest round trip, and with
    /// `--rate` the frames on the links; 0 where neither is known.
    #[serde(rename = "ideal_ns")]
    pub ideal: Nanos,
    /// The parts of all together.
    pub parts: Parts,
    /// Why: the same time by cause.
    pub causes: Causes,
    /// The longest three, the longest first.
    pub worst: Vec<Call>,
}

/// One request with its reply.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    /// When the first byte of the call left the client, since the capture began.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// The client: address and port.
    pub client: SocketAddr,
    /// Who answered.
    pub server: SocketAddr,
    /// Protocol and operation.
    pub operation: String,
    /// What it is for, in words; empty where that is not known.
    pub purpose: &'static str,
    /// Requested name, offset or size, as its client sent it; empty where that is not
    /// known.
    pub detail: String,
    /// Bytes of the call on its connection.
    pub call_bytes: Bytes,
    /// Bytes of the reply.
    pub reply_bytes: Bytes,
    /// Where it was seen.
    pub view: Viewpoint,
    /// What the path needs at the least for it.
    #[serde(rename = "ideal_ns")]
    pub ideal: Nanos,
    /// Its time, part by part.
    pub parts: Parts,
    /// The same time by cause.
    pub causes: Causes,
    /// Its segments, those together that left without a pause.
    pub steps: Vec<Step>,
}

/// The time of a request from the first byte of its call to the last of its reply. The parts sum to it exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// From the first byte of the call leaving (of a trace: being written) to its last leaving.
    #[serde(rename = "call_send_ns")]
    pub call_send: Nanos,
    /// The last byte of the call on its way to the server.
    #[serde(rename = "forward_ns")]
    pub forward: Nanos,
    /// From the last byte of the call arriving to the first of the reply leaving. From one capture that is
    /// not at the server, time in queues of the path is in here.
    #[serde(rename = "think_ns")]
    pub think: Nanos,
    /// From the first byte of the reply leaving to its last.
    #[serde(rename = "reply_send_ns")]
    pub reply_send: Nanos,
    /// The last byte of the reply on its way to the client.
    #[serde(rename = "reverse_ns")]
    pub reverse: Nanos,
}

impl Parts {
    /// In their order, with their names.
    pub fn each(&self) -> [(&'static str, Nanos); 5] {
        [
            ("call send", self.call_send),
            ("forward", self.forward),
            ("think", self.think),
            ("reply send", self.reply_send),
            ("reverse", self.reverse),
        ]
    }

    /// All of it.
    pub fn total(&self) -> Nanos {
        self.each().into_iter().map(|(_, time)| time).sum()
    }

    /// Adds those of another request.
    pub fn add(&mut self, other: &Parts) {
        self.call_send += other.call_send;
        self.forward += other.forward;
        self.think += other.think;
        self.reply_send += other.reply_send;
        self.reverse += other.reverse;
    }
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident: $key:literal, $words:literal;)*) => {
        /// What a moment of a request was spent on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Cause { $($(#[$doc])* #[serde(rename = $key)] $name,)* }

        impl Cause {
            /// All of them.
            pub const ALL: [Cause; [$($key),*].len()] = [$(Cause::$name),*];

            /// In words.
            pub fn words(self) -> &'static str {
                [$($words),*][self as usize]
            }
        }

        const KEYS: [&str; Cause::ALL.len()] = [$(concat!($key, "_ns")),*];
    };
}

causes! {
    /// The server, between the call and its reply.
    Think: "think", "the server's think time";
    /// Propagation: the minimum RTT.
    Path: "path", "RTT";
    /// Beyond the minimum RTT: queues. Known from two captures only.
    Queue: "queue", "queueing delay";
    /// Lost data was retransmitted.
    Retransmission: "retransmission", "retransmission";
    /// The receiver's window was full.
    ReceiveWindow: "receive_window", "the receive window";
    /// An acknowledgement was waited for: the congestion window.
    CongestionWindow: "congestion_window", "the congestion window";
    /// A short segment waited for the acknowledgement of one before it (RFC 896).
    Nagle: "nagle", "Nagle's rule";
    /// The peer delayed that acknowledgement (RFC 1122, 4.2.3.2).
    DelayedAck: "delayed_ack", "a delayed acknowledgement";
    /// The server had not requested the data yet (iSCSI: R2T).
    Turn: "turn", "waiting for the server's leave to send";
    /// Segment behind segment, as fast as the line, its bottleneck or pacing lets them.
    Rate: "rate", "the rate of the sender and the path";
    /// None of these: the sending application or its host paused.
    Application: "application", "a pause of the sending application or host";
}

/// A time divided among its causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes([Nanos; Cause::ALL.len()]);

impl Causes {
    /// Time spent on one.
    pub fn of(&self, cause: Cause) -> Nanos {
        self.0[cause as usize]
    }

    /// Adds time.
    pub fn spend(&mut self, cause: Cause, time: Nanos) {
        self.0[cause as usize] += time;
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Causes) {
        for (sum, time) in self.0.iter_mut().zip(other.0) {
            *sum += time;
        }
    }

    /// All of it.
    pub fn total(&self) -> Nanos {
        self.0.iter().copied().sum()
    }

    /// Those that took time, the longest first.
    pub fn ranked(&self) -> Vec<(Cause, Nanos)> {
        let mut all: Vec<_> = Cause::ALL.map(|c| (c, self.of(c))).to_vec();
        all.retain(|(_, time)| time.0 > 0);
        all.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        all
    }
}

impl Serialize for Causes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(KEYS.iter().zip(self.0))
    }
}

/// From where a request was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Viewpoint {
    /// The client's host, or close to it.
    Client,
    /// The server's host, or close to it.
    Server,
    /// Neither.
    Between,
    /// Both.
    BothEnds,
    /// The round trip was never seen, so the place is not known.
    Unknown,
}

/// Segments of a request that left without a pause between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Since the first byte of the call, where it was seen.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// From the client to the server.
    pub call: bool,
    /// What they carried of the request.
    pub bytes: Bytes,
    /// How many.
    pub segments: u32,
    /// From the first to the last of them.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// What the first waited for behind the step before, of the same direction: a key of `causes`
    /// without `_ns`.
    pub waited: Option<Cause>,
}
