//! UDP sockets that share a port, and many datagrams in one system call: several messages a call, and several
//! datagrams a message, which the kernel or the device cuts (`UDP_SEGMENT`) and puts together (`UDP_GRO`).

use crate::socket;
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Datagrams that one system call takes at most.
pub const BATCH: usize = 64;

/// Datagrams of one message that the kernel cuts (`UDP_MAX_SEGMENTS`; 128 from Linux 6.9 on).
pub const SEGMENTS: usize = 64;

/// Bytes of one message at most: an IPv4 packet with the headers of IP and UDP.
pub const LARGEST: usize = 65_507;

/// `include/uapi/linux/udp.h`.
const UDP_SEGMENT: libc::c_int = 103;
/// `include/uapi/linux/udp.h`.
const UDP_GRO: libc::c_int = 104;

/// Room for the control messages of a received message: time stamp, drops and size of a datagram, generously.
const CONTROL: usize = 128;

/// The kernel's time of arrival comes with each packet.
pub(crate) const STAMPS: socket::IntOption = (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);

/// Binds a UDP socket that lets others of this user bind the same port (`SO_REUSEPORT`), which UDP needs for one
/// connected socket a peer beside the one that listens. An IPv6 socket takes IPv4 as well if bound to
/// the unspecified address.
pub fn bind_shared(local: SocketAddr) -> io::Result<UdpSocket> {
    let fd = socket::udp(&local)?;
    socket::set(fd.as_fd(), socket::REUSE_PORT, 1)?;
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

/// Has the kernel hand over datagrams of one sender that arrived together as one message (`UDP_GRO`, Linux 5.0), and
/// report with each how many messages the socket has dropped for want of room (`SO_RXQ_OVFL`). Kernels that lack one
/// go on without it.
pub fn receive_together(udp: BorrowedFd<'_>) {
    let _ = socket::set(udp, (libc::SOL_UDP, UDP_GRO), 1);
    let _ = socket::set(udp, (libc::SOL_SOCKET, libc::SO_RXQ_OVFL), 1);
}

/// Whether the kernel cuts messages into datagrams (`UDP_SEGMENT`, Linux 4.18). One that does not would send the
/// message as a single datagram.
pub fn can_segment(udp: BorrowedFd<'_>) -> bool {
    socket::get(udp, (libc::SOL_UDP, UDP_SEGMENT)).is_ok()
}

/// The MTU of the path as the kernel knows it, of a connected socket (`IP_MTU`).
pub fn path_mtu(udp: BorrowedFd<'_>, ipv6: bool) -> io::Result<u32> {
    let option = match ipv6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        false => (libc::IPPROTO_IP, libc::IP_MTU),
    };
    socket::get(udp, option).map(|mtu| u32::try_from(mtu).unwrap_or(0))
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

/// Sends `data` as datagrams of `size` bytes, at most [`SEGMENTS`] and [`LARGEST`] bytes of them, all or none, over a
/// connected socket.
///
/// # Errors
/// What sendmsg(2) returns; see [`refuses_segments`].
pub fn send_segmented(socket: BorrowedFd<'_>, data: &[u8], size: u16) -> io::Result<()> {
    const LENGTH: usize = size_of::<u16>();
    let mut control = UdpControl([0; CONTROL]);
    let mut part = libc::iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    };
    // SAFETY: an all-zero msghdr is valid: no name, no parts, no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN calculate. The first header and its two bytes of data lie in the control
    // buffer, which is larger, aligned and zero.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(LENGTH as libc::c_uint) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(LENGTH as libc::c_uint) as _;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(size);
    }
    // SAFETY: the message refers only to the data and the control buffer, of the lengths given, which the kernel only
    // reads.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    socket::check_len(sent).map(drop)
}

/// Whether this error of [`send_segmented`] says that no message is cut on this path (`udp_send_skb` in the kernel):
/// a datagram is above its MTU, the device does no checksums, or a transformation (IPsec) lies on it.
pub fn refuses_segments(error: &io::Error) -> bool {
    let refusals = [
        libc::EINVAL,
        libc::EIO,
        libc::EMSGSIZE,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
    ];
    error
        .raw_os_error()
        .is_some_and(|error| refusals.contains(&error))
}

const NO_PART: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Messages received together.
pub struct ReceiveBatch {
    buffers: Vec<u8>,
    size: usize,
    received: Vec<MessageHead>,
}

/// What is known of a message beside its bytes.
#[derive(Clone, Copy)]
struct MessageHead {
    length: usize,
    segment: usize,
    at: Option<Duration>,
    drops: Option<u32>,
}

/// A received message.
pub struct ReceivedMessage<'a> {
    /// Its bytes.
    pub payload: &'a [u8],
    /// Time of arrival since 1970, if the kernel reported it: of all of its datagrams.
    pub at: Option<Duration>,
    /// Messages that the socket had dropped when this one came, where [`receive_together`] asked for it. A dropped
    /// message has as many datagrams as would have come in it.
    pub drops: Option<u32>,
    segment: usize,
}

impl<'a> ReceivedMessage<'a> {
    /// The datagrams in it.
    pub fn datagrams(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.payload.chunks(self.segment)
    }
}

impl ReceiveBatch {
    /// Room for `count` messages (at most [`BATCH`]) of up to `size` bytes; the rest of a longer one is lost.
    pub fn new(count: usize, size: usize) -> ReceiveBatch {
        let (count, size) = (count.clamp(1, BATCH), size.max(1));
        ReceiveBatch {
            buffers: vec![0; count * size],
            size,
            received: Vec::with_capacity(count),
        }
    }

    /// Waits for one message (as long as the socket's read timeout says) and takes all that are
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
        let mut controls = [const { MaybeUninit::<UdpControl>::uninit() }; BATCH];
        // SAFETY: an all-zero mmsghdr is valid: no name, no parts, no control.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut room: libc::c_uint = 0;
        for (index, buffer) in self.buffers.chunks_exact_mut(self.size).enumerate() {
            parts[index].iov_base = buffer.as_mut_ptr().cast();
            parts[index].iov_len = buffer.len();
            let header = &mut messages[index].msg_hdr;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = controls[index].as_mut_ptr().cast();
            header.msg_controllen = CONTROL as _;
            room += 1;
        }
        let (fd, headers, no_timeout) = (
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            std::ptr::null_mut(),
        );
        // SAFETY: each of the `room` headers points to one part and one control buffer, all live, exclusively
        // borrowed and of the lengths given; a null timeout is allowed.
        let count = unsafe { libc::recvmmsg(fd, headers, room, flags, no_timeout) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for message in &messages[..count] {
            let length = (message.msg_len as usize).min(self.size);
            self.received.push(head(length, &message.msg_hdr));
        }
        Ok(count)
    }

    /// The messages of the last call.
    pub fn messages(&self) -> impl Iterator<Item = ReceivedMessage<'_>> {
        self.received
            .iter()
            .zip(self.buffers.chunks_exact(self.size))
            .map(|(head, buffer)| ReceivedMessage {
                payload: &buffer[..head.length],
                at: head.at,
                drops: head.drops,
                segment: head.segment,
            })
    }
}

/// Aligned as control messages must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct UdpControl([u8; CONTROL]);

/// What the control messages of a message say that recvmmsg(2) filled.
fn head(length: usize, header: &libc::msghdr) -> MessageHead {
    let mut head = MessageHead {
        length,
        segment: length.max(1),
        at: None,
        drops: None,
    };
    // SAFETY: recvmmsg filled the header and its control buffer, which is live; the macro
    // returns null if no whole control message is in it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: a non-null header lies inside what the kernel filled, complete and aligned.
        let of = unsafe { *next };
        let holds = |bytes: usize| of.cmsg_len as usize >= size_of::<libc::cmsghdr>() + bytes;
        // SAFETY: as for the header; read only as far as it holds.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (of.cmsg_level, of.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if holds(size_of::<libc::timespec>()) => {
                // SAFETY: the message is long enough for a timespec, checked above; it may be unaligned.
                head.at = since_1970(unsafe { data.cast::<libc::timespec>().read_unaligned() });
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if holds(size_of::<u32>()) => {
                // SAFETY: long enough, as above.
                head.drops = Some(unsafe { data.cast::<u32>().read_unaligned() });
            }
            (libc::SOL_UDP, UDP_GRO) if holds(size_of::<u32>()) => {
                // SAFETY: long enough, as above.
                let size = unsafe { data.cast::<u32>().read_unaligned() } as usize;
                head.segment = if size > 0 { size } else { head.segment };
            }
            _ => {}
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    head
}

fn since_1970(time: libc::timespec) -> Option<Duration> {
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
        let mut into = ReceiveBatch::new(BATCH, 200);
        let mut seen = Vec::new();
        while seen.len() < BATCH {
            into.receive(b.as_fd()).unwrap();
            for message in into.messages() {
                assert_eq!(message.payload.len(), 100);
                assert!(message.at.unwrap() > Duration::from_secs(1_500_000_000));
                seen.push(message.payload[0]);
            }
        }
        assert_eq!(seen, (0..BATCH as u8).collect::<Vec<_>>());
    }

    #[test]
    fn a_message_is_cut_and_put_together() {
        let (a, b) = pair();
        stamp_arrivals(b.as_fd()).unwrap();
        receive_together(b.as_fd());
        assert!(can_segment(a.as_fd()));
        let out: Vec<u8> = (0..10u8).flat_map(|index| [index; 100]).collect();
        // The last one is shorter.
        send_segmented(a.as_fd(), &out[..950], 100).unwrap();
        let mut into = ReceiveBatch::new(2, LARGEST);
        let (mut sizes, mut firsts) = (Vec::new(), Vec::new());
        while sizes.iter().sum::<usize>() < 950 {
            into.receive(b.as_fd()).unwrap();
            for message in into.messages() {
                assert!(message.at.is_some());
                sizes.extend(message.datagrams().map(<[u8]>::len));
                firsts.extend(message.datagrams().map(|datagram| datagram[0]));
            }
        }
        assert_eq!(sizes, [100, 100, 100, 100, 100, 100, 100, 100, 100, 50]);
        assert_eq!(firsts, (0..10).collect::<Vec<u8>>());
    }

    #[test]
    fn what_is_not_cut_is_refused() {
        let (a, _b) = pair();
        // More datagrams than any kernel cuts; a datagram above an MTU is refused in the same way.
        let error = send_segmented(a.as_fd(), &[0; 100 * 200], 100).unwrap_err();
        assert!(refuses_segments(&error), "{error}");
        assert!(path_mtu(a.as_fd(), false).unwrap() > 1000);
    }

    #[test]
    fn what_the_socket_drops_is_counted() {
        let (a, b) = pair();
        receive_together(b.as_fd());
        set_buffers(&b, 4096).unwrap();
        for _ in 0..200 {
            a.send(&[7; 1000]).unwrap();
        }
        b.set_nonblocking(true).unwrap();
        let mut into = ReceiveBatch::new(BATCH, 2000);
        let mut arrived = 0;
        while let Ok(count) = into.receive(b.as_fd()) {
            arrived += count as u32;
        }
        a.send(&[7; 1000]).unwrap();
        assert_eq!(into.receive(b.as_fd()).unwrap(), 1);
        let last = into.messages().next().unwrap();
        assert!((1..100).contains(&arrived), "{arrived}");
        assert_eq!(last.drops, Some(200 - arrived));
    }

    #[test]
    fn a_port_is_not_joined_by_who_only_reuses_its_address() {
        let shared = bind_shared("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = shared.local_addr().unwrap();
        let other = socket::udp(&port).unwrap();
        socket::set(other.as_fd(), socket::REUSE_ADDRESS, 1).unwrap();
        let refused = socket::bind(other.as_fd(), &port).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
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
