//! One TCP segment with what its socket knew at that moment, and what joins them to a trace.
//!
//! A trace is a row of [`TraceRecord`]s: [`Begin`], then [`Connection`]s each before their first
//! [`Segment`], [`Owner`]s from time to time, [`Lost`] where events were lost, and [`End`]. Where sockets could
//! not be read at each segment, [`TraceSample`]s stand between the segments. [`Trace`] is the same held in memory.

use crate::{Bytes, Nanos, SocketState, SocketValues};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::SocketAddr;

/// Version of the trace's form. Raised when a field changes its meaning, unit or type.
pub const TRACE_SCHEMA: u32 = 1;

/// Connection states as the kernel numbers them (`include/net/tcp_states.h`).
pub mod tcp_state {
    #![allow(missing_docs)]
    pub const ESTABLISHED: u8 = 1;
    pub const SYN_SENT: u8 = 2;
    pub const SYN_RECV: u8 = 3;
    pub const FIN_WAIT1: u8 = 4;
    pub const FIN_WAIT2: u8 = 5;
    pub const TIME_WAIT: u8 = 6;
    pub const CLOSE: u8 = 7;
    pub const CLOSE_WAIT: u8 = 8;
    pub const LAST_ACK: u8 = 9;
    pub const LISTEN: u8 = 10;
    pub const CLOSING: u8 = 11;
    pub const NEW_SYN_RECV: u8 = 12;

    /// Before the handshake is over.
    #[must_use]
    pub fn is_opening(state: u8) -> bool {
        matches!(state, SYN_SENT | SYN_RECV | LISTEN | NEW_SYN_RECV)
    }
}

/// Flags of the TCP header (RFC 9293, section 3.1).
pub mod tcp_flag {
    #![allow(missing_docs)]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
    pub const ECE: u8 = 0x40;
    pub const CWR: u8 = 0x80;
}

/// Congestion states (`enum tcp_ca_state`).
pub mod ca_state {
    #![allow(missing_docs)]
    pub const OPEN: u8 = 0;
    pub const DISORDER: u8 = 1;
    pub const CWR: u8 = 2;
    pub const RECOVERY: u8 = 3;
    pub const LOSS: u8 = 4;
}

/// Timers that a sender can wait for (`ICSK_TIME_*` in `include/net/inet_connection_sock.h`).
pub mod timer {
    #![allow(missing_docs)]
    pub const TAIL_LOSS_PROBE: u8 = 5;
    pub const REORDERING: u8 = 6;
}

/// What the kernel's chronograph of a sender runs on (`enum tcp_chrono`).
pub mod chrono {
    #![allow(missing_docs)]
    pub const BUSY: u8 = 1;
    pub const RWND_LIMITED: u8 = 2;
    pub const SNDBUF_LIMITED: u8 = 3;
}

/// A structure of many figures, most of them zero most of the time: what is zero, false, empty or
/// unknown is left out when it is saved, and read back as that.
macro_rules! sparse {
    ($(#[$outer:meta])* pub struct $name:ident {
        $($(#[$inner:meta])* pub $field:ident: $kind:ty,)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                $(#[$inner])*
                #[serde(skip_serializing_if = "is_default")]
                pub $field: $kind,
            )*
        }
    };
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

sparse! {
    /// One event of a connection at one host: a segment sent or received, or a step of its socket.
    ///
    /// `socket` describes the time since the connection's event before, but `segs_out`, `bytes_sent` and
    /// `total_retrans` count a sent segment already.
    pub struct Segment {
        /// Time since the trace began, by the host's monotonic clock.
        #[serde(rename = "at_ns")]
        pub at: Nanos,
        /// Number of its connection.
        pub connection: u32,
        /// `sent` (if left out), `received`: a segment; `wrote`, `read`: a call of the application
        /// returned (without `--calls`, one that no segment shows soon); `state`, `congestion`: it
        /// changed; `dropped`: a segment, inside this host; `retransmitted`: the kernel counts the
        /// segment with this `seq`, sent just before, as a retransmission.
        pub what: What,
        /// Processor on which it happened.
        pub cpu: u32,
        /// Process that uses the socket; zero while not known.
        pub pid: u32,
        /// Its name.
        pub comm: Comm,
        /// Process that the processor was running: any at all where a packet or a timer interrupted it.
        pub current_pid: u32,
        /// Its name.
        pub current_comm: Comm,

        /// Sequence number of the first byte (SYN and FIN count as one each).
        pub seq: u32,
        /// Acknowledgement number.
        pub ack: u32,
        /// Flags of the TCP header: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK, 32 URG, 64 ECE, 128 CWR.
        pub flags: u8,
        /// The window field of the header, before its scale.
        pub window: u32,
        /// Timestamps (RFC 7323): that of its sender, and the one of the peer that it echoes;
        /// `None` where they are not the first option.
        pub stamps: Option<(u32, u32)>,
        /// Bytes carried; for `wrote` and `read` the bytes that the application moved.
        pub payload: Bytes,
        /// Segments on the wire that this stands for: more than one where the device or the kernel splits
        /// (GSO) or joins (GRO) them. Zero where the event is no segment.
        pub segments: u32,
        /// Bytes that each of them but the last carries; zero for a single one.
        pub segment_size: u32,
        /// Place of the first byte in its direction's stream, from 0; `None` while that cannot be known.
        pub offset: Option<u64>,
        /// Type of service: DSCP and, in the low two bits, ECN (3: congestion experienced).
        pub tos: u8,
        /// Time to live, or hop limit.
        pub ttl: u8,
        /// Length of the whole IP packet in bytes (the sum of headers of a super-segment counts once).
        pub length: u32,
        /// Where and why it was dropped (`dropped` alone).
        pub dropped: Option<Box<Dropped>>,

        /// The socket, before a received segment was processed, and before a sent one counted as
        /// sent: read by a probe, or else (`probed` is left out) what the packets before this one
        /// show of it, once a packet of each direction was seen.
        pub socket: Option<SocketState>,
    }
}

sparse! {
    /// What the kernel reports of a connection's socket at one moment, where it cannot be read at each segment.
    /// Between two of these only the difference of their counters is known.
    pub struct TraceSample {
        /// Time since the trace began, of the query to the kernel.
        #[serde(rename = "at_ns")]
        pub at: Nanos,
        /// Number of its connection.
        pub connection: u32,
        /// A process that holds the socket; zero while not known.
        pub pid: u32,
        /// Its name.
        pub comm: Comm,
        /// The socket is gone, and this was its last state.
        pub gone: bool,
        /// Congestion control, by its name; empty where not reported.
        pub congestion: String,
        /// The socket, as TCP_INFO and sock_diag read it.
        pub socket: SocketState,
    }
}

/// What a [`Segment`] records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A segment on its way from TCP to the device.
    #[default]
    Sent,
    /// A segment arriving at the socket.
    Received,
    /// A send call of the application returned.
    Wrote,
    /// A receive call of the application returned.
    Read,
    /// The connection's state is now `socket.state`.
    State,
    /// The congestion state is now `socket.ca_state`.
    Congestion,
    /// A segment was dropped inside this host, before it left or after it arrived: see [`Segment::dropped`].
    /// Its numbers are those of [`What::Sent`] or [`What::Received`]. The socket is `None` where nobody knew
    /// yet whose it was; the connection is then that of the sender if the receiver, on the same host, has
    /// none yet.
    Dropped,
    /// The kernel counts a retransmission: after the [`What::Sent`] of the same `seq`.
    Retransmitted,
}

sparse! {
    /// Where and why this host dropped a segment.
    pub struct Dropped {
        /// The running kernel's name of it (`enum skb_drop_reason`), as `QDISC_OVERLIMIT`; its number where
        /// it has no name.
        pub reason: String,
        /// Network device that it was to leave by or came in by; empty where the socket itself dropped it.
        pub device: String,
        /// It had arrived; else it was to be sent.
        pub arrived: bool,
    }
}

/// What makes a sender send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retransmission {
    /// The handshake got no answer in time.
    Handshake,
    /// The retransmission timeout (RFC 6298), and retransmissions in its wake.
    Timeout,
    /// Duplicate or selective acknowledgements mark it as lost (RFC 5681, RFC 6675, RFC 8985).
    Fast,
    /// The end of a flight stays unacknowledged: a probe (RFC 8985, section 7).
    TailLossProbe,
    /// None of these: the device refused it, or the path MTU shrank.
    Other,
}

impl Segment {
    /// Bytes of sequence space: the payload, SYN and FIN.
    pub fn sequence_length(&self) -> u32 {
        let ends =
            u32::from(self.flags & tcp_flag::SYN != 0) + u32::from(self.flags & tcp_flag::FIN != 0);
        ends.wrapping_add(self.payload.0 as u32)
    }

    /// A sent segment that begins before `snd_nxt` and takes sequence space: a retransmission. (The answers
    /// of a listener never count: its own `snd_nxt` says nothing of them.)
    pub fn is_retransmission(&self) -> bool {
        self.what == What::Sent
            && self.flags & tcp_flag::RST == 0
            && self.sequence_length() > 0
            && self.socket.as_ref().is_some_and(|socket| {
                socket.state() != Some(tcp_state::LISTEN)
                    && (socket.snd_nxt()).is_some_and(|next| distance(self.seq, next).0 > 0)
            })
    }

    /// The socket, where a probe read it.
    #[inline]
    pub fn probed(&self) -> Option<&SocketValues> {
        self.socket.as_ref()?.probed()
    }

    /// What a retransmission is due to, by the state in which it leaves.
    pub fn retransmission(&self) -> Option<Retransmission> {
        let socket = self.probed().filter(|_| self.is_retransmission())?;
        Some(match (socket.state, socket.ca_state) {
            (tcp_state::SYN_SENT | tcp_state::SYN_RECV, _) => Retransmission::Handshake,
            (_, ca_state::LOSS) => Retransmission::Timeout,
            (_, ca_state::RECOVERY) => Retransmission::Fast,
            _ if socket.timer == timer::TAIL_LOSS_PROBE => Retransmission::TailLossProbe,
            _ => Retransmission::Other,
        })
    }
}

/// From one sequence number or counter on to another (modulo 2^32); zero if it does not lie ahead.
pub(crate) fn distance(from: u32, to: u32) -> Bytes {
    Bytes(u64::try_from(to.wrapping_sub(from) as i32).unwrap_or(0))
}

/// The name of a process as the kernel keeps it: at most 15 bytes (`TASK_COMM_LEN`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Comm([u8; 16]);

impl Comm {
    /// From the kernel's field, up to the first zero.
    pub fn new(bytes: &[u8]) -> Comm {
        let mut name = [0; 16];
        let used = bytes.iter().take(15).take_while(|byte| **byte != 0);
        name.iter_mut().zip(used).for_each(|(to, from)| *to = *from);
        Comm(name)
    }

    /// The kernel's field.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Whether a pattern with any number of `*`, each for any letters, is all of the name.
    pub fn is_like(&self, pattern: &str) -> bool {
        is_like(&self.to_string(), pattern)
    }
}

/// Whether a pattern with any number of `*`, each for any letters, is all of a name.
pub fn is_like(name: &str, pattern: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut left) = name.strip_prefix(begin) else {
        return false;
    };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    true
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(16);
        f.pad(&String::from_utf8_lossy(&self.0[..end]))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Serialize for Comm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Comm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Comm, D::Error> {
        Ok(Comm::new(String::deserialize(deserializer)?.as_bytes()))
    }
}

/// One connection of a trace, from this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Number within the trace, from 0.
    pub id: u32,
    /// The kernel's number of the socket, the same for its whole life; zero where it is not known.
    #[serde(default)]
    pub cookie: u64,
    /// Network namespace, by its inode (`readlink /proc/self/ns/net`); zero where it is not known.
    #[serde(default)]
    pub netns: u32,
    /// This end.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
}

sparse! {
    /// What a process that uses traced connections was doing, read from time to time: what lies behind
    /// "the application". Times and bytes are counted from the first of these records, all threads together.
    pub struct Owner {
        /// Time since the trace began.
        #[serde(rename = "at_ns")]
        pub at: Nanos,
        /// The process.
        pub pid: u32,
        /// Its name.
        pub comm: Comm,
        /// Threads that run, or could if they had a processor.
        pub running: u32,
        /// Threads in uninterruptible sleep: as a rule they wait for a disk.
        pub blocked: u32,
        /// Threads that sleep until something wakes them.
        pub asleep: u32,
        /// Time on a processor.
        #[serde(rename = "ran_ns")]
        pub ran: Nanos,
        /// Time ready to run, without a processor.
        #[serde(rename = "queued_ns")]
        pub queued: Nanos,
        /// Bytes read from storage; `None` where that may not be read.
        pub storage_read: Option<Bytes>,
        /// Bytes written to storage; `None` where that may not be read.
        pub storage_written: Option<Bytes>,
        /// The function of the kernel in which a thread waits, where that may be read: of a blocked thread
        /// if there is one, else of the first.
        pub waits_in: String,
    }
}

/// How a trace begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceBegin {
    /// Version of this form.
    pub schema: u32,
    /// Name of the host.
    pub host: String,
    /// Its kernel.
    #[serde(default)]
    pub kernel: String,
    /// Moment 0 of the trace, since 1970-01-01 UTC.
    #[serde(rename = "started_unix_ns")]
    pub started: Nanos,
    /// `probes`: in the kernel; `packets`: a packet socket and samples of the sockets; `samples`:
    /// these alone; `capture`: a file.
    pub source: TraceSource,
}

/// Where the events of a trace come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceSource {
    /// Probes in the kernel: every segment with its socket's state, in true order.
    #[default]
    Probes,
    /// A packet socket, with TCP_INFO read from time to time: packets can be missing, states are late.
    Packets,
    /// TCP_INFO read from time to time, and no packets.
    Samples,
    /// A capture file: no sockets.
    Capture,
}

/// Events that were lost, between two moments of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Not before this time of the trace.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// Not after.
    #[serde(rename = "to_ns")]
    pub to: Nanos,
    /// How many.
    pub events: u64,
}

/// How a trace ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEnd {
    /// Length of the trace.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Events reported.
    pub events: u64,
    /// Events lost, all together.
    pub lost: u64,
    /// Events whose place in the order is not certain.
    pub unordered: u64,
}

/// One line of a trace, printed live and stored in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant)] // nearly all are segments
pub enum TraceRecord {
    /// The first.
    Begin(TraceBegin),
    /// Before the first segment of the connection; again when its socket is known only later.
    Connection(Connection),
    /// One event.
    Segment(Segment),
    /// A socket, between segments.
    Sample(TraceSample),
    /// What a process was doing, where that is watched.
    Owner(Owner),
    /// Here events are missing.
    Lost(Lost),
    /// The last, if the trace ended in order.
    End(TraceEnd),
}

/// A trace held in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// How it began.
    pub begin: TraceBegin,
    /// Its connections, each at the index of its id.
    pub connections: Vec<Connection>,
    /// Its events, rising in time.
    pub segments: Vec<Segment>,
    /// Its sockets from time to time, where they could not be read at each segment; rising in time.
    pub samples: Vec<TraceSample>,
    /// What processes were doing.
    pub owners: Vec<Owner>,
    /// Where events were lost.
    pub lost: Vec<Lost>,
    /// How it ended; `None` if it broke off.
    pub end: Option<TraceEnd>,
}

impl Trace {
    /// Adds a record. Connections come in the order of their numbers, and can come again when more is
    /// known of them; one out of that order is refused and returned, as is a segment or a sample of a connection
    /// that never came.
    ///
    /// # Errors
    /// The record that has no place.
    pub fn push(&mut self, record: TraceRecord) -> Result<(), Box<TraceRecord>> {
        let known = self.connections.len();
        match record {
            TraceRecord::Begin(begin) => self.begin = begin,
            TraceRecord::Connection(connection) => {
                let place = connection.id as usize;
                match self.connections.get_mut(place) {
                    Some(before) => *before = connection,
                    None if place == known => self.connections.push(connection),
                    None => return Err(Box::new(TraceRecord::Connection(connection))),
                }
            }
            TraceRecord::Segment(one) if (one.connection as usize) < known => {
                self.segments.push(one);
            }
            TraceRecord::Sample(one) if (one.connection as usize) < known => {
                self.samples.push(one);
            }
            TraceRecord::Owner(owner) => self.owners.push(owner),
            TraceRecord::Lost(lost) => self.lost.push(lost),
            TraceRecord::End(end) => self.end = Some(end),
            TraceRecord::Segment(_) | TraceRecord::Sample(_) => return Err(Box::new(record)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(seq: u32, payload: u64, snd_nxt: u32) -> Segment {
        Segment {
            seq,
            payload: Bytes(payload),
            socket: probed(SocketValues {
                snd_nxt,
                ..SocketValues::default()
            }),
            ..Segment::default()
        }
    }

    fn probed(values: SocketValues) -> Option<SocketState> {
        Some(SocketState::from_probe(values))
    }

    #[test]
    fn processes_by_their_names() {
        for (pattern, name, is) in [
            ("rsync", "rsync", true),
            ("rsync", "rsyncd", false),
            ("rsync*", "rsync", true),
            ("*sync", "rsync", true),
            ("r*n*", "rsync", true),
            ("r*x*", "rsync", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            let comm = Comm::new(name.as_bytes());
            assert_eq!(comm.is_like(pattern), is, "{pattern} {name}");
        }
    }

    #[test]
    fn a_retransmission_begins_before_the_next_and_takes_space() {
        assert!(sent(1000, 1448, 2448).is_retransmission());
        assert!(
            sent(u32::MAX - 10, 1448, 5).is_retransmission(),
            "across the wrap"
        );
        assert!(!sent(2448, 1448, 2448).is_retransmission());
        assert!(
            !sent(999, 0, 1000).is_retransmission(),
            "a keep-alive probe"
        );
        let fin = Segment {
            flags: tcp_flag::FIN | tcp_flag::ACK,
            ..sent(999, 0, 1000)
        };
        assert!(fin.is_retransmission());
        let received = Segment {
            what: What::Received,
            ..sent(1000, 1448, 2448)
        };
        assert!(!received.is_retransmission());
        let mut answer = sent(1000, 0, 2448);
        answer.flags = tcp_flag::SYN | tcp_flag::ACK;
        assert!(answer.is_retransmission());
        answer.socket = probed(SocketValues {
            state: tcp_state::LISTEN,
            snd_nxt: 2448,
            ..SocketValues::default()
        });
        assert!(!answer.is_retransmission());
    }

    #[test]
    fn a_retransmission_has_its_cause() {
        let with = |state, ca_state, timer| {
            let mut segment = sent(1000, 1448, 2448);
            segment.socket = probed(SocketValues {
                state,
                ca_state,
                timer,
                snd_nxt: 2448,
                ..SocketValues::default()
            });
            segment.retransmission().unwrap()
        };
        use Retransmission as R;
        let established = tcp_state::ESTABLISHED;
        assert_eq!(with(tcp_state::SYN_SENT, ca_state::OPEN, 0), R::Handshake);
        assert_eq!(with(established, ca_state::LOSS, 0), R::Timeout);
        assert_eq!(
            with(established, ca_state::RECOVERY, timer::REORDERING),
            R::Fast
        );
        assert_eq!(
            with(established, ca_state::OPEN, timer::TAIL_LOSS_PROBE),
            R::TailLossProbe
        );
        assert_eq!(with(established, ca_state::CWR, 1), R::Other);
        assert_eq!(sent(2448, 1448, 2448).retransmission(), None);
    }

    #[test]
    fn what_is_zero_is_left_out_and_comes_back() {
        let record = TraceRecord::Segment(Segment {
            at: Nanos(5),
            what: What::Received,
            comm: Comm::new(b"dd\0\0"),
            socket: probed(SocketValues {
                state: tcp_state::ESTABLISHED,
                ..SocketValues::default()
            }),
            ..Segment::default()
        });
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"segment","at_ns":5,"what":"received","comm":"dd","socket":{"probed":true,"state":1}}"#
        );
        assert_eq!(serde_json::from_str::<TraceRecord>(&text).unwrap(), record);
    }

    #[test]
    fn a_trace_takes_what_has_its_place() {
        let mut trace = Trace::default();
        let connection = |id| {
            TraceRecord::Connection(Connection {
                id,
                cookie: 7,
                netns: 1,
                local: "10.0.0.1:1000".parse().unwrap(),
                remote: "[fd00::1]:2049".parse().unwrap(),
            })
        };
        assert!(
            trace
                .push(TraceRecord::Segment(Segment::default()))
                .is_err()
        );
        assert!(trace.push(connection(1)).is_err());
        assert!(trace.push(connection(0)).is_ok());
        assert!(trace.push(TraceRecord::Segment(Segment::default())).is_ok());
        assert!(trace.push(connection(0)).is_ok(), "reported again");
        assert_eq!((trace.connections.len(), trace.segments.len()), (1, 1));
    }

    proptest! {
        #[test]
        fn names_are_cut_as_the_kernel_cuts_them(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let comm = Comm::new(&bytes);
            prop_assert_eq!(Comm::new(comm.as_bytes()), comm);
            prop_assert!(comm.to_string().chars().count() <= 15);
        }
    }
}
