//! The IPv4 routes through a device, each with an MTU of its own: packets on them keep their size while
//! the device takes larger packets already, or takes them still. (A route of IPv6 follows its device, and
//! one that a router announced could not be restored with its lifetime: for IPv6 there is
//! [`Mtu6`](super::mtu6::Mtu6).)

use super::route::{self, RouteMessage};
use super::{Image, KnobDevice, KnobFailure, KnobLink, Part, from_image, refuse, understood};
use crate::kernel::{CREATE, REPLACE, to_hex};
use crate::prelude::*;

/// Routes that are pinned at most: a router of the Internet is not to be widened like this.
const MOST: usize = 4096;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pin {
    device: KnobDevice,
    mtu: u32,
    /// The routes as they will be, in hexadecimal; those that are no larger already are left out.
    planned: Vec<String>,
}

impl Pin {
    /// Plans the pins of this device.
    pub fn plan(kernel: &mut Kernel, device: KnobDevice, mtu: u32) -> Result<Pin, KnobFailure> {
        let mut planned = Vec::new();
        let all = route::through(kernel, device.index)?;
        for (at, found) in all.iter().enumerate() {
            if all[..at].iter().any(|other| other.is_in_place_of(found)) {
                return refuse(format!(
                    "{} has several routes to one destination with one priority, which could not be restored in \
                     their order: give them priorities (ip route ... metric N)",
                    device.name
                ));
            }
            let mut pinned = found.clone();
            if pinned.pin(mtu) {
                planned.push(to_hex(&pinned.write()));
            }
        }
        if planned.len() > MOST {
            return refuse(format!(
                "{} IPv4 routes lead through {}, more than {MOST}",
                planned.len(),
                device.name
            ));
        }
        Ok(Pin {
            device,
            mtu,
            planned,
        })
    }

    /// The planned routes, and beside each the one that stands in its place now.
    fn standing(
        &self,
        kernel: &mut Kernel,
    ) -> Result<Vec<(RouteMessage, Option<RouteMessage>)>, KnobFailure> {
        // A device that is gone took its routes with it.
        KnobLink::by_index(kernel, self.device.index)?;
        let all = route::through(kernel, self.device.index)?;
        let with_standing = |planned: &String| {
            let planned = message(planned)?;
            let standing = all.iter().find(|route| route.is_in_place_of(&planned));
            Ok((planned, standing.cloned()))
        };
        self.planned.iter().map(with_standing).collect()
    }
}

fn message(hex: &str) -> Result<RouteMessage, KnobFailure> {
    understood(RouteMessage::from_hex(hex), "a route of it is unreadable")
}

impl Part for Pin {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure> {
        let hex = |route: RouteMessage| to_hex(&route.write());
        let all = self.standing(kernel)?.into_iter();
        Ok(all.map(|(_, standing)| standing.map(hex)).collect())
    }

    fn plan(&self, _: &mut Kernel, _: &Setting, _: &Image) -> Result<(), KnobFailure> {
        Ok(())
    }

    fn apply(&self, kernel: &mut Kernel, _: &Setting) -> Result<(), KnobFailure> {
        for planned in &self.planned {
            let body = message(planned)?.write();
            kernel.order(libc::RTM_NEWROUTE, CREATE | REPLACE, &body)?;
            step("route pinned");
        }
        Ok(())
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        let own = KnobLink::by_index(kernel, self.device.index)?.mtu;
        let all = self.standing(kernel)?.into_iter();
        let mtus = all.map(|(_, standing)| standing.and_then(|route| route.mtu()).unwrap_or(own));
        let largest = mtus.max();
        Ok(Some(Value::Number(largest.unwrap_or(self.mtu).into())))
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let before: Vec<Option<String>> = from_image(before, "the former state of the routes")?;
        for ((_, standing), before) in self.standing(kernel)?.into_iter().zip(before) {
            let Some(before) = before.as_deref().map(message).transpose()? else {
                continue;
            };
            if standing.is_none_or(|standing| standing != before) {
                kernel.order(libc::RTM_NEWROUTE, CREATE | REPLACE, &before.write())?;
                step("route unpinned");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Has ip(8) do this, a line each, in the network namespace of this thread.
    fn ip(lines: &str) {
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]).stdin(Stdio::piped());
        let mut ip = ip.spawn().unwrap();
        let mut input = ip.stdin.take().unwrap();
        input.write_all(lines.as_bytes()).unwrap();
        drop(input);
        assert!(ip.wait().unwrap().success());
    }

    /// In a network namespace of its own, or not at all without the right to make one.
    fn apart(act: impl FnOnce(&mut Kernel) + Send + 'static) {
        let apart = std::thread::spawn(|| {
            if sys::namespace::unshare_net().is_ok() {
                ip("link set lo up\n");
                act(&mut crate::kernel::kernel().unwrap());
            }
        });
        apart.join().unwrap();
    }

    /// How many routes would be pinned, or why none.
    fn planned(kernel: &mut Kernel) -> Result<usize, String> {
        let name = "lo".to_owned();
        let device = KnobDevice { index: 1, name };
        match Pin::plan(kernel, device, 1400) {
            Ok(pin) => Ok(pin.planned.len()),
            Err(KnobFailure::Words(why)) => Err(why),
            Err(KnobFailure::Forbidden | KnobFailure::Gone) => Err("refused".to_owned()),
        }
    }

    #[test]
    fn so_many_routes_are_pinned_and_no_more() {
        apart(|kernel| {
            let route = |n: usize| format!("route add 10.{}.{}.0/24 dev lo\n", n / 256, n % 256);
            ip(&(0..MOST).map(route).collect::<String>());
            // Those that are no larger already do not count.
            ip("route add 10.99.0.0/16 dev lo mtu 1400\n");
            assert_eq!(planned(kernel), Ok(MOST));
            ip("route add 10.98.0.0/16 dev lo mtu 1401\n");
            let why = planned(kernel).unwrap_err();
            assert!(
                why.starts_with("4097 IPv4 routes lead through lo, more than 4096"),
                "{why}"
            );
        });
    }

    #[test]
    fn routes_whose_order_cannot_be_restored_are_not_pinned() {
        apart(|kernel| {
            ip("route add 10.1.0.0/24 dev lo\nroute add 10.1.0.0/24 dev lo metric 5\n");
            assert_eq!(planned(kernel), Ok(2));
            ip("route append 10.1.0.0/24 via 127.0.0.2 dev lo\n");
            let why = planned(kernel).unwrap_err();
            assert!(
                why.starts_with("lo has several routes to one destination"),
                "{why}"
            );
        });
    }
}
