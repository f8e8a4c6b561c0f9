//! A scenario as the words of the programs that set it up: `ip -batch`, `nft -f`, and sysctls. No more
//! than text is made here.

use crate::emulator_counters::LinkBackend;
use emulate::{Direction, Icmp, Link, MssClamp, Node, NodeKind, Scenario};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// Name of a bridge in a switch.
const BRIDGE: &str = "switch";

/// MTU of the emulator's own devices: nothing is dropped there.
const LARGEST_MTU: u32 = 65535;

/// Number of the first device. Both ends of a pair must differ in it, else the kernel takes its time (up
/// to a second) to notice that they are connected, and a bridge forwards nothing until then
/// (`linkwatch_urgent_event` in net/core/link_watch.c).
const FIRST_INDEX: usize = 1000;

/// Number of the first device of the emulator.
pub(crate) const FIRST_INNER_INDEX: usize = 1_000_000;

/// Number of the device of the emulator behind an end of a link, in its namespace.
pub(crate) fn emulator_index(link: usize, end: usize) -> usize {
    FIRST_INNER_INDEX + 2 * link + end
}

/// The device of the emulator behind an end of a link.
pub(crate) fn emulator_device(link: usize, end: usize) -> String {
    format!("l{link}e{end}")
}

/// Lines for `ip -batch` in the emulator's namespace that make all links. `netns` gives for a node's
/// name what `ip` takes for its namespace.
pub(crate) fn cables(
    scenario: &Scenario,
    backends: &[LinkBackend],
    netns: impl Fn(&str) -> String,
) -> String {
    let mut lines = String::new();
    // A queueing discipline acts on a super-packet whole. With this TCP makes none, whatever the device's offloads are
    // or become, and those of others are segmented.
    let single = match backends.contains(&LinkBackend::Netem) {
        true => " gso_max_segs 1",
        false => "",
    };
    for (index, link) in scenario.links.iter().enumerate() {
        let device = |end: usize| {
            let at = &link.ends[end];
            format!(
                "name {} index {} address {} mtu {}{single} netns {}",
                at.device,
                FIRST_INDEX + 2 * index + end,
                address_of_device(index, end),
                at.mtu,
                netns(&at.node)
            )
        };
        if backends[index] == LinkBackend::Cable {
            lines += &format!("link add {} type veth peer {}\n", device(0), device(1));
            continue;
        }
        // Up to Linux 5.18 a peer has it of the first of the pair, whatever is said of it.
        let inherited = match backends[index] {
            LinkBackend::Netem => single,
            LinkBackend::Cable | LinkBackend::Emulator => "",
        };
        for end in 0..2 {
            let (inner, number) = (emulator_device(index, end), emulator_index(index, end));
            let outer = device(end);
            lines += &format!(
                "link add name {inner} index {number} mtu {LARGEST_MTU}{inherited} type veth peer {outer}\n\
                 link set {inner} up\n"
            );
        }
    }
    lines
}

/// Lines for `ip -batch` inside a node: devices up, addresses, neighbours, routes.
pub(crate) fn inside(scenario: &Scenario, node: &Node) -> String {
    let mut lines = "link set lo up\n".to_owned();
    let is_switch = node.kind == NodeKind::Switch;
    if is_switch {
        lines += &format!("link add name {BRIDGE} type bridge stp_state 0 mcast_snooping 0\n");
        lines += &format!("link set {BRIDGE} up\n");
    }
    for (_, end) in scenario.ends_at(&node.name) {
        let device = &end.device;
        if is_switch {
            lines += &format!("link set {device} master {BRIDGE}\n");
        }
        lines += &format!("link set {device} up\n");
        for address in &end.addresses {
            // Nothing is asked of the others.
            let nodad = if address.address.is_ipv6() {
                " nodad"
            } else {
                ""
            };
            lines += &format!("addr add {address} dev {device} noprefixroute{nodad}\n");
        }
    }
    if is_switch {
        return lines;
    }
    let congestion = node.congestion.as_ref();
    let congestion = congestion.map_or(String::new(), |name| format!(" congctl {name}"));
    for (_, end) in scenario.ends_at(&node.name) {
        for address in &end.addresses {
            let (network, device, source) = (address.network(), &end.device, address.address);
            lines += &format!("route add {network} dev {device} src {source}{congestion}\n");
        }
    }
    for (device, address, mac) in neighbours(scenario, &node.name) {
        lines += &format!("neigh replace {address} lladdr {mac} dev {device} nud permanent\n");
    }
    for route in scenario.routes(&node.name) {
        lines += &format!("route add {} via {}{congestion}\n", route.to, route.via);
    }
    lines
}

/// Files below /proc/sys/net to be written inside a node before it has devices. IPv6 comes last and
/// may be missing.
pub(crate) fn sysctls(scenario: &Scenario, node: &Node) -> Vec<(&'static str, String)> {
    let mut all: Vec<(&'static str, String)> = Vec::new();
    let mut set = |name, value: &dyn ToString| all.push((name, value.to_string()));
    // A run must not inherit what the last one learned of the path.
    set("ipv4/tcp_no_metrics_save", &1);
    // The addresses are known; nothing is to be guessed from where a packet comes in.
    set("ipv4/conf/all/rp_filter", &0);
    set("ipv4/conf/default/rp_filter", &0);
    match node.kind {
        NodeKind::Host => {
            let three = |least: u64, usual: u64, most: u64| {
                format!("{} {} {most}", least.min(most), usual.min(most))
            };
            if node.ecn {
                set("ipv4/tcp_ecn", &1);
            }
            if let Some(most) = node.receive_buffer {
                set("ipv4/tcp_rmem", &three(4096, 131_072, most.0));
            }
            if let Some(most) = node.send_buffer {
                set("ipv4/tcp_wmem", &three(4096, 16_384, most.0));
            }
        }
        NodeKind::Router => {
            set("ipv4/ip_forward", &1);
            set("ipv4/conf/all/send_redirects", &0);
            set("ipv4/conf/default/send_redirects", &0);
        }
        NodeKind::Switch => {}
    }
    let has_v6 = scenario
        .ends_at(&node.name)
        .flat_map(|(_, end)| &end.addresses)
        .any(|a| a.address.is_ipv6());
    if has_v6 {
        set("ipv6/conf/all/accept_ra", &0);
        set("ipv6/conf/default/accept_ra", &0);
        // No address but those of the scenario: none is tried, asked for or announced.
        set("ipv6/conf/default/addr_gen_mode", &1);
        if node.kind == NodeKind::Router {
            set("ipv6/conf/all/forwarding", &1);
        }
    } else {
        // Else each device would send router solicitations and listener reports into the links.
        set("ipv6/conf/all/disable_ipv6", &1);
        set("ipv6/conf/default/disable_ipv6", &1);
    }
    all
}

/// A ruleset for `nft -f` inside a node; `None` if it filters nothing.
pub(crate) fn rules(scenario: &Scenario, node: &Node) -> Option<String> {
    let mut chains = String::new();
    let icmp = icmp_rules(scenario, node);
    match node.kind {
        NodeKind::Host => chain(&mut chains, "input", "filter hook input priority 0", &icmp),
        NodeKind::Router => {
            let mut forward = icmp.clone();
            match node.mss_clamp {
                Some(MssClamp::PathMtu) => {
                    forward.push("tcp flags syn tcp option maxseg size set rt mtu".into());
                }
                Some(MssClamp::To(most)) => forward.push(format!(
                    "tcp flags syn tcp option maxseg size > {most} tcp option maxseg size set {most}"
                )),
                None => {}
            }
            if let Some(ttl) = node.ttl {
                forward.push(format!("ip ttl set {ttl}"));
                forward.push(format!("ip6 hoplimit set {ttl}"));
            }
            let hook = "filter hook forward priority 0";
            chain(&mut chains, "forward", hook, &forward);
            let hook = "filter hook output priority 0";
            chain(&mut chains, "output", hook, &icmp);
            nat_chains(&mut chains, scenario, node);
        }
        NodeKind::Switch => {}
    }
    (!chains.is_empty()).then(|| format!("table inet linerate {{\n{chains}}}\n"))
}

/// The names of all nodes with addresses, as `/etc/hosts` has them.
pub(crate) fn hosts_file(scenario: &Scenario) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for node in &scenario.nodes {
        for address in addresses(scenario, &node.name) {
            let _ = writeln!(text, "{address} {}", node.name);
        }
    }
    text
}

/// All addresses of a node, in the order of its links.
pub(crate) fn addresses(scenario: &Scenario, node: &str) -> Vec<IpAddr> {
    scenario
        .ends_at(node)
        .flat_map(|(_, end)| &end.addresses)
        .map(|a| a.address)
        .collect()
}

/// Why a link needs an emulator or not: `None` if it is a cable.
pub(crate) fn why_emulated(scenario: &Scenario, link: &Link) -> Option<&'static str> {
    if !scenario.is_plain(link) {
        return Some("it does something to the frames");
    }
    // A pair of virtual devices passes a super-packet whatever the size of its segments.
    (link.ends[0].mtu != link.ends[1].mtu).then_some("its two ends have different MTUs")
}

/// All shapes that a direction of a link ever has.
pub(crate) fn shapes<'a>(
    scenario: &'a Scenario,
    link: &'a Link,
    direction: Direction,
) -> impl Iterator<Item = &'a emulate::Shape> {
    let later = scenario.script.iter();
    let later = later.filter(move |c| c.link == link.name && c.direction == direction);
    std::iter::once(link.shape(direction)).chain(later.map(|c| &c.shape))
}

/// Locally administered, and the same in every lab of a scenario.
fn address_of_device(link: usize, end: usize) -> String {
    let [high, low] = (link as u16).to_be_bytes();
    format!("02:6c:72:{high:02x}:{low:02x}:{end:02x}")
}

/// Whom a node can reach without a router: its own device, the other's address and device address. They
/// are written down beforehand, since an ARP request that a fault drops costs a second.
fn neighbours(scenario: &Scenario, node: &str) -> Vec<(String, IpAddr, String)> {
    let mut all = Vec::new();
    for (link, end) in scenario.ends_at(node) {
        let mut seen = vec![link.name.as_str()];
        let mut at = 0;
        while at < seen.len() {
            let here = scenario.link(seen[at]).expect("seen holds links' names");
            at += 1;
            let index = scenario.links.iter().position(|l| l.name == here.name);
            for (number, other) in here.ends.iter().enumerate() {
                let kind = scenario.node(&other.node).map(|n| n.kind);
                if kind == Some(NodeKind::Switch) {
                    let further = scenario.ends_at(&other.node).map(|(l, _)| l.name.as_str());
                    let further: Vec<&str> = further.filter(|l| !seen.contains(l)).collect();
                    seen.extend(further);
                } else if other.node != node {
                    let mac = address_of_device(index.unwrap_or(0), number);
                    for address in &other.addresses {
                        all.push((end.device.clone(), address.address, mac.clone()));
                    }
                }
            }
        }
    }
    all
}

fn chain(text: &mut String, name: &str, hook: &str, rules: &[String]) {
    if rules.is_empty() {
        return;
    }
    let _ = writeln!(text, "  chain lab_{name} {{ type {hook}; policy accept;");
    for rule in rules {
        let _ = writeln!(text, "    {rule}");
    }
    text.push_str("  }\n");
}

fn icmp_rules(scenario: &Scenario, node: &Node) -> Vec<String> {
    let (v4, v6) = match node.drop_icmp {
        None => return Vec::new(),
        Some(Icmp::FragNeeded) => (
            "icmp type destination-unreachable icmp code frag-needed",
            "icmpv6 type packet-too-big",
        ),
        Some(Icmp::All) => (
            "meta l4proto icmp",
            "icmpv6 type != { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert }",
        ),
    };
    if node.drop_icmp_toward.is_empty() {
        return vec![format!("{v4} drop"), format!("{v6} drop")];
    }
    let to = node.drop_icmp_toward.iter();
    let to = to.flat_map(|node| addresses(scenario, node));
    to.map(|address| match address {
        IpAddr::V4(a) => format!("ip daddr {a} {v4} drop"),
        IpAddr::V6(a) => format!("ip6 daddr {a} {v6} drop"),
    })
    .collect()
}

fn nat_chains(text: &mut String, scenario: &Scenario, node: &Node) {
    let Some(nat) = &node.nat else { return };
    let mut ends = scenario.ends_at(&node.name);
    let Some((_, outside)) = ends.find(|(link, _)| link.name == nat.outside) else {
        return;
    };
    let device = &outside.device;
    let from = match nat.hairpin {
        true => String::new(),
        false => format!("iifname \"{device}\" "),
    };
    let mut inward = Vec::new();
    for forward in &nat.forward {
        let port = forward.port;
        for public in outside.addresses.iter().map(|a| a.address) {
            let all = addresses(scenario, &forward.to);
            let to = all.iter().find(|to| to.is_ipv4() == public.is_ipv4());
            let Some(to) = to else { continue };
            let family = if public.is_ipv4() { "ip" } else { "ip6" };
            inward.push(format!(
                "{from}{family} daddr {public} tcp dport {port} dnat {family} to {}",
                SocketAddr::new(*to, port)
            ));
        }
    }
    let mut outward = vec![format!("oifname \"{device}\" masquerade")];
    if nat.hairpin {
        // The answer has to come back through the router, so the asker is hidden too.
        outward.push(format!(
            "iifname != \"{device}\" oifname != \"{device}\" ct status dnat masquerade"
        ));
    }
    chain(text, "dnat", "nat hook prerouting priority -100", &inward);
    chain(text, "snat", "nat hook postrouting priority 100", &outward);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let text = "name = \"t\"\nwhy = \"a test\"\n[[host]]\nname = \"a\"\ncongestion = \"reno\"\nreceive_buffer = \"64K\"\n\
                    [[host]]\nname = \"b\"\n[[switch]]\nname = \"s\"\n\
                    [[router]]\nname = \"r\"\nmss_clamp = 1200\ndrop_icmp = \"frag-needed\"\ndrop_icmp_toward = [\"a\"]\n\
                    [[link]]\nname = \"as\"\nbetween = [\"a\", \"s\"]\n\
                    [[link]]\nname = \"sr\"\nbetween = [\"s\", \"r\"]\n\
                    [[link]]\nname = \"rb\"\nbetween = [\"r\", \"b\"]\nmtu = [1500, 9000]\n";
        Scenario::parse(text, "t.toml").unwrap()
    }

    #[test]
    fn a_cable_is_one_pair_and_an_emulated_link_two() {
        let scenario = scenario();
        let emulated: Vec<bool> = scenario
            .links
            .iter()
            .map(|link| why_emulated(&scenario, link).is_some())
            .collect();
        // Two MTUs: a cable would pass super-packets of any size.
        assert_eq!(emulated, [false, false, true]);
        let backends = [
            LinkBackend::Cable,
            LinkBackend::Cable,
            LinkBackend::Emulator,
        ];
        let lines = cables(&scenario, &backends, |node| format!("/ns/{node}"));
        let pairs = lines.lines().filter(|l| l.contains("type veth")).count();
        assert_eq!(pairs, 4);
        assert!(lines.contains("mtu 9000 netns /ns/b"), "{lines}");
        assert!(lines.contains("link set l2e1 up"), "{lines}");
    }

    #[test]
    fn neighbours_are_known_through_a_switch_and_not_beyond_a_router() {
        let scenario = scenario();
        let known: Vec<IpAddr> = neighbours(&scenario, "a")
            .into_iter()
            .map(|n| n.1)
            .collect();
        let local = scenario.link("sr").unwrap().ends[1].addresses.clone();
        let local: Vec<IpAddr> = local.into_iter().map(|a| a.address).collect();
        assert_eq!(known, local);
    }

    #[test]
    fn a_host_learns_of_its_settings() {
        let scenario = scenario();
        let a = scenario.node("a").unwrap();
        let lines = inside(&scenario, a);
        let routes: Vec<&str> = lines.lines().filter(|l| l.starts_with("route")).collect();
        assert!(!routes.is_empty() && routes.iter().all(|l| l.ends_with("congctl reno")));
        let sysctls = sysctls(&scenario, a);
        assert!(sysctls.contains(&("ipv4/tcp_rmem", "4096 65536 65536".to_owned())));
        assert!(rules(&scenario, a).is_none());
    }

    #[test]
    fn a_router_filters_by_its_rules() {
        let scenario = scenario();
        let rules = rules(&scenario, scenario.node("r").unwrap()).unwrap();
        assert!(rules.contains("tcp option maxseg size > 1200 tcp option maxseg size set 1200"));
        let v4 = addresses(&scenario, "a")
            .into_iter()
            .find(IpAddr::is_ipv4)
            .unwrap();
        let drop =
            format!("ip daddr {v4} icmp type destination-unreachable icmp code frag-needed drop");
        assert_eq!(
            rules.matches(&drop).count(),
            2,
            "forwarded and its own: {rules}"
        );
        assert!(!rules.contains("masquerade"));
    }
}
