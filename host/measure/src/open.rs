//! Sockets with their options set before the handshake, so that the SYN (and SYN-ACK) carry them.

use crate::Error;
use model::{Placement, SocketSettings};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Opens a data connection. Buffers, MSS, congestion control, pacing, DSCP, source address and
/// device are in force from the SYN on, which therefore announces the right window scale and MSS.
/// The stream is in blocking mode.
pub fn connect(
    remote: SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
    timeout: Duration,
) -> Result<TcpStream, Error> {
    let _ = (remote, settings, placement, timeout);
    unimplemented!()
}

/// Opens a data listener. Accepted sockets inherit the options, so the SYN-ACK carries them.
pub fn listen(
    local: SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
) -> Result<TcpListener, Error> {
    let _ = (local, settings, placement);
    unimplemented!()
}

/// Sets on an accepted stream what a listener does not hand down.
pub fn accept_options(stream: &TcpStream, settings: &SocketSettings) -> Result<(), Error> {
    let _ = (stream, settings);
    unimplemented!()
}
