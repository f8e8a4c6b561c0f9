//! Sockets that find out what size gets through. Promise: changes no setting of the machine, only options
//! of its own sockets. (The kernel learns from routers' messages meanwhile, as from any transfer.)
//!
//! - [`Datagrams`] sends packets of any size the device takes, whatever the kernel believes of the path.
//! - [`trace`] finds the routers of a path, with packets that run out of hops.
//! - [`quoted_syns`] asks the same with SYNs, and returns them as they arrived there.

mod datagrams;
mod hops;
mod syn;

pub use datagrams::{DatagramProbe, header, unspecified, wait_any};
pub use hops::{Ask, Found, trace};
pub use syn::quoted_syns;
pub use sys::probe::Said;
