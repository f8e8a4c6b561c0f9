//! The sysctls that bear on TCP transfers.

use crate::proc;
use crate::unread::{Unreadable, why};
use std::collections::BTreeMap;
use std::io;

/// Where a key is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptSysctl {
    /// In every network namespace of every kernel that is in use: its absence is worth a word.
    Everywhere,
    /// In the initial network namespace alone, on all or many kernels: its absence elsewhere is
    /// worth a word, because the value still applies.
    Host,
    /// On newer or older kernels only, or by configuration: its absence says nothing.
    Sometimes,
}

use KeptSysctl::{Everywhere, Host, Sometimes};

/// Each key, where it is, and why it bears on a transfer (`Documentation/networking/ip-sysctl.rst` and
/// `Documentation/admin-guide/sysctl/net.rst`).
#[rustfmt::skip]
const KEYS: &[(&str, KeptSysctl, &str)] = &[
    ("net.core.rmem_default", Host, "receive buffer of sockets other than TCP"),
    ("net.core.rmem_max", Host, "the most that SO_RCVBUF gives"),
    ("net.core.wmem_default", Host, "send buffer of sockets other than TCP"),
    ("net.core.wmem_max", Host, "the most that SO_SNDBUF gives"),
    ("net.core.optmem_max", Sometimes, "room for zero-copy completions of a socket"),
    ("net.core.somaxconn", Everywhere, "connections that wait to be accepted"),
    ("net.core.netdev_max_backlog", Host, "packets that wait for a processor on the receive side"),
    ("net.core.netdev_budget", Host, "packets taken in one softirq round"),
    ("net.core.netdev_budget_usecs", Host, "time of one softirq round"),
    ("net.core.dev_weight", Host, "packets taken from one backlog in a round"),
    ("net.core.default_qdisc", Host, "queueing discipline of new devices: fq paces, fifo does not"),
    ("net.core.busy_poll", Host, "poll and select spin for packets"),
    ("net.core.busy_read", Host, "reads spin for packets"),
    ("net.core.gro_normal_batch", Sometimes, "packets handed up together"),
    ("net.core.rps_sock_flow_entries", Host, "receive flow steering to the reading processor"),
    ("net.core.high_order_alloc_disable", Sometimes, "large pages for socket buffers"),
    ("net.core.max_skb_frags", Sometimes, "fragments a packet: bounds GRO and TSO sizes"),
    ("net.core.txrehash", Sometimes, "another path after a timeout"),

    ("net.ipv4.tcp_rmem", Everywhere, "least, initial and greatest receive buffer: bounds the window"),
    ("net.ipv4.tcp_wmem", Everywhere, "least, initial and greatest send buffer: bounds data in flight"),
    ("net.ipv4.tcp_mem", Host, "pages for all TCP sockets together"),
    ("net.ipv4.tcp_moderate_rcvbuf", Everywhere, "autotuning of the receive buffer"),
    ("net.ipv4.tcp_adv_win_scale", Everywhere, "share of the receive buffer that becomes window (until 6.5)"),
    ("net.ipv4.tcp_app_win", Everywhere, "share of the window kept for the application"),
    ("net.ipv4.tcp_window_scaling", Everywhere, "windows above 64 KiB (RFC 7323)"),
    ("net.ipv4.tcp_shrink_window", Sometimes, "the receive window may shrink under memory pressure"),
    ("net.ipv4.tcp_timestamps", Everywhere, "round-trip samples and 12 bytes a segment (RFC 7323)"),
    ("net.ipv4.tcp_sack", Everywhere, "selective acknowledgement: many losses in a round trip (RFC 2018)"),
    ("net.ipv4.tcp_dsack", Everywhere, "reports of needless retransmissions (RFC 2883)"),
    ("net.ipv4.tcp_fack", Sometimes, "forward acknowledgement (until 4.15)"),
    ("net.ipv4.tcp_congestion_control", Everywhere, "congestion control of new sockets"),
    ("net.ipv4.tcp_allowed_congestion_control", Sometimes, "what an unprivileged process may choose"),
    ("net.ipv4.tcp_slow_start_after_idle", Everywhere, "the congestion window is cut after a pause"),
    ("net.ipv4.tcp_no_metrics_save", Everywhere, "results of earlier connections to the host are forgotten"),
    ("net.ipv4.tcp_no_ssthresh_metrics_save", Sometimes, "the slow-start threshold among them"),
    ("net.ipv4.tcp_ecn", Everywhere, "explicit congestion notification (RFC 3168)"),
    ("net.ipv4.tcp_ecn_fallback", Everywhere, "without it if the path does not carry it"),
    ("net.ipv4.tcp_ecn_option", Sometimes, "accurate ECN counts in an option"),
    ("net.ipv4.tcp_frto", Everywhere, "needless timeouts are undone (RFC 5682)"),
    ("net.ipv4.tcp_recovery", Everywhere, "loss detection by time: RACK (RFC 8985)"),
    ("net.ipv4.tcp_early_retrans", Everywhere, "tail loss probes"),
    ("net.ipv4.tcp_reordering", Everywhere, "reordering tolerated at first"),
    ("net.ipv4.tcp_max_reordering", Everywhere, "reordering tolerated at most"),
    ("net.ipv4.tcp_thin_linear_timeouts", Everywhere, "timeouts of thin streams do not back off"),
    ("net.ipv4.tcp_retries2", Everywhere, "how long a dead path is tried"),
    ("net.ipv4.tcp_syn_retries", Everywhere, "how long a connection is tried"),
    ("net.ipv4.tcp_rto_min_us", Sometimes, "least retransmission timeout"),
    ("net.ipv4.tcp_rto_max_ms", Sometimes, "greatest retransmission timeout"),
    ("net.ipv4.tcp_min_rtt_wlen", Everywhere, "seconds over which the least round trip is kept"),
    ("net.ipv4.tcp_mtu_probing", Everywhere, "packetisation-layer path MTU discovery (RFC 4821)"),
    ("net.ipv4.tcp_base_mss", Everywhere, "where that probing begins"),
    ("net.ipv4.tcp_min_snd_mss", Sometimes, "least MSS that a sender uses"),
    ("net.ipv4.tcp_limit_output_bytes", Everywhere, "data of a socket in queues below TCP"),
    ("net.ipv4.tcp_notsent_lowat", Everywhere, "unsent data above which a socket is not writable"),
    ("net.ipv4.tcp_autocorking", Everywhere, "small writes wait for one another"),
    ("net.ipv4.tcp_min_tso_segs", Everywhere, "least segments in one TSO burst"),
    ("net.ipv4.tcp_tso_win_divisor", Everywhere, "share of the window in one TSO burst"),
    ("net.ipv4.tcp_tso_rtt_log", Sometimes, "bursts grow on short paths"),
    ("net.ipv4.tcp_pacing_ss_ratio", Everywhere, "pacing rate in slow start, percent"),
    ("net.ipv4.tcp_pacing_ca_ratio", Everywhere, "pacing rate afterwards, percent"),
    ("net.ipv4.tcp_comp_sack_delay_ns", Sometimes, "selective acknowledgements are bundled for so long"),
    ("net.ipv4.tcp_comp_sack_nr", Sometimes, "and so many of them"),
    ("net.ipv4.tcp_backlog_ack_defer", Sometimes, "one acknowledgement for a backlog"),
    ("net.ipv4.tcp_fastopen", Everywhere, "data in the first segment (RFC 7413)"),
    ("net.ipv4.tcp_syncookies", Everywhere, "with them, options of a flooded listener are lost"),
    ("net.ipv4.tcp_max_syn_backlog", Everywhere, "half-open connections"),
    ("net.ipv4.tcp_tw_reuse", Everywhere, "ports of closed connections are used again"),
    ("net.ipv4.tcp_low_latency", Sometimes, "no effect since 4.14"),
    ("net.ipv4.ip_local_port_range", Everywhere, "ports for many short connections"),
    ("net.ipv4.ip_no_pmtu_disc", Everywhere, "path MTU discovery"),
    ("net.ipv4.route.mtu_expires", Sometimes, "seconds until a learned path MTU is forgotten"),
    ("net.ipv4.route.min_pmtu", Sometimes, "least path MTU that is believed"),
    ("net.ipv4.route.min_adv_mss", Sometimes, "least MSS that is announced"),
    ("net.ipv6.route.mtu_expires", Sometimes, "the same for IPv6"),
    ("net.ipv4.fib_multipath_hash_policy", Sometimes, "how streams spread over equal paths"),
    ("net.ipv4.ip_forward_use_pmtu", Everywhere, "forwarding heeds learned path MTUs"),
    ("net.ipv4.udp_mem", Host, "pages for all UDP sockets together"),
    ("net.ipv4.udp_rmem_min", Everywhere, "least receive buffer of a UDP socket"),
];

/// Reads all of them, white space folded; what should be there and is not goes into `unread`.
pub(crate) fn read(unread: &mut Unreadable) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (key, kept, _) in KEYS {
        match proc::read(format!("/proc/sys/{}", key.replace('.', "/"))) {
            Ok(text) => {
                let words: Vec<_> = text.split_whitespace().collect();
                found.insert((*key).to_owned(), words.join(" "));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => match kept {
                Everywhere => unread.push(*key, "this kernel has no such key"),
                Host => unread.push(
                    *key,
                    "not shown in this network namespace; the value of the host applies",
                ),
                Sometimes => {}
            },
            Err(error) => unread.push(*key, why(&error)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_each_says_why() {
        let mut seen = std::collections::BTreeSet::new();
        for (key, _, why) in KEYS {
            assert!(seen.insert(key), "{key} is there twice");
            assert!(key.starts_with("net.") && !why.is_empty());
        }
    }

    #[test]
    fn what_the_kernel_shows_is_read() {
        let mut unread = Unreadable::default();
        let found = read(&mut unread);
        for key in [
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_sack",
            "net.core.somaxconn",
        ] {
            assert!(found.contains_key(key), "{key}: {unread:?}");
        }
        assert_eq!(found["net.ipv4.tcp_rmem"].split(' ').count(), 3);
    }
}
