//! Kernel to samples: TCP_INFO, socket options, CPU, the MTU of a path, traces, what a host is. Promise: reads only.

mod configured;
mod device;
mod error;
mod fingerprint;
mod path;
mod proc;
mod qdisc;
mod route;
mod sampler;
mod socket;
mod socket_diag;
mod socket_owners;
mod socket_scanner;
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
pub use socket_owners::unit;
pub use socket_scanner::SocketScanner;
pub use tcp_info::{decode_tcp_info, tcp_info};
pub use warnings::setting_warnings;
