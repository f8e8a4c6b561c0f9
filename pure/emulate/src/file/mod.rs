//! The scenario file: TOML to a checked [`Scenario`], every fault with its line and its remedy.

mod shape;
pub(crate) mod value;

pub(crate) use shape::QueueFile;

use crate::{Cidr, Direction, Link, LinkEnd, Nat, Node, NodeKind, Scenario, ScriptStep, Traffic};
use model::{Nanos, SourceText, UserFileError, suggest, toml_fault};
use serde::Deserialize;
use shape::{RawTable, lay, shape};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use value::{AnyScalar, WholeNumber, scalar, some};

/// Longest text that a file may hold, in bytes.
const MAX_FILE: usize = 1 << 20;

/// Most nodes of a lab: each is a network namespace.
const MAX_NODES: usize = 64;

/// Most links of a lab.
const MAX_LINKS: usize = 128;

/// Most transfers of the lab's own.
const MAX_TRAFFIC: usize = 64;

/// Most steps of a script.
const MAX_CHANGES: usize = 10_000;

/// Smallest MTU: what every IPv4 host must take (RFC 791, section 3.1).
const SMALLEST_MTU: i64 = 576;

/// Longest name of a device (IFNAMSIZ less the closing zero).
const LONGEST_DEVICE: usize = 15;

/// The keys that each kind of node has.
const NODE_KEYS: [&str; 3] = [
    "host: name congestion receive_buffer send_buffer offload ecn reads_at drop_icmp drop_icmp_toward",
    "router: name mss_clamp drop_icmp drop_icmp_toward ttl nat",
    "switch: name",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    #[serde(deserialize_with = "scalar")]
    name: String,
    why: String,
    seed: Option<AnyScalar<WholeNumber<0, { (1 << 62) - 1 }>>>,
    #[serde(default)]
    host: Vec<Spanned<Node>>,
    #[serde(default)]
    router: Vec<Spanned<Node>>,
    #[serde(default)]
    switch: Vec<Spanned<Node>>,
    #[serde(default)]
    traffic: Vec<Spanned<Traffic>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    #[serde(default, deserialize_with = "some")]
    name: Option<String>,
    between: [String; 2],
    mtu: Option<Mtus>,
    devices: Option<[AnyScalar<String>; 2]>,
    addresses: Option<[Address; 2]>,
}

/// When a link changes, and in which direction; the other keys of a `[[change]]` shape it.
#[derive(Deserialize)]
struct ChangeFile {
    #[serde(deserialize_with = "scalar")]
    at: Nanos,
    link: String,
    #[serde(default)]
    direction: Toward,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Toward {
    Forward,
    Backward,
    #[default]
    Both,
}

impl Toward {
    fn directions(&self) -> &[Direction] {
        match self {
            Toward::Forward => &[Direction::Forward],
            Toward::Backward => &[Direction::Backward],
            Toward::Both => &Direction::BOTH,
        }
    }
}

/// MTUs in bytes: one of the link, or one of each end.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "no MTU; write an MTU in bytes (1500), or one for each end ([9000, 1500])"
)]
enum Mtus {
    Both(i64),
    Each([i64; 2]),
}

/// The address of an end; `None` for `"auto"`.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Address(Option<Cidr>);

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Address, String> {
        if text == "auto" {
            return Ok(Address(None));
        }
        let cidr = text.split_once('/').and_then(|(address, prefix)| {
            let address = IpAddr::V4(address.parse().ok()?);
            let prefix = prefix.parse().ok().filter(|p| (8..=30).contains(p))?;
            Some(Address(Some(Cidr { address, prefix })))
        });
        let expected = "an IPv4 address with a prefix of 8 to 30 (\"10.0.0.1/24\"), or \"auto\"";
        cidr.ok_or_else(|| format!("found \"{}\"; write {expected}", text.escape_debug()))
    }
}

/// The text of a file, to name its tables in errors.
struct ScenarioText<'a>(SourceText<'a>);

impl ScenarioText<'_> {
    /// Where a line of the table at `at` gives this key.
    fn find(&self, at: usize, key: &str) -> Option<usize> {
        let mut from = at;
        for line in self.0.text.get(at..)?.split_inclusive('\n') {
            let entry = line.trim_start();
            if from > at && entry.starts_with('[') {
                return None;
            }
            let value = entry.strip_prefix(key).map(str::trim_start);
            if value.is_some_and(|v| v.starts_with('=')) {
                return Some(from);
            }
            from += line.len();
        }
        None
    }

    /// The fault of a key in the table at `at`: its line is that of the key, or else that of the table.
    fn fault<T>(
        &self,
        at: usize,
        key: &str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Result<T, UserFileError> {
        Err(self.0.error(self.find(at, key).unwrap_or(at), what, remedy))
    }

    /// Takes an array of tables out of the file.
    fn tables<'a>(
        &self,
        root: &mut DeTable<'a>,
        key: &str,
    ) -> Result<Vec<RawTable<'a>>, UserFileError> {
        let Some(value) = root.remove(key) else {
            return Ok(Vec::new());
        };
        let at = value.span().start;
        match value.into_inner() {
            DeValue::Array(all) => all.into_iter().map(|one| self.table(one)).collect(),
            _ => self.fault(
                at,
                "",
                format!("'{key}' is no list"),
                format!("write [[{key}]]"),
            ),
        }
    }

    fn table<'a>(&self, value: Spanned<DeValue<'a>>) -> Result<RawTable<'a>, UserFileError> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(keys) => Ok(Spanned::new(span, keys)),
            _ => self.fault(
                span.start,
                "",
                "a value instead of keys",
                "write { key = value }",
            ),
        }
    }

    fn read<'a, T: Deserialize<'a>>(&self, table: RawTable<'a>) -> Result<T, UserFileError> {
        T::deserialize(toml::de::Deserializer::from(table)).map_err(|e| self.unread(&e))
    }

    /// What the reader of TOML found wrong.
    fn unread(&self, error: &toml::de::Error) -> UserFileError {
        let at = error.span().map_or(0, |span| span.start);
        let usual = "write key = value, with text in quotes";
        let (what, remedy) = toml_fault(error.message(), usual);
        self.0.error(at, what, remedy)
    }

    /// Refuses a name that is none of `known`; `what` says what names it.
    fn named(
        &self,
        known: &[&str],
        name: &str,
        at: usize,
        key: &str,
        what: &str,
    ) -> Result<(), UserFileError> {
        if known.contains(&name) {
            return Ok(());
        }
        let what = format!("{what} '{}'", name.escape_debug());
        self.fault(at, key, what, suggest(name, known))
    }

    /// Refuses a second thing of one name, and more things than `most`.
    fn distinct<'a>(
        &self,
        names: impl Iterator<Item = (usize, &'a String)>,
        what: &str,
        most: usize,
    ) -> Result<(), UserFileError> {
        let mut seen = BTreeSet::new();
        for (at, name) in names {
            if !seen.insert(name) {
                let what = format!("two {what} are named '{name}'");
                return self.fault(at, "name", what, "give each its own name");
            }
            if seen.len() > most {
                return self.fault(at, "", format!("more than {most} {what}"), "leave some out");
            }
        }
        Ok(())
    }
}

pub(crate) fn parse(text: &str, file: &str) -> Result<Scenario, UserFileError> {
    let source = ScenarioText(SourceText { text, file });
    if text.len() > MAX_FILE {
        let what = format!("the file has more than {MAX_FILE} bytes");
        return Err(source.0.error(0, what, "give a scenario file"));
    }
    let mut root = DeTable::parse(text).map_err(|e| {
        let error = source.unread(&e);
        let what = format!("not TOML: {}", error.what);
        UserFileError { what, ..error }
    })?;
    node_keys(root.get_ref(), &source)?;
    // What shapes a direction is read once all tables that say so are known.
    let links = source.tables(root.get_mut(), "link")?;
    let changes = source.tables(root.get_mut(), "change")?;
    scenario(source.read(root)?, links, changes, &source)
}

/// Refuses a key of another kind of node.
fn node_keys(root: &DeTable<'_>, source: &ScenarioText<'_>) -> Result<(), UserFileError> {
    for (kind, keys) in NODE_KEYS.iter().filter_map(|row| row.split_once(": ")) {
        let keys: Vec<&str> = keys.split(' ').collect();
        let Some(DeValue::Array(nodes)) = root.get(kind).map(Spanned::get_ref) else {
            continue;
        };
        let tables = nodes.iter().filter_map(|node| node.get_ref().as_table());
        for key in tables.flat_map(|table| table.keys()) {
            let name: &str = key.get_ref();
            if !keys.contains(&name) {
                let what = format!("unknown key '{name}' in a {kind}");
                return Err(source.0.error(key.span().start, what, suggest(name, &keys)));
            }
        }
    }
    Ok(())
}

fn scenario<'a>(
    file: ScenarioFile,
    links: Vec<RawTable<'a>>,
    changes: Vec<RawTable<'a>>,
    source: &ScenarioText<'_>,
) -> Result<Scenario, UserFileError> {
    if file.host.is_empty() {
        let what = "the scenario has no host";
        return source.fault(0, "", what, "add [[host]] with a name");
    }
    let kinds = [
        (NodeKind::Host, file.host),
        (NodeKind::Router, file.router),
        (NodeKind::Switch, file.switch),
    ];
    let all = kinds.into_iter().flat_map(|(kind, nodes)| {
        nodes.into_iter().map(move |node| {
            let at = node.span().start;
            let node = node.into_inner();
            (at, Node { kind, ..node })
        })
    });
    let (places, nodes): (Vec<usize>, Vec<Node>) = all.unzip();
    let names = nodes.iter().map(|n| &n.name);
    source.distinct(places.iter().copied().zip(names), "nodes", MAX_NODES)?;
    let mut drafts: Vec<Draft<'a>> = Vec::new();
    for link in links {
        drafts.push(draft(link, &nodes, &drafts, source)?);
    }
    let names = drafts.iter().map(|d| (d.at, &d.link.name));
    source.distinct(names, "links", MAX_LINKS)?;
    loops(&drafts, &nodes, source)?;
    addresses(&mut drafts, &nodes, source)?;
    for (at, node) in places.iter().zip(&nodes) {
        references(node, *at, &nodes, &drafts, source)?;
    }
    Ok(Scenario {
        text: source.0.text.to_owned(),
        name: file.name,
        why: file.why,
        seed: file.seed.map_or(1, |of| of.0.0),
        script: script(changes, &mut drafts, source)?,
        traffic: traffic(file.traffic, &nodes, source)?,
        nodes,
        links: drafts.into_iter().map(|d| d.link).collect(),
    })
}

/// Checks the nodes and links that a node names, and that it has a link.
fn references(
    node: &Node,
    at: usize,
    nodes: &[Node],
    drafts: &[Draft<'_>],
    source: &ScenarioText<'_>,
) -> Result<(), UserFileError> {
    let Node { name, kind, .. } = node;
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    let own = drafts.iter().map(|d| &d.link);
    let own = own.filter(|l| l.ends.iter().any(|e| e.node == *name));
    let own: Vec<&str> = own.map(|l| l.name.as_str()).collect();
    let unknown = format!("'{name}' names the unknown node");
    for to in &node.drop_icmp_toward {
        source.named(&names, to, at, "drop_icmp_toward", &unknown)?;
    }
    if node.drop_icmp.is_none() && !node.drop_icmp_toward.is_empty() {
        let what = "'drop_icmp_toward' without 'drop_icmp'";
        let remedy = "add drop_icmp = \"frag-needed\" or \"all\"";
        return source.fault(at, "drop_icmp_toward", what, remedy);
    }
    if let Some(Nat {
        outside, forward, ..
    }) = &node.nat
    {
        let what = format!("router '{name}' has no link");
        source.named(&own, outside, at, "nat", &what)?;
        let mut ports = BTreeSet::new();
        for forward in forward {
            source.named(&names, &forward.to, at, "nat", &unknown)?;
            if !ports.insert(forward.port) {
                let what = format!("port {} is forwarded twice", forward.port);
                return source.fault(at, "nat", what, "keep one of them");
            }
        }
    }
    if own.is_empty() {
        let what = format!("{} '{name}' has no link", kind.name());
        let remedy = "add a [[link]] with it in 'between', or remove it";
        return source.fault(at, "name", what, remedy);
    }
    Ok(())
}

/// A link, its place in the file, and the addresses that the file gives to its ends.
struct Draft<'a> {
    at: usize,
    link: Link,
    given: [Option<Cidr>; 2],
    /// The keys that shape both directions by now.
    shapes: [RawTable<'a>; 2],
}

fn draft<'a>(
    mut keys: RawTable<'a>,
    nodes: &[Node],
    before: &[Draft<'_>],
    source: &ScenarioText<'_>,
) -> Result<Draft<'a>, UserFileError> {
    let at = keys.span().start;
    let mut part = |key| match keys.get_mut().remove(key) {
        Some(table) => source.table(table),
        None => Ok(Spanned::new(at..at, DeTable::new())),
    };
    let both = part("both")?;
    let mut shapes = [part("")?, part("")?];
    for (shape, own) in shapes.iter_mut().zip(["forward", "backward"]) {
        lay(&both, shape);
        lay(&part(own)?, shape);
    }
    let file: LinkFile = source.read(keys)?;
    let [a, b] = &file.between;
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    for name in [a, b] {
        source.named(&names, name, at, "between", "a link to the unknown node")?;
    }
    if a == b {
        let what = format!("a link from '{a}' to itself");
        return source.fault(at, "between", what, "name two different nodes");
    }
    let mtus = match file.mtu {
        None => [1500; 2],
        Some(Mtus::Both(mtu)) => [mtu; 2],
        Some(Mtus::Each(mtus)) => mtus,
    };
    if let Some(mtu) = mtus.into_iter().find(|mtu| *mtu < SMALLEST_MTU) {
        let remedy = format!("write at least {SMALLEST_MTU} (IPv6 needs 1280)");
        return source.fault(at, "mtu", format!("an MTU of {mtu} is too small"), remedy);
    }
    if let Some(mtu) = mtus.into_iter().find(|mtu| *mtu > 65_535) {
        let what = format!("an MTU of {mtu} is too large");
        return source.fault(at, "mtu", what, "write at most 65535");
    }
    let end = |node: &String, named: Option<String>, mtu: i64| {
        let ends = before.iter().flat_map(|d| &d.link.ends);
        let ends = ends.filter(|e| e.node == *node);
        let taken: BTreeSet<&str> = ends.map(|e| e.device.as_str()).collect();
        if let Some(device) = &named {
            if device.len() > LONGEST_DEVICE || device == "lo" {
                let what = format!("'{device}' cannot be the name of a device");
                let remedy = format!("write at most {LONGEST_DEVICE} letters, not 'lo'");
                return source.fault(at, "devices", what, remedy);
            }
            if taken.contains(device.as_str()) {
                let what = format!("'{node}' has two devices '{device}'");
                return source.fault(at, "devices", what, "give each its own name");
            }
        }
        let mut free = (0..).map(|n| format!("eth{n}"));
        let free = free.find(|device| !taken.contains(device.as_str()));
        Ok(LinkEnd {
            node: node.clone(),
            device: named.or(free).unwrap_or_default(),
            mtu: mtu as u32,
            addresses: Vec::new(),
        })
    };
    let devices = file.devices.map(|d| d.map(|of| Some(of.0)));
    let [device_a, device_b] = devices.unwrap_or_default();
    let ends = [end(a, device_a, mtus[0])?, end(b, device_b, mtus[1])?];
    let name = file.name.unwrap_or_else(|| format!("{a}-{b}"));
    let mtu = mtus[0].max(mtus[1]) as u32;
    let read = |of: usize| shape(&shapes[of], &name, mtu, source);
    let (forward, backward) = (read(0)?, read(1)?);
    if forward.half_duplex != backward.half_duplex {
        let what = format!("link '{name}' is half-duplex in one direction only");
        return source.fault(at, "", what, "move half_duplex = true to [link.both]");
    }
    Ok(Draft {
        at,
        given: file.addresses.map_or([None; 2], |a| a.map(|given| given.0)),
        link: Link {
            name,
            ends,
            forward,
            backward,
        },
        shapes,
    })
}

/// Refuses rings of switches, in which a broadcast would run for ever.
fn loops(
    drafts: &[Draft<'_>],
    nodes: &[Node],
    source: &ScenarioText<'_>,
) -> Result<(), UserFileError> {
    let switches = nodes.iter().filter(|n| n.kind == NodeKind::Switch);
    let alone = switches.map(|switch| BTreeSet::from([switch.name.as_str()]));
    let mut joined: Vec<BTreeSet<&str>> = alone.collect();
    for draft in drafts {
        let [a, b] = &draft.link.ends;
        let group = |end: &LinkEnd| joined.iter().position(|g| g.contains(end.node.as_str()));
        let (Some(a), Some(b)) = (group(a), group(b)) else {
            continue;
        };
        if a == b {
            let what = format!("link '{}' closes a loop of switches", draft.link.name);
            let remedy =
                "remove one of its links, or put a router in: frames would circle for ever";
            return source.fault(draft.at, "between", what, remedy);
        }
        let other = joined.swap_remove(a.max(b));
        joined[a.min(b)].extend(other);
    }
    Ok(())
}

/// Gives every end at a host or router an IPv4 and an IPv6 address, one network for each segment:
/// 10.77.N.0/24, or what the file gives, and fd77:0:0:N::/64 where the MTU allows IPv6.
fn addresses(
    drafts: &mut [Draft<'_>],
    nodes: &[Node],
    source: &ScenarioText<'_>,
) -> Result<(), UserFileError> {
    let links: Vec<&Link> = drafts.iter().map(|d| &d.link).collect();
    let segments = crate::scenario::segments(&links, nodes);
    let switches = nodes.iter().filter(|n| n.kind == NodeKind::Switch);
    let switches: BTreeSet<&str> = switches.map(|n| n.name.as_str()).collect();
    let mut taken: BTreeSet<IpAddr> = BTreeSet::new();
    let mut networks: BTreeMap<usize, Cidr> = BTreeMap::new();
    let mut ipv6: BTreeMap<usize, bool> = BTreeMap::new();
    for (draft, segment) in drafts.iter().zip(&segments) {
        for (end, given) in draft.link.ends.iter().zip(draft.given) {
            *ipv6.entry(*segment).or_insert(true) &= end.mtu >= 1280;
            let Some(cidr) = given else { continue };
            let fail =
                |what: String, remedy: &str| source.fault(draft.at, "addresses", what, remedy);
            if switches.contains(end.node.as_str()) {
                let what = format!("the switch '{}' has an address", end.node);
                return fail(what, "write \"auto\" for its end: it gets none");
            }
            if !taken.insert(cidr.address) {
                return fail(format!("{} is given twice", cidr.address), "change one");
            }
            let network = *networks.entry(*segment).or_insert(cidr.network());
            if network != cidr.network() {
                let what = format!("{cidr} is not in {network}, the network of its neighbours");
                let remedy = "give all ends on one segment addresses of one network";
                return fail(what, remedy);
            }
        }
    }
    // Number of each segment among all, and of the last address in it.
    let mut numbers: BTreeMap<usize, (u16, u16)> = BTreeMap::new();
    for segment in &segments {
        let next = numbers.len() as u16;
        numbers.entry(*segment).or_insert((next, 0));
    }
    for (draft, segment) in drafts.iter_mut().zip(&segments) {
        let Some((number, last)) = numbers.get_mut(segment) else {
            continue;
        };
        let network = *networks.entry(*segment).or_insert(Cidr {
            address: IpAddr::from([10, 77, *number as u8, 0]),
            prefix: 24,
        });
        for (end, given) in draft.link.ends.iter_mut().zip(draft.given) {
            if switches.contains(end.node.as_str()) {
                continue;
            }
            let Some(v4) = given.or_else(|| free(network, &mut taken)) else {
                let what = format!("{network} has no free address for '{}'", end.node);
                return source.fault(draft.at, "addresses", what, "give a shorter prefix");
            };
            end.addresses.push(v4);
            *last += 1;
            if ipv6[segment] {
                end.addresses.push(Cidr {
                    address: IpAddr::from([0xfd77, 0, 0, *number, 0, 0, 0, *last]),
                    prefix: 64,
                });
            }
        }
    }
    Ok(())
}

/// The lowest address of an IPv4 network that is not taken, and takes it.
fn free(network: Cidr, taken: &mut BTreeSet<IpAddr>) -> Option<Cidr> {
    let IpAddr::V4(base) = network.address else {
        return None;
    };
    let last = (1u32 << (32 - u32::from(network.prefix))) - 1;
    let address = (1..last)
        .map(|n| IpAddr::from((base.to_bits() + n).to_be_bytes()))
        .find(|a| !taken.contains(a))?;
    taken.insert(address);
    Some(Cidr { address, ..network })
}

fn script<'a>(
    changes: Vec<RawTable<'a>>,
    drafts: &mut [Draft<'a>],
    source: &ScenarioText<'_>,
) -> Result<Vec<ScriptStep>, UserFileError> {
    if let Some(change) = changes.get(MAX_CHANGES) {
        let what = format!("more than {MAX_CHANGES} changes");
        return source.fault(change.span().start, "", what, "leave some out");
    }
    let mut all = Vec::new();
    for mut change in changes {
        let own = ["at", "link", "direction"].map(|key| change.get_mut().remove_entry(key));
        let head = Spanned::new(change.span(), own.into_iter().flatten().collect());
        all.push((source.read::<ChangeFile>(head)?, change));
    }
    all.sort_by_key(|(head, _)| head.at);
    let names: Vec<&str> = drafts.iter().map(|d| d.link.name.as_str()).collect();
    for (ChangeFile { link, .. }, keys) in &all {
        let place = keys.span().start;
        source.named(&names, link, place, "link", "a change of the unknown link")?;
        if keys.get_ref().get("half_duplex").is_some() {
            let what = "half_duplex cannot change while the lab runs";
            return source.fault(place, "half_duplex", what, "set it in [link.both]");
        }
    }
    let mut script = Vec::new();
    for (head, keys) in &all {
        for Draft { link, shapes, .. } in drafts.iter_mut().filter(|d| d.link.name == head.link) {
            let mtu = link.ends[0].mtu.max(link.ends[1].mtu);
            for &direction in head.direction.directions() {
                let table = &mut shapes[direction as usize];
                lay(keys, table);
                script.push(ScriptStep {
                    at: head.at,
                    link: link.name.clone(),
                    direction,
                    shape: shape(table, &link.name, mtu, source)?,
                });
            }
        }
    }
    Ok(script)
}

fn traffic(
    files: Vec<Spanned<Traffic>>,
    nodes: &[Node],
    source: &ScenarioText<'_>,
) -> Result<Vec<Traffic>, UserFileError> {
    let hosts = nodes.iter().filter(|n| n.kind == NodeKind::Host);
    let hosts: Vec<&str> = hosts.map(|n| n.name.as_str()).collect();
    let mut all: Vec<(usize, Traffic)> = Vec::new();
    for file in files {
        let (at, mut traffic) = (file.span().start, file.into_inner());
        let Traffic { from, to, .. } = &traffic;
        source.named(&hosts, from, at, "from", "'from' names the unknown host")?;
        source.named(&hosts, to, at, "to", "'to' names the unknown host")?;
        if from == to {
            let what = format!("traffic from '{from}' to itself");
            return source.fault(at, "to", what, "name two different hosts");
        }
        if (traffic.on.0 == 0) != (traffic.off.0 == 0) {
            let what = "traffic has one of 'on' and 'off'";
            let remedy = "give both, or neither for traffic that never ends";
            return source.fault(at, "", what, remedy);
        }
        if traffic.name.is_empty() {
            traffic.name = format!("{from}-{to}");
        }
        all.push((at, traffic));
    }
    let names = all.iter().map(|(at, traffic)| (*at, &traffic.name));
    source.distinct(names, "kinds of traffic", MAX_TRAFFIC)?;
    Ok(all.into_iter().map(|(_, traffic)| traffic).collect())
}
