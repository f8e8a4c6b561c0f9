//! Connections: what accepts them, and what drives a protocol machine over them.
//!
//! [`crate::peer`] reaches the agent of a host; [`at_stdio`] is an agent's end of a pipe, and
//! [`crate::listener`] accepts agents' ends from the network.

pub mod acceptor;
pub mod admission;
mod channel;
mod child;
pub mod driver;
pub mod install;
mod reach;
mod tls;

#[cfg(test)]
pub use channel::ControllerChannel;
pub use channel::{AgentChannel, Channel, ChannelEnd, ChannelEvent, ChannelSender};
pub use reach::{
    How, Reached, accept_invitation, at_standard_input, at_stdio, on_this_machine, over_ssh,
    over_tls, resolve,
};
pub use tls::{ENROL, Handshake, SESSION, Tls, Verdict, discard};

/// Version of linerate, as it introduces itself.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
