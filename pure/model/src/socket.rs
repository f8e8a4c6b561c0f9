//! The state of one TCP socket, from any source: TCP_INFO, a probe in the kernel, sock_diag, or packets.
//!
//! One table names each field once: its name in JSON, unit, sources and meaning. [`SocketState`] holds what is
//! known of them, [`FIELDS`] is the table for output and documentation. A new field is a line of that table and
//! a line in each source that reads it.

use crate::segment::distance;
use crate::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What can read a socket's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSource {
    /// The probes of a trace, at each segment (`struct tcp_sock`, `struct inet_connection_sock`, `struct sock`).
    Probe,
    /// `TCP_INFO` or sock_diag(7) (`struct tcp_info`, `include/uapi/linux/tcp.h`), as far as the kernel fills it.
    TcpInfo,
    /// sock_diag(7) alone (`struct inet_diag_msg`, `INET_DIAG_SKMEMINFO`).
    SockDiag,
    /// The packets of both directions.
    Packets,
}

/// One field of [`SocketState`].
#[derive(Clone, Copy, Debug)]
pub struct SocketFieldInfo {
    /// Which.
    pub field: SocketField,
    /// Its name in JSON and tables: the kernel's, and the unit where it is not counted in bytes or segments.
    pub name: &'static str,
    /// Yes or no.
    pub is_flag: bool,
    /// Unit; empty for what is no quantity.
    pub unit: &'static str,
    /// Who reads it.
    pub sources: &'static [StateSource],
    /// Meaning.
    pub doc: &'static str,
    /// Its value; `None` where it is not known.
    pub get: fn(&SocketState) -> Option<FieldValue>,
}

/// A value of any field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// In the unit of its field.
    Number(u64),
    /// Yes or no.
    Flag(bool),
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldValue::Number(number) => number.fmt(f),
            FieldValue::Flag(flag) => flag.fmt(f),
        }
    }
}

impl FieldValue {
    /// As a number; yes is 1.
    pub fn number(self) -> u64 {
        match self {
            FieldValue::Number(number) => number,
            FieldValue::Flag(flag) => flag.into(),
        }
    }
}

/// What a field can hold, from and to a value of any field; `None` where the number is too large for it.
trait FieldType: Sized {
    fn of(number: u64) -> Option<Self>;
}

macro_rules! into_value {
    ($($kind:ty: $value:ident => $variant:ident($as:expr), $number:ident => $of:expr;)*) => {$(
        impl From<$kind> for FieldValue {
            fn from($value: $kind) -> FieldValue {
                FieldValue::$variant($as)
            }
        }
        impl FieldType for $kind {
            fn of($number: u64) -> Option<$kind> {
                $of
            }
        }
    )*};
}
into_value! {
    bool: value => Flag(value), number => (number < 2).then_some(number == 1);
    u8: value => Number(value.into()), number => number.try_into().ok();
    u16: value => Number(value.into()), number => number.try_into().ok();
    u32: value => Number(value.into()), number => number.try_into().ok();
    Bytes: value => Number(value.0), number => Some(Bytes(number));
    Nanos: value => Number(value.0), number => Some(Nanos(number));
    BitRate: value => Number(value.0), number => Some(BitRate(number));
}

macro_rules! socket_fields {
    ($(
        $(#[doc = $doc:literal])+
        $field:ident $(as $json:literal)?: $type:ty, $unit:literal, [$($source:ident)+];
    )*) => {
        /// The fields of [`SocketState`].
        #[allow(non_camel_case_types, reason = "they are named as the fields")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SocketField {
            $($(#[doc = $doc])+ $field,)*
        }

        /// Values of all fields of a socket's state; zero or false where one is not known.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct SocketValues {
            $($(#[doc = $doc])+ pub $field: $type,)*
        }

        /// All fields, in their order.
        pub const FIELDS: &[SocketFieldInfo] = &[$(
            SocketFieldInfo {
                field: SocketField::$field,
                name: [$($json,)? stringify!($field)][0],
                is_flag: matches!(stringify!($type).as_bytes(), b"bool"),
                unit: $unit,
                sources: &[$(StateSource::$source),+],
                doc: concat!($($doc),+).trim_ascii(),
                get: |state| state.$field().map(FieldValue::from),
            },
        )*];

        /// What every probe knows: all its fields but those that can have no value yet.
        const PROBED: u128 = !bit(SocketField::min_rtt) & !bit(SocketField::pacing_rate) & (0 $(
            | if $(matches!(StateSource::$source, StateSource::Probe))||+ {
                bit(SocketField::$field)
            } else {
                0
            }
        )*);

        impl SocketState {
            /// Sets a field to a number, as [`FieldValue::number`] gives it; `None` if it cannot hold that.
            pub fn set_number(&mut self, field: SocketField, number: u64) -> Option<()> {
                match field {
                    $(SocketField::$field => {
                        let value = <$type as FieldType>::of(number)?;
                        self.set(field, |of| &mut of.$field, Some(value));
                    })*
                }
                Some(())
            }

            $(
                $(#[doc = $doc])+
                #[inline]
                pub fn $field(&self) -> Option<$type> {
                    (self.known & bit(SocketField::$field) != 0).then_some(self.values.$field)
                }
            )*
        }

        /// In JSON: a member for each field that is known; of a probe all of its own are, and zeros are left out.
        #[derive(Default, Serialize, Deserialize)]
        #[serde(default)]
        struct Members {
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            probed: bool,
            $(
                $(#[serde(rename = $json)])?
                #[serde(skip_serializing_if = "Option::is_none")]
                $field: Option<$type>,
            )*
        }

        impl From<SocketState> for Members {
            fn from(state: SocketState) -> Members {
                let probed = state.probed().is_some();
                let is_implied = |field| probed && PROBED & bit(field) != 0;
                Members {
                    probed,
                    $($field: state.$field().filter(|value| {
                        *value != <$type>::default() || !is_implied(SocketField::$field)
                    }),)*
                }
            }
        }

        impl From<Members> for SocketState {
            fn from(members: Members) -> SocketState {
                let mut state = SocketState::default();
                if members.probed {
                    state.known = PROBED;
                }
                $(
                    if members.$field.is_some() {
                        state.set(SocketField::$field, |of| &mut of.$field, members.$field);
                    }
                )*
                state
            }
        }
    };
}

socket_fields! {
    /// Connection state (`include/net/tcp_states.h`): 1 established, 10 listening.
    state: u8, "", [Probe TcpInfo];
    /// Congestion state: 0 open, 1 disorder, 2 window reduced (CWR), 3 recovery, 4 loss.
    ca_state: u8, "", [Probe TcpInfo];
    /// The application was inside a call on this socket.
    owned: bool, "", [Probe];
    /// Timestamps option in use (RFC 7323).
    timestamps: bool, "", [TcpInfo];
    /// Selective acknowledgement in use (RFC 2018).
    sack: bool, "", [TcpInfo];
    /// ECN negotiated (RFC 3168).
    ecn: bool, "", [TcpInfo];
    /// ECN: at least one segment arrived with ECT.
    ecn_seen: bool, "", [TcpInfo];

    /// Oldest sequence number not acknowledged.
    snd_una: u32, "", [Probe Packets];
    /// Next sequence number to send.
    snd_nxt: u32, "", [Probe Packets];
    /// Sequence number behind the last byte written by the application.
    write_seq: u32, "", [Probe];
    /// End of the last segment sent that was smaller than the MSS (Minshall's rule for Nagle).
    snd_sml: u32, "", [Probe];
    /// Next sequence number expected.
    rcv_nxt: u32, "", [Probe Packets];
    /// `rcv_nxt` when the last acknowledgement left.
    rcv_wup: u32, "", [Probe Packets];
    /// Next byte that the application will read.
    copied_seq: u32, "", [Probe];

    /// The peer's receive window, from `snd_una`, scale applied.
    snd_wnd: Bytes, "bytes", [Probe TcpInfo Packets];
    /// The window that this host last advertised, from `rcv_wup`, scale applied.
    rcv_wnd: Bytes, "bytes", [Probe TcpInfo Packets];
    /// Scale of the peer's window (RFC 7323); zero or unknown if none was agreed.
    snd_wscale: u8, "bits", [Probe TcpInfo];
    /// Scale of this host's window; zero or unknown if none was agreed.
    rcv_wscale: u8, "bits", [Probe TcpInfo];
    /// Largest window that this host would advertise now.
    rcv_ssthresh: Bytes, "bytes", [Probe TcpInfo];
    /// Space that autotuning of the receive buffer aims at (`rcvq_space.space`).
    rcv_space: Bytes, "bytes", [Probe TcpInfo];

    /// Congestion window (`snd_cwnd`).
    cwnd: u32, "segments", [Probe TcpInfo];
    /// Slow-start threshold (`snd_ssthresh`); 2^31 - 1 means not set yet.
    ssthresh: u32, "segments", [Probe TcpInfo];
    /// The last flight was as large as the congestion window allowed.
    is_cwnd_limited: bool, "", [Probe];
    /// Smoothed round-trip time (`srtt_us`, `tcpi_rtt`); zero before the first measurement.
    srtt as "srtt_ns": Nanos, "ns", [Probe TcpInfo];
    /// Mean deviation of the round-trip time (`mdev_us`, `tcpi_rttvar`).
    rttvar as "rttvar_ns": Nanos, "ns", [Probe TcpInfo];
    /// Smallest round-trip time of the last minutes (`net.ipv4.tcp_min_rtt_wlen`); unknown before the first.
    min_rtt as "min_rtt_ns": Nanos, "ns", [Probe TcpInfo];
    /// Round-trip time as the receiver estimates it; zero if it never could.
    rcv_rtt as "rcv_rtt_ns": Nanos, "ns", [Probe TcpInfo];
    /// Retransmission timeout (RFC 6298).
    rto as "rto_ns": Nanos, "ns", [Probe TcpInfo];
    /// Largest segment to send, in bytes of payload (`mss_cache`, `tcpi_snd_mss`).
    mss: u32, "bytes", [Probe TcpInfo];
    /// Largest segment received lately, in bytes of payload.
    rcv_mss: u32, "bytes", [Probe TcpInfo];
    /// MSS announced to the peer.
    advmss: u32, "bytes", [Probe TcpInfo];
    /// Path MTU as this socket believes it.
    pmtu: u32, "bytes", [TcpInfo];

    /// Segments sent and not acknowledged (`tcpi_unacked`).
    packets_out: u32, "segments", [Probe TcpInfo];
    /// Of them, selectively acknowledged (`tcpi_sacked`).
    sacked_out: u32, "segments", [Probe TcpInfo];
    /// Of them, believed lost (`tcpi_lost`).
    lost_out: u32, "segments", [Probe TcpInfo];
    /// Of them, retransmitted and still out (`tcpi_retrans`).
    retrans_out: u32, "segments", [Probe TcpInfo];
    /// Retransmission timeouts in a row without progress.
    retransmits: u8, "", [Probe TcpInfo];
    /// Doublings of the timeout.
    backoff: u8, "", [Probe TcpInfo];
    /// Zero-window probes without answer (`tcpi_probes`).
    probes_out: u8, "", [Probe TcpInfo];
    /// Pending timer of the sender: 1 retransmission, 3 zero-window probe, 5 tail-loss probe, 6 reordering.
    timer: u8, "", [Probe];
    /// Reordering distance that the sender tolerates.
    reordering: u32, "segments", [Probe TcpInfo];

    /// Segments sent since the connection began, pure acknowledgements included, and in a trace this one.
    segs_out: u32, "segments", [Probe TcpInfo];
    /// Segments received before this one, pure acknowledgements included.
    segs_in: u32, "segments", [Probe TcpInfo];
    /// Segments sent that carried data.
    data_segs_out: u32, "segments", [TcpInfo];
    /// Segments received that carried data.
    data_segs_in: u32, "segments", [TcpInfo];
    /// Segments retransmitted since the connection began.
    total_retrans: u32, "segments", [Probe TcpInfo];
    /// Retransmission timeouts since the connection began.
    total_rto: u16, "", [TcpInfo];
    /// Segments delivered, those with a retransmission included.
    delivered: u32, "segments", [Probe TcpInfo];
    /// Segments delivered with an ECN mark.
    delivered_ce: u32, "segments", [Probe TcpInfo];
    /// Times that reordering was seen.
    reord_seen: u32, "", [Probe TcpInfo];
    /// Duplicate SACKs received (RFC 2883): retransmissions that were not needed.
    dsack_dups: u32, "", [Probe TcpInfo];
    /// Segments received out of order.
    rcv_ooopack: u32, "segments", [TcpInfo];
    /// Bytes acknowledged; the SYN counts as one at the end that connected.
    bytes_acked: Bytes, "bytes", [Probe TcpInfo];
    /// Bytes received in order.
    bytes_received: Bytes, "bytes", [Probe TcpInfo];
    /// Bytes sent, retransmissions and in a trace this segment included.
    bytes_sent: Bytes, "bytes", [Probe TcpInfo];
    /// Bytes retransmitted.
    bytes_retrans: Bytes, "bytes", [Probe TcpInfo];
    /// Bytes written by the application and not yet sent; a probe reads `write_seq` and `snd_nxt` instead.
    notsent_bytes: Bytes, "bytes", [TcpInfo];

    /// Bytes received and not yet read by the application; a probe reads `copied_seq` and `rcv_nxt` instead.
    rqueue: Bytes, "bytes", [SockDiag];

    /// Send buffer (`SO_SNDBUF`).
    sndbuf: Bytes, "bytes", [Probe SockDiag];
    /// Its use, the kernel's overhead included (`sk_wmem_queued`).
    sndbuf_used: Bytes, "bytes", [Probe SockDiag];
    /// Receive buffer (`SO_RCVBUF`).
    rcvbuf: Bytes, "bytes", [Probe SockDiag];
    /// Its use, the kernel's overhead included (`sk_rmem_alloc`).
    rcvbuf_used: Bytes, "bytes", [Probe SockDiag];
    /// Bytes handed to the device and not yet sent by it, the kernel's overhead included (`sk_wmem_alloc`).
    wmem_alloc: Bytes, "bytes", [Probe SockDiag];
    /// The application waits for room in the send buffer (`SOCK_NOSPACE`).
    no_space: bool, "", [Probe];

    /// What the chronograph runs on: 1 busy, 2 limited by the peer's window, 3 by the send buffer.
    chrono: u8, "", [Probe];
    /// Time with data outstanding; the two below are parts of it.
    busy as "busy_ns": Nanos, "ns", [Probe TcpInfo];
    /// Time limited by the peer's window.
    rwnd_limited as "rwnd_limited_ns": Nanos, "ns", [Probe TcpInfo];
    /// Time limited by the send buffer.
    sndbuf_limited as "sndbuf_limited_ns": Nanos, "ns", [Probe TcpInfo];
    /// Delivered count up to which the rate is limited by the application; zero if it is not.
    app_limited: u32, "segments", [Probe];
    /// Latest sample of the delivery rate; unknown before the first.
    delivery_rate as "delivery_rate_bit_s": BitRate, "bit/s", [TcpInfo];
    /// That sample was limited by the application, not by the network.
    delivery_rate_app_limited: bool, "", [TcpInfo];
    /// Pacing rate; unknown if not limited.
    pacing_rate as "pacing_rate_bit_s": BitRate, "bit/s", [Probe TcpInfo];
    /// Highest pacing rate that somebody set (`SO_MAX_PACING_RATE`); unknown where nobody did.
    max_pacing_rate as "max_pacing_rate_bit_s": BitRate, "bit/s", [TcpInfo];
    /// Pacing by: 0 none, 1 TCP itself, 2 the fq queue.
    pacing_status: u8, "", [Probe];

    /// Delayed-acknowledgement timeout.
    ato as "ato_ns": Nanos, "ns", [Probe TcpInfo];
    /// Interactive exchanges seen: acknowledgements are delayed from 1 on (3 on older kernels).
    pingpong: u8, "", [Probe];
    /// Immediate acknowledgements still to come.
    quick: u8, "", [Probe];
    /// 0: Nagle's rule holds; 1: `TCP_NODELAY`; 2: `TCP_CORK`; 4: pushed.
    nonagle: u8, "", [Probe];
}

/// What one source knew of a socket at one moment: by TCP_INFO, a probe, sock_diag or packets.
///
/// Each field is a method of its name; what the source could not know is `None`. Counters count from the start
/// of the connection. The layout is compact, since a trace has one of these a segment: a bit a field, and the values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Members", into = "Members")]
pub struct SocketState {
    known: u128,
    values: SocketValues,
}

const _: () = assert!(FIELDS.len() <= 128, "there is a bit for each");

const fn bit(field: SocketField) -> u128 {
    1 << field as u32
}

/// A [`SocketState`] of some fields, each an `Option`; `from` a state, that one with some fields changed.
///
/// ```
/// use linerate_model::{Nanos, socket_state};
/// let state = socket_state! { cwnd: Some(10), srtt: Some(Nanos::from_millis(20)) };
/// let later = socket_state! { from state.clone(); cwnd: Some(20) };
/// assert_eq!((later.cwnd(), later.srtt(), later.mss()), (Some(20), state.srtt(), None));
/// ```
#[macro_export]
macro_rules! socket_state {
    (from $state:expr; $($field:ident: $value:expr),* $(,)?) => {{
        let mut state: $crate::SocketState = $state;
        $(state.set($crate::SocketField::$field, |values| &mut values.$field, $value);)*
        state
    }};
    ($($field:ident: $value:expr),* $(,)?) => {
        $crate::socket_state!(from $crate::SocketState::default(); $($field: $value),*)
    };
}

impl SocketState {
    /// As a probe read it: a round-trip time or a pacing rate of zero is not known yet, all else that probes read is.
    #[inline]
    pub fn from_probe(values: SocketValues) -> SocketState {
        let mut known = PROBED;
        if values.min_rtt.0 > 0 {
            known |= bit(SocketField::min_rtt);
        }
        if values.pacing_rate.0 > 0 {
            known |= bit(SocketField::pacing_rate);
        }
        SocketState { known, values }
    }

    /// The values, where all is known that a probe reads: the socket itself was read at this moment. Of the
    /// others, the smallest round-trip time and the pacing rate are zero where they are not known.
    #[inline]
    pub fn probed(&self) -> Option<&SocketValues> {
        (self.known & PROBED == PROBED).then_some(&self.values)
    }

    /// Sets a field, which `of` returns; see [`socket_state!`](crate::socket_state).
    #[inline]
    pub fn set<T: Default>(
        &mut self,
        field: SocketField,
        of: impl FnOnce(&mut SocketValues) -> &mut T,
        value: Option<T>,
    ) {
        match &value {
            Some(_) => self.known |= bit(field),
            None => self.known &= !bit(field),
        }
        *of(&mut self.values) = value.unwrap_or_default();
    }

    /// Bytes sent and not acknowledged (RFC 9293: SND.NXT - SND.UNA).
    pub fn unacked_sent(&self) -> Option<Bytes> {
        Some(distance(self.snd_una()?, self.snd_nxt()?))
    }

    /// Bytes received and not yet acknowledged.
    pub fn unacked_received(&self) -> Option<Bytes> {
        Some(distance(self.rcv_wup()?, self.rcv_nxt()?))
    }

    /// Bytes written by the application and not yet sent.
    pub fn unsent(&self) -> Option<Bytes> {
        let between = || Some(distance(self.snd_nxt()?, self.write_seq()?));
        self.notsent_bytes().or_else(between)
    }

    /// Bytes received and not yet read by the application.
    pub fn unread(&self) -> Option<Bytes> {
        let between = || Some(distance(self.copied_seq()?, self.rcv_nxt()?));
        self.rqueue().or_else(between)
    }

    /// The congestion window in bytes: segments times the sending MSS.
    pub fn cwnd_bytes(&self) -> Option<Bytes> {
        Some(Bytes(u64::from(self.cwnd()?) * u64::from(self.mss()?)))
    }

    /// Segments in flight: `packets_out - sacked_out - lost_out + retrans_out` (RFC 6675's pipe).
    pub fn in_flight(&self) -> Option<u32> {
        let sent = self.packets_out()?.saturating_add(self.retrans_out()?);
        Some(sent.saturating_sub(self.sacked_out()?.saturating_add(self.lost_out()?)))
    }
}

impl SocketValues {
    /// As [`SocketState::unacked_sent`].
    pub fn unacked_sent(&self) -> Bytes {
        distance(self.snd_una, self.snd_nxt)
    }

    /// As [`SocketState::unacked_received`].
    pub fn unacked_received(&self) -> Bytes {
        distance(self.rcv_wup, self.rcv_nxt)
    }

    /// As [`SocketState::unsent`].
    pub fn unsent(&self) -> Bytes {
        distance(self.snd_nxt, self.write_seq)
    }

    /// As [`SocketState::unread`].
    pub fn unread(&self) -> Bytes {
        distance(self.copied_seq, self.rcv_nxt)
    }

    /// As [`SocketState::in_flight`].
    pub fn in_flight(&self) -> u32 {
        let sent = self.packets_out.saturating_add(self.retrans_out);
        sent.saturating_sub(self.sacked_out.saturating_add(self.lost_out))
    }

    /// Bytes that the peer's window still allows.
    pub fn send_window_left(&self) -> Bytes {
        self.snd_wnd.since(self.unacked_sent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::tcp_state;

    #[test]
    fn what_is_not_known_is_none_and_left_out() {
        let state = socket_state! { cwnd: Some(0), min_rtt: Some(Nanos(5)), sack: Some(false) };
        assert_eq!(
            (state.cwnd(), state.mss(), state.sack()),
            (Some(0), None, Some(false))
        );
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(text, r#"{"sack":false,"cwnd":0,"min_rtt_ns":5}"#);
        assert_eq!(serde_json::from_str::<SocketState>(&text).unwrap(), state);
        let less = socket_state! { from state; cwnd: None };
        assert_eq!(less.cwnd(), None);
        let newer = r#"{"cwnd":0,"sack":null,"not_yet_invented":[1]}"#;
        assert_eq!(
            serde_json::from_str::<SocketState>(newer).unwrap(),
            socket_state! { cwnd: Some(0) }
        );
    }

    #[test]
    fn every_field_can_be_set_to_what_it_holds() {
        let mut state = SocketState::default();
        for field in FIELDS {
            state.set_number(field.field, 1).unwrap();
            assert_eq!((field.get)(&state).map(FieldValue::number), Some(1));
        }
        assert_eq!(state.set_number(SocketField::sack, 2), None);
        assert_eq!(state.set_number(SocketField::total_rto, 1 << 16), None);
    }

    #[test]
    fn a_probe_knows_its_fields_and_saves_no_zeros() {
        let state = SocketState::from_probe(SocketValues {
            state: tcp_state::ESTABLISHED,
            pacing_rate: BitRate(8),
            ..SocketValues::default()
        });
        assert_eq!(
            (state.cwnd(), state.min_rtt(), state.pmtu()),
            (Some(0), None, None)
        );
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(text, r#"{"probed":true,"state":1,"pacing_rate_bit_s":8}"#);
        assert_eq!(serde_json::from_str::<SocketState>(&text).unwrap(), state);
    }

    #[test]
    fn distances_survive_the_wrap_and_a_state_read_halfway() {
        let values = SocketValues {
            snd_una: u32::MAX - 99,
            snd_nxt: 100,
            write_seq: 99,
            snd_wnd: Bytes(150),
            ..SocketValues::default()
        };
        assert_eq!(values.unacked_sent(), Bytes(200));
        assert_eq!(values.unsent(), Bytes(0));
        assert_eq!(values.send_window_left(), Bytes(0));
    }

    #[test]
    fn names_carry_their_unit() {
        for info in FIELDS {
            let suffix = match info.unit {
                "ns" => "_ns",
                "bit/s" => "_bit_s",
                _ => "",
            };
            assert!(info.name.ends_with(suffix), "{}", info.name);
            assert_eq!((info.get)(&SocketState::default()), None);
        }
    }
}
