//! Runs and summaries to text, CSV and JSON; returns strings, writes nothing.
//!
//! Whatever came from a peer or a file (host names, kernel strings, sysctls, error sentences) passes
//! [`words::escape`] before it can reach a terminal.

pub mod blocks;
pub mod copy;
pub mod csv;
mod diff;
mod evidence;
pub mod explain;
mod figures;
pub mod flent;
pub mod gate;
pub mod iperf3;
pub mod json;
pub mod live;
pub mod mesh;
pub mod mtu;
pub mod mtu_change;

pub mod page;
pub mod pages;
pub mod parquet;
pub mod pcapng;
pub mod physics;
pub mod pictures;
mod prelude;
pub mod prometheus;
pub mod prove;
pub mod pscheduler;
pub mod published;
pub mod redact;
pub mod requests;
mod requests_diff;
pub mod sample_table;
pub mod settings_review;
mod summary;
#[cfg(test)]
mod tests;
pub mod trace;
pub mod tune;
pub mod watch;
pub mod words;

pub use diff::{diff, json as diff_json};
pub use requests_diff::requests_diff;
pub use summary::{in_retrospect, summary};
#[cfg(test)]
use tests::testing;
pub use words::{Ink, Style};
