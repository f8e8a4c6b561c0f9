//! A network as data.

use crate::file::value::{scalar, some, span, whole};
use crate::{Shape, file, shipped};
use model::{BitRate, Bytes, Nanos, UserFileError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU8;

/// A whole lab: nodes, links, and what changes while it runs. Checked: every name that it uses exists.
/// It is stored and sent as the text of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scenario {
    /// The text of the file.
    pub(crate) text: String,
    /// Name of the lab, fit for a file and a namespace.
    pub name: String,
    /// Why these numbers.
    pub why: String,
    /// Seed of every chance in it.
    pub seed: u64,
    /// Hosts, routers, switches.
    pub nodes: Vec<Node>,
    /// What joins them.
    pub links: Vec<Link>,
    /// What changes, in order of time.
    pub script: Vec<ScriptStep>,
    /// Transfers of the lab's own.
    pub traffic: Vec<Traffic>,
}

/// A place where packets begin, end or turn, with the settings of its kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique: lower-case letters, digits, `-`; at most 32.
    #[serde(deserialize_with = "scalar")]
    pub name: String,
    /// What it is.
    #[serde(skip)]
    pub kind: NodeKind,
    /// Host: congestion control of its routes (`ip route ... congctl`); none: the kernel's default.
    #[serde(default, deserialize_with = "some")]
    pub congestion: Option<String>,
    /// Host: largest receive buffer that autotuning may reach (`tcp_rmem`); a small one makes a slow
    /// receiver.
    #[serde(default, deserialize_with = "some")]
    pub receive_buffer: Option<Bytes>,
    /// Host: largest send buffer that autotuning may reach (`tcp_wmem`).
    #[serde(default, deserialize_with = "some")]
    pub send_buffer: Option<Bytes>,
    /// Host: false turns the segmentation and receive offloads of its devices off, so that it sees
    /// single frames.
    pub offload: Option<bool>,
    /// Host: requests ECN on its connections (`net.ipv4.tcp_ecn = 1`); false: the kernel's default.
    #[serde(default)]
    pub ecn: bool,
    /// Host: it answers at the discard port (RFC 863) and reads what comes at this rate, all
    /// connections together: an application that is slow, or writes to a slow disk.
    #[serde(default, deserialize_with = "some")]
    pub reads_at: Option<BitRate>,
    /// Host: what its firewall drops of the ICMP that comes in. Router: of what it sends and forwards.
    pub drop_icmp: Option<Icmp>,
    /// Drops only the ICMP to these nodes; empty: to all.
    #[serde(default)]
    pub drop_icmp_toward: Vec<String>,
    /// Router: rewrites the MSS option of the SYNs that it forwards.
    #[serde(default, deserialize_with = "some")]
    pub mss_clamp: Option<MssClamp>,
    /// Router: sets the TTL of all that it forwards.
    pub ttl: Option<NonZeroU8>,
    /// Router: hides the other nodes behind the address of one of its links.
    pub nat: Option<Nat>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeKind {
    /// Runs programs.
    #[default]
    Host,
    /// Forwards IP packets.
    Router,
    /// Forwards frames (a kernel bridge).
    Switch,
}

impl NodeKind {
    /// Its name in a scenario file.
    pub fn name(self) -> &'static str {
        match self {
            NodeKind::Host => "host",
            NodeKind::Router => "router",
            NodeKind::Switch => "switch",
        }
    }
}

/// How a router limits the MSS of connections through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MssClamp {
    /// To what the route's MTU allows.
    PathMtu,
    /// To this many bytes.
    To(u16),
}

/// Kinds of ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Icmp {
    /// "Fragmentation needed" (RFC 792 type 3 code 4) and "packet too big" (RFC 4443 type 2).
    FragNeeded,
    /// All (of ICMPv6 not neighbour discovery, without which nothing works).
    All,
}

/// Address translation at a router.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nat {
    /// The link on the public side.
    pub outside: String,
    /// Ports of the public address that lead inside.
    #[serde(default)]
    pub forward: Vec<PortForward>,
    /// Inside nodes reach the forwarded ports by the public address too.
    #[serde(default)]
    pub hairpin: bool,
}

/// A TCP port of the public address, and who answers it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortForward {
    /// The port, on both sides.
    #[serde(deserialize_with = "whole::<_, _, 1, 65_535>")]
    pub port: u16,
    /// Name of the node inside.
    pub to: String,
}

/// A cable between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Unique.
    pub name: String,
    /// What it joins.
    pub ends: [LinkEnd; 2],
    /// From `ends[0]` to `ends[1]`.
    pub forward: Shape,
    /// From `ends[1]` to `ends[0]`.
    pub backward: Shape,
}

/// Where a link meets a node.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkEnd {
    /// Name of the node.
    pub node: String,
    /// Name of the device there, unique in its node, at most 15 bytes.
    pub device: String,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// IPv4 and IPv6 address of the device; none at a switch.
    pub addresses: Vec<Cidr>,
}

/// An address with the length of its network's prefix. Prints as `10.77.1.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Bits of the network.
    pub prefix: u8,
}

/// A route that a node needs besides those of its own devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaticRoute {
    /// The network.
    pub to: Cidr,
    /// The next router's address.
    pub via: IpAddr,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From `ends[0]` to `ends[1]`.
    Forward,
    /// From `ends[1]` to `ends[0]`.
    Backward,
}

/// A step of the script.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptStep {
    /// Since the lab is up.
    pub at: Nanos,
    /// Name of the link.
    pub link: String,
    /// Which direction; a step for both is two changes.
    pub direction: Direction,
    /// The whole shape from then on (the file names only what changes).
    pub shape: Shape,
}

/// TCP transfers of the lab's own, to the discard port of a host: another's load on the same path.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Unique; by default `FROM-TO`.
    #[serde(default, deserialize_with = "scalar")]
    pub name: String,
    /// Host that sends.
    pub from: String,
    /// Host that reads.
    pub to: String,
    /// Connections at a time.
    #[serde(default = "one_stream", deserialize_with = "whole::<_, _, 1, 64>")]
    pub streams: u32,
    /// Congestion control; none: that of the host.
    #[serde(default, deserialize_with = "some")]
    pub congestion: Option<String>,
    /// Each sender writes no faster; none: as fast as it goes.
    #[serde(default, deserialize_with = "some")]
    pub rate: Option<BitRate>,
    /// New connections send for `on`, then there are none for `off`; `off` 0: always.
    #[serde(default, deserialize_with = "span")]
    pub on: Nanos,
    /// See `on`.
    #[serde(default, deserialize_with = "span")]
    pub off: Nanos,
}

fn one_stream() -> u32 {
    1
}

impl From<Scenario> for String {
    fn from(scenario: Scenario) -> String {
        scenario.text
    }
}

impl TryFrom<String> for Scenario {
    type Error = UserFileError;

    fn try_from(text: String) -> Result<Scenario, UserFileError> {
        Scenario::parse(&text, "the scenario")
    }
}

impl Scenario {
    /// Reads a scenario file; `file` names it in errors.
    pub fn parse(text: &str, file: &str) -> Result<Scenario, UserFileError> {
        file::parse(text, file)
    }

    /// The scenarios in the box: name and text of the file.
    pub fn shipped() -> &'static [(&'static str, &'static str)] {
        shipped::ALL
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|n| n.name == name)
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|l| l.name == name)
    }

    /// The ends of links at this node.
    pub fn ends_at<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a Link, &'a LinkEnd)> {
        self.links
            .iter()
            .flat_map(|l| l.ends.iter().map(move |e| (l, e)))
            .filter(move |(_, e)| e.node == node)
    }

    /// True if the link is a cable and stays one: neither direction is shaped, now or by the script.
    pub fn is_plain(&self, link: &Link) -> bool {
        link.forward.is_plain()
            && link.backward.is_plain()
            && !self.script.iter().any(|c| c.link == link.name)
    }

    /// The shortest routes of a node to the networks that it is not in. Networks behind a router with
    /// address translation are not announced to those outside.
    pub fn routes(&self, node: &str) -> Vec<StaticRoute> {
        let links: Vec<&Link> = self.links.iter().collect();
        let segments = segments(&links, &self.nodes);
        let ends_of = |node: &str| -> Vec<(usize, &LinkEnd)> {
            let all = self.links.iter().zip(&segments);
            let ends = all.flat_map(|(link, s)| link.ends.iter().map(|e| (*s, e)));
            ends.filter(|(_, e)| e.node == node).collect()
        };
        let end = |router: &str, of: usize| {
            let mut ends = ends_of(router).into_iter();
            ends.find(|(s, _)| *s == of).map(|(_, end)| end)
        };
        let touches =
            |node: &str| -> BTreeSet<usize> { ends_of(node).into_iter().map(|(s, _)| s).collect() };
        // Breadth first from the node's own segments: (segment, addresses of the first router on the way).
        let mut seen = touches(node);
        let mut ways: VecDeque<(usize, Option<&[Cidr]>)> =
            seen.iter().map(|s| (*s, None)).collect();
        let mut routes = Vec::new();
        while let Some((segment, first)) = ways.pop_front() {
            for router in self.nodes.iter().filter(|n| n.kind == NodeKind::Router) {
                let Some(entry) = end(&router.name, segment).filter(|e| e.node != node) else {
                    continue;
                };
                let outside = router.nat.as_ref().and_then(|nat| {
                    let at = self.links.iter().position(|l| l.name == nat.outside)?;
                    segments.get(at)
                });
                if outside == Some(&segment) {
                    continue;
                }
                let via = first.unwrap_or(&entry.addresses);
                for next in touches(&router.name) {
                    if !seen.insert(next) {
                        continue;
                    }
                    ways.push_back((next, Some(via)));
                    let there = end(&router.name, next).map_or(&[][..], |e| &e.addresses);
                    routes.extend(there.iter().filter_map(|to| {
                        let same = |v: &&Cidr| v.address.is_ipv4() == to.address.is_ipv4();
                        let via = via.iter().find(same)?.address;
                        let to = to.network();
                        Some(StaticRoute { to, via })
                    }));
                }
            }
        }
        routes
    }
}

/// The segment (broadcast domain) of each link: links that meet at a switch share one. A segment's
/// number is the index of its first link.
pub(crate) fn segments(links: &[&Link], nodes: &[Node]) -> Vec<usize> {
    let mut segments: Vec<usize> = (0..links.len()).collect();
    for switch in nodes.iter().filter(|n| n.kind == NodeKind::Switch) {
        let at = |link: &Link| link.ends.iter().any(|e| e.node == switch.name);
        let here = links.iter().zip(&segments).filter(|(link, _)| at(link));
        let here: BTreeSet<usize> = here.map(|(_, s)| *s).collect();
        if let Some(&first) = here.first() {
            for segment in segments.iter_mut().filter(|s| here.contains(s)) {
                *segment = first;
            }
        }
    }
    segments
}

impl Link {
    /// The shape of a direction.
    pub fn shape(&self, direction: Direction) -> &Shape {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Backward => &self.backward,
        }
    }
}

impl Direction {
    /// Forward, then backward.
    pub const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

    /// The reverse direction.
    pub fn other(self) -> Direction {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }
}

impl Cidr {
    /// The network that the address is in: all other bits zero.
    pub fn network(self) -> Cidr {
        let prefix = u32::from(self.prefix);
        let address = match self.address {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
            }
        };
        Cidr { address, ..self }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.address, self.prefix))
    }
}
