//! One event as the probes write it (bpf/record.h), and as the model has it.

use model::segment::{tcp_flag, tcp_state};
use model::{
    BitRate, Bytes, Comm, Connection, Dropped, EventTally, Nanos, Segment, SocketState,
    SocketValues, TraceRecord, What,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use tcp::seq::before;

/// Bytes of an event; headers of a segment, or the device of a drop, follow where there are any.
pub(super) const RECORD: usize = size_of::<Raw>();

/// Words of eight bytes of an event.
pub(super) const WORD: usize = 8;
pub(super) const WORDS: usize = RECORD / WORD;

/// Words of `struct place`: a number, the event, the device of a drop.
pub(super) const PLACE: usize = 1 + WORDS + DEVICE / WORD;

/// Room for the headers of a segment.
pub(super) const HEADERS: usize = 128;

/// Name of the device behind a drop.
pub(super) const DEVICE: usize = 16;

/// The place of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordPlace {
    pub id: u32,
    /// To be reported first: a new connection, or one whose socket is known only now.
    pub new: Option<Box<Connection>>,
    /// Of the first byte in its stream.
    pub offset: Option<u64>,
}

impl RecordPlace {
    pub(super) fn new(id: u32, new: Option<Box<Connection>>) -> RecordPlace {
        RecordPlace {
            id,
            new,
            offset: None,
        }
    }
}

/// A type of `struct record`.
trait Field: Sized {
    fn read(bytes: &[u8; RECORD], at: usize) -> Self;
    #[cfg(test)]
    fn write(&self, to: &mut Vec<u8>);
    #[cfg(test)]
    const C: &str;
}

macro_rules! numbers {
    ($($kind:ident $c:literal),*) => {$(
        impl Field for $kind {
            #[inline(always)]
            fn read(bytes: &[u8; RECORD], at: usize) -> $kind {
                let field = bytes[at..].first_chunk().expect("fields lie within the record");
                $kind::from_ne_bytes(*field)
            }
            #[cfg(test)]
            fn write(&self, to: &mut Vec<u8>) {
                to.resize(to.len().next_multiple_of(size_of::<$kind>()), 0);
                to.extend(self.to_ne_bytes());
            }
            #[cfg(test)]
            const C: &str = $c;
        }
    )*};
}
numbers!(u8 "__u8", u16 "__u16", u32 "__u32", u64 "__u64");

impl Field for [u8; 16] {
    #[inline(always)]
    fn read(bytes: &[u8; RECORD], at: usize) -> [u8; 16] {
        *bytes[at..]
            .first_chunk()
            .expect("fields lie within the record")
    }
    #[cfg(test)]
    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self);
    }
    #[cfg(test)]
    const C: &str = "__u8[16]";
}

macro_rules! layout {
    ($($name:ident: $kind:ty $(=> $field:ident $(($unit:ident))?)?,)*) => {
        /// `struct record`, field by field in its order: for where each lies.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub(super) struct Raw {
            $(pub(super) $name: $kind,)*
        }

        #[cfg(test)]
        impl Raw {
            pub(super) fn encode(&self) -> Vec<u8> {
                let mut bytes = Vec::new();
                $(self.$name.write(&mut bytes);)*
                bytes.resize(RECORD, 0);
                bytes
            }

            const TABLE: &[(&str, &str)] = &[$((stringify!($name), <$kind as Field>::C),)*];
        }

        /// An event in its buffer; fields that nobody reads are not decoded.
        impl EncodedRecord<'_> {
            $(#[inline(always)]
            pub(super) fn $name(self) -> $kind {
                Field::read(self.0, std::mem::offset_of!(Raw, $name))
            })*

            /// The socket, where `tick` is the length of a jiffy.
            fn socket(self, tick: Nanos) -> SocketValues {
                SocketValues {
                    owned: self.bits() & BIT_OWNED != 0,
                    is_cwnd_limited: self.bits() & BIT_CWND_LIMITED != 0,
                    no_space: self.bits() & BIT_NO_SPACE != 0,
                    $($($field: layout!(self.$name(), tick $(, $unit)?),)?)*
                    ..SocketValues::default()
                }
            }
        }
    };
    ($value:expr, $tick:ident) => { $value.into() };
    ($value:expr, $tick:ident, $unit:ident) => { $unit($value, $tick) };
}

/// Units of the kernel to those of the model.
fn bytes(n: u32, _: Nanos) -> Bytes {
    Bytes(n.into())
}

/// The socket itself counts as one (sk_wmem_alloc_get()).
fn sk_wmem(n: u32, _: Nanos) -> Bytes {
    Bytes(n.saturating_sub(1).into())
}

fn bytes64(n: u64, _: Nanos) -> Bytes {
    Bytes(n)
}

fn ticks(n: u32, tick: Nanos) -> Nanos {
    Nanos(u64::from(n).saturating_mul(tick.0))
}

fn us8(n: u32, _: Nanos) -> Nanos {
    Nanos(u64::from(n) * 1_000 / 8)
}

fn us4(n: u32, _: Nanos) -> Nanos {
    Nanos(u64::from(n) * 1_000 / 4)
}

/// All ones before the first.
fn us_or_none(n: u32, _: Nanos) -> Nanos {
    Nanos(if n == u32::MAX {
        0
    } else {
        u64::from(n) * 1_000
    })
}

/// All ones where it is not limited.
fn rate(n: u64, _: Nanos) -> BitRate {
    BitRate(if n == u64::MAX {
        0
    } else {
        n.saturating_mul(8)
    })
}

layout! {
    ts: u64,
    cookie: u64,
    cpu: u32,
    netns: u32,
    pid: u32,
    current_pid: u32,
    comm: [u8; 16],
    current_comm: [u8; 16],
    local: [u8; 16],
    remote: [u8; 16],
    local_port: u16,
    remote_port: u16,
    what: u8,
    flags: u8,
    tos: u8,
    ttl: u8,
    seq: u32,
    ack: u32,
    payload: u32,
    length: u32,
    ts_value: u32,
    ts_echo: u32,
    window: u16,
    segments: u16,
    segment_size: u16,
    state: u8 => state,
    ca_state: u8 => ca_state,
    drop_reason: u32,
    bits: u8,
    nonagle: u8 => nonagle,
    snd_wscale: u8 => snd_wscale,
    rcv_wscale: u8 => rcv_wscale,
    timer: u8 => timer,
    retransmits: u8 => retransmits,
    backoff: u8 => backoff,
    probes_out: u8 => probes_out,
    chrono: u8 => chrono,
    pacing_status: u8 => pacing_status,
    pingpong: u8 => pingpong,
    quick: u8 => quick,
    advmss: u16 => advmss,
    rcv_mss: u16 => rcv_mss,
    mss: u32 => mss,
    snd_una: u32 => snd_una,
    snd_nxt: u32 => snd_nxt,
    write_seq: u32 => write_seq,
    snd_wnd: u32 => snd_wnd(bytes),
    rcv_nxt: u32 => rcv_nxt,
    rcv_wup: u32 => rcv_wup,
    copied_seq: u32 => copied_seq,
    rcv_wnd: u32 => rcv_wnd(bytes),
    packets_out: u32 => packets_out,
    cwnd: u32 => cwnd,
    srtt_us8: u32 => srtt(us8),
    rttvar_us4: u32 => rttvar(us4),
    segs_out: u32 => segs_out,
    segs_in: u32 => segs_in,
    delivered: u32 => delivered,
    app_limited: u32 => app_limited,
    sndbuf_used: u32 => sndbuf_used(bytes),
    wmem_alloc: u32 => wmem_alloc(sk_wmem),
    rcvbuf_used: u32 => rcvbuf_used(bytes),
    busy_ticks: u32 => busy(ticks),
    sacked_out: u32 => sacked_out,
    lost_out: u32 => lost_out,
    retrans_out: u32 => retrans_out,
    total_retrans: u32 => total_retrans,
    rwnd_limited_ticks: u32 => rwnd_limited(ticks),
    sndbuf_limited_ticks: u32 => sndbuf_limited(ticks),
    snd_sml: u32 => snd_sml,
    rcv_ssthresh: u32 => rcv_ssthresh(bytes),
    rcv_space: u32 => rcv_space(bytes),
    ssthresh: u32 => ssthresh,
    min_rtt_us: u32 => min_rtt(us_or_none),
    rcv_rtt_us8: u32 => rcv_rtt(us8),
    rto_ticks: u32 => rto(ticks),
    ato_ticks: u32 => ato(ticks),
    reordering: u32 => reordering,
    delivered_ce: u32 => delivered_ce,
    reord_seen: u32 => reord_seen,
    dsack_dups: u32 => dsack_dups,
    sndbuf: u32 => sndbuf(bytes),
    rcvbuf: u32 => rcvbuf(bytes),
    bytes_acked: u64 => bytes_acked(bytes64),
    bytes_received: u64 => bytes_received(bytes64),
    bytes_sent: u64 => bytes_sent(bytes64),
    bytes_retrans: u64 => bytes_retrans(bytes64),
    pacing_rate: u64 => pacing_rate(rate),
}

const BIT_OWNED: u8 = 1;
const BIT_NO_SPACE: u8 = 2;
const BIT_CWND_LIMITED: u8 = 4;
const BIT_ARRIVED: u8 = 8;

/// An event as the probes wrote it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodedRecord<'a>(&'a [u8; RECORD], &'a [u8]);

/// What turns the kernel's times into the trace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    /// Time 0 of the trace, by the monotonic clock.
    #[serde(rename = "clock_at_start_ns")]
    pub start: Nanos,
    /// Length of a jiffy.
    #[serde(rename = "tick_ns")]
    pub tick: Nanos,
}

/// What turns the kernel's numbers into the trace's.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub clock: Clock,
    /// Its names of reasons to drop.
    pub drop_reasons: BTreeMap<u32, String>,
}

impl<'a> EncodedRecord<'a> {
    /// An event with what follows it.
    #[inline(always)]
    pub(super) fn new(record: &'a [u8; RECORD], rest: &'a [u8]) -> EncodedRecord<'a> {
        EncodedRecord(record, rest)
    }

    /// The event that `bytes` begin with; `None` if they are too few.
    #[inline(always)]
    pub(super) fn of(bytes: &'a [u8]) -> Option<EncodedRecord<'a>> {
        let (record, rest) = bytes.split_first_chunk()?;
        Some(EncodedRecord(record, rest))
    }

    /// Its connection, if that is new, and its segment.
    pub(super) fn records(
        self,
        place: RecordPlace,
        terms: &Terms,
        each: &mut dyn FnMut(TraceRecord),
    ) {
        let segment = self.segment(&place, terms);
        if let Some(new) = place.new {
            each(TraceRecord::Connection(*new));
        }
        each(TraceRecord::Segment(segment));
    }

    pub(super) fn record(self) -> &'a [u8; RECORD] {
        self.0
    }

    /// What follows it.
    #[cfg(test)]
    pub(super) fn rest(self) -> &'a [u8] {
        self.1
    }

    /// What follows and belongs to it, headers aside: the device of a drop.
    pub(super) fn tail(self) -> &'a [u8] {
        match self.kind() {
            What::Dropped => &self.1[..self.1.len().min(DEVICE)],
            _ => &[],
        }
    }

    pub(super) fn kind(self) -> What {
        kind(self.what())
    }

    pub(super) fn here(self) -> SocketAddr {
        address(self.local(), self.local_port())
    }

    pub(super) fn there(self) -> SocketAddr {
        address(self.remote(), self.remote_port())
    }

    pub(super) fn at(self, clock: Clock) -> Nanos {
        Nanos(self.ts()).since(clock.start)
    }

    /// What the completeness of its connection takes of it; `None` where there is no socket.
    pub(super) fn tally(self, clock: Clock) -> Option<EventTally> {
        if self.cookie() == 0 {
            return None;
        }
        let ends = u32::from(self.flags() & tcp_flag::SYN != 0)
            + u32::from(self.flags() & tcp_flag::FIN != 0);
        Some(EventTally {
            at: self.at(clock),
            what: self.kind(),
            segments: self.segments().into(),
            // As Segment::is_retransmission().
            retransmission: self.kind() == What::Sent
                && self.flags() & tcp_flag::RST == 0
                && self.payload() + ends > 0
                && self.state() != tcp_state::LISTEN
                && before(self.seq(), self.snd_nxt()),
            state: self.state(),
            segs_out: self.segs_out(),
            segs_in: self.segs_in(),
            total_retrans: self.total_retrans(),
        })
    }

    /// As the model has it, at its place.
    pub(super) fn segment(self, place: &RecordPlace, terms: &Terms) -> Segment {
        let dropped = || Dropped {
            reason: match terms.drop_reasons.get(&self.drop_reason()) {
                Some(name) => name.clone(),
                None => self.drop_reason().to_string(),
            },
            device: Comm::new(self.tail()).to_string(),
            arrived: self.bits() & BIT_ARRIVED != 0,
        };
        Segment {
            at: self.at(terms.clock),
            connection: place.id,
            what: self.kind(),
            cpu: self.cpu(),
            pid: self.pid(),
            comm: Comm::new(&self.comm()),
            current_pid: self.current_pid(),
            current_comm: Comm::new(&self.current_comm()),
            seq: self.seq(),
            ack: self.ack(),
            flags: self.flags(),
            window: self.window().into(),
            stamps: (self.ts_value() != 0).then(|| (self.ts_value(), self.ts_echo())),
            payload: Bytes(self.payload().into()),
            segments: self.segments().into(),
            segment_size: self.segment_size().into(),
            offset: place.offset,
            tos: self.tos(),
            ttl: self.ttl(),
            length: self.length(),
            dropped: (self.kind() == What::Dropped).then(|| Box::new(dropped())),
            socket: (self.cookie() != 0)
                .then(|| SocketState::from_probe(self.socket(terms.clock.tick))),
        }
    }
}

/// By the number of `enum what`.
#[inline]
pub(super) fn kind(what: u8) -> What {
    use What::{Congestion, Dropped, Read, Received, Retransmitted, Sent, State, Wrote};
    const KINDS: [What; 8] = [
        Sent,
        Received,
        Wrote,
        Read,
        State,
        Congestion,
        Dropped,
        Retransmitted,
    ];
    KINDS[usize::from(what) % KINDS.len()]
}

fn address(ip: [u8; 16], port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)).to_canonical(), port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The fields of `struct record` as its header file declares them.
    fn declared() -> Vec<(String, String)> {
        let text = include_str!("../../../../bpf/record.h");
        let body = text.split("struct record {").nth(1).unwrap();
        let body = body.split("};").next().unwrap();
        let field = |line: &str| {
            let line = line.trim().split("/*").next()?.trim();
            let (kind, name) = line.strip_suffix(';')?.split_once(' ')?;
            Some(match name.strip_suffix("[16]") {
                Some(name) => (name.to_owned(), format!("{kind}[16]")),
                None => (name.to_owned(), kind.to_owned()),
            })
        };
        body.lines().filter_map(field).collect()
    }

    #[test]
    fn both_tables_are_the_same() {
        let ours: Vec<_> = Raw::TABLE
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()))
            .collect();
        assert_eq!(ours, declared());
        let fields: usize = Raw::TABLE
            .iter()
            .map(|(_, kind)| match *kind {
                "__u8" => 1,
                "__u16" => 2,
                "__u32" => 4,
                "__u64" => 8,
                _ => 16,
            })
            .sum();
        assert_eq!(fields, RECORD, "no gaps");
        assert_eq!(RECORD % 8, 0, "whole words");
    }

    #[test]
    fn units_are_turned_into_the_models() {
        let raw = Raw {
            ts: 5_000,
            local: "::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets(),
            remote: "fd00::2".parse::<Ipv6Addr>().unwrap().octets(),
            remote_port: 2049,
            what: 1,
            ts_value: 11,
            ts_echo: 12,
            srtt_us8: 8,
            min_rtt_us: u32::MAX,
            rto_ticks: 51,
            wmem_alloc: 1,
            pacing_rate: u64::MAX,
            cookie: 5,
            ..Raw::default()
        };
        let bytes = raw.encode();
        let event = EncodedRecord::of(&bytes).unwrap();
        let segment = event.segment(&place(), &terms());
        assert_eq!((segment.at, segment.what), (Nanos(3_000), What::Received));
        assert_eq!(segment.stamps, Some((11, 12)));
        let socket = segment.socket.unwrap();
        assert_eq!(socket.srtt(), Some(Nanos(1_000)));
        assert_eq!(socket.min_rtt(), None);
        assert_eq!(socket.rto(), Some(Nanos::from_millis(204)));
        assert_eq!(
            (socket.wmem_alloc(), socket.pacing_rate()),
            (Some(Bytes(0)), None)
        );
        assert_eq!(event.here(), "10.0.0.1:0".parse().unwrap());
        assert_eq!(event.there(), "[fd00::2]:2049".parse().unwrap());
    }

    fn place() -> RecordPlace {
        RecordPlace {
            id: 3,
            new: None,
            offset: Some(7),
        }
    }

    fn terms() -> Terms {
        Terms {
            clock: Clock {
                start: Nanos(2_000),
                tick: Nanos::from_millis(4),
            },
            drop_reasons: BTreeMap::from([(65, "QDISC_OVERLIMIT".to_owned())]),
        }
    }

    #[test]
    fn a_drop_has_its_reason_by_name_and_its_device() {
        let drop = |drop_reason, cookie, bits| {
            let raw = Raw {
                what: 6,
                drop_reason,
                cookie,
                bits,
                ..Raw::default()
            };
            let mut bytes = raw.encode();
            bytes.extend(b"eth0\0rubbish....");
            EncodedRecord::of(&bytes)
                .unwrap()
                .segment(&place(), &terms())
        };
        let segment = drop(65, 1, 0);
        assert!(segment.socket.is_some());
        let dropped = *segment.dropped.unwrap();
        assert_eq!(
            (&dropped.reason[..], &dropped.device[..], dropped.arrived),
            ("QDISC_OVERLIMIT", "eth0", false)
        );
        let segment = drop(999, 0, BIT_ARRIVED);
        assert_eq!(segment.socket, None);
        let dropped = *segment.dropped.unwrap();
        assert_eq!((&dropped.reason[..], dropped.arrived), ("999", true));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_too_few(bytes in proptest::collection::vec(any::<u8>(), 0..2 * RECORD)) {
            let event = EncodedRecord::of(&bytes);
            prop_assert_eq!(event.is_some(), bytes.len() >= RECORD);
            if let Some(event) = event {
                let segment = event.segment(&place(), &terms());
                prop_assert_eq!(segment.at, event.at(terms().clock));
                prop_assert_eq!(event.tally(terms().clock), EventTally::of(&segment));
                let _ = (event.here(), event.there());
            }
        }
    }
}
