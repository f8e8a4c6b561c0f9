//! Control connections: a protocol machine over a stream of bytes, with a thread that drives it.
//!
//! [`crate::peer`] reaches the agent of a host; [`at_stdio`] is an agent's end of a pipe, and
//! [`crate::listener`] accepts agents' ends from the network.

pub mod acceptor;
mod channel;
mod child;
mod reach;
mod tls;

#[cfg(test)]
pub use channel::ControllerChannel;
pub use channel::{AgentChannel, Channel, Ended, Event, Sender};
#[cfg(test)]
pub use child::Line;
pub use reach::{
    How, Reached, accept_invitation, at_standard_input, at_stdio, on_this_machine, over_ssh,
    over_tls, resolve,
};
pub use tls::{ENROL, Handshake, SESSION, Tls, Verdict, discard};

/// Version of linerate, as it introduces itself.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
