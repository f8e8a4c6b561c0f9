//! MTU of a device. The kernel lets other things follow it and does not lead them back: devices stacked on
//! it, IPv6's own MTU, and the MTU of IPv6 routes. So those are saved and restored too, or it is refused.

use super::route::{self, RouteMessage};
use super::{Image, KnobDevice, KnobFailure, KnobLink, Part, from_image, number, refuse, to_image};
use crate::prelude::*;
use std::collections::BTreeMap;
use std::fs;

/// Below it IPv6 leaves a device and forgets its addresses (RFC 8200; `addrconf_notify`).
const IPV6_LEAST: u32 = 1280;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MtuKnob {
    pub device: KnobDevice,
}

/// The former state of one device; the key is its index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptMtu {
    mtu: u32,
    /// `net.ipv6.conf.*.mtu`, if IPv6 is there.
    ipv6: Option<String>,
}

impl MtuKnob {
    /// This device and all that are stacked with it, by index.
    fn related(&self, kernel: &mut Kernel) -> Result<BTreeMap<u32, KnobLink>, KnobFailure> {
        let all = KnobLink::all(kernel)?.into_iter();
        let all = all.map(|link| (link.device.index, link));
        stacked_with(self.device.index, all.collect()).ok_or(KnobFailure::Gone)
    }
}

/// Of all devices by index: this one and all that are stacked with it; `None` if it is not there.
fn stacked_with(index: u32, mut all: BTreeMap<u32, KnobLink>) -> Option<BTreeMap<u32, KnobLink>> {
    let mut related = BTreeMap::from([(index, all.remove(&index)?)]);
    // Each round adds at least one device or is the last.
    loop {
        let next = all.iter().find(|(index, link)| {
            // The peer of a veth is below it, and it is below its peer: not stacked.
            let stacked = link.lower.and_then(|lower| related.get(&lower));
            let master = link.master.and_then(|master| related.get(&master));
            stacked.is_some_and(|lower| lower.lower != Some(**index))
                || master.is_some()
                || related.values().any(|r| r.master == Some(**index))
        });
        let Some(next) = next.map(|(index, _)| *index) else {
            return Some(related);
        };
        related.extend(all.remove(&next).map(|link| (next, link)));
    }
}

pub(super) fn ipv6_file(name: &str) -> String {
    format!("/proc/sys/net/ipv6/conf/{name}/mtu")
}

pub(super) fn has_ipv6(name: &str) -> bool {
    fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"))
        .is_ok_and(|text| text.trim() == "0")
}

/// MTUs of the IPv6 routes through a device that follow it (`rt6_mtu_change_route`): those that are set
/// and not locked.
fn following_routes(kernel: &mut Kernel, device: u32) -> Result<Vec<u32>, KnobFailure> {
    let all = match route::dump(kernel, libc::AF_INET6) {
        Ok(all) => all,
        // A kernel without IPv6.
        Err(refusal) if matches!(refusal.errno, libc::EOPNOTSUPP | libc::EAFNOSUPPORT) => {
            return Ok(Vec::new());
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let routes = all
        .iter()
        .filter_map(|route| RouteMessage::read(&route.body));
    let mine = routes.filter(|route| route.device() == Some(device) && !route.is_mtu_locked());
    Ok(mine.filter_map(|route| route.mtu()).collect())
}

/// What becomes of such a route when the device changes, where IPv6 believed in `ipv6` before.
fn followed(route: u32, ipv6: u32, device: u32) -> u32 {
    match route >= device || route == ipv6 {
        true => device,
        false => route,
    }
}

impl Part for MtuKnob {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure> {
        let kept = self.related(kernel)?.into_iter().map(|(index, link)| {
            let ipv6 = fs::read_to_string(ipv6_file(&link.device.name)).ok();
            let mtu = link.mtu;
            (index, KeptMtu { mtu, ipv6 })
        });
        to_image(kept.collect::<BTreeMap<u32, KeptMtu>>())
    }

    fn plan(&self, kernel: &mut Kernel, setting: &Setting, _: &Image) -> Result<(), KnobFailure> {
        let asked = number(setting)?;
        for (index, link) in self.related(kernel)? {
            let name = &link.device.name;
            // Disabled or not: with its addresses the kernel forgets that it was disabled.
            if asked < IPV6_LEAST && Path::new(&ipv6_file(name)).exists() {
                return refuse(format!(
                    "below {IPV6_LEAST} bytes {name} would lose IPv6 with its addresses: choose {IPV6_LEAST} or more"
                ));
            }
            if !has_ipv6(name) {
                continue;
            }
            let ipv6 = fs::read_to_string(ipv6_file(name)).ok();
            let ipv6 = ipv6.and_then(|t| t.trim().parse().ok()).unwrap_or(link.mtu);
            let lost = following_routes(kernel, index)?
                .into_iter()
                .find(|route| followed(followed(*route, ipv6, asked), asked, link.mtu) != *route);
            if let Some(route) = lost {
                return refuse(format!(
                    "an IPv6 route through {name} has an MTU of {route} that the kernel would change and not give \
                     back: lock it (ip -6 route change ... mtu lock {route}), or remove it"
                ));
            }
        }
        Ok(())
    }

    fn apply(&self, kernel: &mut Kernel, setting: &Setting) -> Result<(), KnobFailure> {
        self.device.set(kernel, libc::IFLA_MTU, number(setting)?)
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        let link = KnobLink::by_index(kernel, self.device.index)?;
        Ok(Some(Value::Number(link.mtu.into())))
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let before: BTreeMap<u32, KeptMtu> = from_image(before, "its former MTU")?;
        // A device may have to wait for the one below it; a second round finds everything in place.
        for _ in 0..2 {
            for (index, link) in self.related(kernel)? {
                let Some(kept) = before.get(&index) else {
                    continue;
                };
                if link.mtu != kept.mtu {
                    let done = link.device.set(kernel, libc::IFLA_MTU, kept.mtu);
                    if index == self.device.index {
                        done?;
                    }
                    step("MTU restored");
                }
            }
        }
        for (index, link) in self.related(kernel)? {
            let file = ipv6_file(&link.device.name);
            let kept = before.get(&index).and_then(|kept| kept.ipv6.as_ref());
            let now = fs::read_to_string(&file).ok();
            if let (Some(kept), Some(now)) = (kept, now)
                && *kept != now
            {
                fs::write(&file, kept)?;
                step("MTU of IPv6 restored");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stacked_with_a_device_changes_with_it() {
        let link = |index: u32, lower: Option<u32>, master: Option<u32>| {
            let name = format!("d{index}");
            let device = KnobDevice { index, name };
            let link = KnobLink {
                device,
                mtu: 1500,
                txqueuelen: 1000,
                lower,
                master,
            };
            (index, link)
        };
        let all = || {
            BTreeMap::from([
                link(1, None, None),
                // A pair of veth, one of which is in a bridge with a third, and two VLANs on the other.
                link(2, Some(3), None),
                link(3, Some(2), Some(6)),
                link(4, Some(2), None),
                link(5, Some(4), None),
                link(6, None, None),
                link(7, None, Some(6)),
            ])
        };
        let with = |index| Some(stacked_with(index, all())?.into_keys().collect::<Vec<_>>());
        assert_eq!(with(1), Some(vec![1]));
        assert_eq!(with(2), Some(vec![2, 4, 5]));
        assert_eq!(with(4), Some(vec![4, 5]), "not the one below");
        for of_bridge in [3, 6, 7] {
            assert_eq!(with(of_bridge), Some(vec![3, 6, 7]));
        }
        assert_eq!(with(8), None);
    }

    #[test]
    fn routes_that_follow_come_back_or_not() {
        let there_and_back = |route, ipv6, old, new| followed(followed(route, ipv6, new), new, old);
        assert_eq!(there_and_back(1500, 1500, 1500, 9000), 1500);
        assert_eq!(there_and_back(1500, 1500, 1500, 1400), 1500);
        assert_eq!(there_and_back(1400, 1500, 1500, 9000), 1400);
        assert_eq!(there_and_back(1400, 1500, 1500, 1300), 1500);
        assert_eq!(there_and_back(1500, 1500, 9000, 4000), 9000);
    }
}
