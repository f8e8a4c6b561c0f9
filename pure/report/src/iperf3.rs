//! iperf3's JSON: runs in its shape, for the tools that read it, and its output as runs.
//!
//! The shape is that of iperf3 3.12 with the keys that later versions added; all that iperf3 has no
//! word for stands under the one key `linerate`. A run that went up and then down has the shape of a
//! bidirectional test, whose intervals follow each other.

mod export;
mod import;

pub(crate) use export::{of_stream, socket_number, with};
pub use export::{stream_end, stream_interval, stream_start, to_json};
pub use import::from_json;
