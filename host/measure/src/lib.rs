//! Load: bulk, request/response, copies, blocks and datagrams. Promise: changes no setting.
//!
//! Sockets are made by [`connect`] and [`listen`] with every option set before the handshake. A
//! [`Job`] and its connected sockets become a [`Load`]: threads, counters that anyone
//! may read meanwhile, and an [`Outcome`] at the end that never loses what was counted.

mod blocks;
mod bulk;
mod copy;
mod cpu_placement;
mod error;
mod job;
mod load;
mod noise;
mod open;
mod prelude;
mod request;
mod ring;
mod spin;
pub mod storage;
mod stream;
mod stride;
mod udp;
mod workload;

pub use blocks::ready;
pub use error::Error;
pub use job::{Connector, DRAIN, DataAcceptor, Job, LOST_AFTER, Quota, Reconnect, Role};
pub use load::{Load, LoadOutcome, buffers};
pub use noise::noise;
pub use open::{
    accept_options, bind_datagrams, connect, connect_datagrams, connect_privileged, listen,
    listen_datagrams,
};
pub use stream::StreamError;
pub use udp::{DatagramFormat, DatagramRead, datagrams_together};
