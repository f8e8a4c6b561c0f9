//! Path MTU discovery (RFC 4821, RFC 8899), without a socket and without a clock.
//! [`Ladder`] says which sizes to send, [`judge`] what stops larger ones, [`change`] how two hosts come to another.

pub mod change;
mod ladder;
mod syn;
mod verdict;

pub use ladder::{ProbeLadder, Rule};
pub use model::mtu::Probe;
pub use syn::{mss_of_packet, mss_of_tcp};
pub use verdict::{DirectionFacts, clamp_at, judge};
