//! Protocols as machines without a socket and without a clock ([`Machine`]). The only code that parses what an
//! unauthenticated peer sent.

pub mod control;
pub mod http;
pub mod iperf3;
mod machine;
pub mod nfs;

pub use machine::Machine;
