//! The route to one peer, as the kernel resolves it.

use crate::unread::{invalid, why};
use libc::{
    RTA_CACHEINFO, RTA_GATEWAY, RTA_METRICS, RTA_OIF, RTA_PREFSRC, RTA_VIA, RTN_BLACKHOLE,
    RTN_PROHIBIT, RTN_UNREACHABLE,
};
use model::Route;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use sys::netlink::{Conversation, address, attribute, attributes, text, u32_at};

/// A route whose device is known by its index alone.
pub(crate) struct Resolved {
    /// All but the name of the device.
    pub route: Route,
    /// Index of the leaving device.
    pub device_index: u32,
}

/// Asks the kernel how it would reach `peer` now (RTM_GETROUTE, like `ip route get`). What it has
/// learned of the path, like a smaller MTU from an ICMP message, is among the metrics with the time
/// at which it `expires`.
pub(crate) fn resolve(netlink: &mut Conversation, peer: IpAddr) -> io::Result<Resolved> {
    let answer = netlink.route_to(peer, 0)?;
    let (header, all) = answer.body.split_at(12);
    let barred = match header[7] {
        RTN_UNREACHABLE => Some("unreachable"),
        RTN_PROHIBIT => Some("prohibit"),
        RTN_BLACKHOLE => Some("blackhole"),
        _ => None,
    };
    if let Some(kind) = barred {
        return Err(io::Error::new(
            io::ErrorKind::NetworkUnreachable,
            format!("the route to {peer} is of the kind {kind}"),
        ));
    }
    let ip = |kind| attribute(all, kind).and_then(address);
    // `struct rtvia` has the family before the address.
    let via = || address(attribute(all, RTA_VIA)?.get(2..)?);
    let mut metrics = by_name(attribute(all, RTA_METRICS).unwrap_or_default());
    // `rta_expires` of `struct rta_cacheinfo`, in clock ticks (through jiffies_to_clock_t).
    let expires = attribute(all, RTA_CACHEINFO).and_then(|info| u32_at(info, 8));
    if let Some(ticks) = expires.filter(|ticks| *ticks != 0) {
        let seconds = u64::from(ticks) / sys::process::clock_ticks_per_second();
        metrics.insert("expires".to_owned(), format!("{seconds}sec"));
    }
    let device = attribute(all, RTA_OIF).and_then(|index| u32_at(index, 0));
    Ok(Resolved {
        route: Route {
            destination: Some(peer),
            gateway: ip(RTA_GATEWAY).or_else(via),
            source: ip(RTA_PREFSRC),
            metrics,
            ..Route::default()
        },
        device_index: device.ok_or_else(|| invalid("the route names no leaving device"))?,
    })
}

/// Why there is no route, in words: the kernel answers with an error by the kind of the route that it
/// found (`fib_props` in `net/ipv4/fib_semantics.c`).
pub(crate) fn why_none(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENETUNREACH) => "this host has no route to it".to_owned(),
        Some(libc::EHOSTUNREACH) => "a route of this host says that it is unreachable".to_owned(),
        Some(libc::EACCES) => "a route of this host prohibits it".to_owned(),
        Some(libc::EINVAL) => "a route of this host discards everything to it".to_owned(),
        _ => why(error),
    }
}

/// Names of metrics in ip-route(8), by their numbers (`RTAX_*`).
const METRICS: &str = " lock mtu window rtt rttvar ssthresh cwnd advmss reordering hoplimit \
    initcwnd features rto_min initrwnd quickack congctl fastopen_no_cookie";
const LOCK: u16 = 1;

/// Metrics by their names, values as ip-route(8) prints them: a metric that path MTU discovery or
/// a congestion control must not change begins with `lock`.
fn by_name(metrics: &[u8]) -> BTreeMap<String, String> {
    let locked = attribute(metrics, LOCK).and_then(|bits| u32_at(bits, 0));
    let locked = locked.unwrap_or(0);
    let known = attributes(metrics).filter(|(kind, _)| *kind > LOCK);
    let named = known.filter_map(|(kind, value)| {
        let name = METRICS.split(' ').nth(kind.into())?;
        let number = u32_at(value, 0).unwrap_or(0);
        let value = match name {
            // The kernel keeps these in eighths and quarters of a millisecond, as TCP does.
            "rtt" => format!("{}ms", f64::from(number) / 8.0),
            "rttvar" => format!("{}ms", f64::from(number) / 4.0),
            "rto_min" => format!("{number}ms"),
            "features" => features(number),
            "congctl" => text(value),
            _ => number.to_string(),
        };
        let lock = if locked >> kind & 1 == 1 { "lock " } else { "" };
        Some((name.to_owned(), format!("{lock}{value}")))
    });
    named.collect()
}

/// `RTAX_FEATURE_*` of `include/uapi/linux/rtnetlink.h`.
fn features(bits: u32) -> String {
    let mut words = Vec::new();
    let mut rest = bits;
    for (bit, name) in [(1, "ecn"), (1 << 4, "tcp_usec_ts")] {
        if bits & bit != 0 {
            words.push(name.to_owned());
            rest &= !bit;
        }
    }
    if rest != 0 {
        words.push(format!("{rest:#x}"));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::netlink::push;

    #[test]
    fn metrics_read_like_ip_route() {
        let mut raw = Vec::new();
        // Locked are the MTU (2) and the congestion control (16).
        let numbers = [
            (LOCK, 1 << 2 | 1 << 16),
            (2, 1400),
            (4, 8 * 25),
            (5, 10),
            (13, 40),
            (12, 1 | 1 << 4 | 1 << 9),
        ];
        for (kind, number) in numbers {
            push(&mut raw, kind, &u32::to_ne_bytes(number));
        }
        push(&mut raw, 16, b"reno\0");
        let metrics = by_name(&raw);
        let metrics: Vec<_> = metrics
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        assert_eq!(
            metrics,
            [
                "congctl lock reno",
                "features ecn tcp_usec_ts 0x200",
                "mtu lock 1400",
                "rto_min 40ms",
                "rtt 25ms",
                "rttvar 2.5ms",
            ]
        );
    }
}
