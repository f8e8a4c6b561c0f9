//! What a kernel sets by itself.

use model::{Fingerprint, SysctlKey, Value};

const MIB: u64 = 1 << 20;

/// The value that this host's kernel gives a sysctl by default; `None` where that is not known, or not the
/// same on all kernels of the version.
///
/// Sources: `tcp_init` and `tcp_sk_init` (`net/ipv4/tcp.c`, `tcp_ipv4.c`), `net/core/sock.c`. The greatest
/// buffers are also bounded by 1/128 of the memory.
pub fn default_of(host: &Fingerprint, key: SysctlKey) -> Option<Value> {
    let version = host.kernel_version()?;
    let memory = host.memory.map(|m| m.0 / 128);
    let bounded = |most: u64| Some(most.min(memory?));
    Some(match key.name() {
        "net.ipv4.tcp_rmem" => {
            let most = if version >= (6, 16) { 32 } else { 6 } * MIB;
            // Before 4.20 the initial size was meant for a segment size of an older time.
            let initial = if version >= (4, 20) { 131_072 } else { 87_380 };
            Value::Numbers(vec![4096, initial, bounded(most)?])
        }
        "net.ipv4.tcp_wmem" => Value::Numbers(vec![4096, 16_384, bounded(4 * MIB)?]),
        "net.core.rmem_max" | "net.core.wmem_max" => {
            Value::Number(if version >= (6, 18) { 4 * MIB } else { 212_992 })
        }
        "net.ipv4.tcp_window_scaling"
        | "net.ipv4.tcp_timestamps"
        | "net.ipv4.tcp_sack"
        | "net.ipv4.tcp_dsack"
        | "net.ipv4.tcp_moderate_rcvbuf"
        | "net.ipv4.tcp_slow_start_after_idle"
        | "net.ipv4.tcp_autocorking"
        | "net.ipv4.tcp_adv_win_scale"
        | "net.ipv4.tcp_ecn_fallback"
        | "net.ipv4.tcp_recovery" => Value::Number(1),
        "net.ipv4.tcp_no_metrics_save"
        | "net.ipv4.tcp_mtu_probing"
        | "net.ipv4.ip_no_pmtu_disc"
        | "net.ipv4.tcp_low_latency"
        | "net.ipv4.tcp_shrink_window"
        | "net.core.busy_poll"
        | "net.core.busy_read" => Value::Number(0),
        "net.ipv4.tcp_ecn" => Value::Number(2),
        "net.ipv4.tcp_reordering" => Value::Number(3),
        "net.core.netdev_max_backlog" => Value::Number(1000),
        "net.core.netdev_budget" => Value::Number(300),
        "net.core.dev_weight" => Value::Number(64),
        _ => return None,
    })
}
