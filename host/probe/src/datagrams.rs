//! A UDP socket whose packets are as large as its owner says.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use sys::poll::{PollFd, poll};
use sys::probe::ProbeMessage;

/// Room for what arrives while its reader has no processor; the kernel cuts it to `net.core.rmem_max`.
const BUFFER: u32 = 1 << 20;

/// Bytes of the IP and UDP headers of a datagram to this host.
pub fn header(to: IpAddr) -> u32 {
    match to {
        IpAddr::V4(_) => 20 + 8,
        IpAddr::V6(_) => 40 + 8,
    }
}

/// The unspecified address of the same version.
pub fn unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A UDP socket that never blocks, ignores what the kernel believes of the path, sets DF, and keeps what
/// routers report of its packets.
pub struct DatagramProbe {
    udp: UdpSocket,
}

impl DatagramProbe {
    /// Opens it.
    pub fn open(local: SocketAddr) -> io::Result<DatagramProbe> {
        let udp = UdpSocket::bind(local)?;
        let fd = udp.as_fd();
        sys::probe::ignore_path_mtu(fd, local.is_ipv6())?;
        sys::probe::receive_errors_of(fd, local.is_ipv6())?;
        sys::udp::set_buffers(&udp, BUFFER)?;
        udp.set_nonblocking(true)?;
        Ok(DatagramProbe { udp })
    }

    /// Sets the TTL (hop limit) of its packets.
    pub fn set_hop_limit(&self, hops: u8) -> io::Result<()> {
        let ipv6 = self.udp.local_addr()?.is_ipv6();
        sys::probe::set_hop_limit(self.udp.as_fd(), ipv6, hops)
    }

    /// Its port.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.udp.local_addr()?.port())
    }

    /// Sends a datagram. One that does not leave is as good as lost: the device's queue is full or a
    /// veth peer did not take it (`ENOBUFS`), the device is smaller (`EMSGSIZE`).
    ///
    /// # Errors
    /// What else sendto(2) returns: no route, forbidden.
    pub fn send(&self, payload: &[u8], to: SocketAddr) -> io::Result<()> {
        // The first error may be a router's message about an earlier packet (ip(7)).
        let sent = self.udp.send_to(payload, to);
        match sent.or_else(|_| self.udp.send_to(payload, to)) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EMSGSIZE) => Ok(()),
                // Of another packet, or of this one by a router's message that is kept.
                Some(libc::EHOSTUNREACH | libc::ECONNREFUSED | libc::EPROTO) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// A datagram that is there, cut to `room`.
    pub fn receive(&self, room: &mut [u8]) -> Option<(usize, SocketAddr)> {
        // An error in between is a router's message, which is kept; each is reported once.
        (0..64).find_map(|_| match self.udp.recv_from(room) {
            Ok(got) => Some(Some(got)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(None),
            Err(_) => None,
        })?
    }

    /// A router's message about a packet.
    pub fn message(&self) -> Option<ProbeMessage> {
        sys::probe::take_message(self.udp.as_fd()).ok().flatten()
    }

    /// Waits until something is there.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        poll(
            &mut [PollFd::new(self.udp.as_fd(), true, false)],
            Some(timeout),
        )
        .map(drop)
    }

    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(self.udp.as_fd(), true, false)
    }
}

/// Waits until something is there at one of them.
///
/// # Errors
/// Of poll(2).
pub fn wait_any(sockets: &[&DatagramProbe], timeout: Duration) -> io::Result<()> {
    let mut fds: Vec<_> = sockets.iter().map(|socket| socket.poll_fd()).collect();
    poll(&mut fds, Some(timeout)).map(drop)
}
