//! What is to be done: the order for a run, as data.

use crate::names::named;
use crate::{Bulk, Bytes, Nanos, SocketSettings, Workload};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The whole order for one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The workload, by `kind`.
    pub workload: Workload,
    /// Which way.
    pub directions: Directions,
    /// Connections for each leg, each with its own thread.
    pub streams: u32,
    /// When a leg ends.
    pub limit: LegLimit,
    /// Start of each leg that the steady figures leave out; `None`: the longer of 2 s and 20 round
    /// trips, at most half of the leg.
    #[serde(rename = "ramp_ns")]
    pub ramp: Option<Nanos>,
    /// Time between samples.
    #[serde(rename = "interval_ns")]
    pub interval: Nanos,
    /// Both ends record every segment of their data sockets, as far as each may.
    #[serde(default)]
    pub trace: bool,
    /// Options of every data socket.
    pub socket: SocketSettings,
    /// Where the load runs on the host of the command.
    pub local: Placement,
    /// Where the load runs on the remote host.
    pub remote: Placement,
}

impl Spec {
    /// A host reads or writes a file.
    pub fn has_files(&self) -> bool {
        [true, false]
            .iter()
            .any(|sends| self.workload.file(*sends).is_some())
    }
}

/// A bulk transfer up over one connection for 10 s, sampled every 100 ms.
impl Default for Spec {
    fn default() -> Spec {
        Spec {
            workload: Workload::Bulk(Bulk::default()),
            directions: Directions::Up,
            streams: 1,
            limit: LegLimit::Time(Nanos::from_secs(10)),
            ramp: None,
            interval: Nanos::from_millis(100),
            trace: false,
            socket: SocketSettings::default(),
            local: Placement::default(),
            remote: Placement::default(),
        }
    }
}

named! {
    /// One way between the two hosts, seen from the host of the command.
    Direction, "direction" {
        /// From here to the remote host.
        Up = "up",
        /// From the remote host to here.
        Down = "down",
    }
}

impl Direction {
    /// The side whose host sends the data (or the requests).
    pub fn sender(self) -> Side {
        match self {
            Direction::Up => Side::Local,
            Direction::Down => Side::Remote,
        }
    }
}

/// The legs of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// One leg up.
    Up,
    /// One leg down.
    Down,
    /// Up, then down.
    UpThenDown,
    /// Both at once.
    Bidirectional,
}

impl Directions {
    /// The legs in their order.
    pub fn legs(self) -> &'static [Direction] {
        match self {
            Directions::Up => &[Direction::Up],
            Directions::Down => &[Direction::Down],
            Directions::UpThenDown | Directions::Bidirectional => &[Direction::Up, Direction::Down],
        }
    }

    /// How many times legs run one after the other.
    pub fn rounds(self) -> u32 {
        match self {
            Directions::Up | Directions::Down | Directions::Bidirectional => 1,
            Directions::UpThenDown => 2,
        }
    }
}

named! {
    /// The host of the command, or the other one.
    Side, "side" {
        /// The host where the command runs.
        Local = "local",
        /// The remote host.
        Remote = "remote",
    }
}

impl Side {
    /// The other one.
    pub fn other(self) -> Side {
        match self {
            Side::Local => Side::Remote,
            Side::Remote => Side::Local,
        }
    }
}

/// When a leg ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LegLimit {
    /// After this time.
    #[serde(rename = "time_ns")]
    Time(Nanos),
    /// When the streams together have sent this much.
    Bytes(Bytes),
    /// When this many requests are answered (request workload).
    Requests(u64),
    /// At the end of the file (copy workload).
    Whole,
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// Where the load of one host runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// Source address.
    pub bind_address: Option<IpAddr>,
    /// Network device (`SO_BINDTODEVICE`).
    pub bind_device: Option<String>,
    /// Processors for the stream threads, given out in turn; empty: the scheduler's choice.
    pub cpus: Vec<u32>,
}
