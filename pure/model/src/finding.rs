//! What limited a connection: causes, the time that each of them owns, and how sure that is.

pub use crate::evidence::{Evidence, EvidenceKey, EvidenceSource, Quantity, Threshold, Unit};
use crate::names::named;
use crate::{BitRate, Bytes, Comm, Direction, Nanos, StreamFigures};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

macro_rules! limits {
    ($($(#[doc = $doc:literal])* $name:ident: $level:ident $(($letter:literal))?, $words:literal;)*) => {
        /// A cause that can hold a transfer up. The set is closed: an explanation names one of these,
        /// or says that nothing explains it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Limit { $($(#[doc = $doc])* $name,)* }

        impl Limit {
            /// Every limit, the first level before the second.
            pub const ALL: &[Limit] = &[$(Limit::$name,)*];

            /// What it is called in a sentence.
            pub fn words(self) -> &'static str {
                match self { $(Limit::$name => $words,)* }
            }

            /// What it is, in a sentence or two.
            pub fn doc(self) -> &'static str {
                match self { $(Limit::$name => concat!($($doc),*).trim_ascii(),)* }
            }

            /// What kind of answer it is.
            pub fn level(self) -> Level {
                match self { $(Limit::$name => Level::$level,)* }
            }

            /// What stands for a limit of the first level in a time line.
            pub fn letter(self) -> Option<char> {
                match self { $(Limit::$name => [$($letter)?].first().copied(),)* }
            }
        }
    };
}

limits! {
    /// The connection was being opened.
    Handshake: First('h'), "the handshake";
    /// The connection was being closed.
    Closing: First('c'), "closing the connection";
    /// The application had nothing to send.
    Application: First('.'), "the sending application";
    /// The application waited for room in the send buffer, and all that was written had been sent.
    SendBuffer: First('b'), "the send buffer";
    /// The peer's receive window was full.
    ReceiveWindow: First('w'), "the receive window";
    /// The peer advertised a zero window, or one below one segment.
    ZeroWindow: First('0'), "a zero window";
    /// The congestion window was full and still doubling each round trip.
    SlowStart: First('s'), "slow start";
    /// The congestion window was full.
    CongestionWindow: First('='), "the congestion window";
    /// Lost segments were being repaired by fast recovery, or the window was being reduced.
    LossRecovery: First('r'), "loss recovery";
    /// Waiting for the retransmission timer, or in the recovery after it.
    RtoStall: First('X'), "retransmission timeouts";
    /// Nagle's algorithm held a short segment back (RFC 896, with Minshall's change).
    Nagle: First('n'), "Nagle's algorithm";
    /// Pacing spread the segments out.
    Pacing: First('p'), "pacing";
    /// Segments waited in the queue of the sender's own device.
    DeviceQueue: First('q'), "the queue of the sender's device";
    /// Nothing in TCP held it: the sender's processor or scheduler did.
    Cpu: First('u'), "the processor";
    /// Segments of full size are dropped silently while smaller ones pass.
    BlackHole: Second, "a path-MTU black hole";
    /// The peer held acknowledgements back.
    DelayedAck: Second, "delayed acknowledgements";
    /// The rate of the slowest link.
    BottleneckRate: Second, "the rate of the path";
    /// The same, with a queue that far exceeds the round trip.
    Bufferbloat: Second, "the bottleneck link, with bufferbloat";
    /// Losses that have nothing to do with the load.
    RandomLoss: Second, "random loss";
    /// Bursts overflow a buffer that is too small for them.
    BurstLoss: Second, "burst loss in a shallow buffer";
    /// A policer drops what exceeds a rate.
    Policer: Second, "a policer";
    /// A shaper delays what exceeds a rate, after a burst that it lets pass.
    Shaper: Second, "a shaper";
    /// Segments overtook each other and were taken for lost.
    Reordering: Second, "reordering";
    /// The path marks congestion instead of dropping.
    EcnMarks: Second, "ECN marks";
    /// Acknowledgements are queued or lost on the reverse path.
    AckPath: Second, "the path of the acknowledgements";
    /// One direction loses whenever both send: a duplex mismatch, or a broken cable.
    DuplexLoss: Second, "loss as of a duplex mismatch";
    /// The peer's application, or its disk, reads too slowly.
    ReadingApplication: Second, "the receiving application";
    /// The storage that a copy comes from reads too slowly.
    SourceStorage: Second, "the source's storage";
    /// The storage that a copy goes to writes too slowly.
    SinkStorage: Second, "the sink's storage";
}

impl Limit {
    /// Its name in JSON.
    pub fn name(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

/// Which question a limit answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// What the sender waited for at this moment: shares of these add up to the whole.
    First,
    /// Why it had to: what lies behind time of the first level.
    Second,
}

/// A part of a connection, in time and in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Of the whole span, 0 to 1.
    pub time_share: f64,
    /// Bytes that moved in that time.
    pub bytes: Bytes,
}

named! {
    /// How sure a finding is.
    Confidence, "confidence" {
        /// Another cause fits as well: an experiment decides.
        Possible = "possible",
        /// It fits, and no other cause that was found does; part of it is inferred.
        Likely = "likely",
        /// The field that decides it was observed.
        Certain = "certain",
    }
}

/// What to try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    /// What to try.
    pub words: String,
    /// The same as a setting, `knob=value[@place]`, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// An experiment whose outcome separates causes that all fit: a setting against the baseline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Decider {
    /// The setting: `knob=value[@place]`.
    pub change: String,
    /// The equivalence margin, as a share: less than any of these causes would make of it.
    #[serde(rename = "margin_share")]
    pub margin: f64,
    /// The limits that an interval beyond the margin leaves, of a change that is faster.
    pub faster: Vec<Limit>,
    /// The limits that an interval within the margin leaves, zero in it or not. An interval across an end of the margin leaves
    /// these beside the others.
    pub no_difference: Vec<Limit>,
    /// The limits that an interval beyond the margin leaves, of a change that is slower.
    pub slower: Vec<Limit>,
}

impl Decider {
    /// The experiment between these causes alone; `None` if no outcome separates two of them. Every outcome leaves a cause of
    /// which nothing is expected.
    pub fn between(mut self, causes: &[Limit]) -> Option<Decider> {
        let lists = [&self.faster, &self.no_difference, &self.slower];
        let expected: Vec<Limit> = lists.into_iter().flatten().copied().collect();
        for list in [&mut self.faster, &mut self.no_difference, &mut self.slower] {
            let left = |limit: &Limit| list.contains(limit) || !expected.contains(limit);
            *list = causes.iter().copied().filter(left).collect();
        }
        let lists = [&self.faster, &self.no_difference, &self.slower];
        let shared = |a, b| lists.iter().any(|l| l.contains(a) && l.contains(b));
        let listed: Vec<&Limit> = lists.into_iter().flatten().collect();
        let separates = listed.iter().any(|a| listed.iter().any(|b| !shared(a, b)));
        separates.then_some(self)
    }
}

/// One cause, the share that it owns, and why it is believed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The cause.
    pub limit: Limit,
    /// `first`: what was waited for; `second`: what lies behind.
    pub level: Level,
    /// How much. Of the second level: the time of the first level that it explains.
    pub share: Share,
    /// `certain`: the field that decides it was observed; `likely`: it fits and no other cause
    /// does; `possible`: another cause fits as well.
    pub confidence: Confidence,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What speaks against it: it is at most possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Evidence>,
    /// What to try; the first is the best.
    pub remedies: Vec<Remedy>,
    /// What would decide where another cause fits as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decider: Option<Decider>,
}

/// A stretch of time with one limit: a piece of the time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Begin, since the start of the connection.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// End.
    #[serde(rename = "to_ns")]
    pub to: Nanos,
    /// The limit that owned most of it.
    pub limit: Limit,
    /// Bytes that moved.
    pub bytes: Bytes,
}

/// What an explanation was drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// TCP_INFO, read now and then at the sender.
    #[default]
    Samples,
    /// Every segment with the sender's socket state.
    Trace,
    /// The same, and every segment with the receiver's.
    TraceOfBothEnds,
    /// Every segment with the receiver's socket state.
    TraceAtReceiver,
    /// Packets as they passed the sender, and TCP_INFO read between them.
    PacketsAndSamples,
    /// Packets as they passed the sender.
    CaptureAtSender,
    /// Packets as they passed the receiver.
    CaptureAtReceiver,
    /// Packets as they passed somewhere between.
    CaptureBetween,
    /// Packets as they passed a place that nothing in them shows.
    CaptureSomewhere,
    /// Packets as they passed two places.
    CapturesAtTwoPlaces,
    /// Lines that `tcp.d` of DTrace printed at the sender.
    Listing,
}

/// The answer in one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Conclusion {
    /// These causes, the most likely first. More than one: all of them fit.
    Limited {
        /// Never empty.
        by: Vec<Limit>,
    },
    /// The application sent no more: nothing to fix in the network.
    Innocent,
    /// Too short, or too little data, for a conclusion.
    TooShort,
    /// Nothing that is known here explains it.
    Unexplained,
}

/// Why one connection was not faster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Name of the connection, as the source has it.
    pub name: String,
    /// The sender's address and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<SocketAddr>,
    /// The receiver's address and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<SocketAddr>,
    /// Which way, seen from the host of the command, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// What it was drawn from.
    pub source: Source,
    /// What its packets show, from a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamFigures>,
    /// Its length.
    #[serde(rename = "span_ns")]
    pub span: Nanos,
    /// Bytes that moved.
    pub bytes: Bytes,
    /// The answer.
    pub conclusion: Conclusion,
    /// All findings: the causes of the conclusion first, then by share.
    pub findings: Vec<Finding>,
    /// Evidence of both hosts together, or of the receiver's trace, besides the findings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<Evidence>,
    /// The time line.
    pub phases: Vec<Phase>,
    /// Caveats, a sentence each.
    pub doubts: Vec<String>,
}

/// The current state of a connection: its last seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Glance {
    /// Number within the trace.
    pub connection: u32,
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// Process that uses the socket; zero while not known.
    pub pid: u32,
    /// Its name.
    pub comm: Comm,
    /// Its systemd unit or container, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Time since it was first seen.
    #[serde(rename = "seen_ns")]
    pub seen: Nanos,
    /// What it sends over the last seconds, retransmissions included.
    #[serde(rename = "sent_bit_s")]
    pub sent: BitRate,
    /// What it receives.
    #[serde(rename = "received_bit_s")]
    pub received: BitRate,
    /// The limit that owned most of the last seconds; `None` of one that has sent nothing.
    pub limit: Option<Limit>,
    /// How much of them, 0 to 1.
    pub share: f64,
    /// What 'watch' names first for the last minute; missing where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Limit>,
    /// How sure that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// Congestion window.
    #[serde(rename = "cwnd_bytes")]
    pub cwnd: Bytes,
    /// Smoothed round-trip time.
    #[serde(rename = "srtt_ns")]
    pub srtt: Nanos,
    /// The smallest.
    #[serde(rename = "min_rtt_ns")]
    pub min_rtt: Nanos,
    /// Segments retransmitted in the last seconds.
    pub retransmitted: u64,
    /// Time since its last event.
    #[serde(rename = "silent_ns")]
    pub silent: Nanos,
}

/// What was counted of all sockets since a watch began, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketAccount {
    /// Sockets that were seen.
    pub seen: u64,
    /// Of these, ended.
    pub ended: u64,
    /// Of these, sockets that began and ended between two looks: their last state was reported.
    pub short: u64,
    /// Sockets that were gone without a last state: what they moved since their last sample is missing.
    pub vanished: u64,
    /// Connections that the kernel counted and nothing else is known of.
    pub unseen: u64,
    /// Sockets that were too many to be watched at the last look.
    pub left_out: u64,
    /// Bytes acknowledged.
    #[serde(rename = "sent_bytes")]
    pub sent: Bytes,
    /// Bytes received.
    #[serde(rename = "received_bytes")]
    pub received: Bytes,
    /// Time that each limit owned, of all sockets together.
    #[serde(rename = "limited_ns")]
    pub limited: BTreeMap<Limit, Nanos>,
}

/// What the connections of one process with one network of peers moved, and what limited them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketGroup {
    /// Network of the peers: 24 bits of IPv4, 64 of IPv6.
    pub peer: String,
    /// Port of the service, at either end; zero of ports that clients use.
    pub port: u16,
    /// Name of the process; empty while not known.
    pub process: Comm,
    /// Sockets that were seen.
    pub sockets: u64,
    /// Bytes acknowledged.
    #[serde(rename = "sent_bytes")]
    pub sent: Bytes,
    /// Bytes received.
    #[serde(rename = "received_bytes")]
    pub received: Bytes,
    /// Time that each limit owned, of all its sockets together.
    #[serde(rename = "limited_ns")]
    pub limited: BTreeMap<Limit, Nanos>,
}

impl SocketAccount {
    /// What is missing in it, in words.
    pub fn missing(&self) -> Option<String> {
        let parts = [
            (self.vanished, "ended without a last state"),
            (self.unseen, "were never seen"),
            (self.left_out, "are too many to be watched"),
        ];
        let parts = parts.iter().filter(|(n, _)| *n > 0);
        let parts: Vec<String> = parts.map(|(n, what)| format!("{n} {what}")).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl Explanation {
    /// The finding of a limit.
    pub fn finding(&self, limit: Limit) -> Option<&Finding> {
        self.findings.iter().find(|f| f.limit == limit)
    }

    /// The cause that is named first; `None` if none is.
    pub fn cause(&self) -> Option<Limit> {
        match &self.conclusion {
            Conclusion::Limited { by } => by.first().copied(),
            _ => None,
        }
    }

    /// That of the answer: the least of the causes that it names. `None`: it is not known.
    pub fn confidence(&self) -> Option<Confidence> {
        let of = |limit: &Limit| self.finding(*limit).map(|f| f.confidence);
        match &self.conclusion {
            Conclusion::Limited { by } => by.iter().filter_map(of).min(),
            Conclusion::Innocent => of(&Limit::Application),
            Conclusion::TooShort | Conclusion::Unexplained => None,
        }
    }

    /// Exactly one cause is named, and not as one of several that fit: if it is wrong, it misleads.
    pub fn is_confident(&self) -> bool {
        let is_one = matches!(&self.conclusion, Conclusion::Limited { by } if by.len() == 1);
        is_one && self.confidence() > Some(Confidence::Possible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_is_between_the_causes_that_it_separates() {
        use Limit::{BurstLoss, Cpu, Policer, RandomLoss};
        let decider = Decider {
            change: "pacing=9M".to_owned(),
            margin: 0.1,
            faster: vec![Policer, BurstLoss],
            no_difference: vec![RandomLoss],
            slower: vec![RandomLoss],
        };
        let two = decider.clone().between(&[RandomLoss, Policer]).unwrap();
        assert_eq!(two.faster, [Policer]);
        assert_eq!(two.slower, [RandomLoss]);
        for same in [&[Policer, BurstLoss][..], &[RandomLoss, Cpu], &[]] {
            assert_eq!(decider.clone().between(same), None, "{same:?}");
        }
        let three = decider.clone().between(&[RandomLoss, Cpu, Policer]);
        assert_eq!(three.unwrap().faster, [Cpu, Policer]);
        // Every outcome leaves one of them: nothing is excluded.
        let unclear = Decider {
            slower: vec![RandomLoss, Policer],
            ..decider
        };
        assert_eq!(unclear.between(&[RandomLoss, Policer]), None);
    }

    #[test]
    fn the_first_level_comes_before_the_second_and_names_stay() {
        assert!(Limit::ALL.is_sorted_by_key(|l| l.level()));
        let first = |l: &&Limit| l.level() == Level::First;
        let letters = Limit::ALL.iter().filter_map(|l| l.letter());
        let letters: std::collections::BTreeSet<char> = letters.collect();
        assert_eq!(Limit::ALL.iter().filter(first).count(), letters.len());
        let name = |l: &Limit| serde_json::to_value(l).unwrap();
        assert_eq!(name(&Limit::RtoStall), "rto_stall");
        assert_eq!(
            serde_json::from_str::<Limit>("\"ecn_marks\"").unwrap(),
            Limit::EcnMarks
        );
    }
}
