//! `TCP_INFO` by the kernel's own layout.

use crate::Error;
use model::{BitRate, Bytes, Nanos, SocketState, socket_state};
use std::os::fd::BorrowedFd;
use sys::netlink::{u16_at, u32_at, u64_at};
use sys::socket::{read_option, tcp_option};

/// Room for `struct tcp_info` as any kernel may grow it in years to come: Linux 6.18 fills 280 bytes.
/// The kernel fills no more than it is given and says how much that was.
const ROOM: usize = 512;

/// Reads the kernel's account of a TCP socket.
///
/// A socket that was closed by the peer or reset can still be read while its descriptor is open: the
/// counters keep their last values (state `TCP_CLOSE` = 7).
///
/// # Errors
/// [`Error`] if the descriptor is not a TCP socket.
pub fn tcp_info(fd: BorrowedFd<'_>) -> Result<SocketState, Error> {
    let mut raw = [0; ROOM];
    let what = "TCP_INFO";
    let filled = read_option(fd, tcp_option(libc::TCP_INFO), &mut raw)
        .map_err(|source| Error { what, source })?;
    Ok(decode_tcp_info(&raw[..filled]))
}

/// Decodes `struct tcp_info` (`include/uapi/linux/tcp.h`, as of Linux 6.18) from as many bytes as the
/// kernel filled. The structure has only ever grown at its end, so an offset means the same on every
/// kernel. A field that does not lie wholly within `raw` is `None`.
///
/// The kernel's own conventions, and what becomes of them:
/// - `tcpi_rtt` and `tcpi_rcv_rtt` are 0 before their first sample: kept, as zero.
/// - `tcpi_min_rtt` is `~0` before its first sample: `None`.
/// - `tcpi_snd_ssthresh` is `0x7fffffff` until the first loss: kept, as the model says.
/// - `tcpi_pacing_rate` is `~0` for a socket that is not paced, `tcpi_max_pacing_rate` where nobody set one: `None`. Rates
///   are in bytes a second.
/// - `tcpi_delivery_rate` is 0 before its first sample, and never afterwards: `None`.
/// - The window scales mean something only when `TCPI_OPT_WSCALE` is set.
/// - For a listening socket `tcpi_unacked` and `tcpi_sacked` are the length and limit of its queue.
/// - `tcpi_rto` and all other times are in microseconds; busy, rwnd-limited and sndbuf-limited time move
///   by the kernel's tick, 1 to 10 ms (`CONFIG_HZ`), so short waits are not in them.
pub fn decode_tcp_info(raw: &[u8]) -> SocketState {
    let byte = |at: usize| raw.get(at).copied();
    let word = |at| u32_at(raw, at);
    let long = |at| u64_at(raw, at);
    let has = |bit: u8| byte(5).map(|options| options & bit != 0);
    // Bit-fields are laid out from the least significant bit on little-endian machines and from the
    // most significant on the others.
    let scales = byte(6)
        .filter(|_| has(TCPI_OPT_WSCALE) == Some(true))
        .map(nibbles);
    let app_limited = if cfg!(target_endian = "little") {
        0x01
    } else {
        0x80
    };
    socket_state! {
        state: byte(0),
        ca_state: byte(1),
        retransmits: byte(2),
        probes_out: byte(3),
        backoff: byte(4),
        timestamps: has(TCPI_OPT_TIMESTAMPS),
        sack: has(TCPI_OPT_SACK),
        ecn: has(TCPI_OPT_ECN),
        ecn_seen: has(TCPI_OPT_ECN_SEEN),
        snd_wscale: scales.map(|[low, _]| low),
        rcv_wscale: scales.map(|[_, high]| high),
        delivery_rate_app_limited: byte(7).map(|bits| bits & app_limited != 0),
        rto: word(8).map(micros),
        ato: word(12).map(micros),
        mss: word(16),
        rcv_mss: word(20),
        packets_out: word(24),
        sacked_out: word(28),
        lost_out: word(32),
        retrans_out: word(36),
        // 40: fackets, always 0 since Linux 4.15; 44 to 56: milliseconds since last data and ACK.
        pmtu: word(60),
        rcv_ssthresh: word(64).map(bytes),
        srtt: word(68).map(micros),
        rttvar: word(72).map(micros),
        ssthresh: word(76),
        cwnd: word(80),
        advmss: word(84),
        reordering: word(88),
        rcv_rtt: word(92).map(micros),
        rcv_space: word(96).map(bytes),
        total_retrans: word(100),
        pacing_rate: long(104).filter(|r| *r != u64::MAX).map(rate),
        max_pacing_rate: long(112).filter(|r| *r != u64::MAX).map(rate),
        bytes_acked: long(120).map(Bytes),
        bytes_received: long(128).map(Bytes),
        segs_out: word(136),
        segs_in: word(140),
        notsent_bytes: word(144).map(bytes),
        min_rtt: word(148).filter(|t| *t != u32::MAX).map(micros),
        data_segs_in: word(152),
        data_segs_out: word(156),
        delivery_rate: long(160).filter(|r| *r != 0).map(rate),
        busy: long(168).map(Nanos::from_micros),
        rwnd_limited: long(176).map(Nanos::from_micros),
        sndbuf_limited: long(184).map(Nanos::from_micros),
        delivered: word(192),
        delivered_ce: word(196),
        bytes_sent: long(200).map(Bytes),
        bytes_retrans: long(208).map(Bytes),
        dsack_dups: word(216),
        reord_seen: word(220),
        rcv_ooopack: word(224),
        snd_wnd: word(228).map(bytes),
        rcv_wnd: word(232).map(bytes),
        // 236: rehash.
        total_rto: u16_at(raw, 240),
        // 242 and 244: recoveries from and time in timeouts; 248 to 280: accurate ECN (6.18).
    }
}

const TCPI_OPT_TIMESTAMPS: u8 = 1;
const TCPI_OPT_SACK: u8 = 2;
const TCPI_OPT_WSCALE: u8 = 4;
const TCPI_OPT_ECN: u8 = 8;
const TCPI_OPT_ECN_SEEN: u8 = 16;

/// The two four-bit fields of a byte in the order of their declaration.
fn nibbles(byte: u8) -> [u8; 2] {
    if cfg!(target_endian = "little") {
        [byte & 0x0f, byte >> 4]
    } else {
        [byte >> 4, byte & 0x0f]
    }
}

fn micros(us: u32) -> Nanos {
    Nanos::from_micros(u64::from(us))
}

fn bytes(count: u32) -> Bytes {
    Bytes(u64::from(count))
}

fn rate(bytes_per_second: u64) -> BitRate {
    BitRate(bytes_per_second.saturating_mul(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A structure whose every 32-bit word holds its own offset in its low half and 1 in its high
    /// half, so that a field decoded from the wrong place shows where it came from.
    fn numbered(length: usize) -> Vec<u8> {
        let mut raw: Vec<u8> = (0..)
            .step_by(4)
            .take(length.div_ceil(4))
            .flat_map(|offset: u32| (offset | 1 << 16).to_ne_bytes())
            .collect();
        raw.truncate(length);
        raw
    }

    fn word(offset: u32) -> u32 {
        offset | 1 << 16
    }

    #[test]
    fn an_empty_answer_is_all_unknown() {
        assert_eq!(decode_tcp_info(&[]), SocketState::default());
    }

    #[test]
    fn each_generation_of_the_kernel_ends_where_it_ended() {
        // 2.6 to 3.14: total_retrans is the last.
        let old = decode_tcp_info(&numbered(104));
        assert_eq!(old.total_retrans(), Some(word(100)));
        assert_eq!(old.pmtu(), Some(word(60)));
        assert_eq!(old.srtt(), Some(micros(word(68))));
        assert_eq!(old.pacing_rate(), None);
        assert_eq!(old.bytes_acked(), None);

        // 4.10: the limited times.
        let middle = decode_tcp_info(&numbered(192));
        assert_eq!(middle.segs_out(), Some(word(136)));
        assert_eq!(middle.min_rtt(), Some(micros(word(148))));
        assert!(middle.sndbuf_limited().is_some());
        assert_eq!(middle.delivered(), None);

        // 5.4: snd_wnd.
        let newer = decode_tcp_info(&numbered(232));
        assert_eq!(newer.delivered_ce(), Some(word(196)));
        assert_eq!(newer.rcv_ooopack(), Some(word(224)));
        assert_eq!(newer.snd_wnd(), Some(bytes(word(228))));
        assert_eq!(newer.rcv_wnd(), None);

        // 6.7: timeouts.
        let recent = decode_tcp_info(&numbered(248));
        assert_eq!(recent.rcv_wnd(), Some(bytes(word(232))));
        assert!(recent.total_rto().is_some());

        // 6.18 adds only what is not kept.
        assert_eq!(decode_tcp_info(&numbered(280)), recent);
    }

    #[test]
    fn a_field_cut_short_is_unknown() {
        assert_eq!(decode_tcp_info(&numbered(231)).snd_wnd(), None);
        assert_eq!(decode_tcp_info(&numbered(111)).pacing_rate(), None);
        assert_eq!(decode_tcp_info(&numbered(103)).total_retrans(), None);
    }

    #[test]
    fn bits_and_the_kernels_words_for_unset() {
        let mut raw = [0u8; 280];
        raw[5] = TCPI_OPT_WSCALE | TCPI_OPT_SACK | TCPI_OPT_ECN_SEEN;
        raw[6] = if cfg!(target_endian = "little") {
            0xa7
        } else {
            0x7a
        };
        raw[7] = if cfg!(target_endian = "little") {
            0x01
        } else {
            0x80
        };
        raw[104..112].fill(0xff);
        raw[148..152].fill(0xff);
        let info = decode_tcp_info(&raw);
        assert_eq!((info.snd_wscale(), info.rcv_wscale()), (Some(7), Some(10)));
        assert_eq!((info.sack(), info.ecn_seen()), (Some(true), Some(true)));
        assert_eq!((info.ecn(), info.timestamps()), (Some(false), Some(false)));
        assert_eq!(info.delivery_rate_app_limited(), Some(true));
        assert_eq!(info.pacing_rate(), None);
        assert_eq!(info.min_rtt(), None);
        assert_eq!(info.delivery_rate(), None);
        assert_eq!(info.bytes_acked(), Some(Bytes(0)));

        // The other bits of that byte are another field, and scales count only if negotiated.
        raw[5] = 0;
        raw[7] = if cfg!(target_endian = "little") {
            0x06
        } else {
            0x60
        };
        raw[104..112].copy_from_slice(&1_000_000u64.to_ne_bytes());
        let info = decode_tcp_info(&raw);
        assert_eq!((info.snd_wscale(), info.rcv_wscale()), (None, None));
        assert_eq!(info.delivery_rate_app_limited(), Some(false));
        assert_eq!(info.pacing_rate(), Some(BitRate(8_000_000)));
    }

    proptest! {
        #[test]
        fn any_bytes_decode(raw in proptest::collection::vec(any::<u8>(), 0..600)) {
            let info = decode_tcp_info(&raw);
            // What is known at a length stays the same at any greater length.
            prop_assert_eq!(decode_tcp_info(&raw[..raw.len().min(280)]), info);
        }
    }
}
