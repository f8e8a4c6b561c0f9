//! Attributes of the route to one host: a route to it alone, copied from the one that leads there, with
//! one attribute more. Undoing takes it away, or puts back the one that was there.

use super::{Image, KnobFailure, Part, no_route, refuse, understood};
use crate::kernel::{
    self, CREATE, NetlinkRefusal, REPLACE, attributes, from_hex, nest, octets, push, text, to_hex,
    u16_at, u32_at,
};
use crate::prelude::*;
use libc::{
    RTA_CACHEINFO, RTA_DST, RTA_ENCAP, RTA_ENCAP_TYPE, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH,
    RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTA_VIA, RTM_DELROUTE, RTM_F_CLONED, RTM_F_FIB_MATCH,
    RTM_F_LOOKUP_TABLE, RTM_GETROUTE, RTM_NEWROUTE, RTN_UNICAST, RTPROT_STATIC,
};
use model::RouteKnob;
use std::collections::BTreeMap;

/// The route to one host, in the table in which the kernel looks it up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostRoute {
    peer: IpAddr,
    knob: RouteKnob,
    /// What will be written: the body of an `RTM_NEWROUTE`, in hexadecimal.
    planned: String,
}

// include/uapi/linux/rtnetlink.h
const RTA_NH_ID: u16 = 30;
const RTNH_F_ONLINK: u32 = 4;
const RTAX_LOCK: u16 = 1;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const RTAX_CC_ALGO: u16 = 16;

/// A route as a message: the header, and the attributes by type.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct RouteMessage {
    header: Vec<u8>,
    attributes: BTreeMap<u16, Vec<u8>>,
    metrics: BTreeMap<u16, Vec<u8>>,
}

impl RouteMessage {
    /// Without what is state rather than setting: ages, and whether a link is up.
    pub fn read(body: &[u8]) -> Option<RouteMessage> {
        let mut header = body.get(..12)?.to_vec();
        let flags = u32_at(&header, 8)? & RTNH_F_ONLINK;
        header[8..].copy_from_slice(&flags.to_ne_bytes());
        let mut all = by_kind(&body[12..]);
        let metrics = all.remove(&RTA_METRICS).unwrap_or_default();
        if let Some(list) = all.get_mut(&RTA_MULTIPATH) {
            clean_hops(list);
        }
        if all.contains_key(&RTA_NH_ID) {
            // The kernel reports what the nexthop object means, but does not take both.
            let nexthop = [RTA_OIF, RTA_GATEWAY, RTA_VIA];
            let nexthops = [RTA_MULTIPATH, RTA_ENCAP, RTA_ENCAP_TYPE];
            all.retain(|kind, _| !nexthop.contains(kind) && !nexthops.contains(kind));
        }
        Some(RouteMessage {
            header,
            attributes: all,
            metrics: by_kind(&metrics),
        })
    }

    /// As the journal keeps it.
    pub fn from_hex(text: &str) -> Option<RouteMessage> {
        RouteMessage::read(&from_hex(text)?)
    }

    pub fn write(&self) -> Vec<u8> {
        let mut body = self.header.clone();
        for (kind, value) in &self.attributes {
            match *kind {
                RTA_CACHEINFO => {}
                RTA_MULTIPATH | RTA_ENCAP => nest(&mut body, *kind, value),
                _ => push(&mut body, *kind, value),
            }
        }
        if !self.metrics.is_empty() {
            let mut metrics = Vec::new();
            for (kind, value) in &self.metrics {
                push(&mut metrics, *kind, value);
            }
            nest(&mut body, RTA_METRICS, &metrics);
        }
        body
    }

    fn number(&self, attribute: u16) -> Option<u32> {
        u32_at(self.attributes.get(&attribute)?, 0)
    }

    fn metric(&self, metric: u16) -> Option<u32> {
        u32_at(self.metrics.get(&metric)?, 0)
    }

    fn put(&mut self, metric: u16, value: u32) {
        self.metrics.insert(metric, value.to_ne_bytes().to_vec());
    }

    /// The device through which it leads, where it leads through one.
    pub fn device(&self) -> Option<u32> {
        self.number(RTA_OIF)
    }

    pub fn is_mtu_locked(&self) -> bool {
        self.metric(RTAX_LOCK).unwrap_or(0) & 1 << RTAX_MTU != 0
    }

    /// Its MTU, if it has one of its own.
    pub fn mtu(&self) -> Option<u32> {
        self.metric(RTAX_MTU)
    }

    fn lock_mtu(&mut self, mtu: u32) {
        let locks = self.metric(RTAX_LOCK).unwrap_or(0) | 1 << RTAX_MTU;
        self.put(RTAX_MTU, mtu);
        self.put(RTAX_LOCK, locks);
    }

    /// Locks the MTU of a route of IPv4, and bounds the MSS that it announces; false if it is no larger
    /// already.
    pub fn pin(&mut self, mtu: u32) -> bool {
        // Headers of IP and TCP without options (RFC 6691).
        let mss = mtu - 40;
        if self.mtu().is_some_and(|now| now <= mtu) {
            return false;
        }
        self.lock_mtu(mtu);
        let announced = self.metric(RTAX_ADVMSS).unwrap_or(mss).min(mss);
        self.put(RTAX_ADVMSS, announced);
        true
    }

    /// Whether it leads to this one host and no other.
    fn is_only_for(&self, octets: &[u8]) -> bool {
        let to = self.attributes.get(&RTA_DST).map(Vec::as_slice);
        usize::from(self.header[1]) == octets.len() * 8 && to == Some(octets)
    }

    /// The same place in the same table: a route written there replaces it.
    pub fn is_in_place_of(&self, other: &RouteMessage) -> bool {
        let place = |m: &RouteMessage| {
            let table = m.number(RTA_TABLE).unwrap_or(u32::from(m.header[4]));
            // IPv6 gives this priority to a route that is added without one.
            let is_v6 = m.header[0] == libc::AF_INET6 as u8;
            let priority = m
                .number(RTA_PRIORITY)
                .unwrap_or(if is_v6 { 1024 } else { 0 });
            let to = m.attributes.get(&RTA_DST).cloned();
            (m.header[..2].to_vec(), m.header[3], table, priority, to)
        };
        place(self) == place(other)
    }

    /// When the kernel will remove it; 0: never.
    fn expires(&self) -> u32 {
        // struct rta_cacheinfo: clntref, lastuse, expires.
        let info = self.attributes.get(&RTA_CACHEINFO);
        info.and_then(|info| u32_at(info, 8)).unwrap_or(0)
    }
}

fn by_kind(list: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let all = attributes(list).map(|(kind, value)| (kind, value.to_vec()));
    all.collect()
}

/// Takes the state of the links out of a list of `struct rtnexthop`.
fn clean_hops(list: &mut [u8]) {
    for at in hops(list).collect::<Vec<_>>() {
        list[at + 2] &= RTNH_F_ONLINK as u8;
    }
}

/// Where each `struct rtnexthop` of a list begins.
fn hops(list: &[u8]) -> impl Iterator<Item = usize> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let at = next;
        let length = usize::from(u16_at(list, at)?);
        next += length.next_multiple_of(4);
        (length >= 8 && at + length <= list.len()).then_some(at)
    })
}

/// The route that the kernel uses for this host, verbatim.
fn lookup(kernel: &mut Kernel, peer: IpAddr) -> Result<RouteMessage, KnobFailure> {
    let answer = kernel.route_to(peer, RTM_F_LOOKUP_TABLE | RTM_F_FIB_MATCH);
    let answer = answer.map_err(|e| no_route(peer, e))?;
    understood(
        RouteMessage::read(&answer.body),
        "the kernel's answer is not a route",
    )
}

pub(super) fn dump(
    kernel: &mut Kernel,
    family: i32,
) -> Result<Vec<kernel::NetlinkMessage>, NetlinkRefusal> {
    let mut question = vec![0; 12];
    question[0] = family as u8;
    kernel.dump(RTM_GETROUTE, &question)
}

/// The IPv4 routes to other hosts that lead through a device, all tables, without what was learned.
pub(super) fn through(kernel: &mut Kernel, device: u32) -> Result<Vec<RouteMessage>, KnobFailure> {
    let leads = |body: &[u8]| {
        let mut attributes = attributes(body.get(12..).unwrap_or_default());
        attributes.any(|(kind, value)| match kind {
            RTA_OIF => u32_at(value, 0) == Some(device),
            RTA_MULTIPATH => hops(value).any(|at| u32_at(value, at + 4) == Some(device)),
            _ => false,
        })
    };
    let answers = dump(kernel, libc::AF_INET)?;
    let ours = answers.iter().filter(|answer| {
        let body = &answer.body;
        answer.kind == RTM_NEWROUTE
            && body.get(7) == Some(&RTN_UNICAST)
            && u32_at(body, 8).is_some_and(|flags| flags & RTM_F_CLONED == 0)
            && leads(body)
    });
    Ok(ours.filter_map(|a| RouteMessage::read(&a.body)).collect())
}

impl HostRoute {
    /// Plans the route with this attribute.
    pub fn plan(
        kernel: &mut Kernel,
        knob: RouteKnob,
        value: &Value,
        peer: IpAddr,
    ) -> Result<HostRoute, KnobFailure> {
        let peer = peer.to_canonical();
        let mut route = lookup(kernel, peer)?;
        if route.header[7] != RTN_UNICAST {
            return refuse(format!(
                "no route leads to {peer}, which is an address of this host or barred by it"
            ));
        }
        let (_, octets) = octets(peer);
        if route.is_only_for(&octets) {
            if route.expires() != 0 {
                return refuse(format!(
                    "the route to {peer} expires by itself and could not be restored verbatim"
                ));
            }
        } else {
            route.header[1] = (octets.len() * 8) as u8;
            route.header[5] = RTPROT_STATIC;
            route.attributes.insert(RTA_DST, octets);
            route.attributes.remove(&RTA_PRIORITY);
        }
        let small = value.number().is_some_and(|n| n < 1280);
        if peer.is_ipv6() && knob == RouteKnob::Mtu && small {
            return refuse("IPv6 has no MTU below 1280 bytes");
        }
        set(&mut route, knob, value)?;
        Ok(HostRoute {
            peer,
            knob,
            planned: to_hex(&route.write()),
        })
    }

    /// The host that it leads to.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    fn planned(&self) -> Result<RouteMessage, KnobFailure> {
        understood(
            RouteMessage::from_hex(&self.planned),
            "the planned route is unreadable",
        )
    }

    /// The route that stands where the planned one stands or will stand.
    fn standing(&self, kernel: &mut Kernel) -> Result<Option<RouteMessage>, KnobFailure> {
        match kernel.route_to(self.peer, RTM_F_LOOKUP_TABLE | RTM_F_FIB_MATCH) {
            Ok(answer) => {
                let planned = self.planned()?;
                Ok(RouteMessage::read(&answer.body).filter(|route| route.is_in_place_of(&planned)))
            }
            // No route at all: the link is down, or its routes were taken away.
            Err(refusal) if refusal.errno == libc::ENETUNREACH => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

/// Number of the metric (`RTAX_*`).
fn metric(knob: RouteKnob) -> u16 {
    match knob {
        RouteKnob::Mtu => RTAX_MTU,
        RouteKnob::Window => 3,
        RouteKnob::Advmss => RTAX_ADVMSS,
        RouteKnob::Initcwnd => 11,
        RouteKnob::RtoMin => 13,
        RouteKnob::Initrwnd => 14,
        RouteKnob::Quickack => 15,
        RouteKnob::Congctl => RTAX_CC_ALGO,
    }
}

fn set(route: &mut RouteMessage, knob: RouteKnob, value: &Value) -> Result<(), KnobFailure> {
    let value = match value {
        Value::Number(n) => match u32::try_from(*n) {
            Ok(n) => n.to_ne_bytes().to_vec(),
            Err(_) => return refuse("the number is too large"),
        },
        Value::Switch(on) => u32::from(*on).to_ne_bytes().to_vec(),
        Value::Word(word) => [word.as_bytes(), &[0]].concat(),
        Value::Numbers(_) => return refuse("a route takes one value"),
    };
    route.metrics.insert(metric(knob), value);
    if knob == RouteKnob::Mtu
        && let Some(mtu) = route.mtu()
    {
        route.lock_mtu(mtu);
    }
    Ok(())
}

impl Part for HostRoute {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure> {
        let standing = self.standing(kernel)?;
        Ok(standing.map_or(Image::Null, |route| to_hex(&route.write()).into()))
    }

    fn plan(&self, _: &mut Kernel, _: &Setting, _: &Image) -> Result<(), KnobFailure> {
        Ok(())
    }

    fn apply(&self, kernel: &mut Kernel, _: &Setting) -> Result<(), KnobFailure> {
        let body = self.planned()?.write();
        Ok(kernel.order(RTM_NEWROUTE, CREATE | REPLACE, &body)?)
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        // As a connection would get it, not verbatim.
        let answer = kernel.route_to(self.peer, 0)?;
        let route = RouteMessage::read(&answer.body);
        let value = route.and_then(|r| r.metrics.get(&metric(self.knob)).cloned());
        let number = value.as_deref().and_then(|v| u32_at(v, 0));
        Ok(match self.knob {
            // The kernel shows no metric that is zero.
            RouteKnob::Quickack => Some(Value::Switch(number.is_some_and(|n| n != 0))),
            RouteKnob::Congctl => value.map(|v| Value::Word(text(&v))),
            RouteKnob::Mtu
            | RouteKnob::Advmss
            | RouteKnob::Initcwnd
            | RouteKnob::Initrwnd
            | RouteKnob::RtoMin
            | RouteKnob::Window => number.map(|n| Value::Number(n.into())),
        })
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let done = match before.as_str() {
            Some(body) => {
                let Some(body) = from_hex(body) else {
                    return refuse("the former route is unreadable");
                };
                kernel.order(RTM_NEWROUTE, CREATE | REPLACE, &body)
            }
            None => {
                // Whatever stands there by now, with whatever metrics.
                let standing = self.standing(kernel)?;
                let mut route = standing.map_or_else(|| self.planned(), Ok)?;
                route.metrics.clear();
                match kernel.order(RTM_DELROUTE, 0, &route.write()) {
                    Err(refusal) if refusal.errno == libc::ESRCH => Ok(()),
                    other => other,
                }
            }
        };
        step("route restored");
        Ok(done?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `struct rtnexthop` with its flags, through a device, to a gateway.
    fn hop(flags: u8, device: u32) -> Vec<u8> {
        let mut hop = 16u16.to_ne_bytes().to_vec();
        hop.extend([flags, 3]);
        hop.extend(device.to_ne_bytes());
        push(&mut hop, RTA_GATEWAY, &[10, 0, 0, device as u8]);
        hop
    }

    #[test]
    fn a_route_of_several_hops_is_the_same_while_a_link_is_down() {
        // RTNH_F_DEAD, RTNH_F_LINKDOWN
        const DOWN: u8 = 1 | 16;
        let route = |flags: [u8; 2]| {
            let mut body = vec![0; 12];
            let hops = [hop(flags[0], 7), hop(flags[1], 8)].concat();
            push(&mut body, RTA_MULTIPATH, &hops);
            RouteMessage::read(&body).unwrap()
        };
        let on_link = RTNH_F_ONLINK as u8;
        let before = route([0, on_link]);
        assert!(before == route([DOWN, on_link | DOWN]));
        assert!(before != route([0, 0]));
        // What is written back has both hops, with what the user configured.
        let written = before.write();
        let hops = attributes(&written[12..]).find(|(kind, _)| *kind == RTA_MULTIPATH);
        assert_eq!(hops.unwrap().1, [hop(0, 7), hop(on_link, 8)].concat());
    }

    /// A route of IPv4 in the main table to 10.1.0.0/16, with these attributes and metrics.
    fn message(attributes: &[(u16, &[u8])], metrics: &[(u16, u32)]) -> Vec<u8> {
        let mut body = vec![
            libc::AF_INET as u8,
            16,
            0,
            0,
            254,
            3,
            0,
            RTN_UNICAST,
            0,
            0,
            0,
            0,
        ];
        push(&mut body, RTA_DST, &[10, 1, 0, 0]);
        for (kind, value) in attributes {
            push(&mut body, *kind, value);
        }
        let mut list = Vec::new();
        for (kind, value) in metrics {
            push(&mut list, *kind, &value.to_ne_bytes());
        }
        if !list.is_empty() {
            nest(&mut body, RTA_METRICS, &list);
        }
        body
    }

    fn route(attributes: &[(u16, &[u8])], metrics: &[(u16, u32)]) -> RouteMessage {
        RouteMessage::read(&message(attributes, metrics)).unwrap()
    }

    #[test]
    fn a_route_is_read_and_written_without_what_is_state() {
        let device = 7u32.to_ne_bytes();
        // struct rta_cacheinfo: clntref, lastuse, expires and others.
        let mut info = [0u8; 32];
        info[8..12].copy_from_slice(&99u32.to_ne_bytes());
        let found = route(
            &[(RTA_OIF, &device), (RTA_CACHEINFO, &info)],
            &[(RTAX_ADVMSS, 1000)],
        );
        assert_eq!(
            (found.device(), found.expires(), found.mtu()),
            (Some(7), 99, None)
        );
        let written = found.write();
        assert_eq!(written[..12], found.header);
        let kinds: Vec<u16> = attributes(&written[12..]).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [RTA_DST, RTA_OIF, RTA_METRICS]);
        let again = RouteMessage::from_hex(&to_hex(&written)).unwrap();
        assert_eq!(
            (again.metric(RTAX_ADVMSS), again.expires()),
            (Some(1000), 0)
        );
        assert_eq!(again.write(), written);
        // Of the flags only those that the user sets.
        let mut body = message(&[], &[]);
        body[8..12].copy_from_slice(&(RTNH_F_ONLINK | 16 | 0x400).to_ne_bytes());
        assert_eq!(
            RouteMessage::read(&body).unwrap().header[8..],
            RTNH_F_ONLINK.to_ne_bytes()
        );
        assert!(RouteMessage::read(&[0; 11]).is_none());
        assert!(RouteMessage::read(&[0; 12]).is_some());
        assert!(RouteMessage::from_hex("0").is_none());
    }

    #[test]
    fn of_a_nexthop_object_its_number_alone_is_written() {
        let value = 7u32.to_ne_bytes();
        let meant = [
            RTA_OIF,
            RTA_GATEWAY,
            RTA_VIA,
            RTA_MULTIPATH,
            RTA_ENCAP,
            RTA_ENCAP_TYPE,
        ];
        let mut all: Vec<(u16, &[u8])> = meant.iter().map(|kind| (*kind, &value[..])).collect();
        assert_eq!(route(&all, &[]).attributes.len(), 7);
        all.push((RTA_NH_ID, &value));
        let kinds: Vec<u16> = route(&all, &[]).attributes.into_keys().collect();
        assert_eq!(kinds, [RTA_DST, RTA_NH_ID]);
    }

    #[test]
    fn a_route_is_in_place_of_one_with_the_same_table_priority_and_destination() {
        let number = |n: u32| n.to_ne_bytes();
        let plain = route(&[], &[]);
        let is_one = |attributes: &[(u16, &[u8])]| route(attributes, &[]).is_in_place_of(&plain);
        assert!(is_one(&[(RTA_OIF, &number(9))]));
        assert!(is_one(&[(RTA_TABLE, &number(254))]) && !is_one(&[(RTA_TABLE, &number(100))]));
        assert!(is_one(&[(RTA_PRIORITY, &number(0))]) && !is_one(&[(RTA_PRIORITY, &number(1024))]));
        let changed = |at: usize, value: u8| {
            let mut body = message(&[], &[]);
            body[at] = value;
            RouteMessage::read(&body).unwrap().is_in_place_of(&plain)
        };
        // Length and service belong to the place, who made the route does not.
        assert!(!changed(1, 24) && !changed(3, 8) && !changed(4, 100) && changed(5, 4));
        let v6 = |priority: Option<u32>| {
            let mut body = message(&[], &[]);
            body[0] = libc::AF_INET6 as u8;
            priority
                .iter()
                .for_each(|p| push(&mut body, RTA_PRIORITY, &p.to_ne_bytes()));
            RouteMessage::read(&body).unwrap()
        };
        assert!(v6(None).is_in_place_of(&v6(Some(1024))) && !v6(None).is_in_place_of(&v6(Some(0))));
        assert!(!v6(None).is_in_place_of(&plain));
        let mut one = plain.clone();
        assert!(!one.is_only_for(&[10, 1, 0, 0]));
        one.header[1] = 32;
        assert!(one.is_only_for(&[10, 1, 0, 0]) && !one.is_only_for(&[10, 1, 0, 1]));
    }

    #[test]
    fn a_pin_locks_the_mtu_and_bounds_the_segment() {
        let pinned = |metrics: &[(u16, u32)]| {
            let mut route = route(&[], metrics);
            let done = route.pin(1400);
            let mtu = |route: &RouteMessage| (route.mtu(), route.is_mtu_locked());
            (done, mtu(&route), route.metric(RTAX_ADVMSS))
        };
        let locked = (Some(1400), true);
        assert_eq!(pinned(&[]), (true, locked, Some(1360)));
        assert_eq!(
            pinned(&[(RTAX_MTU, 1401), (RTAX_ADVMSS, 1359)]),
            (true, locked, Some(1359))
        );
        assert_eq!(pinned(&[(RTAX_ADVMSS, 1361)]), (true, locked, Some(1360)));
        assert_eq!(
            pinned(&[(RTAX_MTU, 1400)]),
            (false, (Some(1400), false), None)
        );
        // Other locks stay.
        let mut other = route(&[], &[(RTAX_LOCK, 1 << RTAX_ADVMSS)]);
        assert!(!other.is_mtu_locked());
        other.lock_mtu(1300);
        assert_eq!(
            other.metric(RTAX_LOCK),
            Some(1 << RTAX_ADVMSS | 1 << RTAX_MTU)
        );
    }

    #[test]
    fn hops_are_as_long_as_they_say_within_their_list() {
        let of = |list: &[u8]| hops(list).collect::<Vec<_>>();
        let two = [hop(0, 7), hop(0, 8)].concat();
        assert_eq!(of(&two), [0, 16]);
        assert_eq!(of(&two[..31]), [0]);
        let sized = |length: u16| [&length.to_ne_bytes()[..], &[0; 30]].concat();
        assert_eq!([of(&sized(7)), of(&sized(33)), of(&[])], [[0; 0]; 3]);
        assert_eq!(of(&sized(32)), [0]);
        // Each begins at a multiple of four.
        let mut list = sized(9);
        list[12..14].copy_from_slice(&8u16.to_ne_bytes());
        assert_eq!(of(&list), [0, 12]);
    }

    #[test]
    fn every_knob_is_a_metric_of_its_kind() {
        let written = |knob, value: Value| {
            let mut one = route(&[], &[]);
            set(&mut one, knob, &value).map_err(drop)?;
            Ok::<_, ()>(one.metrics)
        };
        let only = |number: u16, bytes: &[u8]| Ok(BTreeMap::from([(number, bytes.to_vec())]));
        let n = Value::Number(32);
        let bytes = 32u32.to_ne_bytes();
        for (knob, number) in [
            (RouteKnob::Window, 3),
            (RouteKnob::Advmss, 8),
            (RouteKnob::Initcwnd, 11),
            (RouteKnob::RtoMin, 13),
            (RouteKnob::Initrwnd, 14),
        ] {
            assert_eq!(written(knob, n.clone()), only(number, &bytes));
        }
        let on = 1u32.to_ne_bytes();
        assert_eq!(
            written(RouteKnob::Quickack, Value::Switch(true)),
            only(15, &on)
        );
        let word = Value::Word("cubic".to_owned());
        assert_eq!(written(RouteKnob::Congctl, word), only(16, b"cubic\0"));
        let mtu = written(RouteKnob::Mtu, Value::Number(1400)).unwrap();
        assert_eq!(
            mtu.keys().copied().collect::<Vec<_>>(),
            [RTAX_LOCK, RTAX_MTU]
        );
        assert!(written(RouteKnob::Window, Value::Number(1 << 32)).is_err());
        assert!(written(RouteKnob::Window, Value::Number(u64::from(u32::MAX))).is_ok());
        assert!(written(RouteKnob::Window, Value::Numbers(vec![1])).is_err());
    }
}
