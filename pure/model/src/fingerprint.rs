//! What a host is, as far as it bears on a transfer.

use crate::{BitRate, Bytes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One host as seen from one path through it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fingerprint {
    /// Version of linerate on this host.
    pub linerate: String,
    /// Name of the host.
    pub hostname: String,
    /// Random id of this start of the kernel (random(4)): the same in all its network namespaces and containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Operating system and kernel release, as `uname -sr` prints them.
    pub kernel: String,
    /// Machine architecture.
    pub architecture: String,
    /// Distribution, from os-release.
    pub distribution: Option<String>,
    /// Processors.
    pub cpu: Cpu,
    /// Memory in all.
    pub memory: Option<Bytes>,
    /// Hypervisor or container kind; `None` on bare metal as far as is visible.
    pub virtualisation: Option<String>,
    /// Current kernel clock source.
    pub clock_source: Option<String>,
    /// Route to the peer.
    pub route: Option<Route>,
    /// Device that the route leaves by.
    pub device: Option<Device>,
    /// Congestion control of the host.
    pub congestion: Option<Congestion>,
    /// Sysctls that bear on TCP: full name to value, white space folded.
    pub sysctls: BTreeMap<String, String>,
    /// What could not be read, and why.
    pub unread: Vec<Unread>,
}

impl Fingerprint {
    /// Of a Linux kernel, major and minor: `Linux 6.18.44-distro` is (6, 18).
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.kernel.strip_prefix("Linux ")?.split(['.', '-']);
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// The processors of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Model name.
    pub model: String,
    /// Processors online.
    pub online: u32,
    /// Frequency governor of the first processor, where there is one.
    pub governor: Option<String>,
}

/// The route to one peer, as the kernel resolves it (RTM_GETROUTE).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// Address of the peer.
    pub destination: Option<IpAddr>,
    /// Next hop; `None` on the same link.
    pub gateway: Option<IpAddr>,
    /// Source address that the kernel would choose.
    pub source: Option<IpAddr>,
    /// Leaving device.
    pub device: String,
    /// Metrics set on the route (mtu, advmss, initcwnd, initrwnd, window, rto_min, quickack,
    /// cc_algo, ...), by the names of ip-route(8).
    pub metrics: BTreeMap<String, String>,
}

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Interface name.
    pub name: String,
    /// Driver.
    pub driver: Option<String>,
    /// Firmware or driver version.
    pub firmware: Option<String>,
    /// Bus address.
    pub bus: Option<String>,
    /// Link speed; `None` where the driver does not report it (veth, many virtual devices).
    #[serde(rename = "speed_bit_s")]
    pub speed: Option<BitRate>,
    /// `full` or `half`, where reported.
    pub duplex: Option<String>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Offloads by ethtool's short names (tso, gso, gro, lro, rx, tx, sg, ...): on or off.
    pub offloads: BTreeMap<String, bool>,
    /// Root queueing discipline, with its parameters where reported.
    pub qdisc: Option<String>,
    /// Transmit queue length in packets.
    pub tx_queue_len: Option<u32>,
    /// Receive ring: entries now, at most.
    pub rx_ring: Option<(u32, u32)>,
    /// Transmit ring: entries now, at most.
    pub tx_ring: Option<(u32, u32)>,
    /// Microseconds that the device waits for more packets before it interrupts, where it reports them and does not
    /// adapt them.
    pub rx_usecs: Option<u32>,
    /// The same for sent packets.
    pub tx_usecs: Option<u32>,
    /// Receive queues.
    pub rx_queues: Option<u32>,
    /// Transmit queues.
    pub tx_queues: Option<u32>,
}

/// Congestion control of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Congestion {
    /// Default algorithm.
    pub default: String,
    /// Algorithms that are loaded.
    pub available: Vec<String>,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unread {
    /// What could not be read.
    pub what: String,
    /// Why not.
    pub why: String,
}
