//! A network device, as its kernel driver reports it.

use crate::unread::{Unreadable, invalid, why};
use crate::{qdisc, route};
use libc::{
    IFLA_EXT_MASK, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU, IFLA_NUM_RX_QUEUES,
    IFLA_NUM_TX_QUEUES, IFLA_PARENT_DEV_NAME, IFLA_QDISC, IFLA_STATS64, IFLA_TXQLEN, RTM_GETLINK,
};
use model::{BitRate, Device, LineErrors};
use std::io;
use std::net::IpAddr;
use sys::ethtool::{Ethtool, OFFLOADS};
use sys::netlink::{Conversation, Protocol, attribute, ifinfomsg, push, text, u32_at, u64_at};

/// Reads the device of this index; what its driver does not report is put into `unread`.
pub(crate) fn read(
    netlink: &mut Conversation,
    index: u32,
    unread: &mut Unreadable,
) -> io::Result<Device> {
    let LinkSettings { mut device, kind } = link(netlink, index)?;
    let name = device.name.clone();
    // With parameters where there are any; the kind alone came with the link.
    let what = format!("parameters of the qdisc of {name}");
    let described = unread
        .ok_or_note(what, qdisc::root(netlink, index))
        .flatten();
    device.qdisc = described.or(device.qdisc);
    let what = format!("driver, link and offloads of {name}");
    if let Some(ethtool) = unread.ok_or_note(what, Ethtool::open(&name)) {
        read_driver(&mut device, kind, &ethtool, unread);
    }
    Ok(device)
}

/// What the kernel itself knows of a device.
pub(crate) struct LinkSettings {
    pub device: Device,
    /// Kind of a virtual device.
    kind: Option<String>,
}

/// Queries a device: its attributes, which come behind a `struct ifinfomsg`.
fn attributes(netlink: &mut Conversation, question: &[u8]) -> io::Result<Vec<u8>> {
    let answer = netlink.get(RTM_GETLINK, question)?;
    let all = answer.body.get(16..);
    all.map(<[u8]>::to_vec)
        .ok_or_else(|| invalid("the kernel's answer is not a link"))
}

/// The device of this index, without what only its driver knows.
pub(crate) fn link(netlink: &mut Conversation, index: u32) -> io::Result<LinkSettings> {
    const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
    let mut question = ifinfomsg(index);
    let filter = RTEXT_FILTER_SKIP_STATS.to_ne_bytes();
    push(&mut question, IFLA_EXT_MASK, &filter);
    let all = attributes(netlink, &question)?;
    let number = |kind| u32_at(attribute(&all, kind)?, 0);
    let words = |kind| attribute(&all, kind).map(text);
    let info = attribute(&all, IFLA_LINKINFO).unwrap_or_default();
    Ok(LinkSettings {
        device: Device {
            name: words(IFLA_IFNAME).unwrap_or_default(),
            mtu: number(IFLA_MTU).unwrap_or(0),
            tx_queue_len: number(IFLA_TXQLEN),
            rx_queues: number(IFLA_NUM_RX_QUEUES),
            tx_queues: number(IFLA_NUM_TX_QUEUES),
            qdisc: words(IFLA_QDISC),
            bus: words(IFLA_PARENT_DEV_NAME),
            ..Device::default()
        },
        kind: attribute(info, IFLA_INFO_KIND).map(text),
    })
}

/// What the device on the way to `peer` has counted of its line since it came up.
///
/// # Errors
/// If there is no route, or the device counts nothing.
pub fn line_errors(peer: IpAddr) -> io::Result<LineErrors> {
    let mut netlink = Conversation::open(Protocol::Route)?;
    let resolved = route::resolve(&mut netlink, peer.to_canonical())?;
    let all = attributes(&mut netlink, &ifinfomsg(resolved.device_index))?;
    let counted = attribute(&all, IFLA_STATS64).ok_or(io::ErrorKind::Unsupported)?;
    // Numbers of `struct rtnl_link_stats64`.
    let count = |n: usize| u64_at(counted, 8 * n).unwrap_or(0);
    let (collisions, length, crc, frame, tx_window) = (9, 10, 12, 13, 20);
    Ok(LineErrors {
        device: attribute(&all, IFLA_IFNAME).map(text).unwrap_or_default(),
        damaged: count(crc) + count(frame) + count(length),
        collisions: count(collisions),
        late_collisions: count(tx_window),
    })
}

/// The driver of a device, if there is one to ask.
pub(crate) fn driver(name: &str) -> Option<String> {
    known(Ethtool::open(name).and_then(|e| e.driver()).ok()?.driver)
}

/// Whether a driver may take the link down and up when the MTU changes. Those that have no hardware
/// behind them do not; nor do the two of virtual machines that only write the number down (`virtio_net`
/// has no `ndo_change_mtu`; `xennet_change_mtu`). A bond or a VLAN has hardware below it.
pub(crate) fn drops_link(driver: &str) -> bool {
    let others =
        "veth bridge dummy tun macvlan ipvlan vxlan geneve wireguard openvswitch virtio_net vif";
    others.split(' ').all(|other| other != driver)
}

fn read_driver(
    device: &mut Device,
    kind: Option<String>,
    ethtool: &Ethtool,
    unread: &mut Unreadable,
) {
    let name = device.name.clone();
    let refusal = |driver: &str, error: &io::Error| unsupported(error, kind.as_deref(), driver);
    let what = format!("driver of {name}");
    let info = unread.ok_or_note_as(what, ethtool.driver(), |error| refusal("", error));
    let info = info.unwrap_or_default();
    let driver = info.driver.clone();
    let refusal = |error: &io::Error| refusal(&driver, error);
    device.driver = known(info.driver);
    device.firmware = known(info.firmware);
    device.bus = known(info.bus).or(device.bus.take());

    let what = format!("link speed of {name}");
    // These drivers make a speed up that limits nothing (`veth_get_link_ksettings` and `tun_default_link_ksettings`:
    // 10 Gbit/s).
    let is_made_up = matches!(kind.as_deref(), Some("veth" | "tun"));
    match unread.ok_or_note_as(what.clone(), ethtool.link(), refusal) {
        Some(_) if is_made_up => unread.push(
            what,
            format!("the driver {driver} always reports the same speed, which limits nothing"),
        ),
        Some((speed, duplex)) => {
            device.speed = speed.map(|mbit| BitRate(u64::from(mbit) * 1_000_000));
            device.duplex = duplex.map(|full| if full { "full" } else { "half" }.to_owned());
            if speed.is_none() {
                unread.push(what, format!("the driver {driver} reports it as unknown"));
            }
        }
        None => {}
    }
    for offload in &OFFLOADS {
        let what = format!("offload {} of {name}", offload.name);
        if let Some(on) = unread.ok_or_note_as(what, ethtool.offload(offload), refusal) {
            device.offloads.insert(offload.name.to_owned(), on);
        }
    }
    let what = format!("ring sizes of {name}");
    let rings = unread.ok_or_note_as(what, ethtool.rings(), refusal);
    [device.rx_ring, device.tx_ring] = match rings {
        Some(rings) => rings.map(|ring| Some((ring.current, ring.maximum))),
        None => [None; 2],
    };
    // Most virtual devices do not interrupt.
    if let Ok(coalescing) = ethtool.coalescing() {
        [device.rx_usecs, device.tx_usecs] = coalescing.delays_us();
    }
    // The link has how many there are; only how many are in use stays unknown.
    let what = format!("queues in use of {name}");
    if let Some(queues) = unread.ok_or_note_as(what, ethtool.channels(), refusal) {
        [device.rx_queues, device.tx_queues] = queues.map(Some);
    }
}

/// Drivers fill what they do not know with nothing, or with `N/A`.
fn known(text: String) -> Option<String> {
    (!text.is_empty() && text != "N/A").then_some(text)
}

fn unsupported(error: &io::Error, kind: Option<&str>, driver: &str) -> String {
    if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
        return why(error);
    }
    match (driver, kind) {
        ("", None) => "its driver does not support the question".to_owned(),
        ("", Some(kind)) => format!("not supported by devices of the kind {kind}"),
        (driver, _) => format!("not supported by the driver {driver}"),
    }
}
