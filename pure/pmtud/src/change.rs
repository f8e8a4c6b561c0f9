//! Changing the MTU of two hosts together while nothing that goes on between them and others notices:
//! what each host sets in which stage, what speaks against beginning, and whether it worked.
//!
//! Wider: routes are pinned at the old size, then the devices take the new one. Only probes are larger.
//! Once those arrive both ways the pins go. Narrower is the same backwards: routes are pinned at the new
//! size, so that nobody sends more while the devices still take more, and only then the devices change.

use model::mtu::{ChangeReach, Going, MtuCause, MtuReport, Obstacle, PathEnd, Stopped};
use model::{DeviceKnob, Knob, On, RouteKnob, Setting, Side, Value};
use std::cmp::Ordering;
use std::net::IpAddr;

/// Below it a device has no IPv6 (RFC 8200).
const IPV6_LEAST: u32 = 1280;

/// What one host sets, stage by stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The device comes to take less.
    pub narrower: bool,
    /// Keeps ordinary packets at the smaller of both sizes.
    pub pin: Vec<Setting>,
    /// Changes the device.
    pub device: Vec<Setting>,
    /// Undone once the new size is known to get through.
    pub unpin: Vec<Setting>,
    /// Set then for the peer only, where other hosts keep their size, or the route to the peer has an MTU
    /// of its own.
    pub peer: Vec<Setting>,
}

impl Turn {
    /// Of the host at this side, which sees the path like this, towards `peer`.
    pub fn of(side: Side, end: &PathEnd, to: u32, reach: ChangeReach, peer: IpAddr) -> Turn {
        let on = match side {
            Side::Local => On::Local,
            Side::Remote => On::Remote,
        };
        let set = |knob, value: u32| Setting {
            knob,
            value: Value::Number(value.into()),
            on,
        };
        let device = |knob, value| set(Knob::Device(knob), value);
        let was = end.device_mtu;
        let least = was.min(to);
        let pin = device(DeviceKnob::Pin, least);
        let of_ipv6 = (least >= IPV6_LEAST).then(|| device(DeviceKnob::Mtu6, least));
        // A route that was given an MTU does not follow its device.
        let configured = end.before.mtu.filter(|_| end.before.expires_s.is_none());
        let alone =
            configured.is_some_and(|mtu| mtu != to) || (was < to && reach == ChangeReach::Peer);
        // Headers of IP and TCP without options (RFC 6691).
        let headers = match peer.to_canonical().is_ipv4() {
            true => 40,
            false => 60,
        };
        let peer = match alone {
            true => vec![
                set(Knob::Route(RouteKnob::Mtu), to),
                set(Knob::Route(RouteKnob::Advmss), to - headers),
            ],
            false => Vec::new(),
        };
        let (pin, device, unpin) = match was.cmp(&to) {
            Ordering::Equal => Default::default(),
            // IPv6 follows the device, so its MTU is pinned first.
            Ordering::Less => (
                vec![pin.clone()],
                [device(DeviceKnob::Mtu, to)]
                    .into_iter()
                    .chain(of_ipv6.clone())
                    .collect(),
                match reach {
                    ChangeReach::Segment => of_ipv6.into_iter().chain([pin]).collect(),
                    ChangeReach::Peer => Vec::new(),
                },
            ),
            Ordering::Greater => (
                [pin.clone()].into_iter().chain(of_ipv6).collect(),
                vec![device(DeviceKnob::Mtu, to)],
                vec![pin],
            ),
        };
        Turn {
            narrower: was > to,
            pin,
            device,
            unpin,
            peer,
        }
    }
}

/// Whose packets become larger unless the user says: only those between the two hosts where others are
/// on the segment, or behind the router that leads to the remote host, who may not take them.
pub fn reach_of(before: &MtuReport) -> ChangeReach {
    let alone = |end: &PathEnd| end.neighbours == 0 && end.gateway.is_none();
    let ends = [Some(&before.local), before.remote.as_ref()];
    match ends.into_iter().flatten().all(alone) {
        true => ChangeReach::Segment,
        false => ChangeReach::Peer,
    }
}

/// The first thing that speaks against changing both devices to `to`.
pub fn obstacle(before: &MtuReport, to: u32) -> Option<Obstacle> {
    for going in Going::ALL {
        let way = before.way(going);
        let hangs = way.tcp.is_none_or(|tcp| tcp.hangs);
        match way.climb.passes {
            Some(_) if !hangs => {}
            Some(passes) if passes < way.climb.ceiling => {
                // Smaller devices are the cure.
                if passes < to {
                    return Some(Obstacle::Hole(going, passes));
                }
            }
            _ => return Some(Obstacle::Broken(going)),
        }
    }
    Going::ALL.into_iter().find_map(|going| {
        let end = before.sender(going)?;
        (end.drops_link && end.device_mtu != to).then(|| Obstacle::DropsLink {
            end: going,
            device: end.device.clone(),
            driver: end.driver.clone().unwrap_or_default(),
        })
    })
}

/// In which directions packets of `to` bytes do not get through; with `transfers`, also those in which a
/// transfer over TCP hangs, or none could be made.
pub fn stopped(report: &MtuReport, to: u32, transfers: bool) -> Vec<Stopped> {
    let of = |going: Going| {
        let way = report.way(going);
        let passes = way.climb.passes;
        let hangs = transfers && way.tcp.is_none_or(|tcp| tcp.hangs);
        let short = passes.is_none_or(|passes| passes < to);
        (short || hangs).then(|| Stopped {
            way: going,
            passes,
            cause: match short {
                true => way.verdict.cause.clone(),
                false => MtuCause::Clear,
            },
            hangs,
        })
    };
    Going::ALL.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::mtu::{Climb, MTU_SCHEMA, Method, TcpTruth, Way};

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn at(device_mtu: u32) -> PathEnd {
        PathEnd {
            device_mtu,
            ..PathEnd::default()
        }
    }

    fn texts(settings: &[Setting]) -> String {
        let words: Vec<String> = settings.iter().map(ToString::to_string).collect();
        words.join(" ")
    }

    #[test]
    fn wider_pins_before_and_narrower_pins_at_the_end() {
        let wider = Turn::of(Side::Local, &at(1500), 9000, ChangeReach::Segment, PEER);
        assert_eq!(texts(&wider.pin), "device.pin=1500@local");
        assert_eq!(
            texts(&wider.device),
            "device.mtu=9000@local device.mtu6=1500@local"
        );
        assert_eq!(
            texts(&wider.unpin),
            "device.mtu6=1500@local device.pin=1500@local"
        );
        assert!(wider.peer.is_empty() && !wider.narrower);

        let narrower = Turn::of(Side::Remote, &at(9000), 1500, ChangeReach::Segment, PEER);
        assert_eq!(
            texts(&narrower.pin),
            "device.pin=1500@remote device.mtu6=1500@remote"
        );
        assert_eq!(texts(&narrower.device), "device.mtu=1500@remote");
        assert_eq!(texts(&narrower.unpin), "device.pin=1500@remote");
        assert!(narrower.peer.is_empty() && narrower.narrower);

        let stays = Turn::of(Side::Remote, &at(9000), 9000, ChangeReach::Segment, PEER);
        assert_eq!(stays, Turn::default());
    }

    #[test]
    fn on_a_mixed_segment_only_the_route_to_the_peer_grows() {
        for (peer, mss) in [(PEER, 8960), ("fd00::2".parse().unwrap(), 8940)] {
            let turn = Turn::of(Side::Local, &at(1500), 9000, ChangeReach::Peer, peer);
            assert!(turn.unpin.is_empty());
            let expected = format!("route.mtu=9000@local route.advmss={mss}@local");
            assert_eq!(texts(&turn.peer), expected);
        }
        // Nobody may send more than the device takes, whoever it is.
        let turn = Turn::of(Side::Local, &at(9000), 1500, ChangeReach::Peer, PEER);
        assert_eq!(
            turn,
            Turn::of(Side::Local, &at(9000), 1500, ChangeReach::Segment, PEER)
        );
    }

    #[test]
    fn a_route_with_an_mtu_of_its_own_is_given_the_new_one() {
        let mut end = at(9000);
        end.before.mtu = Some(9000);
        let narrower = Turn::of(Side::Local, &end, 4000, ChangeReach::Segment, PEER);
        let expected = "route.mtu=4000@local route.advmss=3960@local";
        assert_eq!(texts(&narrower.peer), expected);
        // That the device has it already is not enough.
        end.device_mtu = 4000;
        let stays = Turn::of(Side::Local, &end, 4000, ChangeReach::Segment, PEER);
        assert_eq!(texts(&stays.peer), expected);
        assert!(stays.pin.is_empty() && stays.device.is_empty());
        // What was learned is forgotten by itself.
        end.before.expires_s = Some(300);
        let stays = Turn::of(Side::Local, &end, 4000, ChangeReach::Segment, PEER);
        assert_eq!(stays, Turn::default());
    }

    #[test]
    fn without_ipv6_at_that_size_only_routes_are_pinned() {
        let turn = Turn::of(Side::Local, &at(1000), 9000, ChangeReach::Segment, PEER);
        assert_eq!(texts(&turn.device), "device.mtu=9000@local");
        assert_eq!(texts(&turn.unpin), "device.pin=1000@local");
    }

    fn way(passes: Option<u32>, hangs: Option<bool>) -> Way {
        let climb = Climb {
            ceiling: 1500,
            passes,
            ..Climb::default()
        };
        let tcp = hangs.map(|hangs| TcpTruth {
            hangs,
            ..TcpTruth::default()
        });
        Way {
            verdict: crate::judge(&crate::DirectionFacts {
                sender: &end(),
                receiver: Some(&end()),
                climb: &climb,
                mss: None,
                tcp: tcp.as_ref(),
            }),
            climb,
            mss: None,
            tcp,
        }
    }

    fn end() -> PathEnd {
        PathEnd {
            device: "eth0".to_owned(),
            device_mtu: 1500,
            ..PathEnd::default()
        }
    }

    fn report(forward: Way, reverse: Way) -> MtuReport {
        MtuReport {
            schema: MTU_SCHEMA,
            host: "db2".to_owned(),
            method: Method::Agent,
            local: end(),
            remote: Some(end()),
            forward,
            reverse,
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_path_that_is_broken_now_is_not_changed() {
        let well = || way(Some(1500), Some(false));
        assert_eq!(obstacle(&report(well(), well()), 9000), None);
        for (bad, forward) in [
            (way(None, Some(false)), Obstacle::Broken(Going::Forward)),
            (way(Some(1500), None), Obstacle::Broken(Going::Forward)),
            (
                way(Some(1500), Some(true)),
                Obstacle::Broken(Going::Forward),
            ),
            (
                way(Some(1400), Some(true)),
                Obstacle::Hole(Going::Forward, 1400),
            ),
        ] {
            assert_eq!(obstacle(&report(bad, well()), 9000), Some(forward));
        }
        let hole = way(Some(1400), Some(true));
        assert_eq!(obstacle(&report(well(), hole), 1400), None);
    }

    #[test]
    fn a_link_that_may_go_down_is_reported() {
        let mut nic = report(way(Some(1500), Some(false)), way(Some(1500), Some(false)));
        if let Some(remote) = &mut nic.remote {
            (remote.drops_link, remote.driver) = (true, Some("e1000e".to_owned()));
        }
        let drops = Obstacle::DropsLink {
            end: Going::Reverse,
            device: "eth0".to_owned(),
            driver: "e1000e".to_owned(),
        };
        assert_eq!(obstacle(&nic, 9000), Some(drops));
        assert_eq!(obstacle(&nic, 1500), None);
    }

    #[test]
    fn what_does_not_get_through_is_reported_by_direction_size_and_kind() {
        let good = || way(Some(1500), Some(false));
        assert_eq!(stopped(&report(good(), good()), 1500, true), []);
        let bad = stopped(&report(good(), way(Some(1400), Some(true))), 1500, false);
        assert_eq!(bad.len(), 1);
        assert_eq!(
            (bad[0].way, bad[0].passes, bad[0].hangs),
            (Going::Reverse, Some(1400), false)
        );
        assert_eq!(
            bad[0].cause,
            MtuCause::Segment {
                to: None,
                peer: true
            }
        );
        let hangs = stopped(&report(way(Some(1500), None), good()), 1500, true);
        assert!(hangs.len() == 1 && hangs[0].hangs);
    }

    #[test]
    fn others_on_the_segment_or_behind_a_router_are_left_alone() {
        let good = || way(Some(1500), Some(false));
        let mut forward = report(good(), good());
        assert_eq!(reach_of(&forward), ChangeReach::Segment);
        forward.local.neighbours = 1;
        assert_eq!(reach_of(&forward), ChangeReach::Peer);
        forward.local.neighbours = 0;
        if let Some(remote) = &mut forward.remote {
            remote.gateway = Some(PEER);
        }
        assert_eq!(reach_of(&forward), ChangeReach::Peer);
    }
}
