//! UDP sockets that share a port, and many datagrams in one system call.

use crate::socket;
use rustix::net::SocketType;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Datagrams that one system call takes at most.
pub const BATCH: usize = 64;

/// Room for one control message with a time stamp, generously.
const CONTROL: usize = 64;

/// The kernel's time of arrival comes with each packet.
pub(crate) const STAMPS: socket::IntOption = (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);

/// Binds a UDP socket that lets others bind the same port (`SO_REUSEADDR`), which UDP needs for one
/// connected socket a peer beside the one that listens. An IPv6 socket takes IPv4 as well if bound to
/// the unspecified address.
pub fn bind_shared(local: SocketAddr) -> io::Result<UdpSocket> {
    let fd = socket::inet(&local, SocketType::DGRAM)?;
    socket::set(fd.as_fd(), socket::REUSE_ADDRESS, 1)?;
    if local.is_ipv6() {
        socket::set(fd.as_fd(), socket::V6_ONLY, 0)?;
    }
    socket::bind(fd.as_fd(), &local)?;
    Ok(UdpSocket::from(fd))
}

/// The same socket as std's stream, which does for any connected socket what all have in common: its addresses, its
/// options and its end.
pub fn as_stream(udp: UdpSocket) -> TcpStream {
    OwnedFd::from(udp).into()
}

/// Requests the kernel's time of arrival with every datagram (`SO_TIMESTAMPNS`).
pub fn stamp_arrivals(udp: BorrowedFd<'_>) -> io::Result<()> {
    socket::set(udp, STAMPS, 1)
}

/// Sets send and receive buffer (`SO_SNDBUF`, `SO_RCVBUF`) to `bytes`; the kernel doubles them and
/// cuts them to `net.core.wmem_max` and `rmem_max` without a word.
pub fn set_buffers(udp: &UdpSocket, bytes: u32) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    socket::set(udp.as_fd(), socket::SEND_BUFFER, bytes)?;
    socket::set(udp.as_fd(), socket::RECEIVE_BUFFER, bytes)
}

/// Sets the byte of the type of service (traffic class in IPv6) by the family of the peer.
pub fn set_tos(udp: &UdpSocket, tos: u8) -> io::Result<()> {
    socket::set_tos(udp.as_fd(), udp.local_addr()?.is_ipv6(), tos)
}

/// Sends the first [`BATCH`] of these over a connected or bound socket; returns how many left.
///
/// # Errors
/// What sendmmsg(2) returns if not even the first left: also errors that an earlier datagram
/// caused at the peer (`ECONNREFUSED`).
pub fn send<'a>(
    socket: BorrowedFd<'_>,
    datagrams: impl Iterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    let mut parts = [NO_PART; BATCH];
    // SAFETY: an all-zero mmsghdr is valid: no name, no parts, no control.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    for datagram in datagrams.take(BATCH) {
        parts[count].iov_base = datagram.as_ptr().cast_mut().cast();
        parts[count].iov_len = datagram.len();
        messages[count].msg_hdr.msg_iov = &raw mut parts[count];
        messages[count].msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    let (fd, messages) = (socket.as_raw_fd(), messages.as_mut_ptr());
    // SAFETY: each of the `count` headers points to one part, and each part to a datagram borrowed for
    // longer than the call, which the kernel only reads.
    let sent = unsafe { libc::sendmmsg(fd, messages, count as libc::c_uint, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

const NO_PART: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Datagrams received together.
pub struct ReceiveBatch {
    buffers: Vec<u8>,
    size: usize,
    received: Vec<(usize, Option<Duration>)>,
}

impl ReceiveBatch {
    /// Room for [`BATCH`] datagrams of up to `size` bytes; the rest of a longer one is lost.
    pub fn new(size: usize) -> ReceiveBatch {
        ReceiveBatch {
            buffers: vec![0; BATCH * size.max(1)],
            size: size.max(1),
            received: Vec::with_capacity(BATCH),
        }
    }

    /// Waits for one datagram (as long as the socket's read timeout says) and takes all that are
    /// there; returns how many.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.receive_with(socket, libc::MSG_WAITFORONE)
    }

    pub(crate) fn receive_with(
        &mut self,
        socket: BorrowedFd<'_>,
        flags: libc::c_int,
    ) -> io::Result<usize> {
        self.received.clear();
        let mut parts = [NO_PART; BATCH];
        let mut controls = [UdpControl([0; CONTROL]); BATCH];
        // SAFETY: an all-zero mmsghdr is valid: no name, no parts, no control.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (index, buffer) in self.buffers.chunks_exact_mut(self.size).enumerate() {
            parts[index].iov_base = buffer.as_mut_ptr().cast();
            parts[index].iov_len = buffer.len();
            let header = &mut messages[index].msg_hdr;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL as _;
        }
        let (fd, headers, no_timeout) = (
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            std::ptr::null_mut(),
        );
        // SAFETY: each header points to one part and one control buffer, all live, exclusively
        // borrowed and of the lengths given; a null timeout is allowed.
        let count =
            unsafe { libc::recvmmsg(fd, headers, BATCH as libc::c_uint, flags, no_timeout) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for message in &messages[..count] {
            let length = (message.msg_len as usize).min(self.size);
            self.received.push((length, arrival(&message.msg_hdr)));
        }
        Ok(count)
    }

    /// The datagrams of the last call, each with its time of arrival since 1970 if the kernel reported it.
    pub fn datagrams(&self) -> impl Iterator<Item = (&[u8], Option<Duration>)> {
        self.received
            .iter()
            .zip(self.buffers.chunks_exact(self.size))
            .map(|(&(length, at), buffer)| (&buffer[..length], at))
    }
}

/// Aligned as control messages must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct UdpControl([u8; CONTROL]);

/// The kernel's time of arrival since 1970 in what recvmmsg(2) filled.
fn arrival(header: &libc::msghdr) -> Option<Duration> {
    // SAFETY: recvmmsg filled the header and its control buffer, which is live; CMSG_FIRSTHDR
    // returns null if no whole control message is in it.
    let first = unsafe { libc::CMSG_FIRSTHDR(header).as_ref() }?;
    let wanted = first.cmsg_level == libc::SOL_SOCKET
        && first.cmsg_type == libc::SCM_TIMESTAMPNS
        && first.cmsg_len as usize >= size_of::<libc::timespec>() + size_of::<libc::cmsghdr>();
    if !wanted {
        return None;
    }
    // SAFETY: the message is long enough for a timespec, checked above; it may be unaligned.
    let time = unsafe {
        libc::CMSG_DATA(first)
            .cast::<libc::timespec>()
            .read_unaligned()
    };
    let nanos = u32::try_from(time.tv_nsec)
        .ok()
        .filter(|n| *n < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let a = bind_shared("127.0.0.1:0".parse().unwrap()).unwrap();
        let b = bind_shared("127.0.0.1:0".parse().unwrap()).unwrap();
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        b.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (a, b)
    }

    #[test]
    fn a_batch_arrives_whole_and_stamped() {
        let (a, b) = pair();
        stamp_arrivals(b.as_fd()).unwrap();
        let out = (0..BATCH as u8).map(|index| [index; 100]);
        let out: Vec<_> = out.collect();
        let sent = send(a.as_fd(), out.iter().map(|datagram| &datagram[..]));
        assert_eq!(sent.unwrap(), BATCH);
        let mut into = ReceiveBatch::new(200);
        let mut seen = Vec::new();
        while seen.len() < BATCH {
            into.receive(b.as_fd()).unwrap();
            for (datagram, at) in into.datagrams() {
                assert_eq!(datagram.len(), 100);
                assert!(at.unwrap() > Duration::from_secs(1_500_000_000));
                seen.push(datagram[0]);
            }
        }
        assert_eq!(seen, (0..BATCH as u8).collect::<Vec<_>>());
    }

    #[test]
    fn a_connected_socket_shares_the_port_of_the_listening_one() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let listening = bind_shared(any.parse().unwrap()).unwrap();
            let port = listening.local_addr().unwrap();
            let client = UdpSocket::bind(any).unwrap();
            client.connect(port).unwrap();
            let connected = bind_shared(port).unwrap();
            connected.connect(client.local_addr().unwrap()).unwrap();
            connected
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            client.send(b"to the connected one").unwrap();
            let mut buffer = [0; 64];
            assert_eq!(connected.recv(&mut buffer).unwrap(), 20, "{any}");
        }
    }
}
