//! A network device, as its kernel driver reports it.

use crate::netlink::{Rtnetlink, invalid};
use crate::unread::{Unreadable, why};
use crate::{qdisc, route};
use model::{BitRate, Device, LineErrors};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkExtentMask, LinkInfo, LinkMessage, Stats64,
};
use std::io;
use std::net::IpAddr;
use sys::ethtool::{Ethtool, OFFLOADS};

/// Reads the device of this index; what its driver does not report is put into `unread`.
pub(crate) fn read(
    netlink: &mut Rtnetlink,
    index: u32,
    unread: &mut Unreadable,
) -> io::Result<Device> {
    let Link { mut device, kind } = link(netlink, index)?;
    let name = device.name.clone();
    // With parameters where there are any; the kind alone came with the link.
    let what = format!("parameters of the qdisc of {name}");
    let described = unread.keep(what, qdisc::root(netlink, index)).flatten();
    device.qdisc = described.or(device.qdisc);
    let what = format!("driver, link and offloads of {name}");
    if let Some(ethtool) = unread.keep(what, Ethtool::open(&name)) {
        ask_driver(&mut device, kind, &ethtool, unread);
    }
    Ok(device)
}

/// What the kernel itself knows of a device.
pub(crate) struct Link {
    pub device: Device,
    /// Kind of a virtual device.
    kind: Option<InfoKind>,
}

/// The device of this index, without what only its driver knows.
pub(crate) fn link(netlink: &mut Rtnetlink, index: u32) -> io::Result<Link> {
    let mut question = LinkMessage::default();
    question.header.index = index;
    question
        .attributes
        .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let answer = netlink.get(RouteNetlinkMessage::GetLink(question))?;
    let RouteNetlinkMessage::NewLink(answer) = answer else {
        return Err(invalid("the kernel's answer is not a link"));
    };
    let mut device = Device::default();
    let mut kind = None;
    for attribute in answer.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name = name,
            LinkAttribute::Mtu(mtu) => device.mtu = mtu,
            LinkAttribute::TxQueueLen(packets) => device.tx_queue_len = Some(packets),
            LinkAttribute::NumRxQueues(queues) => device.rx_queues = Some(queues),
            LinkAttribute::NumTxQueues(queues) => device.tx_queues = Some(queues),
            LinkAttribute::Qdisc(kind) => device.qdisc = Some(kind),
            LinkAttribute::ParentDevName(address) => device.bus = Some(address),
            LinkAttribute::LinkInfo(infos) => {
                kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Ok(Link { device, kind })
}

/// What the device on the way to `peer` has counted of its line since it came up.
///
/// # Errors
/// If there is no route, or the device counts nothing.
pub fn line_errors(peer: IpAddr) -> io::Result<LineErrors> {
    let mut netlink = Rtnetlink::open()?;
    let resolved = route::resolve(&mut netlink, peer.to_canonical())?;
    let mut question = LinkMessage::default();
    question.header.index = resolved.device_index;
    let mut errors = None;
    let mut device = String::new();
    if let RouteNetlinkMessage::NewLink(answer) =
        netlink.get(RouteNetlinkMessage::GetLink(question))?
    {
        for attribute in answer.attributes {
            match attribute {
                LinkAttribute::IfName(name) => device = name,
                LinkAttribute::Stats64(counted) => errors = Some(line_errors_of(&counted)),
                _ => {}
            }
        }
    }
    let errors = errors.ok_or(io::ErrorKind::Unsupported)?;
    Ok(LineErrors { device, ..errors })
}

fn line_errors_of(counted: &Stats64) -> LineErrors {
    LineErrors {
        device: String::new(),
        damaged: counted.rx_crc_errors + counted.rx_frame_errors + counted.rx_length_errors,
        collisions: counted.collisions,
        late_collisions: counted.tx_window_errors,
    }
}

/// The driver of a device, if there is one to ask.
pub(crate) fn driver(name: &str) -> Option<String> {
    known(Ethtool::open(name).and_then(|e| e.driver()).ok()?.driver)
}

/// Whether a driver may take the link down and up when the MTU changes. Those that have no hardware
/// behind them do not; nor do the two of virtual machines that only write the number down (`virtio_net`
/// has no `ndo_change_mtu`; `xennet_change_mtu`). A bond or a VLAN has hardware below it.
pub(crate) fn drops_link(driver: &str) -> bool {
    !matches!(
        driver,
        "veth"
            | "bridge"
            | "dummy"
            | "tun"
            | "macvlan"
            | "ipvlan"
            | "vxlan"
            | "geneve"
            | "wireguard"
            | "openvswitch"
            | "virtio_net"
            | "vif"
    )
}

fn ask_driver(
    device: &mut Device,
    kind: Option<InfoKind>,
    ethtool: &Ethtool,
    unread: &mut Unreadable,
) {
    let name = device.name.clone();
    let refusal = |driver: &str, error: &io::Error| unsupported(error, kind.as_ref(), driver);
    let what = format!("driver of {name}");
    let info = unread.keep_or(what, ethtool.driver(), |error| refusal("", error));
    let info = info.unwrap_or_default();
    let driver = info.driver.clone();
    let refusal = |error: &io::Error| refusal(&driver, error);
    device.driver = known(info.driver);
    device.firmware = known(info.firmware);
    device.bus = known(info.bus).or(device.bus.take());

    let what = format!("link speed of {name}");
    // These drivers make a speed up that limits nothing (`veth_get_link_ksettings` and `tun_default_link_ksettings`:
    // 10 Gbit/s).
    let is_made_up = matches!(kind, Some(InfoKind::Veth | InfoKind::Tun));
    match unread.keep_or(what.clone(), ethtool.link(), refusal) {
        Some(_) if is_made_up => unread.push(
            what,
            format!("the driver {driver} always reports the same speed, which limits nothing"),
        ),
        Some(settings) => {
            let speed = settings.speed_mbit_s;
            device.speed = speed.map(|mbit| BitRate(u64::from(mbit) * 1_000_000));
            let duplex = settings.full_duplex;
            device.duplex = duplex.map(|full| if full { "full" } else { "half" }.to_owned());
            if speed.is_none() {
                unread.push(what, format!("the driver {driver} reports it as unknown"));
            }
        }
        None => {}
    }
    for offload in &OFFLOADS {
        let what = format!("offload {} of {name}", offload.name);
        if let Some(on) = unread.keep_or(what, ethtool.offload(offload), refusal) {
            device.offloads.insert(offload.name.to_owned(), on);
        }
    }
    let what = format!("ring sizes of {name}");
    if let Some(rings) = unread.keep_or(what, ethtool.rings(), refusal) {
        device.rx_ring = Some((rings.rx.current, rings.rx.maximum));
        device.tx_ring = Some((rings.tx.current, rings.tx.maximum));
    }
    // The link has how many there are; only how many are in use stays unknown.
    let what = format!("queues in use of {name}");
    if let Some(channels) = unread.keep_or(what, ethtool.channels(), refusal) {
        device.rx_queues = Some(channels.rx);
        device.tx_queues = Some(channels.tx);
    }
}

/// Drivers fill what they do not know with nothing, or with `N/A`.
fn known(text: String) -> Option<String> {
    (!text.is_empty() && text != "N/A").then_some(text)
}

fn unsupported(error: &io::Error, kind: Option<&InfoKind>, driver: &str) -> String {
    if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
        return why(error);
    }
    match (driver, kind) {
        ("", None) => "its driver does not support the question".to_owned(),
        ("", Some(kind)) => format!("not supported by devices of the kind {kind}"),
        (driver, _) => format!("not supported by the driver {driver}"),
    }
}
