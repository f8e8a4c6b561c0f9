//! What a service reports to the manager that started it.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Notifies the service manager that connections are taken from now on (`Type=notify`; sd_notify(3)). Without a manager that
/// waits for that (`NOTIFY_SOCKET`), does nothing.
///
/// # Errors
/// Of socket(2) and sendto(2).
pub fn ready() -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let manager = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &manager)?;
    Ok(())
}
