//! Protocols as machines without a socket and without a clock ([`Machine`]). The only code that parses what an
//! unauthenticated peer sent.

pub mod control;
mod hex;
pub mod http;
pub mod iperf3;
mod machine;
pub mod nfs;

pub use hex::{hex, unhex};
pub use machine::Machine;
