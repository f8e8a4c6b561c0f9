//! Path MTU discovery (RFC 4821, RFC 8899), without a socket and without a clock.
//!
//! - [`Ladder`] says which sizes to send, round by round, and takes what arrived.
//! - [`judge`] says what stops larger ones, from facts as values.
//! - [`change`] says how two hosts come to another MTU without an outage, and whether it worked.
//! - [`mss_of_tcp`] and [`mss_of_packet`] read the MSS of a SYN that somebody quotes, and [`clamp_at`] finds the box that lowers the MSS, from SYNs that hops quoted.

pub mod change;
mod ladder;
mod syn;
mod verdict;

pub use ladder::{Ladder, Rule};
pub use model::mtu::Probe;
pub use syn::{mss_of_packet, mss_of_tcp};
pub use verdict::{Facts, clamp_at, judge};
