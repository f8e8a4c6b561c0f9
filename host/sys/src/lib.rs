//! Every unsafe block and every system call that std lacks, behind safe functions.
//! Architecture invariant: knows no other room.

pub mod bpf;
pub mod cache;
pub mod ethtool;
pub mod file;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod packet_ring;
pub mod poll;
pub mod probe;
pub mod process;
pub mod read_option;
pub mod sched;
pub mod signal;
pub mod socket;
pub mod udp;
