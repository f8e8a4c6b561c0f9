//! One event as the probes write it (bpf/record.h), and as the model has it.

use super::connections::Place;

use model::segment::{before, tcp_flag, tcp_state};
use model::{
    BitRate, Bytes, Comm, Dropped, Nanos, Segment, SocketState, SocketValues, Tally, What,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of an event; headers of a segment, or the device of a drop, follow where there are any.
pub(super) const RECORD: usize = size_of::<Raw>();

/// Words of eight bytes of an event.
pub(super) const WORD: usize = 8;
pub(super) const WORDS: usize = RECORD / WORD;

/// Words of `struct place`: a number, the event, the device of a drop, and one that is empty.
pub(super) const PLACE: usize = 1 + WORDS + DEVICE / WORD + 1;

/// Room for the headers of a segment.
pub(super) const HEADERS: usize = 128;

/// Name of the device behind a drop.
pub(super) const DEVICE: usize = 16;

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
    ($($name:ident: $kind:ty,)*) => {
        /// `struct record`, field by field in its order: tells where each lies.
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

        /// An event where it lies; what nobody asks for is not read.
        impl Event<'_> {
            $(#[inline(always)]
            pub(super) fn $name(self) -> $kind {
                Field::read(self.0, std::mem::offset_of!(Raw, $name))
            })*
        }
    };
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
    window: u16,
    segments: u16,
    segment_size: u16,
    state: u8,
    ca_state: u8,
    drop_reason: u32,
    bits: u8,
    nonagle: u8,
    snd_wscale: u8,
    rcv_wscale: u8,
    timer: u8,
    retransmits: u8,
    backoff: u8,
    probes_out: u8,
    chrono: u8,
    pacing_status: u8,
    pingpong: u8,
    quick: u8,
    advmss: u16,
    rcv_mss: u16,
    mss: u32,
    snd_una: u32,
    snd_nxt: u32,
    write_seq: u32,
    snd_wnd: u32,
    rcv_nxt: u32,
    rcv_wup: u32,
    copied_seq: u32,
    rcv_wnd: u32,
    packets_out: u32,
    cwnd: u32,
    srtt_us8: u32,
    rttvar_us4: u32,
    segs_out: u32,
    segs_in: u32,
    delivered: u32,
    app_limited: u32,
    sndbuf_used: u32,
    wmem_alloc: u32,
    rcvbuf_used: u32,
    busy_ticks: u32,
    sacked_out: u32,
    lost_out: u32,
    retrans_out: u32,
    total_retrans: u32,
    rwnd_limited_ticks: u32,
    sndbuf_limited_ticks: u32,
    snd_sml: u32,
    rcv_ssthresh: u32,
    rcv_space: u32,
    ssthresh: u32,
    min_rtt_us: u32,
    rcv_rtt_us8: u32,
    rto_ticks: u32,
    ato_ticks: u32,
    reordering: u32,
    delivered_ce: u32,
    reord_seen: u32,
    dsack_dups: u32,
    sndbuf: u32,
    rcvbuf: u32,
    bytes_acked: u64,
    bytes_received: u64,
    bytes_sent: u64,
    bytes_retrans: u64,
    pacing_rate: u64,
}

const BIT_OWNED: u8 = 1;
const BIT_NO_SPACE: u8 = 2;
const BIT_CWND_LIMITED: u8 = 4;
const BIT_ARRIVED: u8 = 8;

/// An event as the probes wrote it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a>(&'a [u8; RECORD], &'a [u8]);

/// What turns the kernel's times into the trace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Moment 0 of the trace, by the monotonic clock.
    pub start: Nanos,
    /// Length of a jiffy.
    pub tick: Nanos,
}

/// What turns the kernel's numbers into the trace's.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub clock: Clock,
    /// Its names of reasons to drop.
    pub drop_reasons: BTreeMap<u32, String>,
}

impl<'a> Event<'a> {
    /// An event with what follows it.
    #[inline(always)]
    pub(super) fn new(record: &'a [u8; RECORD], rest: &'a [u8]) -> Event<'a> {
        Event(record, rest)
    }

    /// The event that `bytes` begin with; `None` if they are too few.
    #[inline(always)]
    pub(super) fn of(bytes: &'a [u8]) -> Option<Event<'a>> {
        let (record, rest) = bytes.split_first_chunk()?;
        Some(Event(record, rest))
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
    pub(super) fn tally(self, clock: Clock) -> Option<Tally> {
        if self.cookie() == 0 {
            return None;
        }
        let ends = u32::from(self.flags() & tcp_flag::SYN != 0)
            + u32::from(self.flags() & tcp_flag::FIN != 0);
        Some(Tally {
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
    pub(super) fn segment(self, place: &Place, terms: &Terms) -> Segment {
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

    fn socket(self, tick: Nanos) -> SocketValues {
        let bytes = |n: u32| Bytes(n.into());
        let ticks = |n: u32| Nanos(u64::from(n).saturating_mul(tick.0));
        SocketValues {
            state: self.state(),
            ca_state: self.ca_state(),
            owned: self.bits() & BIT_OWNED != 0,
            snd_una: self.snd_una(),
            snd_nxt: self.snd_nxt(),
            write_seq: self.write_seq(),
            snd_sml: self.snd_sml(),
            rcv_nxt: self.rcv_nxt(),
            rcv_wup: self.rcv_wup(),
            copied_seq: self.copied_seq(),
            snd_wnd: bytes(self.snd_wnd()),
            rcv_wnd: bytes(self.rcv_wnd()),
            snd_wscale: self.snd_wscale(),
            rcv_wscale: self.rcv_wscale(),
            rcv_ssthresh: bytes(self.rcv_ssthresh()),
            rcv_space: bytes(self.rcv_space()),
            cwnd: self.cwnd(),
            ssthresh: self.ssthresh(),
            is_cwnd_limited: self.bits() & BIT_CWND_LIMITED != 0,
            srtt: Nanos(u64::from(self.srtt_us8()) * 1_000 / 8),
            rttvar: Nanos(u64::from(self.rttvar_us4()) * 1_000 / 4),
            // All ones before the first.
            min_rtt: Nanos(match self.min_rtt_us() {
                u32::MAX => 0,
                us => u64::from(us) * 1_000,
            }),
            rcv_rtt: Nanos(u64::from(self.rcv_rtt_us8()) * 1_000 / 8),
            rto: ticks(self.rto_ticks()),
            mss: self.mss(),
            rcv_mss: self.rcv_mss().into(),
            advmss: self.advmss().into(),
            packets_out: self.packets_out(),
            sacked_out: self.sacked_out(),
            lost_out: self.lost_out(),
            retrans_out: self.retrans_out(),
            retransmits: self.retransmits(),
            backoff: self.backoff(),
            probes_out: self.probes_out(),
            timer: self.timer(),
            reordering: self.reordering(),
            segs_out: self.segs_out(),
            segs_in: self.segs_in(),
            total_retrans: self.total_retrans(),
            delivered: self.delivered(),
            delivered_ce: self.delivered_ce(),
            reord_seen: self.reord_seen(),
            dsack_dups: self.dsack_dups(),
            bytes_acked: Bytes(self.bytes_acked()),
            bytes_received: Bytes(self.bytes_received()),
            bytes_sent: Bytes(self.bytes_sent()),
            bytes_retrans: Bytes(self.bytes_retrans()),
            sndbuf: bytes(self.sndbuf()),
            sndbuf_used: bytes(self.sndbuf_used()),
            rcvbuf: bytes(self.rcvbuf()),
            rcvbuf_used: bytes(self.rcvbuf_used()),
            // The socket itself counts as one (sk_wmem_alloc_get()).
            wmem_alloc: bytes(self.wmem_alloc().saturating_sub(1)),
            no_space: self.bits() & BIT_NO_SPACE != 0,
            chrono: self.chrono(),
            busy: ticks(self.busy_ticks()),
            rwnd_limited: ticks(self.rwnd_limited_ticks()),
            sndbuf_limited: ticks(self.sndbuf_limited_ticks()),
            app_limited: self.app_limited(),
            // All ones where it is not limited.
            pacing_rate: BitRate(match self.pacing_rate() {
                u64::MAX => 0,
                rate => rate.saturating_mul(8),
            }),
            pacing_status: self.pacing_status(),
            ato: ticks(self.ato_ticks()),
            pingpong: self.pingpong(),
            quick: self.quick(),
            nonagle: self.nonagle(),
            ..SocketValues::default()
        }
    }
}

/// By the number of `enum what`.
pub(super) fn kind(what: u8) -> What {
    match what {
        1 => What::Received,
        2 => What::Wrote,
        3 => What::Read,
        4 => What::State,
        5 => What::Congestion,
        6 => What::Dropped,
        7 => What::Retransmitted,
        _ => What::Sent,
    }
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
            srtt_us8: 8,
            min_rtt_us: u32::MAX,
            rto_ticks: 51,
            wmem_alloc: 1,
            pacing_rate: u64::MAX,
            cookie: 5,
            ..Raw::default()
        };
        let bytes = raw.encode();
        let event = Event::of(&bytes).unwrap();
        let segment = event.segment(&place(), &terms());
        assert_eq!((segment.at, segment.what), (Nanos(3_000), What::Received));
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

    fn place() -> Place {
        Place {
            id: 3,
            told: None,
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
            Event::of(&bytes).unwrap().segment(&place(), &terms())
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
            let event = Event::of(&bytes);
            prop_assert_eq!(event.is_some(), bytes.len() >= RECORD);
            if let Some(event) = event {
                let segment = event.segment(&place(), &terms());
                prop_assert_eq!(segment.at, event.at(terms().clock));
                prop_assert_eq!(event.tally(terms().clock), Tally::of(&segment));
                let _ = (event.here(), event.there());
            }
        }
    }
}
