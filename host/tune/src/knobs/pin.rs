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
