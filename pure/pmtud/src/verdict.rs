//! What stops larger packets: one decision from facts as values.

use model::mtu::{Beside, Climb, Hop, MssSeen, MtuCause, MtuDoubt, MtuVerdict, PathEnd, TcpTruth};
use std::net::IpAddr;

/// What is known of one direction.
#[derive(Clone, Copy, Debug)]
pub struct DirectionFacts<'a> {
    /// The end that sends.
    pub sender: &'a PathEnd,
    /// The end that receives; `None` without an agent there.
    pub receiver: Option<&'a PathEnd>,
    /// What the probes said.
    pub climb: &'a Climb,
    /// The MSS that the handshake carried in this direction.
    pub mss: Option<&'a MssSeen>,
    /// 64 KiB over TCP.
    pub tcp: Option<&'a TcpTruth>,
}

/// What a packet of 1500 bytes leaves to the packet inside, for common encapsulations (headers as in
/// RFC 2516, RFC 2003, RFC 4213, RFC 2784, RFC 7348, the WireGuard paper, and L2TP with IPsec as
/// commonly configured).
const INSIDE_1500: &[(u32, &str)] = &[
    (1492, "PPPoE"),
    (1480, "IP in IP or 6in4"),
    (1476, "GRE"),
    (1472, "GRE with a key"),
    (1460, "L2TP"),
    (1450, "VXLAN"),
    (1440, "WireGuard over IPv4"),
    (1438, "IPsec"),
    (1420, "WireGuard"),
    (1400, "IPsec or a VPN with room to spare"),
];

/// What stops larger packets in one direction, and what else is to be known.
pub fn judge(facts: &DirectionFacts<'_>) -> MtuVerdict {
    let mut doubts = Vec::new();
    let cause = cause(facts, &mut doubts);
    let beside = beside(facts, &cause, &mut doubts);
    if facts.climb.passes.is_some() && !facts.climb.confirmed {
        doubts.push(MtuDoubt::LastByte);
    }
    MtuVerdict {
        mtu: facts.climb.passes,
        cause,
        beside,
        doubts,
    }
}

fn cause(facts: &DirectionFacts<'_>, doubts: &mut Vec<MtuDoubt>) -> MtuCause {
    let DirectionFacts {
        sender,
        receiver,
        climb,
        ..
    } = facts;
    let Some(passes) = climb.passes else {
        return MtuCause::Nothing;
    };
    if passes >= climb.ceiling {
        let peer = receiver.map_or(climb.ceiling, |end| end.device_mtu);
        return match sender.device_mtu.cmp(&peer) {
            std::cmp::Ordering::Less => MtuCause::OwnDevice,
            std::cmp::Ordering::Equal => MtuCause::Clear,
            std::cmp::Ordering::Greater => MtuCause::PeerDevice,
        };
    }
    // A message that names more than passes is about another, wider place.
    if let Some(message) = climb.too_big.filter(|message| message.mtu <= passes) {
        let here = |hop: &&Hop| hop.address == Some(message.from);
        return MtuCause::RouterReports {
            hop: climb.hops.iter().find(here).map(|hop| hop.ttl),
            from: message.from,
        };
    }
    let large = climb.hops.iter().filter(|hop| hop.large);
    if let Some(router) = large.max_by_key(|hop| hop.ttl) {
        doubts.extend([MtuDoubt::RouterOrLink, MtuDoubt::SilentOrFiltered]);
        return MtuCause::Silent {
            hop: router.ttl,
            address: router.address,
            last: climb.distance == Some(router.ttl + 1),
        };
    }
    if sender.gateway.is_none() {
        let to = receiver.and_then(|end| end.address);
        return MtuCause::Segment { to, peer: true };
    }
    match climb.hops.iter().find(|hop| hop.ttl == 1 && hop.small) {
        Some(first) => {
            doubts.push(MtuDoubt::SwitchOrPort);
            MtuCause::Segment {
                to: first.address,
                peer: false,
            }
        }
        None => {
            doubts.extend([MtuDoubt::Place, MtuDoubt::SilentOrFiltered]);
            MtuCause::Somewhere
        }
    }
}

fn beside(facts: &DirectionFacts<'_>, cause: &MtuCause, doubts: &mut Vec<MtuDoubt>) -> Vec<Beside> {
    let DirectionFacts {
        sender,
        receiver,
        climb,
        mss,
        tcp,
    } = facts;
    let mut all = Vec::new();
    let passes = climb.passes.unwrap_or(0);
    let reported = matches!(cause, MtuCause::RouterReports { .. });
    if tcp.is_some_and(|tcp| tcp.hangs) && on_the_way(cause) && !reported {
        all.push(Beside::BlackHole);
    }
    if let Some(says) = sender.before.mtu.filter(|says| *says < passes) {
        all.push(match sender.before.expires_s {
            Some(expires_s) => Beside::StaleCache { says, expires_s },
            None => Beside::RouteMtu { says },
        });
    }
    if let Some(mss) = mss.filter(|mss| !mss.at_least && mss.seen < mss.announced) {
        let router = clamp_at(&climb.hops, mss.announced);
        if router.is_none() {
            doubts.push(MtuDoubt::ClampPlace);
        }
        all.push(Beside::Clamp {
            announced: mss.announced,
            seen: mss.seen,
            hop: router.map(|(hop, _)| hop),
            by: router.and_then(|(_, by)| by),
        });
    }
    let arrived = receiver.map_or(0, |end| end.fragments_arrived);
    if sender.discovery_off == Some(true) && passes < climb.ceiling {
        all.push(Beside::Fragmented { arrived });
    }
    let alike = INSIDE_1500.iter().filter(|(size, _)| *size == passes);
    let alike: Vec<&str> = alike.map(|(_, name)| *name).collect();
    if on_the_way(cause) && !alike.is_empty() {
        let like = alike.join(", ");
        all.push(Beside::Encapsulation { like });
    }
    all
}

/// Larger packets are stopped by neither end's own device.
fn on_the_way(cause: &MtuCause) -> bool {
    matches!(
        cause,
        MtuCause::RouterReports { .. }
            | MtuCause::Silent { .. }
            | MtuCause::Segment { .. }
            | MtuCause::Somewhere
    )
}

/// The router that lowers an MSS, by the SYNs that hops quoted as they arrived there: the one before the
/// first hop that saw another than was announced, or the last if all saw it unchanged. `None` if the two
/// are not next to each other, because somebody between did not quote so much.
pub fn clamp_at(hops: &[Hop], announced: u32) -> Option<(u8, Option<IpAddr>)> {
    let unchanged = |hop: &Hop| hop.mss.map(u32::from) == Some(announced);
    let lower = |hop: &Hop| hop.mss.is_some_and(|mss| u32::from(mss) < announced);
    let changed = hops.iter().position(lower);
    let router = match changed {
        Some(at) => hops.get(at.checked_sub(1)?)?,
        None => hops.last()?,
    };
    unchanged(router).then_some((router.ttl, router.address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::mtu::{Belief, TooBig};

    const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1));
    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 3, 2));

    fn end(device_mtu: u32, routed: bool) -> PathEnd {
        PathEnd {
            address: Some(PEER),
            device_mtu,
            gateway: routed.then_some(ROUTER),
            ..PathEnd::default()
        }
    }

    fn hop(ttl: u8, small: bool, large: bool) -> Hop {
        Hop {
            ttl,
            address: small.then_some(ROUTER),
            small,
            large,
            mss: None,
        }
    }

    fn climb(ceiling: u32, passes: u32, hops: Vec<Hop>) -> Climb {
        Climb {
            ceiling,
            passes: Some(passes),
            confirmed: true,
            hops,
            distance: Some(3),
            ..Climb::default()
        }
    }

    fn of(sender: &PathEnd, receiver: &PathEnd, climb: &Climb) -> MtuVerdict {
        judge(&DirectionFacts {
            sender,
            receiver: Some(receiver),
            climb,
            mss: None,
            tcp: None,
        })
    }

    /// Hops of a path of two routers, the large ones stopping behind this many of them.
    fn two_routers(reached: u8) -> Vec<Hop> {
        (1..=2).map(|ttl| hop(ttl, true, ttl <= reached)).collect()
    }

    #[test]
    fn clean_and_the_devices_themselves() {
        for (own, peer, cause) in [
            (9000, 9000, MtuCause::Clear),
            (9000, 1500, MtuCause::PeerDevice),
            (1500, 9000, MtuCause::OwnDevice),
        ] {
            let least = own.min(peer);
            let verdict = of(
                &end(own, false),
                &end(peer, false),
                &climb(least, least, vec![]),
            );
            assert_eq!((verdict.cause, verdict.mtu), (cause, Some(least)));
            assert!(verdict.doubts.is_empty());
        }
    }

    #[test]
    fn a_router_that_says_so() {
        let mut reported = climb(9000, 1500, two_routers(1));
        reported.too_big = Some(TooBig {
            from: ROUTER,
            mtu: 1500,
        });
        let wide = end(9000, true);
        let cause = MtuCause::RouterReports {
            hop: Some(1),
            from: ROUTER,
        };
        assert_eq!(of(&wide, &wide, &reported).cause, cause);
        // Behind it is a place that is narrower and silent.
        reported.passes = Some(1400);
        assert!(matches!(
            of(&wide, &wide, &reported).cause,
            MtuCause::Silent { hop: 1, .. }
        ));
    }

    #[test]
    fn a_silent_router_and_the_link_behind_it_look_the_same() {
        let wide = end(9000, true);
        let verdict = of(&wide, &wide, &climb(9000, 1500, two_routers(2)));
        let cause = MtuCause::Silent {
            hop: 2,
            address: Some(ROUTER),
            last: true,
        };
        assert_eq!(verdict.cause, cause);
        assert_eq!(
            verdict.doubts,
            [MtuDoubt::RouterOrLink, MtuDoubt::SilentOrFiltered]
        );
    }

    #[test]
    fn the_first_segment() {
        let wide = end(9000, true);
        let verdict = of(&wide, &wide, &climb(9000, 1500, two_routers(0)));
        let first = MtuCause::Segment {
            to: Some(ROUTER),
            peer: false,
        };
        assert_eq!(
            (verdict.cause, verdict.doubts),
            (first, vec![MtuDoubt::SwitchOrPort])
        );
        let same = end(9000, false);
        let verdict = of(&same, &same, &climb(9000, 1500, vec![]));
        let switch = MtuCause::Segment {
            to: Some(PEER),
            peer: true,
        };
        assert_eq!((verdict.cause, verdict.doubts), (switch, vec![]));
    }

    #[test]
    fn without_answers_there_is_a_size_and_no_place() {
        let wide = end(9000, true);
        let verdict = of(&wide, &wide, &climb(9000, 1500, vec![]));
        assert_eq!(verdict.cause, MtuCause::Somewhere);
        assert_eq!(
            verdict.doubts,
            [MtuDoubt::Place, MtuDoubt::SilentOrFiltered]
        );
        let dead = Climb {
            ceiling: 9000,
            ..Climb::default()
        };
        let verdict = of(&wide, &wide, &dead);
        assert_eq!((verdict.cause, verdict.mtu), (MtuCause::Nothing, None));
    }

    #[test]
    fn a_belief_that_is_too_small() {
        let mut sender = end(9000, true);
        sender.before = Belief {
            mtu: Some(1500),
            expires_s: Some(300),
        };
        let clear = climb(9000, 9000, vec![]);
        let stale = Beside::StaleCache {
            says: 1500,
            expires_s: 300,
        };
        assert_eq!(of(&sender, &end(9000, true), &clear).beside, [stale]);
        // True, so not stale.
        let narrow = climb(9000, 1500, two_routers(1));
        assert!(of(&sender, &end(9000, true), &narrow).beside.is_empty());
        sender.before.expires_s = None;
        let configured = Beside::RouteMtu { says: 1500 };
        assert_eq!(of(&sender, &end(9000, true), &clear).beside, [configured]);
    }

    #[test]
    fn fragments_tunnels_and_black_holes() {
        let mut sender = end(9000, true);
        sender.discovery_off = Some(true);
        let mut receiver = end(9000, true);
        receiver.fragments_arrived = 7;
        let tunnel = climb(9000, 1400, two_routers(1));
        let hangs = TcpTruth {
            hangs: true,
            ..TcpTruth::default()
        };
        let verdict = judge(&DirectionFacts {
            sender: &sender,
            receiver: Some(&receiver),
            climb: &tunnel,
            mss: None,
            tcp: Some(&hangs),
        });
        assert_eq!(
            verdict.beside[..2],
            [Beside::BlackHole, Beside::Fragmented { arrived: 7 }]
        );
        assert!(matches!(verdict.beside[2], Beside::Encapsulation { .. }));
    }

    #[test]
    fn the_box_that_clamps_is_the_one_before_the_first_change() {
        let with = |seen: [Option<u16>; 3]| -> Vec<Hop> {
            (1..)
                .zip(seen)
                .map(|(ttl, mss)| Hop {
                    mss,
                    ..hop(ttl, true, true)
                })
                .collect()
        };
        for (seen, box_at) in [
            ([Some(8960), Some(8960), Some(1460)], Some(2)),
            ([Some(8960), Some(8960), Some(8960)], Some(3)),
            ([Some(8960), None, Some(1460)], None),
            ([Some(1460), Some(1460), Some(1460)], None),
            ([None, None, None], None),
        ] {
            let found = clamp_at(&with(seen), 8960).map(|(hop, _)| hop);
            assert_eq!(found, box_at, "{seen:?}");
        }
        let announced = MssSeen {
            announced: 8960,
            seen: 1460,
            at_least: false,
        };
        let (sender, receiver) = (end(9000, true), end(9000, true));
        let facts = |mss| {
            judge(&DirectionFacts {
                sender: &sender,
                receiver: Some(&receiver),
                climb: &climb(9000, 1500, with([Some(8960), Some(8960), Some(1460)])),
                mss: Some(mss),
                tcp: None,
            })
        };
        let clamp = Beside::Clamp {
            announced: 8960,
            seen: 1460,
            hop: Some(2),
            by: Some(ROUTER),
        };
        assert_eq!(facts(&announced).beside, [clamp]);
        let unknown = MssSeen {
            at_least: true,
            ..announced
        };
        assert!(facts(&unknown).beside.is_empty());
    }
}
