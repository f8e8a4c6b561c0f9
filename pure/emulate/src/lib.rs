//! What a path does to packets: rate, delay, queues and faults, without socket, clock or thread.
//!
//! A [`Scenario`] is a network as data, read from a TOML file: nodes, links, and for each direction
//! of a link a [`Shape`]. A [`Pipe`] is one such direction at work: packets and moments go in,
//! packets come out when they are due, and [`EmulatorCounters`] counts what was done to them. A [`Duplex`] is
//! both directions of a link, which a half-duplex link couples.
//!
//! The same seed and the same packets at the same moments have the same fate, for ever.

mod aqm;
mod bucket;
mod duplex;
mod emulator_counters;
mod file;
mod loss;
mod packet;
mod pipe;
mod scenario;
mod seed;
mod shape;
mod shipped;
mod varying_rate;

pub use duplex::Duplex;
pub use emulator_counters::{
    DropCause, Drops, EmulatorCounters, EmulatorEvent, EventKind, FrameTally, QueueDepth,
};
pub use packet::{
    Delivery, ETHERNET_HEADER, Ecn, EmulatedPacket, FRAME_OVERHEAD, KeptSegments,
    wire_bytes_of_frame,
};
pub use pipe::Pipe;
pub use scenario::{
    Cidr, Direction, Icmp, Link, LinkEnd, MssClamp, Nat, Node, NodeKind, PortForward, Scenario,
    ScriptStep, StaticRoute, Traffic,
};
pub use shape::{
    AckThinning, Aqm, Bucket, CoDelRule, Cross, Distribution, Duplicate, Jitter, LossModel, Queue,
    QueueLimit, RateState, RateVariation, RedRule, Reorder, Shape,
};
