//! The kernel's own account of one TCP socket.

use crate::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// `TCP_INFO` as the running kernel fills it (`include/uapi/linux/tcp.h`), in typed units.
///
/// Counters count from the start of the connection. Fields that older kernels lack are `None`: the
/// kernel says how many bytes it filled, and what lies beyond is unknown, not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpInfo {
    /// Connection state, `TCP_ESTABLISHED` = 1 (`net/tcp_states.h`).
    pub state: u8,
    /// Congestion state: 0 open, 1 disorder, 2 cwnd reduced (CWR), 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Timestamps option in use (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgement in use (RFC 2018).
    pub sack: bool,
    /// ECN negotiated (RFC 3168).
    pub ecn: bool,
    /// ECN: at least one segment arrived with ECT.
    pub ecn_seen: bool,
    /// Window scale that the peer applies to its advertisements; `None` if not negotiated.
    pub snd_wscale: Option<u8>,
    /// Window scale that this end applies to its advertisements; `None` if not negotiated.
    pub rcv_wscale: Option<u8>,
    /// The latest delivery rate sample was limited by the application, not by the network.
    pub delivery_rate_app_limited: bool,
    /// Retransmission timeout.
    #[serde(rename = "rto_ns")]
    pub rto: Nanos,
    /// Delayed-ACK timeout.
    #[serde(rename = "ato_ns")]
    pub ato: Nanos,
    /// Largest segment sent, in bytes.
    pub snd_mss: u32,
    /// Largest segment received lately, in bytes.
    pub rcv_mss: u32,
    /// MSS announced to the peer, in bytes.
    pub advmss: u32,
    /// Path MTU as this socket believes it, in bytes.
    pub pmtu: u32,
    /// Segments sent and not yet acknowledged.
    pub unacked: u32,
    /// Segments selectively acknowledged.
    pub sacked: u32,
    /// Segments believed lost now.
    pub lost: u32,
    /// Segments retransmitted and still out.
    pub retrans: u32,
    /// Segments retransmitted since the connection began.
    pub total_retrans: u32,
    /// Smoothed round-trip time.
    #[serde(rename = "rtt_ns")]
    pub rtt: Nanos,
    /// Mean deviation of the round-trip time.
    #[serde(rename = "rttvar_ns")]
    pub rttvar: Nanos,
    /// Round-trip time as a receiver can estimate it; zero if it never could.
    #[serde(rename = "rcv_rtt_ns")]
    pub rcv_rtt: Nanos,
    /// Slow-start threshold in segments; 2^31 - 1 means not set yet.
    pub snd_ssthresh: u32,
    /// Congestion window in segments.
    pub snd_cwnd: u32,
    /// Current window clamp of the receiver, in bytes.
    pub rcv_ssthresh: u32,
    /// Space the receiver's autotuning aims at, in bytes.
    pub rcv_space: u32,
    /// Reordering distance that the sender tolerates, in segments.
    pub reordering: u32,
    /// Pacing rate; `None` if not paced or not told.
    #[serde(rename = "pacing_rate_bit_s")]
    pub pacing_rate: Option<BitRate>,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: Option<Bytes>,
    /// Bytes received in order.
    pub bytes_received: Option<Bytes>,
    /// Segments sent, pure acknowledgements included.
    pub segs_out: Option<u32>,
    /// Segments received, pure acknowledgements included.
    pub segs_in: Option<u32>,
    /// Bytes written by the application and not yet sent.
    pub notsent_bytes: Option<Bytes>,
    /// Smallest round-trip time seen.
    #[serde(rename = "min_rtt_ns")]
    pub min_rtt: Option<Nanos>,
    /// Segments received that carried data.
    pub data_segs_in: Option<u32>,
    /// Segments sent that carried data.
    pub data_segs_out: Option<u32>,
    /// Latest delivery rate sample.
    #[serde(rename = "delivery_rate_bit_s")]
    pub delivery_rate: Option<BitRate>,
    /// Time with data to send outstanding.
    #[serde(rename = "busy_ns")]
    pub busy: Option<Nanos>,
    /// Part of busy that waited for the peer's receive window.
    #[serde(rename = "rwnd_limited_ns")]
    pub rwnd_limited: Option<Nanos>,
    /// Part of busy that waited for room in the send buffer.
    #[serde(rename = "sndbuf_limited_ns")]
    pub sndbuf_limited: Option<Nanos>,
    /// Segments delivered, retransmissions included.
    pub delivered: Option<u32>,
    /// Segments delivered with an ECN mark.
    pub delivered_ce: Option<u32>,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: Option<Bytes>,
    /// Bytes retransmitted.
    pub bytes_retrans: Option<Bytes>,
    /// Duplicate SACKs received: retransmissions that were not needed (RFC 2883).
    pub dsack_dups: Option<u32>,
    /// Times that reordering was seen.
    pub reord_seen: Option<u32>,
    /// Segments received out of order.
    pub rcv_ooopack: Option<u32>,
    /// The peer's receive window, in bytes, scale applied.
    pub snd_wnd: Option<Bytes>,
    /// This end's advertised receive window, in bytes, scale applied.
    pub rcv_wnd: Option<Bytes>,
    /// Retransmission timeouts since the connection began.
    pub total_rto: Option<u16>,
}

impl TcpInfo {
    /// The congestion window in bytes: segments times the sending MSS.
    pub fn cwnd_bytes(&self) -> Bytes {
        Bytes(u64::from(self.snd_cwnd) * u64::from(self.snd_mss))
    }
}
