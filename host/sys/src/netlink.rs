//! A plain, blocking netlink socket. What goes through it is encoded and decoded elsewhere.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A socket of family `AF_NETLINK`.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// Whom a netlink socket speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `NETLINK_ROUTE` (rtnetlink(7)).
    Route,
    /// `NETLINK_GENERIC`: families that are found by name.
    Generic,
    /// `NETLINK_SOCK_DIAG`: the sockets of the namespace (sock_diag(7)).
    Sockets,
}

impl Socket {
    /// Opens the socket in the network namespace of the calling thread. Needs no privilege.
    ///
    /// # Errors
    /// What socket(2) and setsockopt(2) say; `EAFNOSUPPORT` or `EPERM` in a sandbox without netlink.
    pub fn open(protocol: Protocol) -> io::Result<Socket> {
        let protocol = match protocol {
            // NETLINK_ROUTE is 0, the default.
            Protocol::Route => None,
            Protocol::Generic => Some(netlink::GENERIC),
            Protocol::Sockets => Some(netlink::SOCK_DIAG),
        };
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, protocol)?;
        // The kernel answers at once; this bounds the wait should it ever not.
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
        Ok(Socket(socket))
    }

    /// From now on refusals are short, and carry the kernel's own words where it has any
    /// (`NETLINK_CAP_ACK`, `NETLINK_EXT_ACK`).
    ///
    /// # Errors
    /// What setsockopt(2) says: `ENOPROTOOPT` before Linux 4.12.
    pub fn explain_refusals(&self) -> io::Result<()> {
        for option in [libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK] {
            crate::socket::set(self.0.as_fd(), libc::SOL_NETLINK, option, 1i32)?;
        }
        Ok(())
    }

    /// From now on what the kernel tells this group comes in as well.
    pub fn join(&self, group: u32) -> io::Result<()> {
        crate::socket::set(
            self.0.as_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_ADD_MEMBERSHIP,
            group,
        )
    }

    /// Sends one whole request to the kernel.
    pub fn send(&self, request: &[u8]) -> io::Result<()> {
        match rustix::net::send(&self.0, request, SendFlags::empty())? {
            n if n == request.len() => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::WriteZero,
                "the kernel took only a part of a netlink request",
            )),
        }
    }

    /// Receives one datagram, which can hold several messages, and returns its length.
    ///
    /// # Errors
    /// What recv(2) says; `InvalidData` if the datagram is longer than the buffer.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// The same without waiting; zero if nothing is there.
    ///
    /// # Errors
    /// As [`Socket::receive`]; `ENOBUFS` if something was lost since the last call.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.receive_with(buffer, RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    fn receive_with(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        let room = buffer.len();
        // With MSG_TRUNC the length of a datagram is the true one.
        let (_, length) = rustix::net::recv(&self.0, buffer, RecvFlags::TRUNC | flags)?;
        if length > room {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a netlink answer of {length} bytes is longer than its buffer"),
            ));
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_an_unknown_request_with_an_error() {
        let socket = Socket::open(Protocol::Route).unwrap();
        // struct nlmsghdr: length 16, type 0xffff, flags NLM_F_REQUEST | NLM_F_ACK, sequence 7, port 0.
        let mut request = Vec::new();
        request.extend(16u32.to_ne_bytes());
        request.extend(0xffffu16.to_ne_bytes());
        request.extend(5u16.to_ne_bytes());
        request.extend(7u32.to_ne_bytes());
        request.extend(0u32.to_ne_bytes());
        socket.send(&request).unwrap();
        let mut answer = [0; 4096];
        let n = socket.receive(&mut answer).unwrap();
        assert!(n >= 20);
        // NLMSG_ERROR to the same sequence number.
        assert_eq!(answer[4..6], 2u16.to_ne_bytes());
        assert_eq!(answer[8..12], 7u32.to_ne_bytes());
    }

    #[test]
    fn a_buffer_too_small_is_said() {
        let socket = Socket::open(Protocol::Route).unwrap();
        socket
            .send(&[16, 0, 0, 0, 0xff, 0xff, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0])
            .unwrap();
        let error = socket.receive(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
