//! One file a knob: what it reads, what it refuses, how it is applied and restored.

mod coalescing;
mod mtu;
mod mtu6;
mod offload;
mod pin;
mod qdisc;
mod ring;
mod route;
mod sysctl;
mod txqueuelen;

use crate::kernel::{NetlinkRefusal, attribute, device_towards, ifinfomsg, push, text, u32_at};
use crate::prelude::*;
use libc::{
    IFLA_IFNAME, IFLA_LINK, IFLA_LINK_NETNSID, IFLA_MASTER, IFLA_MTU, IFLA_TXQLEN, RTM_GETLINK,
    RTM_NEWLINK, RTM_SETLINK,
};
use model::{DeviceKnob, Knob};
use serde::de::DeserializeOwned;
use sys::ethtool::Ethtool;

/// A part of the machine, verbatim, as the journal keeps it.
pub(crate) type Image = serde_json::Value;

/// What [`Failure::Forbidden`] says.
pub(crate) const NO_RIGHT: &str = "it needs root, or the capability CAP_NET_ADMIN";

/// Why something was not done to the machine.
#[derive(Debug)]
pub(crate) enum KnobFailure {
    /// The right is missing.
    Forbidden,
    /// What it is about is not there any more, and took the change with it.
    Gone,
    /// Anything else, in words.
    Words(String),
}

impl From<NetlinkRefusal> for KnobFailure {
    fn from(refusal: NetlinkRefusal) -> KnobFailure {
        match refusal.errno {
            libc::EPERM | libc::EACCES => KnobFailure::Forbidden,
            libc::ENODEV => KnobFailure::Gone,
            _ => KnobFailure::Words(format!("the kernel says: {refusal}")),
        }
    }
}

impl From<io::Error> for KnobFailure {
    fn from(error: io::Error) -> KnobFailure {
        NetlinkRefusal::from(error).into()
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, KnobFailure> {
    Err(KnobFailure::Words(why.into()))
}

fn to_image(value: impl Serialize) -> Result<Image, KnobFailure> {
    serde_json::to_value(value).or_else(|error| refuse(error.to_string()))
}

/// Reads an image back; `what` it shows is for the refusal.
fn from_image<T: DeserializeOwned>(image: &Image, what: &str) -> Result<T, KnobFailure> {
    T::deserialize(image).or_else(|_| refuse(format!("{what} is unreadable")))
}

/// A part of the machine that is read whole, changed by a setting, and restored whole.
pub(crate) trait Part {
    /// All that a change may touch, verbatim.
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure>;
    /// Refuses what cannot be done, or could not be restored to `before`. Changes nothing.
    fn plan(&self, _: &mut Kernel, setting: &Setting, _: &Image) -> Result<(), KnobFailure> {
        number(setting).map(drop)
    }
    /// Changes it.
    fn apply(&self, kernel: &mut Kernel, setting: &Setting) -> Result<(), KnobFailure>;
    /// The value that it has now; `None` if it has none.
    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure>;
    /// Puts it back, from whatever it is now.
    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure>;
    /// Whether a value that was found is the one that was asked for.
    fn is(&self, asked: &Value, found: &Value) -> bool {
        asked == found
    }
}

/// Which part of the machine a setting is about, as the journal keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub(crate) enum Target {
    Route(route::HostRoute),
    Sysctl(sysctl::Sysctl),
    Mtu(mtu::MtuKnob),
    Mtu6(mtu6::Mtu6),
    Pin(pin::Pin),
    Txqueuelen(txqueuelen::Txqueuelen),
    Qdisc(qdisc::Root),
    Offloads(offload::Offloads),
    Rings(ring::Rings),
    InterruptDelay(coalescing::InterruptDelay),
}

impl Target {
    /// Where a setting acts, seen from the path to this peer; `None` where it is no part of the machine:
    /// options of linerate's own connections, IPv6's on a device that has none.
    pub fn of(
        kernel: &mut Kernel,
        setting: &Setting,
        peer: IpAddr,
    ) -> Result<Option<Target>, KnobFailure> {
        let knob = match setting.knob {
            Knob::Route(knob) => {
                let route = route::HostRoute::plan(kernel, knob, &setting.value, peer)?;
                return Ok(Some(Target::Route(route)));
            }
            Knob::Sysctl(key) => return Ok(Some(Target::Sysctl(sysctl::Sysctl::of(key)))),
            Knob::Device(knob) => knob,
            Knob::Socket(_) => return Ok(None),
        };
        let index = device_towards(kernel, peer).map_err(|e| no_route(peer, e))?;
        let device = KnobDevice::by_index(kernel, index)?;
        Ok(Some(match knob {
            DeviceKnob::Mtu => Target::Mtu(mtu::MtuKnob { device }),
            DeviceKnob::Mtu6 if !mtu::has_ipv6(&device.name) => return Ok(None),
            DeviceKnob::Mtu6 => Target::Mtu6(mtu6::Mtu6 { device }),
            DeviceKnob::Pin => Target::Pin(pin::Pin::plan(kernel, device, number(setting)?)?),
            DeviceKnob::Txqueuelen => Target::Txqueuelen(txqueuelen::Txqueuelen { device }),
            DeviceKnob::Qdisc => Target::Qdisc(qdisc::Root { device }),
            DeviceKnob::Offload(knob) => Target::Offloads(offload::Offloads { device, knob }),
            DeviceKnob::Ring(knob) => Target::Rings(ring::Rings { device, knob }),
            DeviceKnob::Coalescing(knob) => {
                Target::InterruptDelay(coalescing::InterruptDelay { device, knob })
            }
        }))
    }

    pub fn part(&self) -> &dyn Part {
        match self {
            Target::Route(part) => part,
            Target::Sysctl(part) => part,
            Target::Mtu(part) => part,
            Target::Mtu6(part) => part,
            Target::Pin(part) => part,
            Target::Txqueuelen(part) => part,
            Target::Qdisc(part) => part,
            Target::Offloads(part) => part,
            Target::Rings(part) => part,
            Target::InterruptDelay(part) => part,
        }
    }
}

fn no_route(peer: IpAddr, refusal: NetlinkRefusal) -> KnobFailure {
    match refusal.errno {
        libc::EPERM => KnobFailure::Forbidden,
        _ => KnobFailure::Words(format!("this host has no route to {peer} ({refusal})")),
    }
}

/// A network device: its index distinguishes it from a later one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnobDevice {
    pub index: u32,
    pub name: String,
}

/// What is known of a device without its driver.
pub(crate) struct KnobLink {
    pub device: KnobDevice,
    pub mtu: u32,
    pub txqueuelen: u32,
    /// The device below (or, for veth, opposite), if it is in this network namespace.
    pub lower: Option<u32>,
    /// Bridge or bond that it belongs to.
    pub master: Option<u32>,
}

impl KnobDevice {
    /// The driver, by the name that the device has now.
    fn driver(&self, kernel: &mut Kernel) -> Result<Ethtool, KnobFailure> {
        Ok(Ethtool::open(
            &KnobDevice::by_index(kernel, self.index)?.name,
        )?)
    }

    pub fn by_index(kernel: &mut Kernel, index: u32) -> Result<KnobDevice, KnobFailure> {
        Ok(KnobLink::by_index(kernel, index)?.device)
    }

    /// Sets one number of the device.
    pub fn set(&self, kernel: &mut Kernel, attribute: u16, value: u32) -> Result<(), KnobFailure> {
        let mut body = ifinfomsg(self.index);
        push(&mut body, attribute, &value.to_ne_bytes());
        Ok(kernel.order(RTM_SETLINK, 0, &body)?)
    }
}

impl KnobLink {
    pub fn by_index(kernel: &mut Kernel, index: u32) -> Result<KnobLink, KnobFailure> {
        let answer = kernel.get(RTM_GETLINK, &ifinfomsg(index))?;
        understood(
            KnobLink::read(&answer.body),
            "the kernel's answer is not a device",
        )
    }

    /// All devices of the network namespace.
    pub fn all(kernel: &mut Kernel) -> Result<Vec<KnobLink>, KnobFailure> {
        let answers = kernel.dump(RTM_GETLINK, &ifinfomsg(0))?;
        let links = answers.iter().filter(|a| a.kind == RTM_NEWLINK);
        Ok(links.filter_map(|a| KnobLink::read(&a.body)).collect())
    }

    fn read(body: &[u8]) -> Option<KnobLink> {
        let all = body.get(16..)?;
        let number = |kind| u32_at(attribute(all, kind)?, 0);
        let elsewhere = attribute(all, IFLA_LINK_NETNSID).is_some();
        Some(KnobLink {
            device: KnobDevice {
                index: u32_at(body, 4)?,
                name: attribute(all, IFLA_IFNAME).map(text).unwrap_or_default(),
            },
            mtu: number(IFLA_MTU)?,
            txqueuelen: number(IFLA_TXQLEN)?,
            lower: number(IFLA_LINK).filter(|_| !elsewhere),
            master: number(IFLA_MASTER),
        })
    }
}

/// A number of a setting that is one by its knob.
fn number(setting: &Setting) -> Result<u32, KnobFailure> {
    match setting.value.number().map(u32::try_from) {
        Some(n) => n.or_else(|_| refuse("the number is too large")),
        None => refuse("the value is not a number"),
    }
}

/// What was read of the kernel, or why not.
fn understood<T>(read: Option<T>, what: &str) -> Result<T, KnobFailure> {
    read.map_or_else(|| refuse(what), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_what_the_kernel_says_of_it() {
        let read = |elsewhere: bool, leave: Option<u16>| {
            let mut body = ifinfomsg(7);
            for (kind, value) in [
                (IFLA_MTU, 1500u32),
                (IFLA_TXQLEN, 1000),
                (IFLA_LINK, 3),
                (IFLA_MASTER, 4),
            ] {
                if Some(kind) != leave {
                    push(&mut body, kind, &value.to_ne_bytes());
                }
            }
            push(&mut body, IFLA_IFNAME, b"eth0\0");
            if elsewhere {
                push(&mut body, IFLA_LINK_NETNSID, &[0; 4]);
            }
            let link = KnobLink::read(&body)?;
            assert_eq!((link.device.index, link.device.name.as_str()), (7, "eth0"));
            Some((link.mtu, link.txqueuelen, link.lower, link.master))
        };
        assert_eq!(read(false, None), Some((1500, 1000, Some(3), Some(4))));
        assert_eq!(
            read(true, None),
            Some((1500, 1000, None, Some(4))),
            "in another namespace"
        );
        assert_eq!(
            [read(false, Some(IFLA_MTU)), read(false, Some(IFLA_TXQLEN))],
            [None, None]
        );
        assert_eq!(
            read(false, Some(IFLA_MASTER)),
            Some((1500, 1000, Some(3), None))
        );
    }

    #[test]
    fn a_refusal_is_a_missing_right_a_device_that_is_gone_or_words() {
        let of = |errno| match KnobFailure::from(io::Error::from_raw_os_error(errno)) {
            KnobFailure::Forbidden => "forbidden".to_owned(),
            KnobFailure::Gone => "gone".to_owned(),
            KnobFailure::Words(words) => words,
        };
        assert_eq!(
            [of(libc::EPERM), of(libc::EACCES), of(libc::ENODEV)],
            ["forbidden", "forbidden", "gone"]
        );
        assert!(of(libc::EBUSY).starts_with("the kernel says: "));
        let route = |errno| match no_route(
            [192, 0, 2, 1].into(),
            io::Error::from_raw_os_error(errno).into(),
        ) {
            KnobFailure::Words(words) => words,
            KnobFailure::Forbidden | KnobFailure::Gone => "forbidden".to_owned(),
        };
        assert_eq!(route(libc::EPERM), "forbidden");
        assert!(route(libc::ENETUNREACH).starts_with("this host has no route to 192.0.2.1"));
        let number_of = |text: &str| number(&text.parse().unwrap()).map_err(drop);
        assert_eq!(number_of("device.mtu=1400"), Ok(1400));
        assert_eq!(number_of("device.tso=off"), Err(()));
    }
}
