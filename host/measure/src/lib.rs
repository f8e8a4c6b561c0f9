//! Load: bulk, request/response, copies, blocks and datagrams. Promise: changes no setting.
//!
//! Sockets are made by [`connect`] and [`listen`] with every option set before the handshake. A
//! [`Job`] and its connected sockets become a [`Load`]: one thread a stream, counters that anyone
//! may read meanwhile, and an [`Outcome`] at the end that never loses what was counted.

pub mod blocks;
mod bulk;
pub mod copy;
mod dialogue;
mod error;
mod load;
mod open;
mod place;
mod request;
mod ring;
mod udp;

pub use bulk::noise;
pub use dialogue::{Dialogue, Dialogues};
pub use error::Error;
pub use load::{
    Acceptor, Connector, DRAIN, Job, LOST_AFTER, Load, Outcome, Reconnect, Role, StreamError,
};
pub use open::{accept_options, connect, connect_privileged, listen};
pub use udp::{Count, Stamp, UdpJob, UdpLoad, UdpOutcome};
