//! Every unsafe block and every system call that std lacks, behind safe functions.
//! Architecture invariant: depends on no other crate of the workspace.
//!
//! A function that fails returns the error of the system call that its documentation names; only errors
//! with a meaning of their own are listed at the function.

pub mod bpf;
pub mod cache;
pub mod clock;
pub mod confine;
pub mod ethtool;
pub mod file;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod packet_ring;
pub mod poll;
pub mod privilege;
pub mod probe;
pub mod process;
pub mod sched;
pub mod service;
pub mod signal;
pub mod socket;
pub mod splice;
pub mod udp;
