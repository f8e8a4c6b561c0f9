//! Kernel to samples: TCP_INFO, CPU, the fingerprint of a host. Promise: reads only.
//!
//! - [`tcp_info`] reads the kernel's account of one TCP socket; [`decode_tcp_info`] is its pure half.
//! - [`socket_options`] reads back the options of a live socket, and [`setting_warnings`] says in words
//!   where they differ from those asked for.
//! - [`Sampler`] takes the samples of one end of a leg.
//! - [`path_end`] says what the kernel believes of the MTU of a path.
//! - [`configured`] says what sets this host up when it starts.
//! - [`fingerprint`] says what this host is, as far as it bears on a transfer.

mod configured;
mod device;
mod error;
mod fingerprint;
mod netlink;
mod path;
mod qdisc;
mod route;
mod sampler;
mod socket;
mod sysctl;
mod tcp_info;
pub mod trace;
mod unread;
mod virtualisation;
mod warnings;

pub use configured::configured;
pub use device::line_errors;
pub use error::Error;
pub use fingerprint::fingerprint;
pub use path::{path_end, path_end_after};
pub use sampler::Sampler;
pub use socket::socket_options;
pub use tcp_info::{decode_tcp_info, tcp_info};
pub use warnings::setting_warnings;
