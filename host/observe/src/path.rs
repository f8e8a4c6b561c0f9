//! What the kernel believes of the path to a peer, and how many packets it cut.

use crate::device;
use crate::proc;
use crate::route;
use libc::{
    NDA_DST, NDA_LLADDR, NUD_DELAY, NUD_PERMANENT, NUD_PROBE, NUD_REACHABLE, NUD_STALE,
    RTM_GETNEIGH, RTM_NEWNEIGH,
};
use model::mtu::{Belief, PathEnd};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use sys::netlink::{Conversation, Protocol, address, attribute, u16_at, u32_at};

/// This host's end of the path to `peer`, before anything is sent. The counters of fragments hold what
/// they are now, for [`path_end_after`].
pub fn path_end(peer: IpAddr) -> io::Result<PathEnd> {
    let peer = peer.to_canonical();
    let mut netlink = Conversation::open(Protocol::Route)?;
    let resolved = route::resolve(&mut netlink, peer)
        .map_err(|error| io::Error::new(error.kind(), route::why_none(&error)))?;
    let device = device::link(&mut netlink, resolved.device_index)?.device;
    let driver = device::driver(&device.name);
    let next = resolved.route.gateway.unwrap_or(peer);
    let neighbours = neighbours(&mut netlink, resolved.device_index, next);
    let (made, arrived) = fragments(peer.is_ipv6());
    Ok(PathEnd {
        address: resolved.route.source,
        device: device.name,
        device_mtu: device.mtu,
        drops_link: driver.as_deref().is_some_and(device::drops_link),
        driver,
        // Only a help to be careful with: where it cannot be read, the user says.
        neighbours: neighbours.unwrap_or(0),
        gateway: resolved.route.gateway,
        before: belief(&resolved.route),
        after: Belief::default(),
        discovery_off: peer.is_ipv4().then(discovery_off).flatten(),
        fragments_made: made,
        fragments_arrived: arrived,
    })
}

/// The same end afterwards: what it believes now, and how many fragments there were since.
pub fn path_end_after(before: &PathEnd, peer: IpAddr) -> io::Result<PathEnd> {
    let now = path_end(peer)?;
    Ok(PathEnd {
        after: now.before,
        fragments_made: now.fragments_made.saturating_sub(before.fragments_made),
        fragments_arrived: now
            .fragments_arrived
            .saturating_sub(before.fragments_arrived),
        ..before.clone()
    })
}

/// Hosts on the segment of a device that this one has talked to, as far as the kernel remembers, the
/// next hop left out. A host is counted once, whatever addresses it has.
fn neighbours(netlink: &mut Conversation, device: u32, next: IpAddr) -> io::Result<u32> {
    const ALIVE: u16 = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT;
    let mut known: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    // `struct ndmsg`, of 12 bytes.
    for answer in netlink.dump(RTM_GETNEIGH, &[0; 12])? {
        let (number, state) = (u32_at(&answer.body, 4), u16_at(&answer.body, 8));
        let alive = state.is_some_and(|state| state & ALIVE != 0);
        if answer.kind != RTM_NEWNEIGH || number != Some(device) || !alive {
            continue;
        }
        let all = answer.body.get(12..).unwrap_or_default();
        let is_next = attribute(all, NDA_DST).and_then(address) == Some(next);
        if let Some(hardware) = attribute(all, NDA_LLADDR) {
            *known.entry(hardware.to_vec()).or_default() |= is_next;
        }
    }
    let others = known.values().filter(|is_next| !**is_next).count();
    Ok(u32::try_from(others).unwrap_or(u32::MAX))
}

fn belief(route: &model::Route) -> Belief {
    let metric = |name: &str| route.metrics.get(name).map(String::as_str);
    let mtu = metric("mtu").map(|value| value.trim_start_matches("lock "));
    let expires = metric("expires").and_then(|value| value.strip_suffix("sec"));
    Belief {
        mtu: mtu.and_then(|value| value.parse().ok()),
        expires_s: expires.and_then(|value| value.parse().ok()),
    }
}

/// 0 is the default; 1 and 2 send without DF (3 only changes whom the kernel believes;
/// `Documentation/networking/ip-sysctl.rst`).
fn discovery_off() -> Option<bool> {
    let value = proc::read("/proc/sys/net/ipv4/ip_no_pmtu_disc").ok()?;
    Some(matches!(&value[..], "1" | "2"))
}

/// Fragments made and fragments that arrived, of this network namespace since it came up; zero where
/// they cannot be read.
fn fragments(ipv6: bool) -> (u64, u64) {
    if !ipv6 {
        return ip_fragments(&proc::read("/proc/thread-self/net/snmp").unwrap_or_default());
    }
    let text = proc::read("/proc/thread-self/net/snmp6").unwrap_or_default();
    let count = |name| proc::field(&text, name).and_then(|value| value.parse().ok());
    let [made, arrived] = ["Ip6FragCreates", "Ip6ReasmReqds"].map(count);
    (made.unwrap_or(0), arrived.unwrap_or(0))
}

/// `/proc/net/snmp` names the fields in one line and has the values in the next.
fn ip_fragments(snmp: &str) -> (u64, u64) {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let names = lines.next().unwrap_or_default().split_whitespace();
    let values = lines.next().unwrap_or_default().split_whitespace();
    let mut both = (0, 0);
    for (name, value) in names.zip(values) {
        let value = value.parse().unwrap_or(0);
        match name {
            "FragCreates" => both.0 = value,
            "ReasmReqds" => both.1 = value,
            _ => {}
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_its_cached_metrics() {
        let route = |metrics: &[(&str, &str)]| model::Route {
            metrics: metrics
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            ..model::Route::default()
        };
        let learned = belief(&route(&[("mtu", "lock 552"), ("expires", "300sec")]));
        assert_eq!((learned.mtu, learned.expires_s), (Some(552), Some(300)));
        assert_eq!(belief(&route(&[])), Belief::default());
    }

    #[test]
    fn fragments_are_counted_by_name() {
        let snmp = "Ip: Forwarding ReasmReqds FragCreates\nIp: 1 7 9\nIcmp: InMsgs\nIcmp: 3\n";
        assert_eq!(ip_fragments(snmp), (9, 7));
        assert_eq!(ip_fragments(""), (0, 0));
    }

    #[test]
    fn loopback_has_an_end() {
        let here = path_end("127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(here.device, "lo");
        assert!(here.device_mtu >= 1500);
        let after = path_end_after(&here, "127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(after.before, here.before);
    }
}
