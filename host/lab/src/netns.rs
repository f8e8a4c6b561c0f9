//! Work in another network namespace.

use crate::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use sys::namespace;

/// Does something in another network namespace: in a thread of its own, which ends with it.
pub(crate) fn in_net<T: Send>(
    net: &OwnedFd,
    act: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    thread::scope(|scope| {
        scope
            .spawn(|| {
                namespace::enter_net(net.as_fd())
                    .map_err(Error::system("enter a network namespace"))?;
                act()
            })
            .join()
            .expect("setting up a namespace does not panic")
    })
}
