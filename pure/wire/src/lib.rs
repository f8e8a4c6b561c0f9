//! Protocols as machines without a socket and without a clock: bytes and moments go in, events and
//! bytes come out. The only code that parses what a stranger sent.

pub mod control;
pub mod http;
pub mod iperf3;
pub mod nfs;
