//! The scenario file: TOML to a checked [`Scenario`], every fault with its line and its remedy.

mod shape;
mod table;

use crate::{
    Change, Cidr, Direction, End, Error, Host, Icmp, IcmpFilter, Link, MssClamp, Nat, Node,
    NodeKind, PortForward, Router, Scenario, Shape, Traffic,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use table::{Source, Table, Value, suggest};
use toml::de::DeTable;

/// Most nodes of a lab: each is a network namespace.
const MAX_NODES: usize = 64;

/// Most links of a lab.
const MAX_LINKS: usize = 128;

/// Most transfers of the lab's own, and connections of one.
const MAX_TRAFFIC: usize = 64;
const MAX_STREAMS: u64 = 64;

/// Most steps of a script.
const MAX_CHANGES: usize = 10_000;

/// Smallest MTU: what every IPv4 host must take (RFC 791, section 3.1).
const SMALLEST_MTU: u64 = 576;

/// Longest name of a device (IFNAMSIZ less the closing zero).
const LONGEST_DEVICE: usize = 15;

/// What of a link is read before what it joins can be checked.
struct Draft<'s, 'a> {
    table: Table<'s, 'a>,
    link: Link,
    /// Addresses that the file gives to the ends.
    given: [Option<Cidr>; 2],
}

pub(crate) fn parse(text: &str, file: &str) -> Result<Scenario, Error> {
    let source = Source { text, file };
    let root = source.root()?;
    let keys = [
        "name", "why", "seed", "host", "router", "switch", "link", "change", "traffic",
    ];
    let top = Table::open(&source, "the scenario", root.get_ref(), 0, &keys)?;
    let name = name_of(top.need("name", "\"my-lab\"")?)?;
    let why = top
        .need("why", "\"a sentence on why these numbers\"")?
        .text("a sentence in quotes")?;
    let nodes = nodes(&top)?;
    let mut drafts = links(&top, &nodes)?;
    loops(&drafts, &nodes)?;
    addresses(&mut drafts, &nodes)?;
    routers(&top, &nodes, &drafts)?;
    let script = script(&top, &drafts)?;
    let scenario = Scenario {
        name,
        why: why.to_owned(),
        seed: top.read("seed", |v| v.whole(0..1 << 62))?.unwrap_or(1),
        traffic: traffic(&top, &nodes)?,
        nodes,
        links: drafts.into_iter().map(|d| d.link).collect(),
        script,
    };
    for (key, node) in tables(&top)? {
        let name = node.need("name", "\"a\"")?;
        if scenario.ends_at(name.text("")?).next().is_none() {
            let what = format!("{key} '{}' has no link", name.text("")?);
            return Err(name.fail(what, "add a [[link]] with it in 'between', or remove it"));
        }
    }
    Ok(scenario)
}

/// A name fit for a file, a namespace and a shell.
fn name_of(value: Value<'_, '_, '_>) -> Result<String, Error> {
    let expected = "a name in quotes";
    let name = value.text(expected)?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 32 || !name.chars().all(plain) || name.starts_with('-') {
        return Err(value.fail(
            format!("'{}' cannot be a name", name.escape_debug()),
            "write 1 to 32 of a-z, 0-9 and '-', not beginning with '-'",
        ));
    }
    Ok(name.to_owned())
}

const HOST_KEYS: [&str; 9] = [
    "name",
    "congestion",
    "receive_buffer",
    "send_buffer",
    "offload",
    "ecn",
    "reads_at",
    "drop_icmp",
    "drop_icmp_toward",
];
const ROUTER_KEYS: [&str; 6] = [
    "name",
    "mss_clamp",
    "drop_icmp",
    "drop_icmp_toward",
    "ttl",
    "nat",
];

/// Every node's table, with its kind.
fn tables<'s, 'a>(top: &Table<'s, 'a>) -> Result<Vec<(&'static str, Table<'s, 'a>)>, Error> {
    let kinds: [(&str, &[&str]); 3] = [
        ("host", &HOST_KEYS),
        ("router", &ROUTER_KEYS),
        ("switch", &["name"]),
    ];
    let mut all = Vec::new();
    for (kind, keys) in kinds {
        for (entries, at) in top.each(kind)? {
            let table = Table::open(top.source, format!("a {kind}"), entries, at, keys)?;
            all.push((kind, table));
        }
    }
    Ok(all)
}

fn nodes(top: &Table<'_, '_>) -> Result<Vec<Node>, Error> {
    let mut nodes: Vec<Node> = Vec::new();
    for (kind, table) in tables(top)? {
        let value = table.need("name", "\"a\"")?;
        let name = name_of(value)?;
        if nodes.iter().any(|n| n.name == name) {
            let what = format!("two nodes are named '{name}'");
            return Err(value.fail(what, "give each host, router and switch its own name"));
        }
        if nodes.len() == MAX_NODES {
            let what = format!("more than {MAX_NODES} nodes");
            return Err(value.fail(what, "leave some out"));
        }
        let kind = match kind {
            "host" => NodeKind::Host(host(&table)?),
            "router" => NodeKind::Router(router(&table)?),
            _ => NodeKind::Switch,
        };
        nodes.push(Node { name, kind });
    }
    if !nodes.iter().any(|n| matches!(n.kind, NodeKind::Host(_))) {
        let what = "the scenario has no host";
        return Err(top.source.fail(0, what, "add [[host]] with a name"));
    }
    Ok(nodes)
}

fn host(table: &Table<'_, '_>) -> Result<Host, Error> {
    Ok(Host {
        congestion: table.read("congestion", name_of)?,
        receive_buffer: table.read("receive_buffer", |v| v.bytes())?,
        send_buffer: table.read("send_buffer", |v| v.bytes())?,
        offload: table.read("offload", |v| v.boolean())?.unwrap_or(true),
        ecn: table.read("ecn", |v| v.boolean())?.unwrap_or(false),
        icmp: icmp(table)?,
        reads_at: table.read("reads_at", |v| v.rate())?,
    })
}

fn router(table: &Table<'_, '_>) -> Result<Router, Error> {
    Ok(Router {
        mss_clamp: table.read("mss_clamp", |v| match v.is_number() {
            true => Ok(MssClamp::To(v.whole(88..65_496)? as u16)),
            false if v.text("\"path-mtu\" or a size")? == "path-mtu" => Ok(MssClamp::PathMtu),
            false => {
                let what = format!("'mss_clamp' is \"{}\"", v.text("")?.escape_debug());
                Err(v.fail(what, "write \"path-mtu\", or a size in bytes (1440)"))
            }
        })?,
        icmp: icmp(table)?,
        ttl: table.read("ttl", |v| Ok(v.whole(1..256)? as u8))?,
        nat: table.read("nat", nat)?,
    })
}

fn icmp(table: &Table<'_, '_>) -> Result<Option<IcmpFilter>, Error> {
    let toward = table.read("drop_icmp_toward", |v| {
        let expected = "a list of names of nodes";
        v.list(expected)?.iter().map(|n| name_of(*n)).collect()
    })?;
    let expected = "\"frag-needed\" or \"all\"";
    let drop = table.read("drop_icmp", |v| match v.text(expected)? {
        "frag-needed" => Ok(Icmp::FragNeeded),
        "all" => Ok(Icmp::All),
        other => Err(v.fail(
            format!("'drop_icmp' is \"{}\"", other.escape_debug()),
            format!("write {expected}"),
        )),
    })?;
    if drop.is_none() && toward.is_some() {
        let at = table.place("drop_icmp_toward");
        let what = "'drop_icmp_toward' without 'drop_icmp'";
        return Err(table
            .source
            .fail(at, what, format!("add drop_icmp = {expected}")));
    }
    Ok(drop.map(|drop| IcmpFilter {
        drop,
        toward: toward.unwrap_or_default(),
    }))
}

fn nat(value: Value<'_, '_, '_>) -> Result<Nat, Error> {
    let table = value.table("nat", &["outside", "forward", "hairpin"])?;
    let mut forward: Vec<PortForward> = Vec::new();
    if let Some(list) = table.get("forward") {
        for one in list.list("a list of tables with port and to")? {
            let t = one.table("a forwarded port", &["port", "to"])?;
            let port = t.need("port", "80")?;
            let number = port.whole(1..65_536)? as u16;
            if forward.iter().any(|f| f.port == number) {
                let what = format!("port {number} is forwarded twice");
                return Err(port.fail(what, "keep one of them"));
            }
            forward.push(PortForward {
                port: number,
                to: name_of(t.need("to", "\"server\"")?)?,
            });
        }
    }
    Ok(Nat {
        outside: name_of(table.need("outside", "\"wan\"")?)?,
        forward,
        hairpin: table.read("hairpin", |v| v.boolean())?.unwrap_or(false),
    })
}

/// Checks what nodes say of other nodes and of links.
fn routers(top: &Table<'_, '_>, nodes: &[Node], drafts: &[Draft<'_, '_>]) -> Result<(), Error> {
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    for ((_, table), node) in tables(top)?.iter().zip(nodes) {
        let (icmp, nat) = match &node.kind {
            NodeKind::Host(h) => (&h.icmp, &None),
            NodeKind::Router(r) => (&r.icmp, &r.nat),
            NodeKind::Switch => continue,
        };
        let unknown = |key: &str, name: &str| {
            let what = format!("'{}' names the unknown node '{name}'", node.name);
            table
                .source
                .fail(table.place(key), what, suggest(name, &names))
        };
        let mut toward = icmp.iter().flat_map(|i| &i.toward);
        if let Some(name) = toward.find(|t| !names.contains(&t.as_str())) {
            return Err(unknown("drop_icmp_toward", name));
        }
        let Some(nat) = nat else { continue };
        if let Some(f) = nat.forward.iter().find(|f| !names.contains(&f.to.as_str())) {
            return Err(unknown("nat", &f.to));
        }
        let own: Vec<&str> = drafts
            .iter()
            .filter(|d| d.link.ends.iter().any(|e| e.node == node.name))
            .map(|d| d.link.name.as_str())
            .collect();
        if !own.contains(&nat.outside.as_str()) {
            let what = format!("router '{}' has no link '{}'", node.name, nat.outside);
            let at = table.place("nat");
            return Err(table.source.fail(at, what, suggest(&nat.outside, &own)));
        }
    }
    Ok(())
}

fn links<'s, 'a>(top: &Table<'s, 'a>, nodes: &[Node]) -> Result<Vec<Draft<'s, 'a>>, Error> {
    let mut drafts: Vec<Draft<'s, 'a>> = Vec::new();
    let mut devices: BTreeSet<(String, String)> = BTreeSet::new();
    for (entries, at) in top.each("link")? {
        let draft = link(top, entries, at, nodes, &mut devices)?;
        if drafts.iter().any(|d| d.link.name == draft.link.name) {
            let what = format!("two links are named '{}'", draft.link.name);
            let at = draft.table.place("name");
            return Err(top.source.fail(at, what, "give each its own name"));
        }
        if drafts.len() == MAX_LINKS {
            let what = format!("more than {MAX_LINKS} links");
            return Err(top.source.fail(at, what, "leave some out"));
        }
        drafts.push(draft);
    }
    Ok(drafts)
}

const LINK_KEYS: [&str; 8] = [
    "name",
    "between",
    "mtu",
    "devices",
    "addresses",
    "both",
    "forward",
    "backward",
];

fn link<'s, 'a>(
    top: &Table<'s, 'a>,
    entries: &'s DeTable<'a>,
    at: usize,
    nodes: &[Node],
    devices: &mut BTreeSet<(String, String)>,
) -> Result<Draft<'s, 'a>, Error> {
    let mut table = Table::open(top.source, "a link", entries, at, &LINK_KEYS)?;
    let between = table.need("between", "[\"a\", \"b\"]")?;
    let [a, b] = between.pair("the names of two nodes ([\"a\", \"b\"])")?;
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    for end in [a, b] {
        let name = end.text("the name of a node")?;
        if !names.contains(&name) {
            let what = format!("a link to the unknown node '{}'", name.escape_debug());
            return Err(end.fail(what, suggest(name, &names)));
        }
    }
    let (a, b) = (name_of(a)?, name_of(b)?);
    if a == b {
        let what = format!("a link from '{a}' to itself");
        return Err(between.fail(what, "name two different nodes"));
    }
    let name = match table.get("name") {
        Some(name) => name_of(name)?,
        None => format!("{a}-{b}"),
    };
    table.subject = format!("link '{name}'");

    let mtu = mtus(&table)?;
    let mut named: [Option<String>; 2] = [None, None];
    if let Some(value) = table.get("devices") {
        for (into, v) in named.iter_mut().zip(value.pair("two names of devices")?) {
            let device = name_of(v)?;
            if device.len() > LONGEST_DEVICE || device == "lo" {
                let what = format!("'{device}' cannot be the name of a device");
                let remedy = format!("write at most {LONGEST_DEVICE} letters, not 'lo'");
                return Err(v.fail(what, remedy));
            }
            *into = Some(device);
        }
    }
    let mut end = |node: String, device: Option<String>, mtu: u32| {
        let free = |d: &String| !devices.contains(&(node.clone(), d.clone()));
        let device = device.unwrap_or_else(|| {
            let mut all = (0..).map(|n| format!("eth{n}"));
            all.find(free).expect("a node has fewer links than numbers")
        });
        if !devices.insert((node.clone(), device.clone())) {
            let what = format!("'{node}' has two devices '{device}'");
            let at = table.place("devices");
            return Err(top.source.fail(at, what, "give each its own name"));
        }
        Ok(End {
            node,
            device,
            mtu,
            addresses: Vec::new(),
        })
    };
    let [device_a, device_b] = named;
    let ends = [end(a, device_a, mtu[0])?, end(b, device_b, mtu[1])?];
    let (forward, backward) = shapes(&table, mtu[0].max(mtu[1]))?;
    let mut given = [None, None];
    if let Some(value) = table.get("addresses") {
        let pair = value.pair("the addresses of both ends ([\"10.0.0.1/24\", \"auto\"])")?;
        for (into, v) in given.iter_mut().zip(pair) {
            *into = address(v)?;
        }
    }
    Ok(Draft {
        link: Link {
            name,
            ends,
            forward,
            backward,
        },
        table,
        given,
    })
}

fn mtus(table: &Table<'_, '_>) -> Result<[u32; 2], Error> {
    let one = |v: Value<'_, '_, '_>| {
        if v.is_number() && v.whole(0..SMALLEST_MTU).is_ok() {
            let what = format!("an MTU of {} is too small", v.whole(0..SMALLEST_MTU)?);
            let remedy = format!("write at least {SMALLEST_MTU} (IPv6 needs 1280)");
            return Err(v.fail(what, remedy));
        }
        Ok(v.whole(SMALLEST_MTU..65_536)? as u32)
    };
    match table.get("mtu") {
        None => Ok([1500; 2]),
        Some(v) if v.is_number() => one(v).map(|m| [m; 2]),
        Some(v) => {
            let [a, b] = v.pair("an MTU in bytes (1500), or one for each end ([9000, 1500])")?;
            Ok([one(a)?, one(b)?])
        }
    }
}

fn address(value: Value<'_, '_, '_>) -> Result<Option<Cidr>, Error> {
    let expected = "an IPv4 address with its prefix (\"10.0.0.1/24\"), or \"auto\"";
    let text = value.text(expected)?;
    if text == "auto" {
        return Ok(None);
    }
    let cidr = text.split_once('/').and_then(|(address, prefix)| {
        let address = IpAddr::V4(address.parse().ok()?);
        let prefix = prefix.parse().ok().filter(|p| (8..=30).contains(p))?;
        Some(Cidr { address, prefix })
    });
    let Some(cidr) = cidr else {
        let what = format!("'{}' is no such address", text.escape_debug());
        return Err(value.fail(what, format!("write {expected}, prefix 8 to 30")));
    };
    Ok(Some(cidr))
}

fn shapes(link: &Table<'_, '_>, mtu: u32) -> Result<(Shape, Shape), Error> {
    let open = |key: &str| {
        link.read(key, |v| {
            v.table(format!("{}, {key}", link.subject), &shape::KEYS)
        })
    };
    let both = open("both")?;
    let base = match &both {
        Some(table) => shape::patch(table, &Shape::default(), mtu)?,
        None => Shape::default(),
    };
    let one = |key: &str| {
        let own = open(key)?;
        let shape = match &own {
            Some(table) => shape::patch(table, &base, mtu)?,
            None => base.clone(),
        };
        let tables: Vec<&Table<'_, '_>> = own.iter().chain(&both).collect();
        shape::consistent(&tables, &shape)?;
        Ok(shape)
    };
    let (forward, backward) = (one("forward")?, one("backward")?);
    if forward.half_duplex != backward.half_duplex {
        let what = format!("{} is half-duplex in one direction only", link.subject);
        let remedy = "move half_duplex = true to [link.both]";
        return Err(link.source.fail(link.at, what, remedy));
    }
    Ok((forward, backward))
}

/// Refuses rings of switches, in which a broadcast would run for ever.
fn loops(drafts: &[Draft<'_, '_>], nodes: &[Node]) -> Result<(), Error> {
    let is_switch = |name: &str| {
        let mut all = nodes.iter();
        all.any(|n| n.name == name && matches!(n.kind, NodeKind::Switch))
    };
    let mut group: BTreeMap<&str, &str> = BTreeMap::new();
    for draft in drafts {
        let [a, b] = &draft.link.ends;
        if !is_switch(&a.node) || !is_switch(&b.node) {
            continue;
        }
        let find = |group: &BTreeMap<&str, &'_ str>, of: &str| {
            group
                .get(of)
                .map_or_else(|| of.to_owned(), |g| (*g).to_owned())
        };
        let (ga, gb) = (find(&group, &a.node), find(&group, &b.node));
        if ga == gb {
            let what = format!("link '{}' closes a loop of switches", draft.link.name);
            let remedy =
                "remove one of its links, or put a router in: frames would circle for ever";
            let at = draft.table.place("between");
            return Err(draft.table.source.fail(at, what, remedy));
        }
        group.entry(&a.node).or_insert(&a.node);
        group.entry(&b.node).or_insert(&b.node);
        let leader = group[a.node.as_str()];
        for value in group.values_mut() {
            if **value == *gb {
                *value = leader;
            }
        }
    }
    Ok(())
}

/// Gives every end at a host or router an IPv4 and an IPv6 address, one network for each segment:
/// 10.77.N.0/24, or what the file gives, and fd77:0:0:N::/64 where the MTU allows IPv6.
fn addresses(drafts: &mut [Draft<'_, '_>], nodes: &[Node]) -> Result<(), Error> {
    let links: Vec<&Link> = drafts.iter().map(|d| &d.link).collect();
    let segments = crate::scenario::segments(&links, nodes);
    let mut taken: BTreeSet<IpAddr> = BTreeSet::new();
    let mut networks: BTreeMap<usize, Cidr> = BTreeMap::new();
    for (draft, segment) in drafts.iter().zip(&segments) {
        for (end, given) in draft.link.ends.iter().zip(draft.given) {
            let Some(cidr) = given else { continue };
            let fail = |what: String, remedy: &str| {
                let at = draft.table.place("addresses");
                Err(draft.table.source.fail(at, what, remedy))
            };
            if is(nodes, &end.node, |k| matches!(k, NodeKind::Switch)) {
                let what = format!("the switch '{}' has an address", end.node);
                return fail(what, "write \"auto\" for its end: it gets none");
            }
            if !taken.insert(cidr.address) {
                return fail(format!("{} is given twice", cidr.address), "change one");
            }
            let network = *networks.entry(*segment).or_insert(cidr.network());
            if network != cidr.network() {
                let what = format!("{cidr} is not in {network}, the network of its neighbours");
                return fail(
                    what,
                    "give all ends on one segment addresses of one network",
                );
            }
        }
    }
    let by_segment: BTreeSet<usize> = segments.iter().copied().collect();
    for (number, segment) in by_segment.into_iter().enumerate() {
        let number = number as u16;
        let network = *networks.entry(segment).or_insert(Cidr {
            address: IpAddr::from([10, 77, number as u8, 0]),
            prefix: 24,
        });
        let mut mine: Vec<&mut Draft<'_, '_>> = drafts
            .iter_mut()
            .zip(&segments)
            .filter(|(_, s)| **s == segment)
            .map(|(d, _)| d)
            .collect();
        let ipv6 = mine
            .iter()
            .all(|d| d.link.ends.iter().all(|e| e.mtu >= 1280));
        let mut next6 = 0;
        for draft in &mut mine {
            for (end, given) in draft.link.ends.iter_mut().zip(draft.given) {
                if is(nodes, &end.node, |k| matches!(k, NodeKind::Switch)) {
                    continue;
                }
                let v4 = given.or_else(|| free(network, &mut taken)).ok_or_else(|| {
                    let what = format!("{network} has no free address for '{}'", end.node);
                    let at = draft.table.place("addresses");
                    let remedy = "give a shorter prefix";
                    draft.table.source.fail(at, what, remedy)
                })?;
                end.addresses.push(v4);
                next6 += 1;
                if ipv6 {
                    end.addresses.push(Cidr {
                        address: IpAddr::from([0xfd77, 0, 0, number, 0, 0, 0, next6]),
                        prefix: 64,
                    });
                }
            }
        }
    }
    Ok(())
}

fn is(nodes: &[Node], name: &str, what: impl Fn(&NodeKind) -> bool) -> bool {
    nodes.iter().any(|n| n.name == name && what(&n.kind))
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

fn script(top: &Table<'_, '_>, drafts: &[Draft<'_, '_>]) -> Result<Vec<Change>, Error> {
    let keys: Vec<&str> = ["at", "link", "direction"]
        .into_iter()
        .chain(shape::KEYS)
        .collect();
    let tables = top.each("change")?;
    if tables.len() > MAX_CHANGES {
        let what = format!("more than {MAX_CHANGES} changes");
        return Err(top
            .source
            .fail(tables[MAX_CHANGES].1, what, "leave some out"));
    }
    let mut steps = Vec::new();
    for (entries, at) in tables {
        let table = Table::open(top.source, "a change", entries, at, &keys)?;
        steps.push((table.need("at", "\"5s\"")?.time()?, table));
    }
    steps.sort_by_key(|(at, _)| *at);
    let mut now: BTreeMap<(&str, Direction), Shape> = BTreeMap::new();
    let mut script = Vec::new();
    for (at, table) in &steps {
        let named = table.need("link", "\"wan\"")?;
        let name = named.text("the name of a link")?;
        let Some(Draft { link, .. }) = drafts.iter().find(|d| d.link.name == name) else {
            let names: Vec<&str> = drafts.iter().map(|d| d.link.name.as_str()).collect();
            let what = format!("a change of the unknown link '{}'", name.escape_debug());
            return Err(named.fail(what, suggest(name, &names)));
        };
        if let Some(key) = table.get("half_duplex") {
            let what = "half_duplex cannot change while the lab runs";
            return Err(key.fail(what, "set it in [link.both]"));
        }
        let mtu = link.ends[0].mtu.max(link.ends[1].mtu);
        for direction in directions(table)? {
            let shape = now
                .entry((&link.name, direction))
                .or_insert_with(|| link.shape(direction).clone());
            *shape = shape::patch(table, shape, mtu)?;
            shape::consistent(&[table], shape)?;
            script.push(Change {
                at: *at,
                link: link.name.clone(),
                direction,
                shape: shape.clone(),
            });
        }
    }
    Ok(script)
}

fn traffic(top: &Table<'_, '_>, nodes: &[Node]) -> Result<Vec<Traffic>, Error> {
    let keys = [
        "name",
        "from",
        "to",
        "streams",
        "congestion",
        "rate",
        "on",
        "off",
    ];
    let is_host = |n: &&Node| matches!(n.kind, NodeKind::Host(_));
    let hosts: Vec<&str> = nodes
        .iter()
        .filter(is_host)
        .map(|n| n.name.as_str())
        .collect();
    let mut all: Vec<Traffic> = Vec::new();
    for (entries, at) in top.each("traffic")? {
        let table = Table::open(top.source, "traffic", entries, at, &keys)?;
        let host = |key: &str, other: &str| {
            let value = table.need(key, "\"a\"")?;
            let name = value.text("the name of a host")?;
            if !hosts.contains(&name) {
                let what = format!("'{key}' names the unknown host '{}'", name.escape_debug());
                return Err(value.fail(what, suggest(name, &hosts)));
            }
            if name == other {
                let what = format!("traffic from '{name}' to itself");
                return Err(value.fail(what, "name two different hosts"));
            }
            Ok(name.to_owned())
        };
        let from = host("from", "")?;
        let to = host("to", &from)?;
        let name = table.read("name", name_of)?;
        let name = name.unwrap_or_else(|| format!("{from}-{to}"));
        let fail = |what: String, remedy: &str| Err(top.source.fail(at, what, remedy));
        if all.iter().any(|t| t.name == name) {
            return fail(
                format!("two kinds of traffic are named '{name}'"),
                "give each a name of its own",
            );
        }
        if all.len() == MAX_TRAFFIC {
            return fail(
                format!("more than {MAX_TRAFFIC} kinds of traffic"),
                "leave some out",
            );
        }
        let (on, off) = (
            table.read("on", |v| v.span())?,
            table.read("off", |v| v.span())?,
        );
        if on.is_some() != off.is_some() {
            return fail(
                "traffic has one of 'on' and 'off'".to_owned(),
                "give both, or neither for traffic that never ends",
            );
        }
        let streams = table.read("streams", |v| v.whole(1..MAX_STREAMS + 1))?;
        all.push(Traffic {
            name,
            from,
            to,
            streams: streams.unwrap_or(1) as u32,
            congestion: table.read("congestion", name_of)?,
            rate: table.read("rate", |v| v.rate())?,
            on: on.unwrap_or_default(),
            off: off.unwrap_or_default(),
        });
    }
    Ok(all)
}

fn directions(table: &Table<'_, '_>) -> Result<Vec<Direction>, Error> {
    let expected = "\"forward\", \"backward\" or \"both\"";
    let Some(value) = table.get("direction") else {
        return Ok(Direction::BOTH.to_vec());
    };
    match value.text(expected)? {
        "forward" => Ok(vec![Direction::Forward]),
        "backward" => Ok(vec![Direction::Backward]),
        "both" => Ok(Direction::BOTH.to_vec()),
        other => Err(value.fail(
            format!("'direction' is \"{}\"", other.escape_debug()),
            format!("write {expected}"),
        )),
    }
}
