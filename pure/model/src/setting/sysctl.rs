//! The sysctls that may be set: `Documentation/networking/ip-sysctl.rst` and
//! `Documentation/admin-guide/sysctl/net.rst`. No other can be named.

use super::{KnobRow, On, Scope, Value, ValueShape, row};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One of the sysctls of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SysctlKey(usize);

/// When a value is not worth an experiment, and why.
#[derive(Clone, Copy)]
enum Objection {
    None,
    /// Whatever the value.
    Always(&'static str),
    /// To this value.
    To(u64, &'static str),
    /// Whatever the value, from this kernel on.
    Since((u32, u32), &'static str),
}
use Objection::{Always, Since, To};

struct SysctlRow {
    row: KnobRow,
    scope: Scope,
    objection: Objection,
}

const fn key(name: &'static str, shape: ValueShape, place: On, summary: &'static str) -> SysctlRow {
    let risk = "every connection of the machine (of the network namespace) has it";
    SysctlRow {
        row: row(name, shape, place, summary, risk),
        scope: Scope::Namespace,
        objection: Objection::None,
    }
}

/// Of the whole machine.
const fn host(
    name: &'static str,
    shape: ValueShape,
    place: On,
    summary: &'static str,
) -> SysctlRow {
    let mut host = key(name, shape, place, summary);
    host.row.risk = "every connection of the machine has it, in all its network namespaces";
    host.scope = Scope::Host;
    host
}

const fn but(row: SysctlRow, objection: Objection) -> SysctlRow {
    SysctlRow { objection, ..row }
}

const INT_MAX: u64 = i32::MAX as u64;
const BUFFER: ValueShape = ValueShape::Three(1, INT_MAX);
const FLAG: ValueShape = ValueShape::Count(0, 1);

#[rustfmt::skip]
const ROWS: &[SysctlRow] = &[
    key("net.ipv4.tcp_rmem", BUFFER, On::Receiver, "least, initial and greatest receive buffer: bounds the window"),
    key("net.ipv4.tcp_wmem", BUFFER, On::Sender, "least, initial and greatest send buffer: bounds data in flight"),
    key("net.ipv4.tcp_moderate_rcvbuf", FLAG, On::Receiver, "autotuning of the receive buffer"),
    but(key("net.ipv4.tcp_adv_win_scale", ValueShape::Count(0, 31), On::Receiver, "share of the receive buffer that becomes window (until 6.5)"),
        Since((6, 6), "tcp_adv_win_scale is obsolete since Linux 6.6, which learns the share from each connection")),
    key("net.ipv4.tcp_app_win", ValueShape::Count(0, 31), On::Receiver, "share of the window kept for the application"),
    but(key("net.ipv4.tcp_window_scaling", FLAG, On::Both, "windows above 64 KiB (RFC 7323)"),
        To(0, "without window scaling no connection can have more than 64 KiB in flight")),
    key("net.ipv4.tcp_shrink_window", FLAG, On::Receiver, "the receive window may shrink under memory pressure"),
    but(key("net.ipv4.tcp_timestamps", ValueShape::Count(0, 2), On::Both, "round-trip samples and 12 bytes a segment (RFC 7323)"),
        To(0, "without timestamps round trips are measured worse and old segments can be taken for new ones; they cost under 1 %")),
    but(key("net.ipv4.tcp_sack", FLAG, On::Both, "selective acknowledgement: many losses in a round trip (RFC 2018)"),
        To(0, "without selective acknowledgements every loss costs a round trip")),
    key("net.ipv4.tcp_dsack", FLAG, On::Receiver, "reports of needless retransmissions (RFC 2883)"),
    but(key("net.ipv4.tcp_fack", FLAG, On::Sender, "forward acknowledgement (until 4.15)"),
        Always("tcp_fack has no effect since Linux 4.15, where RACK took its place")),
    key("net.ipv4.tcp_congestion_control", ValueShape::Name, On::Sender, "congestion control of new connections"),
    key("net.ipv4.tcp_slow_start_after_idle", FLAG, On::Sender, "the congestion window is cut after a pause"),
    key("net.ipv4.tcp_no_metrics_save", FLAG, On::Sender, "results of earlier connections to the host are forgotten"),
    key("net.ipv4.tcp_no_ssthresh_metrics_save", FLAG, On::Sender, "the slow-start threshold among them"),
    key("net.ipv4.tcp_ecn", ValueShape::Count(0, 5), On::Both, "explicit congestion notification (RFC 3168)"),
    key("net.ipv4.tcp_ecn_fallback", FLAG, On::Both, "without it if the path does not carry it"),
    key("net.ipv4.tcp_frto", ValueShape::Count(0, 2), On::Sender, "needless timeouts are undone (RFC 5682)"),
    key("net.ipv4.tcp_recovery", ValueShape::Count(0, 7), On::Sender, "loss detection by time: RACK (RFC 8985)"),
    key("net.ipv4.tcp_early_retrans", ValueShape::Count(0, 4), On::Sender, "tail loss probes"),
    key("net.ipv4.tcp_reordering", ValueShape::Count(1, 1000), On::Sender, "reordering tolerated at first, in segments"),
    key("net.ipv4.tcp_max_reordering", ValueShape::Count(1, 10_000), On::Sender, "reordering tolerated at most, in segments"),
    key("net.ipv4.tcp_thin_linear_timeouts", FLAG, On::Sender, "timeouts of thin streams do not back off"),
    key("net.ipv4.tcp_rto_min_us", ValueShape::Count(1, 200_000), On::Sender, "least retransmission timeout, in microseconds"),
    key("net.ipv4.tcp_rto_max_ms", ValueShape::Count(1000, 120_000), On::Sender, "greatest retransmission timeout, in milliseconds"),
    key("net.ipv4.tcp_min_rtt_wlen", ValueShape::Count(0, 86_400), On::Sender, "seconds over which the least round trip is kept"),
    key("net.ipv4.tcp_mtu_probing", ValueShape::Count(0, 2), On::Sender, "packetisation-layer path MTU discovery (RFC 4821)"),
    key("net.ipv4.tcp_base_mss", ValueShape::Count(48, 65_495), On::Sender, "where that probing begins, in bytes"),
    key("net.ipv4.tcp_limit_output_bytes", ValueShape::Size(1, INT_MAX), On::Sender, "data of a connection in queues below TCP"),
    key("net.ipv4.tcp_notsent_lowat", ValueShape::Count(1, u32::MAX as u64), On::Sender, "unsent bytes above which a connection is not writable"),
    key("net.ipv4.tcp_autocorking", FLAG, On::Sender, "small writes wait for one another"),
    key("net.ipv4.tcp_min_tso_segs", ValueShape::Count(1, 65_535), On::Sender, "least segments in one TSO burst"),
    key("net.ipv4.tcp_tso_win_divisor", ValueShape::Count(0, 1000), On::Sender, "share of the window in one TSO burst"),
    key("net.ipv4.tcp_tso_rtt_log", ValueShape::Count(0, 31), On::Sender, "bursts grow on short paths"),
    key("net.ipv4.tcp_pacing_ss_ratio", ValueShape::Count(0, 1000), On::Sender, "pacing rate in slow start, percent"),
    key("net.ipv4.tcp_pacing_ca_ratio", ValueShape::Count(0, 1000), On::Sender, "pacing rate afterwards, percent"),
    key("net.ipv4.tcp_comp_sack_delay_ns", ValueShape::Count(0, 1_000_000_000), On::Receiver, "selective acknowledgements are bundled for so long"),
    key("net.ipv4.tcp_comp_sack_nr", ValueShape::Count(0, 255), On::Receiver, "and so many of them"),
    key("net.ipv4.tcp_backlog_ack_defer", FLAG, On::Receiver, "one acknowledgement for a backlog"),
    key("net.ipv4.ip_no_pmtu_disc", ValueShape::Count(0, 3), On::Sender, "path MTU discovery is off"),

    but(host("net.ipv4.tcp_low_latency", FLAG, On::Both, "nothing since 4.14"),
        Always("tcp_low_latency has no effect since Linux 4.14")),
    host("net.ipv4.tcp_mem", BUFFER, On::Both, "pages for all TCP connections together"),
    host("net.core.rmem_max", ValueShape::Size(2304, INT_MAX), On::Receiver, "the most that SO_RCVBUF gives"),
    host("net.core.wmem_max", ValueShape::Size(4608, INT_MAX), On::Sender, "the most that SO_SNDBUF gives"),
    host("net.core.netdev_max_backlog", ValueShape::Count(1, INT_MAX), On::Receiver, "packets that wait for a processor on the receive side"),
    host("net.core.netdev_budget", ValueShape::Count(1, 100_000), On::Receiver, "packets taken in one softirq round"),
    host("net.core.netdev_budget_usecs", ValueShape::Count(1, 1_000_000), On::Receiver, "time of one softirq round, in microseconds"),
    host("net.core.dev_weight", ValueShape::Count(1, 100_000), On::Receiver, "packets taken from one backlog in a round"),
    host("net.core.default_qdisc", ValueShape::Name, On::Sender, "queueing discipline of new devices"),
    host("net.core.busy_poll", ValueShape::Count(0, 1_000_000), On::Receiver, "microseconds that poll and select spin for packets"),
    host("net.core.busy_read", ValueShape::Count(0, 1_000_000), On::Receiver, "microseconds that reads spin for packets"),
    host("net.core.gro_normal_batch", ValueShape::Count(1, 1000), On::Receiver, "packets handed up together"),
];

impl SysctlKey {
    /// All of them.
    pub fn all() -> impl Iterator<Item = SysctlKey> {
        (0..ROWS.len()).map(SysctlKey)
    }

    /// Its entry in the table.
    pub fn row(&self) -> &'static KnobRow {
        &ROWS[self.0].row
    }

    /// Its name with dots, like `net.ipv4.tcp_rmem`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The value that the text of its file means.
    pub fn value_in(self, text: &str) -> Value {
        let words: Vec<&str> = text.split_whitespace().collect();
        let numbers: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
        match numbers.filter(|_| self.row().shape != ValueShape::Name) {
            Some(all) if all.len() == 1 => Value::Number(all[0]),
            Some(all) if all.len() > 1 => Value::Numbers(all),
            _ => Value::Word(words.join(" ")),
        }
    }

    /// [`Scope::Namespace`] or [`Scope::Host`].
    pub fn scope(self) -> Scope {
        ROWS[self.0].scope
    }

    /// See [`Knob::needs_new_connections`](super::Knob::needs_new_connections).
    pub(super) fn needs_new_connections(self) -> bool {
        // Read by the kernel whenever it is used, not kept in the socket.
        const READ_EACH_TIME: [&str; 8] = [
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_wmem",
            "net.ipv4.tcp_mem",
            "net.ipv4.tcp_moderate_rcvbuf",
            "net.ipv4.tcp_slow_start_after_idle",
            "net.ipv4.tcp_limit_output_bytes",
            "net.ipv4.tcp_mtu_probing",
            "net.core.netdev_max_backlog",
        ];
        !READ_EACH_TIME.contains(&self.name())
    }

    /// See [`Setting::objection`](super::Setting::objection).
    pub(super) fn objection(self, value: u64, kernel: Option<(u32, u32)>) -> Option<&'static str> {
        match ROWS[self.0].objection {
            Objection::None => None,
            Always(why) => Some(why),
            To(bad, why) => (bad == value).then_some(why),
            Since(version, why) => kernel.is_some_and(|k| k >= version).then_some(why),
        }
    }
}

impl FromStr for SysctlKey {
    type Err = String;

    fn from_str(name: &str) -> Result<SysctlKey, String> {
        SysctlKey::all()
            .find(|key| key.name() == name)
            .ok_or_else(|| {
                format!(
                    "linerate does not set the sysctl '{name}'; 'linerate tune knobs' lists those that it sets"
                )
            })
    }
}

impl TryFrom<String> for SysctlKey {
    type Error = String;

    fn try_from(name: String) -> Result<SysctlKey, String> {
        name.parse()
    }
}

impl From<SysctlKey> for String {
    fn from(key: SysctlKey) -> String {
        key.name().to_owned()
    }
}

impl fmt::Debug for SysctlKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
