//! One TCP segment with what its socket knew at that moment, and what joins them to a trace.
//!
//! A trace is a row of [`TraceRecord`]s: [`Begin`], then [`Connection`]s each before their first
//! [`Segment`], [`Owner`]s from time to time, [`Lost`] where events were lost, and [`End`]. Where sockets could
//! not be read at each segment, [`TraceSample`]s stand between the segments. [`Trace`] is the same held in memory.

use crate::{BitRate, Bytes, Nanos, TcpInfo};
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
    pub const NONE: u8 = 0;
    pub const RETRANSMIT: u8 = 1;
    pub const ZERO_WINDOW_PROBE: u8 = 3;
    pub const TAIL_LOSS_PROBE: u8 = 5;
    pub const REORDERING: u8 = 6;
}

/// What the kernel's chronograph of a sender runs on (`enum tcp_chrono`).
pub mod chrono {
    #![allow(missing_docs)]
    pub const NONE: u8 = 0;
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
    /// `tcb` is the socket before a received segment was processed, and before a sent one counted as sent
    /// (`segs_out`, `bytes_sent` and `total_retrans` count it already): it describes the time since the
    /// connection's event before.
    pub struct Segment {
        /// Time since the trace began, by the host's monotonic clock.
        #[serde(rename = "at_ns")]
        pub at: Nanos,
        /// [`Connection::id`].
        pub connection: u32,
        /// What happened.
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
        /// Flags of the TCP header, see [`tcp_flag`].
        pub flags: u8,
        /// The window field as it stands in the header, before its scale.
        pub window: u32,
        /// Bytes carried; for [`What::Wrote`] and [`What::Read`] the bytes that the application moved.
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
        /// Where and why it was dropped ([`What::Dropped`] alone).
        pub dropped: Option<Box<Dropped>>,

        /// The socket; `None` where only packets could be seen.
        pub tcb: Option<Tcb>,
        /// What the packets before this one show of the socket; `None` where the socket itself was read, and
        /// until a packet of each direction was seen.
        pub seen: Option<Seen>,
    }
}

sparse! {
    /// What a connection's packets show of its socket, as [`Tcb`] has it where that can be read.
    pub struct Seen {
        /// Oldest sequence number not acknowledged.
        pub snd_una: u32,
        /// Behind the last byte sent.
        pub snd_nxt: u32,
        /// Behind the last byte received in order.
        pub rcv_nxt: u32,
        /// The last acknowledgement that left.
        pub rcv_wup: u32,
        /// The peer's receive window, from `snd_una`; `None` while its scale is not known.
        pub snd_wnd: Option<Bytes>,
        /// The window that this end last offered, from `rcv_wup`; `None` while its scale is not known.
        pub rcv_wnd: Option<Bytes>,
    }
}

sparse! {
    /// What the kernel told of a connection's socket at one moment, where it cannot be read at each segment.
    /// Nothing is known of the time between two of these but what their counters say.
    pub struct TraceSample {
        /// Time since the trace began: when the kernel was asked.
        #[serde(rename = "at_ns")]
        pub at: Nanos,
        /// [`Connection::id`].
        pub connection: u32,
        /// A process that holds the socket; zero while not known.
        pub pid: u32,
        /// Its name.
        pub comm: Comm,
        /// The socket is gone, and this was its last state.
        pub gone: bool,
        /// Congestion control, by its name; empty where not told.
        pub congestion: String,
        /// Send buffer (`SO_SNDBUF`).
        pub sndbuf: Bytes,
        /// Its use, the kernel's overhead included.
        pub sndbuf_used: Bytes,
        /// Receive buffer (`SO_RCVBUF`).
        pub rcvbuf: Bytes,
        /// Its use, the kernel's overhead included.
        pub rcvbuf_used: Bytes,
        /// Bytes handed to the device and not yet sent by it, the kernel's overhead included.
        pub wmem_alloc: Bytes,
        /// Bytes received and not yet read by the application.
        pub unread: Bytes,
        /// The kernel's account.
        pub tcp: TcpInfo,
    }
}

/// What a [`Segment`] tells of.
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
    /// The connection's state is now `tcb.state`.
    State,
    /// The congestion state is now `tcb.ca_state`.
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
    /// The retransmission timeout (RFC 6298), and what is sent again in its wake.
    Timeout,
    /// Duplicate or selective acknowledgements say that it is lost (RFC 5681, RFC 6675, RFC 8985).
    Fast,
    /// The end of a flight stays unacknowledged: a probe (RFC 8985, section 7).
    TailLossProbe,
    /// None of these: the device refused it, or the path MTU shrank.
    Other,
}

sparse! {
    /// A socket's transmission control block (RFC 9293), as `struct tcp_sock` holds it.
    pub struct Tcb {
        /// Connection state, see [`tcp_state`].
        pub state: u8,
        /// Congestion state, see [`ca_state`].
        pub ca_state: u8,
        /// The application was inside a call on this socket.
        pub owned: bool,

        /// Oldest sequence number not acknowledged.
        pub snd_una: u32,
        /// Next sequence number to send.
        pub snd_nxt: u32,
        /// Sequence number behind the last byte written by the application.
        pub write_seq: u32,
        /// End of the last segment sent that was smaller than the MSS (Minshall's rule for Nagle).
        pub snd_sml: u32,
        /// Next sequence number expected.
        pub rcv_nxt: u32,
        /// `rcv_nxt` when the last acknowledgement left.
        pub rcv_wup: u32,
        /// Next byte that the application will read.
        pub copied_seq: u32,

        /// The peer's receive window, from `snd_una`, scale applied.
        pub snd_wnd: Bytes,
        /// The window that this end last offered, from `rcv_wup`, scale applied.
        pub rcv_wnd: Bytes,
        /// Scale of the peer's window; zero if none was agreed.
        pub snd_wscale: u8,
        /// Scale of this end's window; zero if none was agreed.
        pub rcv_wscale: u8,
        /// Largest window that this end would offer now.
        pub rcv_ssthresh: Bytes,
        /// Space that autotuning of the receive buffer aims at.
        pub rcv_space: Bytes,

        /// Congestion window, in segments.
        pub cwnd: u32,
        /// Slow-start threshold, in segments; 2^31 - 1 means not set yet.
        pub ssthresh: u32,
        /// The last flight was as large as the congestion window allowed.
        pub is_cwnd_limited: bool,
        /// Smoothed round-trip time; zero before the first measurement, as the next two.
        #[serde(rename = "srtt_ns")]
        pub srtt: Nanos,
        /// Its mean deviation.
        #[serde(rename = "rttvar_ns")]
        pub rttvar: Nanos,
        /// Smallest round-trip time seen lately.
        #[serde(rename = "min_rtt_ns")]
        pub min_rtt: Nanos,
        /// Round-trip time as the receiver estimates it; zero if it never could.
        #[serde(rename = "rcv_rtt_ns")]
        pub rcv_rtt: Nanos,
        /// Retransmission timeout.
        #[serde(rename = "rto_ns")]
        pub rto: Nanos,
        /// Largest segment to send, in bytes of payload.
        pub mss: u32,
        /// Largest segment received lately, in bytes of payload.
        pub rcv_mss: u32,
        /// MSS announced to the peer.
        pub advmss: u32,

        /// Segments sent and not acknowledged.
        pub packets_out: u32,
        /// Of them, selectively acknowledged.
        pub sacked_out: u32,
        /// Of them, believed lost.
        pub lost_out: u32,
        /// Of them, retransmitted and still out.
        pub retrans_out: u32,
        /// Retransmission timeouts in a row without progress.
        pub retransmits: u8,
        /// Doublings of the timeout.
        pub backoff: u8,
        /// Zero-window probes without answer.
        pub probes_out: u8,
        /// Pending timer of the sender, see [`timer`].
        pub timer: u8,
        /// Reordering distance that the sender tolerates, in segments.
        pub reordering: u32,

        /// Segments sent since the connection began, pure acknowledgements included, and this one.
        pub segs_out: u32,
        /// Segments received before this one, pure acknowledgements included.
        pub segs_in: u32,
        /// Segments retransmitted since the connection began.
        pub total_retrans: u32,
        /// Segments delivered, those with a retransmission included.
        pub delivered: u32,
        /// Segments delivered with an ECN mark.
        pub delivered_ce: u32,
        /// Times that reordering was seen.
        pub reord_seen: u32,
        /// Duplicate SACKs received (RFC 2883): retransmissions that were not needed.
        pub dsack_dups: u32,
        /// Bytes acknowledged; the SYN counts as one at the end that connected.
        pub bytes_acked: Bytes,
        /// Bytes received in order.
        pub bytes_received: Bytes,
        /// Bytes sent, retransmissions and this segment included.
        pub bytes_sent: Bytes,
        /// Bytes retransmitted.
        pub bytes_retrans: Bytes,

        /// Send buffer (`SO_SNDBUF`).
        pub sndbuf: Bytes,
        /// Its use, the kernel's overhead included.
        pub sndbuf_used: Bytes,
        /// Receive buffer (`SO_RCVBUF`).
        pub rcvbuf: Bytes,
        /// Its use, the kernel's overhead included.
        pub rcvbuf_used: Bytes,
        /// Bytes handed to the device and not yet sent by it, the kernel's overhead included.
        pub wmem_alloc: Bytes,
        /// The application waits for room in the send buffer (`SOCK_NOSPACE`).
        pub no_space: bool,

        /// What the chronograph runs on, see [`chrono`].
        pub chrono: u8,
        /// Time with data outstanding; the two below are parts of it.
        #[serde(rename = "busy_ns")]
        pub busy: Nanos,
        /// Time limited by the peer's window.
        #[serde(rename = "rwnd_limited_ns")]
        pub rwnd_limited: Nanos,
        /// Time limited by the send buffer.
        #[serde(rename = "sndbuf_limited_ns")]
        pub sndbuf_limited: Nanos,
        /// Delivered count up to which the rate is limited by the application; zero if it is not.
        pub app_limited: u32,
        /// Pacing rate; `None` if not limited.
        #[serde(rename = "pacing_rate_bit_s")]
        pub pacing_rate: Option<BitRate>,
        /// Who paces: 0 nobody, 1 TCP itself, 2 the fq queue.
        pub pacing_status: u8,

        /// Delayed-acknowledgement timeout.
        #[serde(rename = "ato_ns")]
        pub ato: Nanos,
        /// Interactive exchanges seen: acknowledgements are delayed from 1 on (3 on older kernels).
        pub pingpong: u8,
        /// Immediate acknowledgements still to come.
        pub quick: u8,
        /// 0: Nagle's rule holds; 1: `TCP_NODELAY`; 2: `TCP_CORK`; 4: pushed.
        pub nonagle: u8,
    }
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
            && match (&self.tcb, &self.seen) {
                (Some(tcb), _) => tcb.state != tcp_state::LISTEN && before(self.seq, tcb.snd_nxt),
                (None, Some(seen)) => before(self.seq, seen.snd_nxt),
                (None, None) => false,
            }
    }

    /// What a retransmission is due to, by the state in which it leaves.
    pub fn retransmission(&self) -> Option<Retransmission> {
        let tcb = self.tcb.as_ref().filter(|_| self.is_retransmission())?;
        Some(match (tcb.state, tcb.ca_state) {
            (tcp_state::SYN_SENT | tcp_state::SYN_RECV, _) => Retransmission::Handshake,
            (_, ca_state::LOSS) => Retransmission::Timeout,
            (_, ca_state::RECOVERY) => Retransmission::Fast,
            _ if tcb.timer == timer::TAIL_LOSS_PROBE => Retransmission::TailLossProbe,
            _ => Retransmission::Other,
        })
    }

    /// Bytes sent and not acknowledged, as the socket or else the packets tell.
    pub fn unacked_sent(&self) -> Option<Bytes> {
        let seen = || Some(self.seen.as_ref()?.unacked_sent());
        self.tcb.as_ref().map(Tcb::unacked_sent).or_else(seen)
    }

    /// Bytes received and not acknowledged, as the socket or else the packets tell.
    pub fn unacked_received(&self) -> Option<Bytes> {
        let seen = || Some(self.seen.as_ref()?.unacked_received());
        self.tcb.as_ref().map(Tcb::unacked_received).or_else(seen)
    }

    /// The peer's receive window, as the socket or else the packets tell.
    pub fn send_window(&self) -> Option<Bytes> {
        let seen = || self.seen.as_ref()?.snd_wnd;
        self.tcb.as_ref().map(|tcb| tcb.snd_wnd).or_else(seen)
    }

    /// This end's receive window, as the socket or else the packets tell.
    pub fn receive_window(&self) -> Option<Bytes> {
        let seen = || self.seen.as_ref()?.rcv_wnd;
        self.tcb.as_ref().map(|tcb| tcb.rcv_wnd).or_else(seen)
    }
}

impl Seen {
    /// Bytes sent and not acknowledged.
    pub fn unacked_sent(&self) -> Bytes {
        distance(self.snd_una, self.snd_nxt)
    }

    /// Bytes received and not yet acknowledged.
    pub fn unacked_received(&self) -> Bytes {
        distance(self.rcv_wup, self.rcv_nxt)
    }
}

impl Tcb {
    /// Bytes sent and not acknowledged (RFC 9293: SND.NXT - SND.UNA).
    pub fn unacked_sent(&self) -> Bytes {
        distance(self.snd_una, self.snd_nxt)
    }

    /// Bytes received and not yet acknowledged.
    pub fn unacked_received(&self) -> Bytes {
        distance(self.rcv_wup, self.rcv_nxt)
    }

    /// Bytes written by the application and not yet sent.
    pub fn unsent(&self) -> Bytes {
        distance(self.snd_nxt, self.write_seq)
    }

    /// Bytes received and not yet read by the application.
    pub fn unread(&self) -> Bytes {
        distance(self.copied_seq, self.rcv_nxt)
    }

    /// Segments in flight: `packets_out - sacked_out - lost_out + retrans_out` (RFC 6675's pipe).
    pub fn in_flight(&self) -> u32 {
        let sent = self.packets_out.saturating_add(self.retrans_out);
        sent.saturating_sub(self.sacked_out.saturating_add(self.lost_out))
    }

    /// Bytes that the peer's window still allows.
    pub fn send_window_left(&self) -> Bytes {
        self.snd_wnd.since(self.unacked_sent())
    }
}

/// Whether sequence number `a` comes before `b` (RFC 9293, section 3.4: modulo 2^32).
pub fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// From one sequence number on to another; zero if it does not lie ahead.
fn distance(from: u32, to: u32) -> Bytes {
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

/// One connection of a trace, as this host sees it.
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
    /// The other end.
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
pub struct Begin {
    /// [`TRACE_SCHEMA`].
    pub schema: u32,
    /// Name of the host.
    pub host: String,
    /// Its kernel.
    #[serde(default)]
    pub kernel: String,
    /// Moment 0 of the trace, since 1970-01-01 UTC.
    #[serde(rename = "started_unix_ns")]
    pub started: Nanos,
    /// Where the events come from.
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
pub struct End {
    /// Length of the trace.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Events told.
    pub events: u64,
    /// Events lost, all together.
    pub lost: u64,
    /// Events whose place in the order is not certain.
    pub unordered: u64,
}

/// One line of a trace, as it is told live and kept in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant)] // nearly all are segments
pub enum TraceRecord {
    /// The first.
    Begin(Begin),
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
    End(End),
}

/// A trace held in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// How it began.
    pub begin: Begin,
    /// Its connections, each at the index of its id.
    pub connections: Vec<Connection>,
    /// Its events, rising in time.
    pub segments: Vec<Segment>,
    /// Its sockets from time to time, where they could not be read at each segment; rising in time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub samples: Vec<TraceSample>,
    /// What processes were doing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub owners: Vec<Owner>,
    /// Where events were lost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost: Vec<Lost>,
    /// How it ended; `None` if it broke off.
    #[serde(default, skip_serializing_if = "is_default")]
    pub end: Option<End>,
}

impl Trace {
    /// Adds a record. Connections come in the order of their numbers, and can be told again when more is
    /// known of them; one out of that order is refused and returned, as is a segment or a sample of a connection
    /// that was never told.
    ///
    /// # Errors
    /// The record that has no place.
    pub fn push(&mut self, record: TraceRecord) -> Result<(), Box<TraceRecord>> {
        match record {
            TraceRecord::Begin(begin) => self.begin = begin,
            TraceRecord::Connection(connection) => {
                let place = connection.id as usize;
                if place < self.connections.len() {
                    self.connections[place] = connection;
                } else if place == self.connections.len() {
                    self.connections.push(connection);
                } else {
                    return Err(Box::new(TraceRecord::Connection(connection)));
                }
            }
            TraceRecord::Segment(segment)
                if (segment.connection as usize) < self.connections.len() =>
            {
                self.segments.push(segment);
            }
            TraceRecord::Sample(sample)
                if (sample.connection as usize) < self.connections.len() =>
            {
                self.samples.push(sample);
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
            tcb: Some(Tcb {
                snd_nxt,
                ..Tcb::default()
            }),
            ..Segment::default()
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
        answer.tcb = answer.tcb.map(|tcb| Tcb {
            state: tcp_state::LISTEN,
            ..tcb
        });
        assert!(!answer.is_retransmission());
    }

    #[test]
    fn a_retransmission_has_its_cause() {
        let with = |state, ca_state, timer| {
            let mut segment = sent(1000, 1448, 2448);
            segment.tcb = segment.tcb.map(|tcb| Tcb {
                state,
                ca_state,
                timer,
                ..tcb
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
    fn distances_survive_the_wrap_and_a_state_read_halfway() {
        let tcb = Tcb {
            snd_una: u32::MAX - 99,
            snd_nxt: 100,
            write_seq: 99,
            snd_wnd: Bytes(150),
            ..Tcb::default()
        };
        assert_eq!(tcb.unacked_sent(), Bytes(200));
        assert_eq!(tcb.unsent(), Bytes(0));
        assert_eq!(tcb.send_window_left(), Bytes(0));
    }

    #[test]
    fn what_is_zero_is_left_out_and_comes_back() {
        let record = TraceRecord::Segment(Segment {
            at: Nanos(5),
            what: What::Received,
            comm: Comm::new(b"dd\0\0"),
            tcb: Some(Tcb {
                state: tcp_state::ESTABLISHED,
                pacing_rate: Some(BitRate(8)),
                ..Tcb::default()
            }),
            ..Segment::default()
        });
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"segment","at_ns":5,"what":"received","comm":"dd","tcb":{"state":1,"pacing_rate_bit_s":8}}"#
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
        assert!(trace.push(connection(0)).is_ok(), "told again");
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
