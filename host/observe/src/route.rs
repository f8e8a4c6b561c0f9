//! The route to one peer, as the kernel resolves it.

use crate::netlink::{Rtnetlink, invalid};
use crate::unread::why;
use model::Route;
use netlink_packet_core::Nla;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

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
pub(crate) fn resolve(netlink: &mut Rtnetlink, peer: IpAddr) -> io::Result<Resolved> {
    let mut question = RouteMessage::default();
    (
        question.header.address_family,
        question.header.destination_prefix_length,
    ) = match peer {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    question
        .attributes
        .push(RouteAttribute::Destination(RouteAddress::from(peer)));
    let answer = netlink.get(RouteNetlinkMessage::GetRoute(question))?;
    let RouteNetlinkMessage::NewRoute(answer) = answer else {
        return Err(invalid("the kernel's answer is not a route"));
    };
    if let RouteType::Unreachable | RouteType::Prohibit | RouteType::BlackHole = answer.header.kind
    {
        return Err(io::Error::new(
            io::ErrorKind::NetworkUnreachable,
            format!(
                "the route to {peer} is of the kind {:?}",
                answer.header.kind
            ),
        ));
    }

    let mut route = Route {
        destination: Some(peer),
        ..Route::default()
    };
    let mut device_index = None;
    for attribute in answer.attributes {
        match attribute {
            RouteAttribute::Oif(index) => device_index = Some(index),
            RouteAttribute::Gateway(address) => route.gateway = ip(&address),
            RouteAttribute::Via(RouteVia::Inet(address)) => route.gateway = Some(address.into()),
            RouteAttribute::Via(RouteVia::Inet6(address)) => route.gateway = Some(address.into()),
            RouteAttribute::PrefSource(address) => route.source = ip(&address),
            RouteAttribute::Metrics(metrics) => route.metrics.extend(by_name(&metrics)),
            RouteAttribute::CacheInfo(cache) if cache.expires != 0 => {
                // Counted in clock ticks (`rta_expires`, through jiffies_to_clock_t).
                let seconds = u64::from(cache.expires) / sys::process::clock_ticks_per_second();
                let expires = format!("{seconds}sec");
                route.metrics.insert("expires".to_owned(), expires);
            }
            _ => {}
        }
    }
    let device_index = device_index.ok_or_else(|| invalid("the route names no leaving device"))?;
    Ok(Resolved {
        route,
        device_index,
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

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Metrics by their names in ip-route(8), values as it prints them: a metric that path MTU discovery or
/// a congestion control must not change begins with `lock`.
fn by_name(metrics: &[RouteMetric]) -> BTreeMap<String, String> {
    let locked = metrics.iter().find_map(|m| match m {
        RouteMetric::Lock(bits) => Some(*bits),
        _ => None,
    });
    let locked = locked.unwrap_or(0);
    metrics
        .iter()
        .filter_map(|metric| {
            let (name, value) = in_words(metric)?;
            let bit = 1u32.checked_shl(metric.kind().into()).unwrap_or(0);
            let lock = if locked & bit != 0 { "lock " } else { "" };
            Some((name.to_owned(), format!("{lock}{value}")))
        })
        .collect()
}

fn in_words(metric: &RouteMetric) -> Option<(&'static str, String)> {
    let number = |name, value: u32| Some((name, value.to_string()));
    match metric {
        RouteMetric::Mtu(v) => number("mtu", *v),
        RouteMetric::Window(v) => number("window", *v),
        // The kernel keeps these in eighths and quarters of a millisecond, as TCP does.
        RouteMetric::Rtt(v) => Some(("rtt", format!("{}ms", f64::from(*v) / 8.0))),
        RouteMetric::RttVar(v) => Some(("rttvar", format!("{}ms", f64::from(*v) / 4.0))),
        RouteMetric::SsThresh(v) => number("ssthresh", *v),
        RouteMetric::Cwnd(v) => number("cwnd", *v),
        RouteMetric::Advmss(v) => number("advmss", *v),
        RouteMetric::Reordering(v) => number("reordering", *v),
        RouteMetric::Hoplimit(v) => number("hoplimit", *v),
        RouteMetric::InitCwnd(v) => number("initcwnd", *v),
        RouteMetric::Features(bits) => Some(("features", features(*bits))),
        RouteMetric::RtoMin(v) => Some(("rto_min", format!("{v}ms"))),
        RouteMetric::InitRwnd(v) => number("initrwnd", *v),
        RouteMetric::QuickAck(v) => number("quickack", *v),
        RouteMetric::CcAlgo(name) => Some(("congctl", name.clone())),
        RouteMetric::FastopenNoCookie(v) => number("fastopen_no_cookie", *v),
        _ => None,
    }
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

    #[test]
    fn metrics_read_like_ip_route() {
        let metrics = by_name(&[
            RouteMetric::Mtu(1400),
            RouteMetric::Rtt(8 * 25),
            RouteMetric::RttVar(10),
            RouteMetric::RtoMin(40),
            RouteMetric::CcAlgo("reno".to_owned()),
            RouteMetric::Features(1 | 1 << 4 | 1 << 9),
            // Locked are the MTU (2) and the congestion control (16).
            RouteMetric::Lock(1 << 2 | 1 << 16),
        ]);
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
