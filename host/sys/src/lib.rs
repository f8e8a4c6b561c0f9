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
pub mod terminal;
pub mod udp;

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Locks. What a thread that panicked meanwhile has left is taken unchanged: every change under these locks is complete
/// before the next step that could panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread of this name.
pub fn spawn<T: Send + 'static>(
    name: &str,
    act: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(act)
}
