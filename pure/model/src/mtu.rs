//! What size of packet really gets through, in each direction. Sizes are in bytes of the whole IP packet.

use crate::{Nanos, RunId};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

mod change;

pub use change::{
    CHANGE_SCHEMA, ChangeOutcome, ChangeReach, ChangeStage, Going, MtuChange, Obstacle, Stopped,
};

/// Version of the JSON form of [`MtuReport`].
pub const MTU_SCHEMA: u32 = 1;

/// What the archive keeps of a path's MTU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MtuRecord {
    /// Name in the archive.
    pub id: RunId,
    /// When it was over, since 1970-01-01 UTC.
    #[serde(rename = "ended_unix_ns")]
    pub ended: Nanos,
    /// What it was.
    pub found: MtuFound,
}

/// A look, or a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MtuFound {
    /// `linerate mtu`.
    Look(Box<MtuReport>),
    /// `linerate tune mtu`.
    Change(Box<MtuChange>),
}

impl MtuFound {
    /// What got through when it was over.
    pub fn report(&self) -> &MtuReport {
        match self {
            MtuFound::Look(report) => report,
            MtuFound::Change(change) => match (&change.outcome, &change.after) {
                (ChangeOutcome::Committed, Some(after)) => after,
                _ => &change.before,
            },
        }
    }

    /// The remote host, as the user named it.
    pub fn host(&self) -> &str {
        match self {
            MtuFound::Look(report) => &report.host,
            MtuFound::Change(change) => &change.host,
        }
    }
}

/// What was found between two hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MtuReport {
    /// Version of this form.
    pub schema: u32,
    /// The remote host as the user named it.
    pub host: String,
    /// `agent`: datagrams that the peer acknowledged; `web`: connections to a web server.
    pub method: Method,
    /// This host.
    pub local: PathEnd,
    /// The remote host; `None` without an agent there.
    pub remote: Option<PathEnd>,
    /// From this host to the remote one.
    pub forward: Way,
    /// From the remote host to this one.
    pub reverse: Way,
    /// What could not be looked at, and why: whole sentences.
    pub notes: Vec<String>,
}

/// How a path was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// An agent at the peer acknowledged datagrams of every size.
    Agent,
    /// A web server was talked to over connections of every MSS.
    Web,
}

/// One host of a path, from its kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathEnd {
    /// Its address on this path.
    pub address: Option<IpAddr>,
    /// Device of the route to the peer.
    pub device: String,
    /// MTU of that device.
    pub device_mtu: u32,
    /// Its driver; `None` where the kernel reports none.
    pub driver: Option<String>,
    /// The driver may take the link down and up when the MTU changes.
    pub drops_link: bool,
    /// Other hosts on its segment that this one has talked to lately; the next hop is not counted.
    pub neighbours: u32,
    /// Next hop of the route; `None`: the peer is on the same segment.
    pub gateway: Option<IpAddr>,
    /// What the kernel believed of the path before anything was sent.
    pub before: Belief,
    /// The same afterwards: probes and transfers teach it.
    pub after: Belief,
    /// `net.ipv4.ip_no_pmtu_disc` is set: TCP sends without DF. `None` where it does not apply.
    pub discovery_off: Option<bool>,
    /// Fragments that this host made meanwhile (IP FragCreates).
    pub fragments_made: u64,
    /// Fragments that arrived here meanwhile (IP ReasmReqds).
    pub fragments_arrived: u64,
}

/// What a kernel believes of the MTU of a path, beyond its device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Belief {
    /// MTU of the route, configured or learned; `None`: that of the device.
    pub mtu: Option<u32>,
    /// Seconds until what was learned is forgotten; `None` for what is configured.
    pub expires_s: Option<u64>,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// Result of the probes.
    pub climb: Climb,
    /// The MSS that the handshake carried in this direction, if one was looked at.
    pub mss: Option<MssSeen>,
    /// What became of 64 KiB over TCP, if they were sent.
    pub tcp: Option<TcpTruth>,
    /// What follows.
    pub verdict: MtuVerdict,
}

/// Result of a ladder of probes in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Climb {
    /// Largest size that was of interest: the smaller of both devices' MTUs.
    pub ceiling: u32,
    /// Largest that arrived; `None`: none did.
    pub passes: Option<u32>,
    /// That one byte more does not pass is certain: chance alone would look so once in a thousand times.
    pub confirmed: bool,
    /// Probes of sizes that pass.
    pub sent: u32,
    /// How many of them arrived.
    pub arrived: u32,
    /// The smallest MTU that a router reported (ICMP fragmentation needed, packet too big).
    pub too_big: Option<TooBig>,
    /// Routers that answered packets with an expired TTL, nearest first; empty if not probed.
    pub hops: Vec<Hop>,
    /// Hops to the peer, itself included, if probes found out.
    pub distance: Option<u8>,
}

/// A router's message that a packet is too big.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TooBig {
    /// Whose message.
    pub from: IpAddr,
    /// The MTU that it names.
    pub mtu: u32,
}

/// A place on the way, counted from the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hop {
    /// Hops from the sender; 1 is the first.
    pub ttl: u8,
    /// Who answered.
    pub address: Option<IpAddr>,
    /// It answered a packet of the size that passes the whole way.
    pub small: bool,
    /// It answered one that is a byte larger.
    pub large: bool,
    /// The MSS of the SYN that arrived there, if the quote includes it.
    pub mss: Option<u16>,
}

/// An MSS that was announced, and what arrived of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MssSeen {
    /// By the end that announces it.
    pub announced: u32,
    /// At the peer. If `at_least`, the peer's own MTU is no larger, so more cannot be seen.
    pub seen: u32,
    /// The true value may be larger.
    pub at_least: bool,
}

/// What became of a transfer over TCP in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpTruth {
    /// Bytes that were to arrive.
    pub asked: u64,
    /// Bytes that were acknowledged.
    pub acked: u64,
    /// It was given up after a time without progress.
    pub hangs: bool,
    /// MSS of the sender at the end.
    pub snd_mss: u32,
    /// Path MTU as the sender's socket believed at the end.
    pub pmtu: u32,
    /// Segments retransmitted.
    pub retransmitted: u32,
}

/// What stops larger packets in one direction, and what else was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MtuVerdict {
    /// Path MTU; `None` if nothing arrived.
    pub mtu: Option<u32>,
    /// What stops a packet that is one byte larger.
    pub cause: MtuCause,
    /// What else is to be known.
    pub beside: Vec<Beside>,
    /// What could not be distinguished.
    pub doubts: Vec<MtuDoubt>,
}

/// What stops larger packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MtuCause {
    /// Nothing: both devices have this MTU.
    Clear,
    /// The sender's own device.
    OwnDevice,
    /// The receiver's own device.
    PeerDevice,
    /// A router that reports the MTU (ICMP), as required.
    RouterReports {
        /// Hops from the sender, if its place was found.
        hop: Option<u8>,
        /// Who.
        from: IpAddr,
    },
    /// They reach this router and not the next hop, without a message.
    Silent {
        /// Hops from the sender.
        hop: u8,
        /// Who, if it answered.
        address: Option<IpAddr>,
        /// The next hop is the peer itself.
        last: bool,
    },
    /// They never leave the sender's own segment.
    Segment {
        /// The address at its remote side.
        to: Option<IpAddr>,
        /// That address is the peer.
        peer: bool,
    },
    /// Somewhere on the way: no hop answers.
    Somewhere,
    /// The sender makes no larger ones, though larger ones were allowed: its device, or what its kernel
    /// has learned.
    SenderStops,
    /// Nothing that is known: larger ones were not tried.
    NotTried,
    /// No probe of any size arrived.
    Nothing,
}

/// What else is to be known of a direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Beside {
    /// The sender's kernel believes in a smaller MTU that it once learned.
    StaleCache {
        /// What it believes.
        says: u32,
        /// Seconds until it forgets.
        expires_s: u64,
    },
    /// The sender's route is configured to less than passes.
    RouteMtu {
        /// The cached MTU of the route.
        says: u32,
    },
    /// A router lowers the MSS of handshakes in this direction.
    Clamp {
        /// What was announced.
        announced: u32,
        /// What arrived.
        seen: u32,
        /// The router that does it, counted from the sender: it came to this hop unchanged, and left
        /// changed. `None`: not found.
        hop: Option<u8>,
        /// Its address.
        by: Option<IpAddr>,
    },
    /// The sender lets routers cut its packets (DF is off), so larger ones do arrive, in pieces.
    Fragmented {
        /// Fragments that arrived.
        arrived: u64,
    },
    /// The size is that of a tunnel or an encapsulation.
    Encapsulation {
        /// Tunnels that leave this size of 1500 bytes.
        like: String,
    },
    /// TCP transfers hang in this direction: a black hole.
    BlackHole,
}

/// What could not be distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MtuDoubt {
    /// That router's own smaller MTU, or a switch on the link behind it.
    RouterOrLink,
    /// A switch on the segment, or the router's port at its end.
    SwitchOrPort,
    /// A router that sends no message, or one whose message is filtered before it gets here.
    SilentOrFiltered,
    /// The place, since no router on the path answers.
    Place,
    /// The last byte, because of probe loss.
    LastByte,
    /// Where the MSS is lowered.
    ClampPlace,
}

/// One packet of a search for the largest size that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// Round that it belongs to.
    pub round: u8,
    /// Size of the IP packet in bytes.
    pub size: u32,
    /// Distinguishes copies of a size.
    pub copy: u8,
}
