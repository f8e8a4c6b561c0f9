//! One account of a TCP connection: what its packets, or the events of its socket, say about it.
//!
//! The only room that knows what a sequence number is. It names no limit, no request, and formats nothing.

pub mod clock;
pub mod connection;
pub mod listing;
pub mod seq;
pub mod stream;
pub mod table;
pub mod thresholds;
pub mod two_vantage;
pub mod vantage;
pub mod waits;
